//! QoS sets, by what hosts see alone. Nothing here knows of buckets that fill: of every stretch of time, what was asked *and* answered within it is
//! summed up, and no set may have had more than its rates times the stretch and what its buckets hold, nor all together more than the device gives
//! out. What was under way at either end of a stretch does not count, so the sum is never too large.
//!
//! A stretch that can no longer become the worst one is forgotten: when all that was asked before a later beginning is answered, the two sums grow
//! alike from then on.
//!
//! Stretches end where tokens are not asked for: at a crash, and while an administrator changes anything but sets. While a set is changed the
//! larger one of both definitions counts.
//!
//! In the calm one host keeps to half of its set's rate while all others ask for more than there is. It must not wait longer than the device needs
//! for what may be in front of it.

use super::{Action, HostCommand, HostToken, Range, Runner};
use crate::existing::Existing;
use crate::oracle::Finding;
use crate::plan::{DevicePlan, Lane, Plan, QosPlan, set_name};
use crate::run::administrator::Sight;
use crate::tag::VolumeNumber;
use diecut_shard::control::{ControlRequest, QosSetSpec};
use diecut_units::{Span, Time};
use std::collections::BTreeMap;

const NS_PER_SECOND: i128 = 1_000_000_000;
/// Parts of a set over several shards are rounded.
const ROUNDING_UNITS: u64 = 16;
/// After a request about something else vSSDs may go on without tokens for so long.
const FREE_AFTER: Span = Span::from_millis(1);
/// Requests of the modest host, and the IUs of one.
const MODEST_REQUESTS: u32 = 40;
const MODEST_IUS_MAX: u32 = 8;
/// Commands that each of the others has under way, and the IUs of one at most.
const GREEDY_DEPTH: u32 = 16;
const GREEDY_IUS_MAX: u32 = 8;
/// What a read may take besides: dies, turns at the core, the network.
const BESIDES: Span = Span::from_millis(100);
/// Turns of the loop: more is a system that goes round in circles.
const TURNS_MAX: u32 = 2_000_000;

/// How much of QoS sets a run looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct QosLooks {
    /// Commands that were counted for a set that has a bound.
    pub counted: u64,
    /// Commands that were counted for the device.
    pub counted_of_device: u64,
    /// The fullest stretch of a second or more, in thousandths of what it may have.
    pub fullest_permille: u64,
    /// Requests of modest hosts that were compared.
    pub modest: u64,
    /// The longest wait of one, in thousandths of its bound.
    pub slowest_permille: u64,
}

/// What passes in a stretch at most: units of a second, and at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bound {
    per_second: u64,
    burst: u64,
    /// Buckets that this is the sum of, each of which may be overdrawn by one command that is larger than it.
    buckets: u64,
}

impl Bound {
    /// Of a set in two states; none where it takes all that is idle.
    fn of_set(spec: &QosSetSpec, shards: u64) -> Option<Bound> {
        let (rate, bucket) = (spec.rate.units(), spec.bucket_in_force().units());
        let parts = shards.min((spec.vssds.len() + spec.volumes.len()) as u64);
        let committed = Bound { per_second: rate, burst: bucket + ROUNDING_UNITS, buckets: parts };
        if spec.threshold_in_force().units() == 0 {
            return Some(committed);
        }
        match spec.second_rate?.units() {
            0 => Some(committed),
            second => Some(Bound {
                per_second: rate + second,
                burst: 2 * bucket + ROUNDING_UNITS,
                buckets: 2 * parts,
            }),
        }
    }

    fn of_device(device: DevicePlan, shards: u64) -> Bound {
        Bound { per_second: device.rate, burst: device.bucket + ROUNDING_UNITS, buckets: shards }
    }

    /// Both hold.
    fn or(self, other: Bound) -> Bound {
        Bound {
            per_second: self.per_second.max(other.per_second),
            burst: self.burst.max(other.burst),
            buckets: self.buckets.max(other.buckets),
        }
    }

    /// What passes at once if one command may be so large.
    fn burst_with(self, largest: u64) -> u64 {
        self.burst + self.buckets * largest.saturating_sub(self.burst / self.buckets)
    }
}

/// The beginning of a stretch.
#[derive(Clone, Copy, Debug)]
struct Start {
    at: Time,
    /// What had come by then, in units times nanoseconds.
    come: i128,
    bound: Bound,
    /// What was asked and answered since, in the same.
    sum: i128,
}

impl Start {
    /// How near it is to its bound, beside others that end with it.
    fn weight(&self) -> i128 {
        self.sum + self.come - i128::from(self.bound.burst) * NS_PER_SECOND
    }
}

/// What one set, or the device, gave out.
#[derive(Default)]
struct Account {
    name: String,
    bound: Option<Bound>,
    /// Until when `come` is known: all that came since the beginning.
    at: Time,
    come: i128,
    starts: Vec<Start>,
    under_way: BTreeMap<HostToken, (Time, u64)>,
    largest: u64,
    counted: u64,
    fullest_permille: u64,
}

impl Account {
    /// Time passes; from now on this is the bound.
    fn set_bound(&mut self, bound: Option<Bound>, now: Time) {
        if let Some(bound) = self.bound {
            self.come += i128::from(bound.per_second) * i128::from(now.since(self.at).0);
        }
        (self.at, self.bound) = (now, bound);
        if bound.is_none() {
            self.starts.clear();
        }
    }

    fn issued(&mut self, token: HostToken, units: u64, now: Time) {
        self.set_bound(self.bound, now);
        self.largest = self.largest.max(units);
        self.under_way.insert(token, (now, units));
        if let Some(bound) = self.bound
            && self.starts.last().is_none_or(|last| last.at < now)
        {
            self.starts.push(Start { at: now, come: self.come, bound, sum: 0 });
        }
    }

    /// Takes an answer. What is wrong with it, if something is.
    fn answered(&mut self, token: HostToken, counts: bool, now: Time) -> Option<String> {
        self.set_bound(self.bound, now);
        let (issued, units) = self.under_way.remove(&token)?;
        let mut wrong = None;
        if counts && self.bound.is_some() {
            self.counted += 1;
            for start in self.starts.iter_mut().take_while(|start| start.at <= issued) {
                start.sum += i128::from(units) * NS_PER_SECOND;
                let may =
                    self.come - start.come + i128::from(start.bound.burst_with(self.largest)) * NS_PER_SECOND;
                let span = now.since(start.at);
                if span >= Span::from_secs(1) {
                    self.fullest_permille = self.fullest_permille.max((start.sum * 1000 / may) as u64);
                }
                if start.sum > may {
                    wrong.get_or_insert_with(|| {
                        format!(
                            "{}: {} units asked and answered from {} to {} ns, of {} that it may have ({:?})",
                            self.name,
                            start.sum / NS_PER_SECOND,
                            start.at.0,
                            now.0,
                            may / NS_PER_SECOND,
                            start.bound
                        )
                    });
                }
            }
        }
        self.forget();
        if wrong.is_some() {
            self.starts.clear();
        }
        wrong
    }

    /// Of the beginnings before which nothing is under way the worst one stays the worst.
    fn forget(&mut self) {
        let oldest = self.under_way.values().map(|(issued, _)| *issued).min().unwrap_or(Time::NEVER);
        let settled = self.starts.partition_point(|start| start.at <= oldest);
        let worst = self.starts[..settled].iter().copied().max_by_key(Start::weight);
        self.starts.splice(..settled, worst);
    }

    fn crashed(&mut self) {
        self.under_way.clear();
        self.starts.clear();
    }
}

/// The accounts of a run.
#[derive(Default)]
pub(super) struct Shaped {
    sets: Vec<Account>,
    device: Option<Account>,
    /// Until then something goes without tokens.
    free_until: Time,
}

/// The volume of a command and the bytes that its tokens are for; nothing of what is no command of a namespace.
fn moved_by(command: &HostCommand) -> Option<(VolumeNumber, u64)> {
    let bytes = |range: &Range, times: u64| Some((range.volume, u64::from(range.count) * 4096 * times));
    match command {
        HostCommand::Read(range)
        | HostCommand::Verify(range)
        | HostCommand::Write(range, ..)
        | HostCommand::Compare(range, _) => bytes(range, 1),
        HostCommand::Copy(range, ..) => bytes(range, 2),
        HostCommand::Deallocate(range)
        | HostCommand::WriteZeroes(range, _)
        | HostCommand::WriteUncorrectable(range) => bytes(range, 0),
        HostCommand::Flush(volume) => Some((*volume, 0)),
        HostCommand::Placed(_) => None,
    }
}

impl Shaped {
    /// Of a plan.
    pub(super) fn of(plan: &Plan) -> Shaped {
        let Some(qos) = &plan.qos else { return Shaped::default() };
        let account = |name: String| Account { name, ..Account::default() };
        Shaped {
            sets: (0..qos.sets.len() as u8).map(|set| account(set_name(set))).collect(),
            device: qos.device.map(|_| account("the device".to_owned())),
            free_until: Time::ZERO,
        }
    }

    fn accounts(&mut self) -> impl Iterator<Item = &mut Account> {
        self.sets.iter_mut().chain(&mut self.device)
    }

    /// A command goes to the system.
    pub(super) fn issued(&mut self, plan: &Plan, token: HostToken, command: &HostCommand, now: Time) {
        let Some(qos) = &plan.qos else { return };
        let Some((volume, bytes)) = moved_by(command) else { return };
        if let Some(set) = plan.qos_set_of(volume).map(usize::from) {
            self.sets[set].issued(token, qos.units_of(bytes, qos.sets[set].token_bytes), now);
        }
        if let Some(device) = &mut self.device {
            device.issued(token, qos.device_units_of(bytes), now);
        }
    }

    /// It was answered, and `counts` if it was carried out. What is wrong with that.
    pub(super) fn answered(&mut self, token: HostToken, counts: bool, now: Time) -> Vec<String> {
        self.accounts().filter_map(|account| account.answered(token, counts, now)).collect()
    }

    /// The system went away, with all that was under way.
    pub(super) fn crashed(&mut self) {
        self.accounts().for_each(Account::crashed);
    }

    /// What was looked at.
    pub(super) fn look(&self, looks: &mut QosLooks) {
        let all = self.sets.iter().chain(&self.device);
        looks.fullest_permille = all.map(|account| account.fullest_permille).max().unwrap_or_default();
        looks.counted = self.sets.iter().map(|account| account.counted).sum();
        looks.counted_of_device = self.device.as_ref().map_or(0, |account| account.counted);
    }
}

/// The sets as they may be now: one of these.
fn possible_sets(runner: &Runner<'_>, qos: &QosPlan) -> Vec<BTreeMap<String, QosSetSpec>> {
    match &runner.administrator {
        Some(administrator) => administrator.possible().map(|one: &Existing| one.qos_sets.clone()).collect(),
        None => vec![qos.specs().map(|spec| (spec.name.clone(), spec)).collect()],
    }
}

/// Sees what bounds there are from now on: once in each turn, after what administrators asked and were answered.
pub(super) fn note_sets(runner: &mut Runner<'_>) {
    let Some(qos) = &runner.plan.qos else { return };
    let now = runner.now;
    let request = runner.administrator.as_ref().and_then(|one| one.request_under_way());
    let is_about_sets = |request: &ControlRequest| {
        matches!(
            request,
            ControlRequest::CreateQosSet(_)
                | ControlRequest::ChangeQosSet { .. }
                | ControlRequest::DeleteQosSet(_)
        )
    };
    if request.is_some_and(|request| !is_about_sets(request)) {
        runner.shaped.free_until = now + FREE_AFTER;
    }
    let is_free = now <= runner.shaped.free_until && runner.shaped.free_until > Time::ZERO;
    let shards = u64::from(runner.plan.system.shards.iter().copied().max().unwrap_or(1));
    let possible = possible_sets(runner, qos);
    let bound_of = |name: &String| {
        let mut each = possible.iter().map(|sets| Bound::of_set(sets.get(name)?, shards));
        let first = each.next()??;
        each.try_fold(first, |bound, other| Some(bound.or(other?)))
    };
    for account in &mut runner.shaped.sets {
        let bound = if is_free { None } else { bound_of(&account.name) };
        account.set_bound(bound, now);
    }
    if let (Some(account), Some(device)) = (&mut runner.shaped.device, qos.device) {
        account.set_bound((!is_free).then(|| Bound::of_device(device, shards)), now);
    }
}

/// One who reads.
struct Reader {
    lane: Lane,
    volumes: Vec<(VolumeNumber, u64)>,
    under_way: u32,
    state: u64,
}

impl Reader {
    /// Over the volumes that its host sees now, of those that are wanted.
    fn new(runner: &Runner<'_>, lane: Lane, is_wanted: impl Fn(VolumeNumber) -> bool) -> Option<Reader> {
        let volumes = runner.plan.tenants[usize::from(lane.0)].volumes.iter();
        let seen = volumes.filter(|volume| runner.sight(lane, volume.number) == Sight::Yes);
        let wanted = seen.filter(|volume| is_wanted(volume.number));
        let volumes: Vec<_> = wanted.map(|volume| (volume.number, volume.iu_count)).collect();
        let can_read = !volumes.is_empty() && runner.system.is_connected(lane);
        can_read.then(|| Reader { lane, volumes, under_way: 0, state: u64::from(lane.0) + 1 })
    }

    /// Reads so many IUs somewhere.
    fn read(&mut self, runner: &mut Runner<'_>, count: u32) -> HostToken {
        // Knuth's linear congruence: its high bits are as good as needed here.
        self.state =
            self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let at = (self.state >> 33) as usize;
        let (volume, iu_count) = self.volumes[at % self.volumes.len()];
        let first = at as u64 % (iu_count - u64::from(count));
        self.under_way += 1;
        let token = HostToken(runner.token_next);
        runner.take_step(self.lane, Action::Read { range: Range { volume, first, count } });
        token
    }
}

/// The longest that a request of a set may wait that finds its bucket full, and units in it.
fn wait_max(qos: &QosPlan, sets: &BTreeMap<String, QosSetSpec>, own: &str, units: u64) -> Span {
    let Some(device) = qos.device else { return BESIDES };
    let others = || sets.values().filter(|set| set.name != own);
    let largest = qos.device_units_of(u64::from(GREEDY_IUS_MAX) * 4096);
    // In front of it: what others may have at once, one command that overdrew the device, and one that was let in just before.
    let bursts: u64 = others().map(|set| set.bucket_in_force().units() + largest).sum();
    let ahead = bursts + 2 * largest + units + device.bucket.min(largest);
    let left = device.rate - others().map(|set| set.rate.units()).sum::<u64>();
    BESIDES + Span((u128::from(ahead) * NS_PER_SECOND as u128 / u128::from(left.max(1))) as u64)
}

/// One host keeps to half of its set's rate, and all others ask for more than there is: how long it waits.
pub(super) fn compare_modest(runner: &mut Runner<'_>) {
    let plan = runner.plan;
    let Some(qos) = &plan.qos else { return };
    let Some(lane) = qos.modest.filter(|_| !runner.stop) else { return };
    let possible = possible_sets(runner, qos);
    let [sets] = possible.as_slice() else { return };
    let is_of = |set: u8| move |volume| plan.qos_set_of(volume) == Some(set);
    let own = plan.tenants[usize::from(lane.0)].volumes.iter().find_map(|one| plan.qos_set_of(one.number));
    let Some(set) = own else { return };
    let Some(spec) = sets.get(&set_name(set)) else { return };
    let Some(mut modest) = Reader::new(runner, lane, is_of(set)) else { return };
    let lanes = (0..plan.tenants.len() as u8).map(Lane).filter(|other| *other != lane);
    let mut greedy: Vec<Reader> =
        lanes.filter_map(|other| Reader::new(runner, other, |volume| !is_of(set)(volume))).collect();
    let units_of = |count: u32| qos.units_of(u64::from(count) * 4096, spec.token.bytes() as u32);
    let bucket = spec.bucket_in_force().units();
    let Some(count) = (1..=MODEST_IUS_MAX).rev().find(|count| units_of(*count) <= bucket) else { return };
    let units = units_of(count);
    let ns_of =
        |units: u64, rate: u64| Span((u128::from(units) * NS_PER_SECOND as u128 / u128::from(rate)) as u64);
    let pause = ns_of(2 * units, spec.rate.units());
    let wait_max = wait_max(qos, sets, &spec.name, units);
    // Its bucket is full then, whatever came before.
    let mut next_at =
        runner.now + ns_of(2 * (bucket + runner.shaped.sets[usize::from(set)].largest), spec.rate.units());
    let mut owners: BTreeMap<HostToken, Option<usize>> = BTreeMap::new();
    let mut since: Option<Time> = None;
    let mut left = MODEST_REQUESTS;
    let mut answers = Vec::new();
    for turn in 0.. {
        runner.system.advance(runner.now, &mut answers);
        note_sets(runner);
        let mut moved = !answers.is_empty();
        let mut is_whole = !runner.system.power_is_lost();
        for answer in answers.drain(..) {
            match owners.remove(&answer.token) {
                Some(Some(at)) => greedy[at].under_way -= 1,
                _ => modest.under_way -= 1,
            }
            is_whole &= answer.result.is_ok();
            runner.take_answer(answer);
        }
        // A cut that was still to come, or a connection that died unseen.
        if runner.stop || !is_whole {
            break;
        }
        if let Some(asked) = since {
            let waited = runner.now.since(asked);
            let looks = &mut runner.outcome.qos;
            if waited > wait_max {
                let detail = format!(
                    "lane {} keeps to half of the rate of {} and waits {waited} for {units} units, and {wait_max} is the most",
                    lane.0, spec.name
                );
                return runner.found(Finding::Fairness, detail);
            }
            if modest.under_way == 0 {
                looks.modest += 1;
                looks.slowest_permille = looks.slowest_permille.max(waited.0 * 1000 / wait_max.0);
                (since, left) = (None, left - 1);
            }
        }
        if left == 0 {
            break;
        }
        for (at, one) in greedy.iter_mut().enumerate() {
            while one.under_way < GREEDY_DEPTH && runner.system.is_connected(one.lane) {
                let count = 1 + (one.state >> 40) as u32 % GREEDY_IUS_MAX;
                owners.insert(one.read(runner, count), Some(at));
                moved = true;
            }
        }
        if since.is_none() && next_at <= runner.now && runner.system.is_connected(lane) {
            owners.insert(modest.read(runner, count), None);
            (since, next_at) = (Some(runner.now), runner.now + pause);
            moved = true;
        }
        if turn > TURNS_MAX {
            return runner.found(Finding::Liveness, "modest reads do not end".to_owned());
        }
        if !moved {
            let until = since.map_or(next_at, |asked| asked + wait_max + Span(1));
            runner.now = runner.system.next_event().min(until).max(runner.now);
        }
    }
    runner.drive();
    runner.come_to_rest();
}

#[cfg(test)]
mod test {
    use super::*;

    /// An account with a rate of 1,000 units a second and 10 at once.
    fn account() -> Account {
        let mut account = Account { name: "it".into(), ..Account::default() };
        account.set_bound(Some(Bound { per_second: 1000, burst: 10, buckets: 1 }), Time::ZERO);
        account
    }

    fn ms(ms: u64) -> Time {
        Time(ms * 1_000_000)
    }

    /// Asks and answers single units at these times.
    fn wrong_at(account: &mut Account, times: &[u64]) -> Vec<usize> {
        let mut wrong = Vec::new();
        for (at, &time) in times.iter().enumerate() {
            account.issued(HostToken(at as u64), 1, ms(time));
            if account.answered(HostToken(at as u64), true, ms(time)).is_some() {
                wrong.push(at);
            }
        }
        wrong
    }

    #[test]
    fn a_stretch_may_have_its_rate_and_its_burst_and_no_more() {
        // Ten at once and one each millisecond from then on.
        let mut times = vec![5; 10];
        times.extend(6..200);
        assert!(wrong_at(&mut account(), &times).is_empty());
        let mut more = times.clone();
        more.insert(100, more[99]);
        assert_eq!(wrong_at(&mut account(), &more), [100]);
        // The worst stretch begins after a rest.
        let after_a_rest: Vec<u64> = (0..11).map(|_| 500).collect();
        assert_eq!(wrong_at(&mut account(), &after_a_rest), [10]);
    }

    #[test]
    fn what_was_under_way_at_an_end_does_not_count() {
        let mut account = account();
        for token in 0..20 {
            account.issued(HostToken(token), 1, Time::ZERO);
        }
        account.issued(HostToken(20), 1, ms(100));
        assert!((0..20).all(|token| account.answered(HostToken(token), true, ms(100)).is_none()));
        assert!(account.answered(HostToken(20), true, ms(100)).is_none());
        assert_eq!(account.starts.len(), 1, "the one with the most in it stays");
    }

    #[test]
    fn a_command_that_is_larger_than_the_bucket_overdraws_it_once() {
        let mut account = account();
        let mut ask = |token: u64, at: u64| {
            account.issued(HostToken(token), 25, ms(at));
            account.answered(HostToken(token), true, ms(at))
        };
        assert_eq!(ask(0, 0), None);
        assert_eq!(ask(1, 25), None);
        assert!(ask(2, 49).is_some(), "1 of 25 had not come yet");
    }

    #[test]
    fn while_a_set_is_changed_the_larger_one_counts() {
        let mut account = account();
        let slow = Bound { per_second: 10, burst: 10, buckets: 1 };
        account.set_bound(Some(slow), ms(10));
        assert_eq!(wrong_at(&mut account, &[10; 10]), [0usize; 0]);
        account.set_bound(Some(slow.or(Bound { per_second: 500, ..slow })), ms(10));
        assert_eq!(wrong_at(&mut account, &[20; 5]), [0usize; 0]);
        account.set_bound(Some(slow), ms(20));
        assert_eq!(wrong_at(&mut account, &[30]), [0]);
    }
}
