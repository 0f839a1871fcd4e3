//! The discovery log page (Base 2.0 section 5.16.1.23).

use crate::config::{SubsystemConfig, TargetConfig};
use diecut_nvme::{
    DISCOVERY_SUBSYSTEM_NQN, DiscoveryEntry, DiscoveryHeader, ENTRY_FLAG_DUPLICATE_INFORMATION,
    ENTRY_FLAG_PERSISTENT_CONNECTION, QualifiedName, SUBSYSTEM_TYPE_CURRENT_DISCOVERY, SUBSYSTEM_TYPE_NVM,
};
use std::net::SocketAddr;
use zerocopy::IntoBytes;

/// Whether a host may see and use a subsystem. One that gave no name may use what every host may.
pub(crate) fn is_allowed(subsystem: &SubsystemConfig, host: Option<&QualifiedName>) -> bool {
    subsystem.allow_any_host || host.is_some_and(|host| subsystem.allowed_hosts.contains(host))
}

/// What a host must dial that came to `local`, and the port ids: one for each advertised address, whatever is left out.
fn dialled(advertised: &[SocketAddr], local: Option<SocketAddr>) -> Vec<(u16, SocketAddr)> {
    let local = local.map(|local| SocketAddr::new(local.ip().to_canonical(), local.port()));
    let mut found: Vec<(u16, SocketAddr)> = Vec::new();
    for (number, &address) in (1..).zip(advertised) {
        let mut address = address;
        if let Some(local) = local {
            let every = address.ip().is_unspecified();
            // A socket on `::` takes both families, one on 0.0.0.0 does not.
            if every && (address.is_ipv6() || local.is_ipv4()) {
                address.set_ip(local.ip());
            }
            if address.port() == 0 {
                address.set_port(local.port());
            }
            // The machine's own loopback is of no use to a host elsewhere.
            if address.ip().is_loopback() && !local.ip().is_loopback() {
                continue;
            }
        }
        if !address.ip().is_unspecified() && address.port() != 0 && found.iter().all(|one| one.1 != address) {
            found.push((number, address));
        }
    }
    found
}

/// The whole page as `host` may see it that came to `local`: this discovery subsystem, then its subsystems, each at every
/// address.
pub(crate) fn log_page<'a>(
    config: &TargetConfig,
    subsystems: impl Iterator<Item = &'a SubsystemConfig>,
    host: Option<&QualifiedName>,
    local: Option<SocketAddr>,
    generation: u64,
) -> Vec<u8> {
    let own = QualifiedName::new(DISCOVERY_SUBSYSTEM_NQN).expect("the well-known name");
    let shown: Vec<(u8, &QualifiedName)> = std::iter::once((SUBSYSTEM_TYPE_CURRENT_DISCOVERY, &own))
        .chain(
            subsystems
                .filter(|subsystem| is_allowed(subsystem, host))
                .map(|subsystem| (SUBSYSTEM_TYPE_NVM, &subsystem.nqn)),
        )
        .collect();
    let mut entries = Vec::new();
    for (port, address) in dialled(&config.advertised, local) {
        for (kind, nqn) in &shown {
            let mut entry =
                DiscoveryEntry::tcp(*kind, nqn, address, port, config.queue.queue_entries_max.min(32));
            if *kind == SUBSYSTEM_TYPE_CURRENT_DISCOVERY {
                entry.flags = (ENTRY_FLAG_DUPLICATE_INFORMATION | ENTRY_FLAG_PERSISTENT_CONNECTION).into();
            }
            entries.push(entry);
        }
    }
    let mut page = DiscoveryHeader::new(generation, entries.len() as u64).as_bytes().to_vec();
    for entry in &entries {
        page.extend_from_slice(entry.as_bytes());
    }
    page
}

#[cfg(test)]
mod test {
    use super::*;

    /// What is told depends on where the host came to: nobody can dial 0.0.0.0, nor another machine's loopback.
    #[test]
    fn hosts_are_told_what_they_can_dial() {
        let told = |advertised: &[&str], local: Option<&str>| {
            let advertised: Vec<SocketAddr> = advertised.iter().map(|text| text.parse().unwrap()).collect();
            let found = dialled(&advertised, local.map(|text| text.parse().unwrap()));
            found.iter().map(|(port, address)| format!("{port} {address}")).collect::<Vec<_>>().join(", ")
        };
        let all = ["0.0.0.0:4420", "[::]:4421", "127.0.0.1:4422", "192.0.2.9:4423"];
        assert_eq!(
            told(&all, Some("192.0.2.1:4420")),
            "1 192.0.2.1:4420, 2 192.0.2.1:4421, 4 192.0.2.9:4423"
        );
        assert_eq!(
            told(&all, Some("127.0.0.1:4420")),
            "1 127.0.0.1:4420, 2 127.0.0.1:4421, 3 127.0.0.1:4422, 4 192.0.2.9:4423"
        );
        assert_eq!(told(&all, Some("[2001:db8::1]:4421")), "2 [2001:db8::1]:4421, 4 192.0.2.9:4423");
        assert_eq!(told(&["[::]:4420"], Some("[::ffff:192.0.2.1]:4420")), "1 192.0.2.1:4420");
        assert_eq!(told(&["0.0.0.0:4420", "192.0.2.1:4420"], Some("192.0.2.1:4420")), "1 192.0.2.1:4420");
        assert_eq!(told(&["127.0.0.1:0"], Some("127.0.0.1:39999")), "1 127.0.0.1:39999");
        assert_eq!(told(&all, None), "3 127.0.0.1:4422, 4 192.0.2.9:4423", "nothing that nobody can dial");
    }
}
