//! What is checked of a command to zones before zones are asked, and their errors in the words of namespaces.

use crate::contract::{NamespaceError, ZoneProperties, ZoneRequest};
use crate::definition::NamespaceDefinition;
use diecut_zoned::contract::ZoneError;

/// Checks what does not depend on the state of a zone.
pub(crate) fn check(request: &ZoneRequest, definition: &NamespaceDefinition) -> Result<(), NamespaceError> {
    let Some(zones) = &definition.zones else {
        return Err(NamespaceError::InvalidField { what: "the namespace has no zones" });
    };
    match request {
        ZoneRequest::Append { zone_lba, lba_count, data } => {
            check_zone(*zone_lba, zones, definition)?;
            let is_right = *lba_count > 0
                && data.len() == *lba_count as usize * definition.content_mode.bytes_per_iu()
                && *lba_count <= definition.transfer_max_lbas;
            if is_right {
                Ok(())
            } else {
                Err(NamespaceError::InvalidField {
                    what: "the data is not as long as the range, or too long",
                })
            }
        }
        ZoneRequest::Act { zone_lba: Some(zone_lba), .. } => check_zone(*zone_lba, zones, definition),
        ZoneRequest::Act { zone_lba: None, .. } => Ok(()),
        ZoneRequest::Extend { zone_lba, extension } => {
            check_zone(*zone_lba, zones, definition)?;
            if zones.extension_size_bytes > 0 && extension.len() == zones.extension_size_bytes as usize {
                Ok(())
            } else {
                Err(NamespaceError::InvalidField { what: "the extension is not as long as zones have it" })
            }
        }
        ZoneRequest::Commit { last_lba } => check_lba(*last_lba, definition),
        ZoneRequest::Report(request) => {
            let count = definition.size_lbas >> zones.size_lbas_log2;
            if u64::from(request.first_zone) >= count {
                return Err(NamespaceError::LbaOutOfRange { size_lbas: definition.size_lbas });
            }
            if request.is_extended && zones.extension_size_bytes == 0 {
                return Err(NamespaceError::InvalidField { what: "zones have no descriptor extensions" });
            }
            Ok(())
        }
    }
}

/// Whether a command changes zones.
pub(crate) fn changes_something(request: &ZoneRequest) -> bool {
    !matches!(request, ZoneRequest::Report(_))
}

fn check_lba(lba: u64, definition: &NamespaceDefinition) -> Result<(), NamespaceError> {
    let size_lbas = definition.size_lbas;
    if lba < size_lbas { Ok(()) } else { Err(NamespaceError::LbaOutOfRange { size_lbas }) }
}

/// A zone is named by its first logical block.
fn check_zone(
    zone_lba: u64,
    zones: &ZoneProperties,
    definition: &NamespaceDefinition,
) -> Result<(), NamespaceError> {
    check_lba(zone_lba, definition)?;
    if zone_lba & (zones.size_lbas() - 1) != 0 {
        return Err(NamespaceError::InvalidField { what: "a zone is named by its first logical block" });
    }
    Ok(())
}

/// What zones refuse.
pub(crate) fn translate(error: &ZoneError) -> NamespaceError {
    match error {
        ZoneError::Refused { refusal, .. } => NamespaceError::Zone(*refusal),
        ZoneError::NotWholeUnits { .. } => NamespaceError::InvalidField {
            what: "a write is a multiple of the program unit here: the device has no protected memory",
        },
        ZoneError::Unrecovered { iu } => NamespaceError::Unrecovered { lba: *iu },
        ZoneError::NoRoom { reason } => NamespaceError::NoRoom { reason },
        ZoneError::ReadOnly { reason } => NamespaceError::ReadOnly { reason },
        ZoneError::NotErased { reason } => NamespaceError::NotErased { reason },
        ZoneError::Gone => NamespaceError::NotReady,
    }
}
