//! What a zoned drive says of its zones.

use crate::capabilities::DieTimes;

/// A zone of a drive that is written in zones only. Bytes are counted from the start of the drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Zone {
    /// Its first byte.
    pub offset: u64,
    /// Bytes that can be written, from its start on; the zone may be larger.
    pub capacity_bytes: u64,
    /// Where the next write goes, or where the last one ended in a closed zone; means nothing of a conventional zone, nor of another one that takes
    /// no writes.
    pub write_pointer: u64,
    /// How it is.
    pub condition: ZoneCondition,
}

/// How a zone is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZoneCondition {
    /// Written anywhere, in any order, as any drive.
    Conventional,
    /// Nothing is written.
    Empty,
    /// Partly written, and counted by the drive among its active zones.
    Active,
    /// It takes nothing before a reset, and its write pointer says how far it is written: a chunk of an Open-Channel drive that was closed.
    Closed,
    /// Written to its end, or finished: it takes nothing before a reset.
    Full,
    /// It can be read, and never written again.
    ReadOnly,
    /// It is lost.
    Offline,
}

/// The dies of a drive that shows them (Open-Channel). Its zones are chunks: those of the first die of the first channel come first, then those of
/// the next die.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneDies {
    /// Channels (groups).
    pub channels: u16,
    /// Dies (parallel units) of each channel.
    pub dies_per_channel: u16,
    /// Zones of each die.
    pub die_zones: u32,
    /// Pages that are programmed at once (WS_MIN).
    pub program_unit_pages: u32,
    /// Pages behind one before that can be read (MW_CUNITS).
    pub cached_pages: u32,
    /// How long a die is busy, if the drive says so.
    pub times: Option<DieTimes>,
}

impl ZoneDies {
    /// Dies of all channels.
    ///
    /// # Panics
    /// If there is none.
    pub fn all(&self) -> u32 {
        let all = u32::from(self.channels) * u32::from(self.dies_per_channel);
        assert!(all > 0, "a drive that shows its dies has some");
        assert!(self.die_zones > 0, "a die has zones");
        all
    }
}
