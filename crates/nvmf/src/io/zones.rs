//! Commands of the Zoned Namespace Command Set: what they need, what the namespace is asked, and reports in bytes.

mod answer;

pub(crate) use answer::answer_zones;

use super::Plan;
use crate::config::NamespaceConfig;
use diecut_namespace::contract::{
    NamespaceOperation, ReportRequest, ZoneAction, ZoneProperties, ZoneReport, ZoneRequest, ZoneState,
};
use diecut_nvme::zns::{
    ReportHeader, ZA_EXTENSION, ZA_RANDOM_AREA, ZoneAppend, ZoneDescriptor, ZoneManagementReceive,
    ZoneManagementSend, opcode, receive_action, send_action,
};
use diecut_nvme::{Status, SubmissionEntry};
use diecut_units::{Buffer, BufferPool};
use zerocopy::IntoBytes;

/// Whether an opcode is one of this command set alone.
pub(crate) const fn is_of_zones(code: u8) -> bool {
    matches!(code, opcode::ZONE_APPEND | opcode::ZONE_MANAGEMENT_SEND | opcode::ZONE_MANAGEMENT_RECEIVE)
}

/// Checks a command before its data move.
pub(super) fn plan(
    namespace: &NamespaceConfig,
    entry: &SubmissionEntry,
    transfer_bytes_max: u32,
) -> Result<Plan, Status> {
    let invalid = Status::INVALID_FIELD.do_not_retry();
    let properties = &namespace.properties;
    let Some(zones) = &properties.zones else { return Err(Status::INVALID_OPCODE.do_not_retry()) };
    match entry.opcode {
        opcode::ZONE_MANAGEMENT_RECEIVE => {
            let receive = ZoneManagementReceive::decode(entry);
            let is_extended = receive.action == receive_action::EXTENDED_REPORT;
            if receive.action > receive_action::EXTENDED_REPORT
                || receive.filter > 7
                || (is_extended && zones.extension_size_bytes == 0)
                || receive.length_bytes > u64::from(transfer_bytes_max)
                || receive.length_bytes < ReportHeader::SIZE_BYTES as u64
            {
                return Err(invalid);
            }
            if receive.lba >= properties.size_lbas {
                return Err(Status::LBA_OUT_OF_RANGE.do_not_retry());
            }
            Ok(Plan { from_host_bytes: 0, to_host_bytes: receive.length_bytes as u32 })
        }
        opcode::ZONE_MANAGEMENT_SEND => {
            if properties.read_only {
                return Err(Status::NAMESPACE_WRITE_PROTECTED.do_not_retry());
            }
            let send = ZoneManagementSend::decode(entry);
            let extends = send.action == send_action::SET_DESCRIPTOR_EXTENSION;
            let is_known = matches!(send.action, send_action::CLOSE..=send_action::OFFLINE)
                || send.action == send_action::FLUSH_RANDOM_AREA
                || extends;
            if !is_known || (send.select_all && (extends || send.action == send_action::FLUSH_RANDOM_AREA)) {
                return Err(invalid);
            }
            if (send.action == send_action::FLUSH_RANDOM_AREA || send.option) && zones.random_lbas == 0 {
                return Err(invalid);
            }
            if extends && zones.extension_size_bytes == 0 {
                return Err(invalid);
            }
            if !send.select_all {
                if send.lba >= properties.size_lbas {
                    return Err(Status::LBA_OUT_OF_RANGE.do_not_retry());
                }
                if send.action != send_action::FLUSH_RANDOM_AREA && !is_start(send.lba, zones) {
                    return Err(invalid);
                }
            }
            let from_host_bytes = if extends { zones.extension_size_bytes } else { 0 };
            Ok(Plan { from_host_bytes, to_host_bytes: 0 })
        }
        _ => {
            let append = ZoneAppend::decode(entry);
            if append.protection != 0 {
                return Err(Status::INVALID_PROTECTION_INFORMATION.do_not_retry());
            }
            let size = u64::from(append.count) << properties.lba_size_log2;
            if append.storage_tag_check
                || append.directive_type != 0
                || size > u64::from(transfer_bytes_max)
                || append.count > properties.transfer_max_lbas
            {
                return Err(invalid);
            }
            if append.zone_lba >= properties.size_lbas {
                return Err(Status::LBA_OUT_OF_RANGE.do_not_retry());
            }
            if !is_start(append.zone_lba, zones) {
                return Err(invalid);
            }
            if properties.read_only {
                return Err(Status::NAMESPACE_WRITE_PROTECTED.do_not_retry());
            }
            Ok(Plan { from_host_bytes: namespace.transfer_bytes(append.count) as u32, to_host_bytes: 0 })
        }
    }
}

/// A zone is named by its first logical block.
fn is_start(lba: u64, zones: &ZoneProperties) -> bool {
    lba & (zones.size_lbas() - 1) == 0
}

/// The namespace's operation of a command that [`plan`] let through.
pub(super) fn operation(
    namespace: &NamespaceConfig,
    entry: &SubmissionEntry,
    data: Option<Buffer>,
) -> Result<NamespaceOperation, Status> {
    // The namespace may have been exchanged for another one while data came in.
    let Some(zones) = &namespace.properties.zones else {
        return Err(Status::INVALID_OPCODE.do_not_retry());
    };
    let request = match entry.opcode {
        opcode::ZONE_APPEND => {
            let ZoneAppend { zone_lba, count, .. } = ZoneAppend::decode(entry);
            let data = data.expect("I-T7: data that were planned are there");
            ZoneRequest::Append { zone_lba, lba_count: count, data }
        }
        opcode::ZONE_MANAGEMENT_RECEIVE => ZoneRequest::Report(request_of(entry, zones)),
        _ => {
            let send = ZoneManagementSend::decode(entry);
            let act = |action| ZoneRequest::Act { zone_lba: (!send.select_all).then_some(send.lba), action };
            match send.action {
                send_action::CLOSE => act(ZoneAction::Close),
                send_action::FINISH => act(ZoneAction::Finish),
                send_action::OPEN => act(ZoneAction::Open { random: send.option }),
                send_action::RESET => act(ZoneAction::Reset),
                send_action::OFFLINE => act(ZoneAction::Offline),
                send_action::SET_DESCRIPTOR_EXTENSION => {
                    let extension = data.expect("I-T7: data that were planned are there").to_vec();
                    ZoneRequest::Extend { zone_lba: send.lba, extension }
                }
                send_action::FLUSH_RANDOM_AREA => ZoneRequest::Commit { last_lba: send.lba },
                other => unreachable!("I-T7: zone send action {other:#x} was planned"),
            }
        }
    };
    Ok(NamespaceOperation::Zone(request))
}

const FILTERS: [ZoneState; 7] = [
    ZoneState::Empty,
    ZoneState::ImplicitlyOpen,
    ZoneState::ExplicitlyOpen,
    ZoneState::Closed,
    ZoneState::Full,
    ZoneState::ReadOnly,
    ZoneState::Offline,
];

fn request_of(entry: &SubmissionEntry, zones: &ZoneProperties) -> ReportRequest {
    let receive = ZoneManagementReceive::decode(entry);
    let is_extended = receive.action == receive_action::EXTENDED_REPORT;
    let each = ZoneDescriptor::SIZE_BYTES + if is_extended { zones.extension_size_bytes as usize } else { 0 };
    let room = receive.length_bytes as usize - ReportHeader::SIZE_BYTES;
    ReportRequest {
        first_zone: (receive.lba >> zones.size_lbas_log2) as u32,
        state: receive.filter.checked_sub(1).map(|at| FILTERS[usize::from(at)]),
        count_max: (room / each) as u32,
        is_extended,
    }
}

/// A report in the bytes of the specification, as long as the command asked for.
fn bytes_of_report(
    entry: &SubmissionEntry,
    zones: &ZoneProperties,
    report: &ZoneReport,
    pool: &mut BufferPool,
) -> Buffer {
    let receive = ZoneManagementReceive::decode(entry);
    let is_extended = receive.action == receive_action::EXTENDED_REPORT;
    let extension_bytes = if is_extended { zones.extension_size_bytes as usize } else { 0 };
    let mut buffer = pool.take_zeroed(receive.length_bytes as usize);
    let (head, rest) = buffer.split_at_mut(ReportHeader::SIZE_BYTES);
    let count = if receive.partial { report.zones.len() as u64 } else { report.matching };
    head.copy_from_slice(ReportHeader::new(count).as_bytes());
    let places = rest.chunks_exact_mut(ZoneDescriptor::SIZE_BYTES + extension_bytes);
    for (place, zone) in places.zip(&report.zones) {
        let start = u64::from(zone.zone) << zones.size_lbas_log2;
        let attributes = if zone.is_random { ZA_RANDOM_AREA } else { 0 }
            | if zone.extension.is_some() { ZA_EXTENSION } else { 0 };
        // Where nothing can be written the pointer says nothing.
        let pointer = match zone.state {
            ZoneState::Full | ZoneState::ReadOnly | ZoneState::Offline => u64::MAX,
            _ => start + u64::from(zone.written_ius),
        };
        let capacity = u64::from(zones.capacity_lbas);
        let descriptor = ZoneDescriptor::new(zone.state as u8, attributes, capacity, start, pointer);
        let (descriptor_place, extension_place) = place.split_at_mut(ZoneDescriptor::SIZE_BYTES);
        descriptor_place.copy_from_slice(descriptor.as_bytes());
        if let Some(extension) = zone.extension.as_ref().filter(|one| one.len() == extension_place.len()) {
            extension_place.copy_from_slice(extension);
        }
    }
    buffer.freeze()
}

#[cfg(test)]
mod test;
