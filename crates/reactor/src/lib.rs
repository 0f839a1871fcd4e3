//! Threads, sockets and the real clock: drives shards on a server.
//!
//! Place in the flow: at the very front. One thread per shard, each with an epoll set of its own; the first thread accepts
//! connections and gives them out in turn. A round takes what the sockets have (a bounded amount of each), hands it to
//! the shard, lets it work once, and writes what it asks to be written.
//!
//! Invariants
//! - A shard is touched by its own thread only. Threads talk through bounded queues and wake each other; what finds no room
//!   is kept, in order, and no connection is accepted meanwhile. No thread waits for another.
//! - A connection gets at most [`BYTES_PER_TURN`] read per round, and a tenant's connections together its share of a round, so none
//!   keeps the others waiting.
//! - Idle threads sleep in the kernel until a socket, a message or the shard's deadline.
//! - A panic in a shard is caught. One that is not the first begins again by itself; else the threads of all shards let go of what they
//!   have and begin anew on the device, as after a kill ([`Revival`]). Without a revival, and where that cannot be, it ends the process: what it held is recovered at the next start.
//!
//! Not known here: PDUs, commands, flash. Of tenants it knows names and weights.

#![deny(clippy::unwrap_used)]

mod acceptor;
mod blocks;
mod common;
mod connection;
mod doors;
mod failures;
mod helpers;
mod inbox;
mod io;
mod kernel;
mod lines;
mod log;
mod reactor;
mod remote;
mod revival;
mod ring;
mod shares;
mod upkeep;
mod wire;
mod worker;
mod zones;

pub use connection::BYTES_PER_TURN;
pub use doors::ConnectionLimits;
pub use inbox::{Respond, Untold};
pub use io::IoFile;
pub use log::NoticeLog;
pub use reactor::{MemoryUse, Reactor, ReactorConfig, ReactorError, ReactorHandle, cores};
pub use remote::{RemoteClient, RemoteTarget};
pub use revival::{Again, Alone, Fallen, Make, Revival};
pub use ring::{DriveRing, PageCache, RingFile};
