//! Even wear over the shards of one server: the decision is that of one pool over the whole device, and the exchange takes place
//! on one shard. Pools of a divided device count wear and copy blocks; what is exchanged the first shard says, between
//! requests of administrators:
//!
//! 1. A pool tells that so much was erased that something may be due. The first shard asks all for what they know of their
//!    dies, and decides ([`diecut_vssd::choose_exchanges`]).
//! 2. If both channels are one shard's, that shard exchanges what lies there. If nobody uses the other channel it is lent. Else
//!    what lies on it visits: its group of tenants moves to the shard of the source (`relocation.rs`); the quiet content does,
//!    because the hot one's hosts would feel it more, and the applications that are attached go with it.
//! 3. The exchange goes on for as long as it takes; requests are carried out meanwhile. When it is over a channel that nothing
//!    lies on any more goes back to the first shard, and visitors go home, unless something ties them to those they visited.
//!    Otherwise all tenants would end on one shard.
//!
//! Nothing of this is stored: after a crash homes are given out anew, and an exchange that was under way goes on wherever
//! its channels are together.

use crate::drive::ShardIndex;
use crate::execute::{Progress, Reply, Running};
use crate::ledger::Tied;
use crate::notice::Notice;
use crate::peer::{Message, Moved, Order, ShardMessage};
use crate::plan::Step;
use crate::relocation::Group;
use crate::shard::Shard;
use diecut_media::Divide;
use diecut_units::{Time, mark, mutant};
use diecut_vssd::{
    Chosen, DeviceAge, DieLayout, Holding, PlaceView, WearNews, are_apart, choose_exchanges, is_broken,
};
use std::collections::{BTreeMap, BTreeSet};

/// What a shard knows of its dies.
pub(crate) struct WearReport {
    pub shard: u16,
    /// By die of the device; only those of the shard's channels say something.
    dies: Vec<PlaceView>,
    /// Exchanges wait there or go on.
    is_exchanging: bool,
}

/// A group that is on another shard for an exchange.
#[derive(Clone, Debug, PartialEq)]
struct Visit {
    /// What lies on this channel goes home afterwards,
    channel: u16,
    /// if it is tied to nothing outside of these.
    channels: BTreeSet<u16>,
    home: u16,
    host: u16,
    /// It could not go; it is asked again when something is erased.
    is_kept: bool,
}

/// What is being tried.
#[derive(Clone, Debug, PartialEq)]
enum Attempt {
    Meet(Visit),
    GoHome(Visit),
}

/// Of the first shard; see the module.
#[derive(Default)]
pub(crate) struct Evenness {
    is_due: bool,
    /// Exchanges on other shards ended: they may have channels that nothing lies on any more.
    has_left_empty: bool,
    /// Exchanges that were ordered and did not end.
    under_way: Vec<[u32; 2]>,
    visits: Vec<Visit>,
    attempt: Option<Attempt>,
    reports: Vec<WearReport>,
    /// Those in force over the whole device, when something was looked at.
    pub thresholds_erases: Option<[u64; 2]>,
}

impl Evenness {
    /// Whether there is something to begin.
    pub fn has_work(&self) -> bool {
        self.is_due || self.are_channels_due() || self.next_home().is_some()
    }

    fn are_channels_due(&self) -> bool {
        self.has_left_empty && self.under_way.is_empty()
    }

    /// The visit that is over.
    fn next_home(&self) -> Option<usize> {
        let over = self.under_way.is_empty();
        self.visits.iter().position(|visit| over && !visit.is_kept)
    }

    fn heard_of(&mut self, news: WearNews) {
        match news {
            WearNews::Due => {
                self.is_due = true;
                self.visits.iter_mut().for_each(|visit| visit.is_kept = false);
            }
            WearNews::Begun(_) => {}
            WearNews::Finished(dies) | WearNews::Dropped(dies) => {
                self.under_way.retain(|other| *other != dies);
                self.is_due = true;
            }
        }
    }

    /// An administrator says where these channels live.
    pub fn forget_visits(&mut self, channels: &BTreeSet<u16>) {
        self.visits.retain(|visit| !channels.contains(&visit.channel));
    }
}

impl<M: Divide> Shard<M> {
    /// Tells the first shard what happened here to even wear.
    pub(crate) fn tell_wear(&mut self) {
        let news: Vec<WearNews> = self.flash.pool.take_wear_news().collect();
        for news in news {
            let notice = match news {
                WearNews::Due => None,
                WearNews::Begun(dies) => Some(Notice::ExchangeBegun(dies)),
                WearNews::Finished(dies) => Some(Notice::ExchangeFinished(dies)),
                WearNews::Dropped(dies) => Some(Notice::ExchangeFailed(dies)),
            };
            self.notices.extend(notice);
            if !self.is_member() {
                self.ledger.heard_of(news);
                if !self.ledger.is_single() {
                    self.evenness.heard_of(news);
                }
                continue;
            }
            if matches!(news, WearNews::Finished(_))
                && mutant!("shard: ends of exchanges are not told to the first shard")
            {
                continue;
            }
            self.outgoing.push((ShardIndex(0), ShardMessage(Message::Wear(news))));
        }
    }

    /// A member told something.
    pub(crate) fn heard_of(&mut self, news: WearNews) {
        self.ledger.heard_of(news);
        self.flash.pool.heard_of(news);
        self.evenness.heard_of(news);
        self.evenness.has_left_empty |= matches!(news, WearNews::Finished(_) | WearNews::Dropped(_));
    }

    /// What is known here.
    pub(crate) fn wear_report(&mut self, now: Time) -> WearReport {
        let (dies, is_exchanging) = self.flash.pool.wear_report(now);
        WearReport { shard: self.index.0, dies, is_exchanging }
    }

    /// Begins to send visitors home, or to look at wear, if one is due. Says whether it did.
    pub(crate) fn begin_evenness(&mut self) -> bool {
        let steps = if let Some(at) = self.evenness.next_home() {
            let visit = self.evenness.visits.remove(at);
            match self.way_home(&visit) {
                Some(group) => {
                    self.evenness.attempt = Some(Attempt::GoHome(visit));
                    self.moving_steps(group)
                }
                None => Vec::new(),
            }
        } else if self.evenness.are_channels_due() {
            self.evenness.has_left_empty = false;
            vec![Step::ReturnChannels]
        } else if self.evenness.is_due {
            self.evenness.is_due = false;
            vec![Step::LevelWear]
        } else {
            return false;
        };
        assert!(!self.ledger.is_single(), "the pool of a whole device decides by itself");
        self.begin(Reply::Evenness, self.state.clone(), steps);
        true
    }

    /// What was tried worked, or was refused.
    pub(crate) fn evenness_done(&mut self, is_refused: bool) {
        let Some(attempt) = self.evenness.attempt.take() else { return };
        match attempt {
            // Wear is looked at again when something is erased.
            Attempt::Meet(_) if is_refused => {}
            Attempt::Meet(visit) => self.evenness.visits.push(visit),
            Attempt::GoHome(visit) if is_refused => {
                self.evenness.visits.push(Visit { is_kept: true, ..visit });
            }
            Attempt::GoHome(_) => mark!("shard: visitors went home"),
        }
    }

    /// The group that goes home after a visit, if there is still one, and it can.
    fn way_home(&self, visit: &Visit) -> Option<Group> {
        let tied = self.tied_by_channel(visit.channel);
        let is_there =
            !tied.vssds.is_empty() && tied.vssds.iter().all(|&vssd| self.ledger.shard_of(vssd) == visit.host);
        if !is_there {
            return None;
        }
        if !tied.channels.is_subset(&visit.channels) {
            mark!("shard: visitors are tied to those they visited");
            return None;
        }
        Some(Group::of(tied, visit.host, visit.home))
    }

    fn tied_by_channel(&self, channel: u16) -> Tied {
        let start = Tied { channels: [channel].into(), ..Tied::default() };
        self.ledger.tied_to(start, &self.tenants_of_vssds(), self.flash.media.geometry())
    }

    /// Looks at wear: asks all shards, and has what is due exchanged.
    pub(crate) fn level_wear(&mut self, running: &mut Running, now: Time) -> Progress {
        if !running.is_ordered {
            running.is_ordered = true;
            running.awaited = self.order_all(|| Order::Wear);
            let own = self.wear_report(now);
            self.evenness.reports = vec![own];
        }
        let awaited = std::mem::take(&mut running.awaited);
        for number in awaited {
            match self.take_answer(number) {
                Some(answer) => self.evenness.reports.extend(answer.wear),
                None => running.awaited.push(number),
            }
        }
        if !running.awaited.is_empty() {
            return Progress::Waits;
        }
        let reports = std::mem::take(&mut self.evenness.reports);
        if self.evenness.are_channels_due() || self.evenness.next_home().is_some() {
            // One came to its end meanwhile: first all is put back.
            self.evenness.is_due = true;
        } else if !reports.iter().any(|report| report.is_exchanging)
            && !self.state.pool.wear.paused.unwrap_or(false)
        {
            // While exchanges are paused none would begin, and this would wait for it before any request. The end of a pause is told.
            running.steps.extend(self.choose_meeting(&reports));
        }
        Progress::Done
    }

    /// What is to be done for the exchange that is due, if one is.
    fn choose_meeting(&mut self, reports: &[WearReport]) -> Vec<Step> {
        let geometry = *self.flash.media.geometry();
        let layout = DieLayout::of(&geometry);
        let owner = |die: usize| self.ledger.owners[layout.channel_of(die)];
        let view = |die: usize| {
            let report = reports.iter().find(|report| report.shard == owner(die));
            report.map_or(PlaceView::default(), |report| report.dies[die])
        };
        let dies: Vec<PlaceView> = (0..geometry.dies() as usize).map(view).collect();
        let isolations: BTreeMap<u32, _> =
            self.state.vssds.values().map(|vssd| (vssd.number, vssd.isolation)).collect();
        let held = self.ledger.vssds.iter().filter_map(|(number, held)| {
            let dies = held.places.dies().collect();
            Some(Holding { dies, isolation: *isolations.get(number)? })
        });
        let holdings: Vec<Holding> = held.collect();
        let config = *self.flash.pool.wear_config();
        let thresholds = config.thresholds(&layout, DeviceAge::of(&layout, &dies));
        let apart = |one: usize, other: usize| are_apart(&holdings, &layout, one, other);
        let broken = |channel: usize| is_broken(&holdings, &layout, channel);
        let can = |one: usize, other: usize| {
            let on = |vssd: &Holding, die: usize| vssd.dies.contains(&(die as u32));
            one != other
                && !holdings.iter().any(|vssd| on(vssd, one) && on(vssd, other))
                && (owner(one) == owner(other)
                    || self.is_alone_on(one as u32) && self.is_alone_on(other as u32))
        };
        let chosen = choose_exchanges(config.rule, thresholds, &layout, &dies, apart, broken, can);
        self.evenness.thresholds_erases = Some(thresholds);
        let Some(chosen) = chosen else { return Vec::new() };
        let whole = matches!(chosen, Chosen::Channels(_));
        let pairs = chosen.into_dies();
        let [source, target] = pairs[0].map(|die| layout.channel_of(die as usize) as u16);
        let Some(mut steps) = self.bring_together([source, target], whole) else { return Vec::new() };
        steps.push(Step::Exchange(pairs));
        steps
    }

    /// Whether what lies on a die is tied to nothing elsewhere: its content can change channels, and shards, by itself.
    fn is_alone_on(&self, die: u32) -> bool {
        let tenants = self.tenants_of_vssds();
        let on_die = self.ledger.vssds.iter().filter(|(_, held)| held.places.dies().any(|on| on == die));
        on_die.into_iter().all(|(number, held)| {
            let tenant = tenants.get(number);
            held.places.dies().all(|on| on == die)
                && tenants.iter().all(|(other, owner)| other == number || Some(owner) != tenant)
        })
    }

    /// What has two channels on one shard; `None` if that cannot be now.
    fn bring_together(&mut self, [source, target]: [u16; 2], whole: bool) -> Option<Vec<Step>> {
        let [from, to] = [source, target].map(|channel| self.ledger.owners[usize::from(channel)]);
        if from == to {
            return Some(Vec::new());
        }
        let visitors = self.tied_by_channel(target);
        if visitors.vssds.is_empty() {
            if to != 0 || !self.flash.pool.is_free_channel(target) {
                // Something was still under way there when its last vSSD went.
                self.evenness.has_left_empty = to != 0;
                return None;
            }
            mark!("shard: free channel lent for an exchange");
            let part = self.flash.pool.detach(&[target]);
            let moved = Moved::new(vec![target], part, &mut self.flash.media);
            self.ledger.owners[usize::from(target)] = from;
            self.order(from, Order::Channels(moved));
            return Some(Vec::new());
        }
        mark!("shard: content visits another shard for an exchange");
        let (group, home, host) = (visitors, to, from);
        let mut channels = group.channels.clone();
        // Whole channels are exchanged with all that lies there; what shares a channel with others stays on it, but for a die.
        let channel = if whole {
            channels.remove(&target);
            channels.insert(source);
            source
        } else {
            target
        };
        let visit = Visit { channel, channels, home, host, is_kept: false };
        self.evenness.attempt = Some(Attempt::Meet(visit));
        Some(self.moving_steps(Group::of(group, home, host)))
    }

    /// A shard's part of [`Step::Exchange`].
    pub(crate) fn exchange(&mut self, pairs: &[[u32; 2]]) {
        if !self.is_member() {
            self.evenness.under_way = pairs.to_vec();
        }
        self.flash.pool.exchange_chosen(pairs);
    }
}
