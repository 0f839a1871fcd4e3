//! What must be true of erase blocks, known from calls and answers alone.

use diecut_units::EraseBlockAddress;
use diecut_vssd::{HeldBlock, LogicalBlock, OobKind, OobRecord, VssdId};
use std::collections::BTreeMap;

/// A command that changes flash, as it was handed to the device.
pub enum Event {
    Erase { block: EraseBlockAddress },
    Program { block: EraseBlockAddress, page: u32, record: OobRecord, erase_count: u32 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Held,
    /// Freed; `true`: a sync completed since.
    Freed(bool),
}

/// One allocation of an erase block.
#[derive(Clone, Debug)]
pub struct Allocation {
    pub vssd: VssdId,
    pub block: LogicalBlock,
    pub fate: Fate,
    /// An append or a sync completed since the allocation.
    pub durable: bool,
    /// A cut ended its appends: reads only.
    pub sealed: bool,
    pub failed: bool,
    pub units_submitted: u32,
    pub units_acked: u32,
    /// Units that a cut can have destroyed.
    pub units_unsafe: u32,
}

/// See the module. Allocations are known by their sequence, which is never used again.
#[derive(Default)]
pub struct Oracle {
    pub allocations: BTreeMap<u64, Allocation>,
    pub vssds: Vec<VssdId>,
    pub read_only: Vec<VssdId>,
    /// What lies where: allocation, and pages asked for.
    physical: BTreeMap<EraseBlockAddress, (u64, u32)>,
    pub pages_per_unit: u32,
    counts: BTreeMap<EraseBlockAddress, u32>,
}

type Finding = Result<(), String>;

impl Oracle {
    /// Looks at what was asked of flash before the holder's next call.
    pub fn watch(&mut self, event: Event) -> Finding {
        match event {
            Event::Erase { block } => {
                let Some((sequence, _)) = self.physical.remove(&block) else { return Ok(()) };
                let Some(held) = self.allocations.get(&sequence) else { return Ok(()) };
                // A copy on another die that holds all of it may have taken its place.
                let whole = held.units_acked * self.pages_per_unit;
                let copied =
                    self.physical.values().any(|(other, pages)| *other == sequence && *pages >= whole);
                if held.fate == Fate::Held && whole > 0 && !copied {
                    return Err(format!("{block} is erased while it is held: {held:?}"));
                }
            }
            Event::Program { block, page, record, erase_count } => {
                if record.erase_count < erase_count {
                    return Err(format!(
                        "{block} was erased {erase_count} times, its record says {record:?}"
                    ));
                }
                self.count(block, record.erase_count)?;
                let allocation = self.allocations.get(&record.sequence);
                let owned = |held: &Allocation| held.vssd == record.owner && held.block == record.block;
                let is_copy = record.kind == OobKind::Copy;
                let placed =
                    if is_copy { page < record.page_or_length } else { page == record.page_or_length };
                if !allocation.is_some_and(owned) || !placed {
                    return Err(format!(
                        "{block} page {page} is programmed for {record:?}, not {allocation:?}"
                    ));
                }
                let elsewhere = self.physical.values().any(|(other, _)| *other == record.sequence);
                match self.physical.get_mut(&block) {
                    None if page == 0 => {
                        if elsewhere && !is_copy {
                            return Err(format!("two erase blocks for {record:?}"));
                        }
                        self.physical.insert(block, (record.sequence, self.pages_per_unit));
                    }
                    Some((sequence, pages)) if *sequence == record.sequence && page == *pages => {
                        *pages += self.pages_per_unit;
                    }
                    other => return Err(format!("{block} page {page} holds {other:?}, not {record:?}")),
                }
            }
        }
        Ok(())
    }

    fn count(&mut self, block: EraseBlockAddress, erase_count: u32) -> Finding {
        let before = self.counts.entry(block).or_default();
        if erase_count < *before {
            return Err(format!("the erase count of {block} went from {before} to {erase_count}"));
        }
        *before = erase_count;
        Ok(())
    }

    pub fn held(&self, vssd: VssdId) -> Vec<u64> {
        let held = self.allocations.iter();
        let held = held.filter(|(_, one)| one.vssd == vssd && one.fate == Fate::Held);
        held.map(|(sequence, _)| *sequence).collect()
    }

    /// A sync completed: so they were when it was asked for.
    pub fn synced(&mut self, covers: Vec<(u64, Fate)>) {
        for (sequence, fate) in covers {
            let Some(one) = self.allocations.get_mut(&sequence) else { continue };
            match fate {
                Fate::Held => one.durable = true,
                Fate::Freed(_) => one.fate = Fate::Freed(true),
            }
        }
    }

    /// Power or process went: what was open takes no more, and what was programmed last may be gone.
    pub fn crashed(&mut self, power: bool, unsafe_units: u32, units_per_block: u32) {
        for one in self.allocations.values_mut() {
            one.sealed = one.units_submitted < units_per_block || one.units_acked < one.units_submitted;
            if power && one.units_acked < units_per_block {
                one.units_unsafe = one.units_unsafe.max(unsafe_units);
            }
        }
    }

    /// Compares what a vSSD holds after a restart. Frees that were not durable are undone where the block came back.
    pub fn compare(
        &mut self,
        vssd: VssdId,
        found: &[HeldBlock],
        pages_per_unit: u32,
        counted: bool,
    ) -> Finding {
        for held in found {
            let Some(one) = self.allocations.get_mut(&held.allocation_sequence) else {
                return Err(format!("vSSD {} holds {held:?}, which nobody allocated", vssd.0));
            };
            if one.vssd != vssd || one.block != held.block || one.fate == Fate::Freed(true) {
                return Err(format!("vSSD {} holds {held:?}, but it is {one:?}", vssd.0));
            }
            // Without protected memory the pages are counted on flash: what the cut destroyed is not among them.
            let safe =
                if counted { one.units_acked.saturating_sub(one.units_unsafe) } else { one.units_acked };
            let (least, most) = (safe * pages_per_unit, one.units_submitted * pages_per_unit);
            if !(least..=most).contains(&held.written_pages) {
                return Err(format!("{held:?} of {one:?}"));
            }
            one.fate = Fate::Held;
        }
        let found: Vec<u64> = found.iter().map(|held| held.allocation_sequence).collect();
        for (sequence, one) in self.allocations.iter().filter(|(_, one)| one.vssd == vssd) {
            if one.fate == Fate::Held && one.durable && !found.contains(sequence) {
                return Err(format!("allocation {sequence} is lost: {one:?}"));
            }
        }
        self.allocations.retain(|sequence, one| one.vssd != vssd || found.contains(sequence));
        Ok(())
    }
}
