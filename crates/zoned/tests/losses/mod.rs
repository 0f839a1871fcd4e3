//! Pages that cannot be read any more, and which IUs of which zone a read may refuse for them.

use diecut_testing::Random;
use diecut_testing::fake_space::FakeSpace;
use diecut_vssd::space::EraseBlockSpace;
use diecut_zoned::ZoneSetDefinition;
use std::collections::BTreeMap;
use std::ops::Range;

/// Rows at the end of a block of which nobody can tell, without protected memory, whether they are lost or torn.
const UNSETTLED_ROWS: u32 = 2;
/// The holder's part of OOB begins here; set and zone lie in it as docs/format/zones.md says.
const MARK_OFFSET: usize = 32;

/// See the module.
#[derive(Default)]
pub struct Losses(BTreeMap<(u32, u32), Vec<Range<u32>>>);

impl Losses {
    /// Some page of a zone of `sets` is lost, unless it is the last one of its block that can be read.
    pub fn lose_page(
        &mut self,
        space: &mut FakeSpace,
        sets: &[ZoneSetDefinition],
        is_protected: bool,
        random: &mut Random,
    ) {
        let units = space.written_units();
        if units.is_empty() {
            return;
        }
        let (block, _) = units[random.below(units.len() as u64) as usize];
        let rows = units.iter().filter(|(other, _)| *other == block).count() as u32;
        let pages = space.readable_pages(block);
        if pages.len() < 2 {
            return;
        }
        // The first page is the one that matters most.
        let at = if random.below(2) == 0 { 0 } else { random.below(pages.len() as u64) as usize };
        let page = pages[at];
        let (row, page_in_row) =
            (page / space.shape.program_unit_pages, page % space.shape.program_unit_pages);
        if !is_protected && row + UNSETTLED_ROWS >= rows {
            return;
        }
        let oob = &space.oob_of(block, page).expect("just found")[MARK_OFFSET..];
        let word = |at: usize| u32::from_le_bytes(oob[at..at + 4].try_into().expect("4 bytes"));
        let (set, zone) = (word(4) & 0xff_ffff, word(8) & 0xf_ffff);
        let Some(definition) = sets.iter().find(|one| one.id == set) else { return };
        let (width, units) = (u32::from(definition.width), u32::from(space.unit_count()));
        let column = (0..width).find(|column| (zone * width + column) % units == u32::from(block.unit.0));
        let unit = row * width + column.expect("it lies on a unit of its zone");
        let page_ius = space.shape.ius_per_page();
        let first = unit * space.shape.program_unit_ius() + page_in_row * page_ius;
        space.lose_page(block, page);
        self.0.entry((set, zone)).or_default().push(first..first + page_ius);
    }

    /// Whether a read of an IU may say that it is lost.
    pub fn has(&self, set: u32, zone: u32, iu: u32) -> bool {
        self.0.get(&(set, zone)).is_some_and(|ranges| ranges.iter().any(|range| range.contains(&iu)))
    }

    /// A zone begins again.
    pub fn forget(&mut self, set: u32, zone: u32) {
        self.0.remove(&(set, zone));
    }
}
