//! Pieces of large commands: what one volume command may ask for, so that whoever schedules them can let others go
//! between. A piece is a whole number of logical blocks, which is all that AWUN = 0 promises to be atomic.

use diecut_units::{ContentMode, mark, mutant};
use diecut_volume::contract::VolumeOperation;

/// Logical blocks of one piece of a read, compare or verify.
pub const READ_PIECE_LBAS: u32 = 32;
/// Logical blocks of one piece of a write, which costs about twice a read.
pub const WRITE_PIECE_LBAS: u32 = 16;
/// Logical blocks of one piece of a deallocation or write zeroes, which touches the map only. Each piece is a durable
/// record of its own, so they are few.
pub const MAP_PIECE_LBAS: u64 = 4096;

/// Whether nothing would be left after the first piece.
#[inline]
pub(crate) fn is_one_piece(operation: &VolumeOperation, whole_writes: bool) -> bool {
    match operation {
        VolumeOperation::Read { iu_count, .. } | VolumeOperation::Verify { iu_count, .. } => {
            *iu_count <= READ_PIECE_LBAS
        }
        VolumeOperation::Write { payload, .. } => whole_writes || payload.iu_count() <= WRITE_PIECE_LBAS,
        VolumeOperation::Deallocate { iu_count, .. } | VolumeOperation::WriteZeroes { iu_count, .. } => {
            *iu_count <= MAP_PIECE_LBAS
        }
        VolumeOperation::Flush => true,
    }
}

/// Cuts the first piece off; the second value is what is left, if anything.
pub(crate) fn cut(
    operation: VolumeOperation,
    content_mode: ContentMode,
    whole_writes: bool,
) -> (VolumeOperation, Option<VolumeOperation>) {
    if is_one_piece(&operation, whole_writes) {
        return (operation, None);
    }
    match operation {
        VolumeOperation::Read { first_iu, iu_count, mut destination } => {
            let front = destination.split_to(READ_PIECE_LBAS as usize * content_mode.bytes_per_iu());
            let destination = if iu_count <= 2 * READ_PIECE_LBAS { destination.apart() } else { destination };
            let (next_iu, left) = (first_iu + u64::from(READ_PIECE_LBAS), iu_count - READ_PIECE_LBAS);
            (
                VolumeOperation::Read { first_iu, iu_count: READ_PIECE_LBAS, destination: front.apart() },
                Some(VolumeOperation::Read { first_iu: next_iu, iu_count: left, destination }),
            )
        }
        VolumeOperation::Verify { first_iu, iu_count } => {
            let (next_iu, left) = (first_iu + u64::from(READ_PIECE_LBAS), iu_count - READ_PIECE_LBAS);
            (
                VolumeOperation::Verify { first_iu, iu_count: READ_PIECE_LBAS },
                Some(VolumeOperation::Verify { first_iu: next_iu, iu_count: left }),
            )
        }
        VolumeOperation::Write { first_iu, payload, force_unit_access } => {
            let front = payload.slice(0, WRITE_PIECE_LBAS);
            let left = payload.slice(WRITE_PIECE_LBAS, payload.iu_count() - WRITE_PIECE_LBAS);
            let next_iu = first_iu + u64::from(WRITE_PIECE_LBAS);
            (
                VolumeOperation::Write { first_iu, payload: front, force_unit_access },
                Some(VolumeOperation::Write { first_iu: next_iu, payload: left, force_unit_access }),
            )
        }
        VolumeOperation::Deallocate { first_iu, iu_count } => {
            mark!("namespace: deallocation of several pieces");
            let skipped = u64::from(mutant!("namespace: block skipped between pieces"));
            let next_iu = first_iu + MAP_PIECE_LBAS + skipped;
            let left = iu_count - MAP_PIECE_LBAS - skipped;
            (
                VolumeOperation::Deallocate { first_iu, iu_count: MAP_PIECE_LBAS },
                Some(VolumeOperation::Deallocate { first_iu: next_iu, iu_count: left }),
            )
        }
        VolumeOperation::WriteZeroes { first_iu, iu_count, force_unit_access } => {
            let (next_iu, left) = (first_iu + MAP_PIECE_LBAS, iu_count - MAP_PIECE_LBAS);
            (
                VolumeOperation::WriteZeroes { first_iu, iu_count: MAP_PIECE_LBAS, force_unit_access },
                Some(VolumeOperation::WriteZeroes { first_iu: next_iu, iu_count: left, force_unit_access }),
            )
        }
        VolumeOperation::Flush => (operation, None),
    }
}
