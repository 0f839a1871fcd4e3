//! What a shard that failed keeps until it opens again ([`crate::remains`]).

use crate::peer::Moved;
use diecut_media::Divide;
use diecut_units::mark;
use diecut_vssd::PoolRemains;

/// See the module.
pub(crate) struct Ruins {
    pub pool: PoolRemains,
    /// The order to open, if it came.
    pub again: Option<u64>,
}

impl Ruins {
    /// Takes channels that were on their way to the shard when it failed.
    pub fn take<M: Divide>(&mut self, moved: Moved, media: &mut M) {
        mark!("shard: channels on their way to a shard that failed");
        for part in moved.0 {
            self.pool.add(part.unpack(media));
        }
    }
}
