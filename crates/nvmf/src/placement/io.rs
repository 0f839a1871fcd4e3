//! I/O commands of placement, and where writes go.

use super::{PATIENCE, PlacementFigures, group_bits, target_of};
use crate::config::NamespaceConfig;
use crate::connection::Connection;
use crate::io::Plan;
use crate::pages;
use crate::queue::SlotIndex;
use crate::session::Session;
use crate::subsystems::Subsystem;
use diecut_namespace::contract::{PlacementHandle, PlacementProperties, PlacementTarget, ReclaimGroup};
use diecut_nvme::fdp::{
    DIRECTIVE_DATA_PLACEMENT, EVENT_HAS_LOCATION, EVENT_HAS_NSID, EVENT_HAS_PID, HandleStatus,
    IoManagementReceive, IoManagementSend, PLACEMENT_ID_SIZE_BYTES, PlacementEvent, PlacementId, event_kind,
    placement_ids, status_page,
};
use diecut_nvme::io::LbaRange as WireRange;
use diecut_nvme::opcode::io as opcode;
use diecut_nvme::{SglKind, Status, SubmissionEntry};
use diecut_units::{Buffer, Time, mutant};

const INVALID: Status = Status::INVALID_FIELD.do_not_retry();
/// Lists of placement identifiers may be sent in a larger buffer, up to so much.
const LIST_BYTES_MAX: u32 = 4096;

/// Whether it is a command of placement.
#[inline]
pub(crate) fn is_ours(code: u8) -> bool {
    matches!(code, opcode::IO_MANAGEMENT_RECEIVE | opcode::IO_MANAGEMENT_SEND)
}

/// Checks a command of placement before its data move.
pub(crate) fn plan_io(
    namespace: &NamespaceConfig,
    entry: &SubmissionEntry,
    transfer_bytes_max: u32,
) -> Result<Plan, Status> {
    let placement = namespace.properties.placement.as_ref();
    let disabled = Status::FDP_DISABLED.do_not_retry();
    if entry.opcode == opcode::IO_MANAGEMENT_RECEIVE {
        let receive = IoManagementReceive::decode(entry);
        match receive.operation {
            IoManagementReceive::NO_ACTION => {}
            IoManagementReceive::HANDLE_STATUS if placement.is_some() => {}
            IoManagementReceive::HANDLE_STATUS => return Err(disabled),
            _ => return Err(INVALID),
        }
        if receive.length_bytes > u64::from(transfer_bytes_max) {
            return Err(INVALID);
        }
        return Ok(Plan { from_host_bytes: 0, to_host_bytes: receive.length_bytes as u32 });
    }
    let send = IoManagementSend::decode(entry);
    match (send.operation, placement) {
        (IoManagementSend::NO_ACTION, _) => Ok(Plan::default()),
        (IoManagementSend::UPDATE_HANDLES, None) => Err(disabled),
        (IoManagementSend::UPDATE_HANDLES, Some(placement)) => {
            // MAXPIDS.
            if send.pid_count() > super::pids_max(placement) {
                return Err(INVALID);
            }
            let sent = match entry.sgl.kind() {
                SglKind::InCapsule { length_bytes, .. } | SglKind::Transport { length_bytes } => length_bytes,
                SglKind::Other(_) => 0,
            };
            let needed = send.pid_count() * PLACEMENT_ID_SIZE_BYTES;
            Ok(Plan { from_host_bytes: needed.max(sent.min(LIST_BYTES_MAX)), to_host_bytes: 0 })
        }
        _ => Err(INVALID),
    }
}

/// The reclaim unit handles and groups behind a list of placement identifiers.
fn targets_of(
    placement: &PlacementProperties,
    entry: &SubmissionEntry,
    list: &[u8],
) -> Result<Vec<PlacementTarget>, Status> {
    let count = IoManagementSend::decode(entry).pid_count() as usize;
    assert!(list.len() >= count * PLACEMENT_ID_SIZE_BYTES as usize, "I-T7: data come as they were planned");
    let mut targets = Vec::new();
    for pid in placement_ids(list).take(count) {
        let target = target_of(placement, pid).ok_or(INVALID)?;
        if !targets.contains(&target) {
            targets.push(target);
        }
    }
    Ok(targets)
}

/// A command of placement with all its data: what media are to say or do is asked, and the command is answered when that is told.
pub(crate) fn execute_io(
    session: &mut Session<'_>,
    connection: &mut Connection,
    slot_index: SlotIndex,
    entry: &SubmissionEntry,
    data: Option<Buffer>,
) {
    let index = connection.subsystem.expect("I-T11: an I/O queue has a subsystem");
    let namespaces = &session.shared.subsystems.get(index).config.namespaces;
    // It may have gone, or be another one, since the command was checked.
    let namespace = namespaces.get(&entry.nsid.get());
    let placement = namespace.and_then(|namespace| namespace.properties.placement);
    let namespace = namespace.map(|namespace| namespace.namespace);
    let updates = match (entry.opcode, IoManagementReceive::decode(entry).operation, &placement) {
        (_, IoManagementReceive::NO_ACTION, _) => {
            let page = zeros(connection, slot_index);
            return answer_page(session, connection, slot_index, entry, page);
        }
        (_, _, None) => Err(Status::FDP_DISABLED.do_not_retry()),
        (opcode::IO_MANAGEMENT_SEND, _, Some(placement)) => {
            targets_of(placement, entry, &data.expect("I-T7: data that were planned are there"))
        }
        (_, _, Some(_)) => Ok(Vec::new()),
    };
    match updates {
        Ok(updates) => {
            pages::ask(session.shared, session.actions, connection, slot_index, updates, namespace)
        }
        Err(status) => refuse(session, connection, slot_index, entry, status),
    }
}

fn zeros(connection: &Connection, slot_index: SlotIndex) -> Vec<u8> {
    let queue = connection.queue.as_ref().expect("I-T11: a live connection has a queue");
    vec![0; queue.slots[usize::from(slot_index)].data_bytes as usize]
}

fn refuse(
    session: &mut Session<'_>,
    connection: &mut Connection,
    slot_index: SlotIndex,
    entry: &SubmissionEntry,
    status: Status,
) {
    connection.queue.as_mut().expect("I-T11: a live connection has a queue").release(slot_index);
    session.shared.record_error(connection, entry, status);
    connection.answer(entry.command_id.get(), status, 0);
}

/// Answers with a page, or with success alone where the host gets no data.
fn answer_page(
    session: &mut Session<'_>,
    connection: &mut Connection,
    slot_index: SlotIndex,
    entry: &SubmissionEntry,
    mut page: Vec<u8>,
) {
    let queue = connection.queue.as_mut().expect("I-T11: a live connection has a queue");
    let slot = &mut queue.slots[usize::from(slot_index)];
    let command_id = entry.command_id.get();
    if entry.opcode == opcode::IO_MANAGEMENT_SEND {
        queue.release(slot_index);
        return connection.answer(command_id, Status::SUCCESS, 0);
    }
    assert!(slot.data_bytes.is_multiple_of(4), "I-T15: an answer is as long as was planned");
    page.resize(slot.data_bytes as usize, 0);
    // What was asked for with the command is held until the answer is sent.
    let held_bytes = std::mem::take(&mut slot.account_held);
    queue.release(slot_index);
    let page = session.shared.memory.pool.copy_of(&page).freeze();
    connection.answer_with_data(command_id, page, held_bytes);
}

/// What media know, or did, is told: a command that waited for it is answered.
pub(crate) fn go_on(
    session: &mut Session<'_>,
    connection: &mut Connection,
    slot_index: SlotIndex,
    entry: &SubmissionEntry,
    figures: &PlacementFigures,
) {
    let index = connection.subsystem.expect("I-T11: an I/O queue has a subsystem");
    let now = session.shared.now;
    let subsystem = session.shared.subsystems.get_mut(index);
    let nsid = entry.nsid.get();
    let namespace = subsystem.config.namespaces.get(&nsid);
    let Some(placement) = namespace.and_then(|namespace| namespace.properties.placement) else {
        let status = Status::INVALID_NAMESPACE_OR_FORMAT.do_not_retry();
        return refuse(session, connection, slot_index, entry, status);
    };
    let handles = placement.handles.as_slice();
    assert!(
        is_ours(entry.opcode) && !handles.is_empty(),
        "I-T19: what was put off is a command of placement"
    );
    if entry.opcode == opcode::IO_MANAGEMENT_SEND {
        for target in &figures.partly_written {
            let placed = handles.iter().position(|one| *one == target.handle).unwrap_or(0) as u16;
            let group = target.group.unwrap_or_default().0;
            let pid = PlacementId { group, handle: placed }.encode(group_bits(&placement));
            if keep(subsystem, event_kind::RECLAIM_UNIT_NOT_FULLY_WRITTEN, pid, nsid, *target, now) {
                session.shared.tick_at = session.shared.tick_at.min(now + PATIENCE);
            }
        }
        return answer_page(session, connection, slot_index, entry, Vec::new());
    }
    let status = |(placed, handle): (u16, PlacementHandle)| {
        (0..placement.groups).map(move |group| {
            let pid = PlacementId { group, handle: placed }.encode(group_bits(&placement));
            let available_lbas = figures.available_lbas(&placement, ReclaimGroup(group), handle);
            HandleStatus::new(pid, handle.0, available_lbas)
        })
    };
    let descriptors: Vec<HandleStatus> = (0..).zip(handles.iter().copied()).flat_map(status).collect();
    answer_page(session, connection, slot_index, entry, status_page(&descriptors));
}

/// Where a write goes: to what its placement identifier names, or to the first handle of the namespace.
#[inline]
pub(crate) fn target_of_write(placement: Option<&PlacementProperties>, range: &WireRange) -> PlacementTarget {
    let Some(placement) = placement else { return PlacementTarget::default() };
    let chosen = match range.directive_type {
        DIRECTIVE_DATA_PLACEMENT => target_of(placement, range.directive_specific),
        _ => None,
    };
    let chosen = if mutant!("nvmf: directives are not looked at") { None } else { chosen };
    chosen.unwrap_or(PlacementTarget::handle(placement.handles.first()))
}

/// A write is given to its namespace: if its placement identifier names nothing, that is an event. Whether it is one that is to be made durable.
#[inline]
pub(crate) fn note_write(subsystem: &mut Subsystem, entry: &SubmissionEntry, now: Time) -> bool {
    let range = WireRange::decode(entry);
    range.directive_type == DIRECTIVE_DATA_PLACEMENT
        && note_placed_write(subsystem, entry.nsid.get(), range.directive_specific, now)
}

#[inline(never)]
fn note_placed_write(subsystem: &mut Subsystem, nsid: u32, pid: u16, now: Time) -> bool {
    let namespace = subsystem.config.namespaces.get(&nsid);
    let Some(placement) = namespace.and_then(|namespace| namespace.properties.placement) else {
        return false;
    };
    if target_of(&placement, pid).is_some() {
        return false;
    }
    // Among several groups nobody says here which one it goes to.
    let group = (placement.groups == 1).then_some(ReclaimGroup(0));
    let first = PlacementTarget { handle: placement.handles.first(), group };
    keep(subsystem, event_kind::INVALID_PLACEMENT_IDENTIFIER, pid, nsid, first, now)
}

/// Keeps an event, if its host wants it. Whether it is the first one that is to be made durable.
fn keep(
    subsystem: &mut Subsystem,
    kind: u8,
    pid: u16,
    nsid: u32,
    target: PlacementTarget,
    now: Time,
) -> bool {
    let event = PlacementEvent {
        kind,
        flags: EVENT_HAS_PID | EVENT_HAS_NSID | target.group.map_or(0, |_| EVENT_HAS_LOCATION),
        pid: pid.into(),
        timestamp: subsystem.ocp.monitor.stamp(now).0.0.into(),
        nsid: nsid.into(),
        group: target.group.unwrap_or_default().0.into(),
        handle: target.handle.0.into(),
        ..PlacementEvent::default()
    };
    subsystem.placement.keep(event, now)
}
