use super::warning::KNOWN_WARNINGS;
use super::{Answer, Association, Surroundings, TemperatureRange, chunks};
use crate::placement;
use diecut_nvme::feature::{
    BEHAVIOR_ADVANCED_RETRY, CAPABILITY_CHANGEABLE, CAPABILITY_NAMESPACE, EVENT_ACCESS_CHANGE,
    EVENT_DISCOVERY_CHANGE, EVENT_NAMESPACE_ATTRIBUTE, EVENT_TELEMETRY, GetFeatures,
    HOST_BEHAVIOR_SIZE_BYTES, Select, SetFeatures, TemperatureThreshold, fid, number_of_queues,
};
use diecut_nvme::log_page::{
    FEATURE_SCOPE_CONTROLLER, FEATURE_SCOPE_ENDURANCE_GROUP, FEATURE_SCOPE_NAMESPACE,
    FEATURE_SCOPE_SUBSYSTEM, FEATURE_SUPPORTED, FeatureEffects,
};
use diecut_nvme::ocp::{self, LatencyConfiguration};
use diecut_nvme::zns::EVENT_ZONE_DESCRIPTOR_CHANGED;
use diecut_nvme::{NSID_ALL, SglKind, Status, SubmissionEntry};
use diecut_units::mutant;

/// THSEL of a temperature threshold.
const OVER: u8 = 0;
const UNDER: u8 = 1;

/// What there is to know of a feature beside its value.
#[derive(Clone, Copy)]
struct Trait {
    id: u8,
    changeable: bool,
    scope: u32,
    /// A controller of discovery has it, too.
    of_discovery: bool,
}

impl Trait {
    /// What can be done with it, as Get Features tells it.
    fn capabilities(&self) -> u32 {
        let changeable = self.changeable && !mutant!("nvmf: capabilities of features not told");
        let is_specific = self.scope == FEATURE_SCOPE_NAMESPACE;
        u32::from(changeable) * CAPABILITY_CHANGEABLE + u32::from(is_specific) * CAPABILITY_NAMESPACE
    }
}

/// A feature that a host can set.
const fn set_by_host(id: u8) -> Trait {
    Trait { id, changeable: true, scope: FEATURE_SCOPE_CONTROLLER, of_discovery: false }
}

/// A feature with one value.
const fn fixed(id: u8) -> Trait {
    Trait { changeable: false, ..set_by_host(id) }
}

/// All features (Base 2.0 figure 317).
const TRAITS: &[Trait] = &[
    fixed(fid::ARBITRATION),
    fixed(fid::POWER_MANAGEMENT),
    set_by_host(fid::TEMPERATURE_THRESHOLD),
    Trait { scope: FEATURE_SCOPE_NAMESPACE, ..fixed(fid::ERROR_RECOVERY) },
    fixed(fid::VOLATILE_WRITE_CACHE),
    fixed(fid::NUMBER_OF_QUEUES),
    fixed(fid::WRITE_ATOMICITY),
    Trait { of_discovery: true, ..set_by_host(fid::ASYNCHRONOUS_EVENT_CONFIGURATION) },
    set_by_host(fid::TIMESTAMP),
    Trait { of_discovery: true, ..set_by_host(fid::KEEP_ALIVE_TIMER) },
    set_by_host(fid::HOST_BEHAVIOR),
    fixed(fid::COMMAND_SET_PROFILE),
    Trait { of_discovery: true, ..fixed(fid::HOST_IDENTIFIER) },
    Trait { scope: FEATURE_SCOPE_NAMESPACE, ..set_by_host(fid::RESERVATION_NOTIFICATION_MASK) },
    Trait { scope: FEATURE_SCOPE_NAMESPACE, ..set_by_host(fid::RESERVATION_PERSISTENCE) },
];

const _: () = {
    let mut at = 1;
    while at < TRAITS.len() {
        assert!(TRAITS[at - 1].id < TRAITS[at].id, "each feature is there once");
        at += 1;
    }
};

/// A feature, if this controller has it. Without a volatile cache nothing is there to be switched (Base 2.0 section 5.27.1.4).
fn trait_of(id: u8, discovery: bool, around: &Surroundings<'_>) -> Option<Trait> {
    let found = TRAITS.iter().copied().find(|one| one.id == id)?;
    let is_there = id != fid::VOLATILE_WRITE_CACHE || has_cache(around);
    (is_there && (found.of_discovery || !discovery)).then_some(found)
}

/// The page of features and their effects.
pub(super) fn effects(around: &Surroundings<'_>) -> FeatureEffects {
    let mut page = FeatureEffects::default();
    for one in TRAITS.iter().filter(|one| trait_of(one.id, false, around).is_some()) {
        page.features[usize::from(one.id)] = (FEATURE_SUPPORTED | one.scope).into();
    }
    let monitor = usize::from(ocp::fid::LATENCY_MONITOR);
    page.features[monitor] = (FEATURE_SUPPORTED | FEATURE_SCOPE_SUBSYSTEM).into();
    if around.subsystem.and_then(placement::of_subsystem).is_some() {
        let group = FEATURE_SUPPORTED | FEATURE_SCOPE_ENDURANCE_GROUP;
        page.features[usize::from(fid::DATA_PLACEMENT)] = group.into();
        let namespace = FEATURE_SUPPORTED | FEATURE_SCOPE_NAMESPACE;
        page.features[usize::from(fid::DATA_PLACEMENT_EVENTS)] = namespace.into();
    }
    chunks::tell_features(around, &mut page);
    page
}

/// Data that Set Features of this feature takes.
pub(crate) fn host_data_bytes(entry: &SubmissionEntry) -> u32 {
    match SetFeatures::decode(entry).feature {
        ocp::fid::LATENCY_MONITOR => monitor_bytes(entry),
        fid::DATA_PLACEMENT_EVENTS => placement::event_types_bytes(entry),
        feature => data_bytes(feature),
    }
}

/// Bytes that a host sends or gets with the latency monitor: one that wants none of them gets none.
pub(crate) fn monitor_bytes(entry: &SubmissionEntry) -> u32 {
    let room_bytes = match entry.sgl.kind() {
        SglKind::InCapsule { length_bytes, .. } | SglKind::Transport { length_bytes } => length_bytes,
        SglKind::Other(_) => 0,
    };
    room_bytes.min(LatencyConfiguration::SIZE_BYTES as u32)
}

/// Data that Get Features of this feature gives.
pub(crate) fn host_buffer_bytes(entry: &SubmissionEntry) -> u32 {
    let get = GetFeatures::decode(entry);
    match get.select {
        Select::Current | Select::Default | Select::Saved => match get.feature {
            // Half of it is asked for by hosts that do not know of the other half, and refused with a better reason than the length.
            fid::HOST_IDENTIFIER if entry.cdw11.get() & 1 == 0 => 0,
            ocp::fid::LATENCY_MONITOR => monitor_bytes(entry),
            fid::DATA_PLACEMENT_EVENTS => placement::room_for_events(entry),
            feature => data_bytes(feature),
        },
        Select::Capabilities | Select::Reserved(_) => 0,
    }
}

fn data_bytes(feature: u8) -> u32 {
    match feature {
        fid::TIMESTAMP => 8,
        fid::HOST_BEHAVIOR => HOST_BEHAVIOR_SIZE_BYTES as u32,
        fid::HOST_IDENTIFIER => 16,
        _ => 0,
    }
}

const INVALID_FIELD: Answer = Answer::Fail(Status::INVALID_FIELD.do_not_retry());

/// Set Features (Base 2.0 section 5.27).
pub(crate) fn set(
    association: &mut Association,
    entry: &SubmissionEntry,
    data: Option<&[u8]>,
    around: &Surroundings<'_>,
) -> Answer {
    let set = SetFeatures::decode(entry);
    let discovery = association.is_discovery();
    let Some(known) = trait_of(set.feature, discovery, around) else { return INVALID_FIELD };
    if set.save {
        return Answer::Fail(Status::FEATURE_NOT_SAVEABLE.do_not_retry());
    }
    if let Some(status) = wrong_scope(known, entry.nsid.get(), around) {
        return Answer::Fail(status);
    }
    let answer = match set.feature {
        fid::RESERVATION_NOTIFICATION_MASK => set_mask(association, entry.nsid.get(), set.value, around),
        _ => set_value(association, set, data, around),
    };
    if matches!(set.feature, fid::TEMPERATURE_THRESHOLD | fid::ASYNCHRONOUS_EVENT_CONFIGURATION) && !discovery
    {
        association.look_at_health(&around.health);
    }
    answer
}

/// Why a feature cannot be set for the namespace of a command.
fn wrong_scope(known: Trait, nsid: u32, around: &Surroundings<'_>) -> Option<Status> {
    let is_active = around.subsystem.is_some_and(|subsystem| subsystem.namespaces.contains_key(&nsid));
    match nsid {
        0 | NSID_ALL => None,
        _ if !is_active => Some(Status::INVALID_NAMESPACE_OR_FORMAT.do_not_retry()),
        _ if known.scope == FEATURE_SCOPE_NAMESPACE => None,
        _ => Some(Status::FEATURE_NOT_NAMESPACE_SPECIFIC.do_not_retry()),
    }
}

fn set_value(
    association: &mut Association,
    set: SetFeatures,
    data: Option<&[u8]>,
    around: &Surroundings<'_>,
) -> Answer {
    let discovery = association.is_discovery();
    match set.feature {
        fid::NUMBER_OF_QUEUES => {
            let (submission, completion) = (set.value as u16, (set.value >> 16) as u16);
            if submission == u16::MAX || completion == u16::MAX {
                return INVALID_FIELD;
            }
            // What was granted stays as long as there are I/O queues (Base 2.0 section 5.27.1.5).
            if association.connections.len() > 1 {
                return Answer::Fail(Status::COMMAND_SEQUENCE_ERROR.do_not_retry());
            }
            let granted = around.config.controllers.io_queues_max - 1;
            Answer::Result(u64::from(number_of_queues(granted, granted)))
        }
        fid::KEEP_ALIVE_TIMER => {
            association.keep_alive.timeout_ms = around.config.keep_alive_ms(discovery, set.value);
            Answer::Result(0)
        }
        fid::ASYNCHRONOUS_EVENT_CONFIGURATION => {
            let known = if discovery {
                EVENT_DISCOVERY_CHANGE
            } else {
                EVENT_NAMESPACE_ATTRIBUTE
                    | EVENT_TELEMETRY
                    | EVENT_ACCESS_CHANGE
                    | EVENT_ZONE_DESCRIPTOR_CHANGED
                    | u32::from(KNOWN_WARNINGS)
            };
            if set.value & !known != 0 {
                return INVALID_FIELD;
            }
            association.events.configuration = set.value;
            // A panic is captured before hosts are back, so that one which comes afterwards is told, too.
            let index = association.subsystem;
            if index.is_some_and(|index| around.all_subsystems.get(index).ocp.telemetry.is_unread()) {
                association.telemetry_captured();
            }
            Answer::Result(0)
        }
        // The cache of our namespaces is never switched by a host; asking for what is there is fine.
        fid::VOLATILE_WRITE_CACHE => match set.value {
            1 => Answer::Result(0),
            0 => Answer::Fail(Status::FEATURE_NOT_CHANGEABLE.do_not_retry()),
            _ => INVALID_FIELD,
        },
        fid::HOST_IDENTIFIER => {
            // On fabrics the identifier comes with Connect; setting another one is refused (Base 2.0 section
            // 5.27.1.25), setting the same one, extended to 128 bits, is harmless.
            match data {
                Some(id) if id == association.host_id => Answer::Result(0),
                _ => Answer::Fail(Status::COMMAND_SEQUENCE_ERROR.do_not_retry()),
            }
        }
        fid::TIMESTAMP => {
            let bytes = data.expect("I-T7: data that were planned are there");
            let mut millis = [0; 8];
            millis[..6].copy_from_slice(&bytes[..6]);
            association.timestamp = Some((u64::from_le_bytes(millis), around.now));
            Answer::Result(0)
        }
        fid::HOST_BEHAVIOR => {
            let bytes = data.expect("I-T7: data that were planned are there");
            set_behavior(association, bytes)
        }
        fid::TEMPERATURE_THRESHOLD => set_threshold(association, set.value),
        fid::COMMAND_SET_PROFILE if set.value == 0 => Answer::Result(0),
        // One power state, no limit on errors' recovery, one combination of command sets.
        fid::COMMAND_SET_PROFILE => INVALID_FIELD,
        fid::POWER_MANAGEMENT if set.value & 0x1F != 0 => INVALID_FIELD,
        _ if set.value == 0 => Answer::Result(0),
        _ => Answer::Fail(Status::FEATURE_NOT_CHANGEABLE.do_not_retry()),
    }
}

/// Host behavior support: commands of ours are never interrupted, so what a host knows of that is kept and changes nothing. What it
/// says to know of formats that are not there is refused, and so is what no specification has defined.
fn set_behavior(association: &mut Association, bytes: &[u8]) -> Answer {
    assert_eq!(bytes.len(), HOST_BEHAVIOR_SIZE_BYTES, "I-T7: data come as they were planned");
    let (retry, others) = (bytes[BEHAVIOR_ADVANCED_RETRY], &bytes[BEHAVIOR_ADVANCED_RETRY + 1..]);
    if retry > 1 || others.iter().any(|byte| *byte != 0) {
        return INVALID_FIELD;
    }
    association.settings.knows_advanced_retry = retry == 1;
    Answer::Result(0)
}

/// Reservation notification mask: bits 3:1 say what the host does not want to hear of.
fn set_mask(association: &mut Association, nsid: u32, value: u32, around: &Surroundings<'_>) -> Answer {
    if value & !0xE != 0 {
        return INVALID_FIELD;
    }
    let all = around.subsystem.into_iter().flat_map(|subsystem| subsystem.namespaces.keys());
    let masks = &mut association.events.reservations.masks;
    match nsid {
        NSID_ALL => masks.extend(all.map(|nsid| (*nsid, value as u8))),
        0 => return Answer::Fail(Status::INVALID_NAMESPACE_OR_FORMAT.do_not_retry()),
        nsid => drop(masks.insert(nsid, value as u8)),
    }
    Answer::Result(0)
}

fn set_threshold(association: &mut Association, value: u32) -> Answer {
    let threshold = TemperatureThreshold::decode(value);
    // Bits 31:22 are reserved.
    if value >> 22 != 0 {
        return INVALID_FIELD;
    }
    match (threshold.sensor, threshold.kind) {
        (0, OVER) => association.settings.temperature.over_kelvin = threshold.kelvin,
        (0, UNDER) => association.settings.temperature.under_kelvin = threshold.kelvin,
        // All sensors: there are none beside the composite temperature.
        (0xF, OVER | UNDER) => {}
        _ => return INVALID_FIELD,
    }
    Answer::Result(0)
}

fn has_cache(around: &Surroundings<'_>) -> bool {
    around
        .subsystem
        .is_some_and(|subsystem| subsystem.namespaces.values().any(|one| one.properties.volatile_cache))
}

/// Get Features (Base 2.0 section 5.15).
pub(crate) fn get(association: &Association, entry: &SubmissionEntry, around: &Surroundings<'_>) -> Answer {
    let get = GetFeatures::decode(entry);
    let discovery = association.is_discovery();
    let Some(known) = trait_of(get.feature, discovery, around) else { return INVALID_FIELD };
    let is_default = match get.select {
        Select::Current => false,
        // Nothing is saved, so what was saved is what it begins with.
        Select::Default | Select::Saved => true,
        Select::Capabilities => return Answer::Result(known.capabilities().into()),
        Select::Reserved(_) => return INVALID_FIELD,
    };
    let granted = around.config.controllers.io_queues_max - 1;
    let (current, default) = match get.feature {
        fid::NUMBER_OF_QUEUES => {
            let value = number_of_queues(granted, granted);
            (value, value)
        }
        fid::KEEP_ALIVE_TIMER => {
            (association.keep_alive.timeout_ms, around.config.keep_alive_ms(discovery, 0))
        }
        fid::ASYNCHRONOUS_EVENT_CONFIGURATION => (association.events.configuration, 0),
        fid::VOLATILE_WRITE_CACHE => (1, 1),
        fid::RESERVATION_NOTIFICATION_MASK => {
            let nsid = entry.nsid.get();
            if wrong_scope(known, nsid, around).is_some() {
                return Answer::Fail(Status::INVALID_NAMESPACE_OR_FORMAT.do_not_retry());
            }
            (association.events.reservations.masks.get(&nsid).copied().unwrap_or(0).into(), 0)
        }
        fid::TEMPERATURE_THRESHOLD => {
            let threshold = TemperatureThreshold::decode(entry.cdw11.get());
            let (current, default) = (association.settings.temperature, TemperatureRange::DEFAULT);
            match (threshold.sensor, threshold.kind) {
                (0, OVER) => (current.over_kelvin.into(), default.over_kelvin.into()),
                (0, UNDER) => (current.under_kelvin.into(), default.under_kelvin.into()),
                _ => return INVALID_FIELD,
            }
        }
        fid::HOST_IDENTIFIER => {
            // EXHID (bit 0 of dword 11) must ask for 128 bits on fabrics.
            if entry.cdw11.get() & 1 == 0 {
                return Answer::Fail(Status::HOST_IDENTIFIER_INCONSISTENT.do_not_retry());
            }
            return Answer::Data(association.host_id.to_vec());
        }
        fid::TIMESTAMP => return Answer::Data(timestamp(association, is_default, around).to_vec()),
        fid::HOST_BEHAVIOR => {
            let mut bytes = vec![0; HOST_BEHAVIOR_SIZE_BYTES];
            bytes[BEHAVIOR_ADVANCED_RETRY] =
                u8::from(association.settings.knows_advanced_retry && !is_default);
            return Answer::Data(bytes);
        }
        _ => (0, 0),
    };
    Answer::Result(u64::from(if is_default { default } else { current }))
}

fn timestamp(association: &Association, is_default: bool, around: &Surroundings<'_>) -> [u8; 8] {
    let mut bytes = [0u8; 8];
    assert_eq!(
        bytes.len(),
        data_bytes(fid::TIMESTAMP) as usize,
        "I-T15: an answer is as long as was planned"
    );
    if let Some((millis, at)) = association.timestamp.filter(|_| !is_default) {
        let value = millis + around.now.since(at).0 / 1_000_000;
        bytes[..6].copy_from_slice(&value.to_le_bytes()[..6]);
        bytes[6] = 1 << 1; // origin 001b: set by a host
    }
    bytes
}
