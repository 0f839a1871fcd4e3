use diecut_namespace::contract::NamespaceError;
use diecut_nvme::Status;

/// The only place where errors of a namespace become words of NVMe.
pub(crate) fn status_of(error: &NamespaceError) -> Status {
    match error {
        NamespaceError::LbaOutOfRange { .. } => Status::LBA_OUT_OF_RANGE.do_not_retry(),
        NamespaceError::InvalidField { .. } => Status::INVALID_FIELD.do_not_retry(),
        NamespaceError::CompareFailure => Status::COMPARE_FAILURE.do_not_retry(),
        NamespaceError::Unrecovered { .. } => Status::UNRECOVERED_READ_ERROR.do_not_retry(),
        NamespaceError::CapacityExceeded => Status::CAPACITY_EXCEEDED.do_not_retry(),
        // Hosts make of it what a full file system says.
        NamespaceError::NoRoom { .. } => Status::CAPACITY_EXCEEDED.do_not_retry(),
        NamespaceError::ReadOnly { .. } => Status::NAMESPACE_WRITE_PROTECTED.do_not_retry(),
        NamespaceError::NoSuchNamespace => Status::INVALID_NAMESPACE_OR_FORMAT.do_not_retry(),
        NamespaceError::Aborted => Status::ABORT_REQUESTED,
        // These two may go well the next time: the host decides.
        NamespaceError::NotReady => Status::NAMESPACE_NOT_READY,
        NamespaceError::Internal { .. } => Status::INTERNAL_ERROR,
    }
}
