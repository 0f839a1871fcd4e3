//! Blocks that were set aside, for people: each may mean data that is lost.

use crate::{LogicalBlock, VssdId};
use diecut_units::EraseBlockAddress;
use std::fmt;

/// An erase block that is given to nobody, and not read, because what it holds is not certain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quarantined {
    /// The block.
    pub block: EraseBlockAddress,
    /// Who holds it, where that is known.
    pub holder: Option<(VssdId, LogicalBlock)>,
    /// Why.
    pub reason: QuarantineReason,
}

/// Why a block was set aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuarantineReason {
    /// Its entry among the block states is damaged in both slots: it may be held.
    StateDamaged,
    /// How much of it is programmed is not known.
    PagesDamaged,
    /// It carries pages of another block.
    Misdirected,
    /// Pages that were programmed, as its state says, are empty.
    NotProgrammed,
    /// It was set aside at an earlier opening.
    Before,
}

impl fmt::Display for Quarantined {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "erase block {} is set aside: ", self.block)?;
        match self.reason {
            QuarantineReason::StateDamaged => write!(formatter, "its state is damaged, it may hold data")?,
            QuarantineReason::PagesDamaged => write!(formatter, "its count of programmed pages is damaged")?,
            QuarantineReason::Misdirected => write!(formatter, "it carries pages of another block")?,
            QuarantineReason::NotProgrammed => write!(formatter, "pages that were programmed are empty")?,
            QuarantineReason::Before => write!(formatter, "its content contradicted its state before")?,
        }
        if let Some((vssd, LogicalBlock { unit, index })) = self.holder {
            write!(formatter, " (block {index} of unit {} of vSSD {})", unit.0, vssd.0)?;
        }
        Ok(())
    }
}
