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

use crate::custody;
use crate::devices::DeviceIndex;
use crate::evenness::{Attempt, Visit};
use crate::job::{Job, Own, Progress};
use crate::lanes::Lane;
use crate::ledger::{Group, Tied};
use crate::notice::Notice;
use crate::owners::Owners;
use crate::peer::{Answer, Message, Order, ShardMessage, WearReport};
use crate::seat::ShardIndex;
use crate::step::Step;
use diecut_media::Divide;
use diecut_units::{Time, mark, mutant};
use diecut_vssd::{
    Chosen, DeviceAge, DieLayout, Holding, PlaceView, WearNews, are_apart, choose_exchanges, is_broken,
};
use std::collections::BTreeMap;

/// Tells the first shard what happened here to even wear.
pub(crate) fn tell_wear<M: Divide>(here: &mut Owners<M>) {
    let devices = here.plane.flash.devices.numbered_mut();
    let news = devices.flat_map(|(device, own)| own.pool.take_wear_news().map(move |news| (device, news)));
    let news: Vec<(DeviceIndex, WearNews)> = news.collect();
    for (device, news) in news {
        let notice = match news {
            WearNews::Due => None,
            WearNews::Begun(dies) => Some(Notice::ExchangeBegun(dies)),
            WearNews::Finished(dies) => Some(Notice::ExchangeFinished(dies)),
            WearNews::Dropped(dies) => Some(Notice::ExchangeFailed(dies)),
        };
        here.notices.extend(notice);
        if !here.placement.is_member() {
            here.placement.ledger.heard_of(device, news);
            if !here.placement.ledger.is_single() {
                here.placement.evenness.heard_of(news);
            }
            continue;
        }
        if matches!(news, WearNews::Finished(_))
            && mutant!("shard: ends of exchanges are not told to the first shard")
        {
            continue;
        }
        here.placement.outgoing.push((ShardIndex(0), ShardMessage(Message::Wear(device, news))));
    }
}

/// A member told something.
pub(crate) fn heard_of<M: Divide>(here: &mut Owners<M>, device: DeviceIndex, news: WearNews) {
    here.placement.ledger.heard_of(device, news);
    here.plane.flash.devices.get_mut(device).pool.heard_of(news);
    here.placement.evenness.heard_of(news);
    here.placement.evenness.has_left_empty |= matches!(news, WearNews::Finished(_) | WearNews::Dropped(_));
}

/// What is known here.
pub(crate) fn wear_report<M: Divide>(here: &mut Owners<M>, now: Time) -> WearReport {
    // Where a device came since it was asked for, nothing comes of the answers.
    let (dies, is_exchanging) = match here.plane.flash.devices.leveled() {
        Some(device) => here.plane.flash.devices.get_mut(device).pool.wear_report(now),
        None => (Vec::new(), false),
    };
    WearReport { shard: here.placement.index.0, dies, is_exchanging }
}

/// What is due: visitors go home, channels that nothing lies on any more go back, or wear is looked at.
pub(crate) fn due_steps<M: Divide>(here: &mut Owners<M>) -> Option<Vec<Step>> {
    assert!(here.placement.evenness.attempt.is_none(), "I-S13: one thing is tried for even wear at a time");
    let steps = if let Some(at) = here.placement.evenness.next_home() {
        let visit = here.placement.evenness.visits.remove(at);
        match way_home(here, &visit) {
            Some(group) => {
                here.placement.evenness.attempt = Some(Attempt::GoHome(visit));
                here.placement.moving_steps(group)
            }
            None => Vec::new(),
        }
    } else if here.placement.evenness.are_channels_due() {
        here.placement.evenness.has_left_empty = false;
        vec![Step::ReturnChannels]
    } else if here.placement.evenness.is_due {
        here.placement.evenness.is_due = false;
        vec![Step::LevelWear]
    } else {
        return None;
    };
    assert!(!here.placement.ledger.is_single(), "I-S13: the pool of a whole device decides by itself");
    Some(steps)
}

/// What was tried worked, or was refused.
pub(crate) fn evenness_done<M: Divide>(here: &mut Owners<M>, is_refused: bool) {
    let Some(attempt) = here.placement.evenness.attempt.take() else { return };
    match attempt {
        // Wear is looked at again when something is erased.
        Attempt::Meet(_) if is_refused => {}
        Attempt::Meet(visit) => here.placement.evenness.visits.push(visit),
        Attempt::GoHome(visit) if is_refused => {
            here.placement.evenness.visits.push(Visit { is_kept: true, ..visit });
        }
        Attempt::GoHome(_) => mark!("shard: visitors went home"),
    }
}

/// The group that goes home after a visit, if there is still one, and it can.
fn way_home<M: Divide>(here: &Owners<M>, visit: &Visit) -> Option<Group> {
    let tied = tied_by_lane(here, visit.lane);
    let is_there = !tied.vssds.is_empty()
        && tied.vssds.iter().all(|&vssd| here.placement.ledger.shard_of(vssd) == visit.host);
    if !is_there {
        return None;
    }
    if !tied.lanes.is_subset(&visit.lanes) {
        mark!("shard: visitors are tied to those they visited");
        return None;
    }
    Some(Group::of(tied, visit.host, visit.home))
}

fn tied_by_lane<M: Divide>(here: &Owners<M>, lane: Lane) -> Tied {
    let start = Tied { lanes: [lane].into(), ..Tied::default() };
    here.placement.ledger.tied_to(start, &here.registry.tenants_of_vssds())
}

/// Looks at wear: asks all shards, and has what is due exchanged.
pub(crate) fn level_wear<M: Divide>(here: &mut Owners<M>, job: &mut Job, now: Time) -> Progress {
    if !job.is_begun() {
        if here.placement.attendance.lacks_any() || here.plane.flash.devices.leveled().is_none() {
            // Where somebody is missing it is due again when all are there.
            return Progress::Done;
        }
        job.begin(false, here.placement.order_all(|| Order::Wear));
        let own = wear_report(here, now);
        here.placement.evenness.reports = vec![own];
    }
    job.retain_awaited(|number| match here.placement.take_answer(*number) {
        Some(Answer::Wear(report)) => {
            here.placement.evenness.reports.push(report);
            false
        }
        Some(_) => unreachable!("I-S14: wear is answered with wear"),
        None => true,
    });
    if !job.awaited().is_empty() {
        return Progress::Waits;
    }
    let reports = std::mem::take(&mut here.placement.evenness.reports);
    if here.placement.evenness.are_channels_due() || here.placement.evenness.next_home().is_some() {
        // One came to its end meanwhile: first all is put back.
        here.placement.evenness.is_due = true;
    } else if !here.placement.attendance.lacks_any()
        && !reports.iter().any(|report| report.is_exchanging)
        && !here.registry.state.pool.wear.paused.unwrap_or(false)
    {
        // While exchanges are paused none would begin, and this would wait for it before any request. The end of a pause is told.
        job.steps.extend(choose_meeting(here, &reports));
    }
    Progress::Done
}

/// What is to be done for the exchange that is due, if one is.
fn choose_meeting<M: Divide>(here: &mut Owners<M>, reports: &[WearReport]) -> Vec<Step> {
    let Some(device) = here.plane.flash.devices.leveled() else { return Vec::new() };
    let geometry = *here.plane.flash.devices.get(device).media.geometry();
    let layout = DieLayout::of(&geometry);
    let lane_of = |die: usize| Lane::of(device, layout.channel_of(die) as u16);
    let owner = |die: usize| here.placement.ledger.owners.of(lane_of(die));
    let view = |die: usize| {
        let report = reports.iter().find(|report| report.shard == owner(die));
        report.map_or(PlaceView::default(), |report| report.dies[die])
    };
    let dies: Vec<PlaceView> = (0..geometry.dies() as usize).map(view).collect();
    let isolations: BTreeMap<u32, _> =
        here.registry.state.vssds.values().map(|vssd| (vssd.number, vssd.isolation)).collect();
    let held = here.placement.ledger.vssds.iter().filter_map(|(number, held)| {
        let dies = held.dies(device).collect();
        Some(Holding { dies, isolation: *isolations.get(number)? })
    });
    let holdings: Vec<Holding> = held.collect();
    let config = *here.plane.flash.devices.get(device).pool.wear_config();
    let thresholds = config.thresholds(&layout, DeviceAge::of(&layout, &dies));
    let apart = |one: usize, other: usize| are_apart(&holdings, &layout, one, other);
    let broken = |channel: usize| is_broken(&holdings, &layout, channel);
    let can = |one: usize, other: usize| {
        let on = |vssd: &Holding, die: usize| vssd.dies.contains(&(die as u32));
        let are_alone = || [one, other].into_iter().all(|die| is_alone_on(here, device, die as u32));
        one != other
            && !holdings.iter().any(|vssd| on(vssd, one) && on(vssd, other))
            && (owner(one) == owner(other)
                || [one, other].into_iter().all(|die| may_leave(here, lane_of(die))) && are_alone())
    };
    let chosen = choose_exchanges(config.rule, thresholds, &layout, &dies, apart, broken, can);
    here.placement.evenness.thresholds_erases = Some(thresholds);
    let Some(chosen) = chosen else { return Vec::new() };
    let whole = matches!(chosen, Chosen::Channels(_));
    let pairs = chosen.into_dies();
    let [source, target] = pairs[0].map(|die| lane_of(die as usize));
    let Some(mut steps) = bring_together(here, [source, target], whole) else { return Vec::new() };
    steps.push(Step::Exchange(pairs));
    steps
}

/// Whether what lies on a die is tied to nothing elsewhere: its content can change channels, and shards, by itself.
fn is_alone_on<M: Divide>(here: &Owners<M>, device: DeviceIndex, die: u32) -> bool {
    let tenants = here.registry.tenants_of_vssds();
    let vssds = here.placement.ledger.vssds.iter();
    let on_die = vssds.filter(|(_, held)| held.dies(device).any(|on| on == die));
    on_die.into_iter().all(|(number, held)| {
        let tenant = tenants.get(number);
        held.dies(device).all(|on| on == die)
            && tenants.iter().all(|(other, owner)| other == number || Some(owner) != tenant)
    })
}

/// Whether what lies on a channel may be exchanged with what another shard has. On one that the first shard keeps for the log of block states a guest
/// would never come home.
fn may_leave<M: Divide>(here: &Owners<M>, lane: Lane) -> bool {
    !here.placement.ledger.kept.contains(&lane)
        || mutant!("shard: what lies on a channel of the log visits others")
}

/// What has two channels on one shard; `None` if that cannot be now.
fn bring_together<M: Divide>(
    here: &mut Owners<M>,
    [source, target]: [Lane; 2],
    whole: bool,
) -> Option<Vec<Step>> {
    let [from, to] = [source, target].map(|lane| here.placement.ledger.owners.of(lane));
    if from == to {
        return Some(Vec::new());
    }
    let visitors = tied_by_lane(here, target);
    let kept = &here.placement.ledger.kept;
    if !visitors.lanes.is_disjoint(kept) || !may_leave(here, source) {
        return None;
    }
    if visitors.vssds.is_empty() {
        let own = here.plane.flash.devices.get(target.device);
        if to != 0 || !own.pool.is_free_channel(target.channel) {
            // Something was still under way there when its last vSSD went.
            here.placement.evenness.has_left_empty = to != 0;
            return None;
        }
        mark!("shard: free channel lent for an exchange");
        let moved = custody::take_out(here, &[target]);
        here.placement.ledger.owners.give(target, from);
        here.placement.order(from, Order::Channels(moved));
        return Some(Vec::new());
    }
    mark!("shard: content visits another shard for an exchange");
    let (group, home, host) = (visitors, to, from);
    let mut lanes = group.lanes.clone();
    // Whole channels are exchanged with all that lies there; what shares a channel with others stays on it, but for a die.
    let lane = if whole {
        lanes.remove(&target);
        lanes.insert(source);
        source
    } else {
        target
    };
    let visit = Visit { lane, lanes, home, host, is_kept: false };
    here.placement.evenness.attempt = Some(Attempt::Meet(visit));
    Some(here.placement.moving_steps(Group::of(group, home, host)))
}

/// A shard's part of [`Step::Exchange`]: done when what is its own has begun.
pub(crate) fn exchange<M: Divide>(here: &mut Owners<M>, pairs: &[[u32; 2]], job: &mut Job) -> Progress {
    if *job.own() == Own::Begins {
        job.own_goes(Own::Exchanges);
        if !here.placement.is_member() {
            here.placement.evenness.under_way = pairs.to_vec();
        }
        here.plane.flash.devices.only_mut().pool.exchange_chosen(pairs);
    }
    if here.plane.flash.devices.only().pool.has_waiting_exchanges() {
        Progress::Waits
    } else {
        Progress::Done
    }
}
