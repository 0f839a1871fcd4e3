//! A space in memory with power cuts, and how records on it are made to check out.
#![allow(dead_code, reason = "each test uses a part")]

pub use diecut_testing::Random;
pub use diecut_testing::fake_space::{FakeSpace, shape};
use diecut_units::{IU_SIZE_BYTES, checksum, checksum_append};

/// Where the mark begins in the OOB of a page, IUs of a page, bytes of a mark and of the OOB.
pub const MARK_OFFSET: usize = 32;
const PAGE_IUS: usize = 4;
pub const MARK_SIZE_BYTES: usize = 32;
pub const OOB_SIZE_BYTES: usize = 64;

/// Makes the checks of heads, anchors and marks of a program unit right.
pub fn seal_unit(ius: &mut [Vec<u8>], oob: &mut [u8]) {
    if ius[0].starts_with(b"danc") {
        let sum = ius[1..].iter().fold(checksum(&ius[0][8..]), |sum, iu| checksum_append(sum, iu));
        ius[0][4..8].copy_from_slice(&sum.to_le_bytes());
        return;
    }
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

/// Makes the check of a page's mark right.
pub fn seal_mark(mark: &mut [u8]) {
    let sum = checksum(&mark[4..]);
    mark[..4].copy_from_slice(&sum.to_le_bytes());
}

/// Makes the word of a staging slot right, for so many records and notes.
pub fn seal_slot(slot: &mut [u8], data: u64, notes: u64) {
    let (head, content) = slot[64..].split_at(IU_SIZE_BYTES);
    let (data, notes) = (data.min(126) as usize, notes.min(100) as usize);
    let sums =
        content.chunks(8).take(data).fold(0, |sum, iu| checksum_append(sum, &checksum(iu).to_le_bytes()));
    let tags = checksum_append(0, &head[64..64 + 8 * data]);
    let of_notes = (0..notes).fold(0, |sum, note| {
        let end = IU_SIZE_BYTES - 32 * note;
        checksum_append(sum, &head[end - 32..end])
    });
    let mut all = slot[8..16].to_vec();
    [tags, sums, of_notes].iter().for_each(|sum| all.extend(sum.to_le_bytes()));
    let word = 0xd5c8 << 48 | (data as u64) << 39 | (notes as u64) << 32 | u64::from(checksum(&all));
    slot[..8].copy_from_slice(&word.to_le_bytes());
    slot[28..32].copy_from_slice(&2u32.to_le_bytes());
}
