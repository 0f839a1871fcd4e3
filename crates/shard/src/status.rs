//! Everything that exists on a shard, with figures.

use crate::control::*;
use crate::plan::{subsystem_spec, volume_spec, vssd_spec};
use crate::shard::Shard;
use diecut_media::Divide;
use diecut_namespace::contract::NamespaceId;
use diecut_units::{BlockIndex, IU_SIZE_BYTES};
use diecut_volume::contract::VolumeIndex;
use diecut_vssd::VssdId;

impl<M: Divide> Shard<M> {
    /// What lives on this shard, with figures: everything that exists, if there is one shard.
    pub fn status(&self) -> Status {
        let lives_here = |vssd: &String| self.store_of(self.state.vssds[vssd].number).is_some();
        let vssds = self.state.vssds.keys().filter(|name| lives_here(name));
        let volumes = self.state.volumes.iter().filter(|(_, volume)| lives_here(&volume.vssd));
        let subsystems = self.state.subsystems.iter();
        let subsystems = subsystems.filter(|(_, record)| self.ledger.home_of(&record.tenant) == self.index.0);
        Status {
            devices: vec![self.device_status()],
            tenants: self.state.tenants.keys().map(|name| TenantSpec { name: name.clone() }).collect(),
            vssds: vssds.map(|name| self.vssd_status(name)).collect(),
            volumes: volumes.map(|(name, _)| self.volume_status(name)).collect(),
            subsystems: subsystems.map(|(nqn, _)| self.subsystem_status(nqn)).collect(),
        }
    }

    fn device_status(&self) -> DeviceStatus {
        let geometry = *self.flash.media.geometry();
        let per_channel = u32::from(geometry.dies_per_channel);
        let erases = |channel: u32| {
            let dies = if self.flash.media.owns(channel as u16) { per_channel } else { 0 };
            (channel * per_channel..channel * per_channel + dies)
                .map(|die| self.flash.pool.die_erases(die))
                .sum()
        };
        let bad = geometry
            .all_dies()
            .flat_map(|die| {
                (0..geometry.erase_blocks_per_die()).map(move |index| die.erase_block(BlockIndex(index)))
            })
            .filter(|block| self.flash.media.is_factory_bad(*block));
        let (free_channels, free_dies) = self.flash.pool.free_resources();
        DeviceStatus {
            name: self.config.device_name.clone(),
            channels: geometry.channels,
            dies_per_channel: geometry.dies_per_channel,
            raw_capacity_bytes: geometry.raw_capacity_bytes(),
            erases_per_channel: (0..u32::from(geometry.channels)).map(erases).collect(),
            free_channels: free_channels as u16,
            free_dies,
            bad_erase_blocks: bad.count() as u64,
            quarantined: self.flash.pool.quarantined().iter().map(ToString::to_string).collect(),
        }
    }

    fn vssd_status(&self, name: &str) -> VssdStatus {
        let record = &self.state.vssds[name];
        let id = VssdId(record.number);
        let index = self.store_of(record.number).expect("the store of an existing vSSD is open");
        let store = self.flash.store(index);
        let statistics = store.statistics();
        let (units, physical_bytes) = self.flash.pool.size_of(id);
        let (erase_blocks, free_erase_blocks) = self.flash.pool.erase_blocks_of(id);
        let bytes = |ius: u64| ius * IU_SIZE_BYTES as u64;
        VssdStatus {
            spec: vssd_spec(name, record),
            placement: self.flash.pool.placement(id) + &self.place_of_shard(),
            units,
            physical_bytes,
            exported_bytes: bytes(statistics.exported_ius),
            used_bytes: bytes(statistics.used_ius),
            host_written_bytes: bytes(statistics.host_written_ius),
            programmed_user_bytes: bytes(statistics.log.user_ius),
            programmed_cleaner_bytes: bytes(statistics.log.cleaner_ius),
            programmed_metadata_bytes: bytes(
                statistics.log.map_ius
                    + statistics.log.anchor_ius
                    + statistics.log.summary_ius
                    + statistics.log.padding_ius,
            ),
            erases: self.flash.pool.vssd_erases(id),
            erase_blocks,
            free_erase_blocks,
            read_only_reason: store.read_only_reason().map(str::to_owned),
        }
    }

    fn volume_status(&self, name: &str) -> VolumeStatus {
        let record = &self.state.volumes[name];
        let spec = volume_spec(name, record);
        let used_ius = self
            .store_of(self.state.vssds[&record.vssd].number)
            .map_or(0, |store| self.flash.store(store).volume_used_ius(VolumeIndex(record.index)));
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
        let Some(statistics) = self.namespaces.statistics(NamespaceId(record.namespace)) else { return none };
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

    fn subsystem_status(&self, nqn: &str) -> SubsystemStatus {
        let associations = self.target.associations().into_iter();
        let own = associations.filter(|association| association.subsystem == nqn);
        SubsystemStatus {
            spec: subsystem_spec(nqn, &self.state.subsystems[nqn]),
            controllers: own.map(|one| (one.host, one.controller_id, one.io_queues)).collect(),
        }
    }

    /// For people: where a vSSD lives, if there is a choice.
    fn place_of_shard(&self) -> String {
        if self.shards > 1 { format!(", shard {}", self.index.0) } else { String::new() }
    }
}

impl Status {
    /// Adds another shard's part.
    pub(crate) fn merge(&mut self, other: Status) {
        for (own, other) in self.devices.iter_mut().zip(other.devices) {
            for (own, other) in own.erases_per_channel.iter_mut().zip(other.erases_per_channel) {
                *own += other;
            }
            own.quarantined.extend(other.quarantined);
        }
        self.vssds.extend(other.vssds);
        self.vssds.sort_by(|one, other| one.spec.name.cmp(&other.spec.name));
        self.volumes.extend(other.volumes);
        self.volumes.sort_by(|one, other| one.spec.name.cmp(&other.spec.name));
        self.subsystems.extend(other.subsystems);
        self.subsystems.sort_by(|one, other| one.spec.nqn.cmp(&other.spec.nqn));
    }
}
