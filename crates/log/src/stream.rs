//! Streams: what comes from one source and dies in its own way lies in segments of its own. What is particular to one kind is a row of
//! a table (`policy.rs`), so that another one is another row.

use crate::placement::{Placement, PlacementHandle, PlacementIsolation};

/// Where entries come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stream {
    /// Host data of a reclaim unit handle.
    User(PlacementHandle),
    /// Copies of the cleaner: of one handle where handles are persistently isolated, else all in that of handle 0.
    Cleaner(PlacementHandle),
    /// Map leaves.
    Map,
}

/// What streams have in common. The numbers stand in chunk heads and page marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum StreamKind {
    /// Host data.
    User = 0,
    /// Copies of the cleaner.
    Cleaner = 1,
    /// Map leaves.
    Map = 2,
}

impl StreamKind {
    /// How many there are.
    pub const COUNT: usize = 3;
    /// All of them, in the order of their numbers.
    pub const ALL: [StreamKind; StreamKind::COUNT] = [StreamKind::User, StreamKind::Cleaner, StreamKind::Map];
    /// Those that hold data: what lies in their segments dies by their entries, and leaves die by leaves.
    pub(crate) const DATA: [StreamKind; 2] = [StreamKind::User, StreamKind::Cleaner];
}

impl Default for Stream {
    fn default() -> Stream {
        Stream::USER
    }
}

impl Stream {
    /// Host data that names no handle.
    pub const USER: Stream = Stream::User(PlacementHandle(0));
    /// Copies of the cleaner, where handles share them.
    pub(crate) const CLEANER: Stream = Stream::Cleaner(PlacementHandle(0));
    /// Slots of a table of all streams there can be.
    const COUNT_MAX: usize = 2 * PlacementHandle::COUNT_MAX as usize + 1;

    /// The stream of a number read from the medium, if it is one.
    pub const fn from_number(number: u16) -> Option<Stream> {
        let handle = PlacementHandle(number >> 8);
        if handle.0 >= PlacementHandle::COUNT_MAX {
            return None;
        }
        match (number & 0xff, handle.0) {
            (0, _) => Some(Stream::User(handle)),
            (1, _) => Some(Stream::Cleaner(handle)),
            (2, 0) => Some(Stream::Map),
            _ => None,
        }
    }

    /// The number that stands on the medium: the kind in the low byte, the handle above.
    #[inline]
    pub const fn number(self) -> u16 {
        self.kind() as u16 | self.handle().0 << 8
    }

    /// Its kind.
    #[inline]
    pub const fn kind(self) -> StreamKind {
        match self {
            Stream::User(_) => StreamKind::User,
            Stream::Cleaner(_) => StreamKind::Cleaner,
            Stream::Map => StreamKind::Map,
        }
    }

    /// The reclaim unit handle whose data it has; 0 of leaves, too.
    #[inline]
    pub const fn handle(self) -> PlacementHandle {
        match self {
            Stream::User(handle) | Stream::Cleaner(handle) => handle,
            Stream::Map => PlacementHandle(0),
        }
    }

    /// Its place in a table.
    #[inline]
    const fn slot(self) -> usize {
        match self {
            Stream::User(handle) => handle.0 as usize,
            Stream::Cleaner(handle) => PlacementHandle::COUNT_MAX as usize + handle.0 as usize,
            Stream::Map => Stream::COUNT_MAX - 1,
        }
    }
}

const _: () = assert!(StreamKind::ALL[StreamKind::Map as usize] as usize == StreamKind::Map as usize);
const _: () = assert!(StreamKind::Map as usize + 1 == StreamKind::COUNT);

/// The streams that a log has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Streams {
    placement: Placement,
}

impl Streams {
    pub(crate) fn new(placement: Placement) -> Streams {
        let is_possible = (1..=PlacementHandle::COUNT_MAX).contains(&placement.handles);
        assert!(is_possible, "I-L39: a log has 1 to {} handles", PlacementHandle::COUNT_MAX);
        Streams { placement }
    }

    /// The handles.
    pub fn placement(self) -> Placement {
        self.placement
    }

    /// How many streams there are of a kind.
    pub(crate) fn count(self, kind: StreamKind) -> u32 {
        match kind {
            StreamKind::User => self.placement.handles.into(),
            StreamKind::Cleaner if self.is_persistent() => self.placement.handles.into(),
            StreamKind::Cleaner | StreamKind::Map => 1,
        }
    }

    /// Streams beside the three that each log has.
    pub(crate) fn more(self) -> u32 {
        self.count(StreamKind::User) + self.count(StreamKind::Cleaner) - 2
    }

    fn is_persistent(self) -> bool {
        self.placement.isolation == PlacementIsolation::Persistently
    }

    /// Those of a kind.
    pub(crate) fn of(self, kind: StreamKind) -> impl Iterator<Item = Stream> {
        (0..self.count(kind) as u16).map(move |handle| match kind {
            StreamKind::User => Stream::User(PlacementHandle(handle)),
            StreamKind::Cleaner => Stream::Cleaner(PlacementHandle(handle)),
            StreamKind::Map => Stream::Map,
        })
    }

    /// All of them, by kind.
    pub(crate) fn all(self) -> impl Iterator<Item = Stream> {
        StreamKind::ALL.into_iter().flat_map(move |kind| self.of(kind))
    }

    /// Those that hold data.
    pub(crate) fn data(self) -> impl Iterator<Item = Stream> {
        StreamKind::DATA.into_iter().flat_map(move |kind| self.of(kind))
    }

    /// The handle that writes to `handle` go to: one that there is not is the first one.
    #[inline]
    pub fn handle(self, handle: PlacementHandle) -> PlacementHandle {
        if handle.0 < self.placement.handles { handle } else { PlacementHandle(0) }
    }

    /// The stream that the cleaner's copies of what lies in a segment of another one go to. That one may be of a handle that there is
    /// not any more.
    pub(crate) fn copies_of(self, stream: Stream) -> Stream {
        match stream {
            Stream::Map => Stream::Map,
            Stream::User(handle) | Stream::Cleaner(handle) if self.is_persistent() => {
                Stream::Cleaner(self.handle(handle))
            }
            Stream::User(_) | Stream::Cleaner(_) => Stream::CLEANER,
        }
    }
}

/// A value for each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PerKind<T>(pub [T; StreamKind::COUNT]);

impl<T> std::ops::Index<StreamKind> for PerKind<T> {
    type Output = T;
    #[inline]
    fn index(&self, kind: StreamKind) -> &T {
        &self.0[kind as usize]
    }
}

impl<T> std::ops::IndexMut<StreamKind> for PerKind<T> {
    #[inline]
    fn index_mut(&mut self, kind: StreamKind) -> &mut T {
        &mut self.0[kind as usize]
    }
}

/// A value for each stream that there can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PerStream<T>([T; Stream::COUNT_MAX]);

impl<T: Copy + Default> Default for PerStream<T> {
    fn default() -> PerStream<T> {
        PerStream([T::default(); Stream::COUNT_MAX])
    }
}

impl<T> std::ops::Index<Stream> for PerStream<T> {
    type Output = T;
    #[inline]
    fn index(&self, stream: Stream) -> &T {
        &self.0[stream.slot()]
    }
}

impl<T> std::ops::IndexMut<Stream> for PerStream<T> {
    #[inline]
    fn index_mut(&mut self, stream: Stream) -> &mut T {
        &mut self.0[stream.slot()]
    }
}

#[cfg(test)]
mod test {
    use super::*;

    fn streams(handles: u16, isolation: PlacementIsolation) -> Streams {
        Streams::new(Placement { handles, isolation })
    }

    /// Goal: numbers on the medium stay what they are, and each leads back to its stream. Method: all of them.
    #[test]
    fn numbers_are_those_of_the_format() {
        assert_eq!([Stream::USER, Stream::CLEANER, Stream::Map].map(Stream::number), [0, 1, 2]);
        assert_eq!(Stream::User(PlacementHandle(5)).number(), 0x500);
        assert_eq!(Stream::Cleaner(PlacementHandle(15)).number(), 0xf01);
        let all = streams(PlacementHandle::COUNT_MAX, PlacementIsolation::Persistently);
        let mut slots = Vec::new();
        for stream in all.all() {
            assert_eq!(Stream::from_number(stream.number()), Some(stream));
            slots.push(stream.slot());
        }
        assert_eq!(slots, (0..Stream::COUNT_MAX).collect::<Vec<_>>(), "each has a place of its own");
        for number in [3, 0x102, 0x1000, 0x1001, u16::MAX] {
            assert_eq!(Stream::from_number(number), None, "{number:#x}");
        }
    }

    /// Goal: copies go where isolation says, also those of handles that there are not. Method: all pairs.
    #[test]
    fn copies_mix_only_where_they_may() {
        let mixed = streams(3, PlacementIsolation::Initially);
        let apart = streams(3, PlacementIsolation::Persistently);
        assert_eq!((mixed.all().count(), apart.all().count()), (5, 7));
        assert_eq!((mixed.more(), apart.more()), (2, 4));
        for handle in (0..16).map(PlacementHandle) {
            let there = PlacementHandle(if handle.0 < 3 { handle.0 } else { 0 });
            for of in [Stream::User(handle), Stream::Cleaner(handle)] {
                assert_eq!(mixed.copies_of(of), Stream::CLEANER);
                assert_eq!(apart.copies_of(of), Stream::Cleaner(there));
            }
        }
        assert_eq!((mixed.copies_of(Stream::Map), apart.copies_of(Stream::Map)), (Stream::Map, Stream::Map));
    }
}
