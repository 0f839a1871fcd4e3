//! What travels to another shard, as values.

use crate::config::Health;
use crate::controller::Association;
use crate::inbound::Current;
use crate::keeping::Change;
use crate::ocp::Ocp;
use crate::placement::PlacementLog;
use crate::queue::{Queue, SlotIndex};
use crate::reservation::Reservations;
use crate::sanitize::Sanitizing;
use crate::subsystems::Traffic;
use crate::tcp::{Outbox, Receiver};
use diecut_nvme::QualifiedName;
use diecut_nvme::fabrics::{ConnectCommand, ConnectData};
use diecut_nvme::tcp::Digests;
use diecut_units::Buffer;
use std::collections::VecDeque;

/// What is counted and told for a subsystem, on its way to another shard.
#[derive(Clone, Debug, PartialEq)]
pub struct SubsystemFigures {
    pub(crate) health: Health,
    pub(crate) traffic: Traffic,
    pub(crate) reservations: Reservations,
    pub(crate) sanitizing: Sanitizing,
    pub(crate) ocp: Ocp,
    pub(crate) placement: PlacementLog,
}

/// A connection on its way to the home shard of its subsystem: Connect was read and nothing was decided, or the subsystem
/// changed its home while the connection was at work.
#[derive(Debug)]
pub struct MovedConnection {
    pub(crate) digests: Digests,
    pub(crate) host_alignment: usize,
    pub(crate) unread: VecDeque<Buffer>,
    pub(crate) unread_at: usize,
    pub(crate) unsent: Outbox,
    pub(crate) arriving: Arriving,
}

/// How far a connection is that arrives from another shard.
#[derive(Debug)]
pub(crate) enum Arriving {
    /// Its Connect is to be decided on.
    Connect(Box<(ConnectCommand, ConnectData)>),
    /// It is a queue of a controller.
    Live(Box<MovedQueue>),
}

/// A queue on its way to another shard; no namespace has a command of it.
#[derive(Debug)]
pub(crate) struct MovedQueue {
    pub(crate) subsystem: QualifiedName,
    pub(crate) controller_id: u16,
    pub(crate) queue: Queue,
    pub(crate) receiver: Receiver,
    pub(crate) current: Current,
    /// The data of the command it is at wait for memory.
    pub(crate) data_wait: bool,
    /// Its commands that wait until a change is durable.
    pub(crate) awaiting: Vec<MovedWait>,
    /// With the admin queue.
    pub(crate) association: Option<Association>,
}

/// A command on its way to another shard that waits until changes are durable.
#[derive(Debug)]
pub(crate) struct MovedWait {
    pub(crate) slot_index: SlotIndex,
    pub(crate) command_id: u16,
    pub(crate) changes: Vec<Change>,
    pub(crate) is_undone: bool,
}

const _: () = {
    const fn is_send<T: Send>() {}
    is_send::<MovedConnection>()
};
