//! Placement of host data: reclaim unit handles and reclaim groups, and how the cleaner treats what was written to them (NVMe Base 2.1, flexible
//! data placement).

/// A reclaim unit handle: which of the streams of host data a write goes to. 0 is the one of writes that name none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PlacementHandle(pub u16);

impl PlacementHandle {
    /// Most handles of a log.
    pub const COUNT_MAX: u16 = 16;
}

/// A reclaim group: units of the space that keep to themselves what is written to them. Nothing that lies in one is ever moved to another one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReclaimGroup(pub u16);

impl ReclaimGroup {
    /// The group that also has what is no host data: leaves of the map, and notes.
    pub(crate) const FIRST: ReclaimGroup = ReclaimGroup(0);
}

/// A handle in one group: it references a reclaim unit there. They are numbered group by group, and all handles of one follow each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnitReference(pub u16);

impl UnitReference {
    /// Most references of a log, those of all groups together.
    pub const COUNT_MAX: u16 = 64;
}

/// Where a write goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlacementTarget {
    /// The reclaim unit handle; one that there is not stands for the first one.
    pub handle: PlacementHandle,
    /// The reclaim group, if the host chose one: whatever has most room otherwise. One that there is not was not chosen.
    pub group: Option<ReclaimGroup>,
}

impl PlacementTarget {
    /// A handle, in whatever group.
    pub const fn handle(handle: PlacementHandle) -> PlacementTarget {
        PlacementTarget { handle, group: None }
    }
}

/// What the cleaner does with data of different handles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PlacementIsolation {
    /// It may copy data of several handles into one reclaim unit.
    #[default]
    Initially,
    /// Data of one handle never comes into a reclaim unit of another one.
    Persistently,
}

/// The reclaim unit handles and reclaim groups of a log, chosen when it is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Placement {
    /// How many handles there are, 1 to [`PlacementHandle::COUNT_MAX`].
    pub handles: u16,
    /// What the cleaner does with their data.
    pub isolation: PlacementIsolation,
    /// How many groups there are, at least 1: each has as many units of the space, those of the first one come first. With the handles no more
    /// than [`UnitReference::COUNT_MAX`] references.
    pub groups: u16,
}

impl Placement {
    /// Handles in one group.
    pub const fn of_handles(handles: u16, isolation: PlacementIsolation) -> Placement {
        Placement { handles, isolation, groups: 1 }
    }

    /// How many references there are.
    pub fn references(self) -> u32 {
        u32::from(self.handles) * u32::from(self.groups)
    }

    /// The reference of a handle in a group.
    #[inline]
    pub fn reference(self, group: ReclaimGroup, handle: PlacementHandle) -> UnitReference {
        UnitReference(group.0 * self.handles + handle.0)
    }
}

impl Default for Placement {
    /// One handle in one group: nothing is told apart.
    fn default() -> Placement {
        Placement::of_handles(1, PlacementIsolation::Initially)
    }
}

/// A value for each reclaim group.
#[derive(Clone, Debug, Default)]
pub(crate) struct PerGroup<T>(Vec<T>);

impl<T> PerGroup<T> {
    /// Made for each of so many groups.
    pub fn new(groups: u16, make: impl FnMut(ReclaimGroup) -> T) -> PerGroup<T> {
        PerGroup((0..groups).map(ReclaimGroup).map(make).collect())
    }

    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter()
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.0.iter_mut()
    }
}

impl<T> std::ops::Index<ReclaimGroup> for PerGroup<T> {
    type Output = T;
    #[inline]
    fn index(&self, group: ReclaimGroup) -> &T {
        &self.0[usize::from(group.0)]
    }
}

impl<T> std::ops::IndexMut<ReclaimGroup> for PerGroup<T> {
    #[inline]
    fn index_mut(&mut self, group: ReclaimGroup) -> &mut T {
        &mut self.0[usize::from(group.0)]
    }
}
