//! Anchor, version 2: it has room for parts on many devices, parity, snapshots and maps larger than memory (`docs/design/one-format.md`).
//! It lies in pieces of one program unit each. Little endian. Each piece:
//!
//! | offset | size | field         | meaning                                                                    |
//! |-------:|-----:|---------------|----------------------------------------------------------------------------|
//! |      0 |    4 | magic         | "danc"                                                                     |
//! |      4 |    4 | check         | CRC-32C of the nonce, where there is one, and bytes 8 to the end of the unit |
//! |      8 |    2 | version       | 2                                                                          |
//! |     10 |    2 | zeros         | zero                                                                       |
//! |     12 |    4 | index         | number of this piece                                                       |
//! |     16 |    4 | count         | pieces of the anchor                                                       |
//! |     20 |    4 | length        | bytes of content in this piece                                             |
//! |     24 |    8 | number        | rises with every anchor                                                    |
//! |     32 |    8 | life          | from one opening of the store to the next                                  |
//! |     40 |    8 | opening       | random bytes of the opening that wrote it                                  |
//! |     48 |    4 | content_check | CRC-32C of the whole content                                               |
//! |     52 |   12 | zeros         | zero                                                                       |
//! |     64 |    n | content       | see below; zeros to the end of the unit                                    |
//!
//! Pieces make an anchor when number, life, opening and check of the whole content are the same: two openings may give the same number. The
//! contents, joined:
//!
//! | offset | size | field            | meaning                                                              |
//! |-------:|-----:|------------------|----------------------------------------------------------------------|
//! |      0 |    8 | features         | what a reader must understand, a bit each: 0 parity, 1 versions, 2 frames, 3 paged maps |
//! |      8 |    8 | amends           | number of the anchor that it amends; 0: it is whole                  |
//! |     16 |    8 | sequence         | records before it are in the owner's leaves: they are not replayed   |
//! |     24 |    8 | taken_at         | sequence at which the anchor was taken                               |
//! |     32 |    8 | life             | as in the pieces                                                     |
//! |     40 |    4 | amends_check     | CRC-32C of the content of the anchor that it amends                  |
//! |     44 |    4 | next_generation  | greater than that of any segment                                     |
//! |     48 |    4 | generation_limit | this life gives generations below it; the next one begins there      |
//! |     52 |    4 | stride_ius       | how many addresses a segment has; it never changes                   |
//! |     56 |    4 | part_count       | parts that follow                                                    |
//! |     60 |    4 | segment_count    | segments                                                             |
//! |     64 |    4 | member_count     | members                                                              |
//! |     68 |    4 | zeros            | zero                                                                 |
//! |     72 | 24*p | parts            | UUID of the device (16), vSSD (4), zeros (4)                         |
//! |    ... | 32*s | segments         | index (4), generation (4), state (1: 0 closed, not walked; 1 ended, walked to its end; 2 open), format (1), members (1), parity (1), log2 of the strip in IUs (1), head_ius (1), zeros (2), end (4) and durable units (4), live IUs (4), first member (4) |
//! |    ... | 24*m | members          | part (2), unit (2), index (4), allocation (8), column (1), state (1: 0 whole, 1 rebuilding, 2 lost), zeros (2), units rebuilt (4) |
//! |    ... |    n | owner            | the owner's bytes                                                    |
//!
//! Segments stand in the order of their indexes, and so do their members. The end of one that is open is zero: a walk finds it. Without a member list a segment has
//! the same index on all units, and `first member` is zero.

use super::chunk::Nonce;
use super::walk::SEQUENCE_MAX;
use diecut_units::{checksum, checksum_append};
use diecut_vssd::space::LogicalBlock;
use std::collections::BTreeMap;
use std::mem::offset_of;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

const MAGIC: [u8; 4] = *b"danc";
const VERSION: u16 = 2;
/// What stands in front of the content of a piece.
pub const PIECE_HEADER_SIZE_BYTES: usize = size_of::<PieceHeader>();

/// Chunks have parity.
pub const FEATURE_PARITY: u64 = 1;
/// There are versions: snapshots.
pub const FEATURE_VERSIONS: u64 = 1 << 1;
/// There are frames: compressed IUs.
pub const FEATURE_FRAMES: u64 = 1 << 2;
/// Leaves hang under roots, and counts of segments under notes.
pub const FEATURE_PAGED_MAPS: u64 = 1 << 3;
/// What this program understands.
const FEATURES_KNOWN: u64 = 0;

/// Most members of a segment, parity units of a row, and devices.
const MEMBERS_MAX: u8 = 64;
const PARITY_MAX: u8 = 2;
const PARTS_MAX: usize = 64;
const HEAD_IUS_MAX: u8 = 4;
/// Formats that a segment can have: chunk heads of version 2, and of version 3.
const FORMATS: std::ops::RangeInclusive<u8> = 2..=3;

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct PieceHeader {
    magic: [u8; 4],
    check: U32,
    version: U16,
    zeros: [u8; 2],
    index: U32,
    count: U32,
    length: U32,
    number: U64,
    life: U64,
    opening: [u8; 8],
    content_check: U32,
    zeros_too: [u8; 12],
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct ContentHeader {
    features: U64,
    amends: U64,
    sequence: U64,
    taken_at: U64,
    life: U64,
    amends_check: U32,
    next_generation: U32,
    generation_limit: U32,
    stride_ius: U32,
    part_count: U32,
    segment_count: U32,
    member_count: U32,
    zeros: U32,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct StoredPart {
    device: [u8; 16],
    vssd: U32,
    zeros: [u8; 4],
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct StoredSegment {
    index: U32,
    generation: U32,
    state: u8,
    format: u8,
    members: u8,
    parity: u8,
    strip: u8,
    head_ius: u8,
    zeros: [u8; 2],
    end: U32,
    durable_units: U32,
    live_ius: U32,
    first_member: U32,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct StoredMember {
    part: U16,
    unit: U16,
    index: U32,
    allocation: U64,
    column: u8,
    state: u8,
    zeros: [u8; 2],
    units_rebuilt: U32,
}

const _: () = {
    assert!(PIECE_HEADER_SIZE_BYTES == 64 && offset_of!(PieceHeader, content_check) == 48);
    assert!(size_of::<ContentHeader>() == 72 && size_of::<StoredPart>() == 24);
    assert!(size_of::<StoredSegment>() == 32 && size_of::<StoredMember>() == 24);
};

/// What a vSSD has of one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnchorPart {
    /// UUID of the device.
    pub device: [u8; 16],
    /// Generation of the vSSD there.
    pub vssd: u32,
}

/// How far a segment was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentProgress {
    /// All in it is before `sequence`, and nobody walks it.
    Closed,
    /// An opening walked it to its end, and nothing behind that ever counts.
    Ended,
    /// It may have grown.
    Open,
}

const PROGRESS: [SegmentProgress; 3] =
    [SegmentProgress::Closed, SegmentProgress::Ended, SegmentProgress::Open];

/// A segment that exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnchorSegment {
    /// Its number.
    pub index: u32,
    /// Its generation.
    pub generation: u32,
    /// How far it was looked at.
    pub progress: SegmentProgress,
    /// Version of its chunk heads.
    pub format: u8,
    /// Members of a row, parity included.
    pub members: u8,
    /// Parity units of a row.
    pub parity: u8,
    /// log2 of the strip in IUs.
    pub strip: u8,
    /// IUs of a chunk's head.
    pub head_ius: u8,
    /// Program units that hold chunks; 0 of one that is open.
    pub end: u32,
    /// Program units that a flush has covered.
    pub durable_units: u32,
    /// IUs that live.
    pub live_ius: u32,
    /// Where its members begin in the list, if there is one.
    pub first_member: u32,
}

/// What a column is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnState {
    /// All of it is there.
    Whole,
    /// As far as its units were rebuilt.
    Rebuilding,
    /// It is gone.
    Lost,
}

const COLUMN_STATES: [ColumnState; 3] = [ColumnState::Whole, ColumnState::Rebuilding, ColumnState::Lost];

/// One erase block of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnchorMember {
    /// The part, and the block there.
    pub part: u16,
    /// Block of the part.
    pub block: LogicalBlock,
    /// Its allocation sequence.
    pub allocation: u64,
    /// Column of the segment.
    pub column: u8,
    /// What the column is.
    pub state: ColumnState,
    /// Program units that were rebuilt.
    pub units_rebuilt: u32,
}

/// The anchor that a short one amends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Amended {
    /// Its number.
    pub number: u64,
    /// CRC-32C of its content.
    pub check: u32,
}

/// Where recovery begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Anchor {
    /// What a reader must understand.
    pub features: u64,
    /// It has only segments that differ from those of this one.
    pub amends: Option<Amended>,
    /// Records before it are in the owner's leaves.
    pub sequence: u64,
    /// Sequence at which it was taken.
    pub taken_at: u64,
    /// Life of the store that wrote it.
    pub life: u64,
    /// Greater than the generation of any segment.
    pub next_generation: u32,
    /// This life gives generations below it.
    pub generation_limit: u32,
    /// Addresses of a segment.
    pub stride_ius: u32,
    /// What the store has of devices.
    pub parts: Vec<AnchorPart>,
    /// Segments in the order of their indexes.
    pub segments: Vec<AnchorSegment>,
    /// Their members; none where each segment has the same index on all units.
    pub members: Vec<AnchorMember>,
    /// The owner's bytes.
    pub owner: Vec<u8>,
}

/// Why the content of an anchor is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnchorRefusal {
    /// It says what no anchor says.
    Impossible,
    /// It needs what this program does not understand. Nothing is opened then, and no older anchor counts instead.
    Features(u64),
}

impl Anchor {
    /// Bytes of the content.
    pub fn size_bytes(parts: usize, segments: usize, members: usize, owner_bytes: usize) -> usize {
        let lists = size_of::<StoredPart>() * parts
            + size_of::<StoredSegment>() * segments
            + size_of::<StoredMember>() * members;
        size_of::<ContentHeader>() + lists + owner_bytes
    }

    /// The content.
    ///
    /// # Panics
    /// If it says what no anchor says.
    pub fn encode(&self) -> Vec<u8> {
        assert!(self.is_possible(), "I-L43: an anchor says what a reader takes");
        let (parts, segments, members) = (self.parts.len(), self.segments.len(), self.members.len());
        let header = ContentHeader {
            features: self.features.into(),
            amends: self.amends.map_or(0, |amended| amended.number).into(),
            sequence: self.sequence.into(),
            taken_at: self.taken_at.into(),
            life: self.life.into(),
            amends_check: self.amends.map_or(0, |amended| amended.check).into(),
            next_generation: self.next_generation.into(),
            generation_limit: self.generation_limit.into(),
            stride_ius: self.stride_ius.into(),
            part_count: (parts as u32).into(),
            segment_count: (segments as u32).into(),
            member_count: (members as u32).into(),
            zeros: 0.into(),
        };
        let mut bytes = Vec::with_capacity(Anchor::size_bytes(parts, segments, members, self.owner.len()));
        bytes.extend(header.as_bytes());
        for part in &self.parts {
            let part = StoredPart { device: part.device, vssd: part.vssd.into(), zeros: [0; 4] };
            bytes.extend(part.as_bytes());
        }
        self.segments.iter().for_each(|segment| bytes.extend(segment.stored().as_bytes()));
        self.members.iter().for_each(|member| bytes.extend(member.stored().as_bytes()));
        bytes.extend(&self.owner);
        bytes
    }

    /// Reads the content.
    ///
    /// # Errors
    /// Says why it is not taken.
    pub fn decode(bytes: &[u8]) -> Result<Anchor, AnchorRefusal> {
        let impossible = AnchorRefusal::Impossible;
        let (header, rest) = ContentHeader::ref_from_prefix(bytes).map_err(|_| impossible)?;
        let unknown = header.features.get() & !FEATURES_KNOWN;
        if unknown != 0 {
            // Before anything else: what follows may not be what this program thinks it is.
            return Err(AnchorRefusal::Features(unknown));
        }
        let lists = lists_of(header, rest).filter(|_| header.zeros.get() == 0);
        let (parts, segments, members, owner) = lists.ok_or(impossible)?;
        let amended = Amended { number: header.amends.get(), check: header.amends_check.get() };
        let anchor = Anchor {
            features: header.features.get(),
            amends: (amended.number > 0).then_some(amended),
            sequence: header.sequence.get(),
            taken_at: header.taken_at.get(),
            life: header.life.get(),
            next_generation: header.next_generation.get(),
            generation_limit: header.generation_limit.get(),
            stride_ius: header.stride_ius.get(),
            parts,
            segments,
            members,
            owner: owner.to_vec(),
        };
        let has_no_check = anchor.amends.is_some() || amended.check == 0;
        if anchor.is_possible() && has_no_check { Ok(anchor) } else { Err(impossible) }
    }

    /// Whether it can be one of a store.
    fn is_possible(&self) -> bool {
        let rises = self.segments.is_sorted_by(|one, next| one.index < next.index);
        self.sequence <= self.taken_at
            && self.taken_at < SEQUENCE_MAX
            && self.next_generation <= self.generation_limit
            && self.stride_ius.is_power_of_two()
            && (1..=PARTS_MAX).contains(&self.parts.len())
            && rises
            && self.segments.iter().all(|segment| self.is_segment(segment))
            && self.are_listed()
            && self.members.iter().all(|member| usize::from(member.part) < self.parts.len())
            && self.members.iter().all(|member| member.column < MEMBERS_MAX)
    }

    fn is_segment(&self, segment: &AnchorSegment) -> bool {
        let is_open = segment.progress == SegmentProgress::Open;
        FORMATS.contains(&segment.format)
            && (1..=HEAD_IUS_MAX).contains(&segment.head_ius)
            && (1..=MEMBERS_MAX).contains(&segment.members)
            && segment.parity <= PARITY_MAX
            && segment.parity < segment.members
            && segment.strip < u32::BITS as u8
            && segment.generation < self.next_generation
            && segment.live_ius <= self.stride_ius
            && if is_open { segment.end == 0 } else { segment.durable_units <= segment.end }
    }

    /// Whether each segment has members, one behind the other, or none has a list. A column that is rebuilt is there twice.
    fn are_listed(&self) -> bool {
        if self.members.is_empty() {
            return self.segments.iter().all(|segment| segment.first_member == 0);
        }
        let ends = self.segments.iter().skip(1).map(|next| next.first_member as usize);
        let mut spans = self.segments.iter().zip(ends.chain([self.members.len()]));
        spans.all(|(segment, end)| segment.first_member as usize + usize::from(segment.members) <= end)
    }

    /// What a short anchor and the one that it amends say together: segments of the short one count, with their members, and the owner's bytes
    /// are those of the other one. `None` if they contradict each other.
    pub fn amended_by(&self, short: &Anchor) -> Option<Anchor> {
        let agree = (self.sequence, self.taken_at, self.stride_ius, self.features)
            == (short.sequence, short.taken_at, short.stride_ius, short.features)
            && self.next_generation <= short.next_generation
            && self.life < short.life;
        let has_lists = |anchor: &Anchor| !anchor.members.is_empty() || anchor.segments.is_empty();
        let have_lists = !self.members.is_empty() || !short.members.is_empty();
        if !agree || have_lists && !(has_lists(self) && has_lists(short)) {
            return None;
        }
        let mut by_index: BTreeMap<u32, (&Anchor, usize)> = BTreeMap::new();
        for anchor in [self, short] {
            by_index.extend(anchor.segments.iter().enumerate().map(|(at, one)| (one.index, (anchor, at))));
        }
        let (mut segments, mut members) = (Vec::new(), Vec::new());
        for (anchor, at) in by_index.into_values() {
            segments.push(AnchorSegment { first_member: members.len() as u32, ..anchor.segments[at] });
            members.extend(anchor.members_of(at));
        }
        let anchor = Anchor { amends: None, segments, members, owner: self.owner.clone(), ..short.clone() };
        anchor.is_possible().then_some(anchor)
    }

    /// Members of the segment at a place of the list: from its first one to that of the next segment.
    pub fn members_of(&self, at: usize) -> &[AnchorMember] {
        if self.members.is_empty() {
            return &[];
        }
        let end = self.segments.get(at + 1).map_or(self.members.len(), |next| next.first_member as usize);
        &self.members[self.segments[at].first_member as usize..end]
    }
}

/// Lists of an anchor, and what follows them.
type Lists<'a> = (Vec<AnchorPart>, Vec<AnchorSegment>, Vec<AnchorMember>, &'a [u8]);

fn lists_of<'a>(header: &ContentHeader, rest: &'a [u8]) -> Option<Lists<'a>> {
    let count = |count: U32| count.get() as usize;
    let (parts, rest) = <[StoredPart]>::ref_from_prefix_with_elems(rest, count(header.part_count)).ok()?;
    let (segments, rest) =
        <[StoredSegment]>::ref_from_prefix_with_elems(rest, count(header.segment_count)).ok()?;
    let (members, owner) =
        <[StoredMember]>::ref_from_prefix_with_elems(rest, count(header.member_count)).ok()?;
    let part = |part: &StoredPart| {
        (part.zeros == [0; 4]).then_some(AnchorPart { device: part.device, vssd: part.vssd.get() })
    };
    let parts = parts.iter().map(part).collect::<Option<_>>()?;
    let segments = segments.iter().map(AnchorSegment::of).collect::<Option<_>>()?;
    let members = members.iter().map(AnchorMember::of).collect::<Option<_>>()?;
    Some((parts, segments, members, owner))
}

impl AnchorSegment {
    fn stored(&self) -> StoredSegment {
        StoredSegment {
            index: self.index.into(),
            generation: self.generation.into(),
            state: self.progress as u8,
            format: self.format,
            members: self.members,
            parity: self.parity,
            strip: self.strip,
            head_ius: self.head_ius,
            zeros: [0; 2],
            end: self.end.into(),
            durable_units: self.durable_units.into(),
            live_ius: self.live_ius.into(),
            first_member: self.first_member.into(),
        }
    }

    fn of(stored: &StoredSegment) -> Option<AnchorSegment> {
        let segment = AnchorSegment {
            index: stored.index.get(),
            generation: stored.generation.get(),
            progress: *PROGRESS.get(usize::from(stored.state))?,
            format: stored.format,
            members: stored.members,
            parity: stored.parity,
            strip: stored.strip,
            head_ius: stored.head_ius,
            end: stored.end.get(),
            durable_units: stored.durable_units.get(),
            live_ius: stored.live_ius.get(),
            first_member: stored.first_member.get(),
        };
        (stored.zeros == [0; 2]).then_some(segment)
    }
}

impl AnchorMember {
    fn stored(&self) -> StoredMember {
        StoredMember {
            part: self.part.into(),
            unit: self.block.unit.0.into(),
            index: self.block.index.into(),
            allocation: self.allocation.into(),
            column: self.column,
            state: self.state as u8,
            zeros: [0; 2],
            units_rebuilt: self.units_rebuilt.into(),
        }
    }

    fn of(stored: &StoredMember) -> Option<AnchorMember> {
        let (unit, index) = (diecut_vssd::UnitIndex(stored.unit.get()), stored.index.get());
        let member = AnchorMember {
            part: stored.part.get(),
            block: LogicalBlock { unit, index },
            allocation: stored.allocation.get(),
            column: stored.column,
            state: *COLUMN_STATES.get(usize::from(stored.state))?,
            units_rebuilt: stored.units_rebuilt.get(),
        };
        (stored.zeros == [0; 2]).then_some(member)
    }
}

/// Whose piece it is: pieces with the same name make one anchor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AnchorName {
    /// Rises with every anchor.
    pub number: u64,
    /// Life of the store.
    pub life: u64,
    /// Random bytes of the opening.
    pub opening: [u8; 8],
    /// CRC-32C of the whole content.
    pub content_check: u32,
    /// Pieces of it.
    pub count: u32,
}

/// One piece of an anchor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece<'a> {
    /// Of this anchor.
    pub of: AnchorName,
    /// Number of the piece.
    pub index: u32,
    /// Its content.
    pub content: &'a [u8],
}

fn check_of(nonce: Nonce, unit: &[u8]) -> u32 {
    let begun = nonce.map_or(0, |nonce| checksum(&nonce));
    checksum_append(begun, &unit[8..])
}

impl<'a> Piece<'a> {
    /// Fills a program unit.
    ///
    /// # Panics
    /// If the content does not fit.
    pub fn encode(&self, nonce: Nonce, unit: &mut [u8]) {
        assert!(self.index < self.of.count, "I-L32: a piece is one of its anchor");
        let header = PieceHeader {
            magic: MAGIC,
            check: 0.into(),
            version: VERSION.into(),
            zeros: [0; 2],
            index: self.index.into(),
            count: self.of.count.into(),
            length: (self.content.len() as u32).into(),
            number: self.of.number.into(),
            life: self.of.life.into(),
            opening: self.of.opening,
            content_check: self.of.content_check.into(),
            zeros_too: [0; 12],
        };
        let end = PIECE_HEADER_SIZE_BYTES + self.content.len();
        unit[..PIECE_HEADER_SIZE_BYTES].copy_from_slice(header.as_bytes());
        unit[PIECE_HEADER_SIZE_BYTES..end].copy_from_slice(self.content);
        unit[end..].fill(0);
        let check = check_of(nonce, unit);
        unit[offset_of!(PieceHeader, check)..][..4].copy_from_slice(&check.to_le_bytes());
    }

    /// Reads a program unit; `None` if it is no piece or does not check out.
    pub fn decode(nonce: Nonce, unit: &'a [u8]) -> Option<Piece<'a>> {
        let (header, content) = PieceHeader::ref_from_prefix(unit).ok()?;
        let is_ours = header.magic == MAGIC && header.version == VERSION;
        if !is_ours || header.check != check_of(nonce, unit) {
            return None;
        }
        let (content, rest) = content.split_at_checked(header.length.get() as usize)?;
        let are_zeros =
            header.zeros == [0; 2] && header.zeros_too == [0; 12] && rest.iter().all(|byte| *byte == 0);
        let of = AnchorName {
            number: header.number.get(),
            life: header.life.get(),
            opening: header.opening,
            content_check: header.content_check.get(),
            count: header.count.get(),
        };
        let index = header.index.get();
        (are_zeros && index < of.count).then_some(Piece { of, index, content })
    }
}

/// The newest anchor of which all that it needs was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundAnchor {
    /// What it says, with that of the one that it amends.
    pub anchor: Anchor,
    /// Blocks and program units of its pieces, and of those of the one that it amends.
    pub pieces: Vec<(LogicalBlock, u32)>,
}

/// Where a piece lay, and what it says.
type FoundPiece = ((LogicalBlock, u32), Vec<u8>);

/// Pieces found after a restart.
#[derive(Debug, Default)]
pub struct FoundPieces {
    anchors: BTreeMap<AnchorName, BTreeMap<u32, FoundPiece>>,
}

impl FoundPieces {
    /// Takes the content of a program unit of a block of anchors. Whether it is a piece.
    pub fn add(&mut self, nonce: Nonce, block: LogicalBlock, unit: u32, bytes: &[u8]) -> bool {
        let Some(piece) = Piece::decode(nonce, bytes) else { return false };
        let pieces = self.anchors.entry(piece.of).or_default();
        pieces.insert(piece.index, ((block, unit), piece.content.to_vec()));
        true
    }

    /// The number that the next anchor gets.
    pub fn next_number(&self) -> u64 {
        self.anchors.keys().next_back().map_or(1, |name| name.number.saturating_add(1))
    }

    /// The latest life that some piece is of.
    pub fn life(&self) -> u64 {
        self.anchors.keys().map(|name| name.life).max().unwrap_or(0)
    }

    /// The newest whole anchor.
    ///
    /// # Errors
    /// Says why the newest whole anchor is not taken: it needs features that this program does not understand, or says what no anchor says. An
    /// older one does not count instead, because what it needs may be gone.
    pub fn newest(&self) -> Result<Option<FoundAnchor>, AnchorRefusal> {
        for (name, pieces) in self.anchors.iter().rev() {
            let Some(content) = whole(name, pieces) else { continue };
            let anchor = match Anchor::decode(&content) {
                Ok(anchor) if anchor.life == name.life => anchor,
                Ok(_) => return Err(AnchorRefusal::Impossible),
                Err(refusal) => return Err(refusal),
            };
            let places = |pieces: &BTreeMap<u32, FoundPiece>| {
                pieces.values().map(|(place, _)| *place).collect::<Vec<_>>()
            };
            let Some(amended) = anchor.amends else {
                return Ok(Some(FoundAnchor { anchor, pieces: places(pieces) }));
            };
            let Some((base, of_base)) = self.base(amended) else { continue };
            let Some(anchor) = base.amended_by(&anchor) else { continue };
            let pieces = [places(pieces), places(of_base)].concat();
            return Ok(Some(FoundAnchor { anchor, pieces }));
        }
        Ok(None)
    }

    /// The whole anchor that a short one amends.
    fn base(&self, amended: Amended) -> Option<(Anchor, &BTreeMap<u32, FoundPiece>)> {
        self.anchors.iter().find_map(|(name, pieces)| {
            if (name.number, name.content_check) != (amended.number, amended.check) {
                return None;
            }
            let anchor = Anchor::decode(&whole(name, pieces)?).ok()?;
            anchor.amends.is_none().then_some((anchor, pieces))
        })
    }
}

/// The content of an anchor of which all pieces are there.
fn whole(name: &AnchorName, pieces: &BTreeMap<u32, FoundPiece>) -> Option<Vec<u8>> {
    if pieces.len() != name.count as usize {
        return None;
    }
    let content = pieces.values().flat_map(|(_, content)| content).copied().collect::<Vec<u8>>();
    (checksum(&content) == name.content_check).then_some(content)
}

#[cfg(test)]
mod test;
