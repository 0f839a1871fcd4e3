//! The device: flash rules at the door, then the event model or, unpaced, the effect at once.

use crate::block::FACTORY_BAD;
use crate::command::{CommandPayload, CommandState, Kind};
use crate::engine::{Engine, ROOM_LOOK};
use crate::nand::Nand;
use crate::statistics::DieStatistics;
use crate::store::disk::SyncFile;
use crate::store::image::Image;
use crate::store::room::RoomSupport;
use crate::store::room_queue::RoomWorker;
use crate::store::{FileStore, MemoryStore, Store, SyncedStore, TagStore};
use crate::{Backing, DeviceError, Fault, Options, Pacing, Profile};
use diecut_media::{Capabilities, Command, Completion, Intent, IntentDone, IntentToken, IntentWork, Media};
use diecut_units::{ContentMode, EraseBlockAddress, Geometry, IU_SIZE_BYTES, ProtectedMemory, Time, mark};
use rand::RngExt;
use std::path::{Path, PathBuf};

/// An emulated NAND device.
pub struct Device {
    pub(crate) profile: Profile,
    pub(crate) capabilities: Capabilities,
    pub(crate) protected: Option<ProtectedMemory>,
    pub(crate) powered: bool,
    pub(crate) paced: bool,
    pub(crate) now: Time,
    /// By channel: whether it is this part's (see [`diecut_media::Divide`]).
    pub(crate) owned: Vec<bool>,
    pub(crate) engine: Engine,
    /// Reads submitted without pacing whose bytes are still to be copied.
    pub(crate) reading: Vec<u32>,
    /// Erases submitted without pacing whose blocks have not the room yet that they were promised.
    pub(crate) roomless: Vec<u32>,
    pub(crate) seed: u64,
    /// What may be forgotten is kept.
    pub(crate) keeps_discarded: bool,
}

impl Device {
    /// Makes a new device. With [`Backing::File`] the file must not exist yet.
    ///
    /// # Errors
    /// Names the profile's field, or the file and what is wrong with it.
    pub fn create(profile: &Profile, options: Options) -> Result<Device, DeviceError> {
        profile.validate()?;
        let mut synced_profile = profile.clone();
        synced_profile.protected_memory_bytes = 0;
        let is_synced = matches!(options.backing, Backing::SyncedFile(_) | Backing::SyncedModel);
        let profile = if is_synced { &synced_profile } else { profile };
        let geometry = &profile.geometry;
        let unit_pages = crate::cells::CellLayout::new(profile).unit_pages();
        let protected =
            |size_bytes: u64| (size_bytes > 0).then(|| ProtectedMemory::in_memory(size_bytes as usize));
        let (store, protected) = match &options.backing {
            Backing::Memory => {
                let store = MemoryStore::new(geometry).map_err(|source| DeviceError::Memory {
                    size_bytes: geometry.raw_capacity_bytes(),
                    source,
                })?;
                (Store::Memory(store), protected(profile.protected_memory_bytes))
            }
            Backing::Tags => {
                (Store::Tags(TagStore::new(geometry, unit_pages)), protected(profile.protected_memory_bytes))
            }
            Backing::File(path) => {
                let opened = FileStore::create(path, profile, options.seed)?;
                (Store::File(Box::new(opened.store)), opened.protected)
            }
            Backing::SyncedFile(path) => {
                let file = SyncedStore::create_file(path, profile, options.seed)?;
                let made = SyncedStore::on_file(path, file, geometry, options.changes.clone());
                if made.is_err() {
                    // Made just now, and nothing is in it: the next try finds the place as this one did.
                    let _ = std::fs::remove_file(path);
                }
                (Store::Synced(Box::new(made?)), None)
            }
            Backing::SyncedModel => {
                (Store::Synced(Box::new(SyncedStore::model(geometry, options.seed))), None)
            }
        };
        let path = match &options.backing {
            Backing::SyncedFile(path) => path.clone(),
            _ => PathBuf::new(),
        };
        let mut device = Device::assemble(profile.clone(), options, store, protected)?;
        device.recover(&path)?;
        for number in 0..device.engine.nand.blocks.len() {
            let block = device.engine.nand.blocks[number];
            if block.has(FACTORY_BAD) {
                device.engine.nand.store.set_programmed(number as u64, &block);
            }
        }
        Ok(device)
    }

    /// Opens a device in a file as the last process left it. The profile and the seed come from the file;
    /// `options.backing` and `options.seed` are not looked at.
    ///
    /// # Errors
    /// Names the file and what is wrong with it.
    pub fn open(path: &Path, mut options: Options) -> Result<Device, DeviceError> {
        let image = Image::open(path)?;
        if image.is_synced {
            return Device::open_synced(path, image, options);
        }
        let opened = FileStore::open(path, image)?;
        options.seed = opened.seed;
        let store = Store::File(Box::new(opened.store));
        let mut device = Device::assemble(opened.profile, options, store, opened.protected)?;
        let mut marks = Vec::new();
        let geometry = device.profile.geometry;
        if let Store::File(store) = &mut device.engine.nand.store {
            let loaded = store.load(&geometry, &mut device.engine.nand.blocks, |block, page, mark| {
                marks.push((block, page, mark))
            });
            loaded.map_err(|what| DeviceError::Image { path: path.to_owned(), what })?;
        }
        for (block, page, mark) in marks {
            device.engine.nand.restore_mark(block, page, mark);
        }
        device.engine.nand.settle();
        device.engine.nand.give_back_empty();
        Ok(device)
    }

    fn open_synced(path: &Path, image: Image, mut options: Options) -> Result<Device, DeviceError> {
        image.check_size(path, crate::store::synced::Places::of(&image.profile.geometry).file_size)?;
        options.seed = image.seed;
        let store = SyncedStore::on_file(path, image.file, &image.profile.geometry, options.changes.take())?;
        let mut device = Device::assemble(image.profile, options, Store::Synced(Box::new(store)), None)?;
        device.recover(path)?;
        device.engine.nand.give_back_empty();
        Ok(device)
    }

    /// Takes from a synced store what it holds.
    fn recover(&mut self, path: &Path) -> Result<(), DeviceError> {
        let recovered = self.engine.nand.recover();
        recovered.map_err(|source| DeviceError::File {
            path: path.to_owned(),
            what: "its block states cannot be recovered",
            source,
        })?;
        self.engine.nand.settle();
        Ok(())
    }

    fn assemble(
        profile: Profile,
        options: Options,
        store: Store,
        protected: Option<ProtectedMemory>,
    ) -> Result<Device, DeviceError> {
        let content_mode = match options.backing {
            Backing::Tags if matches!(store, Store::Tags(_)) => ContentMode::Tags,
            _ => ContentMode::Bytes,
        };
        let mut capabilities = profile.capabilities(content_mode);
        let is_synced = matches!(store, Store::Synced(_));
        if is_synced {
            // A cut takes what no sync covers, and nothing else: no cells are at risk.
            capabilities.unsafe_units = 0;
        }
        let geometry = profile.geometry;
        let nand = Nand::new(&profile, store, options.seed, options.faults)?;
        let mut device = Device {
            engine: Engine::new(&profile, nand, is_synced),
            reading: Vec::new(),
            roomless: Vec::new(),
            capabilities,
            protected,
            powered: true,
            paced: options.pacing == Pacing::Modelled,
            now: Time::ZERO,
            owned: vec![true; usize::from(geometry.channels)],
            profile,
            seed: options.seed,
            keeps_discarded: false,
        };
        device.arm_cut();
        Ok(device)
    }

    pub(crate) fn arm_cut(&mut self) {
        if let Some(time) = self.engine.nand.failures.cut_time() {
            self.engine.schedule_cut(time);
        }
    }

    /// The profile it was made from.
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// The seed it was made with.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Whether the device has power.
    pub fn is_powered(&self) -> bool {
        self.powered
    }

    /// What a die did, by die number.
    pub fn die_statistics(&self, die: u32) -> &DieStatistics {
        &self.engine.statistics[die as usize]
    }

    /// What all dies did.
    pub fn statistics(&self) -> DieStatistics {
        let mut sum = DieStatistics::default();
        self.engine.statistics.iter().for_each(|die| sum.add(die));
        sum.busy_ns += self.engine.busy_so_far_ns(self.now);
        sum
    }

    /// Time the bus of a channel was in use, in nanoseconds.
    pub fn bus_busy_ns(&self, channel: u16) -> u64 {
        self.engine.bus_busy_ns(channel)
    }

    /// Erases of an erase block since the device was made.
    pub fn erase_count(&self, block: EraseBlockAddress) -> u32 {
        self.engine.nand.blocks[self.engine.nand.geometry.erase_block_number(block) as usize].erase_count
    }

    /// Erases of all blocks of a channel since the device was made.
    pub fn erases_of_channel(&self, channel: u16) -> u64 {
        let per_channel = self.engine.nand.blocks.len() / usize::from(self.engine.nand.geometry.channels);
        let first = usize::from(channel) * per_channel;
        self.engine.nand.blocks[first..first + per_channel]
            .iter()
            .map(|block| u64::from(block.erase_count))
            .sum()
    }

    /// Operations that dies began since the device was made or opened: the counter of
    /// [`Fault::PowerCutAtOperation`].
    pub fn operations(&self) -> u64 {
        self.engine.nand.failures.operations
    }

    /// Adds something that goes wrong from now on.
    pub fn add_fault(&mut self, fault: Fault) {
        self.engine.nand.failures.add_fault(fault);
        if self.powered {
            self.arm_cut();
        }
    }

    /// Bytes of memory that content takes in tag mode; 0 for other backings.
    pub fn tag_memory_bytes(&self) -> u64 {
        match &self.engine.nand.store {
            Store::Tags(store) => store.memory_bytes(),
            _ => 0,
        }
    }

    /// With [`Backing::File`]: asks the file system to make everything stored so far survive the death of the
    /// machine, and waits for it. Does nothing for other backings.
    ///
    /// # Errors
    /// Whatever the file system says.
    pub fn sync(&self) -> std::io::Result<()> {
        match &self.engine.nand.store {
            Store::File(store) => store.sync(),
            Store::Synced(store) => store.sync_file().map_or(Ok(()), |file| file.sync()),
            _ => Ok(()),
        }
    }

    /// With [`Backing::File`]: what the file system under it can do.
    pub fn room_support(&self) -> Option<RoomSupport> {
        match &self.engine.nand.store {
            Store::File(store) => Some(store.allocator.support),
            Store::Synced(store) => store.room_support(),
            _ => None,
        }
    }

    /// With [`Backing::File`] and [`Backing::SyncedFile`]: what takes room on the file system and gives it
    /// back, for a thread that its driver owns ([`RoomWorker::run`]). From now on the device does not wait for that: a block that is
    /// opened is promised its room while the file system has plenty, and its erase ends when it has it. Asked before the device is
    /// divided, and once: without this call, or where it gives nothing, each call takes what it needs.
    ///
    /// # Panics
    /// When it is called again.
    pub fn room_worker(&mut self) -> Option<RoomWorker> {
        self.engine.nand.rooms.worker(&self.engine.nand.store)
    }

    /// With [`Backing::SyncedFile`]: what its driver syncs when [`Media::take_intents`] says so.
    pub fn sync_file(&self) -> Option<SyncFile> {
        match &self.engine.nand.store {
            Store::Synced(store) => store.sync_file(),
            _ => None,
        }
    }

    /// The number of the sync that should begin now, given out once; `None`: nothing waits for one, or one is under way, and what came
    /// meanwhile is covered by the next. With [`Backing::SyncedFile`], completions of programs, copies and erases wait for it;
    /// [`Media::take_intents`] gives it out as an intent.
    pub fn wants_sync(&mut self) -> Option<u64> {
        if !self.powered {
            return None;
        }
        let number = self.engine.begin_sync()?;
        if self.engine.nand.begin_sync().is_err() {
            self.synced(number, false, self.now);
            return None;
        }
        Some(number)
    }

    /// The sync of that number ended: everything stored before [`Device::wants_sync`] gave the number out is durable, or
    /// (`worked` is false) may be lost for good. A number that is not under way, as of before a power cut, means nothing.
    pub fn synced(&mut self, number: u64, worked: bool, now: Time) {
        for command in self.engine.end_sync(number, worked) {
            mark!("emulator: a command waited for the sync of an erase");
            self.submit(command, now);
        }
    }

    /// The power goes: programs and erases at work are torn, whatever else is under way did not happen, and nothing is
    /// answered any more until [`Device::power_on`].
    pub fn power_cut(&mut self, now: Time) {
        if !self.powered {
            return;
        }
        for number in 0..self.engine.dies() {
            let at_work: Vec<u32> = self.engine.at_work(number).collect();
            for index in at_work {
                self.tear(index, now);
            }
        }
        if let Store::Synced(store) = &mut self.engine.nand.store {
            store.cut();
        }
        self.forget_commands();
        self.powered = false;
        self.engine.nand.failures.forget_cuts(now);
    }

    fn tear(&mut self, index: u32, now: Time) {
        let (command, payload) = self.engine.commands.loaded(index);
        if self.engine.syncs.is_some() {
            // It is written or not; how much of that stays is the disk's affair.
            if !command.kind.is_read() && self.engine.nand.failures.random.random_range(0..2) == 0 {
                apply_step(&mut self.engine.nand, command, payload, now);
            }
            return;
        }
        match command.kind {
            Kind::Program | Kind::Copy => self.engine.nand.tear_program(command, payload, now),
            Kind::Erase => self.engine.nand.tear_erase(command),
            Kind::Read | Kind::ReadOob => {}
        }
    }

    /// The process dies while the device keeps its power: each program or erase at work in an array ends or has not
    /// begun, by chance; whatever else is under way did not happen. The device is ready for the next process.
    pub fn process_death(&mut self, now: Time) {
        for number in 0..self.engine.dies() {
            let at_work: Vec<u32> = self.engine.at_work(number).collect();
            for index in at_work {
                if self.engine.nand.failures.random.random_range(0..2) == 0 {
                    let (command, payload) = self.engine.commands.loaded(index);
                    apply_step(&mut self.engine.nand, command, payload, now);
                }
            }
        }
        self.forget_commands();
        self.engine.nand.recover().expect("a model of a disk does not fail");
        self.engine.nand.settle();
        self.arm_cut();
    }

    fn forget_commands(&mut self) {
        self.engine.forget_commands();
        self.reading.clear();
        self.roomless.clear();
    }

    /// The power comes back: the device is as it was when it went.
    pub fn power_on(&mut self) {
        assert!(!self.powered, "the power is on already");
        self.powered = true;
        self.engine.done.clear();
        self.engine.nand.recover().expect("a model of a disk does not fail");
        self.engine.nand.settle();
        self.arm_cut();
    }

    /// Without pacing: the command takes effect now.
    #[inline(always)]
    fn execute(&mut self, index: u32, now: Time) {
        let Engine { commands, nand, statistics, .. } = &mut self.engine;
        let command = commands.get_mut(index);
        if command.kind != Kind::Read || !self.roomless.is_empty() {
            return self.execute_other(index, now);
        }
        let cut = nand.begin(command, now);
        let count = &mut statistics[command.die as usize];
        count.reads += 1;
        count.read_bytes += u64::from(command.iu_count) * IU_SIZE_BYTES as u64;
        // Many reads come in a row and each waits for memory: their bytes are fetched while the next ones are
        // submitted, and copied in `finish_reads`.
        nand.prefetch(command);
        if cut {
            return self.cut_while_executing(index, now);
        }
        self.reading.push(index);
    }

    /// The power goes while a command takes effect.
    #[cold]
    #[inline(never)]
    fn cut_while_executing(&mut self, index: u32, now: Time) {
        self.tear(index, now);
        // It is torn once; `power_cut` finds nothing at work without pacing.
        self.power_cut(now);
    }

    /// As [`Device::execute`], of a command that is no read, or finds erases that are not done.
    #[inline(never)]
    fn execute_other(&mut self, index: u32, now: Time) {
        if !self.roomless.is_empty() {
            self.finish_erases_before(index, now);
        }
        let command = self.engine.commands.get_mut(index);
        let cut = self.engine.nand.begin(command, now);
        let count = &mut self.engine.statistics[command.die as usize];
        match command.kind {
            Kind::Read | Kind::ReadOob => {
                count.reads += 1;
                count.read_bytes += u64::from(command.iu_count) * IU_SIZE_BYTES as u64;
            }
            Kind::Program | Kind::Copy => {
                count.program_units += u64::from(command.steps.total);
                count.programmed_bytes +=
                    u64::from(command.page_count) * u64::from(self.profile.geometry.page_size_bytes);
            }
            Kind::Erase => count.erases += 1,
        }
        if cut {
            return self.cut_while_executing(index, now);
        }
        if command.kind == Kind::Read {
            self.reading.push(index);
            return;
        }
        if command.kind == Kind::Erase && self.engine.nand.awaits_room(command.block, now) {
            return self.roomless.push(index);
        }
        self.finish_reads();
        let (command, payload) = self.engine.commands.loaded(index);
        let steps = if command.kind.is_read() { 1 } else { command.steps.total };
        for _ in 0..steps {
            apply_step(&mut self.engine.nand, command, payload, now);
        }
        self.engine.complete(index);
    }

    /// Copies what reads submitted without pacing ask for, in their order: before anything else takes effect, and at the
    /// latest when completions are taken.
    fn finish_reads(&mut self) {
        let mut reading = std::mem::take(&mut self.reading);
        for index in reading.drain(..) {
            let command = self.engine.commands.get_mut(index);
            self.engine.nand.read(command);
            command.steps.done += 1;
            self.engine.complete(index);
        }
        self.reading = reading;
    }

    /// Finishes erases submitted without pacing whose blocks have their room now.
    #[cold]
    fn finish_erases(&mut self, now: Time) {
        for index in std::mem::take(&mut self.roomless) {
            let block = self.engine.commands.get(index).block;
            if self.engine.nand.awaits_room(block, now) {
                self.roomless.push(index);
            } else {
                self.finish_erase(index, now);
            }
        }
    }

    /// A command that was submitted without pacing finds the erases of its blocks done.
    #[cold]
    fn finish_erases_before(&mut self, index: u32, now: Time) {
        let command = self.engine.commands.get(index);
        let source = if command.kind == Kind::Copy {
            self.engine.commands.payload(index).source
        } else {
            command.block
        };
        let blocks = [command.block, source];
        for erase in std::mem::take(&mut self.roomless) {
            if blocks.contains(&self.engine.commands.get(erase).block) {
                self.finish_erase(erase, now);
            } else {
                self.roomless.push(erase);
            }
        }
    }

    fn finish_erase(&mut self, index: u32, now: Time) {
        self.finish_reads();
        let (command, payload) = self.engine.commands.loaded(index);
        apply_step(&mut self.engine.nand, command, payload, now);
        self.engine.complete(index);
    }

    /// Commands that wait or are at work, for reports.
    pub fn is_idle(&self) -> bool {
        self.reading.is_empty() && self.roomless.is_empty() && self.engine.is_idle()
    }

    /// Handles everything that happens until `now`.
    #[inline(always)]
    fn run(&mut self, now: Time) {
        if self.engine.calendar.next_time() <= now
            && let Some(cut) = self.engine.handle_events(now)
        {
            self.power_cut(cut);
        }
    }
}

/// The effect of a command's next step.
fn apply_step(nand: &mut Nand, command: &mut CommandState, payload: &CommandPayload, now: Time) {
    let step = command.steps.done;
    match command.kind {
        Kind::Program => nand.program_unit(command, payload, step, now),
        Kind::Copy => nand.copy_unit(command, payload, step, now),
        Kind::Erase => nand.erase(command),
        Kind::Read | Kind::ReadOob => nand.read(command),
    }
    command.steps.done += 1;
}

impl Device {
    /// A command begins, unless it is to wait for a sync.
    #[inline(never)]
    fn begin_admitted(&mut self, command: Command, now: Time) {
        let Engine { syncs, nand, done, .. } = &mut self.engine;
        let syncs = syncs.as_mut().expect("only devices that are synced ask");
        if let Some(command) = syncs.admit(&nand.geometry, done, command) {
            self.begin(command, now);
        }
    }

    /// A command begins.
    #[inline(always)]
    fn begin(&mut self, command: Command, now: Time) {
        let index = self.accept(command);
        if self.paced {
            self.engine.start(index, self.now.0);
        } else {
            self.execute(index, now);
        }
    }
}

impl Media for Device {
    fn geometry(&self) -> &Geometry {
        &self.engine.nand.geometry
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn is_factory_bad(&self, block: EraseBlockAddress) -> bool {
        self.engine.nand.blocks[self.engine.nand.geometry.erase_block_number(block) as usize].has(FACTORY_BAD)
    }

    fn protected_memory(&self) -> Option<ProtectedMemory> {
        self.protected.clone()
    }

    fn submit(&mut self, command: Command, now: Time) {
        if !self.powered {
            return self.refuse(command);
        }
        // What happens before this command happens first.
        self.now = self.now.max(now);
        self.run(self.now);
        if !self.powered {
            return self.refuse(command);
        }
        // In a call of its own: a command is large, and this way it is not moved where nothing is synced.
        match self.engine.syncs {
            None => self.begin(command, now),
            Some(_) => self.begin_admitted(command, now),
        }
    }

    fn advance(&mut self, now: Time, completions: &mut Vec<Completion>) {
        if self.powered {
            self.now = self.now.max(now);
            self.run(self.now);
            self.finish_reads();
            if !self.roomless.is_empty() {
                self.finish_erases(self.now);
            }
        }
        if self.engine.nand.rooms.gives_back() {
            self.engine.nand.rooms.give_back_piece(&mut self.engine.nand.store);
        }
        if completions.is_empty() {
            std::mem::swap(completions, &mut self.engine.done);
        } else {
            completions.append(&mut self.engine.done);
        }
    }

    fn make_room(&mut self, block: EraseBlockAddress, now: Time) -> bool {
        self.now = self.now.max(now);
        let number = self.engine.nand.geometry.erase_block_number(block);
        !self.powered || self.engine.nand.make_room(number, self.now)
    }

    fn discard(&mut self, block: EraseBlockAddress, now: Time) {
        if self.keeps_discarded {
            return;
        }
        if self.powered {
            self.now = self.now.max(now);
            self.run(self.now);
            self.finish_reads();
        }
        if self.powered {
            self.engine.nand.discard(self.engine.nand.geometry.erase_block_number(block));
        }
    }

    // In place: asked after each round, and most devices have nothing to sync.
    #[inline]
    fn take_intents(&mut self, intents: &mut Vec<Intent>) {
        if self.engine.syncs.is_some()
            && let Some(number) = self.wants_sync()
        {
            intents.push(Intent { token: IntentToken(number), work: IntentWork::Sync });
        }
    }

    fn intent_done(&mut self, done: IntentDone, now: Time) {
        self.synced(done.token.0, done.result.is_ok(), now);
    }

    fn next_event(&self) -> Time {
        let syncs = self.powered && self.engine.wants_sync();
        let at_once = !self.engine.done.is_empty() || !self.reading.is_empty() || syncs;
        if at_once {
            return Time::ZERO;
        }
        let look = if self.roomless.is_empty() { Time::NEVER } else { self.now + ROOM_LOOK };
        self.engine.calendar.next_time().min(look)
    }
}
