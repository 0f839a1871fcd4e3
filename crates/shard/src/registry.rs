//! What exists, as the catalog has it durable, and the protected memory that it lies in.

use crate::control::{ControlError, ControlErrorKind};
use crate::ledger::Group;
use diecut_catalog::{Catalog, State, VssdRecord};
use diecut_media::Divide;
use diecut_nvme::QualifiedName;
use diecut_spec::TenantSpec;
use diecut_units::{BlockIndex, ProtectedMemory, ProtectedRegion};
use diecut_vssd::{Share, VssdId};
use std::collections::BTreeMap;

/// Channels that one slot of protected memory suffices for.
const CHANNELS_PER_STAGING_SLOT: u32 = 2;

/// The share of dies that a vSSD's definition says.
pub(crate) fn share_of(record: &VssdRecord) -> Share {
    Share { weight: record.weight, rate_bytes_per_second: record.rate_limit.bytes(), sharing: record.sharing }
}

/// A name that was checked when what has it was made.
pub(crate) fn qualified(nqn: &str) -> QualifiedName {
    QualifiedName::new(nqn).expect("I-S6: a name was checked when it was made")
}

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
}

/// See the module.
pub(crate) struct Registry {
    pub catalog: Catalog,
    pub state: State,
    pub staging: Staging,
    /// The catalog is being written for another job, or channels of it may be on their way: no writing begins.
    pub is_taken: bool,
    pub lost_catalog_copies: usize,
}

impl Registry {
    /// A catalog for a shard that fails: nothing is written to it.
    pub fn no_catalog<M: Divide>(media: &M) -> Catalog {
        let block = media.geometry().die_at(0).erase_block(BlockIndex(0));
        Catalog::create(media, [0; 16], [[block; 2]; 2])
    }

    /// The name of a vSSD, for people.
    pub fn name_of_vssd(&self, vssd: VssdId) -> String {
        let named = self.state.vssds.iter().find(|(_, record)| record.number == vssd.0);
        named.map_or_else(|| format!("number {}", vssd.0), |(name, _)| name.clone())
    }

    /// Whose a vSSD is.
    ///
    /// # Panics
    /// If it does not exist.
    pub fn tenant_of_vssd(&self, vssd: VssdId) -> &TenantSpec {
        let record = self.state.vssds.values().find(|record| record.number == vssd.0);
        let record = record.expect("I-S6: what is on a vSSD exists while it does");
        &self.state.tenants[&record.tenant]
    }

    /// Whose each vSSD is, by number.
    pub fn tenants_of_vssds(&self) -> BTreeMap<u32, String> {
        self.state.vssds.values().map(|vssd| (vssd.number, vssd.tenant.clone())).collect()
    }

    /// Subsystems of a group's tenants.
    pub fn subsystems_of(&self, group: &Group) -> Vec<String> {
        let of_group =
            self.state.subsystems.iter().filter(|(_, record)| group.tenants.contains(&record.tenant));
        of_group.map(|(nqn, _)| nqn.clone()).collect()
    }

    /// Slots of protected memory in which no vSSD stages, one behind the other, for one on so many of the device's channels: the
    /// first, and how many. No slot on media without.
    ///
    /// A wide vSSD fills a slot in less time than a die needs for an erase, and what is behind that die stays staged: so it gets
    /// more of them, as far as its share of the device's channels goes.
    pub fn free_staging_slots(
        &self,
        name: &str,
        channels: u32,
        of_channels: u16,
    ) -> Result<(Option<u32>, u32), ControlError> {
        let slots = self.staging.slots();
        if slots == 0 {
            return Ok((None, 1));
        }
        let share = slots * channels / u32::from(of_channels);
        let most = (channels / CHANNELS_PER_STAGING_SLOT).min(share).max(1);
        let of_records = self.state.vssds.values();
        let taken = of_records.filter_map(|vssd| Some((vssd.staging_slot?, vssd.staging_slot_count)));
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
