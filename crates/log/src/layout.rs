use crate::divisor::Divisor;
use crate::{LogAddress, MapEntry, ReclaimGroup, Streams};
use diecut_units::{ContentMode, mutant};
use diecut_vssd::space::{BlockShape, LogicalBlock, UnitIndex};

/// A segment of a log: one logical erase block on every unit it stripes over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentIndex(pub u32);

/// Arithmetic of segments, program units and chunks; fixed while a store lives.
///
/// IUs of a segment are counted strip by strip: strip `s` lies on member `s % width`, as its `s / width`-th one. Where a program unit is large it
/// is a strip; where it is one IU a strip has many, so that what is written together goes to the medium in few commands.
#[derive(Clone, Debug)]
pub struct Layout {
    /// Shape of the erase blocks below.
    pub shape: BlockShape,
    /// Members of a segment.
    pub width: u32,
    /// Groups of units; a segment lies within one. Each reclaim group has as many of them, those of the first one come first.
    pub groups: u32,
    /// IUs of a program unit.
    pub unit_ius: u32,
    /// Program units of a strip: those that lie one behind the other on a member.
    pub strip_units: u32,
    /// IUs of a strip.
    pub strip_ius: u32,
    /// Program units of an erase block that a segment uses: whole strips.
    pub member_units: u32,
    /// Program units of a segment.
    pub segment_units: u32,
    /// Program units of an erase block behind which what is programmed is safe from a cut. None where a flush does that: it says so itself.
    pub unsafe_units: u32,
    /// IUs of a segment.
    pub segment_ius: u32,
    /// log2 of the address distance of two segments.
    pub segment_shift: u32,
    /// Program units of a full chunk.
    pub chunk_units: u32,
    /// What it tells apart.
    pub streams: Streams,
    by_width: Divisor,
    by_strip: Divisor,
    by_page: Divisor,
}

/// Widest stripe.
const WIDTH_MAX: u32 = 16;
/// Size of a full chunk, where program units allow it.
const CHUNK_IUS: u32 = 128;
/// Size of a strip on media without OOB areas, where a program unit is an IU: 128 KiB, above which drives gain little.
const PLAIN_STRIP_IUS: u32 = 32;

impl Layout {
    /// Lays segments over `unit_count` units, so that none lies in two of `reclaim_groups` groups of them.
    ///
    /// # Panics
    /// If the shape leaves no room for the log's part of the OOB, or units cannot be shared out evenly.
    pub fn new(shape: BlockShape, unit_count: u16, reclaim_groups: u16) -> Layout {
        let units = u32::from(unit_count);
        let units_of_group = units / u32::from(reclaim_groups);
        let is_even = units_of_group * u32::from(reclaim_groups) == units;
        assert!(is_even, "I-L39: each reclaim group has as many units");
        let widths = (1..=WIDTH_MAX.min(units_of_group)).rev();
        let width = widths.into_iter().find(|width| units_of_group.is_multiple_of(*width)).unwrap_or(1);
        let unit_ius = shape.program_unit_ius();
        let strip_units = if shape.has_oob() { 1 } else { strip_units(&shape) };
        let strip_ius = strip_units * unit_ius;
        let member_units = shape.program_units() / strip_units * strip_units;
        let segment_units = member_units * width;
        let segment_ius = segment_units * unit_ius;
        assert!(
            !shape.has_oob()
                || shape.holder_oob_offset as usize + crate::mark::size_bytes(shape.ius_per_page())
                    <= shape.oob_size_bytes as usize,
            "the OOB holds a checksum for each IU"
        );
        assert!(segment_units * unit_ius >= 4, "a segment holds a head and data");
        let end = u64::from(segment_ius) + 1;
        Layout {
            by_width: Divisor::new(width, end),
            by_strip: Divisor::new(strip_ius, end),
            by_page: Divisor::new(shape.ius_per_page(), end),
            width,
            groups: units / width,
            unit_ius,
            strip_units,
            strip_ius,
            member_units,
            segment_units,
            unsafe_units: unsafe_units(&shape),
            segment_ius,
            segment_shift: segment_ius.next_power_of_two().trailing_zeros(),
            chunk_units: (CHUNK_IUS / unit_ius).clamp(if unit_ius == 1 { 2 } else { 1 }, segment_units),
            shape,
            streams: Streams::default(),
        }
    }
    /// IUs of a full chunk, head included.
    pub fn chunk_ius(&self) -> u32 {
        self.chunk_units * self.unit_ius
    }
    /// Chunks of a segment when all are full.
    pub fn chunks_per_segment(&self) -> u32 {
        self.segment_units.div_ceil(self.chunk_units)
    }
    /// Program units at the end of an open segment that a cut can take: what lies there is safe when so many more are programmed.
    pub fn unsafe_tail_units(&self) -> u32 {
        self.unsafe_units * self.width
    }
    /// Full chunks that lie there.
    pub fn unsafe_tail_chunks(&self) -> u32 {
        self.unsafe_tail_units().div_ceil(self.chunk_units)
    }
    /// IUs of data that a segment holds when its chunks are full: a reclaim unit.
    pub fn reclaim_unit_ius(&self) -> u64 {
        u64::from(self.segment_ius - self.chunks_per_segment())
    }
    /// The address of an IU.
    pub fn address(&self, segment: SegmentIndex, offset: u32) -> LogAddress {
        LogAddress::at((u64::from(segment.0) << self.segment_shift) | u64::from(offset))
    }
    /// The segment of an address.
    #[inline]
    pub fn segment_of(&self, address: LogAddress) -> SegmentIndex {
        SegmentIndex((address.number() >> self.segment_shift) as u32)
    }
    /// The segment in which all of these lie; `None` if they lie in several, or one of them is in none. Without a branch for each entry.
    pub fn segment_of_all(&self, entries: &[MapEntry]) -> Option<SegmentIndex> {
        let (first, last) = (entries.first()?.get(), entries.last()?.get());
        if !first.is_place() || self.segment_of(first) != self.segment_of(last) {
            return None;
        }
        let (mut differing, mut beyond) = (0, 0);
        for place in entries.iter().map(|entry| entry.get()) {
            differing |= place.bits_differing(first);
            beyond |= self.segment_ius.wrapping_sub(1).wrapping_sub(self.offset_of(place));
        }
        (differing >> self.segment_shift == 0 && beyond >> 31 == 0).then(|| self.segment_of(first))
    }
    /// Adds the places among these entries to the counts of their segments, and to `used`. Whether some are neither such a place nor
    /// [`LogAddress::NONE`].
    pub fn count_each(&self, entries: &[MapEntry], counts: &mut [u32], used: &mut u64) -> bool {
        let mut odd = false;
        for entry in entries.iter().map(|entry| entry.get()) {
            if !entry.is_place() {
                odd |= entry != LogAddress::NONE;
                continue;
            }
            *used += 1;
            match counts.get_mut(self.segment_of(entry).0 as usize) {
                Some(count) => {
                    *count += 1;
                    odd |= self.offset_of(entry) >= self.segment_ius;
                }
                None => odd = true,
            }
        }
        odd
    }
    /// The offset of an address within its segment.
    #[inline]
    pub fn offset_of(&self, address: LogAddress) -> u32 {
        address.number() as u32 & ((1 << self.segment_shift) - 1)
    }
    /// Member and IU within the member's erase block.
    #[inline]
    pub fn place(&self, offset: u32) -> (usize, u32) {
        let (strip, iu) = self.by_strip.split(offset);
        let (row, member) = self.by_width.split(strip);
        (member as usize, row * self.strip_ius + iu)
    }
    /// Member of a program unit of the segment, and the number of that unit in the member's erase block.
    pub fn unit_place(&self, unit: u32) -> (u32, u32) {
        let (strip, within) = (unit / self.strip_units, unit % self.strip_units);
        (strip % self.width, strip / self.width * self.strip_units + within)
    }
    /// Program units of a member that lie before a unit of the segment.
    pub fn units_before(&self, unit: u32, member: u32) -> u32 {
        let (strip, within) = (unit / self.strip_units, unit % self.strip_units);
        let (row, at) = (strip / self.width, strip % self.width);
        row * self.strip_units
            + match member.cmp(&at) {
                std::cmp::Ordering::Less => self.strip_units,
                std::cmp::Ordering::Equal => within,
                std::cmp::Ordering::Greater => 0,
            }
    }
    /// Program units from one on that lie in its strip.
    pub fn units_to_strip_end(&self, unit: u32) -> u32 {
        self.strip_units - unit % self.strip_units
    }
    /// IUs from an offset on that lie one behind the other on a member.
    pub fn ius_to_strip_end(&self, offset: u32) -> u32 {
        self.strip_ius - self.by_strip.split(offset).1
    }
    /// Page, counted through the segment, and IU within it.
    #[inline]
    pub(crate) fn page(&self, offset: u32) -> (u32, u32) {
        self.by_page.split(offset)
    }
    /// Strip of the segment.
    #[inline]
    pub(crate) fn strip(&self, offset: u32) -> u32 {
        self.by_strip.quotient(offset)
    }
    /// Unit of a member of a segment in `group`.
    pub fn member(&self, group: u32, column: u32) -> UnitIndex {
        UnitIndex((group * self.width + column) as u16)
    }
    /// Groups of each reclaim group.
    pub fn groups_per_reclaim_group(&self) -> u32 {
        self.groups / u32::from(self.streams.placement().groups)
    }
    /// The reclaim group of a block.
    pub fn reclaim_group_of(&self, block: LogicalBlock) -> ReclaimGroup {
        ReclaimGroup((self.column_of(block).0 / self.groups_per_reclaim_group()) as u16)
    }
    /// Group and member of a block.
    pub fn column_of(&self, block: LogicalBlock) -> (u32, u32) {
        (u32::from(block.unit.0) / self.width, u32::from(block.unit.0) % self.width)
    }
    /// Content mode of user data.
    pub fn content_mode(&self) -> ContentMode {
        self.shape.content_mode
    }
}

/// See [`Layout::unsafe_units`].
pub(crate) fn unsafe_units(shape: &BlockShape) -> u32 {
    if shape.volatile_cache && !mutant!("log: units on a drive wait for those behind them") {
        0
    } else {
        shape.unsafe_units
    }
}

/// Program units of a strip on a medium without OOB areas: as many as there may be, but so that a block holds several strips.
fn strip_units(shape: &BlockShape) -> u32 {
    let most = (PLAIN_STRIP_IUS / shape.program_unit_ius()).max(1);
    let most = most.min(shape.program_units() / 4).max(1);
    1 << most.ilog2()
}

#[cfg(test)]
mod test {
    use super::*;

    fn shape(pages: u32, oob_size_bytes: u32) -> BlockShape {
        BlockShape {
            pages,
            page_size_bytes: 4096,
            program_unit_pages: 1,
            unsafe_units: 0,
            pipelined_units: 0,
            oob_size_bytes,
            holder_oob_offset: 0,
            content_mode: ContentMode::Bytes,
            volatile_cache: oob_size_bytes == 0,
        }
    }

    /// Goal: every IU of a segment lies at a place of its own, and all ways to ask for it agree. Method: all units of small segments, counted by hand.
    #[test]
    fn each_unit_of_a_segment_has_its_place() {
        for (shape, units, strip_units) in
            [(shape(255, 0), 3, 32), (shape(255, 64), 3, 1), (shape(65, 0), 4, 16), (shape(7, 0), 1, 1)]
        {
            let layout = Layout::new(shape, units, 1);
            assert_eq!((layout.strip_units, layout.width), (strip_units, units.into()));
            let mut counted = vec![0; units.into()];
            for unit in 0..layout.segment_units {
                for (member, count) in (0..).zip(&counted) {
                    assert_eq!(layout.units_before(unit, member), *count, "before {unit}");
                }
                let (member, row) = layout.unit_place(unit);
                assert_eq!(row, counted[member as usize], "unit {unit}");
                assert_eq!(layout.place(unit), (member as usize, row));
                let left = layout.units_to_strip_end(unit);
                assert_eq!(left, layout.ius_to_strip_end(unit));
                assert_eq!(layout.unit_place(unit + left - 1), (member, row + left - 1));
                counted[member as usize] += 1;
            }
            assert_eq!(counted, vec![layout.member_units; units.into()]);
            assert!(layout.member_units <= shape.pages && layout.member_units.is_multiple_of(strip_units));
        }
    }
    /// Goal: only entries that all lie in one segment are said to. Method: places of a segment that is shorter than what its number spans, and
    /// among them one at each place in the row that lies elsewhere, behind the segment's end, or nowhere.
    #[test]
    fn entries_of_one_segment_are_known() {
        let layout = Layout::new(shape(255, 0), 3, 1);
        assert!(!layout.segment_ius.is_power_of_two());
        let at = |segment, offset| MapEntry::from(layout.address(SegmentIndex(segment), offset));
        let within: Vec<MapEntry> = (0..10).map(|offset| at(5, layout.segment_ius - 10 + offset)).collect();
        assert_eq!(layout.segment_of_all(&within), Some(SegmentIndex(5)));
        assert_eq!(layout.segment_of_all(&within[..1]), Some(SegmentIndex(5)));
        assert_eq!(layout.segment_of_all(&[]), None);
        for other in [at(4, 0), at(6, 7), at(5, layout.segment_ius), MapEntry::NONE, LogAddress::LOST.into()]
        {
            for place in 0..within.len() {
                let mut entries = within.clone();
                entries[place] = other;
                assert_eq!(layout.segment_of_all(&entries), None, "{other:?} at {place}");
            }
        }
    }
}
