//! The host side: an admin queue and an I/O queue against a controller that answers right, wrong, twice or never.
#![no_main]

use diecut_fuzz::{Input, bounded};
use diecut_initiator::{Admin, Collect, Command, HostError, LbaSpan, QueuePair, QueueParameters, Token};
use diecut_nvme::identify::{IDENTIFY_SIZE_BYTES, namespace_list};
use diecut_nvme::tcp::*;
use diecut_nvme::{CompletionEntry, QualifiedName, Status};
use diecut_units::{Buffer, Span, Time};
use zerocopy::IntoBytes;

diecut_fuzz::target!(seeds, check);

const STEPS_MAX: usize = 200;
const WRITE_BYTES: usize = 64 << 10;
const DEPTH: u16 = 4;

const INITIALIZE: u8 = 0;
const ANSWER: u8 = 1;
const DATA: u8 = 2;
const PAGE: u8 = 3;
const ASK: u8 = 4;
const TERMINATE: u8 = 5;
const RAW: u8 = 6;
const SUBMIT: u8 = 7;
const TICK: u8 = 8;
const TAKE: u8 = 9;
const STEP_KINDS: u8 = 10;

const SUCCESS_AND_LAST: u8 = flag::LAST | flag::SUCCESS;

fn answer(id: u8, result: u64) -> Vec<u8> {
    [&[ANSWER, id, 0, 0][..], &result.to_le_bytes()].concat()
}

fn seeds() -> Vec<Vec<u8>> {
    // CAP with 128 entries, CC, CSTS.RDY, three pages, queues.
    let bring_up = |mode: u8, dgst: u8| {
        let mut seed = vec![mode, INITIALIZE, dgst, 0, 32];
        seed.extend([answer(0, 1), answer(0, 127), answer(0, 0), answer(0, 1)].concat());
        seed.extend([
            PAGE,
            0,
            0,
            SUCCESS_AND_LAST,
            PAGE,
            0,
            1,
            SUCCESS_AND_LAST,
            PAGE,
            0,
            2,
            SUCCESS_AND_LAST,
        ]);
        seed.extend(answer(0, 0));
        seed
    };
    let read = [&[SUBMIT, 0, DATA, 0][..], &[0, 0, 0, 0], &[0, 16, SUCCESS_AND_LAST]].concat();
    let write = [&[SUBMIT, 1, ASK, 0, 7][..], &0u32.to_le_bytes(), &32_768u32.to_le_bytes()].concat();
    let mut seeds = Vec::new();
    for dgst in 0..4 {
        let io = [&[2 | dgst << 2, INITIALIZE, dgst, 0, 32][..], &answer(0, 1)].concat();
        seeds.push(bring_up(dgst << 2, dgst));
        seeds.push([&io[..], &read, &write, &answer(0, 0)].concat());
        seeds.push(
            [&io[..], &[SUBMIT, 2, SUBMIT, 3, SUBMIT, 4], &answer(1, 0), &answer(0, 0), &[TERMINATE, 1]]
                .concat(),
        );
    }
    seeds
        .push([&bring_up(1, 0)[..], &[TICK, 200, 200, TAKE, 255], &answer(0, 0), &[TICK, 255, 255]].concat());
    seeds
}

enum Host {
    Admin(Box<Admin>),
    Queue(Box<QueuePair>),
}

struct Play {
    host: Host,
    digests: Digests,
    now: Time,
    sink: Collect,
    next_token: u64,
    submitted: Vec<Token>,
    error: Option<HostError>,
    cut: usize,
}

fn check(bytes: &[u8]) {
    bounded((4 << 20) + 64 * bytes.len(), || {
        let mut input = Input::new(bytes);
        let mode = input.byte();
        let digests = Digests::decode(mode >> 2);
        let name = |text: &str| QualifiedName::new(text).expect("an NQN");
        let parameters = QueueParameters {
            digests,
            keep_alive_ms: if mode & 1 != 0 { 1000 } else { 0 },
            flow_control: mode & 16 != 0,
            ..QueueParameters::admin(name("nqn.2014-08.org.nvmexpress:host"), [1; 16], name("nqn.x"))
        };
        let host = if mode & 2 == 0 {
            Host::Admin(Box::new(Admin::new(parameters, 4)))
        } else {
            let parameters = QueueParameters {
                queue_id: 1,
                controller_id: 1,
                entries: DEPTH + 1,
                in_capsule_bytes: 8192,
                ..parameters
            };
            Host::Queue(Box::new(QueuePair::new(parameters)))
        };
        let mut play = Play {
            host,
            digests: Digests::NONE,
            now: Time(1),
            sink: Collect::default(),
            next_token: 1,
            submitted: Vec::new(),
            error: None,
            cut: usize::from(mode >> 5) * 7,
        };
        for _ in 0..STEPS_MAX {
            if input.is_empty() {
                break;
            }
            play.step(&mut input);
        }
        play.end();
    });
}

impl Play {
    /// A PDU of the controller, with the digests that were agreed on.
    fn send(&mut self, header: &[u8], data: &[u8], digests: Digests) {
        let mut bytes = header.to_vec();
        if digests.header {
            bytes.extend(digest_of(header));
        }
        bytes.extend(data);
        if digests.data && !data.is_empty() {
            bytes.extend(digest_of(data));
        }
        self.deliver(&bytes);
    }

    fn deliver(&mut self, bytes: &[u8]) {
        let size = if self.cut == 0 { bytes.len().max(1) } else { self.cut };
        for piece in bytes.chunks(size) {
            let result = match &mut self.host {
                Host::Admin(admin) => admin.receive(piece, self.now, &mut self.sink),
                Host::Queue(queue) => queue.receive(piece, &mut self.sink),
            };
            if let Err(error) = result {
                assert!(!error.to_string().is_empty());
                self.error.get_or_insert(error);
            }
        }
    }

    fn step(&mut self, input: &mut Input<'_>) {
        match input.byte() % STEP_KINDS {
            INITIALIZE => {
                let (dgst, maximum) = (input.byte(), u32::from(input.u16()) * 128);
                let mut response = InitializeResponse::new(Digests::decode(dgst), maximum);
                response.controller_alignment = dgst >> 4;
                self.send(response.as_bytes(), &[], Digests::NONE);
                self.digests = Digests::decode(dgst);
            }
            ANSWER => {
                let (id, status, result) = (input.byte(), input.u16(), input.u64());
                let entry = CompletionEntry::with_result(id.into(), 0, Status::from_bits(status), result);
                self.send(CapsuleResponse::new(entry, self.digests).as_bytes(), &[], self.digests);
            }
            DATA => {
                let (id, offset, length, flags) = (input.byte(), input.u32(), input.u16(), input.byte());
                let header = DataToHost::new(id.into(), offset, length.into(), flags, self.digests, 4);
                self.send(header.as_bytes(), &vec![id; length.into()], self.digests);
            }
            PAGE => {
                let (id, kind, flags) = (input.byte(), input.byte(), input.byte());
                let mut page = [0; IDENTIFY_SIZE_BYTES];
                match kind & 3 {
                    1 => namespace_list(&mut page, (1..=u32::from(kind >> 2) + 1).map(|id| id * 3), 0),
                    2 => {
                        // NSZE, and LBADS of format 0.
                        page[0] = 200;
                        page[130] = if kind >> 2 == 0 { 12 } else { kind >> 2 };
                    }
                    3 => page.fill(kind),
                    _ => {}
                }
                let length = IDENTIFY_SIZE_BYTES as u32;
                let header = DataToHost::new(id.into(), 0, length, flags, self.digests, 4);
                self.send(header.as_bytes(), &page, self.digests);
            }
            ASK => {
                let (id, tag, offset, length) = (input.byte(), input.byte(), input.u32(), input.u32());
                let request = ReadyToTransfer::new(id.into(), tag.into(), offset, length, self.digests);
                self.send(request.as_bytes(), &[], self.digests);
            }
            TERMINATE => {
                let error = PduError::header("PLEN", input.byte().into(), 0);
                let (request, sent) = TerminateRequest::to_host(&error, &[0; 72]);
                self.send(request.as_bytes(), &[0; 72][..sent], Digests::NONE);
            }
            RAW => {
                let length = input.byte();
                let bytes = input.bytes(length.into());
                self.deliver(bytes);
            }
            SUBMIT => {
                let kind = input.byte();
                self.submit(kind);
            }
            TICK => {
                self.now += Span::from_millis(input.u16().into());
                if let Host::Admin(admin) = &mut self.host {
                    admin.tick(self.now);
                    if admin.facts().is_some() && self.now.0 & 1 != 0 {
                        admin.shut_down();
                    }
                }
            }
            TAKE => {
                let wanted = usize::from(input.byte()) * 64;
                match &mut self.host {
                    Host::Admin(admin) => admin.sent(wanted.min(admin.output().len())),
                    Host::Queue(queue) => queue.sent(wanted.min(queue.output().len())),
                }
            }
            _ => unreachable!("all kinds are named"),
        }
    }

    fn submit(&mut self, kind: u8) {
        let Host::Queue(queue) = &mut self.host else { return };
        if queue.room() == 0 {
            return;
        }
        let span = LbaSpan { nsid: 1, first: kind.into(), count: 1 };
        let data = Buffer::copy_from(&vec![kind; if kind & 8 == 0 { WRITE_BYTES } else { 4096 }]);
        let command = match kind & 7 {
            0 | 6 => Command::Read { span, length_bytes: 4096 },
            1 | 7 => Command::Write { span, data, force_unit_access: false },
            2 => Command::Flush { nsid: 1 },
            3 => Command::Deallocate { span },
            4 => Command::Compare { span, data },
            _ => Command::Verify { span },
        };
        let token = Token(self.next_token);
        self.next_token += 1;
        queue.submit(token, command);
        self.submitted.push(token);
    }

    /// Commands ended at most once; a stream that was given up stays so; what is ready says sensible things.
    fn end(&mut self) {
        let mut ended: Vec<Token> = self.sink.completions.iter().map(|completion| completion.token).collect();
        let count = ended.len();
        ended.sort();
        ended.dedup();
        assert_eq!(ended.len(), count, "a command ends once");
        assert!(ended.iter().all(|token| self.submitted.contains(token)), "nothing ends that did not begin");
        match &self.host {
            Host::Queue(queue) => {
                assert_eq!(queue.under_way() + count, self.submitted.len());
                assert!(self.sink.data.values().all(|data| data.len() <= 4096), "no more than was asked for");
                if self.error.is_some() {
                    assert!(!queue.is_ready() && queue.room() == 0);
                }
            }
            Host::Admin(admin) => {
                if let (None, Some(facts)) = (&self.error, admin.facts()) {
                    assert!((1..=4).contains(&facts.io_queues));
                    assert!(facts.namespaces.iter().all(|namespace| namespace.lba_bytes >= 512));
                    if facts.queue_entries_max > 1 {
                        assert_eq!(admin.io_queue(1, 1).entries, 2);
                    }
                }
            }
        }
    }
}
