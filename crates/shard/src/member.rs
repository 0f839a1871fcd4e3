//! What shards other than the first do: they carry out its orders.

use crate::control::{ControlError, ControlErrorKind, RepairReport};
use crate::drive::{self, ShardIndex};
use crate::execute::Reply;
use crate::notice::Notice;
use crate::peer::{Alloc, Answer, Message, Moved, Order, ShardMessage};
use crate::plan::Step;
use crate::relocation::MovedGroup;
use crate::shard::{Phase, Shard};
use diecut_catalog::State;
use diecut_media::Divide;
use diecut_nvme::QualifiedName;
use diecut_units::{Time, mark};
use diecut_vssd::{Share, VssdId};
use std::collections::VecDeque;

/// Orders that wait, and whether stores recover for one.
#[derive(Default)]
pub(crate) struct Duties {
    pub waiting: VecDeque<(u64, Order)>,
    opening: Option<u64>,
    /// vSSDs that are about to move to another shard.
    pub leaving: Vec<u32>,
    /// Their hosts are not listened to any more.
    pub frozen: bool,
    /// Subsystems that came here and may have connections on the way.
    pub arriving: Vec<QualifiedName>,
    /// What was taken out, for the answer.
    pub left: Option<Box<MovedGroup>>,
}

impl<M: Divide> Shard<M> {
    /// A message of another shard.
    pub(crate) fn told(&mut self, message: ShardMessage, now: Time, actions: &mut Vec<drive::Action>) {
        match message.0 {
            Message::Order(number, Order::Status) => {
                let answer = Answer { status: Some(Box::new(self.status())), ..Answer::default() };
                self.answer_order(number, answer);
            }
            Message::Order(number, Order::Wear) => {
                let wear = Some(self.wear_report(now));
                self.answer_order(number, Answer { wear, ..Answer::default() });
            }
            Message::Order(number, order) => self.duties.waiting.push_back((number, order)),
            Message::Answer(number, answer) => self.answered(number, *answer, actions),
            Message::Media(command) => self.flash.media.submit(command, now),
            Message::Wear(news) => self.heard_of(news),
            Message::MediaDone(completion) => self.flash.foreign.push(completion),
            Message::Passed(number) => {
                self.all_arrived(now);
                if self.is_member() {
                    self.answer_order(number, Answer::default());
                } else {
                    self.answered(number, Answer::default(), actions);
                }
            }
        }
    }

    pub(crate) fn answer_order(&mut self, number: u64, answer: Answer) {
        self.outgoing.push((ShardIndex(0), ShardMessage(Message::Answer(number, Box::new(answer)))));
    }

    /// Begins orders in the order they came; those of steps are carried out side by side, as the first shard says. Says whether
    /// there is something new to carry out.
    pub(crate) fn begin_orders(&mut self, now: Time, actions: &mut Vec<drive::Action>) -> bool {
        let mut has_begun = false;
        loop {
            if let Some(number) = self.duties.opening {
                if !self.flash.stores().all(|(_, _, store)| store.is_ready()) {
                    return has_begun;
                }
                self.duties.opening = None;
                let steps = self.leftover_volumes();
                self.begin(Reply::Order(number), self.state.clone(), steps);
                has_begun = true;
            }
            let Some((number, order)) = self.duties.waiting.pop_front() else { return has_begun };
            match order {
                Order::Channels(moved) => {
                    let part = moved.unpack(&mut self.flash.media);
                    self.flash.pool.attach(part);
                }
                Order::World(world) => {
                    self.state = world.state.clone();
                    self.ledger.homes = world.homes.clone();
                }
                Order::Open(world) => {
                    self.state = world.state.clone();
                    self.ledger.homes = world.homes.clone();
                    for record in self.own_vssds() {
                        // No limit yet: recovery does not wait for tokens.
                        let share = Share { weight: record.weight, ..Share::default() };
                        self.flash.pool.set_share(VssdId(record.number), share, now);
                        self.open_store(&record, now);
                    }
                    self.duties.opening = Some(number);
                }
                Order::Serve(world) => {
                    self.state = world.state.clone();
                    self.ledger.homes = world.homes.clone();
                    self.serve(now, actions);
                    self.answer_order(number, Answer::default());
                }
                Order::Alloc(alloc) => self.alloc(number, *alloc, now),
                Order::Arrive(moved, group) => {
                    self.arrive(*moved, &group, now);
                    self.answer_order(number, Answer::default());
                }
                Order::Step(step, next) => {
                    self.begin(Reply::Order(number), State::clone(&next), vec![step]);
                    has_begun = true;
                }
                Order::Status | Order::Wear => unreachable!("answered at once"),
            }
        }
    }

    fn alloc(&mut self, number: u64, alloc: Alloc, now: Time) {
        let Alloc { name, id, isolation, places, record, moved } = alloc;
        let part = moved.unpack(&mut self.flash.media);
        self.flash.pool.attach(part);
        if !self.flash.pool.are_free(&places) {
            mark!("shard: vSSD chosen where something moved meanwhile");
            let message = format!(
                "vSSD \"{name}\": its room is being exchanged for even wear; ask again when that is done"
            );
            let refusal = Some(ControlError { kind: ControlErrorKind::Busy, message });
            let record = Some(diecut_catalog::VssdRecord { number: id.0, ..record });
            let returned = self.unused_channels();
            return self.answer_order(number, Answer { refusal, record, returned, ..Answer::default() });
        }
        let answer = match self.make_vssd(&name, id, isolation, &places, record.clone(), now) {
            Ok(record) => Answer { record: Some(record), ..Answer::default() },
            Err(error) => Answer {
                refusal: Some(error),
                record: Some(diecut_catalog::VssdRecord { number: id.0, ..record }),
                returned: self.unused_channels(),
                ..Answer::default()
            },
        };
        self.answer_order(number, answer);
    }

    /// Takes out the channels that nothing lies on any more.
    fn unused_channels(&mut self) -> Option<Moved> {
        let channels = 0..self.flash.media.geometry().channels;
        let unused = channels
            .filter(|&channel| self.flash.media.owns(channel) && self.flash.pool.is_free_channel(channel));
        let unused: Vec<u16> = unused.collect();
        let mut part = self.flash.pool.detach(&unused);
        self.flash.pool.return_slots(&mut part);
        Some(Moved::new(unused, part, &mut self.flash.media))
    }

    /// An order of steps is carried out, or refused.
    pub(crate) fn order_done(
        &mut self,
        number: u64,
        last: Option<&Step>,
        refusal: Option<crate::control::ControlError>,
        repair: Option<Box<RepairReport>>,
    ) {
        self.tell_wear();
        let frees = matches!(last, Some(Step::DeallocVssd { .. } | Step::ReturnChannels));
        let freed = refusal.is_none() && frees;
        let returned = if freed { self.unused_channels() } else { None };
        let group = self.duties.left.take();
        self.answer_order(number, Answer { refusal, returned, group, repair, ..Answer::default() });
    }

    /// vSSDs that live here, of those that exist.
    pub(crate) fn own_vssds(&self) -> Vec<diecut_catalog::VssdRecord> {
        let held: Vec<u32> = self.flash.pool.vssd_ids().map(|id| id.0).collect();
        self.state.vssds.values().filter(|record| held.contains(&record.number)).cloned().collect()
    }

    /// Opens what hosts see, and takes what came meanwhile.
    pub(crate) fn serve(&mut self, now: Time, actions: &mut Vec<drive::Action>) {
        let own = self.own_vssds();
        let volumes: Vec<_> = self.state.volumes.values().cloned().collect();
        for volume in volumes {
            let vssd = self.state.vssds[&volume.vssd].number;
            if own.iter().any(|record| record.number == vssd) {
                self.open_volume(&volume, vssd);
            }
        }
        let subsystems: Vec<String> = self.state.subsystems.keys().cloned().collect();
        for nqn in subsystems {
            self.apply_subsystem(&nqn, now);
        }
        for record in &own {
            self.flash.pool.set_share(VssdId(record.number), crate::execute::share_of(record), now);
        }
        self.apply_wear();
        self.flash.pool.begin_migration();
        self.phase = Phase::Ready;
        if !self.is_member() {
            let pool = &self.state.pool;
            let (starts, unclean_starts) = (pool.starts, pool.unclean_starts);
            let was_unclean = self.was_unclean;
            self.notices.push(Notice::Opened { starts, was_unclean, unclean_starts });
        }
        for event in self.take_early() {
            drive::Drive::handle(self, event, now, actions);
        }
    }
}
