//! Tenants beside each other on one emulated device, through the shard that ships, in virtual time.
//!
//! Workloads are state machines that say what comes next and hear what was answered; the stage carries commands, as a driver
//! does, and lets time pass to the next deadline.

use diecut_devices::{Backing, Device, Options, Profile};
use diecut_media::Media;
use diecut_namespace::contract::*;
use diecut_shard::control::*;
use diecut_shard::drive::{Action, Drive, Event};
use diecut_shard::{
    AdmissionConfig, CostModel, DOOR_SOURCE_BIT, DeviceShaper, PoolConfig, Shard, ShardConfig,
};
use diecut_spec::{Isolation, PlacementIsolation, Serves, Sharing, Size};
use diecut_units::{BufferPool, IU_SIZE_BYTES, Time};
use std::collections::BTreeMap;

/// Protected memory of each store. It holds tags; this is room for as many chunks (15 of 128 IUs, a slot's header and a
/// chunk's head each) as the server's 8 MiB have for content.
const STAGING_BYTES: usize = 15 * (64 + 4096 + 128 * 8);
const LOGICAL_BLOCK_BYTES: u64 = IU_SIZE_BYTES as u64;

/// The device and what is common to all tenants.
#[derive(Clone, Debug)]
pub(super) struct Ground {
    pub profile: Profile,
    pub soft_planes_per_die: u16,
    /// What commands cost the shard's core; `None`: nothing.
    pub cost_model: Option<CostModel>,
    /// What QoS sets, and what is in none, have together; `None`: no such bound.
    pub device_shaper: Option<DeviceShaper>,
    pub seed: u64,
}

impl Ground {
    /// `cnex-1tb` with fewer channels and shorter, fewer erase blocks, behind a PCIe Gen3 x8 host interface.
    pub fn of(channels: u16, blocks_per_plane: u32, pages_per_block: u32, seed: u64) -> Ground {
        Ground::of_profile("cnex-1tb", channels, blocks_per_plane, pages_per_block, seed)
    }

    /// As [`Ground::of`], of another built-in profile.
    pub fn of_profile(
        name: &str,
        channels: u16,
        blocks_per_plane: u32,
        pages_per_block: u32,
        seed: u64,
    ) -> Ground {
        let mut profile = Profile::named(name).expect("built in");
        profile.geometry.channels = channels;
        profile.geometry.blocks_per_plane = blocks_per_plane;
        profile.geometry.pages_per_block = pages_per_block;
        profile.protected_memory_bytes = 64 << 20;
        profile.host.link_mb_per_s = 6_400.0;
        profile.host.latency_us = 5.0;
        Ground { profile, soft_planes_per_die: 4, cost_model: None, device_shaper: None, seed }
    }
}

/// One vSSD.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub isolation: Isolation,
    /// In channels' worth.
    pub level: u32,
    pub weight: u32,
    /// Bytes per second beyond which it waits, even beside idle dies; 0: none.
    pub strict_bytes_per_s: u64,
    pub over_provisioning_permille: u32,
    pub serves: Serves,
    /// Reclaim unit handles, which volumes take by turns; 0: none.
    pub placement_handles: u16,
    pub placement_isolation: PlacementIsolation,
}

impl Part {
    pub fn new(isolation: Isolation, level: u32) -> Part {
        Part {
            isolation,
            level,
            weight: 100,
            strict_bytes_per_s: 0,
            over_provisioning_permille: 280,
            serves: Serves::Volumes,
            placement_handles: 0,
            placement_isolation: PlacementIsolation::default(),
        }
    }
}

/// What a workload asks of its volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Read,
    Write,
    Deallocate,
    /// Of the zone that begins there.
    ResetZone,
}

/// One command of a workload.
#[derive(Clone, Copy, Debug)]
pub(super) struct Io {
    pub kind: Kind,
    pub first_lba: u64,
    pub lba_count: u32,
    /// Comes back with the answer.
    pub tag: u64,
}

/// Gives commands and hears answers.
pub(super) trait Workload {
    /// The next command, if there is one now.
    fn next(&mut self, now: Time) -> Option<Io>;
    /// When to ask again although nothing was answered.
    fn wakes_at(&self) -> Time {
        Time::NEVER
    }
    /// A command was answered.
    fn answered(&mut self, tag: u64, now: Time);
}

/// What a vSSD wrote.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Written {
    pub host_bytes: u64,
    /// By host and cleaner.
    pub programmed_bytes: u64,
}

impl Written {
    /// Write amplification of the cleaner since then; 1 if nothing was written.
    pub fn waf_since(self, before: Written) -> f64 {
        let host = self.host_bytes - before.host_bytes;
        if host == 0 { 1.0 } else { (self.programmed_bytes - before.programmed_bytes) as f64 / host as f64 }
    }
}

/// See the module.
pub(super) struct Stage {
    shard: Shard<Device>,
    pub now: Time,
    pool: BufferPool,
    completions: Vec<NamespaceCompletion>,
    actions: Vec<Action>,
    /// By token: the volume's number and the workload's tag.
    under_way: BTreeMap<u64, (usize, u64)>,
    next_token: u64,
    /// With the reclaim unit handle that writes go to.
    volumes: Vec<(NamespaceId, PlacementTarget)>,
}

impl Stage {
    /// The device with these vSSDs.
    pub fn new(ground: &Ground, parts: &[Part]) -> Result<Stage, String> {
        let options = Options { backing: Backing::Tags, seed: ground.seed, ..Options::default() };
        let device = Device::create(&ground.profile, options).map_err(|error| error.to_string())?;
        let geometry = *device.geometry();
        let pool = PoolConfig {
            soft_planes_per_die: ground.soft_planes_per_die,
            levels: PoolConfig::levels_of(&geometry, ground.soft_planes_per_die),
            // Dies of one tenant on all channels: what tells die isolation from channel isolation is the shared bus.
            die_placement: diecut_shard::DiePlacement::Spread,
            ..PoolConfig::suited_to(&geometry)
        };
        let config = ShardConfig {
            pool,
            cost_model: ground.cost_model,
            admission: AdmissionConfig { device_shaper: ground.device_shaper, ..AdmissionConfig::default() },
            staging_bytes_per_vssd: STAGING_BYTES,
            ..ShardConfig::default()
        };
        let mut stage = Stage {
            shard: Shard::new(device, config, Time::ZERO),
            now: Time::ZERO,
            pool: BufferPool::new(),
            completions: Vec::new(),
            actions: Vec::new(),
            under_way: BTreeMap::new(),
            next_token: 0,
            volumes: Vec::new(),
        };
        for (index, part) in parts.iter().enumerate() {
            let name = part_name(index);
            stage.ask(ControlRequest::CreateTenant(TenantSpec::new(&name)))?;
            let strict = part.strict_bytes_per_s > 0;
            stage.ask(ControlRequest::CreateVssd(VssdSpec {
                throughput_level: part.level,
                weight: part.weight,
                rate_limit: Size(part.strict_bytes_per_s),
                sharing: if strict { Sharing::Strict } else { Sharing::WorkConserving },
                serves: part.serves,
                placement_handles: part.placement_handles,
                placement_isolation: part.placement_isolation,
                ..VssdSpec::new(&name, &name, part.isolation, part.over_provisioning_permille)
            }))?;
        }
        Ok(stage)
    }

    /// Logical blocks that each vSSD can export.
    pub fn exported_lbas(&self) -> Vec<u64> {
        let mut vssds = self.shard.status().vssds;
        vssds.sort_by(|one, other| one.spec.name.cmp(&other.spec.name));
        vssds.iter().map(|vssd| vssd.space.exported_bytes / LOGICAL_BLOCK_BYTES).collect()
    }

    /// A volume on a vSSD; volumes are numbered in this order.
    pub fn create_volume(&mut self, part: usize, lbas: u64) -> Result<(), String> {
        let name = format!("volume-{}", self.volumes.len());
        self.ask(ControlRequest::CreateVolume(VolumeSpec {
            name: name.clone(),
            vssd: part_name(part),
            size: Size(lbas * LOGICAL_BLOCK_BYTES),
            uuid: None,
            nguid: None,
            zones: Default::default(),
            placement: Vec::new(),
        }))?;
        let state = self.shard.state();
        let (record, handles) = (&state.volumes[&name], state.vssds[&part_name(part)].placement_handles);
        // As the target does for namespaces that were given a handle, and hosts that name none.
        let handle = PlacementTarget::handle(PlacementHandle(record.index.checked_rem(handles).unwrap_or(0)));
        self.volumes.push((NamespaceId(record.namespace), handle));
        Ok(())
    }

    /// As many zones as there is room for, each an erase block on every unit of the vSSD: their number, and the logical blocks that one
    /// holds.
    pub fn create_zones(&mut self, part: usize) -> Result<(u64, u64), String> {
        let space = self.space(part);
        let zone_lbas = self.segment_lbas(part);
        let mut refused = "a vSSD with less than a zone".to_owned();
        for zones in (1..=space.erase_blocks / u64::from(space.units)).rev() {
            match self.create_volume(part, zones * zone_lbas) {
                Ok(()) => return Ok((zones, zone_lbas)),
                Err(error) => refused = error,
            }
        }
        Err(refused)
    }

    fn space(&self, part: usize) -> VssdSpace {
        let vssds = self.shard.status().vssds;
        vssds.iter().find(|vssd| vssd.spec.name == part_name(part)).expect("it was made").space
    }

    /// Logical blocks of an erase block on every unit of the vSSD.
    pub fn segment_lbas(&self, part: usize) -> u64 {
        self.space(part).segment_bytes() / LOGICAL_BLOCK_BYTES
    }

    /// Another load on a volume that is there; the new number is the next one.
    pub fn create_alias(&mut self, volume: usize) {
        self.volumes.push(self.volumes[volume]);
    }

    /// A QoS set of these vSSDs.
    pub fn create_set(&mut self, set: QosSetSpec, parts: &[usize]) -> Result<(), String> {
        let vssds = parts.iter().map(|part| part_name(*part)).collect();
        self.ask(ControlRequest::CreateQosSet(QosSetSpec { vssds, ..set }))
    }

    /// Changes settings of even wear.
    pub fn set_wear(&mut self, change: WearSettings) -> Result<(), String> {
        self.ask(ControlRequest::SetWear(change))
    }

    /// Even wear so far.
    pub fn wear(&self) -> WearStatus {
        self.shard.status().devices.remove(0).wear
    }

    fn ask(&mut self, request: ControlRequest) -> Result<(), String> {
        let (token, request) = (ControlToken(1), Box::new(request));
        self.shard.handle(Event::Control { token, request }, self.now, &mut self.actions);
        loop {
            for action in self.actions.drain(..) {
                if let Action::Answer { response, .. } = action {
                    return match *response {
                        ControlResponse::Done | ControlResponse::Unchanged => Ok(()),
                        other => Err(format!("{other:?}")),
                    };
                }
            }
            self.step(Time::NEVER);
        }
    }

    /// Lets time pass to the shard's next deadline, or `until`.
    fn step(&mut self, until: Time) {
        self.now = self.now.max(self.shard.deadline().min(until));
        self.shard.work(self.now, &mut self.actions);
        self.shard.take_completions(&mut self.completions);
    }

    fn submit(&mut self, volume: usize, io: Io) {
        self.next_token += 1;
        self.under_way.insert(self.next_token, (volume, io.tag));
        let range = LbaRange { first_lba: io.first_lba, lba_count: io.lba_count };
        // Tags: 8 bytes for a logical block.
        let len_bytes = io.lba_count as usize * 8;
        let (namespace, placement) = self.volumes[volume];
        let operation = match io.kind {
            Kind::Read => NamespaceOperation::Read { range, destination: self.pool.take(len_bytes) },
            Kind::Write => {
                let mut data = self.pool.take(len_bytes);
                data.fill(7);
                NamespaceOperation::Write { range, data: data.freeze(), force_unit_access: false, placement }
            }
            Kind::Deallocate => NamespaceOperation::Deallocate { ranges: [range].into_iter().collect() },
            Kind::ResetZone => NamespaceOperation::Zone(ZoneRequest::Act {
                zone_lba: Some(io.first_lba),
                action: ZoneAction::Reset,
            }),
        };
        self.shard.submit(NamespaceCommand {
            token: CommandToken(self.next_token),
            namespace,
            source: SourceId(DOOR_SOURCE_BIT | (volume as u32 + 1)),
            arrived: self.now,
            operation,
        });
    }

    /// Lets workloads, one for each volume, work until then. What is under way at the end goes on with the next call.
    pub fn run(&mut self, loads: &mut [&mut dyn Workload], until: Time) {
        assert_eq!(loads.len(), self.volumes.len(), "a workload for each volume");
        while self.now < until {
            let mut wake = until;
            for (volume, load) in loads.iter_mut().enumerate() {
                while let Some(io) = load.next(self.now) {
                    self.submit(volume, io);
                }
                wake = wake.min(load.wakes_at());
            }
            self.step(wake);
            for completion in std::mem::take(&mut self.completions) {
                assert_eq!(completion.result, Ok(()), "nothing fails here");
                let (volume, tag) = self.under_way.remove(&completion.token.0).expect("it was given");
                loads[volume].answered(tag, self.now);
            }
        }
    }

    /// Waits until nothing is under way, cleaning included; answers go nowhere.
    pub fn settle(&mut self) {
        while self.shard.deadline() != Time::NEVER {
            self.step(Time::NEVER);
        }
        for completion in self.completions.drain(..) {
            self.under_way.remove(&completion.token.0);
        }
        assert!(self.under_way.is_empty(), "everything was answered");
    }

    /// What each vSSD wrote so far.
    pub fn written(&self) -> Vec<Written> {
        let mut vssds = self.shard.status().vssds;
        vssds.sort_by(|one, other| one.spec.name.cmp(&other.spec.name));
        let written = |vssd: &VssdStatus| Written {
            host_bytes: vssd.traffic.host_written_bytes,
            programmed_bytes: vssd.traffic.programmed_user_bytes + vssd.traffic.programmed_cleaner_bytes,
        };
        vssds.iter().map(written).collect()
    }

    /// Erase blocks that each vSSD can hold.
    #[cfg(test)]
    pub fn erase_blocks(&self) -> Vec<u64> {
        self.shard.status().vssds.iter().map(|vssd| vssd.space.erase_blocks).collect()
    }

    /// Erases of each channel so far.
    pub fn erases_by_channel(&self) -> Vec<u64> {
        let media = self.shard.media();
        (0..media.geometry().channels).map(|channel| media.emulated().erases_of_channel(channel)).collect()
    }

    /// Over-provisioning of a vSSD as it is in effect.
    pub fn over_provisioning(&self, part: usize) -> f64 {
        self.space(part).effective_over_provisioning().expect("it stores volumes")
    }

    /// Time that all dies had a command so far, and that their arrays were at work, in nanoseconds.
    pub fn die_busy_ns(&self) -> [u64; 2] {
        let done = self.shard.media().emulated().statistics();
        [done.busy_ns, done.array_busy_ns]
    }

    /// Time that each channel's bus was in use so far, in nanoseconds.
    pub fn bus_busy_ns(&self) -> Vec<u64> {
        let media = self.shard.media();
        (0..media.geometry().channels).map(|channel| media.emulated().bus_busy_ns(channel)).collect()
    }
}

/// Names are in the order of the numbers.
fn part_name(index: usize) -> String {
    format!("part-{index:03}")
}
