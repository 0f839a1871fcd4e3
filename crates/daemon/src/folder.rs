//! The data folder of a server: its owner's alone, and one server's at a time.

use crate::error::ServeError;
use std::fs::{DirBuilder, File, TryLockError};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

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
    /// Makes the folder if it is not there (mode 0700) and takes it. `control` is asked who holds it, if somebody does.
    ///
    /// # Errors
    /// If it cannot be made, or another process holds it.
    pub fn take(path: &Path, control: &Path) -> Result<DataFolder, ServeError> {
        let failed = |what| move |source| ServeError::File { path: path.to_owned(), what, source };
        let is_new = !path.exists();
        DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed("cannot be made"))?;
        let file = File::open(path).map_err(failed("cannot be opened"))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let holder =
                    UnixStream::connect(control).ok().and_then(|stream| crate::socket::server_of(&stream));
                let holder = holder.map_or(String::new(), |pid| format!(" (process {pid})"));
                return Err(ServeError::Setup(format!(
                    "another server is serving from {}{holder}; stop it, or name another data folder (--data)",
                    path.display()
                )));
            }
            Err(TryLockError::Error(source)) => return Err(failed("cannot be locked")(source)),
        }
        Ok(DataFolder { path: path.to_owned(), _file: file, is_new })
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
