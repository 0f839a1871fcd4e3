//! The catalog on its media: finding the newest state, and appending new ones to both copies.

use crate::State;
use crate::copy::{Copy, Found, Walk};
use crate::frame::{FrameError, decode_frame, encode_frame, encode_oob};
use diecut_media::{Command, Completion, Media, MediaError, MediaToken, Operation};
use diecut_units::{Buffer, BufferMut, ContentMode, EraseBlockAddress, IU_SIZE_BYTES, Payload, Time, mutant};

/// Set in every media token of a catalog; other submitters to the same medium leave it clear.
pub const CATALOG_TOKEN_BIT: u64 = diecut_units::token::media::CATALOG;

/// Why a catalog cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CatalogError {
    /// There are frames, but none can be read on either copy.
    #[error("both copies of the catalog are damaged: {0}")]
    Damaged(String),
    /// Another version wrote it.
    #[error("{0}")]
    Version(String),
    /// No copy can be written any more.
    #[error("all erase blocks of the catalog failed; nothing can be changed any more")]
    Failed,
}

enum Phase {
    /// Walking all blocks for frames.
    Walking,
    /// Reading the content of candidates, best first.
    Reading {
        candidates: Vec<(usize, Found)>,
        problem: Option<CatalogError>,
        unfinished: bool,
    },
    Idle,
    /// Copy at work: erasing its other block, or programming.
    Erasing(usize),
    Programming(usize),
    Failed(CatalogError),
}

/// See the crate's documentation.
pub struct Catalog {
    copies: [Copy; 2],
    walks: [[Walk; 2]; 2],
    unit_pages: u32,
    page_size_bytes: u32,
    oob_size_bytes: u32,
    pages_per_erase_block: u32,
    phase: Phase,
    found: Option<State>,
    sequence: u64,
    wanted: Option<(u64, Vec<u8>)>,
    writing: Option<(u64, Vec<u8>)>,
    durable: u64,
    programmed_ius: u64,
    erases: u64,
}

impl Catalog {
    fn new<M: Media + ?Sized>(media: &M, copies: [[EraseBlockAddress; 2]; 2]) -> Catalog {
        let geometry = media.geometry();
        Catalog {
            copies: copies.map(Copy::new),
            walks: Default::default(),
            unit_pages: media.capabilities().program_unit_pages,
            page_size_bytes: geometry.page_size_bytes,
            oob_size_bytes: geometry.oob_size_bytes,
            pages_per_erase_block: geometry.pages_per_erase_block(),
            phase: Phase::Idle,
            found: None,
            sequence: 1,
            wanted: None,
            writing: None,
            durable: 0,
            programmed_ius: 0,
            erases: 0,
        }
    }

    /// Chooses the erase blocks of both copies among the system area's, given die by die: two blocks of the first die
    /// that has them, and two of a die on another channel, or else of another die.
    pub fn choose_blocks(dies: &[Vec<EraseBlockAddress>]) -> Option<[[EraseBlockAddress; 2]; 2]> {
        let pairs: Vec<[EraseBlockAddress; 2]> =
            dies.iter().filter(|blocks| blocks.len() >= 2).map(|blocks| [blocks[0], blocks[1]]).collect();
        let first = *pairs.first()?;
        let elsewhere = pairs.iter().find(|pair| pair[0].channel != first[0].channel);
        Some([first, *elsewhere.or(pairs.get(1))?])
    }

    /// An empty catalog over blocks whose content does not matter.
    pub fn create<M: Media + ?Sized>(media: &M, copies: [[EraseBlockAddress; 2]; 2]) -> Catalog {
        Catalog::new(media, copies)
    }

    /// Looks for what a catalog left. [`Catalog::complete`] goes on until [`Catalog::is_open`].
    pub fn open<M: Media + ?Sized>(media: &mut M, copies: [[EraseBlockAddress; 2]; 2], now: Time) -> Catalog {
        let mut catalog = Catalog::new(media, copies);
        catalog.phase = Phase::Walking;
        for copy in 0..2 {
            for block in 0..2 {
                catalog.walk(copy, block, media, now);
            }
        }
        catalog
    }

    /// Whether a media completion belongs to a catalog.
    pub fn owns(token: MediaToken) -> bool {
        token.0 & CATALOG_TOKEN_BIT != 0
    }

    /// Whether opening is over; [`Catalog::error`] says if it failed.
    pub fn is_open(&self) -> bool {
        !matches!(self.phase, Phase::Walking | Phase::Reading { .. })
    }

    /// Why it cannot be used, if so.
    pub fn error(&self) -> Option<&CatalogError> {
        match &self.phase {
            Phase::Failed(error) => Some(error),
            _ => None,
        }
    }

    /// The state that opening found; `None` on a medium without a catalog. Only once.
    pub fn take_state(&mut self) -> Option<State> {
        self.found.take()
    }

    /// Makes a state the newest one. It is durable when [`Catalog::durable`] reaches the number returned. States put
    /// while another is written are skipped when a newer one follows.
    pub fn put<M: Media + ?Sized>(&mut self, state: &State, media: &mut M, now: Time) -> u64 {
        assert!(self.is_open(), "states are put after opening");
        self.sequence += 1;
        self.wanted = Some((self.sequence, encode_frame(state, self.sequence)));
        self.begin_write(media, now);
        self.sequence
    }

    /// Number of the newest state that is durable.
    pub fn durable(&self) -> u64 {
        self.durable
    }

    /// Whether no command of it is under way and none will follow before the next [`Catalog::put`].
    pub fn is_idle(&self) -> bool {
        matches!(self.phase, Phase::Idle | Phase::Failed(_)) && self.wanted.is_none()
    }

    /// Copies that cannot be written any more.
    pub fn lost_copies(&self) -> usize {
        self.copies.iter().filter(|copy| copy.is_dead()).count()
    }

    /// IUs programmed and erases asked for since it was opened.
    pub fn work(&self) -> (u64, u64) {
        (self.programmed_ius, self.erases)
    }

    fn token(copy: usize, block: usize) -> MediaToken {
        MediaToken(CATALOG_TOKEN_BIT | (copy as u64) << 1 | block as u64)
    }

    fn walk<M: Media + ?Sized>(&mut self, copy: usize, block: usize, media: &mut M, now: Time) {
        let walk = &mut self.walks[copy][block];
        if walk.next_page >= self.pages_per_erase_block {
            walk.done = true;
            return;
        }
        let oob = BufferMut::copy_from(&vec![0; self.oob_size_bytes as usize]);
        let operation =
            Operation::ReadOob { block: self.copies[copy].blocks[block], first_page: walk.next_page, oob };
        media.submit(Command { token: Catalog::token(copy, block), operation }, now);
    }

    fn read_next<M: Media + ?Sized>(&mut self, media: &mut M, now: Time) {
        let Phase::Reading { candidates, problem, unfinished } = &mut self.phase else { return };
        let Some((copy, found)) = candidates.last() else {
            self.phase = match problem.take() {
                Some(CatalogError::Damaged(_)) if *unfinished => Phase::Idle,
                Some(problem) => Phase::Failed(problem),
                None => Phase::Idle,
            };
            return;
        };
        let per_page = self.page_size_bytes / IU_SIZE_BYTES as u32;
        let iu_count = found.pages * per_page;
        let operation = Operation::Read {
            block: self.copies[*copy].blocks[found.block],
            first_iu: found.first_page * per_page,
            iu_count,
            destination: BufferMut::copy_from(&vec![0; iu_count as usize * IU_SIZE_BYTES]),
            oob: None,
        };
        media.submit(Command { token: Catalog::token(*copy, found.block), operation }, now);
    }

    /// Takes a completion of the medium (see [`Catalog::owns`]).
    pub fn complete<M: Media + ?Sized>(&mut self, completion: Completion, media: &mut M, now: Time) {
        let (copy, block) = ((completion.token.0 >> 1 & 1) as usize, (completion.token.0 & 1) as usize);
        if completion.result == Err(MediaError::PowerLost) {
            return;
        }
        match &mut self.phase {
            Phase::Walking => {
                let walk = &mut self.walks[copy][block];
                match completion.result {
                    Err(MediaError::Erased { .. }) => walk.done = true,
                    // A lost page of an older frame, or the torn end.
                    Err(_) => {
                        walk.unreadable = true;
                        walk.unit(block, walk.next_page, self.unit_pages, None);
                    }
                    Ok(()) => {
                        walk.unit(block, walk.next_page, self.unit_pages, completion.oob.as_deref());
                    }
                }
                walk.next_page += self.unit_pages;
                if !walk.done {
                    self.walk(copy, block, media, now);
                }
                if self.walks.iter().flatten().all(|walk| walk.done) {
                    let mut candidates: Vec<(usize, Found)> = Vec::new();
                    for (copy, walks) in self.walks.iter_mut().enumerate() {
                        candidates.extend(
                            walks.iter_mut().flat_map(|walk| walk.found.drain(..)).map(|f| (copy, f)),
                        );
                    }
                    candidates.sort_by_key(|(_, found)| found.sequence);
                    if mutant!("catalog: oldest frame wins") {
                        candidates.reverse();
                    }
                    // The very first frame may have been cut. That hurts one copy; the other was never written.
                    let both_unreadable =
                        self.walks.iter().all(|walks| walks.iter().any(|walk| walk.unreadable));
                    let unfinished = candidates.len() <= 1 && !both_unreadable;
                    let problem = (candidates.is_empty() && both_unreadable)
                        .then(|| CatalogError::Damaged("no frame can be found on either".to_owned()));
                    self.phase = Phase::Reading { candidates, problem, unfinished };
                    self.read_next(media, now);
                }
            }
            Phase::Reading { candidates, problem, .. } => {
                let (copy, found) = candidates.pop().expect("one was read");
                let frame = match (&completion.result, &completion.destination) {
                    (Ok(()), Some(bytes)) => decode_frame(bytes),
                    _ => Err(FrameError::Incomplete),
                };
                match frame {
                    Ok((sequence, _)) if sequence >= u64::MAX / 2 => {
                        let what = format!("the newest has the sequence number {sequence}, which cannot be");
                        self.phase = Phase::Failed(CatalogError::Damaged(what));
                    }
                    Ok((sequence, state)) => {
                        self.sequence = sequence;
                        self.durable = sequence;
                        self.found = Some(state);
                        for (at, copies) in self.copies.iter_mut().enumerate() {
                            // The copy that won keeps the winning frame: it goes on in its other block.
                            copies.current = if at == copy { found.block } else { 0 };
                        }
                        let best = |of: usize| {
                            let candidates = candidates.iter().filter(move |(at, _)| *at == of);
                            candidates.max_by_key(|(_, found)| found.sequence).map(|(_, found)| found.block)
                        };
                        if let Some(block) = best(1 - copy) {
                            self.copies[1 - copy].current = block;
                        }
                        self.phase = Phase::Idle;
                    }
                    Err(error) => {
                        if matches!(error, FrameError::Version(_)) {
                            // Older frames of our version are not what exists now.
                            self.phase = Phase::Failed(CatalogError::Version(error.to_string()));
                            return;
                        }
                        *problem = Some(CatalogError::Damaged(error.to_string()));
                        self.read_next(media, now);
                    }
                }
            }
            Phase::Erasing(at) => {
                let at = *at;
                let copy = &mut self.copies[at];
                match completion.result {
                    Ok(()) => {
                        (copy.next_page, copy.open_for_append) = (0, true);
                        self.program(at, media, now);
                    }
                    Err(_) => {
                        copy.failed[copy.current] = true;
                        self.write_copy(at, media, now);
                    }
                }
            }
            Phase::Programming(at) => {
                let at = *at;
                let copy = &mut self.copies[at];
                match completion.result {
                    Ok(()) => self.copy_done(at, media, now),
                    Err(_) => {
                        copy.failed[copy.current] = true;
                        copy.open_for_append = false;
                        self.write_copy(at, media, now);
                    }
                }
            }
            Phase::Idle | Phase::Failed(_) => {}
        }
    }

    fn begin_write<M: Media + ?Sized>(&mut self, media: &mut M, now: Time) {
        if !matches!(self.phase, Phase::Idle) {
            return;
        }
        if let Some(wanted) = self.wanted.take() {
            self.writing = Some(wanted);
            self.write_copy(0, media, now);
        }
    }

    fn frame_pages(&self) -> u32 {
        let (_, frame) = self.writing.as_ref().expect("a frame is written");
        (frame.len() as u32).div_ceil(self.page_size_bytes).next_multiple_of(self.unit_pages)
    }

    fn write_copy<M: Media + ?Sized>(&mut self, at: usize, media: &mut M, now: Time) {
        let pages = self.frame_pages();
        assert!(pages <= self.pages_per_erase_block, "the catalog's state fits into an erase block");
        let copy = &mut self.copies[at];
        if copy.is_dead() {
            return self.copy_done(at, media, now);
        }
        if copy.open_for_append && copy.next_page + pages <= self.pages_per_erase_block {
            return self.program(at, media, now);
        }
        // On to the other block: what the present one holds stays until the new frame is complete.
        let other = 1 - copy.current;
        copy.current = if copy.failed[other] { copy.current } else { other };
        copy.open_for_append = false;
        let operation = Operation::Erase { block: copy.blocks[copy.current] };
        let token = Catalog::token(at, copy.current);
        self.erases += 1;
        self.phase = Phase::Erasing(at);
        media.submit(Command { token, operation }, now);
    }

    fn program<M: Media + ?Sized>(&mut self, at: usize, media: &mut M, now: Time) {
        let pages = self.frame_pages();
        let (sequence, frame) = self.writing.as_ref().expect("a frame is written");
        let mut content = frame.clone();
        content.resize(pages as usize * self.page_size_bytes as usize, 0);
        let mut oob = vec![0; (pages * self.oob_size_bytes) as usize];
        for (page, area) in oob.chunks_exact_mut(self.oob_size_bytes as usize).enumerate() {
            encode_oob(*sequence, page as u32, pages, area);
        }
        let copy = &mut self.copies[at];
        let operation = Operation::Program {
            block: copy.blocks[copy.current],
            first_page: copy.next_page,
            parts: [Payload::new(ContentMode::Bytes, Buffer::copy_from(&content))].into_iter().collect(),
            oob: Buffer::copy_from(&oob),
        };
        copy.next_page += pages;
        self.programmed_ius += u64::from(pages * self.page_size_bytes) / IU_SIZE_BYTES as u64;
        let token = Catalog::token(at, copy.current);
        self.phase = Phase::Programming(at);
        media.submit(Command { token, operation }, now);
    }

    fn copy_done<M: Media + ?Sized>(&mut self, at: usize, media: &mut M, now: Time) {
        if at == 0 {
            return self.write_copy(1, media, now);
        }
        let (sequence, _) = self.writing.take().expect("a frame was written");
        if self.copies.iter().all(Copy::is_dead) {
            self.phase = Phase::Failed(CatalogError::Failed);
            return;
        }
        self.durable = sequence;
        self.phase = Phase::Idle;
        self.begin_write(media, now);
    }
}
