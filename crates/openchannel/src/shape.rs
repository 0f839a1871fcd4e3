//! Where chunks lie and how they are addressed.

use diecut_vssd::space::UnitIndex;

/// A chunk, counted over all of a namespace: by its group, then by its parallel unit, then by its number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChunkIndex(pub u32);

/// Shape of the chunks of a namespace. An address has, from its highest bit on, the group, the parallel unit in it, the chunk on that, and the
/// logical block in the chunk; each part has the bits that its number of values needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkShape {
    /// Groups.
    pub groups: u16,
    /// Parallel units of a group; each is a unit of the vSSD.
    pub units: u16,
    /// Chunks of a parallel unit.
    pub chunks: u32,
    /// IUs of a program unit: a write is a multiple of it.
    pub unit_ius: u32,
    /// Program units of a chunk.
    pub rows: u32,
    /// Program units that a power cut can destroy behind the one that is programmed.
    pub unsafe_units: u32,
}

const fn bits_for(values: u32) -> u8 {
    if values <= 1 { 0 } else { (u32::BITS - (values - 1).leading_zeros()) as u8 }
}

impl ChunkShape {
    /// Logical blocks of a chunk.
    pub const fn chunk_ius(&self) -> u32 {
        self.rows * self.unit_ius
    }

    /// Parallel units of all groups.
    pub const fn all_units(&self) -> u32 {
        self.groups as u32 * self.units as u32
    }

    /// Chunks of all parallel units.
    pub const fn all_chunks(&self) -> u32 {
        self.all_units() * self.chunks
    }

    /// Logical blocks behind one of an open chunk before it can be read: those that a power cut cannot destroy any more lie before them.
    pub const fn cached_ius(&self) -> u32 {
        self.unsafe_units * self.unit_ius
    }

    /// Bits of group, parallel unit, chunk and logical block.
    pub const fn bits(&self) -> [u8; 4] {
        let (groups, units) = (self.groups as u32, self.units as u32);
        [bits_for(groups), bits_for(units), bits_for(self.chunks), bits_for(self.chunk_ius())]
    }

    /// The first address beyond all.
    pub fn size_lbas(&self) -> u64 {
        1 << self.bits().into_iter().map(u32::from).sum::<u32>()
    }

    /// Address of a logical block of a chunk.
    pub fn lba(&self, chunk: ChunkIndex, block: u32) -> u64 {
        let [_, unit_bits, chunk_bits, block_bits] = self.bits();
        let (unit, number) = (chunk.0 / self.chunks, chunk.0 % self.chunks);
        let (group, unit) = (unit / u32::from(self.units), unit % u32::from(self.units));
        let of_unit = u64::from(group) << unit_bits | u64::from(unit);
        (of_unit << chunk_bits | u64::from(number)) << block_bits | u64::from(block)
    }

    /// The chunk of an address, and the logical block in it; `None` if there is none.
    #[inline]
    pub fn split(&self, lba: u64) -> Option<(ChunkIndex, u32)> {
        let [_, unit_bits, chunk_bits, block_bits] = self.bits();
        let part = |lba: u64, bits: u8| (lba & ((1 << bits) - 1), lba >> bits);
        let (block, rest) = part(lba, block_bits);
        let (number, rest) = part(rest, chunk_bits);
        let (unit, group) = part(rest, unit_bits);
        let is_there = group < self.groups.into()
            && unit < self.units.into()
            && number < self.chunks.into()
            && block < self.chunk_ius().into();
        if !is_there {
            return None;
        }
        let unit = group as u32 * u32::from(self.units) + unit as u32;
        Some((ChunkIndex(unit * self.chunks + number as u32), block as u32))
    }

    /// The unit of the vSSD that a chunk lies on.
    pub const fn unit_of(&self, chunk: ChunkIndex) -> UnitIndex {
        UnitIndex((chunk.0 / self.chunks) as u16)
    }
}

#[cfg(test)]
mod test {
    use super::*;

    /// Goal: each address is that of one logical block of one chunk. Method: all of several shapes, there and back, and all that are none.
    #[test]
    fn addresses_go_there_and_back() {
        for (groups, units, chunks) in [(1, 1, 1), (1, 3, 5), (2, 4, 60), (3, 1, 2)] {
            let shape = ChunkShape { groups, units, chunks, unit_ius: 3, rows: 4, unsafe_units: 0 };
            let mut there = 0;
            for lba in 0..shape.size_lbas() + 10 {
                if let Some((chunk, block)) = shape.split(lba) {
                    there += 1;
                    assert_eq!(shape.lba(chunk, block), lba);
                }
            }
            assert_eq!(there, shape.all_chunks() * 12, "{shape:?}");
            assert_eq!(shape.split(u64::MAX), None);
        }
        let shape = ChunkShape { groups: 2, units: 4, chunks: 60, unit_ius: 4, rows: 1024, unsafe_units: 2 };
        assert_eq!((shape.bits(), shape.size_lbas(), shape.cached_ius()), ([1, 2, 6, 12], 1 << 21, 8));
        // The chunk log has them in this order (OC section on the chunk information log).
        assert_eq!(
            shape.split((1 << 8 | 2 << 6 | 0x3b) << 12),
            Some((ChunkIndex(0x3b + 2 * 60 + 4 * 60), 0))
        );
        assert_eq!(shape.unit_of(ChunkIndex(0x3b + 2 * 60 + 4 * 60)), UnitIndex(6));
    }
}
