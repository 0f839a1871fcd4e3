//! What an administrator asks of a shard. Objects are named by the administrator; names are unique per kind.
//! Requests can be serialized, because recordings of runs hold them.

use diecut_spec::latency::LatencyReport;
use diecut_spec::older;
pub use diecut_spec::{
    ChannelWear, NamespaceSpec, PathSpec, PathState, QosSetChange, QosSetSpec, QosSetStatus, SanitizeState,
    SanitizeStatus, SubsystemSpec, TenantSpec, VolumeSpec, VssdSpec, WearExchange, WearInForce, WearSettings,
    WearStatus,
};
use diecut_units::Shown;
pub use diecut_vssd::UnitLocation;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use std::fmt;
use uuid::Uuid;

/// Chosen by the driver, returned with the answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ControlToken(pub u64);

/// One request. Creation is idempotent where the same object exists with the same definition.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ControlRequest {
    /// Creates a tenant.
    CreateTenant(TenantSpec),
    /// Deletes a tenant that owns nothing.
    DeleteTenant(String),
    /// Changes what is due to a tenant beside others.
    SetTenantWeight {
        /// Name of the tenant.
        tenant: String,
        /// See [`TenantSpec::weight`].
        weight: u32,
    },
    /// Creates a vSSD.
    CreateVssd(#[serde(deserialize_with = "vssd")] VssdSpec),
    /// Deletes a vSSD without volumes; its blocks are erased before anyone else gets them.
    DeleteVssd(String),
    /// Creates a volume.
    CreateVolume(#[serde(deserialize_with = "volume")] VolumeSpec),
    /// Deletes a volume that no subsystem shows.
    DeleteVolume(String),
    /// Creates a subsystem.
    CreateSubsystem(#[serde(deserialize_with = "subsystem")] SubsystemSpec),
    /// Deletes a subsystem; its controllers are shut down.
    DeleteSubsystem(String),
    /// Allows a host, by NQN, to connect to a subsystem.
    AllowHost {
        /// NQN of the subsystem.
        subsystem: String,
        /// NQN of the host.
        host: String,
    },
    /// Takes the permission back and disconnects the host.
    DenyHost {
        /// NQN of the subsystem.
        subsystem: String,
        /// NQN of the host.
        host: String,
    },
    /// Shows a volume as a namespace of a subsystem; connected hosts are told.
    AttachNamespace {
        /// NQN of the subsystem.
        subsystem: String,
        /// Namespace identifier, 1 or more.
        nsid: u32,
        /// Name of the volume.
        volume: String,
    },
    /// Takes a namespace away; connected hosts are told.
    DetachNamespace {
        /// NQN of the subsystem.
        subsystem: String,
        /// Namespace identifier.
        nsid: u32,
    },
    /// Says how good the path to a subsystem over an address is; connected hosts are told.
    SetPath {
        /// NQN of the subsystem.
        subsystem: String,
        /// Address, and its state.
        path: PathSpec,
    },
    /// Looks again at a vSSD that takes no writes, says what is missing, and lets it take writes where nothing was lost; answered
    /// with [`ControlResponse::Repaired`].
    RepairVssd {
        /// Name of the vSSD.
        vssd: String,
        /// It takes writes also where something was lost: reads of that fail until it is written or deallocated, and where
        /// records were lost, older data may show.
        accepts_loss: bool,
    },
    /// Lifts the fence of a vSSD at which the server failed ([`crate::panics`]): hosts write it again.
    UnfenceVssd(String),
    /// Changes settings of even wear. They hold for the whole device, whatever shards serve it.
    SetWear(#[serde(deserialize_with = "wear")] WearSettings),
    /// Creates a QoS set.
    CreateQosSet(QosSetSpec),
    /// Changes a QoS set, which counts at once.
    ChangeQosSet {
        /// Name of the set.
        set: String,
        /// What is to be otherwise.
        change: QosSetChange,
    },
    /// Deletes a QoS set; its members are in none.
    DeleteQosSet(String),
    /// Brings a tenant, and all that shares channels with it, to another shard while it is served; its hosts notice a delay
    /// only. It stays there until the server stops: homes are chosen anew at each start.
    MoveTenant {
        /// Name of the tenant.
        tenant: String,
        /// The shard, from 0.
        shard: u16,
    },
    /// Moves a vSSD to other devices than those that are to leave ([`DeviceTurn::Drains`]), while its hosts go on.
    MoveVssd(String),
    /// A device comes to the pool while the server runs, or leaves it. Whoever asks writes the labels between two turns, and brings the device, or
    /// takes it away, by events ([`crate::drive::Event::DeviceCame`]).
    Device {
        /// Its UUID.
        device: Uuid,
        /// What becomes of it.
        turn: DeviceTurn,
    },
    /// Everything that exists, with figures.
    Status,
    /// Where the time of slow commands went.
    Latency,
    /// A request whose answer comes in this time: if it is not done, it is refused with what it waits for
    /// ([`ControlErrorKind::Unfinished`]), and goes on.
    Within {
        /// Milliseconds from its arrival; 0: for as long as it takes.
        patience_ms: u64,
        /// Any other request.
        request: Box<ControlRequest>,
    },
    /// Makes everything durable and stops accepting commands; answered when a restart needs no recovery.
    Shutdown,
}

/// What becomes of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DeviceTurn {
    /// It was brought, and is to be one of the pool. When that is done it has all that the others have, and labels may tell of it.
    Comes,
    /// All labels tell of it: it is one of the pool, and vSSDs may lie on it.
    Joined,
    /// It is to be empty: nothing more is given away on it, and there is room elsewhere for what lies there. Until the server stops.
    Drains,
    /// It is one like others again.
    Stays,
    /// It is to leave: nothing lies on it. When that is done the others have all that it has, and labels may say that it is none of the pool.
    Leaves,
    /// No label knows it any more, or none does yet: it is forgotten.
    Went,
}

impl ControlRequest {
    /// Whether it may be asked a second time if nobody knows what became of the first one: it changes nothing, or nothing more than
    /// the first one did, and its answer is the same.
    pub fn may_be_asked_again(&self) -> bool {
        match self {
            ControlRequest::CreateTenant(_)
            | ControlRequest::SetTenantWeight { .. }
            | ControlRequest::CreateVssd(_)
            | ControlRequest::CreateVolume(_)
            | ControlRequest::CreateSubsystem(_)
            | ControlRequest::SetWear(_)
            | ControlRequest::CreateQosSet(_)
            | ControlRequest::ChangeQosSet { .. }
            | ControlRequest::SetPath { .. }
            | ControlRequest::UnfenceVssd(_)
            | ControlRequest::Device { .. }
            | ControlRequest::Status
            | ControlRequest::Latency
            | ControlRequest::Shutdown => true,
            ControlRequest::DeleteTenant(_)
            | ControlRequest::DeleteVssd(_)
            | ControlRequest::DeleteVolume(_)
            | ControlRequest::DeleteSubsystem(_)
            | ControlRequest::DeleteQosSet(_)
            | ControlRequest::AllowHost { .. }
            | ControlRequest::DenyHost { .. }
            | ControlRequest::AttachNamespace { .. }
            | ControlRequest::DetachNamespace { .. }
            | ControlRequest::RepairVssd { .. }
            | ControlRequest::MoveVssd(_)
            | ControlRequest::MoveTenant { .. } => false,
            ControlRequest::Within { request, .. } => request.may_be_asked_again(),
        }
    }

    /// For people: what is done to which object.
    pub fn title(&self) -> String {
        match self {
            ControlRequest::CreateTenant(spec) => format!("creation of tenant \"{}\"", Shown(&spec.name)),
            ControlRequest::DeleteTenant(name) => format!("deletion of tenant \"{}\"", Shown(name)),
            ControlRequest::SetTenantWeight { tenant, weight } => {
                format!("weight {weight} for tenant \"{}\"", Shown(tenant))
            }
            ControlRequest::CreateVssd(spec) => format!("creation of vSSD \"{}\"", Shown(&spec.name)),
            ControlRequest::DeleteVssd(name) => format!("deletion of vSSD \"{}\"", Shown(name)),
            ControlRequest::CreateVolume(spec) => format!("creation of volume \"{}\"", Shown(&spec.name)),
            ControlRequest::DeleteVolume(name) => format!("deletion of volume \"{}\"", Shown(name)),
            ControlRequest::CreateSubsystem(spec) => format!("creation of subsystem {}", Shown(&spec.nqn)),
            ControlRequest::DeleteSubsystem(nqn) => format!("deletion of subsystem {}", Shown(nqn)),
            ControlRequest::AllowHost { subsystem, host } => {
                format!("permission of host {} at subsystem {}", Shown(host), Shown(subsystem))
            }
            ControlRequest::DenyHost { subsystem, host } => {
                format!("end of the permission of host {} at subsystem {}", Shown(host), Shown(subsystem))
            }
            ControlRequest::AttachNamespace { subsystem, nsid, volume } => {
                let (volume, subsystem) = (Shown(volume), Shown(subsystem));
                format!("attachment of volume \"{volume}\" as namespace {nsid} of subsystem {subsystem}")
            }
            ControlRequest::DetachNamespace { subsystem, nsid } => {
                format!("detachment of namespace {nsid} of subsystem {}", Shown(subsystem))
            }
            ControlRequest::SetPath { subsystem, path: PathSpec { address, state } } => {
                format!("path {address} to subsystem {}, {}", Shown(subsystem), state.name())
            }
            ControlRequest::RepairVssd { vssd, .. } => format!("repair of vSSD \"{}\"", Shown(vssd)),
            ControlRequest::UnfenceVssd(vssd) => format!("end of the fence of vSSD \"{}\"", Shown(vssd)),
            ControlRequest::SetWear(_) => "change of even wear".to_owned(),
            ControlRequest::CreateQosSet(spec) => format!("creation of QoS set \"{}\"", Shown(&spec.name)),
            ControlRequest::ChangeQosSet { set, .. } => format!("change of QoS set \"{}\"", Shown(set)),
            ControlRequest::DeleteQosSet(name) => format!("deletion of QoS set \"{}\"", Shown(name)),
            ControlRequest::MoveTenant { tenant, shard } => {
                format!("move of tenant \"{}\" to shard {shard}", Shown(tenant))
            }
            ControlRequest::MoveVssd(vssd) => format!("move of vSSD \"{}\"", Shown(vssd)),
            ControlRequest::Device { device, turn } => {
                let what = match turn {
                    DeviceTurn::Comes => "coming",
                    DeviceTurn::Joined => "joining",
                    DeviceTurn::Drains => "evacuation",
                    DeviceTurn::Stays => "staying",
                    DeviceTurn::Leaves => "leaving",
                    DeviceTurn::Went => "end",
                };
                format!("{what} of device {device}")
            }
            ControlRequest::Status => "status".to_owned(),
            ControlRequest::Latency => "report of slow commands".to_owned(),
            ControlRequest::Within { request, .. } => request.title(),
            ControlRequest::Shutdown => "stop of the server".to_owned(),
        }
    }
}

/// The answer to one request.
#[derive(Clone, Debug, PartialEq)]
pub enum ControlResponse {
    /// Done.
    Done,
    /// What was asked for was so already.
    Unchanged,
    /// What exists.
    Status(Box<Status>),
    /// Where the time of slow commands went.
    Latency(Box<LatencyReport>),
    /// A vSSD was looked at; what came of it.
    Repaired(Box<RepairReport>),
    /// Not done, and nothing was changed.
    Refused(ControlError),
}

/// What a repair found and did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepairReport {
    /// Name of the vSSD.
    pub vssd: String,
    /// What came of it.
    pub outcome: RepairOutcome,
    /// Why it took no writes before.
    pub reason_before: Option<String>,
    /// Why it takes none now.
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
    pub lost: Vec<LostBytes>,
    /// Bytes of all such ranges.
    pub lost_bytes: u64,
    /// Lost records that were accepted since the vSSD was made.
    pub accepted_records: u64,
}

/// What came of a repair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostBytes {
    /// Name of the volume.
    pub volume: String,
    /// Where they begin.
    pub offset_bytes: u64,
    /// How many.
    pub size_bytes: u64,
}

/// Why a request was refused: the object, the problem, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlError {
    /// What kind of problem.
    pub kind: ControlErrorKind,
    /// A sentence that names the object and says what to do.
    pub message: String,
}

/// Kinds of refusals, for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControlErrorKind {
    /// No object of this name.
    NotFound,
    /// An object of this name exists with another definition.
    Exists,
    /// The object is used by another one.
    InUse,
    /// A field has an impossible value.
    Invalid,
    /// Capacity or isolation that cannot be had.
    Exhausted,
    /// Not now: something else must come to its end before.
    Busy,
    /// Not done in the time that was given. What was begun goes on.
    Unfinished,
    /// The medium failed.
    Media,
}

impl fmt::Display for ControlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ControlError {}

/// Everything that exists on a shard, with figures since the shard started unless said otherwise.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Status {
    /// Devices of the pool.
    pub devices: Vec<DeviceStatus>,
    /// Tenants.
    pub tenants: Vec<TenantSpec>,
    /// vSSDs.
    pub vssds: Vec<VssdStatus>,
    /// Volumes.
    pub volumes: Vec<VolumeStatus>,
    /// Subsystems.
    pub subsystems: Vec<SubsystemStatus>,
    /// QoS sets.
    pub qos_sets: Vec<QosSetStatus>,
}

/// A device.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeviceStatus {
    /// Profile or model.
    pub name: String,
    /// Channels.
    pub channels: u16,
    /// Dies of each channel.
    pub dies_per_channel: u16,
    /// Raw bytes.
    pub raw_capacity_bytes: u64,
    /// What it lies on cannot be reached.
    pub is_away: bool,
    /// It comes to the pool, or leaves it.
    pub turning: Option<DeviceTurning>,
    /// Of one that drains: what is on its way.
    pub moving: Option<VssdMove>,
    /// Erases of each channel since the device was made.
    pub erases_per_channel: Vec<u64>,
    /// Channels that no vSSD uses.
    pub free_channels: u16,
    /// Dies that no vSSD uses, over all channels.
    pub free_dies: u32,
    /// Erase blocks that are bad.
    pub bad_erase_blocks: u64,
    /// Erase blocks set aside because what they hold is not certain, each with its reason.
    pub quarantined: Vec<String>,
    /// Even wear.
    pub wear: WearStatus,
}

/// Where a device is on its way to the pool, or out of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceTurning {
    /// It was brought, and nothing lies on it yet.
    Joins,
    /// What lies on it moves to others, and nothing more is given away on it.
    Drains,
    /// It is to go, and nothing more is given away on it.
    Leaves,
}

/// How far the vSSD is that moves.
#[derive(Clone, Debug, PartialEq)]
pub struct VssdMove {
    /// Its name.
    pub vssd: String,
    /// Bytes of its volumes that are still to be copied; hosts add some.
    pub left_bytes: u64,
    /// Bytes of all of them.
    pub all_bytes: u64,
}

/// A vSSD.
#[derive(Clone, Debug, PartialEq)]
pub struct VssdStatus {
    /// Its definition.
    pub spec: VssdSpec,
    /// Where its independent units lie, in their order.
    pub placement: Vec<UnitLocation>,
    /// The device of each of them, by name, if they lie on several.
    pub unit_devices: Vec<String>,
    /// The shard it lives on; `None` if there is one only.
    pub shard: Option<u16>,
    /// What it has, and what of it is used.
    pub space: VssdSpace,
    /// What went to it and to its flash.
    pub traffic: VssdTraffic,
    /// Whether it takes writes, and what it lost.
    pub health: VssdHealth,
}

/// What a vSSD has, and what of it is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VssdSpace {
    /// Independent units.
    pub units: u32,
    /// Bytes of erase blocks it holds.
    pub physical_bytes: u64,
    /// Bytes volumes can store.
    pub exported_bytes: u64,
    /// Bytes volumes store now.
    pub used_bytes: u64,
    /// Erase blocks it may hold.
    pub erase_blocks: u64,
    /// Those of them that are free: what its log has not taken.
    pub free_erase_blocks: u64,
}

/// What went to a vSSD and to its flash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VssdTraffic {
    /// Bytes hosts wrote.
    pub host_written_bytes: u64,
    /// Bytes programmed for hosts.
    pub programmed_user_bytes: u64,
    /// Bytes programmed by the cleaner.
    pub programmed_cleaner_bytes: u64,
    /// Bytes programmed for maps, summaries, anchors and padding.
    pub programmed_metadata_bytes: u64,
    /// Erases of its blocks.
    pub erases: u64,
}

/// Whether a vSSD takes writes, and what it lost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VssdHealth {
    /// Why it takes no writes, if so.
    pub read_only_reason: Option<String>,
    /// The reason is that the medium has no room at present.
    pub lacks_room: bool,
    /// What was accepted as lost since it was made.
    pub accepted_loss: AcceptedLoss,
}

/// What of a vSSD was accepted as lost, by repairs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AcceptedLoss {
    /// Bytes whose reads failed when loss was last accepted.
    pub bytes: u64,
    /// Records that told which data is the newest: since then some data may be older than acknowledged.
    pub records: u64,
}

impl VssdSpace {
    /// Over-provisioning as it is in effect: what it holds beyond what volumes can store, (physical - exported) / exported. It is more than
    /// what the vSSD was made with by what its log keeps for itself. `None` where nothing is exported.
    pub fn effective_over_provisioning(&self) -> Option<f64> {
        let (physical, exported) = (self.physical_bytes as f64, self.exported_bytes as f64);
        (self.exported_bytes > 0).then(|| (physical - exported) / exported)
    }

    /// Bytes of an erase block on each unit: a segment, or a zone that says nothing else.
    ///
    /// # Panics
    /// If it may hold no erase block.
    pub fn segment_bytes(&self) -> u64 {
        self.physical_bytes / self.erase_blocks * u64::from(self.units)
    }
}

/// A volume.
#[derive(Clone, Debug, PartialEq)]
pub struct VolumeStatus {
    /// Its definition, identities filled.
    pub spec: VolumeSpec,
    /// Bytes stored now.
    pub used_bytes: u64,
    /// Read commands completed.
    pub reads: u64,
    /// Write commands completed.
    pub writes: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Latency percentiles of reads from arrival to completion, in nanoseconds: p50, p99, p99.9, p99.99.
    pub read_latency_ns: [u64; 4],
    /// Same for writes.
    pub write_latency_ns: [u64; 4],
}

/// A subsystem.
#[derive(Clone, Debug, PartialEq)]
pub struct SubsystemStatus {
    /// Its definition, identities filled.
    pub spec: SubsystemSpec,
    /// Connected controllers: host NQN, controller id, number of I/O queues.
    pub controllers: Vec<(String, u16, u16)>,
    /// The most recent sanitize operation, if there was one.
    pub sanitize: Option<SanitizeStatus>,
}

/// Whether a subsystem's name is built as the specification asks for; others are served, too.
pub fn is_name_by_the_rule(nqn: &str) -> bool {
    diecut_nvme::QualifiedName::new(nqn).is_ok_and(|name| name.is_by_the_rule())
}

/// Reads what recordings may hold in an older spelling.
fn read<'de, D: Deserializer<'de>, T: DeserializeOwned>(
    deserializer: D,
    upgrade: fn(&mut Value),
) -> Result<T, D::Error> {
    let mut value = Value::deserialize(deserializer)?;
    upgrade(&mut value);
    serde_json::from_value(value).map_err(serde::de::Error::custom)
}

fn vssd<'de, D: Deserializer<'de>>(deserializer: D) -> Result<VssdSpec, D::Error> {
    read(deserializer, older::vssd)
}

fn volume<'de, D: Deserializer<'de>>(deserializer: D) -> Result<VolumeSpec, D::Error> {
    read(deserializer, older::volume)
}

fn subsystem<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SubsystemSpec, D::Error> {
    read(deserializer, older::subsystem)
}

fn wear<'de, D: Deserializer<'de>>(deserializer: D) -> Result<WearSettings, D::Error> {
    read(deserializer, older::wear)
}

#[cfg(test)]
mod test {
    use super::*;
    use diecut_spec::{Isolation, Size};

    /// Goal: recordings made before specifications had one spelling are read. Method: a request as they spell it, and as it is spelled
    /// today.
    #[test]
    fn recordings_of_before_are_read() {
        let vssd = VssdSpec { capacity: Size(1 << 30), ..VssdSpec::new("a", "t", Isolation::Channel, 280) };
        let request = Box::new(ControlRequest::CreateVssd(vssd));
        let request = ControlRequest::Within { patience_ms: 7, request };
        let before = r#"{"Within":{"patience_ms":7,"request":{"CreateVssd":{"name":"a","tenant":"t","isolation":"Channel",
            "throughput_level":1,"capacity_bytes":1073741824,"over_provisioning_permille":280,"weight":100,
            "rate_limit_bytes_per_second":0,"sharing":"WorkConserving","serves":"Volumes"}}}}"#;
        let today = serde_json::to_vec(&request).unwrap();
        for text in [before.as_bytes(), &today] {
            assert_eq!(serde_json::from_slice::<ControlRequest>(text).unwrap(), request);
        }
        assert!(serde_json::from_slice::<ControlRequest>(b"{\"CreateVssd\":{}}").is_err());
    }
}
