//! Both ends of the project talk to each other. Goal: every command does what it says through the shipped target, with
//! all digests, whatever pieces the streams come in. Method: a target over memory, a host over two queues, streams cut
//! into random pieces from a seed.

use diecut_initiator::*;
use diecut_namespace::contract::*;
use diecut_nvme::Status;
use diecut_nvme::tcp::Digests;
use diecut_nvmf::{self as target, ConnectionId, QueueLimits, Target, TargetConfig};
use diecut_testing::Random;
use diecut_testing::target::{LBA_SIZE_BYTES as LBA, execute, name, namespace, subsystem};
use diecut_units::{Buffer, Time};

const LBAS: u64 = 512;
const SUBSYSTEM: &str = "nqn.2026-11.example:tenant-a";
const HOST: &str = "nqn.2014-08.org.nvmexpress:uuid:host-1";
const ADMIN: ConnectionId = ConnectionId(1);
const IO: ConnectionId = ConnectionId(2);

struct World {
    target: Target,
    memory: Vec<u8>,
    random: Random,
    now: Time,
    /// Largest piece of a stream.
    piece: u64,
}

impl World {
    fn new(seed: u64, piece: u64) -> World {
        let queue = QueueLimits { h2c_data_bytes_max: 16384, ..QueueLimits::default() };
        let config = TargetConfig { queue, ..TargetConfig::default() };
        let mut target = Target::new(config);
        let namespace = namespace(7, LBAS);
        let subsystem = subsystem(SUBSYSTEM, &[HOST], [(1, namespace.clone()), (9, namespace)]);
        target.set_subsystem(subsystem, Time(1), &mut Vec::new());
        World { target, memory: vec![0; LBA * LBAS as usize], random: Random::of(seed), now: Time(1), piece }
    }

    fn below(&mut self, limit: u64) -> usize {
        self.random.below(limit) as usize
    }

    fn tell(&mut self, event: target::Event) {
        let mut actions = Vec::new();
        self.target.handle(event, self.now, &mut actions);
        while self.target.has_work() {
            self.target.handle(target::Event::Round, self.now, &mut actions);
        }
        for action in actions {
            match action {
                target::Action::Submit(command) => self.execute(command),
                target::Action::Keep(keep) => self.tell(target::Event::Kept(keep.kept())),
                target::Action::Ask(question) => {
                    self.tell(target::Event::Told(Box::new(question.unknown())));
                }
                _ => {}
            }
        }
    }

    fn execute(&mut self, command: NamespaceCommand) {
        let completion = execute(&mut self.memory, command);
        self.tell(target::Event::Completed(completion));
    }

    fn send_to_target(&mut self, id: ConnectionId, bytes: &[u8]) {
        let mut at = 0;
        while at < bytes.len() {
            let part = (1 + self.below(self.piece)).min(bytes.len() - at);
            self.tell(target::Event::Received(id, Buffer::copy_from(&bytes[at..at + part])));
            at += part;
        }
    }

    /// What the target sends, in pieces.
    fn take_for_host(&mut self, id: ConnectionId) -> Vec<Vec<u8>> {
        let mut pieces = Vec::new();
        while let Some(outbox) = self.target.outbox(id).filter(|outbox| !outbox.is_empty()) {
            let mut bytes = vec![0; outbox.len_bytes()];
            outbox.copy_to(&mut bytes);
            let part = (1 + self.below(self.piece)).min(bytes.len());
            self.target.sent(id, part);
            bytes.truncate(part);
            pieces.push(bytes);
        }
        pieces
    }

    fn bring_up(&mut self, parameters: QueueParameters) -> Result<Admin, HostError> {
        self.tell(target::Event::Accepted(ADMIN, None));
        let mut admin = Admin::new(parameters, 1);
        self.admin_rounds(&mut admin)?;
        Ok(admin)
    }

    fn admin_rounds(&mut self, admin: &mut Admin) -> Result<(), HostError> {
        for _ in 0..100 {
            let bytes = admin.output().to_vec();
            admin.sent(bytes.len());
            self.send_to_target(ADMIN, &bytes);
            let pieces = self.take_for_host(ADMIN);
            if bytes.is_empty() && pieces.is_empty() {
                return Ok(());
            }
            for piece in pieces {
                admin.receive(&piece, self.now, &mut Collect::default())?;
            }
        }
        panic!("the bring-up does not end");
    }

    fn io_rounds(&mut self, queue: &mut QueuePair, sink: &mut Collect) {
        for _ in 0..1000 {
            let bytes = queue.output().to_vec();
            queue.sent(bytes.len());
            self.send_to_target(IO, &bytes);
            let pieces = self.take_for_host(IO);
            if bytes.is_empty() && pieces.is_empty() {
                return;
            }
            pieces.iter().for_each(|piece| queue.receive(piece, sink).unwrap());
        }
        panic!("the commands do not end");
    }

    fn run(&mut self, queue: &mut QueuePair, command: Command) -> (Completion, Vec<u8>) {
        let mut sink = Collect::default();
        queue.submit(Token(42), command);
        self.io_rounds(queue, &mut sink);
        assert_eq!(sink.completions.len(), 1, "one command, one end");
        (sink.completions[0], sink.data.remove(&Token(42)).unwrap_or_default())
    }
}

fn every_command_does_what_it_says(seed: u64, piece: u64, digests: Digests, flow_control: bool) {
    let mut world = World::new(seed, piece);
    let parameters = QueueParameters {
        digests,
        flow_control,
        ..QueueParameters::admin(name(HOST), [3; 16], name(SUBSYSTEM))
    };
    let admin = world.bring_up(parameters).unwrap();
    let facts = admin.facts().expect("ready").clone();
    assert!(facts.takes.copies);
    assert_eq!((facts.model.as_str(), facts.serial.as_str()), ("diecut", "A1"));
    assert_eq!(
        (facts.in_capsule_bytes, facts.transfer_bytes_max, facts.queue_entries_max),
        (8192, 1 << 20, 256)
    );
    let namespace = |nsid| NamespaceFacts {
        command_set: 0,
        chunked: None,
        zoned: None,
        nsid,
        size_lbas: LBAS,
        lba_bytes: 4096,
        reservation_capabilities: 0xff,
        nguid: [0xcd; 16],
        eui64: [0; 8],
        metadata_bytes: 0,
        has_protection: false,
        is_write_protected: false,
    };
    assert_eq!(facts.namespaces, [namespace(1), namespace(9)]);

    world.tell(target::Event::Accepted(IO, None));
    let mut queue = QueuePair::new(admin.io_queue(1, 8));
    world.io_rounds(&mut queue, &mut Collect::default());
    assert!(queue.is_ready());

    let span = |first, count| LbaSpan { nsid: 1, first, count };
    let ok = |(completion, data): (Completion, Vec<u8>)| {
        assert_eq!(completion.status, Status::SUCCESS, "seed {seed}");
        data
    };
    // One LBA goes in the capsule, 40 take several R2Ts of 16 KiB.
    for count in [1, 2, 40] {
        let content: Vec<u8> = (0..count * LBA).map(|_| world.below(256) as u8).collect();
        let data = || Buffer::copy_from(&content);
        let span = span(count as u64, count as u32);
        ok(world.run(&mut queue, Command::Write { span, data: data(), force_unit_access: count == 2 }));
        let length_bytes = (count * LBA) as u32;
        assert_eq!(ok(world.run(&mut queue, Command::Read { span, length_bytes })), content);
        ok(world.run(&mut queue, Command::Compare { span, data: data() }));
        ok(world.run(&mut queue, Command::Verify { span }));
        ok(world.run(&mut queue, Command::Flush { nsid: 1 }));
        let gone = if count == 2 {
            Command::Deallocate { span }
        } else {
            Command::WriteZeroes { span, may_deallocate: true, force_unit_access: true }
        };
        ok(world.run(&mut queue, gone));
        let (differs, _) = world.run(&mut queue, Command::Compare { span, data: data() });
        assert!(differs.status.same_code(Status::COMPARE_FAILURE), "{:?}", differs.status);
        assert!(
            ok(world.run(&mut queue, Command::Read { span, length_bytes })).iter().all(|&byte| byte == 0)
        );
    }
    let beyond = Command::Read { span: span(LBAS, 1), length_bytes: 4096 };
    assert!(world.run(&mut queue, beyond).0.status.same_code(Status::LBA_OUT_OF_RANGE));

    // As many as there is room for, in one go; all end once, each with its own token.
    let mut sink = Collect::default();
    let depth = queue.room();
    for number in 0..depth {
        let span = span(number as u64, 3);
        queue.submit(Token(number as u64), Command::Read { span, length_bytes: 3 * LBA as u32 });
    }
    assert_eq!((depth, queue.room()), (8, 0));
    world.io_rounds(&mut queue, &mut sink);
    let mut tokens: Vec<u64> = sink.completions.iter().map(|done| done.token.0).collect();
    tokens.sort_unstable();
    assert_eq!(tokens, (0..depth as u64).collect::<Vec<_>>());
    assert!(sink.data.values().all(|data| data.len() == 3 * LBA));

    let mut admin = admin;
    let facts = admin.facts().cloned();
    assert!(admin.reset() && admin.facts().is_none(), "a reset has begun");
    world.admin_rounds(&mut admin).unwrap();
    assert_eq!(admin.facts().cloned(), facts, "the same controller is ready again");
    assert!(admin.shut_down());
    world.admin_rounds(&mut admin).unwrap();
    assert!(admin.is_down());
}

#[test]
fn whole_streams() {
    every_command_does_what_it_says(1, 1 << 20, Digests::NONE, false);
}

#[test]
fn streams_in_pieces_with_every_digest() {
    for seed in 0..4 {
        let digests = Digests { header: seed & 1 != 0, data: seed & 2 != 0 };
        every_command_does_what_it_says(seed, 3000, digests, seed % 3 == 0);
    }
}

#[test]
fn a_stranger_is_told_what_to_do() {
    let mut world = World::new(1, 4096);
    let foreign = QueueParameters::admin(name("nqn.2014-08.org.nvmexpress:uuid:x"), [4; 16], name(SUBSYSTEM));
    let error = world.bring_up(foreign).unwrap_err();
    assert!(error.to_string().contains("allow its NQN"), "{error}");
    let mut world = World::new(1, 4096);
    let wrong = QueueParameters::admin(name(HOST), [3; 16], name("nqn.2026-11.example:tenant-b"));
    let error = world.bring_up(wrong).unwrap_err();
    assert!(error.to_string().contains("no subsystem of this NQN"), "{error}");
}

#[test]
fn keep_alives_are_sent_in_time() {
    let mut world = World::new(5, 4096);
    let parameters = QueueParameters {
        keep_alive_ms: 1000,
        ..QueueParameters::admin(name(HOST), [3; 16], name(SUBSYSTEM))
    };
    let mut admin = world.bring_up(parameters).unwrap();
    for _ in 0..10 {
        world.now = admin.deadline();
        admin.tick(world.now);
        assert!(!admin.output().is_empty(), "a keep-alive goes out");
        world.admin_rounds(&mut admin).unwrap();
        if world.target.deadline() <= world.now {
            world.tell(target::Event::Tick);
        }
    }
    assert_eq!(world.target.associations().len(), 1, "the association lives");
    assert!(world.now > Time(4_000_000_000));
}
