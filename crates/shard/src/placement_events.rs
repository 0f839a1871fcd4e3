//! Events of placement of subsystems, and which of them are kept, in the catalog.

use crate::owners::Owners;
use crate::registry::qualified;
use diecut_catalog::{PlacementEventRecord, PlacementRecord, State};
use diecut_media::Divide;
use diecut_nvme::fdp::PlacementEvent;
use diecut_nvmf as target;
use diecut_units::mutant;

/// As the catalog has it.
pub(crate) fn record_of(record: &target::PlacementRecord) -> PlacementRecord {
    let event = |one: &PlacementEvent| {
        let (pid, timestamp, nsid) = (one.pid.get(), one.timestamp.get(), one.nsid.get());
        PlacementEventRecord(one.kind, one.flags, pid, timestamp, nsid, one.group.get(), one.handle.get())
    };
    PlacementRecord { enabled: record.enabled.clone(), events: record.events.iter().map(event).collect() }
}

fn of_record(record: &PlacementRecord) -> target::PlacementRecord {
    let event = |one: &PlacementEventRecord| {
        let PlacementEventRecord(kind, flags, pid, timestamp, nsid, group, handle) = *one;
        PlacementEvent {
            kind,
            flags,
            pid: pid.into(),
            timestamp: timestamp.into(),
            nsid: nsid.into(),
            group: group.into(),
            handle: handle.into(),
            ..PlacementEvent::default()
        }
    };
    let events = record.events.iter().map(event).collect();
    target::PlacementRecord { enabled: record.enabled.clone(), events }
}

/// Whether a subsystem shows a volume whose hosts find reclaim unit handles: else placement is off, and nothing of it is kept.
pub(crate) fn is_placed(state: &State, nqn: &str) -> bool {
    let Some(subsystem) = state.subsystems.get(nqn) else { return false };
    let vssd_of = |volume| state.vssds.get(&state.volumes.get(volume)?.vssd);
    subsystem.volumes().filter_map(vssd_of).any(|vssd| vssd.placement_handles > 0)
}

/// Tells the target what outlived a power loss, or a fence, of the events of a subsystem.
pub(crate) fn restore<M: Divide>(here: &mut Owners<M>, nqn: &str) {
    let record = here.registry.state.placements.get(nqn);
    if let Some(record) = record.filter(|_| !mutant!("shard: events of placement are not restored")) {
        target::restore_placement(&mut here.plane.nvme.target, &qualified(nqn), &of_record(record));
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use diecut_namespace::contract::PLACEMENT_HANDLES_MAX;
    use diecut_nvme::fdp::EVENTS_MAX;

    /// Goal: the catalog refuses as damage just what the target could not have said.
    #[test]
    fn the_catalog_knows_what_there_can_be() {
        assert_eq!(PlacementRecord::EVENTS_MAX, EVENTS_MAX);
        assert_eq!(usize::from(PlacementRecord::HANDLES_MAX), PLACEMENT_HANDLES_MAX);
    }

    #[test]
    fn records_come_back() {
        let event = PlacementEventRecord(3, 7, 0x0103, u64::MAX - 1, 1024, 2, 15);
        let record = PlacementRecord { enabled: [(15, vec![0, 3])].into(), events: vec![event] };
        assert_eq!(record_of(&of_record(&record)), record);
    }
}
