//! The server process: opens the device, starts a thread for each shard, applies a set-up, answers the control socket, and
//! stops on a signal.

use crate::addresses::{dialled, resolve, resolve_advertised};
use crate::announcement::{Announcement, about_room};
use crate::apply::apply;
use crate::control_port::{Answer, ControlPort, Gone};
use crate::convert;
use crate::folder::{DataFolder, Unfinished, looseness};
use crate::http::{self, DeviceTraits, router_over};
use crate::resources::{self, MemoryPlan};
use crate::signals;
use crate::socket::{self, SocketName};
use diecut_api::difference::{Difference, differences};
use diecut_api::setup::{Backing, Device as Wanted, Durability, Setup};
use diecut_devices::{Device, DeviceError, Options, Pacing, Profile, Room};
use diecut_reactor::{IoFile, Reactor, ReactorConfig, ReactorError, ReactorHandle};
use diecut_recording::{RecordOptions, Recorded, Start, StartError};
use diecut_shard::control::{ControlRequest, ControlResponse, is_name_by_the_rule};
use diecut_shard::{PoolConfig, Shard, ShardConfig, divide};
use diecut_spec::Size;
use diecut_units::{Geometry, Time};
use std::io::Write;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a stop may take before the server ends and says what was not written down. What was acknowledged is safe then, too: in
/// protected memory, or as the device's volatile cache promises.
const STOP_PATIENCE_MS: u64 = 10_000;

/// Why the server cannot start, or stopped.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The set-up asks for what cannot be; the message says what and what to do.
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
                "a recording begins with a new device, but there is one already: {}; name another data folder (--data)",
                image.display()
            )));
        }
        use std::os::unix::fs::OpenOptionsExt;
        // It tells of names and addresses.
        let file = std::fs::File::options().write(true).create_new(true).mode(0o600).open(&self.path);
        file.map_err(file_error(&self.path, "a recording cannot be made there"))
    }
}

fn image_path(setup: &Setup) -> PathBuf {
    setup.server.data.join("device.img")
}

/// A device was served from the data folder: the file is there from then on, so that an image that is gone is missed.
fn made_path(setup: &Setup) -> PathBuf {
    setup.server.data.join("device.made")
}

const MADE: &str = "device.img was made in this folder. While this file is here, a server that does not find the image does not start.\n";

/// Leaves the mark that a device is here. A server without it serves as well.
fn mark_made(setup: &Setup) {
    let path = made_path(setup);
    if let Err(error) = std::fs::write(&path, MADE)
        && !path.exists()
    {
        warn(&format!(
            "{} cannot be made ({error}): if the image goes away, nobody will miss it",
            path.display()
        ));
    }
}

/// Nobody gets an empty device in place of one that is gone, or that is not looked at.
fn check_image(setup: &Setup) -> Result<(), ServeError> {
    let (image, made) = (image_path(setup), made_path(setup));
    let (name, mark) = (image.display(), made.display());
    if setup.device.backing == Backing::Memory && (image.exists() || made.exists()) {
        return Err(ServeError::Setup(format!(
            "device.backing = \"memory\", but this data folder is that of the device in {name}: hosts would find empty volumes in place \
             of what is there. Set it to \"file\", or name another data folder (--data)"
        )));
    }
    if setup.device.backing == Backing::File && !image.exists() && made.exists() {
        return Err(ServeError::Setup(format!(
            "{name} was served from this folder and is not there: hosts would find a new device with empty volumes in its place. Put it \
             back, or, if all that it held shall be gone, remove {mark}, and the next start makes a new device"
        )));
    }
    Ok(())
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

/// A set-up is being brought onto a new device, and was not yet in whole: the file is there until it was.
fn pending_path(setup: &Setup) -> PathBuf {
    setup.server.data.join("setup.pending")
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

/// A device that was opened.
struct Opened {
    device: Device,
    options: Options,
    /// For people: where its content is.
    place: String,
    /// What this process made of it: removed unless the server starts.
    made: [Unfinished; 2],
    /// It holds nothing yet.
    is_new: bool,
    /// How it differs from what the set-up says of it.
    differences: Vec<Difference>,
}

/// Tells people what is no reason not to start.
fn warn(text: &str) {
    tracing::warn!("{text}");
}

/// What a device that survives the death of the machine cannot be beside.
fn check_durability(setup: &Setup) -> Result<(), ServeError> {
    let wanted = &setup.device;
    if wanted.durability == Durability::Process {
        return Ok(());
    }
    let refuse = |text: String| Err(ServeError::Setup(text));
    if wanted.backing == Backing::Memory {
        return refuse(
            "device.durability = \"machine\" is for a device in a file, and device.backing is \"memory\": leave one of them out"
                .to_owned(),
        );
    }
    if setup.server.shards != 1 {
        return refuse(format!(
            "device.durability = \"machine\" is for one shard, which syncs the file, but server.shards = {}: set it to 1, or \
             use device.durability = \"process\"",
            setup.server.shards
        ));
    }
    if let Some(size) = wanted.protected_memory.filter(|size| size.bytes() > 0) {
        return refuse(format!(
            "device.protected_memory = \"{}\": a device with durability = \"machine\" has no protected memory, for no memory \
             survives the death of the machine; leave it out",
            size.exact()
        ));
    }
    Ok(())
}

/// A device's file is laid out for one durability; what exists is not changed, and what it promises is not guessed.
fn check_made_durability(
    wanted: Durability,
    file: Option<&Path>,
    device: &Device,
    place: &str,
) -> Result<(), ServeError> {
    let name = |durability| if durability == Durability::Machine { "machine" } else { "process" };
    let made = if device.sync_file().is_some() { Durability::Machine } else { Durability::Process };
    // Without a file, nobody said anything.
    if made == wanted || (file.is_none() && wanted == diecut_api::setup::Device::default().durability) {
        return Ok(());
    }
    Err(ServeError::Setup(format!(
        "the device in {place} was made with device.durability = \"{}\", and the set-up says \"{}\"{}: a device keeps what it was \
         made with. Write that into the set-up, or name another data folder (--data) for a new device",
        name(made),
        name(wanted),
        if wanted == Durability::Process { ", which is the default" } else { "" },
    )))
}

/// A cache in front of memory that survives a cut anyway would only make hosts flush. It is refused for a new device; on one that exists
/// nobody can take the memory away any more, and it is a warning. Whether there is a cache.
fn volatile_cache(setup: &Setup, protected_memory_bytes: u64, is_new: bool) -> Result<bool, ServeError> {
    if !setup.device.volatile_cache || protected_memory_bytes == 0 {
        return Ok(setup.device.volatile_cache);
    }
    if !is_new {
        warn(&format!(
            "device.volatile_cache = true counts for a device without protected memory, and this one was made with \
             {protected_memory_bytes} bytes: there is no such cache, and acknowledged writes are durable. Leave it out of the set-up"
        ));
        return Ok(false);
    }
    Err(ServeError::Setup(format!(
        "device.volatile_cache is for a device without protected memory, and this one has {protected_memory_bytes} bytes: leave it \
         out, or set device.protected_memory = \"0\" for a new device"
    )))
}

fn open_device(setup: &Setup, file: Option<&Path>, is_profile_named: bool) -> Result<Opened, ServeError> {
    let wanted = &setup.device;
    check_durability(setup)?;
    let profile = wanted_profile(wanted);
    let pacing = if wanted.pacing { Pacing::Modelled } else { Pacing::Unpaced };
    let options = |backing| Options { backing, pacing, seed: wanted.seed, ..Options::default() };
    if wanted.backing == Backing::Memory {
        let options = options(diecut_devices::Backing::Memory);
        let device = Device::create(&profile?, options.clone())?;
        let place = "memory (gone when the server stops)".to_owned();
        let made = [Unfinished::none(), Unfinished::none()];
        return Ok(Opened { device, options, place, made, is_new: true, differences: Vec::new() });
    }
    let path = image_path(setup);
    let options = options(match wanted.durability {
        Durability::Process => diecut_devices::Backing::File(path.clone()),
        Durability::Machine => diecut_devices::Backing::SyncedFile(path.clone()),
    });
    let place = path.display().to_string();
    if path.exists() {
        let device = Device::open(&path, options.clone())?;
        check_made_durability(wanted.durability, file, &device, &place)?;
        // Without a file, what nobody named on the command line is a default that nobody wrote.
        let mut differences = Vec::new();
        if file.is_some() {
            differences = device_differences(&device, wanted, profile, &place);
        } else if is_profile_named {
            differences = device_differences(
                &device,
                &Wanted { seed: device.seed(), ..wanted.clone() },
                profile,
                &place,
            );
        }
        let made = [Unfinished::none(), Unfinished::none()];
        return Ok(Opened { device, options, place, made, is_new: false, differences });
    }
    let profile = profile?;
    let gib = profile.geometry.raw_capacity_bytes() >> 30;
    warn(&format!("a new device is made in {place} ({gib} GiB, profile {})", profile.name));
    let pending = pending_path(setup);
    // In front of the image: whatever happens on the way, the next start knows that the set-up is not on it.
    std::fs::write(&pending, "").map_err(file_error(&pending, "cannot be made"))?;
    let made = [Unfinished::new(path), Unfinished::new(pending)];
    let device = Device::create(&profile, options.clone())?;
    Ok(Opened { device, options, place, made, is_new: true, differences: Vec::new() })
}

/// The least protected memory a built-in profile is served with, in bytes: block states and vSSDs need it.
const PROTECTED_MEMORY_MIN_BYTES: u64 = 64 << 20;

fn wanted_profile(wanted: &diecut_api::setup::Device) -> Result<Profile, DeviceError> {
    let mut profile = crate::profile::named_or_file(&wanted.profile)?;
    match wanted.protected_memory {
        _ if wanted.durability == Durability::Machine => profile.protected_memory_bytes = 0,
        Some(size) => profile.protected_memory_bytes = size.bytes(),
        // Those for tests have less than a server needs; a file's profile is as it says.
        None if Profile::named(&wanted.profile).is_ok() && profile.protected_memory_bytes > 0 => {
            profile.protected_memory_bytes = profile.protected_memory_bytes.max(PROTECTED_MEMORY_MIN_BYTES);
        }
        None => {}
    }
    Ok(profile)
}

/// What exists wins; a profile that cannot be read is a difference, too. Each field that makes a device is named.
fn device_differences(
    device: &Device,
    wanted: &Wanted,
    profile: Result<Profile, DeviceError>,
    place: &str,
) -> Vec<Difference> {
    let exists = device.profile();
    let mut found = Vec::new();
    let mut push = |field: &str, declared: String, exists: String| {
        if declared == exists {
            return;
        }
        let remedy = "the device stays as it was made: write that into the set-up, or name another data folder (--data)";
        found.push(Difference {
            kind: "device".to_owned(),
            name: place.to_owned(),
            field: Some(field.to_owned()),
            declared,
            exists: Some(exists),
            remedy: remedy.to_owned(),
        });
    };
    push("seed", wanted.seed.to_string(), device.seed().to_string());
    let is_other = profile.as_ref().map_or(true, |profile| profile.name != exists.name);
    match &profile {
        Err(error) => {
            push("profile", format!("another one, which cannot be read ({error})"), exists.name.clone());
        }
        Ok(profile) if is_other => push("profile", profile.name.clone(), exists.name.clone()),
        Ok(profile) => {
            for (field, exists, declared) in exists.differences(profile) {
                push(&format!("profile's {field}"), declared, exists);
            }
        }
    }
    // What another profile has is no wish of its own.
    let declared = match (&profile, wanted.protected_memory) {
        (_, Some(size)) => Some(size),
        (Ok(profile), None) if !is_other => Some(Size(profile.protected_memory_bytes)),
        _ => None,
    };
    if let Some(declared) = declared.filter(|_| device.sync_file().is_none()) {
        push("protected_memory", declared.exact(), Size(exists.protected_memory_bytes).exact());
    }
    found
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
        return refuse(format!(
            "server.shards = {shards}: use 1 to {SHARDS_MAX}, at most one for each channel"
        ));
    }
    if shards > channels {
        return refuse(format!(
            "server.shards = {shards}: a shard owns whole channels, and the device has {channels}; use {channels} or fewer"
        ));
    }
    Ok(())
}

/// A core for each shard, where each is to have one.
fn check_cores(server: &diecut_api::setup::Server, cores: usize) -> Result<(), ServeError> {
    if !server.pin_cores || usize::from(server.shards) <= cores {
        return Ok(());
    }
    Err(ServeError::Setup(format!(
        "server.pin_cores keeps each shard on a core of its own, but there are {} shards (server.shards) and {cores} cores that this \
         process may use: use {cores} shards or fewer, or leave pin_cores out",
        server.shards
    )))
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

async fn status_of(port: &dyn ControlPort) -> Result<diecut_shard::control::Status, ServeError> {
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
    opened: (bool, &[Difference]),
    listen: &str,
    port: &dyn ControlPort,
) -> Result<diecut_shard::control::Status, ServeError> {
    let (is_new, of_device) = opened;
    let told = |status: &diecut_shard::control::Status| convert::status(status.clone(), listen, None);
    let mut status = status_of(port).await?;
    // A first start that was cut goes on where it was.
    let pending = pending_path(setup);
    let is_pending = !is_new && setup.device.backing == Backing::File && pending.exists();
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
    let differences = differences(setup, &told(&status), &file);
    of_device.iter().chain(&differences).for_each(|difference| warn(&difference.to_string()));
    Ok(status)
}

/// Serves until SIGINT, SIGTERM or SIGHUP (unless that is ignored); a second one of the first two ends the process at once. `announce` is called once, with lines for people, when hosts can connect; warnings go to stderr
/// before. What exists on the device wins over the set-up, which is brought onto a new device only, or if it is asked for.
///
/// # Errors
/// Names the file, field or address and what to do. A device that was new is removed again.
#[expect(clippy::disallowed_methods, reason = "times of the start and the end are for the log")]
pub fn serve(
    setup: &Setup,
    serve_options: ServeOptions<'_>,
    announce: impl FnOnce(&str),
) -> Result<(), ServeError> {
    let shards = setup.server.shards;
    let recording = serve_options.recording;
    if recording.is_some() && shards != 1 {
        return Err(ServeError::Setup(format!(
            "a recording holds one shard, but the server shall have {shards}; record with one (--shards 1)"
        )));
    }
    check_cores(&setup.server, diecut_reactor::cores()?.len())?;
    let listen = resolve("server.listen", &setup.server.listen)?;
    let advertised = resolve_advertised(&setup.server.advertise)?;
    let started_at = Instant::now();
    check_sockets(setup)?;
    let mut folder = DataFolder::take(&setup.server.data, &setup.server.socket_path())?;
    check_image(setup)?;
    let Sockets { control, control_name, blocks, _blocks_name } = listen_locally(setup, recording.is_none())?;
    let record_to = recording.map(|recording| recording.create(setup)).transpose()?;
    let Opened { mut device, options, place, made: [mut image, pending], is_new, differences } =
        open_device(setup, serve_options.file, serve_options.is_profile_named)?;
    let image_file = (setup.device.backing == Backing::File).then(|| image_path(setup));
    let durability = match device.sync_file() {
        Some(_) => Durability::Machine,
        None => Durability::Process,
    };
    let room = match (&image_file, device.room_support()) {
        (Some(path), Some(support)) => {
            if durability == Durability::Process {
                diecut_devices::tell_of_bus_errors(path);
            }
            let room = Room::of(path).map_err(file_error(path, "cannot be examined"))?;
            about_room(&room, support, durability)
        }
        _ => String::new(),
    };
    let private = [Some(setup.server.data.clone()), image_file.clone()];
    private.iter().flatten().filter_map(|path| looseness(path)).for_each(|text| warn(&text));
    let profile = device.profile().clone();
    tracing::info!(place, profile = profile.name, shards, "opening the device");
    check_shards(shards, profile.geometry.channels)?;
    if durability == Durability::Machine && shards != 1 {
        return Err(ServeError::Setup(format!(
            "the device in {place} was made with device.durability = \"machine\", which is for one shard, and the server shall have \
             {shards}: start it with one (--shards 1)"
        )));
    }
    let volatile_cache = volatile_cache(setup, profile.protected_memory_bytes, is_new)?;
    let traits = DeviceTraits {
        pacing: Some(setup.device.pacing),
        durability: image_file.is_some().then_some(durability),
        volatile_cache: Some(volatile_cache),
    };
    let mut config = ShardConfig {
        pool: pool_config(&setup.pool, &profile.geometry)?,
        device_name: profile.name.clone(),
        volatile_cache,
        new_pool_uuid: random_uuid()?,
        ..ShardConfig::default()
    };
    config.pool.wear.endurance_cycles = profile.cell.endurance_cycles.max(1);
    config.target.advertised = if advertised.is_empty() { listen.clone() } else { advertised.clone() };
    let memory = MemoryPlan::new(setup.server.memory_limit.map(|size| size.bytes()), shards);
    config.target.memory.limit_bytes = memory.at_start();
    // Signals are blocked in the shard's thread only if they are caught before it starts.
    let mut signals = signals::stops()?;
    let (limit, open) = (resources::raise_descriptors(), resources::open_descriptors());
    let newcomers = config.target.newcomers_max() * usize::from(shards);
    let connections = resources::connection_limits(limit, open, newcomers);
    let clients_max = resources::clients_max(limit, open);
    // A replay of a recording has no file system that takes its time.
    let rooms = if record_to.is_none() { device.room_worker() } else { None };
    let reactor_config = ReactorConfig {
        listen,
        is_closed: true,
        blocks,
        connections,
        io: device.sync_file().map(IoFile::Synced),
        rooms,
        pin_cores: setup.server.pin_cores,
        busy_poll: Duration::from_micros(setup.server.busy_poll_us.into()),
    };
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
    for address in reactor.addresses().iter().filter(|address| !address.ip().is_loopback()) {
        warn(&format!(
            "listening on {address}: whoever reaches this address can claim to be any host (there is no authentication yet), and \
             reads and writes what that host may; keep it within a network that you trust"
        ));
    }
    let told = if advertised.is_empty() { dialled(reactor.addresses()) } else { advertised };
    let listen: Vec<String> = reactor.addresses().iter().map(ToString::to_string).collect();
    let listen = listen.join(", ");
    let outcome = runtime.block_on(async {
        let status =
            settle(setup, serve_options, (is_new, &differences), &listen, &*port).await?;
        resources::trim();
        let rest_bytes = resources::rest_bytes(&reactor.handle());
        memory.check(rest_bytes).map_err(ServeError::Setup)?;
        reactor.handle().set_memory(memory.beside(rest_bytes));
        let looking = tokio::spawn(resources::look_after_memory(reactor.handle(), memory));
        // All of it is there now, and hosts find it.
        reactor.open();
        image.keep();
        if setup.device.backing == Backing::File {
            mark_made(setup);
        }
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
        for vssd in &status.vssds {
            if let Some(reason) = &vssd.health.read_only_reason {
                let name = &vssd.spec.name;
                tracing::error!(vssd = name, reason, "the vSSD takes no writes; `diecut vssd repair {name}` says more");
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
        let memory = &memory.describe(rest_bytes);
        let lines = Announcement { listen: &listen, told: &told, place: &place, room: &room, memory, socket };
        announce(&lines.text(&status, traits));
        let (stop, stopped) = tokio::sync::oneshot::channel();
        #[allow(clippy::disallowed_methods, reason = "the daemon owns threads beside the data path")]
        std::thread::spawn(move || {
            let mut signals = signals.forever();
            if signals.next().is_some() {
                let _ = stop.send(());
            }
            if signals.any(signals::is_urgent) {
                // The terminal may be gone.
                let said = "stopped at once: what was acknowledged is in the device's protected memory or on flash";
                let _ = writeln!(std::io::stderr(), "{said}");
                std::process::exit(130);
            }
        });
        let routes = router_over(Arc::clone(&port), listen, image_file, traits);
        tokio::select! {
            never = http::serve(listener, routes, clients_max) => match never {},
            _ = stopped => {}
        }
        let stopping_at = Instant::now();
        looking.abort();
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
        Ok(())
    });
    reactor.stop();
    outcome
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn a_volatile_cache_is_for_devices_without_protected_memory() {
        let cache =
            |text: &str, bytes, is_new| volatile_cache(&Setup::from_toml(text).unwrap(), bytes, is_new);
        let wanted = "[device]\nvolatile_cache = true";
        assert!(!cache("", 0, true).unwrap() && !cache("", 1 << 20, true).unwrap());
        assert!(cache(wanted, 0, true).unwrap() && cache(wanted, 0, false).unwrap());
        assert!(!cache(wanted, 1 << 20, false).unwrap(), "a device that exists is served as it was made");
        let refused = cache(wanted, 1 << 20, true).unwrap_err().to_string();
        assert!(
            refused.contains("device.volatile_cache") && refused.contains("protected_memory"),
            "{refused}"
        );
    }

    #[test]
    fn a_pool_is_set_as_the_file_says() {
        let geometry = diecut_devices::Profile::named("tiny").unwrap().geometry;
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
