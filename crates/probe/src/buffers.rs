//! Memory that commands read into and write from, aligned as direct I/O asks for.

use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;

/// No drive asks for more.
const ALIGNMENT: usize = 4096;

/// So many buffers of one size.
pub(crate) struct Buffers {
    start: NonNull<u8>,
    layout: Layout,
    each_bytes: usize,
    count: usize,
}

impl Buffers {
    /// With random content, which no drive compresses or finds twice.
    ///
    /// # Panics
    /// If there are none.
    pub fn new(count: usize, each_bytes: usize, seed: u64) -> Buffers {
        assert!(count > 0 && each_bytes > 0, "there are buffers");
        let distance = each_bytes.next_multiple_of(ALIGNMENT);
        let layout = Layout::from_size_align(count * distance, ALIGNMENT).expect("a few megabytes");
        // SAFETY: the layout has a size above zero.
        let start = unsafe { alloc_zeroed(layout) };
        let Some(start) = NonNull::new(start) else { handle_alloc_error(layout) };
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        // SAFETY: the memory was allocated with this size above, is zeroed, and nobody else knows it yet.
        random.fill_bytes(unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), layout.size()) });
        Buffers { start, layout, each_bytes: distance, count }
    }

    /// Where one begins. What it holds may change as long as a command has it: nobody else reads or writes it.
    pub fn at(&self, index: usize) -> *mut u8 {
        assert!(index < self.count, "a buffer that there is");
        // SAFETY: the index is below the count, so the place lies within the allocation.
        unsafe { self.start.as_ptr().add(index * self.each_bytes) }
    }
}

impl Drop for Buffers {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout; whoever owns it waits for commands before it goes.
        unsafe { dealloc(self.start.as_ptr(), self.layout) };
    }
}
