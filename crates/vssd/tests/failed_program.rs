//! A program that fails while others of its block wait behind it, without protected memory, and then the death of the process
//! before anybody wrote down that the block failed: what lies on flash behind the failed page is what the die had already.

use diecut_emulator::{Device, Fault, FaultyDie, OperationKind, Options, Profile};
use diecut_media::*;
use diecut_spec::Isolation;
use diecut_units::marks::plant_mutant;
use diecut_units::*;
use diecut_vssd::*;

const APPENDS: u64 = 8;

struct Rig {
    device: Device,
    config: PoolConfig,
    now: Time,
}

impl Rig {
    fn new() -> Rig {
        let mut profile = Profile::named("tiny").unwrap();
        profile.protected_memory_bytes = 0;
        let device = Device::create(&profile, Options { seed: 5, ..Options::default() }).unwrap();
        let levels = PoolConfig::levels_of(device.geometry(), 2);
        let config = PoolConfig { soft_planes_per_die: 2, levels, ..PoolConfig::default() };
        Rig { device, config, now: Time::ZERO }
    }

    /// The next thing that the device has done.
    fn step(&mut self, pool: &mut Pool, answers: &mut Vec<(VssdId, SpaceCompletion)>) -> bool {
        let next = self.device.next_event();
        if next == Time::NEVER {
            return false;
        }
        self.now = self.now.max(next);
        let mut completions = Vec::new();
        self.device.advance(self.now, &mut completions);
        for completion in completions {
            pool.complete(completion, self.now, &mut self.device, answers);
        }
        true
    }

    /// As after the death of the process: nothing of the pool before is left.
    fn open(&mut self) -> Pool {
        self.device.process_death(self.now);
        let mut pool = Pool::open_from_flash(&mut self.device, self.config.clone(), self.now);
        while !pool.is_open() {
            assert!(pool.open_error().is_none(), "{:?}", pool.open_error());
            assert!(self.step(&mut pool, &mut Vec::new()));
        }
        pool
    }
}

/// What came of appends whose program `failing` fails, counted from the first one: units acknowledged, units that the
/// next opening finds, and the shape. The process dies when the last append was answered.
fn run(failing: Option<u64>) -> (u32, u32, BlockShape) {
    let mut rig = Rig::new();
    let mut pool = rig.open();
    let (id, block) = hold_block(&mut rig, &mut pool);
    let shape = *pool.shape();
    if let Some(nth) = failing {
        let nth = rig.device.die_statistics(0).program_units + nth;
        let die = FaultyDie { channel: 0, die: 0 };
        rig.device.add_fault(Fault::Fail { die, kind: OperationKind::Program, nth });
    }
    for at in 0..APPENDS {
        append(&mut rig, &mut pool, id, block, at);
    }
    let mut answers = Vec::new();
    while answers.len() < APPENDS as usize {
        assert!(rig.step(&mut pool, &mut answers), "every append is answered");
    }
    let acknowledged = answers.iter().take_while(|(_, answer)| answer.result.is_ok()).count() as u32;
    assert!(answers.iter().skip(acknowledged as usize).all(|(_, answer)| answer.result.is_err()), "in order");
    let mut tokens: Vec<u64> = answers.iter().map(|(_, answer)| answer.token.0).collect();
    tokens.sort_unstable();
    assert_eq!(tokens, (0..APPENDS).collect::<Vec<_>>(), "each is answered once");
    pool.check_invariants();
    drop(pool);
    let mut pool = rig.open();
    let held = pool.space(id, &mut rig.device, rig.now).held_blocks();
    let found = held.iter().find(|held| held.block == block).expect("its allocation was durable");
    let units = found.written_pages / shape.program_unit_pages;
    (acknowledged, units, shape)
}

/// A vSSD on the first die with one block that is erased and written down.
fn hold_block(rig: &mut Rig, pool: &mut Pool) -> (VssdId, LogicalBlock) {
    let id = pool.alloc_vssd(Isolation::Die, 0, 1).unwrap();
    let block = pool.space(id, &mut rig.device, rig.now).allocate(UnitIndex(0), Purpose(1)).unwrap();
    pool.make_durable(&mut rig.device, rig.now);
    while rig.step(pool, &mut Vec::new()) {}
    assert!(pool.is_durable());
    (id, block)
}

fn append(rig: &mut Rig, pool: &mut Pool, id: VssdId, block: LogicalBlock, token: u64) {
    let mut space = pool.space(id, &mut rig.device, rig.now);
    let shape = *space.shape();
    let bytes = vec![token as u8; shape.program_unit_ius() as usize * IU_SIZE_BYTES];
    let parts = [Payload::new(ContentMode::Bytes, Buffer::copy_from(&bytes))].into_iter().collect();
    let oob = BufferMut::copy_from(&vec![0; shape.program_unit_oob_size_bytes() as usize]);
    space.append(SpaceToken(token), block, parts, oob, IoClass::HostWrite);
}

#[test]
fn little_lies_behind_a_failed_program() {
    for failing in 0..APPENDS {
        let (acknowledged, found, shape) = run(Some(failing));
        assert_eq!(u64::from(acknowledged), failing);
        assert_eq!(shape.pipelined_units, 1, "two programs are with the die at a time");
        assert!(
            found <= acknowledged + 1 + shape.pipelined_units,
            "{found} units behind {acknowledged} good ones"
        );
        let settled = (0..found).filter(|unit| shape.is_settled(*unit, found)).count() as u32;
        assert!(settled <= acknowledged, "the failed unit counts as one that was acknowledged");
    }
    let (acknowledged, found, _) = run(None);
    assert_eq!((u64::from(acknowledged), u64::from(found)), (APPENDS, APPENDS));
}

#[test]
fn programs_that_wait_behind_a_failed_one_stay_away_from_flash() {
    plant_mutant(Some("vssd: queued behind a failed program"));
    let (acknowledged, found, shape) = run(Some(2));
    plant_mutant(None);
    assert!(found > acknowledged + 1 + shape.pipelined_units, "without it they are programmed");
}
