//! Goal: a server destroys nothing at the paths of its sockets, and has its data folder to itself. Method: the functions that make
//! them, over files, sockets and folders of others.

use diecut_daemon::folder::{DataFolder, Unfinished, looseness};
use diecut_daemon::socket::listen;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;

fn mode(path: &Path) -> u32 {
    std::fs::symlink_metadata(path).unwrap().permissions().mode() & 0o777
}

/// A server once removed whatever its path named.
#[test]
fn what_is_no_socket_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("precious.txt");
    std::fs::write(&path, "a year's work").unwrap();
    let error = listen(&path, 0o600).unwrap_err().to_string();
    assert!(error.contains("precious.txt") && error.contains("no socket"), "{error}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "a year's work");
    let link = folder.path().join("link");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    assert!(listen(&link, 0o600).unwrap_err().to_string().contains("no socket"));
    assert!(listen(folder.path(), 0o600).unwrap_err().to_string().contains("no socket"));
}

#[test]
fn a_living_socket_is_left_alone_and_a_dead_one_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let (living, name) = listen(&path, 0o600).unwrap();
    assert_eq!(mode(&path), 0o600);
    let error = listen(&path, 0o600).unwrap_err().to_string();
    assert!(
        error.contains("another server is serving at") && error.contains(&std::process::id().to_string()),
        "{error}"
    );
    UnixStream::connect(&path).unwrap();
    // As `kill -9` leaves it.
    drop(living);
    std::mem::forget(name);
    let (_living, name) = listen(&path, 0o666).unwrap();
    assert_eq!(mode(&path), 0o666);
    drop(name);
    assert!(!path.exists());
}

#[test]
fn only_ones_own_socket_is_removed_at_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let (_first, name) = listen(&path, 0o600).unwrap();
    std::fs::rename(&path, folder.path().join("moved")).unwrap();
    let (_second, other) = listen(&path, 0o600).unwrap();
    drop(name);
    UnixStream::connect(&path).unwrap();
    drop(other);
    assert!(!path.exists());
}

#[test]
fn a_folder_is_its_owners_alone_and_one_servers_at_a_time() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("a/b");
    let control = path.join("control.sock");
    let mut held = DataFolder::take(&path, &control).unwrap();
    assert_eq!(looseness(&path), None);
    let error = DataFolder::take(&path, &control).unwrap_err().to_string();
    assert!(error.contains("another server is serving from") && !error.contains("process"), "{error}");
    let (_listener, _name) = listen(&control, 0o600).unwrap();
    let error = DataFolder::take(&path, &control).unwrap_err().to_string();
    assert!(error.contains(&format!("process {}", std::process::id())), "{error}");
    held.keep();
    drop(held);
    DataFolder::take(&path, &control).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    assert!(looseness(&path).unwrap().contains("chmod 700"));
}

#[test]
fn a_start_that_failed_leaves_nothing() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("new");
    let folder = DataFolder::take(&path, &path.join("control.sock")).unwrap();
    let file = path.join("device.img");
    std::fs::write(&file, "").unwrap();
    let unfinished = Unfinished::new(file.clone());
    drop((unfinished, folder));
    assert!(!path.exists());
}
