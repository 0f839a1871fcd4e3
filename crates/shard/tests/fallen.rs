//! Goal: when a shard that is not the first one fails, what its tenants had attached comes back, and hosts of all shards read of it. Method:
//! several shards in virtual time, applications at erase blocks and hosts over NVMe/TCP on each, and a shard that fails between two turns.

use crate::herd::{Herd, Host, device, device_with, vssd};
use diecut_blockspace::session::{Answer as BlockAnswer, Command as BlockCommand};
use diecut_blockspace::wire::{NAME_SIZE_BYTES, Opcode, Status, Submission, encode_name};
use diecut_emulator::Backing;
use diecut_nvme::ocp::ErrorRecovery;
use diecut_nvme::ocp::lid::ERROR_RECOVERY;
use diecut_shard::control::*;
use diecut_shard::drive::*;
use diecut_shard::panics::PanicRecord;
use diecut_spec::{Isolation, Serves};
use diecut_testing::planted;
use diecut_units::{BufferMut, IU_SIZE_BYTES, Time};
use diecut_vssd::LogicalBlock;
use zerocopy::FromBytes;

/// IUs of an append.
const IUS: u32 = 8;

/// An application at a vSSD of this name, with a block that it appends to.
struct Application {
    session: BlockSession,
    vssd: String,
    block: LogicalBlock,
    next_token: u64,
    written: u32,
}

/// Until shards said this to applications.
fn heard(herd: &mut Herd, is_it: impl Fn(&BlockAction) -> bool) -> BlockAction {
    for _ in 0..200_000 {
        if let Some(at) = herd.told_applications.iter().position(&is_it) {
            return herd.told_applications.remove(at);
        }
        herd.step();
    }
    panic!("an application is never told: {:?}", herd.told_applications);
}

impl Application {
    /// Asks a shard to be attached.
    fn ask(herd: &mut Herd, at: usize, number: u64, vssd: &str) {
        let session = BlockSession(number);
        let event = BlockEvent::Attach { session, vssd: vssd.to_owned(), uid: 0, is_privileged: true };
        herd.tell(at, Event::Blocks(event));
    }

    /// Attaches, and keeps what its vSSD has under this name.
    fn attach(herd: &mut Herd, at: usize, number: u64, vssd: &str) -> Application {
        Application::ask(herd, at, number, vssd);
        Application::attached(herd, number, vssd)
    }

    /// It is told that it is attached.
    fn attached(herd: &mut Herd, number: u64, vssd: &str) -> Application {
        let session = BlockSession(number);
        let of = |action: &BlockAction| match action {
            BlockAction::Attached { session, .. } | BlockAction::Refused { session, .. } => *session,
            _ => BlockSession(u64::MAX),
        };
        let said = heard(herd, |action| of(action) == session);
        assert!(matches!(said, BlockAction::Attached { .. }), "{said:?}");
        let (block, next_token, written) = (LogicalBlock::default(), number << 32, 0);
        Application { session, vssd: vssd.to_owned(), block, next_token, written }
    }

    fn submit(&mut self, herd: &mut Herd, entry: Submission, data: Option<BufferMut>) -> u64 {
        let home = herd.applications[&self.session].expect("it does not move");
        self.next_token += 1;
        let command = BlockCommand { entry: Ok(Submission { token: self.next_token, ..entry }), data };
        herd.tell(home, Event::Blocks(BlockEvent::Submitted { session: self.session, command }));
        self.next_token
    }

    /// Its next answer.
    fn answer(&mut self, herd: &mut Herd, token: u64) -> BlockAnswer {
        let session = self.session;
        let is_it = |action: &BlockAction| matches!(action, BlockAction::Answered { session: of, answer } if (*of, answer.completion.token) == (session, token));
        match heard(herd, is_it) {
            BlockAction::Answered { answer, .. } => answer,
            other => panic!("{other:?}"),
        }
    }

    fn done(&mut self, herd: &mut Herd, entry: Submission, data: Option<BufferMut>) -> BlockAnswer {
        let opcode = entry.opcode;
        let token = self.submit(herd, entry, data);
        let answer = self.answer(herd, token);
        assert_eq!(answer.completion.status, Status::Done, "{opcode:?} on {}", self.vssd);
        answer
    }

    /// Nothing of before is kept but these blocks.
    fn keep(&mut self, herd: &mut Herd, blocks: &[u8]) {
        let count = (blocks.len() / NAME_SIZE_BYTES) as u32;
        let keep = Submission { flag: 1, count, ..Submission::new(Opcode::Keep, LogicalBlock::default()) };
        self.done(herd, keep, Some(BufferMut::copy_from(blocks)));
    }

    fn allocate(&mut self, herd: &mut Herd) {
        self.block = self.done(herd, Submission::new(Opcode::Allocate, self.block), None).completion.block;
        self.written = 0;
    }

    fn append(&mut self, herd: &mut Herd) {
        let (count, first) = (IUS, self.written);
        let entry = Submission { count, first, ..Submission::new(Opcode::Append, self.block) };
        let data = BufferMut::copy_from(&vec![7; IUS as usize * IU_SIZE_BYTES]);
        self.done(herd, entry, Some(data));
        self.written += IUS;
    }

    /// Checks all that it appended.
    fn look(&mut self, herd: &mut Herd) {
        for first in (0..self.written).step_by(IUS as usize) {
            let entry = Submission { count: IUS, first, ..Submission::new(Opcode::Read, self.block) };
            let (_, data) = self.done(herd, entry, None).data.expect("with content");
            assert!(data.len() == IUS as usize * IU_SIZE_BYTES && data.iter().all(|byte| *byte == 7));
        }
    }
}

/// Who was attached to the shard that failed attaches to its next life, which takes also who asked before it served, and finds its blocks. Who is
/// attached to another shard notices nothing.
fn attach_again() {
    for seed in 0..6 {
        let mut herd = Herd::new(device_with(seed, Backing::Memory), 2, seed, Time::ZERO);
        for name in ["z", "a"] {
            herd.done(ControlRequest::CreateTenant(TenantSpec::new(name)));
            let spec = VssdSpec { serves: Serves::Blocks, ..vssd(name, name, Isolation::Channel, 0) };
            herd.done(ControlRequest::CreateVssd(spec));
        }
        assert_eq!((herd.home("vssd-z"), herd.home("vssd-a")), (0, 1));
        let [mut one, mut other] = [(0, "vssd-z"), (1, "vssd-a")].map(|(at, vssd)| {
            let mut one = Application::attach(&mut herd, at, at as u64 + 1, vssd);
            one.keep(&mut herd, &[]);
            one.allocate(&mut herd);
            one.append(&mut herd);
            one
        });
        other.append(&mut herd);
        // Entries are under way, at some stage of theirs.
        let second = other.submit(&mut herd, Submission::new(Opcode::Allocate, other.block), None);
        (0..seed).for_each(|_| herd.step());
        herd.fail(1);
        herd.told_applications.clear();
        Application::ask(&mut herd, 1, 3, "vssd-a");
        assert!(herd.told_applications.is_empty(), "nobody is there who could say");
        one.append(&mut herd);
        let mut next = Application::attached(&mut herd, 3, "vssd-a");
        // What comes late of who is gone is nobody's.
        let late = Submission { token: second, ..Submission::new(Opcode::Allocate, other.block) };
        let command = BlockCommand { entry: Ok(late), data: None };
        herd.tell(1, Event::Blocks(BlockEvent::Submitted { session: other.session, command }));
        herd.tell(1, Event::Blocks(BlockEvent::Closed { session: other.session }));
        (next.block, next.written) = (other.block, other.written);
        next.keep(&mut herd, &encode_name(other.block));
        next.look(&mut herd);
        next.allocate(&mut herd);
        assert_ne!(next.block, other.block, "that one is kept");
        next.append(&mut herd);
        next.look(&mut herd);
        one.append(&mut herd);
        one.look(&mut herd);
        Application::ask(&mut herd, 1, 4, "vssd-a");
        let said = herd.told_applications.pop();
        assert!(matches!(said, Some(BlockAction::Refused { status: Status::Held, .. })), "{said:?}");
        assert!(herd.told_applications.is_empty(), "{:?}", herd.told_applications);
    }
}

#[test]
fn applications_attach_again_and_find_their_blocks() {
    attach_again();
}

/// Count and IDs that hosts read in error recovery (C1h).
fn read_panics(herd: &mut Herd, host: &mut Host) -> (u8, [u64; 4]) {
    for _ in 0..200_000 {
        if host.is_ready() {
            break;
        }
        host.work(herd, false);
        herd.step();
    }
    let page = host.log_page(herd, ERROR_RECOVERY, 512);
    let told = ErrorRecovery::read_from_bytes(&page).unwrap();
    (told.panic_count, told.previous_panics.map(|id| id.get()))
}

/// Hosts of all shards read of the failure of each, over the connections that they have.
fn read_of_failures() {
    let names = ["z", "a", "y"];
    let mut herd = Herd::new(device(3), 3, 3, Time::ZERO);
    for name in names {
        herd.add_tenant(name, Isolation::Channel, 0);
    }
    assert_eq!(names.map(|name| herd.home(&format!("vssd-{name}"))), [0, 1, 2]);
    let mut hosts: Vec<Host> = names.iter().zip(1..).map(|(name, number)| Host::new(name, number)).collect();
    for host in &mut hosts {
        assert_eq!(read_panics(&mut herd, host), (0, [0; 4]));
    }
    let connections = hosts.iter().map(Host::connection).collect::<Vec<_>>();
    let mut panics: Vec<PanicRecord> = Vec::new();
    let mut ids = [0; 4];
    for (number, at) in [(1, 1), (2, 2), (3, 1)] {
        let location = format!("crates/x.rs:{number}:1");
        panics.push(PanicRecord { number, shard: at, location, ..PanicRecord::default() });
        ids.rotate_right(1);
        ids[0] = panics.last().unwrap().id();
        herd.fail_with(at.into(), &panics);
        hosts[usize::from(at)].server_died();
        for host in &mut hosts {
            // A message is on its way for some time.
            let told =
                (0..200).map(|_| read_panics(&mut herd, host)).find(|told| u64::from(told.0) == number);
            assert_eq!(told, Some((number as u8, ids)), "failure {number}");
        }
    }
    assert_eq!(hosts[0].connection(), connections[0], "it is connected as before");
}

#[test]
fn hosts_of_all_shards_read_of_failures() {
    read_of_failures();
}

/// The tests above fail where a bug is planted.
#[test]
fn planted_bugs_are_noticed() {
    planted::is_noticed("shard: hosts do not read of panics of other shards", read_of_failures);
    planted::is_noticed("shard: what came before a shard served is forgotten", attach_again);
}
