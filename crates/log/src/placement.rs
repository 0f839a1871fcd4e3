/// A reclaim unit handle: which of the streams of host data a write goes to. 0 is the one of writes that name none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PlacementHandle(pub u16);
