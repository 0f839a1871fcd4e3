//! What a vSSD keeps for its hosts: volumes in a log, zones, or chunks.

use diecut_openchannel::ChunkStore;
use diecut_openchannel::contract::ChunkCompletion;
use diecut_units::Time;
use diecut_volume::Store;
use diecut_volume::contract::VolumeCompletion;
use diecut_vssd::SpaceCompletion;
use diecut_vssd::space::EraseBlockSpace;
use diecut_zoned::ZoneStore;
use diecut_zoned::contract::ZoneCompletion;

/// See the module.
#[allow(clippy::large_enum_variant, reason = "volumes are what most vSSDs keep, and each command looks here")]
pub(crate) enum Kept {
    Volumes(Store),
    Zones { store: Box<ZoneStore>, is_quiescing: bool },
    Chunks { store: Box<ChunkStore>, is_quiescing: bool },
}

/// Where answers go.
pub(crate) struct KeptAnswers<'a> {
    pub of_volumes: &'a mut Vec<VolumeCompletion>,
    pub of_zones: &'a mut Vec<ZoneCompletion>,
    pub of_chunks: &'a mut Vec<ChunkCompletion>,
}

impl Kept {
    /// Whether it found again what there was.
    pub fn is_ready(&self) -> bool {
        match self {
            Kept::Volumes(store) => store.is_ready(),
            Kept::Zones { store, .. } => store.is_ready(),
            Kept::Chunks { store, .. } => store.is_ready(),
        }
    }

    /// Why it takes no writes as a whole. Zones and chunks refuse one by one.
    pub fn read_only_reason(&self) -> Option<&'static str> {
        match self {
            Kept::Volumes(store) => store.read_only_reason(),
            Kept::Zones { .. } | Kept::Chunks { .. } => None,
        }
    }

    /// Whether that is because the medium has no room at present.
    pub fn lacks_room(&self) -> bool {
        match self {
            Kept::Volumes(store) => store.lacks_room(),
            Kept::Zones { .. } | Kept::Chunks { .. } => false,
        }
    }

    pub fn deadline(&self) -> Time {
        match self {
            Kept::Volumes(store) => store.deadline(),
            Kept::Zones { store, .. } => store.deadline(),
            Kept::Chunks { .. } => Time::NEVER,
        }
    }

    pub fn shrink(&mut self, slabs_max: u32) -> usize {
        match self {
            Kept::Volumes(store) => store.shrink(slabs_max),
            Kept::Zones { store, .. } => store.shrink(slabs_max),
            Kept::Chunks { store, .. } => store.shrink(slabs_max),
        }
    }

    /// See [`Store::quiesce`]. What zones program ends by itself when no command comes.
    pub fn quiesce(&mut self, quiesce: bool) {
        match self {
            Kept::Volumes(store) => store.quiesce(quiesce),
            Kept::Zones { is_quiescing, .. } | Kept::Chunks { is_quiescing, .. } => *is_quiescing = quiesce,
        }
    }

    /// See [`Store::quiesced`].
    pub fn quiesced(&self) -> Option<bool> {
        match self {
            Kept::Volumes(store) => store.quiesced(),
            Kept::Zones { is_quiescing, .. } | Kept::Chunks { is_quiescing, .. } => {
                is_quiescing.then_some(true)
            }
        }
    }

    #[inline]
    pub fn complete(
        &mut self,
        completion: SpaceCompletion,
        space: &mut dyn EraseBlockSpace,
        answers: &mut KeptAnswers<'_>,
    ) {
        match self {
            Kept::Volumes(store) => store.complete(completion, space, answers.of_volumes),
            Kept::Zones { store, .. } => store.complete(completion, space, answers.of_zones),
            Kept::Chunks { store, .. } => store.complete(completion, space, answers.of_chunks),
        }
    }

    pub fn work(&mut self, now: Time, space: &mut dyn EraseBlockSpace, answers: &mut KeptAnswers<'_>) {
        match self {
            Kept::Volumes(store) => store.work(now, space, answers.of_volumes),
            Kept::Zones { store, .. } => store.work(now, space, answers.of_zones),
            Kept::Chunks { store, .. } => store.work(space, answers.of_chunks),
        }
    }

    /// In lines, for people who debug.
    pub fn describe(&self) -> String {
        match self {
            Kept::Volumes(store) => store.describe(),
            Kept::Zones { store, .. } => format!("zones: {:?}\n", store.statistics()),
            Kept::Chunks { store, .. } => format!("chunks: {:?}\n", store.statistics()),
        }
    }

    /// The volumes, if it keeps volumes.
    pub fn volumes(&self) -> Option<&Store> {
        match self {
            Kept::Volumes(store) => Some(store),
            Kept::Zones { .. } | Kept::Chunks { .. } => None,
        }
    }

    /// The volumes.
    ///
    /// # Panics
    /// If it keeps zones.
    pub fn expect_volumes(&self) -> &Store {
        self.volumes().expect("I-S21: volumes are asked of a store of volumes")
    }

    /// The volumes, to be changed.
    ///
    /// # Panics
    /// If it keeps zones.
    pub fn volumes_mut(&mut self) -> &mut Store {
        match self {
            Kept::Volumes(store) => store,
            Kept::Zones { .. } | Kept::Chunks { .. } => {
                unreachable!("I-S21: volumes are asked of a store of volumes")
            }
        }
    }

    /// The zones, if it keeps zones.
    pub fn zones(&self) -> Option<&ZoneStore> {
        match self {
            Kept::Zones { store, .. } => Some(store),
            Kept::Volumes(_) | Kept::Chunks { .. } => None,
        }
    }

    /// The zones, to be changed.
    ///
    /// # Panics
    /// If it keeps volumes.
    pub fn zones_mut(&mut self) -> &mut ZoneStore {
        match self {
            Kept::Zones { store, .. } => store,
            Kept::Volumes(_) | Kept::Chunks { .. } => {
                unreachable!("I-S21: zones are asked of a store of zones")
            }
        }
    }

    /// The chunks, if it keeps chunks.
    pub fn chunks(&self) -> Option<&ChunkStore> {
        match self {
            Kept::Chunks { store, .. } => Some(store),
            Kept::Volumes(_) | Kept::Zones { .. } => None,
        }
    }

    /// The chunks, to be changed.
    ///
    /// # Panics
    /// If it keeps something else.
    pub fn chunks_mut(&mut self) -> &mut ChunkStore {
        match self {
            Kept::Chunks { store, .. } => store,
            Kept::Volumes(_) | Kept::Zones { .. } => {
                unreachable!("I-S21: chunks are asked of a store of chunks")
            }
        }
    }
}
