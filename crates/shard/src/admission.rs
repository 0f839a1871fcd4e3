//! The one admission scheduler of a shard, at the entry of its namespaces (bounded rounds per connection and
//! tenant, weighted by cost). Commands wait here, per source, until their tenant may have them under way. Neither many
//! connections nor large commands buy a larger share of the shard's core: the sources within a tenant take turns by
//! deficit round robin, and of the tenants the one goes next that used least so far (start-time fair queueing, Goyal, Vin and
//! Cheng, SIGCOMM 1996). One that was idle starts where the one served last stood: it has saved nothing up, but whoever asks for less
//! than its share waits for one command or piece of its neighbours, not for a turn of each of them.
//!
//! A large command is admitted in pieces: while something of it is left, its source goes on with it, in its turns and
//! those of its tenant, and others go between. So a command of another tenant waits for one piece at most, however
//! large the commands are that came before it.

use diecut_namespace::contract::{CommandToken, NamespaceCommand, NamespaceOperation, SourceId};
use diecut_units::{Span, Time, mutant};
use diecut_volume::contract::{VolumeOperation, VolumeToken};
use std::cmp::Reverse;
use std::collections::VecDeque;
use std::collections::binary_heap::{BinaryHeap, PeekMut};

/// A tenant for admission: the commands of one store share a place in the round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct TenantIndex(pub u16);

/// Limits of admission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdmissionConfig {
    /// Cost one source may use before another source of its tenant gets its turn: one for a command and one or two for each
    /// block. A piece of a large command costs more, so that others' turns come after each.
    pub source_quantum: u32,
    /// Commands of one tenant that may be under way below admission.
    pub window_commands: u32,
    /// Cost admitted in one round of the shard before new events are looked at, while tenants are in each other's company: what
    /// a host sends meanwhile waits for all of it. The default is one piece of a large write, 16 reads or 10 writes: about 40 us
    /// with the costs of [`crate::CostModel`]. Sixteen times as much is half a millisecond beside large writes.
    pub round_cost: u32,
    /// The same for a tenant that is alone. Each round goes through receiving and sending, which is less work for many commands
    /// at once (`diecut-bench all --only b`), and nobody waits for them. A tenant that comes waits for such a round once.
    pub lone_round_cost: u32,
    /// How long tenants are in company after something of another one was admitted last.
    pub company: Span,
}

impl Default for AdmissionConfig {
    fn default() -> AdmissionConfig {
        AdmissionConfig {
            source_quantum: 16,
            window_commands: 1024,
            round_cost: 32,
            lone_round_cost: 128,
            company: Span::from_millis(10),
        }
    }
}

/// What each command costs the shard's core, besides its pieces.
pub(crate) const COMMAND_COST: u32 = 1;

/// What a piece of a command costs the shard's core: one for each logical block that is copied (two per block for a
/// write, which is staged and cleaned).
///
/// Of a deallocation or of zeroes `looked_at_ius` entries of the map have to be looked at.
pub(crate) fn cost_of(operation: &VolumeOperation, looked_at_ius: u64) -> u32 {
    match operation {
        VolumeOperation::Read { iu_count, .. } | VolumeOperation::Verify { iu_count, .. } => *iu_count,
        VolumeOperation::Write { .. } if mutant!("shard: writes cost the same whatever their size") => 2,
        VolumeOperation::Write { payload, .. } => 2 * payload.iu_count(),
        VolumeOperation::Flush => 0,
        // Cost lies in the map: no byte is touched.
        VolumeOperation::Deallocate { .. } | VolumeOperation::WriteZeroes { .. } => {
            u32::try_from(looked_at_ius / 16).unwrap_or(u32::MAX)
        }
    }
}

/// Set in the [`SourceId`] of commands that do not come from the target (see [`crate::Shard::submit`]).
pub const DOOR_SOURCE_BIT: u32 = diecut_units::token::source::DOOR;

/// Place of a source in a dense table: connections of the target and other doors count from 0 each.
fn slot_of(source: SourceId) -> u32 {
    let door = source.0 & DOOR_SOURCE_BIT;
    (source.0 & !DOOR_SOURCE_BIT) * 2 + u32::from(door != 0)
}

/// What may go on now.
#[derive(Debug)]
pub(crate) enum Work {
    /// A command, from the start.
    Command(NamespaceCommand),
    /// The next piece of a command that is under way.
    Rest(VolumeToken),
}

#[derive(Default)]
struct Source {
    commands: VecDeque<NamespaceCommand>,
    /// What is left of the command that it was admitted last.
    rest: Option<VolumeToken>,
    deficit: i64,
}

#[derive(Default)]
struct Tenant {
    /// Indexed by [`slot_of`]; ids are small and used again.
    sources: Vec<Source>,
    /// Sources that have commands or the rest of one, in the order of their turns.
    turns: VecDeque<u32>,
    /// What it used of the core: where it stands among the others.
    used: u64,
    under_way: u32,
    /// Commands that wait.
    waiting: u32,
    /// Sources with the rest of a command.
    rests: u32,
    in_round: bool,
    /// Nothing is admitted: what lies below has no room.
    held: bool,
}

impl Tenant {
    fn may_go(&self, window_commands: u32) -> bool {
        !self.held && (self.rests > 0 || (self.waiting > 0 && self.under_way < window_commands))
    }
}

/// See the module.
pub(crate) struct Admission {
    config: AdmissionConfig,
    tenants: Vec<Tenant>,
    /// Tenants that may go on, least used first; of equals those first that only just came.
    turns: BinaryHeap<Reverse<(u64, bool, u16)>>,
    /// Where the tenant served last stood.
    virtual_time: u64,
    /// The tenant served last.
    served: TenantIndex,
    /// Until when it is in the company of another one, though that has nothing to do.
    company_until: Time,
}

impl Admission {
    pub fn new(config: AdmissionConfig) -> Admission {
        assert!(config.source_quantum > 0 && config.window_commands > 0, "a limit of 0 would admit nothing");
        Admission {
            config,
            tenants: Vec::new(),
            turns: BinaryHeap::new(),
            virtual_time: 0,
            served: TenantIndex::default(),
            company_until: Time::ZERO,
        }
    }

    /// Queues a command of a tenant behind the others of its source.
    pub fn push(&mut self, tenant: TenantIndex, command: NamespaceCommand) {
        let index = usize::from(tenant.0);
        if index >= self.tenants.len() {
            self.tenants.resize_with(index + 1, Tenant::default);
        }
        let own = &mut self.tenants[index];
        let source = slot_of(command.source);
        if source as usize >= own.sources.len() {
            own.sources.resize_with(source as usize + 1, Source::default);
        }
        let queue = &mut own.sources[source as usize];
        if queue.commands.is_empty() && queue.rest.is_none() {
            queue.deficit = 0;
            own.turns.push_back(source);
        }
        queue.commands.push_back(command);
        own.waiting += 1;
        self.enter_round(tenant);
    }

    fn enter_round(&mut self, tenant: TenantIndex) {
        let own = &mut self.tenants[usize::from(tenant.0)];
        if !own.in_round && own.may_go(self.config.window_commands) {
            own.in_round = true;
            own.used = own.used.max(self.virtual_time);
            self.turns.push(Reverse((own.used, false, tenant.0)));
        }
    }

    /// Holds a tenant's commands back, or lets them go on: the queues of its dies are full, or have room again.
    pub fn hold(&mut self, tenant: TenantIndex, held: bool) {
        let index = usize::from(tenant.0);
        if index >= self.tenants.len() {
            self.tenants.resize_with(index + 1, Tenant::default);
        }
        let own = &mut self.tenants[index];
        if own.held == held {
            return;
        }
        own.held = held;
        if held && own.in_round {
            own.in_round = false;
            self.turns.retain(|Reverse((.., other))| *other != tenant.0);
        }
        self.enter_round(tenant);
    }

    /// Takes back commands of a source that wait, all or the one of a token; flushes stay, since others may count on them.
    pub fn take_back(
        &mut self,
        source: SourceId,
        token: Option<CommandToken>,
        taken: &mut Vec<NamespaceCommand>,
    ) {
        let slot = slot_of(source);
        for (number, own) in self.tenants.iter_mut().enumerate() {
            let Some(queue) = own.sources.get_mut(slot as usize) else { continue };
            let is_meant = |command: &mut NamespaceCommand| {
                token.is_none_or(|one| command.token == one)
                    && !matches!(command.operation, NamespaceOperation::Flush)
            };
            let before = taken.len();
            let mut at = 0;
            while at < queue.commands.len() {
                if is_meant(&mut queue.commands[at]) {
                    taken.extend(queue.commands.remove(at));
                } else {
                    at += 1;
                }
            }
            if taken.len() == before {
                continue;
            }
            own.waiting -= (taken.len() - before) as u32;
            if queue.commands.is_empty() && queue.rest.is_none() {
                own.turns.retain(|other| *other != slot);
            }
            if own.in_round && !own.may_go(self.config.window_commands) {
                own.in_round = false;
                self.turns.retain(|Reverse((.., other))| usize::from(*other) != number);
            }
        }
    }

    /// A command of the tenant was answered.
    ///
    /// # Panics
    /// If none was under way.
    pub fn finished(&mut self, tenant: TenantIndex) {
        let own = &mut self.tenants[usize::from(tenant.0)];
        assert!(own.under_way > 0, "an answer belongs to a command under way");
        own.under_way -= 1;
        self.enter_round(tenant);
    }

    /// What a round may cost that begins now.
    pub fn round_cost(&self, now: Time) -> u32 {
        let in_company = now < self.company_until || self.turns.len() > 1;
        if in_company { self.config.round_cost } else { self.config.lone_round_cost }
    }

    /// Whether [`Admission::next`] would give something.
    pub fn has_work(&self) -> bool {
        !self.turns.is_empty()
    }

    /// Whether [`Admission::next`] would give something of a source sooner or later, if nothing else happened.
    pub fn goes_on(&self, source: SourceId) -> bool {
        let slot = slot_of(source) as usize;
        let has = |own: &Tenant| {
            own.sources.get(slot).is_some_and(|queue| queue.rest.is_some() || !queue.commands.is_empty())
        };
        self.tenants.iter().any(|own| own.in_round && has(own))
    }

    /// What may go on next. [`Admission::settle`] must follow before anything else is asked.
    pub fn next(&mut self) -> Option<Work> {
        let Reverse((.., tenant)) = *self.turns.peek()?;
        let own = &mut self.tenants[usize::from(tenant)];
        let window_is_full = own.under_way >= self.config.window_commands;
        loop {
            let source = *own.turns.front().expect("a tenant in turn has a source in turn");
            let queue = &mut own.sources[source as usize];
            // With a full window only rests go on, and there is one, or the tenant would have no turn.
            if window_is_full && queue.rest.is_none() {
                own.turns.rotate_left(1);
                continue;
            }
            if queue.deficit <= 0 {
                queue.deficit += i64::from(self.config.source_quantum);
                own.turns.rotate_left(1);
                continue;
            }
            if let Some(rest) = queue.rest.take() {
                own.rests -= 1;
                return Some(Work::Rest(rest));
            }
            own.waiting -= 1;
            own.under_way += 1;
            return queue.commands.pop_front().map(Work::Command);
        }
    }

    /// Says what the work that [`Admission::next`] gave `now` has cost, and what is left of its command.
    ///
    /// # Panics
    /// If it gave nothing.
    pub fn settle(&mut self, cost: u32, rest: Option<VolumeToken>, now: Time) {
        let mut turn = self.turns.peek_mut().expect("work was given");
        let Reverse((start, _, tenant)) = *turn;
        let own = &mut self.tenants[usize::from(tenant)];
        let source = *own.turns.front().expect("work was given");
        let queue = &mut own.sources[source as usize];
        self.virtual_time = start;
        if self.served.0 != tenant {
            (self.served, self.company_until) = (TenantIndex(tenant), now + self.config.company);
        }
        if !mutant!("shard: turns cost nothing") {
            queue.deficit -= i64::from(cost);
            own.used = start + u64::from(cost);
        }
        queue.rest = rest;
        own.rests += u32::from(rest.is_some());
        if queue.commands.is_empty() && rest.is_none() {
            own.turns.pop_front();
        }
        if own.may_go(self.config.window_commands) {
            *turn = Reverse((own.used, true, tenant));
        } else {
            own.in_round = false;
            PeekMut::pop(turn);
        }
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use diecut_namespace::contract::{CommandToken, LbaRange, NamespaceId, NamespaceOperation};
    use diecut_units::{Buffer, Time};
    use std::collections::BTreeMap;

    fn write(source: u32, token: u64, lba_count: u32) -> NamespaceCommand {
        NamespaceCommand {
            token: CommandToken(token),
            namespace: NamespaceId(0),
            source: SourceId(source),
            arrived: Time::ZERO,
            operation: NamespaceOperation::Write {
                range: LbaRange { first_lba: 0, lba_count },
                data: Buffer::copy_from(&[0; 8]),
                force_unit_access: false,
            },
        }
    }

    const ROUND: u32 = 64;

    fn config(window_commands: u32) -> AdmissionConfig {
        AdmissionConfig {
            source_quantum: 8,
            window_commands,
            round_cost: ROUND,
            ..AdmissionConfig::default()
        }
    }

    fn cost(command: &NamespaceCommand) -> u32 {
        match &command.operation {
            NamespaceOperation::Write { range, .. } => COMMAND_COST + 2 * range.lba_count,
            _ => panic!("tests write"),
        }
    }

    /// Admits commands, each as a whole, worth about a round.
    fn admit(admission: &mut Admission, admitted: &mut Vec<NamespaceCommand>) {
        let mut budget = i64::from(ROUND);
        while budget > 0 {
            let Some(work) = admission.next() else { return };
            let Work::Command(command) = work else { panic!("nothing was left over") };
            budget -= i64::from(cost(&command));
            admission.settle(cost(&command), None, Time::ZERO);
            admitted.push(command);
        }
    }

    /// Cost admitted for each command over `rounds`, every command answered at once.
    fn shares(admission: &mut Admission, rounds: usize, tenant_of: impl Fn(u64) -> u16) -> Vec<(u64, u32)> {
        let mut shares = Vec::new();
        let mut admitted = Vec::new();
        for _ in 0..rounds {
            admit(admission, &mut admitted);
            for command in admitted.drain(..) {
                admission.finished(TenantIndex(tenant_of(command.token.0)));
                shares.push((command.token.0, cost(&command)));
            }
        }
        shares
    }

    /// Large commands and many connections buy no more than small ones and a single one.
    #[test]
    fn tenants_get_equal_cost() {
        let mut admission = Admission::new(config(1000));
        for number in 0..4000 {
            // Tenant 0: many sources, 64-block writes. Tenant 1: one source, single blocks.
            admission.push(TenantIndex(0), write(number as u32 % 40, number * 2, 64));
            admission.push(TenantIndex(1), write(99, number * 2 + 1, 1));
        }
        let mut totals = [0u64; 2];
        for (token, cost) in shares(&mut admission, 150, |token| (token % 2) as u16) {
            totals[token as usize % 2] += u64::from(cost);
        }
        let ratio = totals[0] as f64 / totals[1] as f64;
        assert!((0.9..1.12).contains(&ratio), "{totals:?}");
    }

    /// Within a tenant, one flooding connection does not push the others back.
    #[test]
    fn sources_of_a_tenant_take_turns() {
        let mut admission = Admission::new(config(1000));
        for number in 0..1000 {
            admission.push(TenantIndex(0), write(1, number, 1));
        }
        admission.push(TenantIndex(0), write(2, 5000, 1));
        let order = shares(&mut admission, 2, |_| 0);
        let place = order.iter().position(|(token, _)| *token == 5000).expect("it is admitted");
        assert!(place < 8, "behind at most one quantum of the other, not {place}");
    }

    /// A source's commands keep their order, and nothing is admitted beyond the window.
    #[test]
    fn the_window_holds_and_order_stays() {
        let mut admission = Admission::new(config(4));
        for number in 0..10 {
            admission.push(TenantIndex(3), write(0, number, 1));
        }
        let mut admitted = Vec::new();
        admit(&mut admission, &mut admitted);
        assert_eq!(admitted.len(), 4);
        assert!(!admission.has_work(), "the window is full");
        admission.finished(TenantIndex(3));
        assert!(admission.has_work());
        admit(&mut admission, &mut admitted);
        let tokens: Vec<u64> = admitted.iter().map(|command| command.token.0).collect();
        assert_eq!(tokens, [0, 1, 2, 3, 4]);
        assert_eq!(admission.tenants[3].waiting, 5);
    }

    /// One command larger than every quantum goes through, and is paid for afterwards.
    #[test]
    fn a_command_beyond_the_quantum_is_admitted() {
        let mut admission = Admission::new(config(100));
        admission.push(TenantIndex(0), write(0, 0, 256));
        for number in 1..40 {
            admission.push(TenantIndex(0), write(0, number * 2, 256));
            admission.push(TenantIndex(1), write(1, number * 2 + 1, 8));
        }
        let order = shares(&mut admission, 40, |token| (token % 2) as u16);
        let large = order.iter().take(40).filter(|(token, _)| token % 2 == 0).count();
        assert!((1..=4).contains(&large), "{large} of the first 40");
    }

    /// Serves `count` pieces of 33 for commands of tenant 0, each of which has `pieces`; commands of others are small.
    /// Gives the owner of each piece.
    fn serve(
        admission: &mut Admission,
        left: &mut BTreeMap<u64, u32>,
        count: usize,
        pieces: u32,
    ) -> Vec<(u16, u64)> {
        let mut order = Vec::new();
        for _ in 0..count {
            let Some(work) = admission.next() else { break };
            let (token, cost) = match work {
                Work::Command(command) if command.source == SourceId(9) => {
                    admission.settle(3, None, Time::ZERO);
                    admission.finished(TenantIndex(1));
                    order.push((1, command.token.0));
                    continue;
                }
                Work::Command(command) => {
                    left.insert(command.token.0, pieces);
                    (command.token.0, 33)
                }
                Work::Rest(VolumeToken(token)) => (token, 32),
            };
            order.push((0, token));
            let left = left.get_mut(&token).unwrap();
            *left -= 1;
            admission.settle(cost, (*left > 0).then_some(VolumeToken(token)), Time::ZERO);
            if *left == 0 {
                admission.finished(TenantIndex(0));
            }
        }
        order
    }

    /// A small command of another tenant waits for one piece, not for the commands before it.
    #[test]
    fn a_small_command_is_behind_one_piece_of_a_neighbours_large_ones() {
        for arrival in [0, 1, 2, 7, 16, 23] {
            let mut admission = Admission::new(AdmissionConfig::default());
            for token in 0..8 {
                admission.push(TenantIndex(0), write(1, token, 256));
            }
            let mut left = BTreeMap::new();
            serve(&mut admission, &mut left, arrival, 16);
            admission.push(TenantIndex(1), write(9, 100, 1));
            let order = serve(&mut admission, &mut left, 3, 16);
            let place = order.iter().position(|(tenant, _)| *tenant == 1).expect("it is served soon");
            assert!(place <= 1, "behind {place} pieces, arrived after {arrival}");
        }
    }

    /// However many neighbours flood the core, a tenant that asks for less than its share waits for the command that is at work,
    /// not for a turn of each of them, and comes no later for having been served before.
    #[test]
    fn who_asks_for_little_waits_for_one_command() {
        let mut admission = Admission::new(config(1000));
        let mut token = 0;
        for round in 0..200 {
            for tenant in 0..5 {
                while admission.tenants.get(tenant).is_none_or(|own| own.waiting < 32) {
                    token += 1;
                    admission.push(TenantIndex(tenant as u16), write(tenant as u32, token, 1));
                }
            }
            let serve = |admission: &mut Admission| {
                let Some(Work::Command(command)) = admission.next() else { panic!("there are commands") };
                admission.settle(cost(&command), None, Time::ZERO);
                admission.finished(TenantIndex(command.source.0 as u16));
                command.source.0
            };
            // Fewer than a sixth of all.
            for _ in 0..7 + round % 5 {
                serve(&mut admission);
            }
            admission.push(TenantIndex(9), write(9, 1 << 40, 1));
            assert_eq!(serve(&mut admission), 9, "round {round}");
        }
    }

    /// A large command goes on to its end before the next one of its source starts, also when the window is full, and
    /// sources of the same tenant go between.
    #[test]
    fn what_was_begun_goes_on() {
        let mut admission = Admission::new(config(2));
        admission.push(TenantIndex(0), write(1, 10, 256));
        admission.push(TenantIndex(0), write(1, 11, 256));
        admission.push(TenantIndex(0), write(2, 20, 256));
        admission.push(TenantIndex(0), write(3, 30, 256));
        let order: Vec<u64> =
            serve(&mut admission, &mut BTreeMap::new(), 100, 4).into_iter().map(|(_, token)| token).collect();
        assert_eq!(order.len(), 16, "all pieces of all commands");
        let first = |token| order.iter().position(|other| *other == token).unwrap();
        let last = |token| order.iter().rposition(|other| *other == token).unwrap();
        assert!(last(10) < first(11), "{order:?}");
        assert!(first(20) < last(10), "another source goes between: {order:?}");
        assert!(first(30) > last(10).min(last(20)), "the window holds two commands: {order:?}");
        assert!(!admission.has_work());
    }

    /// Goal: what nobody wants any more takes no turns. Method: commands of two sources wait, one has begun; those of the first are
    /// taken back, one by its token and then all. What was begun, and the other source, go on.
    #[test]
    fn what_is_taken_back_is_not_admitted() {
        let mut admission = Admission::new(config(100));
        for token in 0..5 {
            admission.push(TenantIndex(2), write(1, token, 8));
        }
        assert!(matches!(admission.next(), Some(Work::Command(_))));
        admission.settle(3, Some(VolumeToken(9)), Time::ZERO);
        admission.push(TenantIndex(2), write(3, 50, 1));
        let mut taken = Vec::new();
        let tokens = |taken: &[NamespaceCommand]| taken.iter().map(|one| one.token.0).collect::<Vec<_>>();
        admission.take_back(SourceId(1), Some(CommandToken(2)), &mut taken);
        assert_eq!(tokens(&taken), [2]);
        admission.take_back(SourceId(1), None, &mut taken);
        assert_eq!(tokens(&taken), [2, 1, 3, 4]);
        let mut order = Vec::new();
        while let Some(work) = admission.next() {
            order.push(match work {
                Work::Command(command) => command.token.0,
                Work::Rest(token) => token.0 + 100,
            });
            admission.settle(3, None, Time::ZERO);
        }
        order.sort_unstable();
        assert_eq!(order, [50, 109]);
        // A tenant with nothing left has no turn.
        admission.push(TenantIndex(4), write(1, 70, 1));
        admission.take_back(SourceId(1), None, &mut taken);
        assert!(!admission.has_work());
        admission.push(TenantIndex(4), write(1, 71, 1));
        assert!(
            matches!(admission.next(), Some(Work::Command(command)) if command.token == CommandToken(71))
        );
    }

    /// A round is long for a tenant that is alone, and short from the moment that another one has something to do until a
    /// while after.
    #[test]
    fn rounds_are_short_in_company_only() {
        let mut admission = Admission::new(AdmissionConfig::default());
        let (config, mut now) = (AdmissionConfig::default(), Time(1 << 40));
        let serve = |admission: &mut Admission, now: Time| {
            assert!(admission.next().is_some());
            admission.settle(3, None, now);
        };
        for token in 0..100 {
            admission.push(TenantIndex(0), write(1, token, 1));
        }
        serve(&mut admission, now);
        assert_eq!(admission.round_cost(now), config.lone_round_cost);
        admission.push(TenantIndex(7), write(2, 100, 1));
        assert_eq!(admission.round_cost(now), config.round_cost, "another one waits");
        serve(&mut admission, now);
        for _ in 0..10 {
            serve(&mut admission, now);
            assert_eq!(admission.round_cost(now), config.round_cost, "it may come again");
            now += Span(config.company.0 / 11);
        }
        now += config.company;
        serve(&mut admission, now);
        assert_eq!(admission.round_cost(now), config.lone_round_cost, "it has not come for a while");
    }
}
