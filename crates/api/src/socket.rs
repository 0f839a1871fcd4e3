//! Where commands find the server that they ask.

use std::path::{Component, Path, PathBuf};

/// The control socket that commands ask where none is named: the one of a server without a set-up, in the folder where it was started.
pub const DEFAULT_SOCKET: &str = "diecut-data/control.sock";

/// Whether commands that name no socket ask at this one, as far as its path says (`a/..` is nothing).
pub fn is_default_socket(socket: &Path) -> bool {
    let mut plain = PathBuf::new();
    for part in socket.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir if plain.file_name().is_some() => _ = plain.pop(),
            other => plain.push(other),
        }
    }
    plain == Path::new(DEFAULT_SOCKET)
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn a_path_by_way_of_another_folder_is_the_same() {
        for path in [DEFAULT_SOCKET, "./diecut-data/control.sock", "setups/../diecut-data/control.sock"] {
            assert!(is_default_socket(Path::new(path)), "{path}");
        }
        for path in [
            "/diecut-data/control.sock",
            "../diecut-data/control.sock",
            "a/diecut-data/control.sock",
            "c.sock",
        ] {
            assert!(!is_default_socket(Path::new(path)), "{path}");
        }
    }
}
