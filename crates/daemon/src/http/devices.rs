//! Devices that come to the pool, and leave it.

use super::Server;
use crate::clients;
use crate::extract::{Body, Path, Refusal};
use crate::roster::Roster;
use axum::extract::State;
use axum::http::StatusCode;
use diecut_api::object::{AddedDevice, NewDevice, RemovedDevice};
use diecut_api::problem::{Problem, ProblemKind};
use std::sync::Arc;

/// Has something done to the devices of the pool, which takes its time.
async fn turn<T: Send + 'static>(
    server: Server,
    title: String,
    turn: impl FnOnce(&Arc<Roster>) -> Result<T, Problem> + Send + 'static,
) -> Result<axum::Json<T>, Refusal> {
    let _asking = clients::asking();
    let alone = || Problem::new(ProblemKind::Invalid, "an emulated device is alone in a server");
    let roster = server.roster.ok_or_else(|| Refusal(alone()))?;
    let done = tokio::task::spawn_blocking(move || turn(&roster)).await;
    let done = done.unwrap_or_else(|error| Err(Problem::new(ProblemKind::Unavailable, error.to_string())));
    match done {
        Ok(done) => {
            tracing::info!("{title}: done");
            Ok(axum::Json(done))
        }
        Err(problem) => {
            tracing::warn!("{title} is refused: {}", problem.message);
            Err(Refusal(problem))
        }
    }
}

pub(super) async fn add_device(
    State(server): State<Server>,
    Body(wanted): Body<NewDevice>,
) -> Result<axum::Json<AddedDevice>, Refusal> {
    let title = format!("addition of drive {}", wanted.path);
    turn(server, title, move |roster| roster.add(&wanted)).await
}

pub(super) async fn remove_device(
    State(server): State<Server>,
    Path(device): Path<String>,
) -> Result<axum::Json<RemovedDevice>, Refusal> {
    let title = format!("removal of device \"{device}\"");
    turn(server, title, move |roster| roster.remove(&device)).await
}

pub(super) async fn evacuate_device(
    State(server): State<Server>,
    Path(device): Path<String>,
) -> Result<StatusCode, Refusal> {
    let title = format!("evacuation of device \"{device}\"");
    turn(server, title, move |roster| roster.evacuate(&device)).await.map(|_| StatusCode::NO_CONTENT)
}

pub(super) async fn call_off_evacuation(
    State(server): State<Server>,
    Path(device): Path<String>,
) -> Result<StatusCode, Refusal> {
    let title = format!("end of the evacuation of device \"{device}\"");
    turn(server, title, move |roster| roster.call_off(&device)).await.map(|_| StatusCode::NO_CONTENT)
}
