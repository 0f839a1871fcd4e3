//! Waits of tests that drive threads and processes: for a condition, with so much patience that only what never comes fails. A test that
//! sleeps for a fixed time fails on a busy machine, or waits for nothing on an idle one: `cargo xtask tidy` refuses `sleep` in tests.

#![expect(clippy::disallowed_methods, reason = "this is where tests read the clock")]

use std::fmt::Display;
use std::time::{Duration, Instant};

/// How long anything may take on a machine that does other things as well.
pub const PATIENCE: Duration = Duration::from_secs(120);
/// First and longest pause between two looks.
const PAUSES: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(20));

/// Waits until something is there, and gives it.
///
/// # Panics
/// If it does not come; `what` says what was waited for, and how things stand.
#[track_caller]
pub fn wait_for<T, W: Display>(what: impl Fn() -> W, look: impl FnMut() -> Option<T>) -> T {
    within(PATIENCE, what, look).0
}

/// Waits until something holds.
///
/// # Panics
/// As [`wait_for`].
#[track_caller]
pub fn wait_until<W: Display>(what: impl Fn() -> W, mut holds: impl FnMut() -> bool) {
    wait_for(what, || holds().then_some(()));
}

/// As [`wait_for`] where a bound of time is what is tested; gives the time that it took, too.
///
/// # Panics
/// If it does not come within the bound.
#[track_caller]
pub fn within<T, W: Display>(
    bound: Duration,
    what: impl Fn() -> W,
    mut look: impl FnMut() -> Option<T>,
) -> (T, Duration) {
    let since = Instant::now();
    match look_until(since + bound, &mut look) {
        Some(found) => (found, since.elapsed()),
        None => panic!("not within {bound:?}: {}", what()),
    }
}

/// As [`wait_for`] for who has something to end before it fails; nothing if it does not come.
pub fn comes<T>(mut look: impl FnMut() -> Option<T>) -> Option<T> {
    look_until(Instant::now() + PATIENCE, &mut look)
}

fn look_until<T>(end: Instant, look: &mut dyn FnMut() -> Option<T>) -> Option<T> {
    let mut pause = PAUSES.0;
    loop {
        let is_last = Instant::now() >= end;
        let found = look();
        if found.is_some() || is_last {
            return found;
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(PAUSES.1);
    }
}

/// The pause of a loop that looks again and again until it is told to end.
pub fn look_again_later() {
    std::thread::sleep(PAUSES.1);
}

/// Lets time pass where time is what is tested: what something costs in a second, or that nothing happens in it. Never for something
/// that is to come.
pub fn let_time_pass(span: Duration) {
    std::thread::sleep(span);
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn what_comes_is_given_with_its_time() {
        let mut looks = 0;
        let look = || {
            looks += 1;
            (looks == 5).then_some("it")
        };
        let (found, took) = within(PATIENCE, || "it never comes", look);
        assert_eq!(found, "it");
        assert!(took >= Duration::from_millis(1 + 2 + 4 + 8), "{took:?}");
        wait_until(|| "it holds", || true);
        assert_eq!(comes(|| Some(1)), Some(1));
    }

    #[test]
    #[should_panic(expected = "not within 10ms: nobody comes")]
    fn what_does_not_come_is_said() {
        within(Duration::from_millis(10), || "nobody comes", || None::<()>);
    }
}
