//! Words of the Open-Channel Solid State Drives Specification, revision 2.0 ("OC"): geometry, addresses, the chunk information log and
//! vector commands.
//!
//! The lists of addresses of vector commands lie in host memory in the specification. Over fabrics they are the first bytes of a command's
//! data: 8 bytes for each of 2 to 64 addresses, little endian, sources before destinations, content behind. A single one is in dwords 10 and 11
//! (of a copy's destination in 14 and 15). The data of a read go the other way, so its list is in the command's capsule, besides what its
//! descriptor is for; without one it names a run by its first block.
//!
//! When a vector command fails, dwords 0 and 1 of its completion have a bit for each address, in the order of its list: 1 if that one failed.

mod command;
mod geometry;
mod notification;

pub use command::{LBAS_MAX, VectorCommand};
pub use geometry::{
    AddressFormat, ChunkDescriptor, Geometry, MCCAP_EARLY_RESET, MCCAP_MULTIPLE_RESETS, MCCAP_VECTOR_COPY,
    chunk_state, chunk_type,
};
pub use notification::{ChunkNotification, LOG_ENTRIES_MAX, notification_mask, notification_state};

/// Commands (OC figures 9 and 20).
pub mod opcode {
    #![allow(missing_docs, reason = "the names are the specification's")]
    /// An admin command.
    pub const GEOMETRY: u8 = 0xE2;
    pub const VECTOR_RESET: u8 = 0x90;
    pub const VECTOR_WRITE: u8 = 0x91;
    pub const VECTOR_READ: u8 = 0x92;
    pub const VECTOR_COPY: u8 = 0x93;
}

/// Log pages.
pub mod lid {
    /// Chunk information. OCP has a page of the same number, which its UUID index selects.
    pub const CHUNK_INFORMATION: u8 = 0xCA;
    /// Chunk notifications.
    pub const CHUNK_NOTIFICATION: u8 = 0xD0;
}

/// Features.
pub mod fid {
    /// Media feedback, of a namespace.
    pub const MEDIA_FEEDBACK: u8 = 0xCA;
    /// Its bit 0 (HECC): a vector read of data that is hard to read ends with the status High ECC.
    pub const FEEDBACK_HIGH_ECC: u32 = 1;
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::submission::SubmissionEntry;
    use zerocopy::{FromBytes, IntoBytes};

    /// Goal: fields of the geometry are where the specification has them. Method: bytes by hand.
    #[test]
    fn the_bytes_of_a_geometry() {
        let geometry = Geometry {
            major: 2,
            format: AddressFormat { group_bits: 1, unit_bits: 2, chunk_bits: 6, block_bits: 12 },
            capabilities: 5.into(),
            wear_threshold: 10,
            groups: 2.into(),
            units: 4.into(),
            chunks: 60.into(),
            chunk_blocks: 4096.into(),
            write_min: 4.into(),
            write_optimal: 8.into(),
            cached_units: 24.into(),
            open_max: 0x0102_0304.into(),
            open_of_unit_max: 7.into(),
            read_typical_ns: 70_000.into(),
            read_max_ns: 100_000.into(),
            write_typical_ns: 1_900_000.into(),
            write_max_ns: 3_500_000.into(),
            reset_typical_ns: 3_000_000.into(),
            reset_max_ns: 3_000_001.into(),
            ..Geometry::default()
        };
        let bytes = geometry.as_bytes();
        assert_eq!(bytes.len(), 4096);
        assert_eq!(bytes[..20], [2, 0, 0, 0, 0, 0, 0, 0, 1, 2, 6, 12, 0, 0, 0, 0, 5, 0, 0, 0]);
        assert_eq!(bytes[32], 10);
        assert_eq!(bytes[64..76], [2, 0, 4, 0, 60, 0, 0, 0, 0, 16, 0, 0]);
        let written = [4, 0, 0, 0, 8, 0, 0, 0, 24, 0, 0, 0, 4, 3, 2, 1, 7, 0, 0, 0];
        assert_eq!(bytes[128..148], written);
        let dword = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
        let times = [192, 196, 200, 204, 208, 212].map(dword);
        assert_eq!(times, [70_000, 100_000, 1_900_000, 3_500_000, 3_000_000, 3_000_001]);
        assert!(bytes[216..].iter().all(|byte| *byte == 0));
        assert_eq!(Geometry::read_from_bytes(bytes).unwrap(), geometry);
    }

    #[test]
    fn the_bytes_of_a_chunk() {
        let state = chunk_state::OPEN;
        let chunk = ChunkDescriptor::new(state, 3, 0x1_0203, 0x0400, 0x0506);
        let expected =
            [4, 1, 3, 0, 0, 0, 0, 0, 3, 2, 1, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 6, 5, 0, 0, 0, 0, 0, 0];
        assert_eq!(chunk.as_bytes(), expected);
        assert_eq!(ChunkDescriptor::read_from_bytes(&expected).unwrap(), chunk);
    }

    /// Goal: an address is group, parallel unit, chunk and block, from its highest bit on. Method: one by hand, and what does not fit.
    #[test]
    fn the_bits_of_an_address() {
        let format = AddressFormat { group_bits: 1, unit_bits: 2, chunk_bits: 6, block_bits: 12 };
        let lba = format.encode(1, 2, 0x3b, 0xabc);
        assert_eq!(lba, 1 << 20 | 2 << 18 | 0x3b << 12 | 0xabc);
        assert_eq!((format.decode(lba), format.bits()), (Some([1, 2, 0x3b, 0xabc]), Some(21)));
        assert_eq!(format.decode(1 << 21), None, "beyond the group");
        let none = AddressFormat { block_bits: 4, ..AddressFormat::default() };
        assert_eq!((none.decode(7), none.decode(16)), (Some([0, 0, 0, 7]), None));
        let nonsense = AddressFormat { group_bits: 255, ..none };
        assert_eq!((nonsense.decode(7), nonsense.bits()), (None, None));
    }

    /// Goal: a vector command is in its dwords as in OC figure 21. Method: an entry by hand.
    #[test]
    fn a_vector_command_comes_from_its_dwords() {
        let entry = SubmissionEntry {
            cdw10: 0x8000_0001.into(),
            cdw11: 2.into(),
            cdw12: 0xffff_003f.into(),
            cdw14: 3.into(),
            cdw15: 4.into(),
            ..SubmissionEntry::default()
        };
        let command = VectorCommand::decode(&entry);
        assert_eq!(command, VectorCommand { lba: 0x2_8000_0001, count: 64, destination: 0x4_0000_0003 });
        let mut encoded = SubmissionEntry::default();
        command.encode(&mut encoded);
        assert_eq!(encoded, SubmissionEntry { cdw12: 63.into(), ..entry });
        assert_eq!(command.list_bytes(), 512);
        assert_eq!(VectorCommand { count: 1, ..command }.list_bytes(), 0, "a single one is in the dwords");
    }
}
