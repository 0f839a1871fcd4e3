//! Namespaces of NVMe/TCP targets as drives: claimed for this process alone, and given up when it has no more use for them.

use crate::addresses::resolve;
use crate::error::ServeError;
use crate::random::random_bytes;
use crate::remote_host::RemoteHost;
use diecut_api::place::Place;
use diecut_api::setup::RemoteDevice;
use diecut_devices::local::{
    Contents, FoundLabel, InZones, LabelPlace, LabelingError, Source, ZoneDrive, read_label,
};
use diecut_devices::{DriveShape, WantedCut, Zoning};
use diecut_media::{IntentWork, Zone, ZoneCondition};
use diecut_nvme::QualifiedName;
use diecut_reactor::{RemoteClient, RemoteTarget};
use diecut_remote::{ClaimKind, RemoteError, RemoteFacts, RemoteParameters, RemoteZones};
use diecut_shard::DeviceIndex;
use diecut_units::Span;
use std::cell::RefCell;
use std::io;
use std::ops::Deref;

/// Commands under way at a time.
const DEPTH: u16 = 128;
/// KATO: a target that says nothing for so long is tried anew.
const KEEP_ALIVE: Span = Span::from_secs(5);
/// How long is waited for a target when a device is opened.
pub(crate) const OPENING_PATIENCE: Span = Span::from_secs(5);
/// How long is waited for one that is told that the server ends.
const RELEASE_PATIENCE: Span = Span::from_secs(2);
/// How long hosts wait if the set-up does not say.
const PATIENCE_MS: u64 = 20_000;

fn name(key: &str, text: &str) -> Result<QualifiedName, ServeError> {
    QualifiedName::new(text).map_err(|error| ServeError::Setup(format!("{key} = \"{text}\": {error}")))
}

/// What tells one connection of this host from others, also to other namespaces.
pub(crate) fn new_life() -> Result<u64, ServeError> {
    Ok(u64::from_le_bytes(random_bytes()?))
}

fn target(wanted: &RemoteDevice, host: &RemoteHost, kind: ClaimKind) -> Result<RemoteTarget, ServeError> {
    Ok(RemoteTarget {
        addresses: resolve("address", std::slice::from_ref(&wanted.address))?,
        parameters: RemoteParameters {
            host: name("host_nqn", wanted.host_nqn.as_ref().unwrap_or(&host.nqn()))?,
            server: host.server(),
            life: new_life()?,
            part: 0,
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

/// A namespace that was connected to. What it claims is given up when this is dropped, unless it is handed over.
pub struct Remote {
    place: Place,
    target: RemoteTarget,
    client: RefCell<RemoteClient>,
    facts: RemoteFacts,
    is_claimed: bool,
}

impl Remote {
    /// Connects, and claims it as `kind` says.
    ///
    /// # Errors
    /// Names the namespace, why it cannot be had, and what to do.
    pub fn connect(wanted: &RemoteDevice, host: &RemoteHost, kind: ClaimKind) -> Result<Remote, ServeError> {
        let mut remote = Remote::of(Place::Namespace(wanted.clone()), target(wanted, host, kind)?)?;
        remote.is_claimed = kind != ClaimKind::Look;
        Ok(remote)
    }

    /// Connects as what it says. Nothing is given up when this is dropped.
    ///
    /// # Errors
    /// As [`Remote::connect`].
    pub(crate) fn of(place: Place, target: RemoteTarget) -> Result<Remote, ServeError> {
        let client = connected(&place.to_string(), &target)?;
        let facts = client.facts().clone();
        Ok(Remote { place, target, client: RefCell::new(client), facts, is_claimed: false })
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
        let nsid = self.target.parameters.nsid;
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
        read_label(&*self.label_place()?)
    }

    /// How it is cut: into as many lanes and erase blocks of such a size as are asked for, or as suits it.
    ///
    /// # Errors
    /// In words, if it cannot be cut like that, or does not tell of its zones.
    pub fn cut(&self, wanted: WantedCut) -> Result<DriveShape, String> {
        let zoning = self.zoning().map_err(|error| format!("its zones cannot be asked for: {error}"))?;
        let shape = DriveShape::wanted(self.facts.size_bytes, zoning.as_ref(), wanted);
        shape.map_err(|error| error.to_string())
    }

    /// Its zones, as they are now, if it is zoned.
    ///
    /// # Errors
    /// What the target says.
    pub fn zoning(&self) -> io::Result<Option<Zoning>> {
        let Some(RemoteZones { zone_size_bytes, active_max, open_max, dies, .. }) = self.facts.zones.clone()
        else {
            return Ok(None);
        };
        let zones = self.client.borrow_mut().zones()?;
        Ok(Some(Zoning { zone_size_bytes, active_max, open_max, zones, dies }))
    }

    /// Who carries out what is asked of it.
    pub(crate) fn client(&self) -> &RefCell<RemoteClient> {
        &self.client
    }

    /// Where it is.
    pub(crate) fn place(&self) -> &Place {
        &self.place
    }

    /// Where its labels lie.
    ///
    /// # Errors
    /// If it does not tell of its zones.
    pub(crate) fn label_place(&self) -> Result<Box<dyn LabelPlace + '_>, LabelingError> {
        Reached(self).label_place()
    }

    /// What is claimed stays claimed: as what others go on with it.
    ///
    /// # Errors
    /// If there are no random numbers.
    pub(crate) fn leave(mut self) -> Result<RemoteTarget, ServeError> {
        let mut target = self.target.clone();
        target.parameters.life = new_life()?;
        target.parameters.known = Some(self.facts.clone());
        target.parameters.patience = None;
        self.is_claimed = false;
        Ok(target)
    }

    /// Gives it up, so that others may have it.
    ///
    /// # Errors
    /// If the target did not hear of it.
    pub fn release(mut self) -> Result<(), ServeError> {
        self.give_up()
    }

    fn give_up(&mut self) -> Result<(), ServeError> {
        self.is_claimed = false;
        let released = self.client.borrow_mut().release();
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
        // A target need not read over the end of a zone.
        let stride = self.facts.zones.as_ref().map_or(u64::MAX, |zones| zones.zone_size_bytes);
        let mut at = begin;
        while at < end {
            let until = (at / stride + 1).saturating_mul(stride).min(end);
            let piece = &mut whole[(at - begin) as usize..(until - begin) as usize];
            let read = self.client.borrow_mut().read(at, piece);
            read.or_else(|error| read_written(self, at, piece).ok_or(error))?;
            at = until;
        }
        into.copy_from_slice(&whole[(offset - begin) as usize..][..into.len()]);
        Ok(())
    }
}

/// Reads bytes of one chunk as far as it is written, and zeroes the others, which chunks do not read. `None` if it cannot be helped like that.
fn read_written(remote: &Remote, offset: u64, into: &mut [u8]) -> Option<()> {
    remote.facts.zones.as_ref()?.dies?;
    let mut client = remote.client.borrow_mut();
    let zones = client.zones().ok()?;
    let zone = zones.iter().rfind(|zone| zone.offset <= offset)?;
    let written = match zone.condition {
        ZoneCondition::Active | ZoneCondition::Closed => zone.write_pointer.saturating_sub(offset),
        _ => 0,
    };
    let (there, rest) = into.split_at_mut_checked(written as usize)?;
    if rest.is_empty() {
        return None;
    }
    rest.fill(0);
    if there.is_empty() { Some(()) } else { client.read(offset, there).ok() }
}

impl Drop for Remote {
    fn drop(&mut self) {
        if self.is_claimed
            && let Err(error) = self.give_up()
        {
            kept(&error);
        }
    }
}

/// Says that a target was not told.
fn kept(error: &ServeError) {
    tracing::warn!(
        "the target still keeps its namespace for this server ({error}); a server with another data folder is refused there, until `diecut device \
         release` frees it"
    );
}

fn connected(place: &str, target: &RemoteTarget) -> Result<RemoteClient, ServeError> {
    let client = RemoteClient::connect(target.clone());
    client.map_err(|error| ServeError::Setup(format!("{place}: {error}")))
}

/// One that is connected to, where its labels are read and written.
pub(crate) struct Reached<R>(pub R);

impl<'a, R: Deref<Target = Remote> + 'a> Reached<R> {
    /// Where its labels lie.
    ///
    /// # Errors
    /// If it does not tell of its zones.
    pub fn label_place(self) -> Result<Box<dyn LabelPlace + 'a>, LabelingError> {
        let zoning =
            self.0.zoning().map_err(|error| LabelingError::Io { what: "found among its zones", error })?;
        let size_bytes = self.0.facts.size_bytes;
        Ok(match zoning {
            Some(zoning) => Box::new(InZones::new(self, size_bytes, zoning)),
            None => Box::new(self),
        })
    }
}

impl<R: Deref<Target = Remote>> LabelPlace for Reached<R> {
    fn size_bytes(&self) -> u64 {
        self.0.facts.size_bytes
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.0.read_around(offset, into)
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.client.borrow_mut().write(offset, bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.client.borrow_mut().flush()
    }
}

impl<R: Deref<Target = Remote>> ZoneDrive for Reached<R> {
    fn zones(&self) -> io::Result<Vec<Zone>> {
        self.0.client.borrow_mut().zones()
    }
    fn zone_at(&self, offset: u64) -> io::Result<Zone> {
        let zones = ZoneDrive::zones(self)?;
        let zone = zones.into_iter().find(|zone| zone.offset == offset);
        zone.ok_or_else(|| io::Error::other("the namespace has no such zone"))
    }
    fn reset(&self, offset: u64, len_bytes: u64) -> io::Result<()> {
        self.0.client.borrow_mut().execute(IntentWork::ResetZone { offset, len_bytes }).map(drop)
    }
    fn finish(&self, offset: u64, len_bytes: u64) -> io::Result<()> {
        self.0.client.borrow_mut().execute(IntentWork::FinishZone { offset, len_bytes }).map(drop)
    }
    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.0.read_around(offset, into)
    }
    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.client.borrow_mut().write(offset, bytes)
    }
    fn flush(&self) -> io::Result<()> {
        self.0.client.borrow_mut().flush()
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

/// A namespace that this server serves. It is given up when this is dropped, so that others may have it.
pub struct Claim {
    place: String,
    target: RemoteTarget,
}

impl Claim {
    /// Of what others go on with.
    pub(crate) fn new(place: &Place, target: &RemoteTarget) -> Claim {
        Claim { place: place.to_string(), target: target.clone() }
    }

    fn give_up(&self) -> Result<(), ServeError> {
        let mut target = self.target.clone();
        target.parameters.life = new_life()?;
        target.parameters.patience = Some(RELEASE_PATIENCE);
        let released = connected(&self.place, &target)?.release();
        released.map_err(|error| ServeError::Setup(format!("{}: {error}", self.place)))
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if let Err(error) = self.give_up() {
            kept(&error);
        }
    }
}

/// Claims that are given up at the same time: a target that is away is waited for.
#[derive(Default)]
pub struct Claims(pub Vec<(DeviceIndex, Claim)>);

impl Claims {
    /// Gives up what is served no more.
    pub fn give_up(&mut self, device: DeviceIndex) {
        self.0.retain(|(own, _)| *own != device);
    }
}

impl Drop for Claims {
    fn drop(&mut self) {
        std::thread::scope(|scope| {
            for claim in self.0.drain(..) {
                scope.spawn(move || drop(claim));
            }
        });
    }
}

/// Takes a namespace from whoever has it, and leaves it to nobody.
///
/// # Errors
/// Names the namespace, and why it cannot be had.
pub fn release(wanted: &RemoteDevice) -> Result<(), ServeError> {
    Remote::connect(wanted, &RemoteHost::new()?, ClaimKind::TakeOver)?.release()
}
