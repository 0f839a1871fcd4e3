//! The pool: one device, its blocks, its vSSDs and the arbiter of its dies.

use crate::arbiter::Die;
use crate::check::Check;
use crate::journal::{JOURNAL_TOKEN_BIT, Journal};
use crate::recovery::Quarantined;
use crate::replay::Replay;
use crate::resources::{DieUse, Resources, UnitPlace};
use crate::share::Bucket;
use crate::table::{BlockEntry, BlockState, BlockTable, UnitEntry, VssdEntry, encode_block, encode_vssd};
use crate::{
    AllocError, BlockShape, DeallocError, IoClass, Isolation, LogicalBlock, PoolConfig, Purpose,
    SpaceCompletion, SpaceError, SpaceToken, SystemArea,
};
use diecut_media::{Completion, Media, MediaError, MediaToken, Operation};
use diecut_units::{BlockIndex, EraseBlockAddress, Geometry, IU_SIZE_BYTES, Time, mutant};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// Set in every media token of a pool; other submitters to the same medium leave it clear.
pub const POOL_TOKEN_BIT: u64 = 1 << 63;

/// A vSSD of a pool, and the owner generation of its blocks: never used again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VssdId(pub u32);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Bad, or of the system area.
    Excluded,
    Free,
    Held,
}

#[derive(Clone, Debug)]
pub(crate) struct Block {
    pub state: State,
    pub erased: bool,
    pub failed: bool,
    pub freed: bool,
    /// Was open when the process or the power went: what a torn program left cannot be programmed over.
    pub sealed: bool,
    /// What it holds is not certain: not read, not programmed, and retired when its holder frees it.
    pub quarantined: bool,
    pub owner: VssdId,
    pub logical: LogicalBlock,
    pub purpose: Purpose,
    pub erase_count: u32,
    pub next_page: u32,
    pub done_pages: u32,
    pub in_flight: u32,
    pub sequence: u64,
    /// Class of the appends under way: they share one queue, so that they stay in order.
    pub appends: u32,
    pub append_class: IoClass,
    /// Operations that wait for the erase, or for a program they read.
    pub waiting: VecDeque<u32>,
}

impl Block {
    pub fn new(state: State) -> Block {
        Block {
            state,
            erased: false,
            failed: false,
            freed: false,
            sealed: false,
            quarantined: false,
            owner: VssdId(0),
            logical: LogicalBlock::default(),
            purpose: Purpose(0),
            erase_count: 0,
            next_page: 0,
            done_pages: 0,
            in_flight: 0,
            sequence: 0,
            appends: 0,
            append_class: IoClass::HostWrite,
            waiting: VecDeque::new(),
        }
    }
}

pub(crate) struct Unit {
    pub place: UnitPlace,
    /// Its flow at the die.
    pub flow: u16,
    /// Erase blocks it lost beyond the die's reserve.
    pub lost_blocks: u16,
    pub map: Vec<u32>,
    pub free_indices: Vec<u32>,
}

pub(crate) struct Vssd {
    pub id: VssdId,
    pub isolation: Isolation,
    pub units: Vec<Unit>,
    pub operations: u32,
    pub read_only: bool,
    pub erases: u64,
    pub bucket: Bucket,
    /// Flows on dies that wait for the bucket, in the order of their turns.
    pub blocked_flows: VecDeque<(u32, u16)>,
    /// Operations that found no place in the queues of their dies.
    pub parked: u32,
}

/// In [`Pool::vssd_numbers`]: there is no such vSSD.
pub(crate) const NO_VSSD: u16 = u16::MAX;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Read,
    Append,
    Erase,
}

pub(crate) struct Op {
    pub kind: Kind,
    pub owner: VssdId,
    pub class: IoClass,
    pub block: u32,
    pub token: SpaceToken,
    pub first_iu: u32,
    pub end_page: u32,
    /// What it takes of its vSSD's rate.
    pub bytes: u64,
    /// What the medium is asked, until it is asked.
    pub operation: Option<Operation>,
}

/// Resource manager, block map and die arbiter of one device.
pub struct Pool {
    pub(crate) geometry: Geometry,
    pub(crate) shape: BlockShape,
    pub(crate) config: PoolConfig,
    system: SystemArea,
    pub(crate) resources: Resources,
    reserve_blocks: u32,
    pub(crate) blocks: Vec<Block>,
    pub(crate) dies: Vec<Die>,
    /// In order of creation.
    pub(crate) vssds: Vec<Vssd>,
    /// Place in `vssds` by id.
    pub(crate) vssd_numbers: Vec<u16>,
    /// vSSDs with flows that wait for tokens, each once.
    pub(crate) throttled: VecDeque<VssdId>,
    pub(crate) room_changes: Vec<VssdId>,
    pub(crate) next_vssd: u32,
    pub(crate) sequence: u64,
    pub(crate) ops: Vec<Option<Op>>,
    free_ops: Vec<u32>,
    pub(crate) ready: Vec<(VssdId, SpaceCompletion)>,
    /// Block states that survive, if the medium has protected memory for them.
    pub(crate) table: Option<BlockTable>,
    /// See [`Pool::quarantined`].
    pub(crate) quarantined: Vec<Quarantined>,
    pub(crate) check: Check,
    /// On media without protected memory.
    pub(crate) journal: Option<Journal>,
    pub(crate) replay: Option<Box<Replay>>,
}

impl Pool {
    /// Makes a pool over a device whose content does not matter.
    pub fn create<M: Media + ?Sized>(media: &M, config: PoolConfig) -> Pool {
        let geometry = *media.geometry();
        let capabilities = media.capabilities();
        let per_die = geometry.erase_blocks_per_die();
        let system = SystemArea::probe(media, config.catalog_blocks_per_die, config.journal_blocks_per_die);
        let system_blocks = config.catalog_blocks_per_die + config.journal_blocks_per_die;
        let reserve_blocks = (per_die * config.bad_block_reserve_permille).div_ceil(1000);
        let (mut blocks, mut dies, mut uses) = (Vec::new(), Vec::new(), Vec::new());
        let mut worst = per_die;
        for (number, die) in geometry.all_dies().enumerate() {
            let (mut good, mut free) = (0, BinaryHeap::new());
            for index in 0..per_die {
                let address = die.erase_block(BlockIndex(index));
                let bad = media.is_factory_bad(address);
                good += u32::from(!bad);
                let excluded = bad || system.contains(number as u32, address);
                if !excluded {
                    free.push(Reverse((0, blocks.len() as u32)));
                }
                blocks.push(Block::new(if excluded { State::Excluded } else { State::Free }));
            }
            let usable = good * 100 >= per_die * config.usable_die_percent;
            if usable {
                worst = worst.min(good);
            }
            uses.push(if usable { DieUse::Free } else { DieUse::Dead });
            dies.push(Die::new(free));
        }
        let set_aside = system_blocks + reserve_blocks + config.spare_blocks_per_die.max(2);
        let resources = Resources {
            geometry,
            dies: uses,
            soft_planes_per_die: config.soft_planes_per_die,
            die_blocks: worst.saturating_sub(set_aside),
            placement: config.die_placement,
        };
        let shape = BlockShape {
            pages: geometry.pages_per_erase_block(),
            page_size_bytes: geometry.page_size_bytes,
            program_unit_pages: capabilities.program_unit_pages,
            unsafe_units: capabilities.unsafe_units,
            oob_size_bytes: geometry.oob_size_bytes,
            holder_oob_offset: crate::OOB_RECORD_SIZE_BYTES as u32,
            content_mode: capabilities.content_mode,
        };
        Pool {
            geometry,
            shape,
            config,
            system,
            resources,
            reserve_blocks,
            blocks,
            dies,
            vssds: Vec::new(),
            vssd_numbers: Vec::new(),
            throttled: VecDeque::new(),
            room_changes: Vec::new(),
            next_vssd: 1,
            sequence: 1,
            ops: Vec::new(),
            free_ops: Vec::new(),
            ready: Vec::new(),
            table: None,
            quarantined: Vec::new(),
            check: Check::default(),
            journal: None,
            replay: None,
        }
    }

    /// Writes a block's state down. What it says is durable at once.
    pub(crate) fn record(&mut self, number: u32, state: BlockState) {
        let Some(table) = &mut self.table else { return };
        let block = &self.blocks[number as usize];
        let entry = BlockEntry {
            state,
            owner: block.owner,
            logical: block.logical,
            purpose: block.purpose,
            erase_count: block.erase_count,
            sequence: block.sequence,
        };
        table.set_block(number, &entry);
        if let Some(journal) = &mut self.journal {
            journal.push_block(number, &encode_block(&entry));
        }
    }

    /// Makes a vSSD (FlashBlox `AllocVirtualSSD`).
    ///
    /// # Errors
    /// Says what cannot be had; nothing is changed then, and never is a weaker isolation given.
    pub fn alloc_vssd(
        &mut self,
        isolation: Isolation,
        level: u32,
        capacity_bytes: u64,
    ) -> Result<VssdId, AllocError> {
        let places = self.choose_places(isolation, level, capacity_bytes, |_| true)?;
        let id = self.new_vssd_id()?;
        self.admit(id, isolation, &places);
        Ok(id)
    }

    /// Writes a vSSD down as it is now.
    pub(crate) fn record_vssd(&mut self, at: usize) {
        let vssd = &self.vssds[at];
        let units = vssd.units.iter();
        let entry = VssdEntry {
            id: vssd.id,
            placed: true,
            isolation: vssd.isolation,
            read_only: vssd.read_only,
            units: units.map(|unit| UnitEntry { place: unit.place, lost_blocks: unit.lost_blocks }).collect(),
        };
        self.write_vssd(&entry);
    }

    fn write_vssd(&mut self, entry: &VssdEntry) {
        let Some(table) = &mut self.table else { return };
        table.set_vssd(entry);
        if let Some(journal) = &mut self.journal {
            journal.push_vssd(&encode_vssd(entry));
        }
    }

    /// Lets the journal write if somebody waits for it.
    pub(crate) fn kick_journal<M: Media + ?Sized>(&mut self, media: &mut M, now: Time) {
        if let (Some(journal), Some(table)) = (&mut self.journal, &self.table) {
            journal.kick(table.bytes(), media, now);
        }
    }

    fn journal_completed<M: Media + ?Sized>(
        &mut self,
        result: Result<(), MediaError>,
        now: Time,
        media: &mut M,
    ) {
        let (Some(journal), Some(table)) = (&mut self.journal, &self.table) else { return };
        if result == Err(MediaError::PowerLost) {
            return;
        }
        let more = journal.completed(result.is_ok(), table.bytes(), media, now);
        if journal.failed {
            return self.journal_failed(now, media);
        }
        if more {
            while let Some(&(change, id, token)) = journal.waiting_syncs.front()
                && journal.is_durable_at(change)
            {
                journal.waiting_syncs.pop_front();
                self.ready
                    .push((id, SpaceCompletion { token, result: Ok(()), destination: None, oob: None }));
            }
            while let Some(at) = self.journal.as_mut().and_then(Journal::take_erase) {
                self.enqueue_stored(at, media, now);
            }
        }
        self.kick_journal(media, now);
    }

    /// No block takes the journal any more: what is on flash still reads, nothing new is promised.
    fn journal_failed<M: Media + ?Sized>(&mut self, now: Time, media: &mut M) {
        for vssd in &mut self.vssds {
            vssd.read_only = true;
        }
        let Some(journal) = &mut self.journal else { return };
        let erases: Vec<u32> = journal.waiting_erases.drain(..).map(|(_, at)| at).collect();
        for (_, id, token) in journal.waiting_syncs.drain(..) {
            let result = Err(SpaceError::ReadOnly);
            self.ready.push((id, SpaceCompletion { token, result, destination: None, oob: None }));
        }
        for at in erases {
            let op = self.ops[at as usize].take().expect("it lives");
            self.free_ops.push(at);
            let block = &mut self.blocks[op.block as usize];
            block.in_flight -= 1;
            block.failed = true;
            self.release_waiting(op.block, media, now);
            self.settle(op.block);
        }
    }

    pub(crate) fn place(&mut self, id: VssdId, isolation: Isolation, places: &[UnitPlace]) {
        let units = places.iter().map(|&place| {
            let count = self.resources.unit_blocks(place);
            let flow = self.dies[place.die as usize].join(id, isolation);
            let map = vec![u32::MAX; count as usize];
            Unit { place, flow, lost_blocks: 0, map, free_indices: (0..count).rev().collect() }
        });
        let units = units.collect();
        self.vssds.push(Vssd {
            id,
            isolation,
            units,
            operations: 0,
            read_only: false,
            erases: 0,
            bucket: Bucket::default(),
            blocked_flows: VecDeque::new(),
            parked: 0,
        });
        self.vssd_numbers.resize(self.next_vssd as usize, NO_VSSD);
        self.vssd_numbers[id.0 as usize] = self.vssds.len() as u16 - 1;
    }

    /// Renews the way from ids to places after a removal.
    pub(crate) fn number_vssds(&mut self) {
        self.vssd_numbers.fill(NO_VSSD);
        for (at, vssd) in self.vssds.iter().enumerate() {
            self.vssd_numbers[vssd.id.0 as usize] = at as u16;
        }
    }

    /// Where a vSSD stands in `vssds`.
    pub(crate) fn at_of(&self, id: VssdId) -> Option<usize> {
        let at = *self.vssd_numbers.get(id.0 as usize)?;
        (at != NO_VSSD).then_some(usize::from(at))
    }

    /// Deletes a vSSD; its blocks are erased before anyone else can read or write them.
    ///
    /// # Errors
    /// Unknown or deleted before, or operations are under way.
    pub fn dealloc_vssd(&mut self, id: VssdId) -> Result<(), DeallocError> {
        let Some(at) = self.at_of(id) else {
            let known = id.0 > 0 && id.0 < self.next_vssd;
            return Err(if known { DeallocError::AlreadyFree(id.0) } else { DeallocError::Unknown(id.0) });
        };
        // An erase under way has no holder that waits for it, but its block is not free yet.
        let erasing = self.blocks.iter().filter(|block| block.owner == id && block.in_flight > 0).count();
        let operations = self.vssds[at].operations.max(erasing as u32);
        if operations > 0 {
            return Err(DeallocError::Busy { vssd: id.0, operations });
        }
        let vssd = self.vssds.remove(at);
        self.number_vssds();
        let (isolation, units) = (vssd.isolation, Vec::new());
        self.write_vssd(&VssdEntry { id, placed: false, isolation, read_only: false, units });
        for unit in &vssd.units {
            for &block in unit.map.iter().filter(|&&block| block != u32::MAX) {
                self.recycle(block);
            }
            self.dies[unit.place.die as usize].leave(unit.flow);
        }
        let places: Vec<UnitPlace> = vssd.units.iter().map(|unit| unit.place).collect();
        self.resources.release(&places);
        Ok(())
    }

    /// The erase blocks of a vSSD, lent for a call.
    ///
    /// # Panics
    /// If there is no such vSSD.
    pub fn space<'a, M: Media + ?Sized>(
        &'a mut self,
        id: VssdId,
        media: &'a mut M,
        now: Time,
    ) -> crate::Space<'a, M> {
        let at = self.at_of(id).expect("the vSSD exists");
        crate::Space { pool: self, media, at, now }
    }
    /// Shape of every erase block.
    pub fn shape(&self) -> &BlockShape {
        &self.shape
    }
    /// Whether a media completion belongs to the pool.
    pub fn owns(token: MediaToken) -> bool {
        token.0 & POOL_TOKEN_BIT != 0
    }
    /// The reserved blocks.
    pub fn system_area(&self) -> &SystemArea {
        &self.system
    }
    /// vSSDs in order of creation.
    pub fn vssd_ids(&self) -> impl Iterator<Item = VssdId> + '_ {
        self.vssds.iter().map(|vssd| vssd.id)
    }
    /// Erases of a die since the pool was made.
    pub fn die_erases(&self, die_number: u32) -> u64 {
        self.dies[die_number as usize].erases
    }
    /// Erases for a vSSD since it was made; 0 if there is none.
    pub fn vssd_erases(&self, id: VssdId) -> u64 {
        self.at_of(id).map_or(0, |at| self.vssds[at].erases)
    }
    /// Independent units of a vSSD, and bytes of the erase blocks it may hold; zeros if there is none.
    pub fn size_of(&self, id: VssdId) -> (u32, u64) {
        let Some(vssd) = self.at_of(id).map(|at| &self.vssds[at]) else { return (0, 0) };
        let blocks: u64 = vssd.units.iter().map(|unit| unit.map.len() as u64).sum();
        (vssd.units.len() as u32, blocks * self.geometry.erase_block_size_bytes())
    }
    /// Erase blocks a vSSD may hold, and those of them that it does not hold now; zeros if there is none.
    pub fn erase_blocks_of(&self, id: VssdId) -> (u64, u64) {
        let Some(vssd) = self.at_of(id).map(|at| &self.vssds[at]) else { return (0, 0) };
        let units = vssd.units.iter();
        units.fold((0, 0), |(all, free), unit| {
            (all + unit.map.len() as u64, free + unit.free_indices.len() as u64)
        })
    }
    /// Where a vSSD lies, for people.
    pub fn placement(&self, id: VssdId) -> String {
        let Some(vssd) = self.at_of(id).map(|at| &self.vssds[at]) else { return String::new() };
        let places = vssd.units.iter().map(|unit| {
            let die = self.geometry.die_at(unit.place.die);
            let plane = unit.place.soft_plane.map_or(String::new(), |plane| format!(".{plane}"));
            format!("{}/{}{plane}", die.channel.0, die.die.0)
        });
        format!("{:?}-isolated on channel/die {}", vssd.isolation, places.collect::<Vec<_>>().join(" "))
    }
    /// Free channels and free dies.
    pub fn free_resources(&self) -> (u32, u32) {
        (self.resources.free_channels(), self.resources.free_dies())
    }
    /// Takes answers that were ready at once; call after every use of a space.
    pub fn take_ready(&mut self, completions: &mut Vec<(VssdId, SpaceCompletion)>) {
        completions.append(&mut self.ready);
    }
    /// Whether [`Pool::take_ready`] has something.
    pub fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// The holder gives a block back: durable at once, erased when it is given out again.
    pub(crate) fn free_block(&mut self, number: u32) {
        self.blocks[number as usize].freed = true;
        if self.blocks[number as usize].in_flight > 0 && !mutant!("vssd: free forgotten") {
            let block = &self.blocks[number as usize];
            let failed = block.failed || block.quarantined;
            self.record(number, if failed { BlockState::Retired } else { BlockState::Free });
        }
        self.settle(number);
    }
    pub(crate) fn die_of(&self, block: u32) -> usize {
        (block / self.geometry.erase_blocks_per_die()) as usize
    }
    pub(crate) fn address(&self, block: u32) -> EraseBlockAddress {
        let die = self.geometry.die_at(self.die_of(block) as u32);
        die.erase_block(BlockIndex(block % self.geometry.erase_blocks_per_die()))
    }

    /// Takes the least worn free block of a die and starts its erase.
    pub(crate) fn open_block<M: Media + ?Sized>(
        &mut self,
        id: VssdId,
        logical: LogicalBlock,
        purpose: Purpose,
        die: u32,
        media: &mut M,
        now: Time,
    ) -> Option<u32> {
        let Reverse((_, number)) = self.dies[die as usize].free.pop()?;
        let sequence = self.sequence;
        self.sequence += 1;
        let block = &mut self.blocks[number as usize];
        assert!(block.state == State::Free && block.in_flight == 0, "block {number} is free");
        block.state = State::Held;
        (block.erased, block.failed, block.freed, block.sealed) = (false, false, false, false);
        // Counted when it is intended: no crash makes the count smaller than what the silicon saw.
        block.erase_count += 1;
        (block.owner, block.logical, block.purpose) = (id, logical, purpose);
        (block.next_page, block.done_pages, block.sequence) = (0, 0, sequence);
        // Known as held before it is erased: after a crash it is its owner's, or free and erased before anything else.
        if !mutant!("vssd: allocation not recorded") && !mutant!("vssd: erase before free durable") {
            self.record(number, BlockState::Held);
        }
        let operation = Operation::Erase { block: self.address(number) };
        self.start(Kind::Erase, id, IoClass::Cleaner, number, SpaceToken(0), 0, 0, operation, media, now);
        Some(number)
    }

    #[expect(clippy::too_many_arguments, reason = "one operation's fields, stored at once")]
    pub(crate) fn start<M: Media + ?Sized>(
        &mut self,
        kind: Kind,
        owner: VssdId,
        class: IoClass,
        block: u32,
        token: SpaceToken,
        first_iu: u32,
        end_page: u32,
        operation: Operation,
        media: &mut M,
        now: Time,
    ) {
        self.blocks[block as usize].in_flight += 1;
        let bytes = match &operation {
            Operation::Read { iu_count, .. } => u64::from(*iu_count) * IU_SIZE_BYTES as u64,
            // One IU for each page: what the die and the bus have of it.
            Operation::ReadOob { oob, .. } => {
                (oob.len() as u64 / u64::from(self.shape.oob_size_bytes)) * IU_SIZE_BYTES as u64
            }
            Operation::Program { .. } => {
                let first_page = first_iu / self.shape.ius_per_page();
                u64::from(end_page - first_page) * u64::from(self.shape.page_size_bytes)
            }
            _ => 0,
        };
        let op = Op { kind, owner, class, block, token, first_iu, end_page, bytes, operation: None };
        let at = match self.free_ops.pop() {
            Some(at) => {
                self.ops[at as usize] = Some(op);
                at
            }
            None => {
                self.ops.push(Some(op));
                self.ops.len() as u32 - 1
            }
        };
        let state = &mut self.blocks[block as usize];
        let waits = match kind {
            Kind::Erase => false,
            Kind::Append => !state.erased,
            Kind::Read => end_page > state.done_pages,
        };
        if let (Kind::Erase, Some(journal)) = (kind, &mut self.journal)
            && !mutant!("vssd: erase before journal")
        {
            journal.waiting_erases.push_back((journal.pushed(), at));
            self.ops[at as usize].as_mut().expect("just stored").operation = Some(operation);
            self.kick_journal(media, now);
        } else if waits {
            state.waiting.push_back(at);
            self.ops[at as usize].as_mut().expect("just stored").operation = Some(operation);
        } else {
            self.enqueue(at, operation, media, now);
        }
    }

    /// Takes a completion of the medium (see [`Pool::owns`]) and appends what it means to holders.
    ///
    /// # Panics
    /// If the token is not of an operation under way.
    pub fn complete<M: Media + ?Sized>(
        &mut self,
        completion: Completion,
        now: Time,
        media: &mut M,
        completions: &mut Vec<(VssdId, SpaceCompletion)>,
    ) {
        if self.replay.is_some() {
            return self.replayed(completion, now, media);
        }
        if completion.token.0 & JOURNAL_TOKEN_BIT != 0 {
            self.journal_completed(completion.result, now, media);
            return completions.append(&mut self.ready);
        }
        if Pool::is_of_check(completion.token) {
            return self.checked(completion, now, media);
        }
        let at = (completion.token.0 & !POOL_TOKEN_BIT) as usize;
        let op = self.ops[at].take().expect("a completion comes once");
        self.free_ops.push(at as u32);
        let number = self.die_of(op.block);
        let die = &mut self.dies[number];
        die.in_flight -= 1;
        die.programs -= u16::from(op.kind != Kind::Read);
        match op.kind {
            Kind::Read => {
                let result = completion.result.map_err(|error| self.translate(&op, error));
                self.answer(&op, result, completion.destination, completion.oob);
            }
            Kind::Append => {
                let block = &mut self.blocks[op.block as usize];
                // What follows a failed program in the pipeline is lost with it.
                let result = match completion.result {
                    Ok(()) if !block.failed => {
                        block.done_pages = block.done_pages.max(op.end_page);
                        if let Some(table) = &mut self.table {
                            table.set_pages(op.block, block.done_pages, block.sequence);
                            if let Some(journal) = &mut self.journal
                                && block.done_pages == self.shape.pages
                            {
                                journal.push_pages(op.block, block.done_pages, block.sequence);
                            }
                        }
                        Ok(())
                    }
                    Ok(()) => Err(self.append_failed(&op)),
                    Err(error) => {
                        if matches!(error, MediaError::ProgramFailed { .. }) {
                            block.failed = true;
                            if !block.freed {
                                self.record(op.block, BlockState::HeldFailed);
                            }
                        }
                        Err(self.translate(&op, error))
                    }
                };
                self.answer(&op, result, None, None);
            }
            Kind::Erase => self.erase_completed(&op, completion.result),
        }
        self.release_waiting(op.block, media, now);
        self.settle(op.block);
        self.dispatch(number, media, now);
        self.kick_journal(media, now);
        completions.append(&mut self.ready);
    }

    fn erase_completed(&mut self, op: &Op, result: Result<(), MediaError>) {
        let die = self.die_of(op.block);
        let block = &mut self.blocks[op.block as usize];
        block.in_flight -= 1;
        if matches!(result, Err(error) if !matches!(error, MediaError::EraseFailed { .. })) {
            // The power or the die went, not the block: nothing about it is written down.
            block.failed = true;
            return;
        }
        if result.is_err() && !block.freed && !mutant!("vssd: allocation not recorded") {
            self.record(op.block, BlockState::HeldFailed);
        }
        if mutant!("vssd: erase before free durable") {
            self.record(op.block, BlockState::Held);
        }
        let block = &mut self.blocks[op.block as usize];
        match result {
            Ok(()) => {
                block.erased = true;
                self.dies[die].erases += 1;
                if let Some(at) = self.at_of(op.owner) {
                    self.vssds[at].erases += 1;
                }
            }
            // The holder learns of it at its first append and frees the block, which retires it.
            Err(_) => block.failed = true,
        }
    }

    fn release_waiting<M: Media + ?Sized>(&mut self, number: u32, media: &mut M, now: Time) {
        for _ in 0..self.blocks[number as usize].waiting.len() {
            let block = &mut self.blocks[number as usize];
            let at = block.waiting.pop_front().expect("counted");
            let op = self.ops[at as usize].as_ref().expect("it lives");
            let ready = match op.kind {
                Kind::Read => op.end_page <= block.done_pages,
                _ => block.erased,
            };
            if ready {
                self.enqueue_stored(at, media, now);
            } else if block.failed {
                let op = self.ops[at as usize].take().expect("it lives");
                self.free_ops.push(at);
                let error = if op.kind == Kind::Read {
                    let LogicalBlock { unit, index } = self.blocks[number as usize].logical;
                    SpaceError::Uncorrectable { unit: unit.0, index, iu: op.first_iu }
                } else {
                    self.append_failed(&op)
                };
                self.answer(&op, Err(error), None, None);
            } else {
                block.waiting.push_back(at);
            }
        }
    }

    fn answer(
        &mut self,
        op: &Op,
        result: Result<(), SpaceError>,
        destination: Option<diecut_units::BufferMut>,
        oob: Option<diecut_units::BufferMut>,
    ) {
        let block = &mut self.blocks[op.block as usize];
        block.in_flight -= 1;
        block.appends -= u32::from(op.kind == Kind::Append);
        let at = self.at_of(op.owner).expect("busy vSSDs stay");
        self.vssds[at].operations -= 1;
        self.ready.push((op.owner, SpaceCompletion { token: op.token, result, destination, oob }));
    }

    /// A freed block whose last operation is gone leaves its unit.
    pub(crate) fn settle(&mut self, number: u32) {
        let block = &self.blocks[number as usize];
        if block.state != State::Held || !block.freed || block.in_flight > 0 {
            return;
        }
        let (logical, owner) = (block.logical, block.owner);
        let failed = block.failed || block.quarantined;
        let die = self.die_of(number);
        // Beyond the reserve the unit that wore the block shrinks, and its vSSD takes no more writes.
        let lost = failed && self.dies[die].retired >= self.reserve_blocks;
        let at = self.at_of(owner).expect("holds the block");
        let vssd = &mut self.vssds[at];
        let unit = &mut vssd.units[usize::from(logical.unit.0)];
        unit.map[logical.index as usize] = u32::MAX;
        if lost {
            unit.lost_blocks = unit.lost_blocks.saturating_add(1);
            vssd.read_only = true;
            // Before the block is written down as retired: a crash in between shrinks the unit once more, never less.
            if !mutant!("vssd: read-only forgotten") {
                self.record_vssd(at);
            }
        } else {
            unit.free_indices.push(logical.index);
        }
        self.recycle(number);
    }

    pub(crate) fn recycle(&mut self, number: u32) {
        let die = self.die_of(number);
        let block = &mut self.blocks[number as usize];
        block.owner = VssdId(0);
        let failed = block.failed || block.quarantined;
        if !mutant!("vssd: free forgotten") && (failed || !mutant!("vssd: erase before free durable")) {
            self.record(number, if failed { BlockState::Retired } else { BlockState::Free });
        }
        let block = &mut self.blocks[number as usize];
        if failed {
            block.state = State::Excluded;
            self.dies[die].retired += 1;
        } else {
            block.state = State::Free;
            self.dies[die].free.push(Reverse((block.erase_count, number)));
        }
    }

    fn append_failed(&self, op: &Op) -> SpaceError {
        let LogicalBlock { unit, index } = self.blocks[op.block as usize].logical;
        SpaceError::AppendFailed { unit: unit.0, index }
    }

    fn translate(&self, op: &Op, error: MediaError) -> SpaceError {
        let LogicalBlock { unit, index } = self.blocks[op.block as usize].logical;
        let unit = unit.0;
        let iu = |page: u32| op.first_iu.max(page * self.shape.ius_per_page());
        match error {
            MediaError::Uncorrectable { page, .. } => SpaceError::Uncorrectable { unit, index, iu: iu(page) },
            MediaError::Erased { page, .. } => SpaceError::Erased { unit, index, iu: iu(page) },
            MediaError::WrongContentMode { page, .. } => {
                SpaceError::WrongContentMode { unit, index, iu: iu(page) }
            }
            MediaError::ProgramFailed { .. } | MediaError::EraseFailed { .. } => {
                SpaceError::AppendFailed { unit, index }
            }
            MediaError::DieOffline { .. } => SpaceError::UnitOffline { unit },
            MediaError::PowerLost => SpaceError::PowerLost,
        }
    }

    /// Checks everything against everything; slow.
    ///
    /// # Panics
    /// If anything does not add up.
    pub fn check_invariants(&self) {
        for vssd in &self.vssds {
            for unit in &vssd.units {
                for (index, &number) in unit.map.iter().enumerate().filter(|(_, number)| **number != u32::MAX)
                {
                    let block = &self.blocks[number as usize];
                    assert!(block.state == State::Held && block.owner == vssd.id, "block {number} is held");
                    assert!(block.logical.index as usize == index, "block {number} knows its place");
                    assert_eq!(self.die_of(number) as u32, unit.place.die, "a unit stays on its die");
                }
            }
        }
        let mapped = |vssd: &Vssd| -> usize {
            vssd.units.iter().map(|unit| unit.map.iter().filter(|&&number| number != u32::MAX).count()).sum()
        };
        let held = self.blocks.iter().filter(|block| block.state == State::Held).count();
        assert_eq!(held, self.vssds.iter().map(mapped).sum::<usize>(), "held blocks are mapped, once");
        let free = self.blocks.iter().filter(|block| block.state == State::Free).count();
        assert_eq!(free, self.dies.iter().map(|die| die.free.len()).sum::<usize>(), "free blocks are listed");
    }
}
