/// Asks the processor to bring `slice[index]` near, without waiting for it. Batches of random look-ups announce all their
/// places first and so pay for one miss instead of one each. Nothing happens where the index is out of range, or the
/// processor has no such instruction.
#[inline]
pub fn prefetch<T>(slice: &[T], index: usize) {
    if let Some(item) = slice.get(index) {
        prefetch_pointer(item);
    }
}

/// The same for what a pointer leads to, which may be null.
#[inline]
pub(crate) fn prefetch_pointer<T>(pointer: *const T) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch reads nothing that the program could see, whatever the address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(pointer.cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = pointer;
}
