//! Whether reclaim unit handles fit a space.

use crate::{Placement, PlacementHandle, reserve, segments, staging};
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
    /// Each handle keeps a reclaim unit open, and each stream of the cleaner, too.
    #[error(
        "{handles} reclaim unit handles need {needed} reclaim units, and the vSSD has {available}: ask for fewer or more capacity"
    )]
    ReclaimUnits {
        /// Handles that were asked for.
        handles: u16,
        /// Reclaim units without which nothing could be stored.
        needed: u32,
        /// Those of the vSSD.
        available: u32,
    },
    /// Each handle keeps a slot of protected memory.
    #[error(
        "{handles} reclaim unit handles need {needed} slots of protected memory, and the vSSD has {available}: ask for fewer"
    )]
    Slots {
        /// Handles that were asked for.
        handles: u16,
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
        let handles = self.handles;
        if !(1..=PlacementHandle::COUNT_MAX).contains(&handles) {
            return Err(PlacementError::Count { handles });
        }
        let layout = staging::layout_for(space, staging_size_bytes, self);
        let available = segments::count_for(&layout, space);
        let needed = reserve::kept_segments(&layout, available) + 1;
        if needed > available {
            return Err(PlacementError::ReclaimUnits { handles, needed, available });
        }
        let slots = staging::protected_slots(&layout, staging_size_bytes) as u32;
        let needed = staging::slots_needed(&layout) as u32;
        if handles > 1 && slots > 0 && slots < needed {
            return Err(PlacementError::Slots { handles, needed, available: slots });
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
        let layout = staging::layout_for(space, staging_size_bytes, self);
        let unsafe_chunks = usize::from(self.handles) * layout.unsafe_tail_chunks() as usize;
        let slots = staging::slots_needed(&layout) + unsafe_chunks;
        let wanted = slots * staging::Slot::size_bytes(&layout);
        (self.handles > 1 && staging_size_bytes.is_some_and(|bytes| bytes < wanted)).then_some(wanted)
    }

    /// As many of these handles as fit: a log that was made with them always has them. What it cannot have goes to the first one.
    pub(crate) fn fitting(self, space: &dyn EraseBlockSpace, staging_size_bytes: Option<usize>) -> Placement {
        let handles = self.handles.clamp(1, PlacementHandle::COUNT_MAX);
        let fits = |handles: &u16| {
            let fewer = Placement { handles: *handles, ..self };
            *handles == 1 || fewer.check(space, staging_size_bytes).is_ok()
        };
        let handles = (1..=handles).rev().find(fits).unwrap_or(1);
        Placement { handles, ..self }
    }
}
