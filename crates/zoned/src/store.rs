use crate::changed::ChangedZones;
use crate::contract::{
    ZoneAnswer, ZoneCommand, ZoneCompletion, ZoneError, ZoneOperation, ZoneRange, ZoneSetIndex, ZoneToken,
};
use crate::copies::{Copies, Copy};
use crate::journal::{self, Journal};
use crate::lent::{Facts, Lent, UnderWay};
use crate::opening::Opening;
use crate::operations::Operations;
use crate::purging::Purging;
use crate::reads::{ReadLent, Reads, Then};
use crate::retiring::Retiring;
use crate::set::{Set, ZoneSetDefinition};
use crate::shape::ZoneShape;
use crate::staging::Staging;
use crate::states::{Change, ZoneRefusal, ZoneState, ZoneView};
use crate::token::Kind;
use crate::writer::Step;
use crate::zone::{Zone, ZoneName};
use diecut_units::{BufferMut, BufferPool, ProtectedRegion, Slab, Span, Time, mutant};
use diecut_vssd::space::{EraseBlockSpace, SpaceCompletion, SpaceError};

mod commands;
mod recovered;

/// How long a zone waits that needs room which the file system below does not have. A choice.
const LOOK_AGAIN: Span = Span::from_millis(100);
/// How long a purge waits for somebody below who still reads a slot.
const LOOK_AT_SLOTS: Span = Span::from_millis(1);
/// Slots in ordinary memory for each unit of the vSSD, where the device has no protected memory.
const PLAIN_SLOTS_PER_UNIT: u32 = 4;
/// The place of the sync that is for no zone.
const SWEEP: u32 = u32::MAX;
/// The place of the sync that ends opening.
const SETTLE: u32 = u32::MAX - 1;

/// What a store counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ZoneStatistics {
    /// IUs that hosts wrote.
    pub host_written_ius: u64,
    /// IUs that hosts had copied, and that dies copied without a transfer to them.
    pub copied_within_dies_ius: u64,
    /// Blocks that were copied because nothing could be programmed behind their content.
    pub relocated_blocks: u64,
    /// Zones that were reset.
    pub resets: u64,
    /// Slots of staging of which nothing could be told at the last opening.
    pub damaged_slots: u64,
}

/// The zones of all zoned namespaces on one vSSD.
pub struct ZoneStore {
    facts: Facts,
    sets: Vec<Option<Set>>,
    staging: Staging,
    journal: Journal,
    under_way: UnderWay,
    reads: Reads,
    copies: Copies,
    pool: BufferPool,
    operations: Operations,
    purging: Purging,
    retiring: Slab<Retiring>,
    /// Zones that have something to do: place of the set, zone.
    busy: Vec<(u16, u32)>,
    /// Zones that wait for a slot or an erase block.
    starved: Vec<(u16, u32)>,
    /// Zones that wait until the journal says durably that they are finished.
    finishing: Vec<(u16, u32)>,
    /// When zones that wait for room look again.
    looks_again: Time,
    next_generation: u32,
    opening: Option<Box<Opening>>,
    early: Vec<ZoneCommand>,
    is_gone: bool,
    /// What opening gave back is not durably so yet.
    is_settling: bool,
    /// A sync is under way that lets blocks be had again.
    is_sweeping: bool,
    /// Writes that a reset overtook, and where their zone begins: they are answered as written.
    overtaken: Vec<(ZoneToken, u64)>,
    /// While the store opens: zones as far as blocks and staging tell.
    found_views: Vec<(u16, u32, ZoneView)>,
    statistics: ZoneStatistics,
    changes: Vec<Change>,
}

impl ZoneStore {
    /// Opens a store: empty on an empty space, else it finds its zones again. Commands are accepted at once and served when that is done.
    ///
    /// `staging` is the store's part of protected memory, the same at each opening. `sets` are all namespaces that exist; zones of others
    /// are given back.
    ///
    /// # Panics
    /// If a set is none: see [`crate::ZoneRoom::check`].
    pub fn open(
        sets: &[(ZoneSetIndex, ZoneSetDefinition)],
        space: &mut dyn EraseBlockSpace,
        staging: Option<ProtectedRegion>,
    ) -> ZoneStore {
        let facts = Facts::of(space);
        let unit_ius = facts.block.program_unit_ius();
        let plain = PLAIN_SLOTS_PER_UNIT * u32::from(facts.units);
        let mut staging = Staging::new(staging, plain, unit_ius, facts.mode.bytes_per_iu());
        let found = staging.take_found();
        let opening = Opening::start(found, &facts, space);
        let mut store = ZoneStore {
            facts,
            sets: Vec::new(),
            staging,
            journal: Journal::default(),
            under_way: UnderWay::default(),
            reads: Reads::default(),
            copies: Copies::default(),
            pool: BufferPool::new(),
            operations: Operations::default(),
            purging: Purging::default(),
            retiring: Slab::new(),
            busy: Vec::new(),
            starved: Vec::new(),
            finishing: Vec::new(),
            looks_again: Time::NEVER,
            next_generation: 1,
            opening: Some(Box::new(opening)),
            early: Vec::new(),
            is_gone: false,
            is_settling: false,
            is_sweeping: false,
            overtaken: Vec::new(),
            found_views: Vec::new(),
            statistics: ZoneStatistics::default(),
            changes: Vec::new(),
        };
        for (index, definition) in sets {
            store.create_set(*index, *definition);
        }
        store.end_opening(space);
        store
    }

    /// Whether its zones were found.
    pub fn is_ready(&self) -> bool {
        self.opening.is_none() && !self.is_settling
    }

    /// Makes the zones of a namespace, all empty.
    ///
    /// # Panics
    /// If the place is taken, or zones cannot be like this: see [`crate::ZoneRoom::check`].
    pub fn create_set(&mut self, index: ZoneSetIndex, definition: ZoneSetDefinition) {
        let at = usize::from(index.0);
        if at >= self.sets.len() {
            self.sets.resize_with(at + 1, || None);
        }
        assert!(self.sets[at].is_none(), "I-Z14: {index:?} is taken");
        let shape = self.shape_of(definition.width);
        let shape = shape.expect("I-Z14: zones were checked before they are made");
        self.sets[at] = Some(Set::new(definition, shape, &self.facts.block));
    }

    fn shape_of(&self, width: u16) -> Result<ZoneShape, String> {
        let block = &self.facts.block;
        ZoneShape::new(width, self.facts.units, block.program_unit_ius(), block.program_units())
    }

    /// Gives the zones of a namespace back with all they hold. The completion says that it is durable.
    pub fn delete_set(&mut self, token: ZoneToken, index: ZoneSetIndex) {
        let set = self.sets.get_mut(usize::from(index.0)).and_then(Option::take);
        let operation = self.operations.begin(token);
        if let Some(set) = set {
            for zone in set.zones.into_iter().flatten() {
                self.retire(zone, operation);
            }
            let change = self.journal.forget(set.definition.id);
            self.operations.waits_for_change(operation, change);
        }
        self.operations.is_begun(operation);
    }

    /// Whether a namespace has its zones here.
    pub fn has_set(&self, index: ZoneSetIndex) -> bool {
        self.set(index).is_some()
    }

    /// What one zone is like, if it exists.
    pub fn zone(&self, index: ZoneSetIndex, zone: u32) -> Option<ZoneView> {
        let set = self.set(index)?;
        (zone < set.states.count()).then(|| set.states.zone(zone))
    }

    /// Shape of the zones of a namespace.
    pub fn shape(&self, index: ZoneSetIndex) -> Option<&ZoneShape> {
        Some(&self.set(index)?.shape)
    }

    /// Takes the zones of a namespace that the medium changed by itself since they were taken last.
    pub fn take_changed(&mut self, index: ZoneSetIndex) -> ChangedZones {
        let set = self.sets.get_mut(usize::from(index.0)).and_then(Option::as_mut);
        set.map_or_else(ChangedZones::default, |set| std::mem::take(&mut set.changed))
    }

    /// IUs of a namespace that hold data.
    pub fn used_ius(&self, index: ZoneSetIndex) -> u64 {
        let Some(set) = self.set(index) else { return 0 };
        (0..set.states.count()).map(|zone| u64::from(set.states.zone(zone).written_ius)).sum()
    }

    /// IUs of all namespaces that hold data.
    pub fn all_used_ius(&self) -> u64 {
        (0..self.sets.len() as u16).map(|index| self.used_ius(ZoneSetIndex(index))).sum()
    }

    fn set(&self, index: ZoneSetIndex) -> Option<&Set> {
        self.sets.get(usize::from(index.0))?.as_ref()
    }

    /// Figures.
    pub fn statistics(&self) -> ZoneStatistics {
        let unit_ius = u64::from(self.facts.block.program_unit_ius());
        let copied_within_dies_ius = self.under_way.copied_units * unit_ius;
        ZoneStatistics { copied_within_dies_ius, ..self.statistics }
    }

    /// Gives up free buffers that were not needed since the last call; see [`BufferPool::shrink`].
    pub fn shrink(&mut self, slabs_max: u32) -> usize {
        self.pool.shrink(slabs_max)
    }

    /// Whether nothing of it is under way at its space.
    pub fn is_still(&self) -> bool {
        self.is_ready()
            && self.reads.are_done()
            && self.copies.are_done()
            && self.under_way.programs.is_empty()
            && self.under_way.copies.is_empty()
            && self.retiring.is_empty()
            && !self.is_sweeping
            && !self.journal.is_writing()
    }

    /// When [`ZoneStore::work`] has something to do though nothing came.
    pub fn deadline(&self) -> Time {
        self.looks_again
    }

    /// Takes a command. Call [`ZoneStore::work`] after a batch.
    pub fn submit(
        &mut self,
        command: ZoneCommand,
        space: &mut dyn EraseBlockSpace,
        completions: &mut Vec<ZoneCompletion>,
    ) {
        let ZoneCommand { token, set, operation } = command;
        if self.is_gone || (self.is_ready() && self.set(set).is_none()) {
            completions.push(ZoneCompletion { token, result: Err(ZoneError::Gone) });
            return;
        }
        if !self.is_ready() {
            self.early.push(ZoneCommand { token, set, operation });
            return;
        }
        match operation {
            ZoneOperation::Read { first_iu, iu_count, destination } => {
                let range = ZoneRange { first_iu, iu_count };
                self.read(token, set, &[range], Some(destination), Then::Give, space, completions);
            }
            ZoneOperation::Verify { first_iu, iu_count } => {
                let range = ZoneRange { first_iu, iu_count };
                self.read(token, set, &[range], None, Then::Check, space, completions);
            }
            ZoneOperation::Copy { sources, first_iu } => {
                self.copies.add(Copy { token, set, sources, first_iu });
                self.go_on_copying(space, completions);
            }
            other => self.change(token, set, other, space, completions),
        }
    }

    #[allow(clippy::too_many_arguments)]
    fn read(
        &mut self,
        token: ZoneToken,
        set: ZoneSetIndex,
        ranges: &[ZoneRange],
        destination: Option<BufferMut>,
        then: Then,
        space: &mut dyn EraseBlockSpace,
        completions: &mut Vec<ZoneCompletion>,
    ) {
        let set = self.sets[usize::from(set.0)].as_ref().expect("I-Z14: a set that is used is there");
        if let Some(zone) = set.offline_zone(ranges) {
            let error = ZoneError::Refused { zone, refusal: ZoneRefusal::Offline };
            completions.push(ZoneCompletion { token, result: Err(error) });
            return;
        }
        let mut lent = ReadLent {
            shape: &set.shape,
            facts: &self.facts,
            zones: &set.zones,
            staging: &self.staging,
            pool: &mut self.pool,
            space,
        };
        self.reads.read(token, ranges, destination, then, &mut lent, completions);
    }

    /// Copies that may begin read their sources, and those that have are written.
    fn go_on_copying(&mut self, space: &mut dyn EraseBlockSpace, completions: &mut Vec<ZoneCompletion>) {
        loop {
            let before = completions.len();
            if let Some(copied) = self.reads.take_copied() {
                if self.is_gone || self.set(copied.set).is_none() {
                    completions.push(ZoneCompletion { token: copied.token, result: Err(ZoneError::Gone) });
                } else {
                    self.write_copied(copied, space, completions);
                }
            } else if let Some(Copy { token, set, sources, first_iu }) = self.copies.begin() {
                if self.set(set).is_none() {
                    completions.push(ZoneCompletion { token, result: Err(ZoneError::Gone) });
                } else {
                    let then = Then::Write { set, first_iu };
                    self.read(token, set, &sources, None, then, space, completions);
                }
            } else {
                return;
            }
            self.copies.ended(&completions[before..]);
        }
    }

    /// Takes a completion of the space.
    pub fn complete(
        &mut self,
        completion: SpaceCompletion,
        space: &mut dyn EraseBlockSpace,
        completions: &mut Vec<ZoneCompletion>,
    ) {
        let before = completions.len();
        self.take(completion, space, completions);
        self.copies.ended(&completions[before..]);
    }

    fn take(
        &mut self,
        completion: SpaceCompletion,
        space: &mut dyn EraseBlockSpace,
        completions: &mut Vec<ZoneCompletion>,
    ) {
        let (kind, place) = Kind::of(completion.token);
        if kind == Kind::Read {
            self.reads.arrived(place, completion, &self.facts, completions);
            return self.go_on_copying(space, completions);
        }
        self.is_gone |= completion.result == Err(SpaceError::PowerLost);
        match kind {
            Kind::Read => unreachable!("reads were taken before"),
            Kind::Program => {
                let program = self.under_way.programs.remove(place);
                self.with_zone(program.name, space, |zone, lent| {
                    zone.programmed(program.unit, completion.result, lent, completions);
                });
            }
            Kind::CopyRead => {
                let step = self.under_way.copies.remove(place);
                let SpaceCompletion { result, destination, oob, .. } = completion;
                if self.is_retiring(step.name) || self.is_gone {
                    return self.with_zone(step.name, space, |zone, lent| zone.copy_ended(&step, lent));
                }
                self.with_zone(step.name, space, |zone, lent| {
                    zone.copy_read(step, result, destination, oob, lent);
                });
            }
            Kind::CopyProgram => {
                let step = self.under_way.copies.remove(place);
                if self.is_retiring(step.name) || self.is_gone {
                    return self.with_zone(step.name, space, |zone, lent| zone.copy_ended(&step, lent));
                }
                let blocks_before = self.statistics.relocated_blocks;
                let mut moved = 0;
                self.with_zone(step.name, space, |zone, lent| {
                    zone.copy_programmed(&step, completion.result, lent);
                    moved = u64::from(zone.columns[step.column].is_open);
                });
                self.statistics.relocated_blocks = blocks_before + moved;
            }
            Kind::Sync if place == SETTLE => {
                self.is_settling = false;
                self.take_early(space, completions);
            }
            Kind::Sync if place == SWEEP => {
                self.is_sweeping = false;
                self.under_way.sweeps_ended += 1;
                self.list_starved();
            }
            Kind::Sync => self.synced(place, space),
            Kind::Purge => self.purging.erased(completion.result, completions),
            Kind::Journal => {
                self.journal.written(completion.result, space);
                while let Some((set, number)) = self.finishing.pop() {
                    self.list(set, number);
                }
            }
            Kind::Opening => {
                if let Some(opening) = &mut self.opening {
                    opening.step(place, completion, &self.facts, space);
                    self.is_gone |= opening.is_gone;
                    self.end_opening(space);
                }
            }
        }
    }

    fn take_early(&mut self, space: &mut dyn EraseBlockSpace, completions: &mut Vec<ZoneCompletion>) {
        if self.is_ready() {
            for command in std::mem::take(&mut self.early) {
                self.submit(command, space, completions);
            }
        }
    }

    fn is_retiring(&self, name: ZoneName) -> bool {
        self.retiring.iter().any(|(_, retiring)| retiring.zone.name == name)
    }

    /// A zone in one of its lives, with what it is lent. It has something to do afterwards.
    fn with_zone(
        &mut self,
        name: ZoneName,
        space: &mut dyn EraseBlockSpace,
        then: impl FnOnce(&mut Zone, &mut Lent<'_>),
    ) {
        let ZoneStore { facts, sets, staging, under_way, pool, retiring, .. } = self;
        let blocks_return = !retiring.is_empty() || under_way.frees || self.is_sweeping;
        let set = sets.get_mut(usize::from(name.set)).and_then(Option::as_mut);
        let set = set.filter(|set| set.definition.id == name.set_id);
        let (zone, shape) = match set {
            Some(set) if matches!(&set.zones[name.zone as usize], Some(zone) if zone.name == name) => {
                (set.zones[name.zone as usize].as_deref_mut(), Some(set.shape))
            }
            _ => (None, None),
        };
        let retired = match zone {
            Some(_) => None,
            None => {
                retiring.iter_mut().map(|(_, retiring)| retiring).find(|retiring| retiring.zone.name == name)
            }
        };
        let (zone, shape) = match (zone, retired) {
            (Some(zone), _) => (zone, shape.expect("found with its set")),
            (None, Some(retiring)) => {
                let shape = retiring.shape;
                (&mut *retiring.zone, shape)
            }
            (None, None) => unreachable!("I-Z12: a zone with something under way is there"),
        };
        let mut lent = Lent { shape, facts: *facts, staging, under_way, pool, blocks_return, space };
        then(zone, &mut lent);
        self.list(name.set, name.zone);
        self.list_starved();
    }

    /// A zone has something to do.
    fn list(&mut self, set: u16, number: u32) {
        let of_set = self.sets.get_mut(usize::from(set)).and_then(Option::as_mut);
        let zone = of_set.and_then(|set| set.zones.get_mut(number as usize)?.as_deref_mut());
        if let Some(zone) = zone.filter(|zone| !zone.is_listed) {
            zone.is_listed = true;
            self.busy.push((set, number));
        }
    }

    /// Something came that zones wait for.
    fn list_starved(&mut self) {
        while let Some((set, number)) = self.starved.pop() {
            self.list(set, number);
        }
    }

    /// Lets the store go on. Call after batches of commands and completions, and at [`ZoneStore::deadline`].
    pub fn work(
        &mut self,
        now: Time,
        space: &mut dyn EraseBlockSpace,
        completions: &mut Vec<ZoneCompletion>,
    ) {
        if self.is_gone {
            return self.fail_all(completions);
        }
        if !self.is_ready() {
            return;
        }
        if self.looks_again <= now {
            self.looks_again = Time::NEVER;
            self.list_starved();
        }
        let before = completions.len();
        self.go_on_retiring(space);
        for (token, lba) in self.overtaken.drain(..) {
            completions.push(ZoneCompletion { token, result: Ok(ZoneAnswer::Written(lba)) });
        }
        while let Some((set, zone)) = self.busy.pop() {
            let before = self.staging.changes();
            self.work_zone(set, zone, now, space, completions);
            if self.staging.changes() != before {
                self.list_starved();
            }
        }
        if self.copies.ended(&completions[before..]) {
            self.go_on_copying(space, completions);
        }
        if !self.starved.is_empty() && self.under_way.frees && !self.is_sweeping {
            self.under_way.frees = false;
            self.is_sweeping = true;
            self.under_way.sweeps_begun += 1;
            space.sync(Kind::Sync.token(SWEEP));
        }
        if !self.purging.is_empty() && self.purging.go_on(&mut self.staging, space) {
            self.looks_again = self.looks_again.min(now + LOOK_AT_SLOTS);
        }
        self.journal.write_due(space);
        self.operations.end_due(&self.journal, completions);
    }

    fn work_zone(
        &mut self,
        set: u16,
        number: u32,
        now: Time,
        space: &mut dyn EraseBlockSpace,
        completions: &mut Vec<ZoneCompletion>,
    ) {
        let blocks_return = !self.retiring.is_empty() || self.under_way.frees || self.is_sweeping;
        let Some(of_set) = self.sets.get_mut(usize::from(set)).and_then(Option::as_mut) else { return };
        let Some(zone) = of_set.zones[number as usize].as_deref_mut() else { return };
        zone.is_listed = false;
        if of_set.states.zone(number).state == ZoneState::Full {
            self.staging.will_end(&mut zone.claim);
        }
        let mut lent = Lent {
            shape: of_set.shape,
            facts: self.facts,
            staging: &mut self.staging,
            under_way: &mut self.under_way,
            pool: &mut self.pool,
            blocks_return,
            space,
        };
        let mut taken = if zone.is_worn { Step::Done } else { zone.take_in(&mut lent, completions) };
        if taken == Step::Done
            && !zone.is_worn
            && let Some(change) = zone.finishes
        {
            let is_early = mutant!("zoned: a zone is filled up before its finish is durable");
            if self.journal.is_durable(change) || is_early {
                taken = zone.finish(&mut lent);
            } else if !self.finishing.contains(&(set, number)) {
                self.finishing.push((set, number));
            }
        }
        // Beside the others: dies may copy what those hold.
        let mut own = of_set.zones[number as usize].take().expect("just looked at");
        let programmed = own.program_ready(&of_set.zones, &mut lent);
        let zone = &mut **of_set.zones[number as usize].insert(own);
        if !zone.is_noted && zone.is_there(&of_set.shape, lent.staging) {
            zone.is_noted = true;
            let (key, generation) = ((zone.name.set_id, number), zone.name.generation);
            if self.journal.entry(key).is_some_and(|entry| entry.generation == 0) {
                zone.noted_by = self.journal.change(key, |entry| entry.generation = generation);
            }
        }
        let unsafe_rows = self.facts.block.unsafe_units;
        zone.release_safe(&of_set.shape, unsafe_rows, lent.staging);
        if zone.is_worn {
            // It takes nothing more, so nobody waits for its turn.
            self.staging.end(&mut zone.claim);
            zone.refuse_tasks(completions);
            let before = of_set.states.zone(number).state;
            of_set.states.wear_out(number, &mut self.changes);
            if of_set.states.zone(number).state != before {
                of_set.changed.add(number);
                self.journal.change((zone.name.set_id, number), |entry| {
                    entry.is_read_only = true;
                    entry.generation = zone.name.generation;
                });
            }
            self.changes.clear();
            return;
        }
        for step in [taken, programmed] {
            if step != Step::Done && !self.starved.contains(&(set, number)) {
                self.starved.push((set, number));
            }
            if step == Step::NoRoom {
                self.looks_again = self.looks_again.min(now + LOOK_AGAIN);
            }
        }
    }

    fn retire(&mut self, zone: Box<Zone>, operation: u32) {
        let set = self.sets.get(usize::from(zone.name.set)).and_then(Option::as_ref);
        let shape = set.map_or_else(|| self.shape_of(zone.columns.len() as u16), |set| Ok(set.shape));
        let shape = shape.expect("I-Z14: zones were checked before they are made");
        self.operations.waits_for_zone(operation);
        self.retiring.insert(Retiring::new(zone, shape, operation));
    }

    fn go_on_retiring(&mut self, space: &mut dyn EraseBlockSpace) {
        let ZoneStore { facts, staging, under_way, pool, retiring, journal, .. } = self;
        let mut over = Vec::new();
        for (place, retiring) in retiring.iter_mut() {
            if !journal.is_durable(retiring.zone.noted_by) && !journal.is_broken() {
                // A cut would leave the extension of a zone without the zone.
                continue;
            }
            let shape = retiring.shape;
            let mut lent =
                Lent { shape, facts: *facts, staging, under_way, pool, blocks_return: true, space };
            retiring.go_on(place, &mut lent);
            if retiring.is_over() {
                over.push(place);
            }
        }
        for place in over {
            self.retired(place);
        }
    }

    fn synced(&mut self, place: u32, space: &mut dyn EraseBlockSpace) {
        let ZoneStore { facts, staging, under_way, pool, retiring, .. } = self;
        let one = retiring.get_mut(place).expect("I-Z12: a zone that ends is there");
        let shape = one.shape;
        let mut lent = Lent { shape, facts: *facts, staging, under_way, pool, blocks_return: true, space };
        one.synced(place, &mut lent);
        if one.is_over() {
            self.retired(place);
        }
    }

    /// Nothing of a zone is left: what the journal says of it goes, too.
    fn retired(&mut self, place: u32) {
        let Retiring { zone, operation, .. } = self.retiring.remove(place);
        let key = (zone.name.set_id, zone.name.zone);
        if self.journal.entry(key).is_some_and(|entry| entry.generation == zone.name.generation) {
            let change = self.journal.change(key, |entry| *entry = journal::Entry::default());
            self.operations.waits_for_change(operation, change);
        }
        self.operations.zone_ended(operation);
        self.list_starved();
    }

    fn fail_all(&mut self, completions: &mut Vec<ZoneCompletion>) {
        let mut gone = |token| completions.push(ZoneCompletion { token, result: Err(ZoneError::Gone) });
        self.early.drain(..).for_each(|command| gone(command.token));
        self.copies.take_waiting().for_each(&mut gone);
        self.operations.take_all().into_iter().for_each(&mut gone);
        self.purging.take_all().for_each(&mut gone);
        let zones = self.sets.iter_mut().flatten().flat_map(|set| set.zones.iter_mut().flatten());
        for zone in zones {
            zone.take_tokens().for_each(&mut gone);
        }
        self.busy.clear();
        self.starved.clear();
    }
}
