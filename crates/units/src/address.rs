use std::fmt;

/// A channel of one device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChannelIndex(pub u16);

/// A die within its channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DieIndex(pub u16);

/// An erase block within its die. The same block index on all planes of a die is *one* erase block: it is
/// erased and programmed as one (multi-plane), so that a die's bandwidth is never split by plane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockIndex(pub u32);

/// A die of one device, widest unit first: the order in which a command travels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DieAddress {
    /// Channel of the device.
    pub channel: ChannelIndex,
    /// Die within the channel.
    pub die: DieIndex,
}

/// A physical erase block of one device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EraseBlockAddress {
    /// Channel of the device.
    pub channel: ChannelIndex,
    /// Die within the channel.
    pub die: DieIndex,
    /// Block within the die (all planes).
    pub block: BlockIndex,
}

impl DieAddress {
    /// The die at `channel` and `die`.
    pub const fn new(channel: u16, die: u16) -> DieAddress {
        DieAddress { channel: ChannelIndex(channel), die: DieIndex(die) }
    }
    /// An erase block of this die.
    pub const fn erase_block(self, block: BlockIndex) -> EraseBlockAddress {
        EraseBlockAddress { channel: self.channel, die: self.die, block }
    }
}

impl EraseBlockAddress {
    /// The erase block `block` of die `die` on channel `channel`.
    pub const fn new(channel: u16, die: u16, block: u32) -> EraseBlockAddress {
        EraseBlockAddress { channel: ChannelIndex(channel), die: DieIndex(die), block: BlockIndex(block) }
    }
    /// The die this erase block lies on.
    pub const fn die_address(self) -> DieAddress {
        DieAddress { channel: self.channel, die: self.die }
    }
}

impl fmt::Display for DieAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "channel {} die {}", self.channel.0, self.die.0)
    }
}

impl fmt::Display for EraseBlockAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "channel {} die {} block {}", self.channel.0, self.die.0, self.block.0)
    }
}
