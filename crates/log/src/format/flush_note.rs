//! Flush notes: how much of a segment a complete flush has covered. They stand in heads of version 3 on media with a volatile cache.
//!
//! A sequence alone could not tell a hole from an end: which sequences a chunk would have had stands in the chunk that is not there. Units can. A
//! walk that ends before the durable units of its segment found loss; one that ends behind them found an end.

/// Kind of such a note.
pub(super) const KIND_FLUSH: u8 = 6;

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlushNote {
    /// Segment.
    pub segment: u32,
    /// Its generation.
    pub generation: u32,
    /// Program units from its start that are durable.
    pub units: u32,
}

impl FlushNote {
    /// What the note says.
    pub fn words(self) -> [u64; 3] {
        let FlushNote { segment, generation, units } = self;
        [KIND_FLUSH.into(), u64::from(segment) | u64::from(generation) << 32, units.into()]
    }

    /// What a note says, if it is such a one.
    pub fn of(words: [u64; 3]) -> Option<FlushNote> {
        let [kind, place, units] = words;
        (kind as u8 == KIND_FLUSH).then(|| FlushNote {
            segment: place as u32,
            generation: (place >> 32) as u32,
            units: u32::try_from(units).unwrap_or(u32::MAX),
        })
    }
}

#[cfg(test)]
mod test {
    use super::*;

    /// Goal: the words are pinned, and lead back.
    #[test]
    fn the_words_of_a_flush_note() {
        let note = FlushNote { segment: 0x0403_0201, generation: 0x0807_0605, units: 9 };
        assert_eq!(note.words(), [6, 0x0807_0605_0403_0201, 9]);
        assert_eq!(FlushNote::of(note.words()), Some(note));
        assert_eq!(FlushNote::of([5, 1, 2]), None);
    }
}
