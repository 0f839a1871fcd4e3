//! Goal: hosts are told of what they can ask of a subsystem, and of nothing else. Method: subsystems of one kind of namespace and of several; what
//! Identify and log pages name is compared with what commands are answered.

use crate::world;
use diecut_namespace::contract::{ChunkProperties, ChunkShape};
use diecut_nvme::admin::GetLogPage;
use diecut_nvme::identify::{IdentifyController, IdentifyNamespace, NSFEAT_THIN, OACS_FORMAT_NVM, cns};
use diecut_nvme::log_page::{CommandEffects, lid};
use diecut_nvme::opcode::io;
use diecut_nvme::tcp::Digests;
use diecut_nvme::*;
use diecut_nvmf::{ConnectionId, NamespaceConfig};
use world::*;
use zerocopy::FromBytes;

const SHAPE: ChunkShape =
    ChunkShape { groups: 2, units: 2, chunks: 3, unit_ius: 4, rows: 2, unsafe_units: 1 };

fn plain() -> NamespaceConfig {
    namespace(7, LBAS)
}

fn zoned() -> NamespaceConfig {
    let mut one = namespace(7, LBAS);
    one.properties.zones = Some(ZONES);
    one.properties.capacity_lbas = LBAS / 16 * 12;
    one
}

fn of_chunks() -> NamespaceConfig {
    let mut one = namespace(7, SHAPE.size_lbas());
    one.properties.capacity_lbas = u64::from(SHAPE.all_chunks()) * u64::from(SHAPE.chunk_ius());
    one.properties.chunks = Some(ChunkProperties { shape: SHAPE, read_ns: 1, write_ns: 2, reset_ns: 3 });
    one
}

/// A host of a subsystem with these namespaces, the first of which is 1.
struct Host {
    world: World,
    admin: ConnectionId,
    io: ConnectionId,
}

impl Host {
    fn new(namespaces: impl IntoIterator<Item = NamespaceConfig>) -> Host {
        let mut world = World::new(3);
        let mut config = subsystem();
        config.namespaces = (1..).zip(namespaces).collect();
        for (nsid, one) in &mut config.namespaces {
            (one.uuid, one.nguid) = ([*nsid as u8; 16], [*nsid as u8; 16]);
        }
        let mut actions = Vec::new();
        let now = world.now;
        world.target.set_subsystem(config, now, &mut actions);
        world.act(actions);
        let (admin, controller) = world.admin(SUBSYSTEM, Digests::NONE);
        let io = world.io(controller, 1, Digests::NONE);
        Host { world, admin, io }
    }

    fn admin(&mut self, entry: SubmissionEntry) -> Reply {
        self.world.command(self.admin, entry, &[])
    }

    fn log(&mut self, page: u8, length_bytes: u64) -> Vec<u8> {
        let mut entry = SubmissionEntry {
            opcode: opcode::admin::GET_LOG_PAGE,
            nsid: NSID_ALL.into(),
            sgl: SglDescriptor::transport(length_bytes as u32),
            ..SubmissionEntry::default()
        };
        GetLogPage::of(page, length_bytes).encode(&mut entry);
        let reply = self.admin(entry);
        assert_eq!(reply.status, Status::SUCCESS);
        reply.data
    }

    fn effects(&mut self) -> CommandEffects {
        CommandEffects::read_from_bytes(&self.log(lid::COMMAND_EFFECTS, 4096)).expect("4096 bytes")
    }

    fn identify(&mut self, cns: u8, nsid: u32) -> Vec<u8> {
        let reply = self.admin(SubmissionEntry {
            opcode: opcode::admin::IDENTIFY,
            nsid: nsid.into(),
            cdw10: u32::from(cns).into(),
            sgl: SglDescriptor::transport(4096),
            ..SubmissionEntry::default()
        });
        assert_eq!(reply.status, Status::SUCCESS);
        reply.data
    }

    fn controller(&mut self) -> IdentifyController {
        IdentifyController::read_from_bytes(&self.identify(cns::CONTROLLER, 0)).expect("4096 bytes")
    }

    /// Sends a command of the first blocks of a namespace, with zeros where it brings data.
    fn ask(&mut self, nsid: u32, code: u8) -> Status {
        let data = match code {
            io::COPY => vec![0; 32],
            io::DATASET_MANAGEMENT => vec![0; 16],
            io::COMPARE => vec![0; LBA],
            _ => Vec::new(),
        };
        let mut entry = self.world.rw(code, 0, 1, SglDescriptor::in_capsule(data.len() as u32));
        entry.nsid = nsid.into();
        if code == io::COPY {
            diecut_nvme::io::Copy { start: 5, range_count: 1, ..Default::default() }.encode(&mut entry);
        }
        if code == io::DATASET_MANAGEMENT {
            diecut_nvme::io::DatasetManagement { range_count: 1, deallocate: true }.encode(&mut entry);
        }
        if data.is_empty() {
            entry.sgl = SglDescriptor::transport(0);
        }
        self.world.command(self.io, entry, &data).status
    }

    fn format(&mut self, nsid: u32) -> Status {
        let entry = SubmissionEntry {
            opcode: opcode::admin::FORMAT_NVM,
            nsid: nsid.into(),
            sgl: SglDescriptor::transport(0),
            ..SubmissionEntry::default()
        };
        self.admin(entry).status
    }
}

/// Format NVM is told of where some namespace is formatted.
#[test]
fn format_is_told_where_it_is_offered() {
    for (namespaces, formatted) in [
        (vec![plain()], Some(1)),
        (vec![of_chunks()], None),
        (vec![of_chunks(), of_chunks()], None),
        (vec![of_chunks(), plain()], Some(2)),
        (vec![], None),
    ] {
        let (count, is_empty) = (namespaces.len() as u32, namespaces.is_empty());
        let mut host = Host::new(namespaces);
        let page = host.controller();
        let is_told = formatted.is_some() || is_empty;
        assert_eq!(page.oacs.get() & OACS_FORMAT_NVM != 0, is_told);
        assert_eq!(page.fna != 0, is_told);
        // CSUPP, LBCC and the scope of a namespace (Base 2.0 figure 210).
        let effects = host.effects().admin[0x80].get();
        assert_eq!(effects, if is_told { 1 << 20 | 0b11 } else { 0 });
        for nsid in 1..=count {
            let status = host.format(nsid);
            assert_eq!(status == Status::SUCCESS, formatted == Some(nsid), "{nsid}: {status}");
            assert_eq!(status.same_code(Status::INVALID_OPCODE), formatted != Some(nsid), "{nsid}: {status}");
        }
    }
}

/// Commands that ONCS has a bit for, bit by bit (Base 2.0 figure 275), with what their entry in the effects log says.
const OPTIONAL: [(u8, u16, u32); 6] = [
    (io::COMPARE, 1 << 0, 0b01),
    (io::WRITE_UNCORRECTABLE, 1 << 1, 0b11),
    (io::DATASET_MANAGEMENT, 1 << 2, 0b11),
    (io::WRITE_ZEROES, 1 << 3, 0b11),
    (io::VERIFY, 1 << 7, 0b01),
    (io::COPY, 1 << 8, 0b11),
];
/// Reservations and the timestamp.
const ALWAYS: u16 = 1 << 5 | 1 << 6;

/// A command is told of if some namespace takes it: a host must not give chunks a limit of discards that they refuse.
#[test]
fn commands_are_told_where_some_namespace_takes_them() {
    for (namespaces, oncs) in [
        (vec![plain()], 0x1EF),
        (vec![zoned()], 0x1ED),
        (vec![of_chunks()], 0x060),
        (vec![of_chunks(), of_chunks()], 0x060),
        (vec![of_chunks(), zoned()], 0x1ED),
        (vec![zoned(), of_chunks(), plain()], 0x1EF),
        (vec![], 0x1EF),
    ] {
        let count = namespaces.len() as u32;
        let mut host = Host::new(namespaces);
        assert_eq!(host.controller().oncs.get(), oncs);
        let effects = host.effects();
        for code in [io::FLUSH, io::READ] {
            assert_eq!(effects.io[usize::from(code)].get(), 1 << 20 | 0b01, "{code:#x} is never left out");
        }
        assert_eq!(effects.io[usize::from(io::WRITE)].get(), 1 << 20 | 0b11);
        for code in [0x0D, 0x0E, 0x11, 0x15] {
            assert_eq!(effects.io[code].get(), 1 << 20 | 0b01, "reservations: {code:#x}");
        }
        assert_eq!(oncs & ALWAYS, ALWAYS);
        for (code, bit, effect) in OPTIONAL {
            let is_told = oncs & bit != 0;
            let expected = if is_told { 1 << 20 | effect } else { 0 };
            assert_eq!(effects.io[usize::from(code)].get(), expected, "{code:#x}");
            let mut is_taken = count == 0;
            for nsid in 1..=count {
                is_taken |= !host.ask(nsid, code).same_code(Status::INVALID_OPCODE);
            }
            assert_eq!(is_taken, is_told, "{code:#x}");
        }
    }
}

/// Words 2 to 5 of the device capabilities of OCP: Write Zeroes, Sanitize, Dataset Management, Write Uncorrectable. They agree with Identify.
#[test]
fn ocp_capabilities_are_what_identify_says() {
    let cannot_purge = || {
        let mut one = plain();
        one.properties.purges = false;
        one
    };
    for (namespaces, expected) in [
        (vec![plain()], [0b11, 0b1_0101, 0b11, 0b1]),
        (vec![zoned()], [0b11, 0b1_0101, 0b11, 0]),
        (vec![plain(), cannot_purge()], [0b11, 0, 0b11, 0b1]),
        (vec![of_chunks()], [0, 0b1_0101, 0, 0]),
        (vec![of_chunks(), plain()], [0b11, 0b1_0101, 0b11, 0b1]),
    ] {
        let mut host = Host::new(namespaces);
        let page = host.log(diecut_nvme::ocp::lid::DEVICE_CAPABILITIES, 4096);
        let words = [4, 6, 8, 10].map(|at| u16::from_le_bytes([page[at], page[at + 1]]));
        assert_eq!(words, expected);
        let controller = host.controller();
        let oncs = controller.oncs.get();
        let told = [
            oncs & 1 << 3 != 0,
            controller.sanicap.get() & 1 << 1 != 0,
            oncs & 1 << 2 != 0,
            oncs & 1 << 1 != 0,
        ];
        assert_eq!(words.map(|word| word & 1 != 0), told);
    }
}

/// NUSE is what is written of a volume, and all of what is not thin, so OCP's total has both.
#[test]
fn what_is_not_thin_is_all_used() {
    let mut host = Host::new([plain(), zoned(), of_chunks()]);
    host.world.target.set_used_lbas(&name(SUBSYSTEM), 1, 5);
    let chunks = u64::from(2 * 2 * 3 * 4 * 2_u32);
    let expected = [(5, true), (LBAS / 16 * 12, false), (chunks, false)];
    for (nsid, (nuse, is_thin)) in (1..).zip(expected) {
        let page =
            IdentifyNamespace::read_from_bytes(&host.identify(cns::NAMESPACE, nsid)).expect("4096 bytes");
        assert_eq!((page.nuse.get(), page.nsfeat & NSFEAT_THIN != 0), (nuse, is_thin), "{nsid}");
        assert!(is_thin || page.ncap == page.nuse, "{nsid}");
    }
    let page = host.log(diecut_nvme::ocp::lid::SMART_EXTENDED, 512);
    let total = u64::from_le_bytes(page[152..160].try_into().expect("8 bytes"));
    assert_eq!(total, 5 + LBAS / 16 * 12 + chunks);
    // A volume that is full stays a thin one.
    host.world.target.set_used_lbas(&name(SUBSYSTEM), 1, LBAS);
    let page = IdentifyNamespace::read_from_bytes(&host.identify(cns::NAMESPACE, 1)).expect("4096 bytes");
    assert_eq!((page.nuse.get(), page.nsfeat & NSFEAT_THIN != 0), (LBAS, true));
}
