//! Servers under test: the shipped reactor and target, on a thread pinned to one core.

use super::residence::{Samples, Timed};
use crate::affinity::pin_this_thread;
use crate::instructions::Instructions;
use diecut_devices::{Backing, Device, DriveMedium, DriveShape, Options, Pacing, Profile};
use diecut_load::drive::{Digests, Endpoint, QualifiedName};
use diecut_reactor::{Reactor, ReactorConfig, ReactorError};
use diecut_shard::control::*;
use diecut_shard::drive::{ConnectionId, Drive};
use diecut_shard::null::{NullReads, NullShard};
use diecut_shard::{DeviceConfig, Nonces, PoolConfig, Seat, Shard, ShardConfig};
use diecut_spec::{Isolation, Serves, Size};
use diecut_units::Time;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

pub(crate) const NULL: [&str; 2] = ["nqn.2026-11.org.diecut:null-a", "nqn.2026-11.org.diecut:null-b"];
pub(crate) const STACK: &str = "nqn.2026-11.org.diecut:stack";
/// Blocks of a null namespace: 1 TiB.
const NULL_LBAS: u64 = 1 << 28;
/// Size of the volume behind the whole stack, in bytes.
pub(crate) const STACK_BYTES: u64 = 1 << 30;
/// Its over-provisioning, as parts per thousand.
pub(crate) const STACK_OVER_PROVISIONING_PERMILLE: u32 = 280;
/// Administration of a server takes no longer.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running server.
pub(crate) struct Server {
    pub(crate) reactor: Reactor,
    /// Of its thread.
    pub(crate) instructions: Arc<io::Result<Instructions>>,
    /// What the operating system keeps of its thread.
    task: std::path::PathBuf,
}

impl Server {
    /// A server whose thread is pinned, if a core is named. `make` gets an instant, and the reactor's time then.
    pub(crate) fn start<D: Drive + 'static>(
        core: Option<usize>,
        make: impl FnOnce((Instant, Time)) -> D + Send + 'static,
    ) -> Result<Server, ReactorError> {
        Server::start_at(core, None, make)
    }

    /// The same, with a socket for erase blocks.
    pub(crate) fn start_at<D: Drive + 'static>(
        core: Option<usize>,
        blocks: Option<std::path::PathBuf>,
        make: impl FnOnce((Instant, Time)) -> D + Send + 'static,
    ) -> Result<Server, ReactorError> {
        let listen = vec![([127, 0, 0, 1], 0).into()];
        let blocks = blocks.map(|path| {
            let listener = std::os::unix::net::UnixListener::bind(path)?;
            listener.set_nonblocking(true)?;
            Ok::<_, std::io::Error>(listener)
        });
        let config = ReactorConfig { listen, blocks: blocks.transpose()?, ..ReactorConfig::default() };
        let (sender, receiver) = channel();
        let make = move |now| {
            // The reactor's clock as an instant, before anything takes time.
            let clock = (Instant::now(), now);
            let pinned = core.map_or(Ok(()), pin_this_thread);
            let instructions = pinned.and_then(|()| Instructions::of_this_thread());
            let task = std::fs::read_link("/proc/thread-self").unwrap_or_default();
            sender.send((instructions, task)).expect("the starter waits");
            make(clock)
        };
        let reactor = Reactor::start(&config, vec![make])?;
        let (instructions, task) = receiver.recv().expect("the thread says it");
        let task = std::path::Path::new("/proc").join(task);
        Ok(Server { reactor, instructions: Arc::new(instructions), task })
    }

    /// Processor time of its thread so far, in nanoseconds.
    pub(crate) fn processor_ns(&self) -> Result<u64, String> {
        let path = self.task.join("schedstat");
        let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let first = text.split_whitespace().next().and_then(|number| number.parse().ok());
        first.ok_or_else(|| format!("{} does not begin with a time", path.display()))
    }

    /// Two null namespaces, each under a subsystem of its own.
    pub(crate) fn null(core: usize) -> Result<Server, ReactorError> {
        Server::start(Some(core), |_| null_shard())
    }

    /// The same, with the time measured that commands of the second connection stay.
    pub(crate) fn timed(core: usize, samples: Samples) -> Result<Server, ReactorError> {
        // The admin queue of the first host is connection 1, its I/O queue connection 2.
        Server::start(Some(core), |clock| Timed::new(null_shard(), ConnectionId(2), samples, clock))
    }

    /// The whole stack: one volume on a channel-isolated vSSD that owns a device in memory, without pacing.
    pub(crate) fn stack(core: usize) -> Result<Server, Box<dyn std::error::Error>> {
        let shard = stack_shard(1)?;
        let server = Server::start(Some(core), move |(_, now)| shard(now))?;
        for request in stack_requests(1, Sold::Blocks) {
            server.ask(request)?;
        }
        let status = server.status()?;
        let exported = status.vssds.first().map_or(0, |vssd| vssd.space.exported_bytes);
        if exported < STACK_BYTES {
            return Err(format!("the vSSD exports {exported} bytes, the volume has {STACK_BYTES}").into());
        }
        Ok(server)
    }

    /// Asks for a change.
    pub(crate) fn ask(&self, request: ControlRequest) -> Result<(), String> {
        match self.request(request.clone())? {
            ControlResponse::Done | ControlResponse::Unchanged => Ok(()),
            ControlResponse::Refused(error) => Err(error.message),
            other => Err(format!("{request:?} was answered with {other:?}")),
        }
    }

    fn request(&self, request: ControlRequest) -> Result<ControlResponse, String> {
        let (sender, receiver) = channel();
        let respond = Box::new(move |response| drop(sender.send(response)));
        let sent = self.reactor.request(request, respond);
        let answer = sent.then(|| receiver.recv_timeout(PATIENCE).ok()).flatten();
        answer.ok_or_else(|| "the server does not answer its administrator".to_owned())
    }

    /// Everything that exists, with counters.
    pub(crate) fn status(&self) -> Result<Box<Status>, String> {
        match self.request(ControlRequest::Status)? {
            ControlResponse::Status(status) => Ok(status),
            other => Err(format!("a status is asked for, {other:?} comes")),
        }
    }

    /// A subsystem, as host `host` sees it.
    pub(crate) fn endpoint(&self, subsystem: &str, host: u8) -> Endpoint {
        Endpoint {
            address: self.reactor.addresses()[0],
            subsystem: QualifiedName::new(subsystem).expect("a fixed name"),
            host: QualifiedName::new("nqn.2026-11.org.diecut:bench").expect("a fixed name"),
            host_id: [host; 16],
            nsid: Some(1),
            digests: Digests::NONE,
        }
    }

    /// Null namespace `number`.
    pub(crate) fn null_endpoint(&self, number: usize) -> Endpoint {
        self.endpoint(NULL[number], number as u8 + 1)
    }

    /// The volume of the whole stack.
    pub(crate) fn stack_endpoint(&self) -> Endpoint {
        self.endpoint(STACK, 1)
    }
}

pub(crate) fn null_shard() -> NullShard {
    NullShard::new(ShardConfig::default().target, &NULL, NULL_LBAS, NullReads::SharedZeros)
}

/// The shard of the whole stack over a device whose erase blocks are `1 / part` of their size, so that what fits into it is.
pub(crate) fn stack_shard(
    part: u32,
) -> Result<impl FnOnce(Time) -> Shard<Device> + Send + 'static, Box<dyn std::error::Error>> {
    let mut profile = Profile::named("cnex-1tb")?;
    // A quarter of the board's channels, and smaller erase blocks, so that what fits into memory is still many
    // segments to choose victims from: 16 dies x 4 planes x 60 blocks of 1 MiB.
    profile.geometry.channels = 4;
    profile.geometry.pages_per_block = 64 / part;
    profile.geometry.blocks_per_plane = 60;
    profile.bad_blocks.factory_percent = 0.0;
    profile.protected_memory_bytes = 64 << 20;
    let options =
        Options { backing: Backing::Memory, pacing: Pacing::Unpaced, seed: 1, ..Options::default() };
    let device = Device::create(&profile, options)?;
    let config = ShardConfig { pool: PoolConfig::suited_to(&profile.geometry), ..ShardConfig::default() };
    Ok(move |now| Shard::new(device, config, now))
}

/// A shard on a drive with a volatile cache, on which it makes a pool, or finds the one that it made.
pub(crate) fn drive_shard(shape: DriveShape, makes_pool: bool) -> Shard<Device> {
    let nonces = Some(Nonces::new([0x5e; 16], [0xd1; 16]));
    let pool = PoolConfig { nonces, ..PoolConfig::suited_to(&shape.geometry()) };
    let config = DeviceConfig { name: String::new(), pool, volatile_cache: true, makes_pool };
    // A file is not told what it may forget.
    let medium = Device::Drive(DriveMedium::new(shape, true, false));
    Shard::over(vec![(medium, config)], ShardConfig::default(), Seat::ONLY, Time::ZERO)
}

/// How the volume of the whole stack is sold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sold {
    /// As blocks.
    Blocks,
    /// As blocks with so many placement handles, each of which is one of the vSSD's own.
    Placed(u16),
    /// As zones, each an erase block on every unit of the vSSD.
    Zones,
}

/// What an administrator asks for before the whole stack has its volume, of `1 / part` of [`STACK_BYTES`].
pub(crate) fn stack_requests(part: u32, sold: Sold) -> [ControlRequest; 4] {
    requests(STACK_BYTES / u64::from(part), 4, sold)
}

/// The same with a volume of blocks, of any size, on so many lanes of a drive.
pub(crate) fn stack_requests_of(size_bytes: u64, lanes: u16) -> [ControlRequest; 4] {
    requests(size_bytes, lanes.into(), Sold::Blocks)
}

/// Capacity and over-provisioning, in thousandths, of a vSSD that has such a volume.
pub(crate) fn stack_specs(size_bytes: u64) -> (Size, u32) {
    let over = size_bytes / 1000 * u64::from(STACK_OVER_PROVISIONING_PERMILLE);
    (Size(size_bytes + over), STACK_OVER_PROVISIONING_PERMILLE)
}

fn requests(size_bytes: u64, throughput_level: u32, sold: Sold) -> [ControlRequest; 4] {
    let name = || "bench".to_owned();
    let (capacity, over_provisioning) = stack_specs(size_bytes);
    let vssd = VssdSpec {
        throughput_level,
        capacity,
        serves: if sold == Sold::Zones { Serves::Zones } else { Serves::Volumes },
        placement_handles: if let Sold::Placed(handles) = sold { handles } else { 0 },
        ..VssdSpec::new(&name(), &name(), Isolation::Channel, over_provisioning)
    };
    let placement = if let Sold::Placed(handles) = sold { (0..handles).collect() } else { Vec::new() };
    let volume = VolumeSpec { placement, ..VolumeSpec::new(&name(), &name(), Size(size_bytes)) };
    let subsystem = SubsystemSpec {
        nqn: STACK.to_owned(),
        tenant: name(),
        serial: None,
        model: None,
        allow_any_host: true,
        allowed_hosts: Vec::new(),
        paths: Vec::new(),
        namespaces: vec![NamespaceSpec::new(1, &name())],
    };
    [
        ControlRequest::CreateTenant(TenantSpec::new(&name())),
        ControlRequest::CreateVssd(vssd),
        ControlRequest::CreateVolume(volume),
        ControlRequest::CreateSubsystem(subsystem),
    ]
}
