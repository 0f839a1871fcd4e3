//! Namespaces of NVMe/TCP targets as devices of a server: claimed for it alone, told by their label, and refused by name with what to do.

use crate::addresses::resolve;
use crate::drive::{check_system_area, unlabelled};
use crate::error::{ServeError, file_error, warn};
use crate::folder::Unfinished;
use crate::http::DeviceTraits;
use crate::opened::{Age, AllOpened, Cut, Mark, News, Opened, Shown};
use crate::places;
use crate::shards::{random_bytes, random_uuid};
use diecut_api::setup::{Durability, RemoteDevice, Setup};
use diecut_devices::local::{
    Contents, FoundLabel, LabelPlace, LabelingError, OtherCopy, Source, change_label, read_label,
};
use diecut_devices::{Device, DriveMedium, DriveShape, Label};
use diecut_nvme::QualifiedName;
use diecut_reactor::{IoFile, RemoteClient, RemoteTarget};
use diecut_remote::{ClaimKind, RemoteError, RemoteFacts, RemoteParameters};
use diecut_shard::Nonces;
use diecut_units::Span;
use std::cell::RefCell;
use std::io;
use std::path::Path;
use std::sync::Arc;
use uuid::Uuid;

/// Commands under way at a time.
const DEPTH: u16 = 128;
/// KATO: a target that says nothing for so long is tried anew.
const KEEP_ALIVE: Span = Span::from_secs(5);
/// How long is waited for a target when a device is opened.
const OPENING_PATIENCE: Span = Span::from_secs(5);
/// How long is waited for one that is told that the server ends.
const RELEASE_PATIENCE: Span = Span::from_secs(2);
/// How long hosts wait if the set-up does not say.
const PATIENCE_MS: u64 = 20_000;

/// This server, or this command, as a host of targets.
#[derive(Clone, Debug)]
pub struct RemoteHost {
    nqn: QualifiedName,
    server: u32,
    life: u64,
}

impl RemoteHost {
    /// A host that was not there before, with this NQN if one is given.
    ///
    /// # Errors
    /// If the NQN cannot be one.
    pub fn new(nqn: Option<&str>) -> Result<RemoteHost, ServeError> {
        RemoteHost::of(Uuid::from_bytes(random_uuid()?), nqn)
    }

    fn of(uuid: Uuid, nqn: Option<&str>) -> Result<RemoteHost, ServeError> {
        let own = format!("nqn.2014-08.org.nvmexpress:uuid:{uuid}");
        let server = u32::from_be_bytes([0, 1, 2, 3].map(|at| uuid.as_bytes()[at])).max(1);
        let life = u64::from_le_bytes(random_bytes()?);
        Ok(RemoteHost { nqn: name("host_nqn", nqn.unwrap_or(&own))?, server, life })
    }

    /// That of a data folder, which is made with the first device of this kind.
    fn of_folder(setup: &Setup, nqn: Option<&str>) -> Result<RemoteHost, ServeError> {
        let path = places::remote_host(setup);
        let uuid = match std::fs::read_to_string(&path) {
            Ok(text) => text.trim().parse::<Uuid>().map_err(|_| {
                ServeError::Setup(format!(
                    "{} does not hold the UUID that this server goes by at targets; put the file back, or remove it and free the namespace with \
                     `diecut device release`",
                    path.display()
                ))
            })?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let uuid = Uuid::from_bytes(random_uuid()?);
                std::fs::write(&path, format!("{uuid}\n")).map_err(file_error(&path, "cannot be made"))?;
                uuid
            }
            Err(error) => return Err(file_error(&path, "cannot be read")(error)),
        };
        RemoteHost::of(uuid, nqn)
    }
}

fn name(key: &str, text: &str) -> Result<QualifiedName, ServeError> {
    QualifiedName::new(text).map_err(|error| ServeError::Setup(format!("{key} = \"{text}\": {error}")))
}

fn target(wanted: &RemoteDevice, host: RemoteHost, kind: ClaimKind) -> Result<RemoteTarget, ServeError> {
    Ok(RemoteTarget {
        addresses: resolve("address", std::slice::from_ref(&wanted.address))?,
        parameters: RemoteParameters {
            host: host.nqn,
            server: host.server,
            life: host.life,
            subsystem: name("subsystem", &wanted.subsystem)?,
            nsid: wanted.nsid,
            kind,
            known: None,
            depth: DEPTH,
            keep_alive: KEEP_ALIVE,
            patience: Some(OPENING_PATIENCE),
            pause: Span::from_millis(100),
            pause_max: Span::from_secs(2),
        },
        patience: Span::from_millis(wanted.patience_ms.unwrap_or(PATIENCE_MS)),
    })
}

/// A namespace that was connected to.
pub struct Remote {
    place: String,
    nsid: u32,
    client: RefCell<RemoteClient>,
    facts: RemoteFacts,
}

impl Remote {
    /// Connects, and claims it as `kind` says.
    ///
    /// # Errors
    /// Names the namespace, why it cannot be had, and what to do.
    pub fn connect(wanted: &RemoteDevice, host: RemoteHost, kind: ClaimKind) -> Result<Remote, ServeError> {
        Remote::reach(wanted, target(wanted, host, kind)?)
    }

    fn reach(wanted: &RemoteDevice, target: RemoteTarget) -> Result<Remote, ServeError> {
        let place = wanted.place();
        let client = RemoteClient::connect(target);
        let client = client.map_err(|error| ServeError::Setup(format!("{place}: {error}")))?;
        let facts = client.facts().clone();
        Ok(Remote { place, nsid: wanted.nsid, client: RefCell::new(client), facts })
    }

    /// What it is.
    pub fn facts(&self) -> &RemoteFacts {
        &self.facts
    }

    /// Key of another server that holds it, where it is only looked at.
    pub fn held_by(&self) -> Option<u64> {
        self.client.borrow().held_by()
    }

    /// What speaks against it, where it is only looked at.
    pub fn refusals(&self) -> Vec<String> {
        let nsid = self.nsid;
        let protected = self.facts.is_write_protected.then_some(RemoteError::WriteProtected(nsid));
        let reservations = (!self.facts.takes_reservations).then_some(RemoteError::NoReservations(nsid));
        protected.into_iter().chain(reservations).map(|error| error.to_string()).collect()
    }

    /// What lies on it.
    pub fn contents(&self) -> Contents {
        Contents::of(&self)
    }

    /// Its label.
    ///
    /// # Errors
    /// See [`read_label`].
    pub fn label(&self) -> Result<FoundLabel, LabelingError> {
        read_label(&self)
    }

    /// The medium on it.
    pub fn medium(&self, shape: DriveShape) -> DriveMedium {
        DriveMedium::new(shape, self.facts.has_volatile_cache, self.facts.takes_discard)
    }

    /// Its connection.
    pub(crate) fn client(&self) -> &RefCell<RemoteClient> {
        &self.client
    }

    /// Gives it up, so that others may have it.
    ///
    /// # Errors
    /// If the target did not hear of it.
    pub fn release(self) -> Result<(), ServeError> {
        let released = self.client.into_inner().release();
        released.map_err(|error| ServeError::Setup(format!("{}: {error}", self.place)))
    }

    /// Reads bytes anywhere: whole blocks around them.
    fn read_around(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let lba = u64::from(self.facts.lba_bytes);
        let begin = offset / lba * lba;
        let end = (offset + into.len() as u64).next_multiple_of(lba);
        if end > self.facts.size_bytes {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut whole = vec![0; (end - begin) as usize];
        self.client.borrow_mut().read(begin, &mut whole)?;
        into.copy_from_slice(&whole[(offset - begin) as usize..][..into.len()]);
        Ok(())
    }
}

impl LabelPlace for &Remote {
    fn size_bytes(&self) -> u64 {
        self.facts.size_bytes
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.read_around(offset, into)
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.client.borrow_mut().write(offset, bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.client.borrow_mut().flush()
    }
}

impl Source for &Remote {
    fn size_bytes(&self) -> u64 {
        self.facts.size_bytes
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.read_around(offset, into)
    }
}

/// What `diecut device format` is told to have this namespace.
fn typed(wanted: &RemoteDevice) -> String {
    format!("--address {} --subsystem {} --nsid {}", wanted.address, wanted.subsystem, wanted.nsid)
}

/// Opens a namespace for this server alone.
///
/// # Errors
/// Names the namespace, what is wrong with it, and what to do.
pub fn open(wanted: &RemoteDevice, setup: &Setup) -> Result<AllOpened, ServeError> {
    let place = wanted.place();
    if setup.server.shards != 1 {
        return Err(ServeError::Setup(format!(
            "{place} is served by one shard, but server.shards = {}: set it to 1",
            setup.server.shards
        )));
    }
    let host = RemoteHost::of_folder(setup, wanted.host_nqn.as_deref())?;
    let mut target = target(wanted, host, ClaimKind::Own)?;
    let remote = Remote::reach(wanted, target.clone())?;
    let checked = check(wanted, setup, &remote);
    let (label, age) = match checked {
        Ok(checked) => checked,
        Err(error) => {
            // Whoever has a use for it shall not find it taken.
            let _ = remote.release();
            return Err(error);
        }
    };
    let facts = remote.facts().clone();
    let (medium, device) = (remote.medium(label.shape), Uuid::from_bytes(label.device));
    // The shard's connection goes on where this one ends: what is claimed stays claimed.
    target.parameters.life = u64::from_le_bytes(random_bytes()?);
    target.parameters.known = Some(facts.clone());
    target.parameters.patience = None;
    let opened = Opened {
        shown: Shown {
            name: wanted.shown_name(),
            place: place.clone(),
            what: "a namespace of a target",
            file: None,
        },
        cut: Cut {
            geometry: label.shape.geometry(),
            nonces: Some(Nonces::new(label.secret, label.device)),
            endurance_cycles: None,
        },
        traits: DeviceTraits {
            pacing: None,
            durability: Some(Durability::Machine),
            volatile_cache: Some(facts.has_volatile_cache),
        },
        io: Some(IoFile::Remote(Arc::new(target))),
        device: Device::Drive(medium),
    };
    let mark = Some(Mark { path: places::drives_made(setup), text: format!("{device} {place}\n") });
    let made = [Unfinished::none(), Unfinished::none()];
    Ok(AllOpened {
        devices: vec![opened],
        missing: Vec::new(),
        missing_count: 0,
        removed: Vec::new(),
        recipe: None,
        news: News { age, made, mark, differences: Vec::new() },
    })
}

/// Its label, and whether it was served from the data folder. A copy of the label that a cut left behind is written again.
fn check(wanted: &RemoteDevice, setup: &Setup, remote: &Remote) -> Result<(Label, Age), ServeError> {
    let place = wanted.place();
    let holds = || remote.contents().words();
    let found = remote.label().map_err(|error| unlabelled((&place, &typed(wanted)), &holds, &error))?;
    let FoundLabel { mut label, other, .. } = found;
    check_system_area(Path::new(&place), &label)?;
    if label.devices.len() != 1 {
        return Err(ServeError::Setup(format!(
            "{place} belongs to a pool of {} devices, and a namespace of a target is alone in a server; use what these were formatted by",
            label.devices.len()
        )));
    }
    let age = age(setup, Uuid::from_bytes(label.device), &place)?;
    if other != OtherCopy::Same {
        warn(&format!("{place}: one copy of its label is not as the other one; it is written again"));
        label.number += 1;
        let changed = change_label(&mut &*remote, &label);
        changed.map_err(|error| ServeError::Setup(format!("{place}: {error}")))?;
    }
    Ok((label, age))
}

/// Whether it is the device that was served from the data folder.
fn age(setup: &Setup, device: Uuid, place: &str) -> Result<Age, ServeError> {
    let made = places::drives_made(setup);
    let text = std::fs::read_to_string(&made).unwrap_or_default();
    if text.trim().is_empty() {
        return Ok(Age::Unserved);
    }
    if text.lines().any(|line| line.split(' ').next() == Some(device.to_string().as_str())) {
        return Ok(Age::Served);
    }
    Err(ServeError::Setup(format!(
        "{place} is the device {device}, and this data folder is that of another one ({}): hosts would not find what is there. Name that one, or \
         another data folder (--data), or remove {}",
        text.trim(),
        made.display()
    )))
}

/// Gives up a namespace that this server served and serves no more, so that others may have it.
pub fn let_go(wanted: &RemoteDevice, setup: &Setup) {
    let released = || {
        let host = RemoteHost::of_folder(setup, wanted.host_nqn.as_deref())?;
        let mut target = target(wanted, host, ClaimKind::Own)?;
        target.parameters.patience = Some(RELEASE_PATIENCE);
        Remote::reach(wanted, target)?.release()
    };
    if let Err(error) = released() {
        tracing::warn!(
            "the target still keeps its namespace for this server ({error}); a server with another data folder is refused there, until `diecut device \
             release` frees it"
        );
    }
}

/// Takes a namespace from whoever has it, and leaves it to nobody.
///
/// # Errors
/// Names the namespace, and why it cannot be had.
pub fn release(wanted: &RemoteDevice) -> Result<(), ServeError> {
    let host = RemoteHost::new(wanted.host_nqn.as_deref())?;
    Remote::connect(wanted, host, ClaimKind::TakeOver)?.release()
}
