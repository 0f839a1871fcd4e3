//! `diecut device remove`: takes drives out of a pool.

use super::{complain, remote};
use crate::print;
use clap::Args;
use diecut_api::place::Place;
use diecut_daemon::remove::{Leaver, Removed, remove};
use serde::Serialize;
use std::process::ExitCode;
use uuid::Uuid;

#[derive(Args)]
pub struct Remove {
    /// Drives that leave: by path, as HOST:PORT/NQN/NSID, or by UUID where a drive is gone (`diecut status` and the start of a server say which).
    #[arg(required_unless_present = "address", value_name = "DEVICE", value_parser = leaver)]
    devices: Vec<Leaver>,
    #[command(flatten)]
    remote: remote::Wanted,
    /// A drive of the pool that stays, by path or as HOST:PORT/NQN/NSID; all of them are to be named, each with --from.
    #[arg(long, required = true, value_name = "DRIVE", value_parser = clap::value_parser!(Place))]
    from: Vec<Place>,
    /// Also where vSSDs lie on them, which are lost then, and where those that stay are not more than half of the pool.
    #[arg(long)]
    force: bool,
}

fn leaver(typed: &str) -> Result<Leaver, std::convert::Infallible> {
    Ok(match Uuid::parse_str(typed) {
        Ok(device) => Leaver::Device(device),
        Err(_) => Leaver::Place(typed.parse()?),
    })
}

/// What `--json` prints.
#[derive(Serialize)]
struct Report {
    removed: Vec<Uuid>,
    lost_vssds: Vec<String>,
}

impl Remove {
    /// Carries it out, and prints what came of it.
    pub fn run(self, json: bool) -> ExitCode {
        let Remove { devices, remote, from, force } = self;
        let named = match remote.drives(&[]) {
            Ok(named) => named.into_iter().map(Leaver::Place),
            Err(message) => return complain(&message, json),
        };
        let leavers = devices.into_iter().map(|leaver| match leaver {
            Leaver::Place(place) => Leaver::Place(remote.known_as(place)),
            Leaver::Device(device) => Leaver::Device(device),
        });
        let leavers: Vec<Leaver> = leavers.chain(named).collect();
        let from: Vec<Place> = from.into_iter().map(|place| remote.known_as(place)).collect();
        let Removed { devices, lost } = match remove(&leavers, &from, force) {
            Ok(removed) => removed,
            Err(error) => return complain(&error.to_string(), json),
        };
        if json {
            print::json(&Report { removed: devices, lost_vssds: lost });
            return ExitCode::SUCCESS;
        }
        for device in &devices {
            print::line(&format!("{device} is no device of the pool any more."));
        }
        if !lost.is_empty() {
            print::line(&format!(
                "Lost with it: vSSD \"{}\". Delete them, with their volumes, when the server runs.",
                lost.join("\", \"")
            ));
        }
        print::line("Take it out of the set-up of the server, too.");
        ExitCode::SUCCESS
    }
}
