//! What a set-up says of shards and of the pool of erase blocks that they divide.

use crate::error::ServeError;
use crate::opened::{AllOpened, Cut, Opened};
use crate::random::random_uuid;
use diecut_api::setup::Setup;
use diecut_media::Media;
use diecut_shard::{BucketSize, DeviceConfig, DeviceShaper, PoolConfig, ShardConfig, TokenUnit};
use diecut_spec::Amount;
use diecut_units::{Geometry, Span};

/// What each shard is made with, but for addresses and limits of memory, and what is said of each device.
///
/// # Errors
/// Names the key that asks for what cannot be.
pub fn config(setup: &Setup, opened: &AllOpened) -> Result<(ShardConfig, Vec<DeviceConfig>), ServeError> {
    let of_one = |one: &Opened| {
        let volatile_cache = one.traits.volatile_cache == Some(true);
        let shows_dies = one.device.capabilities().independent_units;
        device_config(setup, &one.shown.name, &one.cut, (volatile_cache, shows_dies))
    };
    let devices = opened.devices.iter().map(of_one);
    let devices = devices.collect::<Result<Vec<DeviceConfig>, ServeError>>()?;
    let first = devices.first().expect("a server has a device").clone();
    let mut config = ShardConfig {
        pool: first.pool,
        device_name: first.name,
        volatile_cache: first.volatile_cache,
        missing_devices: opened.missing_count,
        removed_devices: opened.removed.clone(),
        new_pool_uuid: random_uuid()?,
        slow_after: slow_after(setup.server.slow_after_us)?,
        ..ShardConfig::default()
    };
    config.admission.device_shaper = device_shaper(&setup.pool, setup.server.shards)?;
    Ok((config, devices))
}

/// What is said of one device.
pub fn device_config(
    setup: &Setup,
    name: &str,
    cut: &Cut,
    (volatile_cache, shows_dies): (bool, bool),
) -> Result<DeviceConfig, ServeError> {
    let mut pool = pool_config(&setup.pool, &cut.geometry)?;
    pool.nonces = cut.nonces;
    if pool.nonces.is_some() && shows_dies {
        pool = pool.for_dies();
    }
    if let Some(cycles) = cut.endurance_cycles {
        pool.wear.endurance_cycles = cycles.max(1);
    }
    Ok(DeviceConfig { name: name.to_owned(), pool, volatile_cache, makes_pool: false })
}

/// From how long on a command is slow. Below a few microseconds every one would be.
fn slow_after(us: u64) -> Result<Span, ServeError> {
    let sensible = 10..=3_600_000_000;
    if sensible.contains(&us) {
        return Ok(Span::from_micros(us));
    }
    let (least, most) = (sensible.start(), sensible.end());
    Err(ServeError::Setup(format!("server.slow_after_us = {us}: use {least} to {most} (5000 is usual)")))
}

fn pool_config(wanted: &diecut_api::setup::Pool, geometry: &Geometry) -> Result<PoolConfig, ServeError> {
    let refuse = |text: String| Err(ServeError::Setup(text));
    let defaults = PoolConfig::suited_to(geometry);
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
    Ok(PoolConfig { soft_planes_per_die, die_queue_depth, levels, die_placement, ..defaults })
}

/// Bytes that a token of the device is worth.
const DEVICE_TOKEN_BYTES: u32 = 4096;

/// The part of the shaper of the device that each of so many shards has.
fn device_shaper(wanted: &diecut_api::setup::Pool, shards: u16) -> Result<Option<DeviceShaper>, ServeError> {
    let refuse = |text: String| Err(ServeError::Setup(text));
    let Some(rate) = wanted.device_rate else {
        if wanted.device_bucket.is_some() {
            return refuse(
                "pool.device_bucket is for a shaper of the device; set pool.device_rate, too".to_owned(),
            );
        }
        return Ok(None);
    };
    let (rate_least, bucket_least, unit) = match rate {
        Amount::Bytes(_) => (1 << 20, 1 << 20, TokenUnit::Bytes(DEVICE_TOKEN_BYTES)),
        Amount::Commands(_) => (10, 64, TokenUnit::Command),
    };
    let shards = u64::from(shards.max(1));
    let most = 1 << 50;
    if !(rate_least * shards..=most).contains(&rate.units()) {
        return refuse(format!(
            "pool.device_rate = {rate}: use {} to {}",
            rate.of_same_unit(rate_least * shards),
            rate.of_same_unit(most)
        ));
    }
    let bucket =
        wanted.device_bucket.unwrap_or(rate.of_same_unit((rate.units() / 200).max(bucket_least * shards)));
    if !bucket.is_like(rate) {
        return refuse(format!(
            "pool.device_bucket counts {} and pool.device_rate counts {}; write both in the same unit",
            bucket.unit(),
            rate.unit()
        ));
    }
    if !(shards * u64::from(DEVICE_TOKEN_BYTES).min(rate_least)..=most).contains(&bucket.units()) {
        return refuse(format!(
            "pool.device_bucket = {bucket}: it holds no token of each shard, or is too large"
        ));
    }
    let bucket = BucketSize { rate_per_second: rate.units() / shards, size: bucket.units() / shards };
    Ok(Some(DeviceShaper { unit, bucket }))
}

/// Most shards of one server: more than cores of any machine it was tried on.
const SHARDS_MAX: u16 = 256;

/// Whether devices can have so many shards. Of each: its channels, and how many of them the first shard keeps for itself.
pub fn check_shards(shards: u16, devices: &[(u16, u16)]) -> Result<(), ServeError> {
    let refuse = |text: String| Err(ServeError::Setup(text));
    if shards == 0 || shards > SHARDS_MAX {
        return refuse(format!(
            "server.shards = {shards}: use 1 to {SHARDS_MAX}, at most one for each channel"
        ));
    }
    let all = |of: &dyn Fn(&(u16, u16)) -> u16| devices.iter().map(|one| u32::from(of(one))).sum::<u32>();
    let (channels, kept) = (all(&|(channels, _)| *channels), all(&|(_, kept)| *kept));
    if u32::from(shards) > channels && kept == 0 {
        return refuse(format!(
            "server.shards = {shards}: a shard owns whole channels, and the device has {channels}; use {channels} or fewer"
        ));
    }
    let most = (channels.saturating_sub(kept) + 1).min(channels);
    if u32::from(shards) <= most {
        return Ok(());
    }
    let (drives, these, format) = match devices {
        [_] => ("a drive", "this one has", "format the drive"),
        _ => ("drives", "these have", "format them"),
    };
    refuse(format!(
        "server.shards = {shards}: a shard owns whole lanes of {drives}, {these} {channels}, and the first shard keeps {kept} of them for the \
         block states of all; use {most} or fewer, or {format} with more lanes (--lanes)"
    ))
}

/// A core for each shard, where each is to have one.
pub fn check_cores(server: &diecut_api::setup::Server, cores: usize) -> Result<(), ServeError> {
    if !server.pin_cores || usize::from(server.shards) <= cores {
        return Ok(());
    }
    Err(ServeError::Setup(format!(
        "server.pin_cores keeps each shard on a core of its own, but there are {} shards (server.shards) and {cores} cores that this \
         process may use: use {cores} shards or fewer, or leave pin_cores out",
        server.shards
    )))
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn what_is_slow_is_sensible() {
        assert_eq!(
            slow_after(Setup::default().server.slow_after_us).unwrap(),
            ShardConfig::default().slow_after
        );
        for us in [0, 9, u64::MAX] {
            assert!(slow_after(us).unwrap_err().to_string().contains("server.slow_after_us"));
        }
    }

    /// Goal: shards are as many as there are channels, but for those that the first one keeps of a drive.
    #[test]
    fn shards_are_as_many_as_channels_allow() {
        let cases: &[(&[(u16, u16)], u16)] = &[
            (&[(1, 0)], 1),
            (&[(16, 0)], 16),
            (&[(u16::MAX, 0)], 256),
            (&[(2, 2)], 1),
            (&[(3, 2)], 2),
            (&[(16, 4)], 13),
            (&[(2, 2), (1, 1)], 1),
            (&[(3, 2), (1, 1), (16, 4)], 14),
        ];
        for (devices, most) in cases {
            assert!(check_shards(*most, devices).is_ok(), "{most} of {devices:?}");
            let error = check_shards(most + 1, devices).unwrap_err().to_string();
            let words = if *most == 256 { "use 1 to 256".to_owned() } else { format!("use {most} or fewer") };
            assert!(error.contains(&words), "{error}");
        }
    }

    #[test]
    fn the_device_has_a_shaper_as_the_file_says() {
        let read = |text: &str, shards| device_shaper(&Setup::from_toml(text).unwrap().pool, shards);
        assert_eq!(read("", 1).unwrap(), None);
        let whole = read("[pool]\ndevice_rate = \"1000 MiB\"", 1).unwrap().unwrap();
        assert_eq!(whole.unit, TokenUnit::Bytes(4096));
        assert_eq!(whole.bucket, BucketSize { rate_per_second: 1000 << 20, size: 5 << 20 });
        let half = read("[pool]\ndevice_rate = \"5000 commands\"\ndevice_bucket = \"100 commands\"", 2);
        let half = half.unwrap().unwrap();
        assert_eq!(half.unit, TokenUnit::Command);
        assert_eq!(half.bucket, BucketSize { rate_per_second: 2500, size: 50 });
        for (text, names) in [
            ("[pool]\ndevice_rate = 5", "pool.device_rate = 5 bytes: use 1 MiB"),
            ("[pool]\ndevice_bucket = \"1 MiB\"", "set pool.device_rate, too"),
            ("[pool]\ndevice_rate = \"1 GiB\"\ndevice_bucket = \"9 commands\"", "same unit"),
            ("[pool]\ndevice_rate = \"1 GiB\"\ndevice_bucket = 0", "holds no token"),
        ] {
            let error = read(text, 1).unwrap_err().to_string();
            assert!(error.contains(names), "{error}");
        }
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
