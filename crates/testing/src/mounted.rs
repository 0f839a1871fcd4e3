//! Tests on a file system of their own, so small that it becomes full.

use crate::needs::{Need, are_there, left_out};
use std::path::Path;
use std::process::Command;

/// What a shell ends with that could not mount.
const CANNOT_MOUNT: i32 = 77;

/// Runs an ignored test of this program, by its name with the modules that it lies in, again, in a name space of mounts where `folder` is a file system of this size (`"64m"`). The
/// variable `name` of its environment has the folder. Only root can do that: otherwise it says that the test is left out.
///
/// # Panics
/// If the test fails there.
pub fn in_small_file_system(test: &str, size: &str, folder: &Path, name: &str) {
    if !are_there(&[Need::Root, Need::Program("unshare")]) {
        return;
    }
    let own = std::env::current_exe().expect("a test knows its program");
    let script = format!(
        "mount --make-rprivate / && mount -t tmpfs -o size={size} none '{}' || exit {CANNOT_MOUNT}
         exec '{}' --exact {test} --ignored --nocapture",
        folder.display(),
        own.display()
    );
    let mut unshare = Command::new("unshare");
    let output = unshare.args(["--mount", "sh", "-c", &script]).env(name, folder).output();
    let output = output.expect("unshare is there");
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    if output.status.code() == Some(CANNOT_MOUNT) || said.contains("Operation not permitted") {
        return left_out(&format!("a file system of limited size cannot be mounted here: {said}"));
    }
    assert!(output.status.success() && said.contains("1 passed"), "{}: {said}", output.status);
}
