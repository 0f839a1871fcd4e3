//! What room a vSSD has for zones, and whether zones fit: figures that do not change while it lives, so that whoever plans can do it elsewhere.

use crate::journal::{self, JOURNAL_BLOCKS};
use crate::mark;
use crate::set::ZoneSetDefinition;
use crate::shape::ZoneShape;
use crate::slot::Slot;
use diecut_units::IU_SIZE_BYTES;
use diecut_vssd::space::{EraseBlockSpace, UnitIndex};

/// Erase blocks of a unit that zones leave for blocks that are copied, and for zones that end while others begin.
const SPARE_BLOCKS: u32 = 2;

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneRoom {
    /// Units of the vSSD.
    pub units: u16,
    /// IUs of a program unit.
    pub unit_ius: u32,
    /// Program units of an erase block.
    pub rows: u32,
    /// Program units that a power cut can destroy behind the one that is programmed.
    pub unsafe_units: u32,
    /// Erase blocks that zones can have on each unit.
    pub blocks: u32,
    /// Staging slots in protected memory, if the device has that.
    pub slots: Option<u32>,
}

impl ZoneRoom {
    /// That of a space, with so many bytes of protected memory.
    pub fn of(space: &dyn EraseBlockSpace, staging_size_bytes: Option<usize>) -> ZoneRoom {
        let shape = space.shape();
        let unit_ius = shape.program_unit_ius();
        let units = space.unit_count();
        let slot = Slot::size_bytes(unit_ius, shape.content_mode.bytes_per_iu());
        let least = (0..units).map(|unit| space.blocks_of_unit(UnitIndex(unit))).min().unwrap_or(0);
        ZoneRoom {
            units,
            unit_ius,
            rows: shape.program_units(),
            unsafe_units: shape.unsafe_units,
            // Any unit may have to hold the journal.
            blocks: least.saturating_sub(SPARE_BLOCKS + JOURNAL_BLOCKS),
            slots: staging_size_bytes.map(|bytes| (bytes / slot) as u32),
        }
    }

    /// IUs that zones can hold together.
    pub fn ius(&self) -> u64 {
        u64::from(self.units) * u64::from(self.blocks) * u64::from(self.rows) * u64::from(self.unit_ius)
    }

    /// Shape of zones of a width; 0: as wide as the vSSD.
    ///
    /// # Errors
    /// Says what there is, and what is asked.
    pub fn shape(&self, width: u16) -> Result<ZoneShape, String> {
        ZoneShape::new(width, self.units, self.unit_ius, self.rows)
    }

    /// Slots that each active zone takes.
    fn slots_owed(&self, set: &ZoneSetDefinition) -> u64 {
        let width = if set.width == 0 { self.units } else { set.width };
        set.slots_owed(width, self.unsafe_units).into()
    }

    /// Slots that no zone of `others` takes. One for each unit is left, so that a zone can program them side by side.
    fn free_slots(&self, others: &[ZoneSetDefinition]) -> u64 {
        let Some(slots) = self.slots else { return u64::MAX };
        let taken = others.iter().map(|set| u64::from(set.active_max) * self.slots_owed(set));
        u64::from(slots).saturating_sub(u64::from(self.units)).saturating_sub(taken.sum())
    }

    /// Active zones like these that staging suffices for, beside others, at most.
    pub fn active_max(&self, wanted: &ZoneSetDefinition, others: &[ZoneSetDefinition]) -> u32 {
        let most = self.free_slots(others) / self.slots_owed(wanted);
        u32::try_from(most).unwrap_or(u32::MAX)
    }

    /// Blocks on each unit that no zone of `others` takes.
    fn free_blocks(&self, others: &[ZoneSetDefinition]) -> Result<Vec<u32>, String> {
        let mut free = vec![self.blocks; usize::from(self.units)];
        for other in others {
            let taken = self.shape(other.width)?.blocks_on_units(other.zones);
            free.iter_mut().zip(taken).for_each(|(free, taken)| *free = free.saturating_sub(taken));
        }
        Ok(free)
    }

    /// Zones of a width that there is room for, beside others, at most.
    pub fn zones_max(&self, width: u16, others: &[ZoneSetDefinition]) -> u32 {
        let (Ok(shape), Ok(free)) = (self.shape(width), self.free_blocks(others)) else { return 0 };
        let fits = |zones: u32| {
            let wanted = shape.blocks_on_units(zones);
            wanted.iter().zip(&free).all(|(wanted, free)| wanted <= free)
        };
        let (mut low, mut high) = (0, free.iter().sum::<u32>() / u32::from(shape.width) + 1);
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if fits(middle) {
                low = middle;
            } else {
                high = middle;
            }
        }
        low
    }

    /// Whether zones like these can be, beside `others`: their shape.
    ///
    /// # Errors
    /// Says what there is, and what is asked.
    pub fn check(
        &self,
        wanted: &ZoneSetDefinition,
        others: &[ZoneSetDefinition],
    ) -> Result<ZoneShape, String> {
        let shape = self.shape(wanted.width)?;
        if wanted.zones > mark::ZONES_MAX || wanted.id > mark::SET_MAX || self.rows > mark::ROWS_MAX {
            return Err(format!(
                "{} zones of erase blocks with {} program units: {} zones and {} program units are the most",
                wanted.zones,
                self.rows,
                mark::ZONES_MAX,
                mark::ROWS_MAX
            ));
        }
        if self.slots.is_none() && self.unsafe_units > 0 {
            return Err(format!(
                "the device has no protected memory, and a power cut can destroy {} program units of an erase block that were \
                 written before: zones cannot be kept on it",
                self.unsafe_units
            ));
        }
        if self.slots.is_none() && wanted.random_units > 0 {
            return Err("a random write area needs protected memory, and the device has none".to_owned());
        }
        let most = self.active_max(wanted, others);
        if wanted.active_max > most {
            return Err(format!(
                "{} active zones need {} slots of staging memory each, and {} are free: {most} active zones are the most",
                wanted.active_max,
                self.slots_owed(wanted),
                self.free_slots(others)
            ));
        }
        let most = self.zones_max(wanted.width, others);
        if wanted.zones > most {
            return Err(format!(
                "{} zones of {} erase blocks do not fit: {most} are the most that its vSSD has room for",
                wanted.zones, shape.width
            ));
        }
        let all = others.iter().chain([wanted]);
        let kept = all.map(|set| journal::size_bytes_max(set.zones.into(), set.extension_size_bytes));
        let (kept, room) =
            (kept.sum::<u64>(), u64::from(self.rows) * u64::from(self.unit_ius) * IU_SIZE_BYTES as u64);
        if kept > room {
            return Err(format!(
                "what is kept of so many zones, {kept} bytes, does not fit an erase block of {room} bytes; use fewer zones, or \
                 shorter extensions"
            ));
        }
        Ok(shape)
    }
}

#[cfg(test)]
mod test {
    use super::*;

    const ROOM: ZoneRoom =
        ZoneRoom { units: 4, unit_ius: 16, rows: 64, unsafe_units: 3, blocks: 10, slots: Some(100) };

    fn zones(zones: u32, width: u16, active_max: u32) -> ZoneSetDefinition {
        let (random_units, extension_size_bytes) = (0, 0);
        ZoneSetDefinition {
            id: 1,
            zones,
            width,
            active_max,
            open_max: active_max,
            random_units,
            extension_size_bytes,
        }
    }

    /// Goal: what does not fit is refused with the figure that does. Method: figures by hand: 40 blocks, and 96 slots of which a zone of one
    /// block takes 4 and one of all four 13.
    #[test]
    fn what_does_not_fit_is_refused_with_the_figure() {
        assert_eq!((ROOM.zones_max(1, &[]), ROOM.zones_max(4, &[]), ROOM.zones_max(3, &[])), (40, 10, 13));
        assert_eq!(ROOM.zones_max(4, &[zones(9, 1, 1)]), 7, "one unit has 7 left");
        assert_eq!((ROOM.active_max(&zones(1, 1, 1), &[]), ROOM.active_max(&zones(1, 0, 1), &[])), (24, 7));
        assert_eq!(ROOM.active_max(&zones(1, 1, 1), &[zones(5, 4, 5)]), 7);
        assert!(ROOM.check(&zones(40, 1, 24), &[]).is_ok());
        let refused = |wanted, room: ZoneRoom| room.check(&wanted, &[]).expect_err("it cannot be");
        assert!(refused(zones(41, 1, 1), ROOM).contains("40 are the most"));
        assert!(refused(zones(10, 1, 25), ROOM).contains("24 active zones are the most"));
        assert!(refused(zones(10, 5, 1), ROOM).contains("the vSSD has 4"));
        let bare = ZoneRoom { slots: None, ..ROOM };
        assert!(refused(zones(1, 1, 1), bare).contains("no protected memory"));
        let bare = ZoneRoom { unsafe_units: 0, ..bare };
        assert!(bare.check(&zones(40, 1, 40), &[]).is_ok());
        assert!(
            refused(ZoneSetDefinition { random_units: 1, ..zones(1, 1, 1) }, bare)
                .contains("random write area")
        );
        let long = ZoneSetDefinition { extension_size_bytes: 1 << 20, ..zones(40, 1, 1) };
        assert!(refused(long, ROOM).contains("does not fit an erase block"));
    }
}
