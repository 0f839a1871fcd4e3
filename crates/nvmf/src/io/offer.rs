//! Which commands of the NVM command set a namespace takes, and what a subsystem offers by that.

use super::chunks;
use crate::config::SubsystemConfig;
use crate::reservation;
use diecut_namespace::contract::NamespaceProperties;
use diecut_nvme::opcode::io as opcode;

/// Whether a namespace takes a command that is known. Those of placement, zones and chunks say for themselves where they are not taken.
#[inline]
pub(crate) fn takes(properties: &NamespaceProperties, code: u8) -> bool {
    if properties.chunks.is_some() {
        return chunks::takes(code) || reservation::is_ours(code);
    }
    code != opcode::WRITE_UNCORRECTABLE || properties.zones.is_none()
}

/// Whether some namespace of a subsystem is like that. One without namespaces offers all that they can be.
pub(crate) fn is_offered(
    subsystem: &SubsystemConfig,
    is_taken: impl Fn(&NamespaceProperties) -> bool,
) -> bool {
    let mut namespaces = subsystem.namespaces.values();
    subsystem.namespaces.is_empty() || namespaces.any(|namespace| is_taken(&namespace.properties))
}
