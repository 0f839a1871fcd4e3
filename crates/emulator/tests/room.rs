//! Room on the file system under a device's file: taken ahead, given back, and what happens when there is none.

use crate::rig;
use diecut_emulator::*;
use diecut_media::*;
use diecut_testing::mounted::in_small_file_system;
use diecut_testing::needs::left_out;
use diecut_units::*;
use rig::*;
use std::path::{Path, PathBuf};

const BLOCK_BYTES: u64 = 256 << 10;
const UNITS: u32 = 8;
const MOUNTED: &str = "DIECUT_TEST_MOUNTED_AT";

fn on_file(path: &Path) -> Options {
    Options { backing: Backing::File(path.to_owned()), pacing: Pacing::Unpaced, ..Options::default() }
}

fn on_synced_file(path: &Path) -> Options {
    Options { backing: Backing::SyncedFile(path.to_owned()), ..on_file(path) }
}

fn blocks(rig: &Rig) -> Vec<EraseBlockAddress> {
    let geometry = *rig.device.geometry();
    let all = geometry.all_dies().flat_map(|die| {
        (0..geometry.erase_blocks_per_die()).map(move |index| die.erase_block(BlockIndex(index)))
    });
    all.filter(|block| !rig.device.is_factory_bad(*block)).collect()
}

/// Opens a block as a pool does: room, erase, and then the whole block in one program.
fn fill(rig: &mut Rig, block: EraseBlockAddress, seed: u8) -> Result<(), MediaError> {
    rig.run(Operation::Erase { block }).unwrap();
    rig.run(program(block, 0, UNITS, seed)).map(|_| ())
}

/// Writes 240 MiB over 4 MiB that live, as a pool does, which gives out blocks in turn. The file takes what lives and what is kept
/// for the next blocks (an eighth of this device), and not all that was ever written.
#[test]
fn overwriting_does_not_grow_the_file_without_bound() {
    overwrite(on_file);
    overwrite(on_synced_file);
}

fn overwrite(on_file: fn(&Path) -> Options) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("device");
    let mut profile = Profile::named("tiny").unwrap();
    let text = profile.to_toml().replace("blocks_per_plane = 40", "blocks_per_plane = 200");
    profile = Profile::from_toml(&text).unwrap();
    let mut rig = Rig::over(Device::create(&profile, on_file(&path)).unwrap());
    if !rig.device.room_support().unwrap().punches {
        return left_out(&format!("the file system of {} cannot punch holes", folder.path().display()));
    }
    let all = blocks(&rig);
    let fixed_bytes = Room::of(&path).unwrap().taken_bytes;
    let (live, written) = (16, 960);
    for nth in 0..written {
        let block = all[nth % all.len()];
        assert!(rig.device.make_room(block, rig.now));
        fill(&mut rig, block, nth as u8).unwrap();
        if nth >= live {
            rig.device.discard(all[(nth - live) % all.len()], rig.now);
        }
    }
    let kept_bytes = profile.geometry.raw_capacity_bytes() / 8;
    let oob_bytes = all.len() as u64 * 16 * 64;
    let most = fixed_bytes + (live as u64 + 6) * BLOCK_BYTES + kept_bytes + 2 * oob_bytes + (1 << 20);
    let taken = Room::of(&path).unwrap().taken_bytes;
    println!("{written} erase blocks written, {live} live: the file takes {taken} bytes, of {most} at most");
    assert!(taken <= most, "{taken} bytes taken, {most} are enough");
    for nth in written - live..written {
        let found = rig.run(read(all[nth % all.len()], 0, 64)).unwrap().unwrap();
        assert_eq!(found[..], content(nth as u8, 64)[..], "what lives is there");
    }
    // The next process gives back what this one kept; of a synced file, what a sync covers.
    rig.drain();
    drop(rig);
    let mut rig = Rig::over(Device::open(&path, on_file(&path)).unwrap());
    let taken = Room::of(&path).unwrap().taken_bytes;
    let most = most - kept_bytes;
    assert!(taken <= most, "{taken} bytes taken after a restart, {most} are enough");
    for nth in written - live..written {
        let found = rig.run(read(all[nth % all.len()], 0, 64)).unwrap().unwrap();
        assert_eq!(found[..], content(nth as u8, 64)[..], "what lives is there");
    }
}

/// Nothing reads from a block that was discarded, and it must be erased, whatever the content lies on.
#[test]
fn what_was_discarded_is_gone() {
    let folder = tempfile::tempdir().unwrap();
    let tags = Options { backing: Backing::Tags, ..Options::default() };
    let synced = on_synced_file(&folder.path().join("synced"));
    for options in [Options::default(), tags, on_file(&folder.path().join("device")), synced] {
        let mut rig = Rig::new(options);
        let block = rig.good_block((0, 0), 0);
        fill(&mut rig, block, 1).unwrap();
        rig.device.discard(block, rig.now);
        assert_eq!(rig.run(read(block, 0, 1)).unwrap_err(), MediaError::Erased { block, page: 0 });
        fill(&mut rig, block, 2).unwrap();
        assert_eq!(rig.run(read(block, 0, 64)).unwrap().unwrap()[..], content(2, 64)[..]);
    }
}

/// By plan there is no room from one operation to another: blocks that are opened meanwhile fail, with a word of its own, others go on,
/// and the failed one is as good as before when there is room again.
#[test]
fn a_program_without_room_fails_and_the_block_stays_good() {
    let folder = tempfile::tempdir().unwrap();
    let tags = Options { backing: Backing::Tags, ..Options::default() };
    let synced = on_synced_file(&folder.path().join("synced"));
    for mut options in [Options::default(), tags, on_file(&folder.path().join("device")), synced] {
        options.faults.faults.push(Fault::NoRoom { from_ns: 1 << 30, until_ns: 2 << 30 });
        let mut rig = Rig::new(options);
        let (old, new) = (rig.good_block((0, 0), 0), rig.good_block((0, 0), 1));
        assert!(rig.device.make_room(old, rig.now));
        rig.run(Operation::Erase { block: old }).unwrap();
        rig.run(program(old, 0, 1, 1)).unwrap();
        rig.now = Time(1 << 30);
        assert!(rig.device.make_room(old, rig.now), "it has its room");
        assert!(!rig.device.make_room(new, rig.now));
        assert_eq!(fill(&mut rig, new, 2), Err(MediaError::NoRoom { block: new, page: 0 }));
        rig.run(program(old, 2, 1, 3)).unwrap();
        assert_eq!(rig.run(read(old, 0, 8)).unwrap().unwrap()[..], content(1, 8)[..]);
        rig.now = Time(2 << 30);
        assert!(rig.device.make_room(new, rig.now));
        fill(&mut rig, new, 4).unwrap();
        assert_eq!(rig.run(read(new, 0, 64)).unwrap().unwrap()[..], content(4, 64)[..]);
    }
}

#[test]
fn a_full_file_system_is_survived() {
    in_small_file_system(
        "room::inside_a_small_file_system",
        "24m",
        tempfile::tempdir().unwrap().path(),
        MOUNTED,
    );
}

/// A device of 40 MiB on 24 MiB: what was programmed reads, also after a restart on the full file system, and as soon as there is
/// room the next block is programmed.
#[test]
#[ignore = "run by a_full_file_system_is_survived"]
fn inside_a_small_file_system() {
    let Ok(folder) = std::env::var(MOUNTED) else { return };
    for on_file in [on_file, on_synced_file] {
        fill_file_system(PathBuf::from(&folder), on_file);
    }
}

fn fill_file_system(folder: PathBuf, on_file: fn(&Path) -> Options) {
    let path = folder.join("device");
    let mut rig = Rig::over(Device::create(&Profile::named("tiny").unwrap(), on_file(&path)).unwrap());
    let all = blocks(&rig);
    let refused = all.iter().position(|&block| {
        if !rig.device.make_room(block, rig.now) {
            return true;
        }
        let seed = block.block.0 as u8;
        fill(&mut rig, block, seed).unwrap();
        false
    });
    let refused = refused.expect("40 MiB do not fit into 24");
    assert!(refused > 60, "only {refused} blocks fit");
    let free = Room::of(&path).unwrap().free_bytes;
    assert!(free < 2 * BLOCK_BYTES && Room::of(&path).unwrap().can_run_out(), "{free} bytes free");
    let new = all[refused];
    assert_eq!(fill(&mut rig, new, 1), Err(MediaError::NoRoom { block: new, page: 0 }));
    let read_all = |rig: &mut Rig| {
        for &block in &all[..refused] {
            let found = rig.run(read(block, 0, 64)).unwrap().unwrap();
            assert_eq!(found[..], content(block.block.0 as u8, 64)[..], "{block}");
        }
    };
    read_all(&mut rig);
    // Somebody takes the last bytes, and the device is opened again.
    let _ = std::fs::write(folder.join("rest"), vec![1; 4 << 20]);
    drop(rig);
    let mut rig = Rig::over(Device::open(&path, on_file(&path)).unwrap());
    assert!(!rig.device.make_room(new, rig.now));
    read_all(&mut rig);
    rig.device.discard(all[0], rig.now);
    rig.drain();
    rig.now += Span(200_000_000);
    assert!(rig.device.make_room(new, rig.now), "what was discarded makes room");
    fill(&mut rig, new, 9).unwrap();
    assert_eq!(rig.run(read(new, 0, 64)).unwrap().unwrap()[..], content(9, 64)[..]);
    drop(rig);
    std::fs::remove_file(path).and_then(|()| std::fs::remove_file(folder.join("rest"))).unwrap();
}

/// A device whose room a thread takes; the test is the thread.
fn with_worker(path: &Path, pacing: Pacing, on_file: fn(&Path) -> Options) -> (Rig, Option<RoomWorker>) {
    let options = Options { pacing, ..on_file(path) };
    let mut rig = Rig::over(Device::create(&Profile::named("tiny").unwrap(), options).unwrap());
    let worker = rig.device.room_worker();
    (rig, worker)
}

/// Lets as much time pass as some erases take, and a sync; what completed.
fn let_pass(rig: &mut Rig) -> usize {
    for _ in 0..30 {
        rig.now += Span(1_000_000);
        rig.device.advance(rig.now, &mut rig.completions);
        if let Some(number) = rig.device.wants_sync() {
            rig.device.synced(number, true, rig.now);
        }
    }
    rig.device.advance(rig.now, &mut rig.completions);
    std::mem::take(&mut rig.completions).len()
}

/// Whoever drives the device takes no room: to open four blocks takes none of the file system, their erases end when the thread has
/// taken it, in the order they were opened, and what is programmed afterwards finds it there.
#[test]
fn room_is_taken_by_a_thread_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let files: [fn(&Path) -> Options; 2] = [on_file, on_synced_file];
    for (on_file, pacing) in
        files.into_iter().flat_map(|file| [(file, Pacing::Modelled), (file, Pacing::Unpaced)])
    {
        let path = folder.path().join("device");
        let (mut rig, worker) = with_worker(&path, pacing, on_file);
        let worker = worker.expect("a device in a file has one");
        if Room::of(&path).unwrap().free_bytes < 1 << 30 || !rig.device.room_support().unwrap().reserves {
            return left_out(&format!("{} has little room, or cannot allocate", folder.path().display()));
        }
        let taken = || Room::of(&path).unwrap().taken_bytes;
        let before = taken();
        let opened: Vec<_> = (0..4).map(|nth| rig.good_block((nth % 2, 0), usize::from(nth / 2))).collect();
        for (token, &block) in opened.iter().enumerate() {
            assert!(rig.device.make_room(block, rig.now));
            rig.submit(token as u64, Operation::Erase { block });
        }
        assert_eq!(let_pass(&mut rig), 0, "no erase ends before there is room");
        assert!(taken() < before + BLOCK_BYTES, "{} bytes taken by the driver", taken() - before);
        let mut erased = 0;
        while worker.step() {
            erased += let_pass(&mut rig);
            let have_room = (taken() - before) / BLOCK_BYTES;
            assert!(erased as u64 <= have_room, "{erased} blocks erased, {have_room} have room");
        }
        assert_eq!(erased, 4);
        let full = taken();
        for (seed, &block) in opened.iter().enumerate() {
            rig.run(program(block, 0, UNITS, seed as u8)).unwrap();
            let found = rig.run(read(block, 0, 64)).unwrap().unwrap();
            assert_eq!(found[..], content(seed as u8, 64)[..]);
        }
        assert!(taken() <= full + (64 << 10), "{} bytes taken while programs ran", taken() - full);
        drop(rig);
        std::fs::remove_file(path).unwrap();
    }
    // Without a file there is nobody to wait for.
    assert!(with_worker(&folder.path().join("none"), Pacing::Modelled, |_| Options::default()).1.is_none());
}

/// Goal: a channel that goes to another part of the device in the midst of that gets its room all the same. Method: both parts open a
/// block, the thread takes room for both, only one part looks, and then the other one's channel comes to it.
#[test]
fn room_that_was_taken_for_a_channel_that_leaves_is_found() {
    let folder = tempfile::tempdir().unwrap();
    for (name, pacing) in [("paced", Pacing::Modelled), ("unpaced", Pacing::Unpaced)] {
        let path = folder.path().join(name);
        let (mut one, worker) = with_worker(&path, pacing, on_file);
        let worker = worker.unwrap();
        if Room::of(&path).unwrap().free_bytes < 1 << 30 || !one.device.room_support().unwrap().reserves {
            return left_out(&format!("{} has little room, or cannot allocate", folder.path().display()));
        }
        let mut other = Rig::over(one.device.empty_part());
        let (stays, leaves) = (one.good_block((0, 0), 0), one.good_block((1, 0), 0));
        other.device.take_channel(&mut one.device, 1);
        for (rig, block) in [(&mut one, stays), (&mut other, leaves)] {
            assert!(rig.device.make_room(block, rig.now));
        }
        one.submit(1, Operation::Erase { block: stays });
        while worker.step() {}
        assert_eq!(let_pass(&mut one), 1, "it looked when all had ended");
        one.device.take_channel(&mut other.device, 1);
        one.submit(2, Operation::Erase { block: leaves });
        assert_eq!(let_pass(&mut one), 1, "what ended before it came is seen");
        one.run(program(leaves, 0, UNITS, 3)).unwrap();
        assert_eq!(one.run(read(leaves, 0, 64)).unwrap().unwrap()[..], content(3, 64)[..]);
    }
}

/// Room of discarded blocks goes by the thread, too, and a block that is opened meanwhile keeps its room.
#[test]
fn room_is_given_back_by_a_thread_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("device");
    let (mut rig, worker) = with_worker(&path, Pacing::Modelled, on_file);
    let worker = worker.unwrap();
    let support = rig.device.room_support().unwrap();
    if Room::of(&path).unwrap().free_bytes < 1 << 30 || !support.reserves || !support.punches {
        return left_out(&format!("{} has little room, or cannot allocate", folder.path().display()));
    }
    let taken = || Room::of(&path).unwrap().taken_bytes;
    let all = blocks(&rig);
    let open = |rig: &mut Rig, block, seed| {
        assert!(rig.device.make_room(block, rig.now));
        rig.submit(1, Operation::Erase { block });
        while worker.step() {}
        assert_eq!(let_pass(rig), 1);
        rig.run(program(block, 0, UNITS, seed)).unwrap();
    };
    for &block in &all {
        open(&mut rig, block, block.block.0 as u8);
    }
    let full = taken();
    let kept = rig.device.profile().geometry.raw_capacity_bytes() / 8 / BLOCK_BYTES;
    for &block in &all[..all.len() / 2] {
        rig.device.discard(block, rig.now);
        rig.device.advance(rig.now, &mut rig.completions);
    }
    assert_eq!(taken(), full, "the driver gives nothing back");
    // What is opened takes what was kept, and then a place that is on its way.
    for &block in &all[..=kept as usize] {
        assert!(rig.device.make_room(block, rig.now));
        rig.submit(1, Operation::Erase { block });
    }
    // What is wanted comes first, and takes one step.
    assert!(worker.step());
    let mut erased = 0;
    while erased <= kept as usize {
        erased += let_pass(&mut rig);
    }
    for (nth, &block) in all[..=kept as usize].iter().enumerate() {
        rig.run(program(block, 0, UNITS, 200 + nth as u8)).unwrap();
    }
    while worker.step() {}
    let given = full - taken();
    let wanted = (all.len() as u64 / 2 - kept - 1) * BLOCK_BYTES;
    assert!(given.abs_diff(wanted) < BLOCK_BYTES, "{given} bytes given back, {wanted} were to be");
    for (nth, &block) in all[..=kept as usize].iter().enumerate() {
        let found = rig.run(read(block, 0, 64)).unwrap().unwrap();
        assert_eq!(found[..], content(200 + nth as u8, 64)[..], "{block}");
    }
    for &block in &all[all.len() / 2..] {
        let found = rig.run(read(block, 0, 64)).unwrap().unwrap();
        assert_eq!(found[..], content(block.block.0 as u8, 64)[..], "{block}");
    }
}

/// Nobody runs the thread's part: a program takes the room that its block was promised by itself.
#[test]
fn a_program_does_not_rely_on_the_thread() {
    let folder = tempfile::tempdir().unwrap();
    for (name, pacing) in [("paced", Pacing::Modelled), ("unpaced", Pacing::Unpaced)] {
        let (mut rig, _worker) = with_worker(&folder.path().join(name), pacing, on_file);
        let (block, next) = (rig.good_block((0, 0), 0), rig.good_block((0, 0), 1));
        rig.run(Operation::Erase { block }).unwrap();
        assert!(rig.device.make_room(block, rig.now));
        let taken = || Room::of(&folder.path().join(name)).unwrap().taken_bytes;
        let before = taken();
        rig.run(program(block, 0, 1, 7)).unwrap();
        assert!(taken() >= before + BLOCK_BYTES, "{} bytes taken for all of the block", taken() - before);
        assert_eq!(rig.run(read(block, 0, 8)).unwrap().unwrap()[..], content(7, 8)[..]);
        if pacing == Pacing::Unpaced {
            // Submitted in a row; with time, the die keeps them in order.
            assert!(rig.device.make_room(next, rig.now));
            rig.submit(1, Operation::Erase { block: next });
            rig.submit(2, program(next, 0, UNITS, 8));
            let done = rig.drain();
            assert!(done.len() == 2 && done.iter().all(|done| done.result.is_ok()), "{done:?}");
            assert_eq!(rig.run(read(next, 0, 64)).unwrap().unwrap()[..], content(8, 64)[..]);
        }
    }
}

#[test]
fn a_promise_of_room_that_others_break_is_survived() {
    in_small_file_system(
        "room::inside_a_file_system_that_others_fill",
        "300m",
        tempfile::tempdir().unwrap().path(),
        MOUNTED,
    );
}

/// There is plenty of room when a block is opened, and none when it is taken: the erase ends, its program fails with the word for that and
/// nothing dies, and when there is room again the next block is programmed.
#[test]
#[ignore = "run by a_promise_of_room_that_others_break_is_survived"]
fn inside_a_file_system_that_others_fill() {
    let Ok(folder) = std::env::var(MOUNTED) else { return };
    let path = Path::new(&folder).join("device");
    let (mut rig, worker) = with_worker(&path, Pacing::Modelled, on_file);
    let worker = worker.unwrap();
    let (broken, next) = (rig.good_block((0, 0), 0), rig.good_block((0, 0), 1));
    assert!(rig.device.make_room(broken, rig.now));
    rig.submit(1, Operation::Erase { block: broken });
    let rest = Path::new(&folder).join("rest");
    let full = std::fs::write(&rest, vec![1; 400 << 20]);
    assert!(full.is_err(), "300 MiB hold no 400");
    while worker.step() {}
    rig.drain();
    assert_eq!(
        rig.run(program(broken, 0, UNITS, 1)).unwrap_err(),
        MediaError::NoRoom { block: broken, page: 0 }
    );
    assert!(!rig.device.make_room(next, rig.now));
    std::fs::remove_file(&rest).unwrap();
    rig.now += Span(200_000_000);
    assert!(rig.device.make_room(next, rig.now));
    rig.submit(1, Operation::Erase { block: next });
    while worker.step() {}
    rig.drain();
    rig.run(program(next, 0, UNITS, 2)).unwrap();
    assert_eq!(rig.run(read(next, 0, 64)).unwrap().unwrap()[..], content(2, 64)[..]);
}
