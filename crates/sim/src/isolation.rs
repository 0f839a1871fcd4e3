//! The noisy neighbour: a reader at 30 % of what it reaches alone, beside a neighbour, under each isolation level.
//!
//! Both tenants share one shard. Latency is counted at the door, from the time a command was due (open loop) to its
//! answer; the host link, the controller and the time that commands, connections and messages take on the shard's core
//! are modelled: the core takes up what arrived, source by source, then works on a round of it, as the reactor does; what arrives
//! meanwhile waits for the next one, and answers for the end of theirs. Each tenant's host has one queue pair. Per tenant:
//! one channel, or 4 dies, or 16 soft-planes, as in FlashBlox (FAST'17, evaluation): equal raw quantity each, on the same
//! dies where dies are shared. Volumes are of one size under all levels, so that cleaners
//! have equal room; it is what fits under the level that can export least.
//!
//! The device is `cnex-1tb` with all its channels, dies, planes and blocks. Both tenants lie on two channels; an idle
//! vSSD holds the others. Erase blocks are shorter unless [`Setting`] says otherwise: a writer comes into steady cleaning
//! with less work, and erases come more often than on the real one.

mod latency_parts;
mod stage;
mod storm;
pub mod summary;

use diecut_spec::Isolation;
use diecut_units::Span;
use serde::Serialize;
use stage::Stage;

/// What the neighbour does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Neighbour {
    /// Nothing: the reader is alone.
    None,
    /// 4 KiB random writes over data that fills its vSSD, depth 32: the cleaner never rests.
    RandomWrites,
    /// 1 MiB sequential writes, depth 8.
    SequentialWrites,
    /// Deallocates of 1 MiB and writes over them, depth 32.
    Deallocates,
    /// Hosts that connect, bring their controller up, connect an I/O queue, flush, hang up and start again.
    Reconnects,
}

/// All neighbours, without [`Neighbour::None`].
pub const NEIGHBOURS: [Neighbour; 4] =
    [Neighbour::RandomWrites, Neighbour::SequentialWrites, Neighbour::Deallocates, Neighbour::Reconnects];

/// Isolation levels, strongest first.
pub const LEVELS: [Isolation; 4] = [Isolation::Channel, Isolation::Die, Isolation::Software, Isolation::None];

/// What one run showed.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// Isolation level: `channel`, `die`, `software` or `none`.
    pub isolation: String,
    /// The neighbour.
    pub neighbour: Neighbour,
    /// Reads per second that were due.
    pub offered_reads_per_s: f64,
    /// Reads per second that were answered.
    pub reads_per_s: f64,
    /// Latency of reads in microseconds: p50, p99, p99.9, p99.99.
    pub latency_us: [f64; 4],
    /// Where the time of reads around the p99 went, in microseconds: on the core until they were begun, in the device and on
    /// its host link, on the core until they were answered.
    pub p99_parts_us: [f64; 3],
    /// What the neighbour wrote, in MB/s (10^6).
    pub neighbour_mb_per_s: f64,
    /// Write amplification of the neighbour's cleaner while it was measured: (user + cleaner) / user.
    pub neighbour_waf_cleaner: f64,
    /// How often a host of the neighbour came up, per second.
    pub neighbour_connects_per_s: f64,
}

/// Two writers at once, 4 KiB random, depth 32 each, both in steady cleaning.
#[derive(Clone, Debug, Serialize)]
pub struct WritersOutcome {
    /// Isolation level.
    pub isolation: String,
    /// What each wrote, in MB/s (10^6).
    pub mb_per_s: [f64; 2],
    /// Both together.
    pub combined_mb_per_s: f64,
}

/// What one level showed for one seed.
#[derive(Clone, Debug, Serialize)]
pub struct LevelOutcome {
    /// Alone, and beside each neighbour.
    pub outcomes: Vec<Outcome>,
    /// Two writers, if they were asked for.
    pub writers: Option<WritersOutcome>,
}

/// What is run, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Time measured beside each neighbour.
    pub measured: Span,
    /// Erase blocks of a plane; `cnex-1tb` has 1,069.
    pub blocks_per_plane: u32,
    /// Pages of an erase block; `cnex-1tb` has 256.
    pub pages_per_block: u32,
    /// Hosts that reconnect all the time, where the neighbour does that.
    pub reconnect_hosts: u16,
    /// Two writers at once are measured, too.
    pub writers: bool,
}

impl Default for Setting {
    fn default() -> Setting {
        Setting {
            measured: Span::from_millis(2_000),
            blocks_per_plane: 1069,
            pages_per_block: 32,
            reconnect_hosts: 8,
            writers: false,
        }
    }
}

impl Setting {
    /// With erase blocks of so many pages, measured for as much longer as the cleaner takes longer for a segment; 256 is
    /// `cnex-1tb` as it is.
    pub fn with_pages_per_block(pages_per_block: u32) -> Setting {
        let measured = Span::from_millis(u64::from(pages_per_block) * 125 / 2);
        Setting { measured, pages_per_block, ..Setting::default() }
    }
}

/// Runs the reader under one level, alone and then beside each neighbour. `progress` hears what is done.
///
/// # Errors
/// What could not be set up.
pub fn run_level(
    isolation: Isolation,
    neighbours: &[Neighbour],
    seed: u64,
    setting: &Setting,
    mut progress: impl FnMut(&str),
) -> Result<LevelOutcome, String> {
    let name = isolation.name();
    let mut progress = |what: &str| progress(&format!("seed {seed}, {name}: {what}"));
    let mut exported_lbas = u64::MAX;
    for level in LEVELS {
        exported_lbas = exported_lbas.min(Stage::new(level, seed, setting)?.exported_lbas());
    }
    let mut stage = Stage::new(isolation, seed, setting)?;
    stage.create_volumes(exported_lbas)?;
    progress(&format!("filling 2 x {} MiB", stage.lbas >> 8));
    stage.fill();
    let conditioned: &[u32] =
        if setting.writers { &[stage::READER, stage::WRITER] } else { &[stage::WRITER] };
    let (overwrites, waf) = stage.condition(conditioned);
    progress(&format!("the cleaner is steady after {overwrites} overwrites, waf_cleaner {waf:.2}"));
    // Before anything leaves holes in the volumes.
    let writers = setting.writers.then(|| {
        let mb_per_s = stage.measure_writers(setting.measured + setting.measured);
        progress("measured two writers");
        WritersOutcome { isolation: name.to_owned(), mb_per_s, combined_mb_per_s: mb_per_s[0] + mb_per_s[1] }
    });
    let saturation = stage.saturation();
    let rate = 0.3 * saturation;
    progress(&format!("the reader reaches {saturation:.0} reads/s alone, {rate:.0} are offered"));
    let mut outcomes = Vec::new();
    for &neighbour in std::iter::once(&Neighbour::None).chain(neighbours) {
        progress(&format!("measuring beside {neighbour:?}"));
        let outcome = stage.measure(rate, neighbour, setting.measured);
        stage.settle();
        outcomes.push(Outcome { isolation: name.to_owned(), ..outcome });
    }
    Ok(LevelOutcome { outcomes, writers })
}

#[cfg(test)]
mod test {
    use super::*;

    /// The claim in small: under channel isolation the p99 of a reader stays where it is alone, whatever its neighbour does,
    /// and reconnecting hosts do come up.
    #[test]
    fn a_channel_isolated_reader_feels_no_neighbour() {
        let setting =
            Setting { measured: Span::from_millis(300), blocks_per_plane: 64, ..Setting::default() };
        let level = run_level(Isolation::Channel, &NEIGHBOURS, 1, &setting, |_| {}).unwrap();
        let alone = level.outcomes[0].latency_us[1];
        for outcome in &level.outcomes[1..] {
            let ratio = outcome.latency_us[1] / alone;
            assert!(ratio < 1.15, "{:?}: {ratio}", outcome.neighbour);
            let works = outcome.neighbour_mb_per_s > 10.0 || outcome.neighbour_connects_per_s > 1_000.0;
            assert!(works, "{outcome:?}");
        }
    }
}
