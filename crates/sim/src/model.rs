//! A small model system behind [`System`]: a map with delays. It keeps every promise, or breaks one on
//! request, and so tests the runner and the checkers before any real room does.

use crate::oracle::Crash;
use crate::plan::{Lane, Plan, Range};
use crate::system::{Accounting, HostAnswer, HostCommand, HostError, HostToken, System};
use crate::tag::VolumeNumber;
use diecut_units::{ContentMode, Span, Time, checksum_append, mark};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::BTreeMap;

/// A promise the model breaks, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelBug {
    /// Keeps every promise.
    None,
    /// Acknowledged writes of the last millisecond are gone after a power cut.
    LosesTailAtPowerCut,
    /// The same after the death of the process.
    LosesTailAtDeath,
    /// Deallocations are forgotten by a crash.
    ForgetsDeallocations,
    /// A write of a broken connection lands a second later.
    LateWrite,
    /// Writes to IU 5 of any volume go to IU 6.
    Misdirects,
    /// Writes to IU 5 of any volume go to volume 1.
    CrossesVolumes,
    /// Every 64th write of more than one IU loses its last IU.
    TearsWrites,
    /// One command is never answered.
    ForgetsCommand,
    /// Comparisons always succeed.
    ComparesNothing,
    /// Copies that no cause counts.
    HidesPrograms,
    /// Never comes to rest.
    NeverRests,
    /// Refuses to start again.
    CannotRecover,
    /// Panics in an assert of its own.
    Panics,
    /// The core serves whoever came first: a larger queue depth buys a larger share.
    ServesByDepth,
}

/// All bugs, for tests.
pub const ALL_BUGS: [ModelBug; 14] = [
    ModelBug::LosesTailAtPowerCut,
    ModelBug::LosesTailAtDeath,
    ModelBug::ForgetsDeallocations,
    ModelBug::LateWrite,
    ModelBug::Misdirects,
    ModelBug::CrossesVolumes,
    ModelBug::TearsWrites,
    ModelBug::ForgetsCommand,
    ModelBug::ComparesNothing,
    ModelBug::HidesPrograms,
    ModelBug::NeverRests,
    ModelBug::CannotRecover,
    ModelBug::Panics,
    ModelBug::ServesByDepth,
];

impl ModelBug {
    /// Name as a planted bug (`mutant!`).
    pub fn name(self) -> &'static str {
        match self {
            ModelBug::None => "model: none",
            ModelBug::LosesTailAtPowerCut => "model: tail lost at power cut",
            ModelBug::LosesTailAtDeath => "model: tail lost at process death",
            ModelBug::ForgetsDeallocations => "model: deallocate lost",
            ModelBug::LateWrite => "model: late write of an old association",
            ModelBug::Misdirects => "model: write misdirected",
            ModelBug::CrossesVolumes => "model: write to another tenant",
            ModelBug::TearsWrites => "model: end of a write dropped",
            ModelBug::ForgetsCommand => "model: command never answered",
            ModelBug::ComparesNothing => "model: compare always succeeds",
            ModelBug::HidesPrograms => "model: programs not counted",
            ModelBug::NeverRests => "model: never at rest",
            ModelBug::CannotRecover => "model: recovery refuses",
            ModelBug::Panics => "model: assert fires",
            ModelBug::ServesByDepth => "model: shares by depth",
        }
    }

    /// The bug planted in this thread, if it is one of the model's.
    pub fn planted() -> ModelBug {
        let active = |bug: &ModelBug| diecut_units::marks::mutant_is_active(bug.name());
        ALL_BUGS.into_iter().find(active).unwrap_or(ModelBug::None)
    }
}

type Key = (VolumeNumber, u64);

struct Waiting {
    lane: Lane,
    command: HostCommand,
}

/// Time of the core for one command, and for each IU of a write where writes are slow.
const COMMAND_TIME: Span = Span::from_micros(60);
const WRITTEN_IU_TIME: Span = Span::from_micros(120);

/// What each of those that take turns got while they had something to wait for.
struct Turns<K>(BTreeMap<K, Span>);

impl<K: Ord + Copy> Turns<K> {
    /// Whoever begins to wait has no claim to what it did not ask for before; where nobody waits, nobody owes anything.
    fn join(&mut self, who: K, waiting: &[K]) {
        let least = waiting.iter().map(|one| self.of(*one)).min();
        let least = least.or_else(|| self.0.values().max().copied()).unwrap_or(Span::ZERO);
        let own = self.0.entry(who).or_insert(Span::ZERO);
        *own = (*own).max(least);
    }
    fn of(&self, who: K) -> Span {
        self.0.get(&who).copied().unwrap_or(Span::ZERO)
    }
    fn take(&mut self, who: K, time: Span) {
        *self.0.entry(who).or_insert(Span::ZERO) += time;
    }
}

/// The core of a plan that has a slow one: it serves one command after another. Tenants take turns, and connections of a tenant.
/// Commands that wait for it have [`Time::NEVER`] as their end.
struct Core {
    /// The tenant of each lane, and the number of its connections.
    lanes: Vec<(Lane, u64)>,
    slow_writes: bool,
    free_at: Time,
    tenants: Turns<Lane>,
    connections: Turns<(Lane, u64)>,
}

impl Core {
    fn of(plan: &Plan) -> Core {
        let lane = |index: usize| {
            (plan.tenant_of(Lane(index as u8)), u64::from(plan.tenants[index].io_queues.max(1)))
        };
        Core {
            lanes: (0..plan.tenants.len()).map(lane).collect(),
            slow_writes: plan.system.slow_writes,
            free_at: Time::ZERO,
            tenants: Turns(BTreeMap::new()),
            connections: Turns(BTreeMap::new()),
        }
    }
    fn tenant(&self, lane: Lane) -> Lane {
        self.lanes[usize::from(lane.0)].0
    }
    /// The number of a command chooses its connection.
    fn connection(&self, lane: Lane, token: HostToken) -> (Lane, u64) {
        (lane, token.0 % self.lanes[usize::from(lane.0)].1)
    }
    fn time_of(&self, command: &HostCommand) -> Span {
        match command {
            HostCommand::Write(range, ..) if self.slow_writes => {
                COMMAND_TIME + Span(WRITTEN_IU_TIME.0 * u64::from(range.count))
            }
            _ => COMMAND_TIME,
        }
    }
}

/// The model system.
pub struct Model {
    mode: ContentMode,
    bug: ModelBug,
    random: Xoshiro256PlusPlus,
    store: BTreeMap<Key, Vec<u8>>,
    /// What a bug would bring back: time of the change and value before it.
    journal: Vec<(Time, Key, Option<Vec<u8>>, bool)>,
    waiting: BTreeMap<(Time, HostToken), Waiting>,
    late: Vec<(Time, HostCommand)>,
    answers: Vec<HostAnswer>,
    connected_at: BTreeMap<Lane, Time>,
    now: Time,
    operations: u64,
    cut_at: u64,
    powered: bool,
    writes: u64,
    host_ius: u64,
    core: Option<Core>,
}

impl Model {
    /// A fresh system for a plan.
    pub fn new(plan: &Plan, bug: ModelBug) -> Model {
        Model {
            mode: match plan.system.content {
                crate::plan::ContentKind::Bytes => ContentMode::Bytes,
                crate::plan::ContentKind::Tags => ContentMode::Tags,
            },
            bug,
            random: Xoshiro256PlusPlus::seed_from_u64(plan.seed),
            store: BTreeMap::new(),
            journal: Vec::new(),
            waiting: BTreeMap::new(),
            late: Vec::new(),
            answers: Vec::new(),
            connected_at: BTreeMap::new(),
            now: Time::ZERO,
            operations: 0,
            cut_at: u64::MAX,
            powered: true,
            writes: 0,
            host_ius: 0,
            core: plan.system.slow_core.then(|| Core::of(plan)),
        }
    }

    /// Commands that wait for the core, oldest first.
    fn queued(&self) -> impl Iterator<Item = (HostToken, &Waiting)> {
        self.waiting.range((Time::NEVER, HostToken(0))..).map(|((_, token), waiting)| (*token, waiting))
    }

    /// A command comes to the core.
    fn queue(&mut self, lane: Lane, token: HostToken, command: HostCommand) {
        let Some(mut core) = self.core.take() else { panic!("this plan has no core") };
        let (tenant, connection) = (core.tenant(lane), core.connection(lane, token));
        let tenants: Vec<_> = self.queued().map(|(_, one)| core.tenant(one.lane)).collect();
        core.tenants.join(tenant, &tenants);
        let own = self.queued().filter(|(_, one)| core.tenant(one.lane) == tenant);
        let own: Vec<_> = own.map(|(token, one)| core.connection(one.lane, token)).collect();
        core.connections.join(connection, &own);
        self.waiting.insert((Time::NEVER, token), Waiting { lane, command });
        self.core = Some(core);
    }

    /// The core takes the next command if it is free.
    fn serve_next(&mut self) {
        let Some(mut core) = self.core.take() else { return };
        let next = match self.bug {
            ModelBug::ServesByDepth => self.queued().next(),
            _ => self.queued().min_by_key(|(token, one)| {
                let connection = core.connection(one.lane, *token);
                (core.tenants.of(core.tenant(one.lane)), core.connections.of(connection), *token)
            }),
        };
        if let Some((token, waiting)) = next
            && core.free_at <= self.now
        {
            let (time, lane) = (core.time_of(&waiting.command), waiting.lane);
            core.tenants.take(core.tenant(lane), time);
            core.connections.take(core.connection(lane, token), time);
            core.free_at = self.now + time;
            let waiting = self.waiting.remove(&(Time::NEVER, token)).expect("it was queued");
            self.waiting.insert((core.free_at, token), waiting);
        }
        self.core = Some(core);
    }

    fn key(&self, volume: VolumeNumber, iu: u64) -> Key {
        match self.bug {
            ModelBug::Misdirects if iu == 5 => (volume, 6),
            ModelBug::CrossesVolumes if iu == 5 => (VolumeNumber(1), 5),
            _ => (volume, iu),
        }
    }

    fn set(&mut self, key: Key, value: Option<Vec<u8>>) {
        let zeroing = value.is_none();
        let before = match value {
            Some(value) => self.store.insert(key, value),
            None => self.store.remove(&key),
        };
        self.journal.push((self.now, key, before, zeroing));
    }

    /// What a host made unreadable is kept as no content at all.
    fn is_unreadable(&self, range: Range) -> bool {
        range.ius().any(|iu| self.store.get(&(range.volume, iu)).is_some_and(Vec::is_empty))
    }

    fn read(&self, range: Range) -> Vec<u8> {
        let size = self.mode.bytes_per_iu();
        let mut data = Vec::with_capacity(range.count as usize * size);
        for iu in range.ius() {
            match self.store.get(&(range.volume, iu)) {
                Some(bytes) => data.extend_from_slice(bytes),
                None => data.resize(data.len() + size, 0),
            }
        }
        data
    }

    fn execute(&mut self, command: &HostCommand) -> Result<Vec<u8>, HostError> {
        let size = self.mode.bytes_per_iu();
        match command {
            HostCommand::Read(range) | HostCommand::Compare(range, _) | HostCommand::Verify(range)
                if self.is_unreadable(*range) =>
            {
                return Err(HostError::Unrecovered);
            }
            HostCommand::Read(range) => return Ok(self.read(*range)),
            HostCommand::WriteUncorrectable(range) => {
                for iu in range.ius() {
                    self.set(self.key(range.volume, iu), Some(Vec::new()));
                }
            }
            HostCommand::Copy(range, to, _) => {
                let content = self.read(*range);
                for (iu, bytes) in to.ius().zip(content.chunks_exact(size)) {
                    let value = bytes.iter().any(|byte| *byte != 0).then(|| bytes.to_vec());
                    self.set(self.key(to.volume, iu), value);
                }
            }
            HostCommand::Write(range, data, _) => {
                self.writes += 1;
                self.host_ius += u64::from(range.count);
                for (index, iu) in range.ius().enumerate() {
                    let torn = self.bug == ModelBug::TearsWrites
                        && self.writes.is_multiple_of(64)
                        && index > 0
                        && index + 1 == range.count as usize;
                    if !torn {
                        let value = data[index * size..(index + 1) * size].to_vec();
                        self.set(self.key(range.volume, iu), Some(value));
                    }
                }
            }
            HostCommand::Deallocate(range) | HostCommand::WriteZeroes(range, _) => {
                for iu in range.ius() {
                    self.set(self.key(range.volume, iu), None);
                }
            }
            HostCommand::Compare(range, data) => {
                if self.bug != ModelBug::ComparesNothing && self.read(*range) != *data {
                    return Err(HostError::CompareFailure);
                }
            }
            HostCommand::Flush(_) | HostCommand::Verify(_) => {}
            HostCommand::Placed(command) => panic!("{command:?}: the model has no placement handles"),
        }
        Ok(Vec::new())
    }

    fn roll_back(&mut self, since: Time, only_zeroing: bool) {
        for (time, key, before, zeroing) in std::mem::take(&mut self.journal).into_iter().rev() {
            if time < since || (only_zeroing && (!zeroing || self.store.contains_key(&key))) {
                continue;
            }
            match before {
                Some(value) => self.store.insert(key, value),
                None => self.store.remove(&key),
            };
        }
    }
}

impl System for Model {
    fn content_mode(&self) -> ContentMode {
        self.mode
    }
    fn transfer_max_ius(&self) -> u32 {
        32
    }
    fn is_connected(&self, lane: Lane) -> bool {
        self.powered && self.connected_at.get(&lane).is_none_or(|at| *at <= self.now)
    }
    fn submit(&mut self, lane: Lane, token: HostToken, command: HostCommand, now: Time) {
        self.operations += 1;
        if self.operations > self.cut_at {
            self.powered = false;
            return;
        }
        assert!(self.bug != ModelBug::Panics || token.0 != 100, "a planted panic");
        if self.bug == ModelBug::ForgetsCommand && token.0 == 100 {
            return;
        }
        if self.core.is_some() {
            self.queue(lane, token, command);
            return self.serve_next();
        }
        let at = now + Span::from_micros(self.random.random_range(5..500));
        self.waiting.insert((at, token), Waiting { lane, command });
    }
    fn advance(&mut self, now: Time, answers: &mut Vec<HostAnswer>) {
        self.now = now;
        answers.append(&mut self.answers);
        if !self.powered {
            return;
        }
        while let Some(entry) = self.waiting.first_entry() {
            let ((at, token), _) = (*entry.key(), ());
            if at > now {
                break;
            }
            let waiting = entry.remove();
            let result = self.execute(&waiting.command);
            answers.push(HostAnswer { lane: waiting.lane, token, result });
        }
        self.serve_next();
        let (due, later) = std::mem::take(&mut self.late).into_iter().partition(|(at, _)| *at <= now);
        self.late = later;
        let due: Vec<(Time, HostCommand)> = due;
        for (_, command) in due {
            let _ = self.execute(&command);
        }
    }
    fn next_event(&self) -> Time {
        let waiting = self.waiting.first_key_value().map_or(Time::NEVER, |((at, _), _)| *at);
        let connect = self.connected_at.values().filter(|at| **at > self.now).min().copied();
        let late = self.late.iter().map(|(at, _)| *at).min();
        let core = self.core.as_ref().filter(|_| self.queued().next().is_some()).map(|core| core.free_at);
        let others = [connect, late, core].into_iter().flatten();
        others.fold(waiting, Time::min)
    }
    fn disconnect(&mut self, lane: Lane, now: Time) {
        if self.waiting.values().any(|w| w.lane == lane) {
            mark!("model: connection lost with commands under way");
        }
        let lost: Vec<(Time, HostToken)> =
            self.waiting.iter().filter(|(_, w)| w.lane == lane).map(|(k, _)| *k).collect();
        for key in lost {
            let waiting = self.waiting.remove(&key).expect("listed");
            self.answers.push(HostAnswer { lane, token: key.1, result: Err(HostError::ConnectionLost) });
            if self.bug == ModelBug::LateWrite && matches!(waiting.command, HostCommand::Write(..)) {
                self.late.push((now + Span::from_millis(20), waiting.command));
            }
        }
        self.connected_at.insert(lane, now + Span::from_millis(1));
    }
    fn stall(&mut self, lane: Lane, until: Time) {
        let stalled: Vec<(Time, HostToken)> = self
            .waiting
            .iter()
            .filter(|((at, _), w)| w.lane == lane && *at < until)
            .map(|(k, _)| *k)
            .collect();
        for key in stalled {
            let waiting = self.waiting.remove(&key).expect("listed");
            self.waiting.insert((until, key.1), waiting);
        }
    }
    fn crash(&mut self, crash: Crash, now: Time) {
        if !self.waiting.is_empty() {
            mark!("model: crash with commands under way");
        }
        let recent = Time(now.0.saturating_sub(1_000_000));
        match (crash, self.bug) {
            (Crash::PowerCut, ModelBug::LosesTailAtPowerCut)
            | (Crash::ProcessDeath, ModelBug::LosesTailAtDeath) => self.roll_back(recent, false),
            (_, ModelBug::ForgetsDeallocations) => self.roll_back(Time::ZERO, true),
            _ => {}
        }
        self.waiting.clear();
        self.answers.clear();
        self.powered = false;
        if self.operations > self.cut_at {
            self.cut_at = u64::MAX;
        }
    }
    fn power_is_lost(&self) -> bool {
        !self.powered
    }
    fn media_operations(&self) -> u64 {
        self.operations
    }
    fn cut_power_at(&mut self, media_operation: u64) {
        self.cut_at = media_operation;
    }
    fn restart(&mut self, now: Time) -> Result<(), String> {
        if self.bug == ModelBug::CannotRecover {
            return Err("a planted refusal".to_owned());
        }
        self.now = now;
        self.powered = true;
        self.connected_at.clear();
        Ok(())
    }
    fn is_at_rest(&self) -> bool {
        self.bug != ModelBug::NeverRests && self.waiting.is_empty() && self.late.is_empty()
    }
    fn accounting(&self) -> Option<Accounting> {
        let hidden = if self.bug == ModelBug::HidesPrograms { 1 } else { 0 };
        Some(Accounting {
            host_ius: self.host_ius,
            programmed_user_ius: self.host_ius,
            chip_programmed_ius: self.host_ius + hidden,
            ..Accounting::default()
        })
    }
    fn image_hash(&self) -> u64 {
        let hash = self.store.iter().fold(0, |hash, (key, value)| {
            let hash = checksum_append(hash, &[key.0.0]);
            checksum_append(checksum_append(hash, &key.1.to_le_bytes()), value)
        });
        u64::from(hash)
    }
    fn check_invariants(&self) {}
}
