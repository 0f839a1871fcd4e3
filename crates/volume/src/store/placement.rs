//! Reclaim unit handles and reclaim groups of a store: what hosts are told of them (NVMe Base 2.1, flexible data placement). A reclaim unit is a segment of
//! the log: one erase block on each unit that it stripes over.

use super::Store;
use crate::contract::VolumeIndex;
use crate::placing;
use diecut_log::{HandleStatistics, Log, Placement, PlacementHandle, ReclaimGroup, SegmentIndex, StreamKind};
use diecut_vssd::space::EraseBlockSpace;

/// What became of the open reclaim unit of a handle when another one was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReclaimUnitUpdate {
    /// Something was written to it, and more could have been.
    pub was_partial: bool,
    /// IUs that it still took.
    pub remaining_ius: u64,
}

/// Where an IU lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReclaimUnit {
    /// Which reclaim unit.
    pub segment: SegmentIndex,
    /// The reclaim group that it belongs to.
    pub group: ReclaimGroup,
    /// The handle that it was opened for; 0 where the cleaner's copies of all handles share it.
    pub handle: PlacementHandle,
    /// The cleaner opened it.
    pub is_of_cleaner: bool,
}

/// Figures of one reclaim unit handle since the store was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HandleFigures {
    /// IUs that hosts wrote.
    pub host_written_ius: u64,
    /// What was programmed for it.
    pub log: HandleStatistics,
}

impl Store {
    /// The handles and groups that the store has.
    pub fn placement(&self) -> Placement {
        self.log.layout().streams.placement()
    }

    /// IUs that hosts can write to a reclaim unit.
    pub fn reclaim_unit_ius(&self) -> u64 {
        self.log.reclaim_unit_ius()
    }

    /// As [`Store::reclaim_unit_ius`], of a store that is yet to be made.
    pub fn reclaim_unit_ius_of(
        space: &dyn EraseBlockSpace,
        staging_size_bytes: Option<usize>,
        placement: Placement,
    ) -> u64 {
        Log::reclaim_unit_ius_of(space, staging_size_bytes, placement)
    }

    /// The reclaim unit that an IU of a volume lies in, if it holds data.
    ///
    /// # Panics
    /// If the volume or the IU does not exist.
    pub fn reclaim_unit_of(&self, volume: VolumeIndex, iu: u64) -> Option<ReclaimUnit> {
        let place = Some(self.maps.get(volume.0, iu)).filter(|place| place.is_place())?;
        let segment = self.log.layout().segment_of(place);
        let stream = self.log.stream_of(segment)?;
        let is_of_cleaner = stream.kind() == StreamKind::Cleaner;
        let handle = self.log.layout().streams.handle_of(stream);
        Some(ReclaimUnit { segment, group: self.log.group_of(place), handle, is_of_cleaner })
    }

    /// IUs that may live in each reclaim group.
    pub fn group_ius(&self) -> u64 {
        placing::group_ius(self.config.exported_ius, &self.log)
    }

    /// IUs that hosts can still write to the open reclaim unit of a handle in a group that there is. Padding takes of it too.
    pub fn remaining_ius(&self, group: ReclaimGroup, handle: PlacementHandle) -> u64 {
        self.log.remaining_ius(group, handle)
    }

    /// Figures of the handles, in their order.
    pub fn handle_figures(&self) -> impl ExactSizeIterator<Item = HandleFigures> {
        let written = self.changes.handle_written_ius;
        let of_log = self.log.handle_statistics().iter().zip(written);
        of_log.map(|(log, host_written_ius)| HandleFigures { host_written_ius, log: *log })
    }

    /// Ends the open reclaim unit of a handle in a group that there is: what is written next goes to another one. Call [`Store::work`] after it. Of a store that
    /// opens nothing is open yet.
    pub fn update_reclaim_unit(
        &mut self,
        group: ReclaimGroup,
        handle: PlacementHandle,
        space: &mut dyn EraseBlockSpace,
    ) -> ReclaimUnitUpdate {
        let remaining_ius = self.log.remaining_ius(group, handle);
        if !self.is_ready() {
            return ReclaimUnitUpdate { was_partial: false, remaining_ius };
        }
        self.rest.end();
        let was_partial = self.log.end_reclaim_unit(group, handle, space);
        ReclaimUnitUpdate { was_partial, remaining_ius }
    }
}
