//! Flushes that holders ask for: the medium answers each one, several together if it likes.

use crate::core::Core;
use crate::token::{FLUSH_TOKEN_BIT, POOL_TOKEN_BIT};
use crate::{SpaceCompletion, SpaceError, SpaceToken, VssdId};
use diecut_media::{Capabilities, Media, MediaError, MediaToken};
use diecut_units::{Time, mutant};

/// Whether holders flush: where blocks have headers, what was noted of a flush is all that tells a loss from the end of what was written.
pub(crate) fn is_flushed(header_pages: u32, capabilities: &Capabilities) -> bool {
    let keeps_all = !capabilities.volatile_cache;
    header_pages > 0 && !(keeps_all && mutant!("vssd: a drive without a cache is not flushed"))
}

/// Whose flush is that of a copy.
const NO_HOLDER: VssdId = VssdId(0);

impl Core {
    /// Makes durable what was appended so far. An answer says when it is; at once where appends are durable when they complete.
    pub(crate) fn flush<M: Media + ?Sized>(
        &mut self,
        id: VssdId,
        token: SpaceToken,
        media: &mut M,
        now: Time,
    ) {
        if !media.capabilities().volatile_cache || mutant!("vssd: a flush is answered at once") {
            return self.flush_ready(id, token, Ok(()));
        }
        self.vssds.of(id).operations += 1;
        let at = self.flushes.insert((id, token));
        media.flush(MediaToken(POOL_TOKEN_BIT | FLUSH_TOKEN_BIT | u64::from(at)), now);
    }

    /// Makes durable what copies programmed; no holder waits for it.
    pub(crate) fn flush_copies<M: Media + ?Sized>(&mut self, token: SpaceToken, media: &mut M, now: Time) {
        let at = self.flushes.insert((NO_HOLDER, token));
        media.flush(MediaToken(POOL_TOKEN_BIT | FLUSH_TOKEN_BIT | u64::from(at)), now);
    }

    /// A flush came back. One of copies is given back, with what came of it.
    ///
    /// # Panics
    /// If it is none that is under way (I-V1).
    pub(crate) fn flushed(
        &mut self,
        token: MediaToken,
        result: Result<(), MediaError>,
    ) -> Option<(SpaceToken, Result<(), MediaError>)> {
        let (id, token) = self.flushes.remove(token.0 as u32);
        if id == NO_HOLDER {
            return Some((token, result));
        }
        self.vssds.of(id).operations -= 1;
        let result = result.map_err(|error| match error {
            MediaError::PowerLost => SpaceError::PowerLost,
            _ => SpaceError::FlushFailed,
        });
        self.flush_ready(id, token, result);
        None
    }

    fn flush_ready(&mut self, id: VssdId, token: SpaceToken, result: Result<(), SpaceError>) {
        self.ready.push((id, SpaceCompletion { token, result, destination: None, oob: None, retries: 0 }));
    }
}
