//! Groups of tenants that change their shard while they are served.
//!
//! Ownership moves, and nothing of the path of a command does: there is no moment in which one shard serves what another
//! owns, so no ring for foreign erase blocks is needed, at the price of a delay for the group while what it has under way ends.
//! The first shard orders it, between other requests of administrators:
//!
//! 1. [`crate::step::Step::Leave`] at the old home. Stores first quiesce while hosts are served, and program little at once: what waits at dies for
//!    a program otherwise is tens of milliseconds. Then the group's hosts are not listened to any more (`diecut_nvmf`'s `freeze`),
//!    nothing more is started for applications, and what is under way for both comes back. Then the stores are held: they see no answer and have no turn, so they start
//!    nothing, and what they and the pool have under way ends. What is left is values: channels, stores, namespaces.
//! 2. [`crate::step::Step::Arrive`] at the new home puts them in. Nothing is recovered: a store goes on where it was.
//! 3. [`crate::step::Step::Release`] everywhere. The old home gives the connections away, Connects that waited, and applications' rings; all shards learn the new
//!    home, so a Connect that comes to any of them finds it, and waits there until the last connection has arrived. Then it is
//!    over.
//!
//! A crash on the way loses nothing: on the medium and in protected memory nothing changes, and channels that are in a
//! message are [salvaged](crate::gather) with the rest.

use crate::control::{ControlError, ControlErrorKind};
use crate::custody;
use crate::devices::{DeviceIndex, OwnDevice};
use crate::door::Party;
use crate::job::{Job, Progress};
use crate::lanes::{by_device, channels_on};
use crate::ledger::{Group, Tied};
use crate::owners::Owners;
use crate::peer::{Message, MovedGroup, Order, ShardMessage};
use crate::qos;
use crate::registry::{qualified, share_of};
use crate::seat::ShardIndex;
use crate::steps::subsystems;
use diecut_media::Divide;
use diecut_namespace::StoreIndex;
use diecut_namespace::contract::NamespaceId;
use diecut_nvmf::SubsystemConfig;
use diecut_units::{Time, mark, mutant};
use diecut_vssd::VssdId;

fn refuse(kind: ControlErrorKind, message: String) -> Progress {
    Progress::Refused(ControlError { kind, message })
}

/// Finds out what moves with a tenant; the steps that move it come next.
pub(crate) fn move_tenant<M: Divide>(
    here: &mut Owners<M>,
    tenant: &str,
    shard: u16,
    job: &mut Job,
) -> Progress {
    if shard >= here.placement.shards {
        let message = format!(
            "tenant \"{tenant}\": there is no shard {shard}; the server has {}, numbered from 0",
            here.placement.shards
        );
        return refuse(ControlErrorKind::Invalid, message);
    }
    let tenants = here.registry.tenants_of_vssds();
    if !tenants.values().any(|owner| owner == tenant) {
        let message = format!("tenant \"{tenant}\" has no vSSD; its first one chooses its shard");
        return refuse(ControlErrorKind::Invalid, message);
    }
    let start = Tied { tenants: [tenant.to_owned()].into(), ..Tied::default() };
    let tied = here.placement.ledger.tied_to(start, &tenants);
    // Who is on a visit stays where the administrator says.
    here.placement.evenness.forget_visits(&tied.lanes);
    let from = here.placement.ledger.home_of(tenant);
    if from != shard && !tied.lanes.is_disjoint(&here.placement.ledger.kept) {
        let message = format!(
            "tenant \"{tenant}\" stays on shard {from}: it lies on channels where that shard keeps the block states of the device or parts of what is \
             away, or shares one with somebody who does"
        );
        return refuse(ControlErrorKind::Invalid, message);
    }
    if from == shard {
        return Progress::Done;
    }
    let group = Group::of(tied, from, shard);
    if let Some(device) = silent_device(here, &group) {
        let message = format!(
            "tenant \"{tenant}\" stays on shard {from}: device \"{device}\", where something lies that moves with it, does not answer; try again \
             when it does"
        );
        return refuse(ControlErrorKind::Media, message);
    }
    job.steps.extend(here.placement.moving_steps(group));
    Progress::Done
}

/// Namespaces of a group that are open here, with their vSSDs.
fn namespaces_of<M: Divide>(here: &Owners<M>, group: &Group) -> Vec<(VssdId, NamespaceId)> {
    let volumes = here.registry.state.volumes.values();
    let placed =
        volumes.map(|volume| (here.registry.state.vssds[&volume.vssd].number, NamespaceId(volume.namespace)));
    let of_group =
        placed.filter(|(vssd, id)| group.vssds.contains(vssd) && here.plane.namespaces.is_open(*id));
    of_group.map(|(vssd, id)| (VssdId(vssd), id)).collect()
}

/// A group stays where it is: what was held back for its move goes on.
fn stay<M: Divide>(here: &mut Owners<M>, group: &Group, stores: &[StoreIndex], why: &str) -> Progress {
    for &store in stores {
        here.plane.flash.kept_mut(store).quiesce(false);
    }
    hold_migration(here, false);
    here.placement.duties.leaving.clear();
    let tenants = group.tenants.join("\", \"");
    let message = format!("tenant \"{tenants}\" stays on shard {}: {why}; try again", group.from);
    refuse(ControlErrorKind::Busy, message)
}

/// Exchanges for even wear rest here, or go on.
fn hold_migration<M: Divide>(here: &mut Owners<M>, is_held: bool) {
    here.plane.flash.devices.iter_mut().for_each(|own| own.pool.hold_migration(is_held));
}

/// A device that something of a group lies on, and that does not answer.
fn silent_device<M: Divide>(here: &Owners<M>, group: &Group) -> Option<String> {
    let devices = group.lanes.iter().map(|lane| here.plane.flash.devices.get(lane.device));
    devices.into_iter().find(|own| own.is_away).map(|own| own.config.name.clone())
}

/// Takes a group out, when nothing of it is under way any more.
pub(crate) fn leave<M: Divide>(here: &mut Owners<M>, group: &Group) -> Progress {
    assert_eq!(here.placement.index.0, group.from, "I-S15: a group leaves its home");
    let stores: Vec<StoreIndex> = group.vssds.iter().filter_map(|&vssd| here.plane.store_of(vssd)).collect();
    if here.placement.duties.leaving.is_empty() {
        // The first shard may not have heard of the last exchange when it named the group.
        let holds_just = |(device, own): (DeviceIndex, &OwnDevice<M>)| {
            own.pool.holds_just(&channels_on(&group.lanes, device), &group.vssds)
        };
        if !here.plane.flash.devices.numbered().all(holds_just) {
            mark!("shard: move of a group that is being exchanged");
            return stay(here, group, &[], "what it holds is being exchanged for even wear");
        }
        hold_migration(here, true);
        here.placement.duties.leaving.clone_from(&group.vssds);
        for &store in &stores {
            here.plane.flash.kept_mut(store).quiesce(true);
        }
    }
    assert_eq!(here.placement.duties.leaving, group.vssds, "I-S15: one group leaves a shard at a time");
    let nqns = here.registry.subsystems_of(group);
    let subsystems = nqns.iter().map(|nqn| qualified(nqn)).collect();
    let party = Party { vssds: group.vssds.clone(), subsystems };
    let namespaces = namespaces_of(here, group);
    if !here.placement.duties.frozen {
        // Hosts would not be listened to for as long as it takes.
        if namespaces.iter().any(|(_, id)| here.plane.namespaces.is_purging(*id)) {
            mark!("shard: move of a group that is being purged");
            return stay(here, group, &stores, "what was deleted of it is being erased (Format or Sanitize)");
        }
        if let Some(device) = silent_device(here, group) {
            return stay(here, group, &stores, &format!("device \"{device}\" does not answer"));
        }
        if !stores.iter().all(|&store| here.plane.flash.kept(store).quiesced() == Some(true)) {
            mark!("shard: move waits while its hosts are served");
            return Progress::Waits;
        }
        here.placement.duties.frozen = true;
        here.plane.doors().into_iter().for_each(|door| door.freeze(&party));
    }
    let is_idle = namespaces.iter().all(|(_, id)| here.plane.namespaces.is_idle(*id));
    if !is_idle || !here.plane.doors().into_iter().all(|door| door.is_drained(&party)) {
        mark!("shard: move waits for commands under way");
        return Progress::Waits;
    }
    stores.iter().for_each(|&store| here.plane.flash.hold_store(store));
    let is_quiet = |(device, channels): (DeviceIndex, Vec<u16>)| {
        let own = here.plane.flash.devices.get(device);
        own.pool.is_quiet(&channels) && channels.iter().all(|&channel| own.media.is_quiet(channel))
    };
    if !by_device(&group.lanes).into_iter().all(is_quiet) {
        mark!("shard: move waits for the medium");
        return Progress::Waits;
    }
    take_out(here, group, &party, stores, namespaces);
    Progress::Done
}

/// Checks that what is held back for a group goes on when none leaves.
///
/// # Panics
/// If not.
pub(crate) fn check<M: Divide>(here: &Owners<M>) {
    if here.placement.duties.leaving.is_empty() {
        let flash = &here.plane.flash;
        let is_held =
            flash.has_quiet_store() || flash.devices.iter().any(|own| own.pool.migration_status().is_held);
        assert!(!is_held, "I-S27: stores and exchanges rest only on a shard that a group leaves");
    }
}

/// Takes out a group of which nothing is under way; the answer to the order takes it along.
fn take_out<M: Divide>(
    here: &mut Owners<M>,
    group: &Group,
    party: &Party,
    stores: Vec<StoreIndex>,
    namespaces: Vec<(VssdId, NamespaceId)>,
) {
    assert!(here.placement.duties.frozen, "I-S16: a group leaves when its hosts are not listened to");
    let take = |(vssd, id): (VssdId, NamespaceId)| {
        here.plane.admission.close(id);
        (vssd, id, here.plane.namespaces.take_out(id))
    };
    let namespaces = namespaces.into_iter().map(take).collect();
    for vssd in &group.vssds {
        here.plane.admission.close_blocks(VssdId(*vssd));
    }
    let stores = stores.into_iter().map(|store| here.plane.flash.take_store(store)).collect();
    let luggage = here.plane.doors().into_iter().map(|door| door.take_out(party)).collect();
    here.note_exchanges_elsewhere(&group.lanes);
    let moved = custody::take_out(here, &group.lanes);
    assert!(
        !here.plane.flash.devices.vssd_ids().any(|id| group.vssds.contains(&id.0)),
        "I-S15: nothing of a group stays behind"
    );
    qos::group_left(&mut here.plane, &here.registry);
    hold_migration(here, mutant!("shard: exchanges rest where a group left"));
    let duties = &mut here.placement.duties;
    duties.leaving.clear();
    duties.frozen = false;
    assert!(duties.left.is_none(), "I-S15: one group leaves a shard at a time");
    duties.left = Some(Box::new(MovedGroup { moved, stores, namespaces, luggage }));
}

/// Has a group put in at its new home.
pub(crate) fn arrive_somewhere<M: Divide>(
    here: &mut Owners<M>,
    group: &Group,
    job: &mut Job,
    now: Time,
) -> Progress {
    let is_under_way = here.placement.orders.moving.is_some() || !job.awaited().is_empty();
    assert!(is_under_way, "I-S15: a group arrives that left");
    if here.placement.attendance.lacks(group.to) {
        // Neither home has it.
        here.placement.attendance.is_over = true;
        return Progress::Waits;
    }
    if let Some(moved) = here.placement.orders.moving.take() {
        here.placement.ledger.rehome(group);
        if group.to == 0 {
            arrive(here, *moved, group, now);
            return Progress::Done;
        }
        job.begin(false, vec![here.placement.order(group.to, Order::Arrive(moved, group.clone()))]);
    }
    let mut awaited = job.awaited().to_vec();
    let all_answered = here.placement.all_answered(&mut awaited);
    job.retain_awaited(|number| awaited.contains(number));
    if all_answered { Progress::Done } else { Progress::Waits }
}

/// What the group's subsystems look like here.
fn subsystems_of<M: Divide>(here: &Owners<M>, group: &Group) -> Vec<SubsystemConfig> {
    let nqns = here.registry.subsystems_of(group);
    let config = |nqn: &String| {
        subsystems::subsystem_config(here, nqn).expect("I-S15: what travels is in the registry")
    };
    nqns.iter().map(config).collect()
}

/// Puts a group in and serves it.
pub(crate) fn arrive<M: Divide>(here: &mut Owners<M>, moved: MovedGroup, group: &Group, now: Time) {
    assert_eq!(here.placement.index.0, group.to, "I-S15: a group arrives where it goes");
    let MovedGroup { moved, stores, namespaces, luggage } = moved;
    assert_eq!(moved.lanes(), group.lanes, "I-S15: a group arrives with its channels");
    custody::put_in(here, moved);
    if !mutant!("shard: parts of a vSSD that moved are not joined") {
        custody::join(here);
    }
    let is_here = |vssd: &u32| here.plane.flash.devices.vssd_ids().any(|id| id.0 == *vssd);
    assert!(group.vssds.iter().all(is_here), "I-S15: a group arrives with its vSSDs");
    // Limits were lifted for the move.
    for record in here.own_vssds().iter().filter(|record| group.vssds.contains(&record.number)) {
        here.plane.flash.devices.set_share(VssdId(record.number), share_of(record), now);
        here.seat_blocks(record);
    }
    for store in stores {
        assert!(group.vssds.contains(&store.vssd.0), "I-S15: a store arrives with its group");
        here.plane.flash.put_store(store);
    }
    for (vssd, id, namespace) in namespaces {
        let store = here.plane.flash.store_of(vssd).expect("I-S15: a namespace moves with its store");
        here.seat_namespace(id, vssd);
        here.plane.namespaces.put_in(id, namespace, store);
    }
    here.placement.ledger.homes.extend(group.tenants.iter().map(|tenant| (tenant.clone(), group.to)));
    let subsystems = subsystems_of(here, group);
    let doors = here.plane.doors();
    assert_eq!(doors.len(), luggage.len(), "I-S16: each door has its luggage");
    for (door, luggage) in doors.into_iter().zip(luggage) {
        door.put_in(luggage, &subsystems, now);
    }
    mark!("shard: group moved while it was served");
}

/// The last connection of the group that came here last has come, and the last application.
pub(crate) fn all_arrived<M: Divide>(here: &mut Owners<M>, now: Time) {
    here.plane.doors().into_iter().for_each(|door| door.all_arrived(now));
}

/// Learns a group's new home, and gives its connections away, if they are here.
pub(crate) fn release<M: Divide>(here: &mut Owners<M>, group: &Group, passed: u64, now: Time) -> Progress {
    here.placement.ledger.homes.extend(group.tenants.iter().map(|tenant| (tenant.clone(), group.to)));
    if here.placement.index.0 == group.to {
        return Progress::Done;
    }
    let subsystems = subsystems_of(here, group);
    if here.placement.index.0 != group.from {
        subsystems.into_iter().for_each(|config| here.plane.nvme.learn(config, now));
        return Progress::Done;
    }
    let duties = &here.placement.duties;
    assert!(duties.left.is_none() && duties.leaving.is_empty(), "I-S15: hosts follow a group that is gone");
    let to = ShardIndex(group.to);
    here.plane.doors().into_iter().for_each(|door| door.release(subsystems.clone(), to, now));
    // Behind the connections, on the same way.
    here.placement.outgoing.push((to, ShardMessage(Message::Passed(passed))));
    Progress::Done
}
