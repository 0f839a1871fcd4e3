//! What exists, with figures since the server started unless said otherwise.

use crate::setup::Durability;
use diecut_spec::{
    QosSetStatus, SanitizeStatus, Size, SubsystemSpec, TenantSpec, VolumeSpec, VssdSpec, WearStatus,
};
use serde::{Deserialize, Serialize};

/// Everything that exists.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Where hosts connect to, as `address:port`.
    pub listen: String,
    /// Emulated flash takes as long as the NAND would (`device.pacing`), or no time; absent if it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pacing: Option<bool>,
    /// What an acknowledged write, or flush, survives (`device.durability`); absent where it is not known, or content is in memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub durability: Option<Durability>,
    /// Writes are acknowledged before they are durable, and are after a flush (`device.volatile_cache`); absent if it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volatile_cache: Option<bool>,
    /// Panics of this pool's servers; absent if there were none. `GET /v1/panics` says more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub panics: Option<u64>,
    /// The last one, in a line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_panic: Option<String>,
    /// Devices of the pool.
    pub devices: Vec<DeviceStatus>,
    /// Those that are not there; absent if all are.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing_devices: Vec<MissingDevice>,
    /// Tenants.
    pub tenants: Vec<TenantSpec>,
    /// vSSDs.
    pub vssds: Vec<VssdStatus>,
    /// Volumes.
    pub volumes: Vec<VolumeStatus>,
    /// Subsystems.
    pub subsystems: Vec<SubsystemStatus>,
    /// QoS sets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub qos_sets: Vec<QosSetStatus>,
}

/// A device of the pool, or of the set-up, that is not there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MissingDevice {
    /// Its name in the set-up, or what is known of it.
    pub name: String,
    /// Where it should be, or was last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// What is wrong with it, and what to do.
    pub reason: String,
}

/// A device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeviceStatus {
    /// Its name in the set-up, or its profile.
    pub name: String,
    /// Where it is; absent of one in memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Channels.
    pub channels: u16,
    /// Dies of each channel.
    pub dies_per_channel: u16,
    /// Raw bytes.
    pub raw_capacity: Size,
    /// The target that it lies on does not answer, and commands of hosts are not ready until it does. It comes back by itself.
    #[serde(default)]
    pub is_away: bool,
    /// It comes to the pool, or leaves it; absent of one that is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turning: Option<DeviceTurning>,
    /// Of one that drains: what is on its way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moving: Option<VssdMove>,
    /// Why the last evacuation of it did not come to its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evacuation_error: Option<String>,
    /// Channels that no vSSD uses.
    pub free_channels: u16,
    /// Dies that no vSSD uses, over all channels.
    pub free_dies: u32,
    /// Erase blocks that are bad.
    pub bad_erase_blocks: u64,
    /// Erase blocks that were set aside because what they hold is not certain, each with its reason.
    #[serde(default)]
    pub quarantined: Vec<String>,
    /// Erases of each channel since the device was made.
    pub erases_per_channel: Vec<u64>,
    /// Where its content lies, if that is a file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<DeviceFile>,
    /// Even wear.
    #[serde(default)]
    pub wear: WearStatus,
    /// What the drive says of its health; absent where it says nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health: Option<DriveHealth>,
    /// What happened to the drive under it as a whole: its file was deleted, or it is smaller than when the server took it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub damage: Option<String>,
}

/// Where a device is on its way to the pool, or out of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeviceTurning {
    /// It was brought, and nothing lies on it yet.
    Joins,
    /// What lies on it moves to others, and nothing more is given away on it.
    Drains,
    /// It is to go, and nothing more is given away on it.
    Leaves,
}

/// How far the vSSD is that moves to other devices.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VssdMove {
    /// Its name.
    pub vssd: String,
    /// Bytes of its volumes that are still to be copied; hosts add some.
    pub left: Size,
    /// Bytes of all of them.
    pub all: Size,
}

/// What an NVMe drive says of its health (NVMe Base 2.0, figure 207). Counts are those of the drive's whole life.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriveHealth {
    /// What the drive warns of, in words.
    #[serde(default)]
    pub warnings: Vec<String>,
    /// Its temperature; absent where it does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature_celsius: Option<i32>,
    /// Spare that is left.
    pub spare_percent: u8,
    /// Below so much spare it warns.
    pub spare_threshold_percent: u8,
    /// Life that is used, as its maker reckons; more than 100 where it goes on beyond.
    pub used_percent: u8,
    /// What hosts wrote to it, in units of 512,000 bytes, rounded up.
    pub written: Size,
    /// What hosts read from it, likewise.
    pub read: Size,
    /// Reads and writes that failed for good because of its media.
    pub media_errors: u64,
    /// Hours that it had power.
    pub power_on_hours: u64,
    /// Times that it lost power without being told before.
    pub unsafe_shutdowns: u64,
}

/// The file of an emulated device, and what its file system has left.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DeviceFile {
    /// Where it is.
    pub path: String,
    /// Bytes of the file system that it takes now.
    pub taken: Size,
    /// Bytes that it can grow to.
    pub grows_to: Size,
    /// Bytes that the file system has free.
    pub free: Size,
}

/// A vSSD.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VssdStatus {
    /// Its definition.
    #[serde(flatten)]
    pub vssd: VssdSpec,
    /// Where it lies.
    pub placement: Placement,
    /// Independent units.
    pub units: u32,
    /// Bytes of erase blocks it holds.
    pub physical: Size,
    /// Bytes volumes can store.
    pub exported: Size,
    /// What it holds beyond that, in thousandths of it: (physical - exported) / exported. More than what it was made with by what its log
    /// keeps for itself. Absent where no volumes are stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effective_over_provisioning_permille: Option<u32>,
    /// Bytes of all its volumes as hosts see them; may be more than it can store.
    #[serde(default)]
    pub provisioned: Size,
    /// Bytes volumes store now.
    pub used: Size,
    /// Bytes hosts wrote.
    pub host_written: Size,
    /// Bytes programmed for hosts.
    pub programmed_user: Size,
    /// Bytes programmed by the cleaner.
    pub programmed_cleaner: Size,
    /// Bytes programmed for maps, summaries, anchors and padding.
    pub programmed_metadata: Size,
    /// Programmed bytes for each byte hosts wrote; absent before the first write.
    pub waf_cleaner: Option<f64>,
    /// Erases of its blocks.
    pub erases: u64,
    /// Erase blocks it may hold.
    #[serde(default)]
    pub erase_blocks: u64,
    /// Those of them that are free: what its log has not taken.
    #[serde(default)]
    pub free_erase_blocks: u64,
    /// Why it takes no writes, if so.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub read_only_reason: Option<String>,
    /// What was given up as lost since it was made, if anything was (`diecut vssd repair --accept-loss`).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub accepted_loss: Option<AcceptedLoss>,
}

/// Where a vSSD lies.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    /// Numbers of its channels, each once, in their order.
    pub channels: Vec<u16>,
    /// Its independent units: channel of each, and number of the die within the channel.
    pub dies: Vec<[u16; 2]>,
    /// Which soft-plane of that die each unit is; empty where units are whole dies.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub soft_planes: Vec<u16>,
    /// The device of each unit, by name; empty where all lie on one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unit_devices: Vec<String>,
    /// The shard it lives on, if the server has several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shard: Option<u16>,
}

impl Placement {
    /// For people: `channel/die 0/0 0/1`, with soft-planes `channel/die.plane 0/0.2`, on several devices `channel/die fast:0/0 other:0/0`.
    pub fn text(&self) -> String {
        let kind = if self.soft_planes.is_empty() { "channel/die" } else { "channel/die.plane" };
        let mut text = kind.to_owned();
        for (at, [channel, die]) in self.dies.iter().enumerate() {
            let device = self.unit_devices.get(at).map_or(String::new(), |device| format!("{device}:"));
            text += &format!(" {device}{channel}/{die}");
            if let Some(plane) = self.soft_planes.get(at) {
                text += &format!(".{plane}");
            }
        }
        match self.shard {
            Some(shard) => format!("{text}, shard {shard}"),
            None => text,
        }
    }
}

/// What of a vSSD was given up as lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AcceptedLoss {
    /// Bytes whose reads failed when loss was last accepted; they fail until they are written or deallocated.
    pub size: Size,
    /// Records of writes that are lost: where they were, data may be older than acknowledged, and nobody knows where.
    pub records: u64,
}

impl AcceptedLoss {
    /// For people.
    pub fn text(&self) -> String {
        let mut parts = Vec::new();
        if self.size.bytes() > 0 {
            parts.push(format!("reads of {} failed then", self.size));
        }
        if self.records > 0 {
            let records =
                if self.records == 1 { "a record".to_owned() } else { format!("{} records", self.records) };
            parts.push(format!("{records} of writes lost, so some data may be older than acknowledged"));
        }
        parts.join("; ")
    }
}

/// A volume.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VolumeStatus {
    /// Its definition, identities filled.
    pub volume: VolumeSpec,
    /// Bytes stored now.
    pub used: Size,
    /// Read commands completed.
    pub reads: u64,
    /// Write commands completed.
    pub writes: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Latency of reads from arrival to completion.
    pub read_latency: Latency,
    /// Latency of writes from arrival to completion.
    pub write_latency: Latency,
}

/// Latency percentiles in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Latency {
    /// Median.
    pub p50_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// 99.9th percentile.
    pub p99_9_ns: u64,
    /// 99.99th percentile.
    pub p99_99_ns: u64,
}

/// A subsystem.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SubsystemStatus {
    /// Its definition, identities filled.
    pub subsystem: SubsystemSpec,
    /// Connected controllers.
    pub controllers: Vec<Controller>,
    /// The most recent sanitize operation that a host began; absent if there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sanitize: Option<SanitizeStatus>,
}

/// A connected controller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Controller {
    /// NQN of its host; empty if it gave none.
    pub host_nqn: String,
    /// Controller identifier.
    pub controller_id: u16,
    /// I/O queues.
    pub io_queues: u16,
}

/// What a repair of a vSSD found and did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RepairReport {
    /// Name of the vSSD.
    pub vssd: String,
    /// What came of it.
    pub outcome: RepairOutcome,
    /// Why it took no writes before, if so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason_before: Option<String>,
    /// Why it takes none now, if so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What is missing, a line for each, the first of many.
    pub missing: Vec<String>,
    /// How many more there are.
    pub missing_more: u64,
    /// How many of all told which data is the newest: without them older data may show, and nobody knows where.
    pub lost_records: u64,
    /// Parts of maps that an older version had emptied without a record: nothing was lost with them.
    pub emptied_leaves: u64,
    /// Ranges whose reads fail because what lay there is lost, the first of many.
    pub lost: Vec<LostRange>,
    /// Bytes of all such ranges.
    pub lost_size: Size,
    /// Lost records that were accepted since the vSSD was made.
    pub accepted_records: u64,
}

/// What came of a repair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RepairOutcome {
    /// It takes writes, and did before.
    Good,
    /// It takes writes again; nothing was lost.
    Mended,
    /// It takes writes again, without what is lost.
    Accepted,
    /// It takes none: something is lost, and that was not accepted.
    ReadOnly,
    /// It takes none, for a reason that no repair changes.
    NotToBeRepaired,
}

/// Bytes of a volume that are lost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostRange {
    /// Name of the volume.
    pub volume: String,
    /// Where they begin, in bytes.
    pub offset_bytes: u64,
    /// How many.
    pub size_bytes: u64,
}

/// What emulated timing means, for people.
pub fn timing(pacing: bool) -> &'static str {
    if pacing {
        "flash takes as long as the profile's NAND would"
    } else {
        "off: flash takes no time (device.pacing = true turns it on)"
    }
}

/// What acknowledged writes survive, or flushed ones behind a volatile cache, for people.
pub fn durability(durability: Durability, volatile_cache: bool) -> String {
    let what = if volatile_cache { "flushed" } else { "acknowledged" };
    let mut text = match durability {
        Durability::Process => {
            format!(
                "process: {what} writes survive the death of the server, not of the machine (docs/durability.md)"
            )
        }
        Durability::Machine => format!("machine: {what} writes survive the death of the machine"),
    };
    if volatile_cache {
        text += "; there is a volatile cache: what was not flushed may be lost";
    }
    text
}
