//! A shard without media: a target over null namespaces. The floor under every figure of the whole stack, and the
//! smallest thing a driver can be tried with.

use crate::drive::{self, ConnectionId, Drive, Outbox, ShardIndex};
use crate::seat::Seat;
pub use diecut_namespace::NullReads;
use diecut_namespace::contract::NamespaceId;
use diecut_namespace::{Backing, MAP_PIECE_LBAS, NamespaceDefinition, Namespaces, Outputs};
use diecut_nvmf::{self as target, NamespaceConfig, SubsystemConfig, Target, TargetConfig};
use diecut_units::{ContentMode, Time};

/// A target whose subsystems show null namespaces: commands complete at once, writes are forgotten.
pub struct NullShard {
    target: Target,
    namespaces: Namespaces,
    outputs: Outputs,
    pending: Vec<target::Action>,
    /// The other half of a double buffer, so that a warm shard allocates nothing.
    spare: Vec<target::Action>,
}

impl NullShard {
    /// A shard with one subsystem per name, each with one null namespace (NSID 1) of `size_lbas` blocks of 4096 bytes,
    /// open to every host.
    ///
    /// # Panics
    /// If a name is no NQN.
    pub fn new(config: TargetConfig, names: &[&str], size_lbas: u64, reads: NullReads) -> NullShard {
        NullShard::seated(config, names, size_lbas, reads, Seat { index: ShardIndex(0), shards: 1 })
    }

    /// One of several such shards, made from the same names: subsystems live on shards in turn.
    ///
    /// # Panics
    /// If a name is no NQN.
    pub fn seated(
        config: TargetConfig,
        names: &[&str],
        size_lbas: u64,
        reads: NullReads,
        seat: Seat,
    ) -> NullShard {
        let mut shard = NullShard {
            target: Target::new(config),
            namespaces: Namespaces::new(),
            outputs: Outputs::default(),
            pending: Vec::new(),
            spare: Vec::new(),
        };
        for (number, name) in names.iter().enumerate() {
            let definition = NamespaceDefinition {
                size_lbas,
                transfer_max_lbas: 256,
                content_mode: ContentMode::Bytes,
                volatile_cache: false,
                preferred_write_lbas: 1,
                read_only: false,
                zones: None,
                placement: None,
                chunks: None,
                erases: true,
            };
            let namespace = NamespaceId(number as u32 + 1);
            shard.namespaces.open(namespace, definition, Backing::Null { reads });
            let config = NamespaceConfig {
                namespace,
                uuid: [number as u8 + 1; 16],
                nguid: [number as u8 + 1; 16],
                properties: definition.properties(0),
                content: ContentMode::Bytes,
            };
            let subsystem = SubsystemConfig {
                nqn: diecut_nvme::QualifiedName::new(name).expect("the name is an NQN"),
                serial: format!("null-{number}"),
                model: "diecut null".to_owned(),
                allow_any_host: true,
                allowed_hosts: Default::default(),
                namespaces: [(1, config)].into(),
                paths: Default::default(),
                home: match number as u16 % seat.shards {
                    home if home == seat.index.0 => target::Home::Here,
                    home => target::Home::Elsewhere(home),
                },
            };
            shard.target.set_subsystem(subsystem, Time::ZERO, &mut shard.pending);
        }
        shard.pending.clear();
        shard
    }

    fn settle(&mut self, now: Time, actions: &mut Vec<drive::Action>) {
        while !self.pending.is_empty() {
            let mut batch = std::mem::replace(&mut self.pending, std::mem::take(&mut self.spare));
            for action in batch.drain(..) {
                match action {
                    target::Action::Submit(command) => {
                        self.namespaces.submit(command, now, &mut self.outputs, &mut |_| MAP_PIECE_LBAS);
                    }
                    // Commands were answered when they came.
                    target::Action::GiveUp(..) => {}
                    // There are no media.
                    target::Action::Keep(keep) => {
                        self.target.handle(target::Event::Kept(keep.kept()), now, &mut self.pending);
                    }
                    target::Action::Ask(question) => {
                        let tidings = Box::new(question.unknown());
                        self.target.handle(target::Event::Told(tidings), now, &mut self.pending);
                    }
                    action => actions.push(drive::translate(action)),
                }
            }
            self.spare = batch;
            for finished in self.outputs.finished.drain(..) {
                self.target.handle(target::Event::Completed(finished.completion), now, &mut self.pending);
            }
        }
    }
}

/// Whether a subsystem can have this name.
pub fn is_name(nqn: &str) -> bool {
    diecut_nvme::QualifiedName::new(nqn).is_ok()
}

/// Whether a name is that of discovery (Base 2.0 section 4.5), which no other subsystem can have.
pub fn is_discovery(nqn: &str) -> bool {
    nqn == diecut_nvme::DISCOVERY_SUBSYSTEM_NQN
}

impl Drive for NullShard {
    fn handle(&mut self, event: drive::Event, now: Time, actions: &mut Vec<drive::Action>) {
        let event = match event {
            drive::Event::Accepted { connection, local } => target::Event::Accepted(connection, local),
            drive::Event::Received { connection, bytes } => target::Event::Received(connection, bytes),
            drive::Event::ReceivedInWindow { connection, len_bytes } => {
                target::Event::ReceivedInWindow(connection, len_bytes)
            }
            drive::Event::Adopted { connection, state } => target::Event::Adopted(connection, state),
            drive::Event::Closed { connection } => target::Event::Closed(connection),
            // Null shards have nothing to say to each other, and no erase blocks: their servers have no socket for those.
            drive::Event::Told { .. }
            | drive::Event::Blocks(_)
            | drive::Event::IoDone(..)
            | drive::Event::DeviceAway(..)
            | drive::Event::DeviceCame(_)
            | drive::Event::DeviceWent(_) => return,
            drive::Event::Control { token, request: _ } => {
                let error = crate::control::ControlError {
                    kind: crate::control::ControlErrorKind::Invalid,
                    message: "this server has null namespaces only; nothing can be changed".to_owned(),
                };
                let response = Box::new(crate::control::ControlResponse::Refused(error));
                return actions.push(drive::Action::Answer { token, response });
            }
        };
        self.target.handle(event, now, &mut self.pending);
        self.settle(now, actions);
    }

    fn work(&mut self, now: Time, actions: &mut Vec<drive::Action>) {
        if self.target.has_work() {
            self.target.handle(target::Event::Round, now, &mut self.pending);
        }
        if self.target.deadline() <= now {
            self.target.handle(target::Event::Tick, now, &mut self.pending);
        }
        self.settle(now, actions);
    }

    fn deadline(&self) -> Time {
        if self.target.has_work() { Time::ZERO } else { self.target.deadline() }
    }

    fn is_connected(&self, connection: ConnectionId) -> bool {
        self.target.queue_of(connection).is_some()
    }

    fn tenant_of(&self, connection: ConnectionId) -> Option<&str> {
        Some(self.target.queue_of(connection)??.as_str())
    }

    fn outbox(&self, connection: ConnectionId) -> Option<&Outbox> {
        self.target.outbox(connection)
    }

    fn sent(&mut self, connection: ConnectionId, len_bytes: usize, _actions: &mut Vec<drive::Action>) {
        self.target.sent(connection, len_bytes);
    }

    fn receive_window(&mut self, connection: ConnectionId) -> Option<&mut [u8]> {
        self.target.receive_window(connection)
    }

    fn receive_bytes(&self) -> usize {
        self.target.receive_bytes()
    }

    fn set_memory(&mut self, memory_bytes: usize) {
        self.target.set_memory(memory_bytes);
    }

    fn memory(&self) -> drive::MemoryFigures {
        self.target.memory()
    }

    fn shrink(&mut self, slabs_max: u32) -> usize {
        self.target.shrink(slabs_max)
    }
}
