//! Zones among the stores of a shard: how they are opened and asked.

use super::{Flash, slot_of};
use crate::at_work::For;
use crate::kept::Kept;
use diecut_media::Media;
use diecut_namespace::StoreIndex;
use diecut_units::{ProtectedRegion, Time};
use diecut_vssd::VssdId;
use diecut_zoned::contract::{ZoneCommand, ZoneSetIndex};
use diecut_zoned::{ZoneRoom, ZoneSetDefinition, ZoneStore};

/// A view of stores that are of zones.
pub(crate) struct ZonesView<'a, M: Media>(&'a mut Flash<M>);

impl<'a, M: Media> ZonesView<'a, M> {
    pub fn of(flash: &'a mut Flash<M>) -> ZonesView<'a, M> {
        ZonesView(flash)
    }

    /// As [`Flash::open_store`].
    ///
    /// # Panics
    /// As [`Flash::open_store`].
    pub fn open(
        &mut self,
        vssd: VssdId,
        sets: &[(ZoneSetIndex, ZoneSetDefinition)],
        staging: Option<ProtectedRegion>,
        now: Time,
    ) -> StoreIndex {
        let flash = &mut *self.0;
        flash.make_room_for(vssd);
        flash.at_work.now_for = For::Vssd(vssd);
        let store = Box::new(ZoneStore::open(sets, flash.devices.space(vssd, now).as_mut(), staging));
        flash.at_work.now_for = For::All;
        flash.seat(vssd, Kept::Zones { store, is_quiescing: false })
    }

    /// What room a vSSD has for zones.
    pub fn room(&mut self, vssd: VssdId, staging_size_bytes: Option<usize>, now: Time) -> ZoneRoom {
        let flash = &mut *self.0;
        ZoneRoom::of(flash.devices.space(vssd, now).as_ref(), staging_size_bytes)
    }

    /// Gives commands to zones, in order. [`Flash::run`] follows.
    pub fn submit(&mut self, commands: &mut Vec<(StoreIndex, ZoneCommand)>, now: Time) {
        let flash = &mut *self.0;
        for (index, command) in commands.drain(..) {
            let slot = slot_of(&mut flash.stores, index);
            slot.mark_busy(index, &mut flash.busy);
            flash.at_work.now_for = For::Vssd(slot.vssd);
            let mut space = flash.devices.space_on(slot.lies_on, slot.vssd, now);
            slot.store.zones_mut().submit(command, space.as_mut(), &mut flash.answers.zones);
        }
        flash.at_work.now_for = For::All;
    }
}
