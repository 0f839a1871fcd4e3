//! Zoned namespaces on the whole shard, in virtual time: hosts that write, append, copy, finish and reset zones of several sizes, and one of zones with random write areas, beside a
//! tenant with a volume, on a device that fails programs and loses its power; and an oracle that knows of each zone what was
//! written in its present life, and what a cut may leave of it.
//!
//! A seed chooses the device (cells, protected memory), the zones, what hosts do, and when the process or the power goes, and whether pages are lost
//! then. After each restart every write pointer is compared, and everything is read.

mod areas;
mod host;
mod losses;

use crate::scene::{Scene, Server};
use areas::AreaHost;
use diecut_devices::{Backing, Device, FaultPlan, FaultRates, Options, Profile};
use diecut_media::Media;
use diecut_namespace::contract::{
    CommandToken, NamespaceCommand, NamespaceCompletion, NamespaceId, NamespaceOperation, SourceId,
};
use diecut_shard::control::{ControlRequest, TenantSpec, VolumeSpec, VssdSpec};
use diecut_shard::{DOOR_SOURCE_BIT, ShardConfig};
use diecut_spec::{Isolation, Serves, Size, ZoneSpec};
use diecut_vssd::PoolConfig;
use host::{NeighbourHost, ZoneHost, ZonesShape};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// What a run did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Commands of zone hosts that were answered.
    pub commands: u64,
    /// Zones that were reset.
    pub resets: u64,
    /// Restarts after the death of the process, and after power cuts.
    pub restarts: [u64; 2],
    /// Pages that were lost.
    pub lost_pages: u64,
    /// Commits of random write areas that were asked for, and that writes made.
    pub commits: [u64; 2],
    /// IUs that hosts wrote to zones.
    pub written_ius: u64,
    /// Of these, IUs that the server copied from other zones.
    pub copied_ius: u64,
    /// IUs that were programmed for them.
    pub programmed_ius: u64,
}

impl std::ops::AddAssign for Figures {
    fn add_assign(&mut self, other: Figures) {
        self.commands += other.commands;
        self.resets += other.resets;
        (0..2).for_each(|kind| self.restarts[kind] += other.restarts[kind]);
        self.lost_pages += other.lost_pages;
        (0..2).for_each(|kind| self.commits[kind] += other.commits[kind]);
        self.written_ius += other.written_ius;
        self.copied_ius += other.copied_ius;
        self.programmed_ius += other.programmed_ius;
    }
}

const NEIGHBOUR: &str = "neighbour";
const ZONED: &str = "zoned";
const STAGING_BYTES: usize = 512 << 10;
/// Program units of a random write area.
const AREA_UNITS: u32 = 2;

struct Zones {
    server: Server,
    random: Xoshiro256PlusPlus,
    zones: Vec<ZoneHost>,
    /// Where the device has protected memory.
    areas: Option<AreaHost>,
    neighbour: NeighbourHost,
    /// Pages of a program unit, and IUs of a page.
    row_pages: u32,
    page_ius: u32,
    figures: Figures,
}

/// Plays a seed for so many lives of the server.
///
/// # Errors
/// What was found, with the seed.
pub fn run(seed: u64, lives: u32) -> Result<Figures, String> {
    play(seed, lives).map_err(|error| format!("seed {seed}: {error}"))
}

fn play(seed: u64, lives: u32) -> Result<Figures, String> {
    let mut scene = Zones::new(seed)?;
    match scene.live(lives) {
        // Programs that failed have used up its good blocks: its zones are read-only, and what they hold was compared until then.
        Err(error) if host::is_of_worn_zones(&error) && scene.is_worn_out() => Ok(()),
        other => other,
    }?;
    Ok(scene.figures)
}

fn device(seed: u64, random: &mut Xoshiro256PlusPlus) -> Result<Device, String> {
    let name = ["tiny", "tiny-one-shot"][random.random_range(0..2)];
    let mut profile = Profile::named(name).map_err(|error| error.to_string())?;
    profile.geometry.blocks_per_plane = 40;
    // Cells that share word lines cannot hold zones without it.
    let is_protected = name == "tiny" || random.random_ratio(2, 3);
    profile.protected_memory_bytes = if is_protected { 4 << 20 } else { 0 };
    let rates =
        FaultRates { program_fail: f64::from(random.random_range(0..3_u32)) * 4e-4, ..FaultRates::default() };
    let faults = FaultPlan { rates, ..FaultPlan::default() };
    let options = Options { backing: Backing::Tags, seed, faults, ..Options::default() };
    Device::create(&profile, options).map_err(|error| error.to_string())
}

impl Zones {
    fn new(seed: u64) -> Result<Zones, String> {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed ^ 0x007a_6f6e_6573);
        let device = device(seed, &mut random)?;
        let is_protected = device.protected_memory().is_some();
        let page_ius = device.geometry().ius_per_page();
        let config = ShardConfig {
            pool: PoolConfig::suited_to(device.geometry()),
            staging_bytes_per_vssd: STAGING_BYTES,
            ..ShardConfig::default()
        };
        let mut scene = Zones {
            server: Server::new(device, config, seed)?,
            random,
            zones: Vec::new(),
            areas: None,
            neighbour: NeighbourHost::new(),
            row_pages: 0,
            page_ius,
            figures: Figures::default(),
        };
        for tenant in [ZONED, NEIGHBOUR] {
            scene.server.done(ControlRequest::CreateTenant(TenantSpec::new(tenant)))?;
            let serves = if tenant == ZONED { Serves::Zones } else { Serves::Volumes };
            let isolation = Isolation::Channel;
            let capacity = Size(if tenant == ZONED { 6 << 20 } else { 4 << 20 });
            let vssd = VssdSpec { serves, capacity, ..VssdSpec::new(tenant, tenant, isolation, 400) };
            scene.server.done(ControlRequest::CreateVssd(vssd))?;
        }
        scene.server.done(ControlRequest::CreateVolume(VolumeSpec::new(
            NEIGHBOUR,
            NEIGHBOUR,
            Size(1 << 20),
        )))?;
        let room = scene.server.lead().state().vssds[ZONED].zone_room.ok_or("no room for zones")?;
        scene.row_pages = room.unit_ius / page_ius;
        let block_bytes = u64::from(room.rows) * u64::from(room.unit_ius) * 4096;
        for (index, (width, zones)) in [(1, 6), (room.units, 4)].into_iter().enumerate() {
            let name = format!("{ZONED}-{index}");
            let spec = VolumeSpec {
                zones: ZoneSpec {
                    units: Some(width),
                    active: Some(3),
                    open: Some(2),
                    random_area: None,
                    extension: Some(64),
                },
                ..VolumeSpec::new(&name, ZONED, Size(block_bytes * u64::from(width) * zones))
            };
            scene.server.done(ControlRequest::CreateVolume(spec))?;
            let record = &scene.server.lead().state().volumes[&name];
            let capacity = u32::from(width) * room.rows * room.unit_ius;
            let step = if is_protected { 1 } else { room.unit_ius };
            let namespace = NamespaceId(record.namespace);
            let (width, units, zones) = (width.into(), room.units.into(), zones as u32);
            let shape = ZonesShape { zones, width, units, capacity, unit_ius: room.unit_ius, step };
            scene.zones.push(ZoneHost::new(namespace, index as u64 + 1, shape));
        }
        if is_protected {
            scene.make_areas(room.rows, room.unit_ius)?;
        }
        let namespace = NamespaceId(scene.server.lead().state().volumes[NEIGHBOUR].namespace);
        scene.neighbour.shown(namespace);
        Ok(scene)
    }

    /// A namespace of zones with random write areas, and its host.
    fn make_areas(&mut self, rows: u32, unit_ius: u32) -> Result<(), String> {
        const NAME: &str = "areas";
        let (zones, capacity, area) = (4, rows * unit_ius, AREA_UNITS * unit_ius);
        let of_zones = ZoneSpec {
            units: Some(1),
            active: Some(3),
            open: Some(3),
            random_area: Some(Size(u64::from(area) * 4096)),
            extension: None,
        };
        let size = Size(u64::from(capacity) * 4096 * u64::from(zones));
        let spec = VolumeSpec { zones: of_zones, ..VolumeSpec::new(NAME, ZONED, size) };
        self.server.done(ControlRequest::CreateVolume(spec))?;
        let namespace = NamespaceId(self.server.lead().state().volumes[NAME].namespace);
        self.areas = Some(AreaHost::new(namespace, zones, capacity, area, unit_ius));
        Ok(())
    }

    /// A vSSD has no good blocks left in reserve.
    fn is_worn_out(&self) -> bool {
        let lead = self.server.lead();
        let number = |vssd: &str| diecut_vssd::VssdId(lead.state().vssds[vssd].number);
        [ZONED, NEIGHBOUR].into_iter().any(|vssd| lead.pool().is_read_only(number(vssd)))
    }

    /// No more is lost than what lay on pages that are.
    fn count_lost(&self) -> Result<(), String> {
        let of_zones: usize = self.zones.iter().map(|host| host.lost.count()).sum();
        let lost = of_zones + self.areas.as_ref().map_or(0, |host| host.lost.count());
        if lost as u64 > self.figures.lost_pages * u64::from(self.page_ius) {
            return Err(format!("{lost} IUs are lost with {} pages", self.figures.lost_pages));
        }
        Ok(())
    }

    fn submit(&mut self, host: u64, namespace: NamespaceId, number: u64, operation: NamespaceOperation) {
        let command = NamespaceCommand {
            token: CommandToken(host << 56 | number),
            namespace,
            source: SourceId(DOOR_SOURCE_BIT | host as u32),
            arrived: self.server.now,
            operation,
        };
        self.server.lead_mut().submit(command);
    }

    fn zones_are_quiet(&self) -> bool {
        self.zones.iter().all(ZoneHost::is_quiet) && self.areas.as_ref().is_none_or(AreaHost::is_quiet)
    }
}

impl Scene for Zones {
    fn server(&self) -> &Server {
        &self.server
    }

    fn server_mut(&mut self) -> &mut Server {
        &mut self.server
    }

    fn random(&mut self) -> &mut Xoshiro256PlusPlus {
        &mut self.random
    }

    fn completed(&mut self, completion: NamespaceCompletion) -> Result<(), String> {
        let host = completion.token.0 >> 56;
        match host.checked_sub(1) {
            None => self.neighbour.completed(completion),
            Some(_) if host == areas::NUMBER => {
                self.figures.commands += 1;
                let areas = self.areas.as_mut().expect("it asked");
                areas.completed(completion)?;
                self.figures.commits = areas.commits;
                let namespace = areas.namespace;
                for (token, operation) in areas.read_again() {
                    self.submit(areas::NUMBER, namespace, token, operation);
                }
                self.count_lost()
            }
            Some(at) => {
                self.figures.commands += 1;
                let host = &mut self.zones[at as usize];
                host.completed(completion)?;
                let (number, namespace) = (host.number, host.namespace);
                for (token, operation) in host.read_again() {
                    self.submit(number, namespace, token, operation);
                }
                self.count_lost()?;
                (self.figures.resets, self.figures.written_ius) =
                    self.zones.iter().fold((0, 0), |(resets, written), host| {
                        (resets + host.resets, written + host.written_ius)
                    });
                self.figures.copied_ius = self.zones.iter().map(|host| host.copied_ius).sum();
                self.figures.written_ius += self.areas.as_ref().map_or(0, |areas| areas.written_ius);
                Ok(())
            }
        }
    }

    fn step(&mut self) -> Result<(), String> {
        let zoned = self.zones.len();
        let at = self.random.random_range(0..zoned + 2);
        let asked = match (self.zones.get_mut(at), &mut self.areas) {
            (None, Some(areas)) if at == zoned => {
                areas.ask(&mut self.random).map(|asked| (areas::NUMBER, areas.namespace, asked))
            }
            (Some(host), _) => host.ask(&mut self.random).map(|asked| (host.number, host.namespace, asked)),
            (None, _) => {
                self.neighbour.ask(&mut self.random).map(|asked| (0, self.neighbour.namespace, asked))
            }
        };
        if let Some((host, namespace, (number, operation))) = asked {
            self.submit(host, namespace, number, operation);
        }
        self.some_turns()
    }

    fn settle(&mut self) -> Result<(), String> {
        self.turn_until(|scene| scene.neighbour.is_quiet() && scene.zones_are_quiet())
    }

    fn read_all(&mut self) -> Result<(), String> {
        for at in 0..self.zones.len() {
            let (number, namespace) = (self.zones[at].number, self.zones[at].namespace);
            for (token, operation) in self.zones[at].read_all() {
                self.submit(number, namespace, token, operation);
            }
        }
        if let Some(areas) = &mut self.areas {
            let (namespace, asked) = (areas.namespace, areas.read_all());
            for (token, operation) in asked {
                self.submit(areas::NUMBER, namespace, token, operation);
            }
        }
        let (token, operation) = self.neighbour.read_all();
        let namespace = self.neighbour.namespace;
        self.submit(0, namespace, token, operation);
        self.settle()
    }

    fn restart(&mut self) -> Result<(), String> {
        let is_cut = self.random.random_ratio(2, 3);
        let state = self.server.lead().state();
        let number = state.vssds[ZONED].number;
        let appended = self.server.lead().pool().appended_ius(diecut_vssd::VssdId(number));
        self.figures.programmed_ius += appended;
        self.figures.restarts[usize::from(is_cut)] += 1;
        let loses_page = self.random.random_ratio(1, 4);
        let lead = self.server.lead();
        let random = &mut self.random;
        let chosen = if loses_page { losses::choose(lead, number, self.row_pages, random) } else { None };
        self.neighbour.crashed();
        self.zones.iter_mut().for_each(ZoneHost::crashed);
        self.areas.iter_mut().for_each(AreaHost::crashed);
        let (random, row_pages, lost_pages) =
            (&mut self.random, self.row_pages, &mut self.figures.lost_pages);
        self.server.restart(is_cut, |device| {
            if let Some(block) = chosen {
                *lost_pages += u64::from(losses::lose(device, block, row_pages, random));
            }
        })?;
        for at in 0..self.zones.len() {
            let (number, namespace) = (self.zones[at].number, self.zones[at].namespace);
            let (token, operation) = self.zones[at].look();
            self.submit(number, namespace, token, operation);
        }
        if let Some(areas) = &mut self.areas {
            let (namespace, (token, operation)) = (areas.namespace, areas.look());
            self.submit(areas::NUMBER, namespace, token, operation);
        }
        self.turn_until(Zones::zones_are_quiet)
    }
}

#[cfg(test)]
mod test;
