//! Goal: the lists of coverage marks and of planted bugs are those of the code. Method: all sources are searched for `mark!` and
//! `mutant!`.

use diecut_sim::complete::Marks;
use diecut_sim::mutants::{BEHIND_OTHERS, CAUGHT_ELSEWHERE, MUTANTS};
use std::collections::BTreeSet;
use std::path::Path;

fn search(folder: &Path, call: &str, found: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).expect("the tree is readable") {
        let path = entry.expect("readable").path();
        if path.is_dir() {
            search(&path, call, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).expect("readable");
            // Not in comments, and not those of the tests of marks themselves.
            let code: Vec<&str> = text.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
            for piece in code.join("\n").split(call).skip(1) {
                let name = piece.trim_start().strip_prefix('"').and_then(|rest| rest.split('"').next());
                found.extend(name.filter(|name| !name.starts_with("test: ")).map(str::to_owned));
            }
        }
    }
}

fn crates() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("crates are in a folder")
}

/// Names in calls of a macro in all rooms.
fn named_in(call: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for folder in [crates().to_owned(), crates().with_file_name("apps")] {
        for room in std::fs::read_dir(folder).expect("the tree is readable") {
            search(&room.expect("readable").path().join("src"), call, &mut found);
        }
    }
    found
}

/// And a bug that seeds do not catch is planted by the test that is named for it.
#[test]
fn every_planted_bug_is_listed_once_with_what_catches_it() {
    let found = named_in("mutant!(");
    let by_seeds = MUTANTS.iter().map(|mutant| mutant.name);
    let elsewhere = CAUGHT_ELSEWHERE.iter().map(|(name, ..)| *name);
    let all: Vec<&str> =
        by_seeds.chain(elsewhere).chain(BEHIND_OTHERS.iter().map(|(name, _)| *name)).collect();
    let listed: BTreeSet<String> = all.iter().map(|name| (*name).to_owned()).collect();
    assert_eq!(listed.len(), all.len(), "a planted bug is listed once");
    let missing: Vec<_> = found.difference(&listed).collect();
    let gone: Vec<_> = listed.difference(&found).collect();
    assert!(missing.is_empty() && gone.is_empty(), "not in a list: {missing:?}; not in the code: {gone:?}");
    let tree = crates().parent().expect("the folder is in the tree");
    for (name, file, _) in CAUGHT_ELSEWHERE {
        let text = std::fs::read_to_string(tree.join(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
        assert!(text.contains(&format!("\"{name}\"")), "{file} does not plant \"{name}\"");
    }
}

#[test]
fn every_mark_of_the_code_is_listed_and_no_other() {
    let found = named_in("mark!(");
    let marks = Marks::listed();
    let listed: BTreeSet<String> = marks.set.iter().chain(marks.elsewhere.keys()).cloned().collect();
    assert_eq!(listed.len(), marks.set.len() + marks.elsewhere.len(), "a mark is listed once");
    let missing: Vec<_> = found.difference(&listed).collect();
    let gone: Vec<_> = listed.difference(&found).collect();
    assert!(missing.is_empty() && gone.is_empty(), "not in the list: {missing:?}; not in the code: {gone:?}");
}
