//! Numbers of three bytes in records.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// A little-endian number of 24 bits, as it is stored.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct U24([u8; 3]);

impl U24 {
    /// # Panics
    /// If the number is too large.
    #[inline]
    pub fn new(number: u32) -> U24 {
        let [first, second, third, rest] = number.to_le_bytes();
        assert!(rest == 0, "I-V18: {number} fits in 24 bits");
        U24([first, second, third])
    }

    #[inline]
    pub fn get(self) -> u32 {
        let [first, second, third] = self.0;
        u32::from_le_bytes([first, second, third, 0])
    }
}
