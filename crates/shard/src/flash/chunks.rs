//! Chunks among the stores of a shard: how they are opened and asked.

use super::{Flash, slot_of};
use crate::at_work::For;
use crate::kept::Kept;
use diecut_media::Media;
use diecut_namespace::StoreIndex;
use diecut_openchannel::contract::ChunkCommand;
use diecut_openchannel::{ChunkDefinition, ChunkRoom, ChunkStore};
use diecut_units::Time;
use diecut_vssd::VssdId;

/// A view of stores that are of chunks.
pub(crate) struct ChunksView<'a, M: Media>(&'a mut Flash<M>);

impl<'a, M: Media> ChunksView<'a, M> {
    pub fn of(flash: &'a mut Flash<M>) -> ChunksView<'a, M> {
        ChunksView(flash)
    }

    /// As [`Flash::open_store`].
    ///
    /// # Panics
    /// As [`Flash::open_store`].
    pub fn open(&mut self, vssd: VssdId, definition: Option<ChunkDefinition>, now: Time) -> StoreIndex {
        let flash = &mut *self.0;
        flash.make_room_for(vssd);
        flash.at_work.now_for = For::Vssd(vssd);
        let store = Box::new(ChunkStore::open(definition, flash.devices.space(vssd, now).as_mut()));
        flash.at_work.now_for = For::All;
        flash.seat(vssd, Kept::Chunks { store, is_quiescing: false })
    }

    /// What room a vSSD has for chunks.
    pub fn room(&mut self, vssd: VssdId, now: Time) -> ChunkRoom {
        let flash = &mut *self.0;
        ChunkRoom::of(flash.devices.space(vssd, now).as_ref())
    }

    /// Gives commands to chunks, in order. [`Flash::run`] follows.
    pub fn submit(&mut self, commands: &mut Vec<(StoreIndex, ChunkCommand)>, now: Time) {
        let flash = &mut *self.0;
        for (index, command) in commands.drain(..) {
            let slot = slot_of(&mut flash.stores, index);
            slot.mark_busy(index, &mut flash.busy);
            flash.at_work.now_for = For::Vssd(slot.vssd);
            let mut space = flash.devices.space_on(slot.lies_on, slot.vssd, now);
            slot.store.chunks_mut().submit(command, space.as_mut(), &mut flash.answers.chunks);
        }
        flash.at_work.now_for = For::All;
    }
}
