//! Goal: what POSIX says of files holds on the mount. Method: two suites that others wrote, in versions that scripts/setup.sh pins: fsx
//! (random reads, writes, truncates, maps of a file against one in memory) and pjdfstest (398 cases of calls, errors, owners and
//! times). What pjdfstest does not pass is listed with reasons in `pjdfstest-waivers.txt`, exactly.
#![allow(clippy::disallowed_methods, reason = "drives real processes")]

mod mounted;

use mounted::{Mount, run, tool};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

const OPERATIONS: u32 = 4000;
const SEEDS: u32 = 3;

#[test]
fn fsx_finds_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mount = Mount::embedded(&folder.path().join("mount"));
    let config = folder.path().join("fsx.toml");
    let weights = "close_open = 1\ninvalidate = 1\nfsync = 0.3\nfdatasync = 0.3\nposix_fallocate = 0.2\nsendfile = 1\n\
                   posix_fadvise = 1\ncopy_file_range = 1\n";
    std::fs::write(&config, format!("flen = 1000000\n[opsize]\nmax = 100000\n[weights]\n{weights}")).unwrap();
    let started = Instant::now();
    for seed in 1..=SEEDS {
        let mut fsx = Command::new("timeout");
        fsx.arg("100").arg(tool("fsx")).args(["-N", &OPERATIONS.to_string(), "-S", &seed.to_string(), "-f"]);
        let said = run(fsx.arg(&config).arg("-P").arg(folder.path()).arg(mount.path.join("fsx")));
        assert!(said.contains("All operations completed A-OK"), "seed {seed}: {said}");
    }
    println!("fsx: {} operations, {:.1} s", SEEDS * OPERATIONS, started.elapsed().as_secs_f64());
    mount.unmount();
}

/// Outcomes by the names of cases.
fn pjdfstest(config: &Path, at: &Path, second: &Path) -> BTreeMap<String, String> {
    let mut command = Command::new("timeout");
    command.arg("100").arg(tool("pjdfstest")).arg("-c").arg(config).arg("-p").arg(at).arg("-s").arg(second);
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("Summary: "), "{said}{}", String::from_utf8_lossy(&output.stderr));
    let words = said.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let outcomes = words.filter_map(|words| match words[..] {
        [name, outcome @ ("ok" | "FAILED" | "skipped")] => Some((name.to_owned(), outcome.to_owned())),
        _ => None,
    });
    outcomes.collect()
}

#[test]
fn pjdfstest_passes_but_for_waivers() {
    let folder = tempfile::tempdir().unwrap();
    let mount = Mount::embedded(&folder.path().join("mount"));
    let second = tempfile::tempdir_in("/dev/shm").unwrap();
    let config = folder.path().join("pjdfstest.toml");
    let text = "[features]\nposix_fallocate = {}\nrename_ctime = {}\nutimensat = {}\nutime_now = {}\n\
                [settings]\nnaptime = 0.01\nallow_remount = false\n\
                [dummy_auth]\nentries = [[\"nobody\", \"nogroup\"], [\"daemon\", \"daemon\"]]\n";
    std::fs::write(&config, text).unwrap();
    let work = mount.path.join("work");
    std::fs::create_dir(&work).unwrap();
    run(Command::new("chmod").arg("777").arg(&work));
    let started = Instant::now();
    let outcomes = pjdfstest(&config, &work, second.path());
    let waivers = include_str!("pjdfstest-waivers.txt").lines().filter(|line| !line.starts_with('#'));
    let waived: BTreeSet<&str> =
        waivers.filter_map(|line| line.split_once(": ")).map(|(name, _)| name).collect();
    let not_passed: BTreeSet<&str> =
        outcomes.iter().filter(|(_, outcome)| *outcome != "ok").map(|(name, _)| name.as_str()).collect();
    println!(
        "pjdfstest: {} of {} cases pass, {} waived, {:.1} s",
        outcomes.len() - not_passed.len(),
        outcomes.len(),
        waived.len(),
        started.elapsed().as_secs_f64()
    );
    assert_eq!(not_passed, waived, "{outcomes:?}");
    assert!(outcomes.len() > 390, "{} cases", outcomes.len());
    mount.unmount();
}
