//! Makes a file or a block device a device: an empty pool, and then the label that says so.

use crate::drive::{check_properties, medium, page_cache, system_area};
use crate::error::{ServeError, file_error};
use crate::folder::Unfinished;
use crate::shards::{random_bytes, random_uuid};
use diecut_devices::local::{Access, LocalDevice};
use diecut_devices::{Device, DriveMedium, DriveShape, Label, LabelDevice, Membership};
use diecut_reactor::DriveRing;
use diecut_shard::control::{ControlRequest, ControlResponse, ControlToken};
use diecut_shard::drive::{Action, Drive, Event};
use diecut_shard::{DeviceIndex, Nonces, PoolConfig, Shard, ShardConfig};
use diecut_units::Time;
use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
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

/// A drive that was formatted.
#[derive(Clone, Copy, Debug)]
pub struct Formatted {
    /// UUID of the device.
    pub device: Uuid,
    /// UUID of the pool.
    pub pool: Uuid,
    /// How it is cut.
    pub shape: DriveShape,
}

/// Formats a drive.
///
/// # Errors
/// Names the drive and what speaks against it. Before anything is written, unless the drive itself fails.
pub fn format(path: &Path, options: FormatOptions) -> Result<Formatted, ServeError> {
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
    let named = |error: &dyn std::fmt::Display| ServeError::Setup(format!("{}: {error}", path.display()));
    let shape = match options.lanes {
        Some(lanes) => DriveShape::plan(properties.size_bytes, lanes, options.block_size_bytes),
        None => DriveShape::suggest(properties.size_bytes, options.block_size_bytes),
    };
    let shape = shape.map_err(|error| named(&error))?;
    let medium = medium(shape, properties);
    let pool = PoolConfig::suited_to(&shape.geometry());
    let system = system_area(&pool);
    if u64::from(shape.blocks_per_lane) < system.1 + BLOCKS_LEFT_MIN {
        return Err(named(&format!(
            "{} erase blocks for each of {} lanes are too few: catalog and block states take {}, and {BLOCKS_LEFT_MIN} shall be left; use a \
             larger drive, fewer lanes (--lanes) or smaller erase blocks (--erase-block)",
            shape.blocks_per_lane, shape.lanes, system.1
        )));
    }
    let ring = DriveRing::new(local.file(), page_cache(properties)).map_err(|error| named(&error))?;
    let (device, server): ([u8; 16], [u8; 16]) = (random_uuid()?, random_uuid()?);
    let label = Label {
        number: 1,
        server,
        device,
        epoch: 1,
        view: random_bytes()?,
        secret: random_bytes()?,
        shape,
        system,
        devices: vec![LabelDevice { device, membership: Membership::There, since: 1 }],
    };
    let config = ShardConfig {
        pool: PoolConfig { nonces: Some(Nonces::new(label.secret, device)), ..pool },
        new_pool_uuid: server,
        makes_pool: true,
        ..ShardConfig::default()
    };
    local.format(&label, options.force, || make_pool(medium, ring, config)).map_err(|error| named(&error))?;
    new.keep();
    Ok(Formatted { device: Uuid::from_bytes(device), pool: Uuid::from_bytes(server), shape })
}

/// Makes an empty pool, as a server would that is started and stopped.
fn make_pool(medium: DriveMedium, mut ring: DriveRing, config: ShardConfig) -> Result<(), String> {
    #[expect(clippy::disallowed_methods, reason = "a drive takes its time")]
    let start = Instant::now();
    let now = || Time(start.elapsed().as_nanos() as u64);
    let mut shard = Shard::new(Device::Drive(medium), config, now());
    let (mut actions, mut done, mut is_stopping) = (Vec::new(), Vec::new(), false);
    loop {
        shard.work(now(), &mut actions);
        for action in actions.drain(..) {
            match action {
                Action::Io(_, intent) => ring.push(intent),
                Action::Answer { response, .. } => {
                    return match *response {
                        ControlResponse::Refused(error) => Err(error.message),
                        _ => Ok(()),
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
            let (token, request) = (ControlToken(1), Box::new(ControlRequest::Shutdown));
            shard.handle(Event::Control { token, request }, now(), &mut actions);
            continue;
        }
        if ring.is_idle() {
            std::thread::sleep(Duration::from_millis(1));
        }
        ring.submit_and_wait();
        ring.take_done(&mut done);
        done.drain(..)
            .for_each(|done| shard.handle(Event::IoDone(DeviceIndex(0), done), now(), &mut actions));
    }
}
