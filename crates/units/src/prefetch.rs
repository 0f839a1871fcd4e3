/// Asks the processor to bring `slice[index]` near, without waiting for it. Batches of random look-ups announce all their
/// places first and so pay for one miss instead of one each. Nothing happens where the index is out of range, or the
/// processor has no such instruction.
#[inline]
pub fn prefetch<T>(slice: &[T], index: usize) {
    #[cfg(target_arch = "x86_64")]
    if let Some(item) = slice.get(index) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch reads nothing that the program could see, and the address is that of a live item.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(item).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (slice, index);
}
