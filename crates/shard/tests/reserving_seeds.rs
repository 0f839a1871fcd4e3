//! Goal: hosts that share a namespace are kept apart as the specification's table says, also through restarts and moves of their tenant; what
//! persists through power loss is as some order of commands left it, with all that was answered, and what does not is gone. Method: seeds
//! with three hosts that register, acquire, preempt, release and clear, read and write at the same time, on one to three shards, with deaths of
//! the process and power cuts; and an oracle with a table of its own, which knows which answers can be.

use crate::herd::{Herd, Host, device};
use crate::reserving::table::{Answer, Request};
use crate::reserving::wire::{answer_of, entry_of};
use crate::reserving::worlds::Worlds;
use diecut_initiator::Token;
use diecut_nvme::reservation::{PREEMPT, PREEMPT_AND_ABORT};
use diecut_shard::control::ControlRequest;
use diecut_spec::Isolation;
use diecut_testing::{Random, planted};
use diecut_units::{Buffer, Time};

const HOSTS: u8 = 3;
/// Keys that hosts choose from, some of them the same.
const KEYS: u64 = 3;
/// Lives of the server in a seed, and commands in one of them at most.
const LIVES: u32 = 5;
const COMMANDS_MAX: u64 = 60;

struct Scene {
    herd: Herd,
    seed: u64,
    shards: u16,
    random: Random,
    hosts: Vec<(Host, Option<(Token, Request)>)>,
    worlds: Worlds,
    /// Commands that were answered, and those of them that a reservation kept out.
    commands: [u64; 2],
    /// Restarts after which something persisted, and after which nothing did.
    restarts: [u64; 2],
}

impl Scene {
    fn new(seed: u64) -> Scene {
        let mut random = Random::of(seed ^ 0x7265_7365);
        let shards = 1 + random.below(3) as u16;
        let mut herd = Herd::new(device(seed), shards, seed, Time::ZERO);
        herd.add_tenant("a", Isolation::Channel, 0);
        let hosts = (1..=HOSTS).map(|number| (Host::with_id("a", number.into(), [number; 16]), None));
        let (hosts, worlds) = (hosts.collect(), Worlds::new());
        Scene { herd, seed, shards, random, hosts, worlds, commands: [0; 2], restarts: [0; 2] }
    }

    fn number(at: usize) -> u8 {
        at as u8 + 1
    }

    fn answered(&mut self, at: usize, answer: &Answer) {
        self.commands[0] += 1;
        self.commands[1] += u64::from(*answer == Answer::Conflict);
        let found = self.worlds.answered(Scene::number(at), answer);
        found.unwrap_or_else(|error| panic!("seed {}: {error}", self.seed));
    }

    fn turn(&mut self) {
        for at in 0..self.hosts.len() {
            let (host, asked) = &mut self.hosts[at];
            host.work(&mut self.herd, false);
            let Some((token, request)) = *asked else { continue };
            if let Some((status, data)) = host.take_answer(token) {
                *asked = None;
                let answer = answer_of(request, status, &data);
                let answer = answer.unwrap_or_else(|error| panic!("seed {}: {error}", self.seed));
                self.answered(at, &answer);
            }
        }
        self.herd.step();
    }

    fn turn_until(&mut self, is_over: impl Fn(&Scene) -> bool) {
        for _ in 0..200_000 {
            if is_over(self) {
                return;
            }
            self.turn();
        }
        panic!("seed {}: it comes to no end", self.seed);
    }

    fn is_idle(&self, at: usize) -> bool {
        let (host, asked) = &self.hosts[at];
        host.is_ready() && asked.is_none()
    }

    fn ask(&mut self, at: usize, request: Request) {
        let (entry, data, to_host_bytes) = entry_of(request);
        let data = data.map(|bytes| Buffer::copy_from(&bytes));
        self.worlds.asked(Scene::number(at), request);
        let (host, asked) = &mut self.hosts[at];
        if matches!(request, Request::SetPersistence(_)) {
            let (status, data) = host.admin_command(&mut self.herd, entry, None, 0);
            let answer = answer_of(request, status, &data).unwrap();
            return self.answered(at, &answer);
        }
        *asked = Some((host.begin_io(entry, data, to_host_bytes), request));
    }

    fn step(&mut self) {
        self.turn_until(|scene| (0..scene.hosts.len()).any(|at| scene.is_idle(at)));
        let idle: Vec<usize> = (0..self.hosts.len()).filter(|at| self.is_idle(*at)).collect();
        let at = idle[self.random.below(idle.len() as u64) as usize];
        let request = self.choose(Scene::number(at));
        self.ask(at, request);
        if self.shards > 1 && self.random.below(30) == 0 {
            let shard = self.random.below(self.shards.into()) as u16;
            self.herd.begin(ControlRequest::MoveTenant { tenant: "a".to_owned(), shard });
        }
        for _ in 0..self.random.below(12) {
            self.turn();
        }
    }

    /// What may be of interest: mostly what could succeed.
    fn choose(&mut self, host: u8) -> Request {
        let random = &mut self.random;
        let table = self.worlds.any();
        let key = |random: &mut Random| {
            if random.below(10) == 0 { random.below(KEYS + 1) } else { 1 + random.below(KEYS) }
        };
        let own = table.keys.get(&host).copied();
        let current = if random.below(10) > 0 { own.unwrap_or(1) } else { key(random) };
        let kind = 1 + random.below(6) as u8;
        let held = if table.kind > 0 && random.below(10) > 0 { table.kind } else { kind };
        let ignores_key = random.below(4) == 0;
        match random.below(100) {
            0..16 => {
                let cptpl = [0, 0, 3, 3, 2][random.below(5) as usize];
                Request::Register { key: key(random), cptpl }
            }
            16..20 => Request::Unregister { current, ignores_key },
            20..26 => Request::Replace { current, key: key(random), ignores_key },
            26..42 => Request::Acquire { current, kind },
            42..54 => {
                let action = if random.below(2) == 0 { PREEMPT } else { PREEMPT_AND_ABORT };
                Request::Preempt { action, current, key: key(random), kind }
            }
            54..60 => Request::Release { current, kind: held },
            60..62 => Request::Clear { current },
            62..66 => Request::SetPersistence(random.below(4) > 0),
            66..76 => Request::Read,
            76..90 => Request::Write,
            _ => Request::Report,
        }
    }

    /// A host looks at what there is: no world but one is left.
    fn report(&mut self) {
        self.turn_until(|scene| scene.is_idle(0));
        self.ask(0, Request::Report);
        self.turn_until(|scene| scene.hosts.iter().all(|(_, asked)| asked.is_none()));
        assert_eq!(self.worlds.count(), 1, "seed {}: a report leaves several tables", self.seed);
        let persists = self.worlds.any().persists;
        self.restarts[usize::from(!persists)] += 1;
    }

    /// The process dies, or the power goes.
    fn restart(mut self) -> Scene {
        for (host, asked) in &mut self.hosts {
            host.server_died();
            *asked = None;
        }
        self.worlds.lost_power();
        let (device, now) = self.herd.end(self.random.below(2) == 0);
        self.shards = 1 + self.random.below(3) as u16;
        let herd = Herd::new(device, self.shards, self.seed ^ now.0, now);
        Scene { herd, ..self }
    }
}

fn play(seed: u64) -> ([u64; 2], [u64; 2]) {
    let mut scene = Scene::new(seed);
    for _ in 0..LIVES {
        for _ in 0..1 + scene.random.below(COMMANDS_MAX) {
            scene.step();
        }
        scene = scene.restart();
        scene.report();
    }
    (scene.commands, scene.restarts)
}

fn play_all(seeds: u64) {
    let (mut commands, mut restarts) = ([0; 2], [0; 2]);
    for seed in 0..seeds {
        let of_seed = play(seed);
        (0..2).for_each(|kind| commands[kind] += of_seed.0[kind]);
        (0..2).for_each(|kind| restarts[kind] += of_seed.1[kind]);
    }
    let is_enough =
        commands[0] > 30 * seeds && commands[1] > 3 * seeds && restarts.iter().all(|one| *one > seeds / 4);
    assert!(is_enough, "{commands:?} {restarts:?}");
}

#[test]
fn hosts_are_kept_apart_as_the_table_says() {
    play_all(40);
}

/// The test above fails where a bug is planted: the oracle sees what it is there for.
#[test]
fn planted_bugs_are_noticed() {
    for bug in [
        "nvmf: reservations let everyone in",
        "nvmf: reservations are answered before they are durable",
        "nvmf: changes that come meanwhile are answered with the first",
        "shard: reservations are not restored",
    ] {
        planted::is_noticed(bug, || play_all(40));
    }
}
