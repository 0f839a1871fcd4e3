//! How long hosts wait while their tenant changes its shard (`diecut tenant move`), in virtual time: a host reads over NVMe/TCP
//! while its tenant goes to the other one of two shards and back, on flash with the times of `cnex-1tb`.
//!
//! Cores cost what [`CostModel`] says, a connection that arrives as much as a message; what is copied when channels change hands
//! costs no virtual time, that is for the real clock (`diecut bench` beside `diecut tenant move`).

mod host;

use crate::shards::{Carried, Shards, arrival};
use diecut_devices::{Backing, Device, Options, Profile};
use diecut_media::Media;
use diecut_shard::control::*;
use diecut_shard::drive::{Action, Event};
use diecut_shard::{CostModel, PoolConfig, ShardConfig};
use diecut_spec::{Isolation, Size};
use diecut_units::{IU_SIZE_BYTES, Span, Time};
use host::{Host, Task};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

const SHARDS: u16 = 2;
const TENANT: &str = "moves";
const SUBSYSTEM: &str = "nqn.2026-11.org.diecut:moves";
/// Channels of the device; the tenant has one of its own.
const CHANNELS: u16 = 4;
/// What waking the thread of another shard takes; a choice.
const BETWEEN_SHARDS: Span = Span::from_micros(20);
/// Protected memory of each store: it holds tags; this is room for as many chunks (15 of 128 IUs, a slot's header and a
/// chunk's head each) as the server's 8 MiB have for content.
const STAGING_BYTES: usize = 15 * (64 + 4096 + 128 * 8);
const OVER_PROVISIONING_PERMILLE: u32 = 280;
/// Hosts are looked at for so long after a move was answered.
const AFTERWARDS: Span = Span::from_millis(5);
/// A write of the fill, in blocks.
const FILL_BLOCKS: u32 = 64;

/// What is measured.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Reads under way at once.
    pub depth: u16,
    /// Random writes of the same tenant under way at once, on a connection of their own.
    pub writes_depth: u16,
    /// Size of the tenant's volume, all of it written before.
    pub mapped_bytes: u64,
    /// Hosts of the tenant; all but the first only stay connected.
    pub hosts: u16,
    /// I/O queues of each host, each a connection, besides the one of the admin queue; two at least.
    pub io_queues: u16,
    /// Moves, there and back in turn.
    pub moves: u32,
    /// Of random places and moments.
    pub seed: u64,
}

/// Longest gaps between answers, over several windows of time, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Gaps {
    /// The middle one of the windows.
    pub median_us: f64,
    /// Of all windows.
    pub longest_us: f64,
}

impl Gaps {
    fn of(mut gaps: Vec<Span>) -> Gaps {
        gaps.sort_unstable();
        let us = |gap: Option<&Span>| gap.map_or(0.0, |gap| gap.0 as f64 / 1e3);
        Gaps { median_us: us(gaps.get(gaps.len() / 2)), longest_us: us(gaps.last()) }
    }
}

/// What came out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outcome {
    /// Of reads without a move.
    pub still: Gaps,
    /// Of reads while the tenant moves.
    pub moving: Gaps,
    /// Of writes without a move; nothing if there are none.
    pub writes_still: Gaps,
    /// Of writes while the tenant moves.
    pub writes_moving: Gaps,
    /// From the administrator's request to its answer.
    pub answered: Gaps,
}

struct Scene {
    shards: Shards,
    hosts: Vec<Host>,
    now: Time,
    random: Xoshiro256PlusPlus,
    answer: Option<ControlResponse>,
}

/// Measures one setting.
///
/// # Errors
/// What could not be set up.
///
/// # Panics
/// If the setting has no host, or no second queue for writes.
pub fn measure(setting: &Setting) -> Result<Outcome, String> {
    assert!(setting.hosts >= 1 && setting.io_queues >= 2, "{setting:?}");
    let mut scene = Scene::new(setting)?;
    let lbas = setting.mapped_bytes / IU_SIZE_BYTES as u64;
    scene.hosts[0].set_task(0, Task::Fill(FILL_BLOCKS));
    scene.run_until(|scene| scene.hosts[0].is_idle());
    assert!(lbas > 0, "something is mapped");
    scene.hosts[0].set_task(0, Task::Read(setting.depth));
    scene.hosts[0].set_task(1, Task::Write(setting.writes_depth));
    scene.run_for(Span::from_millis(50));
    let (mut still, mut moving, mut answered) =
        ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()], Vec::new());
    let lanes = if setting.writes_depth > 0 { 0..2 } else { 0..1 };
    let keep = |scene: &Scene, gaps: &mut [Vec<Span>; 2]| {
        lanes.clone().for_each(|lane| gaps[lane].push(scene.longest_gap(lane)));
    };
    for turn in 0..setting.moves {
        scene.run_to_any_moment();
        scene.begin_window();
        let (start, to) = (scene.now, home(turn + 1));
        scene.ask(ControlRequest::MoveTenant { tenant: TENANT.to_owned(), shard: to })?;
        answered.push(scene.now.since(start));
        scene.run_for(AFTERWARDS);
        // A gap ends with an answer, however late.
        let (answered_at, lanes) = (start + *answered.last().expect("just pushed"), lanes.clone());
        scene.run_until(|scene| lanes.clone().all(|lane| scene.hosts[0].has_ended_since(lane, answered_at)));
        let length = scene.now.since(start);
        keep(&scene, &mut moving);
        scene.run_to_any_moment();
        scene.begin_window();
        scene.run_for(length);
        keep(&scene, &mut still);
    }
    let [still, writes_still] = still.map(Gaps::of);
    let [moving, writes_moving] = moving.map(Gaps::of);
    Ok(Outcome { still, moving, writes_still, writes_moving, answered: Gaps::of(answered) })
}

/// Where the tenant is after so many moves: the first one of a server chooses shard 0.
fn home(moves: u32) -> u16 {
    (moves % u32::from(SHARDS)) as u16
}

impl Scene {
    fn new(setting: &Setting) -> Result<Scene, String> {
        let mut profile = Profile::named("cnex-1tb").map_err(|error| error.to_string())?;
        profile.geometry.channels = CHANNELS;
        profile.protected_memory_bytes = 64 << 20;
        profile.host.link_mb_per_s = 6_400.0;
        profile.host.latency_us = 5.0;
        let options = Options { backing: Backing::Tags, seed: setting.seed, ..Options::default() };
        let device = Device::create(&profile, options).map_err(|error| error.to_string())?;
        let config = ShardConfig {
            pool: PoolConfig::suited_to(device.geometry()),
            cost_model: Some(CostModel::default()),
            staging_bytes_per_vssd: STAGING_BYTES,
            ..ShardConfig::default()
        };
        let mut shards = Shards::new(device, &config, SHARDS, setting.seed, Time::ZERO);
        shards.make_steady(BETWEEN_SHARDS);
        let mut scene = Scene {
            shards,
            hosts: Vec::new(),
            now: Time::ZERO,
            random: Xoshiro256PlusPlus::seed_from_u64(setting.seed),
            answer: None,
        };
        let name = || TENANT.to_owned();
        scene.ask(ControlRequest::CreateTenant(TenantSpec::new(&name())))?;
        let vssd = VssdSpec::new(TENANT, TENANT, Isolation::Channel, OVER_PROVISIONING_PERMILLE);
        scene.ask(ControlRequest::CreateVssd(vssd))?;
        scene.ask(ControlRequest::CreateVolume(VolumeSpec {
            name: name(),
            vssd: name(),
            size: Size(setting.mapped_bytes),
            uuid: None,
            nguid: None,
            zones: Default::default(),
            placement: Vec::new(),
        }))?;
        scene.ask(ControlRequest::CreateSubsystem(SubsystemSpec {
            nqn: SUBSYSTEM.to_owned(),
            tenant: name(),
            serial: None,
            model: None,
            allow_any_host: true,
            allowed_hosts: Vec::new(),
            paths: Vec::new(),
            namespaces: vec![NamespaceSpec::new(1, TENANT)],
        }))?;
        let lbas = setting.mapped_bytes / IU_SIZE_BYTES as u64;
        scene.hosts =
            (1..=setting.hosts).map(|number| Host::new(number, SUBSYSTEM, lbas, setting.io_queues)).collect();
        scene.run_until(|scene| scene.hosts.iter().all(Host::is_up));
        Ok(scene)
    }

    /// Asks the administrator's part of the first shard, and waits for the answer.
    fn ask(&mut self, request: ControlRequest) -> Result<(), String> {
        let event = Event::Control { token: ControlToken(1), request: Box::new(request) };
        self.tell(0, event);
        self.run_until(|scene| scene.answer.is_some());
        match self.answer.take() {
            Some(ControlResponse::Done | ControlResponse::Unchanged) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    }

    fn tell(&mut self, shard: u16, event: Event) {
        let mut actions = Vec::new();
        self.shards.handle(shard, event, self.now, &mut actions);
        self.act(shard, actions);
    }

    fn act(&mut self, shard: u16, actions: Vec<Action>) {
        'actions: for mut action in actions {
            for host in &mut self.hosts {
                match host.act(shard, action, &mut self.shards, self.now) {
                    None => continue 'actions,
                    Some(other) => action = other,
                }
            }
            match action {
                Action::Answer { response, .. } => self.answer = Some(*response),
                Action::Tell { to, message } => {
                    self.shards.carry(shard, to.0, Carried::Told(message), self.now);
                }
                Action::Notice(_) => {}
                other => panic!("a shard wants {other:?} of nobody"),
            }
        }
    }

    /// Carries out all that is due now.
    fn settle_now(&mut self) {
        loop {
            let mut worked = false;
            while let Some((from, to, carried)) = self.shards.take_arrived(self.now) {
                if let Carried::Adopted(connection, _) = &carried {
                    self.hosts.iter_mut().for_each(|host| host.adopted(*connection, to));
                }
                self.tell(to, arrival(from, carried));
                worked = true;
            }
            for at in 0..self.hosts.len() {
                worked |= self.hosts[at].work(self.now, &mut self.random);
                while let Some((shard, connection)) = self.hosts[at].newcomer() {
                    self.tell(shard, Event::Accepted { connection, local: None });
                    worked = true;
                }
                while let Some((shard, connection, bytes)) = self.hosts[at].arrived(&self.shards, self.now) {
                    self.bring(at, shard, connection, &bytes);
                    worked = true;
                }
            }
            if self.shards.deadline() <= self.now {
                worked = true;
                for shard in self.shards.order() {
                    let mut actions = Vec::new();
                    self.shards.work(shard, self.now, &mut actions);
                    self.act(shard, actions);
                }
            }
            if !worked {
                return;
            }
        }
    }

    /// Bytes reach a shard, in a window for them if it has one, as the reactor does.
    fn bring(
        &mut self,
        host: usize,
        shard: u16,
        connection: diecut_shard::drive::ConnectionId,
        bytes: &[u8],
    ) {
        let mut rest = bytes;
        while !rest.is_empty() {
            if self.hosts[host].shard_of(connection) != Some(shard) {
                return self.hosts[host].give_back(connection, rest, self.now);
            }
            let (event, length) = match self.shards.receive_window(shard, connection) {
                Some(window) => {
                    let len_bytes = window.len().min(rest.len());
                    window[..len_bytes].copy_from_slice(&rest[..len_bytes]);
                    (Event::ReceivedInWindow { connection, len_bytes }, len_bytes)
                }
                None => {
                    let bytes = diecut_units::Buffer::copy_from(rest);
                    (Event::Received { connection, bytes }, rest.len())
                }
            };
            self.tell(shard, event);
            rest = &rest[length..];
        }
    }

    fn deadline(&self) -> Time {
        let hosts = self.hosts.iter().map(|host| host.deadline(&self.shards));
        hosts.fold(self.shards.deadline().min(self.shards.next_arrival()), Time::min)
    }

    fn run_until(&mut self, done: impl Fn(&Scene) -> bool) {
        loop {
            self.settle_now();
            if done(self) {
                return;
            }
            let next = self.deadline();
            assert!(next != Time::NEVER, "something is waited for that never comes");
            self.now = self.now.max(next);
        }
    }

    fn run_for(&mut self, length: Span) {
        let end = self.now + length;
        loop {
            self.settle_now();
            let next = self.deadline();
            if next > end {
                self.now = end;
                return;
            }
            self.now = self.now.max(next);
        }
    }

    /// Goes on to a moment that has nothing to do with what was before.
    fn run_to_any_moment(&mut self) {
        let phase = Span(self.random.random_range(0..5_000_000));
        self.run_for(Span::from_millis(5) + phase);
    }

    /// A window begins: gaps before it do not count.
    fn begin_window(&mut self) {
        for ended in &mut self.hosts[0].ended {
            ended.drain(..ended.len().saturating_sub(1));
        }
    }

    /// The longest time between two commands of a queue of the first host that ended, since the window began or the command
    /// before it, until now.
    fn longest_gap(&self, queue: usize) -> Span {
        let ended = &self.hosts[0].ended[queue];
        let between = ended.windows(2).map(|pair| pair[1].since(pair[0])).max().unwrap_or(Span::ZERO);
        between.max(self.now.since(*ended.last().expect("commands end before a window")))
    }
}

#[cfg(test)]
mod test {
    use super::*;

    fn setting() -> Setting {
        Setting {
            depth: 1,
            writes_depth: 0,
            mapped_bytes: 64 << 20,
            hosts: 1,
            io_queues: 2,
            moves: 6,
            seed: 1,
        }
    }

    /// Goal: a move takes a reader's time for its messages and its connections, whatever is mapped. Method: the same moves with
    /// sixteen times as much, and with many connections more, in virtual time.
    #[test]
    fn the_gap_is_messages_and_connections_not_content() {
        let small = measure(&setting()).unwrap();
        let large = measure(&Setting { mapped_bytes: 1 << 30, ..setting() }).unwrap();
        let many = measure(&Setting { io_queues: 64, hosts: 4, ..setting() }).unwrap();
        // Six messages from shard to shard, and the read that waited.
        assert!((100.0..400.0).contains(&small.moving.longest_us), "{small:?}");
        assert!(large.moving.longest_us < small.moving.longest_us * 1.2, "{large:?} after {small:?}");
        // Each connection that arrives costs the core a message.
        assert!(many.moving.median_us < small.moving.median_us + 260.0 * 10.0, "{many:?}");
        assert!(small.still.longest_us < small.moving.median_us, "{small:?}");
    }

    /// Goal: a move beside writes costs reads a program or two, not all that stores have staged. Method: a writer that keeps staging
    /// full, whose chunks take tens of milliseconds of the dies.
    #[test]
    fn what_is_staged_is_not_waited_for() {
        let outcome = measure(&Setting { writes_depth: 32, moves: 12, ..setting() }).unwrap();
        assert!(outcome.moving.median_us < 12_000.0 && outcome.moving.longest_us < 20_000.0, "{outcome:?}");
        assert!(outcome.writes_moving.median_us < 16_000.0, "{outcome:?}");
        // The dies had much to do: it is the move that waited, and hosts were served meanwhile.
        assert!(outcome.answered.median_us > 25_000.0, "{outcome:?}");
    }

    /// Goal: figures that can be compared: the same setting gives the same ones.
    #[test]
    fn the_same_setting_gives_the_same_gaps() {
        let busy = Setting { depth: 32, writes_depth: 8, ..setting() };
        assert_eq!(measure(&busy).unwrap(), measure(&busy).unwrap());
        assert_ne!(measure(&busy).unwrap(), measure(&Setting { seed: 2, ..busy }).unwrap());
    }
}
