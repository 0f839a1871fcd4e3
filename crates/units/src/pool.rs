mod memory;

use crate::buffer::BufferMut;
use crate::prefetch::prefetch_pointer;
use crate::sync::{AtomicIsize, AtomicPtr, AtomicU32, Ordering};
pub(crate) use memory::{Home, Slab};
use memory::{allocate, deallocate, free_list};
use std::ptr::{self, NonNull};

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

/// Where slabs go back to: one lock-free stack per class. Anyone pushes; only the pool's owner takes, and takes the whole
/// stack at once, so there is no ABA problem. It outlives the pool if slabs are out: a stack that was closed takes no more, and
/// who brings back the last slab frees the place.
pub(crate) struct Returns {
    stacks: [AtomicPtr<Slab>; CLASSES],
    /// Slabs that were out when the pool went, less those that came back since; below zero while the pool still counts.
    missing: AtomicIsize,
    /// The model checker says so if the place is not freed.
    #[cfg(diecut_loom)]
    #[allow(dead_code, reason = "held for its Drop")]
    freed: loom::alloc::Track<()>,
}

/// In place of the first slab of a stack: its pool is gone.
const CLOSED: *mut Slab = ptr::without_provenance_mut(align_of::<Slab>());

/// Slabs of a class that are the pool's alone.
#[derive(Clone, Copy)]
struct FreeSlabs {
    first: *mut Slab,
    count: u32,
    /// The fewest there were since the pool last shrank: so many were not needed.
    unneeded: u32,
}

/// A pool of buffers for one owner (a shard). Buffers may travel to other threads and come back by themselves.
///
/// Bytes of a buffer that was used before are *not* cleared: whoever takes one fills all of it before anyone
/// else sees it ([`BufferPool::take_zeroed`] otherwise).
pub struct BufferPool {
    returns: NonNull<Returns>,
    free: [FreeSlabs; CLASSES],
    /// Slabs of this pool, wherever they are.
    slabs: isize,
    /// Bytes of them.
    size_bytes: usize,
    /// Free slabs of other sizes are given up before the pool grows beyond this.
    limit_bytes: usize,
}

// SAFETY: the free lists are owned by the pool alone; what is shared is atomic.
unsafe impl Send for BufferPool {}

impl BufferPool {
    /// An empty pool; it grows to the most that is in use at once, until it [shrinks](BufferPool::shrink).
    pub fn new() -> BufferPool {
        let returns = Box::new(Returns {
            stacks: std::array::from_fn(|_| AtomicPtr::new(ptr::null_mut())),
            missing: AtomicIsize::new(0),
            #[cfg(diecut_loom)]
            freed: loom::alloc::Track::new(()),
        });
        BufferPool {
            returns: NonNull::from(Box::leak(returns)),
            free: [FreeSlabs { first: ptr::null_mut(), count: 0, unneeded: 0 }; CLASSES],
            slabs: 0,
            size_bytes: 0,
            limit_bytes: usize::MAX,
        }
    }

    /// Memory that a buffer of `len` bytes takes up.
    #[inline]
    pub fn slab_bytes(len: usize) -> usize {
        if len > 1 << CLASS_MAX_LOG2 { len } else { len.next_power_of_two().max(1 << CLASS_MIN_LOG2) }
    }

    /// Bytes of slabs that the pool has, in use and free. Larger buffers than it keeps are not among them.
    pub fn size_bytes(&self) -> usize {
        self.size_bytes
    }

    /// From now on free slabs are given up before the pool grows beyond `limit_bytes`. Who takes buffers sees to it that no more are
    /// in use: a buffer is handed out in any case.
    pub fn set_limit(&mut self, limit_bytes: usize) {
        self.limit_bytes = limit_bytes;
    }

    /// Gives up half of the free slabs that were not needed since the last call, `slabs_max` at most, and says how many bytes that
    /// are. Called once in a while it brings an idle pool back to nothing, and leaves one at work what it works with.
    pub fn shrink(&mut self, slabs_max: u32) -> usize {
        let (before, mut left) = (self.size_bytes, slabs_max);
        for class in (0..CLASSES).rev() {
            self.gather(class);
            let surplus = self.free[class].unneeded.div_ceil(2).min(left);
            left -= surplus;
            self.give_up(class, surplus);
            self.free[class].unneeded = self.free[class].count;
        }
        before - self.size_bytes
    }

    /// Frees slabs of a free list.
    fn give_up(&mut self, class: usize, slabs: u32) {
        for _ in 0..slabs {
            let free = &mut self.free[class];
            let Some(slab) = NonNull::new(free.first) else { return };
            // SAFETY: slabs on the free list are alive and ours alone.
            unsafe {
                free.first = slab.as_ref().next.get();
                deallocate(slab);
            }
            free.count -= 1;
            self.slabs -= 1;
            self.size_bytes -= 1 << (class as u32 + CLASS_MIN_LOG2);
        }
    }

    /// A slab of a class whose free list is empty; slabs of other classes make room for it.
    #[cold]
    fn grow(&mut self, class: usize) -> NonNull<Slab> {
        let bytes = 1 << (class as u32 + CLASS_MIN_LOG2);
        for other in (0..CLASSES).rev() {
            let over = (self.size_bytes + bytes).saturating_sub(self.limit_bytes);
            if over == 0 {
                break;
            }
            if other != class {
                self.gather(other);
                let slabs = over.div_ceil(1 << (other as u32 + CLASS_MIN_LOG2));
                self.give_up(other, slabs.min(self.free[other].count as usize) as u32);
            }
        }
        self.slabs += 1;
        self.size_bytes += bytes;
        allocate(class as u8, bytes as u32, Home::Pool(self.returns))
    }

    /// A buffer of `len` bytes with unspecified (but initialized) content.
    ///
    /// # Panics
    /// If `len` is 4 GiB or more.
    pub fn take(&mut self, len: usize) -> BufferMut {
        if len > 1 << CLASS_MAX_LOG2 {
            let len = u32::try_from(len).expect("buffers are smaller than 4 GiB");
            return hand_out(allocate(CLASS_NONE, len, Home::Own), len);
        }
        // The next power of two, and no less than the smallest slab.
        let len_log2 = usize::BITS - len.saturating_sub(1).leading_zeros();
        let class = len_log2.saturating_sub(CLASS_MIN_LOG2) as usize;
        self.gather(class);
        let free = &mut self.free[class];
        let slab = match NonNull::new(free.first) {
            Some(slab) => {
                // SAFETY: slabs on the free list are alive and ours.
                let next = unsafe { slab.as_ref().next.get() };
                // Slabs that were out together come back together: the next one is wanted soon, and far away.
                prefetch_pointer(next);
                free.first = next;
                free.count -= 1;
                free.unneeded = free.unneeded.min(free.count);
                slab
            }
            None => self.grow(class),
        };
        hand_out(slab, len as u32)
    }

    /// Puts slabs that came back before those that were free: what was used last is used next, while it is in a cache.
    #[inline(always)]
    fn gather(&mut self, class: usize) {
        // SAFETY: the place lives as long as the pool.
        let stack = unsafe { &self.returns.as_ref().stacks[class] };
        if !stack.load(Ordering::Relaxed).is_null() {
            self.gather_returned(class);
        }
    }

    #[inline(never)]
    fn gather_returned(&mut self, class: usize) {
        // SAFETY: the place lives as long as the pool.
        let stack = unsafe { &self.returns.as_ref().stacks[class] };
        let free = &mut self.free[class];
        let first = stack.swap(ptr::null_mut(), Ordering::Acquire);
        let mut last = first;
        let mut count = 1;
        // SAFETY: slabs of the list are alive and ours.
        unsafe {
            loop {
                let next = (*last).next.get();
                if next.is_null() {
                    break;
                }
                last = next;
                count += 1;
            }
            (*last).next.set(free.first);
        }
        free.first = first;
        free.count += count;
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
}

impl Default for BufferPool {
    fn default() -> BufferPool {
        BufferPool::new()
    }
}

impl Drop for BufferPool {
    fn drop(&mut self) {
        // SAFETY: the place lives as long as the pool, and while slabs are out.
        let returns = unsafe { self.returns.as_ref() };
        let mut back = 0;
        for (free, stack) in self.free.iter().zip(&returns.stacks) {
            // SAFETY: the free list is the pool's alone, and so is what was in the stack.
            back += unsafe { free_list(free.first) + free_list(stack.swap(CLOSED, Ordering::Acquire)) };
        }
        let missing = self.slabs - back;
        if returns.missing.fetch_add(missing, Ordering::AcqRel) + missing == 0 {
            // SAFETY: no slab is out, so nobody knows the place any more.
            drop(unsafe { Box::from_raw(self.returns.as_ptr()) });
        }
    }
}

/// The first handle of a slab that has none.
fn hand_out(mut slab: NonNull<Slab>, len: u32) -> BufferMut {
    // SAFETY: the slab is the caller's alone until the handle below takes it over.
    let header = unsafe { slab.as_mut() };
    header.references = AtomicU32::new(1);
    assert!(len <= header.capacity);
    // SAFETY: one reference, length within capacity, bytes initialized by `allocate`.
    unsafe { BufferMut::from_slab(slab, len) }
}

/// Takes a slab whose last handle is gone to where it came from.
///
/// # Safety
/// Nobody else refers to the slab.
pub(crate) unsafe fn give_back(slab: NonNull<Slab>) {
    // SAFETY: ours alone, by the contract.
    match unsafe { &slab.as_ref().home } {
        // SAFETY: the slab is out, so the place is there.
        &Home::Pool(returns) => unsafe { push(slab, returns) },
        // SAFETY: allocated by `allocate`, ours alone.
        Home::Own => unsafe { deallocate(slab) },
        // SAFETY: foreign slabs are boxed headers made by `from_foreign`; the bytes belong to the owner in it.
        Home::Foreign(_) => drop(unsafe { Box::from_raw(slab.as_ptr()) }),
    }
}

/// # Safety
/// The slab is one of the pool's, and nobody else refers to it.
unsafe fn push(slab: NonNull<Slab>, returns: NonNull<Returns>) {
    // SAFETY: the slab is out until it is pushed or counted below.
    let place = unsafe { returns.as_ref() };
    // SAFETY: ours alone.
    let stack = &place.stacks[unsafe { slab.as_ref() }.class as usize];
    let mut head = stack.load(Ordering::Relaxed);
    while head != CLOSED {
        // SAFETY: still ours until the exchange below succeeds.
        unsafe { slab.as_ref().next.set(head) };
        match stack.compare_exchange_weak(head, slab.as_ptr(), Ordering::Release, Ordering::Relaxed) {
            // Whoever owns the pool may have freed the place by now.
            Ok(_) => return,
            Err(current) => head = current,
        }
    }
    // SAFETY: allocated by `allocate`, ours alone.
    unsafe { deallocate(slab) };
    if place.missing.fetch_sub(1, Ordering::AcqRel) == 1 {
        // SAFETY: the pool is gone, and this was the last slab.
        drop(unsafe { Box::from_raw(returns.as_ptr()) });
    }
}

#[cfg(all(test, diecut_loom))]
mod interleavings;

#[cfg(all(test, not(diecut_loom)))]
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

    /// A pool goes while its buffers come back from other threads: before, beside and after it, and none twice.
    #[test]
    fn a_pool_may_go_while_buffers_come_back() {
        for round in 0..200 {
            let mut pool = BufferPool::new();
            let buffers: Vec<_> = (0..24).map(|number| pool.take(100 << (number % 3 * 4)).freeze()).collect();
            let shared: Vec<_> = buffers.iter().map(|buffer| buffer.slice(1..)).collect();
            let start = std::sync::Barrier::new(3);
            std::thread::scope(|scope| {
                for held in [buffers, shared] {
                    scope.spawn(|| {
                        start.wait();
                        drop(held);
                    });
                }
                start.wait();
                (0..round % 20).for_each(|_| drop(pool.take(100)));
                drop(pool);
            });
        }
    }

    /// Goal: memory goes back when it is not needed, and what is at work stays. Method: a crowd of buffers comes and goes; then one at a
    /// time is in use while the pool shrinks.
    #[test]
    fn a_pool_gives_back_what_it_does_not_need() {
        let mut pool = BufferPool::new();
        let crowd: Vec<_> = (0..1000).map(|number| pool.take(4096 << (number % 3))).collect();
        let most = pool.size_bytes();
        assert_eq!(most, crowd.iter().map(|one| BufferPool::slab_bytes(one.len())).sum::<usize>());
        drop(crowd);
        let mut given_up = 0;
        for _ in 0..40 {
            drop(pool.take(4096));
            given_up += pool.shrink(64);
        }
        assert_eq!((pool.size_bytes(), given_up), (4096, most - 4096));
    }

    /// Goal: sizes that came into fashion do not add up with those that went out of it. Method: a limit, and one size after the other
    /// up to it.
    #[test]
    fn free_slabs_make_room_for_other_sizes() {
        let mut pool = BufferPool::new();
        pool.set_limit(1 << 20);
        for size in [256, 4096, 64 << 10, 1 << 20, 8192] {
            let crowd: Vec<_> = (0..(1 << 20) / size).map(|_| pool.take(size)).collect();
            assert_eq!(pool.size_bytes(), 1 << 20, "at {size}");
            drop(crowd);
        }
    }

    #[test]
    fn sizes_beyond_the_largest_class_work() {
        let mut pool = BufferPool::new();
        let buffer = pool.take_zeroed(5 << 20);
        assert_eq!(buffer.len(), 5 << 20);
        assert!(pool.take(0).is_empty());
    }
}
