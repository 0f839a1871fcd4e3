//! Lives of a shard: what is left of one that failed, and the next one over that ([`crate::remains`] says how it opens).

use crate::ShardConfig;
use crate::opening::Opening;
use crate::peer::{Message, ShardMessage};
use crate::ruins::Ruins;
use crate::seat::{Seat, ShardIndex};
use crate::shard::Shard;
use diecut_media::Divide;
use diecut_units::Time;
use diecut_vssd::PoolRemains;

/// What is left of a shard that failed; see the module.
pub struct Remains<M: Divide> {
    media: M,
    pool: PoolRemains,
    seat: Seat,
    /// What it had to tell and did not hand out.
    told: Vec<(ShardIndex, ShardMessage)>,
}

impl<M: Divide> Shard<M> {
    /// What is left of it, after it failed; the rest is forgotten. `told`: what it had handed out for other shards, and was not sent.
    ///
    /// # Panics
    /// If it is the first one, whose account of the others ends with it.
    pub fn into_remains(self, mut told: Vec<(ShardIndex, ShardMessage)>) -> Remains<M> {
        let placement = self.here.placement;
        assert!(placement.is_member(), "I-S35: the first shard begins anew with all others");
        let seat = Seat { index: placement.index, shards: placement.shards };
        let flash = self.here.plane.flash;
        let mut devices = flash.devices.into_vec();
        assert_eq!(devices.len(), 1, "I-S37: a device with protected memory is alone");
        let own = devices.remove(0);
        let (mut media, duties) = (own.media, placement.duties);
        told.extend(placement.outgoing);
        let done = flash
            .foreign
            .into_iter()
            .map(|(device, done)| (ShardIndex(0), ShardMessage(Message::MediaDone(device, done))));
        told.extend(done);
        let pool = PoolRemains::of(own.pool);
        let mut ruins = Ruins { pool, again: None };
        if let Some(before) = duties.ruins {
            ruins.pool.merge(before.pool);
        }
        let waiting = duties.waiting.into_iter().filter_map(|(_, order)| order.into_moved());
        for moved in waiting.chain(duties.left.map(|group| group.moved)) {
            ruins.take(moved, &mut media);
        }
        Remains { media, pool: ruins.pool, seat, told }
    }

    /// The next life of a shard that failed, while the others of its server go on. Commands of the one before may be under way on its
    /// part of the device. It serves when the first shard had it open.
    pub fn again(remains: Remains<M>, config: ShardConfig, now: Time) -> Shard<M> {
        let Remains { media, pool, seat, told } = remains;
        let panics = config.panics.clone();
        let mut shard = Shard::seated(media, config, seat, now);
        shard.opening = Opening::of_ruins();
        shard.here.placement.duties.ruins = Some(Ruins { pool, again: None });
        shard.here.placement.outgoing = told;
        shard.here.placement.outgoing.push((ShardIndex(0), ShardMessage(Message::Fell(panics))));
        shard
    }
}
