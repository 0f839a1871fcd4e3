//! The file: the kernel's questions.

use crate::namespace::{Namespace, QUEUES};
use fuser::{
    BackgroundSession, BsdFileFlags, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags,
    Generation, INodeNo, InitFlags, KernelConfig, LockOwner, MountOption, OpenFlags, ReplyAttr, ReplyData,
    ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request, Session, SessionACL, TimeOrNow,
    WriteFlags,
};
use rustix::fs::FallocateFlags;
use rustix::mount::UnmountFlags;
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// What the file is called.
pub const FILE_NAME: &str = "namespace";

const FILE: INodeNo = INodeNo(2);
/// Most bytes of one write or read.
const REQUEST_MAX_BYTES: u32 = 1 << 20;
/// Nothing of it ever changes but its bytes.
const TIME_TO_LIVE: Duration = Duration::from_secs(3600);
const GENERATION: Generation = Generation(0);

/// A namespace on a folder, until this is dropped.
pub struct Mounted {
    path: PathBuf,
    session: Option<BackgroundSession>,
}

impl Mounted {
    /// On a folder that is there.
    ///
    /// # Errors
    /// What the system says; it needs `/dev/fuse` and the right to mount.
    pub fn new(namespace: Namespace, path: &Path) -> io::Result<Mounted> {
        let mut config = Config::default();
        config.mount_options =
            vec![MountOption::FSName("diecut-bridge".to_owned()), MountOption::DefaultPermissions];
        config.acl = SessionACL::All;
        config.n_threads = Some(QUEUES.into());
        config.clone_fd = true;
        let session = Session::new(Folder { namespace }, path, &config)?.spawn()?;
        Ok(Mounted { path: path.to_owned(), session: Some(session) })
    }

    /// Where the file is.
    pub fn file(&self) -> PathBuf {
        self.path.join(FILE_NAME)
    }
}

impl Drop for Mounted {
    /// Who still has the file open keeps it until he closes it, or this process ends.
    fn drop(&mut self) {
        let detached = rustix::mount::unmount(&self.path, UnmountFlags::DETACH).is_ok();
        let Some(session) = self.session.take() else { return };
        if detached {
            // Its threads end with the last file.
            std::mem::forget(session);
        } else {
            // Without the right to do it there is fusermount3.
            drop(session);
        }
    }
}

struct Folder {
    namespace: Namespace,
}

fn errno(error: &io::Error) -> Errno {
    match error.kind() {
        io::ErrorKind::StorageFull => Errno::ENOSPC,
        _ => Errno::EIO,
    }
}

impl Folder {
    fn attributes(&self, inode: INodeNo) -> FileAttr {
        let is_root = inode == INodeNo::ROOT;
        let size = if is_root { 0 } else { self.namespace.size_bytes() };
        FileAttr {
            ino: inode,
            size,
            blocks: size / 512,
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind: if is_root { FileType::Directory } else { FileType::RegularFile },
            perm: if is_root { 0o755 } else { 0o600 },
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: self.namespace.lba_bytes() as u32,
            flags: 0,
        }
    }
}

fn done(outcome: io::Result<()>, reply: ReplyEmpty) {
    match outcome {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(errno(&error)),
    }
}

impl Filesystem for Folder {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // What a kernel does not have it does without: it is slower, no less right.
        for flag in [InitFlags::FUSE_ASYNC_DIO, InitFlags::FUSE_MAX_PAGES] {
            let _ = config.add_capabilities(flag);
        }
        let _ = config.set_max_write(REQUEST_MAX_BYTES);
        Ok(())
    }

    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match name == FILE_NAME {
            true => reply.entry(&TIME_TO_LIVE, &self.attributes(FILE), GENERATION),
            false => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&TIME_TO_LIVE, &self.attributes(inode));
    }

    /// It has the size that it has, and times of nothing.
    fn setattr(
        &self,
        _: &Request,
        inode: INodeNo,
        _: Option<u32>,
        _: Option<u32>,
        _: Option<u32>,
        size: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        match size.is_none_or(|size| size == self.namespace.size_bytes()) {
            true => reply.attr(&TIME_TO_LIVE, &self.attributes(inode)),
            false => reply.error(Errno::EINVAL),
        }
    }

    /// Past the page cache for everybody: a loop device has one of its own.
    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let flags = FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES;
        reply.opened(FileHandle(0), flags);
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match self.namespace.read(offset, size.into()) {
            Ok(bytes) => reply.data(&bytes),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        bytes: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match self.namespace.write(offset, bytes) {
            Ok(()) => reply.written(bytes.len() as u32),
            Err(error) => reply.error(errno(&error)),
        }
    }

    /// A close makes nothing durable.
    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        done(self.namespace.flush(), reply);
    }

    fn fallocate(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let zeros = FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE;
        match FallocateFlags::from_bits_retain(mode as u32) {
            mode if mode == hole || mode == zeros || mode == FallocateFlags::ZERO_RANGE => {
                done(self.namespace.discard(offset, length), reply);
            }
            mode if mode.is_empty() || mode == FallocateFlags::KEEP_SIZE => {
                let fits = offset.saturating_add(length) <= self.namespace.size_bytes();
                done(if fits { Ok(()) } else { Err(io::ErrorKind::StorageFull.into()) }, reply);
            }
            _ => reply.error(Errno::EOPNOTSUPP),
        }
    }

    fn readdir(&self, _: &Request, _: INodeNo, _: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let dots = [".", ".."].map(|name| (name, INodeNo::ROOT, FileType::Directory));
        let entries = dots.into_iter().chain([(FILE_NAME, FILE, FileType::RegularFile)]);
        for (at, (name, inode, kind)) in (1..).zip(entries).skip(offset as usize) {
            if reply.add(inode, at, kind, name) {
                break;
            }
        }
        reply.ok();
    }
}
