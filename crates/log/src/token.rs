//! Tokens of what the log asks of the space below: the highest byte says who waits for the answer.

use diecut_units::token::space;
use diecut_vssd::space::SpaceToken;

/// A program of a chunk: member above, slot below.
pub(crate) const TOKEN_APPEND: u64 = space::APPEND;
/// The head of a victim: the victim's number above, the offset below.
pub(crate) const TOKEN_HEAD: u64 = space::HEAD;
/// IUs that the cleaner copies.
pub(crate) const TOKEN_COPY: u64 = space::COPY;
/// Of what nobody waits for.
pub const TOKEN_NOBODY: u64 = space::NOBODY;
/// A program of an anchor.
pub(crate) const TOKEN_ANCHOR: u64 = space::ANCHOR;
/// What was freed is erased.
pub(crate) const TOKEN_PURGE: u64 = space::PURGE;
/// Tokens from here on belong to the log's user.
pub const TOKEN_USER: u64 = space::USER;

/// Whether an answer is for the log's user. If not, the log waits for it itself.
#[inline]
pub fn is_for_user(token: SpaceToken) -> bool {
    token.0 & space::KIND_MASK >= TOKEN_USER
}
