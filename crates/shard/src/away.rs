//! vSSDs on devices that are not there: what exists on them stays as it is, neither served nor changed, until they are back.

use crate::control::{ControlError, ControlErrorKind, ControlRequest};
use crate::registry::Registry;
use diecut_catalog::VssdRecord;

/// Why a vSSD is not there.
pub(crate) fn reason(record: &VssdRecord) -> String {
    match &record.device {
        Some(device) => format!("its device \"{device}\" is not there"),
        None => "its device is not there".to_owned(),
    }
}

/// Refuses what would change something on a device that is not there.
///
/// # Errors
/// Names the object, the device, and what to do.
pub(crate) fn check(registry: &Registry, request: &ControlRequest) -> Result<(), ControlError> {
    if registry.away.is_empty() {
        return Ok(());
    }
    let of_volume = |volume: &String| registry.state.volumes.get(volume).map(|volume| volume.vssd.as_str());
    let vssds: Vec<&str> = match request {
        ControlRequest::DeleteVssd(vssd)
        | ControlRequest::UnfenceVssd(vssd)
        | ControlRequest::RepairVssd { vssd, .. } => vec![vssd],
        ControlRequest::CreateVolume(spec) => vec![&spec.vssd],
        ControlRequest::DeleteVolume(volume) | ControlRequest::AttachNamespace { volume, .. } => {
            of_volume(volume).into_iter().collect()
        }
        ControlRequest::CreateSubsystem(spec) => {
            spec.namespaces.iter().filter_map(|shown| of_volume(&shown.volume)).collect()
        }
        _ => Vec::new(),
    };
    let records = vssds.into_iter().filter_map(|name| registry.state.vssds.get(name));
    let Some(record) = records.into_iter().find(|record| registry.away.contains(&record.number)) else {
        return Ok(());
    };
    let message = format!(
        "vSSD \"{}\": {}; nothing of it can be changed until the server is started with it",
        record.name,
        reason(record)
    );
    Err(ControlError { kind: ControlErrorKind::Media, message })
}
