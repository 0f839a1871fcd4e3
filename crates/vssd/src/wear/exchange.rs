//! An exchange of what two dies hold, as far as it is at work in memory.

use crate::wear::copy::Copy;
use diecut_media::MediaError;
use diecut_units::Time;

/// An exchange that was begun, and what of it is at work.
pub(crate) struct Exchange {
    pub dies: [u32; 2],
    /// Why it does not go on.
    pub trouble: Option<MediaError>,
    /// Copies of a block of the first die, and of one of the second.
    pub pair: [Option<Copy>; 2],
    /// Copies that are the blocks now, but not durably so: the change of the state log.
    pub settling: Option<(u64, [u32; 2])>,
    /// The flush of copies that are complete, where one makes them durable.
    pub flush: Option<CopyFlush>,
    /// Nothing could move; it is looked at again then.
    pub rests_until: Time,
}

/// A flush of the copies of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CopyFlush {
    /// Tells it from those of pairs before.
    pub number: u32,
    pub is_over: bool,
}

impl Exchange {
    /// Of these dies; nothing is done yet.
    pub fn new(dies: [u32; 2]) -> Exchange {
        Exchange {
            dies,
            trouble: None,
            pair: [None, None],
            settling: None,
            flush: None,
            rests_until: Time::ZERO,
        }
    }

    /// A block that moves to another place on its die.
    pub fn inside(die: u32) -> Exchange {
        Exchange::new([die, die])
    }

    /// Whether it is that: nothing leaves the die.
    pub fn is_inside(&self) -> bool {
        self.dies[0] == self.dies[1]
    }

    /// Whether a pair of blocks is at work.
    pub fn is_moving(&self) -> bool {
        self.pair.iter().any(Option::is_some) || self.settling.is_some()
    }

    /// Whether the next pair could be begun.
    pub fn is_idle(&self) -> bool {
        self.trouble.is_none() && !self.is_moving()
    }
}

/// Why two dies cannot be exchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExchangeError {
    /// The drive hides its dies: its lanes wear together.
    #[error("the drive hides its dies, so there is nothing to exchange: it evens out wear by itself")]
    HiddenDies,
    /// The same die, or one that does not exist.
    #[error("these are not two dies of the device")]
    NotTwoDies,
    /// Too few good blocks, or its reserve is used up.
    #[error("die {0} has too few good erase blocks to take what another one holds")]
    Worn(u32),
    /// It takes part in one already.
    #[error("die {0} takes part in an exchange already")]
    Busy(u32),
    /// Blocks that belong together must not meet on one die.
    #[error("vSSD {0} lies on both dies")]
    OneVssd(u32),
    /// Another shard's pool has it.
    #[error("die {0} is another shard's")]
    Elsewhere(u32),
}
