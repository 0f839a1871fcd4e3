//! `diecut device` on namespaces of NVMe/TCP targets.

use super::identified::{Identified, Looked};
use super::{Cut, complain, health, yes};
use crate::print;
use clap::Args;
use diecut_api::place::{Place, quoted};
use diecut_api::setup::RemoteDevice;
use diecut_api::status::DriveHealth;
use diecut_daemon::error::ServeError;
use diecut_daemon::remote::{Remote, release};
use diecut_daemon::remote_host::RemoteHost;
use diecut_devices::Zoning;
use diecut_remote::{ClaimKind, RemoteFacts};
use diecut_spec::Size;
use diecut_units::IU_SIZE_BYTES;
use serde::Serialize;
use std::process::ExitCode;

/// Namespaces of targets, which options name.
#[derive(Args)]
pub struct Wanted {
    /// A namespace of the NVMe/TCP target at HOST:PORT. Several are named one after the other, each with all of these options.
    #[arg(long, value_name = "HOST:PORT", requires = "subsystem")]
    address: Vec<String>,
    /// NQN of its subsystem.
    #[arg(long, value_name = "NQN", requires = "address")]
    subsystem: Vec<String>,
    /// Number of the namespace in the subsystem; 1, if nothing is said.
    #[arg(long, requires = "address", value_parser = clap::value_parser!(u32).range(1..))]
    nsid: Vec<u32>,
    /// NQN that targets know this host by; a new one, if nothing is said. One is for all namespaces, several are one for each --address.
    #[arg(long, value_name = "NQN")]
    host_nqn: Vec<String>,
}

impl Wanted {
    /// All drives that were named, by a word each or by options.
    ///
    /// # Errors
    /// If there are more options of one kind than of another, so that nobody knows what belongs together.
    pub fn drives(&self, words: &[Place]) -> Result<Vec<Place>, String> {
        let Wanted { address, subsystem, nsid, host_nqn } = self;
        let fits = |what: &str, count: usize, may: &[usize]| match may.contains(&count) {
            true => Ok(()),
            false => Err(format!(
                "{} namespaces are named with --address, and {count} times {what}: name each with all of --address, --subsystem and --nsid",
                address.len()
            )),
        };
        fits("--subsystem", subsystem.len(), &[address.len()])?;
        fits("--nsid", nsid.len(), &[0, address.len()])?;
        fits("--host-nqn", host_nqn.len(), &[0, 1, address.len()])?;
        let named = address.iter().zip(subsystem).enumerate().map(|(at, (address, subsystem))| {
            Place::Namespace(RemoteDevice {
                address: address.clone(),
                subsystem: subsystem.clone(),
                nsid: nsid.get(at).copied().unwrap_or(1),
                host_nqn: if host_nqn.len() > 1 { host_nqn.get(at).cloned() } else { None },
                patience_ms: None,
                name: None,
            })
        });
        Ok(words.iter().cloned().chain(named).map(|place| self.known_as(place)).collect())
    }

    /// The same of one that has to be the only one.
    ///
    /// # Errors
    /// As [`Wanted::drives`], and if there is none or more than one.
    pub fn only(&self, word: Option<&Place>) -> Result<Place, String> {
        let drives = self.drives(word.map_or(&[], std::slice::from_ref))?;
        match &drives[..] {
            [only] => Ok(only.clone()),
            [] => Err(
                "name the drive: PATH, HOST:PORT/NQN/NSID, or --address HOST:PORT --subsystem NQN --nsid N"
                    .to_owned(),
            ),
            _ => Err(format!("{} drives are named, and it takes one at a time", drives.len())),
        }
    }

    /// A drive, with what the only `--host-nqn` says of all namespaces.
    pub fn known_as(&self, place: Place) -> Place {
        match (place, &self.host_nqn[..]) {
            (Place::Namespace(remote), [host_nqn]) => {
                Place::Namespace(RemoteDevice { host_nqn: Some(host_nqn.clone()), ..remote })
            }
            (place, _) => place,
        }
    }
}

/// A namespace in a set-up.
pub fn table(remote: &RemoteDevice) -> String {
    let RemoteDevice { address, subsystem, nsid, host_nqn, .. } = remote;
    let host_nqn = host_nqn.as_ref().map(|host_nqn| format!("\nhost_nqn = {}", quoted(host_nqn)));
    let host_nqn = host_nqn.unwrap_or_default();
    let (address, subsystem) = (quoted(address), quoted(subsystem));
    format!("kind = \"remote\"\naddress = {address}\nsubsystem = {subsystem}\nnsid = {nsid}{host_nqn}")
}

#[derive(Args)]
pub struct Release {
    /// The namespace, as HOST:PORT/NQN/NSID, unless options name it.
    #[arg(value_parser = clap::value_parser!(Place))]
    namespace: Option<Place>,
    #[command(flatten)]
    wanted: Wanted,
}

impl Release {
    /// Carries it out, and prints what came of it.
    pub fn run(self, json: bool) -> ExitCode {
        let wanted = match self.wanted.only(self.namespace.as_ref()) {
            Ok(Place::Namespace(wanted)) => wanted,
            Ok(Place::Path(path)) => {
                let what = "is no namespace of a target, as HOST:PORT/NQN/NSID is";
                return complain(&format!("{} {what}", path.display()), json);
            }
            Err(message) => return complain(&message, json),
        };
        match release(&wanted) {
            Ok(()) if json => print::json(&serde_json::json!({ "released": wanted.place() })),
            Ok(()) => print::line(&format!("{} is nobody's now", wanted.place())),
            Err(error) => return complain(&error.to_string(), json),
        }
        ExitCode::SUCCESS
    }
}

/// What a namespace says of itself.
#[derive(Serialize)]
pub struct Facts {
    model: String,
    serial: String,
    nguid: String,
    size_bytes: u64,
    block_bytes: u32,
    has_volatile_cache: bool,
    takes_discard: bool,
    /// What its zones are, or its chunks, if it has some.
    zones: Option<Zones>,
    /// Placement handles (FDP) that it has to choose among; 0: none.
    placement_handles: u16,
    /// What its controller says of its health, if it says anything.
    pub health: Option<DriveHealth>,
}

#[derive(Serialize)]
struct Zones {
    zones: u32,
    size_bytes: u64,
    /// Bytes of a zone that can be written.
    capacity_bytes: u64,
    /// Partly written at once; 0: as many as there are.
    active_max: u32,
    open_max: u32,
    /// Where they lie, if they are chunks.
    #[serde(skip_serializing_if = "Option::is_none")]
    dies: Option<Dies>,
}

/// The dies of a namespace of chunks (Open-Channel).
#[derive(Clone, Copy, Serialize)]
struct Dies {
    channels: u16,
    dies_per_channel: u16,
    /// What is written at once, at least.
    program_unit_bytes: u64,
}

impl Zones {
    fn of(zoning: Zoning) -> Zones {
        let dies = zoning.dies.map(|dies| Dies {
            channels: dies.channels,
            dies_per_channel: dies.dies_per_channel,
            program_unit_bytes: u64::from(dies.program_unit_pages) * IU_SIZE_BYTES as u64,
        });
        let Zoning { zone_size_bytes: size_bytes, active_max, open_max, zones, .. } = zoning;
        let capacity_bytes = zones.first().map_or(0, |zone| zone.capacity_bytes);
        Zones { zones: zones.len() as u32, size_bytes, capacity_bytes, active_max, open_max, dies }
    }

    fn words(&self) -> String {
        let Zones { zones, size_bytes, capacity_bytes, active_max, open_max, dies } = *self;
        if let Some(Dies { channels, dies_per_channel, program_unit_bytes }) = dies {
            let (size, unit) = (Size(size_bytes), Size(program_unit_bytes));
            return format!(
                "{channels} channels of {dies_per_channel} dies; {zones} chunks of {size}, written by {unit}"
            );
        }
        let limit = |max: u32, what: &str| match max {
            0 => String::new(),
            max => format!("; {max} {what} at once"),
        };
        let (active, open) = (limit(active_max, "partly written"), limit(open_max, "open"));
        let (size, capacity) = (Size(size_bytes), Size(capacity_bytes));
        format!("{zones} zones of {size}; {capacity} of one can be written{active}{open}")
    }
}

impl Facts {
    /// It as rows of a table.
    pub fn rows(&self) -> Vec<(&'static str, String)> {
        let mut rows = vec![
            ("is a", "namespace of an NVMe/TCP target".to_owned()),
            ("model", self.model.clone()),
            ("serial", self.serial.clone()),
            ("nguid", self.nguid.clone()),
            ("size", format!("{} ({} bytes)", Size(self.size_bytes), self.size_bytes)),
            ("block", format!("{} bytes", self.block_bytes)),
            ("volatile cache", yes(self.has_volatile_cache)),
            ("discards", yes(self.takes_discard)),
        ];
        let is_chunked = self.zones.as_ref().is_some_and(|zones| zones.dies.is_some());
        let what = if is_chunked { "open-channel" } else { "zoned" };
        rows.extend(self.zones.as_ref().map(|zones| (what, zones.words())));
        if self.placement_handles > 0 {
            rows.push(("placement handles", self.placement_handles.to_string()));
        }
        rows.extend(self.health.iter().flat_map(health::rows));
        rows
    }

    /// Of one that was connected to.
    pub fn of(remote: &Remote) -> Facts {
        let (facts, zoning) = (remote.facts().clone(), remote.zoning().ok().flatten());
        let RemoteFacts { size_bytes, has_volatile_cache, takes_discard, model, serial, handles, .. } = facts;
        let nguid = facts.nguid.iter().map(|byte| format!("{byte:02x}")).collect();
        let (block_bytes, zones) = (facts.lba_bytes, zoning.map(Zones::of));
        let health = facts.health.as_ref().map(diecut_daemon::health::of);
        Facts {
            model,
            serial,
            nguid,
            size_bytes,
            block_bytes,
            has_volatile_cache,
            takes_discard,
            zones,
            placement_handles: handles,
            health,
        }
    }
}

/// Connects to a namespace to look at it.
///
/// # Errors
/// Names it, and why it cannot be looked at.
pub fn connect(wanted: &RemoteDevice) -> Result<Remote, ServeError> {
    Remote::connect(wanted, &RemoteHost::new()?, ClaimKind::Look)
}

/// Says what a namespace is, and what lies on it.
///
/// # Errors
/// As [`connect`].
pub fn identify(wanted: &RemoteDevice, cut: &Cut) -> Result<Identified<super::Facts>, ServeError> {
    let remote = connect(wanted)?;
    let facts = Facts::of(&remote);
    let holder = |key: u64| format!("a server holds its reservation, under the key {key:#x}");
    let looked = Looked {
        users: remote.held_by().map(holder).into_iter().collect(),
        contents: remote.contents(),
        against: remote.refusals(),
        label: remote.label().map_err(|error| error.to_string()),
    };
    let shape = remote.cut(cut.wanted());
    Ok(Identified::new(wanted.place(), super::Facts::Remote(Box::new(facts)), looked, shape))
}
