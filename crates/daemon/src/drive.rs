//! Drives of any kind, as those see them who make pools of them: taken for this process alone, told by their label, and refused by name with what to do.

use crate::carrier::Carrier;
use crate::error::ServeError;
use crate::local::Local;
use crate::places;
use crate::remote::{Claim, Remote};
use crate::remote_host::RemoteHost;
use diecut_api::place::Place;
use diecut_api::setup::Setup;
use diecut_devices::local::{self, Contents, FoundLabel, LabelPlace, LabelingError};
use diecut_devices::{DriveMedium, DriveShape, Label, LabelError, WantedCut, Zoning};
use diecut_reactor::IoFile;
use diecut_remote::ClaimKind;
use diecut_shard::PoolConfig;
use std::path::PathBuf;

/// A drive that this process has for itself, until this is dropped.
pub trait OwnDrive: Send {
    /// Where it is.
    fn place(&self) -> &Place;

    /// Whether only a flush makes durable what was written. What is not said is taken for the worse.
    fn has_volatile_cache(&self) -> bool;

    /// Where its labels lie.
    ///
    /// # Errors
    /// If that cannot be asked for.
    fn label_place(&self) -> Result<Box<dyn LabelPlace + '_>, LabelingError>;

    /// What lies on it.
    ///
    /// # Errors
    /// If it cannot be read.
    fn look(&self) -> Result<Contents, LabelingError>;

    /// How it is cut, as is asked for, or as suits it.
    ///
    /// # Errors
    /// In words, if it cannot be cut like that.
    fn shape(&self, wanted: WantedCut) -> Result<DriveShape, String>;

    /// Its medium.
    ///
    /// # Errors
    /// Names the drive, if it is not what the shape is made for.
    fn medium(&self, shape: DriveShape, usage: Usage) -> Result<DriveMedium, ServeError>;

    /// Who carries out what its medium asks for, while nobody serves it.
    ///
    /// # Errors
    /// What the operating system says.
    fn carrier(&self) -> Result<Box<dyn Carrier + '_>, String>;

    /// Gives it to the shards. What is left is who can still write its labels, beside them.
    ///
    /// # Errors
    /// Names the drive.
    fn hand_over(self: Box<Self>) -> Result<(HandedOver, Box<dyn OwnDrive>), ServeError>;
}

/// How a drive is used.
#[derive(Clone, Copy, Debug)]
pub struct Usage {
    /// What was written counts as durable after a flush only. All drives of a pool are used alike, whatever they are, so that a vSSD can have parts on
    /// any of them.
    pub volatile_cache: bool,
    /// It is told what holds nothing any more, if it wants to know.
    pub discards: bool,
}

impl Usage {
    /// By who starts no server on it: safe on any drive.
    pub const BRIEF: Usage = Usage { volatile_cache: true, discards: false };
}

/// A drive that a shard is to have.
pub struct HandedOver {
    /// Where what it asks for is carried out.
    pub io: IoFile,
    /// What it is, for people.
    pub what: &'static str,
    /// The file that it lies in, if it lies in one.
    pub file: Option<PathBuf>,
    /// What is given up when it is served no more.
    pub claim: Option<Claim>,
}

impl dyn OwnDrive + '_ {
    /// Its label.
    ///
    /// # Errors
    /// See [`local::read_label`].
    pub fn label(&self) -> Result<FoundLabel, LabelingError> {
        local::read_label(&*self.label_place()?)
    }

    /// Changes its label.
    ///
    /// # Errors
    /// See [`local::change_label`].
    pub fn change_label(&self, label: &Label) -> Result<(), LabelingError> {
        local::change_label(&mut *self.label_place()?, label)
    }

    /// Whether it can be formatted. Nothing is written.
    ///
    /// # Errors
    /// See [`local::check_format`].
    pub fn check_format(&self, label: &Label, force: bool) -> Result<(), LabelingError> {
        local::check_format(&*self.label_place()?, &self.look()?, label, force)
    }

    /// The first step of a format.
    ///
    /// # Errors
    /// See [`local::clear`].
    pub fn clear(&self) -> Result<(), LabelingError> {
        local::clear(&mut *self.label_place()?, &self.look()?)
    }

    /// The last step of a format.
    ///
    /// # Errors
    /// See [`local::give_label`].
    pub fn give_label(&self, label: &Label) -> Result<(), LabelingError> {
        local::give_label(&mut *self.label_place()?, label, || self.look())
    }
}

/// Takes a drive for this process alone, as `host` where it is behind a network. Nothing is written to it.
///
/// # Errors
/// Names the drive, what is wrong with it, and what to do.
pub fn take(place: &Place, host: &RemoteHost) -> Result<Box<dyn OwnDrive>, ServeError> {
    Ok(match place {
        Place::Path(path) => Box::new(Local::take(path)?),
        Place::Namespace(wanted) => Box::new(Remote::connect(wanted, host, ClaimKind::Own)?),
    })
}

/// Nobody gets a drive (`shown`) in place of an image that is served from the folder.
pub fn check_folder(shown: &str, setup: &Setup) -> Result<(), ServeError> {
    let (image, made) = (places::image(setup), places::image_made(setup));
    if !image.exists() && !made.exists() {
        return Ok(());
    }
    Err(ServeError::Setup(format!(
        "the set-up asks for {}, but this data folder is that of the emulated device in {}: hosts would not find what is there. Name another \
         data folder (--data), or, if all that it held shall be gone, remove the image and {}",
        shown,
        image.display(),
        made.display()
    )))
}

/// Of each lane: the first erase block of catalog and block states, and how many there are.
pub fn system_area(config: &PoolConfig) -> (u64, u64) {
    (0, u64::from(config.catalog_blocks_per_die) + u64::from(config.state_log_blocks_per_die))
}

/// The medium of a drive that is written in zones.
///
/// # Errors
/// Names the drive, if its zones are not those that the shape is made for.
pub fn zoned_medium(
    place: &Place,
    shape: DriveShape,
    zoning: Option<&Zoning>,
    usage: Usage,
) -> Result<DriveMedium, ServeError> {
    let Some(zoning) = zoning.filter(|zoning| zoning.fits(&shape)) else {
        return Err(ServeError::Setup(format!(
            "{place}: its label is of a drive with other zones: it is a copy, or was changed to another format; name the drive itself"
        )));
    };
    let system = system_area(&PoolConfig::suited_to(&shape.geometry()));
    let system_blocks = u32::try_from(system.0 + system.1).unwrap_or(u32::MAX);
    Ok(DriveMedium::zoned(shape, usage.volatile_cache, zoning, system_blocks))
}

/// What is said of a drive without a label to go by, and what else lies there.
pub fn unlabelled(drive: &dyn OwnDrive, error: &LabelingError) -> ServeError {
    let (path, typed) = (drive.place(), drive.place().typed());
    let anew =
        format!("`diecut device format --force {typed}` makes a new device of it, and what it held is lost");
    let advice = match error {
        LabelingError::Label(LabelError::Missing) => {
            let holds = drive.look().map(|contents| contents.words()).unwrap_or_default();
            return ServeError::Setup(match holds.is_empty() {
                true => format!(
                    "{path} is not formatted: no label of diecut is on it. `diecut device format {typed}` makes it a device"
                ),
                false => format!(
                    "{path} is no device of diecut: it holds {}. Name another path; {anew}",
                    holds.join(" and ")
                ),
            });
        }
        LabelingError::Label(LabelError::Version(_) | LabelError::Features(_)) => {
            "a later version of diecut wrote it: start that one".to_owned()
        }
        LabelingError::TooSmall { .. } => {
            "it was larger when it was formatted, or is a copy that was cut short: give it its size back"
                .to_owned()
        }
        LabelingError::Io { .. } => "see to the drive".to_owned(),
        _ => format!("if it cannot be had back, {anew}"),
    };
    ServeError::Setup(format!("{path}: {error}; {advice}"))
}

/// Whether catalog and block states lie where this version has them.
///
/// # Errors
/// Names the drive.
pub fn check_system_area(place: &Place, label: &Label) -> Result<(), ServeError> {
    let wanted = system_area(&PoolConfig::suited_to(&label.shape.geometry()));
    if label.system == wanted {
        return Ok(());
    }
    Err(ServeError::Setup(format!(
        "{place}: its catalog and its block states do not lie where this version has them (erase blocks {:?} of each lane, not {wanted:?}): start \
         the version that formatted it",
        label.system
    )))
}
