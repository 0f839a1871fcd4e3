//! A namespace that one server has over several connections at a time, one for each of its shards.

use crate::line::Line;
use crate::server::{SUBSYSTEM, Server};
use diecut_media::{Intent, IntentDone, IntentToken, IntentWork};
use diecut_remote::{ClaimKind, RemoteDrive, RemoteError, RemoteParameters};
use diecut_testing::Random;
use diecut_testing::depth::depth;
use diecut_testing::driven::CarryOut;
use diecut_testing::planted::is_noticed;
use diecut_testing::target::name;
use diecut_units::{Buffer, BufferMut, Span, Time};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

const PARTS: u64 = 3;
const BLOCK_BYTES: usize = 8192;
const BLOCKS: u64 = 40;
/// Bytes of a part.
const STRIDE: u64 = 4 << 20;

/// What a part has asked for, and what it was answered.
struct Part {
    line: Line,
    number: u64,
    /// What each of its blocks holds, as it was answered.
    versions: [u64; BLOCKS as usize],
    /// What is under way, by its token: a block, and its new version where it is written. A flush has none.
    asked: BTreeMap<u64, Option<(u64, Option<u64>)>>,
    answered: u32,
}

fn content(number: u64, block: u64, version: u64) -> Vec<u8> {
    let words = [number, block, version].map(u64::to_le_bytes).concat();
    words.into_iter().cycle().take(BLOCK_BYTES).collect()
}

impl Part {
    fn new(server: &Rc<RefCell<Server>>, number: u64, life: u64) -> Part {
        let alone = Line::new(server, 1, life).remote.parameters().clone();
        let parameters = RemoteParameters { part: number as u16, patience: None, ..alone };
        let line = Line::of(server, parameters, life * PARTS + number);
        Part { line, number, versions: [0; BLOCKS as usize], asked: BTreeMap::new(), answered: 0 }
    }

    fn offset(&self, block: u64) -> u64 {
        self.number * STRIDE + block * BLOCK_BYTES as u64
    }

    fn ask(&mut self, random: &mut Random) {
        let (block, token) = (random.below(BLOCKS), random.below(4));
        let is_busy = self.asked.values().flatten().any(|(other, _)| *other == block);
        if is_busy || self.asked.contains_key(&token) {
            return;
        }
        let offset = self.offset(block);
        let version = self.versions[block as usize] + 1;
        let (asked, work) = match random.below(8) {
            0 => (None, IntentWork::Sync),
            1..3 => {
                let buffer = BufferMut::copy_from(&[0xee; BLOCK_BYTES]);
                (Some((block, None)), IntentWork::Read { offset, buffer })
            }
            _ => {
                let parts = [Buffer::copy_from(&content(self.number, block, version))].into_iter().collect();
                (Some((block, Some(version))), IntentWork::Write { offset, parts, handle: 0 })
            }
        };
        self.asked.insert(token, asked);
        self.line.remote.begin(&mut vec![Intent { token: IntentToken(token), work }]);
    }

    fn take(&mut self, done: IntentDone, seed: u64) {
        let asked = self.asked.remove(&done.token.0).expect("each thing is answered once");
        let error = self.line.remote.error();
        assert_eq!(done.result, Ok(()), "seed {seed}, part {}: {error:?}", self.number);
        self.answered += 1;
        let Some((block, written)) = asked else { return };
        if let Some(version) = written {
            self.versions[block as usize] = version;
        } else if let Some(buffer) = done.buffer {
            let version = self.versions[block as usize];
            let expected =
                if version == 0 { vec![0; BLOCK_BYTES] } else { content(self.number, block, version) };
            assert!(*buffer == expected, "seed {seed}, part {}, block {block}", self.number);
        }
    }
}

/// Parts of one server at work on one target, whose connections end, each for itself, and which dies with its cache.
fn parts_at_work(seeds: std::ops::Range<u64>) {
    let (mut cuts, mut deaths) = (0, 0);
    for seed in seeds {
        let mut random = Random::of(seed);
        let server = Rc::new(RefCell::new(Server::plain()));
        server.borrow_mut().slow_one_in = [0, 2, 10][seed as usize % 3];
        // Who opened it, and left it to them.
        let mut opener = Line::new(&server, 1, seed + 1_000);
        opener.run(RemoteDrive::is_up);
        let mut parts: Vec<Part> = (1..=PARTS).map(|number| Part::new(&server, number, seed)).collect();
        let mut now = opener.now;
        for _ in 0..6_000 {
            let part = &mut parts[random.below(PARTS) as usize];
            part.ask(&mut random);
            if random.below(400) == 0 {
                part.line.close();
                cuts += 1;
            }
            if random.below(300) == 0 {
                parts.iter_mut().for_each(|part| part.line.close());
                server.borrow_mut().crash(&mut random);
                deaths += 1;
            }
            // Time is one: whoever has something to do first.
            let next = |part: &Part| CarryOut::next_event(&part.line);
            let first = parts.iter().map(next).min().unwrap_or(Time::NEVER);
            now = now.max(first.min(now + Span::from_millis(200)));
            let mut done = Vec::new();
            for part in &mut parts {
                part.line.now = part.line.now.max(now);
                CarryOut::end(&mut part.line, now, &mut done);
                done.drain(..).for_each(|done| part.take(done, seed));
            }
        }
        for part in &parts {
            assert!(part.answered > 20, "seed {seed}, part {}: {} answers", part.number, part.answered);
        }
    }
    assert!(cuts > 20 && deaths > 5, "{cuts} cuts, {deaths} deaths");
}

/// Goal: parts of a server write side by side, and nothing that was answered to one is lost with a connection or with the target's cache.
#[test]
fn parts_write_side_by_side() {
    parts_at_work(0..depth(8, 500));
}

#[test]
fn planted_bugs_of_parts_are_noticed() {
    is_noticed("remote: connections beside are preempted", || parts_at_work(0..8));
    is_noticed("remote: a flush covers what was answered while it was under way", || parts_at_work(0..8));
}

/// Goal: another server is refused as long as any part has the namespace, and who takes it over has it from all of them.
#[test]
fn all_parts_lose_it_together() {
    let server = Rc::new(RefCell::new(Server::plain()));
    let mut parts = [1, 2].map(|number| Part::new(&server, number, 1));
    parts.iter_mut().for_each(|part| part.line.run(RemoteDrive::is_up));
    let mut other = Line::new(&server, 2, 2);
    other.run(RemoteDrive::is_gone);
    assert!(matches!(other.remote.error(), Some(RemoteError::Held { .. })), "{:?}", other.remote.error());
    // The one that holds it is away.
    parts[0].line.close();
    Line::new(&server, 2, 3).run(RemoteDrive::is_gone);
    parts[0].line.run(RemoteDrive::is_up);
    let over = RemoteParameters {
        kind: ClaimKind::TakeOver,
        subsystem: name(SUBSYSTEM),
        ..other.remote.parameters().clone()
    };
    let mut over = Line::of(&server, over, 4);
    over.run(RemoteDrive::is_up);
    for part in &mut parts {
        let content = [Buffer::copy_from(&[1; BLOCK_BYTES])].into_iter().collect();
        let write = IntentWork::Write { offset: part.offset(0), parts: content, handle: 0 };
        assert!(part.line.execute(write).result.is_err());
        assert_eq!(part.line.remote.error(), Some(&RemoteError::TakenOver(1)));
    }
}
