//! Even wear in a pool, a user of its blocks like any holder: when something is exchanged (this file and `policy`), the steps of an exchange of
//! dies (`swap`), the blocks that move (`moving`, `copy`, `source`), and movement inside a die (`in_die`).

pub(crate) mod copy;
pub(crate) mod exchange;
pub(crate) mod in_die;
pub(crate) mod migration;
mod moving;
pub(crate) mod policy;
mod source;
pub(crate) mod swap;

use crate::core::Core;
use crate::owners::Vssd;
use crate::owners::resources::DieUse;
use crate::{UnitIndex, WearConfig};
use diecut_media::Media;
use diecut_units::{Time, mark};
use exchange::{Exchange, ExchangeError};
use in_die::{cold_block, inside_gap_erases};
use migration::{Migration, WearNews};
use policy::{
    Chosen, DeviceAge, DieLayout, Holding, PlaceView, are_apart, choose_exchanges, is_broken,
    look_after_erases,
};
use source::blocks_to_move;

/// See the module.
pub(crate) struct Wear {
    pub migration: Migration,
    /// Something changed since wear was looked at, other than erases.
    has_changed: bool,
    /// Somebody else chooses what is exchanged.
    follows: bool,
    /// Exchanges in other pools, by their dies, of whoever keeps account of all channels.
    pub elsewhere: Vec<[u32; 2]>,
    /// Erases that make a swap of channels, or of dies, due now.
    thresholds: [u64; 2],
    /// After so many erases wear is looked at again.
    look_after: u64,
    /// The drive hides its dies.
    hides_dies: bool,
}

/// What an exchange is about, for people.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MigrationStatus {
    /// Dies whose content is being exchanged, channel and die of each; blocks that are still to move, and why it does not go on.
    pub exchanges: Vec<(String, u64, Option<String>)>,
    /// Exchanges that wait.
    pub waiting: u32,
    /// No further pair of blocks is begun.
    pub is_paused: bool,
    /// No further pair of blocks is begun while channels are about to leave.
    pub is_held: bool,
    /// What copies may read and program per second; 0 for no limit.
    pub rate_bytes_per_second: u64,
    /// Exchanges of dies finished since the pool was opened.
    pub finished: u64,
    /// Blocks moved since the pool was opened.
    pub moved_blocks: u64,
    /// Pages that could not be read on the way.
    pub lost_pages: u64,
}

impl Wear {
    /// Of a pool with these settings on dies that lie so; nothing is known of them. A drive that hides its dies evens out wear by itself.
    pub fn new(config: &WearConfig, layout: &DieLayout, hides_dies: bool) -> Wear {
        let thresholds = if hides_dies { [0; 2] } else { config.thresholds(layout, DeviceAge::default()) };
        Wear {
            migration: Migration::new(config.rate_bytes_per_second),
            has_changed: false,
            follows: false,
            elsewhere: Vec::new(),
            thresholds,
            look_after: look_after(thresholds),
            hides_dies,
        }
    }

    /// Whether wear is to be looked at: something changed, or enough was erased.
    fn is_news(&self, core: &Core) -> bool {
        self.has_changed || core.unlooked_erases >= self.look_after
    }

    /// See [`crate::Pool::exchange_dies`].
    pub fn exchange_dies(&mut self, core: &mut Core, one: u32, other: u32) -> Result<(), ExchangeError> {
        self.can_exchange(core, [one, other])?;
        if self.migration.waiting.iter().any(|dies| dies.contains(&one) || dies.contains(&other)) {
            return Err(ExchangeError::Busy(one));
        }
        self.migration.waiting.push_back([one, other]);
        Ok(())
    }

    /// See [`crate::Pool::take_wear_news`].
    pub fn take_wear_news(&mut self) -> impl Iterator<Item = WearNews> + '_ {
        self.migration.news.drain(..)
    }

    /// See [`crate::Pool::pause_migration`].
    pub fn pause_migration(&mut self, paused: bool) {
        self.migration.paused = paused;
        self.has_changed = true;
    }

    /// See [`crate::Pool::is_migrating`].
    pub fn is_migrating(&self) -> bool {
        self.migration.exchanges.iter().any(|one| !one.is_inside()) || !self.migration.waiting.is_empty()
    }

    /// See [`crate::Pool::migration_status`].
    pub fn migration_status(&self, core: &Core) -> MigrationStatus {
        let migration = &self.migration;
        let name = |die: u32| {
            let die = core.geometry.die_at(die);
            format!("{}/{}", die.channel.0, die.die.0)
        };
        let exchanges = migration.exchanges.iter().filter(|one| !one.is_inside()).map(|one| {
            let left = one.dies.iter().map(|&die| blocks_to_move(core, die)).sum();
            let trouble = one.trouble.map(|error| error.to_string());
            (format!("{} and {}", name(one.dies[0]), name(one.dies[1])), left, trouble)
        });
        MigrationStatus {
            exchanges: exchanges.collect(),
            waiting: migration.waiting.len() as u32,
            is_paused: migration.paused,
            is_held: migration.is_held,
            rate_bytes_per_second: migration.rate_bytes_per_second,
            finished: migration.finished,
            moved_blocks: migration.moved_blocks,
            lost_pages: migration.lost_pages,
        }
    }

    /// When [`Wear::level_wear`] has something to do.
    pub(crate) fn wear_deadline(&self, core: &Core) -> Time {
        let looks = self.is_news(core) || self.migration.dies_to_look_into > 0;
        if looks && self.is_level_due() { Time::ZERO } else { self.migration_deadline(core) }
    }

    /// Looks at wear where it changed, and lets exchanges go on.
    pub(crate) fn level_wear<M: Media + ?Sized>(&mut self, core: &mut Core, now: Time, media: &mut M) {
        if self.is_news(core) && self.is_level_due() {
            self.has_changed = false;
            core.unlooked_erases = 0;
            core.end_windows(now);
            self.renew_thresholds(core);
            if self.follows {
                self.migration.news.push(WearNews::Due);
            } else {
                self.choose_exchanges(core);
            }
            if self.inside_gap_erases(core).is_some() {
                self.migration.dies_to_look_into = core.geometry.dies();
            }
        }
        if self.migration.dies_to_look_into > 0 && self.is_level_due() {
            self.look_inside(core, now, media);
        }
        self.migrate(core, now, media);
    }

    /// See [`crate::Pool::follow`].
    pub fn follow(&mut self) {
        self.follows = true;
    }

    /// See [`crate::Pool::wear_report`].
    pub fn wear_report(&mut self, core: &mut Core, now: Time) -> (Vec<PlaceView>, bool) {
        core.end_windows(now);
        let goes_on = |one: &Exchange| !one.is_inside() && one.trouble.is_none();
        let busy = self.migration.exchanges.iter().any(goes_on) || !self.migration.waiting.is_empty();
        (self.die_views(core), busy)
    }

    /// See [`crate::Pool::exchange_chosen`].
    pub fn exchange_chosen(&mut self, core: &mut Core, pairs: &[[u32; 2]]) {
        self.note_chosen(core);
        let own = pairs.iter().filter(|dies| dies.iter().all(|&die| core.owns_die(die)));
        let own: Vec<[u32; 2]> = own.copied().collect();
        self.migration.waiting.extend(own);
    }

    /// See [`crate::Pool::has_waiting_exchanges`].
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

    /// See [`crate::Pool::die_views`].
    pub fn die_views(&self, core: &Core) -> Vec<PlaceView> {
        let rule = core.config.wear.rule;
        // A block that moves inside its die is no more than a moment in the way.
        let busy =
            |die: u32| self.migration.exchanges.iter().any(|one| !one.is_inside() && one.dies.contains(&die));
        let mut views: Vec<PlaceView> = (0..core.geometry.dies())
            .map(|die| PlaceView {
                wear: core.die_wear(die).total(),
                reserve_lost_permille: reserve_lost_permille(core, die),
                is_able: core.owns_die(die) && !core.is_worn(die) && !busy(die),
                ..PlaceView::default()
            })
            .collect();
        for unit in core.vssds.iter().flat_map(|vssd| &vssd.units) {
            let view = &mut views[unit.place.die as usize];
            view.rate += unit.heat.rate_under(rule);
            view.recent += unit.heat.recent();
            view.content_erases += unit.heat.content_erases;
        }
        views
    }

    /// Puts the exchange that is due, if one is, in line: the dies of two channels, or two dies.
    fn choose_exchanges(&mut self, core: &mut Core) {
        let rule = core.config.wear.rule;
        let dies = self.die_views(core);
        let layout = DieLayout::of(&core.geometry);
        let held = |vssd: &Vssd| Holding {
            dies: vssd.units.iter().map(|unit| unit.place.die).collect(),
            isolation: vssd.isolation,
        };
        let holdings: Vec<Holding> = core.vssds.iter().map(held).collect();
        let apart = |one: usize, other: usize| are_apart(&holdings, &layout, one, other);
        let broken = |channel: usize| is_broken(&holdings, &layout, channel);
        let can = |one: usize, other: usize| self.can_exchange(core, [one as u32, other as u32]).is_ok();
        let Some(chosen) = choose_exchanges(rule, self.thresholds, &layout, &dies, apart, broken, can) else {
            return;
        };
        if matches!(chosen, Chosen::Channels(_)) {
            mark!("vssd: channel swap due");
        }
        self.note_chosen(core);
        self.migration.waiting.extend(chosen.into_dies());
    }

    /// Something was chosen; there are rules by which all counters begin anew then.
    fn note_chosen(&mut self, core: &mut Core) {
        if core.config.wear.rule.clears_all() {
            core.vssds.iter_mut().flat_map(|vssd| &mut vssd.units).for_each(|unit| unit.heat.moved());
        }
    }

    /// See [`crate::Pool::set_wear`].
    pub fn set_wear(&mut self, core: &mut Core, wear: WearConfig) {
        core.config.wear = wear;
        self.migration.rate_bytes_per_second = wear.rate_bytes_per_second;
        self.renew_thresholds(core);
        self.has_changed = true;
    }

    /// The thresholds follow the device's age, where they do.
    pub(crate) fn renew_thresholds(&mut self, core: &mut Core) {
        let layout = DieLayout::of(&core.geometry);
        // Of the dies of another shard this pool knows what they were when they left.
        let own = self.die_views(core).into_iter().zip(0..).filter(|(_, die)| core.owns_die(*die));
        let own: Vec<PlaceView> = own.map(|(view, _)| view).collect();
        self.thresholds = match self.hides_dies {
            false => core.config.wear.thresholds(&layout, DeviceAge::of(&layout, &own)),
            true => [0; 2],
        };
        self.look_after = look_after(self.thresholds);
    }

    /// See [`crate::Pool::wear_thresholds`].
    pub fn wear_thresholds(&self) -> [u64; 2] {
        self.thresholds
    }

    /// Where the next block of a unit is opened: on the die it moves to, if that keeps its spares.
    pub(crate) fn die_for(&self, core: &Core, at: usize, unit: UnitIndex) -> u32 {
        let unit = &core.vssds[at].units[usize::from(unit.0)];
        let Some(destination) = &unit.destination else { return unit.place.die };
        let free = |die: u32| core.blocks.free_count(die);
        let spare = core.config.spare_blocks_per_die.max(2) as usize;
        let dies = [destination.die, unit.place.die];
        let in_trouble = self
            .migration
            .exchanges
            .iter()
            .any(|one| one.dies.contains(&destination.die) && one.trouble.is_some());
        let with_room =
            dies.into_iter().find(|&die| free(die) > spare && (!in_trouble || die != destination.die));
        with_room.unwrap_or(if free(destination.die) > free(unit.place.die) {
            destination.die
        } else {
            unit.place.die
        })
    }

    /// See [`inside_gap_erases`].
    pub(crate) fn inside_gap_erases(&self, core: &Core) -> Option<u64> {
        inside_gap_erases(self.thresholds, &DieLayout::of(&core.geometry))
    }

    /// Looks at the next die of those that are to be looked at, and begins to move a block there if one is due.
    pub(crate) fn look_inside<M: Media + ?Sized>(&mut self, core: &mut Core, now: Time, media: &mut M) {
        let die = core.geometry.dies() - self.migration.dies_to_look_into;
        // A die that went would be tried for ever: each try counts an erase, which has wear looked at again.
        let busy = !core.owns_die(die)
            || core.blocks.die(die).is_offline
            || self.migration.exchanges.iter().any(|one| one.dies.contains(&die));
        let found =
            if busy { None } else { self.inside_gap_erases(core).and_then(|gap| cold_block(core, die, gap)) };
        let found = found.filter(|&(_, copy)| media.make_room(core.address(copy), now));
        let Some((source, copy)) = found else {
            self.migration.dies_to_look_into -= 1;
            return;
        };
        mark!("vssd: cold block moves inside its die");
        core.blocks.take_this_for_copy(copy);
        self.migration.exchanges.push(Exchange::inside(die));
        let at = self.migration.exchanges.len() - 1;
        self.begin_copy_to(core, at, 1, source, copy);
    }
}

/// After how many erases wear is looked at, by thresholds.
fn look_after(thresholds: [u64; 2]) -> u64 {
    look_after_erases(thresholds).unwrap_or(u64::MAX)
}

/// How much of its reserve for blocks that go bad a die has lost, in thousandths; nothing of one that is not used.
fn reserve_lost_permille(core: &Core, die: u32) -> u64 {
    let reserve = u64::from(core.blocks.reserve().max(1));
    let lost = u64::from(core.blocks.die(die).retired).min(reserve);
    if core.resources.dies[die as usize] == DieUse::Dead { 0 } else { lost * 1000 / reserve }
}
