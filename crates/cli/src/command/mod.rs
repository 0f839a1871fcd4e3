//! One file per kind of object.

pub mod apply;
pub mod bench;
pub mod demo;
pub mod device;
pub mod host;
pub mod latency;
mod live;
pub mod panics;
pub mod probe;
pub mod qos;
pub mod repro;
pub mod serve;
pub mod status;
pub mod subsystem;
pub mod tenant;
pub mod volume;
pub mod vssd;
pub mod wear;

use crate::client::ClientError;
use clap::Args;
use diecut_api::problem::{Problem, ProblemKind};
use diecut_units::Shown;
use std::io::{IsTerminal, Write};

/// The refusal for a name that is not there, as the server words it.
fn not_found(command: &str, name: &str) -> ClientError {
    let kind = match command {
        "vssd" => "vSSD",
        "qos" => "QoS set",
        _ => command,
    };
    let message =
        format!("there is no {kind} \"{}\"; `diecut {command} list` shows what there is", Shown(name));
    ClientError::Refused(Problem::new(ProblemKind::NotFound, message))
}

/// What destroys something asks first.
#[derive(Args)]
pub struct Consent {
    /// Do not ask. Without a terminal to ask at, nothing is done unless this is given.
    #[arg(long, short)]
    yes: bool,
}

impl Consent {
    /// Whether to go on: `what` is deleted, with `loss`.
    ///
    /// # Errors
    /// If whoever was asked did not agree, or cannot be asked.
    fn ask(&self, what: &str, loss: &str) -> Result<(), ClientError> {
        self.ask_to("delete", what, loss)
    }

    /// Whether to go on: `deed`, a verb, is done to `what`, with `loss`.
    ///
    /// # Errors
    /// If whoever was asked did not agree, or cannot be asked.
    fn ask_to(&self, deed: &str, what: &str, loss: &str) -> Result<(), ClientError> {
        if self.yes {
            return Ok(());
        }
        let mut stderr = std::io::stderr();
        if !(std::io::stdin().is_terminal() && stderr.is_terminal()) {
            let message = format!("this would {deed} {what}: {loss}. Nothing was done; add --yes to do it");
            return Err(ClientError::Usage(message));
        }
        let mut answer = String::new();
        let (first, rest) = deed.split_at(1);
        let first = first.to_uppercase();
        let asked = write!(stderr, "{first}{rest} {what}? {loss}. [y/N] ").and_then(|()| stderr.flush());
        match asked.and_then(|()| std::io::stdin().read_line(&mut answer)) {
            Ok(_) if ["y", "yes"].contains(&answer.trim().to_lowercase().as_str()) => Ok(()),
            _ => Err(ClientError::Usage("nothing was done".to_owned())),
        }
    }
}
