//! Goal: the cross-check at opening sets blocks aside whose programs went astray before anybody can read another's bytes. Method: a device
//! that otherwise works, and programs of two tenants that change places, or land where nobody is.

use diecut_emulator::{Device, Options, Pacing, Profile};
use diecut_media::*;
use diecut_spec::Isolation;
use diecut_testing::tapped::{Tap, Tapped};
use diecut_units::marks::plant_mutant;
use diecut_units::*;
use diecut_vssd::*;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    None,
    /// Two programs land in each other's erase block.
    Swap,
    /// A program lands in an erase block that nobody holds.
    Elsewhere,
}

struct Astray {
    fault: Fault,
    waiting: Option<Command>,
    elsewhere: EraseBlockAddress,
    oob_reads: u32,
}

impl Tap for Astray {
    fn pass(
        &mut self,
        mut command: Command,
        _device: &Device,
    ) -> Vec<Result<Command, (Command, MediaError)>> {
        self.oob_reads += u32::from(matches!(command.operation, Operation::ReadOob { .. }));
        let Operation::Program { block, .. } = &mut command.operation else { return vec![Ok(command)] };
        match self.fault {
            Fault::None => {}
            Fault::Elsewhere => {
                *block = self.elsewhere;
                self.fault = Fault::None;
            }
            Fault::Swap => {
                let Some(mut first) = self.waiting.take() else {
                    self.waiting = Some(command);
                    return Vec::new();
                };
                if let Operation::Program { block: other, .. } = &mut first.operation {
                    std::mem::swap(block, other);
                }
                self.fault = Fault::None;
                return vec![Ok(first), Ok(command)];
            }
        }
        vec![Ok(command)]
    }
}

struct Rig {
    media: Tapped<Astray>,
    config: PoolConfig,
}

impl Rig {
    fn new() -> Rig {
        let profile = Profile::named("tiny").unwrap();
        let options = Options { pacing: Pacing::Unpaced, seed: 5, ..Options::default() };
        let device = Device::create(&profile, options).unwrap();
        let levels = PoolConfig::levels_of(device.geometry(), 2);
        let config = PoolConfig { soft_planes_per_die: 2, levels, ..PoolConfig::default() };
        // The last good block of the last die is never taken in these tests, but the rules of flash want it erased.
        let last = device.geometry().erase_blocks_per_die() - 1;
        let blocks = (0..=last).rev().map(|block| DieAddress::new(1, 1).erase_block(BlockIndex(block)));
        let elsewhere = blocks.into_iter().find(|block| !device.is_factory_bad(*block)).unwrap();
        let astray = Astray { fault: Fault::None, waiting: None, elsewhere, oob_reads: 0 };
        let mut media = Tapped::new(device, astray);
        let operation = Operation::Erase { block: elsewhere };
        media.device.submit(Command { token: MediaToken(0), operation }, Time::ZERO);
        media.device.advance(Time::ZERO, &mut Vec::new());
        Rig { media, config }
    }
    /// As after the death of the process: nothing of the pool before is left.
    fn open(&mut self) -> Pool {
        let memory = self.media.protected_memory().unwrap();
        let size = Pool::block_states_size_bytes(self.media.geometry(), &self.config);
        let mut pool = Pool::open(&self.media, self.config.clone(), memory.region(0..size)).unwrap();
        self.media.tap.oob_reads = 0;
        pool.begin_check(&mut self.media, Time::ZERO);
        assert!(self.settle(&mut pool).is_empty(), "holders hear nothing of the check");
        assert!(pool.is_checked());
        pool.check_invariants();
        pool
    }
    fn settle(&mut self, pool: &mut Pool) -> Vec<SpaceCompletion> {
        let (mut completions, mut answers) = (Vec::new(), Vec::new());
        while self.media.next_event() != Time::NEVER {
            self.media.advance(Time::ZERO, &mut completions);
            for completion in completions.drain(..) {
                pool.complete(completion, Time::ZERO, &mut self.media, &mut answers);
            }
        }
        pool.take_ready(&mut answers);
        answers.into_iter().map(|(_, answer)| answer).collect()
    }
    fn allocate(&mut self, pool: &mut Pool, id: VssdId) -> LogicalBlock {
        pool.space(id, &mut self.media, Time::ZERO).allocate(UnitIndex(0), Purpose(1)).unwrap()
    }
    fn append(&mut self, pool: &mut Pool, id: VssdId, block: LogicalBlock, byte: u8) {
        let mut space = pool.space(id, &mut self.media, Time::ZERO);
        let shape = *space.shape();
        let bytes = vec![byte; shape.program_unit_ius() as usize * 4096];
        let parts = [Payload::new(ContentMode::Bytes, Buffer::copy_from(&bytes))].into_iter().collect();
        let oob = BufferMut::copy_from(&vec![0; shape.program_unit_oob_size_bytes() as usize]);
        space.append(SpaceToken(1), block, parts, oob, IoClass::HostWrite);
    }
    fn read(&mut self, pool: &mut Pool, id: VssdId, block: LogicalBlock) -> Result<u8, SpaceError> {
        let mut space = pool.space(id, &mut self.media, Time::ZERO);
        space.read(
            SpaceToken(2),
            BlockRun { block, first_iu: 0, iu_count: 1 },
            BufferMut::copy_from(&[0; 4096]),
            None,
            IoClass::HostRead,
        );
        let answer = self.settle(pool).pop().unwrap();
        answer.result.map(|()| answer.destination.unwrap()[0])
    }
}

/// Two vSSDs on dies of their own, a few good blocks each, then one program each that goes astray as said.
fn astray(fault: Fault) -> (Rig, Vec<(VssdId, LogicalBlock)>) {
    let mut rig = Rig::new();
    let mut pool = rig.open();
    let ids: Vec<VssdId> = (0..2).map(|_| pool.alloc_vssd(Isolation::Die, 0, 1).unwrap()).collect();
    for at in 0..24 {
        let block = rig.allocate(&mut pool, ids[at % 2]);
        for _ in 0..8 {
            rig.append(&mut pool, ids[at % 2], block, 1 + at as u8 % 2);
        }
        rig.settle(&mut pool);
    }
    let last: Vec<(VssdId, LogicalBlock)> = ids.iter().map(|&id| (id, rig.allocate(&mut pool, id))).collect();
    rig.settle(&mut pool);
    rig.media.tap.fault = fault;
    for (at, (id, block)) in last.iter().enumerate() {
        rig.append(&mut pool, *id, *block, 1 + at as u8);
    }
    assert!(rig.settle(&mut pool).iter().all(|answer| answer.result.is_ok()), "nobody notices at the time");
    assert_eq!(rig.media.tap.fault, Fault::None);
    (rig, last)
}

#[test]
fn blocks_that_hold_anothers_pages_are_set_aside() {
    let (mut rig, last) = astray(Fault::Swap);
    for (opening, reason) in
        [QuarantineReason::Misdirected, QuarantineReason::Before, QuarantineReason::Before]
            .into_iter()
            .enumerate()
    {
        let mut pool = rig.open();
        let mut found: Vec<_> = pool.quarantined().iter().map(|one| (one.holder, one.reason)).collect();
        found.sort_by_key(|(holder, _)| *holder);
        let expected: Vec<_> = last.iter().map(|&holder| (Some(holder), reason)).collect();
        assert_eq!(found, expected);
        for (at, &(id, block)) in last.iter().enumerate() {
            let read = rig.read(&mut pool, id, block);
            assert!(matches!(read, Err(SpaceError::Uncorrectable { .. })), "opening {opening}: {read:?}");
            let good = LogicalBlock { index: 0, ..block };
            assert_eq!(rig.read(&mut pool, id, good), Ok(1 + at as u8), "the others still read");
        }
    }
    // Freed, they are retired.
    let mut pool = rig.open();
    for &(id, block) in &last {
        pool.space(id, &mut rig.media, Time::ZERO).free(block).unwrap();
    }
    drop(pool);
    assert!(rig.open().quarantined().is_empty());
}

#[test]
fn a_page_that_never_arrived_is_missed() {
    let (mut rig, last) = astray(Fault::Elsewhere);
    let pool = rig.open();
    let found: Vec<_> = pool.quarantined().iter().map(|one| (one.holder, one.reason)).collect();
    assert_eq!(found, [(Some(last[0]), QuarantineReason::NotProgrammed)]);
}

#[test]
fn the_check_is_cheap_and_finds_nothing_where_nothing_is() {
    let (mut rig, _) = astray(Fault::None);
    assert!(rig.open().quarantined().is_empty());
    // First and last page of 4 latest and about 4 other blocks of 2 units.
    assert!((20..=36).contains(&rig.media.tap.oob_reads), "{} pages were looked at", rig.media.tap.oob_reads);
    let (mut rig, _) = astray(Fault::Swap);
    rig.open();
    assert!(
        rig.media.tap.oob_reads > 2 * 12 * 16,
        "where one contradicts, all pages of its unit are looked at"
    );
}

/// Without the check a tenant reads its neighbour's bytes.
#[test]
fn the_planted_bug_lets_a_foreign_byte_through() {
    let (mut rig, last) = astray(Fault::Swap);
    plant_mutant(Some("vssd: misdirected page trusted"));
    let mut pool = rig.open();
    plant_mutant(None);
    assert!(pool.quarantined().is_empty());
    assert_eq!(rig.read(&mut pool, last[0].0, last[0].1), Ok(2), "the neighbour's");
}
