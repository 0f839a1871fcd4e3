//! A pool of a divided device that is opened again by itself, while the pools of the other channels go on: after the shard that had it
//! failed. What it said of blocks in memory is forgotten; block states in protected memory say what there is, as after the death of
//! the process.

use crate::core::Core;
use crate::part::PoolPart;
use crate::pool::Pool;
use crate::states::cells::ChannelCells;
use crate::states::{BlockStates, StateTable};
use crate::{OpenError, PoolConfig};
use diecut_media::Media;
use diecut_units::ProtectedRegion;

/// What is written down of the channels and vSSDs of a pool, and nothing else of it.
#[derive(Default)]
pub struct PoolRemains {
    channels: Vec<(u16, ChannelCells)>,
    /// Entries of vSSDs, by place.
    slots: Vec<(usize, ProtectedRegion)>,
}

impl PoolRemains {
    /// What is written down of a pool; it forgets everything else. Nothing, if it has no table of its own: it never owned a channel.
    pub fn of(pool: Pool) -> PoolRemains {
        let BlockStates::Protected(mut table) = pool.core.states else { return PoolRemains::default() };
        let channels = (0..pool.core.geometry.channels).filter(|channel| table.holds_channel(*channel));
        let channels: Vec<u16> = channels.collect();
        let slots = table.held_slots();
        let cells = table.divide();
        PoolRemains {
            channels: channels.into_iter().map(|channel| (channel, cells.take_channel(channel))).collect(),
            slots: slots.into_iter().map(|slot| (slot, cells.take_slot(slot))).collect(),
        }
    }

    /// Adds what is written down of channels that were on their way to the pool.
    pub fn add(&mut self, part: PoolPart) {
        let (channels, slots) = part.into_cells();
        self.channels.extend(channels);
        self.slots.extend(slots);
    }

    /// Adds what is left of another pool.
    pub fn merge(&mut self, other: PoolRemains) {
        self.channels.extend(other.channels);
        self.slots.extend(other.slots);
    }

    /// Its channels, in order.
    pub fn channels(&self) -> Vec<u16> {
        let mut channels: Vec<u16> = self.channels.iter().map(|(channel, _)| *channel).collect();
        channels.sort_unstable();
        channels
    }

    /// Opens a pool over it. `media` is the part of the device that has its channels.
    ///
    /// # Errors
    /// Says what is wrong with the block states; the pool is of no use then.
    pub fn open<M: Media + ?Sized>(self, media: &M, config: PoolConfig) -> Result<Pool, OpenError> {
        let mut pool = Pool::create(media, config);
        let mut table = StateTable::nothing(&pool.core.geometry, &pool.core.sizes());
        for (channel, cells) in self.channels {
            table.divide().put_channel(channel, cells);
        }
        for (slot, region) in self.slots {
            table.divide().put_slot(slot, region);
        }
        exclude_others(&mut pool.core, &table);
        pool.go_on_with(table, None, false)?;
        Ok(pool)
    }
}

/// Whoever keeps account of all channels knows just these exchanges in the pool of some of them.
pub fn account_for_exchanges(pool: &mut Pool, channels: &[u16], exchanges: &[[u32; 2]]) {
    let geometry = pool.core.geometry;
    let lies = |die: u32| channels.contains(&geometry.die_at(die).channel.0);
    pool.wear.elsewhere.retain(|dies| !dies.iter().any(|&die| lies(die)));
    pool.wear.elsewhere.extend(exchanges);
}

/// Blocks of channels that the table says nothing of are other pools'.
fn exclude_others(core: &mut Core, table: &StateTable) {
    for (number, die) in core.geometry.all_dies().enumerate() {
        if !table.holds_channel(die.channel.0) {
            core.blocks.exclude_die(number as u32);
        }
    }
}
