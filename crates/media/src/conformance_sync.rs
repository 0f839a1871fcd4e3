use crate::{IntentDone, IntentWork, Media};
use diecut_units::Time;

/// Has what waits for a sync synced. Whether there was anything.
pub(crate) fn sync(medium: &mut dyn Media, now: Time) -> bool {
    let next = medium.next_event();
    let mut intents = Vec::new();
    medium.take_intents(&mut intents);
    let Some(intent) = intents.pop() else { return false };
    assert!(next <= now, "a medium that has something to ask for says so");
    assert!(intents.is_empty(), "one sync at a time");
    assert!(matches!(intent.work, IntentWork::Sync), "reads and writes are for who drives the medium");
    medium.take_intents(&mut intents);
    assert!(intents.is_empty(), "an intent is given out once");
    medium.intent_done(IntentDone { token: intent.token, buffer: None, result: Ok(()) }, now);
    true
}
