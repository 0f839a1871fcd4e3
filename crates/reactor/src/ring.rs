//! Intents of a drive on an io_uring: many at once, and nobody waits in a system call.

use crate::failures::Failures;
use crate::kernel::{Entry, KernelRing};
use crate::zones::{ZoneThread, ZoneWork};
use diecut_devices::local::{Placement, WriteFrom, memory_alignment_bytes};
use diecut_media::{Intent, IntentDone, IntentError, IntentToken, IntentWork};
use diecut_units::{Buffer, BufferMut, BufferPool, Slab, Span};
use io_uring::{opcode, types};
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Arc;
use std::time::Instant;

/// Commands that the kernel has at once; others wait here.
const ENTRIES: u32 = 256;
/// Commands that are given to the kernel with one call. More would cost fewer calls, and let the drive wait for its first one.
const TOGETHER_MAX: usize = 8;
/// The file, as the ring knows it.
const FILE: types::Fixed = types::Fixed(0);
/// What takes writes with a placement handle, if there is one.
const GENERIC: types::Fixed = types::Fixed(2);
/// How often a drive is given a command again that it did not want at that moment: nobody else does so past the block layer.
const TRIES_MAX: u8 = 5;
/// Do Not Retry, in a status of NVMe without its phase bit (Base 2.0, figure 93).
const DO_NOT_RETRY: i32 = 1 << 14;

/// What the kernel gives back with a read of the bell of zones. Commands have lower numbers.
const BELL: u64 = 1 << 32;

/// Whether bytes go through the kernel's page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageCache {
    /// Any bytes at any place; they are copied once more, and take memory twice.
    Used,
    /// Straight to the drive (O_DIRECT): whole logical blocks only.
    Bypassed,
}

/// A file or a block device that rings are made on.
#[derive(Clone, Debug)]
pub struct RingFile {
    /// Open, for who has it alone.
    pub file: Arc<File>,
    /// Whether its bytes go through the page cache.
    pub cache: PageCache,
    /// Its placement handles, which writes name then.
    pub placement: Option<Arc<Placement>>,
    failures: Arc<Failures>,
}

impl RingFile {
    /// One whose writes name no handle.
    pub fn plain(file: Arc<File>, cache: PageCache) -> RingFile {
        RingFile { file, cache, placement: None, failures: Arc::default() }
    }

    /// The same, whose writes name handles where the drive has some.
    pub fn with_handles(self, placement: Option<Arc<Placement>>) -> RingFile {
        RingFile { placement, ..self }
    }

    /// A ring on it.
    ///
    /// # Errors
    /// See [`DriveRing::new`].
    pub fn ring(&self) -> io::Result<DriveRing> {
        DriveRing::of(self)
    }
}

/// The ring of one thread on one file or block device.
///
/// It has an open file of its own: the kernel tells each of them once when something that was written could not be made durable, and two
/// that share one would hide it from each other. The file that it was made of stays open as long as the kernel has commands of the ring, also of a
/// process that was killed: with that file goes the lock by which a server has a drive alone, and the next one would read what still changes.
pub struct DriveRing {
    ring: KernelRing,
    /// Kept open for the ring.
    file: File,
    placement: Option<Arc<Placement>>,
    failures: Arc<Failures>,
    /// Memory that the drive transfers to and from begins at a multiple of this.
    alignment_bytes: usize,
    /// Who works on zones, once there was something to do.
    zones: Option<Zones>,
    under_way: Slab<UnderWay>,
    /// Of what the kernel has no room for.
    waiting: VecDeque<Intent>,
    /// Commands that the kernel has not been told of.
    unsubmitted: usize,
    /// Aligned memory for bytes that are not.
    pool: BufferPool,
    /// Lists of parts that were used.
    lists: Vec<Vec<libc::iovec>>,
}

/// The thread that works on zones, as the ring has it.
struct Zones {
    thread: ZoneThread,
    under_way: u32,
    /// Where the kernel puts what it reads of the bell. Apart, so that it stays where it is.
    bell: Box<[u8; 8]>,
    /// Whether the kernel reads it.
    is_listening: bool,
}

/// A command that the kernel has.
struct UnderWay {
    token: IntentToken,
    work: Work,
    /// Bytes of it that were transferred: a command may end early.
    transferred: usize,
    /// Bytes of a placed write that the kernel has, if it is one.
    placed: Option<usize>,
    tries: u8,
}

enum Work {
    Read {
        offset: u64,
        buffer: BufferMut,
        /// Where the drive puts the bytes if the buffer is not aligned.
        aligned: Option<BufferMut>,
    },
    Write {
        offset: u64,
        parts: SmallVec<[Buffer; 2]>,
        /// What the kernel was told of the parts. It lies apart, so that it stays where it is until the kernel has read it.
        list: Vec<libc::iovec>,
        len: usize,
        handle: u16,
    },
    Discard {
        offset: u64,
        len: u64,
    },
    Sync,
}

// SAFETY: pointers in lists of parts point into the buffers beside them, which may move between threads.
unsafe impl Send for UnderWay {}
// SAFETY: the lists in store are empty; all else may move by itself.
unsafe impl Send for DriveRing {}

impl DriveRing {
    /// A ring on what `file` is, opened once more.
    ///
    /// # Errors
    /// What the kernel says, of io_uring or of the file; a file system in memory has no way past the page cache.
    pub fn new(file: &File, cache: PageCache) -> io::Result<DriveRing> {
        DriveRing::of(&RingFile::plain(Arc::new(file.try_clone()?), cache))
    }

    fn of(RingFile { file, cache, placement, failures }: &RingFile) -> io::Result<DriveRing> {
        let placement = placement.clone();
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let flags = match cache {
            PageCache::Used => 0,
            PageCache::Bypassed => libc::O_DIRECT,
        };
        let own = OpenOptions::new().read(true).write(true).custom_flags(flags).open(path)?;
        let refused = |error: io::Error| {
            let why = format!(
                "io_uring cannot be used here ({error}); it needs Linux 5.6 or later, /proc/sys/kernel/io_uring_disabled must be 0, \
                 and a container must allow its system calls"
            );
            io::Error::new(error.kind(), why)
        };
        let ring = KernelRing::new(ENTRIES, placement.is_some()).map_err(refused)?;
        let mut files = vec![own.as_raw_fd(), file.as_raw_fd()];
        files.extend(placement.as_ref().map(|placement| placement.file().as_raw_fd()));
        ring.submitter().register_files(&files).map_err(refused)?;
        Ok(DriveRing {
            ring,
            alignment_bytes: memory_alignment_bytes(&own),
            file: own,
            placement,
            failures: Arc::clone(failures),
            zones: None,
            under_way: Slab::new(),
            waiting: VecDeque::new(),
            unsubmitted: 0,
            pool: BufferPool::new(),
            lists: Vec::new(),
        })
    }

    /// Whether nothing is under way or waits.
    pub fn is_idle(&self) -> bool {
        self.under_way.is_empty() && self.waiting.is_empty() && self.zones_under_way() == 0
    }

    fn zones_under_way(&self) -> u32 {
        self.zones.as_ref().map_or(0, |zones| zones.under_way)
    }

    /// Has something done to a zone.
    fn begin_zone(&mut self, token: IntentToken, work: ZoneWork, offset: u64, len: u64) {
        let zones = self.zones.get_or_insert_with(|| Zones {
            thread: ZoneThread::start(&self.file).expect("a server can have one more thread"),
            under_way: 0,
            bell: Box::new([0; 8]),
            is_listening: false,
        });
        zones.thread.push(token, work, offset, len);
        zones.under_way += 1;
        self.listen();
    }

    /// Has the kernel tell of zones, as it does of commands.
    fn listen(&mut self) {
        let Some(zones) = self.zones.as_mut().filter(|zones| zones.under_way > 0 && !zones.is_listening)
        else {
            return;
        };
        zones.is_listening = true;
        let bell = types::Fd(zones.thread.bell());
        let entry = opcode::Read::new(bell, zones.bell.as_mut_ptr(), 8).build().user_data(BELL);
        self.push_entry(&Entry::Small(entry));
    }

    /// Takes an intent. The kernel has it after the next [`DriveRing::submit`], or before.
    pub fn push(&mut self, intent: Intent) {
        match intent.work {
            IntentWork::ResetZone { offset, len_bytes } => {
                self.begin_zone(intent.token, ZoneWork::Reset, offset, len_bytes);
            }
            IntentWork::FinishZone { offset, len_bytes } => {
                self.begin_zone(intent.token, ZoneWork::Finish, offset, len_bytes);
            }
            _ if self.under_way.len() >= ENTRIES as usize || !self.waiting.is_empty() => {
                self.waiting.push_back(intent);
            }
            _ => self.begin(intent),
        }
    }

    fn begin(&mut self, intent: Intent) {
        let work = match intent.work {
            IntentWork::Read { offset, buffer } => {
                let aligned =
                    (!self.is_aligned(buffer.as_ptr(), buffer.len())).then(|| self.pool.take(buffer.len()));
                Work::Read { offset, buffer, aligned }
            }
            IntentWork::Write { offset, mut parts, handle } => {
                if !parts.iter().all(|part| self.is_aligned(part.as_ptr(), part.len())) {
                    parts = [self.joined(&parts)].into_iter().collect();
                }
                let len = parts.iter().map(Buffer::len).sum();
                Work::Write { offset, parts, list: self.lists.pop().unwrap_or_default(), len, handle }
            }
            IntentWork::Discard { offset, len_bytes } => Work::Discard { offset, len: len_bytes },
            IntentWork::Sync => Work::Sync,
            IntentWork::ResetZone { .. } | IntentWork::FinishZone { .. } => {
                unreachable!("the thread has them")
            }
        };
        let index = self.under_way.insert(UnderWay {
            token: intent.token,
            work,
            transferred: 0,
            placed: None,
            tries: 0,
        });
        self.give(index);
    }

    fn is_aligned(&self, pointer: *const u8, len: usize) -> bool {
        pointer.addr().is_multiple_of(self.alignment_bytes) && len.is_multiple_of(self.alignment_bytes)
    }

    /// The parts in one aligned piece.
    fn joined(&mut self, parts: &[Buffer]) -> Buffer {
        let mut whole = self.pool.take(parts.iter().map(Buffer::len).sum());
        let mut at = 0;
        for part in parts {
            whole[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
        whole.freeze()
    }

    /// Gives the kernel what is left of a command.
    fn give(&mut self, index: u32) {
        let entry = self
            .under_way
            .get_mut(index)
            .expect("it is under way")
            .entry(self.placement.as_deref(), index.into());
        self.push_entry(&entry);
    }

    fn push_entry(&mut self, entry: &Entry) {
        // SAFETY: what the entry points to belongs to the command, which stays in `under_way` until the kernel has ended it, or to `zones`:
        // `drop` waits for all. Buffers do not move with their handles, and lists and the bell lie apart.
        while !unsafe { self.ring.push(entry) } {
            self.ring.enter(0).expect("a ring that was made takes what it is given");
        }
        self.unsubmitted += 1;
        if self.unsubmitted >= TOGETHER_MAX {
            self.submit();
        }
    }

    /// Tells the kernel of all that was taken. Whether that was a system call.
    pub fn submit(&mut self) -> bool {
        if std::mem::take(&mut self.unsubmitted) == 0 {
            return false;
        }
        self.ring.enter(0).expect("a ring that was made takes what it is given");
        true
    }

    /// Appends what is done. Costs no system call.
    pub fn take_done(&mut self, done: &mut Vec<IntentDone>) {
        while let Some((number, result)) = self.ring.next_ended() {
            if number == BELL {
                self.end_zones(done);
            } else if let Some(answer) = self.end(number as u32, result) {
                done.push(answer);
            }
        }
        while self.under_way.len() < ENTRIES as usize
            && let Some(intent) = self.waiting.pop_front()
        {
            self.begin(intent);
        }
    }

    /// The bell of zones rang.
    fn end_zones(&mut self, done: &mut Vec<IntentDone>) {
        if let Some(zones) = &mut self.zones {
            zones.is_listening = false;
            while let Some(answer) = zones.thread.take_done() {
                zones.under_way -= 1;
                done.push(answer);
            }
        }
        self.listen();
    }

    /// Tells the kernel of all that was taken, and waits until at least one command is done, where one is under way. For those who have
    /// nothing else to wait for.
    pub fn submit_and_wait(&mut self) {
        if !self.under_way.is_empty() || self.zones_under_way() > 0 {
            self.unsubmitted = 0;
            self.ring.enter(1).expect("a ring that was made can be waited for");
        }
    }

    /// The same, for no longer than `longest`, where the kernel counts time (Linux 5.11).
    pub fn submit_and_wait_for(&mut self, longest: Span) {
        if !self.ring.counts_time() {
            return self.submit_and_wait();
        }
        self.submit();
        if !self.under_way.is_empty() || self.zones_under_way() > 0 {
            let longest = types::Timespec::from(std::time::Duration::from_nanos(longest.0));
            let until = types::SubmitArgs::new().timespec(&longest);
            // That the time is over, or a signal came, is as good as that something is done.
            let _ = self.ring.submitter().submit_with_args(1, &until);
        }
    }

    /// The kernel ended a command, or a part of it.
    fn end(&mut self, index: u32, result: i32) -> Option<IntentDone> {
        let under_way = self.under_way.get_mut(index).expect("the kernel ends what it has");
        let len = under_way.work.len();
        let result = match under_way.placed {
            Some(_) if result > 0 && result & DO_NOT_RETRY == 0 && under_way.tries < TRIES_MAX => {
                under_way.tries += 1;
                -libc::EAGAIN
            }
            Some(_) if result > 0 => -libc::EIO,
            Some(bytes) if result == 0 => bytes as i32,
            _ => result,
        };
        let outcome = match usize::try_from(result) {
            // The end of the file came before the end of a read.
            Ok(0) if under_way.transferred < len => {
                let end = io::Error::from(io::ErrorKind::UnexpectedEof);
                tell(&self.failures, &self.file, &under_way.work, &end);
                Err(IntentError::Failed)
            }
            Ok(bytes) => {
                under_way.transferred += bytes;
                if under_way.transferred < len {
                    self.give(index);
                    return None;
                }
                Ok(())
            }
            Err(_) if [libc::EAGAIN, libc::EINTR].contains(&-result) => {
                self.give(index);
                return None;
            }
            Err(_) => {
                let error = io::Error::from_raw_os_error(-result);
                let outcome = under_way.work.judge(&error);
                if outcome.is_err_and(|outcome| outcome != IntentError::Full) {
                    tell(&self.failures, &self.file, &under_way.work, &error);
                }
                outcome
            }
        };
        let UnderWay { token, work, .. } = self.under_way.remove(index);
        let mut answer = IntentDone { token, buffer: None, result: outcome };
        match work {
            Work::Read { mut buffer, aligned, .. } => {
                if let Some(aligned) = aligned {
                    buffer.copy_from_slice(&aligned);
                }
                answer.buffer = Some(buffer);
            }
            Work::Write { mut list, .. } => {
                list.clear();
                self.lists.push(list);
            }
            Work::Discard { .. } | Work::Sync => {}
        }
        Some(answer)
    }
}

/// Says in the log that a command of a drive failed, unless that was said a moment ago.
#[cold]
#[allow(clippy::disallowed_methods, reason = "the reactor is where the clock is read")]
fn tell(failures: &Failures, file: &File, work: &Work, error: &io::Error) {
    let Some(count) = failures.note(Instant::now()) else { return };
    // As the kernel has it now: it says where a file was deleted.
    let drive = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap_or_default();
    let (drive, len) = (drive.display(), work.len());
    let what = match work {
        Work::Read { offset, .. } => format!("a read of {len} bytes at {offset}"),
        Work::Write { offset, .. } => format!("a write of {len} bytes at {offset}"),
        Work::Discard { offset, .. } => format!("a discard at {offset}"),
        Work::Sync => "a flush".to_owned(),
    };
    tracing::error!(
        "{drive}: {what} fails: {error}; {count} commands of this drive failed since the last such line. See to the drive"
    );
}

impl Work {
    /// Bytes to transfer.
    fn len(&self) -> usize {
        match self {
            Work::Read { buffer, .. } => buffer.len(),
            Work::Write { len, .. } => *len,
            Work::Discard { .. } | Work::Sync => 0,
        }
    }

    /// What an error means to who asked.
    fn judge(&self, error: &io::Error) -> Result<(), IntentError> {
        match (self, error.raw_os_error()) {
            // Advice that cannot be taken.
            (Work::Discard { .. }, Some(libc::EOPNOTSUPP | libc::EINVAL | libc::ENOSYS)) => Ok(()),
            (_, Some(libc::ENOSPC | libc::EDQUOT)) => Err(IntentError::Full),
            (_, Some(libc::ENODEV | libc::ENXIO | libc::ESHUTDOWN)) => Err(IntentError::Gone),
            (Work::Sync, _) => {
                tracing::error!(
                    "the drive cannot make durable what it took: {error}; what was written since the last flush may be lost, so no write \
                     is acknowledged any more. Reads go on. See to the drive, then start the server again"
                );
                Err(IntentError::Failed)
            }
            _ => Err(IntentError::Failed),
        }
    }
}

impl UnderWay {
    /// What is left of it, for the kernel.
    fn entry(&mut self, placement: Option<&Placement>, number: u64) -> Entry {
        let done = self.transferred;
        let entry = match &mut self.work {
            Work::Read { offset, buffer, aligned } => {
                let into = aligned.as_mut().unwrap_or(buffer);
                let left = &mut into[done..];
                opcode::Read::new(FILE, left.as_mut_ptr(), left.len() as u32)
                    .offset(*offset + done as u64)
                    .build()
            }
            Work::Write { offset, parts, list, len, handle } => {
                let offset = *offset + done as u64;
                let max = placement.map_or(usize::MAX, |placement| placement.transfer_bytes_max() as usize);
                let span = done..done + (*len - done).min(max);
                let bytes = span.len();
                fill(list, parts, span);
                if let Some(placement) = placement {
                    self.placed = Some(bytes);
                    return placed(placement, offset, (list, bytes), *handle, number);
                }
                match &list[..] {
                    [one] => opcode::Write::new(FILE, one.iov_base.cast(), one.iov_len as u32)
                        .offset(offset)
                        .build(),
                    many => {
                        opcode::Writev::new(FILE, many.as_ptr(), many.len() as u32).offset(offset).build()
                    }
                }
            }
            Work::Discard { offset, len } => opcode::Fallocate::new(FILE, *len)
                .offset(*offset)
                .mode(libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE)
                .build(),
            Work::Sync => opcode::Fsync::new(FILE).flags(types::FsyncFlags::DATASYNC).build(),
        };
        Entry::Small(entry.user_data(number))
    }
}

/// Says where bytes of a write lie: those of a span of its parts, one behind the other.
fn fill(list: &mut Vec<libc::iovec>, parts: &[Buffer], mut span: Range<usize>) {
    list.clear();
    for part in parts {
        let of_it = &part[span.start.min(part.len())..span.end.min(part.len())];
        span = span.start.saturating_sub(part.len())..span.end.saturating_sub(part.len());
        if !of_it.is_empty() {
            list.push(libc::iovec { iov_base: of_it.as_ptr().cast_mut().cast(), iov_len: of_it.len() });
        }
    }
}

/// A write that names a placement handle.
fn placed(
    placement: &Placement,
    offset: u64,
    (list, bytes): (&[libc::iovec], usize),
    handle: u16,
    number: u64,
) -> Entry {
    let len_bytes = bytes as u32;
    let from = match list {
        [one] => WriteFrom::Memory { address: one.iov_base.addr() as u64, len_bytes },
        many => {
            WriteFrom::Parts { address: many.as_ptr().addr() as u64, count: many.len() as u32, len_bytes }
        }
    };
    let (operation, command) = placement.write(offset, from, handle);
    Entry::Large(opcode::UringCmd80::new(GENERIC, operation).cmd(command).build().user_data(number))
}

impl AsRawFd for DriveRing {
    /// It is readable while something is done.
    fn as_raw_fd(&self) -> RawFd {
        self.ring.as_raw_fd()
    }
}

impl Drop for DriveRing {
    /// The kernel has buffers of commands under way: they stay until these have ended.
    fn drop(&mut self) {
        self.waiting.clear();
        while !self.under_way.is_empty() || self.zones_under_way() > 0 {
            if self.ring.enter(1).is_err() {
                // Nobody can say what the kernel still writes to: the process does not go on.
                std::process::abort();
            }
            self.take_done(&mut Vec::new());
        }
        // At once: the kernel takes its time with a ring that is gone, and would keep the lock meanwhile.
        let _ = self.ring.submitter().unregister_files();
    }
}
