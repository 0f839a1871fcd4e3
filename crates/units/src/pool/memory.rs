//! Memory of slabs: a header, and bytes that are aligned to what transfers into them want.

use super::{ALIGNMENT_LARGE_BYTES, ALIGNMENT_SMALL_BYTES, CLASS_NONE, Returns};
use crate::sync::{AtomicU32, Owned};
use std::alloc::Layout;
use std::ptr::{self, NonNull};

/// Where the bytes of a slab live and what happens when its last handle goes.
pub(crate) enum Home {
    /// Memory of a pool, and where it goes back to; that place lives until the last slab that was taken is back.
    Pool(NonNull<Returns>),
    /// Memory too large for a pool to keep.
    Own,
    /// Memory of somebody else, kept alive by the boxed owner (protected memory).
    Foreign(#[allow(dead_code, reason = "held for its Drop")] Box<dyn Send + Sync>),
}

pub(crate) struct Slab {
    pub(crate) references: AtomicU32,
    pub(crate) class: u8,
    pub(crate) capacity: u32,
    pub(crate) bytes: NonNull<u8>,
    pub(crate) next: Owned<*mut Slab>,
    /// Stands for the bytes: the model checker does not see those.
    #[cfg(diecut_loom)]
    pub(crate) content: Owned<u8>,
    /// The checker says so if the slab is not freed.
    #[cfg(diecut_loom)]
    #[allow(dead_code, reason = "held for its Drop")]
    pub(crate) freed: loom::alloc::Track<()>,
    pub(crate) home: Home,
}

fn layout(class: u8, capacity: u32) -> Layout {
    let alignment = if class != CLASS_NONE && capacity < ALIGNMENT_LARGE_BYTES as u32 {
        ALIGNMENT_SMALL_BYTES
    } else {
        ALIGNMENT_LARGE_BYTES
    };
    Layout::from_size_align(capacity.max(1) as usize, alignment).expect("capacity fits")
}

/// Zeroed memory of `capacity` bytes for a class, that nobody refers to yet.
pub(super) fn allocate(class: u8, capacity: u32, home: Home) -> NonNull<Slab> {
    let layout = layout(class, capacity);
    // SAFETY: the layout has a size above zero.
    let bytes = unsafe { std::alloc::alloc_zeroed(layout) };
    let Some(bytes) = NonNull::new(bytes) else { std::alloc::handle_alloc_error(layout) };
    let slab = Slab {
        references: AtomicU32::new(0),
        class,
        capacity,
        bytes,
        next: Owned::new(ptr::null_mut()),
        #[cfg(diecut_loom)]
        content: Owned::new(0),
        #[cfg(diecut_loom)]
        freed: loom::alloc::Track::new(()),
        home,
    };
    NonNull::from(Box::leak(Box::new(slab)))
}

/// Frees it.
///
/// # Safety
/// The slab came from `allocate` and nobody refers to it.
pub(super) unsafe fn deallocate(slab: NonNull<Slab>) {
    // SAFETY: by the contract.
    let slab = unsafe { Box::from_raw(slab.as_ptr()) };
    // SAFETY: allocated with the same layout.
    unsafe { std::alloc::dealloc(slab.bytes.as_ptr(), layout(slab.class, slab.capacity)) };
}

/// Frees the slabs of a list and says how many there were.
///
/// # Safety
/// The list is the caller's alone and holds slabs from `allocate`.
pub(super) unsafe fn free_list(mut head: *mut Slab) -> isize {
    let mut count = 0;
    while let Some(slab) = NonNull::new(head) {
        // SAFETY: by the contract.
        unsafe {
            head = slab.as_ref().next.get();
            deallocate(slab);
        }
        count += 1;
    }
    count
}
