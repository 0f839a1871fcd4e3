//! The stages of `make test` and of `make night`, one after another, also after a failure: each with a heading that says
//! what runs, and at the end a table of what each took.
#![expect(clippy::disallowed_methods, reason = "stages are timed")]

use std::io::{BufRead as _, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// What all stages together should need. Where those before have needed as much, seeds run for a quarter of their minutes, fuzz targets for a
/// second, of real hosts only what the first two guests show, and suites of others without a guest; each says so, and the end counts them.
const BUDGET: Duration = Duration::from_secs(40 * 60);

/// The variable by which tests know that none may be left out (`diecut_testing::needs`).
const NONE_LEFT_OUT: &str = "DIECUT_TEST_ALL";

/// By which tests know that loops of seeds go as far as in a night (`diecut_testing::depth`).
const DEEP: &str = "DIECUT_TEST_DEEP";

/// The programs of all tests, and with them the simulator. One build for all of them: `-p diecut-sim` has other features of what it
/// needs, and builds every room again.
const ALL_TESTS: &str = "cargo test --workspace --features diecut-sim/marks,diecut-sim/mutants";

/// The same without the benchmark, whose few tests are those of a tool beside the server, and which has all of the server compiled once more.
const TESTS: &str =
    "cargo test --workspace --exclude diecut-bench --features diecut-sim/marks,diecut-sim/mutants";

/// How many problems of a stage are told again behind the table.
const AGAIN: usize = 12;

/// What a stage does.
enum Work {
    /// Everything that `cargo xtask check` checks.
    Check,
    /// What threads share, under every order of steps.
    Interleavings,
    /// The pages as a book.
    Book,
    /// A command line, words separated by blanks.
    Run(&'static str),
    /// All tests, of which none may be left out: what the machine lacks makes its tests fail. Deep ones take their time.
    Tests { are_deep: bool },
    /// The simulator with marks and planted bugs, with these arguments, as the tests built it.
    Simulate(&'static str),
    /// As `Simulate`, for so many minutes.
    Seeds(&'static str, f64),
    /// All fuzz targets, so many seconds each; from a seed, or from another place each time.
    Fuzz(u32, Option<u32>),
    /// What others wrote and this machine has; says what it has not. Takes the programs of this tree as the tests built them.
    Strangers,
    /// Guests, of which none is begun after so many minutes.
    Hosts(f64),
    /// As `Run`, for a line that is put together.
    RunOwned(String),
}

/// Name in the table, and what is done.
static STAGES: [(&str, Work); 19] = [
    ("check", Work::Check),
    ("book", Work::Book),
    ("unit and model tests", Work::Tests { are_deep: false }),
    ("interleavings", Work::Interleavings),
    ("whole stack", Work::Seeds("--system stack --seeds 0..1000 --floor 300 --complete", 2.0)),
    (
        "no protected memory",
        Work::Seeds("--system stack --no-protected-memory --seeds 0..330 --floor 20", 0.5),
    ),
    ("drives", Work::Seeds("--system stack --drive --seeds 300..700 --floor 20", 1.0)),
    ("zones", Work::Seeds("--system zones --seeds 0..400 --floor 20", 0.5)),
    ("open-channel", Work::Seeds("--system open-channel --seeds 0..1000 --floor 50", 0.5)),
    ("exchanges for even wear", Work::Seeds("--system stack --exchanges --seeds 0..400 --floor 20", 0.5)),
    ("placement handles", Work::Seeds("--system stack --placement --seeds 0..300 --floor 15", 0.5)),
    ("QoS sets", Work::Seeds("--system stack --qos-sets --seeds 0..60 --floor 5", 0.5)),
    ("a cut at every operation", Work::Simulate("--system stack --every-cut --seeds 1..3 --ops 3")),
    ("planted bugs", Work::Simulate("--system stack --mutants --seeds 0..400")),
    ("planted bugs on drives", Work::Simulate("--system stack --drive --mutants --seeds 0..100")),
    ("newcomer's walk", Work::Run("tests/walk/run.sh")),
    ("fuzz, brief", Work::Fuzz(3, Some(1))),
    ("real hosts", Work::Hosts(5.0)),
    ("suites of others", Work::Strangers),
];

/// The stages of `make test`.
///
/// # Errors
/// Names the stages that failed.
pub fn all(root: &Path) -> Result<String, Vec<String>> {
    run_all(root, &STAGES)
}

/// Seeds and fuzz targets for so many minutes each at least, from places that the fast stages do not reach.
///
/// # Errors
/// Names the stages that failed, or a wish that makes no sense.
pub fn night(root: &Path, arguments: &[&str]) -> Result<String, Vec<String>> {
    let night = Night::parse(arguments)?;
    run_all(root, &night.stages())
}

/// What a night is to do.
#[derive(Debug, PartialEq, Eq)]
struct Night {
    /// Wall time of each fuzz target.
    fuzz_minutes: u32,
    /// Seeds of each simulated system.
    seeds: u64,
    /// The first of them; those before it belong to `make test`.
    first_seed: u64,
}

impl Night {
    fn parse(arguments: &[&str]) -> Result<Night, Vec<String>> {
        let mut night = Night { fuzz_minutes: 10, seeds: 3000, first_seed: 2000 };
        for pair in arguments.chunks(2) {
            let number: Option<u64> = pair.get(1).and_then(|text| text.parse().ok());
            match (pair[0], number) {
                ("--fuzz-minutes", Some(minutes @ 1..=1440)) => night.fuzz_minutes = minutes as u32,
                ("--seeds", Some(seeds @ 1..)) => night.seeds = seeds,
                ("--first-seed", Some(first)) => night.first_seed = first,
                _ => return Err(vec![format!("{}: see cargo xtask", pair.join(" "))]),
            }
        }
        Ok(night)
    }

    fn stages(&self) -> [(&'static str, Work); 13] {
        let end = self.first_seed + self.seeds;
        let seeds = |system: &str| {
            let seeds = format!("--seeds {}..{end}", self.first_seed);
            Work::RunOwned(format!("cargo run --release --quiet -p diecut-sim -- --system {system} {seeds}"))
        };
        [
            ("whole stack, long", seeds("stack")),
            ("no protected memory, long", seeds("stack --no-protected-memory")),
            ("drives, long", seeds("stack --drive")),
            ("exchanges for even wear, long", seeds("stack --exchanges")),
            ("placement handles, long", seeds("stack --placement")),
            ("QoS sets, long", seeds("stack --qos-sets")),
            ("zones, long", seeds("zones")),
            ("open-channel, long", seeds("open-channel")),
            (
                "a cut at every operation, long",
                Work::RunOwned(format!(
                    "cargo run --release --quiet -p diecut-sim -- --system stack --every-cut --seeds {}..{} --ops 3",
                    self.first_seed,
                    self.first_seed + self.seeds.div_ceil(100)
                )),
            ),
            ("unit and model tests, deep", Work::Tests { are_deep: true }),
            ("real hosts, all", Work::Run("tests/hosts/run.sh")),
            ("servers inside of guests", Work::Run("tests/hosts/inner.sh")),
            ("fuzz, long", Work::Fuzz(self.fuzz_minutes * 60, None)),
        ]
    }
}

impl Work {
    /// Whether less of it is still worth its time.
    fn can_be_short(&self) -> bool {
        matches!(self, Work::Seeds(..) | Work::Fuzz(..) | Work::Hosts(_) | Work::Strangers)
    }

    /// Does it, or less of it.
    fn run(&self, root: &Path, is_short: bool) -> Result<String, Vec<String>> {
        const BUILT: [(&str, &str); 2] = [("DIECUT_HOSTS_BUILT", "1"), ("DIECUT_STRANGERS_BUILT", "1")];
        match self {
            Work::Check => crate::check::all(root),
            Work::Interleavings => crate::interleavings::run(root),
            Work::Book => crate::book::build(root),
            Work::Run(line) => run(root, line, &[]),
            Work::Tests { are_deep } => {
                let deep = are_deep.then_some((DEEP, "1"));
                let environment: Vec<_> = [(NONE_LEFT_OUT, "1")].into_iter().chain(deep).collect();
                let tests = if *are_deep { ALL_TESTS } else { TESTS };
                run(root, &format!("{tests} --no-fail-fast"), &environment)
            }
            Work::Simulate(arguments) => simulate(root, arguments),
            Work::Seeds(arguments, minutes) => {
                let minutes = if is_short { minutes / 4.0 } else { *minutes };
                simulate(root, &format!("{arguments} --minutes {minutes}"))
            }
            Work::Strangers => {
                let suites = if is_short { "vlfs spdk spdk-zoned" } else { "--cheap" };
                run(root, &format!("tests/strangers/run.sh {suites}"), &BUILT)
            }
            Work::Hosts(minutes) => {
                let minutes = if is_short { 0.1 } else { *minutes };
                run(root, &format!("tests/hosts/run.sh --brief --minutes {minutes}"), &BUILT)
            }
            Work::RunOwned(line) => run(root, line, &[]),
            Work::Fuzz(seconds, seed) => {
                let seconds = if is_short { 1 } else { *seconds };
                crate::fuzz::run(root, &crate::fuzz::Wish::all(seconds, *seed))
            }
        }
    }
}

/// Runs stages and prints the table.
fn run_all(root: &Path, stages: &[(&str, Work)]) -> Result<String, Vec<String>> {
    let mut rows = Vec::new();
    let mut shortened = Vec::new();
    let began = Instant::now();
    for (name, work) in stages {
        let started = Instant::now();
        println!("\n== {name}");
        let is_late = began.elapsed() > BUDGET && work.can_be_short();
        if is_late {
            println!("SHORT: the stages before took {} minutes", began.elapsed().as_secs() / 60);
            shortened.push(*name);
        }
        let outcome = work.run(root, is_late);
        let problems = outcome.err().unwrap_or_default();
        problems.iter().for_each(|problem| println!("{problem}"));
        rows.push((*name, problems, started.elapsed().as_secs_f64() / 60.0));
    }
    println!("\n{:<30} {:>8} {:>8}", "stage", "result", "minutes");
    for (name, problems, minutes) in &rows {
        println!("{name:<30} {:>8} {minutes:>8.1}", if problems.is_empty() { "ok" } else { "FAILED" });
    }
    let failed: Vec<_> = rows.iter().filter(|(_, problems, _)| !problems.is_empty()).collect();
    // Again, behind the table: of a long run often its end alone is kept.
    for (name, problems, _) in &failed {
        problems.iter().take(AGAIN).for_each(|problem| println!("{name}: {problem}"));
    }
    if !shortened.is_empty() {
        println!(
            "SHORT, because those before took {} minutes: {}",
            BUDGET.as_secs() / 60,
            shortened.join(", ")
        );
    }
    // Alone on the last line, whichever way it went.
    let counts = format!(
        "stages: {} passed, {} failed, {} short",
        rows.len() - failed.len(),
        failed.len(),
        shortened.len()
    );
    if failed.is_empty() {
        Ok(counts)
    } else {
        let names = failed.iter().map(|(name, ..)| format!("ci: stage {name} failed"));
        Err(names.chain([counts]).collect())
    }
}

/// Runs the simulator that the tests built. Where they are built already, asking for it again takes a second.
fn simulate(root: &Path, arguments: &str) -> Result<String, Vec<String>> {
    run(root, &format!("{TESTS} --no-run --quiet"), &[])?;
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let program = target.join("debug/diecut-sim");
    run(root, &format!("{} {arguments}", program.display()), &[])
}

/// Runs a command line. What it prints goes on as it comes; what of it names a failure is kept.
fn run(root: &Path, line: &str, environment: &[(&str, &str)]) -> Result<String, Vec<String>> {
    environment.iter().for_each(|(name, value)| print!("{name}={value} "));
    println!("{line}");
    let mut words = line.split(' ');
    let program = words.next().expect("a command line has a first word");
    let cannot_run = |error| vec![format!("{program} cannot run: {error}")];
    let mut child = Command::new(program)
        .args(words)
        .envs(environment.iter().copied())
        .current_dir(root)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(cannot_run)?;
    let (out, error) = (child.stdout.take().expect("piped"), child.stderr.take().expect("piped"));
    let (status, mut problems) = std::thread::scope(|scope| {
        let errors = scope.spawn(|| pass_on(error, std::io::stderr()));
        let mut problems = pass_on(out, std::io::stdout());
        problems.extend(errors.join().expect("a reader of lines does not panic"));
        (child.wait(), problems)
    });
    let status = status.map_err(cannot_run)?;
    if status.success() {
        return Ok(line.to_string());
    }
    problems.push(format!("{line}: {status}"));
    Err(problems)
}

/// Passes on what a command prints, line by line. Returns the lines that name a failure.
fn pass_on(from: impl Read, mut to: impl Write) -> Vec<String> {
    let mut problems = Vec::new();
    let mut from = BufReader::new(from);
    let mut bytes = Vec::new();
    while from.read_until(b'\n', &mut bytes).is_ok_and(|length| length > 0) {
        // A reader of ours that went away ends nothing: the table still counts.
        let _ = to.write_all(&bytes).and_then(|()| to.flush());
        let line = String::from_utf8_lossy(&bytes);
        if names_a_failure(&line) {
            problems.push(line.trim_end().to_string());
        }
        bytes.clear();
    }
    problems
}

/// Whether a line of cargo, of a test program or of a script of ours says that something failed.
fn names_a_failure(line: &str) -> bool {
    let test = line.starts_with("test ") && line.trim_end().ends_with("FAILED");
    test || line.starts_with("error") || line.contains("panicked at") || line.contains("FAIL ")
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn what_failed_is_told_again_and_what_is_printed_goes_on() {
        let printed = b"test a::b ... ok\ntest a::c ... FAILED\nthread 'x' panicked at y.rs:1\nerror: 1 target failed:\nno end";
        let mut seen = Vec::new();
        let problems = pass_on(&printed[..], &mut seen);
        assert_eq!(seen, printed);
        assert_eq!(
            problems,
            ["test a::c ... FAILED", "thread 'x' panicked at y.rs:1", "error: 1 target failed:"]
        );
        let failed = run(Path::new("."), "cat /does/not/exist", &[]).unwrap_err();
        assert!(failed.last().unwrap().contains("cat /does/not/exist: exit status: 1"), "{failed:?}");
    }

    #[test]
    fn a_night_is_as_long_as_asked_for() {
        let night = Night::parse(&["--fuzz-minutes", "2", "--seeds", "50", "--first-seed", "7"]).unwrap();
        let [
            stack,
            unprotected,
            drives,
            exchanges,
            placement,
            qos_sets,
            zones,
            chunks,
            cuts,
            tests,
            hosts,
            inner,
            fuzz,
        ] = night.stages();
        assert!(matches!(cuts.1, Work::RunOwned(line) if line.ends_with("--every-cut --seeds 7..8 --ops 3")));
        assert!(matches!(tests.1, Work::Tests { are_deep: true }));
        assert!(matches!(hosts.1, Work::Run(line) if !line.contains("--brief")));
        assert!(matches!(inner.1, Work::Run("tests/hosts/inner.sh")));
        assert!(matches!(stack.1, Work::RunOwned(line) if line.ends_with("--system stack --seeds 7..57")));
        assert!(
            matches!(unprotected.1, Work::RunOwned(line) if line.ends_with("--no-protected-memory --seeds 7..57"))
        );
        assert!(matches!(drives.1, Work::RunOwned(line) if line.ends_with("--drive --seeds 7..57")));
        assert!(matches!(exchanges.1, Work::RunOwned(line) if line.ends_with("--exchanges --seeds 7..57")));
        assert!(matches!(qos_sets.1, Work::RunOwned(line) if line.ends_with("--qos-sets --seeds 7..57")));
        assert!(matches!(placement.1, Work::RunOwned(line) if line.ends_with("--placement --seeds 7..57")));
        assert!(matches!(zones.1, Work::RunOwned(line) if line.ends_with("--system zones --seeds 7..57")));
        assert!(
            matches!(chunks.1, Work::RunOwned(line) if line.ends_with("--system open-channel --seeds 7..57"))
        );
        assert!(matches!(fuzz.1, Work::Fuzz(120, None)));
        for wrong in [&["--seeds"][..], &["--seeds", "0"], &["--hours", "3"]] {
            assert!(Night::parse(wrong).is_err(), "{wrong:?}");
        }
    }
}
