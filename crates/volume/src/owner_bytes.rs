//! What an anchor says of volumes, of loss and of figures.
//!
//! The owner's bytes of an anchor, little endian:
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

use crate::endurance::EnduranceFigures;
use crate::loss::AcceptedLoss;
use crate::map::{self, LEAF_VOLUME, Maps};
use crate::positions;
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

const _: () = {
    assert!(size_of::<VolumeHeader>() == 12);
    assert!(size_of::<Habits>() == 24 && size_of::<Figures>() == 32);
};

/// Bytes of an anchor that names so many volumes, with so many leaves together.
pub(crate) fn size_bytes(volumes: usize, leaves: usize) -> usize {
    let words = size_of::<U32>() * (1 + leaves);
    words + size_of::<VolumeHeader>() * volumes + size_of::<Habits>() + size_of::<Figures>()
}

/// Writes them down.
pub(crate) fn encode(
    capacity_bytes: usize,
    accepted: AcceptedLoss,
    figures: EnduranceFigures,
    maps: &Maps,
) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(capacity_bytes);
    let existing = || maps.volumes.iter().enumerate().filter(|(_, map)| map.exists);
    bytes.extend(U32::from(existing().count() as u32).as_bytes());
    for (volume, map) in existing() {
        let (volume, size_ius) = ((volume as u16).into(), map.size_ius.into());
        bytes.extend(VolumeHeader { volume, reserved: 0.into(), size_ius }.as_bytes());
        map.leaves.iter().for_each(|leaf| bytes.extend(U32::from(positions::of(*leaf)).as_bytes()));
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

/// What an anchor says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct OwnerBytes {
    /// Number, size and leaves of each volume.
    pub volumes: Vec<(u16, u64, Vec<u32>)>,
    /// Absent in one of a version that gave empty leaves back without a record.
    pub accepted: Option<AcceptedLoss>,
    /// Absent in one of a version that kept none.
    pub figures: Option<EnduranceFigures>,
}

impl OwnerBytes {
    /// IUs of all volumes.
    pub fn size_ius(&self) -> u64 {
        self.volumes.iter().fold(0, |sum, (_, size_ius, _)| sum.saturating_add(*size_ius))
    }
}

/// Reads them; `None` if they cannot be an anchor's.
pub(crate) fn decode(bytes: &[u8]) -> Option<OwnerBytes> {
    let (count, mut rest) = U32::ref_from_prefix(bytes).ok()?;
    let mut volumes = Vec::new();
    for _ in 0..count.get() {
        let (header, behind) = VolumeHeader::ref_from_prefix(rest).ok()?;
        let (volume, size_ius) = (header.volume.get(), header.size_ius.get());
        let leaves = usize::try_from(size_ius.div_ceil(map::LEAF_ENTRIES as u64)).ok()?;
        let (leaves, behind) = <[U32]>::ref_from_prefix_with_elems(behind, leaves).ok()?;
        rest = behind;
        if volume == LEAF_VOLUME {
            return None;
        }
        volumes.push((volume, size_ius, leaves.iter().map(|leaf| leaf.get()).collect()));
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
        let volumes = vec![(0x0103, 1024, vec![0x0403_0201]), (5, 1025, vec![7, u32::MAX])];
        let found = |accepted, figures| Some(OwnerBytes { volumes: volumes.clone(), accepted, figures });
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
        let bytes = encode(size_bytes(2, 4), accepted, figures, &maps);
        assert_eq!(bytes.len(), size_bytes(2, 4));
        let read = decode(&bytes).expect("an anchor's");
        assert_eq!((read.size_ius(), read.accepted, read.figures), (3000, Some(accepted), Some(figures)));
    }
}
