//! Unix sockets of a server: made with the right mode from the start, never in place of anything that is in use, and removed
//! at the end if they are still its own.

use crate::error::ServeError;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, sockopt};
use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// Connections that wait to be accepted.
const BACKLOG: i32 = 1024;

/// The name of a socket that this server made; dropping it removes the name, unless it is another one's by then.
#[derive(Debug)]
pub struct SocketName {
    path: PathBuf,
    /// Device and inode.
    identity: (u64, u64),
}

impl SocketName {
    /// The path.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for SocketName {
    fn drop(&mut self) {
        if identity(&self.path).is_ok_and(|identity| identity == self.identity) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn identity(path: &Path) -> std::io::Result<(u64, u64)> {
    let metadata = std::fs::symlink_metadata(path)?;
    Ok((metadata.dev(), metadata.ino()))
}

fn failed(path: &Path, what: &'static str) -> impl Fn(std::io::Error) -> ServeError {
    let path = path.to_owned();
    move |source| ServeError::File { path: path.clone(), what, source }
}

fn refuse<T>(message: String) -> Result<T, ServeError> {
    Err(ServeError::Setup(message))
}

/// Process that listens at a socket one is connected to, if the system tells.
pub(crate) fn server_of(stream: &UnixStream) -> Option<u32> {
    let credentials = sockopt::socket_peercred(stream).ok()?;
    u32::try_from(credentials.pid.as_raw_nonzero().get()).ok()
}

/// Removes what a dead server left at `path`.
///
/// # Errors
/// If anything else is there, which is left alone: a socket that is served, or that cannot be asked, or no socket.
fn make_room(path: &Path) -> Result<(), ServeError> {
    let metadata = match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        other => other.map_err(failed(path, "cannot be looked at"))?,
    };
    let name = path.display();
    if !metadata.file_type().is_socket() {
        return refuse(format!("{name} exists and is no socket; it was left alone: name another path"));
    }
    match UnixStream::connect(path) {
        Ok(stream) => {
            let process = server_of(&stream).map_or(String::new(), |pid| format!(" (process {pid})"));
            refuse(format!(
                "another server is serving at {name}{process}; stop it, or name another socket and data folder"
            ))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
            std::fs::remove_file(path).map_err(failed(path, "cannot be removed"))
        }
        Err(error) => refuse(format!(
            "{name} is a socket that may be in use ({error}); it was left alone: remove it if nothing serves there, or name \
             another path"
        )),
    }
}

/// Listens at `path`, which gets `mode`.
///
/// # Errors
/// If something is there that a dead server did not leave, or the system refuses.
pub fn listen(path: &Path, mode: u32) -> Result<(UnixListener, SocketName), ServeError> {
    make_room(path)?;
    let cannot = failed(path, "cannot be made");
    let address = SocketAddrUnix::new(path).map_err(|error| cannot(error.into()))?;
    let socket = rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::STREAM,
        rustix::net::SocketFlags::CLOEXEC | rustix::net::SocketFlags::NONBLOCK,
        None,
    );
    let socket = socket.map_err(|error| cannot(error.into()))?;
    // Before it has a name: the name is never there with looser rights. Linux takes the mode of the socket for the file.
    rustix::fs::fchmod(socket.as_fd(), rustix::fs::Mode::from_raw_mode(mode))
        .map_err(|error| cannot(error.into()))?;
    rustix::net::bind(&socket, &address).map_err(|error| cannot(error.into()))?;
    let name = SocketName { path: path.to_owned(), identity: identity(path).map_err(&cannot)? };
    rustix::net::listen(&socket, BACKLOG).map_err(|error| cannot(error.into()))?;
    let permissions = std::fs::Permissions::from_mode(mode);
    std::fs::set_permissions(path, permissions).map_err(failed(path, "cannot be protected"))?;
    Ok((UnixListener::from(socket), name))
}
