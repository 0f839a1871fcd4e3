//! Goal: hosts find the log pages and the feature of OCP behind its UUID, and what they say is what was done. Method: a host that reads them
//! as nvme-cli does, over a namespace that answers when the test wants it to.

use crate::world;
use diecut_nvme::admin::{AsynchronousEvent, GetLogPage, Identify};
use diecut_nvme::feature::{EVENT_ACCESS_CHANGE, EVENT_NAMESPACE_ATTRIBUTE, EVENT_TELEMETRY, SetFeatures};
use diecut_nvme::identify::{CTRATT_UUID_LIST, IdentifyController, LPA_TELEMETRY, cns};
use diecut_nvme::log_page::lid;
use diecut_nvme::ocp::{
    self, Bucket, CommandKind, LatencyConfiguration, LatencyLog, LatencyStamp, SmartExtended, TriggerBits,
};
use diecut_nvme::tcp::Digests;
use diecut_nvme::*;
use diecut_nvmf::{ConnectionId, MediaFigures, PanicsTold};
use diecut_units::Span;
use world::*;
use zerocopy::{FromBytes, IntoBytes};

/// Asks for a page as nvme-cli does: for all namespaces, with an index of a UUID.
fn page_at(
    world: &mut World,
    admin: ConnectionId,
    ask: GetLogPage,
    uuid_index: u32,
) -> Result<Vec<u8>, Status> {
    let mut entry = SubmissionEntry {
        opcode: opcode::admin::GET_LOG_PAGE,
        nsid: NSID_ALL.into(),
        sgl: SglDescriptor::transport(ask.length_bytes as u32),
        ..SubmissionEntry::default()
    };
    ask.encode(&mut entry);
    entry.cdw14 = (entry.cdw14.get() | uuid_index).into();
    let reply = world.command(admin, entry, &[]);
    if reply.status.is_success() { Ok(reply.data) } else { Err(reply.status) }
}

fn page(world: &mut World, admin: ConnectionId, id: u8, length_bytes: u64) -> Vec<u8> {
    page_at(world, admin, GetLogPage::of(id, length_bytes), 1)
        .unwrap_or_else(|status| panic!("{id:#x}: {status:?}"))
}

fn latency(world: &mut World, admin: ConnectionId) -> LatencyLog {
    LatencyLog::read_from_bytes(&page(world, admin, ocp::lid::LATENCY_MONITOR, 512)).unwrap()
}

/// Sets the feature as nvme-cli does: without a namespace, to be saved.
fn configure(world: &mut World, admin: ConnectionId, data: &[u8]) -> Status {
    let entry = SubmissionEntry {
        opcode: opcode::admin::SET_FEATURES,
        cdw10: (u32::from(ocp::fid::LATENCY_MONITOR) | 1 << 31).into(),
        sgl: SglDescriptor::in_capsule(data.len() as u32),
        ..SubmissionEntry::default()
    };
    world.command(admin, entry, data).status
}

/// A read that is answered after so long.
fn read_that_takes(world: &mut World, io: ConnectionId, ms: u64) {
    world.hold = true;
    let cid = world.next_id(io);
    let mut entry = world.rw(opcode::io::READ, 0, 1, SglDescriptor::transport(LBA as u32));
    entry.command_id = cid.into();
    entry.flags |= 0x40;
    let capsule = world.capsule(io, entry, &[]);
    world.send(io, &capsule);
    world.now += Span::from_millis(ms);
    world.release_held();
    assert_eq!(world.reply(io, cid).expect("answered").status, Status::SUCCESS);
}

fn world() -> (World, ConnectionId, ConnectionId) {
    let mut world = World::new(5);
    let (admin, controller) = world.admin(SUBSYSTEM, Digests::default());
    let io = world.io(controller, 1, Digests::default());
    (world, admin, io)
}

#[test]
fn the_uuid_is_found_and_pages_are_behind_it() {
    let (mut world, admin, _) = world();
    let mut identify = |cns: u8| {
        let mut entry = SubmissionEntry {
            opcode: opcode::admin::IDENTIFY,
            sgl: SglDescriptor::transport(4096),
            ..SubmissionEntry::default()
        };
        Identify { cns, controller_id: 0, command_set: 0, specific_id: 0 }.encode(&mut entry);
        world.command(admin, entry, &[]).data
    };
    let list = identify(cns::UUIDS);
    assert_eq!(list[..48], [0; 48], "the first entry is reserved");
    assert_eq!(list[48..64], ocp::UUID);
    assert_eq!(list[64..].iter().max(), Some(&0));
    let controller = IdentifyController::read_from_bytes(&identify(cns::CONTROLLER)).unwrap();
    assert_ne!(controller.ctratt.get() & CTRATT_UUID_LIST, 0);
    assert_ne!(controller.lpa & LPA_TELEMETRY, 0);
    let supported = page(&mut world, admin, lid::SUPPORTED_PAGES, 1024);
    for (id, guid, length) in [
        (ocp::lid::SMART_EXTENDED, SmartExtended::GUID, 512),
        (ocp::lid::ERROR_RECOVERY, ocp::ErrorRecovery::GUID, 512),
        (ocp::lid::LATENCY_MONITOR, LatencyLog::GUID, 512),
        (ocp::lid::FIRMWARE_ACTIVATION_HISTORY, ocp::FirmwareActivationHistory::GUID, 4096),
        (ocp::lid::DEVICE_CAPABILITIES, ocp::DeviceCapabilities::GUID, 4096),
        (ocp::lid::UNSUPPORTED_REQUIREMENTS, ocp::UnsupportedRequirements::GUID, 4096),
    ] {
        assert_eq!(supported[usize::from(id) * 4], 1, "{id:#x} is told");
        assert_eq!(page(&mut world, admin, id, length)[length as usize - 16..], guid, "{id:#x}");
        assert!(page_at(&mut world, admin, GetLogPage::of(id, length), 0).is_ok(), "no UUID is any UUID");
        let other = page_at(&mut world, admin, GetLogPage::of(id, length), 2);
        assert_eq!(other, Err(Status::INVALID_FIELD.do_not_retry()), "another UUID");
    }
    let strings = page(&mut world, admin, ocp::lid::TELEMETRY_STRINGS, 432);
    assert_eq!(strings[16..32], ocp::TelemetryStrings::GUID);
    // A part of a page is that part.
    let all = page(&mut world, admin, ocp::lid::SMART_EXTENDED, 512);
    let part = page_at(
        &mut world,
        admin,
        GetLogPage { offset: 496, ..GetLogPage::of(ocp::lid::SMART_EXTENDED, 16) },
        1,
    );
    assert_eq!(part.unwrap(), all[496..]);
}

#[test]
fn extended_health_says_what_media_did() {
    let (mut world, admin, _) = world();
    world.media = MediaFigures {
        written_bytes: 7 << 20,
        read_bytes: 3 << 20,
        bad_blocks: 5,
        spare_percent: 75,
        erases_max: 30,
        erases_min: 10,
        erases_average: 20,
        free_percent: 40,
        dies: 8,
        uncorrectable_reads: 2,
        incomplete_shutdowns: 3,
    };
    let bytes = page(&mut world, admin, ocp::lid::SMART_EXTENDED, 512);
    let health = SmartExtended::read_from_bytes(&bytes).unwrap();
    assert_eq!(health.physical_media_bytes_written.get(), 7 << 20);
    assert_eq!(health.physical_media_bytes_read.get(), 3 << 20);
    assert_eq!((health.bad_user_blocks.get(), health.bad_user_blocks_normalized.get()), (5, 75));
    assert_eq!((health.erases_max.get(), health.erases_min.get(), health.erases_average.get()), (30, 10, 20));
    assert_eq!((health.free_blocks_percent, health.total_dies.get()), (40, 8));
    assert_eq!((health.uncorrectable_reads.get(), health.incomplete_shutdowns.get()), (2, 3));
    assert_eq!(health.capacitor_health.get(), ocp::NOT_SUPPORTED);
    assert_eq!(&health.firmware_revision, b"0.1     ");
}

/// Goal: what a host sets is in force and read back; what cannot be is refused. Method: the bytes of nvme-cli.
#[test]
fn the_monitor_is_set_and_read_back() {
    let (mut world, admin, io) = world();
    let mut configuration = LatencyConfiguration {
        thresholds: [0, 1, 2, 3],
        timer_threshold: 1.into(),
        ..LatencyConfiguration::default()
    };
    assert_eq!(configure(&mut world, admin, &configuration.encode()), Status::SUCCESS);
    let get = |world: &mut World, select: u32, room: u32| {
        let entry = SubmissionEntry {
            opcode: opcode::admin::GET_FEATURES,
            cdw10: (u32::from(ocp::fid::LATENCY_MONITOR) | select << 8).into(),
            cdw14: 1.into(),
            sgl: SglDescriptor::transport(room),
            ..SubmissionEntry::default()
        };
        world.command(admin, entry, &[])
    };
    assert_eq!(get(&mut world, 0, 4096).data, configuration.encode());
    assert_eq!(get(&mut world, 1, 4096).data, LatencyConfiguration::default().encode());
    // nvme-cli gives it no room, and shows the result.
    let without = get(&mut world, 0, 0);
    assert_eq!((without.status, without.data.len()), (Status::SUCCESS, 0));
    assert_eq!(get(&mut world, 3, 0).result, 4, "changeable");
    for (ms, at) in [(4, None), (5, Some(0)), (12, Some(1)), (19, Some(2)), (20, Some(3))] {
        let counts =
            |log: &LatencyLog| Bucket::ALL.map(|bucket| log.active.counter(bucket, CommandKind::Read));
        let before = counts(&latency(&mut world, admin));
        read_that_takes(&mut world, io, ms);
        let after = counts(&latency(&mut world, admin));
        let grown: Vec<usize> = (0..4).filter(|bucket| after[*bucket] > before[*bucket]).collect();
        assert_eq!(grown, at.into_iter().collect::<Vec<usize>>(), "{ms} ms");
    }
    // Five minutes later all of it is static.
    let before = latency(&mut world, admin);
    world.now += Span::from_secs(300);
    let after = latency(&mut world, admin);
    assert_eq!(after.static_, before.active);
    assert_eq!(after.active, ocp::LatencySide::default());
    configuration.thresholds = [3, 2, 1, 0];
    assert_eq!(configure(&mut world, admin, &configuration.encode()), Status::INVALID_FIELD.do_not_retry());
    assert_eq!(configure(&mut world, admin, &[0; 64]), Status::INVALID_FIELD.do_not_retry(), "too short");
    assert_eq!(latency(&mut world, admin).thresholds, [0, 1, 2, 3]);
}

/// Goal: an outlier is captured with what is known of it, in C3h, in the debug log and in controller-initiated telemetry, until it was read.
#[test]
fn an_outlier_is_in_the_debug_log_until_it_is_read() {
    let (mut world, admin, io) = world();
    let trigger = TriggerBits::of(Bucket::ALL[3], CommandKind::Read);
    let configuration =
        LatencyConfiguration { debug_trigger: trigger.0.into(), ..LatencyConfiguration::default() };
    assert_eq!(configure(&mut world, admin, &configuration.encode()), Status::SUCCESS);
    let telemetry = |world: &mut World, id: u8, specific: u8| {
        let header = page_at(world, admin, GetLogPage { specific, ..GetLogPage::of(id, 512) }, 0).unwrap();
        let blocks = u16::from_le_bytes([header[10], header[11]]);
        page(world, admin, id, (u64::from(blocks) + 1) * 512)
    };
    assert_eq!(telemetry(&mut world, lid::TELEMETRY_CONTROLLER, 0)[382], 0, "nothing yet");
    let clock = SubmissionEntry {
        opcode: opcode::admin::SET_FEATURES,
        cdw10: u32::from(feature::fid::TIMESTAMP).into(),
        sgl: SglDescriptor::in_capsule(8),
        ..SubmissionEntry::default()
    };
    assert_eq!(world.command(admin, clock, &1_000_000u64.to_le_bytes()).status, Status::SUCCESS);
    read_that_takes(&mut world, io, 40);
    read_that_takes(&mut world, io, 300);
    read_that_takes(&mut world, io, 400);
    let log = latency(&mut world, admin);
    assert_eq!((log.debug_measured.get(), log.debug_source.get()), (300, trigger.0));
    assert_eq!((log.debug_stamp.get(), log.debug_units), (LatencyStamp::new(1_000_340, true).0, 1));
    assert_eq!(log.debug_size[..2], [15, 0]);
    let captured = telemetry(&mut world, lid::TELEMETRY_CONTROLLER, 0);
    assert_eq!((captured[382], captured[383]), (1, 1));
    let at = usize::from(log.debug_pointer.get()) * 512;
    assert_eq!(captured[at..at + 15], *b"why it was slow");
    assert_eq!(captured[512 + 1024 + 496..512 + 1536], SmartExtended::GUID, "with extended health");
    // Whoever asks for it gets the present state in host-initiated telemetry; the generation rises with each capture only.
    let first = telemetry(&mut world, lid::TELEMETRY_HOST, 1);
    assert_eq!((first[381], first[at..at + 15].to_vec()), (1, b"why it was slow".to_vec()));
    assert_eq!(telemetry(&mut world, lid::TELEMETRY_HOST, 0)[381], 1);
    assert_eq!(telemetry(&mut world, lid::TELEMETRY_HOST, 1)[381], 2);
    // Read to its end, it makes room for the next one.
    let retained = GetLogPage { retain_event: true, ..GetLogPage::of(ocp::lid::LATENCY_DEBUG, 16) };
    assert_eq!(page_at(&mut world, admin, retained, 1).unwrap()[..15], *b"why it was slow");
    assert_eq!(latency(&mut world, admin).debug_measured.get(), 300);
    assert_eq!(page(&mut world, admin, ocp::lid::LATENCY_DEBUG, 16)[..15], *b"why it was slow");
    assert_eq!(latency(&mut world, admin).debug_measured.get(), 0);
    read_that_takes(&mut world, io, 500);
    assert_eq!(latency(&mut world, admin).debug_measured.get(), 500);
}

/// Goal: a host that goes away while its page waits for what media did leaves nothing behind.
#[test]
fn a_page_that_nobody_waits_for_any_more_is_dropped() {
    let (mut world, admin, _) = world();
    world.keep_questions = true;
    let mut entry = SubmissionEntry {
        opcode: opcode::admin::GET_LOG_PAGE,
        command_id: 77.into(),
        flags: 0x40,
        sgl: SglDescriptor::transport(512),
        ..SubmissionEntry::default()
    };
    GetLogPage::of(ocp::lid::SMART_EXTENDED, 512).encode(&mut entry);
    let capsule = world.capsule(admin, entry, &[]);
    world.send(admin, &capsule);
    assert_eq!(world.questions.len(), 1);
    world.handle(diecut_nvmf::Event::Closed(admin));
    let question = world.questions.pop().unwrap();
    world.handle(diecut_nvmf::Event::Told(Box::new(question.unknown())));
    world.target.check_budget();
    assert!(world.target.is_quiet(&QualifiedName::new(SUBSYSTEM).unwrap()));
    assert_eq!(entry.as_bytes().len(), 64);
}

fn static_buckets() {
    let (mut world, admin, io) = world();
    let configuration = LatencyConfiguration { timer_threshold: 1.into(), ..LatencyConfiguration::default() };
    assert_eq!(configure(&mut world, admin, &configuration.encode()), Status::SUCCESS);
    read_that_takes(&mut world, io, 40);
    world.now += Span::from_secs(300);
    assert_eq!(latency(&mut world, admin).active, ocp::LatencySide::default());
}

fn windows() {
    let (mut world, admin, io) = world();
    read_that_takes(&mut world, io, 40);
    read_that_takes(&mut world, io, 50);
    let log = latency(&mut world, admin);
    assert_eq!(log.active.measured(Bucket::ALL[0], CommandKind::Read).0, 40, "a second has not passed");
}

fn wants_events(world: &mut World, admin: ConnectionId, value: u32) -> Status {
    let mut entry = SubmissionEntry { opcode: opcode::admin::SET_FEATURES, ..SubmissionEntry::default() };
    let feature = feature::fid::ASYNCHRONOUS_EVENT_CONFIGURATION;
    SetFeatures { feature, save: false, value }.encode(&mut entry);
    world.command(admin, entry, &[]).status
}

/// Goal: hosts are told of controller-initiated telemetry, once until they read it, and those who come afterwards as long as nobody has.
/// Method: a host asks for all that Identify says there is, as SPDK does, a second one for nothing; slow reads; then a panic.
fn tell_telemetry() {
    let (mut world, admin, io) = world();
    let (other, _) = world.admin(SUBSYSTEM, Digests::NONE);
    let all = EVENT_TELEMETRY | EVENT_NAMESPACE_ATTRIBUTE | EVENT_ACCESS_CHANGE | 0x1F;
    assert_eq!(wants_events(&mut world, admin, all), Status::SUCCESS);
    let debug_trigger = TriggerBits::of(Bucket::ALL[3], CommandKind::Read).0.into();
    let configuration = LatencyConfiguration { debug_trigger, ..LatencyConfiguration::default() };
    assert_eq!(configure(&mut world, admin, &configuration.encode()), Status::SUCCESS);
    let (request, of_other) = (world.ask_for_event(admin), world.ask_for_event(other));
    read_that_takes(&mut world, io, 300);
    let told = u64::from(AsynchronousEvent::TELEMETRY_CAPTURED.encode());
    assert_eq!(world.reply(admin, request).expect("told").result, told);
    assert!(world.reply(other, of_other).is_none(), "it did not want to know");
    let slow_again = |world: &mut World| {
        page(world, admin, ocp::lid::LATENCY_DEBUG, 16);
        read_that_takes(world, io, 300);
    };
    let request = world.ask_for_event(admin);
    slow_again(&mut world);
    let retained = GetLogPage { retain_event: true, ..GetLogPage::of(lid::TELEMETRY_CONTROLLER, 512) };
    page_at(&mut world, admin, retained, 0).unwrap();
    slow_again(&mut world);
    assert!(world.reply(admin, request).is_none(), "masked until the page is read");
    assert_eq!(wants_events(&mut world, other, EVENT_TELEMETRY), Status::SUCCESS);
    assert_eq!(world.reply(other, of_other).expect("nobody has read it").result, told);
    page(&mut world, admin, lid::TELEMETRY_CONTROLLER, 512);
    let (late, _) = world.admin(SUBSYSTEM, Digests::NONE);
    assert_eq!(wants_events(&mut world, late, EVENT_TELEMETRY), Status::SUCCESS);
    let of_late = world.ask_for_event(late);
    assert!(world.reply(late, of_late).is_none(), "it was read");
    slow_again(&mut world);
    assert_eq!(world.reply(admin, request).expect("told again").result, told);
    assert_eq!(world.reply(late, of_late).expect("told").result, told);
    page(&mut world, admin, lid::TELEMETRY_CONTROLLER, 512);
    let request = world.ask_for_event(admin);
    let panic = PanicsTold { count: 1, ids: [8, 0, 0, 0], record: b"planted".to_vec() };
    let mut actions = Vec::new();
    world.target.set_panics(&name(SUBSYSTEM), panic, &mut actions);
    world.act(actions);
    assert_eq!(world.reply(admin, request).expect("told of a panic").result, told);
}

#[test]
fn hosts_are_told_of_telemetry() {
    tell_telemetry();
}

#[test]
fn planted_bugs_are_noticed() {
    windows();
    static_buckets();
    diecut_testing::planted::all_are_noticed(&[
        ("nvmf: no minimum window of latencies", windows),
        ("nvmf: static latency buckets stay active", static_buckets),
        ("nvmf: telemetry that was captured is not told", tell_telemetry),
    ]);
}

/// Goal: hosts read of panics of the server: how many, their IDs, and of one that concerns the subsystem what failed; a capture that was
/// told of once is not told of again. Method: nothing before; then a panic of somebody else, then one of this subsystem, told twice.
#[test]
fn panics_of_the_server_are_told() {
    let (mut world, admin, _) = world();
    let recovery = |world: &mut World| page(world, admin, ocp::lid::ERROR_RECOVERY, 512);
    let telemetry = |world: &mut World| page(world, admin, lid::TELEMETRY_CONTROLLER, 512 * 6);
    let ids =
        |page: &[u8]| [0, 1].map(|at| u64::from_le_bytes(page[32 + at * 8..40 + at * 8].try_into().unwrap()));
    assert_eq!(recovery(&mut world)[31], 0);
    let nqn = name(SUBSYSTEM);
    let others = PanicsTold { count: 3, ids: [7, 9, 9, 0], record: Vec::new() };
    world.target.set_panics(&nqn, others, &mut Vec::new());
    let page = recovery(&mut world);
    assert_eq!((page[31], ids(&page), page[4]), (3, [7, 9], 0), "no panic goes on");
    assert_eq!(telemetry(&mut world)[382], 0, "what failed for others is not told");
    let own = PanicsTold { count: 4, ids: [8, 7, 9, 9], record: b"planted".to_vec() };
    for _ in 0..2 {
        world.target.set_panics(&nqn, own.clone(), &mut Vec::new());
        let captured = telemetry(&mut world);
        assert_eq!(
            (captured[382], captured[383]),
            (1, 4),
            "data are there, of a generation that no host has seen"
        );
        assert!(captured[384..].starts_with(b"panic: an inner check failed"));
        assert!(captured[512 * 5..].starts_with(b"planted"), "behind data area 1");
    }
    assert_eq!(ids(&recovery(&mut world)), [8, 7]);
}
