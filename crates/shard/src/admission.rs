//! The one admission scheduler of a shard, at the entry of its namespaces (bounded rounds, weighted by cost). Commands wait here,
//! per connection, until their volume may have them under way. Of the tenants the one goes next that used least of the core so far,
//! by its weight; of its volumes so does one; the connections to a volume take turns by deficit round robin. So neither many vSSDs,
//! volumes or connections nor large commands buy a larger share of the shard's core, and whoever asks for less than its share waits
//! for one command or piece of its neighbours, not for a turn of each of them ([`turns`]).
//!
//! A vSSD is no place in that order but a cap beside it: while the queues of its dies are full its volumes have no turn. So that this
//! takes one step, however many they are, a vSSD stands between its tenant and its volumes with the weight of those that wait.
//!
//! A large command is admitted in pieces: while something of it is left, its connection goes on with it, in its turns and
//! those of its tenant, and others go between. So a command of another tenant waits for one piece at most, however
//! large the commands are that came before it.
//!
//! An application at erase blocks takes turns like a volume: its entries wait with it ([`crate::blocks`]), and it says how many of them
//! may begin ([`Admission::offer`]). It has its vSSD to itself.
//!
//! Commands of a namespace that was closed while they waited stay with their tenant until they are answered. A namespace that never
//! was open has no tenant: what names it is nobody's, and nobody has one share.

mod accounts;
mod config;
mod qos;
mod shaping;
mod turns;
mod work;

pub use config::AdmissionConfig;
pub use qos::{BucketSize, DeviceShaper, TokenUnit};
pub(crate) use qos::{SecondRate, SetDefinition, SetState};
pub(crate) use work::{Begun, COMMAND_COST, Work, cost_of, cost_of_chunks, cost_of_zones};

use crate::admission::accounts::{Gate, Leaf, NOBODY, Queue, Tenant, Turned, Volume, Vssd};
use crate::admission::qos::{OTHERS, Shaper};
use crate::admission::turns::{Turns, Used, Weight};
use diecut_namespace::contract::{CommandToken, NamespaceCommand, NamespaceId, NamespaceOperation, SourceId};
use diecut_spec::TenantSpec;
use diecut_units::{Slab, Time, mutant};
use diecut_vssd::VssdId;
use std::collections::{BTreeMap, VecDeque};

/// Set in the [`SourceId`] of commands that do not come from the target (see [`crate::Shard::submit`]).
pub const DOOR_SOURCE_BIT: u32 = diecut_units::token::source::DOOR;

/// Place of a source in a dense table: connections of the target, its sanitize operations and other doors count from 0 each, and two bits at
/// the top tell them apart.
fn slot_of(source: SourceId) -> usize {
    source.0.rotate_left(2) as usize
}

/// Queues of one source from which on those that are empty are forgotten before there is another one.
const QUEUES_KEPT: usize = 16;

/// See the module.
pub(crate) struct Admission {
    config: AdmissionConfig,
    tenants: Slab<Tenant>,
    vssds: Slab<Vssd>,
    volumes: Slab<Volume>,
    queues: Slab<Queue>,
    /// Tenants by name.
    names: BTreeMap<String, u32>,
    /// vSSDs by number.
    numbers: BTreeMap<u32, u32>,
    /// Volumes by namespace; [`NOBODY`] where none is open.
    namespaces: Vec<u32>,
    /// Queues with their volumes, by [`slot_of`] their source and sorted by volume. Ids of sources are small and used again.
    sources: Vec<Vec<(u32, u32)>>,
    /// Tenants that may go on.
    turns: Turns,
    /// The tenant served last.
    served: Option<u32>,
    /// Until when the core counts as contended, though nobody else has anything to do.
    contended_until: Time,
    /// QoS sets, and who waits for their tokens.
    shaper: Shaper,
    /// When it was last served.
    latest: Time,
}

impl Admission {
    pub fn new(config: AdmissionConfig) -> Admission {
        assert!(config.source_quantum > 0 && config.window_commands > 0, "a limit of 0 would admit nothing");
        let mut admission = Admission {
            config,
            tenants: Slab::default(),
            vssds: Slab::default(),
            volumes: Slab::default(),
            queues: Slab::default(),
            names: BTreeMap::new(),
            numbers: BTreeMap::new(),
            namespaces: Vec::new(),
            sources: Vec::new(),
            turns: Turns::default(),
            served: None,
            contended_until: Time::ZERO,
            shaper: Shaper::new(config.device_shaper),
            latest: Time::ZERO,
        };
        let nobody = (
            admission.tenants.insert(Tenant::default()),
            admission.vssds.insert(Vssd::default()),
            admission.volumes.insert(Volume::default()),
        );
        assert_eq!(nobody, (NOBODY, NOBODY, NOBODY), "I-S1: the first places are nobody's");
        admission
    }

    /// From now on commands of a namespace take turns of their tenant, unless its vSSD is held. `held` says whether it is, if
    /// admission does not know the vSSD yet.
    pub fn open(&mut self, namespace: NamespaceId, tenant: &TenantSpec, vssd: VssdId, held: bool) {
        let index = namespace.0 as usize;
        if index >= self.namespaces.len() {
            self.namespaces.resize(index + 1, NOBODY);
        }
        let before = self.namespaces[index];
        if before != NOBODY {
            assert!(self.volumes[before].is_closed, "I-S1: a namespace is opened once: {namespace:?}");
            self.volumes[before].is_closed = false;
            self.join(before, None);
            return;
        }
        let vssd = match self.numbers.get(&vssd.0) {
            Some(&known) => known,
            None => self.add_vssd(tenant, vssd, held),
        };
        self.vssds[vssd].volumes += 1;
        let leaf = Leaf::Namespace(namespace);
        let volume = self.volumes.insert(Volume { leaf, vssd, ..Volume::default() });
        self.namespaces[index] = volume;
        self.join(volume, None);
    }

    /// From now on entries of the application at a vSSD take turns of its tenant, unless the vSSD is `held`.
    pub fn open_blocks(&mut self, tenant: &TenantSpec, id: VssdId, held: bool) {
        assert!(!self.numbers.contains_key(&id.0), "I-S1: erase blocks are opened once, and alone: {id:?}");
        let vssd = if mutant!("shard: an application is a tenant of its own") {
            self.add_vssd(&TenantSpec::new(&format!("{} at {id:?}", tenant.name)), id, held)
        } else {
            self.add_vssd(tenant, id, held)
        };
        let blocks = self.volumes.insert(Volume { leaf: Leaf::Blocks(id), vssd, ..Volume::default() });
        (self.vssds[vssd].volumes, self.vssds[vssd].blocks) = (1, blocks);
        self.join(blocks, None);
    }

    /// The erase blocks of a vSSD are given back, or move away: nothing of its application begins any more.
    pub fn close_blocks(&mut self, vssd: VssdId) {
        self.offer(vssd, 0);
        if let Some(volume) = self.blocks_of(vssd) {
            self.volumes[volume].is_closed = true;
            self.set_free(volume);
            self.forget_closed(volume);
        }
    }

    fn blocks_of(&self, vssd: VssdId) -> Option<u32> {
        let vssd = *self.numbers.get(&vssd.0)?;
        Some(self.vssds[vssd].blocks).filter(|blocks| *blocks != NOBODY)
    }

    /// So many entries of the application at a vSSD wait and may begin.
    pub fn offer(&mut self, vssd: VssdId, entries: u32) {
        if let Some(volume) = self.blocks_of(vssd) {
            self.volumes[volume].waiting = entries;
            self.stop_waiting_for_nothing(volume);
            self.enter_round(volume);
            self.leave_round(volume);
        }
    }

    fn add_vssd(&mut self, tenant: &TenantSpec, id: VssdId, held: bool) -> u32 {
        let name = if mutant!("shard: a share of the core for each vSSD") {
            format!("{}/{}", tenant.name, id.0)
        } else {
            tenant.name.clone()
        };
        let weight = Weight::new(tenant.weight);
        let tenant = match self.names.get(&name) {
            Some(&known) => known,
            None => {
                let tenant = self.tenants.insert(Tenant { name: name.clone(), weight, ..Tenant::default() });
                self.names.insert(name, tenant);
                tenant
            }
        };
        self.tenants[tenant].vssds += 1;
        let vssd = self.vssds.insert(Vssd { id: Some(id), tenant, held, ..Vssd::default() });
        self.numbers.insert(id.0, vssd);
        vssd
    }

    /// A namespace is closed, or moved away. What waits of it is still admitted, on its tenant's account.
    pub fn close(&mut self, namespace: NamespaceId) {
        let volume = self.volume_of(namespace);
        if volume != NOBODY {
            self.volumes[volume].is_closed = true;
            self.set_free(volume);
            self.forget_closed(volume);
        }
    }

    fn volume_of(&self, namespace: NamespaceId) -> u32 {
        self.namespaces.get(namespace.0 as usize).copied().unwrap_or(NOBODY)
    }

    /// Forgets a volume that is closed and of which nothing is left, and its vSSD and tenant with the last one of theirs.
    fn forget_closed(&mut self, volume: u32) {
        let own = &self.volumes[volume];
        if !own.is_closed || own.under_way > 0 || own.waiting > 0 {
            return;
        }
        assert!(own.turns.is_empty() && !own.place.is_in(), "I-S2: who has nothing to do has no turn");
        assert!(own.rests == 0, "I-S3: no rest of a command is forgotten");
        assert!(!own.shaping.is_waiting, "I-S36: nobody waits for tokens who is forgotten");
        assert!(
            own.shaping.set == OTHERS && own.shaping.ticket.is_none(),
            "I-S36: who goes has left its set"
        );
        let (vssd, leaf) = (own.vssd, own.leaf);
        match leaf {
            Leaf::Nobody => unreachable!("I-S1: nobody's places stay"),
            Leaf::Namespace(namespace) => self.namespaces[namespace.0 as usize] = NOBODY,
            Leaf::Blocks(_) => self.vssds[vssd].blocks = NOBODY,
        }
        self.volumes.remove(volume);
        for of_source in &mut self.sources {
            for (_, queue) in of_source.extract_if(.., |(of, _)| *of == volume) {
                let own = self.queues.remove(queue);
                assert!(own.is_empty(), "I-S3: no command is forgotten");
            }
        }
        let own = &mut self.vssds[vssd];
        if !own.lose_volume() {
            return;
        }
        let (tenant, id) = (own.tenant, own.id.expect("I-S1: nobody's places stay"));
        self.numbers.remove(&id.0);
        self.vssds.remove(vssd);
        let own = &mut self.tenants[tenant];
        if own.lose_vssd() {
            self.names.remove(&own.name);
            self.tenants.remove(tenant);
        }
    }

    /// Sets what is due to a tenant beside others, if it has something here.
    pub fn set_weight(&mut self, tenant: &TenantSpec) {
        if let Some(&known) = self.names.get(&tenant.name) {
            self.tenants[known].weight = Weight::new(tenant.weight);
        }
    }

    /// What is due to a tenant beside others, if it has something here.
    pub fn weight_of(&self, tenant: &str) -> Option<u32> {
        self.names.get(tenant).map(|known| self.tenants[*known].weight.value)
    }

    /// Queues a command behind the others of its source to its volume.
    pub fn push(&mut self, command: NamespaceCommand) {
        let (namespace, source, mut command) = (command.namespace, command.source, Some(command));
        self.push_all(namespace, source, || command.take());
    }

    /// Queues commands of one source to one namespace, behind others of theirs: one look-up for as many as come together.
    #[inline]
    pub fn push_all(
        &mut self,
        namespace: NamespaceId,
        source: SourceId,
        mut next: impl FnMut() -> Option<NamespaceCommand>,
    ) {
        let volume = self.volume_of(namespace);
        let number = self.queue_of(slot_of(source), volume);
        let queue = &mut self.queues[number];
        let own = &mut self.volumes[volume];
        if queue.is_empty() {
            queue.deficit = 0;
            own.turns.push_back(number);
        }
        let before = queue.commands.len();
        while let Some(command) = next() {
            queue.commands.push_back(command);
        }
        own.waiting += (queue.commands.len() - before) as u32;
        if !own.place.is_in() {
            self.enter_round(volume);
        }
    }

    /// The queue of a source to a volume.
    #[inline]
    fn queue_of(&mut self, source: usize, volume: u32) -> u32 {
        // Most connections have one volume.
        match self.sources.get(source).map(Vec::as_slice) {
            Some([(of, queue), ..]) if *of == volume => *queue,
            Some(queues) => match queues.binary_search_by_key(&volume, |(volume, _)| *volume) {
                Ok(at) => queues[at].1,
                Err(_) => self.add_queue(source, volume),
            },
            None => self.add_queue(source, volume),
        }
    }

    #[cold]
    fn add_queue(&mut self, source: usize, volume: u32) -> u32 {
        if source >= self.sources.len() {
            self.sources.resize_with(source + 1, Vec::new);
        }
        let of_source = &mut self.sources[source];
        if of_source.len() >= QUEUES_KEPT {
            let queues = &self.queues;
            let empty: Vec<_> = of_source.extract_if(.., |(_, queue)| queues[*queue].is_empty()).collect();
            empty.into_iter().for_each(|(_, queue)| drop(self.queues.remove(queue)));
        }
        let (commands, rest, deficit) = (VecDeque::new(), None, 0);
        let queue = self.queues.insert(Queue { volume, commands, rest, deficit });
        let at = of_source.partition_point(|(before, _)| *before < volume);
        of_source.insert(at, (volume, queue));
        queue
    }

    /// Takes a volume into the round, if it may go on and is not there.
    fn enter_round(&mut self, volume: u32) {
        let own = &mut self.volumes[volume];
        if own.place.is_in() || !own.may_go(self.config.window_commands) {
            return;
        }
        let vssd = &mut self.vssds[own.vssd];
        vssd.turns.enter(volume, &mut own.place);
        vssd.weight += own.weight.value;
        let vssd = own.vssd;
        self.enter_vssd(vssd);
    }

    fn enter_vssd(&mut self, vssd: u32) {
        let own = &mut self.vssds[vssd];
        if !own.held && !own.turns.is_empty() {
            let tenant = &mut self.tenants[own.tenant];
            tenant.turns.enter(vssd, &mut own.place);
            self.turns.enter(own.tenant, &mut tenant.place);
        }
    }

    fn leave_vssd(&mut self, vssd: u32) {
        let own = &mut self.vssds[vssd];
        let tenant = &mut self.tenants[own.tenant];
        tenant.turns.leave(vssd, &mut own.place);
        if tenant.turns.is_empty() {
            self.turns.leave(own.tenant, &mut tenant.place);
        }
    }

    /// What is a vSSD's is another one's from now on, which has nothing.
    pub fn rename(&mut self, old: VssdId, new: VssdId) {
        let Some(vssd) = self.numbers.remove(&old.0) else { return };
        self.vssds[vssd].id = Some(new);
        let before = self.numbers.insert(new.0, vssd);
        assert!(before.is_none(), "I-S1: a vSSD that takes another one's place has no volumes");
    }

    /// Holds the commands of a vSSD back, or lets them go on: the queues of its dies are full, or have room again.
    pub fn hold(&mut self, vssd: VssdId, held: bool) {
        let Some(&vssd) = self.numbers.get(&vssd.0) else { return };
        self.vssds[vssd].held = held;
        if held {
            self.leave_vssd(vssd);
        } else {
            self.enter_vssd(vssd);
        }
    }

    /// Takes back commands of a source that wait, all or the one of a token; flushes stay, since others may count on them.
    pub fn take_back(
        &mut self,
        source: SourceId,
        token: Option<CommandToken>,
        taken: &mut Vec<NamespaceCommand>,
    ) {
        let Some(of_source) = self.sources.get(slot_of(source)) else { return };
        let queues: Vec<u32> = of_source.iter().map(|(_, queue)| *queue).collect();
        for queue in queues {
            let own = &mut self.queues[queue];
            let before = taken.len();
            let mut at = 0;
            while let Some(command) = own.commands.get(at) {
                let is_meant = token.is_none_or(|one| command.token == one);
                if is_meant && !matches!(command.operation, NamespaceOperation::Flush) {
                    taken.extend(own.commands.remove(at));
                } else {
                    at += 1;
                }
            }
            if taken.len() == before {
                continue;
            }
            let (is_empty, volume) = (own.is_empty(), own.volume);
            let of_volume = &mut self.volumes[volume];
            of_volume.take_back((taken.len() - before) as u32);
            if is_empty {
                of_volume.turns.retain(|other| *other != queue);
            }
            self.ask_anew(volume);
            self.leave_round(volume);
            self.forget_closed(volume);
        }
    }

    /// Takes a volume out of the round if it may not go on any more.
    fn leave_round(&mut self, volume: u32) {
        let own = &mut self.volumes[volume];
        if !own.place.is_in() || own.may_go(self.config.window_commands) {
            return;
        }
        let vssd = &mut self.vssds[own.vssd];
        vssd.turns.leave(volume, &mut own.place);
        assert!(vssd.weight >= own.weight.value, "I-S2: a vSSD weighs what has turns in it");
        vssd.weight -= own.weight.value;
        if vssd.turns.is_empty() {
            let vssd = own.vssd;
            self.leave_vssd(vssd);
        }
    }

    /// So many commands of the namespace were answered; none is nothing.
    ///
    /// # Panics
    /// If fewer were under way.
    pub fn finished(&mut self, namespace: NamespaceId, commands: u32) {
        if commands == 0 {
            return;
        }
        let volume = self.volume_of(namespace);
        let own = &mut self.volumes[volume];
        assert!(own.under_way >= commands, "I-S2: an answer belongs to a command under way");
        own.under_way -= commands;
        let (has_turn, is_closed) = (own.place.is_in(), own.is_closed);
        if !has_turn && own.waiting > 0 {
            self.enter_round(volume);
        }
        if is_closed {
            self.forget_closed(volume);
        }
    }

    /// What a round may cost that begins now.
    pub fn round_cost(&self, now: Time) -> u32 {
        let is_contended = now < self.contended_until || self.turns.len() > 1;
        if is_contended { self.config.round_cost } else { self.config.uncontended_round_cost }
    }

    /// Whether [`Admission::serve`] would begin something.
    pub fn has_work(&self) -> bool {
        !self.turns.is_empty()
    }

    /// Whether [`Admission::serve`] would begin something of a source sooner or later, if nothing else happened.
    pub fn goes_on(&self, source: SourceId) -> bool {
        let of_source = self.sources.get(slot_of(source)).map_or(&[][..], |queues| queues);
        of_source.iter().any(|(volume, queue)| {
            let volume = &self.volumes[*volume];
            volume.place.is_in() && !self.vssds[volume.vssd].held && !self.queues[*queue].is_empty()
        })
    }

    /// Admits work while there is some and `budget` is left: `begin` takes each up `now`, and says what it has cost and what is left of
    /// its command. Who has no rival among tenants, vSSDs and volumes is served in one go, as nobody comes into a round meanwhile: the
    /// rounds hear once what all of it has cost, and stand where they would if each command had been told.
    pub fn serve(&mut self, budget: &mut u32, now: Time, mut begin: impl FnMut(Work) -> Begun) {
        self.latest = now;
        while *budget > 0
            && let Some(number) = self.next_tenant(now)
        {
            let tenant = &mut self.tenants[number];
            let vssd_number = tenant.turns.first().expect("I-S2: a tenant in turn has a vSSD in turn");
            let vssd = &mut self.vssds[vssd_number];
            let volume_number = vssd.turns.first().expect("I-S2: a vSSD in turn has a volume in turn");
            let volume = &mut self.volumes[volume_number];
            let has_rival = self.turns.has_rival() || tenant.turns.has_rival() || vssd.turns.has_rival();
            let (mut used, mut goes_on, mut holds) = (Used::default(), true, false);
            let gate = Gate { shaper: &mut self.shaper, volume: volume_number, now };
            let volume_stays = volume.serve(&mut self.queues, &self.config, gate, |work| {
                let begun = begin(work);
                *budget = budget.saturating_sub(begun.cost);
                let due = if mutant!("shard: turns cost nothing") { 0 } else { begun.cost };
                used.add(due);
                (goes_on, holds) = (begun.goes_on, begun.holds);
                let is_enough = has_rival || holds || !goes_on || *budget == 0;
                Turned { due, rest: begun.rest, is_enough }
            });
            if self.served != Some(number) && self.served.replace(number).is_some() {
                self.contended_until = now + self.config.contention_window;
            }
            // Before a volume leaves: the vSSD has turned on its account.
            let is_alone = vssd.weight == volume.weight.value;
            let of_volumes = if is_alone { volume.weight } else { Weight::new(vssd.weight) };
            vssd.turns.served(&mut volume.place, used, volume.weight, volume_stays);
            if !volume_stays {
                vssd.weight -= volume.weight.value;
            }
            assert_eq!(vssd.weight == 0, vssd.turns.is_empty(), "I-S2: a vSSD weighs what has turns in it");
            let stays = !vssd.turns.is_empty();
            tenant.turns.served(&mut vssd.place, used, of_volumes, stays);
            let stays = !tenant.turns.is_empty();
            self.turns.served(&mut tenant.place, used, tenant.weight, stays);
            if holds {
                self.vssds[vssd_number].held = true;
                self.leave_vssd(vssd_number);
            }
            if !goes_on {
                return;
            }
        }
    }
}

#[cfg(test)]
mod test;
