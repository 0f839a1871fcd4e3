//! What was written and erased since the store was made.

use super::Store;
use crate::changes::{Change, Queued};
use crate::contract::VolumeToken;
use crate::endurance::EnduranceFigures;
use diecut_vssd::space::EraseBlockSpace;

impl Store {
    /// What was written and erased since the store was made. After a crash what came since the newest anchor, or the newest
    /// [`Store::note_figures`], is what recovery found of it: no more than there was.
    pub fn endurance(&self, space: &dyn EraseBlockSpace) -> EnduranceFigures {
        self.endurance.now(&self.changes.handle_written_ius, space)
    }

    /// Writes [`Store::endurance`] down, in its turn with writes. The completion says that it is durable. A store that takes no writes, or
    /// has no room at present, keeps what its newest anchor says, and answers too.
    pub fn note_figures(&mut self, token: VolumeToken) {
        self.rest.end();
        self.changes.push(Queued { token, volume: 0, force: true, change: Change::NoteFigures });
    }
}
