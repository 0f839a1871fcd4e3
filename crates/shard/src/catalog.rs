//! Between the catalog and requests of administrators.

use crate::control::{ControlError, ControlErrorKind};
use diecut_catalog::{Catalog, CatalogError, State};
use diecut_media::Media;
use diecut_units::{EraseBlockAddress, Time};

/// The catalog of a shard. It is the first shard's; nobody asks another's. `is_new`: nothing is read of what lies there. `None` on a device that has no room for one. `device` is its UUID, where
/// pages have no OOB areas.
pub(crate) fn new_catalog<M: Media>(
    media: &mut M,
    device: [u8; 16],
    dies: &[Vec<EraseBlockAddress>],
    is_new: bool,
    now: Time,
) -> Option<Catalog> {
    let blocks = Catalog::choose_blocks(dies)?;
    if is_new {
        return Some(Catalog::create(media, device, blocks));
    }
    // What exists can be written down also while the file system under the device is full. On the first start all channels are here
    // still.
    for block in blocks.as_flattened() {
        media.make_room(*block, now);
    }
    Some(Catalog::open(media, device, blocks, now))
}

/// Whether the catalog has room for what a request leads to. Asked before anything is touched: later, erase blocks would have to be given
/// back.
pub(crate) fn has_room(catalog: &Catalog, base: &State, next: &State) -> Result<(), ControlError> {
    catalog.fits(&base.changes_to(next), 1000).map_err(|error| refusal(&error))
}

/// Part of the catalog's room that hosts may fill with what they want to be kept. A choice: the rest is administrators' alone.
const HOSTS_PERMILLE: u64 = 500;

/// Whether the catalog has room for what hosts want to be kept.
pub(crate) fn has_room_for_hosts(catalog: &Catalog, base: &State, next: &State) -> bool {
    catalog.error().is_none() && catalog.fits(&base.changes_to(next), HOSTS_PERMILLE).is_ok()
}

/// What an administrator is told when the catalog takes no change.
pub(crate) fn refusal(error: &CatalogError) -> ControlError {
    let kind = match error {
        CatalogError::Full { .. } => ControlErrorKind::Exhausted,
        CatalogError::Damaged(_)
        | CatalogError::Version(_)
        | CatalogError::FlushFailed
        | CatalogError::Failed => ControlErrorKind::Media,
    };
    ControlError { kind, message: format!("nothing was changed: {error}") }
}
