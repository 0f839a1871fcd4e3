//! Where an IU of a zone lies. A zone is one erase block on each unit of its width; program units go round over them, so the write
//! pointer alone says how far each block is written.

use diecut_vssd::space::UnitIndex;

/// Shape of all zones of a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneShape {
    /// Erase blocks of a zone, each on another unit.
    pub width: u16,
    /// Units of the vSSD.
    pub units: u16,
    /// IUs of a program unit.
    pub unit_ius: u32,
    /// Program units of an erase block.
    pub rows: u32,
}

/// The program units of a zone are numbered from its start.
pub(crate) type UnitNumber = u32;

impl ZoneShape {
    /// Of zones as wide as `width` units of a vSSD with `units` of them; 0: all of them.
    ///
    /// # Errors
    /// If there are fewer units, or a zone has more IUs than 32 bits can count.
    pub(crate) fn new(width: u16, units: u16, unit_ius: u32, rows: u32) -> Result<ZoneShape, String> {
        let width = if width == 0 { units } else { width };
        if width > units {
            return Err(format!(
                "a zone of {width} erase blocks does not fit: the vSSD has {units} units; use that or less"
            ));
        }
        let ius = u64::from(rows) * u64::from(unit_ius) * u64::from(width);
        if ius > 1 << 31 {
            return Err(format!(
                "a zone of {width} erase blocks has {ius} logical blocks, and 2147483648 is the most"
            ));
        }
        Ok(ZoneShape { width, units, unit_ius, rows })
    }

    /// IUs that a zone holds.
    pub const fn capacity_ius(&self) -> u32 {
        self.width as u32 * self.rows * self.unit_ius
    }

    /// log2 of the IUs from the start of a zone to that of the next one: hosts ask for a power of two.
    pub const fn size_ius_log2(&self) -> u32 {
        self.capacity_ius().next_power_of_two().trailing_zeros()
    }

    /// Program units of a zone.
    pub(crate) const fn unit_count(&self) -> u32 {
        self.width as u32 * self.rows
    }

    /// Column and row of a program unit.
    #[inline]
    pub(crate) const fn place(&self, unit: UnitNumber) -> (usize, u32) {
        ((unit % self.width as u32) as usize, unit / self.width as u32)
    }

    /// The unit of the vSSD that a column of a zone lies on. Zones begin on different units, so that narrow ones spread.
    pub(crate) const fn unit_of(&self, zone: u32, column: usize) -> UnitIndex {
        let first = zone as u64 * self.width as u64 % self.units as u64;
        UnitIndex(((first + column as u64) % self.units as u64) as u16)
    }

    /// The column of a zone that lies on a unit, if one does.
    pub(crate) fn column_on(&self, zone: u32, unit: UnitIndex) -> Option<usize> {
        (0..usize::from(self.width)).find(|column| self.unit_of(zone, *column) == unit)
    }

    /// Erase blocks that `zones` zones take on each unit.
    pub fn blocks_on_units(&self, zones: u32) -> Vec<u32> {
        let mut blocks = vec![0; usize::from(self.units)];
        let all = u64::from(zones) * u64::from(self.width);
        let (rounds, rest) = (all / u64::from(self.units), all % u64::from(self.units));
        for (unit, blocks) in (0..).zip(&mut blocks) {
            *blocks = rounds as u32 + u32::from(unit < rest);
        }
        blocks
    }

    /// Rows of a column that lie before a program unit.
    pub(crate) const fn rows_before(&self, unit: UnitNumber, column: usize) -> u32 {
        let (rows, rest) = (unit / self.width as u32, unit % self.width as u32);
        rows + if (column as u32) < rest { 1 } else { 0 }
    }
}

#[cfg(test)]
mod test {
    use super::*;

    /// Goal: counting and placing agree. Method: every zone's columns are placed and counted one by one, for all widths.
    #[test]
    fn blocks_are_counted_where_zones_lie() {
        for units in 1..7 {
            for width in 1..=units {
                let shape = ZoneShape { width, units, unit_ius: 4, rows: 3 };
                for zones in 0..15 {
                    let mut counted = vec![0; usize::from(units)];
                    for (zone, column) in
                        (0..zones).flat_map(|z| (0..usize::from(width)).map(move |c| (z, c)))
                    {
                        let unit = shape.unit_of(zone, column);
                        counted[usize::from(unit.0)] += 1;
                        assert_eq!(shape.column_on(zone, unit), Some(column));
                    }
                    assert_eq!(shape.blocks_on_units(zones), counted, "{zones} zones of {width} of {units}");
                }
                let before = |unit| (0..usize::from(width)).map(|c| shape.rows_before(unit, c)).sum::<u32>();
                assert!((0..=shape.unit_count()).all(|unit| before(unit) == unit));
            }
        }
    }
}
