//! Opening a pool: block states are taken over as they were, or refused with a reason. What cannot be told apart from
//! damage is set aside, never handed out.

use crate::blocks::{Block, Fill, QuarantineReason, Quarantined, Use};
use crate::pool::Pool;
use crate::resources::{DieUse, UnitPlace};
use crate::states::log::StateLog;
use crate::states::replay::Replay;
use crate::states::{BlockEntry, BlockState, BlockStates, Found, Sizes, StateTable, UnitEntry, VssdEntry};
use crate::tenancy::{Unit, Vssd};
use crate::{LogicalBlock, OpenError, PoolConfig, VssdId};
use diecut_media::{Completion, Media};
use diecut_spec::Isolation;
use diecut_units::{Geometry, ProtectedRegion, Time, mark, mutant};

/// More vSSDs than this are never made on one device: a number above it is damage.
pub(crate) const VSSD_NUMBERS_MAX: u32 = 1 << 24;

impl Pool {
    pub(crate) fn sizes(&self) -> Sizes {
        Sizes {
            soft_planes_per_die: self.config.soft_planes_per_die,
            catalog_blocks_per_die: self.config.catalog_blocks_per_die,
            journal_blocks_per_die: self.config.journal_blocks_per_die,
            die_blocks: self.resources.die_blocks,
        }
    }

    /// Bytes of protected memory that the table of block states takes.
    pub fn journal_size_bytes(geometry: &Geometry, config: &PoolConfig) -> usize {
        StateTable::size_bytes(geometry, config.soft_planes_per_die)
    }

    /// Opens a pool whose block states are in `memory`, the same part of protected memory at each opening; an empty one
    /// (zeros) is made new. Blocks that were open are given back to their holders as they are, for reading only.
    ///
    /// # Errors
    /// Says what is wrong with the block states; nothing is changed then.
    pub fn open<M: Media + ?Sized>(
        media: &M,
        config: PoolConfig,
        memory: ProtectedRegion,
    ) -> Result<Pool, OpenError> {
        let mut pool = Pool::create(media, config);
        let (table, is_new) = StateTable::open(memory, &pool.geometry, &pool.sizes())?;
        pool.go_on_with(table, None, is_new)?;
        Ok(pool)
    }

    /// Opens a pool on a medium without protected memory. It is to be used when [`Pool::is_open`]; completions of the medium
    /// lead there. An empty medium is made new.
    pub fn open_from_flash<M: Media + ?Sized>(media: &mut M, config: PoolConfig, now: Time) -> Pool {
        let mut pool = Pool::create(media, config);
        // How much was programmed is found by looking: what followed a failed program is found, too. With protected memory
        // only what completed is counted.
        pool.shape.pipelined_units = u32::from(pool.config.program_window).saturating_sub(1);
        let replay = Replay::new(pool.system_area(), pool.sizes(), media);
        if replay.error.is_none() {
            replay.read(media, now);
        }
        pool.replay = Some(Box::new(replay));
        pool
    }

    /// Whether opening is through.
    pub fn is_open(&self) -> bool {
        self.replay.is_none()
    }

    /// Why it cannot be opened, if so.
    pub fn open_error(&self) -> Option<&OpenError> {
        self.replay.as_ref().and_then(|replay| replay.error.as_ref())
    }

    /// A read of block states on flash came back.
    pub(crate) fn replayed<M: Media + ?Sized>(&mut self, completion: Completion, now: Time, media: &mut M) {
        let replay = self.replay.as_mut().expect("it is being opened");
        if !replay.completed(completion, media, now) {
            return;
        }
        let (table, log, is_new) = replay.finish();
        match self.go_on_with(table, Some(log), is_new) {
            Ok(()) => self.replay = None,
            Err(error) => {
                let replay = self.replay.as_mut().expect("it is being opened");
                replay.error = Some(error);
            }
        }
    }

    /// Takes over what is written down, unless nothing ever was, and writes there from now on.
    fn go_on_with(
        &mut self,
        table: StateTable,
        log: Option<StateLog>,
        is_new: bool,
    ) -> Result<(), OpenError> {
        let states = |table| match log {
            Some(log) => BlockStates::Logged { table, log: Box::new(log) },
            None => BlockStates::Protected(table),
        };
        if is_new {
            self.states = states(table);
            return Ok(());
        }
        self.take_over(table, states)
    }

    /// Blocks that were set aside, for people: each may mean data that is lost.
    pub fn quarantined(&self) -> &[Quarantined] {
        &self.blocks.quarantined
    }

    fn take_over(
        &mut self,
        mut table: StateTable,
        states: impl FnOnce(StateTable) -> BlockStates,
    ) -> Result<(), OpenError> {
        let under_way = self.repeat_exchanges(&mut table)?;
        for entry in table.vssds()? {
            self.place_again(&entry, &under_way)?;
        }
        self.resume_exchanges(&under_way)?;
        self.blocks.clear_free();
        // What belonged to a vSSD that was removed just before the process died, and was not given back yet.
        let mut left_over = Vec::new();
        for number in 0..self.blocks.count() {
            let found = table.block(number);
            if self.blocks[number].use_of() == Use::Excluded {
                if let Found::Entry(BlockEntry {
                    state: BlockState::Held | BlockState::HeldFailed | BlockState::HeldSuspect,
                    ..
                }) = found
                {
                    return Err(OpenError::Entry(format!(
                        "erase block {number} is held, but it is marked bad or belongs to the system area"
                    )));
                }
                continue;
            }
            let entry = match found {
                Found::New => {
                    self.list_free(number);
                    continue;
                }
                Found::Damaged => {
                    mark!("vssd: damaged entry");
                    self.set_aside(number, None, QuarantineReason::StateDamaged);
                    continue;
                }
                Found::Entry(entry) => entry,
            };
            if entry.sequence >= u64::MAX / 2 || entry.erase_count >= u32::MAX / 2 {
                return Err(OpenError::Entry(format!("erase block {number} has a count that cannot be")));
            }
            let next = entry.sequence + u64::from(!mutant!("vssd: newest allocation sequence used twice"));
            self.blocks.skip_sequences(next);
            let die = self.blocks.die_of(number);
            self.blocks[number].erase_count = entry.erase_count;
            self.blocks.die_mut(die).erases += u64::from(entry.erase_count);
            match entry.state {
                BlockState::Held | BlockState::HeldFailed | BlockState::HeldSuspect => {
                    if !self.hold_again(number, &entry, &table)? {
                        left_over.push((number, entry.state));
                    }
                }
                BlockState::Retired => self.blocks.list_retired(number),
                BlockState::Free => self.list_free(number),
            }
        }
        self.number_free_blocks();
        self.states = states(table);
        self.wear_again();
        // Targets that a crash came before are written down before anything moves.
        for at in 0..self.vssds.len() {
            if self.vssds[at].units.iter().any(|unit| unit.target.is_some()) {
                self.record_vssd(at);
            }
        }
        for (number, state) in left_over {
            mark!("vssd: block of a removed vSSD");
            self.blocks[number].left_over(state != BlockState::Held);
            self.recycle(number);
        }
        Ok(())
    }

    fn list_free(&mut self, number: u32) {
        // The process may have died before it could say that the content may go.
        self.blocks.list_free(number, self.states.change());
    }
    pub(crate) fn set_aside(
        &mut self,
        number: u32,
        holder: Option<(VssdId, LogicalBlock)>,
        reason: QuarantineReason,
    ) {
        self.blocks.quarantined.push(Quarantined { block: self.address(number), holder, reason });
        if holder.is_none() {
            self.blocks.list_retired(number);
        }
    }

    fn place_again(&mut self, entry: &VssdEntry, under_way: &[[u32; 2]]) -> Result<(), OpenError> {
        let damaged = |what: String| Err(OpenError::Entry(format!("vSSD {} {what}", entry.id.0)));
        if entry.id.0 == 0 || entry.id.0 >= VSSD_NUMBERS_MAX {
            return damaged("has a number that was never given".to_owned());
        }
        self.next_vssd = self.next_vssd.max(entry.id.0 + 1);
        if !entry.placed {
            return Ok(());
        }
        let whole = matches!(entry.isolation, Isolation::Channel | Isolation::Die);
        let sound = |unit: &UnitEntry| {
            let UnitPlace { die, soft_plane } = unit.place;
            let plane = soft_plane.is_none_or(|plane| plane < self.config.soft_planes_per_die);
            die < self.geometry.dies() && plane && soft_plane.is_none() == whole
        };
        let is_exchanged = |die: u32| under_way.iter().any(|dies| dies.contains(&die));
        if entry.units.iter().any(|unit| unit.moves && !is_exchanged(unit.place.die)) {
            return damaged("moves between dies that are not exchanged".to_owned());
        }
        if entry.units.is_empty() || !entry.units.iter().all(sound) {
            return damaged("lies on a die that does not exist, or not as its isolation says".to_owned());
        }
        let places: Vec<UnitPlace> = entry.units.iter().map(|unit| unit.place).collect();
        if let Err(place) = self.resources.take(entry.id, &places) {
            let reason = match self.resources.dies[place.die as usize] {
                DieUse::Dead => "has too few good erase blocks",
                _ => "belongs to another vSSD",
            };
            return damaged(format!("lies on die {}, which {reason}", place.die));
        }
        self.place(entry.id, entry.isolation, &places);
        let vssd = self.vssds.of(entry.id);
        vssd.read_only = entry.read_only;
        for (unit, was) in vssd.units.iter_mut().zip(&entry.units) {
            unit.lost_blocks = was.lost_blocks;
        }
        Ok(())
    }

    /// Says whether somebody holds the block.
    fn hold_again(&mut self, number: u32, entry: &BlockEntry, table: &StateTable) -> Result<bool, OpenError> {
        let die = self.die_of(number) as u32;
        let LogicalBlock { unit, index } = entry.logical;
        let mut at = self.at_of(entry.owner);
        if mutant!("vssd: owner not checked") {
            let there =
                |vssd: &Vssd| vssd.units.get(usize::from(unit.0)).is_some_and(|unit| unit.place.die == die);
            at = self.vssds.iter().position(there);
        }
        let Some(at) = at else { return Ok(false) };
        let vssd = &mut self.vssds[at];
        let owner = vssd.id;
        // While it moves a unit lies on two dies; what was set aside stayed behind.
        let stayed = entry.state == BlockState::HeldSuspect;
        let lies = |unit: &&mut Unit| {
            unit.place.die == die || unit.target.as_ref().is_some_and(|target| target.die == die) || stayed
        };
        let own = vssd.units.get_mut(usize::from(unit.0)).filter(lies);
        match own.and_then(|unit| unit.map.get_mut(index as usize)) {
            Some(cell) if *cell == u32::MAX => *cell = number,
            _ => {
                let id = entry.owner.0;
                return Err(OpenError::Entry(format!(
                    "erase block {number} claims to be block {index} of unit {} of vSSD {id}",
                    unit.0
                )));
            }
        }
        let pages = table.pages(number, entry.sequence);
        let suspect = if entry.state == BlockState::HeldSuspect {
            Some(QuarantineReason::Before)
        } else {
            pages.is_none().then_some(QuarantineReason::PagesDamaged)
        };
        if let Some(reason) = suspect {
            self.set_aside(number, Some((owner, entry.logical)), reason);
        }
        let all = self.shape.pages;
        let pages = if mutant!("vssd: incomplete block wins") { all } else { pages.unwrap_or(all).min(all) };
        let fill = match entry.state {
            _ if suspect.is_some() => Fill::Suspect,
            BlockState::HeldFailed => Fill::Failed,
            _ if pages < all => Fill::Sealed,
            _ => Fill::Open,
        };
        let block = &mut self.blocks[number];
        *block = Block::held(fill, pages, block.erase_count);
        (block.owner, block.logical, block.purpose) = (owner, entry.logical, entry.purpose);
        block.sequence = entry.sequence;
        block.lost_pages = entry.lost_pages;
        Ok(true)
    }

    /// Free numbers of each unit: those not held, less those lost with worn blocks.
    fn number_free_blocks(&mut self) {
        for unit in self.vssds.iter_mut().flat_map(|vssd| &mut vssd.units) {
            let free = (0..unit.map.len() as u32).rev().filter(|index| unit.map[*index as usize] == u32::MAX);
            // The highest numbers go: they are the first in the list, which is taken from its end.
            unit.free_indices = free.skip(usize::from(unit.lost_blocks)).collect();
        }
    }
}

#[cfg(test)]
mod test;
