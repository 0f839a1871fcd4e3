use std::mem::offset_of;
use zerocopy::little_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Buckets of latency.
pub const BUCKETS: usize = 4;
/// Thresholds count so many milliseconds, 0's based.
pub const COUNTER_INCREMENT_MS: u64 = 5;
/// The timer counts so many seconds.
pub const TIMER_INCREMENT_S: u64 = 300;
/// The minimum window counts so many milliseconds.
pub const WINDOW_INCREMENT_MS: u64 = 100;

/// A bucket, from 0: those between thresholds A and B, to 3: those of D and more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bucket(u8);

impl Bucket {
    /// All of them.
    pub const ALL: [Bucket; BUCKETS] = [Bucket(0), Bucket(1), Bucket(2), Bucket(3)];

    /// Its number.
    pub fn index(self) -> usize {
        self.0.into()
    }
}

/// Commands that are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CommandKind {
    /// Read.
    Read,
    /// Write.
    Write,
    /// Dataset Management.
    Deallocate,
}

impl CommandKind {
    /// All of them, in the order of bits.
    pub const ALL: [CommandKind; 3] = [CommandKind::Read, CommandKind::Write, CommandKind::Deallocate];

    /// Its bit in a group of three, and the place of its counter from the end.
    pub fn index(self) -> usize {
        self as usize
    }
}

/// One bit for each kind of command of each bucket: three for bucket 0, from bit 0 on, then three for the next one. Within three: read, write,
/// deallocation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TriggerBits(pub u16);

impl TriggerBits {
    /// All that there are.
    pub const ALL: TriggerBits = TriggerBits(0xFFF);

    /// The one bit.
    pub fn of(bucket: Bucket, kind: CommandKind) -> TriggerBits {
        TriggerBits(1 << (bucket.index() * 3 + kind.index()))
    }

    /// Whether it is set.
    pub fn has(self, bucket: Bucket, kind: CommandKind) -> bool {
        self.0 & TriggerBits::of(bucket, kind).0 != 0
    }
}

/// A time as the Timestamp feature writes it: 48 bits of milliseconds, then how they came about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LatencyStamp(pub u64);

impl LatencyStamp {
    /// No time.
    pub const INVALID: LatencyStamp = LatencyStamp(u64::MAX);

    /// Milliseconds, since the epoch where a host said what time it is, else since power-on.
    pub fn new(ms: u64, is_set_by_host: bool) -> LatencyStamp {
        LatencyStamp((ms & 0xFFFF_FFFF_FFFF) | u64::from(is_set_by_host) << 49)
    }
}

/// What Set Features of the latency monitor says, feature C5h: 4096 bytes, of which 13 are used (OCP 2.5 section 4.15.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct LatencyConfiguration {
    /// After so many units of five minutes active values become static.
    pub timer_threshold: U16,
    /// Thresholds A to D, 0's based in units of 5 ms.
    pub thresholds: [u8; BUCKETS],
    /// Mode of each kind of each bucket ([`TriggerBits`]): 0 keeps the first latency, 1 the largest.
    pub modes: U16,
    /// In mode 1, after a latency was kept, none is for so many units of 100 ms.
    pub minimum_window: u8,
    /// What of the counters triggers the debug log ([`TriggerBits`]).
    pub debug_trigger: U16,
    /// 1: only discard the debug log.
    pub discard_debug: u8,
    /// 1: the monitor is enabled.
    pub enable: u8,
}

const _: () = {
    assert!(size_of::<LatencyConfiguration>() == LatencyConfiguration::USED_BYTES);
    assert!(offset_of!(LatencyConfiguration, modes) == 6);
    assert!(offset_of!(LatencyConfiguration, debug_trigger) == 9);
    assert!(offset_of!(LatencyConfiguration, enable) == 12);
};

impl LatencyConfiguration {
    /// What hosts send and get.
    pub const SIZE_BYTES: usize = 4096;
    /// What of it says something.
    pub const USED_BYTES: usize = 13;

    /// From what a host sent; nothing if that is too short, or if what is reserved is not zero.
    pub fn decode(bytes: &[u8]) -> Option<LatencyConfiguration> {
        let (used, rest) = LatencyConfiguration::read_from_prefix(bytes).ok()?;
        (bytes.len() >= LatencyConfiguration::SIZE_BYTES && rest.iter().all(|byte| *byte == 0))
            .then_some(used)
    }

    /// As hosts get it.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; LatencyConfiguration::SIZE_BYTES];
        bytes[..LatencyConfiguration::USED_BYTES].copy_from_slice(self.as_bytes());
        bytes
    }

    /// Threshold of a bucket, in milliseconds.
    pub fn threshold_ms(&self, bucket: Bucket) -> u64 {
        (u64::from(self.thresholds[bucket.index()]) + 1) * COUNTER_INCREMENT_MS
    }

    /// The bucket of a latency in milliseconds; nothing below the first threshold.
    pub fn bucket_of(&self, ms: u64) -> Option<Bucket> {
        Bucket::ALL.into_iter().rev().find(|bucket| ms >= self.threshold_ms(*bucket))
    }

    /// Whether it can be in force: thresholds that rise, a timer that runs, no bits that say nothing.
    pub fn is_sound(&self) -> bool {
        let rises = self.thresholds.windows(2).all(|pair| pair[0] < pair[1]);
        let bits = |value: u16| value & !TriggerBits::ALL.0 == 0;
        rises
            && self.timer_threshold.get() > 0
            && bits(self.modes.get())
            && bits(self.debug_trigger.get())
            && self.enable <= 1
    }
}

impl Default for LatencyConfiguration {
    /// What nvme-cli sends if nothing else is said: 30, 100, 155 and 235 ms, a week, the largest of each second.
    fn default() -> LatencyConfiguration {
        LatencyConfiguration {
            timer_threshold: 0x7E0.into(),
            thresholds: [0x05, 0x13, 0x1E, 0x2E],
            modes: TriggerBits::ALL.0.into(),
            minimum_window: 10,
            debug_trigger: 0.into(),
            discard_debug: 0,
            enable: 1,
        }
    }
}

#[cfg(test)]
mod test {
    use super::*;

    /// What `nvme ocp set-latency-monitor-feature` sends without options.
    #[test]
    fn the_bytes_of_a_configuration() {
        let mut bytes = vec![0; 4096];
        bytes[..13].copy_from_slice(&[0xE0, 0x07, 0x05, 0x13, 0x1E, 0x2E, 0xFF, 0x0F, 0x0A, 0, 0, 0, 1]);
        let configuration = LatencyConfiguration::decode(&bytes).expect("it is whole");
        assert_eq!(configuration, LatencyConfiguration::default());
        assert_eq!(configuration.encode(), bytes);
        let thresholds = Bucket::ALL.map(|bucket| configuration.threshold_ms(bucket));
        assert_eq!(thresholds, [30, 100, 155, 235]);
        for (ms, bucket) in
            [(29, None), (30, Some(0)), (99, Some(0)), (100, Some(1)), (234, Some(2)), (9999, Some(3))]
        {
            assert_eq!(configuration.bucket_of(ms).map(Bucket::index), bucket, "{ms} ms");
        }
        assert!(configuration.is_sound());
        assert!(LatencyConfiguration::decode(&bytes[..4095]).is_none());
        bytes[4095] = 1;
        assert!(LatencyConfiguration::decode(&bytes).is_none());
        let bad = [
            LatencyConfiguration { thresholds: [5, 5, 6, 7], ..configuration },
            LatencyConfiguration { timer_threshold: 0.into(), ..configuration },
            LatencyConfiguration { modes: 0x1000.into(), ..configuration },
            LatencyConfiguration { debug_trigger: 0x8000.into(), ..configuration },
            LatencyConfiguration { enable: 2, ..configuration },
        ];
        assert!(bad.iter().all(|one| !one.is_sound()));
    }
}
