//! A session alone, over a pool on an emulated device: what it knows of blocks when the medium refuses something, and what it counts.

use diecut_blockspace::session::{Command, Session};
use diecut_blockspace::wire::{Completion, Opcode, Status, Submission, encode_name};
use diecut_blockspace::{LogicalBlock, UnitIndex};
use diecut_devices::{Device, Fault, FaultyDie, OperationKind, Options, Profile};
use diecut_media::Media;
use diecut_spec::Isolation;
use diecut_testing::pool::PoolWorld;
use diecut_units::{BufferMut, Time};
use diecut_vssd::{EraseBlockSpace, PoolConfig, VssdId};

/// Of the rings that nobody has here.
const SLOT_SIZE_BYTES: u32 = 1 << 20;

struct World {
    below: PoolWorld<Device>,
    vssd: VssdId,
    session: Session,
}

impl World {
    /// A vSSD on the first die, whose application has just attached.
    fn new() -> World {
        let device = Device::create(&Profile::named("tiny").unwrap(), Options::default()).unwrap();
        let config = PoolConfig::suited_to(device.geometry());
        let mut below = PoolWorld::open(device, config, Time::ZERO);
        let vssd = below.pool.alloc_vssd(Isolation::Die, 0, 1).unwrap();
        let session = Session::new(&below.space(vssd), SLOT_SIZE_BYTES);
        World { below, vssd, session }
    }

    /// The answer to an entry, when all that it began is over.
    fn ask(&mut self, entry: Submission, data: Option<&[u8]>) -> Completion {
        let mut answers = Vec::new();
        let command = Command { entry: Ok(entry), data: data.map(BufferMut::copy_from) };
        self.session.submit(command, &mut self.below.space(self.vssd), &mut answers);
        while answers.is_empty() {
            let goes_on = self.below.step();
            assert!(goes_on || !self.below.answers.is_empty(), "an entry is answered");
            for (_, completion) in self.below.answers.drain(..) {
                self.session.complete(completion, &mut answers);
            }
        }
        assert!(self.session.is_idle() && answers.len() == 1, "one answer for one entry");
        answers.remove(0).completion
    }

    fn keep(&mut self, blocks: &[LogicalBlock], is_all: bool) -> Completion {
        let names: Vec<u8> = blocks.iter().flat_map(|block| encode_name(*block)).collect();
        let entry = Submission::new(Opcode::Keep, LogicalBlock::default());
        self.ask(Submission { count: blocks.len() as u32, flag: is_all.into(), ..entry }, Some(&names))
    }

    fn allocate(&mut self) -> LogicalBlock {
        let unit = LogicalBlock { unit: UnitIndex(0), index: 0 };
        let allocated = self.ask(Submission::new(Opcode::Allocate, unit), None);
        assert_eq!(allocated.status, Status::Done);
        allocated.block
    }

    fn append(&mut self, block: LogicalBlock) -> Completion {
        let ius = self.below.space(self.vssd).shape().program_unit_ius();
        let entry = Submission { count: ius, ..Submission::new(Opcode::Append, block) };
        self.ask(entry, Some(&vec![7; ius as usize * 4096]))
    }
}

/// Goal: an append that fails is over: nothing keeps its block. Method: the program of one fails, then the block is given back.
#[test]
fn a_block_whose_append_failed_can_be_freed() {
    let mut world = World::new();
    assert_eq!(world.keep(&[], true).status, Status::Done);
    let block = world.allocate();
    assert_eq!(world.append(block).status, Status::Done);
    let (die, kind) = (FaultyDie { channel: 0, die: 0 }, OperationKind::Program);
    let nth = world.below.media.emulated().die_statistics(0).program_units;
    world.below.media.emulated_mut().add_fault(Fault::Fail { die, kind, nth });
    assert_eq!(world.append(block).status, Status::AppendFailed);
    assert_eq!(world.ask(Submission::new(Opcode::Free, block), None).status, Status::Done);
    let next = world.allocate();
    assert_eq!(world.append(next).status, Status::Done, "and the vSSD goes on");
}

/// A block that is named twice is kept once.
#[test]
fn named_blocks_are_counted_once() {
    let mut world = World::new();
    assert_eq!(world.keep(&[], true).status, Status::Done);
    let (one, two) = (world.allocate(), world.allocate());
    world.session = Session::new(&world.below.space(world.vssd), SLOT_SIZE_BYTES);
    for (names, count) in [(&[one, one][..], 1), (&[two, one], 2), (&[], 2)] {
        let named = world.keep(names, false);
        assert_eq!((named.status, named.value), (Status::Done, count), "{names:?}");
    }
    assert_eq!(world.keep(&[two], true).value, 0, "nothing is left to be freed");
}
