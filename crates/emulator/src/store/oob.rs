//! Compact OOB areas of one erase block, for devices whose content is tags.
//!
//! The first page's area is kept whole (without trailing zeros). Of every other page only those 32-bit words are
//! kept that differ from the first page's: a bitmap of words, then the words. So what repeats through a block
//! (owner, generation, kind, erase count) costs nothing, and an area that is all zeros or all equal costs its
//! bitmap.

/// Bytes per word of the difference.
const WORD: usize = 4;

/// The OOB areas of the pages programmed so far.
#[derive(Default)]
pub(crate) struct OobBlock {
    bytes: Vec<u8>,
    /// Where the areas of each program unit start in `bytes`.
    unit_starts: Vec<u32>,
    first_len: u16,
    pages: u32,
}

impl OobBlock {
    /// Forgets everything but the memory.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.unit_starts.clear();
        self.first_len = 0;
        self.pages = 0;
    }

    /// Gives back memory that a full block will not need.
    pub(crate) fn shrink(&mut self) {
        if self.bytes.capacity() > self.bytes.len() + self.bytes.len() / 8 + 64 {
            self.bytes.shrink_to_fit();
        }
        self.unit_starts.shrink_to_fit();
    }

    /// Bytes of memory taken.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.bytes.capacity() + self.unit_starts.capacity() * size_of::<u32>()
    }

    /// Adds the area of the next page.
    pub(crate) fn push(&mut self, page: u32, unit_pages: u32, area: &[u8]) {
        assert_eq!(page, self.pages, "OOB areas arrive in order");
        if page.is_multiple_of(unit_pages) {
            self.unit_starts.push(self.bytes.len() as u32);
        }
        self.pages += 1;
        if page == 0 {
            let len = area.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
            self.first_len = len as u16;
            self.bytes.extend_from_slice(&area[..len]);
            return;
        }
        let words = area.len().div_ceil(WORD);
        let map_at = self.bytes.len();
        self.bytes.resize(map_at + words.div_ceil(8), 0);
        for (index, word) in area.chunks(WORD).enumerate() {
            let first = self.first_word(index);
            if word != &first[..word.len()] {
                self.bytes[map_at + index / 8] |= 1 << (index % 8);
                self.bytes.extend_from_slice(word);
            }
        }
    }

    /// Fills `area` with the area of a page that was pushed.
    pub(crate) fn get(&self, page: u32, unit_pages: u32, area: &mut [u8]) {
        assert!(page < self.pages, "only programmed pages have an OOB area");
        let words = area.len().div_ceil(WORD);
        for (index, word) in area.chunks_mut(WORD).enumerate() {
            let len = word.len();
            word.copy_from_slice(&self.first_word(index)[..len]);
        }
        if page == 0 {
            return;
        }
        let mut at = self.unit_starts[(page / unit_pages) as usize] as usize;
        let mut current = page / unit_pages * unit_pages;
        if current == 0 {
            at += usize::from(self.first_len);
            current = 1;
        }
        let size_of_area = |at: usize| {
            let map = &self.bytes[at..at + words.div_ceil(8)];
            let mut size = map.len();
            for index in 0..words {
                if map[index / 8] & (1 << (index % 8)) != 0 {
                    size += WORD.min(area_len(words, index, area.len()));
                }
            }
            size
        };
        while current < page {
            at += size_of_area(at);
            current += 1;
        }
        let map_at = at;
        at += words.div_ceil(8);
        for (index, word) in area.chunks_mut(WORD).enumerate() {
            if self.bytes[map_at + index / 8] & (1 << (index % 8)) != 0 {
                word.copy_from_slice(&self.bytes[at..at + word.len()]);
                at += word.len();
            }
        }
    }

    /// A word of the first page's area; zeros after what was kept.
    fn first_word(&self, index: usize) -> [u8; WORD] {
        let mut word = [0; WORD];
        let start = (index * WORD).min(usize::from(self.first_len));
        let end = ((index + 1) * WORD).min(usize::from(self.first_len));
        word[..end - start].copy_from_slice(&self.bytes[start..end]);
        word
    }
}

/// Length of word `index` of an area of `len` bytes.
fn area_len(words: usize, index: usize, len: usize) -> usize {
    if index + 1 == words { len - index * WORD } else { WORD }
}

#[cfg(test)]
mod test {
    use super::*;
    use rand::{RngExt, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    #[test]
    fn areas_come_back() {
        for seed in 0..200 {
            let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
            let len = random.random_range(1..140);
            let unit_pages = random.random_range(1..7);
            let mut block = OobBlock::default();
            let mut areas = Vec::new();
            let mut area = vec![0u8; len];
            for page in 0..unit_pages * 5 {
                for _ in 0..random.random_range(0..6) {
                    area[random.random_range(0..len)] = random.random_range(0..3);
                }
                block.push(page, unit_pages, &area);
                areas.push(area.clone());
            }
            for (page, expected) in areas.iter().enumerate() {
                let mut found = vec![0xee; len];
                block.get(page as u32, unit_pages, &mut found);
                assert_eq!(&found, expected, "seed {seed} page {page}");
            }
        }
    }

    #[test]
    fn what_repeats_costs_only_its_bitmap() {
        let mut block = OobBlock::default();
        for page in 0..1024 {
            let mut area = [7u8; 64];
            area[60..].fill(0);
            block.push(page, 4, &area);
        }
        assert_eq!(block.bytes.len(), 60 + 1023 * 2);
    }
}
