//! Everything that exists on a shard, with figures.

use crate::control::*;
use crate::devices::{OwnDevice, Standing};
use crate::flash::{Copying, PIECE_IUS};
use crate::inquiry::{Findings, Inquiry};
use crate::kept::Kept;
use crate::latency_report;
use crate::owners::Owners;
use crate::panics::FENCED;
use crate::qos;
use crate::sanitize;
use diecut_catalog::VssdRecord;
use diecut_media::Divide;
use diecut_namespace::contract::NamespaceId;
use diecut_spec::{Serves, Size};
use diecut_units::{BlockIndex, IU_SIZE_BYTES};
use diecut_volume::contract::VolumeIndex;
use diecut_vssd::{DieWear, SwapRule, VssdId};
use diecut_zoned::contract::ZoneSetIndex;

/// This shard's part of an answer.
pub(crate) fn find<M: Divide>(here: &Owners<M>, inquiry: Inquiry) -> Findings {
    match inquiry {
        Inquiry::Status => Findings::Status(Box::new(status(here))),
        Inquiry::Latency => {
            let (delays, shard) = (&here.plane.delays, here.placement.index.0);
            let report = latency_report::report(delays, &here.registry, shard);
            Findings::Latency(Box::new(report))
        }
    }
}

/// What lives on this shard, with figures: everything that exists, if there is one shard.
pub fn status<M: Divide>(here: &Owners<M>) -> Status {
    let held: Vec<VssdId> = here.plane.flash.devices.vssd_ids().collect();
    let lives_here = |vssd: &String| {
        let record = &here.registry.state.vssds[vssd];
        let number = record.number;
        match record.serves {
            Serves::Volumes | Serves::Zones | Serves::OpenChannel => here.plane.store_of(number).is_some(),
            Serves::Blocks => {
                held.contains(&VssdId(number)) && ledger_shard(here, number) == here.placement.index.0
            }
        }
    };
    // What is away is told of by the first shard.
    let is_away = |vssd: &String| {
        !here.placement.is_member()
            && here.registry.away.contains_key(&here.registry.state.vssds[vssd].number)
    };
    let is_told = |vssd: &String| is_away(vssd) || lives_here(vssd);
    let vssds = here.registry.state.vssds.keys().filter(|name| is_told(name));
    let volumes = here.registry.state.volumes.iter().filter(|(_, volume)| is_told(&volume.vssd));
    let subsystems = here.registry.state.subsystems.iter();
    let subsystems = subsystems
        .filter(|(_, record)| here.placement.ledger.home_of(&record.tenant) == here.placement.index.0);
    Status {
        devices: here.plane.flash.devices.iter().map(|own| device_status(here, own)).collect(),
        tenants: here.registry.state.tenants.values().cloned().collect(),
        vssds: vssds.map(|name| vssd_status(here, name)).collect(),
        volumes: volumes.map(|(name, _)| volume_status(here, name)).collect(),
        subsystems: subsystems.map(|(nqn, _)| subsystem_status(here, nqn)).collect(),
        qos_sets: qos::status(&here.plane, &here.registry),
    }
}

/// Where a vSSD without a store lives; members know their own only.
fn ledger_shard<M: Divide>(here: &Owners<M>, vssd: u32) -> u16 {
    if here.placement.is_member() { here.placement.index.0 } else { here.placement.ledger.shard_of(vssd) }
}

fn device_status<M: Divide>(here: &Owners<M>, own: &OwnDevice<M>) -> DeviceStatus {
    let geometry = *own.media.geometry();
    let per_channel = u32::from(geometry.dies_per_channel);
    let erases = |channel: u32| {
        let dies = if own.media.owns(channel as u16) { per_channel } else { 0 };
        (channel * per_channel..channel * per_channel + dies).map(|die| own.pool.die_erases(die)).sum()
    };
    let bad = geometry
        .all_dies()
        .flat_map(|die| {
            (0..geometry.erase_blocks_per_die()).map(move |index| die.erase_block(BlockIndex(index)))
        })
        .filter(|block| own.media.is_factory_bad(*block));
    let (free_channels, free_dies) = own.pool.free_resources();
    DeviceStatus {
        name: own.config.name.clone(),
        channels: geometry.channels,
        dies_per_channel: geometry.dies_per_channel,
        raw_capacity_bytes: geometry.raw_capacity_bytes(),
        is_away: own.is_away,
        turning: match own.standing {
            Standing::Joins => Some(DeviceTurning::Joins),
            Standing::There => None,
            Standing::Drains => Some(DeviceTurning::Drains),
            Standing::Leaves => Some(DeviceTurning::Leaves),
        },
        moving: here.moving.as_ref().filter(|_| own.standing == Standing::Drains).map(|moving| {
            let (left, all) = here.plane.flash.copying.as_ref().map_or((0, 0), Copying::left);
            let bytes = |pieces: u64| pieces * PIECE_IUS * IU_SIZE_BYTES as u64;
            VssdMove { vssd: moving.name.clone(), left_bytes: bytes(left), all_bytes: bytes(all) }
        }),
        erases_per_channel: (0..u32::from(geometry.channels)).map(erases).collect(),
        free_channels: free_channels as u16,
        free_dies,
        bad_erase_blocks: bad.count() as u64,
        quarantined: own.pool.quarantined().iter().map(ToString::to_string).collect(),
        wear: wear_status(here, own),
    }
}

fn wear_status<M: Divide>(here: &Owners<M>, own: &OwnDevice<M>) -> WearStatus {
    let pool = &own.pool;
    let geometry = *own.media.geometry();
    let per_channel = u32::from(geometry.dies_per_channel);
    let (settings, migration) = (pool.wear_config(), pool.migration_status());
    let thresholds = here.placement.evenness.thresholds_erases.unwrap_or(pool.wear_thresholds());
    let [channel_threshold_erases, die_threshold_erases] = thresholds;
    let owns = |die: u32| own.media.owns((die / per_channel) as u16);
    let wear = |die: u32| if owns(die) { pool.die_wear(die) } else { DieWear::default() };
    let channels = 0..u32::from(geometry.channels);
    let dies_of = |channel: u32| channel * per_channel..(channel + 1) * per_channel;
    let of_channel = |channel: u32| {
        let mut sum = DieWear::default();
        dies_of(channel).for_each(|die| sum += wear(die));
        let heats = dies_of(channel).map(|die| pool.die_heat(die));
        let (content_erases, content_erases_per_day) = heats.fold((0, 0.0), |(content, average), heat| {
            (content + heat.content_erases, average + heat.average as f64 / 256.0)
        });
        ChannelWear {
            host_erases: sum.host,
            migration_erases: sum.migration,
            inside_erases: sum.inside,
            journal_erases: sum.state_log,
            content_erases,
            content_erases_per_day,
        }
    };
    let exchange = |(dies, blocks_left, trouble)| WearExchange { dies, blocks_left, trouble };
    WearStatus {
        channels: channels.map(of_channel).collect(),
        erases_per_die: (0..geometry.dies()).map(|die| wear(die).total()).collect(),
        exchanges: migration.exchanges.into_iter().map(exchange).collect(),
        waiting: migration.waiting,
        finished: migration.finished,
        moved_blocks: migration.moved_blocks,
        lost_pages: migration.lost_pages,
        settings: WearInForce {
            paused: migration.is_paused,
            rate: Size(settings.rate_bytes_per_second),
            channel_threshold_erases,
            die_threshold_erases,
            follow_age: settings.follow_age,
            endurance_cycles: settings.endurance_cycles,
            delta_permille: settings.delta_permille,
            literal_rule: settings.rule == SwapRule::Literal,
        },
    }
}

fn vssd_status<M: Divide>(here: &Owners<M>, name: &str) -> VssdStatus {
    let record = &here.registry.state.vssds[name];
    let id = VssdId(record.number);
    if let Some(away) = here.registry.away.get(&record.number) {
        return away_status(record, &away.reason);
    }
    let kept = here.plane.store_of(record.number).map(|index| here.plane.flash.kept(index));
    assert!(kept.is_some() || record.serves == Serves::Blocks, "the store of an existing vSSD is open");
    let store = kept.and_then(|kept| kept.volumes());
    let zones = kept.and_then(|kept| kept.zones());
    let chunks = kept.and_then(|kept| kept.chunks());
    let statistics = store.map(|store| store.statistics()).unwrap_or_default();
    let accepted = store.map(|store| store.accepted_loss()).unwrap_or_default();
    let devices = &here.plane.flash.devices;
    let (units, physical_bytes) = devices.size_of(id);
    let sum = |of: &dyn Fn(&diecut_vssd::Pool) -> u64| devices.of(id).map(|own| of(&own.pool)).sum::<u64>();
    let erase_blocks = sum(&|pool| pool.erase_blocks_of(id).0);
    let free_erase_blocks = sum(&|pool| pool.erase_blocks_of(id).1);
    let places = devices.placement_of(id);
    let unit_devices = places.iter().map(|(device, _)| devices.get(*device).config.name.clone());
    let bytes = |ius: u64| ius * IU_SIZE_BYTES as u64;
    // What applications and zones append is programmed as it is.
    let appended_ius = if store.is_some() { 0 } else { sum(&|pool| pool.appended_ius(id)) };
    VssdStatus {
        spec: record.spec.clone(),
        placement: places.iter().map(|(_, location)| *location).collect(),
        unit_devices: if record.parts.len() < 2 { Vec::new() } else { unit_devices.collect() },
        shard: (here.placement.shards > 1).then_some(here.placement.index.0),
        space: VssdSpace {
            units,
            physical_bytes,
            exported_bytes: bytes(if store.is_some() {
                statistics.exported_ius
            } else {
                record.exported_ius
            }),
            used_bytes: bytes(match (zones, chunks) {
                (Some(zones), _) => zones.all_used_ius(),
                (_, Some(chunks)) => chunks.used_ius(),
                _ => statistics.used_ius,
            }),
            erase_blocks,
            free_erase_blocks,
        },
        traffic: VssdTraffic {
            host_written_bytes: bytes(match (zones, chunks) {
                (Some(zones), _) => zones.statistics().host_written_ius,
                (_, Some(chunks)) => chunks.statistics().host_written_ius,
                _ => statistics.host_written_ius + appended_ius,
            }),
            programmed_user_bytes: bytes(statistics.log.user_ius() + appended_ius),
            programmed_cleaner_bytes: bytes(statistics.log.cleaner_ius()),
            programmed_metadata_bytes: bytes(
                statistics.log.map_ius()
                    + statistics.log.anchor_ius
                    + statistics.log.summary_ius
                    + statistics.log.padding_ius
                    + sum(&|pool| pool.header_ius(id)),
            ),
            erases: sum(&|pool| pool.vssd_erases(id)),
        },
        health: VssdHealth {
            read_only_reason: store
                .and_then(|store| store.read_only_reason())
                .or(here.config.fenced.contains(&record.number).then_some(FENCED))
                .map(str::to_owned),
            lacks_room: store.is_some_and(|store| store.lacks_room()),
            accepted_loss: AcceptedLoss { bytes: bytes(accepted.ius), records: accepted.records },
        },
    }
}

/// Of a vSSD of which a device is not there.
fn away_status(record: &VssdRecord, reason: &str) -> VssdStatus {
    VssdStatus {
        spec: record.spec.clone(),
        placement: Vec::new(),
        unit_devices: Vec::new(),
        shard: None,
        space: VssdSpace {
            exported_bytes: record.exported_ius * IU_SIZE_BYTES as u64,
            ..VssdSpace::default()
        },
        traffic: VssdTraffic::default(),
        health: VssdHealth { read_only_reason: Some(reason.to_owned()), ..VssdHealth::default() },
    }
}

fn volume_status<M: Divide>(here: &Owners<M>, name: &str) -> VolumeStatus {
    let record = &here.registry.state.volumes[name];
    let spec = record.spec.clone();
    let used_ius = here.plane.store_of(here.registry.state.vssds[&record.vssd].number).map_or(0, |store| {
        match here.plane.flash.kept(store) {
            Kept::Volumes(store) => store.volume_used_ius(VolumeIndex(record.index)),
            Kept::Zones { store, .. } => store.used_ius(ZoneSetIndex(record.index)),
            Kept::Chunks { store, .. } => store.used_ius(),
        }
    });
    let none = VolumeStatus {
        spec,
        used_bytes: used_ius * IU_SIZE_BYTES as u64,
        reads: 0,
        writes: 0,
        read_bytes: 0,
        written_bytes: 0,
        read_latency_ns: [0; 4],
        write_latency_ns: [0; 4],
    };
    let Some(statistics) = here.plane.namespaces.statistics(NamespaceId(record.namespace)) else {
        return none;
    };
    let percentiles = |latency: diecut_namespace::LatencySummary| {
        [latency.p50_ns, latency.p99_ns, latency.p999_ns, latency.p9999_ns]
    };
    VolumeStatus {
        reads: statistics.reads.completed,
        writes: statistics.writes.completed,
        read_bytes: statistics.reads.lbas * IU_SIZE_BYTES as u64,
        written_bytes: statistics.writes.lbas * IU_SIZE_BYTES as u64,
        read_latency_ns: percentiles(statistics.read_latency()),
        write_latency_ns: percentiles(statistics.write_latency()),
        ..none
    }
}

fn subsystem_status<M: Divide>(here: &Owners<M>, nqn: &str) -> SubsystemStatus {
    let associations = here.plane.nvme.target.associations().into_iter();
    let own = associations.filter(|association| association.subsystem == nqn);
    SubsystemStatus {
        spec: here.registry.state.subsystems[nqn].clone(),
        controllers: own.map(|one| (one.host, one.controller_id, one.io_queues)).collect(),
        sanitize: sanitize::status(here, nqn),
    }
}

impl Status {
    /// Adds another shard's part.
    pub(crate) fn merge(&mut self, other: Status) {
        for other in other.devices {
            // One may have come or gone between the answers of two shards.
            let Some(own) = self.devices.iter_mut().find(|own| own.name == other.name) else { continue };
            for (own, other) in own.erases_per_channel.iter_mut().zip(other.erases_per_channel) {
                *own += other;
            }
            own.quarantined.extend(other.quarantined);
            own.wear.merge(other.wear);
            own.is_away |= other.is_away;
        }
        self.vssds.extend(other.vssds);
        self.vssds.sort_by(|one, other| one.spec.name.cmp(&other.spec.name));
        self.volumes.extend(other.volumes);
        self.volumes.sort_by(|one, other| one.spec.name.cmp(&other.spec.name));
        self.subsystems.extend(other.subsystems);
        self.subsystems.sort_by(|one, other| one.spec.nqn.cmp(&other.spec.nqn));
        for (own, other) in self.qos_sets.iter_mut().zip(other.qos_sets) {
            own.merge(other);
        }
    }
}
