//! The drives of a server, as models: what each is like, its power and what goes wrong with it, and which of them the server that runs was given,
//! in which order.
//!
//! All have the power of one machine: at a command that was agreed on, of whichever drive, it goes, nothing is carried out or answered any more, and
//! each drive loses what it likes of what no flush covered. A drive may also go alone, not answer for a while, or be missing at a start.

use crate::plan::{DriveFault, DriveHarm, DriveLie, DrivePlan, DriveZones};
use diecut_devices::{
    Device, DieCut, DriveMedium, DriveShape, Label, LabelDevice, Membership, PoolOpening, ZoneCut, Zoning,
    open_pool,
};
use diecut_emulator::drive::{Drive, DriveProfile, Stretch, ZoneProfile};
use diecut_media::{Intent, IntentDone, IntentToken, IntentWork, ZoneDies};
use diecut_shard::{DeviceConfig, DeviceIndex, Nonces, PoolConfig};
use diecut_units::{IU_SIZE_BYTES, Span, Time, checksum, checksum_append};
use std::collections::BTreeMap;

/// What the labels of the drives would say.
const SECRET: [u8; 16] = [0x5e; 16];
const FIRST_DEVICE: u8 = 0xd1;
/// Zones that labels would lie in.
const LABEL_ZONES: u32 = 2;
/// What a cut leaves whole.
const SECTOR_BYTES: u64 = 512;
/// How often a command meets a lie of its kind.
const LIE_CHANCE: f64 = 0.002;

/// Name of a drive.
pub fn drive_name(drive: u16) -> String {
    format!("drive-{drive}")
}

/// One of them.
struct OwnDrive {
    number: u16,
    plan: DrivePlan,
    model: Drive,
    /// How often it was made a device of the pool: each time it is another one.
    times_made: u8,
    /// What its label says of the pool, if it has one.
    label: Option<Vec<LabelDevice>>,
    /// IUs that it was given to write.
    written_ius: u64,
    /// It does not answer until then, and the server was told so.
    away_until: Option<Time>,
    /// It went without power.
    lost_power: bool,
    /// Which shard asked, and how it calls its command, by the token that the drive knows.
    asked: BTreeMap<u64, (u16, IntentToken)>,
    next_token: u64,
    /// Answers that their shards have not taken.
    done: Vec<(u16, IntentDone)>,
}

impl OwnDrive {
    fn new(number: u16, plan: &DrivePlan, seed: u64) -> OwnDrive {
        let profile = DriveProfile {
            depth: plan.depth,
            flush: Span(plan.flush_ns),
            is_durable_at_once: !plan.volatile_cache,
            zones: plan.zones.map(|zones| zone_profile(plan, zones)),
            ..DriveProfile::nvme(shape(plan).needed_bytes())
        };
        let model = Drive::new(profile, seed ^ u64::from(number) << 40);
        let plan = plan.clone();
        OwnDrive {
            number,
            plan,
            model,
            times_made: 0,
            label: None,
            written_ius: 0,
            away_until: None,
            lost_power: false,
            asked: BTreeMap::new(),
            next_token: 0,
            done: Vec::new(),
        }
    }

    /// The UUID that its label has.
    fn device(&self) -> [u8; 16] {
        let mut device = [FIRST_DEVICE + self.number as u8; 16];
        device[15] = device[15].wrapping_add(self.times_made.saturating_sub(1) << 4);
        device
    }

    fn begin(&mut self, shard: u16, intent: Intent, now: Time) {
        if let IntentWork::Write { parts, .. } = &intent.work {
            self.written_ius += parts.iter().map(|part| part.len() as u64).sum::<u64>() / 4096;
        }
        self.asked.insert(self.next_token, (shard, intent.token));
        self.model.submit(Intent { token: IntentToken(self.next_token), work: intent.work }, now);
        self.next_token += 1;
    }

    fn take_done(&mut self, shard: u16, now: Time) -> impl Iterator<Item = IntentDone> + '_ {
        let mut done = Vec::new();
        self.model.advance(now, &mut done);
        for one in done {
            let (shard, token) = self.asked.remove(&one.token.0).expect("a drive answers what it was asked");
            self.done.push((shard, IntentDone { token, ..one }));
        }
        self.done.extract_if(.., move |(of, _)| *of == shard).map(|(_, done)| done)
    }

    /// When something is answered next, or it comes back.
    fn next_event(&self) -> Time {
        match self.done.is_empty() {
            true => self.model.next_event().min(self.away_until.unwrap_or(Time::NEVER)),
            false => Time::ZERO,
        }
    }

    /// What was asked for and not answered is forgotten.
    fn forget(&mut self) {
        self.asked.clear();
        self.done.clear();
    }

    fn process_death(&mut self) {
        self.forget();
        self.model.process_death();
    }

    /// It as a start of the server finds it, and what its label says.
    fn medium(&self) -> (Device, DeviceConfig) {
        let plan = &self.plan;
        let shape = shape(plan);
        let zones = self.model.zone_statistics();
        assert_eq!((zones.out_of_order, zones.too_many), (0, 0), "a drive refused writes to its zones");
        let nonces = Nonces::new(SECRET, self.device());
        let suited = PoolConfig::suited_to(&shape.geometry());
        let suited = if plan.dies.is_some() { suited.for_dies() } else { suited };
        let pool = PoolConfig { nonces: Some(nonces), ..suited };
        let medium = match plan.zones {
            None => DriveMedium::new(shape, plan.volatile_cache, plan.discards),
            Some(DriveZones { size_kib, active_max }) => {
                let zone_size_bytes = u64::from(size_kib) << 10;
                let zoning = Zoning {
                    zone_size_bytes,
                    active_max,
                    open_max: 0,
                    zones: self.model.zones(),
                    dies: zone_dies(&shape),
                };
                assert!(zoning.fits(&shape), "a drive is cut as its zones say");
                let system_blocks = pool.catalog_blocks_per_die + pool.state_log_blocks_per_die;
                DriveMedium::zoned(shape, plan.volatile_cache, &zoning, system_blocks)
            }
        };
        let config = DeviceConfig {
            name: drive_name(self.number),
            pool,
            volatile_cache: plan.volatile_cache,
            makes_pool: false,
        };
        (Device::Drive(medium), config)
    }

    fn power_cut(&mut self) {
        self.forget();
        self.model.cut();
    }

    /// It is there for the next server, or lies about without power. A flush that was to fail does not.
    fn begin_life(&mut self, is_there: bool) {
        if self.lost_power || !is_there {
            self.model.cut();
        }
        let faults = self.model.faults_mut();
        (faults.flush_failures, faults.is_gone) = (0, false);
        (self.away_until, self.lost_power) = (None, false);
    }

    fn harm(&mut self, fault: DriveFault, now: Time) {
        let block_bytes = u64::from(self.plan.block_kib) << 10;
        let shape = shape(&self.plan);
        let begin = |lane: u16, block: u32| shape.offset(lane, block);
        let iu_of = |lane, block, iu: u32| Stretch {
            offset: begin(lane, block) + u64::from(iu) * IU_SIZE_BYTES as u64,
            len_bytes: IU_SIZE_BYTES as u64,
        };
        let faults = self.model.faults_mut();
        match fault {
            DriveFault::Stalls { span_ns } => faults.stalled_until = now + Span(span_ns),
            DriveFault::FlushFails => faults.flush_failures = 1,
            DriveFault::Unwritable { lane, block } => {
                faults.unwritable.push(Stretch { offset: begin(lane, block), len_bytes: block_bytes });
            }
            DriveFault::Unreadable { lane, block, iu } => faults.unreadable.push(iu_of(lane, block, iu)),
            DriveFault::Rots { lane, block, iu } => faults.rotten.push(iu_of(lane, block, iu)),
            DriveFault::Goes { loses_power } => {
                (faults.is_gone, self.lost_power) = (true, loses_power);
            }
            DriveFault::Away { span_ns } => {
                faults.stalled_until = now + Span(span_ns);
                self.away_until = Some(faults.stalled_until);
            }
            DriveFault::Lies(lie) => match lie {
                DriveLie::AboutFlushes => faults.lies.about_flushes = true,
                DriveLie::LosesWrites => faults.lies.loses_writes = LIE_CHANCE,
                DriveLie::MisdirectsWrites => faults.lies.misdirects_writes = LIE_CHANCE,
                DriveLie::MisdirectsReads => faults.lies.misdirects_reads = LIE_CHANCE,
                DriveLie::StaleReads => faults.lies.stale_reads = LIE_CHANCE,
            },
        }
    }
}

fn shape(plan: &DrivePlan) -> DriveShape {
    DriveShape {
        lanes: plan.lanes,
        block_size_bytes: u64::from(plan.block_kib) << 10,
        blocks_per_lane: plan.blocks_per_lane,
        zones: plan.zones.map(|zones| ZoneCut {
            zone_size_bytes: u64::from(zones.size_kib) << 10,
            first_zone: if plan.dies.is_some() { 1 } else { LABEL_ZONES },
        }),
        dies: plan.dies.map(|dies| DieCut {
            dies_per_lane: dies.per_lane,
            die_zones: plan.blocks_per_lane / u32::from(dies.per_lane) + 1,
            program_unit_pages: dies.unit_ius,
        }),
        lane_stride_bytes: None,
    }
}

/// What the drive would say of its dies.
fn zone_dies(shape: &DriveShape) -> Option<ZoneDies> {
    let DieCut { dies_per_lane, die_zones, program_unit_pages } = shape.dies?;
    Some(ZoneDies {
        channels: shape.lanes,
        dies_per_channel: dies_per_lane,
        die_zones,
        program_unit_pages,
        cached_pages: 0,
        times: None,
    })
}

fn zone_profile(plan: &DrivePlan, zones: DriveZones) -> ZoneProfile {
    ZoneProfile {
        size_bytes: u64::from(zones.size_kib) << 10,
        capacity_bytes: u64::from(plan.block_kib) << 10,
        conventional: 0,
        active_max: zones.active_max,
        unit_bytes: plan.dies.map_or(SECTOR_BYTES, |dies| u64::from(dies.unit_ius) * IU_SIZE_BYTES as u64),
    }
}

fn listed(drive: &OwnDrive, membership: Membership) -> LabelDevice {
    LabelDevice { device: drive.device(), membership, since: 1 }
}

/// The label of a drive that has one.
fn label_of(drive: &OwnDrive) -> Label {
    Label {
        number: 1,
        server: [9; 16],
        device: drive.device(),
        epoch: 1,
        view: [1; 8],
        secret: SECRET,
        shape: shape(&drive.plan),
        system: (0, 1),
        devices: drive.label.clone().expect("it has one"),
    }
}

/// See the module.
pub struct Drives {
    /// By their numbers.
    own: Vec<OwnDrive>,
    /// Those that the server has, by the index that it knows them by. One that left has none any more, and nobody else gets it.
    order: Vec<Option<u16>>,
    is_powered: bool,
    cut_at: Option<u64>,
    /// Commands that they were given.
    operations: u64,
    /// They have no room until then.
    full_until: Time,
}

impl Drives {
    /// Drives with power. The first ones, so many, are those of the pool.
    pub fn new<'a>(plans: impl Iterator<Item = &'a DrivePlan>, of_pool: usize, seed: u64) -> Drives {
        let mut own: Vec<OwnDrive> =
            (0..).zip(plans).map(|(number, plan)| OwnDrive::new(number, plan, seed)).collect();
        own[..of_pool].iter_mut().for_each(|drive| drive.times_made = 1);
        let all: Vec<LabelDevice> =
            own[..of_pool].iter().map(|drive| listed(drive, Membership::There)).collect();
        own[..of_pool].iter_mut().for_each(|drive| drive.label = Some(all.clone()));
        let order = own[..of_pool].iter().map(|drive| Some(drive.number)).collect();
        Drives { own, order, is_powered: true, cut_at: None, operations: 0, full_until: Time::ZERO }
    }

    fn at(&mut self, device: DeviceIndex) -> &mut OwnDrive {
        let number = self.order[usize::from(device.0)].expect("nothing is asked of a drive that left");
        &mut self.own[usize::from(number)]
    }

    /// Those that the server has, in their order, with their indexes.
    fn there(&self) -> impl Iterator<Item = (DeviceIndex, &OwnDrive)> {
        let numbered = (0..).map(DeviceIndex).zip(&self.order);
        numbered.filter_map(|(index, number)| Some((index, &self.own[usize::from((*number)?)])))
    }

    fn indexes(&self) -> Vec<DeviceIndex> {
        self.there().map(|(index, _)| index).collect()
    }

    /// What the labels of these drives say of the pool, if they make one.
    fn opening(&self, given: &[u16]) -> Option<(Vec<u16>, PoolOpening)> {
        let labelled = given.iter().copied().filter(|number| self.own[usize::from(*number)].label.is_some());
        let labelled: Vec<u16> = labelled.collect();
        let labels: Vec<Label> =
            labelled.iter().map(|number| label_of(&self.own[usize::from(*number)])).collect();
        open_pool(&labels, false).ok().map(|opening| (labelled, opening))
    }

    /// Drives of the pool that the server has, by number.
    pub fn members(&self) -> Vec<u16> {
        self.there().filter(|(_, drive)| drive.label.is_some()).map(|(_, drive)| drive.number).collect()
    }

    /// What the server knows one of them by.
    pub fn index_of(&self, number: u16) -> DeviceIndex {
        let mut there = self.there().filter(|(_, drive)| drive.number == number);
        there.next().expect("the server has it").0
    }

    /// What the label of one of the pool says of all of them.
    pub fn list(&self) -> Vec<LabelDevice> {
        self.there().find_map(|(_, drive)| drive.label.clone()).expect("a server has a drive of the pool")
    }

    /// How labels name a drive.
    pub fn listed(&self, number: u16, membership: Membership) -> LabelDevice {
        listed(&self.own[usize::from(number)], membership)
    }

    /// Writes a label.
    pub fn write_label(&mut self, number: u16, list: Vec<LabelDevice>) {
        self.own[usize::from(number)].label = Some(list);
    }

    /// A drive is brought to the server that runs, as a device that nobody knows; what lies on it of before is of another one.
    pub fn bring(&mut self, number: u16) -> (DeviceIndex, Device, DeviceConfig) {
        let index = DeviceIndex(self.order.len() as u16);
        self.order.push(Some(number));
        let drive = &mut self.own[usize::from(number)];
        assert!(drive.label.is_none(), "one that is none of the pool is brought");
        drive.times_made += 1;
        drive.begin_life(true);
        let (device, config) = drive.medium();
        (index, device, DeviceConfig { makes_pool: true, ..config })
    }

    /// The server has a drive no more.
    pub fn take_away(&mut self, index: DeviceIndex) {
        let drive = self.at(index);
        drive.process_death();
        drive.label = None;
        self.order[usize::from(index.0)] = None;
    }

    /// A shard's device asks for something.
    pub fn begin(&mut self, shard: u16, device: DeviceIndex, intent: Intent, now: Time) {
        if !self.is_powered {
            return;
        }
        self.at(device).begin(shard, intent, now);
        self.operations += 1;
        if self.cut_at.is_some_and(|nth| self.operations > nth) {
            self.is_powered = false;
        }
    }

    /// What is answered by now to a shard.
    pub fn take_done(&mut self, shard: u16, now: Time) -> Vec<(DeviceIndex, IntentDone)> {
        let mut all = Vec::new();
        if !self.is_powered {
            return all;
        }
        let is_full = now < self.full_until;
        for index in self.indexes() {
            let drive = self.at(index);
            drive.model.faults_mut().is_full = is_full;
            all.extend(drive.take_done(shard, now).map(|one| (index, one)));
        }
        all
    }

    /// Drives that were away and answer again by now: the server is told of each once.
    pub fn take_back(&mut self, now: Time) -> Vec<DeviceIndex> {
        let is_back = |drive: &OwnDrive| drive.away_until.is_some_and(|until| until <= now);
        let back: Vec<_> = self.there().filter(|(_, drive)| is_back(drive)).map(|(index, _)| index).collect();
        back.iter().for_each(|index| self.at(*index).away_until = None);
        back
    }

    /// When something is answered next, or a drive comes back.
    pub fn next_event(&self) -> Time {
        match self.is_powered {
            true => self.there().map(|(_, drive)| drive.next_event()).fold(Time::NEVER, Time::min),
            false => Time::NEVER,
        }
    }

    /// Something goes wrong with a drive. Where it is, if the server is to be told that it does not answer.
    pub fn harm(&mut self, harm: DriveHarm, now: Time) -> Option<DeviceIndex> {
        let (index, _) = self.there().find(|(_, drive)| drive.number == harm.drive)?;
        self.at(index).harm(harm.fault, now);
        matches!(harm.fault, DriveFault::Away { .. }).then_some(index)
    }

    /// Whether there is power.
    pub fn is_powered(&self) -> bool {
        self.is_powered
    }
    /// Whether nothing is under way, and none is away.
    pub fn is_idle(&self) -> bool {
        self.next_event() == Time::NEVER
    }
    /// Commands that they were given.
    pub fn operations(&self) -> u64 {
        self.operations
    }
    /// IUs that they were given to write.
    pub fn written_ius(&self) -> u64 {
        self.own.iter().map(|drive| drive.written_ius).sum()
    }
    /// IUs of all of them together.
    pub fn raw_ius(&self) -> u64 {
        let of_one = |drive: &OwnDrive| shape(&drive.plan).geometry().raw_capacity_bytes() / 4096;
        self.own.iter().map(of_one).sum()
    }
    /// They have no room until then.
    pub fn fill_until(&mut self, until: Time) {
        self.full_until = until;
    }
    /// The power goes while their n-th command is under way.
    pub fn cut_power_at(&mut self, operation: u64) {
        self.cut_at = Some(operation);
    }
    /// The power goes now, or went at the operation that was agreed on.
    pub fn power_cut(&mut self) {
        self.is_powered = false;
        self.own.iter_mut().for_each(OwnDrive::power_cut);
    }
    /// Who asked is gone, and the drives go on, if they have power.
    pub fn process_death(&mut self) {
        match self.is_powered {
            true => self.own.iter_mut().for_each(OwnDrive::process_death),
            false => self.power_cut(),
        }
    }

    /// There is power (again), and the next server is given these drives: the media of those that are of the pool by their labels, in this order, and how many of
    /// it are missing. What began to come and did not, or left, is none of it, and is forgotten.
    pub fn begin_life(&mut self, given: &[u16]) -> (Vec<(Device, DeviceConfig)>, u16) {
        (self.is_powered, self.cut_at) = (true, None);
        let (labelled, opening) = self.opening(given).expect("a server is given drives that make a pool");
        let has_voice = |at: &usize| {
            let device = self.own[usize::from(labelled[*at])].device();
            opening.membership(device).is_some_and(Membership::has_voice)
        };
        let order: Vec<u16> =
            opening.current.iter().filter(|at| has_voice(at)).map(|at| labelled[*at]).collect();
        for drive in &mut self.own {
            let is_there = order.contains(&drive.number);
            drive.begin_life(is_there);
            if is_there {
                drive.label = Some(opening.devices.clone());
            } else if given.contains(&drive.number) {
                drive.label = None;
            }
        }
        let missing = opening.voices() - order.len();
        self.order = order.into_iter().map(Some).collect();
        (self.there().map(|(_, drive)| drive.medium()).collect(), missing as u16)
    }

    /// Over all that lies there and what was done.
    pub fn hash(&self) -> u32 {
        const PART_BYTES: u64 = 1 << 20;
        self.own.iter().fold(0, |hash, drive| {
            let did = format!("{:?}", drive.model.statistics());
            let parts = (0..drive.model.profile().size_bytes).step_by(PART_BYTES as usize);
            parts.fold(checksum_append(hash, &checksum(did.as_bytes()).to_le_bytes()), |hash, at| {
                checksum_append(hash, &drive.model.durable(at, PART_BYTES as usize))
            })
        })
    }
}
