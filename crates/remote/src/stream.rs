//! Streams to a target.

/// One of the two streams to a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// The admin queue's.
    Admin,
    /// The I/O queue's.
    Io,
}
