//! What is done with a guest and a server: boots the guest on a scenario's script, reads its results, and does the
//! host-side part of the story (killing the server under load, administering it) when the guest says that it is time.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::guest::{Console, Guest, GuestPlan};
use crate::options::Options;
use crate::report::Run;
use crate::server::{Launch, Server};

/// One story, told on every kernel.
pub struct Scenario {
    /// Name on the command line and in the table.
    pub name: &'static str,
    /// Script in `guest/`.
    script: &'static str,
    /// One line for the reader of the log.
    pub purpose: &'static str,
    /// The guest is given up after this.
    time_limit: Duration,
    /// Checks the script makes at least; fewer means that it stopped half-way without saying so.
    check_count_min: usize,
    /// Whether the guest has a second network card: the second of two paths to the server, on a port of its own.
    two_paths: bool,
    /// Whether it runs programs that prepare.sh does not fetch, and therefore only when it is named.
    pub needs_programs: bool,
    /// Which kernels run it.
    pub kernels: Kernels,
    /// Shards of the server, in its environment as `SHARDS`; `None`: what the environment of this driver says.
    shards: Option<u16>,
    /// Processors of the guest. One where modules are loaded on the way: each of them patches the kernel's code, which an emulated second
    /// processor may run at that moment and die of.
    processor_count: u32,
}

/// Which kernels run a scenario that is not named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kernels {
    /// Each of them.
    All,
    /// In a brief run the newest: what it shows hardly depends on the kernel.
    AllUnlessBrief,
    /// The newest: what it asks comes from the guest's tools more than from its kernel.
    Newest,
}

/// All scenarios, in the order they run.
pub static SCENARIOS: [Scenario; 12] = [
    Scenario {
        name: "basic",
        script: "basic.sh",
        purpose: "discover, connect, identify, two tenants at once, file systems, fio verify, disconnect",
        time_limit: Duration::from_secs(420),
        check_count_min: 30,
        two_paths: false,
        needs_programs: false,
        kernels: Kernels::All,
        shards: None,
        processor_count: 2,
    },
    Scenario {
        name: "commands",
        script: "commands.sh",
        purpose: "each log page, feature and opcode is answered or refused; every way to connect, connect-all among them",
        time_limit: Duration::from_secs(600),
        check_count_min: 20,
        two_paths: false,
        needs_programs: false,
        kernels: Kernels::Newest,
        shards: None,
        processor_count: 2,
    },
    Scenario {
        name: "restart",
        script: "restart.sh",
        purpose: "server killed with signal 9 under load, started again: the host goes on, nothing acknowledged is missing",
        time_limit: Duration::from_secs(420),
        check_count_min: 10,
        two_paths: false,
        needs_programs: false,
        kernels: Kernels::AllUnlessBrief,
        shards: None,
        processor_count: 2,
    },
    Scenario {
        name: "shards",
        script: "shards.sh",
        purpose: "two shards, a tenant on each: tenants change their shard under load, then the server is killed with signal 9",
        time_limit: Duration::from_secs(420),
        check_count_min: 25,
        two_paths: false,
        needs_programs: false,
        kernels: Kernels::AllUnlessBrief,
        shards: Some(2),
        processor_count: 2,
    },
    Scenario {
        name: "multipath",
        script: "multipath.sh",
        purpose: "two portals, native multipath with every policy: paths are lost under load and come back, and connected twice",
        time_limit: Duration::from_secs(420),
        check_count_min: 33,
        two_paths: true,
        needs_programs: false,
        kernels: Kernels::AllUnlessBrief,
        shards: None,
        processor_count: 2,
    },
    Scenario {
        name: "zones",
        script: "zones.sh",
        purpose: "zoned namespaces: every zone command, limits, random write areas, fio in zone mode, btrfs, zonefs, f2fs, libzbd, the server killed under writes",
        time_limit: Duration::from_secs(900),
        check_count_min: 90,
        two_paths: false,
        needs_programs: false,
        kernels: Kernels::Newest,
        shards: None,
        processor_count: 1,
    },
    Scenario {
        name: "placement",
        script: "placement.sh",
        purpose: "placement handles: nvme fdp, fio with fdp=1, statistics and events, the server killed under writes; OCP telemetry by a later nvme-cli",
        time_limit: Duration::from_secs(600),
        check_count_min: 40,
        two_paths: false,
        needs_programs: false,
        kernels: Kernels::Newest,
        shards: None,
        processor_count: 1,
    },
    Scenario {
        name: "zoned-drive",
        script: "zoned-drive.sh",
        purpose: "a server inside of the guest on a drive that is written in zones: formatted, overwritten, killed with signal 9 under load",
        time_limit: Duration::from_secs(900),
        check_count_min: 20,
        two_paths: false,
        needs_programs: true,
        kernels: Kernels::Newest,
        shards: None,
        processor_count: 1,
    },
    Scenario {
        name: "drives",
        script: "drives.sh",
        purpose: "a server inside of the guest whose pool is a virtio drive, an NVMe drive, a zoned one and one with placement handles of QEMU; the \
                  guest is reset under load, and the drives go on",
        time_limit: Duration::from_secs(2400),
        check_count_min: 60,
        two_paths: false,
        needs_programs: true,
        kernels: Kernels::Newest,
        shards: None,
        processor_count: 1,
    },
    Scenario {
        name: "file-systems",
        script: "file-systems.sh",
        purpose: "fsx and fsstress on ext4 and xfs, sync, and what is there after the server was killed",
        time_limit: Duration::from_secs(540),
        check_count_min: 14,
        two_paths: false,
        needs_programs: true,
        kernels: Kernels::All,
        shards: None,
        processor_count: 2,
    },
    Scenario {
        name: "zoned-suites",
        script: "zoned-suites.sh",
        purpose: "programs of xNVMe, blktests' group zbd, the tests of zonefs-tools and dm-zoned on a zoned namespace",
        time_limit: Duration::from_secs(3000),
        check_count_min: 5,
        two_paths: false,
        needs_programs: true,
        kernels: Kernels::Newest,
        shards: None,
        processor_count: 1,
    },
    Scenario {
        name: "blktests",
        script: "blktests.sh",
        purpose: "blktests' group nvme with the server as its remote target",
        time_limit: Duration::from_secs(3000),
        check_count_min: 5,
        two_paths: false,
        needs_programs: true,
        kernels: Kernels::All,
        shards: None,
        processor_count: 2,
    },
];

/// NQN of the guest. Servers must allow it, and no other host.
pub const HOST_NQN: &str = "nqn.2014-08.org.nvmexpress:uuid:5b6b8e2c-3f0a-4a7e-9d53-0d1ec0000001";
/// NQN of the subsystem with zoned namespaces, in the story that has one.
pub const NQN_ZONES: &str = "nqn.2026-11.org.diecut:zones";
/// NQN of the subsystem with placement handles, in the story that has one.
pub const NQN_PLACED: &str = "nqn.2026-11.org.diecut:placed";
const HOST_ID: &str = "5b6b8e2c-3f0a-4a7e-9d53-0d1ec0000001";
/// An NQN that no server allows.
const STRANGER_NQN: &str = "nqn.2014-08.org.nvmexpress:uuid:5b6b8e2c-3f0a-4a7e-9d53-0d1ec0000bad";
const STRANGER_ID: &str = "5b6b8e2c-3f0a-4a7e-9d53-0d1ec0000bad";
/// The machine that runs QEMU, as the guest sees it: services on its loopback are reached there.
const SERVER_ADDRESS: &str = "10.0.2.2";
/// The same machine over the guest's second network card.
const SERVER_ADDRESS_2: &str = "10.0.3.2";
/// Boots of a guest at most. An emulated processor that patches the kernel's code while another one runs it can end a boot (an int3 that
/// nobody expects) or keep it from ever ending; what happens after the guest said that it is up is never tried again.
const BOOTS_MAX: u32 = 3;
/// A boot that took so long is given up: it takes half a minute where others use the machine too.
const BOOT_TIME_MAX: Duration = Duration::from_secs(150);
/// Lines of the guest's console shown when something failed.
const TAIL_LINES: usize = 40;

/// Runs one scenario on one kernel from an empty server to the guest's power-off.
pub fn run(options: &Options, kernel: &str, scenario: &'static Scenario) -> Run {
    let started = Instant::now();
    let mut run = Run {
        kernel: kernel.into(),
        scenario: scenario.name,
        checks: Vec::new(),
        time_taken: Duration::ZERO,
    };
    let work = options.work.join(format!("{kernel}-{}", scenario.name));
    // Gone already, or of a run before; if it stays, creating it says why.
    let _ = fs::remove_dir_all(&work);
    if let Err(problem) = play(options, kernel, scenario, &work, &mut run) {
        run.record("harness", Some(problem));
    }
    if run.checks.iter().any(|check| check.problem.is_some()) {
        show_tails(&work);
    } else {
        // Data of a good run is of no use and may be large; logs stay.
        let _ = fs::remove_dir_all(work.join("data"));
        let _ = fs::remove_file(work.join("initrd.cpio"));
    }
    run.time_taken = started.elapsed();
    run
}

fn play(
    options: &Options,
    kernel: &str,
    scenario: &Scenario,
    work: &Path,
    run: &mut Run,
) -> Result<(), String> {
    let mut server =
        Server::new(options, work, scenario.name, scenario.shards).map_err(|error| error.to_string())?;
    server.start()?;
    let variables = [
        ("ADDRESS", SERVER_ADDRESS.to_string()),
        ("PORT", server.port().to_string()),
        ("ADDRESS_2", SERVER_ADDRESS_2.to_string()),
        ("PORT_2", server.second_port().to_string()),
        ("NQN_A", options.nqn_a.clone()),
        ("NQN_B", options.nqn_b.clone()),
        ("HOST_NQN", HOST_NQN.to_string()),
        ("NQN_ZONES", NQN_ZONES.to_string()),
        ("NQN_PLACED", NQN_PLACED.to_string()),
        ("HOST_ID", HOST_ID.to_string()),
        ("STRANGER_NQN", STRANGER_NQN.to_string()),
        ("STRANGER_ID", STRANGER_ID.to_string()),
        ("REQUIRE_OPTIONAL", u8::from(!matches!(options.launch, Launch::Reference)).to_string()),
    ];
    let plan = GuestPlan {
        cache: &options.cache,
        kernel,
        work,
        script: scenario.script,
        programs: options.programs.as_deref(),
        variables: &variables,
        network: "",
        second_network: scenario.two_paths,
        disks: &[],
        drives: scenario.script == "drives.sh",
        processor_count: scenario.processor_count,
    };
    let boot = || Guest::boot(&plan, scenario.time_limit).map_err(|error| format!("QEMU: {error}"));
    let mut guest = boot()?;
    let (mut boots, mut booted, mut finished) = (1, false, false);
    let mut boot_started = Instant::now();
    loop {
        let seen = guest.next(Duration::from_secs(5));
        // Nothing of it has met the server yet.
        let failure = match seen {
            _ if booted || boots == BOOTS_MAX => None,
            Console::Ended => Some("died before it was up"),
            _ if boot_started.elapsed() > BOOT_TIME_MAX => Some("hangs before it is up"),
            _ => None,
        };
        if let Some(failure) = failure {
            run.say(&format!(
                "  ..    the guest's kernel {failure} (boot {boots} of {BOOTS_MAX}); booting again"
            ));
            boots += 1;
            guest = boot()?;
            boot_started = Instant::now();
            continue;
        }
        let line = match seen {
            Console::Line(line) => line,
            Console::Quiet if guest.time_left().is_zero() => {
                return Err(format!("the guest did not end within {} s", scenario.time_limit.as_secs()));
            }
            Console::Quiet => continue,
            Console::Ended => break,
        };
        if options.verbose {
            println!("  | {line}");
        }
        if let Some(result) = line.strip_prefix("RESULT ") {
            let (name, verdict) = result.split_once(' ').unwrap_or((result, ""));
            match verdict.split_once(' ').unwrap_or((verdict, "")) {
                ("ok", _) => run.record(name, None),
                ("fail", why) => run.record(name, Some(why.to_string())),
                _ => run.record(name, Some(format!("unreadable verdict: {line}"))),
            }
        }
        if let Some(event) = line.strip_prefix("EVENT ") {
            match event {
                "kill-server" => {
                    server.kill();
                    // Long enough that the host notices and tries in vain at least once.
                    std::thread::sleep(Duration::from_secs(3));
                    server.start()?;
                    run.say("  ..    server killed under load and started again");
                }
                "finished 0" => finished = true,
                _ if event.starts_with("booted") => booted = true,
                _ => {
                    let asked = event.strip_prefix("administer ").and_then(|rest| rest.split_once(' '));
                    if let Some((name, what)) = asked {
                        match server.administer(what) {
                            Some(outcome) => run.record(name, outcome.err()),
                            None => run
                                .say(&format!("  ..    {name}: skipped, nobody can administer this server")),
                        }
                    }
                }
            }
        }
    }
    if !finished {
        return Err("the guest ended before its script did".into());
    }
    if run.checks.len() < scenario.check_count_min {
        return Err(format!("only {} of at least {} checks ran", run.checks.len(), scenario.check_count_min));
    }
    Ok(())
}

fn show_tails(work: &Path) {
    let mut names = vec!["console.log".to_string(), "qemu.log".to_string()];
    names.extend((1..10).map(|count| format!("server-{count}.log")));
    names.extend((1..10).map(|count| format!("reference-{count}/console.log")));
    // One text: other runs say something meanwhile.
    let mut said = String::new();
    for name in names {
        let Ok(bytes) = fs::read(work.join(&name)) else { continue };
        let text = String::from_utf8_lossy(&bytes);
        let lines: Vec<&str> = text.lines().collect();
        said += &format!("  --- last lines of {} ---\n", work.join(&name).display());
        for line in &lines[lines.len().saturating_sub(TAIL_LINES)..] {
            said += &format!("  | {line}\n");
        }
    }
    print!("{said}");
}
