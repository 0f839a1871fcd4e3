//! Goal: the runner and its checkers pass an honest system and catch every dishonest one.
//! Method: a small model system that breaks one promise on request, under generated plans.

use diecut_sim::generate::{Shape, generate};
use diecut_sim::guard::{Factory, cut_at_every_operation, run_guarded, run_twice};
use diecut_sim::model::{ALL_BUGS, Model, ModelBug};
use diecut_sim::oracle::Finding;
use diecut_sim::plan::Plan;
use diecut_sim::shrink::shrink;
use diecut_sim::system::System;
use diecut_sim::systems;
use std::collections::BTreeSet;

fn shape() -> Shape {
    Shape { volume_ius: 256, command_max_ius: 8, ..Shape::default() }
}

fn factory(bug: ModelBug) -> impl Fn(&Plan) -> Result<Box<dyn System>, String> + Sync {
    move |plan| Ok(Box::new(Model::new(plan, bug)) as Box<dyn System>)
}

#[test]
fn an_honest_system_passes_and_runs_the_same_twice() {
    for seed in 0..100 {
        let outcome = run_twice(&generate(seed, &shape()), &factory(ModelBug::None));
        assert_eq!(outcome.violations, [], "seed {seed}");
        assert!(outcome.power_cuts >= 2 && outcome.commands > 100, "seed {seed}: {outcome:?}");
    }
}

/// What `diecut sim --system model` runs: larger than the plans above, so that shares are compared, too.
#[test]
fn the_seeds_of_the_command_line_pass() {
    let factory = systems::factory("model").expect("there is a model");
    let mut compared = 0;
    for seed in 0..30 {
        let outcome = run_guarded(&generate(seed, &systems::shape("model")), &*factory);
        assert_eq!(outcome.violations, [], "seed {seed}");
        compared += u32::from(outcome.least_share_permille.is_some());
    }
    assert!(compared >= 4, "shares were compared {compared} times");
}

#[test]
fn every_broken_promise_is_found() {
    for bug in ALL_BUGS {
        let shape = match bug {
            // Shares are compared where a tenant has many blocks.
            ModelBug::ServesByDepth => systems::shape("model"),
            _ => shape(),
        };
        let found: BTreeSet<Finding> = (0..40)
            .map(|seed| run_guarded(&generate(seed, &shape), &factory(bug)))
            .find(|outcome| !outcome.violations.is_empty())
            .map(|outcome| outcome.violations.iter().map(|violation| violation.finding).collect())
            .unwrap_or_default();
        let allowed: &[Finding] = match bug {
            ModelBug::LosesTailAtPowerCut => &[Finding::LostAfterPowerCut, Finding::Resurrected],
            ModelBug::LosesTailAtDeath => &[Finding::LostAfterProcessDeath, Finding::Resurrected],
            ModelBug::ForgetsDeallocations => &[Finding::Resurrected],
            ModelBug::LateWrite => &[
                Finding::Stale,
                Finding::Resurrected,
                Finding::LostAfterPowerCut,
                Finding::LostAfterProcessDeath,
            ],
            ModelBug::Misdirects => &[Finding::Misdirected],
            ModelBug::CrossesVolumes => &[Finding::Foreign],
            // An end that was never there is lost where the first look at it comes after a cut.
            ModelBug::TearsWrites => &[
                Finding::Stale,
                Finding::Resurrected,
                Finding::LostAfterPowerCut,
                Finding::LostAfterProcessDeath,
            ],
            ModelBug::ForgetsCommand | ModelBug::NeverRests => &[Finding::Liveness],
            ModelBug::ComparesNothing => &[Finding::WrongAnswer],
            ModelBug::HidesPrograms => &[Finding::Conservation],
            ModelBug::CannotRecover => &[Finding::RecoveryFailed],
            ModelBug::Panics => &[Finding::Panic],
            ModelBug::ServesByDepth => &[Finding::Fairness],
            ModelBug::None => &[],
        };
        assert!(allowed.iter().any(|finding| found.contains(finding)), "{bug:?}: {found:?}");
    }
}

#[test]
fn a_failing_run_becomes_small() {
    let bug = factory(ModelBug::LosesTailAtPowerCut);
    let (seed, plan) = (0..40)
        .map(|seed| (seed, generate(seed, &shape())))
        .find(|(_, plan)| !run_guarded(plan, &bug).violations.is_empty())
        .expect("the bug is found");
    let shrunk = shrink(&plan, &bug, 2000, |_, _| {}).expect("it fails");
    assert!(
        shrunk.plan.steps.len() <= 4 && shrunk.plan.faults.len() <= 1,
        "seed {seed}: {} steps and {} faults left after {} runs",
        shrunk.plan.steps.len(),
        shrunk.plan.faults.len(),
        shrunk.runs
    );
    assert!(!run_guarded(&shrunk.plan, &bug).violations.is_empty());
}

/// A smaller plan that fails with the same kind of finding, but elsewhere, tells another story.
#[test]
fn a_run_becomes_small_only_as_long_as_it_fails_the_same_way() {
    let plan = generate(1, &shape());
    assert!(plan.steps.len() > 100 && !plan.faults.is_empty());
    let panics = |plan: &Plan| -> Result<Box<dyn System>, String> {
        let (steps, faults) = (plan.steps.len(), plan.faults.len());
        assert!(steps < 10, "the bug that was found, at step {steps} of {plan:?}");
        panic!("another one, with {faults} faults");
    };
    let refuses = |plan: &Plan| -> Result<Box<dyn System>, String> {
        let steps = plan.steps.len();
        Err(if steps < 10 { format!("{steps} are few") } else { format!("{steps} are many (\"{steps}\")") })
    };
    for factory in [&panics as &dyn Factory, &refuses] {
        let shrunk = shrink(&plan, factory, 2000, |_, _| {}).expect("it fails");
        assert_eq!((shrunk.plan.steps.len(), shrunk.plan.faults.len()), (10, 0), "in {} runs", shrunk.runs);
    }
}

#[test]
fn a_cut_at_every_operation_is_one_run_each() {
    let mut plan = generate(3, &shape());
    plan.steps.truncate(60);
    let (runs, failures) = cut_at_every_operation(&plan, &factory(ModelBug::None), 1, |_, _| {});
    assert!(runs > 60 && failures.is_empty(), "{runs} runs");
    let (_, failures) = cut_at_every_operation(&plan, &factory(ModelBug::LosesTailAtPowerCut), 1, |_, _| {});
    assert!(!failures.is_empty());
}
