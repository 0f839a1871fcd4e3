//! What threads send each other.

use diecut_shard::control::{ControlRequest, ControlResponse};
use diecut_shard::drive::{ConnectionId, MovedConnection, ShardIndex, ShardMessage};
use mio::Waker;
use mio::net::TcpStream;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

/// Called with the answer to a request, on the shard's thread: it must be quick and must not block.
pub type Respond = Box<dyn FnOnce(ControlResponse) + Send>;

/// A message to a shard's thread.
pub(crate) enum Message {
    /// A new connection.
    Accepted(ConnectionId, TcpStream),
    /// A connection of another shard, with its state.
    Adopted(ConnectionId, TcpStream, Box<MovedConnection>),
    /// What another shard says.
    Told(ShardIndex, ShardMessage),
    /// An administrator's request.
    Control(Box<ControlRequest>, Respond),
    /// Close everything and end the thread.
    Stop,
}

/// The sending end of a thread's queue.
#[derive(Clone)]
pub(crate) struct Address {
    sender: Sender<Message>,
    waker: Arc<Waker>,
}

impl Address {
    /// Sends a message and wakes the thread. `false` if the thread is gone.
    pub fn send(&self, message: Message) -> bool {
        if self.sender.send(message).is_err() {
            return false;
        }
        // A thread that cannot be woken looks at its queue in its next round.
        if let Err(error) = self.waker.wake() {
            tracing::warn!("a shard's thread cannot be woken: {error}");
        }
        true
    }
}

pub(crate) fn queue(waker: Arc<Waker>) -> (Address, Receiver<Message>) {
    let (sender, receiver) = channel();
    (Address { sender, waker }, receiver)
}
