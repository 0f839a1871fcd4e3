//! What was found at opening becomes zones again.

use super::{SETTLE, ZoneStore};
use crate::journal::Entry;
use crate::mark::Mark;
use crate::opening::{Finds, FoundBlock, unsettled_rows};
use crate::shape::ZoneShape;
use crate::slot::SlotName;
use crate::staging::SlotIndex;
use crate::states::{ZoneState, ZoneView};
use crate::token::Kind;
use crate::zone::{Stage, StagedUnit, Zone, ZoneName};
use diecut_units::{mark, mutant};
use diecut_vssd::space::{EraseBlockSpace, LogicalBlock};
use std::collections::BTreeMap;

/// What was found of one life of a zone.
#[derive(Default)]
struct Life {
    blocks: Vec<FoundBlock>,
    slots: Vec<(SlotIndex, SlotName, bool)>,
}

impl ZoneStore {
    /// Takes over what was found, if all was looked at.
    pub(super) fn end_opening(&mut self, space: &mut dyn EraseBlockSpace) {
        if !self.opening.as_ref().is_some_and(|opening| opening.is_over()) {
            return;
        }
        let Finds { blocks, slots, damaged_slots, journal, journal_blocks } =
            self.opening.take().expect("just looked at").into_finds();
        let kept = journal.as_ref().map(|(.., block)| *block);
        let mut lost_blocks: Vec<LogicalBlock> =
            journal_blocks.into_iter().filter(|block| Some(*block) != kept).collect();
        if let Some((sequence, entries, block)) = journal {
            self.journal.adopt(entries, sequence, block);
        }
        self.statistics.damaged_slots = damaged_slots.len() as u64;
        damaged_slots.into_iter().for_each(|slot| self.staging.drop_found(slot));
        let mut lives: BTreeMap<(u32, u32), BTreeMap<u32, Life>> = BTreeMap::new();
        for block in blocks {
            match block.mark {
                Some(Mark { set, zone, generation, .. }) => {
                    lives.entry((set, zone)).or_default().entry(generation).or_default().blocks.push(block);
                }
                None => lost_blocks.push(block.held.block),
            }
        }
        for (index, name, is_committed) in slots {
            let of_zone = lives.entry((name.set, name.zone)).or_default();
            of_zone.entry(name.generation).or_default().slots.push((index, name, is_committed));
        }
        let generations = lives.values().flat_map(BTreeMap::keys).max();
        self.next_generation = generations.map_or(1, |newest| newest + 1);
        for (key, lives) in lives {
            self.find_zone(key, lives, &mut lost_blocks);
        }
        self.apply_journal();
        for block in lost_blocks {
            space.free(block).expect("I-Z13: what was found is held");
        }
        // Nobody sees zones before it is durable what is not theirs: a cut would show it again.
        self.is_settling = true;
        space.sync(Kind::Sync.token(SETTLE));
    }

    /// Takes the newest life of a zone that is there; the others end.
    fn find_zone(
        &mut self,
        (set_id, number): (u32, u32),
        mut lives: BTreeMap<u32, Life>,
        lost_blocks: &mut Vec<LogicalBlock>,
    ) {
        let position = self.sets.iter().position(|set| {
            set.as_ref().is_some_and(|set| set.definition.id == set_id && number < set.definition.zones)
        });
        let mut is_found = false;
        while let Some((generation, life)) = lives.pop_last() {
            let shape = position.and_then(|at| self.sets[at].as_ref()).map(|set| set.shape);
            let is_there = shape.is_some_and(|shape| self.is_there(&life, number, &shape));
            if is_found || !is_there {
                mark!("zoned: a life of a zone that had ended");
                lost_blocks.extend(life.blocks.iter().map(|found| found.held.block));
                life.slots.iter().for_each(|(slot, ..)| self.staging.drop_found(*slot));
                continue;
            }
            is_found = true;
            let at = position.expect("a zone that is there has a set");
            let name = ZoneName { set: at as u16, set_id, zone: number, generation };
            self.take_over(name, life, lost_blocks);
        }
    }

    fn settles(&self) -> Settles {
        match self.staging.is_protected() {
            true => Settles::Unstaged,
            false => Settles::Before(unsettled_rows(&self.facts.block)),
        }
    }

    /// Whether the first program unit of a zone is there.
    fn is_there(&self, life: &Life, number: u32, shape: &ZoneShape) -> bool {
        let first = shape.unit_of(number, 0);
        let counts = |found: &FoundBlock| {
            found.held.block.unit == first
                && rows_that_count(found, 0, &life.slots, shape, self.settles()) > 0
        };
        life.blocks.iter().any(counts) || life.slots.iter().any(|(_, name, _)| name.unit == 0)
    }

    fn take_over(&mut self, name: ZoneName, life: Life, lost_blocks: &mut Vec<LogicalBlock>) {
        let is_protected = self.staging.is_protected();
        let settles = self.settles();
        let set = self.sets[usize::from(name.set)].as_mut().expect("found with its set");
        let shape = set.shape;
        let claim = self.staging.begin_again(set.slots_owed);
        let mut zone = Box::new(Zone::new(name, &shape, claim));
        let mut best: Vec<Option<FoundBlock>> = vec![None; usize::from(shape.width)];
        for found in life.blocks {
            let Some(column) = shape.column_on(name.zone, found.held.block.unit) else {
                lost_blocks.push(found.held.block);
                continue;
            };
            let loses = match &mut best[column] {
                None => {
                    best[column] = Some(found);
                    continue;
                }
                Some(other) if counts_before(&found, other) => std::mem::replace(other, found),
                Some(_) => found,
            };
            mark!("zoned: a block and its copy");
            lost_blocks.push(loses.held.block);
        }
        for (at, (column, found)) in zone.columns.iter_mut().zip(&best).enumerate() {
            let Some(found) = found else { continue };
            let mark = found.mark.expect("found by it");
            (column.edition, column.copied_rows) = (mark.edition, mark.copied_rows.into());
            let rows = rows_that_count(found, at, &life.slots, &shape, settles);
            if rows == 0 {
                // What it holds of its first row would make a zone of it that was reset.
                lost_blocks.push(found.held.block);
                continue;
            }
            column.block = Some(found.held.block);
            (column.done_rows, column.begun_rows) = (rows, rows);
        }
        for (slot, of, is_committed) in life.slots {
            let (column, row) = shape.place(of.unit);
            let is_whole = self.staging.slot(slot).prefix_ius() == shape.unit_ius;
            zone.is_random |=
                of.is_random && !is_committed && !mutant!("zoned: a restart forgets random write areas");
            // One that was being staged again is on flash as a whole.
            if of.unit >= shape.unit_count() || (row < zone.columns[column].done_rows && !is_whole) {
                self.staging.drop_found(slot);
                continue;
            }
            let stage = match () {
                () if row < zone.columns[column].done_rows => Stage::Programmed,
                () if is_committed && is_whole => Stage::Ready,
                () => Stage::Filling,
            };
            self.staging.adopt(&mut zone.claim);
            zone.stage(StagedUnit { unit: of.unit, slot, stage, origin: None });
        }
        let mut unit = 0;
        zone.taken_ius = loop {
            if unit == shape.unit_count() {
                break shape.capacity_ius();
            }
            let (column, row) = shape.place(unit);
            let is_on_flash = row < zone.columns[column].done_rows;
            match zone.staged(unit) {
                _ if is_on_flash => unit += 1,
                Some(staged) if staged.stage == Stage::Ready => unit += 1,
                Some(staged)
                    if staged.stage == Stage::Filling
                        && (!zone.is_random
                            || mutant!("zoned: what lies in a random write area counts as written")) =>
                {
                    break unit * shape.unit_ius + self.staging.slot(staged.slot).prefix_ius();
                }
                _ => break unit * shape.unit_ius,
            }
        };
        let first_gap = zone.taken_ius.div_ceil(shape.unit_ius);
        let is_beyond = |staged: &StagedUnit| staged.unit >= first_gap && !zone.is_random;
        let mut is_torn = zone.staged.iter().any(is_beyond);
        for (at, column) in zone.columns.iter_mut().enumerate() {
            let rows = shape.rows_before(first_gap, at);
            if column.done_rows > rows {
                is_torn |= is_protected;
                column.is_stale = !mutant!("zoned: rows that no longer count stay");
                (column.done_rows, column.begun_rows) = (rows, rows);
            }
        }
        if is_torn {
            mark!("zoned: a zone has a gap");
            zone.is_worn = true;
        }
        let view = ZoneView {
            state: ZoneState::Closed,
            written_ius: zone.taken_ius,
            is_random: zone.is_random,
            has_extension: false,
        };
        let state = match () {
            () if zone.taken_ius == shape.capacity_ius() => ZoneState::Full,
            () if is_torn => ZoneState::ReadOnly,
            () => ZoneState::Closed,
        };
        zone.is_complete = state == ZoneState::Full;
        let is_random = zone.is_random && state == ZoneState::Closed;
        // The journal may say more; it is asked when all zones are found.
        set.zones[name.zone as usize] = Some(zone);
        self.found_views.push((name.set, name.zone, ZoneView { state, is_random, ..view }));
        self.list(name.set, name.zone);
    }

    /// What the journal says of zones counts, unless it is of a life that ended.
    fn apply_journal(&mut self) {
        let mut views: BTreeMap<(u16, u32), ZoneView> = std::mem::take(&mut self.found_views)
            .into_iter()
            .map(|(set, zone, view)| ((set, zone), view))
            .collect();
        let entries: Vec<((u32, u32), Entry)> = self.journal.entries().collect();
        for ((set_id, number), entry) in entries {
            let at = self.sets.iter().position(|set| {
                set.as_ref().is_some_and(|set| set.definition.id == set_id && number < set.definition.zones)
            });
            let Some(at) = at else {
                self.journal.change((set_id, number), |entry| *entry = Entry::default());
                continue;
            };
            let set = self.sets[at].as_mut().expect("just found");
            let zone = set.zones[number as usize].as_deref_mut();
            let generation = zone.as_ref().map_or(0, |zone| zone.name.generation);
            if entry.generation != generation && (entry.generation != 0 || entry.extension.is_none()) {
                mark!("zoned: the journal speaks of a life that ended");
                self.journal.change((set_id, number), |entry| *entry = Entry::default());
                continue;
            }
            let empty =
                ZoneView { state: ZoneState::Closed, written_ius: 0, is_random: false, has_extension: false };
            let view = views.entry((at as u16, number)).or_insert(empty);
            view.has_extension = entry.extension.is_some();
            if entry.generation == generation {
                view.state = match () {
                    () if entry.is_offline => ZoneState::Offline,
                    () if entry.is_read_only => ZoneState::ReadOnly,
                    () if entry.finished_ius.is_some() => ZoneState::Full,
                    () => view.state,
                };
            }
            if view.state != ZoneState::Closed {
                view.is_random = false;
            }
            if let Some(finished_ius) = entry.finished_ius.filter(|_| view.state == ZoneState::Full) {
                // What lies behind fills a program unit up.
                view.written_ius = finished_ius;
            }
            if let Some(zone) = zone {
                zone.is_worn |= matches!(view.state, ZoneState::ReadOnly | ZoneState::Offline);
                if view.state == ZoneState::Full && !zone.is_complete {
                    zone.finishes = Some(0);
                }
            }
        }
        for ((set, zone), view) in views {
            let set = self.sets[usize::from(set)].as_mut().expect("found with its set");
            set.states.found(zone, view);
        }
    }
}

/// How it is known that a row was programmed to its end.
#[derive(Clone, Copy)]
enum Settles {
    /// In protected memory what a cut can destroy is staged: all other rows.
    Unstaged,
    /// Rows with so many behind them.
    Before(u32),
}

/// Rows of a block of a column that count. One that was programmed to its end counts though it cannot be read: it is lost, and reads say so.
fn rows_that_count(
    found: &FoundBlock,
    column: usize,
    slots: &[(SlotIndex, SlotName, bool)],
    shape: &ZoneShape,
    settles: Settles,
) -> u32 {
    let settled_rows = match settles {
        Settles::Unstaged => {
            let is_staged = |row: &u32| {
                let unit = row * u32::from(shape.width) + column as u32;
                slots.iter().any(|(_, name, _)| name.unit == unit)
            };
            (0..found.rows).rev().find(|row| !is_staged(row)).map_or(0, |row| row + 1)
        }
        Settles::Before(rows) => {
            let copied_rows = found.mark.map_or(0, |mark| mark.copied_rows.into());
            found.rows.saturating_sub(rows).max(copied_rows)
        }
    };
    let settled_rows = if mutant!("zoned: rows that are lost do not count") { 0 } else { settled_rows };
    found.rows_before_torn(settled_rows)
}

/// Whether of two blocks of a column the first one counts: it is a copy of the other one, and complete, or the other one is none.
fn counts_before(one: &FoundBlock, other: &FoundBlock) -> bool {
    let (Some(mark), Some(of_other)) = (one.mark, other.mark) else { return one.mark.is_some() };
    let is_complete = |found: &FoundBlock, mark: &Mark| {
        found.is_complete(mark.copied_rows.into()) || mutant!("zoned: a copy that is not complete counts")
    };
    let is_newer = (mark.edition.wrapping_sub(of_other.edition) as i8) > 0;
    if is_newer { is_complete(one, &mark) } else { !is_complete(other, &of_other) }
}
