//! Goal: a page that lies where another should is not taken for it, though it is whole, also not after its block was copied. Method: zones
//! on a space in memory in which program units change places, and reads of everything.

use diecut_testing::Random;
use diecut_testing::fake_space::{FakeSpace, shape};
use diecut_units::{BufferMut, ContentMode, Payload, ProtectedMemory, Span, Time};
use diecut_zoned::contract::*;
use diecut_zoned::{ZoneSetDefinition, ZoneStore};

const SET: ZoneSetIndex = ZoneSetIndex(0);
const WIDTH: u16 = 3;
const UNIT_IUS: u64 = 8;

struct World {
    space: FakeSpace,
    memory: ProtectedMemory,
    store: Option<ZoneStore>,
    random: Random,
    now: Time,
}

impl World {
    fn new() -> World {
        World {
            space: FakeSpace::new(shape(ContentMode::Tags, 0), WIDTH, 16),
            memory: ProtectedMemory::in_memory(20 * 256),
            store: None,
            random: Random::of(3),
            now: Time::ZERO,
        }
    }

    /// The process begins, or begins again.
    fn open(&mut self) {
        let definition = ZoneSetDefinition {
            id: 1,
            zones: 2,
            width: WIDTH,
            active_max: 2,
            open_max: 2,
            random_units: 0,
            extension_size_bytes: 0,
        };
        let region = self.memory.region(0..self.memory.size_bytes());
        self.store = Some(ZoneStore::open(&[(SET, definition)], &mut self.space, Some(region)));
        self.until(|world, _| world.store.as_ref().is_some_and(ZoneStore::is_ready));
    }

    fn until(&mut self, mut is_done: impl FnMut(&World, &[ZoneCompletion]) -> bool) -> Vec<ZoneCompletion> {
        let mut out = Vec::new();
        for _ in 0..100_000 {
            if is_done(self, &out) {
                return out;
            }
            self.now += Span::from_micros(1);
            let store = self.store.as_mut().expect("open");
            if let Some(completion) = self.space.step(&mut self.random) {
                store.complete(completion, &mut self.space, &mut out);
            }
            store.work(self.now, &mut self.space, &mut out);
        }
        panic!("it does not end");
    }

    fn ask(&mut self, operation: ZoneOperation) -> Result<ZoneAnswer, ZoneError> {
        let command = ZoneCommand { token: ZoneToken(1), set: SET, operation };
        let mut out = Vec::new();
        self.store.as_mut().expect("open").submit(command, &mut self.space, &mut out);
        if out.is_empty() {
            out = self.until(|_, out| !out.is_empty());
        }
        out.remove(0).result
    }

    fn write(&mut self, ius: std::ops::Range<u64>) {
        for first_iu in ius.step_by(UNIT_IUS as usize) {
            let bytes: Vec<u8> = (first_iu..first_iu + UNIT_IUS).flat_map(content).collect();
            let payload = Payload::new(ContentMode::Tags, BufferMut::copy_from(&bytes).freeze());
            let answer = self.ask(ZoneOperation::Write { first_iu, data: ZoneData::Payload(payload) });
            assert!(
                matches!(answer, Ok(ZoneAnswer::Written(at)) if at == first_iu),
                "IU {first_iu}: {answer:?}"
            );
        }
        self.until(|world, _| world.space.is_idle());
    }

    /// How many IUs say that they cannot be read; the others are as they were written.
    fn refused(&mut self, ius: std::ops::Range<u64>) -> usize {
        let mut refused = 0;
        for iu in ius {
            let destination = BufferMut::copy_from(&[0xee; 8]);
            match self.ask(ZoneOperation::Read { first_iu: iu, iu_count: 1, destination }) {
                Ok(ZoneAnswer::Content(found)) => assert_eq!(found[..], content(iu), "IU {iu}"),
                Err(ZoneError::Unrecovered { .. }) => refused += 1,
                other => panic!("IU {iu}: {other:?}"),
            }
        }
        refused
    }

    fn ius(&self) -> u64 {
        u64::from(WIDTH) * u64::from(self.space.shape.ius())
    }
}

/// Content of an IU: itself, never zeros.
fn content(iu: u64) -> [u8; 8] {
    (iu + 1).to_le_bytes()
}

/// Units of one block, and of two, in each other's place. How many reads said so.
fn swap_and_read(in_one_block: bool) -> usize {
    let mut world = World::new();
    world.open();
    let all = world.ius();
    world.write(0..all);
    let units = world.space.written_units();
    let mut refused = 0;
    for (at, one) in units.iter().enumerate() {
        let is_other = |other: &&(_, u32)| (other.0 == one.0) == in_one_block && *other != one;
        let Some(other) = units[at..].iter().find(is_other) else { continue };
        world.space.swap(*one, *other);
        refused += world.refused(0..all);
        world.space.swap(*one, *other);
    }
    refused
}

/// A process that begins again copies the open blocks of a zone that is written on: with units that lie in each other's place.
fn swap_and_copy() -> usize {
    let mut world = World::new();
    world.open();
    let (half, all) = (world.ius() / 2, world.ius());
    world.write(0..half);
    // The first unit of a block, and the last ones, are looked at when the process begins.
    let of_second_row: Vec<_> = world.space.written_units().into_iter().filter(|unit| unit.1 == 1).collect();
    let [one, other, ..] = of_second_row[..] else { panic!("a zone has several blocks") };
    world.space.swap(one, other);
    world.store = None;
    world.space.process_death(&mut world.random);
    world.open();
    world.write(half..all);
    world.refused(0..all)
}

#[test]
fn a_page_is_not_taken_for_another() {
    for in_one_block in [false, true] {
        let refused = swap_and_read(in_one_block);
        assert!(
            refused > 100,
            "in one block: {in_one_block}: {refused} reads found that a page is not theirs"
        );
    }
    assert_eq!(swap_and_copy(), 2 * UNIT_IUS as usize);
}

#[test]
fn planted_bugs_are_noticed() {
    diecut_testing::planted::all_are_noticed(&[
        ("zoned: identity of a page not compared", || _ = swap_and_read(false)),
        ("zoned: copies make wrong content right", || _ = swap_and_copy()),
    ]);
}
