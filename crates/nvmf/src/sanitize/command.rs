//! The Sanitize command (Base 2.0 section 5.24): what is refused, and what begins.

use super::record::{SanitizeRecord, SanitizeState};
use super::{is_offered, run};
use crate::connection::Connection;
use crate::connections::Connections;
use crate::event::Action;
use crate::keeping::{Keep, Whose};
use crate::queue::{SlotIndex, SlotState};
use crate::reservation;
use crate::reserving;
use crate::session::Session;
use crate::shared::Shared;
use diecut_nvme::opcode::admin as opcode;
use diecut_nvme::sanitize::{Sanitize, action};
use diecut_nvme::{Status, SubmissionEntry};
use diecut_units::{mark, mutant};

const INVALID: Status = Status::INVALID_FIELD.do_not_retry();

/// Carries the command out: it is answered when what it changes is durable.
///
/// # Panics
/// If it did not come over an admin queue.
pub(crate) fn execute(
    session: &mut Session<'_>,
    connection: &mut Connection,
    slot_index: SlotIndex,
    entry: &SubmissionEntry,
) {
    assert!(connection.is_admin(), "I-T11: an admin command came over an admin queue");
    match next(session.shared, session.connections, connection, entry) {
        Err(status) => reserving::refuse(session, connection, slot_index, entry, status),
        Ok(None) => reserving::answer_when_over(session, connection, slot_index, Vec::new(), Vec::new()),
        Ok(Some((index, record))) => {
            if record.state == SanitizeState::InProgress {
                run::forget_events(session.shared, index);
                mark!("nvmf: sanitize begun");
            }
            let subsystem = session.shared.subsystems.get_mut(index);
            let nqn = subsystem.config.nqn.clone();
            let keep = subsystem.sanitizing.keep(&nqn, record);
            let mut changes = vec![(Whose::Sanitize(nqn), keep.version)];
            changes.retain(|_| !mutant!("nvmf: a sanitize is answered before it is durable"));
            session.actions.push(Action::Keep(Box::new(Keep::Sanitize(keep))));
            reserving::answer_when_over(session, connection, slot_index, Vec::new(), changes);
        }
    }
}

/// What is to be durable of which subsystem; nothing where nothing changes.
fn next(
    shared: &Shared,
    connections: &Connections,
    connection: &Connection,
    entry: &SubmissionEntry,
) -> Result<Option<(u32, SanitizeRecord)>, Status> {
    let unknown = Status::INVALID_OPCODE.do_not_retry();
    let index = connection.subsystem.ok_or(unknown)?;
    let number = connection.association.expect("I-T11: a live connection has an association");
    let association = shared.associations.kept(number);
    let subsystem = shared.subsystems.get(index);
    let sanitizing = &subsystem.sanitizing;
    if !is_offered(&subsystem.config) && !sanitizing.is_known() {
        return Err(unknown);
    }
    association.path.serves()?;
    let sanitize = Sanitize::decode(entry);
    if sanitizing.goes_on() || sanitizing.is_keeping() && !sanitizing.is_marking() {
        return Err(Status::SANITIZE_IN_PROGRESS);
    }
    let failure = sanitizing.failure();
    let failed = Status::SANITIZE_FAILED.do_not_retry();
    match sanitize.action {
        action::EXIT_FAILURE_MODE => {
            return match failure {
                // It does nothing where nothing failed.
                None => Ok(None),
                Some(before) if before.unrestricted || mutant!("nvmf: restricted failure is left") => {
                    Ok(Some((index, sanitizing.ended(SanitizeState::FailureLeft))))
                }
                Some(_) => Err(failed),
            };
        }
        action::BLOCK_ERASE if is_offered(&subsystem.config) => {}
        _ => return Err(INVALID),
    }
    // NDI: what is erased is deallocated, and a host that does not want that is refused.
    if sanitize.no_deallocate {
        return Err(INVALID);
    }
    // Who could not leave a failure can only do the same once more.
    if failure.is_some_and(|before| !before.unrestricted) && sanitize.unrestricted {
        return Err(failed);
    }
    if is_formatting(shared, connections, connection, index) {
        return Err(Status::FORMAT_IN_PROGRESS);
    }
    for (nsid, namespace) in &subsystem.config.namespaces {
        if namespace.properties.read_only {
            return Err(Status::NAMESPACE_WRITE_PROTECTED.do_not_retry());
        }
        let of_namespace = SubmissionEntry { nsid: (*nsid).into(), ..*entry };
        reservation::check(&subsystem.reservations, &association.host_id, &of_namespace)?;
    }
    let record =
        SanitizeRecord { state: SanitizeState::InProgress, cdw10: entry.cdw10.get(), is_erased: false };
    Ok(Some((index, record)))
}

/// Whether a namespace of the subsystem is being formatted. `own` is lent out, the others are in their places.
fn is_formatting(shared: &Shared, connections: &Connections, own: &Connection, index: u32) -> bool {
    let formats = |connection: &Connection| {
        let slots = connection.queue.iter().flat_map(|queue| &queue.slots);
        let mut at_work = slots.filter(|slot| slot.state() == SlotState::Submitted);
        connection.is_admin() && at_work.any(|slot| slot.entry.opcode == opcode::FORMAT_NVM)
    };
    let all = shared.associations.of(Some(index)).flat_map(|(_, one)| &one.connections);
    formats(own) || all.filter_map(|number| connections.get(*number)).any(formats)
}
