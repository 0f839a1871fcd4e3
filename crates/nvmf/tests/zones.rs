//! Goal: a host hears of zones that changed by themselves, and reads which. Method: two controllers of a subsystem with a zoned namespace and another
//! one; zones change by hand.

use crate::world;
use diecut_namespace::contract::{CHANGED_ZONES_MAX, ChangedZones};
use diecut_nvme::admin::{AsynchronousEvent, GetLogPage};
use diecut_nvme::feature::fid;
use diecut_nvme::tcp::Digests;
use diecut_nvme::zns::{ChangedZoneList, EVENT_ZONE_DESCRIPTOR_CHANGED, LID_CHANGED_ZONES};
use diecut_nvme::*;
use diecut_nvmf::ConnectionId;
use world::*;
use zerocopy::FromBytes;

/// NSIDs of a namespace with zones of 16 logical blocks, and of one without.
const ZONED: u32 = 7;
const PLAIN: u32 = 1;

fn world_with_zones() -> World {
    let mut world = World::new(1);
    let mut config = subsystem();
    let mut zoned = config.namespaces[&PLAIN].clone();
    zoned.properties.zones = Some(ZONES);
    config.namespaces.insert(ZONED, zoned);
    let mut actions = Vec::new();
    world.target.set_subsystem(config, world.now, &mut actions);
    world.act(actions);
    world
}

fn wants_events(world: &mut World, admin: ConnectionId, bits: u32) -> Status {
    let entry = SubmissionEntry {
        opcode: opcode::admin::SET_FEATURES,
        cdw10: u32::from(fid::ASYNCHRONOUS_EVENT_CONFIGURATION).into(),
        cdw11: bits.into(),
        sgl: SglDescriptor::transport(0),
        ..SubmissionEntry::default()
    };
    world.command(admin, entry, &[]).status
}

fn changed(world: &mut World, zones: impl IntoIterator<Item = u32>) {
    let mut list = ChangedZones::default();
    zones.into_iter().for_each(|zone| list.add(zone));
    let mut actions = Vec::new();
    world.target.zones_changed(&name(SUBSYSTEM), ZONED, &list, &mut actions);
    world.act(actions);
}

/// First logical blocks of zones that the log names, or that there are too many.
fn read(
    world: &mut World,
    admin: ConnectionId,
    nsid: u32,
    retain_event: bool,
) -> Result<Option<Vec<u64>>, Status> {
    let mut entry = SubmissionEntry {
        opcode: opcode::admin::GET_LOG_PAGE,
        nsid: nsid.into(),
        sgl: SglDescriptor::transport(4096),
        ..SubmissionEntry::default()
    };
    GetLogPage { retain_event, ..GetLogPage::of(LID_CHANGED_ZONES, 4096) }.encode(&mut entry);
    let reply = world.command(admin, entry, &[]);
    match reply.status {
        Status::SUCCESS => Ok(ChangedZoneList::read_from_bytes(&reply.data).expect("4096 bytes").zones()),
        status => Err(status),
    }
}

fn tell_zones() {
    let mut world = world_with_zones();
    let (admin, _) = world.admin(SUBSYSTEM, Digests::NONE);
    let (other, _) = world.admin(SUBSYSTEM, Digests::NONE);
    assert_eq!(wants_events(&mut world, admin, EVENT_ZONE_DESCRIPTOR_CHANGED), Status::SUCCESS);
    let (request, of_other) = (world.ask_for_event(admin), world.ask_for_event(other));
    changed(&mut world, [3, 1]);
    let told = u64::from(AsynchronousEvent::ZONE_DESCRIPTOR_CHANGED.encode()) | u64::from(ZONED) << 32;
    assert_eq!(world.reply(admin, request).expect("told").result, told, "dword 1 names the namespace");
    let request = world.ask_for_event(admin);
    changed(&mut world, [3, 5]);
    assert_eq!(read(&mut world, admin, ZONED, true), Ok(Some(vec![16, 48, 80])));
    assert!(world.reply(admin, request).is_none(), "masked until the list is read");
    assert_eq!(read(&mut world, admin, ZONED, false), Ok(Some(vec![16, 48, 80])));
    assert_eq!(read(&mut world, admin, ZONED, false), Ok(Some(vec![])), "each change is told once");
    changed(&mut world, 0..CHANGED_ZONES_MAX as u32 + 1);
    assert_eq!(world.reply(admin, request).expect("told again").result, told);
    assert_eq!(read(&mut world, admin, ZONED, false), Ok(None), "more than a list names");
    assert!(world.reply(other, of_other).is_none(), "it did not want to know");
    assert_eq!(read(&mut world, other, ZONED, false), Ok(None), "each controller has a list of its own");
    let invalid = Status::INVALID_NAMESPACE_OR_FORMAT.do_not_retry();
    assert_eq!(read(&mut world, admin, 99, false), Err(invalid));
    assert_eq!(read(&mut world, admin, NSID_ALL, false), Err(invalid));
    assert_eq!(read(&mut world, admin, PLAIN, false), Err(Status::INVALID_FIELD.do_not_retry()));
}

#[test]
fn hosts_are_told_of_zones_that_changed() {
    tell_zones();
}

#[test]
fn planted_bugs_are_noticed() {
    diecut_testing::planted::is_noticed("nvmf: zones that changed are not told", tell_zones);
}
