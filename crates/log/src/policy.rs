//! What is particular to a kind of stream.

use crate::reserve::{DISPLACED_LEAVE, RESERVE_SEGMENTS};
use crate::{PerKind, Stream, StreamKind};
use diecut_vssd::space::IoClass;

/// What the log does with a stream of a kind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Policy {
    /// Class of its programs at the dies.
    pub class: IoClass,
    /// Free segments that its own entries leave; `None` if it makes room, and may use the last ones.
    pub keep_free: Option<KeepFree>,
    /// A chunk is programmed only when all entries before it are durable.
    pub is_gated: bool,
    /// Its writers wait for the cleaner at the pace that it sets.
    pub is_paced: bool,
    /// Chunks say which segment all their entries were copied from.
    pub names_origin: bool,
    /// IUs are bytes, whatever stands for the content of user data.
    pub is_always_bytes: bool,
    /// IUs of data that a copy of one of its IUs counts as, when a victim is chosen.
    pub copy_cost: u32,
    /// Kinds whose erase blocks that were taken ahead are meant for this one, too.
    pub shares_blocks_with: &'static [StreamKind],
}

/// Free segments that a stream leaves to others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeepFree {
    /// As a rule.
    pub usually: u32,
    /// While only an anchor can make room.
    pub while_anchor_is_needed: u32,
}

/// One row for each kind, in the order of their numbers.
const POLICIES: &PerKind<Policy> = &PerKind([
    Policy {
        class: IoClass::HostWrite,
        keep_free: Some(KeepFree { usually: RESERVE_SEGMENTS, while_anchor_is_needed: RESERVE_SEGMENTS }),
        is_gated: false,
        is_paced: true,
        names_origin: false,
        is_always_bytes: false,
        copy_cost: 1,
        shares_blocks_with: &StreamKind::DATA,
    },
    Policy {
        class: IoClass::Cleaner,
        keep_free: None,
        is_gated: false,
        is_paced: false,
        names_origin: true,
        is_always_bytes: false,
        copy_cost: 1,
        shares_blocks_with: &StreamKind::DATA,
    },
    Policy {
        class: IoClass::Metadata,
        keep_free: Some(KeepFree {
            usually: RESERVE_SEGMENTS - 1,
            while_anchor_is_needed: 1 + DISPLACED_LEAVE,
        }),
        is_gated: true,
        is_paced: false,
        names_origin: true,
        is_always_bytes: true,
        copy_cost: 4,
        shares_blocks_with: &[StreamKind::Map],
    },
]);

impl StreamKind {
    /// What the log does with streams of it.
    #[inline]
    pub(crate) fn policy(self) -> &'static Policy {
        &POLICIES[self]
    }
}

impl Stream {
    /// What the log does with it.
    #[inline]
    pub(crate) fn policy(self) -> &'static Policy {
        self.kind().policy()
    }
}
