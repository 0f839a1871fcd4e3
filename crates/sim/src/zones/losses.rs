//! Pages of zones that cannot be read any more. What they hold is lost, and nothing else: no write pointer moves for them.

use diecut_devices::Device;
use diecut_shard::Shard;
use diecut_units::EraseBlockAddress;
use diecut_vssd::VssdId;
use diecut_vssd::space::{HeldBlock, Purpose};
use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::BTreeSet;

/// The purpose of erase blocks of zones. What a journal holds is in no other place.
const PURPOSE_ZONE: Purpose = Purpose(1);
/// Rows that a block has when it loses its first one: fewer may have been torn by the cut, where no protected memory says that they were not.
const ROWS_MIN: u32 = 4;

/// Some block of a zone with rows enough, before the server goes: one that a cut tears counts for none, since nobody can tell it from one that
/// was never programmed.
pub fn choose(
    lead: &Shard<Device>,
    zoned: u32,
    row_pages: u32,
    random: &mut Xoshiro256PlusPlus,
) -> Option<EraseBlockAddress> {
    let held = diecut_vssd::held_blocks(lead.pool(), VssdId(zoned));
    let device = lead.media().emulated();
    // A row that a cut tore is programmed, as far as the device goes, and not held.
    let has_rows = |held: &HeldBlock, place: &EraseBlockAddress| {
        device.programmed_pages(*place).min(held.written_pages) >= ROWS_MIN * row_pages
    };
    let of_zones = held.iter().filter(|(held, place)| held.purpose == PURPOSE_ZONE && has_rows(held, place));
    let of_zones: Vec<EraseBlockAddress> = of_zones.map(|(_, place)| *place).collect();
    match of_zones.len() {
        0 => None,
        count => Some(of_zones[random.random_range(0..count)]),
    }
}

/// Loses a page of the first row of a block, if that is not being erased. Says whether it did.
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

/// What a host found lost.
#[derive(Default)]
pub struct Lost {
    /// Zone and IU, in the zones' present lives.
    ius: BTreeSet<(u32, u32)>,
    /// What lies beside them is still to be read: zone, first IU, number of IUs.
    beside: Vec<(u32, u32, u32)>,
}

impl Lost {
    /// How many IUs there are.
    pub fn count(&self) -> usize {
        self.ius.len()
    }

    /// A read of a zone finds that an IU of it is lost.
    pub fn found(&mut self, zone: u32, first: u32, count: u32, iu: u64) -> Result<(), String> {
        let end = first + count;
        let Some(iu) = u32::try_from(iu).ok().filter(|iu| (first..end).contains(iu)) else {
            return Err(format!("zone {zone}: a read of {count} at {first} says that IU {iu:#x} is lost"));
        };
        self.ius.insert((zone, iu));
        let pieces = [(first, iu), (iu + 1, end)].into_iter().filter(|(first, end)| first < end);
        self.beside.extend(pieces.map(|(first, end)| (zone, first, end - first)));
        Ok(())
    }

    /// A zone is as if nothing had been written to it.
    pub fn forget(&mut self, zone: u32) {
        self.ius.retain(|(of, _)| *of != zone);
    }

    /// Takes what is still to be read.
    pub fn take_beside(&mut self) -> Vec<(u32, u32, u32)> {
        std::mem::take(&mut self.beside)
    }
}
