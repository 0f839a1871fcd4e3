//! Goal: hosts are told of what they can ask of a subsystem, and of nothing else. Method: subsystems of one kind of namespace and of several; what
//! Identify and log pages name is compared with what commands are answered.

mod world;
use diecut_namespace::contract::{ChunkProperties, ChunkShape};
use diecut_nvme::admin::GetLogPage;
use diecut_nvme::identify::{IdentifyController, OACS_FORMAT_NVM, cns};
use diecut_nvme::log_page::{CommandEffects, lid};
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

fn of_chunks() -> NamespaceConfig {
    let mut one = namespace(7, SHAPE.size_lbas());
    one.properties.chunks = Some(ChunkProperties { shape: SHAPE, read_ns: 1, write_ns: 2, reset_ns: 3 });
    one
}

/// A host of a subsystem with these namespaces, the first of which is 1.
struct Host {
    world: World,
    admin: ConnectionId,
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
        let (admin, _) = world.admin(SUBSYSTEM, Digests::NONE);
        Host { world, admin }
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
