//! Even wear in a pool: when something is exchanged, and what people may see and change of it.

use crate::UnitIndex;
use crate::exchange::ExchangeError;
use crate::pool::Pool;
use diecut_media::Media;
use diecut_units::Time;

/// What an exchange is about, for people.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MigrationStatus {
    /// Dies whose content is being exchanged, channel and die of each; blocks that are still to move, and why it does not go on.
    pub exchanges: Vec<(String, u64, Option<String>)>,
    /// Exchanges that wait.
    pub waiting: u32,
    /// No further pair of blocks is begun.
    pub is_paused: bool,
    /// What copies may read and program per second; 0 for no limit.
    pub rate_bytes_per_second: u64,
    /// Exchanges of dies finished since the pool was opened.
    pub finished: u64,
    /// Blocks moved since the pool was opened.
    pub moved_blocks: u64,
    /// Pages that could not be read on the way.
    pub lost_pages: u64,
}

impl Pool {
    /// Exchanges what two dies hold, after those that wait already.
    ///
    /// # Errors
    /// They cannot be exchanged; see [`ExchangeError`].
    pub fn exchange_dies(&mut self, one: u32, other: u32) -> Result<(), ExchangeError> {
        self.can_exchange([one, other])?;
        if self.migration.waiting.iter().any(|dies| dies.contains(&one) || dies.contains(&other)) {
            return Err(ExchangeError::Busy(one));
        }
        self.migration.waiting.push_back([one, other]);
        Ok(())
    }

    /// Stops after the pair of blocks under way, or goes on.
    pub fn pause_migration(&mut self, paused: bool) {
        self.migration.paused = paused;
        self.wear_changed = true;
    }

    /// What copies may read and program per second; 0 for no limit.
    pub fn set_migration_rate(&mut self, rate_bytes_per_second: u64) {
        self.migration.rate_bytes_per_second = rate_bytes_per_second;
    }

    /// Whether exchanges are under way or wait.
    pub fn is_migrating(&self) -> bool {
        !self.migration.exchanges.is_empty() || !self.migration.waiting.is_empty()
    }

    /// What goes on.
    pub fn migration_status(&self) -> MigrationStatus {
        let migration = &self.migration;
        let name = |die: u32| {
            let die = self.geometry.die_at(die);
            format!("{}/{}", die.channel.0, die.die.0)
        };
        let exchanges = migration.exchanges.iter().map(|one| {
            let left = one.dies.iter().map(|&die| self.blocks_to_move(die)).sum();
            let trouble = one.trouble.map(|error| error.to_string());
            (format!("{} and {}", name(one.dies[0]), name(one.dies[1])), left, trouble)
        });
        MigrationStatus {
            exchanges: exchanges.collect(),
            waiting: migration.waiting.len() as u32,
            is_paused: migration.paused,
            rate_bytes_per_second: migration.rate_bytes_per_second,
            finished: migration.finished,
            moved_blocks: migration.moved_blocks,
            lost_pages: migration.lost_pages,
        }
    }

    /// When [`Pool::level_wear`] has something to do.
    pub(crate) fn wear_deadline(&self) -> Time {
        self.migration_deadline()
    }

    /// Looks at wear where it changed, and lets exchanges go on.
    pub(crate) fn level_wear<M: Media + ?Sized>(&mut self, now: Time, media: &mut M) {
        self.migrate(now, media);
    }

    /// Where the next block of a unit is opened: on the die it moves to, if that keeps its spares.
    pub(crate) fn die_for(&self, at: usize, unit: UnitIndex) -> u32 {
        let unit = &self.vssds[at].units[usize::from(unit.0)];
        let Some(target) = &unit.target else { return unit.place.die };
        let free = |die: u32| self.dies[die as usize].free.len();
        let spare = self.config.spare_blocks_per_die.max(2) as usize;
        let dies = [target.die, unit.place.die];
        let in_trouble = self
            .migration
            .exchanges
            .iter()
            .any(|one| one.dies.contains(&target.die) && one.trouble.is_some());
        let with_room = dies.into_iter().find(|&die| free(die) > spare && (!in_trouble || die != target.die));
        with_room.unwrap_or(if free(target.die) > free(unit.place.die) { target.die } else { unit.place.die })
    }
}
