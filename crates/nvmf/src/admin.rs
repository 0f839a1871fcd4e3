//! Commands of admin queues that concern more than their controller: properties, Abort, Asynchronous Event Requests.

use crate::chunk_log;
use crate::connection::{Connection, Phase};
use crate::controller::{Answer, Association, EVENT_REQUESTS_MAX, Surroundings, Turn};
use crate::event::Action;
use crate::format;
use crate::pages;
use crate::persistence;
use crate::placement;
use crate::queue::{SlotIndex, SlotState};
use crate::session::Session;
use crate::token::{command_token, shutdown_token};
use diecut_namespace::contract::{NamespaceCommand, NamespaceId, NamespaceOperation, SourceId};
use diecut_nvme::admin::Abort;
use diecut_nvme::fabrics::{PropertyCommand, fctype};
use diecut_nvme::opcode;
use diecut_nvme::openchannel;
use diecut_nvme::property::offset;
use diecut_nvme::{Status, SubmissionEntry};
use diecut_units::{Buffer, mark, mutant};

/// Drops an event request that has this command id, without an answer. Hosts take them back in silence and use the id
/// again (SPDK does, before it shuts a controller down); whether the namespace has a command of the id is another matter.
pub(crate) fn take_over_event_request(
    session: &mut Session<'_>,
    connection: &mut Connection,
    command_id: u16,
) -> bool {
    let queue = connection.queue.as_mut().expect("I-T11: a live connection has a queue");
    let Some(slot) = queue.find(command_id) else { return false };
    let number = connection.association.expect("I-T11: a live connection has an association");
    let association = session.shared.associations.kept_mut(number);
    let Some(at) = association.events.parked.iter().position(|&parked| parked == slot) else { return false };
    if queue.id != 0 {
        return false;
    }
    association.events.parked.remove(at);
    queue.release(slot);
    mark!("nvmf: event request dropped for its command id");
    true
}

pub(crate) fn execute(
    session: &mut Session<'_>,
    connection: &mut Connection,
    slot_index: SlotIndex,
    entry: &SubmissionEntry,
    data: Option<Buffer>,
) {
    let number = connection.association.expect("I-T11: a live connection has an association");
    let command_id = entry.command_id.get();
    if entry.opcode == opcode::admin::ASYNCHRONOUS_EVENT_REQUEST {
        let association = session.shared.associations.kept_mut(number);
        if association.events.parked.len() >= EVENT_REQUESTS_MAX {
            connection.queue.as_mut().expect("I-T11: a live connection has a queue").release(slot_index);
            let status = Status::ASYNCHRONOUS_EVENT_REQUEST_LIMIT_EXCEEDED.do_not_retry();
            connection.answer(command_id, status, 0);
            return;
        }
        let queue = connection.queue.as_mut().expect("I-T11: a live connection has a queue");
        queue.slots[usize::from(slot_index)].enter(SlotState::Parked);
        association.events.parked.push(slot_index);
        answer_events(association, connection);
        return;
    }
    if pages::put_off(session.shared, session.actions, connection, slot_index, entry) {
        return;
    }
    let put_off = chunk_log::put_off(session, connection, slot_index, entry);
    if put_off == Ok(true) {
        return;
    }
    let answer = if let Err(status) = put_off {
        Answer::Fail(status)
    } else if entry.opcode == openchannel::opcode::GEOMETRY {
        chunk_log::geometry(session.shared, connection, entry)
    } else if let Some(answer) = chunk_log::feedback(session.shared, connection, entry) {
        answer
    } else if entry.opcode == opcode::admin::FORMAT_NVM {
        match format::begin(session, connection, slot_index, entry) {
            Ok(()) => return,
            Err(status) => Answer::Fail(status),
        }
    } else if entry.opcode == opcode::FABRICS {
        property(session, connection, number, entry)
    } else if entry.opcode == opcode::admin::ABORT {
        abort(session, connection, number, entry)
    } else {
        execute_controller(session, number, entry, data.as_deref(), &[])
    };
    end(session, connection, slot_index, entry, answer);
}

/// A command that was put off goes on with what it waited for.
pub(crate) fn go_on(
    session: &mut Session<'_>,
    connection: &mut Connection,
    slot_index: SlotIndex,
    entry: &SubmissionEntry,
    debug_log: Vec<u8>,
) {
    let number = connection.association.expect("I-T11: a live connection has an association");
    let answer = execute_controller(session, number, entry, None, &debug_log);
    end(session, connection, slot_index, entry, answer);
}

/// Answers a command.
fn end(
    session: &mut Session<'_>,
    connection: &mut Connection,
    slot_index: SlotIndex,
    entry: &SubmissionEntry,
    answer: Answer,
) {
    let number = connection.association.expect("I-T11: a live connection has an association");
    let command_id = entry.command_id.get();
    let queue = connection.queue.as_mut().expect("I-T11: a live connection has a queue");
    let slot = &mut queue.slots[usize::from(slot_index)];
    let room = slot.data_bytes as usize;
    let is_page =
        matches!(&answer, Answer::Data(page) | Answer::DataWith(page, _) if !page.is_empty() && room > 0);
    // What was asked for with the command is held until the answer is sent.
    let held_bytes = if is_page { std::mem::take(&mut slot.account_held) } else { 0 };
    queue.release(slot_index);
    match answer {
        Answer::Result(result) => connection.answer(command_id, Status::SUCCESS, result),
        Answer::DataWith(page, result) => {
            assert_eq!(page.len(), room, "I-T15: an answer is as long as was planned");
            let page = session.shared.memory.pool.copy_of(&page).freeze();
            connection.answer_with_data_and(command_id, page, held_bytes, result);
        }
        Answer::Data(page) => {
            assert_eq!(page.len(), room, "I-T15: an answer is as long as was planned");
            if page.is_empty() {
                connection.answer(command_id, Status::SUCCESS, 0);
            } else {
                connection.answer_with_data(
                    command_id,
                    session.shared.memory.pool.copy_of(&page).freeze(),
                    held_bytes,
                );
            }
        }
        Answer::Fail(status) => {
            session.shared.record_error(connection, entry, status);
            connection.answer(command_id, status, 0);
        }
    }
    let association = session.shared.associations.kept_mut(number);
    answer_events(association, connection);
}

fn execute_controller(
    session: &mut Session<'_>,
    number: u32,
    entry: &SubmissionEntry,
    data: Option<&[u8]>,
    debug_log: &[u8],
) -> Answer {
    if let Some(answer) = pages::execute(session.shared, number, entry, data, debug_log) {
        return answer;
    }
    if let Some(answer) = placement::execute(session.shared, number, entry) {
        return answer;
    }
    if let Some(answer) = persistence::execute(session.shared, number, entry) {
        return answer;
    }
    let subsystem = session
        .shared
        .associations
        .get(number)
        .expect("I-T11: a live connection has an association")
        .subsystem;
    let controllers = session.shared.associations.controller_ids(subsystem);
    let own = subsystem.map(|index| session.shared.subsystems.get(index));
    let around = Surroundings {
        config: &session.shared.config,
        subsystem: own.map(|one| &one.config),
        health: own.map(|one| one.health).unwrap_or_default(),
        traffic: own.map(|one| one.traffic).unwrap_or_default(),
        all_subsystems: &session.shared.subsystems,
        now: session.shared.now,
        controllers,
    };
    let association =
        session.shared.associations.get_mut(number).expect("I-T11: a live connection has an association");
    let answer = association.execute(entry, data, around);
    let expires = association.expires(); // KATO can be set as a feature
    session.shared.tick_by(expires);
    answer
}

fn property(
    session: &mut Session<'_>,
    connection: &mut Connection,
    number: u32,
    entry: &SubmissionEntry,
) -> Answer {
    let property = PropertyCommand::of(entry);
    let association = session.shared.associations.kept_mut(number);
    let at = property.offset.get();
    // ATTRIB: 4 bytes or 8; other sizes are reserved (Base 2.0 figures 387 and 390).
    if property.size & 7 > 1 {
        return Answer::Fail(Status::INVALID_FIELD.do_not_retry());
    }
    if entry.fabrics_type() == Some(fctype::PROPERTY_GET) {
        // The admin connection itself is lent out; the others say what they still have in namespaces.
        let io_quiet = association
            .connections
            .iter()
            .filter(|&&index| index != connection.index)
            .all(|&index| session.connections.get(index).is_none_or(|one| one.submitted() == 0));
        return match association.property(at, property.size & 7 == 1, &session.shared.config, io_quiet) {
            Ok(value) => Answer::Result(value),
            Err(status) => Answer::Fail(status),
        };
    }
    match at {
        offset::CC if property.size & 7 == 0 => {
            match association.set_configuration(property.value.get() as u32) {
                Ok(Turn::GoOn) => Answer::Result(0),
                Ok(turn) => {
                    // A reset or shutdown takes the I/O queues away; the admin queue stays, so that the host
                    // can read CSTS.
                    let io = association.connections.iter().filter(|&&index| index != connection.index);
                    session.shared.later.closing.extend(io);
                    if turn == Turn::ShutDown && !mutant!("nvmf: shutdown flushes no cache") {
                        flush_caches(session, connection, number);
                    }
                    Answer::Result(0)
                }
                Err(status) => Answer::Fail(status),
            }
        }
        _ => Answer::Fail(Status::INVALID_FIELD.do_not_retry()),
    }
}

/// A shutdown is over when what completed before is durable (Base 2.0 section 3.6.2): each namespace with a volatile
/// cache is flushed on behalf of the admin queue, which stays until that is answered.
fn flush_caches(session: &mut Session<'_>, connection: &mut Connection, number: u32) {
    let shared = &mut *session.shared;
    let association = shared.associations.kept_mut(number);
    let Some(index) = association.subsystem else { return };
    let subsystem = shared.subsystems.get(index);
    let cached = subsystem.config.namespaces.values().filter(|one| one.properties.volatile_cache);
    let cached: Vec<NamespaceId> = cached.map(|one| one.namespace).collect();
    association.flushes.awaited += cached.len() as u32;
    for (nth, namespace) in (0..).zip(cached) {
        mark!("nvmf: shutdown flushes a cache");
        connection.queue.as_mut().expect("I-T11: a live connection has a queue").submitted += 1;
        let command = NamespaceCommand {
            token: shutdown_token(connection.index, nth),
            namespace,
            source: SourceId(connection.index),
            arrived: shared.now,
            operation: NamespaceOperation::Flush,
        };
        shared.watch(&command);
        session.actions.push(Action::Submit(command));
    }
}

/// Abort (Base 2.0 section 5.1): takes back event requests and writes that still wait for buffer space. What a namespace has is
/// answered as not aborted, and ends at once, or after the piece that it is at.
fn abort(
    session: &mut Session<'_>,
    connection: &mut Connection,
    number: u32,
    entry: &SubmissionEntry,
) -> Answer {
    let abort = Abort::decode(entry);
    let association = session.shared.associations.kept_mut(number);
    let not_aborted = Answer::Result(u64::from(Abort::NOT_ABORTED));
    if abort.queue_id == 0 {
        let queue = connection.queue.as_mut().expect("I-T11: a live connection has a queue");
        let Some(slot) = queue.find(abort.command_id) else { return not_aborted };
        let Some(position) = association.events.parked.iter().position(|&parked| parked == slot) else {
            return not_aborted;
        };
        association.events.parked.remove(position);
        queue.release(slot);
        connection.answer(abort.command_id, Status::ABORT_REQUESTED, 0);
        return Answer::Result(0);
    }
    for &index in &association.connections {
        let Some(other) = session.connections.get_mut(index) else { continue };
        let Some(queue) = other.queue.as_mut().filter(|queue| queue.id == abort.queue_id) else {
            continue;
        };
        let Some(slot) = queue.find(abort.command_id) else { return not_aborted };
        match queue.slots[usize::from(slot)].state() {
            SlotState::WaitingForSpace => {}
            SlotState::Submitted => {
                let token = command_token(index, slot);
                session.actions.push(Action::GiveUp(SourceId(index), Some(token)));
                return not_aborted;
            }
            _ => return not_aborted,
        }
        if !mutant!("nvmf: aborted command goes on") {
            queue.give_up(slot);
        }
        mark!("nvmf: command aborted");
        other.answer(abort.command_id, Status::ABORT_REQUESTED, 0);
        session.shared.later.told.push(index);
        return Answer::Result(0);
    }
    not_aborted
}

/// Answers event requests of an admin queue with events that wait.
pub(crate) fn answer_events(association: &mut Association, connection: &mut Connection) {
    let is_admin = connection.is_admin();
    while is_admin && connection.phase() == Phase::Live && !association.events.parked.is_empty() {
        let Some((event, parameter)) = association.next_event() else { return };
        let slot = association.events.parked.remove(0);
        let queue = connection.queue.as_mut().expect("I-T11: a live connection has a queue");
        let command_id = queue.slots[usize::from(slot)].entry.command_id.get();
        queue.release(slot);
        let dwords = u64::from(event.encode()) | u64::from(parameter) << 32;
        connection.answer(command_id, Status::SUCCESS, dwords);
    }
}
