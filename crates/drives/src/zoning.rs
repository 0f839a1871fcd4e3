//! A drive that is written in zones, as its report says: where labels lie, which zones are erase blocks, what is too little.

use crate::shape::{
    BLOCKS_MIN, DieCut, DriveShape, LANES_MAX, MARGIN_BYTES, SUGGESTED_BLOCKS_MIN, ShapeError,
};
use diecut_media::{Zone, ZoneCondition, ZoneDies};
use diecut_units::IU_SIZE_BYTES;

/// Zones of a lane that are partly written at once, where nobody is to wait for others too often: the eight of catalog and block states at worst, and those
/// of the log of a vSSD.
pub const PLACES_MIN: u32 = 14;
/// Zones that labels lie in, where none is conventional.
const LABEL_ZONES: u32 = 2;

/// What a zoned drive says of its zones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Zoning {
    /// From the start of a zone to that of the next one.
    pub zone_size_bytes: u64,
    /// Zones that are partly written, at most; 0: as many as there are.
    pub active_max: u32,
    /// Zones that are open at once, at most; 0: as many as there are.
    pub open_max: u32,
    /// All zones, from the first one on.
    pub zones: Vec<Zone>,
    /// Where they lie, on a drive that shows its dies.
    pub dies: Option<ZoneDies>,
}

/// How an erase block lies in a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneCut {
    /// From the start of a zone to that of the next one.
    pub zone_size_bytes: u64,
    /// The zone of the first erase block; on a drive that shows its dies, of each die.
    pub first_zone: u32,
}

/// Where the labels of a zoned drive lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LabelZones {
    /// In its conventional zones, which are so many bytes: as on a drive of that size.
    Conventional {
        /// Bytes at the start of the drive.
        size_bytes: u64,
    },
    /// In its first two zones, a copy in each; on a drive that shows its dies, in the first ones of two dies.
    Sequential([Zone; 2]),
}

/// Zones of each die that hold labels, or nothing: the first one, so that labels lie on two dies where there are as many.
fn label_zones_of(dies: &ZoneDies) -> u32 {
    if dies.all() > 1 { 1 } else { LABEL_ZONES }
}

impl Zoning {
    /// The zones at the start that are conventional.
    pub fn conventional(&self) -> u32 {
        self.zones.iter().take_while(|zone| zone.condition == ZoneCondition::Conventional).count() as u32
    }

    /// How many zones may be partly written, if that is limited.
    pub fn places(&self) -> Option<u32> {
        [self.active_max, self.open_max].into_iter().filter(|max| *max > 0).min()
    }

    /// Where labels lie; `None` if there are too few zones.
    pub fn label_zones(&self) -> Option<LabelZones> {
        if let Some(dies) = &self.dies {
            let second = if dies.all() > 1 { dies.die_zones } else { 1 };
            let zones = [self.zones.first(), self.zones.get(second as usize)];
            return match zones {
                [Some(first), Some(second)] => Some(LabelZones::Sequential([*first, *second])),
                _ => None,
            };
        }
        let size_bytes = u64::from(self.conventional()) * self.zone_size_bytes;
        if size_bytes >= 3 * MARGIN_BYTES {
            return Some(LabelZones::Conventional { size_bytes });
        }
        match self.sequential()[..] {
            [first, second, ..] => Some(LabelZones::Sequential([first, second])),
            _ => None,
        }
    }

    /// Zones behind the conventional ones that can be written, up to the first one of another kind.
    fn sequential(&self) -> Vec<Zone> {
        let rest = &self.zones[self.conventional() as usize..];
        let capacity_bytes = rest.first().map_or(0, |zone| zone.capacity_bytes);
        let is_alike = |zone: &&Zone| {
            zone.condition != ZoneCondition::Conventional && zone.capacity_bytes == capacity_bytes
        };
        rest.iter().take_while(is_alike).copied().collect()
    }

    /// Cuts the drive: an erase block is a zone, and lanes lie one behind the other. Where nobody asks for lanes, a drive that limits how many
    /// zones are partly written is one lane, because each lane opens zones of its own.
    ///
    /// # Errors
    /// If there are too few zones, too few of them may be partly written, or they are too large.
    ///
    /// A drive that shows its dies has its channels as lanes.
    pub fn shape(&self, lanes: Option<u16>) -> Result<DriveShape, ShapeError> {
        if let Some(dies) = &self.dies {
            return self.shape_of_dies(dies, lanes);
        }
        let sequential = self.sequential();
        let label_zones = match self.label_zones() {
            Some(LabelZones::Conventional { .. }) => 0,
            _ => LABEL_ZONES,
        };
        let zones = (sequential.len() as u64).saturating_sub(label_zones.into());
        let suggested = || {
            let is_enough = |lanes: &u16| zones / u64::from(*lanes) >= u64::from(SUGGESTED_BLOCKS_MIN);
            let lanes = [LANES_MAX, 8, 4, 2].into_iter().find(is_enough);
            lanes.filter(|_| self.places().is_none()).unwrap_or(1)
        };
        let lanes = lanes.unwrap_or_else(suggested);
        let (of_lane, block_size_bytes) =
            (zones / u64::from(lanes.max(1)), sequential.first().map_or(0, |zone| zone.capacity_bytes));
        if of_lane < BLOCKS_MIN {
            let needed = u64::from(lanes.max(1)) * BLOCKS_MIN + u64::from(label_zones);
            return Err(ShapeError::TooFewZones { zones: sequential.len() as u64, lanes, needed });
        }
        if let Some(places) = self.places().filter(|places| places / u32::from(lanes.max(1)) < PLACES_MIN) {
            let needed = u32::from(lanes.max(1)) * PLACES_MIN;
            return Err(ShapeError::TooFewPlaces { places, lanes, needed });
        }
        if !block_size_bytes.is_multiple_of(IU_SIZE_BYTES as u64) {
            return Err(ShapeError::ZoneCapacity(block_size_bytes));
        }
        let first_zone = self.conventional() + label_zones;
        let cut = ZoneCut { zone_size_bytes: self.zone_size_bytes, first_zone };
        let blocks_per_lane = of_lane.min(1 << 20) as u32;
        let shape = DriveShape {
            lanes,
            block_size_bytes,
            blocks_per_lane,
            zones: Some(cut),
            dies: None,
            lane_stride_bytes: None,
        };
        shape.geometry().validate()?;
        Ok(shape)
    }

    fn shape_of_dies(&self, dies: &ZoneDies, lanes: Option<u16>) -> Result<DriveShape, ShapeError> {
        let &ZoneDies { channels, dies_per_channel, die_zones, program_unit_pages, cached_pages, .. } = dies;
        if let Some(asked) = lanes.filter(|lanes| *lanes != channels) {
            return Err(ShapeError::NotItsChannels { asked, channels });
        }
        if cached_pages > 0 {
            return Err(ShapeError::CachedUnits { pages: cached_pages });
        }
        if self.places().is_some() {
            return Err(ShapeError::OpenChunks);
        }
        let first_zone = label_zones_of(dies);
        let blocks_per_die = die_zones.saturating_sub(first_zone);
        if u64::from(blocks_per_die) < BLOCKS_MIN || self.zones.len() < (dies.all() * die_zones) as usize {
            let needed = u64::from(dies.all()) * (BLOCKS_MIN + u64::from(first_zone));
            return Err(ShapeError::TooFewZones { zones: self.zones.len() as u64, lanes: channels, needed });
        }
        let block_size_bytes = self.zones.first().map_or(0, |zone| zone.capacity_bytes);
        let pages = block_size_bytes / IU_SIZE_BYTES as u64;
        if !block_size_bytes.is_multiple_of(IU_SIZE_BYTES as u64) {
            return Err(ShapeError::ZoneCapacity(block_size_bytes));
        }
        if program_unit_pages == 0 || !pages.is_multiple_of(program_unit_pages.into()) {
            return Err(ShapeError::ProgramUnit { pages, unit: program_unit_pages });
        }
        let shape = DriveShape {
            lanes: channels,
            block_size_bytes,
            blocks_per_lane: blocks_per_die.min(1 << 20) * u32::from(dies_per_channel),
            zones: Some(ZoneCut { zone_size_bytes: self.zone_size_bytes, first_zone }),
            dies: Some(DieCut { dies_per_lane: dies_per_channel, die_zones, program_unit_pages }),
            lane_stride_bytes: None,
        };
        shape.geometry().validate()?;
        Ok(shape)
    }

    /// Whether a drive with these zones can have been cut like that.
    pub fn fits(&self, shape: &DriveShape) -> bool {
        shape.zones.is_some_and(|cut| cut.zone_size_bytes == self.zone_size_bytes)
            && self.shape(Some(shape.lanes)).is_ok_and(|planned| planned == *shape)
    }
}

#[cfg(test)]
mod test {
    use super::*;

    fn zoning(conventional: u32, sequential: u32, active_max: u32) -> Zoning {
        let zone = |index: u32| {
            let offset = u64::from(index) * (8 << 20);
            let is_conventional = index < conventional;
            Zone {
                offset,
                capacity_bytes: if is_conventional { 8 << 20 } else { 6 << 20 },
                write_pointer: offset,
                condition: match is_conventional {
                    true => ZoneCondition::Conventional,
                    false => ZoneCondition::Empty,
                },
            }
        };
        let zones = (0..conventional + sequential).map(zone).collect();
        Zoning { zone_size_bytes: 8 << 20, active_max, open_max: 0, zones, dies: None }
    }

    /// Goal: an erase block has the capacity of a zone and begins where one does, behind the zones of labels.
    #[test]
    fn erase_blocks_are_zones() {
        let shape = zoning(0, 40, 14).shape(None).unwrap();
        assert_eq!((shape.lanes, shape.blocks_per_lane, shape.block_size_bytes), (1, 38, 6 << 20));
        assert_eq!((shape.offset(0, 0), shape.offset(0, 37)), (2 * (8 << 20), 39 * (8 << 20)));
        assert_eq!(shape.needed_bytes(), 40 * (8 << 20));
        let shape = zoning(1, 256, 0).shape(None).unwrap();
        assert_eq!((shape.lanes, shape.blocks_per_lane), (4, 64), "labels lie in the conventional zone");
        assert_eq!((shape.offset(0, 0), shape.offset(1, 0)), (8 << 20, 65 * (8 << 20)));
        let mut runt = zoning(0, 40, 0);
        runt.zones[39].capacity_bytes = 1 << 20;
        assert_eq!(runt.shape(Some(1)).unwrap().blocks_per_lane, 37, "a smaller last zone is left out");
    }

    #[test]
    fn what_is_too_little_says_so() {
        let few = zoning(0, 9, 0).shape(None).unwrap_err();
        assert_eq!(
            few.to_string(),
            "the drive has 9 zones to write in sequence; 1 lanes and the labels need 10"
        );
        let places = zoning(0, 40, 13).shape(None).unwrap_err();
        assert_eq!(
            places.to_string(),
            "the drive lets 13 zones be partly written at once; 1 lanes need 14: catalog, block states and the log of a vSSD write to several"
        );
        assert!(zoning(0, 40, 27).shape(Some(2)).is_err() && zoning(0, 40, 28).shape(Some(2)).is_ok());
        let mut open = zoning(0, 40, 14);
        open.open_max = 6;
        assert_eq!(open.places(), Some(6));
    }
}
