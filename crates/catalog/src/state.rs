//! What exists, as plain data.

use diecut_spec::{Isolation, Serves, Sharing};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The pool itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PoolRecord {
    /// Identity; other identities are derived from it.
    pub uuid: [u8; 16],
    /// Times the pool was opened.
    pub starts: u64,
    /// Times it was opened without having been closed.
    pub unclean_starts: u64,
    /// Whether it was closed.
    pub closed: bool,
    /// Namespace ids given so far; they are not used again.
    pub namespaces_given: u32,
    /// Settings of even wear; absent where none was ever changed.
    #[serde(default, skip_serializing_if = "WearRecord::is_empty")]
    pub wear: WearRecord,
}

/// Settings of even wear that were changed; what is absent is as the server has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WearRecord {
    /// No pair of erase blocks is begun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
    /// Bytes that exchanges may copy per second; 0 for no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_bytes_per_second: Option<u64>,
    /// How many erases a channel with hot content may be ahead of the least worn quiet one; 0: none is ever swapped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channel_threshold_erases: Option<u64>,
    /// The same of a die.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub die_threshold_erases: Option<u64>,
    /// The thresholds follow the device's age. Where it is absent: not if a threshold above 0 is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub follow_age: Option<bool>,
    /// Cycles of an erase block, for thresholds that do; 1 or more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endurance_cycles: Option<u32>,
    /// How far the most worn part may be ahead, in thousandths, for thresholds that do; 1 to 1000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delta_permille: Option<u32>,
    /// The literal rule of the FlashBlox paper.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub literal_rule: Option<bool>,
}

impl WearRecord {
    fn is_empty(&self) -> bool {
        *self == WearRecord::default()
    }

    /// Whether every value can be.
    ///
    /// # Errors
    /// Names the one that cannot, and what can.
    pub fn check(&self) -> Result<(), String> {
        if self.endurance_cycles.is_some_and(|cycles| !(1..=ENDURANCE_CYCLES_MAX).contains(&cycles)) {
            return Err(format!("endurance_cycles: use 1 to {ENDURANCE_CYCLES_MAX}"));
        }
        if self.delta_permille.is_some_and(|delta| !(1..=1000).contains(&delta)) {
            return Err("delta_permille: use 1 to 1000 (100 is usual: a tenth)".to_owned());
        }
        Ok(())
    }
}

/// More cycles than any flash has.
const ENDURANCE_CYCLES_MAX: u32 = 100_000_000;

/// A tenant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TenantRecord {}

fn one_slot() -> u32 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_one_slot(count: &u32) -> bool {
    *count == 1
}

/// A vSSD.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VssdRecord {
    /// The tenant it belongs to.
    pub tenant: String,
    /// How it is kept apart.
    pub isolation: Isolation,
    /// Throughput level asked for.
    pub throughput_level: u32,
    /// Capacity asked for, in bytes.
    pub capacity_bytes: u64,
    /// Over-provisioning, in thousandths of what is exported.
    pub over_provisioning_permille: u32,
    /// Weight among those that share dies.
    pub weight: u32,
    /// Limit in bytes per second; 0 for none.
    pub rate_limit_bytes_per_second: u64,
    /// What happens beyond the limit.
    #[serde(default)]
    pub sharing: Sharing,
    /// What it is for; absent for volumes.
    #[serde(default, skip_serializing_if = "Serves::is_volumes")]
    pub serves: Serves,
    /// Its number in the pool, never used again: the owner generation of its blocks.
    pub number: u32,
    /// The first of its slots of protected memory, if it stages there.
    pub staging_slot: Option<u32>,
    /// How many slots it has, one behind the other; absent for one.
    #[serde(default = "one_slot", skip_serializing_if = "is_one_slot")]
    pub staging_slot_count: u32,
    /// IUs its volumes can store.
    pub exported_ius: u64,
}

/// A volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VolumeRecord {
    /// The vSSD it lives on.
    pub vssd: String,
    /// Its index in the vSSD's store.
    pub index: u16,
    /// Size a host sees, in bytes.
    pub size_bytes: u64,
    /// UUID of its namespace.
    pub uuid: [u8; 16],
    /// NGUID of its namespace.
    pub nguid: [u8; 16],
    /// Its namespace.
    pub namespace: u32,
}

/// A subsystem.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SubsystemRecord {
    /// The tenant it serves.
    pub tenant: String,
    /// Serial number.
    pub serial: String,
    /// Model number.
    pub model: String,
    /// Every host may connect.
    pub allow_any_host: bool,
    /// NQNs of hosts that may.
    pub allowed_hosts: Vec<String>,
    /// Volumes by NSID.
    pub namespaces: BTreeMap<u32, String>,
}

/// Everything that exists, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    /// The pool.
    pub pool: PoolRecord,
    /// Tenants by name.
    pub tenants: BTreeMap<String, TenantRecord>,
    /// vSSDs by name.
    pub vssds: BTreeMap<String, VssdRecord>,
    /// Volumes by name.
    pub volumes: BTreeMap<String, VolumeRecord>,
    /// Subsystems by NQN.
    pub subsystems: BTreeMap<String, SubsystemRecord>,
}

impl State {
    /// Whether every name that an object refers to exists; a catalog that says otherwise is damaged.
    ///
    /// # Errors
    /// Names the object and what it misses.
    pub fn check(&self) -> Result<(), String> {
        if self.pool.starts >= u64::MAX / 2 || self.pool.unclean_starts >= u64::MAX / 2 {
            return Err("the pool was started more often than can be".to_owned());
        }
        self.pool.wear.check().map_err(|error| format!("settings of even wear: {error}"))?;
        for (name, vssd) in &self.vssds {
            if !self.tenants.contains_key(&vssd.tenant) {
                return Err(format!(
                    "vSSD \"{name}\" belongs to tenant \"{}\", which does not exist",
                    vssd.tenant
                ));
            }
        }
        for (name, volume) in &self.volumes {
            if !self.vssds.contains_key(&volume.vssd) {
                return Err(format!(
                    "volume \"{name}\" lies on vSSD \"{}\", which does not exist",
                    volume.vssd
                ));
            }
            if !self.vssds[&volume.vssd].serves.is_volumes() {
                return Err(format!(
                    "volume \"{name}\" lies on vSSD \"{}\", which serves blocks",
                    volume.vssd
                ));
            }
        }
        for (name, subsystem) in &self.subsystems {
            if !self.tenants.contains_key(&subsystem.tenant) {
                let tenant = &subsystem.tenant;
                return Err(format!("subsystem {name} serves tenant \"{tenant}\", which does not exist"));
            }
            for (nsid, volume) in &subsystem.namespaces {
                if *nsid == 0 || !self.volumes.contains_key(volume) {
                    return Err(format!(
                        "namespace {nsid} of {name} shows volume \"{volume}\", which does not exist"
                    ));
                }
            }
        }
        Ok(())
    }
}
