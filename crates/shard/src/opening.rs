//! How a shard opens: the first one reads what there is and has the others open their part; they wait for its orders.

use crate::away::Away;
use crate::custody;
use crate::devices::{DeviceIndex, Devices, LiesOn, OwnDevice};
use crate::drive;
use crate::job::Reply;
use crate::jobs::Jobs;
use crate::lead;
use crate::notice::Notice;
use crate::owners::Owners;
use crate::peer::Order;
use crate::registry::share_of;
use crate::step::Step;
use crate::steps::{fences, shortage, stores, subsystems, volumes, wear};
use diecut_catalog::{PartRecord, State, VssdRecord};
use diecut_media::{Divide, Media};
use diecut_units::Time;
use diecut_vssd::{Share, VssdId};
use std::sync::Arc;

/// How far opening is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The catalog is read.
    Catalog,
    /// The pool reads its block states, where they are on flash.
    Journal,
    /// The pool compares its block states with what flash says.
    Pool,
    /// Stores recover.
    Stores,
    /// What is left over from a crash is put right, and the start is written down.
    Leftovers,
    /// Other shards open what hosts see.
    Members,
    /// Not the first shard, which failed: what it had under way on the device ends.
    Ruins,
    /// The same: its pool compares its block states with what flash says.
    Check,
    /// Not the first shard: it waits for orders.
    Orders,
    Ready,
    Failed,
}

/// See the module.
pub(crate) struct Opening {
    phase: Phase,
    failure: Option<String>,
    /// Events that came before everything was open.
    pub early: Vec<drive::Event>,
    /// Orders that it waits for.
    awaited: Vec<u64>,
    /// The last end of the pool was none.
    was_unclean: bool,
}

impl Opening {
    /// Of a member, of one that failed at once, or of the first shard.
    pub fn new(is_member: bool, failure: Option<String>) -> Opening {
        let phase = match () {
            () if is_member => Phase::Orders,
            () if failure.is_some() => Phase::Failed,
            () => Phase::Catalog,
        };
        Opening { phase, failure, early: Vec::new(), awaited: Vec::new(), was_unclean: false }
    }

    /// Of the next life of a member that failed.
    pub fn of_ruins() -> Opening {
        Opening { phase: Phase::Ruins, ..Opening::new(true, None) }
    }

    /// Whether what a member had under way before it failed has not ended.
    pub fn is_in_ruins(&self) -> bool {
        self.phase == Phase::Ruins
    }

    /// Its pool is open, and is compared with flash.
    pub fn checks(&mut self) {
        self.go(Phase::Check);
    }

    /// It said what it has.
    pub fn waits_for_orders(&mut self) {
        self.go(Phase::Orders);
    }

    /// It cannot open by itself.
    pub fn fails(&mut self, message: String) {
        self.fail(message);
    }

    /// Whether everything is open and commands are served.
    pub fn is_ready(&self) -> bool {
        self.phase == Phase::Ready
    }

    /// Whether it came to its end, a good one or not.
    pub fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Ready | Phase::Failed)
    }

    /// Whether the catalog is still to be read.
    pub fn reads_catalog(&self) -> bool {
        self.phase == Phase::Catalog
    }

    /// Why it failed, if so.
    pub fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    fn go(&mut self, next: Phase) {
        let is_next = matches!(
            (self.phase, next),
            (Phase::Catalog, Phase::Journal)
                | (Phase::Journal, Phase::Pool)
                | (Phase::Pool, Phase::Stores)
                | (Phase::Stores, Phase::Leftovers)
                | (Phase::Leftovers, Phase::Members)
                | (Phase::Members | Phase::Orders, Phase::Ready)
                | (Phase::Ruins, Phase::Check)
                | (Phase::Check, Phase::Orders)
                | (Phase::Catalog | Phase::Journal | Phase::Pool | Phase::Ruins, Phase::Failed)
        );
        assert!(
            is_next,
            "I-S4: opening goes from one phase to the next, not from {:?} to {next:?}",
            self.phase
        );
        // What other shards were ordered in a phase they have done when it is over.
        let waits_for_none = !matches!(next, Phase::Leftovers | Phase::Ready) || self.awaited.is_empty();
        assert!(waits_for_none, "I-S4: {next:?} begins when all orders were answered");
        self.phase = next;
    }

    fn fail(&mut self, message: String) {
        self.failure = Some(message);
        self.go(Phase::Failed);
    }
}

/// Lets opening go on as far as it can.
pub(crate) fn open_further<M: Divide>(
    here: &mut Owners<M>,
    opening: &mut Opening,
    jobs: &mut Jobs,
    now: Time,
    actions: &mut Vec<drive::Action>,
) {
    loop {
        match opening.phase {
            Phase::Catalog if here.registry.catalog.is_open() => {
                if let Some(error) = here.registry.catalog.error() {
                    return opening.fail(error.to_string());
                }
                if let Some(message) = here.registry.catalog.too_few() {
                    return opening.fail(message);
                }
                let found = here.registry.catalog.take_state();
                here.registry.state = found.unwrap_or_else(|| {
                    let mut state = State::default();
                    state.pool.uuid = here.config.new_pool_uuid;
                    state.pool.closed = true;
                    state
                });
                opening.go(Phase::Journal);
            }
            Phase::Journal => {
                match are_block_states_read(here) {
                    Ok(true) => {}
                    Ok(false) => return,
                    Err(message) => return opening.fail(message),
                }
                for own in here.plane.flash.devices.iter_mut() {
                    own.pool.begin_check(&mut own.media, now);
                }
                opening.go(Phase::Pool);
            }
            Phase::Pool if here.plane.flash.devices.iter().all(|own| own.pool.is_checked()) => {
                if let Err(message) = open_stores_everywhere(here, opening, now) {
                    return opening.fail(message);
                }
                opening.go(Phase::Stores);
            }
            Phase::Stores if here.plane.flash.stores().all(|(_, _, store)| store.is_ready()) => {
                if !here.placement.all_answered(&mut opening.awaited) {
                    return;
                }
                begin_leftovers(here, opening, jobs);
                opening.go(Phase::Leftovers);
            }
            Phase::Leftovers => {
                jobs.work(here, false, now, actions);
                if jobs.is_carrying_out() {
                    return;
                }
                let world = here.world();
                opening.awaited = here.placement.order_all(|| Order::Serve(Arc::clone(&world)));
                opening.go(Phase::Members);
            }
            Phase::Members => {
                if here.placement.all_answered(&mut opening.awaited) {
                    serve(here, opening, now);
                }
                return;
            }
            _ => return,
        }
    }
}

/// Whether all pools have their block states; of those that are made, whether these are durable.
fn are_block_states_read<M: Divide>(here: &Owners<M>) -> Result<bool, String> {
    let mut all_read = true;
    for OwnDevice { pool, config, .. } in here.plane.flash.devices.iter() {
        if let Some(error) = pool.open_error() {
            return Err(error.to_string());
        }
        // Of a pool that is made block states are durable before anything else is.
        if config.makes_pool && pool.is_state_log_lost() {
            return Err("the device does not take block states: it cannot be written to".to_owned());
        }
        all_read &= pool.is_open() && (!config.makes_pool || pool.is_durable());
    }
    Ok(all_read)
}

/// The first shard's: channels are given out, and every shard opens its stores.
fn open_stores_everywhere<M: Divide>(
    here: &mut Owners<M>,
    opening: &mut Opening,
    now: Time,
) -> Result<(), String> {
    find_parts(here)?;
    lead::give_out_channels(here);
    wear::apply_wear(here);
    open_own_stores(here, now);
    let world = here.world();
    opening.awaited = here.placement.order_all(|| Order::Open(Arc::clone(&world)));
    Ok(())
}

/// What is there of a vSSD that the catalog knows.
enum Presence {
    /// All of it.
    Whole,
    /// Not all of it: some of its devices are missing, or were taken out of the pool.
    Away(Away),
    /// A device that is there does not hold what it should.
    Contradicted,
}

impl Presence {
    /// `has_missing`: devices of the pool are not there. `removed` are those that never come back.
    fn of<M: Media>(
        record: &VssdRecord,
        devices: &Devices<M>,
        has_missing: bool,
        removed: &[[u8; 16]],
    ) -> Presence {
        let id = VssdId(record.number);
        if record.parts.is_empty() {
            let names: Vec<&str> = record.device.iter().map(String::as_str).collect();
            return match devices.find(id) {
                Some(_) => Presence::Whole,
                None if has_missing => Presence::Away(Away::on(&names, false)),
                None if !removed.is_empty() => Presence::Away(Away::on(&names, true)),
                None => Presence::Contradicted,
            };
        }
        let places: Vec<_> = record.parts.iter().map(|part| devices.find_uuid(part.device)).collect();
        let names_where = |is_missing: &dyn Fn(usize) -> bool| -> Vec<&str> {
            let names = record.device.iter().enumerate().filter(|(at, _)| is_missing(*at));
            names.map(|(_, name)| name.as_str()).collect()
        };
        let is_removed =
            |at: usize| record.parts.get(at).is_none_or(|part| removed.contains(part.device.as_bytes()));
        if (0..record.parts.len()).any(is_removed) {
            return Presence::Away(Away::on(&names_where(&is_removed), true));
        }
        let is_held = places.iter().flatten().all(|device| devices.get(*device).pool.holds(id));
        let is_missing = |at: usize| places.get(at).is_none_or(Option::is_none);
        match places.iter().all(Option::is_some) {
            true if is_held => Presence::Whole,
            false if is_held && has_missing => Presence::Away(Away::on(&names_where(&is_missing), false)),
            _ => Presence::Contradicted,
        }
    }
}

/// Finds what each vSSD lies on, and which are away.
fn find_parts<M: Divide>(here: &mut Owners<M>) -> Result<(), String> {
    let devices = &here.plane.flash.devices;
    let (has_missing, removed) = (here.config.missing_devices > 0, &here.config.removed_devices);
    for (name, record) in &here.registry.state.vssds {
        match Presence::of(record, devices, has_missing, removed) {
            Presence::Whole => {}
            Presence::Away(away) => {
                here.registry.away.insert(record.number, away);
            }
            Presence::Contradicted => {
                return Err(format!("vSSD \"{name}\" is in the catalog but not in the pool's journal"));
            }
        }
    }
    custody::join(here);
    Ok(())
}

/// Opens the stores of all vSSDs that live here.
pub(crate) fn open_own_stores<M: Divide>(here: &mut Owners<M>, now: Time) {
    for record in here.own_vssds() {
        // No limit yet: recovery does not wait for tokens.
        let share = Share { weight: record.weight, ..Share::default() };
        let id = VssdId(record.number);
        here.plane.flash.devices.set_share(id, share, now);
        stores::open_store(here, &record, now);
    }
}

/// The first shard's: what a crash left over is put right, and the start is written down.
fn begin_leftovers<M: Divide>(here: &mut Owners<M>, opening: &mut Opening, jobs: &mut Jobs) {
    let mut steps = stores::leftovers(here);
    let mut next = here.registry.state.clone();
    next.pool.starts += 1;
    opening.was_unclean = !next.pool.closed;
    next.pool.unclean_starts += u64::from(!next.pool.closed);
    next.pool.closed = false;
    name_devices(here, &mut next);
    steps.push(Step::Persist);
    jobs.begin(Reply::Nobody, here.registry.state.clone(), next, steps);
}

/// vSSDs name the devices that they lie on as these are called now, so that one that is away later has a name.
pub(crate) fn name_devices<M: Divide>(here: &Owners<M>, state: &mut State) {
    let devices = &here.plane.flash.devices;
    if devices.indexes() == 1 && here.config.missing_devices == 0 {
        return;
    }
    for record in state.vssds.values_mut() {
        if record.parts.is_empty()
            && let Some(LiesOn::Device(device)) = devices.find(VssdId(record.number))
        {
            record.parts = vec![PartRecord { device: devices.get(device).uuid() }];
        }
        // Who only adds a drive calls none by a name.
        let named =
            |device: DeviceIndex| Some(&devices.get(device).config.name).filter(|name| !name.is_empty());
        for (at, part) in record.parts.iter().enumerate() {
            let Some(now) = devices.find_uuid(part.device).and_then(named) else { continue };
            match record.spec.device.get_mut(at) {
                Some(name) => name.clone_from(now),
                None => record.spec.device.push(now.clone()),
            }
        }
    }
}

/// Opens what hosts see. The shard takes what came meanwhile then.
pub(crate) fn serve<M: Divide>(here: &mut Owners<M>, opening: &mut Opening, now: Time) {
    let own = here.own_vssds();
    let volumes: Vec<_> = here.registry.state.volumes.values().cloned().collect();
    for volume in volumes {
        let vssd = here.registry.state.vssds[&volume.vssd].number;
        if own.iter().any(|record| record.number == vssd) {
            volumes::open_volume(here, &volume, vssd);
        }
    }
    let nqns: Vec<String> = here.registry.state.subsystems.keys().cloned().collect();
    for nqn in nqns {
        subsystems::apply_subsystem(here, &nqn, now);
    }
    for record in &own {
        here.seat_blocks(record);
        let id = VssdId(record.number);
        here.plane.flash.devices.set_share(id, share_of(record), now);
    }
    fences::tell(here);
    wear::apply_wear(here);
    here.plane.flash.devices.iter_mut().for_each(|own| own.pool.begin_migration());
    opening.go(Phase::Ready);
    if !here.placement.is_member() {
        let pool = &here.registry.state.pool;
        let (starts, unclean_starts) = (pool.starts, pool.unclean_starts);
        let was_unclean = opening.was_unclean;
        here.notices.push(Notice::Opened { starts, was_unclean, unclean_starts });
        shortage::tell(here);
    }
}
