//! What hosts asked of namespaces, for those who want to ask the same of another system.

use diecut_namespace::contract::{
    LbaRange, NamespaceCommand, NamespaceCopy, NamespaceId, NamespaceOperation, SourceId,
};
use diecut_units::Time;

/// A command without its data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandOutline {
    /// When it was complete.
    pub arrived: Time,
    /// Who asked.
    pub source: SourceId,
    /// Which namespace.
    pub namespace: NamespaceId,
    /// What was asked.
    pub operation: OperationOutline,
}

/// What was asked, without data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OperationOutline {
    /// A read.
    Read(LbaRange),
    /// A write, and whether it bypasses caches.
    Write(LbaRange, bool),
    /// A flush.
    Flush,
    /// A deallocation.
    Deallocate(Vec<LbaRange>),
    /// A write of zeros: range, whether it may deallocate, whether it bypasses caches.
    WriteZeroes(LbaRange, bool, bool),
    /// A comparison.
    Compare(LbaRange),
    /// A verification.
    Verify(LbaRange),
    /// What only zones can do.
    Zone,
    /// What only chunks can do.
    Chunk,
    /// A copy within the namespace.
    Copy(NamespaceCopy),
    /// An erase of what is no longer there.
    Purge,
    /// Blocks made unreadable.
    WriteUncorrectable(LbaRange),
}

impl CommandOutline {
    pub(crate) fn of(command: &NamespaceCommand) -> CommandOutline {
        let operation = match &command.operation {
            NamespaceOperation::Read { range, .. } => OperationOutline::Read(*range),
            NamespaceOperation::Write { range, force_unit_access, .. } => {
                OperationOutline::Write(*range, *force_unit_access)
            }
            NamespaceOperation::Flush => OperationOutline::Flush,
            NamespaceOperation::Deallocate { ranges } => OperationOutline::Deallocate(ranges.to_vec()),
            NamespaceOperation::WriteZeroes { range, may_deallocate, force_unit_access } => {
                OperationOutline::WriteZeroes(*range, *may_deallocate, *force_unit_access)
            }
            NamespaceOperation::Compare { range, .. } => OperationOutline::Compare(*range),
            NamespaceOperation::Verify { range } => OperationOutline::Verify(*range),
            NamespaceOperation::Purge => OperationOutline::Purge,
            NamespaceOperation::Zone(_) => OperationOutline::Zone,
            NamespaceOperation::Chunk(_) => OperationOutline::Chunk,
            NamespaceOperation::Copy(copy) => OperationOutline::Copy(copy.as_ref().clone()),
            NamespaceOperation::WriteUncorrectable { range } => OperationOutline::WriteUncorrectable(*range),
        };
        CommandOutline {
            arrived: command.arrived,
            source: command.source,
            namespace: command.namespace,
            operation,
        }
    }
}
