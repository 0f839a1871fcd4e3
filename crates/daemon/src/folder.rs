//! The data folder of a server: its owner's alone, and one server's at a time.

use crate::error::ServeError;
use std::fs::{DirBuilder, File, TryLockError};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A server that was killed gives its memory back before its folder, which takes a while: it is looked at so often, at most.
const DYING_LOOKS: u32 = 500;
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(20);

/// Whether a process was killed: it has no memory any more, or the signal that nothing survives waits for it.
fn is_dying(pid: u32) -> bool {
    let read = |name: &str| std::fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap_or_default();
    let is_killed = |line: &str| {
        let signals = line.strip_prefix("SigPnd:").or_else(|| line.strip_prefix("ShdPnd:"));
        let signals = signals.and_then(|text| u64::from_str_radix(text.trim(), 16).ok());
        signals.is_some_and(|signals| signals & SIGKILL_BIT != 0)
    };
    read("cmdline").is_empty() || read("status").lines().any(is_killed)
}
/// Signal 9 in the masks of proc(5).
const SIGKILL_BIT: u64 = 1 << 8;

/// A folder that this process holds until it is dropped.
#[derive(Debug)]
pub struct DataFolder {
    path: PathBuf,
    /// Locked.
    _file: File,
    /// This process made it, and nothing came of it yet.
    is_new: bool,
}

impl DataFolder {
    /// Makes the folder if it is not there (mode 0700) and takes it. `control` is asked who holds it, if somebody does; a process that was
    /// killed and has not ended yet is waited for.
    ///
    /// # Errors
    /// If it cannot be made, or another process holds it.
    pub fn take(path: &Path, control: &Path) -> Result<DataFolder, ServeError> {
        let failed = |what| move |source| ServeError::File { path: path.to_owned(), what, source };
        let is_new = !path.exists();
        DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed("cannot be made"))?;
        let file = File::open(path).map_err(failed("cannot be opened"))?;
        let mut looks_left = DYING_LOOKS;
        loop {
            let held = match file.try_lock() {
                Ok(()) => return Ok(DataFolder { path: path.to_owned(), _file: file, is_new }),
                Err(TryLockError::WouldBlock) => {
                    UnixStream::connect(control).ok().and_then(|stream| crate::socket::server_of(&stream))
                }
                Err(TryLockError::Error(source)) => return Err(failed("cannot be locked")(source)),
            };
            if looks_left == 0 || !held.is_some_and(is_dying) {
                let holder = held.map_or(String::new(), |pid| format!(" (process {pid})"));
                return Err(ServeError::Setup(format!(
                    "another server is serving from {}{holder}; stop it, or name another data folder (--data)",
                    path.display()
                )));
            }
            looks_left -= 1;
            std::thread::sleep(LOOK_AGAIN_AFTER);
        }
    }

    /// It stays when this is dropped.
    pub fn keep(&mut self) {
        self.is_new = false;
    }
}

impl Drop for DataFolder {
    fn drop(&mut self) {
        if self.is_new {
            // Only if it is empty.
            let _ = std::fs::remove_dir(&self.path);
        }
    }
}

/// A file that is removed when this is dropped, unless it is kept: what a start that failed made.
#[derive(Debug)]
pub struct Unfinished(Option<PathBuf>);

impl Unfinished {
    /// Of the file at `path`.
    pub fn new(path: PathBuf) -> Unfinished {
        Unfinished(Some(path))
    }
    /// Of nothing.
    pub fn none() -> Unfinished {
        Unfinished(None)
    }
    /// It stays.
    pub fn keep(&mut self) {
        self.0 = None;
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// What others than the owner may do with a file or folder that should be the owner's alone, for people.
pub fn looseness(path: &Path) -> Option<String> {
    let metadata = std::fs::metadata(path).ok()?;
    let mode = metadata.permissions().mode() & 0o777;
    let right = if metadata.is_dir() { 0o700 } else { 0o600 };
    (mode & 0o077 != 0).then(|| {
        let name = path.display();
        format!("{name} is open to other users of this machine (mode {mode:o}); to close it: chmod {right:o} {name}")
    })
}

#[cfg(test)]
mod test {
    use super::*;

    /// Goal: a server that is started right after another one was killed waits for its end, and for nobody who lives. Method: this process, one
    /// that ended and that nobody asked for its end, and one that there is not.
    #[test]
    fn who_was_killed_is_told_from_who_lives() {
        assert!(!is_dying(std::process::id()));
        let mut sleep = std::process::Command::new("sleep");
        let mut child = sleep.arg("1000").stdout(std::process::Stdio::null()).spawn().unwrap();
        child.kill().unwrap();
        diecut_testing::wait::wait_until(|| "it is not seen to be killed", || is_dying(child.id()));
        child.wait().unwrap();
        assert!(is_dying(child.id()), "it is gone");
    }
}
