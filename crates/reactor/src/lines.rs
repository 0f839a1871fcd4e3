//! The connections of a thread, and whose turn it is to be read, written and closed.

use crate::connection::Connection;
use diecut_shard::drive::ConnectionId;
use diecut_units::{Slab, Time};
use mio::{Registry, Token};
use std::collections::BTreeMap;

/// See the module. A connection's number is its token at the poll.
#[derive(Default)]
pub(crate) struct Lines {
    slab: Slab<Connection>,
    by_id: BTreeMap<ConnectionId, u32>,
    /// Connections to read, and to write, in the order of their turns.
    pub to_read: Vec<u32>,
    pub to_write: Vec<u32>,
    /// Those that close when their output is written, or are late with that.
    closing: Vec<u32>,
    /// The other half of a double buffer for turns.
    spare: Vec<u32>,
    /// Connections whose turn it was, and whose tenant had used up its share of the round: they are first in the next round, before
    /// those that had a turn and go on.
    pub late: Vec<u32>,
}

impl Lines {
    /// Adds a connection, watches its stream and lists it to be read.
    ///
    /// # Errors
    /// What the system says if it cannot be watched; it is dropped.
    pub fn add(&mut self, mut connection: Connection, registry: &Registry) -> std::io::Result<()> {
        let number = self.slab.next_index();
        connection.watch(registry, Token(number as usize))?;
        let before = self.by_id.insert(connection.id, number);
        assert!(before.is_none(), "I-R1: {:?} is on one thread", connection.id);
        connection.list(number, &mut self.to_read);
        let given = self.slab.insert(connection);
        assert_eq!(given, number, "I-R1: a connection is told of by its number");
        Ok(())
    }

    /// Takes a connection out; nobody has a turn for it any more.
    pub fn remove(&mut self, number: u32, registry: &Registry) -> Option<Connection> {
        self.slab.get(number)?;
        let mut connection = self.slab.remove(number);
        connection.unwatch(registry);
        self.by_id.remove(&connection.id);
        self.to_read.retain(|&other| other != number);
        self.to_write.retain(|&other| other != number);
        self.late.retain(|&other| other != number);
        self.closing.retain(|&other| other != number);
        Some(connection)
    }

    #[inline]
    pub fn get(&self, number: u32) -> Option<&Connection> {
        self.slab.get(number)
    }

    #[inline]
    pub fn get_mut(&mut self, number: u32) -> Option<&mut Connection> {
        self.slab.get_mut(number)
    }

    /// Number of a connection that the shard knows.
    #[inline]
    pub fn number_of(&self, id: ConnectionId) -> Option<u32> {
        self.by_id.get(&id).copied()
    }

    /// Number of a connection, also of one that lingers, which the shard does not know any more.
    pub fn number_of_any(&self, id: ConnectionId) -> Option<u32> {
        let is_it = |number: &u32| self.get(*number).is_some_and(|one| one.id == id);
        self.number_of(id).or_else(|| self.closing.iter().copied().find(is_it))
    }

    /// The shard asked for a change of a connection. Nothing if that is gone.
    pub fn known(&mut self, id: ConnectionId) -> Option<(u32, &mut Connection)> {
        let number = self.number_of(id)?;
        Some((number, self.slab.get_mut(number).expect("I-R1: a connection that is known is there")))
    }

    /// The poll told of a connection.
    #[inline]
    pub fn is_ready(&mut self, number: u32, event: &mio::event::Event) {
        let Some(connection) = self.slab.get_mut(number) else { return };
        if event.is_readable() || event.is_read_closed() || event.is_error() {
            connection.readable = true;
            connection.ended |= event.is_read_closed() || event.is_error();
            connection.list(number, &mut self.to_read);
        }
        if event.is_writable() && connection.blocked {
            connection.blocked = false;
            self.to_write.push(number);
        }
    }

    /// Lists a connection to be read, unless it is or may not be.
    pub fn list(&mut self, number: u32) {
        if let Some(connection) = self.slab.get_mut(number) {
            connection.list(number, &mut self.to_read);
        }
    }

    /// The shard has output for a connection.
    pub fn transmit(&mut self, id: ConnectionId) {
        let Some((number, one)) = self.known(id) else { return };
        if !std::mem::replace(&mut one.wants_write, true) {
            self.to_write.push(number);
        }
    }

    /// A connection closes when its output is written, at the latest at `by`.
    pub fn close(&mut self, id: ConnectionId, by: Time) {
        let Some((number, one)) = self.known(id) else { return };
        one.closing = Some(by);
        debug_assert!(!self.closing.contains(&number), "I-R2: who closes is listed once");
        self.closing.push(number);
        if !self.to_write.contains(&number) {
            self.to_write.push(number);
        }
    }

    /// Reads a connection no more, or again.
    pub fn pause(&mut self, id: ConnectionId, paused: bool) {
        let Some((number, one)) = self.known(id) else { return };
        one.paused = paused;
        if !paused && one.readable {
            self.list(number);
        }
    }

    /// All was written and the shard wants no more of a connection: it waits for the end of the stream, and the shard forgets it.
    /// Nothing if it is gone.
    pub fn linger(&mut self, number: u32) -> Option<ConnectionId> {
        let connection = self.slab.get_mut(number)?;
        connection.finish();
        let id = connection.id;
        connection.list(number, &mut self.to_read);
        self.by_id.remove(&id);
        Some(id)
    }

    /// Takes the turns of a list; what comes meanwhile is for the next round. [`Lines::end_turns`] follows.
    pub fn begin_turns(&mut self, list: fn(&mut Lines) -> &mut Vec<u32>) -> Vec<u32> {
        let spare = std::mem::take(&mut self.spare);
        std::mem::replace(list(self), spare)
    }

    /// Gives the memory of a list of turns back, when they are over.
    pub fn end_turns(&mut self, list: fn(&mut Lines) -> &mut Vec<u32>, turns: Vec<u32>) {
        assert!(turns.is_empty(), "I-R2: whoever had a turn is taken from the list");
        self.spare = turns;
        if !self.late.is_empty() {
            let mut late = std::mem::take(&mut self.late);
            late.append(list(self));
            self.late = std::mem::replace(list(self), late);
        }
    }

    /// Whether somebody has a turn.
    #[inline]
    pub fn has_turns(&self) -> bool {
        !self.to_read.is_empty() || !self.to_write.is_empty()
    }

    /// When the next connection that closes is late.
    pub fn deadline(&self) -> Time {
        let by = self.closing.iter().filter_map(|&number| self.get(number)?.closing);
        by.min().unwrap_or(Time::NEVER)
    }

    /// Connections that close and are late with it, the one that closed last first.
    pub fn late(&self, now: Time) -> Vec<u32> {
        let is_late = |number: &u32| self.get(*number).and_then(|one| one.closing).is_none_or(|by| by <= now);
        self.closing.iter().rev().copied().filter(is_late).collect()
    }
}
