//! Critical warnings of the SMART log, and the events that tell of them.

use super::{Association, WARNING_TEMPERATURE_KELVIN};
use crate::config::Health;
use diecut_nvme::admin::AsynchronousEvent;
use diecut_nvme::log_page::{WARNING_READ_ONLY, WARNING_RELIABILITY, WARNING_SPARE, WARNING_TEMPERATURE};
use diecut_units::{mark, mutant};

/// Thresholds of the composite temperature: the log warns at and beyond them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TemperatureRange {
    pub(crate) over_kelvin: u16,
    pub(crate) under_kelvin: u16,
}

impl TemperatureRange {
    /// Before a host sets others: too hot is what Identify Controller says (WCTEMP), and nothing is too cold.
    pub(crate) const DEFAULT: TemperatureRange =
        TemperatureRange { over_kelvin: WARNING_TEMPERATURE_KELVIN, under_kelvin: 0 };

    pub(crate) fn is_left_by(&self, kelvin: u16) -> bool {
        kelvin >= self.over_kelvin || kelvin <= self.under_kelvin
    }
}

/// Spare below which the log warns.
pub(super) const SPARE_THRESHOLD_PERCENT: u8 = 10;

/// Warnings that there can be: what else a host wants to be told of is refused.
pub(super) const KNOWN_WARNINGS: u8 =
    WARNING_SPARE | WARNING_TEMPERATURE | WARNING_RELIABILITY | WARNING_READ_ONLY | 1 << 4 | 1 << 5;

/// Warnings as one controller tells them. A host is told when a warning begins, or when it wants to hear of one that there is; then
/// of no other before it has read the log (Base 2.0 section 5.2: events of one type are masked).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Warnings {
    /// Those that there were, of what the host wants to be told.
    seen: u8,
    /// Those that are to be told.
    pending: u8,
    is_masked: bool,
}

impl Warnings {
    /// Which warnings there are now, and which the host wants to be told of.
    pub(super) fn look(&mut self, warnings: u8, wanted: u8) {
        let seen = warnings & wanted;
        let begun = if mutant!("nvmf: warnings are kept from hosts") { 0 } else { seen & !self.seen };
        self.pending = (self.pending | begun) & seen;
        self.seen = seen;
        assert!(self.pending & !self.seen == 0, "I-T15: a host is told of warnings that there are");
    }

    /// The host has read the log.
    pub(super) fn read(&mut self) {
        self.is_masked = false;
    }

    /// The next event; it counts as told.
    pub(super) fn next_event(&mut self) -> Option<AsynchronousEvent> {
        if self.is_masked || self.pending == 0 {
            return None;
        }
        let (told, event) = if self.pending & WARNING_TEMPERATURE != 0 {
            (WARNING_TEMPERATURE, AsynchronousEvent::TEMPERATURE)
        } else if self.pending & WARNING_SPARE != 0 {
            (WARNING_SPARE, AsynchronousEvent::SPARE)
        } else {
            (self.pending, AsynchronousEvent::RELIABILITY)
        };
        self.pending &= !told;
        self.is_masked = true;
        mark!("nvmf: host told of a critical warning");
        Some(event)
    }
}

/// The critical warnings of a subsystem, with the thresholds of a controller.
pub(super) fn critical_warnings(temperature: TemperatureRange, health: &Health) -> u8 {
    let warnings = [
        (WARNING_SPARE, health.available_spare_percent < SPARE_THRESHOLD_PERCENT),
        (WARNING_TEMPERATURE, temperature.is_left_by(health.temperature_kelvin)),
        (WARNING_READ_ONLY, health.read_only),
    ];
    warnings.into_iter().filter(|(_, is_there)| *is_there).fold(0, |all, (bit, _)| all | bit)
}

impl Association {
    /// The health of its subsystem, its thresholds or its wishes changed.
    pub(crate) fn look_at_health(&mut self, health: &Health) {
        let wanted = self.events.configuration as u8;
        self.events.warnings.look(critical_warnings(self.settings.temperature, health), wanted);
    }
}

#[cfg(test)]
mod test {
    use super::*;

    /// Goal: a host hears of each warning once, of one at a time, and of none that has passed. Method: warnings come and go, by hand.
    #[test]
    fn warnings_are_told_once_and_one_at_a_time() {
        let mut warnings = Warnings::default();
        warnings.look(WARNING_TEMPERATURE | WARNING_READ_ONLY, 0);
        assert_eq!(warnings.next_event(), None, "nobody wants to know");
        warnings.look(WARNING_TEMPERATURE | WARNING_READ_ONLY, 0xFF);
        assert_eq!(warnings.next_event(), Some(AsynchronousEvent::TEMPERATURE));
        assert_eq!(warnings.next_event(), None, "masked until the log is read");
        warnings.read();
        assert_eq!(warnings.next_event(), Some(AsynchronousEvent::RELIABILITY));
        warnings.read();
        warnings.look(WARNING_TEMPERATURE | WARNING_READ_ONLY, 0xFF);
        assert_eq!(warnings.next_event(), None, "each is told once");
        warnings.look(WARNING_READ_ONLY, 0xFF);
        warnings.look(WARNING_READ_ONLY | WARNING_SPARE, 0xFF);
        warnings.look(WARNING_READ_ONLY, 0xFF);
        assert_eq!(warnings.next_event(), None, "the spare came back before it was told");
        warnings.look(WARNING_READ_ONLY | WARNING_TEMPERATURE, 0xFF);
        assert_eq!(warnings.next_event(), Some(AsynchronousEvent::TEMPERATURE), "again, as it begins again");
    }
}
