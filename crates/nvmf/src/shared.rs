//! What all connections of a target share.

use crate::associations::Associations;
use crate::awaiting::AllAwaiting;
use crate::config::{Health, TargetConfig};
use crate::connection::Connection;
use crate::later::Later;
use crate::memory::Memory;
use crate::notice::HostAt;
use crate::placement::{self, EventPace};
use crate::status::status_of;
use crate::subsystems::Subsystems;
use crate::watch::CommandOutline;
use diecut_namespace::contract::{CommandToken, NamespaceCommand, NamespaceError};
use diecut_nvme::{QualifiedName, Status, SubmissionEntry};
use diecut_units::{Span, Time};

/// What commands of all admin queues together may cost in a round: one for each, or for each 4 KiB of a longer answer. They are
/// served at once and pass no admission, so many admin queues would hold up the I/O of every tenant otherwise.
const ADMIN_COST_PER_ROUND: u32 = 16;
/// Commands of an admin queue before the next admin queue gets its turn.
pub(crate) const ADMIN_COMMANDS_PER_TURN: u32 = 4;

/// Everything of a target but its connections: while one of them is handled it is lent beside these.
pub(crate) struct Shared {
    pub(crate) config: TargetConfig,
    pub(crate) subsystems: Subsystems,
    pub(crate) associations: Associations,
    pub(crate) memory: Memory,
    pub(crate) later: Later,
    /// Commands that wait for commands of others, or until a change is durable.
    pub(crate) awaiting: AllAwaiting,
    /// What is left of this round for commands of admin queues, see [`ADMIN_COST_PER_ROUND`].
    pub(crate) admin_left: u32,
    /// Time of the current event.
    pub(crate) now: Time,
    /// No patience ends before this. Traffic moves keep-alives on without touching it, so a tick may find nothing.
    pub(crate) tick_at: Time,
    /// Commands since they were last taken, if someone watches.
    pub(crate) watched: Option<Vec<CommandOutline>>,
    /// Latencies from here on are of interest to some latency monitor.
    pub(crate) monitored_from: Span,
    /// How often events of placement are made durable.
    pub(crate) event_pace: EventPace,
}

impl Shared {
    pub(crate) fn new(config: TargetConfig) -> Shared {
        Shared {
            memory: Memory::new(&config),
            config,
            subsystems: Subsystems::default(),
            associations: Associations::default(),
            later: Later::default(),
            awaiting: AllAwaiting::default(),
            admin_left: ADMIN_COST_PER_ROUND,
            now: Time::ZERO,
            tick_at: Time::NEVER,
            watched: None,
            monitored_from: Span(u64::MAX),
            event_pace: EventPace::default(),
        }
    }

    /// Sees to it that a tick comes by `at`.
    pub(crate) fn tick_by(&mut self, at: Time) {
        self.tick_at = self.tick_at.min(at);
    }

    /// Who has an association, and where.
    pub(crate) fn host_at(&self, number: u32) -> Option<HostAt> {
        let association = self.associations.get(number)?;
        let subsystem = association.subsystem.map(|index| self.subsystems.get(index).config.nqn.clone());
        let (host, controller_id) = (association.host.clone(), association.controller_id);
        Some(HostAt { subsystem, host, controller_id })
    }

    /// The part of admin queues is whole again.
    pub(crate) fn begin_round(&mut self) {
        self.admin_left = ADMIN_COST_PER_ROUND;
        self.later.begin_round();
    }

    /// Who goes on in this round. Admin queues for which nothing is left keep their places.
    pub(crate) fn next_turn(&mut self) -> Option<u32> {
        self.later.next_turn(self.admin_left > 0)
    }

    /// A command of an admin queue costs as much of the round as its answer is long.
    pub(crate) fn charge_admin(&mut self, answer_bytes: u32) {
        self.admin_left = self.admin_left.saturating_sub(answer_bytes.div_ceil(4096).max(1));
    }

    /// The host of an association was heard.
    #[inline]
    pub(crate) fn hear(&mut self, association: Option<u32>) {
        if let Some(association) = association.and_then(|number| self.associations.get_mut(number)) {
            association.keep_alive.heard_at = self.now;
        }
    }

    /// Keeps a command that failed for the error log of its controller.
    pub(crate) fn record_error(&mut self, connection: &Connection, entry: &SubmissionEntry, status: Status) {
        let queue_id = connection.queue.as_ref().map_or(0, |queue| queue.id);
        if let Some(association) = connection.association.and_then(|number| self.associations.get_mut(number))
        {
            association.record_error(queue_id, entry, status);
        }
    }

    /// Keeps a command for whoever watches.
    #[inline]
    pub(crate) fn watch(&mut self, command: &NamespaceCommand) {
        if let Some(watched) = &mut self.watched {
            watched.push(CommandOutline::of(command));
        }
    }

    /// Sets the health of a subsystem, if it is known. The associations that are to be told of it.
    pub(crate) fn set_health(&mut self, nqn: &QualifiedName, health: Health) -> Vec<u32> {
        let mut told = Vec::new();
        let Some(index) = self.subsystems.find(nqn) else { return told };
        if std::mem::replace(&mut self.subsystems.get_mut(index).health, health) == health {
            return told;
        }
        for (number, association) in self.associations.iter_mut() {
            if association.subsystem == Some(index) {
                association.look_at_health(&health);
                told.push(number);
            }
        }
        told
    }

    /// A write left something to be made durable for its subsystem.
    #[cold]
    pub(crate) fn note_write(&mut self, index: u32) {
        self.later.list_sanitizing(index);
        self.tick_by(self.now + placement::PATIENCE);
    }

    /// A namespace answered a command of this subsystem.
    #[inline]
    pub(crate) fn came_back(&mut self, subsystem: Option<u32>) {
        let index = subsystem.expect("I-T8: who has commands in namespaces has a subsystem");
        self.subsystems.get_mut(index).traffic.busy.end(self.now);
    }

    /// What a host is told of a command that its namespace failed.
    pub(crate) fn status_of(&self, error: &NamespaceError, token: CommandToken) -> Status {
        match error {
            NamespaceError::Aborted if self.awaiting.is_awaited(token) => Status::ABORTED_BY_PREEMPTION,
            error => status_of(error),
        }
    }

    /// The tenant of a connection's account.
    pub(crate) fn tenant_of(&self, subsystem: Option<u32>) -> Option<u32> {
        self.subsystems.get(subsystem?).tenant
    }
}
