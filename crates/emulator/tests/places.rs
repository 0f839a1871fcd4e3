//! Where in a device's file the content of its erase blocks lies: a block that is opened gets the place that another left, nobody's
//! content goes with that, and files of versions without places open.

use crate::rig;
use diecut_emulator::*;
use diecut_media::*;
use diecut_units::*;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use rig::*;
use std::path::Path;

const BLOCK_BYTES: usize = 256 << 10;
const UNITS: u32 = 8;
const PAGES: usize = 16;
const OOB_BYTES: usize = PAGES * 64;
const HEADER_BYTES: usize = 16384;

fn on_file(path: &Path) -> Options {
    Options { backing: Backing::File(path.to_owned()), pacing: Pacing::Unpaced, ..Options::default() }
}

fn create(path: &Path) -> Rig {
    Rig::over(Device::create(&Profile::named("tiny").unwrap(), on_file(path)).unwrap())
}

fn good_blocks(device: &Device) -> Vec<EraseBlockAddress> {
    let geometry = *device.geometry();
    let all = geometry.all_dies().flat_map(|die| {
        (0..geometry.erase_blocks_per_die()).map(move |index| die.erase_block(BlockIndex(index)))
    });
    all.filter(|block| !device.is_factory_bad(*block)).collect()
}

/// Blocks are opened in turn, the least worn one first, and each takes the place of one that was discarded: the file system is asked
/// for no more than what lives, and neither the driver nor the thread beside it has anything to do.
#[test]
fn a_block_gets_the_place_that_another_left() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("device");
    let mut rig = create(&path);
    let worker = rig.device.room_worker().unwrap();
    let all = good_blocks(&rig.device);
    let live = 4;
    let mut first_bytes = 0;
    for nth in 0..3 * all.len() {
        let block = all[nth % all.len()];
        assert!(rig.device.make_room(block, rig.now));
        rig.submit(1, Operation::Erase { block });
        let mut steps = 0;
        while worker.step() {
            steps += 1;
        }
        assert!(rig.drain().iter().all(|done| done.result.is_ok()));
        rig.run(program(block, 0, UNITS, nth as u8)).unwrap();
        if nth >= live {
            rig.device.discard(all[(nth - live) % all.len()], rig.now);
        }
        let taken_bytes = Room::of(&path).unwrap().taken_bytes;
        if nth == 2 * live {
            first_bytes = taken_bytes;
        } else if nth > 2 * live {
            assert_eq!(steps, 0, "block {nth} had room");
            assert_eq!(taken_bytes, first_bytes, "the file is as large as it was");
        }
    }
    for back in 1..=live {
        let nth = 3 * all.len() - back;
        let found = rig.run(read(all[nth % all.len()], 0, 64)).unwrap().unwrap();
        assert_eq!(found[..], content(nth as u8, 64)[..]);
    }
}

/// What each block should hold: units, and the seed of each.
type Oracle = Vec<Vec<u8>>;

fn assert_holds(rig: &mut Rig, blocks: &[EraseBlockAddress], oracle: &Oracle, what: &str) {
    for (&block, units) in blocks.iter().zip(oracle) {
        for (unit, &seed) in units.iter().enumerate() {
            let first_iu = unit as u32 * 2 * 4;
            let mut operation = read(block, first_iu, 8);
            let Operation::Read { oob, .. } = &mut operation else { unreachable!() };
            *oob = Some(BufferMut::copy_from(&[0; 128]));
            rig.submit(1, operation);
            let done = rig.drain().remove(0);
            assert_eq!(done.result, Ok(()), "{what}: {block} unit {unit}");
            assert_eq!(done.destination.unwrap()[..], content(seed, 8)[..], "{what}: {block} unit {unit}");
            assert_eq!(done.oob.unwrap()[..], [seed; 128], "{what}: {block} OOB of unit {unit}");
        }
        let beyond = rig.run(read(block, units.len() as u32 * 8, 1));
        if units.len() < UNITS as usize {
            assert!(matches!(beyond, Err(MediaError::Erased { .. })), "{what}: {block} holds no more");
        }
    }
}

/// Blocks are opened, filled a unit at a time, copied, discarded and erased at random, the device is divided, and processes die: what an
/// oracle knows is there, whatever place it lies at. The thread for room runs now and then, or there is none.
#[test]
fn content_stays_with_its_block() {
    for seed in 0..16 {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("device");
        let mut rig = create(&path);
        let blocks = good_blocks(&rig.device);
        let mut oracle: Oracle = vec![Vec::new(); blocks.len()];
        let mut is_open = vec![false; blocks.len()];
        let mut worker = (seed % 2 == 0).then(|| rig.device.room_worker()).flatten();
        for step in 0..300 {
            let at = random.random_range(0..blocks.len());
            let block = blocks[at];
            match random.random_range(0..20) {
                0..6 => {
                    assert!(rig.device.make_room(block, rig.now));
                    if let (Some(worker), true) = (&worker, random.random_range(0..2) == 0) {
                        while worker.step() {}
                    }
                    rig.submit(1, Operation::Erase { block });
                    // Else a program finds that its room is not there yet, and takes it.
                    if let Some(worker) = &worker {
                        while worker.step() {}
                    }
                    assert!(rig.drain().iter().all(|done| done.result.is_ok()));
                    (oracle[at], is_open[at]) = (Vec::new(), true);
                }
                6..14 => {
                    if is_open[at] && oracle[at].len() < UNITS as usize {
                        let byte = random.random_range(0..=255);
                        rig.run(program(block, oracle[at].len() as u32 * 2, 1, byte)).unwrap();
                        oracle[at].push(byte);
                    }
                }
                14..18 => {
                    rig.device.discard(block, rig.now);
                    (oracle[at], is_open[at]) = (Vec::new(), false);
                }
                18 => {
                    // A part works on one channel for a while.
                    let mut part = rig.device.empty_part();
                    part.take_channel(&mut rig.device, 1);
                    let mut other = Rig::over(part);
                    for (at, &block) in blocks.iter().enumerate() {
                        if block.channel.0 == 1 && random.random_range(0..4) == 0 {
                            other.device.discard(block, other.now);
                            other.run(Operation::Erase { block }).unwrap();
                            other.run(program(block, 0, 1, at as u8)).unwrap();
                            (oracle[at], is_open[at]) = (vec![at as u8], true);
                        }
                    }
                    rig.device.take_channel(&mut other.device, 1);
                }
                _ => {
                    drop((rig, worker.take()));
                    rig = Rig::over(Device::open(&path, on_file(&path)).unwrap());
                    worker = (seed % 2 == 0).then(|| rig.device.room_worker()).flatten();
                    is_open
                        .iter_mut()
                        .zip(&oracle)
                        .for_each(|(is_open, units)| *is_open &= !units.is_empty());
                    assert_holds(&mut rig, &blocks, &oracle, &format!("seed {seed}, opened at {step}"));
                }
            }
        }
        assert_holds(&mut rig, &blocks, &oracle, &format!("seed {seed}, at the end"));
    }
}

/// The parts of an image, read by its documented layout.
struct Image {
    bytes: Vec<u8>,
    table: usize,
    oob: usize,
    data: usize,
}

impl Image {
    fn read(path: &Path) -> Image {
        let bytes = std::fs::read(path).unwrap();
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()) as usize;
        let (table, oob, data) = (word(24), word(56), word(64));
        Image { bytes, table, oob, data }
    }

    fn blocks(&self) -> usize {
        (self.bytes.len() - self.data) / BLOCK_BYTES
    }

    fn entry(&mut self, block: usize) -> &mut [u8] {
        &mut self.bytes[self.table + block * 16..][..16]
    }

    fn version(&self) -> u32 {
        u32::from_le_bytes(self.bytes[8..12].try_into().unwrap())
    }

    fn set_version(&mut self, version: u32) {
        self.bytes[8..12].copy_from_slice(&version.to_le_bytes());
        self.bytes[12..16].fill(0);
        let checksum = checksum(&self.bytes[..HEADER_BYTES]);
        self.bytes[12..16].copy_from_slice(&checksum.to_le_bytes());
    }

    /// As a version that knew no places left it: content lies at the block's number.
    fn without_places(mut self) -> Image {
        let found = self.bytes.clone();
        self.bytes[self.oob..].fill(0);
        for block in 0..self.blocks() {
            let (oob, data) = (self.oob, self.data);
            let entry = self.entry(block);
            let place = u32::from_le_bytes([entry[9], entry[10], entry[11], 0]) as usize;
            entry[9..12].fill(0);
            if entry[..4] != [0; 4] {
                assert!(place > 0 && place < (1 << 24) - 1, "block {block} has a place");
                let from = place - 1;
                self.bytes[oob + block * OOB_BYTES..][..OOB_BYTES]
                    .copy_from_slice(&found[oob + from * OOB_BYTES..][..OOB_BYTES]);
                self.bytes[data + block * BLOCK_BYTES..][..BLOCK_BYTES]
                    .copy_from_slice(&found[data + from * BLOCK_BYTES..][..BLOCK_BYTES]);
            }
        }
        self.set_version(1);
        self
    }
}

/// A file that a version without places left opens, holds what it held, is refused by that version from then on, and is written to as any
/// other.
#[test]
fn files_of_the_version_without_places_open() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("device");
    let mut rig = create(&path);
    let blocks = good_blocks(&rig.device);
    let mut oracle: Oracle = vec![Vec::new(); blocks.len()];
    // Every other block from the end, so that places are not in the order of numbers.
    for (at, &block) in blocks.iter().enumerate().rev().step_by(2) {
        rig.run(Operation::Erase { block }).unwrap();
        let units = 1 + at as u32 % UNITS;
        rig.run(program(block, 0, units, at as u8)).unwrap();
        let seeds = (0..units).map(|_| at as u8);
        oracle[at] = seeds.collect();
    }
    drop(rig);
    let written = Image::read(&path);
    assert_eq!(written.version(), 3);
    std::fs::write(&path, written.without_places().bytes).unwrap();
    let holds = |rig: &mut Rig, oracle: &Oracle| {
        for (&block, units) in blocks.iter().zip(oracle) {
            if let Some(&seed) = units.first() {
                let ius = units.len() as u32 * 8;
                let found = rig.run(read(block, 0, ius)).unwrap().unwrap();
                assert_eq!(found[..], content(seed, ius)[..], "{block}");
            }
        }
    };
    let mut rig = Rig::over(Device::open(&path, on_file(&path)).unwrap());
    assert_eq!(Image::read(&path).version(), 3, "an older version refuses it from now on");
    holds(&mut rig, &oracle);
    // One is discarded while its room is being taken where it lies, and opened again.
    let worker = rig.device.room_worker().unwrap();
    let (at, block) = (blocks.len() - 1, blocks[blocks.len() - 1]);
    assert!(rig.device.make_room(block, rig.now));
    rig.device.discard(block, rig.now);
    assert!(rig.device.make_room(block, rig.now));
    rig.submit(1, Operation::Erase { block });
    while worker.step() {}
    assert!(rig.drain().iter().all(|done| done.result.is_ok()));
    rig.run(program(block, 0, 1, 77)).unwrap();
    oracle[at] = vec![77];
    holds(&mut rig, &oracle);
    for (at, &block) in blocks.iter().enumerate().step_by(3) {
        rig.device.discard(block, rig.now);
        rig.run(Operation::Erase { block }).unwrap();
        oracle[at].clear();
        if at % 2 == 0 {
            rig.run(program(block, 0, UNITS, !(at as u8))).unwrap();
            oracle[at] = vec![!(at as u8); UNITS as usize];
        }
    }
    holds(&mut rig, &oracle);
    drop((rig, worker));
    let mut rig = Rig::over(Device::open(&path, on_file(&path)).unwrap());
    holds(&mut rig, &oracle);
}

/// Two blocks at one place, one beyond the end, or pages that lie nowhere are said, and nothing is served.
#[test]
fn a_table_that_cannot_be_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("device");
    let mut rig = create(&path);
    let blocks = good_blocks(&rig.device);
    for &block in &blocks[..2] {
        rig.run(Operation::Erase { block }).unwrap();
        rig.run(program(block, 0, 1, 1)).unwrap();
    }
    let numbers = [0, 1].map(|nth| rig.device.geometry().erase_block_number(blocks[nth]) as usize);
    drop(rig);
    let broken = [
        (1u32, "the same place"),
        (900, "which is not there"),
        (0x00ff_ffff, "holds pages, but has no place"),
    ];
    for (place, wanted) in broken {
        let mut image = Image::read(&path);
        image.entry(numbers[1])[9..12].copy_from_slice(&place.to_le_bytes()[..3]);
        let broken = folder.path().join("broken");
        std::fs::write(&broken, image.bytes).unwrap();
        let error = Device::open(&broken, on_file(&broken)).err().expect("it is refused").to_string();
        assert!(error.contains(wanted) && error.contains("broken"), "{error}");
    }
}
