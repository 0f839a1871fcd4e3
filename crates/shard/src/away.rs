//! vSSDs on devices that are not there: what exists on them stays as it is, neither served nor changed, until they are back.

use crate::control::{ControlError, ControlErrorKind, ControlRequest};
use crate::registry::Registry;

/// Why a vSSD is not there, of which these of its devices are missing.
pub(crate) fn reason(missing: &[&str]) -> String {
    match missing {
        [] => "its device is not there".to_owned(),
        [one] => format!("its device \"{one}\" is not there"),
        [first, rest @ ..] => {
            let names = rest.iter().fold(format!("\"{first}\""), |names, one| format!("{names}, \"{one}\""));
            format!("its devices {names} are not there")
        }
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
    let mut records = vssds.into_iter().filter_map(|name| registry.state.vssds.get(name));
    let Some((record, reason)) =
        records.find_map(|record| Some((record, registry.away.get(&record.number)?)))
    else {
        return Ok(());
    };
    let message = format!(
        "vSSD \"{}\": {reason}; nothing of it can be changed until the server is started with all it lies on",
        record.name
    );
    Err(ControlError { kind: ControlErrorKind::Media, message })
}
