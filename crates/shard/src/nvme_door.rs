//! The NVMe target as a door of the shard.

use crate::door::{Door, Luggage, Party};
use crate::seat::ShardIndex;
use diecut_nvme::QualifiedName;
use diecut_nvmf::{Action, Event, Home, SubsystemConfig, Target, TargetConfig};
use diecut_units::{Time, mutant};

/// See the module.
pub(crate) struct NvmeDoor {
    pub target: Target,
    /// What the target asks for.
    pub actions: Vec<Action>,
    /// The other half of a double buffer, so that a warm shard allocates nothing.
    spare: Vec<Action>,
    /// Subsystems that came here and may have connections on the way.
    arriving: Vec<QualifiedName>,
}

impl NvmeDoor {
    pub fn new(config: TargetConfig) -> NvmeDoor {
        NvmeDoor { target: Target::new(config), actions: Vec::new(), spare: Vec::new(), arriving: Vec::new() }
    }

    /// Tells the target something.
    #[inline(always)]
    pub fn handle(&mut self, event: Event, now: Time) {
        self.target.handle(event, now, &mut self.actions);
    }

    /// Takes what the target asked for; [`NvmeDoor::give_back`] follows.
    pub fn take_actions(&mut self) -> Vec<Action> {
        std::mem::replace(&mut self.actions, std::mem::take(&mut self.spare))
    }

    /// Gives the memory of actions back.
    pub fn give_back(&mut self, actions: Vec<Action>) {
        assert!(actions.is_empty(), "I-S18: what the target asked for is done");
        self.spare = actions;
    }

    /// Says what a subsystem looks like that lives, or moves, elsewhere.
    pub fn learn(&mut self, config: SubsystemConfig, now: Time) {
        self.target.place(config, None, now, &mut self.actions);
    }
}

impl Door for NvmeDoor {
    fn freeze(&mut self, party: &Party) {
        party.subsystems.iter().for_each(|nqn| self.target.freeze(nqn));
    }

    fn is_drained(&self, party: &Party) -> bool {
        party.subsystems.iter().all(|nqn| self.target.is_drained(nqn))
    }

    fn take_out(&mut self, party: &Party) -> Luggage {
        let figures = party.subsystems.iter().map(|nqn| (nqn.clone(), self.target.figures(nqn)));
        Luggage::Hosts(figures.collect())
    }

    fn put_in(&mut self, luggage: Luggage, subsystems: &[SubsystemConfig], now: Time) {
        let Luggage::Hosts(figures) = luggage else { unreachable!("I-S16: luggage goes by its door") };
        for (nqn, figures) in figures {
            let config = subsystems.iter().find(|config| config.nqn == nqn);
            let config = config.expect("I-S16: a subsystem that moves exists").clone();
            self.target.place(config, Some(figures), now, &mut self.actions);
            assert!(!self.arriving.contains(&nqn), "I-S16: {nqn} comes once");
            self.arriving.push(nqn);
        }
    }

    fn all_arrived(&mut self, now: Time) {
        for nqn in std::mem::take(&mut self.arriving) {
            self.target.arrived(&nqn, now, &mut self.actions);
        }
    }

    fn release(&mut self, subsystems: Vec<SubsystemConfig>, to: ShardIndex, now: Time) {
        for mut config in subsystems {
            if mutant!("shard: old home keeps its subsystem") {
                config.home = Home::Here;
            }
            self.target.release(config, to.0, now, &mut self.actions);
        }
    }
}
