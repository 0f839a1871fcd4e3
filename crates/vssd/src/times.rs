//! What a pool knows of the time that operations waited at its dies.

use crate::dies::history::{DieTimesView, Scale};
use crate::pool::Pool;

impl<'a> DieTimesView<'a> {
    /// That of a pool.
    #[inline]
    pub fn of(pool: &'a mut Pool) -> DieTimesView<'a> {
        let dies_per_channel = pool.core.geometry.dies_per_channel.into();
        let queues = &mut pool.core.queues;
        let scale =
            Scale { costs: queues.settings.costs, program_unit_pages: queues.settings.program_unit_pages };
        DieTimesView { delays: &mut queues.delays, dies: &queues.dies, scale, dies_per_channel }
    }
}
