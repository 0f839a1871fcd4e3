//! How connections and associations end: by silence, by a stream that is gone, by a reset; and what must be back before they are
//! forgotten.

use crate::budget::Account;
use crate::connection::{Connection, Held, Phase};
use crate::event::Action;
use crate::notice::HostNotice;
use crate::placement;
use crate::sanitize;
use crate::shared::Shared;
use crate::subsystems::{Subsystem, Subsystems};
use crate::target::Target;
use crate::token::{connection_of, is_of_shutdown};
use diecut_namespace::contract::{NamespaceCompletion, SourceId};
use diecut_nvme::QualifiedName;
use diecut_units::{Time, mark, mutant};

/// Whether patience with a connection ends at its deadline.
fn is_awaited(connection: &Connection) -> bool {
    !matches!(connection.phase(), Phase::Live | Phase::Parked)
}

impl Target {
    /// What no queue asked is answered: of a sanitize operation, or a flush that a shutdown waits for.
    pub(crate) fn complete_for_nobody(
        &mut self,
        completion: &NamespaceCompletion,
        actions: &mut Vec<Action>,
    ) {
        if !is_of_shutdown(completion.token) {
            return sanitize::complete(self, completion, actions);
        }
        let index = connection_of(completion.token);
        let connection = self.connections.there(index);
        connection.queue.as_mut().expect("I-T11: a live connection has a queue").came_back();
        let number = connection.association.expect("I-T3: it stays until its connections are quiet");
        let association = self.shared.associations.kept_mut(number);
        association.flushes.answered(completion.result.is_ok());
        self.quiet_if_done(index);
        self.forget_if_done(index);
    }

    /// The account of a new connection. Where newcomers have all they may, the oldest of those that have not sent Connect makes room:
    /// who only holds a place must not keep out who wants to work. Nothing if there is none, or it does not help.
    pub(crate) fn open_newcomer(&mut self, actions: &mut Vec<Action>) -> Option<Account> {
        let account = self.shared.memory.open_newcomer();
        if account.is_some() || mutant!("nvmf: silent connections keep all places") {
            return account;
        }
        let index = self.connections.oldest_newcomer()?;
        mark!("nvmf: oldest connection without Connect makes room");
        actions.push(Action::Notice(Box::new(HostNotice::MadeRoom)));
        // Whoever holds a place without a word is told nothing: what is unsent holds memory, too.
        let connection = self.connections.there(index);
        let id = connection.id;
        connection.outbound.stream_gone = true;
        self.close_connection(index, actions);
        actions.push(Action::Close(id));
        self.shared.memory.open_newcomer()
    }

    /// Ends what was silent for too long, and what holds memory that others wait for.
    pub(crate) fn tick(&mut self, actions: &mut Vec<Action>) {
        let now = self.shared.now;
        let Shared { associations, subsystems, .. } = &self.shared;
        let silent = associations.iter().filter(|(_, one)| one.expires() <= now && !one.is_ending());
        let expired: Vec<u32> = silent
            .filter(|(_, one)| !subsystems.is_frozen(one.subsystem))
            .map(|(number, _)| number)
            .collect();
        if !expired.is_empty() {
            mark!("nvmf: keep-alive expired");
        }
        let named = expired.iter().filter_map(|&number| self.shared.host_at(number));
        actions.extend(named.map(|at| Action::Notice(Box::new(HostNotice::Expired(at)))));
        self.shared.later.doomed.extend(expired);
        if self.shared.memory.waiting.stall_at() <= now {
            let stalled = if self.shared.memory.waiting.is_empty() { Vec::new() } else { self.stalled() };
            for index in stalled {
                mark!("nvmf: host that holds memory and does nothing is hung up on");
                let at = self.connections.get(index).and_then(|one| self.shared.host_at(one.association?));
                actions.extend(at.map(|at| Action::Notice(Box::new(HostNotice::Stalled(at)))));
                self.lose_connection(index, actions);
            }
            self.shared.memory.waiting.looked_for_stalled(now);
        }
        let late = |one: &Connection| is_awaited(one) && one.deadline <= now;
        let impatient: Vec<u32> =
            self.connections.iter().filter(|(_, one)| late(one)).map(|(index, _)| index).collect();
        for index in impatient {
            let connection = self.connections.there(index);
            if connection.phase() == Phase::Closing {
                connection.outbound.stream_gone = true;
                connection.deadline = Time::NEVER;
                self.forget_if_done(index);
            } else {
                self.close_connection(index, actions);
            }
        }
        placement::keep_due(&mut self.shared, actions);
        self.sweep(actions);
        self.shared.tick_at = self.next_deadline();
    }

    /// The earliest end of anyone's patience, but for who waits for memory, or when events are to be kept.
    fn next_deadline(&self) -> Time {
        let Shared { associations, subsystems, .. } = &self.shared;
        let patient =
            associations.iter().filter(|(_, one)| !one.is_ending() && !subsystems.is_frozen(one.subsystem));
        let expiries = patient.map(|(_, one)| one.expires());
        let awaited = self.connections.iter().filter(|(_, one)| is_awaited(one));
        let patience = expiries.chain(awaited.map(|(_, one)| one.deadline)).min();
        patience.unwrap_or(Time::NEVER).min(placement::deadline(&self.shared))
    }

    /// While others wait for memory: connections that hold some, and did nothing with it since this was last called.
    fn stalled(&mut self) -> Vec<u32> {
        let mut stalled = Vec::new();
        for (index, one) in self.connections.iter_mut() {
            let (inbound, outbox) = (&one.inbound, &one.outbound.outbox);
            let (taken, heard) = one.holding.seen;
            let asked = one.queue.as_ref().is_some_and(|queue| queue.gather_bytes > 0);
            let deaf = !outbox.is_empty() && taken == outbox.consumed_bytes();
            let is_amid = asked || !inbound.receiver.is_between_pdus();
            let mute = is_amid && heard == inbound.heard && !inbound.data_wait;
            one.holding.seen = (outbox.consumed_bytes(), inbound.heard);
            let holds = !one.holding.account.is_within_reserve();
            if one.phase() == Phase::Live && !one.held.is_any() && holds && (deaf || mute) {
                stalled.push(index);
            }
        }
        stalled
    }

    /// The stream is gone, or the host ended it.
    pub(crate) fn lose_connection(&mut self, index: u32, actions: &mut Vec<Action>) {
        let doomed = self.connections.there(index).own_association();
        self.shared.later.doomed.extend(doomed);
        self.close_connection(index, actions);
    }

    /// Stops reading a connection. What it has in namespaces comes back before it is forgotten.
    pub(crate) fn close_connection(&mut self, index: u32, actions: &mut Vec<Action>) {
        let deadline = self.shared.now + self.shared.config.controllers.connect_time;
        self.shared.tick_by(deadline);
        let connection = self.connections.there(index);
        if connection.phase() != Phase::Closing {
            connection.parked = None;
            connection.enter(Phase::Closing);
            connection.deadline = deadline;
            connection.inbound.close();
            self.shared.later.unpark(index);
            if !connection.outbound.stream_gone {
                connection.tell_output(actions);
                actions.push(Action::Close(connection.id));
            }
            if connection.submitted() > 0 {
                actions.push(Action::GiveUp(SourceId(index), None));
            }
        }
        self.fence(index);
        self.shared.memory.balance(self.connections.there(index));
        self.quiet_if_done(index);
        self.forget_if_done(index);
    }

    /// While a closed queue has commands in namespaces, the other queues of its host on that subsystem wait: a host that goes
    /// on over another path must not be overtaken by what the lost one had begun. Admin queues go on, so that keep-alives
    /// and resets are answered.
    fn fence(&mut self, index: u32) {
        let connection = self.connections.there(index);
        if connection.is_late || connection.submitted() == 0 {
            return;
        }
        let Some(number) = connection.association else { return };
        connection.is_late = true;
        if mutant!("nvmf: other paths overtake a lost one") {
            return;
        }
        for other in self.shared.associations.queues_of_host(number) {
            let other = self.connections.there(other);
            if other.phase() == Phase::Live && !other.is_admin() {
                mark!("nvmf: other queues wait for those of a lost path");
                other.held.insert(Held::FENCED);
            }
        }
    }

    /// The commands of a closed queue are back: its host's other queues go on, if it was the last such one. `number` is the
    /// association it belonged to.
    fn lift_fence(&mut self, number: u32) {
        let queues = self.shared.associations.queues_of_host(number);
        if self.connections.has_late(&queues) {
            return;
        }
        for other in queues {
            self.connections.there(other).held.remove(Held::FENCED);
            self.make_runnable(other);
        }
    }

    /// Takes a closing connection without commands in namespaces from its association; the last one ends that.
    pub(crate) fn quiet_if_done(&mut self, index: u32) {
        let connection = self.connections.there(index);
        if connection.phase() != Phase::Closing || connection.submitted() > 0 {
            return;
        }
        let Some(number) = connection.association.take() else { return };
        let was_late = std::mem::take(&mut connection.is_late);
        let association = self.shared.associations.kept_mut(number);
        let before = association.connections.len();
        association.connections.retain(|&other| other != index);
        assert_eq!(
            association.connections.len() + 1,
            before,
            "I-T3: an association has each connection once"
        );
        if was_late {
            self.lift_fence(number);
        }
        self.end_if_quiet(number);
    }

    /// Forgets an association that ends and has no connection left.
    fn end_if_quiet(&mut self, number: u32) {
        let association = self.shared.associations.kept(number);
        if association.is_ending() && association.connections.is_empty() {
            let association = self.shared.associations.remove(number);
            let awaited = association.flushes.awaited;
            assert_eq!(awaited, 0, "I-T8: an association goes when its flushes are answered");
            self.shared.memory.budget.leave_host(association.host_account);
            if let Some(subsystem) = association.subsystem {
                self.free_subsystem_if_quiet(subsystem);
            }
        }
    }

    /// Whether no controller of the subsystem is left, and no command of it or of its sanitize operation is in a namespace.
    pub fn is_quiet(&self, nqn: &QualifiedName) -> bool {
        let Shared { associations, subsystems, .. } = &self.shared;
        let of = |index: u32| subsystems.get(index).config.nqn == *nqn;
        let sanitizes = |(index, one): (u32, &Subsystem)| of(index) && one.sanitizing.is_under_way();
        !associations.iter().any(|(_, one)| one.subsystem.is_some_and(of))
            && !subsystems.iter().any(sanitizes)
    }

    /// Forgets a subsystem that was taken away, when its last controller is gone.
    pub(crate) fn free_subsystem_if_quiet(&mut self, index: u32) {
        let Shared { subsystems, associations, memory, .. } = &mut self.shared;
        let is_left = |subsystems: &Subsystems| !subsystems.get(index).sanitizing.is_under_way();
        let has_hosts = associations.of(Some(index)).next().is_some();
        if subsystems.is_retired(index) && !has_hosts && is_left(subsystems) {
            let removed = subsystems.remove(index);
            if let Some(tenant) = removed.tenant {
                memory.budget.leave_tenant(tenant);
            }
        }
    }

    /// Forgets a closing connection when nothing is left of it.
    pub(crate) fn forget_if_done(&mut self, index: u32) {
        let Some(connection) = self.connections.get(index) else { return };
        let done = connection.phase() == Phase::Closing
            && connection.association.is_none()
            && connection.submitted() == 0
            && (connection.outbound.stream_gone || connection.outbound.outbox.is_empty());
        if done {
            let mut connection = self.connections.remove(index);
            assert!(
                !self.shared.later.parked.contains(&index),
                "I-T2: who is forgotten does not wait with a Connect"
            );
            self.shared.memory.balance(&mut connection);
            if connection.outbound.stream_gone && mutant!("nvmf: budget of a lost connection not given back")
            {
                return;
            }
            self.shared.memory.budget.close(connection.holding.account);
        }
    }

    /// Ends what was doomed while a connection was lent out, and lets parked Connects go on that now can.
    #[inline]
    pub(crate) fn sweep(&mut self, actions: &mut Vec<Action>) {
        if self.shared.later.has_any() {
            self.sweep_lists(actions);
        }
        if !self.shared.later.sanitizing.is_empty() {
            sanitize::go_on(self, actions);
        }
    }

    #[cold]
    fn sweep_lists(&mut self, actions: &mut Vec<Action>) {
        while let Some(index) = self.shared.later.told.pop() {
            if let Some(connection) = self.connections.get_mut(index) {
                connection.tell_output(actions);
            }
        }
        if !self.shared.later.has_ends() {
            return;
        }
        loop {
            while let Some(index) = self.shared.later.closing.pop() {
                if self.connections.get(index).is_some() {
                    self.close_connection(index, actions);
                }
            }
            while let Some(number) = self.shared.later.doomed.pop() {
                self.end_association(number, actions);
            }
            let ready = self.shared.later.parked.iter().copied().find(|&index| self.may_connect(index));
            let Some(index) = ready else { return };
            self.connect_parked(index, actions);
        }
    }

    /// Begins the end of an association: its connections are closed. Nothing if it ends already, or is gone.
    fn end_association(&mut self, number: u32, actions: &mut Vec<Action>) {
        let Some(association) = self.shared.associations.get_mut(number) else { return };
        if association.is_ending() {
            return;
        }
        association.end();
        let connections = association.connections.clone();
        let at = self.shared.host_at(number);
        actions.extend(at.map(|at| Action::Notice(Box::new(HostNotice::Went(at)))));
        if connections.is_empty() {
            self.end_if_quiet(number);
        }
        for index in connections {
            self.close_connection(index, actions);
        }
    }

    /// Whether what the Connect of a parked connection waits for is over.
    fn may_connect(&self, index: u32) -> bool {
        let connection = self.connections.get(index).expect("I-T2: who waits with a Connect is there");
        let (_, data) = connection.parked.as_deref().expect("I-T2: parked with its Connect");
        let (subsystem, Shared { associations, subsystems, now, .. }) = (connection.subsystem, &self.shared);
        if subsystems.is_frozen(subsystem) {
            return false;
        }
        let Ok(host) = data.host() else { return true };
        associations.gone(subsystem, host.as_ref(), &data.host_id, *now).next().is_none()
    }

    /// Decides on all Connects that waited while a subsystem changed its shard.
    pub(crate) fn connect_all_parked(&mut self, subsystem: u32, actions: &mut Vec<Action>) {
        let own = |index: &u32| {
            let connection = self.connections.get(*index).expect("I-T2: who waits with a Connect is there");
            connection.subsystem == Some(subsystem)
        };
        let own: Vec<u32> = self.shared.later.parked.iter().copied().filter(own).collect();
        for index in own {
            self.connect_parked(index, actions);
        }
    }
}
