use diecut_namespace::contract::{ChunkRefusal, NamespaceError, ZoneRefusal};
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
        NamespaceError::Zone(refusal) => status_of_zone(*refusal).do_not_retry(),
        NamespaceError::Chunk(refusal) => status_of_chunk(*refusal).do_not_retry(),
        NamespaceError::NoSuchNamespace => Status::INVALID_NAMESPACE_OR_FORMAT.do_not_retry(),
        NamespaceError::Aborted => Status::ABORT_REQUESTED,
        // These may go well the next time: the host decides.
        NamespaceError::NotReady => Status::NAMESPACE_NOT_READY,
        NamespaceError::NotErased { .. } | NamespaceError::Internal { .. } => Status::INTERNAL_ERROR,
    }
}

fn status_of_chunk(refusal: ChunkRefusal) -> Status {
    match refusal {
        ChunkRefusal::NoSuchBlock => Status::LBA_OUT_OF_RANGE,
        ChunkRefusal::ListLength => Status::INVALID_LBA_LIST,
        ChunkRefusal::Unwritten => Status::UNWRITTEN_BLOCK,
        ChunkRefusal::OutOfOrder => Status::OUT_OF_ORDER_WRITE,
        ChunkRefusal::Offline => Status::OFFLINE_CHUNK,
        ChunkRefusal::InvalidReset => Status::INVALID_RESET,
        ChunkRefusal::EarlyClose => Status::CHUNK_EARLY_CLOSE,
    }
}

fn status_of_zone(refusal: ZoneRefusal) -> Status {
    match refusal {
        ZoneRefusal::InvalidTransition => Status::INVALID_ZONE_STATE_TRANSITION,
        ZoneRefusal::TooManyActive => Status::TOO_MANY_ACTIVE_ZONES,
        ZoneRefusal::TooManyOpen => Status::TOO_MANY_OPEN_ZONES,
        ZoneRefusal::Full => Status::ZONE_IS_FULL,
        ZoneRefusal::ReadOnly => Status::ZONE_IS_READ_ONLY,
        ZoneRefusal::Offline => Status::ZONE_IS_OFFLINE,
        ZoneRefusal::Boundary => Status::ZONE_BOUNDARY_ERROR,
        ZoneRefusal::InvalidWrite => Status::ZONE_INVALID_WRITE,
        ZoneRefusal::InvalidOperation => Status::INVALID_ZONE_OPERATION_REQUEST,
        ZoneRefusal::NoRandomArea => Status::ZRWA_RESOURCES_UNAVAILABLE,
        ZoneRefusal::InvalidCommit => Status::INVALID_FIELD,
    }
}
