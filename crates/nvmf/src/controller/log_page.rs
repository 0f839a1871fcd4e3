use super::access::PathAccess;
use super::identify::ANA_GROUP;
use super::warning::{SPARE_THRESHOLD_PERCENT, critical_warnings};
use super::{Answer, Association, Notice, Surroundings, chunks, feature};
use crate::config::Health;
use crate::discovery;
use crate::format;
use crate::io::offer;
use crate::placement;
use crate::sanitize;
use crate::subsystems::Traffic;
use diecut_nvme::admin::GetLogPage;
use diecut_nvme::identify::CSI_NVM;
use diecut_nvme::log_page::{
    ANA_GROUPS_ONLY, AnaGroup, AnaHeader, CHANGED_NAMESPACES_LENGTH, CommandEffects,
    EFFECT_LOGICAL_BLOCK_CONTENT, EFFECT_SCOPE_CONTROLLER, EFFECT_SCOPE_NAMESPACE, EFFECT_SCOPE_SUBSYSTEM,
    EFFECT_SUPPORTED, FeatureEffects, FirmwareSlots, SmartLog, lid,
};
use diecut_nvme::ocp;
use diecut_nvme::opcode::{self, admin, io};
use diecut_nvme::zns::{self, CSI_ZONED, ChangedZoneList};
use diecut_nvme::{NSID_ALL, Status, SubmissionEntry, ascii_padded, openchannel};
use diecut_units::Time;
use zerocopy::IntoBytes;

/// Get Log Page (Base 2.0 section 5.16).
pub(crate) fn log_page(
    association: &mut Association,
    entry: &SubmissionEntry,
    around: &Surroundings<'_>,
) -> Answer {
    let log = GetLogPage::decode(entry);
    if log.offset_is_index || !log.offset.is_multiple_of(4) {
        return Answer::Fail(Status::INVALID_FIELD.do_not_retry());
    }
    let page = match (log.page, association.is_discovery()) {
        (lid::DISCOVERY, true) => {
            if !log.retain_event {
                association.events.discovery = Notice::Quiet;
            }
            discovery::log_page(
                around.config,
                around.all_subsystems.iter().map(|(_, subsystem)| &subsystem.config),
                association.host.as_ref(),
                association.path.local(),
                around.all_subsystems.generation,
            )
        }
        (lid::SUPPORTED_PAGES, _) => supported_pages(association, around),
        (lid::FEATURE_EFFECTS, false) => feature::effects(around).as_bytes().to_vec(),
        // No command of the management interface is there.
        (lid::MANAGEMENT_EFFECTS, false) => FeatureEffects::default().as_bytes().to_vec(),
        (lid::ERROR_INFORMATION, false) => {
            association.errors.entries.iter().flat_map(|error| error.as_bytes().to_vec()).collect()
        }
        (lid::SMART, false) => {
            if let Some(status) = not_of_all_namespaces(entry.nsid.get(), around) {
                return Answer::Fail(status);
            }
            if !log.retain_event {
                association.events.warnings.read();
            }
            smart(association, around).as_bytes().to_vec()
        }
        (lid::ASYMMETRIC_NAMESPACE_ACCESS, false) => access(&log, &mut association.path, around),
        (lid::RESERVATION, false) => {
            association.events.reservations.read(log.retain_event).as_bytes().to_vec()
        }
        (lid::SANITIZE_STATUS, false) if has_sanitize(association, around) => {
            sanitize_status(association, log.retain_event, around)
        }
        (zns::LID_CHANGED_ZONES, false) if has_zones(around) => {
            match changed_zones(association, &log, entry.nsid.get(), around) {
                Ok(page) => page,
                Err(status) => return Answer::Fail(status),
            }
        }
        (openchannel::lid::CHUNK_NOTIFICATION, false) if chunks::are_there(around) => {
            association.events.chunks.read(log.offset, log.length_bytes, log.retain_event)
        }
        (lid::FIRMWARE_SLOT, false) => {
            FirmwareSlots::single(ascii_padded(&around.config.firmware)).as_bytes().to_vec()
        }
        (lid::CHANGED_NAMESPACES, false) => {
            let mut page = vec![0; CHANGED_NAMESPACES_LENGTH * 4];
            for (slot, nsid) in page.chunks_exact_mut(4).zip(&association.events.changed_namespaces) {
                slot.copy_from_slice(&nsid.to_le_bytes());
            }
            if !log.retain_event {
                association.events.changed_namespaces.clear();
                association.events.namespaces = Notice::Quiet;
            }
            page
        }
        (lid::COMMAND_EFFECTS, false) => match log.command_set {
            CSI_NVM | CSI_ZONED => effects(log.command_set, around).as_bytes().to_vec(),
            _ => return Answer::Fail(Status::INVALID_FIELD.do_not_retry()),
        },
        _ => return Answer::Fail(Status::INVALID_LOG_PAGE.do_not_retry()),
    };
    if log.offset > page.len() as u64 {
        return Answer::Fail(Status::INVALID_FIELD.do_not_retry());
    }
    assert!(page.len().is_multiple_of(4), "I-T15: pages are whole dwords");
    let mut data = page[log.offset as usize..].to_vec();
    data.resize(log.length_bytes as usize, 0);
    Answer::Data(data)
}

/// Pages where namespaces have reclaim unit handles.
const PLACEMENT_PAGES: &[u8] = &[
    lid::ENDURANCE_GROUP,
    lid::FDP_CONFIGURATIONS,
    lid::RECLAIM_UNIT_HANDLE_USAGE,
    lid::FDP_STATISTICS,
    lid::FDP_EVENTS,
];
const DISCOVERY_PAGES: &[u8] = &[lid::SUPPORTED_PAGES, lid::DISCOVERY];
const PAGES: &[u8] = &[
    lid::SUPPORTED_PAGES,
    lid::ERROR_INFORMATION,
    lid::SMART,
    lid::FIRMWARE_SLOT,
    lid::CHANGED_NAMESPACES,
    lid::COMMAND_EFFECTS,
    lid::TELEMETRY_HOST,
    lid::TELEMETRY_CONTROLLER,
    lid::FEATURE_EFFECTS,
    lid::MANAGEMENT_EFFECTS,
    lid::ASYMMETRIC_NAMESPACE_ACCESS,
    lid::RESERVATION,
    ocp::lid::SMART_EXTENDED,
    ocp::lid::ERROR_RECOVERY,
    ocp::lid::FIRMWARE_ACTIVATION_HISTORY,
    ocp::lid::LATENCY_MONITOR,
    ocp::lid::DEVICE_CAPABILITIES,
    ocp::lid::UNSUPPORTED_REQUIREMENTS,
    ocp::lid::TELEMETRY_STRINGS,
    ocp::lid::LATENCY_DEBUG,
];

/// Which pages there are.
fn supported_pages(association: &Association, around: &Surroundings<'_>) -> Vec<u8> {
    let mut page = vec![0; 1024];
    let pages = if association.is_discovery() { DISCOVERY_PAGES } else { PAGES };
    let placed = if has_placement(around) { PLACEMENT_PAGES } else { &[] };
    for &id in pages.iter().chain(placed) {
        page[usize::from(id) * 4] = 1; // LSUPP
    }
    page[usize::from(zns::LID_CHANGED_ZONES) * 4] = has_zones(around).into();
    page[usize::from(openchannel::lid::CHUNK_NOTIFICATION) * 4] = chunks::are_there(around).into();
    page[usize::from(lid::SANITIZE_STATUS) * 4] = has_sanitize(association, around).into();
    page
}

/// Whether Sanitize is offered, or there was one.
fn has_sanitize(association: &Association, around: &Surroundings<'_>) -> bool {
    let is_known = |index: u32| around.all_subsystems.get(index).sanitizing.is_known();
    around.subsystem.is_some_and(sanitize::is_offered) || association.subsystem.is_some_and(is_known)
}

fn sanitize_status(association: &mut Association, retain_event: bool, around: &Surroundings<'_>) -> Vec<u8> {
    if !retain_event {
        association.events.sanitize = Notice::Quiet;
    }
    let index = association.subsystem.expect("I-T15: who reads of a sanitize operation has a subsystem");
    around.all_subsystems.get(index).sanitizing.page().as_bytes().to_vec()
}

fn has_zones(around: &Surroundings<'_>) -> bool {
    let mut namespaces = around.subsystem.into_iter().flat_map(|subsystem| subsystem.namespaces.values());
    namespaces.any(|namespace| namespace.properties.zones.is_some())
}

/// The changed zone list of a namespace (ZNS 1.1 section 4.1.4.1).
fn changed_zones(
    association: &mut Association,
    log: &GetLogPage,
    nsid: u32,
    around: &Surroundings<'_>,
) -> Result<Vec<u8>, Status> {
    let namespace = around.subsystem.and_then(|subsystem| subsystem.namespaces.get(&nsid));
    let Some(namespace) = namespace else { return Err(Status::INVALID_NAMESPACE_OR_FORMAT.do_not_retry()) };
    let Some(zones) = namespace.properties.zones else { return Err(Status::INVALID_FIELD.do_not_retry()) };
    let changed = association.events.zones.read(nsid, log.retain_event);
    let starts = changed.zones().map(|numbers| {
        numbers.iter().map(|zone| u64::from(*zone) << zones.size_lbas_log2).collect::<Vec<u64>>()
    });
    Ok(ChangedZoneList::new(starts.as_deref()).as_bytes().to_vec())
}

/// A page that concerns the whole subsystem is not one of a single namespace (Base 2.0 figure 202; LPA bit 0 is 0).
fn not_of_all_namespaces(nsid: u32, around: &Surroundings<'_>) -> Option<Status> {
    let is_active = around.subsystem.is_some_and(|subsystem| subsystem.namespaces.contains_key(&nsid));
    match nsid {
        0 | NSID_ALL => None,
        _ if is_active => Some(Status::INVALID_FIELD.do_not_retry()),
        _ => Some(Status::INVALID_NAMESPACE_OR_FORMAT.do_not_retry()),
    }
}

/// The path to namespaces: one group of all of them.
fn access(log: &GetLogPage, path: &mut PathAccess, around: &Surroundings<'_>) -> Vec<u8> {
    if !log.retain_event {
        path.read();
    }
    let all = around.subsystem.into_iter().flat_map(|subsystem| subsystem.namespaces.keys());
    let ids: Vec<u32> = all.filter(|_| log.specific & ANA_GROUPS_ONLY == 0).copied().collect();
    let head = AnaHeader { change_count: path.changes().into(), groups: 1.into(), ..AnaHeader::default() };
    let group = AnaGroup {
        id: ANA_GROUP.into(),
        namespaces: (ids.len() as u32).into(),
        change_count: path.changes().into(),
        state: path.state() as u8,
        ..AnaGroup::default()
    };
    let mut page = [head.as_bytes(), group.as_bytes()].concat();
    page.extend(ids.into_iter().flat_map(u32::to_le_bytes));
    page
}

fn smart(association: &Association, around: &Surroundings<'_>) -> SmartLog {
    SmartLog {
        critical_warning: critical_warnings(association.settings.temperature, &around.health),
        error_log_entries: u128::from(association.errors.count).into(),
        ..smart_of(&around.health, around.traffic, around.now)
    }
}

/// What the page says that is the same for all controllers of a subsystem.
pub(crate) fn smart_of(health: &Health, traffic: Traffic, now: Time) -> SmartLog {
    // Thousands of 512 bytes, rounded up (Base 2.0 figure 207).
    let units = |bytes: u64| u128::from(bytes.div_ceil(512_000));
    SmartLog {
        temperature_kelvin: health.temperature_kelvin.into(),
        available_spare_percent: health.available_spare_percent,
        spare_threshold_percent: SPARE_THRESHOLD_PERCENT,
        percentage_used: health.percentage_used,
        data_units_read: units(traffic.read_bytes).into(),
        data_units_written: units(traffic.written_bytes).into(),
        host_read_commands: u128::from(traffic.read_commands).into(),
        host_write_commands: u128::from(traffic.write_commands).into(),
        controller_busy_minutes: u128::from(traffic.busy.minutes(now)).into(),
        power_cycles: u128::from(health.power_cycles).into(),
        power_on_hours: u128::from(now.0 / 3_600_000_000_000).into(),
        unsafe_shutdowns: u128::from(health.unsafe_shutdowns).into(),
        media_errors: u128::from(health.media_errors).into(),
        ..SmartLog::default()
    }
}

fn has_placement(around: &Surroundings<'_>) -> bool {
    around.subsystem.and_then(placement::of_subsystem).is_some()
}

/// Commands of a command set, besides the admin commands; and those of placement and chunks, if namespaces have them.
fn effects(command_set: u8, around: &Surroundings<'_>) -> CommandEffects {
    let mut effects = CommandEffects::default();
    for code in [
        admin::GET_LOG_PAGE,
        admin::IDENTIFY,
        admin::ABORT,
        admin::SET_FEATURES,
        admin::GET_FEATURES,
        admin::ASYNCHRONOUS_EVENT_REQUEST,
        admin::KEEP_ALIVE,
        opcode::FABRICS,
    ] {
        effects.admin[usize::from(code)] = (EFFECT_SUPPORTED | EFFECT_SCOPE_CONTROLLER).into();
    }
    let reservations =
        [io::RESERVATION_REGISTER, io::RESERVATION_REPORT, io::RESERVATION_ACQUIRE, io::RESERVATION_RELEASE];
    let is_offered =
        |code: &u8| around.subsystem.is_some_and(|one| offer::is_offered(one, |it| offer::takes(it, *code)));
    let plain = [io::FLUSH, io::READ, io::COMPARE, io::VERIFY].into_iter().chain(reservations);
    for code in plain.filter(is_offered) {
        effects.io[usize::from(code)] = (EFFECT_SUPPORTED | EFFECT_SCOPE_NAMESPACE).into();
    }
    let changing = [io::WRITE, io::WRITE_UNCORRECTABLE, io::WRITE_ZEROES, io::DATASET_MANAGEMENT, io::COPY];
    for code in changing.into_iter().filter(is_offered) {
        effects.io[usize::from(code)] =
            (EFFECT_SUPPORTED | EFFECT_LOGICAL_BLOCK_CONTENT | EFFECT_SCOPE_NAMESPACE).into();
    }
    if has_placement(around) {
        for code in [admin::DIRECTIVE_SEND, admin::DIRECTIVE_RECEIVE] {
            effects.admin[usize::from(code)] = (EFFECT_SUPPORTED | EFFECT_SCOPE_NAMESPACE).into();
        }
        for code in [io::IO_MANAGEMENT_RECEIVE, io::IO_MANAGEMENT_SEND] {
            effects.io[usize::from(code)] = (EFFECT_SUPPORTED | EFFECT_SCOPE_NAMESPACE).into();
        }
    }
    if command_set == CSI_ZONED {
        effects.io[usize::from(io::WRITE_UNCORRECTABLE)] = 0.into();
        for code in [zns::opcode::ZONE_APPEND, zns::opcode::ZONE_MANAGEMENT_SEND] {
            effects.io[usize::from(code)] =
                (EFFECT_SUPPORTED | EFFECT_LOGICAL_BLOCK_CONTENT | EFFECT_SCOPE_NAMESPACE).into();
        }
        effects.io[usize::from(zns::opcode::ZONE_MANAGEMENT_RECEIVE)] =
            (EFFECT_SUPPORTED | EFFECT_SCOPE_NAMESPACE).into();
    }
    if around.subsystem.is_some_and(|one| offer::is_offered(one, format::takes)) {
        effects.admin[usize::from(admin::FORMAT_NVM)] =
            (EFFECT_SUPPORTED | EFFECT_LOGICAL_BLOCK_CONTENT | EFFECT_SCOPE_NAMESPACE).into();
    }
    if around.subsystem.is_some_and(sanitize::is_offered) {
        effects.admin[usize::from(admin::SANITIZE)] =
            (EFFECT_SUPPORTED | EFFECT_LOGICAL_BLOCK_CONTENT | EFFECT_SCOPE_SUBSYSTEM).into();
    }
    chunks::tell_commands(command_set, around, &mut effects);
    effects
}
