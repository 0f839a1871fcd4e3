//! Goal: an administrator's word on a path counts for the controllers that came over it, and for no other: what it serves, what its log page and
//! its events say. Method: a target that hosts reach at two addresses, a controller at each.

use crate::world;
use diecut_nvme::admin::{AsynchronousEvent, FormatNvm, GetLogPage, Identify};
use diecut_nvme::feature::{EVENT_ACCESS_CHANGE, SetFeatures, fid};
use diecut_nvme::identify::{IdentifyController, IdentifyNamespace, cns};
use diecut_nvme::log_page::{AnaGroup, AnaHeader, AnaState, lid};
use diecut_nvme::property::Configuration;
use diecut_nvme::tcp::Digests;
use diecut_nvme::*;
use diecut_nvmf::ConnectionId;
use std::net::SocketAddr;
use world::*;
use zerocopy::FromBytes;

const NONE: Digests = Digests::NONE;

/// A controller that wants to hear of its path.
struct Controller {
    admin: ConnectionId,
    io: ConnectionId,
    /// Its event request.
    event: u16,
}

fn want_events(world: &mut World, admin: ConnectionId) {
    let mut entry = SubmissionEntry { opcode: opcode::admin::SET_FEATURES, ..SubmissionEntry::default() };
    let feature = fid::ASYNCHRONOUS_EVENT_CONFIGURATION;
    SetFeatures { feature, save: false, value: EVENT_ACCESS_CHANGE }.encode(&mut entry);
    assert_eq!(world.command(admin, entry, &[]).status, Status::SUCCESS);
}

fn connect(world: &mut World, local: &str) -> Controller {
    world.local = Some(local.parse().unwrap());
    let (admin, number) = world.admin(SUBSYSTEM, NONE);
    let io = world.io(number, 1, NONE);
    want_events(world, admin);
    let event = world.ask_for_event(admin);
    Controller { admin, io, event }
}

fn set(world: &mut World, paths: &[(&str, AnaState)]) {
    let parsed = |(address, state): &(&str, AnaState)| (address.parse::<SocketAddr>().unwrap(), *state);
    let mut config = subsystem();
    config.paths = paths.iter().map(parsed).collect();
    let mut actions = Vec::new();
    world.target.set_subsystem(config, world.now, &mut actions);
    world.act(actions);
    world.target.set_used_lbas(&name(SUBSYSTEM), 1, 9);
}

/// The event that a controller was told, if any; it asks again.
fn event(world: &mut World, controller: &mut Controller) -> Option<AsynchronousEvent> {
    let reply = world.reply(controller.admin, controller.event)?;
    assert_eq!(reply.status, Status::SUCCESS);
    controller.event = world.ask_for_event(controller.admin);
    Some(AsynchronousEvent::decode(reply.result as u32))
}

/// State, change count and namespaces of the one group.
fn page(world: &mut World, controller: &Controller, retain_event: bool) -> (u8, u64, Vec<u8>) {
    let log = GetLogPage { retain_event, ..GetLogPage::of(lid::ASYMMETRIC_NAMESPACE_ACCESS, 52) };
    let mut entry = SubmissionEntry { opcode: opcode::admin::GET_LOG_PAGE, ..SubmissionEntry::default() };
    (entry.sgl, _) = (SglDescriptor::transport(52), log.encode(&mut entry));
    let reply = world.command(controller.admin, entry, &[]);
    let (head, rest) = AnaHeader::read_from_prefix(&reply.data).unwrap();
    let (group, nsids) = AnaGroup::read_from_prefix(rest).unwrap();
    assert_eq!((head.groups.get(), group.id.get(), group.namespaces.get()), (1, 1, 1));
    assert_eq!(head.change_count, group.change_count);
    (group.state, head.change_count.get(), nsids.to_vec())
}

fn identify(world: &mut World, controller: &Controller, cns: u8, nsid: u32) -> Vec<u8> {
    let mut entry =
        SubmissionEntry { opcode: opcode::admin::IDENTIFY, nsid: nsid.into(), ..SubmissionEntry::default() };
    Identify { cns, controller_id: 0, command_set: 0, specific_id: 0 }.encode(&mut entry);
    entry.sgl = SglDescriptor::transport(4096);
    world.command(controller.admin, entry, &[]).data
}

fn format(world: &mut World, controller: &Controller) -> Status {
    let mut entry =
        SubmissionEntry { opcode: opcode::admin::FORMAT_NVM, nsid: 1.into(), ..SubmissionEntry::default() };
    FormatNvm { lba_format: 0, has_metadata: false, protection: 0, protection_first: false, erase: 0 }
        .encode(&mut entry);
    world.command(controller.admin, entry, &[]).status
}

#[test]
fn a_path_that_serves_nothing_is_one_controllers_affair() {
    let mut world = World::new(1);
    let mut one = connect(&mut world, "192.0.2.1:4420");
    let mut two = connect(&mut world, "[::ffff:192.0.2.2]:4420");
    let capabilities = identify(&mut world, &one, cns::CONTROLLER, 0);
    let capabilities = IdentifyController::read_from_bytes(&capabilities).unwrap();
    assert_eq!((capabilities.anacap, capabilities.oaes.get() & EVENT_ACCESS_CHANGE), (0x5F, 1 << 11));
    assert!(capabilities.anatt > 0);
    assert_eq!(page(&mut world, &one, false), (1, 0, vec![1, 0, 0, 0]));
    let nuse = |world: &mut World, controller: &Controller| {
        let page = identify(world, controller, cns::NAMESPACE, 1);
        IdentifyNamespace::read_from_bytes(&page).unwrap().nuse.get()
    };
    set(&mut world, &[]);
    assert_eq!(nuse(&mut world, &one), 9);

    set(&mut world, &[("192.0.2.1:4420", AnaState::Inaccessible)]);
    assert_eq!(event(&mut world, &mut one), Some(AsynchronousEvent::ACCESS_CHANGED));
    assert_eq!(event(&mut world, &mut two), None, "its path is as it was");
    let refused = world.read(one.io, 0, 1).status;
    assert_eq!(
        refused,
        Status::ASYMMETRIC_ACCESS_INACCESSIBLE,
        "another path may serve it, so it may be tried"
    );
    assert_eq!(world.write(one.io, 0, &[7; LBA], true).status, refused);
    assert_eq!(format(&mut world, &one), refused);
    assert_eq!(nuse(&mut world, &one), 0);
    assert_eq!(world.write(two.io, 0, &[7; LBA], true).status, Status::SUCCESS);
    assert_eq!((format(&mut world, &two), page(&mut world, &two, false).0), (Status::SUCCESS, 1));
    // Masked until the page was read so that it takes the event back.
    set(&mut world, &[("192.0.2.1:4420", AnaState::NonOptimized)]);
    assert_eq!(page(&mut world, &one, true).0, 2);
    set(&mut world, &[("192.0.2.1:4420", AnaState::Change)]);
    assert_eq!(event(&mut world, &mut one), None);
    assert_eq!(page(&mut world, &one, false), (0xF, 3, vec![1, 0, 0, 0]));
    assert_eq!(world.read(one.io, 0, 1).status, Status::ASYMMETRIC_ACCESS_TRANSITION);
    // Both at once, one of them by its other name.
    let both = [("192.0.2.1:4420", AnaState::NonOptimized), ("192.0.2.2:4420", AnaState::PersistentLoss)];
    set(&mut world, &both);
    assert_eq!(event(&mut world, &mut one), Some(AsynchronousEvent::ACCESS_CHANGED));
    assert_eq!(event(&mut world, &mut two), Some(AsynchronousEvent::ACCESS_CHANGED));
    assert_eq!(world.read(one.io, 0, 1).status, Status::SUCCESS);
    assert_eq!(world.read(two.io, 0, 1).status, Status::ASYMMETRIC_ACCESS_PERSISTENT_LOSS);
    set(&mut world, &both);
    assert_eq!(page(&mut world, &two, false).1, 1, "nothing changed the second time");

    // A reset begins the count anew and keeps the state; so does the next controller on the path.
    world.set_cc(two.admin, 0);
    world.set_cc(two.admin, Configuration::enable(6).0);
    assert_eq!(page(&mut world, &two, false), (4, 0, vec![1, 0, 0, 0]));
    let three = connect(&mut world, "192.0.2.2:4420");
    assert_eq!(page(&mut world, &three, false), (4, 0, vec![1, 0, 0, 0]));
    set(&mut world, &[]);
    assert_eq!(page(&mut world, &three, false), (1, 1, vec![1, 0, 0, 0]));
    assert_eq!(world.read(three.io, 0, 1).status, Status::SUCCESS);
}

/// Goal: what was taken before a path went is carried out. Method: a read is in the namespace when the path becomes inaccessible.
#[test]
fn commands_under_way_outlive_their_path() {
    let mut world = World::new(2);
    let one = connect(&mut world, "192.0.2.1:4420");
    world.hold = true;
    let mut entry = world.rw(opcode::io::READ, 0, 1, SglDescriptor::transport(LBA as u32));
    entry.command_id = 77.into();
    entry.flags |= 0x40;
    let bytes = world.capsule(one.io, entry, &[]);
    world.send(one.io, &bytes);
    set(&mut world, &[("192.0.2.1:4420", AnaState::Inaccessible)]);
    world.release_held();
    assert_eq!(world.reply(one.io, 77).expect("answered").status, Status::SUCCESS);
    assert_eq!(world.read(one.io, 0, 1).status, Status::ASYMMETRIC_ACCESS_INACCESSIBLE);
}
