/// Smaller than this and the advice is not worth its call.
const SIZE_MIN_BYTES: usize = 8 << 20;

/// Asks for huge pages below the items a vector has room for. Tables that are looked up at random miss the TLB on every
/// access otherwise, which costs as much as the access itself. Call it between taking the room and filling it: what is
/// touched already stays on small pages. Nothing happens where the operating system has no such advice, or refuses it.
pub fn prefer_huge_pages<T>(table: &mut Vec<T>) {
    let size_bytes = table.capacity() * size_of::<T>();
    // SAFETY: the range belongs to the vector.
    unsafe { prefer_huge_pages_at(table.as_mut_ptr().cast(), size_bytes) };
}

/// The same for memory that is no vector's.
///
/// # Safety
/// `bytes..bytes + size_bytes` belongs to the caller.
pub(crate) unsafe fn prefer_huge_pages_at(bytes: *mut u8, size_bytes: usize) {
    if size_bytes < SIZE_MIN_BYTES {
        return;
    }
    #[cfg(target_os = "linux")]
    {
        // Pages that lie within the allocation as a whole.
        let page = 4096;
        let start = (bytes as usize).next_multiple_of(page);
        let end = (bytes as usize + size_bytes) / page * page;
        // SAFETY: advice changes no content, and the range is the caller's.
        unsafe { libc::madvise(start as *mut libc::c_void, end - start, libc::MADV_HUGEPAGE) };
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn content_stays() {
        let mut table: Vec<u32> = Vec::with_capacity(3 << 20);
        prefer_huge_pages(&mut table);
        table.extend(0..3 << 20);
        prefer_huge_pages(&mut table);
        assert!(table.iter().copied().eq(0..3 << 20));
        prefer_huge_pages(&mut Vec::<u8>::new());
    }
}
