//! Entries of block states, and the bytes of their slots behind counter and check (`table` draws them).

use crate::owners::resources::UnitPlace;
use crate::{LogicalBlock, Purpose, UnitIndex, VssdId};
use diecut_spec::Isolation;

/// Of a slot of a block, or of an exchange.
pub(crate) const SLOT_SIZE_BYTES: usize = 32;
const PLACED: u8 = 1;
const READ_ONLY: u8 = 1;
const MOVES: u32 = 1 << 31;
const LOST_PAGES: u8 = 0x80;
const NO_BLOCK: u32 = u32::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BlockState {
    Free,
    Held,
    HeldFailed,
    Retired,
    /// Held, but flash contradicts it: neither read nor programmed.
    HeldSuspect,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockEntry {
    pub state: BlockState,
    /// Some pages could not be read when the block was moved; their OOB records say which.
    pub lost_pages: bool,
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
    pub read_only: bool,
    pub units: Vec<UnitEntry>,
}

/// A unit: where it lies, and erase blocks it lost beyond the reserve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UnitEntry {
    pub place: UnitPlace,
    /// It is on its way to the other die of its die's exchange.
    pub moves: bool,
    pub lost_blocks: u16,
}

/// A block on its way: where it lies, and its copy on the other die.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MoveEntry {
    pub source: u32,
    pub copy: u32,
    pub lost_pages: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExchangePhase {
    UnderWay,
    /// These copies take the places of their sources.
    Pair([Option<MoveEntry>; 2]),
    /// The units of the two dies take each other's places.
    Finishing,
}

/// An exchange of what two dies hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ExchangeEntry {
    pub dies: [u32; 2],
    pub phase: ExchangePhase,
}

pub(crate) fn word_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

pub(crate) fn long_at(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"))
}

fn three_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], 0])
}

pub(crate) fn encode_exchange(entry: Option<&ExchangeEntry>) -> [u8; SLOT_SIZE_BYTES - 8] {
    let mut body = [0; SLOT_SIZE_BYTES - 8];
    let Some(entry) = entry else { return body };
    for (die, at) in entry.dies.into_iter().zip([2, 5]) {
        assert!(die < 1 << 24, "24-bit number of a die");
        body[at..at + 3].copy_from_slice(&die.to_le_bytes()[..3]);
    }
    body[8..24].fill(0xff);
    body[0] = match entry.phase {
        ExchangePhase::UnderWay => 1,
        ExchangePhase::Pair(moves) => {
            for (at, one) in moves.iter().enumerate() {
                let Some(one) = one else { continue };
                body[8 + at * 8..][..4].copy_from_slice(&one.source.to_le_bytes());
                body[12 + at * 8..][..4].copy_from_slice(&one.copy.to_le_bytes());
                body[1] |= u8::from(one.lost_pages) << at;
            }
            2
        }
        ExchangePhase::Finishing => 3,
    };
    body
}

/// `None`: it makes no sense.
pub(crate) fn decode_exchange(body: &[u8]) -> Option<Option<ExchangeEntry>> {
    let dies = [three_at(body, 2), three_at(body, 5)];
    let one = |at: usize| {
        let (source, copy) = (word_at(body, 8 + at * 8), word_at(body, 12 + at * 8));
        (source != NO_BLOCK).then_some(MoveEntry { source, copy, lost_pages: body[1] >> at & 1 == 1 })
    };
    let phase = match body[0] {
        0 => return Some(None),
        1 => ExchangePhase::UnderWay,
        2 => ExchangePhase::Pair([one(0), one(1)]),
        3 => ExchangePhase::Finishing,
        _ => return None,
    };
    // Within a die nothing but a block changes places.
    let makes_sense = dies[0] != dies[1] || matches!(phase, ExchangePhase::Pair(_));
    makes_sense.then_some(Some(ExchangeEntry { dies, phase }))
}

pub(crate) fn encode_block(entry: &BlockEntry) -> [u8; SLOT_SIZE_BYTES - 8] {
    let mut body = [0; SLOT_SIZE_BYTES - 8];
    body[..4].copy_from_slice(&entry.owner.0.to_le_bytes());
    body[4..6].copy_from_slice(&entry.logical.unit.0.to_le_bytes());
    body[6] = entry.purpose.0;
    body[7] = match entry.state {
        BlockState::Free => 0,
        BlockState::Held => 1,
        BlockState::HeldFailed => 2,
        BlockState::Retired => 3,
        BlockState::HeldSuspect => 4,
    } | if entry.lost_pages { LOST_PAGES } else { 0 };
    body[8..12].copy_from_slice(&entry.logical.index.to_le_bytes());
    body[12..16].copy_from_slice(&entry.erase_count.to_le_bytes());
    body[16..24].copy_from_slice(&entry.sequence.to_le_bytes());
    body
}

pub(crate) fn decode_block(body: &[u8]) -> Option<BlockEntry> {
    let state = match body[7] & !LOST_PAGES {
        0 => BlockState::Free,
        1 => BlockState::Held,
        2 => BlockState::HeldFailed,
        3 => BlockState::Retired,
        4 => BlockState::HeldSuspect,
        _ => return None,
    };
    Some(BlockEntry {
        state,
        lost_pages: body[7] & LOST_PAGES != 0,
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

/// Without unused units.
pub(crate) fn encode_vssd(entry: &VssdEntry) -> Vec<u8> {
    let mut body = vec![0; 24 + 8 * entry.units.len()];
    body[..4].copy_from_slice(&entry.id.0.to_le_bytes());
    body[4] = if entry.placed { PLACED } else { 0 };
    body[5] = match entry.isolation {
        Isolation::Channel => 0,
        Isolation::Die => 1,
        Isolation::Software => 2,
        Isolation::None => 3,
    };
    body[6..8].copy_from_slice(&(entry.units.len() as u16).to_le_bytes());
    body[8] = if entry.read_only { READ_ONLY } else { 0 };
    for (index, unit) in entry.units.iter().enumerate() {
        let at = 24 + index * 8;
        let die = unit.place.die | if unit.moves { MOVES } else { 0 };
        body[at..at + 4].copy_from_slice(&die.to_le_bytes());
        body[at + 4..at + 6].copy_from_slice(&unit.place.soft_plane.unwrap_or(u16::MAX).to_le_bytes());
        body[at + 6..at + 8].copy_from_slice(&unit.lost_blocks.to_le_bytes());
    }
    body
}

pub(crate) fn decode_vssd(body: &[u8]) -> Option<VssdEntry> {
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
        let soft_plane = (soft_plane != u16::MAX).then_some(soft_plane);
        let lost_blocks = u16::from_le_bytes([unit[6], unit[7]]);
        let die = word_at(unit, 0);
        UnitEntry { place: UnitPlace { die: die & !MOVES, soft_plane }, moves: die & MOVES != 0, lost_blocks }
    });
    let units = units.collect();
    Some(VssdEntry {
        id: VssdId(word_at(body, 0)),
        placed: body[4] == PLACED,
        isolation,
        read_only: body[8] & READ_ONLY != 0,
        units,
    })
}
