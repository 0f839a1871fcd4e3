//! Goal: a reservation that persists through power loss stands after one, whichever shard has it; a volatile one is gone; what was answered is
//! durable; and what takes a namespace away takes its reservation along. Method: shards in virtual time, two hosts over NVMe/TCP, power cuts
//! at random moments.

use crate::herd::{Herd, Host, device, subsystem};
use diecut_nvme::feature::fid;
use diecut_nvme::reservation::*;
use diecut_nvme::{Status, SubmissionEntry, opcode};
use diecut_shard::control::*;
use diecut_spec::{Isolation, SubsystemSpec};
use diecut_units::{Buffer, Span, Time};
use zerocopy::{FromBytes, IntoBytes};

/// A host of tenant `a`, whose identifier is `id`, and its key.
struct Reserver {
    host: Host,
    key: u64,
    id: [u8; 16],
}

impl Reserver {
    fn new(number: u8) -> Reserver {
        let id = [number; 16];
        Reserver { host: Host::with_id("a", number.into(), id), key: 0xA0 + u64::from(number), id }
    }

    /// Connects, if it is not connected.
    fn meet(&mut self, herd: &mut Herd) {
        for _ in 0..200_000 {
            if self.host.is_ready() {
                return;
            }
            self.host.work(herd, false);
            herd.step();
        }
        panic!("a host is never served");
    }

    fn reserve(&mut self, herd: &mut Herd, code: u8, command: ReservationCommand, keys: &[u64]) -> Status {
        self.meet(herd);
        let mut entry = SubmissionEntry { opcode: code, nsid: 1.into(), ..Default::default() };
        command.encode(&mut entry);
        self.host.io_command(herd, entry, Some(Buffer::copy_from(keys.as_bytes())), 0).0
    }

    fn register(&mut self, herd: &mut Herd, persistence: u8) -> Status {
        let command = ReservationCommand { action: REGISTER, persistence, ..NOTHING };
        let key = self.key;
        self.reserve(herd, opcode::io::RESERVATION_REGISTER, command, &[0, key])
    }

    fn acquire(&mut self, herd: &mut Herd, kind: ReservationKind) -> Status {
        let command = ReservationCommand { action: ACQUIRE, kind: kind as u8, ..NOTHING };
        let key = self.key;
        self.reserve(herd, opcode::io::RESERVATION_ACQUIRE, command, &[key, 0])
    }

    fn clear(&mut self, herd: &mut Herd) -> Status {
        let command = ReservationCommand { action: CLEAR, ..NOTHING };
        let key = self.key;
        self.reserve(herd, opcode::io::RESERVATION_RELEASE, command, &[key])
    }

    fn write(&mut self, herd: &mut Herd) -> Status {
        self.meet(herd);
        let mut entry = SubmissionEntry { opcode: opcode::io::WRITE, nsid: 1.into(), ..Default::default() };
        diecut_nvme::io::LbaRange::plain(3, 1).encode(&mut entry);
        self.host.io_command(herd, entry, Some(Buffer::copy_from(&7u64.to_le_bytes())), 0).0
    }

    fn report(&mut self, herd: &mut Herd) -> (ReservationStatus, Vec<RegisteredController>) {
        self.meet(herd);
        let mut entry =
            SubmissionEntry { opcode: opcode::io::RESERVATION_REPORT, nsid: 1.into(), ..Default::default() };
        ReservationReport { length_bytes: 4096, extended: true }.encode(&mut entry);
        let (status, page) = self.host.io_command(herd, entry, None, 4096);
        assert_eq!(status, Status::SUCCESS);
        let (head, rest) = ReservationStatus::read_from_prefix(&page).unwrap();
        let all = rest.chunks_exact(64).map(|one| RegisteredController::read_from_bytes(one).unwrap());
        (head, all.take(head.regctl.get().into()).collect())
    }
}

const NOTHING: ReservationCommand =
    ReservationCommand { action: 0, ignores_key: false, kind: 0, persistence: 0 };
const KIND: ReservationKind = ReservationKind::WriteExclusive;

fn cut(herd: Herd, hosts: [&mut Reserver; 2], shards: u16, seed: u64) -> Herd {
    hosts.into_iter().for_each(|one| one.host.server_died());
    let (device, now) = herd.end(true);
    Herd::new(device, shards, seed, now)
}

/// Time passes; the host asks nothing.
fn rest(herd: &mut Herd, one: &mut Reserver, length: Span) {
    let until = herd.now + length;
    while herd.now < until {
        one.host.work(herd, false);
        herd.step();
    }
}

fn stand(herd: &mut Herd, a: &mut Reserver, b: &mut Reserver) {
    assert!(b.write(herd).same_code(Status::RESERVATION_CONFLICT));
    assert_eq!(a.write(herd), Status::SUCCESS);
    let (head, all) = b.report(herd);
    assert_eq!((head.rtype, head.ptpls, head.generation.get()), (KIND as u8, 1, 2));
    let facts: Vec<_> = all.iter().map(|one| (one.hostid, one.rkey.get(), one.rcsts)).collect();
    assert_eq!(facts, [(a.id, a.key, 1), (b.id, b.key, 0)]);
}

#[test]
fn what_persists_stands_after_a_power_cut_and_what_does_not_is_gone() {
    for (shards, seed) in [(1, 1), (2, 2), (2, 3), (3, 4)] {
        let mut herd = Herd::new(device(seed), shards, seed, Time::ZERO);
        // Tenants live on several shards.
        for name in ["z", "a", "y"] {
            herd.add_tenant(name, Isolation::Channel, 0);
        }
        let (mut a, mut b) = (Reserver::new(1), Reserver::new(2));
        assert_eq!(a.register(&mut herd, PERSISTS), Status::SUCCESS);
        assert_eq!(b.register(&mut herd, PERSISTENCE_STAYS), Status::SUCCESS);
        assert_eq!(a.acquire(&mut herd, KIND), Status::SUCCESS);
        stand(&mut herd, &mut a, &mut b);
        let mut herd = cut(herd, [&mut a, &mut b], shards, seed + 100);
        stand(&mut herd, &mut a, &mut b);
        // On another number of shards, too, and again.
        let mut herd = cut(herd, [&mut a, &mut b], 1 + shards % 2, seed + 200);
        stand(&mut herd, &mut a, &mut b);
        // What does not persist any more is forgotten; the reservation stands until then.
        let mut entry =
            SubmissionEntry { opcode: opcode::admin::SET_FEATURES, nsid: 1.into(), ..Default::default() };
        entry.cdw10 = u32::from(fid::RESERVATION_PERSISTENCE).into();
        assert_eq!(a.host.admin_command(&mut herd, entry, None, 0).0, Status::SUCCESS);
        assert!(b.write(&mut herd).same_code(Status::RESERVATION_CONFLICT));
        let mut herd = cut(herd, [&mut a, &mut b], shards, seed + 300);
        assert_eq!(b.write(&mut herd), Status::SUCCESS);
        assert_eq!(b.report(&mut herd).1.len(), 0);
        assert_eq!(b.report(&mut herd).0.ptpls, 0);
    }
}

/// What the catalog has no room for is refused, and a power cut does not bring it back.
#[test]
fn what_was_refused_for_want_of_room_is_nowhere() {
    let mut herd = Herd::new(device(8), 1, 8, Time::ZERO);
    herd.add_tenant("a", Isolation::Channel, 0);
    let (mut a, mut b) = (Reserver::new(1), Reserver::new(2));
    a.meet(&mut herd);
    for number in 0.. {
        let nqn = format!("nqn.2026-11.example:many-{number}");
        let allowed_hosts = (0..100).map(|host| format!("{nqn}:{host:0100}")).collect();
        let namespaces = Vec::new();
        let spec = SubsystemSpec { nqn, allow_any_host: false, allowed_hosts, namespaces, ..subsystem("a") };
        match herd.ask(ControlRequest::CreateSubsystem(spec)) {
            ControlResponse::Done => assert!(number < 1000, "it is full at last"),
            ControlResponse::Refused(error) => {
                assert_eq!(error.kind, ControlErrorKind::Exhausted, "{}", error.message);
                break;
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(a.register(&mut herd, PERSISTS).same_code(Status::INTERNAL_ERROR));
    assert_eq!(a.report(&mut herd).0.regctl.get(), 0);
    // What does not persist needs no room.
    assert_eq!(a.register(&mut herd, PERSISTENCE_STAYS), Status::SUCCESS);
    rest(&mut herd, &mut a, Span::from_millis(200));
    let mut herd = cut(herd, [&mut a, &mut b], 1, 9);
    let (head, all) = b.report(&mut herd);
    assert_eq!((head.generation.get(), head.ptpls, all.len()), (0, 0, 0));
}

/// What was answered holds, whenever the power goes; what was not may or may not.
#[test]
fn what_was_answered_holds_after_a_cut_at_any_moment() {
    let mut outcomes = [0; 2];
    for seed in 0..24 {
        let mut herd = Herd::new(device(seed), 2, seed, Time::ZERO);
        herd.add_tenant("a", Isolation::Channel, 0);
        let (mut a, mut b) = (Reserver::new(1), Reserver::new(2));
        assert_eq!(a.register(&mut herd, PERSISTS), Status::SUCCESS);
        b.meet(&mut herd);
        // It takes what others have while the power goes.
        assert_eq!(a.acquire(&mut herd, KIND), Status::SUCCESS);
        assert_eq!(b.register(&mut herd, PERSISTENCE_STAYS), Status::SUCCESS);
        let command = ReservationCommand { action: PREEMPT, kind: KIND as u8, ..NOTHING };
        let mut entry =
            SubmissionEntry { opcode: opcode::io::RESERVATION_ACQUIRE, nsid: 1.into(), ..Default::default() };
        command.encode(&mut entry);
        let token = b.host.begin_io(entry, Some(Buffer::copy_from([b.key, a.key].as_bytes())), 0);
        for _ in 0..seed * 6 {
            b.host.work(&mut herd, false);
            herd.step();
        }
        let answered = b.host.take_answer(token).map(|(status, _)| status);
        assert!(answered.is_none_or(|status| status == Status::SUCCESS), "{answered:?}");
        let mut herd = cut(herd, [&mut a, &mut b], 1, seed + 100);
        let (head, all) = b.report(&mut herd);
        let preempted = all.len() == 1;
        assert!(preempted || answered.is_none(), "seed {seed}: what was answered is gone");
        assert_eq!((head.rtype, head.generation.get()), (KIND as u8, if preempted { 3 } else { 2 }));
        let holder = all.iter().find(|one| one.rcsts == 1).unwrap();
        assert_eq!(holder.hostid, if preempted { b.id } else { a.id });
        outcomes[usize::from(preempted)] += 1;
    }
    assert!(outcomes[0] > 0 && outcomes[1] > 0, "cuts come before and after: {outcomes:?}");
}

#[test]
fn a_reservation_goes_with_its_namespace_and_moves_with_its_tenant() {
    let mut herd = Herd::new(device(5), 2, 5, Time::ZERO);
    herd.add_tenant("a", Isolation::Channel, 0);
    let (mut a, mut b) = (Reserver::new(1), Reserver::new(2));
    a.register(&mut herd, PERSISTS);
    b.register(&mut herd, PERSISTENCE_STAYS);
    a.acquire(&mut herd, KIND);
    // Changes go on while the tenant goes to and fro.
    for shard in [1, 0, 1] {
        let token = herd.begin(ControlRequest::MoveTenant { tenant: "a".to_owned(), shard });
        let mut changes = 0;
        let answer = loop {
            if let Some(answer) = herd.answer(token) {
                break answer;
            }
            assert_eq!(b.register(&mut herd, PERSISTENCE_STAYS), Status::SUCCESS);
            changes += 1;
            assert!(changes < 10_000, "a tenant never moves");
        };
        assert!(matches!(answer, ControlResponse::Done), "{answer:?}");
    }
    let generation = b.report(&mut herd).0.generation.get();
    assert!(generation > 4, "registrations were repeated: {generation}");
    let mut herd = cut(herd, [&mut a, &mut b], 2, 6);
    assert!(b.write(&mut herd).same_code(Status::RESERVATION_CONFLICT));
    assert_eq!(b.report(&mut herd).0.generation.get(), generation);
    // Taken away and shown again: nobody's, also after a restart.
    let nqn = subsystem("a").nqn;
    herd.done(ControlRequest::DetachNamespace { subsystem: nqn.clone(), nsid: 1 });
    assert!(herd.shards[0].state().reservations.is_empty());
    let volume = "volume-a".to_owned();
    herd.done(ControlRequest::AttachNamespace { subsystem: nqn.clone(), nsid: 1, volume });
    assert_eq!(b.write(&mut herd), Status::SUCCESS);
    let mut herd = cut(herd, [&mut a, &mut b], 2, 7);
    assert_eq!(b.write(&mut herd), Status::SUCCESS);
    assert_eq!(a.register(&mut herd, PERSISTS), Status::SUCCESS);
    assert_eq!(herd.shards[0].state().reservations.len(), 1);
    assert_eq!(a.clear(&mut herd), Status::SUCCESS);
    assert_eq!(herd.shards[0].state().reservations.len(), 1, "the setting and the count persist");
    herd.done(ControlRequest::DeleteSubsystem(nqn));
    assert!(herd.shards[0].state().reservations.is_empty());
}

/// Goal: a host that changes its registration again and again does not wear out the flash that the catalog lies on. Method: the first changes
/// are quick, later ones come one in half a second, and all of them are carried out.
#[test]
fn changes_without_an_end_are_written_now_and_then() {
    let mut herd = Herd::new(device(9), 1, 9, Time::ZERO);
    herd.add_tenant("a", Isolation::Channel, 0);
    let mut a = Reserver::new(1);
    a.meet(&mut herd);
    let begun = herd.now;
    let mut times = Vec::new();
    for _ in 0..72 {
        assert_eq!(a.register(&mut herd, PERSISTS), Status::SUCCESS);
        times.push(herd.now.since(begun));
    }
    assert!(times[59] < Span::from_secs(2), "{:?}", times[59]);
    assert!(times[71] > Span::from_secs(3), "{:?}", times[71]);
    assert_eq!(a.report(&mut herd).0.generation.get(), 72);
    // Whoever was quiet for a while is quick again.
    rest(&mut herd, &mut a, Span::from_secs(4));
    let begun = herd.now;
    assert_eq!(a.register(&mut herd, PERSISTS), Status::SUCCESS);
    assert!(herd.now.since(begun) < Span::from_millis(250));
}

/// Goal: a change that waited to be written when the shard of its hosts failed is not made: after a power cut hosts find what the shard's next
/// life told them. Method: so many changes that those behind them wait, and a failure while one does.
#[test]
fn a_change_that_waits_when_its_shard_fails_is_not_made_later() {
    let mut herd = Herd::new(device(10), 2, 10, Time::ZERO);
    for name in ["z", "a"] {
        herd.add_tenant(name, Isolation::Channel, 0);
    }
    assert_eq!(herd.home("vssd-a"), 1, "its shard is not the first one");
    let (mut a, mut b) = (Reserver::new(1), Reserver::new(2));
    b.meet(&mut herd);
    for _ in 0..66 {
        assert_eq!(a.register(&mut herd, PERSISTS), Status::SUCCESS);
    }
    let mut entry =
        SubmissionEntry { opcode: opcode::io::RESERVATION_REGISTER, nsid: 1.into(), ..Default::default() };
    ReservationCommand { action: REGISTER, persistence: PERSISTENCE_STAYS, ..NOTHING }.encode(&mut entry);
    let token = b.host.begin_io(entry, Some(Buffer::copy_from([0, b.key].as_bytes())), 0);
    // It is on its way to the catalog, where it waits for its turn.
    rest(&mut herd, &mut b, Span::from_millis(5));
    assert!(b.host.take_answer(token).is_none());
    herd.fail(1);
    [&mut a, &mut b].into_iter().for_each(|one| one.host.server_died());
    let known = |herd: &mut Herd, one: &mut Reserver| {
        let (head, all) = one.report(herd);
        (head.generation.get(), all.iter().map(|one| one.hostid).collect::<Vec<_>>())
    };
    let told = known(&mut herd, &mut a);
    assert_eq!(told, (66, vec![a.id]), "the change was not answered, and is forgotten");
    // Time for all that waited to be written.
    rest(&mut herd, &mut a, Span::from_secs(3));
    let mut herd = cut(herd, [&mut a, &mut b], 2, 11);
    assert_eq!(known(&mut herd, &mut b), told);
}
