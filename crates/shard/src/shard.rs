//! One core's share of the server: see the crate's documentation for the path through it.

use crate::answers::Answers;
use crate::attach;
use crate::catalog::Catalogs;
use crate::config::{DeviceConfig, ShardConfig};
use crate::control::{ControlErrorKind, ControlRequest, ControlToken, Status};
use crate::cost::TracePoint;
use crate::data_plane::DataPlane;
use crate::devices::{DeviceIndex, Devices};
use crate::drive::{self, CommandOutline, ConnectionId, Drive, Outbox};
use crate::health;
use crate::health_turns::HealthTurns;
use crate::jobs::{self, Jobs};
use crate::journal;
use crate::ledger::Held;
use crate::leveling;
use crate::member::{self, Begun};
use crate::open_device::open_device;
use crate::opening::{Opening, open_further};
use crate::owners::Owners;
use crate::peer::Answer;
use crate::placement::Placement;
use crate::reclaim;
use crate::registry::Registry;
use crate::rejoin;
use crate::remains;
use crate::seat::Seat;
use crate::status;
use diecut_catalog::State;
use diecut_media::Divide;
use diecut_namespace::contract::{CommandToken, NamespaceCommand, NamespaceCompletion};
use diecut_nvmf as target;
use diecut_spec::TenantSpec;
use diecut_units::{Time, mutant};
use diecut_volume::ReclaimUnit;
use diecut_vssd::{Places, Pool, VssdId};
use std::collections::BTreeMap;

/// How often one call of [`Drive::work`] goes round between target, namespaces and flash before it returns to the
/// driver, which then looks at what other hosts sent.
const ROUNDS_MAX: u32 = 4;

/// The composition; see the crate's documentation.
pub struct Shard<M: Divide> {
    pub(crate) here: Owners<M>,
    jobs: Jobs,
    pub(crate) opening: Opening,
}

impl<M: Divide> Shard<M> {
    /// A shard over a device: a new pool on an empty one, else what it holds. Opening goes on with
    /// [`Drive::work`] until [`Shard::is_ready`] or [`Shard::failure`]; events that come before wait.
    pub fn new(media: M, config: ShardConfig, now: Time) -> Shard<M> {
        Shard::seated(media, config, Seat::ONLY, now)
    }

    /// One of the shards of a server, over its part of a device (see [`crate::divide`]). The first one opens the device and tells the
    /// others what to do: it is ready when all are.
    ///
    /// # Panics
    /// If the shard is not among those there are.
    pub fn seated(media: M, config: ShardConfig, seat: Seat, now: Time) -> Shard<M> {
        let device = config.device();
        Shard::over(vec![(media, device)], config, seat, now)
    }

    /// One of the shards of a server, over its parts of several devices: each has a catalog, and the newest counts. What `config` says of a device
    /// is not looked at.
    ///
    /// # Panics
    /// If there is no device, or if the shard is not among those there are.
    pub fn over(media: Vec<(M, DeviceConfig)>, config: ShardConfig, seat: Seat, now: Time) -> Shard<M> {
        let is_member = seat.index.0 > 0;
        let mut failures = Vec::new();
        let mut catalogs = Vec::new();
        let mut devices = Vec::new();
        for (media, device) in media {
            let (own, catalog, failure) =
                open_device(media, device, config.staging_bytes_per_vssd, seat, now);
            failures.extend(failure);
            catalogs.push(catalog);
            devices.push(own);
        }
        let devices = Devices::new(devices);
        let geometries = devices.iter().map(|own| *own.media.geometry()).collect();
        let placement = Placement::new(seat, geometries);
        let members = devices.len() + usize::from(config.missing_devices);
        let registry = Registry {
            catalog: Catalogs::new(catalogs, members),
            state: State::default(),
            away: BTreeMap::new(),
            is_taken: false,
            lost_catalog_copies: 0,
        };
        let failure = failures.into_iter().next();
        let plane = DataPlane::new(devices, &config);
        let (answers, notices, health) = (Answers::default(), Vec::new(), HealthTurns::default());
        Shard {
            here: Owners {
                config,
                plane,
                registry,
                placement,
                newcomers: Vec::new(),
                moving: None,
                is_stopping: false,
                answers,
                health,
                notices,
            },
            jobs: Jobs::default(),
            opening: Opening::new(is_member, failure),
        }
    }

    /// Whether everything is open and commands are served.
    pub fn is_ready(&self) -> bool {
        self.opening.is_ready()
    }

    /// Why it cannot be opened, if so.
    pub fn failure(&self) -> Option<&str> {
        self.opening.failure()
    }

    /// When the modelled core is through with what it began; a driver of such a shard takes nothing from hosts before.
    /// [`Time::ZERO`] on the real clock.
    pub fn core_free_at(&self) -> Time {
        self.here.plane.cpu.free_at()
    }

    /// Rounds that the modelled core has begun: in each, a driver may let it see events besides the commands of [`Shard::submit`].
    pub fn core_rounds(&self) -> u64 {
        self.here.plane.cpu.rounds()
    }

    /// Takes what the modelled core noted of commands of [`Shard::submit`] since the last call, in order. Nothing on the real
    /// clock.
    pub fn take_trace(&mut self, trace: &mut Vec<(CommandToken, TracePoint, Time)>) {
        trace.append(&mut self.here.plane.cpu.trace);
    }

    /// Whether the modelled core is free and between two rounds.
    pub fn is_between_rounds(&self, now: Time) -> bool {
        self.here.plane.is_between_rounds(now)
    }

    /// State of all stores in lines, for people who debug.
    pub fn describe(&self) -> String {
        let stores = self.here.plane.flash.stores();
        stores
            .map(|(index, vssd, store)| format!("store {} vSSD {}\n{}", index.0, vssd.0, store.describe()))
            .collect()
    }

    /// IUs that the catalog and the journal of block states programmed, and their erases, since the shard was opened.
    pub fn system_work(&self) -> (u64, u64) {
        let journals = self.here.plane.flash.devices.iter().map(|own| own.pool.state_log_work());
        journals.fold(self.here.registry.catalog.work(), |sum, one| (sum.0 + one.0, sum.1 + one.1))
    }

    /// What exists.
    pub fn state(&self) -> &State {
        &self.here.registry.state
    }

    /// Gives the device back and forgets everything else: the death of the process, as far as a shard knows.
    pub fn into_media(self) -> M {
        let mut media = self.into_all_media();
        assert_eq!(media.len(), 1, "I-S37: of several devices all are taken");
        media.remove(0)
    }

    /// As [`Shard::into_media`], of all devices.
    pub fn into_all_media(self) -> Vec<M> {
        let devices = self.here.plane.flash.devices.into_vec();
        let mut media: Vec<M> = devices.into_iter().map(|own| own.media).collect();
        self.here.placement.salvage(&mut media);
        media
    }

    /// The device, or the first of several.
    pub fn media(&self) -> &M {
        &self.here.plane.flash.devices.get(self.first_device()).media
    }

    /// The device, for faults that come from outside of it (a power cut). Commands go through the shard only.
    pub fn media_mut(&mut self) -> &mut M {
        self.media_of_mut(self.first_device())
    }

    /// See [`Shard::media_mut`].
    pub fn media_of_mut(&mut self, device: DeviceIndex) -> &mut M {
        &mut self.here.plane.flash.devices.get_mut(device).media
    }

    /// On which shard each vSSD lives, and where its parts lie, by number: what the first shard of a server knows. For checkers.
    pub fn account(&self) -> BTreeMap<u32, (u16, Vec<(DeviceIndex, Places)>)> {
        let held = self.here.placement.ledger.vssds.iter();
        let parts = |held: &Held| held.parts.iter().map(|part| (part.device, part.places.clone())).collect();
        held.map(|(number, held)| (*number, (held.shard, parts(held)))).collect()
    }

    /// Indexes of its devices.
    pub fn devices(&self) -> impl Iterator<Item = DeviceIndex> + '_ {
        self.here.plane.flash.devices.numbered().map(|(device, _)| device)
    }

    /// Whether something is being carried out for administrators, or for even wear over several shards.
    pub fn is_administering(&self) -> bool {
        !self.jobs.is_idle() || self.here.placement.has_work()
    }

    /// Checks that the budget of hosts' connections is what they hold.
    ///
    /// # Panics
    /// If not.
    pub fn check_budget(&self) {
        self.here.plane.nvme.target.check_budget();
    }

    /// Reclaim groups of a vSSD, for checkers: nothing if its store of volumes is not open, or lives on another shard.
    pub fn reclaim_groups_of(&self, vssd: VssdId) -> Option<u16> {
        reclaim::groups_of(&self.here.plane, vssd)
    }

    /// The reclaim unit that an IU of a volume lies in, for checkers: nothing if it holds no data, or lives on another shard. `volume` is
    /// its index in the store of the vSSD.
    ///
    /// # Panics
    /// If the store has no such volume or IU.
    pub fn reclaim_unit_of(&self, vssd: VssdId, volume: u16, iu: u64) -> Option<ReclaimUnit> {
        reclaim::unit_of(&self.here.plane, vssd, volume, iu)
    }

    fn first_device(&self) -> DeviceIndex {
        self.devices().next().expect("I-S37: a server has a device")
    }

    /// The pool of the device, or of the first of several, for checkers and reports.
    pub fn pool(&self) -> &Pool {
        self.pool_of(self.first_device())
    }

    /// See [`Shard::pool`].
    pub fn pool_of(&self, device: DeviceIndex) -> &Pool {
        &self.here.plane.flash.devices.get(device).pool
    }

    /// Takes a command of a door other than the target, which chose its token and a source of its own with
    /// [`crate::DOOR_SOURCE_BIT`]. [`Drive::work`] follows after a batch.
    ///
    /// # Panics
    /// If the bit is not set.
    pub fn submit(&mut self, command: NamespaceCommand) {
        self.here.plane.submit(command);
    }

    /// Takes the answers to [`Shard::submit`], in the order they came.
    pub fn take_completions(&mut self, completions: &mut Vec<NamespaceCompletion>) {
        self.here.plane.take_completions(completions);
    }

    /// Checks that vSSDs and tenants that live here have the shares that their definitions say, but for limits that are lifted at
    /// present, and that nothing is held back for a group that leaves if none does. For checkers.
    ///
    /// # Panics
    /// If not.
    pub fn check_shares(&self) {
        if self.opening.is_ready() {
            self.jobs.check_shares(&self.here);
        }
    }

    /// What lives on this shard, with figures: everything that exists, if there is one shard.
    pub fn status(&self) -> Status {
        status::status(&self.here)
    }

    /// From now on, commands that come through the target are kept for [`Shard::take_watched`].
    pub fn watch(&mut self) {
        self.here.plane.nvme.target.watch();
    }

    /// Takes what came since the last call, in order.
    pub fn take_watched(&mut self, commands: &mut Vec<CommandOutline>) {
        self.here.plane.nvme.target.take_watched(commands);
    }

    /// Takes a request of an administrator.
    fn control(
        &mut self,
        token: ControlToken,
        request: ControlRequest,
        now: Time,
        actions: &mut Vec<drive::Action>,
    ) {
        if let Some(failure) = self.opening.failure() {
            return jobs::refuse(actions, token, ControlErrorKind::Media, failure.to_owned());
        }
        if self.here.placement.is_member() {
            let message = "this shard takes orders of the first one only; ask that".to_owned();
            return jobs::refuse(actions, token, ControlErrorKind::Invalid, message);
        }
        if self.jobs.take(&mut self.here, token, request, now, actions) {
            self.work_jobs(now, actions);
        }
    }

    /// Lets administration go on as far as it can.
    fn work_jobs(&mut self, now: Time, actions: &mut Vec<drive::Action>) {
        if !self.here.placement.is_member() {
            let is_ready = self.opening.is_ready();
            if is_ready || self.jobs.is_carrying_out() {
                self.jobs.work(&mut self.here, is_ready, now, actions);
            }
            return;
        }
        loop {
            let has_begun = self.take_orders(now, actions);
            if !self.jobs.go_on_all(&mut self.here, now, actions) && !has_begun {
                break;
            }
        }
        self.jobs.after_work(&mut self.here, now, actions);
    }

    /// Begins what the first shard ordered. Says whether there is something new to carry out.
    fn take_orders(&mut self, now: Time, actions: &mut Vec<drive::Action>) -> bool {
        loop {
            match member::begin_orders(&mut self.here, &mut self.opening, &mut self.jobs, now) {
                Begun::Nothing => return false,
                Begun::Jobs => return true,
                Begun::Serves(number) => {
                    self.take_early(now, actions);
                    self.here.placement.answer_order(number, Answer::Done);
                }
            }
        }
    }

    /// Takes what came before everything was open.
    fn take_early(&mut self, now: Time, actions: &mut Vec<drive::Action>) {
        let early = std::mem::take(&mut self.opening.early).into_iter();
        for event in early.filter(|_| !mutant!("shard: what came before a shard served is forgotten")) {
            self.handle(event, now, actions);
        }
    }

    /// Lets opening go on, and takes what came meanwhile when it is over.
    fn open_further(&mut self, now: Time, actions: &mut Vec<drive::Action>) {
        if !self.opening.is_over() {
            open_further(&mut self.here, &mut self.opening, &mut self.jobs, now, actions);
            if self.opening.is_over() {
                self.take_early(now, actions);
            }
        }
    }

    /// Lets go on what is not on the path of commands.
    fn administer(&mut self, now: Time, actions: &mut Vec<drive::Action>) {
        if self.here.placement.is_member() {
            remains::checked(&mut self.here, &mut self.opening);
            self.work_jobs(now, actions);
        } else if !self.opening.is_ready() {
            self.open_further(now, actions);
        } else if !self.jobs.is_idle() || self.here.placement.has_work() {
            self.work_jobs(now, actions);
        }
    }
}

impl<M: Divide> Drive for Shard<M> {
    fn handle(&mut self, event: drive::Event, now: Time, actions: &mut Vec<drive::Action>) {
        if let drive::Event::Told { from, message } = event {
            if self.opening.is_in_ruins() {
                remains::told(&mut self.here, message, now);
                return self.here.hand_out(now, actions);
            }
            if let Some(panics) = message.of_fall() {
                let goes_on = self.opening.is_ready() && !self.jobs.is_moving_with(from.0);
                rejoin::fell(&mut self.here, from, goes_on, panics);
                self.work_jobs(now, actions);
                return self.here.hand_out(now, actions);
            }
            member::told(&mut self.here, from, message, now, actions);
            if self.here.placement.is_member() || self.opening.is_over() {
                self.work_jobs(now, actions);
            } else {
                self.open_further(now, actions);
            }
            return self.here.hand_out(now, actions);
        }
        if let drive::Event::IoDone(device, done) = event {
            let devices = &mut self.here.plane.flash.devices;
            // Of one that left meanwhile nobody waits for it.
            if devices.has(device) {
                devices.get_mut(device).media.intent_done(done, now);
            }
            return;
        }
        if let drive::Event::DeviceCame(newcomer) = event {
            return self.here.newcomers.push(*newcomer);
        }
        if let drive::Event::DeviceWent(device) = event {
            return self.here.newcomers.retain(|one| one.device != device);
        }
        if let drive::Event::DeviceAway(device, is_away) = event {
            self.here.plane.set_away(device, is_away, now);
            return self.here.hand_out(now, actions);
        }
        if !self.opening.is_over() {
            return self.opening.early.push(event);
        }
        self.here.plane.cpu.charge_event(&event, now);
        let event = match event {
            drive::Event::Accepted { connection, local } => target::Event::Accepted(connection, local),
            drive::Event::Received { connection, bytes } => target::Event::Received(connection, bytes),
            drive::Event::ReceivedInWindow { connection, len_bytes } => {
                target::Event::ReceivedInWindow(connection, len_bytes)
            }
            drive::Event::Adopted { connection, state } => target::Event::Adopted(connection, state),
            drive::Event::Closed { connection } => target::Event::Closed(connection),
            drive::Event::Control { token, request } => {
                self.control(token, *request, now, actions);
                return self.here.hand_out(now, actions);
            }
            drive::Event::Blocks(event) => {
                attach::blocks_event(&mut self.here, self.opening.failure(), event, now);
                return self.here.hand_out(now, actions);
            }
            drive::Event::Told { .. }
            | drive::Event::IoDone(..)
            | drive::Event::DeviceAway(..)
            | drive::Event::DeviceCame(_)
            | drive::Event::DeviceWent(_) => unreachable!("taken above"),
        };
        health::look(&mut self.here, now);
        self.here.plane.nvme.handle(event, now);
        self.here.hand_out(now, actions);
    }

    fn work(&mut self, now: Time, actions: &mut Vec<drive::Action>) {
        if self.opening.is_in_ruins() {
            remains::go_on(&mut self.here, &mut self.opening, now);
            remains::checked(&mut self.here, &mut self.opening);
            return self.here.hand_out(now, actions);
        }
        self.here.plane.delays.stalls.begin_work(now);
        self.here.plane.tick(now);
        let mut budget = self.here.plane.admission.round_cost(now);
        let mut due = now;
        for round in 0..ROUNDS_MAX {
            let plane = &mut self.here.plane;
            if round == 0 && plane.nvme.target.has_work() {
                plane.nvme.handle(target::Event::Round, now);
                self.here.hand_out(now, actions);
            }
            self.here.plane.round(&mut budget, now);
            let intents = &mut self.here.plane.flash.intents;
            if !intents.is_empty() {
                actions.extend(intents.drain(..).map(|(device, intent)| drive::Action::Io(device, intent)));
            }
            leveling::tell_wear(&mut self.here);
            journal::go_on(&mut self.here);
            health::look(&mut self.here, now);
            self.here.notice_flash();
            self.here.plane.take_room();
            self.here.take_foreign(now);
            self.here.take_results(now);
            self.here.hand_out(now, actions);
            self.administer(now, actions);
            self.here.hand_out(now, actions);
            self.here.plane.send_answers(now);
            let is_spent = budget == 0;
            due = if is_spent { self.here.plane.flash.deadline() } else { self.deadline() };
            if due > now || (is_spent && self.deadline() > now) {
                break;
            }
        }
        self.here.plane.delays.stalls.end_work(due, now);
    }

    fn deadline(&self) -> Time {
        if self.opening.is_in_ruins() {
            return remains::deadline(&self.here);
        }
        let is_found = self.opening.reads_catalog() && self.here.registry.catalog.is_open();
        if is_found {
            return Time::ZERO;
        }
        let is_ready = self.opening.is_ready();
        let kept = if is_ready { self.here.placement.reservations.due_at() } else { Time::NEVER };
        self.here.plane.deadline().min(self.jobs.deadline()).min(kept)
    }

    fn goes_on(&self, connection: ConnectionId) -> bool {
        self.here
            .plane
            .nvme
            .target
            .source_of(connection)
            .is_some_and(|source| self.here.plane.admission.goes_on(source))
    }

    fn is_connected(&self, connection: ConnectionId) -> bool {
        self.here.plane.nvme.target.queue_of(connection).is_some()
    }

    fn tenant_of(&self, connection: ConnectionId) -> Option<&str> {
        let nqn = self.here.plane.nvme.target.queue_of(connection)??;
        Some(&self.here.registry.state.subsystems.get(nqn.as_str())?.tenant)
    }

    fn weight_of(&self, tenant: &str) -> u32 {
        self.here.plane.admission.weight_of(tenant).unwrap_or(TenantSpec::DEFAULT_WEIGHT)
    }

    fn outbox(&self, connection: ConnectionId) -> Option<&Outbox> {
        self.here.plane.nvme.target.outbox(connection)
    }

    fn sent(&mut self, connection: ConnectionId, len_bytes: usize, _actions: &mut Vec<drive::Action>) {
        self.here.plane.nvme.target.sent(connection, len_bytes);
    }

    fn receive_window(&mut self, connection: ConnectionId) -> Option<&mut [u8]> {
        self.here.plane.nvme.target.receive_window(connection)
    }

    fn receive_bytes(&self) -> usize {
        self.here.plane.nvme.target.receive_bytes()
    }

    fn set_memory(&mut self, memory_bytes: usize) {
        self.here.plane.nvme.target.set_memory(memory_bytes);
    }

    fn memory(&self) -> drive::MemoryFigures {
        self.here.plane.nvme.target.memory()
    }

    fn at_work(&self) -> drive::WorkOutline {
        self.here.at_work()
    }

    fn shrink(&mut self, slabs_max: u32) -> usize {
        self.here.plane.nvme.target.shrink(slabs_max) + self.here.plane.flash.shrink(slabs_max)
    }
}
