//! What wear is counted: erases of silicon by cause, and how fast the content of a unit wears what it lies on.
//!
//! Erases are counted when they are intended, so that no crash makes a count smaller than what the silicon saw. The erases of
//! a die survive exactly: they are the sum of its blocks' counts. How they divide among causes survives in protected memory,
//! off by at most the one erase that a crash came between; in a log of block states on flash it is as old as the last generation
//! (the host's part is what is left of the sum). The average of a unit loses at most one window.

use crate::wear::policy::SwapRule;

/// Why a block was erased.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EraseCause {
    /// For a holder: user data, its cleaner, its maps.
    Host,
    /// For the copy of a block that changes dies.
    Migration,
    /// For the copy of a block that changes places within its die.
    Inside,
    /// By the log of block states.
    StateLog,
}

/// Erases of one die by cause; of a channel, the sum of its dies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DieWear {
    /// See [`EraseCause::Host`].
    pub host: u64,
    /// See [`EraseCause::Migration`].
    pub migration: u64,
    /// See [`EraseCause::Inside`].
    pub inside: u64,
    /// See [`EraseCause::StateLog`].
    pub state_log: u64,
}

impl DieWear {
    /// All erases.
    pub const fn total(&self) -> u64 {
        self.host + self.migration + self.inside + self.state_log
    }
    pub(crate) fn of(&mut self, cause: EraseCause) -> &mut u64 {
        match cause {
            EraseCause::Host => &mut self.host,
            EraseCause::Migration => &mut self.migration,
            EraseCause::Inside => &mut self.inside,
            EraseCause::StateLog => &mut self.state_log,
        }
    }
    /// The words of the table: all but the host's part.
    pub(crate) fn words(&self) -> [u64; 3] {
        [self.migration, self.inside, self.state_log]
    }
}

impl std::ops::AddAssign for DieWear {
    fn add_assign(&mut self, other: DieWear) {
        self.host += other.host;
        self.migration += other.migration;
        self.inside += other.inside;
        self.state_log += other.state_log;
    }
}

/// How much the content of a unit erases; it travels with the content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Heat {
    /// Erases since the content moved, or was made.
    pub content_erases: u64,
    /// Moving average of erases per window, in 1/256.
    pub average: u64,
    pub(crate) window_erases: u64,
    /// Erases of the window before this one.
    pub(crate) last_window_erases: u64,
}

/// A count larger than this is damage.
pub(crate) const COUNT_MAX: u64 = 1 << 48;

impl Heat {
    pub(crate) fn from_words(words: [u64; 2]) -> Heat {
        let sound = |word: u64| if word < COUNT_MAX { word } else { 0 };
        Heat { content_erases: sound(words[0]), average: sound(words[1]), ..Heat::default() }
    }
    pub(crate) fn words(&self) -> [u64; 2] {
        [self.content_erases, self.average]
    }
    /// Counts erases.
    pub fn count(&mut self, erases: u64) {
        self.content_erases += erases;
        self.window_erases += erases;
    }
    /// The content moved: its volume begins anew.
    pub fn moved(&mut self) {
        self.content_erases = 0;
    }
    /// Ends `windows` windows; all but the first were empty.
    pub fn end_windows(&mut self, windows: u64) {
        self.average = (self.average * 7 + self.window_erases * 256) / 8;
        self.last_window_erases = if windows == 1 { self.window_erases } else { 0 };
        self.window_erases = 0;
        for _ in 1..windows.min(128) {
            self.average = self.average * 7 / 8;
        }
    }
    /// The average as it were if this window ended now: also on a device whose first window is not over.
    pub fn rate(&self) -> u64 {
        (self.average * 7 + self.window_erases * 256) / 8
    }
    /// What is erased at present, in 1/256 of a window: in this one or the last, whichever is more. A storm shows at once.
    pub fn recent(&self) -> u64 {
        self.window_erases.max(self.last_window_erases) * 256
    }
    /// The rate that a rule goes by: the paper's is what was erased since the last swap, when all counters were cleared.
    pub fn rate_under(&self, rule: SwapRule) -> u64 {
        if rule.clears_all() { self.content_erases } else { self.rate() }
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn averages_follow_and_fade() {
        let mut heat = Heat::default();
        for _ in 0..64 {
            heat.count(100);
            heat.end_windows(1);
        }
        assert!((99 * 256..=100 * 256).contains(&heat.average), "{heat:?}");
        assert_eq!(heat.content_erases, 6400);
        heat.count(1000);
        assert_eq!(heat.recent(), 1000 * 256, "a storm shows before its window ends");
        assert!(heat.rate() > 200 * 256, "and in the average: {heat:?}");
        heat.end_windows(200);
        assert!(heat.rate() < 256 && heat.recent() == 0, "{heat:?}");
        assert_eq!(Heat::from_words([u64::MAX, u64::MAX]), Heat::default());
    }
}
