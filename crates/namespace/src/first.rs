//! What a volume is asked first of a command.

use crate::contract::NamespaceOperation;
use crate::definition::StoreIndex;
use crate::pending::{Extra, Rest};
use crate::piece::{self, Cutting, MapRange, READ_PIECE_LBAS, WRITE_PIECE_LBAS, is_one_piece};
use diecut_units::{BufferPool, Payload};
use diecut_volume::contract::{VolumeIndex, VolumeOperation};
use smallvec::SmallVec;

/// What the volume is asked, of a command of the usual kind: a read or write of one piece. Others are given back.
#[inline]
pub(crate) fn whole_piece(
    operation: NamespaceOperation,
    cutting: Cutting,
) -> Result<VolumeOperation, NamespaceOperation> {
    match operation {
        NamespaceOperation::Read { range, destination } if range.lba_count <= READ_PIECE_LBAS => {
            Ok(VolumeOperation::Read { first_iu: range.first_lba, iu_count: range.lba_count, destination })
        }
        NamespaceOperation::Write { range, data, force_unit_access }
            if cutting.whole_writes || range.lba_count <= WRITE_PIECE_LBAS =>
        {
            let payload = Payload::new(cutting.content_mode, data);
            Ok(VolumeOperation::Write { first_iu: range.first_lba, payload, force_unit_access })
        }
        other => Err(other),
    }
}

/// What the volume is asked first, of any command, and what else belongs to it. Nothing if there is nothing to do.
pub(crate) fn first_piece(
    operation: NamespaceOperation,
    (store, volume): (StoreIndex, VolumeIndex),
    cutting: Cutting,
    pool: &mut BufferPool,
    map_piece: &mut dyn FnMut(MapRange) -> u64,
) -> Option<(VolumeOperation, Option<Extra>)> {
    let mut extra = Extra::default();
    let mut ranges_left = SmallVec::new();
    let operation = match operation {
        NamespaceOperation::Read { range, destination } => {
            VolumeOperation::Read { first_iu: range.first_lba, iu_count: range.lba_count, destination }
        }
        NamespaceOperation::Write { range, data, force_unit_access } => VolumeOperation::Write {
            first_iu: range.first_lba,
            payload: Payload::new(cutting.content_mode, data),
            force_unit_access,
        },
        NamespaceOperation::Flush => VolumeOperation::Flush,
        NamespaceOperation::WriteZeroes { range, may_deallocate: _, force_unit_access } => {
            // Zeros need no space whether or not the host allows it: a volume stores none.
            VolumeOperation::WriteZeroes {
                first_iu: range.first_lba,
                iu_count: range.lba_count.into(),
                force_unit_access,
            }
        }
        NamespaceOperation::Verify { range } => {
            VolumeOperation::Verify { first_iu: range.first_lba, iu_count: range.lba_count }
        }
        NamespaceOperation::Compare { range, data } => {
            let destination = pool.take(data.len());
            extra.expected = Some(data);
            VolumeOperation::Read { first_iu: range.first_lba, iu_count: range.lba_count, destination }
        }
        NamespaceOperation::Deallocate { mut ranges } => {
            piece::merge(&mut ranges);
            ranges.reverse();
            let range = ranges.pop()?;
            ranges_left = ranges;
            VolumeOperation::Deallocate { first_iu: range.first_lba, iu_count: range.lba_count.into() }
        }
    };
    let operation = match operation {
        VolumeOperation::Read { first_iu, iu_count, destination } if iu_count > READ_PIECE_LBAS => {
            let (loan, destination) = destination.lend();
            extra.loan = Some(loan);
            VolumeOperation::Read { first_iu, iu_count, destination }
        }
        other => other,
    };
    let (piece, rest) = if ranges_left.is_empty() && is_one_piece(&operation, cutting.whole_writes) {
        (operation, None)
    } else {
        Rest { store, volume, operation, ranges: ranges_left }.cut(cutting, map_piece)
    };
    extra.rest = rest;
    let has_extra = extra.rest.is_some() || extra.loan.is_some() || extra.expected.is_some();
    Some((piece, has_extra.then_some(extra)))
}
