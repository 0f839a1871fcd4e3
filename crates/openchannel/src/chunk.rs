//! One chunk: how far it is written, and what is under way for it.

use crate::contract::{ChunkError, ChunkRefusal, ChunkState, ErrorRate};
use crate::shape::ChunkShape;
use diecut_units::mutant;
use diecut_vssd::space::LogicalBlock;

/// See the module.
#[derive(Clone, Debug, Default)]
pub(crate) struct Chunk {
    /// None before its first write.
    pub block: Option<LogicalBlock>,
    pub state: ChunkState,
    /// Which of the lives of all chunks this is; stands in its marks.
    pub generation: u32,
    /// Rows whose writes were taken.
    pub taken_rows: u32,
    /// Rows on flash.
    pub done_rows: u32,
    /// Programs under way, at the space or waiting for another block.
    pub under_way: u32,
    /// Programs that wait for another block: those of a chunk whose first program failed.
    pub failed: Vec<u32>,
    /// Blocks that it had in this life and that failed.
    pub tries: u8,
    /// A reset is not durable yet.
    pub is_resetting: bool,
    /// The worst that is known of this life.
    pub error_rate: ErrorRate,
}

impl Chunk {
    /// Whether it takes a write that begins at a row.
    pub fn check_write(&self, row: u32) -> Result<(), ChunkError> {
        match self.state {
            ChunkState::Offline => Err(ChunkError::Refused(ChunkRefusal::Offline)),
            ChunkState::Free | ChunkState::Open if row == self.taken_rows && !self.is_resetting => Ok(()),
            _ => Err(ChunkError::Refused(ChunkRefusal::OutOfOrder)),
        }
    }

    /// Whether it can be reset.
    pub fn check_reset(&self) -> Result<(), ChunkError> {
        if self.state == ChunkState::Offline {
            return Err(ChunkError::Refused(ChunkRefusal::Offline));
        }
        if self.under_way > 0 || self.is_resetting {
            return Err(ChunkError::Refused(ChunkRefusal::InvalidReset));
        }
        Ok(())
    }

    /// IUs from the first on that can be read: of an open chunk those that no power cut can destroy.
    pub fn readable_ius(&self, shape: &ChunkShape) -> u32 {
        let written = self.done_rows * shape.unit_ius;
        match self.state {
            _ if self.is_resetting => 0,
            ChunkState::Open if mutant!("openchannel: what is at risk can be read") => written,
            ChunkState::Open => written.saturating_sub(shape.cached_ius()),
            ChunkState::Closed => written,
            ChunkState::Free | ChunkState::Offline => 0,
        }
    }

    /// Nothing is in it any more; one that is offline stays so. Gives its block.
    pub fn clear(&mut self) -> Option<LogicalBlock> {
        assert!(
            self.under_way == 0 && self.failed.is_empty(),
            "I-K3: a chunk ends when nothing is under way"
        );
        let state = if self.state == ChunkState::Offline { ChunkState::Offline } else { ChunkState::Free };
        let error_rate = match mutant!("openchannel: an error rate outlives a reset") {
            true => self.error_rate,
            false => ErrorRate::None,
        };
        std::mem::replace(self, Chunk { state, error_rate, ..Chunk::default() }).block
    }
}
