//! A host of chunks. It knows what it wrote, and judges each answer by that.

use diecut_namespace::contract::*;
use diecut_units::{Buffer, BufferMut, TAG_SIZE_BYTES};
use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::{BTreeMap, BTreeSet};

/// What a host knows of a chunk.
#[derive(Clone, Debug, Default)]
struct Chunk {
    /// Words that were written, from the start of the chunk on.
    words: Vec<u64>,
    /// IUs from the first on whose writes were answered.
    answered: u32,
    /// It takes no writes before a reset.
    is_closed: bool,
    is_offline: bool,
    /// Asked for, and not answered.
    resets: bool,
    /// A write ended with the chunk closed.
    was_closed: bool,
    /// A write was refused as one behind another that failed; a write failed.
    is_refused: bool,
    has_failed: bool,
    /// Something failed, and the host does not know how far it is written.
    is_doubtful: bool,
    under_way: u32,
}

enum Request {
    Write {
        chunk: u32,
        first: u32,
        end: u32,
    },
    Copy {
        from: u32,
        to: u32,
        end: u32,
    },
    Read {
        chunk: u32,
        first: u32,
        count: u32,
        before: Chunk,
    },
    /// Chunks and blocks, and what each chunk was.
    ReadList(Vec<(u32, u32, Chunk)>),
    Reset {
        chunk: u32,
    },
    Look,
}

impl Request {
    /// Whether it reads all of these.
    fn reads(&self, blocks: ListBits) -> bool {
        let count = match self {
            Request::Read { count, .. } => *count,
            Request::ReadList(list) => list.len() as u32,
            _ => 0,
        };
        blocks.0 & !ListBits::all(count).0 == 0
    }
}

/// See the module.
pub struct ChunkHost {
    pub namespace: NamespaceId,
    pub commands: u64,
    pub resets: u64,
    pub early_closes: u64,
    /// Writes that failed behind a part that was written.
    pub partly_written: u64,
    /// Blocks of lists that were read, and that were not.
    pub listed: [u64; 2],
    /// Blocks that were hard to read.
    pub strained: u64,
    /// Reads of the device need retries.
    is_worn: bool,
    shape: ChunkShape,
    chunks: Vec<Chunk>,
    requests: BTreeMap<u64, Request>,
    next: u64,
    /// The last crash was a power cut.
    was_cut: bool,
    /// It looks how chunks are.
    looks: bool,
    /// Chunks that were reset since this was asked last.
    pub ended: Vec<u32>,
    /// All chunks were erased: what it looks at next is free or offline.
    was_erased: bool,
    /// Every word that it ever wrote.
    words: BTreeSet<u64>,
}

/// In front of each word, so that it is told from others on the medium.
const MARK: u64 = 0x5a << 56;

impl ChunkHost {
    pub fn new(namespace: NamespaceId, shape: ChunkShape, is_worn: bool) -> ChunkHost {
        ChunkHost {
            namespace,
            commands: 0,
            resets: 0,
            early_closes: 0,
            partly_written: 0,
            listed: [0; 2],
            strained: 0,
            is_worn,
            shape,
            chunks: vec![Chunk::default(); shape.all_chunks() as usize],
            requests: BTreeMap::new(),
            next: 0,
            was_cut: false,
            looks: false,
            ended: Vec::new(),
            was_erased: false,
            words: BTreeSet::new(),
        }
    }

    pub fn is_quiet(&self) -> bool {
        self.requests.is_empty()
    }

    fn token(&mut self, request: Request) -> u64 {
        self.next += 1;
        self.requests.insert(self.next, request);
        self.next
    }

    /// Computed by hand: group, parallel unit, chunk and block, from the highest bit on.
    fn lba(&self, chunk: u32, block: u32) -> u64 {
        let log2 = |values: u32| values.next_power_of_two().trailing_zeros();
        let ChunkShape { units, chunks, unit_ius, rows, .. } = self.shape;
        let (unit, number) = (chunk / chunks, chunk % chunks);
        let (group, unit) = (unit / u32::from(units), unit % u32::from(units));
        let parts =
            [(0, group), (log2(units.into()), unit), (log2(chunks), number), (log2(unit_ius * rows), block)];
        parts.into_iter().fold(0, |lba, (bits, part)| lba << bits | u64::from(part))
    }

    fn capacity(&self) -> u32 {
        self.shape.unit_ius * self.shape.rows
    }

    /// IUs of a chunk that can be read for certain.
    fn readable(&self, chunk: &Chunk) -> u32 {
        let is_whole = chunk.is_closed || chunk.answered == self.capacity();
        let cached = if is_whole { 0 } else { self.shape.unsafe_units * self.shape.unit_ius };
        if chunk.is_offline || chunk.is_doubtful || chunk.resets {
            0
        } else {
            chunk.answered.saturating_sub(cached)
        }
    }

    /// The next command, if it asks for something now.
    pub fn ask(&mut self, random: &mut Xoshiro256PlusPlus) -> Option<(u64, NamespaceOperation)> {
        if self.looks {
            return None;
        }
        let chunk = random.random_range(0..self.chunks.len() as u32);
        let of = self.chunks[chunk as usize].clone();
        let (written, capacity, unit) = (of.words.len() as u32, self.capacity(), self.shape.unit_ius);
        let is_to_be_looked_at = |of: &Chunk| of.is_doubtful && of.under_way == 0;
        if self.chunks.iter().any(is_to_be_looked_at) {
            if self.is_quiet() {
                self.looks = true;
                return Some(self.look());
            }
            // Lists of blocks keep many chunks busy, so it waits now and then.
            if random.random_ratio(3, 4) {
                return None;
            }
        }
        let takes_writes =
            !of.resets && !of.is_closed && !of.is_offline && !of.is_doubtful && written < capacity;
        match random.random_range(0..100) {
            0..60 if takes_writes => {
                let rows = random.random_range(1..=((capacity - written) / unit).min(3));
                let words: Vec<u64> = (written..written + rows * unit)
                    .map(|iu| {
                        self.next += 1;
                        MARK | u64::from(chunk) << 48 | u64::from(iu) << 28 | (self.next & 0xfff_ffff)
                    })
                    .collect();
                let data =
                    Buffer::copy_from(&words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>());
                self.words.extend(&words);
                let place = &mut self.chunks[chunk as usize];
                place.words.extend(&words);
                place.under_way += 1;
                let end = written + rows * unit;
                let (lba, lba_count) = (self.lba(chunk, written), rows * unit);
                let token = self.token(Request::Write { chunk, first: written, end });
                let operation = if random.random_ratio(1, 2) {
                    let range = LbaRange { first_lba: lba, lba_count };
                    NamespaceOperation::Write {
                        range,
                        data,
                        force_unit_access: false,
                        placement: PlacementTarget::default(),
                    }
                } else {
                    let lbas = LbaList::run(lba, lba_count);
                    NamespaceOperation::Chunk(ChunkRequest::Write { lbas, data })
                };
                Some((token, operation))
            }
            60..64 => Some(self.read_list(random)),
            64..82 => {
                let first = random.random_range(0..capacity);
                let count = random.random_range(1..=(capacity - first).min(70));
                Some(self.read(chunk, first, count))
            }
            82..92 if of.under_way == 0 && !of.is_offline && !of.is_doubtful => {
                let place = &mut self.chunks[chunk as usize];
                (place.resets, place.under_way) = (true, 1);
                self.ended.push(chunk);
                let lbas = LbaList::run(self.lba(chunk, 0), 1);
                let token = self.token(Request::Reset { chunk });
                Some((token, NamespaceOperation::Chunk(ChunkRequest::Reset { lbas })))
            }
            92.. if takes_writes && of.under_way == 0 => {
                let from = random.random_range(0..self.chunks.len() as u32);
                let source = self.chunks[from as usize].clone();
                if from == chunk || source.under_way > 0 || self.readable(&source) < unit {
                    return None;
                }
                let at = random.random_range(0..=self.readable(&source) - unit);
                let words = source.words[at as usize..(at + unit) as usize].to_vec();
                let place = &mut self.chunks[chunk as usize];
                place.words.extend(words);
                // One that is copied to takes nothing else meanwhile: what was read is written when it is there.
                (place.under_way, place.is_doubtful) = (1, true);
                self.chunks[from as usize].under_way += 1;
                let request = ChunkRequest::Copy {
                    from: LbaList::run(self.lba(from, at), unit),
                    to: LbaList::run(self.lba(chunk, written), unit),
                };
                let token = self.token(Request::Copy { from, to: chunk, end: written + unit });
                Some((token, NamespaceOperation::Chunk(request)))
            }
            _ => None,
        }
    }

    fn read(&mut self, chunk: u32, first: u32, count: u32) -> (u64, NamespaceOperation) {
        self.chunks[chunk as usize].under_way += 1;
        let before = self.chunks[chunk as usize].clone();
        let lba = self.lba(chunk, first);
        let token = self.token(Request::Read { chunk, first, count, before });
        let destination = BufferMut::copy_from(&vec![0xee; count as usize * TAG_SIZE_BYTES]);
        let range = LbaRange { first_lba: lba, lba_count: count };
        (token, NamespaceOperation::Read { range, destination })
    }

    /// Reads blocks that lie anywhere, most of them where something was written.
    fn read_list(&mut self, random: &mut Xoshiro256PlusPlus) -> (u64, NamespaceOperation) {
        let (mut lbas, mut blocks) = (LbaList::default(), Vec::new());
        let count = if random.random_ratio(1, 8) { 64 } else { random.random_range(1..=8) };
        for _ in 0..count {
            let chunk = random.random_range(0..self.chunks.len() as u32);
            let written = self.chunks[chunk as usize].words.len() as u32;
            let block = random.random_range(0..=written.min(self.capacity() - 1));
            self.chunks[chunk as usize].under_way += 1;
            lbas.push(self.lba(chunk, block));
            blocks.push((chunk, block, self.chunks[chunk as usize].clone()));
        }
        let destination = BufferMut::copy_from(&vec![0xee; blocks.len() * TAG_SIZE_BYTES]);
        let token = self.token(Request::ReadList(blocks));
        (token, NamespaceOperation::Chunk(ChunkRequest::Read { lbas, destination }))
    }

    /// Judges each block of a list by itself.
    fn list_is_read(
        &mut self,
        blocks: Vec<(u32, u32, Chunk)>,
        result: Result<(), NamespaceError>,
        failed: ListBits,
        data: Option<Buffer>,
    ) -> Result<(), String> {
        if !matches!(result, Ok(()) | Err(NamespaceError::Chunk(ChunkRefusal::Unwritten))) {
            return Err(format!("a read of {} blocks gives {result:?}", blocks.len()));
        }
        if result.is_ok() != (failed == ListBits::default()) {
            return Err(format!("a read of a list gives {result:?}, and {failed:?}"));
        }
        for (place, (chunk, block, before)) in (0..).zip(blocks) {
            self.chunks[chunk as usize].under_way -= 1;
            self.listed[usize::from(failed.has(place))] += 1;
            if failed.has(place) {
                if block < self.readable(&before) {
                    return Err(format!("chunk {chunk}: block {block} of a list cannot be read; {before:?}"));
                }
                continue;
            }
            let content =
                data.as_ref().map(|data| &data[place as usize * TAG_SIZE_BYTES..][..TAG_SIZE_BYTES]);
            let word = content.map(|content| u64::from_le_bytes(content.try_into().expect("8 bytes")));
            let written = before.words.get(block as usize).copied();
            if word != written || written.is_none() {
                let both = format!("reads as {word:x?} in a list, and {written:x?} was written");
                return Err(format!("chunk {chunk} IU {block} {both}"));
            }
        }
        Ok(())
    }

    /// Blocks of a write that failed which are written all the same: those of the program units before the first that failed.
    fn written_before(&self, count: u32, failed: ListBits) -> u32 {
        let unit = self.shape.unit_ius;
        // Those behind 64 have no bit.
        let told = if count > 64 { 0 } else { count };
        (0..told / unit).take_while(|row| !(0..unit).any(|at| failed.has(row * unit + at))).count() as u32
            * unit
    }

    /// A run of a chunk that can be read, of 64 blocks at most, and what is written there.
    pub fn run(&self, random: &mut Xoshiro256PlusPlus) -> Option<((u32, u32, u32), Vec<u64>)> {
        let chunk = random.random_range(0..self.chunks.len());
        let readable = self.readable(&self.chunks[chunk]);
        if readable == 0 {
            return None;
        }
        let first = random.random_range(0..readable);
        let count = random.random_range(1..=(readable - first).min(64));
        let words = self.chunks[chunk].words[first as usize..(first + count) as usize].to_vec();
        Some(((chunk as u32, first, count), words))
    }

    /// Blocks of a run that lie in the same program units as some blocks of a chunk: a bit for each.
    pub fn bits_of_rows(&self, (_, first, count): (u32, u32, u32), read: std::ops::Range<u32>) -> u64 {
        let row = |block: u32| block / self.shape.unit_ius;
        let rows = row(read.start)..=row(read.end - 1);
        (0..count).filter(|at| rows.contains(&row(first + at))).fold(0, |bits, at| bits | 1 << at)
    }

    /// All chunks are being erased.
    pub fn begin_erasing(&mut self) {
        for chunk in &mut self.chunks {
            (chunk.resets, chunk.is_doubtful) = (true, true);
        }
        self.was_erased = true;
    }

    /// Whether it wrote this.
    pub fn wrote(&self, word: u64) -> bool {
        word >> 56 == MARK >> 56 && self.words.contains(&word)
    }

    /// Reads of everything that can be read.
    pub fn read_all(&mut self) -> Vec<(u64, NamespaceOperation)> {
        let mut reads = Vec::new();
        for chunk in 0..self.chunks.len() as u32 {
            let count = self.readable(&self.chunks[chunk as usize]);
            for first in (0..count).step_by(200) {
                reads.push(self.read(chunk, first, (count - first).min(200)));
            }
        }
        reads
    }

    /// Asks how chunks are.
    pub fn look(&mut self) -> (u64, NamespaceOperation) {
        let token = self.token(Request::Look);
        let request = ChunkRequest::Report { first: 0, count_max: u32::MAX };
        (token, NamespaceOperation::Chunk(request))
    }

    /// The server is gone; what was under way may have happened.
    pub fn crashed(&mut self, is_cut: bool) {
        self.requests.clear();
        (self.was_cut, self.looks) = (is_cut, false);
        for chunk in &mut self.chunks {
            (chunk.under_way, chunk.is_doubtful, chunk.is_refused) = (0, true, false);
        }
    }

    pub fn completed(&mut self, completion: NamespaceCompletion) -> Result<(), String> {
        let number = completion.token.0;
        let Some(request) = self.requests.remove(&number) else {
            return Err(format!("command {number} is answered, and nobody waits for it"));
        };
        self.commands += 1;
        let result = completion.result;
        let failed = match completion.zones {
            Some(ZoneOutcome::Failed(failed)) => failed,
            Some(ZoneOutcome::Strained(strained)) => {
                if !self.is_worn || strained == ListBits::default() || !request.reads(strained) {
                    return Err(format!("command {number} found {strained:?} hard to read"));
                }
                self.strained += u64::from(strained.0.count_ones());
                ListBits::default()
            }
            _ => ListBits::default(),
        };
        let closes = |error: &NamespaceError| {
            let refusals = [ChunkRefusal::EarlyClose, ChunkRefusal::Offline, ChunkRefusal::OutOfOrder];
            matches!(error, NamespaceError::Chunk(refusal) if refusals.contains(refusal))
                || matches!(error, NamespaceError::NoRoom { .. } | NamespaceError::ReadOnly { .. })
        };
        match request {
            Request::Write { chunk, first, end } => {
                let before = self.written_before(end - first, failed);
                let of = &mut self.chunks[chunk as usize];
                of.under_way -= 1;
                match result {
                    Ok(()) if of.answered >= end => {
                        return Err(format!(
                            "chunk {chunk}: a write to {end} is answered after one behind it"
                        ));
                    }
                    Ok(()) => of.answered = end,
                    // Those behind one that failed are refused, and may be told of it before that one.
                    Err(NamespaceError::Chunk(ChunkRefusal::OutOfOrder)) if !of.is_doubtful => {
                        if of.under_way == 0 {
                            return Err(format!(
                                "chunk {chunk}: a write to {end} is refused as out of order"
                            ));
                        }
                        (of.is_doubtful, of.is_refused) = (true, true);
                    }
                    Err(error) if closes(&error) => {
                        if before == end - first {
                            return Err(format!(
                                "chunk {chunk}: a write to {end} fails for no block: {error}"
                            ));
                        }
                        if before > 0 {
                            self.partly_written += 1;
                            of.answered = of.answered.max(first + before);
                        }
                        of.has_failed |= error != NamespaceError::Chunk(ChunkRefusal::OutOfOrder);
                        let is_early = error == NamespaceError::Chunk(ChunkRefusal::EarlyClose);
                        self.early_closes += u64::from(is_early);
                        of.was_closed |= is_early;
                        of.is_doubtful = true;
                    }
                    Err(error) => return Err(format!("chunk {chunk}: a write to {end} gives {error}")),
                }
            }
            Request::Copy { from, to, end } => {
                self.chunks[from as usize].under_way -= 1;
                let of = &mut self.chunks[to as usize];
                of.under_way -= 1;
                match result {
                    Ok(()) => (of.answered, of.is_doubtful) = (end, false),
                    Err(error) if closes(&error) => {}
                    Err(error) => return Err(format!("chunk {to}: a copy to {end} gives {error}")),
                }
            }
            Request::Read { chunk, first, count, before } => {
                self.chunks[chunk as usize].under_way -= 1;
                let is_certain = first + count <= self.readable(&before);
                match (result, completion.data) {
                    (Ok(()), Some(data)) => {
                        for (iu, content) in (first..).zip(data.chunks_exact(TAG_SIZE_BYTES)) {
                            let word = u64::from_le_bytes(content.try_into().expect("8 bytes"));
                            let written = before.words.get(iu as usize).copied();
                            if Some(word) != written {
                                return Err(format!(
                                    "chunk {chunk} IU {iu} reads as {word:x}, and {written:x?} was written"
                                ));
                            }
                        }
                    }
                    (Err(NamespaceError::Chunk(ChunkRefusal::Unwritten)), _) if !is_certain => {}
                    (result, _) => {
                        return Err(format!(
                            "chunk {chunk}: a read of {count} at {first} gives {result:?}; {before:?}"
                        ));
                    }
                }
            }
            Request::ReadList(blocks) => self.list_is_read(blocks, result, failed, completion.data)?,
            Request::Reset { chunk } => {
                result.map_err(|error| format!("chunk {chunk}: its reset gives {error}"))?;
                self.resets += 1;
                // Reads that came after it are not answered yet.
                let under_way = self.chunks[chunk as usize].under_way - 1;
                self.chunks[chunk as usize] = Chunk { under_way, ..Chunk::default() };
            }
            Request::Look => {
                let Some(ZoneOutcome::Chunks(found)) = completion.zones else {
                    return Err(format!("a report gives {result:?}"));
                };
                if found.len() != self.chunks.len() {
                    return Err(format!("{} chunks are reported of {}", found.len(), self.chunks.len()));
                }
                let is_empty = |one: &&ChunkView| {
                    matches!(one.state, ChunkState::Free | ChunkState::Offline) && one.written == 0
                };
                if let Some(left) = found.iter().find(|one| self.was_erased && !is_empty(one)) {
                    return Err(format!("all chunks were erased, and one is {left:?}"));
                }
                self.was_erased = false;
                for (chunk, found) in (0..).zip(&found) {
                    self.compare(chunk, found)?;
                }
                (self.was_cut, self.looks) = (false, false);
            }
        }
        Ok(())
    }

    /// What a chunk is after a restart, or after something failed.
    fn compare(&mut self, number: u32, found: &ChunkView) -> Result<(), String> {
        let capacity = self.capacity();
        let at_risk = if self.was_cut { self.shape.unsafe_units * self.shape.unit_ius } else { 0 };
        let chunk = &mut self.chunks[number as usize];
        if !chunk.is_doubtful {
            return Ok(());
        }
        let wrong = |what: &str| Err(format!("chunk {number} is {found:?}: {what}; {chunk:?}"));
        if found.state == ChunkState::Free && chunk.resets {
            *chunk = Chunk::default();
            return Ok(());
        }
        if found.state == ChunkState::Offline {
            // Nothing of it was answered, or its die is gone, which no seed does.
            if chunk.answered > 0 {
                return wrong("it was good");
            }
            *chunk = Chunk { is_offline: true, ..Chunk::default() };
            return Ok(());
        }
        if chunk.is_refused && !chunk.has_failed {
            return wrong("a write was refused as out of order, and none before it failed");
        }
        if chunk.was_closed && found.state != ChunkState::Closed {
            return wrong("a program failed in it");
        }
        let sent = chunk.words.len() as u32;
        let is_safe = chunk.is_closed || chunk.answered == capacity || chunk.answered == sent;
        let least = chunk.answered.saturating_sub(if is_safe { 0 } else { at_risk });
        if !(least..=sent).contains(&found.written) {
            return wrong("its write pointer is not where it may be");
        }
        if (found.state == ChunkState::Free) != (found.written == 0) {
            return wrong("its state and its write pointer differ");
        }
        chunk.words.truncate(found.written as usize);
        chunk.answered = found.written;
        chunk.is_closed = found.state == ChunkState::Closed;
        (chunk.resets, chunk.is_doubtful, chunk.was_closed) = (false, false, false);
        (chunk.is_refused, chunk.has_failed) = (false, false);
        Ok(())
    }
}
