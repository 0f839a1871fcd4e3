//! The connections of a target: by index, by what the driver calls them, and in the order in which they came.

use crate::connection::{Connection, Phase};
use crate::event::ConnectionId;
use diecut_units::Slab;
use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};

#[derive(Debug, Default)]
pub(crate) struct Connections {
    slab: Slab<Box<Connection>>,
    by_id: BTreeMap<ConnectionId, u32>,
    /// Whom the driver spoke of last: it mostly speaks of one several times.
    spoken_of: Cell<Option<(ConnectionId, u32)>>,
    /// In the order in which they came; those in front may have become queues, or be gone.
    newcomers: VecDeque<ConnectionId>,
}

impl Connections {
    /// Adds a connection, which learns its index.
    ///
    /// # Panics
    /// If the driver's number was used before.
    pub(crate) fn add(&mut self, mut connection: Connection) -> u32 {
        let (id, index) = (connection.id, self.slab.next_index());
        connection.index = index;
        let given = self.slab.insert(Box::new(connection));
        assert_eq!(given, index, "I-T1: a connection knows its index");
        assert!(self.by_id.insert(id, index).is_none(), "I-T1: connection {id:?} is new");
        self.newcomers.push_back(id);
        // Those in front that are none any more are taken out.
        self.oldest_newcomer();
        index
    }

    /// Forgets a connection.
    ///
    /// # Panics
    /// If it is not there, or lent.
    pub(crate) fn remove(&mut self, index: u32) -> Box<Connection> {
        let connection = self.slab.remove(index);
        let known = self.by_id.remove(&connection.id);
        self.spoken_of.set(None);
        assert_eq!(known, Some(index), "I-T1: a connection is known by its id as long as it is there");
        connection
    }

    /// Index of a connection that the driver speaks of; nothing if it is forgotten.
    #[inline]
    pub(crate) fn index_of(&self, id: ConnectionId) -> Option<u32> {
        match self.spoken_of.get() {
            Some((known, index)) if known == id => Some(index),
            _ => {
                let index = *self.by_id.get(&id)?;
                self.spoken_of.set(Some((id, index)));
                Some(index)
            }
        }
    }

    #[inline]
    pub(crate) fn by_id(&self, id: ConnectionId) -> Option<&Connection> {
        self.get(self.index_of(id)?)
    }

    #[inline]
    pub(crate) fn lend(&mut self, index: u32) -> Box<Connection> {
        self.slab.lend(index)
    }

    #[inline]
    pub(crate) fn put_back(&mut self, index: u32, connection: Box<Connection>) {
        assert_eq!(connection.index, index, "I-T1: a connection knows its index");
        self.slab.put_back(index, connection);
    }

    #[inline]
    pub(crate) fn get(&self, index: u32) -> Option<&Connection> {
        self.slab.get(index).map(|connection| &**connection)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, index: u32) -> Option<&mut Connection> {
        self.slab.get_mut(index).map(|connection| &mut **connection)
    }

    /// One that is there and not lent.
    ///
    /// # Panics
    /// If not.
    #[inline]
    pub(crate) fn there(&mut self, index: u32) -> &mut Connection {
        self.get_mut(index).expect("I-T1: whoever names a connection by its index knows that it is there")
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &Connection)> {
        self.slab.iter().map(|(index, connection)| (index, &**connection))
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut Connection)> {
        self.slab.iter_mut().map(|(index, connection)| (index, &mut **connection))
    }

    /// Whether namespaces have commands of one of these, which is closed and keeps its host's others waiting.
    pub(crate) fn has_late(&self, connections: &[u32]) -> bool {
        connections.iter().any(|&index| self.get(index).is_some_and(|one| one.is_late))
    }

    /// The oldest connection that has not sent Connect.
    pub(crate) fn oldest_newcomer(&mut self) -> Option<u32> {
        while let Some(&id) = self.newcomers.front() {
            let is_newcomer = |one: &Connection| matches!(one.phase(), Phase::Initialize | Phase::Connect);
            match self.by_id(id) {
                Some(one) if is_newcomer(one) => return Some(one.index),
                _ => self.newcomers.pop_front(),
            };
        }
        None
    }
}
