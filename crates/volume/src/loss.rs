//! What recovery looked for and did not find, and what is done about it.
//!
//! A store that misses something takes no writes and changes nothing on the medium, so that a second look at it
//! ([`Recovery::Mend`]) meets what the first one met. If that look finds everything, the store is as before. What is lost for good
//! can be accepted ([`Recovery::Accept`]): reads of lost ranges fail until they are written or deallocated, and of records that
//! are lost the store says that they were. Either is over when an anchor holds that no longer names what is missing
//! ([`crate::Store::is_mending`]).

use crate::contract::VolumeIndex;
use diecut_units::IU_SIZE_BYTES;
use diecut_vssd::space::LogicalBlock;

/// What an opening does about what is missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Recovery {
    /// Takes no writes if anything is missing.
    #[default]
    Strict,
    /// The same, but leaves of the map that an older version emptied without a record are not missed.
    Mend,
    /// Goes on without what is lost.
    Accept,
}

/// Something that recovery missed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// A program unit of an anchor cannot be read.
    Anchor {
        /// Its erase block.
        block: LogicalBlock,
        /// The program unit.
        unit: u32,
    },
    /// The newest anchor says what cannot be.
    AnchorContent,
    /// No page of an erase block says which segment it belongs to.
    Mark {
        /// The erase block.
        block: LogicalBlock,
    },
    /// A chunk head cannot be read, and something was written behind it.
    Head {
        /// Its segment.
        segment: u32,
        /// Its program unit.
        unit: u32,
    },
    /// Records of a chunk contradict themselves, or name what cannot be.
    Records {
        /// Its segment.
        segment: u32,
    },
    /// Slots of protected memory that are damaged: the last acknowledged writes were there.
    Staging {
        /// How many.
        slots: u32,
    },
    /// A leaf of a volume's map.
    Leaf {
        /// The volume.
        volume: VolumeIndex,
        /// The leaf.
        leaf: u64,
        /// IUs of a leaf.
        leaf_ius: u64,
    },
    /// The map names erase blocks that are not there.
    Places {
        /// The volume.
        volume: VolumeIndex,
        /// IUs that lay there.
        ius: u64,
    },
    /// All of a volume that was made.
    Volume {
        /// The volume.
        volume: VolumeIndex,
    },
    /// The newest anchor needs what this program does not understand: nothing is lost, but another version wrote it.
    Features {
        /// A bit for each feature.
        features: u64,
    },
    /// A segment that another version wrote: nothing is lost, but this program cannot read it.
    OtherVersion {
        /// The segment.
        segment: u32,
    },
}

impl Missing {
    /// Whether it told which data is the newest: without it, older data may show, and nobody knows where.
    pub fn is_record(&self) -> bool {
        !matches!(
            self,
            Missing::Leaf { .. }
                | Missing::Places { .. }
                | Missing::Volume { .. }
                | Missing::Features { .. }
                | Missing::OtherVersion { .. }
        )
    }

    /// Why no more is written.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Missing::OtherVersion { .. } | Missing::Features { .. } => {
                "the store was written by another version"
            }
            Missing::Staging { .. } => "protected memory is damaged: the last acknowledged writes are lost",
            Missing::Leaf { .. } | Missing::Places { .. } => {
                "the medium lost a part of the map: reads of what lay there fail"
            }
            Missing::Volume { .. } => "the medium lost all of a volume that was made: reads of it fail",
            _ => "the medium lost records of writes: some data may be older than acknowledged",
        }
    }

    /// For people; `name` tells how a volume is called.
    pub fn describe(&self, name: impl Fn(VolumeIndex) -> String) -> String {
        let at = |block: &LogicalBlock| format!("erase block {} of unit {}", block.index, block.unit.0);
        match self {
            Missing::Anchor { block, unit } => {
                format!("anchor: program unit {unit} of {} cannot be read", at(block))
            }
            Missing::AnchorContent => "anchor: the newest one says what cannot be".to_owned(),
            Missing::Mark { block } => {
                format!("segment: no page of {} says which segment it belongs to", at(block))
            }
            Missing::Head { segment, unit } => {
                format!("records: the chunk head at program unit {unit} of segment {segment} cannot be read")
            }
            Missing::Records { segment } => {
                format!("records: a chunk of segment {segment} says what cannot be")
            }
            Missing::Staging { slots } => format!("protected memory: {slots} staging slots are damaged"),
            Missing::Leaf { volume, leaf, leaf_ius } => {
                let bytes = leaf_ius * IU_SIZE_BYTES as u64;
                format!(
                    "map: the leaf of volume {} for bytes {} to {} cannot be read",
                    name(*volume),
                    leaf * bytes,
                    (leaf + 1) * bytes
                )
            }
            Missing::Places { volume, ius } => format!(
                "data: {} bytes of volume {} lay on erase blocks that are not there",
                ius * IU_SIZE_BYTES as u64,
                name(*volume)
            ),
            Missing::Volume { volume } => {
                format!("volume {}: it was made, and nothing of it is there", name(*volume))
            }
            Missing::Features { features } => {
                format!(
                    "anchor: it needs features {features:#x} of another version of the program; start that one"
                )
            }
            Missing::OtherVersion { segment } => {
                format!("segment {segment}: another version of the program wrote it; start that one")
            }
        }
    }
}

/// Of those that are missing, as many are listed.
const LISTED_MAX: usize = 64;

/// What recovery missed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// The first of them.
    pub missing: Vec<Missing>,
    /// How many more there are.
    pub more: u64,
    /// How many of all told which data is the newest ([`Missing::is_record`]).
    pub records: u64,
    /// Leaves of the map that an older version emptied without a record, and that were taken as empty.
    pub emptied_leaves: u64,
}

impl Findings {
    /// Writes down something that is missing.
    pub(crate) fn miss(&mut self, missing: Missing) {
        self.records += u64::from(missing.is_record());
        if self.missing.len() < LISTED_MAX {
            self.missing.push(missing);
        } else {
            self.more += 1;
        }
    }

    /// Whether nothing is missing.
    pub fn is_empty(&self) -> bool {
        self.missing.is_empty()
    }

    /// Whether another version wrote something: that is not lost, and cannot be accepted as lost.
    pub fn is_of_other_version(&self) -> bool {
        let is_other =
            |missing: &Missing| matches!(missing, Missing::OtherVersion { .. } | Missing::Features { .. });
        self.missing.iter().any(is_other)
    }
}

/// IUs of a volume whose reads fail, because what lay there is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LostRange {
    /// The volume.
    pub volume: VolumeIndex,
    /// First IU.
    pub first_iu: u64,
    /// Number of IUs.
    pub iu_count: u64,
}

/// What was accepted as lost since the store was made. It is part of each anchor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AcceptedLoss {
    /// IUs whose reads failed when loss was last accepted.
    pub ius: u64,
    /// Records that told which data is the newest, or what held them: since then some data may be older than acknowledged.
    pub records: u64,
}

impl AcceptedLoss {
    /// Whether there is none.
    pub fn is_none(&self) -> bool {
        *self == AcceptedLoss::default()
    }
}
