//! The erase blocks of a pool: who has each of them, which ones of a die are free, in what order they are given out, and which ones are
//! retired or set aside.
//!
//! Not known here: vSSDs, what is written down of a block, dies' queues.

mod block;
mod left;
mod quarantine;

use crate::erases::DieWear;
use crate::{LogicalBlock, Purpose, VssdId};
pub(crate) use block::{Block, Fill, Use};
pub(crate) use left::Left;
pub use quarantine::{QuarantineReason, Quarantined};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::ops::{Index, IndexMut};

/// The erase blocks of one die, all together.
#[derive(Default)]
pub(crate) struct DieBlocks {
    /// By erases, the least first.
    free: BinaryHeap<Reverse<(u32, u32)>>,
    /// Erases that were done.
    pub erases: u64,
    pub retired: u32,
    /// Old places of blocks that moved away which reads still use.
    pub departing: u32,
    /// It went while a copy was made on it; it does not come back before the pool is opened again.
    pub is_offline: bool,
    /// By cause; counted when they are intended.
    pub wear: DieWear,
}

/// A die with its blocks, on its way to another pool.
pub(crate) struct DiePart {
    die: DieBlocks,
    blocks: Vec<Block>,
}

/// A block that was given back, whose content the medium may forget.
struct Discard {
    /// Change of the block states that says it is free.
    change: u64,
    number: u32,
    erase_count: u32,
}

/// See the module. Blocks are numbered over all dies.
pub(crate) struct Blocks {
    per_die: u32,
    all: Vec<Block>,
    dies: Vec<DieBlocks>,
    /// Good blocks of a die set aside for blocks that go bad.
    reserve: u32,
    /// The next allocation's.
    sequence: u64,
    /// A block failed and was retired since somebody asked.
    has_retired: bool,
    /// In the order in which they were given back.
    discards: VecDeque<Discard>,
    /// For people.
    pub quarantined: Vec<Quarantined>,
}

impl Blocks {
    /// None yet; each die has so many, and so many of them as a reserve.
    pub fn new(per_die: u32, reserve: u32) -> Blocks {
        Blocks {
            per_die,
            all: Vec::new(),
            dies: Vec::new(),
            reserve,
            sequence: 1,
            has_retired: false,
            discards: VecDeque::new(),
            quarantined: Vec::new(),
        }
    }

    /// Adds the next die, with its blocks that are free.
    pub fn add_die(&mut self, is_free: impl Iterator<Item = bool>) {
        let mut free = BinaryHeap::new();
        for is_free in is_free {
            if is_free {
                free.push(Reverse((0, self.all.len() as u32)));
            }
            self.all.push(Block::new(if is_free { Use::Free } else { Use::Excluded }));
        }
        self.dies.push(DieBlocks { free, ..DieBlocks::default() });
        assert_eq!(self.all.len(), self.dies.len() * self.per_die as usize, "dies have as many blocks each");
    }

    pub fn iter(&self) -> impl Iterator<Item = &Block> {
        self.all.iter()
    }
    pub fn count(&self) -> u32 {
        self.all.len() as u32
    }
    /// Numbers of the blocks of a die.
    pub fn of_die(&self, die: u32) -> std::ops::Range<u32> {
        die * self.per_die..(die + 1) * self.per_die
    }
    #[inline]
    pub fn die_of(&self, number: u32) -> u32 {
        number / self.per_die
    }
    /// Its number within its die.
    #[inline]
    pub fn index_in_die(&self, number: u32) -> u32 {
        number % self.per_die
    }
    pub fn die(&self, die: u32) -> &DieBlocks {
        &self.dies[die as usize]
    }
    pub fn die_mut(&mut self, die: u32) -> &mut DieBlocks {
        &mut self.dies[die as usize]
    }
    /// The next allocation's number; it goes on over restarts.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }
    /// The next allocation's number is at least this one.
    pub fn skip_sequences(&mut self, to: u64) {
        self.sequence = self.sequence.max(to);
    }
    /// Good blocks of a die set aside for blocks that go bad.
    pub fn reserve(&self) -> u32 {
        self.reserve
    }
    /// Whether a block was retired since the last call.
    pub fn take_retired(&mut self) -> bool {
        std::mem::take(&mut self.has_retired)
    }

    /// Free blocks of a die: erases and number, in no order.
    pub fn free_of(&self, die: u32) -> impl ExactSizeIterator<Item = (u32, u32)> + '_ {
        self.dies[die as usize].free.iter().map(|&Reverse(block)| block)
    }
    /// How many blocks of a die are free.
    pub fn free_count(&self, die: u32) -> usize {
        self.dies[die as usize].free.len()
    }
    /// The free block of a die that is given out next.
    pub fn next_free(&self, die: u32) -> Option<u32> {
        self.dies[die as usize].free.peek().map(|&Reverse((_, number))| number)
    }
    fn take_free(&mut self, die: u32) -> Option<u32> {
        self.dies[die as usize].free.pop().map(|Reverse((_, number))| number)
    }

    /// Gives the least worn free block of a die to a holder.
    pub fn open(&mut self, die: u32, id: VssdId, logical: LogicalBlock, purpose: Purpose) -> Option<u32> {
        let number = self.take_free(die)?;
        let sequence = self.sequence;
        self.sequence += 1;
        self[number].open(id, logical, purpose, sequence);
        Some(number)
    }
    /// Gives the least worn free block of a die to a copy.
    pub fn take_for_copy(&mut self, die: u32) -> Option<u32> {
        let number = self.take_free(die)?;
        self[number].take_for_copy();
        Some(number)
    }
    /// Gives this free block to a copy.
    pub fn take_this_for_copy(&mut self, number: u32) {
        self.unlist_free(number);
        self[number].take_for_copy();
    }
    /// A free block is given out now.
    pub fn unlist_free(&mut self, number: u32) {
        let free = &mut self.dies[(number / self.per_die) as usize].free;
        let before = free.len();
        free.retain(|Reverse((_, other))| *other != number);
        assert_eq!(free.len() + 1, before, "a free block is listed once (I-V8)");
    }

    /// Nobody has a block any more, and `change` of the block states says so: it is free, or, if it is bad, retired.
    pub fn release(&mut self, number: u32, is_bad: bool, change: u64) {
        self[number].release(if is_bad { Use::Excluded } else { Use::Free });
        if is_bad {
            self.has_retired = true;
            let die = self.die_of(number);
            self.dies[die as usize].retired += 1;
            assert!(self.dies[die as usize].retired <= self.per_die, "a block is retired once (I-V8)");
        } else {
            self.list_free(number, change);
        }
    }
    /// A block that is free can be given out; its content may go.
    pub fn list_free(&mut self, number: u32, change: u64) {
        let (die, erase_count) = (self.die_of(number), self[number].erase_count);
        assert_eq!(self[number].use_of(), Use::Free, "what is listed as free is free (I-V8)");
        self.dies[die as usize].free.push(Reverse((erase_count, number)));
        self.discards.push_back(Discard { change, number, erase_count });
    }
    /// A block is retired since before the process began.
    pub fn list_retired(&mut self, number: u32) {
        let die = self.die_of(number);
        let erase_count = self[number].erase_count;
        self[number] = Block::new(Use::Excluded);
        self[number].erase_count = erase_count;
        self[number].left = Left::Anybody;
        self.dies[die as usize].retired += 1;
    }
    /// Nothing is free any more; what is free is listed anew.
    pub fn clear_free(&mut self) {
        self.dies.iter_mut().for_each(|die| die.free.clear());
    }

    /// Whether there are blocks whose content may go.
    #[inline]
    pub fn has_discards(&self) -> bool {
        !self.discards.is_empty()
    }
    /// The next block whose content may go: that it is free is durable, and it was not opened again meanwhile.
    pub fn take_discard(&mut self, is_durable_at: impl Fn(u64) -> bool) -> Option<u32> {
        loop {
            let Discard { number, erase_count, .. } =
                self.discards.pop_front_if(|discard| is_durable_at(discard.change))?;
            // Opened again, and perhaps free again: that free is listed for itself.
            let block = &self[number];
            if block.use_of() == Use::Free && block.erase_count == erase_count {
                return Some(number);
            }
        }
    }

    /// A block moved away; reads of it may be under way.
    pub fn depart(&mut self, source: u32, copy: u32, late: bool) {
        let [source_block, copy_block] = self
            .all
            .get_disjoint_mut([source as usize, copy as usize])
            .expect("I-V10: a block and its copy are two");
        source_block.depart_to(copy_block, late);
        let die = self.die_of(source);
        self.dies[die as usize].departing += 1;
    }
    /// The last read of a block that moved away came back.
    pub fn departed(&mut self, number: u32) {
        let die = self.die_of(number);
        let departing = &mut self.dies[die as usize].departing;
        assert!(*departing > 0, "a block that moved away comes to its end once (I-V10)");
        *departing -= 1;
    }

    /// Whether nothing of the blocks of a die is under way, and none moves.
    pub fn is_quiet(&self, die: u32) -> bool {
        let quiet = |number: u32| self[number].in_flight == 0 && !self[number].is_moving();
        self.dies[die as usize].departing == 0 && self.of_die(die).all(quiet)
    }
    /// A die with its blocks, for another pool. How worn it is is still known here, where places are chosen.
    ///
    /// # Panics
    /// If something of them is under way (I-V12).
    pub fn take_die(&mut self, die: u32) -> DiePart {
        assert!(self.is_quiet(die), "nothing is under way on die {die} when it changes hands (I-V12)");
        let own = &mut self.dies[die as usize];
        let stays = DieBlocks { erases: own.erases, wear: own.wear, ..DieBlocks::default() };
        let die_blocks = std::mem::replace(own, stays);
        let numbers = self.of_die(die);
        let blocks = &mut self.all[numbers.start as usize..numbers.end as usize];
        let take = |block: &mut Block| std::mem::replace(block, Block::new(Use::Excluded));
        DiePart { die: die_blocks, blocks: blocks.iter_mut().map(take).collect() }
    }
    /// Takes a die over.
    pub fn put_die(&mut self, die: u32, part: DiePart) {
        let first = self.of_die(die).start as usize;
        assert_eq!(part.blocks.len(), self.per_die as usize, "a die arrives with all its blocks (I-V12)");
        let before = &self.dies[die as usize];
        assert!(before.free.is_empty() && before.departing == 0, "die {die} is one pool's (I-V3)");
        self.dies[die as usize] = part.die;
        for (at, block) in part.blocks.into_iter().enumerate() {
            self.all[first + at] = block;
        }
    }
    /// All dies are other pools'.
    pub fn exclude_all(&mut self) {
        (0..self.dies.len() as u32).for_each(|die| self.exclude_die(die));
    }
    /// A die is another pool's.
    pub fn exclude_die(&mut self, die: u32) {
        let numbers = self.of_die(die);
        let blocks = &mut self.all[numbers.start as usize..numbers.end as usize];
        blocks.iter_mut().for_each(|block| *block = Block::new(Use::Excluded));
        self.dies[die as usize] = DieBlocks::default();
    }

    /// Checks all of them; slow. Gives how many the maps of units must name.
    ///
    /// # Panics
    /// If something does not add up.
    pub fn check_invariants(&self) -> usize {
        let used = |use_of: Use| self.all.iter().filter(|block| block.use_of() == use_of).count();
        let free: usize = self.dies.iter().map(|die| die.free.len()).sum();
        assert_eq!(used(Use::Free), free, "free blocks are listed (I-V8)");
        let departing: u32 = self.dies.iter().map(|die| die.departing).sum();
        assert_eq!(
            used(Use::Departed),
            departing as usize,
            "blocks that moved are counted until their reads came back (I-V10)"
        );
        for (number, die) in self.dies.iter().enumerate() {
            let numbers = self.of_die(number as u32);
            let blocks = &self.all[numbers.start as usize..numbers.end as usize];
            let counted: u64 = blocks.iter().map(|block| u64::from(block.erase_count)).sum();
            let lent = blocks.iter().all(|block| block.use_of() == Use::Excluded);
            let wear = die.wear;
            assert!(
                lent || counted == wear.host + wear.migration + wear.inside,
                "die {number}: {counted} erases of its blocks, {wear:?} by cause (I-V11)"
            );
        }
        used(Use::Held) + used(Use::Returned)
    }
}

impl Index<u32> for Blocks {
    type Output = Block;
    #[inline]
    fn index(&self, number: u32) -> &Block {
        &self.all[number as usize]
    }
}

impl IndexMut<u32> for Blocks {
    #[inline]
    fn index_mut(&mut self, number: u32) -> &mut Block {
        &mut self.all[number as usize]
    }
}
