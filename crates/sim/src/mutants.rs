//! Planted bugs: each must be caught, or the simulator is broken.

use crate::generate::Shape;
use crate::guard::Factory;
use crate::oracle::Finding;
use crate::set::{SetOptions, run_seed};

/// A planted bug (`mutant!` of the rooms).
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub struct Mutant {
    /// Name at its place in the code.
    pub name: &'static str,
    /// What it does wrong.
    pub story: &'static str,
}

/// What became of one mutant.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Verdict {
    /// Its name.
    pub name: &'static str,
    /// The seed that caught it, and what was found.
    pub caught: Option<(u64, Finding)>,
    /// Seeds tried.
    pub seeds: u64,
    /// Whether any run passed the place of the bug.
    pub reached: bool,
}

/// The planted bugs of the rooms, all of them; a room that plants one adds a line. Those of the transport need a
/// system with connections.
pub const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "target: late write of an old association",
        story: "a host's new association is accepted while writes of its old one are still under way",
    },
    Mutant { name: "target: data out of order", story: "H2CData at the wrong offset is accepted" },
    Mutant { name: "target: data digest ignored", story: "a wrong data digest passes" },
    Mutant {
        name: "target: ready falls too early",
        story: "a controller reset is reported done while commands are under way",
    },
];

/// The bugs of the model system: the check of the checkers.
pub fn model_mutants() -> Vec<Mutant> {
    crate::model::ALL_BUGS
        .into_iter()
        .map(|bug| Mutant { name: bug.name(), story: "a promise that the model system breaks" })
        .collect()
}

/// Looks for a seed that catches the mutant, among `seeds`.
pub fn hunt(mutant: &Mutant, seeds: std::ops::Range<u64>, shape: &Shape, factory: &dyn Factory) -> Verdict {
    let options = SetOptions { mutant: Some(mutant.name.to_owned()), ..SetOptions::default() };
    let mut verdict = Verdict { name: mutant.name, caught: None, seeds: 0, reached: false };
    for seed in seeds {
        let outcome = run_seed(seed, shape, factory, &options);
        verdict.seeds += 1;
        verdict.reached |= outcome.mutant_reached > 0;
        if let Some(violation) = outcome.violations.first() {
            verdict.caught = Some((seed, violation.finding));
            return verdict;
        }
    }
    verdict
}
