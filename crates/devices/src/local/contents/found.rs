use serde::Serialize;

/// Something that was recognized.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Found {
    /// Its name, as `blkid` has it where that knows it.
    pub kind: String,
    /// The same for people.
    pub what: String,
    /// What sort of thing it is.
    pub class: Class,
    /// Bytes at which it was recognized.
    pub offsets: Vec<u64>,
    /// What it calls itself, where it says so.
    pub detail: Option<String>,
}

/// A sort of thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// A file system.
    FileSystem,
    /// A partition table.
    PartitionTable,
    /// A part of an array, a pool or a volume group.
    Member,
    /// Something encrypted.
    Encrypted,
    /// Swap space, or a system that was put to sleep there.
    Swap,
    /// Something of diecut.
    Diecut,
    /// Only `wipefs` knows it.
    Other,
}

impl Found {
    /// In words, with where it was recognized.
    pub fn words(&self) -> String {
        let offsets: Vec<String> = self.offsets.iter().map(u64::to_string).collect();
        let bytes = if offsets.len() == 1 { "byte" } else { "bytes" };
        let detail = self.detail.as_ref().map(|detail| format!(" ({detail})")).unwrap_or_default();
        format!("{}{detail} at {bytes} {}", self.what, offsets.join(", "))
    }
}

/// Notes what was recognized.
pub(super) fn add(
    all: &mut Vec<Found>,
    kind: &str,
    what: &str,
    class: Class,
    offset: u64,
    detail: Option<String>,
) {
    match all.iter_mut().find(|found| found.kind == kind) {
        Some(found) => {
            if !found.offsets.contains(&offset) {
                found.offsets.push(offset);
                found.offsets.sort_unstable();
            }
            found.detail = found.detail.take().or(detail);
        }
        None => {
            let (kind, what) = (kind.to_owned(), what.to_owned());
            all.push(Found { kind, what, class, offsets: vec![offset], detail });
        }
    }
}
