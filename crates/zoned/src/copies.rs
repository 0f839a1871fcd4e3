//! Copies: what their sources hold is read, all of it, and then written as a write of a host would be. Few are under way at once, since each holds
//! what it read until that is staged; others wait.

use crate::contract::{ZoneCompletion, ZoneRange, ZoneSetIndex, ZoneToken};
use std::collections::VecDeque;

/// Copies that hold memory at once. A choice: enough to read from all units, and some megabytes at most.
const COPIES_MAX: usize = 8;

/// A copy that waits.
pub(crate) struct Copy {
    pub token: ZoneToken,
    pub set: ZoneSetIndex,
    pub sources: Vec<ZoneRange>,
    pub first_iu: u64,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Copies {
    waiting: VecDeque<Copy>,
    under_way: Vec<ZoneToken>,
}

impl Copies {
    /// A copy came.
    pub fn add(&mut self, copy: Copy) {
        self.waiting.push_back(copy);
    }

    /// The next copy that may begin now.
    pub fn begin(&mut self) -> Option<Copy> {
        if self.under_way.len() == COPIES_MAX {
            return None;
        }
        let copy = self.waiting.pop_front()?;
        self.under_way.push(copy.token);
        Some(copy)
    }

    /// Commands were answered, and copies may be among them. Says whether one was.
    pub fn ended(&mut self, completions: &[ZoneCompletion]) -> bool {
        let before = self.under_way.len();
        if before > 0 {
            self.under_way.retain(|token| completions.iter().all(|completion| completion.token != *token));
        }
        self.under_way.len() < before
    }

    /// Takes out those that did not begin.
    pub fn take_waiting(&mut self) -> impl Iterator<Item = ZoneToken> {
        self.waiting.drain(..).map(|copy| copy.token)
    }

    /// Whether there are none.
    pub fn are_done(&self) -> bool {
        self.under_way.is_empty() && self.waiting.is_empty()
    }
}
