//! Reclaim unit handles of hosts: what each write named is known by its version alone, so any IU that is certain says where it must lie, whatever
//! happened to it since. When all is calm, hosts end reclaim units, write, and compare what they are told with what they did.

use super::{Purpose, Runner};
use crate::oracle::{Finding, WriteId};
use crate::placed::Placed;
use crate::plan::{Action, Lane, PlacementStep, Range, group_of, pid_of, placed_by};
use crate::run::administrator::Sight;
use crate::system::{Accounting, HostCommand, PlacementStatistics};
use crate::tag::VolumeNumber;
use diecut_nvme::fdp::{PlacementId, parse_status};
use std::collections::{BTreeMap, BTreeSet};

/// IUs of the write after which a reclaim unit must take so many fewer.
const COUNTED_IUS: u32 = 3;
/// Writes of one IU between two looks at the statistics.
const MEASURED_WRITES: u64 = 200;
/// How often a moment is waited for in which nothing is programmed.
const STILL_TRIES: u32 = 4;

/// How much of placement a run looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct PlacementLooks {
    /// IUs of which it was known where they must lie, by the handle that their write named.
    pub placed_ius: u64,
    /// Those of them whose write named a reclaim group, too.
    pub grouped_ius: u64,
    /// Those of them that lay in a segment of the cleaner, of persistently isolated handles.
    pub isolated_copies_ius: u64,
    /// Writes that had to take of their reclaim unit what they hold.
    pub counted: u64,
    /// Write amplifications that a host counted and that were compared with the medium.
    pub measured: u64,
}

/// What hosts know of their handles.
#[derive(Default)]
pub(super) struct Placing {
    /// Versions that copies made: they name no handle.
    copies: BTreeSet<(VolumeNumber, u32)>,
    /// The reclaim groups that versions named.
    groups: BTreeMap<(VolumeNumber, u32), u16>,
    /// Of each volume: the handle behind each placement handle, and the IUs that its reclaim unit takes, as they were told last.
    told: BTreeMap<VolumeNumber, Vec<(u16, u64)>>,
    /// The newest write of each volume.
    newest: BTreeMap<VolumeNumber, u32>,
    /// Writes that were answered, by lane.
    answered: BTreeMap<Lane, u64>,
}

impl Placing {
    pub(super) fn note_copy(&mut self, write: WriteId) {
        self.copies.insert((write.volume, write.version));
    }

    /// A write was answered.
    pub(super) fn count_answered(&mut self, lane: Lane) {
        *self.answered.entry(lane).or_default() += 1;
    }

    fn answered(&self, lane: Lane) -> u64 {
        self.answered.get(&lane).copied().unwrap_or_default()
    }

    /// The reclaim group that a version named, if it did.
    fn group(&self, volume: VolumeNumber, version: u32) -> Option<u16> {
        self.groups.get(&(volume, version)).copied()
    }

    fn placed(&self, volume: VolumeNumber, version: u32, handles: u16) -> u16 {
        if self.copies.contains(&(volume, version)) { 0 } else { placed_by(version, handles) }
    }
}

/// RGIF with so many groups.
fn group_bits(groups: u16) -> u8 {
    (u16::BITS - groups.saturating_sub(1).leading_zeros()) as u8
}

impl Runner<'_> {
    /// The command of a write, with a directive where its version has one.
    pub(super) fn write_command(
        &mut self,
        range: Range,
        data: Vec<u8>,
        fua: bool,
        write: WriteId,
    ) -> HostCommand {
        let Some(handles) = self.plan.placement_handles_of(range.volume) else {
            return HostCommand::Write(range, data, fua);
        };
        self.placing.newest.insert(range.volume, write.version);
        let Some(handle) = pid_of(write.version, handles) else {
            return HostCommand::Write(range, data, fua);
        };
        let groups = self.groups_of(range.volume);
        let group = group_of(write.version, groups);
        if groups > 1 && handle < handles {
            self.placing.groups.insert((range.volume, write.version), group);
        }
        let pid = PlacementId { group, handle }.encode(group_bits(groups));
        HostCommand::Placed(Placed::Write { range, data, fua, pid })
    }

    /// Reclaim groups that a host finds; 1 where nobody can tell now.
    fn groups_of(&self, volume: VolumeNumber) -> u16 {
        let told = || self.system.reclaim_groups_of(volume);
        if self.plan.has_groups(volume) { told().unwrap_or(1) } else { 1 }
    }

    /// What a step about handles is on the wire.
    pub(super) fn placement_command(&self, step: PlacementStep) -> (Purpose, HostCommand) {
        let volume = step.volume();
        let has =
            self.plan.placement_handles_of(volume).expect("steps about handles are of volumes with some");
        match step {
            PlacementStep::Status { .. } => (
                Purpose::HandleStatus { volume },
                HostCommand::Placed(Placed::Status { volume, descriptors: has * self.groups_of(volume) }),
            ),
            PlacementStep::Update { handles, .. } => {
                let groups = self.groups_of(volume);
                let pids = (0..handles.min(has)).flat_map(|handle| {
                    (0..groups).map(move |group| PlacementId { group, handle }.encode(group_bits(groups)))
                });
                let pids = pids.collect();
                (Purpose::HandleUpdate, HostCommand::Placed(Placed::Update { volume, pids }))
            }
        }
    }

    /// The status of a volume's handles was told.
    pub(super) fn handles_told(&mut self, volume: VolumeNumber, page: &[u8]) {
        let chosen = self.plan.placement_of(volume).expect("it was asked for");
        let told = match parse_status(page) {
            Ok(told) => told,
            Err(error) => return self.found(Finding::WrongAnswer, format!("status of {volume:?}: {error}")),
        };
        // The groups of one handle follow each other.
        let groups = told.len() / chosen.len().max(1);
        let bits = group_bits(groups as u16);
        let handles: Vec<u16> = told.iter().step_by(groups.max(1)).map(|one| one.handle.get()).collect();
        let is_right = if chosen.is_empty() { handles.len() == 1 } else { handles == chosen };
        let pid = |at: usize| {
            PlacementId { group: (at % groups) as u16, handle: (at / groups) as u16 }.encode(bits)
        };
        let pids_rise = told
            .iter()
            .enumerate()
            .all(|(at, one)| one.pid.get() == pid(at) && one.handle.get() == handles[at / groups]);
        let before = self.placing.told.get(&volume);
        let all = told.iter().map(|one| one.handle.get());
        let is_same = before.is_none_or(|before| before.iter().map(|(handle, _)| *handle).eq(all));
        if !is_right || !pids_rise || !is_same {
            let detail = format!("volume {} has handles {chosen:?}, its host is told {told:?}", volume.0);
            return self.found(Finding::WrongAnswer, detail);
        }
        let told = told.iter().map(|one| (one.handle.get(), one.available_lbas.get())).collect();
        self.placing.told.insert(volume, told);
    }

    /// Volumes with handles that their host sees, by lane.
    fn placed_volumes(&self) -> Vec<(Lane, VolumeNumber)> {
        let lanes = (0..self.plan.tenants.len() as u8).map(Lane);
        let volumes = lanes.flat_map(|lane| {
            self.plan.tenants[usize::from(lane.0)].volumes.iter().map(move |volume| (lane, volume.number))
        });
        let is_seen = |(lane, volume): &(Lane, VolumeNumber)| {
            self.plan.placement_of(*volume).is_some() && self.sight(*lane, *volume) == Sight::Yes
        };
        volumes.filter(is_seen).collect()
    }

    /// All that must be so while nothing is under way.
    pub(super) fn check_placement(&mut self) {
        let volumes = self.placed_volumes();
        if self.stop || volumes.is_empty() {
            return;
        }
        for &(lane, volume) in &volumes {
            self.ask_status(lane, volume);
        }
        self.settle_calm();
        self.check_places(&volumes);
        let mut seen = BTreeSet::new();
        for &(lane, volume) in volumes.iter().filter(|(lane, _)| seen.insert(*lane)) {
            self.check_available(lane, volume);
            self.check_statistics(lane, volume);
        }
        self.check_places(&volumes);
    }

    fn settle_calm(&mut self) {
        self.drive();
        self.come_to_rest();
    }

    fn ask_status(&mut self, lane: Lane, volume: VolumeNumber) {
        let steps = &mut self.lanes[usize::from(lane.0)].steps;
        steps.push_back(Action::Placement(PlacementStep::Status { volume }));
    }

    /// Data lie in reclaim units of the handles that their writes named, where no cleaner may mix them.
    fn check_places(&mut self, volumes: &[(Lane, VolumeNumber)]) {
        for &(lane, volume) in volumes {
            let persistent = self.plan.tenants[usize::from(lane.0)]
                .placement
                .is_some_and(|placement| placement.persistent);
            let Some(told) = self.placing.told.get(&volume).cloned() else { continue };
            for iu in 0..self.plan.volume(volume).used_ius() {
                let Some(certain) = self.oracle.certain(volume, iu) else { continue };
                let place = certain.tag.and_then(|_| self.system.unit_of(volume, iu));
                let Some(unit) = place else { continue };
                let handles = self.plan.placement_handles_of(volume).expect("it has some");
                let groups = told.len() / usize::from(handles);
                let placed = self.placing.placed(volume, certain.version, handles);
                let (wanted, _) = told[usize::from(placed) * groups];
                let group = self.placing.group(volume, certain.version);
                let looks = &mut self.outcome.placement;
                looks.placed_ius += 1;
                looks.grouped_ius += u64::from(group.is_some());
                if group.is_some_and(|group| group != unit.group) {
                    let detail = format!(
                        "volume {} IU {iu}, version {}, was written to reclaim group {group:?} and lies in {}",
                        volume.0, certain.version, unit.group
                    );
                    return self.found(Finding::Misplaced, detail);
                }
                looks.isolated_copies_ius += u64::from(persistent && unit.is_of_cleaner);
                if unit.handle != wanted && (persistent || !unit.is_of_cleaner) {
                    let detail = format!(
                        "volume {} IU {iu}, version {}, was written to handle {wanted} and lies in a reclaim unit of handle {}{}",
                        volume.0,
                        certain.version,
                        unit.handle,
                        if unit.is_of_cleaner { ", copied by the cleaner" } else { "" }
                    );
                    return self.found(Finding::Misplaced, detail);
                }
            }
        }
    }

    /// Fresh reclaim units take all that one takes, and a write takes of that of its handle alone.
    fn check_available(&mut self, lane: Lane, volume: VolumeNumber) {
        let update = PlacementStep::Update { volume, handles: u16::MAX };
        self.lanes[usize::from(lane.0)].steps.push_back(Action::Placement(update));
        self.settle_calm();
        self.ask_status(lane, volume);
        self.settle_calm();
        let Some(fresh) = self.placing.told.get(&volume).cloned() else { return };
        let range = Range { volume, first: 0, count: COUNTED_IUS };
        self.lanes[usize::from(lane.0)].steps.push_back(Action::Write { range, fua: false });
        self.drive();
        self.ask_status(lane, volume);
        self.drive();
        // Where a write lies that names no group is not known here.
        if self.stop || self.may_lack(lane) || self.plan.has_groups(volume) {
            return;
        }
        let Some(written) = self.placing.told.get(&volume).cloned() else { return };
        let version = self.placing.newest[&volume];
        let placed = usize::from(placed_by(version, fresh.len() as u16));
        let unit_ius = fresh.iter().map(|(_, available)| *available).max().expect("there is one");
        let mut wrong = fresh.iter().any(|(_, available)| *available != unit_ius);
        for (at, (_, available)) in written.iter().enumerate() {
            let left = if at == placed { unit_ius - u64::from(COUNTED_IUS) } else { unit_ius };
            // Without protected memory a write fills a program unit.
            let pads = at == placed && !self.plan.system.protected_memory;
            wrong |= if pads { *available > left } else { *available != left };
        }
        if wrong {
            let detail = format!(
                "volume {}: fresh reclaim units take {fresh:?}, after {COUNTED_IUS} IUs to placement handle {placed} {written:?}",
                volume.0
            );
            return self.found(Finding::WrongAnswer, detail);
        }
        self.outcome.placement.counted += 1;
    }

    /// Whether a lane writes to groups, which may be full.
    pub(super) fn may_fill_a_group(&self, lane: Lane) -> bool {
        self.plan.tenants[usize::from(lane.0)].placement.is_some_and(|placement| placement.groups)
    }

    /// Whether writes of a lane may be refused for what it lacks.
    fn may_lack(&self, lane: Lane) -> bool {
        self.kept.contains(&lane)
            || self.may_fill_a_group(lane)
            || self.system.may_be_full(lane)
            || !self.system.lacking_room().is_empty()
    }

    fn statistics(&mut self, lane: Lane) -> Option<PlacementStatistics> {
        self.system.ask_placement_statistics(lane);
        self.settle_calm();
        self.system.placement_statistics(lane)
    }

    /// What the host of a lane is told, and what chips did, of one moment: the cleaner may go on while a page is on its way.
    fn still_statistics(&mut self, lane: Lane) -> Option<(PlacementStatistics, Accounting)> {
        for _ in 0..STILL_TRIES {
            let before = self.system.accounting()?;
            let told = self.statistics(lane)?;
            let after = self.system.accounting()?;
            if before.chip_programmed_ius == after.chip_programmed_ius {
                return Some((told, after));
            }
        }
        None
    }

    /// Write amplification as the host of a lane counts it is that of the medium.
    fn check_statistics(&mut self, lane: Lane, volume: VolumeNumber) {
        let cuts = self.outcome.power_cuts;
        self.settle_calm();
        let before = self.still_statistics(lane);
        let beside_ius = self.system.programmed_beside(lane);
        let answered = self.placing.answered(lane);
        let ius = self.plan.volume(volume).used_ius();
        for nth in 0..MEASURED_WRITES {
            let range = Range { volume, first: nth * 37 % ius, count: 1 };
            self.lanes[usize::from(lane.0)].steps.push_back(Action::Write { range, fua: false });
        }
        self.settle_calm();
        let after = self.still_statistics(lane);
        let beside_ius = self.system.programmed_beside(lane) - beside_ius;
        // A cut that was armed at an operation of the medium may strike here.
        let is_calm = !self.stop && self.outcome.power_cuts == cuts && !self.may_lack(lane);
        let (Some((one, first)), Some((other, last)), true) = (before, after, is_calm) else { return };
        let written_ius = self.placing.answered(lane) - answered;
        let host_bytes = other.host_written_bytes - one.host_written_bytes;
        if host_bytes != u128::from(written_ius * 4096) || written_ius != MEASURED_WRITES {
            let detail = format!(
                "the host of lane {} wrote {written_ius} IUs, and is told that it wrote {host_bytes} bytes",
                lane.0
            );
            return self.found(Finding::Conservation, detail);
        }
        let media_bytes = other.media_written_bytes - one.media_written_bytes;
        let chip_ius = last.chip_programmed_ius - first.chip_programmed_ius;
        if last.programmed_migration_ius != first.programmed_migration_ius {
            // What moves for even wear is programmed for nobody, or for whose it is, and meanwhile.
            return;
        }
        let programmed_bytes = u128::from(chip_ius - beside_ius) * 4096;
        // A log of block states on flash is nobody's.
        let is_all = self.plan.system.protected_memory;
        if media_bytes > programmed_bytes || is_all && media_bytes != programmed_bytes {
            let detail = format!(
                "the host of lane {} is told of {media_bytes} bytes written to media, and chips programmed {programmed_bytes} for it: {first:?}, then {last:?}",
                lane.0
            );
            return self.found(Finding::Conservation, detail);
        }
        self.outcome.placement.measured += 1;
    }
}
