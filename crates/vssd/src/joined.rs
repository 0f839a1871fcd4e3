//! One space over the parts that a vSSD has on several devices.
//!
//! Units of the parts take turns: with two parts of two units each, units 0 and 2 lie on the first part and units 1 and 3 on the second, so what
//! goes round the units goes round the devices. A part with more units than others has the last ones. Holders see units, and never ask which
//! device one lies on.

use crate::space::*;
use diecut_units::{BufferMut, mutant};
use smallvec::SmallVec;

/// A space that can be a part of a larger one.
pub trait EraseBlockPart: EraseBlockSpace {
    /// The allocation sequence of the next allocation.
    fn next_allocation(&self) -> u64;
    /// The next allocation has this sequence, or the one that it would have had if that is higher.
    fn skip_allocations(&mut self, to: u64);
}

/// Where the units of a joined space lie, and what its parts have not all answered yet.
#[derive(Debug)]
pub struct VssdParts {
    /// Of each unit, its part and its number there.
    units: Vec<(u8, UnitIndex)>,
    /// Of each part, what its units are called by the holder.
    names: Vec<Vec<UnitIndex>>,
    joins: Vec<Join>,
}

/// An operation of all parts.
#[derive(Debug)]
struct Join {
    token: SpaceToken,
    /// Parts that have not answered, by bit.
    waits_for: u64,
    result: Result<(), SpaceError>,
}

impl VssdParts {
    /// More parts than this a vSSD cannot have.
    pub const PARTS_MAX: usize = u64::BITS as usize;

    /// `units` has the number of units of each part; `order` names the parts in the order in which their units take turns, which stays as it is
    /// wherever a part is found later.
    ///
    /// # Panics
    /// If there is no part or more than [`VssdParts::PARTS_MAX`], or `order` does not name each once.
    pub fn new(units: &[u16], order: &[usize]) -> VssdParts {
        assert!((1..=VssdParts::PARTS_MAX).contains(&units.len()), "I-V26: a vSSD has parts");
        let mut named: Vec<usize> = order.to_vec();
        named.sort_unstable();
        assert!(named.into_iter().eq(0..units.len()), "I-V26: each part has its turn");
        let mut parts = VssdParts {
            units: Vec::new(),
            names: units.iter().map(|_| Vec::new()).collect(),
            joins: Vec::new(),
        };
        for round in 0..units.iter().copied().max().unwrap_or(0) {
            for &part in order.iter().filter(|part| round < units[**part]) {
                parts.names[part].push(UnitIndex(parts.units.len() as u16));
                parts.units.push((part as u8, UnitIndex(round)));
            }
        }
        parts
    }

    /// Whether no operation of all parts waits for one of them.
    pub fn is_idle(&self) -> bool {
        self.joins.is_empty()
    }

    /// Of each unit, its part and its number there.
    pub fn units(&self) -> impl Iterator<Item = (usize, UnitIndex)> + '_ {
        self.units.iter().map(|(part, unit)| (usize::from(*part), *unit))
    }

    /// The space over these parts, in the order in which `units` had them.
    ///
    /// # Panics
    /// If they are others than were said.
    pub fn space<'a, S: EraseBlockPart + 'a>(
        &'a mut self,
        spaces: impl Iterator<Item = S>,
    ) -> JoinedSpace<'a, S> {
        let spaces: SmallVec<[S; 4]> = spaces.collect();
        assert_eq!(spaces.len(), self.names.len(), "I-V26: all parts are there");
        JoinedSpace { parts: self, spaces }
    }

    /// A part answered: what its holder is to hear, if all parts have that were asked.
    pub fn answered(&mut self, part: usize, mut completion: SpaceCompletion) -> Option<SpaceCompletion> {
        completion.result =
            completion.result.map_err(|error| error.of_unit(|unit| self.names[part][usize::from(unit)].0));
        let waits = |join: &Join| join.token == completion.token && join.waits_for & 1 << part != 0;
        let Some(at) = self.joins.iter().position(waits) else { return Some(completion) };
        let join = &mut self.joins[at];
        join.waits_for &= !(1 << part);
        join.result = match (join.result, completion.result) {
            (Err(SpaceError::NotErased { blocks }), Err(SpaceError::NotErased { blocks: more })) => {
                Err(SpaceError::NotErased { blocks: blocks + more })
            }
            (before, now) => before.and(now),
        };
        let is_over = join.waits_for == 0 || mutant!("vssd: one part answers for all");
        is_over.then(|| SpaceCompletion { result: self.joins.swap_remove(at).result, ..completion })
    }
}

/// See the module. Lent for a call.
pub struct JoinedSpace<'a, S: EraseBlockPart> {
    parts: &'a mut VssdParts,
    spaces: SmallVec<[S; 4]>,
}

impl<S: EraseBlockPart> JoinedSpace<'_, S> {
    fn at(&self, unit: UnitIndex) -> (usize, UnitIndex) {
        let (part, unit) = self.parts.units[usize::from(unit.0)];
        (usize::from(part), unit)
    }

    /// The part of a block, and what the block is called there.
    fn within(&self, block: LogicalBlock) -> (&S, LogicalBlock) {
        let (part, unit) = self.at(block.unit);
        (&self.spaces[part], LogicalBlock { unit, ..block })
    }

    /// See [`JoinedSpace::within`].
    fn within_mut(&mut self, block: LogicalBlock) -> (&mut S, LogicalBlock) {
        let (part, unit) = self.at(block.unit);
        (&mut self.spaces[part], LogicalBlock { unit, ..block })
    }

    /// All parts are asked for something that is answered once.
    fn join(&mut self, token: SpaceToken, ask: impl Fn(&mut S)) {
        let waits_for = u64::MAX >> (VssdParts::PARTS_MAX - self.spaces.len());
        self.parts.joins.push(Join { token, waits_for, result: Ok(()) });
        self.spaces.iter_mut().for_each(ask);
    }

    fn named(&self, part: usize) -> impl Fn(u16) -> u16 + '_ {
        move |unit| self.parts.names[part][usize::from(unit)].0
    }
}

impl<S: EraseBlockPart> EraseBlockSpace for JoinedSpace<'_, S> {
    fn shape(&self) -> &BlockShape {
        // What nothing but a flush keeps on one part is not kept.
        let cached = self.spaces.iter().map(EraseBlockSpace::shape).find(|shape| shape.volatile_cache);
        cached.unwrap_or_else(|| self.spaces[0].shape())
    }
    fn unit_count(&self) -> u16 {
        self.parts.units.len() as u16
    }
    fn blocks_of_unit(&self, unit: UnitIndex) -> u32 {
        let (part, unit) = self.at(unit);
        self.spaces[part].blocks_of_unit(unit)
    }
    fn is_read_only(&self) -> bool {
        self.spaces.iter().any(S::is_read_only)
    }
    fn free_blocks(&self, unit: UnitIndex) -> u32 {
        if self.is_read_only() {
            return 0;
        }
        let (part, unit) = self.at(unit);
        self.spaces[part].free_blocks(unit)
    }
    fn free_changes(&self) -> Option<u64> {
        self.spaces.iter().map(S::free_changes).sum()
    }
    fn make_room(&mut self, unit: UnitIndex) -> bool {
        let (part, unit) = self.at(unit);
        self.spaces[part].make_room(unit)
    }
    fn work(&self) -> SpaceWork {
        let works = self.spaces.iter().map(S::work);
        works.fold(SpaceWork::default(), |sum, one| SpaceWork {
            appended_ius: sum.appended_ius + one.appended_ius,
            erases: sum.erases + one.erases,
        })
    }
    fn allocate_described(
        &mut self,
        unit: UnitIndex,
        purpose: Purpose,
        description: &[u8],
    ) -> Result<LogicalBlock, SpaceError> {
        if self.is_read_only() {
            return Err(SpaceError::ReadOnly);
        }
        let (part, within) = self.at(unit);
        // Sequences rise from part to part, too: holders compare them.
        let next = self.spaces.iter().map(S::next_allocation).max().unwrap_or(0);
        let space = &mut self.spaces[part];
        if !mutant!("vssd: each part counts its allocations by itself") {
            space.skip_allocations(next);
        }
        match space.allocate_described(within, purpose, description) {
            Ok(block) => Ok(LogicalBlock { unit, ..block }),
            Err(error) => Err(error.of_unit(self.named(part))),
        }
    }
    fn read_description(&mut self, token: SpaceToken, block: LogicalBlock, destination: BufferMut) {
        let (space, block) = self.within_mut(block);
        space.read_description(token, block, destination);
    }
    fn nonce(&self, block: LogicalBlock) -> Option<[u8; 8]> {
        let (space, block) = self.within(block);
        space.nonce(block)
    }
    fn erases(&self, block: LogicalBlock) -> Option<u32> {
        let (space, block) = self.within(block);
        space.erases(block)
    }
    fn is_erased(&self, block: LogicalBlock) -> bool {
        let (space, block) = self.within(block);
        space.is_erased(block)
    }
    fn append(
        &mut self,
        token: SpaceToken,
        block: LogicalBlock,
        parts: PayloadParts,
        oob: BufferMut,
        class: IoClass,
    ) {
        let (space, block) = self.within_mut(block);
        space.append(token, block, parts, oob, class);
    }
    fn copies_within_dies(&self) -> bool {
        self.spaces.iter().any(S::copies_within_dies)
    }
    fn append_copy(
        &mut self,
        token: SpaceToken,
        source: BlockPages,
        block: LogicalBlock,
        oob: BufferMut,
        class: IoClass,
    ) -> Result<(), BufferMut> {
        assert_eq!(source.block.unit, block.unit, "a copy within a die stays on its unit (I-V24)");
        let (space, block) = self.within_mut(block);
        let source = BlockPages { block: LogicalBlock { unit: block.unit, ..source.block }, ..source };
        space.append_copy(token, source, block, oob, class)
    }
    fn begun_pages(&self, block: LogicalBlock) -> u32 {
        let (space, block) = self.within(block);
        space.begun_pages(block)
    }
    fn withdraw(&mut self, block: LogicalBlock, first_page: u32) {
        let (space, block) = self.within_mut(block);
        space.withdraw(block, first_page);
    }
    fn read(
        &mut self,
        token: SpaceToken,
        run: BlockRun,
        destination: BufferMut,
        oob: Option<BufferMut>,
        class: IoClass,
    ) {
        let (space, block) = self.within_mut(run.block);
        space.read(token, BlockRun { block, ..run }, destination, oob, class);
    }
    fn read_oob(
        &mut self,
        token: SpaceToken,
        block: LogicalBlock,
        first_page: u32,
        oob: BufferMut,
        class: IoClass,
    ) {
        let (space, block) = self.within_mut(block);
        space.read_oob(token, block, first_page, oob, class);
    }
    fn free(&mut self, block: LogicalBlock) -> Result<(), SpaceError> {
        let (part, unit) = self.at(block.unit);
        let freed = self.spaces[part].free(LogicalBlock { unit, ..block });
        freed.map_err(|error| error.of_unit(self.named(part)))
    }
    fn flush(&mut self, token: SpaceToken) {
        self.join(token, |space| space.flush(token));
    }
    fn sync(&mut self, token: SpaceToken) {
        self.join(token, |space| space.sync(token));
    }
    fn erase_freed(&mut self, token: SpaceToken) {
        self.join(token, |space| space.erase_freed(token));
    }
    fn held_blocks(&self) -> Vec<HeldBlock> {
        let parts = self.spaces.iter().zip(&self.parts.names);
        let held = parts.flat_map(|(space, names)| {
            let named =
                |block: LogicalBlock| LogicalBlock { unit: names[usize::from(block.unit.0)], ..block };
            space.held_blocks().into_iter().map(move |held| HeldBlock { block: named(held.block), ..held })
        });
        held.collect()
    }
}
