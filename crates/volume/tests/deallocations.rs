//! Goal: a deallocation costs what is mapped, in work and on flash, and means what it says after a restart. Method: a thin volume far
//! larger than what its store holds, over a space in memory.

use crate::common;
use common::{FakeSpace, Random, shape};
use diecut_units::{BufferMut, ContentMode, Payload, ProtectedMemory, Span, Time};
use diecut_volume::contract::*;
use diecut_volume::{Store, StoreConfig};
use std::collections::BTreeSet;

const VOLUME: VolumeIndex = VolumeIndex(0);
const SIZE_IUS: u64 = 1 << 20;
const PIECE_IUS: u64 = 4096;

struct World {
    space: FakeSpace,
    store: Option<Store>,
    protected: ProtectedMemory,
    random: Random,
    now: Time,
    next: u64,
    out: Vec<VolumeCompletion>,
}

fn open(space: &mut FakeSpace, protected: &ProtectedMemory) -> Store {
    let config = StoreConfig { user_slots: 6, ..common::config() };
    Store::open(config, space, Some(protected.region(0..protected.size_bytes())))
}

impl World {
    fn new() -> World {
        let mut space = FakeSpace::new(shape(ContentMode::Tags, 0), 3, 18);
        let protected = ProtectedMemory::in_memory(6 * 5248);
        let store = Some(open(&mut space, &protected));
        let (random, out) = (Random::of(7), Vec::new());
        let mut world = World { space, store, protected, random, now: Time::ZERO, next: 0, out };
        world.until(|world| world.store().is_ready());
        world.store().create_volume(VolumeToken(0), VOLUME, SIZE_IUS);
        world.until(|world| world.out.pop().is_some());
        world
    }
    fn store(&mut self) -> &mut Store {
        self.store.as_mut().expect("open")
    }
    fn until(&mut self, mut is_so: impl FnMut(&mut World) -> bool) {
        for _ in 0..1_000_000 {
            if is_so(self) {
                return;
            }
            self.now += Span::from_micros(1);
            let store = self.store.as_mut().expect("open");
            if let Some(completion) = self.space.step(&mut self.random) {
                store.complete(completion, &mut self.space, &mut self.out);
            }
            store.work(self.now, &mut self.space, &mut self.out);
        }
        panic!("it never is: {}", self.store().describe());
    }
    fn run(&mut self, operation: VolumeOperation) -> VolumeCompletion {
        self.next += 1;
        let token = VolumeToken(self.next);
        self.store.as_mut().expect("open").submit(
            VolumeCommand { token, volume: VOLUME, operation },
            &mut self.space,
            &mut self.out,
        );
        let mut done = None;
        self.until(|world| {
            done = world.out.pop();
            done.is_some()
        });
        done.expect("waited for")
    }
    fn write(&mut self, iu: u64) {
        let data = BufferMut::copy_from(&(iu + 1).to_le_bytes()).freeze();
        let payload = Payload::new(ContentMode::Tags, data);
        let write = VolumeOperation::Write {
            first_iu: iu,
            payload,
            force_unit_access: false,
            placement: PlacementTarget::default(),
        };
        assert_eq!(self.run(write).result, Ok(()));
    }
    fn read(&mut self, iu: u64) -> u64 {
        let destination = BufferMut::copy_from(&[0xee; 8]);
        let done = self.run(VolumeOperation::Read { first_iu: iu, iu_count: 1, destination });
        u64::from_le_bytes(done.destination.expect("a read carries data")[..].try_into().unwrap())
    }
    /// Deallocates in pieces; says how many there were, and how many entries had to be looked at.
    fn deallocate(&mut self, first: u64, count: u64) -> (u32, u64) {
        let (mut at, mut pieces, mut looked_at) = (first, 0, 0);
        while at < first + count {
            let left = first + count - at;
            let (ius, looked) = self.store().deallocation_piece(VOLUME, at, left, PIECE_IUS);
            assert!(ius >= left.min(PIECE_IUS) && ius <= left && looked <= PIECE_IUS);
            assert_eq!(self.run(VolumeOperation::Deallocate { first_iu: at, iu_count: ius }).result, Ok(()));
            (at, pieces, looked_at) = (at + ius, pieces + 1, looked_at + looked);
        }
        self.store().check_invariants();
        (pieces, looked_at)
    }
    fn programmed_ius(&mut self) -> u64 {
        self.run(VolumeOperation::Flush);
        let log = self.store().statistics().log;
        log.user_ius() + log.summary_ius + log.padding_ius + log.map_ius()
    }
    fn restart(&mut self) {
        self.until(|world| world.space.is_idle());
        self.store = None;
        self.store = Some(open(&mut self.space, &self.protected));
        self.until(|world| world.store().is_ready());
        self.store().check_invariants();
    }
}

/// What reads as zeros already needs no record: it costs no flash however often it is deallocated.
#[test]
fn what_is_not_mapped_takes_no_flash() {
    let mut world = World::new();
    let before = world.programmed_ius();
    for round in 0..3000 {
        let first = round * 127 % SIZE_IUS;
        let done = world.run(VolumeOperation::Deallocate { first_iu: first, iu_count: 1 });
        assert_eq!(done.result, Ok(()));
    }
    assert_eq!(world.programmed_ius(), before);
}

/// Unmapped stretches are passed over in one piece, also where something was mapped before.
#[test]
fn unmapped_stretches_are_passed_over() {
    let mut world = World::new();
    assert_eq!(world.deallocate(0, SIZE_IUS), (1, 0));
    for iu in [500_000, 500_001, 900_123] {
        world.write(iu);
    }
    let (pieces, looked_at) = world.deallocate(3, SIZE_IUS - 3);
    assert!(pieces <= 5 && looked_at <= 2 * common::leaf_ius(), "{pieces} pieces, {looked_at} entries");
    assert_eq!([500_000, 500_001, 900_123].map(|iu| world.read(iu)), [0; 3]);
    assert_eq!(world.deallocate(0, SIZE_IUS), (1, 0), "nobody looks again");
    world.write(500_001);
    assert_eq!(world.read(500_001), 500_002);
    let (_, looked_at) = world.deallocate(0, SIZE_IUS);
    assert_eq!((looked_at, world.read(500_001)), (common::leaf_ius(), 0), "what was written again is found");
}

/// Goal: deallocations of any shape do what they say, before and after restarts. Method: random writes in a few places of the
/// volume, random deallocations, small ones and ones of all, restarts in between; a set says what must be there.
#[test]
fn deallocations_hold_after_restarts() {
    for seed in 0..20 {
        let mut world = World::new();
        world.random = Random::of(seed * 77 + 5);
        let mut there = BTreeSet::new();
        for round in 0..400 {
            let base = [0, 1000, 4090, 100_000, SIZE_IUS - 40][world.random.below(5) as usize];
            let iu = base + world.random.below(40);
            match world.random.below(8) {
                0 => {
                    let count_max = [3, 60, 9000, SIZE_IUS][world.random.below(4) as usize];
                    let count = 1 + world.random.below(count_max);
                    let count = count.min(SIZE_IUS - iu);
                    world.deallocate(iu, count);
                    there.retain(|one| !(iu..iu + count).contains(one));
                }
                1 if round % 4 == 0 => world.restart(),
                _ => {
                    world.write(iu);
                    there.insert(iu);
                }
            }
            if round % 50 == 49 {
                for base in [0, 1000, 4090, 100_000, SIZE_IUS - 40] {
                    for iu in base..base + 40 {
                        let expected = if there.contains(&iu) { iu + 1 } else { 0 };
                        assert_eq!(world.read(iu), expected, "seed {seed}, round {round}, IU {iu}");
                    }
                }
            }
        }
    }
}

/// Most notes that a restart may have to replay, of a store that is small beside its notes: what the writer of anchors aims at, and what is
/// noted while leaves and an anchor are written.
const REPLAYED_MAX: u64 = 16 * 1024 + 4096;

/// Blocks are written and deallocated one by one, scattered over the volume, until there were `notes` of them, with clean restarts.
/// Gives the most that a restart would have had to replay.
fn single_blocks(notes: u64) -> u64 {
    let mut world = World::new();
    let (mut done, mut most) = (0, 0);
    while done < notes {
        for nth in 0..64 {
            let iu = (done + nth) * 127 % SIZE_IUS;
            world.write(iu);
            let deallocation = VolumeOperation::Deallocate { first_iu: iu, iu_count: 1 };
            assert_eq!(world.run(deallocation).result, Ok(()));
        }
        done += 64;
        most = most.max(world.store().replayed_notes());
        if done % (16 * 1024) == 0 {
            world.restart();
            most = most.max(world.store().replayed_notes());
        }
    }
    most
}

/// Goal: what recovery keeps in memory does not grow with the history of deallocations. Method: far more notes than recovery may
/// replay; restarts find no more of them than that.
#[test]
fn notes_to_replay_are_bounded() {
    let most = single_blocks(100_000);
    assert!(most > 10_000, "{most}: the test has notes");
    assert!(most <= REPLAYED_MAX, "{most} notes would be replayed");
}

#[test]
fn notes_without_an_end_are_noticed() {
    assert!(diecut_units::marks::plant_mutant(Some("volume: notes without an end")));
    // Or they leave no room at all, and no anchor comes because nothing is written.
    let most = std::panic::catch_unwind(|| single_blocks(60_000));
    assert!(diecut_units::marks::mutant_reached_count() > 0);
    diecut_units::marks::plant_mutant(None);
    assert!(most.as_ref().map_or(true, |most| *most > REPLAYED_MAX), "{most:?}");
}
