//! What a driver (`reactor` or `sim`) exchanges with a shard.

use crate::control::{ControlRequest, ControlResponse, ControlToken};
use diecut_units::Buffer;

/// A shard of the server; one per core.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardIndex(pub u16);

/// A byte stream between a host and the server, numbered by the driver, unique over all shards and never used
/// again while the process lives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub u64);

/// What the driver tells the shard.
#[derive(Debug)]
pub enum Event {
    /// A host opened a connection to the NVMe/TCP port.
    Accepted {
        /// The new connection.
        connection: ConnectionId,
        /// Address of the host, for reports.
        peer: String,
    },
    /// Bytes arrived. The shard keeps slices of `bytes` for as long as commands need them.
    Received {
        /// The connection.
        connection: ConnectionId,
        /// The next bytes of the stream.
        bytes: Buffer,
    },
    /// A connection that another shard handed over, with what was read but not parsed.
    Adopted {
        /// The connection.
        connection: ConnectionId,
        /// State of the connection.
        state: Box<HandOver>,
    },
    /// The stream ended or failed; nothing more can be sent or received.
    Closed {
        /// The connection.
        connection: ConnectionId,
    },
    /// An administrator asks something.
    Control {
        /// Comes back with the response.
        token: ControlToken,
        /// The request.
        request: Box<ControlRequest>,
    },
    /// Time passed; the driver calls with it when [`now`](crate::drive) reaches the shard's deadline.
    Tick,
}

/// What the shard asks of the driver.
#[derive(Debug)]
pub enum Action {
    /// The connection has output: take it from the shard's outbox of that connection and write it to the
    /// stream, until it is empty or the stream blocks.
    Transmit {
        /// The connection.
        connection: ConnectionId,
    },
    /// Close the stream after its output was written. No event of it is expected any more.
    Close {
        /// The connection.
        connection: ConnectionId,
    },
    /// Give the stream to another shard, as [`Event::Adopted`] with this state.
    HandOver {
        /// The connection.
        connection: ConnectionId,
        /// Its new home.
        to: ShardIndex,
        /// State of the connection.
        state: Box<HandOver>,
    },
    /// Stop reading the connection until [`Action::Resume`]: it has more under way than it may.
    Pause {
        /// The connection.
        connection: ConnectionId,
    },
    /// Read the connection again.
    Resume {
        /// The connection.
        connection: ConnectionId,
    },
    /// Answer of a control request.
    Answer {
        /// Token of the request.
        token: ControlToken,
        /// The response.
        response: Box<ControlResponse>,
    },
}

/// State of a connection on its way to another shard: parsed state and unread bytes.
#[derive(Debug)]
pub struct HandOver {
    /// Bytes that were received but not parsed.
    pub unread: Vec<u8>,
}
