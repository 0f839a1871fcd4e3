//! Media divided for the shards of one server, and put together again.

use crate::peer::ShardMessage;
use crate::seat::{Seat, ShardIndex};
use crate::shard::Shard;
use diecut_media::Divide;

/// Divides a medium for the shards of one server: the first one begins with all channels and gives them out.
///
/// # Panics
/// If there is no shard.
pub fn divide<M: Divide>(mut media: M, shards: u16) -> Vec<(Seat, M)> {
    assert!(shards > 0, "a server has at least one shard");
    let seat = |index| Seat { index: ShardIndex(index), shards };
    let members: Vec<(Seat, M)> = (1..shards).map(|index| (seat(index), media.empty_part())).collect();
    [(seat(0), media)].into_iter().chain(members).collect()
}

/// Divides media as [`divide`] does one: what each shard has of each of them, in their order.
///
/// # Panics
/// If there is no shard.
pub fn divide_all<M: Divide>(media: Vec<M>, shards: u16) -> Vec<(Seat, Vec<M>)> {
    let seat = |index| Seat { index: ShardIndex(index), shards };
    let mut all: Vec<(Seat, Vec<M>)> = (0..shards).map(|index| (seat(index), Vec::new())).collect();
    for one in media {
        for ((_, of_shard), (_, part)) in all.iter_mut().zip(divide(one, shards)) {
            of_shard.push(part);
        }
    }
    all
}

/// Gives the whole medium back and forgets everything else: the death of the process, as far as shards know. `under_way` are
/// messages that were not delivered: channels may be among them.
///
/// # Panics
/// If there is no shard.
pub fn gather<M: Divide>(
    shards: impl IntoIterator<Item = Shard<M>>,
    under_way: impl IntoIterator<Item = ShardMessage>,
) -> M {
    gather_media(shards.into_iter().map(Shard::into_media), under_way)
}

/// As [`gather`], of what shards gave back by [`Shard::into_media`], in the order of the shards.
///
/// # Panics
/// If there is no shard.
pub fn gather_media<M: Divide>(
    parts: impl IntoIterator<Item = M>,
    under_way: impl IntoIterator<Item = ShardMessage>,
) -> M {
    let mut parts = parts.into_iter();
    let mut whole = parts.next().expect("I-S5: there is a first shard");
    for message in under_way {
        message.salvage(std::slice::from_mut(&mut whole));
    }
    for mut part in parts {
        for channel in 0..part.geometry().channels {
            if part.owns(channel) {
                whole.take_channel(&mut part, channel);
            }
        }
    }
    whole
}
