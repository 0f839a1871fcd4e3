//! What an operator would ask about hosts, as plain data: the driver decides who hears of it.

use diecut_nvme::{QualifiedName, Status};

/// Something happened to a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostNotice {
    /// A host has a controller.
    Came(HostAt),
    /// Its controller ends: it hung up, was replaced or is not allowed any more.
    Went(HostAt),
    /// Its keep-alive expired; that its controller ends follows.
    Expired(HostAt),
    /// A Connect was refused.
    Refused {
        /// The subsystem it named; `None` where that is no name.
        subsystem: Option<QualifiedName>,
        /// The name it gave itself; `None` where that is no name.
        host: Option<QualifiedName>,
        /// The queue it asked for; 0 for a controller.
        queue_id: u16,
        /// What the host is told.
        status: Status,
        /// Why, for people; of a small set, so that notices can be counted by it.
        reason: &'static str,
    },
    /// Hosts wait for memory of connections: all there is for theirs is in use. Told once a minute.
    WaitsForMemory,
    /// A connection that had not sent Connect was closed in favour of a new one: there is no memory for more of them.
    MadeRoom,
    /// It was hung up on: it held memory that others waited for, and did nothing with it.
    Stalled(HostAt),
}

/// A host and its controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostAt {
    /// The subsystem; `None` for discovery.
    pub subsystem: Option<QualifiedName>,
    /// The host's name, if it gave one.
    pub host: Option<QualifiedName>,
    /// The controller's number in its subsystem.
    pub controller_id: u16,
}
