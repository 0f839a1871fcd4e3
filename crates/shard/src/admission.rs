//! The one admission scheduler of a shard, at the entry of its namespaces (DESIGN: bounded rounds per connection and
//! tenant, weighted by cost). Commands wait here, per source, until their tenant may have them under way; tenants take
//! turns by deficit round robin, and so do the sources within a tenant, so that neither many connections nor large
//! commands buy a larger share of the shard's core.

use diecut_namespace::contract::{NamespaceCommand, NamespaceOperation, SourceId};
use std::collections::VecDeque;

/// A tenant for admission: the commands of one store share a place in the round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct TenantIndex(pub u16);

/// Limits of admission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdmissionConfig {
    /// Cost one tenant may use before the next one gets its turn; one for the command and one or two for each block.
    pub tenant_quantum: u32,
    /// Cost one source may use before another source of its tenant gets its turn.
    pub source_quantum: u32,
    /// Commands of one tenant that may be under way below admission.
    pub window_commands: u32,
    /// Cost admitted in one round of the shard before new events are looked at.
    pub round_cost: u32,
}

impl Default for AdmissionConfig {
    fn default() -> AdmissionConfig {
        AdmissionConfig { tenant_quantum: 64, source_quantum: 16, window_commands: 1024, round_cost: 512 }
    }
}

/// What a command costs the shard's core: one for the command and one for each logical block that is copied (two per
/// block for a write, which is staged and cleaned).
pub(crate) fn cost_of(operation: &NamespaceOperation) -> u32 {
    match operation {
        NamespaceOperation::Read { range, .. }
        | NamespaceOperation::Compare { range, .. }
        | NamespaceOperation::Verify { range } => 1 + range.lba_count,
        NamespaceOperation::Write { range, .. } => 1 + 2 * range.lba_count,
        NamespaceOperation::Flush => 1,
        // Cost lies in the map: one entry per block, but no byte is touched.
        NamespaceOperation::WriteZeroes { range, .. } => 1 + range.lba_count / 16,
        NamespaceOperation::Deallocate { ranges } => {
            1 + ranges.iter().map(|range| range.lba_count / 16).fold(0u32, u32::saturating_add)
        }
    }
}

/// Set in the [`SourceId`] of commands that do not come from the target (see [`crate::Shard::submit`]).
pub const DOOR_SOURCE_BIT: u32 = 1 << 31;

/// Place of a source in a dense table: connections of the target and other doors count from 0 each.
fn slot_of(source: SourceId) -> u32 {
    let door = source.0 & DOOR_SOURCE_BIT;
    (source.0 & !DOOR_SOURCE_BIT) * 2 + u32::from(door != 0)
}

#[derive(Default)]
struct Source {
    commands: VecDeque<NamespaceCommand>,
    deficit: i64,
}

#[derive(Default)]
struct Tenant {
    /// Indexed by [`slot_of`]; ids are small and used again.
    sources: Vec<Source>,
    /// Sources that have commands, in the order of their turns.
    turns: VecDeque<u32>,
    deficit: i64,
    under_way: u32,
    waiting: u32,
    in_round: bool,
    /// Nothing is admitted: what lies below has no room.
    held: bool,
}

/// See the module.
pub(crate) struct Admission {
    config: AdmissionConfig,
    tenants: Vec<Tenant>,
    /// Tenants that have commands and room for them, in the order of their turns.
    turns: VecDeque<u16>,
    waiting: u32,
}

impl Admission {
    pub fn new(config: AdmissionConfig) -> Admission {
        assert!(
            config.tenant_quantum > 0 && config.source_quantum > 0 && config.window_commands > 0,
            "a limit of 0 would admit nothing"
        );
        Admission { config, tenants: Vec::new(), turns: VecDeque::new(), waiting: 0 }
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
        if queue.commands.is_empty() {
            queue.deficit = 0;
            own.turns.push_back(source);
        }
        queue.commands.push_back(command);
        own.waiting += 1;
        self.waiting += 1;
        self.enter_round(tenant);
    }

    fn enter_round(&mut self, tenant: TenantIndex) {
        let own = &mut self.tenants[usize::from(tenant.0)];
        if !own.in_round && !own.held && own.waiting > 0 && own.under_way < self.config.window_commands {
            own.in_round = true;
            own.deficit = own.deficit.min(0);
            self.turns.push_back(tenant.0);
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
            self.turns.retain(|other| *other != tenant.0);
        }
        self.enter_round(tenant);
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

    /// Whether [`Admission::admit`] would give something.
    pub fn has_work(&self) -> bool {
        !self.turns.is_empty()
    }

    /// Commands waiting, over all tenants.
    #[cfg(test)]
    fn waiting(&self) -> u32 {
        self.waiting
    }

    /// Admits commands worth about `round_cost`, in turn, and appends them to `admitted`.
    pub fn admit(&mut self, round_cost: u32, admitted: &mut Vec<NamespaceCommand>) {
        let mut budget = i64::from(round_cost);
        while budget > 0 {
            let Some(tenant) = self.turns.pop_front() else { return };
            let own = &mut self.tenants[usize::from(tenant)];
            own.deficit += i64::from(self.config.tenant_quantum);
            while own.deficit > 0 && own.waiting > 0 && own.under_way < self.config.window_commands {
                let source = *own.turns.front().expect("a waiting command has a source in turn");
                let queue = &mut own.sources[source as usize];
                if queue.deficit <= 0 {
                    queue.deficit += i64::from(self.config.source_quantum);
                    own.turns.rotate_left(1);
                    continue;
                }
                let command = queue.commands.pop_front().expect("sources in turn have commands");
                let cost = i64::from(cost_of(&command.operation));
                queue.deficit -= cost;
                own.deficit -= cost;
                budget -= cost;
                own.waiting -= 1;
                own.under_way += 1;
                self.waiting -= 1;
                if queue.commands.is_empty() {
                    own.turns.pop_front();
                }
                admitted.push(command);
            }
            if own.waiting > 0 && own.under_way < self.config.window_commands {
                self.turns.push_back(tenant);
            } else {
                own.in_round = false;
            }
        }
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use diecut_namespace::contract::{CommandToken, LbaRange, NamespaceId};
    use diecut_units::{Buffer, Time};

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
        AdmissionConfig { tenant_quantum: 32, source_quantum: 8, window_commands, round_cost: ROUND }
    }

    /// Cost admitted for each tenant over `rounds`, every command answered at once.
    fn shares(admission: &mut Admission, rounds: usize, tenant_of: impl Fn(u64) -> u16) -> Vec<(u64, u32)> {
        let mut shares = Vec::new();
        let mut admitted = Vec::new();
        for _ in 0..rounds {
            admission.admit(ROUND, &mut admitted);
            for command in admitted.drain(..) {
                admission.finished(TenantIndex(tenant_of(command.token.0)));
                shares.push((command.token.0, cost_of(&command.operation)));
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
        admission.admit(ROUND, &mut admitted);
        assert_eq!(admitted.len(), 4);
        assert!(!admission.has_work(), "the window is full");
        admission.finished(TenantIndex(3));
        assert!(admission.has_work());
        admission.admit(ROUND, &mut admitted);
        let tokens: Vec<u64> = admitted.iter().map(|command| command.token.0).collect();
        assert_eq!(tokens, [0, 1, 2, 3, 4]);
        assert_eq!(admission.waiting(), 5);
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
}
