//! Goal: Copy and Write Uncorrectable are taken as the specification says, and refused by name otherwise. Method: a target with a namespace
//! in memory.

use crate::world;
use diecut_namespace::contract::{
    COPY_LBAS_MAX, COPY_RANGES_MAX, LbaRange, NamespaceCompletion, NamespaceError, NamespaceOperation,
};
use diecut_nvme::identify::{
    IdentifyController, IdentifyNamespace, ONCS_COPY, ONCS_WRITE_UNCORRECTABLE, cns,
};
use diecut_nvme::io::{Copy, CopyRange};
use diecut_nvme::tcp::Digests;
use diecut_nvme::*;
use diecut_nvmf::{ConnectionId, SubsystemConfig};
use world::*;
use zerocopy::{FromBytes, IntoBytes};

fn copy_entry(start: u64, range_count: u32) -> SubmissionEntry {
    let mut entry =
        SubmissionEntry { opcode: opcode::io::COPY, nsid: 1.into(), ..SubmissionEntry::default() };
    Copy { start, range_count, ..Copy::default() }.encode(&mut entry);
    entry
}

fn ranges(sources: &[(u64, u32)]) -> Vec<u8> {
    let range = |&(start, count): &(u64, u32)| CopyRange {
        start: start.into(),
        lba_count_less_one: ((count - 1) as u16).into(),
        ..CopyRange::default()
    };
    sources.iter().flat_map(|source| range(source).as_bytes().to_vec()).collect()
}

fn copy(world: &mut World, io: ConnectionId, sources: &[(u64, u32)], to: u64) -> Status {
    let bytes = ranges(sources);
    let mut entry = copy_entry(to, sources.len() as u32);
    entry.sgl = if bytes.len() > 8192 {
        SglDescriptor::transport(bytes.len() as u32)
    } else {
        SglDescriptor::in_capsule(bytes.len() as u32)
    };
    world.command(io, entry, &bytes).status
}

#[test]
fn copies_are_carried_out_within_their_limits() {
    let mut world = World::new(21);
    let (_, controller) = world.admin(SUBSYSTEM, Digests::NONE);
    let io = world.io(controller, 1, Digests::NONE);
    for lba in 0..LBAS as usize {
        world.memory[lba * LBA..(lba + 1) * LBA].fill(lba as u8);
    }
    assert_eq!(copy(&mut world, io, &[(10, 2), (3, 1), (200, 4)], 100), Status::SUCCESS);
    let found: Vec<u8> = (100..107).map(|lba| world.memory[lba * LBA]).collect();
    assert_eq!(found, [10, 11, 3, 200, 201, 202, 203]);
    assert_eq!(world.memory[99 * LBA], 99);
    assert_eq!(world.memory[107 * LBA], 107);

    let before = world.memory.clone();
    // The namespace itself refuses what is beyond its end; this one has as many blocks as a copy may have.
    assert_eq!(LBAS, u64::from(COPY_LBAS_MAX));
    let too_many = vec![(0, 1); COPY_RANGES_MAX as usize + 1];
    assert!(copy(&mut world, io, &too_many, 0).same_code(Status::COMMAND_SIZE_LIMIT_EXCEEDED));
    for sources in [vec![(0, COPY_LBAS_MAX + 1)], vec![(0, COPY_LBAS_MAX), (0, 1)]] {
        let status = copy(&mut world, io, &sources, 0);
        assert!(status.same_code(Status::COMMAND_SIZE_LIMIT_EXCEEDED), "{status}");
    }
    for (bits, expected) in [
        (1 << 8, Status::INVALID_FIELD),
        (2 << 8, Status::INVALID_FIELD),
        (1 << 20, Status::INVALID_FIELD),
        (1 << 24, Status::INVALID_FIELD),
        (1 << 25, Status::INVALID_FIELD),
        (1 << 15, Status::INVALID_PROTECTION_INFORMATION),
        (1 << 29, Status::INVALID_PROTECTION_INFORMATION),
    ] {
        let mut entry = copy_entry(0, 1);
        entry.cdw12 = (entry.cdw12.get() | bits).into();
        entry.sgl = SglDescriptor::in_capsule(32);
        let status = world.command(io, entry, &ranges(&[(0, 1)])).status;
        assert!(status.same_code(expected), "{bits:#x}: {status}");
    }
    let short = SubmissionEntry { sgl: SglDescriptor::in_capsule(32), ..copy_entry(0, 2) };
    let status = world.command(io, short, &ranges(&[(0, 1)])).status;
    assert!(status.same_code(Status::DATA_SGL_LENGTH_INVALID), "{status}");
    assert!(world.memory == before, "what is refused writes nothing");
    assert_eq!(copy(&mut world, io, &vec![(1, 1); COPY_RANGES_MAX as usize], 0), Status::SUCCESS);
}

/// Format NVM gives zeros, or is refused by name; what it does is answered like any command of a namespace.
#[test]
fn a_namespace_is_formatted() {
    let mut world = World::new(23);
    let (admin, _) = world.admin(SUBSYSTEM, Digests::NONE);
    world.memory.fill(7);
    let format = |cdw10: u32, nsid: u32| SubmissionEntry {
        opcode: opcode::admin::FORMAT_NVM,
        nsid: nsid.into(),
        cdw10: cdw10.into(),
        sgl: SglDescriptor::transport(0),
        ..SubmissionEntry::default()
    };
    for (cdw10, nsid, expected) in [
        (1, 1, Status::INVALID_FORMAT),
        (1 << 12, 1, Status::INVALID_FORMAT),
        (1 << 4, 1, Status::INVALID_FORMAT),
        (1 << 5, 1, Status::INVALID_FORMAT),
        (2 << 9, 1, Status::INVALID_FIELD),
        (7 << 9, 1, Status::INVALID_FIELD),
        (0, NSID_ALL, Status::INVALID_FIELD),
        (1 << 9, NSID_ALL, Status::INVALID_FIELD),
        (0, 2, Status::INVALID_NAMESPACE_OR_FORMAT),
    ] {
        let status = world.command(admin, format(cdw10, nsid), &[]).status;
        assert!(status.same_code(expected), "{cdw10:#x} {nsid}: {status}");
    }
    // Of a namespace that cannot erase what is no longer there, nobody is told that it was erased.
    let set_purges = |world: &mut World, purges: bool| {
        let mut config = subsystem();
        config.namespaces.get_mut(&1).unwrap().properties.purges = purges;
        let mut actions = Vec::new();
        world.target.set_subsystem(config, world.now, &mut actions);
        world.act(actions);
    };
    set_purges(&mut world, false);
    let status = world.command(admin, format(1 << 9, 1), &[]).status;
    assert!(status.same_code(Status::INVALID_FIELD), "{status}");
    assert!(world.memory.iter().all(|byte| *byte == 7), "what is refused changes nothing");
    assert_eq!(world.command(admin, format(0, 1), &[]).status, Status::SUCCESS);
    set_purges(&mut world, true);
    assert!(world.memory.iter().all(|byte| *byte == 0));
    // A host that goes meanwhile leaves nothing behind.
    world.hold = true;
    let id = world.next_id(admin);
    let entry = SubmissionEntry { command_id: id.into(), flags: 0x40, ..format(0, 1) };
    let bytes = world.capsule(admin, entry, &[]);
    world.send(admin, &bytes);
    assert_eq!(world.held.len(), 1);
    world.handle(diecut_nvmf::Event::Closed(admin));
    assert!(!world.target.is_quiet(&name(SUBSYSTEM)));
    world.release_held();
    assert!(world.target.is_quiet(&name(SUBSYSTEM)));
}

/// With an erase of user data the namespace has two things to do, one after the other, and the answer is that of the second one. Other
/// commands go on meanwhile; a host that goes, or a namespace that goes, between the two leaves nothing behind.
#[test]
fn a_format_with_an_erase_has_two_parts() {
    format_with_an_erase();
}

#[test]
fn a_format_that_erases_nothing_is_noticed() {
    diecut_testing::planted::is_noticed("nvmf: a format erases nothing", format_with_an_erase);
}

fn format_with_an_erase() {
    for ends_by in ["success", "failure", "detach", "close"] {
        let mut world = World::new(24);
        let (admin, controller) = world.admin(SUBSYSTEM, Digests::NONE);
        let io = world.io(controller, 1, Digests::NONE);
        world.memory.fill(7);
        world.hold = true;
        let id = world.next_id(admin);
        let entry = SubmissionEntry {
            opcode: opcode::admin::FORMAT_NVM,
            flags: 0x40,
            command_id: id.into(),
            nsid: 1.into(),
            cdw10: (1 << 9).into(),
            sgl: SglDescriptor::transport(0),
            ..SubmissionEntry::default()
        };
        let bytes = world.capsule(admin, entry, &[]);
        world.send(admin, &bytes);
        let held = |world: &World| -> Vec<_> {
            world.held.iter().map(|one| matches!(one.operation, NamespaceOperation::Purge)).collect()
        };
        assert_eq!(held(&world), [false], "zeros come first");
        if ends_by == "close" {
            world.handle(diecut_nvmf::Event::Closed(admin));
        }
        if ends_by == "detach" {
            let empty = SubsystemConfig { namespaces: Default::default(), ..subsystem() };
            let mut actions = Vec::new();
            world.target.set_subsystem(empty, world.now, &mut actions);
            world.act(actions);
        }
        let first = world.held.remove(0);
        world.execute(first);
        if ends_by == "close" {
            assert!(held(&world).is_empty());
            world.handle(diecut_nvmf::Event::Closed(io));
            assert!(world.target.is_quiet(&name(SUBSYSTEM)));
            continue;
        }
        if ends_by == "detach" {
            assert!(held(&world).is_empty());
            let status = world.reply(admin, id).expect("it is answered").status;
            assert!(status.same_code(Status::INVALID_NAMESPACE_OR_FORMAT), "{status}");
            continue;
        }
        assert_eq!(held(&world), [true], "then the erase");
        assert!(world.memory.iter().all(|byte| *byte == 0));
        world.hold = false;
        let flush =
            SubmissionEntry { opcode: opcode::io::FLUSH, nsid: 1.into(), ..SubmissionEntry::default() };
        assert_eq!(world.command(io, flush, &[]).status, Status::SUCCESS, "others go on");
        let second = world.held.remove(0);
        let expected = match ends_by {
            "failure" => {
                let result = Err(NamespaceError::NotErased { reason: "for a test" });
                let answer = NamespaceCompletion::without_data(second.token, result);
                world.handle(diecut_nvmf::Event::Completed(answer));
                Status::INTERNAL_ERROR
            }
            _ => {
                world.execute(second);
                Status::SUCCESS
            }
        };
        let status = world.reply(admin, id).expect("it is answered").status;
        assert!(status.same_code(expected), "{ends_by}: {status}");
        for connection in [io, admin] {
            world.handle(diecut_nvmf::Event::Closed(connection));
        }
        assert!(world.target.is_quiet(&name(SUBSYSTEM)));
    }
}

#[test]
fn blocks_are_made_unreadable_without_data() {
    let mut world = World::new(22);
    let (admin, controller) = world.admin(SUBSYSTEM, Digests::NONE);
    let io = world.io(controller, 1, Digests::NONE);
    world.hold = true;
    let entry = world.rw(opcode::io::WRITE_UNCORRECTABLE, 5, 9, SglDescriptor::default());
    let id = world.next_id(io);
    let entry = SubmissionEntry { command_id: id.into(), flags: 0x40, ..entry };
    let bytes = world.capsule(io, entry, &[]);
    world.send(io, &bytes);
    let asked = world.held.pop().expect("given to the namespace");
    assert!(
        matches!(
            asked.operation,
            NamespaceOperation::WriteUncorrectable { range: LbaRange { first_lba: 5, lba_count: 9 } }
        ),
        "{asked:?}"
    );
    world.hold = false;
    world.execute(asked);
    let beyond = world.rw(opcode::io::WRITE_UNCORRECTABLE, LBAS - 1, 2, SglDescriptor::default());
    assert!(world.command(io, beyond, &[]).status.same_code(Status::LBA_OUT_OF_RANGE));

    let mut identify = |cns: u8, nsid: u32| {
        let entry = SubmissionEntry {
            opcode: opcode::admin::IDENTIFY,
            nsid: nsid.into(),
            cdw10: u32::from(cns).into(),
            sgl: SglDescriptor::transport(4096),
            ..SubmissionEntry::default()
        };
        world.command(admin, entry, &[]).data
    };
    let page = IdentifyController::read_from_bytes(&identify(cns::CONTROLLER, 0)).unwrap();
    assert_eq!(
        page.oncs.get() & (ONCS_COPY | ONCS_WRITE_UNCORRECTABLE),
        ONCS_COPY | ONCS_WRITE_UNCORRECTABLE
    );
    assert_eq!(page.ocfs.get(), 1, "source ranges of format 0h");
    let page = IdentifyNamespace::read_from_bytes(&identify(cns::NAMESPACE, 1)).unwrap();
    let told = (u32::from(page.mssrl.get()), page.mcl.get(), u32::from(page.msrc) + 1);
    assert_eq!(told, (COPY_LBAS_MAX, COPY_LBAS_MAX, COPY_RANGES_MAX));
}
