//! Goal: what several shards promise together: one device, one account of who owns what, tenants that change their home while they are
//! served. Method: shards over one device in virtual time (`herd`), with hosts that know what they were promised, messages in an order that
//! a seed chooses, deaths of the process, and other numbers of shards after them.

use crate::herd::{Herd, Host, device, device_with, subsystem, volume, vssd};
use diecut_blockspace::session::Command as BlockCommand;
use diecut_blockspace::wire::{Opcode, Status, Submission};
use diecut_emulator::Backing;
use diecut_shard::DeviceIndex;
use diecut_shard::control::*;
use diecut_shard::drive::{BlockAction, BlockEvent, BlockSession, Drive, Event};
use diecut_spec::{Isolation, Serves, Sharing, Size};
use diecut_units::{BufferMut, IU_SIZE_BYTES, Time};
use diecut_vssd::LogicalBlock;
use std::collections::BTreeMap;

const TENANTS: [(&str, Isolation, u32); 4] = [
    ("a", Isolation::Channel, 0),
    ("b", Isolation::Die, 0),
    ("c", Isolation::Channel, 0),
    ("d", Isolation::Software, 0),
];

fn run(herd: &mut Herd, hosts: &mut [Host], commands: u64) {
    let goal: Vec<u64> = hosts.iter().map(|host| host.done + commands).collect();
    for _ in 0..2_000_000 {
        let left = hosts.iter().zip(&goal).any(|(host, goal)| host.done < *goal);
        if !left && hosts.iter().all(Host::is_idle) {
            return;
        }
        hosts.iter_mut().for_each(|host| host.work(herd, left));
        herd.step();
    }
    panic!("hosts are never served");
}

/// A vSSD is repaired where it lives, whichever shard that is.
#[test]
fn repairs_are_carried_out_at_home() {
    let mut herd = Herd::new(device(3), 3, 3, Time::ZERO);
    for (name, isolation, level) in TENANTS {
        herd.add_tenant(name, isolation, level);
    }
    for vssd in herd.status().vssds.into_iter().map(|vssd| vssd.spec.name) {
        let request = ControlRequest::RepairVssd { vssd: vssd.clone(), accepts_loss: false };
        let ControlResponse::Repaired(report) = herd.ask(request) else { panic!("a repair is answered") };
        assert_eq!((report.vssd, report.outcome, report.reason), (vssd, RepairOutcome::Good, None));
    }
}

/// Goal: connections find home from whichever shard they came to, hosts keep what they were promised through deaths and
/// power cuts, and the same device opens with any number of shards. Method: four hosts, connections dealt out by chance,
/// hosts that hang up in the midst of their work; five lives with another number of shards each.
fn lives(seed: u64) -> (u64, u32) {
    let mut hosts: Vec<Host> =
        TENANTS.iter().zip(1..).map(|((name, ..), number)| Host::new(name, number)).collect();
    let mut herd = Herd::new(device(seed), 2, seed, Time::ZERO);
    for (name, isolation, level) in TENANTS {
        herd.add_tenant(name, isolation, level);
    }
    let (mut trace, mut handed_over) = (0, 0);
    for (life, shards) in [2, 1, 3, 4, 2].into_iter().enumerate() {
        for _ in 0..3 {
            run(&mut herd, &mut hosts, 40);
            let one = herd.random.below(4) as usize;
            hosts[one].work(&mut herd, true);
            hosts[one].hang_up(&mut herd);
        }
        for _ in 0..herd.random.below(300) {
            hosts.iter_mut().for_each(|host| host.work(&mut herd, true));
            herd.step();
        }
        let status = herd.status();
        assert_eq!(status.volumes.len(), 4);
        assert!(status.volumes.iter().all(|volume| volume.writes > 0), "seed {seed}: {:?}", status.volumes);
        assert_eq!(status.subsystems.iter().map(|one| one.controllers.len()).max(), Some(1), "seed {seed}");
        hosts.iter_mut().for_each(Host::server_died);
        (trace, handed_over) = (trace ^ herd.trace, handed_over + herd.handed_over);
        let (device, now) = herd.end(life % 2 == 1);
        herd = Herd::new(device, shards, seed + life as u64 + 1, now);
    }
    run(&mut herd, &mut hosts, 60);
    (trace ^ herd.trace, handed_over)
}

#[test]
fn what_was_promised_survives_lives_with_other_numbers_of_shards() {
    for seed in 0..12 {
        let (_, handed_over) = lives(seed);
        assert!(handed_over > 20, "seed {seed}: {handed_over} connections changed their shard");
    }
}

#[test]
fn a_seed_runs_twice_the_same() {
    assert_eq!(lives(77), lives(77));
}

/// Tenants are dealt out to the least loaded shard; what shares channels, or a tenant, shares a shard; status tells all.
#[test]
fn tenants_have_homes() {
    let mut herd = Herd::new(device(1), 2, 1, Time::ZERO);
    for (name, isolation, level) in TENANTS {
        herd.add_tenant(name, isolation, level);
    }
    let homes: Vec<usize> = ["a", "b", "c", "d"].map(|name| herd.home(&format!("vssd-{name}"))).into();
    // A whole channel; then a die elsewhere; then a channel where less lies; the last one where least lies.
    assert_eq!(homes, [0, 1, 1, 0]);
    let more = vssd("more", "b", Isolation::Software, 0);
    herd.done(ControlRequest::CreateVssd(more));
    assert_eq!(herd.home("vssd-more"), 1, "a tenant lives on one shard");
    let status = herd.status();
    assert_eq!(status.vssds.len(), 5);
    assert_eq!(status.devices.len(), 1);
    assert_eq!(status.devices[0].free_channels, 0);

    // Deleted, its channel can be used on any shard.
    for name in ["b", "c"] {
        herd.done(ControlRequest::DeleteSubsystem(format!("nqn.2026-11.org.diecut:{name}")));
        herd.done(ControlRequest::DeleteVolume(format!("volume-{name}")));
        herd.done(ControlRequest::DeleteVssd(format!("vssd-{name}")));
    }
    herd.done(ControlRequest::DeleteVssd("vssd-more".to_owned()));
    assert_eq!(herd.status().devices[0].free_channels, 2);
    herd.done(ControlRequest::CreateVssd(vssd("large", "a", Isolation::Channel, 2)));
    assert_eq!(herd.home("vssd-large"), 0);
    herd.done(ControlRequest::Shutdown);
    let (device, now) = herd.end(false);
    let mut herd = Herd::new(device, 2, 2, now);
    assert_eq!(herd.status().vssds.len(), 3);
}

/// A subsystem that shows nothing yet lives with the first shard; when its tenant gets a home, it moves there.
#[test]
fn a_subsystem_follows_its_tenant_home() {
    let mut herd = Herd::new(device(4), 2, 4, Time::ZERO);
    herd.add_tenant("a", Isolation::Channel, 0);
    herd.done(ControlRequest::CreateTenant(TenantSpec::new("z")));
    let empty = SubsystemSpec { namespaces: Vec::new(), ..subsystem("z") };
    herd.done(ControlRequest::CreateSubsystem(empty));
    herd.done(ControlRequest::CreateVssd(vssd("z", "z", Isolation::Channel, 0)));
    assert_eq!(herd.home("vssd-z"), 1);
    herd.done(ControlRequest::CreateVolume(volume("z")));
    herd.done(ControlRequest::AttachNamespace {
        subsystem: "nqn.2026-11.org.diecut:z".to_owned(),
        nsid: 1,
        volume: "volume-z".to_owned(),
    });
    let mut hosts = [Host::new("z", 1), Host::new("a", 2)];
    run(&mut herd, &mut hosts, 50);
    let status = herd.status();
    assert!(status.subsystems.iter().all(|subsystem| subsystem.controllers.len() == 1));
}

/// What fits no shard's channels is refused with the reason, and nothing is changed; with one shard it fits.
#[test]
fn what_lies_between_shards_is_refused_and_fits_one() {
    let mut herd = Herd::new(device(3), 2, 3, Time::ZERO);
    herd.add_tenant("a", Isolation::Channel, 2);
    herd.add_tenant("b", Isolation::Die, 0);
    let large = ControlRequest::CreateVssd(vssd("more", "a", Isolation::Die, 1));
    // Two dies: one whole channel is free, and one die beside the one of "b".
    let ControlRequest::CreateVssd(spec) = &large else { unreachable!() };
    let three = VssdSpec { capacity: Size(60 << 20), ..spec.clone() };
    let ControlResponse::Refused(error) = herd.ask(ControlRequest::CreateVssd(three.clone())) else {
        panic!("three dies cannot be had on one shard");
    };
    assert!(error.message.contains("fewer shards"), "{}", error.message);
    assert_eq!(herd.status().vssds.len(), 2);
    let (device, now) = herd.end(false);
    let mut herd = Herd::new(device, 1, 5, now);
    herd.done(ControlRequest::CreateVssd(three));
    let (device, now) = herd.end(false);
    let mut herd = Herd::new(device, 2, 6, now);
    assert_eq!(herd.home("vssd-more"), herd.home("vssd-b"), "they share a channel now");
}

/// Goal: a vSSD that the shard which is to make it refuses takes nothing away from others. Method: of the room that it would have had
/// nothing is missing afterwards, in figures and for one that asks for all of it.
#[test]
fn a_vssd_that_another_shard_refuses_takes_nothing() {
    let mut herd = Herd::new(device(6), 2, 6, Time::ZERO);
    herd.add_tenant("a", Isolation::Channel, 0);
    herd.done(ControlRequest::CreateTenant(TenantSpec::new("z")));
    let before = herd.status().devices.remove(0);
    for isolation in [Isolation::Channel, Isolation::Die, Isolation::Software] {
        let hollow = VssdSpec { over_provisioning_permille: u32::MAX, ..vssd("hollow", "z", isolation, 0) };
        let ControlResponse::Refused(error) = herd.ask(ControlRequest::CreateVssd(hollow)) else {
            panic!("{isolation:?}: it can hold nothing");
        };
        assert_eq!(error.kind, ControlErrorKind::Invalid, "{}", error.message);
        let after = herd.status().devices.remove(0);
        let free = |device: &DeviceStatus| (device.free_channels, device.free_dies);
        assert_eq!(free(&after), free(&before), "{isolation:?}");
    }
    herd.done(ControlRequest::CreateVssd(vssd("all", "z", Isolation::Channel, 3)));
    assert_eq!(herd.home("vssd-all"), 1, "the shard that refused before");
    assert_eq!(herd.status().devices[0].free_channels, 0);
}

/// Goal: a tenant's rate limit holds on each shard that it comes to, though it is lifted for the way, and so does its weight, which changes on
/// the way; the shard knows whose its connections are. Method: a vSSD moves to another shard and back while its host works; wherever it lives, it has the share that its
/// definition says, and nothing rests any more that rested for the move.
#[test]
fn a_rate_limit_moves_with_its_tenant() {
    let mut herd = Herd::new(device(8), 2, 8, Time::ZERO);
    herd.done(ControlRequest::CreateTenant(TenantSpec::new("a")));
    herd.done(ControlRequest::CreateVssd(VssdSpec {
        rate_limit: Size(2 << 20),
        sharing: Sharing::Strict,
        ..vssd("a", "a", Isolation::Channel, 0)
    }));
    herd.done(ControlRequest::CreateVolume(volume("a")));
    herd.done(ControlRequest::CreateSubsystem(subsystem("a")));
    let mut hosts = [Host::new("a", 1)];
    for shard in [1, 0, 1] {
        herd.done(ControlRequest::MoveTenant { tenant: "a".to_owned(), shard });
        let weight = herd.random.below(1000) as u32 + 1;
        herd.done(ControlRequest::SetTenantWeight { tenant: "a".to_owned(), weight });
        run(&mut herd, &mut hosts, 100);
        let home = &herd.shards[usize::from(shard)];
        let [id] = home.pool().vssd_ids().collect::<Vec<_>>()[..] else {
            panic!("it lives on shard {shard}")
        };
        let share = home.pool().share_of(id).expect("just listed");
        assert_eq!(share.rate_bytes_per_second, 2 << 20, "on shard {shard}");
        // Whoever drives the shard shares its own turns by tenant and weight.
        let connection = hosts[0].connection().expect("the host is connected");
        assert_eq!(home.tenant_of(connection), Some("a"), "on shard {shard}");
        assert_eq!(home.weight_of("a"), weight, "on shard {shard}");
        herd.shards.iter().for_each(|shard| shard.check_shares());
    }
}

/// Goal: a tenant changes its shard under load, and its hosts notice nothing but the time: no connection breaks, and every
/// promise holds, also when the server dies on the way. Method: four hosts that never hang up, and tenants that are moved
/// at moments chosen by chance.
fn moves(seed: u64, shards: u16) -> u32 {
    let mut hosts: Vec<Host> =
        TENANTS.iter().zip(1..).map(|((name, ..), number)| Host::new(name, number)).collect();
    let mut herd = Herd::new(device(seed), shards, seed, Time::ZERO);
    for (name, isolation, level) in TENANTS {
        herd.add_tenant(name, isolation, level);
    }
    let mut moved = 0;
    for life in 0..4 {
        run(&mut herd, &mut hosts, 20);
        let connected = herd.streams_opened();
        for _ in 0..8 {
            let tenant = TENANTS[herd.random.below(4) as usize].0;
            let shard = herd.random.below(u64::from(shards)) as u16;
            let before = herd.home(&format!("vssd-{tenant}"));
            let token = herd.begin(ControlRequest::MoveTenant { tenant: tenant.to_owned(), shard });
            let answer = (0..1_000_000).find_map(|_| {
                hosts.iter_mut().for_each(|host| host.work(&mut herd, true));
                herd.step();
                herd.answer(token)
            });
            assert_eq!(answer, Some(ControlResponse::Done), "seed {seed}");
            assert_eq!(herd.home(&format!("vssd-{tenant}")), usize::from(shard), "seed {seed}");
            herd.shards.iter().for_each(|shard| shard.check_shares());
            moved += u32::from(before != usize::from(shard));
            for _ in 0..herd.random.below(200) {
                hosts.iter_mut().for_each(|host| host.work(&mut herd, true));
                herd.step();
            }
        }
        run(&mut herd, &mut hosts, 20);
        assert_eq!(herd.streams_opened(), connected, "seed {seed}: hosts keep their connections");
        let status = herd.status();
        assert_eq!((status.volumes.len(), status.vssds.len()), (4, 4));
        assert!(status.volumes.iter().all(|volume| volume.writes > 0), "figures move with their volume");
        assert!(status.subsystems.iter().all(|subsystem| subsystem.controllers.len() == 1), "seed {seed}");
        // Death somewhere on the way of one more.
        let tenant = TENANTS[herd.random.below(4) as usize].0;
        let shard = (herd.home(&format!("vssd-{tenant}")) as u16 + 1) % shards;
        herd.begin(ControlRequest::MoveTenant { tenant: tenant.to_owned(), shard });
        for _ in 0..herd.random.below(120) {
            hosts.iter_mut().for_each(|host| host.work(&mut herd, true));
            herd.step();
        }
        hosts.iter_mut().for_each(Host::server_died);
        let (device, now) = herd.end(life % 2 == 1);
        herd = Herd::new(device, shards, seed + life + 1, now);
    }
    run(&mut herd, &mut hosts, 60);
    moved
}

#[test]
fn tenants_change_their_shard_while_they_are_served() {
    for seed in 0..6 {
        let moved = moves(seed, 2 + seed as u16 % 3);
        assert!(moved > 4, "seed {seed}: {moved} moves");
    }
}

/// What shares channels with a tenant goes with it; what cannot be is refused and changes nothing.
#[test]
fn a_tenant_moves_with_its_neighbours() {
    let mut herd = Herd::new(device(1), 2, 1, Time::ZERO);
    for (name, isolation, level) in TENANTS {
        herd.add_tenant(name, isolation, level);
    }
    let move_to = |tenant: &str, shard| ControlRequest::MoveTenant { tenant: tenant.to_owned(), shard };
    let homes = |herd: &mut Herd| ["a", "b", "c", "d"].map(|name| herd.home(&format!("vssd-{name}")));
    assert_eq!(homes(&mut herd), [0, 1, 1, 0]);
    herd.done(move_to("a", 1));
    assert_eq!(homes(&mut herd), [1, 1, 1, 0]);
    herd.done(move_to("a", 1));
    let kind = |herd: &mut Herd, request| match herd.ask(request) {
        ControlResponse::Refused(error) => error.kind,
        other => panic!("{other:?}"),
    };
    assert_eq!(kind(&mut herd, move_to("a", 2)), ControlErrorKind::Invalid);
    assert_eq!(kind(&mut herd, move_to("e", 1)), ControlErrorKind::NotFound);
    herd.done(ControlRequest::CreateTenant(TenantSpec::new("e")));
    assert_eq!(kind(&mut herd, move_to("e", 1)), ControlErrorKind::Invalid);
    // Beside "b", on its channel.
    herd.done(ControlRequest::CreateVssd(vssd("beside", "e", Isolation::Die, 0)));
    let beside = herd.home("vssd-beside");
    let neighbour = if beside == 0 { "d" } else { "b" };
    herd.done(move_to(neighbour, 1 - beside as u16));
    assert_eq!(herd.home("vssd-beside"), 1 - beside, "it lies on a channel of \"{neighbour}\"");
    // What was given a home while it was served is made and deleted there as anywhere else.
    herd.done(ControlRequest::DeleteVssd("vssd-beside".to_owned()));
    for name in ["a", "b", "c", "d"] {
        herd.done(ControlRequest::DeleteSubsystem(format!("nqn.2026-11.org.diecut:{name}")));
        herd.done(ControlRequest::DeleteVolume(format!("volume-{name}")));
        herd.done(ControlRequest::DeleteVssd(format!("vssd-{name}")));
    }
    assert_eq!(herd.status().devices[0].free_channels, 4);
}

/// An application at a vSSD that serves erase blocks, and what it may expect to read.
struct Application {
    session: BlockSession,
    block: LogicalBlock,
    next_token: u64,
    /// IUs that it appended.
    written: u32,
    under_way: BTreeMap<u64, Opcode>,
}

impl Application {
    /// Attaches and allocates a block, or says why not.
    fn attach(herd: &mut Herd, at: usize, number: u64, vssd: &str) -> Result<Application, BlockAction> {
        let session = BlockSession(number);
        let event = BlockEvent::Attach { session, vssd: vssd.to_owned(), uid: 0, is_privileged: true };
        herd.tell(at, Event::Blocks(event));
        match herd.told_applications.pop().expect("answered at once") {
            BlockAction::Attached { .. } => {}
            other => return Err(other),
        }
        let mut one = Application {
            session,
            block: LogicalBlock::default(),
            next_token: 0,
            written: 0,
            under_way: BTreeMap::new(),
        };
        let keep = Submission { flag: 1, ..Submission::new(Opcode::Keep, one.block) };
        one.submit(herd, keep, Some(BufferMut::copy_from(&[])));
        one.submit(herd, Submission::new(Opcode::Allocate, one.block), None);
        one.finish(herd);
        Ok(one)
    }

    fn submit(&mut self, herd: &mut Herd, entry: Submission, data: Option<BufferMut>) {
        let home = herd.applications[&self.session].expect("it does not move");
        self.next_token += 1;
        self.under_way.insert(self.next_token, entry.opcode);
        let command = BlockCommand { entry: Ok(Submission { token: self.next_token, ..entry }), data };
        herd.tell(home, Event::Blocks(BlockEvent::Submitted { session: self.session, command }));
    }

    /// Takes answers: each once, and content that was appended.
    fn hear(&mut self, herd: &mut Herd) {
        for action in std::mem::take(&mut herd.told_applications) {
            let BlockAction::Answered { session, answer } = action else { panic!("{action:?}") };
            assert_eq!(session, self.session);
            let opcode = self.under_way.remove(&answer.completion.token).expect("answered once");
            assert_eq!(answer.completion.status, Status::Done, "{opcode:?}");
            match opcode {
                Opcode::Allocate => self.block = answer.completion.block,
                Opcode::Read => {
                    let (_, data) = answer.data.expect("with content");
                    assert!(data.iter().all(|byte| *byte == 7));
                }
                _ => {}
            }
        }
    }

    fn finish(&mut self, herd: &mut Herd) {
        for _ in 0..1_000_000 {
            self.hear(herd);
            if self.under_way.is_empty() {
                return;
            }
            herd.step();
        }
        panic!("never answered: {:?}", self.under_way);
    }

    /// Appends a little, then reads; more only where its rings are.
    fn work(&mut self, herd: &mut Herd) {
        self.hear(herd);
        if herd.applications[&self.session].is_none() || self.under_way.len() > 8 {
            return;
        }
        let iu_count = 8;
        let mut entry = Submission { count: iu_count, ..Submission::new(Opcode::Read, self.block) };
        let mut data = None;
        if self.written < 4 * iu_count {
            (entry.opcode, entry.first) = (Opcode::Append, self.written);
            data = Some(BufferMut::copy_from(&vec![7; iu_count as usize * IU_SIZE_BYTES]));
            self.written += iu_count;
        }
        self.submit(herd, entry, data);
    }

    fn hang_up(self, herd: &mut Herd) {
        for _ in 0..100_000 {
            if let Some(Some(home)) = herd.applications.get(&self.session).copied() {
                herd.applications.remove(&self.session);
                herd.tell(home, Event::Blocks(BlockEvent::Closed { session: self.session }));
                herd.told_applications.clear();
                return;
            }
            herd.step();
        }
        panic!("a hand-over never ends");
    }
}

fn with_blocks(seed: u64) -> (Herd, String) {
    let mut herd = Herd::new(device_with(seed, Backing::Memory), 2, seed, Time::ZERO);
    herd.done(ControlRequest::CreateTenant(TenantSpec::new("a")));
    let held = VssdSpec { serves: Serves::Blocks, ..vssd("a", "a", Isolation::Channel, 0) };
    let name = held.name.clone();
    herd.done(ControlRequest::CreateVssd(held));
    (herd, name)
}

/// An application stays attached while its vSSD goes from shard to shard, and each of its entries is answered once.
#[test]
fn an_application_moves_with_its_vssd() {
    let (mut herd, name) = with_blocks(3);
    let mut one = Application::attach(&mut herd, 0, 1, &name).unwrap_or_else(|said| panic!("{said:?}"));
    for turn in 0..20u16 {
        let go = ControlRequest::MoveTenant { tenant: "a".to_owned(), shard: 1 - turn % 2 };
        let token = herd.begin(go);
        let answer = loop {
            one.work(&mut herd);
            herd.step();
            if let Some(answer) = herd.answer(token) {
                break answer;
            }
        };
        assert!(matches!(answer, ControlResponse::Done), "{answer:?}");
        assert_eq!(herd.home(&name), usize::from(1 - turn % 2));
        one.finish(&mut herd);
    }
    assert!(one.next_token > 100, "it worked meanwhile: {}", one.next_token);
}

/// Whenever an application dies on the way, the next one attaches at the new home.
#[test]
fn an_application_may_die_while_it_moves() {
    let (mut herd, name) = with_blocks(5);
    for turn in 0..120u64 {
        let to = 1 - herd.home(&name);
        // What its predecessor had under way ends first.
        let attached = (0..100_000).find_map(|_| {
            herd.step();
            Application::attach(&mut herd, 1 - to, turn, &name).ok()
        });
        let mut one = attached.expect("nobody has it any more");
        one.work(&mut herd);
        let token = herd.begin(ControlRequest::MoveTenant { tenant: "a".to_owned(), shard: to as u16 });
        for _ in 0..turn {
            herd.step();
            one.hear(&mut herd);
        }
        one.hang_up(&mut herd);
        let answer = loop {
            herd.step();
            if let Some(answer) = herd.answer(token) {
                break answer;
            }
        };
        assert!(matches!(answer, ControlResponse::Done), "turn {turn}: {answer:?}");
        assert_eq!(herd.home(&name), to);
        herd.told_applications.clear();
    }
}

fn wear_after(channel_threshold_erases: u64) -> ControlRequest {
    ControlRequest::SetWear(WearSettings {
        channel_threshold_erases: Some(channel_threshold_erases),
        die_threshold_erases: Some(channel_threshold_erases / 2),
        rate: Some(Size(0)),
        ..WearSettings::default()
    })
}

/// Waits until nothing is exchanged, nobody is on the way, and all are home.
fn rest(herd: &mut Herd) {
    for _ in 0..1_000_000 {
        herd.step();
        let quiet = |shard: &diecut_shard::Shard<diecut_emulator::Device>| {
            !shard.pool().is_migrating() && !shard.is_administering()
        };
        if herd.is_silent() && herd.shards.iter().all(quiet) {
            return;
        }
    }
    panic!("exchanges never end");
}

/// What a channel was erased, in order.
fn erases(herd: &mut Herd) -> Vec<u64> {
    herd.status().devices[0].wear.channels.iter().map(ChannelWear::erases).collect()
}

/// Goal: a device ages evenly whatever shards its channels are divided among. Method: four tenants hold all four channels,
/// two on each shard, and one of them writes; what is quiet visits the writer's shard when its channel is the target, and
/// goes home again. Hosts check what they were promised all the time; the server dies twice.
#[test]
fn wear_is_even_over_shards_and_visitors_go_home() {
    let names = ["a", "b", "c", "d"];
    let mut herd = Herd::new(device(11), 2, 11, Time::ZERO);
    for name in names {
        herd.add_tenant(name, Isolation::Channel, 0);
    }
    herd.done(wear_after(32));
    let mut hosts: Vec<Host> = names.iter().zip(1..).map(|(name, number)| Host::new(name, number)).collect();
    run(&mut herd, &mut hosts, 20);
    let (mut exchanged, mut visits) = (0, 0);
    for life in 0..3 {
        let homes = |herd: &mut Herd| names.map(|name| herd.home(&format!("vssd-{name}")));
        rest(&mut herd);
        let before = homes(&mut herd);
        assert_eq!(before.iter().sum::<usize>(), 2, "two tenants on each shard: {before:?}");
        for _ in 0..8 {
            // At full speed a writer is far ahead before its content has moved: what is tested here is where it goes.
            run(&mut herd, &mut hosts[1..2], 1500);
            visits += u32::from(homes(&mut herd) != before);
            rest(&mut herd);
            assert_eq!(homes(&mut herd), before, "visitors went home");
        }
        let account = herd.shards[0].account();
        for (at, shard) in herd.shards.iter().enumerate() {
            for id in shard.pool().vssd_ids() {
                let parts = vec![(DeviceIndex(0), shard.pool().places_of(id))];
                assert_eq!(account[&id.0], (at as u16, parts));
            }
        }
        exchanged += herd.status().devices[0].wear.finished;
        hosts.iter_mut().for_each(Host::server_died);
        let (device, now) = herd.end(life == 1);
        herd = Herd::new(device, 2, 12 + life, now);
        run(&mut herd, &mut hosts, 20);
    }
    let erases = erases(&mut herd);
    let (least, most) = (erases.iter().min().unwrap(), erases.iter().max().unwrap());
    println!("{visits} visits, {exchanged} exchanges of dies; erases {erases:?}");
    assert!(visits > 1 && exchanged > 12, "{visits} visits, {exchanged} exchanges of dies");
    assert!(most - least < 100, "a threshold is 32: {erases:?}");
}

/// What nobody uses is exchanged like anything else: the channel is lent to the shard of the writer, and what the writer
/// left comes back as a free one.
#[test]
fn a_free_channel_is_lent_and_comes_back() {
    let mut herd = Herd::new(device(12), 2, 12, Time::ZERO);
    herd.add_tenant("a", Isolation::Channel, 0);
    herd.add_tenant("b", Isolation::Channel, 0);
    herd.done(wear_after(32));
    assert_eq!(herd.home("vssd-b"), 1);
    let mut hosts = [Host::new("b", 1)];
    for _ in 0..12 {
        run(&mut herd, &mut hosts, 1500);
        rest(&mut herd);
        assert_eq!((herd.home("vssd-a"), herd.home("vssd-b")), (0, 1));
        assert_eq!(herd.status().devices[0].free_channels, 2);
    }
    let worn = erases(&mut herd);
    assert!(worn.iter().all(|erases| *erases > 40), "every channel was used: {worn:?}");
    // Both free ones can be had by either shard.
    herd.done(ControlRequest::CreateVssd(vssd("more", "a", Isolation::Channel, 2)));
    assert_eq!(herd.home("vssd-more"), 0);
    assert_eq!(herd.status().devices[0].free_channels, 0);
    run(&mut herd, &mut hosts, 100);
}

/// Who is on a visit when an administrator moves it stays where it was moved to.
#[test]
fn an_administrator_ends_a_visit() {
    let names = ["a", "b", "c", "d"];
    let mut herd = Herd::new(device(13), 2, 13, Time::ZERO);
    for name in names {
        herd.add_tenant(name, Isolation::Channel, 0);
    }
    herd.done(wear_after(32));
    let homes = |herd: &mut Herd| names.map(|name| herd.home(&format!("vssd-{name}")));
    rest(&mut herd);
    let before = homes(&mut herd);
    let mut hosts = [Host::new("b", 1)];
    let visitor = (0..100)
        .find_map(|_| {
            run(&mut herd, &mut hosts, 300);
            let now = homes(&mut herd);
            if now == before {
                rest(&mut herd);
            }
            (0..4).find(|&at| now[at] != before[at])
        })
        .expect("somebody visits");
    let (tenant, shard) = (names[visitor].to_owned(), 1 - before[visitor] as u16);
    herd.done(ControlRequest::MoveTenant { tenant, shard });
    herd.done(ControlRequest::SetWear(WearSettings {
        channel_threshold_erases: Some(0),
        die_threshold_erases: Some(0),
        ..WearSettings::default()
    }));
    rest(&mut herd);
    let after = homes(&mut herd);
    assert_eq!(after[visitor], usize::from(shard), "{} stays: {before:?}, {after:?}", names[visitor]);
}

/// With one shard the pool decides by itself, and nothing of it is a request that others would wait for.
#[test]
fn one_shard_levels_without_requests() {
    let mut herd = Herd::new(device(17), 1, 17, Time::ZERO);
    for name in ["a", "b", "c", "d"] {
        herd.add_tenant(name, Isolation::Channel, 0);
    }
    herd.done(wear_after(16));
    let mut host = Host::new("b", 1);
    let mut began = 0;
    for _ in 0..400_000 {
        host.work(&mut herd, true);
        herd.step();
        assert!(!herd.shards[0].is_administering(), "an exchange is asked for by nobody");
        began = herd.shards[0].pool().migration_status().finished;
        if began > 6 {
            break;
        }
    }
    assert!(began > 6, "{began} exchanges");
}

/// A pause that comes when an exchange has just become due holds up nothing but the exchange: it begins afterwards.
#[test]
fn a_pause_holds_up_no_request() {
    let mut herd = Herd::new(device(16), 2, 16, Time::ZERO);
    for name in ["a", "b", "c", "d"] {
        herd.add_tenant(name, Isolation::Channel, 0);
    }
    herd.done(wear_after(0));
    run(&mut herd, &mut [Host::new("b", 1)], 3000);
    let pause =
        |paused| ControlRequest::SetWear(WearSettings { paused: Some(paused), ..WearSettings::default() });
    let due = herd.begin(wear_after(16));
    herd.done(pause(true));
    assert_eq!(herd.answer(due), Some(ControlResponse::Done));
    for _ in 0..2000 {
        herd.step();
    }
    let finished = |herd: &mut Herd| herd.status().devices[0].wear.finished;
    assert_eq!(finished(&mut herd), 0);
    herd.done(pause(false));
    rest(&mut herd);
    assert!(finished(&mut herd) > 0);
}

/// A die whose content is tied to nothing else is exchanged with one on another shard's channel, and each goes on with the
/// shard of its channel then: shards keep as many tenants as they had.
#[test]
fn single_dies_change_shards_by_themselves() {
    let mut herd = Herd::new(device(14), 2, 14, Time::ZERO);
    let whole = ["w", "x"].map(|name| (name, Isolation::Channel));
    let names = ["a", "b", "c", "d"];
    for (name, isolation) in whole.into_iter().chain(names.map(|name| (name, Isolation::Die))) {
        herd.add_tenant(name, isolation, 0);
    }
    let homes = |herd: &mut Herd| names.map(|name| herd.home(&format!("vssd-{name}")));
    assert_eq!(homes(&mut herd), [0, 1, 0, 1], "a channel with two of them for each shard");
    herd.done(wear_after(32));
    let mut hosts = [Host::new("a", 1), Host::new("c", 2)];
    let mut seen = std::collections::BTreeSet::new();
    for round in 0..24 {
        run(&mut herd, &mut hosts[round % 2..][..1], 1500);
        rest(&mut herd);
        let now = homes(&mut herd);
        assert_eq!(now.iter().sum::<usize>(), 2, "two live on each shard: {now:?}");
        seen.insert(now);
    }
    assert!(seen.len() > 1, "some changed their shard: {seen:?}");
    run(&mut herd, &mut hosts, 200);
}

/// Content of a tenant that has more elsewhere on its channel does not change channels with a single die of another shard: the
/// two shards' tenants would be tied for ever.
#[test]
fn dies_that_would_tie_two_shards_stay() {
    let mut herd = Herd::new(device(15), 2, 15, Time::ZERO);
    let tenants = [("w", Isolation::Channel), ("x", Isolation::Channel), ("a", Isolation::Die)];
    for (name, isolation) in tenants.into_iter().chain([("b", Isolation::Die)]) {
        herd.add_tenant(name, isolation, 0);
    }
    herd.done(ControlRequest::CreateVssd(vssd("more", "a", Isolation::Die, 0)));
    herd.add_tenant("d", Isolation::Die, 0);
    let homes = |herd: &mut Herd| ["a", "more", "b", "d"].map(|name| herd.home(&format!("vssd-{name}")));
    assert_eq!(homes(&mut herd), [0, 0, 1, 1]);
    herd.done(wear_after(32));
    let mut hosts = [Host::new("a", 1)];
    for _ in 0..16 {
        run(&mut herd, &mut hosts, 1500);
        rest(&mut herd);
        assert_eq!(homes(&mut herd), [0, 0, 1, 1]);
    }
    assert!(herd.status().devices[0].wear.finished > 4);
}
