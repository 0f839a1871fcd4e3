//! What wear is counted: erases of silicon by cause, and how fast the content of a unit wears what it lies on.
//!
//! Erases are counted when they are intended, so that no crash makes a count smaller than what the silicon saw. The erases of
//! a die survive exactly: they are the sum of its blocks' counts. How they divide among causes survives in protected memory,
//! off by at most the one erase that a crash came between; in a journal on flash it is as old as the last generation
//! (the host's part is what is left of the sum). The average of a unit loses at most one window.

use crate::policy::SwapRule;
use crate::pool::Pool;
use diecut_units::Time;

/// Why a block was erased.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EraseCause {
    /// For a holder: user data, its cleaner, its maps.
    Host,
    /// For the copy of a block that changes dies.
    Migration,
    /// For the copy of a block that changes places within its die.
    Inside,
    /// By the journal of block states.
    Journal,
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
    /// See [`EraseCause::Journal`].
    pub journal: u64,
}

impl DieWear {
    /// All erases.
    pub const fn total(&self) -> u64 {
        self.host + self.migration + self.inside + self.journal
    }
    fn of(&mut self, cause: EraseCause) -> &mut u64 {
        match cause {
            EraseCause::Host => &mut self.host,
            EraseCause::Migration => &mut self.migration,
            EraseCause::Inside => &mut self.inside,
            EraseCause::Journal => &mut self.journal,
        }
    }
    /// The words of the table: all but the host's part.
    fn words(&self) -> [u64; 3] {
        [self.migration, self.inside, self.journal]
    }
}

impl std::ops::AddAssign for DieWear {
    fn add_assign(&mut self, other: DieWear) {
        self.host += other.host;
        self.migration += other.migration;
        self.inside += other.inside;
        self.journal += other.journal;
    }
}

/// How much the content of a unit erases; it travels with the content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Heat {
    /// Erases since the content moved, or was made.
    pub volume_erases: u64,
    /// Moving average of erases per window, in 1/256.
    pub average: u64,
    window_erases: u64,
    /// Erases of the window before this one.
    last_window_erases: u64,
}

/// A count larger than this is damage.
const COUNT_MAX: u64 = 1 << 48;

impl Heat {
    fn from_words(words: [u64; 2]) -> Heat {
        let sound = |word: u64| if word < COUNT_MAX { word } else { 0 };
        Heat { volume_erases: sound(words[0]), average: sound(words[1]), ..Heat::default() }
    }
    fn words(&self) -> [u64; 2] {
        [self.volume_erases, self.average]
    }
    /// Counts erases.
    pub fn count(&mut self, erases: u64) {
        self.volume_erases += erases;
        self.window_erases += erases;
    }
    /// The content moved: its volume begins anew.
    pub fn moved(&mut self) {
        self.volume_erases = 0;
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
        if rule.clears_all() { self.volume_erases } else { self.rate() }
    }
}

impl Pool {
    /// Counts an erase that is intended now.
    pub(crate) fn count_erase(&mut self, number: u32, cause: EraseCause, now: Time) {
        self.end_windows(now);
        let die = self.blocks.die_of(number);
        if !diecut_units::mutant!("vssd: erases of a migration not counted") || cause != EraseCause::Migration
        {
            *self.blocks.die_mut(die).wear.of(cause) += 1;
        }
        if cause != EraseCause::Host {
            return self.record_die_wear(die);
        }
        let block = &self.blocks[number];
        let (owner, unit) = (block.owner, block.logical.unit);
        let at = self.at_of(owner).expect("an erase for a holder has one");
        let unit = &mut self.vssds[at].units[usize::from(unit.0)];
        unit.heat.count(1);
        let (place, words) = (unit.place, unit.heat.words());
        self.note_erase();
        self.states.set_heat(place, words);
    }

    fn record_die_wear(&mut self, die: u32) {
        self.states.set_die_wear(die, self.blocks.die(die).wear.words());
    }

    /// Counts what the journal erased.
    pub(crate) fn count_journal_erases(&mut self) {
        for block in self.states.take_log_erases() {
            let die = self.geometry.die_number(block.die_address());
            self.blocks.die_mut(die).wear.journal += 1;
            self.record_die_wear(die);
        }
    }

    /// Ends windows of the averages that passed.
    pub(crate) fn end_windows(&mut self, now: Time) {
        if now < self.window_end {
            return;
        }
        let window_ns = self.config.wear.window_ns.max(1);
        let windows =
            if self.window_end == Time::ZERO { 0 } else { (now.0 - self.window_end.0) / window_ns + 1 };
        self.window_end = Time(now.0.saturating_add(window_ns));
        if windows == 0 {
            return;
        }
        for unit in self.vssds.iter_mut().flat_map(|vssd| &mut vssd.units) {
            unit.heat.end_windows(windows);
            self.states.set_heat(unit.place, unit.heat.words());
        }
    }

    /// The content of these dies moved: its volume begins anew, and what is known of it lies elsewhere.
    pub(crate) fn heat_moved(&mut self, dies: [u32; 2]) {
        for unit in self.vssds.iter_mut().flat_map(|vssd| &mut vssd.units) {
            if dies.contains(&unit.place.die) {
                unit.heat.moved();
                self.states.set_heat(unit.place, unit.heat.words());
            }
        }
    }

    /// Takes over what the table says of wear; after the blocks.
    pub(crate) fn wear_again(&mut self) {
        for number in 0..self.geometry.dies() {
            let Some(words) = self.states.die_wear(number) else { return };
            let die = self.blocks.die_mut(number);
            let sound = |word: u64| if word < COUNT_MAX { word } else { 0 };
            let [migration, inside, journal, _] = words.map(sound);
            // No part is more than the sum, whatever the table says.
            let migration = migration.min(die.erases);
            let inside = inside.min(die.erases - migration);
            let host = die.erases - migration - inside;
            die.wear = DieWear { host, migration, inside, journal };
        }
        for unit in self.vssds.iter_mut().flat_map(|vssd| &mut vssd.units) {
            unit.heat = self.states.heat(unit.place).map_or(unit.heat, Heat::from_words);
        }
        self.renew_thresholds();
    }

    /// Erases of a die since the pool was made, by cause.
    pub fn die_wear(&self, die_number: u32) -> DieWear {
        self.blocks.die(die_number).wear
    }

    /// Erases of a channel since the pool was made, by cause.
    pub fn channel_wear(&self, channel: u16) -> DieWear {
        let per_channel = u32::from(self.geometry.dies_per_channel);
        let dies = u32::from(channel) * per_channel..(u32::from(channel) + 1) * per_channel;
        let mut wear = DieWear::default();
        dies.for_each(|die| wear += self.die_wear(die));
        wear
    }

    /// What is known of the content of a die: the sum over the units on it.
    pub fn die_heat(&self, die_number: u32) -> Heat {
        let units = self.vssds.iter().flat_map(|vssd| &vssd.units);
        let mut sum = Heat::default();
        for unit in units.filter(|unit| unit.place.die == die_number) {
            sum.volume_erases += unit.heat.volume_erases;
            sum.average += unit.heat.average;
            sum.window_erases += unit.heat.window_erases;
            sum.last_window_erases += unit.heat.last_window_erases;
        }
        sum
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
        assert_eq!(heat.volume_erases, 6400);
        heat.count(1000);
        assert_eq!(heat.recent(), 1000 * 256, "a storm shows before its window ends");
        assert!(heat.rate() > 200 * 256, "and in the average: {heat:?}");
        heat.end_windows(200);
        assert!(heat.rate() < 256 && heat.recent() == 0, "{heat:?}");
        assert_eq!(Heat::from_words([u64::MAX, u64::MAX]), Heat::default());
    }
}
