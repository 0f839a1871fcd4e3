//! vSSDs on devices that are not there: what exists on them stays as it is, neither served nor changed, until they are back.

use crate::control::{ControlError, ControlErrorKind, ControlRequest};
use crate::registry::Registry;

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
