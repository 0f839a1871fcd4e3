//! I/O commands: what they need, and what the namespace is asked.

pub(crate) mod chunks;
mod copy;
pub(crate) mod offer;
mod reserve;
pub(crate) mod zones;

use crate::config::{NamespaceConfig, SubsystemConfig};
use crate::placement;
use crate::reservation;
use diecut_namespace::contract::{LbaRange, NamespaceOperation};
use diecut_nvme::fdp::DIRECTIVE_DATA_PLACEMENT;
use diecut_nvme::io::{DatasetManagement, DatasetRange, LbaRange as WireRange};
use diecut_nvme::opcode::io as opcode;
use diecut_nvme::{SglKind, Status, SubmissionEntry};
use diecut_units::{Buffer, BufferPool};
use smallvec::SmallVec;
use zerocopy::FromBytes;

/// Room for as many ranges as Dataset Management can name.
const DATASET_BYTES_MAX: u32 = 256 * DatasetRange::SIZE_BYTES as u32;

/// Data that a command moves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) from_host_bytes: u32,
    pub(crate) to_host_bytes: u32,
}

impl Plan {
    /// So many bytes for the host, and none from it.
    pub(crate) const fn to_host(to_host_bytes: u32) -> Plan {
        Plan { from_host_bytes: 0, to_host_bytes }
    }
}

#[inline]
fn namespace_of<'a>(
    subsystem: &'a SubsystemConfig,
    entry: &SubmissionEntry,
) -> Result<&'a NamespaceConfig, Status> {
    subsystem.namespaces.get(&entry.nsid.get()).ok_or(Status::INVALID_NAMESPACE_OR_FORMAT.do_not_retry())
}

/// Checks a command before its data move.
#[inline]
pub(crate) fn plan(
    subsystem: &SubsystemConfig,
    entry: &SubmissionEntry,
    transfer_bytes_max: u32,
) -> Result<Plan, Status> {
    let namespace = namespace_of(subsystem, entry)?;
    let properties = &namespace.properties;
    if !offer::takes(properties, entry.opcode) {
        return Err(Status::INVALID_OPCODE.do_not_retry());
    }
    match entry.opcode {
        opcode::FLUSH => return Ok(Plan::default()),
        opcode::DATASET_MANAGEMENT => {
            let management = DatasetManagement::decode(entry);
            let needed = management.range_count * DatasetRange::SIZE_BYTES as u32;
            // Linux always sends room for all 256 ranges, whatever their number.
            let sent = match entry.sgl.kind() {
                SglKind::InCapsule { length_bytes, .. } | SglKind::Transport { length_bytes } => length_bytes,
                SglKind::Other(_) => 0,
            };
            let from_host_bytes = if sent <= DATASET_BYTES_MAX { needed.max(sent) } else { needed };
            return Ok(Plan { from_host_bytes, to_host_bytes: 0 });
        }
        opcode::COPY => return copy::plan(properties, entry),
        code if reservation::is_ours(code) => return reserve::plan(entry, transfer_bytes_max),
        code if placement::is_ours(code) => return placement::plan_io(namespace, entry, transfer_bytes_max),
        code if chunks::is_of_chunks(code) => return chunks::plan(namespace, entry, transfer_bytes_max),
        code if zones::is_of_zones(code) => return zones::plan(namespace, entry, transfer_bytes_max),
        opcode::READ
        | opcode::WRITE
        | opcode::WRITE_UNCORRECTABLE
        | opcode::COMPARE
        | opcode::VERIFY
        | opcode::WRITE_ZEROES => {}
        _ => return Err(Status::INVALID_OPCODE.do_not_retry()),
    }
    let range = WireRange::decode(entry);
    // No format of ours has protection information or storage tags.
    if range.protection != 0 {
        return Err(Status::INVALID_PROTECTION_INFORMATION.do_not_retry());
    }
    let is_placed = range.directive_type == DIRECTIVE_DATA_PLACEMENT && properties.placement.is_some();
    let is_directed = range.directive_type != 0 && entry.opcode == opcode::WRITE && !is_placed;
    if range.storage_tag_check || is_directed {
        return Err(Status::INVALID_FIELD.do_not_retry());
    }
    let end = range.start.checked_add(u64::from(range.count));
    if end.is_none_or(|end| end > properties.size_lbas) {
        return Err(Status::LBA_OUT_OF_RANGE.do_not_retry());
    }
    let writes = matches!(entry.opcode, opcode::WRITE | opcode::WRITE_UNCORRECTABLE | opcode::WRITE_ZEROES);
    if properties.read_only && writes {
        return Err(Status::NAMESPACE_WRITE_PROTECTED.do_not_retry());
    }
    let size = u64::from(range.count) << properties.lba_size_log2;
    let too_large = size > u64::from(transfer_bytes_max) || range.count > properties.transfer_max_lbas;
    let bytes = namespace.transfer_bytes(range.count) as u32;
    match entry.opcode {
        opcode::READ | opcode::WRITE | opcode::COMPARE if too_large => {
            Err(Status::INVALID_FIELD.do_not_retry())
        }
        opcode::READ => Ok(Plan { from_host_bytes: 0, to_host_bytes: bytes }),
        opcode::WRITE | opcode::COMPARE => Ok(Plan { from_host_bytes: bytes, to_host_bytes: 0 }),
        _ => Ok(Plan::default()),
    }
}

/// The namespace's operation of a command that [`plan`] let through, or `None` if there is nothing to do (hints).
#[inline]
pub(crate) fn operation(
    namespace: &NamespaceConfig,
    entry: &SubmissionEntry,
    data: Option<Buffer>,
    pool: &mut BufferPool,
) -> Result<Option<NamespaceOperation>, Status> {
    if zones::is_of_zones(entry.opcode) {
        return zones::operation(namespace, entry, data).map(Some);
    }
    if chunks::is_of_chunks(entry.opcode) {
        return chunks::operation(namespace, entry, data, pool).map(Some);
    }
    let wire = WireRange::decode(entry);
    let range = LbaRange { first_lba: wire.start, lba_count: wire.count };
    let force_unit_access = wire.force_unit_access;
    let host_data = || data.expect("I-T7: data that were planned are there");
    Ok(Some(match entry.opcode {
        opcode::READ => {
            let bytes = namespace.transfer_bytes(wire.count) as usize;
            NamespaceOperation::Read { range, destination: pool.take(bytes) }
        }
        opcode::WRITE => {
            let placement = placement::target_of_write(namespace.properties.placement.as_ref(), &wire);
            NamespaceOperation::Write { range, data: host_data(), force_unit_access, placement }
        }
        opcode::COMPARE => NamespaceOperation::Compare { range, data: host_data() },
        opcode::VERIFY => NamespaceOperation::Verify { range },
        opcode::WRITE_UNCORRECTABLE => NamespaceOperation::WriteUncorrectable { range },
        // The directive of a copy stands where that of a write does.
        opcode::COPY => {
            let placement = placement::target_of_write(namespace.properties.placement.as_ref(), &wire);
            copy::operation(entry, &host_data(), placement)?
        }
        opcode::WRITE_ZEROES => {
            NamespaceOperation::WriteZeroes { range, may_deallocate: wire.deallocate, force_unit_access }
        }
        opcode::FLUSH => NamespaceOperation::Flush,
        opcode::DATASET_MANAGEMENT => {
            let management = DatasetManagement::decode(entry);
            if !management.deallocate {
                return Ok(None); // hints of use only
            }
            let data = host_data();
            let mut ranges = SmallVec::new();
            for bytes in data.chunks_exact(DatasetRange::SIZE_BYTES).take(management.range_count as usize) {
                let range =
                    DatasetRange::read_from_bytes(bytes).expect("I-T12: data are as long as was checked");
                let end = range.start.get().checked_add(u64::from(range.lba_count.get()));
                if end.is_none_or(|end| end > namespace.properties.size_lbas) {
                    return Err(Status::LBA_OUT_OF_RANGE.do_not_retry());
                }
                ranges.push(LbaRange { first_lba: range.start.get(), lba_count: range.lba_count.get() });
            }
            NamespaceOperation::Deallocate { ranges }
        }
        other => unreachable!("opcode {other:#x} was planned"),
    }))
}
