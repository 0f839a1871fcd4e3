//! Pins a thread to a core, so that server and load never share one.

use std::io;

/// Pins the calling thread to `core`.
///
/// # Errors
/// What the operating system says, for example that the core does not exist.
pub fn pin_this_thread(core: usize) -> io::Result<()> {
    // SAFETY: an all-zero cpu_set_t is the empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    if core >= libc::CPU_SETSIZE as usize {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("core {core} is beyond the mask")));
    }
    // SAFETY: `core` is within the set, checked above.
    unsafe { libc::CPU_SET(core, &mut set) };
    // SAFETY: the pointer and the size describe `set`; 0 means the calling thread.
    match unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
