//! Goal: the list of coverage marks is that of the code. Method: all sources are searched for `mark!`.

use diecut_sim::complete::Marks;
use std::collections::BTreeSet;
use std::path::Path;

fn search(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).expect("the tree is readable") {
        let path = entry.expect("readable").path();
        if path.is_dir() {
            search(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).expect("readable");
            // Not in comments, and not those of the tests of marks themselves.
            let code: Vec<&str> = text.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
            for piece in code.join("\n").split("mark!(").skip(1) {
                let name = piece.trim_start().strip_prefix('"').and_then(|rest| rest.split('"').next());
                found.extend(name.filter(|name| !name.starts_with("test: ")).map(str::to_owned));
            }
        }
    }
}

#[test]
fn every_mark_of_the_code_is_listed_and_no_other() {
    let mut found = BTreeSet::new();
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("crates are in a folder");
    for room in std::fs::read_dir(crates).expect("the tree is readable") {
        search(&room.expect("readable").path().join("src"), &mut found);
    }
    let marks = Marks::listed();
    let listed: BTreeSet<String> = marks.set.iter().chain(marks.elsewhere.keys()).cloned().collect();
    assert_eq!(listed.len(), marks.set.len() + marks.elsewhere.len(), "a mark is listed once");
    let missing: Vec<_> = found.difference(&listed).collect();
    let gone: Vec<_> = listed.difference(&found).collect();
    assert!(missing.is_empty() && gone.is_empty(), "not in the list: {missing:?}; not in the code: {gone:?}");
}
