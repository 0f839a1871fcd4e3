//! Exchange of what two dies hold: every block of the units on one moves to the other, and the other way round, while they
//! are in use. Meanwhile a unit lies on two dies: its place and its destination.
//!
//! Steps, each durable as a whole:
//! 1. The exchange is written down, then each vSSD that takes part, with its destination. From here on new blocks are opened on
//!    the destination where there is room.
//! 2. Pair by pair the blocks change places (`moving.rs`): one word of protected memory, or one program unit of the state log.
//! 3. When nothing is left to move, the exchange is written down as finishing, then each vSSD with its new places, then
//!    that there is no exchange. A crash in between carries out again what was not done: each step can be repeated.
//!
//! The dies of a channel are exchanged at the same time, each for itself. A crash may come when one of them is done and another
//! one's exchange was not begun; then the channel-isolated vSSDs that lie on parts of two channels say what is left to do
//! ([`heal`]).
//!
//! A block that moves within a die (`in_die.rs`) is an exchange of that die with itself: one copy, and of the steps the second.
//!
//! Blocks that were set aside (`recovery`, `check`) stay where they are: what they hold is not certain. Dies whose reserve
//! is used up, and dies with units of one vSSD on both, are not exchanged. A pool that shares a device with others exchanges
//! what lies on its own channels, and leaves it to one that sees all dies what is exchanged ([`crate::Pool::follow`]).

use crate::blocks::Use;
use crate::core::Core;
use crate::owners::{Destination, Unit, Vssd};
use crate::states::{BlockEntry, BlockState, ExchangeEntry, ExchangePhase, Found, MoveEntry, StateTable};
use crate::wear::Wear;
use crate::wear::exchange::{Exchange, ExchangeError};
use crate::wear::migration::WearNews;
use crate::{OpenError, VssdId};
use diecut_media::Media;
use diecut_spec::Isolation;
use diecut_units::{Time, mark, mutant};
use std::collections::BTreeMap;

impl Wear {
    /// See [`crate::Pool::can_exchange`].
    pub fn can_exchange(&self, core: &Core, dies: [u32; 2]) -> Result<(), ExchangeError> {
        if self.hides_dies {
            return Err(ExchangeError::HiddenDies);
        }
        if dies[0] == dies[1] || dies.iter().any(|&die| die >= core.geometry.dies()) {
            return Err(ExchangeError::NotTwoDies);
        }
        if let Some(&die) = dies.iter().find(|&&die| !core.owns_die(die)) {
            return Err(ExchangeError::Elsewhere(die));
        }
        for die in dies {
            if core.is_worn(die) {
                return Err(ExchangeError::Worn(die));
            }
            if self.migration.exchanges.iter().any(|one| one.dies.contains(&die)) {
                return Err(ExchangeError::Busy(die));
            }
        }
        let on = |die: u32| move |unit: &Unit| unit.place.die == die;
        let both = |vssd: &&Vssd| vssd.units.iter().any(on(dies[0])) && vssd.units.iter().any(on(dies[1]));
        match core.vssds.iter().find(both) {
            Some(vssd) => Err(ExchangeError::OneVssd(vssd.id.0)),
            None => Ok(()),
        }
    }

    /// Step 1.
    pub(crate) fn begin_exchange(&mut self, core: &mut Core, dies: [u32; 2]) {
        mark!("vssd: exchange begun");
        self.migration.exchanges.push(Exchange::new(dies));
        self.migration.news.push(WearNews::Begun(dies));
        core.states.set_exchange(dies, Some(ExchangePhase::UnderWay));
        for at in 0..core.vssds.len() {
            if aim(core, at, dies) {
                core.record_vssd(at);
            }
        }
    }

    /// Step 3, when nothing is left to move.
    pub(crate) fn finish_exchange(&mut self, core: &mut Core, at: usize) {
        let one = self.migration.exchanges.remove(at);
        let dies = one.dies;
        assert!(!one.is_moving(), "an exchange ends when nothing of it moves (I-V16)");
        if one.is_inside() {
            return;
        }
        mark!("vssd: exchange finished");
        core.states.set_exchange(dies, Some(ExchangePhase::Finishing));
        for at in 0..core.vssds.len() {
            let mut arrived = false;
            let Core { vssds, queues, .. } = core;
            let vssd = &mut vssds[at];
            for unit in vssd.units.iter_mut().filter(|unit| dies.contains(&unit.place.die)) {
                let Some(destination) = unit.destination.take() else { continue };
                queues.leave(unit.place.die, unit.flow, vssd.id);
                (unit.place.die, unit.flow) = (destination.die, destination.flow);
                arrived = true;
            }
            if arrived && !mutant!("vssd: exchange finished in part") {
                core.record_vssd(at);
            }
        }
        core.resources.dies.swap(dies[0] as usize, dies[1] as usize);
        core.heat_moved(dies);
        core.states.set_exchange(dies, None);
        self.migration.news.push(WearNews::Finished(dies));
        self.elsewhere.retain(|other| *other != dies);
        self.migration.finished += 1;
    }

    /// Ends exchanges of dies that nothing lies on any more; where a device is divided nobody else would.
    pub(crate) fn end_empty_exchanges(&mut self, core: &mut Core) {
        if self.is_moving() {
            return;
        }
        let holds = |core: &Core, die: u32| {
            core.vssds.iter().flat_map(|vssd| &vssd.units).any(|unit| unit.place.die == die)
        };
        let empty = |core: &Core, one: &Exchange| !one.dies.iter().any(|&die| holds(core, die));
        while let Some(at) = self.migration.exchanges.iter().position(|one| empty(core, one)) {
            self.finish_exchange(core, at);
        }
    }

    /// Goes on with exchanges that were under way; after the vSSDs were placed again.
    pub(crate) fn resume_exchanges(
        &mut self,
        core: &mut Core,
        under_way: &[[u32; 2]],
    ) -> Result<(), OpenError> {
        for &dies in under_way {
            for at in 0..core.vssds.len() {
                let units = &core.vssds[at].units;
                if dies.iter().all(|&die| units.iter().any(|unit| unit.place.die == die)) {
                    let id = core.vssds[at].id.0;
                    return Err(OpenError::Entry(format!("vSSD {id} lies on both dies of an exchange")));
                }
                aim(core, at, dies);
            }
            self.migration.exchanges.push(Exchange::new(dies));
        }
        Ok(())
    }

    /// Whether an exchange that goes on is in the way of another one.
    pub(crate) fn will_be_free(&self, dies: [u32; 2]) -> bool {
        let goes_on = self.migration.exchanges.iter().filter(|one| one.trouble.is_none());
        goes_on.into_iter().any(|one| one.dies.iter().any(|die| dies.contains(die)))
    }

    /// Begins the exchanges that wait, if they still can be and no other one is in their way. Says whether one was begun.
    pub(crate) fn begin_next<M: Media + ?Sized>(
        &mut self,
        core: &mut Core,
        now: Time,
        media: &mut M,
    ) -> bool {
        let mut begun = false;
        for dies in std::mem::take(&mut self.migration.waiting) {
            match self.can_exchange(core, dies) {
                Ok(()) => {
                    self.begin_exchange(core, dies);
                    begun = true;
                }
                Err(_) if self.will_be_free(dies) => self.migration.waiting.push_back(dies),
                Err(_) => self.migration.news.push(WearNews::Dropped(dies)),
            }
        }
        if begun {
            core.kick_state_log(media, now);
        }
        begun
    }
}

/// Gives the units of a vSSD on two dies their destinations; says whether there are any.
pub(crate) fn aim(core: &mut Core, at: usize, dies: [u32; 2]) -> bool {
    let Core { vssds, queues, .. } = core;
    let vssd = &mut vssds[at];
    let mut aimed = false;
    for unit in vssd.units.iter_mut().filter(|unit| unit.destination.is_none()) {
        let Some(side) = dies.iter().position(|&die| die == unit.place.die) else { continue };
        let die = dies[1 - side];
        unit.destination = Some(Destination { die, flow: queues.join(die, vssd.id, vssd.isolation) });
        aimed = true;
    }
    let id = vssd.id;
    if aimed {
        core.weigh(id);
    }
    aimed
}

/// Dies to exchange so that channel-isolated vSSDs lie on whole channels again.
pub(crate) fn heal(core: &Core) -> Vec<[u32; 2]> {
    let per_channel = u32::from(core.geometry.dies_per_channel);
    for vssd in core.vssds.iter().filter(|vssd| vssd.isolation == Isolation::Channel) {
        let mut dies: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for unit in &vssd.units {
            // Where an exchange that is under way brings it.
            let die = unit.destination.as_ref().map_or(unit.place.die, |destination| destination.die);
            dies.entry(die / per_channel).or_default().push(die);
        }
        dies.retain(|_, dies| (dies.len() as u32) < per_channel);
        // One channel at a time is exchanged: what is not whole lies on two, and goes on where a part of it is on its way to.
        let parts: Vec<(&u32, &Vec<u32>)> = dies.iter().collect();
        let [one, other] = parts[..] else { continue };
        let goes_to = |channel: u32| {
            let destinations = vssd.units.iter().filter_map(|unit| unit.destination.as_ref());
            destinations.into_iter().any(|destination| destination.die / per_channel == channel)
        };
        let to_one = match (goes_to(*one.0), goes_to(*other.0)) {
            (true, false) => true,
            (false, true) => false,
            _ => one.1.len() >= other.1.len(),
        };
        let (goal, source) = if to_one { (one, other) } else { (other, one) };
        let room = (goal.0 * per_channel..(goal.0 + 1) * per_channel).filter(|die| !goal.1.contains(die));
        return source.1.iter().copied().zip(room).map(|(source, room)| [source, room]).collect();
    }
    Vec::new()
}

/// Carries out again what a crash cut short, on the table alone; before anything is taken over from it.
pub(crate) fn repeat_exchanges(core: &mut Core, table: &mut StateTable) -> Result<Vec<[u32; 2]>, OpenError> {
    let mut under_way = Vec::new();
    for first in 0..table.dies() {
        if !table.holds_channel(core.geometry.die_at(first).channel.0) {
            continue;
        }
        let entry = match table.exchange(first) {
            Found::New | Found::Entry(None) => continue,
            Found::Entry(Some(entry)) => entry,
            Found::Damaged => {
                return Err(OpenError::Entry(format!(
                    "the exchange of die {first} is damaged, and which erase blocks are whose cannot be told without it"
                )));
            }
        };
        if entry.dies[1] >= core.geometry.dies() || entry.dies[0] != first {
            return Err(OpenError::Entry(format!(
                "an exchange of die {first} names dies that are not there"
            )));
        }
        match entry.phase {
            ExchangePhase::UnderWay => under_way.push(entry.dies),
            ExchangePhase::Pair(moves) => {
                mark!("vssd: pair of an exchange repeated");
                for one in moves.into_iter().flatten() {
                    repeat_move(core, table, entry.dies, one)?;
                }
                if entry.dies[0] == entry.dies[1] {
                    table.set_exchange(first, None);
                    continue;
                }
                let phase = ExchangePhase::UnderWay;
                table.set_exchange(first, Some(&ExchangeEntry { phase, ..entry }));
                under_way.push(entry.dies);
            }
            ExchangePhase::Finishing => {
                mark!("vssd: end of an exchange repeated");
                for mut vssd in table.vssds()? {
                    let mut arrives = false;
                    for unit in vssd.units.iter_mut().filter(|unit| unit.moves) {
                        let side = entry.dies.iter().position(|&die| die == unit.place.die);
                        let Some(side) = side else { continue };
                        (unit.place.die, unit.moves, arrives) = (entry.dies[1 - side], false, true);
                    }
                    if arrives {
                        table.set_vssd(&vssd);
                    }
                }
                table.set_exchange(first, None);
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
fn repeat_move(core: &Core, table: &mut StateTable, dies: [u32; 2], one: MoveEntry) -> Result<(), OpenError> {
    let damaged = |number: u32| {
        OpenError::Entry(format!("an exchange names erase block {number}, which makes no sense"))
    };
    for number in [one.source, one.copy] {
        let there = u64::from(number) < core.geometry.erase_blocks();
        if !there
            || !dies.contains(&(core.die_of(number) as u32))
            || core.blocks[number].use_of() == Use::Excluded
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
    let held = BlockEntry {
        state: BlockState::Held,
        lost_pages: source.lost_pages || one.lost_pages,
        erase_count: copy.erase_count,
        ..source
    };
    table.set_block(one.copy, &held);
    table.set_block(one.source, &BlockEntry { state: left, owner: VssdId(0), ..source });
    Ok(())
}

#[cfg(test)]
mod test;
