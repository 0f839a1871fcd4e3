use crate::buffer::{BufferMut, Home, Slab};
use crate::prefetch::prefetch_pointer;
use std::alloc::Layout;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

/// Smallest slab: 256 bytes (an OOB area or a header).
const CLASS_MIN_LOG2: u32 = 8;
/// Largest pooled slab: 2 MiB. Larger requests are allocated and freed on the spot.
const CLASS_MAX_LOG2: u32 = 21;
const CLASSES: usize = (CLASS_MAX_LOG2 - CLASS_MIN_LOG2 + 1) as usize;
/// Marks a slab that no class keeps.
const CLASS_NONE: u8 = u8::MAX;
/// Slabs are page aligned so that drives can transfer into them directly; small ones to a cache line.
const ALIGNMENT_LARGE_BYTES: usize = 4096;
const ALIGNMENT_SMALL_BYTES: usize = 64;

/// Slabs that came back, one lock-free stack per class. Anyone pushes; only the pool's owner takes, and takes
/// the whole stack at once, so there is no ABA problem.
pub(crate) struct PoolShared {
    returned: [AtomicPtr<Slab>; CLASSES],
}

/// A pool of buffers for one owner (a shard). Buffers may travel to other threads and come back by themselves.
///
/// Bytes of a buffer that was used before are *not* cleared: whoever takes one fills all of it before anyone
/// else sees it ([`BufferPool::take_zeroed`] otherwise).
pub struct BufferPool {
    shared: Arc<PoolShared>,
    free: [*mut Slab; CLASSES],
}

// SAFETY: the free lists are owned by the pool alone; what is shared is atomic.
unsafe impl Send for BufferPool {}

impl BufferPool {
    /// An empty pool; it grows to the most that was ever in use at once.
    pub fn new() -> BufferPool {
        BufferPool {
            shared: Arc::new(PoolShared { returned: [const { AtomicPtr::new(ptr::null_mut()) }; CLASSES] }),
            free: [ptr::null_mut(); CLASSES],
        }
    }

    /// A buffer of `len` bytes with unspecified (but initialized) content.
    ///
    /// # Panics
    /// If `len` is 4 GiB or more.
    pub fn take(&mut self, len: usize) -> BufferMut {
        let len32 = u32::try_from(len).expect("buffers are smaller than 4 GiB");
        let log2 = usize::BITS - len.max(1).saturating_sub(1).leading_zeros();
        let log2 = log2.max(CLASS_MIN_LOG2);
        if log2 > CLASS_MAX_LOG2 {
            return self.adopt(allocate(CLASS_NONE, len32), len32);
        }
        let class = (log2 - CLASS_MIN_LOG2) as usize;
        if self.free[class].is_null() {
            self.free[class] = self.shared.returned[class].swap(ptr::null_mut(), Ordering::Acquire);
        }
        let slab = match NonNull::new(self.free[class]) {
            Some(slab) => {
                // SAFETY: slabs on the free list are alive and ours.
                let next = unsafe { slab.as_ref() }.next;
                // Slabs that were out together come back together: the next one is wanted soon, and far away.
                prefetch_pointer(next);
                self.free[class] = next;
                slab
            }
            None => allocate(class as u8, 1 << log2),
        };
        self.adopt(slab, len32)
    }

    /// A buffer of `len` zeros.
    ///
    /// # Panics
    /// If `len` is 4 GiB or more.
    pub fn take_zeroed(&mut self, len: usize) -> BufferMut {
        let mut buffer = self.take(len);
        buffer.fill(0);
        buffer
    }

    /// A buffer with a copy of `bytes`.
    ///
    /// # Panics
    /// If there are 4 GiB or more.
    pub fn copy_of(&mut self, bytes: &[u8]) -> BufferMut {
        let mut buffer = self.take(bytes.len());
        buffer.copy_from_slice(bytes);
        buffer
    }

    fn adopt(&mut self, mut slab: NonNull<Slab>, len: u32) -> BufferMut {
        // SAFETY: the slab is ours alone until the handle below takes it over.
        unsafe {
            let slab = slab.as_mut();
            slab.next = ptr::null_mut();
            slab.references = AtomicU32::new(1);
            slab.home = Home::Pool(Some(Arc::clone(&self.shared)));
            assert!(len <= slab.capacity);
        }
        // SAFETY: one reference, length within capacity, bytes initialized by `allocate`.
        unsafe { BufferMut::from_slab(slab, len) }
    }
}

impl Default for BufferPool {
    fn default() -> BufferPool {
        BufferPool::new()
    }
}

impl Drop for BufferPool {
    fn drop(&mut self) {
        for list in &mut self.free {
            // SAFETY: the free list is ours alone.
            unsafe { free_list(std::mem::replace(list, ptr::null_mut())) };
        }
    }
}

impl PoolShared {
    /// Takes a slab whose last handle is gone.
    ///
    /// # Safety
    /// Nobody else refers to the slab.
    pub(crate) unsafe fn take_back(mut slab: NonNull<Slab>) {
        // SAFETY: ours alone, by the contract.
        let (home, class) = unsafe {
            let slab = slab.as_mut();
            (std::mem::replace(&mut slab.home, Home::Pool(None)), slab.class)
        };
        match home {
            Home::Foreign(owner) => {
                // SAFETY: foreign slabs are boxed headers made by `from_foreign`; the bytes belong to `owner`.
                drop(unsafe { Box::from_raw(slab.as_ptr()) });
                drop(owner);
            }
            Home::Pool(Some(shared)) if class != CLASS_NONE => {
                let stack = &shared.returned[class as usize];
                let mut head = stack.load(Ordering::Relaxed);
                loop {
                    // SAFETY: still ours until the exchange below succeeds.
                    unsafe { slab.as_mut() }.next = head;
                    match stack.compare_exchange_weak(
                        head,
                        slab.as_ptr(),
                        Ordering::Release,
                        Ordering::Relaxed,
                    ) {
                        Ok(_) => break,
                        Err(current) => head = current,
                    }
                }
            }
            Home::Pool(_) => {
                // SAFETY: allocated by `allocate`, ours alone.
                unsafe { deallocate(slab) };
            }
        }
    }
}

impl Drop for PoolShared {
    fn drop(&mut self) {
        for stack in &mut self.returned {
            // SAFETY: the last owner of the pool is gone, so the stack is ours alone.
            unsafe { free_list(*stack.get_mut()) };
        }
    }
}

fn layout(class: u8, capacity: u32) -> Layout {
    let alignment = if class != CLASS_NONE && capacity < ALIGNMENT_LARGE_BYTES as u32 {
        ALIGNMENT_SMALL_BYTES
    } else {
        ALIGNMENT_LARGE_BYTES
    };
    Layout::from_size_align(capacity.max(1) as usize, alignment).expect("capacity fits")
}

fn allocate(class: u8, capacity: u32) -> NonNull<Slab> {
    let layout = layout(class, capacity);
    // SAFETY: the layout has a size above zero.
    let bytes = unsafe { std::alloc::alloc_zeroed(layout) };
    let Some(bytes) = NonNull::new(bytes) else { std::alloc::handle_alloc_error(layout) };
    let slab = Slab {
        references: AtomicU32::new(0),
        class,
        capacity,
        bytes,
        next: ptr::null_mut(),
        home: Home::Pool(None),
    };
    NonNull::from(Box::leak(Box::new(slab)))
}

/// # Safety
/// The slab came from `allocate` and nobody refers to it.
unsafe fn deallocate(slab: NonNull<Slab>) {
    // SAFETY: by the contract.
    let slab = unsafe { Box::from_raw(slab.as_ptr()) };
    // SAFETY: allocated with the same layout.
    unsafe { std::alloc::dealloc(slab.bytes.as_ptr(), layout(slab.class, slab.capacity)) };
}

/// # Safety
/// The list is ours alone and holds slabs from `allocate`.
unsafe fn free_list(mut head: *mut Slab) {
    while let Some(slab) = NonNull::new(head) {
        // SAFETY: by the contract.
        unsafe {
            head = slab.as_ref().next;
            deallocate(slab);
        }
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn a_buffer_comes_back_to_its_pool() {
        let mut pool = BufferPool::new();
        let first = pool.take(4096);
        let place = first.as_ptr();
        assert!((place as usize).is_multiple_of(4096), "drives transfer into page-aligned memory");
        drop(first.freeze().slice(0..10));
        assert_eq!(pool.take(3000).as_ptr(), place, "the same class hands out the returned slab");
    }

    #[test]
    fn a_buffer_may_outlive_its_pool_and_die_on_another_thread() {
        let mut pool = BufferPool::new();
        let mut buffer = pool.take(100);
        buffer.fill(7);
        let buffer = buffer.freeze();
        drop(pool);
        std::thread::scope(|scope| {
            scope.spawn(move || assert!(buffer.iter().all(|&byte| byte == 7)));
        });
    }

    #[test]
    fn sizes_beyond_the_largest_class_work() {
        let mut pool = BufferPool::new();
        let buffer = pool.take_zeroed(5 << 20);
        assert_eq!(buffer.len(), 5 << 20);
        assert!(pool.take(0).is_empty());
    }
}
