//! Makes files or block devices devices of a pool: an empty pool on each, and then the labels that say so.

use crate::drive::{Held, check_properties, has_volatile_cache, medium, page_cache, system_area};
use crate::error::{ServeError, file_error};
use crate::folder::Unfinished;
use crate::remote::{Remote, RemoteHost};
use crate::shards::{random_bytes, random_uuid};
use diecut_api::setup::RemoteDevice;
use diecut_devices::local::{self, Access, LocalDevice};
use diecut_devices::{DEVICES_MAX, Device, DriveMedium, DriveShape, Label, LabelDevice, Membership};
use diecut_media::{Intent, IntentDone};
use diecut_reactor::{DriveRing, RemoteClient};
use diecut_remote::ClaimKind;
use diecut_shard::control::{ControlRequest, ControlResponse, ControlToken};
use diecut_shard::drive::{Action, Drive, Event};
use diecut_shard::{DeviceConfig, DeviceIndex, Nonces, PoolConfig, Seat, Shard, ShardConfig};
use diecut_units::Time;
use std::cell::RefCell;
use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use uuid::Uuid;

/// Erase blocks that each lane has left beside catalog and block states, at least.
const BLOCKS_LEFT_MIN: u64 = 8;

/// How a drive is formatted.
#[derive(Clone, Copy, Debug, Default)]
pub struct FormatOptions {
    /// Also where something else lies on it, which is lost then.
    pub force: bool,
    /// Lanes; what suits its size, if absent.
    pub lanes: Option<u16>,
    /// Bytes of an erase block; what suits its size, if absent.
    pub block_size_bytes: Option<u64>,
    /// A new file of so many bytes is made.
    pub size_bytes: Option<u64>,
}

/// What a drive is carried out on, for who has nothing else to wait for.
pub(crate) trait Carrier {
    fn push(&mut self, intent: Intent);
    /// Whether nothing is under way.
    fn is_idle(&self) -> bool;
    /// Waits until something happens, where something is under way.
    fn wait(&mut self) -> Result<(), String>;
    fn take_done(&mut self, done: &mut Vec<IntentDone>);
}

impl Carrier for DriveRing {
    fn push(&mut self, intent: Intent) {
        DriveRing::push(self, intent);
    }

    fn is_idle(&self) -> bool {
        DriveRing::is_idle(self)
    }

    fn wait(&mut self) -> Result<(), String> {
        if DriveRing::is_idle(self) {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.submit_and_wait();
        Ok(())
    }

    fn take_done(&mut self, done: &mut Vec<IntentDone>) {
        DriveRing::take_done(self, done);
    }
}

impl Carrier for &RefCell<RemoteClient> {
    fn push(&mut self, intent: Intent) {
        self.borrow_mut().push(intent);
    }

    fn is_idle(&self) -> bool {
        self.borrow().is_idle()
    }

    fn wait(&mut self) -> Result<(), String> {
        if self.borrow().is_idle() {
            std::thread::sleep(Duration::from_millis(1));
            return Ok(());
        }
        self.borrow_mut().wait().map_err(|error| error.to_string())
    }

    fn take_done(&mut self, done: &mut Vec<IntentDone>) {
        self.borrow_mut().take_done(done);
    }
}

/// A drive that was formatted.
#[derive(Clone, Debug)]
pub struct Formatted {
    /// Where it is.
    pub path: PathBuf,
    /// UUID of the device.
    pub device: Uuid,
    /// UUID of the pool.
    pub pool: Uuid,
    /// How it is cut.
    pub shape: DriveShape,
}

/// A drive that is about to be formatted.
pub(crate) struct Chosen {
    pub path: PathBuf,
    pub local: LocalDevice,
    /// Of a file that this process made.
    pub new: Unfinished,
    pub shape: DriveShape,
    pub device: [u8; 16],
}

/// Formats drives, which are one pool then. Each is examined before anything is written to any of them.
///
/// # Errors
/// Names the drive and what speaks against it. Before anything is written, unless a drive itself fails.
pub fn format(paths: &[PathBuf], options: FormatOptions) -> Result<Vec<Formatted>, ServeError> {
    if let Some((at, path)) = paths.iter().enumerate().find(|(at, path)| paths[..*at].contains(path)) {
        let first = paths.iter().position(|one| one == path).unwrap_or(at);
        return Err(ServeError::Setup(format!(
            "{} is named twice (as number {} and {}): a drive is one device",
            path.display(),
            first + 1,
            at + 1
        )));
    }
    if paths.len() > DEVICES_MAX {
        return Err(ServeError::Setup(format!("{} drives: a pool has at most {DEVICES_MAX}", paths.len())));
    }
    let mut chosen =
        paths.iter().map(|path| choose(path, options)).collect::<Result<Vec<Chosen>, ServeError>>()?;
    // Drives on which a vSSD has parts have erase blocks of one size. What a zone has nobody can choose.
    let is_plain = |one: &&mut Chosen| one.shape.zones.is_none();
    let least_bytes = chosen.iter_mut().filter(is_plain).map(|one| one.shape.block_size_bytes).min();
    let differs = |one: &&mut Chosen| Some(one.shape.block_size_bytes) != least_bytes;
    for one in chosen.iter_mut().filter(is_plain).filter(differs) {
        one.shape = checked(&one.path, one.local.shape(options.lanes, least_bytes))?;
    }
    let members =
        chosen.iter().map(|one| LabelDevice { device: one.device, membership: Membership::There, since: 1 });
    let members: Vec<LabelDevice> = members.collect();
    let pool = random_uuid()?;
    let (view, secret) = (random_bytes()?, random_bytes()?);
    let labels = chosen.iter().map(|one| Label {
        number: 1,
        server: pool,
        device: one.device,
        epoch: 1,
        view,
        secret,
        shape: one.shape,
        system: system_area(&PoolConfig::suited_to(&one.shape.geometry())),
        devices: members.clone(),
    });
    let labels: Vec<Label> = labels.collect();
    for (one, label) in chosen.iter().zip(&labels) {
        one.local.check_format(label, options.force).map_err(|error| named(&one.path, &error))?;
    }
    for (one, label) in chosen.iter().zip(&labels) {
        one.local.clear().map_err(|error| named(&one.path, &error))?;
        fill(one, label).map_err(|error| named(&one.path, &error))?;
    }
    // The labels come last: of a format that is cut short too few drives say that there is a pool, or all of them do and it is right.
    let mut formatted = Vec::new();
    for (mut one, label) in chosen.into_iter().zip(&labels) {
        one.local.give_label(label).map_err(|error| named(&one.path, &error))?;
        one.new.keep();
        let (device, pool) = (Uuid::from_bytes(one.device), Uuid::from_bytes(pool));
        formatted.push(Formatted { path: one.path, device, pool, shape: one.shape });
    }
    Ok(formatted)
}

pub(crate) fn named(path: &Path, error: &dyn std::fmt::Display) -> ServeError {
    ServeError::Setup(format!("{}: {error}", path.display()))
}

/// Opens a drive and plans how it is cut.
pub(crate) fn choose(path: &Path, options: FormatOptions) -> Result<Chosen, ServeError> {
    let mut new = Unfinished::none();
    if let Some(size_bytes) = options.size_bytes {
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
        let file = file.map_err(file_error(path, "cannot be made (--size is for a new file)"))?;
        new = Unfinished::new(path.to_owned());
        file.set_len(size_bytes).map_err(file_error(path, "cannot have that size"))?;
    }
    let local = LocalDevice::open(path, Access::Own)?;
    let properties = local.properties();
    check_properties(path, properties)?;
    let shape = checked(path, local.shape(options.lanes, options.block_size_bytes))?;
    Ok(Chosen { path: path.to_owned(), local, new, shape, device: random_uuid()? })
}

/// How a namespace of this size is cut.
fn planned(path: &Path, size_bytes: u64, options: FormatOptions) -> Result<DriveShape, ServeError> {
    let shape = match options.lanes {
        Some(lanes) => DriveShape::plan(size_bytes, lanes, options.block_size_bytes),
        None => DriveShape::suggest(size_bytes, options.block_size_bytes),
    };
    checked(path, shape.map_err(|error| error.to_string()))
}

/// Whether a pool fits on what is cut like that.
pub(crate) fn checked(path: &Path, shape: Result<DriveShape, String>) -> Result<DriveShape, ServeError> {
    let shape = shape.map_err(|error| named(path, &error))?;
    let system = system_area(&PoolConfig::suited_to(&shape.geometry()));
    if u64::from(shape.blocks_per_lane) < system.1 + BLOCKS_LEFT_MIN {
        let error = format!(
            "{} erase blocks for each of {} lanes are too few: catalog and block states take {}, and {BLOCKS_LEFT_MIN} shall be left; use a \
             larger drive, fewer lanes (--lanes) or smaller erase blocks (--erase-block)",
            shape.blocks_per_lane, shape.lanes, system.1
        );
        return Err(named(path, &error));
    }
    Ok(shape)
}

/// Formats a namespace of a target.
///
/// # Errors
/// Names the namespace and what speaks against it. Before anything is written, unless the target itself fails.
pub fn format_remote(wanted: &RemoteDevice, options: FormatOptions) -> Result<Formatted, ServeError> {
    let host = RemoteHost::new(wanted.host_nqn.as_deref())?;
    let remote = Remote::connect(wanted, host, ClaimKind::Own)?;
    let formatted = format_claimed(&remote, PathBuf::from(wanted.place()), options);
    // A server is to have it next.
    let released = remote.release();
    let formatted = formatted?;
    released?;
    Ok(formatted)
}

fn format_claimed(remote: &Remote, path: PathBuf, options: FormatOptions) -> Result<Formatted, ServeError> {
    let shape = planned(&path, remote.facts().size_bytes, options)?;
    let (device, server) = (random_uuid()?, random_uuid()?);
    let label = Label {
        number: 1,
        server,
        device,
        epoch: 1,
        view: random_bytes()?,
        secret: random_bytes()?,
        shape,
        system: system_area(&PoolConfig::suited_to(&shape.geometry())),
        devices: vec![LabelDevice { device, membership: Membership::There, since: 1 }],
    };
    let fill = || {
        let config = ShardConfig { new_pool_uuid: server, ..ShardConfig::default() };
        let carrier: Box<dyn Carrier + '_> = Box::new(remote.client());
        start_and_stop(vec![(carrier, remote.medium(shape), new_pool(shape, &label, true))], config)?;
        Ok(())
    };
    let made = local::format(&mut &*remote, &remote.contents(), &label, options.force, fill);
    made.map_err(|error| named(&path, &error))?;
    Ok(Formatted { path, device: Uuid::from_bytes(device), pool: Uuid::from_bytes(server), shape })
}

/// Puts there what a label promises: an empty pool.
fn fill(chosen: &Chosen, label: &Label) -> Result<(), String> {
    let local = &chosen.local;
    let medium = medium(chosen.shape, local, false).map_err(|error| error.to_string())?;
    let config = ShardConfig { new_pool_uuid: label.server, ..ShardConfig::default() };
    let device = new_pool(chosen.shape, label, has_volatile_cache(local.properties()));
    start_and_stop(vec![(ring_on(local)?, medium, device)], config)?;
    Ok(())
}

/// A ring on a drive.
pub(crate) fn ring_on<'a>(local: &LocalDevice) -> Result<Box<dyn Carrier + 'a>, String> {
    let ring = DriveRing::new(local.file(), page_cache(local.properties()));
    Ok(Box::new(ring.map_err(|error| error.to_string())?))
}

/// What a pool that is made on a drive is told.
pub(crate) fn new_pool(shape: DriveShape, label: &Label, volatile_cache: bool) -> DeviceConfig {
    let pool = PoolConfig::suited_to(&shape.geometry());
    DeviceConfig {
        name: String::new(),
        pool: PoolConfig { nonces: Some(Nonces::new(label.secret, label.device)), ..pool },
        volatile_cache,
        makes_pool: true,
    }
}

/// A drive as [`start_and_stop`] takes it: who carries out what it asks for, its medium, and its settings.
type Carried<'a> = (Box<dyn Carrier + 'a>, DriveMedium, DeviceConfig);

/// A drive of a pool that there is.
pub(crate) fn carried<'a>(one: &Held) -> Result<Carried<'a>, String> {
    let (medium, pool) = one.medium().map_err(|error| error.to_string())?;
    let volatile_cache = has_volatile_cache(one.local.properties());
    let config = DeviceConfig { name: String::new(), pool, volatile_cache, makes_pool: false };
    Ok((ring_on(&one.local)?, medium, config))
}

/// A vSSD, and the devices that it lies on.
pub(crate) struct Lying {
    pub vssd: String,
    pub devices: Vec<Uuid>,
}

/// What a server does that is started on drives and stopped: pools are made where that is told, and all have the catalog. Gives the vSSDs that there
/// are.
pub(crate) fn start_and_stop(drives: Vec<Carried<'_>>, config: ShardConfig) -> Result<Vec<Lying>, String> {
    #[expect(clippy::disallowed_methods, reason = "a drive takes its time")]
    let start = Instant::now();
    let now = || Time(start.elapsed().as_nanos() as u64);
    let (mut carriers, mut devices) = (Vec::new(), Vec::new());
    for (carrier, medium, config) in drives {
        carriers.push(carrier);
        devices.push((Device::Drive(medium), config));
    }
    let mut shard = Shard::over(devices, config, Seat::ONLY, now());
    let (mut actions, mut done, mut is_stopping) = (Vec::new(), Vec::new(), false);
    let mut found = Vec::new();
    loop {
        shard.work(now(), &mut actions);
        for action in actions.drain(..) {
            match action {
                Action::Io(device, intent) => carriers[usize::from(device.0)].push(intent),
                Action::Answer { response, .. } => {
                    return match *response {
                        ControlResponse::Refused(error) => Err(error.message),
                        _ => Ok(found),
                    };
                }
                _ => {}
            }
        }
        if let Some(failure) = shard.failure() {
            return Err(failure.to_owned());
        }
        if shard.is_ready() && !is_stopping {
            is_stopping = true;
            let vssds = shard.state().vssds.values();
            found.extend(vssds.map(|record| Lying {
                vssd: record.name.clone(),
                devices: record.parts.iter().map(|part| part.device).collect(),
            }));
            let (token, request) = (ControlToken(1), Box::new(ControlRequest::Shutdown));
            shard.handle(Event::Control { token, request }, now(), &mut actions);
            continue;
        }
        // One of several that is at work: the others are looked at afterwards, soon enough.
        let at = carriers.iter().position(|carrier| !carrier.is_idle()).unwrap_or(0);
        carriers[at].wait()?;
        for (device, carrier) in (0..).map(DeviceIndex).zip(&mut carriers) {
            carrier.take_done(&mut done);
            done.drain(..).for_each(|done| shard.handle(Event::IoDone(device, done), now(), &mut actions));
        }
    }
}
