use super::guid;
use super::latency_configuration::{BUCKETS, Bucket, CommandKind, LatencyStamp, TriggerBits};
use std::mem::offset_of;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The longest latency that a field holds, in milliseconds.
pub const MEASURED_MAX_MS: u16 = u16::MAX;
/// Feature status: the monitor is enabled.
pub const STATUS_ENABLED: u8 = 1 << 0;
/// Feature status: latency mode 1 is there.
pub const STATUS_MODE_1: u8 = 1 << 1;
/// Feature status: measured latencies are there.
pub const STATUS_MEASURED: u8 = 1 << 2;

/// What is told of active or static buckets: 186 bytes of the log page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct LatencySide {
    /// By bucket; within each: reserved, deallocations, writes, reads.
    counters: [[U32; 4]; BUCKETS],
    /// By bucket, the last one first; within each: deallocations, writes, reads.
    stamps: [[U64; 3]; BUCKETS],
    /// As stamps.
    measured: [[U16; 3]; BUCKETS],
    /// What stamps are ([`TriggerBits`]): 1 where a host said what time it is.
    pub stamp_units: U16,
}

const _: () = assert!(size_of::<LatencySide>() == 0xDA - 0x20);

impl Default for LatencySide {
    /// Nothing counted, and no time.
    fn default() -> LatencySide {
        LatencySide { stamps: [[LatencyStamp::INVALID.0.into(); 3]; BUCKETS], ..LatencySide::new_zeroed() }
    }
}

impl LatencySide {
    fn place(bucket: Bucket, kind: CommandKind) -> (usize, usize) {
        (BUCKETS - 1 - bucket.index(), 2 - kind.index())
    }

    /// How often it came.
    pub fn counter(&self, bucket: Bucket, kind: CommandKind) -> u32 {
        self.counters[bucket.index()][3 - kind.index()].get()
    }

    /// Counts one more, as far as it can be counted.
    pub fn count(&mut self, bucket: Bucket, kind: CommandKind) {
        let counter = &mut self.counters[bucket.index()][3 - kind.index()];
        *counter = counter.get().saturating_add(1).into();
    }

    /// The latency that is kept, in milliseconds, and when it was.
    pub fn measured(&self, bucket: Bucket, kind: CommandKind) -> (u16, LatencyStamp) {
        let (bucket, kind) = LatencySide::place(bucket, kind);
        (self.measured[bucket][kind].get(), LatencyStamp(self.stamps[bucket][kind].get()))
    }

    /// Keeps a latency with its time.
    pub fn keep(&mut self, bucket: Bucket, kind: CommandKind, ms: u16, stamp: LatencyStamp, by_host: bool) {
        let bit = TriggerBits::of(bucket, kind).0;
        let units = self.stamp_units.get() & !bit;
        self.stamp_units = (units | if by_host { bit } else { 0 }).into();
        let (bucket, kind) = LatencySide::place(bucket, kind);
        self.measured[bucket][kind] = ms.into();
        self.stamps[bucket][kind] = stamp.0.into();
    }
}

/// Latency monitor, LID C3h, 512 bytes (OCP 2.5 section 4.8.8).
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct LatencyLog {
    /// [`STATUS_ENABLED`] and others.
    pub feature_status: u8,
    #[doc(hidden)]
    pub reserved_1: u8,
    /// Units of five minutes since active buckets began.
    pub timer: U16,
    /// See [`timer_threshold`](super::LatencyConfiguration::timer_threshold).
    pub timer_threshold: U16,
    /// See [`thresholds`](super::LatencyConfiguration::thresholds).
    pub thresholds: [u8; BUCKETS],
    /// See [`modes`](super::LatencyConfiguration::modes).
    pub modes: U16,
    /// See [`minimum_window`](super::LatencyConfiguration::minimum_window).
    pub minimum_window: u8,
    #[doc(hidden)]
    pub reserved_13: [u8; 0x13],
    /// What is counted at present.
    pub active: LatencySide,
    #[doc(hidden)]
    pub reserved_218: [u8; 0x16],
    /// What was counted when the timer last ran out.
    pub static_: LatencySide,
    #[doc(hidden)]
    pub reserved_426: [u8; 0x0A],
    /// Bytes of the debug log.
    pub debug_size: [u8; 12],
    /// See [`debug_trigger`](super::LatencyConfiguration::debug_trigger).
    pub debug_trigger: U16,
    /// Latency that triggered the debug log, in milliseconds.
    pub debug_measured: U16,
    /// When that was.
    pub debug_stamp: U64,
    /// Block of the telemetry log in which the debug log begins.
    pub debug_pointer: U16,
    /// What triggered it ([`TriggerBits`]).
    pub debug_source: U16,
    /// 1: a host said what time it is.
    pub debug_units: u8,
    #[doc(hidden)]
    pub reserved_465: [u8; 0x1D],
    #[doc(hidden)]
    pub log_version: U16,
    #[doc(hidden)]
    pub guid: [u8; 16],
}

const _: () = {
    assert!(size_of::<LatencyLog>() == 512);
    assert!(offset_of!(LatencyLog, active) == 0x20);
    assert!(offset_of!(LatencyLog, static_) == 0xF0);
    assert!(offset_of!(LatencyLog, debug_size) == 0x1B4);
    assert!(offset_of!(LatencyLog, debug_trigger) == 0x1C0);
    assert!(offset_of!(LatencyLog, debug_stamp) == 0x1C4);
    assert!(offset_of!(LatencyLog, debug_units) == 0x1D0);
    assert!(offset_of!(LatencyLog, log_version) == 0x1EE);
};

impl LatencyLog {
    /// What the page is known by.
    pub const GUID: [u8; 16] = guid(0x85D4_5E58_D4E6_4370_9C6C_84D0_8CC0_7A92);
    /// Version of the page. nvme-cli 2.3 takes no other one; later ones show the size of the debug log from version 4 on.
    pub const LOG_VERSION: u16 = 1;
}

impl Default for LatencyLog {
    fn default() -> LatencyLog {
        LatencyLog {
            active: LatencySide::default(),
            static_: LatencySide::default(),
            debug_stamp: LatencyStamp::INVALID.0.into(),
            log_version: LatencyLog::LOG_VERSION.into(),
            guid: LatencyLog::GUID,
            ..LatencyLog::new_zeroed()
        }
    }
}

#[cfg(test)]
mod test {
    use super::*;

    /// By hand from the tables of the specification: counters go up by bucket, stamps go down, reads come last in both.
    #[test]
    fn the_bytes_of_a_page() {
        let mut page = LatencyLog { feature_status: 7, timer: 0x0102.into(), ..LatencyLog::default() };
        page.active.count(Bucket::ALL[0], CommandKind::Read);
        page.active.count(Bucket::ALL[3], CommandKind::Deallocate);
        page.active.keep(Bucket::ALL[3], CommandKind::Read, 0x0A0B, LatencyStamp(0x11), true);
        page.active.keep(Bucket::ALL[0], CommandKind::Deallocate, 0x0C0D, LatencyStamp(0x22), false);
        page.static_.count(Bucket::ALL[1], CommandKind::Write);
        page.debug_pointer = 5.into();
        let bytes = page.as_bytes();
        assert_eq!((bytes[0], bytes[2], bytes[3]), (7, 2, 1));
        assert_eq!(bytes[0x2C..0x30], [1, 0, 0, 0], "bucket 0, reads");
        assert_eq!(bytes[0x54..0x58], [1, 0, 0, 0], "bucket 3, deallocations");
        assert_eq!(bytes[0x70..0x78], [0x11, 0, 0, 0, 0, 0, 0, 0], "bucket 3 comes first, reads last");
        assert_eq!(
            bytes[0xA8..0xB0],
            [0x22, 0, 0, 0, 0, 0, 0, 0],
            "bucket 0 comes last, deallocations first"
        );
        assert_eq!(bytes[0x60..0x68], [0xFF; 8], "no time");
        assert_eq!(bytes[0xC4..0xC6], [0x0B, 0x0A]);
        assert_eq!(bytes[0xD2..0xD4], [0x0D, 0x0C]);
        assert_eq!(bytes[0xD8..0xDA], [0, 2], "bit 9: reads of bucket 3");
        assert_eq!(bytes[0x108..0x10C], [1, 0, 0, 0], "static bucket 1, writes");
        assert_eq!(bytes[0x1CC..0x1CE], [5, 0]);
        assert_eq!((bytes[0x1EE], bytes[0x1F0], bytes[0x1FF]), (1, 0x92, 0x85));
        assert_eq!(page.active.measured(Bucket::ALL[3], CommandKind::Read), (0x0A0B, LatencyStamp(0x11)));
        assert_eq!(LatencyStamp::new(1, true).0, 1 | 1 << 49);
    }
}
