//! Purges of a store: what was deleted, deallocated or overwritten in any of its volumes leaves the medium. The log does the work
//! ([`diecut_log::Log::begin_purge`]); here it is decided when it can begin, and who is answered.
//!
//! One goes on at a time, and whoever asks meanwhile waits for the next one: what was deleted last must be among what goes.

use crate::contract::{VolumeCompletion, VolumeError, VolumeToken};
use crate::lent::Lent;
use diecut_log::{Log, PurgeError};

/// See the module.
#[derive(Default)]
pub(crate) struct Purging {
    asked: Vec<VolumeToken>,
    under_way: Vec<VolumeToken>,
}

impl Purging {
    /// Somebody asks for one.
    pub fn push(&mut self, token: VolumeToken) {
        self.asked.push(token);
    }

    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.asked.is_empty() && self.under_way.is_empty()
    }

    /// Whether one begun just now goes on without an event.
    pub fn is_due(&self, log: &Log) -> bool {
        log.is_purge_due() && !self.is_empty()
    }

    /// Begins the next one if it can. While maps of deleted volumes come to their end the cleaner still copies what is in them, and what
    /// a repair gives back is held until the repair is written down.
    pub fn begin(&mut self, is_mending: bool, lent: &mut Lent) {
        let waits = is_mending || lent.maps.has_ending() || lent.log.is_purging();
        if self.asked.is_empty() || waits && lent.log.read_only().is_none() {
            return;
        }
        assert!(self.under_way.is_empty(), "I-M19: one purge of a store at a time");
        self.under_way.append(&mut self.asked);
        lent.log.begin_purge();
    }

    /// Answers those whose purge is over.
    pub fn answer(&mut self, lent: &mut Lent, completions: &mut Vec<VolumeCompletion>) {
        let Some(result) = lent.log.take_purged() else { return };
        let result = result.map_err(|error| match error {
            PurgeError::ReadOnly(reason) => VolumeError::ReadOnly { reason },
            PurgeError::NoRoom(reason) => VolumeError::NoRoom { reason },
            PurgeError::Unreadable => {
                VolumeError::NotErased { reason: "data that cannot be read keeps what lies beside it" }
            }
            PurgeError::NotErased { .. } => {
                VolumeError::NotErased { reason: "erase blocks that went bad could not be erased" }
            }
            PurgeError::Gone => VolumeError::Gone,
        });
        let over = self.under_way.drain(..);
        completions.extend(over.map(|token| VolumeCompletion {
            token,
            result: result.clone(),
            destination: None,
        }));
    }

    /// None of them will be done.
    pub fn drain(&mut self) -> impl Iterator<Item = VolumeToken> {
        let under_way = std::mem::take(&mut self.under_way);
        under_way.into_iter().chain(std::mem::take(&mut self.asked))
    }
}
