//! Memory mappings: anonymous, or shared with a file so that they outlive the process.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::Arc;

/// A mapping, unmapped when its last handle is dropped.
///
/// Parts of a divided device share one mapping and touch disjoint places of it, so nothing here makes a reference to more
/// than what is asked for.
pub(crate) struct Mapping {
    bytes: NonNull<u8>,
    size_bytes: usize,
    owner: Arc<Owner>,
}

struct Owner {
    bytes: NonNull<u8>,
    size_bytes: usize,
}

// SAFETY: an address; the memory behind it is touched through mappings only.
unsafe impl Send for Owner {}
// SAFETY: same.
unsafe impl Sync for Owner {}
// SAFETY: plain memory; handles of one mapping touch disjoint places (see `share`).
unsafe impl Send for Mapping {}
// SAFETY: `&Mapping` only reads.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Zeroed memory that costs nothing until touched.
    pub(crate) fn anonymous(size_bytes: usize) -> io::Result<Mapping> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: an anonymous mapping at an address of the kernel's choice.
        let mapping = unsafe { Mapping::map(size_bytes, flags, -1, 0) }?;
        // Random reads of a large device miss the TLB on every access otherwise. Advice may be refused.
        // SAFETY: the range is ours.
        unsafe { libc::madvise(mapping.bytes.as_ptr().cast(), mapping.size_bytes, libc::MADV_HUGEPAGE) };
        Ok(mapping)
    }

    /// A part of a file, shared: what is stored survives the death of the process.
    ///
    /// # Safety
    /// Nobody else maps or writes this part of the file, and the file is at least that long, while the mapping
    /// lives.
    pub(crate) unsafe fn shared(file: &File, offset: u64, size_bytes: usize) -> io::Result<Mapping> {
        // SAFETY: by the contract.
        unsafe { Mapping::map(size_bytes, libc::MAP_SHARED, file.as_raw_fd(), offset) }
    }

    /// # Safety
    /// `flags`, `descriptor` and `offset` describe a mapping that nobody else writes.
    unsafe fn map(
        size_bytes: usize,
        flags: libc::c_int,
        descriptor: libc::c_int,
        offset: u64,
    ) -> io::Result<Mapping> {
        let size_bytes = size_bytes.max(1);
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let offset = libc::off_t::try_from(offset).map_err(io::Error::other)?;
        // SAFETY: the kernel chooses the address; the rest is the caller's contract.
        let place =
            unsafe { libc::mmap(std::ptr::null_mut(), size_bytes, protection, flags, descriptor, offset) };
        if place == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let bytes = NonNull::new(place.cast()).ok_or_else(|| io::Error::other("mapped at address zero"))?;
        Ok(Mapping { bytes, size_bytes, owner: Arc::new(Owner { bytes, size_bytes }) })
    }

    /// Another handle of the same memory.
    ///
    /// # Safety
    /// What one handle writes, no other handle touches while both live, unless the one was handed over between threads
    /// in between.
    pub(crate) unsafe fn share(&self) -> Mapping {
        Mapping { bytes: self.bytes, size_bytes: self.size_bytes, owner: Arc::clone(&self.owner) }
    }

    #[inline]
    pub(crate) fn bytes(&self, place: usize, len: usize) -> &[u8] {
        assert!(place <= self.size_bytes && len <= self.size_bytes - place, "inside of the mapping");
        // SAFETY: mapped, initialized (zeros or file content), and written only through `bytes_mut` of a handle that
        // this place is left to.
        unsafe { std::slice::from_raw_parts(self.bytes.as_ptr().add(place), len) }
    }

    #[inline]
    pub(crate) fn bytes_mut(&mut self, place: usize, len: usize) -> &mut [u8] {
        assert!(place <= self.size_bytes && len <= self.size_bytes - place, "inside of the mapping");
        // SAFETY: mapped, initialized, and borrowed from the only handle that this place is left to.
        unsafe { std::slice::from_raw_parts_mut(self.bytes.as_ptr().add(place), len) }
    }

    /// Stores bytes past the caches (see [`copy_past_caches`]).
    #[inline]
    pub(crate) fn store(&mut self, place: usize, bytes: &[u8]) {
        copy_past_caches(bytes, self.bytes_mut(place, bytes.len()));
    }

    /// Copies within the mapping, past the caches; the places do not overlap.
    #[inline]
    pub(crate) fn copy(&mut self, from: usize, to: usize, len: usize) {
        assert!(from.abs_diff(to) >= len, "places of a copy do not overlap");
        let destination: *mut [u8] = self.bytes_mut(to, len);
        // SAFETY: both places are inside, and apart, so the one reference to write does not touch what is read.
        copy_past_caches(self.bytes(from, len), unsafe { &mut *destination });
    }

    /// Asks the processor for cache lines from `place` on that will be read soon. Only advice.
    #[inline]
    pub(crate) fn prefetch(&self, place: usize, lines: usize) {
        assert!(place < self.size_bytes, "a place in the mapping");
        #[cfg(target_arch = "x86_64")]
        for line in 0..lines {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            let address = self.bytes.as_ptr().wrapping_add(place + line * 64);
            // SAFETY: a prefetch reads nothing, whatever the address.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = lines;
    }

    /// Has the kernel map pages for what will be stored there, which it does at the first store to each of them otherwise. Only
    /// advice: it may be refused, and what is there stays.
    pub(crate) fn touch(&self, place: usize, len: usize) {
        assert!(place <= self.size_bytes && len <= self.size_bytes - place, "inside of the mapping");
        // SAFETY: inside of what is mapped; it changes no content.
        unsafe { libc::madvise(self.bytes.as_ptr().add(place).cast(), len, libc::MADV_POPULATE_WRITE) };
    }

    /// Where it starts, for an owner that hands the memory on.
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.bytes
    }
}

/// A cache line: a buffer that gathers stores past the caches is one.
#[cfg(target_arch = "x86_64")]
const LINE: usize = 64;
/// Bytes that are copied past the caches in one go: several lines, so that a loop costs little beside the copy.
#[cfg(target_arch = "x86_64")]
const STREAMED: usize = 4 * LINE;

/// Stores past the caches with vectors of 16 bytes, which every processor of this architecture has.
///
/// # Safety
/// The destination is aligned to lines.
#[cfg(target_arch = "x86_64")]
unsafe fn stream(source: &[[u8; STREAMED]], destination: &mut [[u8; STREAMED]]) {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_stream_si128};
    for (to, from) in destination.iter_mut().zip(source) {
        let (to, from) = (to.as_mut_ptr().cast::<__m128i>(), from.as_ptr().cast::<__m128i>());
        for vector in 0..STREAMED / size_of::<__m128i>() {
            // SAFETY: within the two pieces, of which the one that is written is ours and aligned.
            unsafe { _mm_stream_si128(to.add(vector), _mm_loadu_si128(from.add(vector))) };
        }
    }
}

/// Stores past the caches with vectors of 32 bytes: half as many instructions.
///
/// # Safety
/// The processor has AVX, and the destination is aligned to lines.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx")]
unsafe fn stream_wide(source: &[[u8; STREAMED]], destination: &mut [[u8; STREAMED]]) {
    use std::arch::x86_64::{__m256i, _mm256_loadu_si256, _mm256_stream_si256};
    for (to, from) in destination.iter_mut().zip(source) {
        let (to, from) = (to.as_mut_ptr().cast::<__m256i>(), from.as_ptr().cast::<__m256i>());
        for vector in 0..STREAMED / size_of::<__m256i>() {
            // SAFETY: within the two pieces, of which the one that is written is ours and aligned.
            unsafe { _mm256_stream_si256(to.add(vector), _mm256_loadu_si256(from.add(vector))) };
        }
    }
}

/// Copies to where nobody will look soon. Content is programmed once and rarely read while it is still in a cache, and a cache
/// would fetch each line from memory only to have all of it overwritten, which takes half as long again as the copy.
///
/// # Panics
/// If the lengths differ.
#[inline]
fn copy_past_caches(source: &[u8], destination: &mut [u8]) {
    assert_eq!(source.len(), destination.len(), "a copy is as long as its source");
    #[cfg(target_arch = "x86_64")]
    {
        let front = destination.as_ptr().align_offset(LINE).min(destination.len());
        let (destination_front, destination) = destination.split_at_mut(front);
        let (source_front, source) = source.split_at(front);
        destination_front.copy_from_slice(source_front);
        let (destination, destination_back) = destination.as_chunks_mut::<STREAMED>();
        let (source, source_back) = source.as_chunks::<STREAMED>();
        if std::arch::is_x86_feature_detected!("avx") {
            // SAFETY: the processor has the instructions, and what is written is aligned to lines.
            unsafe { stream_wide(source, destination) };
        } else {
            // SAFETY: what is written is aligned to lines.
            unsafe { stream(source, destination) };
        }
        destination_back.copy_from_slice(source_back);
        // Stores past the caches are not ordered with others: whoever learns of this copy by those finds it whole.
        // SAFETY: every processor of this architecture has it.
        unsafe { std::arch::x86_64::_mm_sfence() };
    }
    #[cfg(not(target_arch = "x86_64"))]
    destination.copy_from_slice(source);
}

impl Drop for Owner {
    fn drop(&mut self) {
        // SAFETY: mapped by us with this size, unmapped once.
        unsafe { libc::munmap(self.bytes.as_ptr().cast(), self.size_bytes) };
    }
}

/// What is said when the process dies of a bus error; written once.
static BUS_ERROR_TEXT: std::sync::OnceLock<Vec<u8>> = std::sync::OnceLock::new();

/// A last resort: if a store through the mapping of this file finds no room (a file system that takes back what it
/// allocated, as those that copy on write may, or a disk that fails), the process says so before it dies of SIGBUS. Only the first
/// file is named.
pub fn tell_of_bus_errors(path: &std::path::Path) {
    let text = format!(
        "diecut: bus error (SIGBUS): the file system could not store or read a part of {}. It is full, or its disk fails. \
         Make room there and start again; what was acknowledged is in the file.\n",
        path.display()
    );
    if BUS_ERROR_TEXT.set(text.into_bytes()).is_err() {
        return;
    }
    extern "C" fn tell(signal: libc::c_int) {
        if let Some(text) = BUS_ERROR_TEXT.get() {
            // SAFETY: write and signal may be called by a handler; the text was made before this handler was set.
            unsafe { libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.len()) };
        }
        // SAFETY: as above. What faulted is repeated after the return, and ends the process as if there were no handler.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    // SAFETY: a handler that calls only what handlers may.
    unsafe { libc::signal(libc::SIGBUS, tell as extern "C" fn(libc::c_int) as libc::sighandler_t) };
}

#[cfg(test)]
mod test {
    use super::*;

    /// Whatever the places and lengths are: vectors, and what lies before and behind them.
    #[test]
    fn copies_past_the_caches_are_whole() {
        let source: Vec<u8> = (0..900u32).map(|byte| (byte * 7 + 1) as u8).collect();
        for from in [0, 1, 5, 16] {
            for to in 0..17 {
                for len in [0, 1, 15, 16, 17, 31, 64, 200, 320, 600, 850] {
                    let mut destination = vec![0; 900];
                    copy_past_caches(&source[from..from + len], &mut destination[to..to + len]);
                    assert_eq!(destination[to..to + len], source[from..from + len], "{from} to {to}: {len}");
                    let around = destination[..to].iter().chain(&destination[to + len..]);
                    assert!(around.copied().all(|byte| byte == 0), "{from} to {to}: {len}");
                }
            }
        }
    }

    /// Goal: processors without wide vectors copy as well. Method: both ways copy the same pieces to aligned places.
    #[cfg(target_arch = "x86_64")]
    #[test]
    fn narrow_vectors_copy_the_same() {
        #[repr(align(64))]
        struct Aligned([[u8; STREAMED]; 3]);
        let source: Vec<u8> = (0..3 * STREAMED + 1).map(|byte| (byte * 7 + 1) as u8).collect();
        let (pieces, _) = source[1..].as_chunks::<STREAMED>();
        let (mut narrow, mut wide) = (Aligned([[0; STREAMED]; 3]), Aligned([[0; STREAMED]; 3]));
        // SAFETY: the destination is aligned.
        unsafe { stream(pieces, &mut narrow.0) };
        assert_eq!(narrow.0, pieces);
        if std::arch::is_x86_feature_detected!("avx") {
            // SAFETY: asked just now, and aligned.
            unsafe { stream_wide(pieces, &mut wide.0) };
            assert_eq!(wide.0, pieces);
        }
    }
}
