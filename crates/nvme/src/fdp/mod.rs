//! Words of Flexible Data Placement (TP4146, now in Base 2.1): a host says with a write which reclaim unit handle it uses, so that data
//! which die together lie together.
//!
//! An endurance group has reclaim unit handles (RUH); each one references a reclaim unit (RU) in each reclaim group (RG). A namespace has
//! placement handles (PH), which are its names of some of them. A placement identifier (PID) is a reclaim group and a placement handle.

mod command;
mod configuration;
mod directive;
mod event;
mod feature;
mod log_page;
mod status;

pub use command::{IoManagementReceive, IoManagementSend, PIDS_MAX, PLACEMENT_ID_SIZE_BYTES, placement_ids};
pub use configuration::{
    INITIALLY_ISOLATED, PERSISTENTLY_ISOLATED, PlacementConfiguration, configurations_page,
    parse_configurations,
};
pub use directive::{
    DIRECTIVE_DATA_PLACEMENT, DIRECTIVE_IDENTIFY, DirectiveCommand, DirectiveParameters, ENABLE_DIRECTIVE,
    EnableDirective, RETURN_PARAMETERS,
};
pub use event::{
    EVENT_HAS_LOCATION, EVENT_HAS_NSID, EVENT_HAS_PID, EVENTS_LOG_SIZE_BYTES, EVENTS_MAX, PlacementEvent,
    event_kind, events_page, parse_events,
};
pub use feature::{EventDescriptor, PlacementEventsFeature, PlacementFeature};
pub use log_page::{
    EnduranceGroupLog, HANDLE_UNUSED, HANDLE_USED_BY_CONTROLLER, HANDLE_USED_BY_HOST, StatisticsLog,
    parse_usage, usage_page,
};
pub use status::{HandleStatus, PlacementIds, STATUS_HEADER_SIZE_BYTES, parse_status, status_page};

use crate::error::DecodeError;

/// A placement identifier in its parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlacementId {
    /// Reclaim group.
    pub group: u16,
    /// Placement handle of the namespace.
    pub handle: u16,
}

impl PlacementId {
    /// From its 16 bits. The top `rgif` bits, 0 to 15, name the reclaim group (RGIF of the configuration); with 0 all bits are the handle.
    pub fn decode(bits: u16, rgif: u8) -> PlacementId {
        let handle_bits = 16 - u32::from(rgif & 0xF);
        PlacementId {
            group: (u32::from(bits) >> handle_bits) as u16,
            handle: (u32::from(bits) & ((1 << handle_bits) - 1)) as u16,
        }
    }

    /// As 16 bits; what does not fit into `rgif` bits of a group is cut off.
    pub fn encode(self, rgif: u8) -> u16 {
        let handle_bits = 16 - u32::from(rgif & 0xF);
        (u32::from(self.group) << handle_bits | u32::from(self.handle) & ((1 << handle_bits) - 1)) as u16
    }
}

/// The first `needed` bytes of a structure.
fn first<'a>(bytes: &'a [u8], structure: &'static str, needed: usize) -> Result<&'a [u8], DecodeError> {
    bytes.get(..needed).ok_or(DecodeError::Short { structure, needed, got: bytes.len() })
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

#[cfg(test)]
mod test;
