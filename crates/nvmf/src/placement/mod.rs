//! Flexible Data Placement (TP4146, now in Base 2.1). What reclaim unit handles a namespace has is its own to say
//! ([`diecut_namespace::contract::PlacementProperties`]); here hosts find them, and choose one with each write.
//!
//! A subsystem has one endurance group for it, with one reclaim group: all namespaces with handles lie on one vSSD. Placement is enabled
//! for good. How full reclaim units are is asked of whoever knows media ([`crate::Question`]).

mod admin;
mod events;
mod figures;
mod io;

pub(crate) use admin::{directive_receive_bytes, event_types_bytes, execute, room_for_events};
pub(crate) use events::PlacementLog;
pub use figures::PlacementFigures;
pub(crate) use io::{execute_io, go_on, handle_of_write, is_ours, note_write, plan_io};

use crate::config::SubsystemConfig;
use diecut_namespace::contract::PlacementProperties;
use diecut_nvme::admin::GetLogPage;
use diecut_nvme::log_page::lid;

/// The endurance group of a subsystem whose namespaces have handles.
pub(crate) const ENDURANCE_GROUP: u16 = 1;
/// RGIF: all bits of a placement identifier are the placement handle, as there is one reclaim group.
const RGIF: u8 = 0;

/// What the namespaces of a subsystem say of placement; nothing if none has handles.
pub(crate) fn of_subsystem(config: &SubsystemConfig) -> Option<&PlacementProperties> {
    config.namespaces.values().find_map(|namespace| namespace.properties.placement.as_ref())
}

/// Whether a log page of placement needs to know what media did.
pub(crate) fn needs_figures(config: &SubsystemConfig, log: &GetLogPage) -> bool {
    matches!(log.page, lid::ENDURANCE_GROUP | lid::FDP_STATISTICS) && of_subsystem(config).is_some()
}
