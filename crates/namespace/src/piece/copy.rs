//! Pieces of copies.

use super::WRITE_PIECE_LBAS;
use crate::contract::NamespaceCopy;
use diecut_units::{mark, mutant};
use diecut_volume::contract::{IuRange, VolumeCopy, VolumeOperation};

/// What the volume is asked for a copy.
pub(crate) fn volume_copy(copy: &NamespaceCopy) -> VolumeCopy {
    let range = |source: &crate::contract::LbaRange| IuRange {
        first_iu: source.first_lba,
        iu_count: source.lba_count,
    };
    VolumeCopy {
        sources: copy.sources.iter().map(range).collect(),
        first_iu: copy.first_lba,
        force_unit_access: copy.force_unit_access,
        placement: copy.placement,
    }
}

/// Whether a copy goes down whole: because it is small, because writes do, or because it would read what its first pieces have
/// written.
pub(super) fn is_one_piece(copy: &VolumeCopy, whole_writes: bool) -> bool {
    copy.iu_count() <= WRITE_PIECE_LBAS || whole_writes || overlaps(copy)
}

fn overlaps(copy: &VolumeCopy) -> bool {
    let (first, end) = (copy.first_iu, copy.first_iu + u64::from(copy.iu_count()));
    let meets =
        |source: &IuRange| source.first_iu < end && first < source.first_iu + u64::from(source.iu_count);
    copy.sources.iter().any(meets) && !mutant!("namespace: copies overtake themselves")
}

/// Cuts the first piece off a copy that is larger than one.
pub(super) fn cut(copy: VolumeCopy) -> (VolumeOperation, Option<VolumeOperation>) {
    let (piece, rest) = first_piece(copy);
    (VolumeOperation::Copy(Box::new(piece)), Some(VolumeOperation::Copy(Box::new(rest))))
}

fn first_piece(mut copy: VolumeCopy) -> (VolumeCopy, VolumeCopy) {
    mark!("namespace: copy of several pieces");
    let mut sources = Vec::new();
    let mut room = WRITE_PIECE_LBAS;
    let mut taken = 0;
    for source in &mut copy.sources {
        let count = source.iu_count.min(room);
        sources.push(IuRange { first_iu: source.first_iu, iu_count: count });
        room -= count;
        if count < source.iu_count {
            *source =
                IuRange { first_iu: source.first_iu + u64::from(count), iu_count: source.iu_count - count };
            break;
        }
        taken += 1;
        if room == 0 {
            break;
        }
    }
    copy.sources.drain(..taken);
    assert!(room == 0 && !copy.sources.is_empty(), "I-N1: a piece is cut off what is larger");
    let piece = VolumeCopy { sources, ..copy };
    copy.first_iu += u64::from(WRITE_PIECE_LBAS);
    (piece, copy)
}

#[cfg(test)]
mod test {
    use super::*;
    use diecut_volume::contract::{PlacementHandle, PlacementTarget};

    /// Goal: pieces of a copy are all of it, in order. Method: what every piece says of each block, for ranges of all lengths.
    #[test]
    fn pieces_are_the_whole() {
        let sources: Vec<IuRange> =
            (1..20).map(|n| IuRange { first_iu: n * 1000, iu_count: (n * 7 % 23 + 1) as u32 }).collect();
        let whole = VolumeCopy {
            sources,
            first_iu: 500_000,
            force_unit_access: true,
            placement: PlacementTarget::handle(PlacementHandle(2)),
        };
        let blocks = |copy: &VolumeCopy| -> Vec<(u64, u64)> {
            let read =
                copy.sources.iter().flat_map(|one| one.first_iu..one.first_iu + u64::from(one.iu_count));
            read.zip(copy.first_iu..).collect()
        };
        let (mut rest, mut found) = (whole.clone(), Vec::new());
        while !is_one_piece(&rest, false) {
            let (piece, next) = first_piece(rest);
            assert!(piece.iu_count() == WRITE_PIECE_LBAS && piece.force_unit_access);
            found.extend(blocks(&piece));
            rest = next;
        }
        found.extend(blocks(&rest));
        assert_eq!(found, blocks(&whole));
        assert!(is_one_piece(&whole, true));
        let near = VolumeCopy { first_iu: 1000 + 1, ..whole };
        assert!(is_one_piece(&near, false), "it would read what it has written");
    }
}
