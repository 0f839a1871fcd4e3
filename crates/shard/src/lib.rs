//! The composition: one core's share of the system. A shard owns channels, dies, vSSDs, logs, volumes,
//! namespaces, the target's state, the admission scheduler and the catalog, and wires them together.
//!
//! Sans-IO: `reactor` drives it with sockets and the monotonic clock, `sim` with virtual time. What they
//! exchange with it is [`drive`]; what an administrator asks is [`control`].

pub mod control;
pub mod drive;
pub mod null;
