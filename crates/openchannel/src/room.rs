//! What room a vSSD has for chunks: figures that do not change while it lives.

use crate::shape::ChunkShape;
use diecut_units::IU_SIZE_BYTES;
use diecut_vssd::space::{EraseBlockSpace, UnitIndex};

/// Erase blocks of a unit that chunks leave for one whose first program fails while no other is back.
const SPARE_BLOCKS: u32 = 1;
/// An address leaves the highest bit of 64 free.
const CHUNKS_MAX: u64 = 1 << 24;

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkRoom {
    /// Units of the vSSD.
    pub units: u16,
    /// IUs of a program unit.
    pub unit_ius: u32,
    /// Program units of an erase block.
    pub rows: u32,
    /// Program units that a power cut can destroy behind the one that is programmed.
    pub unsafe_units: u32,
    /// Chunks that each unit can have.
    pub blocks: u32,
}

impl ChunkRoom {
    /// That of a space.
    pub fn of(space: &dyn EraseBlockSpace) -> ChunkRoom {
        let (shape, units) = (space.shape(), space.unit_count());
        let least = (0..units).map(|unit| space.blocks_of_unit(UnitIndex(unit))).min().unwrap_or(0);
        ChunkRoom {
            units,
            unit_ius: shape.program_unit_ius(),
            rows: shape.program_units(),
            unsafe_units: shape.unsafe_units,
            blocks: least.saturating_sub(SPARE_BLOCKS),
        }
    }

    /// IUs that chunks can hold together.
    pub fn ius(&self) -> u64 {
        u64::from(self.blocks) * self.step_ius()
    }

    /// IUs of one chunk on each unit.
    fn step_ius(&self) -> u64 {
        u64::from(self.units) * u64::from(self.rows) * u64::from(self.unit_ius)
    }

    /// The shape of chunks of so many bytes in `groups` groups.
    ///
    /// # Errors
    /// Says what there is, and what is asked.
    pub fn shape(&self, size_bytes: u64, groups: u16) -> Result<ChunkShape, String> {
        let step_bytes = self.step_ius() * IU_SIZE_BYTES as u64;
        let most_bytes = u64::from(self.blocks) * step_bytes;
        if size_bytes == 0 || !size_bytes.is_multiple_of(step_bytes) || size_bytes > most_bytes {
            let near = (size_bytes / step_bytes * step_bytes).clamp(step_bytes, most_bytes.max(step_bytes));
            return Err(format!(
                "{size_bytes} bytes cannot be cut into chunks: use a multiple of {step_bytes} bytes (one erase block on each of {} units) \
                 up to {most_bytes}, {near} for example",
                self.units
            ));
        }
        let chunks = (size_bytes / step_bytes) as u32;
        if u64::from(chunks) * u64::from(self.units) > CHUNKS_MAX {
            return Err(format!(
                "{} chunks are more than {CHUNKS_MAX}",
                u64::from(chunks) * u64::from(self.units)
            ));
        }
        assert!(groups > 0 && self.units.is_multiple_of(groups), "I-K2: groups are alike");
        let ChunkRoom { units, unit_ius, rows, unsafe_units, .. } = *self;
        Ok(ChunkShape { groups, units: units / groups, chunks, unit_ius, rows, unsafe_units })
    }
}

#[cfg(test)]
mod test {
    use super::*;

    /// Goal: what does not fit is refused with the figure that does. Method: figures by hand.
    #[test]
    fn what_does_not_fit_is_refused_with_the_figure() {
        let room = ChunkRoom { units: 4, unit_ius: 2, rows: 8, unsafe_units: 1, blocks: 10 };
        let step = 4 * 16 * 4096;
        let shape = room.shape(3 * step, 2).expect("it fits");
        assert_eq!((shape.groups, shape.units, shape.chunks, shape.chunk_ius()), (2, 2, 3, 16));
        for (bytes, says) in [(0, "262144"), (step + 1, "262144"), (11 * step, "2621440")] {
            let error = room.shape(bytes, 1).expect_err("it cannot be");
            assert!(error.contains(says), "{error}");
        }
        assert_eq!(room.ius(), 640);
    }
}
