//! One TCP connection of a shard's thread.

use crate::doors::Place;
use crate::shares::NOBODY;
use crate::wire::{Plain, Wire};
use diecut_shard::drive::{ConnectionId, Drive, Event, Outbox, ShardIndex};
use diecut_units::{BufferPool, Time};
use mio::{Registry, Token};
use std::io::{ErrorKind, IoSlice};

/// Bytes read from one connection in one round.
pub const BYTES_PER_TURN: usize = 256 << 10;
/// Bytes after which a connection with output left waits for its next turn: about a round's worth of commands, so that
/// a small answer of somebody else, or a command that just arrived, does not wait for a long one.
const BYTES_WRITTEN_PER_TURN: usize = 256 << 10;
/// Receives after which a connection is no newcomer any more: coming up takes a host a dozen messages or two.
const NEWCOMER_RECEIVES: u8 = 32;
/// Slices given to one `writev`.
const SLICES_MAX: usize = 128;

/// Whatever carries the bytes of hosts.
type HostWire = Plain;

pub(crate) struct Connection {
    wire: HostWire,
    pub id: ConnectionId,
    /// The socket may have more to read: edge-triggered readiness tells it once.
    pub readable: bool,
    /// The end of the stream, or its failure, waits behind what can be read; it is not told a second time.
    pub ended: bool,
    pub paused: bool,
    /// The shard asked to transmit and the socket blocked, or its turn has not come.
    pub wants_write: bool,
    pub blocked: bool,
    /// Close when the output is written, at the latest then.
    pub closing: Option<Time>,
    /// All was said and the shard knows nothing of it any more; what the host still sends is thrown away until it hangs up too.
    /// A socket that is closed with unread bytes resets the stream, and the host may lose what was said last.
    pub lingering: bool,
    /// In the list of connections to read.
    pub listed: bool,
    /// Receives so far, up to [`NEWCOMER_RECEIVES`].
    receives: u8,
    /// The shard said that it is a queue of a controller.
    pub is_connected: bool,
    /// Whose it is, in [`crate::shares`].
    pub tenant: u32,
    /// How often its output had to wait for a share since it was written last.
    pub put_off: u8,
    /// Free when the stream is closed.
    pub place: Place,
}

/// A connection on its way to another thread.
pub(crate) struct Moving {
    stream: <HostWire as Wire>::Handoff,
    place: Place,
    is_connected: bool,
    receives: u8,
}

impl Moving {
    /// It has come to this thread; whether it may stay.
    pub fn arrives(&self, shard: ShardIndex) -> bool {
        self.place.arrives(shard)
    }
}

/// How a turn ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// The socket has no more.
    Drained,
    /// There may be more.
    More,
    /// The stream ended or failed.
    Gone,
}

impl Connection {
    pub fn new(stream: <HostWire as Wire>::Handoff, id: ConnectionId, place: Place) -> Connection {
        Connection {
            wire: HostWire::from_handoff(stream),
            id,
            readable: true,
            ended: false,
            paused: false,
            wants_write: false,
            blocked: false,
            closing: None,
            lingering: false,
            listed: false,
            receives: 0,
            is_connected: false,
            tenant: NOBODY,
            put_off: 0,
            place,
        }
    }

    /// Takes over a connection of another thread. A host at work there is at work here.
    pub fn adopted(moving: Moving, id: ConnectionId) -> Connection {
        let Moving { stream, place, is_connected, receives } = moving;
        Connection { receives, is_connected, ..Connection::new(stream, id, place) }
    }

    /// What another thread goes on with; the stream is not watched here any more.
    pub fn into_moving(self) -> Moving {
        let Connection { wire, place, is_connected, receives, .. } = self;
        Moving { stream: wire.into_handoff(), place, is_connected, receives }
    }

    /// Has its readiness told by its number.
    ///
    /// # Errors
    /// What the system says.
    pub fn watch(&mut self, registry: &Registry, token: Token) -> std::io::Result<()> {
        self.wire.watch(registry, token)
    }

    /// Its readiness is not told any more.
    pub fn unwatch(&mut self, registry: &Registry) {
        if let Err(error) = self.wire.unwatch(registry) {
            tracing::debug!("a connection cannot be unwatched: {error}");
        }
    }

    /// Gives it a turn to be read, unless it has one or may not be read.
    #[inline]
    pub fn list(&mut self, number: u32, turns: &mut Vec<u32>) {
        if !self.listed && !self.paused {
            self.listed = true;
            turns.push(number);
        }
    }

    /// Whether its host is only coming up. Newcomers take turns, so that a storm of them does not hold up hosts at work.
    pub fn is_newcomer(&self) -> bool {
        self.receives < NEWCOMER_RECEIVES
    }

    /// Reads a turn's worth and hands it to the shard. How the turn ended, and how many bytes came.
    pub fn read<D: Drive>(
        &mut self,
        shard: &mut D,
        pool: &mut BufferPool,
        now: Time,
        actions: &mut Vec<diecut_shard::drive::Action>,
        system_calls: &mut u64,
    ) -> (Turn, usize) {
        let connection = self.id;
        self.receives = self.receives.saturating_add(1).min(NEWCOMER_RECEIVES);
        let mut received = 0;
        while received < BYTES_PER_TURN {
            *system_calls += 1;
            let (read, asked, event) = if let Some(window) = shard.receive_window(connection) {
                let asked = window.len();
                let read = self.wire.read(window);
                let len_bytes = *read.as_ref().unwrap_or(&0);
                (read, asked, Event::ReceivedInWindow { connection, len_bytes })
            } else {
                // Commands with data in their capsule may keep the buffer until they are done.
                let asked = shard.receive_bytes();
                let mut buffer = pool.take(asked);
                let read = self.wire.read(&mut buffer);
                buffer.truncate(*read.as_ref().unwrap_or(&0));
                (read, asked, Event::Received { connection, bytes: buffer.freeze() })
            };
            match read {
                Ok(0) => return (Turn::Gone, received),
                Ok(bytes) => {
                    let before = actions.len();
                    shard.handle(event, now, actions);
                    received += bytes;
                    // Whatever the shard wants now (a pause, a hand-over) comes before more bytes.
                    let wants = actions[before..]
                        .iter()
                        .any(|action| !matches!(action, diecut_shard::drive::Action::Transmit { .. }));
                    // A short read empties the socket; asking again would cost a system call to learn it. An end
                    // that is already known is still to be read.
                    if bytes < asked && !self.ended {
                        return (Turn::Drained, received);
                    }
                    if wants {
                        return (Turn::More, received);
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return (Turn::Drained, received),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return (Turn::Gone, received),
            }
        }
        (Turn::More, received)
    }

    /// Says that nothing more will come, and lingers.
    pub fn finish(&mut self) {
        if let Err(error) = self.wire.finish() {
            tracing::debug!("a stream cannot be shut down: {error}");
        }
        (self.lingering, self.paused) = (true, false);
    }

    /// Reads a turn's worth and throws it away.
    pub fn discard(&mut self, system_calls: &mut u64) -> Turn {
        let mut bytes = [0; 16 << 10];
        for _ in 0..BYTES_PER_TURN / bytes.len() {
            *system_calls += 1;
            match self.wire.read(&mut bytes) {
                Ok(0) => return Turn::Gone,
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Turn::Drained,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return Turn::Gone,
            }
        }
        Turn::More
    }

    /// Writes output until there is none, the socket blocks, or the turn is over. How the turn ended, and how many bytes went.
    pub fn write<D: Drive>(
        &mut self,
        shard: &mut D,
        actions: &mut Vec<diecut_shard::drive::Action>,
        system_calls: &mut u64,
    ) -> (Turn, usize) {
        let mut written = 0;
        loop {
            let Some(outbox) = shard.outbox(self.id).filter(|outbox| !outbox.is_empty()) else {
                self.wants_write = false;
                return (Turn::Drained, written);
            };
            if written >= BYTES_WRITTEN_PER_TURN {
                return (Turn::More, written);
            }
            *system_calls += 1;
            match write_some(&mut self.wire, outbox) {
                Ok(0) => return (Turn::Gone, written),
                Ok(bytes) => {
                    written += bytes;
                    shard.sent(self.id, bytes, actions);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.blocked = true;
                    return (Turn::More, written);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return (Turn::Gone, written),
            }
        }
    }
}

fn write_some(wire: &mut impl Wire, outbox: &Outbox) -> std::io::Result<usize> {
    let mut slices = [IoSlice::new(&[]); SLICES_MAX];
    let (mut count, mut bytes) = (0, 0);
    for (place, slice) in slices.iter_mut().zip(outbox.io_slices()) {
        // Answers can be large: one call must not be longer than a turn.
        if bytes >= BYTES_WRITTEN_PER_TURN {
            break;
        }
        bytes += slice.len();
        *place = slice;
        count += 1;
    }
    wire.write_vectored(&slices[..count])
}

#[cfg(test)]
mod test {
    use super::*;
    use mio::net::TcpStream;

    /// Goal: hosts at work are not heard one by one, as newcomers are, when their tenant changed its shard. Method: a connection that
    /// received as often as hosts at work do, and one that did not, on their way to another thread.
    #[test]
    fn a_host_at_work_is_no_newcomer_on_another_thread() {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let connect = || TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let doors = std::sync::Arc::new(crate::doors::Doors::new(Default::default()));
        let moved = |receives| {
            let peer = std::net::IpAddr::from([127, 0, 0, 1]);
            let (place, _) =
                doors.enter(peer, ConnectionId(1 + u64::from(receives)), ShardIndex(0), Time::ZERO).unwrap();
            let connection = Connection { receives, ..Connection::new(connect(), ConnectionId(1), place) };
            Connection::adopted(connection.into_moving(), ConnectionId(1))
        };
        assert!(!moved(NEWCOMER_RECEIVES).is_newcomer());
        assert!(moved(NEWCOMER_RECEIVES - 1).is_newcomer());
    }
}
