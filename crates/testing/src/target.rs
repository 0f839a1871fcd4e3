//! A target's namespace in memory, and what a target is told of it.

use diecut_namespace::contract::{
    LbaRange, NamespaceCommand, NamespaceCompletion, NamespaceError, NamespaceId, NamespaceOperation,
    NamespaceProperties,
};
use diecut_nvme::QualifiedName;
use diecut_nvmf::{Home, NamespaceConfig, SubsystemConfig};
use diecut_units::ContentMode;

/// Size of an LBA.
pub const LBA_SIZE_BYTES: usize = 4096;

/// A name.
///
/// # Panics
/// If it is none.
pub fn name(text: &str) -> QualifiedName {
    QualifiedName::new(text).expect("a qualified name")
}

/// A namespace of so many LBAs.
pub fn namespace(number: u32, size_lbas: u64) -> NamespaceConfig {
    let properties = NamespaceProperties {
        size_lbas,
        capacity_lbas: size_lbas,
        used_lbas: 0,
        lba_size_log2: LBA_SIZE_BYTES.ilog2() as u8,
        transfer_max_lbas: 256,
        volatile_cache: false,
        preferred_write_lbas: 4,
        read_only: false,
        zones: None,
        placement: None,
        chunks: None,
        purges: true,
    };
    let namespace = NamespaceId(number);
    NamespaceConfig {
        namespace,
        uuid: [0xab; 16],
        nguid: [0xcd; 16],
        properties,
        content: ContentMode::Bytes,
    }
}

/// A subsystem with these namespaces, for these hosts; without any for all.
pub fn subsystem(
    nqn: &str,
    hosts: &[&str],
    namespaces: impl IntoIterator<Item = (u32, NamespaceConfig)>,
) -> SubsystemConfig {
    SubsystemConfig {
        nqn: name(nqn),
        serial: "A1".into(),
        model: "diecut".into(),
        allow_any_host: hosts.is_empty(),
        allowed_hosts: hosts.iter().map(|host| name(host)).collect(),
        namespaces: namespaces.into_iter().collect(),
        paths: Default::default(),
        home: Home::Here,
    }
}

fn bytes_of(range: LbaRange) -> std::ops::Range<usize> {
    let first = range.first_lba as usize * LBA_SIZE_BYTES;
    first..first + range.lba_count as usize * LBA_SIZE_BYTES
}

/// Carries a command out on a namespace that is this memory.
pub fn execute(memory: &mut [u8], command: NamespaceCommand) -> NamespaceCompletion {
    let (mut data, mut result) = (None, Ok(()));
    match command.operation {
        NamespaceOperation::Read { range, mut destination } => {
            destination.copy_from_slice(&memory[bytes_of(range)]);
            data = Some(destination.freeze());
        }
        NamespaceOperation::Write { range, data, .. } => memory[bytes_of(range)].copy_from_slice(&data),
        NamespaceOperation::WriteZeroes { range, .. } => memory[bytes_of(range)].fill(0),
        NamespaceOperation::Deallocate { ranges } => {
            ranges.iter().for_each(|range| memory[bytes_of(*range)].fill(0));
        }
        NamespaceOperation::Compare { range, data } if memory[bytes_of(range)] == data[..] => {}
        NamespaceOperation::Compare { .. } => result = Err(NamespaceError::CompareFailure),
        NamespaceOperation::Copy(copy) => {
            let sources = copy.sources.iter();
            let content: Vec<u8> = sources.flat_map(|source| memory[bytes_of(*source)].to_vec()).collect();
            memory[bytes_of(copy.destination())].copy_from_slice(&content);
        }
        NamespaceOperation::WriteUncorrectable { .. }
        | NamespaceOperation::Zone(_)
        | NamespaceOperation::Chunk(_) => {
            result = Err(FORGETS_NOTHING);
        }
        // What is zeroed here is gone.
        NamespaceOperation::Flush | NamespaceOperation::Purge | NamespaceOperation::Verify { .. } => {}
    }
    NamespaceCompletion { token: command.token, result, data, zones: None }
}

const FORGETS_NOTHING: NamespaceError = NamespaceError::InvalidField { what: "memory forgets nothing" };
