use crate::{DieAddress, EraseBlockAddress, IU_SIZE_BYTES};

/// Shape of one flash device.
///
/// An erase block spans all planes of its die. Its pages are numbered in program order with the plane as the
/// fastest index: page `p` of an erase block lies on plane `p % planes_per_die` at offset
/// `p / planes_per_die` of that plane's block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Channels of the device; each has a bus of its own.
    pub channels: u16,
    /// Dies on each channel.
    pub dies_per_channel: u16,
    /// Planes of each die.
    pub planes_per_die: u16,
    /// Blocks of each plane, which is also the number of erase blocks of a die.
    pub blocks_per_plane: u32,
    /// Pages of one plane's block.
    pub pages_per_block: u32,
    /// Data bytes of a page; a multiple of the IU.
    pub page_size_bytes: u32,
    /// Spare bytes stored with a page; 0 on a drive that offers none.
    pub oob_size_bytes: u32,
}

/// A geometry that no device can have, with the field to mend.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("geometry: {field} is {value}, but {rule}")]
pub struct GeometryError {
    /// Name of the field.
    pub field: &'static str,
    /// Its value.
    pub value: u64,
    /// The rule it breaks.
    pub rule: &'static str,
}

impl Geometry {
    /// Checks that every count is positive and within what addresses can carry.
    ///
    /// # Errors
    /// Names the first field that is out of range.
    pub fn validate(&self) -> Result<(), GeometryError> {
        let error = |field, value, rule| Err(GeometryError { field, value, rule });
        if self.channels == 0 || self.channels > 1024 {
            return error("channels", self.channels.into(), "a device has 1 to 1024");
        }
        if self.dies_per_channel == 0 || self.dies_per_channel > 1024 {
            return error("dies_per_channel", self.dies_per_channel.into(), "a channel has 1 to 1024");
        }
        if self.planes_per_die == 0 || self.planes_per_die > 16 {
            return error("planes_per_die", self.planes_per_die.into(), "a die has 1 to 16");
        }
        if self.blocks_per_plane < 8 || self.blocks_per_plane > 1 << 20 {
            return error("blocks_per_plane", self.blocks_per_plane.into(), "a plane has 8 to 1048576");
        }
        if self.pages_per_block == 0 || self.pages_per_block > 1 << 16 {
            return error("pages_per_block", self.pages_per_block.into(), "a block has 1 to 65536");
        }
        if self.page_size_bytes == 0
            || !self.page_size_bytes.is_multiple_of(IU_SIZE_BYTES as u32)
            || self.page_size_bytes > 1 << 20
        {
            return error(
                "page_size_bytes",
                self.page_size_bytes.into(),
                "it is a multiple of 4096, at most 1 MiB",
            );
        }
        let oob_minimum = 64 * self.page_size_bytes.div_ceil(16 * 1024);
        if self.has_oob() && self.oob_size_bytes < oob_minimum || self.oob_size_bytes > 1 << 14 {
            return error(
                "oob_size_bytes",
                self.oob_size_bytes.into(),
                "NAND offers at least 64 bytes per 16 KiB of page",
            );
        }
        Ok(())
    }

    /// Whether pages have spare bytes beside them. A drive that hides its flash offers none.
    pub const fn has_oob(&self) -> bool {
        self.oob_size_bytes > 0
    }

    /// Dies of the whole device.
    pub const fn dies(&self) -> u32 {
        self.channels as u32 * self.dies_per_channel as u32
    }
    /// Position of a die when all are counted channel by channel.
    pub const fn die_number(&self, die: DieAddress) -> u32 {
        die.channel.0 as u32 * self.dies_per_channel as u32 + die.die.0 as u32
    }
    /// The die at a position given by [`Geometry::die_number`].
    pub const fn die_at(&self, number: u32) -> DieAddress {
        DieAddress::new(
            (number / self.dies_per_channel as u32) as u16,
            (number % self.dies_per_channel as u32) as u16,
        )
    }
    /// All dies, channel by channel.
    pub fn all_dies(&self) -> impl Iterator<Item = DieAddress> + use<> {
        let geometry = *self;
        (0..self.dies()).map(move |number| geometry.die_at(number))
    }
    /// Erase blocks of one die.
    pub const fn erase_blocks_per_die(&self) -> u32 {
        self.blocks_per_plane
    }
    /// Erase blocks of the device.
    pub const fn erase_blocks(&self) -> u64 {
        self.dies() as u64 * self.blocks_per_plane as u64
    }
    /// Position of an erase block when all are counted die by die.
    pub const fn erase_block_number(&self, block: EraseBlockAddress) -> u64 {
        self.die_number(block.die_address()) as u64 * self.blocks_per_plane as u64 + block.block.0 as u64
    }
    /// Pages of one erase block, over all planes.
    pub const fn pages_per_erase_block(&self) -> u32 {
        self.pages_per_block * self.planes_per_die as u32
    }
    /// IUs of one page.
    pub const fn ius_per_page(&self) -> u32 {
        self.page_size_bytes / IU_SIZE_BYTES as u32
    }
    /// IUs of one erase block.
    pub const fn ius_per_erase_block(&self) -> u32 {
        self.pages_per_erase_block() * self.ius_per_page()
    }
    /// Data bytes of one erase block.
    pub const fn erase_block_size_bytes(&self) -> u64 {
        self.pages_per_erase_block() as u64 * self.page_size_bytes as u64
    }
    /// Data bytes of the device before bad blocks, reserves and metadata.
    pub const fn raw_capacity_bytes(&self) -> u64 {
        self.erase_blocks() * self.erase_block_size_bytes()
    }
    /// Whether the erase block exists.
    pub const fn contains(&self, block: EraseBlockAddress) -> bool {
        block.channel.0 < self.channels
            && block.die.0 < self.dies_per_channel
            && block.block.0 < self.blocks_per_plane
    }
}

#[cfg(test)]
mod test {
    use super::*;

    /// `cnex-1tb` (docs/sources.md): 16 channels, 4 dies, 4 planes, 1,069 blocks, 256 pages of 16 KiB: 1,069 GiB.
    const CNEX: Geometry = Geometry {
        channels: 16,
        dies_per_channel: 4,
        planes_per_die: 4,
        blocks_per_plane: 1069,
        pages_per_block: 256,
        page_size_bytes: 16384,
        oob_size_bytes: 64,
    };

    #[test]
    fn the_published_geometry_has_the_published_capacity() {
        CNEX.validate().unwrap();
        assert_eq!(CNEX.raw_capacity_bytes(), 1069 << 30);
        assert_eq!(CNEX.erase_block_size_bytes(), 16 << 20);
    }

    #[test]
    fn die_numbers_are_a_bijection() {
        for (number, die) in CNEX.all_dies().enumerate() {
            assert_eq!(CNEX.die_number(die) as usize, number);
        }
        assert_eq!(CNEX.all_dies().count(), 64);
    }

    #[test]
    fn a_field_out_of_range_is_named() {
        let error = Geometry { oob_size_bytes: 32, ..CNEX }.validate().unwrap_err();
        assert_eq!(error.field, "oob_size_bytes");
        let error = Geometry { page_size_bytes: 5000, ..CNEX }.validate().unwrap_err();
        assert_eq!(error.field, "page_size_bytes");
    }
}
