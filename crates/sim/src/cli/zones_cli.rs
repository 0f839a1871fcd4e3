//! `diecut sim --system zones`: seeds of hosts of zoned namespaces.

use super::SimArgs;
use crate::say;
use crate::zones::{self, Figures};
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
    diecut_units::marks::plant_mutant(arguments.mutant.as_deref());
    let started = Instant::now();
    let limit = arguments.time_limit();
    let (mut seeds, mut failed, mut all) = (0, 0, Figures::default());
    for seed in first..end {
        if seeds >= arguments.floor && limit.is_some_and(|limit| started.elapsed() > limit) {
            break;
        }
        seeds += 1;
        match zones::run(seed, LIVES) {
            Ok(figures) => all += figures,
            Err(error) => {
                failed += 1;
                say!("{error}\n  diecut sim --system zones --seed {seed}");
            }
        }
    }
    diecut_units::marks::plant_mutant(None);
    let [deaths, cuts] = all.restarts;
    say!(
        "zones: {seeds} seeds, {failed} failed: {} commands, {} resets, {deaths} deaths of the process, {cuts} power cuts, {} pages lost, \
         {} IUs written, {} of them by copies, {} programmed",
        all.commands,
        all.resets,
        all.lost_pages,
        all.written_ius,
        all.copied_ius,
        all.programmed_ius
    );
    failed == 0
}
