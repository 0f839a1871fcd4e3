//! The host side of NVMe/TCP: bytes in, bytes out; commands in, completions out.
//!
//! Purpose: what talks to a target, ours or another one, without an operating system in between: the load generator,
//! tests, and (later) members of a pool that lie behind a network.
//!
//! Place in the flow: beside `nvmf`, whose peer it is; both speak the words of `nvme`. Start with [`QueuePair`] (one
//! stream, one queue) and [`Admin`] (the queue that brings a controller up and says what it has).
//!
//! Bringing a controller up takes two kinds of streams:
//! 1. [`Admin::new`] on the first stream: ICReq, Connect of the admin queue, CC.EN, CSTS.RDY, Identify, number of queues.
//! 2. [`Admin::facts`] when it is ready, and [`Admin::io_queue`] for the parameters of each I/O queue: one
//!    [`QueuePair`] each, on a stream of its own.
//!
//! Invariants
//! - Sans-IO: no socket, clock, thread or randomness. Streams may be cut anywhere.
//! - A command ends exactly once, with the [`Token`] it was given, or its stream is given up as a whole.
//! - Bytes from a controller never panic: what breaks the protocol is a [`HostError`], told to the controller with
//!   H2CTermReq where the specification asks for it.
//! - A warm queue allocates nothing per command: slots are made once, output is one growing run of bytes, and data of
//!   reads are shown to the [`Sink`] where they were received.
//!
//! Not known here: what namespaces hold, time (but for keep-alive, told as a value), who drives the stream.

#![deny(clippy::unwrap_used)]
#![forbid(unsafe_code)]

mod admin;
mod command;
mod error;
mod facts;
pub mod openchannel;
mod output;
mod queue_pair;
mod receive;
mod stage;
pub mod zoned;

pub use admin::{Admin, Questions};
pub use command::{Collect, Command, Completion, LbaSpan, Sink, Token};
pub use error::HostError;
pub use facts::{ControllerFacts, NamespaceFacts, Takes};
pub use queue_pair::{QueuePair, QueueParameters};
