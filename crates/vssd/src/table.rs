//! The journal of block states, kept in place in protected memory: one entry per erase block and one per vSSD.
//!
//! Protected memory survives the process and the power, and one aligned word of it changes at once. So the journal needs
//! no log: each entry has two slots; the one that is not current is written and made current by its first word.
//!
//! Layout, little endian:
//!
//! | part   | size                        | content                                                          |
//! |--------|-----------------------------|------------------------------------------------------------------|
//! | header | 64                          | `DIECUTBT`, version 1 (4), CRC-32C of bytes 16..64 (4), then the device's geometry (7 x 4) and soft-planes per die (4) |
//! | blocks | 2 x 32 per erase block      | see below, die by die                                            |
//! | pages  | 8 per erase block           | pages programmed (4), low half of the allocation sequence they belong to (4) |
//! | vSSDs  | 2 x (32 + 8 per unit) each  | see below                                                        |
//!
//! Slot of a block: counter (4) and CRC-32C of the counter and bytes 8..32 (4), published as one word; owner (4), unit (2),
//! purpose (1), state (1: 0 free, 1 held, 2 held after a failed program, 3 retired), logical index (4), erase count (4),
//! allocation sequence (8). Slot of a vSSD: counter and CRC as above over the rest; id (4), state (1: 0 removed, 1
//! placed), isolation (1), units (2), reserved (16), then for each unit its die (4), soft-plane (2, FFFFh: the whole
//! die) and two bytes of zero. The valid slot with the higher counter counts; an entry without a valid slot is as
//! made new. A reader refuses other versions and geometries.

use crate::resources::UnitPlace;
use crate::{Isolation, LogicalBlock, Purpose, UnitIndex, VssdId};
use diecut_units::{Geometry, ProtectedRegion, checksum};

const MAGIC: &[u8; 8] = b"DIECUTBT";
const VERSION: u32 = 1;
const HEADER_SIZE_BYTES: usize = 64;
const SLOT_SIZE_BYTES: usize = 32;
const PLACED: u8 = 1;

/// Why block states cannot be taken over.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// The region is too small for the device.
    #[error(
        "block states of this device need {needed_bytes} bytes of protected memory, but there are {given_bytes}"
    )]
    TooSmall {
        /// Needed.
        needed_bytes: usize,
        /// Given.
        given_bytes: usize,
    },
    /// Neither empty nor block states.
    #[error(
        "protected memory holds something that is not block states, or a damaged header; nothing was changed"
    )]
    Damaged,
    /// Written by another version.
    #[error("block states have format version {0}; this program knows version 1")]
    Version(u32),
    /// They belong to another device or another division of its dies.
    #[error("block states belong to a device of another geometry, or to dies cut into other soft-planes")]
    Geometry,
    /// An entry names what does not exist.
    #[error("block states are damaged: {0}")]
    Entry(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BlockState {
    Free,
    Held,
    HeldFailed,
    Retired,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockEntry {
    pub state: BlockState,
    pub owner: VssdId,
    pub logical: LogicalBlock,
    pub purpose: Purpose,
    pub erase_count: u32,
    pub sequence: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VssdEntry {
    pub id: VssdId,
    pub placed: bool,
    pub isolation: Isolation,
    pub units: Vec<UnitPlace>,
}

/// See the module.
pub(crate) struct BlockTable {
    region: ProtectedRegion,
    blocks: usize,
    vssd_slots: usize,
    units_max: usize,
}

fn word_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

impl BlockTable {
    /// Bytes that the journal of a device takes.
    pub fn size_bytes(geometry: &Geometry, soft_planes_per_die: u16) -> usize {
        let blocks = geometry.erase_blocks() as usize;
        let units = geometry.dies() as usize * usize::from(soft_planes_per_die);
        let size = HEADER_SIZE_BYTES + blocks * (2 * SLOT_SIZE_BYTES + 8) + units * 2 * vssd_slot_size(units);
        size.next_multiple_of(4096)
    }

    fn header(geometry: &Geometry, soft_planes_per_die: u16) -> [u8; HEADER_SIZE_BYTES] {
        let mut header = [0; HEADER_SIZE_BYTES];
        header[..8].copy_from_slice(MAGIC);
        header[8..12].copy_from_slice(&VERSION.to_le_bytes());
        let words = [
            geometry.channels.into(),
            geometry.dies_per_channel.into(),
            geometry.planes_per_die.into(),
            geometry.blocks_per_plane,
            geometry.pages_per_block,
            geometry.page_size_bytes,
            geometry.oob_size_bytes,
            soft_planes_per_die.into(),
        ];
        for (index, word) in words.iter().enumerate() {
            header[16 + index * 4..][..4].copy_from_slice(&word.to_le_bytes());
        }
        let sum = checksum(&header[16..]);
        header[12..16].copy_from_slice(&sum.to_le_bytes());
        header
    }

    /// Takes over what the region holds, or makes it new if it is all zeros at its start. Says which.
    pub fn open(
        mut region: ProtectedRegion,
        geometry: &Geometry,
        soft_planes_per_die: u16,
    ) -> Result<(BlockTable, bool), OpenError> {
        let needed_bytes = BlockTable::size_bytes(geometry, soft_planes_per_die);
        if region.len() < needed_bytes {
            return Err(OpenError::TooSmall { needed_bytes, given_bytes: region.len() });
        }
        let header = BlockTable::header(geometry, soft_planes_per_die);
        let is_new = region[..8] == [0; 8];
        if is_new {
            region[..needed_bytes].fill(0);
            region[8..HEADER_SIZE_BYTES].copy_from_slice(&header[8..]);
            region.publish(0, u64::from_le_bytes(*MAGIC));
        } else if region[..8] != *MAGIC {
            return Err(OpenError::Damaged);
        } else if word_at(&region, 8) != VERSION {
            return Err(OpenError::Version(word_at(&region, 8)));
        } else if checksum(&region[16..HEADER_SIZE_BYTES]) != word_at(&region, 12) {
            return Err(OpenError::Damaged);
        } else if region[16..HEADER_SIZE_BYTES] != header[16..] {
            return Err(OpenError::Geometry);
        }
        let units_max = geometry.dies() as usize * usize::from(soft_planes_per_die);
        let blocks = geometry.erase_blocks() as usize;
        Ok((BlockTable { region, blocks, vssd_slots: units_max, units_max }, is_new))
    }

    fn pages_at(&self, block: usize) -> usize {
        HEADER_SIZE_BYTES + self.blocks * 2 * SLOT_SIZE_BYTES + block * 8
    }
    fn vssd_at(&self, slot: usize) -> usize {
        HEADER_SIZE_BYTES
            + self.blocks * (2 * SLOT_SIZE_BYTES + 8)
            + slot * 2 * vssd_slot_size(self.units_max)
    }

    /// The current slot of an entry: its place and counter; the other one is written next.
    fn current(&self, first: usize, size: usize) -> Option<(usize, u32)> {
        let valid = |at: usize| {
            let bytes = &self.region[at..at + size];
            let counter = word_at(bytes, 0);
            (counter > 0 && word_at(bytes, 4) == sum_of(counter, &bytes[8..])).then_some((at, counter))
        };
        match (valid(first), valid(first + size)) {
            (Some(one), Some(other)) => Some(if one.1 > other.1 { one } else { other }),
            (one, other) => one.or(other),
        }
    }

    fn write(&mut self, first: usize, body: &[u8]) {
        let size = body.len() + 8;
        let current = self.current(first, size);
        let at = if current.is_some_and(|(at, _)| at == first) { first + size } else { first };
        let counter = current.map_or(1, |(_, counter)| counter + 1);
        self.region[at + 8..at + size].copy_from_slice(body);
        self.region.publish(at, u64::from(counter) | u64::from(sum_of(counter, body)) << 32);
    }

    pub fn set_block(&mut self, block: u32, entry: &BlockEntry) {
        let mut body = [0; SLOT_SIZE_BYTES - 8];
        body[..4].copy_from_slice(&entry.owner.0.to_le_bytes());
        body[4..6].copy_from_slice(&entry.logical.unit.0.to_le_bytes());
        body[6] = entry.purpose.0;
        body[7] = match entry.state {
            BlockState::Free => 0,
            BlockState::Held => 1,
            BlockState::HeldFailed => 2,
            BlockState::Retired => 3,
        };
        body[8..12].copy_from_slice(&entry.logical.index.to_le_bytes());
        body[12..16].copy_from_slice(&entry.erase_count.to_le_bytes());
        body[16..24].copy_from_slice(&entry.sequence.to_le_bytes());
        self.write(HEADER_SIZE_BYTES + block as usize * 2 * SLOT_SIZE_BYTES, &body);
    }

    /// The entry of a block; `None` if it was never written.
    pub fn block(&self, block: u32) -> Option<BlockEntry> {
        let (at, _) =
            self.current(HEADER_SIZE_BYTES + block as usize * 2 * SLOT_SIZE_BYTES, SLOT_SIZE_BYTES)?;
        decode_block(&self.region[at + 8..at + SLOT_SIZE_BYTES])
    }

    /// How many pages of a block's present allocation are programmed.
    pub fn set_pages(&mut self, block: u32, pages: u32, sequence: u64) {
        let at = self.pages_at(block as usize);
        self.region.publish(at, u64::from(pages) | sequence << 32);
    }

    /// See [`BlockTable::set_pages`]; 0 if the pages belong to another allocation.
    pub fn pages(&self, block: u32, sequence: u64) -> u32 {
        let at = self.pages_at(block as usize);
        if word_at(&self.region, at + 4) == sequence as u32 { word_at(&self.region, at) } else { 0 }
    }

    /// Writes a vSSD's entry: into its own slot, or into one whose vSSD is gone.
    ///
    /// # Panics
    /// If there is no room: there are as many slots as units.
    pub fn set_vssd(&mut self, entry: &VssdEntry) {
        let entries: Vec<Option<VssdEntry>> = (0..self.vssd_slots).map(|slot| self.vssd(slot)).collect();
        let own = entries.iter().position(|other| other.as_ref().is_some_and(|other| other.id == entry.id));
        // The slot of the newest id stays: it says which ids were given.
        let newest = entries.iter().flatten().map(|other| other.id).max();
        let unused = entries.iter().position(|other| match other {
            None => true,
            Some(other) => !other.placed && Some(other.id) != newest,
        });
        let last = entries.iter().position(|other| other.as_ref().is_some_and(|other| !other.placed));
        let slot = own.or(unused).or(last).expect("there are as many slots as units");
        let mut body = vec![0; vssd_slot_size(self.units_max) - 8];
        body[..4].copy_from_slice(&entry.id.0.to_le_bytes());
        body[4] = if entry.placed { PLACED } else { 0 };
        body[5] = match entry.isolation {
            Isolation::Channel => 0,
            Isolation::Die => 1,
            Isolation::Software => 2,
            Isolation::None => 3,
        };
        body[6..8].copy_from_slice(&(entry.units.len() as u16).to_le_bytes());
        for (index, unit) in entry.units.iter().enumerate() {
            let at = 24 + index * 8;
            body[at..at + 4].copy_from_slice(&unit.die.to_le_bytes());
            body[at + 4..at + 6].copy_from_slice(&unit.soft_plane.unwrap_or(u16::MAX).to_le_bytes());
        }
        let at = self.vssd_at(slot);
        self.write(at, &body);
    }

    fn vssd(&self, slot: usize) -> Option<VssdEntry> {
        let size = vssd_slot_size(self.units_max);
        let (at, _) = self.current(self.vssd_at(slot), size)?;
        decode_vssd(&self.region[at + 8..at + size])
    }

    /// All vSSDs that were ever written and not replaced, in order of their ids.
    pub fn vssds(&self) -> Vec<VssdEntry> {
        let mut entries: Vec<VssdEntry> = (0..self.vssd_slots).filter_map(|slot| self.vssd(slot)).collect();
        entries.sort_by_key(|entry| entry.id);
        entries
    }
}

fn vssd_slot_size(units_max: usize) -> usize {
    32 + 8 * units_max
}

fn sum_of(counter: u32, body: &[u8]) -> u32 {
    diecut_units::checksum_append(checksum(&counter.to_le_bytes()), body)
}

fn decode_block(body: &[u8]) -> Option<BlockEntry> {
    let state = match body[7] {
        0 => BlockState::Free,
        1 => BlockState::Held,
        2 => BlockState::HeldFailed,
        3 => BlockState::Retired,
        _ => return None,
    };
    Some(BlockEntry {
        state,
        owner: VssdId(word_at(body, 0)),
        logical: LogicalBlock {
            unit: UnitIndex(u16::from_le_bytes([body[4], body[5]])),
            index: word_at(body, 8),
        },
        purpose: Purpose(body[6]),
        erase_count: word_at(body, 12),
        sequence: u64::from_le_bytes(body[16..24].try_into().expect("eight bytes")),
    })
}

fn decode_vssd(body: &[u8]) -> Option<VssdEntry> {
    let isolation = match body[5] {
        0 => Isolation::Channel,
        1 => Isolation::Die,
        2 => Isolation::Software,
        3 => Isolation::None,
        _ => return None,
    };
    let count = usize::from(u16::from_le_bytes([body[6], body[7]]));
    let units = body.get(24..24 + count * 8)?.chunks_exact(8).map(|unit| {
        let soft_plane = u16::from_le_bytes([unit[4], unit[5]]);
        UnitPlace { die: word_at(unit, 0), soft_plane: (soft_plane != u16::MAX).then_some(soft_plane) }
    });
    Some(VssdEntry {
        id: VssdId(word_at(body, 0)),
        placed: body[4] == PLACED,
        isolation,
        units: units.collect(),
    })
}

#[cfg(test)]
mod test {
    use super::*;
    use diecut_units::ProtectedMemory;

    const GEOMETRY: Geometry = Geometry {
        channels: 2,
        dies_per_channel: 2,
        planes_per_die: 1,
        blocks_per_plane: 24,
        pages_per_block: 4,
        page_size_bytes: 4096,
        oob_size_bytes: 64,
    };

    fn entry(number: u32) -> BlockEntry {
        BlockEntry {
            state: BlockState::Held,
            owner: VssdId(number),
            logical: LogicalBlock { unit: UnitIndex(3), index: number },
            purpose: Purpose(1),
            erase_count: number * 2,
            sequence: u64::from(number) << 33,
        }
    }

    #[test]
    fn entries_come_back_and_a_torn_slot_leaves_the_one_before() {
        let memory = ProtectedMemory::in_memory(BlockTable::size_bytes(&GEOMETRY, 4));
        let open = || BlockTable::open(memory.region(0..memory.size_bytes()), &GEOMETRY, 4).unwrap();
        let (mut table, is_new) = open();
        assert!(is_new && table.block(5).is_none() && table.vssds().is_empty());
        table.set_block(5, &entry(1));
        table.set_block(5, &entry(2));
        table.set_pages(5, 3, entry(2).sequence);
        let units = vec![UnitPlace { die: 1, soft_plane: None }, UnitPlace { die: 2, soft_plane: Some(3) }];
        let vssd = VssdEntry { id: VssdId(9), placed: true, isolation: Isolation::Die, units };
        table.set_vssd(&vssd);
        drop(table);
        let (table, is_new) = open();
        assert!(!is_new);
        assert_eq!((table.block(5), table.block(6)), (Some(entry(2)), None));
        assert_eq!((table.pages(5, entry(2).sequence), table.pages(5, 77)), (3, 0));
        assert_eq!(table.vssds(), [vssd]);
        drop(table);
        // Every byte of the newer slot: damage to it brings back the older one, never a mixture.
        let newer = HEADER_SIZE_BYTES + 5 * 2 * SLOT_SIZE_BYTES + SLOT_SIZE_BYTES;
        for byte in 0..SLOT_SIZE_BYTES {
            memory.region(newer + byte..newer + byte + 1)[0] ^= 0x40;
            assert_eq!(open().0.block(5), Some(entry(1)), "byte {byte}");
            memory.region(newer + byte..newer + byte + 1)[0] ^= 0x40;
        }
    }

    #[test]
    fn ids_are_never_forgotten_by_reused_slots() {
        let memory = ProtectedMemory::in_memory(BlockTable::size_bytes(&GEOMETRY, 1));
        let (mut table, _) = BlockTable::open(memory.region(0..memory.size_bytes()), &GEOMETRY, 1).unwrap();
        for id in 1..100 {
            let mut vssd =
                VssdEntry { id: VssdId(id), placed: true, isolation: Isolation::Channel, units: Vec::new() };
            table.set_vssd(&vssd);
            vssd.placed = false;
            table.set_vssd(&vssd);
            assert_eq!(table.vssds().last().unwrap().id, VssdId(id));
        }
    }

    #[test]
    fn what_is_not_block_states_is_refused() {
        let size = BlockTable::size_bytes(&GEOMETRY, 4);
        let memory = ProtectedMemory::in_memory(size);
        let open = |planes| BlockTable::open(memory.region(0..size), &GEOMETRY, planes).err();
        drop(BlockTable::open(memory.region(0..size), &GEOMETRY, 4).unwrap());
        assert_eq!(open(2), Some(OpenError::Geometry));
        memory.region(8..9)[0] = 7;
        assert_eq!(open(4), Some(OpenError::Version(7)));
        memory.region(0..1)[0] = 7;
        assert_eq!(open(4), Some(OpenError::Damaged));
        let small = BlockTable::open(memory.region(0..4096), &GEOMETRY, 4).err();
        assert!(matches!(small, Some(OpenError::TooSmall { .. })));
    }
}
