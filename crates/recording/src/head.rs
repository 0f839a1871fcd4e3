//! What recordings and their chunks begin with; the format is in the head of the crate. Entries have no fixed layout: they are
//! written as `varint`s, which no struct can show.

use diecut_units::checksum;
use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// First bytes of a recording.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Head {
    pub magic: [u8; 8],
    pub version: U32,
    pub start_length: U32,
    pub start_check: U32,
}

/// First bytes of a chunk.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct ChunkHead {
    pub length: U32,
    pub check: U32,
}

const _: () = assert!(size_of::<Head>() == 20 && size_of::<ChunkHead>() == 8);

impl Head {
    pub fn new(start: &[u8]) -> Head {
        Head {
            magic: crate::MAGIC,
            version: crate::VERSION.into(),
            start_length: (start.len() as u32).into(),
            start_check: checksum(start).into(),
        }
    }
}

impl ChunkHead {
    pub fn new(content: &[u8]) -> ChunkHead {
        ChunkHead { length: (content.len() as u32).into(), check: checksum(content).into() }
    }
}

#[cfg(test)]
mod test {
    use super::*;

    /// Goal: the layout is pinned. Method: bytes written by hand.
    #[test]
    fn the_bytes_of_heads() {
        let check = checksum(b"start").to_le_bytes();
        let golden = [&b"diecutrc"[..], &[2, 0, 0, 0, 5, 0, 0, 0], &check].concat();
        assert_eq!(Head::new(b"start").as_bytes(), golden);
        assert_eq!(ChunkHead::new(b"start").as_bytes(), [&[5, 0, 0, 0][..], &check].concat());
    }
}
