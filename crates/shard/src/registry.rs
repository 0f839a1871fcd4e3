//! What exists, as the catalog has it durable.

use crate::away::Away;
use crate::catalog::Catalogs;
use crate::ledger::Group;
use diecut_catalog::{Catalog, State, VssdRecord};
use diecut_media::Divide;
use diecut_nvme::QualifiedName;
use diecut_spec::TenantSpec;
use diecut_units::BlockIndex;
use diecut_vssd::{Share, VssdId};
use std::collections::BTreeMap;

/// The share of dies that a vSSD's definition says.
pub(crate) fn share_of(record: &VssdRecord) -> Share {
    Share { weight: record.weight, rate_bytes_per_second: record.rate_limit.bytes(), sharing: record.sharing }
}

/// A name that was checked when what has it was made.
pub(crate) fn qualified(nqn: &str) -> QualifiedName {
    QualifiedName::new(nqn).expect("I-S6: a name was checked when it was made")
}

/// See the module.
pub(crate) struct Registry {
    pub catalog: Catalogs,
    pub state: State,
    /// vSSDs on devices that are not there, all of them or one: why, by number.
    pub away: BTreeMap<u32, Away>,
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
}
