//! `diecut device remove`: takes drives out of a pool.

use super::{or_stopped, remote, serves};
use crate::client::{Client, ClientError};
use crate::print;
use clap::Args;
use diecut_api::object::RemovedDevice;
use diecut_api::place::Place;
use diecut_api::route;
use diecut_daemon::remove::{Leaver, Removed, remove};
use serde::Serialize;
use std::convert::Infallible;
use std::str::FromStr;
use uuid::Uuid;

#[derive(Args)]
pub struct Remove {
    /// Drives that leave: by path, as HOST:PORT/NQN/NSID, by UUID where a drive is gone (`diecut status` and the start of a server say which), or by
    /// the name that a server which runs has for it.
    #[arg(required_unless_present = "address", value_name = "DEVICE")]
    devices: Vec<Named>,
    #[command(flatten)]
    remote: remote::Wanted,
    /// A drive of the pool that stays, by path or as HOST:PORT/NQN/NSID; all of them are to be named, each with --from, where its server is stopped.
    /// Without it the server that runs takes the drives out.
    #[arg(long, value_name = "DRIVE", value_parser = clap::value_parser!(Place))]
    from: Vec<Place>,
    /// Also where vSSDs lie on them, which are lost then, and where those that stay are not more than half of the pool.
    #[arg(long)]
    force: bool,
}

/// What was typed.
#[derive(Clone)]
struct Named(String);

impl FromStr for Named {
    type Err = Infallible;

    fn from_str(typed: &str) -> Result<Named, Infallible> {
        Ok(Named(typed.to_owned()))
    }
}

impl Named {
    /// Of a server that is stopped.
    fn parse(&self) -> Leaver {
        let Ok(place) = self.0.parse::<Place>();
        Uuid::parse_str(&self.0).map_or(Leaver::Place(place), Leaver::Device)
    }
}

/// What `--json` prints.
#[derive(Serialize)]
struct Report {
    removed: Vec<Uuid>,
    lost_vssds: Vec<String>,
}

impl Remove {
    /// Carries it out, and prints what came of it.
    ///
    /// # Errors
    /// What the server says, or what speaks against it.
    pub async fn run(self, client: &Client, json: bool) -> Result<(), ClientError> {
        let Remove { devices, remote, from, force } = self;
        let from: Vec<Place> = from.into_iter().map(|place| remote.known_as(place)).collect();
        if serves(client, &from).await {
            return online(&devices, force, client, json).await;
        }
        let named = remote.drives(&[]).map_err(ClientError::Usage)?.into_iter().map(Leaver::Place);
        let leavers = devices.into_iter().map(|leaver| match leaver.parse() {
            Leaver::Place(place) => Leaver::Place(remote.known_as(place)),
            Leaver::Device(device) => Leaver::Device(device),
        });
        let leavers: Vec<Leaver> = leavers.chain(named).collect();
        let removed = remove(&leavers, &from, force);
        let Removed { devices, lost } = removed.map_err(|error| ClientError::Usage(error.to_string()))?;
        report(devices, lost, json);
        Ok(())
    }
}

/// Has the server take them out.
async fn online(devices: &[Named], force: bool, client: &Client, json: bool) -> Result<(), ClientError> {
    if force {
        let text = "--force is for a server that is stopped (name the drives that stay with --from): delete what lies there instead";
        return Err(ClientError::Usage(text.to_owned()));
    }
    let mut removed = Vec::new();
    for Named(device) in devices {
        // A path is the server's as it is written here.
        let known = client.status().await.map_err(|error| or_stopped(error, "--from"))?;
        let is_name = known.devices.iter().any(|one| one.name == *device);
        let path = std::fs::canonicalize(device).ok().filter(|_| !is_name);
        let named = path.and_then(|path| path.to_str().map(str::to_owned)).unwrap_or_else(|| device.clone());
        let RemovedDevice { device, .. } = client.remove(&route::of(route::DEVICES, &named)).await?;
        removed.push(device);
    }
    report(removed, Vec::new(), json);
    Ok(())
}

fn report(devices: Vec<Uuid>, lost: Vec<String>, json: bool) {
    if json {
        return print::json(&Report { removed: devices, lost_vssds: lost });
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
}
