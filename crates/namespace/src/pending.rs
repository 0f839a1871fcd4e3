use crate::contract::{CommandToken, LbaRange, NamespaceError, NamespaceId, SourceId};
use crate::statistics::Kind;
use diecut_units::{Buffer, BufferLoan, BufferMut, Time};
use diecut_volume::contract::VolumeOperation;
use smallvec::SmallVec;

/// What of a command was not given to its volume yet.
#[derive(Debug)]
pub(crate) struct Rest {
    /// What comes next.
    pub(crate) operation: VolumeOperation,
    /// Ranges of a deallocation that come after it, the next one last.
    pub(crate) ranges: SmallVec<[LbaRange; 2]>,
}

/// When a command passed the points before its volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamps {
    /// It came to its door.
    pub arrived: Time,
    /// Its last piece was given to its volume.
    pub admitted: Time,
}

/// A command that waits for its volume. Small, as each command is written down and taken out once; what few of them have stands
/// apart, in [`Extra`].
#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) token: CommandToken,
    pub(crate) stamps: Stamps,
    pub(crate) lbas: u64,
    pub(crate) namespace: NamespaceId,
    pub(crate) source: SourceId,
    /// Volume commands still to be answered.
    pub(crate) remaining: u32,
    pub(crate) kind: Kind,
    /// It was answered before its volume did: see [`crate::Namespaces::set_away`].
    pub(crate) is_answered: bool,
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
