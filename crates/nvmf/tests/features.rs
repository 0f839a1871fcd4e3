//! Goal: features do what they acknowledge, and what cannot be done is refused. Method: a host that asks for every feature in every way.

use crate::world;
use diecut_namespace::contract::NamespaceProperties;
use diecut_nvme::admin::{AsynchronousEvent, GetLogPage};
use diecut_nvme::feature::{CAPABILITY_CHANGEABLE, CAPABILITY_NAMESPACE, HOST_BEHAVIOR_SIZE_BYTES, fid};
use diecut_nvme::log_page::{
    CommandEffects, EFFECT_SCOPE_NAMESPACE, EFFECT_SUPPORTED, FEATURE_SCOPE_NAMESPACE, FEATURE_SUPPORTED,
    FeatureEffects, SmartLog, lid,
};
use diecut_nvme::tcp::Digests;
use diecut_nvme::*;
use diecut_nvmf::{ConnectionId, Health};
use world::*;
use zerocopy::FromBytes;

const DEFAULT: u32 = 1;
const SAVED: u32 = 2;
const CAPABILITIES: u32 = 3;

/// Those that a host can give another value.
const CHANGEABLE: [u8; 7] = [
    fid::TEMPERATURE_THRESHOLD,
    fid::ASYNCHRONOUS_EVENT_CONFIGURATION,
    fid::TIMESTAMP,
    fid::KEEP_ALIVE_TIMER,
    fid::HOST_BEHAVIOR,
    fid::RESERVATION_NOTIFICATION_MASK,
    fid::RESERVATION_PERSISTENCE,
];

/// Data of a feature, and what gets and sets it.
fn bytes_of(feature: u8) -> u32 {
    match feature {
        fid::TIMESTAMP => 8,
        fid::HOST_BEHAVIOR => HOST_BEHAVIOR_SIZE_BYTES as u32,
        fid::HOST_IDENTIFIER => 16,
        _ => 0,
    }
}

fn get(world: &mut World, admin: ConnectionId, feature: u8, select: u32) -> Reply {
    let entry = SubmissionEntry {
        opcode: opcode::admin::GET_FEATURES,
        // Each namespace has a value of its own.
        nsid: u32::from(feature == fid::RESERVATION_PERSISTENCE).into(),
        cdw10: (u32::from(feature) | select << 8).into(),
        cdw11: u32::from(feature == fid::HOST_IDENTIFIER).into(),
        sgl: SglDescriptor::transport(bytes_of(feature)),
        ..SubmissionEntry::default()
    };
    world.command(admin, entry, &[])
}

fn set_for(
    world: &mut World,
    admin: ConnectionId,
    feature: u8,
    nsid: u32,
    value: u32,
    data: &[u8],
) -> Status {
    let entry = SubmissionEntry {
        opcode: opcode::admin::SET_FEATURES,
        nsid: nsid.into(),
        cdw10: u32::from(feature).into(),
        cdw11: value.into(),
        sgl: if data.is_empty() {
            SglDescriptor::transport(0)
        } else {
            SglDescriptor::in_capsule(data.len() as u32)
        },
        ..SubmissionEntry::default()
    };
    world.command(admin, entry, data).status
}

fn set(world: &mut World, admin: ConnectionId, feature: u8, value: u32, data: &[u8]) -> Status {
    set_for(world, admin, feature, 0, value, data)
}

fn log(
    world: &mut World,
    admin: ConnectionId,
    page: u8,
    nsid: u32,
    length: usize,
) -> Result<Vec<u8>, Status> {
    let mut entry = SubmissionEntry {
        opcode: opcode::admin::GET_LOG_PAGE,
        nsid: nsid.into(),
        sgl: SglDescriptor::transport(length as u32),
        ..SubmissionEntry::default()
    };
    let ask = GetLogPage::of(page, length as u64);
    ask.encode(&mut entry);
    let reply = world.command(admin, entry, &[]);
    if reply.status.is_success() { Ok(reply.data) } else { Err(reply.status) }
}

/// A world in which something can be in a volatile cache, or not.
fn world(volatile_cache: bool) -> (World, ConnectionId) {
    let mut world = World::new(11);
    let mut subsystem = subsystem();
    for namespace in subsystem.namespaces.values_mut() {
        namespace.properties = NamespaceProperties { volatile_cache, ..namespace.properties };
    }
    let mut actions = Vec::new();
    world.target.set_subsystem(subsystem, world.now, &mut actions);
    let (admin, _) = world.admin(SUBSYSTEM, Digests::NONE);
    (world, admin)
}

/// Goal: whoever asks what can be done with a feature, what features there are, or for the value, hears the same. Method: all 256
/// identifiers, with a cache and without; a feature that can be changed is one that can be set to its value.
#[test]
fn pages_capabilities_and_values_agree() {
    ask_in_every_way();
}

fn ask_in_every_way() {
    for volatile_cache in [false, true] {
        let (mut world, admin) = world(volatile_cache);
        let page = log(&mut world, admin, lid::FEATURE_EFFECTS, 0, 1024).unwrap();
        let page = FeatureEffects::read_from_bytes(&page).unwrap();
        let mut known = Vec::new();
        for feature in 0..=255u8 {
            let told = page.features[usize::from(feature)].get();
            let capabilities = get(&mut world, admin, feature, CAPABILITIES);
            let current = get(&mut world, admin, feature, 0);
            if feature == diecut_nvme::ocp::fid::LATENCY_MONITOR {
                continue; // it takes data of its own: see `ocp.rs`
            }
            let is_known = told & FEATURE_SUPPORTED != 0;
            assert_eq!(capabilities.status.is_success(), is_known, "{feature:#x}");
            assert_eq!(current.status.is_success(), is_known, "{feature:#x}");
            if !is_known {
                assert_eq!(told, 0, "{feature:#x}");
                assert!(current.status.same_code(Status::INVALID_FIELD), "{feature:#x}");
                assert!(set(&mut world, admin, feature, 0, &[]).same_code(Status::INVALID_FIELD));
                continue;
            }
            known.push(feature);
            assert!(capabilities.data.is_empty(), "{feature:#x}: capabilities are in the answer itself");
            let is_specific = told & FEATURE_SCOPE_NAMESPACE != 0;
            assert_eq!(capabilities.result & u64::from(CAPABILITY_NAMESPACE) != 0, is_specific);
            assert_eq!(capabilities.result & 1, 0, "{feature:#x}: nothing is saved");
            let data = vec![0; bytes_of(feature) as usize];
            let (nsid, value) = match feature {
                fid::RESERVATION_NOTIFICATION_MASK => (NSID_ALL, 2),
                fid::RESERVATION_PERSISTENCE => (NSID_ALL, 1),
                _ => (0, 1),
            };
            let status = set_for(&mut world, admin, feature, nsid, value, &data);
            assert_eq!(
                capabilities.result & u64::from(CAPABILITY_CHANGEABLE) != 0,
                status.is_success() && CHANGEABLE.contains(&feature),
                "{feature:#x}: {status}"
            );
            let for_one = set_for(&mut world, admin, feature, 1, 0, &data);
            assert_eq!(
                for_one.same_code(Status::FEATURE_NOT_NAMESPACE_SPECIFIC),
                !is_specific,
                "{feature:#x}: {for_one}"
            );
            let for_none = set_for(&mut world, admin, feature, 2, 0, &data);
            assert!(for_none.same_code(Status::INVALID_NAMESPACE_OR_FORMAT), "{feature:#x}: {for_none}");
            for select in [DEFAULT, SAVED] {
                assert!(get(&mut world, admin, feature, select).status.is_success(), "{feature:#x} {select}");
            }
            for reserved in 4..8 {
                let status = get(&mut world, admin, feature, reserved).status;
                assert!(status.same_code(Status::INVALID_FIELD), "{feature:#x} {reserved}: {status}");
            }
        }
        assert_eq!(known.contains(&fid::VOLATILE_WRITE_CACHE), volatile_cache);
        assert_eq!(known.len(), 14 + usize::from(volatile_cache), "{known:x?}");
    }
}

/// What a feature cannot hold is refused, and nothing changes.
#[test]
fn values_that_nothing_stands_for_are_refused() {
    let (mut world, admin) = world(true);
    let invalid = [
        (fid::POWER_MANAGEMENT, 1),
        (fid::TEMPERATURE_THRESHOLD, 1 << 22 | 300),
        (fid::TEMPERATURE_THRESHOLD, 2 << 20 | 300),
        (fid::TEMPERATURE_THRESHOLD, 9 << 16 | 300),
        (fid::VOLATILE_WRITE_CACHE, 2),
        (fid::NUMBER_OF_QUEUES, 0xFFFF),
        (fid::ASYNCHRONOUS_EVENT_CONFIGURATION, 1 << 6),
        (fid::ASYNCHRONOUS_EVENT_CONFIGURATION, 1 << 9),
        (fid::COMMAND_SET_PROFILE, 1),
        (fid::COMMAND_SET_PROFILE, 1 << 12),
        (fid::RESERVATION_NOTIFICATION_MASK, 1),
        (fid::RESERVATION_NOTIFICATION_MASK, 1 << 4),
    ];
    for (feature, value) in invalid {
        let before = get(&mut world, admin, feature, 0).result;
        let status = set(&mut world, admin, feature, value, &[]);
        assert!(status.same_code(Status::INVALID_FIELD), "{feature:#x} = {value:#x}: {status}");
        assert_eq!(get(&mut world, admin, feature, 0).result, before);
    }
    for (feature, value) in [
        (fid::ARBITRATION, 7),
        (fid::POWER_MANAGEMENT, 1 << 5),
        (fid::ERROR_RECOVERY, 1 << 16),
        (fid::WRITE_ATOMICITY, 1),
        (fid::VOLATILE_WRITE_CACHE, 0),
    ] {
        let status = set(&mut world, admin, feature, value, &[]);
        assert!(status.same_code(Status::FEATURE_NOT_CHANGEABLE), "{feature:#x} = {value:#x}: {status}");
    }
    let mut save = SubmissionEntry {
        opcode: opcode::admin::SET_FEATURES,
        cdw10: (1u32 << 31 | u32::from(fid::TEMPERATURE_THRESHOLD)).into(),
        sgl: SglDescriptor::transport(0),
        ..SubmissionEntry::default()
    };
    assert!(world.command(admin, save, &[]).status.same_code(Status::FEATURE_NOT_SAVEABLE));
    save.cdw10 = (1u32 << 31 | 0xC0).into();
    assert!(world.command(admin, save, &[]).status.same_code(Status::INVALID_FIELD), "no such feature");
}

/// Host behavior support is kept until the controller is reset; what it does not know is refused.
#[test]
fn host_behavior_is_kept() {
    let (mut world, admin) = world(false);
    let behavior = |at: usize, value: u8| {
        let mut bytes = vec![0; HOST_BEHAVIOR_SIZE_BYTES];
        bytes[at] = value;
        bytes
    };
    assert_eq!(set(&mut world, admin, fid::HOST_BEHAVIOR, 0, &behavior(0, 1)), Status::SUCCESS);
    assert_eq!(get(&mut world, admin, fid::HOST_BEHAVIOR, 0).data, behavior(0, 1));
    assert_eq!(get(&mut world, admin, fid::HOST_BEHAVIOR, DEFAULT).data, behavior(0, 0));
    for (at, value) in [(0, 2), (1, 1), (2, 1), (3, 1), (511, 1)] {
        let status = set(&mut world, admin, fid::HOST_BEHAVIOR, 0, &behavior(at, value));
        assert!(status.same_code(Status::INVALID_FIELD), "byte {at} = {value}: {status}");
    }
    assert_eq!(get(&mut world, admin, fid::HOST_BEHAVIOR, 0).data, behavior(0, 1), "as it was");
    assert_eq!(set(&mut world, admin, fid::TEMPERATURE_THRESHOLD, 280, &[]), Status::SUCCESS);
    world.set_cc(admin, 0);
    world.enable(admin);
    assert_eq!(get(&mut world, admin, fid::HOST_BEHAVIOR, 0).data, behavior(0, 0), "after a reset");
    assert_eq!(get(&mut world, admin, fid::TEMPERATURE_THRESHOLD, 0).result, 343, "after a reset");
}

/// The number of queues is agreed on before there are any.
#[test]
fn queues_are_agreed_on_first() {
    let mut world = World::new(12);
    let (admin, controller) = world.admin(SUBSYSTEM, Digests::NONE);
    assert_eq!(set(&mut world, admin, fid::NUMBER_OF_QUEUES, 0x0003_0003, &[]), Status::SUCCESS);
    world.io(controller, 1, Digests::NONE);
    let late = set(&mut world, admin, fid::NUMBER_OF_QUEUES, 0x0003_0003, &[]);
    assert!(late.same_code(Status::COMMAND_SEQUENCE_ERROR), "{late}");
}

/// An answer that does not fit is refused, not cut.
#[test]
fn buffers_that_are_too_short_are_refused() {
    let (mut world, admin) = world(false);
    let short = |opcode: u8, cdw10: u32, cdw11: u32, length: u32| SubmissionEntry {
        opcode,
        nsid: 1.into(),
        cdw10: cdw10.into(),
        cdw11: cdw11.into(),
        sgl: SglDescriptor::transport(length),
        ..SubmissionEntry::default()
    };
    let features = opcode::admin::GET_FEATURES;
    for (entry, whole) in [
        (short(opcode::admin::IDENTIFY, 0, 0, 4092), 4096),
        (short(opcode::admin::IDENTIFY, 1, 0, 512), 4096),
        (short(opcode::admin::IDENTIFY, 3, 0, 0), 4096),
        (short(features, fid::TIMESTAMP.into(), 0, 4), 8),
        (short(features, fid::HOST_BEHAVIOR.into(), 0, 0), 512),
        (short(features, fid::HOST_IDENTIFIER.into(), 1, 8), 16),
    ] {
        let status = world.command(admin, entry, &[]).status;
        assert!(status.same_code(Status::DATA_SGL_LENGTH_INVALID), "{entry:?}: {status}");
        let reply =
            world.command(admin, SubmissionEntry { sgl: SglDescriptor::transport(whole), ..entry }, &[]);
        assert!(reply.status.is_success() && reply.data.len() == whole as usize, "{entry:?}: {reply:?}");
    }
}

/// Pages: those that are listed can be read, and no others; the SMART log is the subsystem's, not a namespace's; commands that are said to
/// be there are the ones that are carried out.
#[test]
fn log_pages_are_those_that_are_listed() {
    let (mut world, admin) = world(false);
    let listed = log(&mut world, admin, lid::SUPPORTED_PAGES, 0, 1024).unwrap();
    for page in 0..=255u8 {
        let is_listed = listed[usize::from(page) * 4] & 1 != 0;
        let read = log(&mut world, admin, page, NSID_ALL, 64);
        assert_eq!(read.is_ok(), is_listed, "page {page:#x}: {:?}", read.err());
    }
    for mandatory in [0x00, 0x01, 0x02, 0x03, 0x05, 0x12] {
        assert_eq!(listed[mandatory * 4] & 1, 1, "VS 2.0 asks for page {mandatory:#x}");
    }
    assert!(log(&mut world, admin, lid::SMART, 0, 512).is_ok());
    let of_one = log(&mut world, admin, lid::SMART, 1, 512).unwrap_err();
    assert!(of_one.same_code(Status::INVALID_FIELD), "LPA bit 0 is 0: {of_one}");
    for nsid in [2, 1024, NSID_ALL - 1] {
        let of_none = log(&mut world, admin, lid::SMART, nsid, 512).unwrap_err();
        assert!(of_none.same_code(Status::INVALID_NAMESPACE_OR_FORMAT), "{nsid}: {of_none}");
    }
    let effects = log(&mut world, admin, lid::COMMAND_EFFECTS, 0, 4096).unwrap();
    let effects = CommandEffects::read_from_bytes(&effects).unwrap();
    let read = effects.io[usize::from(opcode::io::READ)].get();
    assert_eq!(read, EFFECT_SUPPORTED | EFFECT_SCOPE_NAMESPACE);
}

/// Paths: one group with all namespaces, optimized; what Identify says of groups fits.
#[test]
fn every_path_is_optimized_at_first() {
    let (mut world, admin) = world(false);
    let page = log(&mut world, admin, lid::ASYMMETRIC_NAMESPACE_ACCESS, NSID_ALL, 52).unwrap();
    // By hand from figures 217 and 218: no change, one group; group 1 has one namespace, no change, optimized; NSID 1.
    let mut expected = vec![0; 52];
    (expected[8], expected[16], expected[20], expected[32], expected[48]) = (1, 1, 1, 1, 1);
    assert_eq!(page, expected);
    let mut identify = |cns: u32, nsid: u32| {
        let entry = SubmissionEntry {
            opcode: opcode::admin::IDENTIFY,
            nsid: nsid.into(),
            cdw10: cns.into(),
            sgl: SglDescriptor::transport(4096),
            ..SubmissionEntry::default()
        };
        world.command(admin, entry, &[]).data
    };
    let controller = identify(1, 0);
    assert_eq!(controller[76], 0b1010, "CMIC: several controllers, ANA");
    assert_eq!(
        controller[342..352],
        [10, 0x5F, 1, 0, 0, 0, 1, 0, 0, 0],
        "ANATT, ANACAP, ANAGRPMAX, NANAGRPID"
    );
    assert_eq!(identify(0, 1)[92..96], [1, 0, 0, 0], "ANAGRPID");
    assert_eq!(identify(8, 1)[4..8], [1, 0, 0, 0], "ANAGRPID");
}

/// The controller is busy while a namespace has a command, however many there are, and not between.
#[test]
fn busy_minutes_are_those_with_commands_under_way() {
    let mut world = World::new(13);
    let (admin, controller) = world.admin(SUBSYSTEM, Digests::NONE);
    let io = world.io(controller, 1, Digests::NONE);
    let minutes = |world: &mut World| {
        let log = log(world, admin, lid::SMART, NSID_ALL, 512).unwrap();
        SmartLog::read_from_bytes(&log).unwrap().controller_busy_minutes.get()
    };
    world.hold = true;
    for lba in 0..2 {
        let read = world.rw(opcode::io::READ, lba, 1, SglDescriptor::transport(LBA as u32));
        let id = world.next_id(io);
        let read = SubmissionEntry { command_id: id.into(), flags: 0x40, ..read };
        let bytes = world.capsule(io, read, &[]);
        world.send(io, &bytes);
    }
    world.now += diecut_units::Span::from_secs(3 * 60 + 1);
    assert_eq!(minutes(&mut world), 3, "under way");
    world.release_held();
    world.now += diecut_units::Span::from_secs(5 * 60);
    assert_eq!(minutes(&mut world), 3, "over");
}

/// A host hears of warnings that it wants to hear of: when a threshold is set that the temperature is beyond, and when the media change.
#[test]
fn warnings_are_told() {
    tell_warnings();
}

/// The test above fails where nobody is told.
#[test]
fn warnings_that_are_kept_are_noticed() {
    diecut_testing::planted::is_noticed("nvmf: warnings are kept from hosts", tell_warnings);
    diecut_testing::planted::is_noticed("nvmf: capabilities of features not told", ask_in_every_way);
}

fn tell_warnings() {
    let (mut world, admin) = world(false);
    let request = world.ask_for_event(admin);
    assert_eq!(set(&mut world, admin, fid::TEMPERATURE_THRESHOLD, 280, &[]), Status::SUCCESS);
    assert!(world.reply(admin, request).is_none(), "it did not want to know");
    assert_eq!(set(&mut world, admin, fid::ASYNCHRONOUS_EVENT_CONFIGURATION, 0x2, &[]), Status::SUCCESS);
    let event = world.reply(admin, request).expect("told").result;
    assert_eq!(AsynchronousEvent::decode(event as u32), AsynchronousEvent::TEMPERATURE);
    let request = world.ask_for_event(admin);
    assert_eq!(set(&mut world, admin, fid::ASYNCHRONOUS_EVENT_CONFIGURATION, 0xF, &[]), Status::SUCCESS);
    let worn = |world: &mut World, health: Health| {
        let mut actions = Vec::new();
        world.target.set_health(&name(SUBSYSTEM), health, &mut actions);
        world.act(actions);
    };
    worn(&mut world, Health { available_spare_percent: 9, ..Health::default() });
    assert!(world.reply(admin, request).is_none(), "masked until the log is read");
    let smart = log(&mut world, admin, lid::SMART, NSID_ALL, 512).unwrap();
    assert_eq!(smart[0], 0b11, "spare and temperature");
    let event = world.reply(admin, request).expect("told when the log was read").result;
    assert_eq!(AsynchronousEvent::decode(event as u32), AsynchronousEvent::SPARE);
    log(&mut world, admin, lid::SMART, NSID_ALL, 512).unwrap();
    let request = world.ask_for_event(admin);
    worn(&mut world, Health { available_spare_percent: 9, read_only: true, ..Health::default() });
    let event = world.reply(admin, request).expect("told").result;
    assert_eq!(AsynchronousEvent::decode(event as u32), AsynchronousEvent::RELIABILITY);
}
