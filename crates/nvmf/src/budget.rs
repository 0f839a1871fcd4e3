//! Who may hold how many bytes of the shard's memory: one account for each connection, under its host, under its tenant.
//!
//! What a connection needs to make progress at all (its queue, and a reserve for small commands) is taken from the budget when it
//! becomes a queue, so commands within the reserve ask nobody. What is beyond is asked for before it is allocated:
//!
//! - Half of the budget is cut into equal guarantees, one for each tenant; what of them is not in use is kept for their tenants.
//! - Of the rest whoever comes first gets it, but no host gets more while it holds half of what is left for its tenant, and no queue
//!   while it holds a quarter (dynamic thresholds: Choudhury and Hahne, IEEE/ACM Transactions on Networking 6(2), 1998). However
//!   many are greedy, the next one finds something.
//!
//! Values only: it knows no buffers and no connections.

use diecut_units::{Slab, mutant};
use std::cmp::Ordering;
use std::collections::BTreeMap;

/// The tenant of connections that have not said whose they are, and of discovery.
pub(crate) const NEWCOMERS: u32 = 0;

/// What newcomers may hold at most: one in so many bytes of the budget.
pub(crate) const NEWCOMERS_SHARE: usize = 8;

/// A host holds at most one in so many bytes of what its tenant could still take, and a queue one in so many: nothing more is given
/// beyond.
const HOST_THRESHOLD: usize = 2;
const QUEUE_THRESHOLD: usize = 4;

/// A part of the budget for which something may be free: a connection needs this much to be worth parsing.
const STEP_BYTES: usize = 4096;

/// What one connection holds.
#[derive(Debug, Default)]
pub(crate) struct Account {
    tenant: u32,
    host: Option<u32>,
    /// Taken when it was opened, besides the reserve.
    own_bytes: usize,
    reserve_bytes: usize,
    /// Held by unread bytes. They do not count against the reserve: what is read next could not wait for them.
    unread_bytes: usize,
    /// Held by commands and answers.
    held_bytes: usize,
}

impl Account {
    /// Held beyond the reserve.
    #[inline]
    fn shared_bytes(&self) -> usize {
        self.held_bytes.saturating_sub(self.reserve_bytes)
    }

    /// Whether it lives on its reserve alone.
    #[inline]
    pub(crate) fn is_within_reserve(&self) -> bool {
        self.held_bytes <= self.reserve_bytes
    }

    /// What of the budget it takes.
    pub(crate) fn taken_bytes(&self) -> usize {
        self.own_bytes + self.reserve_bytes + self.unread_bytes + self.shared_bytes()
    }

    /// Bytes held by commands and answers.
    pub(crate) fn held_bytes(&self) -> usize {
        self.held_bytes
    }
}

#[derive(Debug, Default)]
struct Host {
    /// Held by its connections beyond their reserves.
    shared_bytes: usize,
    /// Associations and accounts; it goes with the last one.
    users: usize,
}

#[derive(Debug, Default)]
struct Tenant {
    held_bytes: usize,
    /// Itself, while it is there, and accounts.
    users: usize,
}

/// The budget of a shard. See the module.
#[derive(Debug)]
pub(crate) struct Budget {
    limit_bytes: usize,
    held_bytes: usize,
    /// What of it accounts hold without reserves and commands.
    own_bytes: usize,
    tenants: Slab<Tenant>,
    tenant_count: usize,
    hosts: Slab<Host>,
    /// What each tenant can count on.
    guarantee_bytes: usize,
    /// Guarantees that are not in use, together.
    kept_bytes: usize,
    /// Something was given back since this was last asked.
    gave_back: bool,
}

impl Budget {
    pub(crate) fn new(limit_bytes: usize) -> Budget {
        let mut budget = Budget {
            limit_bytes,
            held_bytes: 0,
            own_bytes: 0,
            tenants: Slab::new(),
            tenant_count: 0,
            hosts: Slab::new(),
            guarantee_bytes: 0,
            kept_bytes: 0,
            gave_back: false,
        };
        assert_eq!(budget.add_tenant(), NEWCOMERS);
        budget
    }

    /// What is held beyond a new limit stays; nothing more is given until it is below.
    pub(crate) fn set_limit(&mut self, limit_bytes: usize) {
        self.gave_back |= limit_bytes > self.limit_bytes;
        self.limit_bytes = limit_bytes;
        self.cut();
    }

    pub(crate) fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// What connections hold before they have a command.
    pub(crate) fn own_bytes(&self) -> usize {
        self.own_bytes
    }

    /// Whether most of it is in use: who can do with less should.
    #[inline]
    pub(crate) fn is_short(&self) -> bool {
        self.held_bytes > self.limit_bytes / 4 * 3
    }

    /// Whether something was given back since the last call.
    pub(crate) fn take_gave_back(&mut self) -> bool {
        std::mem::take(&mut self.gave_back)
    }

    /// Whoever waits has another try.
    pub(crate) fn set_gave_back(&mut self) {
        self.gave_back = true;
    }

    pub(crate) fn has_given_back(&self) -> bool {
        self.gave_back
    }

    /// A tenant that may have accounts until [`Budget::leave_tenant`]; those that it has then stay.
    pub(crate) fn add_tenant(&mut self) -> u32 {
        self.tenant_count += 1;
        let tenant = self.tenants.insert(Tenant { held_bytes: 0, users: 1 });
        self.cut();
        tenant
    }

    /// One user of a tenant less.
    pub(crate) fn leave_tenant(&mut self, tenant: u32) {
        let own = self.tenants.get_mut(tenant).expect("I-T4: who has users is there");
        assert!(own.users > 0, "I-T4: a tenant goes with its last user");
        own.users -= 1;
        if own.users == 0 {
            assert_ne!(tenant, NEWCOMERS, "I-T4: newcomers are always a tenant");
            let removed = self.tenants.remove(tenant);
            assert!(
                removed.held_bytes == 0 || mutant!("nvmf: budget not given back"),
                "I-T4: a tenant goes when its connections are gone"
            );
            assert!(self.tenant_count > 1, "I-T4: tenants are counted");
            self.tenant_count -= 1;
            self.cut();
        }
    }

    /// A host with one user.
    pub(crate) fn add_host(&mut self) -> u32 {
        self.hosts.insert(Host { shared_bytes: 0, users: 1 })
    }

    /// One user of a host more.
    pub(crate) fn join_host(&mut self, host: u32) {
        self.hosts.get_mut(host).expect("I-T4: who has users is there").users += 1;
    }

    /// One user of a host less; it goes with the last one.
    pub(crate) fn leave_host(&mut self, host: u32) {
        let own = self.hosts.get_mut(host).expect("I-T4: who has users is there");
        assert!(own.users > 0, "I-T4: a host goes with its last user");
        own.users -= 1;
        if own.users == 0 {
            assert!(
                own.shared_bytes == 0 || mutant!("nvmf: budget not given back"),
                "I-T4: a host goes when its connections hold nothing"
            );
            self.hosts.remove(host);
        }
    }

    /// Guarantees anew.
    fn cut(&mut self) {
        self.guarantee_bytes = self.limit_bytes / 2 / self.tenant_count.max(1);
        let guarantee = self.guarantee_bytes;
        self.kept_bytes = self.tenants.iter().map(|(_, one)| guarantee.saturating_sub(one.held_bytes)).sum();
    }

    /// What a tenant may still take.
    #[inline]
    fn free_bytes(&self, tenant: u32) -> usize {
        let held = self.tenants.get(tenant).expect("I-T4: accounts keep their tenant").held_bytes;
        let own = self.guarantee_bytes.saturating_sub(held);
        let kept = if mutant!("nvmf: reserve of tenants not kept") { 0 } else { self.kept_bytes - own };
        let free = self.limit_bytes.saturating_sub(self.held_bytes).saturating_sub(kept);
        if tenant != NEWCOMERS {
            return free;
        }
        let most = (self.limit_bytes / NEWCOMERS_SHARE).max(self.guarantee_bytes);
        free.min(most.saturating_sub(held))
    }

    /// Whether newcomers hold more than is left for them.
    pub(crate) fn has_many_newcomers(&self) -> bool {
        let held = self.tenants.get(NEWCOMERS).expect("I-T4: newcomers are always a tenant").held_bytes;
        held > self.free_bytes(NEWCOMERS)
    }

    fn has_room(&self, account: &Account, shared_bytes: usize, more_bytes: usize) -> bool {
        let free = self.free_bytes(account.tenant);
        let of_host = account
            .host
            .map_or(0, |host| self.hosts.get(host).expect("I-T4: accounts keep their host").shared_bytes);
        // Who has nothing yet gets what there is: a command larger than a threshold must not wait for ever.
        let is_modest = of_host == 0
            || mutant!("nvmf: one queue takes all there is")
            || (of_host + more_bytes <= free / HOST_THRESHOLD
                && shared_bytes + more_bytes <= free / QUEUE_THRESHOLD);
        more_bytes <= free && is_modest
    }

    fn add(&mut self, account: &Account, bytes: usize) {
        let tenant = self.tenants.get_mut(account.tenant).expect("I-T4: accounts keep their tenant");
        let before = self.guarantee_bytes.saturating_sub(tenant.held_bytes);
        tenant.held_bytes += bytes;
        debug_assert!(self.kept_bytes >= before, "I-T4: what is kept is the sum of unused guarantees");
        self.kept_bytes -= before - self.guarantee_bytes.saturating_sub(tenant.held_bytes);
        self.held_bytes += bytes;
    }

    fn add_shared(&mut self, account: &Account, bytes: usize) {
        self.add(account, bytes);
        if let Some(host) = account.host {
            self.hosts.get_mut(host).expect("I-T4: accounts keep their host").shared_bytes += bytes;
        }
    }

    fn subtract(&mut self, account: &Account, bytes: usize) {
        if mutant!("nvmf: budget not given back") {
            return;
        }
        let tenant = self.tenants.get_mut(account.tenant).expect("I-T4: accounts keep their tenant");
        let before = self.guarantee_bytes.saturating_sub(tenant.held_bytes);
        assert!(tenant.held_bytes >= bytes, "I-T4: a tenant gives back what it held");
        tenant.held_bytes -= bytes;
        self.kept_bytes += self.guarantee_bytes.saturating_sub(tenant.held_bytes) - before;
        debug_assert!(self.held_bytes >= bytes, "I-T4: the budget is the sum of its accounts");
        self.held_bytes -= bytes;
        self.gave_back = true;
    }

    fn subtract_shared(&mut self, account: &Account, bytes: usize) {
        self.subtract(account, bytes);
        if let Some(host) = account.host {
            let host = self.hosts.get_mut(host).expect("I-T4: accounts keep their host");
            debug_assert!(host.shared_bytes >= bytes, "I-T4: a host gives back what it held");
            host.shared_bytes -= bytes;
        }
    }

    /// Opens the account of a connection: what it needs whatever it does, and the reserve it can always use. Nothing if its tenant
    /// would not have `spare_bytes` left, which is what the largest command needs.
    pub(crate) fn open(
        &mut self,
        tenant: u32,
        host: Option<u32>,
        own_bytes: usize,
        reserve_bytes: usize,
        spare_bytes: usize,
    ) -> Option<Account> {
        let room = self.free_bytes(tenant) >= own_bytes + reserve_bytes + spare_bytes;
        room.then(|| self.open_anyway(tenant, host, own_bytes, reserve_bytes))
    }

    /// The same for one that is there already.
    pub(crate) fn open_anyway(
        &mut self,
        tenant: u32,
        host: Option<u32>,
        own_bytes: usize,
        reserve_bytes: usize,
    ) -> Account {
        let account = Account { tenant, host, own_bytes, reserve_bytes, unread_bytes: 0, held_bytes: 0 };
        self.add(&account, own_bytes + reserve_bytes);
        self.own_bytes += own_bytes;
        self.tenants.get_mut(tenant).expect("I-T4: who has users is there").users += 1;
        if let Some(host) = host {
            self.join_host(host);
        }
        account
    }

    /// Closes an account with all it holds.
    pub(crate) fn close(&mut self, account: Account) {
        self.subtract_shared(&account, account.shared_bytes());
        self.subtract(&account, account.taken_bytes() - account.shared_bytes());
        assert!(self.own_bytes >= account.own_bytes, "I-T4: what is opened is closed once");
        self.own_bytes -= account.own_bytes;
        if let Some(host) = account.host {
            self.leave_host(host);
        }
        self.leave_tenant(account.tenant);
    }

    /// Takes `bytes` if there is room for them.
    #[inline]
    pub(crate) fn charge(&mut self, account: &mut Account, bytes: usize) -> bool {
        if account.held_bytes + bytes > account.reserve_bytes && !self.charge_shared(account, bytes) {
            return false;
        }
        account.held_bytes += bytes;
        true
    }

    fn charge_shared(&mut self, account: &Account, bytes: usize) -> bool {
        let shared = account.shared_bytes();
        let more = account.held_bytes + bytes - account.reserve_bytes - shared;
        if !self.has_room(account, shared, more) {
            return false;
        }
        self.add_shared(account, more);
        true
    }

    /// Takes `bytes` that are there already.
    pub(crate) fn force(&mut self, account: &mut Account, bytes: usize) {
        let shared = account.shared_bytes();
        account.held_bytes += bytes;
        let more = account.shared_bytes() - shared;
        if more > 0 {
            self.add_shared(account, more);
        }
    }

    /// Takes what unread bytes hold now; they are there already.
    pub(crate) fn hold_unread(&mut self, account: &mut Account, bytes: usize) {
        let before = std::mem::replace(&mut account.unread_bytes, bytes);
        match bytes.cmp(&before) {
            Ordering::Greater => self.add(account, bytes - before),
            Ordering::Less => self.subtract(account, before - bytes),
            Ordering::Equal => {}
        }
    }

    /// Gives `bytes` back.
    #[inline]
    pub(crate) fn release(&mut self, account: &mut Account, bytes: usize) {
        let shared = account.shared_bytes();
        assert!(account.held_bytes >= bytes, "I-T4: an account gives back what it held");
        account.held_bytes -= bytes;
        let less = shared - account.shared_bytes();
        if less > 0 {
            self.subtract_shared(account, less);
        }
    }

    /// Checks that tenants and hosts have the users that they count, and hold what their accounts do: one that counts more stays for
    /// ever. `tenants` and `hosts` are named once for each user that is no account. For checkers.
    ///
    /// # Panics
    /// If not.
    pub(crate) fn check_users<'a>(
        &self,
        accounts: impl Iterator<Item = &'a Account>,
        tenants: impl Iterator<Item = u32>,
        hosts: impl Iterator<Item = u32>,
    ) {
        // Users, and bytes held: of a host those beyond reserves.
        let mut of_tenants: BTreeMap<u32, (usize, usize)> = BTreeMap::new();
        let mut of_hosts: BTreeMap<u32, (usize, usize)> = BTreeMap::new();
        tenants.for_each(|tenant| of_tenants.entry(tenant).or_default().0 += 1);
        hosts.for_each(|host| of_hosts.entry(host).or_default().0 += 1);
        for account in accounts {
            let tenant = of_tenants.entry(account.tenant).or_default();
            *tenant = (tenant.0 + 1, tenant.1 + account.taken_bytes());
            if let Some(host) = account.host {
                let host = of_hosts.entry(host).or_default();
                *host = (host.0 + 1, host.1 + account.shared_bytes());
            }
        }
        let tenants = self.tenants.iter().map(|(number, one)| (number, (one.users, one.held_bytes)));
        assert_eq!(
            tenants.collect::<BTreeMap<_, _>>(),
            of_tenants,
            "I-T4: users of tenants, and what they hold"
        );
        let hosts = self.hosts.iter().map(|(number, one)| (number, (one.users, one.shared_bytes)));
        assert_eq!(hosts.collect::<BTreeMap<_, _>>(), of_hosts, "I-T4: users of hosts, and what they hold");
    }

    /// Whether a connection that asks for something it cannot foresee may go on.
    #[inline]
    pub(crate) fn may_go_on(&self, account: &Account) -> bool {
        account.is_within_reserve() || self.has_room(account, account.shared_bytes(), STEP_BYTES)
    }
}

#[cfg(test)]
mod test {
    use super::*;

    const MIB: usize = 1 << 20;

    fn fill(budget: &mut Budget, account: &mut Account) -> usize {
        let mut bytes = 0;
        while budget.charge(account, 64 << 10) {
            bytes += 64 << 10;
        }
        bytes
    }

    /// Goal: whatever greedy tenants do, each other tenant gets its guarantee, the limit holds, and all is given back. Method: one
    /// tenant with forty greedy connections of ten hosts, then others.
    #[test]
    fn a_greedy_tenant_leaves_the_others_their_guarantee() {
        let mut budget = Budget::new(64 * MIB);
        let (greedy, modest) = (budget.add_tenant(), budget.add_tenant());
        let hosts: Vec<u32> = (0..10).map(|_| budget.add_host()).collect();
        let mut accounts = Vec::new();
        for number in 0..40 {
            let host = Some(hosts[number % 10]);
            let Some(mut account) = budget.open(greedy, host, 16 << 10, 64 << 10, 0) else { continue };
            fill(&mut budget, &mut account);
            accounts.push(account);
        }
        assert_eq!(accounts.len(), 40, "thresholds leave room for the next connection");
        for account in &mut accounts {
            fill(&mut budget, account);
        }
        assert!(budget.held_bytes() <= 64 * MIB);
        let mut own = budget.open(modest, None, 16 << 10, 64 << 10, 0).expect("its guarantee");
        assert!(budget.charge(&mut own, 10 * MIB), "{budget:?}");
        assert!(budget.held_bytes() <= 64 * MIB);
        for account in accounts.into_iter().chain([own]) {
            budget.close(account);
        }
        assert_eq!((budget.held_bytes(), budget.kept_bytes), (0, 3 * budget.guarantee_bytes));
        hosts.into_iter().for_each(|host| budget.leave_host(host));
        budget.leave_tenant(greedy);
        assert_eq!(budget.kept_bytes, 2 * budget.guarantee_bytes);
    }

    /// Goal: a command within the reserve never waits, and what is given back in parts adds up. Method: a full budget, and one queue
    /// that was there before.
    #[test]
    fn the_reserve_of_a_queue_is_always_there() {
        let mut budget = Budget::new(8 * MIB);
        let tenant = budget.add_tenant();
        let mut first = budget.open(tenant, None, 0, 64 << 10, 0).unwrap();
        let mut other = budget.open(tenant, None, 0, 64 << 10, 0).unwrap();
        budget.force(&mut other, 8 * MIB);
        assert!(!budget.charge(&mut first, 96 << 10));
        assert!(budget.charge(&mut first, 64 << 10) && !budget.charge(&mut first, 4096));
        budget.force(&mut first, 8192);
        assert!(!budget.may_go_on(&first));
        budget.release(&mut first, 4096);
        budget.release(&mut first, 68 << 10);
        assert!(budget.may_go_on(&first) && first.held_bytes() == 0);
        budget.close(first);
        budget.close(other);
        assert_eq!(budget.held_bytes(), 0);
    }
}
