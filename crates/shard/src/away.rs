//! vSSDs on devices that are not there, or do not answer: what exists on them stays as it is, neither served nor changed, until they are back.

use crate::control::{ControlError, ControlErrorKind, ControlRequest};
use crate::devices::Devices;
use crate::registry::Registry;
use diecut_media::Media;
use diecut_vssd::VssdId;

/// Why a vSSD is not there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Away {
    /// For people.
    pub reason: String,
    /// It never comes back: a device of it was taken out of the pool.
    pub is_lost: bool,
}

impl Away {
    /// Of one of which these devices are missing.
    pub fn on(missing: &[&str], is_lost: bool) -> Away {
        let what = if is_lost { "taken out of the pool" } else { "not there" };
        let reason = match missing {
            [] => format!("its device is {what}"),
            [one] => format!("its device \"{one}\" is {what}"),
            [first, rest @ ..] => {
                let all =
                    rest.iter().fold(format!("\"{first}\""), |names, one| format!("{names}, \"{one}\""));
                format!("its devices {all} are {what}")
            }
        };
        Away { reason, is_lost }
    }
}

/// Refuses what would change something on a device that is not there, or does not answer.
///
/// # Errors
/// Names the object, the device, and what to do.
pub(crate) fn check<M: Media>(
    registry: &Registry,
    devices: &Devices<M>,
    request: &ControlRequest,
) -> Result<(), ControlError> {
    if registry.away.is_empty() && !devices.iter().any(|own| own.is_away) {
        return Ok(());
    }
    let of_volume = |volume: &String| registry.state.volumes.get(volume).map(|volume| volume.vssd.as_str());
    let vssds: Vec<&str> = match request {
        ControlRequest::DeleteVssd(vssd)
        | ControlRequest::UnfenceVssd(vssd)
        | ControlRequest::MoveVssd(vssd)
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
    let silent = records.clone().find_map(|record| {
        let device = devices.of(VssdId(record.number)).find(|own| own.is_away)?;
        Some((record, &device.config.name))
    });
    if let Some((record, device)) = silent {
        let message = format!(
            "vSSD \"{}\": its device \"{device}\" does not answer; nothing of it can be changed until it does",
            record.name
        );
        return Err(ControlError { kind: ControlErrorKind::Media, message });
    }
    let Some((record, away)) = records.find_map(|record| Some((record, registry.away.get(&record.number)?)))
    else {
        return Ok(());
    };
    let deletes = matches!(
        request,
        ControlRequest::DeleteVssd(_) | ControlRequest::DeleteVolume(_) | ControlRequest::UnfenceVssd(_)
    );
    if away.is_lost && deletes {
        return Ok(());
    }
    let advice = match away.is_lost {
        true => "what it held is lost; it can be deleted",
        false => "nothing of it can be changed until the server is started with all it lies on",
    };
    let message = format!("vSSD \"{}\": {}; {advice}", record.name, away.reason);
    Err(ControlError { kind: ControlErrorKind::Media, message })
}
