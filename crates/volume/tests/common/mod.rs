//! A space in memory with power cuts, and how records on it are made to check out.
#![allow(dead_code, unused_imports, reason = "each test uses a part")]

pub use diecut_testing::Random;
pub use diecut_testing::fake_space::{FakeSpace, plain_shape, shape};
use diecut_units::{IU_SIZE_BYTES, checksum, checksum_append};
use diecut_volume::{Format, StoreConfig};

/// What stores of this test write: it is the test that says so, by its name.
pub fn format() -> Format {
    if module_path!().starts_with("three::") { Format::Three } else { Format::Two }
}

/// IUs of a leaf of such a store.
pub fn leaf_ius() -> u64 {
    match format() {
        Format::Two => 1024,
        Format::Three => 504,
    }
}

/// As [`format`], of one opening of many. In every fourth store of a test with the new one the openings ask for one and the
/// other in turns: the second one makes a store of the format of before a new one, and it stays so.
pub fn format_at(seed: u64, opening: u64) -> Format {
    let takes_turns = seed.is_multiple_of(4) && opening.is_multiple_of(2);
    if takes_turns { Format::Two } else { format() }
}

/// What is chosen when a store is opened and a test does not care.
pub fn config() -> StoreConfig {
    StoreConfig { format: format(), ..StoreConfig::default() }
}

/// Where the mark begins in the OOB of a page, IUs of a page, bytes of a mark and of the OOB.
pub const MARK_OFFSET: usize = 32;
const PAGE_IUS: usize = 4;
pub const MARK_SIZE_BYTES: usize = 32;
pub const OOB_SIZE_BYTES: usize = 64;

/// Makes the checks of heads, anchors and marks of a program unit right.
pub fn seal_unit(ius: &mut [Vec<u8>], oob: &mut [u8]) {
    if ius[0].starts_with(b"danc") {
        let is_two = ius[0][8] == 2 && ius[0][12..20] == [0, 0, 0, 0, 1, 0, 0, 0];
        if is_two {
            // An anchor of one piece: the check of the whole content.
            let length = u32::from_le_bytes(ius[0][20..24].try_into().expect("4 bytes")) as usize;
            let content = ius.concat();
            let content = content.get(64..64usize.saturating_add(length)).unwrap_or(&[]);
            let check = checksum(content);
            ius[0][48..52].copy_from_slice(&check.to_le_bytes());
        }
        let sum = ius[1..].iter().fold(checksum(&ius[0][8..]), |sum, iu| checksum_append(sum, iu));
        ius[0][4..8].copy_from_slice(&sum.to_le_bytes());
        return;
    }
    for iu in ius.iter_mut().filter(|iu| iu.starts_with(b"dlef")) {
        let sum = checksum_append(checksum(&iu[..4]), &iu[8..]);
        iu[4..8].copy_from_slice(&sum.to_le_bytes());
    }
    tell_leaves(ius);
    for iu in ius.iter_mut().filter(|iu| iu.starts_with(b"dchk")) {
        let sum = checksum_append(checksum_append(checksum(&iu[..4]), &[0; 4]), &iu[8..]);
        iu[4..8].copy_from_slice(&sum.to_le_bytes());
    }
    for (page, oob) in ius.chunks(PAGE_IUS).zip(oob.chunks_mut(OOB_SIZE_BYTES)) {
        let mark = &mut oob[MARK_OFFSET..MARK_OFFSET + MARK_SIZE_BYTES];
        for (iu, place) in page.iter().zip(mark[16..].chunks_mut(4)) {
            place.copy_from_slice(&checksum(iu).to_le_bytes());
        }
        seal_mark(mark);
    }
}

/// A head of version 3 tells what leaves behind it, in its unit, have.
fn tell_leaves(ius: &mut [Vec<u8>]) {
    let [head, data @ ..] = ius else { return };
    if !head.starts_with(b"dchk") || head[8] != 3 {
        return;
    }
    for (record, iu) in head[64..].chunks_mut(16).zip(data) {
        if iu.starts_with(b"dlef") {
            record[12..].copy_from_slice(&checksum(iu).to_le_bytes());
        }
    }
}

/// Makes the check of a page's mark right.
pub fn seal_mark(mark: &mut [u8]) {
    let sum = checksum(&mark[4..]);
    mark[..4].copy_from_slice(&sum.to_le_bytes());
}

/// Makes the word of a staging slot right, for so many records and notes.
pub fn seal_slot(slot: &mut [u8], data: u64, notes: u64) {
    let is_three = slot[6..8] == [0xc9, 0xd5];
    let (head, content) = slot[64..].split_at_mut(IU_SIZE_BYTES);
    let (data, notes) = (data.min(126) as usize, notes.min(100) as usize);
    let sums: Vec<u32> = content.chunks(8).take(data).map(checksum).collect();
    let record_size_bytes = if is_three { 16 } else { 8 };
    if is_three {
        for (record, sum) in head[64..].chunks_mut(16).zip(&sums) {
            record[12..].copy_from_slice(&sum.to_le_bytes());
        }
    }
    let sums = sums.iter().fold(0, |all, sum| checksum_append(all, &sum.to_le_bytes()));
    let records = checksum_append(0, &head[64..64 + record_size_bytes * data]);
    let (mut of_notes, mut end) = (0, IU_SIZE_BYTES);
    for _ in 0..notes {
        let size_bytes = if is_three { 16 + 8 * usize::from(head[end - 15]) } else { 32 };
        let Some(start) = end.checked_sub(size_bytes).filter(|start| *start >= 16) else { break };
        of_notes = checksum_append(of_notes, &head[start..end]);
        end = start;
    }
    let mut all = slot[8..16].to_vec();
    [records, sums, of_notes].iter().for_each(|sum| all.extend(sum.to_le_bytes()));
    let (magic, version) = if is_three { (0xd5c9, 1u32) } else { (0xd5c8, 2) };
    let word = magic << 48 | (data as u64) << 39 | (notes as u64) << 32 | u64::from(checksum(&all));
    slot[..8].copy_from_slice(&word.to_le_bytes());
    slot[28..32].copy_from_slice(&version.to_le_bytes());
}
