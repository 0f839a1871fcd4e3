//! The discovery log page (Base 2.0 section 5.16.1.23).

use crate::config::{SubsystemConfig, TargetConfig};
use diecut_nvme::{
    DISCOVERY_SUBSYSTEM_NQN, DiscoveryEntry, DiscoveryHeader, ENTRY_FLAG_DUPLICATE_INFORMATION,
    ENTRY_FLAG_PERSISTENT_CONNECTION, QualifiedName, SUBSYSTEM_TYPE_CURRENT_DISCOVERY, SUBSYSTEM_TYPE_NVM,
};
use zerocopy::IntoBytes;

/// Whether a host may see and use a subsystem.
pub(crate) fn is_allowed(subsystem: &SubsystemConfig, host: &QualifiedName) -> bool {
    subsystem.allow_any_host || subsystem.allowed_hosts.contains(host)
}

/// The whole page as `host` may see it: this discovery subsystem, then its subsystems, each at every address.
pub(crate) fn log_page<'a>(
    config: &TargetConfig,
    subsystems: impl Iterator<Item = &'a SubsystemConfig>,
    host: &QualifiedName,
    generation: u64,
) -> Vec<u8> {
    let own = QualifiedName::new(DISCOVERY_SUBSYSTEM_NQN).expect("the well-known name");
    let shown: Vec<(u8, &QualifiedName)> = std::iter::once((SUBSYSTEM_TYPE_CURRENT_DISCOVERY, &own))
        .chain(
            subsystems
                .filter(|subsystem| is_allowed(subsystem, host))
                .map(|subsystem| (SUBSYSTEM_TYPE_NVM, &subsystem.nqn)),
        )
        .collect();
    let mut entries = Vec::new();
    for (port, address) in config.advertised.iter().enumerate() {
        for (kind, nqn) in &shown {
            let mut entry =
                DiscoveryEntry::tcp(*kind, nqn, *address, port as u16 + 1, config.queue_entries_max.min(32));
            if *kind == SUBSYSTEM_TYPE_CURRENT_DISCOVERY {
                entry.flags = (ENTRY_FLAG_DUPLICATE_INFORMATION | ENTRY_FLAG_PERSISTENT_CONNECTION).into();
            }
            entries.push(entry);
        }
    }
    let mut page = DiscoveryHeader::new(generation, entries.len() as u64).as_bytes().to_vec();
    for entry in &entries {
        page.extend_from_slice(entry.as_bytes());
    }
    page
}
