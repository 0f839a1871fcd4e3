//! Command line of the driver.

use std::path::PathBuf;
use std::time::Duration;

use crate::scenario::{SCENARIOS, Scenario};
use crate::server::Launch;

/// What `--help` and mistakes print.
pub const USAGE: &str = "\
usage: diecut-hosts [--kernel 6.1|6.12]... [--scenario NAME]... [--server reference|COMMAND]
                    [--administer COMMAND] [--nqn-a NQN] [--nqn-b NQN] [--programs FOLDER]
                    [--cache FOLDER] [--work FOLDER] [--lanes COUNT] [--brief] [--minutes COUNT]
                    [--verbose]

COMMAND is run by sh; {port} and {folder} in it are replaced by the TCP port on 127.0.0.1 to serve on and
by a folder that survives restarts of the server. The environment variable DIECUT_HOSTS_SERVER is its default.
The command of --administer, by default DIECUT_HOSTS_ADMINISTER, is run with what a scenario asks of an administrator
behind it (see administer.sh); without one, or with the reference server, that is skipped.
A guest finds what is in the folder of --programs in /programs. Scenarios that need it run when they are named.
So many guests at a time run as there are lanes: by default 2, or 1 on a machine with one core and with --verbose.
With --brief, older kernels run what depends on the kernel most, after the newest ran all. No guest is booted after so many --minutes, but one for each
lane; those left out are named and counted. Run tests/hosts/prepare.sh first.";

/// Kernels that prepare.sh fetches.
const KERNELS: [&str; 2] = ["6.1", "6.12"];

/// Lanes that nobody asked for: each guest has a gigabyte of memory.
const LANES_MAX: usize = 2;

/// Parsed command line.
pub struct Options {
    /// Folder that prepare.sh filled.
    pub cache: PathBuf,
    /// Folder for logs and the server's data; one folder per guest below it.
    pub work: PathBuf,
    /// Kernels to boot, by the folder names of prepare.sh.
    pub kernels: Vec<String>,
    /// Scenarios were named: they run on each kernel.
    pub are_named: bool,
    /// Older kernels run less.
    pub brief: bool,
    /// After it no further guest is booted, but one for each lane.
    pub time_limit: Option<Duration>,
    /// Scenarios to run on each kernel.
    pub scenarios: Vec<&'static Scenario>,
    /// How the server under test is started.
    pub launch: Launch,
    /// Shell command that administers the server under test, with the same placeholders.
    pub administer: Option<String>,
    /// Subsystem of the first tenant.
    pub nqn_a: String,
    /// Subsystem of the second tenant.
    pub nqn_b: String,
    /// Folder of programs that guests get.
    pub programs: Option<PathBuf>,
    /// Scenarios that run at the same time: a guest keeps a core busy for two thirds of its time.
    pub lanes: usize,
    /// Echo every line of the guest's console.
    pub verbose: bool,
}

impl Options {
    /// Reads the command line.
    ///
    /// # Errors
    /// With a sentence for the user when an argument is unknown, lacks its value, or names nothing known.
    pub fn parse(arguments: impl Iterator<Item = String>) -> Result<Self, String> {
        let target =
            std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from);
        let mut options = Self {
            cache: std::env::var_os("DIECUT_HOSTS_CACHE")
                .map_or_else(|| target.join("hosts-cache"), PathBuf::from),
            work: target.join("hosts-work"),
            kernels: Vec::new(),
            are_named: false,
            brief: false,
            time_limit: None,
            scenarios: Vec::new(),
            launch: std::env::var("DIECUT_HOSTS_SERVER").map_or(Launch::Reference, Launch::parse),
            administer: std::env::var("DIECUT_HOSTS_ADMINISTER").ok(),
            nqn_a: "nqn.2026-11.org.diecut:tenant-a".into(),
            nqn_b: "nqn.2026-11.org.diecut:tenant-b".into(),
            programs: None,
            lanes: 0,
            verbose: false,
        };
        let mut arguments = arguments;
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().ok_or_else(|| format!("{argument} lacks its value"));
            match argument.as_str() {
                "--kernel" => {
                    let kernel = value()?;
                    if !KERNELS.contains(&kernel.as_str()) {
                        return Err(format!("no kernel {kernel}; known: {}", KERNELS.join(", ")));
                    }
                    options.kernels.push(kernel);
                }
                "--scenario" => {
                    let name = value()?;
                    let known = SCENARIOS.iter().find(|scenario| scenario.name == name);
                    options.scenarios.push(known.ok_or_else(|| format!("no scenario {name}"))?);
                }
                "--server" => options.launch = Launch::parse(value()?),
                "--administer" => options.administer = Some(value()?),
                "--nqn-a" => options.nqn_a = value()?,
                "--nqn-b" => options.nqn_b = value()?,
                "--programs" => options.programs = Some(value()?.into()),
                "--cache" => options.cache = value()?.into(),
                "--work" => options.work = value()?.into(),
                "--lanes" => {
                    let count = value()?;
                    let lanes = count.parse().ok().filter(|lanes| (1..=8).contains(lanes));
                    options.lanes = lanes.ok_or_else(|| format!("--lanes {count}: from 1 to 8"))?;
                }
                "--minutes" => {
                    let count = value()?;
                    let minutes = count.parse().ok().filter(|minutes| (0.1..=1440.0).contains(minutes));
                    let minutes: f64 =
                        minutes.ok_or_else(|| format!("--minutes {count}: from 0.1 to 1440"))?;
                    options.time_limit = Some(Duration::from_secs_f64(60.0 * minutes));
                }
                "--brief" => options.brief = true,
                "--verbose" => options.verbose = true,
                _ => return Err(format!("unknown argument {argument}")),
            }
        }
        if options.lanes == 0 {
            // Lines of two consoles would be mixed.
            let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
            options.lanes = if options.verbose { 1 } else { cores.min(LANES_MAX) };
        }
        if options.kernels.is_empty() {
            options.kernels = KERNELS.map(String::from).to_vec();
        }
        options.are_named = !options.scenarios.is_empty();
        if !options.are_named {
            options.scenarios = SCENARIOS.iter().filter(|scenario| !scenario.needs_programs).collect();
        }
        if let (Some(scenario), None) =
            (options.scenarios.iter().find(|scenario| scenario.needs_programs), &options.programs)
        {
            return Err(format!(
                "scenario {} needs --programs; see tests/strangers/README.md",
                scenario.name
            ));
        }
        for kernel in &options.kernels {
            let image = options.cache.join(kernel).join("vmlinuz");
            if !image.is_file() {
                return Err(format!("{} is missing: run tests/hosts/prepare.sh", image.display()));
            }
        }
        Ok(options)
    }
}
