//! What changes zones: checked and ordered by their states, carried out by the zones themselves.

use super::ZoneStore;
use crate::contract::{
    ReportRequest, ZoneAnswer, ZoneCompletion, ZoneData, ZoneDescriptor, ZoneError, ZoneOperation,
    ZoneReport, ZoneSetIndex, ZoneToken,
};
use crate::journal::Entry;
use crate::lent::Lent;
use crate::reads::Copied;
use crate::set::Set;
use crate::shape::UnitNumber;
use crate::states::{Change, Placed, ZoneAction, ZoneRefusal, ZoneState};
use crate::zone::{Origin, Task, Zone, ZoneName};
use diecut_units::{Payload, mark, mutant};
use diecut_vssd::space::{EraseBlockSpace, SpaceError};

/// A write as a command asks for it.
struct Wanted {
    zone: u32,
    /// In the zone; `None`: at the write pointer.
    first_iu: Option<u32>,
    data: ZoneData,
    /// See [`Task::Write`].
    origins: Vec<(UnitNumber, Origin)>,
}

impl ZoneStore {
    /// Takes a command that is no read.
    pub(super) fn change(
        &mut self,
        token: ZoneToken,
        index: ZoneSetIndex,
        operation: ZoneOperation,
        space: &mut dyn EraseBlockSpace,
        completions: &mut Vec<ZoneCompletion>,
    ) {
        let size_log2 = self.set_of(index).shape.size_ius_log2();
        let place = |iu: u64| ((iu >> size_log2) as u32, (iu & ((1 << size_log2) - 1)) as u32);
        let result = match operation {
            ZoneOperation::Read { .. } | ZoneOperation::Verify { .. } | ZoneOperation::Copy { .. } => {
                unreachable!("what reads was taken before")
            }
            ZoneOperation::Flush => Some(Ok(ZoneAnswer::Done)),
            ZoneOperation::Purge => {
                self.purging.push(token);
                None
            }
            ZoneOperation::Write { first_iu, data } => {
                let (zone, first_iu) = place(first_iu);
                let wanted = Wanted { zone, first_iu: Some(first_iu), data, origins: Vec::new() };
                self.write(token, index, wanted, space).err().map(Err)
            }
            ZoneOperation::Append { first_iu, data } => {
                let (zone, _) = place(first_iu);
                let wanted = Wanted { zone, first_iu: None, data, origins: Vec::new() };
                self.write(token, index, wanted, space).err().map(Err)
            }
            ZoneOperation::Commit { last_iu } => {
                let (zone, last_iu) = place(last_iu);
                self.commit(token, index, zone, last_iu + 1, space).err().map(Err)
            }
            ZoneOperation::Act { first_iu, action } => {
                self.act(token, index, first_iu.map(|iu| place(iu).0), action).err().map(Err)
            }
            ZoneOperation::Extend { first_iu, extension } => {
                self.extend(token, index, place(first_iu).0, extension).err().map(Err)
            }
            ZoneOperation::Report(request) => Some(Ok(self.report(index, request))),
        };
        if let Some(result) = result {
            completions.push(ZoneCompletion { token, result });
        }
    }

    /// Writes what was read for a copy, some of which lies at origins from which dies may copy it.
    pub(super) fn write_copied(
        &mut self,
        copied: Copied,
        space: &mut dyn EraseBlockSpace,
        completions: &mut Vec<ZoneCompletion>,
    ) {
        let Copied { token, set, first_iu, content, origins } = copied;
        let size_log2 = self.set_of(set).shape.size_ius_log2();
        let (zone, first_iu) = ((first_iu >> size_log2) as u32, (first_iu & ((1 << size_log2) - 1)) as u32);
        let data = ZoneData::Payload(Payload::new(self.facts.mode, content.freeze()));
        let wanted = Wanted { zone, first_iu: Some(first_iu), data, origins };
        if let Err(error) = self.write(token, set, wanted, space) {
            completions.push(ZoneCompletion { token, result: Err(error) });
        }
    }

    fn set_of(&self, index: ZoneSetIndex) -> &Set {
        self.sets[usize::from(index.0)].as_ref().expect("I-Z14: a set that is used is there")
    }

    fn set_mut(&mut self, index: ZoneSetIndex) -> &mut Set {
        self.sets[usize::from(index.0)].as_mut().expect("I-Z14: a set that is used is there")
    }

    fn write(
        &mut self,
        token: ZoneToken,
        index: ZoneSetIndex,
        wanted: Wanted,
        space: &mut dyn EraseBlockSpace,
    ) -> Result<(), ZoneError> {
        let Wanted { zone: number, first_iu, data, origins } = wanted;
        let count = data.iu_count();
        let unit_ius = self.facts.block.program_unit_ius();
        if !self.staging.is_protected() && !count.is_multiple_of(unit_ius) {
            return Err(ZoneError::NotWholeUnits { unit_ius });
        }
        let mut changes = std::mem::take(&mut self.changes);
        changes.clear();
        let set = self.set_mut(index);
        let before = set.states.zone(number);
        let placed = match first_iu {
            Some(first_iu) => set.states.write(number, first_iu, count, &mut changes),
            None => set.states.append(number, count, &mut changes),
        };
        let result = match placed {
            Err(refusal) => Err(ZoneError::Refused { zone: number, refusal }),
            Ok(placed) => self.begin_zone(index, number, space).map(|()| placed),
        };
        let result = match result {
            Ok(placed) => {
                self.queue_write(token, index, number, placed, (data, origins));
                Ok(())
            }
            Err(error) => {
                if matches!(error, ZoneError::NoRoom { .. }) {
                    self.set_mut(index).states.take_back(number, before);
                }
                Err(error)
            }
        };
        self.changes = changes;
        result
    }

    fn queue_write(
        &mut self,
        token: ZoneToken,
        index: ZoneSetIndex,
        number: u32,
        placed: Placed,
        (data, origins): (ZoneData, Vec<(UnitNumber, Origin)>),
    ) {
        self.statistics.host_written_ius += u64::from(data.iu_count());
        let set = self.set_mut(index);
        let lba = (u64::from(number) << set.shape.size_ius_log2()) + u64::from(placed.first_iu);
        // One that this write makes full has no such area any more, and had one.
        let is_random = set.states.zone(number).is_random || placed.commits_to.is_some();
        let zone = set.zones[number as usize].as_deref_mut().expect("just begun");
        zone.is_random |= is_random;
        let task = Task::Write {
            token,
            lba,
            first_iu: placed.first_iu,
            done_ius: 0,
            data,
            origins,
            commits_to: placed.commits_to,
        };
        zone.tasks.push_back(task);
        self.list(index.0, number);
    }

    /// A zone that is written to has erase blocks.
    fn begin_zone(
        &mut self,
        index: ZoneSetIndex,
        number: u32,
        space: &mut dyn EraseBlockSpace,
    ) -> Result<(), ZoneError> {
        let generation = self.next_generation;
        let ZoneStore { facts, sets, staging, under_way, pool, retiring, .. } = self;
        let set = sets[usize::from(index.0)].as_mut().expect("I-Z14: a set that is used is there");
        let place = &mut set.zones[number as usize];
        if place.is_some() {
            return Ok(());
        }
        let name = ZoneName { set: index.0, set_id: set.definition.id, zone: number, generation };
        let claim = staging.begin(set.slots_owed);
        let mut zone = Box::new(Zone::new(name, &set.shape, claim));
        let blocks_return = !retiring.is_empty() || under_way.frees || self.is_sweeping;
        let mut lent =
            Lent { shape: set.shape, facts: *facts, staging, under_way, pool, blocks_return, space };
        match zone.allocate(&mut lent) {
            Ok(()) => {}
            // Blocks of zones that end come back.
            Err(SpaceError::NoFreeBlock { .. }) if blocks_return => {
                mark!("zoned: a zone begins while its blocks are another one's");
            }
            Err(SpaceError::NoRoom) => {
                zone.give_back_blocks(&mut lent);
                return Err(ZoneError::NoRoom { reason: "the file system that the image lies on is full" });
            }
            Err(_) => {
                zone.give_back_blocks(&mut lent);
                set.states.wear_out(number, &mut Vec::new());
                set.changed.add(number);
                return Err(ZoneError::Refused { zone: number, refusal: ZoneRefusal::ReadOnly });
            }
        }
        *place = Some(zone);
        self.next_generation += 1;
        // An extension belongs to this life of the zone as soon as that is there.
        let key = (name.set_id, number);
        let has_extension = set.states.zone(number).has_extension;
        if self.journal.entry(key).is_some() {
            self.journal.change(key, |entry| {
                let extension = entry.extension.take().filter(|_| has_extension);
                *entry = Entry { extension, ..Entry::default() };
            });
        }
        Ok(())
    }

    fn commit(
        &mut self,
        token: ZoneToken,
        index: ZoneSetIndex,
        number: u32,
        to_iu: u32,
        space: &mut dyn EraseBlockSpace,
    ) -> Result<(), ZoneError> {
        let set = self.set_mut(index);
        let before = set.states.zone(number);
        let refused = |refusal| ZoneError::Refused { zone: number, refusal };
        set.states.commit(number, to_iu, &mut Vec::new()).map_err(refused)?;
        if let Err(error) = self.begin_zone(index, number, space) {
            if matches!(error, ZoneError::NoRoom { .. }) {
                self.set_mut(index).states.take_back(number, before);
            }
            return Err(error);
        }
        let zone = self.set_mut(index).zones[number as usize].as_deref_mut().expect("just begun");
        zone.is_random = true;
        zone.tasks.push_back(Task::Commit { token, to_iu });
        self.list(index.0, number);
        Ok(())
    }

    fn act(
        &mut self,
        token: ZoneToken,
        index: ZoneSetIndex,
        zone: Option<u32>,
        action: ZoneAction,
    ) -> Result<(), ZoneError> {
        let mut changes = Vec::new();
        let set = self.set_mut(index);
        let done = match zone {
            Some(zone) => set.states.act(zone, action, &mut changes),
            None => set.states.act_on_all(action, &mut changes),
        };
        done.map_err(|refusal| ZoneError::Refused { zone: zone.unwrap_or(0), refusal })?;
        let operation = self.operations.begin(token);
        for Change { zone, to, .. } in changes {
            match to {
                ZoneState::Empty => self.reset(index, zone, operation),
                ZoneState::Full => self.finish(index, zone, operation),
                ZoneState::Offline => {
                    let key = (self.set_of(index).definition.id, zone);
                    let change = self.journal.change(key, |entry| entry.is_offline = true);
                    self.operations.waits_for_change(operation, change);
                }
                _ => {}
            }
        }
        self.operations.is_begun(operation);
        Ok(())
    }

    fn reset(&mut self, index: ZoneSetIndex, number: u32, operation: u32) {
        self.statistics.resets += 1;
        let set = self.set_mut(index);
        let key = (set.definition.id, number);
        let zone = set.zones[number as usize].take();
        let generation = zone.as_ref().map(|zone| zone.name.generation);
        if let Some(mut zone) = zone {
            // Writes that came before and wait are over: what they write is gone with the rest.
            let lba = u64::from(number) << self.set_of(index).shape.size_ius_log2();
            self.overtaken.extend(zone.take_tokens().map(|token| (token, lba)));
            self.retire(zone, operation);
        }
        // What the journal says of a zone with erase blocks goes after those: see `retired`.
        if self.journal.entry(key).is_some_and(|entry| Some(entry.generation) != generation) {
            let change = self.journal.change(key, |entry| *entry = Entry::default());
            self.operations.waits_for_change(operation, change);
        }
    }

    fn finish(&mut self, index: ZoneSetIndex, number: u32, operation: u32) {
        let set = self.set_mut(index);
        let written_ius = set.states.zone(number).written_ius;
        let key = (set.definition.id, number);
        let zone = set.zones[number as usize].as_deref_mut();
        let generation = zone.map_or(0, |zone| zone.name.generation);
        if mutant!("zoned: a finished zone is not written down") {
            return;
        }
        let change = self.journal.change(key, |entry| {
            entry.finished_ius = Some(written_ius);
            entry.generation = generation;
        });
        self.operations.waits_for_change(operation, change);
        if let Some(zone) = self.set_mut(index).zones[number as usize].as_deref_mut() {
            zone.finishes = Some(change);
        }
        self.list(index.0, number);
    }

    fn extend(
        &mut self,
        token: ZoneToken,
        index: ZoneSetIndex,
        number: u32,
        extension: Vec<u8>,
    ) -> Result<(), ZoneError> {
        let set = self.set_mut(index);
        let refused = |refusal| ZoneError::Refused { zone: number, refusal };
        set.states.extend(number, &mut Vec::new()).map_err(refused)?;
        let key = (set.definition.id, number);
        let operation = self.operations.begin(token);
        let change = self.journal.change(key, |entry| {
            *entry = Entry { extension: Some(extension), ..Entry::default() };
        });
        self.operations.waits_for_change(operation, change);
        self.operations.is_begun(operation);
        Ok(())
    }

    fn report(&self, index: ZoneSetIndex, request: ReportRequest) -> ZoneAnswer {
        let ReportRequest { first_zone, state, count_max, is_extended } = request;
        let set = self.set_of(index);
        let mut report = ZoneReport::default();
        for zone in first_zone..set.states.count() {
            let view = set.states.zone(zone);
            if state.is_some_and(|state| state != view.state) {
                continue;
            }
            report.matching += 1;
            if report.zones.len() >= count_max as usize {
                continue;
            }
            let extension = view.has_extension.then(|| {
                let entry = self.journal.entry((set.definition.id, zone)).filter(|_| is_extended);
                entry.and_then(|entry| entry.extension.clone()).unwrap_or_default()
            });
            let is_random = view.is_random;
            let (state, written_ius) = (view.state, view.written_ius);
            report.zones.push(ZoneDescriptor { zone, state, written_ius, is_random, extension });
        }
        ZoneAnswer::Report(Box::new(report))
    }
}
