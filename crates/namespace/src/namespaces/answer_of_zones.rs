//! What zones answer becomes the answer to a command.

use super::Namespaces;
use crate::contract::ZoneOutcome;
use crate::outputs::Finished;
use crate::pending::Extra;
use crate::statistics::Kind;
use crate::zones;
use diecut_units::Time;
use diecut_zoned::contract::{ZoneAnswer, ZoneCompletion};

/// Takes the answer of zones: that of the command.
///
/// # Panics
/// If the token is not under way.
pub fn complete_zones(namespaces: &mut Namespaces, completion: ZoneCompletion, now: Time) -> Finished {
    let ZoneCompletion { token, result } = completion;
    let mut pending = namespaces.pending.remove(token.0);
    assert_eq!(pending.remaining, 1, "I-N1: zones answer a command once");
    let (mut destination, mut outcome) = (None, None);
    match result {
        Ok(ZoneAnswer::Done | ZoneAnswer::Written(_)) if pending.kind != Kind::Append => {}
        Ok(ZoneAnswer::Done) => {}
        Ok(ZoneAnswer::Written(lba)) => outcome = Some(ZoneOutcome::Appended(lba)),
        Ok(ZoneAnswer::Content(content)) => destination = Some(content),
        Ok(ZoneAnswer::Report(report)) => outcome = Some(ZoneOutcome::Report(report)),
        Err(error) => {
            let extras = &mut namespaces.extras;
            let index = *pending.extra.get_or_insert_with(|| extras.insert(Extra::default()));
            extras[index].error.get_or_insert(zones::translate(&error));
        }
    }
    let mut finished = namespaces.finish(pending, destination, now);
    finished.completion.zones = outcome;
    finished
}
