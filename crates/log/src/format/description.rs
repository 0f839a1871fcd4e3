//! What stands of a segment in the header of each of its erase blocks, where pages have no OOB areas: the holder's bytes there. Little endian.
//!
//! | offset | size | field      | meaning                                                          |
//! |-------:|-----:|------------|------------------------------------------------------------------|
//! |      0 |    4 | segment    | which segment the block belongs to                               |
//! |      4 |    4 | generation | rises with every segment that is opened                          |
//! |      8 |    1 | member     | which one of the segment's blocks this is                        |
//! |      9 |    1 | members    | how many there are                                               |
//! |     10 |    1 | parity     | 0; parity units of a row                                         |
//! |     11 |    1 | strip      | log2 of the strip in IUs                                         |
//! |     12 |    1 | head_ius   | 1; IUs of a chunk's head                                         |
//! |     13 |    1 | listed     | 0; members whose places follow                                   |
//! |     14 |    2 | stream     | low byte: 0 user, 1 cleaner, 2 map; above it the reference       |

use crate::{Layout, Stream};
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Fields {
    segment: U32,
    generation: U32,
    member: u8,
    members: u8,
    parity: u8,
    strip: u8,
    head_ius: u8,
    listed: u8,
    stream: U16,
}

const _: () = assert!(size_of::<Fields>() == 16);

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Description {
    /// Segment.
    pub segment: u32,
    /// Its generation.
    pub generation: u32,
    /// Its stream.
    pub stream: Stream,
    /// Which member a block is.
    pub member: u8,
    members: u8,
    strip: u8,
}

impl Description {
    /// Of the first member of a segment.
    pub fn new(stream: Stream, segment: u32, generation: u32, layout: &Layout) -> Description {
        let strip = layout.strip_ius.trailing_zeros() as u8;
        Description { segment, generation, stream, member: 0, members: layout.width as u8, strip }
    }

    /// Of another member.
    pub fn of_member(self, member: u32) -> Description {
        Description { member: member as u8, ..self }
    }

    /// Its bytes.
    pub fn encode(&self) -> [u8; 16] {
        let Description { segment, generation, stream, member, members, strip } = *self;
        let fields = Fields {
            segment: segment.into(),
            generation: generation.into(),
            member,
            members,
            parity: 0,
            strip,
            head_ius: 1,
            listed: 0,
            stream: stream.number().into(),
        };
        zerocopy::transmute!(fields)
    }

    /// Reads one; `None` if it says what this program does not know, or is of segments of another shape.
    pub fn decode(bytes: &[u8], layout: &Layout) -> Option<Description> {
        let (fields, _) = Fields::ref_from_prefix(bytes).ok()?;
        let stream = Stream::from_number(fields.stream.get())?;
        let expected = Description::new(stream, fields.segment.get(), fields.generation.get(), layout);
        let found = Description { member: fields.member, ..expected };
        (found.encode()[..] == *fields.as_bytes() && u32::from(found.member) < layout.width).then_some(found)
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::UnitReference;
    use diecut_units::ContentMode;
    use diecut_vssd::space::BlockShape;

    fn layout() -> Layout {
        let shape = BlockShape {
            pages: 255,
            page_size_bytes: 4096,
            program_unit_pages: 1,
            unsafe_units: 0,
            pipelined_units: 0,
            oob_size_bytes: 0,
            holder_oob_offset: 0,
            content_mode: ContentMode::Bytes,
            volatile_cache: true,
        };
        Layout::new(shape, 3, 1)
    }

    /// Goal: the layout is pinned, and what another shape, or a later version, wrote is not taken for ours. Method: bytes written by hand, and each
    /// of them changed.
    #[test]
    fn the_bytes_of_a_description() {
        let layout = layout();
        let stream = Stream::Cleaner(UnitReference(7));
        let description =
            Description { member: 2, ..Description::new(stream, 0x0403_0201, 0x0807_0605, &layout) };
        let golden = [1, 2, 3, 4, 5, 6, 7, 8, 2, 3, 0, 5, 1, 0, 1, 7];
        assert_eq!(description.encode(), golden);
        assert_eq!(Description::decode(&golden, &layout), Some(description));
        for at in 8..16 {
            let mut other = golden;
            other[at] ^= 0x40;
            assert_eq!(Description::decode(&other, &layout), None, "byte {at}");
        }
        assert_eq!(Description::decode(&golden[..15], &layout), None);
    }
}
