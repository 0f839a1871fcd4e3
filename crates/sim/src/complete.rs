//! What a set of seeds must have shown to count: in each seed an overwrite of the device, a cleaner cycle, a cut and two
//! tenants; over the set, every coverage mark that is listed for it.

use crate::plan::Plan;
use crate::run::Outcome;
use crate::set::SetReport;
use serde::Deserialize;
use std::collections::BTreeMap;

/// The list of the tree.
const LIST: &str = include_str!("../marks.toml");

/// Coverage marks of all rooms.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Marks {
    /// Hit over the seeds that continuous integration runs.
    pub set: Vec<String>,
    /// Reached by other tests: which.
    pub elsewhere: BTreeMap<String, String>,
}

impl Marks {
    /// The list of the tree.
    ///
    /// # Panics
    /// If it is no list: our own bug.
    pub fn listed() -> Marks {
        toml::from_str(LIST).expect("marks.toml is a list of marks")
    }

    /// Whether a mark is listed.
    pub fn knows(&self, name: &str) -> bool {
        self.set.iter().any(|known| known == name) || self.elsewhere.contains_key(name)
    }
}

/// What a seed lacks of what every seed must have; empty for one that counts.
pub fn lacks(plan: &Plan, outcome: &Outcome) -> Vec<&'static str> {
    let wear = outcome.wear.unwrap_or_default();
    let residents = plan.tenants.iter().filter(|tenant| !tenant.guest).count();
    let all = [
        (wear.raw_ius > 0 && wear.programmed_ius >= wear.raw_ius, "an overwrite of the device"),
        (wear.cleaned_ius > 0, "a cleaner cycle"),
        (outcome.power_cuts > 1, "a cut before the last one"),
        (residents >= 2, "two tenants"),
    ];
    all.into_iter().filter(|(has, _)| !has).map(|(_, what)| what).collect()
}

/// What a set lacks, in lines: marks that were not hit, and marks that are not listed.
pub fn shortcomings(report: &SetReport) -> Vec<String> {
    let marks = Marks::listed();
    let mut lines = Vec::new();
    for (seed, lacking) in &report.lacking {
        lines.push(format!("seed {seed} lacks {}", lacking.join(", ")));
    }
    for name in marks.set.iter().filter(|name| !report.marks.contains_key(name.as_str())) {
        lines.push(format!("coverage mark \"{name}\" was not hit by any seed"));
    }
    for name in report.marks.keys().filter(|name| !marks.knows(name)) {
        lines.push(format!("coverage mark \"{name}\" is not in crates/sim/marks.toml"));
    }
    lines
}
