//! What a driver (`reactor` or `sim`) exchanges with a shard.

pub use crate::blocks::{BlockAction, BlockEvent, BlockSession, MovedEntries};
use crate::control::{ControlRequest, ControlResponse, ControlToken};
use crate::devices::DeviceIndex;
pub use crate::newcomer::Newcomer;
use crate::notice::Notice;
pub use crate::panics::WorkOutline;
pub use crate::peer::ShardMessage;
pub use crate::seat::ShardIndex;
use diecut_media::{Intent, IntentDone};
use diecut_nvmf as target;
use diecut_units::{Buffer, Time};
use std::net::SocketAddr;

/// A byte stream between a host and the server, numbered by the driver, unique over all shards and never used
/// again while the process lives.
pub use diecut_nvmf::ConnectionId;
/// Memory of a shard's connections.
pub use diecut_nvmf::MemoryFigures;
/// State of a connection on its way to another shard: agreed parameters, its Connect command or its queue, unread bytes,
/// unsent output.
pub use diecut_nvmf::MovedConnection;
/// Output of one connection.
pub use diecut_nvmf::Outbox;
/// A command of a host without its data.
pub use diecut_nvmf::{CommandOutline, OperationOutline};

/// What the driver tells the shard.
#[derive(Debug)]
pub enum Event {
    /// A host opened a connection to the NVMe/TCP port.
    Accepted {
        /// The new connection.
        connection: ConnectionId,
        /// The address it came to, if that is known.
        local: Option<SocketAddr>,
    },
    /// Bytes arrived. The shard keeps slices of `bytes` for as long as commands need them.
    Received {
        /// The connection.
        connection: ConnectionId,
        /// The next bytes of the stream.
        bytes: Buffer,
    },
    /// Bytes were received right into [`Drive::receive_window`].
    ReceivedInWindow {
        /// The connection.
        connection: ConnectionId,
        /// How many.
        len_bytes: usize,
    },
    /// A connection that another shard handed over: a new one, or one at work whose home has changed.
    Adopted {
        /// The connection.
        connection: ConnectionId,
        /// State of the connection.
        state: Box<MovedConnection>,
    },
    /// The stream ended or failed; nothing more can be sent or received.
    Closed {
        /// The connection.
        connection: ConnectionId,
    },
    /// Another shard of the same server says something.
    Told {
        /// Which shard.
        from: ShardIndex,
        /// What.
        message: ShardMessage,
    },
    /// An administrator asks something. Only the first shard knows what to do.
    Control {
        /// Comes back with the response.
        token: ControlToken,
        /// The request.
        request: Box<ControlRequest>,
    },
    /// Something of an application at erase blocks.
    Blocks(BlockEvent),
    /// A device's file or drive did what [`Action::Io`] asks for, or did not.
    IoDone(DeviceIndex, IntentDone),
    /// What a device lies on cannot be reached for longer than hosts should wait; or it is reached again. What was asked for is carried out then.
    DeviceAway(DeviceIndex, bool),
    /// A device was brought: [`ControlRequest::Device`] makes it one of the pool. What it asks for is carried out from now on.
    DeviceCame(Box<Newcomer>),
    /// A device is not there any more. Nothing that is asked of it is carried out; one that was brought and is not of the pool is forgotten.
    DeviceWent(DeviceIndex),
}

/// What the shard asks of the driver.
#[derive(Debug)]
pub enum Action {
    /// The connection has output: take it from [`Drive::outbox`], write it to the stream and report it with
    /// [`Drive::sent`], until it is empty or the stream blocks (and go on when it does not any more). Not repeated
    /// until the outbox was empty.
    Transmit {
        /// The connection.
        connection: ConnectionId,
    },
    /// Close the stream after its output was written. Events of it that come later are ignored.
    Close {
        /// The connection.
        connection: ConnectionId,
    },
    /// Give the stream to another shard, as [`Event::Adopted`] with this state, in order with [`Action::Tell`]. Nothing more of
    /// it is read or written here.
    HandOver {
        /// The connection.
        connection: ConnectionId,
        /// Its new home.
        to: ShardIndex,
        /// State of the connection.
        state: Box<MovedConnection>,
    },
    /// Give another shard a message, as [`Event::Told`]. Messages from one shard to another arrive in order.
    Tell {
        /// Which shard.
        to: ShardIndex,
        /// What.
        message: ShardMessage,
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
    /// Something for an application at erase blocks.
    Blocks(BlockAction),
    /// Something happened that an operator would ask about.
    Notice(Box<Notice>),
    /// All shards begin anew, as after a panic of this one: another one that failed cannot be taken back alone.
    BeginAnew,
    /// Do this on a device's file or drive, and tell with [`Event::IoDone`]; only devices that do not do all their I/O by
    /// themselves ask (see [`diecut_media::Media::take_intents`]). Each one is answered once, in any order.
    Io(DeviceIndex, Intent),
}

/// What a driver needs of a shard. A driver's loop: hand over the events of a batch with [`Drive::handle`], call
/// [`Drive::work`] once after the batch and whenever [`Drive::deadline`] is reached, then do the actions.
pub trait Drive {
    /// Takes one event. Cheap; whatever can wait for the end of the batch does.
    fn handle(&mut self, event: Event, now: Time, actions: &mut Vec<Action>);

    /// Lets time pass until `now`: one bounded round over everything that has work. Call again at once (with other
    /// events handled in between) while [`Drive::deadline`] is not after `now`.
    fn work(&mut self, now: Time, actions: &mut Vec<Action>);

    /// When [`Drive::work`] must be called though no event came. Not after the `now` of the last call: there is work
    /// left. [`Time::NEVER`]: only events matter.
    fn deadline(&self) -> Time;

    /// Whether commands of a connection go on with the next [`Drive::work`]: its answers may as well wait for those of
    /// them, and go out together, and what its host sends meanwhile would only wait behind them.
    fn goes_on(&self, _connection: ConnectionId) -> bool {
        false
    }

    /// Whether a connection has become a queue of a controller. One that has not may be closed in favour of another.
    fn is_connected(&self, connection: ConnectionId) -> bool;

    /// Whose a connection is that has become a queue of a controller. `None` of discovery: nobody's.
    fn tenant_of(&self, _connection: ConnectionId) -> Option<&str> {
        None
    }

    /// What is due to a tenant beside others, in the driver's turns as elsewhere.
    fn weight_of(&self, _tenant: &str) -> u32 {
        diecut_spec::TenantSpec::DEFAULT_WEIGHT
    }

    /// The output of a connection; `None` if the connection is not known.
    fn outbox(&self, connection: ConnectionId) -> Option<&Outbox>;

    /// The first `len_bytes` of a connection's output were written to its stream.
    fn sent(&mut self, connection: ConnectionId, len_bytes: usize, actions: &mut Vec<Action>);

    /// Where the next bytes of the stream may be received to without a copy, if there is such a place now.
    fn receive_window(&mut self, connection: ConnectionId) -> Option<&mut [u8]>;

    /// How many bytes of a stream should be received at once where there is no such place: fewer when memory is short.
    fn receive_bytes(&self) -> usize {
        64 << 10
    }

    /// Sets the memory for connections, in bytes.
    fn set_memory(&mut self, _memory_bytes: usize) {}

    /// Memory of connections.
    fn memory(&self) -> MemoryFigures {
        MemoryFigures::default()
    }

    /// What it is, or was, at work for: asked by whoever caught a panic of it.
    fn at_work(&self) -> WorkOutline {
        WorkOutline::default()
    }

    /// Gives up free buffers that were not needed since the last call, `slabs_max` of each pool at most, and says how many bytes
    /// that were. Called once a second or so.
    fn shrink(&mut self, _slabs_max: u32) -> usize {
        0
    }
}

/// Turns what the target asks into what the shard asks.
///
/// # Panics
/// On [`target::Action::Submit`] and [`target::Action::GiveUp`], which stay inside a shard.
#[inline]
pub(crate) fn translate(action: target::Action) -> Action {
    match action {
        target::Action::Submit(_)
        | target::Action::GiveUp(..)
        | target::Action::Ask(_)
        | target::Action::Keep(_) => {
            unreachable!("I-S18: commands, questions and what is kept stay inside the shard")
        }
        target::Action::Transmit(connection) => Action::Transmit { connection },
        target::Action::Close(connection) => Action::Close { connection },
        target::Action::Pause(connection) => Action::Pause { connection },
        target::Action::Resume(connection) => Action::Resume { connection },
        target::Action::HandOver(connection, to, state) => {
            Action::HandOver { connection, to: ShardIndex(to), state }
        }
        target::Action::Notice(notice) => Action::Notice(Box::new(Notice::Host(*notice))),
    }
}
