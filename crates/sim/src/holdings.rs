//! What an application at erase blocks holds, by all that it was told: kept outside the system, which is never asked what
//! is right.
//!
//! The promises, each a finding of its own when it is broken:
//! - an append that was answered reads whole, after the death of either process and after a power cut, but for the last units of a
//!   block that is not full, as many as the shape names;
//! - a block is its holder's from the answer on; an allocation survives a crash from the first answered append, or the
//!   next answered sync, on;
//! - a freed block is gone; before a sync was answered a crash may bring it back, with all its content, and never afterwards;
//! - nobody's bytes but what was appended there are ever read.
//!
//! Content says who appended it where: the tag's volume is the application, its version the holding, its LBA the IU.

use crate::oracle::{Crash, Finding, Violation};
use crate::tag::{Content, Tag, VolumeNumber, recognize};
use diecut_blockspace::wire::{HeldRecord, Shape};
use diecut_blockspace::{LogicalBlock, UnitIndex};
use diecut_units::{ContentMode, IU_SIZE_BYTES};
use std::collections::BTreeMap;

/// An erase block from one allocation to its end; the number of the allocation, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HoldingId(pub u32);

/// Sizes of an erase block in IUs and program units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockSizes {
    /// IUs of a program unit.
    pub unit_ius: u32,
    /// Program units of a block.
    pub units: u32,
    /// Pages of a program unit.
    pub unit_pages: u32,
    /// Units last appended to a block that is not full that a power cut can destroy.
    pub unsafe_units: u32,
}

impl BlockSizes {
    /// Those of a shape.
    pub fn of(shape: &Shape) -> BlockSizes {
        let ius = |pages: u32| pages * (shape.page_size_bytes / IU_SIZE_BYTES as u32);
        BlockSizes {
            unit_ius: ius(shape.program_unit_pages),
            units: shape.pages / shape.program_unit_pages,
            unit_pages: shape.program_unit_pages,
            unsafe_units: shape.unsafe_units,
        }
    }
}

/// Whether, and how surely, a block was given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Freed {
    No,
    /// Asked for and not answered.
    Asked,
    /// Answered, at this stamp.
    Answered(u64),
}

/// See [`HoldingId`].
#[derive(Clone, Debug)]
pub struct Holding {
    unit: UnitIndex,
    /// Unknown until the allocation was answered.
    block: Option<LogicalBlock>,
    /// When that was.
    allocated: u64,
    /// No crash takes the allocation back.
    is_durable: bool,
    freed: Freed,
    /// Program units that were asked to be appended.
    asked_units: u32,
    /// Program units from the front that must read.
    sure_units: u32,
    /// What is behind the sure ones may be torn.
    is_torn: bool,
    takes_appends: bool,
}

impl Holding {
    /// The block, if its allocation was answered.
    pub fn block(&self) -> Option<LogicalBlock> {
        self.block
    }
    /// Program units that were asked to be appended.
    pub fn asked_units(&self) -> u32 {
        self.asked_units
    }
    /// Program units from the front that must read.
    pub fn sure_units(&self) -> u32 {
        self.sure_units
    }
    /// Whether it takes appends, for all that is known.
    pub fn takes_appends(&self) -> bool {
        self.takes_appends
    }
    /// Whether its holder wants it: it was never asked to be given back.
    pub fn is_wanted(&self) -> bool {
        self.freed == Freed::No
    }
}

/// See the module.
pub struct Holdings {
    application: VolumeNumber,
    holdings: BTreeMap<HoldingId, Holding>,
    /// Given back and seen to be gone; a crash before the next sync may bring them back.
    gone: BTreeMap<HoldingId, Holding>,
    last: u32,
    stamp: u64,
    /// Whether faults of the plan may lose what must else be there.
    may_lose: bool,
    /// Whether faults of the plan may make appends fail.
    may_fail: bool,
    /// The system went away since the application last looked.
    crashed: Option<Crash>,
}

impl Holdings {
    /// Nothing is held. The number stands in the tags of what is appended.
    pub fn new(application: VolumeNumber, may_lose: bool, may_fail: bool) -> Holdings {
        let (holdings, gone) = (BTreeMap::new(), BTreeMap::new());
        Holdings { application, holdings, gone, last: 0, stamp: 0, may_lose, may_fail, crashed: None }
    }

    fn tick(&mut self) -> u64 {
        self.stamp += 1;
        self.stamp
    }

    fn at(&mut self, id: HoldingId) -> &mut Holding {
        self.holdings.get_mut(&id).expect("operations are about what is held")
    }

    /// One of them, if it is still there.
    pub fn get(&self, id: HoldingId) -> Option<&Holding> {
        self.holdings.get(&id)
    }
    /// All of them, in the order of their allocation.
    pub fn iter(&self) -> impl Iterator<Item = (HoldingId, &Holding)> {
        self.holdings.iter().map(|(id, holding)| (*id, holding))
    }
    /// Blocks of a unit that are, or may be, taken.
    pub fn taken(&self, unit: UnitIndex) -> u32 {
        self.holdings.values().filter(|holding| holding.unit == unit).count() as u32
    }
    /// Blocks of a unit that are held for certain.
    pub fn held(&self, unit: UnitIndex) -> u32 {
        let held =
            |holding: &&Holding| holding.unit == unit && holding.block.is_some() && holding.is_wanted();
        self.holdings.values().filter(held).count() as u32
    }

    /// What an IU of a holding holds when it is appended.
    pub fn fill(&self, id: HoldingId, iu: u32, bytes: &mut [u8]) {
        self.tag(id, iu).fill(ContentMode::Bytes, bytes);
    }

    fn tag(&self, id: HoldingId, iu: u32) -> Tag {
        Tag { volume: self.application, lba: iu.into(), version: id.0 }
    }

    /// A block is asked for. Its purpose is [`HoldingId::purpose`].
    pub fn begin_allocate(&mut self, unit: UnitIndex) -> HoldingId {
        self.last += 1;
        let id = HoldingId(self.last);
        let holding = Holding {
            unit,
            block: None,
            allocated: u64::MAX,
            is_durable: false,
            freed: Freed::No,
            asked_units: 0,
            sure_units: 0,
            is_torn: false,
            takes_appends: true,
        };
        self.holdings.insert(id, holding);
        id
    }

    /// It was given.
    pub fn allocated(&mut self, id: HoldingId, block: LogicalBlock) -> Option<Violation> {
        let now = self.tick();
        let other = self.holdings.iter().find(|(_, one)| one.block == Some(block) && one.is_wanted());
        let violation = match other {
            Some((other, _)) => {
                let detail = format!("{block:?} is given to {id:?}, but {other:?} has it");
                Some(Violation::seen(Finding::WrongAnswer, detail))
            }
            None if block.unit != self.holdings[&id].unit => {
                let detail = format!("{block:?} is given to {id:?}, which asked for another unit");
                Some(Violation::seen(Finding::WrongAnswer, detail))
            }
            None => None,
        };
        let holding = self.at(id);
        (holding.block, holding.allocated) = (Some(block), now);
        violation
    }

    /// It was refused.
    pub fn not_allocated(&mut self, id: HoldingId) {
        self.holdings.remove(&id);
    }

    /// Program units are asked to be appended. The first of them.
    pub fn begin_append(&mut self, id: HoldingId, units: u32) -> u32 {
        let holding = self.at(id);
        holding.asked_units += units;
        holding.asked_units - units
    }

    /// They were, and begin at this IU, as the system says.
    pub fn appended(
        &mut self,
        id: HoldingId,
        first_unit: u32,
        units: u32,
        told_iu: u32,
        sizes: BlockSizes,
    ) -> Option<Violation> {
        let holding = self.at(id);
        let violation = (holding.sure_units != first_unit || told_iu != first_unit * sizes.unit_ius).then(|| {
            let detail = format!(
                "an append to {id:?} begins at IU {told_iu}, not at unit {first_unit} of {} IUs; {} units were there",
                sizes.unit_ius, holding.sure_units
            );
            Violation::seen(Finding::WrongAnswer, detail)
        });
        holding.sure_units = first_unit + units;
        holding.is_durable = true;
        violation
    }

    /// The program failed, or the block is one that takes no appends.
    pub fn append_failed(&mut self, id: HoldingId) {
        let holding = self.at(id);
        (holding.takes_appends, holding.is_torn) = (false, true);
    }

    /// It is asked to be given back.
    pub fn begin_free(&mut self, id: HoldingId) {
        self.at(id).freed = Freed::Asked;
    }

    /// It was.
    pub fn freed(&mut self, id: HoldingId) {
        let now = self.tick();
        self.at(id).freed = Freed::Answered(now);
    }

    /// A sync is asked for.
    pub fn begin_sync(&mut self) -> u64 {
        self.tick()
    }

    /// It was answered: what was allocated and freed before it is durable.
    pub fn synced(&mut self, begun: u64) {
        for holdings in [&mut self.holdings, &mut self.gone] {
            holdings.retain(|_, one| !matches!(one.freed, Freed::Answered(at) if at < begun));
        }
        for one in self.holdings.values_mut().filter(|one| one.allocated < begun) {
            one.is_durable = true;
        }
    }

    /// Keep was answered: what is not wanted any more is gone for good, and the rest durable.
    pub fn kept(&mut self) {
        self.holdings.retain(|_, one| one.is_wanted());
        self.gone.clear();
        self.holdings.values_mut().for_each(|one| one.is_durable = true);
    }

    /// The system went away.
    pub fn crash(&mut self, crash: Crash, sizes: Option<BlockSizes>) {
        self.crashed = Some(self.crashed.map_or(crash, |before| before.max(crash)));
        self.holdings.append(&mut self.gone);
        for one in self.holdings.values_mut() {
            let Some(sizes) = sizes else { continue };
            // Whoever took no appends since it was last looked at has nothing that a cut could tear.
            if one.takes_appends && one.sure_units < sizes.units {
                one.is_torn = true;
                if crash == Crash::PowerCut {
                    one.sure_units = one.sure_units.saturating_sub(sizes.unsafe_units);
                }
            }
        }
    }

    fn lost(&self) -> Finding {
        match self.crashed {
            Some(Crash::PowerCut) => Finding::LostAfterPowerCut,
            Some(Crash::ProcessDeath) => Finding::LostAfterProcessDeath,
            None => Finding::WrongAnswer,
        }
    }

    /// What the system says is held, when the application looks after its own death or that of the system: compares it with
    /// what must and may be there, and learns which of it is.
    pub fn look(&mut self, records: &[HeldRecord], sizes: BlockSizes) -> Vec<Violation> {
        let mut violations = Vec::new();
        let mut found: BTreeMap<HoldingId, &HeldRecord> = BTreeMap::new();
        for record in records {
            let is_it = |(id, one): &(&HoldingId, &Holding)| {
                id.purpose() == record.purpose
                    && one.block.map_or(one.unit == record.block.unit, |block| block == record.block)
            };
            let Some((id, one)) = self.holdings.iter().rev().find(is_it) else {
                violations
                    .push(Violation::seen(Finding::Resurrected, format!("{record:?} is held by nobody")));
                continue;
            };
            if self.crashed.is_none() && matches!(one.freed, Freed::Answered(_)) {
                violations.push(Violation::seen(
                    Finding::Resurrected,
                    format!("{record:?} ({id:?}) was given back and is held"),
                ));
            }
            let pages = one.sure_units * sizes.unit_pages..=one.asked_units * sizes.unit_pages;
            if !pages.contains(&record.written_pages) && !self.may_lose {
                let finding =
                    if record.written_pages < *pages.start() { self.lost() } else { Finding::WrongAnswer };
                let detail = format!("{record:?} ({id:?}) has not {pages:?} pages");
                violations.push(Violation::seen(finding, detail));
            }
            if let Some(twice) = found.insert(*id, record) {
                let detail = format!("{record:?} and {twice:?} are both {id:?}");
                violations.push(Violation::seen(Finding::WrongAnswer, detail));
            }
        }
        let sequences: Vec<u64> = found.values().map(|record| record.allocation_sequence).collect();
        if !sequences.is_sorted_by(|one, next| one < next) {
            let detail = format!("allocations come in another order: {found:?}");
            violations.push(Violation::seen(Finding::WrongAnswer, detail));
        }
        let (crashed, lost, may_lose) = (self.crashed, self.lost(), self.may_lose);
        // What a dead application had under way was waited for.
        let is_whole = crashed.is_none() && !self.may_fail;
        self.holdings.retain(|id, one| {
            let Some(record) = found.get(id) else {
                if crashed.is_none() && matches!(one.freed, Freed::Answered(_)) {
                    self.gone.insert(*id, one.clone());
                }
                let is_due = one.is_durable || crashed.is_none() && one.block.is_some();
                if is_due && one.is_wanted() && !may_lose {
                    violations.push(Violation::seen(lost, format!("{one:?} ({id:?}) is not held any more")));
                }
                return false;
            };
            one.block = Some(record.block);
            // What recovery found will be found again.
            one.is_durable |= crashed.is_some();
            one.asked_units = record.written_pages.div_ceil(sizes.unit_pages);
            // What a cut tore stays so, however often one looks.
            let is_whole = is_whole && !one.is_torn;
            one.sure_units = if is_whole { one.asked_units } else { one.sure_units.min(one.asked_units) };
            // An append that nobody heard of may have failed.
            one.is_torn |= one.sure_units < one.asked_units;
            // After a restart a block that is not full takes no more appends.
            one.takes_appends &= crashed.is_none();
            if let Freed::Answered(_) = one.freed {
                diecut_units::mark!("holdings: a freed block came back");
            }
            true
        });
        self.crashed = None;
        violations
    }

    /// Whether a read of these IUs, issued now, must give them.
    pub fn must_read(&self, id: HoldingId, first_iu: u32, count: u32, sizes: BlockSizes) -> bool {
        self.holdings[&id].sure_units * sizes.unit_ius >= first_iu + count
    }

    /// Whether a read that need not give its IUs may find them torn.
    pub fn may_be_torn(&self, id: HoldingId) -> bool {
        self.holdings.get(&id).is_none_or(|one| one.is_torn)
    }

    /// Checks what a read gave, and learns from it.
    pub fn check_read(
        &mut self,
        id: HoldingId,
        first_iu: u32,
        bytes: &[u8],
        sizes: BlockSizes,
    ) -> Option<Violation> {
        for (iu, bytes) in (first_iu..).zip(bytes.chunks_exact(IU_SIZE_BYTES)) {
            let (expected, content) = (self.tag(id, iu), recognize(bytes));
            if content == Content::Tagged(expected) {
                continue;
            }
            let finding = match content {
                Content::Tagged(tag) if tag.volume != self.application => Finding::Foreign,
                Content::Tagged(tag) if tag.version != id.0 => Finding::Stale,
                Content::Tagged(_) => Finding::Misdirected,
                Content::Zeros | Content::Torn { .. } => Finding::Torn,
            };
            return Some(Violation::seen(finding, format!("IU {iu} of {id:?} holds {content:?}")));
        }
        let count = (bytes.len() / IU_SIZE_BYTES) as u32;
        if let Some(one) = self.holdings.get_mut(&id) {
            // A unit that was read once stays.
            if first_iu == one.sure_units * sizes.unit_ius && count == sizes.unit_ius {
                one.sure_units += 1;
            }
        }
        None
    }
}

impl HoldingId {
    /// What the application says the block is for, so that it finds it again.
    pub fn purpose(self) -> u8 {
        self.0 as u8
    }
}

#[cfg(test)]
mod test {
    use super::*;

    const SIZES: BlockSizes = BlockSizes { unit_ius: 8, units: 8, unit_pages: 2, unsafe_units: 3 };
    const BLOCK: LogicalBlock = LogicalBlock { unit: UnitIndex(0), index: 4 };

    fn holding(appended: u32) -> (Holdings, HoldingId) {
        let mut holdings = Holdings::new(VolumeNumber(200), false, false);
        let id = holdings.begin_allocate(UnitIndex(0));
        assert_eq!(holdings.allocated(id, BLOCK), None);
        holdings.begin_append(id, appended);
        assert_eq!(holdings.appended(id, 0, appended, 0, SIZES), None);
        (holdings, id)
    }

    fn record(id: HoldingId, units: u32) -> HeldRecord {
        HeldRecord { block: BLOCK, purpose: id.purpose(), written_pages: units * 2, allocation_sequence: 1 }
    }

    fn findings(violations: &[Violation]) -> Vec<Finding> {
        violations.iter().map(|violation| violation.finding).collect()
    }

    #[test]
    fn what_was_answered_is_there_but_for_what_a_cut_can_destroy() {
        for (crash, units, good) in
            [(Crash::PowerCut, 5, 2), (Crash::ProcessDeath, 5, 5), (Crash::PowerCut, 8, 8)]
        {
            let (mut holdings, id) = holding(units);
            holdings.crash(crash, Some(SIZES));
            assert!(holdings.must_read(id, 0, good * 8, SIZES));
            assert!(!holdings.must_read(id, 0, good * 8 + 1, SIZES));
            let (mut lost, _) = holding(units);
            lost.crash(crash, Some(SIZES));
            assert_eq!(lost.look(&[record(id, good - 1)], SIZES).len(), 1, "{crash:?}");
            assert_eq!(holdings.look(&[record(id, good)], SIZES), []);
        }
    }

    /// Seed 714 on four channels: the application died once more, and looked again.
    #[test]
    fn what_a_cut_tore_is_not_whole_at_the_second_look() {
        let (mut holdings, id) = holding(2);
        holdings.crash(Crash::PowerCut, Some(SIZES));
        for _ in 0..2 {
            assert_eq!(holdings.look(&[record(id, 2)], SIZES), []);
            assert!(!holdings.must_read(id, 0, 8, SIZES));
        }
    }

    #[test]
    fn a_block_that_is_missing_is_found_and_one_that_nobody_has() {
        let (mut holdings, id) = holding(1);
        assert_eq!(findings(&holdings.look(&[], SIZES)), [Finding::WrongAnswer]);
        assert_eq!(findings(&holdings.look(&[record(id, 1)], SIZES)), [Finding::Resurrected]);
        let (mut holdings, _) = holding(1);
        holdings.crash(Crash::ProcessDeath, Some(SIZES));
        assert_eq!(findings(&holdings.look(&[], SIZES)), [Finding::LostAfterProcessDeath]);
    }

    #[test]
    fn a_freed_block_may_come_back_until_a_sync_and_only_after_a_crash() {
        let freed = || {
            let (mut holdings, id) = holding(1);
            holdings.begin_free(id);
            holdings.freed(id);
            (holdings, id)
        };
        let (mut holdings, id) = freed();
        assert_eq!(findings(&holdings.look(&[record(id, 1)], SIZES)), [Finding::Resurrected]);
        let (mut holdings, id) = freed();
        holdings.crash(Crash::PowerCut, Some(SIZES));
        assert_eq!(holdings.look(&[record(id, 1)], SIZES), []);
        let (mut holdings, id) = freed();
        let sync = holdings.begin_sync();
        holdings.synced(sync);
        holdings.crash(Crash::PowerCut, Some(SIZES));
        assert_eq!(findings(&holdings.look(&[record(id, 1)], SIZES)), [Finding::Resurrected]);
    }

    /// Seed 329 without protected memory: the application died, looked and did not see it, and then the power went.
    #[test]
    fn a_freed_block_may_come_back_though_it_was_seen_to_be_gone() {
        for is_synced in [false, true] {
            let (mut holdings, id) = holding(1);
            holdings.begin_free(id);
            holdings.freed(id);
            assert_eq!(holdings.look(&[], SIZES), []);
            if is_synced {
                holdings.kept();
            }
            holdings.crash(Crash::PowerCut, Some(SIZES));
            let found = findings(&holdings.look(&[record(id, 1)], SIZES));
            assert_eq!(found.is_empty(), !is_synced, "{found:?}");
        }
    }

    #[test]
    fn bytes_of_others_are_told_apart() {
        let (mut holdings, id) = holding(1);
        let mut bytes = vec![0; IU_SIZE_BYTES];
        for (tag, finding) in [
            (Tag { volume: VolumeNumber(1), lba: 0, version: 1 }, Finding::Foreign),
            (Tag { volume: VolumeNumber(200), lba: 0, version: 9 }, Finding::Stale),
            (Tag { volume: VolumeNumber(200), lba: 3, version: 1 }, Finding::Misdirected),
        ] {
            tag.fill(ContentMode::Bytes, &mut bytes);
            let found = holdings.check_read(id, 0, &bytes, SIZES).map(|violation| violation.finding);
            assert_eq!(found, Some(finding));
        }
        holdings.fill(id, 0, &mut bytes);
        assert_eq!(holdings.check_read(id, 0, &bytes, SIZES), None);
        assert!(holdings.check_read(id, 0, &[0; IU_SIZE_BYTES], SIZES).is_some());
    }
}
