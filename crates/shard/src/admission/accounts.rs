//! Who takes turns: tenants, their vSSDs, the volumes of these, and queues of connections to a volume.

use super::config::AdmissionConfig;
use super::turns::{Place, Turns, Weight};
use super::work::Work;
use diecut_namespace::contract::{NamespaceCommand, NamespaceId};
use diecut_units::Slab;
use diecut_volume::contract::VolumeToken;
use diecut_vssd::VssdId;
use std::collections::VecDeque;

/// The account of what names a namespace that is not open; it is there from the start.
pub(super) const NOBODY: u32 = 0;

/// Commands of a source to a volume that wait, in order. It stays when it is empty: the next one comes soon.
pub(super) struct Queue {
    pub volume: u32,
    pub commands: VecDeque<NamespaceCommand>,
    /// What is left of the command that it was admitted last.
    pub rest: Option<VolumeToken>,
    pub deficit: i64,
}

impl Queue {
    pub fn is_empty(&self) -> bool {
        self.commands.is_empty() && self.rest.is_none()
    }
}

#[derive(Default)]
pub(super) struct Tenant {
    pub name: String,
    pub weight: Weight,
    pub place: Place,
    /// Its vSSDs.
    pub turns: Turns,
    /// vSSDs that it has here.
    pub vssds: u32,
}

impl Tenant {
    /// One of its vSSDs goes; whether it was the last one.
    pub fn lose_vssd(&mut self) -> bool {
        assert!(self.vssds > 0, "I-S1: a tenant counts its vSSDs");
        self.vssds -= 1;
        let is_idle = self.turns.is_empty() && !self.place.is_in();
        assert!(self.vssds > 0 || is_idle, "I-S2: who has nothing to do has no turn");
        self.vssds == 0
    }
}

#[derive(Default)]
pub(super) struct Vssd {
    /// None for what is not open.
    pub id: Option<VssdId>,
    pub tenant: u32,
    pub place: Place,
    /// Its volumes.
    pub turns: Turns,
    /// Volumes that it has here.
    pub volumes: u32,
    /// The one that stands for its erase blocks; `NOBODY` where it serves volumes.
    pub blocks: u32,
    /// Weights of the volumes in the round: its own weight.
    pub weight: u32,
    /// Nothing is admitted: what lies below has no room.
    pub held: bool,
}

impl Vssd {
    /// One of its volumes goes; whether it was the last one.
    pub fn lose_volume(&mut self) -> bool {
        assert!(self.volumes > 0, "I-S1: a vSSD counts its volumes");
        self.volumes -= 1;
        let is_idle = self.turns.is_empty() && self.weight == 0 && !self.place.is_in();
        assert!(self.volumes > 0 || is_idle, "I-S2: who has nothing to do has no turn");
        self.volumes == 0
    }
}

/// What takes turns at a vSSD.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Leaf {
    /// What is not open.
    #[default]
    Nobody,
    Namespace(NamespaceId),
    /// The erase blocks of a vSSD.
    Blocks(VssdId),
}

#[derive(Default)]
pub(super) struct Volume {
    pub leaf: Leaf,
    pub vssd: u32,
    pub weight: Weight,
    pub place: Place,
    /// Queues that are not empty, in the order of their turns.
    pub turns: VecDeque<u32>,
    pub under_way: u32,
    /// Commands that wait.
    pub waiting: u32,
    /// Queues with the rest of a command.
    pub rests: u32,
    /// Its namespace, or its vSSD, is closed: it goes with the last answer.
    pub is_closed: bool,
}

/// What became of one command, piece or entry of a volume's turn.
pub(super) struct Turned {
    /// What it counts for.
    pub due: u32,
    /// What is left of its command.
    pub rest: Option<VolumeToken>,
    /// Whether the turn is over.
    pub is_enough: bool,
}

impl Volume {
    /// Has `begin` take up what may go on, until that is enough, or nothing may go on any more. Gives whether something may.
    #[inline(always)]
    pub fn serve(
        &mut self,
        queues: &mut Slab<Queue>,
        config: &AdmissionConfig,
        mut begin: impl FnMut(Work) -> Turned,
    ) -> bool {
        loop {
            let mut queue = match self.leaf {
                Leaf::Blocks(_) => None,
                Leaf::Nobody | Leaf::Namespace(_) => Some(self.choose(queues, config)),
            };
            loop {
                // There is one place where work begins, so that the compiler puts all of it here.
                let Turned { due, rest, is_enough } = begin(self.take(queue.as_deref_mut()));
                if let Some(queue) = queue.as_deref_mut() {
                    self.settle(queue, due, rest);
                }
                let stays = self.may_go(config.window_commands);
                if is_enough || !stays {
                    return stays;
                }
                if !queue.as_deref().is_some_and(|queue| self.goes_on_with(queue, config)) {
                    break;
                }
            }
        }
    }

    /// Whether the queue that was chosen last would be chosen again.
    #[inline]
    fn goes_on_with(&self, queue: &Queue, config: &AdmissionConfig) -> bool {
        let is_held = queue.commands.is_empty() || self.under_way >= config.window_commands;
        queue.deficit > 0 && (!is_held || queue.rest.is_some())
    }

    /// So many commands that waited are taken back.
    pub fn take_back(&mut self, commands: u32) {
        assert!(self.waiting >= commands, "I-S2: a command that waits is counted");
        self.waiting -= commands;
    }

    /// Whether something of it may go on.
    #[inline]
    pub fn may_go(&self, window_commands: u32) -> bool {
        self.rests > 0 || (self.waiting > 0 && self.under_way < window_commands)
    }

    /// The connection in turn that has something that may go on.
    #[inline]
    fn choose<'a>(&mut self, queues: &'a mut Slab<Queue>, config: &AdmissionConfig) -> &'a mut Queue {
        let window_is_full = self.under_way >= config.window_commands;
        loop {
            let number = *self.turns.front().expect("I-S2: a volume in turn has a connection in turn");
            let queue = &mut queues[number];
            // With a full window only rests go on, and there is one, or the volume would have no turn.
            if !(window_is_full && queue.rest.is_none()) {
                if queue.deficit > 0 {
                    // Looked up again: the borrow of a loop would last too long.
                    return &mut queues[number];
                }
                queue.deficit += i64::from(config.source_quantum);
            }
            self.turns.rotate_left(1);
        }
    }

    /// Takes what goes on next out of a queue; of an application, which has none, an entry.
    #[inline]
    fn take(&mut self, queue: Option<&mut Queue>) -> Work {
        let Some(queue) = queue else {
            let Leaf::Blocks(vssd) = self.leaf else { unreachable!("I-S3: commands wait in queues") };
            self.waiting -= 1;
            return Work::Entry(vssd);
        };
        if let Some(rest) = queue.rest.take() {
            self.rests -= 1;
            return Work::Rest(rest);
        }
        let command = queue.commands.pop_front().expect("I-S3: a queue in turn holds something");
        assert!(self.waiting > 0, "I-S2: a command that waits is counted");
        self.waiting -= 1;
        self.under_way += 1;
        Work::Command(command)
    }

    /// The queue in turn has used something, and this is left of its command.
    #[inline]
    fn settle(&mut self, queue: &mut Queue, cost: u32, rest: Option<VolumeToken>) {
        assert!(queue.rest.is_none(), "I-S3: a queue has one command that was begun");
        queue.deficit -= i64::from(cost);
        queue.rest = rest;
        self.rests += u32::from(rest.is_some());
        if queue.is_empty() {
            self.turns.pop_front();
        }
    }
}
