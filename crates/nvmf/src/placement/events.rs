//! Events of placement: which of them are kept, and the last of them.

use diecut_namespace::contract::{PLACEMENT_HANDLES_MAX, PlacementHandle};
use diecut_nvme::fdp::{EVENTS_MAX, PlacementEvent, event_kind};
use std::collections::VecDeque;

/// Types of events that there can be here. Reclaim units are not changed for their age, resets leave handles alone, and nothing tells a
/// host where the cleaner moved its data.
pub(super) const KINDS: [u8; 2] =
    [event_kind::RECLAIM_UNIT_NOT_FULLY_WRITTEN, event_kind::INVALID_PLACEMENT_IDENTIFIER];

/// The events of an endurance group, all of them of hosts, and which types are kept for each reclaim unit handle: none, until a host
/// wants some.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PlacementLog {
    /// By handle: bit `n` stands for `KINDS[n]`.
    enabled: [u8; PLACEMENT_HANDLES_MAX],
    /// Oldest first.
    events: VecDeque<PlacementEvent>,
    /// What was told of media last.
    pub(crate) figures: super::PlacementFigures,
}

fn bit_of(kind: u8) -> Option<u8> {
    KINDS.iter().position(|one| *one == kind).map(|at| 1 << at)
}

impl PlacementLog {
    /// Whether events of a type are kept for a handle.
    pub(super) fn is_enabled(&self, handle: PlacementHandle, kind: u8) -> bool {
        let bits = self.enabled.get(usize::from(handle.0)).copied().unwrap_or(0);
        bit_of(kind).is_some_and(|bit| bits & bit != 0)
    }

    /// Keeps events of these types for a handle from now on, or no more. Nothing is changed if one of them cannot be.
    ///
    /// # Errors
    /// If there can be no event of a type, or the handle is none.
    pub(super) fn enable(&mut self, handle: PlacementHandle, kinds: &[u8], enable: bool) -> Result<(), ()> {
        let slot = self.enabled.get_mut(usize::from(handle.0)).ok_or(())?;
        let bits = kinds.iter().try_fold(0, |bits, kind| bit_of(*kind).map(|bit| bits | bit)).ok_or(())?;
        *slot = if enable { *slot | bits } else { *slot & !bits };
        Ok(())
    }

    /// Keeps an event if its type is enabled for its handle; the oldest goes when there is no room.
    pub(super) fn keep(&mut self, event: PlacementEvent) {
        if !self.is_enabled(PlacementHandle(event.handle.get()), event.kind) {
            return;
        }
        if self.events.len() == EVENTS_MAX {
            self.events.pop_front();
        }
        self.events.push_back(event);
        assert!(self.events.len() <= EVENTS_MAX, "I-T20: a log of events has as many as its page");
    }

    /// What was kept, oldest first.
    pub(super) fn events(&self) -> impl Iterator<Item = &PlacementEvent> {
        self.events.iter()
    }
}

#[cfg(test)]
mod test {
    use super::*;

    fn event(handle: u16, kind: u8, nsid: u32) -> PlacementEvent {
        PlacementEvent { kind, handle: handle.into(), nsid: nsid.into(), ..PlacementEvent::default() }
    }

    #[test]
    fn what_is_wanted_is_kept_and_the_oldest_goes() {
        let [partly, invalid] = KINDS;
        let mut log = PlacementLog::default();
        log.keep(event(1, invalid, 1));
        assert_eq!(log.events().count(), 0, "nobody wanted it");
        assert_eq!(log.enable(PlacementHandle(1), &[invalid, 0x80], true), Err(()));
        assert!(!log.is_enabled(PlacementHandle(1), invalid), "nothing of a refused list holds");
        assert_eq!(log.enable(PlacementHandle(16), &[invalid], true), Err(()));
        assert_eq!(log.enable(PlacementHandle(1), &[invalid, partly], true), Ok(()));
        assert_eq!(log.enable(PlacementHandle(1), &[partly], false), Ok(()));
        log.keep(event(1, partly, 1));
        log.keep(event(0, invalid, 1));
        for nsid in 0..70 {
            log.keep(event(1, invalid, nsid));
        }
        let kept: Vec<u32> = log.events().map(|event| event.nsid.get()).collect();
        assert_eq!(kept, (7..70).collect::<Vec<_>>());
    }
}
