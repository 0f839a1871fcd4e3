//! `diecut device`: drives (files and block devices of this machine, namespaces of NVMe/TCP targets), and the devices of a server.

mod add;
mod format;
mod list;
mod remote;

pub use list::list;

use crate::print;
use clap::{Args, Subcommand};
use diecut_devices::local::{
    Access, Contents, DriveKind, FoundLabel, LocalDevice, OtherCopy, Properties, Wipefs,
};
use diecut_drives::{DriveShape, ShapeError};
use diecut_spec::Size;
use serde::Serialize;
use std::path::PathBuf;
use std::process::ExitCode;

/// What every drive leaves that hides its dies.
const ISOLATION: &str = "none of its own: whoever shares it shares its bandwidth by weights and rates, and feels the writes of others and what the drive does \
                         inside; `diecut probe` measures which regions disturb each other";
#[derive(Subcommand)]
pub enum Device {
    /// Say what files, block devices or namespaces of targets are, what lies on them, and whether diecut would take them. Nothing is written.
    Identify(Identify),
    /// List the devices of a running server, and those of its pool that are not there.
    List,
    /// Add a file or a block device to a pool whose server is stopped. What it holds is lost.
    Add(add::Add),
    /// Make files or block devices, or a namespace of a target, a pool that a server can serve. What they hold is lost.
    Format(format::Format),
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
    /// Block devices or files.
    #[arg(required_unless_present = "address")]
    paths: Vec<PathBuf>,
    #[command(flatten)]
    remote: remote::Wanted,
    #[command(flatten)]
    cut: Cut,
}

/// What is known of one path.
#[derive(Serialize)]
struct Identified {
    path: PathBuf,
    properties: Properties,
    contents: Contents,
    /// Who uses it.
    users: Vec<String>,
    label: Option<Labelled>,
    /// How it would be cut.
    shape: Option<Shape>,
    /// Whether it could be made a device of diecut without force.
    fits: bool,
    /// What speaks against it.
    refusals: Vec<String>,
    isolation: &'static str,
}

#[derive(Serialize)]
struct Shape {
    lanes: u16,
    block_size_bytes: u64,
    blocks_per_lane: u32,
    usable_bytes: u64,
}

impl From<DriveShape> for Shape {
    fn from(shape: DriveShape) -> Shape {
        Shape {
            lanes: shape.lanes,
            block_size_bytes: shape.block_size_bytes,
            blocks_per_lane: shape.blocks_per_lane,
            usable_bytes: shape.geometry().raw_capacity_bytes(),
        }
    }
}

impl Shape {
    fn words(&self) -> String {
        let (lanes, blocks) = (self.lanes, self.blocks_per_lane);
        format!(
            "{lanes} lane{} of {blocks} erase blocks of {}: {}",
            if lanes == 1 { "" } else { "s" },
            Size(self.block_size_bytes),
            Size(self.usable_bytes)
        )
    }
}

#[derive(Serialize)]
struct Labelled {
    server: String,
    device: String,
    number: u64,
    epoch: u64,
    lanes: u16,
    devices_of_pool: usize,
    /// What is wrong with its other copy.
    other_copy: Option<String>,
}

impl Labelled {
    fn words(&self) -> String {
        let other =
            self.other_copy.as_ref().map(|other| format!("; its other copy: {other}")).unwrap_or_default();
        let (number, epoch, lanes, devices) = (self.number, self.epoch, self.lanes, self.devices_of_pool);
        format!("number {number}, epoch {epoch}, {lanes} lanes, a pool of {devices}{other}")
    }
}

impl Device {
    /// Carries it out, and prints what came of it.
    ///
    /// # Panics
    /// If a server is to be asked ([`list()`]).
    pub fn run(self, json: bool) -> ExitCode {
        match self {
            Device::Identify(identify) => identify.run(json),
            Device::Format(format) => format.run(json),
            Device::Add(add) => add.run(json),
            Device::List => unreachable!("a server is asked"),
            Device::Release(release) => release.run(json),
        }
    }

    /// Whether a server is asked.
    pub fn asks_server(&self) -> bool {
        matches!(self, Device::List)
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

impl Identify {
    fn run(self, json: bool) -> ExitCode {
        if let Some(wanted) = self.remote.device() {
            return remote::identify(&wanted, &self.cut, json);
        }
        let mut known = Vec::new();
        let mut code = ExitCode::SUCCESS;
        for path in &self.paths {
            match self.identify(path.clone()) {
                Ok(identified) => known.push(identified),
                Err(message) => code = complain(&message, json),
            }
        }
        if json {
            print::json(&known);
        } else {
            known.iter().for_each(|one| {
                print::table(&["device", &one.path.display().to_string()], print::field_rows(rows(one)));
            });
            if !known.is_empty() {
                print::line("Nothing was written. `diecut device format PATH` makes one of them a device.");
            }
        }
        code
    }

    fn identify(&self, path: PathBuf) -> Result<Identified, String> {
        let device = LocalDevice::open(&path, Access::Look).map_err(|error| error.to_string())?;
        let contents = device.contents().map_err(|error| error.to_string())?;
        let properties = device.properties().clone();
        let users = device.users();
        let mut refusals = users.clone();
        refusals.extend(contents.words().into_iter().map(|what| format!("it holds {what}")));
        let shape = self.cut.shape(properties.size_bytes);
        refusals.extend(shape.as_ref().err().map(ToString::to_string));
        refusals.extend(properties.against());
        let has_label = contents.found.iter().any(|found| found.kind == "diecut_label");
        let label = match device.label() {
            Ok(found) => Some(labelled(&found)),
            Err(error) => {
                refusals.extend(has_label.then(|| error.to_string()));
                None
            }
        };
        Ok(Identified {
            path,
            fits: refusals.is_empty(),
            refusals,
            shape: shape.ok().map(Shape::from),
            properties,
            contents,
            users,
            label,
            isolation: ISOLATION,
        })
    }
}

fn labelled(found: &FoundLabel) -> Labelled {
    let label = &found.label;
    Labelled {
        server: uuid::Uuid::from_bytes(label.server).to_string(),
        device: uuid::Uuid::from_bytes(label.device).to_string(),
        number: label.number,
        epoch: label.epoch,
        lanes: label.shape.lanes,
        devices_of_pool: label.devices.len(),
        other_copy: match &found.other {
            OtherCopy::Same => None,
            OtherCopy::Older(number) => Some(format!("older (number {number}): a change was cut short")),
            OtherCopy::Contradicts => Some("it contradicts".to_owned()),
            OtherCopy::Bad(error) => Some(error.to_string()),
        },
    }
}

fn yes(is: bool) -> String {
    if is { "yes" } else { "no" }.to_owned()
}

fn rows(one: &Identified) -> Vec<(&'static str, String)> {
    let facts = &one.properties;
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
    rows.extend(facts.zones().map(|zoned| ("zoned", zoned.to_owned())));
    rows.push(("holds", holds(&one.contents)));
    if let Some(label) = &one.label {
        rows.push(("label", label.words()));
    }
    if let Some(shape) = &one.shape {
        rows.push(("would be cut into", shape.words()));
    }
    rows.push(("isolation", one.isolation.to_owned()));
    rows.push((
        "would be taken",
        if one.fits { yes(true) } else { format!("no: {}", one.refusals.join("; ")) },
    ));
    rows
}

fn holds(contents: &Contents) -> String {
    let mut words = contents.words().join("; ");
    if words.is_empty() {
        words = match contents.unknown_at {
            Some(at) => format!("nothing that is known, but bytes of unknown kind from {at} on"),
            None => "nothing that is known, and zeros where it was looked at".to_owned(),
        };
    }
    match &contents.wipefs {
        Wipefs::Missing => words + " (without wipefs, which knows more formats and is not installed)",
        Wipefs::Failed(error) => format!("{words} (without wipefs, which failed: {error})"),
        Wipefs::Looked | Wipefs::NotAsked => words,
    }
}
