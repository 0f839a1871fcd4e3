//! How many connections are open, together, for each peer and for each tenant, and who goes when there are too many: those that only hold a
//! place make room for those that come. A connection that has Connected stays, unless its tenant has as many as it may have.

use diecut_shard::drive::{ConnectionId, ShardIndex};
use diecut_units::{Span, Time};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

/// Connections of hosts that may be open at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// Together. Each takes a descriptor; what is left of those is for administrators, applications and files.
    pub all_max: usize,
    /// From one address.
    pub per_peer_max: usize,
    /// Of one tenant, from however many addresses.
    pub per_tenant_max: usize,
    /// Of all, those that have not Connected.
    pub newcomers_max: usize,
}

impl Default for ConnectionLimits {
    fn default() -> ConnectionLimits {
        let any = usize::MAX;
        ConnectionLimits { all_max: any, per_peer_max: any, per_tenant_max: any, newcomers_max: any }
    }
}

/// Connections that were sent away and are not gone yet, at most: each has a descriptor beyond the limit.
const LEAVING_MAX: usize = 4;
/// Until Connect, while half of the places of newcomers are taken.
const PRESSED_PATIENCE: Span = Span::from_secs(2);

/// Why a connection is hung up on at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Full {
    /// As many as may be have Connected.
    All,
    /// As many as may be have Connected from this address.
    Peer,
    /// As many as may be have Connected of this tenant.
    Tenant,
}

/// A connection that goes for another one, and why. Its thread is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Chosen {
    pub connection: ConnectionId,
    pub shard: ShardIndex,
    pub peer: IpAddr,
    pub why: Why,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// There is no place for a new one.
    NoPlace,
    /// Places are few, and it has had its time.
    Late,
}

/// What a peer has.
#[derive(Debug, Default)]
struct Peer {
    open: usize,
    /// Of these, those that have not Connected, in the order in which they came.
    newcomers: BTreeSet<ConnectionId>,
}

impl Peer {
    /// Its place in the order in which peers lose newcomers: the last one first. Who has most of them, then who has the oldest.
    fn rank(&self, peer: IpAddr) -> Option<(usize, Reverse<ConnectionId>, IpAddr)> {
        let oldest = self.newcomers.first()?;
        Some((self.newcomers.len(), Reverse(*oldest), peer))
    }
}

#[derive(Debug, Default)]
struct Counts {
    all: usize,
    peers: BTreeMap<IpAddr, Peer>,
    /// Peers with newcomers; see [`Peer::rank`].
    ranks: BTreeSet<(usize, Reverse<ConnectionId>, IpAddr)>,
    newcomers: BTreeMap<ConnectionId, (IpAddr, ShardIndex, Time)>,
    /// Connections of each tenant that have Connected.
    tenants: BTreeMap<String, usize>,
    /// Those that were sent away and are not gone.
    leaving: BTreeMap<ConnectionId, IpAddr>,
}

impl Counts {
    fn change_peer<T>(&mut self, address: IpAddr, change: impl FnOnce(&mut Peer) -> T) -> T {
        let peer = self.peers.entry(address).or_default();
        if let Some(rank) = peer.rank(address) {
            self.ranks.remove(&rank);
        }
        let changed = change(peer);
        self.ranks.extend(peer.rank(address));
        if peer.open == 0 {
            self.peers.remove(&address);
        }
        changed
    }

    /// It is a newcomer no more; whether it was one.
    fn remove_newcomer(&mut self, connection: ConnectionId) -> bool {
        let Some((address, ..)) = self.newcomers.remove(&connection) else { return false };
        self.change_peer(address, |peer| peer.newcomers.remove(&connection))
    }

    fn send_away(&mut self, connection: ConnectionId, why: Why) -> Chosen {
        let (peer, shard, _) = self.newcomers[&connection];
        let was_counted = self.remove_newcomer(connection);
        assert!(was_counted, "I-R3: a newcomer is one of its peer's");
        let before = self.leaving.insert(connection, peer);
        assert!(before.is_none(), "I-R3: {connection:?} is sent away once");
        Chosen { connection, shard, peer, why }
    }

    /// The oldest newcomer of the peer that has most of them.
    fn oldest_of_most(&self) -> Option<ConnectionId> {
        self.ranks.last().map(|(_, Reverse(oldest), _)| *oldest)
    }
}

/// Counts connections over all threads. Touched when one comes, Connects or goes only.
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
    connection: ConnectionId,
    /// Whose it is, once it has Connected; nobody's for discovery.
    tenant: Option<String>,
}

impl Doors {
    pub fn new(limits: ConnectionLimits) -> Doors {
        Doors { limits, counts: Mutex::default() }
    }

    fn with<T>(&self, change: impl FnOnce(&mut Counts) -> T) -> T {
        // Counts are whole at every moment: whoever panicked left nothing half done.
        change(&mut self.counts.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether nobody should be let in before some are gone that were sent away.
    pub fn is_busy(&self) -> bool {
        self.with(|counts| counts.leaving.len() >= LEAVING_MAX)
    }

    /// Takes a place for a new connection from `peer`, which goes to `shard`. Where there is none, the oldest newcomer of the peer that
    /// has most of them goes, or of this peer if it has all that one may have; and one that is late, where places are few.
    pub fn enter(
        self: &Arc<Doors>,
        peer: IpAddr,
        connection: ConnectionId,
        shard: ShardIndex,
        now: Time,
    ) -> Result<(Place, [Option<Chosen>; 2]), Full> {
        let limits = self.limits;
        self.with(|counts| {
            let leaving = counts.leaving.values().filter(|address| **address == peer).count();
            let own = counts.peers.get(&peer);
            let mut sent_away = None;
            if own.is_some_and(|own| own.open - leaving >= limits.per_peer_max) {
                let oldest = own.and_then(|own| own.newcomers.first().copied()).ok_or(Full::Peer)?;
                sent_away = Some(counts.send_away(oldest, Why::NoPlace));
            } else if counts.all - counts.leaving.len() >= limits.all_max
                || counts.newcomers.len() >= limits.newcomers_max
            {
                let oldest = counts.oldest_of_most().ok_or(Full::All)?;
                sent_away = Some(counts.send_away(oldest, Why::NoPlace));
            }
            let is_pressed = counts.newcomers.len() >= limits.newcomers_max.div_ceil(2);
            let oldest = counts.newcomers.first_key_value();
            let late = oldest.filter(|(_, (.., since))| is_pressed && *since + PRESSED_PATIENCE <= now);
            let late = late.map(|(connection, _)| *connection);
            let late = late.map(|connection| counts.send_away(connection, Why::Late));
            counts.all += 1;
            let before = counts.newcomers.insert(connection, (peer, shard, now));
            assert!(before.is_none(), "I-R3: {connection:?} comes once");
            let is_new = counts.change_peer(peer, |own| {
                own.open += 1;
                own.newcomers.insert(connection)
            });
            assert!(is_new, "I-R3: {connection:?} has one place of its peer");
            let place = Place { doors: Arc::clone(self), peer, connection, tenant: None };
            Ok((place, [sent_away, late]))
        })
    }
}

impl Place {
    /// It has Connected, and stays: also if it was sent away at this moment. Not if its tenant has as many as one may have.
    pub fn connected(&mut self, tenant: Option<&str>) -> Result<(), Full> {
        let (connection, most) = (self.connection, self.doors.limits.per_tenant_max);
        let has_room = self.doors.with(|counts| {
            counts.remove_newcomer(connection);
            counts.leaving.remove(&connection);
            let Some(tenant) = tenant else { return true };
            let own = counts.tenants.entry(tenant.to_owned()).or_default();
            let has_room = *own < most;
            *own += usize::from(has_room);
            has_room
        });
        if !has_room {
            return Err(Full::Tenant);
        }
        self.tenant = tenant.map(str::to_owned);
        Ok(())
    }

    /// Who is at the other end.
    pub fn peer(&self) -> IpAddr {
        self.peer
    }

    /// Whether it is to go for another one.
    pub fn is_sent_away(&self) -> bool {
        self.doors.with(|counts| counts.leaving.contains_key(&self.connection))
    }

    /// It has come to another thread; whether it may stay.
    pub fn arrives(&self, shard: ShardIndex) -> bool {
        self.doors.with(|counts| {
            if let Some((_, at, _)) = counts.newcomers.get_mut(&self.connection) {
                *at = shard;
            }
            !counts.leaving.contains_key(&self.connection)
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.doors.with(|counts| {
            counts.remove_newcomer(self.connection);
            counts.leaving.remove(&self.connection);
            counts.all -= 1;
            counts.change_peer(self.peer, |own| own.open -= 1);
            if let Some(tenant) = &self.tenant
                && let Some(own) = counts.tenants.get_mut(tenant)
            {
                *own -= 1;
                if *own == 0 {
                    counts.tenants.remove(tenant);
                }
            }
        });
    }
}

#[cfg(test)]
mod test {
    use super::*;

    const FIRST: ShardIndex = ShardIndex(0);

    fn address(number: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, number])
    }

    fn limits(all_max: usize, per_peer_max: usize, newcomers_max: usize) -> Arc<Doors> {
        let limits = ConnectionLimits { all_max, per_peer_max, newcomers_max, ..ConnectionLimits::default() };
        Arc::new(Doors::new(limits))
    }

    /// The id of the next connection.
    fn enter(
        doors: &Arc<Doors>,
        peer: u8,
        next: &mut u64,
        now: Time,
    ) -> Result<(Place, [Option<Chosen>; 2]), Full> {
        *next += 1;
        doors.enter(address(peer), ConnectionId(*next), FIRST, now)
    }

    /// Goal: those that have Connected keep their places, one address cannot take all of them, all together cannot take more than there
    /// are, and places come back. Method: two addresses, in turns.
    #[test]
    fn places_are_limited_for_each_and_for_all() {
        let doors = limits(3, 2, usize::MAX);
        let mut next = 0;
        let mut come = |peer| {
            let (mut place, sent_away) = enter(&doors, peer, &mut next, Time::ZERO)?;
            assert_eq!(sent_away, [None, None]);
            place.connected(None)?;
            Ok::<Place, Full>(place)
        };
        let first = come(1).unwrap();
        let _second = come(1).unwrap();
        assert_eq!(come(1).unwrap_err(), Full::Peer);
        let _third = come(2).unwrap();
        assert_eq!(come(2).unwrap_err(), Full::All);
        drop(first);
        let _fourth = come(2).unwrap();
        assert_eq!(doors.with(|counts| counts.peers.len()), 2);
    }

    /// Goal: a tenant cannot take all places, from however many addresses, and gets those back that it gives up. Method: two tenants, and
    /// discovery, which is nobody's.
    #[test]
    fn places_are_limited_for_each_tenant() {
        let limits = ConnectionLimits { all_max: 4, per_tenant_max: 2, ..ConnectionLimits::default() };
        let (doors, mut next) = (Arc::new(Doors::new(limits)), 0);
        let mut come = |peer, tenant| {
            let (mut place, _) = enter(&doors, peer, &mut next, Time::ZERO)?;
            place.connected(tenant)?;
            Ok::<Place, Full>(place)
        };
        let first = come(1, Some("many")).unwrap();
        let _second = come(2, Some("many")).unwrap();
        assert_eq!(come(3, Some("many")).unwrap_err(), Full::Tenant);
        let _other = come(3, Some("one")).unwrap();
        drop(first);
        let third = come(4, Some("many")).unwrap();
        let _nobody = come(5, None).unwrap();
        assert_eq!(come(6, None).unwrap_err(), Full::All);
        drop(third);
        assert_eq!(doors.with(|counts| counts.tenants.get("many").copied()), Some(1));
    }

    /// Goal: silent connections of many addresses keep nobody out, and it is they who go, not those that come up and not those that
    /// have Connected. Method: twenty addresses take all places, and again whenever they lose one; hosts of other addresses come
    /// meanwhile, each of which takes a while to Connect.
    #[test]
    fn silent_connections_make_room() {
        let doors = limits(40, 20, 40);
        let mut next = 0;
        let mut silent: BTreeMap<ConnectionId, Place> = BTreeMap::new();
        let mut honest = Vec::new();
        for round in 0..400u64 {
            let peer = if round.is_multiple_of(20) { 100 + (round / 20) as u8 } else { (round % 20) as u8 };
            let (place, sent_away) =
                enter(&doors, peer, &mut next, Time(round)).expect("there is room for all");
            for chosen in sent_away.into_iter().flatten() {
                assert!(silent.remove(&chosen.connection).is_some(), "{chosen:?} in round {round}");
                assert!(chosen.peer != address(peer) || peer < 100);
            }
            if peer < 100 {
                silent.insert(place.connection, place);
            } else {
                honest.push(place);
            }
            // The last but one has Connected.
            if honest.len() > 1 {
                let last_but_one = honest.len() - 2;
                honest[last_but_one].connected(Some("a")).unwrap();
            }
            assert!(silent.len() + honest.len() <= 40, "round {round}");
        }
        assert_eq!(honest.len(), 20);
        drop((silent, honest));
        let counts = doors.counts.lock().unwrap();
        assert_eq!((counts.all, counts.peers.len(), counts.ranks.len(), counts.leaving.len()), (0, 0, 0, 0));
    }

    /// Goal: an address with all the places that one may have loses its own oldest, and nobody else's; of equal addresses it is the one
    /// whose newcomer is oldest.
    #[test]
    fn the_oldest_of_the_largest_goes() {
        let doors = limits(4, 2, usize::MAX);
        let mut next = 0;
        let mut come =
            |peer| enter(&doors, peer, &mut next, Time::ZERO).map(|(place, [chosen, _])| (place, chosen));
        let (first, none) = come(1).unwrap();
        assert_eq!(none, None);
        let (_second, _) = come(1).unwrap();
        let (_third, chosen) = come(1).unwrap();
        assert_eq!(chosen.unwrap().connection, first.connection);
        assert!(first.is_sent_away() && !first.arrives(FIRST));
        drop(first);
        let ((mut fourth, _), (_fifth, none)) = (come(2).unwrap(), come(2).unwrap());
        assert_eq!(none, None);
        // Both have two: the oldest is the first address's.
        let (_sixth, chosen) = come(3).unwrap();
        assert_eq!(chosen.unwrap().peer, address(1));
        // One that Connects at the moment in which it is sent away stays.
        let (_seventh, chosen) = come(3).unwrap();
        assert_eq!(chosen.unwrap().connection, fourth.connection);
        fourth.connected(None).unwrap();
        assert!(!fourth.is_sent_away() && fourth.arrives(FIRST));
    }

    /// Goal: while places are few, those that are late go before their usual time; while there are many they stay.
    #[test]
    fn patience_is_shorter_under_pressure() {
        let doors = limits(100, 100, 4);
        let mut next = 0;
        let mut come = |seconds| enter(&doors, 1, &mut next, Time::ZERO + Span::from_secs(seconds)).unwrap();
        let (first, _) = come(0);
        let (_second, chosen) = come(5);
        assert_eq!(chosen, [None, None], "there are many places");
        let (_third, [none, late]) = come(6);
        assert_eq!((none, late.unwrap().connection, late.unwrap().why), (None, first.connection, Why::Late));
        let (_fourth, chosen) = come(6);
        assert_eq!(chosen, [None, None], "nobody is late");
    }
}
