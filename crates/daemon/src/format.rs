//! Makes drives devices of a pool: an empty pool on each, and then the labels that say so.

use crate::carrier::start_and_stop;
use crate::drive::{OwnDrive, Usage, system_area, take};
use crate::error::{ServeError, file_error};
use crate::folder::Unfinished;
use crate::random::{random_bytes, random_uuid};
use crate::remote_host::RemoteHost;
use diecut_api::place::Place;
use diecut_devices::{DEVICES_MAX, Device, DriveShape, Label, LabelDevice, Membership, WantedCut};
use diecut_shard::{DeviceConfig, Nonces, PoolConfig, Seat, Shard, ShardConfig};
use diecut_units::Time;
use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use uuid::Uuid;

/// Erase blocks that each lane has left beside catalog and block states, at least.
const BLOCKS_LEFT_MIN: u64 = 8;

/// How a drive is formatted.
#[derive(Clone, Copy, Debug, Default)]
pub struct FormatOptions {
    /// Also where something else lies on it, which is lost then.
    pub force: bool,
    /// How it is cut.
    pub cut: WantedCut,
    /// A new file of so many bytes is made.
    pub size_bytes: Option<u64>,
}

/// A drive that was formatted.
#[derive(Clone, Debug)]
pub struct Formatted {
    /// Where it is.
    pub place: Place,
    /// UUID of the device.
    pub device: Uuid,
    /// UUID of the pool.
    pub pool: Uuid,
    /// How it is cut.
    pub shape: DriveShape,
}

/// A drive that is about to be formatted.
pub(crate) struct Chosen {
    pub drive: Box<dyn OwnDrive>,
    /// Of a file that this process made.
    pub new: Unfinished,
    pub shape: DriveShape,
    pub device: [u8; 16],
}

/// Formats drives, which are one pool then. Each is examined before anything is written to any of them.
///
/// # Errors
/// Names the drive and what speaks against it. Before anything is written, unless a drive itself fails.
pub fn format(places: &[Place], options: FormatOptions) -> Result<Vec<Formatted>, ServeError> {
    for (at, place) in places.iter().enumerate() {
        if let Some(first) = places[..at].iter().position(|one| one.is_same_drive(place)) {
            if places[first].to_string() != place.to_string() {
                let first = &places[first];
                return Err(ServeError::Setup(format!(
                    "{place} is the same drive as {first}: a drive is one device; name it once"
                )));
            }
            return Err(ServeError::Setup(format!(
                "{place} is named twice (as number {} and {}): a drive is one device",
                first + 1,
                at + 1
            )));
        }
    }
    if places.len() > DEVICES_MAX {
        return Err(ServeError::Setup(format!("{} drives: a pool has at most {DEVICES_MAX}", places.len())));
    }
    let host = RemoteHost::new()?;
    let chosen = places.iter().map(|place| choose(place, options, &host));
    let mut chosen = chosen.collect::<Result<Vec<Chosen>, ServeError>>()?;
    // Drives on which a vSSD has parts have erase blocks of one size. What a zone has nobody can choose.
    let is_plain = |one: &&mut Chosen| one.shape.zones.is_none();
    let least_bytes = chosen.iter_mut().filter(is_plain).map(|one| one.shape.block_size_bytes).min();
    let differs = |one: &&mut Chosen| Some(one.shape.block_size_bytes) != least_bytes;
    for one in chosen.iter_mut().filter(is_plain).filter(differs) {
        one.shape = checked(
            one.drive.place(),
            one.drive.shape(WantedCut { block_size_bytes: least_bytes, ..options.cut }),
        )?;
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
        one.drive.check_format(label, options.force).map_err(|error| named(one.drive.place(), &error))?;
        check_pool(one, label).map_err(|error| named(one.drive.place(), &error))?;
    }
    for (one, label) in chosen.iter().zip(&labels) {
        one.drive.clear().map_err(|error| named(one.drive.place(), &error))?;
        fill(one, label).map_err(|error| named(one.drive.place(), &error))?;
    }
    // The labels come last: of a format that is cut short too few drives say that there is a pool, or all of them do and it is right.
    let mut formatted = Vec::new();
    for (mut one, label) in chosen.into_iter().zip(&labels) {
        one.drive.give_label(label).map_err(|error| named(one.drive.place(), &error))?;
        one.new.keep();
        let (device, pool) = (Uuid::from_bytes(one.device), Uuid::from_bytes(pool));
        formatted.push(Formatted { place: one.drive.place().clone(), device, pool, shape: one.shape });
    }
    Ok(formatted)
}

pub(crate) fn named(place: &Place, error: &dyn std::fmt::Display) -> ServeError {
    ServeError::Setup(format!("{place}: {error}"))
}

/// Opens a drive and plans how it is cut.
pub(crate) fn choose(place: &Place, options: FormatOptions, host: &RemoteHost) -> Result<Chosen, ServeError> {
    let mut new = Unfinished::none();
    if let (Some(size_bytes), Place::Path(path)) = (options.size_bytes, place) {
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
        let file = file.map_err(file_error(path, "cannot be made (--size is for a new file)"))?;
        new = Unfinished::new(path.clone());
        file.set_len(size_bytes).map_err(file_error(path, "cannot have that size"))?;
    }
    let drive = take(place, host)?;
    let shape = checked(place, drive.shape(options.cut))?;
    Ok(Chosen { drive, new, shape, device: random_uuid()? })
}

/// Whether a pool fits on what is cut like that.
pub(crate) fn checked(place: &Place, shape: Result<DriveShape, String>) -> Result<DriveShape, ServeError> {
    shape.and_then(fitting).map_err(|error| named(place, &error))
}

/// A shape on which a pool fits.
///
/// # Errors
/// In words, with what would fit.
pub fn fitting(shape: DriveShape) -> Result<DriveShape, String> {
    let system = system_area(&PoolConfig::suited_to(&shape.geometry()));
    let wanted = system.1 + BLOCKS_LEFT_MIN;
    if u64::from(shape.blocks_per_lane) < wanted {
        let blocks_per_lane = u32::try_from(wanted).unwrap_or(u32::MAX);
        let needed_bytes = DriveShape { blocks_per_lane, ..shape }.needed_bytes();
        return Err(format!(
            "{} erase blocks for each of {} lanes are too few: catalog and block states take {}, and {BLOCKS_LEFT_MIN} shall be left, which needs \
             {needed_bytes} bytes; use a larger drive, {} or smaller erase blocks (--erase-block)",
            shape.blocks_per_lane,
            shape.lanes,
            system.1,
            fewer_lanes(&shape)
        ));
    }
    Ok(shape)
}

/// How a drive is cut into fewer lanes.
fn fewer_lanes(shape: &DriveShape) -> &'static str {
    match shape.lane_stride_bytes {
        Some(_) => "a map of fewer regions (`diecut probe --regions`)",
        None => "fewer lanes (--lanes)",
    }
}

/// Whether a pool can be made of what is cut like that. Nothing is written: what its medium asks for is not carried out.
fn check_pool(chosen: &Chosen, label: &Label) -> Result<(), String> {
    let medium = chosen.drive.medium(chosen.shape, Usage::BRIEF).map_err(|error| error.to_string())?;
    let device = (Device::Drive(medium), new_pool(chosen.shape, label));
    let config = ShardConfig { new_pool_uuid: label.server, ..ShardConfig::default() };
    let shard = Shard::over(vec![device], config, Seat::ONLY, Time::ZERO);
    shard.failure().map_or(Ok(()), |failure| {
        Err(format!(
            "no pool fits on it cut like that: {failure}. Larger erase blocks (--erase-block) or {} help. Nothing was written",
            fewer_lanes(&chosen.shape)
        ))
    })
}

/// Puts there what a label promises: an empty pool.
fn fill(chosen: &Chosen, label: &Label) -> Result<(), String> {
    let drive = &chosen.drive;
    let medium = drive.medium(chosen.shape, Usage::BRIEF).map_err(|error| error.to_string())?;
    let config = ShardConfig { new_pool_uuid: label.server, ..ShardConfig::default() };
    let device = new_pool(chosen.shape, label);
    start_and_stop(vec![(drive.carrier()?, medium, device)], config)?;
    Ok(())
}

/// What a pool that is made on a drive is told.
pub(crate) fn new_pool(shape: DriveShape, label: &Label) -> DeviceConfig {
    let pool = PoolConfig::suited_to(&shape.geometry());
    DeviceConfig {
        name: String::new(),
        pool: PoolConfig { nonces: Some(Nonces::new(label.secret, label.device)), ..pool },
        volatile_cache: Usage::BRIEF.volatile_cache,
        makes_pool: true,
    }
}
