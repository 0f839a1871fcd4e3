//! The whole server below the wire as a system: a shard over an emulated device, hosts' commands through a door.
//!
//! A lane's connection that breaks loses the answers of what is under way; the lane connects again when all of it came
//! back, as the target does with an old association.

use crate::oracle::Crash;
use crate::plan::{ContentKind, FaultKind, IsolationLevel, Lane, Plan, Range, TenantPlan};
use crate::system::{Accounting, HostAnswer, HostCommand, HostError, HostToken, System};
use crate::tag::VolumeNumber;
use diecut_emulator::{Backing, Device, Fault, FaultPlan, FaultyDie, OperationKind, Options, Profile};
use diecut_media::Media;
use diecut_namespace::contract::*;
use diecut_shard::control::*;
use diecut_shard::drive::{Action, Drive, Event};
use diecut_shard::{CheckpointPace, DOOR_SOURCE_BIT, PoolConfig, Shard, ShardConfig};
use diecut_units::{Buffer, BufferMut, ContentMode, Time, checksum_append, mark};
use std::collections::BTreeMap;

/// Erase blocks of each plane: so few that every plan makes the cleaner work.
const BLOCKS_PER_PLANE: u32 = 48;
const SOFT_PLANES_PER_DIE: u16 = 2;
const STAGING_BYTES_PER_VSSD: usize = 512 << 10;
/// Turns of the shard without time passing.
const TURNS_MAX: u32 = 100_000;

struct Waiting {
    lane: Lane,
    lost: bool,
}

/// See the module.
pub struct Stack {
    shard: Option<Shard<Device>>,
    plan: Plan,
    mode: ContentMode,
    now: Time,
    waiting: BTreeMap<u64, Waiting>,
    /// Answers held back until a stalled host reads again.
    stalled: BTreeMap<Lane, (Time, Vec<HostAnswer>)>,
    reconnecting: Vec<Lane>,
    answers: Vec<HostAnswer>,
    chip_before: (u64, u64),
}

fn config(plan: &Plan, device: &Device) -> ShardConfig {
    let mut pool = PoolConfig { soft_planes_per_die: SOFT_PLANES_PER_DIE, ..PoolConfig::default() };
    let geometry = device.geometry();
    pool.levels = PoolConfig::levels_of(geometry, SOFT_PLANES_PER_DIE);
    ShardConfig {
        pool,
        staging_bytes_per_vssd: STAGING_BYTES_PER_VSSD,
        volatile_cache: plan.system.volatile_cache,
        checkpoint: pace(plan),
        ..ShardConfig::default()
    }
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
        let mut stack = Stack {
            shard: Some(Shard::new(device, configuration, Time::ZERO)),
            plan: plan.clone(),
            mode,
            now: Time::ZERO,
            waiting: BTreeMap::new(),
            stalled: BTreeMap::new(),
            reconnecting: Vec::new(),
            answers: Vec::new(),
            chip_before: (0, 0),
        };
        for (number, tenant) in plan.tenants.iter().enumerate() {
            let name = format!("tenant-{number}");
            stack.ask(ControlRequest::CreateTenant(TenantSpec { name: name.clone() }))?;
            stack.create_vssd(&name, tenant)?;
            for volume in &tenant.volumes {
                stack.ask(ControlRequest::CreateVolume(VolumeSpec {
                    name: format!("volume-{}", volume.number.0),
                    vssd: name.clone(),
                    size_bytes: volume.iu_count * 4096,
                    uuid: None,
                    nguid: None,
                }))?;
            }
        }
        Ok(stack)
    }

    /// Makes a vSSD that its tenant's volumes fit on: where many erase blocks are bad from the start, with less
    /// over-provisioning.
    fn create_vssd(&mut self, name: &str, tenant: &TenantPlan) -> Result<(), String> {
        let wanted_ius: u64 = tenant.volumes.iter().map(|volume| volume.iu_count).sum();
        let mut over_provisioning_permille = 280;
        loop {
            self.ask(ControlRequest::CreateVssd(VssdSpec {
                name: name.to_owned(),
                tenant: name.to_owned(),
                isolation: match tenant.isolation {
                    IsolationLevel::Channel => Isolation::Channel,
                    IsolationLevel::Die => Isolation::Die,
                    IsolationLevel::Software => Isolation::Software,
                    IsolationLevel::None => Isolation::None,
                },
                throughput_level: 1,
                capacity_bytes: 1 << 20,
                over_provisioning_permille,
                weight: 100,
                rate_limit_bytes_per_second: 0,
                sharing: Sharing::WorkConserving,
            }))?;
            if self.shard().state().vssds[name].exported_ius >= wanted_ius || over_provisioning_permille == 0 {
                return Ok(());
            }
            over_provisioning_permille -= 40;
            self.ask(ControlRequest::DeleteVssd(name.to_owned()))?;
        }
    }

    fn shard(&self) -> &Shard<Device> {
        self.shard.as_ref().expect("a shard stands except while it restarts")
    }
    fn shard_mut(&mut self) -> &mut Shard<Device> {
        self.shard.as_mut().expect("a shard stands except while it restarts")
    }

    fn ask(&mut self, request: ControlRequest) -> Result<(), String> {
        let mut actions = Vec::new();
        let token = ControlToken(1);
        let now = self.now;
        self.shard_mut().handle(Event::Control { token, request: Box::new(request) }, now, &mut actions);
        for _ in 0..TURNS_MAX {
            for action in actions.drain(..) {
                if let Action::Answer { response, .. } = action {
                    return match *response {
                        ControlResponse::Done => Ok(()),
                        other => Err(format!("{other:?}")),
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
    fn note_chips(&mut self) {
        self.chip_before = self.chips();
    }

    fn namespace(&self, volume: VolumeNumber) -> NamespaceId {
        let name = format!("volume-{}", volume.0);
        NamespaceId(self.shard().state().volumes[&name].namespace)
    }

    fn lba_range(range: Range) -> LbaRange {
        LbaRange { first_lba: range.first, lba_count: range.count }
    }

    fn operation(&self, command: HostCommand) -> (VolumeNumber, NamespaceOperation) {
        let size = self.mode.bytes_per_iu();
        match command {
            HostCommand::Read(range) => {
                let destination = BufferMut::copy_from(&vec![0xee; range.count as usize * size]);
                (range.volume, NamespaceOperation::Read { range: Stack::lba_range(range), destination })
            }
            HostCommand::Write(range, data, force_unit_access) => {
                let data = Buffer::copy_from(&data);
                let range_of = Stack::lba_range(range);
                (range.volume, NamespaceOperation::Write { range: range_of, data, force_unit_access })
            }
            HostCommand::Flush(volume) => (volume, NamespaceOperation::Flush),
            HostCommand::Deallocate(range) => {
                let ranges = [Stack::lba_range(range)].into_iter().collect();
                (range.volume, NamespaceOperation::Deallocate { ranges })
            }
            HostCommand::WriteZeroes(range, force_unit_access) => {
                let range_of = Stack::lba_range(range);
                let operation = NamespaceOperation::WriteZeroes {
                    range: range_of,
                    may_deallocate: true,
                    force_unit_access,
                };
                (range.volume, operation)
            }
            HostCommand::Compare(range, data) => {
                let data = Buffer::copy_from(&data);
                (range.volume, NamespaceOperation::Compare { range: Stack::lba_range(range), data })
            }
            HostCommand::Verify(range) => {
                (range.volume, NamespaceOperation::Verify { range: Stack::lba_range(range) })
            }
        }
    }

    fn deliver(&mut self, answer: HostAnswer) {
        match self.stalled.get_mut(&answer.lane) {
            Some((_, held)) => held.push(answer),
            None => self.answers.push(answer),
        }
    }

    fn take_completions(&mut self) {
        let mut completions = Vec::new();
        self.shard_mut().take_completions(&mut completions);
        for completion in completions {
            let token = completion.token.0;
            let Some(waiting) = self.waiting.remove(&token) else { continue };
            let result = match completion.result {
                _ if waiting.lost => continue,
                Ok(()) => Ok(completion.data.map_or(Vec::new(), |data| data.to_vec())),
                Err(NamespaceError::CompareFailure) => Err(HostError::CompareFailure),
                Err(NamespaceError::Unrecovered { .. }) => Err(HostError::Unrecovered),
                Err(NamespaceError::CapacityExceeded) => Err(HostError::Full),
                Err(NamespaceError::ReadOnly { .. }) => Err(HostError::ReadOnly),
                Err(other) => Err(HostError::Other(other.to_string())),
            };
            self.deliver(HostAnswer { lane: waiting.lane, token: HostToken(token), result });
        }
        let waiting = &self.waiting;
        self.reconnecting.retain(|lane| waiting.values().any(|one| one.lane == *lane));
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
        self.shard().is_ready() && !self.reconnecting.contains(&lane) && !self.stalled.contains_key(&lane)
    }
    fn submit(&mut self, lane: Lane, token: HostToken, command: HostCommand, now: Time) {
        let (volume, operation) = self.operation(command);
        let namespace = self.namespace(volume);
        self.waiting.insert(token.0, Waiting { lane, lost: false });
        let source = SourceId(DOOR_SOURCE_BIT | u32::from(lane.0));
        let command =
            NamespaceCommand { token: CommandToken(token.0), namespace, source, arrived: now, operation };
        self.shard_mut().submit(command);
    }
    fn advance(&mut self, now: Time, answers: &mut Vec<HostAnswer>) {
        self.now = self.now.max(now);
        let now = self.now;
        let mut actions = Vec::new();
        for _ in 0..TURNS_MAX {
            self.shard_mut().work(now, &mut actions);
            self.take_completions();
            if self.shard().deadline() > now || self.power_is_lost() {
                break;
            }
        }
        if let Some(failure) = self.shard().failure() {
            panic!("the shard cannot open: {failure}");
        }
        let over: Vec<Lane> =
            self.stalled.iter().filter(|(_, (until, _))| *until <= now).map(|(lane, _)| *lane).collect();
        for lane in over {
            let (_, held) = self.stalled.remove(&lane).expect("listed");
            self.answers.extend(held);
        }
        answers.append(&mut self.answers);
    }
    fn next_event(&self) -> Time {
        let stalled = self.stalled.values().map(|(until, _)| *until).min().unwrap_or(Time::NEVER);
        self.shard().deadline().min(stalled)
    }
    fn disconnect(&mut self, lane: Lane, _now: Time) {
        for (token, waiting) in &mut self.waiting {
            if waiting.lane == lane && !waiting.lost {
                mark!("stack: connection lost with commands under way");
                waiting.lost = true;
                let token = HostToken(*token);
                self.answers.push(HostAnswer { lane, token, result: Err(HostError::ConnectionLost) });
            }
        }
        // Answers on their way to a host that hung up are lost with the connection.
        if let Some((_, held)) = self.stalled.remove(&lane) {
            for answer in held {
                self.answers.push(HostAnswer { result: Err(HostError::ConnectionLost), ..answer });
            }
        }
        if self.waiting.values().any(|waiting| waiting.lane == lane) {
            self.reconnecting.push(lane);
        }
    }
    fn stall(&mut self, lane: Lane, until: Time) {
        let entry = self.stalled.entry(lane).or_insert((until, Vec::new()));
        entry.0 = entry.0.max(until);
    }
    fn crash(&mut self, crash: Crash, now: Time) {
        if !self.waiting.is_empty() {
            mark!("stack: crash with commands under way");
        }
        if !self.shard().is_ready() {
            mark!("stack: crash while opening");
        }
        let device = self.shard_mut().media_mut();
        match crash {
            Crash::ProcessDeath => device.process_death(now),
            Crash::PowerCut => device.power_cut(now),
        }
        self.waiting.clear();
        self.stalled.clear();
        self.reconnecting.clear();
        self.answers.clear();
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
        self.note_chips();
        match self.shard().failure() {
            Some(failure) => Err(failure.to_owned()),
            None => Ok(()),
        }
    }
    fn is_at_rest(&self) -> bool {
        self.shard().is_ready() && self.waiting.is_empty() && self.shard().media().is_idle()
    }
    fn accounting(&self) -> Option<Accounting> {
        // What follows a failed program in the pipeline is handed over and never reaches the chip.
        let fails = |fault: &crate::plan::PlannedFault| {
            matches!(fault.what, FaultKind::ProgramFailure { .. } | FaultKind::EraseFailure { .. })
        };
        if self.plan.faults.iter().any(fails) {
            return None;
        }
        let status = self.shard().status();
        let sum = |of: fn(&VssdStatus) -> u64| status.vssds.iter().map(of).sum::<u64>() / 4096;
        let (programmed, erases) = self.chips();
        let (system_ius, system_erases) = self.shard().system_work();
        let erased: u64 = status.vssds.iter().map(|vssd| vssd.erases).sum();
        Some(Accounting {
            host_ius: sum(|vssd| vssd.host_written_bytes),
            programmed_user_ius: sum(|vssd| vssd.programmed_user_bytes),
            programmed_cleaner_ius: sum(|vssd| vssd.programmed_cleaner_bytes),
            programmed_metadata_ius: sum(|vssd| vssd.programmed_metadata_bytes) + system_ius,
            chip_programmed_ius: programmed - self.chip_before.0,
            erases: erased + system_erases,
            chip_erases: erases - self.chip_before.1,
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
        self.shard().describe()
    }
    fn check_invariants(&self) {
        self.shard().pool().check_invariants();
    }
}

/// What a set of seeds of this system has in common: enough writes to fill the device more than once.
pub fn shape() -> crate::generate::Shape {
    crate::generate::Shape { overwrites: 6.0, ..crate::generate::Shape::default() }
}
