//! Tokens of commands to the medium: who among its submitters, and among the parts of a pool, an answer is for.
//!
//! A token of a pool has [`POOL_TOKEN_BIT`]. Beside it stands one of the bits below, or none: then the rest is the place of an operation
//! (`ops`), or, while block states are read back from flash, nothing.

use diecut_media::MediaToken;
use diecut_units::token::media;

/// Set in every media token of a pool; other submitters to the same medium leave it clear.
pub const POOL_TOKEN_BIT: u64 = media::POOL;
/// Set in tokens of the check's reads.
pub(crate) const CHECK_TOKEN_BIT: u64 = media::POOL_CHECK;
/// Set in tokens of the commands of the log of block states.
pub(crate) const STATE_LOG_TOKEN_BIT: u64 = media::POOL_STATE_LOG;

/// Set in tokens of flushes that holders wait for.
pub(crate) const FLUSH_TOKEN_BIT: u64 = media::POOL_FLUSH;

/// Whether an answer is that of a flush.
pub(crate) fn is_of_flush(token: MediaToken) -> bool {
    token.0 & FLUSH_TOKEN_BIT != 0
}

/// Whether an answer is the check's.
pub(crate) fn is_of_check(token: MediaToken) -> bool {
    token.0 & CHECK_TOKEN_BIT != 0
}

/// Whether an answer is the log's.
pub(crate) fn is_of_log(token: MediaToken) -> bool {
    token.0 & STATE_LOG_TOKEN_BIT != 0
}
