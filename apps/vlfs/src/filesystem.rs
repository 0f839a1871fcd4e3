//! The kernel's questions, answered by the store of inodes.

use crate::attributes::{MODE, SETGID, attr, errno, file, file_type, kind_of, time};
use crate::folders::Folders;
use diecut_blockfile::{Attributes, FileError, Files, InodeKind, Made, Metadata, Name, ROOT, Replace};
use fuser::{
    BsdFileFlags, Errno, FileHandle, Filesystem, FopenFlags, Generation, INodeNo, InitFlags, KernelConfig,
    LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus,
    ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, Request, TimeOrNow, WriteFlags,
};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

/// What was written, and names, are with the server at the latest after this time: a `kill -9` takes away no more. The kernel does
/// not tell this kind of file system of `sync` and `syncfs`, so nothing may wait for them.
pub const HAND_OVER_PERIOD: Duration = Duration::from_millis(100);

/// What was written is durable at the latest after this time, if nobody asks for it before.
pub const FLUSH_PERIOD: Duration = Duration::from_secs(5);

/// How long the kernel trusts what it was told: all changes go through it.
const TIME_TO_LIVE: Duration = Duration::from_secs(1);
/// Numbers of inodes are not used again.
const GENERATION: Generation = Generation(0);
/// Most bytes of one write or read; what one request of the kernel holds.
const REQUEST_MAX_BYTES: u32 = 1 << 20;
const BLOCK_SIZE_BYTES: u64 = 4096;
const NAME_MAX_BYTES: u32 = 255;

/// A mounted store of inodes.
pub struct FileSystem {
    files: Arc<Files>,
    folders: Folders,
    has_failed: AtomicBool,
}

impl FileSystem {
    /// Over an open store.
    pub fn new(files: Arc<Files>) -> FileSystem {
        FileSystem { files, folders: Folders::default(), has_failed: AtomicBool::new(false) }
    }

    fn errno(&self, error: &FileError) -> Errno {
        let errno = errno(error);
        let is_lost = errno.code() == libc::EIO && *error != FileError::Failed;
        if is_lost && !self.has_failed.swap(true, Ordering::Relaxed) {
            eprintln!("diecut-vlfs: {error}; unmount, and mount again");
        }
        errno
    }

    /// For an answer that tells the kernel of an inode: it is held until the kernel forgets it.
    fn told(&self, known: Metadata) -> Result<Metadata, FileError> {
        self.files.hold(known.file)?;
        Ok(known)
    }

    fn entry(&self, outcome: Result<Metadata, FileError>, reply: ReplyEntry) {
        match outcome.and_then(|known| self.told(known)) {
            Ok(known) => reply.entry(&TIME_TO_LIVE, &attr(&known), GENERATION),
            Err(error) => reply.error(self.errno(&error)),
        }
    }

    fn done(&self, outcome: Result<(), FileError>, reply: ReplyEmpty) {
        match outcome {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(self.errno(&error)),
        }
    }

    /// Something new of the caller's. A folder with the setgid bit hands its group down, to folders with the bit.
    fn make(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        kind: InodeKind,
        (mode, device, target): (u32, u32, &[u8]),
    ) -> Result<Metadata, FileError> {
        let name = Name::new(name.as_bytes())?;
        let folder = self.files.metadata(file(parent))?.attributes;
        let mut attributes = Attributes::new(mode & MODE, request.uid(), request.gid());
        attributes.device = device;
        if folder.mode & SETGID != 0 {
            attributes.gid = folder.gid;
            if kind == InodeKind::Folder {
                attributes.mode |= SETGID;
            }
        }
        self.files.make(file(parent), &name, Made { kind, hint: 0, attributes, target })
    }

    fn lookup_in(&self, parent: INodeNo, name: &OsStr) -> Result<Metadata, FileError> {
        if name.len() > NAME_MAX_BYTES as usize {
            return Err(FileError::Name);
        }
        let found = self.files.lookup(file(parent), name.as_bytes())?.ok_or(FileError::NotFound)?;
        self.files.metadata(found)
    }
}

impl Filesystem for FileSystem {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        // Without the first one direct reads and writes of one process wait for each other. What a kernel does not have it
        // does without.
        let wanted = [
            InitFlags::FUSE_ASYNC_DIO,
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_DO_READDIRPLUS,
            InitFlags::FUSE_READDIRPLUS_AUTO,
        ];
        for flag in wanted {
            let _ = config.add_capabilities(flag);
        }
        let _ = config.set_max_write(REQUEST_MAX_BYTES);
        let _ = config.set_max_readahead(REQUEST_MAX_BYTES);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.entry(self.lookup_in(parent, name), reply);
    }

    fn forget(&self, _: &Request, inode: INodeNo, count: u64) {
        // The root is told without being asked for, and never goes.
        if file(inode) != ROOT {
            let _ = self.files.release(file(inode), count);
        }
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.files.metadata(file(inode)) {
            Ok(known) => reply.attr(&TIME_TO_LIVE, &attr(&known)),
            Err(error) => reply.error(self.errno(&error)),
        }
    }

    fn setattr(
        &self,
        _: &Request,
        inode: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        accessed: Option<TimeOrNow>,
        modified: Option<TimeOrNow>,
        _changed: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let file = file(inode);
        let set = |attributes: &mut Attributes| {
            attributes.mode = mode.map_or(attributes.mode, |mode| mode & MODE);
            attributes.uid = uid.unwrap_or(attributes.uid);
            attributes.gid = gid.unwrap_or(attributes.gid);
            attributes.accessed = accessed.map_or(attributes.accessed, time);
            attributes.modified = modified.map_or(attributes.modified, time);
        };
        let is_only_size =
            mode.is_none() && uid.is_none() && gid.is_none() && accessed.is_none() && modified.is_none();
        let outcome = size.map_or(Ok(()), |size| self.files.set_size(file, size)).and_then(|()| {
            // What sets nothing changes the time of the change, too: an owner that stays.
            let is_done = is_only_size && size.is_some();
            if is_done { self.files.metadata(file) } else { self.files.set_attributes(file, set) }
        });
        match outcome {
            Ok(known) => reply.attr(&TIME_TO_LIVE, &attr(&known)),
            Err(error) => reply.error(self.errno(&error)),
        }
    }

    fn readlink(&self, _: &Request, inode: INodeNo, reply: ReplyData) {
        match self.files.target(file(inode)) {
            Ok(target) => reply.data(&target),
            Err(error) => reply.error(self.errno(&error)),
        }
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        device: u32,
        reply: ReplyEntry,
    ) {
        let Some(kind) = kind_of(mode) else { return reply.error(Errno::EINVAL) };
        self.entry(self.make(request, parent, name, kind, (mode, device, &[])), reply);
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        reply: ReplyEntry,
    ) {
        self.entry(self.make(request, parent, name, InodeKind::Folder, (mode, 0, &[])), reply);
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let outcome = Name::new(name.as_bytes()).and_then(|name| self.files.unlink(file(parent), &name));
        self.done(outcome, reply);
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let outcome =
            Name::new(name.as_bytes()).and_then(|name| self.files.unlink_folder(file(parent), &name));
        self.done(outcome, reply);
    }

    fn symlink(&self, request: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let target = target.as_os_str().as_bytes();
        self.entry(self.make(request, parent, name, InodeKind::Symlink, (0o777, 0, target)), reply);
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        to_parent: INodeNo,
        to_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let replace = match flags {
            none if none.is_empty() => Replace::Yes,
            RenameFlags::RENAME_NOREPLACE => Replace::No,
            RenameFlags::RENAME_EXCHANGE => Replace::Exchange,
            _ => return reply.error(Errno::EINVAL),
        };
        let names = Name::new(name.as_bytes()).and_then(|from| Ok((from, Name::new(to_name.as_bytes())?)));
        let outcome = names.and_then(|(from, to)| {
            self.files.rename_entry((file(parent), &from), (file(to_parent), &to), replace)
        });
        self.done(outcome, reply);
    }

    fn link(&self, _: &Request, inode: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let name = Name::new(name.as_bytes());
        let outcome = name.and_then(|name| self.files.link(file(inode), file(parent), &name));
        match outcome {
            Err(FileError::IsFolder) => reply.error(Errno::EPERM),
            other => self.entry(other, reply),
        }
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        // Nothing changes a file behind the kernel: what it has cached is good for the next one who opens it.
        reply.opened(FileHandle(0), FopenFlags::FOPEN_KEEP_CACHE);
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        let made = self.make(request, parent, name, InodeKind::File, (mode, 0, &[]));
        match made.and_then(|known| self.told(known)) {
            Ok(known) => reply.created(
                &TIME_TO_LIVE,
                &attr(&known),
                GENERATION,
                FileHandle(0),
                FopenFlags::FOPEN_KEEP_CACHE,
            ),
            Err(error) => reply.error(self.errno(&error)),
        }
    }

    fn read(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let mut bytes = vec![0; size as usize];
        match self.files.read(file(inode), offset, &mut bytes) {
            Ok(len) => reply.data(&bytes[..len]),
            Err(error) => reply.error(self.errno(&error)),
        }
    }

    fn write(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        bytes: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match self.files.write(file(inode), offset, bytes) {
            Ok(()) => reply.written(bytes.len() as u32),
            Err(error) => reply.error(self.errno(&error)),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.done(self.files.sync(), reply);
    }

    fn opendir(&self, _: &Request, inode: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        match self.folders.open(&self.files, file(inode)) {
            Ok(handle) => reply.opened(FileHandle(handle), FopenFlags::empty()),
            Err(error) => reply.error(self.errno(&error)),
        }
    }

    fn readdir(&self, _: &Request, inode: INodeNo, handle: FileHandle, from: u64, mut reply: ReplyDirectory) {
        let listed = match self.folders.list(&self.files, file(inode), handle.0, from) {
            Ok(listed) => listed,
            Err(error) => return reply.error(self.errno(&error)),
        };
        for (at, entry) in listed.iter().enumerate().skip(from as usize) {
            let inode = INodeNo(entry.file.0);
            if reply.add(inode, at as u64 + 1, file_type(entry.kind), OsStr::from_bytes(&entry.name)) {
                break;
            }
        }
        reply.ok();
    }

    fn readdirplus(
        &self,
        _: &Request,
        inode: INodeNo,
        handle: FileHandle,
        from: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let listed = match self.folders.list(&self.files, file(inode), handle.0, from) {
            Ok(listed) => listed,
            Err(error) => return reply.error(self.errno(&error)),
        };
        for (at, entry) in listed.iter().enumerate().skip(from as usize) {
            // Gone since the folder was opened.
            let Ok(known) = self.files.metadata(entry.file) else { continue };
            let (inode, name) = (INodeNo(entry.file.0), OsStr::from_bytes(&entry.name));
            if reply.add(inode, at as u64 + 1, name, &TIME_TO_LIVE, &attr(&known), GENERATION) {
                break;
            }
            // The kernel counts none for `.` and `..`.
            if !entry.is_dots {
                let _ = self.files.hold(entry.file);
            }
        }
        reply.ok();
    }

    fn releasedir(&self, _: &Request, _: INodeNo, handle: FileHandle, _: OpenFlags, reply: ReplyEmpty) {
        self.folders.close(handle.0);
        reply.ok();
    }

    fn fsyncdir(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.done(self.files.sync(), reply);
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        let known = match self.files.statistics() {
            Ok(known) => known,
            Err(error) => return reply.error(self.errno(&error)),
        };
        let blocks = known.capacity_bytes / BLOCK_SIZE_BYTES;
        let free = blocks.saturating_sub(known.live_bytes / BLOCK_SIZE_BYTES);
        let size = BLOCK_SIZE_BYTES as u32;
        // There is no number of inodes that can be had.
        reply.statfs(blocks, free, free, 0, 0, size, NAME_MAX_BYTES, size);
    }

    fn fallocate(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _offset: u64,
        _length: u64,
        _mode: i32,
        reply: ReplyEmpty,
    ) {
        // Room on a log is not set aside for a place in a file.
        reply.error(Errno::EOPNOTSUPP);
    }
}
