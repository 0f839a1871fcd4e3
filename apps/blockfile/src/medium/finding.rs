//! From the words that name zones to the namespace: its address, what it is, and how its zones are.

use super::connection::{Connection, Endpoint, Errand};
use super::error::ZonesError;
use diecut_blockspace::wire::Shape;
use diecut_initiator::ControllerFacts;
use diecut_initiator::zoned::{ZoneFacts, ZonedNamespace};
use diecut_nvme::QualifiedName;
use diecut_nvme::zns::zone_state;
use diecut_units::IU_SIZE_BYTES;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::ToSocketAddrs;

/// Largest append and read of one command, if the controller takes more.
pub(super) const TRANSFER_MAX_BYTES: u32 = 512 << 10;

/// What nobody else has.
pub(super) fn random() -> u64 {
    // The keys of each are random.
    RandomState::new().build_hasher().finish()
}

fn qualified(what: &'static str, name: &str) -> Result<QualifiedName, ZonesError> {
    QualifiedName::new(name).map_err(|_| ZonesError::Name { what, name: name.to_owned() })
}

/// The parts of `NQN` or `NQN/NSID`.
pub(super) fn subsystem_of(name: &str) -> (&str, Option<u32>) {
    match name.rsplit_once('/') {
        Some((nqn, nsid)) if nsid.parse::<u32>().is_ok() => (nqn, nsid.parse().ok()),
        _ => (name, None),
    }
}

pub(super) fn endpoint(place: &str, nqn: &str) -> Result<Endpoint, ZonesError> {
    let unknown = || ZonesError::Address { place: place.to_owned() };
    let address = place.to_socket_addrs().map_err(|_| unknown())?.next().ok_or_else(unknown)?;
    let mut host_id = [0; 16];
    host_id[..8].copy_from_slice(&random().to_le_bytes());
    host_id[8..].copy_from_slice(&random().to_le_bytes());
    let host = match std::env::var("DIECUT_HOST_NQN") {
        Ok(name) => qualified("host NQN (DIECUT_HOST_NQN)", &name)?,
        Err(_) => qualified("host NQN", "nqn.2026-11.org.diecut:host:files")?,
    };
    Ok(Endpoint { address, subsystem: qualified("subsystem NQN", nqn)?, host, host_id })
}

fn identify(connection: &Connection, nsid: u32) -> Result<ZonedNamespace, ZonesError> {
    let [namespace, zoned] = ZonedNamespace::ask_pages(nsid);
    let (namespace, zoned) = (connection.admin(namespace)?, connection.admin(zoned)?);
    Ok(ZonedNamespace::new(nsid, &namespace, &zoned)?)
}

pub(super) fn choose(
    connection: &Connection,
    nqn: &str,
    wanted: Option<u32>,
) -> Result<ZonedNamespace, ZonesError> {
    let facts: &ControllerFacts = connection.facts();
    let mut zoned = Vec::new();
    for namespace in &facts.namespaces {
        match identify(connection, namespace.nsid) {
            Ok(found) => zoned.push(found),
            // The zoned page of one that is not.
            Err(ZonesError::Command { .. } | ZonesError::Page(_)) => {}
            Err(error) => return Err(error),
        }
    }
    let present = zoned.iter().map(|one| one.nsid.to_string()).collect::<Vec<_>>().join(", ");
    let subsystem = nqn.to_owned();
    let found = match (wanted, zoned.as_slice()) {
        (None, [first, _, ..]) => return Err(ZonesError::Several { subsystem, present, first: first.nsid }),
        (None, some) => some.first(),
        (Some(nsid), some) => some.iter().find(|one| one.nsid == nsid),
    };
    found.copied().ok_or_else(|| ZonesError::NotZoned {
        subsystem,
        wanted: wanted.map_or_else(String::new, |nsid| format!(" {nsid}")),
        present: if present.is_empty() { "none".to_owned() } else { present },
    })
}

pub(super) fn report(
    connection: &Connection,
    namespace: &ZonedNamespace,
) -> Result<Vec<ZoneFacts>, ZonesError> {
    let at_once =
        namespace.zones_per_report(connection.facts().transfer_bytes_max.min(TRANSFER_MAX_BYTES)).max(1);
    let mut all = Vec::new();
    for first in (0..namespace.zones).step_by(at_once as usize) {
        let command = namespace.report(first, at_once.min(namespace.zones - first));
        let mut page = vec![0; command.expected_bytes as usize];
        let statuses =
            connection.run(vec![Errand::into(command, &mut page)]).map_err(|_| ZonesError::Gone)?;
        if !statuses[0].is_success() {
            return Err(ZonesError::Command { what: "Zone Management Receive", status: statuses[0] });
        }
        all.extend(namespace.zones_of(&page));
    }
    Ok(all)
}

/// Bytes of the smallest append: whole IUs, and what the namespace asks for.
pub(super) fn unit_of_append_bytes(namespace: &ZonedNamespace, max: u32) -> Result<u64, ZonesError> {
    let iu = IU_SIZE_BYTES as u64;
    let bytes = (u64::from(namespace.write_min_lbas) * u64::from(namespace.lba_bytes)).max(iu);
    let is_whole = bytes.is_multiple_of(iu) && iu.is_multiple_of(u64::from(namespace.lba_bytes));
    if is_whole && bytes <= u64::from(max) {
        Ok(bytes)
    } else {
        Err(ZonesError::WriteSize { nsid: namespace.nsid, bytes, max })
    }
}

/// The shape that all zones have, of which the smallest one decides.
pub(super) fn shape_of(namespace: &ZonedNamespace, facts: &[ZoneFacts], unit_bytes: u64) -> Shape {
    let good = facts.iter().filter(|zone| zone.state != zone_state::OFFLINE);
    let capacity_lbas = good.map(|zone| zone.capacity_lbas).min().unwrap_or(0);
    let program_unit_pages = (unit_bytes / IU_SIZE_BYTES as u64) as u32;
    let pages = capacity_lbas * u64::from(namespace.lba_bytes) / IU_SIZE_BYTES as u64;
    let pages = u32::try_from(pages).unwrap_or(u32::MAX) / program_unit_pages * program_unit_pages;
    Shape { pages, page_size_bytes: IU_SIZE_BYTES as u32, program_unit_pages, unsafe_units: 0, units: 1 }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn names_of_subsystems_may_say_the_namespace() {
        assert_eq!(subsystem_of("nqn.2026-11.org.diecut:a"), ("nqn.2026-11.org.diecut:a", None));
        assert_eq!(subsystem_of("nqn.2026-11.org.diecut:a/2"), ("nqn.2026-11.org.diecut:a", Some(2)));
        assert_eq!(subsystem_of("nqn.x:a/b"), ("nqn.x:a/b", None), "a slash may be a part of a name");
    }
}
