//! Addresses as people write them, and what hosts dial.

use crate::error::ServeError;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs, UdpSocket};

/// Addresses that one server listens on, or tells, at most.
const ADDRESSES_MAX: usize = 32;

/// Looks up what stands in a field of the set-up: each entry is `ADDRESS:PORT` or `NAME:PORT`, and a name stands for all its
/// addresses. Every address comes once, in order.
///
/// # Errors
/// Names the field, the entry and what to write.
pub fn resolve(field: &str, written: &[String]) -> Result<Vec<SocketAddr>, ServeError> {
    let mut found: Vec<SocketAddr> = Vec::new();
    for entry in written {
        let refuse = |why: String| ServeError::Setup(format!("{field} = \"{entry}\": {why}"));
        let port = entry.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok());
        if port.is_none() {
            return Err(refuse(
                "write ADDRESS:PORT or NAME:PORT, as 127.0.0.1:4420, [::1]:4420 or storage.example:4420"
                    .to_owned(),
            ));
        }
        let addresses = entry
            .to_socket_addrs()
            .map_err(|error| refuse(format!("the name does not resolve here ({error})")))?;
        for address in addresses {
            if !found.contains(&address) {
                found.push(address);
            }
        }
    }
    if found.len() > ADDRESSES_MAX {
        let message = format!("{field}: {} addresses; use at most {ADDRESSES_MAX}", found.len());
        return Err(ServeError::Setup(message));
    }
    Ok(found)
}

/// What hosts shall dial instead of the addresses that are listened on: each must be one that can be dialled.
///
/// # Errors
/// As [`resolve`], and if an entry stands for no single address and port.
pub fn resolve_advertised(written: &[String]) -> Result<Vec<SocketAddr>, ServeError> {
    const FIELD: &str = "server.advertise";
    let found = resolve(FIELD, written)?;
    match found.iter().find(|address| address.ip().is_unspecified() || address.port() == 0) {
        None => Ok(found),
        Some(address) => Err(ServeError::Setup(format!(
            "{FIELD}: no host can dial {address}; write the address and port that hosts reach"
        ))),
    }
}

/// What to print for people who connect from elsewhere: an address that stands for all of the machine becomes the one that
/// its default route has.
pub fn dialled(listened: &[SocketAddr]) -> Vec<SocketAddr> {
    let mut found = Vec::new();
    for &address in listened {
        let mut address = address;
        if address.ip().is_unspecified() {
            address.set_ip(own_address(address.is_ipv6()));
        }
        if !found.contains(&address) {
            found.push(address);
        }
    }
    found
}

/// The address that the machine would use for others; its loopback if it has no route. Nothing is sent.
fn own_address(prefers_v6: bool) -> IpAddr {
    // Addresses for documentation (RFC 5737, RFC 3849): only the way there is looked up.
    let v4: (SocketAddr, SocketAddr) =
        ((Ipv4Addr::UNSPECIFIED, 0).into(), (Ipv4Addr::new(192, 0, 2, 1), 9).into());
    let v6: (SocketAddr, SocketAddr) =
        ((Ipv6Addr::UNSPECIFIED, 0).into(), (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1), 9).into());
    let look_up = |(from, to): (SocketAddr, SocketAddr)| {
        let socket = UdpSocket::bind(from).ok()?;
        socket.connect(to).ok()?;
        socket.local_addr().ok().map(|local| local.ip()).filter(|ip| !ip.is_unspecified())
    };
    // Most hosts are told IPv4, which a socket on `::` takes as well.
    look_up(v4).or_else(|| look_up(v6).filter(|_| prefers_v6)).unwrap_or(Ipv4Addr::LOCALHOST.into())
}

#[cfg(test)]
mod test {
    use super::*;

    fn owned(entries: &[&str]) -> Vec<String> {
        entries.iter().map(|entry| (*entry).to_owned()).collect()
    }

    /// Addresses and names are taken; what is wrong is named with its field, and nothing is guessed.
    #[test]
    fn addresses_and_names_are_looked_up() {
        let found = resolve("server.listen", &owned(&["127.0.0.1:4420", "[::1]:4421", "127.0.0.1:4420"]));
        let expected: [SocketAddr; 2] = [([127, 0, 0, 1], 4420).into(), "[::1]:4421".parse().unwrap()];
        assert_eq!(found.unwrap(), expected);
        let named = resolve("server.listen", &owned(&["localhost:4420"])).unwrap();
        assert!(
            named.iter().all(|address| address.ip().is_loopback() && address.port() == 4420),
            "{named:?}"
        );
        for (entry, says) in [
            ("127.0.0.1", "ADDRESS:PORT"),
            ("localhost", "ADDRESS:PORT"),
            ("localhost:nvme", "ADDRESS:PORT"),
            ("no-such-name.invalid:4420", "does not resolve"),
        ] {
            let refused = resolve("server.listen", &owned(&[entry])).unwrap_err().to_string();
            assert!(refused.contains("server.listen") && refused.contains(entry), "{refused}");
            assert!(refused.contains(says), "{refused}");
        }
        let many: Vec<String> = (0..40).map(|port| format!("127.0.0.1:{}", 5000 + port)).collect();
        assert!(resolve("server.listen", &many).unwrap_err().to_string().contains("at most 32"));
    }

    /// Nobody can dial all addresses of a machine, nor any port.
    #[test]
    fn what_is_advertised_can_be_dialled() {
        assert_eq!(resolve_advertised(&owned(&["192.0.2.7:4420"])).unwrap().len(), 1);
        for entry in ["0.0.0.0:4420", "[::]:4420", "192.0.2.7:0"] {
            let refused = resolve_advertised(&owned(&[entry])).unwrap_err().to_string();
            assert!(refused.contains("server.advertise") && refused.contains(entry), "{refused}");
        }
        let told = dialled(&["0.0.0.0:4420".parse().unwrap(), "127.0.0.1:4421".parse().unwrap()]);
        assert_eq!(told[1], "127.0.0.1:4421".parse().unwrap());
        assert!(!told[0].ip().is_unspecified() && told[0].port() == 4420);
    }
}
