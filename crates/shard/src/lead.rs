//! What only the first shard does: it gives out channels at the start, chooses the home of a new vSSD, and has orders carried
//! out where what they concern lives.

use crate::control::*;
use crate::drive::{self, ShardIndex};
use crate::execute::{Progress, Running};
use crate::ledger::{Found, Held};
use crate::peer::{Alloc, Answer, Message, Moved, Order, ShardMessage, World};
use crate::plan::{Step, alloc_refused};
use crate::relocation::MovedGroup;
use crate::shard::Shard;
use diecut_catalog::VssdRecord;
use diecut_media::Divide;
use diecut_spec::{Isolation, Serves};
use diecut_units::{Time, mark, mutant};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Orders under way.
#[derive(Default)]
pub(crate) struct Orders {
    next: u64,
    answers: BTreeMap<u64, Answer>,
    statuses: Vec<PendingStatus>,
    /// A group between its old home and its new one.
    pub moving: Option<Box<MovedGroup>>,
}

impl Orders {
    /// A number for an order; its answer is awaited by it.
    pub fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Puts channels that are on their way into a medium: after the death of all shards.
    pub fn salvage<M: Divide>(self, media: &mut M) {
        for (_, answer) in self.answers {
            answer.salvage(media);
        }
        if let Some(group) = self.moving {
            group.moved.unpack(media);
        }
    }
}

/// A status that waits for the other shards' part.
struct PendingStatus {
    token: ControlToken,
    status: Status,
    awaited: Vec<u64>,
}

/// Where a step is carried out.
enum Scope {
    Here,
    /// At the home of a vSSD.
    Vssd(u32),
    All,
    /// At a shard.
    Shard(u16),
}

impl<M: Divide> Shard<M> {
    /// Sends an order; its answer is awaited by number.
    pub(crate) fn order(&mut self, to: u16, order: Order) -> u64 {
        let number = self.orders.number();
        self.outgoing.push((ShardIndex(to), ShardMessage(Message::Order(number, order))));
        number
    }

    pub(crate) fn order_all(&mut self, order: impl Fn() -> Order) -> Vec<u64> {
        self.ledger.members().map(|member| self.order(member, order())).collect()
    }

    pub(crate) fn world(&self) -> Arc<World> {
        Arc::new(World { state: self.state.clone(), homes: self.ledger.homes.clone() })
    }

    /// An order was carried out.
    pub(crate) fn answered(&mut self, number: u64, answer: Answer, actions: &mut Vec<drive::Action>) {
        if let Some(status) = answer.status {
            let pending = self.orders.statuses.iter().position(|pending| pending.awaited.contains(&number));
            let at = pending.expect("a status was ordered");
            let pending = &mut self.orders.statuses[at];
            pending.awaited.retain(|awaited| *awaited != number);
            pending.status.merge(*status);
            if pending.awaited.is_empty() {
                let PendingStatus { token, status, .. } = self.orders.statuses.remove(at);
                let response = Box::new(ControlResponse::Status(Box::new(status)));
                actions.push(drive::Action::Answer { token, response });
            }
            return;
        }
        self.orders.answers.insert(number, answer);
    }

    /// Takes the answer to an order, if it came.
    pub(crate) fn take_answer(&mut self, number: u64) -> Option<Answer> {
        self.orders.answers.remove(&number)
    }

    /// Whose each vSSD is, by number.
    pub(crate) fn tenants_of_vssds(&self) -> BTreeMap<u32, String> {
        self.state.vssds.values().map(|vssd| (vssd.number, vssd.tenant.clone())).collect()
    }

    /// Asks all shards what exists.
    pub(crate) fn gather_status(&mut self, token: ControlToken) {
        let status = self.status();
        let awaited = self.order_all(|| Order::Status);
        self.orders.statuses.push(PendingStatus { token, status, awaited });
    }

    /// Whether these orders were answered; their answers are dropped then.
    pub(crate) fn all_answered(&mut self, awaited: &mut Vec<u64>) -> bool {
        awaited.retain(|number| self.orders.answers.remove(number).is_none());
        awaited.is_empty()
    }

    /// Gives every group of tenants its home and its channels; when the pool is open and nothing is under way.
    pub(crate) fn give_out_channels(&mut self) {
        let tenants: BTreeMap<u32, &String> =
            self.state.vssds.values().map(|vssd| (vssd.number, &vssd.tenant)).collect();
        let pool = &self.flash.pool;
        let found = pool.vssd_ids().map(|id| {
            let places = pool.places_of(id);
            let blocks = pool.blocks_of(&places);
            Found { id, tenant: tenants.get(&id.0).map(|name| (*name).clone()), places, blocks }
        });
        let found = found.collect();
        self.ledger.give_out(found, self.flash.media.geometry());
        for member in self.ledger.members() {
            let channels = self.ledger.channels_of(member);
            if channels.is_empty() {
                continue;
            }
            self.note_exchanges_elsewhere(&channels);
            let part = self.flash.pool.detach(&channels);
            let moved = Moved::new(channels, part, &mut self.flash.media);
            self.order(member, Order::Channels(moved));
        }
    }

    fn scope(&self, step: &Step, running: &Running) -> Scope {
        let home_of = |volume: &String| {
            let volume = &running.next.volumes[volume];
            Scope::Vssd(running.next.vssds[&volume.vssd].number)
        };
        match step {
            Step::Leave(group) => Scope::Shard(group.from),
            Step::Release(..) => Scope::All,
            Step::MoveTenant { .. } | Step::Arrive(_) | Step::LevelWear => {
                unreachable!("the first shard's own")
            }
            Step::AllocVssd { .. } | Step::SyncPool | Step::Persist => Scope::Here,
            Step::CreateVolume { name } | Step::OpenNamespace { name } => home_of(name),
            Step::CanDelete { vssd }
            | Step::CloseNamespace { vssd, .. }
            | Step::DeleteVolume { vssd, .. } => Scope::Vssd(*vssd),
            Step::DeallocVssd { number } => Scope::Vssd(*number),
            Step::RepairVssd { name, .. } => Scope::Vssd(running.next.vssds[name].number),
            Step::ApplySubsystem { .. }
            | Step::RemoveSubsystem { .. }
            | Step::FlushStores
            | Step::ApplyWear
            | Step::Exchange(_)
            | Step::ReturnChannels => Scope::All,
        }
    }

    /// Carries out a step wherever it belongs.
    pub(crate) fn step(&mut self, step: &Step, running: &mut Running, now: Time) -> Progress {
        // A command of the catalog would meet channels that are on their way.
        if step.gives_channels() && !self.ledger.is_single() && !self.catalog.is_idle() {
            return Progress::Waits;
        }
        match step {
            Step::AllocVssd { name } => return self.alloc_somewhere(name, running, now),
            Step::MoveTenant { tenant, shard } => return self.move_tenant(tenant, *shard, running),
            Step::Arrive(group) => return self.arrive_somewhere(group, running, now),
            Step::LevelWear => return self.level_wear(running, now),
            _ => {}
        }
        let shards = match self.scope(step, running) {
            Scope::Here => vec![0],
            Scope::Shard(shard) => vec![shard],
            Scope::Vssd(number) => vec![self.ledger.shard_of(number)],
            Scope::All => (0..self.shards).collect(),
        };
        if !running.is_ordered {
            running.is_ordered = true;
            running.is_done_here = !shards.contains(&0);
            if let Step::Release(_, passed) = step {
                running.awaited.push(*passed);
            }
            let next = Arc::new(running.next.clone());
            for &member in shards.iter().filter(|member| **member != 0) {
                let number = self.order(member, Order::Step(step.clone(), Arc::clone(&next)));
                running.awaited.push(number);
            }
        }
        if !running.is_done_here {
            match self.step_here(step, running, now) {
                Progress::Done => running.is_done_here = true,
                Progress::Waits => {}
                Progress::Refused(error) => {
                    running.is_done_here = true;
                    running.refusal = Some(error);
                }
            }
            if running.is_done_here && *step == Step::Persist {
                let world = self.world();
                self.order_all(|| Order::World(Arc::clone(&world)));
            }
        }
        let (orders, awaited) = (&mut self.orders, &mut running.awaited);
        let mut arrived = Vec::new();
        awaited.retain(|number| match orders.answers.remove(number) {
            Some(answer) => {
                arrived.push(answer);
                false
            }
            None => true,
        });
        for answer in arrived {
            mark!("shard: step carried out by another shard");
            if let Some(error) = answer.refusal {
                running.refusal = Some(error);
            }
            running.report = answer.repair.or(running.report.take());
            if let Step::DeallocVssd { number } = step {
                self.forget_vssd(*number);
            }
            self.take_back(answer.returned);
            self.orders.moving = answer.group.or(self.orders.moving.take());
        }
        if !running.is_done_here
            || !running.awaited.is_empty() && !mutant!("shard: members are not waited for")
        {
            return Progress::Waits;
        }
        if let Step::DeallocVssd { number } = step {
            self.ledger.vssds.remove(number);
        }
        self.orders.moving = self.duties.left.take().or(self.orders.moving.take());
        running.refusal.take().map_or(Progress::Done, Progress::Refused)
    }

    /// A member made an end of a vSSD.
    fn forget_vssd(&mut self, number: u32) {
        if let Some(held) = self.ledger.vssds.remove(&number) {
            self.flash.pool.release(&held.places);
        }
    }

    fn take_back(&mut self, returned: Option<Moved>) {
        let Some(moved) = returned else { return };
        for &channel in &moved.channels {
            self.ledger.owners[usize::from(channel)] = 0;
        }
        let part = moved.unpack(&mut self.flash.media);
        self.flash.pool.attach(part);
    }

    /// Makes a vSSD on the home of its tenant; the first one chooses the home: the least loaded shard on whose channels, and
    /// on those that nobody uses, it fits.
    fn alloc_somewhere(&mut self, name: &str, running: &mut Running, now: Time) -> Progress {
        if let Some(&number) = running.awaited.first() {
            let Some(answer) = self.orders.answers.remove(&number) else { return Progress::Waits };
            running.awaited.clear();
            return self.allocated(name, answer, running);
        }
        let record = running.next.vssds[name].clone();
        let has_vssd = self.state.vssds.values().any(|vssd| vssd.tenant == record.tenant);
        let homes = if has_vssd { vec![self.ledger.home_of(&record.tenant)] } else { self.ledger.by_load() };
        let isolation = record.isolation;
        let (level, capacity) = (record.throughput_level, record.capacity_bytes);
        let pool = &self.flash.pool;
        let owners = &self.ledger.owners;
        let choose = |shard: u16| {
            pool.choose_places(isolation, level, capacity, |channel| {
                let owner = owners[usize::from(channel)];
                owner == shard || owner == 0 && pool.is_free_channel(channel)
            })
        };
        let chosen = homes.iter().find_map(|&shard| choose(shard).ok().map(|places| (shard, places)));
        let Some((shard, places)) = chosen else {
            let kind = ControlErrorKind::Exhausted;
            let refused = match pool.choose_places(isolation, level, capacity, |_| true) {
                Err(error) => alloc_refused(name, &error),
                Ok(_) => ControlError {
                    kind,
                    message: format!(
                        "vSSD \"{name}\": what is free lies on channels of several shards{}; start the server with fewer \
                         shards, ask for less, or for whole channels",
                        if has_vssd { ", and its tenant lives on one of them" } else { "" }
                    ),
                },
            };
            return Progress::Refused(refused);
        };
        let geometry = *self.flash.media.geometry();
        let (staging_slot, staging_slot_count) = match record.serves {
            Serves::Blocks { .. } => (None, 1),
            Serves::Volumes => {
                // Those that share channels are many, and none has more of a channel than its dies.
                let is_alone = record.isolation == Isolation::Channel;
                let channels = if is_alone { places.channels(&geometry).len() as u32 } else { 1 };
                match self.free_staging_slots(name, channels) {
                    Ok(slots) => slots,
                    Err(error) => return Progress::Refused(error),
                }
            }
        };
        let record = VssdRecord { staging_slot, staging_slot_count, ..record };
        let id = match self.flash.pool.new_vssd_id() {
            Ok(id) => id,
            Err(error) => return Progress::Refused(alloc_refused(name, &error)),
        };
        let blocks = self.flash.pool.blocks_of(&places);
        let fresh: Vec<u16> = places.channels(&geometry).into_iter().collect();
        let fresh: Vec<u16> =
            fresh.into_iter().filter(|&channel| self.ledger.owners[usize::from(channel)] != shard).collect();
        let held = Held { shard, places: places.clone(), blocks };
        self.ledger.add(id, held, &geometry);
        if shard == 0 {
            return match self.make_vssd(name, id, isolation, &places, record, now) {
                Ok(record) => self.made(name, record, running),
                Err(error) => {
                    self.ledger.vssds.remove(&id.0);
                    Progress::Refused(error)
                }
            };
        }
        let mut part = self.flash.pool.detach(&fresh);
        self.flash.pool.lend_slot(&mut part);
        self.flash.pool.reserve(id, &places);
        let moved = Moved::new(fresh, part, &mut self.flash.media);
        let alloc = Alloc { name: name.to_owned(), id, isolation, places, record, moved };
        let number = self.order(shard, Order::Alloc(Box::new(alloc)));
        running.awaited.push(number);
        Progress::Waits
    }

    fn allocated(&mut self, name: &str, answer: Answer, running: &mut Running) -> Progress {
        let record = answer.record.expect("an order to make a vSSD is answered with its record");
        if let Some(error) = answer.refusal {
            self.forget_vssd(record.number);
            self.take_back(answer.returned);
            return Progress::Refused(error);
        }
        mark!("shard: vSSD made by another shard");
        self.made(name, record, running)
    }

    /// A vSSD is there. Its tenant's subsystems, which can show nothing yet, follow it home.
    fn made(&mut self, name: &str, record: VssdRecord, running: &mut Running) -> Progress {
        let shard = self.ledger.shard_of(record.number);
        if self.ledger.home_of(&record.tenant) != shard {
            let own = |one: &&String| running.next.subsystems[*one].tenant == record.tenant;
            let nqns: Vec<String> = running.next.subsystems.keys().filter(own).cloned().collect();
            running.steps.extend(nqns.into_iter().map(|nqn| Step::ApplySubsystem { nqn }));
        }
        self.ledger.homes.insert(record.tenant.clone(), shard);
        running.next.vssds.insert(name.to_owned(), record);
        Progress::Done
    }
}
