//! A volume of a store: a command goes to it in pieces, the usual one as a whole.

use crate::backend::{Backend, Begun, MapPiece, Scratch, VolumePlace};
use crate::contract::{LbaRange, NamespaceOperation};
use crate::definition::StoreIndex;
use crate::pending::{Extra, Rest};
use crate::piece::{self, Cutting, MapRange, READ_PIECE_LBAS, WRITE_PIECE_LBAS, is_one_piece};
use diecut_units::{BufferPool, Payload};
use diecut_volume::contract::{PlacementTarget, VolumeIndex, VolumeOperation};
use smallvec::SmallVec;

/// See the module.
pub(crate) struct Volume {
    pub(super) place: VolumePlace,
    pub(super) cutting: Cutting,
}

impl Backend for Volume {
    fn purges(&self) -> bool {
        true
    }

    #[inline]
    fn begin(
        &self,
        operation: NamespaceOperation,
        scratch: &mut Scratch,
        map_piece: &mut MapPiece<'_>,
    ) -> Begun {
        match whole_piece(operation, self.cutting) {
            Ok(piece) => Begun::Asks(self.place, piece, None),
            Err(operation) => match self.first_piece(operation, &mut scratch.pool, map_piece) {
                Some((piece, extra)) => Begun::Asks(self.place, piece, extra),
                None => Begun::Answered(Ok(()), None),
            },
        }
    }

    fn go_on(
        &self,
        rest: Rest,
        map_piece: &mut MapPiece<'_>,
    ) -> (VolumePlace, VolumeOperation, Option<Rest>) {
        let (piece, rest) = self.cut(rest, map_piece);
        (self.place, piece, rest)
    }

    #[inline]
    fn place_of_read(&self, range: LbaRange) -> Option<(StoreIndex, VolumeIndex, u64)> {
        let (store, volume) = self.place;
        Some((store, volume, range.first_lba))
    }

    fn moved(&mut self, store: StoreIndex) {
        self.place.0 = store;
    }

    fn set_whole_writes(&mut self, whole_writes: bool) {
        self.cutting.whole_writes = whole_writes;
    }
}

impl Volume {
    /// What the volume is asked first, of any command, and what else belongs to it. Nothing if there is nothing to do.
    fn first_piece(
        &self,
        operation: NamespaceOperation,
        pool: &mut BufferPool,
        map_piece: &mut MapPiece<'_>,
    ) -> Option<(VolumeOperation, Option<Extra>)> {
        let mut extra = Extra::default();
        let mut ranges_left = SmallVec::new();
        let operation = match operation {
            NamespaceOperation::Read { range, destination } => {
                VolumeOperation::Read { first_iu: range.first_lba, iu_count: range.lba_count, destination }
            }
            NamespaceOperation::Write { range, data, force_unit_access, placement } => {
                write(range, Payload::new(self.cutting.content_mode, data), force_unit_access, placement)
            }
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
            NamespaceOperation::WriteUncorrectable { range } => piece::lost(range),
            NamespaceOperation::Copy(copy) => VolumeOperation::Copy(Box::new(piece::volume_copy(&copy))),
            NamespaceOperation::Compare { range, data } => {
                let destination = pool.take(data.len());
                extra.expected = Some(data);
                VolumeOperation::Read { first_iu: range.first_lba, iu_count: range.lba_count, destination }
            }
            NamespaceOperation::Purge => VolumeOperation::Purge,
            NamespaceOperation::Zone(_) | NamespaceOperation::Chunk(_) => no_zones(),
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
        let (piece, rest) = if ranges_left.is_empty() && is_one_piece(&operation, self.cutting.whole_writes) {
            (operation, None)
        } else {
            self.cut(Rest { operation, ranges: ranges_left }, map_piece)
        };
        extra.rest = rest;
        let has_extra = extra.rest.is_some() || extra.loan.is_some() || extra.expected.is_some();
        Some((piece, has_extra.then_some(extra)))
    }

    /// Cuts the next piece off; the second value is what comes after it, if anything does.
    #[inline]
    fn cut(&self, rest: Rest, map_piece: &mut MapPiece<'_>) -> (VolumeOperation, Option<Rest>) {
        let Rest { operation, mut ranges } = rest;
        let (store, volume) = self.place;
        let range_of = |first_iu, iu_count| MapRange { store, volume, first_iu, iu_count };
        let (piece, left) =
            piece::cut(operation, self.cutting, |first_iu, iu_count| map_piece(range_of(first_iu, iu_count)));
        let next = left.or_else(|| {
            let range = ranges.pop()?;
            Some(VolumeOperation::Deallocate { first_iu: range.first_lba, iu_count: range.lba_count.into() })
        });
        (piece, next.map(|operation| Rest { operation, ranges }))
    }
}

/// What the volume is asked, of a command of the usual kind: a read or write of one piece. Others are given back.
#[inline]
fn whole_piece(
    operation: NamespaceOperation,
    cutting: Cutting,
) -> Result<VolumeOperation, NamespaceOperation> {
    match operation {
        NamespaceOperation::Read { range, destination } if range.lba_count <= READ_PIECE_LBAS => {
            Ok(VolumeOperation::Read { first_iu: range.first_lba, iu_count: range.lba_count, destination })
        }
        NamespaceOperation::Write { range, data, force_unit_access, placement }
            if cutting.whole_writes || range.lba_count <= WRITE_PIECE_LBAS =>
        {
            let payload = Payload::new(cutting.content_mode, data);
            Ok(write(range, payload, force_unit_access, placement))
        }
        other => Err(other),
    }
}

#[inline]
fn write(
    range: LbaRange,
    payload: Payload,
    force_unit_access: bool,
    placement: PlacementTarget,
) -> VolumeOperation {
    VolumeOperation::Write { first_iu: range.first_lba, payload, force_unit_access, placement }
}

/// A namespace without zones refuses what is asked of zones before it comes here.
#[cold]
fn no_zones() -> ! {
    unreachable!("I-N3: a volume is asked what volumes can do")
}
