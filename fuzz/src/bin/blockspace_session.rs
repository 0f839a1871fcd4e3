//! An application that writes whatever it likes into rings and data area: every entry that is taken gets one answer, counters that
//! make no sense end it, and afterwards a right application finds a vSSD that works.
#![no_main]

use diecut_blockspace::ring::{ClientEnd, Layout, ServerEnd, Words, private_words};
use diecut_blockspace::session::{Answer, Session};
use diecut_blockspace::wire::{Completion, Opcode, Status, Submission, encode_name};
use diecut_emulator::{Device, Options, Profile};
use diecut_fuzz::{Input, bounded};
use diecut_media::Media;
use diecut_spec::Isolation;
use diecut_testing::pool::PoolWorld;
use diecut_units::{BufferPool, Time};
use diecut_vssd::{LogicalBlock, PoolConfig, UnitIndex, VssdId};
use std::sync::Arc;
use std::sync::atomic::Ordering;

diecut_fuzz::target!(seeds, check);

const STEPS_MAX: usize = 300;
/// The device with what was written, and the data area.
const MEMORY_MAX_BYTES: usize = 128 << 20;
const ENTRIES: u32 = 8;
const LAYOUT: Layout = Layout { entries: ENTRIES, slots: 8, slot_size_bytes: 64 << 10 };
/// Places of counters and of the first submission in shared memory, in words.
const SUBMISSION_TAIL: usize = 128 / 8;
const COMPLETION_HEAD: usize = 384 / 8;
const SUBMISSIONS: usize = 4096 / 8;

const ENTRY: u8 = 0;
const RAW_ENTRY: u8 = 1;
const WORK: u8 = 2;
const RELEASE: u8 = 3;
const WORD: u8 = 4;
const DATA: u8 = 5;
const TAIL: u8 = 6;
const STEP_KINDS: u8 = 7;

fn seeds() -> Vec<Vec<u8>> {
    let entry = |opcode: Opcode, flag: u8, unit: u8, index: u8, first: u8, count: u8| {
        [ENTRY, opcode as u8, flag, unit, index, first, count, 0]
    };
    let keep = entry(Opcode::Keep, 1, 0, 0, 0, 0);
    let life = [
        keep,
        entry(Opcode::Allocate, 7, 0, 0, 0, 0),
        entry(Opcode::Append, 0, 0, 0, 0, 8),
        entry(Opcode::Append, 0, 0, 0, 0, 16),
        entry(Opcode::Read, 0, 0, 0, 3, 9),
        entry(Opcode::Sync, 0, 0, 0, 0, 0),
        entry(Opcode::Free, 0, 0, 0, 0, 0),
        entry(Opcode::Held, 0, 0, 0, 0, 10),
    ];
    let slow: Vec<u8> = life.iter().flat_map(|entry| [&entry[..], &[WORK, RELEASE]].concat()).collect();
    let fast = [life.concat(), vec![WORK, RELEASE, WORK]].concat();
    let broken = [&life.concat()[..16], &[TAIL, 200, WORK]].concat();
    let raw = [&[RAW_ENTRY][..], &[4; 64], &[WORD, 48, 0, 0, 0, 0, 1, WORK]].concat();
    vec![slow, fast, broken, raw, [&keep[..], &[DATA, 0, 1, 2, WORK]].concat()]
}

struct Server {
    below: PoolWorld,
    vssd: VssdId,
    buffers: BufferPool,
    answers: Vec<Answer>,
    taken: u64,
    answered: u64,
}

impl Server {
    fn new() -> Server {
        let profile = Profile::named("tiny").expect("comes with diecut");
        let device = Device::create(&profile, Options::default()).expect("a sound profile");
        let mut config = PoolConfig::suited_to(device.geometry());
        config.levels.channels = vec![device.geometry().channels.into()];
        let mut below = PoolWorld::open(device, config, Time::ZERO);
        let vssd = below.pool.alloc_vssd(Isolation::Channel, 0, 1).expect("an empty device has room");
        let (buffers, answers) = (BufferPool::new(), Vec::new());
        Server { below, vssd, buffers, answers, taken: 0, answered: 0 }
    }

    fn session(&mut self) -> Session {
        Session::new(&self.below.space(self.vssd), LAYOUT.slot_size_bytes)
    }

    /// Takes and answers all that is there, until nothing is under way. Says whether the rings are whole.
    fn work(&mut self, end: &mut ServerEnd, session: &mut Session) -> bool {
        let mut is_whole = true;
        loop {
            let before = self.taken;
            while is_whole {
                match end.take(&mut self.buffers) {
                    Ok(Some(command)) => {
                        self.taken += 1;
                        session.submit(command, &mut self.below.space(self.vssd), &mut self.answers);
                    }
                    Ok(None) => break,
                    Err(_) => is_whole = false,
                }
            }
            let goes_on = self.below.step();
            for (_, completion) in self.below.answers.drain(..) {
                session.complete(completion, &mut self.answers);
            }
            for answer in self.answers.drain(..) {
                self.answered += 1;
                assert!(self.answered <= self.taken, "one answer for each entry");
                end.put(&answer);
            }
            if !goes_on && session.is_idle() && before == self.taken && !self.below.pool.has_ready() {
                assert_eq!(self.answered, self.taken, "an answer for each entry");
                return is_whole;
            }
        }
    }
}

fn put_entry(words: &Words, tail: &mut u64, bytes: &[u8; 64]) {
    let words = (**words).as_ref();
    let place = SUBMISSIONS + (*tail % u64::from(ENTRIES)) as usize * 8;
    for (at, chunk) in bytes.as_chunks::<8>().0.iter().enumerate() {
        words[place + at].store(u64::from_ne_bytes(*chunk), Ordering::Relaxed);
    }
    *tail = tail.wrapping_add(1);
    words[SUBMISSION_TAIL].store(*tail, Ordering::Release);
}

fn check(bytes: &[u8]) {
    bounded(MEMORY_MAX_BYTES, || {
        let mut server = Server::new();
        let words = private_words(LAYOUT.size_bytes());
        let mut end = ServerEnd::new(Arc::clone(&words), LAYOUT);
        let mut session = server.session();
        let (mut input, mut tail, mut is_whole) = (Input::new(bytes), 0u64, true);
        for _ in 0..STEPS_MAX {
            if input.is_empty() || !is_whole {
                break;
            }
            match input.byte() % STEP_KINDS {
                ENTRY => {
                    let [opcode, flag, unit, index, first, count, slot] = [(); 7].map(|()| input.byte());
                    let mut bytes = Submission::new(Opcode::Sync, LogicalBlock::default()).encode();
                    (bytes[0], bytes[1], bytes[2], bytes[4]) = (opcode, flag, unit, index);
                    (bytes[8], bytes[16], bytes[20]) = (tail as u8, first, count);
                    // Slots, one of them outside.
                    bytes[24..28].copy_from_slice(&(u32::from(slot % 9) << 16).to_le_bytes());
                    put_entry(&words, &mut tail, &bytes);
                }
                RAW_ENTRY => {
                    let bytes = [(); 64].map(|()| input.byte());
                    put_entry(&words, &mut tail, &bytes);
                }
                WORK => is_whole = server.work(&mut end, &mut session),
                RELEASE => (*words).as_ref()[COMPLETION_HEAD].store(server.answered, Ordering::Release),
                WORD => {
                    let (place, value) = (usize::from(input.byte()), u64::from(input.u32()));
                    (*words).as_ref()[place].store(value, Ordering::Release);
                }
                DATA => {
                    // A name of a block, for what is to be kept.
                    let (slot, unit, index) = (input.byte(), input.byte(), input.byte());
                    let block = LogicalBlock { unit: UnitIndex(unit.into()), index: index.into() };
                    let data = LAYOUT.size_bytes() - LAYOUT.data_size_bytes() as usize;
                    let place = data / 8 + usize::from(slot % 8) * (LAYOUT.slot_size_bytes as usize / 8);
                    (*words).as_ref()[place].store(u64::from_ne_bytes(encode_name(block)), Ordering::Relaxed);
                }
                _ => {
                    tail = tail.wrapping_add(u64::from(input.byte()));
                    (*words).as_ref()[SUBMISSION_TAIL].store(tail, Ordering::Release);
                }
            }
        }
        server.work(&mut end, &mut session);
        calm(&mut server);
    });
}

/// A right application, over rings of its own.
fn calm(server: &mut Server) {
    let words = private_words(LAYOUT.size_bytes());
    let mut end = ServerEnd::new(Arc::clone(&words), LAYOUT);
    let mut client = ClientEnd::new(words, LAYOUT);
    let mut session = server.session();
    (server.taken, server.answered) = (0, 0);
    let mut ask = |client: &mut ClientEnd, entry: Submission| -> Completion {
        client.submit(&entry).expect("one at a time");
        assert!(server.work(&mut end, &mut session), "the rings are whole");
        let completion = client.take().expect("an answer").expect("of this version");
        client.release();
        assert_eq!((completion.token, completion.status), (entry.token, Status::Done), "{entry:?}");
        completion
    };
    let keep = Submission { flag: 1, token: 1, ..Submission::new(Opcode::Keep, LogicalBlock::default()) };
    ask(&mut client, keep);
    let held = Submission { count: 64, token: 2, ..Submission::new(Opcode::Held, LogicalBlock::default()) };
    assert_eq!(ask(&mut client, held).total, 0, "all others are freed");
    let allocate = Submission { token: 3, ..Submission::new(Opcode::Allocate, LogicalBlock::default()) };
    let block = ask(&mut client, allocate).block;
    let content: Vec<u8> = (0..32u32 << 10).map(|at| (at ^ at >> 8) as u8).collect();
    client.put_data(0, &content);
    ask(&mut client, Submission { count: 8, token: 4, ..Submission::new(Opcode::Append, block) });
    let read =
        Submission { count: 8, token: 5, data_offset: 64 << 10, ..Submission::new(Opcode::Read, block) };
    ask(&mut client, read);
    let mut found = vec![0; content.len()];
    client.take_data(64 << 10, &mut found);
    assert!(found == content, "what was appended is read");
}
