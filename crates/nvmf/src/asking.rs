//! Admin commands that a namespace answers: they are given to it as those of its I/O queues are.

use crate::connection::Connection;
use crate::event::Action;
use crate::queue::{SlotIndex, SlotState};
use crate::session::Session;
use crate::token::command_token;
use diecut_namespace::contract::{NamespaceCommand, NamespaceId, NamespaceOperation, SourceId};

/// Gives a namespace what it has to do; the command is answered when that is done.
///
/// # Panics
/// If the command did not come over an admin queue, or the namespace is none of the connection's subsystem.
pub(crate) fn ask(
    session: &mut Session<'_>,
    connection: &mut Connection,
    slot_index: SlotIndex,
    namespace: NamespaceId,
    operation: NamespaceOperation,
) {
    let queue = connection.queue.as_mut().expect("I-T11: a live connection has a queue");
    assert_eq!(queue.id, 0, "I-T11: an admin command came over an admin queue");
    let slot = &mut queue.slots[usize::from(slot_index)];
    slot.enter(SlotState::Submitted);
    queue.submitted += 1;
    let index = connection.subsystem.expect("whose command names a namespace has a subsystem");
    let shared = &mut *session.shared;
    shared.subsystems.get_mut(index).traffic.busy.begin(shared.now);
    give(session, connection, slot_index, namespace, operation);
}

/// Gives a namespace the second part of what it has to do for a command; as [`ask`], which gave it the first one.
///
/// # Panics
/// As [`ask`].
pub(crate) fn ask_again(
    session: &mut Session<'_>,
    connection: &mut Connection,
    slot_index: SlotIndex,
    namespace: NamespaceId,
    operation: NamespaceOperation,
) {
    let queue = connection.queue.as_ref().expect("I-T11: a live connection has a queue");
    let state = queue.slots[usize::from(slot_index)].state();
    assert_eq!(state, SlotState::Submitted, "I-T7: a command has a second part while its namespace has it");
    give(session, connection, slot_index, namespace, operation);
}

fn give(
    session: &mut Session<'_>,
    connection: &Connection,
    slot_index: SlotIndex,
    namespace: NamespaceId,
    operation: NamespaceOperation,
) {
    let queue = connection.queue.as_ref().expect("I-T11: a live connection has a queue");
    let command = NamespaceCommand {
        token: command_token(connection.index, slot_index),
        namespace,
        source: SourceId(connection.index),
        arrived: queue.slots[usize::from(slot_index)].arrived,
        operation,
    };
    let shared = &mut *session.shared;
    let index = connection.subsystem.expect("whose command names a namespace has a subsystem");
    let mut own = shared.subsystems.get(index).config.namespaces.values();
    assert!(own.any(|one| one.namespace == namespace), "a command goes to a namespace of its own subsystem");
    shared.watch(&command);
    session.actions.push(Action::Submit(command));
}
