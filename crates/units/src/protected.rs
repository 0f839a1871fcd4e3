use crate::BufferMut;
use crate::huge_pages::prefer_huge_pages_at;
use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;
use std::sync::atomic::{Ordering, compiler_fence};
use std::sync::{Arc, Mutex};

/// Memory that survives a power cut (capacitors on a drive) and, where the medium is shared with a file, the
/// death of the process.
///
/// Stores become durable in program order at the latest when a later [`ProtectedRegion::publish`] is durable;
/// a process may die between any two stores, so a record becomes true by one published word.
pub struct ProtectedMemory {
    inner: Arc<Inner>,
}

struct Inner {
    bytes: NonNull<u8>,
    size_bytes: usize,
    /// Ranges that are handed out; two holders of one byte would break the writer rule.
    live: Mutex<Vec<Range<usize>>>,
    #[allow(dead_code, reason = "held for its Drop: unmaps or frees the bytes")]
    owner: Box<dyn Send + Sync>,
}

// SAFETY: bytes are only touched through regions, which are disjoint.
unsafe impl Send for Inner {}
// SAFETY: same; the list is behind a mutex (cold path).
unsafe impl Sync for Inner {}

/// One holder's part of protected memory.
pub struct ProtectedRegion {
    inner: Arc<Inner>,
    range: Range<usize>,
}

impl ProtectedMemory {
    /// Wraps a mapping.
    ///
    /// # Safety
    /// `bytes..bytes + size_bytes` is readable, writable and initialized, and touched only through the
    /// returned value while `owner` lives.
    pub unsafe fn from_raw(
        bytes: NonNull<u8>,
        size_bytes: usize,
        owner: Box<dyn Send + Sync>,
    ) -> ProtectedMemory {
        ProtectedMemory { inner: Arc::new(Inner { bytes, size_bytes, live: Mutex::new(Vec::new()), owner }) }
    }

    /// Plain memory that stands for protected memory: it survives as long as a clone of this handle does, which
    /// is how a simulated power cut keeps it.
    pub fn in_memory(size_bytes: usize) -> ProtectedMemory {
        // Page aligned, as a mapping would be.
        let layout = std::alloc::Layout::from_size_align(size_bytes.max(1), 4096).expect("size fits");
        // SAFETY: the layout has a size above zero.
        let bytes = unsafe { std::alloc::alloc(layout) };
        let Some(bytes) = NonNull::new(bytes) else { std::alloc::handle_alloc_error(layout) };
        // Every write is staged here. Zeroed memory of the allocator would be touched, on small pages, before the advice.
        // SAFETY: just allocated with this size.
        unsafe {
            prefer_huge_pages_at(bytes.as_ptr(), layout.size());
            bytes.write_bytes(0, layout.size());
        }
        struct Owner(usize, std::alloc::Layout);
        impl Drop for Owner {
            fn drop(&mut self) {
                // SAFETY: allocated above with this layout, freed once.
                unsafe { std::alloc::dealloc(self.0 as *mut u8, self.1) };
            }
        }
        // SAFETY: fresh memory that only the returned value knows.
        unsafe {
            ProtectedMemory::from_raw(bytes, size_bytes, Box::new(Owner(bytes.as_ptr() as usize, layout)))
        }
    }

    /// A copy of all bytes, whoever holds them: for tests that look for what should be gone. Nobody writes meanwhile.
    pub fn snapshot(&self) -> Vec<u8> {
        let mut copy = vec![0; self.inner.size_bytes];
        // SAFETY: the bytes are readable and initialized while `inner` lives, and `copy` is as long and apart from them.
        unsafe { std::ptr::copy_nonoverlapping(self.inner.bytes.as_ptr(), copy.as_mut_ptr(), copy.len()) };
        copy
    }

    /// Size in bytes.
    pub fn size_bytes(&self) -> usize {
        self.inner.size_bytes
    }

    /// Takes a range for one holder.
    ///
    /// # Panics
    /// If the range is outside or overlaps one that is still held: the layout of regions is our own.
    pub fn region(&self, range: Range<usize>) -> ProtectedRegion {
        assert!(
            range.start <= range.end && range.end <= self.inner.size_bytes,
            "{range:?} is outside of {} bytes of protected memory",
            self.inner.size_bytes
        );
        let mut live = self.inner.live.lock().expect("no holder panics while listed");
        let is_free = live.iter().all(|held| held.end <= range.start || range.end <= held.start);
        live.extend(is_free.then(|| range.clone()));
        drop(live);
        // Without the lock: a shard that fails here takes no other one along.
        assert!(is_free, "{range:?} of protected memory is held already");
        ProtectedRegion { inner: Arc::clone(&self.inner), range }
    }
}

impl Clone for ProtectedMemory {
    fn clone(&self) -> ProtectedMemory {
        ProtectedMemory { inner: Arc::clone(&self.inner) }
    }
}

impl ProtectedRegion {
    /// Stores one little-endian word after everything stored before it: the point where a record becomes true.
    ///
    /// # Panics
    /// If the word is outside or not aligned to 8 bytes.
    pub fn publish(&mut self, offset: usize, word: u64) {
        assert!(offset.is_multiple_of(8) && offset + 8 <= self.len(), "word at {offset} of {}", self.len());
        // A process that dies leaves its stores in the mapping in the order the processor made them (x86 keeps
        // store order; the atomic orders them elsewhere). What could still reorder is the compiler.
        compiler_fence(Ordering::SeqCst);
        let place = self[offset..].as_mut_ptr().cast::<u64>();
        assert!(place.is_aligned(), "regions start at multiples of 8");
        // SAFETY: aligned, inside the region, exclusively ours.
        let atomic = unsafe { std::sync::atomic::AtomicU64::from_ptr(place) };
        atomic.store(word.to_le(), Ordering::Release);
        compiler_fence(Ordering::SeqCst);
    }

    /// Splits off the first `len` bytes as a region of their own: parts of one buffer come back only together, regions
    /// each for itself.
    ///
    /// # Panics
    /// If there are fewer.
    pub fn split_to(&mut self, len: usize) -> ProtectedRegion {
        assert!(len <= self.range.len(), "split at {len} of {}", self.range.len());
        let whole = self.range.clone();
        let front = whole.start..whole.start + len;
        let back = front.end..whole.end;
        let mut live = self.inner.live.lock().expect("no holder panics while listed");
        live.retain(|held| *held != whole);
        live.push(front.clone());
        live.push(back.clone());
        drop(live);
        self.range = back;
        ProtectedRegion { inner: Arc::clone(&self.inner), range: front }
    }

    /// Turns the region into one writable buffer, to be split and lent like any other, so that a payload can
    /// be programmed straight from protected memory. The range is free again when the last handle is gone.
    ///
    /// # Panics
    /// If the region has 4 GiB or more.
    pub fn into_buffer(self) -> BufferMut {
        let len = u32::try_from(self.len()).expect("buffers are smaller than 4 GiB");
        // SAFETY: `range` lies inside the mapping.
        let bytes = unsafe { self.inner.bytes.add(self.range.start) };
        // SAFETY: the region is the only holder of its range, and it moves into the handle as its owner.
        unsafe { BufferMut::from_foreign(bytes, len, Box::new(self)) }
    }
}

impl Deref for ProtectedRegion {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: inside the mapping, and this region is its only holder.
        unsafe {
            std::slice::from_raw_parts(self.inner.bytes.as_ptr().add(self.range.start), self.range.len())
        }
    }
}

impl DerefMut for ProtectedRegion {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: inside the mapping, and this region is its only holder.
        unsafe {
            std::slice::from_raw_parts_mut(self.inner.bytes.as_ptr().add(self.range.start), self.range.len())
        }
    }
}

impl Drop for ProtectedRegion {
    fn drop(&mut self) {
        // A poisoned list means a panic is under way already; do not turn it into an abort.
        if let Ok(mut live) = self.inner.live.lock() {
            live.retain(|held| *held != self.range);
        }
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn content_outlives_its_holder() {
        let memory = ProtectedMemory::in_memory(8192);
        let mut region = memory.region(4096..8192);
        region[8..11].copy_from_slice(b"abc");
        region.publish(0, 42);
        drop(region);
        let region = memory.region(4096..8192);
        assert_eq!(&region[8..11], b"abc");
        assert_eq!(region[0], 42);
        let mut buffer = region.into_buffer();
        let mut front = buffer.split_to(8);
        front[0] = 43;
        drop((front, buffer));
        assert_eq!(memory.region(4096..8192)[0], 43);
    }

    #[test]
    fn a_region_is_split_into_regions() {
        let memory = ProtectedMemory::in_memory(64);
        let mut back = memory.region(0..64);
        let front = back.split_to(16);
        assert_eq!((front.len(), back.len()), (16, 48));
        drop(front);
        drop(memory.region(0..16));
        drop(back);
        drop(memory.region(0..64));
    }

    #[test]
    #[should_panic(expected = "held already")]
    fn two_holders_of_one_byte_are_refused() {
        let memory = ProtectedMemory::in_memory(64);
        let _first = memory.region(0..16);
        let _second = memory.region(8..24);
    }
}
