//! Runs that survive a panic of the system: an assert that fires is a finding like any other.

use crate::oracle::{Finding, Violation};
use crate::plan::{FaultKind, Plan, When};
use crate::run::{Outcome, run};
use crate::system::System;
use diecut_units::marks;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

thread_local! {
    static CAUGHT: RefCell<Option<String>> = const { RefCell::new(None) };
    static GUARDED: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

static HOOK: Once = Once::new();

/// Makes fresh systems for plans. A factory is shared by the threads of a set of runs.
pub trait Factory: Sync {
    /// A fresh system, with the plan's faults of the medium armed.
    ///
    /// # Errors
    /// What could not be set up (a plan that the device cannot hold).
    fn make(&self, plan: &Plan) -> Result<Box<dyn System>, String>;
}

impl<F: Fn(&Plan) -> Result<Box<dyn System>, String> + Sync> Factory for F {
    fn make(&self, plan: &Plan) -> Result<Box<dyn System>, String> {
        self(plan)
    }
}

/// Runs a plan on a fresh system; a panic becomes a violation. Collects this thread's coverage marks.
pub fn run_guarded(plan: &Plan, factory: &dyn Factory) -> Outcome {
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if GUARDED.get() {
                CAUGHT.set(Some(info.to_string()));
            } else {
                before(info);
            }
        }));
    });
    let _ = marks::take_hits();
    GUARDED.set(true);
    let result = catch_unwind(AssertUnwindSafe(|| {
        let mut system = factory.make(plan)?;
        let outcome = run(plan, &mut *system);
        drop(system);
        Ok::<Outcome, String>(outcome)
    }));
    GUARDED.set(false);
    let mut outcome = match result {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(detail)) => failed(Finding::RecoveryFailed, format!("set-up: {detail}")),
        Err(_) => failed(Finding::Panic, CAUGHT.take().unwrap_or_default()),
    };
    outcome.mutant_reached = marks::mutant_reached_count();
    outcome.marks = marks::take_hits();
    outcome
}

fn failed(finding: Finding, detail: String) -> Outcome {
    Outcome { violations: vec![Violation::said(finding, detail)], ..Outcome::default() }
}

/// Runs a plan twice and compares trace and medium, bit for bit.
pub fn run_twice(plan: &Plan, factory: &dyn Factory) -> Outcome {
    let mut first = run_guarded(plan, factory);
    let second = run_guarded(plan, factory);
    if (first.trace_hash, first.image_hash, first.virtual_time_ns)
        != (second.trace_hash, second.image_hash, second.virtual_time_ns)
    {
        let detail = format!(
            "trace {:016x} then {:016x}, image {:016x} then {:016x}",
            first.trace_hash, second.trace_hash, first.image_hash, second.image_hash
        );
        first.violations.push(Violation::seen(Finding::NotDeterministic, detail));
    }
    first
}

/// Cuts the power at every operation of the medium of a short plan, each time in a run of its own, and never otherwise. Returns
/// the number of runs and the first failures: the operation and what was found; no operation if the plan fails without a cut.
pub fn cut_at_every_operation(
    plan: &Plan,
    factory: &dyn Factory,
    stride: u64,
    mut progress: impl FnMut(u64, u64),
) -> (u64, Vec<(Option<u64>, Outcome)>) {
    let mut base = plan.clone();
    base.faults.retain(|fault| !matches!(fault.what, FaultKind::PowerCut | FaultKind::ProcessDeath));
    base.aftermath = None;
    (base.siege, base.loss) = (None, None);
    let whole = run_guarded(&base, factory);
    let mut failures = Vec::new();
    if !whole.violations.is_empty() {
        failures.push((None, whole));
        return (1, failures);
    }
    let mut runs = 1;
    let mut nth = 0;
    while nth < whole.media_operations && failures.len() < 3 {
        let mut cut = base.clone();
        cut.faults
            .push(crate::plan::PlannedFault { when: When::MediaOperation(nth), what: FaultKind::PowerCut });
        let outcome = run_guarded(&cut, factory);
        runs += 1;
        progress(nth, whole.media_operations);
        if !outcome.violations.is_empty() {
            failures.push((Some(nth), outcome));
        }
        nth += stride.max(1);
    }
    (runs, failures)
}
