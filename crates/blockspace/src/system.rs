//! What both sides need of the operating system: shared memory, descriptors over a socket, futex, who the peer is.

use crate::ring::Words;
use diecut_units::sync::AtomicU64;
use std::io::{self, Error};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

/// Descriptors that come with a welcome: the shared memory and the doorbell.
pub const WELCOME_DESCRIPTORS: usize = 2;

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(Error::last_os_error()) } else { Ok(result) }
}

/// Memory to share, all zeros, that nobody can make smaller or larger.
///
/// # Errors
/// If the system has no more.
pub fn create_memory(size_bytes: usize) -> io::Result<OwnedFd> {
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // SAFETY: the name is a string with an end.
    let descriptor = check(unsafe { libc::memfd_create(c"diecut-blocks".as_ptr(), flags) })?;
    // SAFETY: the descriptor is new and nobody else's.
    let memory = unsafe { OwnedFd::from_raw_fd(descriptor) };
    let size = libc::off_t::try_from(size_bytes).map_err(Error::other)?;
    // SAFETY: plain calls on a descriptor that is open.
    check(unsafe { libc::ftruncate(memory.as_raw_fd(), size) })?;
    let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
    // SAFETY: same.
    check(unsafe { libc::fcntl(memory.as_raw_fd(), libc::F_ADD_SEALS, seals) })?;
    Ok(memory)
}

struct Mapping {
    words: *const AtomicU64,
    len_words: usize,
}

// SAFETY: the memory is touched by atomic operations only.
unsafe impl Send for Mapping {}
// SAFETY: same.
unsafe impl Sync for Mapping {}

impl AsRef<[AtomicU64]> for Mapping {
    fn as_ref(&self) -> &[AtomicU64] {
        // SAFETY: mapped until drop, page aligned, and every bit pattern is a word; nobody holds other references to it.
        unsafe { std::slice::from_raw_parts(self.words, self.len_words) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        let len = self.len_words * size_of::<AtomicU64>();
        // SAFETY: this range was mapped by `map_memory` and is not used any more.
        unsafe { libc::munmap(self.words.cast_mut().cast(), len) };
    }
}

/// Maps shared memory. The client's kernel object is looked at: memory that could shrink is not mapped.
///
/// # Errors
/// If the memory is smaller than `size_bytes`, not sealed, or cannot be mapped.
pub fn map_memory(memory: &OwnedFd, size_bytes: usize) -> io::Result<Words> {
    // SAFETY: a plain call on an open descriptor.
    let seals = check(unsafe { libc::fcntl(memory.as_raw_fd(), libc::F_GET_SEALS) })?;
    // SAFETY: all zeros is a valid value of this plain struct.
    let mut status: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: the struct lives over the call.
    check(unsafe { libc::fstat(memory.as_raw_fd(), &raw mut status) })?;
    if seals & libc::F_SEAL_SHRINK == 0 || (status.st_size as usize) < size_bytes || size_bytes == 0 {
        return Err(Error::new(io::ErrorKind::InvalidData, "the shared memory is smaller than was said"));
    }
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping at an address of the kernel's choice; it covers nothing that is in use.
    let address = unsafe {
        libc::mmap(std::ptr::null_mut(), size_bytes, protection, libc::MAP_SHARED, memory.as_raw_fd(), 0)
    };
    if address == libc::MAP_FAILED {
        return Err(Error::last_os_error());
    }
    Ok(Arc::new(Mapping { words: address.cast(), len_words: size_bytes / size_of::<AtomicU64>() }))
}

/// A doorbell: an eventfd that does not block.
///
/// # Errors
/// If there are no more descriptors.
pub fn create_doorbell() -> io::Result<OwnedFd> {
    // SAFETY: a plain call.
    let descriptor = check(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })?;
    // SAFETY: the descriptor is new and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// Rings. A bell that is rung so often that its counter is full rings all the same.
pub fn ring(doorbell: &OwnedFd) {
    let one = 1u64.to_ne_bytes();
    // SAFETY: eight bytes that live over the call.
    unsafe { libc::write(doorbell.as_raw_fd(), one.as_ptr().cast(), one.len()) };
}

/// Stops the ringing.
pub fn quiet(doorbell: &OwnedFd) {
    let mut count = [0u8; 8];
    // SAFETY: eight bytes that live over the call.
    unsafe { libc::read(doorbell.as_raw_fd(), count.as_mut_ptr().cast(), count.len()) };
}

/// Waits while the low half of `word` is that of `seen`, at most `patience`. Wakes without reason now and then.
pub fn futex_wait(word: &AtomicU64, seen: u64, patience: Duration) {
    let timeout = libc::timespec {
        tv_sec: patience.as_secs() as libc::time_t,
        tv_nsec: patience.subsec_nanos().into(),
    };
    // SAFETY: the address is that of a word that lives over the call; the kernel only reads it. The first four bytes of a
    // little-endian word are its low half.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            std::ptr::from_ref(word),
            libc::FUTEX_WAIT,
            seen as u32,
            &raw const timeout,
        )
    };
}

/// Wakes all who wait on the word, in any process.
pub fn futex_wake(word: &AtomicU64) {
    // SAFETY: as above.
    unsafe { libc::syscall(libc::SYS_futex, std::ptr::from_ref(word), libc::FUTEX_WAKE, libc::c_int::MAX) };
}

/// User id of the process at the other end of a Unix socket, as it was when it connected.
///
/// # Errors
/// If the kernel does not know.
pub fn peer_uid(socket: &impl AsRawFd) -> io::Result<u32> {
    let mut credentials = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    let descriptor = socket.as_raw_fd();
    // SAFETY: both live over the call, and the length is that of the struct.
    check(unsafe {
        libc::getsockopt(
            descriptor,
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut credentials).cast(),
            &raw mut len,
        )
    })?;
    Ok(credentials.uid)
}

/// User id of this process.
pub fn own_uid() -> u32 {
    // SAFETY: a plain call that cannot fail.
    unsafe { libc::geteuid() }
}

/// Space for the control message of [`WELCOME_DESCRIPTORS`] descriptors, aligned as the kernel's structs want.
#[repr(C, align(8))]
struct ControlSpace([u8; 64]);

fn control_len() -> usize {
    // SAFETY: arithmetic only.
    unsafe { libc::CMSG_SPACE((WELCOME_DESCRIPTORS * size_of::<RawFd>()) as u32) as usize }
}

/// Sends bytes with descriptors in one message; all bytes, or an error.
///
/// # Errors
/// If the socket takes no more now, or the peer is gone.
pub fn send_with(socket: &impl AsRawFd, bytes: &[u8], descriptors: &[&OwnedFd]) -> io::Result<()> {
    assert!(descriptors.is_empty() || descriptors.len() == WELCOME_DESCRIPTORS, "a welcome's");
    let mut control = ControlSpace([0; 64]);
    let mut part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    // SAFETY: all zeros is a valid value of this plain struct.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    if !descriptors.is_empty() {
        assert!(control_len() <= control.0.len());
        message.msg_control = control.0.as_mut_ptr().cast();
        message.msg_controllen = control_len() as _;
        // SAFETY: the control space is large enough for one header and its descriptors, aligned, and zero.
        unsafe {
            let header = libc::CMSG_FIRSTHDR(&raw const message);
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_RIGHTS;
            (*header).cmsg_len = libc::CMSG_LEN((WELCOME_DESCRIPTORS * size_of::<RawFd>()) as u32) as _;
            let data = libc::CMSG_DATA(header).cast::<RawFd>();
            for (at, descriptor) in descriptors.iter().enumerate() {
                data.add(at).write_unaligned(descriptor.as_raw_fd());
            }
        }
    }
    // SAFETY: everything the message points to lives over the call.
    let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL) };
    if sent < 0 {
        return Err(Error::last_os_error());
    }
    if sent as usize == bytes.len() { Ok(()) } else { Err(Error::from(io::ErrorKind::WriteZero)) }
}

/// Receives up to `bytes.len()` bytes and descriptors. 0 bytes: the peer has closed.
///
/// # Errors
/// Of the socket.
pub fn receive_with(socket: &impl AsRawFd, bytes: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut control = ControlSpace([0; 64]);
    let mut part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    // SAFETY: all zeros is a valid value of this plain struct.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = control_len() as _;
    // SAFETY: everything the message points to lives over the call.
    let received = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, libc::MSG_CMSG_CLOEXEC) };
    if received < 0 {
        return Err(Error::last_os_error());
    }
    let mut descriptors = Vec::new();
    // SAFETY: the kernel filled the control space and its length; headers are walked as it says. Descriptors that come
    // with a message are new and nobody else's.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(&raw const message);
        while !header.is_null() {
            if (*header).cmsg_level == libc::SOL_SOCKET && (*header).cmsg_type == libc::SCM_RIGHTS {
                let len = (*header).cmsg_len as usize - libc::CMSG_LEN(0) as usize;
                let data = libc::CMSG_DATA(header).cast::<RawFd>();
                for at in 0..len / size_of::<RawFd>() {
                    descriptors.push(OwnedFd::from_raw_fd(data.add(at).read_unaligned()));
                }
            }
            header = libc::CMSG_NXTHDR(&raw const message, header);
        }
    }
    Ok((received as usize, descriptors))
}

/// Waits until the doorbell rings or something happens on the socket, at most `patience`.
pub fn wait_for(doorbell: &OwnedFd, socket: &impl AsRawFd, patience: Duration) {
    let entry = |fd| libc::pollfd { fd, events: libc::POLLIN | libc::POLLRDHUP, revents: 0 };
    let mut polls = [entry(doorbell.as_raw_fd()), entry(socket.as_raw_fd())];
    // SAFETY: two entries that live over the call.
    unsafe { libc::poll(polls.as_mut_ptr(), 2, patience.as_millis() as libc::c_int) };
}

/// Whether the peer of a socket has gone; waits at most `patience` for that.
pub fn has_peer_gone(socket: &impl AsRawFd, patience: Duration) -> bool {
    let mut poll =
        libc::pollfd { fd: socket.as_raw_fd(), events: libc::POLLIN | libc::POLLRDHUP, revents: 0 };
    // SAFETY: one entry that lives over the call.
    let ready = unsafe { libc::poll(&raw mut poll, 1, patience.as_millis() as libc::c_int) };
    // A server sends nothing after its welcome: whatever there is to read is the end.
    ready > 0
}
