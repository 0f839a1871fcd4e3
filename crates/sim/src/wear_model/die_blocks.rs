//! The erase blocks of one die, each with its own erases: content that is written again and again, content that lies still, and
//! free blocks, of which the least worn is taken next, as the server does.

use diecut_vssd::choose_inside;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// What lies on a die.
#[derive(Clone, Debug, Default)]
pub(super) struct DieBlocks {
    erases: Vec<u32>,
    /// Cycles that each block bears; the erase after them fails.
    bears: Vec<u32>,
    free: BinaryHeap<Reverse<(u32, u32)>>,
    /// Blocks that are written again, the one that is overwritten next first.
    turning: VecDeque<u32>,
    /// Blocks that nobody writes again.
    still: Vec<u32>,
    pub lost: usize,
}

impl DieBlocks {
    /// New blocks that bear so much, so many of them free; of the others, so many in a hundred lie still.
    pub fn new(bears: Vec<u32>, free: usize, still_percent: usize) -> DieBlocks {
        let content = bears.len() - free;
        let still = content * still_percent / 100;
        let numbers = |range: std::ops::Range<usize>| range.map(|number| number as u32);
        DieBlocks {
            still: numbers(0..still).collect(),
            turning: numbers(still..content).collect(),
            free: numbers(content..bears.len()).map(|number| Reverse((0, number))).collect(),
            erases: vec![0; bears.len()],
            bears,
            lost: 0,
        }
    }

    /// Erases a block for new content; it is lost if it bears no more.
    fn erase(&mut self, block: u32) -> bool {
        let at = block as usize;
        self.erases[at] += 1;
        let holds = self.erases[at] <= self.bears[at];
        self.lost += usize::from(!holds);
        holds
    }

    /// The least worn free block, erased, and how many erases that took; nothing if all failed.
    fn take(&mut self) -> (Option<u32>, u64) {
        let mut tried = 0;
        while let Some(Reverse((_, block))) = self.free.pop() {
            tried += 1;
            if self.erase(block) {
                return (Some(block), tried);
            }
        }
        (None, tried)
    }

    fn release(&mut self, block: u32) {
        self.free.push(Reverse((self.erases[block as usize], block)));
    }

    /// Content is written again, a block at a time; gives the erases, a few more than asked for where blocks fail.
    pub fn write(&mut self, erases: u64) -> u64 {
        let mut done = 0;
        while done < erases {
            let (block, tried) = self.take();
            done += tried;
            let Some(block) = block else { break };
            self.turning.push_back(block);
            if let Some(old) = self.turning.pop_front() {
                self.release(old);
            }
        }
        done
    }

    /// Moves content inside the die as long as the server's decision says so; gives the erases.
    pub fn move_inside(&mut self, spare_blocks: u32, gap_erases: u64) -> u64 {
        let mut done = 0;
        loop {
            let free = self.free.iter().map(|&Reverse(block)| block);
            let full = self.still.iter().chain(&self.turning);
            let full = full.map(|&number| (self.erases[number as usize], number));
            let Some((source, copy)) = choose_inside(free, full, spare_blocks, gap_erases) else {
                return done;
            };
            self.free.retain(|Reverse((_, number))| *number != copy);
            done += 1;
            if !self.erase(copy) {
                continue;
            }
            let holds = self.still.iter_mut().chain(&mut self.turning).find(|number| **number == source);
            *holds.expect("it is full") = copy;
            self.release(source);
        }
    }

    /// The contents of two dies change places, block by block, each to the least worn free one; gives the erases of each.
    pub fn exchange(dies: [&mut DieBlocks; 2]) -> [u64; 2] {
        let [one, other] = dies;
        let contents = [&mut *one, &mut *other].map(|die| {
            let still = std::mem::take(&mut die.still).into_iter().map(|block| (block, true));
            let turning = std::mem::take(&mut die.turning).into_iter().map(|block| (block, false));
            still.chain(turning).collect::<Vec<_>>()
        });
        let mut erases = [0; 2];
        for pair in 0..contents[0].len().max(contents[1].len()) {
            let moves = [contents[0].get(pair), contents[1].get(pair)];
            // Both copies are made before their sources are free.
            for (goal, (die, from)) in
                [(&mut *one, moves[1]), (&mut *other, moves[0])].into_iter().enumerate()
            {
                let Some((_, is_still)) = from else { continue };
                let (block, tried) = die.take();
                erases[goal] += tried;
                match block {
                    Some(block) if *is_still => die.still.push(block),
                    Some(block) => die.turning.push_back(block),
                    None => {}
                }
            }
            for (die, source) in [(&mut *one, moves[0]), (&mut *other, moves[1])] {
                if let Some((source, _)) = source {
                    die.release(*source);
                }
            }
        }
        erases
    }
}
