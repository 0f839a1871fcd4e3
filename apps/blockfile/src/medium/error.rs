//! Why there are no zones to stand on.

use diecut_initiator::HostError;
use diecut_nvme::{DecodeError, Status};
use std::io;
use std::net::SocketAddr;

/// Why zones cannot be attached to, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum ZonesError {
    /// The words name nothing.
    #[error("\"{place}\" is no address of a server: HOST:PORT is what is understood, as in 127.0.0.1:4420")]
    Address {
        /// What was given.
        place: String,
    },
    /// The name of the subsystem, or of the host.
    #[error("\"{name}\" is no {what}")]
    Name {
        /// Of what.
        what: &'static str,
        /// What was given.
        name: String,
    },
    /// There is no server.
    #[error("{address} cannot be connected to: {source}; is the server running, and does it listen there?")]
    Connect {
        /// Where.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// The stream broke.
    #[error("the connection is lost: {0}")]
    Stream(#[source] io::Error),
    /// What the controller said.
    #[error(transparent)]
    Host(#[from] HostError),
    /// A command failed.
    #[error("{what} failed with {status}")]
    Command {
        /// Which.
        what: &'static str,
        /// How.
        status: Status,
    },
    /// No namespace of it is zoned, or not the one that was named.
    #[error("{subsystem} has no zoned namespace{wanted}: it has {present}")]
    NotZoned {
        /// NQN.
        subsystem: String,
        /// Which one was asked for.
        wanted: String,
        /// The zoned namespaces that it has.
        present: String,
    },
    /// Several are zoned.
    #[error("{subsystem} has the zoned namespaces {present}: name one, as in {subsystem}/{first}")]
    Several {
        /// NQN.
        subsystem: String,
        /// All of them.
        present: String,
        /// One of them.
        first: u32,
    },
    /// A page makes no sense.
    #[error("the namespace cannot be used: {0}")]
    Page(#[from] DecodeError),
    /// Zones have no extension.
    #[error(
        "namespace {nsid} has no zone descriptor extensions, which say what a zone is for: make its volume with `extension = 64` \
         (`--zone-extension 64`)"
    )]
    NoExtension {
        /// Which.
        nsid: u32,
    },
    /// Too few zones may be active.
    #[error("namespace {nsid} allows {active} active and open zones, and files need {min} at least")]
    TooFewActive {
        /// Which.
        nsid: u32,
        /// The limit.
        active: u32,
        /// What files need.
        min: u32,
    },
    /// A write must be larger than a program unit may be.
    #[error("namespace {nsid} takes writes of {bytes} bytes, and files need a multiple of 4096 up to {max}")]
    WriteSize {
        /// Which.
        nsid: u32,
        /// Smallest write.
        bytes: u64,
        /// Largest one.
        max: u32,
    },
    /// The server went away meanwhile.
    #[error("the server is gone")]
    Gone,
}
