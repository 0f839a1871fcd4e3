//! Copy: what is in a namespace is written elsewhere in it, and does not pass through the host.

use super::Plan;
use diecut_namespace::contract::{
    COPY_LBAS_MAX, COPY_RANGES_MAX, LbaRange, NamespaceCopy, NamespaceOperation, NamespaceProperties,
    PlacementTarget,
};
use diecut_nvme::fdp::DIRECTIVE_DATA_PLACEMENT;
use diecut_nvme::io::{Copy, CopyRange};
use diecut_nvme::{Status, SubmissionEntry};
use smallvec::SmallVec;
use zerocopy::FromBytes;

const TOO_LARGE: Status = Status::COMMAND_SIZE_LIMIT_EXCEEDED.do_not_retry();

/// Checks a copy before its ranges come.
pub(super) fn plan(properties: &NamespaceProperties, entry: &SubmissionEntry) -> Result<Plan, Status> {
    let copy = Copy::decode(entry);
    if copy.protection != 0 {
        return Err(Status::INVALID_PROTECTION_INFORMATION.do_not_retry());
    }
    let is_placed = copy.directive_type == DIRECTIVE_DATA_PLACEMENT && properties.placement.is_some();
    if copy.format != 0 || copy.storage_tag_check || (copy.directive_type != 0 && !is_placed) {
        return Err(Status::INVALID_FIELD.do_not_retry());
    }
    if copy.range_count > COPY_RANGES_MAX {
        return Err(TOO_LARGE);
    }
    if properties.read_only {
        return Err(Status::NAMESPACE_WRITE_PROTECTED.do_not_retry());
    }
    Ok(Plan { from_host_bytes: copy.range_count * CopyRange::SIZE_BYTES as u32, to_host_bytes: 0 })
}

/// The namespace's operation of a copy with these source ranges. What lies beyond the namespace is the namespace's to refuse.
pub(super) fn operation(
    entry: &SubmissionEntry,
    data: &[u8],
    placement: PlacementTarget,
) -> Result<NamespaceOperation, Status> {
    let copy = Copy::decode(entry);
    let bytes = copy.range_count as usize * CopyRange::SIZE_BYTES;
    assert_eq!(data.len(), bytes, "I-T7: data come as they were planned");
    let mut sources: SmallVec<[LbaRange; 2]> = SmallVec::new();
    let mut lbas = 0;
    for bytes in data.chunks_exact(CopyRange::SIZE_BYTES) {
        let range = CopyRange::read_from_bytes(bytes).expect("I-T12: data are as long as was checked");
        lbas += range.lba_count();
        if lbas > COPY_LBAS_MAX {
            return Err(TOO_LARGE);
        }
        sources.push(LbaRange { first_lba: range.start.get(), lba_count: range.lba_count() });
    }
    Ok(NamespaceOperation::Copy(Box::new(NamespaceCopy {
        sources,
        first_lba: copy.start,
        force_unit_access: copy.force_unit_access,
        placement,
    })))
}
