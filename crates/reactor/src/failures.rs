//! Commands of a drive that fail: told in the log, the first one and then one of each minute, with how many there were.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Between two lines of one drive.
const EVERY: Duration = Duration::from_secs(60);

/// Of one drive, for all rings on it.
#[derive(Debug, Default)]
pub(crate) struct Failures(Mutex<Untold>);

#[derive(Debug, Default)]
struct Untold {
    told: Option<Instant>,
    count: u64,
}

impl Failures {
    /// A command failed. How many did since the last line, with this one, where it is time for another line.
    pub fn note(&self, now: Instant) -> Option<u64> {
        let mut untold = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        untold.count += 1;
        let is_due = untold.told.is_none_or(|told| now.saturating_duration_since(told) >= EVERY);
        is_due.then(|| {
            untold.told = Some(now);
            std::mem::take(&mut untold.count)
        })
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    #[allow(clippy::disallowed_methods, reason = "the reactor is where the clock is read")]
    fn the_first_is_told_and_then_one_of_each_minute() {
        let (failures, start) = (Failures::default(), Instant::now());
        assert_eq!(failures.note(start), Some(1));
        for second in 1..60 {
            assert_eq!(failures.note(start + Duration::from_secs(second)), None);
        }
        assert_eq!(failures.note(start + EVERY), Some(60));
        assert_eq!(failures.note(start + EVERY), None);
    }
}
