//! Words of the Zoned Namespace Command Set (ZNS 1.1; random write areas: TP 4076a, now in ZNS 1.1 section 2.1.1.6).

mod changed;
mod command;
mod identify;
mod report;

pub use changed::*;
pub use command::{ZoneAppend, ZoneManagementReceive, ZoneManagementSend};
pub use identify::*;
pub use report::*;

/// Command set identifier (Base 2.0 figure 274).
pub const CSI_ZONED: u8 = 2;

/// I/O commands (ZNS 1.1 figure 25).
pub mod opcode {
    #![allow(missing_docs, reason = "the names are the specification's")]
    pub const ZONE_MANAGEMENT_SEND: u8 = 0x79;
    pub const ZONE_MANAGEMENT_RECEIVE: u8 = 0x7A;
    pub const ZONE_APPEND: u8 = 0x7D;
}

/// Actions of Zone Management Send (ZNS 1.1 figure 33).
pub mod send_action {
    #![allow(missing_docs, reason = "the names are the specification's")]
    pub const CLOSE: u8 = 0x01;
    pub const FINISH: u8 = 0x02;
    pub const OPEN: u8 = 0x03;
    pub const RESET: u8 = 0x04;
    pub const OFFLINE: u8 = 0x05;
    pub const SET_DESCRIPTOR_EXTENSION: u8 = 0x10;
    pub const FLUSH_RANDOM_AREA: u8 = 0x11;
}

/// Actions of Zone Management Receive (ZNS 1.1 figure 27).
pub mod receive_action {
    #![allow(missing_docs, reason = "the names are the specification's")]
    pub const REPORT: u8 = 0x00;
    pub const EXTENDED_REPORT: u8 = 0x01;
}

/// States of zones, as ZS of a descriptor has them (ZNS 1.1 figure 30).
pub mod zone_state {
    #![allow(missing_docs, reason = "the names are the specification's")]
    pub const EMPTY: u8 = 0x1;
    pub const IMPLICITLY_OPEN: u8 = 0x2;
    pub const EXPLICITLY_OPEN: u8 = 0x3;
    pub const CLOSED: u8 = 0x4;
    pub const READ_ONLY: u8 = 0xD;
    pub const FULL: u8 = 0xE;
    pub const OFFLINE: u8 = 0xF;
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::submission::SubmissionEntry;
    use zerocopy::IntoBytes;

    /// Goal: fields are where the figures put them. Method: dwords as `nvme zns` sends them, written by hand.
    #[test]
    fn commands_come_from_their_dwords() {
        let entry = SubmissionEntry {
            cdw10: 0x8000_0000.into(),
            cdw11: 0x1.into(),
            cdw12: 0x3ff.into(),
            cdw13: 0x0001_0401.into(),
            ..SubmissionEntry::default()
        };
        let receive = ZoneManagementReceive::decode(&entry);
        let expected = ZoneManagementReceive {
            lba: 0x1_8000_0000,
            length_bytes: 4096,
            action: 1,
            filter: 4,
            partial: true,
        };
        assert_eq!(receive, expected);
        let mut encoded = SubmissionEntry::default();
        receive.encode(&mut encoded);
        assert_eq!(encoded, entry);

        let entry = SubmissionEntry { cdw12: 0.into(), cdw13: 0x0000_0303.into(), ..entry };
        let send = ZoneManagementSend::decode(&entry);
        let expected = ZoneManagementSend { lba: 0x1_8000_0000, action: 3, select_all: true, option: true };
        assert_eq!(send, expected);
        let mut encoded = SubmissionEntry::default();
        send.encode(&mut encoded);
        assert_eq!(encoded, entry);

        let entry = SubmissionEntry { cdw12: 0x3FF0_0007.into(), cdw13: 0.into(), ..entry };
        let append = ZoneAppend::decode(&entry);
        assert_eq!((append.zone_lba, append.count, append.protection), (0x1_8000_0000, 8, 0x1F));
        assert!(append.storage_tag_check && append.directive_type == 15);
        let mut encoded = SubmissionEntry { cdw12: 0.into(), ..entry };
        append.encode(&mut encoded);
        assert_eq!(encoded, entry, "an append loses nothing on its way");
    }

    /// Goal: the bytes of a descriptor are those of the figure.
    #[test]
    fn the_bytes_of_a_descriptor() {
        let descriptor = ZoneDescriptor::new(0xE, ZA_EXTENSION, 0x0102, 0x0304, 0x0506);
        let bytes = descriptor.as_bytes();
        assert_eq!(bytes[..8], [2, 0xE0, 0x80, 0, 0, 0, 0, 0]);
        assert_eq!(bytes[8..16], [2, 1, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes[16..32], [4, 3, 0, 0, 0, 0, 0, 0, 6, 5, 0, 0, 0, 0, 0, 0]);
        assert_eq!(ReportHeader::new(7).as_bytes()[..9], [7, 0, 0, 0, 0, 0, 0, 0, 0]);
        let page = IdentifyZonedNamespace {
            mar: 13.into(),
            zrwasz: 0x0203.into(),
            lbafe: [LbaFormatExtension::new(0x1_0000, 1); 64],
            ..IdentifyZonedNamespace::default()
        };
        let bytes = page.as_bytes();
        assert_eq!((bytes[4], bytes[50], bytes[51]), (13, 3, 2));
        assert_eq!(bytes[2816..2826], [0, 0, 1, 0, 0, 0, 0, 0, 1, 0]);
    }
}
