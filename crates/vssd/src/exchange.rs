//! Exchange of what two dies hold: every block of the units on one moves to the other, and the other way round, while they
//! are in use. Meanwhile a unit lies on two dies: its place and its target.
//!
//! Steps, each durable as a whole:
//! 1. The exchange is written down, then each vSSD that takes part, with its target. From here on new blocks are opened on
//!    the target where there is room.
//! 2. Pair by pair the blocks change places (`moving.rs`): one word of protected memory, or one program unit of the journal.
//! 3. When nothing is left to move, the exchange is written down as finishing, then each vSSD with its new places, then
//!    that there is no exchange. A crash in between carries out again what was not done: each step can be repeated.
//!
//! The rest of a channel is exchanged die by die. A crash may come between two dies; then the channel-isolated vSSDs that lie on
//! parts of two channels say what is left to do ([`Pool::heal`]).
//!
//! Blocks that were set aside (`recovery`, `check`) stay where they are: what they hold is not certain. Dies whose reserve
//! is used up, and dies with units of one vSSD on both, are not exchanged. A pool that shares a device with others does not
//! begin an exchange, nor go on with one.

use crate::block::State;
use crate::pool::Pool;
use crate::resources::DieUse;
use crate::table::{
    BlockState, BlockTable, ExchangeEntry, ExchangePhase, Found, MoveEntry, OpenError, encode_exchange,
};
use crate::tenancy::Target;
use crate::{Isolation, VssdId};
use diecut_media::{Media, MediaError};
use diecut_units::{Time, mark, mutant};
use std::collections::BTreeMap;

/// An exchange that was begun.
#[derive(Clone, Debug)]
pub(crate) struct Exchange {
    pub dies: [u32; 2],
    /// Why it does not go on.
    pub trouble: Option<MediaError>,
}

/// Why two dies cannot be exchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExchangeError {
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
    /// Several pools own parts of the device.
    #[error(
        "the device is divided among shards, which exchange nothing so far; start the server with one shard"
    )]
    Divided,
}

impl Pool {
    /// Whether two dies can be exchanged now.
    ///
    /// # Errors
    /// Says why not.
    pub fn can_exchange(&self, dies: [u32; 2]) -> Result<(), ExchangeError> {
        if self.is_divided() {
            return Err(ExchangeError::Divided);
        }
        if dies[0] == dies[1] || dies.iter().any(|&die| die >= self.geometry.dies()) {
            return Err(ExchangeError::NotTwoDies);
        }
        for die in dies {
            if self.is_worn(die) {
                return Err(ExchangeError::Worn(die));
            }
            // Two that begin on one channel would be written down in one place.
            let per_channel = u32::from(self.geometry.dies_per_channel);
            let meets = |one: &Exchange| {
                one.dies.contains(&die) || one.dies[0] / per_channel == dies[0] / per_channel
            };
            if self.migration.exchanges.iter().any(meets) {
                return Err(ExchangeError::Busy(die));
            }
        }
        let on = |die: u32| move |unit: &crate::tenancy::Unit| unit.place.die == die;
        let both = |vssd: &&crate::tenancy::Vssd| {
            vssd.units.iter().any(on(dies[0])) && vssd.units.iter().any(on(dies[1]))
        };
        match self.vssds.iter().find(both) {
            Some(vssd) => Err(ExchangeError::OneVssd(vssd.id.0)),
            None => Ok(()),
        }
    }

    /// Whether a die cannot take what another one holds.
    pub(crate) fn is_worn(&self, die: u32) -> bool {
        self.resources.dies[die as usize] == DieUse::Dead
            || self.dies[die as usize].retired >= self.reserve_blocks.max(1)
    }

    /// Whether the device is divided among pools.
    pub fn is_divided(&self) -> bool {
        self.table.as_ref().is_some_and(BlockTable::is_divided)
    }

    /// Step 1.
    pub(crate) fn begin_exchange(&mut self, dies: [u32; 2]) {
        mark!("vssd: exchange begun");
        self.migration.exchanges.push(Exchange { dies, trouble: None });
        self.write_exchange(dies, Some(ExchangePhase::UnderWay));
        for at in 0..self.vssds.len() {
            if self.aim(at, dies) {
                self.record_vssd(at);
            }
        }
    }

    /// Gives the units of a vSSD on two dies their targets; says whether there are any.
    pub(crate) fn aim(&mut self, at: usize, dies: [u32; 2]) -> bool {
        let Pool { vssds, dies: all, .. } = self;
        let vssd = &mut vssds[at];
        let mut aimed = false;
        for unit in vssd.units.iter_mut().filter(|unit| unit.target.is_none()) {
            let Some(side) = dies.iter().position(|&die| die == unit.place.die) else { continue };
            let die = dies[1 - side];
            unit.target = Some(Target { die, flow: all[die as usize].join(vssd.id, vssd.isolation) });
            aimed = true;
        }
        let (id, share) = (vssd.id, vssd.bucket.share);
        if aimed {
            self.weigh(id, share);
        }
        aimed
    }

    pub(crate) fn write_exchange(&mut self, dies: [u32; 2], phase: Option<ExchangePhase>) {
        let channel = dies[0] / u32::from(self.geometry.dies_per_channel);
        let Some(table) = &mut self.table else { return };
        let entry = phase.map(|phase| ExchangeEntry { dies, phase });
        table.set_exchange(channel as usize, entry.as_ref());
        // A pair is one program unit there, whatever the exchange says.
        if let Some(journal) = &mut self.journal
            && !matches!(phase, Some(ExchangePhase::Pair(_)))
        {
            journal.push_exchange(channel, &encode_exchange(entry.as_ref()));
        }
    }

    /// Step 3, when nothing is left to move.
    pub(crate) fn finish_exchange(&mut self, at: usize) {
        let dies = self.migration.exchanges.remove(at).dies;
        mark!("vssd: exchange finished");
        self.write_exchange(dies, Some(ExchangePhase::Finishing));
        for at in 0..self.vssds.len() {
            let mut arrived = false;
            let Pool { vssds, dies: all, .. } = self;
            let vssd = &mut vssds[at];
            for unit in vssd.units.iter_mut().filter(|unit| dies.contains(&unit.place.die)) {
                let Some(target) = unit.target.take() else { continue };
                let (die, flow) = (unit.place.die, unit.flow);
                all[die as usize].leave(flow);
                vssd.blocked_flows.retain(|blocked| *blocked != (die, flow));
                (unit.place.die, unit.flow) = (target.die, target.flow);
                arrived = true;
            }
            if arrived && !mutant!("vssd: exchange finished in part") {
                self.record_vssd(at);
            }
        }
        self.resources.dies.swap(dies[0] as usize, dies[1] as usize);
        self.heat_moved(dies);
        self.write_exchange(dies, None);
        self.migration.finished += 1;
    }

    /// Ends exchanges of dies that nothing lies on any more; where a device is divided nobody else would.
    pub(crate) fn end_empty_exchanges(&mut self) {
        if self.is_moving() {
            return;
        }
        let holds = |pool: &Pool, die: u32| {
            pool.vssds.iter().flat_map(|vssd| &vssd.units).any(|unit| unit.place.die == die)
        };
        let empty = |pool: &Pool, one: &Exchange| !one.dies.iter().any(|&die| holds(pool, die));
        while let Some(at) = self.migration.exchanges.iter().position(|one| empty(self, one)) {
            self.finish_exchange(at);
        }
    }

    /// Dies to exchange so that channel-isolated vSSDs lie on whole channels again.
    pub(crate) fn heal(&self) -> Vec<[u32; 2]> {
        let per_channel = u32::from(self.geometry.dies_per_channel);
        for vssd in self.vssds.iter().filter(|vssd| vssd.isolation == Isolation::Channel) {
            let mut dies: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
            for unit in &vssd.units {
                // Where an exchange that is under way brings it.
                let die = unit.target.as_ref().map_or(unit.place.die, |target| target.die);
                dies.entry(die / per_channel).or_default().push(die);
            }
            dies.retain(|_, dies| (dies.len() as u32) < per_channel);
            // One channel at a time is exchanged: what is not whole lies on two.
            let parts: Vec<(&u32, &Vec<u32>)> = dies.iter().collect();
            let [one, other] = parts[..] else { continue };
            let (goal, source) = if one.1.len() >= other.1.len() { (one, other) } else { (other, one) };
            let room = (goal.0 * per_channel..(goal.0 + 1) * per_channel).filter(|die| !goal.1.contains(die));
            return source.1.iter().copied().zip(room).map(|(source, room)| [source, room]).collect();
        }
        Vec::new()
    }

    /// Carries out again what a crash cut short, on the table alone; before anything is taken over from it.
    pub(crate) fn repeat_exchanges(&mut self, table: &mut BlockTable) -> Result<Vec<[u32; 2]>, OpenError> {
        let mut under_way = Vec::new();
        for channel in 0..table.channels() {
            let entry = match table.exchange(channel) {
                Found::New | Found::Entry(None) => continue,
                Found::Entry(Some(entry)) => entry,
                Found::Damaged => {
                    return Err(OpenError::Entry(format!(
                        "the exchange of channel {channel} is damaged, and which erase blocks are whose cannot be told without it"
                    )));
                }
            };
            let all = self.geometry.dies();
            let first = entry.dies[0] / u32::from(self.geometry.dies_per_channel);
            if entry.dies.iter().any(|&die| die >= all) || first as usize != channel {
                return Err(OpenError::Entry(format!(
                    "an exchange of channel {channel} names dies that are not there"
                )));
            }
            match entry.phase {
                ExchangePhase::UnderWay => under_way.push(entry.dies),
                ExchangePhase::Pair(moves) => {
                    mark!("vssd: pair of an exchange repeated");
                    for one in moves.into_iter().flatten() {
                        self.repeat_move(table, entry.dies, one)?;
                    }
                    let phase = ExchangePhase::UnderWay;
                    table.set_exchange(channel, Some(&ExchangeEntry { phase, ..entry }));
                    under_way.push(entry.dies);
                }
                ExchangePhase::Finishing => {
                    mark!("vssd: end of an exchange repeated");
                    for mut vssd in table.vssds()? {
                        let Some([from, to]) = vssd.moves.take() else { continue };
                        if [from, to] != entry.dies && [to, from] != entry.dies {
                            continue;
                        }
                        for unit in vssd.units.iter_mut().filter(|unit| unit.place.die == from) {
                            unit.place.die = to;
                        }
                        table.set_vssd(&vssd);
                    }
                    table.set_exchange(channel, None);
                }
            }
        }
        let mut dies: Vec<u32> = under_way.iter().flatten().copied().collect();
        dies.sort_unstable();
        if dies.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(OpenError::Entry("a die takes part in two exchanges".to_owned()));
        }
        Ok(under_way)
    }

    /// Makes the copy of a block the block, in the table.
    fn repeat_move(&self, table: &mut BlockTable, dies: [u32; 2], one: MoveEntry) -> Result<(), OpenError> {
        let damaged = |number: u32| {
            OpenError::Entry(format!("an exchange names erase block {number}, which makes no sense"))
        };
        for number in [one.source, one.copy] {
            let there = u64::from(number) < self.geometry.erase_blocks();
            if !there
                || !dies.contains(&(self.die_of(number) as u32))
                || self.blocks[number as usize].state == State::Excluded
            {
                return Err(damaged(number));
            }
        }
        let Found::Entry(source) = table.block(one.source) else { return Err(damaged(one.source)) };
        let Found::Entry(copy) = table.block(one.copy) else { return Err(damaged(one.copy)) };
        let left = match source.state {
            BlockState::Held => BlockState::Free,
            BlockState::HeldFailed => BlockState::Retired,
            // It was done.
            BlockState::Free | BlockState::Retired => return Ok(()),
            BlockState::HeldSuspect => return Err(damaged(one.source)),
        };
        let held = crate::table::BlockEntry {
            state: BlockState::Held,
            lost_pages: source.lost_pages || one.lost_pages,
            erase_count: copy.erase_count,
            ..source
        };
        table.set_block(one.copy, &held);
        table.set_block(one.source, &crate::table::BlockEntry { state: left, owner: VssdId(0), ..source });
        Ok(())
    }

    /// Goes on with exchanges that were under way; after the vSSDs were placed again.
    pub(crate) fn resume_exchanges(&mut self, under_way: &[[u32; 2]]) -> Result<(), OpenError> {
        for &dies in under_way {
            for at in 0..self.vssds.len() {
                let units = &self.vssds[at].units;
                if dies.iter().all(|&die| units.iter().any(|unit| unit.place.die == die)) {
                    let id = self.vssds[at].id.0;
                    return Err(OpenError::Entry(format!("vSSD {id} lies on both dies of an exchange")));
                }
                self.aim(at, dies);
            }
            self.migration.exchanges.push(Exchange { dies, trouble: None });
        }
        Ok(())
    }

    /// Units of a vSSD that move, as its entry says it: the two dies.
    pub(crate) fn moves_of(&self, at: usize) -> Option<[u32; 2]> {
        self.vssds[at]
            .units
            .iter()
            .find_map(|unit| unit.target.as_ref().map(|target| [unit.place.die, target.die]))
    }

    /// Begins the next exchange that waits, if it still can be.
    pub(crate) fn begin_next<M: Media + ?Sized>(&mut self, now: Time, media: &mut M) -> bool {
        while let Some(dies) = self.migration.waiting.pop_front() {
            if self.can_exchange(dies).is_ok() {
                self.begin_exchange(dies);
                self.kick_journal(media, now);
                return true;
            }
        }
        false
    }
}

#[cfg(test)]
mod test;
