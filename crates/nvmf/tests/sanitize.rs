//! Goal: a host that sanitizes its subsystem finds nothing of what was there, is told of the end, and nobody writes meanwhile; a failure and
//! a restart are what the log page says. Method: hosts with namespaces in memory, and each command to a namespace one by one.

use crate::world;
use diecut_namespace::contract::*;
use diecut_nvme::admin::{AsynchronousEvent, GetLogPage, Identify};
use diecut_nvme::identify::cns;
use diecut_nvme::io::{Copy, CopyRange};
use diecut_nvme::log_page::{AnaState, lid};
use diecut_nvme::opcode::{admin, io};
use diecut_nvme::openchannel::opcode as oc;
use diecut_nvme::reservation::*;
use diecut_nvme::sanitize::{Sanitize, SanitizeLog, action};
use diecut_nvme::tcp::Digests;
use diecut_nvme::*;
use diecut_nvmf::*;
use world::*;
use zerocopy::{FromBytes, IntoBytes};

const ERASE: Sanitize = Sanitize {
    action: action::BLOCK_ERASE,
    unrestricted: false,
    overwrite_passes: 0,
    inverts_pattern: false,
    no_deallocate: false,
    pattern: 0,
};
const EXIT: Sanitize = Sanitize { action: action::EXIT_FAILURE_MODE, ..ERASE };

fn entry_of(sanitize: Sanitize) -> SubmissionEntry {
    let mut entry = SubmissionEntry { opcode: admin::SANITIZE, ..SubmissionEntry::default() };
    sanitize.encode(&mut entry);
    entry
}

fn sanitize(world: &mut World, admin: ConnectionId, what: Sanitize) -> Status {
    world.command(admin, entry_of(what), &[]).status
}

/// Sends the command, which is not answered at once. Its identifier.
fn begin(world: &mut World, admin: ConnectionId, what: Sanitize) -> u16 {
    let id = world.next_id(admin);
    let entry = SubmissionEntry { command_id: id.into(), flags: 0x40, ..entry_of(what) };
    let bytes = world.capsule(admin, entry, &[]);
    world.send(admin, &bytes);
    id
}

fn log_entry(page: u8, length_bytes: u64, retain_event: bool) -> SubmissionEntry {
    let sgl = SglDescriptor::transport(length_bytes as u32);
    let mut entry = SubmissionEntry { opcode: admin::GET_LOG_PAGE, sgl, ..SubmissionEntry::default() };
    GetLogPage { retain_event, ..GetLogPage::of(page, length_bytes) }.encode(&mut entry);
    entry
}

fn log(world: &mut World, admin: ConnectionId) -> SanitizeLog {
    let page = world.command(admin, log_entry(lid::SANITIZE_STATUS, 512, true), &[]).data;
    SanitizeLog::read_from_bytes(&page).unwrap()
}

/// SPROG, SSTAT and SCDW10.
fn figures(world: &mut World, admin: ConnectionId) -> (u16, u16, u32) {
    let log = log(world, admin);
    (log.sprog.get(), log.sstat.get(), log.scdw10.get())
}

fn identify(world: &mut World, admin: ConnectionId) -> Vec<u8> {
    let sgl = SglDescriptor::transport(4096);
    let mut entry = SubmissionEntry { opcode: admin::IDENTIFY, sgl, ..SubmissionEntry::default() };
    Identify { cns: cns::CONTROLLER, controller_id: 0, command_set: 0, specific_id: 0 }.encode(&mut entry);
    world.command(admin, entry, &[]).data
}

/// A host's queues.
fn host(world: &mut World) -> (ConnectionId, ConnectionId) {
    let (admin, controller) = world.admin(SUBSYSTEM, Digests::NONE);
    (admin, world.io(controller, 1, Digests::NONE))
}

fn event(reply: &Reply) -> AsynchronousEvent {
    AsynchronousEvent::decode(reply.result as u32)
}

fn configure(world: &mut World, change: impl FnOnce(&mut SubsystemConfig)) {
    let mut config = subsystem();
    change(&mut config);
    let mut actions = Vec::new();
    world.target.set_subsystem(config, world.now, &mut actions);
    world.act(actions);
}

/// Answers the commands that namespaces have, one round.
fn answer_held(world: &mut World) {
    for command in std::mem::take(&mut world.held) {
        world.execute(command);
    }
}

/// Answers what is to be durable.
fn answer_records(world: &mut World, is_kept: bool) {
    for keep in std::mem::take(&mut world.records_held) {
        world.handle(Event::Kept(keep.kept().with(is_kept)));
    }
}

fn fail_held(world: &mut World, error: &NamespaceError) {
    for command in std::mem::take(&mut world.held) {
        let completion = NamespaceCompletion::without_data(command.token, Err(error.clone()));
        world.handle(Event::Completed(completion));
    }
}

const BROKEN: NamespaceError = NamespaceError::ReadOnly { reason: "its erase blocks failed" };

#[test]
fn what_is_offered_is_told() {
    let mut world = World::new(1);
    let (admin, _) = host(&mut world);
    // Block Erase; NDI; NODMMAS 01b.
    assert_eq!(identify(&mut world, admin)[328..332], [0x02, 0, 0, 0x60]);
    let page = world.command(admin, log_entry(lid::SUPPORTED_PAGES, 1024, true), &[]).data;
    assert_eq!(page[4 * 0x81], 1);
    let page = world.command(admin, log_entry(lid::COMMAND_EFFECTS, 4096, true), &[]).data;
    // CSUPP, LBCC, scope of the subsystem.
    assert_eq!(page[4 * 0x84..][..4], [0x03, 0, 0, 0x02]);
    assert_eq!(figures(&mut world, admin), (0xFFFF, 0, 0));
    // A subsystem with a namespace that cannot: nothing of it is there.
    configure(&mut world, |config| config.namespaces.get_mut(&1).unwrap().properties.purges = false);
    assert_eq!(identify(&mut world, admin)[328..332], [0; 4]);
    assert!(sanitize(&mut world, admin, ERASE).same_code(Status::INVALID_OPCODE));
    assert!(sanitize(&mut world, admin, EXIT).same_code(Status::INVALID_OPCODE));
    let reply = world.command(admin, log_entry(lid::SANITIZE_STATUS, 512, true), &[]);
    assert!(reply.status.same_code(Status::INVALID_LOG_PAGE));
    let page = world.command(admin, log_entry(lid::SUPPORTED_PAGES, 1024, true), &[]).data;
    assert_eq!(page[4 * 0x81], 0);
}

/// The whole life of one, with two controllers.
#[test]
fn a_subsystem_is_sanitized() {
    let mut world = World::new(2);
    configure(&mut world, |config| _ = config.namespaces.insert(2, namespace(7, 10_000)));
    let (admin, io) = host(&mut world);
    let (other, other_io) = host(&mut world);
    assert_eq!(world.write(io, 3, &vec![0x5A; LBA], true).status, Status::SUCCESS);
    let events = [admin, other].map(|id| (id, world.ask_for_event(id)));
    (world.hold, world.hold_records) = (true, true);
    let command = begin(&mut world, admin, Sanitize { unrestricted: true, ..ERASE });
    // Nothing was answered or begun, and nobody writes any more.
    assert!(world.reply(admin, command).is_none() && world.held.is_empty());
    assert_eq!(figures(&mut world, admin), (0, 2, 0x0A));
    assert!(world.write(other_io, 3, &vec![1; LBA], true).status.same_code(Status::SANITIZE_IN_PROGRESS));
    answer_records(&mut world, true);
    assert_eq!(world.reply(admin, command).unwrap().status, Status::SUCCESS);
    let mut seen = Vec::new();
    let mut progress = 0;
    while let Some(command) = world.held.pop() {
        assert!(world.held.is_empty(), "one command at a time");
        seen.push(match &command.operation {
            NamespaceOperation::WriteZeroes { range, may_deallocate: true, .. } => {
                (range.first_lba, range.lba_count)
            }
            NamespaceOperation::Purge => (0, 0),
            other => panic!("{other:?}"),
        });
        assert!(world.read(io, 3, 1).status.same_code(Status::SANITIZE_IN_PROGRESS));
        assert!(sanitize(&mut world, other, ERASE).same_code(Status::SANITIZE_IN_PROGRESS));
        let (now, status, dword) = figures(&mut world, other);
        assert!((status, dword) == (2, 0x0A) && now >= progress && now < 0xFFFF, "{now}");
        assert!(seen.len() == 1 || now > progress, "it moves");
        progress = now;
        let completion = NamespaceCompletion::without_data(command.token, Ok(()));
        if let NamespaceOperation::WriteZeroes { .. } = command.operation {
            world.memory.fill(0);
        }
        world.handle(Event::Completed(completion));
    }
    // All blocks of both, then both are purged.
    assert_eq!(seen, [(0, 256), (0, 4096), (4096, 4096), (8192, 1808), (0, 0), (0, 0)]);
    assert_eq!(figures(&mut world, admin), (0xFFFE, 2, 0x0A), "it is over when that is durable");
    for (id, event) in events {
        assert!(world.reply(id, event).is_none());
    }
    answer_records(&mut world, true);
    for (id, command) in events {
        let reply = world.reply(id, command).expect("each controller is told");
        assert_eq!(event(&reply), AsynchronousEvent::SANITIZE_COMPLETED);
    }
    configure(&mut world, |_| {});
    world.release_held();
    world.hold_records = false;
    assert_eq!(figures(&mut world, admin), (0xFFFF, 0x101, 0x0A));
    assert_eq!(world.read(io, 3, 1).data, vec![0; LBA]);
    assert_eq!(figures(&mut world, admin).1, 0x101, "a read writes nothing");
    assert_eq!(world.write(io, 3, &vec![1; LBA], true).status, Status::SUCCESS);
    assert_eq!(figures(&mut world, admin).1, 0x001);
    // The event comes once more when the page was read and not retained.
    assert_eq!(sanitize(&mut world, admin, ERASE), Status::SUCCESS);
    let page = log_entry(lid::SANITIZE_STATUS, 512, false);
    assert_eq!(world.command(other, page, &[]).status, Status::SUCCESS);
    let (first, second) = (world.ask_for_event(admin), world.ask_for_event(other));
    assert_eq!(event(&world.reply(admin, first).unwrap()), AsynchronousEvent::SANITIZE_COMPLETED);
    assert!(world.reply(other, second).is_none(), "it was read");
    assert_eq!(figures(&mut world, admin).1, 0x101);
}

/// A copy writes, too: a subsystem in which one was made is not erased any more. What only reads changes nothing.
#[test]
fn a_copy_is_a_write() {
    let mut world = World::new(12);
    let (admin, io) = host(&mut world);
    assert_eq!(sanitize(&mut world, admin, ERASE), Status::SUCCESS);
    for code in [io::VERIFY, io::FLUSH] {
        let entry = world.rw(code, 0, 1, SglDescriptor::default());
        assert_eq!(world.command(io, entry, &[]).status, Status::SUCCESS);
    }
    assert_eq!(figures(&mut world, admin).1, 0x101);
    let sgl = SglDescriptor::in_capsule(CopyRange::SIZE_BYTES as u32);
    let mut entry = SubmissionEntry { opcode: io::COPY, nsid: 1.into(), sgl, ..SubmissionEntry::default() };
    Copy { start: 5, range_count: 1, ..Copy::default() }.encode(&mut entry);
    let range = CopyRange { start: 9.into(), ..CopyRange::default() };
    assert_eq!(world.command(io, entry, range.as_bytes()).status, Status::SUCCESS);
    assert_eq!(figures(&mut world, admin).1, 0x001);
}

/// Of several namespaces with zones each one is reset and looked at, before any is purged.
#[test]
fn zones_of_all_namespaces_are_reset() {
    let mut world = World::new(13);
    configure(&mut world, |config| {
        config.namespaces.get_mut(&1).unwrap().properties.zones = Some(ZONES);
        let second = config.namespaces[&1].clone();
        config.namespaces.insert(2, NamespaceConfig { namespace: NamespaceId(8), ..second });
    });
    let (admin, _) = host(&mut world);
    world.hold = true;
    assert_eq!(sanitize(&mut world, admin, ERASE), Status::SUCCESS);
    let mut seen = Vec::new();
    while let Some(command) = world.held.pop() {
        let is_report = matches!(command.operation, NamespaceOperation::Zone(ZoneRequest::Report(_)));
        let name = match command.operation {
            NamespaceOperation::Zone(ZoneRequest::Act { zone_lba: None, action: ZoneAction::Reset }) => {
                "reset"
            }
            NamespaceOperation::Zone(ZoneRequest::Report(_)) => "look",
            NamespaceOperation::Purge => "purge",
            other => panic!("{other:?}"),
        };
        seen.push((command.namespace.0, name));
        let report = || ZoneOutcome::Report(Box::new(ZoneReport { zones: Vec::new(), matching: 0 }));
        let done = NamespaceCompletion::without_data(command.token, Ok(()));
        let zones = is_report.then(report);
        world.handle(Event::Completed(NamespaceCompletion { zones, ..done }));
    }
    let expected = [(7, "reset"), (7, "look"), (8, "reset"), (8, "look"), (7, "purge"), (8, "purge")];
    assert_eq!(seen, expected);
    assert_eq!(figures(&mut world, admin).1, 0x101);
}

/// Chunks are cleared in pieces, by their number, and how much is done is told in between.
#[test]
fn chunks_are_cleared_in_pieces() {
    let mut world = World::new(12);
    let shape = ChunkShape { groups: 1, units: 2, chunks: 600, unit_ius: 4, rows: 2, unsafe_units: 1 };
    configure(&mut world, |config| {
        let properties = &mut config.namespaces.get_mut(&1).unwrap().properties;
        properties.size_lbas = shape.size_lbas();
        properties.chunks = Some(ChunkProperties { shape, read_ns: 1, write_ns: 2, reset_ns: 3 });
    });
    let (admin, io) = host(&mut world);
    assert_eq!(identify(&mut world, admin)[328], 0x02, "block erase is offered");
    world.hold = true;
    assert_eq!(sanitize(&mut world, admin, ERASE), Status::SUCCESS);
    let (mut seen, mut cleared) = (Vec::new(), 0);
    while let Some(command) = world.held.pop() {
        match command.operation {
            NamespaceOperation::Chunk(ChunkRequest::Clear { first, count }) => {
                assert_eq!(first, cleared, "in order");
                cleared += count;
                seen.push(count);
            }
            NamespaceOperation::Purge => assert_eq!(cleared, 1200, "all chunks are cleared before"),
            other => panic!("{other:?}"),
        }
        for code in [oc::VECTOR_RESET, oc::VECTOR_WRITE, oc::VECTOR_READ, oc::VECTOR_COPY] {
            let entry = SubmissionEntry { opcode: code, nsid: 1.into(), ..SubmissionEntry::default() };
            assert!(
                world.command(io, entry, &[]).status.same_code(Status::SANITIZE_IN_PROGRESS),
                "{code:#x}"
            );
        }
        let geometry = SubmissionEntry { opcode: oc::GEOMETRY, nsid: 1.into(), ..SubmissionEntry::default() };
        assert!(world.command(admin, geometry, &[]).status.same_code(Status::SANITIZE_IN_PROGRESS));
        world.handle(Event::Completed(NamespaceCompletion::without_data(command.token, Ok(()))));
        if world.held.len() == 1 {
            let half = u64::from(cleared) * 8 * 65_536 / (2 * 1200 * 8);
            assert_eq!(u64::from(figures(&mut world, admin).0), half);
        }
    }
    assert_eq!(seen, [512, 512, 176], "pieces of {} blocks", 4096);
    assert_eq!(figures(&mut world, admin), (0xFFFF, 0x101, 2));
}

/// What hosts had begun lands before, and what they send late does not land at all.
#[test]
fn nothing_lands_behind_it() {
    let mut world = World::new(3);
    let (admin, io) = host(&mut world);
    world.hold = true;
    let sgl = SglDescriptor::in_capsule(LBA as u32);
    let begun = SubmissionEntry { command_id: 7.into(), flags: 0x40, ..world.rw(io::WRITE, 1, 1, sgl) };
    let bytes = world.capsule(io, begun, &vec![0x11; LBA]);
    world.send(io, &bytes);
    let sgl = SglDescriptor::transport(LBA as u32);
    let late = SubmissionEntry { command_id: 8.into(), flags: 0x40, ..world.rw(io::WRITE, 2, 1, sgl) };
    let bytes = world.capsule(io, late, &[]);
    world.send(io, &bytes);
    assert_eq!(sanitize(&mut world, admin, ERASE), Status::SUCCESS);
    assert_eq!(world.held.len(), 1, "nothing begins before the write is back");
    world.serve_transfers(io, &vec![0x22; LBA]);
    assert!(world.reply(io, 8).unwrap().status.same_code(Status::SANITIZE_IN_PROGRESS));
    world.release_held();
    assert_eq!(world.reply(io, 7).unwrap().status, Status::SUCCESS);
    assert_eq!(figures(&mut world, admin).1, 0x101);
    assert!(world.memory.iter().all(|byte| *byte == 0));
}

/// Commands that are let through, and not, while one goes on and after it failed.
#[test]
fn other_commands_meet_it() {
    for fails in [false, true] {
        let mut world = World::new(4);
        let (admin, io) = host(&mut world);
        // An error that names a block.
        assert!(world.read(io, LBAS, 1).status.same_code(Status::LBA_OUT_OF_RANGE));
        world.hold = true;
        assert_eq!(sanitize(&mut world, admin, ERASE), Status::SUCCESS);
        if fails {
            fail_held(&mut world, &BROKEN);
            assert_eq!(figures(&mut world, admin), (0xFFFF, 3, 2));
        }
        let refusal = if fails { Status::SANITIZE_FAILED } else { Status::SANITIZE_IN_PROGRESS };
        let none = SglDescriptor::default();
        let page = vec![0; LBA];
        for code in [io::FLUSH, io::WRITE_ZEROES, io::VERIFY, io::WRITE_UNCORRECTABLE] {
            let entry = world.rw(code, 0, 1, none);
            assert!(world.command(io, entry, &[]).status.same_code(refusal), "{code:#x}");
        }
        for code in [io::WRITE, io::COMPARE] {
            let entry = world.rw(code, 0, 1, SglDescriptor::in_capsule(LBA as u32));
            assert!(world.command(io, entry, &page).status.same_code(refusal), "{code:#x}");
        }
        assert!(world.read(io, 0, 1).status.same_code(refusal));
        let report = SubmissionEntry {
            opcode: io::RESERVATION_REPORT,
            nsid: 1.into(),
            sgl: SglDescriptor::transport(4096),
            cdw10: 1023.into(),
            ..SubmissionEntry::default()
        };
        assert!(world.command(io, report, &[]).status.same_code(refusal));
        let format = SubmissionEntry { opcode: admin::FORMAT_NVM, nsid: 1.into(), ..Default::default() };
        assert!(world.command(admin, format, &[]).status.same_code(refusal));
        for page in [lid::TELEMETRY_HOST, lid::TELEMETRY_CONTROLLER, lid::FEATURE_EFFECTS] {
            let reply = world.command(admin, log_entry(page, 512, true), &[]);
            assert!(reply.status.same_code(refusal), "{page:#x}");
        }
        for page in [
            lid::SMART,
            lid::CHANGED_NAMESPACES,
            lid::RESERVATION,
            lid::SUPPORTED_PAGES,
            lid::COMMAND_EFFECTS,
            lid::ASYMMETRIC_NAMESPACE_ACCESS,
            ocp::lid::SMART_EXTENDED,
        ] {
            let reply = world.command(admin, log_entry(page, 64, true), &[]);
            assert_eq!(reply.status, Status::SUCCESS, "{page:#x}");
        }
        let errors = world.command(admin, log_entry(lid::ERROR_INFORMATION, 1024, true), &[]).data;
        let named = errors.chunks_exact(64).filter(|one| one[16..24] != [0; 8]).count();
        assert_eq!(named, 0, "no block is named");
        identify(&mut world, admin);
        let alive = SubmissionEntry { opcode: admin::KEEP_ALIVE, ..SubmissionEntry::default() };
        assert_eq!(world.command(admin, alive, &[]).status, Status::SUCCESS);
        let abort = SubmissionEntry { opcode: admin::ABORT, cdw10: 1.into(), ..SubmissionEntry::default() };
        assert_eq!(world.command(admin, abort, &[]).status, Status::SUCCESS);
        for code in [admin::GET_FEATURES, admin::SET_FEATURES] {
            let entry = SubmissionEntry { opcode: code, cdw10: 0x0B.into(), ..SubmissionEntry::default() };
            assert_eq!(world.command(admin, entry, &[]).status, Status::SUCCESS);
        }
        // A host may come.
        host(&mut world);
    }
}

#[test]
fn failures_are_left_as_they_were_begun() {
    // In restricted mode only the same may be done once more.
    let mut world = World::new(5);
    let (admin, io) = host(&mut world);
    assert_eq!(sanitize(&mut world, admin, EXIT), Status::SUCCESS, "there is nothing to leave");
    let unrestricted = Sanitize { unrestricted: true, ..ERASE };
    world.hold = true;
    assert_eq!(sanitize(&mut world, admin, ERASE), Status::SUCCESS);
    let told = world.ask_for_event(admin);
    fail_held(&mut world, &BROKEN);
    assert_eq!(event(&world.reply(admin, told).unwrap()), AsynchronousEvent::SANITIZE_COMPLETED);
    assert!(sanitize(&mut world, admin, EXIT).same_code(Status::SANITIZE_FAILED));
    assert!(sanitize(&mut world, admin, unrestricted).same_code(Status::SANITIZE_FAILED));
    assert_eq!(sanitize(&mut world, admin, ERASE), Status::SUCCESS);
    assert_eq!(figures(&mut world, admin), (0, 2, 2));
    world.release_held();
    assert_eq!(figures(&mut world, admin), (0xFFFF, 0x101, 2));
    // In unrestricted mode it may be left, and the log still tells of it.
    world.hold = true;
    assert_eq!(sanitize(&mut world, admin, unrestricted), Status::SUCCESS);
    answer_held(&mut world);
    fail_held(&mut world, &NamespaceError::NotReady);
    assert_eq!(figures(&mut world, admin), (0xFFFF, 3, 0x0A));
    world.hold = false;
    assert!(world.read(io, 0, 1).status.same_code(Status::SANITIZE_FAILED));
    world.hold_records = true;
    let command = begin(&mut world, admin, EXIT);
    answer_records(&mut world, false);
    assert!(world.reply(admin, command).unwrap().status.same_code(Status::INTERNAL_ERROR));
    assert!(world.read(io, 0, 1).status.same_code(Status::SANITIZE_FAILED), "it was not left");
    world.hold_records = false;
    assert_eq!(sanitize(&mut world, admin, EXIT), Status::SUCCESS);
    assert_eq!(world.read(io, 0, 1).status, Status::SUCCESS);
    assert_eq!(figures(&mut world, admin), (0xFFFF, 3, 0x0A));
    assert_eq!(
        world.sanitizes[SUBSYSTEM],
        SanitizeRecord { state: SanitizeState::FailureLeft, cdw10: 0x0A, is_erased: false }
    );
}

#[test]
fn what_cannot_be_made_durable_is_not_done() {
    let mut world = World::new(6);
    let (admin, io) = host(&mut world);
    world.hold_records = true;
    let command = begin(&mut world, admin, ERASE);
    answer_records(&mut world, false);
    assert!(world.reply(admin, command).unwrap().status.same_code(Status::INTERNAL_ERROR));
    assert_eq!(figures(&mut world, admin), (0xFFFF, 0, 0));
    assert_eq!(world.write(io, 0, &vec![1; LBA], true).status, Status::SUCCESS);
    assert_eq!(world.memory[0], 1);
    // All is erased, but it would begin anew after a restart: hosts must not write before that.
    begin(&mut world, admin, ERASE);
    answer_records(&mut world, true);
    answer_records(&mut world, false);
    assert_eq!(figures(&mut world, admin), (0xFFFF, 3, 2));
    assert!(world.write(io, 0, &vec![1; LBA], true).status.same_code(Status::SANITIZE_FAILED));
}

#[test]
fn what_cannot_be_sanitized_is_refused() {
    let mut world = World::new(7);
    let (admin, io) = host(&mut world);
    for (what, expected) in [
        (Sanitize { no_deallocate: true, ..ERASE }, Status::INVALID_FIELD),
        (Sanitize { action: action::OVERWRITE, ..ERASE }, Status::INVALID_FIELD),
        (Sanitize { action: action::CRYPTO_ERASE, ..ERASE }, Status::INVALID_FIELD),
        (Sanitize { action: 0, ..ERASE }, Status::INVALID_FIELD),
        (Sanitize { action: 7, ..ERASE }, Status::INVALID_FIELD),
    ] {
        assert!(sanitize(&mut world, admin, what).same_code(expected), "{what:?}");
    }
    // While a namespace is formatted.
    world.hold = true;
    let format = SubmissionEntry { opcode: admin::FORMAT_NVM, nsid: 1.into(), ..Default::default() };
    let format = SubmissionEntry { command_id: 99.into(), flags: 0x40, ..format };
    let (other, _) = host(&mut world);
    let bytes = world.capsule(other, format, &[]);
    world.send(other, &bytes);
    for admin in [admin, other] {
        assert!(sanitize(&mut world, admin, ERASE).same_code(Status::FORMAT_IN_PROGRESS));
    }
    world.release_held();
    // A namespace that takes no writes.
    configure(&mut world, |config| config.namespaces.get_mut(&1).unwrap().properties.read_only = true);
    assert!(sanitize(&mut world, admin, ERASE).same_code(Status::NAMESPACE_WRITE_PROTECTED));
    configure(&mut world, |_| {});
    // A path that does not serve.
    let local: std::net::SocketAddr = "192.0.2.9:4420".parse().unwrap();
    world.local = Some(local);
    let (bad, _) = world.admin(SUBSYSTEM, Digests::NONE);
    world.local = None;
    configure(&mut world, |config| _ = config.paths.insert(local, AnaState::Inaccessible));
    assert!(sanitize(&mut world, bad, ERASE).same_code(Status::ASYMMETRIC_ACCESS_INACCESSIBLE));
    configure(&mut world, |_| {});
    // A namespace that another host reserved.
    let keys = ReservationKeys { current: 0.into(), other: 7.into() };
    let mut register = SubmissionEntry {
        opcode: io::RESERVATION_REGISTER,
        nsid: 1.into(),
        sgl: SglDescriptor::in_capsule(16),
        ..SubmissionEntry::default()
    };
    let nothing = ReservationCommand { action: 0, ignores_key: false, kind: 0, persistence: 0 };
    nothing.encode(&mut register);
    assert_eq!(world.command(io, register, keys.as_bytes()).status, Status::SUCCESS);
    let keys = ReservationKeys { current: 7.into(), other: 0.into() };
    let mut acquire = SubmissionEntry { opcode: io::RESERVATION_ACQUIRE, ..register };
    ReservationCommand { kind: ReservationKind::WriteExclusive as u8, ..nothing }.encode(&mut acquire);
    assert_eq!(world.command(io, acquire, keys.as_bytes()).status, Status::SUCCESS);
    world.host_id = [1; 16];
    let (stranger, _) = host(&mut world);
    assert!(sanitize(&mut world, stranger, ERASE).same_code(Status::RESERVATION_CONFLICT));
    assert!(world.sanitizes.is_empty(), "nothing began");
    assert_eq!(sanitize(&mut world, admin, ERASE), Status::SUCCESS);
    // Discovery controllers have none.
    let (discovery, _) = world.admin(DISCOVERY_SUBSYSTEM_NQN, Digests::NONE);
    assert!(sanitize(&mut world, discovery, ERASE).same_code(Status::INVALID_OPCODE));
}

/// What is known from before a restart.
#[test]
fn a_restart_goes_on_with_it() {
    for state in [
        SanitizeState::InProgress,
        SanitizeState::Completed,
        SanitizeState::Failed,
        SanitizeState::FailureLeft,
    ] {
        let mut world = World::new(8);
        world.memory.fill(7);
        world.hold = true;
        let mut actions = Vec::new();
        let is_erased = state == SanitizeState::Completed;
        let record = SanitizeRecord { state, cdw10: 0x0A, is_erased };
        restore_sanitize(&mut world.target, &name(SUBSYSTEM), record, world.now, &mut actions);
        world.act(actions);
        let (admin, io) = host(&mut world);
        let (progress, status) = match state {
            SanitizeState::InProgress => (0, 2),
            SanitizeState::Completed => (0xFFFF, 0x101),
            SanitizeState::Failed | SanitizeState::FailureLeft => (0xFFFF, 3),
        };
        assert_eq!(figures(&mut world, admin), (progress, status, 0x0A));
        assert_eq!(world.held.len(), usize::from(state == SanitizeState::InProgress));
        let told = world.ask_for_event(admin);
        world.release_held();
        let refusal = match state {
            SanitizeState::InProgress => {
                assert_eq!(figures(&mut world, admin), (0xFFFF, 0x101, 0x0A));
                assert!(world.reply(admin, told).is_some());
                assert!(world.memory.iter().all(|byte| *byte == 0));
                Status::SUCCESS
            }
            SanitizeState::Failed => Status::SANITIZE_FAILED,
            _ => Status::SUCCESS,
        };
        assert!(world.read(io, 0, 1).status.same_code(refusal), "{state:?}");
        if is_erased {
            // The first write since is made durable as such, and no other one.
            let written = SanitizeRecord { is_erased: false, ..record };
            assert!(!world.sanitizes.contains_key(SUBSYSTEM));
            assert_eq!(world.write(io, 0, &vec![1; LBA], true).status, Status::SUCCESS);
            assert_eq!(world.sanitizes.remove(SUBSYSTEM), Some(written));
            assert_eq!(figures(&mut world, admin), (0xFFFF, 1, 0x0A));
            assert_eq!(world.write(io, 0, &vec![1; LBA], true).status, Status::SUCCESS);
            assert!(!world.sanitizes.contains_key(SUBSYSTEM));
        }
        // What is known is newer.
        let mut actions = Vec::new();
        let again = SanitizeRecord { state: SanitizeState::InProgress, cdw10: 2, is_erased: false };
        restore_sanitize(&mut world.target, &name(SUBSYSTEM), again, world.now, &mut actions);
        assert!(actions.is_empty());
    }
}

/// Namespaces that come or go meanwhile are sanitized, too; a subsystem that goes is gone when its namespace answered.
#[test]
fn an_administrator_changes_the_subsystem() {
    let mut world = World::new(9);
    let (admin, _) = host(&mut world);
    world.hold = true;
    assert_eq!(sanitize(&mut world, admin, ERASE), Status::SUCCESS);
    answer_held(&mut world);
    assert!(matches!(world.held[0].operation, NamespaceOperation::Purge));
    configure(&mut world, |config| _ = config.namespaces.insert(2, namespace(7, 100)));
    answer_held(&mut world);
    let mut seen = Vec::new();
    while let Some(command) = world.held.pop() {
        seen.push(matches!(command.operation, NamespaceOperation::Purge));
        if seen.len() == 4 {
            world.held.push(command);
            break;
        }
        world.execute(command);
    }
    assert_eq!(seen, [false, false, true, true]);
    let mut actions = Vec::new();
    world.target.remove_subsystem(&name(SUBSYSTEM), world.now, &mut actions);
    world.act(actions);
    assert!(world.given_up.iter().any(|(_, token)| *token == Some(world.held[0].token)));
    assert!(!world.target.is_quiet(&name(SUBSYSTEM)));
    fail_held(&mut world, &NamespaceError::Aborted);
    assert!(world.target.is_quiet(&name(SUBSYSTEM)));
    assert_eq!(world.sanitizes[SUBSYSTEM].state, SanitizeState::InProgress, "it goes on after a restart");
}

/// The tests above fail where a bug is planted.
#[test]
fn planted_bugs_are_noticed() {
    let bugs: [(&str, fn()); 8] = [
        ("nvmf: a sanitize overtakes writes", nothing_lands_behind_it),
        ("nvmf: a write whose data come late overtakes a sanitize", nothing_lands_behind_it),
        ("nvmf: a namespace is formatted while it is sanitized", other_commands_meet_it),
        ("nvmf: a sanitize that failed is completed", other_commands_meet_it),
        ("nvmf: restricted failure is left", failures_are_left_as_they_were_begun),
        ("nvmf: a sanitize is not gone on with after a restart", a_restart_goes_on_with_it),
        ("nvmf: the end of a sanitize is not told", a_subsystem_is_sanitized),
        ("nvmf: a sanitize is answered before it is durable", a_subsystem_is_sanitized),
    ];
    for (bug, test) in bugs {
        diecut_testing::planted::is_noticed(bug, test);
    }
}
