//! The server process: opens the device, starts a thread for each shard, applies a set-up, answers the control socket, and
//! stops on a signal.

use crate::addresses::{dialled, resolve, resolve_advertised};
use crate::announcement::{Announcement, DeviceLine, about_room};
use crate::apply::apply;
use crate::control_port::{Answer, ControlPort, Gone};
use crate::convert;
use crate::device;
use crate::error::{ServeError, file_error, warn};
use crate::folder::{DataFolder, looseness};
use crate::health::Watch;
use crate::http::{self, DeviceFacts, DevicePlace, DeviceTraits, router_with};
use crate::opened::{Age, AllOpened, Mark, News, Opened, Shown};
use crate::panics::{self, Panics};
use crate::places;
pub use crate::recording::Recording;
use crate::remote::Claims;
use crate::resources::{self, MemoryPlan};
use crate::roster::{Found, Member, Roster};
use crate::shards::{self, check_cores, check_shards};
use crate::signals;
use crate::socket::{self, SocketName};
use diecut_api::difference::{Difference, differences};
use diecut_api::setup::{Durability, Setup};
use diecut_devices::{Device, Options, Room};
use diecut_reactor::{Reactor, ReactorConfig, ReactorHandle};
use diecut_recording::{RecordOptions, Recorded, Start};
use diecut_shard::control::{ControlRequest, ControlResponse, Status, is_name_by_the_rule};
use diecut_shard::{DeviceConfig, DeviceIndex, PoolConfig, Shard, ShardConfig};
use diecut_units::Time;
use std::collections::BTreeMap;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::{Arc, RwLock};
use std::time::{Duration, Instant};

/// How long a stop may take before the server ends and says what was not written down. What was acknowledged is safe then, too: in
/// protected memory, or as the device's volatile cache promises.
const STOP_PATIENCE_MS: u64 = 10_000;

/// The way to the shard's thread.
struct ReactorPort(ReactorHandle);

impl ControlPort for ReactorPort {
    fn request(&self, request: ControlRequest) -> Answer {
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let sent = self.0.request(
            request,
            Box::new(move |response| {
                // Whoever asked may have gone away meanwhile.
                let _ = sender.send(response);
            }),
        );
        Box::pin(async move { if sent { receiver.await.map_err(|_| Gone) } else { Err(Gone) } })
    }
}

/// Two sockets of one path.
fn check_sockets(setup: &Setup) -> Result<(), ServeError> {
    let (control, blocks) = (setup.server.socket_path(), setup.server.blocks_socket_path());
    if control != blocks {
        return Ok(());
    }
    Err(ServeError::Setup(format!(
        "server.socket (--socket) and server.blocks_socket are both {}: give each a path of its own",
        control.display()
    )))
}

/// How a server is started.
#[derive(Clone, Copy, Debug, Default)]
pub struct ServeOptions<'a> {
    /// Write down what enters the shard.
    pub recording: Option<&'a Recording>,
    /// Bring what the set-up declares and an existing device lacks. A new device gets it in any case.
    pub apply: bool,
    /// The set-up's file, for messages; none if there is no file.
    pub file: Option<&'a Path>,
    /// The profile was named beside the file, by whoever starts the server.
    pub is_profile_named: bool,
}

/// Sockets of a server, in front of its device.
struct Sockets {
    control: UnixListener,
    control_name: SocketName,
    blocks: Option<UnixListener>,
    _blocks_name: Option<SocketName>,
}

/// Makes both sockets; both are gone again when the names are dropped. A recording has no applications at erase blocks.
fn listen_locally(setup: &Setup, has_blocks: bool) -> Result<Sockets, ServeError> {
    let (control, control_name) = socket::listen(&setup.server.socket_path(), 0o600)?;
    // Other users are let in where an administrator chose a place for them; the shard looks at who they are.
    let mode = if setup.server.blocks_socket.is_some() { 0o666 } else { 0o600 };
    let blocks = has_blocks.then(|| socket::listen(&setup.server.blocks_socket_path(), mode)).transpose()?;
    let (blocks, _blocks_name) = blocks.unzip();
    Ok(Sockets { control, control_name, blocks, _blocks_name })
}

async fn status_of(port: &dyn ControlPort) -> Result<Status, ServeError> {
    match port.request(ControlRequest::Status).await {
        Ok(ControlResponse::Status(status)) => Ok(*status),
        Ok(ControlResponse::Refused(error)) => Err(ServeError::Setup(error.message)),
        _ => Err(ServeError::Setup("the server stopped while it started".to_owned())),
    }
}

/// Brings the set-up onto a device that is new, or where it was asked for. Otherwise what exists wins, and what differs is said.
async fn settle(
    setup: &Setup,
    options: ServeOptions<'_>,
    opened: (Age, &[Difference]),
    listen: &str,
    port: &dyn ControlPort,
) -> Result<Status, ServeError> {
    let (age, of_device) = opened;
    let told = |status: &Status| convert::status(status.clone(), listen, &DeviceFacts::default());
    let mut status = status_of(port).await?;
    let pending = places::pending(setup);
    let is_new = match age {
        Age::New => true,
        Age::Unserved if status.tenants.is_empty() => {
            std::fs::write(&pending, "").map_err(file_error(&pending, "cannot be made"))?;
            true
        }
        Age::Unserved | Age::Served => false,
    };
    // A first start that was cut goes on where it was.
    let is_pending = age != Age::New && pending.exists();
    if is_new || is_pending || options.apply {
        let refused = apply(setup, &told(&status), port).await;
        refused.iter().skip(usize::from(is_new)).for_each(|problem| warn(&problem.message));
        if is_new && let Some(problem) = refused.into_iter().next() {
            return Err(ServeError::Setup(problem.message));
        }
        status = status_of(port).await?;
    }
    if is_pending {
        std::fs::remove_file(&pending).map_err(file_error(&pending, "cannot be removed"))?;
    }
    let file = options.file.map_or("FILE".to_owned(), |file| file.display().to_string());
    let differences = differences(setup, &told(&status), &file, &setup.server.socket_path());
    of_device.iter().chain(&differences).for_each(|difference| warn(&difference.to_string()));
    Ok(status)
}

/// What is wrong with a set-up before anything is opened.
fn check(setup: &Setup, is_recorded: bool) -> Result<(), ServeError> {
    let shards = setup.server.shards;
    if is_recorded && shards != 1 {
        return Err(ServeError::Setup(format!(
            "a recording holds one shard, but the server shall have {shards}; record with one (--shards 1)"
        )));
    }
    check_cores(&setup.server, diecut_reactor::cores()?.len())?;
    check_sockets(setup)
}

/// What people hear about the room of a device in a file; nothing of one in memory.
fn room_of(
    device: &Device,
    image: Option<&Path>,
    durability: Option<Durability>,
) -> Result<String, ServeError> {
    let (Some(path), Some(support), Some(durability)) = (image, device.room_support(), durability) else {
        return Ok(String::new());
    };
    if durability == Durability::Process {
        diecut_devices::tell_of_bus_errors(path);
    }
    let room = Room::of(path).map_err(file_error(path, "cannot be examined"))?;
    Ok(about_room(&room, support, durability))
}

/// What is so of all devices: they last as long as the one that lasts least, and hosts flush if one of them wants that.
fn traits_of(opened: &[Opened]) -> DeviceTraits {
    let first = opened.first().map(|one| one.traits).unwrap_or_default();
    let is_cached = opened.iter().any(|one| one.traits.volatile_cache == Some(true));
    DeviceTraits { volatile_cache: first.volatile_cache.map(|_| is_cached), ..first }
}

/// Starts the threads of shards on devices, and writes down what enters the one that is recorded.
fn start(
    reactor_config: &ReactorConfig,
    shards: u16,
    (mut devices, recipe): (Vec<(Device, DeviceConfig)>, Option<Options>),
    config: ShardConfig,
    panics: &Panics,
    recorded: Option<(&Recording, std::fs::File)>,
) -> Result<Reactor, ServeError> {
    let Some((recording, file)) = recorded else {
        let mut first = config.clone();
        panics.fill(&mut first);
        let makes = match devices.len() {
            1 => panics::makes(devices.remove(0).0, shards, &first),
            _ => panics::makes_over(devices, shards, &first),
        };
        // A drive is opened again by the next process only.
        let revival = recipe.map(|options| panics::revival(panics.clone(), options, shards, config));
        return Ok(Reactor::start_with(reactor_config, makes, revival)?);
    };
    let limits = RecordOptions { size_max_bytes: recording.size_max_bytes, ..RecordOptions::default() };
    // Looked at here, where a refusal can still be told; the shard's own clock starts on its thread.
    let options = recipe.expect("a recording of a drive was refused");
    let (device, _) = devices.remove(0);
    let mut start = Start::new(device.emulated().profile(), &options, &config, Time::ZERO)?;
    let make = move |now: Time| {
        start.started_ns = now.0;
        Recorded::new(Shard::new(device, config, now), &start, file, limits)
    };
    Ok(Reactor::start(reactor_config, vec![make])?)
}

/// Tells of vSSDs that take no writes and of names that some hosts do not take.
fn warn_about(status: &Status) {
    for vssd in &status.vssds {
        if let Some(reason) = &vssd.health.read_only_reason {
            let name = &vssd.spec.name;
            tracing::error!(
                vssd = name,
                reason,
                "the vSSD takes no writes; `diecut vssd repair {name}` says more"
            );
        }
    }
    for subsystem in &status.subsystems {
        let nqn = &subsystem.spec.nqn;
        if !is_name_by_the_rule(nqn) {
            warn(&format!(
                "subsystem \"{nqn}\": the name does not begin with nqn.yyyy-mm. (NVMe Base 2.0, section 4.5); Linux hosts \
                 take it, some programs do not"
            ));
        }
    }
}

/// Has the shards write down what makes the next start fast, and says so if they could not.
#[expect(clippy::disallowed_methods, reason = "times of the end are for the log")]
async fn shut_down(port: &dyn ControlPort) {
    let stopping_at = Instant::now();
    tracing::info!("stopping");
    let request = Box::new(ControlRequest::Shutdown);
    let stop = port.request(ControlRequest::Within { patience_ms: STOP_PATIENCE_MS, request });
    // The shard answers in time; if it cannot, nobody waits for it.
    let longest = Duration::from_millis(STOP_PATIENCE_MS + 2_000);
    match tokio::time::timeout(longest, stop).await {
        Ok(Ok(ControlResponse::Refused(error))) => {
            tracing::warn!("not everything could be written down at the end: {error}");
        }
        Ok(_) => {}
        Err(_) => tracing::error!("the first shard does not answer; the server ends without it"),
    }
    tracing::info!(stopped_ms = stopping_at.elapsed().as_millis() as u64, "stopped");
}

/// Serves until SIGINT, SIGTERM or SIGHUP (unless that is ignored); a second one of the first two ends the process at once. `announce`
/// has lines for people, once hosts can connect; warnings come before. A set-up is brought onto a new device only, or if it is asked for.
///
/// # Errors
/// Names the file, field or address and what to do. A device that was new is removed again.
#[expect(clippy::disallowed_methods, reason = "times of the start are for the log")]
pub fn serve(
    setup: &Setup,
    serve_options: ServeOptions<'_>,
    announce: impl FnOnce(&str),
) -> Result<(), ServeError> {
    let shards = setup.server.shards;
    let recording = serve_options.recording;
    check(setup, recording.is_some())?;
    let wanted = &device::wanted(setup)?;
    let listen = resolve("server.listen", &setup.server.listen)?;
    let advertised = resolve_advertised(&setup.server.advertise)?;
    let started_at = Instant::now();
    let mut folder = DataFolder::take(&setup.server.data, &setup.server.socket_path())?;
    device::check_folder(wanted, setup)?;
    let panics = Panics::open(&setup.server.data);
    let Sockets { control, control_name, blocks, _blocks_name } = listen_locally(setup, recording.is_none())?;
    let record_to = recording.map(|recording| recording.create(setup)).transpose()?;
    let opened = device::open(wanted, setup, serve_options.file, serve_options.is_profile_named)?;
    let geometries = opened.devices.iter().map(|one| &one.cut.geometry);
    let lanes = geometries.map(|one| (one.channels, PoolConfig::suited_to(one).log_channels(one)));
    check_shards(shards, &lanes.collect::<Vec<_>>())?;
    let (mut config, configs) = shards::config(setup, &opened)?;
    let AllOpened { devices: opened, missing, missing_count, recipe, news, .. } = opened;
    let News { age, made: [mut image, pending], mark, differences } = news;
    let (traits, watch) = (traits_of(&opened), Watch::start(opened.iter().filter_map(Opened::drive))?);
    let (mut room, mut places, mut lines) = (String::new(), BTreeMap::new(), Vec::new());
    let mut private = vec![setup.server.data.clone()];
    let (mut devices, mut io, mut rooms, mut members) = (Vec::new(), Vec::new(), None, Vec::new());
    // Given up whether the start fails or the server ends.
    let mut claims = Claims::default();
    for ((number, one), config) in (0..).map(DeviceIndex).zip(opened).zip(configs) {
        let Opened {
            mut device,
            shown: Shown { name, place, what, file },
            traits,
            io: own_io,
            claim,
            member,
            ..
        } = one;
        room += &room_of(&device, file.as_deref(), traits.durability)?;
        private.extend(file.clone());
        tracing::info!(place, name, shards, "opening the device");
        // A replay of a recording has no file system that takes its time.
        if record_to.is_none() {
            rooms = rooms.or(device.room_worker());
        }
        lines.push(DeviceLine { place: place.clone(), what });
        let path = traits.durability.is_some().then_some(place);
        places.insert(name.clone(), DevicePlace { path, file });
        members.extend(member.map(|(device, held)| Member { index: number, name, device, held }));
        claims.0.extend(claim.map(|claim| (number, claim)));
        io.extend(own_io.map(|file| (number, file)));
        devices.push((device, config));
    }
    private.iter().filter_map(|path| looseness(path)).for_each(|text| warn(&text));
    config.target.advertised = if advertised.is_empty() { listen.clone() } else { advertised.clone() };
    let memory = MemoryPlan::new(setup.server.memory_limit.map(|size| size.bytes()), shards);
    config.target.memory.limit_bytes = memory.at_start();
    panics::plant(&mut config);
    // Signals are blocked in the shard's thread only if they are caught before it starts.
    let signals = signals::stops()?;
    let (limit, open) = (resources::raise_descriptors(), resources::open_descriptors());
    let newcomers = config.target.newcomers_max() * usize::from(shards);
    let connections = resources::connection_limits(limit, open, newcomers);
    let clients_max = resources::clients_max(limit, open);
    let reactor_config = ReactorConfig {
        listen,
        is_closed: true,
        blocks,
        connections,
        io,
        rooms,
        pin_cores: setup.server.pin_cores,
        busy_poll: Duration::from_micros(setup.server.busy_poll_us.into()),
    };
    let found = Found {
        indexes: devices.len() as u16,
        missing_count,
        volatile_cache: traits.volatile_cache == Some(true),
        members,
        claims,
    };
    let reactor =
        start(&reactor_config, shards, (devices, recipe), config, &panics, recording.zip(record_to))?;
    // What is open of the device is the threads' alone, so that they can open it again.
    drop(reactor_config);
    let facts = DeviceFacts {
        traits,
        places,
        missing: missing.clone(),
        health: watch.health(),
        ..DeviceFacts::default()
    };
    let facts = Arc::new(RwLock::new(facts));
    let roster = (!found.members.is_empty())
        .then(|| Arc::new(Roster::new(found, watch, Arc::clone(&facts), setup.clone(), reactor.handle())));
    let port: Arc<dyn ControlPort> = Arc::new(ReactorPort(reactor.handle()));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    for address in reactor.addresses().iter().filter(|address| !address.ip().is_loopback()) {
        warn(&format!(
            "listening on {address}: whoever reaches this address can claim to be any host (there is no authentication yet), and \
             reads and writes what that host may; keep it within a network that you trust"
        ));
    }
    let told = if advertised.is_empty() { dialled(reactor.addresses()) } else { advertised };
    let listen = reactor.addresses().iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let outcome = runtime.block_on(async {
        let status = settle(setup, serve_options, (age, &differences), &listen, &*port).await?;
        resources::trim();
        let rest_bytes = resources::rest_bytes(&reactor.handle());
        memory.check(rest_bytes).map_err(ServeError::Setup)?;
        reactor.handle().set_memory(memory.beside(rest_bytes));
        let looking = tokio::spawn(resources::look_after_memory(reactor.handle(), memory));
        // All of it is there now, and hosts find it.
        reactor.open();
        image.keep();
        mark.iter().for_each(Mark::leave);
        folder.keep();
        drop(pending);
        control.set_nonblocking(true)?;
        let listener = tokio::net::UnixListener::from_std(control)?;
        let socket = control_name.path();
        tracing::info!(
            opened_ms = started_at.elapsed().as_millis() as u64,
            vssds = status.vssds.len(),
            volumes = status.volumes.len(),
            subsystems = status.subsystems.len(),
            "serving"
        );
        for address in reactor.addresses() {
            tracing::info!(%address, "listening, NVMe over TCP");
        }
        tracing::info!(path = %socket.display(), "listening, administrators");
        warn_about(&status);
        let memory = &memory.describe(rest_bytes);
        let lines = Announcement {
            listen: &listen,
            told: &told,
            devices: &lines,
            missing: &missing,
            room: &room,
            memory,
            socket,
        };
        announce(&lines.text(&status, traits));
        let stopped = signals::stop_of(signals);
        let routes = router_with(Arc::clone(&port), listen, facts, panics, roster.clone());
        tokio::select! {
            never = http::serve(listener, routes, clients_max) => match never {},
            _ = stopped => {}
        }
        looking.abort();
        shut_down(&*port).await;
        Ok(())
    });
    reactor.stop();
    roster.iter().for_each(|roster| roster.close());
    outcome
}
