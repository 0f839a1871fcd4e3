//! `diecut sim --system open-channel`: seeds of hosts of Open-Channel namespaces.

use super::SimArgs;
use crate::openchannel::{self, Figures};
use crate::say;
use std::time::Instant;

/// Lives of the server in a seed: between two there is a death of the process or a power cut.
const LIVES: u32 = 6;

#[allow(clippy::disallowed_methods, reason = "the command line reads the clock")]
/// Runs the seeds; whether all of them found nothing.
pub(super) fn run(arguments: &SimArgs) -> bool {
    let (first, end) = match (arguments.seed, arguments.seeds) {
        (Some(seed), _) => (seed, seed + 1),
        (None, seeds) => seeds.unwrap_or(super::SEEDS_UNASKED),
    };
    let started = Instant::now();
    let limit = arguments.time_limit();
    let (mut seeds, mut failed, mut all) = (0, 0, Figures::default());
    for seed in first..end {
        if seeds >= arguments.floor && limit.is_some_and(|limit| started.elapsed() > limit) {
            break;
        }
        seeds += 1;
        match openchannel::run(seed, LIVES) {
            Ok(figures) => all += figures,
            Err(error) => {
                failed += 1;
                say!("{error}\n  diecut sim --system open-channel --seed {seed}");
            }
        }
    }
    let [deaths, cuts] = all.restarts;
    say!(
        "open-channel: {seeds} seeds, {failed} failed: {} commands, {} resets, {} chunks closed early, {deaths} deaths of the process, \
         {cuts} power cuts; of blocks in lists {} were read, {} not, and {} were hard to read; {} writes failed in part; \
         {} entries of the chunk notification log, {} vector reads that were told to be hard, {} that failed; {} sanitizes, {} failed, {} that the \
         server went amid",
        all.commands,
        all.resets,
        all.early_closes,
        all.listed[0],
        all.listed[1],
        all.strained,
        all.partly_written,
        all.entries,
        all.told[0],
        all.told[1],
        all.sanitizes[0],
        all.sanitizes[1],
        all.sanitizes[2]
    );
    failed == 0
}
