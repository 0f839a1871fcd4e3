//! `diecut device import`: finds pools by the labels of their drives, and makes the set-up with which a server on this machine serves one.

use super::format::table;
use super::{complain, remote};
use crate::print;
use clap::Args;
use diecut_api::place::Place;
use diecut_devices::local::{Access, LocalDevice};
use diecut_devices::{Label, Membership, PoolError, open_pool};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use uuid::Uuid;

#[derive(Args)]
pub struct Import {
    /// Drives to look at: files, block devices, or namespaces of targets (HOST:PORT/NQN/NSID). All block devices of this machine, if none is named.
    #[arg(value_parser = clap::value_parser!(Place))]
    drives: Vec<Place>,
    #[command(flatten)]
    remote: remote::Wanted,
    /// The pool, where several are found.
    #[arg(long, value_name = "UUID")]
    pool: Option<Uuid>,
    /// Write the set-up of the pool to this file, which is made.
    #[arg(long, value_name = "FILE")]
    setup: Option<PathBuf>,
}

/// A pool that was found.
#[derive(Serialize)]
struct Found {
    pool: String,
    devices: Vec<Device>,
    /// Devices of the pool that were not found.
    missing: Vec<String>,
    /// Why a server would not start with what was found.
    refusal: Option<String>,
}

/// A device of a pool that was found.
#[derive(Serialize)]
struct Device {
    device: String,
    #[serde(rename = "path", serialize_with = "super::format::as_text")]
    place: Place,
    /// What is wrong with it: it missed changes, or is of the pool no more.
    trouble: Option<&'static str>,
}

/// The label of a drive; why there is none that can be read, in words.
fn label_of(place: &Place) -> Result<Label, String> {
    let found = match place {
        Place::Path(path) => {
            let device = LocalDevice::open(path, Access::Look).map_err(|error| error.to_string())?;
            device.label().map_err(|error| format!("{}: {error}", path.display()))?
        }
        Place::Namespace(wanted) => {
            let namespace = remote::connect(wanted).map_err(|error| error.to_string())?;
            namespace.label().map_err(|error| format!("{place}: {error}"))?
        }
    };
    Ok(found.label)
}

/// Why a server does not start.
fn refused(error: &PoolError) -> String {
    match error {
        PoolError::Empty => error.to_string(),
        PoolError::Twice(device) => format!(
            "two drives have the label of the device {}: one is a copy of the other; name one of them",
            Uuid::from_bytes(*device)
        ),
        PoolError::NoMajority { present, needed_of, .. } => format!(
            "{present} of {needed_of} devices of the pool were found, and it takes more than half of them: name the drives of the others, too"
        ),
    }
}

/// The pool that these labels are of.
fn pool_of(server: [u8; 16], drives: Vec<(Place, Label)>) -> Found {
    let labels: Vec<Label> = drives.iter().map(|(_, label)| label.clone()).collect();
    let name = |device: [u8; 16]| Uuid::from_bytes(device).to_string();
    let device = |(place, label): &(Place, Label), trouble| Device {
        device: name(label.device),
        place: place.clone(),
        trouble,
    };
    let pool = name(server);
    let opening = match open_pool(&labels, false) {
        Ok(opening) => opening,
        Err(error) => {
            let missing = match &error {
                PoolError::NoMajority { missing, .. } => missing.iter().copied().map(name).collect(),
                PoolError::Empty | PoolError::Twice(_) => Vec::new(),
            };
            let devices = drives.iter().map(|drive| device(drive, None)).collect();
            return Found { pool, devices, missing, refusal: Some(refused(&error)) };
        }
    };
    let trouble = |at: usize| match opening.membership(labels[at].device) {
        Some(Membership::Removed) => Some("it was taken out of the pool"),
        Some(Membership::Joining) => Some("it was being added to the pool, which was cut short"),
        _ if opening.strangers.contains(&at) => Some("the pool does not know it"),
        _ if opening.stale.contains(&at) => Some("it missed changes of the pool"),
        _ => None,
    };
    let devices = drives.iter().enumerate().map(|(at, drive)| device(drive, trouble(at))).collect();
    Found { pool, devices, missing: opening.missing.iter().copied().map(name).collect(), refusal: None }
}

/// Block devices of this machine, each under the name that stays it, if it has one.
fn block_devices() -> Vec<Place> {
    let names_in = |folder: &str| {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
        paths.sort();
        paths
    };
    let lasting = names_in("/dev/disk/by-id");
    let is_of = |name: &Path, device: &Path| name.canonicalize().is_ok_and(|target| target == device);
    let devices = names_in("/sys/class/block").into_iter().filter_map(|folder| {
        // One without a size is a place for a device: a loop device of nothing, an empty card reader.
        let size = std::fs::read_to_string(folder.join("size")).ok()?;
        let device = Path::new("/dev").join(folder.file_name()?);
        (size.trim() != "0" && device.exists()).then_some(device)
    });
    let named =
        devices.map(|device| lasting.iter().find(|name| is_of(name, &device)).cloned().unwrap_or(device));
    named.map(Place::Path).collect()
}

impl Import {
    /// Carries it out, and prints what came of it.
    pub fn run(self, json: bool) -> ExitCode {
        let Import { drives, remote, pool, setup } = self;
        let drives = match remote.drives(&drives) {
            Ok(drives) => drives,
            Err(message) => return complain(&message, json),
        };
        let is_search = drives.is_empty();
        let mut pools: BTreeMap<[u8; 16], Vec<(Place, Label)>> = BTreeMap::new();
        for place in if is_search { block_devices() } else { drives } {
            match label_of(&place) {
                Ok(label) => pools.entry(label.server).or_default().push((place, label)),
                // Most devices of a machine have no label.
                Err(_) if is_search => {}
                Err(message) => return complain(&message, json),
            }
        }
        let found: Vec<Found> = pools.into_iter().map(|(server, drives)| pool_of(server, drives)).collect();
        let wanted = pool.map(|pool| pool.to_string());
        let found: Vec<Found> = found
            .into_iter()
            .filter(|one| wanted.as_ref().is_none_or(|wanted| one.pool == *wanted))
            .collect();
        if found.is_empty() {
            let what = wanted.map_or("no pool".to_owned(), |pool| format!("no drive of the pool {pool}"));
            let more = if is_search {
                "; a drive that is a file, or behind a network, is found where it is named. Block devices are read by root only"
            } else {
                ""
            };
            return complain(&format!("{what} was found{more}"), json);
        }
        if let Some(path) = &setup {
            let [one] = &found[..] else {
                let pools: Vec<&str> = found.iter().map(|one| one.pool.as_str()).collect();
                let message =
                    format!("{} pools were found: {}; say which (--pool)", found.len(), pools.join(", "));
                return complain(&message, json);
            };
            if let Err(message) = write(path, one) {
                return complain(&message, json);
            }
        }
        if json {
            print::json(&found);
            return ExitCode::SUCCESS;
        }
        found.iter().for_each(|one| one.print(setup.as_deref()));
        ExitCode::SUCCESS
    }
}

/// Makes the set-up of a pool.
fn write(path: &Path, found: &Found) -> Result<(), String> {
    if let Some(refusal) = &found.refusal {
        return Err(format!("no set-up is made for the pool {}: {refusal}", found.pool));
    }
    let file = OpenOptions::new().write(true).create_new(true).open(path);
    let written = file.and_then(|mut file| file.write_all(found.setup().as_bytes()));
    written.map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => format!("{} is there already; name another file", path.display()),
        _ => format!("{} cannot be made: {error}", path.display()),
    })
}

impl Found {
    /// Tables of the devices that a server can use. Paths are whole: a set-up may lie anywhere.
    fn setup(&self) -> String {
        let usable = self.devices.iter().filter(|device| device.trouble.is_none());
        let tables: Vec<String> = usable.map(|device| table(&device.place, "[[device]]") + "\n").collect();
        format!(
            "# The pool {}. What exists on it, tenants and volumes, it knows by itself.\n\n{}",
            self.pool,
            tables.join("\n")
        )
    }

    fn print(&self, setup: Option<&Path>) {
        let rows = self.devices.iter().map(|one| {
            let state = one.trouble.map_or("there".to_owned(), |trouble| format!("not usable: {trouble}"));
            vec![one.device.clone(), one.place.to_string(), state]
        });
        let missing =
            self.missing.iter().map(|device| vec![device.clone(), String::new(), "not found".to_owned()]);
        print::line(&format!("Pool {}", self.pool));
        print::table(&["device", "drive", "state"], rows.chain(missing).collect());
        match (&self.refusal, setup) {
            (Some(refusal), _) => print::line(&format!("A server does not start with these: {refusal}\n")),
            (None, Some(path)) => {
                let path = path.display();
                print::line(&format!(
                    "{path} is its set-up. `diecut serve --setup {path} --data FOLDER` serves it.\n"
                ));
            }
            (None, None) => {
                print::line("A server serves it with this set-up, which --setup FILE writes:\n");
                print::line(&self.setup());
            }
        }
    }
}
