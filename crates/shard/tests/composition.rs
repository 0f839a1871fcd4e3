//! Goal: what one shard promises below the target: administration that changes all or nothing and waits for nothing it need not, commands
//! that reach their volume and no other, and restarts that lose nothing. Method: the whole stack on an emulated device in virtual time, requests
//! of administrators, and commands through a door without hosts.

use diecut_blockspace::LogicalBlock;
use diecut_blockspace::session::Command;
use diecut_blockspace::wire::{Opcode, Submission};
use diecut_emulator::{Backing, Device, Fault, Options, Pacing, Profile};
use diecut_media::Media;
use diecut_namespace::contract::*;
use diecut_shard::control::*;
use diecut_shard::drive::{Action, BlockAction, BlockEvent, BlockSession, Drive, Event};
use diecut_shard::notice::Notice;
use diecut_shard::{
    AdmissionConfig, BucketSize, CostModel, DOOR_SOURCE_BIT, DeviceShaper, Shard, ShardConfig, TokenUnit,
};
use diecut_spec::{Amount, Isolation, Nguid, Serves, Sharing, Size};
use diecut_units::{Buffer, BufferMut, Time};
use diecut_vssd::PoolConfig;
use std::collections::BTreeMap;

struct Rig {
    shard: Shard<Device>,
    now: Time,
    actions: Vec<Action>,
    next_token: u64,
    /// Token of the first write of a flood, and what was answered of it when its test began.
    flood_from: u64,
    answered_before: Vec<NamespaceCompletion>,
}

fn config(device: &Device) -> ShardConfig {
    let pool = PoolConfig::suited_to(device.geometry());
    ShardConfig { pool, staging_bytes_per_vssd: 256 << 10, ..ShardConfig::default() }
}

fn device(pacing: Pacing) -> Device {
    device_with(pacing, 8 << 20)
}

fn device_with(pacing: Pacing, protected_memory_bytes: u64) -> Device {
    backed_by(Backing::Tags, pacing, protected_memory_bytes)
}

fn backed_by(backing: Backing, pacing: Pacing, protected_memory_bytes: u64) -> Device {
    let options = Options { backing, pacing, seed: 3, ..Options::default() };
    let mut profile = Profile::named("tiny").unwrap();
    profile.protected_memory_bytes = protected_memory_bytes;
    // A quarter of a die must hold enough segments for a cleaner.
    profile.geometry.blocks_per_plane = 140;
    Device::create(&profile, options).unwrap()
}

impl Rig {
    fn over(device: Device, now: Time) -> Rig {
        let config = config(&device);
        Rig::with(device, config, now)
    }
    fn with(device: Device, config: ShardConfig, now: Time) -> Rig {
        let shard = Shard::new(device, config, now);
        let mut rig = Rig {
            shard,
            now,
            actions: Vec::new(),
            next_token: 0,
            flood_from: 0,
            answered_before: Vec::new(),
        };
        for _ in 0..100_000 {
            if rig.shard.is_ready() {
                return rig;
            }
            assert_eq!(rig.shard.failure(), None);
            rig.step();
        }
        panic!("the shard never opened");
    }
    fn step(&mut self) {
        self.now = self.now.max(self.shard.deadline().min(Time(self.now.0 + 1_000_000_000)));
        self.shard.work(self.now, &mut self.actions);
    }
    fn ask(&mut self, request: ControlRequest) -> ControlResponse {
        self.next_token += 1;
        let token = ControlToken(self.next_token);
        let request = Box::new(request);
        self.shard.handle(Event::Control { token, request }, self.now, &mut self.actions);
        for _ in 0..100_000 {
            for action in std::mem::take(&mut self.actions) {
                if let Action::Answer { token: of, response } = action
                    && of == token
                {
                    return *response;
                }
            }
            self.step();
        }
        panic!("a request was never answered");
    }
    fn done(&mut self, request: ControlRequest) {
        let answer = self.ask(request.clone());
        let is_so = matches!(answer, ControlResponse::Done | ControlResponse::Unchanged);
        assert!(is_so, "{request:?}: {answer:?}");
    }
    fn refused(&mut self, request: ControlRequest) -> String {
        match self.ask(request.clone()) {
            ControlResponse::Refused(error) => error.message,
            other => panic!("{request:?} was answered with {other:?}"),
        }
    }
    fn run(&mut self, namespace: u32, operation: NamespaceOperation) -> NamespaceCompletion {
        self.next_token += 1;
        let token = CommandToken(self.next_token);
        let source = SourceId(DOOR_SOURCE_BIT | namespace);
        let (namespace, arrived) = (NamespaceId(namespace), self.now);
        self.shard.submit(NamespaceCommand { token, namespace, source, arrived, operation });
        let mut completions = Vec::new();
        for _ in 0..100_000 {
            self.step();
            self.shard.take_completions(&mut completions);
            if let Some(completion) = completions.pop() {
                assert_eq!(completion.token, token);
                return completion;
            }
        }
        panic!("a command was never answered");
    }
    fn write(&mut self, namespace: u32, lba: u64, tag: u64) -> Result<(), NamespaceError> {
        let range = LbaRange { first_lba: lba, lba_count: 1 };
        let data = Buffer::copy_from(&tag.to_le_bytes());
        self.run(
            namespace,
            NamespaceOperation::Write {
                range,
                data,
                force_unit_access: false,
                placement: PlacementTarget::default(),
            },
        )
        .result
    }
    fn read(&mut self, namespace: u32, lba: u64) -> u64 {
        let range = LbaRange { first_lba: lba, lba_count: 1 };
        let destination = BufferMut::copy_from(&[0xee; 8]);
        let done = self.run(namespace, NamespaceOperation::Read { range, destination });
        done.result.unwrap();
        u64::from_le_bytes(done.data.unwrap()[..].try_into().unwrap())
    }
    fn set_up(&mut self) {
        for (name, isolation, level) in [("a", Isolation::Channel, 1), ("b", Isolation::Software, 0)] {
            self.done(ControlRequest::CreateTenant(TenantSpec::new(name)));
            self.done(ControlRequest::CreateVssd(vssd(name, isolation, level)));
            self.done(ControlRequest::CreateVolume(volume(name, 2 << 20)));
            self.done(ControlRequest::CreateSubsystem(subsystem(name)));
        }
    }
}

fn vssd(name: &str, isolation: Isolation, throughput_level: u32) -> VssdSpec {
    VssdSpec { throughput_level, ..VssdSpec::new(&format!("vssd-{name}"), name, isolation, 280) }
}

fn subsystem(name: &str) -> SubsystemSpec {
    SubsystemSpec {
        nqn: format!("nqn.2026-11.org.diecut:{name}"),
        tenant: name.to_owned(),
        serial: None,
        model: None,
        allow_any_host: true,
        allowed_hosts: Vec::new(),
        paths: Vec::new(),
        namespaces: vec![NamespaceSpec::new(1, &format!("volume-{name}"))],
    }
}

fn volume(name: &str, size_bytes: u64) -> VolumeSpec {
    VolumeSpec {
        name: format!("volume-{name}"),
        vssd: format!("vssd-{name}"),
        size: Size(size_bytes),
        uuid: None,
        nguid: None,
        zones: Default::default(),
        placement: Vec::new(),
    }
}

#[test]
fn two_tenants_write_and_read_what_is_theirs() {
    for pacing in [Pacing::Modelled, Pacing::Unpaced] {
        let mut rig = Rig::over(device(pacing), Time::ZERO);
        rig.set_up();
        let mut expected = BTreeMap::new();
        for round in 0..4000u64 {
            let (namespace, lba) = (1 + (round % 2) as u32, round * 7 % 512);
            rig.write(namespace, lba, round + 1).unwrap();
            expected.insert((namespace, lba), round + 1);
        }
        for lba in 0..512 {
            for namespace in 1..3 {
                let found = rig.read(namespace, lba);
                assert_eq!(found, expected.get(&(namespace, lba)).copied().unwrap_or(0), "{namespace} {lba}");
            }
        }
        let status = rig.shard.status();
        assert_eq!(status.vssds[0].traffic.host_written_bytes, 2000 * 4096);
        assert_eq!(status.volumes[0].writes, 2000);
        let places = &status.vssds[0].placement;
        assert!(!places.is_empty() && places.iter().all(|place| place.soft_plane.is_none()), "{places:?}");
        rig.shard.pool().check_invariants();
    }
}

#[test]
fn refusals_name_the_object_and_change_nothing() {
    let mut rig = Rig::over(device(Pacing::Unpaced), Time::ZERO);
    rig.set_up();
    let before = rig.shard.state().clone();
    let tenant = |name: &str| ControlRequest::CreateTenant(TenantSpec::new(name));
    for (request, says) in [
        (tenant("a b"), "letters"),
        (ControlRequest::DeleteTenant("c".to_owned()), "no tenant \"c\""),
        (ControlRequest::DeleteTenant("a".to_owned()), "vssd-a"),
        (ControlRequest::DeleteVssd("vssd-a".to_owned()), "volume-a"),
        (ControlRequest::DeleteVolume("volume-a".to_owned()), "detach"),
        (ControlRequest::CreateVssd(vssd("a", Isolation::Die, 1)), "another definition"),
        (
            ControlRequest::CreateVssd(VssdSpec { tenant: "x".to_owned(), ..vssd("z", Isolation::Die, 1) }),
            "\"x\"",
        ),
        (
            ControlRequest::CreateVssd(VssdSpec {
                tenant: "a".to_owned(),
                ..vssd("z", Isolation::Channel, 1)
            }),
            "free channels",
        ),
        (
            ControlRequest::CreateVssd(VssdSpec { tenant: "a".to_owned(), ..vssd("z", Isolation::Die, 99) }),
            "level 99",
        ),
        (
            ControlRequest::CreateVssd(VssdSpec {
                tenant: "a".to_owned(),
                over_provisioning_permille: 1_000_000_000,
                ..vssd("z", Isolation::Software, 0)
            }),
            "too small",
        ),
        (
            ControlRequest::CreateVssd(VssdSpec {
                tenant: "a".to_owned(),
                sharing: Sharing::Strict,
                ..vssd("z", Isolation::Software, 0)
            }),
            "needs a rate limit",
        ),
        (
            ControlRequest::CreateVssd(VssdSpec {
                tenant: "a".to_owned(),
                rate_limit: Size(1 << 20),
                ..vssd("z", Isolation::None, 0)
            }),
            "first come first served",
        ),
        (
            ControlRequest::CreateVssd(VssdSpec {
                tenant: "a".to_owned(),
                rate_limit: Size(200),
                sharing: Sharing::Strict,
                ..vssd("z", Isolation::Software, 0)
            }),
            "use 1048576 or more",
        ),
        (ControlRequest::CreateVolume(VolumeSpec { name: "z".to_owned(), ..volume("a", 5000) }), "4096"),
        (
            ControlRequest::CreateVolume(VolumeSpec {
                name: "z".to_owned(),
                nguid: Some(Nguid([0; 16])),
                ..volume("a", 1 << 20)
            }),
            "a NGUID of zeros",
        ),
        (
            ControlRequest::AttachNamespace {
                subsystem: "nqn.2026-11.org.diecut:a".to_owned(),
                nsid: 2,
                volume: "volume-b".to_owned(),
            },
            "another",
        ),
        (
            ControlRequest::DenyHost {
                subsystem: "nqn.2026-11.org.diecut:a".to_owned(),
                host: "nqn.2026-11.org.diecut:h".to_owned(),
            },
            "not among",
        ),
    ] {
        let message = rig.refused(request.clone());
        assert!(message.contains(says), "{request:?}: {message}");
        assert_eq!(*rig.shard.state(), before);
    }
    // What exists already with the same definition is no error.
    for again in [tenant("a"), ControlRequest::CreateVssd(vssd("a", Isolation::Channel, 1))] {
        assert_eq!(rig.ask(again), ControlResponse::Unchanged);
    }
    assert_eq!(*rig.shard.state(), before);
}

#[test]
fn everything_can_be_deleted_and_made_again() {
    let mut rig = Rig::over(device(Pacing::Modelled), Time::ZERO);
    for round in 0..5 {
        rig.set_up();
        let namespace = rig.shard.state().volumes["volume-a"].namespace;
        assert_eq!(rig.read(namespace, 5), 0, "round {round}: nothing of the last round is seen");
        rig.write(namespace, 5, 77).unwrap();
        for name in ["a", "b"] {
            rig.done(ControlRequest::DeleteSubsystem(format!("nqn.2026-11.org.diecut:{name}")));
            rig.done(ControlRequest::DeleteVolume(format!("volume-{name}")));
            rig.done(ControlRequest::DeleteVssd(format!("vssd-{name}")));
            rig.done(ControlRequest::DeleteTenant(name.to_owned()));
        }
        assert_eq!(rig.shard.pool().free_resources(), (2, 4));
    }
    assert!(rig.shard.media().capabilities().copy_within_die);
}

/// The driver sleeps until the shard's deadline, and nothing but the bucket takes time here: reads of a strict vSSD take
/// what its rate says, also after a restart, and those of its neighbour take none.
#[test]
fn a_strict_rate_is_kept_by_the_deadline() {
    const RATE: u64 = 1 << 20;
    let mut rig = Rig::over(device(Pacing::Unpaced), Time::ZERO);
    for name in ["a", "b"] {
        let limited = name == "b";
        rig.done(ControlRequest::CreateTenant(TenantSpec::new(name)));
        rig.done(ControlRequest::CreateVssd(VssdSpec {
            rate_limit: Size(if limited { RATE } else { 0 }),
            sharing: if limited { Sharing::Strict } else { Sharing::WorkConserving },
            ..vssd(name, Isolation::Software, 0)
        }));
        rig.done(ControlRequest::CreateVolume(volume(name, 2 << 20)));
        rig.done(ControlRequest::CreateSubsystem(subsystem(name)));
    }
    for lba in 0..512 {
        rig.write(1, lba, 1).unwrap();
        rig.write(2, lba, 1).unwrap();
    }
    // Staging holds all of it until the rate lets it be programmed.
    while rig.now < Time(5_000_000_000) {
        rig.step();
    }
    for _life in 0..2 {
        let mut took_ns = [0, 0];
        for (namespace, took_ns) in [1, 2].into_iter().zip(&mut took_ns) {
            let start = rig.now;
            for lba in 0..250 {
                rig.read(namespace, lba);
            }
            *took_ns = rig.now.0 - start.0;
        }
        let expected_ns = 250 * 4096 * 1_000_000_000 / RATE;
        assert_eq!(took_ns[0], 0, "nobody limits the neighbour");
        assert!((expected_ns * 98 / 100..expected_ns * 11 / 10).contains(&took_ns[1]), "{took_ns:?}");
        let now = rig.now;
        let mut device = rig.shard.into_media();
        device.process_death(now);
        rig = Rig::over(device, now);
    }
}

impl Rig {
    /// Begins a request; its token.
    fn begin(&mut self, request: ControlRequest) -> u64 {
        self.next_token += 1;
        let token = self.next_token;
        let event = Event::Control { token: ControlToken(token), request: Box::new(request) };
        self.shard.handle(event, self.now, &mut self.actions);
        token
    }
    /// Answers so far, in order.
    fn answers(&mut self) -> Vec<(u64, ControlResponse)> {
        let answered = self.actions.drain(..).filter_map(|action| match action {
            Action::Answer { token, response } => Some((token.0, *response)),
            _ => None,
        });
        answered.collect()
    }
    /// Goes on until so many requests are answered, or so much time is gone.
    fn answers_within(&mut self, count: usize, span_ns: u64) -> Vec<(u64, ControlResponse)> {
        let until = Time(self.now.0 + span_ns);
        let mut answers = Vec::new();
        while answers.len() < count && self.now < until {
            self.step();
            answers.extend(self.answers());
        }
        answers
    }
    /// Writes single blocks, and does not wait for them.
    fn flood(&mut self, namespace: u32, count: u64) {
        self.flood_from = self.next_token + 1;
        for lba in 0..count {
            self.next_token += 1;
            let range = LbaRange { first_lba: lba % 512, lba_count: 1 };
            let data = Buffer::copy_from(&lba.to_le_bytes());
            self.shard.submit(NamespaceCommand {
                token: CommandToken(self.next_token),
                namespace: NamespaceId(namespace),
                source: SourceId(DOOR_SOURCE_BIT | namespace),
                arrived: self.now,
                operation: NamespaceOperation::Write {
                    range,
                    data,
                    force_unit_access: false,
                    placement: PlacementTarget::default(),
                },
            });
        }
    }
}

/// A store made when any limit was accepted: tenant "b" has 200 bytes per second, and far more writes under way than that.
fn with_a_rate_of_nearly_nothing(volatile_cache: bool) -> Rig {
    let device = device_with(Pacing::Unpaced, if volatile_cache { 0 } else { 8 << 20 });
    let config = ShardConfig { rate_limit_min_bytes_per_second: 1, volatile_cache, ..config(&device) };
    let mut rig = Rig::with(device, config, Time::ZERO);
    for name in ["a", "b"] {
        let limited = name == "b";
        rig.done(ControlRequest::CreateTenant(TenantSpec::new(name)));
        rig.done(ControlRequest::CreateVssd(VssdSpec {
            rate_limit: Size(if limited { 200 } else { 0 }),
            sharing: if limited { Sharing::Strict } else { Sharing::WorkConserving },
            ..vssd(name, Isolation::Software, 0)
        }));
        rig.done(ControlRequest::CreateVolume(volume(name, 2 << 20)));
    }
    rig.flood(2, 2000);
    let until = Time(rig.now.0 + 2_000_000_000);
    while rig.now < until {
        rig.step();
    }
    rig.shard.take_completions(&mut rig.answered_before);
    let answered = rig.answered_before.len();
    assert!(answered < 1500, "the limit keeps {} of 2000 writes", 2000 - answered);
    rig
}

/// Goal: ends do not wait for a rate limit, whatever it is, and requests for other objects do not wait for an end. Method: a vSSD
/// of 200 bytes per second whose queues are full; its volume is deleted, then it, and another tenant's objects change
/// meanwhile; then the limit holds for nobody else.
#[test]
fn an_end_does_not_wait_for_a_rate_limit() {
    let mut rig = with_a_rate_of_nearly_nothing(false);
    let deletion = rig.begin(ControlRequest::DeleteVolume("volume-b".to_owned()));
    let tenant = rig.begin(ControlRequest::CreateTenant(TenantSpec::new("c")));
    let other =
        rig.begin(ControlRequest::CreateVolume(VolumeSpec { name: "a2".to_owned(), ..volume("a", 1 << 20) }));
    let mut answers = rig.answers_within(3, 1_000_000_000);
    answers.sort_by_key(|(token, _)| *token);
    let done = [deletion, tenant, other].map(|token| (token, ControlResponse::Done));
    assert_eq!(answers, done);
    let vssd = rig.begin(ControlRequest::DeleteVssd("vssd-b".to_owned()));
    assert_eq!(rig.answers_within(1, 1_000_000_000), [(vssd, ControlResponse::Done)]);
    rig.shard.pool().check_invariants();
}

/// Goal: a limit that was lifted for an end holds again afterwards. Method: the volume of the slow vSSD is deleted, another
/// one made and written to.
#[test]
fn a_rate_limit_holds_again_after_an_end() {
    let mut rig = with_a_rate_of_nearly_nothing(false);
    rig.done(ControlRequest::DeleteVolume("volume-b".to_owned()));
    rig.done(ControlRequest::CreateVolume(volume("b", 2 << 20)));
    let namespace = rig.shard.state().volumes["volume-b"].namespace;
    let mut answered = Vec::new();
    rig.shard.take_completions(&mut answered);
    rig.flood(namespace, 2000);
    let until = Time(rig.now.0 + 2_000_000_000);
    while rig.now < until {
        rig.step();
    }
    answered.clear();
    rig.shard.take_completions(&mut answered);
    assert!(answered.len() < 1500, "{} of 2000 writes passed", answered.len());
}

/// Goal: stopping ignores limits, and what was acknowledged is there afterwards. Method: the cache is volatile, so a stop
/// programs what it holds.
#[test]
fn a_stop_does_not_wait_for_a_rate_limit() {
    let mut rig = with_a_rate_of_nearly_nothing(true);
    let stop = rig.begin(ControlRequest::Shutdown);
    assert_eq!(rig.answers_within(1, 1_000_000_000), [(stop, ControlResponse::Done)]);
    // What this door is answered during the stop, which closes no door but the target, is in the volatile cache.
    let answered = rig.answered_before;
    let acknowledged: Vec<u64> = answered.iter().map(|one| one.token.0 - rig.flood_from).collect();
    let newest = |lba| acknowledged.iter().copied().filter(|number| number % 512 == lba).max();
    let now = rig.now;
    let mut device = rig.shard.into_media();
    device.process_death(now);
    let config = ShardConfig { volatile_cache: true, ..config(&device) };
    let mut rig = Rig::with(device, config, now);
    for lba in 0..512 {
        assert!(Some(rig.read(2, lba)) >= newest(lba), "the last acknowledged write of block {lba}");
    }
}

/// Goal: requests for different objects are carried out side by side, those for the same one in their order; one that is not
/// done in time is answered with what it waits for, and goes on. Method: a vSSD is deleted whose dies have thousands of
/// writes under way and take their time.
#[test]
fn requests_for_different_objects_do_not_wait_for_each_other() {
    let mut rig = Rig::over(device(Pacing::Modelled), Time::ZERO);
    rig.set_up();
    rig.done(ControlRequest::DeleteSubsystem("nqn.2026-11.org.diecut:a".to_owned()));
    rig.flood(1, 3000);
    rig.step();
    rig.done(ControlRequest::DeleteVolume("volume-a".to_owned()));
    let within = |patience_ms, request| ControlRequest::Within { patience_ms, request: Box::new(request) };
    let deletion = rig.begin(within(100, ControlRequest::DeleteVssd("vssd-a".to_owned())));
    // Both are about room on the device.
    let another = VssdSpec { tenant: "b".to_owned(), ..vssd("z", Isolation::Software, 0) };
    let behind = rig.begin(within(130, ControlRequest::CreateVssd(another)));
    let tenant = rig.begin(ControlRequest::CreateTenant(TenantSpec::new("c")));
    let host = ControlRequest::AllowHost {
        subsystem: "nqn.2026-11.org.diecut:b".to_owned(),
        host: "nqn.2026-11.org.diecut:h".to_owned(),
    };
    let host = rig.begin(host);
    let answers = rig.answers_within(4, 10_000_000_000);
    let order: Vec<u64> = answers.iter().map(|(token, _)| *token).collect();
    assert_eq!(order, [tenant, host, deletion, behind], "{answers:?}");
    let late = |at: usize| match &answers[at].1 {
        ControlResponse::Refused(error) if error.kind == ControlErrorKind::Unfinished => {
            error.message.clone()
        }
        other => panic!("{other:?}"),
    };
    let (deletion, behind) = (late(2), late(3));
    assert!(
        deletion.contains("deletion of vSSD \"vssd-a\"") && deletion.contains("flash operations"),
        "{deletion}"
    );
    assert!(behind.contains("not begun") && behind.contains("deletion of vSSD \"vssd-a\""), "{behind}");
    let until = Time(rig.now.0 + 5_000_000_000);
    while rig.shard.is_administering() && rig.now < until {
        rig.step();
    }
    assert!(!rig.shard.is_administering(), "what was begun goes on and ends");
    assert_eq!(rig.shard.pool().free_resources().1, 3, "the dies of the vSSD are free");
    // Everything that was answered is written down, and the deletion, but nothing that was not begun.
    let (now, before) = (rig.now, rig.shard.state().clone());
    let mut device = rig.shard.into_media();
    device.process_death(now);
    let rig = Rig::over(device, now);
    let state = rig.shard.state();
    assert_eq!((&state.vssds, &state.subsystems), (&before.vssds, &before.subsystems));
    assert!(state.tenants.contains_key("c"));
    assert_eq!(state.vssds.keys().collect::<Vec<_>>(), ["vssd-b"]);
    assert_eq!(state.subsystems["nqn.2026-11.org.diecut:b"].allowed_hosts.len(), 1);
}

/// Goal: volumes that are made side by side get namespaces of their own, or the next start would refuse the catalog. Method: two at once,
/// on two vSSDs, then the death of the process.
#[test]
fn volumes_made_side_by_side_have_namespaces_of_their_own() {
    let mut rig = Rig::over(device(Pacing::Modelled), Time::ZERO);
    rig.set_up();
    for name in ["a", "b"] {
        let spec = VolumeSpec { name: format!("more-{name}"), ..volume(name, 1 << 20) };
        rig.begin(ControlRequest::CreateVolume(spec));
    }
    let answers = rig.answers_within(2, 10_000_000_000);
    assert!(answers.iter().all(|(_, answer)| *answer == ControlResponse::Done), "{answers:?}");
    let (now, before) = (rig.now, rig.shard.state().clone());
    let mut namespaces: Vec<u32> = before.volumes.values().map(|volume| volume.namespace).collect();
    namespaces.sort_unstable();
    assert_eq!(namespaces, [1, 2, 3, 4]);
    let mut device = rig.shard.into_media();
    device.process_death(now);
    assert_eq!(Rig::over(device, now).shard.state().volumes, before.volumes);
}

/// Goal: what a vSSD that was deleted left in its slots of protected memory is nobody's. Method: one is deleted with writes that are
/// staged, another one gets its slots, and the process dies before anything was staged there. Seen to fail when the deletion of the volume changes
/// nothing and the slots are not cleared: either is enough by itself.
#[test]
fn what_a_deleted_vssd_staged_is_gone() {
    for volumes in [1, 0] {
        let mut rig = Rig::over(device(Pacing::Modelled), Time::ZERO);
        rig.set_up();
        (0..40).for_each(|lba| rig.write(1, lba, 7000 + lba).unwrap());
        let staged_at = |rig: &Rig| rig.shard.state().vssds["vssd-a"].staging_slot;
        let slot = staged_at(&rig);
        assert!(slot.is_some());
        rig.done(ControlRequest::DeleteSubsystem(subsystem("a").nqn));
        rig.done(ControlRequest::DeleteVolume("volume-a".to_owned()));
        rig.done(ControlRequest::DeleteVssd("vssd-a".to_owned()));
        rig.done(ControlRequest::CreateVssd(vssd("a", Isolation::Channel, 1)));
        assert_eq!(staged_at(&rig), slot, "the same slots");
        for _ in 0..volumes {
            rig.done(ControlRequest::CreateVolume(volume("a", 2 << 20)));
        }
        let now = rig.now;
        let mut device = rig.shard.into_media();
        device.process_death(now);
        let mut rig = Rig::over(device, now);
        assert_eq!(reason(&rig), None);
        if volumes == 0 {
            rig.done(ControlRequest::CreateVolume(volume("a", 2 << 20)));
        }
        rig.done(ControlRequest::CreateSubsystem(subsystem("a")));
        let namespace = rig.shard.state().volumes["volume-a"].namespace;
        (0..40).for_each(|lba| assert_eq!(rig.read(namespace, lba), 0, "LBA {lba}"));
    }
}

/// The canary of the tests above: planted bugs must be noticed.
#[test]
fn planted_bugs_of_administration_are_noticed() {
    diecut_testing::planted::all_are_noticed(&[
        ("shard: an end waits for the rate limit", an_end_does_not_wait_for_a_rate_limit),
        ("shard: an end waits for the rate limit", a_stop_does_not_wait_for_a_rate_limit),
        ("shard: a limit stays lifted", a_rate_limit_holds_again_after_an_end),
        ("shard: one request after the other", requests_for_different_objects_do_not_wait_for_each_other),
    ]);
}

/// What the first vSSD says of itself.
fn reason(rig: &Rig) -> Option<String> {
    rig.shard.status().vssds[0].health.read_only_reason.clone()
}

fn repair(rig: &mut Rig, vssd: &str, accepts_loss: bool) -> RepairReport {
    match rig.ask(ControlRequest::RepairVssd { vssd: vssd.to_owned(), accepts_loss }) {
        ControlResponse::Repaired(report) => *report,
        other => panic!("a repair was answered with {other:?}: {}", rig.shard.describe()),
    }
}

/// The process dies, and the states of all erase blocks become zeros, and what was staged; the vSSDs stay. Then it starts.
fn without_block_states(rig: Rig) -> Rig {
    let now = rig.now;
    let blocks = rig.shard.media().geometry().erase_blocks() as usize;
    let staging = {
        let geometry = *rig.shard.media().geometry();
        diecut_vssd::Pool::block_states_size_bytes(&geometry, &PoolConfig::suited_to(&geometry))
    };
    let mut device = rig.shard.into_media();
    device.process_death(now);
    let memory = device.protected_memory().expect("it has some");
    // Behind the header: two slots of 32 bytes and a word for each block.
    memory.region(64..64 + blocks * 72).fill(0);
    memory.region(staging..memory.size_bytes()).fill(0);
    Rig::over(device, now)
}

/// Goal: a volume that the catalog knows and its store does not is lost, never new: its reads fail instead of giving zeros. And
/// what was lost can be accepted. Method: the states of all erase blocks are gone, so that the store is empty.
fn a_volume_without_its_store_is_lost() {
    let mut rig = Rig::over(device(Pacing::Unpaced), Time::ZERO);
    rig.set_up();
    for round in 0..2000u64 {
        rig.write(1, round * 7 % 512, round + 1).unwrap();
    }
    let now = rig.now;
    let mut device = rig.shard.into_media();
    device.process_death(now);
    rig = Rig::over(device, now);
    assert_eq!((reason(&rig), rig.read(1, 7)), (None, 1538));
    rig = without_block_states(rig);
    rig.done(ControlRequest::DeleteSubsystem("nqn.2026-11.org.diecut:a".to_owned()));
    for life in 0..2 {
        let said = reason(&rig);
        // A deletion that cannot be is refused as a whole: the volume is still listed.
        let delete = ControlRequest::DeleteVolume("volume-a".to_owned());
        assert!(rig.refused(delete).contains("nothing was deleted"), "{life}");
        assert!(rig.shard.status().volumes.iter().any(|volume| volume.spec.name == "volume-a"), "{life}");
        assert!(said.as_ref().is_some_and(|said| said.contains("lost all of a volume")), "{life}: {said:?}");
        let range = LbaRange { first_lba: 7, lba_count: 1 };
        let destination = BufferMut::copy_from(&[0xee; 8]);
        let read = rig.run(1, NamespaceOperation::Read { range, destination });
        assert!(read.result.is_err(), "{life}: it reads as {:?}", read.data);
        assert!(rig.write(1, 7, 9).is_err());
        let report = repair(&mut rig, "vssd-a", false);
        assert_eq!(report.outcome, RepairOutcome::ReadOnly);
        assert_eq!(report.missing, ["volume \"volume-a\": it was made, and nothing of it is there"]);
        let lost = LostBytes { volume: "volume-a".to_owned(), offset_bytes: 0, size_bytes: 2 << 20 };
        assert_eq!((report.lost, report.lost_bytes), (vec![lost], 2 << 20));
        let now = rig.now;
        let mut device = rig.shard.into_media();
        device.process_death(now);
        rig = Rig::over(device, now);
    }
    let report = repair(&mut rig, "vssd-a", true);
    assert_eq!((report.outcome, report.lost_bytes, report.reason), (RepairOutcome::Accepted, 2 << 20, None));
    for life in 0..3u64 {
        assert_eq!(reason(&rig), None);
        rig.write(1, 7 + life, 100 + life).unwrap();
        assert_eq!(rig.read(1, 7), 100, "{life}");
        let range = LbaRange { first_lba: 40, lba_count: 1 };
        let destination = BufferMut::copy_from(&[0xee; 8]);
        let read = rig.run(1, NamespaceOperation::Read { range, destination });
        assert!(read.result.is_err(), "{life}: what was lost stays lost");
        let report = repair(&mut rig, "vssd-a", false);
        assert_eq!(report.outcome, RepairOutcome::Good);
        assert_eq!(report.lost_bytes, (2 << 20) - 4096 * (life + 1), "what was written since reads");
        let now = rig.now;
        let mut device = rig.shard.into_media();
        device.process_death(now);
        rig = Rig::over(device, now);
    }
    assert!(
        rig.refused(ControlRequest::RepairVssd { vssd: "x".to_owned(), accepts_loss: true })
            .contains("\"x\"")
    );
}

/// Seen to fail without the check: reads gave zeros, and the vSSD said that it was good.
#[test]
fn a_volume_that_its_store_does_not_know_is_lost() {
    a_volume_without_its_store_is_lost();
}

#[test]
fn a_lost_volume_that_counts_as_new_is_noticed() {
    diecut_testing::planted::is_noticed(
        "shard: a lost volume counts as new",
        a_volume_without_its_store_is_lost,
    );
}

/// Goal: a volume that cannot be deleted, because the medium has no room to write that down, is still there; and whatever became
/// of a deletion, a new volume shows nothing of an old one. Method: room goes after each number of steps of a deletion.
/// Seen to fail without the look at the store before the catalog changes, and while a creation took over what it found.
#[test]
fn a_deletion_without_room_leaves_the_volume_or_nothing_of_it() {
    let (mut refused, mut late) = (0, 0);
    for steps in 0..24 {
        let mut rig = Rig::over(device(Pacing::Modelled), Time::ZERO);
        rig.set_up();
        rig.done(ControlRequest::DeleteSubsystem("nqn.2026-11.org.diecut:a".to_owned()));
        // Until the segment that is open is full, and there is none for the deletion.
        let until = Time(rig.now.0 + 1_000_000_000_000);
        rig.shard.media_mut().add_fault(Fault::NoRoom { from_ns: 0, until_ns: until.0 });
        let written = (0..100_000u64).find(|at| rig.write(1, at * 7 % 512, at + 1).is_err());
        assert!(written.is_some(), "some write finds no room");
        let create = |name: &str| VolumeSpec { name: name.to_owned(), ..volume("a", 2 << 20) };
        let message = rig.refused(ControlRequest::CreateVolume(create("x")));
        assert!(message.contains("takes no writes: the file system"), "{message}");
        assert!(rig.now < until);
        let again = Time(until.0 + 1_000_000_000_000);
        let fault = Fault::NoRoom { from_ns: until.0, until_ns: again.0 };
        if steps > 0 {
            rig.now = until;
        }
        let token = ControlToken(1 << 40);
        let delete = || ControlRequest::DeleteVolume("volume-a".to_owned());
        rig.shard.handle(Event::Control { token, request: Box::new(delete()) }, rig.now, &mut rig.actions);
        for _ in 1..steps {
            rig.step();
        }
        rig.shard.media_mut().add_fault(fault);
        let mut answered = false;
        for _ in 0..1000 {
            answered |= rig
                .actions
                .drain(..)
                .any(|action| matches!(action, Action::Answer { token: of, .. } if of == token));
            if answered {
                break;
            }
            rig.step();
        }
        assert!(answered && rig.now < again, "after {steps} steps");
        let is_refused = rig.shard.state().volumes.contains_key("volume-a");
        rig.now = again;
        if is_refused {
            refused += 1;
            rig.done(delete());
        } else {
            late += 1;
        }
        rig.done(ControlRequest::CreateVolume(create("x")));
        let namespace = rig.shard.state().volumes["x"].namespace;
        for lba in 0..512 {
            assert_eq!(rig.read(namespace, lba), 0, "after {steps} steps");
        }
    }
    assert!(refused > 0 && late > 0, "{refused} {late}");
}

/// Goal: a volume that is being made or deleted when the server ends is not taken for lost: it is durable in its store before
/// the catalog names it, and leaves the catalog first. Method: the end comes after each number of steps.
#[test]
fn an_end_while_volumes_are_made_or_deleted_loses_none() {
    for (protected_memory_bytes, power_cut) in [(8 << 20, false), (8 << 20, true), (0, false), (0, true)] {
        let mut rig = Rig::over(device_with(Pacing::Modelled, protected_memory_bytes), Time::ZERO);
        rig.set_up();
        let spec = || VolumeSpec { name: "x".to_owned(), ..volume("a", 1 << 20) };
        let mut exists = false;
        for steps in 0..60 {
            let request = if exists {
                ControlRequest::DeleteVolume("x".to_owned())
            } else {
                ControlRequest::CreateVolume(spec())
            };
            let token = ControlToken(1 << 40 | steps);
            rig.shard.handle(Event::Control { token, request: Box::new(request) }, rig.now, &mut rig.actions);
            for _ in 0..steps {
                rig.step();
            }
            let now = rig.now;
            let mut device = rig.shard.into_media();
            if power_cut {
                device.power_cut(now);
                device.power_on();
            } else {
                device.process_death(now);
            }
            rig = Rig::over(device, now);
            assert_eq!(reason(&rig), None, "after {steps} steps, {protected_memory_bytes}, {power_cut}");
            exists = rig.shard.state().volumes.contains_key("x");
        }
    }
}

/// A thousand reads at once on a device whose dies queue eight operations: admission waits while the queues are full, every
/// read is answered, and a neighbour on other dies does not wait for them.
#[test]
fn full_queues_hold_their_tenant_back_and_nobody_else() {
    let device = device(Pacing::Modelled);
    let mut config = config(&device);
    config.pool.die_queue_depth = 8;
    let mut rig = Rig::with(device, config, Time::ZERO);
    rig.set_up();
    for lba in 0..512 {
        rig.write(1, lba, lba + 1).unwrap();
        rig.write(2, lba, lba + 1).unwrap();
    }
    while rig.now < Time(5_000_000_000) {
        rig.step();
    }
    let read = |namespace: u32, token: u64, lba: u64, arrived: Time| NamespaceCommand {
        token: CommandToken(token),
        namespace: NamespaceId(namespace),
        source: SourceId(DOOR_SOURCE_BIT | namespace),
        arrived,
        operation: NamespaceOperation::Read {
            range: LbaRange { first_lba: lba, lba_count: 1 },
            destination: BufferMut::copy_from(&[0; 8]),
        },
    };
    for token in 0..1000 {
        rig.shard.submit(read(2, 10_000 + token, token % 400, rig.now));
    }
    rig.step();
    rig.shard.submit(read(1, 1, 5, rig.now));
    let (mut completions, mut order, mut parked_most) = (Vec::new(), Vec::new(), 0);
    for _ in 0..100_000 {
        let queues = (0..4).map(|die| rig.shard.pool().die_queue(die));
        parked_most = parked_most.max(queues.map(|(_, parked)| parked).sum());
        rig.step();
        rig.shard.take_completions(&mut completions);
        for completion in completions.drain(..) {
            assert_eq!(completion.result, Ok(()));
            order.push(completion.token.0);
        }
        if order.len() == 1001 {
            break;
        }
    }
    assert_eq!(order.len(), 1001, "every read is answered");
    assert!(order.iter().position(|token| *token == 1).unwrap() < 300);
    // One round of admission, not the whole window of 1024 commands.
    assert!((1..300).contains(&parked_most), "{parked_most} were parked at once");
}

/// Acknowledged data, deallocations and everything an administrator made survive the death of the process and, with
/// protected memory, the power, in the middle of cleaning, over and over.
#[test]
fn restarts_lose_nothing_that_was_acknowledged() {
    for seed in 1..13u64 {
        let mut random = diecut_testing::Random::of(seed);
        let mut random = |below: u64| random.below(below);
        let pacing = if seed % 2 == 0 { Pacing::Unpaced } else { Pacing::Modelled };
        // Every third one has its block states in the journal on flash.
        let protected_memory_bytes = if seed % 3 == 0 { 0 } else { 8 << 20 };
        let mut rig = Rig::over(device_with(pacing, protected_memory_bytes), Time::ZERO);
        rig.set_up();
        let mut expected: BTreeMap<(u32, u64), u64> = BTreeMap::new();
        let mut version = 0;
        for _life in 0..12 {
            let specs = rig.shard.state().clone();
            for _ in 0..random(900) {
                let (namespace, lba) = (1 + random(2) as u32, random(512));
                version += 1;
                if random(10) == 0 {
                    let ranges = [LbaRange { first_lba: lba, lba_count: 1 }].into_iter().collect();
                    rig.run(namespace, NamespaceOperation::Deallocate { ranges }).result.unwrap();
                    expected.insert((namespace, lba), 0);
                } else {
                    rig.write(namespace, lba, version).unwrap();
                    expected.insert((namespace, lba), version);
                }
            }
            let now = rig.now;
            let mut device = rig.shard.into_media();
            if random(2) == 0 {
                device.process_death(now);
            } else {
                device.power_cut(now);
                device.power_on();
            }
            rig = Rig::over(device, now);
            let mut after = rig.shard.state().clone();
            assert_eq!(after.pool.starts, specs.pool.starts + 1);
            after.pool = specs.pool.clone();
            assert_eq!(after, specs, "seed {seed}");
            for ((namespace, lba), version) in &expected {
                assert_eq!(
                    rig.read(*namespace, *lba),
                    *version,
                    "seed {seed}: namespace {namespace} LBA {lba}"
                );
            }
            rig.shard.pool().check_invariants();
        }
        let erases: u64 = rig.shard.status().vssds.iter().map(|vssd| vssd.traffic.erases).sum();
        println!("seed {seed}: {erases} erases since the last start");
    }
}

/// What administrators say of even wear holds over restarts; saying it again writes nothing, and nothing else changes with it.
#[test]
fn settings_of_even_wear_survive() {
    let set = |change: WearSettings| ControlRequest::SetWear(change);
    for protected_memory_bytes in [0, 8 << 20] {
        let mut rig = Rig::over(device_with(Pacing::Unpaced, protected_memory_bytes), Time::ZERO);
        let wear = |rig: &Rig| rig.shard.status().devices[0].wear.clone();
        let fresh = wear(&rig);
        assert!(
            fresh.settings.follow_age
                && !fresh.settings.paused
                && fresh.settings.channel_threshold_erases > 0
        );
        // Who says a threshold means that one; it need not be said that it does not follow the age.
        rig.done(set(WearSettings { channel_threshold_erases: Some(5), ..WearSettings::default() }));
        assert_eq!(
            (wear(&rig).settings.follow_age, wear(&rig).settings.channel_threshold_erases),
            (false, 5)
        );
        let change = WearSettings {
            paused: Some(true),
            rate: Some(Size(5_000_000)),
            die_threshold_erases: Some(0),
            follow_age: Some(true),
            endurance_cycles: Some(400),
            ..WearSettings::default()
        };
        rig.done(set(change));
        let work = rig.shard.system_work();
        rig.done(set(change));
        rig.done(set(WearSettings::default()));
        assert_eq!(rig.shard.system_work(), work, "nothing new, nothing written");
        let both = WearSettings { channel_threshold_erases: Some(7), ..WearSettings::default() };
        assert!(rig.refused(set(both)).contains("age"));
        let never = WearSettings { delta_permille: Some(0), ..WearSettings::default() };
        assert!(rig.refused(set(never)).contains("delta_permille"));
        let settings = WearInForce {
            paused: true,
            rate: Size(5_000_000),
            // Of 400 cycles a 24th when new: 16 of each block.
            channel_threshold_erases: 2 * 140 * 16,
            die_threshold_erases: 0,
            follow_age: true,
            endurance_cycles: 400,
            ..fresh.settings
        };
        let said = WearStatus { settings, ..fresh.clone() };
        assert_eq!(wear(&rig), said);
        for is_cut in [false, true] {
            let now = rig.now;
            let mut device = rig.shard.into_media();
            device.process_death(now);
            if is_cut {
                device.power_cut(now);
                device.power_on();
            }
            rig = Rig::over(device, now);
            let channels = wear(&rig).channels;
            let per_die = wear(&rig).erases_per_die;
            let same = WearStatus { channels, erases_per_die: per_die, ..said.clone() };
            assert_eq!(wear(&rig), same);
        }
        let back = WearSettings {
            paused: Some(false),
            follow_age: Some(false),
            channel_threshold_erases: Some(9),
            ..WearSettings::default()
        };
        rig.done(set(back));
        let then = wear(&rig);
        assert_eq!(
            (then.settings.paused, then.settings.follow_age, then.settings.channel_threshold_erases),
            (false, false, 9)
        );
    }
}

fn tags(first: u64, count: u32) -> Buffer {
    let bytes: Vec<u8> = (0..u64::from(count)).flat_map(|number| (first + number).to_le_bytes()).collect();
    Buffer::copy_from(&bytes)
}

/// Large commands are carried out in pieces that nobody sees: contents, comparisons, ranges, one answer each.
#[test]
fn large_commands_mean_what_they_say() {
    let mut rig = Rig::over(device(Pacing::Modelled), Time::ZERO);
    rig.set_up();
    let range = LbaRange { first_lba: 100, lba_count: 200 };
    let write = NamespaceOperation::Write {
        range,
        data: tags(1000, 200),
        force_unit_access: true,
        placement: PlacementTarget::default(),
    };
    assert_eq!(rig.run(1, write).result, Ok(()));
    let read = |range: LbaRange| {
        let destination = BufferMut::copy_from(&vec![0xee; range.lba_count as usize * 8]);
        NamespaceOperation::Read { range, destination }
    };
    let answer = rig.run(1, read(range));
    assert_eq!(answer.data.unwrap()[..], tags(1000, 200)[..]);
    let compare = |first| NamespaceOperation::Compare { range, data: tags(first, 200) };
    assert_eq!(rig.run(1, compare(1000)).result, Ok(()));
    assert_eq!(rig.run(1, compare(1001)).result, Err(NamespaceError::CompareFailure));
    assert_eq!(rig.run(1, NamespaceOperation::Verify { range }).result, Ok(()));
    let ranges = (0..50).map(|number| LbaRange { first_lba: 100 + 4 * number, lba_count: 3 }).collect();
    assert_eq!(rig.run(1, NamespaceOperation::Deallocate { ranges }).result, Ok(()));
    let data = rig.run(1, read(range)).data.unwrap();
    for (number, tag) in data.chunks_exact(8).enumerate() {
        let expected = if number % 4 == 3 { 1000 + number as u64 } else { 0 };
        assert_eq!(u64::from_le_bytes(tag.try_into().unwrap()), expected, "logical block {}", 100 + number);
    }
}

/// On the modelled core, a small read of another tenant is answered while a neighbour's large writes, given before it,
/// still take their turns: it waits for a piece of one of them, not for their megabytes.
#[test]
fn a_small_read_is_not_behind_a_neighbours_large_writes() {
    let device = device(Pacing::Modelled);
    let model = CostModel::default();
    let config = ShardConfig { cost_model: Some(model), ..config(&device) };
    let mut rig = Rig::with(device, config, Time::ZERO);
    rig.set_up();
    rig.write(2, 5, 77).unwrap();
    // The core is done with that.
    rig.now = Time(rig.now.0 + 1_000_000);
    let range = LbaRange { first_lba: 0, lba_count: 200 };
    let mut commands: Vec<(u32, NamespaceOperation)> = (0..4)
        .map(|_| {
            (
                1,
                NamespaceOperation::Write {
                    range,
                    data: tags(1, 200),
                    force_unit_access: false,
                    placement: PlacementTarget::default(),
                },
            )
        })
        .collect();
    let destination = BufferMut::copy_from(&[0; 8]);
    let range = LbaRange { first_lba: 5, lba_count: 1 };
    commands.push((2, NamespaceOperation::Read { range, destination }));
    let start = rig.now;
    let reader = commands.len() as u64 - 1;
    let first = rig.next_token + 1;
    let mut completions = Vec::new();
    for (namespace, operation) in commands {
        rig.next_token += 1;
        let token = CommandToken(rig.next_token);
        let source = SourceId(DOOR_SOURCE_BIT | namespace);
        let (namespace, arrived) = (NamespaceId(namespace), start);
        rig.shard.submit(NamespaceCommand { token, namespace, source, arrived, operation });
    }
    while !completions.iter().any(|answer: &NamespaceCompletion| answer.token.0 == first + reader) {
        rig.step();
        rig.shard.take_completions(&mut completions);
    }
    assert_eq!(completions.len(), 1, "no large write is through before it");
    // Both sources are heard, then come a piece of a write, the read, and a piece with which the read's round is over.
    let piece_ns = model.command_ns.max(model.piece_ns) + 16 * model.write_block_ns;
    let read_ns = model.command_ns + model.read_block_ns;
    // What was written last is staged: the read needs no array time.
    let waited = rig.now.since(start).0;
    assert!(waited <= 2 * model.batch_ns + 2 * piece_ns + read_ns, "{waited} ns");
}

/// What a neighbour's backlog of large commands, from four sources, leaves of the modelled core: the longest wait of a small
/// command that comes alone, and the cost admitted for many small ones (from one source) over that for the large ones.
/// Nothing touches flash: only the core is short.
fn beside_a_backlog(admission: AdmissionConfig) -> (u64, f64) {
    let measure = |small_depth: usize, rounds: usize| {
        let device = device(Pacing::Modelled);
        let config = ShardConfig { cost_model: Some(CostModel::default()), admission, ..config(&device) };
        let mut rig = Rig::with(device, config, Time::ZERO);
        rig.set_up();
        let verify = |lba_count| NamespaceOperation::Verify { range: LbaRange { first_lba: 0, lba_count } };
        let mut given: BTreeMap<u64, (bool, Time)> = BTreeMap::new();
        let (mut worst_wait_ns, mut costs, mut completions) = (0, [0u64; 2], Vec::new());
        for _ in 0..rounds {
            for (small, depth) in [(true, small_depth), (false, 16)] {
                while given.values().filter(|(one, _)| *one == small).count() < depth {
                    rig.next_token += 1;
                    let token = CommandToken(rig.next_token);
                    let (namespace, lbas) = if small { (2, 1) } else { (1, 200) };
                    let source = if small { 9 } else { 1 + (token.0 % 4) as u32 };
                    given.insert(token.0, (small, rig.now));
                    rig.shard.submit(NamespaceCommand {
                        token,
                        namespace: NamespaceId(namespace),
                        source: SourceId(DOOR_SOURCE_BIT | source),
                        arrived: rig.now,
                        operation: verify(lbas),
                    });
                }
            }
            rig.step();
            rig.shard.take_completions(&mut completions);
            for completion in completions.drain(..) {
                assert_eq!(completion.result, Ok(()));
                let (small, since) = given.remove(&completion.token.0).expect("it was given");
                costs[usize::from(!small)] += if small { 2 } else { 201 };
                if small {
                    worst_wait_ns = worst_wait_ns.max(rig.now.since(since).0);
                }
            }
        }
        (worst_wait_ns, costs[0] as f64 / costs[1] as f64)
    };
    (measure(1, 5_000).0, measure(64, 20_000).1)
}

/// Admission is fair by cost, and its rounds are short. The same check sees long ones.
#[test]
fn the_core_is_shared_by_cost_and_in_short_turns() {
    let good = AdmissionConfig::default();
    let (wait_ns, share) = beside_a_backlog(good);
    let model = CostModel::default();
    let piece_ns = model.command_ns + model.piece_ns + 32 * model.read_block_ns;
    // What is left of a round, the answers and commands of five sources, and a piece.
    let bound_ns = 5 * model.batch_ns + 3 * piece_ns;
    assert!(wait_ns <= bound_ns, "a small command waited {wait_ns} ns");
    assert!((0.8..1.25).contains(&share), "small ones got {share} of what large ones did");
    let (long_ns, _) = beside_a_backlog(AdmissionConfig { round_cost: 512, ..good });
    assert!(long_ns > bound_ns, "long rounds are not seen: {long_ns} ns");
}

/// Commands answered of each of the first namespaces while a host of each asks for more than there is; `beside` is called between rounds
/// of the core.
fn verified(rig: &mut Rig, namespaces: usize, mut beside: impl FnMut(&mut Rig)) -> Vec<u32> {
    let range = LbaRange { first_lba: 0, lba_count: 1 };
    let (mut under_way, mut got) = (vec![0; namespaces], vec![0u32; namespaces]);
    let (mut owners, mut completions) = (BTreeMap::<CommandToken, usize>::new(), Vec::new());
    for _ in 0..20_000 {
        for (at, under_way) in under_way.iter_mut().enumerate() {
            while *under_way < 128 {
                rig.next_token += 1;
                let token = CommandToken(rig.next_token);
                owners.insert(token, at);
                *under_way += 1;
                // A connection is heard again when all it asked was begun: several, so that one always has something to do.
                let source = 4 * at as u32 + (rig.next_token / 32 % 4) as u32;
                rig.shard.submit(NamespaceCommand {
                    token,
                    namespace: NamespaceId(at as u32 + 1),
                    source: SourceId(DOOR_SOURCE_BIT | source),
                    arrived: rig.now,
                    operation: NamespaceOperation::Verify { range },
                });
            }
        }
        rig.step();
        beside(rig);
        rig.shard.take_completions(&mut completions);
        for completion in completions.drain(..) {
            let at = owners.remove(&completion.token).expect("it was given");
            under_way[at] -= 1;
            got[at] += 1;
        }
    }
    got
}

/// What a tenant with one vSSD gets of the modelled core over what one with eight gets, while a host of each vSSD asks for more
/// than there is. Nothing touches flash: only the core is short.
fn share_beside_eight_vssds() -> f64 {
    let device = device_with(Pacing::Modelled, 16 << 20);
    let config = ShardConfig { cost_model: Some(CostModel::default()), ..config(&device) };
    let mut rig = Rig::with(device, config, Time::ZERO);
    for tenant in ["many", "one"] {
        rig.done(ControlRequest::CreateTenant(TenantSpec::new(tenant)));
    }
    for number in 0..9 {
        let (name, tenant) = (format!("v{number}"), if number < 8 { "many" } else { "one" });
        let spec = VssdSpec { tenant: tenant.to_owned(), ..vssd(&name, Isolation::Software, 0) };
        rig.done(ControlRequest::CreateVssd(spec));
        rig.done(ControlRequest::CreateVolume(volume(&name, 64 * 4096)));
        rig.done(ControlRequest::CreateSubsystem(SubsystemSpec {
            tenant: tenant.to_owned(),
            ..subsystem(&name)
        }));
    }
    let got = verified(&mut rig, 9, |_| {});
    f64::from(got[8]) / f64::from(got[..8].iter().sum::<u32>())
}

/// Goal: vSSDs buy no more of the shard's core. Method: a tenant with eight and one with one get the same; where each vSSD has a
/// share of its own, as it is planted here, they do not.
#[test]
fn a_tenant_with_eight_vssds_gets_what_one_with_one_gets() {
    let share = share_beside_eight_vssds();
    assert!((0.95..1.05).contains(&share), "{share}");
    assert!(diecut_units::marks::plant_mutant(Some("shard: a share of the core for each vSSD")));
    let share = share_beside_eight_vssds();
    diecut_units::marks::plant_mutant(None);
    assert!(share < 0.2, "{share}: the bug is not seen");
}

/// An application at erase blocks that always has 40 questions under way, and counts the answers.
struct Asking {
    session: BlockSession,
    under_way: u32,
    answered: u32,
}

impl Asking {
    fn attach(rig: &mut Rig, vssd: &str) -> Asking {
        let session = BlockSession(1);
        let event = BlockEvent::Attach { session, vssd: vssd.to_owned(), uid: 0, is_privileged: true };
        rig.shard.handle(Event::Blocks(event), rig.now, &mut rig.actions);
        let is_attached = |action: &Action| matches!(action, Action::Blocks(BlockAction::Attached { .. }));
        assert!(rig.actions.iter().any(is_attached), "{:?}", rig.actions);
        Asking { session, under_way: 0, answered: 0 }
    }

    fn go_on(&mut self, rig: &mut Rig) {
        for action in std::mem::take(&mut rig.actions) {
            if let Action::Blocks(BlockAction::Answered { .. }) = action {
                (self.under_way, self.answered) = (self.under_way - 1, self.answered + 1);
            }
        }
        while self.under_way < 40 {
            let entry = Ok(Submission::new(Opcode::Unit, LogicalBlock::default()));
            let event =
                BlockEvent::Submitted { session: self.session, command: Command { entry, data: None } };
            rig.shard.handle(Event::Blocks(event), rig.now, &mut rig.actions);
            self.under_way += 1;
        }
    }
}

/// What a tenant with a host and an application gets of the modelled core over what one with a host gets, and the application over its
/// tenant's host. A command costs two, a question one.
fn shares_of_an_application() -> (f64, f64) {
    let device = backed_by(Backing::Memory, Pacing::Modelled, 16 << 20);
    let config = ShardConfig { cost_model: Some(CostModel::default()), ..config(&device) };
    let mut rig = Rig::with(device, config, Time::ZERO);
    for (tenant, name) in [("both", "host"), ("rival", "rival")] {
        rig.done(ControlRequest::CreateTenant(TenantSpec::new(tenant)));
        let spec = VssdSpec { tenant: tenant.to_owned(), ..vssd(name, Isolation::Software, 0) };
        rig.done(ControlRequest::CreateVssd(spec));
        rig.done(ControlRequest::CreateVolume(volume(name, 64 * 4096)));
        let spec = SubsystemSpec { tenant: tenant.to_owned(), ..subsystem(name) };
        rig.done(ControlRequest::CreateSubsystem(spec));
    }
    let spec = vssd("application", Isolation::Software, 0);
    let spec = VssdSpec { tenant: "both".to_owned(), serves: Serves::Blocks, ..spec };
    rig.done(ControlRequest::CreateVssd(spec));
    let mut application = Asking::attach(&mut rig, "vssd-application");
    let got = verified(&mut rig, 2, |rig| application.go_on(rig));
    let [host, rival] = [got[0], got[1]].map(|commands| 2.0 * f64::from(commands));
    let application = f64::from(application.answered);
    ((host + application) / rival, application / host)
}

/// Goal: an application at erase blocks is served from its tenant's share of the core, and gets half of it beside one host. Method: a
/// tenant with both beside one with a host; where the application counts as a tenant, as it is planted here, they get twice as much.
#[test]
fn an_application_and_a_host_get_what_one_tenant_gets() {
    let (of_tenants, within) = shares_of_an_application();
    assert!((0.95..1.05).contains(&of_tenants) && (0.95..1.05).contains(&within), "{of_tenants} {within}");
    assert!(diecut_units::marks::plant_mutant(Some("shard: an application is a tenant of its own")));
    let (of_tenants, _) = shares_of_an_application();
    diecut_units::marks::plant_mutant(None);
    assert!(of_tenants > 1.8, "{of_tenants}: the bug is not seen");
}

/// Goal: a tenant's weight is in force when its change is answered, and after a restart; one that cannot be changes nothing. Method: two
/// tenants with a host each ask for more than the modelled core can give.
#[test]
fn weights_of_tenants_are_changed_while_they_are_served() {
    let device = device_with(Pacing::Modelled, 8 << 20);
    let config = ShardConfig { cost_model: Some(CostModel::default()), ..config(&device) };
    let mut rig = Rig::with(device, config.clone(), Time::ZERO);
    rig.set_up();
    let ratio = |rig: &mut Rig| {
        let got = verified(rig, 2, |_| {});
        // Until nothing is under way.
        for _ in 0..1000 {
            rig.step();
        }
        rig.shard.take_completions(&mut Vec::new());
        f64::from(got[1]) / f64::from(got[0])
    };
    let is_about =
        |found: f64, due: f64| assert!((0.95 * due..1.05 * due).contains(&found), "{found}, not {due}");
    is_about(ratio(&mut rig), 1.0);
    let set = |weight| ControlRequest::SetTenantWeight { tenant: "b".to_owned(), weight };
    rig.done(set(300));
    is_about(ratio(&mut rig), 3.0);
    for weight in [0, 1001] {
        let message = rig.refused(set(weight));
        assert!(message.contains("tenant \"b\": a weight of") && message.contains("1 to 1000"), "{message}");
    }
    let again = rig.refused(ControlRequest::CreateTenant(TenantSpec::new("b")));
    let named = "tenant \"b\" exists with another definition: weight is 300, not 100; delete it first";
    assert!(again.contains(named), "{again}");
    let missing = ControlRequest::SetTenantWeight { tenant: "c".to_owned(), weight: 1 };
    assert!(rig.refused(missing).contains("there is no tenant \"c\""));
    assert_eq!(rig.ask(set(300)), ControlResponse::Unchanged);
    let now = rig.now;
    let mut device = rig.shard.into_media();
    device.process_death(now);
    let mut rig = Rig::with(device, config, now);
    is_about(ratio(&mut rig), 3.0);
}

/// What a deallocation takes of the modelled core, in virtual time: ranges that each cover the whole of a thin volume.
fn cost_of_ranges(rig: &mut Rig, ranges: usize, lba_count: u32) -> u64 {
    let start = rig.now;
    let ranges = (0..ranges).map(|_| LbaRange { first_lba: 0, lba_count }).collect();
    assert_eq!(rig.run(1, NamespaceOperation::Deallocate { ranges }).result, Ok(()));
    rig.now.since(start).0
}

/// Goal: what a host can ask with one deallocation is bounded by what is mapped, not by how often it names a block nor by the
/// size of the volume. Method: a thin volume of 4 GiB, the modelled core; one command names all of it 256 times, with
/// nothing mapped, a little, and nothing any more. Then the blocks read as zeros.
#[test]
fn a_deallocation_costs_what_is_mapped() {
    let device = device(Pacing::Modelled);
    let model = CostModel::default();
    let config = ShardConfig { cost_model: Some(model), ..config(&device) };
    let mut rig = Rig::with(device, config, Time::ZERO);
    let lbas = 1 << 20;
    rig.done(ControlRequest::CreateTenant(TenantSpec::new("a")));
    rig.done(ControlRequest::CreateVssd(vssd("a", Isolation::Channel, 1)));
    rig.done(ControlRequest::CreateVolume(volume("a", lbas * 4096)));
    rig.done(ControlRequest::CreateSubsystem(subsystem("a")));
    let piece_ns = model.piece_ns + 4096 / 16 * model.deallocate_16_blocks_ns;
    // Receiving, the command, and the answer.
    let around_ns = 2 * model.batch_ns + model.command_ns;
    let nothing = cost_of_ranges(&mut rig, 256, lbas as u32);
    assert!(nothing <= around_ns + piece_ns, "{nothing} ns with nothing mapped");
    let scattered: Vec<u64> = (0..5).map(|nth| nth * 200_000 + 77).collect();
    for lba in &scattered {
        rig.write(1, *lba, *lba + 1).unwrap();
    }
    let some = cost_of_ranges(&mut rig, 256, lbas as u32);
    assert!(some <= around_ns + (scattered.len() as u64 + 1) * piece_ns, "{some} ns with a little mapped");
    assert!(scattered.iter().all(|lba| rig.read(1, *lba) == 0));
    let again = cost_of_ranges(&mut rig, 256, lbas as u32);
    assert!(again <= around_ns + piece_ns, "{again} ns when it is gone");
}

/// Goal: what the catalog has no room for is refused while nothing is changed. Method: subsystems with many hosts until it is full, then
/// a vSSD, whose erase blocks would be taken before it is written down.
#[test]
fn a_full_catalog_refuses_a_vssd_before_anything_changes() {
    let mut rig = Rig::over(device(Pacing::Unpaced), Time::ZERO);
    rig.done(ControlRequest::CreateTenant(TenantSpec::new("a")));
    let many = |number: u32| {
        let nqn = format!("nqn.2026-11.example:many-{number}");
        let host = |of: u32| format!("nqn.2026-11.example:{:0100}", number * 1000 + of);
        let allowed_hosts = (0..100).map(host).collect();
        let spec = SubsystemSpec { nqn, allow_any_host: false, allowed_hosts, ..subsystem("a") };
        ControlRequest::CreateSubsystem(SubsystemSpec { namespaces: Vec::new(), ..spec })
    };
    let mut made = 0;
    let refused = loop {
        match rig.ask(many(made)) {
            ControlResponse::Done => made += 1,
            ControlResponse::Refused(error) => break error,
            other => panic!("{other:?}"),
        }
        assert!(made < 1000, "it is full at last");
    };
    assert_eq!(refused.kind, ControlErrorKind::Exhausted);
    assert!(refused.message.contains("the catalog is full"), "{}", refused.message);
    // What is left is less than a vSSD takes.
    for number in 0.. {
        let tenant = TenantSpec::new(&format!("{number:064}"));
        if matches!(rig.ask(ControlRequest::CreateTenant(tenant)), ControlResponse::Refused(_)) {
            break;
        }
    }
    let free = |rig: &mut Rig| match rig.ask(ControlRequest::Status) {
        ControlResponse::Status(status) => status.devices[0].free_channels,
        other => panic!("{other:?}"),
    };
    let (state, free_before) = (rig.shard.state().clone(), free(&mut rig));
    let message = rig.refused(ControlRequest::CreateVssd(vssd("a", Isolation::Channel, 1)));
    assert!(message.contains("nothing was changed: the catalog is full"), "{message}");
    assert_eq!(free(&mut rig), free_before);
    assert_eq!(rig.shard.state(), &state);
    // Who makes room is let in, and then there is room.
    rig.done(ControlRequest::DeleteSubsystem("nqn.2026-11.example:many-0".to_owned()));
    rig.done(ControlRequest::CreateVssd(vssd("a", Isolation::Channel, 1)));
}

/// Answers in so much time of a flood of writes to the volume of tenant "b", and how many are under way at its end.
fn answered_of_flood(rig: &mut Rig, span_ns: u64) -> usize {
    let namespace = rig.shard.state().volumes["volume-b"].namespace;
    rig.flood(namespace, 3000);
    answered_within(rig, span_ns)
}

fn answered_within(rig: &mut Rig, span_ns: u64) -> usize {
    let until = Time(rig.now.0 + span_ns);
    while rig.now < until {
        // Not beyond the end: a step goes to the next moment at which something is due.
        rig.now = rig.now.max(rig.shard.deadline().min(until));
        rig.shard.work(rig.now, &mut rig.actions);
    }
    let mut answered = Vec::new();
    rig.shard.take_completions(&mut answered);
    assert!(answered.iter().all(|one| one.result.is_ok()), "a write that waited was done");
    answered.len()
}

/// Goal: a QoS set holds what it says, is changed while it is served, is there after a restart, and stands in no end's way. Method: more
/// writes than a set of commands allows, without a second rate; answers are counted in virtual time.
#[test]
fn a_qos_set_holds_is_changed_and_survives_restarts() {
    let device = device_with(Pacing::Unpaced, 8 << 20);
    let config = config(&device);
    let mut rig = Rig::with(device, config.clone(), Time::ZERO);
    rig.set_up();
    let of_b = |commands, volume: &str| QosSetSpec {
        bucket: Some(Amount::Commands(10)),
        second_rate: Some(Amount::Commands(0)),
        volumes: vec![volume.to_owned()],
        ..QosSetSpec::new("slow", Amount::Commands(commands))
    };
    let missing = rig.refused(ControlRequest::CreateQosSet(of_b(100, "volume-x")));
    assert!(missing.contains("QoS set \"slow\"") && missing.contains("volume \"volume-x\""), "{missing}");
    rig.done(ControlRequest::CreateQosSet(of_b(100, "volume-b")));
    assert_eq!(rig.ask(ControlRequest::CreateQosSet(of_b(100, "volume-b"))), ControlResponse::Unchanged);

    // A full bucket, and two seconds.
    let answered = answered_of_flood(&mut rig, 2_000_000_000);
    assert!((205..=211).contains(&answered), "{answered} answers");
    rig.write(1, 0, 7).expect("tenant \"a\" is in no set, and does not wait");
    let change = QosSetChange { rate: Some(Amount::Commands(1000)), ..QosSetChange::default() };
    rig.done(ControlRequest::ChangeQosSet { set: "slow".to_owned(), change });
    let faster = answered_within(&mut rig, 1_000_000_000);
    assert!((990..=1020).contains(&faster), "{faster} answers");
    let ControlResponse::Status(status) = rig.ask(ControlRequest::Status) else { panic!("it is told") };
    let set = &status.qos_sets[0];
    assert_eq!((set.set.rate, set.second_commands, set.waiting), (Amount::Commands(1000), 0, 1));
    assert!(
        set.committed_units >= (answered + faster) as u64 && set.waits > 1000 && set.waited_ns > 0,
        "{set:?}"
    );
    rig.shard.check_shares();
    rig.done(ControlRequest::DetachNamespace { subsystem: subsystem("b").nqn, nsid: 1 });
    let used = rig.refused(ControlRequest::DeleteVolume("volume-b".to_owned()));
    assert!(used.contains("volume \"volume-b\" is in QoS set \"slow\""), "{used}");

    let now = rig.now;
    let mut device = rig.shard.into_media();
    device.process_death(now);
    let mut rig = Rig::with(device, config, now);
    let again = answered_of_flood(&mut rig, 1_000_000_000);
    assert!((990..=1020).contains(&again), "{again} answers after a restart");
    rig.done(ControlRequest::DeleteQosSet("slow".to_owned()));
    assert_eq!(answered_within(&mut rig, 1_000_000) + again, 3000, "nobody waits for a set that is gone");
    let change = QosSetChange { rate: Some(Amount::Commands(10)), ..QosSetChange::default() };
    let gone = rig.refused(ControlRequest::ChangeQosSet { set: "slow".to_owned(), change });
    assert!(gone.contains("there is no QoS set \"slow\""), "{gone}");

    // A stop does not wait for tokens.
    rig.done(ControlRequest::CreateQosSet(of_b(10, "volume-b")));
    assert!(answered_of_flood(&mut rig, 1_000_000_000) < 30);
    let stop = rig.begin(ControlRequest::Shutdown);
    assert_eq!(rig.answers_within(1, 1_000_000_000), [(stop, ControlResponse::Done)]);
}

/// Goal: below its threshold a set gets what is idle, and behind a shaper of the device no more than that gives; what is in no set gets
/// the rest. Method: as before, with a shaper that counts commands.
#[test]
fn a_device_shaper_bounds_all_and_sets_come_first() {
    let device = device_with(Pacing::Unpaced, 8 << 20);
    let mut config = config(&device);
    let bucket = BucketSize { rate_per_second: 1000, size: 64 };
    config.admission.device_shaper = Some(DeviceShaper { unit: TokenUnit::Command, bucket });
    let mut rig = Rig::with(device, config, Time::ZERO);
    rig.set_up();
    let set = QosSetSpec { vssds: vec!["vssd-b".to_owned()], ..QosSetSpec::new("b", Amount::Commands(300)) };
    let too_much = QosSetSpec { rate: Amount::Commands(1001), ..set.clone() };
    let refused = rig.refused(ControlRequest::CreateQosSet(too_much));
    assert!(
        refused.contains("pool.device_rate") && refused.contains("use 1000 commands or less"),
        "{refused}"
    );
    let bytes = QosSetSpec { rate: Amount::Bytes(Size(1 << 20)), ..set.clone() };
    assert!(rig.refused(ControlRequest::CreateQosSet(bytes)).contains("use the same unit"));
    let strict = QosSetSpec { second_rate: Some(Amount::Commands(0)), ..set };
    rig.done(ControlRequest::CreateQosSet(strict));
    let own = rig.shard.state().volumes["volume-b"].namespace;
    rig.flood(own, 3000);
    rig.flood(if own == 1 { 2 } else { 1 }, 3000);
    let mut completions = Vec::new();
    rig.shard.take_completions(&mut completions);
    let (until, from) = (Time(rig.now.0 + 2_000_000_000), rig.flood_from);
    while rig.now < until {
        rig.now = rig.now.max(rig.shard.deadline().min(until));
        rig.shard.work(rig.now, &mut rig.actions);
    }
    rig.shard.take_completions(&mut completions);
    let others = completions.iter().filter(|one| one.token.0 >= from).count();
    let of_set = completions.len() - others;
    // 600, and what was in its bucket; the rest of 2000 and the bucket of the device.
    assert!((595..=680).contains(&of_set), "{of_set} of the set");
    assert!((1990..=2070).contains(&completions.len()), "{} in all", completions.len());
    let change = QosSetChange { second_rate: Some(Amount::Commands(100_000)), ..QosSetChange::default() };
    rig.done(ControlRequest::ChangeQosSet { set: "b".to_owned(), change });
    completions.clear();
    let until = Time(rig.now.0 + 1_000_000_000);
    while rig.now < until {
        rig.now = rig.now.max(rig.shard.deadline().min(until));
        rig.shard.work(rig.now, &mut rig.actions);
    }
    rig.shard.take_completions(&mut completions);
    let of_set = completions.iter().filter(|one| one.token.0 < from).count();
    assert!(of_set > 500, "{of_set}: with a second rate it shares what is idle with the others");
}

/// What is told of QoS sets that want more than there is: what came so far, and while a request is done.
fn shortages(rig: &mut Rig, request: Option<ControlRequest>) -> Vec<Notice> {
    let mut actions = std::mem::take(&mut rig.actions);
    if let Some(request) = request {
        let token = rig.begin(request);
        let is_answer = |action: &Action| matches!(action, Action::Answer { token: of, .. } if of.0 == token);
        while !rig.actions.iter().any(is_answer) {
            rig.step();
        }
    }
    rig.step();
    actions.append(&mut rig.actions);
    let notices = actions.into_iter().filter_map(|action| match action {
        Action::Notice(notice) => Some(*notice),
        _ => None,
    });
    notices.filter(|notice| matches!(notice, Notice::Overcommitted { .. })).collect()
}

/// Goal: an operator is told that a device gives out less than is committed to QoS sets, at a start and after each change of a set, until
/// it fits; and a change that asks for no more is never refused. Method: a start with half of the rate.
#[test]
fn a_device_rate_below_what_is_committed_is_told() {
    let device = device_with(Pacing::Unpaced, 8 << 20);
    let mut config = config(&device);
    let shaper = |rate_per_second| {
        let bucket = BucketSize { rate_per_second, size: 64 };
        Some(DeviceShaper { unit: TokenUnit::Command, bucket })
    };
    config.admission.device_shaper = shaper(1000);
    let mut rig = Rig::with(device, config.clone(), Time::ZERO);
    rig.set_up();
    for (name, rate) in [("a", 300), ("b", 400)] {
        let set = QosSetSpec::new(name, Amount::Commands(rate));
        let set = QosSetSpec { vssds: vec![format!("vssd-{name}")], ..set };
        assert_eq!(shortages(&mut rig, Some(ControlRequest::CreateQosSet(set))), []);
    }
    rig.done(ControlRequest::Shutdown);
    config.admission.device_shaper = shaper(500);
    let now = rig.now;
    let mut rig = Rig::with(rig.shard.into_media(), config.clone(), now);
    let told = |committed| Notice::Overcommitted {
        committed: Amount::Commands(committed),
        device: Amount::Commands(500),
        uncounted: 0,
    };
    assert_eq!(shortages(&mut rig, None), [told(700)]);
    let change = |set: &str, rate| {
        let change = QosSetChange { rate: Some(Amount::Commands(rate)), ..QosSetChange::default() };
        ControlRequest::ChangeQosSet { set: set.to_owned(), change }
    };
    assert_eq!(shortages(&mut rig, Some(change("a", 200))), [told(600)]);
    assert!(rig.refused(change("a", 201)).contains("pool.device_rate"));
    assert_eq!(shortages(&mut rig, Some(change("b", 300))), []);

    // A device that counts bytes says nothing of sets that count commands.
    rig.done(ControlRequest::Shutdown);
    let (unit, bucket) = (TokenUnit::Bytes(4096), BucketSize { rate_per_second: 1 << 30, size: 1 << 20 });
    config.admission.device_shaper = Some(DeviceShaper { unit, bucket });
    let now = rig.now;
    let mut rig = Rig::with(rig.shard.into_media(), config, now);
    let [committed, device] = [0, 1 << 30].map(|bytes| Amount::Bytes(Size(bytes)));
    assert_eq!(shortages(&mut rig, None), [Notice::Overcommitted { committed, device, uncounted: 2 }]);
}
