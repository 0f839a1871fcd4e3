//! Opening a pool from the log of block states on flash: the newest generation that is whole, its changes in order, then the OOB
//! records of blocks that were open. One read at a time; cold.
//!
//! Where pages have no OOB areas, the headers of all blocks that are held say which of them were ever begun. A medium with a volatile cache is
//! flushed before anything is read: what is found is what the next cut leaves.

use crate::header::is_header_of;
use crate::states::entry::{BlockEntry, BlockState};
use crate::states::log::{StateLog, UnitHead, UnitShape, check_of, decode_unit};
use crate::states::table::{Found, OpenError, Sizes, StateTable};
use crate::token::POOL_TOKEN_BIT;
use crate::{Nonces, OobKind, OobRecord, SystemArea};
use diecut_media::{Command, Completion, Media, MediaError, MediaToken, Operation};
use diecut_units::{
    BlockIndex, BufferMut, EraseBlockAddress, Geometry, IU_SIZE_BYTES, ProtectedMemory, Time, mark, mutant,
};

/// Headers that are read at a time.
const HEADERS_MAX: u32 = 32;

/// Where opening is.
enum Phase {
    /// What the medium keeps in its cache is made durable.
    Flush,
    /// The first unit of every block of the state log.
    Probe(usize),
    /// Units of one generation: first one copy, then the other if it does not check out.
    Load { unit: u32, copy: usize },
    /// OOB records of blocks that were open: which, and the next page.
    Scan { at: usize, page: u32 },
    /// Headers of blocks that are held: the next one, and how many are being read.
    Headers { next: usize, under_way: u32 },
}

/// Block states on their way from flash.
pub(crate) struct Replay {
    geometry: Geometry,
    sizes: Sizes,
    copies: [Vec<EraseBlockAddress>; 2],
    shape: UnitShape,
    /// Where pages have no OOB areas.
    nonces: Option<Nonces>,
    phase: Phase,
    /// Generation, copy and place of blocks with a first unit that checks out.
    found: Vec<(u64, usize, usize)>,
    not_blank: u32,
    generation: u64,
    table_units: u32,
    /// Check of the last unit of the generation that was taken.
    chain: u32,
    table: Vec<u8>,
    changes: Vec<u8>,
    /// A unit is missing: those behind it must be missing too.
    gap: bool,
    image: Option<StateTable>,
    open_blocks: Vec<(u32, BlockEntry, u32)>,
    pub error: Option<OpenError>,
}

impl Replay {
    /// Begins with the blocks of the log that are reserved. An [`Replay::error`] says at once that there is no place for one.
    pub fn new<M: Media + ?Sized>(
        system: &SystemArea,
        sizes: Sizes,
        nonces: Option<Nonces>,
        media: &M,
    ) -> Replay {
        let geometry = *media.geometry();
        let shape = UnitShape::new(&geometry, media.capabilities(), nonces.map(|nonces| nonces.device()));
        let copies = StateLog::blocks(system, &geometry);
        let table_units = shape.table_units(StateTable::size_bytes(&geometry, sizes.soft_planes_per_die));
        let fits = table_units < shape.units_per_block && copies.iter().all(|blocks| blocks.len() >= 2);
        Replay {
            geometry,
            sizes,
            copies,
            shape,
            nonces,
            phase: match shape.flushes && !mutant!("vssd: block states are read without a flush") {
                true => Phase::Flush,
                false => Phase::Probe(0),
            },
            found: Vec::new(),
            not_blank: 0,
            generation: 0,
            table_units: 0,
            chain: 0,
            table: Vec::new(),
            changes: Vec::new(),
            gap: false,
            image: None,
            open_blocks: Vec::new(),
            error: (!fits).then_some(OpenError::NoStateLog),
        }
    }

    fn table_size_bytes(&self) -> usize {
        StateTable::size_bytes(&self.geometry, self.sizes.soft_planes_per_die)
    }

    fn address(&self, number: u32) -> EraseBlockAddress {
        let per_die = self.geometry.erase_blocks_per_die();
        self.geometry.die_at(number / per_die).erase_block(BlockIndex(number % per_die))
    }

    /// Block states of a pool that is made, whatever lies on the medium, and their log.
    ///
    /// # Errors
    /// There is no place for a log.
    pub fn anew(self) -> Result<(StateTable, StateLog), OpenError> {
        if let Some(error) = self.error {
            return Err(error);
        }
        let size_bytes = self.table_size_bytes();
        let memory = ProtectedMemory::in_memory(size_bytes);
        let region = memory.region(0..size_bytes);
        let (table, _) = StateTable::open(region, &self.geometry, &self.sizes)?;
        let log = StateLog::new(self.copies, [0, 0], self.shape, 0, size_bytes);
        Ok((table, log.of_new_pool()))
    }

    /// Asks for what is to be read next.
    pub fn read<M: Media + ?Sized>(&mut self, media: &mut M, now: Time) {
        let unit = |block, unit: u32| {
            let ius = self.shape.ius();
            let destination = BufferMut::copy_from(&vec![0; self.shape.size_bytes]);
            Operation::Read { block, first_iu: unit * ius, iu_count: ius, destination, oob: None }
        };
        let operation = match self.phase {
            Phase::Flush => return media.flush(MediaToken(POOL_TOKEN_BIT), now),
            Phase::Headers { .. } => return self.read_headers(media, now),
            Phase::Probe(at) => {
                let (copy, place) = self.candidate(at).expect("I-V22: a copy that is read is there");
                unit(self.copies[copy][place], 0)
            }
            Phase::Load { unit: number, copy } => {
                let place = self.place(copy).expect("I-V22: a copy that is read is there");
                unit(self.copies[copy][place], number)
            }
            Phase::Scan { at, page } => Operation::ReadOob {
                block: self.address(self.open_blocks[at].0),
                first_page: page,
                oob: BufferMut::copy_from(&vec![0; (self.shape.pages * self.shape.oob_size_bytes) as usize]),
            },
        };
        media.submit(Command { token: MediaToken(POOL_TOKEN_BIT), operation }, now);
    }

    fn read_headers<M: Media + ?Sized>(&mut self, media: &mut M, now: Time) {
        let Phase::Headers { mut next, mut under_way } = self.phase else { return };
        while under_way < HEADERS_MAX
            && let Some(&(number, ..)) = self.open_blocks.get(next)
        {
            let block = self.address(number);
            let destination = BufferMut::copy_from(&[0; IU_SIZE_BYTES]);
            let operation = Operation::Read { block, first_iu: 0, iu_count: 1, destination, oob: None };
            media.submit(Command { token: MediaToken(POOL_TOKEN_BIT | next as u64), operation }, now);
            (next, under_way) = (next + 1, under_way + 1);
        }
        self.phase = Phase::Headers { next, under_way };
    }

    /// A read came back. Says whether everything is read; if not it goes on, or [`Replay::error`] says why it does not.
    pub fn completed<M: Media + ?Sized>(&mut self, completion: Completion, media: &mut M, now: Time) -> bool {
        match self.taken(completion) {
            Ok(true) => self.read(media, now),
            Ok(false) => return true,
            Err(error) => self.error = Some(error),
        }
        false
    }

    /// Takes what was read. Says whether more is to be read.
    fn taken(&mut self, completion: Completion) -> Result<bool, OpenError> {
        let more = match self.phase {
            Phase::Flush if completion.result.is_err() => return Err(OpenError::FlushFailed),
            Phase::Flush => {
                self.phase = Phase::Probe(0);
                return Ok(true);
            }
            Phase::Headers { .. } => return Ok(self.header_read(completion)),
            Phase::Probe(_) => self.probed(completion)?,
            Phase::Load { .. } => self.loaded(completion)?,
            Phase::Scan { .. } => return Ok(self.scanned(completion)),
        };
        if more {
            return Ok(true);
        }
        // The generation is read: the table as it was last.
        let memory = ProtectedMemory::in_memory(self.table_size_bytes());
        let mut region = memory.region(0..memory.size_bytes());
        if self.generation > 0 {
            StateTable::check_soft_planes(&self.table, &self.sizes)?;
            let bytes = self.table.get(..region.len()).ok_or(OpenError::Damaged)?;
            region.copy_from_slice(bytes);
        }
        let (mut image, is_new) = StateTable::open(region, &self.geometry, &self.sizes)?;
        if is_new && self.generation > 0 {
            return Err(OpenError::Damaged);
        }
        image.replay(&self.changes)?;
        if self.nonces.is_some() {
            return Ok(self.begin_headers(image));
        }
        for number in 0..self.geometry.erase_blocks() as u32 {
            if let Found::Entry(entry) = image.block(number)
                && matches!(entry.state, BlockState::Held | BlockState::HeldFailed)
                && let Some(pages) = image.pages(number, entry.sequence)
                && pages < self.geometry.pages_per_erase_block()
            {
                self.open_blocks.push((number, entry, pages));
            }
        }
        self.image = Some(image);
        let page = self.open_blocks.first().map_or(0, |(_, _, pages)| *pages);
        self.phase = Phase::Scan { at: 0, page };
        Ok(!self.open_blocks.is_empty())
    }

    /// All blocks that are held are asked for their headers. Says whether there is any.
    fn begin_headers(&mut self, image: StateTable) -> bool {
        for number in 0..self.geometry.erase_blocks() as u32 {
            if let Found::Entry(entry) = image.block(number)
                && matches!(entry.state, BlockState::Held | BlockState::HeldFailed)
            {
                self.open_blocks.push((number, entry, 0));
            }
        }
        self.image = Some(image);
        self.phase = Phase::Headers { next: 0, under_way: 0 };
        !self.open_blocks.is_empty()
    }

    /// A header came back. Says whether more are to come.
    fn header_read(&mut self, completion: Completion) -> bool {
        let Phase::Headers { next, under_way } = &mut self.phase else {
            unreachable!("I-V22: a header came back")
        };
        *under_way -= 1;
        let goes_on = *under_way > 0 || *next < self.open_blocks.len();
        let nonces = self.nonces.as_ref().expect("I-V25: blocks with headers have nonces");
        let (_, entry, pages) = &mut self.open_blocks[(completion.token.0 & !POOL_TOKEN_BIT) as usize];
        let is_begun = match completion.result {
            Ok(()) => {
                let iu = completion.destination.expect("I-V1: a read ends with its content");
                is_header_of(&iu, nonces, entry.sequence, entry.owner, entry.logical)
            }
            // What lies behind it may still be read.
            Err(_) => true,
        };
        if !is_begun {
            mark!("vssd: a block without its header");
        }
        // How many there are, the holder knows.
        let all = self.geometry.pages_per_erase_block() - self.shape.pages;
        *pages = if is_begun { all } else { 0 };
        goes_on
    }

    /// What was read: the table, the log that goes on with it, and whether the medium was empty.
    ///
    /// # Panics
    /// If not everything is read, or it was taken before.
    pub fn finish(&mut self) -> (StateTable, StateLog, bool) {
        let mut table = self.image.take().expect("I-V22: a table is read before changes are");
        for (number, entry, pages) in &self.open_blocks {
            table.set_pages(*number, *pages, entry.sequence);
        }
        let places = [0, 1].map(|copy| self.place(copy).unwrap_or(0));
        let newest = self.found.iter().map(|(generation, ..)| *generation).max().unwrap_or(0);
        let size_bytes = self.table_size_bytes();
        let log = StateLog::new(self.copies.clone(), places, self.shape, newest, size_bytes);
        (table, log, self.generation == 0)
    }

    fn candidate(&self, at: usize) -> Option<(usize, usize)> {
        let first = self.copies[0].len();
        if at < first { Some((0, at)) } else { (at - first < self.copies[1].len()).then(|| (1, at - first)) }
    }
    /// The block of a copy that carries the generation.
    fn place(&self, copy: usize) -> Option<usize> {
        let of = |(generation, of, place): &(u64, usize, usize)| {
            (*generation == self.generation && *of == copy).then_some(*place)
        };
        self.found.iter().find_map(of)
    }

    fn probed(&mut self, completion: Completion) -> Result<bool, OpenError> {
        let Phase::Probe(at) = self.phase else { unreachable!("I-V22: a probe came back") };
        let (copy, place) = self.candidate(at).expect("I-V22: a copy that is read is there");
        match completion.result {
            Ok(()) => {
                self.not_blank += 1;
                let bytes = completion.destination.expect("I-V1: a read ends with its content");
                if let Some((head, _)) = decode_unit(&bytes)
                    && head.device == self.shape.device.unwrap_or_default()
                    && head.index == 0
                    && head.generation > 0
                {
                    if head.generation >= u64::MAX / 2 {
                        let what = format!("the state log's generation {} cannot be", head.generation);
                        return Err(OpenError::Entry(what));
                    }
                    self.found.push((head.generation, copy, place));
                }
            }
            Err(MediaError::Erased { .. }) => {}
            Err(_) => self.not_blank += 1,
        }
        self.phase = Phase::Probe(at + 1);
        if self.candidate(at + 1).is_some() {
            return Ok(true);
        }
        if self.found.is_empty() {
            // A first generation that was cut short, or nothing at all.
            let is_new = self.not_blank <= 1 && self.nonces.is_none();
            return if is_new { Ok(false) } else { Err(OpenError::Damaged) };
        }
        self.next_generation(u64::MAX);
        Ok(true)
    }

    /// Goes on with the newest generation before `before`. Says whether there is one.
    fn next_generation(&mut self, before: u64) -> bool {
        let older = self.found.iter().map(|(generation, ..)| *generation).filter(|other| *other < before);
        self.generation = older.max().unwrap_or(0);
        (self.gap, self.table_units, self.chain) = (false, 0, 0);
        self.table.clear();
        self.changes.clear();
        let copy = usize::from(self.place(0).is_none());
        self.phase = Phase::Load { unit: 0, copy };
        self.generation > 0
    }

    fn loaded(&mut self, completion: Completion) -> Result<bool, OpenError> {
        let Phase::Load { unit, copy } = self.phase else { unreachable!("I-V22: a unit came back") };
        let bytes = completion.result.is_ok().then_some(completion.destination).flatten();
        let unit_of = bytes.as_deref().and_then(decode_unit);
        let device = self.shape.device.unwrap_or_default();
        let right = unit_of.filter(|(head, _)| {
            head.generation == self.generation && head.index == unit && head.device == device
        });
        // A generation of this number may have been begun before, and cut short: what is left of its table is no part of this one.
        let is_chained = self.shape.device.is_some() && !mutant!("vssd: tables of two lives are one");
        let follows = |head: &UnitHead| !is_chained || head.previous == self.chain;
        let right = right.filter(|(head, _)| unit >= self.table_units.max(1) || follows(head));
        if let Some((head, body)) = right {
            if self.gap || !follows(&head) {
                return Err(OpenError::Damaged);
            }
            self.chain = bytes.as_deref().map_or(0, check_of);
            if unit == 0 {
                self.table_units = head.table_units;
            }
            let to = if unit < self.table_units { &mut self.table } else { &mut self.changes };
            to.extend_from_slice(body);
        } else if copy == 0 && self.place(1).is_some() {
            self.phase = Phase::Load { unit, copy: 1 };
            return Ok(true);
        } else {
            self.gap = true;
            if unit < self.table_units.max(1) {
                // The table is not whole. Both copies begun means that one was: then this is damage.
                mark!("vssd: generation cut short");
                let both = self.place(0).is_some() && self.place(1).is_some();
                return if both {
                    Err(OpenError::Damaged)
                } else if self.next_generation(self.generation) {
                    Ok(true)
                } else if self.not_blank <= 1 && self.nonces.is_none() {
                    self.found.clear();
                    Ok(false)
                } else {
                    Err(OpenError::Damaged)
                };
            }
        }
        if unit + 1 == self.shape.units_per_block {
            return Ok(false);
        }
        self.phase = Phase::Load { unit: unit + 1, copy: usize::from(self.place(0).is_none()) };
        Ok(true)
    }

    fn scanned(&mut self, completion: Completion) -> bool {
        let all_pages = self.geometry.pages_per_erase_block();
        let Phase::Scan { at, page } = self.phase else { unreachable!("I-V22: OOB came back") };
        let (_, entry, pages) = &mut self.open_blocks[at];
        let next = page + self.shape.pages;
        let goes_on = match completion.result {
            Ok(()) => match completion.oob.as_deref().and_then(OobRecord::decode) {
                Some(record) => {
                    let own = matches!(record.kind, OobKind::Data | OobKind::Copy)
                        && record.owner == entry.owner
                        && record.block == entry.logical
                        && record.sequence == entry.sequence;
                    if own {
                        *pages = next;
                    }
                    own
                }
                None => true,
            },
            // Torn, or a lower page that a cut destroyed: what follows may still be there.
            Err(MediaError::Uncorrectable { .. }) => true,
            Err(_) => false,
        };
        if goes_on && next < all_pages {
            self.phase = Phase::Scan { at, page: next };
            return true;
        }
        let Some((_, _, pages)) = self.open_blocks.get(at + 1) else { return false };
        self.phase = Phase::Scan { at: at + 1, page: *pages };
        true
    }
}
