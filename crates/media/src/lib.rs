//! Waist 1: the flash contract. Everything above the media speaks these words; every medium, emulated or
//! real, answers them.
//!
//! Place in the flow: `vssd` submits commands, `emulator` executes them, or `drives` has its driver do so. This crate holds types
//! and the conformance suite, no behaviour.
//!
//! Rules of every medium
//! - An erase block is programmed in order, one program unit after the other, once, after an erase.
//! - A program that was cut by a power loss is neither old nor new: its pages read as uncorrectable, as
//!   erased, or as programmed. Units that came before it may be lost too, but at most the last
//!   [`Capabilities::unsafe_units`] of the same erase block (lower pages of a shared word line).
//! - A medium with a volatile cache ([`Capabilities::volatile_cache`]) promises less: a cut takes any subset of the sectors of 512 bytes that
//!   were programmed since the last complete flush, of programs that were answered, too.
//! - A medium may say that pages of an erase block were not programmed ([`MediaError::Erased`]) of which it knows that, also after it was opened.
//! - A medium without OOB areas ([`diecut_units::Geometry::has_oob`]) does not know what was programmed before it was opened: an erase block
//!   is erased before it is programmed again, and what was not programmed reads as anything.
//! - An erase block with a program that was cut takes no more programs before it is erased.
//! - An erase that was cut leaves any mixture; the block must be erased again before it is programmed.
//! - Nothing outside the addressed block changes.
//! - Commands to one die that do not depend on each other may complete in any order; commands to one erase
//!   block take effect in the order of submission.
//! - A completion appears exactly once for each submitted command, with its token, unless power is lost.
//!
//! Not known here: tenants, LBAs, maps, hosts, the clock (time arrives as a value).

#![deny(clippy::unwrap_used)]
#![forbid(unsafe_code)]

mod capabilities;
mod command;
#[cfg(feature = "conformance")]
pub mod conformance;
#[cfg(feature = "conformance")]
mod conformance_sync;
mod contract;
mod divide;
mod error;
mod intent;
mod zone;

pub use capabilities::{Capabilities, DieTimes};
pub use command::{Command, Completion, MediaToken, Operation, PayloadParts, StreamId};
pub use contract::Media;
pub use divide::Divide;
pub use error::MediaError;
pub use intent::{Intent, IntentDone, IntentError, IntentToken, IntentWork};
pub use zone::{Zone, ZoneCondition, ZoneDies};
