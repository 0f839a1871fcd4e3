use super::*;
use diecut_namespace::contract::{CommandToken, LbaRange, NamespaceId, NamespaceOperation, PlacementTarget};
use diecut_units::{Buffer, Span, Time};
use diecut_volume::contract::VolumeToken;
use std::collections::BTreeMap;

fn write(namespace: u32, source: u32, token: u64, lba_count: u32) -> NamespaceCommand {
    NamespaceCommand {
        token: CommandToken(token),
        namespace: NamespaceId(namespace),
        source: SourceId(source),
        arrived: Time::ZERO,
        operation: NamespaceOperation::Write {
            range: LbaRange { first_lba: 0, lba_count },
            data: Buffer::copy_from(&[0; 8]),
            force_unit_access: false,
            placement: PlacementTarget::default(),
        },
    }
}

const ROUND: u32 = 64;

/// Namespaces 0 to 9, each on a vSSD of its own, which is a tenant's of its own.
fn served(config: AdmissionConfig) -> Admission {
    let mut admission = Admission::new(config);
    for number in 0..10 {
        admission.open(NamespaceId(number), &TenantSpec::new(&number.to_string()), VssdId(number), false);
    }
    admission
}

/// Commands of a namespace that wait.
fn waiting(admission: &Admission, namespace: u32) -> u32 {
    admission.volumes[admission.volume_of(NamespaceId(namespace))].waiting
}

fn config(window_commands: u32) -> AdmissionConfig {
    AdmissionConfig { source_quantum: 8, window_commands, round_cost: ROUND, ..AdmissionConfig::default() }
}

fn cost(command: &NamespaceCommand) -> u32 {
    match &command.operation {
        NamespaceOperation::Write { range, .. } => COMMAND_COST + 2 * range.lba_count,
        _ => panic!("tests write"),
    }
}

/// Admits commands, each as a whole, worth about a round.
fn admit(admission: &mut Admission, admitted: &mut Vec<NamespaceCommand>) {
    admission.serve(&mut { ROUND }, Time::ZERO, |work| {
        let Work::Command(command) = work else { panic!("nothing was left over") };
        let cost = cost(&command);
        admitted.push(command);
        Begun { cost, rest: None, holds: false, goes_on: true }
    });
}

/// Admits one command or piece, if there is one, that costs so much and leaves this of its command.
fn serve_one(admission: &mut Admission, cost: u32, rest: Option<VolumeToken>, now: Time) -> Option<Work> {
    let mut served = None;
    admission.serve(&mut { u32::MAX }, now, |work| {
        assert!(served.replace(work).is_none(), "there was time for one only");
        Begun { cost, rest, holds: false, goes_on: false }
    });
    served
}

/// Cost admitted for each command over `rounds`, every command answered at once.
fn shares(admission: &mut Admission, rounds: usize) -> Vec<(u64, u32)> {
    let mut shares = Vec::new();
    let mut admitted = Vec::new();
    for _ in 0..rounds {
        admit(admission, &mut admitted);
        for command in admitted.drain(..) {
            admission.finished(command.namespace, 1);
            shares.push((command.token.0, cost(&command)));
        }
    }
    shares
}

/// Large commands and many connections buy no more than small ones and a single one.
#[test]
fn tenants_get_equal_cost() {
    let mut admission = served(config(1000));
    for number in 0..4000 {
        // Tenant 0: many sources, 64-block writes. Tenant 1: one source, single blocks.
        admission.push(write(0, number as u32 % 40, number * 2, 64));
        admission.push(write(1, 99, number * 2 + 1, 1));
    }
    let mut totals = [0u64; 2];
    for (token, cost) in shares(&mut admission, 150) {
        totals[token as usize % 2] += u64::from(cost);
    }
    let ratio = totals[0] as f64 / totals[1] as f64;
    assert!((0.9..1.12).contains(&ratio), "{totals:?}");
}

/// Within a tenant, one flooding connection does not push the others back.
#[test]
fn sources_of_a_tenant_take_turns() {
    let mut admission = served(config(1000));
    for number in 0..1000 {
        admission.push(write(0, 1, number, 1));
    }
    admission.push(write(0, 2, 5000, 1));
    let order = shares(&mut admission, 2);
    let place = order.iter().position(|(token, _)| *token == 5000).expect("it is admitted");
    assert!(place < 8, "behind at most one quantum of the other, not {place}");
}

/// A source's commands keep their order, and nothing is admitted beyond the window.
#[test]
fn the_window_holds_and_order_stays() {
    let mut admission = served(config(4));
    for number in 0..10 {
        admission.push(write(3, 0, number, 1));
    }
    let mut admitted = Vec::new();
    admit(&mut admission, &mut admitted);
    assert_eq!(admitted.len(), 4);
    assert!(!admission.has_work(), "the window is full");
    admission.finished(NamespaceId(3), 1);
    assert!(admission.has_work());
    admit(&mut admission, &mut admitted);
    let tokens: Vec<u64> = admitted.iter().map(|command| command.token.0).collect();
    assert_eq!(tokens, [0, 1, 2, 3, 4]);
    assert_eq!(waiting(&admission, 3), 5);
}

/// One command larger than every quantum goes through, and is paid for afterwards.
#[test]
fn a_command_beyond_the_quantum_is_admitted() {
    let mut admission = served(config(100));
    admission.push(write(0, 0, 0, 256));
    for number in 1..40 {
        admission.push(write(0, 0, number * 2, 256));
        admission.push(write(1, 1, number * 2 + 1, 8));
    }
    let order = shares(&mut admission, 40);
    let large = order.iter().take(40).filter(|(token, _)| token % 2 == 0).count();
    assert!((1..=4).contains(&large), "{large} of the first 40");
}

/// Serves `count` pieces of 33 for commands of tenant 0, each of which has `pieces`; commands of others are small.
/// Gives the owner of each piece.
fn serve(
    admission: &mut Admission,
    left: &mut BTreeMap<u64, u32>,
    count: usize,
    pieces: u32,
) -> Vec<(u16, u64)> {
    let mut order = Vec::new();
    for _ in 0..count {
        let mut answered = None;
        admission.serve(&mut { u32::MAX }, Time::ZERO, |work| {
            let (token, cost) = match work {
                Work::Command(command) if command.source == SourceId(9) => {
                    answered = Some(NamespaceId(1));
                    order.push((1, command.token.0));
                    return Begun { cost: 3, rest: None, holds: false, goes_on: false };
                }
                Work::Command(command) => {
                    left.insert(command.token.0, pieces);
                    (command.token.0, 33)
                }
                Work::Rest(VolumeToken(token)) => (token, 32),
                Work::Entry(_) => unreachable!("there is no application"),
            };
            order.push((0, token));
            let left = left.get_mut(&token).unwrap();
            *left -= 1;
            answered = (*left == 0).then_some(NamespaceId(0));
            Begun { cost, rest: (*left > 0).then_some(VolumeToken(token)), holds: false, goes_on: false }
        });
        if let Some(namespace) = answered {
            admission.finished(namespace, 1);
        }
    }
    order
}

/// A small command of another tenant waits for one piece, not for the commands before it.
#[test]
fn a_small_command_is_behind_one_piece_of_a_neighbours_large_ones() {
    for arrival in [0, 1, 2, 7, 16, 23] {
        let mut admission = served(AdmissionConfig::default());
        for token in 0..8 {
            admission.push(write(0, 1, token, 256));
        }
        let mut left = BTreeMap::new();
        serve(&mut admission, &mut left, arrival, 16);
        admission.push(write(1, 9, 100, 1));
        let order = serve(&mut admission, &mut left, 3, 16);
        let place = order.iter().position(|(tenant, _)| *tenant == 1).expect("it is served soon");
        assert!(place <= 1, "behind {place} pieces, arrived after {arrival}");
    }
}

/// However many neighbours flood the core, a tenant that asks for less than its share waits for the command that is at work,
/// not for a turn of each of them, and comes no later for having been served before.
#[test]
fn who_asks_for_little_waits_for_one_command() {
    let mut admission = served(config(1000));
    let mut token = 0;
    for round in 0..200 {
        for tenant in 0..5 {
            while waiting(&admission, tenant) < 32 {
                token += 1;
                admission.push(write(tenant, tenant, token, 1));
            }
        }
        let serve = |admission: &mut Admission| {
            let Some(Work::Command(command)) = serve_one(admission, 3, None, Time::ZERO) else {
                panic!("there are commands")
            };
            assert_eq!(cost(&command), 3);
            admission.finished(command.namespace, 1);
            command.source.0
        };
        // Fewer than a sixth of all.
        for _ in 0..7 + round % 5 {
            serve(&mut admission);
        }
        admission.push(write(9, 9, 1 << 40, 1));
        assert_eq!(serve(&mut admission), 9, "round {round}");
    }
}

/// A large command goes on to its end before the next one of its source starts, also when the window is full, and
/// sources of the same tenant go between.
#[test]
fn what_was_begun_goes_on() {
    let mut admission = served(config(2));
    admission.push(write(0, 1, 10, 256));
    admission.push(write(0, 1, 11, 256));
    admission.push(write(0, 2, 20, 256));
    admission.push(write(0, 3, 30, 256));
    let order: Vec<u64> =
        serve(&mut admission, &mut BTreeMap::new(), 100, 4).into_iter().map(|(_, token)| token).collect();
    assert_eq!(order.len(), 16, "all pieces of all commands");
    let first = |token| order.iter().position(|other| *other == token).unwrap();
    let last = |token| order.iter().rposition(|other| *other == token).unwrap();
    assert!(last(10) < first(11), "{order:?}");
    assert!(first(20) < last(10), "another source goes between: {order:?}");
    assert!(first(30) > last(10).min(last(20)), "the window holds two commands: {order:?}");
    assert!(!admission.has_work());
}

/// Goal: what nobody wants any more takes no turns. Method: commands of two sources wait, one has begun; those of the first are
/// taken back, one by its token and then all. What was begun, and the other source, go on.
#[test]
fn what_is_taken_back_is_not_admitted() {
    let mut admission = served(config(100));
    for token in 0..5 {
        admission.push(write(2, 1, token, 8));
    }
    let begun = serve_one(&mut admission, 3, Some(VolumeToken(9)), Time::ZERO);
    assert!(matches!(begun, Some(Work::Command(_))));
    admission.push(write(2, 3, 50, 1));
    let mut taken = Vec::new();
    let tokens = |taken: &[NamespaceCommand]| taken.iter().map(|one| one.token.0).collect::<Vec<_>>();
    admission.take_back(SourceId(1), Some(CommandToken(2)), &mut taken);
    assert_eq!(tokens(&taken), [2]);
    admission.take_back(SourceId(1), None, &mut taken);
    assert_eq!(tokens(&taken), [2, 1, 3, 4]);
    let mut order = Vec::new();
    while let Some(work) = serve_one(&mut admission, 3, None, Time::ZERO) {
        order.push(match work {
            Work::Command(command) => command.token.0,
            Work::Rest(token) => token.0 + 100,
            Work::Entry(_) => unreachable!("there is no application"),
        });
    }
    order.sort_unstable();
    assert_eq!(order, [50, 109]);
    // A tenant with nothing left has no turn.
    admission.push(write(4, 1, 70, 1));
    admission.take_back(SourceId(1), None, &mut taken);
    assert!(!admission.has_work());
    admission.push(write(4, 1, 71, 1));
    let last = serve_one(&mut admission, 3, None, Time::ZERO);
    assert!(matches!(last, Some(Work::Command(command)) if command.token == CommandToken(71)));
}

/// A round is long for a tenant that is alone, and short from the moment that another one has something to do until a
/// while after.
#[test]
fn rounds_are_short_while_tenants_contend_only() {
    let mut admission = served(AdmissionConfig::default());
    let (config, mut now) = (AdmissionConfig::default(), Time(1 << 40));
    let serve = |admission: &mut Admission, now: Time| {
        assert!(serve_one(admission, 3, None, now).is_some());
    };
    for token in 0..100 {
        admission.push(write(0, 1, token, 1));
    }
    serve(&mut admission, now);
    assert_eq!(admission.round_cost(now), config.uncontended_round_cost);
    admission.push(write(7, 2, 100, 1));
    assert_eq!(admission.round_cost(now), config.round_cost, "another one waits");
    serve(&mut admission, now);
    for _ in 0..10 {
        serve(&mut admission, now);
        assert_eq!(admission.round_cost(now), config.round_cost, "it may come again");
        now += Span(config.contention_window.0 / 11);
    }
    now += config.contention_window;
    serve(&mut admission, now);
    assert_eq!(admission.round_cost(now), config.uncontended_round_cost, "it has not come for a while");
}

/// What each namespace of `flooded` gets of the core while all have commands of these many blocks waiting, in units of cost.
fn flooded(admission: &mut Admission, flooded: &[(u32, u32)]) -> BTreeMap<u32, u64> {
    for number in 0..4000 {
        for &(namespace, lba_count) in flooded {
            admission.push(write(namespace, namespace + number % 3, u64::from(namespace), lba_count));
        }
    }
    let mut got = BTreeMap::new();
    for (token, cost) in shares(admission, 250) {
        *got.entry(token as u32).or_default() += u64::from(cost);
    }
    got
}

/// Goal: vSSDs and volumes buy nothing. Method: one tenant has eight vSSDs with two volumes each, which write large blocks, another
/// one has one volume; all ask for more than there is. Both tenants get the same, and so do the volumes of the first, whatever
/// vSSD they are on; with twice the weight the second one gets twice as much.
#[test]
fn a_tenant_with_eight_vssds_gets_one_share() {
    for (weight, due) in [(100, 1.0), (200, 2.0)] {
        let mut admission = Admission::new(config(1000));
        for number in 0..16 {
            admission.open(NamespaceId(number), &TenantSpec::new("many"), VssdId(number / 2), false);
        }
        admission.open(NamespaceId(16), &TenantSpec::new("many"), VssdId(0), false);
        admission.open(NamespaceId(20), &TenantSpec::new("one"), VssdId(20), false);
        admission.set_weight(&TenantSpec { weight, ..TenantSpec::new("one") });
        let all: Vec<(u32, u32)> = (0..17).map(|number| (number, 1 + number % 4)).chain([(20, 1)]).collect();
        let got = flooded(&mut admission, &all);
        let many: u64 = got.range(..20).map(|(_, cost)| *cost).sum();
        let ratio = got[&20] as f64 / many as f64;
        assert!((0.97 * due..1.03 * due).contains(&ratio), "{ratio} instead of {due}: {got:?}");
        let (least, most) =
            (got.range(..20).map(|(_, cost)| cost).min(), got.range(..20).map(|(_, cost)| cost).max());
        let evenness = *least.unwrap() as f64 / *most.unwrap() as f64;
        assert!(evenness > 0.9, "{got:?}");
    }
}

/// Goal: a vSSD whose dies have no room holds back its own volumes and nobody else, and costs its tenant nothing. Method: of two
/// vSSDs of a tenant one is held for a while.
#[test]
fn a_held_vssd_leaves_its_turns_to_the_others() {
    let mut admission = Admission::new(config(1000));
    admission.open(NamespaceId(0), &TenantSpec::new("a"), VssdId(1), false);
    admission.open(NamespaceId(1), &TenantSpec::new("a"), VssdId(2), true);
    admission.open(NamespaceId(2), &TenantSpec::new("b"), VssdId(3), false);
    let got = flooded(&mut admission, &[(0, 1), (1, 1), (2, 1)]);
    assert!(!got.contains_key(&1), "{got:?}");
    assert!(got[&0].abs_diff(got[&2]) < 100, "{got:?}");
    assert!(!admission.goes_on(SourceId(1)) || waiting(&admission, 0) > 0);
    admission.hold(VssdId(1), true);
    admission.hold(VssdId(3), true);
    assert!(!admission.has_work());
    admission.hold(VssdId(2), false);
    let first = shares(&mut admission, 1);
    assert!(!first.is_empty() && first.iter().all(|(token, _)| *token == 1), "{first:?}");
}

/// Goal: what waits when its namespace is closed stays with its tenant, and places are used again. Method: a namespace is closed
/// with commands waiting and under way, and another one of the same number of the next tenant comes after it.
#[test]
fn a_closed_namespace_goes_with_its_last_answer() {
    let mut admission = Admission::new(config(1));
    admission.open(NamespaceId(5), &TenantSpec::new("a"), VssdId(1), false);
    for token in 0..3 {
        admission.push(write(5, 7, token, 1));
    }
    assert!(matches!(serve_one(&mut admission, 3, None, Time::ZERO), Some(Work::Command(_))));
    admission.close(NamespaceId(5));
    assert_eq!((waiting(&admission, 5), admission.names.len()), (2, 1), "it still waits on its own account");
    admission.finished(NamespaceId(5), 1);
    let mut taken = Vec::new();
    admission.take_back(SourceId(7), Some(CommandToken(2)), &mut taken);
    assert_eq!(shares(&mut admission, 1).len(), 1);
    assert!(admission.names.is_empty() && admission.numbers.is_empty(), "nothing is left of it");
    // So it goes with the last command that is taken back.
    admission.open(NamespaceId(5), &TenantSpec::new("a"), VssdId(1), false);
    admission.push(write(5, 7, 8, 1));
    admission.close(NamespaceId(5));
    admission.take_back(SourceId(7), None, &mut taken);
    assert!(admission.names.is_empty() && admission.numbers.is_empty(), "nothing is left of it");
    // What names it now has no tenant.
    admission.push(write(5, 7, 9, 1));
    assert_eq!(shares(&mut admission, 1).len(), 1);
    admission.open(NamespaceId(6), &TenantSpec::new("b"), VssdId(2), false);
    assert_eq!(admission.volumes[admission.volume_of(NamespaceId(6))].under_way, 0);
}

/// Goal: an application at erase blocks takes turns of its tenant, and what is held or withdrawn of it has none. Method: a tenant with
/// a volume and an application beside a tenant with a volume; then the application's dies are full, then it is gone.
#[test]
fn an_application_and_a_host_of_a_tenant_share_what_is_due_to_it() {
    let mut admission = Admission::new(config(1000));
    let blocks = VssdId(7);
    admission.open(NamespaceId(0), &TenantSpec::new("both"), VssdId(0), false);
    admission.open_blocks(&TenantSpec::new("both"), blocks, false);
    admission.open(NamespaceId(1), &TenantSpec::new("rival"), VssdId(1), false);
    for number in 0..4000 {
        admission.push(write(0, 0, number * 2, 1));
        admission.push(write(1, 1, number * 2 + 1, 1));
    }
    let serve = |admission: &mut Admission, count: usize| {
        let mut costs = [0u32; 3];
        for _ in 0..count {
            assert!(admission.has_work());
            let mut answered = None;
            admission.serve(&mut { u32::MAX }, Time::ZERO, |work| {
                let (whose, cost) = match work {
                    Work::Command(command) => {
                        answered = Some(command.namespace);
                        (command.namespace.0 as usize, 3)
                    }
                    Work::Entry(vssd) => {
                        assert_eq!(vssd, blocks);
                        (2, 17)
                    }
                    Work::Rest(_) => panic!("nothing was left over"),
                };
                costs[whose] += cost;
                Begun { cost, rest: None, holds: false, goes_on: false }
            });
            answered.into_iter().for_each(|namespace| admission.finished(namespace, 1));
        }
        costs.map(f64::from)
    };
    admission.offer(blocks, 3000);
    let [host, rival, application] = serve(&mut admission, 1000);
    assert!((0.95..1.05).contains(&((host + application) / rival)), "{host} {application} {rival}");
    assert!((0.95..1.05).contains(&(host / application)), "{host} {application}");
    admission.hold(blocks, true);
    let [host, rival, application] = serve(&mut admission, 500);
    assert!(application == 0.0 && (0.95..1.05).contains(&(host / rival)), "{host} {application} {rival}");
    admission.hold(blocks, false);
    assert!(serve(&mut admission, 500)[2] > 0.0);
    admission.offer(blocks, 0);
    assert_eq!(serve(&mut admission, 500)[2], 0.0);
    admission.offer(blocks, 10);
    admission.close_blocks(blocks);
    assert_eq!(serve(&mut admission, 500)[2], 0.0);
    admission.open_blocks(&TenantSpec::new("both"), blocks, false);
    admission.offer(blocks, 10);
    assert!(serve(&mut admission, 500)[2] > 0.0);
}

/// Goal: who has no rival is served in one go, and everybody gets what he would get if each command had been told by itself. Method: the
/// same commands come to two schedulers in many random rounds, of one volume, one tenant or several, some in pieces; one serves a
/// round in one go, the other one a piece at a time.
#[test]
fn what_is_served_in_one_go_is_served_in_the_same_order() {
    let served = |in_one_go: bool| {
        let mut admission = Admission::new(config(12));
        for number in 0..8 {
            let tenant = TenantSpec::new(&(number / 4).to_string());
            admission.open(NamespaceId(number), &tenant, VssdId(number / 2), false);
        }
        let mut state = 7u64;
        let mut random = |below: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % below
        };
        let (mut order, mut left, mut under_way) = (Vec::new(), BTreeMap::new(), Vec::new());
        for round in 0..3000 {
            let among = [1, 4, 8][round as usize / 100 % 3];
            for number in 0..random(8) {
                let (namespace, source) = (random(among), random(3) as u32);
                let token = round << 16 | number << 8 | namespace;
                admission.push(write(namespace as u32, source, token, 1 + random(5) as u32));
            }
            let mut budget = 40;
            while budget > 0 && admission.has_work() {
                admission.serve(&mut budget, Time::ZERO, |work| {
                    let (token, cost) = match work {
                        Work::Command(command) => (command.token.0, cost(&command)),
                        Work::Rest(VolumeToken(token)) => (token, 9),
                        Work::Entry(_) => unreachable!("there is no application"),
                    };
                    order.push(token);
                    let pieces = left.entry(token).or_insert(1 + token % 7 / 4);
                    *pieces -= 1;
                    let rest = (*pieces > 0).then_some(VolumeToken(token));
                    under_way.extend(rest.is_none().then_some(NamespaceId(token as u32 & 0xff)));
                    Begun { cost, rest, holds: false, goes_on: in_one_go }
                });
            }
            for _ in 0..random(1 + under_way.len() as u64) {
                admission.finished(under_way.remove(0), 1);
            }
        }
        order
    };
    let in_one_go = served(true);
    assert!(in_one_go.len() > 3000);
    assert_eq!(in_one_go, served(false));
}
