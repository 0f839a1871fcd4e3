//! What threads send each other.

use crate::blocks::Moving;
use crate::connection;
use crate::doors::Place;
use crate::ring::DriveRing;
use diecut_media::IntentDone;
use diecut_shard::DeviceIndex;
use diecut_shard::control::{ControlError, ControlErrorKind, ControlRequest, ControlResponse, ControlToken};
use diecut_shard::drive::{ConnectionId, MovedConnection, Newcomer, ShardIndex, ShardMessage};
use mio::Waker;
use mio::net::TcpStream;
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, TrySendError, sync_channel};

/// Messages that wait for one thread; whoever has more for it keeps them, and shard threads take no new connections while they
/// do. As many as a thread takes in a round: the connections of a tenant that changes its shard go over in few turns of both
/// threads, each of which may wait for a core.
const QUEUE_MAX: usize = 256;

/// What a shard had to tell others, and was not sent.
pub type Untold = Vec<(ShardIndex, ShardMessage)>;

/// Called with the answer to a request, on the shard's thread: it must be quick and must not block.
pub type Respond = Box<dyn FnOnce(ControlResponse) + Send>;

/// A message to a shard's thread.
pub(crate) enum Message {
    /// A new connection, and the address it came to.
    Accepted(ConnectionId, TcpStream, Option<SocketAddr>, Place),
    /// A connection of another shard, with its state.
    Adopted(ConnectionId, connection::Moving, Box<MovedConnection>),
    /// A connection that has not Connected goes: its place is for another one.
    SendAway(ConnectionId),
    /// What another shard says.
    Told(ShardIndex, ShardMessage),
    /// An administrator's request.
    Control(Box<ControlRequest>, Respond),
    /// The same, for the second time: the shard that had it is gone.
    AskedAgain(Box<ControlRequest>, Respond),
    /// An application whose vSSD is on this thread.
    Blocks(Box<Moving>),
    /// What the device asked for was done, or not.
    IoDone(DeviceIndex, IntentDone),
    /// A device is brought, and the thread's own ring on it.
    DeviceCame(Box<DriveRing>, Box<Newcomer>),
    /// It goes: told of when the ring is no more.
    DeviceWent(DeviceIndex, Sender<()>),
    /// Take connections of hosts, which waited in the kernel until now.
    Open,
    /// Close everything and end the thread.
    Stop,
}

/// The sending end of a thread's queue.
#[derive(Clone)]
pub(crate) struct Address {
    sender: SyncSender<Message>,
    waker: Arc<Waker>,
}

impl Address {
    /// Sends a message and wakes the thread. Gives it back if the queue is full; what was sent to a thread that is gone is
    /// dropped.
    #[allow(clippy::result_large_err, reason = "what comes back is the message itself")]
    pub fn try_send(&self, message: Message) -> Result<(), Unsent> {
        match self.sender.try_send(message) {
            Ok(()) => {}
            Err(TrySendError::Full(message)) => return Err(Unsent::Full(message)),
            Err(TrySendError::Disconnected(_)) => return Err(Unsent::Gone),
        }
        self.wake();
        Ok(())
    }

    /// Sends a message of a thread that may wait, and wakes the receiver. `false` if it is gone.
    pub fn send(&self, message: Message) -> bool {
        if self.sender.send(message).is_err() {
            return false;
        }
        self.wake();
        true
    }

    /// Has the thread look around.
    pub fn wake(&self) {
        // A thread that cannot be woken looks at its queue in its next round.
        if let Err(error) = self.waker.wake() {
            tracing::warn!("a shard's thread cannot be woken: {error}");
        }
    }
}

/// Why a message was not sent.
pub(crate) enum Unsent {
    /// The receiver has too many; it is given back.
    Full(Message),
    /// The receiver is no more.
    Gone,
}

pub(crate) fn queue(waker: Arc<Waker>) -> (Address, Receiver<Message>) {
    let (sender, receiver) = sync_channel(QUEUE_MAX);
    (Address { sender, waker }, receiver)
}

/// Messages of one thread for threads whose queue is full, by thread, in order. Sending never blocks: two threads could wait for each
/// other.
pub(crate) struct Outgoing {
    unsent: Vec<VecDeque<Message>>,
}

impl Outgoing {
    /// For so many threads.
    pub fn new(threads: usize) -> Outgoing {
        Outgoing { unsent: (0..threads).map(|_| VecDeque::new()).collect() }
    }

    /// Whether a message waits.
    #[inline]
    pub fn has_any(&self) -> bool {
        self.unsent.iter().any(|waiting| !waiting.is_empty())
    }

    /// What shards were to be told and was not sent, and which; the rest is dropped.
    pub fn abandon(self) -> Untold {
        let told = |(to, message)| match message {
            Message::Told(_, message) => Some((ShardIndex(to), message)),
            _ => None,
        };
        let unsent = (0..).zip(self.unsent);
        unsent
            .flat_map(|(to, waiting)| waiting.into_iter().map(move |one| (to, one)))
            .filter_map(told)
            .collect()
    }

    /// Sends a message, now or when the receiver has room; messages to one thread stay in order.
    pub fn send(&mut self, addresses: &[Address], to: usize, message: Message) {
        if !self.unsent[to].is_empty() {
            return self.unsent[to].push_back(message);
        }
        if let Err(Unsent::Full(message)) = addresses[to].try_send(message) {
            self.unsent[to].push_back(message);
        }
    }

    /// Sends what waits, as far as receivers have room.
    #[inline]
    pub fn send_again(&mut self, addresses: &[Address]) {
        for (address, waiting) in addresses.iter().zip(&mut self.unsent) {
            while let Some(message) = waiting.pop_front() {
                match address.try_send(message) {
                    Ok(()) => {}
                    Err(Unsent::Full(message)) => {
                        waiting.push_front(message);
                        break;
                    }
                    Err(Unsent::Gone) => waiting.clear(),
                }
            }
        }
    }
}

/// Requests of administrators that the shard has not answered yet.
#[derive(Default)]
pub(crate) struct Answers {
    /// With the request where it may be asked again.
    awaited: BTreeMap<ControlToken, (Respond, Option<Box<ControlRequest>>)>,
    last: u64,
}

impl Answers {
    /// What the shard is to call a request. `again`: the same, if another shard may be asked should this one fail.
    pub fn expect(&mut self, respond: Respond, again: Option<Box<ControlRequest>>) -> ControlToken {
        self.last += 1;
        let token = ControlToken(self.last);
        self.awaited.insert(token, (respond, again));
        token
    }

    /// The shard answered. Nothing if it did before.
    pub fn give(&mut self, token: ControlToken, response: ControlResponse) {
        if let Some((respond, _)) = self.awaited.remove(&token) {
            respond(response);
        }
    }

    /// The shard failed: requests for its next one, in the order in which they came. Others are answered with what is known of them.
    pub fn abandon(self) -> Vec<Message> {
        let mut again = Vec::new();
        for (respond, request) in self.awaited.into_values() {
            match request {
                Some(request) => again.push(Message::AskedAgain(request, respond)),
                None => {
                    let message = "the server failed an inner check while this was carried out, and has recovered: it is done, or it \
                                   was taken back. `diecut status` shows what exists, `diecut panics` what failed; ask again if it \
                                   is not done"
                        .to_owned();
                    respond(ControlResponse::Refused(ControlError { kind: ControlErrorKind::Busy, message }));
                }
            }
        }
        again
    }
}
