//! A shard's place among those of one server.

/// A shard of the server; one per core.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardIndex(pub u16);

/// A shard's place among those of one server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seat {
    /// Which one it is, from 0.
    pub index: ShardIndex,
    /// How many there are.
    pub shards: u16,
}

impl Seat {
    /// That of the only shard.
    pub const ONLY: Seat = Seat { index: ShardIndex(0), shards: 1 };
}
