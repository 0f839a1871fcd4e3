//! Geometry, addresses, and the chunk information log.

use std::mem::offset_of;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// MCCAP bit 0: there is a vector copy.
pub const MCCAP_VECTOR_COPY: u32 = 1 << 0;
/// MCCAP bit 1: a free chunk can be reset.
pub const MCCAP_MULTIPLE_RESETS: u32 = 1 << 1;
/// MCCAP bit 2: an open chunk can be reset. An extension that hosts know.
pub const MCCAP_EARLY_RESET: u32 = 1 << 2;

/// Bits of the parts of an address, the highest part first (LBAF, bytes 8 to 11 of the geometry).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct AddressFormat {
    /// Of a group.
    pub group_bits: u8,
    /// Of a parallel unit in its group.
    pub unit_bits: u8,
    /// Of a chunk in its parallel unit.
    pub chunk_bits: u8,
    /// Of a logical block in its chunk.
    pub block_bits: u8,
}

impl AddressFormat {
    /// Bits of an address; `None` if no address of 64 bits has them.
    pub fn bits(&self) -> Option<u32> {
        let AddressFormat { group_bits, unit_bits, chunk_bits, block_bits } = *self;
        let bits = [group_bits, unit_bits, chunk_bits, block_bits].into_iter().map(u32::from).sum();
        (bits < 64).then_some(bits)
    }

    /// An address. What a part has no bits for is cut off.
    #[inline]
    pub fn encode(&self, group: u32, unit: u32, chunk: u32, block: u32) -> u64 {
        let parts = [
            (self.group_bits, group),
            (self.unit_bits, unit),
            (self.chunk_bits, chunk),
            (self.block_bits, block),
        ];
        parts.into_iter().fold(0, |lba: u64, (bits, part)| {
            let mask = 1_u64.checked_shl(bits.into()).map_or(u64::MAX, |end| end - 1);
            lba.checked_shl(bits.into()).unwrap_or(0) | u64::from(part) & mask
        })
    }

    /// Group, parallel unit, chunk and logical block of an address; `None` if it has more bits.
    #[inline]
    pub fn decode(&self, lba: u64) -> Option<[u32; 4]> {
        let mut rest = lba;
        if lba >> self.bits()? != 0 {
            return None;
        }
        let mut part = |bits: u8| {
            let part = rest & ((1 << bits) - 1);
            rest >>= bits;
            u32::try_from(part).ok()
        };
        let (block, chunk) = (part(self.block_bits)?, part(self.chunk_bits)?);
        let (unit, group) = (part(self.unit_bits)?, part(self.group_bits)?);
        Some([group, unit, chunk, block])
    }
}

/// Geometry of a namespace: the answer to the admin command (OC figure 11). Times are in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Geometry {
    /// MJR.
    pub major: u8,
    /// MNR.
    pub minor: u8,
    #[doc(hidden)]
    pub reserved_2: [u8; 6],
    /// LBAF.
    pub format: AddressFormat,
    #[doc(hidden)]
    pub reserved_12: [u8; 4],
    /// MCCAP.
    pub capabilities: U32,
    #[doc(hidden)]
    pub reserved_20: [u8; 12],
    /// WIT: how far wear-level indices may be from each other.
    pub wear_threshold: u8,
    #[doc(hidden)]
    pub reserved_33: [u8; 31],
    /// NUM_GRP.
    pub groups: U16,
    /// NUM_PU, of a group.
    pub units: U16,
    /// NUM_CHK, of a parallel unit.
    pub chunks: U32,
    /// CLBA: logical blocks of a chunk.
    pub chunk_blocks: U32,
    #[doc(hidden)]
    pub reserved_76: [u8; 52],
    /// WS_MIN: a write is a multiple of so many logical blocks.
    pub write_min: U32,
    /// WS_OPT.
    pub write_optimal: U32,
    /// MW_CUNITS: logical blocks behind a block of an open chunk before it can be read.
    pub cached_units: U32,
    /// MAXOC: chunks that may be open; 0: as many as there are.
    pub open_max: U32,
    /// MAXOCPU: of a parallel unit.
    pub open_of_unit_max: U32,
    #[doc(hidden)]
    pub reserved_148: [u8; 44],
    /// TRDT.
    pub read_typical_ns: U32,
    /// TRDM.
    pub read_max_ns: U32,
    /// TWRT.
    pub write_typical_ns: U32,
    /// TWRM.
    pub write_max_ns: U32,
    /// TCRST.
    pub reset_typical_ns: U32,
    /// TCRSM.
    pub reset_max_ns: U32,
    #[doc(hidden)]
    pub reserved_216: [u8; 40],
    #[doc(hidden)]
    pub reserved_256: [u8; 2816],
    /// Vendor specific.
    pub vendor: [u8; 1024],
}

impl Geometry {
    /// Bytes of it.
    pub const SIZE_BYTES: usize = size_of::<Geometry>();
}

impl Default for Geometry {
    fn default() -> Geometry {
        Geometry::new_zeroed()
    }
}

/// State of a chunk.
pub mod chunk_state {
    #![allow(missing_docs, reason = "the names are the specification's")]
    pub const FREE: u8 = 1;
    pub const CLOSED: u8 = 2;
    pub const OPEN: u8 = 4;
    pub const OFFLINE: u8 = 8;
}

/// Type of a chunk.
pub mod chunk_type {
    /// It is written from its start to its end.
    pub const SEQUENTIAL: u8 = 1;
    /// It is written anywhere.
    pub const RANDOM: u8 = 2;
    /// It has not as many logical blocks as the geometry says.
    pub const SIZE_DEVIATES: u8 = 0x10;
}

/// An entry of the chunk information log (OC figure 16).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct ChunkDescriptor {
    /// CS; see [`chunk_state`].
    pub state: u8,
    /// CT; see [`chunk_type`].
    pub kind: u8,
    /// WLI: wear-level index.
    pub wear: u8,
    reserved: [u8; 5],
    /// SLBA.
    pub start: U64,
    /// CNLB: logical blocks of the chunk.
    pub blocks: U64,
    /// WP: logical blocks from the start of the chunk that are written.
    pub write_pointer: U64,
}

impl ChunkDescriptor {
    /// Bytes of it.
    pub const SIZE_BYTES: usize = size_of::<ChunkDescriptor>();

    /// Of a chunk that is written from its start to its end.
    pub fn new(state: u8, wear: u8, start: u64, blocks: u64, write_pointer: u64) -> ChunkDescriptor {
        ChunkDescriptor {
            state,
            kind: chunk_type::SEQUENTIAL,
            wear,
            start: start.into(),
            blocks: blocks.into(),
            write_pointer: write_pointer.into(),
            ..ChunkDescriptor::new_zeroed()
        }
    }
}

const _: () = {
    assert!(Geometry::SIZE_BYTES == 4096 && ChunkDescriptor::SIZE_BYTES == 32);
    assert!(offset_of!(Geometry, capabilities) == 16 && offset_of!(Geometry, wear_threshold) == 32);
    assert!(offset_of!(Geometry, write_min) == 128 && offset_of!(Geometry, read_typical_ns) == 192);
    assert!(offset_of!(Geometry, vendor) == 3072);
    assert!(offset_of!(ChunkDescriptor, start) == 8 && offset_of!(ChunkDescriptor, write_pointer) == 24);
};
