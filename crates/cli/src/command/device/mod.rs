//! `diecut device`: drives (files and block devices of this machine, namespaces of NVMe/TCP targets), and the devices of a server.

mod add;
mod evacuate;
mod format;
pub mod health;
mod identified;
mod import;
mod list;
mod local;
mod remote;
mod remove;
mod show;

use crate::client::{Client, ClientError};

use crate::print;
use clap::{Args, Subcommand};
use diecut_api::place::Place;
use diecut_api::status::Status;
use diecut_devices::WantedCut;
use diecut_devices::local::{Access, LocalDevice};
use diecut_spec::Size;
use identified::{Identified, Looked};
use local::Local;
use serde::Serialize;
use std::path::Path;
use std::process::ExitCode;

#[derive(Subcommand)]
pub enum Device {
    /// Say what files, block devices or namespaces of targets are, what lies on them, and whether diecut would take them. Nothing is written.
    Identify(Identify),
    /// List the devices of a running server, and those of its pool that are not there.
    List,
    /// Say what a device of a running server is, and what lies on it.
    Show {
        /// Its name, as `diecut device list` has it, or the path of its drive.
        name: String,
    },
    /// Add a drive to the pool of a server, running or stopped. What it holds is lost.
    Add(add::Add),
    /// Move what lies on a device of a running server to its other devices, while hosts go on. Then `diecut device remove` takes it out.
    Evacuate(evacuate::Evacuate),
    /// Make files, block devices and namespaces of targets a pool that a server can serve. What they hold is lost.
    Format(format::Format),
    /// Find pools by the labels of their drives, and make the set-up with which this machine serves one. Nothing is written to drives.
    Import(import::Import),
    /// Take drives out of the pool of a server: those on which nothing lies; where it is stopped, those that are gone for good, too.
    Remove(remove::Remove),
    /// Take a namespace of a target from a server that is gone for good. One that still serves it writes no more when another one has it.
    Release(remote::Release),
}

/// How a drive is cut.
#[derive(Args)]
struct Cut {
    /// Lanes that a drive is cut into; each is owned by one shard of a server. Up to 16 by its size, if nothing is said.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024))]
    lanes: Option<u16>,
    /// Size of an erase block: a power of two from 1 MiB to 256 MiB. 16 MiB or more by the size of the drive, if nothing is said.
    #[arg(long, value_name = "SIZE")]
    erase_block: Option<Size>,
}

impl Cut {
    fn wanted(&self) -> WantedCut {
        WantedCut {
            lanes: self.lanes,
            block_size_bytes: self.erase_block.map(|size| size.bytes()),
            apart: false,
        }
    }
}

#[derive(Args)]
pub struct Identify {
    /// Block devices, files, or namespaces of targets (HOST:PORT/NQN/NSID).
    #[arg(required_unless_present = "address", value_parser = clap::value_parser!(Place))]
    drives: Vec<Place>,
    #[command(flatten)]
    remote: remote::Wanted,
    #[command(flatten)]
    cut: Cut,
}

impl Device {
    /// Carries it out, and prints what came of it.
    ///
    /// # Panics
    /// If a server is to be asked ([`Device::ask`]).
    pub fn run(self, json: bool) -> ExitCode {
        match self {
            Device::Identify(identify) => identify.run(json),
            Device::Format(format) => format.run(json),
            Device::Import(import) => import.run(json),
            Device::List | Device::Show { .. } | Device::Add(_) | Device::Remove(_) | Device::Evacuate(_) => {
                unreachable!("a server is asked")
            }
            Device::Release(release) => release.run(json),
        }
    }

    /// Whether a server is asked.
    pub fn asks_server(&self) -> bool {
        matches!(
            self,
            Device::List | Device::Show { .. } | Device::Add(_) | Device::Remove(_) | Device::Evacuate(_)
        )
    }

    /// Asks a server, and prints what it says.
    ///
    /// # Errors
    /// What asking brings.
    ///
    /// # Panics
    /// If no server is to be asked ([`Device::run`]).
    pub async fn ask(self, client: &Client, json: bool) -> Result<(), ClientError> {
        match self {
            Device::List => list::list(client, json).await,
            Device::Show { name } => show::show(client, &name, json).await,
            Device::Add(add) => add.run(client, json).await,
            Device::Evacuate(evacuate) => evacuate.run(client, json).await,
            Device::Remove(remove) => remove.run(client, json).await,
            _ => unreachable!("no server is asked"),
        }
    }
}

/// Whether a server that runs has the pool of these drives; one that is to be asked where none are named.
async fn serves(client: &Client, drives: &[Place]) -> bool {
    if drives.is_empty() {
        return true;
    }
    let Ok(status) = client.status().await else { return false };
    let real = |path: &str| std::fs::canonicalize(path).ok();
    let served: Vec<_> = status.devices.iter().filter_map(|one| real(one.path.as_deref()?)).collect();
    drives.iter().any(|drive| real(&drive.to_string()).is_some_and(|path| served.contains(&path)))
}

/// The name of the device that is called so, by its name or by the path of its drive.
fn called(status: &Status, named: &str) -> String {
    let names = status.devices.iter().map(|one| (&one.name, &one.path));
    let mut all = names.chain(status.missing_devices.iter().map(|one| (&one.name, &one.path)));
    if all.clone().any(|(name, _)| name == named) {
        return named.to_owned();
    }
    let place = Place::Path(named.into());
    let is_it = |path: &String| path == named || Place::Path(path.into()).is_same_drive(&place);
    all.find(|(_, path)| path.as_ref().is_some_and(is_it))
        .map_or_else(|| named.to_owned(), |(name, _)| name.clone())
}

/// No server runs: then the drives of the pool are to be named with an option.
fn or_stopped(error: ClientError, option: &str) -> ClientError {
    match error {
        ClientError::NoServer { .. } => ClientError::Usage(format!(
            "{error}; where the server of the pool is stopped, name each of its drives with {option}"
        )),
        other => other,
    }
}

/// The path of a drive of this machine, from the root on.
fn own_path(drive: &Place) -> Result<String, ClientError> {
    let usage = |text: String| ClientError::Usage(text);
    let Place::Path(path) = drive else {
        return Err(usage(format!(
            "{drive} is a namespace of a target: it is added while the server is stopped, whose drives are named with --to"
        )));
    };
    let path = std::path::absolute(path).map_err(|error| usage(format!("{}: {error}", path.display())))?;
    path.to_str().map(str::to_owned).ok_or_else(|| usage("the path is not UTF-8".to_owned()))
}

/// Tells of a refusal.
fn complain(message: &str, json: bool) -> ExitCode {
    if json {
        eprintln!("{}", serde_json::json!({ "message": message }));
    } else {
        eprintln!("error: {message}");
    }
    ExitCode::FAILURE
}

/// What a drive says of itself.
#[derive(Serialize)]
#[serde(untagged)]
enum Facts {
    Local(Box<Local>),
    Remote(Box<remote::Facts>),
}

impl Facts {
    fn rows(&self) -> Vec<(&'static str, String)> {
        match self {
            Facts::Local(local) => local.rows(),
            Facts::Remote(remote) => remote.rows(),
        }
    }
}

impl Identify {
    fn run(self, json: bool) -> ExitCode {
        let drives = match self.remote.drives(&self.drives) {
            Ok(drives) => drives,
            Err(message) => return complain(&message, json),
        };
        let mut known = Vec::new();
        let mut code = ExitCode::SUCCESS;
        for place in &drives {
            let identified = match place {
                Place::Path(path) => self.identify(path),
                Place::Namespace(wanted) => {
                    remote::identify(wanted, &self.cut).map_err(|error| error.to_string())
                }
            };
            match identified {
                Ok(identified) => known.push(identified),
                Err(message) => code = complain(&message, json),
            }
        }
        if json {
            print::json(&known);
        } else {
            known.iter().for_each(|one| one.print(one.facts.rows()));
            if !known.is_empty() {
                print::line("Nothing was written. `diecut device format DRIVE` makes one of them a device.");
            }
        }
        code
    }

    fn identify(&self, path: &Path) -> Result<Identified<Facts>, String> {
        let device = LocalDevice::open(path, Access::Look).map_err(|error| error.to_string())?;
        let contents = device.contents().map_err(|error| error.to_string())?;
        let local = Local::of(&device);
        let looked = Looked {
            users: device.users(),
            contents,
            against: local.properties.against(),
            label: device.label().map_err(|error| error.to_string()),
        };
        let shape = device.shape(self.cut.wanted());
        Ok(Identified::new(path.display().to_string(), Facts::Local(Box::new(local)), looked, shape))
    }
}

fn yes(is: bool) -> String {
    if is { "yes" } else { "no" }.to_owned()
}
