//! A store with reclaim unit handles and reclaim groups on a space in memory, and what was written to it.
#![allow(dead_code, reason = "each test uses a part")]

use super::common::{FakeSpace, Random, shape};
use diecut_units::{BufferMut, ContentMode, Payload, ProtectedMemory, Span, Time};
use diecut_volume::contract::*;
use diecut_volume::{Placement, Store, StoreConfig};
use std::collections::BTreeMap;

/// IUs of a volume.
pub const SIZE_IUS: u64 = 1000;
/// Bytes of a slot of protected memory whose chunk is full.
pub const SLOT_SIZE_BYTES: usize = 5248;

/// Units of a space: two for each group.
fn units(placement: Placement) -> u16 {
    if placement.groups == 1 { 3 } else { 2 * placement.groups }
}

pub struct World {
    pub store: Store,
    pub space: FakeSpace,
    pub random: Random,
    /// Protected memory outlives the store.
    memory: Option<ProtectedMemory>,
    /// By volume and IU: what was written last.
    written: BTreeMap<(u16, u64), u64>,
    now: Time,
    next: u64,
    waiting: u64,
    /// Writes whose group was full, since somebody looked.
    pub refused: u64,
}

impl World {
    pub fn new(placement: Placement, blocks: u32, unsafe_units: u32, slots: usize) -> World {
        World::with(placement, SIZE_IUS, blocks, unsafe_units, slots)
    }

    pub fn with(placement: Placement, size_ius: u64, blocks: u32, unsafe_units: u32, slots: usize) -> World {
        let mut world = World::empty(placement, blocks, unsafe_units, slots);
        (0..2).for_each(|volume| world.create(volume, size_ius));
        world
    }

    pub fn empty(placement: Placement, blocks: u32, unsafe_units: u32, slots: usize) -> World {
        let mut space = FakeSpace::new(shape(ContentMode::Tags, unsafe_units), units(placement), blocks);
        let memory = (slots > 0).then(|| ProtectedMemory::in_memory(slots * SLOT_SIZE_BYTES));
        let region = memory.as_ref().map(|memory| memory.region(0..memory.size_bytes()));
        assert_eq!(placement.check(&space, region.as_ref().map(|region| region.len())), Ok(()));
        let config = StoreConfig { placement, group_commit: Span::from_micros(5), ..super::common::config() };
        let store = Store::open(config, &mut space, region);
        let (random, now) = (Random::of(7), Time::ZERO);
        let written = BTreeMap::new();
        World { store, space, random, memory, written, now, next: 1, waiting: 0, refused: 0 }
    }

    pub fn create(&mut self, volume: u16, size_ius: u64) {
        self.waiting += 1;
        self.store.create_volume(VolumeToken(0), VolumeIndex(volume), size_ius);
        self.settle();
    }

    pub fn step(&mut self) {
        self.now += Span::from_micros(1);
        let mut out = Vec::new();
        if let Some(completion) = self.space.step(&mut self.random) {
            self.store.complete(completion, &mut self.space, &mut out);
        }
        self.store.work(self.now, &mut self.space, &mut out);
        self.answered(out);
    }

    pub fn answered(&mut self, out: Vec<VolumeCompletion>) {
        for completion in out {
            match completion.result {
                Err(VolumeError::GroupFull) => self.refused += 1,
                result => assert_eq!(result, Ok(())),
            }
            self.waiting -= 1;
        }
    }

    /// Lets everything end that was asked for.
    pub fn settle(&mut self) {
        for _ in 0..100_000 {
            if self.waiting == 0 {
                return self.store.check_invariants();
            }
            self.step();
        }
        panic!("{} commands do not end: {}", self.waiting, self.store.describe());
    }

    /// Lets everything end that was begun.
    pub fn rest(&mut self) {
        self.settle();
        for _ in 0..200 {
            self.step();
        }
    }

    pub fn write(&mut self, volume: u16, first_iu: u64, count: u64, handle: u16) {
        self.write_to(volume, first_iu, count, PlacementTarget::handle(PlacementHandle(handle)));
    }

    /// Writes where a host says; what is refused must not be looked for by [`World::check`].
    pub fn write_to(&mut self, volume: u16, first_iu: u64, count: u64, placement: PlacementTarget) {
        let bytes: Vec<u8> = (0..count).flat_map(|_| self.next.to_le_bytes()).collect();
        self.written.extend((first_iu..first_iu + count).map(|iu| ((volume, iu), self.next)));
        let payload = Payload::new(ContentMode::Tags, BufferMut::copy_from(&bytes).freeze());
        self.next += 1;
        let operation = VolumeOperation::Write { first_iu, payload, force_unit_access: false, placement };
        let command = VolumeCommand { token: VolumeToken(0), volume: VolumeIndex(volume), operation };
        self.submit(command);
        let mut steps = 0;
        while self.waiting > 8 {
            self.step();
            steps += 1;
            assert!(steps < 100_000, "{} commands do not end: {}", self.waiting, self.store.describe());
        }
    }

    pub fn deallocate(&mut self, volume: u16, first_iu: u64, iu_count: u64) {
        (first_iu..first_iu + iu_count).for_each(|iu| _ = self.written.remove(&(volume, iu)));
        let operation = VolumeOperation::Deallocate { first_iu, iu_count };
        self.submit(VolumeCommand { token: VolumeToken(0), volume: VolumeIndex(volume), operation });
    }

    fn submit(&mut self, command: VolumeCommand) {
        self.waiting += 1;
        let mut out = Vec::new();
        self.store.submit(command, &mut self.space, &mut out);
        self.answered(out);
    }

    /// What a write of these IUs that was refused would have changed is as it was.
    pub fn forget_written(&mut self, volume: u16, first_iu: u64, before: Option<u64>) {
        match before {
            Some(version) => self.written.insert((volume, first_iu), version),
            None => self.written.remove(&(volume, first_iu)),
        };
    }

    /// What was written last to an IU.
    pub fn written(&self, volume: u16, iu: u64) -> Option<u64> {
        self.written.get(&(volume, iu)).copied()
    }
}

impl World {
    /// The power goes and comes again, and the store is opened with these handles.
    pub fn cut(&mut self, placement: Placement) {
        self.settle();
        // Another store for the moment: the one before holds protected memory.
        let mut other = FakeSpace::new(shape(ContentMode::Tags, 0), 3, 30);
        self.store = Store::open(super::common::config(), &mut other, None);
        self.space.power_cut(&mut self.random);
        let region = self.memory.as_ref().map(|memory| memory.region(0..memory.size_bytes()));
        self.store =
            Store::open(StoreConfig { placement, ..super::common::config() }, &mut self.space, region);
        let mut out = Vec::new();
        while !self.store.is_ready() {
            let completion = self.space.step(&mut self.random).expect("recovery reads");
            self.store.complete(completion, &mut self.space, &mut out);
        }
        assert!(out.is_empty() && self.store.read_only_reason().is_none());
        self.store.check_invariants();
    }

    /// All that was written is there.
    pub fn check(&mut self) {
        self.settle();
        for ((volume, first_iu), expected) in self.written.clone() {
            let destination = BufferMut::copy_from(&[0; 8]);
            let operation = VolumeOperation::Read { first_iu, iu_count: 1, destination };
            let command = VolumeCommand { token: VolumeToken(0), volume: VolumeIndex(volume), operation };
            let mut out = Vec::new();
            self.store.submit(command, &mut self.space, &mut out);
            while out.is_empty() {
                let completion = self.space.step(&mut self.random).expect("the read is under way");
                self.store.complete(completion, &mut self.space, &mut out);
            }
            let data = out.pop().unwrap().destination.expect("read");
            assert_eq!(
                u64::from_le_bytes(data[..].try_into().unwrap()),
                expected,
                "volume {volume} IU {first_iu}"
            );
        }
    }
}
