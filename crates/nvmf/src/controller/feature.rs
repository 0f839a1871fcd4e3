use super::{Answer, Association, Surroundings, TemperatureRange};
use diecut_nvme::feature::{
    CAPABILITY_CHANGEABLE, EVENT_DISCOVERY_CHANGE, EVENT_NAMESPACE_ATTRIBUTE, GetFeatures, Select,
    SetFeatures, TemperatureThreshold, fid, number_of_queues,
};
use diecut_nvme::{Status, SubmissionEntry};

/// THSEL of a temperature threshold.
const OVER: u8 = 0;
const UNDER: u8 = 1;

/// Data that Set Features of this feature takes.
pub(crate) fn host_data_bytes(entry: &SubmissionEntry) -> u32 {
    match SetFeatures::decode(entry).feature {
        fid::TIMESTAMP => 8,
        fid::HOST_BEHAVIOR => 512,
        fid::HOST_IDENTIFIER => 16,
        _ => 0,
    }
}

/// Set Features (Base 2.0 section 5.27).
pub(crate) fn set(
    association: &mut Association,
    entry: &SubmissionEntry,
    data: Option<&[u8]>,
    around: &Surroundings<'_>,
) -> Answer {
    let set = SetFeatures::decode(entry);
    if set.save {
        return Answer::Fail(Status::FEATURE_NOT_SAVEABLE.do_not_retry());
    }
    let discovery = association.is_discovery();
    match set.feature {
        fid::NUMBER_OF_QUEUES if !discovery => {
            let (submission, completion) = (set.value as u16, (set.value >> 16) as u16);
            if submission == u16::MAX || completion == u16::MAX {
                return Answer::Fail(Status::INVALID_FIELD.do_not_retry());
            }
            let granted = around.config.controllers.io_queues_max - 1;
            Answer::Result(u64::from(number_of_queues(granted, granted)))
        }
        fid::KEEP_ALIVE_TIMER => {
            association.keep_alive.timeout_ms = around.config.keep_alive_ms(discovery, set.value);
            Answer::Result(0)
        }
        fid::ASYNCHRONOUS_EVENT_CONFIGURATION => {
            let known = if discovery { EVENT_DISCOVERY_CHANGE } else { EVENT_NAMESPACE_ATTRIBUTE | 0xFF };
            if set.value & !known != 0 {
                return Answer::Fail(Status::INVALID_FIELD.do_not_retry());
            }
            association.events.configuration = set.value;
            Answer::Result(0)
        }
        // The cache of our namespaces is never switched by a host; asking for what is there is fine.
        fid::VOLATILE_WRITE_CACHE if !discovery && has_cache(around) == (set.value & 1 != 0) => {
            Answer::Result(0)
        }
        fid::VOLATILE_WRITE_CACHE if !discovery => {
            Answer::Fail(Status::FEATURE_NOT_CHANGEABLE.do_not_retry())
        }
        fid::HOST_IDENTIFIER => {
            // On fabrics the identifier comes with Connect; setting another one is refused (Base 2.0 section
            // 5.27.1.25), setting the same one, extended to 128 bits, is harmless.
            match data {
                Some(id) if id == association.host_id => Answer::Result(0),
                _ => Answer::Fail(Status::COMMAND_SEQUENCE_ERROR.do_not_retry()),
            }
        }
        fid::TIMESTAMP if !discovery => {
            let bytes = data.expect("I-T7: data that were planned are there");
            let mut millis = [0; 8];
            millis[..6].copy_from_slice(&bytes[..6]);
            association.timestamp = Some((u64::from_le_bytes(millis), around.now));
            Answer::Result(0)
        }
        fid::HOST_BEHAVIOR if !discovery => Answer::Result(0),
        fid::COMMAND_SET_PROFILE if !discovery && set.value & 0x1FF == 0 => Answer::Result(0),
        fid::TEMPERATURE_THRESHOLD if !discovery => {
            let threshold = TemperatureThreshold::decode(set.value);
            match (threshold.sensor, threshold.kind) {
                (0, OVER) => association.temperature.over_kelvin = threshold.kelvin,
                (0, UNDER) => association.temperature.under_kelvin = threshold.kelvin,
                // All sensors: there are none beside the composite temperature.
                (0xF, OVER | UNDER) => {}
                _ => return Answer::Fail(Status::INVALID_FIELD.do_not_retry()),
            }
            Answer::Result(0)
        }
        fid::ARBITRATION | fid::POWER_MANAGEMENT | fid::ERROR_RECOVERY | fid::WRITE_ATOMICITY
            if !discovery =>
        {
            if set.value == 0 {
                Answer::Result(0)
            } else {
                Answer::Fail(Status::FEATURE_NOT_CHANGEABLE.do_not_retry())
            }
        }
        _ => Answer::Fail(Status::INVALID_FIELD.do_not_retry()),
    }
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
    let granted = around.config.controllers.io_queues_max - 1;
    let (current, default, changeable) = match get.feature {
        fid::NUMBER_OF_QUEUES if !discovery => {
            let value = number_of_queues(granted, granted);
            (value, value, false)
        }
        fid::KEEP_ALIVE_TIMER => (association.keep_alive.timeout_ms, 0, true),
        fid::ASYNCHRONOUS_EVENT_CONFIGURATION => (association.events.configuration, 0, true),
        fid::VOLATILE_WRITE_CACHE if !discovery => {
            let value = u32::from(has_cache(around));
            (value, value, false)
        }
        fid::TEMPERATURE_THRESHOLD if !discovery => {
            let threshold = TemperatureThreshold::decode(entry.cdw11.get());
            let (current, default) = (association.temperature, TemperatureRange::DEFAULT);
            match (threshold.sensor, threshold.kind) {
                (0, OVER) => (current.over_kelvin.into(), default.over_kelvin.into(), true),
                (0, UNDER) => (current.under_kelvin.into(), default.under_kelvin.into(), true),
                _ => return Answer::Fail(Status::INVALID_FIELD.do_not_retry()),
            }
        }
        fid::ARBITRATION
        | fid::POWER_MANAGEMENT
        | fid::ERROR_RECOVERY
        | fid::WRITE_ATOMICITY
        | fid::COMMAND_SET_PROFILE
            if !discovery =>
        {
            (0, 0, false)
        }
        fid::HOST_IDENTIFIER => {
            // EXHID (bit 0 of dword 11) must ask for 128 bits on fabrics.
            if entry.cdw11.get() & 1 == 0 {
                return Answer::Fail(Status::HOST_IDENTIFIER_INCONSISTENT.do_not_retry());
            }
            return Answer::Data(association.host_id.to_vec());
        }
        fid::TIMESTAMP if !discovery => {
            let mut bytes = [0u8; 8];
            if let Some((millis, at)) = association.timestamp {
                let value = millis + around.now.since(at).0 / 1_000_000;
                bytes[..6].copy_from_slice(&value.to_le_bytes()[..6]);
                bytes[6] = 1 << 1; // origin 001b: set by a host
            }
            return Answer::Data(bytes.to_vec());
        }
        fid::HOST_BEHAVIOR if !discovery => return Answer::Data(vec![0; 512]),
        _ => return Answer::Fail(Status::INVALID_FIELD.do_not_retry()),
    };
    match get.select {
        Select::Current => Answer::Result(u64::from(current)),
        Select::Default | Select::Saved => Answer::Result(u64::from(default)),
        Select::Capabilities => Answer::Result(if changeable { u64::from(CAPABILITY_CHANGEABLE) } else { 0 }),
        Select::Reserved(_) => Answer::Fail(Status::INVALID_FIELD.do_not_retry()),
    }
}
