//! A drive that is a file: the server on it, beside fio with io_uring past the page cache on another file of the same size, in one run.
//!
//! Rows without a network drive the shipped shard with bytes of NVMe/TCP, in one thread with its host and with the ring of the reactor;
//! no socket is in between. Rows over TCP are the shipped server and the load of `diecut bench`, on one connection. Nobody is
//! kept on a core.

mod fio;
mod restart;
mod served;

use super::cases::SuiteSettings;
use super::row::{Row, Target, median};
use super::servers::{STACK, drive_shard, stack_requests_of};
use crate::counted::carrier::{Carrier, processor_time};
use crate::counted::rows::{anywhere, content, only_vssd};
use crate::counted::wire::{Ask, Line, Wire, Writes};
use diecut_devices::{Device, DriveShape};
use diecut_load::{LoadSpec, Pattern};
use diecut_reactor::{DriveRing, PageCache};
use diecut_shard::Shard;
use fio::{Fio, Job, Syncs};
use served::Served;
use std::fs::File;
use std::path::Path;
use std::time::Duration;

type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Of each file.
const FILE_BYTES: u64 = 4 << 30;
/// What is read and written: the volume, and as much of fio's file.
const VOLUME_BYTES: u64 = 2 << 30;
/// How the drive is cut: as many segments as the volume of a large drive has, so that the cleaner has a choice.
const LANES: u16 = 4;
const BLOCK_SIZE_BYTES: u64 = 4 << 20;
/// Random overwrites of the whole volume before anything is measured.
const CONDITIONING_PASSES: u64 = 2;
/// A disk of a shared machine is less even than its processor: rows take longer than the others.
const LONGER: u64 = 4;
/// Commands under way while the volume is filled.
const FILL_DEPTH: usize = 64;

/// What is done at both ends.
struct Case {
    id: &'static str,
    what: &'static str,
    fio: Job,
    depth: usize,
    writes: Option<Writes>,
    over_tcp: bool,
    target: Wanted,
}

enum Wanted {
    AtLeast(f64),
    /// This over the write amplification of the measured time.
    OverAmplification(f64),
    Nothing,
}

const fn reads(depth: usize) -> Job {
    Job { rw: "randread", depth, jobs: 1, syncs: Syncs::Nothing }
}

const fn synced(jobs: usize, syncs: Syncs) -> Job {
    Job { rw: "randwrite", depth: 1, jobs, syncs }
}

const CASES: [Case; 10] = [
    Case {
        id: "l read QD1",
        what: "random 4 KiB reads, QD1, without a network",
        fio: reads(1),
        depth: 1,
        writes: None,
        over_tcp: false,
        target: Wanted::AtLeast(0.9),
    },
    Case {
        id: "l read QD32",
        what: "the same, QD32",
        fio: reads(32),
        depth: 32,
        writes: None,
        over_tcp: false,
        target: Wanted::AtLeast(0.9),
    },
    Case {
        id: "l tcp QD1",
        what: "random 4 KiB reads, QD1, over NVMe/TCP",
        fio: reads(1),
        depth: 1,
        writes: None,
        over_tcp: true,
        target: Wanted::AtLeast(0.7),
    },
    Case {
        id: "l tcp QD32",
        what: "the same, QD32",
        fio: reads(32),
        depth: 32,
        writes: None,
        over_tcp: true,
        target: Wanted::AtLeast(0.7),
    },
    Case {
        id: "l write QD32",
        what: "random 4 KiB writes into the volatile cache, QD32",
        fio: Job { rw: "randwrite", depth: 32, jobs: 1, syncs: Syncs::Nothing },
        depth: 32,
        writes: Some(Writes::Block),
        over_tcp: false,
        target: Wanted::OverAmplification(0.9),
    },
    Case {
        id: "l flush QD1",
        what: "random 4 KiB writes, each flushed before the next one; fio with fsync=1",
        fio: synced(1, Syncs::Fsync),
        depth: 1,
        writes: Some(Writes::Flushed),
        over_tcp: false,
        target: Wanted::AtLeast(0.5),
    },
    Case {
        id: "l flush QD1 data",
        what: "the same; fio with fdatasync=1, which leaves the times of the file alone, as we do",
        fio: synced(1, Syncs::Fdatasync),
        depth: 1,
        writes: Some(Writes::Flushed),
        over_tcp: false,
        target: Wanted::Nothing,
    },
    Case {
        id: "l flush QD32",
        what: "the same, 32 under way; fio with 32 jobs and fsync=1",
        fio: synced(32, Syncs::Fsync),
        depth: 32,
        writes: Some(Writes::Flushed),
        over_tcp: false,
        target: Wanted::AtLeast(1.0),
    },
    Case {
        id: "l flush QD32 data",
        what: "the same; fio with 32 jobs and fdatasync=1",
        fio: synced(32, Syncs::Fdatasync),
        depth: 32,
        writes: Some(Writes::Flushed),
        over_tcp: false,
        target: Wanted::Nothing,
    },
    Case {
        id: "l fua QD32",
        what: "random 4 KiB writes with FUA, 32 under way; fio with 32 jobs and fsync=1",
        fio: synced(32, Syncs::Fsync),
        depth: 32,
        writes: Some(Writes::Through),
        over_tcp: false,
        target: Wanted::Nothing,
    },
];

/// Takes all room of a new file, as a drive has it.
fn allocate(path: &Path, size_bytes: u64) -> Outcome<File> {
    use std::io::Write;
    let mut file = File::options().read(true).write(true).create_new(true).open(path)?;
    // Written through: what only has its place is written once more by the file system, at the first write.
    let zeros = vec![0; 1 << 20];
    for _ in 0..size_bytes / zeros.len() as u64 {
        file.write_all(&zeros)?;
    }
    file.sync_all()?;
    Ok(file)
}

/// What our side of a row came to.
struct Ours {
    /// Operations a second.
    rate: f64,
    /// Processor time of an operation: of the server, and of its host where that is the same thread.
    processor_us: f64,
    /// What was programmed of what the host wrote.
    amplification: f64,
}

/// The shipped shard on a file, and its only host.
struct Rig {
    wire: Wire<Shard<Device>>,
    line: Line,
    ask: Ask,
}

impl Rig {
    fn new(folder: &Path) -> Outcome<Rig> {
        let file = allocate(&folder.join("own"), FILE_BYTES)?;
        let ring = DriveRing::new(&file, PageCache::Bypassed)?;
        let shape = DriveShape::plan(FILE_BYTES, LANES, Some(BLOCK_SIZE_BYTES))?;
        let mut wire = Wire::on(drive_shard(shape, true), Carrier::Ring(Box::new(ring)));
        wire.open()?;
        for request in stack_requests_of(VOLUME_BYTES, LANES) {
            wire.ask(request)?;
        }
        let line = wire.connect(STACK, 1, 1, 128)?.remove(0);
        let mut rig = Rig { wire, line, ask: anywhere(VOLUME_BYTES / 4096) };
        let lbas = rig.ask.lbas;
        let in_order = Ask { in_order: true, content: Some(content()), batch: FILL_DEPTH, ..rig.ask.clone() };
        let overwrite = Ask { in_order: false, ..in_order.clone() };
        for (ask, blocks) in [(in_order, lbas), (overwrite, CONDITIONING_PASSES * lbas)] {
            let line = std::slice::from_mut(&mut rig.line);
            rig.wire.run(line, &[ask], blocks / FILL_DEPTH as u64)?;
        }
        Ok(rig)
    }

    fn run(&mut self, case: &Case, duration: Duration) -> Outcome<Ours> {
        let before = self.traffic()?;
        let begun = processor_time();
        let content = case.writes.map(|_| content());
        let ask = Ask { content, writes: case.writes.unwrap_or(Writes::Block), ..self.ask.clone() };
        let (operations, seconds) = self.wire.run_for(&mut self.line, &ask, case.depth, duration)?;
        let processor_us = (processor_time() - begun).as_secs_f64() * 1e6 / operations.max(1) as f64;
        let after = self.traffic()?;
        let amplification = (after.1 - before.1) as f64 / ((after.0 - before.0) as f64).max(1.0);
        Ok(Ours { rate: operations as f64 / seconds, processor_us, amplification })
    }

    /// Bytes that the host wrote, and that were programmed.
    fn traffic(&mut self) -> Outcome<(u64, u64)> {
        let traffic = only_vssd(&mut self.wire)?.traffic;
        let programmed = traffic.programmed_user_bytes
            + traffic.programmed_cleaner_bytes
            + traffic.programmed_metadata_bytes;
        Ok((traffic.host_written_bytes, programmed))
    }
}

/// Fills the volume of the server, as that without a network was.
fn fill(served: &Served) -> Outcome<()> {
    let in_order = LoadSpec {
        block_bytes: 128 << 10,
        depth: 16,
        read_percent: 0,
        pattern: Pattern::Sequential,
        ramp_ns: 0,
        runtime_ns: 600_000_000_000,
        operations_max: VOLUME_BYTES >> 17,
        ..LoadSpec::default()
    };
    let overwrite = LoadSpec {
        block_bytes: 4096,
        depth: 64,
        pattern: Pattern::Random,
        operations_max: CONDITIONING_PASSES * VOLUME_BYTES / 4096,
        ..in_order.clone()
    };
    for spec in [in_order, overwrite] {
        if served.rate(&spec)?.1 != spec.operations_max {
            return Err("the volume was not filled in ten minutes".into());
        }
    }
    Ok(())
}

/// Reads of the server, which alone counts as what takes processor time.
fn over_tcp(served: &Served, case: &Case, duration: Duration) -> Outcome<Ours> {
    let runtime_ns = duration.as_nanos() as u64;
    let spec = LoadSpec { depth: case.depth as u16, ramp_ns: 0, runtime_ns, ..LoadSpec::default() };
    let begun = served.processor_us()?;
    let (rate, operations) = served.rate(&spec)?;
    let processor_us = (served.processor_us()? - begun) / operations.max(1) as f64;
    Ok(Ours { rate, processor_us, amplification: 1.0 })
}

/// The rows of item l.
pub(super) fn rows(settings: &SuiteSettings, mut say: impl FnMut(&str)) -> Outcome<Vec<Row>> {
    let cases: Vec<&Case> = CASES.iter().filter(|case| settings.wants(case.id)).collect();
    let mut rows = if cases.is_empty() { Vec::new() } else { beside_fio(&cases, settings, &mut say)? };
    if settings.only.iter().any(|only| only == restart::ID) {
        rows.push(restart::row(&mut say)?);
    } else if settings.only.is_empty() {
        say(&format!("{0}: takes many minutes and is left out; --only \"{0}\" runs it", restart::ID));
    }
    Ok(rows)
}

fn beside_fio(cases: &[&Case], settings: &SuiteSettings, say: &mut dyn FnMut(&str)) -> Outcome<Vec<Row>> {
    let folder = tempfile::tempdir_in(&settings.drive_folder)?;
    let duration = Duration::from_millis(LONGER * settings.duration_ms);
    say("l: laying out files");
    let fio = Fio::new(&settings.fio, folder.path().join("fio"), VOLUME_BYTES)?;
    let is_over_tcp = |case: &&Case| case.over_tcp;
    let served = if cases.iter().any(is_over_tcp) {
        say("l: filling the volume of the server");
        let served = Served::start(folder.path(), FILE_BYTES)?;
        fill(&served)?;
        Some(served)
    } else {
        None
    };
    let mut rig = if cases.iter().all(|case| case.over_tcp) {
        None
    } else {
        say("l: filling the volume without a network");
        Some(Rig::new(folder.path())?)
    };
    let mut all: Vec<Vec<(fio::Done, Ours)>> = cases.iter().map(|_| Vec::new()).collect();
    for repetition in 0..settings.repetitions {
        say(&format!("l: repetition {} of {}", repetition + 1, settings.repetitions));
        for (at, case) in cases.iter().enumerate() {
            let reference = fio.run(case.fio, duration)?;
            let ours = match (case.over_tcp, &served, &mut rig) {
                (true, Some(served), _) => over_tcp(served, case, duration)?,
                (false, _, Some(rig)) => rig.run(case, duration)?,
                _ => return Err("what a row needs was started above".into()),
            };
            all[at].push((reference, ours));
        }
    }
    let row = |(at, case): (usize, &&Case)| {
        let what = format!("a file as drive, volume of 2 GiB: {}; reference: {}", case.what, fio.version);
        let rates: Vec<(f64, f64)> = all[at].iter().map(|(fio, ours)| (fio.rate, ours.rate)).collect();
        let of_ours =
            |pick: fn(&Ours) -> f64| median(&all[at].iter().map(|one| pick(&one.1)).collect::<Vec<_>>());
        let of_fio: Vec<f64> = all[at].iter().filter_map(|one| one.0.processor_us).collect();
        let mut row = Row::of(case.id, &what, "k/s", &rates);
        let amplification = of_ours(|ours| ours.amplification);
        row.target = match case.target {
            Wanted::AtLeast(ratio) => Some(Target::AtLeast(ratio)),
            Wanted::OverAmplification(ratio) => {
                Some(Target::AtLeast((ratio / amplification * 100.0).round() / 100.0))
            }
            Wanted::Nothing => None,
        };
        row.note = format!("processor time {:.1} us each", of_ours(|ours| ours.processor_us));
        if !of_fio.is_empty() {
            row.note += &format!(", fio {:.1} us", median(&of_fio));
        }
        if case.writes.is_some() {
            row.note += &format!("; write amplification {amplification:.2}");
        }
        row
    };
    Ok(cases.iter().enumerate().map(row).collect())
}
