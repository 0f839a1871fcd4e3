//! Zones that the medium changed by itself, until somebody takes the list: a host is told that it should look at them again (ZNS 1.1 section
//! 4.1.4.1). What a host asked for, and an implicitly open zone that is closed for another one, is not among them.

/// Zones that a list names at most: those of the log page.
pub const CHANGED_ZONES_MAX: usize = 511;

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChangedZones {
    /// By number, each once.
    zones: Vec<u32>,
    has_more: bool,
}

impl ChangedZones {
    /// A zone changed.
    pub fn add(&mut self, zone: u32) {
        let Err(at) = self.zones.binary_search(&zone) else { return };
        if self.has_more || self.zones.len() == CHANGED_ZONES_MAX {
            *self = ChangedZones { zones: Vec::new(), has_more: true };
            return;
        }
        self.zones.insert(at, zone);
    }

    /// All of another list changed, too.
    pub fn add_all(&mut self, other: &ChangedZones) {
        other.zones.iter().for_each(|zone| self.add(*zone));
        if other.has_more {
            *self = other.clone();
        }
    }

    /// Whether none changed.
    pub fn is_empty(&self) -> bool {
        self.zones.is_empty() && !self.has_more
    }

    /// The zones; `None`: more than a list names.
    pub fn zones(&self) -> Option<&[u32]> {
        (!self.has_more).then_some(&self.zones)
    }
}

#[cfg(test)]
mod test {
    use super::*;

    /// Goal: a list names each zone once, in order, and is never longer than a page. Method: zones up to the limit and beyond it.
    #[test]
    fn a_list_does_not_grow_without_bound() {
        let mut changed = ChangedZones::default();
        assert!(changed.is_empty());
        (0..CHANGED_ZONES_MAX as u32).rev().for_each(|zone| changed.add(2 * zone));
        changed.add(4);
        let all: Vec<u32> = (0..CHANGED_ZONES_MAX as u32).map(|zone| 2 * zone).collect();
        assert_eq!(changed.zones(), Some(&all[..]));
        let mut other = ChangedZones::default();
        other.add(3);
        changed.add_all(&other);
        assert_eq!((changed.zones(), changed.is_empty()), (None, false), "one more than it names");
        changed.add(5);
        assert_eq!(changed, ChangedZones { zones: Vec::new(), has_more: true });
        other.add_all(&changed);
        assert_eq!(other.zones(), None);
    }
}
