//! Goal: what was answered is there after any death of the process and any power cut, write pointers are exact, a reset is whole, and failing
//! programs and erases close or replace blocks. Method: random commands on chunks over a space in memory that tears units, brings frees
//! back and fails programs; a model that knows of each chunk what was written in its present life, and what a cut may leave of it.

use diecut_openchannel::contract::*;
use diecut_openchannel::{ChunkDefinition, ChunkIndex, ChunkShape, ChunkStore};
use diecut_testing::Random;
use diecut_testing::fake_space::{FakeSpace, shape};
use diecut_units::{Buffer, BufferMut, ContentMode, Payload};
use std::collections::BTreeMap;

const UNITS: u16 = 4;
const CHUNKS: u32 = 3;
const UNIT_IUS: u32 = 8;
const ROWS: u32 = 8;

/// What a host knows of a chunk.
#[derive(Clone, Default)]
struct Chunk {
    /// Words that were sent, from the start of the chunk on.
    words: Vec<u64>,
    /// IUs from the first on whose writes were answered.
    answered: u32,
    /// It takes no writes before a reset.
    is_closed: bool,
    is_offline: bool,
    /// Asked for, and not answered.
    resets: bool,
    writes: u32,
    /// Reads of it that are under way.
    reads: u32,
}

impl Chunk {
    fn is_quiet(&self) -> bool {
        self.writes == 0 && !self.resets
    }

    /// IUs that can be read for certain.
    fn readable(&self, unsafe_units: u32) -> u32 {
        let is_full = self.is_closed || self.answered == ROWS * UNIT_IUS;
        self.answered.saturating_sub(if is_full { 0 } else { unsafe_units * UNIT_IUS })
    }
}

enum Request {
    /// Chunks and ends of a write.
    Write(Vec<(u32, u32)>),
    Read {
        chunk: u32,
        first: u32,
        count: u32,
        before: Chunk,
    },
    /// Chunks and blocks of a list, and what each chunk was.
    ReadList(Vec<(u32, u32, Chunk)>),
    Reset(Vec<u32>),
    /// All chunks from the first one to before the second one.
    Clear(u32, u32),
    Copy {
        from: u32,
        to: u32,
        end: u32,
    },
}

struct World {
    seed: u64,
    random: Random,
    space: FakeSpace,
    store: Option<ChunkStore>,
    mode: ContentMode,
    unsafe_units: u32,
    definition: ChunkDefinition,
    chunks: Vec<Chunk>,
    requests: BTreeMap<u64, Request>,
    next: u64,
    early_closes: u64,
    clears: u64,
}

impl World {
    fn new(seed: u64) -> World {
        let mode = if seed.is_multiple_of(4) { ContentMode::Bytes } else { ContentMode::Tags };
        let unsafe_units = (seed % 3) as u32;
        let groups = if seed.is_multiple_of(2) { 2 } else { 1 };
        let shape_of = ChunkShape {
            groups,
            units: UNITS / groups,
            chunks: CHUNKS,
            unit_ius: UNIT_IUS,
            rows: ROWS,
            unsafe_units,
        };
        World {
            seed,
            random: Random::of(seed),
            space: FakeSpace::new(shape(mode, unsafe_units), UNITS, CHUNKS + 1),
            store: None,
            mode,
            unsafe_units,
            definition: ChunkDefinition { id: 7, shape: shape_of, endurance_cycles: 1000 },
            chunks: vec![Chunk::default(); (u32::from(UNITS) * CHUNKS) as usize],
            requests: BTreeMap::new(),
            next: 1,
            early_closes: 0,
            clears: 0,
        }
    }

    fn lba(&self, chunk: u32, block: u32) -> u64 {
        self.definition.shape.lba(ChunkIndex(chunk), block)
    }

    fn view(&self, chunk: u32) -> ChunkView {
        let store = self.store.as_ref().expect("open");
        store.chunk(ChunkIndex(chunk), &self.space).expect("it exists")
    }

    fn open(&mut self) {
        self.store = Some(ChunkStore::open(Some(self.definition), &mut self.space));
        for _ in 0..100_000 {
            if self.store.as_ref().is_some_and(ChunkStore::is_ready) {
                return;
            }
            self.step();
        }
        panic!("seed {}: opening does not end", self.seed);
    }

    fn step(&mut self) {
        let mut out = Vec::new();
        let store = self.store.as_mut().expect("open");
        if let Some(completion) = self.space.step(&mut self.random) {
            store.complete(completion, &mut self.space, &mut out);
        }
        store.work(&mut self.space, &mut out);
        out.into_iter().for_each(|completion| self.completed(completion));
    }

    /// All that is under way ends.
    fn settle(&mut self) {
        for _ in 0..200_000 {
            if self.requests.is_empty() && self.space.is_idle() {
                assert!(self.store.as_ref().is_some_and(ChunkStore::is_still), "seed {}", self.seed);
                return;
            }
            self.step();
        }
        panic!("seed {}: commands are never answered", self.seed);
    }

    fn submit(&mut self, operation: ChunkOperation, request: Option<Request>) -> Option<ChunkError> {
        let token = ChunkToken(self.next);
        self.next += 1;
        let is_expected = request.is_some();
        if let Some(request) = request {
            self.requests.insert(token.0, request);
        }
        let mut out = Vec::new();
        let command = ChunkCommand { token, operation };
        self.store.as_mut().expect("open").submit(command, &mut self.space, &mut out);
        if is_expected {
            out.into_iter().for_each(|completion| self.completed(completion));
            return None;
        }
        out.pop().and_then(|completion| completion.result.err())
    }

    fn word(&mut self, chunk: u32, iu: u32) -> u64 {
        self.next += 1;
        u64::from(chunk) << 48 | u64::from(iu) << 32 | self.next
    }

    fn payload(&self, words: &[u64]) -> Payload {
        let size = self.mode.bytes_per_iu();
        let mut bytes = vec![0; words.len() * size];
        for (place, word) in bytes.chunks_exact_mut(size).zip(words) {
            place[..8].copy_from_slice(&word.to_le_bytes());
        }
        Payload::new(self.mode, Buffer::copy_from(&bytes))
    }

    fn completed(&mut self, completion: ChunkCompletion) {
        let seed = self.seed;
        assert_eq!(
            completion.result.is_err(),
            completion.failed != ListBits::default(),
            "seed {seed}: what fails has a block that failed: {completion:?}"
        );
        let request =
            self.requests.remove(&completion.token.0).expect("a request waits, and is answered once");
        match (request, completion.result) {
            (Request::Write(pieces), result) => {
                let is_undone = matches!(result, Err(ChunkError::NoRoom { .. }));
                for &(chunk, end) in &pieces {
                    self.chunks[chunk as usize].writes -= 1;
                    if result.is_ok() {
                        let of = &mut self.chunks[chunk as usize];
                        // One that goes to two chunks may be answered after one that came later.
                        of.answered = of.answered.max(end);
                    }
                }
                match result {
                    Ok(_) => {}
                    Err(
                        ChunkError::Refused(ChunkRefusal::EarlyClose | ChunkRefusal::Offline)
                        | ChunkError::NoRoom { .. },
                    ) => {
                        pieces.iter().for_each(|(chunk, _)| self.ended_early(*chunk));
                    }
                    Err(error) => panic!("seed {seed}: a write gives {error}"),
                }
                pieces.iter().for_each(|(chunk, _)| self.reconcile(*chunk, is_undone));
            }
            (Request::Copy { from, to, end }, result) => {
                let is_undone = matches!(result, Err(ChunkError::NoRoom { .. }));
                self.chunks[from as usize].reads -= 1;
                self.chunks[to as usize].writes -= 1;
                match result {
                    Ok(_) => self.chunks[to as usize].answered = end,
                    Err(
                        ChunkError::Refused(ChunkRefusal::EarlyClose | ChunkRefusal::Offline)
                        | ChunkError::NoRoom { .. },
                    ) => {
                        self.ended_early(to);
                    }
                    Err(error) => panic!("seed {seed}: a copy gives {error}"),
                }
                self.reconcile(to, is_undone);
            }
            (Request::Read { chunk, first, count, before }, result) => {
                self.chunks[chunk as usize].reads -= 1;
                let end = first + count;
                match result {
                    Ok(ChunkAnswer::Content(content)) => {
                        assert!(
                            end <= before.words.len() as u32,
                            "seed {seed}: what was never written is read"
                        );
                        let can = before.readable(self.unsafe_units);
                        assert!(
                            end <= can || !before.is_quiet(),
                            "seed {seed}: what a cut can destroy is read"
                        );
                        let content = content.chunks_exact(self.mode.bytes_per_iu());
                        for (word, content) in before.words[first as usize..].iter().zip(content) {
                            assert_eq!(content[..8], word.to_le_bytes(), "seed {seed}: chunk {chunk}");
                        }
                    }
                    Err(ChunkError::Refused(ChunkRefusal::Unwritten)) => {
                        let can = before.readable(self.unsafe_units);
                        assert!(
                            end > can || !before.is_quiet(),
                            "seed {seed}: chunk {chunk} to {end}, {can} can be read"
                        );
                    }
                    other => panic!("seed {seed}: a read gives {other:?}"),
                }
            }
            (Request::ReadList(blocks), result) => {
                let content = match (result, completion.partial) {
                    (Ok(ChunkAnswer::Content(content)), None) => Some(content),
                    (Err(ChunkError::Refused(ChunkRefusal::Unwritten)), partial) => partial,
                    other => panic!("seed {seed}: a read of a list gives {other:?}"),
                };
                let failed = completion.failed;
                assert_eq!(content.is_none(), failed == ListBits::all(blocks.len() as u32), "seed {seed}");
                for (place, (chunk, iu, before)) in (0..).zip(blocks) {
                    self.chunks[chunk as usize].reads -= 1;
                    let can = before.readable(self.unsafe_units);
                    let size = self.mode.bytes_per_iu();
                    let block = content.as_ref().map(|content| &content[place as usize * size..][..size]);
                    let at = format!("seed {seed}: chunk {chunk} block {iu}, {can} can be read");
                    if failed.has(place) {
                        assert!(iu >= can || !before.is_quiet(), "{at}");
                        assert!(block.is_none_or(|block| block.iter().all(|byte| *byte == 0)), "{at}");
                    } else {
                        assert!(iu < can || !before.is_quiet(), "{at}: what a cut can destroy is read");
                        let word = before.words.get(iu as usize).expect("what was never written is not read");
                        assert_eq!(block.expect("some were read")[..8], word.to_le_bytes(), "{at}");
                    }
                }
            }
            (Request::Reset(chunks), result) => {
                assert!(result.is_ok(), "seed {seed}: {result:?}");
                for chunk in chunks {
                    assert!(self.chunks[chunk as usize].resets);
                    let reads = self.chunks[chunk as usize].reads;
                    self.chunks[chunk as usize] = Chunk { reads, ..Chunk::default() };
                    assert_eq!(self.view(chunk).state, ChunkState::Free, "seed {seed}");
                }
            }
            (Request::Clear(first, end), result) => {
                assert!(result.is_ok(), "seed {seed}: {result:?}");
                for chunk in first..end {
                    let (of, view) = (self.chunks[chunk as usize].clone(), self.view(chunk));
                    assert_eq!((of.resets, of.writes, view.written), (true, 0, 0), "seed {seed}: {view:?}");
                    let state = if of.is_offline { ChunkState::Offline } else { ChunkState::Free };
                    assert_eq!(view.state, state, "seed {seed}: chunk {chunk}");
                    self.chunks[chunk as usize] =
                        Chunk { reads: of.reads, is_offline: of.is_offline, ..Chunk::default() };
                }
                self.clears += 1;
            }
        }
    }

    /// A write to a chunk said that it is closed, or offline; of a command to several chunks it may be another one.
    fn ended_early(&mut self, chunk: u32) {
        match self.view(chunk).state {
            ChunkState::Closed => self.chunks[chunk as usize].is_closed = true,
            ChunkState::Offline => self.chunks[chunk as usize].is_offline = true,
            _ => {}
        }
        self.early_closes += 1;
    }

    /// With nothing under way a chunk is written as far as it says.
    fn reconcile(&mut self, chunk: u32, is_undone: bool) {
        let (seed, view) = (self.seed, self.view(chunk));
        let of = &mut self.chunks[chunk as usize];
        // What is being cleared is judged when that is over.
        if of.writes > 0 || of.resets {
            return;
        }
        let sent = of.words.len() as u32;
        assert!((of.answered..=sent).contains(&view.written), "seed {seed}: chunk {chunk} is {view:?}");
        if view.state == ChunkState::Open && !is_undone {
            assert_eq!(view.written, sent, "seed {seed}: chunk {chunk} is open with what was sent");
        }
        of.words.truncate(view.written as usize);
        of.answered = view.written;
        of.is_closed = view.state == ChunkState::Closed;
    }

    fn ask(&mut self) {
        let chunk = self.random.below(self.chunks.len() as u64) as u32;
        let of = self.chunks[chunk as usize].clone();
        let capacity = ROWS * UNIT_IUS;
        match self.random.below(100) {
            0..55 => self.write(chunk),
            55..63 => self.read_list(),
            63..75 => {
                let first = self.random.below(u64::from(capacity)) as u32;
                let count = 1 + self.random.below(u64::from(capacity - first).min(20)) as u32;
                let destination = BufferMut::copy_from(&vec![0; count as usize * self.mode.bytes_per_iu()]);
                let lbas = LbaList::run(self.lba(chunk, first), count);
                self.chunks[chunk as usize].reads += 1;
                let request = Request::Read { chunk, first, count, before: of };
                self.submit(ChunkOperation::Read { lbas, destination }, Some(request));
            }
            75..83 => self.reset(chunk),
            83..88 => self.copy(chunk),
            88..95 => self.ask_wrongly(chunk),
            95 => self.clear(chunk),
            96 => self.space.fail_next_append = self.random.below(2) == 0,
            _ => {}
        }
    }

    /// Reads blocks that lie anywhere, some of them beyond what is written.
    fn read_list(&mut self) {
        let (mut lbas, mut blocks) = (LbaList::default(), Vec::new());
        for _ in 0..1 + self.random.below(64) {
            let chunk = self.random.below(self.chunks.len() as u64) as u32;
            let written = self.chunks[chunk as usize].words.len() as u64;
            let iu = self.random.below((written + 1).min(u64::from(ROWS * UNIT_IUS))) as u32;
            // Some follow each other, and some go on in another chunk.
            for block in (iu..ROWS * UNIT_IUS).take(1 + self.random.below(2) as usize) {
                if blocks.len() < 64 {
                    lbas.push(self.lba(chunk, block));
                    let before = self.chunks[chunk as usize].clone();
                    self.chunks[chunk as usize].reads += 1;
                    blocks.push((chunk, block, before));
                }
            }
        }
        let destination = BufferMut::copy_from(&vec![0xee; blocks.len() * self.mode.bytes_per_iu()]);
        self.submit(ChunkOperation::Read { lbas, destination }, Some(Request::ReadList(blocks)));
    }

    /// Writes to a chunk, and sometimes to another one with the same command.
    fn write(&mut self, chunk: u32) {
        let mut lbas = LbaList::default();
        let (mut pieces, mut words) = (Vec::new(), Vec::new());
        let other = (chunk + 1 + self.random.below(3) as u32) % self.chunks.len() as u32;
        for chunk in [chunk, other] {
            let of = &self.chunks[chunk as usize];
            let first = of.words.len() as u32;
            let rows = (1 + self.random.below(3) as u32).min(ROWS - first / UNIT_IUS);
            // What failed without a block is told with the rest of its command.
            let is_undone = self.view(chunk).state == ChunkState::Free && !of.words.is_empty();
            if is_undone || (!pieces.is_empty() && of.writes > 0) {
                continue;
            }
            let is_taken = matches!(self.view(chunk).state, ChunkState::Closed | ChunkState::Offline)
                || of.is_closed
                || of.is_offline;
            if rows == 0 || of.resets || of.writes > 2 || is_taken {
                continue;
            }
            for iu in first..first + rows * UNIT_IUS {
                lbas.push(self.lba(chunk, iu));
                let word = self.word(chunk, iu);
                words.push(word);
                self.chunks[chunk as usize].words.push(word);
            }
            self.chunks[chunk as usize].writes += 1;
            pieces.push((chunk, first + rows * UNIT_IUS));
            if self.random.below(3) > 0 || self.chunks[chunk as usize].writes > 1 {
                break;
            }
        }
        if !pieces.is_empty() {
            let data = self.payload(&words);
            self.submit(ChunkOperation::Write { lbas, data }, Some(Request::Write(pieces)));
        }
    }

    fn reset(&mut self, chunk: u32) {
        let mut chunks = vec![chunk];
        if self.random.below(3) == 0 {
            chunks.push((chunk + 1) % self.chunks.len() as u32);
        }
        let can = |of: &Chunk| of.is_quiet() && !of.is_offline;
        if chunks.iter().all(|chunk| can(&self.chunks[*chunk as usize])) {
            let mut lbas = LbaList::default();
            for chunk in &chunks {
                self.chunks[*chunk as usize].resets = true;
                lbas.push(self.lba(*chunk, 0));
            }
            self.submit(ChunkOperation::Reset { lbas }, Some(Request::Reset(chunks)));
        }
    }

    /// Clears chunks, some of which are being written.
    fn clear(&mut self, first: u32) {
        let end = first + 1 + self.random.below(self.chunks.len() as u64) as u32;
        let end = end.min(self.chunks.len() as u32);
        let is_within = |chunk: &u32| (first..end).contains(chunk);
        // A command to several chunks ends with the last of them, and the model does not know what of it is cleared by then.
        let reaches_out = |request: &Request| {
            let Request::Write(pieces) = request else { return false };
            let within = pieces.iter().filter(|(chunk, _)| is_within(chunk)).count();
            within > 0 && within < pieces.len()
        };
        let are_cleared = (first..end).any(|chunk| self.chunks[chunk as usize].resets);
        if are_cleared || self.requests.values().any(reaches_out) {
            return;
        }
        (first..end).for_each(|chunk| self.chunks[chunk as usize].resets = true);
        let operation = ChunkOperation::Clear { first, count: end - first };
        self.submit(operation, Some(Request::Clear(first, end)));
    }

    fn copy(&mut self, from: u32) {
        let to = (from + 1 + self.random.below(5) as u32) % self.chunks.len() as u32;
        let (source, target) = (self.chunks[from as usize].clone(), self.chunks[to as usize].clone());
        let can = source.is_quiet() && source.readable(self.unsafe_units) >= UNIT_IUS;
        let first = target.words.len() as u32;
        let is_open = target.is_quiet() && !target.is_closed && !target.is_offline;
        if !can || !is_open || first == ROWS * UNIT_IUS || from == to {
            return;
        }
        let at = self.random.below(u64::from(source.readable(self.unsafe_units) - UNIT_IUS + 1)) as u32;
        let words = source.words[at as usize..(at + UNIT_IUS) as usize].to_vec();
        self.chunks[to as usize].words.extend(words);
        self.chunks[to as usize].writes += 1;
        let operation = ChunkOperation::Copy {
            from: LbaList::run(self.lba(from, at), UNIT_IUS),
            to: LbaList::run(self.lba(to, first), UNIT_IUS),
        };
        self.chunks[from as usize].reads += 1;
        self.submit(operation, Some(Request::Copy { from, to, end: first + UNIT_IUS }));
        // Nobody writes to it meanwhile, and nobody resets what is read.
        while self.chunks[to as usize].writes > 0 {
            self.step();
        }
    }

    /// Asks for what is refused, which changes nothing.
    fn ask_wrongly(&mut self, chunk: u32) {
        let (of, seed) = (self.chunks[chunk as usize].clone(), self.seed);
        let before = self.view(chunk);
        let written = of.words.len() as u32;
        let mut lbas = LbaList::run(self.lba(chunk, 0), UNIT_IUS);
        let (count, expected) = match self.random.below(4) {
            0 if written > 0 && of.is_quiet() => (UNIT_IUS, ChunkRefusal::OutOfOrder),
            1 if written < (ROWS - 2) * UNIT_IUS && of.is_quiet() => {
                lbas = LbaList::run(self.lba(chunk, written + UNIT_IUS), UNIT_IUS);
                (UNIT_IUS, ChunkRefusal::OutOfOrder)
            }
            2 if written < (ROWS - 1) * UNIT_IUS => {
                lbas = LbaList::run(self.lba(chunk, written), UNIT_IUS - 1);
                (UNIT_IUS - 1, ChunkRefusal::ListLength)
            }
            3 => {
                lbas = LbaList::run(self.definition.shape.size_lbas(), UNIT_IUS);
                (UNIT_IUS, ChunkRefusal::NoSuchBlock)
            }
            _ => {
                let operation = ChunkOperation::Reset { lbas };
                // A command that goes to two chunks may have ended on this one.
                if before.state == ChunkState::Open && before.written < written {
                    let error = self.submit(operation, None);
                    assert_eq!(error, Some(ChunkError::Refused(ChunkRefusal::InvalidReset)), "seed {seed}");
                }
                return;
            }
        };
        let data = self.payload(&vec![0; count as usize]);
        let error = self.submit(ChunkOperation::Write { lbas, data }, None);
        let expected = if of.is_offline && expected == ChunkRefusal::OutOfOrder {
            ChunkRefusal::Offline
        } else {
            expected
        };
        assert_eq!(error, Some(ChunkError::Refused(expected)), "seed {seed}");
        assert_eq!(self.view(chunk), before, "seed {seed}: what is refused changes nothing");
    }

    /// The process dies, or the power goes; then what is there is compared with what may be.
    fn restart(&mut self) {
        self.store = None;
        self.requests.clear();
        let is_cut = self.random.below(2) == 0;
        if is_cut {
            self.space.power_cut(&mut self.random);
        } else {
            self.space.process_death(&mut self.random);
        }
        self.open();
        let (seed, capacity) = (self.seed, ROWS * UNIT_IUS);
        for number in 0..self.chunks.len() as u32 {
            let view = self.view(number);
            let of = &mut self.chunks[number as usize];
            let what = format!("seed {seed}: chunk {number} is {view:?}");
            assert!(view.state != ChunkState::Open, "{what}");
            assert_eq!(view.state == ChunkState::Free, view.written == 0, "{what}");
            if of.resets && view.state == ChunkState::Free {
                *of = Chunk::default();
                continue;
            }
            let is_safe =
                !is_cut || of.is_closed || of.answered == capacity || of.words.len() as u32 == of.answered;
            let at_risk = if is_safe { 0 } else { self.unsafe_units * UNIT_IUS };
            let (least, most) = (of.answered.saturating_sub(at_risk), of.words.len() as u32);
            assert!((least..=most).contains(&view.written), "{what}: {least} to {most}");
            of.words.truncate(view.written as usize);
            *of = Chunk {
                words: std::mem::take(&mut of.words),
                answered: view.written,
                is_closed: view.state == ChunkState::Closed,
                ..Chunk::default()
            };
        }
    }

    /// Reads all that can be read.
    fn read_all(&mut self) {
        for chunk in 0..self.chunks.len() as u32 {
            let before = self.chunks[chunk as usize].clone();
            let count = before.readable(self.unsafe_units);
            if count > 0 && before.is_quiet() {
                let destination = BufferMut::copy_from(&vec![0; count as usize * self.mode.bytes_per_iu()]);
                let lbas = LbaList::run(self.lba(chunk, 0), count);
                self.chunks[chunk as usize].reads += 1;
                let request = Request::Read { chunk, first: 0, count, before };
                self.submit(ChunkOperation::Read { lbas, destination }, Some(request));
            }
        }
        self.settle();
    }

    fn run(&mut self, rounds: u32) {
        self.open();
        for _ in 0..rounds {
            for _ in 0..self.random.below(400) {
                self.ask();
                for _ in 0..self.random.below(4) {
                    self.step();
                }
            }
            if self.random.below(4) == 0 {
                self.settle();
                self.read_all();
            }
            self.restart();
            if self.random.below(2) == 0 {
                self.read_all();
            }
        }
    }
}

/// Chunks that were closed early, and commands that cleared some.
fn run(seed: u64) -> [u64; 2] {
    let mut world = World::new(seed);
    world.run(8);
    [world.early_closes, world.clears]
}

fn run_all(seeds: std::ops::Range<u64>) {
    seeds.for_each(|seed| {
        run(seed);
    });
}

#[test]
fn what_was_answered_is_there() {
    let seeds = std::env::var("DIECUT_OPENCHANNEL_SEEDS").ok().and_then(|seeds| seeds.parse().ok());
    let seen = (0..seeds.unwrap_or(150)).map(run).fold([0; 2], |all, one| [all[0] + one[0], all[1] + one[1]]);
    assert!(seen.iter().all(|count| *count > 0), "programs fail, and chunks are cleared: {seen:?}");
}

/// Goal: the model sees what it is there for. Method: one bug at a time, over seeds until it is seen.
#[test]
fn planted_bugs_are_noticed() {
    diecut_testing::planted::all_are_noticed(&[
        ("openchannel: a reset is answered before it is durable", || run_all(0..40)),
        ("openchannel: a chunk stays open after a failed program", || run_all(0..40)),
        ("openchannel: what is at risk can be read", || run_all(0..40)),
        ("openchannel: a torn row counts", || run_all(0..40)),
        ("openchannel: what failed has no bit", || run_all(0..40)),
        ("openchannel: what is written is not cleared", || run_all(0..40)),
    ]);
}

/// Two chunks of one unit are full, and a row of each lies in the other's place.
fn read_what_went_astray() {
    let mut world = World::new(4);
    world.open();
    for chunk in 0..2 {
        let words: Vec<u64> = (0..ROWS * UNIT_IUS).map(|iu| world.word(chunk, iu)).collect();
        let (lbas, data) = (LbaList::run(world.lba(chunk, 0), ROWS * UNIT_IUS), world.payload(&words));
        world.chunks[chunk as usize].words = words;
        world.chunks[chunk as usize].writes = 1;
        world.submit(
            ChunkOperation::Write { lbas, data },
            Some(Request::Write(vec![(chunk, ROWS * UNIT_IUS)])),
        );
    }
    world.settle();
    let units = world.space.written_units();
    assert_eq!(units.len() as u32, 2 * ROWS);
    world.space.swap(units[2], units[2 + ROWS as usize]);
    let destination = BufferMut::copy_from(&vec![0; 3 * UNIT_IUS as usize * world.mode.bytes_per_iu()]);
    let lbas = LbaList::run(world.lba(1, UNIT_IUS), 3 * UNIT_IUS);
    let mut out = Vec::new();
    let command =
        ChunkCommand { token: ChunkToken(0), operation: ChunkOperation::Read { lbas, destination } };
    let store = world.store.as_mut().expect("open");
    store.submit(command, &mut world.space, &mut out);
    while let Some(completion) = world.space.step(&mut world.random) {
        store.complete(completion, &mut world.space, &mut out);
    }
    let lost = world.definition.shape.lba(ChunkIndex(1), 2 * UNIT_IUS);
    let answer = out.pop().expect("it is answered");
    assert_eq!(answer.result.map(|_| ()), Err(ChunkError::Unrecovered { lba: lost }));
    let mut failed = ListBits::default();
    failed.add(UNIT_IUS, UNIT_IUS);
    assert_eq!(answer.failed, failed, "those of the row that went astray");
    let row = UNIT_IUS as usize * world.mode.bytes_per_iu();
    let content = answer.partial.expect("others could be read");
    let blank: Vec<bool> = content.chunks_exact(row).map(|row| row.iter().all(|byte| *byte == 0)).collect();
    assert_eq!(blank, [false, true, false]);
}

/// Goal: a program that failed in an empty chunk is answered even if the die goes before the chunk has another block. Method: two writes, the
/// first one fails, and the second one finds the die gone.
#[test]
fn a_write_is_answered_although_the_die_goes() {
    let mut world = World::new(5);
    world.open();
    let mut out = Vec::new();
    for row in 0..2 {
        let first = world.definition.shape.lba(ChunkIndex(1), row * UNIT_IUS);
        let data = world.payload(&[9; UNIT_IUS as usize]);
        let operation = ChunkOperation::Write { lbas: LbaList::run(first, UNIT_IUS), data };
        let command = ChunkCommand { token: ChunkToken(row.into()), operation };
        world.store.as_mut().expect("open").submit(command, &mut world.space, &mut out);
    }
    world.space.fail_next_append = true;
    let mut programs = 0;
    while let Some(mut completion) = world.space.step(&mut world.random) {
        if completion.result.is_err() {
            programs += 1;
            if programs == 2 {
                completion.result = Err(diecut_vssd::SpaceError::UnitOffline { unit: 0 });
            }
        }
        world.store.as_mut().expect("open").complete(completion, &mut world.space, &mut out);
    }
    let mut tokens: Vec<u64> = out.iter().map(|answer| answer.token.0).collect();
    tokens.sort_unstable();
    assert_eq!((programs, tokens), (2, vec![0, 1]), "each write is answered");
    let offline = ChunkError::Refused(ChunkRefusal::Offline);
    assert!(out.iter().all(|answer| answer.result.as_ref().err() == Some(&offline)), "{out:?}");
}

/// Goal: a block that cannot be read keeps the others of its list from nothing. Method: a row that is unreadable, among blocks of two chunks.
#[test]
fn a_list_with_a_lost_block_brings_the_others() {
    let mut world = World::new(4);
    world.open();
    for chunk in [0, CHUNKS] {
        let words: Vec<u64> = (0..ROWS * UNIT_IUS).map(|iu| world.word(chunk, iu)).collect();
        let (lbas, data) = (LbaList::run(world.lba(chunk, 0), ROWS * UNIT_IUS), world.payload(&words));
        world.chunks[chunk as usize].words = words;
        world.chunks[chunk as usize].writes = 1;
        let request = Request::Write(vec![(chunk, ROWS * UNIT_IUS)]);
        world.submit(ChunkOperation::Write { lbas, data }, Some(request));
    }
    world.settle();
    let lost = world.space.written_units()[3];
    world.space.unreadable.push(lost);
    let mut lbas = LbaList::default();
    let blocks = [(0, 3 * UNIT_IUS), (CHUNKS, 0), (0, 0), (0, 3 * UNIT_IUS + 1)];
    blocks.iter().for_each(|(chunk, block)| lbas.push(world.lba(*chunk, *block)));
    let size = world.mode.bytes_per_iu();
    let destination = BufferMut::copy_from(&vec![0xee; blocks.len() * size]);
    let operation = ChunkOperation::Read { lbas, destination };
    let mut out = Vec::new();
    let store = world.store.as_mut().expect("open");
    store.submit(ChunkCommand { token: ChunkToken(0), operation }, &mut world.space, &mut out);
    while let Some(completion) = world.space.step(&mut world.random) {
        store.complete(completion, &mut world.space, &mut out);
    }
    let answer = out.pop().expect("it is answered");
    assert_eq!(answer.failed, ListBits(0b1001));
    let first_lost = world.lba(0, 3 * UNIT_IUS);
    assert_eq!(answer.result.map(|_| ()), Err(ChunkError::Unrecovered { lba: first_lost }));
    let content = answer.partial.expect("two of four could be read");
    for ((chunk, block), content) in blocks.into_iter().zip(content.chunks_exact(size)).skip(1).take(2) {
        assert_eq!(content[..8], world.chunks[chunk as usize].words[block as usize].to_le_bytes());
    }
    assert!(content[..size].iter().chain(&content[3 * size..]).all(|byte| *byte == 0));
}

/// Goal: content of another chunk is never taken for that of one. Method: two rows in each other's place; the first block of the second is named.
#[test]
fn what_went_astray_is_not_read() {
    read_what_went_astray();
    diecut_testing::planted::is_noticed(
        "openchannel: identity of a page not compared",
        read_what_went_astray,
    );
}

/// What a read of blocks of chunk 0 is answered.
fn read_blocks(world: &mut World, first: u32, count: u32) -> ChunkCompletion {
    let destination = BufferMut::copy_from(&vec![0; count as usize * world.mode.bytes_per_iu()]);
    let operation = ChunkOperation::Read { lbas: LbaList::run(world.lba(0, first), count), destination };
    let mut out = Vec::new();
    let store = world.store.as_mut().expect("open");
    store.submit(ChunkCommand { token: ChunkToken(0), operation }, &mut world.space, &mut out);
    while let Some(completion) = world.space.step(&mut world.random) {
        store.complete(completion, &mut world.space, &mut out);
    }
    out.pop().expect("it is answered")
}

fn chunks_tell_how_hard_they_are_to_read() {
    let mut world = World::new(4);
    world.open();
    let fill = |world: &mut World| {
        let words: Vec<u64> = (0..ROWS * UNIT_IUS).map(|iu| world.word(0, iu)).collect();
        let (lbas, data) = (LbaList::run(world.lba(0, 0), ROWS * UNIT_IUS), world.payload(&words));
        (world.chunks[0].words, world.chunks[0].writes) = (words, 1);
        world.submit(ChunkOperation::Write { lbas, data }, Some(Request::Write(vec![(0, ROWS * UNIT_IUS)])));
        world.settle();
    };
    fill(&mut world);
    let units = world.space.written_units();
    // Rows 1 to 4 need 1, 2, 3 and 9 tries more, and row 5 is lost.
    world.space.retries = [1, 2, 3, 9].into_iter().zip(1..).map(|(tries, row)| (units[row], tries)).collect();
    world.space.unreadable.push(units[5]);
    let start = world.lba(0, 0);
    let rate = |error_rate| ChunkNotice { lba: start, count: 0, error_rate };
    let row = |row: u32| row * UNIT_IUS;
    let told = |world: &mut World, first: u32, count: u32| {
        let answer = read_blocks(world, first, count);
        (answer.failed.0, answer.strained.0, world.store.as_mut().expect("open").take_notices())
    };
    assert_eq!(told(&mut world, row(0), UNIT_IUS), (0, 0, vec![]));
    assert_eq!(told(&mut world, row(1), 2), (0, 0, vec![rate(ErrorRate::Low)]));
    assert_eq!(told(&mut world, row(1), 2), (0, 0, vec![]), "once for each rate");
    assert_eq!(told(&mut world, row(2), 1), (0, 0, vec![rate(ErrorRate::Medium)]));
    // Blocks of three rows, the last of which is hard to read.
    let all = told(&mut world, row(2) - 1, 1 + UNIT_IUS + 2);
    assert_eq!(all, (0, 0b11 << (1 + UNIT_IUS), vec![rate(ErrorRate::High)]));
    assert_eq!(told(&mut world, row(4), 1), (0, 1, vec![]), "hard to read as before");
    let lost =
        ChunkNotice { lba: start + u64::from(row(5)) + 2, count: 3, error_rate: ErrorRate::Unrecoverable };
    assert_eq!(told(&mut world, row(5) + 2, 3), (7, 0, vec![lost]));
    assert_eq!(told(&mut world, row(1), 1), (0, 0, vec![]), "nothing is worse than that");
    // A chunk that was reset has another life.
    world.chunks[0].resets = true;
    let lbas = LbaList::run(start, 1);
    world.submit(ChunkOperation::Reset { lbas }, Some(Request::Reset(vec![0])));
    world.settle();
    world.space.retries.clear();
    world.space.unreadable.clear();
    fill(&mut world);
    world.space.retries = vec![(world.space.written_units()[0], 1)];
    assert_eq!(told(&mut world, 0, 1), (0, 0, vec![rate(ErrorRate::Low)]));
}

/// Goal: the error rate of a chunk is told when it rises, and blocks that are hard to read are known. Method: rows that need retries, or are
/// lost, on a space in memory; notices by hand, also those of the chunk's next life.
#[test]
fn chunks_that_are_hard_to_read_are_told_of_once() {
    chunks_tell_how_hard_they_are_to_read();
    diecut_testing::planted::is_noticed(
        "openchannel: a chunk is told of with each read",
        chunks_tell_how_hard_they_are_to_read,
    );
}

/// Goal: the blocks of a namespace that is deleted are given back, durably. Method: its successor on the same vSSD begins with none of them,
/// also after a cut.
#[test]
fn chunks_that_are_deleted_are_gone() {
    let mut world = World::new(1);
    world.open();
    (0..200).for_each(|_| world.ask());
    world.settle();
    let held = world.space.unit_sum();
    assert!(held > 0);
    let store = world.store.as_mut().expect("open");
    store.delete(ChunkToken(0));
    let (mut out, mut random) = (Vec::new(), Random::of(3));
    store.work(&mut world.space, &mut out);
    while let Some(completion) = world.space.step(&mut random) {
        world.store.as_mut().expect("open").complete(completion, &mut world.space, &mut out);
    }
    assert!(matches!(out.as_slice(), [ChunkCompletion { token: ChunkToken(0), result: Ok(_), .. }]));
    world.space.power_cut(&mut random);
    assert_eq!(world.space.unit_sum(), 0);
    world.definition.id += 1;
    world.open();
    assert_eq!(world.store.as_ref().expect("open").used_ius(), 0);
}

/// Goal: a namespace never shows chunks of another one. Method: a store is opened with another number: all blocks go back.
#[test]
fn chunks_of_another_namespace_are_given_back() {
    let mut world = World::new(5);
    world.open();
    (0..200).for_each(|_| world.ask());
    world.settle();
    world.store = None;
    world.definition.id += 1;
    world.open();
    let all = 0..world.definition.shape.all_chunks();
    assert!(all.into_iter().all(|chunk| world.view(chunk).state == ChunkState::Free));
    assert_eq!(world.space.unit_sum(), 0);
}
