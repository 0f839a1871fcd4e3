//! Changes of volumes: they wait for `work`, for staging or for space, and are made in their order.

use crate::config::StoreConfig;
use crate::contract::{VolumeCompletion, VolumeError, VolumeToken};
use crate::endurance::{Endurance, words_of};
use crate::lent::Lent;
use crate::map::{
    self, NOTE_CREATE, NOTE_DEALLOCATE, NOTE_DELETE, NOTE_IUS_MAX, NOTE_UNCORRECTABLE, figures_note,
};
use crate::placing;
use crate::waiting::Waiting;
use diecut_log::{Check, Log, LogAddress, MapEntry, PlacementHandle, PlacementTarget, Stream};
use diecut_units::{Payload, Time, mark, mutant};
use std::collections::VecDeque;

pub(crate) enum Change {
    Write(Write),
    Deallocate { first: u64, count: u64 },
    Lose { first: u64, count: u64 },
    Create { size_ius: u64 },
    Delete,
    NoteFigures,
}

/// A write, and how far it is.
pub(crate) struct Write {
    first: u64,
    payload: Payload,
    target: PlacementTarget,
    /// `None` before it was begun.
    stream: Option<Stream>,
    done: u32,
    /// What it writes was read by a copy.
    is_copied: bool,
    /// IUs that it fills which held nothing; `None` before there is room for them.
    promised: Option<u64>,
}

impl Write {
    /// One that was not begun.
    fn new(first: u64, payload: Payload, target: PlacementTarget, is_copied: bool) -> Write {
        Write { first, payload, target, stream: None, done: 0, is_copied, promised: None }
    }
}

impl Change {
    pub fn write(first: u64, payload: Payload, target: PlacementTarget) -> Change {
        Change::Write(Write::new(first, payload, target, false))
    }

    /// A write of what a copy has read.
    pub fn copied(first: u64, payload: Payload, target: PlacementTarget) -> Change {
        Change::Write(Write::new(first, payload, target, true))
    }

    /// Where it goes; what is no data goes with that of the first handle.
    fn stream(&self, log: &Log) -> Stream {
        match self {
            Change::Write(write) => write.stream.unwrap_or_else(|| placing::stream_of(write.target, log)),
            _ => Stream::USER,
        }
    }

    /// IUs that a copy holds for it.
    fn copied_ius(&self) -> u32 {
        match self {
            Change::Write(write) if write.is_copied => write.payload.iu_count(),
            _ => 0,
        }
    }
}

/// A change that has not been made, or only in part.
pub(crate) struct Queued {
    pub token: VolumeToken,
    pub volume: u16,
    /// It is answered when it is durable, whatever the cache.
    pub force: bool,
    pub change: Change,
}

/// What became of a change.
enum Progress {
    Made,
    /// It goes on when there is room.
    Waits,
    Refused(VolumeError),
}

/// All changes that are not made.
#[derive(Default)]
pub(crate) struct Changes {
    queue: VecDeque<Queued>,
    /// IUs that writes which were begun still fill.
    promised_ius: u64,
    /// IUs that hosts wrote.
    pub host_written_ius: u64,
    /// By handle.
    pub handle_written_ius: [u64; PlacementHandle::COUNT_MAX as usize],
    /// IUs that copies have read and that wait to be written.
    pub copied_ius: u32,
}

impl Changes {
    /// A change waits for its turn.
    pub fn push(&mut self, change: Queued) {
        self.queue.push_back(change);
    }

    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// The stream that the next change goes to.
    pub fn next_stream(&self, log: &Log) -> Option<Stream> {
        self.queue.front().map(|queued| queued.change.stream(log))
    }

    /// None of them will be made.
    pub fn drain(&mut self) -> impl Iterator<Item = VolumeToken> {
        self.copied_ius = 0;
        std::mem::take(&mut self.queue).into_iter().map(|queued| queued.token)
    }

    /// Makes changes as far as there is room.
    pub fn make(
        &mut self,
        now: Time,
        config: &StoreConfig,
        endurance: &mut Endurance,
        lent: &mut Lent,
        waiting: &mut Waiting,
        completions: &mut Vec<VolumeCompletion>,
    ) {
        let mut queue = std::mem::take(&mut self.queue);
        let mut over = 0;
        for queued in &mut queue {
            match self.try_change(queued, config, endurance, lent) {
                Progress::Made => answer_made(queued, now, config, lent, waiting, completions),
                Progress::Waits => break,
                Progress::Refused(error) => completions.push(VolumeCompletion {
                    token: queued.token,
                    result: Err(error),
                    destination: None,
                }),
            }
            self.copied_ius -= queued.change.copied_ius();
            over += 1;
        }
        // All together: giving a payload back waits for the copies of it that were made just before.
        queue.drain(..over);
        self.queue = queue;
        // Before anyone sees the completions.
        lent.log.publish();
    }

    fn try_change(
        &mut self,
        queued: &mut Queued,
        config: &StoreConfig,
        endurance: &mut Endurance,
        lent: &mut Lent,
    ) -> Progress {
        if matches!(queued.change, Change::NoteFigures) {
            return self.try_note_figures(endurance, lent);
        }
        if let Some(reason) = lent.log.read_only() {
            return Progress::Refused(VolumeError::ReadOnly { reason });
        }
        let volume = queued.volume;
        match &mut queued.change {
            Change::Write(write) => self.try_write(volume, write, config, lent),
            Change::Deallocate { first, count } => try_deallocate(volume, first, count, lent),
            Change::Lose { first, count } => try_lose(volume, first, count, lent),
            Change::Create { size_ius } => try_create(volume, *size_ius, lent),
            Change::Delete => try_delete(volume, lent),
            Change::NoteFigures => unreachable!("I-M9: figures are noted before"),
        }
    }

    fn try_write(
        &mut self,
        volume: u16,
        write: &mut Write,
        config: &StoreConfig,
        lent: &mut Lent,
    ) -> Progress {
        let count = write.payload.iu_count();
        let promised = match write.promised {
            Some(promised) => promised,
            None => {
                let entries = &lent.maps.volumes[usize::from(volume)].entries;
                let range = &entries[write.first as usize..write.first as usize + count as usize];
                let new = range.iter().filter(|entry| !entry.get().is_place()).count() as u64;
                if new > 0 && lent.maps.used_ius() + self.promised_ius + new > config.exported_ius {
                    return Progress::Refused(VolumeError::Full);
                }
                if !placing::has_room(write.target, range, config.exported_ius, lent.log) {
                    mark!("volume: a reclaim group was full");
                    return Progress::Refused(VolumeError::GroupFull);
                }
                self.promised_ius += new;
                *write.promised.insert(new)
            }
        };
        let stream = *write.stream.get_or_insert_with(|| placing::stream_of(write.target, lent.log));
        while write.done < count {
            let iu = write.first + u64::from(write.done);
            let content = write.payload.iu(write.done);
            let tag = map::tag(volume, iu);
            let Some(appended) = lent.log.append(stream, tag, content, lent.space) else {
                let progress = no_room(stream, lent);
                if matches!(progress, Progress::Refused(_)) {
                    self.keep_promise(promised);
                }
                return progress;
            };
            let entry = MapEntry::data(appended.address, Check::of(appended.checksum));
            let old = lent.maps.set(volume, iu, entry);
            if old.is_place() {
                lent.log.invalidate(old);
            }
            write.done += 1;
        }
        self.keep_promise(promised);
        self.host_written_ius += u64::from(count);
        let counted =
            if mutant!("volume: the first block of a write is not counted") { count - 1 } else { count };
        let handle = lent.log.layout().streams.handle_of(stream);
        self.handle_written_ius[usize::from(handle.0)] += u64::from(counted);
        Progress::Made
    }

    /// Writes figures down. Where that cannot be, they stay what the newest anchor says.
    #[cold]
    fn try_note_figures(&self, endurance: &mut Endurance, lent: &mut Lent) -> Progress {
        let figures = endurance.now(&self.handle_written_ius, lent.space);
        if lent.log.read_only().is_some() || !endurance.is_to_be_noted(&figures) {
            return Progress::Made;
        }
        if lent.log.note(figures_note(words_of(&figures)), lent.space).is_some() {
            endurance.noted(figures);
            return Progress::Made;
        }
        match no_room(Stream::USER, lent) {
            Progress::Refused(_) => Progress::Made,
            other => other,
        }
    }

    /// A write is over.
    fn keep_promise(&mut self, promised: u64) {
        assert!(promised <= self.promised_ius, "I-M8: room is promised before it is taken");
        self.promised_ius -= promised;
    }
}

/// A change needs room: it waits, but for a medium that has none.
#[cold]
fn no_room(stream: Stream, lent: &Lent) -> Progress {
    match lent.log.no_room() {
        Some(reason) if lent.log.lacks_room_for(stream) => Progress::Refused(VolumeError::NoRoom { reason }),
        _ => Progress::Waits,
    }
}

fn try_deallocate(volume: u16, first: &mut u64, count: &mut u64, lent: &mut Lent) -> Progress {
    // What has no entry reads as zeros already, and what made it so is durable before what follows.
    while let Some((from, part)) = lent.maps.next_part(volume, *first, *count) {
        let recorded = if mutant!("volume: deallocate record lost") { 0 } else { part };
        let note = map::note(NOTE_DEALLOCATE, volume, from, recorded);
        if lent.log.note(note, lent.space).is_none() {
            return no_room(Stream::USER, lent);
        }
        let kept = u64::from(mutant!("volume: last IU of a deallocation kept"));
        for iu in from..from + part - kept {
            if lent.maps.get(volume, iu) == LogAddress::NONE {
                continue;
            }
            let old = lent.maps.set(volume, iu, MapEntry::NONE);
            if old.is_place() {
                lent.log.invalidate(old);
            }
        }
        let done = from + part - *first;
        assert!(done <= *count, "I-M9: a part lies within its range");
        (*first, *count) = (*first + done, *count - done);
    }
    Progress::Made
}

/// Makes reads of a range fail, because its host wants so.
#[cold]
fn try_lose(volume: u16, first: &mut u64, count: &mut u64, lent: &mut Lent) -> Progress {
    while *count > 0 {
        let part = (*count).min(NOTE_IUS_MAX as u64);
        let note = map::note(NOTE_UNCORRECTABLE, volume, *first, part);
        if !mutant!("volume: record of uncorrectable blocks lost")
            && lent.log.note(note, lent.space).is_none()
        {
            return no_room(Stream::USER, lent);
        }
        for iu in *first..*first + part {
            let old = lent.maps.set(volume, iu, LogAddress::LOST.into());
            if old.is_place() {
                lent.log.invalidate(old);
            }
        }
        (*first, *count) = (*first + part, *count - part);
    }
    Progress::Made
}

fn try_create(volume: u16, size_ius: u64, lent: &mut Lent) -> Progress {
    let others = lent.maps.volumes.iter().enumerate().filter(|(at, _)| *at != usize::from(volume));
    let others: u64 = others.map(|(_, map)| map.entries.len() as u64).sum();
    let is_too_much = others + size_ius > lent.log.map_ius_max();
    if lent.maps.is_ending(volume) || is_too_much && lent.maps.has_ending() {
        // What was deleted gives its part of the maps back in a moment.
        return Progress::Waits;
    }
    if is_too_much {
        return Progress::Refused(VolumeError::Full);
    }
    let existing = lent.maps.volume(volume);
    if existing.exists && existing.size_ius == size_ius {
        return Progress::Made;
    }
    // While the map of a volume that had this number came to its end, the cleaner went on to copy what was in it:
    // those records come after the deletion. A creation begins with another one.
    if !existing.exists
        && !mutant!("volume: copies of a deleted volume are left to the next one")
        && lent.log.note(map::note(NOTE_DELETE, volume, 0, 0), lent.space).is_none()
    {
        return no_room(Stream::USER, lent);
    }
    let sequence = lent.log.next_sequence();
    if lent.log.note(map::note(NOTE_CREATE, volume, 0, size_ius), lent.space).is_none() {
        return no_room(Stream::USER, lent);
    }
    let volume = lent.maps.volume(volume);
    assert!(!volume.exists || size_ius >= volume.size_ius, "I-M10: volumes do not shrink");
    volume.exists = true;
    volume.resize(size_ius, sequence);
    lent.maps.open_group = None;
    Progress::Made
}

fn try_delete(volume: u16, lent: &mut Lent) -> Progress {
    if lent.maps.volume(volume).exists {
        if lent.log.note(map::note(NOTE_DELETE, volume, 0, 0), lent.space).is_none() {
            return no_room(Stream::USER, lent);
        }
        lent.maps.delete(volume);
        drop_staged(volume, lent);
    }
    Progress::Made
}

/// What is staged of a volume that was just deleted is not programmed any more, as far as it has not begun.
#[cold]
fn drop_staged(volume: u16, lent: &mut Lent) {
    // With the note: it is what says that nobody needs the rest.
    lent.log.publish();
    for (tag, place) in lent.log.staged_ius() {
        if lent.maps.forget(volume, tag, place) {
            lent.log.invalidate(place);
        }
    }
    lent.log.withdraw_dead(lent.space, lent.maps);
}

/// Answers a change that was made, or lets its completion wait until it is durable.
fn answer_made(
    queued: &Queued,
    now: Time,
    config: &StoreConfig,
    lent: &mut Lent,
    waiting: &mut Waiting,
    completions: &mut Vec<VolumeCompletion>,
) {
    let sequence = lent.log.next_sequence();
    let forces = queued.force && !mutant!("volume: force unit access is ignored");
    let is_cached = config.volatile_cache && !forces;
    if lent.log.is_protected() || is_cached {
        completions.push(VolumeCompletion { token: queued.token, result: Ok(()), destination: None });
        return;
    }
    if queued.force {
        lent.log.want_durable(sequence);
    } else {
        waiting.pad_after(now, config.group_commit);
    }
    waiting.push(sequence, queued.token);
}
