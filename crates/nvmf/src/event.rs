use crate::keeping::{Keep, Kept};
use crate::moved::MovedConnection;
use crate::notice::HostNotice;
use crate::ocp::{Question, Tidings};
use diecut_namespace::contract::{CommandToken, NamespaceCommand, NamespaceCompletion, SourceId};
use diecut_units::Buffer;
use std::net::SocketAddr;

/// A byte stream, numbered by the driver; never used again while the process lives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub u64);

/// What the driver tells the target.
#[derive(Debug)]
pub enum Event {
    /// A host opened a connection, to this address if that is known.
    Accepted(ConnectionId, Option<SocketAddr>),
    /// A connection that another shard's target handed over.
    Adopted(ConnectionId, Box<MovedConnection>),
    /// The next bytes of a stream. Slices of them are kept as long as commands need them.
    Received(ConnectionId, Buffer),
    /// Bytes were received right into [`Target::receive_window`](crate::Target::receive_window).
    ReceivedInWindow(ConnectionId, usize),
    /// The stream ended or failed.
    Closed(ConnectionId),
    /// A namespace answers a command.
    Completed(NamespaceCompletion),
    /// What was [asked](Action::Ask).
    Told(Box<Tidings>),
    /// What was to be [kept](Action::Keep) is durable, or cannot be.
    Kept(Kept),
    /// Connections whose round was over get another one ([`Target::has_work`](crate::Target::has_work)).
    Round,
    /// Time reached [`Target::deadline`](crate::Target::deadline).
    Tick,
}

/// What the target asks of the driver.
#[derive(Debug)]
pub enum Action {
    /// Give the command to its namespace.
    Submit(NamespaceCommand),
    /// Nobody wants the commands of this source any more, or the one of this token: whoever has them may answer them with
    /// [`NamespaceError::Aborted`](diecut_namespace::contract::NamespaceError::Aborted) and do no more for them. Each is
    /// answered, or the source never ends.
    GiveUp(SourceId, Option<CommandToken>),
    /// The connection has output: write its outbox until that is empty or the stream blocks (and go on when it
    /// does not any more). Not repeated until the outbox was empty.
    Transmit(ConnectionId),
    /// Close the stream after its output was written (at least tried). The connection is forgotten once its commands
    /// came back and its output was [sent](crate::Target::sent), [`Event::Closed`] came or ten seconds passed; events
    /// that come later are ignored.
    Close(ConnectionId),
    /// Stop reading the stream until [`Action::Resume`].
    Pause(ConnectionId),
    /// Read it again.
    Resume(ConnectionId),
    /// Give the stream to the shard of this index as [`Event::Adopted`].
    HandOver(ConnectionId, u16, Box<MovedConnection>),
    /// Say what media did: [`Event::Told`] follows, soon.
    Ask(Box<Question>),
    /// Make a reservation, a sanitize operation, or events of placement durable: [`Event::Kept`] follows. What is asked of a namespace before
    /// that comes after it.
    Keep(Box<Keep>),
    /// Something happened that an operator would ask about.
    Notice(Box<HostNotice>),
}
