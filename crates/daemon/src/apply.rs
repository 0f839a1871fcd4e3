//! Brings a server to what a set-up file declares. Creation is idempotent in the shard, so applying a file
//! again changes nothing, and an apply that was interrupted is finished by the next one.

use crate::control_port::ControlPort;
use crate::convert;
use diecut_api::object::WearChange;
use diecut_api::problem::{Problem, ProblemKind};
use diecut_api::setup::Setup;
use diecut_shard::control::{ControlRequest, ControlResponse};

/// Creates everything the set-up declares, in the order in which one needs the other.
///
/// # Errors
/// The first refusal, with the object it concerns. What was created before stays.
pub async fn apply(setup: &Setup, port: &dyn ControlPort) -> Result<(), Problem> {
    for (what, request) in requests(setup) {
        match port.request(request).await {
            Ok(ControlResponse::Refused(error)) => {
                let mut problem = convert::problem(error);
                problem.message = format!("{what}: {}", problem.message);
                return Err(problem);
            }
            Ok(_) => {}
            Err(gone) => return Err(Problem::new(ProblemKind::Unavailable, gone.to_string())),
        }
    }
    Ok(())
}

fn requests(setup: &Setup) -> Vec<(String, ControlRequest)> {
    let mut requests = Vec::new();
    if setup.wear != WearChange::default() {
        requests.push(("wear".to_owned(), ControlRequest::SetWear(convert::wear_change(setup.wear))));
    }
    for tenant in setup.tenants.iter().cloned() {
        requests.push((
            format!("tenant `{}`", tenant.name),
            ControlRequest::CreateTenant(convert::tenant_spec(tenant)),
        ));
    }
    for vssd in setup.vssds.iter().cloned() {
        requests
            .push((format!("vssd `{}`", vssd.name), ControlRequest::CreateVssd(convert::vssd_spec(vssd))));
    }
    for volume in setup.volumes.iter().cloned() {
        requests.push((
            format!("volume `{}`", volume.name),
            ControlRequest::CreateVolume(convert::volume_spec(volume)),
        ));
    }
    for subsystem in setup.subsystems.iter().cloned() {
        requests.push((
            format!("subsystem `{}`", subsystem.nqn),
            ControlRequest::CreateSubsystem(convert::subsystem_spec(subsystem)),
        ));
    }
    requests
}
