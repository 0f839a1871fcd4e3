//! Which reclaim unit handles a namespace has (Flexible Data Placement, TP4146).

use diecut_volume::contract::PlacementHandle;

/// Handles that a vSSD may have, and so the most of a namespace.
pub const PLACEMENT_HANDLES_MAX: usize = 16;

/// The reclaim unit handles of a namespace, in the order in which its hosts number them: its placement handles. There is at least one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlacementHandles {
    handles: [PlacementHandle; PLACEMENT_HANDLES_MAX],
    count: u8,
}

impl PlacementHandles {
    /// With these handles.
    ///
    /// # Panics
    /// If there is none, or there are more than [`PLACEMENT_HANDLES_MAX`]: whoever makes the namespace has checked that.
    pub fn new(handles: &[PlacementHandle]) -> PlacementHandles {
        assert!((1..=PLACEMENT_HANDLES_MAX).contains(&handles.len()), "I-N4: a list of handles has 1 to 16");
        let mut all = [PlacementHandle::default(); PLACEMENT_HANDLES_MAX];
        all[..handles.len()].copy_from_slice(handles);
        PlacementHandles { handles: all, count: handles.len() as u8 }
    }

    /// All of them.
    #[inline]
    pub fn as_slice(&self) -> &[PlacementHandle] {
        &self.handles[..usize::from(self.count)]
    }

    /// The one that hosts call so.
    #[inline]
    pub fn get(&self, placement_handle: u16) -> Option<PlacementHandle> {
        self.as_slice().get(usize::from(placement_handle)).copied()
    }

    /// The one of writes that name none.
    #[inline]
    pub fn first(&self) -> PlacementHandle {
        self.handles[0]
    }
}

/// What a namespace says of the placement of its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlacementProperties {
    /// Its own handles.
    pub handles: PlacementHandles,
    /// They were given to it, and not chosen by whoever made it.
    pub is_given: bool,
    /// Handles of the vSSD that it lies on.
    pub vssd_handles: u16,
    /// Reclaim groups of that vSSD, at least 1: each of its handles references a reclaim unit in each of them.
    pub groups: u16,
    /// Data of a handle never lie in one reclaim unit with those of another one; else they may be moved next to them.
    pub is_persistent: bool,
    /// Bytes of a reclaim unit.
    pub unit_bytes: u64,
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn hosts_number_the_handles_of_a_namespace() {
        let handles = PlacementHandles::new(&[PlacementHandle(5), PlacementHandle(0)]);
        assert_eq!(handles.first(), PlacementHandle(5));
        assert_eq!([0, 1, 2, 16].map(|at| handles.get(at).map(|one| one.0)), [Some(5), Some(0), None, None]);
        let most = [PlacementHandle(1); PLACEMENT_HANDLES_MAX];
        assert_eq!(PlacementHandles::new(&most).as_slice(), most);
    }
}
