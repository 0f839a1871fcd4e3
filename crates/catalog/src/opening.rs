//! Opening: the frames of all blocks are found by their OOB areas, then the blocks are read, the most promising first.
//!
//! Where pages have no OOB areas, each block is read from its start as long as there are frames of their places. A medium with a volatile cache
//! is flushed before: what is found is what the next cut leaves.

use crate::State;
use crate::copy::{Shape, token};
use crate::error::CatalogError;
use crate::frame::{FrameError, Place, checksum_of, decode_oob};
use crate::numbers;
use crate::replay::{Replay, ReplayError, SEQUENCE_END};
use diecut_media::{Command, Completion, Media, MediaError, Operation};
use diecut_units::{BufferMut, EraseBlockAddress, IU_SIZE_BYTES, Time, mutant};

/// A frame found by its OOB areas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Found {
    sequence: u64,
    first_page: u32,
    pages: u32,
}

/// Collects frames of one block from the OOB areas of its program units, in order.
#[derive(Default)]
struct Walk {
    next_page: u32,
    is_done: bool,
    /// Units that could not be read: torn, worn, or on a die that does not answer.
    has_unreadable: bool,
    open: Option<(Found, u32)>,
    found: Vec<Found>,
}

impl Walk {
    /// The OOB area of the first page of a unit; `None` if it cannot be read.
    fn unit(&mut self, page: u32, unit_pages: u32, area: Option<&[u8]>) {
        let Some((sequence, at, pages)) = area.and_then(decode_oob) else {
            self.open = None;
            return;
        };
        if at == 0 {
            self.open = Some((Found { sequence, first_page: page, pages }, 0));
        }
        let Some((frame, next)) = self.open else { return };
        if frame.sequence != sequence || frame.pages != pages || at != next {
            self.open = None;
        } else if at + unit_pages >= pages {
            self.found.push(frame);
            self.open = None;
        } else {
            self.open = Some((frame, next + unit_pages));
        }
    }

    fn is_written(&self) -> bool {
        self.has_unreadable || !self.found.is_empty()
    }
}

/// A block in which frames were found.
struct Candidate {
    copy: usize,
    block: usize,
    frames: Vec<Found>,
}

impl Candidate {
    fn promises(&self) -> u64 {
        self.frames.iter().map(|found| found.sequence).max().unwrap_or(0)
    }
}

enum Step {
    /// What the medium keeps in its cache is made durable.
    Flushing,
    /// Walking all blocks for frames.
    Walking,
    /// Reading the frames of the last candidate, from this one on.
    Reading(usize),
}

/// What opening came to.
pub(crate) struct Opened {
    pub state: Option<(u64, State)>,
    /// The highest number seen anywhere: none up to it is given again.
    pub highest: u64,
    /// The block of each copy that holds its newest frames.
    pub newest_blocks: [usize; 2],
}

/// The machine of an opening; its commands go to the medium under the catalog's tokens.
pub(crate) struct Opening {
    shape: Shape,
    blocks: [[EraseBlockAddress; 2]; 2],
    walks: [[Walk; 2]; 2],
    step: Step,
    /// The most promising last.
    candidates: Vec<Candidate>,
    replay: Replay,
    /// Checksum of the last frame of the candidate that was taken.
    chain: u32,
    /// The highest number seen on each copy, where frames are known by their places.
    newest: [u64; 2],
    /// The newest state so far, with its copy and block.
    best: Option<(u64, State, usize, usize)>,
    opened: Opened,
    /// There may be nothing because the very first write was cut. That hurts one copy; the other was never written.
    may_be_new: bool,
}

impl Opening {
    pub fn begin<M: Media + ?Sized>(
        shape: Shape,
        blocks: [[EraseBlockAddress; 2]; 2],
        media: &mut M,
        now: Time,
    ) -> Opening {
        let mut opening = Opening {
            shape,
            blocks,
            walks: Default::default(),
            step: Step::Walking,
            candidates: Vec::new(),
            replay: Replay::default(),
            chain: 0,
            newest: [0; 2],
            best: None,
            opened: Opened { state: None, highest: 0, newest_blocks: [0; 2] },
            may_be_new: true,
        };
        if shape.flushes && !mutant!("catalog: frames are read without a flush") {
            opening.step = Step::Flushing;
            media.flush(token(0, 0), now);
        } else {
            opening.find(media, now);
        }
        opening
    }

    /// Begins to look for frames.
    fn find<M: Media + ?Sized>(&mut self, media: &mut M, now: Time) {
        self.step = Step::Walking;
        if self.shape.device.is_some() {
            return self.read_all(media, now);
        }
        for copy in 0..2 {
            for block in 0..2 {
                self.walk(copy, block, media, now);
            }
        }
    }

    /// Reads all blocks: nothing says where frames lie but what is read.
    fn read_all<M: Media + ?Sized>(&mut self, media: &mut M, now: Time) {
        let Shape { unit_pages: pages, pages_per_erase_block, .. } = self.shape;
        // Until something is found.
        self.may_be_new = false;
        for (copy, block) in [(1, 1), (1, 0), (0, 1), (0, 0)] {
            let at = |first_page| Found { sequence: u64::MAX, first_page, pages };
            let frames = (0..pages_per_erase_block).step_by(pages as usize).map(at).collect();
            self.candidates.push(Candidate { copy, block, frames });
        }
        let begun = self.read(0, media, now);
        assert!(begun.is_ok(), "nothing was read that could be wrong");
    }

    fn walk<M: Media + ?Sized>(&mut self, copy: usize, block: usize, media: &mut M, now: Time) {
        let walk = &mut self.walks[copy][block];
        if walk.next_page >= self.shape.pages_per_erase_block {
            walk.is_done = true;
            return;
        }
        let oob = BufferMut::copy_from(&vec![0; self.shape.oob_size_bytes as usize]);
        let operation =
            Operation::ReadOob { block: self.blocks[copy][block], first_page: walk.next_page, oob };
        media.submit(Command { token: token(copy, block), operation }, now);
    }

    /// Takes a completion of the medium. Says how opening ended, once it has.
    pub fn complete<M: Media + ?Sized>(
        &mut self,
        (copy, block): (usize, usize),
        completion: &Completion,
        media: &mut M,
        now: Time,
    ) -> Option<Result<Opened, CatalogError>> {
        let outcome = match self.step {
            Step::Flushing if completion.result.is_err() => return Some(Err(CatalogError::FlushFailed)),
            Step::Flushing => {
                self.find(media, now);
                Ok(())
            }
            Step::Reading(at) if self.shape.device.is_some() => self.taken(at, completion, media, now),
            Step::Walking => self.walked(copy, block, completion, media, now),
            Step::Reading(at) => {
                let frame = match (&completion.result, &completion.destination) {
                    (Ok(()), Some(bytes)) => self.replay.frame(bytes, None).map(|_| ()),
                    _ => Err(FrameError::Incomplete.into()),
                };
                match frame {
                    Err(ReplayError::Frame(FrameError::Incomplete)) => {
                        self.replay.gap();
                        Ok(())
                    }
                    other => other,
                }
                .and_then(|()| self.read(at + 1, media, now))
            }
        };
        match outcome {
            Ok(()) => self.is_over().then(|| self.end()),
            // I-C5: no older state is looked for.
            Err(error) => Some(Err(match error {
                ReplayError::Frame(error) => CatalogError::Version(error.to_string()),
                ReplayError::Record(error) if error.is_of_the_future() => {
                    CatalogError::Version(error.to_string())
                }
                ReplayError::Record(error) => CatalogError::Damaged(error.to_string()),
                ReplayError::End(sequence) => CatalogError::Damaged(format!(
                    "the newest has the sequence number {sequence}, which cannot be"
                )),
            })),
        }
    }

    /// A frame where pages have no OOB areas, or the end of the block's frames.
    fn taken<M: Media + ?Sized>(
        &mut self,
        at: usize,
        completion: &Completion,
        media: &mut M,
        now: Time,
    ) -> Result<(), ReplayError> {
        let device =
            self.shape.device.expect("I-C9: a block is read through where only places tell what is a frame");
        let place = Some(Place { device, previous: self.chain });
        let frame = match (&completion.result, &completion.destination) {
            (Ok(()), Some(bytes)) => {
                self.replay.frame(bytes, place).map(|sequence| (sequence, checksum_of(bytes)))
            }
            _ => Err(FrameError::Incomplete.into()),
        };
        match frame {
            Ok((sequence, checksum)) => {
                self.chain = checksum;
                self.opened.highest = self.opened.highest.max(sequence);
                let Candidate { copy, block, .. } = *self.candidates.last().expect("one is read");
                if sequence >= self.newest[copy] {
                    (self.newest[copy], self.opened.newest_blocks[copy]) = (sequence, block);
                }
                self.read(at + 1, media, now)
            }
            Err(ReplayError::Frame(FrameError::Incomplete)) => {
                self.candidates.last_mut().expect("one is read").frames.truncate(at);
                self.read(at, media, now)
            }
            Err(error) => Err(error),
        }
    }

    fn walked<M: Media + ?Sized>(
        &mut self,
        copy: usize,
        block: usize,
        completion: &Completion,
        media: &mut M,
        now: Time,
    ) -> Result<(), ReplayError> {
        let unit_pages = self.shape.unit_pages;
        let walk = &mut self.walks[copy][block];
        match completion.result {
            Err(MediaError::Erased { .. }) => walk.is_done = true,
            // A lost page of an older frame, or the torn end.
            Err(_) => {
                walk.has_unreadable = true;
                walk.unit(walk.next_page, unit_pages, None);
            }
            Ok(()) => walk.unit(walk.next_page, unit_pages, completion.oob.as_deref()),
        }
        walk.next_page += unit_pages;
        if !walk.is_done {
            self.walk(copy, block, media, now);
        }
        if self.walks.iter().flatten().all(|walk| walk.is_done) { self.choose(media, now) } else { Ok(()) }
    }

    /// All blocks were walked.
    fn choose<M: Media + ?Sized>(&mut self, media: &mut M, now: Time) -> Result<(), ReplayError> {
        let are_written = self.walks.each_ref().map(|walks| walks.iter().any(Walk::is_written));
        for (copy, walks) in self.walks.iter_mut().enumerate() {
            for (block, walk) in walks.iter_mut().enumerate() {
                let frames = std::mem::take(&mut walk.found);
                if !frames.is_empty() {
                    self.candidates.push(Candidate { copy, block, frames });
                }
            }
        }
        self.candidates.sort_by_key(Candidate::promises);
        let sequences = self.candidates.iter().flat_map(|one| &one.frames).map(|found| found.sequence);
        let (lowest, highest) = (sequences.clone().min(), sequences.max());
        self.may_be_new = are_written != [true; 2] && lowest == highest;
        self.opened.highest = highest.unwrap_or(0);
        for candidate in &self.candidates {
            self.opened.newest_blocks[candidate.copy] = candidate.block;
        }
        if self.opened.highest >= SEQUENCE_END {
            return Err(ReplayError::End(self.opened.highest));
        }
        self.read(0, media, now)
    }

    /// Reads on in the last candidate; behind its last frame, goes on to the next one that may hold more.
    fn read<M: Media + ?Sized>(&mut self, at: usize, media: &mut M, now: Time) -> Result<(), ReplayError> {
        self.step = Step::Reading(at);
        let Some(candidate) = self.candidates.last() else { return Ok(()) };
        let &Candidate { copy, block, .. } = candidate;
        if let Some(found) = candidate.frames.get(at) {
            let per_page = self.shape.page_size_bytes / IU_SIZE_BYTES as u32;
            let iu_count = found.pages * per_page;
            let operation = Operation::Read {
                block: self.blocks[copy][block],
                first_iu: found.first_page * per_page,
                iu_count,
                destination: BufferMut::copy_from(&vec![0; iu_count as usize * IU_SIZE_BYTES]),
                oob: None,
            };
            media.submit(Command { token: token(copy, block), operation }, now);
            return Ok(());
        }
        self.candidates.pop();
        self.chain = 0;
        let newest = std::mem::take(&mut self.replay).finish()?;
        let best = self.best.as_ref().map_or(0, |(sequence, ..)| *sequence);
        if let Some((sequence, state)) =
            newest.filter(|(sequence, _)| *sequence > best || self.best.is_none())
        {
            self.best = Some((sequence, state, copy, block));
        }
        let best = self.best.as_ref().map(|(sequence, ..)| *sequence);
        self.candidates.retain(|one| best.is_none_or(|best| one.promises() > best));
        self.read(0, media, now)
    }

    fn is_over(&self) -> bool {
        matches!(self.step, Step::Reading(_)) && self.candidates.is_empty()
    }

    fn end(&mut self) -> Result<Opened, CatalogError> {
        let mut opened = Opened { state: None, ..self.opened };
        match self.best.take() {
            Some((sequence, state, copy, block)) => {
                // I-C7
                state.check().and_then(|()| numbers::check(&state)).map_err(CatalogError::Damaged)?;
                opened.newest_blocks[copy] = block;
                opened.state = Some((sequence, state));
            }
            None if self.may_be_new => {}
            None => {
                let what = "no complete state can be found on either";
                return Err(CatalogError::Damaged(what.to_owned()));
            }
        }
        Ok(opened)
    }
}
