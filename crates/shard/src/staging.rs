//! Protected memory of a device: block states in front, then slots that its vSSDs stage in.

use crate::control::{ControlError, ControlErrorKind};
use diecut_catalog::VssdRecord;
use diecut_units::{ProtectedMemory, ProtectedRegion};

/// Channels that one slot of protected memory suffices for.
const CHANNELS_PER_STAGING_SLOT: u32 = 2;

/// Protected memory: block states in front, then slots that vSSDs stage in.
pub(crate) struct Staging {
    /// None on media without.
    pub memory: Option<ProtectedMemory>,
    /// Bytes that block states take.
    pub block_states_size_bytes: usize,
    pub slot_size_bytes: usize,
}

impl Staging {
    /// Slots that there is room for.
    fn slots(&self) -> u32 {
        let Some(memory) = &self.memory else { return 0 };
        let room = memory.size_bytes().saturating_sub(self.block_states_size_bytes);
        (room / self.slot_size_bytes) as u32
    }

    /// Bytes that a vSSD stages in.
    pub fn size_bytes(&self, record: &VssdRecord) -> Option<usize> {
        record.staging_slot.map(|_| record.staging_slot_count as usize * self.slot_size_bytes)
    }

    /// The part that a vSSD stages in.
    pub fn region(&self, record: &VssdRecord) -> Option<ProtectedRegion> {
        let memory = self.memory.as_ref()?;
        let size = self.size_bytes(record)?;
        let first = record.staging_slot?;
        let end = first + record.staging_slot_count;
        assert!(end <= self.slots(), "I-S7: a vSSD stages in slots that there are");
        let start = self.block_states_size_bytes + first as usize * self.slot_size_bytes;
        Some(memory.region(start..start + size))
    }

    /// Slots of protected memory in which no vSSD stages, one behind the other, for one on so many of the device's channels: the
    /// first, and how many. `own`: those of the vSSDs that the device has. No slot on media without.
    ///
    /// A wide vSSD fills a slot in less time than a die needs for an erase, and what is behind that die stays staged: so it gets
    /// more of them, as far as its share of the device's channels goes.
    pub fn free_slots(
        &self,
        name: &str,
        (channels, of_channels): (u32, u16),
        own: impl Iterator<Item = (Option<u32>, u32)>,
    ) -> Result<(Option<u32>, u32), ControlError> {
        let slots = self.slots();
        if slots == 0 {
            return Ok((None, 1));
        }
        let share = slots * channels / u32::from(of_channels);
        let most = (channels / CHANNELS_PER_STAGING_SLOT).min(share).max(1);
        let taken = own.filter_map(|(first, count)| Some((first?, count)));
        let taken: Vec<u32> = taken.flat_map(|(first, count)| first..first + count).collect();
        let is_free = |first: u32, count: u32| (first..first + count).all(|slot| !taken.contains(&slot));
        for count in (1..=most).rev() {
            if let Some(first) = (0..=slots - count).find(|first| is_free(*first, count)) {
                return Ok((Some(first), count));
            }
        }
        let message = format!(
            "vSSD \"{name}\": all {slots} parts of protected memory are taken, and each vSSD needs one; delete one, or give the \
             device more"
        );
        Err(ControlError { kind: ControlErrorKind::Exhausted, message })
    }
}
