//! How copies go on, from reads to changes.

use crate::changes::{Change, Changes, Queued};
use crate::contract::VolumeCompletion;
use crate::copies::CopyRequest;
use crate::lent::Lent;
use crate::reads::Reads;
use diecut_units::Payload;

/// Lets what was read become changes, and begins with what waits.
pub(crate) fn go_on(
    reads: &mut Reads,
    changes: &mut Changes,
    lent: &mut Lent,
    completions: &mut Vec<VolumeCompletion>,
) {
    while let Some(request) = reads.copies.next(changes.copied_ius) {
        reads.read_copy(request, lent, completions);
    }
    let mode = lent.log.layout().content_mode();
    for (request, content) in reads.copies.take_read() {
        let CopyRequest { token, volume, copy } = request;
        let payload = Payload::new(mode, content.freeze());
        assert_eq!(payload.iu_count(), copy.iu_count(), "I-M5: a copy writes what it read");
        changes.copied_ius += copy.iu_count();
        let change = Change::copied(copy.first_iu, payload, copy.placement);
        changes.push(Queued { token, volume, force: copy.force_unit_access, change });
    }
}
