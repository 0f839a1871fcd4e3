//! The lower half of a shard: its devices, the pools over them, and one store per vSSD, of volumes, zones or chunks. Commands in, completions out.

mod answers;
mod chunks;
mod copying;
mod placement;
mod zones;

use crate::answers::Answers;
use crate::at_work::{AtWork, For};
use crate::devices::{DeviceIndex, Devices, LiesOn, SlowOn};
use crate::kept::Kept;
pub(crate) use answers::StoreAnswers;
pub(crate) use chunks::ChunksView;
pub(crate) use copying::{Copying, PIECE_IUS, PIECES_AT_ONCE, Piece, runs};
use diecut_media::{Completion, Intent, Media};
use diecut_namespace::StoreIndex;
use diecut_units::{ProtectedRegion, Slab, Span, Time, mark, mutant};
use diecut_volume::contract::{VolumeCommand, VolumeCompletion, VolumeIndex};
use diecut_volume::{Placement, Store, StoreConfig};
use diecut_vssd::{DieTimesView, Pool, SpaceCompletion, VssdId};
pub(crate) use zones::ZonesView;

/// How often one call goes round between medium, pool and stores before it returns to the driver.
const ROUNDS_MAX: u32 = 8;
const NO_STORE: u16 = u16::MAX;

/// How a store stands to writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    TakesWrites,
    /// The medium has no room at present, and why.
    NoRoom(&'static str),
    /// It takes none any more, and why.
    ReadOnly(&'static str),
    /// It stores all that it can.
    Full,
}

/// How long a vSSD that is full is not told of again.
const FULL_TOLD_FOR: Span = Span::from_secs(60);

struct StoreSlot {
    vssd: VssdId,
    lies_on: LiesOn,
    store: Kept,
    has_work: bool,
    /// Commands of hosts that volumes have.
    under_way: u32,
    /// What was told of it last.
    told: Standing,
    /// That it is full is not told again before this.
    full_told_until: Time,
    /// Answers that are kept from a store that is held: it starts nothing then.
    held: Option<Vec<SpaceCompletion>>,
    /// An operation that took long and came back in this round: it may be what commands waited for that are answered now.
    released_by: Option<SlowOn>,
}

/// The place of a store, beside what else is lent of [`Flash`].
///
/// # Panics
/// If no store is open there.
#[inline]
fn slot_of(stores: &mut Slab<StoreSlot>, index: StoreIndex) -> &mut StoreSlot {
    stores.get_mut(index.0.into()).expect("I-S21: a store that is used is open")
}

/// A store on its way to another shard, with answers that it has not seen.
pub(crate) struct MovedStore {
    pub vssd: VssdId,
    store: Kept,
    unseen: Vec<SpaceCompletion>,
    /// What was told of it last, and until when not again that it is full: its new shard tells what is new.
    told: (Standing, Time),
}

impl StoreSlot {
    fn new(vssd: VssdId, lies_on: LiesOn, store: Kept) -> StoreSlot {
        StoreSlot {
            vssd,
            lies_on,
            store,
            has_work: false,
            under_way: 0,
            told: Standing::TakesWrites,
            full_told_until: Time::ZERO,
            held: None,
            released_by: None,
        }
    }

    fn deadline(&self) -> Time {
        if self.held.is_some() { Time::NEVER } else { self.store.deadline() }
    }

    /// It gets a turn, unless it is held.
    #[inline]
    fn mark_busy(&mut self, index: StoreIndex, busy: &mut Vec<u16>) {
        if !self.has_work && self.held.is_none() {
            self.has_work = true;
            busy.push(index.0);
        }
    }
}

/// See the module.
pub(crate) struct Flash<M: Media> {
    pub devices: Devices<M>,
    stores: Slab<StoreSlot>,
    /// Store of each vSSD, by number: vSSDs are numbered from 1 and never again.
    by_vssd: Vec<u16>,
    /// Stores with work, each once.
    busy: Vec<u16>,
    spare_busy: Vec<u16>,
    media_completions: Vec<Completion>,
    space_completions: Vec<(VssdId, SpaceCompletion)>,
    room_changes: Vec<VssdId>,
    /// vSSDs whose stores came to stand to writes in another way.
    pub standings: Vec<(VssdId, Standing)>,
    /// What media ask for; the shard has it done.
    pub intents: Vec<(DeviceIndex, Intent)>,
    spare_intents: Vec<Intent>,
    /// Answers of media to others than the pools; whoever they belong to takes them.
    pub foreign: Vec<(DeviceIndex, Completion)>,
    /// Answers of the pool for vSSDs without a store: applications at erase blocks.
    pub block_completions: Vec<(VssdId, SpaceCompletion)>,
    /// Answers of the stores, in order; the shard takes them.
    pub answers: StoreAnswers,
    /// For whom the shard works now.
    pub at_work: AtWork,
    /// What of a vSSD that moves was copied.
    pub copying: Option<Copying>,
}

impl<M: Media> Flash<M> {
    pub fn new(devices: Devices<M>) -> Flash<M> {
        Flash {
            devices,
            stores: Slab::new(),
            by_vssd: Vec::new(),
            busy: Vec::new(),
            spare_busy: Vec::new(),
            media_completions: Vec::new(),
            space_completions: Vec::new(),
            room_changes: Vec::new(),
            standings: Vec::new(),
            intents: Vec::new(),
            spare_intents: Vec::new(),
            foreign: Vec::new(),
            block_completions: Vec::new(),
            answers: StoreAnswers::default(),
            at_work: AtWork::default(),
            copying: None,
        }
    }

    /// Opens the store of a vSSD: empty or recovering.
    ///
    /// # Panics
    /// If the vSSD does not exist or its store is open.
    pub fn open_store(
        &mut self,
        vssd: VssdId,
        config: StoreConfig,
        staging: Option<ProtectedRegion>,
        now: Time,
    ) -> StoreIndex {
        self.make_room_for(vssd);
        self.at_work.now_for = For::Vssd(vssd);
        let store = Store::open(config, self.devices.space(vssd, now).as_mut(), staging);
        self.at_work.now_for = For::All;
        self.seat(vssd, Kept::Volumes(store))
    }

    /// Gives up free buffers of the stores that were not needed since the last call; see [`diecut_units::BufferPool::shrink`].
    pub fn shrink(&mut self, slabs_max: u32) -> usize {
        self.stores.iter_mut().map(|(_, slot)| slot.store.shrink(slabs_max)).sum()
    }

    /// A store of this vSSD comes; it has none.
    fn make_room_for(&mut self, vssd: VssdId) {
        let number = vssd.0 as usize;
        if number >= self.by_vssd.len() {
            self.by_vssd.resize(number + 1, NO_STORE);
        }
        assert_eq!(self.by_vssd[number], NO_STORE, "I-S21: the store of {vssd:?} is open already");
    }

    fn seat(&mut self, vssd: VssdId, store: Kept) -> StoreIndex {
        let lies_on = self.devices.find(vssd).expect("I-S37: a vSSD with a store lies on a device");
        let index = self.stores.insert(StoreSlot::new(vssd, lies_on, store));
        assert!(index < u32::from(NO_STORE), "I-S21: a store has a number of 16 bits");
        let index = StoreIndex(index as u16);
        // One that was taken out of this place may have been left there.
        self.busy.retain(|busy| *busy != index.0);
        self.by_vssd[vssd.0 as usize] = index.0;
        self.mark_busy(index);
        index
    }

    /// Holds a store: it has no turn and sees no answer, so it starts nothing, and what is under way for it ends.
    ///
    /// # Panics
    /// If it is not open.
    pub fn hold_store(&mut self, index: StoreIndex) {
        let slot = slot_of(&mut self.stores, index);
        slot.held.get_or_insert_default();
    }

    /// Takes out a store that is held.
    ///
    /// # Panics
    /// If it is not open, or not held.
    pub fn take_store(&mut self, index: StoreIndex) -> MovedStore {
        let slot = self.stores.remove(index.0.into());
        self.unseat(slot.vssd, index);
        let unseen = slot.held.expect("I-S21: a store that is held is taken");
        let told = (slot.told, slot.full_told_until);
        MovedStore { vssd: slot.vssd, store: slot.store, unseen, told }
    }

    /// Puts in a store that was taken out elsewhere; the pool has its vSSD. It goes on where it was.
    ///
    /// # Panics
    /// If the store of that vSSD is open.
    pub fn put_store(&mut self, moved: MovedStore) -> StoreIndex {
        let MovedStore { vssd, mut store, unseen, told } = moved;
        store.quiesce(mutant!("shard: a store rests at its new home"));
        self.make_room_for(vssd);
        if !unseen.is_empty() {
            mark!("shard: answers of the medium went with their store");
        }
        if !mutant!("shard: answers of the medium stay behind") {
            self.space_completions.extend(unseen.into_iter().map(|completion| (vssd, completion)));
        }
        let index = self.seat(vssd, store);
        let slot = slot_of(&mut self.stores, index);
        (slot.told, slot.full_told_until) = told;
        index
    }

    /// IUs that volumes on a vSSD can store at an over-provisioning.
    pub fn exportable_ius(
        &mut self,
        vssd: VssdId,
        staging_size_bytes: Option<usize>,
        over_provisioning_permille: u32,
        placement: Placement,
        now: Time,
    ) -> u64 {
        let space = self.devices.space(vssd, now);
        Store::exportable_ius(space.as_ref(), staging_size_bytes, over_provisioning_permille, placement)
    }

    /// Forgets a store; operations of it that are under way are answered to nobody.
    ///
    /// # Panics
    /// If it is not open.
    pub fn close_store(&mut self, index: StoreIndex) -> VssdId {
        let slot = self.stores.remove(index.0.into());
        self.unseat(slot.vssd, index);
        slot.vssd
    }

    /// The store of a vSSD is at this place no more.
    fn unseat(&mut self, vssd: VssdId, index: StoreIndex) {
        let before = std::mem::replace(&mut self.by_vssd[vssd.0 as usize], NO_STORE);
        assert_eq!(before, index.0, "I-S21: {vssd:?} names the place of its store");
    }

    /// Takes out a store that is to be opened again; gives the commands that wait for that. [`Flash::begin_store`] follows.
    ///
    /// # Panics
    /// If it is not open, or something of it is under way.
    pub fn end_store(&mut self, index: StoreIndex) -> Vec<VolumeCommand> {
        let slot = self.stores.lend(index.0.into());
        assert!(slot.held.is_none(), "I-S21: a store that is held does not end");
        match slot.store {
            Kept::Volumes(store) => store.into_commands(),
            Kept::Zones { .. } | Kept::Chunks { .. } => {
                unreachable!("I-S21: only volumes are opened again")
            }
        }
    }

    /// Opens a store again, at the place of the one that was taken out, for `commands` and those that come: they wait until
    /// [`Flash::let_commands_in`].
    ///
    /// # Panics
    /// If a store is open there.
    pub fn begin_store(
        &mut self,
        index: StoreIndex,
        vssd: u32,
        config: StoreConfig,
        staging: Option<ProtectedRegion>,
        commands: Vec<VolumeCommand>,
        now: Time,
    ) {
        let vssd = VssdId(vssd);
        assert_eq!(self.by_vssd[vssd.0 as usize], index.0, "I-S21: a store is opened again at its place");
        let lies_on = self.devices.find(vssd).expect("I-S37: a vSSD with a store lies on a device");
        let mut store = Store::open(config, self.devices.space_on(lies_on, vssd, now).as_mut(), staging);
        if !mutant!("shard: commands do not wait for what a repair finds") {
            store.wind_down();
        }
        self.stores.put_back(index.0.into(), StoreSlot::new(vssd, lies_on, Kept::Volumes(store)));
        self.busy.retain(|busy| *busy != index.0);
        self.mark_busy(index);
        self.submit(&mut commands.into_iter().map(|command| (index, command)).collect(), now);
    }

    /// Commands of a store that was opened again go on: it was told what it has lost.
    pub fn let_commands_in(&mut self, index: StoreIndex, now: Time) {
        let commands = self.kept_mut(index).volumes_mut().let_commands_in();
        self.submit(&mut commands.into_iter().map(|command| (index, command)).collect(), now);
    }

    /// The store of a vSSD, if it is open.
    pub fn store_of(&self, vssd: VssdId) -> Option<StoreIndex> {
        let index = *self.by_vssd.get(vssd.0 as usize)?;
        (index != NO_STORE).then_some(StoreIndex(index))
    }

    /// What is kept at a place.
    ///
    /// # Panics
    /// If nothing is open there.
    pub fn kept(&self, index: StoreIndex) -> &Kept {
        &self.stores.get(index.0.into()).expect("I-S21: a store that is used is open").store
    }

    /// What is kept at a place, to be changed; it gets a turn.
    ///
    /// # Panics
    /// If nothing is open there.
    pub fn kept_mut(&mut self, index: StoreIndex) -> &mut Kept {
        self.mark_busy(index);
        &mut slot_of(&mut self.stores, index).store
    }

    /// Has an open store that lacks room look whether there is some now.
    ///
    /// # Panics
    /// If it is not open.
    pub fn look_for_room(&mut self, index: StoreIndex, now: Time) {
        if self.kept(index).lacks_room() {
            self.mark_busy(index);
            self.run(now);
        }
    }

    /// Whether a store is held, or quiesces, so that its vSSD can leave.
    pub fn has_quiet_store(&self) -> bool {
        self.stores.iter().any(|(_, slot)| slot.held.is_some() || slot.store.quiesced().is_some())
    }

    /// Number of the vSSD whose store is at a place, if one is.
    pub fn vssd_of(&self, index: StoreIndex) -> Option<VssdId> {
        self.stores.get(index.0.into()).map(|slot| slot.vssd)
    }

    /// Open stores.
    pub fn stores(&self) -> impl Iterator<Item = (StoreIndex, VssdId, &Kept)> {
        self.stores.iter().map(|(index, slot)| (StoreIndex(index as u16), slot.vssd, &slot.store))
    }

    fn mark_busy(&mut self, index: StoreIndex) {
        let slot = slot_of(&mut self.stores, index);
        slot.mark_busy(index, &mut self.busy);
    }

    /// A read of a store will follow soon: advice only.
    #[inline]
    pub fn expect_read(&self, index: StoreIndex, volume: VolumeIndex, first_iu: u64) {
        if let Some(slot) = self.stores.get(index.0.into())
            && let Kept::Volumes(store) = &slot.store
        {
            store.expect_read(volume, first_iu);
        }
    }

    /// Gives commands to stores, in order: those in a row that are for one store find it once. [`Flash::run`] follows.
    pub fn submit(&mut self, commands: &mut Vec<(StoreIndex, VolumeCommand)>, now: Time) {
        let mut commands = commands.drain(..);
        while let Some(&(index, _)) = commands.as_slice().first() {
            let slot = slot_of(&mut self.stores, index);
            slot.mark_busy(index, &mut self.busy);
            self.at_work.now_for = For::Vssd(slot.vssd);
            let mut space = self.devices.space_on(slot.lies_on, slot.vssd, now);
            while commands.as_slice().first().is_some_and(|(next, _)| *next == index)
                && let Some((_, command)) = commands.next()
            {
                let Kept::Volumes(store) = &mut slot.store else {
                    unreachable!("I-S21: volumes are asked of a store of volumes")
                };
                slot.under_way += u32::from(!Answers::is_for_job(command.token.0));
                if let Some(copying) = self.copying.as_mut().filter(|copying| copying.from == index) {
                    copying.begins(&command);
                }
                store.submit(command, space.as_mut(), &mut self.answers.answers);
            }
            self.answers.are_of(index);
        }
        self.at_work.now_for = For::All;
    }

    /// Lets time pass until `now`; a bounded number of rounds.
    pub fn run(&mut self, now: Time) {
        self.wake_stores(now);
        for _ in 0..ROUNDS_MAX {
            for device in (0..self.devices.indexes()).map(DeviceIndex) {
                if !self.devices.has(device) {
                    continue;
                }
                let own = self.devices.get_mut(device);
                let first = self.space_completions.len();
                if own.media.next_event() <= now {
                    own.media.advance(now, &mut self.media_completions);
                    own.media.take_intents(&mut self.spare_intents);
                    self.intents.extend(self.spare_intents.drain(..).map(|intent| (device, intent)));
                }
                for completion in self.media_completions.drain(..) {
                    if Pool::owns(completion.token) {
                        own.pool.complete(completion, now, &mut own.media, &mut self.space_completions);
                    } else {
                        self.foreign.push((device, completion));
                    }
                }
                own.pool.work(now, &mut own.media);
                own.pool.take_ready(&mut self.space_completions);
                self.devices.join_answers(device, first, &mut self.space_completions);
            }
            self.deliver(now);
            self.work_stores(now);
            if !self.has_work(now) {
                return;
            }
        }
    }

    /// Tells of each vSSD that came to have room in the queues of its dies, or none, since the last call.
    pub fn take_room_changes(&mut self, mut tell: impl FnMut(VssdId, bool)) {
        for own in self.devices.iter_mut() {
            own.pool.take_room_changes(&mut self.room_changes);
        }
        while let Some(vssd) = self.room_changes.pop() {
            tell(vssd, self.devices.has_room(vssd));
        }
    }

    fn wake_stores(&mut self, now: Time) {
        for (index, slot) in self.stores.iter_mut() {
            if slot.deadline() <= now {
                slot.mark_busy(StoreIndex(index as u16), &mut self.busy);
            }
        }
    }

    fn deliver(&mut self, now: Time) {
        if self.devices.iter_mut().any(|own| DieTimesView::of(&mut own.pool).has_slow()) {
            return answers::deliver_with_notes(self, now);
        }
        let mut batch = std::mem::take(&mut self.space_completions);
        let mut rest = batch.drain(..);
        while let Some(&(vssd, _)) = rest.as_slice().first() {
            let Some(index) = self.store_of(vssd) else {
                // Of an application, or of a store that was closed: that waits for nothing.
                self.block_completions.extend(rest.next());
                continue;
            };
            let slot = slot_of(&mut self.stores, index);
            slot.mark_busy(index, &mut self.busy);
            self.at_work.now_for = For::Vssd(vssd);
            let mut space = self.devices.space_on(slot.lies_on, vssd, now);
            // Those in a row that are for one store find it once.
            while rest.as_slice().first().is_some_and(|(next, _)| *next == vssd)
                && let Some((_, completion)) = rest.next()
            {
                match &mut slot.held {
                    None => slot.store.complete(completion, space.as_mut(), &mut self.answers.of_all()),
                    Some(unseen) => unseen.push(completion),
                }
            }
            self.answers.are_of(index);
        }
        drop(rest);
        self.space_completions = batch;
        self.at_work.now_for = For::All;
    }

    fn work_stores(&mut self, now: Time) {
        let mut batch = std::mem::replace(&mut self.busy, std::mem::take(&mut self.spare_busy));
        for number in batch.drain(..) {
            let Some(slot) = self.stores.get_mut(number.into()) else { continue };
            debug_assert!(slot.has_work, "I-S25: a store with work is in the list of those once");
            slot.has_work = false;
            if slot.held.is_some() {
                continue;
            }
            self.at_work.now_for = For::Vssd(slot.vssd);
            let mut space = self.devices.space_on(slot.lies_on, slot.vssd, now);
            let before = self.answers.counts();
            slot.store.work(now, space.as_mut(), &mut self.answers.of_all());
            if slot.released_by.is_some()
                && let Some(slow) = slot.released_by.take()
            {
                self.answers.waited_for(before, slow);
            }
            let standing = match slot.store.read_only_reason() {
                None => Standing::TakesWrites,
                Some(reason) if slot.store.lacks_room() => Standing::NoRoom(reason),
                Some(reason) => Standing::ReadOnly(reason),
            };
            if standing != slot.told {
                slot.told = standing;
                self.standings.push((slot.vssd, standing));
            }
            let index = StoreIndex(number);
            self.answers.are_of(index);
        }
        self.spare_busy = batch;
        self.at_work.now_for = For::All;
    }

    /// A store refused a write because it stores all that it can.
    #[cold]
    pub fn note_full(&mut self, index: StoreIndex, now: Time) {
        let slot = self.stores.get_mut(index.0.into()).filter(|slot| slot.full_told_until <= now);
        if let Some(slot) = slot {
            slot.full_told_until = now + FULL_TOLD_FOR;
            self.standings.push((slot.vssd, Standing::Full));
        }
    }

    fn has_work(&self, now: Time) -> bool {
        !self.busy.is_empty()
            || self.devices.iter().any(|own| own.pool.has_ready())
            || self.devices_due_at() <= now
    }

    /// When a medium or a pool has something to do.
    fn devices_due_at(&self) -> Time {
        let due = self.devices.iter().map(|own| own.media.next_event().min(own.pool.deadline()));
        due.fold(Time::NEVER, Time::min)
    }

    /// A command was answered. Gives the answer back unless it is that of a copy.
    #[inline]
    pub fn answered(&mut self, index: StoreIndex, answer: VolumeCompletion) -> Option<VolumeCompletion> {
        if !Answers::is_for_job(answer.token.0)
            && let Some(slot) = self.stores.get_mut(index.0.into())
        {
            slot.under_way = slot.under_way.saturating_sub(1);
        }
        match &mut self.copying {
            None => Some(answer),
            Some(copying) => copying.answered(answer),
        }
    }

    /// Commands of hosts that volumes have of a store.
    pub fn under_way(&self, index: StoreIndex) -> u32 {
        self.stores.get(index.0.into()).map_or(0, |slot| slot.under_way)
    }

    /// When [`Flash::run`] has something to do; [`Time::ZERO`] for at once.
    pub fn deadline(&self) -> Time {
        let copies = self.copying.as_ref().map_or(Time::NEVER, Copying::deadline);
        copies.min(self.own_deadline())
    }

    fn own_deadline(&self) -> Time {
        if !self.busy.is_empty() || self.devices.iter().any(|own| own.pool.has_ready()) {
            return Time::ZERO;
        }
        let stores = self.stores.iter().map(|(_, slot)| slot.deadline());
        stores.fold(self.devices_due_at(), Time::min)
    }
}
