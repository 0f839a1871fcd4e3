//! Streams: what comes from one source and dies in its own way lies in segments of its own. What is particular to one kind is a row of
//! a table (`policy.rs`), so that another one is another row.

use crate::placement::{
    Placement, PlacementHandle, PlacementIsolation, PlacementTarget, ReclaimGroup, UnitReference,
};

/// Where entries come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stream {
    /// Host data of a reclaim unit handle in a reclaim group.
    User(UnitReference),
    /// Copies of the cleaner in a group: of one handle where handles are persistently isolated, else all in that of handle 0.
    Cleaner(UnitReference),
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
    /// Notes, and host data that names no handle where there is one group.
    pub const USER: Stream = Stream::User(UnitReference(0));
    /// Copies of the cleaner in the first group, where handles share them.
    pub(crate) const CLEANER: Stream = Stream::Cleaner(UnitReference(0));
    /// Slots of a table of all streams there can be.
    const COUNT_MAX: usize = 2 * UnitReference::COUNT_MAX as usize + 1;

    /// The stream of a number read from the medium, if it is one.
    pub const fn from_number(number: u16) -> Option<Stream> {
        let reference = UnitReference(number >> 8);
        if reference.0 >= UnitReference::COUNT_MAX {
            return None;
        }
        match (number & 0xff, reference.0) {
            (0, _) => Some(Stream::User(reference)),
            (1, _) => Some(Stream::Cleaner(reference)),
            (2, 0) => Some(Stream::Map),
            _ => None,
        }
    }

    /// The number that stands on the medium: the kind in the low byte, the reference above.
    #[inline]
    pub const fn number(self) -> u16 {
        self.kind() as u16 | self.reference().0 << 8
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

    /// Which handle's data it has, and in which group; 0 of leaves, too.
    #[inline]
    pub const fn reference(self) -> UnitReference {
        match self {
            Stream::User(reference) | Stream::Cleaner(reference) => reference,
            Stream::Map => UnitReference(0),
        }
    }

    /// Its place in a table.
    #[inline]
    const fn slot(self) -> usize {
        match self {
            Stream::User(reference) => reference.0 as usize,
            Stream::Cleaner(reference) => UnitReference::COUNT_MAX as usize + reference.0 as usize,
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
        let references = 1..=UnitReference::COUNT_MAX.into();
        assert!(references.contains(&placement.references()), "I-L39: a table has a place for each stream");
        Streams { placement }
    }

    /// The handles and groups.
    pub fn placement(self) -> Placement {
        self.placement
    }

    /// How many streams there are of a kind.
    pub(crate) fn count(self, kind: StreamKind) -> u32 {
        match kind {
            StreamKind::Map => 1,
            _ => self.count_in_group(kind) * u32::from(self.placement.groups),
        }
    }

    /// How many there are in a group; leaves are in the first one only.
    pub(crate) fn count_in_group(self, kind: StreamKind) -> u32 {
        match kind {
            StreamKind::User => self.placement.handles.into(),
            StreamKind::Cleaner if self.is_persistent() => self.placement.handles.into(),
            StreamKind::Cleaner | StreamKind::Map => 1,
        }
    }

    /// Streams of a group beside the three that each log has.
    pub(crate) fn more_in_group(self) -> u32 {
        self.count_in_group(StreamKind::User) + self.count_in_group(StreamKind::Cleaner) - 2
    }

    /// Whether host data has one stream.
    pub(crate) fn is_single(self) -> bool {
        self.placement.references() == 1
    }

    fn is_persistent(self) -> bool {
        self.placement.isolation == PlacementIsolation::Persistently
    }

    /// The groups.
    pub(crate) fn groups(self) -> impl Iterator<Item = ReclaimGroup> + Clone {
        (0..self.placement.groups).map(ReclaimGroup)
    }

    /// Those of a kind in a group.
    pub(crate) fn in_group(self, kind: StreamKind, group: ReclaimGroup) -> impl Iterator<Item = Stream> {
        let count = if kind == StreamKind::Map && group != ReclaimGroup::FIRST {
            0
        } else {
            self.count_in_group(kind) as u16
        };
        (0..count).map(move |handle| {
            let reference = self.placement.reference(group, PlacementHandle(handle));
            match kind {
                StreamKind::User => Stream::User(reference),
                StreamKind::Cleaner => Stream::Cleaner(reference),
                StreamKind::Map => Stream::Map,
            }
        })
    }

    /// All that program in a group, by kind.
    pub(crate) fn all_in_group(self, group: ReclaimGroup) -> impl Iterator<Item = Stream> {
        StreamKind::ALL.into_iter().flat_map(move |kind| self.in_group(kind, group))
    }

    /// Those of a kind.
    pub(crate) fn of(self, kind: StreamKind) -> impl Iterator<Item = Stream> {
        self.groups().flat_map(move |group| self.in_group(kind, group))
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

    /// The group that a host chose; nothing where it chose none, or there is but one.
    #[inline]
    pub fn chosen_group(self, target: PlacementTarget) -> Option<ReclaimGroup> {
        target.group.filter(|group| group.0 < self.placement.groups && self.placement.groups > 1)
    }

    /// The stream of host data of a handle in a group that there is.
    #[inline]
    pub fn of_host(self, group: ReclaimGroup, handle: PlacementHandle) -> Stream {
        Stream::User(self.placement.reference(group, self.handle(handle)))
    }

    /// The reference that a number read from the medium stands for: one that there is not is the first one.
    pub(crate) fn reference(self, reference: UnitReference) -> UnitReference {
        if u32::from(reference.0) < self.placement.references() { reference } else { UnitReference(0) }
    }

    /// The reclaim unit handle whose data a stream has; 0 of leaves, and of what there is not any more.
    #[inline]
    pub fn handle_of(self, stream: Stream) -> PlacementHandle {
        let reference = self.reference(stream.reference()).0;
        // Without a division where handles are all there is.
        let is_alone = self.placement.groups == 1;
        PlacementHandle(if is_alone { reference } else { reference % self.placement.handles })
    }

    /// The group that a stream programs in.
    #[inline]
    pub fn group_of(self, stream: Stream) -> ReclaimGroup {
        if self.placement.groups == 1 {
            return ReclaimGroup::FIRST;
        }
        ReclaimGroup(self.reference(stream.reference()).0 / self.placement.handles)
    }

    /// The stream that the cleaner's copies of what lies in a segment of another one go to, in the segment's group. That stream may be of a
    /// handle that there is not any more.
    pub(crate) fn copies_of(self, stream: Stream, group: ReclaimGroup) -> Stream {
        match stream {
            Stream::Map => Stream::Map,
            _ if self.is_persistent() => {
                Stream::Cleaner(self.placement.reference(group, self.handle_of(stream)))
            }
            _ => Stream::Cleaner(self.placement.reference(group, PlacementHandle(0))),
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

    fn streams(handles: u16, isolation: PlacementIsolation, groups: u16) -> Streams {
        Streams::new(Placement { handles, isolation, groups })
    }

    /// Goal: numbers on the medium stay what they are, and each leads back to its stream. Method: all of them.
    #[test]
    fn numbers_are_those_of_the_format() {
        assert_eq!([Stream::USER, Stream::CLEANER, Stream::Map].map(Stream::number), [0, 1, 2]);
        assert_eq!(Stream::User(UnitReference(5)).number(), 0x500);
        assert_eq!(Stream::Cleaner(UnitReference(15)).number(), 0xf01);
        let all = streams(PlacementHandle::COUNT_MAX, PlacementIsolation::Persistently, 4);
        let mut slots = Vec::new();
        for stream in all.all() {
            assert_eq!(Stream::from_number(stream.number()), Some(stream));
            slots.push(stream.slot());
        }
        assert_eq!(slots, (0..Stream::COUNT_MAX).collect::<Vec<_>>(), "each has a place of its own");
        for number in [3, 0x102, 0x4000, 0x4001, u16::MAX] {
            assert_eq!(Stream::from_number(number), None, "{number:#x}");
        }
    }

    /// Goal: copies go where isolation says, and stay in their group, also those of handles that there are not. Method: all pairs.
    #[test]
    fn copies_mix_only_where_they_may() {
        for groups in [1, 4] {
            let mixed = streams(3, PlacementIsolation::Initially, groups);
            let apart = streams(3, PlacementIsolation::Persistently, groups);
            let (all_mixed, all_apart) = (4 * groups + 1, 6 * groups + 1);
            assert_eq!((mixed.all().count(), apart.all().count()), (all_mixed.into(), all_apart.into()));
            assert_eq!((mixed.more_in_group(), apart.more_in_group()), (2, 4));
            for (number, group) in (0..16).flat_map(|number| mixed.groups().map(move |group| (number, group)))
            {
                let reference = UnitReference(number);
                let handle = if number < 3 * groups { number % 3 } else { 0 };
                for of in [Stream::User(reference), Stream::Cleaner(reference)] {
                    let (first, own) = (UnitReference(group.0 * 3), UnitReference(group.0 * 3 + handle));
                    assert_eq!(mixed.copies_of(of, group), Stream::Cleaner(first));
                    assert_eq!(apart.copies_of(of, group), Stream::Cleaner(own));
                }
            }
            assert_eq!(mixed.copies_of(Stream::Map, ReclaimGroup(0)), Stream::Map);
        }
    }

    /// Goal: each stream programs in one group, and leaves in the first one. Method: streams by group against those of all.
    #[test]
    fn streams_keep_to_their_group() {
        let all = streams(4, PlacementIsolation::Persistently, 8);
        let mut found = Vec::new();
        for group in all.groups() {
            for stream in all.all_in_group(group) {
                assert_eq!(all.group_of(stream), group, "{stream:?}");
                found.push(stream);
            }
        }
        found.sort_unstable();
        let mut expected: Vec<_> = all.all().collect();
        expected.sort_unstable();
        assert_eq!(found, expected);
        let last = all.of_host(ReclaimGroup(7), PlacementHandle(3));
        assert_eq!((last, all.handle_of(last)), (Stream::User(UnitReference(31)), PlacementHandle(3)));
        let chosen = |group| {
            all.chosen_group(PlacementTarget { group: Some(ReclaimGroup(group)), ..Default::default() })
        };
        assert_eq!((chosen(7), chosen(8)), (Some(ReclaimGroup(7)), None), "what there is not was not chosen");
    }
}
