//! What is told of even wear.

use crate::Size;
use serde::{Deserialize, Serialize};

/// Even wear: what was erased, and what is being done about it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WearStatus {
    /// Each channel, in order.
    pub channels: Vec<ChannelWear>,
    /// Erases of each die since the device was made, channel by channel.
    pub erases_per_die: Vec<u64>,
    /// Dies whose content is being exchanged.
    pub exchanges: Vec<WearExchange>,
    /// Exchanges of dies that wait.
    pub waiting: u32,
    /// Exchanges of dies finished.
    pub finished: u64,
    /// Erase blocks moved.
    pub moved_blocks: u64,
    /// Pages that could not be read on the way; who reads them is told.
    pub lost_pages: u64,
    /// Settings in force.
    #[serde(flatten)]
    pub settings: WearInForce,
}

/// Settings of even wear that are in force.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WearInForce {
    /// No further pair of erase blocks is begun.
    pub paused: bool,
    /// Bytes that exchanges may copy per second; 0: no limit.
    pub rate: Size,
    /// How many erases a channel with hot content may be ahead of the least worn quiet one now (with
    /// the literal rule: what it erased since it moved); 0: none is ever swapped.
    pub channel_threshold_erases: u64,
    /// The same of a die, where vSSDs hold single dies.
    pub die_threshold_erases: u64,
    /// Whether they follow the device's age.
    pub follow_age: bool,
    /// Cycles of an erase block, for thresholds that follow the age.
    pub endurance_cycles: u32,
    /// How far the most worn part may be ahead of the average, in thousandths, for the same.
    pub delta_permille: u32,
    /// Whether the literal rule of the FlashBlox paper is used.
    pub literal_rule: bool,
}

/// Wear of a channel, and of its content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ChannelWear {
    /// Erases for vSSDs: user data, cleaner, maps.
    pub host_erases: u64,
    /// Erases by exchanges of dies.
    pub migration_erases: u64,
    /// Erases by movement inside a die.
    pub inside_erases: u64,
    /// Erases by the journal of block states.
    pub journal_erases: u64,
    /// Erases of what lies there now since it moved there.
    pub content_erases: u64,
    /// Moving average of its erases, per day.
    pub content_erases_per_day: f64,
}

/// An exchange of what two dies hold.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WearExchange {
    /// Channel and die of both.
    pub dies: String,
    /// Erase blocks that still move.
    pub blocks_left: u64,
    /// Why it does not go on, if so.
    pub trouble: Option<String>,
}

impl WearStatus {
    /// Adds another shard's part of the same device. Settings are the same everywhere.
    pub fn merge(&mut self, other: WearStatus) {
        for (own, other) in self.channels.iter_mut().zip(other.channels) {
            own.merge(other);
        }
        for (own, other) in self.erases_per_die.iter_mut().zip(other.erases_per_die) {
            *own += other;
        }
        self.exchanges.extend(other.exchanges);
        self.waiting += other.waiting;
        self.finished += other.finished;
        self.moved_blocks += other.moved_blocks;
        self.lost_pages += other.lost_pages;
    }
}

impl ChannelWear {
    /// All erases, whatever for.
    pub fn erases(&self) -> u64 {
        self.host_erases + self.migration_erases + self.inside_erases + self.journal_erases
    }

    fn merge(&mut self, other: ChannelWear) {
        self.host_erases += other.host_erases;
        self.migration_erases += other.migration_erases;
        self.inside_erases += other.inside_erases;
        self.journal_erases += other.journal_erases;
        self.content_erases += other.content_erases;
        self.content_erases_per_day += other.content_erases_per_day;
    }
}
