//! What a shard had done at some moment, in whole numbers: what a replay is compared with.

use diecut_devices::Device;
use diecut_media::Media;
use diecut_shard::Shard;
use diecut_units::BlockIndex;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What a shard and its device had done. Two runs are the same if all of it is equal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Summary {
    /// Erase blocks that were erased: number (die by die) and erases since the device was made.
    pub erase_counts: Vec<(u64, u32)>,
    /// The device.
    pub device: DeviceSummary,
    /// IUs the catalog programmed, and its erases.
    pub catalog_work: (u64, u64),
    /// vSSDs, by name.
    pub vssds: Vec<VssdSummary>,
    /// Volumes, by name.
    pub volumes: Vec<VolumeSummary>,
}

/// What a device did since it was made or opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceSummary {
    /// Read commands.
    pub reads: u64,
    /// Program units programmed.
    pub program_units: u64,
    /// Erases.
    pub erases: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes programmed.
    pub programmed_bytes: u64,
    /// Time arrays were at work, in nanoseconds.
    pub array_busy_ns: u64,
}

/// What was done for a vSSD since the shard started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VssdSummary {
    /// Name.
    pub name: String,
    /// Bytes hosts wrote.
    pub host_written_bytes: u64,
    /// Bytes programmed for hosts.
    pub programmed_user_bytes: u64,
    /// Bytes programmed by the cleaner.
    pub programmed_cleaner_bytes: u64,
    /// Bytes programmed for maps, summaries, anchors and padding.
    pub programmed_metadata_bytes: u64,
    /// Erases of its blocks.
    pub erases: u64,
}

impl VssdSummary {
    /// Bytes programmed for each byte hosts wrote; none before the first write.
    pub fn waf(&self) -> Option<f64> {
        let programmed =
            self.programmed_user_bytes + self.programmed_cleaner_bytes + self.programmed_metadata_bytes;
        (self.host_written_bytes > 0).then(|| programmed as f64 / self.host_written_bytes as f64)
    }
}

/// What a volume's hosts did since the shard started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VolumeSummary {
    /// Name.
    pub name: String,
    /// Bytes stored.
    pub used_bytes: u64,
    /// Reads completed.
    pub reads: u64,
    /// Writes completed.
    pub writes: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Latency of reads in nanoseconds: p50, p99, p99.9, p99.99.
    pub read_latency_ns: [u64; 4],
    /// Same for writes.
    pub write_latency_ns: [u64; 4],
}

impl Summary {
    /// What a shard has done so far.
    pub fn of(shard: &Shard<Device>) -> Summary {
        let device = shard.media().emulated();
        let geometry = device.geometry();
        let blocks = geometry.all_dies().flat_map(|die| {
            (0..geometry.erase_blocks_per_die()).map(move |index| die.erase_block(BlockIndex(index)))
        });
        let erase_counts = (0..)
            .zip(blocks)
            .map(|(number, block)| (number, device.erase_count(block)))
            .filter(|(_, count)| *count > 0)
            .collect();
        let done = device.statistics();
        let status = shard.status();
        Summary {
            erase_counts,
            device: DeviceSummary {
                reads: done.reads,
                program_units: done.program_units,
                erases: done.erases,
                read_bytes: done.read_bytes,
                programmed_bytes: done.programmed_bytes,
                array_busy_ns: done.array_busy_ns,
            },
            catalog_work: shard.system_work(),
            vssds: status
                .vssds
                .into_iter()
                .map(|vssd| VssdSummary {
                    name: vssd.spec.name,
                    host_written_bytes: vssd.traffic.host_written_bytes,
                    programmed_user_bytes: vssd.traffic.programmed_user_bytes,
                    programmed_cleaner_bytes: vssd.traffic.programmed_cleaner_bytes,
                    programmed_metadata_bytes: vssd.traffic.programmed_metadata_bytes,
                    erases: vssd.traffic.erases,
                })
                .collect(),
            volumes: status
                .volumes
                .into_iter()
                .map(|volume| VolumeSummary {
                    name: volume.spec.name,
                    used_bytes: volume.used_bytes,
                    reads: volume.reads,
                    writes: volume.writes,
                    read_bytes: volume.read_bytes,
                    written_bytes: volume.written_bytes,
                    read_latency_ns: volume.read_latency_ns,
                    write_latency_ns: volume.write_latency_ns,
                })
                .collect(),
        }
    }

    /// Erases of all blocks since the device was made.
    pub fn erases(&self) -> u64 {
        self.erase_counts.iter().map(|(_, count)| u64::from(*count)).sum()
    }

    /// In what `self`, the expected one, and `found` differ, one line for each; empty if they are the same.
    pub fn differences(&self, found: &Summary) -> Vec<String> {
        /// So many blocks are named; the rest is counted.
        const BLOCKS_NAMED: usize = 4;
        let mut lines = Vec::new();
        let blocks =
            |summary: &Summary| -> BTreeMap<u64, u32> { summary.erase_counts.iter().copied().collect() };
        let (expected_blocks, found_blocks) = (blocks(self), blocks(found));
        let count = |blocks: &BTreeMap<u64, u32>, number: u64| blocks.get(&number).copied().unwrap_or(0);
        let mut numbers: Vec<u64> = expected_blocks.keys().chain(found_blocks.keys()).copied().collect();
        numbers.sort_unstable();
        numbers.dedup();
        numbers.retain(|&number| count(&expected_blocks, number) != count(&found_blocks, number));
        for &number in numbers.iter().take(BLOCKS_NAMED) {
            let (expected, found) = (count(&expected_blocks, number), count(&found_blocks, number));
            lines.push(format!("erase block {number}: {expected} erases recorded, {found} replayed"));
        }
        if numbers.len() > BLOCKS_NAMED {
            lines.push(format!("{} further erase blocks differ", numbers.len() - BLOCKS_NAMED));
        }
        let mut compare = |what: &str, expected: String, found: String| {
            if expected != found {
                lines.push(format!("{what}: {expected} recorded, {found} replayed"));
            }
        };
        compare("device", format!("{:?}", self.device), format!("{:?}", found.device));
        compare("catalog", format!("{:?}", self.catalog_work), format!("{:?}", found.catalog_work));
        let text =
            |one: Option<&dyn std::fmt::Debug>| one.map_or("nothing".to_owned(), |one| format!("{one:?}"));
        for index in 0..self.vssds.len().max(found.vssds.len()) {
            let side =
                |summary: &Summary| text(summary.vssds.get(index).map(|one| one as &dyn std::fmt::Debug));
            compare("vSSD", side(self), side(found));
        }
        for index in 0..self.volumes.len().max(found.volumes.len()) {
            let side =
                |summary: &Summary| text(summary.volumes.get(index).map(|one| one as &dyn std::fmt::Debug));
            compare("volume", side(self), side(found));
        }
        lines
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn every_difference_is_told() {
        let mut one = Summary { erase_counts: vec![(3, 1), (9, 2)], ..Summary::default() };
        one.vssds.push(VssdSummary { name: "a".to_owned(), ..VssdSummary::default() });
        assert!(one.differences(&one.clone()).is_empty());
        let mut other = one.clone();
        other.erase_counts = vec![(3, 1), (10, 2)];
        other.vssds[0].programmed_cleaner_bytes = 1;
        other.catalog_work.0 = 1;
        let lines = one.differences(&other);
        assert_eq!(lines.len(), 4, "{lines:?}");
        assert_eq!(lines[0], "erase block 9: 2 erases recorded, 0 replayed");
    }
}
