//! The table of block states, kept in place in protected memory: one entry per erase block and one per vSSD.
//!
//! Protected memory survives the process and the power, and one aligned word of it changes at once. So the table needs
//! no log: each entry has two slots; the one that is not current is written and made current by its first word.
//!
//! Layout, little endian:
//!
//! | part   | size                        | content                                                          |
//! |--------|-----------------------------|------------------------------------------------------------------|
//! | header | 64                          | `DIECUTBT`, version 4 (4), CRC-32C of bytes 16..64 (4), then words of 4: the device's geometry (7), soft-planes per die, catalog and state log blocks per die, erase blocks of a unit that is a whole die; zeros |
//! | blocks | 2 x 32 per erase block      | see below, die by die                                            |
//! | pages  | 8 per erase block           | pages programmed (3), check (1), low half of the allocation sequence they belong to (4) |
//! | wear   | 64 + 4 x 8 and 2 x 8 per soft-plane, per die | exchange (2 x 32), erases by migration (8), by movement inside the die (8), by the state log (8), zeros (8), then for each soft-plane (the first, where the die is whole) erases since its content moved (8), average of erases per window in 1/256 (8) |
//! | vSSDs  | 2 x (32 + 8 per unit) each  | see below                                                        |
//!
//! Slot of a block: counter (4) and CRC-32C of the counter and bytes 8..32 (4), published as one word; owner (4), unit (2),
//! purpose (1), state (1: 0 free, 1 held, 2 held after a failed program, 3 retired, 4 held but contradicted by flash; bit 7: some pages could
//! not be read when it was moved here, their OOB records say which), logical index (4), erase count (4),
//! allocation sequence (8). Slot of a vSSD: counter and CRC as above over the rest; id (4), state (1: 0 removed, 1
//! placed), isolation (1), units (2), flags (1: bit 0 read-only), reserved (15), then for each unit its
//! die (4; bit 31: it moves to the other die of that die's exchange),
//! soft-plane (2, FFFFh: the whole die) and erase blocks it lost for good (2). The check of the pages is the low byte of
//! the CRC-32C of the block's number (4), the pages (4) and the half sequence (4).
//!
//! Slot of an exchange of two dies' content, with the first of them, or of a block that moves within a die (both dies the same, phase 2): counter and CRC as above; phase (1: 0 none, 1 under
//! way, 2 a pair of blocks changes places, 3 the units change places), flags (1: bits 0 and 1, the copy has lost pages), dies (3
//! each), source and copy on the other die of up to two blocks (4 each, FFFFFFFFh: none). Phases 2 and 3 are carried out again
//! at opening (see `wear/swap.rs`). Counts of wear carry no check: the erases of a die are the sum over its blocks.
//!
//! The valid slot with the newer counter counts. Counters go 1, 2, .. FFFF_FFFFh, 1; both slots zero: never written. A
//! slot that does not check out is what a store left that the death of the process cut short only if its counter is the
//! one before that of the valid slot, or zero beside 1; anything else is damage, and so is an entry without a valid slot
//! or a pages word that fails its check. A damaged block is set aside and reported, never taken for free or empty; a
//! damaged vSSD entry, another version (1 lacked the sizes, 2 wear and exchanges, 3 had one exchange per channel), a damaged exchange, geometry or division refuses the whole. Nothing is
//! converted: before the first release there is one version.

use crate::VssdId;
use crate::owners::resources::UnitPlace;
use crate::states::cells::{Cells, ChannelCells, Shape};
use crate::states::change::Change;
use crate::states::entry::{
    BODY_SIZE_BYTES, BlockEntry, ExchangeEntry, SLOT_SIZE_BYTES, SlotHead, UNIT_SIZE_BYTES,
    VSSD_BODY_SIZE_BYTES, VssdEntry, decode_block, decode_exchange, decode_vssd, encode_block,
    encode_exchange, encode_vssd,
};
use crate::states::pages::{PAGES_SIZE_BYTES, PagesWord};
use diecut_units::{Geometry, ProtectedRegion, checksum};
use std::mem::offset_of;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, transmute};

const MAGIC: &[u8; 8] = b"DIECUTBT";
const VERSION: u32 = 4;
const HEADER_SIZE_BYTES: usize = size_of::<Header>();
/// What the check of the header covers.
const CHECKED_FROM: usize = offset_of!(Header, geometry);

/// What a table begins with.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Header {
    magic: [u8; 8],
    version: U32,
    check: U32,
    geometry: [U32; 7],
    soft_planes_per_die: U32,
    catalog_blocks_per_die: U32,
    state_log_blocks_per_die: U32,
    die_blocks: U32,
    reserved: U32,
}

/// Counts of the erases of a die.
const DIE_WEAR_SIZE_BYTES: usize = size_of::<[U64; 4]>();
/// What is known of the content of a place.
const HEAT_SIZE_BYTES: usize = size_of::<[U64; 2]>();
const _: () = {
    assert!(HEADER_SIZE_BYTES == 64 && CHECKED_FROM == 16);
    assert!(offset_of!(Header, soft_planes_per_die) == 44 && offset_of!(Header, die_blocks) == 56);
};

/// Why block states cannot be taken over.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// The drive could not make durable what it has, so that what is read from it may be gone after the next cut.
    #[error("the drive cannot flush its cache")]
    FlushFailed,
    /// The region is too small for the device.
    #[error(
        "block states of this device need {needed_bytes} bytes of protected memory, but there are {given_bytes}"
    )]
    TooSmall {
        /// Needed.
        needed_bytes: usize,
        /// Given.
        given_bytes: usize,
    },
    /// Neither empty nor block states.
    #[error(
        "protected memory holds something that is not block states, or a damaged header; nothing was changed"
    )]
    Damaged,
    /// Written by another version.
    #[error("block states have format version {0}; this program knows version 4 (make the device anew)")]
    Version(u32),
    /// They belong to another device.
    #[error("block states belong to a device of another geometry")]
    Geometry,
    /// The dies are cut into another number of soft-planes than when the device was made.
    #[error(
        "this device was made with pool.soft_planes_per_die = {made}, and the set-up says {set}, or leaves it out: a device keeps what it \
         was made with. Set it to {made}, or use a new device"
    )]
    SoftPlanes {
        /// As recorded.
        made: u32,
        /// As set now.
        set: u32,
    },
    /// The pool's settings make other sizes than those it was made with.
    #[error(
        "block states were made with {what} of {made}, but the pool is set to {set}; set it as it was, or make the device anew"
    )]
    Sizes {
        /// Which size.
        what: &'static str,
        /// As recorded.
        made: u32,
        /// As set now.
        set: u32,
    },
    /// The state log has no place on a medium without protected memory.
    #[error(
        "without protected memory block states need two good blocks of the state log on each of two dies, each larger than the states of \
         the device; use a device with protected memory, or one with larger erase blocks"
    )]
    NoStateLog,
    /// An entry names what does not exist, or contradicts another.
    #[error("block states are damaged: {0}")]
    Entry(String),
}

/// What is found where an entry should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Found<T> {
    /// Never written.
    New,
    Entry(T),
    /// It cannot be told what was written last.
    Damaged,
}

/// Sizes that entries depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sizes {
    pub soft_planes_per_die: u16,
    pub catalog_blocks_per_die: u32,
    pub state_log_blocks_per_die: u32,
    /// Erase blocks of a unit that is a whole die.
    pub die_blocks: u32,
}

/// See the module.
pub(crate) struct StateTable {
    cells: Cells,
    shape: Shape,
    blocks: usize,
    vssd_slots: usize,
    units_max: usize,
    dies: u32,
    soft_planes: usize,
    /// The process dies after this many more stores: later ones do not happen.
    #[cfg(test)]
    pub stores_left: Option<u32>,
}

#[cfg(test)]
thread_local! {
    /// A store did not happen because the process died before it.
    pub(crate) static DIED: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

impl StateTable {
    /// Bytes that the table of a device takes.
    pub fn size_bytes(geometry: &Geometry, soft_planes_per_die: u16) -> usize {
        let blocks = geometry.erase_blocks() as usize;
        let units = geometry.dies() as usize * usize::from(soft_planes_per_die);
        let size = HEADER_SIZE_BYTES
            + blocks * (2 * SLOT_SIZE_BYTES + PAGES_SIZE_BYTES)
            + geometry.dies() as usize * wear_size(soft_planes_per_die.into())
            + units * 2 * vssd_slot_size(units);
        size.next_multiple_of(4096)
    }

    fn header(geometry: &Geometry, sizes: &Sizes) -> Header {
        let geometry = [
            geometry.channels.into(),
            geometry.dies_per_channel.into(),
            geometry.planes_per_die.into(),
            geometry.blocks_per_plane,
            geometry.pages_per_block,
            geometry.page_size_bytes,
            geometry.oob_size_bytes,
        ];
        let mut header = Header {
            magic: *MAGIC,
            version: VERSION.into(),
            check: 0.into(),
            geometry: geometry.map(U32::from),
            soft_planes_per_die: u32::from(sizes.soft_planes_per_die).into(),
            catalog_blocks_per_die: sizes.catalog_blocks_per_die.into(),
            state_log_blocks_per_die: sizes.state_log_blocks_per_die.into(),
            die_blocks: sizes.die_blocks.into(),
            reserved: 0.into(),
        };
        header.check = checksum(&header.as_bytes()[CHECKED_FROM..]).into();
        header
    }

    /// Takes over what the region holds, or makes it new if it is all zeros at its start. Says which.
    pub fn open(
        mut region: ProtectedRegion,
        geometry: &Geometry,
        sizes: &Sizes,
    ) -> Result<(StateTable, bool), OpenError> {
        let needed_bytes = StateTable::size_bytes(geometry, sizes.soft_planes_per_die);
        if region.len() < needed_bytes {
            return Err(OpenError::TooSmall { needed_bytes, given_bytes: region.len() });
        }
        let header = StateTable::header(geometry, sizes);
        let (stored, _) = Header::read_from_prefix(&region).expect("a table is larger than its header");
        let is_new = stored.magic == [0; 8];
        if is_new {
            region[..needed_bytes].fill(0);
            region[8..HEADER_SIZE_BYTES].copy_from_slice(&header.as_bytes()[8..]);
            region.publish(0, u64::from_le_bytes(*MAGIC));
        } else if stored.magic != *MAGIC {
            return Err(OpenError::Damaged);
        } else if stored.version != VERSION {
            return Err(OpenError::Version(stored.version.get()));
        } else if stored.check != checksum(&stored.as_bytes()[CHECKED_FROM..]) {
            return Err(OpenError::Damaged);
        } else if stored.geometry != header.geometry {
            return Err(OpenError::Geometry);
        }
        StateTable::check_soft_planes(&region, sizes)?;
        let made = if is_new { &header } else { &stored };
        let pairs = [
            ("catalog blocks per die", made.catalog_blocks_per_die, header.catalog_blocks_per_die),
            ("state log blocks per die", made.state_log_blocks_per_die, header.state_log_blocks_per_die),
            ("erase blocks of a unit (bad-block reserve, spares)", made.die_blocks, header.die_blocks),
        ];
        for (what, made, set) in pairs {
            if made != set {
                return Err(OpenError::Sizes { what, made: made.get(), set: set.get() });
            }
        }
        Ok((StateTable::over(Cells::Whole(region), geometry, sizes), is_new))
    }

    /// Whether block states, which may be too short, were made for dies that are cut as they are set now.
    pub fn check_soft_planes(states: &[u8], sizes: &Sizes) -> Result<(), OpenError> {
        let Ok((header, _)) = Header::ref_from_prefix(states) else { return Ok(()) };
        let (made, set) = (header.soft_planes_per_die.get(), u32::from(sizes.soft_planes_per_die));
        if header.magic != *MAGIC || header.version != VERSION || made == set {
            return Ok(());
        }
        Err(OpenError::SoftPlanes { made, set })
    }

    fn over(cells: Cells, geometry: &Geometry, sizes: &Sizes) -> StateTable {
        let units_max = geometry.dies() as usize * usize::from(sizes.soft_planes_per_die);
        StateTable {
            cells,
            shape: shape_of(geometry, units_max, sizes.soft_planes_per_die),
            dies: geometry.dies(),
            soft_planes: sizes.soft_planes_per_die.into(),
            blocks: geometry.erase_blocks() as usize,
            vssd_slots: units_max,
            units_max,
            #[cfg(test)]
            stores_left: None,
        }
    }

    /// The table of a pool that holds nothing of a divided device yet.
    pub fn nothing(geometry: &Geometry, sizes: &Sizes) -> StateTable {
        let units_max = geometry.dies() as usize * usize::from(sizes.soft_planes_per_die);
        let shape = shape_of(geometry, units_max, sizes.soft_planes_per_die);
        StateTable::over(Cells::nothing(shape), geometry, sizes)
    }

    /// What the table says of a channel and of vSSDs can be handed to another pool's from now on.
    pub fn divide(&mut self) -> &mut Cells {
        self.cells.divide(self.shape);
        &mut self.cells
    }

    /// A copy of what it says of a channel.
    pub fn copy_channel(&self, channel: u16) -> ChannelCells {
        self.cells.copy_channel(self.shape, channel)
    }
    /// A copy of the entry of a vSSD.
    pub fn copy_slot(&self, slot: usize) -> ProtectedRegion {
        self.cells.copy_slot(self.shape, slot)
    }
    /// An entry that no vSSD has, of no pool.
    pub fn blank_slot(&self) -> ProtectedRegion {
        Cells::blank_slot(self.shape)
    }
    /// Entries there are for vSSDs.
    pub fn slots_len(&self) -> usize {
        self.vssd_slots
    }

    /// Whether it says what lies on a channel: of a divided device, one pool's table does.
    pub fn holds_channel(&self, channel: u16) -> bool {
        self.cells.holds_channel(channel)
    }

    /// The slot that a vSSD without one would take.
    pub fn unused_slot(&self) -> usize {
        let entries = self.slots();
        self.unused_of(&entries)
    }

    /// The slot of a vSSD's entry, if it has one here.
    pub fn slot_of(&self, id: VssdId) -> Option<usize> {
        (0..self.vssd_slots).find(|&slot| match self.cells.holds_slot(slot).then(|| self.vssd(slot)) {
            Some(Found::Entry(entry)) => entry.id == id,
            _ => false,
        })
    }

    /// Slots held here: of a divided device, those that no other pool has.
    pub fn held_slots(&self) -> Vec<usize> {
        (0..self.vssd_slots).filter(|&slot| self.cells.holds_slot(slot)).collect()
    }

    /// Slots held here that no vSSD needs.
    pub fn idle_slots(&self) -> Vec<usize> {
        let idle = |slot: usize| match self.vssd(slot) {
            Found::Entry(entry) => !entry.placed,
            Found::New | Found::Damaged => true,
        };
        (0..self.vssd_slots).filter(|&slot| self.cells.holds_slot(slot) && idle(slot)).collect()
    }

    fn pages_at(&self, block: usize) -> usize {
        HEADER_SIZE_BYTES + self.blocks * 2 * SLOT_SIZE_BYTES + block * PAGES_SIZE_BYTES
    }
    fn vssd_at(&self, slot: usize) -> usize {
        HEADER_SIZE_BYTES
            + self.blocks * (2 * SLOT_SIZE_BYTES + PAGES_SIZE_BYTES)
            + self.shape.channels * self.shape.wear_bytes
            + slot * 2 * vssd_slot_size(self.units_max)
    }

    /// The exchange of a die, then its wear.
    fn exchange_at(&self, die: u32) -> usize {
        let before = HEADER_SIZE_BYTES + self.blocks * (2 * SLOT_SIZE_BYTES + PAGES_SIZE_BYTES);
        before + die as usize * wear_size(self.soft_planes)
    }
    fn die_wear_at(&self, die: u32) -> usize {
        self.exchange_at(die) + 2 * SLOT_SIZE_BYTES
    }

    /// Sets the first counts of a die.
    pub fn set_die_wears(&mut self, die: u32, words: [u64; 3]) {
        words.into_iter().enumerate().for_each(|(which, count)| self.set_die_wear(die, which, count));
    }
    /// Sets one of the four counts of a die.
    fn set_die_wear(&mut self, die: u32, which: usize, count: u64) {
        self.publish(self.die_wear_at(die) + which * 8, count);
    }
    pub fn die_wear(&self, die: u32) -> [u64; 4] {
        let counts = self.cells.get(self.die_wear_at(die), DIE_WEAR_SIZE_BYTES);
        <[U64; 4]>::ref_from_bytes(counts).expect("four counts").map(U64::get)
    }
    /// Sets what is known of the content of a place: erases since it moved, and their average.
    pub fn set_heat(&mut self, place: UnitPlace, words: [u64; 2]) {
        let at = self.heat_at(place);
        self.publish(at, words[0]);
        self.publish(at + 8, words[1]);
    }
    pub fn heat(&self, place: UnitPlace) -> [u64; 2] {
        let words = self.cells.get(self.heat_at(place), HEAT_SIZE_BYTES);
        <[U64; 2]>::ref_from_bytes(words).expect("two words").map(U64::get)
    }
    fn heat_at(&self, place: UnitPlace) -> usize {
        let plane = usize::from(place.soft_plane.unwrap_or(0));
        self.die_wear_at(place.die) + DIE_WEAR_SIZE_BYTES + plane * HEAT_SIZE_BYTES
    }

    /// Writes an exchange down, or that there is none, with its first die.
    pub fn set_exchange(&mut self, die: u32, entry: Option<&ExchangeEntry>) {
        let body = encode_exchange(entry);
        self.write(self.exchange_at(die), &body);
    }
    /// The exchange whose first die this is.
    pub fn exchange(&self, die: u32) -> Found<Option<ExchangeEntry>> {
        match self.current(self.exchange_at(die), SLOT_SIZE_BYTES) {
            Found::New => Found::New,
            Found::Entry((at, _)) => {
                decode_exchange(self.body(at, BODY_SIZE_BYTES)).map_or(Found::Damaged, Found::Entry)
            }
            Found::Damaged => Found::Damaged,
        }
    }
    pub fn dies(&self) -> u32 {
        self.dies
    }

    /// The current slot of an entry: its place and counter; the other one is written next.
    fn current(&self, first: usize, size: usize) -> Found<(usize, u32)> {
        let look = |at: usize| {
            let (head, body) = SlotHead::ref_from_prefix(self.cells.get(at, size)).expect("slots have heads");
            let counter = head.counter.get();
            (counter, counter > 0 && head.check == sum_of(counter, body))
        };
        let (one, other) = (look(first), look(first + size));
        match (one, other) {
            ((one, true), (other, true)) if one == next_counter(other) => Found::Entry((first, one)),
            ((_, true), (other, true)) => Found::Entry((first + size, other)),
            ((one, true), (torn, false)) if next_counter(torn) == one => Found::Entry((first, one)),
            ((torn, false), (other, true)) if next_counter(torn) == other => {
                Found::Entry((first + size, other))
            }
            // The very first store was cut short: its body is there, its word is not.
            _ if self.cells.get(first, 8) == [0; 8]
                && self.cells.get(first + size, size).iter().all(|byte| *byte == 0) =>
            {
                Found::New
            }
            _ => Found::Damaged,
        }
    }

    /// What stands behind the head of a slot.
    fn body(&self, at: usize, size: usize) -> &[u8] {
        self.cells.get(at + size_of::<SlotHead>(), size)
    }

    fn write(&mut self, first: usize, body: &[u8]) {
        let size = size_of::<SlotHead>() + body.len();
        let (at, counter) = match self.current(first, size) {
            Found::Entry((at, counter)) if at == first => (first + size, next_counter(counter)),
            Found::Entry((_, counter)) => (first, next_counter(counter)),
            Found::New => (first, 1),
            Found::Damaged => panic!("damaged entries are set aside, not written (I-V2)"),
        };
        self.cells.get_mut(at + size_of::<SlotHead>(), body.len()).copy_from_slice(body);
        let head = SlotHead { counter: counter.into(), check: sum_of(counter, body).into() };
        let word: U64 = transmute!(head);
        self.publish(at, word.get());
    }

    /// The one place where an entry becomes true.
    fn publish(&mut self, at: usize, word: u64) {
        #[cfg(test)]
        if let Some(left) = &mut self.stores_left {
            if *left == 0 {
                DIED.set(true);
                return;
            }
            *left -= 1;
        }
        self.cells.publish(at, word);
    }

    /// All of it, as it lies in memory.
    pub fn bytes(&self) -> &[u8] {
        self.cells.whole()
    }

    /// Carries out changes of a log (see `log.rs`).
    ///
    /// # Errors
    /// They are not changes, or make no sense.
    pub fn replay(&mut self, mut changes: &[u8]) -> Result<(), OpenError> {
        while let Some(change) = Change::take(&mut changes) {
            match change {
                Change::Exchange { die, body } => {
                    if die >= self.dies || self.exchange(die) == Found::Damaged {
                        return Err(OpenError::Damaged);
                    }
                    let entry = decode_exchange(body).ok_or(OpenError::Damaged)?;
                    self.set_exchange(die, entry.as_ref());
                }
                Change::Block { number, body } => {
                    self.check_block(number)?;
                    self.set_block(number, &decode_block(body).ok_or(OpenError::Damaged)?);
                }
                Change::Vssd { body } => {
                    let entry = decode_vssd(body).ok_or(OpenError::Damaged)?;
                    let known = self.vssds()?;
                    let fits = known.len() < self.vssd_slots
                        || known.iter().any(|other| other.id == entry.id || !other.placed);
                    if !fits || entry.units.len() > self.units_max {
                        return Err(OpenError::Damaged);
                    }
                    self.set_vssd(&entry);
                }
                Change::Pages { number, pages, sequence } => {
                    self.check_block(number)?;
                    if pages >= 1 << 24 {
                        return Err(OpenError::Damaged);
                    }
                    self.set_pages(number, pages, sequence);
                }
            }
        }
        if changes.is_empty() { Ok(()) } else { Err(OpenError::Damaged) }
    }

    fn check_block(&self, number: u32) -> Result<(), OpenError> {
        let is_right = (number as usize) < self.blocks && self.block(number) != Found::Damaged;
        if is_right { Ok(()) } else { Err(OpenError::Damaged) }
    }

    pub fn set_block(&mut self, block: u32, entry: &BlockEntry) {
        let body = encode_block(entry);
        self.write(HEADER_SIZE_BYTES + block as usize * 2 * SLOT_SIZE_BYTES, &body);
    }

    /// The entry of a block.
    pub fn block(&self, block: u32) -> Found<BlockEntry> {
        match self.current(HEADER_SIZE_BYTES + block as usize * 2 * SLOT_SIZE_BYTES, SLOT_SIZE_BYTES) {
            Found::New => Found::New,
            Found::Entry((at, _)) => {
                decode_block(self.body(at, BODY_SIZE_BYTES)).map_or(Found::Damaged, Found::Entry)
            }
            Found::Damaged => Found::Damaged,
        }
    }

    /// How many pages of a block's present allocation are programmed.
    pub fn set_pages(&mut self, block: u32, pages: u32, sequence: u64) {
        let at = self.pages_at(block as usize);
        self.publish(at, PagesWord::new(block, pages, sequence).word());
    }

    /// See [`StateTable::set_pages`]; 0 if the pages belong to another allocation, `None` if the word is damaged.
    pub fn pages(&self, block: u32, sequence: u64) -> Option<u32> {
        let bytes = self.cells.get(self.pages_at(block as usize), PAGES_SIZE_BYTES);
        let word = PagesWord::ref_from_bytes(bytes).expect("one word");
        word.pages_of(block, sequence)
    }

    /// Writes a vSSD's entry: into its own slot, or into one whose vSSD is gone.
    ///
    /// # Panics
    /// If there is no room: there are as many slots as units.
    pub fn set_vssd(&mut self, entry: &VssdEntry) {
        let entries = self.slots();
        let own = |other: &Slot| matches!(other, Slot::Written(other) if other.id == entry.id);
        let slot = entries.iter().position(own).unwrap_or_else(|| self.unused_of(&entries));
        let mut body = encode_vssd(entry);
        body.resize(vssd_slot_size(self.units_max) - size_of::<SlotHead>(), 0);
        let at = self.vssd_at(slot);
        self.write(at, &body);
    }

    fn slots(&self) -> Vec<Slot> {
        let look = |slot| match self.vssd(slot) {
            Found::Entry(entry) => Slot::Written(entry),
            _ => Slot::Unused,
        };
        let slots = 0..self.vssd_slots;
        slots.map(|slot| if self.cells.holds_slot(slot) { look(slot) } else { Slot::Elsewhere }).collect()
    }

    fn unused_of(&self, slots: &[Slot]) -> usize {
        // The slot of the newest id stays: it says which ids were given.
        let newest = slots.iter().filter_map(|slot| match slot {
            Slot::Written(entry) => Some(entry.id),
            _ => None,
        });
        let newest = newest.max();
        let unused = slots.iter().position(|slot| match slot {
            Slot::Unused => true,
            Slot::Written(entry) => !entry.placed && Some(entry.id) != newest,
            Slot::Elsewhere => false,
        });
        let gone = |slot: &Slot| matches!(slot, Slot::Written(entry) if !entry.placed);
        let last = slots.iter().position(gone);
        unused.or(last).expect("there are as many slots as units")
    }

    fn vssd(&self, slot: usize) -> Found<VssdEntry> {
        let size = vssd_slot_size(self.units_max);
        match self.current(self.vssd_at(slot), size) {
            Found::New => Found::New,
            Found::Entry((at, _)) => {
                let body = self.body(at, size - size_of::<SlotHead>());
                decode_vssd(body).map_or(Found::Damaged, Found::Entry)
            }
            Found::Damaged => Found::Damaged,
        }
    }

    /// All vSSDs that were ever written and not replaced, in order of their ids.
    ///
    /// # Errors
    /// An entry is damaged, or two have one id: whose blocks are whose can then not be told.
    pub fn vssds(&self) -> Result<Vec<VssdEntry>, OpenError> {
        let mut entries = Vec::new();
        for slot in self.held_slots() {
            match self.vssd(slot) {
                Found::New => {}
                Found::Entry(entry) => entries.push(entry),
                Found::Damaged => {
                    return Err(OpenError::Entry(format!(
                        "vSSD entry {slot} is damaged, and which erase blocks are whose cannot be told without it"
                    )));
                }
            }
        }
        entries.sort_by_key(|entry| entry.id);
        // Also where one of them says "removed": the other would come back when its slot is used again.
        match entries.windows(2).find(|pair| pair[0].id == pair[1].id) {
            Some(pair) => Err(OpenError::Entry(format!("vSSD {} is there twice", pair[0].id.0))),
            None => Ok(entries),
        }
    }
}

/// What stands in a slot of a vSSD.
enum Slot {
    Unused,
    Written(VssdEntry),
    /// Another pool holds it.
    Elsewhere,
}

/// Of one die: its exchange, its counts, and what is known of each content.
fn wear_size(soft_planes: usize) -> usize {
    2 * SLOT_SIZE_BYTES + DIE_WEAR_SIZE_BYTES + HEAT_SIZE_BYTES * soft_planes
}

fn shape_of(geometry: &Geometry, units_max: usize, soft_planes_per_die: u16) -> Shape {
    let blocks = geometry.erase_blocks() as usize / usize::from(geometry.channels);
    Shape {
        header_bytes: HEADER_SIZE_BYTES,
        channels: geometry.channels.into(),
        block_bytes: blocks * 2 * SLOT_SIZE_BYTES,
        page_bytes: blocks * PAGES_SIZE_BYTES,
        wear_bytes: usize::from(geometry.dies_per_channel) * wear_size(soft_planes_per_die.into()),
        slots: units_max,
        slot_bytes: 2 * vssd_slot_size(units_max),
    }
}

fn next_counter(counter: u32) -> u32 {
    counter.wrapping_add(1).max(1)
}

fn vssd_slot_size(units_max: usize) -> usize {
    size_of::<SlotHead>() + VSSD_BODY_SIZE_BYTES + UNIT_SIZE_BYTES * units_max
}

fn sum_of(counter: u32, body: &[u8]) -> u32 {
    diecut_units::checksum_append(checksum(U32::from(counter).as_bytes()), body)
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::states::entry::{BlockState, UnitEntry};
    use crate::{LogicalBlock, Purpose, UnitIndex};
    use diecut_spec::Isolation;
    use diecut_units::ProtectedMemory;

    const GEOMETRY: Geometry = Geometry {
        channels: 2,
        dies_per_channel: 2,
        planes_per_die: 1,
        blocks_per_plane: 24,
        pages_per_block: 4,
        page_size_bytes: 4096,
        oob_size_bytes: 64,
    };

    const SIZES: Sizes = Sizes {
        soft_planes_per_die: 4,
        catalog_blocks_per_die: 2,
        state_log_blocks_per_die: 2,
        die_blocks: 16,
    };

    fn entry(number: u32) -> BlockEntry {
        BlockEntry {
            state: BlockState::Held,
            lost_pages: number == 3,
            owner: VssdId(number),
            logical: LogicalBlock { unit: UnitIndex(3), index: number },
            purpose: Purpose(1),
            erase_count: number * 2,
            sequence: u64::from(number) << 33,
        }
    }

    #[test]
    fn entries_come_back_and_a_torn_slot_leaves_the_one_before() {
        let memory = ProtectedMemory::in_memory(StateTable::size_bytes(&GEOMETRY, 4));
        let open = || StateTable::open(memory.region(0..memory.size_bytes()), &GEOMETRY, &SIZES).unwrap();
        let (mut table, is_new) = open();
        assert!(is_new && table.block(5) == Found::New && table.vssds().unwrap().is_empty());
        table.set_block(5, &entry(1));
        table.set_block(5, &entry(2));
        table.set_pages(5, 3, entry(2).sequence);
        let units = vec![
            UnitEntry { place: UnitPlace { die: 1, soft_plane: None }, moves: true, lost_blocks: 0 },
            UnitEntry { place: UnitPlace { die: 2, soft_plane: Some(3) }, moves: false, lost_blocks: 2 },
        ];
        let isolation = Isolation::Die;
        let vssd = VssdEntry { id: VssdId(9), placed: true, isolation, read_only: true, units };
        table.set_vssd(&vssd);
        drop(table);
        let (table, is_new) = open();
        assert!(!is_new);
        assert_eq!((table.block(5), table.block(6)), (Found::Entry(entry(2)), Found::New));
        let pages = |sequence| table.pages(5, sequence);
        assert_eq!((pages(entry(2).sequence), pages(77)), (Some(3), Some(0)));
        assert_eq!(table.vssds().unwrap(), [vssd]);
        drop(table);
        // The death of the process in the middle of the third store leaves the second, whatever was stored by then.
        let first = HEADER_SIZE_BYTES + 5 * 2 * SLOT_SIZE_BYTES;
        for byte in 8..SLOT_SIZE_BYTES {
            memory.region(first + byte..first + byte + 1)[0] ^= 0x40;
            assert_eq!(open().0.block(5), Found::Entry(entry(2)), "byte {byte}");
        }
    }

    /// Damage to the newer slot must not bring the older state back: a held block would be free again.
    #[test]
    fn a_damaged_entry_is_neither_new_nor_old() {
        let memory = ProtectedMemory::in_memory(StateTable::size_bytes(&GEOMETRY, 4));
        let open = || StateTable::open(memory.region(0..memory.size_bytes()), &GEOMETRY, &SIZES).unwrap().0;
        let mut table = open();
        table.set_block(5, &entry(1));
        table.set_block(5, &entry(2));
        table.set_block(7, &entry(3));
        table.set_pages(7, 2, entry(3).sequence);
        drop(table);
        let newer = HEADER_SIZE_BYTES + 5 * 2 * SLOT_SIZE_BYTES + SLOT_SIZE_BYTES;
        let only = HEADER_SIZE_BYTES + 7 * 2 * SLOT_SIZE_BYTES;
        for byte in 0..SLOT_SIZE_BYTES {
            for (number, at) in [(5, newer + byte), (7, only + byte)] {
                memory.region(at..at + 1)[0] ^= 0x40;
                assert_eq!(open().block(number), Found::Damaged, "block {number} byte {byte}");
                memory.region(at..at + 1)[0] ^= 0x40;
            }
        }
        // A whole entry of ones or of another entry's bytes is damage too.
        memory.region(newer - SLOT_SIZE_BYTES..newer + SLOT_SIZE_BYTES).fill(0xff);
        assert_eq!(open().block(5), Found::Damaged);
        let at = open().pages_at(7);
        for bit in 0..64 {
            memory.region(at + bit / 8..at + bit / 8 + 1)[0] ^= 1 << (bit % 8);
            let pages = open().pages(7, entry(3).sequence);
            assert!(pages.is_none(), "bit {bit}: {pages:?}");
            memory.region(at + bit / 8..at + bit / 8 + 1)[0] ^= 1 << (bit % 8);
        }
    }

    /// Goal: the layout is pinned. Method: bytes written by hand.
    #[test]
    fn the_bytes_of_a_table() {
        let memory = ProtectedMemory::in_memory(StateTable::size_bytes(&GEOMETRY, 4));
        let (mut table, _) =
            StateTable::open(memory.region(0..memory.size_bytes()), &GEOMETRY, &SIZES).unwrap();
        table.set_block(5, &entry(1));
        table.set_block(5, &entry(2));
        table.set_pages(5, 0x03_0201, 0x1817_1615_1413_1211);
        table.set_die_wear(1, 2, 0x0102);
        table.set_heat(UnitPlace { die: 1, soft_plane: Some(3) }, [0x0304, 0x0506]);
        drop(table);
        let bytes = memory.region(0..memory.size_bytes()).to_vec();
        let words = [2, 2, 1, 24, 4, 4096, 64, 4, 2, 2, 16, 0u32];
        let words: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let check = checksum(&words).to_le_bytes();
        assert_eq!(bytes[..64], [&b"DIECUTBT"[..], &[4, 0, 0, 0], &check, &words].concat());
        // The second slot of the sixth block is written last: its counter is 2.
        let slot = &bytes[64 + 5 * 64 + 32..][..32];
        let body = [2, 0, 0, 0, 3, 0, 1, 1, 2, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0];
        let check = checksum(&[&[2, 0, 0, 0][..], &body].concat()).to_le_bytes();
        assert_eq!(slot, [&[2, 0, 0, 0][..], &check, &body].concat());
        let pages = &bytes[64 + 96 * 64 + 5 * 8..][..8];
        let check = checksum(&[5, 0, 0, 0, 1, 2, 3, 0, 0x11, 0x12, 0x13, 0x14]) as u8;
        assert_eq!(pages, [1, 2, 3, check, 0x11, 0x12, 0x13, 0x14]);
        let die = &bytes[64 + 96 * 72 + (64 + 32 + 4 * 16)..];
        assert_eq!(die[64 + 16..64 + 24], [2, 1, 0, 0, 0, 0, 0, 0]);
        assert_eq!(die[96 + 48..96 + 64], [4, 3, 0, 0, 0, 0, 0, 0, 6, 5, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn counters_go_round() {
        let memory = ProtectedMemory::in_memory(StateTable::size_bytes(&GEOMETRY, 4));
        let (mut table, _) =
            StateTable::open(memory.region(0..memory.size_bytes()), &GEOMETRY, &SIZES).unwrap();
        table.set_block(5, &entry(1));
        let at = HEADER_SIZE_BYTES + 5 * 2 * SLOT_SIZE_BYTES;
        table.set_block(5, &entry(2));
        for (at, counter) in [(at, u32::MAX - 1), (at + SLOT_SIZE_BYTES, u32::MAX)] {
            let sum = sum_of(counter, table.cells.get(at + 8, SLOT_SIZE_BYTES - 8));
            table.cells.publish(at, u64::from(counter) | u64::from(sum) << 32);
        }
        for number in 2..6 {
            table.set_block(5, &entry(number));
            assert_eq!(table.block(5), Found::Entry(entry(number)));
        }
    }

    #[test]
    fn ids_are_never_forgotten_by_reused_slots() {
        let memory = ProtectedMemory::in_memory(StateTable::size_bytes(&GEOMETRY, 1));
        let sizes = Sizes { soft_planes_per_die: 1, ..SIZES };
        let (mut table, _) =
            StateTable::open(memory.region(0..memory.size_bytes()), &GEOMETRY, &sizes).unwrap();
        for id in 1..100 {
            let (id, isolation) = (VssdId(id), Isolation::Channel);
            let mut vssd = VssdEntry { id, placed: true, isolation, read_only: false, units: Vec::new() };
            table.set_vssd(&vssd);
            vssd.placed = false;
            table.set_vssd(&vssd);
            assert_eq!(table.vssds().unwrap().last().unwrap().id, id);
        }
    }

    /// Found by fuzzing: a "removed" entry beside a placed one of the same id, which came back later.
    #[test]
    fn two_entries_of_one_vssd_are_refused() {
        for placed in [false, true] {
            let memory = ProtectedMemory::in_memory(StateTable::size_bytes(&GEOMETRY, 4));
            let (mut table, _) =
                StateTable::open(memory.region(0..memory.size_bytes()), &GEOMETRY, &SIZES).unwrap();
            for (id, placed) in [(1, placed), (2, true)] {
                let (id, isolation) = (VssdId(id), Isolation::Channel);
                table.set_vssd(&VssdEntry { id, placed, isolation, read_only: false, units: Vec::new() });
            }
            assert_eq!(table.vssds().unwrap().len(), 2);
            // The second one says that it is the first.
            let at = table.vssd_at(1);
            let mut body = table.cells.get(at + 8, vssd_slot_size(table.units_max) - 8).to_vec();
            body[..4].copy_from_slice(&1u32.to_le_bytes());
            table.write(at, &body);
            assert!(matches!(table.vssds(), Err(OpenError::Entry(_))), "placed: {placed}");
        }
    }

    /// Changes as the state log would hand them over, then the same with bytes changed: they are carried out or refused.
    #[test]
    fn changes_are_carried_out_or_refused() {
        let memory = ProtectedMemory::in_memory(StateTable::size_bytes(&GEOMETRY, 4));
        let mut changes = Vec::new();
        let mut push = |kind: u8, word: u32, body: &[u8]| {
            changes.extend_from_slice(&[kind, 0, 0, 0]);
            changes.extend_from_slice(&word.to_le_bytes());
            changes.extend_from_slice(body);
        };
        let units =
            vec![UnitEntry { place: UnitPlace { die: 1, soft_plane: None }, moves: false, lost_blocks: 0 }];
        let (id, isolation) = (VssdId(3), Isolation::Die);
        let vssd = VssdEntry { id, placed: true, isolation, read_only: false, units };
        let body = encode_vssd(&vssd);
        push(2, body.len() as u32, &body);
        push(1, 9, &encode_block(&entry(2)));
        push(3, 9, &[&3u32.to_le_bytes()[..], &[0; 4], &entry(2).sequence.to_le_bytes()].concat());
        let mut random = diecut_testing::Random::of(1);
        for round in 0..4000 {
            memory.region(0..memory.size_bytes()).fill(0);
            let (mut table, _) =
                StateTable::open(memory.region(0..memory.size_bytes()), &GEOMETRY, &SIZES).unwrap();
            if round == 0 {
                table.replay(&changes).unwrap();
                assert_eq!(table.block(9), Found::Entry(entry(2)));
                assert_eq!(table.pages(9, entry(2).sequence), Some(3));
                assert_eq!(table.vssds().unwrap(), std::slice::from_ref(&vssd));
                continue;
            }
            let mut bent = changes.clone();
            for _ in 0..=round % 3 {
                let at = random.below(bent.len() as u64) as usize;
                bent[at] = random.below(256) as u8;
            }
            bent.truncate(bent.len() - 5 * random.below(2) as usize);
            // Twice: what was carried out is there already.
            let _ = table.replay(&bent).and_then(|()| table.replay(&bent));
        }
    }

    #[test]
    fn what_is_not_block_states_is_refused() {
        let size = StateTable::size_bytes(&GEOMETRY, 4);
        let memory = ProtectedMemory::in_memory(size);
        let open = |sizes: &Sizes| StateTable::open(memory.region(0..size), &GEOMETRY, sizes).err();
        drop(StateTable::open(memory.region(0..size), &GEOMETRY, &SIZES).unwrap());
        assert_eq!(
            open(&Sizes { soft_planes_per_die: 2, ..SIZES }),
            Some(OpenError::SoftPlanes { made: 4, set: 2 })
        );
        for other in [
            Sizes { catalog_blocks_per_die: 3, ..SIZES },
            Sizes { state_log_blocks_per_die: 0, ..SIZES },
            Sizes { die_blocks: 15, ..SIZES },
        ] {
            assert!(matches!(open(&other), Some(OpenError::Sizes { .. })), "{other:?}");
        }
        memory.region(8..9)[0] = 1;
        assert_eq!(open(&SIZES), Some(OpenError::Version(1)));
        memory.region(0..1)[0] = 7;
        assert_eq!(open(&SIZES), Some(OpenError::Damaged));
        let small = StateTable::open(memory.region(0..4096), &GEOMETRY, &SIZES).err();
        assert!(matches!(small, Some(OpenError::TooSmall { .. })));
    }
}
