//! Settings of a shard.

use crate::admission::AdmissionConfig;
use crate::cost::CostModel;
use crate::panics::PanicRecord;
use crate::planted::PlantedPanic;
use diecut_nvmf::TargetConfig;
use diecut_units::Span;
use diecut_volume::AnchorPace;
use diecut_vssd::PoolConfig;
use std::collections::BTreeSet;
use std::sync::Arc;
use uuid::Uuid;

/// Settings of a device.
#[derive(Clone, Debug)]
pub struct DeviceConfig {
    /// Its name: an administrator's, or its profile or model.
    pub name: String,
    /// The pool's settings.
    pub pool: PoolConfig,
    /// Without protected memory: completions of writes wait for the flash unless this is set; hosts must flush then.
    pub volatile_cache: bool,
    /// Whether the pool is made, whatever lies on the device: see [`ShardConfig::makes_pool`].
    pub makes_pool: bool,
}

impl DeviceConfig {
    /// The UUID by which its label names it; zeros of what has no label.
    pub(crate) fn uuid(&self) -> Uuid {
        Uuid::from_bytes(self.pool.nonces.map_or([0; 16], |nonces| nonces.device()))
    }
}

impl ShardConfig {
    /// What is said of the device, where there is one.
    pub fn device(&self) -> DeviceConfig {
        DeviceConfig {
            name: self.device_name.clone(),
            pool: self.pool.clone(),
            volatile_cache: self.volatile_cache,
            makes_pool: self.makes_pool,
        }
    }
}

/// Settings of a shard.
#[derive(Clone, Debug)]
pub struct ShardConfig {
    /// The target's limits.
    pub target: TargetConfig,
    /// The pool's settings.
    pub pool: PoolConfig,
    /// The admission scheduler's limits.
    pub admission: AdmissionConfig,
    /// Protected memory of one staging slot, in bytes; most vSSDs have one, wide ones several.
    pub staging_bytes_per_vssd: usize,
    /// Without protected memory: completions of writes wait for the flash unless this is set; hosts must flush then.
    pub volatile_cache: bool,
    /// How much the stores may write as leaves and anchors.
    pub anchor_pace: AnchorPace,
    /// Name of the device in reports: its profile or model.
    pub device_name: String,
    /// Identity of a pool that is made new; an existing one keeps its own.
    pub new_pool_uuid: [u8; 16],
    /// Whether the pool is made, whatever lies on the device. A device without OOB areas cannot tell that it holds nothing: its label says
    /// so, which is written when the shard is ready, and has a UUID that was never in use. Others find out by themselves.
    pub makes_pool: bool,
    /// Devices of the pool that are not there: what exists is known all the same if enough of the others are.
    pub missing_devices: u16,
    /// UUIDs of devices that were taken out of the pool: what lay on them is lost, and can be deleted.
    pub removed_devices: Vec<[u8; 16]>,
    /// How long an administrator's request may take before it is answered with what it waits for; 0: for ever.
    pub control_patience: Span,
    /// The lowest rate limit of a new vSSD, in bytes per second: below it a chunk of the log takes longer than hosts wait for a
    /// command. Those that exist keep what they have.
    pub rate_limit_min_bytes_per_second: u64,
    /// What commands cost the core in virtual time; `None` on the real clock, where they cost what they cost.
    pub cost_model: Option<CostModel>,
    /// Commands that take so long are looked into: where their time went.
    pub slow_after: Span,
    /// vSSDs that are fenced, by number: hosts write them no more ([`crate::panics`]).
    pub fenced: BTreeSet<u32>,
    /// Panics of this pool's servers, the last one last: hosts read of those that happened at work for their vSSDs.
    pub panics: Arc<[PanicRecord]>,
    /// A check that fails on purpose, for tests; of a build without debug assertions it does nothing.
    pub planted_panic: Option<PlantedPanic>,
}

impl Default for ShardConfig {
    fn default() -> ShardConfig {
        ShardConfig {
            target: TargetConfig::default(),
            pool: PoolConfig::default(),
            admission: AdmissionConfig::default(),
            staging_bytes_per_vssd: 8 << 20,
            volatile_cache: false,
            anchor_pace: AnchorPace::default(),
            device_name: "device".to_owned(),
            new_pool_uuid: [0x0d; 16],
            makes_pool: false,
            missing_devices: 0,
            removed_devices: Vec::new(),
            control_patience: Span::from_secs(60),
            rate_limit_min_bytes_per_second: 1 << 20,
            cost_model: None,
            slow_after: Span::from_millis(5),
            fenced: BTreeSet::new(),
            panics: Arc::new([]),
            planted_panic: None,
        }
    }
}
