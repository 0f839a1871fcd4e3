use crate::contract::{ChunkProperties, NamespaceProperties, PlacementProperties, ZoneProperties};
use diecut_units::{ContentMode, IU_SIZE_BYTES};
use diecut_volume::contract::VolumeIndex;
use diecut_zoned::contract::ZoneSetIndex;

/// A volume store of the shard (one per vSSD); numbered by whoever routes [`crate::Outputs::volume_commands`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StoreIndex(pub u16);

/// What stands under a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backing {
    /// A volume.
    Volume {
        /// The store it lives in.
        store: StoreIndex,
        /// The volume within its store.
        volume: VolumeIndex,
    },
    /// Zones on erase blocks.
    Zones {
        /// The store they live in.
        store: StoreIndex,
        /// Which of its zones.
        set: ZoneSetIndex,
    },
    /// Chunks, which are the erase blocks.
    Chunks {
        /// The store they live in.
        store: StoreIndex,
    },
    /// Nothing: commands complete at once and writes are forgotten. For benchmarks of what lies above.
    Null {
        /// What reads give.
        reads: NullReads,
    },
}

/// What reads of a null namespace give; either way never the bytes of somebody else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NullReads {
    /// The one shared buffer of zeros: no byte is touched, as a zero-copy read cache would do.
    SharedZeros,
    /// The caller's buffer, filled with zeros: what a read costs that copies into place.
    FilledZeros,
}

/// A namespace: its shape. What it stands on is its [`Backing`]. Logical blocks are IUs of 4096 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamespaceDefinition {
    /// Logical blocks a host may address.
    pub size_lbas: u64,
    /// Largest transfer of one command, in logical blocks.
    pub transfer_max_lbas: u32,
    /// What stands for the content of a logical block in buffers.
    pub content_mode: ContentMode,
    /// A host must flush to be safe from power cuts.
    pub volatile_cache: bool,
    /// Preferred write granularity and alignment, in logical blocks.
    pub preferred_write_lbas: u32,
    /// Takes no writes.
    pub read_only: bool,
    /// What its zones are like, if it has zones.
    pub zones: Option<ZoneProperties>,
    /// Which reclaim unit handles it has, if its hosts can choose among them.
    pub placement: Option<PlacementProperties>,
    /// What its chunks are like, if it has chunks.
    pub chunks: Option<ChunkProperties>,
    /// Whether its medium erases what was given back. A drive that hides its flash does not.
    pub erases: bool,
}

impl NamespaceDefinition {
    /// log2 of the logical block size: one logical block is one IU.
    pub const LBA_SIZE_LOG2: u8 = IU_SIZE_BYTES.trailing_zeros() as u8;

    /// What the namespace says of itself, with `used_lbas` of its volume.
    pub fn properties(&self, used_lbas: u64) -> NamespaceProperties {
        assert!(
            self.zones.is_none() || self.chunks.is_none(),
            "I-N5: a namespace has zones, or chunks, or neither"
        );
        NamespaceProperties {
            size_lbas: self.size_lbas,
            capacity_lbas: match (&self.zones, &self.chunks) {
                (Some(zones), _) => (self.size_lbas >> zones.size_lbas_log2) * u64::from(zones.capacity_lbas),
                (_, Some(ChunkProperties { shape, .. })) => {
                    u64::from(shape.all_chunks()) * u64::from(shape.chunk_ius())
                }
                _ => self.size_lbas,
            },
            used_lbas: used_lbas.min(self.size_lbas),
            lba_size_log2: NamespaceDefinition::LBA_SIZE_LOG2,
            transfer_max_lbas: self.transfer_max_lbas,
            volatile_cache: self.volatile_cache,
            preferred_write_lbas: self.preferred_write_lbas,
            read_only: self.read_only,
            zones: self.zones,
            placement: self.placement,
            chunks: self.chunks,
            purges: false,
        }
    }
}
