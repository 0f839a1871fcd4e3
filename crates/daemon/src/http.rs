//! The control interface: HTTP with JSON bodies, normally over a Unix socket that only its owner can open.

mod devices;
mod subsystems;

use crate::clients::{self, Clients, LimitedLog};
use crate::control_port::ControlPort;
use crate::convert;
use crate::extract::{Body, PATIENCE, Path, Refusal};
use crate::health::Health;
use crate::panics::Panics;
use crate::roster::Roster;
use axum::Router;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use devices::{add_device, call_off_evacuation, evacuate_device, remove_device};
use diecut_api::object::{Home, Repair, Weight};
use diecut_api::problem::{Problem, ProblemKind};
use diecut_api::route;
use diecut_api::setup::Durability;
use diecut_api::status::MissingDevice;
use diecut_shard::control::{ControlRequest, ControlResponse};
use diecut_shard::notice::Cause;
use diecut_spec::{QosSetChange, QosSetSpec, TenantSpec, VolumeSpec, VssdSpec, WearSettings};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;
use subsystems::{
    allow_host, attach_namespace, create_subsystem, delete_subsystem, deny_host, detach_namespace, set_path,
};
use tokio::net::UnixListener;

/// The routes of [`diecut_api::route`], answered by the shards behind `port`. `listen` is told to whoever asks
/// where hosts connect.
pub fn router(port: Arc<dyn ControlPort>, listen: String) -> Router {
    router_with(port, listen, Arc::default(), Panics::unkept(), None)
}

/// [`router`] of a server that tells of its devices, keeps a book of its panics, and may have devices come and go.
pub fn router_with(
    port: Arc<dyn ControlPort>,
    listen: String,
    devices: Arc<RwLock<DeviceFacts>>,
    panics: Panics,
    roster: Option<Arc<Roster>>,
) -> Router {
    routes(Server { port, listen: listen.into(), devices, panics, roster })
}

/// What a server knows of its devices beside what shards say, for whoever asks for its status.
#[derive(Clone, Debug, Default)]
pub struct DeviceFacts {
    /// Of all of them.
    pub traits: DeviceTraits,
    /// Of each, by name.
    pub places: BTreeMap<String, DevicePlace>,
    /// Those that are not there.
    pub missing: Vec<MissingDevice>,
    /// What drives say of their health.
    pub health: Health,
    /// Why evacuations did not come to their end, by the names of their devices.
    pub evacuation_errors: BTreeMap<String, String>,
}

/// Where a device is.
#[derive(Clone, Debug, Default)]
pub struct DevicePlace {
    /// For people; absent of one in memory.
    pub path: Option<String>,
    /// The file that it lies in, if it lies in one.
    pub file: Option<PathBuf>,
}

/// What a server knows of a device, for whoever asks for its status; what is not known is absent.
#[derive(Clone, Copy, Debug, Default)]
pub struct DeviceTraits {
    /// Whether flash takes as long as the NAND would.
    pub pacing: Option<bool>,
    /// What an acknowledged write, or flush, survives.
    pub durability: Option<Durability>,
    /// Whether writes are acknowledged before they are durable, so that hosts must flush.
    pub volatile_cache: Option<bool>,
}

fn routes(server: Server) -> Router {
    Router::new()
        .route(route::STATUS, get(status))
        .route(route::LATENCY, get(latency))
        .route(route::PANICS, get(panics))
        .route(route::TENANTS, post(create_tenant))
        .route("/v1/tenants/{name}", delete(delete_tenant))
        .route("/v1/tenants/{name}/home", post(move_tenant))
        .route("/v1/tenants/{name}/weight", post(set_tenant_weight))
        .route(route::VSSDS, post(create_vssd))
        .route("/v1/vssds/{name}", delete(delete_vssd))
        .route("/v1/vssds/{name}/repair", post(repair_vssd))
        .route("/v1/vssds/{name}/unfence", post(unfence_vssd))
        .route(route::VOLUMES, post(create_volume))
        .route("/v1/volumes/{name}", delete(delete_volume))
        .route(route::SUBSYSTEMS, post(create_subsystem))
        .route("/v1/subsystems/{nqn}", delete(delete_subsystem))
        .route("/v1/subsystems/{nqn}/hosts", post(allow_host))
        .route("/v1/subsystems/{nqn}/hosts/{host}", delete(deny_host))
        .route("/v1/subsystems/{nqn}/namespaces", post(attach_namespace))
        .route("/v1/subsystems/{nqn}/namespaces/{nsid}", delete(detach_namespace))
        .route("/v1/subsystems/{nqn}/paths", post(set_path))
        .route(route::QOS, post(create_qos_set))
        .route("/v1/qos/{name}", post(change_qos_set).delete(delete_qos_set))
        .route(route::WEAR, post(set_wear))
        .route(route::DEVICES, post(add_device))
        .route("/v1/devices/{device}", delete(remove_device))
        .route("/v1/devices/{device}/evacuate", post(evacuate_device).delete(call_off_evacuation))
        .route(route::SHUTDOWN, post(shutdown))
        .fallback(|| async {
            Refusal(Problem::new(ProblemKind::NotFound, "no such route; see `diecut --help`"))
        })
        .method_not_allowed_fallback(|| async {
            let text = "the route does not take this method; the page on the control interface lists what each takes";
            Refusal(Problem::new(ProblemKind::NotFound, text))
        })
        .layer(axum::middleware::from_fn(with_patience))
        .with_state(server)
}

/// Answers whoever connects to the socket, `clients_max` at a time. Who does not send a whole head, or a whole body, in time is hung up on
/// or refused, and takes nobody else's turn; and where there are as many as may be, the oldest goes that waits for no answer.
pub async fn serve(listener: UnixListener, routes: Router, clients_max: usize) -> Infallible {
    let service = TowerToHyperService::new(routes);
    let clients = Clients::new(clients_max);
    let mut log = LimitedLog::new();
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                if log.admit(Cause::Descriptors) {
                    tracing::warn!("an administrator's connection cannot be accepted: {error}; trying again");
                }
                tokio::time::sleep(ACCEPT_AGAIN_AFTER).await;
                continue;
            }
        };
        let process = stream.peer_cred().ok().and_then(|credentials| credentials.pid());
        let Some((client, was_full)) = clients.enter(process) else {
            if log.admit(Cause::Administrators) {
                tracing::warn!(
                    "{clients_max} administrators wait for answers, as many as may; another one is turned away"
                );
            }
            continue;
        };
        if was_full && log.admit(Cause::Administrators) {
            tracing::warn!(
                "{clients_max} connections of administrators are open, as many as may be: the oldest that waits for no answer is \
                 closed for a new one"
            );
        }
        let mut connection = hyper::server::conn::http1::Builder::new();
        connection.timer(TokioTimer::new()).header_read_timeout(PATIENCE);
        let connection = connection.serve_connection(TokioIo::new(stream), service.clone());
        tokio::spawn(client.carry(async move {
            if let Err(error) = connection.await {
                tracing::debug!("an administrator's connection ended: {error}");
            }
        }));
        // It says what it wants before the next one comes: whoever asks at once is not taken for idle. And what was told to leave
        // goes, with its descriptor.
        tokio::task::yield_now().await;
    }
}

/// When accepting failed.
const ACCEPT_AGAIN_AFTER: Duration = Duration::from_millis(100);

#[derive(Clone)]
struct Server {
    port: Arc<dyn ControlPort>,
    listen: Arc<str>,
    devices: Arc<RwLock<DeviceFacts>>,
    panics: Panics,
    roster: Option<Arc<Roster>>,
}

tokio::task_local! {
    /// How long whoever sent the request of this task waits for its end.
    static PATIENCE_MS: u64;
}

/// Takes the header that says how long a request may take.
async fn with_patience(request: Request, next: Next) -> Response {
    let Some(value) = request.headers().get(route::TIMEOUT_HEADER) else { return next.run(request).await };
    match value.to_str().ok().and_then(|text| text.parse::<u64>().ok()) {
        Some(seconds) => PATIENCE_MS.scope(seconds.saturating_mul(1000), next.run(request)).await,
        None => {
            let message = format!("header {}: write whole seconds, 0 for no limit", route::TIMEOUT_HEADER);
            Refusal(Problem::new(ProblemKind::Invalid, message)).into_response()
        }
    }
}

impl Server {
    async fn ask(&self, request: ControlRequest) -> Result<ControlResponse, Refusal> {
        let _asking = clients::asking();
        match self.port.request(request).await {
            Ok(ControlResponse::Refused(error)) => Err(Refusal(convert::problem(error))),
            Ok(response) => Ok(response),
            Err(gone) => Err(Refusal(Problem::new(ProblemKind::Unavailable, gone.to_string()))),
        }
    }
    async fn change(&self, request: ControlRequest) -> Result<StatusCode, Refusal> {
        Ok(match self.carry_out(request).await? {
            ControlResponse::Unchanged => StatusCode::OK,
            _ => StatusCode::NO_CONTENT,
        })
    }
    async fn carry_out(&self, request: ControlRequest) -> Result<ControlResponse, Refusal> {
        let title = request.title();
        let request = match PATIENCE_MS.try_with(|patience_ms| *patience_ms) {
            Ok(patience_ms) => ControlRequest::Within { patience_ms, request: Box::new(request) },
            Err(_) => request,
        };
        match self.ask(request).await {
            Ok(response) => {
                let how = if response == ControlResponse::Unchanged { "was so already" } else { "done" };
                tracing::info!("{title}: {how}");
                Ok(response)
            }
            Err(refusal) => {
                tracing::warn!("{title} is refused: {}", refusal.0.message);
                Err(refusal)
            }
        }
    }
}

async fn status(State(server): State<Server>) -> Result<Response, Refusal> {
    match server.ask(ControlRequest::Status).await? {
        ControlResponse::Status(status) => {
            let facts = server.devices.read().unwrap_or_else(PoisonError::into_inner).clone();
            let mut status = convert::status(*status, &server.listen, &facts);
            let DeviceTraits { pacing, durability, volatile_cache } = facts.traits;
            (status.pacing, status.durability, status.volatile_cache) = (pacing, durability, volatile_cache);
            let (count, last) = server.panics.summary();
            (status.panics, status.last_panic) = ((count > 0).then_some(count), last);
            Ok(axum::Json(status).into_response())
        }
        other => panic!("a status request was answered with {other:?}"),
    }
}

async fn latency(State(server): State<Server>) -> Result<Response, Refusal> {
    match server.ask(ControlRequest::Latency).await? {
        ControlResponse::Latency(report) => Ok(axum::Json(*report).into_response()),
        other => panic!("a question about latency was answered with {other:?}"),
    }
}

async fn panics(State(server): State<Server>) -> Response {
    axum::Json(server.panics.report()).into_response()
}

async fn create_tenant(
    State(server): State<Server>,
    Body(tenant): Body<TenantSpec>,
) -> Result<StatusCode, Refusal> {
    server.change(ControlRequest::CreateTenant(tenant)).await
}

async fn move_tenant(
    State(server): State<Server>,
    Path(tenant): Path<String>,
    Body(home): Body<Home>,
) -> Result<StatusCode, Refusal> {
    server.change(ControlRequest::MoveTenant { tenant, shard: home.shard }).await
}

async fn set_tenant_weight(
    State(server): State<Server>,
    Path(tenant): Path<String>,
    Body(Weight { weight }): Body<Weight>,
) -> Result<StatusCode, Refusal> {
    server.change(ControlRequest::SetTenantWeight { tenant, weight }).await
}

async fn delete_tenant(
    State(server): State<Server>,
    Path(name): Path<String>,
) -> Result<StatusCode, Refusal> {
    server.change(ControlRequest::DeleteTenant(name)).await
}

/// Numbers that cannot be meant.
fn sound(checked: Result<(), String>) -> Result<(), Refusal> {
    checked.map_err(|message| Refusal(Problem::new(ProblemKind::Invalid, message)))
}

async fn create_vssd(
    State(server): State<Server>,
    Body(vssd): Body<VssdSpec>,
) -> Result<StatusCode, Refusal> {
    sound(vssd.check_slips())?;
    server.change(ControlRequest::CreateVssd(vssd)).await
}

async fn delete_vssd(State(server): State<Server>, Path(name): Path<String>) -> Result<StatusCode, Refusal> {
    let done = server.change(ControlRequest::DeleteVssd(name.clone())).await?;
    server.panics.lift(&name);
    Ok(done)
}

async fn unfence_vssd(State(server): State<Server>, Path(vssd): Path<String>) -> Result<StatusCode, Refusal> {
    let was_fenced = server.panics.is_fenced(&vssd);
    let done = server.change(ControlRequest::UnfenceVssd(vssd.clone())).await?;
    server.panics.lift(&vssd);
    Ok(if was_fenced { done } else { StatusCode::OK })
}

async fn repair_vssd(
    State(server): State<Server>,
    Path(vssd): Path<String>,
    Body(repair): Body<Repair>,
) -> Result<Response, Refusal> {
    match server.carry_out(ControlRequest::RepairVssd { vssd, accepts_loss: repair.accept_loss }).await? {
        ControlResponse::Repaired(report) => Ok(axum::Json(convert::repair_report(*report)).into_response()),
        other => panic!("a repair was answered with {other:?}"),
    }
}

async fn create_volume(
    State(server): State<Server>,
    Body(volume): Body<VolumeSpec>,
) -> Result<StatusCode, Refusal> {
    sound(volume.check_slips())?;
    server.change(ControlRequest::CreateVolume(volume)).await
}

async fn delete_volume(
    State(server): State<Server>,
    Path(name): Path<String>,
) -> Result<StatusCode, Refusal> {
    server.change(ControlRequest::DeleteVolume(name)).await
}

async fn create_qos_set(
    State(server): State<Server>,
    Body(set): Body<QosSetSpec>,
) -> Result<StatusCode, Refusal> {
    sound(set.check_slips())?;
    server.change(ControlRequest::CreateQosSet(set)).await
}

async fn change_qos_set(
    State(server): State<Server>,
    Path(set): Path<String>,
    Body(change): Body<QosSetChange>,
) -> Result<StatusCode, Refusal> {
    server.change(ControlRequest::ChangeQosSet { set, change }).await
}

async fn delete_qos_set(
    State(server): State<Server>,
    Path(name): Path<String>,
) -> Result<StatusCode, Refusal> {
    server.change(ControlRequest::DeleteQosSet(name)).await
}

async fn set_wear(
    State(server): State<Server>,
    Body(change): Body<WearSettings>,
) -> Result<StatusCode, Refusal> {
    sound(change.check_slips())?;
    server.change(ControlRequest::SetWear(change)).await
}

async fn shutdown(State(server): State<Server>) -> Result<StatusCode, Refusal> {
    server.change(ControlRequest::Shutdown).await
}
