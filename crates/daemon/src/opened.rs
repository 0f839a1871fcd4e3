//! What the server knows of a device once it is open, of whichever kind.

use crate::error::warn;
use crate::folder::Unfinished;
use crate::health::Source;
use crate::held::Held;
use crate::http::DeviceTraits;
use crate::remote::Claim;
use diecut_api::difference::Difference;
use diecut_api::status::MissingDevice;
use diecut_devices::{Device, Options};
use diecut_reactor::IoFile;
use diecut_shard::Nonces;
use diecut_units::Geometry;
use std::path::PathBuf;
use std::sync::Arc;
use uuid::Uuid;

/// What is known of what a device holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Age {
    /// Nothing: this process made it.
    New,
    /// It was not served from this data folder. It is new if it has no tenants.
    Unserved,
    /// It was served from here.
    Served,
}

/// What is left in the data folder once a device is served, so that one that is gone, or another one in its place, is noticed.
pub struct Mark {
    pub path: PathBuf,
    pub text: String,
}

impl Mark {
    /// Leaves it. A server without it serves as well.
    pub fn leave(&self) {
        if let Err(error) = std::fs::write(&self.path, &self.text)
            && !self.path.exists()
        {
            warn(&format!(
                "{} cannot be made ({error}): if the device goes away, nobody will miss it",
                self.path.display()
            ));
        }
    }
}

/// A device for people.
pub struct Shown {
    /// What it is called in reports.
    pub name: String,
    /// Where its content is.
    pub place: String,
    /// What it is.
    pub what: &'static str,
    /// The file that it lies in, if it lies in one.
    pub file: Option<PathBuf>,
}

/// What a pool on it is made by.
pub struct Cut {
    pub geometry: Geometry,
    /// Of a device whose pages have no OOB areas.
    pub nonces: Option<Nonces>,
    /// Where it is known.
    pub endurance_cycles: Option<u32>,
}

/// What is new about it, and how it differs from what the set-up says.
pub struct News {
    pub age: Age,
    /// What this process made of it, the image and what says that its set-up is not on it yet: removed unless the server starts.
    pub made: [Unfinished; 2],
    pub mark: Option<Mark>,
    pub differences: Vec<Difference>,
}

/// A device that was opened.
pub struct Opened {
    pub device: Device,
    pub shown: Shown,
    pub cut: Cut,
    pub traits: DeviceTraits,
    /// Where what it asks for is carried out, if it asks for anything.
    pub io: Option<IoFile>,
    /// Given up when it is served no more.
    pub claim: Option<Claim>,
    /// Of a drive of a pool: its UUID, and who can write its labels while it is served, if anybody can.
    pub member: Option<(Uuid, Held)>,
}

impl Opened {
    /// Its name, and who says how the drive is that it lies on, if it lies on one.
    pub fn drive(&self) -> Option<(String, Source)> {
        Some((self.shown.name.clone(), source_of(self.io.as_ref()?)?))
    }
}

/// Who says how the drive is.
pub fn source_of(io: &IoFile) -> Option<Source> {
    Some(match io {
        IoFile::Ring(ring) => Source::file(&ring.file),
        IoFile::Remote(target) => Source::Target(Arc::clone(target)),
        IoFile::Synced(_) => return None,
    })
}

/// All devices of a server, in the order of its set-up.
pub struct AllOpened {
    pub devices: Vec<Opened>,
    /// Those of the pool that are not there.
    pub missing: Vec<MissingDevice>,
    /// How many these are of the pool's: a drive that never belonged to it is missed by the set-up only.
    pub missing_count: u16,
    /// Devices that were taken out of the pool.
    pub removed: Vec<[u8; 16]>,
    /// Of an emulated device: how shards begin anew on it after a panic, and how a recording makes its like.
    pub recipe: Option<Options>,
    pub news: News,
}
