//! Flushes of a drive: who waits for the one under way, and who for the next one.

use diecut_media::MediaToken;
use diecut_units::mutant;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// One flush at a time is under way. Who asks meanwhile waits for the next one, for this one may have begun before what he wants
/// covered was answered; all who wait then share it.
#[derive(Debug, Default)]
pub(crate) struct Flushes {
    under_way: Vec<MediaToken>,
    is_under_way: bool,
    next: Vec<MediaToken>,
    /// Of all parts of the drive: its cache is one, and what it lost may be any part's.
    has_failed: Arc<AtomicBool>,
}

impl Flushes {
    /// Whether a flush failed: nothing is programmed any more, and nothing flushed.
    pub fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Acquire)
    }

    /// Those of another part of the drive.
    pub fn of_part(&self) -> Flushes {
        Flushes { has_failed: Arc::clone(&self.has_failed), ..Flushes::default() }
    }

    /// Somebody wants a flush.
    pub fn ask(&mut self, token: MediaToken) {
        match self.is_under_way && mutant!("drives: a flush that comes late joins the one under way") {
            true => self.under_way.push(token),
            false => self.next.push(token),
        }
    }

    /// Whether the next flush is to begin now. If so it has begun.
    pub fn begin(&mut self) -> bool {
        // I-D2: it may have begun before what the next one is to cover was answered.
        if self.is_under_way || self.next.is_empty() {
            return false;
        }
        std::mem::swap(&mut self.under_way, &mut self.next);
        self.is_under_way = true;
        true
    }

    /// The one under way was answered: everyone who waited for it. After a failure also those who wait for the next one.
    pub fn end(&mut self, worked: bool) -> impl Iterator<Item = MediaToken> + '_ {
        self.is_under_way = false;
        if !worked && !mutant!("drives: a flush that failed is asked again") {
            self.has_failed.store(true, Ordering::Release);
            self.under_way.append(&mut self.next);
        }
        self.under_way.drain(..)
    }
}
