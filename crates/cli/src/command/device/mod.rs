//! `diecut device`: drives (files and block devices of this machine, namespaces of NVMe/TCP targets), and the devices of a server.

mod add;
mod format;
mod identified;
mod import;
mod list;
mod remote;
mod remove;
mod show;

use crate::client::{Client, ClientError};

use crate::print;
use clap::{Args, Subcommand};
use diecut_api::place::Place;
use diecut_devices::local::{Access, DriveKind, LocalDevice, Properties};
use diecut_drives::{DriveShape, ShapeError};
use diecut_spec::Size;
use identified::{Identified, Looked};
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
        /// Its name, as `diecut device list` has it.
        name: String,
    },
    /// Add a drive to a pool whose server is stopped. What it holds is lost.
    Add(add::Add),
    /// Make files, block devices and namespaces of targets a pool that a server can serve. What they hold is lost.
    Format(format::Format),
    /// Find pools by the labels of their drives, and make the set-up with which this machine serves one. Nothing is written to drives.
    Import(import::Import),
    /// Take drives out of a pool whose server is stopped: those that are gone for good, and those on which nothing lies.
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
    fn shape(&self, size_bytes: u64) -> Result<DriveShape, ShapeError> {
        let block_size_bytes = self.erase_block.map(|size| size.bytes());
        match self.lanes {
            Some(lanes) => DriveShape::plan(size_bytes, lanes, block_size_bytes),
            None => DriveShape::suggest(size_bytes, block_size_bytes),
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

/// What a file or a block device says of itself.
#[derive(Serialize)]
struct Local {
    properties: Properties,
    /// What its zones are, if it is written in zones.
    zones: Option<Zones>,
}

#[derive(Serialize)]
struct Zones {
    conventional: u32,
    /// Bytes of a sequential zone that can be written.
    capacity_bytes: u64,
}

impl Local {
    fn of(device: &LocalDevice) -> Local {
        let zones = device.zoning().ok().flatten().map(|zoning| Zones {
            conventional: zoning.conventional(),
            capacity_bytes: zoning
                .zones
                .get(zoning.conventional() as usize)
                .map_or(0, |zone| zone.capacity_bytes),
        });
        Local { properties: device.properties().clone(), zones }
    }
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
            Device::Add(add) => add.run(json),
            Device::Import(import) => import.run(json),
            Device::Remove(remove) => remove.run(json),
            Device::List | Device::Show { .. } => unreachable!("a server is asked"),
            Device::Release(release) => release.run(json),
        }
    }

    /// Whether a server is asked.
    pub fn asks_server(&self) -> bool {
        matches!(self, Device::List | Device::Show { .. })
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
            _ => unreachable!("no server is asked"),
        }
    }
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
    Remote(remote::Facts),
}

impl Facts {
    fn rows(&self) -> Vec<(&'static str, String)> {
        match self {
            Facts::Local(local) => own_rows(local),
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
        let shape = device.shape(self.cut.lanes, self.cut.erase_block.map(|size| size.bytes()));
        Ok(Identified::new(path.display().to_string(), Facts::Local(Box::new(local)), looked, shape))
    }
}

fn yes(is: bool) -> String {
    if is { "yes" } else { "no" }.to_owned()
}

/// What a drive says of its zones, in words.
fn zones(kind: &str, own: &Local) -> String {
    let facts = &own.properties;
    let mut words = kind.to_owned();
    if let (Some(count), Some(bytes)) = (facts.zones, facts.zone_bytes) {
        words += &format!(": {count} zones of {}", Size(bytes));
    }
    if let Some(zones) = &own.zones {
        words += &format!(", {} of them conventional", zones.conventional);
        words += &format!("; {} of a sequential one can be written", Size(zones.capacity_bytes));
    }
    let limit = |max: Option<u64>, what: &str| {
        max.filter(|max| *max > 0).map(|max| format!("; {max} {what} at once")).unwrap_or_default()
    };
    words += &limit(facts.active_zones_max, "partly written");
    words + &limit(facts.open_zones_max, "open")
}

/// What no other kind of drive says of itself.
fn own_rows(own: &Local) -> Vec<(&'static str, String)> {
    let facts = &own.properties;
    let mut rows = vec![(
        "is a",
        match (facts.kind, &facts.file_system) {
            (DriveKind::File, Some(on)) => format!("file on {on}"),
            (DriveKind::File, None) => "file".to_owned(),
            (DriveKind::Block, _) => "block device".to_owned(),
            (DriveKind::Partition, _) => "partition".to_owned(),
        },
    )];
    let names = [
        ("model", &facts.model),
        ("serial", &facts.serial),
        ("firmware", &facts.firmware),
        ("wwid", &facts.wwid),
    ];
    rows.extend(names.into_iter().filter_map(|(name, value)| Some((name, value.clone()?))));
    rows.push(("size", format!("{} ({} bytes)", Size(facts.size_bytes), facts.size_bytes)));
    rows.extend(facts.allocated_bytes.map(|bytes| ("has a place for", Size(bytes).to_string())));
    let physical = facts.physical_block_bytes.map(|bytes| format!(", physical {bytes}")).unwrap_or_default();
    rows.push(("block", format!("{} bytes{physical}", facts.logical_block_bytes)));
    rows.extend(
        facts
            .optimal_io_bytes
            .filter(|bytes| *bytes > 0)
            .map(|bytes| ("likes commands of", Size(bytes).to_string())),
    );
    rows.push(("past the page cache", yes(facts.takes_direct)));
    rows.extend(facts.has_volatile_cache.map(|is| ("volatile cache", yes(is))));
    rows.extend(facts.takes_fua.map(|is| ("writes past it (FUA)", yes(is))));
    let unit = facts
        .discard_granularity_bytes
        .filter(|bytes| *bytes > 0)
        .map(|bytes| format!(", in units of {}", Size(bytes)));
    let what = if facts.kind == DriveKind::File { "punches holes" } else { "discards" };
    rows.extend(
        facts
            .takes_discard
            .map(|is| (what, if is { format!("yes{}", unit.unwrap_or_default()) } else { yes(is) })),
    );
    rows.extend(facts.is_rotational.map(|is| ("rotates", yes(is))));
    rows.extend(facts.kind_of_zones().map(|kind| ("zoned", zones(kind, own))));
    rows
}
