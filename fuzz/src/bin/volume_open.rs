//! A store over flash that is not what it left there: chunk heads and page marks read back bent, once or for good, after
//! the death of the process or a power cut. It opens and answers everything it is asked. What checks out, and what staging
//! memory holds, is taken at its word: see the limits in ARCHITECTURE.md.
#![no_main]

#[path = "../../../crates/volume/tests/common/mod.rs"]
mod common;

use common::{FakeSpace, Random, shape};
use diecut_fuzz::{Input, bounded};
use diecut_units::{BufferMut, ContentMode, IU_SIZE_BYTES, Payload, ProtectedMemory, Span, Time};
use diecut_volume::contract::*;
use diecut_volume::{Store, StoreConfig};
use diecut_vssd::SpaceCompletion;

diecut_fuzz::target!(seeds, check);

const SIZE_IUS: u64 = 300;
const SLOTS: usize = 6;
/// 64 bytes, a head, and data of a chunk in tags.
const SLOT_SIZE_BYTES: usize = 5248;
const COMMANDS_MAX: u8 = 60;
/// Edits that an input can make of what is read while opening.
const BENDS_MAX: usize = 16;
const MARK_OFFSET: usize = 32;

/// One read of the opening gets other bytes.
struct Bend {
    nth: u8,
    at: u16,
    bytes: Vec<u8>,
}

struct World {
    space: FakeSpace,
    random: Random,
    store: Store,
    now: Time,
    out: Vec<VolumeCompletion>,
    bends: Vec<Bend>,
    reads: u8,
}

fn open(space: &mut FakeSpace, memory: &Option<ProtectedMemory>) -> Store {
    let config =
        StoreConfig { group_commit: Span::from_micros(5), user_slots: SLOTS, ..StoreConfig::default() };
    let region = memory.as_ref().map(|memory| memory.region(0..memory.size_bytes()));
    Store::open(config, space, region)
}

impl World {
    fn step(&mut self) {
        self.now += Span::from_micros(1);
        if let Some(mut completion) = self.space.step(&mut self.random) {
            self.bend(&mut completion);
            self.store.complete(completion, &mut self.space, &mut self.out);
        }
        self.store.work(self.now, &mut self.space, &mut self.out);
    }

    fn bend(&mut self, completion: &mut SpaceCompletion) {
        let bytes = match (&mut completion.destination, &mut completion.oob) {
            (Some(bytes), None) if bytes.len() == IU_SIZE_BYTES => &mut bytes[..],
            (None, Some(oob)) => &mut oob[MARK_OFFSET..],
            _ => return,
        };
        let nth = self.reads;
        self.reads = self.reads.saturating_add(1);
        for bend in self.bends.iter().filter(|bend| bend.nth == nth) {
            let at = usize::from(bend.at) % bytes.len();
            let room = bend.bytes.len().min(bytes.len() - at);
            bytes[at..at + room].copy_from_slice(&bend.bytes[..room]);
        }
    }

    fn wait(&mut self, what: &str, mut until: impl FnMut(&World) -> bool) {
        for _ in 0..100_000 {
            if until(self) {
                return;
            }
            self.step();
        }
        panic!("{what} does not end");
    }

    fn ask(&mut self, volume: u16, operation: VolumeOperation) -> Result<(), VolumeError> {
        let command = VolumeCommand { token: VolumeToken(1), volume: VolumeIndex(volume), operation };
        self.store.submit(command, &mut self.space, &mut self.out);
        self.wait("a command", |world| !world.out.is_empty());
        assert_eq!(self.out.len(), 1);
        self.out.pop().expect("one answer").result
    }

    fn write(&mut self, volume: u16, first: u64, count: u64, tag: u64) -> Result<(), VolumeError> {
        let tags: Vec<u8> = (first..first + count).flat_map(|iu| (tag << 32 | iu).to_le_bytes()).collect();
        let payload = Payload::new(ContentMode::Tags, BufferMut::copy_from(&tags).freeze());
        let force_unit_access = tag.is_multiple_of(5);
        self.ask(
            volume,
            VolumeOperation::Write {
                first_iu: first,
                payload,
                force_unit_access,
                placement: PlacementTarget::default(),
            },
        )
    }
}

fn seeds() -> Vec<Vec<u8>> {
    let bend = |nth: u8, at: u16, bytes: &[u8]| {
        [&[nth][..], &at.to_le_bytes(), &[bytes.len() as u8], bytes].concat()
    };
    vec![
        vec![1, 20, 7],
        vec![0, 40, 9],
        [&[1, 10, 3][..], &bend(0, 0, &[0xFF; 8])].concat(),
        [&[0, 30, 5][..], &bend(1, 24, &[1, 0, 2, 0]), &bend(2, 4, &[9, 9, 9, 9])].concat(),
        [&[0x81, 50, 5][..], &bend(0, 0, &[0; 16]), &bend(6, 28, &[1, 0, 0, 0])].concat(),
    ]
}

fn check(bytes: &[u8]) {
    bounded((32 << 20) + 64 * bytes.len(), || check_all(Input::new(bytes)));
}

fn check_all(mut input: Input<'_>) {
    let mode = input.byte();
    let commands = input.byte() % COMMANDS_MAX;
    let mut random = Random::of(u64::from(input.byte()));
    let memory = (mode & 1 != 0).then(|| ProtectedMemory::in_memory(SLOTS * SLOT_SIZE_BYTES));
    let mut space = FakeSpace::new(shape(ContentMode::Tags, u32::from(mode >> 1 & 3)), 3, 22);
    let store = open(&mut space, &memory);
    let out = Vec::new();
    let mut world =
        World { space, random: Random::of(1), store, now: Time(0), out, bends: Vec::new(), reads: 0 };
    world.wait("an opening", |world| world.store.is_ready());
    for volume in 0..2 {
        world.store.create_volume(VolumeToken(1), VolumeIndex(volume), SIZE_IUS);
        world.wait("a creation", |world| !world.out.is_empty());
        world.out.clear();
    }
    for tag in 1..=u64::from(commands) {
        let (volume, first) = (random.below(2) as u16, random.below(SIZE_IUS - 12));
        let done = match random.below(6) {
            0 => world.ask(volume, VolumeOperation::Deallocate { first_iu: first, iu_count: 9 }),
            1 => world.ask(volume, VolumeOperation::Flush),
            _ => world.write(volume, first, 1 + random.below(11), tag),
        };
        assert_eq!(done, Ok(()));
    }

    // The process dies, and what it left is bent.
    let World { mut space, store, .. } = world;
    drop(store);
    if mode & 0x80 != 0 {
        space.power_cut(&mut random)
    } else {
        space.process_death(&mut random)
    }
    let mut bends = Vec::new();
    while !input.is_empty() && bends.len() < BENDS_MAX {
        let (nth, at, count) = (input.byte(), input.u16(), input.byte());
        bends.push(Bend { nth, at, bytes: input.bytes(count.into()).to_vec() });
    }
    let store = open(&mut space, &memory);
    let mut world = World { space, random, store, now: Time(0), out: Vec::new(), bends, reads: 0 };
    world.wait("an opening", |world| world.store.is_ready());
    assert!(world.out.is_empty());
    world.bends.clear();
    for volume in 0..2 {
        let Some(size_ius) = world.store.volume_size_ius(VolumeIndex(volume)) else { continue };
        for first_iu in (0..size_ius.min(SIZE_IUS)).step_by(50) {
            let iu_count = 50.min(size_ius - first_iu) as u32;
            let destination = BufferMut::copy_from(&vec![0; iu_count as usize * 8]);
            // Whatever the answer is: there is one.
            let _ = world.ask(volume, VolumeOperation::Read { first_iu, iu_count, destination });
        }
        if size_ius >= 12 {
            let _ = world.write(volume, 0, 12, 1000);
            let _ = world.ask(volume, VolumeOperation::Flush);
        }
    }
}
