//! Telemetry of one subsystem: what was captured for a host that asked, and when a latency triggered the debug log.

use diecut_nvme::log_page::{SmartLog, lid};
use diecut_nvme::ocp::{
    DATA_BLOCK_BYTES, DwordRange, EventDescriptor, SmartExtended, StatisticDescriptor, TelemetryDataArea,
    TelemetryHeader, TelemetryStrings, statistic,
};
use zerocopy::IntoBytes;

/// Class of our events: the first of the vendor's.
const EVENT_CLASS: u8 = 0x80;
/// A command that took long, with its latency in microseconds.
const EVENT_SLOW: u16 = 1;

/// The block in which the debug log begins: behind the header and data area 1.
pub(crate) const DEBUG_BLOCK: u16 = AREA_1_BLOCKS + 1;
/// What data area 1 begins with takes three blocks; statistics and events take one.
const AREA_1_BLOCKS: u16 = 4;

/// What is captured of a subsystem.
pub(crate) struct Capture {
    pub smart: SmartLog,
    pub extended: SmartExtended,
    pub timestamp: u64,
    pub firmware: [u8; 8],
    pub namespaces: u64,
    /// Latency of the command that it is about, in microseconds; 0 if it is about none.
    pub latency_us: u32,
    pub debug_log: Vec<u8>,
}

/// See the module.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Telemetry {
    host: Option<Vec<u8>>,
    host_generation: u8,
    controller: Option<Vec<u8>>,
    controller_generation: u8,
    /// Why there is a capture of the controller.
    controller_reason: &'static str,
    /// Nobody has read the capture of the controller.
    is_unread: bool,
}

/// Puts data behind a header: its data areas end with whole blocks.
fn areas(capture: &Capture) -> (u16, Vec<u8>) {
    let statistics: Vec<u8> = [
        StatisticDescriptor::with(statistic::ACTIVE_NAMESPACES, capture.namespaces),
        StatisticDescriptor::with(
            statistic::PHYSICAL_MEDIA_UNITS_WRITTEN,
            capture.extended.physical_media_bytes_written.get() as u64,
        ),
        StatisticDescriptor::with(
            statistic::PHYSICAL_MEDIA_UNITS_READ,
            capture.extended.physical_media_bytes_read.get() as u64,
        ),
        StatisticDescriptor::with(statistic::UNCORRECTABLE_READS, capture.extended.uncorrectable_reads.get()),
    ]
    .concat();
    let event = EventDescriptor { class: EVENT_CLASS, id: EVENT_SLOW.into(), dwords: 1 };
    let mut events = event.as_bytes().to_vec();
    events.extend_from_slice(&capture.latency_us.to_le_bytes());
    if capture.latency_us == 0 {
        events.clear();
    }
    let start = (size_of::<TelemetryDataArea>() / 4) as u64;
    let dwords = |bytes: &[u8]| (bytes.len() / 4) as u64;
    let mut area = TelemetryDataArea {
        timestamp: capture.timestamp.into(),
        strings_dwords: dwords(&strings()).into(),
        firmware_revision: capture.firmware,
        smart: capture.smart.clone(),
        smart_extended: capture.extended.clone(),
        ..TelemetryDataArea::default()
    };
    area.statistics[0] = DwordRange { start: start.into(), size: dwords(&statistics).into() };
    area.event_areas[0] = u8::from(!events.is_empty());
    area.events[0] = DwordRange { start: (start + dwords(&statistics)).into(), size: dwords(&events).into() };
    let mut bytes = area.as_bytes().to_vec();
    bytes.extend(statistics);
    bytes.extend(events);
    assert!(
        bytes.len() <= usize::from(AREA_1_BLOCKS) * DATA_BLOCK_BYTES,
        "I-T15: data area 1 has its blocks"
    );
    bytes.resize(usize::from(AREA_1_BLOCKS) * DATA_BLOCK_BYTES, 0);
    bytes.extend_from_slice(&capture.debug_log);
    bytes.resize(bytes.len().next_multiple_of(DATA_BLOCK_BYTES), 0);
    assert!(
        bytes.len() >= usize::from(DEBUG_BLOCK - 1) * DATA_BLOCK_BYTES,
        "I-T15: the debug log is behind data area 1"
    );
    ((bytes.len() / DATA_BLOCK_BYTES) as u16, bytes)
}

/// The page of strings.
pub(crate) fn strings() -> Vec<u8> {
    TelemetryStrings::page("Slow commands", EVENT_CLASS, &[(EVENT_SLOW, "Command over a latency threshold")])
}

impl Telemetry {
    /// A host asks for a capture now.
    pub fn capture_for_host(&mut self, capture: &Capture) {
        self.host_generation = self.host_generation.wrapping_add(1);
        let (blocks, data) = areas(capture);
        assert_eq!(data.len(), usize::from(blocks) * DATA_BLOCK_BYTES, "I-T15: telemetry is whole blocks");
        self.host = Some(data);
    }

    /// Something that the controller tells of by itself: `reason`.
    pub fn capture(&mut self, capture: &Capture, reason: &'static str) {
        self.controller_generation = self.controller_generation.wrapping_add(1);
        self.controller_reason = reason;
        self.controller = Some(areas(capture).1);
        self.is_unread = true;
    }

    /// Whether there is a capture of the controller that no host has read.
    pub fn is_unread(&self) -> bool {
        self.is_unread
    }

    /// A host has read the capture of the controller, if there is one.
    pub fn read(&mut self) {
        self.is_unread = false;
    }

    /// Generations go on from those of servers before: a capture that is told of has one that no host has seen.
    pub fn skip_generations(&mut self, count: u64) {
        self.controller_generation = self.controller_generation.wrapping_add(count as u8);
    }

    /// One of the two pages, with what was captured last.
    pub fn page(&self, page: u8) -> Vec<u8> {
        let is_host = page == lid::TELEMETRY_HOST;
        let identifier = if is_host { "asked for by a host" } else { self.controller_reason };
        let data = if is_host { &self.host } else { &self.controller };
        let blocks = data.as_ref().map_or(0, |data| data.len() / DATA_BLOCK_BYTES) as u16;
        let mut reason = [0; 128];
        let len = identifier.len().min(64);
        reason[..len].copy_from_slice(&identifier.as_bytes()[..len]);
        let header = TelemetryHeader {
            log_page: page,
            last_blocks: [AREA_1_BLOCKS.min(blocks).into(), blocks.into(), blocks.into()],
            last_block_4: 0.into(),
            host_generation: if is_host { self.host_generation } else { 0 },
            controller_available: u8::from(self.controller.is_some()),
            controller_generation: self.controller_generation,
            reason,
            ..TelemetryHeader::default()
        };
        let mut bytes = header.as_bytes().to_vec();
        bytes.extend(data.iter().flatten());
        assert!(bytes.len().is_multiple_of(DATA_BLOCK_BYTES), "I-T15: telemetry is whole blocks");
        assert_eq!(
            bytes.len() / DATA_BLOCK_BYTES,
            usize::from(blocks) + 1,
            "I-T15: the header says how many blocks there are"
        );
        bytes
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use zerocopy::FromZeros;

    fn capture(debug_log: &[u8]) -> Capture {
        Capture {
            smart: SmartLog::new_zeroed(),
            extended: SmartExtended {
                physical_media_bytes_written: 0x1234.into(),
                ..SmartExtended::default()
            },
            timestamp: 5,
            firmware: *b"0.1     ",
            namespaces: 2,
            latency_us: 40_000,
            debug_log: debug_log.to_vec(),
        }
    }

    /// Goal: areas are whole blocks, and the debug log is where the page of the latency monitor says it is.
    #[test]
    fn the_debug_log_lies_where_it_is_said_to() {
        let mut telemetry = Telemetry::default();
        let empty = telemetry.page(lid::TELEMETRY_CONTROLLER);
        assert_eq!((empty.len(), empty[8], empty[10], empty[382]), (512, 0, 0, 0));
        telemetry.capture(&capture(&[b'x'; 700]), "outlier");
        telemetry.capture_for_host(&capture(b"now"));
        let page = telemetry.page(lid::TELEMETRY_CONTROLLER);
        assert_eq!((page[0], page[8], page[10], page[381], page[382], page[383]), (8, 4, 6, 0, 1, 1));
        assert_eq!(page.len(), 7 * 512);
        let debug = usize::from(DEBUG_BLOCK) * 512;
        assert_eq!(page[debug..debug + 700], [b'x'; 700]);
        assert_eq!(page[debug + 700..].iter().max(), Some(&0));
        assert_eq!(page[384..391], *b"outlier");
        // Statistics begin behind the first three blocks of data area 1, and the first of them is named.
        let area = &page[512..];
        assert_eq!(area[96..98], [0x80, 1], "384 dwords");
        assert_eq!(area[1536..1538], [0x04, 0]);
        assert_eq!(area[1552..1554], [0x1E, 0]);
        assert_eq!(area[1560..1562], [0x34, 0x12]);
        assert_eq!(area[1536 + 64..1536 + 72], [0x80, 1, 0, 1, 0x40, 0x9C, 0, 0], "40,000 us");
        let host = telemetry.page(lid::TELEMETRY_HOST);
        assert_eq!((host[0], host[381], host[383], host.len()), (7, 1, 1, 6 * 512));
    }
}
