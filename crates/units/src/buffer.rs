//! The one refcounted buffer handle.
//!
//! A slab is a run of bytes with a reference count. [`BufferMut`] is the only handle to its byte range and may
//! write it; [`BufferMut::freeze`] turns it into a [`Buffer`], which many may hold and nobody may write. A
//! slab may be split into disjoint ranges, each with its own kind of handle. When the last handle goes, the
//! slab returns to the pool it came from, whichever thread that happens on.

use crate::pool::{Home, Slab, give_back};
use crate::sync::{AtomicU32, Ordering, Owned, fence};
use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::{Bound, Deref, DerefMut, RangeBounds};
use std::ptr::NonNull;

/// The one handle to a byte range that may write it.
pub struct BufferMut {
    pub(crate) slab: NonNull<Slab>,
    offset: u32,
    len: u32,
}

/// A shared, read-only handle to a byte range.
pub struct Buffer {
    pub(crate) slab: NonNull<Slab>,
    offset: u32,
    len: u32,
}

/// A claim on a byte range whose parts were lent out as [`BufferMut`]s; the whole comes back when all parts
/// are gone. It cannot touch the bytes meanwhile.
pub struct BufferLoan {
    slab: NonNull<Slab>,
    offset: u32,
    len: u32,
}

// SAFETY: the reference count is atomic, a byte range has either one writer or only readers, and returning
// a slab to its pool is an atomic push; so handles may move between threads and be dropped on any.
unsafe impl Send for BufferMut {}
// SAFETY: `&BufferMut` only reads.
unsafe impl Sync for BufferMut {}
// SAFETY: see `BufferMut`.
unsafe impl Send for Buffer {}
// SAFETY: `&Buffer` only reads, and nobody writes while a `Buffer` exists.
unsafe impl Sync for Buffer {}
// SAFETY: a loan touches only the atomic count.
unsafe impl Send for BufferLoan {}
// SAFETY: same.
unsafe impl Sync for BufferLoan {}

fn retain(slab: NonNull<Slab>) {
    // SAFETY: the caller holds a handle, so the slab is alive.
    let before = unsafe { slab.as_ref() }.references.fetch_add(1, Ordering::Relaxed);
    assert!(before < u32::MAX / 2, "buffer handles leak");
}

fn release(slab: NonNull<Slab>) {
    // SAFETY: the caller gives up a handle, so the slab is alive until this count drops.
    let references = unsafe { &slab.as_ref().references };
    // Who holds the only handle needs no locked instruction to give it up: nobody is left who could take another. Such an
    // instruction waits until all stores before it are done, also those that a copy has on their way to memory.
    if references.load(Ordering::Acquire) != 1 {
        if references.fetch_sub(1, Ordering::Release) != 1 {
            return;
        }
        fence(Ordering::Acquire);
    }
    // SAFETY: that was the last handle: the slab is ours alone now.
    unsafe { give_back(slab) };
}

impl BufferMut {
    /// # Safety
    /// The slab has exactly one reference, which this handle takes over, and `len` is within its capacity.
    pub(crate) unsafe fn from_slab(slab: NonNull<Slab>, len: u32) -> BufferMut {
        BufferMut { slab, offset: 0, len }
    }

    /// # Safety
    /// `bytes..bytes + len` is valid for reads and writes, initialized, and touched by nobody else while
    /// `owner` lives.
    pub(crate) unsafe fn from_foreign(
        bytes: NonNull<u8>,
        len: u32,
        owner: Box<dyn Send + Sync>,
    ) -> BufferMut {
        let slab = Box::new(Slab {
            references: AtomicU32::new(1),
            class: 0,
            capacity: len,
            bytes,
            next: Owned::new(std::ptr::null_mut()),
            #[cfg(diecut_loom)]
            content: Owned::new(0),
            #[cfg(diecut_loom)]
            freed: loom::alloc::Track::new(()),
            home: Home::Foreign(owner),
        });
        BufferMut { slab: NonNull::from(Box::leak(slab)), offset: 0, len }
    }

    /// Copies `bytes` into memory of its own, outside any pool. For tests and cold paths.
    pub fn copy_from(bytes: &[u8]) -> BufferMut {
        let mut owner = bytes.to_vec().into_boxed_slice();
        let pointer = NonNull::new(owner.as_mut_ptr()).expect("boxes are not null");
        let len = u32::try_from(bytes.len()).expect("buffers are smaller than 4 GiB");
        let owner = OwnedBytes(Box::into_raw(owner));
        // SAFETY: the box is owned by the handle from here on and nobody else knows it.
        unsafe { BufferMut::from_foreign(pointer, len, Box::new(owner)) }
    }

    /// Number of bytes.
    pub fn len(&self) -> usize {
        self.len as usize
    }
    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
    /// Splits off the first `len` bytes as a handle of their own.
    ///
    /// # Panics
    /// If there are fewer.
    pub fn split_to(&mut self, len: usize) -> BufferMut {
        assert!(len <= self.len(), "split at {len} of {}", self.len);
        retain(self.slab);
        let front = BufferMut { slab: self.slab, offset: self.offset, len: len as u32 };
        self.offset += len as u32;
        self.len -= len as u32;
        front
    }
    /// Forgets the bytes after the first `len`.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len as u32);
    }
    /// The same bytes under a count of their own, so that a borrower of this part can lend it again and have it
    /// reclaimed while other parts of the slab are out. Allocates: for large parts.
    pub fn apart(self) -> BufferMut {
        // SAFETY: the slab is alive while the handle is, and the offset is within it.
        let bytes = unsafe { self.slab.as_ref().bytes.add(self.offset as usize) };
        // SAFETY: `self` is the one handle that may touch these bytes; as owner of the new one it is out of reach
        // and keeps them alive.
        unsafe { BufferMut::from_foreign(bytes, self.len, Box::new(self)) }
    }
    /// Gives up writing; the bytes can be shared from now on.
    pub fn freeze(self) -> Buffer {
        let this = ManuallyDrop::new(self);
        Buffer { slab: this.slab, offset: this.offset, len: this.len }
    }
    /// Keeps a claim on the whole while the writable handle (and what is split off it) is lent out.
    pub fn lend(self) -> (BufferLoan, BufferMut) {
        retain(self.slab);
        (BufferLoan { slab: self.slab, offset: self.offset, len: self.len }, self)
    }
}

struct OwnedBytes(*mut [u8]);
// SAFETY: plain bytes owned through the pointer.
unsafe impl Send for OwnedBytes {}
// SAFETY: never read through this type.
unsafe impl Sync for OwnedBytes {}
impl Drop for OwnedBytes {
    fn drop(&mut self) {
        // SAFETY: made by `Box::into_raw` in `copy_from`, dropped once.
        drop(unsafe { Box::from_raw(self.0) });
    }
}

impl Buffer {
    /// Copies `bytes` into memory of its own, outside any pool. For tests and cold paths.
    pub fn copy_from(bytes: &[u8]) -> Buffer {
        BufferMut::copy_from(bytes).freeze()
    }
    /// Number of bytes.
    pub fn len(&self) -> usize {
        self.len as usize
    }
    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
    /// Memory that is kept for as long as any part of it is.
    pub fn slab_bytes(&self) -> usize {
        // SAFETY: this handle keeps the slab alive.
        unsafe { self.slab.as_ref() }.capacity as usize
    }
    /// A part of it, sharing the bytes.
    ///
    /// # Panics
    /// If the range is outside.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Buffer {
        let start = match range.start_bound() {
            Bound::Included(&start) => start,
            Bound::Excluded(&start) => start + 1,
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(&end) => end + 1,
            Bound::Excluded(&end) => end,
            Bound::Unbounded => self.len(),
        };
        assert!(start <= end && end <= self.len(), "slice {start}..{end} of {}", self.len);
        retain(self.slab);
        Buffer { slab: self.slab, offset: self.offset + start as u32, len: (end - start) as u32 }
    }
}

impl BufferLoan {
    /// Number of bytes of the whole.
    pub fn len(&self) -> usize {
        self.len as usize
    }
    /// Whether the whole has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
    /// The whole, writable again, if every lent part is gone; else the loan stays.
    ///
    /// # Errors
    /// The loan itself while parts are still out.
    pub fn try_reclaim(self) -> Result<BufferMut, BufferLoan> {
        // SAFETY: this loan is a handle, so the slab is alive.
        if unsafe { self.slab.as_ref() }.references.load(Ordering::Acquire) != 1 {
            return Err(self);
        }
        let this = ManuallyDrop::new(self);
        Ok(BufferMut { slab: this.slab, offset: this.offset, len: this.len })
    }
    /// The whole, writable again, if `last` is the only lent part.
    ///
    /// # Errors
    /// The loan and the part while others are out.
    pub fn try_reclaim_from(self, last: Buffer) -> Result<BufferMut, (BufferLoan, Buffer)> {
        // SAFETY: this loan is a handle, so the slab is alive.
        if unsafe { self.slab.as_ref() }.references.load(Ordering::Acquire) != 2 {
            return Err((self, last));
        }
        drop(last);
        Ok(self.reclaim())
    }
    /// The whole, writable again.
    ///
    /// # Panics
    /// If a lent part is still out: the borrower's bug.
    pub fn reclaim(self) -> BufferMut {
        self.try_reclaim().unwrap_or_else(|_| panic!("a lent part of the buffer is still out"))
    }
}

impl Deref for BufferMut {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: the range lies in the slab, is initialized, and this handle is its only one.
        unsafe {
            std::slice::from_raw_parts(
                self.slab.as_ref().bytes.as_ptr().add(self.offset as usize),
                self.len(),
            )
        }
    }
}

impl DerefMut for BufferMut {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: the range lies in the slab, is initialized, and this handle is its only one.
        unsafe {
            std::slice::from_raw_parts_mut(
                self.slab.as_ref().bytes.as_ptr().add(self.offset as usize),
                self.len(),
            )
        }
    }
}

impl Deref for Buffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: the range lies in the slab, is initialized, and nobody can write it any more.
        unsafe {
            std::slice::from_raw_parts(
                self.slab.as_ref().bytes.as_ptr().add(self.offset as usize),
                self.len(),
            )
        }
    }
}

impl Clone for Buffer {
    fn clone(&self) -> Buffer {
        retain(self.slab);
        Buffer { slab: self.slab, offset: self.offset, len: self.len }
    }
}

impl Drop for BufferMut {
    fn drop(&mut self) {
        release(self.slab);
    }
}
impl Drop for Buffer {
    fn drop(&mut self) {
        release(self.slab);
    }
}
impl Drop for BufferLoan {
    fn drop(&mut self) {
        release(self.slab);
    }
}

impl fmt::Debug for BufferMut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BufferMut({} bytes)", self.len)
    }
}
impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({} bytes)", self.len)
    }
}
impl fmt::Debug for BufferLoan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BufferLoan({} bytes)", self.len)
    }
}

#[cfg(all(test, not(diecut_loom)))]
mod test {
    use super::*;

    #[test]
    fn parts_are_disjoint_and_the_whole_comes_back() {
        let (loan, mut whole) = BufferMut::copy_from(&[0; 12]).lend();
        let mut front = whole.split_to(4);
        front.fill(1);
        whole.fill(2);
        let loan = loan.try_reclaim().expect_err("two parts are out");
        drop(front);
        drop(whole);
        assert_eq!(&loan.reclaim()[..], [1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2]);
    }

    #[test]
    fn parts_apart_are_lent_and_reclaimed_on_their_own() {
        let (whole, mut rest) = BufferMut::copy_from(&[0; 12]).lend();
        let (part, mut lent) = rest.split_to(4).apart().lend();
        lent.fill(1);
        drop(lent);
        let part = part.reclaim();
        rest.fill(2);
        drop(rest);
        let whole = whole.try_reclaim().expect_err("a part is out");
        assert_eq!(&part[..], [1; 4]);
        drop(part);
        assert_eq!(&whole.reclaim()[..], [1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2]);
    }

    #[test]
    fn slices_share_the_bytes() {
        let buffer = Buffer::copy_from(b"channel die plane");
        let slice = buffer.slice(8..11);
        drop(buffer);
        assert_eq!(&slice[..], b"die");
    }

    #[test]
    #[should_panic(expected = "slice 2..5 of 4")]
    fn a_slice_outside_is_our_bug() {
        Buffer::copy_from(&[0; 4]).slice(2..5);
    }
}
