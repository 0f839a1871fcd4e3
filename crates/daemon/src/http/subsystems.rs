//! Requests for subsystems: their hosts, namespaces and paths.

use super::{Server, sound};
use crate::extract::{Body, Path, Refusal};
use axum::extract::State;
use axum::http::StatusCode;
use diecut_api::problem::{Problem, ProblemKind};
use diecut_shard::control::ControlRequest;
use diecut_spec::{HostSpec, NamespaceSpec, PathSpec, SubsystemSpec};

pub(super) async fn create_subsystem(
    State(server): State<Server>,
    Body(subsystem): Body<SubsystemSpec>,
) -> Result<StatusCode, Refusal> {
    sound(subsystem.check())?;
    server.change(ControlRequest::CreateSubsystem(subsystem)).await
}

pub(super) async fn delete_subsystem(
    State(server): State<Server>,
    Path(nqn): Path<String>,
) -> Result<StatusCode, Refusal> {
    server.change(ControlRequest::DeleteSubsystem(nqn)).await
}

pub(super) async fn allow_host(
    State(server): State<Server>,
    Path(subsystem): Path<String>,
    Body(host): Body<HostSpec>,
) -> Result<StatusCode, Refusal> {
    server.change(ControlRequest::AllowHost { subsystem, host: host.nqn }).await
}

pub(super) async fn deny_host(
    State(server): State<Server>,
    Path((subsystem, host)): Path<(String, String)>,
) -> Result<StatusCode, Refusal> {
    server.change(ControlRequest::DenyHost { subsystem, host }).await
}

pub(super) async fn attach_namespace(
    State(server): State<Server>,
    Path(subsystem): Path<String>,
    Body(namespace): Body<NamespaceSpec>,
) -> Result<StatusCode, Refusal> {
    let NamespaceSpec { nsid, volume } = namespace;
    server.change(ControlRequest::AttachNamespace { subsystem, nsid, volume }).await
}

pub(super) async fn detach_namespace(
    State(server): State<Server>,
    Path((subsystem, nsid)): Path<(String, String)>,
) -> Result<StatusCode, Refusal> {
    let nsid = nsid.parse().map_err(|_| {
        Refusal(Problem::new(
            ProblemKind::Invalid,
            format!("namespace `{nsid}`: write its number, 1 or more"),
        ))
    })?;
    server.change(ControlRequest::DetachNamespace { subsystem, nsid }).await
}

pub(super) async fn set_path(
    State(server): State<Server>,
    Path(subsystem): Path<String>,
    Body(path): Body<PathSpec>,
) -> Result<StatusCode, Refusal> {
    sound(path.check())?;
    server.change(ControlRequest::SetPath { subsystem, path }).await
}
