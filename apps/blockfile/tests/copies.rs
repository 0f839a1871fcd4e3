//! Goal: what the cleaner moves is copied by the device, and files hold what was written whatever becomes of a copy: power cuts at every
//! operation, copies that fail half-way, zones whose end nobody knows any more. Method: files whose every IU says whose it is and its
//! version, on zones in memory (`copies/zones.rs`), nearly full, so that the cleaner works all the time.

#[path = "copies/zones.rs"]
mod zones;

use diecut_blockfile::format::{Header, Kind};
use diecut_blockfile::{FileError, FileId, Files, Statistics};
use diecut_blockspace::BlockError;
use diecut_testing::{Random, planted};
use std::sync::Arc;
use zones::{Copying, IU, Traffic, Zones};

const FILES: u64 = 3;
const ZONES: u32 = 48;
/// Of what may be live.
const FULL_PERCENT: u64 = 85;

fn page(number: u64, iu: u64, version: u64) -> Vec<u8> {
    let words = [number, iu, version];
    (0..IU / 8).flat_map(|at| words[at % 3].to_le_bytes()).collect()
}

/// Versions that an IU of a file may have: from the one that was synced up to the one that was written last.
struct Versions {
    ius: u64,
    synced: Vec<u64>,
    written: Vec<u64>,
}

impl Versions {
    fn none(ius: u64) -> Versions {
        let count = (ius * FILES) as usize;
        Versions { ius, synced: vec![0; count], written: vec![0; count] }
    }

    fn write(&mut self, files: &Files, known: &[FileId], number: u64, iu: u64) -> Result<(), FileError> {
        let written = &mut self.written[(number * self.ius + iu) as usize];
        *written += 1;
        files.write(known[number as usize], iu * IU as u64, &page(number, iu, *written))
    }

    fn sync(&mut self, files: &Files) -> Result<(), FileError> {
        files.sync()?;
        self.synced.copy_from_slice(&self.written);
        Ok(())
    }

    /// Reads all, and takes over what is found.
    fn check(&mut self, files: &Files, what: &str) {
        for number in 0..FILES {
            let Some(file) = files.find(&format!("{number}")).unwrap() else {
                assert!(self.synced.iter().all(|version| *version == 0), "{what}: file {number} is gone");
                continue;
            };
            for iu in 0..self.ius {
                let mut bytes = vec![0; IU];
                let len = files.read(file, iu * IU as u64, &mut bytes).unwrap();
                let word = |at: usize| u64::from_le_bytes(bytes[at * 8..at * 8 + 8].try_into().unwrap());
                let at = (number * self.ius + iu) as usize;
                let version = if len == 0 { 0 } else { word(2) };
                let is_whole = version == 0 || (len == IU && bytes == page(number, iu, version));
                let allowed = self.synced[at]..=self.written[at];
                assert!(
                    is_whole && allowed.contains(&version),
                    "{what}: file {number} IU {iu} is {:?}, and may be {allowed:?}",
                    [word(0), word(1), word(2)]
                );
                (self.synced[at], self.written[at]) = (version, version);
            }
        }
    }
}

fn open(device: &Arc<Zones>, left: Option<u64>) -> Result<Files, FileError> {
    Files::open_or_format(device.attach(left))
}

/// Files that fill what may be live, synced.
fn fill(device: &Arc<Zones>) -> Versions {
    let files = open(device, None).unwrap();
    let ius = files.statistics().unwrap().capacity_bytes / IU as u64 * FULL_PERCENT / 100 / FILES;
    let mut versions = Versions::none(ius);
    let known: Vec<_> =
        (0..FILES).map(|number| files.create(&format!("{number}"), number as u8).unwrap()).collect();
    for iu in 0..ius {
        (0..FILES).for_each(|number| versions.write(&files, &known, number, iu).unwrap());
    }
    versions.sync(&files).unwrap();
    versions
}

/// Overwrites some of it; gives what the store and the device counted.
fn overwrite(
    device: &Arc<Zones>,
    versions: &mut Versions,
    left: Option<u64>,
    random: &mut Random,
    count: u64,
) -> Result<(Statistics, Traffic), FileError> {
    let files = open(device, left)?;
    let before = device.traffic();
    let known: Vec<_> = (0..FILES).map(|number| files.find(&format!("{number}")).unwrap().unwrap()).collect();
    for step in 1..=count {
        versions.write(&files, &known, random.below(FILES), random.below(versions.ius))?;
        if step % 60 == 0 {
            versions.sync(&files)?;
        }
    }
    versions.sync(&files)?;
    let (counted, after) = (files.statistics()?, device.traffic());
    let traffic = Traffic {
        read_bytes: after.read_bytes - before.read_bytes,
        appended_bytes: after.appended_bytes - before.appended_bytes,
        copied_bytes: after.copied_bytes - before.copied_bytes,
        failed_copies: after.failed_copies - before.failed_copies,
        failed_appends: after.failed_appends - before.failed_appends,
    };
    Ok((counted, traffic))
}

/// Goal: not a byte that the cleaner moves is read or written by this process. Method: the same work on a device that copies and on one that does
/// not, with the bytes of all reads and appends counted at the device.
#[test]
fn what_the_cleaner_moves_does_not_come_into_the_process() {
    let run = |copying| {
        let device = Zones::new(ZONES, copying, 1);
        let mut versions = fill(&device);
        let counted = overwrite(&device, &mut versions, None, &mut Random::of(3), 6000).unwrap();
        versions.check(&open(&device, None).unwrap(), "at the end");
        counted
    };
    let (inside, inside_traffic) = run(Copying::Well);
    let (through, through_traffic) = run(Copying::Never);
    println!("inside: {inside:?}, {inside_traffic:?}\nthrough: {through:?}, {through_traffic:?}");
    assert!(inside.cleaned_bytes > 10_000_000, "{inside:?}");
    assert_eq!(inside.cleaned_inside_bytes, inside.cleaned_bytes);
    // Writes are of whole IUs, and nothing else reads.
    assert_eq!(inside_traffic.read_bytes, 0);
    assert!(inside_traffic.copied_bytes >= inside.cleaned_bytes);
    assert_eq!((through.cleaned_inside_bytes, through_traffic.copied_bytes), (0, 0));
    assert_eq!(through_traffic.read_bytes, through.cleaned_bytes);
    let sent =
        |counted: Statistics, traffic: Traffic| traffic.appended_bytes as f64 / counted.written_bytes as f64;
    assert!(sent(inside, inside_traffic) < 0.8 * sent(through, through_traffic));
}

/// Each round one run is cut at the next operation, and so is its recovery.
fn cut_everywhere(copying: Copying, steps: u64) {
    let (mut cuts, mut moved, mut failed) = (0, 0, 0);
    for nth in 0.. {
        let device = Zones::new(ZONES, copying, nth);
        let mut versions = fill(&device);
        let mut random = Random::of(7);
        let what = format!("{copying:?}, cut at operation {nth}");
        let is_over = match overwrite(&device, &mut versions, Some(nth), &mut random, steps) {
            Ok(_) => true,
            Err(FileError::Block(BlockError::ServerGone)) => false,
            Err(error) => panic!("{what}: {error}"),
        };
        (moved, failed) = (moved.max(device.traffic().copied_bytes), failed + device.traffic().failed_copies);
        let _ = open(&device, Some(random.below(20)));
        versions.check(&open(&device, None).unwrap(), &what);
        // It goes on from there, and what it moves is what it found.
        overwrite(&device, &mut versions, None, &mut random, 200).unwrap();
        versions.check(&open(&device, None).unwrap(), &format!("{what}, later"));
        if is_over {
            println!("{copying:?}: {cuts} cuts, {moved} bytes copied, {failed} copies failed");
            assert!(cuts > 200 && moved > 1_000_000, "{cuts} cuts, {moved} bytes copied");
            assert_eq!(failed > 0, copying != Copying::Well);
            return;
        }
        cuts += 1;
    }
}

#[test]
fn files_survive_a_cut_at_every_operation_of_a_cleaner_that_copies() {
    cut_everywhere(Copying::Well, 2000);
}

#[test]
fn files_survive_cuts_where_copies_fail_too() {
    cut_everywhere(Copying::Fails(3), 2000);
}

/// Copies that fail half-way, and what they leave of their zones, cost nothing but room.
fn work_with_copies_that_fail() {
    let mut failed = 0;
    for seed in 0..6 {
        let device = Zones::new(ZONES, Copying::Fails(4), seed);
        let mut versions = fill(&device);
        let mut random = Random::of(seed);
        let (counted, traffic) = overwrite(&device, &mut versions, None, &mut random, 2000).unwrap();
        versions.check(&open(&device, None).unwrap(), &format!("seed {seed}"));
        failed += traffic.failed_copies;
        // The rest of what failed goes through the process.
        assert!((1..counted.cleaned_bytes).contains(&counted.cleaned_inside_bytes), "{counted:?}");
    }
    assert!(failed > 20, "{failed} copies failed");
}

#[test]
fn copies_that_fail_are_completed_through_the_process() {
    work_with_copies_that_fail();
}

/// Goal: nobody takes what the device copied for batches. Method: a file that holds batches of another version in every IU, which an open
/// would refuse; the cleaner moves it.
fn move_batches_that_are_content() {
    let device = Zones::new(ZONES, Copying::Well, 1);
    let header = Header {
        kind: Kind::Log,
        sequence: 1,
        ius: 4,
        data_ius: 0,
        length_bytes: 0,
        part: 0,
        parts: 0,
        data_check: 0,
    };
    let mut batch = header.encode(&[]);
    batch[4..6].copy_from_slice(&1u16.to_le_bytes());
    batch[32..36].fill(0);
    let sum = diecut_units::checksum(&batch);
    batch[32..36].copy_from_slice(&sum.to_le_bytes());
    let mut random = Random::of(2);
    for round in 0..20 {
        // What was there before has just ended: nothing says goodbye.
        let files = open(&device, None).unwrap();
        let ius = files.statistics().unwrap().capacity_bytes / IU as u64 * FULL_PERCENT / 100;
        let image =
            if round == 0 { files.create("image", 1) } else { files.find("image").map(Option::unwrap) };
        let image = image.unwrap();
        if round == 0 {
            (0..ius).for_each(|iu| files.write(image, iu * IU as u64, &batch).unwrap());
        }
        let mut bytes = vec![0; files.size(image).unwrap() as usize];
        files.read(image, 0, &mut bytes).unwrap();
        assert!(bytes.chunks(IU).all(|one| one == batch), "round {round}");
        (0..300).for_each(|_| files.write(image, random.below(ius) * IU as u64, &batch).unwrap());
        files.sync().unwrap();
    }
    assert!(device.traffic().copied_bytes > 1_000_000);
}

#[test]
fn content_that_looks_like_batches_is_moved_as_content() {
    move_batches_that_are_content();
}

/// Goal: appends that fail half-way, in zones whose end nobody can tell then, cost nothing: what was synced is there, and no zeros stand where data
/// should. Method: cuts at random beside such appends, so that also the last one may be one that failed.
fn work_with_appends_that_fail() {
    let mut failed = 0;
    for seed in 0..120 {
        let device = Zones::new(ZONES, Copying::Well, seed);
        let mut versions = fill(&device);
        device.fail_appends(4);
        let mut random = Random::of(seed);
        let left = 20 + random.below(200);
        match overwrite(&device, &mut versions, Some(left), &mut random, 2000) {
            Ok(_)
            | Err(FileError::Block(BlockError::ServerGone) | FileError::Failed | FileError::NoSpace) => {}
            Err(error) => panic!("seed {seed}: {error}"),
        }
        failed += device.traffic().failed_appends;
        device.fail_appends(0);
        versions.check(&open(&device, None).unwrap(), &format!("seed {seed}"));
    }
    assert!(failed > 100, "{failed} appends failed");
}

#[test]
fn appends_that_fail_leave_no_zeros_for_data() {
    work_with_appends_that_fail();
}

#[test]
fn planted_bugs_are_noticed() {
    planted::all_are_noticed(&[
        ("blockfile: what was not copied is moved", work_with_copies_that_fail),
        ("blockfile: data of a batch are not checked", work_with_appends_that_fail),
        ("blockfile: a header of a run says that nothing follows", move_batches_that_are_content),
    ]);
}
