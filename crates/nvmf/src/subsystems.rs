//! The subsystems of a target, by index and by name.

use crate::config::{Health, SubsystemConfig};
use crate::ocp::Ocp;
use crate::placement::PlacementLog;
use crate::reservation::Reservations;
use crate::sanitize::Sanitizing;
use diecut_nvme::QualifiedName;
use diecut_units::{Slab, Span, Time};
use std::collections::BTreeMap;

/// Figures of a subsystem's traffic, for its SMART log and for reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Traffic {
    pub(crate) read_commands: u64,
    pub(crate) write_commands: u64,
    pub(crate) read_bytes: u64,
    pub(crate) written_bytes: u64,
    pub(crate) busy: Busy,
}

/// How long namespaces had commands of a subsystem.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Busy {
    under_way: u32,
    since: Time,
    spent: Span,
}

impl Busy {
    /// A command goes to its namespace.
    #[inline]
    pub(crate) fn begin(&mut self, now: Time) {
        if self.under_way == 0 {
            self.since = now;
        }
        self.under_way += 1;
    }

    /// One came back.
    #[inline]
    pub(crate) fn end(&mut self, now: Time) {
        assert!(self.under_way > 0, "I-T8: a namespace answers each command once");
        self.under_way -= 1;
        if self.under_way == 0 {
            self.spent += now.since(self.since);
        }
    }

    /// Whether no namespace has a command.
    pub(crate) fn is_idle(&self) -> bool {
        self.under_way == 0
    }

    /// All of it, in minutes.
    pub(crate) fn minutes(&self, now: Time) -> u64 {
        let now = if self.under_way > 0 { now.since(self.since) } else { Span::ZERO };
        (self.spent.0 + now.0) / 60_000_000_000
    }
}

/// A subsystem and what is counted for it.
#[derive(Debug)]
pub(crate) struct Subsystem {
    pub(crate) config: SubsystemConfig,
    pub(crate) health: Health,
    pub(crate) traffic: Traffic,
    pub(crate) reservations: Reservations,
    pub(crate) sanitizing: Sanitizing,
    pub(crate) ocp: Ocp,
    pub(crate) placement: PlacementLog,
    passage: Passage,
    /// Its account's tenant, where it lives here.
    pub(crate) tenant: Option<u32>,
}

/// Where a subsystem is on its way from one shard to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Passage {
    /// It stays.
    None,
    /// It is about to leave: its hosts are not listened to, and Connects wait.
    Leaves,
    /// It lives here, and connections of it may still come. Hosts are listened to when the last one is here: a reset must
    /// find all queues that it ends, and a Connect its controller, or the ids that are taken.
    Arrives,
}

impl Subsystem {
    pub(crate) fn passage(&self) -> Passage {
        self.passage
    }

    /// Begins or ends a passage.
    ///
    /// # Panics
    /// If it comes and goes at once: hosts would be listened to in between.
    pub(crate) fn pass(&mut self, next: Passage) {
        let is_stride = self.passage == Passage::None || next == Passage::None;
        // A move that is given up before anything was handed over begins anew.
        let is_again = self.passage == next;
        assert!(
            is_stride || is_again,
            "I-T6: {} passes from {:?} to {next:?}",
            self.config.nqn,
            self.passage
        );
        self.passage = next;
    }
}

#[derive(Debug, Default)]
pub(crate) struct Subsystems {
    places: Slab<Subsystem>,
    by_nqn: BTreeMap<QualifiedName, u32>,
    /// GENCTR of the discovery log page.
    pub(crate) generation: u64,
}

impl Subsystems {
    /// A subsystem by index.
    ///
    /// # Panics
    /// If there is none: associations and connections keep theirs.
    #[inline]
    pub(crate) fn get(&self, index: u32) -> &Subsystem {
        self.places.get(index).expect("I-T5: associations keep their subsystem")
    }

    /// As [`Subsystems::get`], to change it.
    ///
    /// # Panics
    /// If there is none.
    #[inline]
    pub(crate) fn get_mut(&mut self, index: u32) -> &mut Subsystem {
        self.places.get_mut(index).expect("I-T5: associations keep their subsystem")
    }

    /// A subsystem by index, if it is still there.
    pub(crate) fn find_at_mut(&mut self, index: u32) -> Option<&mut Subsystem> {
        self.places.get_mut(index)
    }

    /// Index of the subsystem of a name.
    pub(crate) fn find(&self, nqn: &QualifiedName) -> Option<u32> {
        self.by_nqn.get(nqn).copied()
    }

    /// Index of a subsystem that the composer speaks of.
    ///
    /// # Panics
    /// If there is none.
    pub(crate) fn known(&self, nqn: &QualifiedName) -> u32 {
        self.find(nqn).expect("I-T6: a subsystem that moves is known")
    }

    /// See [`crate::Target::set_used_lbas`].
    pub(crate) fn set_used_lbas(&mut self, nqn: &QualifiedName, nsid: u32, used_lbas: u64) {
        let Some(index) = self.find(nqn) else { return };
        if let Some(namespace) = self.get_mut(index).config.namespaces.get_mut(&nsid) {
            namespace.properties.used_lbas = used_lbas;
        }
    }

    /// All that are there, with their indexes. Removed ones are, as long as controllers of them end.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &Subsystem)> {
        self.places.iter()
    }

    /// As [`Subsystems::iter`], to change them.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Subsystem> {
        self.places.iter_mut().map(|(_, one)| one)
    }

    /// Whether the hosts of a subsystem are not listened to, because it changes its shard.
    pub(crate) fn is_frozen(&self, subsystem: Option<u32>) -> bool {
        subsystem.and_then(|index| self.places.get(index)).is_some_and(|one| one.passage != Passage::None)
    }

    /// Defines a subsystem or changes one. Its index, and the NSIDs that came, went or changed.
    pub(crate) fn define(&mut self, config: SubsystemConfig) -> (u32, Vec<u32>) {
        let Some(index) = self.find(&config.nqn) else {
            let nqn = config.nqn.clone();
            let (health, traffic) = (Health::default(), Traffic::default());
            let (passage, reservations, ocp) = (Passage::None, Reservations::default(), Ocp::default());
            let (placement, sanitizing) = (PlacementLog::default(), Sanitizing::default());
            let subsystem = Subsystem {
                config,
                health,
                traffic,
                ocp,
                placement,
                reservations,
                sanitizing,
                passage,
                tenant: None,
            };
            let index = self.places.insert(subsystem);
            let before = self.by_nqn.insert(nqn, index);
            assert!(before.is_none(), "I-T5: a name leads to one subsystem");
            return (index, Vec::new());
        };
        let old = &mut self.get_mut(index).config;
        let mut changed = Vec::new();
        for nsid in old.namespaces.keys().chain(config.namespaces.keys()) {
            let same = match (old.namespaces.get(nsid), config.namespaces.get(nsid)) {
                (Some(one), Some(other)) => {
                    one.namespace == other.namespace
                        && one.uuid == other.uuid
                        && one.nguid == other.nguid
                        && one.properties.size_lbas == other.properties.size_lbas
                        && one.properties.read_only == other.properties.read_only
                }
                _ => false,
            };
            if !same {
                changed.push(*nsid);
            }
        }
        // What is another namespace than before is nobody's.
        let is_other = |nsid: &u32| {
            let place = |config: &SubsystemConfig| config.namespaces.get(nsid).map(|one| one.namespace);
            place(old) != place(&config)
        };
        let others: Vec<u32> = changed.iter().copied().filter(is_other).collect();
        *old = config;
        let subsystem = self.get_mut(index);
        subsystem.reservations.forget(&others);
        if !changed.is_empty() {
            subsystem.sanitizing.namespaces_changed(&subsystem.config);
        }
        (index, changed)
    }

    /// Takes the name and the namespaces of a subsystem away; it stays until [`Subsystems::remove`].
    pub(crate) fn retire(&mut self, nqn: &QualifiedName) -> Option<u32> {
        let index = self.by_nqn.remove(nqn)?;
        self.get_mut(index).config.namespaces.clear();
        Some(index)
    }

    /// Whether it was retired and not removed.
    pub(crate) fn is_retired(&self, index: u32) -> bool {
        self.places.get(index).is_some_and(|one| self.find(&one.config.nqn) != Some(index))
    }

    /// Forgets a subsystem that was retired.
    ///
    /// # Panics
    /// If it was not.
    pub(crate) fn remove(&mut self, index: u32) -> Subsystem {
        assert!(self.is_retired(index), "I-T5: a subsystem loses its name before its place");
        self.places.remove(index)
    }
}
