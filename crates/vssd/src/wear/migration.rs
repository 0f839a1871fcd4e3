//! Exchanges of a pool, and what became of them.

use crate::SpaceToken;
use crate::wear::copy::Copy;
use crate::wear::exchange::Exchange;
use diecut_units::Time;
use std::collections::VecDeque;

pub(crate) const NO_BLOCK: u32 = u32::MAX;

/// Exchanges of a pool.
pub(crate) struct Migration {
    pub exchanges: Vec<Exchange>,
    /// Dies to exchange next; not durable.
    pub waiting: VecDeque<[u32; 2]>,
    /// For whoever keeps account of all channels.
    pub news: Vec<WearNews>,
    pub paused: bool,
    /// No pair is begun while channels are about to leave.
    pub is_held: bool,
    pub rate_bytes_per_second: u64,
    pub paid_until: Time,
    /// Something was given up; there is work at once.
    pub has_void: bool,
    pub is_started: bool,
    /// How many dies, the last ones, are still to be looked into for cold blocks.
    pub dies_to_look_into: u32,
    /// Exchanges finished since the pool was opened.
    pub finished: u64,
    /// Blocks moved since the pool was opened.
    pub moved_blocks: u64,
    pub lost_pages: u64,
    /// Flushes of copies so far.
    pub flushes: u32,
    pub work: CopyWork,
}

/// What copies of blocks did since the pool was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CopyWork {
    /// IUs programmed.
    pub programmed_ius: u64,
    /// Erases that were intended for copies on another die.
    pub intended_erases: u64,
    /// Erases that were intended for copies within a die.
    pub intended_inside_erases: u64,
    /// Erases that were done.
    pub erases: u64,
}

/// What happened to even wear, for whoever keeps account of all channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WearNews {
    /// So much was erased that something may be due; only where somebody else chooses ([`crate::Pool::follow`]).
    Due,
    /// What lies on each of them is on its way to the other.
    Begun([u32; 2]),
    /// They have changed places.
    Finished([u32; 2]),
    /// They were to change places, and cannot any more.
    Dropped([u32; 2]),
}

impl Migration {
    pub fn new(rate_bytes_per_second: u64) -> Migration {
        Migration {
            exchanges: Vec::new(),
            waiting: VecDeque::new(),
            news: Vec::new(),
            paused: false,
            is_held: false,
            rate_bytes_per_second,
            paid_until: Time::ZERO,
            has_void: false,
            is_started: false,
            dies_to_look_into: 0,
            finished: 0,
            moved_blocks: 0,
            lost_pages: 0,
            flushes: 0,
            work: CopyWork::default(),
        }
    }

    /// The state log took its last block: what waited for it is given up.
    pub fn erase_failed(&mut self, token: SpaceToken) {
        if let Some(copy) = self.copy(token) {
            (copy.under_way, copy.is_void) = (false, true);
            self.has_void = true;
        }
    }

    /// Whose operation this is: the die it copies to.
    pub fn copy(&mut self, token: SpaceToken) -> Option<&mut Copy> {
        let (at, side) = self.find(token)?;
        self.exchanges[at].pair[side].as_mut()
    }

    fn find(&self, SpaceToken(die): SpaceToken) -> Option<(usize, usize)> {
        self.exchanges.iter().enumerate().find_map(|(at, one)| {
            let goal = one.dies.iter().position(|&other| u64::from(other) == die)?;
            Some((at, 1 - goal))
        })
    }
}
