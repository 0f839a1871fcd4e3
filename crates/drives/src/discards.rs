//! Erase blocks whose bytes the drive may forget, a few at a time.

use diecut_units::{Span, Time};
use std::collections::BTreeSet;

/// Freed erase blocks of a part of a drive. One is discarded at a time, and after each one the drive has as long for itself as that took:
/// drives stall reads while they discard.
#[derive(Debug, Default)]
pub(crate) struct Discards {
    /// In the order of their place.
    waiting: BTreeSet<(u16, u32)>,
    /// When the one under way began.
    began: Option<Time>,
    /// When the next one may begin.
    ready: Time,
}

impl Discards {
    pub fn push(&mut self, lane: u16, block: u32) {
        self.waiting.insert((lane, block));
    }

    /// The erase block is needed again, or somebody else sees to it: if it was not begun, it is not done. Whether it waited.
    pub fn forget(&mut self, lane: u16, block: u32) -> bool {
        self.waiting.remove(&(lane, block))
    }

    /// The lane goes elsewhere, and what waits there with it.
    pub fn take_lane(&mut self, from: &mut Discards, lane: u16) {
        let mut of_lane = from.waiting.split_off(&(lane, 0));
        from.waiting.append(&mut of_lane.split_off(&(lane, u32::MAX)));
        self.waiting.append(&mut of_lane);
    }

    /// The erase block to discard now, if it is time.
    pub fn begin(&mut self, now: Time) -> Option<(u16, u32)> {
        if self.began.is_some() || now < self.ready {
            return None;
        }
        let next = self.waiting.pop_first()?;
        self.began = Some(now);
        Some(next)
    }

    pub fn end(&mut self, now: Time) {
        let began = self.began.take().expect("one is under way");
        self.ready = now + Span(now.since(began).0);
    }

    /// When [`Discards::begin`] has something.
    pub fn next_event(&self) -> Time {
        match self.began.is_none() && !self.waiting.is_empty() {
            true => self.ready,
            false => Time::NEVER,
        }
    }
}
