//! What of a round a tenant has. Its connections are read, and written to, for no more than its share, however many they are: a round
//! ends for everybody when the system calls of all its turns are done, and nobody's answer comes before that.
//!
//! The share counts bytes, and a turn as so many of them as its system call costs beside a copy. The tenant with the largest weight has
//! [`SHARE_BYTES`], the others what is due to theirs, but a few turns at least. Who has used up its share goes on in the next round,
//! before those of its tenant that had a turn.

use diecut_units::Slab;
use std::collections::BTreeMap;

/// What the heaviest tenant has of a round in each direction: 32 turns of a command or two, or two turns of large writes.
pub(crate) const SHARE_BYTES: u32 = 512 << 10;
/// What a turn counts besides its bytes: its system call takes about as long as a copy of so many.
pub(crate) const TURN_BYTES: u32 = 16 << 10;
/// The share of a tenant beside one of a much larger weight: a round for each turn would cost both.
const SHARE_MIN_BYTES: u32 = 4 * TURN_BYTES;
/// Connections that have not said whose they are, and those of discovery.
pub(crate) const NOBODY: u32 = 0;
/// The usual weight, and that of nobody.
const USUAL_WEIGHT: u32 = 100;

/// Bytes come in and go out: each way has a share of its own, so that answers never wait for what is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    In,
    Out,
}

struct Tenant {
    name: String,
    weight: u32,
    connections: u32,
    /// The round that `left` is of.
    round: u64,
    /// What is left of its share, for each [`Way`].
    left: [i64; 2],
}

/// See the module.
pub(crate) struct Shares {
    tenants: Slab<Tenant>,
    by_name: BTreeMap<String, u32>,
    round: u64,
    /// The largest weight of those that have connections.
    heaviest: u32,
}

impl Default for Shares {
    fn default() -> Shares {
        let mut shares =
            Shares { tenants: Slab::new(), by_name: BTreeMap::new(), round: 0, heaviest: USUAL_WEIGHT };
        let nobody =
            Tenant { name: String::new(), weight: USUAL_WEIGHT, connections: 0, round: 0, left: [0; 2] };
        let place = shares.tenants.insert(nobody);
        assert_eq!(place, NOBODY, "I-R4: the first place is nobody's");
        shares
    }
}

impl Shares {
    /// From now on everybody has a new share.
    pub fn begin_round(&mut self) {
        self.round += 1;
    }

    /// A connection belongs to a tenant, or to nobody. Its place here, until [`Shares::leave`].
    pub fn enter(&mut self, name: Option<&str>) -> u32 {
        let Some(name) = name else { return NOBODY };
        if let Some(&known) = self.by_name.get(name) {
            self.tenants[known].connections += 1;
            return known;
        }
        let tenant =
            Tenant { name: name.to_owned(), weight: USUAL_WEIGHT, connections: 1, round: 0, left: [0; 2] };
        let place = self.tenants.insert(tenant);
        self.by_name.insert(name.to_owned(), place);
        self.weigh();
        place
    }

    /// A connection is gone.
    pub fn leave(&mut self, tenant: u32) {
        if tenant == NOBODY {
            return;
        }
        let own = &mut self.tenants[tenant];
        assert!(own.connections > 0, "I-R4: a connection counts to its tenant once");
        own.connections -= 1;
        if own.connections == 0 {
            self.by_name.remove(&own.name);
            self.tenants.remove(tenant);
            self.weigh();
        }
    }

    fn weigh(&mut self) {
        let tenants = self.tenants.iter().filter(|(place, _)| *place != NOBODY);
        self.heaviest = tenants.map(|(_, one)| one.weight).max().unwrap_or(USUAL_WEIGHT);
    }

    /// Whether a connection of a tenant may have a turn in this round. `weight_of` says what the tenant weighs; it is asked once a round.
    #[inline]
    pub fn may_go(&mut self, tenant: u32, way: Way, weight_of: impl FnOnce(&str) -> u32) -> bool {
        if self.tenants[tenant].round != self.round {
            self.renew(tenant, weight_of);
        }
        self.tenants[tenant].left[way as usize] > 0
    }

    fn renew(&mut self, tenant: u32, weight_of: impl FnOnce(&str) -> u32) {
        let own = &mut self.tenants[tenant];
        let weight = if tenant == NOBODY { USUAL_WEIGHT } else { weight_of(&own.name) };
        if weight != own.weight {
            own.weight = weight;
            self.weigh();
        }
        let share = u64::from(SHARE_BYTES) * u64::from(weight) / u64::from(self.heaviest.max(weight));
        let own = &mut self.tenants[tenant];
        (own.round, own.left) = (self.round, [share.max(SHARE_MIN_BYTES.into()) as i64; 2]);
    }

    /// A connection of a tenant had a turn.
    #[inline]
    pub fn took(&mut self, tenant: u32, way: Way, bytes: usize) {
        self.tenants[tenant].left[way as usize] -= bytes as i64 + i64::from(TURN_BYTES);
    }
}

#[cfg(test)]
mod test {
    use super::*;

    fn turns(shares: &mut Shares, tenant: u32, way: Way, weight: u32, bytes: usize) -> u32 {
        let mut turns = 0;
        while shares.may_go(tenant, way, |_| weight) {
            shares.took(tenant, way, bytes);
            turns += 1;
        }
        turns
    }

    /// Goal: a round is bounded by the tenants that have something to say in it, not by their connections. Method: many connections of
    /// one tenant, one of another; each takes what it may, both ways.
    #[test]
    fn a_tenant_has_one_share_however_many_connections_it_has() {
        let mut shares = Shares::default();
        let many: Vec<u32> = (0..256).map(|_| shares.enter(Some("many"))).collect();
        let one = shares.enter(Some("one"));
        assert!(many.iter().all(|place| *place == many[0] && *place != one));
        for _ in 0..3 {
            shares.begin_round();
            for way in [Way::In, Way::Out] {
                assert_eq!(turns(&mut shares, many[0], way, 100, 0), 32);
                assert_eq!(turns(&mut shares, one, way, 100, 256 << 10), 2);
                assert_eq!(turns(&mut shares, NOBODY, way, 7, 0), 32, "nobody has the usual weight");
            }
        }
        many.into_iter().for_each(|place| shares.leave(place));
        assert_eq!(shares.by_name.len(), 1, "who has no connection is forgotten");
        shares.leave(NOBODY);
    }

    /// Goal: shares go by weight, also by one that changes, and nobody is left without a turn. Method: weights of all kinds beside
    /// each other.
    #[test]
    fn shares_go_by_weight() {
        let mut shares = Shares::default();
        let (light, heavy) = (shares.enter(Some("light")), shares.enter(Some("heavy")));
        let mut round = |light_weight, heavy_weight| {
            // The second of two rounds knows all weights.
            let mut last = (0, 0);
            for _ in 0..2 {
                shares.begin_round();
                last = (
                    turns(&mut shares, light, Way::In, light_weight, 0),
                    turns(&mut shares, heavy, Way::In, heavy_weight, 0),
                );
            }
            last
        };
        assert_eq!(round(100, 100), (32, 32));
        assert_eq!(round(100, 200), (16, 32));
        assert_eq!(round(100, 400), (8, 32));
        assert_eq!(round(1, 10_000), (4, 32), "a few turns at least");
        assert_eq!(round(300, 300), (32, 32));
        assert_eq!(round(3, 3), (32, 32));
        let gone = heavy;
        shares.leave(gone);
        shares.begin_round();
        assert_eq!(turns(&mut shares, light, Way::In, 100, 0), 32, "who is gone weighs nothing");
    }
}
