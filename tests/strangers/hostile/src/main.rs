//! Attacks a server on this machine and prints what its good tenant felt and what its memory did:
//! `diecut-hostile 127.0.0.1:4420 PID GOOD-NQN ATTACKED-NQN [CONNECTIONS] [SECONDS]`.

#![forbid(unsafe_code)]

use diecut_hostile::{Attack, Plan, run};
use diecut_nvme::QualifiedName;
use std::process::ExitCode;
use std::time::Duration;

const USAGE: &str = "usage: diecut-hostile ADDRESS:PORT PID GOOD-NQN ATTACKED-NQN [CONNECTIONS] [SECONDS]
Attacks the subsystem ATTACKED-NQN of a server of yours on this machine while a load runs on GOOD-NQN.
It overwrites the first MiB of the first namespace of each.";

fn plan(arguments: &[String]) -> Option<Plan> {
    let [address, pid, good, attacked, rest @ ..] = arguments else { return None };
    let number = |at: usize, default: u64| rest.get(at).map_or(Some(default), |text| text.parse().ok());
    Some(Plan {
        address: address.parse().ok()?,
        pid: pid.parse().ok()?,
        good: QualifiedName::new(good).ok()?,
        attacked: QualifiedName::new(attacked).ok()?,
        attacks: Attack::ALL.to_vec(),
        connections: number(0, 900)? as usize,
        window: Duration::from_secs(number(1, 5)?),
        windows: 3,
        patience: Duration::from_secs(60),
    })
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some(plan) = plan(&arguments) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    match run(&plan) {
        Ok(outcome) => {
            for one in &outcome.measurements {
                let what = one.attack.map_or("alone".to_owned(), |attack| format!("{attack:?}"));
                println!(
                    "{what:16} p99 {:9.1} us  {:9.0} op/s  {} errors  {} connections  {} MiB",
                    one.p99_us,
                    one.operations_per_second,
                    one.errors,
                    one.connections,
                    one.memory_most_bytes >> 20
                );
            }
            println!(
                "anonymous memory: {} MiB before, {} MiB at most, {} MiB after",
                outcome.memory_before_bytes >> 20,
                outcome.memory_most_bytes >> 20,
                outcome.memory_after_bytes >> 20
            );
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
