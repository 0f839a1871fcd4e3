//! Which stream a write goes to: its handle, in the reclaim group that its host chose or in that with most room; and whether a chosen group has room.

use diecut_log::{Log, MapEntry, PlacementTarget, ReclaimGroup, Stream};
use diecut_units::mutant;

/// The stream of a write that begins now.
#[inline]
pub(crate) fn stream_of(target: PlacementTarget, log: &Log) -> Stream {
    let streams = log.layout().streams;
    let group = if streams.placement().groups == 1 {
        ReclaimGroup::default()
    } else {
        streams.chosen_group(target).unwrap_or_else(|| with_most_room(log))
    };
    streams.of_host(group, target.handle)
}

/// Groups are equally large: the one in which least lives. So no group fills up before the others by writes that choose none.
#[inline(never)]
fn with_most_room(log: &Log) -> ReclaimGroup {
    let groups = (0..log.layout().streams.placement().groups).map(ReclaimGroup);
    groups.min_by_key(|group| log.live_ius(*group)).unwrap_or_default()
}

/// IUs that may live in each group of a store with so many: the cleaner has the same part of each group to itself.
pub(crate) fn group_ius(exported_ius: u64, log: &Log) -> u64 {
    exported_ius / u64::from(log.layout().streams.placement().groups)
}

/// Whether the group that a write chose has room for it, where its IUs lie so far. What lies there already takes no more.
#[inline]
pub(crate) fn has_room(target: PlacementTarget, entries: &[MapEntry], exported_ius: u64, log: &Log) -> bool {
    let Some(group) = log.layout().streams.chosen_group(target) else { return true };
    let is_elsewhere = |entry: &&MapEntry| {
        let place = entry.get();
        !place.is_place() || log.group_of(place) != group
    };
    let more = entries.iter().filter(is_elsewhere).count() as u64;
    let live = log.live_ius(group).unwrap_or(0);
    more == 0
        || live + more <= group_ius(exported_ius, log)
        || mutant!("volume: a reclaim group takes more than it has room for")
}
