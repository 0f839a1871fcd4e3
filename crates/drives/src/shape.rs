use crate::zoning::{ZoneCut, Zoning};
use diecut_units::{BlockIndex, DieAddress, EraseBlockAddress, Geometry, GeometryError, IU_SIZE_BYTES};

/// Smallest and largest erase block.
const BLOCK_SIZES_BYTES: std::ops::RangeInclusive<u64> = 1 << 20..=256 << 20;
/// Largest zone.
const ZONE_BYTES_MAX: u64 = 1 << 40;
/// Smallest erase block that is chosen where nobody asks for one.
const PLANNED_SIZE_MIN_BYTES: u64 = 16 << 20;
/// Erase blocks that a lane should have, so that one of them is little.
const PLANNED_BLOCKS: u64 = 1024;
/// Erase blocks of a lane without which nothing can be cleaned.
pub(crate) const BLOCKS_MIN: u64 = 8;
/// Erase blocks of a lane of a small drive with which a pool has room beside its catalog and its block states.
const POOL_BLOCKS_MIN: u64 = 16;
/// Erase blocks of a lane with which a drive is not cut into fewer lanes.
pub(crate) const SUGGESTED_BLOCKS_MIN: u32 = 64;
/// Most lanes that are chosen where nobody asks for some.
pub(crate) const LANES_MAX: u16 = 16;
/// What is left free at both ends of a drive: for labels, and for what others put there.
pub(crate) const MARGIN_BYTES: u64 = 1 << 20;

/// How a drive is cut: into lanes, which are channels of one die to the rooms above, and erase blocks.
///
/// Erase blocks lie one behind the other, the ones of the first lane first, from 1 MiB on. The last whole MiB of the drive is free, and where lanes are parts
/// that were measured, that of each of them and its first. On a drive that is
/// written in zones each one is a zone, up to its capacity. On one that shows its dies a lane is a channel of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DriveShape {
    /// Lanes; each is owned by one shard.
    pub lanes: u16,
    /// Bytes of an erase block: a power of two, or the capacity of a zone.
    pub block_size_bytes: u64,
    /// Erase blocks of each lane.
    pub blocks_per_lane: u32,
    /// Where they lie in zones, if the drive is written in zones.
    pub zones: Option<ZoneCut>,
    /// What lanes are made of, if the drive shows its dies.
    pub dies: Option<DieCut>,
    /// Bytes from a lane to the next one, where lanes are parts of the drive that were measured not to disturb each other; otherwise they lie one behind the
    /// other.
    pub lane_stride_bytes: Option<u64>,
}

/// How a drive is to be cut; what suits it, where nothing is said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WantedCut {
    /// Lanes.
    pub lanes: Option<u16>,
    /// Bytes of an erase block.
    pub block_size_bytes: Option<u64>,
    /// Lanes are equal parts of the drive, each within its borders: they were measured not to disturb each other.
    pub apart: bool,
}

/// How the lanes of a drive that shows its dies (Open-Channel) are made of them. Its zones are chunks, of which each die has the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DieCut {
    /// Dies of each lane. Its erase blocks lie on them one after the other, the ones of the first die first.
    pub dies_per_lane: u16,
    /// Zones of each die. The first of them, which [`ZoneCut::first_zone`] counts, are no erase blocks.
    pub die_zones: u32,
    /// Pages that are programmed at once.
    pub program_unit_pages: u32,
}

/// Why a drive cannot be cut.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShapeError {
    /// It is too small.
    #[error(
        "the drive has {size_bytes} bytes; {lanes} lanes with {POOL_BLOCKS_MIN} erase blocks of {block_size_bytes} bytes need {needed_bytes}"
    )]
    TooSmall {
        /// What it has.
        size_bytes: u64,
        /// Lanes.
        lanes: u16,
        /// Erase block.
        block_size_bytes: u64,
        /// What it would take.
        needed_bytes: u64,
    },
    /// The erase block is no power of two from 1 to 256 MiB.
    #[error("an erase block of {0} bytes: it is a power of two, from 1 MiB to 256 MiB")]
    BlockSize(u64),
    /// There are too few zones.
    #[error("the drive has {zones} zones to write in sequence; {lanes} lanes and the labels need {needed}")]
    TooFewZones {
        /// What it has.
        zones: u64,
        /// Lanes.
        lanes: u16,
        /// What it would take.
        needed: u64,
    },
    /// Too few zones may be partly written.
    #[error(
        "the drive lets {places} zones be partly written at once; {lanes} lanes need {needed}: catalog, block states and the log of a vSSD write to \
         several"
    )]
    TooFewPlaces {
        /// What it has.
        places: u32,
        /// Lanes.
        lanes: u16,
        /// What it would take.
        needed: u32,
    },
    /// A zone ends within an IU.
    #[error("a zone of {0} bytes: it is whole blocks of 4 KiB")]
    ZoneCapacity(u64),
    /// An erase block of another size than that of a zone is asked for.
    #[error(
        "an erase block of {asked} bytes is asked for, and an erase block of a zoned drive is a zone, which takes {zone} bytes"
    )]
    NoZone {
        /// What is asked for.
        asked: u64,
        /// Capacity of a zone.
        zone: u64,
    },
    /// Other lanes are asked for than the drive has.
    #[error(
        "{asked} lanes are asked for, and the drive shows its channels: they are its lanes, {channels} of them"
    )]
    NotItsChannels {
        /// What is asked for.
        asked: u16,
        /// What it has.
        channels: u16,
    },
    /// What was programmed last cannot be read.
    #[error(
        "{pages} blocks of 4 KiB must be written behind one before it can be read and is safe (MW_CUNITS): a pool has nowhere to keep them meanwhile. \
         Cells that are programmed at once do not need that"
    )]
    CachedUnits {
        /// Blocks behind one.
        pages: u32,
    },
    /// Few chunks may be open.
    #[error("the drive limits how many chunks are open at once: a pool leaves many of them open")]
    OpenChunks,
    /// A chunk is no whole number of program units.
    #[error(
        "a chunk of {pages} blocks of 4 KiB, which are written {unit} at a time: it is no whole number of writes"
    )]
    ProgramUnit {
        /// Pages of a chunk.
        pages: u64,
        /// Pages of a program unit.
        unit: u32,
    },
    /// Lanes that are parts of it cannot be cut.
    #[error("lanes that were measured are equal parts of a drive that is not written in zones, two or more")]
    NotApart,
    /// Another value is out of range.
    #[error(transparent)]
    Geometry(#[from] GeometryError),
}

impl DriveShape {
    /// Cuts a drive of `size_bytes` into lanes. Erase blocks have the size asked for, or the one from 16 to 256 MiB at which a lane has
    /// about a thousand.
    ///
    /// # Errors
    /// If the drive is too small for 8 erase blocks in each lane, or the size of an erase block is no power of two from 1 to 256 MiB.
    pub fn plan(
        size_bytes: u64,
        lanes: u16,
        block_size_bytes: Option<u64>,
    ) -> Result<DriveShape, ShapeError> {
        let of_lane = size_bytes.saturating_sub(2 * MARGIN_BYTES) / u64::from(lanes.max(1));
        DriveShape::of_lanes(size_bytes, lanes, of_lane, block_size_bytes)
    }

    /// Cuts a drive into lanes that are equal parts of it, each with a margin at both ends. Erase blocks are as in [`DriveShape::plan`].
    fn apart(size_bytes: u64, lanes: u16, block_size_bytes: Option<u64>) -> Result<DriveShape, ShapeError> {
        if lanes < 2 {
            return Err(ShapeError::NotApart);
        }
        let iu = IU_SIZE_BYTES as u64;
        let stride_bytes = size_bytes / u64::from(lanes) / iu * iu;
        let of_lane = stride_bytes.saturating_sub(2 * MARGIN_BYTES);
        let shape = DriveShape::of_lanes(size_bytes, lanes, of_lane, block_size_bytes)?;
        Ok(DriveShape { lane_stride_bytes: Some(stride_bytes), ..shape })
    }

    /// So many lanes with room for so many bytes each.
    fn of_lanes(
        size_bytes: u64,
        lanes: u16,
        of_lane: u64,
        block_size_bytes: Option<u64>,
    ) -> Result<DriveShape, ShapeError> {
        let block_size_bytes = block_size_bytes.unwrap_or_else(|| {
            let wanted = (of_lane / PLANNED_BLOCKS).max(1).next_power_of_two();
            wanted.clamp(PLANNED_SIZE_MIN_BYTES, *BLOCK_SIZES_BYTES.end())
        });
        if !block_size_bytes.is_power_of_two() || !BLOCK_SIZES_BYTES.contains(&block_size_bytes) {
            return Err(ShapeError::BlockSize(block_size_bytes));
        }
        let blocks = of_lane / block_size_bytes;
        if blocks < BLOCKS_MIN {
            let needed_bytes = 2 * MARGIN_BYTES + u64::from(lanes) * POOL_BLOCKS_MIN * block_size_bytes;
            return Err(ShapeError::TooSmall { size_bytes, lanes, block_size_bytes, needed_bytes });
        }
        let blocks_per_lane = u32::try_from(blocks).unwrap_or(u32::MAX).min(1 << 20);
        let shape = DriveShape {
            lanes,
            block_size_bytes,
            blocks_per_lane,
            zones: None,
            dies: None,
            lane_stride_bytes: None,
        };
        shape.geometry().validate()?;
        Ok(shape)
    }

    /// Cuts a drive into as many lanes as make sense: the most, up to 16, of which each has 64 erase blocks. A small drive has fewer. Erase
    /// blocks are as in [`DriveShape::plan`].
    ///
    /// # Errors
    /// If the drive is too small for one lane.
    pub fn suggest(size_bytes: u64, block_size_bytes: Option<u64>) -> Result<DriveShape, ShapeError> {
        let plans = [LANES_MAX, 8, 4, 2].map(|lanes| DriveShape::plan(size_bytes, lanes, block_size_bytes));
        let large = plans.into_iter().flatten().find(|shape| shape.blocks_per_lane >= SUGGESTED_BLOCKS_MIN);
        large.map_or_else(|| DriveShape::plan(size_bytes, 1, block_size_bytes), Ok)
    }

    /// Cuts a drive as is asked for, or as suits it: as [`DriveShape::plan`] and [`DriveShape::suggest`] do, or [`Zoning::shape`] if it is written in zones.
    ///
    /// # Errors
    /// As these, and if an erase block of another size than that of a zone is asked for.
    pub fn wanted(
        size_bytes: u64,
        zoning: Option<&Zoning>,
        wanted: WantedCut,
    ) -> Result<DriveShape, ShapeError> {
        let WantedCut { lanes, block_size_bytes, apart } = wanted;
        let shape = match (zoning, lanes) {
            (Some(_), _) if apart => return Err(ShapeError::NotApart),
            (Some(zoning), _) => zoning.shape(lanes)?,
            (None, _) if apart => DriveShape::apart(size_bytes, lanes.unwrap_or(0), block_size_bytes)?,
            (None, Some(lanes)) => DriveShape::plan(size_bytes, lanes, block_size_bytes)?,
            (None, None) => DriveShape::suggest(size_bytes, block_size_bytes)?,
        };
        let zone = shape.block_size_bytes;
        match block_size_bytes.filter(|asked| *asked != zone) {
            Some(asked) if shape.zones.is_some() => Err(ShapeError::NoZone { asked, zone }),
            _ => Ok(shape),
        }
    }

    /// Dies of each lane: one, where the drive hides them.
    pub fn dies_per_lane(&self) -> u16 {
        self.dies.map_or(1, |cut| cut.dies_per_lane)
    }

    /// Erase blocks of each die.
    pub fn blocks_per_die(&self) -> u32 {
        self.blocks_per_lane / u32::from(self.dies_per_lane().max(1))
    }

    /// Pages that are programmed at once.
    pub fn program_unit_pages(&self) -> u32 {
        self.dies.map_or(1, |cut| cut.program_unit_pages)
    }

    /// The same in the words of the flash contract: a page is an IU, and has no OOB area.
    pub fn geometry(&self) -> Geometry {
        Geometry {
            channels: self.lanes,
            dies_per_channel: self.dies_per_lane(),
            planes_per_die: 1,
            blocks_per_plane: self.blocks_per_die(),
            pages_per_block: (self.block_size_bytes / IU_SIZE_BYTES as u64) as u32,
            page_size_bytes: IU_SIZE_BYTES as u32,
            oob_size_bytes: 0,
        }
    }

    /// The lane of an erase block, and its number there.
    #[inline]
    pub(crate) fn place(&self, address: EraseBlockAddress) -> (u16, u32) {
        let before = match self.dies {
            Some(_) => u32::from(address.die.0) * self.blocks_per_die(),
            None => 0,
        };
        (address.channel.0, before + address.block.0)
    }

    /// The erase block of a number in a lane.
    pub(crate) fn address(&self, lane: u16, block: u32) -> EraseBlockAddress {
        let of_die = self.blocks_per_die();
        DieAddress::new(lane, (block / of_die) as u16).erase_block(BlockIndex(block % of_die))
    }

    /// Bytes that a drive has at least to hold this shape.
    pub fn needed_bytes(&self) -> u64 {
        let blocks = u64::from(self.lanes) * u64::from(self.blocks_per_lane);
        let dies = u64::from(self.lanes) * u64::from(self.dies_per_lane());
        match self.zones {
            Some(cut) if let Some(of) = self.dies => dies * u64::from(of.die_zones) * cut.zone_size_bytes,
            Some(cut) => (u64::from(cut.first_zone) + blocks) * cut.zone_size_bytes,
            None => {
                let last = u64::from(self.lanes.saturating_sub(1)) * self.lane_bytes();
                2 * MARGIN_BYTES + last + u64::from(self.blocks_per_lane) * self.block_size_bytes
            }
        }
    }

    /// Whether [`DriveShape::plan`] or [`crate::Zoning::shape`] could have said so.
    pub(crate) fn is_sound(&self) -> bool {
        let is_block = match self.zones {
            Some(cut) => {
                (1..=cut.zone_size_bytes).contains(&self.block_size_bytes)
                    && self.block_size_bytes.is_multiple_of(IU_SIZE_BYTES as u64)
                    && self.block_size_bytes / IU_SIZE_BYTES as u64 <= u64::from(u32::MAX)
                    && cut.zone_size_bytes <= ZONE_BYTES_MAX
            }
            None => {
                self.block_size_bytes.is_power_of_two() && BLOCK_SIZES_BYTES.contains(&self.block_size_bytes)
            }
        };
        let are_dies = self.dies.is_none_or(|cut| {
            let pages = self.block_size_bytes / IU_SIZE_BYTES as u64;
            let labels = self.zones.map_or(u32::MAX, |zones| zones.first_zone);
            cut.dies_per_lane > 0
                && self.blocks_per_lane.is_multiple_of(cut.dies_per_lane.into())
                && self.blocks_per_die().checked_add(labels) == Some(cut.die_zones)
                && cut.program_unit_pages > 0
                && pages.is_multiple_of(cut.program_unit_pages.into())
        });
        let of_lane = u64::from(self.blocks_per_lane).checked_mul(self.block_size_bytes);
        let are_apart = self.lane_stride_bytes.is_none_or(|stride| {
            let whole = stride.is_multiple_of(IU_SIZE_BYTES as u64) && self.zones.is_none();
            whole
                && of_lane.is_some_and(|bytes| bytes <= stride)
                && stride.checked_mul(u64::from(self.lanes) + 1).is_some()
        });
        is_block
            && are_dies
            && are_apart
            && u64::from(self.blocks_per_die()) >= BLOCKS_MIN
            && self.geometry().validate().is_ok()
    }

    /// The zone that an erase block of a lane is.
    pub(crate) fn zone(&self, cut: ZoneCut, lane: u16, block: u32) -> u64 {
        let (first, blocks) = (u64::from(cut.first_zone), u64::from(self.blocks_per_lane));
        match self.dies {
            Some(DieCut { dies_per_lane, die_zones, .. }) => {
                let of_die = self.blocks_per_die();
                let die = u64::from(lane) * u64::from(dies_per_lane) + u64::from(block / of_die);
                die * u64::from(die_zones) + first + u64::from(block % of_die)
            }
            None => first + u64::from(lane) * blocks + u64::from(block),
        }
    }

    /// Where an erase block of a lane begins.
    pub fn offset(&self, lane: u16, block: u32) -> u64 {
        match self.zones {
            Some(cut) => self.zone(cut, lane, block) * cut.zone_size_bytes,
            None => {
                MARGIN_BYTES + u64::from(lane) * self.lane_bytes() + u64::from(block) * self.block_size_bytes
            }
        }
    }

    /// Bytes from a lane to the next one.
    fn lane_bytes(&self) -> u64 {
        self.lane_stride_bytes.unwrap_or(u64::from(self.blocks_per_lane) * self.block_size_bytes)
    }

    /// Bytes from an erase block to the next one.
    pub(crate) fn stride_bytes(&self) -> u64 {
        self.zones.map_or(self.block_size_bytes, |cut| cut.zone_size_bytes)
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn a_lane_has_about_a_thousand_blocks_and_margins_stay_free() {
        for (size, block, blocks) in [
            (1u64 << 30, 16u64 << 20, 15),
            (256 << 30, 64 << 20, 1023),
            (4 << 40, 256 << 20, 4095),
            (300 << 30, 128 << 20, 599),
        ] {
            let shape = DriveShape::plan(size, 4, None).unwrap();
            assert_eq!((shape.block_size_bytes, shape.blocks_per_lane), (block, blocks), "{size}");
            assert!(shape.needed_bytes() <= size);
            let last = shape.offset(3, shape.blocks_per_lane - 1) + shape.block_size_bytes;
            assert!(shape.offset(0, 0) == MARGIN_BYTES && last + MARGIN_BYTES <= size, "{size}");
            assert_eq!(shape.geometry().erase_block_size_bytes(), block);
        }
    }

    #[test]
    fn small_drives_are_suggested_fewer_lanes() {
        for (size, lanes) in [(1u64 << 40, 16), (17 << 30, 16), (16 << 30, 8), (1 << 30, 1), (131 << 20, 1)] {
            assert_eq!(DriveShape::suggest(size, None).unwrap().lanes, lanes, "{size}");
        }
        assert_eq!(DriveShape::suggest(131 << 20, Some(1 << 20)).unwrap().lanes, 2);
        assert!(matches!(DriveShape::suggest(100 << 20, None), Err(ShapeError::TooSmall { .. })));
    }

    /// Goal: lanes that were measured lie within their parts of the drive, whatever its size.
    #[test]
    fn lanes_that_are_apart_stay_within_their_parts() {
        for (size, lanes) in [(1u64 << 30, 3u16), ((300 << 30) + 12345 * 4096, 7), (4 << 40, 16)] {
            let wanted = WantedCut { lanes: Some(lanes), apart: true, ..WantedCut::default() };
            let shape = DriveShape::wanted(size, None, wanted).unwrap();
            assert!(shape.is_sound() && shape.needed_bytes() <= size);
            for lane in 0..lanes {
                let (begin, end) = (shape.offset(lane, 0), shape.offset(lane, shape.blocks_per_lane - 1));
                let part = size / u64::from(lanes);
                let border = part * u64::from(lane);
                assert!(begin >= border && end + shape.block_size_bytes + MARGIN_BYTES / 2 <= border + part);
            }
        }
        let apart = |lanes, size| {
            DriveShape::wanted(size, None, WantedCut { lanes, apart: true, ..WantedCut::default() })
        };
        assert_eq!(apart(Some(1), 1 << 30), Err(ShapeError::NotApart));
        assert!(matches!(apart(Some(8), 1 << 30), Err(ShapeError::TooSmall { .. })));
    }

    #[test]
    fn what_does_not_fit_says_what_would() {
        let error = DriveShape::plan(500 << 20, 4, None).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the drive has 524288000 bytes; 4 lanes with 16 erase blocks of 16777216 bytes need 1075838976"
        );
        assert_eq!(DriveShape::plan(1_075_838_976, 4, None).unwrap().blocks_per_lane, 16);
        for size in [3 << 20, 512 << 20, 4096] {
            assert_eq!(DriveShape::plan(1 << 40, 4, Some(size)), Err(ShapeError::BlockSize(size)));
        }
        assert!(matches!(DriveShape::plan(1 << 40, 0, None), Err(ShapeError::Geometry(_))));
    }
}
