//! Coverage marks and planted bugs, for simulators and tests. Both cost nothing unless their feature is on.
//!
//! A *mark* counts how often a rare branch was taken ("cleaner chose a victim while the power failed"), so
//! that a set of simulated runs can show that it got there. A *mutant* is a bug planted on purpose at a place
//! where a checker must notice it; at most one is active in a thread, chosen by name at run time, so that one
//! build holds them all. Every list is per thread: simulated runs of different threads do not meet.

/// Counts one visit of a rare branch: `mark!("log: padding at flush")`. Nothing without the feature `marks`.
#[macro_export]
macro_rules! mark {
    ($name:literal) => {
        $crate::marks::hit($name)
    };
}

/// Whether the planted bug of this name is active: `if mutant!("log: fresh sequence for cleaner copies") { .. }`.
/// A constant `false` without the feature `mutants`.
#[macro_export]
macro_rules! mutant {
    ($name:literal) => {
        $crate::marks::mutant_is_active($name)
    };
}

/// Counts a visit; see [`mark!`].
#[cfg(not(feature = "marks"))]
#[inline(always)]
pub fn hit(_name: &'static str) {}

/// See [`mutant!`].
#[cfg(not(feature = "mutants"))]
#[inline(always)]
pub const fn mutant_is_active(_name: &'static str) -> bool {
    false
}

#[cfg(feature = "marks")]
thread_local! {
    static HITS: std::cell::RefCell<std::collections::BTreeMap<&'static str, u64>> =
        const { std::cell::RefCell::new(std::collections::BTreeMap::new()) };
}

/// Counts a visit; see [`mark!`].
#[cfg(feature = "marks")]
pub fn hit(name: &'static str) {
    HITS.with_borrow_mut(|hits| *hits.entry(name).or_insert(0) += 1);
}

/// Takes this thread's counts since the last call, by name. Empty without the feature `marks`.
pub fn take_hits() -> std::collections::BTreeMap<&'static str, u64> {
    #[cfg(feature = "marks")]
    return HITS.with_borrow_mut(std::mem::take);
    #[cfg(not(feature = "marks"))]
    std::collections::BTreeMap::new()
}

/// The variable of the environment that plants a bug in all threads of a process whose build carries mutants.
pub const PLANTED: &str = "DIECUT_PLANTED_BUG";

#[cfg(feature = "mutants")]
thread_local! {
    static ACTIVE: std::cell::RefCell<Option<String>> = std::cell::RefCell::new(std::env::var(PLANTED).ok());
    static REACHED: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// See [`mutant!`].
#[cfg(feature = "mutants")]
pub fn mutant_is_active(name: &'static str) -> bool {
    let active = ACTIVE.with_borrow(|active| active.as_deref() == Some(name));
    if active {
        REACHED.set(REACHED.get() + 1);
    }
    active
}

/// Plants one bug in this thread, or none. Returns whether this build carries mutants at all.
pub fn plant_mutant(name: Option<&str>) -> bool {
    #[cfg(feature = "mutants")]
    {
        ACTIVE.with_borrow_mut(|active| *active = name.map(str::to_owned));
        REACHED.set(0);
        true
    }
    #[cfg(not(feature = "mutants"))]
    {
        let _ = name;
        false
    }
}

/// How often this thread passed the planted bug since it was planted: 0 means that a run never reached it.
pub fn mutant_reached_count() -> u64 {
    #[cfg(feature = "mutants")]
    return REACHED.get();
    #[cfg(not(feature = "mutants"))]
    0
}

#[cfg(all(test, feature = "marks", feature = "mutants"))]
mod test {
    use super::*;

    #[test]
    fn marks_count_and_are_taken_once() {
        crate::mark!("test: a");
        crate::mark!("test: a");
        assert_eq!(take_hits().get("test: a"), Some(&2));
        assert!(take_hits().is_empty());
    }

    #[test]
    fn one_mutant_at_a_time() {
        assert!(!crate::mutant!("test: x"));
        assert!(plant_mutant(Some("test: x")));
        assert!(crate::mutant!("test: x") && !crate::mutant!("test: y"));
        assert_eq!(mutant_reached_count(), 1);
        plant_mutant(None);
        assert!(!crate::mutant!("test: x"));
    }
}
