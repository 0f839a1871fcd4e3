//! Words about what a name stands for: kinds, times and attributes of inodes; and what a name may be.

use crate::FileError;
use crate::types::{FileId, NAME_MAX_BYTES};
use std::borrow::Borrow;

/// The folder that all others are in. It is always there.
pub const ROOT: FileId = FileId(1);

/// What an inode is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum InodeKind {
    /// Bytes.
    #[default]
    File = 1,
    /// Entries.
    Folder = 2,
    /// A path; nothing here follows it.
    Symlink = 3,
    /// A pipe with a name. Like those below, it is only kept here.
    Fifo = 4,
    /// A socket with a name.
    Socket = 5,
    /// A device of characters, whose number is in the attributes.
    CharDevice = 6,
    /// A device of blocks.
    BlockDevice = 7,
}

impl InodeKind {
    pub(crate) fn decode(byte: u8) -> Option<InodeKind> {
        use InodeKind::*;
        [File, Folder, Symlink, Fifo, Socket, CharDevice, BlockDevice]
            .into_iter()
            .find(|kind| *kind as u8 == byte)
    }
}

/// A moment of the real clock, since 1970; before it, seconds are negative and nanoseconds count on from them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the type says what they are")]
pub struct Time {
    pub seconds: i64,
    pub nanoseconds: u32,
}

impl Time {
    /// By the system's clock.
    #[expect(
        clippy::disallowed_methods,
        reason = "times of files are those of the real clock, and decide nothing here"
    )]
    pub fn now() -> Time {
        // A clock before 1970 is wrong by more than a time of 0 is.
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        Time { seconds: since.as_secs() as i64, nanoseconds: since.subsec_nanos() }
    }
}

/// What is kept of an inode besides its content. The store itself looks at none of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// The lower 12 bits of `st_mode`: permissions, setuid, setgid, sticky.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Number of a device.
    pub device: u32,
    /// When it was read: set when it is made and by [`Files::set_attributes`](crate::Files::set_attributes) only.
    pub accessed: Time,
    /// When its content was changed.
    pub modified: Time,
    /// When anything of it was changed.
    pub changed: Time,
}

impl Attributes {
    /// Those of something new, made now.
    pub fn new(mode: u32, uid: u32, gid: u32) -> Attributes {
        let now = Time::now();
        Attributes { mode, uid, gid, device: 0, accessed: now, modified: now, changed: now }
    }
}

/// What `stat` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metadata {
    /// Whose.
    pub file: FileId,
    /// What it is.
    pub kind: InodeKind,
    /// What is kept of it.
    pub attributes: Attributes,
    /// Names that it has; of a folder, 2 and one for each folder in it. 0 for what was removed and is held.
    pub links: u32,
    /// Length; of a symlink that of its path, of a folder the number of its entries.
    pub size_bytes: u64,
    /// What it takes of the capacity.
    pub allocated_bytes: u64,
}

/// A name within a folder.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name(Box<[u8]>);

impl Name {
    /// # Errors
    /// [`FileError::Name`] if it is empty, longer than [`NAME_MAX_BYTES`], `.`, `..`, or has a slash or a zero in it.
    pub fn new(bytes: &[u8]) -> Result<Name, FileError> {
        let is_name = (1..=NAME_MAX_BYTES).contains(&bytes.len())
            && bytes != b"."
            && bytes != b".."
            && !bytes.contains(&b'/')
            && !bytes.contains(&0);
        if is_name { Ok(Name(bytes.into())) } else { Err(FileError::Name) }
    }
    /// Its bytes, which need not be UTF-8.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl Borrow<[u8]> for Name {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

impl std::fmt::Debug for Name {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "\"{}\"", self.0.escape_ascii())
    }
}
