//! Hosts that come: listeners, and when they have their turn.
//!
//! Accepting a connection costs as much as a dozen commands, and the commands of a round wait for it. A backlog is taken one by one
//! from each listener, in rounds that follow each other at once.

use crate::common::Common;
use crate::doors::{Chosen, Full, Place};
use diecut_shard::drive::{ConnectionId, ShardIndex};
use diecut_units::{Span, Time};
use mio::net::{TcpListener, TcpStream};
use mio::{Interest, Registry, Token};
use socket2::{SockRef, TcpKeepalive};
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// When a thread whose queue was full is tried again.
const RETRY_AFTER: Span = Span::from_millis(2);
/// When a listener is tried again that had no descriptor or memory for a connection.
const WANT_PATIENCE: Span = Span::from_millis(100);
/// The kernel asks whether a host is there that was silent for so long, and gives it up after some silent answers.
const PROBE_AFTER: Duration = Duration::from_secs(30);
const PROBE_EVERY: Duration = Duration::from_secs(10);

/// A host that came.
pub(crate) enum Came {
    /// It has a place on a shard.
    In(Guest),
    /// It is hung up on at once.
    Turned(IpAddr, Full),
    /// It waits in the kernel: the process lacks what a connection takes.
    Waits(std::io::Error),
}

/// A host that has a place on a shard.
pub(crate) struct Guest {
    pub stream: TcpStream,
    pub id: ConnectionId,
    pub shard: usize,
    pub place: Place,
    /// The address it came to.
    pub local: Option<SocketAddr>,
    /// Who has to go for it.
    pub away: [Option<Chosen>; 2],
}

/// See the module.
pub(crate) struct Acceptor {
    listeners: Vec<TcpListener>,
    /// Hosts wait until they may come.
    is_closed: bool,
    /// Listeners that may have more connections.
    is_due: bool,
    /// The last round accepted.
    accepted: bool,
    again_at: Time,
    next_shard: usize,
}

impl Acceptor {
    /// Watches listeners, the first of them as `first`.
    ///
    /// # Errors
    /// What the system says when a listener cannot be watched.
    pub fn new(
        mut listeners: Vec<TcpListener>,
        is_closed: bool,
        registry: &Registry,
        first: usize,
    ) -> std::io::Result<Acceptor> {
        for (number, listener) in listeners.iter_mut().enumerate() {
            registry.register(listener, Token(first + number), Interest::READABLE)?;
        }
        let (is_due, accepted, again_at) = (false, false, Time::NEVER);
        Ok(Acceptor { listeners, is_closed, is_due, accepted, again_at, next_shard: 0 })
    }

    /// Lets go of the listeners; with whether hosts wait until they may come.
    pub fn let_go(mut self, registry: &Registry) -> (Vec<TcpListener>, bool) {
        for listener in &mut self.listeners {
            if let Err(error) = registry.deregister(listener) {
                tracing::debug!("a listener cannot be unwatched: {error}");
            }
        }
        (self.listeners, self.is_closed)
    }

    /// A listener has connections.
    pub fn is_ready(&mut self) {
        self.is_due = true;
    }

    /// Hosts may come now.
    pub fn open(&mut self) {
        (self.is_closed, self.is_due) = (false, true);
    }

    /// Whether a listener is to be looked at in the next round.
    pub fn is_due(&self) -> bool {
        self.is_due
    }

    /// When listeners are looked at again.
    pub fn deadline(&self) -> Time {
        self.again_at
    }

    /// Whether this round accepts: not two rounds in turn do. `is_full`: messages for other threads wait, and whoever has too much
    /// takes no more.
    pub fn begin_turn(&mut self, is_full: bool, now: Time) -> bool {
        let accepted_before = std::mem::replace(&mut self.accepted, false);
        if is_full {
            self.again_at = now + RETRY_AFTER;
        } else if self.is_closed {
            // Looked at when they may come.
            (self.is_due, self.again_at) = (false, Time::NEVER);
        } else if (self.is_due || self.again_at <= now) && !accepted_before {
            (self.is_due, self.again_at) = (false, Time::NEVER);
            self.accepted = true;
        }
        self.accepted
    }

    /// Listeners to take from in a turn.
    pub fn listeners(&self) -> std::ops::Range<usize> {
        0..self.listeners.len()
    }

    /// Takes a host from a listener, if one waits there. `is_full` as for [`Acceptor::begin_turn`]: it may have become so by what the
    /// listener before found.
    pub fn accept(&mut self, listener: usize, common: &Common, is_full: bool, now: Time) -> Option<Came> {
        // Edge-triggered readiness is not told again for what still waits: it has its turn in the next round.
        if is_full {
            self.is_due = true;
            return None;
        }
        if common.doors.is_busy() {
            // Those that were sent away must be gone first: there is a descriptor for each place, and not many more.
            self.again_at = now + RETRY_AFTER;
            self.is_due = true;
            return None;
        }
        let (stream, peer) = match self.listeners[listener].accept() {
            Ok(found) => found,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return None,
            Err(error) if matches!(error.kind(), ErrorKind::ConnectionAborted | ErrorKind::Interrupted) => {
                self.is_due = true;
                return None;
            }
            Err(error) => {
                // Out of descriptors or memory: the connection waits in the kernel, and so do we.
                self.again_at = now + WANT_PATIENCE;
                return Some(Came::Waits(error));
            }
        };
        self.is_due = true;
        let id = ConnectionId(common.next_connection.fetch_add(1, Ordering::Relaxed));
        let (shard, peer) = (self.next_shard, peer.ip().to_canonical());
        let (place, away) = match common.doors.enter(peer, id, ShardIndex(shard as u16), now) {
            Ok(entered) => entered,
            Err(full) => return Some(Came::Turned(peer, full)),
        };
        keep_prompt(&stream);
        self.next_shard = (shard + 1) % common.addresses.len();
        Some(Came::In(Guest { local: stream.local_addr().ok(), stream, id, shard, place, away }))
    }
}

/// Small answers do not wait for more of them, and a host that vanishes is noticed.
fn keep_prompt(stream: &TcpStream) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!("TCP_NODELAY: {error}");
    }
    // A host may vanish without a word and without a keep-alive of NVMe; its association ends with the connection.
    let keep_alive = TcpKeepalive::new().with_time(PROBE_AFTER).with_interval(PROBE_EVERY);
    if let Err(error) = SockRef::from(stream).set_tcp_keepalive(&keep_alive) {
        tracing::debug!("SO_KEEPALIVE: {error}");
    }
}
