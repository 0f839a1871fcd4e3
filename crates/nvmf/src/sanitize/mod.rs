//! Sanitize (Base 2.0 sections 5.24 and 8.20): all user data of a subsystem are erased, so that nobody can find them any more.
//!
//! A host begins it with a command, which is answered when it is durable that it began. It goes on by itself over resets, restarts and power
//! cuts: what is durable is told to a target that begins ([`crate::restore_sanitize`]), which begins anew with all namespaces. Hosts are told
//! of the end by an event, and read how far it is in a log page.
//!
//! - `command`: what a host may ask, and when it is refused.
//! - `rules`: what other commands are let through while it goes on, and after it failed.
//! - `state`: what is durable, what goes on, and what became of it.
//! - `work`: which namespace is asked for what next.
//! - `run`: gives namespaces their commands, takes what they answer, and tells hosts.

mod command;
mod record;
mod rules;
mod run;
mod state;
mod work;

pub(crate) use command::execute;
pub use record::{KeepSanitize, KeptSanitize, SanitizeRecord, SanitizeState};
pub(crate) use rules::lets_admin_through;
pub use run::sanitize_status;
pub(crate) use run::{complete, give_up, go_on, kept, look_at, restore};
pub(crate) use state::Sanitizing;

use crate::config::SubsystemConfig;

/// Whether a subsystem's hosts are offered it: all namespaces can erase what is no longer there.
pub(crate) fn is_offered(subsystem: &SubsystemConfig) -> bool {
    let mut namespaces = subsystem.namespaces.values().map(|one| &one.properties);
    namespaces.all(|properties| properties.purges)
}
