//! A shard over models of drives: they carry out what it asks its driver for.

use diecut_drives::{DriveMedium, DriveShape, Zoning};
use diecut_emulator::drive::{Drive as Model, DriveProfile, ZoneProfile};
use diecut_media::{IntentDone, Media};
use diecut_namespace::contract::*;
use diecut_shard::control::*;
use diecut_shard::drive::*;
use diecut_shard::notice::Notice;
use diecut_shard::{
    DOOR_SOURCE_BIT, DeviceConfig, DeviceIndex, Nonces, PoolConfig, Seat, Shard, ShardConfig,
};
use diecut_spec::{Isolation, Size, VssdSpec};
use diecut_testing::Random;
use diecut_testing::versions::Versions;
use diecut_units::{Buffer, BufferMut, IU_SIZE_BYTES, Time};
use std::collections::BTreeSet;
use uuid::Uuid;

pub const SIZE_BYTES: u64 = 66 << 20;
pub const LBAS: u64 = 512;

/// A drive, and what its label would say of it: which device it is.
pub struct Labelled {
    pub device: u8,
    pub model: Model,
}

impl Labelled {
    /// A drive that nobody wrote to.
    pub fn new(device: u8, size_bytes: u64, seed: u64) -> Labelled {
        Labelled { device, model: Model::new(DriveProfile::nvme(size_bytes), seed) }
    }

    /// One that is written in zones, of which so many may be partly written.
    pub fn zoned(device: u8, size_bytes: u64, places: u32, seed: u64) -> Labelled {
        let (zone_bytes, active_max) = (1 << 20, places);
        let zones = ZoneProfile {
            size_bytes: zone_bytes,
            capacity_bytes: zone_bytes - 4096,
            conventional: 0,
            active_max,
            unit_bytes: 512,
        };
        let profile = DriveProfile { zones: Some(zones), ..DriveProfile::nvme(size_bytes) };
        Labelled { device, model: Model::new(profile, seed) }
    }

    /// Its medium, as a start of the server finds it.
    fn medium(&self) -> DriveMedium {
        let Some(zones) = self.model.profile().zones else {
            let shape = DriveShape::plan(self.model.profile().size_bytes, 4, Some(1 << 20)).unwrap();
            return DriveMedium::new(shape, true, true);
        };
        let statistics = self.model.zone_statistics();
        assert_eq!((statistics.out_of_order, statistics.too_many), (0, 0), "the drive refused writes");
        let (zone_size_bytes, active_max) = (zones.size_bytes, zones.active_max);
        let zoning =
            Zoning { zone_size_bytes, active_max, open_max: 0, zones: self.model.zones(), dies: None };
        let shape = zoning.shape(if active_max < 56 { Some(1) } else { Some(4) }).unwrap();
        let pool = PoolConfig::suited_to(&shape.geometry());
        let system_blocks = pool.catalog_blocks_per_die + pool.state_log_blocks_per_die;
        DriveMedium::zoned(shape, true, &zoning, system_blocks)
    }

    pub fn name(&self) -> String {
        format!("drive-{:x}", self.device)
    }
}

pub struct World {
    pub shard: Shard<DriveMedium>,
    pub drives: Vec<Labelled>,
    pub now: Time,
    pub tokens: u64,
    /// How often a copy of the catalog was lost.
    pub lost_copies: u32,
    /// A drive that does not answer.
    hung: Option<usize>,
    /// Commands of hosts, by token.
    unanswered: BTreeSet<u64>,
    answer: Option<ControlResponse>,
    done: Vec<IntentDone>,
    actions: Vec<Action>,
}

impl World {
    /// A shard over drives, of which so many more belong to the pool and are not there.
    pub fn new(drives: Vec<Labelled>, missing: u16, makes_pool: bool) -> World {
        let media = drives.iter().map(|drive| {
            let medium = drive.medium();
            let nonces = Some(Nonces::new([0x5e; 16], [drive.device; 16]));
            let pool = PoolConfig { nonces, ..PoolConfig::suited_to(medium.geometry()) };
            (medium, DeviceConfig { name: drive.name(), pool, volatile_cache: true, makes_pool })
        });
        let config =
            ShardConfig { new_pool_uuid: [0x77; 16], missing_devices: missing, ..ShardConfig::default() };
        let shard = Shard::over(media.collect(), config, Seat::ONLY, Time::ZERO);
        let (done, actions) = (Vec::new(), Vec::new());
        World {
            shard,
            drives,
            now: Time::ZERO,
            tokens: 0,
            unanswered: BTreeSet::new(),
            lost_copies: 0,
            hung: None,
            answer: None,
            done,
            actions,
        }
    }

    /// A drive is brought while the server runs. Its UUID.
    pub fn bring(&mut self, drive: Labelled) -> Uuid {
        let (medium, nonces) = (drive.medium(), Nonces::new([0x5e; 16], [drive.device; 16]));
        let pool = PoolConfig { nonces: Some(nonces), ..PoolConfig::suited_to(medium.geometry()) };
        let config = DeviceConfig { name: drive.name(), pool, volatile_cache: true, makes_pool: true };
        let (index, device) = (DeviceIndex(self.drives.len() as u16), Uuid::from_bytes([drive.device; 16]));
        self.drives.push(drive);
        let came = Event::DeviceCame(Box::new(Newcomer::new(index, medium, config)));
        self.shard.handle(came, self.now, &mut self.actions);
        device
    }

    /// What happens next; says whether anything does.
    fn step(&mut self) -> bool {
        self.shard.work(self.now, &mut self.actions);
        for action in self.actions.drain(..) {
            match action {
                Action::Io(device, intent) => {
                    self.drives[usize::from(device.0)].model.submit(intent, self.now);
                }
                Action::Answer { response, .. } => self.answer = Some(*response),
                Action::Notice(notice) => {
                    self.lost_copies += u32::from(matches!(*notice, Notice::CatalogCopyLost));
                }
                other => panic!("nobody is connected: {other:?}"),
            }
        }
        let answers = |at: &usize| self.hung != Some(*at);
        let of_drives = self.drives.iter().enumerate().filter(|(at, _)| answers(at));
        let of_drives = of_drives.map(|(_, drive)| drive.model.next_event());
        let next = of_drives.fold(self.shard.deadline(), Time::min);
        if next == Time::NEVER {
            return false;
        }
        self.now = self.now.max(next);
        for (device, drive) in (0..).map(DeviceIndex).zip(&mut self.drives) {
            if self.hung == Some(device.0.into()) {
                continue;
            }
            drive.model.advance(self.now, &mut self.done);
            for done in self.done.drain(..) {
                self.shard.handle(Event::IoDone(device, done), self.now, &mut self.actions);
            }
        }
        true
    }

    /// A drive does not answer any more, which the shard hears, or all do again.
    pub fn hang(&mut self, drive: Option<usize>) {
        let event = |at: usize, is_away| Event::DeviceAway(DeviceIndex(at as u16), is_away);
        let before = std::mem::replace(&mut self.hung, drive);
        for event in before.map(|at| event(at, false)).into_iter().chain(drive.map(|at| event(at, true))) {
            self.shard.handle(event, self.now, &mut self.actions);
        }
    }

    /// Goes on until it is open, or cannot be, or so many events happened. Says whether it is.
    pub fn open(&mut self, events: &mut u64) -> bool {
        while !self.shard.is_ready() && self.shard.failure().is_none() && *events > 0 {
            *events -= 1;
            let goes_on = self.step();
            let is_over = self.shard.is_ready() || self.shard.failure().is_some();
            assert!(goes_on || is_over, "opening goes on");
        }
        self.shard.is_ready()
    }

    /// Asks for something; the answer, unless so many events happened before.
    pub fn ask(&mut self, request: ControlRequest, events: &mut u64) -> Option<ControlResponse> {
        self.tokens += 1;
        let request = Box::new(request);
        let event = Event::Control { token: ControlToken(self.tokens), request };
        self.shard.handle(event, self.now, &mut self.actions);
        while self.answer.is_none() && *events > 0 {
            *events -= 1;
            let goes_on = self.step();
            assert!(goes_on || self.answer.is_some(), "a request is answered");
        }
        self.answer.take()
    }

    /// Asks for something; [`World::take_answer`] has the answer when it came, while others go on.
    pub fn begin(&mut self, request: ControlRequest) {
        self.tokens += 1;
        let request = Box::new(ControlRequest::Within { patience_ms: 0, request: Box::new(request) });
        let event = Event::Control { token: ControlToken(self.tokens), request };
        self.shard.handle(event, self.now, &mut self.actions);
    }

    /// See [`World::begin`].
    pub fn take_answer(&mut self) -> Option<ControlResponse> {
        self.answer.take()
    }

    /// Lets a host's command be carried out, which works; its answer, unless so many events happened before.
    pub fn command(
        &mut self,
        namespace: u32,
        operation: NamespaceOperation,
        events: &mut u64,
    ) -> Option<NamespaceCompletion> {
        let completion = self.try_command(namespace, operation, events)?;
        assert_eq!(completion.result, Ok(()));
        Some(completion)
    }

    /// As [`World::command`], whatever its answer is.
    pub fn try_command(
        &mut self,
        namespace: u32,
        operation: NamespaceOperation,
        events: &mut u64,
    ) -> Option<NamespaceCompletion> {
        self.tokens += 1;
        let (namespace, arrived) = (NamespaceId(namespace), self.now);
        let (token, source) = (CommandToken(self.tokens), SourceId(DOOR_SOURCE_BIT | 1));
        self.shard.submit(NamespaceCommand { token, namespace, source, arrived, operation });
        self.unanswered.insert(self.tokens);
        while *events > 0 {
            *events -= 1;
            let goes_on = self.step();
            if let Some(own) = self.take_completion(token) {
                return Some(own);
            }
            assert!(goes_on, "a command is answered");
        }
        None
    }

    /// Takes answers; the one to this command, if it is among them. Others are of commands that nobody waited for any more.
    fn take_completion(&mut self, token: CommandToken) -> Option<NamespaceCompletion> {
        let mut completions = Vec::new();
        self.shard.take_completions(&mut completions);
        completions.iter().for_each(|completion| _ = self.unanswered.remove(&completion.token.0));
        completions.into_iter().find(|completion| completion.token == token)
    }

    /// Waits for commands whose answers did not come in their time: what comes next could overtake them. `false` if so many events happened before.
    fn settle(&mut self, events: &mut u64) -> bool {
        while !self.unanswered.is_empty() && *events > 0 {
            *events -= 1;
            let goes_on = self.step();
            let _of_nobody = self.take_completion(CommandToken(u64::MAX));
            assert!(goes_on || self.unanswered.is_empty(), "a command is answered");
        }
        self.unanswered.is_empty()
    }

    /// The power goes, or the process dies.
    pub fn end(mut self, cut: bool) -> Vec<Labelled> {
        for drive in &mut self.drives {
            if cut {
                drive.model.cut();
            } else {
                drive.model.process_death();
            }
        }
        self.drives
    }
}

/// Blocks of a volume, as a host with a cache in front of it knows them.
pub struct Known {
    /// Of the namespace with this number.
    pub namespace: u32,
    pub versions: Versions,
    pub version: u64,
}

impl Known {
    pub fn new(namespace: u32) -> Known {
        Known { namespace, versions: Versions::new(LBAS), version: 0 }
    }
}

/// Work of a host on a volume until so many events happened: writes and deallocations that count when a flush after them was answered.
pub fn work(world: &mut World, known: &mut Known, random: &mut Random, events: &mut u64) {
    let mut cached = Vec::new();
    if !world.settle(events) {
        return;
    }
    loop {
        let first_lba = random.below(LBAS);
        let lba_count = 1 + random.below((LBAS - first_lba).min(32)) as u32;
        let range = LbaRange { first_lba, lba_count };
        let touched = first_lba..first_lba + u64::from(lba_count);
        match random.below(10) {
            0 | 1 => {
                if world.command(known.namespace, NamespaceOperation::Flush, events).is_none() {
                    return;
                }
                for (blocks, version) in cached.drain(..) {
                    known.versions.make_durable(blocks, version);
                }
            }
            2 => {
                let destination = BufferMut::copy_from(&vec![0xee; lba_count as usize * IU_SIZE_BYTES]);
                let Some(done) =
                    world.command(known.namespace, NamespaceOperation::Read { range, destination }, events)
                else {
                    return;
                };
                let data = done.data.expect("a read gives data");
                for (found, lba) in data.chunks(IU_SIZE_BYTES).zip(touched) {
                    assert_eq!(version_in(found), known.versions.newest(lba), "the newest one");
                }
            }
            _ => {
                known.version += 1;
                let version = known.version;
                known.versions.write(touched.clone(), version);
                let bytes = version.to_le_bytes().repeat(lba_count as usize * IU_SIZE_BYTES / 8);
                let write = NamespaceOperation::Write {
                    range,
                    data: Buffer::copy_from(&bytes),
                    force_unit_access: false,
                    placement: PlacementTarget::default(),
                };
                if world.command(known.namespace, write, events).is_none() {
                    return;
                }
                cached.push((touched, version));
            }
        }
    }
}

/// All bytes of a block are of one version.
pub fn version_in(block: &[u8]) -> u64 {
    let version = u64::from_le_bytes(block[..8].try_into().unwrap());
    assert!(block.chunks(8).all(|word| word == &block[..8]), "a block of one version");
    version
}

/// Compares all of a volume with what its host knows: what a restart found stays.
pub fn find(world: &mut World, known: &mut Known, place: &str) {
    let mut data = Vec::new();
    for first_lba in (0..LBAS).step_by(32) {
        let range = LbaRange { first_lba, lba_count: 32 };
        let destination = BufferMut::copy_from(&vec![0xee; 32 * IU_SIZE_BYTES]);
        let read = NamespaceOperation::Read { range, destination };
        let done = world.command(known.namespace, read, &mut u64::MAX.clone()).expect("nothing ends it");
        data.extend_from_slice(&done.data.expect("a read gives data"));
    }
    for (lba, found) in (0..).zip(data.chunks(IU_SIZE_BYTES)) {
        known.versions.find(lba, version_in(found), place);
    }
}

/// What makes a volume of a tenant on a vSSD of its own, shown to any host. The vSSD has a part on each device.
pub fn requests(name: &str, device: Vec<String>) -> [ControlRequest; 4] {
    let of = |what: &str| format!("{name}-{what}");
    let throughput_level = if device.len() > 1 { 1 } else { 2 };
    let vssd =
        VssdSpec { throughput_level, device, ..VssdSpec::new(&of("vssd"), name, Isolation::Channel, 280) };
    let volume = VolumeSpec {
        name: of("data"),
        vssd: of("vssd"),
        size: Size(LBAS * IU_SIZE_BYTES as u64),
        uuid: None,
        nguid: None,
        zones: Default::default(),
        placement: Vec::new(),
    };
    let subsystem = SubsystemSpec {
        nqn: format!("nqn.2026-11.org.diecut:{name}"),
        tenant: name.to_owned(),
        serial: None,
        model: None,
        allow_any_host: true,
        allowed_hosts: Vec::new(),
        paths: Vec::new(),
        namespaces: vec![NamespaceSpec::new(1, &of("data"))],
    };
    [
        ControlRequest::CreateTenant(diecut_spec::TenantSpec::new(name)),
        ControlRequest::CreateVssd(vssd),
        ControlRequest::CreateVolume(volume),
        ControlRequest::CreateSubsystem(subsystem),
    ]
}
