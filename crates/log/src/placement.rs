//! Placement of host data: reclaim unit handles, and how the cleaner treats what was written to them (NVMe Base 2.1, flexible data
//! placement).

/// A reclaim unit handle: which of the streams of host data a write goes to. 0 is the one of writes that name none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PlacementHandle(pub u16);

impl PlacementHandle {
    /// Most handles of a log: the format has four bits for them.
    pub const COUNT_MAX: u16 = 16;
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

/// The reclaim unit handles of a log, chosen when it is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Placement {
    /// How many there are, 1 to [`PlacementHandle::COUNT_MAX`].
    pub handles: u16,
    /// What the cleaner does with their data.
    pub isolation: PlacementIsolation,
}

impl Default for Placement {
    /// One handle: nothing is told apart.
    fn default() -> Placement {
        Placement { handles: 1, isolation: PlacementIsolation::Initially }
    }
}
