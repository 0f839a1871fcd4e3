//! What the kernel calls what the store knows: attributes, kinds, times, errors.

use diecut_blockfile::{FileError, FileId, InodeKind, Metadata, Time};
use fuser::{Errno, FileAttr, FileType, INodeNo, TimeOrNow};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Bits of a new folder's mode, or of what is made in one, that say a group is handed down.
pub const SETGID: u32 = 0o2000;
/// Bits of `st_mode` that the store keeps.
pub const MODE: u32 = 0o7777;

pub fn file(inode: INodeNo) -> FileId {
    FileId(inode.0)
}

pub fn file_type(kind: InodeKind) -> FileType {
    match kind {
        InodeKind::File => FileType::RegularFile,
        InodeKind::Folder => FileType::Directory,
        InodeKind::Symlink => FileType::Symlink,
        InodeKind::Fifo => FileType::NamedPipe,
        InodeKind::Socket => FileType::Socket,
        InodeKind::CharDevice => FileType::CharDevice,
        InodeKind::BlockDevice => FileType::BlockDevice,
    }
}

/// Of the type bits of a mode for `mknod`.
pub fn kind_of(mode: u32) -> Option<InodeKind> {
    match mode & libc::S_IFMT {
        libc::S_IFREG => Some(InodeKind::File),
        libc::S_IFIFO => Some(InodeKind::Fifo),
        libc::S_IFSOCK => Some(InodeKind::Socket),
        libc::S_IFCHR => Some(InodeKind::CharDevice),
        libc::S_IFBLK => Some(InodeKind::BlockDevice),
        _ => None,
    }
}

pub fn attr(known: &Metadata) -> FileAttr {
    let attributes = &known.attributes;
    FileAttr {
        ino: INodeNo(known.file.0),
        size: known.size_bytes,
        blocks: known.allocated_bytes / 512,
        atime: system_time(attributes.accessed),
        mtime: system_time(attributes.modified),
        ctime: system_time(attributes.changed),
        crtime: UNIX_EPOCH,
        kind: file_type(known.kind),
        perm: (attributes.mode & MODE) as u16,
        nlink: known.links,
        uid: attributes.uid,
        gid: attributes.gid,
        rdev: attributes.device,
        blksize: 4096,
        flags: 0,
    }
}

fn system_time(time: Time) -> SystemTime {
    let seconds = Duration::from_secs(time.seconds.unsigned_abs());
    let whole =
        if time.seconds < 0 { UNIX_EPOCH.checked_sub(seconds) } else { UNIX_EPOCH.checked_add(seconds) };
    // Seconds of 64 bits are what the system has, too: none is out of its range.
    whole
        .and_then(|whole| whole.checked_add(Duration::from_nanos(time.nanoseconds.into())))
        .unwrap_or(UNIX_EPOCH)
}

pub fn time(time: TimeOrNow) -> Time {
    let time = match time {
        TimeOrNow::Now => return Time::now(),
        TimeOrNow::SpecificTime(time) => time,
    };
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => Time { seconds: since.as_secs() as i64, nanoseconds: since.subsec_nanos() },
        Err(before) => {
            let before = before.duration();
            let (seconds, nanoseconds) = (-(before.as_secs() as i64), before.subsec_nanos());
            match nanoseconds {
                0 => Time { seconds, nanoseconds },
                _ => Time { seconds: seconds - 1, nanoseconds: 1_000_000_000 - nanoseconds },
            }
        }
    }
}

pub fn errno(error: &FileError) -> Errno {
    match error {
        FileError::NotFound => Errno::ENOENT,
        FileError::Exists => Errno::EEXIST,
        FileError::NotEmpty => Errno::ENOTEMPTY,
        FileError::NotFolder => Errno::ENOTDIR,
        FileError::IsFolder => Errno::EISDIR,
        FileError::NotFile | FileError::Inside => Errno::EINVAL,
        FileError::TooManyLinks => Errno::EMLINK,
        // Of what the kernel lets through, only the length may be wrong.
        FileError::Name => Errno::ENAMETOOLONG,
        FileError::NoSpace => Errno::ENOSPC,
        FileError::Block(_)
        | FileError::Failed
        | FileError::NotFormatted
        | FileError::Version { .. }
        | FileError::Damaged(_) => Errno::EIO,
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn times_before_1970_come_back() {
        for (seconds, nanoseconds) in [(0, 0), (1, 999_999_999), (-1, 0), (-1, 1), (-7, 999_999_999)] {
            let known = Time { seconds, nanoseconds };
            assert_eq!(time(TimeOrNow::SpecificTime(system_time(known))), known);
        }
    }
}
