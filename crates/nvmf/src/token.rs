//! What tokens of namespace commands say: whose connection it is, and which of its commands.

use crate::queue::SlotIndex;
use diecut_namespace::contract::CommandToken;
use diecut_units::token::command::{SANITIZE, SHUTDOWN, SLOT_BITS};

/// Of a command in a queue.
#[inline]
pub(crate) fn command_token(connection: u32, slot: SlotIndex) -> CommandToken {
    CommandToken(u64::from(connection) << SLOT_BITS | u64::from(slot))
}

/// Of the `nth` flush that the shutdown of an admin queue's controller waits for.
pub(crate) fn shutdown_token(connection: u32, nth: u16) -> CommandToken {
    CommandToken(SHUTDOWN | command_token(connection, nth).0)
}

/// Of the command that a namespace has of the sanitize operation of a subsystem.
pub(crate) fn sanitize_token(subsystem: u32) -> CommandToken {
    CommandToken(SANITIZE | command_token(subsystem, 0).0)
}

/// The subsystem of a sanitize operation's command.
pub(crate) fn subsystem_of(token: CommandToken) -> u32 {
    connection_of(token)
}

#[inline]
pub(crate) fn is_of_shutdown(token: CommandToken) -> bool {
    token.0 & SHUTDOWN != 0
}

/// Whether no command of a queue asked.
#[inline]
pub(crate) fn is_of_nobody(token: CommandToken) -> bool {
    token.0 & (SHUTDOWN | SANITIZE) != 0
}

/// Index of the connection.
#[inline]
pub(crate) fn connection_of(token: CommandToken) -> u32 {
    (token.0 >> SLOT_BITS) as u32
}

/// The slot in its queue.
#[inline]
pub(crate) fn slot_of(token: CommandToken) -> SlotIndex {
    token.0 as SlotIndex
}
