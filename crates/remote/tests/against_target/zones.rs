//! Goal: a zoned namespace of a target is a zoned drive, whatever happens to the connection and to the target's cache. Method: the target that is
//! shipped, over the model of a zoned drive, which refuses writes that are not at a write pointer and loses any end of what was not flushed.

use crate::line::{Line, Under};
use crate::server::{Server, Storage, carry_out};
use diecut_drives::{DriveMedium, Zoning};
use diecut_emulator::drive::{Drive, DriveProfile, ZoneProfile};
use diecut_media::{IntentError, IntentWork, Zone, ZoneCondition, conformance};
use diecut_namespace::contract::{
    NamespaceCommand, NamespaceCompletion, NamespaceError, NamespaceOperation, ReportRequest, ZoneAction,
    ZoneDescriptor, ZoneOutcome, ZoneProperties, ZoneRefusal, ZoneReport, ZoneRequest, ZoneState,
};
use diecut_nvmf::NamespaceConfig;
use diecut_remote::{RemoteDrive, RemoteError};
use diecut_testing::Random;
use diecut_testing::depth::depth;
use diecut_testing::driven::Driven;
use diecut_testing::planted::is_noticed;
use diecut_testing::target::namespace;
use diecut_units::{Buffer, BufferMut, Time};
use std::cell::RefCell;
use std::rc::Rc;

/// As a cut tears writes: a write pointer is at a logical block.
const LBA: usize = 512;
/// So small that random work fills and resets them.
const ZONE_LBAS: u64 = 256;
const ZONE_BYTES: u64 = ZONE_LBAS * LBA as u64;
const CAPACITY_LBAS: u32 = 192;
const ZONES: u64 = 48;
const PLACES: u32 = 32;

/// The model of a drive as a namespace.
struct Zoned {
    drive: Drive,
    now: Time,
}

impl Zoned {
    fn new(seed: u64, has_cache: bool) -> Zoned {
        let capacity_bytes = u64::from(CAPACITY_LBAS) * LBA as u64;
        let zones = ZoneProfile {
            size_bytes: ZONE_BYTES,
            capacity_bytes,
            conventional: 0,
            active_max: PLACES,
            unit_bytes: 512,
        };
        let profile = DriveProfile {
            zones: Some(zones),
            is_durable_at_once: !has_cache,
            ..DriveProfile::nvme(ZONES * ZONE_BYTES)
        };
        Zoned { drive: Drive::new(profile, seed), now: Time::ZERO }
    }

    fn carry_out(&mut self, work: IntentWork) -> Result<Option<BufferMut>, NamespaceError> {
        let done = carry_out(&mut self.drive, &mut self.now, work);
        done.map_err(|_| NamespaceError::Zone(ZoneRefusal::InvalidTransition))
    }

    fn report(&self, request: ReportRequest) -> ZoneReport {
        let zones = self.drive.zones();
        let first = request.first_zone as usize..;
        let zones = (0..).zip(zones).skip(first.start).take(request.count_max as usize);
        let zones = zones.map(|(zone, is)| ZoneDescriptor {
            zone,
            state: match is.condition {
                ZoneCondition::Empty => ZoneState::Empty,
                ZoneCondition::Active => ZoneState::Closed,
                ZoneCondition::Closed | ZoneCondition::Full => ZoneState::Full,
                ZoneCondition::ReadOnly => ZoneState::ReadOnly,
                ZoneCondition::Conventional | ZoneCondition::Offline => ZoneState::Offline,
            },
            written_ius: (is.write_pointer.saturating_sub(is.offset) / LBA as u64) as u32,
            is_random: false,
            extension: None,
        });
        ZoneReport { zones: zones.collect(), matching: ZONES - u64::from(request.first_zone) }
    }
}

impl Storage for Zoned {
    fn config(&self) -> NamespaceConfig {
        let mut namespace = namespace(7, ZONES * ZONE_LBAS);
        namespace.properties.lba_size_log2 = LBA.ilog2() as u8;
        namespace.properties.transfer_max_lbas = 2048;
        namespace.properties.volatile_cache = !self.drive.profile().is_durable_at_once;
        namespace.properties.zones = Some(ZoneProperties {
            size_lbas_log2: ZONE_LBAS.ilog2(),
            capacity_lbas: CAPACITY_LBAS,
            active_max: PLACES,
            open_max: PLACES,
            random_lbas: 0,
            commit_lbas: 1,
            write_lbas_min: 1,
            extension_size_bytes: 0,
        });
        namespace
    }

    fn execute(&mut self, command: NamespaceCommand) -> NamespaceCompletion {
        let (mut content, mut zones) = (None, None);
        let at = |lba: u64| lba * LBA as u64;
        let done = match command.operation {
            NamespaceOperation::Read { range, destination } => {
                self.carry_out(IntentWork::Read { offset: at(range.first_lba), buffer: destination })
            }
            NamespaceOperation::Write { range, data, .. } => {
                let parts = [data].into_iter().collect();
                self.carry_out(IntentWork::Write { offset: at(range.first_lba), parts, handle: 0 })
            }
            NamespaceOperation::Flush => self.carry_out(IntentWork::Sync),
            NamespaceOperation::Zone(ZoneRequest::Act { zone_lba: Some(lba), action }) => {
                let (offset, len_bytes) = (at(lba), ZONE_BYTES);
                self.carry_out(match action {
                    ZoneAction::Reset => IntentWork::ResetZone { offset, len_bytes },
                    ZoneAction::Finish => IntentWork::FinishZone { offset, len_bytes },
                    _ => unreachable!("nobody asks for it"),
                })
            }
            NamespaceOperation::Zone(ZoneRequest::Report(request)) => {
                zones = Some(ZoneOutcome::Report(Box::new(self.report(request))));
                Ok(None)
            }
            other => unreachable!("{other:?}"),
        };
        let result = done.map(|buffer| content = buffer.map(BufferMut::freeze));
        NamespaceCompletion { token: command.token, result, data: content, zones }
    }

    fn lose(&mut self, _random: &mut Random) {
        let statistics = self.drive.zone_statistics();
        assert_eq!((statistics.out_of_order, statistics.too_many), (0, 0), "the drive refused writes");
        self.drive.cut();
    }
}

type OnZones = Driven<DriveMedium, Under>;

/// A medium on a namespace, whose zones are asked for as a server does.
fn on(mut line: Line) -> OnZones {
    line.run(RemoteDrive::is_up);
    let facts = line.remote.facts().unwrap().clone();
    let zones = facts.zones.unwrap();
    assert_eq!((zones.zone_size_bytes, u64::from(zones.count)), (ZONE_BYTES, ZONES));
    assert_eq!((zones.active_max, zones.open_max), (PLACES, PLACES));
    let zoning = Zoning {
        zone_size_bytes: zones.zone_size_bytes,
        active_max: zones.active_max,
        open_max: zones.open_max,
        zones: zones.zones,
        dies: zones.dies,
    };
    let shape = zoning.shape(Some(2)).unwrap();
    Driven::new(DriveMedium::zoned(shape, facts.has_volatile_cache, &zoning, 0), Under(line))
}

fn server(seed: u64, has_cache: bool) -> Rc<RefCell<Server>> {
    Rc::new(RefCell::new(Server::of(Box::new(Zoned::new(seed, has_cache)))))
}

fn fresh(seed: u64, has_cache: bool) -> OnZones {
    on(Line::new(&server(seed, has_cache), 1, seed))
}

/// Goal: a zoned namespace keeps the contract. Method: the suite.
#[test]
fn the_contract_holds() {
    let mut seed = 0;
    conformance::all(&mut || {
        seed += 1;
        fresh(seed, true)
    });
}

fn random_work_over_cuts(seeds: std::ops::Range<u64>) {
    let mut cuts = 0;
    for seed in seeds {
        let mut medium = fresh(seed, seed % 3 > 0);
        (medium.io.0.cut_one_in, medium.io.0.crashes_in_ten) = (200, 5);
        medium.io.0.server.borrow_mut().slow_one_in = seed % 3 * 10;
        conformance::random_work(&mut medium, seed);
        cuts += medium.io.0.cuts;
        let mut server = medium.io.0.server.borrow_mut();
        server.crash(&mut Random::of(seed));
    }
    assert!(cuts > 20, "{cuts} cuts");
}

/// Goal: what was answered is there, although connections end and the target dies with its cache, and no write goes elsewhere than to a write pointer. Method:
/// random work with an oracle.
#[test]
fn nothing_that_was_answered_is_lost_with_a_connection() {
    random_work_over_cuts(0..depth(20, 2_000));
}

#[test]
fn planted_bugs_are_noticed() {
    is_noticed("remote: what was not flushed is not kept", || random_work_over_cuts(0..12));
    is_noticed("remote: what a zone has is sent again", || random_work_over_cuts(0..12));
    is_noticed("remote: changes of zones are not kept", || random_work_over_cuts(0..40));
}

/// Goal: what a flush covered survives the death of this machine, and of the target.
#[test]
fn flushed_content_survives() {
    for seed in 0..depth(8, 500) {
        let mut lives = 0;
        conformance::flushed_content_survives_cuts(fresh(seed, true), seed, &mut |mut medium: OnZones| {
            lives += 1;
            medium.io.0.close();
            medium.io.0.server.borrow_mut().crash(&mut Random::of(seed * 100 + lives));
            on(Line::new(&medium.io.0.server, 1, seed + lives))
        });
    }
}

fn zones(line: &Line) -> &[Zone] {
    &line.remote.facts().unwrap().zones.as_ref().unwrap().zones
}

fn written(line: &mut Line, zone: u64, first: u64, lbas: usize, byte: u8) -> Result<(), IntentError> {
    let parts = [Buffer::copy_from(&vec![byte; lbas * LBA])].into_iter().collect();
    let offset = zone * ZONE_BYTES + first * LBA as u64;
    line.execute(IntentWork::Write { offset, parts, handle: 0 }).result
}

/// Goal: zones are looked at as they are now, in as many reports as it takes.
#[test]
fn zones_are_looked_at_again() {
    let mut line = Line::new(&server(1, true), 1, 1);
    line.run(RemoteDrive::is_up);
    assert!(zones(&line).iter().all(|zone| zone.condition == ZoneCondition::Empty));
    assert_eq!(written(&mut line, 3, 0, 5, 1), Ok(()));
    assert_eq!(written(&mut line, 3, 5, 2, 2), Ok(()));
    let finish = IntentWork::FinishZone { offset: 4 * ZONE_BYTES, len_bytes: ZONE_BYTES };
    assert_eq!(written(&mut line, 4, 0, 1, 3), Ok(()));
    assert_eq!(line.execute(finish).result, Ok(()));
    line.remote.look_at_zones();
    line.run(RemoteDrive::is_up);
    let zones = zones(&line);
    assert_eq!((zones.len() as u64, zones[3].write_pointer), (ZONES, 3 * ZONE_BYTES + 7 * LBA as u64));
    let conditions = [3, 4, 5].map(|zone: usize| zones[zone].condition);
    assert_eq!(conditions, [ZoneCondition::Active, ZoneCondition::Full, ZoneCondition::Empty]);
    assert_eq!(line.server.borrow().flushes, 1, "what lies in a zone is flushed before that is finished");
}

/// Goal: a zone that was finished stays so, and what lies in it stays there, when the target dies. Method: several ends that the drive may choose.
#[test]
fn a_finished_zone_stays_so() {
    for seed in 0..20 {
        let mut line = Line::new(&server(seed, true), 1, seed);
        line.run(RemoteDrive::is_up);
        assert_eq!(written(&mut line, 4, 0, 9, 3), Ok(()));
        let finish = IntentWork::FinishZone { offset: 4 * ZONE_BYTES, len_bytes: ZONE_BYTES };
        assert_eq!(line.execute(finish).result, Ok(()));
        line.close();
        line.server.borrow_mut().crash(&mut Random::of(seed));
        let read =
            IntentWork::Read { offset: 4 * ZONE_BYTES, buffer: BufferMut::copy_from(&[0xee; 9 * LBA]) };
        assert_eq!(line.execute(read).buffer.unwrap()[..], [3; 9 * LBA]);
        line.remote.look_at_zones();
        line.run(RemoteDrive::is_up);
        assert_eq!(zones(&line)[4].condition, ZoneCondition::Full, "seed {seed}");
    }
}

/// Goal: a write that does not begin at a write pointer fails, and says how; one that fails midway is not gone on with.
#[test]
fn a_write_elsewhere_fails() {
    let mut line = Line::new(&server(1, true), 1, 1);
    line.run(RemoteDrive::is_up);
    assert_eq!(written(&mut line, 2, 0, 150, 1), Ok(()));
    assert_eq!(written(&mut line, 2, 0, 1, 2), Err(IntentError::Failed));
    assert!(line.remote.last_failure().is_some());
    assert_eq!(written(&mut line, 2, 150, 43, 2), Err(IntentError::Failed), "beyond its capacity");
    assert_eq!(written(&mut line, 2, 150, 42, 2), Ok(()));
}

/// Goal: where what was answered cannot be had back, no flush says that it can. Method: a zone takes no writes any more, and lost what was not flushed.
#[test]
fn a_zone_that_lost_what_was_answered_fails_flushes() {
    for seed in 0..20 {
        let server = server(seed, true);
        let mut line = Line::new(&server, 1, seed);
        line.run(RemoteDrive::is_up);
        assert_eq!(written(&mut line, 2, 0, 8, 1), Ok(()));
        line.close();
        let mut broken = Zoned::new(seed, true);
        broken.drive.break_zone(2, ZoneCondition::ReadOnly);
        server.borrow_mut().storage = Box::new(broken);
        server.borrow_mut().begin();
        line.run(RemoteDrive::is_up);
        assert_eq!(line.execute(IntentWork::Sync).result, Err(IntentError::Failed));
        assert_eq!(written(&mut line, 3, 0, 8, 1), Ok(()));
        assert_eq!(line.execute(IntentWork::Sync).result, Err(IntentError::Failed), "and none does any more");
    }
}

/// Goal: a connection that ends anywhere in a report is survived.
#[test]
fn a_cut_in_a_report_is_survived() {
    for steps in 0..60 {
        let mut line = Line::new(&server(1, true), 1, steps);
        line.carry_steps(steps);
        line.close();
        line.run(RemoteDrive::is_up);
        assert_eq!(zones(&line).len() as u64, ZONES, "after {steps} steps");
        assert_eq!(written(&mut line, 2, 0, 3, 1), Ok(()));
    }
}

/// Goal: a namespace whose zones are others after a connection was lost is refused, by name.
#[test]
fn other_zones_are_refused() {
    let server = server(1, true);
    let mut line = Line::new(&server, 1, 1);
    line.run(RemoteDrive::is_up);
    line.close();
    server.borrow_mut().storage = Server::plain().storage;
    server.borrow_mut().begin();
    line.run(RemoteDrive::is_gone);
    assert!(matches!(line.remote.error(), Some(RemoteError::OtherNamespace { .. })));
    let said = line.remote.error().unwrap().to_string();
    assert!(said.contains("zones none, and was 48 of 131072"), "{said}");
}
