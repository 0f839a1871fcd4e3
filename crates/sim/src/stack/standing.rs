//! What an operator was told of vSSDs.

use diecut_shard::notice::Notice;
use std::collections::BTreeSet;

/// Keeps the books of what an operator was told of vSSDs that take no writes.
pub(super) fn note_standing(
    notice: &Notice,
    read_only: &mut BTreeSet<String>,
    no_room: &mut BTreeSet<String>,
) {
    match notice {
        Notice::ReadOnly { vssd, .. } => drop(read_only.insert(vssd.clone())),
        Notice::NoRoom { vssd, .. } => {
            read_only.insert(vssd.clone());
            no_room.insert(vssd.clone());
        }
        Notice::RoomAgain { vssd } => drop(no_room.remove(vssd)),
        _ => {}
    }
}
