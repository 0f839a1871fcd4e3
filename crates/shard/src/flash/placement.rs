//! Reclaim units of a store: how hosts end them, and what hosts are told of the endurance of their vSSD.

use super::{Flash, slot_of};
use crate::reclaim;
use diecut_media::Media;
use diecut_namespace::StoreIndex;
use diecut_spec::VssdSpec;
use diecut_units::{IU_SIZE_BYTES, Time};
use diecut_volume::{EnduranceFigures, Placement, PlacementError, PlacementTarget};
use diecut_vssd::VssdId;

impl<M: Media> Flash<M> {
    /// What the store of a vSSD has, as it was asked for.
    pub fn placement_of(&self, vssd: VssdId, spec: &VssdSpec) -> Placement {
        let units = self.devices.size_of(vssd).0 as u16;
        reclaim::placement_of(spec, units, self.devices.first_of(vssd).media.geometry())
    }

    /// Whether the store of a vSSD that is yet to be made can have these handles, and bytes of protected memory with which none of them would
    /// need filler, where it has fewer.
    ///
    /// # Errors
    /// What is missing, with the figure.
    pub fn can_place(
        &mut self,
        vssd: VssdId,
        staging_size_bytes: Option<usize>,
        placement: Placement,
        now: Time,
    ) -> Result<Option<usize>, PlacementError> {
        let space = self.devices.space(vssd, now);
        placement.check(space.as_ref(), staging_size_bytes)?;
        Ok(placement.wants_staging_bytes(space.as_ref(), staging_size_bytes))
    }

    /// What was written and erased since a store was made, and bytes of an erase block.
    ///
    /// # Panics
    /// If no store of volumes is open there.
    pub fn endurance_of(&mut self, index: StoreIndex, now: Time) -> (EnduranceFigures, u64) {
        let slot = slot_of(&mut self.stores, index);
        let space = self.devices.space_on(slot.lies_on, slot.vssd, now);
        let figures = slot.store.expect_volumes().endurance(space.as_ref());
        let shape = *space.as_ref().shape();
        (figures, u64::from(shape.pages) * u64::from(shape.page_size_bytes))
    }

    /// Gives handles of a store of volumes a fresh reclaim unit in their groups. Those whose old one was written in part, and IUs that these still took: the
    /// rate of the vSSD pays for them as if they had been written, because they are erased all the same.
    ///
    /// # Panics
    /// If no store of volumes is open there.
    pub fn update_reclaim_units(
        &mut self,
        index: StoreIndex,
        targets: &[PlacementTarget],
        now: Time,
    ) -> (Vec<PlacementTarget>, u64) {
        let slot = slot_of(&mut self.stores, index);
        if targets.is_empty() {
            return (Vec::new(), 0);
        }
        slot.mark_busy(index, &mut self.busy);
        let mut space = self.devices.space_on(slot.lies_on, slot.vssd, now);
        let store = slot.store.volumes_mut();
        let (mut partly_written, mut unused_ius) = (Vec::new(), 0);
        for target in targets {
            let update =
                store.update_reclaim_unit(target.group.unwrap_or_default(), target.handle, space.as_mut());
            if update.was_partial {
                partly_written.push(*target);
                unused_ius += update.remaining_ius;
            }
        }
        drop(space);
        self.devices.charge_unused(slot.vssd, unused_ius * IU_SIZE_BYTES as u64, now);
        (partly_written, unused_ius)
    }
}
