//! Hosts that want the server down: each attack holds what it can get while a good tenant works, and the server's memory is
//! watched.
//!
//! [`run`] measures the good tenant alone, then under each attack, and waits after the last one until memory has gone back. It
//! judges nothing: whoever calls it says what is too much. Everything goes to an address that the caller names, which is the
//! loopback interface in our tests.

#![forbid(unsafe_code)]
#![allow(clippy::disallowed_methods, reason = "hosts on real sockets")]

mod wire;

pub use wire::{Identity, Wire, controller};

use diecut_load::LoadSpec;
use diecut_load::drive::{DriveSettings, Endpoint};
use diecut_nvme::tcp::{Digests, InitializeRequest};
use diecut_nvme::{DISCOVERY_SUBSYSTEM_NQN, QualifiedName};
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use zerocopy::IntoBytes;

/// A way to hurt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attack {
    /// Queues that ask for much and read nothing.
    ReadNothing,
    /// Queues that are asked for their data and never send them.
    SendNothing,
    /// Answers without data, taken so slowly that some always wait.
    NeverEmpty,
    /// Capsules with data that stop before their end.
    PartialCapsules,
    /// Connections that say nothing, a part of the first message, or a byte now and then.
    HalfOpen,
    /// Connects to the attacked subsystem that are never enabled.
    Connects,
    /// The same to discovery.
    Discovery,
}

impl Attack {
    /// All of them.
    pub const ALL: [Attack; 7] = [
        Attack::ReadNothing,
        Attack::SendNothing,
        Attack::NeverEmpty,
        Attack::PartialCapsules,
        Attack::HalfOpen,
        Attack::Connects,
        Attack::Discovery,
    ];
}

/// What is attacked, and how hard.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Where the server listens.
    pub address: SocketAddr,
    /// Its process, on this machine.
    pub pid: u32,
    /// Subsystem of the good tenant, with one namespace.
    pub good: QualifiedName,
    /// Subsystem that the hostile hosts may use, with one namespace.
    pub attacked: QualifiedName,
    /// Attacks, one after the other.
    pub attacks: Vec<Attack>,
    /// Connections of one attack.
    pub connections: usize,
    /// One measurement of the good tenant.
    pub window: Duration,
    /// Measurements without an attack, and under each.
    pub windows: usize,
    /// How long memory may take to go back.
    pub patience: Duration,
}

/// The good tenant's latency in one situation.
#[derive(Clone, Debug)]
pub struct Measurement {
    /// The attack; none: it was alone.
    pub attack: Option<Attack>,
    /// p99 of reads in microseconds, the median of the windows.
    pub p99_us: f64,
    /// Operations per second, likewise.
    pub operations_per_second: f64,
    /// Commands that failed, and loads that could not run.
    pub errors: u64,
    /// Connections that the attack got.
    pub connections: usize,
    /// Most anonymous memory of the server so far, in bytes.
    pub memory_most_bytes: u64,
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// In the order of the plan, without an attack first.
    pub measurements: Vec<Measurement>,
    /// Anonymous memory of the server before, at most, and when it had gone back (or the patience ended).
    pub memory_before_bytes: u64,
    /// At most.
    pub memory_most_bytes: u64,
    /// Afterwards.
    pub memory_after_bytes: u64,
}

/// RssAnon of a process in bytes.
///
/// # Errors
/// The process is gone.
pub fn anonymous_bytes(pid: u32) -> io::Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.map(|kib| kib << 10).ok_or_else(|| io::Error::other("no RssAnon: the server has died"))
}

fn name(text: &str) -> QualifiedName {
    QualifiedName::new(text).expect("names of ours are right")
}

/// A host by number.
fn identity(subsystem: &QualifiedName, number: usize) -> Identity {
    let mut host_id = [0xBA; 16];
    host_id[..8].copy_from_slice(&(number as u64 + 1).to_le_bytes());
    Identity {
        subsystem: subsystem.clone(),
        host: name(&format!("nqn.2026-11.example:bad-{number}")),
        host_id,
    }
}

/// Takes connections until there are enough, or the server gives no more for a while.
fn gather(plan: &Plan, mut one: impl FnMut(usize) -> io::Result<Vec<Wire>>) -> Vec<Wire> {
    let (mut wires, mut refused) = (Vec::new(), 0);
    for number in 0.. {
        if wires.len() >= plan.connections || refused >= 16 {
            break;
        }
        match one(number) {
            Ok(more) if !more.is_empty() => wires.extend(more),
            Ok(_) | Err(_) => refused += 1,
        }
    }
    wires
}

/// Queues of as many hosts as needed, each of which has sent what `say` says.
fn queues(plan: &Plan, say: impl Fn(&mut Wire) -> Vec<Vec<u8>>) -> Vec<Wire> {
    gather(plan, |number| {
        let mut wires = controller(plan.address, &identity(&plan.attacked, number), 15, 128)?;
        for wire in wires.iter_mut().skip(1) {
            for bytes in say(wire) {
                // A stream that is full has taken what it takes.
                if wire.send(&bytes).is_err() {
                    break;
                }
            }
        }
        Ok(wires)
    })
}

/// Takes what an attack takes, and holds it.
fn begin(plan: &Plan, attack: Attack) -> Vec<Wire> {
    match attack {
        Attack::ReadNothing => queues(plan, |wire| (0..120).map(|_| wire.read_command(64)).collect()),
        Attack::SendNothing => queues(plan, |wire| (0..120).map(|_| wire.write_command(64)).collect()),
        Attack::NeverEmpty => queues(plan, |wire| (0..100).map(|_| wire.flush_command()).collect()),
        Attack::PartialCapsules => queues(plan, |wire| {
            let mut bytes = wire.in_capsule_command(2);
            bytes.truncate(bytes.len() - 100);
            vec![bytes]
        }),
        Attack::HalfOpen => gather(plan, |number| {
            let mut wire = Wire::open(plan.address)?;
            let request = InitializeRequest::new(Digests::NONE);
            match number % 3 {
                0 => {}
                1 => wire.send(&request.as_bytes()[..5])?,
                _ => wire.initialize()?,
            }
            Ok(vec![wire])
        }),
        Attack::Connects => gather(plan, |number| {
            let mut wire = Wire::open(plan.address)?;
            wire.initialize()?;
            let id = wire.connect(&identity(&plan.attacked, number), 0, 32, 0xFFFF)?;
            Ok(id.map(|_| wire).into_iter().collect())
        }),
        Attack::Discovery => gather(plan, |number| {
            let mut wire = Wire::open(plan.address)?;
            wire.initialize()?;
            let id = wire.connect(&identity(&name(DISCOVERY_SUBSYSTEM_NQN), number), 0, 32, 0xFFFF)?;
            Ok(id.map(|_| wire).into_iter().collect())
        }),
    }
}

/// What an attack goes on doing with what it holds, until told to stop.
fn go_on(attack: Attack, wires: &mut Vec<Wire>, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        match attack {
            // Takes some answers and asks for as many: some always wait.
            Attack::NeverEmpty => wires.retain_mut(|wire| {
                if wire.is_admin() {
                    return true;
                }
                let more: Vec<u8> = (0..50).flat_map(|_| wire.flush_command()).collect();
                wire.take(50 * 24).is_ok() && wire.send(&more).is_ok()
            }),
            Attack::HalfOpen => wires.iter_mut().for_each(|wire| drop(wire.send(&[0]))),
            _ => {}
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// The good tenant works, several times.
fn measure(plan: &Plan, attack: Option<Attack>, connections: usize, most: &AtomicU64) -> Measurement {
    let endpoint = Endpoint {
        address: plan.address,
        subsystem: plan.good.clone(),
        host: name("nqn.2026-11.example:good"),
        host_id: [0x60; 16],
        nsid: None,
        digests: Digests::NONE,
    };
    let spec = LoadSpec {
        depth: 4,
        read_percent: 70,
        ramp_ns: 100_000_000,
        runtime_ns: plan.window.as_nanos() as u64,
        size_bytes: 1 << 20,
        ..LoadSpec::default()
    };
    let (mut p99s, mut rates, mut errors) = (Vec::new(), Vec::new(), 0);
    for _ in 0..plan.windows {
        match diecut_load::drive::run(&endpoint, &spec, DriveSettings::default()) {
            Ok(report) => {
                errors += report.errors();
                p99s.push(report.read.as_ref().map_or(f64::NAN, |read| read.p99_us));
                rates.push(report.operations_per_second());
            }
            Err(error) => {
                eprintln!("the good tenant's load failed: {error}");
                errors += 1;
            }
        }
    }
    Measurement {
        attack,
        p99_us: median(p99s),
        operations_per_second: median(rates),
        errors,
        connections,
        memory_most_bytes: most.load(Ordering::Relaxed),
    }
}

/// Plays the plan.
///
/// # Errors
/// The server died.
pub fn run(plan: &Plan) -> io::Result<Outcome> {
    let memory_before_bytes = anonymous_bytes(plan.pid)?;
    let (most, over) = (AtomicU64::new(memory_before_bytes), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                most.fetch_max(anonymous_bytes(plan.pid).unwrap_or(0), Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(10));
            }
        });
        let mut measurements = vec![measure(plan, None, 0, &most)];
        for &attack in &plan.attacks {
            let mut wires = begin(plan, attack);
            let (connections, stop) = (wires.len(), AtomicBool::new(false));
            let measurement = std::thread::scope(|attacker| {
                attacker.spawn(|| go_on(attack, &mut wires, &stop));
                let measurement = measure(plan, Some(attack), connections, &most);
                stop.store(true, Ordering::Relaxed);
                measurement
            });
            measurements.push(measurement);
        }
        let end = Instant::now() + plan.patience;
        let is_back = |now: u64| now <= memory_before_bytes + (24 << 20);
        while Instant::now() < end && !is_back(anonymous_bytes(plan.pid).unwrap_or(0)) {
            std::thread::sleep(Duration::from_millis(100));
        }
        over.store(true, Ordering::Relaxed);
        Ok(Outcome {
            measurements,
            memory_before_bytes,
            memory_most_bytes: most.load(Ordering::Relaxed),
            memory_after_bytes: anonymous_bytes(plan.pid)?,
        })
    })
}
