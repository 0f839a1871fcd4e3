//! What lies on a drive before anything is written to it.
//!
//! Two look: the table of this room, which works everywhere, and `wipefs` of util-linux where it is installed, which knows more formats. The
//! program runs as a process of its own, so that bytes of strangers meet no parser in C inside of ours. To link its library (libblkid) would
//! need its headers and libclang to build, and the library to start at all; and it does not know drives of SPDK, nor ours.

mod checks;
mod found;
mod read;
mod table;
mod wipefs;

pub use found::{Class, Found};
pub use read::{Source, Unreadable};

use read::Reader;
use serde::Serialize;
use std::fs::File;
use std::io;
use std::path::Path;

/// What was found on a drive.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Contents {
    /// What was recognized.
    pub found: Vec<Found>,
    /// Places that could not be read, so that what lies there is not known.
    pub unreadable: Vec<Unreadable>,
    /// First place looked at that is not zero, where nothing was recognized. Only a hint: what was discarded may read as anything.
    pub unknown_at: Option<u64>,
    /// Whether `wipefs` looked, too.
    pub wipefs: Wipefs,
}

/// What came of asking `wipefs`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Wipefs {
    /// Nobody asked it.
    #[default]
    NotAsked,
    /// It looked.
    Looked,
    /// It is not installed.
    Missing,
    /// It failed.
    Failed(String),
}

impl Contents {
    /// What the table of this room recognizes, and whether there is anything else.
    pub fn of(source: &dyn Source) -> Contents {
        let mut reader = Reader::new(source);
        let found = table::find(&mut reader);
        let unknown_at = if found.is_empty() { reader.first_not_zero() } else { None };
        Contents { found, unreadable: reader.unreadable(), unknown_at, wipefs: Wipefs::NotAsked }
    }

    /// The same for an open file or block device, with what `wipefs` says where it is installed.
    ///
    /// # Errors
    /// If it cannot be opened once more for reading, past whatever flags it was opened with.
    pub fn of_file(file: &File, size_bytes: u64) -> io::Result<Contents> {
        use std::os::fd::AsRawFd;
        // By its number: the name may be another file's by now.
        let path = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
        let buffered = File::open(&path)?;
        let mut contents = Contents::of(&(&buffered, size_bytes));
        contents.ask_wipefs(Path::new(&path));
        Ok(contents)
    }

    fn ask_wipefs(&mut self, path: &Path) {
        let signatures = match wipefs::signatures(path) {
            Ok(Some(signatures)) => signatures,
            Ok(None) => return self.wipefs = Wipefs::Missing,
            Err(error) => return self.wipefs = Wipefs::Failed(error),
        };
        self.wipefs = Wipefs::Looked;
        for (kind, offset) in signatures {
            match self.found.iter_mut().find(|found| found.kind == kind) {
                Some(found) if found.offsets.contains(&offset) => {}
                Some(found) => {
                    found.offsets.push(offset);
                    found.offsets.sort_unstable();
                }
                None => self.found.push(Found {
                    what: format!("{kind} (as wipefs calls it)"),
                    kind,
                    class: Class::Other,
                    offsets: vec![offset],
                    detail: None,
                }),
            }
        }
        if !self.found.is_empty() {
            self.unknown_at = None;
        }
    }

    /// Whether nothing speaks against writing to it: nothing was recognized, and all that had to be read could be.
    pub fn is_free(&self) -> bool {
        self.found.is_empty() && self.unreadable.is_empty()
    }

    /// Everything that speaks against writing to it, in words.
    pub fn words(&self) -> Vec<String> {
        let found = self.found.iter().map(Found::words);
        let unreadable = self
            .unreadable
            .iter()
            .map(|place| format!("something that cannot be read at byte {} ({})", place.offset, place.error));
        found.chain(unreadable).collect()
    }
}
