//! vSSDs as a pool keeps them: made, placed, removed, and what can be asked about them.

use crate::dies::Sharer;
use crate::pool::Pool;
use crate::resources::UnitPlace;
use crate::states::VssdEntry;
use crate::wear::Heat;
use crate::{AllocError, DeallocError, VssdId};
use diecut_spec::Isolation;

pub(crate) struct Unit {
    pub place: UnitPlace,
    /// Its flow at the die.
    pub flow: u16,
    /// The die it moves to, if its die's content is being exchanged.
    pub target: Option<Target>,
    pub heat: Heat,
    /// Erase blocks it lost beyond the die's reserve.
    pub lost_blocks: u16,
    pub map: Vec<u32>,
    pub free_indices: Vec<u32>,
}

/// Where a unit moves to.
pub(crate) struct Target {
    pub die: u32,
    pub flow: u16,
}

impl Unit {
    /// Its flow at one of the dies it lies on.
    pub fn flow_at(&self, die: u32) -> u16 {
        match &self.target {
            Some(target) if target.die == die => target.flow,
            _ => self.flow,
        }
    }
}

pub(crate) struct Vssd {
    pub id: VssdId,
    pub isolation: Isolation,
    pub units: Vec<Unit>,
    pub operations: u32,
    /// IUs handed over for its appends, since the pool was opened.
    pub appended_ius: u64,
    pub read_only: bool,
    pub erases: u64,
}

/// Where an independent unit of a vSSD lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnitLocation {
    /// Channel.
    pub channel: u16,
    /// Die within the channel.
    pub die: u16,
    /// Soft-plane within the die; `None`: the whole die.
    pub soft_plane: Option<u16>,
}

impl Pool {
    /// Makes a vSSD (FlashBlox `AllocVirtualSSD`).
    ///
    /// # Errors
    /// Says what cannot be had; nothing is changed then, and never is a weaker isolation given.
    pub fn alloc_vssd(
        &mut self,
        isolation: Isolation,
        level: u32,
        capacity_bytes: u64,
    ) -> Result<VssdId, AllocError> {
        let places = self.choose_places(isolation, level, capacity_bytes, |_| true)?;
        let id = self.new_vssd_id()?;
        self.admit(id, isolation, &places);
        Ok(id)
    }

    pub(crate) fn place(&mut self, id: VssdId, isolation: Isolation, places: &[UnitPlace]) {
        let units = places.iter().map(|&place| {
            let count = self.resources.unit_blocks(place);
            let flow = self.queues.join(place.die, id, isolation);
            let map = vec![u32::MAX; count as usize];
            Unit {
                place,
                flow,
                target: None,
                heat: Heat::default(),
                lost_blocks: 0,
                map,
                free_indices: (0..count).rev().collect(),
            }
        });
        let units: Vec<Unit> = units.collect();
        units.iter().for_each(|unit| self.states.set_heat(unit.place, [0, 0]));
        let vssd = Vssd { id, isolation, units, operations: 0, appended_ius: 0, read_only: false, erases: 0 };
        self.vssds.insert(id, vssd);
        self.queues.admit(id, Sharer::default());
    }

    /// Deletes a vSSD; its blocks are erased before anyone else can read or write them.
    ///
    /// # Errors
    /// Unknown or deleted before, or operations are under way.
    pub fn dealloc_vssd(&mut self, id: VssdId) -> Result<(), DeallocError> {
        let Some(at) = self.at_of(id) else {
            let known = id.0 > 0 && id.0 < self.next_vssd;
            return Err(if known { DeallocError::AlreadyFree(id.0) } else { DeallocError::Unknown(id.0) });
        };
        // An erase under way has no holder that waits for it, but its block is not free yet.
        let erasing = self.blocks.iter().filter(|block| block.owner == id && block.in_flight > 0).count();
        let operations = self.vssds[at].operations.max(erasing as u32);
        if operations > 0 {
            return Err(DeallocError::Busy { vssd: id.0, operations });
        }
        let vssd = self.vssds.remove(id);
        self.queues.dismiss(id);
        self.former_work.0 += vssd.appended_ius;
        self.former_work.1 += vssd.erases;
        let (isolation, units) = (vssd.isolation, Vec::new());
        self.states.set_vssd(&VssdEntry { id, placed: false, isolation, read_only: false, units });
        for unit in &vssd.units {
            for &block in unit.map.iter().filter(|&&block| block != u32::MAX) {
                if self.blocks[block].is_moving() {
                    self.void_copy(block);
                }
                self.recycle(block);
            }
            self.queues.leave(unit.place.die, unit.flow, id);
            if let Some(target) = &unit.target {
                self.queues.leave(target.die, target.flow, id);
            }
        }
        let places: Vec<UnitPlace> = vssd.units.iter().map(|unit| unit.place).collect();
        self.resources.release(&places);
        self.end_empty_exchanges();
        Ok(())
    }

    /// Independent units of a vSSD, and bytes of the erase blocks it may hold; zeros if there is none.
    pub fn size_of(&self, id: VssdId) -> (u32, u64) {
        let Some(vssd) = self.at_of(id).map(|at| &self.vssds[at]) else { return (0, 0) };
        let blocks: u64 = vssd.units.iter().map(|unit| unit.map.len() as u64).sum();
        (vssd.units.len() as u32, blocks * self.geometry.erase_block_size_bytes())
    }
    /// Erase blocks a vSSD may hold, and those of them that it does not hold now; zeros if there is none.
    pub fn erase_blocks_of(&self, id: VssdId) -> (u64, u64) {
        let Some(vssd) = self.at_of(id).map(|at| &self.vssds[at]) else { return (0, 0) };
        let units = vssd.units.iter();
        units.fold((0, 0), |(all, free), unit| {
            (all + unit.map.len() as u64, free + unit.free_indices.len() as u64)
        })
    }
    /// Where the independent units of a vSSD lie, in their order; nowhere if there is none of that number.
    pub fn placement(&self, id: VssdId) -> Vec<UnitLocation> {
        let Some(vssd) = self.at_of(id).map(|at| &self.vssds[at]) else { return Vec::new() };
        let places = vssd.units.iter().map(|unit| {
            let die = self.geometry.die_at(unit.place.die);
            UnitLocation { channel: die.channel.0, die: die.die.0, soft_plane: unit.place.soft_plane }
        });
        places.collect()
    }
}
