//! Years of wear in a moment: channels as counts of erases, no page, no I/O, and the policy that the server runs
//! ([`diecut_vssd::choose_swap`]).
//!
//! Inside a channel wear is even, as the allocation by the least worn block makes it, so a channel is its total of erases and
//! the endurance of its blocks in rising order. Time is host erases: a workload says how they spread over contents, and each
//! content erases the channel it lies on. A swap costs one erase of each block of both channels. Moving averages follow in
//! windows of a fixed number of host erases.
//!
//! Death is the first moment an acknowledged capacity cannot be served: some channel lost more blocks than its reserve. Ideal is
//! every good block at its endurance. What the model leaves out (dies within a channel, time that a swap takes, the
//! cleaner's dependence on fill) is for page-level runs; write amplification is in the caller's unit of erases.

use diecut_vssd::{PlaceView, SwapRule, choose_swap, threshold_by_age};

/// A device, its policy, and how long it is worn.
#[derive(Clone, Debug, PartialEq)]
pub struct WearModel {
    /// Channels.
    pub channels: usize,
    /// Erase blocks of a channel.
    pub blocks_per_channel: u64,
    /// Cycles of a block.
    pub endurance_cycles: u64,
    /// Spread of the cycles over blocks, in percent to each side, evenly; 0: all alike.
    pub endurance_spread_percent: u64,
    /// Blocks of a channel that can be lost, in thousandths.
    pub reserve_permille: u64,
    /// Threshold in erases where it is fixed.
    pub threshold_erases: u64,
    /// Where the threshold follows the device's age: delta in thousandths, and the endurance it is told.
    pub by_age: Option<(u64, u64)>,
    /// Which channels are swapped.
    pub rule: Leveling,
    /// Host erases between two looks at the policy.
    pub step_erases: u64,
    /// Steps of one window of the averages.
    pub window_steps: u64,
}

/// How wear is levelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Leveling {
    /// Not at all.
    Nothing,
    /// The hottest content goes to the next channel each time the threshold is passed.
    RoundRobin,
    /// A rule of the policy.
    Rule(SwapRule),
}

/// What became of a device.
#[derive(Clone, Debug, PartialEq)]
pub struct Lifetime {
    /// Erases for hosts until it died.
    pub host_erases: u64,
    /// Of the erases that all good blocks together could have had.
    pub of_ideal: f64,
    /// Swaps of channels.
    pub swaps: u64,
    /// Part of all erases that swaps caused.
    pub migration_share: f64,
    /// Largest wear over average wear, from a quarter of the life on.
    pub imbalance_max: f64,
    /// Whether largest over average wear stayed below 1 + 1.5 thresholds / average wear + share of swaps all the time.
    pub is_within_bound: bool,
}

struct Channel {
    wear: u64,
    migration: u64,
    /// The content that lies here.
    content: usize,
}

#[derive(Clone, Copy, Default)]
struct Content {
    volume: u64,
    average: u64,
    window: u64,
}

impl WearModel {
    /// `cnex-1tb` with blocks of a plane row: 16 channels of 4 dies with 1,069 super-blocks of four planes.
    pub fn cnex(endurance_cycles: u64, rule: Leveling) -> WearModel {
        let blocks_per_channel = 4 * 1069;
        WearModel {
            channels: 16,
            blocks_per_channel,
            endurance_cycles,
            endurance_spread_percent: 0,
            reserve_permille: 10,
            threshold_erases: diecut_vssd::threshold_erases(blocks_per_channel, endurance_cycles, 100, 900),
            by_age: None,
            rule,
            step_erases: blocks_per_channel,
            window_steps: 8,
        }
    }

    /// The same with a threshold that follows the age of the device, told the nominal endurance.
    pub fn by_age(self, delta_permille: u64, nominal_cycles: u64) -> WearModel {
        WearModel { by_age: Some((delta_permille, nominal_cycles)), ..self }
    }

    fn threshold_at(&self, channels: &[Channel]) -> u64 {
        let Some((delta_permille, cycles)) = self.by_age else { return self.threshold_erases };
        let blocks = self.blocks_per_channel * self.channels as u64;
        let average = channels.iter().map(|channel| channel.wear).sum::<u64>() / blocks;
        threshold_by_age(average, cycles, delta_permille) * self.blocks_per_channel
    }

    /// Average wear of a block at which a channel has lost more than its reserve.
    fn last_wear(&self) -> u64 {
        // Evenly spread from low to high: the reserve is used up at that part of the way.
        let low = self.endurance_cycles * (100 - self.endurance_spread_percent) / 100;
        let width = self.endurance_cycles * 2 * self.endurance_spread_percent / 100;
        low + width * self.reserve_permille / 1000
    }

    /// Wears a device until it dies. `spread` says, for a step, how its erases divide among contents: their weights; content 0
    /// lies on channel 0 at first, and so on.
    pub fn live(&self, mut spread: impl FnMut(u64, &mut [u64])) -> Lifetime {
        let mut channels: Vec<Channel> =
            (0..self.channels).map(|content| Channel { wear: 0, migration: 0, content }).collect();
        let mut contents = vec![Content::default(); self.channels];
        let mut weights = vec![0; self.channels];
        let last = self.last_wear() * self.blocks_per_channel;
        let all_ideal =
            self.endurance_cycles as f64 * (self.blocks_per_channel * self.channels as u64) as f64;
        let (mut host_erases, mut swaps, mut next) = (0u64, 0u64, 0usize);
        let mut samples: Vec<(u64, f64)> = Vec::new();
        let mut is_within_bound = true;
        for step in 0.. {
            weights.fill(0);
            spread(step, &mut weights);
            let sum: u64 = weights.iter().sum();
            assert!(sum > 0, "somebody writes in each step");
            for channel in &mut channels {
                let erases = self.step_erases * weights[channel.content] / sum;
                channel.wear += erases;
                host_erases += erases;
                let content = &mut contents[channel.content];
                content.volume += erases;
                content.window += erases;
            }
            if step % self.window_steps == self.window_steps - 1 {
                for content in &mut contents {
                    content.average = (content.average * 7 + content.window * 256) / 8;
                    content.window = 0;
                }
            }
            let threshold = self.threshold_at(&channels);
            if let Some((source, target)) = self.swap(&channels, &contents, threshold, &mut next) {
                swaps += 1;
                for at in [source, target] {
                    channels[at].wear += self.blocks_per_channel;
                    channels[at].migration += self.blocks_per_channel;
                    contents[channels[at].content].volume = 0;
                }
                if self.rule == Leveling::Rule(SwapRule::Literal) {
                    contents.iter_mut().for_each(|content| content.volume = 0);
                }
                let (one, other) = (channels[source].content, channels[target].content);
                (channels[source].content, channels[target].content) = (other, one);
            }
            let most = channels.iter().map(|channel| channel.wear).max().expect("there are channels");
            let average =
                channels.iter().map(|channel| channel.wear).sum::<u64>() as f64 / self.channels as f64;
            let migrated: u64 = channels.iter().map(|channel| channel.migration).sum();
            let share = migrated as f64 / (average * self.channels as f64);
            let slack = (1.5 * threshold as f64 + self.step_erases as f64) / average;
            is_within_bound &= most as f64 / average <= 1.0 + slack + share;
            samples.push((host_erases, most as f64 / average));
            if most >= last {
                let late = samples.iter().filter(|(at, _)| *at * 4 >= host_erases);
                return Lifetime {
                    host_erases,
                    of_ideal: host_erases as f64 / all_ideal,
                    swaps,
                    migration_share: share,
                    imbalance_max: late.map(|(_, imbalance)| *imbalance).fold(1.0, f64::max),
                    is_within_bound,
                };
            }
        }
        unreachable!("wear only rises")
    }

    fn swap(
        &self,
        channels: &[Channel],
        contents: &[Content],
        threshold: u64,
        next: &mut usize,
    ) -> Option<(usize, usize)> {
        let literal = self.rule == Leveling::Rule(SwapRule::Literal);
        let view = |channel: &Channel| {
            let content = &contents[channel.content];
            let rate = content.average.max((content.average * 7 + content.window * 256) / 8);
            PlaceView {
                wear: channel.wear,
                rate: if literal { content.volume } else { rate },
                volume: content.volume,
                is_able: true,
            }
        };
        match self.rule {
            Leveling::Nothing => None,
            Leveling::Rule(rule) => {
                let views: Vec<PlaceView> = channels.iter().map(view).collect();
                choose_swap(&views, threshold, rule, |_, _| true)
            }
            Leveling::RoundRobin => {
                let source = channels.iter().position(|one| contents[one.content].volume > threshold)?;
                *next = (*next + 1) % channels.len();
                if *next == source {
                    *next = (*next + 1) % channels.len();
                }
                Some((source, *next))
            }
        }
    }
}

#[cfg(test)]
mod test {
    use super::*;

    fn adversary(_: u64, weights: &mut [u64]) {
        weights[0] = 1;
    }

    fn ours(cycles: u64) -> WearModel {
        WearModel::cnex(cycles, Leveling::Rule(SwapRule::Quiet))
    }

    /// The adversary of FlashBlox: everything goes to one content.
    #[test]
    fn one_writer_reaches_the_ideal_life_with_our_rule_only() {
        let aged = ours(3000).by_age(100, 3000).live(adversary);
        let fixed = ours(3000).live(adversary);
        let nothing = WearModel::cnex(3000, Leveling::Nothing).live(adversary);
        let literal = WearModel::cnex(3000, Leveling::Rule(SwapRule::Literal)).live(adversary);
        let robin = WearModel::cnex(3000, Leveling::RoundRobin).live(adversary);
        println!(
            "by age {aged:?}\nfixed {fixed:?}\nround robin {robin:?}\nliteral {literal:?}\nnothing {nothing:?}"
        );
        assert!(aged.of_ideal >= 0.96 && aged.imbalance_max <= 1.1 && aged.is_within_bound, "{aged:?}");
        assert!(fixed.of_ideal >= 0.9 && fixed.is_within_bound, "{fixed:?}");
        assert!(nothing.of_ideal < 0.07 && nothing.swaps == 0, "{nothing:?}");
        assert!(literal.of_ideal < 0.5, "it keeps moving what is cold: {literal:?}");
    }

    /// The life must not hang on where in a round it ends: the endurance is a tenth less or more than what the policy is told.
    #[test]
    fn the_worst_phase_is_what_counts() {
        for nominal in [1000, 3000, 10_000] {
            let lives =
                (0..=40).map(|at| ours(nominal * (900 + 5 * at) / 1000).by_age(100, nominal).live(adversary));
            let lives: Vec<Lifetime> = lives.collect();
            let least = lives.iter().map(|life| life.of_ideal).fold(1.0, f64::min);
            let share = lives.iter().map(|life| life.migration_share).fold(0.0, f64::max);
            let imbalance = lives.iter().map(|life| life.imbalance_max).fold(1.0, f64::max);
            println!(
                "{nominal} cycles: at least {least:.4} of ideal, swaps {share:.4}, imbalance {imbalance:.3}"
            );
            // Each swap costs a cycle of two channels, whatever their endurance: with 1,000 cycles that is much.
            let wanted = if nominal == 1000 { 0.91 } else { 0.96 };
            assert!(least >= wanted && imbalance < 1.12, "{nominal}: {least} {imbalance}");
        }
    }

    /// A device under uniform load is not swapped at all.
    #[test]
    fn even_load_moves_nothing() {
        let life = WearModel::cnex(3000, Leveling::Rule(SwapRule::Quiet)).live(|_, weights| weights.fill(1));
        assert!(life.swaps == 0 && life.of_ideal > 0.99, "{life:?}");
    }

    /// Unequal tenants (12 to 1, as TPC-C beside TPC-E), and a hot spot that moves on.
    #[test]
    fn unequal_and_changing_tenants_wear_evenly() {
        let model = WearModel::cnex(3000, Leveling::Rule(SwapRule::Quiet));
        let mixed = model.live(|_, weights| {
            weights.fill(1);
            weights[..4].fill(12);
        });
        println!("mixed {mixed:?}");
        assert!(mixed.of_ideal > 0.9, "{mixed:?}");
        let moving = model.live(|step, weights| weights[(step / 997 % 16) as usize] = 1);
        println!("moving {moving:?}");
        assert!(moving.of_ideal > 0.85, "{moving:?}");
    }
}
