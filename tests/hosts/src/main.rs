//! Real hosts: boots stock Linux kernels under QEMU against a running server and reports what they think of it.
//!
//! Place in the flow: outside of everything. The server is a process started from a command line; the host is a virtual
//! machine with nvme-cli, mkfs, fio and fsck in it. Nothing here is linked with the rooms under test, so no shared
//! misunderstanding of the specification can hide.
//!
//! `prepare.sh` fetches kernels and tools. `guest/*.sh` are the scenarios, which run inside the guest and print
//! `RESULT <name> ok|fail <reason>` on the serial console; `EVENT <name>` lines tell this driver when to act (kill the
//! server, start it again). `--server reference` puts Linux's own NVMe/TCP target, in a second guest, where the server
//! would be: it proves that scenarios and harness are right before our server is blamed.
//!
//! Functional checks only: under software emulation no time measured in a guest means anything.
#![expect(
    clippy::disallowed_methods,
    reason = "a driver of real processes reads the real clock and waits in threads"
)]

mod archive;
mod guest;
mod options;
mod report;
mod scenario;
mod server;

use scenario::Kernels;
use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::Instant;

fn main() -> ExitCode {
    let options = match options::Options::parse(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(problem) => {
            eprintln!("hosts: {problem}\n\n{}", options::USAGE);
            return ExitCode::from(2);
        }
    };
    let mut stories = Vec::new();
    for kernel in &options.kernels {
        for scenario in &options.scenarios {
            let older_too = match scenario.kernels {
                Kernels::All => true,
                Kernels::AllUnlessBrief => !options.brief,
                Kernels::Newest => false,
            };
            if !older_too && !options.are_named && Some(kernel) != options.kernels.last() {
                println!("hosts: Linux {kernel}, {}: left to the newest kernel", scenario.name);
                continue;
            }
            stories.push((kernel.as_str(), *scenario));
        }
    }
    if options.brief {
        // What is left out where time is short is what an older kernel says.
        stories.sort_by_key(|(kernel, _)| Some(*kernel) != options.kernels.last().map(String::as_str));
    }
    let report = tell(&options, &stories);
    report.print();
    if report.all_passed() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs stories, as many at a time as there are lanes.
fn tell(options: &options::Options, stories: &[(&str, &'static scenario::Scenario)]) -> report::Report {
    let started = Instant::now();
    let waiting = Mutex::new(stories.iter().enumerate());
    let told = Mutex::new(BTreeMap::new());
    let left_out = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        // A lane lives until the last of its guests and servers is gone: they die with the thread that started them.
        for _ in 0..options.lanes {
            scope.spawn(|| {
                loop {
                    let next = waiting.lock().expect("nobody panics with it").next();
                    let Some((at, (kernel, scenario))) = next else { break };
                    if at >= options.lanes
                        && options.time_limit.is_some_and(|limit| started.elapsed() > limit)
                    {
                        left_out
                            .lock()
                            .expect("nobody panics with it")
                            .push(format!("Linux {kernel} {}", scenario.name));
                        continue;
                    }
                    println!("hosts: Linux {kernel}, {}: {}", scenario.name, scenario.purpose);
                    let run = scenario::run(options, kernel, scenario);
                    told.lock().expect("nobody panics with it").insert(at, run);
                }
            });
        }
    });
    let mut report = report::Report::default();
    report.left_out = left_out.into_inner().expect("nobody panicked with it");
    told.into_inner().expect("nobody panicked with it").into_values().for_each(|run| report.add(run));
    report
}
