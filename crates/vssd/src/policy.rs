//! When the content of two channels, or of two dies, changes places: pure functions of what is known about them.
//!
//! Wear belongs to silicon, the rate to content. A swap is due when the content of some place erased more than the threshold
//! since it moved last (FACTS.md 1.7). Two rules say what is swapped:
//!
//! - [`SwapRule::Quiet`], ours: the content that passed the threshold moves to the least worn of the quiet places; if a place
//!   that is worn more still holds hot content, that one goes first. Nothing moves if the difference in wear is less than
//!   half of the threshold: a swap that gains nothing only wears.
//! - [`SwapRule::Literal`], the paper's words: the most worn place and the one with the lowest rate. It keeps taking the most
//!   worn one after its content has gone cold, which is what makes it waste swaps.
//!
//! Worked example, threshold 100, one writer on place 0 of 4: at wear (100, 0, 0, 0) its content goes to place 1, at (100, 100, 0,
//! 0) to 2, at (100, 100, 100, 0) to 3, at (100, 100, 100, 100) nowhere, at (100, 100, 100, 150) to 0: the least worn first, and
//! after K rounds max/avg is at most 1 + 1/K.

/// Which places are swapped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SwapRule {
    /// Hot content goes to the least worn of the quiet places.
    #[default]
    Quiet,
    /// The most worn place with the one of the lowest rate.
    Literal,
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
/// the life on, grows with the average wear as that allows, and shrinks towards the end, when what is left to even out is lost
/// (DESIGN.md 8.8). Delta is in thousandths. With 3,000 cycles and delta 0.1: 75 until 750 cycles, 150 at 1,500, 150 at 2,400
/// and 15 from 2,940 on.
pub const fn threshold_by_age(average_cycles: u64, endurance_cycles: u64, delta_permille: u64) -> u64 {
    let least = endurance_cycles * delta_permille / 4000;
    let by_wear = average_cycles * delta_permille / 1000;
    let early = if by_wear > least { by_wear } else { least };
    let last = endurance_cycles * delta_permille / 20_000;
    let by_rest = endurance_cycles.saturating_sub(average_cycles) / 4;
    let late = if by_rest > last { by_rest } else { last };
    let threshold = if early < late { early } else { late };
    if threshold > 0 { threshold } else { 1 }
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
    let tripped = able()
        .filter(|&at| places[at].volume > threshold_erases)
        .max_by_key(|&at| (places[at].volume, at))?;
    match rule {
        SwapRule::Literal => {
            let source = able().max_by_key(|&at| (places[at].wear, std::cmp::Reverse(at)))?;
            let others = able().filter(|&at| at != source && can_swap(source, at));
            let target = others.min_by_key(|&at| (places[at].rate, places[at].wear, at))?;
            Some((source, target))
        }
        SwapRule::Quiet => {
            // Hot: at least half as hot as what passed the threshold.
            let hot = |at: usize| places[at].rate.saturating_mul(2) >= places[tripped].rate.max(1);
            let worn = able().filter(|&at| hot(at) && places[at].wear > places[tripped].wear);
            let source = worn.max_by_key(|&at| (places[at].wear, std::cmp::Reverse(at))).unwrap_or(tripped);
            best_target(places, source, threshold_erases, &can_swap).or_else(|| {
                let again = (source != tripped).then_some(tripped)?;
                best_target(places, again, threshold_erases, &can_swap)
            })
        }
    }
}

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
    quiet.min_by_key(|&at| (places[at].wear, places[at].rate, at)).map(|target| (source, target))
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
        assert_eq!(swap(&[place(500, 9, 100), place(0, 0, 0)], SwapRule::Quiet), None);
        assert_eq!(swap(&[place(101, 9, 101), place(0, 0, 0)], SwapRule::Quiet), Some((0, 1)));
        assert_eq!(swap(&[place(101, 9, 101), place(60, 0, 0)], SwapRule::Quiet), None, "not worth it");
        assert_eq!(swap(&[place(900, 9, 101), place(800, 8, 99)], SwapRule::Quiet), None, "both are hot");
        assert_eq!(choose_swap(&[place(900, 9, 900), place(0, 0, 0)], 0, SwapRule::Quiet, |_, _| true), None);
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
