//! Who owns which bits of a token.
//!
//! A room that asks another one for something names it by a 64-bit token, which comes back with the answer. Several rooms share a
//! token space, and the composition tells by bits whose answer it is. This table is the only place where such a bit is chosen: two
//! owners with one bit in one space would get each other's answers.
//!
//! | space | who asks whom | bits 63..60 | below |
//! |---|---|---|---|
//! | [`media`] | rooms of a shard, the medium | pool, or catalog | of the pool: check, log of block states, flush, or the place of an operation |
//! | [`space`] | a store, its vSSD | - | bits 63..56 say who in the store; the rest is his |
//! | [`volume`] | namespaces and the administration, a store | the administration | [`stamped`] tokens of namespaces |
//! | [`command`] | doors, namespaces | a controller that shuts down, a sanitize operation | connection and slot of the NVMe target |

/// Bits that say whose a token is. [`stamped`] tokens leave them clear.
pub const OWNER_BITS: u64 = 0xf << 60;

/// The largest stamp of a token.
pub const STAMP_MAX: u32 = (1 << 28) - 1;

/// The token of an index in its use `stamp`, which is at most [`STAMP_MAX`].
#[inline]
pub const fn stamped(index: u32, stamp: u32) -> u64 {
    (stamp as u64) << 32 | index as u64
}

/// The index of a [`stamped`] token.
#[inline]
pub const fn index_of(token: u64) -> u32 {
    token as u32
}

/// Tokens of commands at the medium.
pub mod media {
    /// The pool of vSSDs asked; its own bits say who in it.
    pub const POOL: u64 = 1 << 63;
    /// Beside [`POOL`]: a read of the check at opening.
    pub const POOL_CHECK: u64 = 1 << 62;
    /// Beside [`POOL`]: an operation of the log of block states.
    pub const POOL_STATE_LOG: u64 = 1 << 61;
    /// Beside [`POOL`]: a flush that holders wait for.
    pub const POOL_FLUSH: u64 = 1 << 59;
    /// The catalog asked.
    pub const CATALOG: u64 = 1 << 60;
}

/// Tokens of commands of a store at its vSSD. The highest byte is a number, not a set of bits.
pub mod space {
    /// The byte that says who in the store asked.
    pub const KIND_MASK: u64 = 0xff << 56;
    /// The log programs a row of a chunk.
    pub const APPEND: u64 = 1 << 56;
    /// The log reads the head of a chunk.
    pub const HEAD: u64 = 2 << 56;
    /// The cleaner reads what it copies.
    pub const COPY: u64 = 3 << 56;
    /// Nobody waits for the answer.
    pub const NOBODY: u64 = 4 << 56;
    /// The log programs an anchor.
    pub const ANCHOR: u64 = 5 << 56;
    /// The log has what was freed erased.
    pub const PURGE: u64 = 6 << 56;
    /// What was programmed is made durable.
    pub const FLUSH: u64 = 7 << 56;
    /// From here on the log's user asks.
    pub const USER: u64 = 16 << 56;
    /// Beside [`USER`], while a store opens: data of a page are read, not its OOB area.
    pub const OPENING_DATA: u64 = 1 << 54;
    /// Beside [`USER`], while a store opens: a head is read again.
    pub const OPENING_AGAIN: u64 = 1 << 55;
}

/// Tokens of commands of volumes.
pub mod volume {
    /// The administration asked.
    pub const CONTROL: u64 = 1 << 63;
}

/// Tokens of commands of namespaces that hosts gave over NVMe.
pub mod command {
    /// No host asked: it is a flush that the shutdown of a controller waits for.
    pub const SHUTDOWN: u64 = 1 << 62;
    /// No host asked: a sanitize operation goes on. The subsystem stands where the connection does.
    pub const SANITIZE: u64 = 1 << 61;
    /// Bits of the slot in its queue; the connection stands above.
    pub const SLOT_BITS: u32 = 16;
}

/// Numbers of sources of commands of namespaces (`SourceId`), 32 bits.
pub mod source {
    /// The source is no connection of the NVMe target.
    pub const DOOR: u32 = 1 << 31;
    /// The source is a sanitize operation of the NVMe target, by its subsystem.
    pub const SANITIZE: u32 = 1 << 30;
}

// I-U4: owners in one space have different bits, and no bit of a stamped token or of another field.
const _: () = {
    let pool = [media::POOL, media::POOL_CHECK, media::POOL_STATE_LOG, media::CATALOG];
    assert!(pool[0] | pool[1] | pool[2] | pool[3] == OWNER_BITS, "four bits, each once");
    assert!(volume::CONTROL & OWNER_BITS == volume::CONTROL);
    assert!(command::SHUTDOWN & OWNER_BITS == command::SHUTDOWN);
    assert!(stamped(u32::MAX, STAMP_MAX) & OWNER_BITS == 0);
    // A connection has 32 bits.
    assert!((u32::MAX as u64) << command::SLOT_BITS & (command::SHUTDOWN | command::SANITIZE) == 0);
    assert!(command::SANITIZE & OWNER_BITS == command::SANITIZE && command::SANITIZE != command::SHUTDOWN);
    assert!(source::DOOR != source::SANITIZE);
    assert!((space::OPENING_DATA | space::OPENING_AGAIN) & space::KIND_MASK == 0);
    assert!(space::ANCHOR & space::KIND_MASK == space::ANCHOR && space::ANCHOR < space::USER);
};
