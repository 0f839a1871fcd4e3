//! What lies on a device whoever may read it, for tests: all that was programmed and not erased since, also where reads fail.

use crate::Device;
use crate::store::places::NO_PLACE;
use diecut_units::{ContentMode, EraseBlockAddress, IU_SIZE_BYTES, TAG_SIZE_BYTES};

impl Device {
    /// From now on what may be forgotten is kept: [`diecut_media::Media::discard`] is only advice, and a drive need not take it.
    pub fn keep_discarded(&mut self) {
        self.keeps_discarded = true;
    }

    /// Shows each IU that was programmed and not erased since, with its erase block: its bytes, or its tag. What tests look for may lie
    /// where no host and no room of the server would read it.
    pub fn look_through(&self, mut look: impl FnMut(EraseBlockAddress, &[u8])) {
        let nand = &self.engine.nand;
        let tags = self.capabilities.content_mode == ContentMode::Tags;
        let mut bytes = vec![0; IU_SIZE_BYTES];
        for (number, block) in (0..).zip(&nand.blocks) {
            if block.place == NO_PLACE {
                continue;
            }
            let ius = block.programmed_page * nand.geometry.ius_per_page();
            for iu in 0..ius {
                let place = block.place.into();
                let tag = &mut bytes[..TAG_SIZE_BYTES];
                let len = match tags && nand.store.read(place, iu, 1, tag).is_ok() {
                    true => TAG_SIZE_BYTES,
                    false if nand.store.read(place, iu, 1, &mut bytes).is_ok() => IU_SIZE_BYTES,
                    false => continue,
                };
                look(nand.address(number), &bytes[..len]);
            }
        }
    }
}
