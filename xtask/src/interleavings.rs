//! `cargo xtask interleavings`: what threads share without a lock, under every order of their steps.

use std::path::Path;
use std::process::Command;

/// Rooms with such tests, and how many tests there are: one that is not run would not be missed otherwise.
const ROOMS: [(&str, usize); 2] = [("diecut-units", 4), ("diecut-blockspace", 3)];

/// Only what is tested, and who tries the orders, is optimized: everything else takes longer to optimize than the tests take.
const PROFILE: [&str; 5] = [
    "profile.dev.opt-level=0",
    "profile.dev.package.\"*\".opt-level=0",
    "profile.dev.package.loom.opt-level=2",
    "profile.dev.package.diecut-units.opt-level=1",
    "profile.dev.package.diecut-blockspace.opt-level=1",
];

/// Builds the rooms with loom's atomics, in a folder of their own, and runs the tests named `interleavings`.
///
/// # Errors
/// Says which room's tests fail, or are not all there.
pub fn run(root: &Path) -> Result<String, Vec<String>> {
    let mut problems = Vec::new();
    for (room, tests) in ROOMS {
        println!("cargo test -p {room} --lib interleavings, with loom's atomics");
        let output = Command::new("cargo")
            .args(PROFILE.iter().flat_map(|line| ["--config", line]))
            .args(["test", "--quiet", "-p", room, "--lib", "interleavings"])
            .current_dir(root)
            .env("RUSTFLAGS", "--cfg diecut_loom")
            .env("CARGO_TARGET_DIR", "target/interleavings")
            .output()
            .map_err(|error| vec![format!("cargo cannot run: {error}")])?;
        let said = String::from_utf8_lossy(&output.stdout);
        if !output.status.success() {
            problems.push(format!("{room}: {said}{}", String::from_utf8_lossy(&output.stderr)));
        } else if !said.contains(&format!("test result: ok. {tests} passed")) {
            problems.push(format!("{room}: {tests} tests are expected: {said}"));
        }
    }
    let tests: usize = ROOMS.iter().map(|(_, tests)| tests).sum();
    if problems.is_empty() { Ok(format!("interleavings: {tests} tests")) } else { Err(problems) }
}
