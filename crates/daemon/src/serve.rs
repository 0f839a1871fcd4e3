//! The server process: opens the device, starts a thread for each shard, applies a set-up, answers the control socket, and
//! stops on a signal.

use crate::apply::apply;
use crate::control_port::{Answer, ControlPort, Gone};
use crate::http::router;
use diecut_api::setup::{Backing, Durability, Setup};
use diecut_reactor::{Reactor, ReactorConfig, ReactorError, ReactorHandle};
use diecut_recording::{RecordOptions, Recorded, Start, StartError};
use diecut_shard::control::{ControlRequest, ControlResponse};
use diecut_shard::emulator::{self, Device, DeviceError, Options, Pacing, Profile};
use diecut_shard::{PoolConfig, Shard, ShardConfig, divide};
use diecut_units::{Geometry, Time};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// Why the server cannot start, or stopped.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The set-up asks for what this version cannot do.
    #[error("{0}")]
    Setup(String),
    /// A file or folder.
    #[error("{path}: {what}: {source}")]
    File {
        /// Which.
        path: PathBuf,
        /// What was tried.
        what: &'static str,
        /// Why not.
        source: std::io::Error,
    },
    /// The device.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The recording.
    #[error(transparent)]
    Recording(#[from] StartError),
    /// The threads or the port.
    #[error(transparent)]
    Reactor(#[from] ReactorError),
    /// The operating system.
    #[error("cannot start: {0}")]
    System(#[from] std::io::Error),
}

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

fn file_error(path: &Path, what: &'static str) -> impl FnOnce(std::io::Error) -> ServeError {
    let path = path.to_owned();
    move |source| ServeError::File { path, what, source }
}

/// Where a run is recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recording {
    /// The file; it must not exist yet.
    pub path: PathBuf,
    /// It ends before it is longer, in bytes.
    pub size_max_bytes: u64,
}

impl Recording {
    fn create(&self, setup: &Setup) -> Result<std::fs::File, ServeError> {
        let image = image_path(setup);
        if setup.device.backing == Backing::File && image.exists() {
            return Err(ServeError::Setup(format!(
                "a recording begins with a new device, but there is one already: {}; name another data folder (--data), or set \
                 device.backing = \"memory\"",
                image.display()
            )));
        }
        let file = std::fs::File::create_new(&self.path);
        file.map_err(file_error(&self.path, "a recording cannot be made there"))
    }
}

fn image_path(setup: &Setup) -> PathBuf {
    setup.server.data.join("device.img")
}

/// A device that was opened.
struct Opened {
    device: Device,
    options: Options,
    /// For people: where its content is.
    place: String,
}

/// A cache in front of memory that survives a cut anyway would only make hosts flush.
fn check_volatile_cache(setup: &Setup, protected_memory_bytes: u64) -> Result<(), ServeError> {
    if !setup.device.volatile_cache || protected_memory_bytes == 0 {
        return Ok(());
    }
    Err(ServeError::Setup(format!(
        "device.volatile_cache is for a device without protected memory, and this one has {protected_memory_bytes} bytes: leave it \
         out, or set device.protected_memory = \"0\" for a new device"
    )))
}

fn open_device(setup: &Setup) -> Result<Opened, ServeError> {
    let wanted = &setup.device;
    if wanted.durability == Durability::Machine {
        return Err(ServeError::Setup(
            "device.durability = \"machine\" is not built yet: use \"process\", which survives the death of the \
             server, not of the machine"
                .to_owned(),
        ));
    }
    let mut profile = Profile::named_or_file(&wanted.profile).map_err(DeviceError::Profile)?;
    if let Some(size) = wanted.protected_memory {
        profile.protected_memory_bytes = size.bytes();
    }
    let pacing = if wanted.pacing { Pacing::Modelled } else { Pacing::Unpaced };
    let options = |backing| Options { backing, pacing, seed: wanted.seed, ..Options::default() };
    if wanted.backing == Backing::Memory {
        let options = options(emulator::Backing::Memory);
        let device = Device::create(&profile, options.clone())?;
        let place = "memory (gone when the server stops)".to_owned();
        return Ok(Opened { device, options, place });
    }
    let path = image_path(setup);
    let options = options(emulator::Backing::File(path.clone()));
    let device = if !path.exists() {
        Device::create(&profile, options.clone())?
    } else {
        let device = Device::open(&path, options.clone())?;
        if device.profile() != &profile {
            return Err(ServeError::Setup(format!(
                "{} was made with profile \"{}\", or with other values in it, but the set-up says \"{}\"; name the \
                 profile it was made with, or another data folder",
                path.display(),
                device.profile().name,
                profile.name
            )));
        }
        device
    };
    Ok(Opened { device, options, place: path.display().to_string() })
}

fn random_uuid() -> Result<[u8; 16], ServeError> {
    let path = Path::new("/dev/urandom");
    let mut bytes = [0; 16];
    let mut file = std::fs::File::open(path).map_err(file_error(path, "cannot be read"))?;
    std::io::Read::read_exact(&mut file, &mut bytes).map_err(file_error(path, "cannot be read"))?;
    // RFC 9562: version 4, variant 10b.
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    Ok(bytes)
}

fn pool_config(wanted: &diecut_api::setup::Pool, geometry: &Geometry) -> Result<PoolConfig, ServeError> {
    let refuse = |text: String| Err(ServeError::Setup(text));
    let defaults = PoolConfig::default();
    let soft_planes_per_die = wanted.soft_planes_per_die.unwrap_or(defaults.soft_planes_per_die);
    if !(1..=16).contains(&soft_planes_per_die) {
        return refuse(format!("pool.soft_planes_per_die = {soft_planes_per_die}: use 1 to 16"));
    }
    let die_queue_depth = wanted.die_queue_depth.unwrap_or(defaults.die_queue_depth);
    if die_queue_depth < soft_planes_per_die {
        return refuse(format!(
            "pool.die_queue_depth = {die_queue_depth}: each of {soft_planes_per_die} soft-planes of a die needs a place; use \
             {soft_planes_per_die} or more (256 is usual)"
        ));
    }
    let mut levels = PoolConfig::levels_of(geometry, soft_planes_per_die);
    for (name, table, own) in [
        ("channels", &wanted.levels.channels, &mut levels.channels),
        ("dies", &wanted.levels.dies, &mut levels.dies),
        ("soft_planes", &wanted.levels.soft_planes, &mut levels.soft_planes),
    ] {
        if table.contains(&0) {
            return refuse(format!("pool.levels.{name} has a level of 0; use 1 or more"));
        }
        if !table.is_empty() {
            own.clone_from(table);
        }
    }
    let die_placement = match wanted.die_placement {
        diecut_api::setup::DiePlacement::Pack => diecut_shard::DiePlacement::Pack,
        diecut_api::setup::DiePlacement::Spread => diecut_shard::DiePlacement::Spread,
    };
    let wear = PoolConfig::suited_to(geometry).wear;
    Ok(PoolConfig { soft_planes_per_die, die_queue_depth, levels, die_placement, wear, ..defaults })
}

/// Most shards of one server: more than cores of any machine it was tried on.
const SHARDS_MAX: u16 = 256;

pub(crate) fn check_shards(shards: u16, channels: u16) -> Result<(), ServeError> {
    let refuse = |text: String| Err(ServeError::Setup(text));
    if shards == 0 || shards > SHARDS_MAX {
        return refuse(format!("server.shards = {shards}: use 1 to {SHARDS_MAX}, at most one for each core"));
    }
    if shards > channels {
        return refuse(format!(
            "server.shards = {shards}: a shard owns whole channels, and the device has {channels}; use {channels} or fewer"
        ));
    }
    Ok(())
}

/// Serves until SIGINT or SIGTERM, and writes down what enters the shard if `recording` says where. `announce` is called
/// once, with lines for people, when hosts can connect.
///
/// # Errors
/// Names the file, field or address and what to do.
#[expect(clippy::disallowed_methods, reason = "times of the start and the end are for the log")]
pub fn serve(
    setup: &Setup,
    recording: Option<&Recording>,
    announce: impl FnOnce(&str),
) -> Result<(), ServeError> {
    let shards = setup.server.shards;
    if recording.is_some() && shards != 1 {
        return Err(ServeError::Setup(format!(
            "a recording holds one shard, but the server shall have {shards}; record with one (--shards 1)"
        )));
    }
    let started_at = Instant::now();
    let data = &setup.server.data;
    std::fs::create_dir_all(data).map_err(file_error(data, "cannot be made"))?;
    let record_to = recording.map(|recording| recording.create(setup)).transpose()?;
    let Opened { device, options, place } = open_device(setup)?;
    let profile = device.profile().clone();
    tracing::info!(place, profile = profile.name, shards, "opening the device");
    check_shards(shards, profile.geometry.channels)?;
    check_volatile_cache(setup, profile.protected_memory_bytes)?;
    let mut config = ShardConfig {
        pool: pool_config(&setup.pool, &profile.geometry)?,
        device_name: profile.name.clone(),
        volatile_cache: setup.device.volatile_cache,
        new_pool_uuid: random_uuid()?,
        ..ShardConfig::default()
    };
    config.pool.wear.endurance_cycles = profile.cell.endurance_cycles.max(1);
    config.target.advertised = vec![setup.server.listen];
    // Signals are blocked in the shard's thread only if they are caught before it starts.
    let mut signals =
        signal_hook::iterator::Signals::new([signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM])?;
    // A recording has no applications at erase blocks. The device is locked: a socket that is left there is a dead server's.
    let blocks = recording.is_none().then(|| setup.server.blocks_socket_path());
    let reactor_config = ReactorConfig { listen: vec![setup.server.listen], blocks };
    let reactor = match recording.zip(record_to) {
        None => {
            let make = divide(device, shards).into_iter().map(|(seat, part)| {
                let config = config.clone();
                move |now| Shard::seated(part, config, seat, now)
            });
            Reactor::start(&reactor_config, make.collect())?
        }
        Some((recording, file)) => {
            let limits =
                RecordOptions { size_max_bytes: recording.size_max_bytes, ..RecordOptions::default() };
            // Looked at here, where a refusal can still be told; the shard's own clock starts on its thread.
            let mut start = Start::new(&profile, &options, &config, Time::ZERO)?;
            let make = move |now: Time| {
                start.started_ns = now.0;
                Recorded::new(Shard::new(device, config, now), &start, file, limits)
            };
            Reactor::start(&reactor_config, vec![make])?
        }
    };
    let port: Arc<dyn ControlPort> = Arc::new(ReactorPort(reactor.handle()));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let listen = reactor.addresses()[0];
    let outcome = runtime.block_on(async {
        apply(setup, &*port).await.map_err(|problem| ServeError::Setup(problem.message))?;
        let socket = setup.server.socket_path();
        // The device is locked, so a socket that is left here is a dead server's.
        if socket.exists() {
            std::fs::remove_file(&socket).map_err(file_error(&socket, "cannot be removed"))?;
        }
        let listener =
            tokio::net::UnixListener::bind(&socket).map_err(file_error(&socket, "cannot be made"))?;
        let owner_only = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(&socket, owner_only).map_err(file_error(&socket, "cannot be protected"))?;
        let status = match port.request(ControlRequest::Status).await {
            Ok(ControlResponse::Status(status)) => status,
            Ok(ControlResponse::Refused(error)) => {
                let _ = std::fs::remove_file(&socket);
                return Err(ServeError::Setup(error.message));
            }
            _ => return Err(ServeError::Setup("the server stopped while it started".to_owned())),
        };
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
        for vssd in &status.vssds {
            if let Some(reason) = &vssd.read_only_reason {
                tracing::error!(vssd = vssd.spec.name, reason, "the vSSD takes no writes");
            }
        }
        announce(&announcement(&status, &listen.to_string(), &place, &socket));
        let (stop, stopped) = tokio::sync::oneshot::channel();
        #[allow(clippy::disallowed_methods, reason = "the daemon owns threads beside the data path")]
        std::thread::spawn(move || {
            if signals.forever().next().is_some() {
                let _ = stop.send(());
            }
        });
        let routes = router(Arc::clone(&port), listen.to_string());
        tokio::select! {
            result = async { axum::serve(listener, routes).await } => result?,
            _ = stopped => {}
        }
        let stopping_at = Instant::now();
        tracing::info!("stopping");
        if let Ok(ControlResponse::Refused(error)) = port.request(ControlRequest::Shutdown).await {
            tracing::warn!("not everything could be written down at the end: {error}");
        }
        tracing::info!(stopped_ms = stopping_at.elapsed().as_millis() as u64, "stopped");
        let _ = std::fs::remove_file(&socket);
        Ok(())
    });
    reactor.stop();
    outcome
}

fn announcement(status: &diecut_shard::control::Status, listen: &str, place: &str, socket: &Path) -> String {
    use std::fmt::Write;
    let mut text = String::new();
    let (address, port) = listen.rsplit_once(':').unwrap_or((listen, "4420"));
    let address = address.trim_matches(['[', ']']);
    for device in &status.devices {
        let gib = device.raw_capacity_bytes >> 30;
        let _ = writeln!(text, "device     {} in {place}: {gib} GiB raw, emulated", device.name);
    }
    for vssd in &status.vssds {
        let size = vssd.exported_bytes >> 20;
        let _ = writeln!(text, "vSSD       {}: {}, {size} MiB for volumes", vssd.spec.name, vssd.placement);
    }
    let _ = writeln!(text, "listening  {listen}, NVMe over TCP");
    let _ = writeln!(text, "\nOn a Linux host, as root:\n\n    modprobe nvme-tcp");
    for subsystem in &status.subsystems {
        let _ = writeln!(
            text,
            "    nvme connect --transport=tcp --traddr={address} --trsvcid={port} --nqn={}",
            subsystem.spec.nqn
        );
    }
    let _ = writeln!(text, "    nvme list\n\nWhere to look next:\n");
    let _ = writeln!(text, "    diecut --socket {} status", socket.display());
    let _ = writeln!(
        text,
        "    diecut --help\n\nCtrl-C stops the server; started again, everything is still there."
    );
    text
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn a_volatile_cache_is_for_devices_without_protected_memory() {
        let check = |text: &str, bytes| check_volatile_cache(&Setup::from_toml(text).unwrap(), bytes);
        assert!(check("", 0).is_ok() && check("", 1 << 20).is_ok());
        assert!(check("[device]\nvolatile_cache = true", 0).is_ok());
        let refused = check("[device]\nvolatile_cache = true", 1 << 20).unwrap_err().to_string();
        assert!(
            refused.contains("device.volatile_cache") && refused.contains("protected_memory"),
            "{refused}"
        );
    }

    #[test]
    fn a_pool_is_set_as_the_file_says() {
        let geometry = emulator::Profile::named("tiny").unwrap().geometry;
        let read = |text: &str| pool_config(&Setup::from_toml(text).unwrap().pool, &geometry);
        let usual = read("").unwrap();
        assert_eq!((usual.die_queue_depth, usual.soft_planes_per_die), (256, 4));
        assert_eq!(usual.levels.soft_planes, [1, 8, 16]);
        let set = read(
            "[pool]\ndie_queue_depth = 32\nsoft_planes_per_die = 2\ndie_placement = \"spread\"\n[pool.levels]\ndies = [1, 3]",
        );
        let set = set.unwrap();
        assert_eq!((set.die_queue_depth, set.soft_planes_per_die), (32, 2));
        assert_eq!((set.levels.dies, set.levels.soft_planes), (vec![1, 3], vec![1, 4, 8]));
        for (text, names) in [
            ("[pool]\ndie_queue_depth = 3", "die_queue_depth"),
            ("[pool]\nsoft_planes_per_die = 0", "soft_planes_per_die"),
            ("[pool.levels]\nchannels = [0, 1]", "levels.channels"),
        ] {
            assert!(read(text).unwrap_err().to_string().contains(names));
        }
    }
}
