//! `diecut device format`: makes files, block devices and namespaces of targets devices of one pool.

use super::identified::Shape;
use super::{Cut, complain, remote};
use crate::print;
use clap::Args;
use diecut_api::object::AddedDevice;
use diecut_api::place::{Place, quoted};
use diecut_daemon::format::{FormatOptions, Formatted, format};
use diecut_devices::local::{Access, LocalDevice};
use diecut_devices::{DriveShape, WantedCut};
use diecut_probe::Map;
use diecut_spec::Size;
use serde::Serialize;
use std::io::Read;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(Args)]
pub struct Format {
    /// Block devices, files, or namespaces of targets (HOST:PORT/NQN/NSID). Several are one pool, which one server serves.
    #[arg(required_unless_present = "address", value_parser = clap::value_parser!(Place))]
    drives: Vec<Place>,
    #[command(flatten)]
    remote: remote::Wanted,
    /// Also where something else was recognized on it, which is lost then.
    #[arg(long)]
    force: bool,
    /// Make new files of this size, which take room on their file system as they fill.
    #[arg(long)]
    size: Option<Size>,
    #[command(flatten)]
    cut: Cut,
    /// Cut it into the parts that `diecut probe --map FILE` found to work by themselves: a lane of each.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["lanes", "size"])]
    map: Option<PathBuf>,
}

/// A device that was made.
#[derive(Serialize)]
pub struct Made {
    #[serde(rename = "path", serialize_with = "as_text")]
    place: Place,
    device: String,
    pool: String,
    shape: Shape,
}

/// A place as its one word.
pub fn as_text<S: serde::Serializer>(place: &Place, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(place)
}

impl From<Formatted> for Made {
    fn from(formatted: Formatted) -> Made {
        let Formatted { place, device, pool, shape } = formatted;
        Made { place, device: device.to_string(), pool: pool.to_string(), shape: shape.into() }
    }
}

impl From<AddedDevice> for Made {
    fn from(added: AddedDevice) -> Made {
        let AddedDevice { path, device, pool, lanes, blocks_per_lane, erase_block, .. } = added;
        let block_size_bytes = erase_block.bytes();
        let (zones, dies, lane_stride_bytes) = (None, None, None);
        let shape = DriveShape { lanes, block_size_bytes, blocks_per_lane, zones, dies, lane_stride_bytes };
        let place = Place::Path(path.into());
        Made { place, device: device.to_string(), pool: pool.to_string(), shape: shape.into() }
    }
}

impl Made {
    /// For people.
    pub fn words(&self) -> String {
        format!("{} is the device {} now: {}", self.place, self.device, self.shape.words())
    }
}

/// How drives are formatted.
pub fn options(force: bool, cut: &Cut, size: Option<Size>) -> FormatOptions {
    FormatOptions { force, cut: cut.wanted(), size_bytes: size.map(|size| size.bytes()) }
}

/// A map has no more.
const MAP_BYTES_MAX: u64 = 1 << 20;

/// How a drive is cut by a map.
fn by_map(file: &Path, drives: &[Place], cut: &Cut) -> Result<WantedCut, String> {
    let name = file.display();
    let [Place::Path(path)] = drives else {
        return Err(format!("{name} is the map of one drive of this machine: name that drive, and no other"));
    };
    let failed = |error| format!("{name} cannot be read: {error}");
    let mut text = String::new();
    let opened = std::fs::File::open(file).map_err(failed)?;
    opened.take(MAP_BYTES_MAX).read_to_string(&mut text).map_err(failed)?;
    let map: Map = serde_json::from_str(&text).map_err(|error| match error.is_data() {
        true => format!("{name} is JSON, and no map of this version's `diecut probe --map`: {error}"),
        false => format!("{name} is no map of `diecut probe --map`: it is no JSON: {error}"),
    })?;
    let device = LocalDevice::open(path, Access::Look).map_err(|error| error.to_string())?;
    let properties = device.properties();
    if map.size_bytes != properties.size_bytes || map.serial != properties.identity.serial {
        let serial = map.serial.map(|serial| format!(" and the serial number {serial}")).unwrap_or_default();
        return Err(format!(
            "{name} is the map of a drive with {} bytes{serial}; {} is another one: measure it (`diecut probe {} --map FILE`)",
            map.size_bytes,
            path.display(),
            path.display()
        ));
    }
    let lanes = map.lanes().map_err(|why| format!("{name}: {why}"))?;
    Ok(WantedCut { lanes: Some(lanes), apart: true, ..cut.wanted() })
}

/// Their tables in a set-up.
pub fn tables(made: &[Made], head: &str) -> String {
    made.iter().map(|one| table(&one.place, head)).collect::<Vec<String>>().join("\n")
}

/// The table of a drive in a set-up.
pub fn table(place: &Place, head: &str) -> String {
    match place {
        Place::Namespace(remote) => format!("{head}\n{}", remote::table(remote)),
        Place::Path(path) => {
            let is_block = std::fs::metadata(path).is_ok_and(|found| found.file_type().is_block_device());
            let kind = if is_block { "block" } else { "file" };
            // A set-up may lie in another folder than this one.
            let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
            format!("{head}\nkind = \"{kind}\"\npath = {}", quoted(&path.to_string_lossy()))
        }
    }
}

/// Whether a size is asked for where a file is made.
///
/// # Errors
/// If there is none.
pub fn check_size(size: Option<Size>, drives: &[Place]) -> Result<(), String> {
    let is_path = |place: &Place| matches!(place, Place::Path(_));
    match size.is_some() && !drives.iter().any(is_path) {
        true => Err("--size is for new files, and none is named".to_owned()),
        false => Ok(()),
    }
}

impl Format {
    /// Carries it out, and prints what came of it.
    pub fn run(self, json: bool) -> ExitCode {
        let Format { drives, remote, force, size, cut, map } = self;
        let asked = remote.drives(&drives).and_then(|drives| {
            check_size(size, &drives)?;
            let mut options = options(force, &cut, size);
            if let Some(map) = &map {
                options.cut = by_map(map, &drives, &cut)?;
            }
            Ok((drives, options))
        });
        let formatted = match asked {
            Ok((drives, options)) => format(&drives, options),
            Err(message) => return complain(&message, json),
        };
        let made: Vec<Made> = match formatted {
            Ok(formatted) => formatted.into_iter().map(Made::from).collect(),
            Err(error) => return complain(&error.to_string(), json),
        };
        if json {
            print::json(&made);
            return ExitCode::SUCCESS;
        }
        made.iter().for_each(|one| print::line(&one.words()));
        let (it, head) = match made.len() {
            1 => ("it", "[device]"),
            _ => ("them, which are one pool,", "[[device]]"),
        };
        print::line(&format!("A server serves {it} with this in its set-up (docs/setup.md):\n"));
        print::line(&tables(&made, head));
        ExitCode::SUCCESS
    }
}
