//! Goal: a shard that is not the first one and fails a check begins again by itself: what was acknowledged of its tenant is there, a tenant of
//! the first shard is served as if nothing had happened, requests of administrators go on, and after two failures within ten minutes the vSSD
//! at fault is fenced. Method: two shards on an emulated device in virtual time, and a check that fails on purpose; the neighbour reads all the
//! time, one command after the other, and the longest time without an answer is compared with that of a time without a failure.
#![cfg(debug_assertions)]

use diecut_devices::{Backing, Device, Options, Pacing, Profile};
use diecut_media::Media;
use diecut_namespace::contract::*;
use diecut_shard::control::*;
use diecut_shard::drive::{Action, Drive, Event};
use diecut_shard::panics::{FENCED, PanicBook, PanicRecord, Verdict};
use diecut_shard::{DOOR_SOURCE_BIT, PlantedPanic, PoolConfig, ShardConfig};
use diecut_sim::shards::{Carried, Shards, arrival};
use diecut_spec::{Isolation, Size};
use diecut_units::{Buffer, BufferMut, Span, Time};
use std::panic::{AssertUnwindSafe, catch_unwind};

const FAILS_AT: u64 = 77;
const STATUS: ControlToken = ControlToken(1 << 40);

/// Blocks of a volume.
const LBAS: u64 = 512;
/// The neighbour rests so long after an answer.
const REST: Span = Span::from_micros(20);

/// The tenant of the first shard, which reads one block after the other.
#[derive(Default)]
struct Neighbour {
    is_reading: bool,
    under_way: bool,
    answered_at: Time,
    longest: Span,
    answers: u64,
}

struct Rig {
    shards: Shards,
    config: ShardConfig,
    now: Time,
    actions: Vec<(u16, Action)>,
    next_token: u64,
    neighbour: Neighbour,
    /// Answers to commands of the second shard's tenant.
    done: Vec<NamespaceCompletion>,
    failed: bool,
}

fn device() -> Device {
    let options = Options { backing: Backing::Tags, pacing: Pacing::Modelled, seed: 3, ..Options::default() };
    let mut profile = Profile::named("tiny").unwrap();
    profile.protected_memory_bytes = 8 << 20;
    profile.geometry.channels = 4;
    profile.geometry.blocks_per_plane = 140;
    Device::create(&profile, options).unwrap()
}

impl Rig {
    fn new() -> Rig {
        let device = device();
        let config = ShardConfig {
            pool: PoolConfig::suited_to(device.geometry()),
            staging_bytes_per_vssd: 256 << 10,
            planted_panic: Some(PlantedPanic::WriteAt(FAILS_AT)),
            ..ShardConfig::default()
        };
        let shards = Shards::new(device, &config, 2, 7, Time::ZERO);
        let mut rig = Rig {
            shards,
            config,
            now: Time::ZERO,
            actions: Vec::new(),
            next_token: 0,
            neighbour: Neighbour::default(),
            done: Vec::new(),
            failed: false,
        };
        rig.run_until(|rig| rig.shards.all().all(diecut_shard::Shard::is_ready));
        rig
    }

    fn submit(&mut self, shard: usize, namespace: u32, operation: NamespaceOperation) {
        self.next_token += 1;
        let (token, arrived) = (CommandToken(self.next_token), self.now);
        let source = SourceId(DOOR_SOURCE_BIT | namespace);
        let command =
            NamespaceCommand { token, namespace: NamespaceId(namespace), source, arrived, operation };
        self.shards.all_mut().nth(shard).unwrap().submit(command);
    }

    /// One turn of each shard at the next moment in which one has something to do.
    fn step(&mut self) {
        let rests = self.neighbour.is_reading && !self.neighbour.under_way;
        let reads_at = if rests { self.neighbour.answered_at + REST } else { Time::NEVER };
        let next = self.shards.deadline().min(self.shards.next_arrival()).min(reads_at);
        self.now = self.now.max(next.min(self.now + Span::from_secs(1)));
        let now = self.now;
        if reads_at <= now {
            self.read_neighbour();
        }
        let mut actions = Vec::new();
        while let Some((from, to, carried)) = self.shards.take_arrived(now) {
            self.shards.handle(to, arrival(from, carried), now, &mut actions);
            self.actions.extend(actions.drain(..).map(|action| (to, action)));
        }
        for at in 0..2 {
            let worked = catch_unwind(AssertUnwindSafe(|| self.shards.work(at, now, &mut actions)));
            self.actions.extend(actions.drain(..).map(|action| (at, action)));
            if worked.is_err() {
                assert_eq!(at, 1, "the second shard fails");
                self.failed = true;
                return;
            }
        }
        for (at, action) in std::mem::take(&mut self.actions) {
            match action {
                Action::Tell { to, message } => self.shards.carry(at, to.0, Carried::Told(message), now),
                Action::BeginAnew => panic!("one shard is enough"),
                other => self.actions.push((at, other)),
            }
        }
        let mut done = Vec::new();
        self.shards.all_mut().next().unwrap().take_completions(&mut done);
        let neighbour = &mut self.neighbour;
        for completion in done {
            completion.result.expect("the neighbour is served");
            neighbour.longest = neighbour.longest.max(now.since(neighbour.answered_at));
            (neighbour.under_way, neighbour.answered_at) = (false, now);
            neighbour.answers += 1;
        }
        let second = self.shards.all_mut().nth(1).unwrap();
        second.take_completions(&mut self.done);
    }

    fn read_neighbour(&mut self) {
        self.neighbour.under_way = true;
        let range = LbaRange { first_lba: self.neighbour.answers * 37 % LBAS, lba_count: 1 };
        let destination = BufferMut::copy_from(&[0; 8]);
        self.submit(0, 1, NamespaceOperation::Read { range, destination });
    }

    fn run_until(&mut self, done: impl Fn(&Rig) -> bool) {
        for _ in 0..1_000_000 {
            if done(self) {
                return;
            }
            self.step();
        }
        panic!("it never comes: {}", self.shards.describe());
    }

    fn ask_as(&mut self, token: ControlToken, request: ControlRequest) {
        let mut actions = Vec::new();
        let event = Event::Control { token, request: Box::new(request) };
        self.shards.handle(0, event, self.now, &mut actions);
        self.actions.extend(actions.drain(..).map(|action| (0, action)));
    }

    fn answer(&mut self, token: ControlToken) -> Option<ControlResponse> {
        let is_answer =
            |(_, action): &(u16, Action)| matches!(action, Action::Answer { token: of, .. } if *of == token);
        let at = self.actions.iter().position(is_answer)?;
        match self.actions.remove(at).1 {
            Action::Answer { response, .. } => Some(*response),
            _ => None,
        }
    }

    fn ask(&mut self, request: ControlRequest) -> ControlResponse {
        self.next_token += 1;
        let token = ControlToken(self.next_token);
        self.ask_as(token, request);
        for _ in 0..1_000_000 {
            if let Some(answer) = self.answer(token) {
                return answer;
            }
            self.step();
        }
        panic!("a request is never answered: {}", self.shards.describe());
    }

    fn done(&mut self, request: ControlRequest) {
        assert_eq!(self.ask(request.clone()), ControlResponse::Done, "{request:?}");
    }

    fn write_to(&mut self, shard: usize, namespace: u32, first_lba: u64, tags: &[u64]) {
        let range = LbaRange { first_lba, lba_count: tags.len() as u32 };
        let data: Vec<u8> = tags.iter().flat_map(|tag| tag.to_le_bytes()).collect();
        let data = Buffer::copy_from(&data);
        let placement = PlacementTarget::default();
        self.submit(
            shard,
            namespace,
            NamespaceOperation::Write { range, data, force_unit_access: false, placement },
        );
    }

    /// A write of the second shard's tenant.
    fn write(&mut self, lba: u64, tag: u64) -> Result<(), NamespaceError> {
        self.write_to(1, 2, lba, &[tag]);
        self.run_until(|rig| !rig.done.is_empty());
        self.done.pop().unwrap().result
    }

    fn read(&mut self, lba: u64) -> u64 {
        let range = LbaRange { first_lba: lba, lba_count: 1 };
        let destination = BufferMut::copy_from(&[0xee; 8]);
        self.submit(1, 2, NamespaceOperation::Read { range, destination });
        self.run_until(|rig| !rig.done.is_empty());
        let done = self.done.pop().unwrap();
        done.result.unwrap();
        u64::from_le_bytes(done.data.unwrap()[..].try_into().unwrap())
    }

    /// The longest time of the neighbour without an answer in so long from now.
    fn watch(&mut self, length: Span) -> Span {
        let end = self.now + length;
        (self.neighbour.longest, self.neighbour.answered_at) =
            (Span::ZERO, self.now.max(self.neighbour.answered_at));
        self.run_until(|rig| rig.now >= end);
        self.neighbour.longest
    }

    /// The second shard fails with writes under way, and begins again as the book says.
    fn fail(&mut self, book: &mut PanicBook) -> Verdict {
        for lba in 100..140 {
            self.write_to(1, 2, lba, &[9]);
        }
        self.fail_now(book)
    }

    /// The same in its next turn, or soon.
    fn fail_now(&mut self, book: &mut PanicBook) -> Verdict {
        self.write_to(1, 2, FAILS_AT, &[9]);
        self.run_until(|rig| rig.failed);
        self.failed = false;
        let outline = self.shards.all().nth(1).unwrap().at_work();
        assert_eq!(outline.vssd.as_ref().map(|(_, name)| name.as_str()), Some("vssd-b"));
        let (vssd, vssd_name) = outline.vssd.unzip();
        let at_ms = self.now.0 / 1_000_000;
        let verdict = book.note(PanicRecord { at_ms, vssd, vssd_name, ..PanicRecord::default() });
        let config = ShardConfig { fenced: book.fenced.keys().copied().collect(), ..self.config.clone() };
        let told =
            self.actions.extract_if(.., |(at, action)| *at == 1 && matches!(action, Action::Tell { .. }));
        let told = told.filter_map(|(_, action)| match action {
            Action::Tell { to, message } => Some((to, message)),
            _ => None,
        });
        let told = told.collect();
        self.shards.begin_again(1, told, &config, self.now);
        self.done.clear();
        verdict
    }

    fn is_back(&self) -> bool {
        !self.shards.lead().is_administering() && self.shards.all().all(diecut_shard::Shard::is_ready)
    }

    fn health(&mut self, name: &str) -> Option<String> {
        let ControlResponse::Status(status) = self.ask(ControlRequest::Status) else { panic!("a status") };
        let vssd = status.vssds.iter().find(|one| one.spec.name == name).expect("it is told of");
        vssd.health.read_only_reason.clone()
    }
}

fn set_up(rig: &mut Rig) {
    for name in ["a", "b"] {
        let vssd = VssdSpec::new(&format!("vssd-{name}"), name, Isolation::Channel, 280);
        rig.done(ControlRequest::CreateTenant(TenantSpec::new(name)));
        rig.done(ControlRequest::CreateVssd(vssd));
        rig.done(ControlRequest::CreateVolume(VolumeSpec {
            name: format!("volume-{name}"),
            vssd: format!("vssd-{name}"),
            size: Size(2 << 20),
            uuid: None,
            nguid: None,
            zones: Default::default(),
            placement: Vec::new(),
        }));
    }
}

#[test]
fn a_shard_that_fails_begins_again_and_its_neighbour_notices_nothing() {
    let mut book = PanicBook::default();
    let mut rig = Rig::new();
    set_up(&mut rig);
    assert!(rig.shards.all().all(|shard| shard.pool().vssd_ids().count() == 1), "each has one of the vSSDs");
    for first in (0..LBAS).step_by(8) {
        rig.write_to(0, 1, first, &[5; 8]);
        rig.run_until(|rig| rig.neighbour.answers > first / 8);
    }
    rig.neighbour.is_reading = true;
    let length = Span::from_millis(300);
    let still = rig.watch(length);
    for round in 0..2 {
        for lba in 0..60 {
            rig.write(lba, 1000 * round + lba).unwrap();
        }
        let verdict = rig.fail(&mut book);
        assert_eq!(verdict, if round == 1 { Verdict::Fence } else { Verdict::BeginAnew });
        // What is asked while it is away is answered when it is back, and is whole.
        rig.ask_as(STATUS, ControlRequest::Status);
        let failed_at = rig.now;
        let failing = rig.watch(length);
        assert!(failing <= still, "{failing:?} without an answer beside a failure, {still:?} without one");
        assert!(rig.is_back(), "it is back after {length:?}");
        let Some(ControlResponse::Status(status)) = rig.answer(STATUS) else { panic!("it is answered") };
        assert_eq!(status.vssds.len(), 2, "{status:?}");
        let name = format!("later-{round}");
        rig.done(ControlRequest::CreateTenant(TenantSpec::new(&name)));
        for lba in 0..60 {
            assert_eq!(rig.read(lba), 1000 * round + lba, "round {round}, LBA {lba}");
        }
        assert!(rig.shards.check_account().is_empty(), "{:?}", rig.shards.check_account());
        rig.shards.all().for_each(|shard| shard.check_shares());
        rig.shards.all().for_each(|shard| shard.pool().check_invariants());
        rig.now = failed_at.max(rig.now) + Span::from_secs(300);
    }
    assert_eq!(rig.write(3, 1), Err(NamespaceError::ReadOnly { reason: FENCED }));
    assert_eq!((rig.health("vssd-b").as_deref(), rig.health("vssd-a")), (Some(FENCED), None));
    rig.done(ControlRequest::UnfenceVssd("vssd-b".to_owned()));
    rig.write(3, 1).unwrap();
    assert_eq!(rig.read(3), 1);
}

fn requests_of_a_shard_that_fails() {
    let volume = |name: &str| VolumeSpec {
        name: name.to_owned(),
        vssd: "vssd-b".to_owned(),
        size: Size(64 << 10),
        uuid: None,
        nguid: None,
        zones: Default::default(),
        placement: Vec::new(),
    };
    let (mut refused, mut done) = (0, 0);
    for turns in [0, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144] {
        let mut book = PanicBook::default();
        let mut rig = Rig::new();
        set_up(&mut rig);
        rig.done(ControlRequest::CreateVolume(volume("gone")));
        rig.done(ControlRequest::CreateTenant(TenantSpec::new("guest")));
        let requests = [
            ControlRequest::CreateVolume(volume("new")),
            ControlRequest::DeleteVolume("gone".to_owned()),
            ControlRequest::MoveTenant { tenant: "b".to_owned(), shard: 0 },
        ];
        for request in requests {
            let is_move = matches!(request, ControlRequest::MoveTenant { .. });
            if is_move && turns > 3 {
                // The group may be between the shards: then all begin anew, which is tested elsewhere.
                continue;
            }
            let token = ControlToken(1 << 41);
            rig.ask_as(token, request.clone());
            for _ in 0..turns {
                rig.step();
            }
            rig.fail(&mut book);
            book = PanicBook::default();
            rig.run_until(Rig::is_back);
            match rig.answer(token) {
                Some(ControlResponse::Done) => done += 1,
                Some(ControlResponse::Refused(error)) => {
                    assert_eq!(error.kind, ControlErrorKind::Busy, "{error}");
                    assert!(error.message.contains("shard 1 failed"), "{error}");
                    refused += 1;
                    if !is_move {
                        rig.done(request);
                    }
                }
                other => panic!("{request:?}: {other:?}"),
            }
            assert!(rig.shards.check_account().is_empty(), "{:?}", rig.shards.check_account());
            rig.shards.all().for_each(|shard| shard.check_shares());
        }
    }
    assert!(refused >= 3 && done >= 10, "{refused} refused, {done} done");
}

/// Goal: what administrators ask of a shard that fails meanwhile is refused and not done, or done; the first shard's account is true, and what
/// was refused can be asked again. Method: requests of each kind, each with a failure at another moment after it.
#[test]
fn requests_under_way_end_when_a_shard_fails() {
    requests_of_a_shard_that_fails();
}

/// Goal: a question that waited for a shard and was sent to it again is answered, though the shard fails once more before it answers. Method: it
/// fails as soon as it is back.
#[test]
fn a_question_outlives_two_failures() {
    let mut book = PanicBook::default();
    let mut rig = Rig::new();
    set_up(&mut rig);
    rig.fail(&mut book);
    rig.ask_as(STATUS, ControlRequest::Status);
    let serves = |rig: &Rig| rig.shards.all().all(diecut_shard::Shard::is_ready);
    rig.run_until(|rig| serves(rig) && rig.shards.tells(0, 1));
    assert_eq!(rig.answer(STATUS), None, "it is on its way to the shard");
    rig.fail(&mut PanicBook::default());
    rig.run_until(Rig::is_back);
    rig.run_until(|rig| rig.actions.iter().any(|(_, action)| matches!(action, Action::Answer { .. })));
    let Some(ControlResponse::Status(status)) = rig.answer(STATUS) else { panic!("it is answered") };
    assert_eq!(status.vssds.len(), 2);
    assert!(rig.shards.check_account().is_empty(), "{:?}", rig.shards.check_account());
}

/// Blocks that are written until something is exchanged.
const WORN: std::ops::Range<u64> = 200..LBAS;

impl Rig {
    fn second(&self) -> &diecut_shard::Shard<Device> {
        self.shards.all().nth(1).unwrap()
    }

    /// Whether an exchange is under way on the second shard.
    fn is_exchanging(&self) -> bool {
        !self.second().pool().migration_status().exchanges.is_empty()
    }

    /// Writes a little of what is worn.
    fn wear(&mut self, round: u64) {
        let first = WORN.start + round * 8 % (WORN.end - WORN.start);
        self.write_to(1, 2, first, &std::array::from_fn::<u64, 8, _>(|at| first + at as u64));
        self.run_until(|rig| !rig.done.is_empty());
        self.done.pop().unwrap().result.unwrap();
    }

    /// All that was to be done is, and the accounts are true. The channels that nobody uses can be had, and nothing was lost.
    fn check_evenness(&mut self, what: &str) {
        self.run_until(|rig| rig.shards.is_at_rest());
        assert!(self.shards.check_account().is_empty(), "{what}: {:?}", self.shards.check_account());
        self.shards.all().for_each(|shard| shard.check_shares());
        self.shards.all().for_each(|shard| shard.pool().check_invariants());
        for lba in WORN.step_by(7) {
            assert_eq!(self.read(lba), lba, "{what}");
        }
        let both = VssdSpec { throughput_level: 2, ..VssdSpec::new("both", "a", Isolation::Channel, 280) };
        assert_eq!(self.ask(ControlRequest::CreateVssd(both)), ControlResponse::Done, "{what}");
    }
}

/// A rig whose second shard's tenant wore its channel until just before something is exchanged for that: what is due next is asked for in
/// the next turns.
fn worn() -> Rig {
    let mut rig = Rig::new();
    set_up(&mut rig);
    rig.done(ControlRequest::SetWear(WearSettings {
        channel_threshold_erases: Some(8),
        die_threshold_erases: Some(8),
        rate: Some(Size(0)),
        ..WearSettings::default()
    }));
    for round in 0.. {
        rig.wear(round);
        if round >= (WORN.end - WORN.start) / 8
            && (rig.shards.lead().is_administering() || rig.is_exchanging())
        {
            return rig;
        }
        assert!(round < 20_000, "nothing is ever exchanged");
    }
    rig
}

/// Turns until something is exchanged, and until that is over.
fn turns_of_an_exchange() -> [usize; 2] {
    let mut rig = worn();
    let mut turns = 0;
    [true, false].map(|is_exchanging| {
        while rig.is_exchanging() != is_exchanging {
            rig.step();
            turns += 1;
            assert!(turns < 1_000_000, "an exchange never begins, or never ends");
        }
        turns
    })
}

/// The shard of an exchange fails after so many turns: before the exchange, in the midst of it, or in the turn in which it ends, so that nobody was
/// told. Whether it was under way.
/// `is_last`: nothing is to be exchanged any more when it is back, so nothing puts right what was forgotten.
fn fail_after(turns: usize, is_last: bool) -> bool {
    const TOKEN: ControlToken = ControlToken(1 << 43);
    let mut rig = worn();
    (0..turns).for_each(|_| rig.step());
    let is_exchanging = rig.is_exchanging();
    rig.fail_now(&mut PanicBook::default());
    if is_last {
        let off = WearSettings {
            channel_threshold_erases: Some(0),
            die_threshold_erases: Some(0),
            ..WearSettings::default()
        };
        rig.ask_as(TOKEN, ControlRequest::SetWear(off));
    }
    rig.run_until(Rig::is_back);
    rig.check_evenness(&format!("a failure after {turns} turns"));
    is_exchanging
}

/// A failure before an exchange, at moments along it, and in each turn around its end.
fn exchanges_of_a_shard_that_fails() {
    let [begun, over] = turns_of_an_exchange();
    let along = (1..8).map(|eighth| begun + (over - begun) * eighth / 8);
    let around_begin = begun.saturating_sub(6)..begun + 3;
    let mut amid = 0;
    for turns in around_begin.chain(along).chain(over - 3..over + 2) {
        amid += u32::from(fail_after(turns, false));
        fail_after(turns, true);
    }
    assert!(amid >= 8, "{amid} times an exchange was under way");
}

/// Goal: an exchange for even wear whose shard fails goes on, and one that ended with it, or was forgotten, is waited for by nobody: its channels can be
/// had again. Method: a check that fails at moments before it, all along it, and in each turn around its end.
#[test]
fn an_exchange_goes_on_or_is_forgotten_when_its_shard_fails() {
    exchanges_of_a_shard_that_fails();
}

/// A request that is written into the catalog, and a failure of the second shard after each number of turns.
fn catalog_on_a_shard_that_fails() {
    const TOKEN: ControlToken = ControlToken(1 << 42);
    let begin = || {
        let mut rig = Rig::new();
        set_up(&mut rig);
        rig.ask_as(TOKEN, ControlRequest::CreateTenant(TenantSpec::new("later")));
        rig
    };
    let mut rig = begin();
    let is_answer =
        |(_, action): &(u16, Action)| matches!(action, Action::Answer { token, .. } if *token == TOKEN);
    let turns = (0..100_000).find(|_| {
        rig.step();
        rig.actions.iter().any(is_answer)
    });
    for turns in 0..turns.expect("it is answered") {
        let mut rig = begin();
        (0..turns).for_each(|_| rig.step());
        rig.fail_now(&mut PanicBook::default());
        rig.run_until(Rig::is_back);
        assert_eq!(rig.answer(TOKEN), Some(ControlResponse::Done), "a failure after {turns} turns");
        assert!(rig.shards.lead().state().tenants.contains_key("later"));
    }
}

/// Goal: a request that is being written into the catalog is carried out whenever the second shard fails, and one shard is enough. Method: a failure
/// after each number of turns.
#[test]
fn the_catalog_is_written_beside_a_failure_in_any_turn() {
    catalog_on_a_shard_that_fails();
}

/// The tests of this page fail where a bug is planted.
#[test]
#[cfg(feature = "mutants")]
fn planted_bugs_are_noticed() {
    use diecut_units::marks::{mutant_reached_count, plant_mutant};
    let planted: [(&str, fn()); 3] = [
        (
            "shard: exchanges that ended with a shard that failed are waited for",
            exchanges_of_a_shard_that_fails,
        ),
        ("shard: steps that a shard lost are taken for done", requests_of_a_shard_that_fails),
        ("shard: steps that a shard lost are answered by nobody", requests_of_a_shard_that_fails),
    ];
    for (name, test) in planted {
        assert!(plant_mutant(Some(name)), "{name}");
        let noticed = catch_unwind(test).is_err();
        let reached = mutant_reached_count();
        plant_mutant(None);
        assert!(reached > 0 && noticed, "{name}: reached {reached} times, noticed: {noticed}");
    }
}
