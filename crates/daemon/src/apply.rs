//! Brings a server what a set-up declares and the server lacks. What exists is left as it is, so an apply that was
//! interrupted is finished by the next one.

use crate::control_port::ControlPort;
use crate::convert;
use diecut_api::lacking::{Lacking, lacking};
use diecut_api::problem::{Problem, ProblemKind};
use diecut_api::setup::Setup;
use diecut_api::status::Status;
use diecut_shard::control::{ControlRequest, ControlResponse};

/// Asks for all that `status` lacks, in the order in which one needs the other, and gives the refusals, each with the object it
/// concerns.
pub async fn apply(setup: &Setup, status: &Status, port: &dyn ControlPort) -> Vec<Problem> {
    let mut refused = Vec::new();
    for what in lacking(setup, status) {
        match port.request(request(what)).await {
            Ok(ControlResponse::Refused(error)) => {
                let mut problem = convert::problem(error);
                // Most refusals begin with the object already.
                let object = format!("{what}: ");
                if !problem.message.starts_with(&object) {
                    problem.message.insert_str(0, &object);
                }
                refused.push(problem);
            }
            Ok(_) => {}
            Err(gone) => {
                refused.push(Problem::new(ProblemKind::Unavailable, gone.to_string()));
                break;
            }
        }
    }
    refused
}

fn request(what: Lacking<'_>) -> ControlRequest {
    match what {
        Lacking::Wear(change) => ControlRequest::SetWear(*change),
        Lacking::Tenant(tenant) => ControlRequest::CreateTenant(tenant.clone()),
        Lacking::Vssd(vssd) => ControlRequest::CreateVssd(vssd.clone()),
        Lacking::Volume(volume) => ControlRequest::CreateVolume(volume.clone()),
        Lacking::Subsystem(subsystem) => ControlRequest::CreateSubsystem(subsystem.clone()),
        Lacking::QosSet(set) => ControlRequest::CreateQosSet(set.clone()),
        Lacking::Host { subsystem, host } => {
            ControlRequest::AllowHost { subsystem: subsystem.to_owned(), host: host.to_owned() }
        }
        Lacking::Namespace { subsystem, namespace } => ControlRequest::AttachNamespace {
            subsystem: subsystem.to_owned(),
            nsid: namespace.nsid,
            volume: namespace.volume.clone(),
        },
    }
}
