//! The whole stack over drives that hide their flash, as models.

use super::config;
use crate::administration::tenant_name;
use crate::carrier::Carrier;
use crate::drives::{Drives, drive_name};
use crate::plan::{Lane, Plan};
use crate::shards::Shards;
use diecut_devices::Device;
use diecut_shard::{DeviceConfig, ShardConfig};
use diecut_units::Time;

/// Identity of the pool.
const POOL: [u8; 16] = [0x77; 16];
/// Turns in which a pool is made, at most.
const TURNS_MAX: u32 = 100_000;

/// Drives with an empty pool, as `diecut device format` leaves them.
pub(super) fn formatted(plan: &Plan) -> Result<Carrier, String> {
    let mut drives = Drives::new(plan.all_drives(), plan.system.drives.len(), plan.seed);
    let (mut devices, _) = drives.begin_life(&plan.drives_at(0));
    devices.iter_mut().for_each(|(_, own)| own.makes_pool = true);
    let config = ShardConfig { makes_pool: true, new_pool_uuid: POOL, ..config(plan, &mut devices, 0, 1) };
    let mut shards =
        Shards::with(devices, Carrier::Drives(Box::new(drives)), &config, 1, plan.seed, Time::ZERO);
    let (mut now, mut actions) = (Time::ZERO, Vec::new());
    for _ in 0..TURNS_MAX {
        shards.work(0, now, &mut actions);
        actions.clear();
        if let Some(failure) = shards.lead().failure() {
            return Err(failure.to_owned());
        }
        if shards.is_at_rest() {
            shards.power_cut(now);
            return Ok(shards.into_parts().1);
        }
        now = now.max(shards.deadline());
    }
    Err("no pool is made".to_owned())
}

/// The drives of a carrier for a life of the server: those that are given to it, how many are missing, and who carries out what it asks.
pub(super) fn begin_life(mut carrier: Carrier, given: &[u16]) -> (Vec<(Device, DeviceConfig)>, u16, Carrier) {
    let (devices, missing) = carrier.drives_mut().expect("it has drives").begin_life(given);
    (devices, missing, carrier)
}

/// Drives that a vSSD lies on, and that are not among the given ones.
pub(super) fn missing_of(plan: &Plan, given: &[u16], vssd: &str) -> Vec<u16> {
    if plan.system.comings.is_some() {
        // All drives are there, and what lies on one of them may lie on another one by now.
        return Vec::new();
    }
    let lane = (0..plan.tenants.len() as u8).map(Lane).find(|lane| tenant_name(*lane) == vssd);
    let own = lane.map(|lane| plan.drives_of(lane)).unwrap_or_default();
    own.into_iter().filter(|drive| !given.contains(drive)).collect()
}

/// Whether a status tells of a vSSD which of its drives are not there.
pub(super) fn says_what_is_away(missing: &[u16], reason: Option<&str>) -> bool {
    let names =
        |reason: &str| missing.iter().all(|drive| reason.contains(&format!("\"{}\"", drive_name(*drive))));
    reason.is_some_and(|reason| reason.contains("not there") && names(reason))
}
