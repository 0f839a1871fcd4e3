//! The system area: erase blocks that no tenant gets.

use diecut_media::Media;
use diecut_units::{BlockIndex, DieAddress, EraseBlockAddress};

/// Erase blocks reserved for the catalog and the state log. The rule needs nothing but the factory's marks, so that
/// a reader that knows nothing finds them: on each die the first good blocks in order of index, first those of
/// the catalog, then those of the state log.
#[derive(Clone, Debug)]
pub struct SystemArea {
    catalog: Vec<Vec<EraseBlockAddress>>,
    state_log: Vec<Vec<EraseBlockAddress>>,
}

impl SystemArea {
    /// Applies the probe rule to every die. A die with too few good blocks has a shorter list.
    pub fn probe<M: Media + ?Sized>(media: &M, catalog_per_die: u32, state_log_per_die: u32) -> SystemArea {
        let geometry = *media.geometry();
        let (mut catalog, mut state_log) = (Vec::new(), Vec::new());
        for die in geometry.all_dies() {
            let mut good = (0..geometry.erase_blocks_per_die())
                .map(|block| die.erase_block(BlockIndex(block)))
                .filter(|&block| !media.is_factory_bad(block));
            catalog.push(good.by_ref().take(catalog_per_die as usize).collect());
            state_log.push(good.take(state_log_per_die as usize).collect());
        }
        SystemArea { catalog, state_log }
    }
    /// The catalog's blocks of a die, by die number.
    pub fn catalog_blocks(&self, die_number: u32) -> &[EraseBlockAddress] {
        &self.catalog[die_number as usize]
    }
    /// The state log's blocks of a die, by die number.
    pub fn state_log_blocks(&self, die_number: u32) -> &[EraseBlockAddress] {
        &self.state_log[die_number as usize]
    }
    /// Whether the die's blocks contain it.
    pub fn contains(&self, die_number: u32, block: EraseBlockAddress) -> bool {
        let at = die_number as usize;
        self.catalog[at].contains(&block) || self.state_log[at].contains(&block)
    }
    /// Dies that have any block of the state log, in die order.
    pub fn all_state_log_blocks(&self) -> impl Iterator<Item = EraseBlockAddress> + '_ {
        self.state_log.iter().flatten().copied()
    }
    /// All catalog blocks, in die order.
    pub fn all_catalog_blocks(&self) -> impl Iterator<Item = EraseBlockAddress> + '_ {
        self.catalog.iter().flatten().copied()
    }
    /// The die's address belongs to the same device; for callers that count by address.
    pub fn catalog_blocks_of(
        &self,
        geometry: &diecut_units::Geometry,
        die: DieAddress,
    ) -> &[EraseBlockAddress] {
        self.catalog_blocks(geometry.die_number(die))
    }
}
