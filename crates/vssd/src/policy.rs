//! When the content of two channels, or of two dies, changes places: pure functions of what is known about them.
//!
//! Wear belongs to silicon, the rate to content. A swap is due when the content of some place erased more than the threshold
//! since it moved last (FACTS.md 1.7). Two rules say what is swapped:
//!
//! - [`SwapRule::Quiet`], ours: the content that passed the threshold moves to one of the least worn of the quiet places; if a
//!   place that is worn more still holds hot content, that one goes first. Content that turns hot on a place that is a threshold
//!   above the least worn one moves after a quarter of a threshold already. Nothing moves if the difference in wear is less than half
//!   of the threshold, or if the content has gone cold: a swap that gains nothing only wears.
//! - [`SwapRule::Literal`], the paper's words: the most worn place and the one with the lowest rate. It keeps taking the most
//!   worn one after its content has gone cold, which is what makes it waste swaps.
//!
//! Worked example, threshold 100, one writer on place 0 of 4: at wear (100, 0, 0, 0) its content goes to place 1, at (100, 100, 0,
//! 0) to 2, at (100, 100, 100, 0) to 3, at (100, 100, 100, 100) nowhere, at (100, 100, 100, 150) to 0: the least worn first, and
//! after K rounds max/avg is at most 1 + 1/K.

use diecut_units::Geometry;

/// Which places are swapped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SwapRule {
    /// Hot content goes to the least worn of the quiet places.
    #[default]
    Quiet,
    /// The most worn place with the one of the lowest rate.
    Literal,
}

impl SwapRule {
    /// Whether a swap clears the counters of all contents, as the paper has it, not only of those that moved.
    pub const fn clears_all(self) -> bool {
        matches!(self, SwapRule::Literal)
    }
}

/// What is known of one channel or die.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlaceView {
    /// Erases of the silicon since it was made.
    pub wear: u64,
    /// Moving average of its content's erases, on any scale that all places share; 0 if nothing lies there.
    pub rate: u64,
    /// Erases of its content since that moved here.
    pub volume: u64,
    /// Whether it can take part: it answers, its reserve is not used up, nothing of it is being exchanged.
    pub is_able: bool,
}

/// The erases of a place's content, since it moved, that make a swap due (FACTS.md 1.6 and 1.7): N/delta swaps within alpha of
/// the life are enough, so each of N places sees 1/delta of them, and gamma = blocks x endurance x alpha x delta. Delta and
/// alpha are in thousandths. 4,276 blocks, 3,000 cycles, 0.1 and 0.9: 1,154,520 erases, 270 of each block.
pub const fn threshold_erases(
    blocks: u64,
    endurance_cycles: u64,
    delta_permille: u64,
    alpha_permille: u64,
) -> u64 {
    (blocks as u128 * endurance_cycles as u128 * delta_permille as u128 * alpha_permille as u128 / 1_000_000)
        as u64
}

/// A threshold that follows the life of the device, in erases of each block: what keeps max/avg within 1 + delta from a quarter of
/// the life on. Before that it comes down from an eighth of the life, for there is time to even out; then it grows with the
/// average wear as delta allows, and shrinks towards the end, when what is left to even out is lost (DESIGN.md 8.8). Never less than 16
/// cycles, for a swap costs one of both places. Delta is in thousandths. With 3,000 cycles and delta 0.1: 375 when new, 71 at
/// 750 cycles, 142 at 1,500, 100 at 2,400 and 16 from 2,900 on.
pub const fn threshold_by_age(average_cycles: u64, endurance_cycles: u64, delta_permille: u64) -> u64 {
    const LEAST_CYCLES: u64 = 16;
    // A part below delta: content lands on places that are a little above the least worn one.
    let by_wear = average_cycles * delta_permille / 1050;
    let least = endurance_cycles * delta_permille / 4200;
    let young = (endurance_cycles / 4).saturating_sub(average_cycles) / 2;
    let by_rest = endurance_cycles.saturating_sub(average_cycles) / 6;
    let mut threshold = by_wear;
    if threshold < least {
        threshold = least;
    }
    if threshold < young {
        threshold = young;
    }
    if threshold > by_rest {
        threshold = by_rest;
    }
    if threshold > LEAST_CYCLES { threshold } else { LEAST_CYCLES }
}

/// The swap that is due, if one is: where the content that wears lies, and where it goes. `can_swap` says whether two places
/// can be exchanged. A threshold of 0: never.
pub fn choose_swap(
    places: &[PlaceView],
    threshold_erases: u64,
    rule: SwapRule,
    can_swap: impl Fn(usize, usize) -> bool,
) -> Option<(usize, usize)> {
    let able = || (0..places.len()).filter(|&at| places[at].is_able);
    if threshold_erases == 0 {
        return None;
    }
    let is_over = |at: &usize| places[*at].volume > threshold_erases;
    if rule == SwapRule::Literal {
        able().find(is_over)?;
        let source = able().max_by_key(|&at| (places[at].wear, std::cmp::Reverse(at)))?;
        let others = able().filter(|&at| at != source && can_swap(source, at));
        let target = others.min_by_key(|&at| (places[at].rate, places[at].wear, at))?;
        return Some((source, target));
    }
    // Content that turned hot where much was worn before it does not wait for a whole threshold.
    let least = able().map(|at| places[at].wear).min()?;
    let is_early = |at: &usize| {
        places[*at].volume > threshold_erases / EARLY_PART && places[*at].wear - least >= threshold_erases
    };
    // What has gone cold gains nothing from moving.
    let hottest = able().map(|at| places[at].rate).max()?.max(1);
    let is_warm = |at: &usize| places[*at].rate.saturating_mul(4) >= hottest;
    let mut tripped: Vec<usize> = able().filter(|at| (is_over(at) || is_early(at)) && is_warm(at)).collect();
    tripped.sort_by_key(|&at| std::cmp::Reverse((places[at].rate, places[at].volume, at)));
    tripped.into_iter().find_map(|tripped| {
        // Hot: at least half as hot as what passed the threshold.
        let hot = |at: usize| places[at].rate.saturating_mul(2) >= places[tripped].rate.max(1);
        let worn = able().filter(|&at| hot(at) && places[at].wear > places[tripped].wear);
        let source = worn.max_by_key(|&at| (places[at].wear, std::cmp::Reverse(at))).unwrap_or(tripped);
        best_target(places, source, threshold_erases, &can_swap).or_else(|| {
            let again = (source != tripped).then_some(tripped)?;
            best_target(places, again, threshold_erases, &can_swap)
        })
    })
}

/// A content on a place that is a threshold above the least worn one moves after this part of a threshold.
const EARLY_PART: u64 = 4;

/// The least worn of the places that are quiet beside a source, if that gains something.
fn best_target(
    places: &[PlaceView],
    source: usize,
    threshold_erases: u64,
    can_swap: &impl Fn(usize, usize) -> bool,
) -> Option<(usize, usize)> {
    let from = places[source];
    let gains = |at: usize| {
        let to = places[at];
        to.is_able
            && to.rate.saturating_mul(2) <= from.rate
            && from.wear.saturating_sub(to.wear) >= threshold_erases / 2
    };
    let quiet = (0..places.len()).filter(|&at| at != source && gains(at) && can_swap(source, at));
    let quiet: Vec<usize> = quiet.collect();
    let least = quiet.iter().map(|&at| places[at].wear).min()?;
    // What lies on the least worn place is what was written longest ago. Writers that take turns come back to it next, and would
    // find it on the most worn one: among places that are worn about as little, one is drawn.
    let alike = |at: &&usize| places[**at].wear - least <= threshold_erases / 16;
    let drawn = from.wear.wrapping_add(from.volume).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33;
    let alike: Vec<&usize> = quiet.iter().filter(alike).collect();
    Some((source, *alike[(drawn % alike.len() as u64) as usize]))
}

/// How the dies of two channels are paired (FACTS.md 1.9: a channel swap takes the dies along): the hottest content of the source
/// goes to the least worn die of the target. Pairs of positions within the channels.
pub fn pair_dies(source: &[PlaceView], target: &[PlaceView]) -> Vec<(usize, usize)> {
    let order = |places: &[PlaceView], key: fn(&PlaceView) -> u64, hot_first: bool| {
        let mut order: Vec<usize> = (0..places.len()).collect();
        order.sort_by_key(|&at| {
            let key = key(&places[at]);
            (if hot_first { u64::MAX - key } else { key }, at)
        });
        order
    };
    order(source, |place| place.rate, true)
        .into_iter()
        .zip(order(target, |place| place.wear, false))
        .collect()
}

/// How dies lie on channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DieLayout {
    /// Dies of a channel.
    pub dies_per_channel: usize,
    /// Erase blocks of a die.
    pub blocks_per_die: u64,
}

impl DieLayout {
    /// That of a device.
    pub fn of(geometry: &Geometry) -> DieLayout {
        DieLayout {
            dies_per_channel: geometry.dies_per_channel.into(),
            blocks_per_die: geometry.erase_blocks_per_die().into(),
        }
    }

    /// The channel of a die.
    pub const fn channel_of(&self, die: usize) -> usize {
        die / self.dies_per_channel
    }

    /// Erases of an erase block on average; `erases` are those of each die.
    pub fn average_cycles(&self, erases: impl Iterator<Item = u64>) -> u64 {
        let (dies, all) = erases.fold((0, 0), |(dies, all), die| (dies + 1, all + die));
        all / (self.blocks_per_die * dies).max(1)
    }

    /// What is known of each channel: the sum of its dies; able if all of them are.
    pub fn channels(&self, dies: &[PlaceView]) -> Vec<PlaceView> {
        let sum = |dies: &[PlaceView]| PlaceView {
            wear: dies.iter().map(|die| die.wear).sum(),
            rate: dies.iter().map(|die| die.rate).sum(),
            volume: dies.iter().map(|die| die.volume).sum(),
            is_able: dies.iter().all(|die| die.is_able),
        };
        dies.chunks(self.dies_per_channel).map(sum).collect()
    }
}

/// Pairs of dies that change places.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Chosen {
    /// All dies of two channels.
    Channels(Vec<[u32; 2]>),
    /// Two dies.
    Dies([u32; 2]),
}

impl Chosen {
    /// The pairs, in the order in which they are exchanged.
    pub fn into_dies(self) -> Vec<[u32; 2]> {
        match self {
            Chosen::Channels(pairs) => pairs,
            Chosen::Dies(pair) => vec![pair],
        }
    }
}

/// After how many erases wear is looked at again: often enough that a swap is late by a small part of the least threshold.
pub fn look_after_erases(thresholds_erases: [u64; 2]) -> Option<u64> {
    let least = thresholds_erases.into_iter().filter(|threshold| *threshold > 0).min()?;
    Some(least.div_ceil(64))
}

/// What is exchanged now, if anything is: all of the server's decision, by the thresholds in force of a channel and of a die (see
/// [`crate::WearConfig::thresholds`]). `are_apart` says whether no vSSD lies on both channels;
/// `is_broken` whether a channel is held by vSSDs none of which holds whole channels; `can_exchange` whether two dies can be.
pub fn choose_exchanges(
    rule: SwapRule,
    thresholds_erases: [u64; 2],
    layout: &DieLayout,
    dies: &[PlaceView],
    are_apart: impl Fn(usize, usize) -> bool,
    is_broken: impl Fn(usize) -> bool,
    can_exchange: impl Fn(usize, usize) -> bool,
) -> Option<Chosen> {
    let per_channel = layout.dies_per_channel;
    let [of_channel, of_die] = thresholds_erases;
    let channels = layout.channels(dies);
    if let Some((source, target)) = choose_swap(&channels, of_channel, rule, are_apart) {
        let dies_of = |channel: usize| &dies[channel * per_channel..(channel + 1) * per_channel];
        let number = |channel: usize, at: usize| (channel * per_channel + at) as u32;
        let pairs = pair_dies(dies_of(source), dies_of(target)).into_iter();
        return Some(Chosen::Channels(
            pairs.map(|(one, other)| [number(source, one), number(target, other)]).collect(),
        ));
    }
    // Between dies of channels that are broken up: whole ones stay whole.
    let mut single = dies.to_vec();
    for (at, die) in single.iter_mut().enumerate() {
        die.is_able &= is_broken(layout.channel_of(at));
    }
    let (source, target) = choose_swap(&single, of_die, rule, can_exchange)?;
    Some(Chosen::Dies([source as u32, target as u32]))
}

#[cfg(test)]
mod test {
    use super::*;

    fn place(wear: u64, rate: u64, volume: u64) -> PlaceView {
        PlaceView { wear, rate, volume, is_able: true }
    }
    fn swap(places: &[PlaceView], rule: SwapRule) -> Option<(usize, usize)> {
        choose_swap(places, 100, rule, |_, _| true)
    }

    #[test]
    fn the_threshold_is_that_of_the_paper() {
        // M/f = 20.8 MiB/s for 9.84 days (250 weeks, alpha 0.9, 160 swaps) of 1 TiB: 16.9 TiB, 270 times a channel of 64 GiB.
        assert_eq!(threshold_erases(4276, 3000, 100, 900), 1_154_520);
        assert_eq!(threshold_erases(16 * 4276, 3000, 100, 900) / (16 * 4276), 270);
    }

    #[test]
    fn nothing_moves_below_the_threshold_or_without_gain() {
        assert_eq!(swap(&[place(99, 9, 100), place(0, 0, 0)], SwapRule::Quiet), None);
        assert_eq!(swap(&[place(101, 9, 101), place(0, 0, 0)], SwapRule::Quiet), Some((0, 1)));
        assert_eq!(swap(&[place(101, 9, 101), place(60, 0, 0)], SwapRule::Quiet), None, "not worth it");
        assert_eq!(swap(&[place(900, 9, 101), place(800, 8, 99)], SwapRule::Quiet), None, "both are hot");
        assert_eq!(choose_swap(&[place(900, 9, 900), place(0, 0, 0)], 0, SwapRule::Quiet, |_, _| true), None);
    }

    #[test]
    fn what_turns_hot_on_a_worn_place_moves_early_and_what_went_cold_stays() {
        assert_eq!(swap(&[place(500, 9, 26), place(0, 0, 0)], SwapRule::Quiet), Some((0, 1)));
        assert_eq!(swap(&[place(500, 9, 25), place(0, 0, 0)], SwapRule::Quiet), None);
        // Cold content that passed the threshold once, and cannot gain, keeps nobody else from moving.
        let places = [place(300, 1, 900), place(300, 9, 101), place(0, 0, 0)];
        assert_eq!(swap(&places, SwapRule::Quiet), Some((1, 2)));
        let places = [place(0, 9, 900), place(300, 8, 101), place(0, 0, 0)];
        assert_eq!(swap(&places, SwapRule::Quiet), Some((1, 2)));
        let places = [place(300, 1, 900), place(10, 9, 50), place(0, 0, 0)];
        assert_eq!(swap(&places, SwapRule::Quiet), None);
    }

    #[test]
    fn thresholds_follow_the_age() {
        let at = |cycles| threshold_by_age(cycles, 3000, 100);
        assert_eq!([0, 750, 1500, 2400, 2904, 9000].map(at), [375, 71, 142, 100, 16, 16]);
    }

    #[test]
    fn the_least_worn_quiet_place_is_taken_and_the_rules_differ() {
        // Channel 1 is the most worn, and has long gone cold; the writer is on 0.
        let places =
            [place(300, 9, 101), place(900, 0, 0), place(200, 0, 0), place(100, 0, 0), place(50, 8, 60)];
        assert_eq!(swap(&places, SwapRule::Quiet), Some((0, 3)));
        assert_eq!(swap(&places, SwapRule::Literal), Some((1, 3)), "the paper's words move what is cold");
        // One that is worn more and still hot goes first.
        let places = [place(300, 9, 101), place(900, 6, 90), place(100, 0, 0)];
        assert_eq!(swap(&places, SwapRule::Quiet), Some((1, 2)));
        // A dead channel takes no part, and what cannot be exchanged is not.
        let mut places = [place(300, 9, 101), place(100, 0, 0), place(0, 0, 0)];
        places[2].is_able = false;
        assert_eq!(swap(&places, SwapRule::Quiet), Some((0, 1)));
        assert_eq!(choose_swap(&places, 100, SwapRule::Quiet, |_, to| to != 1), None);
        places[0].is_able = false;
        assert_eq!(swap(&places, SwapRule::Quiet), None);
    }

    #[test]
    fn hot_dies_meet_the_least_worn() {
        let source = [place(9, 1, 0), place(9, 5, 0), place(9, 3, 0)];
        let target = [place(7, 0, 0), place(8, 0, 0), place(6, 0, 0)];
        assert_eq!(pair_dies(&source, &target), [(1, 2), (2, 0), (0, 1)]);
    }

    /// The bound of FACTS.md 1.6 under the adversary: imbalance at most 1 + threshold over average wear.
    #[test]
    fn one_writer_wears_all_places_evenly() {
        let mut places = [PlaceView { is_able: true, ..PlaceView::default() }; 16];
        let mut at = 0;
        places[0].rate = 256;
        for step in 0..160_000u64 {
            places[at].wear += 1;
            places[at].volume += 1;
            if let Some((source, target)) = swap(&places, SwapRule::Quiet) {
                assert_eq!(source, at);
                (places[source].rate, places[target].rate) = (places[target].rate, places[source].rate);
                (places[source].volume, places[target].volume) = (0, 0);
                at = target;
            }
            let all: u64 = places.iter().map(|place| place.wear).sum();
            let most = places.iter().map(|place| place.wear).max().unwrap();
            // A place can be 1.5 thresholds above the least worn one when its content moves away.
            assert!(16 * most <= all + 16 * 150 + 16, "step {step}: {most} of {all}");
        }
    }
}
