//! Opening a pool from the journal on flash: the newest generation that is whole, its changes in order, then the OOB
//! records of blocks that were open. One read at a time; cold.

use crate::journal::{Journal, UnitShape, decode_unit};
use crate::pool::{POOL_TOKEN_BIT, Pool};
use crate::table::{BlockEntry, BlockState, BlockTable, Found, OpenError};
use crate::{OobKind, OobRecord, PoolConfig};
use diecut_media::{Command, Completion, Media, MediaError, MediaToken, Operation};
use diecut_units::{BufferMut, EraseBlockAddress, ProtectedMemory, Time, mark};

/// Where opening is.
enum Phase {
    /// The first unit of every block of the journal.
    Probe(usize),
    /// Units of one generation: first one copy, then the other if it does not check out.
    Load { unit: u32, copy: usize },
    /// OOB records of blocks that were open: which, and the next page.
    Scan { at: usize, page: u32 },
}

/// A pool on its way from flash.
pub(crate) struct Replay {
    copies: [Vec<EraseBlockAddress>; 2],
    shape: UnitShape,
    phase: Phase,
    /// Generation, copy and place of blocks with a first unit that checks out.
    found: Vec<(u64, usize, usize)>,
    not_blank: u32,
    generation: u64,
    table_units: u32,
    table: Vec<u8>,
    changes: Vec<u8>,
    /// A unit is missing: those behind it must be missing too.
    gap: bool,
    image: Option<BlockTable>,
    open_blocks: Vec<(u32, BlockEntry, u32)>,
    pub error: Option<OpenError>,
}

impl Pool {
    /// Opens a pool on a medium without protected memory. It is to be used when [`Pool::is_open`]; completions of the medium
    /// lead there. An empty medium is made new.
    pub fn open_from_flash<M: Media + ?Sized>(media: &mut M, config: PoolConfig, now: Time) -> Pool {
        let mut pool = Pool::create(media, config);
        // How much was programmed is found by looking: what followed a failed program is found, too. With protected memory
        // only what completed is counted.
        pool.shape.pipelined_units = u32::from(pool.config.program_window).saturating_sub(1);
        let shape = UnitShape::new(&pool.geometry, media.capabilities());
        let copies = Journal::blocks(pool.system_area(), &pool.geometry);
        let table_units = shape.table_units(pool.table_size_bytes());
        let fits = table_units < shape.units_per_block && copies.iter().all(|blocks| blocks.len() >= 2);
        pool.replay = Some(Box::new(Replay {
            copies,
            shape,
            phase: Phase::Probe(0),
            found: Vec::new(),
            not_blank: 0,
            generation: 0,
            table_units: 0,
            table: Vec::new(),
            changes: Vec::new(),
            gap: false,
            image: None,
            open_blocks: Vec::new(),
            error: (!fits).then_some(OpenError::NoJournal),
        }));
        if fits {
            pool.read_for_replay(media, now);
        }
        pool
    }

    /// Whether opening is through.
    pub fn is_open(&self) -> bool {
        self.replay.is_none()
    }
    /// Why it cannot be opened, if so.
    pub fn open_error(&self) -> Option<&OpenError> {
        self.replay.as_ref().and_then(|replay| replay.error.as_ref())
    }
    /// Whether everything that was changed so far survives a power cut. It will, if [`Pool::make_durable`] was called.
    pub fn is_durable(&self) -> bool {
        self.journal.as_ref().is_none_or(Journal::is_durable)
    }
    /// Whether the journal has no place left that takes writes: nothing that is changed now survives a restart.
    pub fn is_journal_lost(&self) -> bool {
        self.journal.as_ref().is_some_and(|journal| journal.failed)
    }
    /// IUs that the journal programmed and erases it asked for, since the pool was opened.
    pub fn journal_work(&self) -> (u64, u64) {
        self.journal.as_ref().map_or((0, 0), |journal| (journal.programmed_ius, journal.erases))
    }
    /// Begins to make everything durable that was changed so far; done when [`Pool::is_durable`].
    pub fn make_durable<M: Media + ?Sized>(&mut self, media: &mut M, now: Time) {
        if let Some(journal) = &mut self.journal {
            journal.want();
        }
        self.kick_journal(media, now);
    }

    pub(crate) fn table_size_bytes(&self) -> usize {
        BlockTable::size_bytes(&self.geometry, self.config.soft_planes_per_die)
    }

    fn read_for_replay<M: Media + ?Sized>(&mut self, media: &mut M, now: Time) {
        let replay = self.replay.as_ref().expect("it is being opened");
        let unit = |block, unit: u32| {
            let ius = replay.shape.ius();
            let destination = BufferMut::copy_from(&vec![0; replay.shape.size_bytes]);
            Operation::Read { block, first_iu: unit * ius, iu_count: ius, destination, oob: None }
        };
        let operation = match replay.phase {
            Phase::Probe(at) => {
                let (copy, place) = replay.candidate(at).expect("there are blocks left");
                unit(replay.copies[copy][place], 0)
            }
            Phase::Load { unit: number, copy } => {
                let place = replay.place(copy).expect("only copies that have it are read");
                unit(replay.copies[copy][place], number)
            }
            Phase::Scan { at, page } => Operation::ReadOob {
                block: self.address(replay.open_blocks[at].0),
                first_page: page,
                oob: BufferMut::copy_from(&vec![
                    0;
                    (replay.shape.pages * replay.shape.oob_size_bytes) as usize
                ]),
            },
        };
        media.submit(Command { token: MediaToken(POOL_TOKEN_BIT), operation }, now);
    }

    /// A read of the replay came back.
    pub(crate) fn replayed<M: Media + ?Sized>(&mut self, completion: Completion, now: Time, media: &mut M) {
        let sizes = self.sizes();
        let replay = self.replay.as_mut().expect("it is being opened");
        let all_pages = self.shape.pages;
        let more = match replay.phase {
            Phase::Probe(_) => replay.probed(completion),
            Phase::Load { .. } => replay.loaded(completion),
            Phase::Scan { .. } => Ok(replay.scanned(completion, all_pages)),
        };
        let more = more.and_then(|more| {
            if more || matches!(replay.phase, Phase::Scan { .. }) {
                return Ok(more);
            }
            // The generation is read: the table as it was last.
            let memory = ProtectedMemory::in_memory(BlockTable::size_bytes(
                &self.geometry,
                self.config.soft_planes_per_die,
            ));
            let mut region = memory.region(0..memory.size_bytes());
            if replay.generation > 0 {
                BlockTable::check_soft_planes(&replay.table, &sizes)?;
                let bytes = replay.table.get(..region.len()).ok_or(OpenError::Damaged)?;
                region.copy_from_slice(bytes);
            }
            let (mut image, is_new) = BlockTable::open(region, &self.geometry, &sizes)?;
            if is_new && replay.generation > 0 {
                return Err(OpenError::Damaged);
            }
            image.replay(&replay.changes)?;
            for number in 0..self.geometry.erase_blocks() as u32 {
                if let Found::Entry(entry) = image.block(number)
                    && matches!(entry.state, BlockState::Held | BlockState::HeldFailed)
                    && let Some(pages) = image.pages(number, entry.sequence)
                    && pages < all_pages
                {
                    replay.open_blocks.push((number, entry, pages));
                }
            }
            replay.image = Some(image);
            let page = replay.open_blocks.first().map_or(0, |(_, _, pages)| *pages);
            replay.phase = Phase::Scan { at: 0, page };
            Ok(!replay.open_blocks.is_empty())
        });
        match more {
            Ok(true) => self.read_for_replay(media, now),
            Ok(false) => self.finish_replay(),
            Err(error) => replay.error = Some(error),
        }
    }

    fn finish_replay(&mut self) {
        let mut replay = self.replay.take().expect("it is being opened");
        let mut table = replay.image.take().expect("the table was read");
        for (number, entry, pages) in &replay.open_blocks {
            table.set_pages(*number, *pages, entry.sequence);
        }
        let places = [0, 1].map(|copy| replay.place(copy).unwrap_or(0));
        let newest = replay.found.iter().map(|(generation, ..)| *generation).max().unwrap_or(0);
        let size_bytes = self.table_size_bytes();
        let is_new = replay.generation == 0;
        let copies = replay.copies.clone();
        self.journal = Some(Journal::new(copies, places, replay.shape, newest, size_bytes));
        if is_new {
            self.table = Some(table);
        } else if let Err(error) = self.take_over(table) {
            replay.error = Some(error);
            self.replay = Some(replay);
        }
    }
}

impl Replay {
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
        let Phase::Probe(at) = self.phase else { unreachable!("a probe came back") };
        let (copy, place) = self.candidate(at).expect("it was asked for");
        match completion.result {
            Ok(()) => {
                self.not_blank += 1;
                let bytes = completion.destination.expect("reads give content");
                if let Some((head, _)) = decode_unit(&bytes)
                    && head.index == 0
                    && head.generation > 0
                {
                    if head.generation >= u64::MAX / 2 {
                        let what = format!("the journal's generation {} cannot be", head.generation);
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
            return if self.not_blank <= 1 { Ok(false) } else { Err(OpenError::Damaged) };
        }
        self.next_generation(u64::MAX);
        Ok(true)
    }

    /// Goes on with the newest generation before `before`. Says whether there is one.
    fn next_generation(&mut self, before: u64) -> bool {
        let older = self.found.iter().map(|(generation, ..)| *generation).filter(|other| *other < before);
        self.generation = older.max().unwrap_or(0);
        (self.gap, self.table_units) = (false, 0);
        self.table.clear();
        self.changes.clear();
        let copy = usize::from(self.place(0).is_none());
        self.phase = Phase::Load { unit: 0, copy };
        self.generation > 0
    }

    fn loaded(&mut self, completion: Completion) -> Result<bool, OpenError> {
        let Phase::Load { unit, copy } = self.phase else { unreachable!("a unit came back") };
        let bytes = completion.result.is_ok().then_some(completion.destination).flatten();
        let unit_of = bytes.as_deref().and_then(decode_unit);
        let right = unit_of.filter(|(head, _)| head.generation == self.generation && head.index == unit);
        if let Some((head, body)) = right {
            if self.gap {
                return Err(OpenError::Damaged);
            }
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
                } else if self.not_blank <= 1 {
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

    fn scanned(&mut self, completion: Completion, all_pages: u32) -> bool {
        let Phase::Scan { at, page } = self.phase else { unreachable!("OOB came back") };
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
