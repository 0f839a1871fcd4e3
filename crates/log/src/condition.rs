//! Whether the log may write, and why not.

/// Why nothing more is written when the vSSD says so.
pub(crate) const NO_GOOD_BLOCKS: &str = "the vSSD has used up its reserve of good erase blocks";

/// Why nothing more is written when a flush failed.
pub(crate) const FLUSH_FAILED: &str = "the drive could not make durable what was written to it";

/// Why nothing is written while the medium has no room.
pub(crate) const NO_ROOM: &str = "the file system under the device is full";

/// Why nothing more is written when a counter came to its end, or the medium says so.
pub(crate) const COUNTERS_USED_UP: &str =
    "the store's sequence numbers are used up: copy its data to a new vSSD";

/// What ended for good. What began stays: there is no way back but another opening.
#[derive(Debug, Default)]
pub(crate) struct Condition {
    read_only: Option<&'static str>,
    keeps_all: bool,
    is_gone: bool,
}

impl Condition {
    /// Takes no more appends; the first reason counts.
    pub fn end_writes(&mut self, reason: &'static str) {
        self.read_only.get_or_insert(reason);
    }

    /// Why no more is written.
    pub fn read_only(&self) -> Option<&'static str> {
        self.read_only
    }

    /// Takes no more appends, and changes nothing on the medium.
    pub fn keep_all(&mut self, reason: &'static str) {
        self.end_writes(reason);
        self.keeps_all = true;
    }

    /// Whether nothing on the medium is to change.
    pub fn keeps_all(&self) -> bool {
        self.keeps_all
    }

    /// The power is gone.
    pub fn lose_power(&mut self) {
        self.is_gone = true;
    }

    /// Whether the power is gone.
    pub fn is_gone(&self) -> bool {
        self.is_gone
    }
}
