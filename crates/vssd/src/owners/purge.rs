//! A purge of a vSSD, and how far it is (`core/purge.rs`).

use crate::SpaceToken;
use std::collections::VecDeque;

/// A purge of a vSSD; it goes where that goes.
pub(crate) struct Purge {
    pub token: SpaceToken,
    /// Blocks that are still to be erased, with their erases when the purge began.
    pub left: VecDeque<(u32, u32)>,
    pub under_way: Vec<u32>,
    /// Blocks that could not be erased.
    pub not_erased: u32,
    /// Nothing that is written down becomes durable any more, so nothing is erased.
    pub is_stuck: bool,
}
