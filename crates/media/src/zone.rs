//! What a zoned drive says of its zones.

/// A zone of a drive that is written in zones only. Bytes are counted from the start of the drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Zone {
    /// Its first byte.
    pub offset: u64,
    /// Bytes that can be written, from its start on; the zone may be larger.
    pub capacity_bytes: u64,
    /// Where the next write goes; means nothing of a conventional zone, nor of one that takes no writes.
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
    /// Written to its end, or finished: it takes nothing before a reset.
    Full,
    /// It can be read, and never written again.
    ReadOnly,
    /// It is lost.
    Offline,
}
