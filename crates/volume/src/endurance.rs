//! What was written and erased since a store was made: what hosts are told of wear outlives restarts.
//!
//! Each anchor has the figures of the moment when it was taken, and so has a note that a store writes when its server stops. What came after
//! the newest of them is counted again at recovery, as far as the medium tells it: records that hosts wrote, chunks that were programmed.

use diecut_vssd::space::{EraseBlockSpace, SpaceWork};

/// See the module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EnduranceFigures {
    /// IUs that hosts wrote.
    pub host_written_ius: u64,
    /// IUs that were programmed: of hosts, the cleaner, the map, anchors, filler.
    pub media_written_ius: u64,
    /// Erase blocks that were erased.
    pub erases: u64,
}

impl EnduranceFigures {
    /// The greater of each.
    pub fn max(self, other: EnduranceFigures) -> EnduranceFigures {
        EnduranceFigures {
            host_written_ius: self.host_written_ius.max(other.host_written_ius),
            media_written_ius: self.media_written_ius.max(other.media_written_ius),
            erases: self.erases.max(other.erases),
        }
    }
}

/// How a store keeps its figures.
pub(crate) struct Endurance {
    /// Those of when it was opened.
    base: EnduranceFigures,
    /// What the space had done before.
    before: SpaceWork,
    /// What the newest note says.
    noted: EnduranceFigures,
}

impl Endurance {
    /// Of a store that is opened.
    pub fn new(space: &dyn EraseBlockSpace) -> Endurance {
        Endurance { base: Default::default(), before: space.work(), noted: Default::default() }
    }

    /// What recovery found.
    pub fn begin_with(&mut self, base: EnduranceFigures) {
        self.base = base;
    }

    /// The figures; hosts wrote so much since the store was opened, by handle.
    pub fn now(&self, written_ius: &[u64], space: &dyn EraseBlockSpace) -> EnduranceFigures {
        let (work, before) = (space.work(), self.before);
        let appended_ius = work.appended_ius.saturating_sub(before.appended_ius);
        EnduranceFigures {
            host_written_ius: self.base.host_written_ius.saturating_add(written_ius.iter().sum()),
            media_written_ius: self.base.media_written_ius.saturating_add(appended_ius),
            erases: self.base.erases.saturating_add(work.erases.saturating_sub(before.erases)),
        }
    }

    /// Whether the newest note says something else.
    pub fn is_to_be_noted(&self, now: &EnduranceFigures) -> bool {
        self.noted != *now
    }

    /// They were noted.
    pub fn noted(&mut self, figures: EnduranceFigures) {
        self.noted = figures;
    }
}

/// Bits of a count of IUs in a note: 2^48 IUs are an exbibyte.
const COUNT_BITS: u32 = 48;
const COUNT_MAX: u64 = (1 << COUNT_BITS) - 1;

/// The two words of figures in a note: IUs that hosts wrote (48 bits) and the low 16 bits of erases, IUs that were programmed (48 bits) and the
/// high 16 bits of erases.
pub(crate) fn words_of(figures: &EnduranceFigures) -> [u64; 2] {
    let erases = figures.erases.min(u32::MAX.into());
    let word = |count: u64, half: u64| count.min(COUNT_MAX) | (half & 0xffff) << COUNT_BITS;
    [word(figures.host_written_ius, erases), word(figures.media_written_ius, erases >> 16)]
}

/// The figures of these words.
pub(crate) fn of_words(words: [u64; 2]) -> EnduranceFigures {
    EnduranceFigures {
        host_written_ius: words[0] & COUNT_MAX,
        media_written_ius: words[1] & COUNT_MAX,
        erases: words[0] >> COUNT_BITS | words[1] >> COUNT_BITS << 16,
    }
}

#[cfg(test)]
mod test {
    use super::*;

    /// Goal: the words of a note are pinned, and figures beyond them are the greatest that can be written.
    #[test]
    fn the_words_of_a_note() {
        let figures = EnduranceFigures {
            host_written_ius: 0x0102_0304_0506,
            media_written_ius: 7,
            erases: 0xaabb_ccdd,
        };
        assert_eq!(words_of(&figures), [0xccdd_0102_0304_0506, 0xaabb_0000_0000_0007]);
        assert_eq!(of_words(words_of(&figures)), figures);
        let most =
            EnduranceFigures { host_written_ius: u64::MAX, media_written_ius: u64::MAX, erases: u64::MAX };
        let told = of_words(words_of(&most));
        assert_eq!((told.host_written_ius, told.media_written_ius), (COUNT_MAX, COUNT_MAX));
        assert_eq!(told.erases, 0xffff_ffff);
    }
}
