//! Goal: the striping helper on a vSSD of several dies: content comes back from every range, all dies work at a time, and a
//! striped block is found again after the death of the process. Method: IUs that say their number, on a device with its exact timing.

use diecut_emulator::{Device, Options, Profile};
use diecut_media::Media;
use diecut_spec::Isolation;
use diecut_units::*;
use diecut_vssd::*;

struct Rig {
    device: Device,
    pool: Pool,
    id: VssdId,
    now: Time,
}

fn open(device: &Device, config: &PoolConfig) -> Pool {
    let memory = device.protected_memory().unwrap();
    let size = Pool::block_states_size_bytes(device.geometry(), config);
    Pool::open(device, config.clone(), memory.region(0..size)).unwrap()
}

impl Rig {
    fn new() -> Rig {
        let device = Device::create(&Profile::named("tiny").unwrap(), Options::default()).unwrap();
        let mut pool = open(&device, &PoolConfig::suited_to(device.geometry()));
        let id = pool.alloc_vssd(Isolation::Channel, 2, 1).unwrap();
        Rig { device, pool, id, now: Time::ZERO }
    }
    fn space(&mut self) -> Space<'_, Device> {
        self.pool.space(self.id, &mut self.device, self.now)
    }
    /// Runs until `until`, or until nothing is under way; gives answers in the order they came.
    fn run(&mut self, until: Time) -> Vec<SpaceCompletion> {
        let (mut completions, mut answers) = (Vec::new(), Vec::new());
        while self.device.next_event() <= until && self.device.next_event() != Time::NEVER {
            self.now = self.now.max(self.device.next_event());
            self.device.advance(self.now, &mut completions);
            for completion in completions.drain(..) {
                self.pool.complete(completion, self.now, &mut self.device, &mut answers);
            }
        }
        self.pool.take_ready(&mut answers);
        answers.into_iter().map(|(_, answer)| answer).collect()
    }
    fn append(&mut self, striped: &mut StripedBlock) -> u32 {
        let shape = *self.space().shape();
        let first = striped.appended_ius(&shape);
        let words = (first..first + shape.program_unit_ius()).flat_map(|iu| iu.to_le_bytes().repeat(1024));
        let payload = Payload::new(ContentMode::Bytes, Buffer::copy_from(&words.collect::<Vec<u8>>()));
        let oob = BufferMut::copy_from(&vec![0; shape.program_unit_oob_size_bytes() as usize]);
        let parts = [payload].into_iter().collect();
        striped.append(&mut self.space(), SpaceToken(first.into()), parts, oob, IoClass::HostWrite)
    }
    fn read(&mut self, striped: &StripedBlock, first_iu: u32, iu_count: u32) -> Vec<u32> {
        let shape = *self.space().shape();
        let extents: Vec<Extent> = striped.extents(&shape, first_iu, iu_count).collect();
        for (number, extent) in extents.iter().enumerate() {
            let destination = BufferMut::copy_from(&vec![0; extent.iu_count as usize * 4096]);
            let (token, Extent { block, first_iu, iu_count }) = (SpaceToken(number as u64), *extent);
            self.space().read(
                token,
                BlockRun { block, first_iu, iu_count },
                destination,
                None,
                IoClass::HostRead,
            );
        }
        let mut answers = self.run(Time(u64::MAX - 1));
        answers.sort_by_key(|answer| answer.token);
        let bytes = answers.into_iter().flat_map(|answer| {
            answer.result.unwrap();
            answer.destination.unwrap().to_vec()
        });
        let bytes: Vec<u8> = bytes.collect();
        bytes.chunks_exact(4096).map(|iu| u32::from_le_bytes(iu[..4].try_into().unwrap())).collect()
    }
}

#[test]
fn any_range_reads_what_was_appended_there() {
    let mut rig = Rig::new();
    let mut striped = StripedBlock::allocate(&mut rig.space(), Purpose(1)).unwrap();
    let shape = *rig.space().shape();
    while !striped.is_full(&shape) {
        let expected = striped.appended_ius(&shape);
        assert_eq!(rig.append(&mut striped), expected);
    }
    assert!(rig.run(Time(u64::MAX - 1)).iter().all(|answer| answer.result.is_ok()));
    let ius = striped.ius(&shape);
    assert_eq!(ius, 4 * shape.ius(), "four dies");
    for (first, count) in [(0, ius), (3, 1), (7, 2), (5, 70), (ius - 9, 9), (33, 31)] {
        assert_eq!(rig.read(&striped, first, count), (first..first + count).collect::<Vec<u32>>());
    }
    // No extent crosses a program unit, and together they are the range.
    let total: u32 = striped.extents(&shape, 5, 70).map(|extent| extent.iu_count).sum();
    assert_eq!((total, striped.extents(&shape, 5, 70).count()), (70, 10));
    striped.free(&mut rig.space()).unwrap();
    assert!(rig.space().held_blocks().is_empty());
}

#[test]
fn all_dies_work_at_a_time() {
    let mut rig = Rig::new();
    let mut striped = StripedBlock::allocate(&mut rig.space(), Purpose(1)).unwrap();
    rig.run(Time(u64::MAX - 1));
    let start = rig.now;
    (0..4).for_each(|_| {
        rig.append(&mut striped);
    });
    rig.run(Time(u64::MAX - 1));
    let four_ns = rig.now.0 - start.0;
    let start = rig.now;
    rig.append(&mut striped);
    rig.run(Time(u64::MAX - 1));
    // The second unit of a pair takes longer (upper page): four at a time are still shorter than two in a row.
    assert!(four_ns < 2 * (rig.now.0 - start.0).max(850_000), "{four_ns} ns for a unit on each of four dies");
}

#[test]
fn a_unit_without_blocks_takes_none_of_the_others() {
    let mut rig = Rig::new();
    while rig.space().free_blocks(UnitIndex(2)) > 0 {
        rig.space().allocate(UnitIndex(2), Purpose(0)).unwrap();
    }
    let free: Vec<u32> = (0..4).map(|unit| rig.space().free_blocks(UnitIndex(unit))).collect();
    let none = StripedBlock::allocate(&mut rig.space(), Purpose(1));
    assert_eq!(none, Err(SpaceError::NoFreeBlock { unit: 2 }));
    rig.run(Time(u64::MAX - 1));
    assert_eq!(free, (0..4).map(|unit| rig.space().free_blocks(UnitIndex(unit))).collect::<Vec<u32>>());
}

#[test]
fn it_is_found_again_up_to_the_first_gap() {
    // The death comes at many moments: whatever was answered before is there, in order and without a gap.
    for after_us in (0..6000).step_by(250) {
        let mut rig = Rig::new();
        let mut striped = StripedBlock::allocate(&mut rig.space(), Purpose(1)).unwrap();
        rig.run(Time(u64::MAX - 1));
        (0..10).for_each(|_| {
            rig.append(&mut striped);
        });
        let acked = rig.run(Time(rig.now.0 + after_us * 1000)).len() as u32;
        let now = rig.now;
        rig.device.process_death(now);
        rig.pool = {
            let config = PoolConfig::suited_to(rig.device.geometry());
            drop(std::mem::replace(&mut rig.pool, Pool::create(&rig.device, config.clone())));
            open(&rig.device, &config)
        };
        let shape = *rig.space().shape();
        let mut held = rig.space().held_blocks();
        held.sort_by_key(|held| held.block.unit);
        let found = StripedBlock::resume(&held, &shape);
        assert_eq!(found.members(), striped.members());
        let ius = found.appended_ius(&shape);
        // Answers come in any order: up to three may lie behind the first gap.
        assert!(ius + 3 * shape.program_unit_ius() >= acked * shape.program_unit_ius(), "{ius} of {acked}");
        assert_eq!(rig.read(&found, 0, ius), (0..ius).collect::<Vec<u32>>());
    }
}
