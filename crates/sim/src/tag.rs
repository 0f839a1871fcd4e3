//! Self-describing payloads: what an IU holds says who wrote which version of it where.
//!
//! | bits of the tag | field | meaning |
//! |---:|---|---|
//! | 0..28 | version | number of the write among all writes to the volume, from 1 |
//! | 28..56 | lba | logical block (4096 bytes) it was written to |
//! | 56..64 | volume | number of the volume over the whole system, from 1 |
//!
//! An all-zero tag is an IU of zeros. In byte mode every 512-byte sector begins with the tag and the rest is
//! filled from it, so that a mixture of two writes cannot pass for either.

use diecut_units::{ContentMode, IU_SIZE_BYTES, TAG_SIZE_BYTES};

/// A volume of the simulated system, whatever tenant owns it; from 1, so that a tag is never all zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub struct VolumeNumber(pub u8);

/// Identity of one IU's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tag {
    /// Volume it was written to.
    pub volume: VolumeNumber,
    /// Logical block it was written to.
    pub lba: u64,
    /// Number of the write among the volume's writes, from 1.
    pub version: u32,
}

/// Largest LBA and version a tag can carry, exclusive.
pub const FIELD_LIMIT: u64 = 1 << 28;

/// What an IU turned out to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Zeros only.
    Zeros,
    /// Exactly what a write with this tag put there.
    Tagged(Tag),
    /// A mixture or garbage: the first sector's tag, if it is one at all, and the byte offset that differs.
    Torn {
        /// The first word.
        word: u64,
        /// First byte that does not belong to it.
        offset: usize,
    },
}

impl Tag {
    /// As the 8 bytes that stand for it.
    ///
    /// # Panics
    /// If a field is out of range: plans are made within limits.
    pub fn to_word(self) -> u64 {
        assert!(self.volume.0 != 0 && self.lba < FIELD_LIMIT && u64::from(self.version) < FIELD_LIMIT);
        u64::from(self.version) | self.lba << 28 | u64::from(self.volume.0) << 56
    }

    /// The tag in a word; `None` for zeros or a word without a volume.
    pub fn from_word(word: u64) -> Option<Tag> {
        let volume = VolumeNumber((word >> 56) as u8);
        (volume.0 != 0).then_some(Tag {
            volume,
            lba: word >> 28 & (FIELD_LIMIT - 1),
            version: (word & (FIELD_LIMIT - 1)) as u32,
        })
    }

    /// Fills one IU.
    pub fn fill(self, mode: ContentMode, iu: &mut [u8]) {
        let word = self.to_word();
        match mode {
            ContentMode::Tags => iu.copy_from_slice(&word.to_le_bytes()),
            ContentMode::Bytes => {
                for (index, place) in iu.as_chunks_mut::<8>().0.iter_mut().enumerate() {
                    *place = filler(word, index).to_le_bytes();
                }
            }
        }
    }
}

/// Word `index` of the IU of a tag.
fn filler(word: u64, index: usize) -> u64 {
    if index.is_multiple_of(64) {
        return word;
    }
    let mixed = (word ^ (index as u64) << 7).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ mixed >> 29
}

/// Recognizes the content of one IU (8 or 4096 bytes).
///
/// # Panics
/// If the length is neither.
pub fn recognize(iu: &[u8]) -> Content {
    assert!(iu.len() == TAG_SIZE_BYTES || iu.len() == IU_SIZE_BYTES, "an IU has 8 or 4096 bytes");
    let words = iu.as_chunks::<8>().0;
    let word = u64::from_le_bytes(words[0]);
    let tag = Tag::from_word(word);
    for (index, &bytes) in words.iter().enumerate() {
        let expected = if word == 0 { 0 } else { filler(word, index) };
        if u64::from_le_bytes(bytes) != expected {
            return Content::Torn { word, offset: index * 8 };
        }
    }
    match tag {
        Some(tag) => Content::Tagged(tag),
        None if word == 0 => Content::Zeros,
        None => Content::Torn { word, offset: 0 },
    }
}

#[cfg(test)]
mod test {
    use super::*;

    const TAG: Tag = Tag { volume: VolumeNumber(3), lba: 77, version: 1234 };

    #[test]
    fn content_is_recognized_in_both_modes() {
        for mode in [ContentMode::Bytes, ContentMode::Tags] {
            let mut iu = vec![0; mode.bytes_per_iu()];
            assert_eq!(recognize(&iu), Content::Zeros);
            TAG.fill(mode, &mut iu);
            assert_eq!(recognize(&iu), Content::Tagged(TAG));
        }
    }

    #[test]
    fn one_foreign_byte_is_noticed_anywhere() {
        let mut iu = vec![0; IU_SIZE_BYTES];
        TAG.fill(ContentMode::Bytes, &mut iu);
        for offset in [9, 511, 513, 4095] {
            let mut iu = iu.clone();
            iu[offset] ^= 1;
            assert!(matches!(recognize(&iu), Content::Torn { offset: at, .. } if at == offset & !7));
        }
        let mut zeros = vec![0; IU_SIZE_BYTES];
        zeros[4000] = 1;
        assert_eq!(recognize(&zeros), Content::Torn { word: 0, offset: 4000 });
    }

    #[test]
    fn half_of_another_write_is_torn() {
        let (mut old, mut new) = (vec![0; IU_SIZE_BYTES], vec![0; IU_SIZE_BYTES]);
        TAG.fill(ContentMode::Bytes, &mut old);
        Tag { version: 1235, ..TAG }.fill(ContentMode::Bytes, &mut new);
        new[2048..].copy_from_slice(&old[2048..]);
        assert!(matches!(recognize(&new), Content::Torn { offset: 2048, .. }));
    }
}
