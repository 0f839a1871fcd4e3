//! Striping for holders who do not care which unit is which: one erase block of every unit, used as one large block
//! whose program units go round the units, so that all of them work at a time.

use crate::{BlockShape, HeldBlock};
use crate::{
    EraseBlockSpace, IoClass, LogicalBlock, PayloadParts, Purpose, SpaceError, SpaceToken, UnitIndex,
};
use diecut_units::BufferMut;

/// A part of a striped block that lies in one erase block: what one read can ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The erase block.
    pub block: LogicalBlock,
    /// First IU within it.
    pub first_iu: u32,
    /// IUs.
    pub iu_count: u32,
}

/// One erase block of every unit. Program unit `n` lies on member `n % members`: with four units, IUs 0 to 7 of an
/// 8-IU program unit are on unit 0, 8 to 15 on unit 1, and IU 32 is on unit 0 again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StripedBlock {
    blocks: Vec<LogicalBlock>,
    appended_units: u32,
}

impl StripedBlock {
    /// Takes an erase block of every unit.
    ///
    /// # Errors
    /// As [`EraseBlockSpace::allocate`] for the first unit that has none; nothing is held then.
    pub fn allocate<S: EraseBlockSpace + ?Sized>(
        space: &mut S,
        purpose: Purpose,
    ) -> Result<StripedBlock, SpaceError> {
        let mut blocks = Vec::with_capacity(space.unit_count().into());
        for unit in 0..space.unit_count() {
            match space.allocate(UnitIndex(unit), purpose) {
                Ok(block) => blocks.push(block),
                Err(error) => {
                    for block in blocks {
                        space.free(block).expect("I-V8: a block that was taken is freed once");
                    }
                    return Err(error);
                }
            }
        }
        Ok(StripedBlock { blocks, appended_units: 0 })
    }

    /// A striped block as found after a restart: its members in the order of their units, as the holder wrote them down.
    /// What lies behind the first program unit that is missing does not count.
    ///
    /// # Panics
    /// If there is no member.
    pub fn resume(members: &[HeldBlock], shape: &BlockShape) -> StripedBlock {
        let units_of = |held: &HeldBlock| held.written_pages / shape.program_unit_pages;
        let count = members.len() as u32;
        // Member m holds units m, m + count, ..: the first one missing on it.
        let first_missing = members.iter().zip(0..).map(|(held, member)| units_of(held) * count + member);
        let appended_units = first_missing.min().expect("I-V13: a striped block lies on each of its units");
        StripedBlock { blocks: members.iter().map(|held| held.block).collect(), appended_units }
    }

    /// The erase blocks, by unit.
    pub fn members(&self) -> &[LogicalBlock] {
        &self.blocks
    }
    /// IUs it holds when it is full.
    pub fn ius(&self, shape: &BlockShape) -> u32 {
        self.blocks.len() as u32 * shape.ius()
    }
    /// IUs appended so far, completed or not.
    pub fn appended_ius(&self, shape: &BlockShape) -> u32 {
        self.appended_units * shape.program_unit_ius()
    }
    /// Whether nothing can be appended.
    pub fn is_full(&self, shape: &BlockShape) -> bool {
        self.appended_ius(shape) == self.ius(shape)
    }

    /// Appends one program unit and says at which IU it lies. It fails alone: what other members hold still reads.
    ///
    /// # Panics
    /// If the block is full, or the content is not one program unit.
    pub fn append<S: EraseBlockSpace + ?Sized>(
        &mut self,
        space: &mut S,
        token: SpaceToken,
        parts: PayloadParts,
        oob: BufferMut,
        class: IoClass,
    ) -> u32 {
        let shape = *space.shape();
        assert!(!self.is_full(&shape), "append beyond the end of the striped block");
        let ius: u32 = parts.iter().map(|part| part.iu_count()).sum();
        assert_eq!(ius, shape.program_unit_ius(), "one program unit at a time");
        let at = self.appended_ius(&shape);
        let block = self.blocks[self.appended_units as usize % self.blocks.len()];
        self.appended_units += 1;
        space.append(token, block, parts, oob, class);
        at
    }

    /// Where consecutive IUs lie, in order; neighbouring program units of one member are not joined.
    ///
    /// # Panics
    /// If the range reaches beyond the block.
    pub fn extents(
        &self,
        shape: &BlockShape,
        first_iu: u32,
        iu_count: u32,
    ) -> impl Iterator<Item = Extent> + use<'_> {
        assert!(first_iu + iu_count <= self.ius(shape), "beyond the end of the striped block");
        let unit_ius = shape.program_unit_ius();
        let (mut at, end) = (first_iu, first_iu + iu_count);
        std::iter::from_fn(move || {
            if at == end {
                return None;
            }
            let (unit, within) = (at / unit_ius, at % unit_ius);
            let iu_count = (unit_ius - within).min(end - at);
            at += iu_count;
            let (member, own) = (unit as usize % self.blocks.len(), unit / self.blocks.len() as u32);
            Some(Extent { block: self.blocks[member], first_iu: own * unit_ius + within, iu_count })
        })
    }

    /// Gives all members back.
    ///
    /// # Errors
    /// [`SpaceError::NotAllocated`] if the holder freed a member itself; the others are freed.
    pub fn free<S: EraseBlockSpace + ?Sized>(self, space: &mut S) -> Result<(), SpaceError> {
        self.blocks.into_iter().map(|block| space.free(block)).fold(Ok(()), Result::and)
    }
}
