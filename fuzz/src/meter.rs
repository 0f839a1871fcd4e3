//! How much memory a piece of code takes at most.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

struct Meter;

static LIVE_BYTES: AtomicUsize = AtomicUsize::new(0);
static PEAK_BYTES: AtomicUsize = AtomicUsize::new(0);

#[global_allocator]
static METER: Meter = Meter;

impl Meter {
    fn add(&self, bytes: usize) {
        let live = LIVE_BYTES.fetch_add(bytes, Relaxed) + bytes;
        PEAK_BYTES.fetch_max(live, Relaxed);
    }
}

// SAFETY: every call goes to the system allocator as it came; counting touches no memory of the caller.
unsafe impl GlobalAlloc for Meter {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        self.add(layout.size());
        // SAFETY: the caller's promise, passed on.
        unsafe { System.alloc(layout) }
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        self.add(layout.size());
        // SAFETY: the caller's promise, passed on.
        unsafe { System.alloc_zeroed(layout) }
    }
    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        LIVE_BYTES.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller's promise, passed on.
        unsafe { System.dealloc(place, layout) }
    }
    unsafe fn realloc(&self, place: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        self.add(new_size);
        LIVE_BYTES.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller's promise, passed on.
        unsafe { System.realloc(place, layout, new_size) }
    }
}

/// Runs `work` and checks that it never held more than `limit_bytes` of heap beyond what there was before.
///
/// # Panics
/// If it did.
pub fn bounded<R>(limit_bytes: usize, work: impl FnOnce() -> R) -> R {
    let before = LIVE_BYTES.load(Relaxed);
    PEAK_BYTES.store(before, Relaxed);
    let result = work();
    let used = PEAK_BYTES.load(Relaxed).saturating_sub(before);
    assert!(used <= limit_bytes, "{used} bytes of memory for an input that allows {limit_bytes}");
    result
}
