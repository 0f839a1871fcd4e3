//! Whether reclaim unit handles and reclaim groups fit a space.

use crate::{Layout, Placement, PlacementHandle, UnitReference, reserve, segments, staging};
use diecut_vssd::space::EraseBlockSpace;

/// Why a log cannot have so many reclaim unit handles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlacementError {
    /// There are none, or more than the format can tell apart.
    #[error("{handles} reclaim unit handles: a vSSD has 1 to {}", PlacementHandle::COUNT_MAX)]
    Count {
        /// Handles that were asked for.
        handles: u16,
    },
    /// Units cannot be shared out evenly.
    #[error("{groups} reclaim groups: the vSSD has {units} units, so use a number that divides them")]
    Groups {
        /// Groups that were asked for.
        groups: u16,
        /// Units of the vSSD.
        units: u16,
    },
    /// More handles in groups than the format can tell apart.
    #[error(
        "{handles} reclaim unit handles in each of {groups} reclaim groups: both together make no more than {}, so ask for fewer of one",
        UnitReference::COUNT_MAX
    )]
    References {
        /// Handles that were asked for.
        handles: u16,
        /// Groups that were asked for.
        groups: u16,
    },
    /// Each handle keeps a reclaim unit open in each group, and each stream of the cleaner, too.
    #[error(
        "{handles} reclaim unit handles need {needed} reclaim units in each reclaim group, and the vSSD has {available} there: ask for fewer or more capacity"
    )]
    ReclaimUnits {
        /// Handles that were asked for.
        handles: u16,
        /// Reclaim units of a group without which nothing could be stored.
        needed: u32,
        /// Those of a group.
        available: u32,
    },
    /// Each handle keeps a slot of protected memory for each group.
    #[error(
        "{handles} reclaim unit handles in {groups} reclaim groups need {needed} slots of protected memory, and the vSSD has {available}: ask for fewer"
    )]
    Slots {
        /// Handles that were asked for.
        handles: u16,
        /// Groups that were asked for.
        groups: u16,
        /// Slots without which they would wait for each other.
        needed: u32,
        /// Those of the vSSD.
        available: u32,
    },
}

impl Placement {
    /// Whether a log on this space, with so much protected memory, can have these handles.
    ///
    /// # Errors
    /// What is missing, with the figure.
    pub fn check(
        self,
        space: &dyn EraseBlockSpace,
        staging_size_bytes: Option<usize>,
    ) -> Result<(), PlacementError> {
        let Placement { handles, groups, .. } = self;
        if !(1..=PlacementHandle::COUNT_MAX).contains(&handles) {
            return Err(PlacementError::Count { handles });
        }
        let units = space.unit_count();
        if groups == 0 || !units.is_multiple_of(groups) {
            return Err(PlacementError::Groups { groups, units });
        }
        if self.references() > UnitReference::COUNT_MAX.into() {
            return Err(PlacementError::References { handles, groups });
        }
        self.check_fitting(self, space, staging_size_bytes)
    }

    /// Whether a log whose segments lie as these groups say has room for what `fitting` tells apart.
    fn check_fitting(
        self,
        fitting: Placement,
        space: &dyn EraseBlockSpace,
        staging_size_bytes: Option<usize>,
    ) -> Result<(), PlacementError> {
        let Placement { handles, groups, .. } = fitting;
        let layout = staging::layout_for(space, staging_size_bytes, self, fitting);
        let available = segments::count_for(&layout, space) / u32::from(groups);
        let needed = reserve::kept_segments(&layout, available) + 1;
        if needed > available {
            return Err(PlacementError::ReclaimUnits { handles, needed, available });
        }
        let slots = staging::protected_slots(&layout, staging_size_bytes) as u32;
        let needed = staging::slots_needed(&layout) as u32;
        if fitting.references() > 1 && slots > 0 && slots < needed {
            return Err(PlacementError::Slots { handles, groups, needed, available: slots });
        }
        Ok(())
    }

    /// Bytes of protected memory with which no handle needs filler, where there are fewer of them. What a handle wrote last stays there until
    /// units behind it are programmed, if a power cut can destroy it on flash until then. `None` if there are enough.
    pub fn wants_staging_bytes(
        self,
        space: &dyn EraseBlockSpace,
        staging_size_bytes: Option<usize>,
    ) -> Option<usize> {
        let layout = staging::layout_for(space, staging_size_bytes, self, self);
        let unsafe_chunks = self.references() as usize * layout.unsafe_tail_chunks() as usize;
        let slots = staging::slots_needed(&layout) + unsafe_chunks;
        let wanted = slots * staging::Slot::size_bytes(&layout);
        (self.references() > 1 && staging_size_bytes.is_some_and(|bytes| bytes < wanted)).then_some(wanted)
    }

    /// Where segments of a log lie that was made with these, and what it tells apart: as many of the handles as fit, and where there are
    /// several groups everything or nothing. What it cannot have goes to the first one. A log that was made with them lacks them only when it has
    /// less protected memory than then.
    pub(crate) fn layout(self, space: &dyn EraseBlockSpace, staging_size_bytes: Option<usize>) -> Layout {
        let handles = self.handles.clamp(1, PlacementHandle::COUNT_MAX);
        let is_even = self.groups > 0 && space.unit_count().is_multiple_of(self.groups);
        let made = Placement { handles, groups: if is_even { self.groups } else { 1 }, ..self };
        let fits = |fewer: &Placement| {
            fewer.references() == 1
                || fewer.references() <= UnitReference::COUNT_MAX.into()
                    && made.check_fitting(*fewer, space, staging_size_bytes).is_ok()
        };
        let fitting = if made.groups == 1 {
            (1..=handles).rev().map(|handles| Placement { handles, ..made }).find(fits)
        } else {
            Some(made).filter(fits)
        };
        let fitting = fitting.unwrap_or(Placement { handles: 1, groups: 1, ..made });
        staging::layout_for(space, staging_size_bytes, made, fitting)
    }
}
