//! Bugs that are planted (`mutant!`) and that a test must notice.

use diecut_units::marks::{mutant_reached_count, plant_mutant};

/// Runs a scenario with a bug planted: it must come to the place of the bug, and fail.
///
/// # Panics
/// If the scenario passes, or does not reach the bug.
#[track_caller]
pub fn is_noticed<T>(name: &str, scenario: impl FnOnce() -> T) {
    assert!(plant_mutant(Some(name)), "this build carries planted bugs");
    let noticed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| _ = scenario())).is_err();
    let reached = mutant_reached_count();
    plant_mutant(None);
    assert!(reached > 0, "{name} was reached");
    assert!(noticed, "{name}");
}

/// The same for many.
///
/// # Panics
/// As [`is_noticed`].
#[track_caller]
pub fn all_are_noticed(scenarios: &[(&str, fn())]) {
    scenarios.iter().for_each(|(name, scenario)| is_noticed(name, scenario));
}

#[cfg(test)]
mod test {
    use super::is_noticed;
    use diecut_units::mutant;

    #[test]
    fn a_scenario_that_fails_with_the_bug_is_fine() {
        is_noticed("test: a bug", || assert!(!mutant!("test: a bug")));
    }

    #[test]
    #[should_panic(expected = "test: a bug")]
    fn a_scenario_that_passes_with_the_bug_is_not() {
        is_noticed("test: a bug", || mutant!("test: a bug"));
    }

    #[test]
    #[should_panic(expected = "test: a bug was reached")]
    fn a_scenario_that_fails_without_the_bug_is_not() {
        is_noticed("test: a bug", || panic!("something else"));
    }
}
