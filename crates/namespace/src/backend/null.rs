//! Nothing: commands are answered at once, and writes are forgotten. For benchmarks of what lies above.

use crate::backend::{Backend, Begun, MapPiece, Scratch};
use crate::contract::{NamespaceError, NamespaceOperation};
use crate::definition::NullReads;
use diecut_units::Buffer;

/// Size of the shared buffer of zeros that reads are answered with, in bytes.
const SHARED_ZEROS_BYTES: usize = 1 << 20;

/// See the module.
pub(crate) struct Null {
    pub(super) reads: NullReads,
}

impl Backend for Null {
    #[inline]
    fn begin(
        &self,
        operation: NamespaceOperation,
        scratch: &mut Scratch,
        _map_piece: &mut MapPiece<'_>,
    ) -> Begun {
        match operation {
            NamespaceOperation::Read { mut destination, .. } => {
                if self.reads == NullReads::SharedZeros && destination.len() <= SHARED_ZEROS_BYTES {
                    let zeros = &mut scratch.zeros;
                    let zeros = zeros.get_or_insert_with(|| Buffer::copy_from(&vec![0; SHARED_ZEROS_BYTES]));
                    return Begun::Answered(Ok(()), Some(zeros.slice(..destination.len())));
                }
                destination.fill(0);
                Begun::Answered(Ok(()), Some(destination.freeze()))
            }
            NamespaceOperation::Compare { data, .. } if data.iter().any(|&byte| byte != 0) => {
                Begun::Answered(Err(NamespaceError::CompareFailure), None)
            }
            NamespaceOperation::WriteUncorrectable { .. } => {
                let error = NamespaceError::InvalidField { what: "a null namespace loses nothing" };
                Begun::Answered(Err(error), None)
            }
            _ => Begun::Answered(Ok(()), None),
        }
    }
}
