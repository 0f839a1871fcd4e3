//! Goal: what hosts are told of wear outlives restarts: it is exact after a stop, never more than there was after a crash, and never less than
//! before the last stop. Method: random writes with handles on a space in memory that counts what it was asked; deaths of the process, power
//! cuts and orderly stops. The space lives through all of them, so its counts are the truth.

use crate::common;
use common::{FakeSpace, Random, seal_unit, shape};
use diecut_units::{BufferMut, ContentMode, Payload, ProtectedMemory, Span, Time};
use diecut_volume::contract::*;
use diecut_volume::{AnchorPace, EnduranceFigures, Placement, Store, StoreConfig};

const SIZE_IUS: u64 = 400;
const SLOT_SIZE_BYTES: usize = 5248;
const HANDLES: u16 = 2;

struct World {
    store: Option<Store>,
    space: FakeSpace,
    random: Random,
    memory: Option<ProtectedMemory>,
    now: Time,
    waiting: u64,
    /// IUs that hosts wrote in all lives.
    written_ius: u64,
}

impl World {
    fn new(seed: u64) -> World {
        let random = Random::of(seed);
        let space = FakeSpace::new(shape(ContentMode::Tags, (seed % 3) as u32), 3, 40);
        let is_protected = seed.is_multiple_of(2);
        let memory = is_protected.then(|| ProtectedMemory::in_memory(12 * SLOT_SIZE_BYTES));
        let mut world =
            World { store: None, space, random, memory, now: Time::ZERO, waiting: 0, written_ius: 0 };
        world.open();
        world.waiting += 1;
        world.store().create_volume(VolumeToken(0), VolumeIndex(0), SIZE_IUS);
        world.settle();
        world
    }

    fn store(&mut self) -> &mut Store {
        self.store.as_mut().expect("open")
    }

    fn open(&mut self) {
        let region = self.memory.as_ref().map(|memory| memory.region(0..memory.size_bytes()));
        let config = StoreConfig {
            placement: Placement { handles: HANDLES, ..Placement::default() },
            anchor_pace: AnchorPace { ius_per_leaf: 40, ius_per_anchor_iu: 3 },
            group_commit: Span::from_micros(5),
            ..common::config()
        };
        let mut store = Store::open(config, &mut self.space, region);
        let mut out = Vec::new();
        while !store.is_ready() {
            let completion = self.space.step(&mut self.random).expect("recovery reads");
            store.complete(completion, &mut self.space, &mut out);
        }
        assert_eq!(store.read_only_reason(), None);
        self.store = Some(store);
    }

    fn step(&mut self) {
        self.now += Span::from_micros(1);
        let mut out = Vec::new();
        let store = self.store.as_mut().expect("open");
        if let Some(completion) = self.space.step(&mut self.random) {
            store.complete(completion, &mut self.space, &mut out);
        }
        store.work(self.now, &mut self.space, &mut out);
        for completion in out {
            assert_eq!(completion.result, Ok(()));
            self.waiting -= 1;
        }
    }

    fn settle(&mut self) {
        (0..100_000).take_while(|_| self.waiting > 0).collect::<Vec<_>>().iter().for_each(|_| {
            if self.waiting > 0 {
                self.step();
            }
        });
        assert_eq!(self.waiting, 0, "commands end");
    }

    fn submit(&mut self, operation: VolumeOperation) {
        self.waiting += 1;
        let command = VolumeCommand { token: VolumeToken(0), volume: VolumeIndex(0), operation };
        let mut out = Vec::new();
        self.store.as_mut().expect("open").submit(command, &mut self.space, &mut out);
        self.waiting -= out.len() as u64;
    }

    /// Writes that are all answered at the end.
    fn write(&mut self, writes: u64) {
        for _ in 0..writes {
            let count = 1 + self.random.below(9);
            let first_iu = self.random.below(SIZE_IUS - count);
            let bytes: Vec<u8> = (0..count).flat_map(|iu| (first_iu + iu).to_le_bytes()).collect();
            let payload = Payload::new(ContentMode::Tags, BufferMut::copy_from(&bytes).freeze());
            let placement =
                PlacementTarget::handle(PlacementHandle(self.random.below(HANDLES.into()) as u16));
            self.submit(VolumeOperation::Write { first_iu, payload, force_unit_access: false, placement });
            self.written_ius += count;
            while self.waiting > 4 {
                self.step();
            }
        }
        self.settle();
    }

    fn figures(&self) -> EnduranceFigures {
        self.store.as_ref().expect("open").endurance(&self.space)
    }

    /// A stop, in order: figures are noted, then flushed.
    fn stop(&mut self) {
        self.waiting += 1;
        self.store().note_figures(VolumeToken(0));
        self.settle();
        self.submit(VolumeOperation::Flush);
        self.settle();
        self.die();
    }

    fn die(&mut self) {
        self.store = None;
        self.space.process_death(&mut self.random);
        self.open();
    }

    fn lose_power(&mut self) {
        self.store = None;
        self.space.power_cut(&mut self.random);
        self.open();
    }

    /// Figures are never more than there was, and go together.
    fn check(&self) {
        let (told, work) = (self.figures(), self.space.work);
        assert!(told.host_written_ius <= self.written_ius, "{told:?}: hosts wrote {}", self.written_ius);
        assert!(told.media_written_ius <= work.appended_ius, "{told:?}: {work:?}");
        assert!(told.erases <= work.erases, "{told:?}: {work:?}");
        // Slots of chunks that gather or are programmed: what hosts wrote and nobody has programmed is there.
        let staged_ius = 20 * 64;
        assert!(told.media_written_ius + staged_ius >= told.host_written_ius, "{told:?}");
    }
}

fn is_at_least(told: EnduranceFigures, before: EnduranceFigures) -> bool {
    told.max(before) == told
}

/// What hosts wrote before a stop is counted to the last block after it; flushing may have programmed more.
#[test]
fn figures_are_exact_after_a_stop() {
    for seed in 0..12 {
        let mut world = World::new(seed);
        for _ in 0..4 {
            world.write(120);
            let before = world.figures();
            assert_eq!(before.host_written_ius, world.written_ius);
            assert_eq!((before.media_written_ius, before.erases), {
                let work = world.space.work;
                (work.appended_ius, work.erases)
            });
            world.stop();
            let told = world.figures();
            assert_eq!(told.host_written_ius, before.host_written_ius, "seed {seed}");
            assert!(is_at_least(told, before), "seed {seed}: {told:?} after {before:?}");
            world.check();
            // What came between the note and the end is known but for erases: begin the next round from the truth.
            world = World::new(seed + 100);
        }
    }
}

#[test]
fn crashes_take_nothing_back_that_a_stop_wrote_down() {
    let mut found = [0u64; 2];
    for seed in 0..60 {
        let mut world = World::new(seed);
        let mut floor = EnduranceFigures::default();
        for _ in 0..8 {
            let writes = 1 + world.random.below(150);
            world.write(writes);
            world.check();
            match world.random.below(3) {
                0 => {
                    let before = world.figures();
                    world.stop();
                    floor = floor.max(before);
                }
                1 => world.die(),
                _ => world.lose_power(),
            }
            let told = world.figures();
            assert!(is_at_least(told, floor), "seed {seed}: {told:?} after {floor:?}");
            world.check();
            found[0] += told.host_written_ius;
            found[1] += world.written_ius;
        }
    }
    // Most is found again: only segments are missing that were given back since the newest anchor.
    assert!(found[0] * 10 >= found[1] * 9, "{found:?}");
}

/// An image of a version that kept no figures: its anchors do not have them. They begin with what is found, and are kept from then on.
#[test]
fn an_image_without_figures_is_opened_and_written() {
    let mut was_there = 0;
    for seed in 0..6 {
        let mut world = World::new(seed);
        world.write(300);
        world.submit(VolumeOperation::Flush);
        world.settle();
        for _ in 0..300 {
            world.step();
        }
        for nth in 0..world.space.unit_sum() {
            world.space.bend(nth, |ius, oob| {
                if !ius[0].starts_with(b"danc") {
                    return;
                }
                for iu in ius.iter_mut() {
                    let at = (0..iu.len() - 4).find(|at| iu[*at..].starts_with(b"dfig"));
                    // That version had nothing there.
                    if let Some(at) = at {
                        iu[at..at + 32].fill(0);
                        was_there += 1;
                    }
                }
                seal_unit(ius, oob);
            });
        }
        world.die();
        let told = world.figures();
        assert!(told.host_written_ius < world.written_ius, "seed {seed}: {told:?}");
        world.check();
        world.write(300);
        let before = world.figures();
        assert_eq!(before.host_written_ius - told.host_written_ius, {
            let of_this_life = world.figures().host_written_ius - told.host_written_ius;
            assert!(of_this_life >= 300);
            of_this_life
        });
        world.stop();
        assert!(is_at_least(world.figures(), before), "seed {seed}");
        world.check();
    }
    assert!(was_there > 0, "no anchor was written");
}
