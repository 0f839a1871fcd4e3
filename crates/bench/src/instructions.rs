//! Instructions that a thread retired, from the processor's counters, where the machine has and shows them.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::FromRawFd;

/// PERF_TYPE_HARDWARE of the perf_event_open interface.
const TYPE_HARDWARE: u32 = 0;
/// PERF_COUNT_HW_INSTRUCTIONS.
const CONFIG_INSTRUCTIONS: u64 = 1;

/// PERF_FLAG_FD_CLOEXEC.
const FLAG_CLOSE_ON_EXEC: libc::c_ulong = 8;

/// `struct perf_event_attr` in its first published size, 64 bytes (PERF_ATTR_SIZE_VER0); the kernel takes all sizes.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    breakpoint_type: u32,
    config1: u64,
}

const _: () = assert!(size_of::<Attributes>() == 64);

/// A counter of one thread, user and kernel.
pub struct Instructions(File);

impl Instructions {
    /// Counts the calling thread from now on.
    ///
    /// # Errors
    /// What the operating system says: many virtual machines have no such counter, and some forbid it.
    pub fn of_this_thread() -> io::Result<Instructions> {
        let attributes = Attributes {
            kind: TYPE_HARDWARE,
            size: size_of::<Attributes>() as u32,
            config: CONFIG_INSTRUCTIONS,
            ..Attributes::default()
        };
        // SAFETY: the structure is what the call reads, of the size it names; this thread (0), any core (-1), no group.
        let descriptor = unsafe {
            libc::syscall(libc::SYS_perf_event_open, &raw const attributes, 0, -1, -1, FLAG_CLOSE_ON_EXEC)
        };
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call just gave this descriptor to us alone.
        Ok(Instructions(unsafe { File::from_raw_fd(descriptor as i32) }))
    }

    /// So far.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn count(&self) -> io::Result<u64> {
        let mut bytes = [0; 8];
        (&self.0).read_exact(&mut bytes)?;
        Ok(u64::from_ne_bytes(bytes))
    }
}
