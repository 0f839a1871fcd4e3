//! How commands are counted.

use crate::chunks;
use crate::contract::{NamespaceOperation, ZoneRequest};
use crate::statistics::Kind;

/// The kind of a command, and its logical blocks.
#[inline]
pub(super) fn kind_of(operation: &NamespaceOperation) -> (Kind, u64) {
    match operation {
        NamespaceOperation::Read { range, .. } => (Kind::Read, range.lba_count.into()),
        NamespaceOperation::Write { range, .. } => (Kind::Write, range.lba_count.into()),
        NamespaceOperation::Flush => (Kind::Flush, 0),
        NamespaceOperation::Deallocate { ranges } => {
            (Kind::Deallocate, ranges.iter().map(|range| u64::from(range.lba_count)).sum())
        }
        NamespaceOperation::WriteZeroes { range, .. } => (Kind::WriteZeroes, range.lba_count.into()),
        NamespaceOperation::Compare { range, .. } => (Kind::Compare, range.lba_count.into()),
        NamespaceOperation::Verify { range } => (Kind::Verify, range.lba_count.into()),
        NamespaceOperation::Copy(copy) => (Kind::Copy, copy.destination().lba_count.into()),
        NamespaceOperation::WriteUncorrectable { range } => {
            (Kind::WriteUncorrectable, range.lba_count.into())
        }
        NamespaceOperation::Purge => (Kind::Purge, 0),
        NamespaceOperation::Zone(ZoneRequest::Append { lba_count, .. }) => {
            (Kind::Append, (*lba_count).into())
        }
        NamespaceOperation::Zone(_) => (Kind::Zone, 0),
        NamespaceOperation::Chunk(request) => chunks::kind_of(request),
    }
}
