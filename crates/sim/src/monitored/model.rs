//! What the latency monitor must say, by the words of the specification: a second account that keeps every command and works the page out
//! from them each time, where the one that ships keeps counters. It shares the words of the wire with it and nothing else.

use diecut_nvme::ocp::{
    Bucket, CommandKind, LatencyConfiguration, LatencyLog, LatencySide, LatencyStamp, TriggerBits,
};
use diecut_units::{Span, Time};

/// A command as its host saw it.
#[derive(Clone, Copy, Debug)]
struct Seen {
    kind: CommandKind,
    latency: Span,
    at: Time,
}

/// See the module.
pub struct MonitorModel {
    configuration: LatencyConfiguration,
    began: Time,
    seen: Vec<Seen>,
}

impl MonitorModel {
    /// From when a host has set this.
    pub fn new(configuration: LatencyConfiguration, began: Time) -> MonitorModel {
        MonitorModel { configuration, began, seen: Vec::new() }
    }

    /// A command was answered.
    pub fn saw(&mut self, kind: CommandKind, latency: Span, at: Time) {
        self.seen.push(Seen { kind, latency, at });
    }

    /// Number of the period that a time lies in.
    fn period_of(&self, at: Time) -> u64 {
        let length_ms = u64::from(self.configuration.timer_threshold.get()) * 5 * 60 * 1000;
        at.since(self.began).0 / 1_000_000 / length_ms
    }

    /// What a period has to say of one kind of command in one bucket: count, latency and time.
    fn of_period(&self, period: u64, bucket: Bucket, kind: CommandKind) -> (u32, u16, LatencyStamp) {
        let ms = |seen: &&Seen| seen.latency.0 / 1_000_000;
        let least = |at: usize| (u64::from(self.configuration.thresholds[at]) + 1) * 5;
        let most = if bucket.index() == 3 { u64::MAX } else { least(bucket.index() + 1) };
        let range = least(bucket.index())..most;
        let is_of = |seen: &&Seen| {
            seen.kind == kind && self.period_of(seen.at) == period && range.contains(&ms(seen))
        };
        let all: Vec<&Seen> = self.seen.iter().filter(is_of).collect();
        let keeps_largest = self.configuration.modes.get() >> (bucket.index() * 3 + kind.index()) & 1 == 1;
        let window_ms = u64::from(self.configuration.minimum_window) * 100;
        let mut kept: Option<&Seen> = None;
        for seen in &all {
            let replaces = match kept {
                None => true,
                Some(before) => {
                    keeps_largest
                        && seen.at.since(before.at).0 / 1_000_000 >= window_ms
                        && ms(seen) > ms(&before)
                }
            };
            if replaces {
                kept = Some(seen);
            }
        }
        let stamp = |seen: &Seen| LatencyStamp(seen.at.0 / 1_000_000);
        let latency = kept.map_or(0, |seen| ms(&seen).min(0xFFFF) as u16);
        (all.len() as u32, latency, kept.map_or(LatencyStamp::INVALID, stamp))
    }

    /// What is wrong with a page, if anything is.
    ///
    /// # Errors
    /// Names the first thing.
    pub fn check(&self, page: &LatencyLog, now: Time) -> Result<(), String> {
        let period = self.period_of(now);
        let empty = LatencySide::default();
        for bucket in Bucket::ALL {
            for kind in CommandKind::ALL {
                let before = period.checked_sub(1);
                for (name, side, period) in
                    [("active", &page.active, Some(period)), ("static", &page.static_, before)]
                {
                    let expected =
                        period.map_or((0, 0, LatencyStamp::INVALID), |one| self.of_period(one, bucket, kind));
                    let (latency, stamp) = side.measured(bucket, kind);
                    let told = (side.counter(bucket, kind), latency, stamp);
                    if told != expected {
                        let place = format!("{name} bucket {} {kind:?}", bucket.index());
                        return Err(format!("{place}: {told:?} is told, and {expected:?} was"));
                    }
                }
            }
        }
        if page.active.stamp_units != empty.stamp_units {
            return Err("no host said what time it is".to_owned());
        }
        let timer = now.since(self.began).0 / 1_000_000_000 / 300
            - period * u64::from(self.configuration.timer_threshold.get());
        if u64::from(page.timer.get()) != timer {
            return Err(format!("the timer is at {}, not {timer}", page.timer.get()));
        }
        self.check_debug(page)
    }

    /// The debug log is of the first command that could trigger it, or there is none.
    fn check_debug(&self, page: &LatencyLog) -> Result<(), String> {
        let source = page.debug_source.get();
        if source == 0 {
            return Ok(());
        }
        let trigger = TriggerBits(self.configuration.debug_trigger.get());
        if source & !trigger.0 != 0 {
            return Err(format!("{source:#x} triggers nothing"));
        }
        let measured = u64::from(page.debug_measured.get());
        let stamp = page.debug_stamp.get();
        let is_it = |seen: &Seen| seen.latency.0 / 1_000_000 == measured && seen.at.0 / 1_000_000 == stamp;
        match self.seen.iter().any(is_it) {
            true => Ok(()),
            false => Err(format!("no command took {measured} ms at {stamp} ms")),
        }
    }
}
