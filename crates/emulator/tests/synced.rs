//! Devices whose completions wait for syncs: what a cut at any moment leaves of what was written, in the model of a disk and in a
//! file whose changes are replayed in part.

use crate::rig;
use diecut_emulator::*;
use diecut_media::*;
use diecut_units::*;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use rig::*;
use std::os::unix::fs::FileExt;
use std::path::Path;

const UNITS: u32 = 8;
const BLOCKS: usize = 4;
const OOB_SIZE_BYTES: usize = 64;

/// What is done to a block: `None` erases it, else so many units of this version are appended.
type Deed = Option<(u32, u8)>;

/// One deed, and when it was submitted and answered: by the count of a clock that only goes on.
#[derive(Clone, Copy)]
struct Done {
    deed: Deed,
    submitted: usize,
    answered: Option<usize>,
}

/// A block as deeds leave it: the version of each unit.
fn state_after<'a>(base: &[u8], deeds: impl Iterator<Item = &'a Deed>) -> Vec<u8> {
    let mut units = base.to_vec();
    for deed in deeds {
        match deed {
            None => units.clear(),
            Some((count, version)) => units.extend((0..*count).map(|_| *version)),
        }
    }
    units
}

fn program_units(block: EraseBlockAddress, first_unit: u32, units: u32, version: u8) -> Operation {
    program(block, first_unit * TINY_UNIT_PAGES, units, version)
}

/// What a block holds, unit by unit, where each page is whole: content and OOB area of one version. Behind the last one nothing is
/// programmed.
fn observe(rig: &mut Rig, block: EraseBlockAddress, what: &str) -> Vec<u8> {
    let mut units = Vec::new();
    for unit in 0..UNITS {
        let (pages, ius) = (TINY_UNIT_PAGES, TINY_UNIT_PAGES * 4);
        let destination = BufferMut::copy_from(&vec![0xee; ius as usize * IU_SIZE_BYTES]);
        let oob = Some(BufferMut::copy_from(&vec![0xee; pages as usize * OOB_SIZE_BYTES]));
        let operation = Operation::Read { block, first_iu: unit * ius, iu_count: ius, destination, oob };
        rig.submit(9, operation);
        let done = rig.drain().remove(0);
        match done.result {
            Ok(()) => {
                assert_eq!(units.len(), unit as usize, "{what}: {block} reads behind a hole");
                let oob = done.oob.unwrap();
                let version = oob[0];
                assert!(oob.iter().all(|byte| *byte == version), "{what}: {block} unit {unit}: OOB of two");
                // A program's content goes on over its units, so any part of it may be this unit's.
                let found = &done.destination.unwrap()[..];
                let whole = content(version, UNITS * ius);
                let size = ius as usize * IU_SIZE_BYTES;
                let fits = (0..UNITS as usize).any(|at| found == &whole[at * size..(at + 1) * size]);
                assert!(fits, "{what}: {block} unit {unit} is not what version {version} wrote");
                units.push(version);
            }
            Err(MediaError::Erased { .. }) => {}
            Err(other) => panic!("{what}: {block} unit {unit}: {other}"),
        }
    }
    units
}

/// What is there must be what some of the deeds left, in their order: all that were answered, and the last one perhaps in part.
fn check(found: &[u8], base: &[u8], deeds: &[Done], at: usize, what: &str) {
    let known: Vec<&Done> = deeds.iter().filter(|done| done.submitted < at).collect();
    let answered = known.iter().rposition(|done| done.answered.is_some_and(|when| when < at));
    let least = answered.map_or(0, |last| last + 1);
    for count in least..=known.len() {
        let whole = state_after(base, known[..count].iter().map(|done| &done.deed));
        let more = match known.get(count).map(|done| done.deed) {
            Some(Some((units, version))) => vec![version; units as usize],
            _ => Vec::new(),
        };
        for units in 0..=more.len() {
            if found == [&whole[..], &more[..units]].concat() {
                return;
            }
        }
    }
    let known: Vec<Deed> = known.iter().map(|done| done.deed).collect();
    panic!("{what}: {found:?} is none of what {known:?} leave of {base:?}, of which {least} were answered");
}

/// Random deeds on some blocks, syncs that begin and end at any time.
struct Work {
    rig: Rig,
    random: Xoshiro256PlusPlus,
    blocks: Vec<EraseBlockAddress>,
    /// By block: what it held at first, and what was done since.
    bases: Vec<Vec<u8>>,
    deeds: Vec<Vec<Done>>,
    /// Units once everything submitted is done; `None`: it must be erased first.
    next_unit: Vec<Option<u32>>,
    under_way: Option<u64>,
    version: u8,
    changes: Option<FileChanges>,
    steps: usize,
}

impl Work {
    fn over(device: Device, seed: u64, changes: Option<FileChanges>) -> Work {
        let rig = Rig::over(device);
        // Two of one die, so that commands wait for each other.
        let blocks = vec![
            rig.good_block((0, 0), 0),
            rig.good_block((0, 0), 1),
            rig.good_block((0, 1), 0),
            rig.good_block((1, 0), 0),
        ];
        Work {
            rig,
            random: Xoshiro256PlusPlus::seed_from_u64(seed),
            blocks,
            bases: vec![Vec::new(); BLOCKS],
            deeds: vec![Vec::new(); BLOCKS],
            next_unit: vec![None; BLOCKS],
            under_way: None,
            version: 0,
            changes,
            steps: 0,
        }
    }

    fn clock(&self) -> usize {
        self.changes.as_ref().map_or(self.steps, FileChanges::count)
    }

    fn step(&mut self) {
        self.steps += 1;
        match self.random.random_range(0..8) {
            0..3 => self.submit(),
            3 if self.under_way.is_none() => self.under_way = self.rig.device.wants_sync(),
            4 => self.end_sync(),
            _ => {
                self.rig.now =
                    self.rig.now.max(self.rig.device.next_event().min(self.rig.now + Span(5_000_000)));
                self.rig.device.advance(self.rig.now, &mut self.rig.completions);
            }
        }
        self.take_answers();
    }

    fn end_sync(&mut self) {
        if let Some(number) = self.under_way.take() {
            if let Some(file) = self.rig.device.sync_file() {
                file.sync().unwrap();
            }
            self.rig.device.synced(number, true, self.rig.now);
        }
    }

    fn submit(&mut self) {
        let at = self.random.random_range(0..BLOCKS);
        let block = self.blocks[at];
        let token = (at << 32 | self.deeds[at].len()) as u64;
        let submitted = self.clock();
        let deed = match self.next_unit[at] {
            Some(next) if next < UNITS && self.random.random_range(0..5) > 0 => {
                let units = self.random.random_range(1..=(UNITS - next).min(3));
                self.version = self.version.wrapping_add(1);
                self.rig.submit(token, program_units(block, next, units, self.version));
                self.next_unit[at] = Some(next + units);
                Some((units, self.version))
            }
            _ => {
                self.rig.submit(token, Operation::Erase { block });
                self.next_unit[at] = Some(0);
                None
            }
        };
        self.deeds[at].push(Done { deed, submitted, answered: None });
    }

    fn take_answers(&mut self) {
        let now = self.clock();
        for done in self.rig.completions.drain(..) {
            assert_eq!(done.result, Ok(()));
            let (at, index) = ((done.token.0 >> 32) as usize, done.token.0 as u32 as usize);
            self.deeds[at][index].answered = Some(now);
        }
    }
}

/// Cuts, and deaths of the process, at any moment over the model of a disk, which keeps any part of what no sync covers: every block
/// holds what was answered, and of the rest nothing but whole units in their order. No page is of two versions.
#[test]
fn a_cut_leaves_what_was_answered_and_no_mixture() {
    let in_part = cut_at_random(0..60);
    assert!(in_part > 100, "only {in_part} cuts hit a block at work");
}

/// The check is worth something: each of these bugs is found by some seed.
#[test]
fn planted_bugs_are_caught() {
    for name in [
        "emulator: completion before its sync",
        "emulator: sync covers what came after it began",
        "emulator: block written before its erase is synced",
        "emulator: record trusted without its content",
    ] {
        assert!(diecut_units::marks::plant_mutant(Some(name)));
        let caught = std::panic::catch_unwind(|| cut_at_random(0..200)).is_err();
        assert!(diecut_units::marks::mutant_reached_count() > 0, "{name} was reached");
        diecut_units::marks::plant_mutant(None);
        assert!(caught, "{name}: no seed catches it");
    }
}

/// Cuts and deaths of these seeds. How many left a part of a block that was being written.
fn cut_at_random(seeds: std::ops::Range<u64>) -> usize {
    let mut in_part = 0;
    for seed in seeds {
        let pacing = if seed % 2 == 0 { Pacing::Modelled } else { Pacing::Unpaced };
        let options = Options { backing: Backing::SyncedModel, pacing, seed, ..Options::default() };
        let device = Device::create(&Profile::named("tiny").unwrap(), options).unwrap();
        let mut work = Work::over(device, seed, None);
        for cut in 0..6 {
            let steps = work.random.random_range(1..120);
            (0..steps).for_each(|_| work.step());
            work.steps += 1;
            let now = work.rig.now;
            if work.random.random_range(0..3) > 0 {
                work.rig.device.power_cut(now);
                work.rig.device.power_on();
            } else {
                work.rig.device.process_death(now);
            }
            work.under_way = None;
            work.rig.completions.clear();
            for at in 0..BLOCKS {
                let what = format!("seed {seed} cut {cut}");
                let found = observe(&mut work.rig, work.blocks[at], &what);
                let (base, deeds) = (&work.bases[at], &work.deeds[at]);
                check(&found, base, deeds, work.steps, &what);
                let was_quiet = deeds.iter().all(|done| done.answered.is_some());
                in_part += usize::from(!was_quiet && !found.is_empty());
                // What was cut takes no more programs before it is erased.
                let next = found.len() as u32;
                work.next_unit[at] = (was_quiet && work.next_unit[at].is_some()).then_some(next);
                (work.bases[at], work.deeds[at]) = (found, Vec::new());
            }
        }
    }
    in_part
}

/// A file as a cut after so many of its changes leaves it: what a sync covers, and any part of the rest, sector by sector.
fn leave(path: &Path, size_bytes: u64, changes: &[FileChange], random: &mut Xoshiro256PlusPlus) {
    let kept_of_8 = [0, 8, random.random_range(1..8)][random.random_range(0..3usize)];
    let file = std::fs::File::options().write(true).open(path).unwrap();
    file.set_len(size_bytes).unwrap();
    FileChange::leave(changes, &file, || random.random_range(0..8) < kept_of_8).unwrap();
}

/// A new device in a file that is worked on; what it was before, its size, and the changes since.
struct Noted {
    work: Work,
    new: Vec<u8>,
    size_bytes: u64,
    all: Vec<FileChange>,
}

impl Noted {
    fn work(folder: &Path, seed: u64) -> Noted {
        let path = folder.join(format!("device-{seed}"));
        let options = Options { backing: Backing::SyncedFile(path.clone()), seed, ..Options::default() };
        drop(Device::create(&Profile::named("tiny").unwrap(), options).unwrap());
        // All but the front of a new device is a hole.
        let size_bytes = std::fs::metadata(&path).unwrap().len();
        let mut new = vec![0; 1 << 20];
        std::fs::File::open(&path).unwrap().read_exact_at(&mut new, 0).unwrap();
        let changes = FileChanges::default();
        let options = Options { changes: Some(changes.clone()), ..Options::default() };
        let mut work = Work::over(Device::open(&path, options).unwrap(), seed, Some(changes.clone()));
        (0..250).for_each(|_| work.step());
        Noted { work, new, size_bytes, all: changes.all() }
    }

    /// Makes the file as these changes leave it: each one, or what a cut leaves of them.
    fn leave(&self, path: &Path, changes: &[FileChange], random: Option<&mut Xoshiro256PlusPlus>) {
        std::fs::write(path, &self.new).unwrap();
        let Some(random) = random else {
            let file = std::fs::File::options().write(true).open(path).unwrap();
            file.set_len(self.size_bytes).unwrap();
            return FileChange::leave(changes, &file, || true).unwrap();
        };
        leave(path, self.size_bytes, changes, random);
    }

    /// Opens what is left after `at` changes and looks at it.
    fn check(&self, path: &Path, at: usize, what: &str) {
        let mut rig = Rig::over(Device::open(path, Options::default()).unwrap());
        for block in 0..BLOCKS {
            let found = observe(&mut rig, self.work.blocks[block], what);
            check(&found, &[], &self.work.deeds[block], at, what);
        }
    }
}

/// The same with a real file whose changes are noted: after any of them the machine may die, and the file is opened again as the
/// disk may have it then.
#[test]
fn a_file_cut_after_any_change_holds_what_was_answered() {
    let folder = tempfile::tempdir().unwrap();
    for seed in 0..4 {
        let noted = Noted::work(folder.path(), seed);
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        for _ in 0..15 {
            let at = random.random_range(0..=noted.all.len());
            let cut_path = folder.path().join("cut");
            noted.leave(&cut_path, &noted.all[..at], Some(&mut random));
            noted.check(&cut_path, at, &format!("seed {seed} after {at} changes"));
        }
    }
}

/// Goal: what a start finds is not trusted before it is durable. Method: the process dies after any change of the file, so that the next one
/// finds all of them, durable or not; while that one starts, the machine dies, and the file is as the disk may have it then. Gives
/// how many changes of the first process were still to be lost then, over all cuts.
fn cut_at_starts(seeds: std::ops::Range<u64>) -> usize {
    let folder = tempfile::tempdir().unwrap();
    let mut open_changes = 0;
    for seed in seeds {
        let noted = Noted::work(folder.path(), seed);
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        for _ in 0..5 {
            let at = random.random_range(0..=noted.all.len());
            let path = folder.path().join("dead");
            noted.leave(&path, &noted.all[..at], None);
            let changes = FileChanges::default();
            let options = Options { changes: Some(changes.clone()), ..Options::default() };
            drop(Device::open(&path, options).unwrap());
            let mut all = noted.all[..at].to_vec();
            // A sync covers what earlier processes wrote, too.
            all.extend(changes.all().into_iter().map(|change| match change {
                FileChange::Synced { covered } => FileChange::Synced { covered: at + covered },
                other => other,
            }));
            let is_sync = |change: &&FileChange| matches!(change, FileChange::Synced { .. });
            let synced = noted.all[..at].iter().rposition(|change| is_sync(&change));
            open_changes += at - synced.unwrap_or(0);
            for _ in 0..2 {
                let cut = random.random_range(at..=all.len());
                let path = folder.path().join("cut");
                noted.leave(&path, &all[..cut], Some(&mut random));
                noted.check(
                    &path,
                    at,
                    &format!("seed {seed} after {at} changes and {} of a start", cut - at),
                );
            }
        }
    }
    open_changes
}

#[test]
fn a_start_that_is_cut_trusts_nothing_that_is_lost() {
    let open_changes = cut_at_starts(0..2);
    assert!(open_changes > 20, "{open_changes} changes");
}

#[test]
fn a_start_that_trusts_what_it_finds_is_noticed() {
    assert!(diecut_units::marks::plant_mutant(Some("emulator: found content trusted before a sync")));
    let caught = std::panic::catch_unwind(|| cut_at_starts(0..20)).is_err();
    diecut_units::marks::plant_mutant(None);
    assert!(caught);
}

/// Goal: a copy that waits for the erase of its destination finds its source as it was. Method: the source is erased right behind.
#[test]
fn what_a_waiting_copy_reads_stays() {
    let mut rig = Rig::new(Options { backing: Backing::SyncedModel, ..Options::default() });
    let (source, destination) = (rig.good_block((0, 0), 0), rig.good_block((0, 0), 1));
    rig.run(Operation::Erase { block: source }).unwrap();
    rig.run(program(source, 0, 2, 5)).unwrap();
    rig.submit(1, Operation::Erase { block: destination });
    let copy = Operation::Copy {
        source,
        source_page: 0,
        destination,
        destination_page: 0,
        page_count: 2 * TINY_UNIT_PAGES,
        oob: None,
    };
    rig.submit(2, copy);
    rig.submit(3, Operation::Erase { block: source });
    let mut done = rig.drain();
    done.sort_by_key(|done| done.token.0);
    assert!(done.len() == 3 && done.iter().all(|done| done.result.is_ok()), "{done:?}");
    assert_eq!(rig.run(read(destination, 0, 16)).unwrap().unwrap()[..], content(5, 16)[..]);
    assert_eq!(rig.run(read(source, 0, 1)).unwrap_err(), MediaError::Erased { block: source, page: 0 });
}

/// A sync that fails is final: what waited for it fails, so does every later program and erase, and what was durable still reads.
#[test]
fn a_failed_sync_is_final() {
    let mut rig = Rig::new(Options { backing: Backing::SyncedModel, ..Options::default() });
    let (block, other) = (rig.good_block((0, 0), 0), rig.good_block((0, 1), 0));
    rig.run(Operation::Erase { block }).unwrap();
    rig.run(program(block, 0, 1, 1)).unwrap();
    rig.submit(1, program(block, 2, 1, 2));
    rig.submit(2, Operation::Erase { block: other });
    rig.submit(3, read(other, 0, 1));
    let number = loop {
        rig.now = rig.now.max(rig.device.next_event());
        rig.device.advance(rig.now, &mut rig.completions);
        if let Some(number) = rig.device.wants_sync() {
            break number;
        }
    };
    // What comes after the sync began waits for the next one, and there is none.
    let later = rig.good_block((1, 0), 0);
    rig.submit(4, Operation::Erase { block: later });
    while rig.device.next_event() != Time::NEVER {
        rig.now = rig.now.max(rig.device.next_event());
        rig.device.advance(rig.now, &mut rig.completions);
    }
    assert!(rig.completions.is_empty(), "nothing is answered before its sync");
    rig.device.synced(number, false, rig.now);
    let mut done = rig.drain();
    done.sort_by_key(|done| done.token.0);
    assert_eq!(done.len(), 4, "{done:?}");
    assert_eq!(done[3].result, Err(MediaError::DieOffline { block: later }));
    assert_eq!(done[0].result, Err(MediaError::DieOffline { block }));
    assert_eq!(done[1].result, Err(MediaError::DieOffline { block: other }));
    assert_eq!(done[2].result, Err(MediaError::Erased { block: other, page: 0 }), "reads go on");
    assert_eq!(
        rig.run(Operation::Erase { block: other }).unwrap_err(),
        MediaError::DieOffline { block: other }
    );
    assert_eq!(rig.device.wants_sync(), None, "no later sync could prove anything");
    assert_eq!(rig.run(read(block, 0, 8)).unwrap().unwrap()[..], content(1, 8)[..]);
}

/// Pages of a program that failed stay unreadable over restarts, those around it read, and a record of which no copy is whole
/// costs its block and no other.
#[test]
fn failed_programs_and_damaged_records_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("device");
    let faults =
        vec![Fault::Fail { die: FaultyDie { channel: 0, die: 0 }, kind: OperationKind::Program, nth: 1 }];
    let backing = Backing::SyncedFile(path.clone());
    let mut rig = Rig::new(Options {
        backing,
        faults: FaultPlan { faults, ..FaultPlan::default() },
        ..Options::default()
    });
    let (block, other) = (rig.good_block((0, 0), 0), rig.good_block((0, 1), 0));
    rig.run(Operation::Erase { block }).unwrap();
    rig.run(Operation::Erase { block: other }).unwrap();
    rig.run(program(other, 0, 1, 7)).unwrap();
    rig.run(program(block, 0, 1, 1)).unwrap();
    assert_eq!(rig.run(program(block, 2, 1, 2)).unwrap_err(), MediaError::ProgramFailed { block, page: 2 });
    rig.run(program(block, 4, 1, 3)).unwrap();
    drop(rig);
    // However often it is opened: what an opening writes down counts for the next one.
    for _ in 0..3 {
        let mut rig = Rig::over(Device::open(&path, Options::default()).unwrap());
        assert_eq!(rig.run(read(block, 0, 8)).unwrap().unwrap()[..], content(1, 8)[..]);
        assert_eq!(rig.run(read(block, 8, 8)).unwrap_err(), MediaError::Uncorrectable { block, page: 2 });
        assert_eq!(rig.run(read(block, 16, 8)).unwrap().unwrap()[..], content(3, 8)[..]);
    }
    let rig = Rig::over(Device::open(&path, Options::default()).unwrap());
    let (geometry, number) = (*rig.device.geometry(), rig.device.geometry().erase_block_number(block));
    drop(rig);
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    let records_bytes = (geometry.erase_blocks() * 64).next_multiple_of(4096);
    for first in [0, records_bytes] {
        file.write_all_at(&[0x55; 64], 16384 + 4096 + first + number * 64).unwrap();
    }
    drop(file);
    let mut rig = Rig::over(Device::open(&path, Options::default()).unwrap());
    assert_eq!(rig.run(read(block, 0, 1)).unwrap_err(), MediaError::Uncorrectable { block, page: 0 });
    assert_eq!(rig.run(read(other, 0, 8)).unwrap().unwrap()[..], content(7, 8)[..]);
    rig.run(Operation::Erase { block }).unwrap();
    rig.run(program(block, 0, 1, 9)).unwrap();
    assert_eq!(rig.run(read(block, 0, 8)).unwrap().unwrap()[..], content(9, 8)[..]);
}
