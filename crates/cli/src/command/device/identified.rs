//! What `diecut device identify` says of a drive, whatever its kind.

use super::yes;
use crate::print;
use diecut_daemon::format::fitting;
use diecut_devices::Membership;
use diecut_devices::local::{Contents, FoundLabel, OtherCopy, Wipefs};
use diecut_drives::DriveShape;
use diecut_spec::Size;
use serde::Serialize;

/// What every drive leaves that hides its dies.
const ISOLATION: &str = "none of its own: whoever shares it shares its bandwidth by weights and rates, and feels the writes of others and what the drive does \
                         inside; `diecut probe` measures which regions disturb each other";

/// What one leaves that was cut by its map.
const ISOLATION_OF_PARTS: &str = "lanes, which were measured not to disturb each other: a vSSD with isolation = \"channel\" has some for itself; what lanes have in \
                                  common (the bus, flushes) it feels";

/// What one leaves that shows them.
const ISOLATION_OF_DIES: &str = "channels and dies, as on flash: vSSDs get them for themselves (isolation = \"channel\" or \"die\"), and feel of each other what \
                                 the target and the way there have in common";

/// What a look at a drive found.
pub struct Looked {
    /// Who uses it.
    pub users: Vec<String>,
    /// What lies on it.
    pub contents: Contents,
    /// What the drive itself has that speaks against it.
    pub against: Vec<String>,
    /// Its label, or why there is none.
    pub label: Result<FoundLabel, String>,
}

/// What is known of a drive. `F` is what only its kind says.
#[derive(Serialize)]
pub struct Identified<F> {
    path: String,
    /// What it says of itself.
    #[serde(flatten)]
    pub facts: F,
    contents: Contents,
    /// Who uses it.
    users: Vec<String>,
    label: Option<Labelled>,
    /// How it is cut, where it has a label; otherwise how it would be.
    shape: Option<Shape>,
    /// Whether it could be made a device of diecut without force.
    fits: bool,
    /// What speaks against it.
    refusals: Vec<String>,
    isolation: &'static str,
}

impl<F> Identified<F> {
    /// Judges what was found.
    pub fn new(path: String, facts: F, looked: Looked, shape: Result<DriveShape, String>) -> Identified<F> {
        let Looked { users, contents, against, label } = looked;
        // As `format` judges it. What is cut already is shown as it is.
        let shape = match &label {
            Ok(found) => Ok(found.label.shape),
            Err(_) => shape.and_then(fitting),
        };
        let mut refusals = users.clone();
        refusals.extend(contents.words().into_iter().map(|what| format!("it holds {what}")));
        refusals.extend(shape.as_ref().err().cloned());
        refusals.extend(against);
        // Without a label among what lies there, that there is none speaks against nothing.
        if let Err(error) = &label
            && contents.found.iter().any(|found| found.kind == "diecut_label")
        {
            refusals.push(error.clone());
        }
        let shows_dies = shape.as_ref().is_ok_and(|shape| shape.dies.is_some());
        let has_parts = label.as_ref().is_ok_and(|found| found.label.shape.lane_stride_bytes.is_some());
        Identified {
            path,
            facts,
            fits: refusals.is_empty(),
            refusals,
            shape: shape.ok().map(Shape::from),
            contents,
            users,
            label: label.ok().map(|found| labelled(&found)),
            isolation: match () {
                () if shows_dies => ISOLATION_OF_DIES,
                () if has_parts => ISOLATION_OF_PARTS,
                () => ISOLATION,
            },
        }
    }

    /// Prints it as a table that begins with what only its kind says.
    pub fn print(&self, mut rows: Vec<(&'static str, String)>) {
        rows.push(("holds", holds(&self.contents)));
        rows.extend(self.label.as_ref().map(|label| ("label", label.words())));
        let is_cut = if self.label.is_some() { "is cut into" } else { "would be cut into" };
        rows.extend(self.shape.as_ref().map(|shape| (is_cut, shape.words())));
        rows.push(("isolation", self.isolation.to_owned()));
        let taken = if self.fits { yes(true) } else { format!("no: {}", self.refusals.join("; ")) };
        rows.push(("would be taken", taken));
        print::table(&["device", &self.path], print::field_rows(rows));
    }
}

/// How a drive is cut.
#[derive(Serialize)]
pub struct Shape {
    lanes: u16,
    block_size_bytes: u64,
    blocks_per_lane: u32,
    usable_bytes: u64,
    /// Lanes are parts of the drive that were measured not to disturb each other.
    lanes_apart: bool,
}

impl From<DriveShape> for Shape {
    fn from(shape: DriveShape) -> Shape {
        Shape {
            lanes: shape.lanes,
            block_size_bytes: shape.block_size_bytes,
            blocks_per_lane: shape.blocks_per_lane,
            usable_bytes: shape.geometry().raw_capacity_bytes(),
            lanes_apart: shape.lane_stride_bytes.is_some(),
        }
    }
}

impl Shape {
    /// It as text.
    pub fn words(&self) -> String {
        let (lanes, blocks) = (self.lanes, self.blocks_per_lane);
        format!(
            "{lanes} lane{} of {blocks} erase blocks of {}: {}{}",
            if lanes == 1 { "" } else { "s" },
            Size(self.block_size_bytes),
            Size(self.usable_bytes),
            if self.lanes_apart {
                ", each a part of the drive that was measured to work by itself"
            } else {
                ""
            }
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
    /// They are parts of the drive that were measured not to disturb each other.
    lanes_apart: bool,
    devices_of_pool: usize,
    /// What is wrong with its other copy.
    other_copy: Option<String>,
}

impl Labelled {
    fn words(&self) -> String {
        let other =
            self.other_copy.as_ref().map(|other| format!("; its other copy: {other}")).unwrap_or_default();
        let (number, epoch, lanes, devices) = (self.number, self.epoch, self.lanes, self.devices_of_pool);
        let apart = if self.lanes_apart { " that were measured to work by themselves" } else { "" };
        format!("number {number}, epoch {epoch}, {lanes} lanes{apart}, a pool of {devices}{other}")
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
        lanes_apart: label.shape.lane_stride_bytes.is_some(),
        devices_of_pool: label.devices.iter().filter(|one| one.membership != Membership::Removed).count(),
        other_copy: match &found.other {
            OtherCopy::Same => None,
            OtherCopy::Older(number) => Some(format!("older (number {number}): a change was cut short")),
            OtherCopy::Contradicts => Some("it contradicts".to_owned()),
            OtherCopy::Bad(error) => Some(error.to_string()),
        },
    }
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
