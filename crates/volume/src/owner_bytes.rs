//! What an anchor says of volumes, of loss and of figures.
//!
//! The owner's bytes of an anchor of version 1, little endian:
//!
//! | offset | size | field        | meaning                                                       |
//! |-------:|-----:|--------------|---------------------------------------------------------------|
//! |      0 |    4 | volume_count | volumes that follow                                           |
//! |      4 |    2 | volume       | number of the volume                                          |
//! |      6 |    2 | reserved     | zero                                                          |
//! |      8 |    8 | size_ius     | its size                                                      |
//! |     16 |  4*n | leaves       | where each leaf lies (`n` = size / 1024, rounded up); FFFF_FFFF: no entries |
//!
//! Bytes 4 to the end of `leaves` are repeated for each volume. A leaf is one IU: 1024 entries of 4 bytes, each the log
//! address of an IU, FFFF_FFFF where there is none, FFFF_FFFE where it was lost and that was accepted. Behind the last volume:
//!
//! | offset | size | field   | meaning                                                                           |
//! |-------:|-----:|---------|-----------------------------------------------------------------------------------|
//! |      0 |    4 | magic   | "dhab"; versions that wrote none gave leaves back that became empty, without a record |
//! |      4 |    4 | reserved| zero                                                                              |
//! |      8 |    8 | ius     | IUs whose reads failed when loss was last accepted                                |
//! |     16 |    8 | records | lost records that were accepted since the store was made                          |
//! |     24 |    4 | figures_magic | "dfig"; versions that wrote none counted from each start on, and their figures begin with this start |
//! |     28 |    4 | figures_reserved | zero                                                                     |
//! |     32 |    8 | host_written_ius | IUs that hosts wrote since the store was made, when the anchor was taken |
//! |     40 |    8 | media_written_ius | IUs that were programmed for it                                         |
//! |     48 |    8 | erases  | erase blocks that were erased for it                                              |
//!
//! Those of an anchor of version 2:
//!
//! | offset | size | field   | meaning                                                                           |
//! |-------:|-----:|---------|-----------------------------------------------------------------------------------|
//! |      0 |    4 | volume_count | volumes that follow                                                          |
//! |      4 |    4 | zeros   | zero                                                                              |
//! |      8 |    8 | ius     | IUs whose reads failed when loss was last accepted                                |
//! |     16 |    8 | records | lost records that were accepted since the store was made                          |
//! |     24 |    8 | host_written_ius | IUs that hosts wrote since the store was made, when the anchor was taken |
//! |     32 |    8 | media_written_ius | IUs that were programmed for it                                         |
//! |     40 |    8 | erases  | erase blocks that were erased for it                                              |
//! |     48 |    4 | volume  | number of the volume                                                              |
//! |     52 |    1 | levels  | 0: `leaves` has all of them                                                       |
//! |     53 |    3 | zeros   | zero                                                                              |
//! |     56 |    8 | size_ius | its size                                                                         |
//! |     64 |    4 | snapshot | the newest one; zero: there is none                                              |
//! |     68 |    4 | zeros   | zero                                                                              |
//! |     72 |    8 | old_iu  | first IU that leaves of 1024 positions have, a multiple of 1024; from `size_ius` on: there are none |
//! |     80 |    8 | root    | entry of the root; zero without levels                                            |
//! |     88 |  8*n | leaves  | entry of each leaf (`n` = size / 504, rounded up); zero: no entries               |
//! |    ... |  4*o | old_leaves | where each leaf of 1024 positions from `old_iu` on lies; FFFF_FFFF: none       |
//!
//! Bytes 48 to the end of `old_leaves` are repeated for each volume. What a leaf of 504 entries says counts, and not what one of 1024 positions
//! says of the same IUs.

use crate::endurance::EnduranceFigures;
use crate::leaf::{LeafEntry, LeafState};
use crate::loss::AcceptedLoss;
use crate::map::{self, LeafKind, Maps, VolumeMap};
use crate::positions;
use diecut_log::{Check, Format, LogAddress, MapEntry};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

const HABITS_MAGIC: [u8; 4] = *b"dhab";
const FIGURES_MAGIC: [u8; 4] = *b"dfig";

/// What stands in front of the leaves of each volume.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct VolumeHeader {
    volume: U16,
    reserved: U16,
    size_ius: U64,
}

/// What stands behind the last volume.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Habits {
    magic: [u8; 4],
    reserved: U32,
    ius: U64,
    records: U64,
}

/// What stands behind that.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Figures {
    magic: [u8; 4],
    reserved: U32,
    host_written_ius: U64,
    media_written_ius: U64,
    erases: U64,
}

/// What stands in front of all volumes in version 2.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Front {
    volume_count: U32,
    zeros: U32,
    ius: U64,
    records: U64,
    host_written_ius: U64,
    media_written_ius: U64,
    erases: U64,
}

/// What stands in front of the leaves of each volume in version 2.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct VolumeFront {
    volume: U32,
    levels: u8,
    zeros: [u8; 3],
    size_ius: U64,
    snapshot: U32,
    zeros_too: U32,
    old_iu: U64,
    root: U64,
}

const _: () = {
    assert!(size_of::<VolumeHeader>() == 12);
    assert!(size_of::<Habits>() == 24 && size_of::<Figures>() == 32);
    assert!(size_of::<Front>() == 48 && size_of::<VolumeFront>() == 40);
};

/// Old leaves of a volume that an anchor of version 2 names: from the first one that there is.
fn old_leaves(map: &VolumeMap) -> &[LogAddress] {
    let first = map.old.iter().position(|place| place.is_place());
    first.map_or(&[], |first| &map.old[first..])
}

/// Bytes that [`encode`] writes.
pub(crate) fn size_bytes(format: Format, maps: &Maps) -> usize {
    let existing = maps.volumes.iter().filter(|map| map.exists);
    match format {
        Format::Two => {
            let of_volumes =
                existing.map(|map| size_of::<VolumeHeader>() + size_of::<U32>() * map.leaves.len());
            let behind = size_of::<Habits>() + size_of::<Figures>();
            size_of::<U32>() + of_volumes.sum::<usize>() + behind
        }
        Format::Three => {
            let of_leaves =
                |map: &VolumeMap| size_of::<U64>() * map.leaves.len() + size_of::<U32>() * old_count(map);
            let of_volumes = existing.map(|map| size_of::<VolumeFront>() + of_leaves(map));
            size_of::<Front>() + of_volumes.sum::<usize>()
        }
    }
}

fn old_count(map: &VolumeMap) -> usize {
    let old = old_leaves(map).len();
    if old == 0 { 0 } else { old + LeafKind::Old.leaves_of(map.size_ius as usize) - map.old.len() }
}

/// Writes them down.
pub(crate) fn encode(
    format: Format,
    accepted: AcceptedLoss,
    figures: EnduranceFigures,
    maps: &Maps,
) -> Vec<u8> {
    let bytes = match format {
        Format::Two => encode_one(accepted, figures, maps),
        Format::Three => encode_two(accepted, figures, maps),
    };
    debug_assert_eq!(bytes.len(), size_bytes(format, maps), "I-M23: the size of an anchor is known before");
    bytes
}

fn encode_two(accepted: AcceptedLoss, figures: EnduranceFigures, maps: &Maps) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(size_bytes(Format::Three, maps));
    let existing = || maps.volumes.iter().enumerate().filter(|(_, map)| map.exists);
    let front = Front {
        volume_count: (existing().count() as u32).into(),
        zeros: 0.into(),
        ius: accepted.ius.into(),
        records: accepted.records.into(),
        host_written_ius: figures.host_written_ius.into(),
        media_written_ius: figures.media_written_ius.into(),
        erases: figures.erases.into(),
    };
    bytes.extend(front.as_bytes());
    for (volume, map) in existing() {
        assert_eq!(map.kind(), LeafKind::New, "I-M22: an anchor of version 2 names leaves of the new format");
        let count = old_count(map);
        let all = LeafKind::Old.leaves_of(map.size_ius as usize);
        let old_iu = if count == 0 { map.size_ius } else { LeafKind::Old.ius_of(all - count).start as u64 };
        let front = VolumeFront {
            volume: (volume as u32).into(),
            levels: 0,
            zeros: [0; 3],
            size_ius: map.size_ius.into(),
            snapshot: 0.into(),
            zeros_too: 0.into(),
            old_iu: old_iu.into(),
            root: 0.into(),
        };
        bytes.extend(front.as_bytes());
        for leaf in &map.leaves {
            bytes.extend(U64::from(LeafEntry::of(*leaf).word()).as_bytes());
        }
        let named = old_leaves(map).iter().copied().chain(std::iter::repeat(LogAddress::NONE)).take(count);
        named.for_each(|leaf| bytes.extend(U32::from(positions::of(leaf)).as_bytes()));
    }
    bytes
}

fn encode_one(accepted: AcceptedLoss, figures: EnduranceFigures, maps: &Maps) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(size_bytes(Format::Two, maps));
    let existing = || maps.volumes.iter().enumerate().filter(|(_, map)| map.exists);
    bytes.extend(U32::from(existing().count() as u32).as_bytes());
    for (volume, map) in existing() {
        let (volume, size_ius) = ((volume as u16).into(), map.size_ius.into());
        bytes.extend(VolumeHeader { volume, reserved: 0.into(), size_ius }.as_bytes());
        map.leaves.iter().for_each(|leaf| bytes.extend(U32::from(positions::of(leaf.get())).as_bytes()));
    }
    let (ius, records) = (accepted.ius.into(), accepted.records.into());
    bytes.extend(Habits { magic: HABITS_MAGIC, reserved: 0.into(), ius, records }.as_bytes());
    let figures = Figures {
        magic: FIGURES_MAGIC,
        reserved: 0.into(),
        host_written_ius: figures.host_written_ius.into(),
        media_written_ius: figures.media_written_ius.into(),
        erases: figures.erases.into(),
    };
    bytes.extend(figures.as_bytes());
    bytes
}

/// What an anchor says of a volume.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct OwnedVolume {
    pub number: u16,
    pub size_ius: u64,
    /// Of version 1, leaves of 1024 positions.
    pub leaves: Vec<MapEntry>,
    /// In version 2: leaves of 1024 positions, by their numbers.
    pub old: Vec<LogAddress>,
}

/// What an anchor says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct OwnerBytes {
    pub volumes: Vec<OwnedVolume>,
    /// Absent in one of a version that gave empty leaves back without a record.
    pub accepted: Option<AcceptedLoss>,
    /// Absent in one of a version that kept none.
    pub figures: Option<EnduranceFigures>,
}

impl OwnerBytes {
    /// IUs of all volumes.
    pub fn size_ius(&self) -> u64 {
        self.volumes.iter().fold(0, |sum, volume| sum.saturating_add(volume.size_ius))
    }
}

/// Reads them; `None` if they cannot be an anchor's.
pub(crate) fn decode(format: Format, bytes: &[u8]) -> Option<OwnerBytes> {
    match format {
        Format::Two => decode_one(bytes),
        Format::Three => decode_two(bytes),
    }
}

fn decode_two(bytes: &[u8]) -> Option<OwnerBytes> {
    let (front, mut rest) = Front::ref_from_prefix(bytes).ok()?;
    let mut volumes = Vec::new();
    for _ in 0..front.volume_count.get() {
        let (volume, behind) = VolumeFront::ref_from_prefix(rest).ok()?;
        let number = u16::try_from(volume.volume.get()).ok().filter(|number| !map::is_of_leaves(*number))?;
        let (size_ius, old_iu) = (volume.size_ius.get(), volume.old_iu.get());
        let is_plain = volume.levels == 0 && volume.root.get() == 0 && volume.snapshot.get() == 0;
        let are_zeros = volume.zeros == [0; 3] && volume.zeros_too.get() == 0;
        let has_old = old_iu < size_ius;
        let old_entries = LeafKind::Old.entries() as u64;
        if !is_plain || !are_zeros || has_old && !old_iu.is_multiple_of(old_entries) {
            return None;
        }
        let leaves = LeafKind::New.leaves_of(usize::try_from(size_ius).ok()?);
        let (leaves, behind) = <[U64]>::ref_from_prefix_with_elems(behind, leaves).ok()?;
        let before = (old_iu / old_entries) as usize;
        let count = if has_old { LeafKind::Old.leaves_of(size_ius as usize) - before } else { 0 };
        let (old, behind) = <[U32]>::ref_from_prefix_with_elems(behind, count).ok()?;
        rest = behind;
        let leaves = leaves.iter().map(|word| leaf_in_map(LeafEntry::of_word(word.get())?));
        let leaves = leaves.collect::<Option<_>>()?;
        let old = old.iter().map(|leaf| positions::leaf_at(leaf.get()));
        let old = if has_old {
            std::iter::repeat_n(LogAddress::NONE, before).chain(old).collect()
        } else {
            Vec::new()
        };
        volumes.push(OwnedVolume { number, size_ius, leaves, old });
    }
    let accepted = AcceptedLoss { ius: front.ius.get(), records: front.records.get() };
    let figures = EnduranceFigures {
        host_written_ius: front.host_written_ius.get(),
        media_written_ius: front.media_written_ius.get(),
        erases: front.erases.get(),
    };
    let is_all = rest.is_empty() && front.zeros.get() == 0;
    is_all.then_some(OwnerBytes { volumes, accepted: Some(accepted), figures: Some(figures) })
}

/// The place of a leaf that an anchor names; whether there is such a place is not looked at.
fn leaf_in_map(entry: LeafEntry) -> Option<MapEntry> {
    let LeafEntry { state, place, is_versioned: false, is_framed: false, check } = entry else { return None };
    match state {
        LeafState::Nothing => Some(MapEntry::NONE),
        LeafState::Data => Some(MapEntry::data(LogAddress::at(place), Check::of(check.into()))),
        _ => None,
    }
}

fn decode_one(bytes: &[u8]) -> Option<OwnerBytes> {
    let (count, mut rest) = U32::ref_from_prefix(bytes).ok()?;
    let mut volumes = Vec::new();
    for _ in 0..count.get() {
        let (header, behind) = VolumeHeader::ref_from_prefix(rest).ok()?;
        let (number, size_ius) = (header.volume.get(), header.size_ius.get());
        let leaves = LeafKind::Old.leaves_of(usize::try_from(size_ius).ok()?);
        let (leaves, behind) = <[U32]>::ref_from_prefix_with_elems(behind, leaves).ok()?;
        rest = behind;
        if map::is_of_leaves(number) {
            return None;
        }
        let leaves = leaves.iter().map(|leaf| positions::leaf_at(leaf.get()).into()).collect();
        volumes.push(OwnedVolume { number, size_ius, leaves, old: Vec::new() });
    }
    let habits = Habits::ref_from_prefix(rest).ok().filter(|(habits, _)| habits.magic == HABITS_MAGIC);
    let accepted =
        habits.map(|(habits, _)| AcceptedLoss { ius: habits.ius.get(), records: habits.records.get() });
    let figures = habits.and_then(|(_, behind)| Figures::ref_from_prefix(behind).ok());
    let figures = figures.filter(|(figures, _)| figures.magic == FIGURES_MAGIC);
    let figures = figures.map(|(figures, _)| EnduranceFigures {
        host_written_ius: figures.host_written_ius.get(),
        media_written_ius: figures.media_written_ius.get(),
        erases: figures.erases.get(),
    });
    Some(OwnerBytes { volumes, accepted, figures })
}

#[cfg(test)]
mod test {
    use super::*;

    /// Goal: the layout is pinned. Method: bytes written by hand.
    #[test]
    fn the_bytes_of_volumes() {
        let written = [
            &[2, 0, 0, 0][..],
            &[3, 1, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4],
            &[5, 0, 0, 0, 1, 4, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0xff, 0xff, 0xff, 0xff],
        ]
        .concat();
        let at = |place| LogAddress::at(place).into();
        let volume = |number, size_ius, leaves| OwnedVolume { number, size_ius, leaves, old: Vec::new() };
        let found = |accepted, figures| {
            let second = volume(5, 1025, vec![at(7), MapEntry::NONE]);
            let volumes = vec![volume(0x0103, 1024, vec![at(0x0403_0201)]), second];
            Some(OwnerBytes { volumes, accepted, figures })
        };
        let decode = |bytes: &[u8]| decode(Format::Two, bytes);
        assert_eq!(decode(&written), found(None, None));
        let habits = *b"dhab\0\0\0\0\x01\x02\0\0\0\0\0\0\x03\0\0\0\0\0\0\0";
        let accepted = Some(AcceptedLoss { ius: 0x0201, records: 3 });
        assert_eq!(decode(&[&written[..], &habits].concat()), found(accepted, None));
        let figures = b"dfig\0\0\0\0\x01\x02\0\0\0\0\0\0\x05\x06\0\0\0\0\0\0\x07\0\0\0\0\0\0\0";
        let kept = EnduranceFigures { host_written_ius: 0x0201, media_written_ius: 0x0605, erases: 7 };
        assert_eq!(decode(&[&written[..], &habits, figures].concat()), found(accepted, Some(kept)));
        assert_eq!(decode(&[&written[..], &habits, &figures[..31]].concat()), found(accepted, None));
        assert_eq!(decode(&written[..written.len() - 1]), None, "cut short");
    }

    /// Goal: the layout of version 2 is pinned, and what makes no sense is refused. Method: bytes written by hand.
    #[test]
    fn the_bytes_of_volumes_of_version_2() {
        let mut maps = Maps::default();
        for (volume, size_ius) in [(0x0103, 1025), (5, 504)] {
            maps.volume(volume).exists = true;
            maps.volume(volume).resize(size_ius, 1);
        }
        maps.volume(0x0103).leaves[1] = LogAddress::at(0x0403_0201).into();
        maps.recut(1);
        let place = LogAddress::at(0x15_1413_1211);
        maps.volume(0x0103).leaves[2] = MapEntry::data(place, Check::of(0x1234_5678));
        let accepted = AcceptedLoss { ius: 0x0201, records: 3 };
        let figures = EnduranceFigures { host_written_ius: 0x0302, media_written_ius: 0x0605, erases: 7 };
        let golden = [
            &[2, 0, 0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0][..],
            &[2, 3, 0, 0, 0, 0, 0, 0, 5, 6, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0],
            &[5, 0, 0, 0, 0, 0, 0, 0, 0xf8, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            &[0xf8, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            &[0; 8],
            &[3, 1, 0, 0, 0, 0, 0, 0, 1, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            &[0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            &[0; 16],
            &[0x11, 0x12, 0x13, 0x14, 0x15, 1, 0x78, 0x56],
            &[1, 2, 3, 4],
        ];
        let golden = golden.concat();
        assert_eq!(encode(Format::Three, accepted, figures, &maps), golden);
        let read = decode(Format::Three, &golden).expect("an anchor's");
        assert_eq!((read.accepted, read.figures), (Some(accepted), Some(figures)));
        let of = |at: usize| &read.volumes[at];
        assert_eq!((of(0).number, of(0).size_ius, &of(0).old[..]), (5, 504, &[][..]));
        assert_eq!((of(1).number, of(1).size_ius), (0x0103, 1025));
        assert_eq!(of(1).leaves, maps.volume(0x0103).leaves);
        assert_eq!(of(1).old, [LogAddress::NONE, LogAddress::at(0x0403_0201)]);
        for (what, at, value) in [
            ("zeros", 4, 1),
            ("a volume that none is", 51, 1),
            ("levels", 52, 1),
            ("zeros of a volume", 53, 1),
            ("a snapshot", 64, 1),
            ("more zeros", 68, 1),
            ("old leaves that begin in one", 136, 1),
            ("a root", 80, 1),
            ("a place of a leaf without data", 88, 1),
            ("a leaf that is lost", 93, 3),
        ] {
            let mut bad = golden.clone();
            bad[at] = value;
            assert_eq!(decode(Format::Three, &bad), None, "{what}");
        }
        assert_eq!(decode(Format::Three, &golden[..golden.len() - 1]), None, "cut short");
        assert_eq!(decode(Format::Three, &[&golden[..], &[0]].concat()), None, "more than that");
    }

    /// Goal: what is written is read, and its size is known before.
    #[test]
    fn what_is_written_is_read() {
        let mut maps = Maps::default();
        for volume in [1, 4] {
            maps.volume(volume).exists = true;
            maps.volume(volume).resize(1500, 1);
        }
        let accepted = AcceptedLoss { ius: 1, records: 2 };
        let figures = EnduranceFigures { host_written_ius: 3, media_written_ius: 4, erases: 5 };
        for format in [Format::Two, Format::Three] {
            let bytes = encode(format, accepted, figures, &maps);
            assert_eq!(bytes.len(), size_bytes(format, &maps));
            let read = decode(format, &bytes).expect("an anchor's");
            assert_eq!((read.size_ius(), read.accepted, read.figures), (3000, Some(accepted), Some(figures)));
            if format == Format::Two {
                maps.recut(1);
            }
        }
    }
}
