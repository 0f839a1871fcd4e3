//! Admin commands of placement: log pages, features and directives.

use super::{ENDURANCE_GROUP, events, group_bits, of_subsystem, pids_max};
use crate::controller::{Answer, NSID_MAX, smart_of};
use crate::shared::Shared;
use crate::subsystems::Subsystem;
use diecut_namespace::contract::PlacementProperties;
use diecut_nvme::admin::GetLogPage;
use diecut_nvme::fdp::{
    DIRECTIVE_DATA_PLACEMENT, DIRECTIVE_IDENTIFY, DirectiveCommand, DirectiveParameters, ENABLE_DIRECTIVE,
    EnableDirective, EnduranceGroupLog, EventDescriptor, HANDLE_UNUSED, HANDLE_USED_BY_CONTROLLER,
    HANDLE_USED_BY_HOST, INITIALLY_ISOLATED, PERSISTENTLY_ISOLATED, PlacementConfiguration,
    PlacementEventsFeature, PlacementFeature, RETURN_PARAMETERS, StatisticsLog, configurations_page,
    events_page, usage_page,
};
use diecut_nvme::feature::{
    CAPABILITY_CHANGEABLE, CAPABILITY_NAMESPACE, CAPABILITY_SAVEABLE, GetFeatures, Select, SetFeatures, fid,
};
use diecut_nvme::log_page::{SmartLog, WARNING_READ_ONLY, WARNING_RELIABILITY, WARNING_SPARE, lid};
use diecut_nvme::opcode::admin as opcode;
use diecut_nvme::{SglKind, Status, SubmissionEntry};
use zerocopy::IntoBytes;

const INVALID: Status = Status::INVALID_FIELD.do_not_retry();
const DISABLED: Status = Status::FDP_DISABLED.do_not_retry();
/// LSP of the page of events: those of hosts, else those of the controller.
const EVENTS_OF_HOSTS: u8 = 1 << 0;
/// Event types that one command can name.
const TYPES_MAX: u32 = 255;

/// Data that Set Features of events takes: a list of types, which tools send in a buffer for all there could be.
pub(crate) fn event_types_bytes(entry: &SubmissionEntry) -> u32 {
    u32::from(PlacementEventsFeature::decode(entry).count).max(room_bytes(entry).min(TYPES_MAX))
}

/// Data that Get Features of events gives.
pub(crate) fn room_for_events(entry: &SubmissionEntry) -> u32 {
    let count = u32::from(PlacementEventsFeature::decode(entry).count);
    (count * EventDescriptor::SIZE_BYTES as u32).min(room_bytes(entry))
}

/// Data that Directive Receive gives.
///
/// # Errors
/// If it is more than one transfer.
pub(crate) fn directive_receive_bytes(
    entry: &SubmissionEntry,
    transfer_bytes_max: u32,
) -> Result<u32, Status> {
    let length_bytes = DirectiveCommand::decode(entry).length_bytes;
    if length_bytes > u64::from(transfer_bytes_max) {
        return Err(INVALID);
    }
    if length_bytes > u64::from(room_bytes(entry)) {
        return Err(Status::DATA_SGL_LENGTH_INVALID.do_not_retry());
    }
    Ok(length_bytes as u32)
}

fn room_bytes(entry: &SubmissionEntry) -> u32 {
    match entry.sgl.kind() {
        SglKind::InCapsule { length_bytes, .. } | SglKind::Transport { length_bytes } => length_bytes,
        SglKind::Other(_) => 0,
    }
}

/// Serves an admin command that is about placement; nothing if it is not. Which events are kept is set in `keeping`.
pub(crate) fn execute(shared: &mut Shared, number: u32, entry: &SubmissionEntry) -> Option<Answer> {
    let index = shared.associations.kept(number).subsystem?;
    let now = shared.now;
    let errors = shared.associations.kept(number).errors.count;
    let subsystem = shared.subsystems.get_mut(index);
    let outcome = match entry.opcode {
        opcode::GET_LOG_PAGE => {
            let log = GetLogPage::decode(entry);
            let is_placed = of_subsystem(&subsystem.config).is_some();
            match log.page {
                lid::ENDURANCE_GROUP if is_placed => {}
                lid::FDP_CONFIGURATIONS..=lid::FDP_EVENTS => {}
                _ => return None,
            }
            let smart = smart_of(&subsystem.health, subsystem.traffic, now);
            let smart = SmartLog { error_log_entries: u128::from(errors).into(), ..smart };
            page(subsystem, &log, &smart).and_then(|page| part(page, &log))
        }
        opcode::SET_FEATURES => {
            of_subsystem(&subsystem.config)?;
            match SetFeatures::decode(entry) {
                SetFeatures { feature: fid::DATA_PLACEMENT, .. } => set_placement(entry),
                _ => return None,
            }
        }
        opcode::GET_FEATURES => {
            of_subsystem(&subsystem.config)?;
            let get = GetFeatures::decode(entry);
            match get.feature {
                fid::DATA_PLACEMENT => get_placement(entry, get.select),
                fid::DATA_PLACEMENT_EVENTS => get_events(subsystem, entry, get.select),
                _ => return None,
            }
        }
        opcode::DIRECTIVE_RECEIVE => {
            of_subsystem(&subsystem.config)?;
            directives(subsystem, entry)
        }
        opcode::DIRECTIVE_SEND => {
            of_subsystem(&subsystem.config)?;
            switch_directive(subsystem, entry)
        }
        _ => return None,
    };
    Some(outcome.unwrap_or_else(Answer::Fail))
}

/// What a host asked for of a page.
fn part(page: Vec<u8>, log: &GetLogPage) -> Result<Answer, Status> {
    if log.offset_is_index || !log.offset.is_multiple_of(4) || log.offset > page.len() as u64 {
        return Err(INVALID);
    }
    assert!(page.len().is_multiple_of(4), "I-T15: pages are whole dwords");
    let mut part = page[log.offset as usize..].to_vec();
    part.resize(log.length_bytes as usize, 0);
    Ok(Answer::Data(part))
}

fn page(subsystem: &Subsystem, log: &GetLogPage, smart: &SmartLog) -> Result<Vec<u8>, Status> {
    let placement = of_subsystem(&subsystem.config).ok_or(DISABLED)?;
    if log.specific_id != ENDURANCE_GROUP {
        return Err(INVALID);
    }
    let figures = &subsystem.placement.figures;
    Ok(match log.page {
        lid::ENDURANCE_GROUP => group_page(subsystem, smart).as_bytes().to_vec(),
        lid::FDP_CONFIGURATIONS => configurations_page(&[configuration(subsystem, placement)]),
        lid::RECLAIM_UNIT_HANDLE_USAGE => usage_page(&usage(subsystem, placement)),
        lid::FDP_STATISTICS => StatisticsLog::new(
            figures.host_written_bytes.into(),
            figures.media_written_bytes.into(),
            figures.erased_bytes.into(),
        )
        .as_bytes()
        .to_vec(),
        _ if log.specific & EVENTS_OF_HOSTS != 0 => events_page(subsystem.placement.events()),
        // The controller has none to tell.
        _ => events_page([]),
    })
}

fn configuration(subsystem: &Subsystem, placement: &PlacementProperties) -> PlacementConfiguration {
    let kind = if placement.is_persistent { PERSISTENTLY_ISOLATED } else { INITIALLY_ISOLATED };
    let namespaces = subsystem.config.namespaces.values();
    PlacementConfiguration {
        rgif: group_bits(placement),
        volatile_cache: namespaces.into_iter().any(|namespace| namespace.properties.volatile_cache),
        valid: true,
        groups: placement.groups.into(),
        pids_less_one: pids_max(placement).saturating_sub(1) as u16,
        namespaces: NSID_MAX,
        unit_bytes: placement.unit_bytes,
        unit_seconds_max: 0,
        handles: vec![kind; usize::from(placement.vssd_handles)],
    }
}

/// Which namespaces of the subsystem have each handle: chosen by whoever made them, or given to them.
fn usage(subsystem: &Subsystem, placement: &PlacementProperties) -> Vec<u8> {
    let mut attributes = vec![HANDLE_UNUSED; usize::from(placement.vssd_handles)];
    assert!(!attributes.is_empty(), "I-N4: a vSSD with placement has a handle");
    let own = subsystem.config.namespaces.values().filter_map(|one| one.properties.placement.as_ref());
    for one in own {
        let attribute = if one.is_given { HANDLE_USED_BY_CONTROLLER } else { HANDLE_USED_BY_HOST };
        for handle in one.handles.as_slice() {
            let Some(place) = attributes.get_mut(usize::from(handle.0)) else { continue };
            if *place != HANDLE_USED_BY_HOST {
                *place = attribute;
            }
        }
    }
    attributes
}

fn group_page(subsystem: &Subsystem, smart: &SmartLog) -> EnduranceGroupLog {
    let units = |bytes: u64| u128::from(bytes).div_ceil(EnduranceGroupLog::UNIT_BYTES).into();
    let is_spare_low = smart.available_spare_percent < smart.spare_threshold_percent;
    let health = &subsystem.health;
    let warnings = [(WARNING_SPARE, is_spare_low), (WARNING_READ_ONLY, health.read_only)];
    let warning = warnings.into_iter().filter(|(_, is_there)| *is_there).fold(0, |all, (bit, _)| all | bit);
    EnduranceGroupLog {
        critical_warning: warning & (WARNING_SPARE | WARNING_RELIABILITY | WARNING_READ_ONLY),
        available_spare_percent: smart.available_spare_percent,
        spare_threshold_percent: smart.spare_threshold_percent,
        percentage_used: smart.percentage_used,
        data_units_read: units(subsystem.traffic.read_bytes),
        data_units_written: units(subsystem.placement.figures.host_written_bytes),
        media_units_written: units(subsystem.placement.figures.media_written_bytes),
        host_read_commands: smart.host_read_commands,
        host_write_commands: smart.host_write_commands,
        media_errors: smart.media_errors,
        error_log_entries: smart.error_log_entries,
        ..EnduranceGroupLog::default()
    }
}

/// Placement stays as it is: it could change only while the group has no namespace, and without one it is not there.
fn set_placement(entry: &SubmissionEntry) -> Result<Answer, Status> {
    let feature = PlacementFeature::decode(entry);
    match feature.group {
        ENDURANCE_GROUP if feature.enabled && feature.configuration == 0 => Ok(Answer::Result(0)),
        ENDURANCE_GROUP => Err(Status::COMMAND_SEQUENCE_ERROR.do_not_retry()),
        _ => Err(INVALID),
    }
}

fn get_placement(entry: &SubmissionEntry, select: Select) -> Result<Answer, Status> {
    let group = PlacementFeature::decode(entry).group;
    match select {
        Select::Capabilities => Ok(Answer::Result(CAPABILITY_SAVEABLE.into())),
        Select::Reserved(_) => Err(INVALID),
        _ if group != ENDURANCE_GROUP => Err(INVALID),
        _ => {
            let feature = PlacementFeature { group, enabled: true, configuration: 0 };
            Ok(Answer::Result(feature.value().into()))
        }
    }
}

/// Placement of the namespace that a command names.
pub(super) fn of_namespace(subsystem: &Subsystem, nsid: u32) -> Result<PlacementProperties, Status> {
    let namespace = subsystem.config.namespaces.get(&nsid);
    let namespace = namespace.ok_or(Status::INVALID_NAMESPACE_OR_FORMAT.do_not_retry())?;
    namespace.properties.placement.ok_or(DISABLED)
}

fn get_events(subsystem: &Subsystem, entry: &SubmissionEntry, select: Select) -> Result<Answer, Status> {
    let is_current = match select {
        Select::Current => true,
        Select::Default | Select::Saved => false,
        Select::Capabilities => {
            return Ok(Answer::Result((CAPABILITY_CHANGEABLE | CAPABILITY_NAMESPACE).into()));
        }
        Select::Reserved(_) => return Err(INVALID),
    };
    let placement = of_namespace(subsystem, entry.nsid.get())?;
    let feature = PlacementEventsFeature::decode(entry);
    let handle = placement.handles.get(feature.handle).ok_or(INVALID)?;
    let told = events::KINDS.iter().take(feature.count.into());
    let told = told
        .map(|kind| EventDescriptor::new(*kind, is_current && subsystem.placement.is_enabled(handle, *kind)));
    let told: Vec<EventDescriptor> = told.collect();
    let mut data = told.as_bytes().to_vec();
    data.resize(room_for_events(entry) as usize, 0);
    let count = u64::try_from(told.len()).expect("few types");
    assert!(told.len() <= usize::from(feature.count), "I-T15: a host is told what it has room for");
    if data.is_empty() { Ok(Answer::Result(count)) } else { Ok(Answer::DataWith(data, count)) }
}

fn directives(subsystem: &Subsystem, entry: &SubmissionEntry) -> Result<Answer, Status> {
    let directive = DirectiveCommand::decode(entry);
    let namespace = subsystem.config.namespaces.get(&entry.nsid.get());
    let namespace = namespace.ok_or(Status::INVALID_NAMESPACE_OR_FORMAT.do_not_retry())?;
    if (directive.kind, directive.operation) != (DIRECTIVE_IDENTIFY, RETURN_PARAMETERS) {
        return Err(INVALID);
    }
    let mut parameters = DirectiveParameters::default();
    parameters.add_permanent(DIRECTIVE_IDENTIFY);
    if namespace.properties.placement.is_some() {
        parameters.add_permanent(DIRECTIVE_DATA_PLACEMENT);
    }
    let mut data = parameters.as_bytes().to_vec();
    data.resize(directive.length_bytes as usize, 0);
    Ok(Answer::Data(data))
}

/// The directive of placement is on where a namespace has handles, and stays so.
fn switch_directive(subsystem: &Subsystem, entry: &SubmissionEntry) -> Result<Answer, Status> {
    of_namespace(subsystem, entry.nsid.get())?;
    let directive = DirectiveCommand::decode(entry);
    let switch = EnableDirective::decode(entry);
    let is_switch = (directive.kind, directive.operation) == (DIRECTIVE_IDENTIFY, ENABLE_DIRECTIVE);
    if is_switch && switch.enable && switch.kind == DIRECTIVE_DATA_PLACEMENT {
        return Ok(Answer::Result(0));
    }
    Err(INVALID)
}
