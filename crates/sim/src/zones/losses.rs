//! Pages of zones that cannot be read any more. What they hold is lost, and nothing else: no write pointer moves for them.

use diecut_devices::Device;
use diecut_shard::Shard;
use diecut_units::EraseBlockAddress;
use diecut_vssd::VssdId;
use diecut_vssd::space::Purpose;
use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;

/// The purpose of erase blocks of zones. What a journal holds is in no other place.
const PURPOSE_ZONE: Purpose = Purpose(1);
/// Rows that a block has when it loses its first one: fewer may have been torn by the cut, where no protected memory says that they were not.
const ROWS_MIN: u32 = 4;

/// Some block of a zone, before the server goes.
pub fn choose(
    lead: &Shard<Device>,
    zoned: u32,
    random: &mut Xoshiro256PlusPlus,
) -> Option<EraseBlockAddress> {
    let held = diecut_vssd::held_blocks(lead.pool(), VssdId(zoned));
    let of_zones: Vec<EraseBlockAddress> =
        held.iter().filter(|(held, _)| held.purpose == PURPOSE_ZONE).map(|(_, place)| *place).collect();
    match of_zones.len() {
        0 => None,
        count => Some(of_zones[random.random_range(0..count)]),
    }
}

/// Loses a page of the first row of a block, if it has further rows. Says whether it did.
pub fn lose(
    device: &mut Device,
    block: EraseBlockAddress,
    row_pages: u32,
    random: &mut Xoshiro256PlusPlus,
) -> bool {
    let emulated = device.emulated_mut();
    let has_rows = emulated.programmed_pages(block) >= ROWS_MIN * row_pages;
    if has_rows {
        emulated.lose_page(block, random.random_range(0..row_pages));
    }
    has_rows
}
