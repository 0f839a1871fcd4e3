//! What a test needs of the machine beyond a toolchain: root, FUSE, a database. Where it is not there, the test is left out, and says so on
//! the terminal (libtest shows nothing of what a test that passes prints). Where everything must run, as in continuous integration, the
//! test fails instead: [`ALL`] is set there.

use std::fmt;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The variable of the environment that says that no test may be left out.
pub const ALL: &str = "DIECUT_TEST_ALL";

/// Something that not every machine has.
#[derive(Clone, Debug)]
pub enum Need {
    /// The rights of root.
    Root,
    /// A program in the path.
    Program(&'static str),
    /// A header that the C++ compiler finds.
    Header(&'static str),
    /// A module of Debian's Python.
    PythonModule(&'static str),
    /// A file, and what makes it.
    File(PathBuf, &'static str),
}

/// What a file system of FUSE needs that others may use.
pub fn fuse() -> Vec<Need> {
    vec![Need::Root, Need::File("/dev/fuse".into(), "the kernel"), Need::Program("umount")]
}

/// What a test needs, besides root, that makes ext4 on a file and mounts it.
pub fn ext4() -> Vec<Need> {
    let programs = ["losetup", "mount", "umount", "mkfs.ext4", "e2fsck"].map(Need::Program);
    [vec![Need::Root, Need::File("/dev/loop-control".into(), "the kernel")], programs.to_vec()].concat()
}

impl Need {
    fn is_there(&self) -> bool {
        match self {
            Need::Root => is_root(),
            Need::Program(name) => {
                let path = std::env::var_os("PATH").unwrap_or_default();
                std::env::split_paths(&path).any(|folder| folder.join(name).is_file())
            }
            Need::Header(name) => compiles(name),
            Need::PythonModule(name) => {
                let mut python = Command::new("/usr/bin/python3");
                python.args(["-c", &format!("import {name}")]).stderr(Stdio::null());
                python.status().is_ok_and(|status| status.success())
            }
            Need::File(path, _) => path.exists(),
        }
    }
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Need::Root => write!(f, "root"),
            Need::Program(name) => write!(f, "the program {name}"),
            Need::Header(name) => write!(f, "the header {name}"),
            Need::PythonModule(name) => write!(f, "the module {name} of /usr/bin/python3"),
            Need::File(path, from) => write!(f, "{} ({from})", path.display()),
        }
    }
}

/// The second number behind `Uid:` is the one that counts.
fn is_root() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let user = status.lines().find_map(|line| line.strip_prefix("Uid:")?.split_whitespace().nth(1));
    user == Some("0")
}

fn compiles(header: &str) -> bool {
    let mut compiler = Command::new("c++");
    compiler.args(["-E", "-x", "c++", "-"]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let Ok(mut child) = compiler.spawn() else { return false };
    let told = child.stdin.take().is_some_and(|mut input| writeln!(input, "#include <{header}>").is_ok());
    child.wait().is_ok_and(|status| told && status.success())
}

/// Whether a test can run here. If not, the machine is told what is missing, and the test returns.
///
/// # Panics
/// If something is missing where no test may be left out.
#[track_caller]
#[must_use]
pub fn are_there(needs: &[Need]) -> bool {
    let missing: Vec<String> = needs.iter().filter(|need| !need.is_there()).map(Need::to_string).collect();
    if !missing.is_empty() {
        left_out(&format!("it needs {}", missing.join(" and ")));
    }
    missing.is_empty()
}

/// Says on the terminal that the test of this thread is left out.
///
/// # Panics
/// Where no test may be left out.
#[track_caller]
pub fn left_out(why: &str) {
    let thread = std::thread::current();
    let program = std::env::current_exe().unwrap_or_default();
    let program = program.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let program = program.rsplit_once('-').map_or(program.as_str(), |(name, _)| name);
    let line = format!("LEFT OUT: {program}: {}: {why}", thread.name().unwrap_or("a test"));
    assert!(std::env::var_os(ALL).is_none(), "{line}, and {ALL} says that no test may be");
    // Past what libtest keeps to itself.
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// A tool that `scripts/setup.sh` builds beside the tests.
pub fn tool(name: &str) -> Need {
    Need::File(path_of_tool(name), "scripts/setup.sh vlfs")
}

/// Where it lies.
pub fn path_of_tool(name: &str) -> PathBuf {
    let program = std::env::current_exe().unwrap_or_default();
    // target/debug/deps/this; the tools are in the same target.
    let target = program.ancestors().nth(3).unwrap_or(Path::new("target"));
    target.join("tools/bin").join(name)
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn what_is_there_is_found_and_what_is_not_is_named() {
        let there = [Need::Program("sh"), Need::File("/proc".into(), "Linux")];
        assert!(there.iter().all(Need::is_there));
        let missing = [
            Need::Program("no-such-program"),
            Need::Header("no/such/header.h"),
            Need::PythonModule("no_such_module"),
            Need::File("/no/such/file".into(), "nobody"),
        ];
        for need in missing {
            assert!(!need.is_there(), "{need}");
        }
        let user = Command::new("id").arg("-u").output().expect("coreutils").stdout;
        assert_eq!(is_root(), user == b"0\n");
    }
}
