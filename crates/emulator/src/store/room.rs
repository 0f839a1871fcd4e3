//! Room on the file system that a device's file lies on: taken before a mapping touches it, and given back.
//!
//! A store through a shared mapping to a part of a sparse file for which the file system has no room kills the process
//! (SIGBUS). So each part is allocated before anything is stored there, and what no longer holds anything becomes a hole again.

use diecut_units::{Span, Time};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::path::Path;

/// How long a file system that had no room is not asked again: hosts repeat what failed, and each try allocates as far as it goes.
const ASK_AGAIN: Span = Span(100_000_000);

/// With so much left on the file system, room for a block is promised before it is taken.
const AMPLE_BYTES: u64 = 256 << 20;

/// What a device's file takes, and what its file system has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Bytes of the file system that the file takes now.
    pub taken_bytes: u64,
    /// Bytes that it can grow to: its apparent size.
    pub size_bytes: u64,
    /// Bytes that the file system has free for it.
    pub free_bytes: u64,
}

impl Room {
    /// Asks the file system about a device's file.
    ///
    /// # Errors
    /// The file system's.
    pub fn of(path: &Path) -> io::Result<Room> {
        Room::of_file(&File::open(path)?)
    }

    pub(crate) fn of_file(file: &File) -> io::Result<Room> {
        use std::os::unix::fs::MetadataExt;
        let metadata = file.metadata()?;
        let mut system = std::mem::MaybeUninit::<libc::statvfs64>::zeroed();
        // SAFETY: an open file, and a place for the answer.
        if unsafe { libc::fstatvfs64(file.as_raw_fd(), system.as_mut_ptr()) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: filled by the call, and zeros are valid.
        let system = unsafe { system.assume_init() };
        Ok(Room {
            taken_bytes: metadata.blocks() * 512,
            size_bytes: metadata.len(),
            free_bytes: system.f_bavail * system.f_frsize,
        })
    }

    /// Whether the file could grow beyond what the file system has.
    pub fn can_run_out(&self) -> bool {
        self.size_bytes.saturating_sub(self.taken_bytes) > self.free_bytes
    }
}

/// What the file system under a device's file can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoomSupport {
    /// It allocates ahead (`fallocate`). Else a write can still find it full, which kills the process.
    pub reserves: bool,
    /// It gives back parts of a file (`FALLOC_FL_PUNCH_HOLE`). Else what was erased keeps its room.
    pub punches: bool,
}

/// Takes room for parts of one file and gives it back.
#[derive(Clone, Debug)]
pub(crate) struct Allocator {
    pub(crate) support: RoomSupport,
    /// The file system had none, and is not asked before.
    ask_at: Time,
}

impl Allocator {
    /// Finds out what the file system can do, at a part of the file that is zeros; where it is not, both is assumed.
    pub(crate) fn probe(file: &File, zeros: Range<u64>) -> io::Result<Allocator> {
        use std::os::unix::fs::FileExt;
        let mut found = vec![0; (zeros.end - zeros.start) as usize];
        file.read_exact_at(&mut found, zeros.start)?;
        if found.iter().any(|byte| *byte != 0) {
            let support = RoomSupport { reserves: true, punches: true };
            return Ok(Allocator { support, ask_at: Time::ZERO });
        }
        let can = |result: io::Result<()>| match result {
            Ok(()) => Ok(true),
            Err(error) if is_unsupported(&error) => Ok(false),
            // Full is no word on what it can do.
            Err(error) if is_full(&error) => Ok(true),
            Err(error) => Err(error),
        };
        let punches = can(punch(file, zeros.clone()))?;
        let reserves = can(allocate(file, zeros))?;
        Ok(Allocator { support: RoomSupport { reserves, punches }, ask_at: Time::ZERO })
    }

    /// Allocates parts that hold nothing yet. Without room for all of them, none is taken.
    pub(crate) fn take(&mut self, file: &File, parts: &[Range<u64>], now: Time) -> bool {
        if now < self.ask_at {
            return false;
        }
        let taken = if self.support.reserves {
            parts.iter().all(|part| allocate(file, part.clone()).is_ok())
        } else {
            let wanted: u64 = parts.iter().map(|part| part.end - part.start).sum();
            Room::of_file(file).is_ok_and(|room| room.free_bytes >= wanted)
        };
        if !taken {
            self.ask_at = now + ASK_AGAIN;
        }
        taken
    }

    /// Whether there is room for so many bytes and many more. What others take meanwhile is found out when it is taken.
    pub(crate) fn is_ample(&self, file: &File, wanted_bytes: u64, now: Time) -> bool {
        let ample = |room: Room| room.free_bytes >= wanted_bytes + AMPLE_BYTES;
        self.support.reserves && now >= self.ask_at && Room::of_file(file).is_ok_and(ample)
    }

    /// The file system had no room, and is not asked again for a while.
    pub(crate) fn had_none(&mut self, now: Time) {
        self.ask_at = now + ASK_AGAIN;
    }

    /// The next [`Allocator::take`] asks the file system, whatever it said before.
    pub(crate) fn ask_again(&mut self) {
        self.ask_at = Time::ZERO;
    }

    /// Makes a part a hole. Where the file system cannot, it stays as it is.
    pub(crate) fn give_back(&self, file: &File, part: Range<u64>) {
        if self.support.punches && part.start < part.end {
            // What fails keeps its room, and nothing else.
            let _ = punch(file, part);
        }
    }
}

fn is_unsupported(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::ENOSYS | libc::EINVAL))
}

pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOSPC | libc::EDQUOT))
}

/// Allocates a part of a file; what it holds stays.
pub(crate) fn allocate(file: &File, part: Range<u64>) -> io::Result<()> {
    change(file, libc::FALLOC_FL_KEEP_SIZE, part)
}

fn punch(file: &File, part: Range<u64>) -> io::Result<()> {
    change(file, libc::FALLOC_FL_KEEP_SIZE | libc::FALLOC_FL_PUNCH_HOLE, part)
}

fn change(file: &File, mode: libc::c_int, part: Range<u64>) -> io::Result<()> {
    let offset = libc::off64_t::try_from(part.start).map_err(io::Error::other)?;
    let len = libc::off64_t::try_from(part.end - part.start).map_err(io::Error::other)?;
    loop {
        // SAFETY: an open file; what is mapped of it stays mapped.
        if unsafe { libc::fallocate64(file.as_raw_fd(), mode, offset, len) } == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}
