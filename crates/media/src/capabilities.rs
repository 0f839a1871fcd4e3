use diecut_units::ContentMode;

/// What a medium can do beyond its geometry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Pages (over all planes) that one program command writes; an erase block is a whole number of them.
    pub program_unit_pages: u32,
    /// How many of the most recently programmed units of an open erase block a power cut can still destroy.
    /// A unit is safe once this many more units were programmed after it, or the block is full.
    /// Only a flush says more where [`Capabilities::volatile_cache`] holds.
    pub unsafe_units: u32,
    /// Whether only a flush ([`crate::Media::flush`]) makes programs survive a power cut: what was programmed since the last one that is
    /// complete may be gone, any subset of its sectors of 512 bytes.
    pub volatile_cache: bool,
    /// Whether dies work independently of each other; `false` for a drive behind a translation layer.
    pub independent_units: bool,
    /// Whether pages can be copied within a die without crossing the channel.
    pub copy_within_die: bool,
    /// Whether a read interrupts a program or erase that is under way on its die, if nothing else stands before it there.
    pub suspends: bool,
    /// Erase blocks per die that can run in SLC mode (synchronous log without protected memory); 0 if none.
    pub slc_blocks_per_die: u32,
    /// What stands for the content of an IU of user data.
    pub content_mode: ContentMode,
    /// Program/erase cycles an erase block is made for; 0 if unknown.
    pub endurance_cycles: u32,
    /// Time that its operations keep a die busy; `None` if unknown.
    pub die_times: Option<DieTimes>,
}

/// Time that operations keep a die busy, averaged over an erase block. What crosses the channel stands apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DieTimes {
    /// One page read, in nanoseconds.
    pub read_page_ns: u64,
    /// One program unit, in nanoseconds.
    pub program_unit_ns: u64,
    /// One erase, in nanoseconds.
    pub erase_ns: u64,
    /// One IU on the channel, in nanoseconds, where the die need not be busy; 0 if unknown.
    pub iu_transfer_ns: u64,
}
