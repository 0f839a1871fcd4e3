//! Even wear in a pool: when something is exchanged, and what people may see and change of it.

use crate::exchange::{Exchange, ExchangeError};
use crate::moving::WearNews;
use crate::policy::{
    Chosen, DeviceAge, DieLayout, Holding, PlaceView, are_apart, choose_exchanges, is_broken,
    look_after_erases,
};
use crate::pool::Pool;
use crate::resources::DieUse;
use crate::tenancy::Vssd;
use crate::{UnitIndex, WearConfig};
use diecut_media::Media;
use diecut_units::{Time, mark};

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

    /// Whether a block failed and was retired since the last call.
    pub fn take_retired(&mut self) -> bool {
        self.blocks.take_retired()
    }

    /// Erase blocks of a die, by number, that are retired.
    pub fn retired_of(&self, die: u32) -> u32 {
        self.blocks.die(die).retired
    }

    /// What happened to even wear since the last call, in order.
    pub fn take_wear_news(&mut self) -> impl Iterator<Item = WearNews> + '_ {
        self.migration.news.drain(..)
    }

    /// Begins no pair of blocks while channels are about to leave, or goes on. Other than a pause nobody sees it.
    pub fn hold_migration(&mut self, held: bool) {
        self.migration.is_held = held;
    }

    /// Stops after the pair of blocks under way, or goes on.
    pub fn pause_migration(&mut self, paused: bool) {
        self.migration.paused = paused;
        self.wear_changed = true;
    }

    /// Whether exchanges are under way or wait.
    pub fn is_migrating(&self) -> bool {
        self.migration.exchanges.iter().any(|one| !one.is_inside()) || !self.migration.waiting.is_empty()
    }

    /// What goes on.
    pub fn migration_status(&self) -> MigrationStatus {
        let migration = &self.migration;
        let name = |die: u32| {
            let die = self.geometry.die_at(die);
            format!("{}/{}", die.channel.0, die.die.0)
        };
        let exchanges = migration.exchanges.iter().filter(|one| !one.is_inside()).map(|one| {
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
        let looks = self.wear_changed || self.migration.dies_to_look_into > 0;
        if looks && self.is_level_due() { Time::ZERO } else { self.migration_deadline() }
    }

    /// Looks at wear where it changed, and lets exchanges go on.
    pub(crate) fn level_wear<M: Media + ?Sized>(&mut self, now: Time, media: &mut M) {
        if self.wear_changed && self.is_level_due() {
            self.wear_changed = false;
            self.unlooked_erases = 0;
            self.end_windows(now);
            self.renew_thresholds();
            if self.follows {
                self.migration.news.push(WearNews::Due);
            } else {
                self.choose_exchanges();
            }
            if self.inside_gap_erases().is_some() {
                self.migration.dies_to_look_into = self.geometry.dies();
            }
        }
        if self.migration.dies_to_look_into > 0 && self.is_level_due() {
            self.look_inside(now, media);
        }
        self.migrate(now, media);
    }

    /// From now on somebody who sees all dies of the device says what is exchanged: this pool has some of them only.
    pub fn follow(&mut self) {
        self.follows = true;
    }

    /// What is known of each die now, in order, and whether exchanges of them wait or go on.
    pub fn wear_report(&mut self, now: Time) -> (Vec<PlaceView>, bool) {
        self.end_windows(now);
        let goes_on = |one: &Exchange| !one.is_inside() && one.trouble.is_none();
        let busy = self.migration.exchanges.iter().any(goes_on) || !self.migration.waiting.is_empty();
        (self.die_views(), busy)
    }

    /// Puts exchanges in line that somebody else chose, those of dies that are this pool's.
    pub fn exchange_chosen(&mut self, pairs: &[[u32; 2]]) {
        self.note_chosen();
        let own = pairs.iter().filter(|dies| dies.iter().all(|&die| self.owns_die(die)));
        let own: Vec<[u32; 2]> = own.copied().collect();
        self.migration.waiting.extend(own);
    }

    /// Whether exchanges wait for their begin.
    pub fn has_waiting_exchanges(&self) -> bool {
        !self.migration.waiting.is_empty()
    }

    /// Whether wear may be looked at: one swap after the other.
    fn is_level_due(&self) -> bool {
        let migration = &self.migration;
        migration.is_started
            && !migration.paused
            && !migration.is_held
            && migration.waiting.is_empty()
            && migration.exchanges.iter().all(|one| one.trouble.is_some())
    }

    /// An erase was counted: looks at wear again when enough of them were.
    pub(crate) fn note_erase(&mut self) {
        self.unlooked_erases += 1;
        self.wear_changed |=
            look_after_erases(self.thresholds).is_some_and(|after| self.unlooked_erases >= after);
    }

    /// What is known of each die, in order.
    pub fn die_views(&self) -> Vec<PlaceView> {
        let rule = self.config.wear.rule;
        // A block that moves inside its die is no more than a moment in the way.
        let busy =
            |die: u32| self.migration.exchanges.iter().any(|one| !one.is_inside() && one.dies.contains(&die));
        let mut views: Vec<PlaceView> = (0..self.geometry.dies())
            .map(|die| PlaceView {
                wear: self.die_wear(die).total(),
                reserve_lost_permille: self.reserve_lost_permille(die),
                is_able: self.owns_die(die) && !self.is_worn(die) && !busy(die),
                ..PlaceView::default()
            })
            .collect();
        for unit in self.vssds.iter().flat_map(|vssd| &vssd.units) {
            let view = &mut views[unit.place.die as usize];
            view.rate += unit.heat.rate_under(rule);
            view.recent += unit.heat.recent();
            view.volume += unit.heat.volume_erases;
        }
        views
    }

    /// Puts the exchange that is due, if one is, in line: the dies of two channels, or two dies.
    fn choose_exchanges(&mut self) {
        let rule = self.config.wear.rule;
        let dies = self.die_views();
        let layout = DieLayout::of(&self.geometry);
        let held = |vssd: &Vssd| Holding {
            dies: vssd.units.iter().map(|unit| unit.place.die).collect(),
            isolation: vssd.isolation,
        };
        let holdings: Vec<Holding> = self.vssds.iter().map(held).collect();
        let apart = |one: usize, other: usize| are_apart(&holdings, &layout, one, other);
        let broken = |channel: usize| is_broken(&holdings, &layout, channel);
        let can = |one: usize, other: usize| self.can_exchange([one as u32, other as u32]).is_ok();
        let Some(chosen) = choose_exchanges(rule, self.thresholds, &layout, &dies, apart, broken, can) else {
            return;
        };
        if matches!(chosen, Chosen::Channels(_)) {
            mark!("vssd: channel swap due");
        }
        self.note_chosen();
        self.migration.waiting.extend(chosen.into_dies());
    }

    /// Something was chosen; there are rules by which all counters begin anew then.
    fn note_chosen(&mut self) {
        if self.config.wear.rule.clears_all() {
            self.vssds.iter_mut().flat_map(|vssd| &mut vssd.units).for_each(|unit| unit.heat.moved());
        }
    }

    /// Changes the settings of even wear; see [`WearConfig`].
    pub fn set_wear(&mut self, wear: WearConfig) {
        self.config.wear = wear;
        self.migration.rate_bytes_per_second = wear.rate_bytes_per_second;
        self.renew_thresholds();
        self.wear_changed = true;
    }

    /// The thresholds follow the device's age, where they do.
    pub(crate) fn renew_thresholds(&mut self) {
        let layout = DieLayout::of(&self.geometry);
        // Of the dies of another shard this pool knows what they were when they left.
        let own = self.die_views().into_iter().zip(0..).filter(|(_, die)| self.owns_die(*die));
        let own: Vec<PlaceView> = own.map(|(view, _)| view).collect();
        self.thresholds = self.config.wear.thresholds(&layout, DeviceAge::of(&layout, &own));
    }

    /// How much of its reserve for blocks that go bad a die has lost, in thousandths; nothing of one that is not used.
    fn reserve_lost_permille(&self, die: u32) -> u64 {
        let reserve = u64::from(self.blocks.reserve().max(1));
        let lost = u64::from(self.blocks.die(die).retired).min(reserve);
        if self.resources.dies[die as usize] == DieUse::Dead { 0 } else { lost * 1000 / reserve }
    }

    /// The thresholds in force, of a channel and of a die; see [`WearConfig`].
    pub fn wear_thresholds(&self) -> [u64; 2] {
        self.thresholds
    }

    /// The settings of even wear.
    pub fn wear_config(&self) -> &WearConfig {
        &self.config.wear
    }

    /// Where the next block of a unit is opened: on the die it moves to, if that keeps its spares.
    pub(crate) fn die_for(&self, at: usize, unit: UnitIndex) -> u32 {
        let unit = &self.vssds[at].units[usize::from(unit.0)];
        let Some(target) = &unit.target else { return unit.place.die };
        let free = |die: u32| self.blocks.free_count(die);
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
