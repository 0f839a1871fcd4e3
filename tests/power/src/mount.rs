//! The folder of disks: the kernel's questions.

use crate::SECTOR_SIZE_BYTES;
use crate::disks::{Disks, Known, Opened, Options, Refusal};
use fuser::{
    BackgroundSession, BsdFileFlags, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags,
    Generation, INodeNo, InitFlags, KernelConfig, LockOwner, MountOption, OpenFlags, RenameFlags, ReplyAttr,
    ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request, Session,
    SessionACL, TimeOrNow, WriteFlags,
};
use rustix::fs::{FallocateFlags, OFlags};
use rustix::mount::UnmountFlags;
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Requests that are answered at once.
const THREADS: usize = 4;
/// Most bytes of one write or read.
const REQUEST_MAX_BYTES: u32 = 1 << 20;
/// The kernel asks for each name anew: after a cut it has another inode.
const TIME_TO_LIVE: Duration = Duration::ZERO;
const GENERATION: Generation = Generation(0);
/// The number of an inode is the life that it was looked up in, and that of the disk in the lower bits. So a cut empties the kernel's
/// caches: they belong to inodes that nobody finds any more, as memory does of a machine that is gone.
const LIFE_SHIFT: u32 = 32;

/// Disks on a folder, until this is dropped.
pub struct Mounted {
    disks: Disks,
    path: PathBuf,
    session: Option<BackgroundSession>,
}

impl Mounted {
    /// New disks on a folder that is there.
    ///
    /// # Errors
    /// What the system says; it needs `/dev/fuse` and the right to mount.
    pub fn new(path: &Path, options: &Options) -> io::Result<Mounted> {
        let disks = Disks::new(options)?;
        let mut config = Config::default();
        config.mount_options =
            vec![MountOption::FSName("diecut-power".to_owned()), MountOption::DefaultPermissions];
        config.acl = SessionACL::All;
        config.n_threads = Some(THREADS);
        config.clone_fd = true;
        let session = Session::new(Folder { disks: disks.clone() }, path, &config)?.spawn()?;
        Ok(Mounted { disks, path: path.to_owned(), session: Some(session) })
    }

    /// What cuts and more is asked of.
    pub fn disks(&self) -> &Disks {
        &self.disks
    }

    /// Where a disk of this name is.
    pub fn path_of(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }
}

impl Drop for Mounted {
    /// Who still has a file open keeps it until he closes it: nobody finds it any more.
    fn drop(&mut self) {
        self.disks.stall(false);
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
    disks: Disks,
}

fn inode(opened: Opened) -> INodeNo {
    INodeNo((opened.life << LIFE_SHIFT) | opened.number)
}

fn opened(inode: INodeNo) -> Opened {
    Opened { life: inode.0 >> LIFE_SHIFT, number: inode.0 & ((1 << LIFE_SHIFT) - 1) }
}

fn errno(refusal: &Refusal) -> Errno {
    match refusal {
        Refusal::Power | Refusal::Flush => Errno::EIO,
        Refusal::NotFound => Errno::ENOENT,
        Refusal::Fixed => Errno::EPERM,
        Refusal::System(error) => match error.kind() {
            io::ErrorKind::StorageFull => Errno::ENOSPC,
            io::ErrorKind::InvalidInput => Errno::EINVAL,
            _ => Errno::EIO,
        },
    }
}

fn attributes(inode: INodeNo, kind: FileType, size: u64) -> FileAttr {
    FileAttr {
        ino: inode,
        size,
        blocks: size.div_ceil(512),
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind,
        perm: if kind == FileType::Directory { 0o777 } else { 0o666 },
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

fn of(known: &Known) -> FileAttr {
    attributes(inode(known.opened), FileType::RegularFile, known.size_bytes)
}

fn is_direct(flags: i32) -> bool {
    flags as u32 & OFlags::DIRECT.bits() != 0
}

/// Who opens it past the page cache has none; others have the kernel's, which writes back when it likes, or at an fsync.
fn cache_of(flags: i32) -> FopenFlags {
    match is_direct(flags) {
        true => FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES,
        false => FopenFlags::FOPEN_KEEP_CACHE,
    }
}

impl Folder {
    fn done(outcome: Result<(), Refusal>, reply: ReplyEmpty) {
        match outcome {
            Ok(()) => reply.ok(),
            Err(refusal) => reply.error(errno(&refusal)),
        }
    }
}

impl Filesystem for Folder {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // What a kernel does not have it does without: it is slower, no less right.
        for flag in [InitFlags::FUSE_ASYNC_DIO, InitFlags::FUSE_WRITEBACK_CACHE, InitFlags::FUSE_MAX_PAGES] {
            let _ = config.add_capabilities(flag);
        }
        let _ = config.set_max_write(REQUEST_MAX_BYTES);
        Ok(())
    }

    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.disks.lookup(name) {
            Ok(known) => reply.entry(&TIME_TO_LIVE, &of(&known), GENERATION),
            Err(refusal) => reply.error(errno(&refusal)),
        }
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        if inode == INodeNo::ROOT {
            return reply.attr(&TIME_TO_LIVE, &attributes(inode, FileType::Directory, 0));
        }
        match self.disks.known(opened(inode)) {
            Ok(known) => reply.attr(&TIME_TO_LIVE, &of(&known)),
            Err(refusal) => reply.error(errno(&refusal)),
        }
    }

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
        let opened = opened(inode);
        let sized = size.map_or(Ok(()), |size| self.disks.set_size(opened, size));
        match sized.and_then(|()| self.disks.known(opened)) {
            Ok(known) => reply.attr(&TIME_TO_LIVE, &of(&known)),
            Err(refusal) => reply.error(errno(&refusal)),
        }
    }

    fn open(&self, _: &Request, inode: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        match self.disks.known(opened(inode)) {
            Ok(_) => reply.opened(FileHandle(0), cache_of(flags.0)),
            Err(refusal) => reply.error(errno(&refusal)),
        }
    }

    fn create(&self, _: &Request, _: INodeNo, name: &OsStr, _: u32, _: u32, flags: i32, reply: ReplyCreate) {
        match self.disks.make(name) {
            Ok(known) => {
                reply.created(&TIME_TO_LIVE, &of(&known), GENERATION, FileHandle(0), cache_of(flags));
            }
            Err(refusal) => reply.error(errno(&refusal)),
        }
    }

    fn unlink(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        Folder::done(self.disks.remove(name), reply);
    }

    fn rename(
        &self,
        _: &Request,
        _: INodeNo,
        name: &OsStr,
        _: INodeNo,
        to_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        if !flags.is_empty() {
            return reply.error(Errno::EINVAL);
        }
        Folder::done(self.disks.rename(name, to_name), reply);
    }

    fn read(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        if is_direct(flags.0) && !is_whole_sectors(offset, size.into()) {
            return reply.error(Errno::EINVAL);
        }
        match self.disks.read(opened(inode), offset, size as usize) {
            Ok(bytes) => reply.data(&bytes),
            Err(refusal) => reply.error(errno(&refusal)),
        }
    }

    fn write(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        bytes: &[u8],
        write_flags: WriteFlags,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        // What the kernel writes back goes by the flags of whoever has the file open.
        let is_direct = is_direct(flags.0) && !write_flags.contains(WriteFlags::FUSE_WRITE_CACHE);
        if is_direct && !is_whole_sectors(offset, bytes.len() as u64) {
            return reply.error(Errno::EINVAL);
        }
        match self.disks.write(opened(inode), offset, bytes) {
            // Always all: what a ring does with the rest of a direct write, Linux 6.18 puts at its beginning.
            Ok(()) => reply.written(bytes.len() as u32),
            Err(refusal) => reply.error(errno(&refusal)),
        }
    }

    /// A close makes nothing durable.
    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsync(&self, _: &Request, inode: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        Folder::done(self.disks.flush(opened(inode)), reply);
    }

    /// Names are durable at once.
    fn fsyncdir(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        Folder::done(self.disks.list().map(drop), reply);
    }

    fn fallocate(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let opened = opened(inode);
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let zeros = FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE;
        let outcome = match FallocateFlags::from_bits_retain(mode as u32) {
            mode if mode.is_empty() => self.disks.reserve(opened, offset.saturating_add(length)),
            mode if mode == FallocateFlags::KEEP_SIZE => Ok(()),
            mode if mode == hole || mode == zeros => self.disks.discard(opened, offset, length),
            _ => return reply.error(Errno::EOPNOTSUPP),
        };
        Folder::done(outcome, reply);
    }

    fn readdir(&self, _: &Request, _: INodeNo, _: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let names = match self.disks.list() {
            Ok(names) => names,
            Err(refusal) => return reply.error(errno(&refusal)),
        };
        let dots = [".", ".."].map(|name| (name.into(), INodeNo::ROOT, FileType::Directory));
        let files = names.into_iter().map(|(name, opened)| (name, inode(opened), FileType::RegularFile));
        for (at, (name, inode, kind)) in (0..).zip(dots.into_iter().chain(files)).skip(offset as usize) {
            let name: std::ffi::OsString = name;
            if reply.add(inode, at + 1, kind, name) {
                break;
            }
        }
        reply.ok();
    }
}

fn is_whole_sectors(offset: u64, len: u64) -> bool {
    offset.is_multiple_of(SECTOR_SIZE_BYTES) && len.is_multiple_of(SECTOR_SIZE_BYTES)
}
