//! Goal: a shard that fails a check twice within ten minutes at work for a vSSD fences it: what it holds is read and not written, the reason
//! is told, and neighbours notice nothing; failures that are further apart fence nobody; and an administrator lifts the fence. Nothing that
//! was acknowledged is lost by any of it. Method: one shard on an emulated device in virtual time, and a check that fails on purpose.
#![cfg(debug_assertions)]

use diecut_devices::{Backing, Device, Options, Pacing, Profile};
use diecut_media::Media;
use diecut_namespace::contract::*;
use diecut_shard::control::*;
use diecut_shard::drive::{Action, Drive, Event};
use diecut_shard::notice::Notice;
use diecut_shard::panics::{FENCED, PanicBook, PanicRecord, Verdict, WINDOW_MS};
use diecut_shard::{DOOR_SOURCE_BIT, PlantedPanic, PoolConfig, Shard, ShardConfig};
use diecut_spec::{Isolation, Size};
use diecut_units::{Buffer, BufferMut, Time};
use std::panic::{AssertUnwindSafe, catch_unwind};

const FAILS_AT: u64 = 77;

struct Rig {
    shard: Shard<Device>,
    now: Time,
    actions: Vec<Action>,
    next_token: u64,
}

fn device() -> Device {
    let options = Options { backing: Backing::Tags, pacing: Pacing::Modelled, seed: 3, ..Options::default() };
    let mut profile = Profile::named("tiny").unwrap();
    profile.protected_memory_bytes = 8 << 20;
    profile.geometry.blocks_per_plane = 140;
    Device::create(&profile, options).unwrap()
}

impl Rig {
    fn over(device: Device, book: &PanicBook, now: Time) -> Rig {
        let config = ShardConfig {
            pool: PoolConfig::suited_to(device.geometry()),
            staging_bytes_per_vssd: 256 << 10,
            fenced: book.fenced.keys().copied().collect(),
            planted_panic: Some(PlantedPanic::WriteAt(FAILS_AT)),
            ..ShardConfig::default()
        };
        let shard = Shard::new(device, config, now);
        let mut rig = Rig { shard, now, actions: Vec::new(), next_token: 0 };
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
        let mut actions = Vec::new();
        self.shard.handle(Event::Control { token, request }, self.now, &mut actions);
        self.actions.append(&mut actions);
        for _ in 0..100_000 {
            let is_answer =
                |action: &Action| matches!(action, Action::Answer { token: of, .. } if *of == token);
            if let Some(at) = self.actions.iter().position(is_answer) {
                let Action::Answer { response, .. } = self.actions.remove(at) else {
                    unreachable!("just seen")
                };
                return *response;
            }
            self.step();
        }
        panic!("a request was never answered");
    }

    fn done(&mut self, request: ControlRequest) {
        assert_eq!(self.ask(request.clone()), ControlResponse::Done, "{request:?}");
    }

    fn run(&mut self, namespace: u32, operation: NamespaceOperation) -> NamespaceCompletion {
        self.next_token += 1;
        let (token, arrived) = (CommandToken(self.next_token), self.now);
        let source = SourceId(DOOR_SOURCE_BIT | namespace);
        let namespace = NamespaceId(namespace);
        self.shard.submit(NamespaceCommand { token, namespace, source, arrived, operation });
        let mut completions = Vec::new();
        for _ in 0..100_000 {
            self.step();
            self.shard.take_completions(&mut completions);
            if let Some(completion) = completions.pop() {
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

    fn reason(&self) -> Option<String> {
        self.shard.status().vssds[0].health.read_only_reason.clone()
    }

    /// The shard fails. What it was at work for is told, and it begins anew as the book says.
    fn fail_and_begin_anew(mut self, book: &mut PanicBook) -> (Rig, Verdict) {
        catch_unwind(AssertUnwindSafe(|| self.write(1, FAILS_AT, 1))).expect_err("the planted check fails");
        let outline = self.shard.at_work();
        assert_eq!(outline.vssd, Some((1, "vssd-a".to_owned())));
        let last = outline.commands.last().map_or("", String::as_str);
        assert!(last.ends_with("write, namespace 1, LBA 77, 1 blocks"), "{outline:?}");
        let (vssd, vssd_name) = outline.vssd.unzip();
        let at_ms = self.now.0 / 1_000_000;
        let verdict = book.note(PanicRecord { at_ms, vssd, vssd_name, ..PanicRecord::default() });
        let mut device = self.shard.into_media();
        device.emulated_mut().process_death(self.now);
        (Rig::over(device, book, self.now), verdict)
    }
}

fn set_up(rig: &mut Rig) {
    for name in ["a", "b"] {
        let vssd = VssdSpec::new(&format!("vssd-{name}"), name, Isolation::Software, 280);
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
        rig.done(ControlRequest::CreateSubsystem(SubsystemSpec {
            nqn: format!("nqn.2026-11.org.diecut:{name}"),
            tenant: name.to_owned(),
            serial: None,
            model: None,
            allow_any_host: true,
            allowed_hosts: Vec::new(),
            paths: Vec::new(),
            namespaces: vec![NamespaceSpec::new(1, &format!("volume-{name}"))],
        }));
    }
}

#[test]
fn two_failures_within_ten_minutes_fence_a_vssd() {
    let mut book = PanicBook::default();
    let mut rig = Rig::over(device(), &book, Time::ZERO);
    set_up(&mut rig);
    for round in 0..3 {
        for namespace in 1..3 {
            rig.write(namespace, 3, 40 + round).unwrap();
        }
        let verdict;
        (rig, verdict) = rig.fail_and_begin_anew(&mut book);
        assert_eq!([rig.read(1, 3), rig.read(2, 3)], [40 + round; 2], "nothing is lost");
        assert_eq!(verdict, if round == 2 { Verdict::Fence } else { Verdict::BeginAnew }, "round {round}");
        let pause_ms = if round == 0 { WINDOW_MS } else { WINDOW_MS - 60_000 };
        rig.now.0 += pause_ms * 1_000_000;
    }
    let is_told = |action: &Action| match action {
        Action::Notice(notice) => **notice == Notice::ReadOnly { vssd: "vssd-a".to_owned(), reason: FENCED },
        _ => false,
    };
    assert_eq!(rig.actions.iter().filter(|action| is_told(action)).count(), 1);
    let refused = Err(NamespaceError::ReadOnly { reason: FENCED });
    assert_eq!(rig.write(1, 3, 50), refused);
    rig.write(2, 3, 50).unwrap();
    assert_eq!([rig.read(1, 3), rig.read(2, 3)], [42, 50]);
    assert_eq!(rig.reason().as_deref(), Some(FENCED));
    let ControlResponse::Refused(error) = rig.ask(ControlRequest::UnfenceVssd("x".to_owned())) else {
        panic!("there is no such vSSD")
    };
    assert!(error.message.contains("there is no vSSD \"x\""), "{error}");
    rig.done(ControlRequest::UnfenceVssd("vssd-a".to_owned()));
    assert_eq!(rig.reason(), None);
    rig.write(1, 3, 60).unwrap();
    assert_eq!(rig.read(1, 3), 60);
    assert!(book.lift("vssd-a"));
}
