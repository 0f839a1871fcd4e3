//! The io_uring of a drive: a small one, or one whose entries have room for commands of NVMe.

use io_uring::{IoUring, Submitter, cqueue, squeue};
use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, RawFd};

/// An entry of either size.
pub(crate) enum Entry {
    /// Any command of files.
    Small(squeue::Entry),
    /// A command of a kind of file, as NVMe has them; only for [`KernelRing::Large`].
    Large(squeue::Entry128),
}

/// See the module.
pub(crate) enum KernelRing {
    Small(IoUring),
    /// Entries take twice the memory, and so do completions.
    Large(IoUring<squeue::Entry128, cqueue::Entry32>),
}

impl KernelRing {
    /// A ring with room for so many commands.
    pub fn new(entries: u32, is_large: bool) -> io::Result<KernelRing> {
        if is_large {
            let mut builder = IoUring::builder();
            return builder.setup_coop_taskrun().build(entries).map(KernelRing::Large);
        }
        // Completions are posted when the thread enters the kernel anyway, as it does in each round; Linux before 5.19 does not know that.
        let ring = IoUring::builder().setup_coop_taskrun().build(entries);
        ring.or_else(|_| IoUring::new(entries)).map(KernelRing::Small)
    }

    pub fn submitter(&self) -> Submitter<'_> {
        match self {
            KernelRing::Small(ring) => ring.submitter(),
            KernelRing::Large(ring) => ring.submitter(),
        }
    }

    /// Whether the kernel counts time while it is waited for (Linux 5.11).
    pub fn counts_time(&self) -> bool {
        match self {
            KernelRing::Small(ring) => ring.params().is_feature_ext_arg(),
            KernelRing::Large(ring) => ring.params().is_feature_ext_arg(),
        }
    }

    /// Puts an entry where the kernel finds it. `false` if there is no room.
    ///
    /// # Safety
    /// What the entry points to stays where it is, and is nobody else's, until the kernel has ended it.
    ///
    /// # Panics
    /// If a large entry is for a small ring.
    pub unsafe fn push(&mut self, entry: &Entry) -> bool {
        // SAFETY: as the caller says.
        let pushed = unsafe {
            match (self, entry) {
                (KernelRing::Small(ring), Entry::Small(entry)) => ring.submission().push(entry),
                (KernelRing::Large(ring), Entry::Small(entry)) => {
                    ring.submission().push(&squeue::Entry128::from(entry.clone()))
                }
                (KernelRing::Large(ring), Entry::Large(entry)) => ring.submission().push(entry),
                (KernelRing::Small(_), Entry::Large(_)) => panic!("a large entry is for a large ring"),
            }
        };
        pushed.is_ok()
    }

    /// A number that a command was given, and what it says of its end.
    pub fn next_ended(&mut self) -> Option<(u64, i32)> {
        match self {
            KernelRing::Small(ring) => {
                ring.completion().next().map(|entry| (entry.user_data(), entry.result()))
            }
            KernelRing::Large(ring) => {
                ring.completion().next().map(|entry| (entry.user_data(), entry.result()))
            }
        }
    }

    /// Tells the kernel of what is there, and waits until so many are done.
    pub fn enter(&mut self, wanted: usize) -> io::Result<()> {
        loop {
            match self.submitter().submit_and_wait(wanted) {
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // The kernel has too many answers for us, or no memory at the moment.
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) && wanted == 0 => return Ok(()),
                Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => std::thread::yield_now(),
                Err(error) => return Err(error),
            }
        }
    }
}

impl AsRawFd for KernelRing {
    fn as_raw_fd(&self) -> RawFd {
        match self {
            KernelRing::Small(ring) => ring.as_raw_fd(),
            KernelRing::Large(ring) => ring.as_raw_fd(),
        }
    }
}
