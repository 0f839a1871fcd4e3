//! A pool on a medium, in virtual time.

use diecut_emulator::Device;
use diecut_media::Media;
use diecut_units::{Buffer, BufferMut, Payload, Time};
use diecut_vssd::{
    BlockRun, EraseBlockSpace, IoClass, LogicalBlock, Pool, PoolConfig, Purpose, Space, SpaceCompletion,
    SpaceError, SpaceToken, UnitIndex, VssdId,
};

/// Turns of a run: more is a pool that goes round in circles.
const TURNS_MAX: u32 = 1_000_000;
/// The token of [`PoolWorld::read`].
const READ: SpaceToken = SpaceToken(u64::MAX);

/// See the module.
pub struct PoolWorld<M: Media = Device> {
    /// The medium.
    pub media: M,
    /// What the pool is opened with.
    pub config: PoolConfig,
    /// The pool.
    pub pool: Pool,
    /// The time.
    pub now: Time,
    /// What holders were answered, in order.
    pub answers: Vec<(VssdId, SpaceCompletion)>,
}

impl<M: Media> PoolWorld<M> {
    /// A pool that keeps its block states in protected memory where the medium has some, and on flash otherwise.
    ///
    /// # Panics
    /// If it does not open.
    pub fn open(mut media: M, config: PoolConfig, now: Time) -> PoolWorld<M> {
        let pool = match media.protected_memory() {
            Some(memory) => {
                let size = Pool::block_states_size_bytes(media.geometry(), &config);
                Pool::open(&media, config.clone(), memory.region(0..size)).expect("the table is sound")
            }
            None => Pool::open_from_flash(&mut media, config.clone(), now),
        };
        PoolWorld::around(media, config, pool, now)
    }

    /// A pool that is made on a medium whose pages have no OOB areas, durable.
    ///
    /// # Panics
    /// If it cannot be made.
    pub fn make(media: M, config: PoolConfig, now: Time) -> PoolWorld<M> {
        let pool = Pool::make_on_flash(&media, config.clone()).expect("there is room for a log");
        let mut world = PoolWorld::around(media, config, pool, now);
        world.make_durable();
        world
    }

    /// Goes on until everything that was changed so far is durable.
    ///
    /// # Panics
    /// If it never is.
    pub fn make_durable(&mut self) {
        self.pool.make_durable(&mut self.media, self.now);
        while !self.pool.is_durable() {
            assert!(self.step(), "the log of block states goes on");
        }
    }

    fn around(media: M, config: PoolConfig, pool: Pool, now: Time) -> PoolWorld<M> {
        let mut world = PoolWorld { media, config, pool, now, answers: Vec::new() };
        while !world.pool.is_open() {
            assert!(world.pool.open_error().is_none(), "{:?}", world.pool.open_error());
            assert!(world.step(), "opening goes on");
        }
        world
    }

    /// As after the death of the process: nothing of the pool is left. What the medium has under way is the caller's to end.
    pub fn open_again(self) -> PoolWorld<M> {
        PoolWorld::open(self.media, self.config, self.now)
    }

    /// Goes on to what happens next; says whether anything does.
    pub fn step(&mut self) -> bool {
        self.pool.work(self.now, &mut self.media);
        self.pool.take_ready(&mut self.answers);
        let next = self.media.next_event().min(self.pool.deadline());
        if next == Time::NEVER {
            return false;
        }
        self.now = self.now.max(next);
        let mut completions = Vec::new();
        self.media.advance(self.now, &mut completions);
        for completion in completions {
            self.pool.complete(completion, self.now, &mut self.media, &mut self.answers);
        }
        true
    }

    /// Goes on until nothing is under way.
    ///
    /// # Panics
    /// If that never comes.
    pub fn run(&mut self) {
        let ends = (0..TURNS_MAX).any(|_| !self.step());
        assert!(ends, "it comes to no end: {:?}", self.pool.migration_status());
    }

    /// What a vSSD sees.
    pub fn space(&mut self, id: VssdId) -> Space<'_, M> {
        self.pool.space(id, &mut self.media, self.now)
    }

    /// A new block of a vSSD.
    ///
    /// # Panics
    /// If it has none.
    pub fn allocate(&mut self, id: VssdId, unit: u16) -> LogicalBlock {
        self.space(id).allocate(UnitIndex(unit), Purpose(1)).expect("the unit has a free block")
    }

    /// Hands over one program unit, filled with a byte.
    pub fn append(&mut self, id: VssdId, token: SpaceToken, block: LogicalBlock, byte: u8, class: IoClass) {
        let mode = self.media.capabilities().content_mode;
        let mut space = self.space(id);
        let shape = *space.shape();
        let bytes = vec![byte; shape.program_unit_ius() as usize * mode.bytes_per_iu()];
        let parts = [Payload::new(mode, Buffer::copy_from(&bytes))].into_iter().collect();
        let oob = BufferMut::copy_from(&vec![0; shape.program_unit_oob_size_bytes() as usize]);
        space.append(token, block, parts, oob, class);
    }

    /// Reads an IU, and gives what all its bytes are. Answers of others that come meanwhile are kept.
    ///
    /// # Errors
    /// What the read ended with.
    ///
    /// # Panics
    /// If its bytes differ, or if it is not answered.
    pub fn read(&mut self, id: VssdId, block: LogicalBlock, iu: u32) -> Result<u8, SpaceError> {
        let bytes = self.media.capabilities().content_mode.bytes_per_iu();
        let destination = BufferMut::copy_from(&vec![0; bytes]);
        let run = BlockRun { block, first_iu: iu, iu_count: 1 };
        self.space(id).read(READ, run, destination, None, IoClass::HostRead);
        let answer = loop {
            if let Some(at) = self.answers.iter().position(|(_, answer)| answer.token == READ) {
                break self.answers.remove(at).1;
            }
            let goes_on = self.step();
            assert!(goes_on || !self.answers.is_empty(), "a read is answered");
        };
        answer.result?;
        let found = answer.destination.expect("reads give content");
        assert!(found.iter().all(|byte| *byte == found[0]), "IU {iu} of {block:?} is of one byte");
        Ok(found[0])
    }
}
