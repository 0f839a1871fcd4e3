//! Goal: bugs that were found once stay found. Method: every entry of the seed bank is played; entries that name a
//! planted bug must catch it (builds with the feature `mutants`), all others must be clean.

use diecut_sim::bank::Entry;
use diecut_sim::guard::run_twice;
use diecut_sim::systems;
use diecut_units::marks;

#[test]
fn every_entry_of_the_bank_keeps_its_story() {
    let mut played = 0;
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/seeds");
    for file in std::fs::read_dir(folder).expect("the bank is in the tree") {
        let path = file.expect("readable").path();
        let text = std::fs::read_to_string(&path).expect("readable");
        let entry = Entry::parse(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let plans = entry.plans().unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let factory = systems::factory(&entry.system).expect("a known system");
        let planted = marks::plant_mutant(entry.mutant.as_deref());
        if entry.mutant.is_some() && !planted {
            eprintln!("{}: skipped, this build carries no planted bugs", path.display());
            continue;
        }
        let mut violations = plans.iter().map(|plan| run_twice(plan, &*factory).violations);
        let violations = violations.find(|violations| !violations.is_empty()).unwrap_or_default();
        marks::plant_mutant(None);
        assert_eq!(!violations.is_empty(), entry.mutant.is_some(), "{}: {violations:?}", path.display());
        played += 1;
    }
    assert!(played > 0);
}
