//! A vSSD that moves to other devices while its hosts go on: a new one is made there, its volumes are copied (`flash/copying.rs`), and when both hold the
//! same, the catalog names the new one in its place.
//!
//! 1. [`crate::step::Step::AllocVssd`] makes the new one, with the same definition, where nothing is to leave.
//! 2. [`crate::step::Step::MakeCopies`] makes its volumes, with the numbers that they have.
//! 3. [`crate::step::Step::CopyVssd`] waits for a moment in which nothing is under way, so that all that begins from then on is seen; copies, at the rate of even
//!    wear, while hosts go on; then holds them back, copies what is left, and flushes the new one.
//! 4. [`crate::step::Step::Persist`] is the moment of the move. A crash before leaves the old one, a crash after it the new one; the other is nobody's, and given back.
//! 5. [`crate::step::Step::SwitchVssd`] has hosts go on, on the new one. What is left of the old one is given back.

use crate::control::{ControlError, ControlErrorKind};
use crate::devices::Standing;
use crate::flash::{Copying, PIECE_IUS, PIECES_AT_ONCE, Piece, runs};
use crate::job::{Job, Own, Progress};
use crate::owners::Owners;
use crate::registry::share_of;
use crate::steps::{stores, volumes, vssds};
use diecut_catalog::VssdRecord;
use diecut_media::Divide;
use diecut_namespace::StoreIndex;
use diecut_namespace::contract::NamespaceId;
use diecut_units::{Buffer, BufferMut, ContentMode, IU_SIZE_BYTES, Payload, Time, mark, mutant};
use diecut_volume::contract::{
    PlacementTarget, VolumeCommand, VolumeCompletion, VolumeError, VolumeIndex, VolumeOperation,
};
use diecut_vssd::VssdId;
use std::collections::BTreeMap;
use std::ops::Range;

/// With so many pieces left hosts are held back, twice as many after each round over all of them: it comes to an end.
const LEFT_AT_FIRST: u64 = 4;
/// More than that many never: hosts would notice.
const ROUNDS_MAX: u32 = 10;

/// How far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Nothing is to be under way, for a moment.
    Waits,
    Copies,
    /// Hosts are held back.
    Last,
    /// All was copied, and is being made durable.
    Flushes(u64),
    /// Both are the same.
    Same,
    /// It cannot be: what was made is given back.
    Ends,
}

/// An operation of the copy that is under way.
enum Under {
    Read { volume: VolumeIndex, ius: Range<u64>, was_copied: bool },
    Write,
}

/// A vSSD that moves.
pub(crate) struct Moving {
    pub name: String,
    pub old: VssdId,
    pub new: VssdId,
    stage: Stage,
    under_way: BTreeMap<u64, Under>,
    failure: Option<ControlError>,
}

fn failed(kind: ControlErrorKind, message: String) -> ControlError {
    ControlError { kind, message }
}

fn volumes_of<M: Divide>(here: &Owners<M>, vssd: &str) -> Vec<(VolumeIndex, u64, NamespaceId)> {
    let own = here.registry.state.volumes.values().filter(|volume| volume.vssd == vssd);
    own.map(|volume| {
        let size_ius = volume.size.bytes() / IU_SIZE_BYTES as u64;
        (VolumeIndex(volume.index), size_ius, NamespaceId(volume.namespace))
    })
    .collect()
}

/// Makes the volumes of the new one, and sees whether it has room for all that the old one has.
pub(crate) fn make_copies<M: Divide>(here: &mut Owners<M>, name: &str, job: &mut Job) -> Progress {
    let (old, new) = (&job.base.vssds[name], &job.next.vssds[name]);
    let volumes = volumes_of(here, name);
    let new_id = VssdId(new.number);
    if *job.own() == Own::Begins {
        let promised: u64 = volumes.iter().map(|(_, size_ius, _)| size_ius).sum();
        if new.exported_ius < old.exported_ius.min(promised) {
            let message = format!(
                "vSSD \"{name}\": it can store {} bytes where there is room, and {} where it is; delete volumes, or add another drive",
                new.exported_ius * IU_SIZE_BYTES as u64,
                old.exported_ius * IU_SIZE_BYTES as u64
            );
            return give_up(here, new_id, failed(ControlErrorKind::Exhausted, message));
        }
        let store = here.plane.store_of(new_id.0).expect("I-S38: a vSSD that was made has a store");
        let mut tokens = Vec::new();
        for (index, size_ius, _) in volumes {
            let token = here.answers.token();
            here.plane.flash.kept_mut(store).volumes_mut().create_volume(token, index, size_ius);
            tokens.push(token.0);
        }
        job.own_goes(Own::Stores(tokens));
        return Progress::Waits;
    }
    match stores::stores_answered(here, job, || {
        format!("vSSD \"{name}\": its volumes cannot be made elsewhere")
    }) {
        Progress::Refused(error) => give_up(here, new_id, error),
        other => other,
    }
}

/// What was made is given back, and then the refusal is told.
fn give_up<M: Divide>(here: &mut Owners<M>, new: VssdId, error: ControlError) -> Progress {
    here.placement.ledger.vssds.remove(&new.0);
    // What is under way there keeps its erase blocks; the next start gives them back then.
    let _ = vssds::dealloc(here, new);
    Progress::Refused(error)
}

/// Copies the content of a vSSD until both are the same.
pub(crate) fn copy<M: Divide>(here: &mut Owners<M>, name: &str, job: &Job, now: Time) -> Progress {
    let (old, new) = (VssdId(job.base.vssds[name].number), VssdId(job.next.vssds[name].number));
    if here.moving.is_none() {
        here.moving = Some(Moving {
            name: name.to_owned(),
            old,
            new,
            stage: Stage::Waits,
            under_way: BTreeMap::new(),
            failure: None,
        });
        here.plane.hold(old);
    }
    let mut moving = here.moving.take().expect("just put there");
    assert_eq!((moving.old, moving.new), (old, new), "I-S38: one vSSD moves at a time");
    let progress = loop {
        let before = std::mem::discriminant(&moving.stage);
        let progress = go_on(here, &mut moving, now);
        // Of a vSSD without volumes nothing is asked, and no answer wakes anybody: the next stage comes at once.
        let is_next = std::mem::discriminant(&moving.stage) != before;
        if !(is_next && matches!(progress, Progress::Waits)) {
            break progress;
        }
    };
    if !matches!(progress, Progress::Refused(_)) {
        here.moving = Some(moving);
    }
    progress
}

/// What ends the move of a vSSD before its time.
fn note_failure<M: Divide>(here: &Owners<M>, moving: &mut Moving, stores: [StoreIndex; 2]) {
    if here.is_stopping && moving.failure.is_none() {
        moving.failure =
            Some(failed(ControlErrorKind::Busy, "the server stops: ask again when it runs".to_owned()));
    }
    let is_wanted = here.plane.flash.devices.iter().any(|own| own.standing == Standing::Drains);
    if !is_wanted {
        let message =
            format!("the evacuation was called off, and vSSD \"{}\" stays where it is", moving.name);
        moving.failure.get_or_insert(failed(ControlErrorKind::Busy, message));
    }
    for store in stores {
        if let Some(reason) = here.plane.flash.kept(store).read_only_reason() {
            let message = format!("vSSD \"{}\" takes no writes: {reason}", moving.name);
            moving.failure.get_or_insert(failed(ControlErrorKind::Media, message));
        }
    }
}

fn go_on<M: Divide>(here: &mut Owners<M>, moving: &mut Moving, now: Time) -> Progress {
    let (Some(from), Some(to)) = (here.plane.store_of(moving.old.0), here.plane.store_of(moving.new.0))
    else {
        unreachable!("I-S38: both have stores while one moves to the other")
    };
    take_answers(here, moving, to, now);
    let idle = here.plane.flash.copying.as_ref().is_none_or(Copying::is_idle);
    note_failure(here, moving, [from, to]);
    if moving.failure.is_some() {
        moving.stage = Stage::Ends;
        here.plane.flash.copying.iter_mut().for_each(Copying::stop);
    }
    match moving.stage {
        Stage::Waits => {
            if here.plane.flash.under_way(from) > 0 {
                return Progress::Waits;
            }
            mark!("shard: a vSSD begins to move");
            let volumes = volumes_of(here, &moving.name);
            let volumes = volumes.into_iter().map(|(index, size_ius, _)| (index, size_ius));
            here.plane.flash.copying = Some(Copying::new(from, volumes));
            moving.stage = Stage::Copies;
            here.plane.let_go(moving.old);
            begin_pieces(here, moving, (from, to), now);
            Progress::Waits
        }
        Stage::Copies => {
            begin_pieces(here, moving, (from, to), now);
            let copying = here.plane.flash.copying.as_ref().expect("I-S38: what moves is copied");
            let (left, _) = copying.left();
            if left <= LEFT_AT_FIRST << copying.rounds.min(ROUNDS_MAX) {
                moving.stage = Stage::Last;
                here.plane.hold(moving.old);
            }
            Progress::Waits
        }
        Stage::Last => {
            begin_pieces(here, moving, (from, to), now);
            let copying = here.plane.flash.copying.as_ref().expect("I-S38: what moves is copied");
            let is_over = idle && copying.left().0 == 0 && copying.own() == 0;
            if !is_over && !mutant!("shard: a vSSD moves while its hosts work") {
                return Progress::Waits;
            }
            let token = here.answers.token();
            ask(here, to, token.0, VolumeIndex(0), VolumeOperation::Flush, now);
            moving.under_way.insert(token.0, Under::Write);
            moving.stage = Stage::Flushes(token.0);
            Progress::Waits
        }
        Stage::Flushes(token) => {
            if moving.under_way.contains_key(&token)
                && !mutant!("shard: a vSSD moves before its copy is flushed")
            {
                return Progress::Waits;
            }
            moving.stage = Stage::Same;
            Progress::Done
        }
        Stage::Same => Progress::Done,
        Stage::Ends => {
            if !moving.under_way.is_empty() {
                return Progress::Waits;
            }
            let error = moving.failure.clone().expect("I-S38: who gives up says why");
            here.plane.flash.copying = None;
            here.plane.let_go(moving.old);
            give_up(here, moving.new, error)
        }
    }
}

/// A move that was refused, whatever the step: the old one stays, and what was made is given back.
pub(crate) fn abandon<M: Divide>(here: &mut Owners<M>, job: &Job) {
    if let Some(moving) = here.moving.take() {
        here.plane.flash.copying = None;
        here.plane.let_go(moving.old);
    }
    let made = job.next.vssds.iter().filter(|(name, record)| {
        let before = job.base.vssds.get(*name);
        before.is_some_and(|before| before.number != record.number)
    });
    let made: Vec<u32> = made.map(|(_, record)| record.number).collect();
    for number in made.into_iter().filter(|number| *number != 0) {
        if here.placement.ledger.vssds.contains_key(&number) {
            let error = failed(ControlErrorKind::Busy, String::new());
            let _ = give_up(here, VssdId(number), error);
        }
    }
}

/// Has a store do something for the copy.
fn ask<M: Divide>(
    here: &mut Owners<M>,
    store: StoreIndex,
    token: u64,
    volume: VolumeIndex,
    operation: VolumeOperation,
    now: Time,
) {
    here.plane.flash.copying.as_mut().expect("I-S38: what moves is copied").expect(token);
    let command = VolumeCommand { token: diecut_volume::contract::VolumeToken(token), volume, operation };
    here.plane.flash.submit(&mut vec![(store, command)], now);
}

/// Begins to read pieces that are due, as far as the rate allows it.
fn begin_pieces<M: Divide>(
    here: &mut Owners<M>,
    moving: &mut Moving,
    (from, to): (StoreIndex, StoreIndex),
    now: Time,
) {
    let own = here.plane.flash.devices.first_of(moving.old);
    let (rate, mode) = (own.pool.wear_config().rate_bytes_per_second, own.media.capabilities().content_mode);
    let is_paced = moving.stage == Stage::Copies;
    while moving.under_way.len() < PIECES_AT_ONCE {
        let copying = here.plane.flash.copying.as_mut().expect("I-S38: what moves is copied");
        if is_paced && copying.paid_until > now {
            return;
        }
        let Some(piece) = copying.take() else { return };
        let iu_count = (piece.ius.end - piece.ius.start) as u32;
        copying.pay(u64::from(iu_count) * IU_SIZE_BYTES as u64, rate, now);
        let Piece { volume, ius, was_copied } = piece;
        let lost = match mutant!("shard: what is uncorrectable keeps a vSSD where it is") {
            true => Vec::new(),
            false => uncorrectable(here, from, volume, ius.clone()),
        };
        for (run, is_readable) in stretches(lost, ius) {
            let token = here.answers.token().0;
            let iu_count = run.end - run.start;
            if !is_readable {
                moving.under_way.insert(token, Under::Write);
                let loses = VolumeOperation::WriteUncorrectable { first_iu: run.start, iu_count };
                ask(here, to, token, volume, loses, now);
                continue;
            }
            let destination = BufferMut::copy_from(&vec![0; iu_count as usize * mode.bytes_per_iu()]);
            let iu_count = iu_count as u32;
            let read = VolumeOperation::Read { first_iu: run.start, iu_count, destination };
            moving.under_way.insert(token, Under::Read { volume, ius: run, was_copied });
            ask(here, from, token, volume, read, now);
        }
    }
}

/// What a host made uncorrectable, or accepted as lost: it is that in the copy, too.
fn uncorrectable<M: Divide>(
    here: &Owners<M>,
    from: StoreIndex,
    volume: VolumeIndex,
    ius: Range<u64>,
) -> Vec<Range<u64>> {
    let store = here.plane.flash.kept(from).expect_volumes();
    let (lost, _) = store.lost_ranges(Some((volume, ius)), PIECE_IUS as usize);
    lost.into_iter().map(|lost| lost.first_iu..lost.first_iu + lost.iu_count).collect()
}

/// A range in stretches, and whether each can be read: these runs of it cannot.
fn stretches(runs: Vec<Range<u64>>, ius: Range<u64>) -> Vec<(Range<u64>, bool)> {
    let mut stretches = Vec::new();
    let mut at = ius.start;
    for run in runs {
        stretches.push((at..run.start, true));
        at = run.end;
        stretches.push((run, false));
    }
    stretches.push((at..ius.end, true));
    stretches.retain(|(run, _)| !run.is_empty());
    stretches
}

/// Takes what the stores answered: what was read is written.
fn take_answers<M: Divide>(here: &mut Owners<M>, moving: &mut Moving, to: StoreIndex, now: Time) {
    let mode = here.plane.flash.devices.first_of(moving.old).media.capabilities().content_mode;
    while let Some(answer) = here.plane.flash.copying.as_mut().and_then(|copying| copying.answers.pop_front())
    {
        let VolumeCompletion { token, result, destination } = answer;
        let from = here.plane.flash.copying.as_ref().expect("I-S38: what moves is copied").from;
        let under = moving.under_way.remove(&token.0).expect("I-S38: what is answered was asked");
        match (under, result) {
            (Under::Write, Ok(())) => {}
            (Under::Write, Err(error)) => {
                let message = format!("vSSD \"{}\" cannot be written elsewhere: {error}", moving.name);
                moving.failure.get_or_insert(failed(ControlErrorKind::Media, message));
            }
            (Under::Read { volume, ius, .. }, Err(VolumeError::Unrecovered { iu }))
                if !uncorrectable(here, from, volume, iu..iu + 1).is_empty() =>
            {
                // A host made it so after the read began.
                mark!("shard: what moves became uncorrectable");
                let copying = here.plane.flash.copying.as_mut().expect("I-S38: what moves is copied");
                copying.touch(volume, &ius);
            }
            (Under::Read { .. }, Err(error)) => {
                let message = format!(
                    "vSSD \"{}\" stays: something of it cannot be read ({error}); `diecut vssd repair {}` says more",
                    moving.name, moving.name
                );
                moving.failure.get_or_insert(failed(ControlErrorKind::Media, message));
            }
            (Under::Read { volume, ius, was_copied }, Ok(())) => {
                let data = destination.expect("I-S38: a read gives what it read");
                write(here, moving, (to, volume, mode), data, (ius, was_copied), now);
            }
        }
    }
}

fn write<M: Divide>(
    here: &mut Owners<M>,
    moving: &mut Moving,
    (to, volume, mode): (StoreIndex, VolumeIndex, ContentMode),
    data: BufferMut,
    (ius, was_copied): (Range<u64>, bool),
    now: Time,
) {
    let size = mode.bytes_per_iu();
    let runs = runs(&data, ius.start, size);
    let data: Buffer = data.freeze();
    for (run, holds) in runs {
        let at = (run.start - ius.start) as usize * size;
        let len = (run.end - run.start) as usize * size;
        let operation = match holds {
            true => VolumeOperation::Write {
                first_iu: run.start,
                payload: Payload::new(mode, data.slice(at..at + len)),
                force_unit_access: false,
                placement: PlacementTarget::default(),
            },
            // What was never written needs no room.
            false if !was_copied || mutant!("shard: what is deallocated while a vSSD moves stays") => {
                continue;
            }
            false => VolumeOperation::Deallocate { first_iu: run.start, iu_count: run.end - run.start },
        };
        let token = here.answers.token().0;
        moving.under_way.insert(token, Under::Write);
        ask(here, to, token, volume, operation, now);
    }
}

/// The catalog names the new one: hosts go on there.
pub(crate) fn switch<M: Divide>(here: &mut Owners<M>, name: &str, now: Time) -> Progress {
    let moving = here.moving.take().expect("I-S38: what moved was moving");
    let Moving { old, new, .. } = moving;
    here.plane.flash.copying = None;
    let record: VssdRecord = here.registry.state.vssds[name].clone();
    assert_eq!(record.number, new.0, "I-S38: the catalog names the new one");
    here.plane.flash.devices.set_share(new, share_of(&record), now);
    let store = here.plane.store_of(new.0).expect("I-S38: both have stores while one moves to the other");
    for (_, _, id) in volumes_of(here, name) {
        here.plane.namespaces.rehome(id, store);
    }
    here.plane.admission.rename(old, new);
    here.plane.let_go(new);
    volumes::choose_whole_writes(here, new.0);
    mark!("shard: a vSSD moved to other devices");
    Progress::Done
}
