//! One core's share of the server: see the crate's documentation for the path through it.

use crate::admission::{Admission, AdmissionConfig, COMMAND_COST, DOOR_SOURCE_BIT, Work, cost_of};
use crate::blocks::Blocks;
use crate::catalog::new_catalog;
use crate::cost::{CostModel, CpuClock, Moment};
use crate::drive::{self, ConnectionId, Drive, Outbox, ShardIndex};
use crate::evenness::Evenness;
use crate::execute::{CONTROL_TOKEN_BIT, Control, Reply};
use crate::flash::{Flash, Standing};
use crate::lead::Orders;
use crate::ledger::Ledger;
use crate::member::Duties;
use crate::notice::Notice;
use crate::null::translate;
use crate::peer::{Message, Order, ShardMessage};
use crate::plan::Step;
use crate::reach::Reach;
use diecut_catalog::{Catalog, State, VssdRecord};
use diecut_media::Divide;
use diecut_namespace::contract::{
    CommandToken, NamespaceCommand, NamespaceCompletion, NamespaceError, NamespaceId,
};
use diecut_namespace::{MAP_PIECE_LBAS, MapRange, Namespaces, Outputs};
use diecut_nvmf::{self as target, Target, TargetConfig};
use diecut_units::{ProtectedMemory, ProtectedRegion, Span, Time, mark, mutant};
use diecut_volume::CheckpointPace;
use diecut_volume::contract::{VolumeError, VolumeOperation};
use diecut_vssd::{Places, Pool, PoolConfig, Share, VssdId};
use std::collections::BTreeMap;
use std::sync::Arc;

/// How often one call of [`Drive::work`] goes round between target, namespaces and flash before it returns to the
/// driver, which then looks at what other hosts sent.
const ROUNDS_MAX: u32 = 4;

/// Settings of a shard.
#[derive(Clone, Debug)]
pub struct ShardConfig {
    /// The target's limits.
    pub target: TargetConfig,
    /// The pool's settings.
    pub pool: PoolConfig,
    /// The admission scheduler's limits.
    pub admission: AdmissionConfig,
    /// Protected memory of one staging slot, in bytes; most vSSDs have one, wide ones several.
    pub staging_bytes_per_vssd: usize,
    /// Without protected memory: completions of writes wait for the flash unless this is set; hosts must flush then.
    pub volatile_cache: bool,
    /// How much the checkpoints of the stores may write.
    pub checkpoint: CheckpointPace,
    /// Name of the device in reports: its profile or model.
    pub device_name: String,
    /// Identity of a pool that is made new; an existing one keeps its own.
    pub new_pool_uuid: [u8; 16],
    /// How long an administrator's request may take before it is answered with what it waits for; 0: for ever.
    pub control_patience: Span,
    /// The lowest rate limit of a new vSSD, in bytes per second: below it a chunk of the log takes longer than hosts wait for a
    /// command. Those that exist keep what they have.
    pub rate_limit_min_bytes_per_second: u64,
    /// What commands cost the core in virtual time; `None` on the real clock, where they cost what they cost.
    pub cost_model: Option<CostModel>,
}

impl Default for ShardConfig {
    fn default() -> ShardConfig {
        ShardConfig {
            target: TargetConfig::default(),
            pool: PoolConfig::default(),
            admission: AdmissionConfig::default(),
            staging_bytes_per_vssd: 8 << 20,
            volatile_cache: false,
            checkpoint: CheckpointPace::default(),
            device_name: "device".to_owned(),
            new_pool_uuid: [0x0d; 16],
            control_patience: Span::from_secs(60),
            rate_limit_min_bytes_per_second: 1 << 20,
            cost_model: None,
        }
    }
}

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
    /// Not the first shard: it waits for orders.
    Orders,
    Ready,
    Failed,
}

/// The composition; see the crate's documentation.
pub struct Shard<M: Divide> {
    pub(crate) config: ShardConfig,
    pub(crate) flash: Flash<M>,
    pub(crate) namespaces: Namespaces,
    pub(crate) target: Target,
    pub(crate) admission: Admission,
    outputs: Outputs,
    /// Commands that were given up before they began; they are answered with the others.
    taken_back: Vec<NamespaceCommand>,
    pub(crate) target_actions: Vec<target::Action>,
    spare_actions: Vec<target::Action>,
    cpu: CpuClock,
    door_completions: Vec<NamespaceCompletion>,
    pub(crate) catalog: Catalog,
    /// What exists, as the catalog has it durable.
    pub(crate) state: State,
    pub(crate) control: Control,
    pub(crate) blocks: Blocks,
    pub(crate) phase: Phase,
    failure: Option<String>,
    /// Events that came before everything was open.
    early: Vec<drive::Event>,
    protected: Option<ProtectedMemory>,
    /// Bytes of protected memory that block states take, in front of the staging slots.
    journal_size_bytes: usize,
    pub(crate) index: ShardIndex,
    pub(crate) shards: u16,
    /// Of the first shard; others know the homes of tenants by it.
    pub(crate) ledger: Ledger,
    pub(crate) orders: Orders,
    pub(crate) evenness: Evenness,
    pub(crate) duties: Duties,
    /// Orders that opening waits for.
    opening: Vec<u64>,
    pub(crate) outgoing: Vec<(ShardIndex, ShardMessage)>,
    /// For the driver.
    pub(crate) notices: Vec<Notice>,
    lost_catalog_copies: usize,
    /// The last end of the pool was none.
    pub(crate) was_unclean: bool,
    /// Blocks retired, by die, as far as that was told.
    retired_told: Vec<u32>,
}

/// A shard's place among those of one server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seat {
    /// Which one it is, from 0.
    pub index: ShardIndex,
    /// How many there are.
    pub shards: u16,
}

/// Divides a medium for the shards of one server: the first one begins with all channels and gives them out.
///
/// # Panics
/// If there is no shard.
pub fn divide<M: Divide>(mut media: M, shards: u16) -> Vec<(Seat, M)> {
    assert!(shards > 0, "a server has at least one shard");
    let seat = |index| Seat { index: ShardIndex(index), shards };
    let members: Vec<(Seat, M)> = (1..shards).map(|index| (seat(index), media.empty_part())).collect();
    [(seat(0), media)].into_iter().chain(members).collect()
}

/// Gives the whole medium back and forgets everything else: the death of the process, as far as shards know. `under_way` are
/// messages that were not delivered: channels may be among them.
///
/// # Panics
/// If there is no shard.
pub fn gather<M: Divide>(
    shards: impl IntoIterator<Item = Shard<M>>,
    under_way: impl IntoIterator<Item = ShardMessage>,
) -> M {
    let mut parts = shards.into_iter().map(Shard::into_media);
    let mut whole = parts.next().expect("there is a shard");
    for message in under_way {
        message.salvage(&mut whole);
    }
    for mut part in parts {
        for channel in 0..part.geometry().channels {
            if part.owns(channel) {
                whole.take_channel(&mut part, channel);
            }
        }
    }
    whole
}

/// Blocks that a deallocation or zeroes name; 0 of anything else.
fn ius_of(operation: &VolumeOperation) -> u64 {
    match operation {
        VolumeOperation::Deallocate { iu_count, .. } | VolumeOperation::WriteZeroes { iu_count, .. } => {
            *iu_count
        }
        _ => 0,
    }
}

impl<M: Divide> Shard<M> {
    /// A shard over a device: a new pool on an empty one, else what it holds. Opening goes on with
    /// [`Drive::work`] until [`Shard::is_ready`] or [`Shard::failure`]; events that come before wait.
    pub fn new(media: M, config: ShardConfig, now: Time) -> Shard<M> {
        Shard::seated(media, config, Seat { index: ShardIndex(0), shards: 1 }, now)
    }

    /// One of the shards of a server, over its part of a device (see [`divide`]). The first one opens the device and tells the
    /// others what to do: it is ready when all are.
    ///
    /// # Panics
    /// If the shard is not among those there are.
    pub fn seated(mut media: M, config: ShardConfig, seat: Seat, now: Time) -> Shard<M> {
        assert!(seat.index.0 < seat.shards, "{seat:?}");
        let is_member = seat.index.0 > 0;
        let geometry = *media.geometry();
        let protected = media.protected_memory();
        let journal_size_bytes = Pool::journal_size_bytes(&geometry, &config.pool);
        let mut failure = None;
        let mut pool = match &protected {
            _ if is_member => Pool::empty_part(&media, config.pool.clone()),
            None if seat.shards > 1 => {
                failure = Some(format!(
                    "without protected memory one shard keeps all block states, but {} were asked for; start the server with \
                     one shard, or give the device protected memory",
                    seat.shards
                ));
                Pool::create(&media, config.pool.clone())
            }
            None => Pool::open_from_flash(&mut media, config.pool.clone(), now),
            Some(memory) if memory.size_bytes() < journal_size_bytes + config.staging_bytes_per_vssd => {
                failure = Some(format!(
                    "the device has {} bytes of protected memory, but block states need {journal_size_bytes} and each \
                     vSSD {}; give the device more, or none",
                    memory.size_bytes(),
                    config.staging_bytes_per_vssd
                ));
                Pool::create(&media, config.pool.clone())
            }
            Some(memory) => {
                let journal = memory.region(0..journal_size_bytes);
                Pool::open(&media, config.pool.clone(), journal).unwrap_or_else(|error| {
                    failure = Some(error.to_string());
                    Pool::create(&media, config.pool.clone())
                })
            }
        };
        if seat.shards > 1 {
            pool.follow();
        }
        let dies: Vec<_> =
            (0..geometry.dies()).map(|die| pool.system_area().catalog_blocks(die).to_vec()).collect();
        let catalog = new_catalog(&mut media, &dies, is_member, now);
        if catalog.is_none() {
            failure = Some(
                "the device has no two dies with good erase blocks for the catalog; use a larger one"
                    .to_owned(),
            );
        }
        let catalog = catalog.unwrap_or_else(|| {
            let block = geometry.die_at(0).erase_block(diecut_units::BlockIndex(0));
            Catalog::create(&media, [[block; 2]; 2])
        });
        Shard {
            protected,
            journal_size_bytes,
            flash: Flash::new(media, pool),
            namespaces: Namespaces::new(),
            target: Target::new(config.target.clone()),
            admission: Admission::new(config.admission),
            outputs: Outputs::default(),
            taken_back: Vec::new(),
            target_actions: Vec::new(),
            spare_actions: Vec::new(),
            cpu: CpuClock::new(config.cost_model),
            door_completions: Vec::new(),
            catalog,
            state: State::default(),
            control: Control::default(),
            blocks: Blocks::default(),
            phase: match () {
                () if is_member => Phase::Orders,
                () if failure.is_some() => Phase::Failed,
                () => Phase::Catalog,
            },
            index: seat.index,
            shards: seat.shards,
            ledger: Ledger::new(seat.shards, geometry.channels),
            orders: Orders::default(),
            evenness: Evenness::default(),
            duties: Duties::default(),
            opening: Vec::new(),
            outgoing: Vec::new(),
            notices: Vec::new(),
            lost_catalog_copies: 0,
            was_unclean: false,
            retired_told: vec![0; geometry.dies() as usize],
            failure,
            early: Vec::new(),
            config,
        }
    }

    /// Whether this is not the first shard of its server.
    pub(crate) fn is_member(&self) -> bool {
        self.index.0 > 0
    }

    pub(crate) fn take_early(&mut self) -> Vec<drive::Event> {
        std::mem::take(&mut self.early)
    }

    /// Whether everything is open and commands are served.
    pub fn is_ready(&self) -> bool {
        self.phase == Phase::Ready
    }

    /// Why it cannot be opened, if so.
    pub fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// When the modelled core is through with what it began; a driver of such a shard takes nothing from hosts before.
    /// [`Time::ZERO`] on the real clock.
    pub fn core_free_at(&self) -> Time {
        self.cpu.free_at()
    }

    /// Rounds that the modelled core has begun: in each, a driver may let it see events besides the commands of [`Shard::submit`].
    pub fn core_rounds(&self) -> u64 {
        self.cpu.rounds()
    }

    /// Takes what the modelled core noted of commands of [`Shard::submit`] since the last call, in order. Nothing on the real
    /// clock.
    pub fn take_moments(&mut self, moments: &mut Vec<(CommandToken, Moment, Time)>) {
        moments.append(&mut self.cpu.moments);
    }

    /// Whether the modelled core is free and between two rounds.
    pub fn is_between_rounds(&self, now: Time) -> bool {
        self.cpu.is_between_rounds(now, self.admission.has_work())
    }

    /// State of all stores in lines, for people who debug.
    pub fn describe(&self) -> String {
        let stores = self.flash.stores();
        stores
            .map(|(index, vssd, store)| format!("store {} vSSD {}\n{}", index.0, vssd.0, store.describe()))
            .collect()
    }

    /// IUs that the catalog and the journal of block states programmed, and their erases, since the shard was opened.
    pub fn system_work(&self) -> (u64, u64) {
        let (catalog, journal) = (self.catalog.work(), self.flash.pool.journal_work());
        (catalog.0 + journal.0, catalog.1 + journal.1)
    }

    /// What exists.
    pub fn state(&self) -> &State {
        &self.state
    }

    fn fail(&mut self, message: String, now: Time, actions: &mut Vec<drive::Action>) {
        self.failure = Some(message);
        self.phase = Phase::Failed;
        for event in std::mem::take(&mut self.early) {
            self.handle(event, now, actions);
        }
    }

    fn open_further(&mut self, now: Time, actions: &mut Vec<drive::Action>) {
        loop {
            match self.phase {
                Phase::Catalog if self.catalog.is_open() => {
                    if let Some(error) = self.catalog.error() {
                        return self.fail(error.to_string(), now, actions);
                    }
                    let found = self.catalog.take_state();
                    self.state = found.unwrap_or_else(|| {
                        let mut state = State::default();
                        state.pool.uuid = self.config.new_pool_uuid;
                        state.pool.closed = true;
                        state
                    });
                    self.phase = Phase::Journal;
                }
                Phase::Journal => {
                    if let Some(error) = self.flash.pool.open_error() {
                        return self.fail(error.to_string(), now, actions);
                    }
                    if !self.flash.pool.is_open() {
                        return;
                    }
                    self.flash.pool.begin_check(&mut self.flash.media, now);
                    self.phase = Phase::Pool;
                }
                Phase::Pool if self.flash.pool.is_checked() => {
                    let held: Vec<u32> = self.flash.pool.vssd_ids().map(|id| id.0).collect();
                    for (name, vssd) in &self.state.vssds {
                        if !held.contains(&vssd.number) {
                            let message =
                                format!("vSSD \"{name}\" is in the catalog but not in the pool's journal");
                            return self.fail(message, now, actions);
                        }
                    }
                    self.give_out_channels();
                    self.apply_wear();
                    for record in self.own_vssds() {
                        // No limit yet: recovery does not wait for tokens.
                        let share = Share { weight: record.weight, ..Share::default() };
                        self.flash.pool.set_share(VssdId(record.number), share, now);
                        self.open_store(&record, now);
                    }
                    let world = self.world();
                    self.opening = self.order_all(|| Order::Open(Arc::clone(&world)));
                    self.phase = Phase::Stores;
                }
                Phase::Stores if self.flash.stores().all(|(_, _, store)| store.is_ready()) => {
                    if !self.are_opened() {
                        return;
                    }
                    let mut steps = self.leftovers();
                    let mut next = self.state.clone();
                    next.pool.starts += 1;
                    self.was_unclean = !next.pool.closed;
                    next.pool.unclean_starts += u64::from(!next.pool.closed);
                    next.pool.closed = false;
                    steps.push(Step::Persist);
                    self.begin(Reply::Nobody, next, steps);
                    self.phase = Phase::Leftovers;
                }
                Phase::Leftovers => {
                    self.work_control(now, actions);
                    if self.is_carrying_out() {
                        return;
                    }
                    let world = self.world();
                    self.opening = self.order_all(|| Order::Serve(Arc::clone(&world)));
                    self.phase = Phase::Members;
                }
                Phase::Members => {
                    if self.are_opened() {
                        self.serve(now, actions);
                    }
                    return;
                }
                _ => return,
            }
        }
    }

    fn are_opened(&mut self) -> bool {
        let mut opening = std::mem::take(&mut self.opening);
        let all = self.all_answered(&mut opening);
        self.opening = opening;
        all
    }

    /// Staging slots that protected memory has room for.
    pub(crate) fn staging_slots(&self) -> u32 {
        let Some(memory) = &self.protected else { return 0 };
        let room = memory.size_bytes().saturating_sub(self.journal_size_bytes);
        (room / self.config.staging_bytes_per_vssd) as u32
    }

    /// Bytes of protected memory that a vSSD stages in.
    pub(crate) fn staging_size_bytes(&self, record: &VssdRecord) -> Option<usize> {
        record.staging_slot.map(|_| record.staging_slot_count as usize * self.config.staging_bytes_per_vssd)
    }

    pub(crate) fn staging_region(&self, record: &VssdRecord) -> Option<ProtectedRegion> {
        let size = self.staging_size_bytes(record)?;
        let first = record.staging_slot? as usize;
        let start = self.journal_size_bytes + first * self.config.staging_bytes_per_vssd;
        self.protected.as_ref().map(|memory| memory.region(start..start + size))
    }

    /// Gives the device back and forgets everything else: the death of the process, as far as a shard knows.
    pub fn into_media(self) -> M {
        let mut media = self.flash.media;
        for (_, message) in self.outgoing {
            message.salvage(&mut media);
        }
        for (_, order) in self.duties.waiting {
            order.salvage(&mut media);
        }
        self.orders.salvage(&mut media);
        media
    }

    /// The device.
    pub fn media(&self) -> &M {
        &self.flash.media
    }

    /// The device, for faults that come from outside of it (a power cut). Commands go through the shard only.
    pub fn media_mut(&mut self) -> &mut M {
        &mut self.flash.media
    }

    /// Where each vSSD lies, and on which shard, by number: what the first shard of a server knows. For checkers.
    pub fn account(&self) -> BTreeMap<u32, (u16, Places)> {
        let held = self.ledger.vssds.iter();
        held.map(|(number, held)| (*number, (held.shard, held.places.clone()))).collect()
    }

    /// Whether something is being carried out for administrators, or for even wear over several shards.
    pub fn is_administering(&self) -> bool {
        !self.control.is_idle() || self.evenness.has_work()
    }

    /// Checks that the budget of hosts' connections is what they hold.
    ///
    /// # Panics
    /// If not.
    pub fn check_budget(&self) {
        self.target.check_budget();
    }

    /// The pool, for checkers and reports.
    pub fn pool(&self) -> &Pool {
        &self.flash.pool
    }

    /// Takes a command of a door other than the target, which chose its token and a source of its own with
    /// [`DOOR_SOURCE_BIT`]. [`Drive::work`] follows after a batch.
    ///
    /// # Panics
    /// If the bit is not set.
    pub fn submit(&mut self, command: NamespaceCommand) {
        assert!(command.source.0 & DOOR_SOURCE_BIT != 0, "{:?} is the target's", command.source);
        let Some(command) = self.cpu.arrive(command) else { return };
        self.admission.push(command);
    }

    /// Takes the answers to [`Shard::submit`], in the order they came.
    pub fn take_completions(&mut self, completions: &mut Vec<NamespaceCompletion>) {
        completions.append(&mut self.door_completions);
    }

    /// Says whose turns the commands of a namespace on a vSSD take: those of its tenant.
    pub(crate) fn seat_namespace(&mut self, id: NamespaceId, vssd: VssdId) {
        let record = self.state.vssds.values().find(|record| record.number == vssd.0);
        let tenant = &record.expect("a namespace is on a vSSD that exists").tenant;
        self.admission.open(id, tenant, vssd, !self.flash.pool.has_room(vssd));
    }

    /// Takes what the target asks: commands go to admission, the rest to the driver.
    fn sort_actions(&mut self, actions: &mut Vec<drive::Action>) {
        let mut batch = std::mem::replace(&mut self.target_actions, std::mem::take(&mut self.spare_actions));
        for action in batch.drain(..) {
            match action {
                target::Action::GiveUp(source, token) => {
                    self.namespaces.give_up(source, token);
                    self.admission.take_back(source, token, &mut self.taken_back);
                }
                target::Action::Submit(command) => {
                    if let Some((store, volume, first_iu)) = self.namespaces.read_of(&command) {
                        self.flash.expect_read(store, volume, first_iu);
                    }
                    self.admission.push(command);
                }
                other => actions.push(translate(other)),
            }
        }
        self.spare_actions = batch;
        if !self.notices.is_empty() {
            actions.extend(self.notices.drain(..).map(|notice| drive::Action::Notice(Box::new(notice))));
        }
        actions.extend(self.blocks.actions.drain(..).map(drive::Action::Blocks));
        for (to, message) in self.outgoing.drain(..) {
            actions.push(drive::Action::Tell { to, message });
        }
    }

    fn name_of_vssd(&self, vssd: VssdId) -> String {
        let named = self.state.vssds.iter().find(|(_, record)| record.number == vssd.0);
        named.map_or_else(|| format!("number {}", vssd.0), |(name, _)| name.clone())
    }

    /// Says what happened below: stores that take no writes, blocks that failed, the catalog.
    fn notice_flash(&mut self) {
        for (vssd, standing) in std::mem::take(&mut self.flash.standings) {
            let vssd = self.name_of_vssd(vssd);
            let notice = match standing {
                Standing::ReadOnly(_) | Standing::NoRoom(_)
                    if mutant!("shard: a read-only vSSD is not told of") =>
                {
                    continue;
                }
                Standing::ReadOnly(reason) => Notice::ReadOnly { vssd, reason },
                Standing::NoRoom(reason) => Notice::NoRoom { vssd, reason },
                Standing::TakesWrites => Notice::RoomAgain { vssd },
                Standing::Full => Notice::Full { vssd },
            };
            self.notices.push(notice);
        }
        for vssd in self.flash.pool.take_limits_met() {
            let vssd = self.name_of_vssd(vssd);
            self.notices.push(Notice::RateLimited { vssd });
        }
        if self.flash.pool.take_retired() {
            for (die, told) in (0..).zip(&mut self.retired_told) {
                let retired = self.flash.pool.retired_of(die);
                // Dies that came with a tenant bring what they retired elsewhere.
                if retired > *told {
                    self.notices.push(Notice::BlocksRetired { die, retired });
                }
                *told = retired;
            }
        }
    }

    /// Admits work of about a round's cost: commands, and pieces of those that are larger than a piece.
    fn admit(&mut self, budget: &mut u32, now: Time) {
        while *budget > 0 && !self.cpu.is_busy(now) {
            let Some(work) = self.admission.next() else { return };
            // Of a deallocation that is cut; others are looked at as a whole.
            let mut looked_at = None;
            let flash = &self.flash;
            let mut map_piece = |range: MapRange| {
                let MapRange { store, volume, first_iu, iu_count } = range;
                let store = flash.store(store);
                let (piece, ius) = store.deallocation_piece(volume, first_iu, iu_count, MAP_PIECE_LBAS);
                looked_at = Some(ius);
                piece
            };
            let (mut cost, rest) = match work {
                Work::Command(command) => {
                    self.cpu.note(Moment::Admitted, command.token, command.source, now);
                    self.cpu.charge_command(now);
                    (COMMAND_COST, self.namespaces.submit(command, now, &mut self.outputs, &mut map_piece))
                }
                Work::Rest(token) => {
                    self.cpu.charge_turn(now);
                    let more = self.namespaces.go_on(token, now, &mut self.outputs, &mut map_piece);
                    (0, more.then_some(token))
                }
            };
            for (store, piece) in self.outputs.volume_commands.drain(..) {
                let looked_at = looked_at.unwrap_or_else(|| ius_of(&piece.operation));
                cost += cost_of(&piece.operation, looked_at);
                self.cpu.charge(&piece.operation, looked_at, now);
                self.flash.submit(store, piece, now);
            }
            // A turn is never free, or a budget would not end.
            let cost = cost.max(1);
            self.admission.settle(cost, rest, now);
            self.cpu.spend(cost);
            *budget = budget.saturating_sub(cost);
        }
    }

    /// Answers of doors go out when a round is over; on the real clock that is now.
    fn send_answers(&mut self, now: Time) {
        if self.is_between_rounds(now) {
            self.door_completions.append(&mut self.cpu.answers);
        }
    }

    fn finish(&mut self, now: Time) {
        for command in self.taken_back.drain(..) {
            mark!("shard: command given up before it began");
            let result = Err(NamespaceError::Aborted);
            let completion = NamespaceCompletion { token: command.token, result, data: None };
            self.target.handle(target::Event::Completed(completion), now, &mut self.target_actions);
        }
        for finished in self.outputs.finished.drain(..) {
            self.admission.finished(finished.namespace);
            if finished.source.0 & DOOR_SOURCE_BIT != 0 {
                self.cpu.note(Moment::Done, finished.completion.token, finished.source, now);
                self.cpu.answers.push(finished.completion);
                continue;
            }
            let event = target::Event::Completed(finished.completion);
            self.target.handle(event, now, &mut self.target_actions);
        }
    }
}

impl<M: Divide> Drive for Shard<M> {
    fn handle(&mut self, event: drive::Event, now: Time, actions: &mut Vec<drive::Action>) {
        if let drive::Event::Told { message, .. } = event {
            self.told(message, now, actions);
            if self.is_member() || matches!(self.phase, Phase::Ready | Phase::Failed) {
                self.work_control(now, actions);
            } else {
                self.open_further(now, actions);
            }
            return self.sort_actions(actions);
        }
        if let drive::Event::Synced { number, worked } = event {
            return self.flash.media.synced(number, worked, now);
        }
        if self.phase != Phase::Ready && self.phase != Phase::Failed {
            return self.early.push(event);
        }
        self.cpu.charge_event(&event, now);
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
                return self.sort_actions(actions);
            }
            drive::Event::Blocks(event) => {
                self.blocks_event(event, now);
                return self.sort_actions(actions);
            }
            drive::Event::Told { .. } | drive::Event::Synced { .. } => unreachable!("taken above"),
        };
        self.target.handle(event, now, &mut self.target_actions);
        self.sort_actions(actions);
    }

    fn work(&mut self, now: Time, actions: &mut Vec<drive::Action>) {
        if self.target.deadline() <= now {
            self.target.handle(target::Event::Tick, now, &mut self.target_actions);
        }
        let mut budget = self.admission.round_cost(now);
        for round in 0..ROUNDS_MAX {
            if round == 0 && self.target.has_work() {
                self.target.handle(target::Event::Round, now, &mut self.target_actions);
                self.sort_actions(actions);
            }
            self.send_answers(now);
            self.cpu.begin_round(now, &mut self.admission);
            self.admit(&mut budget, now);
            self.blocks.admit(&mut self.flash, now);
            self.flash.run(now);
            if let Some(number) = self.flash.wanted_sync.take() {
                actions.push(drive::Action::Sync { number });
            }
            self.tell_wear();
            self.notice_flash();
            self.blocks.complete(&mut self.flash);
            let admission = &mut self.admission;
            self.flash.take_room_changes(|vssd, has_room| admission.hold(vssd, !has_room));
            for completion in std::mem::take(&mut self.flash.foreign) {
                if self.is_member() {
                    self.outgoing.push((ShardIndex(0), ShardMessage(Message::MediaDone(completion))));
                    continue;
                }
                let mut reach = Reach {
                    own: &mut self.flash.media,
                    owners: &self.ledger.owners,
                    outgoing: &mut self.outgoing,
                };
                self.catalog.complete(completion, &mut reach, now);
                let lost = self.catalog.lost_copies();
                if lost > std::mem::replace(&mut self.lost_catalog_copies, lost) {
                    self.notices.push(Notice::CatalogCopyLost);
                }
            }
            let mut completions = std::mem::take(&mut self.flash.completions);
            for (store, completion) in completions.drain(..) {
                if matches!(completion.result, Err(VolumeError::Full)) {
                    self.flash.note_full(store, now);
                }
                if completion.token.0 & CONTROL_TOKEN_BIT != 0 {
                    self.store_answered(&completion);
                } else {
                    self.namespaces.complete(completion, now, &mut self.outputs);
                }
            }
            self.flash.completions = completions;
            self.finish(now);
            self.sort_actions(actions);
            if self.is_member() {
                self.work_control(now, actions);
            } else if self.phase != Phase::Ready {
                self.open_further(now, actions);
            } else if !self.control.is_idle() || self.evenness.has_work() {
                self.work_control(now, actions);
            }
            self.sort_actions(actions);
            self.send_answers(now);
            let goes_on = budget > 0 || self.flash.deadline() <= now;
            if !goes_on || self.deadline() > now {
                return;
            }
        }
    }

    fn deadline(&self) -> Time {
        if self.target.has_work() || !self.target_actions.is_empty() || !self.flash.foreign.is_empty() {
            return Time::ZERO;
        }
        if self.blocks.has_work(&self.flash) || !self.taken_back.is_empty() {
            return Time::ZERO;
        }
        if matches!(self.phase, Phase::Catalog if self.catalog.is_open()) {
            return Time::ZERO;
        }
        let waits = self.admission.has_work() || self.cpu.has_arrivals() || !self.cpu.answers.is_empty();
        let admission = if waits { self.cpu.free_at() } else { Time::NEVER };
        admission.min(self.flash.deadline()).min(self.target.deadline()).min(self.control.deadline())
    }

    fn goes_on(&self, connection: ConnectionId) -> bool {
        self.target.source_of(connection).is_some_and(|source| self.admission.goes_on(source))
    }

    fn is_connected(&self, connection: ConnectionId) -> bool {
        self.target.is_connected(connection)
    }

    fn outbox(&self, connection: ConnectionId) -> Option<&Outbox> {
        self.target.outbox(connection)
    }

    fn sent(&mut self, connection: ConnectionId, len_bytes: usize, _actions: &mut Vec<drive::Action>) {
        self.target.sent(connection, len_bytes);
    }

    fn receive_window(&mut self, connection: ConnectionId) -> Option<&mut [u8]> {
        self.target.receive_window(connection)
    }

    fn receive_bytes(&self) -> usize {
        self.target.receive_bytes()
    }

    fn set_memory(&mut self, memory_bytes: usize) {
        self.target.set_memory(memory_bytes);
    }

    fn memory(&self) -> drive::MemoryFigures {
        self.target.memory()
    }

    fn shrink(&mut self, slabs_max: u32) -> usize {
        self.target.shrink(slabs_max) + self.flash.shrink(slabs_max)
    }
}
