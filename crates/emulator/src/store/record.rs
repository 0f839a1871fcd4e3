//! The state of an erase block as a device that is synced stores it, and its count of openings (`synced` draws both).

use diecut_units::checksum;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

const LIFE_MAGIC: &[u8; 4] = b"LIFE";
const RECORD_MAGIC: &[u8; 4] = b"BLKR";
pub(crate) const RECORD_SIZE_BYTES: usize = size_of::<StoredRecord>();
const _: () = assert!(RECORD_SIZE_BYTES == 64 && size_of::<StoredLife>() == 12);

/// A count of openings as it is stored.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub(crate) struct StoredLife {
    check: U32,
    magic: [u8; 4],
    pub(crate) life: U32,
}

/// The record of an erase block as it is stored.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct StoredRecord {
    check: U32,
    magic: [u8; 4],
    number: U64,
    generation: U32,
    erase_count: U32,
    programmed_page: U32,
    confirmed_page: U32,
    flags: U32,
    programmed_at_s: U32,
    life: U32,
    reserved: [u8; 20],
}

/// What a record says, or will say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) generation: u32,
    pub(crate) erase_count: u32,
    pub(crate) programmed_page: u32,
    pub(crate) confirmed_page: u32,
    pub(crate) flags: u32,
    pub(crate) programmed_at_s: u32,
    pub(crate) life: u32,
}

impl Record {
    pub(crate) fn encode(&self, number: u64) -> StoredRecord {
        let mut stored = StoredRecord {
            check: 0.into(),
            magic: *RECORD_MAGIC,
            number: number.into(),
            generation: self.generation.into(),
            erase_count: self.erase_count.into(),
            programmed_page: self.programmed_page.into(),
            confirmed_page: self.confirmed_page.into(),
            flags: self.flags.into(),
            programmed_at_s: self.programmed_at_s.into(),
            life: self.life.into(),
            reserved: [0; 20],
        };
        stored.check = checksum(&stored.as_bytes()[4..]).into();
        stored
    }

    pub(crate) fn decode(stored: &StoredRecord, number: u64) -> Option<Record> {
        let is_right = stored.magic == *RECORD_MAGIC
            && stored.number == number
            && stored.check == checksum(&stored.as_bytes()[4..]);
        is_right.then(|| Record {
            generation: stored.generation.get(),
            erase_count: stored.erase_count.get(),
            programmed_page: stored.programmed_page.get(),
            confirmed_page: stored.confirmed_page.get(),
            flags: stored.flags.get(),
            programmed_at_s: stored.programmed_at_s.get(),
            life: stored.life.get(),
        })
    }
}

impl StoredLife {
    pub(crate) fn new(life: u32) -> StoredLife {
        let mut stored = StoredLife { check: 0.into(), magic: *LIFE_MAGIC, life: life.into() };
        stored.check = checksum(&stored.as_bytes()[4..]).into();
        stored
    }

    pub(crate) fn is_right(&self) -> bool {
        self.magic == *LIFE_MAGIC && self.check == checksum(&self.as_bytes()[4..])
    }
}

#[cfg(test)]
mod test {
    use super::*;

    /// Goal: the layout is pinned. Method: bytes written by hand.
    #[test]
    fn the_bytes_of_records() {
        let record = Record {
            generation: 0x11,
            erase_count: 0x0403_0201,
            programmed_page: 0x13,
            confirmed_page: 0x14,
            flags: 0x15,
            programmed_at_s: 0x16,
            life: 0x17,
        };
        let number = 0x0807_0605_0403_0201;
        let golden = [
            &b"BLKR"[..],
            &[1, 2, 3, 4, 5, 6, 7, 8, 0x11, 0, 0, 0, 1, 2, 3, 4, 0x13, 0, 0, 0, 0x14, 0, 0, 0],
            &[0x15, 0, 0, 0, 0x16, 0, 0, 0, 0x17, 0, 0, 0],
            &[0; 20],
        ]
        .concat();
        let golden = [&checksum(&golden).to_le_bytes()[..], &golden].concat();
        let mut stored = record.encode(number);
        assert_eq!(stored.as_bytes(), golden);
        assert_eq!(Record::decode(&stored, number), Some(record));
        assert_eq!(Record::decode(&stored, number + 1), None);
        stored.reserved[19] = 1;
        assert_eq!(Record::decode(&stored, number), None);

        let golden = *b"LIFE\x01\x02\x03\x04";
        let golden = [checksum(&golden).to_le_bytes(), *b"LIFE", [1, 2, 3, 4]].concat();
        let mut life = StoredLife::new(0x0403_0201);
        assert!(life.as_bytes() == golden && life.is_right());
        life.life = 7.into();
        assert!(!life.is_right());
    }
}
