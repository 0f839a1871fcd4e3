//! The byte streams of NVMe/TCP: [`receive`] finds PDUs in what comes, [`outbox`] gathers what goes.

mod outbox;
mod receive;

pub use outbox::Outbox;
pub(crate) use receive::{Destination, Receiver, Step};
