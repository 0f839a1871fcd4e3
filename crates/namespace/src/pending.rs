use crate::contract::{CommandToken, LbaRange, NamespaceError, NamespaceId, SourceId};
use crate::definition::StoreIndex;
use crate::piece::{self, Cutting, MapRange};
use crate::statistics::Kind;
use diecut_units::{Buffer, BufferLoan, BufferMut, Time};
use diecut_volume::contract::{VolumeIndex, VolumeOperation};
use smallvec::SmallVec;

/// What of a command was not given to its volume yet.
#[derive(Debug)]
pub(crate) struct Rest {
    pub(crate) store: StoreIndex,
    pub(crate) volume: VolumeIndex,
    /// What comes next.
    pub(crate) operation: VolumeOperation,
    /// Ranges of a deallocation that come after it, the next one last.
    pub(crate) ranges: SmallVec<[LbaRange; 2]>,
}

impl Rest {
    /// Cuts the next piece off; the second value is what comes after it, if anything does.
    #[inline]
    pub(crate) fn cut(
        self,
        cutting: Cutting,
        map_piece: impl FnOnce(MapRange) -> u64,
    ) -> (VolumeOperation, Option<Rest>) {
        let Rest { store, volume, operation, mut ranges } = self;
        let range_of = |first_iu, iu_count| MapRange { store, volume, first_iu, iu_count };
        let (piece, left) =
            piece::cut(operation, cutting, |first_iu, iu_count| map_piece(range_of(first_iu, iu_count)));
        let next = left.or_else(|| {
            let range = ranges.pop()?;
            Some(VolumeOperation::Deallocate { first_iu: range.first_lba, iu_count: range.lba_count.into() })
        });
        (piece, next.map(|operation| Rest { store, volume, operation, ranges }))
    }
}

/// A command that waits for its volume. Small, as each command is written down and taken out once; what few of them have stands
/// apart, in [`Extra`].
#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) token: CommandToken,
    pub(crate) arrived: Time,
    pub(crate) lbas: u64,
    pub(crate) namespace: NamespaceId,
    pub(crate) source: SourceId,
    /// Volume commands still to be answered.
    pub(crate) remaining: u32,
    pub(crate) kind: Kind,
    /// Index of its [`Extra`], if it has one.
    pub(crate) extra: Option<u32>,
}

/// What a command has besides that is cut in pieces, compares, or failed.
#[derive(Debug, Default)]
pub(crate) struct Extra {
    /// What comes after the pieces that its volume has. The command is not answered before this is gone.
    pub(crate) rest: Option<Rest>,
    /// The whole buffer of a read that was cut in pieces.
    pub(crate) loan: Option<BufferLoan>,
    /// The first error among its volume commands.
    pub(crate) error: Option<NamespaceError>,
    /// What a compare expects.
    pub(crate) expected: Option<Buffer>,
}

impl Extra {
    /// The answer to its command. `destination` is what the last piece was read into.
    ///
    /// # Panics
    /// If a piece is left.
    #[cold]
    pub(crate) fn result(
        self,
        is_read: bool,
        destination: Option<BufferMut>,
    ) -> (Result<(), NamespaceError>, Option<Buffer>) {
        let Extra { rest, loan, error, expected } = self;
        assert!(rest.is_none(), "I-N1: no piece of a command that is answered is left");
        if let Some(error) = error {
            return (Err(error), None);
        }
        let content = match loan {
            None => destination.map(BufferMut::freeze),
            Some(loan) => {
                drop(destination);
                Some(loan.reclaim().freeze())
            }
        };
        let content = || content.expect("a read that succeeded carries its buffer");
        match expected {
            None if is_read => (Ok(()), Some(content())),
            None => (Ok(()), None),
            Some(expected) => {
                if content()[..] == expected[..] || diecut_units::mutant!("namespace: compare always right") {
                    (Ok(()), None)
                } else {
                    (Err(NamespaceError::CompareFailure), None)
                }
            }
        }
    }
}
