//! Changes of block states, as the log has them (`log` draws them). They are of different lengths: each has a head of fixed size,
//! and what follows depends on its kind.

use crate::states::entry::BODY_SIZE_BYTES;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

const BLOCK: u8 = 1;
const VSSD: u8 = 2;
const PAGES: u8 = 3;
const EXCHANGE: u8 = 4;

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Head {
    kind: u8,
    reserved: [u8; 3],
    /// Number of a block or of a die; bytes of the body of a vSSD.
    word: U32,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Pages {
    pages: U32,
    reserved: U32,
    sequence: U64,
}

const _: () = assert!(size_of::<Head>() == 8 && size_of::<Pages>() == 16);

/// One change; bodies are those of slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change<'a> {
    Block {
        number: u32,
        body: &'a [u8; BODY_SIZE_BYTES],
    },
    /// Without unused units.
    Vssd {
        body: &'a [u8],
    },
    Pages {
        number: u32,
        pages: u32,
        sequence: u64,
    },
    Exchange {
        die: u32,
        body: &'a [u8; BODY_SIZE_BYTES],
    },
}

impl<'a> Change<'a> {
    /// Puts it behind others.
    pub fn encode(&self, bytes: &mut Vec<u8>) {
        let pages;
        let (kind, word, body) = match *self {
            Change::Block { number, body } => (BLOCK, number, &body[..]),
            Change::Vssd { body } => (VSSD, body.len() as u32, body),
            Change::Pages { number, pages: count, sequence } => {
                pages = Pages { pages: count.into(), reserved: 0.into(), sequence: sequence.into() };
                (PAGES, number, pages.as_bytes())
            }
            Change::Exchange { die, body } => (EXCHANGE, die, &body[..]),
        };
        debug_assert!(body.len().is_multiple_of(8), "I-V19: changes stay aligned");
        bytes.extend_from_slice(Head { kind, reserved: [0; 3], word: word.into() }.as_bytes());
        bytes.extend_from_slice(body);
    }

    /// Takes the first one off; `None` if there is none.
    pub fn take(bytes: &mut &'a [u8]) -> Option<Change<'a>> {
        let (head, rest) = Head::ref_from_prefix(bytes).ok()?;
        let word = head.word.get();
        let (change, rest) = match head.kind {
            BLOCK | EXCHANGE => {
                let (body, rest) = rest.split_first_chunk()?;
                let is_block = head.kind == BLOCK;
                let change = Change::Exchange { die: word, body };
                (if is_block { Change::Block { number: word, body } } else { change }, rest)
            }
            VSSD => {
                let (body, rest) = rest.split_at_checked(word as usize)?;
                (Change::Vssd { body }, rest)
            }
            PAGES => {
                let (body, rest) = Pages::ref_from_prefix(rest).ok()?;
                let (pages, sequence) = (body.pages.get(), body.sequence.get());
                (Change::Pages { number: word, pages, sequence }, rest)
            }
            _ => return None,
        };
        *bytes = rest;
        Some(change)
    }
}

#[cfg(test)]
mod test {
    use super::*;

    /// Goal: the layout is pinned. Method: bytes written by hand.
    #[test]
    fn the_bytes_of_changes() {
        let body = [7; BODY_SIZE_BYTES];
        let changes = [
            Change::Block { number: 0x0403_0201, body: &body },
            Change::Vssd { body: &body[..16] },
            Change::Pages { number: 9, pages: 0x0403_0201, sequence: 0x1817_1615_1413_1211 },
            Change::Exchange { die: 5, body: &body },
        ];
        let golden = [
            &[1, 0, 0, 0, 1, 2, 3, 4][..],
            &body,
            &[2, 0, 0, 0, 16, 0, 0, 0],
            &body[..16],
            &[3, 0, 0, 0, 9, 0, 0, 0, 1, 2, 3, 4, 0, 0, 0, 0],
            &[0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18],
            &[4, 0, 0, 0, 5, 0, 0, 0],
            &body,
        ]
        .concat();
        let mut bytes = Vec::new();
        changes.iter().for_each(|change| change.encode(&mut bytes));
        assert_eq!(bytes, golden);
        let mut rest = &golden[..];
        let found: Vec<_> = std::iter::from_fn(|| Change::take(&mut rest)).collect();
        assert_eq!((&found[..], rest), (&changes[..], &[][..]));
        for len in 0..8 + BODY_SIZE_BYTES {
            assert_eq!(Change::take(&mut &golden[..len]), None, "{len} bytes");
        }
    }
}
