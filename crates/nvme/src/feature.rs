//! Features (Base 2.0 section 5.27.1, figure 316; NVM 1.0 section 4.1.3).

use crate::submission::SubmissionEntry;

/// Feature ids.
pub mod fid {
    #![allow(missing_docs, reason = "the names are the specification's")]
    pub const ARBITRATION: u8 = 0x01;
    pub const POWER_MANAGEMENT: u8 = 0x02;
    pub const TEMPERATURE_THRESHOLD: u8 = 0x04;
    pub const ERROR_RECOVERY: u8 = 0x05;
    pub const VOLATILE_WRITE_CACHE: u8 = 0x06;
    pub const NUMBER_OF_QUEUES: u8 = 0x07;
    pub const WRITE_ATOMICITY: u8 = 0x0A;
    pub const ASYNCHRONOUS_EVENT_CONFIGURATION: u8 = 0x0B;
    pub const TIMESTAMP: u8 = 0x0E;
    pub const KEEP_ALIVE_TIMER: u8 = 0x0F;
    pub const HOST_BEHAVIOR: u8 = 0x16;
    pub const COMMAND_SET_PROFILE: u8 = 0x19;
    pub const DATA_PLACEMENT: u8 = 0x1D;
    pub const DATA_PLACEMENT_EVENTS: u8 = 0x1E;
    pub const HOST_IDENTIFIER: u8 = 0x81;
    pub const RESERVATION_NOTIFICATION_MASK: u8 = 0x82;
    pub const RESERVATION_PERSISTENCE: u8 = 0x83;
}

/// SEL of Get Features (Base 2.0 figure 193).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Select {
    /// The value in force.
    Current,
    /// What it is before anyone sets it.
    Default,
    /// What was saved.
    Saved,
    /// What can be done with it, in dword 0.
    Capabilities,
    /// A value the specification reserves.
    Reserved(u8),
}

/// Capability bits of Get Features with [`Select::Capabilities`] (Base 2.0 figure 194): the value can be set for a namespace.
pub const CAPABILITY_NAMESPACE: u32 = 1 << 1;
/// As [`CAPABILITY_NAMESPACE`]: it can be saved.
pub const CAPABILITY_SAVEABLE: u32 = 1 << 0;
/// As [`CAPABILITY_NAMESPACE`]: changeable.
pub const CAPABILITY_CHANGEABLE: u32 = 1 << 2;

/// Get Features (Base 2.0 section 5.15).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GetFeatures {
    /// Feature id.
    pub feature: u8,
    /// Which of its values.
    pub select: Select,
}

impl GetFeatures {
    /// From command dword 10.
    pub fn decode(entry: &SubmissionEntry) -> GetFeatures {
        let cdw10 = entry.cdw10.get();
        let select = match (cdw10 >> 8) as u8 & 7 {
            0 => Select::Current,
            1 => Select::Default,
            2 => Select::Saved,
            3 => Select::Capabilities,
            other => Select::Reserved(other),
        };
        GetFeatures { feature: cdw10 as u8, select }
    }
}

/// Set Features (Base 2.0 section 5.27).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetFeatures {
    /// Feature id.
    pub feature: u8,
    /// SV, bit 31 of dword 10: keep over power cycles.
    pub save: bool,
    /// Dword 11, the value of most features.
    pub value: u32,
}

impl SetFeatures {
    /// From command dwords 10 and 11.
    pub fn decode(entry: &SubmissionEntry) -> SetFeatures {
        let cdw10 = entry.cdw10.get();
        SetFeatures { feature: cdw10 as u8, save: cdw10 & (1 << 31) != 0, value: entry.cdw11.get() }
    }

    /// Puts the fields into a submission entry.
    pub fn encode(&self, entry: &mut SubmissionEntry) {
        entry.cdw10 = (u32::from(self.feature) | u32::from(self.save) << 31).into();
        entry.cdw11 = self.value.into();
    }
}

/// Temperature threshold, dword 11 of Set and Get Features (Base 2.0 section 5.27.1.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TemperatureThreshold {
    /// TMPTH, bits 15:0, in kelvin.
    pub kelvin: u16,
    /// TMPSEL, bits 19:16: 0 is the composite temperature, 1 to 8 are sensors, Fh all of them.
    pub sensor: u8,
    /// THSEL, bits 21:20: 0 is the threshold that is too hot, 1 the one that is too cold; others are reserved.
    pub kind: u8,
}

impl TemperatureThreshold {
    /// From dword 11.
    pub fn decode(value: u32) -> TemperatureThreshold {
        TemperatureThreshold {
            kelvin: value as u16,
            sensor: (value >> 16) as u8 & 0xF,
            kind: (value >> 20) as u8 & 3,
        }
    }
}

/// Host behavior support (Base 2.0 section 5.27.1.18), 512 bytes of which three are defined: ACRE, whether commands may be
/// interrupted and tried again later.
pub const BEHAVIOR_ADVANCED_RETRY: usize = 0;
/// ETDAS, see [`BEHAVIOR_ADVANCED_RETRY`]: whether the host knows extended formats of telemetry.
pub const BEHAVIOR_EXTENDED_TELEMETRY: usize = 1;
/// LBAFEE, see [`BEHAVIOR_ADVANCED_RETRY`]: whether the host knows extended formats of logical blocks.
pub const BEHAVIOR_EXTENDED_FORMATS: usize = 2;
/// Bytes of host behavior support.
pub const HOST_BEHAVIOR_SIZE_BYTES: usize = 512;

/// Number of queues, 0's based halves as in dword 11 and in dword 0 of the answer (Base 2.0 section 5.27.1.5).
pub fn number_of_queues(submission: u16, completion: u16) -> u32 {
    u32::from(submission) | u32::from(completion) << 16
}

/// Asynchronous event configuration (Base 2.0 section 5.27.1.9): bit 8 enables namespace attribute notices, bit 31
/// discovery log page change notices, as in OAES; bits 7:0 the critical warnings.
pub const EVENT_NAMESPACE_ATTRIBUTE: u32 = 1 << 8;
/// As [`EVENT_NAMESPACE_ATTRIBUTE`]: telemetry log notices. No bit of OAES says that there are some: whoever has the telemetry pages has them.
pub const EVENT_TELEMETRY: u32 = 1 << 10;
/// As [`EVENT_NAMESPACE_ATTRIBUTE`], and in OAES: asymmetric namespace access change notices.
pub const EVENT_ACCESS_CHANGE: u32 = 1 << 11;
/// See [`EVENT_NAMESPACE_ATTRIBUTE`].
pub const EVENT_DISCOVERY_CHANGE: u32 = 1 << 31;

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn features_come_from_their_dwords() {
        let entry = SubmissionEntry {
            cdw10: 0x8000_0307.into(),
            cdw11: 0x0003_0001.into(),
            ..SubmissionEntry::default()
        };
        assert_eq!(GetFeatures::decode(&entry), GetFeatures { feature: 7, select: Select::Capabilities });
        assert_eq!(SetFeatures::decode(&entry), SetFeatures { feature: 7, save: true, value: 0x0003_0001 });
        assert_eq!(number_of_queues(1, 3), 0x0003_0001);
        let threshold = TemperatureThreshold { kelvin: 0x157, sensor: 8, kind: 1 };
        assert_eq!(TemperatureThreshold::decode(0x0018_0157), threshold);
        let mut encoded = SubmissionEntry::default();
        SetFeatures::decode(&entry).encode(&mut encoded);
        assert_eq!((encoded.cdw10.get(), encoded.cdw11.get()), (0x8000_0007, 0x0003_0001));
    }
}
