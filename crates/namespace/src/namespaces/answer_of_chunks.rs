//! What chunks answer becomes the answer to a command.

use super::Namespaces;
use crate::chunks;
use crate::contract::ZoneOutcome;
use crate::outputs::Finished;
use crate::pending::Extra;
use diecut_openchannel::contract::{ChunkAnswer, ChunkCompletion, ListBits};
use diecut_units::{BufferMut, Time};

/// Takes the answer of chunks: that of the command.
///
/// # Panics
/// If the token is not under way.
pub fn complete_chunks(namespaces: &mut Namespaces, completion: ChunkCompletion, now: Time) -> Finished {
    let ChunkCompletion { token, result, failed, strained, partial } = completion;
    let mut pending = namespaces.pending.remove(token.0);
    assert_eq!(pending.remaining, 1, "I-N1: chunks answer a command once");
    let (mut destination, mut outcome) = (None, None);
    match result {
        Ok(ChunkAnswer::Done) => {}
        Ok(ChunkAnswer::Content(content)) => {
            destination = Some(content);
            outcome = (strained != ListBits::default()).then_some(ZoneOutcome::Strained(strained));
        }
        Ok(ChunkAnswer::Report(report)) => outcome = Some(ZoneOutcome::Chunks(report)),
        Err(error) => {
            let extras = &mut namespaces.extras;
            let index = *pending.extra.get_or_insert_with(|| extras.insert(Extra::default()));
            extras[index].error.get_or_insert(chunks::translate(&error));
            outcome = (failed != ListBits::default()).then_some(ZoneOutcome::Failed(failed));
        }
    }
    let mut finished = namespaces.finish(pending, destination, now);
    finished.completion.zones = outcome;
    if finished.completion.result.is_err() {
        finished.completion.data = partial.map(BufferMut::freeze);
    }
    finished
}
