//! A run as data: who the tenants are, what they do, what goes wrong. A plan is generated from a seed
//! ([`crate::generate`]), stored as JSON, replayed, and shrunk; nothing random happens after it is made.

mod drive;
mod erasure;
mod placement;
mod qos;

use crate::administration::Change;
use crate::oracle::Crash;
use crate::tag::VolumeNumber;
use diecut_spec::Isolation;
pub use drive::{
    ComingsPlan, DriveDies, DriveFault, DriveHarm, DriveLie, DrivePlan, DriveTurn, DriveZones, Turn,
};
pub use erasure::ErasurePlan;
pub use placement::{PlacementPlan, PlacementStep, group_of, pid_of, placed_by};
pub use qos::{DevicePlan, QosPlan, QosSetPlan, QosStep, set_name};
use serde::{Deserialize, Serialize};

/// A source of commands: one host of one tenant, with its own connection and its own volumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Lane(pub u8);

impl Lane {
    /// Not a host: the one whose steps are changes to what exists.
    pub const ADMINISTRATOR: Lane = Lane(u8::MAX);
    /// The first lane of applications at erase blocks, which are no hosts.
    const FIRST_APPLICATION: u8 = 128;

    /// The lane of an application, by its place in [`Plan::applications`].
    pub fn of_application(index: usize) -> Lane {
        Lane(Lane::FIRST_APPLICATION + index as u8)
    }

    /// Which application's it is, if it is one's.
    pub fn application(self) -> Option<usize> {
        let is_application = self != Lane::ADMINISTRATOR && self.0 >= Lane::FIRST_APPLICATION;
        is_application.then(|| usize::from(self.0 - Lane::FIRST_APPLICATION))
    }
}

/// What stands for content on the simulated medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ContentKind {
    /// 4096 bytes per IU, filled from the tag.
    Bytes,
    /// The tag itself.
    Tags,
}

/// A whole run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Where it came from; also seeds the medium and the network.
    pub seed: u64,
    /// The device.
    pub system: SystemPlan,
    /// Who shares it. Lane `i` is tenant `i`.
    pub tenants: Vec<TenantPlan>,
    /// Who uses erase blocks beside them, each a vSSD of its own. Only on a medium that keeps bytes.
    #[serde(default)]
    pub applications: Vec<ApplicationPlan>,
    /// What they do, in the order in which lanes take their steps. The storm.
    pub steps: Vec<Step>,
    /// What goes wrong meanwhile.
    pub faults: Vec<PlannedFault>,
    /// What is saturated in the calm, to see whether everyone gets the same.
    #[serde(default)]
    pub saturation: Option<Saturation>,
    /// What comes after that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aftermath: Option<Aftermath>,
    /// What comes after that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub siege: Option<Siege>,
    /// What comes at the very end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss: Option<Loss>,
    /// What is erased in the calm.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub erasure: Option<ErasurePlan>,
    /// QoS sets; absent: there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qos: Option<QosPlan>,
}

/// Hosts that take what they can and keep to nothing, beside those of the tenants, on a server with little memory and few
/// controllers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Siege {
    /// Whose subsystem is beside the one that is open to them.
    pub lane: Lane,
    /// The volume that they see; nobody else has written it.
    pub volume: VolumeNumber,
    /// What they do, all of it at once.
    pub attacks: Vec<Attack>,
    /// How it ends.
    pub end: SiegeEnd,
}

/// What hostile hosts do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Attack {
    /// Queues of a few hosts ask for more than they may, and take no answers.
    ReadNothing,
    /// So do those of many hosts.
    Crowd,
    /// Many queues let themselves be asked for data and never send them.
    SendNothing,
    /// Queues that are never empty.
    FlushWithoutEnd,
    /// Commands whose last bytes never come.
    HalfCapsules,
    /// Connections that say nothing, half of the first PDU, or no more than that.
    HalfOpen,
    /// So many connections that say nothing that there is no memory for another one.
    Silent,
    /// Controllers that are never enabled.
    Connects,
    /// As many controllers as there are.
    Squatters,
    /// PDUs that no right host sends: wrong lengths, wrong digests, data out of order and more than was asked for.
    WrongPdus,
    /// Controllers are reset and connections hung up with commands under way.
    Resets,
}

/// How a siege ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SiegeEnd {
    /// The hostile hosts hang up.
    HangUp,
    /// Their subsystem is deleted under them.
    ThrownOut,
    /// The server goes.
    Crash(Crash),
}

/// Stores that lose all their records while the server is down: their vSSDs take no writes, and what was on their volumes
/// fails to read, until an administrator accepts that it is lost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Loss {
    /// Lanes whose vSSDs lose them.
    pub lanes: Vec<Lane>,
    /// How the server goes before.
    pub crash: Crash,
    /// Restarts before the loss is accepted.
    pub restarts: Vec<Restart>,
    /// How the server goes right after it was accepted, if it does.
    pub crash_after_acceptance: Option<Crash>,
    /// Restarts when a part of the volumes was written again.
    pub restarts_of_written: Vec<Restart>,
}

/// The end of a run: stores that become empty, restarts in a row without a write between, and new volumes on the same stores.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Aftermath {
    /// Lanes whose volumes are all deleted.
    pub emptied: Vec<Lane>,
    /// Restarts after that.
    pub restarts: Vec<Restart>,
    /// Volumes that are made on the emptied vSSDs then, and written.
    pub refilled: Vec<VolumeNumber>,
    /// Restarts after that.
    pub restarts_of_refilled: Vec<Restart>,
}

/// One restart of several in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Restart {
    /// How long after what was before, the start of the server included.
    pub after_ns: u64,
    /// How the server goes.
    pub crash: Crash,
}

/// Commands without end, of some in larger numbers than of others; shares of what they compete for are due by weight.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Saturation {
    /// How long.
    pub span_ns: u64,
    /// Who asks.
    pub flows: Vec<SaturatedFlow>,
}

/// One who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SaturatedFlow {
    /// Whose host, or an application: that asks how many blocks are free.
    pub lane: Lane,
    /// On which of its I/O connections; absent: on all.
    pub connection: Option<u16>,
    /// Commands under way at once.
    pub depth: u32,
    /// IUs of each write; 0: it reads single IUs.
    #[serde(default)]
    pub write_ius: u32,
}

/// The device and its policy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SystemPlan {
    /// Name of the NAND profile.
    pub profile: String,
    /// Channels of the device; where nothing says so, those of the profile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channels: Option<u16>,
    /// Content on the medium.
    pub content: ContentKind,
    /// Whether the medium has memory that survives a power cut.
    pub protected_memory: bool,
    /// Whether the medium lies on a disk that has to be synced: completions of what it writes wait for that, and a power cut
    /// leaves any part of what no sync covers. Only with bytes as content and without protected memory.
    #[serde(default)]
    pub synced: bool,
    /// Drives that hide their flash, in place of NAND. Only with bytes as content, without protected memory, and with one shard.
    #[serde(
        default,
        alias = "drive",
        deserialize_with = "drive::one_or_several",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub drives: Vec<DrivePlan>,
    /// Drives that are given to the server at each of its starts, in this order, round and round; absent: all, as they are numbered. Those
    /// that are not named are missing at that start.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub orders: Vec<Vec<u16>>,
    /// Drives that come and leave while the server runs; absent: none does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comings: Option<ComingsPlan>,
    /// Whether acknowledged writes may wait in a cache that a power cut empties.
    pub volatile_cache: bool,
    /// Whether the network delivers segments whole and at once (`false`: cut, delayed and lost by the seed).
    pub smooth_network: bool,
    /// Whether hosts come over the network; `false`: through a door below the target.
    #[serde(default = "yes")]
    pub hosts: bool,
    /// Whether the shard's core is so slow that commands wait for it rather than for dies.
    #[serde(default)]
    pub slow_core: bool,
    /// Whether that core's time goes by the size of writes rather than by the number of commands.
    #[serde(default)]
    pub slow_writes: bool,
    /// Whether small writes all over the volumes follow the steps until the device was overwritten and a cleaner had to
    /// move something.
    #[serde(default)]
    pub until_cleaned: bool,
    /// Erases of a channel's content that make a swap of channels due, half as many of a die; 0: none. So few that data moves again
    /// and again.
    #[serde(default)]
    pub leveling_erases: u64,
    /// Shards of the server, in its first life and in those after it, from the front again when there are more. More than
    /// one only with hosts on a network and with protected memory.
    #[serde(default = "one_shard")]
    pub shards: Vec<u16>,
    /// The command at which a shard fails an inner check on purpose, in the first life of the server and in those after it; 0: none.
    /// Builds without debug assertions fail at none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub panics_at: Vec<u64>,
}

fn one_shard() -> Vec<u16> {
    vec![1]
}

fn yes() -> bool {
    true
}
fn one() -> u16 {
    1
}

/// A tenant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TenantPlan {
    /// How it is kept apart.
    pub isolation: Isolation,
    /// Its volumes.
    pub volumes: Vec<VolumePlan>,
    /// Commands its host keeps under way at once.
    pub depth: u32,
    /// I/O queues of its host, each a connection of its own.
    #[serde(default = "one")]
    pub io_queues: u16,
    /// Controllers that its host has at once, 1 or 2, each with so many I/O queues: it goes on over one when it loses the
    /// other.
    #[serde(default = "one")]
    pub paths: u16,
    /// Whether it does not exist when the run begins: an administrator makes it, with all that it owns.
    #[serde(default)]
    pub guest: bool,
    /// Bytes that its vSSD holds at least, at the lowest throughput level. Absent: those of the next level, which fill the
    /// tiny device between two tenants.
    #[serde(default)]
    pub capacity_bytes: Option<u64>,
    /// Weight of its vSSD; absent: 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<u32>,
    /// How long after an event its host asks for the next one; 0: at once.
    #[serde(default)]
    pub asks_for_events_after_ns: u64,
    /// The lane whose tenant has its vSSD, as a further one, with a host of its own. Absent: it is a tenant of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<Lane>,
    /// Reclaim unit handles of its vSSD; absent: it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placement: Option<PlacementPlan>,
    /// Drives that its vSSD has a part on each, in the order in which they take turns; none named: all, as the server likes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub drives: Vec<u16>,
}

impl TenantPlan {
    /// Weight of its vSSD.
    pub fn weight(&self) -> u32 {
        self.weight.unwrap_or(100)
    }
}

/// An application at erase blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApplicationPlan {
    /// How its vSSD is kept apart.
    pub isolation: Isolation,
    /// Bytes that its vSSD holds at least.
    pub capacity_bytes: u64,
    /// Operations it keeps under way at once.
    pub depth: u32,
    /// The lane whose tenant it belongs to; absent: it has a tenant of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<Lane>,
}

/// A volume.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VolumePlan {
    /// Number over the whole system.
    pub number: VolumeNumber,
    /// Size in IUs, which are also its logical blocks.
    pub iu_count: u64,
    /// Whether it does not exist when the run begins.
    #[serde(default)]
    pub later: bool,
}

/// Volumes with more IUs than this are thin: far larger than what is ever written to them.
const THIN_IUS: u64 = 4096;

impl VolumePlan {
    /// Whether it is larger than what is ever written to it.
    pub fn is_thin(&self) -> bool {
        self.iu_count > THIN_IUS
    }
    /// IUs that hold something at once, at most.
    pub fn used_ius(&self) -> u64 {
        if self.is_thin() { 512 } else { self.iu_count }
    }
}

/// One step of one lane.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// Who.
    pub lane: Lane,
    /// What.
    pub action: Action,
}

/// What a lane does next.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Action {
    /// Writes a fresh version.
    Write {
        /// Where.
        range: Range,
        /// Force unit access.
        fua: bool,
    },
    /// Reads and checks.
    Read {
        /// Where.
        range: Range,
    },
    /// Flushes the volume.
    Flush {
        /// Which.
        volume: VolumeNumber,
    },
    /// Deallocates.
    Deallocate {
        /// Where.
        range: Range,
    },
    /// Writes zeroes.
    WriteZeroes {
        /// Where.
        range: Range,
        /// Force unit access.
        fua: bool,
    },
    /// Compares with what must be there, where that is certain.
    Compare {
        /// Where.
        range: Range,
        /// Compares with something else, and expects the refusal.
        wrong: bool,
    },
    /// Copies what must be there, where that is certain, with nothing else of the lane under way.
    Copy {
        /// What is read.
        range: Range,
        /// First IU that is written.
        to: u64,
        /// Force unit access.
        fua: bool,
    },
    /// Makes reads fail until it is written again.
    WriteUncorrectable {
        /// Where.
        range: Range,
    },
    /// Checks readability.
    Verify {
        /// Where.
        range: Range,
    },
    /// Issues nothing until everything before is answered.
    Drain,
    /// Issues nothing for a while.
    Wait {
        /// How long.
        span_ns: u64,
    },
    /// Drops the connection with whatever is under way, and connects again.
    Reconnect,
    /// Resets its controller (CC.EN to 0 and 1) with whatever is under way, and goes on.
    Reset,
    /// When everything before is answered, shuts its controller down (CC.SHN), hangs up, and connects again.
    ShutDown,
    /// Asks for some of what is under way to be aborted.
    Abort,
    /// Changes what exists; a step of [`Lane::ADMINISTRATOR`], as is [`Action::Wait`].
    Change(Change),
    /// Asks of reclaim unit handles, or for fresh reclaim units.
    Placement(PlacementStep),
    /// Uses erase blocks; a step of an application, as are [`Action::Wait`] and [`Action::Drain`].
    Blocks(BlockStep),
}

/// What an application at erase blocks does next. Which block is meant is said by its place among those that are fit for it
/// then, counted round; a step that none is fit for is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BlockStep {
    /// Takes an erase block.
    Allocate {
        /// Of which unit, counted round.
        unit: u16,
    },
    /// Appends to a block that has room and takes appends.
    Append {
        /// Which.
        nth: u16,
        /// Program units, as many as fit.
        units: u8,
    },
    /// Reads and checks.
    Read {
        /// Which block.
        nth: u16,
        /// First IU, counted round.
        first: u16,
        /// IUs, as many as there are from there on.
        count: u16,
    },
    /// Gives a block back that no append is under way to.
    Free {
        /// Which.
        nth: u16,
    },
    /// Waits until what was allocated and freed is durable.
    Sync,
    /// Dies with whatever is under way, and comes back.
    Die {
        /// After this time.
        pause_ns: u64,
        /// Names all blocks but every so-many-th then; 0: all.
        drops: u8,
    },
}

impl Action {
    /// The volume that it is about.
    pub fn volume(&self) -> Option<VolumeNumber> {
        match self {
            Action::Write { range, .. }
            | Action::Read { range }
            | Action::Deallocate { range }
            | Action::WriteZeroes { range, .. }
            | Action::Compare { range, .. }
            | Action::Copy { range, .. }
            | Action::WriteUncorrectable { range }
            | Action::Verify { range } => Some(range.volume),
            Action::Flush { volume } => Some(*volume),
            Action::Placement(step) => Some(step.volume()),
            Action::Drain | Action::Wait { .. } | Action::Change(_) | Action::Blocks(_) => None,
            Action::Reconnect | Action::Reset | Action::ShutDown | Action::Abort => None,
        }
    }
}

/// IUs of one volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Range {
    /// Which volume.
    pub volume: VolumeNumber,
    /// First IU.
    pub first: u64,
    /// Number of IUs, at least 1.
    pub count: u32,
}

impl Range {
    /// The IUs.
    pub fn ius(self) -> std::ops::Range<u64> {
        self.first..self.first + u64::from(self.count)
    }
}

/// Something that goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlannedFault {
    /// When.
    pub when: When,
    /// What.
    pub what: FaultKind,
}

/// When a fault strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum When {
    /// When this many steps were issued over all lanes.
    Step(u64),
    /// When the medium begins its n-th operation since the run began (power cuts only).
    MediaOperation(u64),
    /// At this virtual time in nanoseconds.
    Time(u64),
    /// When the medium began so many operations since the administrator's n-th request (power cuts only).
    Change {
        /// Which request, from 0.
        nth: u64,
        /// Operations after it.
        operations: u64,
    },
    /// So long after the administrator's n-th request.
    After {
        /// Which request, from 0.
        nth: u64,
        /// How long after it.
        span_ns: u64,
    },
    /// So long after the fault before it in the list, once the server starts again if that was its end.
    Following {
        /// How long.
        span_ns: u64,
    },
    /// When the n-th flush was answered, at once.
    Flush {
        /// Which, from 0.
        nth: u64,
    },
}

/// Kinds of faults. Those of the medium by appointment name a die and count its operations of the kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FaultKind {
    /// Power goes: caches lost, programs torn. The system restarts.
    PowerCut,
    /// The process dies with the medium intact. The system restarts.
    ProcessDeath,
    /// The lane's connection breaks, on one path if its host has two; its host connects again.
    ConnectionLoss {
        /// Whose.
        lane: Lane,
    },
    /// The lane's host neither reads nor writes its connection for a while.
    SlowHost {
        /// Whose.
        lane: Lane,
        /// How long.
        span_ns: u64,
    },
    /// Nothing of the lane's connections arrives for a while: lost on the way, and sent again.
    Silence {
        /// Whose.
        lane: Lane,
        /// How long.
        span_ns: u64,
    },
    /// Nothing gets through any more on the lane's connections, and neither end is told.
    HalfOpen {
        /// Whose.
        lane: Lane,
    },
    /// The n-th program of a die fails.
    ProgramFailure {
        /// Channel.
        channel: u16,
        /// Die.
        die: u16,
        /// Which program, from 0.
        nth: u64,
    },
    /// The n-th erase of a die fails.
    EraseFailure {
        /// Channel.
        channel: u16,
        /// Die.
        die: u16,
        /// Which erase, from 0.
        nth: u64,
    },
    /// The n-th read of a die is uncorrectable.
    ReadFailure {
        /// Channel.
        channel: u16,
        /// Die.
        die: u16,
        /// Which read, from 0.
        nth: u64,
    },
    /// The n-th read of a die returns one wrong bit as if it were right.
    SilentFlip {
        /// Channel.
        channel: u16,
        /// Die.
        die: u16,
        /// Which read, from 0.
        nth: u64,
        /// Which bit.
        bit: u32,
    },
    /// The file system under the device is full for a while: erase blocks are opened only where they have room already.
    NoRoom {
        /// How long.
        span_ns: u64,
    },
    /// A die does not answer any more, from the time of the fault on.
    DieOffline {
        /// Channel.
        channel: u16,
        /// Die.
        die: u16,
    },
    /// Something of a drive.
    Drive(DriveHarm),
}

impl FaultKind {
    /// Whether data without redundancy may be lost to it, so that reads may fail (but never lie).
    pub fn loses_data(self) -> bool {
        match self {
            FaultKind::Drive(harm) => harm.fault.loses_data(),
            _ => matches!(
                self,
                FaultKind::ReadFailure { .. } | FaultKind::SilentFlip { .. } | FaultKind::DieOffline { .. }
            ),
        }
    }
}

impl Plan {
    /// The lane by which a lane's tenant is named.
    pub fn tenant_of(&self, lane: Lane) -> Lane {
        let of = match lane.application() {
            Some(index) => self.applications.get(index).and_then(|application| application.of),
            None => self.tenants.get(usize::from(lane.0)).and_then(|tenant| tenant.of),
        };
        of.unwrap_or(lane)
    }
    /// The lane that owns a volume.
    ///
    /// # Panics
    /// If no tenant has it: plans are consistent.
    pub fn owner(&self, volume: VolumeNumber) -> Lane {
        let position = self.tenants.iter().position(|t| t.volumes.iter().any(|v| v.number == volume));
        Lane(position.expect("every volume has an owner") as u8)
    }
    /// A volume.
    ///
    /// # Panics
    /// If no tenant has it: plans are consistent.
    pub fn volume(&self, number: VolumeNumber) -> VolumePlan {
        self.volumes().find(|volume| volume.number == number).expect("every volume has an owner")
    }
    /// All volumes.
    pub fn volumes(&self) -> impl Iterator<Item = VolumePlan> + '_ {
        self.tenants.iter().flat_map(|tenant| tenant.volumes.iter().copied())
    }
    /// Whether a program or an erase fails by appointment: a block takes no more appends then, or a unit gets smaller.
    pub fn wears_blocks(&self) -> bool {
        let wears = |what: FaultKind| {
            matches!(
                what,
                FaultKind::ProgramFailure { .. }
                    | FaultKind::EraseFailure { .. }
                    | FaultKind::Drive(DriveHarm {
                        fault: DriveFault::Unwritable { .. }
                            | DriveFault::FlushFails
                            | DriveFault::Goes { .. },
                        ..
                    })
            )
        };
        self.faults.iter().any(|fault| wears(fault.what))
    }
    /// Whether the drive lies, so that after a restart nothing is certain but that what is read was once written there, and whether
    /// there is a server at all.
    pub fn drive_lies(&self) -> bool {
        let lies = |what: FaultKind| matches!(what, FaultKind::Drive(harm) if matches!(harm.fault, DriveFault::Lies(_)));
        self.faults.iter().any(|fault| lies(fault.what))
    }
    /// Whether catalog and block states may be lost, so that the system says that it cannot open.
    pub fn loses_system_data(&self) -> bool {
        self.drive_lies()
    }
    /// Whether any fault of the plan may lose data on the medium.
    pub fn may_lose_data(&self) -> bool {
        self.faults.iter().any(|fault| fault.what.loses_data())
    }
}
