//! `cargo xtask fuzz`: builds every target of `fuzz/` with coverage counters, writes the seeds of its corpus, and runs it for
//! so many seconds. A target that cannot be built, has no seeds, counts no coverage or finds something is a failure.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;

/// What the compiler adds so that libFuzzer sees which edges an input took and what was compared. The flags reach the
/// targets only: with `--target`, build scripts and macros are built without them.
const COVERAGE: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares";

/// Longest input. Longer ones only make runs slower: the largest structure that is read is a page.
const INPUT_SIZE_MAX_BYTES: u32 = 16384;
/// A target that holds more memory than this has found something.
const MEMORY_MAX_MIB: u32 = 1024;
/// An input that takes longer than this has found something.
const INPUT_TIME_MAX_S: u32 = 20;

/// What is to be fuzzed, and for how long.
#[derive(Debug, PartialEq, Eq)]
pub struct Wish {
    /// Wall time of each target.
    seconds: u32,
    /// Targets; empty for all.
    targets: Vec<String>,
    /// What libFuzzer draws its changes from; another one each time if absent.
    seed: Option<u32>,
}

impl Wish {
    /// Every target.
    pub fn all(seconds: u32, seed: Option<u32>) -> Wish {
        Wish { seconds, targets: Vec::new(), seed }
    }
    /// From `[--seconds N] [--seed N] [TARGET...]`.
    ///
    /// # Errors
    /// Says what is wrong.
    pub fn parse(arguments: &[&str]) -> Result<Wish, Vec<String>> {
        let mut wish = Wish::all(10, None);
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            if *argument == "--seconds" {
                let number = rest.next().and_then(|text| text.parse().ok()).filter(|&seconds| seconds > 0);
                wish.seconds = number.ok_or(vec!["--seconds needs a number, 1 or more".to_owned()])?;
            } else if *argument == "--seed" {
                let number = rest.next().and_then(|text| text.parse().ok());
                wish.seed = Some(number.ok_or(vec!["--seed needs a number".to_owned()])?);
            } else {
                wish.targets.push((*argument).to_owned());
            }
        }
        Ok(wish)
    }
}

/// Builds and runs.
///
/// # Errors
/// Names each target that failed, and the file with the input that shows it.
pub fn run(root: &Path, wish: &Wish) -> Result<String, Vec<String>> {
    let all = targets(root)?;
    if let Some(unknown) = wish.targets.iter().find(|wanted| !all.contains(wanted)) {
        return Err(vec![format!("there is no fuzz target {unknown}; there are: {}", all.join(", "))]);
    }
    let wanted = if wish.targets.is_empty() { all } else { wish.targets.clone() };
    let programs = build(root, &wanted)?;
    println!("{} targets, {} s each, {INPUT_SIZE_MAX_BYTES} bytes at most", wanted.len(), wish.seconds);
    println!("{:<20} {:>8} {:>12} {:>10}", "target", "edges", "inputs", "corpus");
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get()).min(wanted.len());
    let waiting = Mutex::new(wanted.iter().rev().collect::<Vec<_>>());
    let problems = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                loop {
                    let next = waiting.lock().expect("nobody panics with it").pop();
                    let Some(target) = next else { break };
                    match run_one(root, &programs.join(target), target, wish) {
                        Ok(line) => println!("{line}"),
                        Err(problem) => problems.lock().expect("nobody panics with it").push(problem),
                    }
                }
            });
        }
    });
    let problems = problems.into_inner().expect("nobody panicked with it");
    if problems.is_empty() {
        Ok(format!("fuzz: {} targets found nothing", wanted.len()))
    } else {
        Err(problems)
    }
}

/// Every file of `fuzz/src/bin` is a target.
fn targets(root: &Path) -> Result<Vec<String>, Vec<String>> {
    let folder = root.join("fuzz/src/bin");
    let entries =
        std::fs::read_dir(&folder).map_err(|error| vec![format!("{}: {error}", folder.display())])?;
    let mut names: Vec<String> =
        entries.filter_map(|entry| entry.ok()?.path().file_stem()?.to_str().map(str::to_owned)).collect();
    names.sort();
    if names.is_empty() { Err(vec![format!("{}: no fuzz target", folder.display())]) } else { Ok(names) }
}

/// The folder of the programs.
fn build(root: &Path, targets: &[String]) -> Result<PathBuf, Vec<String>> {
    let (mut command, programs) = cargo(root, "build")?;
    command.args(targets.iter().flat_map(|target| ["--bin", target]));
    let status = command.status().map_err(|error| vec![format!("cargo cannot run: {error}")])?;
    if status.success() {
        Ok(programs)
    } else {
        Err(vec!["fuzz targets cannot be built; if a C++ compiler is missing: make setup".to_owned()])
    }
}

/// What the lints say of the targets. They are a workspace of their own: without this, what they use of the rooms can change and nothing says so for
/// an hour. The fuzzer's C++ source is compiled once for this and for the build.
///
/// # Errors
/// That they say something.
pub fn lint(root: &Path) -> Result<(), Vec<String>> {
    let (mut command, _) = cargo(root, "clippy")?;
    command.args(["--", "-D", "warnings"]);
    let status = command.status().map_err(|error| vec![format!("cargo cannot run: {error}")])?;
    if status.success() { Ok(()) } else { Err(vec!["cargo clippy of fuzz/ failed".to_owned()]) }
}

/// Cargo with coverage counters, in a target folder of its own, and where it puts programs.
fn cargo(root: &Path, what: &str) -> Result<(Command, PathBuf), Vec<String>> {
    let version = Command::new("rustc").arg("-vV").current_dir(root).output();
    let version = version.map_err(|error| vec![format!("rustc cannot run: {error}")])?;
    let version = String::from_utf8_lossy(&version.stdout).into_owned();
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    let host = host.ok_or(vec!["rustc -vV names no host".to_owned()])?;
    let folder = root.join("target/fuzz");
    let mut command = Command::new("cargo");
    command.args([what, "--quiet", "--manifest-path", "fuzz/Cargo.toml", "--target", host]);
    command.env("RUSTFLAGS", COVERAGE).env("CARGO_TARGET_DIR", &folder).current_dir(root);
    Ok((command, folder.join(host).join("debug")))
}

fn run_one(root: &Path, program: &Path, target: &str, wish: &Wish) -> Result<String, String> {
    let folder = |kind: &str| {
        let path = root.join("fuzz").join(kind).join(target);
        std::fs::create_dir_all(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok::<PathBuf, String>(path)
    };
    let (corpus, artifacts) = (folder("corpus")?, folder("artifacts")?);
    let seeded = Command::new(program).env("DIECUT_FUZZ_SEEDS", &corpus).stderr(Stdio::null()).status();
    if !seeded.is_ok_and(|status| status.success()) {
        return Err(format!("fuzz target {target} cannot make its seeds"));
    }
    let output = Command::new(program)
        .arg(format!("-max_total_time={}", wish.seconds))
        .arg(format!("-max_len={INPUT_SIZE_MAX_BYTES}"))
        .arg(format!("-rss_limit_mb={MEMORY_MAX_MIB}"))
        .arg(format!("-timeout={INPUT_TIME_MAX_S}"))
        .arg(format!("-artifact_prefix={}/", artifacts.display()))
        .args(wish.seed.map(|seed| format!("-seed={seed}")))
        .arg(&corpus)
        .stdout(Stdio::null())
        .output()
        .map_err(|error| format!("fuzz target {target} cannot run: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        // The panic and the place of the input, not libFuzzer's own stack.
        let lines = said.lines().filter(|line| {
            ["panicked at", "Test unit", "Base64", "ERROR"].iter().any(|word| line.contains(word))
        });
        let message = said.lines().skip_while(|line| !line.contains("panicked at")).nth(1).unwrap_or("");
        let lines: Vec<&str> = lines.chain([message]).collect();
        let lines = lines.join("\n    ");
        let program = program.display();
        return Err(format!("fuzz target {target} found something; {program} FILE replays it:\n    {lines}"));
    }
    let summary = Summary::of(&said);
    match summary {
        Some(Summary { edges, inputs, corpus }) if edges > 0 && inputs > 0 => {
            Ok(format!("{target:<20} {edges:>8} {inputs:>12} {corpus:>10}"))
        }
        _ => Err(format!("fuzz target {target} counts no coverage: was it built with other flags?")),
    }
}

/// What libFuzzer says at the end: `#1234 DONE   cov: 48 ft: 81 corp: 9/201b ...`.
#[derive(Debug, PartialEq, Eq)]
struct Summary {
    edges: u64,
    inputs: u64,
    corpus: u64,
}

impl Summary {
    fn of(said: &str) -> Option<Summary> {
        let line = said.lines().rfind(|line| line.starts_with('#') && line.contains("DONE"))?;
        let words: Vec<&str> = line.split_whitespace().collect();
        let after = |name: &str| {
            let at = words.iter().position(|word| *word == name)?;
            words.get(at + 1)?.split('/').next()?.parse().ok()
        };
        let inputs = words.first()?.trim_start_matches('#').parse().ok()?;
        Some(Summary { edges: after("cov:")?, inputs, corpus: after("corp:")? })
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn the_last_line_is_read_and_a_run_without_counters_is_seen() {
        let said = "#3\tINITED cov: 4 ft: 4\n#766\tDONE   cov: 48 ft: 81 corp: 9/201b lim: 8192 exec/s: 10 rss: 27Mb\n";
        assert_eq!(Summary::of(said), Some(Summary { edges: 48, inputs: 766, corpus: 9 }));
        // Without counters there is no "cov:".
        assert_eq!(Summary::of("#766\tDONE   exec/s: 10 rss: 27Mb\n"), None);
    }

    #[test]
    fn wishes_are_read() {
        let wish = Wish::parse(&["--seconds", "3", "--seed", "7", "log_head"]).unwrap();
        assert_eq!(wish, Wish { seconds: 3, targets: vec!["log_head".to_owned()], seed: Some(7) });
        assert!(Wish::parse(&["--seconds", "soon"]).is_err());
    }
}
