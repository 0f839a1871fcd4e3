//! How many connections are open, together and for each peer: who comes beyond that is hung up on before anything is spent on it.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

/// Connections of hosts that may be open at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// Together. Each takes a descriptor; what is left of those is for administrators, applications and files.
    pub all_max: usize,
    /// From one address.
    pub per_peer_max: usize,
}

impl Default for ConnectionLimits {
    fn default() -> ConnectionLimits {
        ConnectionLimits { all_max: usize::MAX, per_peer_max: usize::MAX }
    }
}

/// Why a connection is hung up on at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Full {
    /// As many as may be are open.
    All,
    /// As many as may be are open from this address.
    Peer,
}

#[derive(Debug, Default)]
struct Counts {
    all: usize,
    peers: BTreeMap<IpAddr, usize>,
}

/// Counts connections over all threads. Touched when one comes or goes only.
#[derive(Debug)]
pub(crate) struct Doors {
    limits: ConnectionLimits,
    counts: Mutex<Counts>,
}

/// The place of an open connection; it is free when this is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    doors: Arc<Doors>,
    peer: IpAddr,
}

impl Doors {
    pub fn new(limits: ConnectionLimits) -> Doors {
        Doors { limits, counts: Mutex::default() }
    }

    fn with<T>(&self, change: impl FnOnce(&mut Counts) -> T) -> T {
        // Counts are whole at every moment: whoever panicked left nothing half done.
        change(&mut self.counts.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes a place for a connection from `peer`.
    pub fn enter(self: &Arc<Doors>, peer: IpAddr) -> Result<Place, Full> {
        self.with(|counts| {
            if counts.all >= self.limits.all_max {
                return Err(Full::All);
            }
            if counts.peers.get(&peer).is_some_and(|&own| own >= self.limits.per_peer_max) {
                return Err(Full::Peer);
            }
            counts.all += 1;
            *counts.peers.entry(peer).or_default() += 1;
            Ok(Place { doors: Arc::clone(self), peer })
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.doors.with(|counts| {
            counts.all -= 1;
            let own = counts.peers.get_mut(&self.peer).expect("it was counted");
            *own -= 1;
            if *own == 0 {
                counts.peers.remove(&self.peer);
            }
        });
    }
}

#[cfg(test)]
mod test {
    use super::*;

    /// Goal: one address cannot take all places, all together cannot take more than there are, and places come back. Method: two
    /// addresses, in turns.
    #[test]
    fn places_are_limited_for_each_and_for_all() {
        let doors = Arc::new(Doors::new(ConnectionLimits { all_max: 3, per_peer_max: 2 }));
        let (one, two) = (IpAddr::from([192, 0, 2, 1]), IpAddr::from([192, 0, 2, 2]));
        let first = doors.enter(one).unwrap();
        let _second = doors.enter(one).unwrap();
        assert_eq!(doors.enter(one).unwrap_err(), Full::Peer);
        let _third = doors.enter(two).unwrap();
        assert_eq!(doors.enter(two).unwrap_err(), Full::All);
        drop(first);
        let _fourth = doors.enter(two).unwrap();
        assert_eq!(doors.counts.lock().unwrap().peers.len(), 2);
    }
}
