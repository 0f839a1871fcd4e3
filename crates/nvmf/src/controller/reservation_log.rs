//! What a host is told of reservations: one page for each thing that others did, and which of them it wants to hear of.

use super::Notice;
use diecut_nvme::admin::AsynchronousEvent;
use diecut_nvme::reservation::ReservationNotification;
use std::collections::{BTreeMap, VecDeque};

/// Pages that wait at most: more are counted and not kept.
const PAGES_MAX: usize = 255;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct ReservationLog {
    pages: VecDeque<ReservationNotification>,
    count: u64,
    notice: Notice,
    /// Feature 82h by NSID: bits of kinds that are not told.
    pub(crate) masks: BTreeMap<u32, u8>,
}

impl ReservationLog {
    /// Something happened to a namespace.
    pub(crate) fn add(&mut self, kind: u8, nsid: u32) {
        if self.masks.get(&nsid).is_some_and(|mask| mask & 1 << kind != 0) {
            return;
        }
        self.count = self.count.wrapping_add(1).max(1);
        if self.pages.len() < PAGES_MAX {
            let page = ReservationNotification {
                count: self.count.into(),
                kind,
                nsid: nsid.into(),
                ..ReservationNotification::default()
            };
            self.pages.push_back(page);
        }
        if self.notice == Notice::Quiet {
            self.notice = Notice::Pending;
        }
        assert!(self.pages.len() <= PAGES_MAX, "I-T14: a controller keeps as many pages as it can count");
    }

    /// The oldest page, or an empty one. Where the event is not to stay, it is over with that.
    pub(super) fn read(&mut self, retain_event: bool) -> ReservationNotification {
        let Some(oldest) = self.pages.front().copied() else { return ReservationNotification::default() };
        let available = (self.pages.len() - 1) as u8;
        if !retain_event {
            self.pages.pop_front();
            self.notice = if self.pages.is_empty() { Notice::Quiet } else { Notice::Pending };
        }
        ReservationNotification { available, ..oldest }
    }

    /// The next event; it counts as told.
    pub(super) fn next_event(&mut self) -> Option<AsynchronousEvent> {
        if self.notice != Notice::Pending {
            return None;
        }
        self.notice = Notice::Masked;
        Some(AsynchronousEvent::RESERVATION_LOG)
    }

    /// The controller is reset: what was not read is forgotten, and so are wishes.
    pub(super) fn reset(&mut self) {
        *self = ReservationLog::default();
    }
}
