//! The latency monitor of one subsystem (OCP 2.5 sections 4.8.8 and 4.15.6): buckets of latency, the latest of each, and what triggers
//! the debug log. It knows no clock: what happens at a time is told with that time, and what a timer would have done is made up for first.

use diecut_nvme::ocp::{
    BUCKETS, Bucket, CommandKind, LatencyConfiguration, LatencyLog, LatencySide, LatencyStamp,
    MEASURED_MAX_MS, STATUS_ENABLED, STATUS_MEASURED, STATUS_MODE_1, TIMER_INCREMENT_S, TriggerBits,
    WINDOW_INCREMENT_MS,
};
use diecut_units::{Span, Time, mark, mutant};

/// The latency that triggered a debug log.
#[derive(Clone, Debug, PartialEq)]
struct Captured {
    measured_ms: u16,
    stamp: LatencyStamp,
    by_host: bool,
    source: TriggerBits,
    /// What was known of the command and its surroundings; empty until that was told.
    log: Vec<u8>,
}

/// See the module.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LatencyMonitor {
    configuration: LatencyConfiguration,
    /// When the active buckets began.
    began: Time,
    active: LatencySide,
    static_: LatencySide,
    /// When a latency was last kept, for the minimum window.
    kept_at: [[Option<Time>; 3]; BUCKETS],
    captured: Option<Captured>,
    /// What time it is by a host: milliseconds, and when it said so.
    clock: Option<(u64, Time)>,
}

/// What Set Features did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Set {
    Done,
    /// It cannot be in force.
    Invalid,
}

impl Default for LatencyMonitor {
    fn default() -> LatencyMonitor {
        LatencyMonitor {
            configuration: LatencyConfiguration::default(),
            began: Time::ZERO,
            active: LatencySide::default(),
            static_: LatencySide::default(),
            kept_at: [[None; 3]; BUCKETS],
            captured: None,
            clock: None,
        }
    }
}

impl LatencyMonitor {
    /// Latencies from here on are of interest; [`u64::MAX`] if none is.
    pub fn threshold(&self) -> Span {
        match self.configuration.enable {
            0 => Span(u64::MAX),
            _ => Span::from_millis(self.configuration.threshold_ms(Bucket::ALL[0])),
        }
    }

    /// A host says what time it is.
    pub fn set_clock(&mut self, ms: u64, now: Time) {
        self.clock = Some((ms, now));
    }

    /// The time as it is told, and whether a host said what time it is.
    pub fn stamp(&self, now: Time) -> (LatencyStamp, bool) {
        match self.clock {
            Some((ms, at)) => (LatencyStamp::new(ms + now.since(at).0 / 1_000_000, true), true),
            None => (LatencyStamp::new(now.0 / 1_000_000, false), false),
        }
    }

    fn period(&self) -> Span {
        Span::from_secs(u64::from(self.configuration.timer_threshold.get()) * TIMER_INCREMENT_S)
    }

    /// Makes up for timers that ran out: what was active is static then, all of it at once.
    fn advance(&mut self, now: Time) {
        let (period, passed) = (self.period(), now.since(self.began));
        if self.configuration.enable == 0 || passed < period {
            return;
        }
        mark!("nvmf: latency buckets become static");
        let periods = passed.0 / period.0;
        // Nothing came since: of several periods that ran out all but the first one are empty.
        let active = std::mem::take(&mut self.active);
        self.static_ = if periods == 1 { active } else { LatencySide::default() };
        if mutant!("nvmf: static latency buckets stay active") {
            self.active = active;
        }
        self.kept_at = [[None; 3]; BUCKETS];
        self.began += Span(period.0 * periods);
        assert!(periods > 0 && now.since(self.began) < period, "I-T18: a timer that ran out begins anew");
    }

    /// A command was answered after so long. Says whether it triggers the debug log.
    pub fn record(&mut self, kind: CommandKind, latency: Span, now: Time) -> bool {
        self.advance(now);
        if self.configuration.enable == 0 {
            return false;
        }
        let ms = latency.0 / 1_000_000;
        let Some(bucket) = self.configuration.bucket_of(ms) else { return false };
        assert!(
            ms >= self.configuration.threshold_ms(bucket),
            "I-T18: a bucket has what reaches its threshold"
        );
        self.active.count(bucket, kind);
        assert!(self.active.counter(bucket, kind) > 0, "I-T18: what is counted is there");
        let measured_ms = ms.min(MEASURED_MAX_MS.into()) as u16;
        let (stamp, by_host) = self.stamp(now);
        if self.is_kept(bucket, kind, measured_ms, now) {
            self.active.keep(bucket, kind, measured_ms, stamp, by_host);
            self.kept_at[bucket.index()][kind.index()] = Some(now);
        }
        let trigger = TriggerBits(self.configuration.debug_trigger.get());
        if !trigger.has(bucket, kind) || self.captured.is_some() {
            return false;
        }
        mark!("nvmf: latency triggers the debug log");
        let source = TriggerBits::of(bucket, kind);
        assert!(source.0.is_power_of_two(), "I-T18: one counter triggers a debug log");
        self.captured = Some(Captured { measured_ms, stamp, by_host, source, log: Vec::new() });
        true
    }

    /// Whether a latency takes the place of the one that is kept.
    fn is_kept(&self, bucket: Bucket, kind: CommandKind, ms: u16, now: Time) -> bool {
        let Some(at) = self.kept_at[bucket.index()][kind.index()] else { return true };
        if !TriggerBits(self.configuration.modes.get()).has(bucket, kind) {
            return false; // the first one stays
        }
        let window = Span::from_millis(u64::from(self.configuration.minimum_window) * WINDOW_INCREMENT_MS);
        let is_over = now.since(at) >= window || mutant!("nvmf: no minimum window of latencies");
        is_over && ms > self.active.measured(bucket, kind).0
    }

    /// What was known of the command that triggered the debug log.
    pub fn explain(&mut self, log: Vec<u8>) {
        if let Some(captured) = self.captured.as_mut().filter(|one| one.log.is_empty()) {
            captured.log = log;
        }
    }

    /// The debug log, if there is one.
    pub fn debug_log(&self) -> Option<&[u8]> {
        self.captured.as_ref().map(|captured| captured.log.as_slice())
    }

    /// A host has read the debug log: the next latency may trigger one.
    pub fn discard(&mut self) {
        self.captured = None;
    }

    /// What is in force.
    pub fn configuration(&self) -> &LatencyConfiguration {
        &self.configuration
    }

    /// Set Features: a configuration, with which everything begins anew, or only the end of the debug log.
    pub fn set(&mut self, configuration: LatencyConfiguration, now: Time) -> Set {
        match configuration.discard_debug {
            1 => {
                self.discard();
                Set::Done
            }
            0 if configuration.is_sound() => {
                assert!(configuration.timer_threshold.get() > 0, "I-T18: a timer that is in force runs");
                *self = LatencyMonitor {
                    configuration,
                    began: now,
                    clock: self.clock,
                    ..LatencyMonitor::default()
                };
                Set::Done
            }
            _ => Set::Invalid,
        }
    }

    /// The log page. `pointer` is the block of telemetry in which the debug log begins.
    pub fn page(&mut self, pointer: u16, now: Time) -> LatencyLog {
        self.advance(now);
        let one = &self.configuration;
        let mut page = LatencyLog {
            feature_status: STATUS_MODE_1
                | STATUS_MEASURED
                | if one.enable == 1 { STATUS_ENABLED } else { 0 },
            timer: ((now.since(self.began).0 / 1_000_000_000 / TIMER_INCREMENT_S) as u16).into(),
            timer_threshold: one.timer_threshold,
            thresholds: one.thresholds,
            modes: one.modes,
            minimum_window: one.minimum_window,
            active: self.active,
            static_: self.static_,
            debug_trigger: one.debug_trigger,
            ..LatencyLog::default()
        };
        if one.enable == 0 {
            page.timer = 0.into();
        }
        assert!(page.timer < page.timer_threshold, "I-T18: a timer that ran out begins anew");
        if let Some(captured) = &self.captured {
            page.debug_measured = captured.measured_ms.into();
            page.debug_stamp = captured.stamp.0.into();
            page.debug_units = captured.by_host.into();
            page.debug_source = captured.source.0.into();
            page.debug_pointer = pointer.into();
            page.debug_size[..8].copy_from_slice(&(captured.log.len() as u64).to_le_bytes());
        }
        page
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use CommandKind::{Deallocate, Read, Write};

    fn ms(ms: u64) -> Time {
        Time(ms * 1_000_000)
    }

    fn with(change: impl FnOnce(&mut LatencyConfiguration)) -> LatencyMonitor {
        let mut configuration = LatencyConfiguration::default();
        change(&mut configuration);
        let mut monitor = LatencyMonitor::default();
        assert_eq!(monitor.set(configuration, Time::ZERO), Set::Done);
        monitor
    }

    fn record(monitor: &mut LatencyMonitor, kind: CommandKind, latency_ms: u64, at_ms: u64) -> bool {
        monitor.record(kind, Span::from_millis(latency_ms), ms(at_ms))
    }

    #[test]
    fn buckets_count_by_kind_from_their_threshold_on() {
        let mut monitor = LatencyMonitor::default();
        assert_eq!(monitor.threshold(), Span::from_millis(30));
        for (kind, latency) in
            [(Read, 29), (Read, 30), (Read, 99), (Write, 100), (Deallocate, 155), (Read, 9000)]
        {
            record(&mut monitor, kind, latency, 1000);
        }
        let page = monitor.page(0, ms(1000));
        let counted = |kind| Bucket::ALL.map(|bucket| page.active.counter(bucket, kind));
        assert_eq!(
            (counted(Read), counted(Write), counted(Deallocate)),
            ([2, 0, 0, 1], [0, 1, 0, 0], [0, 0, 1, 0])
        );
        assert_eq!(page.feature_status, 7);
        assert_eq!(page.active.measured(Bucket::ALL[3], Read), (9000, LatencyStamp::new(1000, false)));
    }

    /// The specification's example: a window of 5 s; 50 ms at 0.5 s is kept, 100 ms at 5.25 s is not, 75 ms at 6 s is. All are counted.
    #[test]
    fn the_minimum_window_keeps_later_latencies_out() {
        let mut monitor = with(|one| {
            one.minimum_window = 50;
            one.thresholds = [9, 29, 39, 49]; // 50, 150, 200, 250 ms
        });
        for (latency, at) in [(50, 500), (100, 5250), (75, 6000)] {
            record(&mut monitor, Read, latency, at);
        }
        let page = monitor.page(0, ms(6000));
        assert_eq!(page.active.counter(Bucket::ALL[0], Read), 3);
        assert_eq!(page.active.measured(Bucket::ALL[0], Read), (75, LatencyStamp::new(6000, false)));
        // A smaller one does not take its place, nor does it begin a window.
        record(&mut monitor, Read, 60, 12_000);
        record(&mut monitor, Read, 80, 12_500);
        assert_eq!(monitor.page(0, ms(12_500)).active.measured(Bucket::ALL[0], Read).0, 80);
    }

    #[test]
    fn mode_0_keeps_the_first() {
        let mut monitor = with(|one| one.modes = (TriggerBits::ALL.0 & !1).into());
        record(&mut monitor, Read, 40, 1000);
        record(&mut monitor, Read, 90, 60_000);
        record(&mut monitor, Write, 40, 1000);
        record(&mut monitor, Write, 90, 60_000);
        let page = monitor.page(0, ms(60_000));
        assert_eq!(page.active.measured(Bucket::ALL[0], Read).0, 40);
        assert_eq!(page.active.measured(Bucket::ALL[0], Write).0, 90);
        // The first one of each period.
        let next_ms = u64::from(monitor.configuration().timer_threshold.get()) * TIMER_INCREMENT_S * 1000;
        record(&mut monitor, Read, 30, next_ms);
        record(&mut monitor, Read, 60, next_ms + 1000);
        let page = monitor.page(0, ms(next_ms + 1000));
        assert_eq!(page.static_.measured(Bucket::ALL[0], Read).0, 40);
        assert_eq!(page.active.measured(Bucket::ALL[0], Read), (30, LatencyStamp::new(next_ms, false)));
    }

    /// Goal: when the timer runs out, everything active is static at once, and the next period begins then; a period without events leaves
    /// nothing.
    #[test]
    fn active_buckets_become_static() {
        let mut monitor = with(|one| one.timer_threshold = 1.into());
        monitor.set_clock(7_000_000, Time::ZERO);
        record(&mut monitor, Read, 40, 1000);
        let before = monitor.page(0, ms(299_999));
        assert_eq!((before.timer.get(), before.static_), (0, LatencySide::default()));
        let after = monitor.page(0, ms(300_000));
        assert_eq!(after.static_, before.active);
        assert_eq!((after.active, after.timer.get()), (LatencySide::default(), 0));
        assert_eq!(after.static_.measured(Bucket::ALL[0], Read), (40, LatencyStamp::new(7_001_000, true)));
        assert_eq!(after.static_.stamp_units.get(), 1);
        record(&mut monitor, Read, 50, 300_500);
        // Two periods later: the second of them was empty.
        assert_eq!(monitor.page(0, ms(900_000)).static_, LatencySide::default());
    }

    #[test]
    fn the_debug_log_is_captured_once_until_it_is_discarded() {
        let trigger = TriggerBits::of(Bucket::ALL[1], Write);
        let mut monitor = with(|one| one.debug_trigger = trigger.0.into());
        assert!(!record(&mut monitor, Write, 40, 1000), "another bucket");
        assert!(!record(&mut monitor, Read, 120, 1000), "another kind");
        assert!(record(&mut monitor, Write, 120, 2000));
        assert!(!record(&mut monitor, Write, 130, 3000), "there is one");
        monitor.explain(b"why".to_vec());
        let page = monitor.page(4, ms(3000));
        assert_eq!(
            (page.debug_measured.get(), page.debug_source.get(), page.debug_pointer.get()),
            (120, trigger.0, 4)
        );
        assert_eq!((page.debug_stamp.get(), page.debug_size[0]), (2000, 3));
        assert_eq!(monitor.debug_log(), Some(&b"why"[..]));
        let only_discard =
            LatencyConfiguration { discard_debug: 1, enable: 0, ..LatencyConfiguration::default() };
        assert_eq!(monitor.set(only_discard, ms(4000)), Set::Done);
        let page = monitor.page(4, ms(4000));
        assert_eq!((page.debug_measured.get(), page.debug_stamp.get()), (0, u64::MAX));
        assert_eq!(page.active.counter(Bucket::ALL[1], Write), 2, "nothing else was changed");
        assert!(record(&mut monitor, Write, 120, 5000));
    }

    #[test]
    fn a_configuration_begins_anew_or_is_refused() {
        let mut monitor = LatencyMonitor::default();
        record(&mut monitor, Read, 40, 1000);
        let bad = LatencyConfiguration { thresholds: [4, 3, 2, 1], ..LatencyConfiguration::default() };
        assert_eq!(monitor.set(bad, ms(1000)), Set::Invalid);
        assert_eq!(monitor.page(0, ms(1000)).active.counter(Bucket::ALL[0], Read), 1);
        let off = LatencyConfiguration { enable: 0, ..LatencyConfiguration::default() };
        assert_eq!(monitor.set(off, ms(2000)), Set::Done);
        assert_eq!(monitor.threshold(), Span(u64::MAX));
        assert!(!record(&mut monitor, Read, 400, 3000));
        let page = monitor.page(0, ms(10_000_000));
        assert_eq!((page.feature_status, page.active), (6, LatencySide::default()));
    }
}
