//! The whole server as a system: hosts over a faulty network (or commands through a door below the target), a shard,
//! and an emulated device with faults.

use crate::administration::{Change, OVER_PROVISIONING_PERMILLE, set_up, vssd_spec};
use crate::door::Door;
use crate::entrance::Entrance;
use crate::existing::{Existing, Subsystem, Volume};
use crate::hosts::Hosts;
use crate::oracle::Crash;
use crate::plan::{ContentKind, FaultKind, Lane, Plan};
use crate::system::{Accounting, HostAnswer, HostCommand, HostToken, System, Wear};
use diecut_emulator::{Backing, Device, Fault, FaultPlan, FaultyDie, OperationKind, Options, Profile};
use diecut_media::Media;
use diecut_shard::control::*;
use diecut_shard::drive::{Action, Drive, Event};
use diecut_shard::{CheckpointPace, CostModel, PoolConfig, Shard, ShardConfig};
use diecut_target::TargetConfig;
use diecut_units::{ContentMode, Time, checksum_append, mark};

/// Erase blocks of each plane: so few that every plan makes the cleaner work.
const BLOCKS_PER_PLANE: u32 = 48;
const SOFT_PLANES_PER_DIE: u16 = 2;
const STAGING_BYTES_PER_VSSD: usize = 512 << 10;
/// Turns of the shard without time passing.
const TURNS_MAX: u32 = 100_000;

/// See the module.
pub struct Stack {
    shard: Option<Shard<Device>>,
    entrance: Box<dyn Entrance>,
    plan: Plan,
    mode: ContentMode,
    now: Time,
    chip_before: (u64, u64),
    /// IUs that cleaners programmed before the last start.
    cleaned_before_ius: u64,
    control_answer: Option<ControlResponse>,
    /// The administrator's request came; answers to earlier ones are of a shard that is gone.
    control_asked: Option<ControlRequest>,
}

fn config(plan: &Plan, device: &Device) -> ShardConfig {
    let mut pool = PoolConfig { soft_planes_per_die: SOFT_PLANES_PER_DIE, ..PoolConfig::default() };
    let geometry = device.geometry();
    pool.levels = PoolConfig::levels_of(geometry, SOFT_PLANES_PER_DIE);
    // So tight that hosts with a few large commands meet the limits.
    let target = TargetConfig {
        h2c_data_bytes_max: 16 << 10,
        output_bytes_max: 1 << 20,
        gather_bytes_max: 1 << 20,
        ..TargetConfig::default()
    };
    ShardConfig {
        target,
        pool,
        staging_bytes_per_vssd: STAGING_BYTES_PER_VSSD,
        volatile_cache: plan.system.volatile_cache,
        checkpoint: pace(plan),
        cost_model: plan.system.slow_core.then(slow_core),
        ..ShardConfig::default()
    }
}

/// A core that takes longer for a command than a die for a page.
fn slow_core() -> CostModel {
    CostModel { command_ns: 60_000, ..CostModel::default() }
}

/// Every third plan runs with the pace of a real store; in the others checkpoints are frequent, to meet cuts and faults.
fn pace(plan: &Plan) -> CheckpointPace {
    match plan.seed % 3 {
        0 => CheckpointPace::default(),
        _ => CheckpointPace { ius_per_leaf: 10 + plan.seed % 30, ius_per_anchor_iu: 15 + plan.seed % 50 },
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

/// What a status tells of what exists.
fn existing(status: &Status) -> Existing {
    let volume = |one: &VolumeStatus| {
        let identity = one.spec.uuid.zip(one.spec.nguid);
        let volume = Volume { vssd: one.spec.vssd.clone(), size_bytes: one.spec.size_bytes, identity };
        (one.spec.name.clone(), volume)
    };
    let subsystem = |one: &SubsystemStatus| {
        let shown = Subsystem {
            tenant: one.spec.tenant.clone(),
            hosts: one.spec.allowed_hosts.iter().cloned().collect(),
            namespaces: one.spec.namespaces.iter().cloned().collect(),
        };
        (one.spec.nqn.clone(), shown)
    };
    Existing {
        tenants: status.tenants.iter().map(|tenant| tenant.name.clone()).collect(),
        vssds: status.vssds.iter().map(|one| (one.spec.name.clone(), one.spec.tenant.clone())).collect(),
        volumes: status.volumes.iter().map(volume).collect(),
        subsystems: status.subsystems.iter().map(subsystem).collect(),
    }
}

impl Stack {
    /// A fresh device with the plan's tenants and volumes on it.
    ///
    /// # Errors
    /// What could not be set up.
    pub fn new(plan: &Plan) -> Result<Stack, String> {
        let mut profile = Profile::named(&plan.system.profile).map_err(|error| error.to_string())?;
        profile.geometry.blocks_per_plane = BLOCKS_PER_PLANE;
        profile.protected_memory_bytes = if plan.system.protected_memory { 4 << 20 } else { 0 };
        let backing = match plan.system.content {
            ContentKind::Bytes => Backing::Memory,
            ContentKind::Tags => Backing::Tags,
        };
        let faults = FaultPlan { faults: media_faults(plan), ..FaultPlan::default() };
        let options = Options { backing, seed: plan.seed, faults, ..Options::default() };
        let device = Device::create(&profile, options).map_err(|error| error.to_string())?;
        let mode = device.capabilities().content_mode;
        let configuration = config(plan, &device);
        let entrance: Box<dyn Entrance> =
            if plan.system.hosts { Box::new(Hosts::new(plan)) } else { Box::new(Door::default()) };
        let mut stack = Stack {
            shard: Some(Shard::new(device, configuration, Time::ZERO)),
            entrance,
            plan: plan.clone(),
            mode,
            now: Time::ZERO,
            chip_before: (0, 0),
            cleaned_before_ius: 0,
            control_answer: None,
            control_asked: None,
        };
        for change in set_up(plan) {
            match change {
                Change::CreateVssd(lane) => stack.create_vssd(lane)?,
                other => stack.ask(other.request(plan))?,
            }
        }
        Ok(stack)
    }

    /// Makes a vSSD that its tenant's volumes fit on: where many erase blocks are bad from the start, with less
    /// over-provisioning.
    fn create_vssd(&mut self, lane: Lane) -> Result<(), String> {
        let volumes = &self.plan.tenants[usize::from(lane.0)].volumes;
        let wanted_ius: u64 = volumes.iter().map(|volume| volume.iu_count).sum();
        let mut over_provisioning_permille = OVER_PROVISIONING_PERMILLE;
        loop {
            let spec = vssd_spec(&self.plan, lane, over_provisioning_permille);
            let name = spec.name.clone();
            self.ask(ControlRequest::CreateVssd(spec))?;
            if self.shard().state().vssds[&name].exported_ius >= wanted_ius
                || over_provisioning_permille <= 40
            {
                return Ok(());
            }
            over_provisioning_permille -= 40;
            self.ask(ControlRequest::DeleteVssd(name))?;
        }
    }

    fn shard(&self) -> &Shard<Device> {
        self.shard.as_ref().expect("a shard stands except while it restarts")
    }
    fn shard_mut(&mut self) -> &mut Shard<Device> {
        self.shard.as_mut().expect("a shard stands except while it restarts")
    }

    /// Asks and waits; only before hosts come.
    fn ask(&mut self, request: ControlRequest) -> Result<(), String> {
        let mut actions = Vec::new();
        let token = ControlToken(1);
        let now = self.now;
        let said = format!("{request:?}");
        self.shard_mut().handle(Event::Control { token, request: Box::new(request) }, now, &mut actions);
        for _ in 0..TURNS_MAX {
            for action in actions.drain(..) {
                if let Action::Answer { response, .. } = action {
                    return match *response {
                        ControlResponse::Done => Ok(()),
                        other => Err(format!("{said}: {other:?}")),
                    };
                }
            }
            self.now = self.now.max(self.shard().deadline());
            let now = self.now;
            self.shard_mut().work(now, &mut actions);
        }
        Err("an administrator's request was never answered".to_owned())
    }

    fn chips(&self) -> (u64, u64) {
        let statistics = self.shard().media().statistics();
        (statistics.programmed_bytes / 4096, statistics.erases)
    }

    fn sum(&self, of: fn(&VssdStatus) -> u64) -> u64 {
        self.shard().status().vssds.iter().map(of).sum()
    }
}

impl System for Stack {
    fn content_mode(&self) -> ContentMode {
        self.mode
    }
    fn transfer_max_ius(&self) -> u32 {
        256
    }
    fn is_connected(&self, lane: Lane) -> bool {
        self.entrance.is_connected(lane)
    }
    fn submit(&mut self, lane: Lane, token: HostToken, command: HostCommand, now: Time) {
        let shard = self.shard.as_mut().expect("a shard stands except while it restarts");
        self.entrance.submit(lane, token, command, self.mode, shard, now);
    }
    fn advance(&mut self, now: Time, answers: &mut Vec<HostAnswer>) {
        self.now = self.now.max(now);
        let now = self.now;
        let mut actions = Vec::new();
        let shard = self.shard.as_mut().expect("a shard stands except while it restarts");
        if let Some(request) = self.control_asked.take() {
            let event = Event::Control { token: ControlToken(1), request: Box::new(request) };
            shard.handle(event, now, &mut actions);
        }
        for _ in 0..TURNS_MAX {
            let moved = self.entrance.exchange(shard, now);
            shard.work(now, &mut actions);
            self.entrance.act(&mut actions, shard, now);
            for action in actions.drain(..) {
                if let Action::Answer { response, .. } = action {
                    self.control_answer = Some(*response);
                    self.entrance.nudge(now);
                }
            }
            if (shard.deadline() > now && !moved) || !shard.media().is_powered() {
                break;
            }
        }
        self.entrance.exchange(shard, now);
        if let Some(failure) = shard.failure() {
            panic!("the shard cannot open: {failure}");
        }
        self.entrance.take_answers(answers);
    }
    fn next_event(&self) -> Time {
        if self.control_asked.is_some() {
            return self.now;
        }
        self.shard().deadline().min(self.entrance.next_event(self.shard()))
    }
    fn disconnect(&mut self, lane: Lane, now: Time) {
        self.entrance.disconnect(lane, now);
    }
    fn vanish(&mut self, lane: Lane, now: Time) {
        self.entrance.vanish(lane, now);
    }
    fn stall(&mut self, lane: Lane, until: Time) {
        self.entrance.stall(lane, until);
    }
    fn silence(&mut self, lane: Lane, until: Time) {
        self.entrance.silence(lane, until);
    }
    fn crash(&mut self, crash: Crash, now: Time) {
        if !self.entrance.is_at_rest() {
            mark!("stack: crash with commands under way");
        }
        if self.shard().is_ready() {
            self.cleaned_before_ius += self.sum(|vssd| vssd.programmed_cleaner_bytes) / 4096;
        } else {
            mark!("stack: crash while opening");
        }
        let device = self.shard_mut().media_mut();
        match crash {
            Crash::ProcessDeath => device.process_death(now),
            Crash::PowerCut => device.power_cut(now),
        }
        self.entrance.crash();
        (self.control_asked, self.control_answer) = (None, None);
    }
    fn power_is_lost(&self) -> bool {
        !self.shard().media().is_powered()
    }
    fn media_operations(&self) -> u64 {
        self.shard().media().operations()
    }
    fn cut_power_at(&mut self, media_operation: u64) {
        self.shard_mut().media_mut().add_fault(Fault::PowerCutAtOperation { nth: media_operation });
    }
    fn restart(&mut self, now: Time) -> Result<(), String> {
        self.now = self.now.max(now);
        let mut device = self.shard.take().expect("a shard stands").into_media();
        if !device.is_powered() {
            device.power_on();
        }
        let configuration = config(&self.plan, &device);
        self.shard = Some(Shard::new(device, configuration, self.now));
        self.entrance.restarted(self.now);
        self.chip_before = self.chips();
        match self.shard().failure() {
            Some(failure) => Err(failure.to_owned()),
            None => Ok(()),
        }
    }
    fn control(&mut self, request: ControlRequest, _now: Time) {
        self.control_asked = Some(request);
    }
    fn take_control_answer(&mut self) -> Option<ControlResponse> {
        self.control_answer.take()
    }
    fn existing(&self) -> Option<Existing> {
        self.shard().is_ready().then(|| existing(&self.shard().status()))
    }
    fn is_at_rest(&self) -> bool {
        self.shard().is_ready() && self.entrance.is_at_rest() && self.shard().media().is_idle()
    }
    fn accounting(&self) -> Option<Accounting> {
        // What follows a failed program in the pipeline is handed over and never reaches the chip.
        let fails = |fault: &crate::plan::PlannedFault| {
            matches!(fault.what, FaultKind::ProgramFailure { .. } | FaultKind::EraseFailure { .. })
        };
        if self.plan.faults.iter().any(fails) {
            return None;
        }
        let (programmed, erases) = self.chips();
        let (system_ius, system_erases) = self.shard().system_work();
        Some(Accounting {
            host_ius: self.sum(|vssd| vssd.host_written_bytes) / 4096,
            programmed_user_ius: self.sum(|vssd| vssd.programmed_user_bytes) / 4096,
            programmed_cleaner_ius: self.sum(|vssd| vssd.programmed_cleaner_bytes) / 4096,
            programmed_metadata_ius: self.sum(|vssd| vssd.programmed_metadata_bytes) / 4096 + system_ius,
            chip_programmed_ius: programmed - self.chip_before.0,
            erases: self.sum(|vssd| vssd.erases) + system_erases,
            chip_erases: erases - self.chip_before.1,
        })
    }
    fn wear(&self) -> Option<Wear> {
        let cleaned_ius = self.sum(|vssd| vssd.programmed_cleaner_bytes) / 4096;
        Some(Wear {
            raw_ius: self.shard().media().geometry().raw_capacity_bytes() / 4096,
            programmed_ius: self.chips().0,
            cleaned_ius: self.cleaned_before_ius + cleaned_ius,
            erases: self.chips().1,
        })
    }
    fn image_hash(&self) -> u64 {
        let device = self.shard().media();
        let geometry = *device.geometry();
        let mut hash = 0;
        for die in geometry.all_dies() {
            for index in 0..geometry.erase_blocks_per_die() {
                let count = device.erase_count(die.erase_block(diecut_units::BlockIndex(index)));
                hash = checksum_append(hash, &count.to_le_bytes());
            }
        }
        u64::from(hash) << 32 | self.chips().0 & 0xffff_ffff
    }
    fn describe(&self) -> String {
        self.entrance.describe() + &self.shard().describe()
    }
    fn check_invariants(&self) {
        self.shard().pool().check_invariants();
    }
}

/// What a set of seeds of this system has in common: enough writes to fill the device more than once.
pub fn shape() -> crate::generate::Shape {
    crate::generate::Shape { overwrites: 6.0, changes: true, ..crate::generate::Shape::default() }
}
