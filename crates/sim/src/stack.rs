//! The whole server as a system: hosts over a faulty network (or commands through a door below the target), one or
//! several shards, and an emulated device with faults.

mod again;
mod on_drives;
mod roster;
mod standing;

use crate::administration::{
    Change, OVER_PROVISIONING_PERMILLE, application_spec, set_up, tenant_name, volume_name, vssd_spec,
};
use crate::attachments::Attachments;
use crate::carrier::Carrier;
use crate::direct_door::DirectDoor;
use crate::door::Door;
use crate::erasure::{Erase, Erasure};
use crate::existing::{Existing, Subsystem, Volume};
use crate::failures::Failures;
use crate::hosts::Hosts;
use crate::oracle::Crash;
use crate::plan::{ContentKind, DriveHarm, FaultKind, Lane, Plan, QosPlan, Siege};
use crate::shards::{Carried, Shards, arrival};
use crate::system::{
    Accounting, HostAnswer, HostCommand, HostToken, PlacedUnit, PlacementStatistics, System, Wear,
};
use crate::tag::{Tag, VolumeNumber};
use diecut_blockspace::LogicalBlock;
use diecut_devices::{Backing, Device, Fault, FaultPlan, FaultyDie, OperationKind, Options, Profile};
use diecut_media::{Divide, Media};
use diecut_nvmf::{QueueLimits, TargetConfig};
use diecut_shard::control::*;
use diecut_shard::drive::{Action, BlockAction, BlockEvent, Drive, Event};
use diecut_shard::notice::Notice;
use diecut_shard::{
    AdmissionConfig, AnchorPace, CostModel, DeviceConfig, DeviceIndex, DieWear, PlantedPanic, PoolConfig,
    Shard, ShardConfig, SwapRule,
};
use diecut_units::{BlockIndex, ContentMode, Geometry, Span, Time, checksum_append, mark};
use diecut_vssd::{Pool, VssdId};
use roster::Roster;
use standing::note_standing;
use std::collections::BTreeSet;

/// Erase blocks of each plane: so few that every plan makes the cleaner work.
const BLOCKS_PER_PLANE: u32 = 48;
const SOFT_PLANES_PER_DIE: u16 = 2;
const STAGING_BYTES_PER_VSSD: usize = 512 << 10;
/// What a server under attack has: see [`make_tight`].
const TRANSFER_BYTES_BESIEGED: u32 = 256 << 10;
const MEMORY_BYTES_BESIEGED: usize = 16 << 20;
pub(crate) const CONTROLLERS_BESIEGED: usize = 32;
/// Where the table of block states has those of the first block, and within a slot the owner and the state: the one of blocks that
/// are worn out, besides 0 for free ones.
const BLOCK_STATES_AT: usize = 64;
const BLOCK_SLOT_BYTES: usize = 32;
const BLOCK_OWNER_AT: usize = 8;
const BLOCK_STATE_AT: usize = 15;
const BLOCK_RETIRED: u8 = 3;
/// Turns of the shard without time passing.
const TURNS_MAX: u32 = 100_000;
/// Pauses of a set-up that waits for something to end, and their length.
const ASKED_AGAIN_MAX: u32 = 1000;
const PAUSE: Span = Span::from_millis(50);

/// The administrator's request of the plan.
const REQUEST: ControlToken = ControlToken(1);
/// The question what exists, after a request and after a start.
const STATUS: ControlToken = ControlToken(2);
/// The request of a second administrator, beside each of the first's.
const ASIDE: ControlToken = ControlToken(3);
/// The tenant that the second administrator makes and deletes in turn.
const ASIDE_TENANT: &str = "aside";
/// The second administrator is answered in this time, whatever the first one waits for.
const ASIDE_TIME_MAX: Span = Span::from_secs(60);

/// See the module.
pub struct Stack {
    shards: Option<Shards>,
    door: Box<dyn Door>,
    attachments: Attachments,
    plan: Plan,
    mode: ContentMode,
    now: Time,
    /// Starts of the server so far.
    lives: usize,
    /// Operations of parts of the medium that were given back with their shards.
    operations_before: u64,
    /// With several shards, whose parts of the medium count their operations apart: the operation that the power goes at.
    cut_at: Option<u64>,
    chip_before: (u64, u64),
    /// IUs that cleaners programmed before the last start.
    cleaned_before_ius: u64,
    /// What exchanges did before the last start.
    exchanged_before: Exchanged,
    /// The administrator's request came; answers to earlier ones are of a server that is gone.
    control_asked: Option<ControlRequest>,
    /// Its answer, kept until the system has told what exists after it.
    control_held: Option<ControlResponse>,
    control_answer: Option<ControlResponse>,
    status_asked: bool,
    told: Option<Existing>,
    /// Whether the second administrator's tenant exists, if that is known, and since when a request for it is under way.
    aside_exists: Option<bool>,
    aside_since: Option<Time>,
    /// vSSDs of which the system said, since its start, that they take no writes.
    told_read_only: BTreeSet<String>,
    /// Those of them that lack room, as far as that is known from the same.
    told_no_room: BTreeSet<String>,
    /// None was when the status was asked for.
    is_aside_quiet: bool,
    /// Servers have little memory for connections, and few controllers.
    is_besieged: bool,
    /// Numbers and staging slots of vSSDs that lose their stores at the next start.
    to_lose: Vec<(u32, Option<u32>)>,
    /// Whose volumes are larger than their vSSD, because of blocks that are bad from the start.
    tight: Vec<Lane>,
    /// Shards that failed.
    failures: Failures,
    /// Who has drives come and leave, and which of them the server is given.
    roster: Roster,
    /// Why it does not open, on a drive that lost or lied about what it needs.
    told_loss: Option<String>,
}

/// What exchanges for even wear did.
#[derive(Clone, Copy, Default)]
struct Exchanged {
    moved_blocks: u64,
    finished: u64,
    intended_erases: u64,
    intended_inside_erases: u64,
}

/// The emulated device of a plan, with the faults that were agreed on.
fn emulated(plan: &Plan) -> Result<Device, String> {
    let mut profile = Profile::named(&plan.system.profile).map_err(|error| error.to_string())?;
    profile.geometry.blocks_per_plane = BLOCKS_PER_PLANE;
    profile.geometry.channels = plan.system.channels.unwrap_or(profile.geometry.channels);
    profile.protected_memory_bytes = if plan.system.protected_memory { 4 << 20 } else { 0 };
    let backing = match plan.system.content {
        _ if plan.system.synced => Backing::SyncedModel,
        ContentKind::Bytes => Backing::Memory,
        ContentKind::Tags => Backing::Tags,
    };
    let faults = FaultPlan { faults: media_faults(plan), ..FaultPlan::default() };
    let options = Options { backing, seed: plan.seed, faults, ..Options::default() };
    let mut device = Device::create(&profile, options).map_err(|error| error.to_string())?;
    if plan.erasure.is_some() {
        device.emulated_mut().keep_discarded();
    }
    Ok(device)
}

/// An emulated device, which is alone in its server.
fn alone(device: Device, plan: &Plan) -> (Device, DeviceConfig) {
    let own = ShardConfig { volatile_cache: plan.system.volatile_cache, ..ShardConfig::default() }.device();
    (device, own)
}

/// Settings of the pool on a device, as the plan wants them.
fn adapt_pool(pool: &mut PoolConfig, plan: &Plan, geometry: &Geometry) {
    pool.soft_planes_per_die = SOFT_PLANES_PER_DIE;
    pool.levels = PoolConfig::levels_of(geometry, SOFT_PLANES_PER_DIE);
    pool.wear.channel_threshold_erases = plan.system.leveling_erases;
    pool.wear.die_threshold_erases = plan.system.leveling_erases.div_ceil(2);
    pool.wear.follow_age = false;
    if plan.seed.is_multiple_of(2) {
        pool.wear.rate_bytes_per_second = 0;
    }
    if plan.seed.is_multiple_of(7) {
        pool.wear.rule = SwapRule::Literal;
    }
}

/// Settings of each of so many shards over devices, whose own are adapted, too. So many more are missing.
fn config(plan: &Plan, devices: &mut [(Device, DeviceConfig)], missing: u16, shards: u16) -> ShardConfig {
    for (device, own) in devices.iter_mut() {
        adapt_pool(&mut own.pool, plan, device.geometry());
    }
    // So tight that hosts with a few large commands meet the limits.
    let queue = QueueLimits {
        h2c_data_bytes_max: 16 << 10,
        output_bytes_max: 1 << 20,
        gather_bytes_max: 1 << 20,
        ..QueueLimits::default()
    };
    let target = TargetConfig { queue, ..TargetConfig::default() };
    let device_shaper = plan.qos.as_ref().and_then(|qos| qos.device_shaper(shards));
    ShardConfig {
        target,
        pool: devices.first().map(|(_, own)| own.pool.clone()).unwrap_or_default(),
        missing_devices: missing,
        admission: AdmissionConfig { device_shaper, ..AdmissionConfig::default() },
        staging_bytes_per_vssd: STAGING_BYTES_PER_VSSD,
        volatile_cache: plan.system.volatile_cache,
        anchor_pace: pace(plan),
        cost_model: plan.system.slow_core.then(|| slow_core(plan.system.slow_writes)),
        ..ShardConfig::default()
    }
}

/// Where shards of a life of the server fail on purpose.
fn planted(plan: &Plan, life: usize) -> Option<PlantedPanic> {
    let at = plan.system.panics_at.get(life).copied().filter(|at| *at > 0);
    at.map(PlantedPanic::Command)
}

/// So little of everything that a few hostile hosts could take all of it.
fn make_tight(target: &mut TargetConfig) {
    target.queue.transfer_bytes_max = TRANSFER_BYTES_BESIEGED;
    target.memory.limit_bytes = MEMORY_BYTES_BESIEGED;
    (target.controllers.associations_max, target.controllers.associations_kept) = (CONTROLLERS_BESIEGED, 2);
}

/// What a command takes of a core that is slow with writes, and half of what each block of it takes.
pub(crate) const SLOW_WRITE_COST_NS: u64 = 150_000;

/// A core that takes longer for a command than a die for a page, or longer for a block written than a die for its part of a
/// program: then twice as long for each as for a command, which is what turns at the core are counted by.
fn slow_core(slow_writes: bool) -> CostModel {
    let plain = CostModel { command_ns: 60_000, ..CostModel::default() };
    if !slow_writes {
        return plain;
    }
    CostModel { command_ns: SLOW_WRITE_COST_NS, write_block_ns: 2 * SLOW_WRITE_COST_NS, ..plain }
}

/// Every third plan runs with the pace of a real store; in the others anchors are frequent, to meet cuts and faults.
fn pace(plan: &Plan) -> AnchorPace {
    match plan.seed % 3 {
        0 => AnchorPace::default(),
        _ => AnchorPace { ius_per_leaf: 10 + plan.seed % 30, ius_per_anchor_iu: 15 + plan.seed % 50 },
    }
}

fn media_faults(plan: &Plan) -> Vec<Fault> {
    let fail = |channel, die, kind, nth| Some(Fault::Fail { die: FaultyDie { channel, die }, kind, nth });
    plan.faults
        .iter()
        .filter_map(|fault| match fault.what {
            FaultKind::ProgramFailure { channel, die, nth } => {
                fail(channel, die, OperationKind::Program, nth)
            }
            FaultKind::EraseFailure { channel, die, nth } => fail(channel, die, OperationKind::Erase, nth),
            FaultKind::ReadFailure { channel, die, nth } => fail(channel, die, OperationKind::Read, nth),
            FaultKind::SilentFlip { channel, die, nth, bit } => {
                Some(Fault::SilentFlip { die: FaultyDie { channel, die }, nth, bit })
            }
            _ => None,
        })
        .collect()
}

/// Protected memory loses the states of all erase blocks of a vSSD, and what was staged for it.
fn forget_store(device: &Device, pool: &PoolConfig, number: u32, staging_slot: Option<u32>) {
    let memory = device.protected_memory().expect("plans lose records of protected memory only");
    let blocks = device.geometry().erase_blocks() as usize;
    // See the table of block states (`diecut_vssd`): two slots of each block, then a word of each for its pages.
    let pages = BLOCK_STATES_AT + blocks * 2 * BLOCK_SLOT_BYTES;
    for block in 0..blocks {
        let at = BLOCK_STATES_AT + block * 2 * BLOCK_SLOT_BYTES;
        let mut slots = memory.region(at..at + 2 * BLOCK_SLOT_BYTES);
        let word =
            |slot: &[u8], at: usize| u32::from_le_bytes(slot[at..at + 4].try_into().expect("four bytes"));
        let newest = slots.chunks(BLOCK_SLOT_BYTES).max_by_key(|slot| word(slot, 0)).expect("there are two");
        let is_held = ![0, BLOCK_RETIRED].contains(&(newest[BLOCK_STATE_AT] & 0x7f));
        if is_held && word(newest, BLOCK_OWNER_AT) == number {
            slots.fill(0);
            memory.region(pages + 8 * block..pages + 8 * (block + 1)).fill(0);
        }
    }
    if let Some(slot) = staging_slot {
        let at =
            Pool::block_states_size_bytes(device.geometry(), pool) + slot as usize * STAGING_BYTES_PER_VSSD;
        memory.region(at..at + STAGING_BYTES_PER_VSSD).fill(0);
    }
}

/// What a status tells of what exists.
fn existing(status: &Status) -> Existing {
    let volume = |one: &VolumeStatus| {
        let identity = one.spec.uuid.map(|uuid| uuid.into_bytes()).zip(one.spec.nguid.map(|nguid| nguid.0));
        let volume = Volume { vssd: one.spec.vssd.clone(), size_bytes: one.spec.size.bytes(), identity };
        (one.spec.name.clone(), volume)
    };
    let subsystem = |one: &SubsystemStatus| {
        let shown = Subsystem {
            tenant: one.spec.tenant.clone(),
            hosts: one.spec.allowed_hosts.iter().cloned().collect(),
            namespaces: one.spec.namespaces.iter().map(|one| (one.nsid, one.volume.clone())).collect(),
        };
        (one.spec.nqn.clone(), shown)
    };
    Existing {
        tenants: status.tenants.iter().map(|tenant| tenant.name.clone()).collect(),
        vssds: status.vssds.iter().map(|one| (one.spec.name.clone(), one.spec.tenant.clone())).collect(),
        volumes: status.volumes.iter().map(volume).collect(),
        subsystems: status.subsystems.iter().map(subsystem).collect(),
        qos_sets: status.qos_sets.iter().map(|one| (one.set.name.clone(), one.set.clone())).collect(),
    }
}

impl Stack {
    /// A fresh device with the plan's tenants and volumes on it.
    ///
    /// # Errors
    /// What could not be set up.
    pub fn new(plan: &Plan) -> Result<Stack, String> {
        let (mut devices, missing, carrier) = match plan.system.drives.is_empty() {
            false => on_drives::begin_life(on_drives::formatted(plan)?, &plan.drives_at(0)),
            true => (vec![alone(emulated(plan)?, plan)], 0, Carrier::file(plan.seed)),
        };
        let mode = devices[0].0.capabilities().content_mode;
        let mut configuration = config(plan, &mut devices, missing, plan.system.shards[0]);
        configuration.planted_panic = planted(plan, 0);
        let door: Box<dyn Door> =
            if plan.system.hosts { Box::new(Hosts::new(plan)) } else { Box::new(DirectDoor::default()) };
        let count = plan.system.shards[0];
        let shards = Shards::with(devices, carrier, &configuration, count, plan.seed, Time::ZERO);
        // Of what `diecut device format` wrote the server knows nothing.
        let chip_before = shards.chips();
        let mut stack = Stack {
            shards: Some(shards),
            door,
            attachments: Attachments::default(),
            plan: plan.clone(),
            mode,
            now: Time::ZERO,
            lives: 1,
            operations_before: 0,
            cut_at: None,
            chip_before,
            cleaned_before_ius: 0,
            exchanged_before: Exchanged::default(),
            control_asked: None,
            control_held: None,
            control_answer: None,
            status_asked: false,
            told: None,
            aside_exists: Some(false),
            aside_since: None,
            is_aside_quiet: true,
            told_read_only: BTreeSet::new(),
            told_no_room: BTreeSet::new(),
            to_lose: Vec::new(),
            is_besieged: false,
            tight: Vec::new(),
            failures: Failures::default(),
            roster: Roster::of(plan),
            told_loss: None,
        };
        for change in set_up(plan) {
            match change {
                Change::CreateVssd(lane) => stack.create_vssd(lane)?,
                other => stack.done(other.request(plan))?,
            }
        }
        for (index, application) in plan.applications.iter().enumerate() {
            let lane = Lane::of_application(index);
            // If it is another's, that one exists.
            let owner = TenantSpec::new(&tenant_name(plan.tenant_of(lane)));
            stack.done(ControlRequest::CreateTenant(owner))?;
            stack.done(ControlRequest::CreateVssd(application_spec(plan, lane, application)))?;
        }
        for set in plan.qos.iter().flat_map(QosPlan::specs) {
            stack.done(ControlRequest::CreateQosSet(set))?;
        }
        match stack.ask(ControlRequest::Status)? {
            ControlResponse::Status(status) => stack.told = Some(existing(&status)),
            other => return Err(format!("status: {other:?}")),
        }
        Ok(stack)
    }

    /// Makes a vSSD that its tenant's volumes fit on: where many erase blocks are bad from the start, with less
    /// over-provisioning.
    fn create_vssd(&mut self, lane: Lane) -> Result<(), String> {
        let volumes = &self.plan.tenants[usize::from(lane.0)].volumes;
        let wanted_ius: u64 = volumes.iter().map(|volume| volume.used_ius()).sum();
        let mut over_provisioning_permille = OVER_PROVISIONING_PERMILLE;
        loop {
            let spec = vssd_spec(&self.plan, lane, over_provisioning_permille);
            let name = spec.name.clone();
            self.done(ControlRequest::CreateVssd(spec))?;
            if self.shards().lead().state().vssds[&name].exported_ius >= wanted_ius {
                return Ok(());
            }
            if over_provisioning_permille <= 40 {
                self.tight.push(lane);
                return Ok(());
            }
            over_provisioning_permille -= 40;
            self.done(ControlRequest::DeleteVssd(name))?;
        }
    }

    fn shards(&self) -> &Shards {
        self.shards.as_ref().expect("shards stand except while they restart")
    }
    fn shards_mut(&mut self) -> &mut Shards {
        self.shards.as_mut().expect("shards stand except while they restart")
    }

    /// Has something done; what cannot be before an exchange ends is asked for again then.
    fn done(&mut self, request: ControlRequest) -> Result<(), String> {
        for _ in 0..ASKED_AGAIN_MAX {
            match self.ask(request.clone())? {
                ControlResponse::Done | ControlResponse::Unchanged => return Ok(()),
                ControlResponse::Refused(error) if error.kind == ControlErrorKind::Busy => self.pass_time(),
                other => return Err(format!("{request:?}: {other:?}")),
            }
        }
        Err(format!("{request:?}: what must end before never did"))
    }

    /// Lets the shards go on without hosts for a while.
    fn pass_time(&mut self) {
        let until = self.now + PAUSE;
        let mut actions = Vec::new();
        while self.now < until {
            let now = self.now;
            let shards = self.shards_mut();
            while let Some((from, to, carried)) = shards.take_arrived(now) {
                shards.handle(to, arrival(from, carried), now, &mut actions);
            }
            for at in shards.order() {
                shards.work(at, now, &mut actions);
            }
            actions.retain(|action| !matches!(action, Action::Notice(_)));
            assert!(actions.is_empty(), "nobody asked anything");
            let next = shards.deadline().min(shards.next_arrival());
            self.now = next.clamp(now, until);
        }
    }

    /// Asks and waits; only before hosts come.
    fn ask(&mut self, request: ControlRequest) -> Result<ControlResponse, String> {
        let mut actions = Vec::new();
        let mut now = self.now;
        let Stack { shards, told_read_only, told_no_room, .. } = self;
        let shards = shards.as_mut().expect("shards stand except while they restart");
        let event = Event::Control { token: REQUEST, request: Box::new(request) };
        shards.handle(0, event, now, &mut actions);
        for _ in 0..TURNS_MAX {
            while let Some((from, to, carried)) = shards.take_arrived(now) {
                shards.handle(to, arrival(from, carried), now, &mut actions);
            }
            for at in shards.order() {
                shards.work(at, now, &mut actions);
            }
            let mut answer = None;
            for action in actions.drain(..) {
                match action {
                    Action::Answer { response, .. } => answer = Some(*response),
                    Action::Notice(notice) => {
                        note_standing(&notice, told_read_only, told_no_room);
                    }
                    _ => {}
                }
            }
            if let Some(answer) = answer {
                self.now = now;
                return Ok(answer);
            }
            now = now.max(shards.deadline().min(shards.next_arrival()));
        }
        Err("an administrator's request was never answered".to_owned())
    }

    /// Takes what a shard wants of its driver.
    fn act(&mut self, at: u16, actions: &mut Vec<Action>) {
        let now = self.now;
        let shards = self.shards.as_mut().expect("shards stand except while they restart");
        self.attachments.act(at, actions, shards, now);
        self.door.act(at, actions, shards, now);
        for action in actions.drain(..) {
            let (token, response) = match action {
                Action::Answer { token, response } => (token, response),
                Action::Notice(notice) => {
                    note_standing(&notice, &mut self.told_read_only, &mut self.told_no_room);
                    match *notice {
                        Notice::Opened { was_unclean: true, .. } => mark!("stack: told of an unclean end"),
                        Notice::ReadOnly { .. } | Notice::NoRoom { .. } => {
                            mark!("stack: told of a read-only vSSD");
                        }
                        Notice::BlocksRetired { .. } => mark!("stack: told of retired blocks"),
                        _ => {}
                    }
                    continue;
                }
                Action::BeginAnew => {
                    self.failures.all_begin_anew();
                    continue;
                }
                _ => continue,
            };
            match (token, *response) {
                (STATUS, ControlResponse::Status(status)) => {
                    for vssd in &status.vssds {
                        let (name, reason) = (&vssd.spec.name, vssd.health.read_only_reason.as_deref());
                        let is_right =
                            match on_drives::missing_of(&self.plan, &self.roster.given, name).as_slice() {
                                [] => reason.is_none() || self.told_read_only.contains(name),
                                missing => on_drives::says_what_is_away(missing, reason),
                            };
                        assert!(is_right, "nobody was told that {name} takes no writes: {reason:?}");
                    }
                    let mut told = existing(&status);
                    let aside_exists = told.tenants.remove(ASIDE_TENANT);
                    if self.is_aside_quiet {
                        let known = self.aside_exists.is_none_or(|exists| exists == aside_exists);
                        assert!(known, "the second administrator's tenant came or went by itself");
                        self.aside_exists = Some(aside_exists);
                    }
                    (self.told, self.status_asked) = (Some(told), false);
                    self.control_answer = self.control_held.take();
                    self.door.nudge(now);
                }
                (STATUS, other) => panic!("status: {other:?}"),
                (ASIDE, ControlResponse::Done | ControlResponse::Unchanged) => {
                    self.aside_since = None;
                    self.aside_exists = self.aside_exists.map(|exists| !exists);
                }
                (roster::DEVICES, response) => self.roster.hear(response),
                (ASIDE, other) => panic!("the second administrator is answered with {other:?}"),
                (_, response) => (self.control_held, self.told) = (Some(response), None),
            }
        }
    }

    /// The second administrator asks for something of his own at the same time; nothing of the first's keeps it up.
    fn ask_aside(&mut self) {
        if let Some(since) = self.aside_since {
            assert!(self.now.since(since) < ASIDE_TIME_MAX, "the second administrator is not answered");
            return;
        }
        let Some(exists) = self.aside_exists else { return };
        self.aside_since = Some(self.now);
        let request = if exists {
            ControlRequest::DeleteTenant(ASIDE_TENANT.to_owned())
        } else {
            ControlRequest::CreateTenant(TenantSpec::new(ASIDE_TENANT))
        };
        self.tell(0, Event::Control { token: ASIDE, request: Box::new(request) });
    }

    fn tell(&mut self, at: u16, event: Event) {
        let now = self.now;
        let mut actions = Vec::new();
        self.shards_mut().handle(at, event, now, &mut actions);
        self.act(at, &mut actions);
    }

    /// Each shard hears that a device does not answer, or does again.
    fn tell_all_away(&mut self, device: DeviceIndex, is_away: bool) {
        (0..self.shards().count()).for_each(|at| self.tell(at, Event::DeviceAway(device, is_away)));
    }

    /// Asks for what exists where that is not known and nothing changes it.
    fn ask_status(&mut self) {
        let is_due = self.told.is_none() && !self.status_asked && self.shards().lead().is_ready();
        if is_due {
            self.status_asked = true;
            self.is_aside_quiet = self.aside_since.is_none();
            self.tell(0, Event::Control { token: STATUS, request: Box::new(ControlRequest::Status) });
        }
    }

    /// What has arrived from other shards. Whether there was anything.
    fn deliver(&mut self) -> bool {
        let now = self.now;
        let mut moved = false;
        while let Some((from, to, carried)) = self.shards_mut().take_arrived(now) {
            if let Carried::Adopted(connection, _) = &carried {
                self.door.adopted(*connection, to);
            }
            if let Carried::Attaching(event) = &carried {
                self.attachments.arrived(event, to);
            }
            self.tell(to, arrival(from, carried));
            moved = true;
        }
        moved
    }

    /// The power of all parts goes when all of them together began so many operations.
    fn cut_if_due(&mut self) {
        if self.cut_at.is_some_and(|nth| self.media_operations() > nth) {
            self.cut_at = None;
            let now = self.now;
            self.shards_mut().power_cut(now);
        }
    }

    /// What exchanges did so far.
    fn exchanged(&self) -> Exchanged {
        self.shards().all().fold(self.exchanged_before, |before, shard| {
            let (status, work) = (shard.pool().migration_status(), shard.pool().copy_work());
            Exchanged {
                moved_blocks: before.moved_blocks + status.moved_blocks,
                finished: before.finished + status.finished,
                intended_erases: before.intended_erases + work.intended_erases,
                intended_inside_erases: before.intended_inside_erases + work.intended_inside_erases,
            }
        })
    }

    /// Erases of each die, by cause.
    fn die_wear(&self) -> Vec<DieWear> {
        let geometry = *self.shards().lead().media().geometry();
        let owner = |channel: u16| self.shards().all().find(|shard| shard.media().owns(channel));
        geometry
            .all_dies()
            .zip(0..)
            .map(|(die, number)| {
                owner(die.channel.0).map_or(DieWear::default(), |shard| shard.pool().die_wear(number))
            })
            .collect()
    }

    fn sum(&self, of: fn(&VssdStatus) -> u64) -> u64 {
        self.shards().all().map(|shard| shard.status().vssds.iter().map(of).sum::<u64>()).sum()
    }
}

impl System for Stack {
    fn content_mode(&self) -> ContentMode {
        self.mode
    }
    fn transfer_max_ius(&self) -> u32 {
        if self.is_besieged { TRANSFER_BYTES_BESIEGED / 4096 } else { 256 }
    }
    fn is_connected(&self, lane: Lane) -> bool {
        self.door.is_connected(lane)
    }
    fn submit(&mut self, lane: Lane, token: HostToken, command: HostCommand, now: Time) {
        let shards = self.shards.as_mut().expect("shards stand except while they restart");
        self.door.submit(lane, token, command, self.mode, shards, now);
    }
    fn advance(&mut self, now: Time, answers: &mut Vec<HostAnswer>) {
        self.now = self.now.max(now);
        let now = self.now;
        if let Some(request) = self.control_asked.take() {
            self.tell(0, Event::Control { token: REQUEST, request: Box::new(request) });
            self.ask_aside();
        }
        for (at, event) in self.attachments.take_due() {
            self.tell(at, Event::Blocks(event));
        }
        let shards = self.shards.as_mut().expect("shards stand except while they restart");
        for (at, event) in self.roster.go_on(&self.plan, shards, now) {
            self.tell(at, event);
        }
        let back = self.shards_mut().drives_mut().map(|drives| drives.take_back(now)).unwrap_or_default();
        for device in back {
            self.tell_all_away(device, false);
        }
        let mut actions = Vec::new();
        let mut turns = 0;
        loop {
            turns += 1;
            assert!(turns < TURNS_MAX, "the shards go round in circles\n{}", self.describe());
            let shards = self.shards.as_mut().expect("shards stand except while they restart");
            let mut moved = self.door.exchange(shards, now);
            moved |= self.deliver();
            for at in self.shards_mut().order() {
                if !self.works(at, &mut actions) {
                    return;
                }
                self.act(at, &mut actions);
                if self.failures.is_over() {
                    return;
                }
                self.cut_if_due();
                if self.power_is_lost() {
                    break;
                }
            }
            self.ask_status();
            if (self.shards().deadline() > now && !moved) || self.power_is_lost() {
                break;
            }
        }
        let shards = self.shards.as_mut().expect("shards stand except while they restart");
        self.door.exchange(shards, now);
        if let Some(failure) = shards.lead().failure() {
            assert!(self.plan.loses_system_data(), "the shard cannot open: {failure}");
            self.told_loss = Some(failure.to_owned());
        }
        self.door.take_answers(answers);
    }
    fn next_event(&self) -> Time {
        if self.control_asked.is_some() || self.attachments.has_due() {
            return self.now;
        }
        let shards = self.shards();
        let next = shards.deadline().min(shards.next_arrival()).min(self.door.next_event(shards));
        next.min(self.roster.next_event().max(self.now))
    }
    fn disconnect(&mut self, lane: Lane, now: Time) {
        self.door.disconnect(lane, now);
    }
    fn reset(&mut self, lane: Lane, _now: Time) {
        self.door.reset(lane);
    }
    fn shut_down(&mut self, lane: Lane, token: HostToken, _now: Time) {
        self.door.shut_down(lane, token);
    }
    fn abort(&mut self, lane: Lane) {
        self.door.abort(lane);
    }
    fn known_namespaces(&self, lane: Lane) -> Vec<BTreeSet<u32>> {
        self.door.known_namespaces(lane)
    }
    fn vanish(&mut self, lane: Lane, now: Time) {
        self.door.vanish(lane, now);
    }
    fn stall(&mut self, lane: Lane, until: Time) {
        self.door.stall(lane, until);
    }
    fn silence(&mut self, lane: Lane, until: Time) {
        self.door.silence(lane, until);
    }
    fn lose_room(&mut self, until: Time) {
        if let Some(drives) = self.shards_mut().drives_mut() {
            return drives.fill_until(until);
        }
        let fault = Fault::NoRoom { from_ns: 0, until_ns: until.0 };
        for shard in self.shards_mut().all_mut() {
            shard.media_mut().emulated_mut().add_fault(fault);
        }
    }
    fn give_drives(&mut self, order: Vec<u16>) {
        self.roster.give(&self.plan, order);
    }
    fn harm_drive(&mut self, harm: DriveHarm, now: Time) {
        let drives = self.shards_mut().drives_mut().expect("a plan with such a fault has drives");
        if let Some(device) = drives.harm(harm, now) {
            self.now = self.now.max(now);
            self.tell_all_away(device, true);
        }
    }
    fn told_loss(&self) -> Option<&str> {
        self.told_loss.as_deref()
    }
    fn crash(&mut self, crash: Crash, now: Time) {
        if !self.door.is_at_rest() {
            mark!("stack: crash with commands under way");
        }
        if self.shards().all().all(|shard| shard.is_ready()) {
            self.cleaned_before_ius += self.sum(|vssd| vssd.traffic.programmed_cleaner_bytes) / 4096;
        } else {
            mark!("stack: crash while opening");
        }
        self.exchanged_before = self.exchanged();
        match crash {
            Crash::ProcessDeath => self.shards_mut().process_death(now),
            Crash::PowerCut => self.shards_mut().power_cut(now),
        }
        self.door.crash();
        self.attachments = Attachments::default();
        self.roster.crashed(now);
        (self.control_asked, self.control_held, self.control_answer) = (None, None, None);
        (self.status_asked, self.told) = (false, None);
        self.told_read_only.clear();
        self.told_no_room.clear();
        if self.aside_since.take().is_some() {
            self.aside_exists = None;
        }
    }
    fn has_failed(&self) -> bool {
        self.failures.is_over()
    }
    fn failed_alone(&self) -> u64 {
        self.failures.alone()
    }
    fn power_is_lost(&self) -> bool {
        !self.shards().is_powered()
    }
    fn media_operations(&self) -> u64 {
        self.operations_before + self.shards().media_operations()
    }
    fn cut_power_at(&mut self, media_operation: u64) {
        if self.shards().count() > 1 {
            self.cut_at = Some(media_operation);
            return;
        }
        if let Some(drives) = self.shards_mut().drives_mut() {
            return drives.cut_power_at(media_operation);
        }
        let nth = media_operation - self.operations_before;
        self.shards_mut().lead_mut().media_mut().emulated_mut().add_fault(Fault::PowerCutAtOperation { nth });
    }
    fn restart(&mut self, now: Time) -> Result<(), String> {
        self.now = self.now.max(now);
        let operations = self.media_operations();
        let shards = self.shards.take().expect("shards stand");
        let before = shards.count();
        let (mut device, carrier) = shards.into_parts();
        let (mut devices, missing, carrier) = match &carrier {
            Carrier::Drives(_) => on_drives::begin_life(carrier, &self.roster.given),
            Carrier::File(_) => {
                if !device.emulated().is_powered() {
                    device.emulated_mut().power_on();
                }
                self.operations_before = operations - device.emulated().operations();
                let carrier = Carrier::file(self.plan.seed ^ (self.lives as u64) << 32);
                (vec![alone(device, &self.plan)], 0, carrier)
            }
        };
        let counts = &self.plan.system.shards;
        let count = counts[self.lives % counts.len()];
        let mut configuration = config(&self.plan, &mut devices, missing, count);
        if self.is_besieged {
            make_tight(&mut configuration.target);
        }
        for (number, slot) in std::mem::take(&mut self.to_lose) {
            forget_store(&devices[0].0, &configuration.pool, number, slot);
        }
        if count != before {
            mark!("stack: restarted with another number of shards");
        }
        configuration.planted_panic = planted(&self.plan, self.lives);
        let seed = self.plan.seed ^ (self.lives as u64) << 32;
        self.shards = Some(Shards::with(devices, carrier, &configuration, count, seed, self.now));
        (self.cut_at, self.lives) = (None, self.lives + 1);
        self.failures.begin_life();
        self.door.restarted(self.now);
        self.chip_before = self.shards().chips();
        match self.shards().lead().failure() {
            Some(failure) => Err(failure.to_owned()),
            None => Ok(()),
        }
    }
    fn prepare_siege(&mut self) {
        self.is_besieged = true;
    }
    fn begin_siege(&mut self, siege: &Siege, now: Time) {
        self.door.begin_siege(siege, self.mode, now);
    }
    fn siege_is_fair(&self) -> bool {
        self.door.siege_is_fair()
    }
    fn lift_siege(&mut self, now: Time) {
        self.door.lift_siege(now);
    }
    fn lose_store(&mut self, vssd: &str) {
        let record = &self.shards().lead().state().vssds[vssd];
        self.to_lose.push((record.number, record.staging_slot));
    }
    fn control(&mut self, request: ControlRequest, _now: Time) {
        self.control_asked = Some(request);
    }
    fn take_control_answer(&mut self) -> Option<ControlResponse> {
        self.control_answer.take()
    }
    fn tell_blocks(&mut self, event: BlockEvent) {
        self.attachments.tell(event);
    }
    fn take_told(&mut self) -> Vec<BlockAction> {
        self.attachments.take_told()
    }
    fn place_of_block(&self, vssd: &str, block: LogicalBlock) -> Option<u32> {
        let id = VssdId(self.shards().lead().state().vssds.get(vssd)?.number);
        self.shards().all().find_map(|shard| shard.pool().place_of_block(id, block))
    }
    fn existing(&self) -> Option<Existing> {
        self.told.clone()
    }
    fn is_at_rest(&self) -> bool {
        self.shards().is_at_rest() && self.door.is_at_rest() && self.roster.is_idle()
    }
    fn accounting(&self) -> Option<Accounting> {
        // What follows a failed program in the pipeline is handed over and never reaches the chip.
        // What a shard had counted went with it.
        // So does what was counted on a device that left.
        if self.failures.has_forgotten() || self.plan.wears_blocks() || self.plan.system.comings.is_some() {
            return None;
        }
        let (programmed, chip_erases) = self.shards().chips();
        let works = self.shards().all().map(|shard| shard.system_work());
        let (system_ius, system_erases) = works.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        let pools = || {
            let of_shard = |shard| {
                let shard: &Shard<Device> = shard;
                shard.devices().map(|device| shard.pool_of(device))
            };
            self.shards().all().flat_map(of_shard)
        };
        let copies = pools().map(|pool| pool.copy_work());
        let (copied_ius, copy_erases) =
            copies.fold((0, 0), |sum, one| (sum.0 + one.programmed_ius, sum.1 + one.erases));
        let former = pools().map(|pool| pool.former_work());
        let (former_ius, former_erases) = former.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        let erases = self.sum(|vssd| vssd.traffic.erases) + former_erases + system_erases + copy_erases;
        // A drive is not told of erases.
        let chip_erases =
            if self.shards().drives().is_some() { erases } else { chip_erases - self.chip_before.1 };
        Some(Accounting {
            host_ius: self.sum(|vssd| vssd.traffic.host_written_bytes) / 4096,
            programmed_user_ius: self.sum(|vssd| vssd.traffic.programmed_user_bytes) / 4096 + former_ius,
            programmed_cleaner_ius: self.sum(|vssd| vssd.traffic.programmed_cleaner_bytes) / 4096,
            programmed_metadata_ius: self.sum(|vssd| vssd.traffic.programmed_metadata_bytes) / 4096
                + system_ius,
            programmed_migration_ius: copied_ius,
            chip_programmed_ius: programmed - self.chip_before.0,
            erases,
            chip_erases,
        })
    }
    fn lacking_room(&self) -> BTreeSet<String> {
        let mut lacking = self.told_no_room.clone();
        for shard in self.shards().all() {
            let vssds = shard.status().vssds.into_iter();
            lacking.extend(vssds.filter(|vssd| vssd.health.lacks_room).map(|vssd| vssd.spec.name));
        }
        lacking
    }
    fn may_be_full(&self, lane: Lane) -> bool {
        self.tight.contains(&lane)
    }
    fn unit_of(&self, volume: VolumeNumber, iu: u64) -> Option<PlacedUnit> {
        self.plan.placement_of(volume)?;
        let state = self.shards().lead().state();
        let record = state.volumes.get(&volume_name(volume))?;
        let vssd = VssdId(state.vssds.get(&record.vssd)?.number);
        let unit = self.shards().all().find_map(|shard| shard.reclaim_unit_of(vssd, record.index, iu))?;
        Some(PlacedUnit { handle: unit.handle.0, group: unit.group.0, is_of_cleaner: unit.is_of_cleaner })
    }
    fn reclaim_groups_of(&self, volume: VolumeNumber) -> Option<u16> {
        let state = self.shards().lead().state();
        let vssd = VssdId(state.vssds.get(&state.volumes.get(&volume_name(volume))?.vssd)?.number);
        self.shards().all().find_map(|shard| shard.reclaim_groups_of(vssd))
    }
    fn ask_placement_statistics(&mut self, lane: Lane) {
        self.door.ask_placement_statistics(lane);
    }
    fn placement_statistics(&self, lane: Lane) -> Option<PlacementStatistics> {
        self.door.placement_statistics(lane)
    }
    fn ask_erase(&mut self, lane: Lane, what: Erase) -> bool {
        self.door.ask_erase(lane, what)
    }
    fn erasure(&self, lane: Lane) -> Option<&Erasure> {
        self.door.erasure(lane)
    }
    fn remains(&self, volume: VolumeNumber) -> Option<u64> {
        if self.shards().drives().is_some() {
            return None;
        }
        let iu_count = self.plan.volume(volume).iu_count;
        let mut found = 0;
        let mut look = |bytes: &[u8]| {
            let words = bytes.as_chunks::<8>().0.iter().map(|word| Tag::from_word(u64::from_le_bytes(*word)));
            // Other words of protected memory are not taken for tags: versions are few.
            let is_of_it =
                |tag: &Tag| tag.volume == volume && tag.lba < iu_count && tag.version < VERSIONS_MAX;
            found += words.flatten().filter(is_of_it).count() as u64;
        };
        let own = self.shards().lead().state().volumes.get(&volume_name(volume))?.vssd.clone();
        for shard in self.shards().all() {
            // A block that another vSSD took right before a crash may not have been erased, and is when that gives it back (docs/limits.md).
            let others = shard.state().vssds.iter().filter(|(name, _)| **name != own);
            let held = others.flat_map(|(_, one)| diecut_vssd::held_blocks(shard.pool(), VssdId(one.number)));
            let held: BTreeSet<_> = held.map(|(_, place)| place).collect();
            shard.media().emulated().look_through(|block, iu| {
                if !held.contains(&block) {
                    look(&iu[..8]);
                }
            });
        }
        if let Some(memory) = self.shards().lead().media().emulated().protected_memory() {
            look(&memory.snapshot());
        }
        Some(found)
    }
    fn programmed_beside(&self, lane: Lane) -> u64 {
        let name = tenant_name(lane);
        let vssds = self.shards().all().flat_map(|shard| shard.status().vssds);
        let traffic = vssds.filter(|vssd| vssd.spec.name != name).map(|vssd| vssd.traffic);
        let bytes = traffic.map(|one| {
            one.programmed_user_bytes + one.programmed_cleaner_bytes + one.programmed_metadata_bytes
        });
        bytes.sum::<u64>() / 4096
    }
    fn reads_of_dies(&self) -> Option<Vec<u64>> {
        self.shards().drives().is_none().then(|| self.shards().reads_of_dies())
    }
    fn wear(&self) -> Option<Wear> {
        let cleaned_ius = self.sum(|vssd| vssd.traffic.programmed_cleaner_bytes) / 4096;
        let exchanged = self.exchanged();
        Some(Wear {
            raw_ius: match self.shards().drives() {
                Some(drives) => drives.raw_ius(),
                None => self.shards().lead().media().geometry().raw_capacity_bytes() / 4096,
            },
            programmed_ius: self.shards().chips().0,
            cleaned_ius: self.cleaned_before_ius + cleaned_ius,
            erases: self.shards().chips().1,
            moved_blocks: exchanged.moved_blocks,
            exchanges: exchanged.finished,
        })
    }
    fn check_wear(&self) -> Vec<String> {
        if self.shards().drives().is_some() {
            return self.shards().check_account();
        }
        let lead = self.shards().lead();
        let geometry = *lead.media().geometry();
        let (system, counts, wear) =
            (lead.pool().system_area(), self.shards().erase_counts(), self.die_wear());
        let mut wrong = Vec::new();
        let per_die = geometry.erase_blocks_per_die() as usize;
        for (number, die) in geometry.all_dies().enumerate() {
            let blocks = (0..).map(BlockIndex).zip(&counts[number * per_die..][..per_die]);
            let of_pool = blocks.filter(|(at, _)| !system.contains(number as u32, die.erase_block(*at)));
            let seen: u64 = of_pool.map(|(_, count)| u64::from(*count)).sum();
            let (one, state_log) = (wear[number], wear[number].state_log);
            if one.total() - state_log < seen {
                wrong.push(format!("die {number} was erased {seen} times, but {one:?} are known"));
            }
        }
        if self.is_at_rest() {
            wrong.extend(self.shards().check_account());
        }
        // In a log of block states on flash the causes are as old as its last generation.
        let done = self.exchanged();
        let of_moves = wear.iter().map(|die| die.migration).sum::<u64>();
        let of_inside = wear.iter().map(|die| die.inside).sum::<u64>();
        for (what, counted, intended) in [
            ("on other dies", of_moves, done.intended_erases),
            ("within dies", of_inside, done.intended_inside_erases),
        ] {
            if self.plan.system.protected_memory && counted != intended {
                wrong.push(format!(
                    "{intended} erases for copies {what} were intended, {counted} are counted as such"
                ));
            }
        }
        wrong
    }
    fn image_hash(&self) -> u64 {
        if let Some(drives) = self.shards().drives() {
            return u64::from(drives.hash()) << 32 | drives.written_ius() & 0xffff_ffff;
        }
        let counts = self.shards().erase_counts();
        let hash = counts.iter().fold(0, |hash, count| checksum_append(hash, &count.to_le_bytes()));
        u64::from(hash) << 32 | self.shards().chips().0 & 0xffff_ffff
    }
    fn describe(&self) -> String {
        self.door.describe() + &self.shards().describe()
    }
    fn check_invariants(&self) {
        for shard in self.shards().all() {
            shard.devices().for_each(|device| shard.pool_of(device).check_invariants());
            shard.check_budget();
            shard.check_shares();
        }
    }
}

/// A volume has no more versions in a run.
const VERSIONS_MAX: u32 = 1 << 20;

/// What a set of seeds of this system has in common: enough writes to fill the device more than once.
pub fn shape() -> crate::generate::Shape {
    crate::generate::Shape {
        overwrites: 6.0,
        changes: true,
        shards: true,
        controls: true,
        applications: true,
        wide: true,
        protected_memory: None,
        ..crate::generate::Shape::default()
    }
}
