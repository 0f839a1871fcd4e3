//! Commands of reservations are carried out: the rules are those of `reservation`; here hosts are told of what others did, and commands of
//! preempted hosts are waited for.

use crate::admin::answer_events;
use crate::associations::Associations;
use crate::awaiting::Awaiting;
use crate::connection::Connection;
use crate::connections::Connections;
use crate::controller::Association;
use crate::event::Action;
use crate::keeping::{Change, Keep, Whose};
use crate::queue::{SlotIndex, SlotState};
use crate::reservation::{Effects, HostId, KeepReservation, KeptReservation, Reservation};
use crate::session::Session;
use crate::shared::Shared;
use crate::token::command_token;
use diecut_namespace::contract::{CommandToken, SourceId};
use diecut_nvme::opcode::io as opcode;
use diecut_nvme::reservation::{
    self as words, RegisteredController, ReservationCommand, ReservationKeys, ReservationKind,
    ReservationStatus,
};
use diecut_nvme::{Status, SubmissionEntry};
use diecut_units::{Buffer, mark, mutant};
use zerocopy::{FromBytes, IntoBytes};

const INVALID: Status = Status::INVALID_FIELD.do_not_retry();
/// What was to persist could not be made durable, and was undone. The specification has no status for it.
const NOT_KEPT: Status = Status::INTERNAL_ERROR;
/// Controller id of a registrant that has no controller now.
const NO_CONTROLLER: u16 = 0xFFFF;

/// A command of reservations with all its data, for a namespace that is there.
pub(crate) fn execute(
    session: &mut Session<'_>,
    connection: &mut Connection,
    slot_index: SlotIndex,
    entry: &SubmissionEntry,
    data: Option<Buffer>,
) {
    let index = connection.subsystem.expect("I-T11: an I/O queue has a subsystem");
    let number = connection.association.expect("I-T11: a live connection has an association");
    let host = session.shared.associations.kept(number).host_id;
    if entry.opcode == opcode::RESERVATION_REPORT {
        return answer_report(session, connection, slot_index, entry);
    }
    let nsid = entry.nsid.get();
    let data = data.expect("I-T7: data that were planned are there");
    let mut one = session.shared.subsystems.get(index).reservations.get(nsid).cloned().unwrap_or_default();
    match run(&mut one, host, entry, &data) {
        Ok(effects) => {
            let changes = change(session, index, nsid, one).into_iter().collect();
            tell(session, index, nsid, &effects.told);
            let aborts = entry.opcode == opcode::RESERVATION_ACQUIRE
                && ReservationCommand::decode(entry).action == words::PREEMPT_AND_ABORT;
            let preempted = if aborts { effects.preempted } else { Vec::new() };
            let commands = abort(session, index, nsid, &preempted);
            answer_when_over(session, connection, slot_index, commands, changes);
        }
        Err(status) => refuse(session, connection, slot_index, entry, status),
    }
}

/// Answers a command that changed nothing.
pub(crate) fn refuse(
    session: &mut Session<'_>,
    connection: &mut Connection,
    slot_index: SlotIndex,
    entry: &SubmissionEntry,
    status: Status,
) {
    assert!(status != Status::SUCCESS, "I-T15: who is refused is told why");
    let queue = connection.queue.as_mut().expect("I-T11: a live connection has a queue");
    queue.release(slot_index);
    session.shared.record_error(connection, entry, status);
    connection.answer(entry.command_id.get(), status, 0);
}

/// Changes the reservation of a namespace, and has it made durable if it persists through power loss. What the command that changes it
/// waits for.
///
/// # Panics
/// If there is no such namespace.
pub(crate) fn change(session: &mut Session<'_>, index: u32, nsid: u32, next: Reservation) -> Option<Change> {
    let subsystem = session.shared.subsystems.get_mut(index);
    let shown = subsystem.config.namespaces.get(&nsid).expect("I-T16: a namespace that is there is changed");
    let namespace = shown.namespace;
    let (version, keep) = subsystem.reservations.change(nsid, namespace, next);
    session.actions.extend(keep.map(|keep| Action::Keep(Box::new(Keep::Reservation(keep)))));
    version.map(|version| (Whose::Reservation(namespace), version))
}

/// Answers a command that did what it should, when what it waits for is over.
pub(crate) fn answer_when_over(
    session: &mut Session<'_>,
    connection: &mut Connection,
    slot_index: SlotIndex,
    commands: Vec<CommandToken>,
    changes: Vec<Change>,
) {
    let queue = connection.queue.as_mut().expect("I-T11: a live connection has a queue");
    let slot = &mut queue.slots[usize::from(slot_index)];
    let command_id = slot.entry.command_id.get();
    if commands.is_empty() && changes.is_empty() {
        queue.release(slot_index);
        connection.answer(command_id, Status::SUCCESS, 0);
        return;
    }
    slot.enter(SlotState::Parked);
    let (id, index) = (connection.id, connection.index);
    let is_undone = false;
    session.shared.awaiting.push(Awaiting {
        id,
        index,
        slot_index,
        command_id,
        commands,
        changes,
        is_undone,
    });
}

/// A change is durable, or could not be made so: commands that waited for it are answered.
pub(crate) fn kept(
    shared: &mut Shared,
    connections: &mut Connections,
    kept: &KeptReservation,
    actions: &mut Vec<Action>,
) {
    // Its subsystem may have gone, or changed its shard.
    let Some(outcome) = shared.subsystems.iter_mut().find_map(|one| one.reservations.kept(kept)) else {
        return;
    };
    mark!("nvmf: change of a reservation is durable or undone");
    let is_later = |keep: &KeepReservation| keep.version > outcome.version;
    assert!(outcome.next.as_ref().is_none_or(is_later), "I-T21: a change comes after those before it");
    actions.extend(outcome.next.map(|keep| Action::Keep(Box::new(Keep::Reservation(keep)))));
    let whose = Whose::Reservation(kept.namespace);
    let over = shared.awaiting.kept(&whose, outcome.version, outcome.is_kept);
    answer(connections, over, actions);
}

fn run(one: &mut Reservation, host: HostId, entry: &SubmissionEntry, data: &[u8]) -> Result<Effects, Status> {
    let command = ReservationCommand::decode(entry);
    let mut keys = [0; ReservationKeys::SIZE_BYTES];
    assert!(matches!(data.len(), 8 | 16), "I-T7: data come as they were planned");
    keys[..data.len()].copy_from_slice(data);
    let keys = ReservationKeys::read_from_bytes(&keys).expect("I-T12: data are as long as was checked");
    let (current, other) = (keys.current.get(), keys.other.get());
    if entry.opcode == opcode::RESERVATION_REGISTER {
        let persists = match command.persistence {
            words::PERSISTENCE_STAYS => one.persists,
            words::DOES_NOT_PERSIST => false,
            words::PERSISTS => true,
            _ => return Err(INVALID),
        };
        let effects = match command.action {
            words::REGISTER => one.register(host, other),
            words::UNREGISTER => one.unregister(host, current, command.ignores_key),
            words::REPLACE => one.replace(host, current, other, command.ignores_key),
            _ => Err(INVALID),
        };
        one.persists = persists;
        return effects;
    }
    if command.ignores_key {
        return Err(INVALID);
    }
    let kind = ReservationKind::decode(command.kind);
    if entry.opcode == opcode::RESERVATION_RELEASE {
        return match (command.action, kind) {
            (words::RELEASE, Some(kind)) => one.release(host, current, kind),
            (words::CLEAR, _) => one.clear(host, current),
            _ => Err(INVALID),
        };
    }
    match (command.action, kind) {
        (words::ACQUIRE, Some(kind)) => one.acquire(host, current, kind),
        (words::PREEMPT | words::PREEMPT_AND_ABORT, Some(kind)) => one.preempt(host, current, other, kind),
        _ => Err(INVALID),
    }
}

/// Tells hosts of what another one did.
fn tell(session: &mut Session<'_>, index: u32, nsid: u32, told: &[(HostId, u8)]) {
    let Session { shared, connections, .. } = session;
    for (host, kind) in told {
        for (_, association) in shared.associations.iter_mut() {
            if association.subsystem != Some(index) || association.host_id != *host {
                continue;
            }
            association.events.reservations.add(*kind, nsid);
            let Some(&admin) = association.connections.first() else { continue };
            if let Some(other) = connections.get_mut(admin) {
                answer_events(association, other);
                shared.later.told.push(admin);
            }
        }
    }
}

fn answer_report(
    session: &mut Session<'_>,
    connection: &mut Connection,
    slot_index: SlotIndex,
    entry: &SubmissionEntry,
) {
    let index = connection.subsystem.expect("I-T11: an I/O queue has a subsystem");
    let one = session.shared.subsystems.get(index).reservations.get(entry.nsid.get());
    let mut page = report(one, index, &session.shared.associations);
    let queue = connection.queue.as_mut().expect("I-T11: a live connection has a queue");
    let slot = &mut queue.slots[usize::from(slot_index)];
    assert!(slot.data_bytes.is_multiple_of(4), "I-T15: an answer is as long as was planned");
    page.resize(slot.data_bytes as usize, 0);
    // What was asked for with the command is held until the answer is sent.
    let held_bytes = std::mem::take(&mut slot.account_held);
    queue.release(slot_index);
    let page = session.shared.memory.pool.copy_of(&page).freeze();
    connection.answer_with_data(entry.command_id.get(), page, held_bytes);
}

fn report(one: Option<&Reservation>, index: u32, associations: &Associations) -> Vec<u8> {
    let empty = Reservation::default();
    let one = one.unwrap_or(&empty);
    let mut controllers = Vec::new();
    for (host, key) in &one.registrants {
        let is_of = |association: &&Association| association.host_id == *host && !association.is_ending();
        let own = associations.of(Some(index)).map(|(_, association)| association).filter(is_of);
        let mut ids: Vec<u16> = own.map(|association| association.controller_id).collect();
        if ids.is_empty() {
            ids.push(NO_CONTROLLER);
        }
        controllers.extend(ids.into_iter().map(|id| RegisteredController {
            cntlid: id.into(),
            rcsts: u8::from(one.is_holder(host)),
            rkey: (*key).into(),
            hostid: *host,
            ..RegisteredController::default()
        }));
    }
    let head = ReservationStatus {
        generation: one.generation.into(),
        rtype: one.kind().map_or(0, |kind| kind as u8),
        regctl: (controllers.len() as u16).into(),
        ptpls: one.persists.into(),
        ..ReservationStatus::default()
    };
    let page = [head.as_bytes(), controllers.as_bytes()].concat();
    assert_eq!(page.len(), 64 * (1 + controllers.len()), "I-T15: a report has a place for each controller");
    page
}

/// Gives up what hosts have in a namespace. What is still to come back.
fn abort(session: &mut Session<'_>, index: u32, nsid: u32, hosts: &[HostId]) -> Vec<CommandToken> {
    let mut awaited = Vec::new();
    let Session { shared, connections, actions } = session;
    let own = shared.associations.of(Some(index)).filter(|(_, one)| hosts.contains(&one.host_id));
    for &number in own.flat_map(|(_, one)| &one.connections) {
        let Some(queue) = connections.get(number).and_then(|one| one.queue.as_ref()) else { continue };
        for (slot_index, slot) in (0..).zip(&queue.slots) {
            if queue.id > 0 && slot.state() == SlotState::Submitted && slot.entry.nsid.get() == nsid {
                let token = command_token(number, slot_index);
                actions.push(Action::GiveUp(SourceId(number), Some(token)));
                awaited.push(token);
            }
        }
    }
    if mutant!("nvmf: preempted commands are not waited for") { Vec::new() } else { awaited }
}

/// A command came back: whoever waited for it last is answered.
#[inline]
pub(crate) fn came_back(
    shared: &mut Shared,
    connections: &mut Connections,
    token: CommandToken,
    actions: &mut Vec<Action>,
) {
    if !shared.awaiting.is_empty() {
        answer_preemptions(shared, connections, token, actions);
    }
}

#[cold]
fn answer_preemptions(
    shared: &mut Shared,
    connections: &mut Connections,
    token: CommandToken,
    actions: &mut Vec<Action>,
) {
    let over = shared.awaiting.came_back(token);
    if !over.is_empty() {
        mark!("nvmf: preempted commands came back");
    }
    answer(connections, over, actions);
}

/// Answers commands that waited for nothing else.
pub(crate) fn answer(connections: &mut Connections, over: Vec<Awaiting>, actions: &mut Vec<Action>) {
    for one in over {
        // Its connection may have gone.
        let Some(connection) = connections.get_mut(one.index).filter(|connection| connection.id == one.id)
        else {
            continue;
        };
        let Some(queue) = &mut connection.queue else { continue };
        let slot = &queue.slots[usize::from(one.slot_index)];
        if slot.state() == SlotState::Parked && slot.entry.command_id.get() == one.command_id {
            assert!(one.commands.is_empty() && one.changes.is_empty(), "I-T17: what it waited for is over");
            let status = if one.is_undone { NOT_KEPT } else { Status::SUCCESS };
            queue.release(one.slot_index);
            connection.answer(one.command_id, status, 0);
            connection.tell_output(actions);
        }
    }
}
