//! Figures of a store, counted again at recovery: from what anchors and notes say of their moments on.

use crate::endurance::{EnduranceFigures, of_words};
use crate::map::NOTE_FIGURES;

/// See the module. Nothing is counted that did not happen; what was given back in the meantime is missing.
pub(super) struct Tally {
    /// Moments whose figures are known, by sequence.
    known: Vec<(u64, EnduranceFigures)>,
    /// Sequences of records that hosts wrote, from and to: each once, in order.
    written: Vec<(u64, u64)>,
    /// Last sequence of chunks on flash, and what was programmed with them.
    programmed: Vec<(u64, u32)>,
    /// Records that hosts wrote and that are not on flash.
    staged_ius: u64,
}

impl Tally {
    /// At this sequence the figures were these.
    pub fn new(sequence: u64, figures: EnduranceFigures) -> Tally {
        Tally { known: vec![(sequence, figures)], written: Vec::new(), programmed: Vec::new(), staged_ius: 0 }
    }

    /// Notes of a store.
    pub fn note(&mut self, sequence: u64, words: [u64; 3]) {
        if words[0] & 0xff == NOTE_FIGURES {
            self.known.push((sequence, of_words([words[1], words[2]])));
        }
    }

    /// Records that hosts wrote, in the order of their sequences. A chunk whose place failed was programmed twice: its records count once.
    pub fn written(&mut self, first: u64, count: u32, is_staged: bool) {
        let end = first + u64::from(count);
        let first = self.written.last().map_or(first, |(_, last)| first.max(*last));
        if first >= end {
            return;
        }
        if is_staged {
            self.staged_ius += end - first;
        }
        match self.written.last_mut() {
            Some((_, last)) if *last == first => *last = end,
            _ => self.written.push((first, end)),
        }
    }

    /// A chunk on flash, with the sequence of its last entry. One that ends before a moment may have been programmed after it: nobody knows.
    pub fn programmed(&mut self, last: u64, ius: u32) {
        self.programmed.push((last, ius));
    }

    fn since(&self, sequence: u64) -> EnduranceFigures {
        let at = self.written.partition_point(|(_, end)| *end <= sequence);
        let written = self.written[at..].iter().map(|(first, end)| end - first.max(&sequence));
        let programmed = self.programmed.iter().filter(|(last, _)| *last >= sequence);
        EnduranceFigures {
            host_written_ius: written.sum(),
            media_written_ius: programmed.map(|(_, ius)| u64::from(*ius)).sum(),
            erases: 0,
        }
    }

    /// The most that is known to have happened. What hosts wrote and is not staged was programmed.
    pub fn figures(&self) -> EnduranceFigures {
        let mut most = EnduranceFigures::default();
        for (sequence, figures) in &self.known {
            let since = self.since(*sequence);
            most = most.max(EnduranceFigures {
                host_written_ius: figures.host_written_ius.saturating_add(since.host_written_ius),
                media_written_ius: figures.media_written_ius.saturating_add(since.media_written_ius),
                erases: figures.erases,
            });
        }
        let programmed = most.host_written_ius.saturating_sub(self.staged_ius);
        EnduranceFigures { media_written_ius: most.media_written_ius.max(programmed), ..most }
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::endurance::words_of;
    use crate::map::figures_note;

    fn figures(host_written_ius: u64, media_written_ius: u64, erases: u64) -> EnduranceFigures {
        EnduranceFigures { host_written_ius, media_written_ius, erases }
    }

    #[test]
    fn what_came_after_a_known_moment_counts_once() {
        let mut tally = Tally::new(100, figures(50, 70, 3));
        tally.written(90, 5, false);
        tally.written(98, 4, false);
        tally.written(98, 4, false);
        tally.written(110, 10, false);
        tally.written(115, 10, true);
        tally.programmed(99, 16);
        tally.programmed(101, 16);
        tally.programmed(119, 16);
        // 100 and 101, and 110 to 124.
        assert_eq!(tally.figures(), figures(50 + 2 + 15, 70 + 32, 3));
    }

    #[test]
    fn a_note_that_was_moved_takes_nothing_away() {
        let mut tally = Tally::new(100, figures(50, 70, 3));
        let before = tally.figures();
        // Its sequence is new, what it says is not.
        tally.note(120, figures_note(words_of(&figures(10, 20, 9))));
        assert_eq!(tally.figures(), figures(50, 70, 9));
        tally.note(130, figures_note(words_of(&figures(60, 75, 4))));
        tally.written(129, 3, false);
        assert_eq!(tally.figures(), figures(62, 75, 9));
        assert!(before.host_written_ius < 62);
    }

    #[test]
    fn what_is_not_staged_was_programmed() {
        let mut tally = Tally::new(1, figures(0, 0, 0));
        tally.written(1, 40, false);
        tally.written(41, 7, true);
        assert_eq!(tally.figures(), figures(47, 40, 0));
    }
}
