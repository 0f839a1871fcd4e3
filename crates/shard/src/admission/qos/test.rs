use super::set::Granted;
use super::*;
use diecut_testing::Random;
use diecut_units::Span;

const SECOND: u64 = 1_000_000_000;

fn definition(rate: u64, size: u64, threshold: u64, second_rate: SecondRate) -> SetDefinition {
    SetDefinition {
        unit: TokenUnit::Bytes(1),
        bucket: BucketSize { rate_per_second: rate, size },
        threshold,
        second_rate,
    }
}

fn device(rate: u64, size: u64) -> Option<DeviceShaper> {
    let bucket = BucketSize { rate_per_second: rate, size };
    Some(DeviceShaper { unit: TokenUnit::Bytes(1), bucket })
}

/// What was granted: when, to which set, in which state, how many bytes.
type Grant = (Time, u32, SetState, u64);

/// Has one volume in each set ask again as soon as it was granted something, from `start` to `end`; what it asks for is drawn up to
/// `most` bytes. A set that is not `busy` asks at times that are drawn. Number 0 is what is in no set.
fn drive(shaper: &mut Shaper, random: &mut Random, busy: &[bool], most: u64, end: Time) -> Vec<Grant> {
    let sets: Vec<u32> =
        (0..busy.len() as u32).map(|number| shaper.set_of(Some(&number.to_string()))).collect();
    let mut grants = Vec::new();
    let mut waits = vec![false; busy.len()];
    let mut asks_at = vec![Time::ZERO; busy.len()];
    let mut now = Time::ZERO;
    while now < end {
        loop {
            let mut is_over = true;
            for volume in 0..busy.len() {
                if !waits[volume] && asks_at[volume] <= now {
                    is_over = false;
                    let bytes = 1 + random.below(most);
                    if !busy[volume] {
                        asks_at[volume] = Time(now.0 + random.below(SECOND / 50));
                    }
                    match shaper.ask(volume as u32, sets[volume], bytes, now) {
                        Some(ticket) => grants.push((now, volume as u32, ticket.state, bytes)),
                        None => waits[volume] = true,
                    }
                }
            }
            while shaper.is_due(now, true)
                && let Some((volume, ticket)) = shaper.release(now, true)
            {
                is_over = false;
                waits[volume as usize] = false;
                grants.push((now, volume, ticket.state, ticket.bytes));
            }
            if is_over {
                break;
            }
        }
        let asks = (0..busy.len()).filter(|volume| !waits[*volume]).map(|volume| asks_at[volume]);
        let next = asks.fold(shaper.due_at(), Time::min);
        assert!(next > now, "something is due that nobody gets");
        now = next;
    }
    grants
}

/// Checks that in no stretch more than `rate` allows and `size` passed, but for what one request has beyond the bucket. Exact: bytes
/// times nanoseconds are summed in 128 bits, and the worst stretch that ends at each grant is kept.
fn bounded(grants: impl Iterator<Item = (Time, u64)>, rate: u64, size: u64, beyond: u64, what: &str) {
    let (mut sum, mut lowest) = (0i128, i128::MAX);
    for (at, bytes) in grants {
        let allowed = i128::from(rate) * i128::from(at.0);
        lowest = lowest.min(sum - allowed);
        sum += i128::from(bytes) * i128::from(SECOND);
        let excess = sum - allowed - lowest;
        let most = i128::from(size + beyond) * i128::from(SECOND);
        assert!(
            excess <= most,
            "{what}: {} bytes too many up to {at:?}",
            (excess - most) / i128::from(SECOND)
        );
    }
}

fn of(grants: &[Grant], set: u32, state: SetState) -> Vec<(Time, u64)> {
    let own = grants.iter().filter(|grant| (grant.1, grant.2) == (set, state));
    own.map(|(at, _, _, bytes)| (*at, *bytes)).collect()
}

fn bytes(grants: &[(Time, u64)]) -> u64 {
    grants.iter().map(|(_, bytes)| bytes).sum()
}

/// Goal: each set, and all together, have what their buckets allow and no more; a set that is always busy has its committed rate
/// whatever the others ask, as the sum of rates fits the device; nothing stays unused that somebody wants. Method: random sets,
/// requests and idle times, checked by sums in exact arithmetic that know nothing of buckets.
#[test]
fn grants_keep_to_rates_and_reach_them() {
    let mut second_states = 0;
    for seed in 0..300 {
        let mut random = Random::of(seed);
        let most = 1 + random.below(20_000);
        let count = 1 + random.below(5);
        let mut rates = vec![0];
        let mut definitions = vec![None];
        for _ in 0..count {
            let rate = 10_000 + random.below(1_000_000);
            // Room above the threshold for what comes while the device is busy with the others.
            let size = 8 * most + random.below(100_000);
            let threshold = random.below(size / 2);
            let second_rate = match random.below(3) {
                0 => SecondRate::Nothing,
                1 => SecondRate::Limited(1 + random.below(500_000)),
                _ => SecondRate::Idle,
            };
            rates.push(rate);
            definitions.push(Some(definition(rate, size, threshold, second_rate)));
        }
        let committed: u64 = rates.iter().sum();
        let device_rate = committed + random.below(2) * random.below(committed);
        let device_size = most + random.below(50_000);
        let mut shaper = Shaper::new(device(device_rate, device_size));
        for (number, definition) in definitions.iter().enumerate().skip(1) {
            shaper.define(&number.to_string(), definition.expect("it is one"), Time::ZERO);
        }
        let busy: Vec<bool> = (0..=count).map(|_| random.below(3) > 0).collect();
        let end = Time(4 * SECOND);
        let grants = drive(&mut shaper, &mut random, &busy, most, end);

        let all = grants.iter().map(|(at, _, _, bytes)| (*at, *bytes));
        bounded(all, device_rate, device_size, 0, &format!("seed {seed}: the device"));
        for (number, definition) in definitions.iter().enumerate().skip(1) {
            let SetDefinition { bucket, second_rate, .. } = definition.expect("it is one");
            let what = format!("seed {seed}: set {number}");
            let within = of(&grants, number as u32, SetState::Committed);
            bounded(within.iter().copied(), bucket.rate_per_second, bucket.size, 0, &what);
            let second = of(&grants, number as u32, SetState::Second);
            second_states += second.len();
            match second_rate {
                SecondRate::Nothing => assert_eq!(second.len(), 0, "{what} has no second rate"),
                SecondRate::Limited(rate) => bounded(second.iter().copied(), rate, bucket.size, 0, &what),
                SecondRate::Idle => {}
            }
            if busy[number] {
                // What was on its way at the end, and what a large burst of others took from the device at the start.
                let due = (bucket.rate_per_second * 4).saturating_sub(most * (count + 2) + device_size);
                assert!(
                    bytes(&within) >= due,
                    "{what}: {} bytes of {due} that are committed",
                    bytes(&within)
                );
            }
        }
        let takes_all = |number: usize| {
            let second_rate = definitions[number].map_or(SecondRate::Idle, |one| one.second_rate);
            busy[number]
                && second_rate == SecondRate::Idle
                && definitions[number].is_none_or(|one| one.threshold > most)
        };
        if (0..busy.len()).any(takes_all) {
            let sum: u64 = grants.iter().map(|grant| grant.3).sum();
            let most_of = device_rate * 4 - most * (count + 2);
            assert!(
                sum >= most_of,
                "seed {seed}: {sum} of {most_of} bytes, though somebody takes all that is idle"
            );
        }
    }
    assert!(second_states > 10_000, "the second state was tried");
}

/// A request waits for its tokens to the nanosecond, and for the threshold; one that is larger than the bucket waits for a full one, and
/// is paid back.
#[test]
fn waits_are_exact() {
    let mut shaper = Shaper::new(None);
    shaper.define("a", definition(3, 10, 0, SecondRate::Nothing), Time::ZERO);
    let set = shaper.set_of(Some("a"));
    assert!(shaper.ask(0, set, 10, Time::ZERO).is_some());
    assert_eq!(shaper.ask(0, set, 1, Time::ZERO), None);
    assert_eq!(shaper.release(Time(333_333_333), true), None);
    assert_eq!(shaper.due_at(), Time(333_333_334), "a third of a second, rounded up");
    assert!(shaper.release(Time(333_333_334), true).is_some());
    // Larger than the bucket: it is full after 10/3 s, 20 are taken, and another one waits until -10 has become 1.
    assert_eq!(shaper.ask(0, set, 20, Time(SECOND)), None);
    let full = Time(3_666_666_667);
    assert_eq!((shaper.release(Time(SECOND), true), shaper.due_at()), (None, full));
    assert!(shaper.release(full, true).is_some());
    assert_eq!(shaper.ask(0, set, 1, full), None);
    assert_eq!((shaper.release(full, true), shaper.due_at()), (None, Time(full.0 + 3_666_666_667)));
}

/// Below its threshold a set is served when nobody else has anything to do, and what it gets then costs its bucket nothing.
#[test]
fn the_second_state_takes_what_is_idle() {
    let mut shaper = Shaper::new(None);
    shaper.define("a", definition(10, 10, 5, SecondRate::Idle), Time::ZERO);
    let set = shaper.set_of(Some("a"));
    let committed = shaper.ask(0, set, 6, Time::ZERO).expect("the bucket is full");
    assert_eq!(committed.state, SetState::Committed);
    assert_eq!(shaper.ask(0, set, 6, Time::ZERO), None);
    assert_eq!(shaper.release(Time::ZERO, false), None, "others have something to do");
    assert!(!shaper.is_due(Time::ZERO, false) && shaper.is_due(Time::ZERO, true));
    let (volume, ticket) = shaper.release(Time::ZERO, true).expect("nobody else has");
    assert_eq!((volume, ticket.state), (0, SetState::Second));
    let standing = shaper.standing("a", Time(SECOND / 10)).expect("it is known");
    assert_eq!((standing.level, standing.state), (5, SetState::Committed));
    assert_eq!(standing.figures.second_time, Span(SECOND / 10));
    assert_eq!(standing.figures.second, Granted { commands: 1, units: 6 });
}

/// Who waits for the device in the committed state is passed by no smaller request.
#[test]
fn nobody_passes_who_waits_for_the_device() {
    let mut shaper = Shaper::new(device(10, 10));
    for name in ["a", "b"] {
        shaper.define(name, definition(5, 10, 0, SecondRate::Nothing), Time::ZERO);
    }
    let [a, b] = ["a", "b"].map(|name| shaper.set_of(Some(name)));
    assert!(shaper.ask(0, a, 5, Time::ZERO).is_some());
    assert_eq!((shaper.ask(1, b, 8, Time::ZERO), shaper.release(Time::ZERO, true)), (None, None));
    assert_eq!(shaper.ask(0, a, 1, Time::ZERO), None, "there are tokens for it, and it comes later");
    assert_eq!((shaper.release(Time::ZERO, true), shaper.due_at()), (None, Time(SECOND * 3 / 10)));
    let (volume, _) = shaper.release(Time(SECOND * 3 / 10), true).expect("8 are there");
    assert_eq!(volume, 1);
}

/// What is in no set has what the sets leave.
#[test]
fn what_is_in_no_set_comes_last() {
    let mut shaper = Shaper::new(device(100, 10));
    assert!(shaper.shapes(OTHERS) && !Shaper::new(None).shapes(OTHERS));
    shaper.define("a", definition(60, 10, 0, SecondRate::Nothing), Time::ZERO);
    let busy = [true, true];
    let mut random = Random::of(1);
    shaper.names.insert("0".to_owned(), OTHERS);
    shaper.names.insert("1".to_owned(), shaper.set_of(Some("a")));
    let grants = drive(&mut shaper, &mut random, &busy, 5, Time(10 * SECOND));
    let [others, set] =
        [of(&grants, 0, SetState::Second), of(&grants, 1, SetState::Committed)].map(|one| bytes(&one));
    assert!((390..=415).contains(&others) && (595..=615).contains(&set), "{others} and {set}");
}

/// Another definition keeps what is in the bucket, so that changing it again and again gives nobody more.
#[test]
fn a_changed_set_keeps_its_level() {
    let mut shaper = Shaper::new(None);
    shaper.define("a", definition(10, 100, 0, SecondRate::Nothing), Time::ZERO);
    let set = shaper.set_of(Some("a"));
    shaper.ask(0, set, 90, Time::ZERO).expect("the bucket is full");
    shaper.define("a", definition(20, 50, 0, SecondRate::Nothing), Time::ZERO);
    assert_eq!(shaper.standing("a", Time::ZERO).expect("it is known").level, 10);
    shaper.define("a", definition(20, 5, 0, SecondRate::Nothing), Time::ZERO);
    assert_eq!(shaper.standing("a", Time(SECOND)).expect("it is known").level, 5);
    assert_eq!(shaper.ask(0, set, 5, Time(SECOND)).map(|ticket| shaper.give_back(set, ticket)), Some(()));
    assert_eq!(shaper.standing("a", Time(SECOND)).expect("it is known").level, 5);
    shaper.forget("a");
    assert_eq!(shaper.set_of(Some("a")), OTHERS);
}

/// Another definition keeps what is in the second bucket, too.
#[test]
fn a_changed_set_keeps_its_second_level() {
    let mut shaper = Shaper::new(None);
    shaper.define("a", definition(1, 100, 100, SecondRate::Limited(1)), Time::ZERO);
    let set = shaper.set_of(Some("a"));
    assert!(shaper.ask(0, set, 1, Time::ZERO).is_some());
    assert_eq!(shaper.ask(0, set, 100, Time::ZERO), None);
    assert!(shaper.release(Time::ZERO, true).is_some(), "its second bucket is full");
    shaper.define("a", definition(1, 99, 99, SecondRate::Limited(2)), Time::ZERO);
    shaper.ask(0, set, 1, Time::ZERO).expect("99 are left of its first one");
    assert_eq!(shaper.ask(0, set, 1, Time::ZERO), None);
    assert_eq!(shaper.release(Time::ZERO, true), None, "its second bucket is empty");
}

/// What is counted in another unit begins anew, in both buckets: a level of bytes says nothing of commands.
#[test]
fn a_set_that_counts_otherwise_begins_anew() {
    let mut shaper = Shaper::new(None);
    shaper.define("a", definition(1, 100, 100, SecondRate::Limited(1)), Time::ZERO);
    let set = shaper.set_of(Some("a"));
    assert!(shaper.ask(0, set, 1, Time::ZERO).is_some());
    assert_eq!(shaper.ask(0, set, 100, Time::ZERO), None);
    assert!(shaper.release(Time::ZERO, true).is_some(), "its second bucket was full");
    let commands = definition(1, 2, 2, SecondRate::Limited(1));
    shaper.define("a", SetDefinition { unit: TokenUnit::Command, ..commands }, Time::ZERO);
    shaper.ask(0, set, 4096, Time::ZERO).expect("its first bucket is full");
    for _ in 0..2 {
        assert_eq!(shaper.ask(0, set, 4096, Time::ZERO), None);
        assert!(shaper.release(Time::ZERO, true).is_some(), "its second bucket was full again");
    }
    assert_eq!(shaper.ask(0, set, 4096, Time::ZERO), None);
    assert_eq!(shaper.release(Time::ZERO, true), None);
}

/// A set without a threshold has one state: while it pays back what was larger than its bucket, it gets nothing that is idle.
#[test]
fn one_state_stays_one_state_below_zero() {
    let mut shaper = Shaper::new(None);
    shaper.define("a", definition(10, 10, 0, SecondRate::Idle), Time::ZERO);
    let set = shaper.set_of(Some("a"));
    assert!(shaper.ask(0, set, 20, Time::ZERO).is_some());
    assert_eq!((shaper.ask(0, set, 1, Time::ZERO), shaper.release(Time::ZERO, true)), (None, None));
    let due = Time(SECOND * 11 / 10);
    assert_eq!(shaper.due_at(), due);
    assert_eq!(shaper.release(due, true).map(|(_, ticket)| ticket.state), Some(SetState::Committed));
    let standing = shaper.standing("a", due).expect("it is known");
    assert_eq!((standing.state, standing.figures.second_time), (SetState::Committed, Span(0)));
}

/// The canary of the tests above: planted bugs must be noticed.
#[test]
fn planted_bugs_are_noticed() {
    diecut_testing::planted::all_are_noticed(&[
        ("shard: a grant takes no tokens of its QoS set", waits_are_exact),
        ("shard: the second state of a QoS set uses its tokens", the_second_state_takes_what_is_idle),
        ("shard: the second state does not wait for an idle moment", the_second_state_takes_what_is_idle),
    ]);
}

/// Goal: room that is passed over is paid for as if it had been written, for ten seconds at most, and by its set alone.
#[test]
fn unused_room_is_paid_for_by_its_set() {
    let mut shaper = Shaper::new(device(10_000, 10_000));
    shaper.define("a", definition(1000, 1000, 0, SecondRate::Nothing), Time::ZERO);
    shaper.define("b", definition(1000, 1000, 0, SecondRate::Nothing), Time::ZERO);
    let [a, b] = ["a", "b"].map(|name| shaper.set_of(Some(name)));
    // The first token of a request is what it takes as a command: this is none.
    for (bytes, waits_ms) in [(0, 0), (1001, 100), (4001, 3_100), (u64::MAX, 10_100)] {
        let now = Time(shaper.sets[a].bucket.full_at().0 + 100 * SECOND);
        shaper.charge_unused(a, bytes, now);
        shaper.charge_unused(OTHERS, u64::MAX, now);
        let at_once = shaper.ask(1, a, 100, now);
        assert_eq!(at_once.is_some(), waits_ms == 0, "{bytes}");
        assert!(shaper.ask(2, b, 1000, now).is_some(), "another set pays for nothing");
        if waits_ms > 0 {
            assert!(shaper.release(now, true).is_none());
            assert_eq!(shaper.due_at(), Time(now.0 + waits_ms * SECOND / 1000), "{bytes}");
            assert!(shaper.release(shaper.due_at(), true).is_some());
        }
    }
}
