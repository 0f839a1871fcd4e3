//! What a run started on: device and settings, with every value in full, so that a later default changes nothing.

use diecut_devices::{Backing, Device, DeviceError, FaultPlan, Options, Pacing, Profile};
use diecut_media::DieTimes;
use diecut_shard::{
    AdmissionConfig, AnchorPace, BucketSize, DeviceShaper, DiePlacement, PoolConfig, ShardConfig, SwapRule,
    TokenUnit, WearConfig,
};
use diecut_units::{Span, Time};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// Why a run cannot be recorded, or not be set up again.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// It uses what recordings do not hold.
    #[error("{0}")]
    Unsupported(String),
    /// The device.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

/// What a run started on: a new device, and a shard with these settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Start {
    /// The program that recorded it, for people.
    pub program: String,
    /// The shard's time when it was made, in nanoseconds.
    pub started_ns: u64,
    /// The device's profile as TOML.
    profile: String,
    seed: u64,
    pacing: bool,
    staging_bytes_per_vssd: u64,
    volatile_cache: bool,
    ius_per_leaf: u64,
    ius_per_anchor_iu: u64,
    device_name: String,
    new_pool_uuid: [u8; 16],
    target: TargetStart,
    pool: PoolStart,
    admission: AdmissionStart,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TargetStart {
    advertised: Vec<SocketAddr>,
    in_capsule_bytes: u32,
    h2c_data_bytes_max: u32,
    transfer_bytes_max: u32,
    queue_entries_max: u16,
    io_queues_max: u16,
    commands_per_round: u32,
    output_bytes_max: u64,
    gather_bytes_max: u64,
    connect_time_ns: u64,
    associations_max: u64,
    firmware: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PoolStart {
    soft_planes_per_die: u16,
    die_window: u16,
    program_window: u16,
    die_queue_depth: u16,
    rate_burst_ns: u64,
    bad_block_reserve_permille: u32,
    spare_blocks_per_die: u32,
    catalog_blocks_per_die: u32,
    /// [`PoolConfig::state_log_blocks_per_die`], by the name that recordings have.
    journal_blocks_per_die: u32,
    usable_die_percent: u32,
    level_channels: Vec<u32>,
    level_dies: Vec<u32>,
    level_soft_planes: Vec<u32>,
    spread_dies: bool,
    /// 0: what the medium states, for all three.
    read_page_ns: u64,
    program_unit_ns: u64,
    erase_ns: u64,
    checked_blocks_per_unit: u32,
    wear: WearStart,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WearStart {
    window_ns: u64,
    rate_bytes_per_second: u64,
    channel_threshold_erases: u64,
    die_threshold_erases: u64,
    follow_age: bool,
    endurance_cycles: u32,
    delta_permille: u32,
    literal_rule: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct AdmissionStart {
    source_quantum: u32,
    window_commands: u32,
    round_cost: u32,
    lone_round_cost: u32,
    company_ns: u64,
    /// The shaper of the device: bytes of a token, or 0 where it counts commands; its rate, and its bucket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    device_shaper: Option<[u64; 3]>,
}

impl AdmissionStart {
    /// The words of the format, which are older than those of the code.
    fn of(config: AdmissionConfig) -> AdmissionStart {
        let AdmissionConfig {
            source_quantum,
            window_commands,
            round_cost,
            uncontended_round_cost,
            contention_window,
            device_shaper,
        } = config;
        AdmissionStart {
            source_quantum,
            window_commands,
            round_cost,
            lone_round_cost: uncontended_round_cost,
            company_ns: contention_window.0,
            device_shaper: device_shaper.map(|device| {
                let token_bytes = match device.unit {
                    TokenUnit::Command => 0,
                    TokenUnit::Bytes(bytes) => u64::from(bytes),
                };
                [token_bytes, device.bucket.rate_per_second, device.bucket.size]
            }),
        }
    }

    fn config(self) -> AdmissionConfig {
        AdmissionConfig {
            source_quantum: self.source_quantum,
            window_commands: self.window_commands,
            round_cost: self.round_cost,
            uncontended_round_cost: self.lone_round_cost,
            contention_window: Span(self.company_ns),
            device_shaper: self.device_shaper.map(|[token_bytes, rate_per_second, size]| DeviceShaper {
                unit: match u32::try_from(token_bytes).unwrap_or(u32::MAX) {
                    0 => TokenUnit::Command,
                    bytes => TokenUnit::Bytes(bytes),
                },
                bucket: BucketSize { rate_per_second, size },
            }),
        }
    }
}

impl Start {
    /// Of a shard that is made at `now` with `config` over a new device of `profile`.
    ///
    /// # Errors
    /// [`StartError::Unsupported`] for faults and for a cost model.
    pub fn new(
        profile: &Profile,
        options: &Options,
        config: &ShardConfig,
        now: Time,
    ) -> Result<Start, StartError> {
        // Everything is named, so that a new setting cannot be forgotten here.
        let ShardConfig {
            target,
            pool,
            admission,
            staging_bytes_per_vssd,
            volatile_cache,
            anchor_pace,
            device_name,
            new_pool_uuid,
            // Of drives, which are not recorded.
            makes_pool: _,
            missing_devices: _,
            removed_devices: _,
            // The same in every server, or about what is told only.
            control_patience: _,
            rate_limit_min_bytes_per_second: _,
            slow_after: _,
            // Of a new device there were no panics, and after one a recording ends with the process.
            fenced: _,
            panics: _,
            planted_panic: _,
            cost_model,
        } = config;
        let PoolConfig {
            soft_planes_per_die,
            die_window,
            program_window,
            die_queue_depth,
            rate_burst_ns,
            bad_block_reserve_permille,
            spare_blocks_per_die,
            catalog_blocks_per_die,
            state_log_blocks_per_die,
            usable_die_percent,
            levels,
            die_placement,
            costs,
            checked_blocks_per_unit,
            wear,
            // Of drives, which are not recorded.
            nonces: _,
        } = pool.clone();
        let WearConfig {
            window_ns,
            rate_bytes_per_second,
            channel_threshold_erases,
            die_threshold_erases,
            follow_age,
            endurance_cycles,
            delta_permille,
            rule,
        } = wear;
        let unsupported = |why: &str| Err(StartError::Unsupported(why.to_owned()));
        if cost_model.is_some() {
            return unsupported("a run with a cost model has no real clock to record");
        }
        if matches!(options.backing, Backing::SyncedFile(_) | Backing::SyncedModel) {
            return Err(StartError::Unsupported(
                "a run over a device that survives the death of the machine waits for its disk and cannot be recorded: record with \
                 device.durability = \"process\""
                    .to_owned(),
            ));
        }
        if options.faults != FaultPlan::default() {
            return Err(StartError::Unsupported("a run with planned faults cannot be recorded".to_owned()));
        }
        Ok(Start {
            program: concat!("diecut ", env!("CARGO_PKG_VERSION")).to_owned(),
            started_ns: now.0,
            profile: profile.to_toml(),
            seed: options.seed,
            pacing: options.pacing == Pacing::Modelled,
            staging_bytes_per_vssd: *staging_bytes_per_vssd as u64,
            volatile_cache: *volatile_cache,
            ius_per_leaf: anchor_pace.ius_per_leaf,
            ius_per_anchor_iu: anchor_pace.ius_per_anchor_iu,
            device_name: device_name.clone(),
            new_pool_uuid: *new_pool_uuid,
            target: TargetStart {
                advertised: target.advertised.clone(),
                in_capsule_bytes: target.queue.in_capsule_bytes,
                h2c_data_bytes_max: target.queue.h2c_data_bytes_max,
                transfer_bytes_max: target.queue.transfer_bytes_max,
                queue_entries_max: target.queue.queue_entries_max,
                io_queues_max: target.controllers.io_queues_max,
                commands_per_round: target.queue.commands_per_round,
                output_bytes_max: target.queue.output_bytes_max as u64,
                gather_bytes_max: target.queue.gather_bytes_max as u64,
                connect_time_ns: target.controllers.connect_time.0,
                associations_max: target.controllers.associations_max as u64,
                firmware: target.firmware.clone(),
            },
            pool: PoolStart {
                soft_planes_per_die,
                die_window,
                program_window,
                die_queue_depth,
                rate_burst_ns,
                bad_block_reserve_permille,
                spare_blocks_per_die,
                catalog_blocks_per_die,
                journal_blocks_per_die: state_log_blocks_per_die,
                usable_die_percent,
                level_channels: levels.channels,
                level_dies: levels.dies,
                level_soft_planes: levels.soft_planes,
                spread_dies: die_placement == DiePlacement::Spread,
                read_page_ns: costs.map_or(0, |costs| costs.read_page_ns),
                program_unit_ns: costs.map_or(0, |costs| costs.program_unit_ns),
                erase_ns: costs.map_or(0, |costs| costs.erase_ns),
                checked_blocks_per_unit,
                wear: WearStart {
                    window_ns,
                    rate_bytes_per_second,
                    channel_threshold_erases,
                    die_threshold_erases,
                    follow_age,
                    endurance_cycles,
                    delta_permille,
                    literal_rule: rule == SwapRule::Literal,
                },
            },
            admission: AdmissionStart::of(*admission),
        })
    }

    /// When the shard was made.
    pub fn started(&self) -> Time {
        Time(self.started_ns)
    }

    /// The device's profile.
    ///
    /// # Errors
    /// If the recording's is none.
    pub fn profile(&self) -> Result<Profile, StartError> {
        Profile::from_toml(&self.profile).map_err(|error| DeviceError::from(error).into())
    }

    /// A new device like the one of the run, with content in `backing`.
    ///
    /// # Errors
    /// What the device says.
    pub fn device(&self, backing: Backing) -> Result<Device, StartError> {
        let pacing = if self.pacing { Pacing::Modelled } else { Pacing::Unpaced };
        let options = Options { backing, pacing, seed: self.seed, ..Options::default() };
        Ok(Device::create(&self.profile()?, options)?)
    }

    /// The shard's settings.
    ///
    /// # Errors
    /// [`StartError::Unsupported`] if a length does not fit this machine.
    pub fn shard_config(&self) -> Result<ShardConfig, StartError> {
        let size = |value: u64| {
            usize::try_from(value).map_err(|_| StartError::Unsupported(format!("a setting of {value} bytes")))
        };
        let mut config = ShardConfig {
            admission: self.admission.config(),
            staging_bytes_per_vssd: size(self.staging_bytes_per_vssd)?,
            volatile_cache: self.volatile_cache,
            anchor_pace: AnchorPace {
                ius_per_leaf: self.ius_per_leaf,
                ius_per_anchor_iu: self.ius_per_anchor_iu,
            },
            device_name: self.device_name.clone(),
            new_pool_uuid: self.new_pool_uuid,
            cost_model: None,
            ..ShardConfig::default()
        };
        let (target, from) = (&mut config.target, &self.target);
        target.advertised.clone_from(&from.advertised);
        target.queue.in_capsule_bytes = from.in_capsule_bytes;
        target.queue.h2c_data_bytes_max = from.h2c_data_bytes_max;
        target.queue.transfer_bytes_max = from.transfer_bytes_max;
        target.queue.queue_entries_max = from.queue_entries_max;
        target.controllers.io_queues_max = from.io_queues_max;
        target.queue.commands_per_round = from.commands_per_round;
        target.queue.output_bytes_max = size(from.output_bytes_max)?;
        target.queue.gather_bytes_max = size(from.gather_bytes_max)?;
        target.controllers.connect_time = Span(from.connect_time_ns);
        target.controllers.associations_max = size(from.associations_max)?;
        target.firmware.clone_from(&from.firmware);
        let (pool, from) = (&mut config.pool, &self.pool);
        pool.soft_planes_per_die = from.soft_planes_per_die;
        pool.die_window = from.die_window;
        pool.program_window = from.program_window;
        pool.die_queue_depth = from.die_queue_depth;
        pool.rate_burst_ns = from.rate_burst_ns;
        pool.bad_block_reserve_permille = from.bad_block_reserve_permille;
        pool.spare_blocks_per_die = from.spare_blocks_per_die;
        pool.catalog_blocks_per_die = from.catalog_blocks_per_die;
        pool.state_log_blocks_per_die = from.journal_blocks_per_die;
        pool.usable_die_percent = from.usable_die_percent;
        pool.levels.channels.clone_from(&from.level_channels);
        pool.levels.dies.clone_from(&from.level_dies);
        pool.levels.soft_planes.clone_from(&from.level_soft_planes);
        pool.die_placement = if from.spread_dies { DiePlacement::Spread } else { DiePlacement::Pack };
        let costs = DieTimes {
            read_page_ns: from.read_page_ns,
            program_unit_ns: from.program_unit_ns,
            erase_ns: from.erase_ns,
            iu_transfer_ns: 0,
        };
        pool.costs = (costs.read_page_ns > 0).then_some(costs);
        pool.checked_blocks_per_unit = from.checked_blocks_per_unit;
        pool.wear = WearConfig {
            window_ns: from.wear.window_ns,
            rate_bytes_per_second: from.wear.rate_bytes_per_second,
            channel_threshold_erases: from.wear.channel_threshold_erases,
            die_threshold_erases: from.wear.die_threshold_erases,
            follow_age: from.wear.follow_age,
            endurance_cycles: from.wear.endurance_cycles,
            delta_permille: from.wear.delta_permille,
            rule: if from.wear.literal_rule { SwapRule::Literal } else { SwapRule::Quiet },
        };
        Ok(config)
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn settings_come_back_as_they_were() {
        let profile = Profile::named("tiny").unwrap();
        let mut config = ShardConfig { device_name: "tiny".to_owned(), ..ShardConfig::default() };
        // Every number differs from its default and from the others.
        config.pool.soft_planes_per_die = 2;
        config.pool.die_queue_depth = 33;
        config.pool.levels.dies = vec![1, 7];
        config.pool.die_placement = DiePlacement::Spread;
        config.pool.costs =
            Some(DieTimes { read_page_ns: 3, program_unit_ns: 5, erase_ns: 17, iu_transfer_ns: 0 });
        config.pool.wear.die_threshold_erases = 4711;
        config.pool.wear.rule = SwapRule::Literal;
        config.pool.wear.follow_age = false;
        (config.pool.wear.endurance_cycles, config.pool.wear.delta_permille) = (1234, 77);
        config.target.controllers.connect_time = Span::from_secs(3);
        config.target.queue.output_bytes_max = 5 << 20;
        config.admission.round_cost = 99;
        config.admission.uncontended_round_cost = 101;
        config.admission.contention_window = Span::from_micros(7);
        let bucket = BucketSize { rate_per_second: 21, size: 22 };
        config.admission.device_shaper = Some(DeviceShaper { unit: TokenUnit::Bytes(23), bucket });
        let options = Options { seed: 5, pacing: Pacing::Unpaced, ..Options::default() };
        let start = Start::new(&profile, &options, &config, Time(77)).unwrap();
        let text = serde_json::to_string(&start).unwrap();
        let read: Start = serde_json::from_str(&text).unwrap();
        assert_eq!(read, start);
        assert_eq!(read.profile().unwrap(), profile);
        assert_eq!(format!("{:?}", read.shard_config().unwrap()), format!("{config:?}"));
    }
}
