//! Flexible Data Placement (TP4146, now in Base 2.1). What reclaim unit handles a namespace has is its own to say
//! ([`diecut_namespace::contract::PlacementProperties`]); here hosts find them, and choose one with each write.
//!
//! A subsystem has one endurance group for it: all namespaces with handles lie on one vSSD, whose reclaim groups are those of the endurance group. Placement is enabled
//! for good. How full reclaim units are is asked of whoever knows media ([`crate::Question`]). Events outlive restarts (`keeping`).

mod admin;
mod events;
mod figures;
mod io;
mod keeping;
mod record;

pub(crate) use admin::{directive_receive_bytes, event_types_bytes, execute, room_for_events};
pub(crate) use events::PlacementLog;
pub use figures::PlacementFigures;
pub(crate) use io::{execute_io, go_on, is_ours, note_write, plan_io, target_of_write};
pub(crate) use keeping::{
    EventPace, PATIENCE, arrived, deadline, defined, give_up, keep_due, kept, restore, set_events,
};
pub use record::{KeepPlacement, KeptPlacement, PlacementRecord};

use crate::config::SubsystemConfig;
use diecut_namespace::contract::{PlacementProperties, PlacementTarget, ReclaimGroup};
use diecut_nvme::admin::GetLogPage;
use diecut_nvme::fdp::PlacementId;
use diecut_nvme::log_page::lid;

/// The endurance group of a subsystem whose namespaces have handles.
pub(crate) const ENDURANCE_GROUP: u16 = 1;

/// RGIF: upper bits of a placement identifier that name the reclaim group.
const fn group_bits(placement: &PlacementProperties) -> u8 {
    (u16::BITS - placement.groups.saturating_sub(1).leading_zeros()) as u8
}

/// Placement identifiers that one update can name: all there are (MAXPIDS).
fn pids_max(placement: &PlacementProperties) -> u32 {
    u32::from(placement.vssd_handles) * u32::from(placement.groups)
}

/// The handle of the vSSD and the reclaim group that a placement identifier of a host names, if both are there.
fn target_of(placement: &PlacementProperties, pid: u16) -> Option<PlacementTarget> {
    let pid = PlacementId::decode(pid, group_bits(placement));
    let handle = placement.handles.get(pid.handle)?;
    (pid.group < placement.groups).then_some(PlacementTarget { handle, group: Some(ReclaimGroup(pid.group)) })
}

/// What the namespaces of a subsystem say of placement; nothing if none has handles.
pub(crate) fn of_subsystem(config: &SubsystemConfig) -> Option<&PlacementProperties> {
    config.namespaces.values().find_map(|namespace| namespace.properties.placement.as_ref())
}

/// Whether a log page of placement needs to know what media did.
pub(crate) fn needs_figures(config: &SubsystemConfig, log: &GetLogPage) -> bool {
    matches!(log.page, lid::ENDURANCE_GROUP | lid::FDP_STATISTICS) && of_subsystem(config).is_some()
}
