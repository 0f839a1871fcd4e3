//! vSSDs as a pool keeps them, and which dies and soft-planes are whose (`resources`).

pub(crate) mod by_id;
pub(crate) mod purge;
pub(crate) mod resources;

use crate::VssdId;
use crate::erases::Heat;
use diecut_spec::Isolation;
use purge::Purge;
use resources::UnitPlace;

/// More vSSDs than this are never made on one device: a number above it is damage.
pub(crate) const VSSD_NUMBERS_MAX: u32 = 1 << 24;

pub(crate) struct Unit {
    pub place: UnitPlace,
    /// Its flow at the die.
    pub flow: u16,
    /// The die it moves to, if its die's content is being exchanged.
    pub destination: Option<Destination>,
    pub heat: Heat,
    /// Erase blocks it lost beyond the die's reserve.
    pub lost_blocks: u16,
    pub map: Vec<u32>,
    pub free_indices: Vec<u32>,
}

/// Where a unit moves to.
pub(crate) struct Destination {
    pub die: u32,
    pub flow: u16,
}

impl Unit {
    /// Its flow at one of the dies it lies on.
    pub fn flow_at(&self, die: u32) -> u16 {
        match &self.destination {
            Some(destination) if destination.die == die => destination.flow,
            _ => self.flow,
        }
    }
}

pub(crate) struct Vssd {
    pub id: VssdId,
    pub isolation: Isolation,
    pub units: Vec<Unit>,
    pub operations: u32,
    /// IUs handed over for its appends, since the pool was opened.
    pub appended_ius: u64,
    /// IUs of headers of its erase blocks, since then.
    pub header_ius: u64,
    /// Bytes that the medium read for it, since then.
    pub read_bytes: u64,
    pub read_only: bool,
    /// Rises whenever erase blocks that its holder may take became more or fewer.
    pub free_changes: u64,
    pub erases: u64,
    /// What of it is being erased.
    pub purge: Option<Box<Purge>>,
}

/// Where an independent unit of a vSSD lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnitLocation {
    /// Channel.
    pub channel: u16,
    /// Die within the channel.
    pub die: u16,
    /// Soft-plane within the die; `None`: the whole die.
    pub soft_plane: Option<u16>,
}
