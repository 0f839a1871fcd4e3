//! The path of commands through one shard: target, admission, namespaces, then stores, pool and medium ([`Flash`]), and back.
//! Nothing here knows what exists, or what other shards do.

use crate::admission::{
    Admission, Begun, COMMAND_COST, DOOR_SOURCE_BIT, Work, cost_of, cost_of_chunks, cost_of_zones,
};
use crate::at_work::For;
use crate::blocks::Blocks;
use crate::config::ShardConfig;
use crate::cost::{ModelledCore, TracePoint};
use crate::delays::Delays;
use crate::devices::{DeviceIndex, Devices, OwnDevice, SlowOn};
use crate::door::Door;
use crate::drive;
use crate::flash::{ChunksView, Flash, ZonesView};
use crate::notice::Notice;
use crate::nvme_door::NvmeDoor;
use crate::planted::PlantedPanic;
use diecut_media::Media;
use diecut_namespace::contract::{
    NamespaceCommand, NamespaceCompletion, NamespaceError, NamespaceId, SourceId,
};
use diecut_namespace::{
    Finished, MAP_PIECE_LBAS, MapRange, Namespaces, Outputs, StoreIndex, complete_chunks, complete_zones,
};
use diecut_nvmf::{self as target, CommandFacts};
use diecut_units::{Time, mark, mutant};
use diecut_volume::contract::VolumeError;
use diecut_vssd::{DieTimesView, VssdId};
use std::vec::Drain;

/// The next action, if it is a command of this source to this namespace.
#[inline]
fn next_command(
    actions: &mut Drain<'_, target::Action>,
    namespace: NamespaceId,
    source: SourceId,
) -> Option<NamespaceCommand> {
    match actions.as_slice().first()? {
        target::Action::Submit(command) if (command.namespace, command.source) == (namespace, source) => {}
        _ => return None,
    }
    match actions.next() {
        Some(target::Action::Submit(command)) => Some(command),
        _ => None,
    }
}

/// See the module.
pub(crate) struct DataPlane<M: Media> {
    pub nvme: NvmeDoor,
    pub admission: Admission,
    pub namespaces: Namespaces,
    outputs: Outputs,
    /// Commands that were given up before they began; they are answered with the others.
    taken_back: Vec<NamespaceCommand>,
    pub flash: Flash<M>,
    pub blocks: Blocks,
    pub cpu: ModelledCore,
    door_completions: Vec<NamespaceCompletion>,
    /// Where the time of slow commands went.
    pub delays: Delays,
    /// What the target asks of those who know what exists.
    pub questions: Vec<target::Question>,
    /// What the target asks of those who keep reservations and sanitize operations.
    pub keeps: Vec<target::Keep>,
    /// A check that fails on purpose.
    planted: Option<PlantedPanic>,
    /// A vSSD whose commands are held back, whatever its dies have room for.
    held: Option<VssdId>,
}

impl<M: Media> DataPlane<M> {
    pub fn new(mut devices: Devices<M>, config: &ShardConfig) -> DataPlane<M> {
        let delays = Delays::new(config.slow_after);
        for own in devices.iter_mut() {
            DieTimesView::of(&mut own.pool).note_from(delays.operation_threshold());
        }
        DataPlane {
            nvme: NvmeDoor::new(config.target.clone()),
            admission: Admission::new(config.admission),
            namespaces: Namespaces::new(),
            outputs: Outputs::default(),
            taken_back: Vec::new(),
            flash: Flash::new(devices),
            blocks: Blocks::default(),
            cpu: ModelledCore::new(config.cost_model),
            door_completions: Vec::new(),
            delays,
            questions: Vec::new(),
            keeps: Vec::new(),
            planted: config.planted_panic,
            held: None,
        }
    }

    /// Commands of hosts to a vSSD are held back from now on.
    pub fn hold(&mut self, vssd: VssdId) {
        self.held = Some(vssd);
        self.admission.hold(vssd, true);
    }

    /// Those of the one that is held back go on, on the vSSD that has their volumes now.
    pub fn let_go(&mut self, vssd: VssdId) {
        self.held = None;
        self.admission.hold(vssd, !self.flash.devices.has_room(vssd));
    }

    /// The store of a vSSD, if it is open.
    pub fn store_of(&self, vssd: u32) -> Option<StoreIndex> {
        self.flash.store_of(VssdId(vssd))
    }

    /// The doors that something can move through with its group, in an order of their own.
    pub fn doors(&mut self) -> [&mut dyn Door; 2] {
        [&mut self.nvme, &mut self.blocks]
    }

    /// Takes a command of a door other than the target.
    ///
    /// # Panics
    /// If its source is one of the target's.
    pub fn submit(&mut self, command: NamespaceCommand) {
        assert!(command.source.0 & DOOR_SOURCE_BIT != 0, "I-S19: {:?} is the target's", command.source);
        if let Some(command) = self.cpu.arrive(command) {
            self.admission.push(command);
        }
    }

    /// Takes the answers to [`DataPlane::submit`], in the order they came.
    pub fn take_completions(&mut self, completions: &mut Vec<NamespaceCompletion>) {
        completions.append(&mut self.door_completions);
    }

    /// Takes what the target asks: commands go to admission, the rest to the driver.
    pub fn sort_actions(&mut self, actions: &mut Vec<drive::Action>) {
        let DataPlane { nvme, admission, namespaces, flash, taken_back, questions, keeps, .. } = self;
        let mut batch = nvme.take_actions();
        let mut rest = batch.drain(..);
        while let Some(next) = rest.as_slice().first() {
            if let target::Action::Submit(first) = next {
                // Commands of a connection come together, and go to one namespace mostly.
                let (namespace, source) = (first.namespace, first.source);
                admission.push_all(namespace, source, || {
                    let command = next_command(&mut rest, namespace, source)?;
                    if let Some((store, volume, first_iu)) = namespaces.read_of(&command) {
                        flash.expect_read(store, volume, first_iu);
                    }
                    Some(command)
                });
                continue;
            }
            match rest.next().expect("just looked at") {
                target::Action::GiveUp(source, token) => {
                    namespaces.give_up(source, token);
                    admission.take_back(source, token, taken_back);
                }
                target::Action::Ask(question) => questions.push(*question),
                target::Action::Keep(keep) => keeps.push(*keep),
                other => actions.push(drive::translate(other)),
            }
        }
        drop(rest);
        self.nvme.give_back(batch);
    }

    /// What a device lies on cannot be reached, or can be again: hosts hear that their commands are not ready.
    pub fn set_away(&mut self, device: DeviceIndex, is_away: bool, now: Time) {
        mark!("shard: a device is away, or back");
        let devices = &mut self.flash.devices;
        devices.get_mut(device).is_away = is_away;
        let stores = self.flash.stores();
        let stores: Vec<_> = stores
            .filter(|(_, vssd, _)| self.flash.devices.get(device).pool.holds(*vssd))
            .map(|(store, ..)| store)
            .collect();
        self.namespaces.set_away(&stores, is_away, now, &mut self.outputs);
        self.finish(now);
    }

    /// Lets the target see that time passed.
    pub fn tick(&mut self, now: Time) {
        if self.nvme.target.deadline() <= now {
            self.nvme.handle(target::Event::Tick, now);
        }
    }

    /// One round of what was admitted, down to the medium: as much as the budget allows of commands of hosts and entries of
    /// applications, and what stores and pool have to do.
    pub fn round(&mut self, budget: &mut u32, now: Time) {
        self.send_answers(now);
        self.blocks.offer(&mut self.admission);
        self.cpu.begin_round(now, &mut self.admission);
        self.admit(budget, now);
        self.flash.run(now);
    }

    /// Takes what came back from below: of applications, of rooms in the queues of dies, of stores. `of_jobs` gets what stores answer
    /// others than namespaces, which it knows by itself.
    pub fn take_results(&mut self, mut of_jobs: impl FnMut(u64, bool) -> bool, now: Time) {
        self.finish(now);
        self.delays.now = now;
        let mut of_zones = std::mem::take(&mut self.flash.answers.zones);
        for (at, answer) in of_zones.drain(..).enumerate() {
            if !of_jobs(answer.token.0, answer.result.is_ok()) {
                let finished = complete_zones(&mut self.namespaces, answer, now);
                let slow = self.flash.answers.slow_of_zones.of(at);
                self.finish_one(finished, slow, now);
            }
        }
        self.flash.answers.zones = of_zones;
        self.flash.answers.slow_of_zones.clear();
        let mut of_chunks = std::mem::take(&mut self.flash.answers.chunks);
        for (at, answer) in of_chunks.drain(..).enumerate() {
            if !of_jobs(answer.token.0, answer.result.is_ok()) {
                let finished = complete_chunks(&mut self.namespaces, answer, now);
                let slow = self.flash.answers.slow_of_chunks.of(at);
                self.finish_one(finished, slow, now);
            }
        }
        self.flash.answers.chunks = of_chunks;
        self.flash.answers.slow_of_chunks.clear();
        let mut answers = std::mem::take(&mut self.flash.answers);
        // Answers of one namespace come together: admission hears once of those in a row.
        let mut over = (NamespaceId::default(), 0);
        answers.take_all(|answer, whose| {
            self.flash.at_work.now_for = For::Store(whose.store());
            if matches!(answer.result, Err(VolumeError::Full)) {
                self.flash.note_full(whose.store(), now);
            }
            let Some(answer) = self.flash.answered(whose.store(), answer) else { return };
            if !of_jobs(answer.token.0, answer.result.is_ok())
                && let Some(finished) = self.namespaces.complete(answer, now)
            {
                if finished.namespace != over.0 {
                    self.admission.finished(over.0, over.1);
                    over = (finished.namespace, 0);
                }
                over.1 += 1;
                if self.delays.is_slow(&finished.stamps, now) {
                    self.note_slow(&finished, whose.slow(), now);
                }
                self.answer(finished, now);
            }
        });
        self.admission.finished(over.0, over.1);
        self.flash.answers = answers;
        self.flash.at_work.now_for = For::All;
    }

    /// Takes what came back from below for applications, and which vSSDs have room.
    pub fn take_room(&mut self) {
        self.blocks.complete(&mut self.flash);
        let admission = &mut self.admission;
        let held = self.held;
        self.flash.take_room_changes(|vssd, has_room| admission.hold(vssd, !has_room || held == Some(vssd)));
    }

    /// Admits work of about a round's cost: commands, and pieces of those that are larger than a piece. What goes to stores goes there
    /// together, and before an application asks the medium for something: in the order in which it was admitted.
    fn admit(&mut self, budget: &mut u32, now: Time) {
        let DataPlane { admission, namespaces, outputs, flash, blocks, cpu, planted, .. } = self;
        if cpu.is_busy(now) {
            return;
        }
        admission.serve(budget, now, |work| {
            // Of a deallocation that is cut; others are looked at as a whole.
            let mut looked_at = None;
            let mut holds = false;
            match &work {
                Work::Command(command) => {
                    flash.at_work.begins(command);
                    PlantedPanic::check(planted, command, flash.at_work.begun());
                }
                Work::Entry(vssd) => flash.at_work.now_for = For::Vssd(*vssd),
                Work::Rest(_) => flash.at_work.now_for = For::All,
            }
            let of_flash = &*flash;
            let mut map_piece = |range: MapRange| {
                let MapRange { store, volume, first_iu, iu_count } = range;
                let store = of_flash.kept(store).expect_volumes();
                let (piece, ius) = store.deallocation_piece(volume, first_iu, iu_count, MAP_PIECE_LBAS);
                looked_at = Some(ius);
                piece
            };
            let before = outputs.volume_commands.len();
            let zones_before = outputs.zone_commands.len();
            let chunks_before = outputs.chunk_commands.len();
            let (mut cost, rest) = match work {
                Work::Command(command) => {
                    cpu.begin_command(command.token, command.source, now);
                    (COMMAND_COST, namespaces.submit(command, now, outputs, &mut map_piece))
                }
                Work::Rest(token) => {
                    cpu.charge_turn(now);
                    let more = namespaces.go_on(token, now, outputs, &mut map_piece);
                    (0, more.then_some(token))
                }
                Work::Entry(vssd) => {
                    flash.submit(&mut outputs.volume_commands, now);
                    let ius = blocks.begin(vssd, flash, now);
                    cpu.charge_entry(ius, now);
                    holds = !flash.devices.has_room(vssd);
                    (COMMAND_COST + ius, None)
                }
            };
            // There is one at most.
            if let Some((_, piece)) = outputs.volume_commands.get(before) {
                cost += cost_of(&piece.operation, looked_at);
                cpu.charge(&piece.operation, looked_at, now);
            }
            if let Some((_, command)) = outputs.zone_commands.get(zones_before) {
                cost += cost_of_zones(&command.operation);
                cpu.charge_zones(&command.operation, now);
            }
            if let Some((_, command)) = outputs.chunk_commands.get(chunks_before) {
                cost += cost_of_chunks(&command.operation);
                cpu.charge_chunks(&command.operation, now);
            }
            // A turn is never free, or a budget would not end.
            let cost = cost.max(1);
            Begun { cost, rest, holds, goes_on: cpu.goes_on(cost, now) }
        });
        flash.at_work.now_for = For::All;
        flash.submit(&mut outputs.volume_commands, now);
        ZonesView::of(flash).submit(&mut outputs.zone_commands, now);
        ChunksView::of(flash).submit(&mut outputs.chunk_commands, now);
    }

    /// Answers of doors go out when a round is over; on the real clock that is now.
    pub fn send_answers(&mut self, now: Time) {
        if self.is_between_rounds(now) {
            self.door_completions.append(&mut self.cpu.answers);
        }
    }

    /// Whether the modelled core is free and between two rounds.
    pub fn is_between_rounds(&self, now: Time) -> bool {
        self.cpu.is_between_rounds(now, self.admission.has_work())
    }

    /// Answers what was given up before it began, and what was answered without a store.
    fn finish(&mut self, now: Time) {
        for command in self.taken_back.drain(..) {
            mark!("shard: command given up before it began");
            let result = Err(NamespaceError::Aborted);
            let completion = NamespaceCompletion::without_data(command.token, result);
            self.nvme.handle(target::Event::Completed(completion), now);
        }
        let mut finished = std::mem::take(&mut self.outputs.finished);
        for finished in finished.drain(..) {
            self.finish_one(finished, None, now);
        }
        self.outputs.finished = finished;
    }

    /// A command is over, and waited for this operation on flash last, if that took long.
    fn finish_one(&mut self, finished: Finished, slow: Option<SlowOn>, now: Time) {
        self.admission.finished(finished.namespace, 1);
        if self.delays.is_slow(&finished.stamps, now) && !mutant!("shard: slow commands are those of volumes")
        {
            self.note_slow(&finished, slow, now);
        }
        self.answer(finished, now);
    }

    /// A command is about to be answered that took long; `slow` is what it waited for last on flash.
    #[cold]
    fn note_slow(&mut self, finished: &Finished, slow: Option<SlowOn>, now: Time) {
        let is_of_host = finished.source.0 & DOOR_SOURCE_BIT == 0;
        let target = &self.nvme.target;
        let facts = if is_of_host { CommandFacts::of(target, finished.completion.token) } else { None };
        let devices = &mut self.flash.devices;
        let device = slow.map(|slow| slow.device).filter(|device| devices.has(*device));
        let own = devices.get_mut(device.unwrap_or_else(|| devices.first()));
        let operation = slow.map(|slow| slow.operation);
        self.delays.note(finished, facts, operation, &DieTimesView::of(&mut own.pool), now);
    }

    /// A command is answered; whoever calls tells admission.
    #[inline(always)]
    fn answer(&mut self, finished: Finished, now: Time) {
        let Finished { source, completion, .. } = finished;
        if source.0 & DOOR_SOURCE_BIT != 0 {
            self.cpu.note(TracePoint::Done, completion.token, source, now);
            self.cpu.answers.push(completion);
        } else {
            self.nvme.handle(target::Event::Completed(completion), now);
        }
    }

    /// Says which dies retired blocks.
    pub fn notice_retired(&mut self, notices: &mut Vec<Notice>) {
        for OwnDevice { pool, retired_told, .. } in self.flash.devices.iter_mut() {
            if !pool.take_retired() {
                continue;
            }
            for (die, told) in (0..).zip(retired_told) {
                let retired = pool.retired_of(die);
                // Dies that came with a tenant bring what they retired elsewhere.
                if retired > *told {
                    notices.push(Notice::BlocksRetired { die, retired });
                }
                *told = retired;
            }
        }
    }

    /// When there is something to do though no event came; [`Time::ZERO`] for at once.
    pub fn deadline(&self) -> Time {
        if self.nvme.target.has_work() || !self.nvme.actions.is_empty() || !self.flash.foreign.is_empty() {
            return Time::ZERO;
        }
        if self.blocks.has_work() || !self.taken_back.is_empty() {
            return Time::ZERO;
        }
        let waits = self.admission.has_work() || self.cpu.has_arrivals() || !self.cpu.answers.is_empty();
        let admission = if waits { Time::ZERO } else { self.admission.tokens_at() };
        let admission = admission.max(self.cpu.free_at());
        admission.min(self.flash.deadline()).min(self.nvme.target.deadline())
    }
}
