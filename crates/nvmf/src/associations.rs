//! The associations of a target: which there are, and for how many more there is a place.

use crate::config::TargetConfig;
use crate::controller::Association;
use crate::subsystems::Subsystems;
use diecut_nvme::QualifiedName;
use diecut_units::{Slab, Time, mutant};
use std::collections::BTreeMap;

/// One connected controller, for reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AssociationStatus {
    /// NQN of the subsystem.
    pub subsystem: String,
    /// NQN of the host; empty if it gave none.
    pub host: String,
    /// Controller id.
    pub controller_id: u16,
    /// I/O queues connected.
    pub io_queues: u16,
}

/// Largest controller id; higher ones are reserved (Base 2.0 section 3.1.2).
const CONTROLLER_ID_MAX: u16 = 0xFFEF;

#[derive(Debug, Default)]
pub(crate) struct Associations {
    slab: Slab<Association>,
    last_controller_id: u16,
}

impl Associations {
    /// Adds an association; its index.
    pub(crate) fn add(&mut self, association: Association) -> u32 {
        let same = self.find(association.subsystem, association.controller_id);
        assert!(same.is_none(), "I-T9: controller {} is one", association.controller_id);
        // Ids go round: one that was just freed is not used at once.
        self.last_controller_id = self.last_controller_id.max(association.controller_id);
        self.slab.insert(association)
    }

    /// Forgets an association.
    ///
    /// # Panics
    /// If it is not there.
    pub(crate) fn remove(&mut self, number: u32) -> Association {
        let association = self.slab.remove(number);
        let (awaited, failed) = (association.flushes.awaited, association.flushes.failed);
        assert_eq!(
            awaited, 0,
            "I-T8: a controller stays until its flushes are answered (one failed: {failed})"
        );
        association
    }

    #[inline]
    pub(crate) fn get(&self, number: u32) -> Option<&Association> {
        self.slab.get(number)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, number: u32) -> Option<&mut Association> {
        self.slab.get_mut(number)
    }

    /// The association of a connection that has one.
    ///
    /// # Panics
    /// If it is gone.
    #[inline]
    pub(crate) fn kept(&self, number: u32) -> &Association {
        self.slab.get(number).expect("I-T3: connections keep their association")
    }

    /// As [`Associations::kept`], to change it.
    ///
    /// # Panics
    /// If it is gone.
    #[inline]
    pub(crate) fn kept_mut(&mut self, number: u32) -> &mut Association {
        self.slab.get_mut(number).expect("I-T3: connections keep their association")
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &Association)> {
        self.slab.iter()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut Association)> {
        self.slab.iter_mut()
    }

    /// Those of a subsystem, or of discovery.
    pub(crate) fn of(&self, subsystem: Option<u32>) -> impl Iterator<Item = (u32, &Association)> {
        self.iter().filter(move |(_, one)| one.subsystem == subsystem)
    }

    /// Number of the association of a controller that does not end.
    pub(crate) fn find(&self, subsystem: Option<u32>, controller_id: u16) -> Option<u32> {
        let is_it = |one: &Association| one.controller_id == controller_id && !one.is_ending();
        self.of(subsystem).find(|(_, one)| is_it(one)).map(|(number, _)| number)
    }

    /// Associations of a host that must be quiet before its next Connect is answered: those whose connections are gone and
    /// those whose keep-alive ran out, as long as namespaces have commands of them. Live ones stay, for a host may have several
    /// paths to a subsystem. Discovery controllers hold no data.
    pub(crate) fn gone<'a>(
        &'a self,
        subsystem: Option<u32>,
        host: Option<&'a QualifiedName>,
        host_id: &'a [u8; 16],
        now: Time,
    ) -> impl Iterator<Item = u32> + 'a {
        self.iter().filter_map(move |(number, one)| {
            let own = subsystem.is_some() && one.subsystem == subsystem && one.is_of(host, host_id);
            (own && (one.is_ending() || one.expires() <= now)).then_some(number)
        })
    }

    /// Connections of all associations that the host of one has with its subsystem.
    pub(crate) fn queues_of_host(&self, number: u32) -> Vec<u32> {
        let own = self.kept(number);
        let same = self
            .of(own.subsystem)
            .filter(|(_, one)| one.is_of(own.host.as_ref(), &own.host_id) && !own.is_discovery());
        same.flat_map(|(_, one)| one.connections.iter().copied()).collect()
    }

    /// Controller ids that a subsystem has, in order.
    pub(crate) fn controller_ids(&self, subsystem: Option<u32>) -> Vec<u16> {
        let mut ids: Vec<u16> = self.of(subsystem).map(|(_, one)| one.controller_id).collect();
        ids.sort_unstable();
        ids
    }

    /// An id that no controller of the subsystem has; ids go round, so that one just freed is not used at once.
    pub(crate) fn free_controller_id(&mut self, subsystem: Option<u32>) -> u16 {
        loop {
            self.last_controller_id =
                if self.last_controller_id >= CONTROLLER_ID_MAX { 1 } else { self.last_controller_id + 1 };
            let id = self.last_controller_id;
            if !self.of(subsystem).any(|(_, one)| one.controller_id == id) {
                return id;
            }
        }
    }

    /// Why there is no room for another controller, if so. Discovery has a table of its own; in the other each subsystem has a part
    /// that is kept for it.
    pub(crate) fn table_full(
        &self,
        config: &TargetConfig,
        subsystems: &Subsystems,
        subsystem: Option<u32>,
        host: Option<&QualifiedName>,
    ) -> Option<&'static str> {
        let of_host = self.of(subsystem).filter(|(_, one)| one.host.as_ref() == host).count();
        let discoveries = self.of(None).count();
        if subsystem.is_none() {
            return (of_host >= config.discovery.controllers_per_host_max)
                .then_some("the host has as many discovery controllers as it may have");
        }
        if of_host >= config.controllers.associations_per_host_max {
            return Some("the host has as many controllers in this subsystem as it may have");
        }
        let mut counts: BTreeMap<u32, usize> = BTreeMap::new();
        for (_, one) in self.iter() {
            if let Some(index) = one.subsystem {
                *counts.entry(index).or_default() += 1;
            }
        }
        let present: Vec<u32> =
            subsystems.iter().filter(|(_, one)| one.tenant.is_some()).map(|(index, _)| index).collect();
        let kept_each = config
            .controllers
            .associations_kept
            .min(config.controllers.associations_max / 2 / present.len().max(1));
        let kept_each = if mutant!("nvmf: places of subsystems not kept") { 0 } else { kept_each };
        let others = present.iter().filter(|&&index| Some(index) != subsystem);
        let kept: usize =
            others.map(|index| kept_each.saturating_sub(counts.get(index).copied().unwrap_or(0))).sum();
        (self.slab.len() - discoveries + kept >= config.controllers.associations_max)
            .then_some("there are as many controllers as may be, but for those kept for other subsystems")
    }

    /// Of the discovery controllers, if there are as many as may be: the one that was silent for longest. It makes room for the next one:
    /// anybody may have them, so nobody could discover anything any more where few held all of them.
    pub(crate) fn displaced_by_discovery(&self, controllers_max: usize) -> Option<u32> {
        let live = || self.of(None).filter(|(_, one)| !one.is_ending());
        let oldest = || live().min_by_key(|(number, one)| (one.keep_alive.heard_at, *number));
        (live().count() >= controllers_max).then(oldest).flatten().map(|(number, _)| number)
    }

    /// All of them, for reports.
    pub(crate) fn report(&self, subsystems: &Subsystems) -> Vec<AssociationStatus> {
        let name = |one: &Association| match one.subsystem {
            Some(index) => subsystems.get(index).config.nqn.to_string(),
            None => diecut_nvme::DISCOVERY_SUBSYSTEM_NQN.to_owned(),
        };
        let status = |one: &Association| AssociationStatus {
            subsystem: name(one),
            host: one.host.as_ref().map_or_else(String::new, QualifiedName::to_string),
            controller_id: one.controller_id,
            io_queues: one.connections.len().saturating_sub(1) as u16,
        };
        self.iter().map(|(_, one)| status(one)).collect()
    }
}
