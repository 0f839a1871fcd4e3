//! `diecut device`: files and block devices of this machine, without a server.

use crate::print;
use clap::{Args, Subcommand};
use diecut_devices::local::{
    Access, Contents, DriveKind, FoundLabel, LocalDevice, OtherCopy, Properties, Wipefs,
};
use diecut_drives::DriveShape;
use diecut_spec::Size;
use serde::Serialize;
use std::path::PathBuf;
use std::process::ExitCode;

/// What every drive leaves that hides its dies.
const ISOLATION: &str = "none of its own: whoever shares it shares its bandwidth by weights and rates, and feels the writes of others and what the drive does \
                         inside; `diecut probe` measures which regions disturb each other";
/// What no server does yet.
const NOT_SERVED: &str = "no server of this version serves from a device of this kind yet";

#[derive(Subcommand)]
pub enum Device {
    /// Say what files and block devices are, what lies on them, and whether diecut would take them. Nothing is written.
    Identify(Identify),
}

#[derive(Args)]
pub struct Identify {
    /// Block devices or files.
    #[arg(required = true)]
    paths: Vec<PathBuf>,
    /// Lanes that a drive is to be cut into; each is owned by one shard of a server. Up to 16 by its size, if nothing is said.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024))]
    lanes: Option<u16>,
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
    served: bool,
}

#[derive(Serialize)]
struct Shape {
    lanes: u16,
    block_size_bytes: u64,
    blocks_per_lane: u32,
    usable_bytes: u64,
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

impl Device {
    /// Carries it out, and prints what came of it.
    pub fn run(self, json: bool) -> ExitCode {
        let Device::Identify(identify) = self;
        identify.run(json)
    }
}

impl Identify {
    fn run(self, json: bool) -> ExitCode {
        let mut known = Vec::new();
        let mut code = ExitCode::SUCCESS;
        for path in &self.paths {
            match self.identify(path.clone()) {
                Ok(identified) => known.push(identified),
                Err(message) if json => {
                    eprintln!("{}", serde_json::json!({ "message": message }));
                    code = ExitCode::FAILURE;
                }
                Err(message) => {
                    eprintln!("error: {message}");
                    code = ExitCode::FAILURE;
                }
            }
        }
        if json {
            print::json(&known);
        } else {
            known.iter().for_each(|one| {
                print::table(&["device", &one.path.display().to_string()], print::field_rows(rows(one)));
            });
            if !known.is_empty() {
                print::line(&format!("Nothing was written; {NOT_SERVED}."));
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
        let shape = match self.lanes {
            Some(lanes) => DriveShape::plan(properties.size_bytes, lanes, None),
            None => DriveShape::suggest(properties.size_bytes),
        };
        refusals.extend(shape.as_ref().err().map(ToString::to_string));
        refusals.extend(against(&properties));
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
            shape: shape.ok().map(|shape| Shape {
                lanes: shape.lanes,
                block_size_bytes: shape.block_size_bytes,
                blocks_per_lane: shape.blocks_per_lane,
                usable_bytes: shape.geometry().raw_capacity_bytes(),
            }),
            properties,
            contents,
            users,
            label,
            isolation: ISOLATION,
            served: false,
        })
    }
}

/// What of the drive itself speaks against it.
fn against(properties: &Properties) -> Vec<String> {
    let mut against = Vec::new();
    if let Some(zoned) = properties.zones() {
        against.push(format!(
            "it is zoned ({zoned}): it is written in zones only, and erase blocks do not follow them yet"
        ));
    }
    if properties.is_read_only {
        against.push("the kernel takes no writes to it".to_owned());
    }
    if properties.logical_block_bytes > 4096 {
        against.push(format!(
            "its blocks have {} bytes, and diecut writes 4096",
            properties.logical_block_bytes
        ));
    }
    against
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
        let other =
            label.other_copy.as_ref().map(|other| format!("; its other copy: {other}")).unwrap_or_default();
        let devices = label.devices_of_pool;
        rows.push((
            "label",
            format!(
                "number {}, epoch {}, {} lanes, a pool of {devices}{other}",
                label.number, label.epoch, label.lanes
            ),
        ));
    }
    if let Some(shape) = &one.shape {
        let (lanes, blocks) = (shape.lanes, shape.blocks_per_lane);
        let text = format!(
            "{lanes} lanes of {blocks} erase blocks of {}: {}",
            Size(shape.block_size_bytes),
            Size(shape.usable_bytes)
        );
        rows.push(("would be cut into", text));
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
