//! What a server lacks of a set-up, as requests that bring it.

use crate::difference::of_wear;
use crate::setup::Setup;
use crate::status::Status;
use diecut_spec::{NamespaceSpec, QosSetSpec, SubsystemSpec, TenantSpec, VolumeSpec, VssdSpec, WearSettings};
use std::fmt;

/// Something that a set-up declares and a server lacks, which one request brings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Lacking<'a> {
    /// Settings of even wear.
    Wear(&'a WearSettings),
    /// A tenant.
    Tenant(&'a TenantSpec),
    /// A vSSD.
    Vssd(&'a VssdSpec),
    /// A volume.
    Volume(&'a VolumeSpec),
    /// A subsystem with its hosts and namespaces.
    Subsystem(&'a SubsystemSpec),
    /// A host's permission in a subsystem that exists.
    Host {
        /// NQN of the subsystem.
        subsystem: &'a str,
        /// NQN of the host.
        host: &'a str,
    },
    /// A namespace in a subsystem that exists.
    Namespace {
        /// NQN of the subsystem.
        subsystem: &'a str,
        /// What it is to show.
        namespace: &'a NamespaceSpec,
    },
    /// A QoS set.
    QosSet(&'a QosSetSpec),
}

impl fmt::Display for Lacking<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Lacking::Wear(_) => f.write_str("settings of even wear"),
            Lacking::Tenant(tenant) => write!(f, "tenant \"{}\"", tenant.name),
            Lacking::Vssd(vssd) => write!(f, "vSSD \"{}\"", vssd.name),
            Lacking::Volume(volume) => write!(f, "volume \"{}\"", volume.name),
            Lacking::Subsystem(subsystem) => write!(f, "subsystem {}", subsystem.nqn),
            Lacking::QosSet(set) => write!(f, "QoS set \"{}\"", set.name),
            Lacking::Host { subsystem, host } => write!(f, "host {host} of subsystem {subsystem}"),
            Lacking::Namespace { subsystem, namespace: NamespaceSpec { nsid, volume } } => {
                write!(f, "namespace {nsid} of subsystem {subsystem}, volume \"{volume}\"")
            }
        }
    }
}

/// What a server lacks of `setup`, in the order in which one needs the other. Nothing of it takes anything away.
pub fn lacking<'a>(setup: &'a Setup, status: &Status) -> Vec<Lacking<'a>> {
    let mut found = Vec::new();
    let mut wear = Vec::new();
    if let Some(device) = status.devices.first() {
        of_wear(&setup.wear, &device.wear, &mut wear);
    }
    if !wear.is_empty() {
        found.push(Lacking::Wear(&setup.wear));
    }
    let has = |name: &str| status.tenants.iter().any(|tenant| tenant.name == name);
    found.extend(setup.tenants.iter().filter(|one| !has(&one.name)).map(Lacking::Tenant));
    let has = |name: &str| status.vssds.iter().any(|vssd| vssd.vssd.name == name);
    found.extend(setup.vssds.iter().filter(|one| !has(&one.name)).map(Lacking::Vssd));
    let has = |name: &str| status.volumes.iter().any(|volume| volume.volume.name == name);
    found.extend(setup.volumes.iter().filter(|one| !has(&one.name)).map(Lacking::Volume));
    for declared in &setup.subsystems {
        let subsystem = declared.nqn.as_str();
        let Some(exists) =
            status.subsystems.iter().map(|one| &one.subsystem).find(|one| one.nqn == subsystem)
        else {
            found.push(Lacking::Subsystem(declared));
            continue;
        };
        let hosts = declared.allowed_hosts.iter().filter(|host| !exists.allowed_hosts.contains(host));
        found.extend(hosts.map(|host| Lacking::Host { subsystem, host }));
        let shown = |nsid| exists.namespaces.iter().any(|one| one.nsid == nsid);
        let namespaces = declared.namespaces.iter().filter(|namespace| !shown(namespace.nsid));
        found.extend(namespaces.map(|namespace| Lacking::Namespace { subsystem, namespace }));
    }
    let has = |name: &str| status.qos_sets.iter().any(|one| one.set.name == name);
    found.extend(setup.qos_sets.iter().filter(|one| !has(&one.name)).map(Lacking::QosSet));
    found
}
