//! What hosts read of their media's health: the SMART logs of subsystems are brought up to date a few at a time, while there is
//! work anyway.

use crate::owners::Owners;
use crate::registry::qualified;
use crate::zone_changes;
use diecut_media::Divide;
use diecut_namespace::contract::NamespaceId;
use diecut_nvmf::Health;
use diecut_units::{Span, Time, mutant};
use diecut_volume::contract::VolumeIndex;
use diecut_vssd::{Condition, VssdId};
use std::collections::BTreeSet;
use std::ops::Bound;

/// How often each subsystem is looked at, about.
const LOOK_AGAIN: Span = Span::from_millis(1000);
/// Subsystems that are looked at together: one with many namespaces takes some ten microseconds.
const AT_ONCE: usize = 4;

/// Looks at the next subsystem, if it is time to.
#[inline]
pub(crate) fn look<M: Divide>(here: &mut Owners<M>, now: Time) {
    if here.health.due <= now {
        look_at_next(here, now);
    }
}

#[cold]
fn look_at_next<M: Divide>(here: &mut Owners<M>, now: Time) {
    let all = &here.registry.state.subsystems;
    let pause = LOOK_AGAIN.0 * AT_ONCE as u64 / (all.len() as u64).max(AT_ONCE as u64);
    here.health.due = now + Span(pause);
    let behind = (Bound::Excluded(here.health.last.as_str()), Bound::Unbounded);
    let next = all.range::<str, _>(behind).chain(all.iter()).take(AT_ONCE.min(all.len()));
    let next: Vec<String> = next.map(|(nqn, _)| nqn.clone()).collect();
    for nqn in &next {
        tell(here, nqn);
    }
    assert!(next.len() <= AT_ONCE, "I-S32: a look takes a bounded time");
    here.health.last = next.last().cloned().unwrap_or_default();
}

/// Tells the target of the health of a subsystem's media, if it lives here.
pub(crate) fn tell<M: Divide>(here: &mut Owners<M>, nqn: &str) {
    if let Some(health) = health_of(here, nqn)
        && !mutant!("shard: hosts are told of new flash for ever")
    {
        let nvme = &mut here.plane.nvme;
        nvme.target.set_health(&qualified(nqn), health, &mut nvme.actions);
        zone_changes::tell(here, nqn);
        tell_used(here, nqn);
    }
}

/// Tells the target how much of each volume of a subsystem that lives here is written (NUSE). What is still being opened is told of at a
/// later look.
fn tell_used<M: Divide>(here: &mut Owners<M>, nqn: &str) {
    let state = &here.registry.state;
    let name = qualified(nqn);
    for shown in &state.subsystems[nqn].namespaces {
        let volume = &state.volumes[&shown.volume];
        let Some(store) = here.plane.store_of(state.vssds[&volume.vssd].number) else { continue };
        let kept = here.plane.flash.kept(store);
        let Some(volumes) = kept.volumes().filter(|_| kept.is_ready()) else { continue };
        let used_lbas = volumes.volume_used_ius(VolumeIndex(volume.index));
        // For whoever describes the namespace to a target next.
        here.plane.namespaces.set_used_lbas(NamespaceId(volume.namespace), used_lbas);
        here.plane.nvme.target.set_used_lbas(&name, shown.nsid, used_lbas);
    }
}

/// The health of a subsystem's media; nothing if it does not live here, or moves.
fn health_of<M: Divide>(here: &Owners<M>, nqn: &str) -> Option<Health> {
    let record = &here.registry.state.subsystems[nqn];
    if here.placement.ledger.home_of(&record.tenant) != here.placement.index.0 {
        return None;
    }
    let mut vssds = BTreeSet::new();
    let mut media_errors = 0;
    for namespace in &record.namespaces {
        let volume = here.registry.state.volumes.get(&namespace.volume)?;
        vssds.insert(here.registry.state.vssds[&volume.vssd].number);
        let statistics = here.plane.namespaces.statistics(NamespaceId(volume.namespace));
        media_errors += statistics.map_or(0, |statistics| statistics.media_errors);
    }
    let mut worst = Condition::NEW;
    let mut read_only = false;
    for number in vssds.into_iter().filter(|number| !here.registry.away.contains_key(number)) {
        let store = here.plane.flash.kept(here.plane.store_of(number)?);
        read_only |= store.read_only_reason().is_some() && !store.lacks_room();
        read_only |= here.config.fenced.contains(&number);
        worst = worst.worst(here.plane.flash.devices.condition_of(VssdId(number)));
    }
    let pool = &here.registry.state.pool;
    assert!(worst.spare_permille <= 1000, "I-S32: a part of a reserve is no more than all of it");
    assert!(pool.unclean_starts <= pool.starts, "I-S32: unclean starts are starts");
    Some(Health {
        available_spare_percent: (worst.spare_permille / 10) as u8,
        // As the log has it: it may exceed 100, and says 255 for all that is more.
        percentage_used: u8::try_from(worst.used_permille / 10).unwrap_or(u8::MAX),
        media_errors,
        read_only,
        power_cycles: pool.starts,
        unsafe_shutdowns: pool.unclean_starts,
        ..Health::default()
    })
}
