//! How commands are handed to dies, and what they cost.

use crate::PoolConfig;
use crate::dies::history::WorkSize;
use crate::dies::ops::{Kind, Op};
use diecut_media::{DieTimes, Media};
use diecut_units::IU_SIZE_BYTES;

/// How commands are handed to dies, and what they cost.
#[derive(Clone, Copy)]
pub(crate) struct QueueSettings {
    pub die_window: u16,
    pub program_window: u16,
    pub die_queue_depth: u16,
    pub rate_burst_ns: u64,
    /// Scale of shares.
    pub costs: DieTimes,
    pub blocks_per_die: u32,
    ius_per_page: u32,
    pub program_unit_pages: u32,
    /// Reads interrupt erases.
    pub suspends: bool,
}

impl QueueSettings {
    /// Those of a pool on a medium, where commands take these times.
    pub fn new<M: Media + ?Sized>(config: &PoolConfig, costs: DieTimes, media: &M) -> QueueSettings {
        QueueSettings {
            die_window: config.die_window,
            program_window: config.program_window,
            die_queue_depth: config.die_queue_depth,
            rate_burst_ns: config.rate_burst_ns,
            costs,
            blocks_per_die: media.geometry().erase_blocks_per_die(),
            ius_per_page: media.geometry().ius_per_page(),
            program_unit_pages: media.capabilities().program_unit_pages,
            suspends: media.capabilities().suspends,
        }
    }

    /// Pages that an operation is about.
    #[inline]
    pub fn pages_of(&self, op: &Op) -> u64 {
        u64::from(op.end_page.saturating_sub(op.first_iu / self.ius_per_page))
    }

    /// What of an operation the array and the bus have.
    #[inline]
    pub fn size_of(&self, op: &Op) -> WorkSize {
        let pages = self.pages_of(op) as u32;
        let ius = match op.kind {
            Kind::Read | Kind::HeaderRead => (op.bytes / IU_SIZE_BYTES as u64) as u32,
            Kind::AppendCopy => 0,
            _ => pages * self.ius_per_page,
        };
        WorkSize { pages, ius }
    }
}
