//! Where drives are, as one word each.

use crate::setup_device::{DriveDevice, RemoteDevice};
use std::convert::Infallible;
use std::fmt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Where a drive is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// On this machine: a file or a block device.
    Path(PathBuf),
    /// Behind a network: a namespace of a target.
    Namespace(RemoteDevice),
}

/// As it is shown, and as a command line takes it: a path, or `HOST:PORT/NQN/NSID`.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Path(path) => write!(f, "{}", path.display()),
            Place::Namespace(remote) => f.write_str(&remote.place()),
        }
    }
}

/// A text as a value of a set-up, whatever is in it.
pub fn quoted(text: &str) -> String {
    toml::Value::from(text).to_string()
}

impl Place {
    /// Whether both are one drive, also where links lead to it.
    pub fn is_same_drive(&self, other: &Place) -> bool {
        match (self, other) {
            (Place::Path(one), Place::Path(other)) => {
                one == other || drive_behind(one).is_some_and(|one| drive_behind(other) == Some(one))
            }
            _ => self.to_string() == other.to_string(),
        }
    }
}

/// What the kernel has behind a path: a block device by its number, a file by its own in its file system.
fn drive_behind(path: &Path) -> Option<(bool, u64, u64)> {
    let metadata = std::fs::metadata(path).ok()?;
    Some(match metadata.file_type().is_block_device() {
        true => (true, metadata.rdev(), 0),
        false => (false, metadata.dev(), metadata.ino()),
    })
}

/// What is no namespace is a path; one that looks like a namespace can be written with `./` before it.
impl FromStr for Place {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Place, Infallible> {
        Ok(namespace(text).map_or_else(|| Place::Path(PathBuf::from(text)), Place::Namespace))
    }
}

/// `HOST:PORT/NQN/NSID`.
fn namespace(text: &str) -> Option<RemoteDevice> {
    let (address, rest) = text.split_once('/')?;
    let (subsystem, nsid) = rest.rsplit_once('/')?;
    let (host, port) = address.rsplit_once(':')?;
    port.parse::<u16>().ok()?;
    let nsid = nsid.parse().ok().filter(|nsid| (1..u32::MAX).contains(nsid))?;
    (!host.is_empty() && !subsystem.is_empty()).then(|| RemoteDevice {
        address: address.to_owned(),
        subsystem: subsystem.to_owned(),
        nsid,
        host_nqn: None,
        patience_ms: None,
        name: None,
    })
}

impl Place {
    /// What `diecut device format` is told to have it.
    pub fn typed(&self) -> String {
        match self {
            Place::Path(path) => path.display().to_string(),
            Place::Namespace(remote) => {
                let RemoteDevice { address, subsystem, nsid, .. } = remote;
                format!("--address {address} --subsystem {subsystem} --nsid {nsid}")
            }
        }
    }
}

/// A drive that a set-up names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drive<'a> {
    /// Of this machine.
    Local(&'a DriveDevice),
    /// Behind a network.
    Remote(&'a RemoteDevice),
}

impl Drive<'_> {
    /// Where it is.
    pub fn place(&self) -> Place {
        match *self {
            Drive::Local(local) => Place::Path(local.path.clone()),
            Drive::Remote(remote) => Place::Namespace(remote.clone()),
        }
    }

    /// What it is called in reports.
    pub fn shown_name(&self) -> String {
        match self {
            Drive::Local(local) => local.shown_name(),
            Drive::Remote(remote) => remote.shown_name(),
        }
    }

    /// Whether it is told what holds nothing any more, if it wants to know.
    pub fn is_told_of_discards(&self) -> bool {
        match self {
            Drive::Local(local) => local.is_told_of_discards(),
            Drive::Remote(_) => true,
        }
    }
}

#[cfg(test)]
mod test {
    use super::*;

    /// Goal: a namespace is one word that names it again, and no path is taken for one unless it looks like that.
    #[test]
    fn a_word_names_a_path_or_a_namespace() {
        for text in ["storage:4420/nqn.2026-11.org.example:pool/1", "[::1]:4420/nqn.2026-11.x:a/b/7"] {
            let Ok(Place::Namespace(remote)) = text.parse() else { panic!("{text} is a namespace") };
            assert_eq!(Place::Namespace(remote).to_string(), text);
        }
        let text = "storage:4420/nqn.2026-11.x:a/b/7";
        let Ok(Place::Namespace(remote)) = text.parse() else { panic!("{text} is a namespace") };
        assert_eq!(
            (&*remote.address, &*remote.subsystem, remote.nsid),
            ("storage:4420", "nqn.2026-11.x:a/b", 7)
        );
        assert_eq!(
            Place::Namespace(remote).typed(),
            "--address storage:4420 --subsystem nqn.2026-11.x:a/b --nsid 7"
        );
        for text in [
            "drive-a",
            "/dev/disk/by-id/nvme-eui.0001",
            "/dev/disk/by-path/pci-0000:00:1f.2/a/1",
            "./storage:4420/nqn.2026-11.x:a/1",
            "storage/nqn.2026-11.x:a/1",
            "storage:http/nqn.2026-11.x:a/1",
            ":4420/nqn.2026-11.x:a/1",
            "storage:4420/nqn.2026-11.x:a/0",
            "storage:4420//1",
            "storage:4420/1",
            "",
        ] {
            assert_eq!(text.parse(), Ok(Place::Path(PathBuf::from(text))));
        }
    }
}
