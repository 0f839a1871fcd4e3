use super::{SmartExtended, guid};
use crate::log_page::SmartLog;
use std::mem::offset_of;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// A block of telemetry: data areas are whole blocks.
pub const DATA_BLOCK_BYTES: usize = 512;

/// Header of telemetry, host-initiated (LID 07h) or controller-initiated (LID 08h), 512 bytes (Base 2.0 figures 222 and 225).
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct TelemetryHeader {
    /// Which of the two.
    pub log_page: u8,
    #[doc(hidden)]
    pub reserved_1: [u8; 4],
    #[doc(hidden)]
    pub ieee: [u8; 3],
    /// Last blocks of data areas 1 to 3; the header is block 0.
    pub last_blocks: [U16; 3],
    #[doc(hidden)]
    pub reserved_14: [u8; 2],
    /// Last block of data area 4.
    pub last_block_4: U32,
    #[doc(hidden)]
    pub reserved_20: [u8; 361],
    /// Rises with each capture for a host; 0 in controller-initiated telemetry.
    pub host_generation: u8,
    /// Controller-initiated data are there.
    pub controller_available: u8,
    /// Rises with each controller-initiated capture.
    pub controller_generation: u8,
    /// Why, for people.
    pub reason: [u8; 128],
}

const _: () = {
    assert!(size_of::<TelemetryHeader>() == DATA_BLOCK_BYTES);
    assert!(offset_of!(TelemetryHeader, last_blocks) == 8);
    assert!(offset_of!(TelemetryHeader, host_generation) == 381);
    assert!(offset_of!(TelemetryHeader, reason) == 384);
};

impl Default for TelemetryHeader {
    fn default() -> TelemetryHeader {
        TelemetryHeader::new_zeroed()
    }
}

/// Start and size of something in a data area, in dwords.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct DwordRange {
    /// From the start of its data area.
    pub start: U64,
    /// How long.
    pub size: U64,
}

/// What data area 1 begins with, 1536 bytes (OCP 2.5 section 4.9.2).
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct TelemetryDataArea {
    #[doc(hidden)]
    pub version: [U16; 2],
    #[doc(hidden)]
    pub reserved_4: [u8; 4],
    /// As of the Timestamp feature.
    pub timestamp: U64,
    #[doc(hidden)]
    pub guid: [u8; 16],
    /// Telemetry profiles: how many, and which.
    pub profiles: [u8; 2],
    #[doc(hidden)]
    pub reserved_34: [u8; 6],
    /// Dwords of the page of strings.
    pub strings_dwords: U64,
    #[doc(hidden)]
    pub reserved_48: [u8; 8],
    /// Firmware, ASCII.
    pub firmware_revision: [u8; 8],
    #[doc(hidden)]
    pub reserved_64: [u8; 32],
    /// Statistics of data areas 1 and 2.
    pub statistics: [DwordRange; 2],
    #[doc(hidden)]
    pub reserved_128: [u8; 32],
    /// Data area of each queue of events; 0 for none.
    pub event_areas: [u8; 16],
    /// Queues of events.
    pub events: [DwordRange; 16],
    #[doc(hidden)]
    pub reserved_432: [u8; 80],
    /// SMART / health information.
    pub smart: SmartLog,
    /// The same, extended.
    pub smart_extended: SmartExtended,
}

const _: () = {
    assert!(size_of::<TelemetryDataArea>() == 3 * DATA_BLOCK_BYTES);
    assert!(offset_of!(TelemetryDataArea, statistics) == 96);
    assert!(offset_of!(TelemetryDataArea, event_areas) == 160);
    assert!(offset_of!(TelemetryDataArea, events) == 176);
    assert!(offset_of!(TelemetryDataArea, smart) == 512);
};

impl TelemetryDataArea {
    /// What it is known by.
    pub const GUID: [u8; 16] = guid(0xBA56_0A9C_3043_424C_BC73_719D_87E6_4EFA);
}

impl Default for TelemetryDataArea {
    fn default() -> TelemetryDataArea {
        TelemetryDataArea {
            version: [3.into(), 1.into()],
            guid: TelemetryDataArea::GUID,
            ..TelemetryDataArea::new_zeroed()
        }
    }
}

/// Statistics that telemetry names (OCP 2.5 table of statistic identifiers).
pub mod statistic {
    #![allow(missing_docs, reason = "the names are the specification's")]
    pub const ACTIVE_NAMESPACES: u16 = 0x04;
    pub const PHYSICAL_MEDIA_UNITS_WRITTEN: u16 = 0x1E;
    pub const PHYSICAL_MEDIA_UNITS_READ: u16 = 0x1F;
    pub const UNCORRECTABLE_READS: u16 = 0x23;
}

/// What stands before the data of a statistic, 8 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct StatisticDescriptor {
    /// See [`statistic`].
    pub id: U16,
    #[doc(hidden)]
    pub behavior: u8,
    #[doc(hidden)]
    pub namespace: u8,
    /// Dwords of data.
    pub dwords: U16,
    #[doc(hidden)]
    pub reserved_6: U16,
}

impl StatisticDescriptor {
    /// A statistic with its value.
    pub fn with(id: u16, value: u64) -> [u8; 16] {
        let descriptor = StatisticDescriptor {
            id: id.into(),
            behavior: 0,
            namespace: 0,
            dwords: 2.into(),
            reserved_6: 0.into(),
        };
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(descriptor.as_bytes());
        bytes[8..].copy_from_slice(&value.to_le_bytes());
        bytes
    }
}

/// What stands before the data of an event, 4 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct EventDescriptor {
    /// Its class; from 80h on the vendor's.
    pub class: u8,
    /// Which event of the class.
    pub id: U16,
    /// Dwords of data.
    pub dwords: u8,
}

/// Telemetry strings, LID C9h: 432 bytes, then tables (OCP 2.5 section 4.9.4). Names of events of the vendor's.
pub struct TelemetryStrings;

impl TelemetryStrings {
    /// What the page is known by.
    pub const GUID: [u8; 16] = guid(0xB13A_8369_1A8F_408B_9EA4_9594_0057_AA44);
    const HEADER_BYTES: usize = 432;
    const ENTRY_BYTES: usize = 16;

    /// A page with the name of the first queue of events, and the names of events of the vendor's class.
    pub fn page(queue: &str, class: u8, events: &[(u16, &str)]) -> Vec<u8> {
        let table_dwords = events.len() * TelemetryStrings::ENTRY_BYTES / 4;
        let text: String = events.iter().map(|(_, name)| *name).collect();
        let text_dwords = text.len().div_ceil(4);
        let header_dwords = TelemetryStrings::HEADER_BYTES / 4;
        let all_dwords = header_dwords + table_dwords + text_dwords;
        let mut page = vec![0; all_dwords * 4];
        page[0] = 1;
        page[16..32].copy_from_slice(&TelemetryStrings::GUID);
        let mut put =
            |at: usize, dwords: usize| page[at..at + 8].copy_from_slice(&(dwords as u64).to_le_bytes());
        put(32, all_dwords);
        // Statistics, events and events of the vendor: start and size of each; then the text.
        let tables = [(64, 0), (80, table_dwords), (96, 0)];
        let mut at_dword = header_dwords;
        for (at, dwords) in tables {
            put(at, at_dword);
            put(at + 8, dwords);
            at_dword += dwords;
        }
        put(112, at_dword);
        put(120, text_dwords);
        let len = queue.len().min(16);
        page[128..144].fill(b' ');
        page[128..128 + len].copy_from_slice(&queue.as_bytes()[..len]);
        let mut text_at = 0u64;
        for (nth, (id, name)) in events.iter().enumerate() {
            let entry = &mut page[TelemetryStrings::HEADER_BYTES + nth * TelemetryStrings::ENTRY_BYTES..];
            entry[0] = class;
            entry[1..3].copy_from_slice(&id.to_le_bytes());
            entry[3] = name.len() as u8;
            entry[4..12].copy_from_slice(&text_at.to_le_bytes());
            text_at += name.len() as u64;
        }
        let at = (header_dwords + table_dwords) * 4;
        page[at..at + text.len()].copy_from_slice(text.as_bytes());
        page
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn the_bytes_of_telemetry() {
        let header = TelemetryHeader {
            log_page: 7,
            last_blocks: [4.into(), 9.into(), 9.into()],
            host_generation: 3,
            controller_available: 1,
            controller_generation: 2,
            ..TelemetryHeader::default()
        };
        let bytes = header.as_bytes();
        assert_eq!(bytes[..16], [7, 0, 0, 0, 0, 0, 0, 0, 4, 0, 9, 0, 9, 0, 0, 0]);
        assert_eq!(bytes[381..384], [3, 1, 2]);
        let area = TelemetryDataArea::default();
        assert_eq!(area.as_bytes()[16..20], [0xFA, 0x4E, 0xE6, 0x87]);
        assert_eq!(
            StatisticDescriptor::with(statistic::PHYSICAL_MEDIA_UNITS_WRITTEN, 0x0102),
            [0x1E, 0, 0, 0, 2, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0]
        );
        let event = EventDescriptor { class: 0x80, id: 0x0102.into(), dwords: 3 };
        assert_eq!(event.as_bytes(), [0x80, 2, 1, 3]);
    }

    /// The tables lie one behind the other, and the text of the second event begins where that of the first one ends.
    #[test]
    fn the_bytes_of_strings() {
        let page = TelemetryStrings::page("Latency", 0x80, &[(1, "Slow"), (2, "Around it")]);
        let number = |at: usize| u64::from_le_bytes(page[at..at + 8].try_into().expect("eight bytes"));
        assert_eq!((page[0], page[16], page[31]), (1, 0x44, 0xB1));
        assert_eq!(number(32), (432 + 32 + 16) / 4, "all of it");
        assert_eq!((number(64), number(72)), (108, 0), "no statistics");
        assert_eq!((number(80), number(88)), (108, 8), "events");
        assert_eq!((number(96), number(104)), (116, 0), "none of the vendor's table");
        assert_eq!((number(112), number(120)), (116, 4), "text");
        assert_eq!(page[128..144], *b"Latency         ");
        assert_eq!(page[432..448], [0x80, 1, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(page[448..464], [0x80, 2, 0, 9, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(page[464..477], *b"SlowAround it");
    }
}
