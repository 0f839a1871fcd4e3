//! One namespace of two zones on a space in memory, and a host that asks one thing at a time.

#![allow(dead_code, reason = "each test uses a part")]

use diecut_testing::Random;
use diecut_testing::fake_space::{FakeSpace, shape};
use diecut_units::{BufferMut, ContentMode, Payload, ProtectedMemory, Span, Time};
use diecut_zoned::contract::*;
use diecut_zoned::{ZoneSetDefinition, ZoneStore};

pub const SET: ZoneSetIndex = ZoneSetIndex(0);
pub const WIDTH: u16 = 3;
pub const UNIT_IUS: u64 = 8;

/// See the module.
pub struct World {
    pub space: FakeSpace,
    memory: Option<ProtectedMemory>,
    /// Zones of the namespace, two of which may be active.
    pub zones: u32,
    /// Program units of the random write area of a zone that is opened with one.
    pub random_units: u32,
    pub store: Option<ZoneStore>,
    pub random: Random,
    now: Time,
}

impl World {
    /// With protected memory.
    pub fn new() -> World {
        World { memory: Some(ProtectedMemory::in_memory(20 * 256)), ..World::without_protected_memory() }
    }

    /// With protected memory for two active zones of cells that a power cut can destroy `unsafe_units` units back, and no more.
    pub fn with_cells_at_risk(unsafe_units: u32, zones: u32) -> World {
        let slots = 2 * (u32::from(WIDTH) * unsafe_units + 1);
        World {
            space: FakeSpace::new(shape(ContentMode::Tags, unsafe_units), WIDTH, zones + 10),
            memory: Some(ProtectedMemory::in_memory(slots as usize * 256)),
            zones,
            ..World::without_protected_memory()
        }
    }

    pub fn without_protected_memory() -> World {
        World {
            space: FakeSpace::new(shape(ContentMode::Tags, 0), WIDTH, 16),
            memory: None,
            zones: 2,
            random_units: 0,
            store: None,
            random: Random::of(3),
            now: Time::ZERO,
        }
    }

    /// The process begins, or begins again.
    pub fn open(&mut self) {
        let definition = ZoneSetDefinition {
            id: 1,
            zones: self.zones,
            width: WIDTH,
            active_max: 2,
            open_max: 2,
            random_units: self.random_units,
            extension_size_bytes: 0,
        };
        let region = self.memory.as_ref().map(|memory| memory.region(0..memory.size_bytes()));
        self.store = Some(ZoneStore::open(&[(SET, definition)], &mut self.space, region));
        self.until(|world, _| world.store.as_ref().is_some_and(ZoneStore::is_ready));
    }

    pub fn until(
        &mut self,
        mut is_done: impl FnMut(&World, &[ZoneCompletion]) -> bool,
    ) -> Vec<ZoneCompletion> {
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

    pub fn ask(&mut self, operation: ZoneOperation) -> Result<ZoneAnswer, ZoneError> {
        let command = ZoneCommand { token: ZoneToken(1), set: SET, operation };
        let mut out = Vec::new();
        self.store.as_mut().expect("open").submit(command, &mut self.space, &mut out);
        if out.is_empty() {
            out = self.until(|_, out| !out.is_empty());
        }
        out.remove(0).result
    }

    pub fn write(&mut self, ius: std::ops::Range<u64>) {
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
    pub fn refused(&mut self, ius: std::ops::Range<u64>) -> usize {
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

    pub fn ius(&self) -> u64 {
        u64::from(WIDTH) * u64::from(self.space.shape.ius())
    }
}

/// Content of an IU: itself, never zeros.
pub fn content(iu: u64) -> [u8; 8] {
    (iu + 1).to_le_bytes()
}
