//! What is checked of a command to chunks before they are asked, and their errors in the words of namespaces.

use crate::contract::{ChunkRequest, LbaList, NamespaceError};
use crate::definition::NamespaceDefinition;
use crate::statistics::Kind;
use diecut_openchannel::contract::ChunkError;

/// Checks what does not depend on the state of a chunk.
pub(crate) fn check(request: &ChunkRequest, definition: &NamespaceDefinition) -> Result<(), NamespaceError> {
    if definition.chunks.is_none() {
        return Err(NamespaceError::InvalidField { what: "the namespace has no chunks" });
    }
    let check = |lbas: &LbaList, len: Option<usize>| {
        let count = lbas.count();
        let bytes = count as usize * definition.content_mode.bytes_per_iu();
        let is_right = count > 0
            && count <= definition.transfer_max_lbas
            && lbas.0.iter().all(|run| run.lba.checked_add(run.count.into()).is_some())
            && len.is_none_or(|len| len == bytes);
        let what = "the data is not as long as the list, or too long";
        if is_right { Ok(()) } else { Err(NamespaceError::InvalidField { what }) }
    };
    match request {
        ChunkRequest::Read { lbas, destination } => check(lbas, Some(destination.len())),
        ChunkRequest::Write { lbas, data } => check(lbas, Some(data.len())),
        ChunkRequest::Reset { lbas } => check(lbas, None),
        ChunkRequest::Copy { from, to } => check(from, None).and_then(|()| check(to, None)),
        ChunkRequest::Clear { .. } | ChunkRequest::Report { .. } => Ok(()),
    }
}

/// Whether a command changes chunks.
pub(crate) fn changes_something(request: &ChunkRequest) -> bool {
    !matches!(request, ChunkRequest::Report { .. } | ChunkRequest::Read { .. })
}

/// How a command is counted, and of how many logical blocks.
pub(crate) fn kind_of(request: &ChunkRequest) -> (Kind, u64) {
    match request {
        ChunkRequest::Read { lbas, .. } => (Kind::Read, lbas.count().into()),
        ChunkRequest::Write { lbas, .. } => (Kind::Write, lbas.count().into()),
        ChunkRequest::Copy { to, .. } => (Kind::Copy, to.count().into()),
        ChunkRequest::Reset { .. } | ChunkRequest::Clear { .. } | ChunkRequest::Report { .. } => {
            (Kind::Zone, 0)
        }
    }
}

/// What chunks refuse.
pub(crate) fn translate(error: &ChunkError) -> NamespaceError {
    match error {
        ChunkError::Refused(refusal) => NamespaceError::Chunk(*refusal),
        ChunkError::Unrecovered { lba } => NamespaceError::Unrecovered { lba: *lba },
        ChunkError::NoRoom { reason } => NamespaceError::NoRoom { reason },
        ChunkError::ReadOnly { reason } => NamespaceError::ReadOnly { reason },
        ChunkError::NotErased { reason } => NamespaceError::NotErased { reason },
        ChunkError::Gone => NamespaceError::NotReady,
    }
}
