//! A file system process with its mount, to be unmounted or killed; and tools that tests need.
#![allow(dead_code, reason = "each test program uses a part")]

use diecut_testing::needs::{self, Need};
use diecut_testing::wait;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A program that must end well; what it said.
pub fn run(command: &mut Command) -> String {
    let output =
        command.output().unwrap_or_else(|error| panic!("{command:?}: {error}; scripts/setup.sh vlfs"));
    let (said, problems) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {said}{problems}");
    format!("{said}{problems}")
}

/// Whether a test with a mount, and with what else it needs, can run here; says so if not.
pub fn is_possible(more: &[Need]) -> bool {
    needs::are_there(&[&needs::fuse()[..], more].concat())
}

/// A test suite that scripts/setup.sh built.
pub fn tool(name: &str) -> PathBuf {
    needs::path_of_tool(name)
}

pub struct Mount {
    pub child: Child,
    pub path: PathBuf,
}

impl Mount {
    /// On a folder, which is made. Waits until it can be used.
    pub fn start(path: &Path, arguments: &[&str]) -> Mount {
        std::fs::create_dir_all(path).unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_diecut-vlfs"))
            .arg("mount")
            .args(arguments)
            .arg(path)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        if !line.starts_with("mounted") {
            let mut problem = String::new();
            child.stderr.take().unwrap().read_to_string(&mut problem).unwrap();
            panic!("no file system: {problem}; these tests need /dev/fuse and root");
        }
        Mount { child, path: path.to_owned() }
    }

    pub fn embedded(path: &Path) -> Mount {
        Mount::start(path, &["--embedded", "tiny", "--allow-other"])
    }

    /// As Ctrl-C does it, until nobody has a file of it open: programs that other tests start have all, for a moment.
    pub fn unmount(mut self) {
        let id = self.child.id().to_string();
        let status = wait::wait_for(
            || "the file system goes on",
            || {
                let ended = self.child.try_wait().unwrap();
                if ended.is_none() {
                    run(Command::new("kill").args(["-INT", &id]));
                }
                ended
            },
        );
        let mut said = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert!(status.success(), "{status}: {said}");
        assert!(!is_mounted(&self.path));
    }

    /// `kill -9`; the mount is taken away.
    pub fn kill(mut self) {
        self.end();
    }

    fn end(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if is_mounted(&self.path) {
            run(Command::new("umount").arg("-l").arg(&self.path));
        }
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        self.end();
    }
}

/// For somebody else's mount, as soon as nobody has a file of it open.
pub fn unmount(path: &Path) {
    let is_done = || Command::new("umount").arg(path).output().unwrap().status.success();
    wait::wait_until(|| format!("{} stays busy", path.display()), is_done);
}

pub fn is_mounted(path: &Path) -> bool {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    mounts.lines().any(|line| line.split(' ').nth(1) == path.to_str())
}
