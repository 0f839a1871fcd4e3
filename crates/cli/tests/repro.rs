//! `diecut repro` as users call it: what it lists, what it writes, and what it says when it cannot.

use std::process::{Command, Output};

fn diecut(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_diecut")).args(arguments).output().expect("the program starts")
}

#[test]
fn an_experiment_writes_its_files_and_prints_json() {
    let scratch = tempfile::tempdir().unwrap();
    let folder = scratch.path().join("out");
    let out = folder.to_str().unwrap();
    let run = diecut(&["--json", "repro", "run", "swap-period", "--quick", "--seeds", "1", "--out", out]);
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let printed: serde_json::Value = serde_json::from_slice(&run.stdout).unwrap();
    assert_eq!(printed["experiment"], "swap-period");
    let written = std::fs::read_to_string(folder.join("swap-period.json")).unwrap();
    assert_eq!(written.as_bytes(), run.stdout);
    assert!(std::fs::read_to_string(folder.join("swap-period.svg")).unwrap().starts_with("<svg"));
    let listed: serde_json::Value =
        serde_json::from_slice(&diecut(&["repro", "list", "--json"]).stdout).unwrap();
    assert!(listed.as_array().unwrap().iter().any(|one| one["name"] == "swap-period"));
}

/// The figures of a small run are those of a small device, but who lives longest shows.
#[test]
fn lifetime_and_migration_say_what_came_out_beside_what_was_published() {
    let scratch = tempfile::tempdir().unwrap();
    let out = scratch.path().to_str().unwrap();
    let run = diecut(&["repro", "run", "lifetime", "migration", "--quick", "--seeds", "1", "--out", out]);
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let said = String::from_utf8_lossy(&run.stderr);
    assert!(
        said.contains("lifetime: ") && said.contains("migration: seed 1, reads, migration 78.9 MB/s"),
        "{said}"
    );
    let read = |name: &str| -> serde_json::Value {
        let text = std::fs::read_to_string(scratch.path().join(name)).unwrap();
        serde_json::from_str(&text).unwrap()
    };
    let lifetime = read("lifetime.json");
    let of_ideal = |name: &str| {
        let rows = lifetime["tables"][0]["rows"].as_array().unwrap();
        let row = rows.iter().find(|row| row[2] == name && row[1] == "alike").expect("a row for each rule");
        row[3].as_f64().unwrap()
    };
    assert!((6.0..6.5).contains(&of_ideal("no leveling")), "one of 16 channels");
    assert!(of_ideal("ours") > of_ideal("the paper's rule") && of_ideal("ours") > 90.0);
    let migration = read("migration.json");
    for row in migration["tables"][1]["rows"].as_array().unwrap() {
        assert!(row[2]["mean"].as_f64().unwrap() > 0.0 && row[3]["mean"].as_f64().unwrap() > 1.0, "{row}");
    }
}

#[test]
fn what_cannot_be_done_is_said_before_anything_runs() {
    let scratch = tempfile::tempdir().unwrap();
    let out = scratch.path().to_str().unwrap();
    let unknown = diecut(&["repro", "run", "swap-period", "lifetme", "--out", out]);
    assert!(!unknown.status.success());
    let said = String::from_utf8_lossy(&unknown.stderr).into_owned();
    assert!(said.contains("\"lifetme\"") && said.contains("there are: "), "{said}");
    assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), 0);
    let file = scratch.path().join("file");
    std::fs::write(&file, "").unwrap();
    let blocked = diecut(&["repro", "run", "swap-period", "--out", file.to_str().unwrap()]);
    assert!(!blocked.status.success());
    let said = String::from_utf8_lossy(&blocked.stderr).into_owned();
    assert!(said.starts_with("error: folder ") && said.contains("cannot be made"), "{said}");
    assert!(!diecut(&["repro", "run", "swap-period", "--seeds", "0"]).status.success());
}
