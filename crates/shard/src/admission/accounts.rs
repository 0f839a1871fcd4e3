//! Who takes turns: tenants, their vSSDs, the volumes of these, and queues of connections to a volume.

use super::config::AdmissionConfig;
use super::qos::{SetState, Shaper, Ticket};
use super::turns::{Place, Turns, Weight};
use super::work::{COMMAND_COST, Work, bytes_of};
use diecut_namespace::contract::{NamespaceCommand, NamespaceId};
use diecut_units::{IU_SIZE_BYTES, Slab, Time};
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
    /// QoS sets do not count for it now: something waits for its end.
    pub is_lifted: bool,
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
    pub shaping: Shaping,
}

/// How a volume stands to its QoS set.
#[derive(Default)]
pub(super) struct Shaping {
    pub set: u32,
    /// Its requests need tokens.
    pub is_shaped: bool,
    /// Its next request waits for them: until then only rests of commands go on.
    pub is_waiting: bool,
    /// For its next request.
    pub ticket: Option<Ticket>,
    /// In which its last request was granted.
    granted: Option<SetState>,
}

/// Where a volume asks for tokens.
pub(super) struct Gate<'a> {
    pub shaper: &'a mut Shaper,
    pub volume: u32,
    pub now: Time,
}

impl Gate<'_> {
    /// Whether a request of the volume that moves so many bytes may go on: it has a ticket for just that, or gets one.
    fn lets_go(&mut self, shaping: &mut Shaping, bytes: u64) -> bool {
        let ticket = match shaping.ticket.take() {
            Some(ticket) if ticket.bytes == bytes => Some(ticket),
            other => {
                // For a request that was taken back.
                other.into_iter().for_each(|ticket| self.shaper.give_back(shaping.set, ticket));
                self.shaper.ask(self.volume, shaping.set, bytes, self.now)
            }
        };
        shaping.is_waiting = ticket.is_none();
        shaping.granted = ticket.map(|ticket| ticket.state);
        ticket.is_some()
    }

    /// An entry of an application was begun, and has cost so much: before, nobody knew what it moves.
    fn charge_entry(&mut self, shaping: &Shaping, cost: u32) {
        if let Some(state) = shaping.granted {
            let bytes = u64::from(cost.saturating_sub(COMMAND_COST)) * IU_SIZE_BYTES as u64;
            self.shaper.charge(shaping.set, state, bytes);
        }
    }
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
        mut gate: Gate<'_>,
        mut begin: impl FnMut(Work) -> Turned,
    ) -> bool {
        loop {
            let mut queue = match self.leaf {
                Leaf::Blocks(_) => None,
                Leaf::Nobody | Leaf::Namespace(_) => Some(self.choose(queues, config)),
            };
            loop {
                if self.shaping.is_shaped && !self.has_tokens(queue.as_deref(), &mut gate) {
                    return self.may_go(config.window_commands);
                }
                // There is one place where work begins, so that the compiler puts all of it here.
                let Turned { due, rest, is_enough } = begin(self.take(queue.as_deref_mut()));
                match queue.as_deref_mut() {
                    Some(queue) => self.settle(queue, due, rest),
                    None if self.shaping.is_shaped => gate.charge_entry(&self.shaping, due),
                    None => {}
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
        let is_held = queue.commands.is_empty() || self.only_rests_go(config.window_commands);
        queue.deficit > 0 && (!is_held || queue.rest.is_some())
    }

    /// Whether what goes on next may begin: the rest of a command may, and a command that has its tokens.
    #[inline(never)]
    fn has_tokens(&mut self, queue: Option<&Queue>, gate: &mut Gate<'_>) -> bool {
        let bytes = match queue {
            Some(Queue { rest: Some(_), .. }) => return true,
            Some(queue) => {
                let command = queue.commands.front().expect("I-S3: a queue in turn holds something");
                bytes_of(&command.operation)
            }
            // What an entry moves is known when it begins.
            None => 0,
        };
        gate.lets_go(&mut self.shaping, bytes)
    }

    /// Whether no command may begin.
    #[inline]
    fn only_rests_go(&self, window_commands: u32) -> bool {
        self.under_way >= window_commands || self.shaping.is_waiting
    }

    /// So many commands that waited are taken back.
    pub fn take_back(&mut self, commands: u32) {
        assert!(self.waiting >= commands, "I-S2: a command that waits is counted");
        self.waiting -= commands;
    }

    /// Whether something of it may go on.
    #[inline]
    pub fn may_go(&self, window_commands: u32) -> bool {
        self.rests > 0 || (self.waiting > 0 && !self.only_rests_go(window_commands))
    }

    /// The connection in turn that has something that may go on.
    #[inline]
    fn choose<'a>(&mut self, queues: &'a mut Slab<Queue>, config: &AdmissionConfig) -> &'a mut Queue {
        let only_rests_go = self.only_rests_go(config.window_commands);
        loop {
            let number = *self.turns.front().expect("I-S2: a volume in turn has a connection in turn");
            let queue = &mut queues[number];
            // Where only rests go on there is one, or the volume would have no turn.
            if !(only_rests_go && queue.rest.is_none()) {
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
