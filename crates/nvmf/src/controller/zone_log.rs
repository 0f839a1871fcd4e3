//! Which zones changed by themselves, for each namespace of a controller, and what its host is told of it.

use super::{Association, Notice};
use diecut_namespace::contract::ChangedZones;
use diecut_nvme::admin::AsynchronousEvent;
use diecut_nvme::zns::EVENT_ZONE_DESCRIPTOR_CHANGED;
use diecut_units::{mark, mutant};
use std::collections::BTreeMap;

#[derive(Debug, Default)]
struct Changed {
    zones: ChangedZones,
    notice: Notice,
}

/// See the module. As many lists as there are namespaces, each of a bounded length.
#[derive(Debug, Default)]
pub(crate) struct ZoneLog {
    /// By NSID.
    lists: BTreeMap<u32, Changed>,
}

impl ZoneLog {
    fn add(&mut self, nsid: u32, zones: &ChangedZones, is_wanted: bool) {
        let list = self.lists.entry(nsid).or_default();
        list.zones.add_all(zones);
        if is_wanted && list.notice == Notice::Quiet {
            list.notice = Notice::Pending;
        }
    }

    /// The zones of a namespace. Where the event is not to stay, the list begins again with that.
    pub(super) fn read(&mut self, nsid: u32, retain_event: bool) -> ChangedZones {
        match self.lists.get(&nsid) {
            Some(list) if retain_event => list.zones.clone(),
            _ => self.lists.remove(&nsid).unwrap_or_default().zones,
        }
    }

    /// The namespace of the next event; it counts as told.
    pub(super) fn next_event(&mut self) -> Option<(AsynchronousEvent, u32)> {
        let mut lists = self.lists.iter_mut();
        let (nsid, list) = lists.find(|(_, list)| list.notice == Notice::Pending)?;
        list.notice = Notice::Masked;
        mark!("nvmf: host told of a zone that changed");
        Some((AsynchronousEvent::ZONE_DESCRIPTOR_CHANGED, *nsid))
    }

    /// The namespace is another one, or its host looks at all of it anyway.
    pub(super) fn forget(&mut self, nsid: u32) {
        self.lists.remove(&nsid);
    }
}

impl Association {
    /// Zones of a namespace changed by themselves.
    pub(crate) fn zones_changed(&mut self, nsid: u32, zones: &ChangedZones) {
        let is_wanted = self.events.configuration & EVENT_ZONE_DESCRIPTOR_CHANGED != 0;
        self.events.zones.add(nsid, zones, is_wanted && !mutant!("nvmf: zones that changed are not told"));
    }
}

#[cfg(test)]
mod test {
    use super::*;

    /// Goal: a host hears once of each namespace, again after it has read the list, and never of what it does not want to hear of.
    /// Method: two namespaces, by hand.
    #[test]
    fn each_list_is_told_once() {
        let mut one = ChangedZones::default();
        one.add(7);
        let mut log = ZoneLog::default();
        log.add(1, &one, false);
        assert_eq!(log.next_event(), None, "nobody wants to know");
        for nsid in [2, 1, 2] {
            log.add(nsid, &one, true);
        }
        let event = AsynchronousEvent::ZONE_DESCRIPTOR_CHANGED;
        assert_eq!(
            [log.next_event(), log.next_event(), log.next_event()],
            [Some((event, 1)), Some((event, 2)), None]
        );
        log.add(1, &one, true);
        assert_eq!(log.read(1, true), one);
        assert_eq!(log.next_event(), None, "masked until the list is read");
        assert_eq!((log.read(1, false), log.read(1, false)), (one.clone(), ChangedZones::default()));
        log.add(1, &one, true);
        assert_eq!(log.next_event(), Some((event, 1)));
    }
}
