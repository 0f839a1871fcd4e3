//! Tokens of what the log asks of the space below: the highest byte says who waits for the answer.

use crate::ReclaimGroup;
use diecut_units::token::space;
use diecut_vssd::space::SpaceToken;

/// A program of a chunk: member above, slot below.
pub(crate) const TOKEN_APPEND: u64 = space::APPEND;
/// The head of a victim: reclaim group and the victim's number above, the offset below.
pub(crate) const TOKEN_HEAD: u64 = space::HEAD;
/// IUs that the cleaner copies: reclaim group above, the number of the read below.
pub(crate) const TOKEN_COPY: u64 = space::COPY;
/// Of what nobody waits for.
pub const TOKEN_NOBODY: u64 = space::NOBODY;
/// A program of an anchor.
pub(crate) const TOKEN_ANCHOR: u64 = space::ANCHOR;
/// What was freed is erased.
pub(crate) const TOKEN_PURGE: u64 = space::PURGE;
/// What was programmed becomes durable.
pub(crate) const TOKEN_FLUSH: u64 = space::FLUSH;
/// Tokens from here on belong to the log's user.
pub const TOKEN_USER: u64 = space::USER;

/// Where the reclaim group stands in tokens of the cleaner.
const GROUP_SHIFT: u32 = 40;

/// The token of a head of a victim.
pub(crate) fn head_token(group: ReclaimGroup, victim: u8, offset: u32) -> SpaceToken {
    SpaceToken(TOKEN_HEAD | u64::from(group.0) << GROUP_SHIFT | u64::from(victim) << 32 | u64::from(offset))
}

/// The token of a read of copies.
pub(crate) fn copy_token(group: ReclaimGroup, read: u32) -> SpaceToken {
    SpaceToken(TOKEN_COPY | u64::from(group.0) << GROUP_SHIFT | u64::from(read))
}

/// The reclaim group in a token of the cleaner.
pub(crate) fn group_in(token: u64) -> ReclaimGroup {
    ReclaimGroup((token >> GROUP_SHIFT & 0xff) as u16)
}

/// Whether an answer is for the log's user. If not, the log waits for it itself.
#[inline]
pub fn is_for_user(token: SpaceToken) -> bool {
    token.0 & space::KIND_MASK >= TOKEN_USER
}
