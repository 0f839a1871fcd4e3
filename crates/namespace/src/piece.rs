//! Pieces of large commands: what one volume command may ask for, so that whoever schedules them can let others go
//! between. A piece is a whole number of logical blocks, which is all that AWUN = 0 promises to be atomic.

mod copy;

pub(crate) use copy::volume_copy;

use crate::contract::LbaRange;
use crate::definition::StoreIndex;
use diecut_units::{BufferMut, ContentMode, mark, mutant};
use diecut_volume::contract::{VolumeIndex, VolumeOperation};
use smallvec::SmallVec;

/// Logical blocks of one piece of a read, compare or verify.
pub const READ_PIECE_LBAS: u32 = 32;
/// Logical blocks of one piece of a write, which costs about twice a read.
pub const WRITE_PIECE_LBAS: u32 = 16;
/// Logical blocks of one piece of a deallocation or write zeroes, which touches the map only. Each piece is a durable
/// record of its own, so they are few. Where nothing is mapped a piece is longer: whoever knows the map says how long.
pub const MAP_PIECE_LBAS: u64 = 4096;

/// What is left of a deallocation or of zeroes: a piece of it is to be cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapRange {
    /// The store.
    pub store: StoreIndex,
    /// The volume.
    pub volume: VolumeIndex,
    /// Where it begins.
    pub first_iu: u64,
    /// How many there are, more than [`MAP_PIECE_LBAS`].
    pub iu_count: u64,
}

/// How a namespace's commands are cut.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cutting {
    pub(crate) content_mode: ContentMode,
    pub(crate) whole_writes: bool,
}

/// Sorts ranges and makes one of those that overlap or touch: a block that a host names many times is looked at once.
pub(crate) fn merge(ranges: &mut SmallVec<[LbaRange; 2]>) {
    ranges.retain(|range| range.lba_count > 0);
    if ranges.len() < 2 {
        return;
    }
    ranges.sort_unstable_by_key(|range| range.first_lba);
    let mut merged = 0;
    for at in 1..ranges.len() {
        let LbaRange { first_lba, lba_count } = ranges[at];
        let last = &mut ranges[merged];
        let last_end = last.first_lba + u64::from(last.lba_count);
        let mut end = first_lba + u64::from(lba_count);
        if first_lba <= last_end {
            mark!("namespace: ranges of a deallocation merged");
            if end <= last_end && !mutant!("namespace: merged ranges end with the last one") {
                continue;
            }
            end = end.max(last.first_lba + 1);
            if let Ok(count) = u32::try_from(end - last.first_lba) {
                last.lba_count = count;
                continue;
            }
        }
        // What is longer than a range can say goes on in the next one.
        let first_lba = first_lba.max(last_end);
        merged += 1;
        ranges[merged] = LbaRange { first_lba, lba_count: (end - first_lba) as u32 };
    }
    ranges.truncate(merged + 1);
}

/// Whether nothing would be left after the first piece.
#[inline]
pub(crate) fn is_one_piece(operation: &VolumeOperation, whole_writes: bool) -> bool {
    match operation {
        VolumeOperation::Read { iu_count, .. } | VolumeOperation::Verify { iu_count, .. } => {
            *iu_count <= READ_PIECE_LBAS
        }
        VolumeOperation::Write { payload, .. } => whole_writes || payload.iu_count() <= WRITE_PIECE_LBAS,
        VolumeOperation::Deallocate { iu_count, .. }
        | VolumeOperation::WriteUncorrectable { iu_count, .. }
        | VolumeOperation::WriteZeroes { iu_count, .. } => *iu_count <= MAP_PIECE_LBAS,
        VolumeOperation::Copy(copy) => copy::is_one_piece(copy, whole_writes),
        VolumeOperation::Flush | VolumeOperation::Purge => true,
    }
}

/// Cuts the first piece off; the second value is what is left, if anything.
pub(crate) fn cut(
    operation: VolumeOperation,
    Cutting { content_mode, whole_writes }: Cutting,
    map_piece: impl FnOnce(u64, u64) -> u64,
) -> (VolumeOperation, Option<VolumeOperation>) {
    if is_one_piece(&operation, whole_writes) {
        return (operation, None);
    }
    match operation {
        VolumeOperation::Read { first_iu, iu_count, destination } => {
            cut_read(first_iu, iu_count, destination, content_mode)
        }
        VolumeOperation::Verify { first_iu, iu_count } => {
            let (next_iu, left) = (first_iu + u64::from(READ_PIECE_LBAS), iu_count - READ_PIECE_LBAS);
            (
                VolumeOperation::Verify { first_iu, iu_count: READ_PIECE_LBAS },
                Some(VolumeOperation::Verify { first_iu: next_iu, iu_count: left }),
            )
        }
        VolumeOperation::Write { first_iu, payload, force_unit_access, placement } => {
            let front = payload.slice(0, WRITE_PIECE_LBAS);
            let left = payload.slice(WRITE_PIECE_LBAS, payload.iu_count() - WRITE_PIECE_LBAS);
            let next_iu = first_iu + u64::from(WRITE_PIECE_LBAS);
            (
                VolumeOperation::Write { first_iu, payload: front, force_unit_access, placement },
                Some(VolumeOperation::Write {
                    first_iu: next_iu,
                    payload: left,
                    force_unit_access,
                    placement,
                }),
            )
        }
        VolumeOperation::Deallocate { first_iu, iu_count } => {
            let piece = map_piece(first_iu, iu_count);
            let skipped = u64::from(mutant!("namespace: block skipped between pieces"));
            let left = iu_count - piece;
            if left <= skipped {
                return (operation, None);
            }
            mark!("namespace: deallocation of several pieces");
            (
                VolumeOperation::Deallocate { first_iu, iu_count: piece },
                Some(VolumeOperation::Deallocate {
                    first_iu: first_iu + piece + skipped,
                    iu_count: left - skipped,
                }),
            )
        }
        VolumeOperation::WriteZeroes { first_iu, iu_count, force_unit_access } => {
            let piece = map_piece(first_iu, iu_count);
            let (next_iu, left) = (first_iu + piece, iu_count - piece);
            let rest = VolumeOperation::WriteZeroes { first_iu: next_iu, iu_count: left, force_unit_access };
            (
                VolumeOperation::WriteZeroes { first_iu, iu_count: piece, force_unit_access },
                (left > 0).then_some(rest),
            )
        }
        VolumeOperation::WriteUncorrectable { first_iu, iu_count } => cut_lost(first_iu, iu_count),
        VolumeOperation::Copy(copy) => copy::cut(*copy),
        VolumeOperation::Flush | VolumeOperation::Purge => (operation, None),
    }
}

fn cut_read(
    first_iu: u64,
    iu_count: u32,
    mut destination: BufferMut,
    content_mode: ContentMode,
) -> (VolumeOperation, Option<VolumeOperation>) {
    let front = destination.split_to(READ_PIECE_LBAS as usize * content_mode.bytes_per_iu());
    let destination = if iu_count <= 2 * READ_PIECE_LBAS { destination.apart() } else { destination };
    let (next_iu, left) = (first_iu + u64::from(READ_PIECE_LBAS), iu_count - READ_PIECE_LBAS);
    (
        VolumeOperation::Read { first_iu, iu_count: READ_PIECE_LBAS, destination: front.apart() },
        Some(VolumeOperation::Read { first_iu: next_iu, iu_count: left, destination }),
    )
}

/// What the volume is asked for blocks that are to be unreadable.
pub(crate) fn lost(range: LbaRange) -> VolumeOperation {
    VolumeOperation::WriteUncorrectable { first_iu: range.first_lba, iu_count: range.lba_count.into() }
}

fn cut_lost(first_iu: u64, iu_count: u64) -> (VolumeOperation, Option<VolumeOperation>) {
    let (next_iu, left) = (first_iu + MAP_PIECE_LBAS, iu_count - MAP_PIECE_LBAS);
    (
        VolumeOperation::WriteUncorrectable { first_iu, iu_count: MAP_PIECE_LBAS },
        Some(VolumeOperation::WriteUncorrectable { first_iu: next_iu, iu_count: left }),
    )
}
