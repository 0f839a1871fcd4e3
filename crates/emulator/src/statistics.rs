//! What a device did.

/// Counts of one die since the emulator was made or opened, unless said otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DieStatistics {
    /// Read commands, of content or OOB areas.
    pub reads: u64,
    /// Program units programmed by programs and copies, failed ones included.
    pub program_units: u64,
    /// Erases, failed ones included.
    pub erases: u64,
    /// Bytes of content that crossed the bus out of the die.
    pub read_bytes: u64,
    /// Bytes of content programmed.
    pub programmed_bytes: u64,
    /// Time the array was at work, in nanoseconds.
    pub array_busy_ns: u64,
    /// Time with at least one command, in nanoseconds, until one last ended: the array is at work, or what it read or is to
    /// program is on the bus, or waits for it.
    pub busy_ns: u64,
}

impl DieStatistics {
    /// Adds another die's counts.
    pub fn add(&mut self, other: &DieStatistics) {
        self.reads += other.reads;
        self.program_units += other.program_units;
        self.erases += other.erases;
        self.read_bytes += other.read_bytes;
        self.programmed_bytes += other.programmed_bytes;
        self.array_busy_ns += other.array_busy_ns;
        self.busy_ns += other.busy_ns;
    }
}
