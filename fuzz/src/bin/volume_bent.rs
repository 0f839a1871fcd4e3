//! A store over flash and staging memory that were bent in place, with all checksums made right again or not: chunk heads,
//! notes, anchors, leaves, page marks and staging slots say what nobody wrote. It opens, answers everything it is asked, and
//! opens again.
#![no_main]

#[path = "../../../crates/volume/tests/common/mod.rs"]
mod common;

use common::{
    FakeSpace, MARK_OFFSET, MARK_SIZE_BYTES, OOB_SIZE_BYTES, Random, seal_mark, seal_slot, seal_unit, shape,
};
use diecut_fuzz::{Input, bounded};
use diecut_units::{BufferMut, ContentMode, IU_SIZE_BYTES, Payload, ProtectedMemory, Span, Time};
use diecut_volume::contract::*;
use diecut_volume::{AnchorPace, Format, Store, StoreConfig};

diecut_fuzz::target!(seeds, check);

const SIZE_IUS: u64 = 300;
const SLOTS: usize = 6;
/// 64 bytes, a head, and data of a chunk in tags.
const SLOT_SIZE_BYTES: usize = 64 + IU_SIZE_BYTES + 128 * 8;
/// Edits that an input can make.
const BENDS_MAX: usize = 24;
const CONTENT: u8 = 0;
const MARK: u8 = 1;
const SLOT: u8 = 2;

struct World {
    space: FakeSpace,
    random: Random,
    store: Store,
    now: Time,
    out: Vec<VolumeCompletion>,
}

fn open(space: &mut FakeSpace, memory: &Option<ProtectedMemory>, format: Format) -> Store {
    let config = StoreConfig {
        group_commit: Span::from_micros(5),
        user_slots: SLOTS,
        anchor_pace: AnchorPace { ius_per_leaf: 4, ius_per_anchor_iu: 2 },
        format,
        ..StoreConfig::default()
    };
    let region = memory.as_ref().map(|memory| memory.region(0..memory.size_bytes()));
    Store::open(config, space, region)
}

impl World {
    fn step(&mut self) {
        self.now += Span::from_micros(1);
        if let Some(completion) = self.space.step(&mut self.random) {
            self.store.complete(completion, &mut self.space, &mut self.out);
        }
        self.store.work(self.now, &mut self.space, &mut self.out);
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

    /// Everything is asked of what there is; whatever the answers are, there is one to each.
    fn use_all(&mut self, rounds: u64) {
        for volume in 0..2 {
            let Some(size_ius) = self.store.volume_size_ius(VolumeIndex(volume)) else { continue };
            for first_iu in (0..size_ius.min(2 * SIZE_IUS)).step_by(50) {
                let iu_count = 50.min(size_ius - first_iu) as u32;
                let destination = BufferMut::copy_from(&vec![0; iu_count as usize * 8]);
                let _ = self.ask(volume, VolumeOperation::Read { first_iu, iu_count, destination });
            }
            for round in 0..rounds {
                if size_ius >= 12 {
                    let _ = self.write(volume, round * 7 % (size_ius.min(SIZE_IUS) - 11), 12, 1000 + round);
                }
            }
            let _ = self.ask(volume, VolumeOperation::Flush);
        }
    }
}

fn put(bytes: &mut [u8], at: u16, content: &[u8]) {
    if !bytes.is_empty() {
        let at = usize::from(at) % bytes.len();
        let room = content.len().min(bytes.len() - at);
        bytes[at..at + room].copy_from_slice(&content[..room]);
    }
}

fn seeds() -> Vec<Vec<u8>> {
    let bend = |kind: u8, nth: u16, part: u8, at: u16, bytes: &[u8]| {
        [&[kind, 1][..], &nth.to_le_bytes(), &[part], &at.to_le_bytes(), &[bytes.len() as u8], bytes].concat()
    };
    let head = |at: u16, bytes: &[u8]| bend(CONTENT, 0, 0, at, bytes);
    vec![
        vec![1, 7],
        vec![0, 9],
        // Heads and slots of version 3.
        vec![0x85, 7],
        [&[0x84, 5][..], &head(28, &[1, 0, 24, 0]), &bend(CONTENT, 9, 0, 64, &[0xFF; 16])].concat(),
        [&[0x85, 8][..], &bend(SLOT, 0, 3, 8, &[0xFE; 8]), &bend(SLOT, 1, 5, 64 + 4080, &[1, 2])].concat(),
        // Heads: a sequence, notes, counts, an origin.
        [&[0, 5][..], &head(32, &[0xFF; 8]), &bend(CONTENT, 9, 0, 24, &[3, 0, 1, 0, 2, 0, 0, 0])].concat(),
        [
            &[1, 6][..],
            &bend(CONTENT, 20, 0, 40, &[1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0]),
            &head(4064, &[0xFF; 16]),
        ]
        .concat(),
        // Anchors and leaves: every unit's first words.
        [&[1, 3][..], &bend(CONTENT, 30, 0, 64, &[0xFF; 20]), &bend(CONTENT, 31, 0, 24, &[0xFF; 8])].concat(),
        [&[0, 4][..], &bend(CONTENT, 12, 1, 0, &[0, 0, 0, 0x80]), &bend(CONTENT, 13, 2, 4, &[9, 0, 0, 1])]
            .concat(),
        // Marks: segments, generations, members.
        [&[0, 2][..], &bend(MARK, 3, 0, 4, &[40, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF])].concat(),
        // Slots: a sequence, a place, notes.
        [&[1, 8][..], &bend(SLOT, 0, 3, 8, &[0xFE; 8]), &bend(SLOT, 1, 5, 64 + 4064, &[0xFF; 32])].concat(),
    ]
}

fn check(bytes: &[u8]) {
    bounded((48 << 20) + 64 * bytes.len(), || check_all(Input::new(bytes)));
}

fn check_all(mut input: Input<'_>) {
    let mode = input.byte();
    let mut random = Random::of(u64::from(input.byte()));
    let format = if mode & 0x80 != 0 { Format::Three } else { Format::Two };
    let memory = (mode & 1 != 0).then(|| ProtectedMemory::in_memory(SLOTS * SLOT_SIZE_BYTES));
    let mut space = FakeSpace::new(shape(ContentMode::Tags, u32::from(mode >> 1 & 1)), 3, 20);
    let store = open(&mut space, &memory, format);
    let mut world = World { space, random: Random::of(1), store, now: Time(0), out: Vec::new() };
    world.wait("an opening", |world| world.store.is_ready());
    for volume in 0..2 {
        world.store.create_volume(VolumeToken(1), VolumeIndex(volume), SIZE_IUS);
        world.wait("a creation", |world| !world.out.is_empty());
        world.out.clear();
    }
    for tag in 1..=u64::from(mode >> 2 & 31) * 8 {
        let (volume, first) = (random.below(2) as u16, random.below(SIZE_IUS - 12));
        let done = match random.below(8) {
            0 => world.ask(volume, VolumeOperation::Deallocate { first_iu: first, iu_count: 9 }),
            1 => world.ask(volume, VolumeOperation::Flush),
            _ => world.write(volume, first, 1 + random.below(11), tag),
        };
        assert_eq!(done, Ok(()));
    }

    // The process dies, and what it left is bent.
    let World { mut space, store, .. } = world;
    drop(store);
    space.process_death(&mut random);
    let mut bends = 0;
    while !input.is_empty() && bends < BENDS_MAX {
        bends += 1;
        let (kind, sealed, nth) = (input.byte() % 3, input.byte() & 1 != 0, input.u16());
        let (part, at, count) = (input.byte(), input.u16(), input.byte());
        let content = input.bytes(count.into());
        if kind == SLOT {
            let Some(memory) = &memory else { continue };
            let first = usize::from(nth) % SLOTS * SLOT_SIZE_BYTES;
            let mut slot = memory.region(first..first + SLOT_SIZE_BYTES);
            put(&mut slot, at, content);
            if sealed {
                seal_slot(&mut slot, u64::from(part >> 2), u64::from(part & 3));
            }
            continue;
        }
        space.bend(nth.into(), |ius, oob| {
            if kind == MARK {
                let page = usize::from(part) % (oob.len() / OOB_SIZE_BYTES) * OOB_SIZE_BYTES + MARK_OFFSET;
                let mark = &mut oob[page..page + MARK_SIZE_BYTES];
                put(mark, at, content);
                if sealed {
                    seal_mark(mark);
                }
            } else {
                let iu = usize::from(part) % ius.len();
                put(&mut ius[iu], at, content);
                if sealed {
                    seal_unit(ius, oob);
                }
            }
        });
    }
    for rounds in [40, 2] {
        let store = open(&mut space, &memory, format);
        let mut world = World { space, random, store, now: Time(0), out: Vec::new() };
        world.wait("an opening", |world| world.store.is_ready());
        assert!(world.out.is_empty());
        world.use_all(rounds);
        (space, random) = (world.space, world.random);
        space.process_death(&mut random);
    }
}
