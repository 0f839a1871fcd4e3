//! When the content of two channels, or of two dies, changes places: pure functions of what is known about them.
//!
//! Wear belongs to silicon, the rate to content. Two rules say what is swapped:
//!
//! - [`SwapRule::Quiet`], ours: content that wears its place faster than most moves when the place is a threshold above the least
//!   worn one that holds quiet content, and changes places with that one. What counts is the wear of places and not what a content
//!   erased since it moved: writers that take turns and wear all places alike by themselves are left alone. What lies on the
//!   least worn place is often what is written next, and would be brought to the most worn one; so it moves on after a sixteenth
//!   of a threshold, and the target is drawn among those that are worn about as little.
//! - [`SwapRule::Literal`], the paper's words (docs/sources.md, when and with whom): when some content erased more than the threshold since it moved last,
//!   the most worn place and the one with the lowest rate. It keeps taking the most worn one after its content has gone cold,
//!   which is what makes it waste swaps.
//!
//! Worked example, threshold 100, one writer on place 0 of 4: at wear (100, 0, 0, 0) its content goes to place 1, at (100, 100, 0,
//! 0) to 2, at (100, 100, 100, 0) to 3, at (100, 100, 100, 100) nowhere, at (100, 100, 100, 200) to one of the others: no place is
//! ever more than a threshold above the least worn one, and after K rounds max/avg is at most 1 + 1/K.

use diecut_spec::Isolation;
use diecut_units::Geometry;

/// Which places are swapped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SwapRule {
    /// Hot content on a worn place goes to the least worn of the quiet places.
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
    /// Long moving average of its content's erases, on any scale that all places share; 0 if nothing lies there.
    pub rate: u64,
    /// What its content erases at present, on the scale of the average.
    pub recent: u64,
    /// Erases of its content since that moved here.
    pub content_erases: u64,
    /// Part of its reserve for blocks that go bad that is used up, in thousandths.
    pub reserve_lost_permille: u64,
    /// Whether it can take part: it answers, its reserve is not used up, nothing of it is being exchanged.
    pub is_able: bool,
}

/// The gamma of FlashBlox (docs/sources.md, wear between channels), in erases: N/delta swaps within alpha of
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

/// How old a device is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceAge {
    /// Erases of an erase block on average.
    pub average_cycles: u64,
    /// Part of the reserve for blocks that go bad that is used up, over all dies, in thousandths.
    pub reserve_lost_permille: u64,
}

impl DeviceAge {
    /// That of a device with these dies.
    pub fn of(layout: &DieLayout, dies: &[PlaceView]) -> DeviceAge {
        let lost: u64 = dies.iter().map(|die| die.reserve_lost_permille).sum();
        DeviceAge {
            average_cycles: layout.average_cycles(dies.iter().map(|die| die.wear)),
            reserve_lost_permille: lost / (dies.len() as u64).max(1),
        }
    }

    /// Whether so many blocks failed that the others will soon: an eighth of the reserve. Where blocks differ as a normal
    /// distribution does, that is a tenth before the end, and one die that fails early is less than that on most devices.
    const fn is_failing(&self) -> bool {
        self.reserve_lost_permille >= 125
    }
}

/// A threshold that follows the age of the device, in erases of each block: what keeps max/avg within 1 + delta from a quarter of
/// the life on, and costs the least life otherwise. Delta is in thousandths.
///
/// - Before a quarter it is what delta allows then: a place that is ahead, and then holds content of average rate, stays ahead.
/// - It grows with the average wear as delta allows.
/// - It comes down to the root of the endurance by nine tenths of it, for what is left to even out when the first place fails is
///   lost, and what blocks bear is known to about a tenth; and as soon as blocks fail. Each round of swaps costs two cycles of every place, so a threshold of T costs 2 / T of all wear and at most T at the end: less than the root of twice the
///   endurance costs more life than it saves.
/// - It is never less than 16 cycles.
///
/// With 3,000 cycles and delta 0.1: 71 until 750 cycles, 142 at 1,500, 216 at 2,268, 54 from 2,592 on.
pub const fn threshold_by_age(age: DeviceAge, endurance_cycles: u64, delta_permille: u64) -> u64 {
    const LEAST_CYCLES: u64 = 16;
    // A part below delta: wear is looked at from time to time only, and a swap itself wears.
    let by_wear = age.average_cycles * delta_permille / 1050;
    let young = endurance_cycles * delta_permille / 4200;
    // By half of what is left: a place that is a threshold ahead is met by the others before that is over.
    let by_rest = (endurance_cycles * 9 / 10).saturating_sub(age.average_cycles) / 2;
    let last = endurance_cycles.isqrt();
    let old = if age.is_failing() || by_rest < last { last } else { by_rest };
    let mut threshold = by_wear;
    if threshold < young {
        threshold = young;
    }
    if threshold > old {
        threshold = old;
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
    if rule == SwapRule::Literal {
        able().find(|&at| places[at].content_erases > threshold_erases)?;
        let source = able().max_by_key(|&at| (places[at].wear, std::cmp::Reverse(at)))?;
        let others = able().filter(|&at| at != source && can_swap(source, at));
        let target = others.min_by_key(|&at| (places[at].rate, places[at].wear, at))?;
        return Some((source, target));
    }
    let present = able().map(|at| places[at].recent).sum();
    let rates = able().map(|at| places[at].rate).sum::<u64>();
    let many = able().count() as u64;
    let mut worn_first: Vec<usize> = able().collect();
    worn_first.sort_by_key(|&at| std::cmp::Reverse((places[at].wear, places[at].rate, at)));
    worn_first.into_iter().find_map(|source| {
        let heat = Hot::of(&places[source], threshold_erases, present, rates, many);
        let quiet = |at: &usize| {
            *at != source && heat.is_quieter(&places[source], &places[*at]) && can_swap(source, *at)
        };
        let quiet: Vec<usize> = if heat.is_any() { able().filter(quiet).collect() } else { Vec::new() };
        let least = quiet.iter().map(|&at| places[at].wear).min()?;
        if places[source].wear.saturating_sub(least) < threshold_erases {
            return None;
        }
        let alike = |at: &&usize| places[**at].wear - least <= threshold_erases / ALIKE_PART;
        let alike: Vec<&usize> = quiet.iter().filter(alike).collect();
        Some((source, *alike[(drawn(&places[source]) % alike.len() as u64) as usize]))
    })
}

/// Places that are above the least worn one by no more than this part of a threshold are worn alike.
const ALIKE_PART: u64 = 16;
/// Content that does much of what is done at present moves after this part of a threshold: a swap costs a cycle of both places,
/// and a threshold is at least 16.
const PRESENT_PART: u64 = 16;
/// Content that is hot by its average is in no hurry, and the average may be wrong for a while: it moves after half a threshold.
const AVERAGE_PART: u64 = 2;

/// In what way content is hot.
struct Hot {
    /// It does a quarter or more of what is done at present. Content that is written a little, often, does not: a swap would
    /// come when it is over.
    at_present: bool,
    /// Its average is at least that of all, and it has not gone cold.
    on_average: bool,
}

impl Hot {
    /// `present` and `rates` are the sums over all places, of which there are `many`.
    fn of(place: &PlaceView, threshold_erases: u64, present: u64, rates: u64, many: u64) -> Hot {
        let after = |part: u64| place.content_erases.saturating_mul(part) > threshold_erases;
        Hot {
            at_present: after(PRESENT_PART) && place.recent > 0 && place.recent.saturating_mul(4) >= present,
            on_average: after(AVERAGE_PART)
                && place.rate > 0
                && place.rate.saturating_mul(many) >= rates
                && place.recent.saturating_mul(4) >= place.rate,
        }
    }

    fn is_any(&self) -> bool {
        self.at_present || self.on_average
    }

    /// Whether the content of another place is quiet beside it: half as much at present, or four fifths on average. Averages
    /// last, so a smaller difference between them is worth a swap: 3 to 2 for a whole life would cost a sixth of it.
    fn is_quieter(&self, hot: &PlaceView, other: &PlaceView) -> bool {
        let at_present = other.recent.saturating_mul(2) <= hot.recent;
        let on_average =
            other.rate.saturating_mul(5) <= hot.rate.saturating_mul(4) && other.recent <= hot.recent;
        (self.at_present && at_present) || (self.on_average && on_average)
    }
}

/// A number that nobody chose, the same for the same history (the mixing step of SplitMix64).
fn drawn(from: &PlaceView) -> u64 {
    let mut mixed = from.wear ^ from.content_erases.rotate_left(32);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// How the dies of two channels are paired (a channel swap takes the dies along: docs/sources.md, when and with whom): the hottest content of the source
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
            recent: dies.iter().map(|die| die.recent).sum(),
            content_erases: dies.iter().map(|die| die.content_erases).sum(),
            reserve_lost_permille: dies.iter().map(|die| die.reserve_lost_permille).sum::<u64>()
                / dies.len() as u64,
            is_able: dies.iter().all(|die| die.is_able),
        };
        dies.chunks(self.dies_per_channel).map(sum).collect()
    }
}

/// What the decision knows of a vSSD.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holding {
    /// Dies that it lies on.
    pub dies: Vec<u32>,
    /// How it is isolated.
    pub isolation: Isolation,
}

impl Holding {
    /// Whether some of it lies on a channel.
    pub fn lies_on(&self, layout: &DieLayout, channel: usize) -> bool {
        self.dies.iter().any(|&die| layout.channel_of(die as usize) == channel)
    }
}

/// Whether no vSSD lies on both channels.
pub fn are_apart(holdings: &[Holding], layout: &DieLayout, one: usize, other: usize) -> bool {
    !holdings.iter().any(|vssd| vssd.lies_on(layout, one) && vssd.lies_on(layout, other))
}

/// Whether a channel is held, and by nobody who holds whole channels.
pub fn is_broken(holdings: &[Holding], layout: &DieLayout, channel: usize) -> bool {
    let mut holders = holdings.iter().filter(|vssd| vssd.lies_on(layout, channel)).peekable();
    holders.peek().is_some() && !holders.any(|vssd| vssd.isolation == Isolation::Channel)
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
/// [`crate::WearConfig::thresholds`]). `are_apart` and `is_broken` are the functions of these names, or what is known otherwise;
/// `can_exchange` says whether two dies can be.
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

    /// A place whose content does at present what it does on average.
    fn place(wear: u64, rate: u64, content_erases: u64) -> PlaceView {
        PlaceView { wear, rate, recent: rate, content_erases, is_able: true, ..PlaceView::default() }
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
        assert_eq!(swap(&[place(159, 9, 100), place(60, 0, 0)], SwapRule::Quiet), None);
        assert_eq!(swap(&[place(160, 9, 100), place(60, 0, 0)], SwapRule::Quiet), Some((0, 1)));
        assert_eq!(swap(&[place(900, 9, 900), place(800, 8, 900)], SwapRule::Quiet), None, "both are hot");
        assert_eq!(swap(&[place(100, 9, 900), place(100, 0, 0)], SwapRule::Quiet), None, "worn alike");
        assert_eq!(choose_swap(&[place(900, 9, 900), place(0, 0, 0)], 0, SwapRule::Quiet, |_, _| true), None);
    }

    #[test]
    fn what_is_written_on_a_worn_place_moves_early_and_what_went_cold_stays() {
        assert_eq!(swap(&[place(500, 9, 7), place(0, 0, 0)], SwapRule::Quiet), Some((0, 1)));
        assert_eq!(swap(&[place(500, 9, 6), place(0, 0, 0)], SwapRule::Quiet), None, "it has hardly begun");
        // Its average says that it is hot, but it has stopped.
        let stopped = PlaceView { recent: 0, ..place(500, 9, 900) };
        assert_eq!(swap(&[stopped, place(0, 0, 0)], SwapRule::Quiet), None);
        // The one that is written moves, not the more worn one that went cold.
        assert_eq!(swap(&[stopped, place(300, 9, 101), place(0, 0, 0)], SwapRule::Quiet), Some((1, 2)));
        assert_eq!(
            swap(&[place(0, 9, 900), place(300, 8, 7), place(0, 0, 0)], SwapRule::Quiet),
            Some((1, 2))
        );
    }

    /// Six of twelve contents write half as much again as the others: nobody stands out at present, but over a life the
    /// difference is a sixth.
    #[test]
    fn a_small_difference_that_lasts_is_worth_a_swap_and_noise_is_not() {
        let mut places = vec![place(500, 3, 51); 6];
        places.resize(12, place(400, 2, 51));
        assert!(matches!(swap(&places, SwapRule::Quiet), Some((from, 6..)) if from < 6));
        places.iter_mut().for_each(|place| place.content_erases = 50);
        assert_eq!(swap(&places, SwapRule::Quiet), None, "it is in no hurry");
        let mut alike = vec![place(500, 109, 900); 6];
        alike.resize(12, place(400, 91, 900));
        assert_eq!(swap(&alike, SwapRule::Quiet), None);
        // Little and often: all alike on average, and none does much of what is done at present.
        let mut often: Vec<PlaceView> = (0..12).map(|at| place(400 + 100 * (at % 2), 9, 900)).collect();
        often.iter_mut().enumerate().for_each(|(at, place)| place.recent = if at % 3 == 0 { 20 } else { 0 });
        assert!(swap(&often, SwapRule::Quiet).is_some(), "four share what is done: each does a quarter");
        often.iter_mut().enumerate().for_each(|(at, place)| place.recent = if at % 2 == 0 { 20 } else { 0 });
        assert_eq!(swap(&often, SwapRule::Quiet), None, "six do");
    }

    #[test]
    fn thresholds_follow_the_age() {
        let age = |average_cycles| DeviceAge { average_cycles, reserve_lost_permille: 124 };
        let at = |cycles| threshold_by_age(age(cycles), 3000, 100);
        assert_eq!([0, 324, 750, 1500, 2268, 2400, 2904, 9000].map(at), [71, 71, 71, 142, 216, 150, 54, 54]);
        let failing = DeviceAge { reserve_lost_permille: 125, ..age(1500) };
        assert_eq!(threshold_by_age(failing, 3000, 100), 54, "blocks fail before they were expected to");
        assert_eq!(threshold_by_age(age(90), 100, 100), 16);
    }

    #[test]
    fn the_least_worn_quiet_place_is_taken_and_the_rules_differ() {
        // Place 1 is the most worn, and has long gone cold; the writer is on 0.
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

    /// Who takes turns shall not find what is written next on the most worn place each time: among places that are worn alike
    /// the target is drawn, by the history alone.
    #[test]
    fn targets_that_are_worn_alike_are_drawn() {
        let target = |wear: u64| {
            let mut places = vec![place(6, 0, 0); 4];
            places[3].wear = 7;
            places.push(place(wear, 9, 101));
            swap(&places, SwapRule::Quiet).expect("it is due").1
        };
        let mut taken = [0; 4];
        (200..600).for_each(|wear| taken[target(wear)] += 1);
        assert!(taken.iter().all(|times| (60..140).contains(times)), "{taken:?}");
        assert_eq!(target(300), target(300));
    }

    #[test]
    fn hot_dies_meet_the_least_worn() {
        let source = [place(9, 1, 0), place(9, 5, 0), place(9, 3, 0)];
        let target = [place(7, 0, 0), place(8, 0, 0), place(6, 0, 0)];
        assert_eq!(pair_dies(&source, &target), [(1, 2), (2, 0), (0, 1)]);
    }

    /// The bound of docs/sources.md (wear between channels) under the adversary: imbalance at most 1 + threshold over average wear.
    #[test]
    fn one_writer_wears_all_places_evenly() {
        let mut places = [PlaceView { is_able: true, ..PlaceView::default() }; 16];
        let mut at = 0;
        (places[0].rate, places[0].recent) = (256, 256);
        for step in 0..160_000u64 {
            places[at].wear += 1;
            places[at].content_erases += 1;
            if let Some((source, target)) = swap(&places, SwapRule::Quiet) {
                assert_eq!(source, at);
                (places[source].rate, places[target].rate) = (0, 256);
                (places[source].recent, places[target].recent) = (0, 256);
                (places[source].content_erases, places[target].content_erases) = (0, 0);
                at = target;
            }
            let all: u64 = places.iter().map(|place| place.wear).sum();
            let most = places.iter().map(|place| place.wear).max().unwrap();
            // Where a place is a threshold above the least worn one its content moves away.
            assert!(16 * most <= all + 16 * 100, "step {step}: {most} of {all}");
        }
    }
}
