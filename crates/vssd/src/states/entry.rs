//! Entries of block states, and the bytes of their slots behind counter and check (`table` draws them).

use crate::owners::resources::UnitPlace;
use crate::u24::U24;
use crate::{LogicalBlock, Purpose, UnitIndex, VssdId};
use diecut_spec::Isolation;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, transmute};

/// What a slot begins with, published as one word.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct SlotHead {
    pub counter: U32,
    pub check: U32,
}

/// Behind the head of a slot of a block.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct BlockBody {
    owner: U32,
    unit: U16,
    purpose: u8,
    state: u8,
    index: U32,
    erase_count: U32,
    sequence: U64,
}

/// Behind the head of a slot of an exchange.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct ExchangeBody {
    phase: u8,
    flags: u8,
    dies: [U24; 2],
    moves: [MoveBody; 2],
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct MoveBody {
    source: U32,
    copy: U32,
}

/// Behind the head of a slot of a vSSD; units follow, up to as many as the device has.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct VssdBody {
    id: U32,
    state: u8,
    isolation: u8,
    units: U16,
    flags: u8,
    reserved: [u8; 15],
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct UnitBody {
    die: U32,
    soft_plane: U16,
    lost_blocks: U16,
}

/// Of a slot of a block, or of an exchange.
pub(crate) const SLOT_SIZE_BYTES: usize = size_of::<SlotHead>() + BODY_SIZE_BYTES;
/// Without its head.
pub(crate) const BODY_SIZE_BYTES: usize = size_of::<BlockBody>();
/// Of a vSSD without units, without its head.
pub(crate) const VSSD_BODY_SIZE_BYTES: usize = size_of::<VssdBody>();
pub(crate) const UNIT_SIZE_BYTES: usize = size_of::<UnitBody>();
const _: () = {
    assert!(SLOT_SIZE_BYTES == 32 && size_of::<ExchangeBody>() == BODY_SIZE_BYTES);
    assert!(VSSD_BODY_SIZE_BYTES == 24 && UNIT_SIZE_BYTES == 8);
};
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

pub(crate) fn encode_exchange(entry: Option<&ExchangeEntry>) -> [u8; BODY_SIZE_BYTES] {
    let Some(entry) = entry else { return [0; BODY_SIZE_BYTES] };
    let (phase, moves) = match entry.phase {
        ExchangePhase::UnderWay => (1, [None, None]),
        ExchangePhase::Pair(moves) => (2, moves),
        ExchangePhase::Finishing => (3, [None, None]),
    };
    let has_lost = moves.map(|one| one.is_some_and(|one| one.lost_pages));
    transmute!(ExchangeBody {
        phase,
        flags: u8::from(has_lost[0]) | u8::from(has_lost[1]) << 1,
        dies: entry.dies.map(U24::new),
        moves: moves.map(|one| {
            let (source, copy) = one.map_or((NO_BLOCK, NO_BLOCK), |one| (one.source, one.copy));
            MoveBody { source: source.into(), copy: copy.into() }
        }),
    })
}

/// `None`: it makes no sense.
pub(crate) fn decode_exchange(body: &[u8]) -> Option<Option<ExchangeEntry>> {
    let (body, _) = ExchangeBody::ref_from_prefix(body).ok()?;
    let one = |at: usize| {
        let (source, copy) = (body.moves[at].source.get(), body.moves[at].copy.get());
        (source != NO_BLOCK).then_some(MoveEntry { source, copy, lost_pages: body.flags >> at & 1 == 1 })
    };
    let phase = match body.phase {
        0 => return Some(None),
        1 => ExchangePhase::UnderWay,
        2 => ExchangePhase::Pair([one(0), one(1)]),
        3 => ExchangePhase::Finishing,
        _ => return None,
    };
    let dies = body.dies.map(U24::get);
    // Within a die nothing but a block changes places.
    let makes_sense = dies[0] != dies[1] || matches!(phase, ExchangePhase::Pair(_));
    makes_sense.then_some(Some(ExchangeEntry { dies, phase }))
}

pub(crate) fn encode_block(entry: &BlockEntry) -> [u8; BODY_SIZE_BYTES] {
    let state = match entry.state {
        BlockState::Free => 0,
        BlockState::Held => 1,
        BlockState::HeldFailed => 2,
        BlockState::Retired => 3,
        BlockState::HeldSuspect => 4,
    };
    transmute!(BlockBody {
        owner: entry.owner.0.into(),
        unit: entry.logical.unit.0.into(),
        purpose: entry.purpose.0,
        state: state | if entry.lost_pages { LOST_PAGES } else { 0 },
        index: entry.logical.index.into(),
        erase_count: entry.erase_count.into(),
        sequence: entry.sequence.into(),
    })
}

/// `None`: it makes no sense.
pub(crate) fn decode_block(body: &[u8]) -> Option<BlockEntry> {
    let (body, _) = BlockBody::ref_from_prefix(body).ok()?;
    let state = match body.state & !LOST_PAGES {
        0 => BlockState::Free,
        1 => BlockState::Held,
        2 => BlockState::HeldFailed,
        3 => BlockState::Retired,
        4 => BlockState::HeldSuspect,
        _ => return None,
    };
    Some(BlockEntry {
        state,
        lost_pages: body.state & LOST_PAGES != 0,
        owner: VssdId(body.owner.get()),
        logical: LogicalBlock { unit: UnitIndex(body.unit.get()), index: body.index.get() },
        purpose: Purpose(body.purpose),
        erase_count: body.erase_count.get(),
        sequence: body.sequence.get(),
    })
}

/// Without unused units.
pub(crate) fn encode_vssd(entry: &VssdEntry) -> Vec<u8> {
    let body = VssdBody {
        id: entry.id.0.into(),
        state: if entry.placed { PLACED } else { 0 },
        isolation: match entry.isolation {
            Isolation::Channel => 0,
            Isolation::Die => 1,
            Isolation::Software => 2,
            Isolation::None => 3,
        },
        units: (entry.units.len() as u16).into(),
        flags: if entry.read_only { READ_ONLY } else { 0 },
        reserved: [0; 15],
    };
    let mut bytes = Vec::with_capacity(VSSD_BODY_SIZE_BYTES + UNIT_SIZE_BYTES * entry.units.len());
    bytes.extend(body.as_bytes());
    for unit in &entry.units {
        let unit = UnitBody {
            die: (unit.place.die | if unit.moves { MOVES } else { 0 }).into(),
            soft_plane: unit.place.soft_plane.unwrap_or(u16::MAX).into(),
            lost_blocks: unit.lost_blocks.into(),
        };
        bytes.extend(unit.as_bytes());
    }
    bytes
}

/// `None`: it is cut short, or makes no sense.
pub(crate) fn decode_vssd(body: &[u8]) -> Option<VssdEntry> {
    let (body, units) = VssdBody::ref_from_prefix(body).ok()?;
    let isolation = match body.isolation {
        0 => Isolation::Channel,
        1 => Isolation::Die,
        2 => Isolation::Software,
        3 => Isolation::None,
        _ => return None,
    };
    let (units, _) = <[UnitBody]>::ref_from_prefix_with_elems(units, body.units.get().into()).ok()?;
    let units = units.iter().map(|unit| {
        let (die, soft_plane) = (unit.die.get(), unit.soft_plane.get());
        let soft_plane = (soft_plane != u16::MAX).then_some(soft_plane);
        let place = UnitPlace { die: die & !MOVES, soft_plane };
        UnitEntry { place, moves: die & MOVES != 0, lost_blocks: unit.lost_blocks.get() }
    });
    Some(VssdEntry {
        id: VssdId(body.id.get()),
        placed: body.state == PLACED,
        isolation,
        read_only: body.flags & READ_ONLY != 0,
        units: units.collect(),
    })
}

#[cfg(test)]
mod test {
    use super::*;

    /// Goal: the layout is pinned. Method: bytes written by hand.
    #[test]
    fn the_bytes_of_entries() {
        let block = BlockEntry {
            state: BlockState::HeldSuspect,
            lost_pages: true,
            owner: VssdId(0x0403_0201),
            logical: LogicalBlock { unit: UnitIndex(0x0605), index: 0x0c0b_0a09 },
            purpose: Purpose(7),
            erase_count: 0x1413_1211,
            sequence: 0x2827_2625_2423_2221,
        };
        let golden = [
            1, 2, 3, 4, 5, 6, 7, 0x84, 9, 10, 11, 12, 0x11, 0x12, 0x13, 0x14, 0x21, 0x22, 0x23, 0x24, 0x25,
            0x26, 0x27, 0x28,
        ];
        assert_eq!((encode_block(&block), decode_block(&golden)), (golden, Some(block)));
        let one = MoveEntry { source: 0x0403_0201, copy: 0x0807_0605, lost_pages: true };
        let exchange =
            ExchangeEntry { dies: [0x03_0201, 0x06_0504], phase: ExchangePhase::Pair([None, Some(one)]) };
        let none = [0xff; 8];
        let golden = [&[2, 2, 1, 2, 3, 4, 5, 6][..], &none, &[1, 2, 3, 4, 5, 6, 7, 8]].concat();
        assert_eq!(encode_exchange(Some(&exchange))[..], golden);
        assert_eq!(decode_exchange(&golden), Some(Some(exchange)));
        let exchange = ExchangeEntry { dies: [1, 2], phase: ExchangePhase::UnderWay };
        let golden = [&[1, 0, 1, 0, 0, 2, 0, 0][..], &none, &none].concat();
        assert_eq!(encode_exchange(Some(&exchange))[..], golden);
        assert_eq!(encode_exchange(None), [0; 24]);
        let place = UnitPlace { die: 0x0003_0201, soft_plane: Some(0x0605) };
        let whole = UnitPlace { die: 7, soft_plane: None };
        let vssd = VssdEntry {
            id: VssdId(0x0403_0201),
            placed: true,
            isolation: Isolation::Software,
            read_only: true,
            units: vec![
                UnitEntry { place, moves: true, lost_blocks: 0x0807 },
                UnitEntry { place: whole, moves: false, lost_blocks: 0 },
            ],
        };
        let golden = [
            &[1, 2, 3, 4, 1, 2, 2, 0, 1][..],
            &[0; 15],
            &[1, 2, 3, 0x80, 5, 6, 7, 8, 7, 0, 0, 0, 0xff, 0xff, 0, 0],
        ]
        .concat();
        assert_eq!((encode_vssd(&vssd), decode_vssd(&golden)), (golden.clone(), Some(vssd)));
        assert_eq!(decode_vssd(&golden[..39]), None, "cut short");
    }
}
