//! Two rings and a data area in memory that another process may change at any time.
//!
//! | shared memory | written by | content |
//! |---|---|---|
//! | 0 | server | `dcblocks` |
//! | 128 | application | u64: submissions written |
//! | 192 | server | u64: submissions taken |
//! | 256 | server | u64: not 0 while the server sleeps and wants the doorbell |
//! | 320 | server | u64: completions written; its low half is the application's futex |
//! | 384 | application | u64: completions read |
//! | 448 | application | u64: threads that wait on the futex |
//! | 4096 | application | submissions, 64 bytes each; number n is in place n modulo entries |
//! | then | server | completions, 32 bytes each, likewise |
//! | next multiple of 4096 | both | data area: slots |
//!
//! Every access is atomic: whatever the other side does is no data race here. Counters run from 0 and never wrap in practice (64 bits); an
//! entry's place is its number modulo the ring's length. Whoever writes an entry writes its bytes first and its counter after.
//!
//! Sleeping: the server says in a word of its own that it sleeps, then looks at the submissions once more; a client
//! writes its entry, then looks at that word, and rings the doorbell (an eventfd). Clients that wait do the same the
//! other way round, on the low half of the counter of completions, which is their futex.

pub use crate::layout::{ENTRIES_MAX, Layout};
use crate::session::{Answer, Command};
use crate::wire::{
    COMPLETION_SIZE_BYTES, Completion, HELD_SIZE_BYTES, NAME_SIZE_BYTES, Opcode, SUBMISSION_SIZE_BYTES,
    Submission,
};
use diecut_units::sync::{AtomicU64, Ordering, fence};
use diecut_units::{BufferPool, IU_SIZE_BYTES};
use std::sync::Arc;

const WORD_SIZE_BYTES: usize = 8;
/// In front of everything: "dcblocks".
const MAGIC: u64 = u64::from_le_bytes(*b"dcblocks");

/// Places in the header, in bytes; each on a cache line of its own. No struct shows them: the other side may change them at any
/// time, so they are read and written as atomic words only.
const SUBMISSION_TAIL: usize = 128;
const SUBMISSION_HEAD: usize = 192;
const SERVER_SLEEPS: usize = 256;
const COMPLETION_TAIL: usize = 320;
const COMPLETION_HEAD: usize = 384;
const CLIENT_WAITS: usize = 448;

/// Memory that two processes have mapped, as words.
pub type Words = Arc<dyn AsRef<[AtomicU64]> + Send + Sync>;

/// Words of this process alone, for tests and the embedded mode.
pub fn private_words(size_bytes: usize) -> Words {
    struct Private(Vec<AtomicU64>);
    impl AsRef<[AtomicU64]> for Private {
        fn as_ref(&self) -> &[AtomicU64] {
            &self.0
        }
    }
    Arc::new(Private((0..size_bytes.div_ceil(WORD_SIZE_BYTES)).map(|_| AtomicU64::new(0)).collect()))
}

#[derive(Clone)]
struct Memory {
    words: Words,
    layout: Layout,
}

impl Memory {
    fn new(words: Words, layout: Layout) -> Memory {
        assert!(layout.is_sound(), "checked by whoever read it");
        let len = (*words).as_ref().len() * WORD_SIZE_BYTES;
        assert!(len >= layout.size_bytes(), "{len} bytes are mapped");
        Memory { words, layout }
    }
    fn word(&self, at_bytes: usize) -> &AtomicU64 {
        &(*self.words).as_ref()[at_bytes / WORD_SIZE_BYTES]
    }
    fn words(&self, at_bytes: usize, len_bytes: usize) -> &[AtomicU64] {
        let first = at_bytes / WORD_SIZE_BYTES;
        &(*self.words).as_ref()[first..first + len_bytes / WORD_SIZE_BYTES]
    }
    fn copy_out(&self, at_bytes: usize, bytes: &mut [u8]) {
        let words = self.words(at_bytes, bytes.len());
        let (chunks, rest) = bytes.as_chunks_mut::<WORD_SIZE_BYTES>();
        assert!(rest.is_empty(), "whole words are copied");
        for (chunk, word) in chunks.iter_mut().zip(words) {
            *chunk = word.load(Ordering::Relaxed).to_ne_bytes();
        }
    }
    fn copy_in(&self, at_bytes: usize, bytes: &[u8]) {
        let words = self.words(at_bytes, bytes.len());
        let (chunks, rest) = bytes.as_chunks::<WORD_SIZE_BYTES>();
        assert!(rest.is_empty(), "whole words are copied");
        for (chunk, word) in chunks.iter().zip(words) {
            word.store(u64::from_ne_bytes(*chunk), Ordering::Relaxed);
        }
    }
}

/// The client broke the rings: it is to be hung up on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the counters of its rings make no sense")]
pub struct Broken;

/// The server's end: reads submissions, writes completions.
pub struct ServerEnd {
    memory: Memory,
    taken: u64,
    answered: u64,
}

impl ServerEnd {
    /// Begins with memory that is all zeros.
    ///
    /// # Panics
    /// If the layout is not sound or the memory too small.
    pub fn new(words: Words, layout: Layout) -> ServerEnd {
        let memory = Memory::new(words, layout);
        memory.word(0).store(MAGIC, Ordering::Release);
        ServerEnd { memory, taken: 0, answered: 0 }
    }

    /// Submissions that wait.
    fn waiting(&self) -> Result<u64, Broken> {
        let waiting = self.memory.word(SUBMISSION_TAIL).load(Ordering::Acquire).wrapping_sub(self.taken);
        if waiting <= u64::from(self.memory.layout.entries) { Ok(waiting) } else { Err(Broken) }
    }

    /// Room in the completion ring for answers to what is not taken yet.
    fn room(&self) -> Result<u64, Broken> {
        let seen = self.memory.word(COMPLETION_HEAD).load(Ordering::Acquire);
        if seen > self.answered {
            return Err(Broken);
        }
        // What is under way, and what the client has not looked at.
        let used = self.taken - seen;
        Ok(u64::from(self.memory.layout.entries).saturating_sub(used))
    }

    /// Whether [`ServerEnd::take`] has something to do or to say.
    pub fn is_ready(&self) -> bool {
        match (self.waiting(), self.room()) {
            (Ok(waiting), Ok(room)) => waiting > 0 && room > 0,
            _ => true,
        }
    }

    /// Takes the next submission with its data.
    ///
    /// # Errors
    /// If the client broke the rings.
    pub fn take(&mut self, buffers: &mut BufferPool) -> Result<Option<Command>, Broken> {
        // Both are looked at: a counter that makes no sense must not go unseen because the other says that there is nothing.
        let (waiting, room) = (self.waiting()?, self.room()?);
        if waiting == 0 || room == 0 {
            return Ok(None);
        }
        let layout = self.memory.layout;
        let mut bytes = [0; SUBMISSION_SIZE_BYTES];
        self.memory.copy_out(layout.submission(self.taken), &mut bytes);
        self.taken += 1;
        self.memory.word(SUBMISSION_HEAD).store(self.taken, Ordering::Release);
        let entry = Submission::decode(&bytes).and_then(|entry| {
            if transfer_range(&entry, &layout).is_some() { Ok(entry) } else { Err(entry.token) }
        });
        let mut data = None;
        if let Ok(entry) = &entry
            && matches!(entry.opcode, Opcode::Append | Opcode::Keep)
        {
            let (offset, len) = transfer_range(entry, &layout).expect("checked above");
            let mut copy = buffers.take(len);
            self.memory.copy_out(layout.data() + offset, &mut copy);
            data = Some(copy);
        }
        Ok(Some(Command { entry, data }))
    }

    /// Writes an answer.
    ///
    /// # Panics
    /// If there are more answers than submissions, or data goes outside of the data area.
    pub fn put(&mut self, answer: &Answer) {
        let layout = self.memory.layout;
        assert!(self.answered < self.taken, "one answer for each submission");
        if let Some((offset, data)) = &answer.data {
            let end = u64::from(*offset) + data.len() as u64;
            assert!(end <= layout.data_size_bytes(), "checked when it was taken");
            self.memory.copy_in(layout.data() + *offset as usize, data);
        }
        self.memory.copy_in(layout.completion(self.answered), &answer.completion.encode());
        self.answered += 1;
        self.memory.word(COMPLETION_TAIL).store(self.answered, Ordering::Release);
    }

    /// Whether a client waits on its futex: to be asked after a batch of answers.
    pub fn is_waited_for(&self) -> bool {
        fence(Ordering::SeqCst);
        self.memory.word(CLIENT_WAITS).load(Ordering::Relaxed) != 0
    }

    /// The futex.
    pub fn futex(&self) -> &AtomicU64 {
        self.memory.word(COMPLETION_TAIL)
    }

    /// Says that the doorbell is listened to. If something is ready after that, the server must not sleep.
    pub fn announce_sleep(&self) {
        self.memory.word(SERVER_SLEEPS).store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Says that the rings are looked at again.
    pub fn announce_awake(&self) {
        self.memory.word(SERVER_SLEEPS).store(0, Ordering::Relaxed);
    }
}

/// Where in the data area an entry's data are or go; `None` if that is not in there. Empty for entries without.
fn transfer_range(entry: &Submission, layout: &Layout) -> Option<(usize, usize)> {
    let each = match entry.opcode {
        Opcode::Append | Opcode::Read => IU_SIZE_BYTES,
        Opcode::Keep => NAME_SIZE_BYTES,
        Opcode::Held => HELD_SIZE_BYTES,
        Opcode::Allocate | Opcode::Free | Opcode::Sync | Opcode::Unit => return Some((0, 0)),
    };
    let len = u64::from(entry.count) * each as u64;
    let end = u64::from(entry.data_offset) + len;
    let sound = entry.data_offset.is_multiple_of(WORD_SIZE_BYTES as u32)
        && len <= u64::from(layout.slot_size_bytes)
        && end <= layout.data_size_bytes();
    sound.then_some((entry.data_offset as usize, len as usize))
}

/// The application's end: writes submissions, reads completions. It trusts the server.
pub struct ClientEnd {
    memory: Memory,
    submitted: u64,
    seen: u64,
}

impl ClientEnd {
    /// Begins at a server's memory.
    ///
    /// # Panics
    /// If the layout is not sound or the memory too small.
    pub fn new(words: Words, layout: Layout) -> ClientEnd {
        ClientEnd { memory: Memory::new(words, layout), submitted: 0, seen: 0 }
    }

    /// Whether the memory is one of a server.
    pub fn is_server(&self) -> bool {
        self.memory.word(0).load(Ordering::Acquire) == MAGIC
    }

    /// Writes a submission. Says whether the doorbell must be rung; `None` if the ring is full.
    pub fn submit(&mut self, entry: &Submission) -> Option<bool> {
        let taken = self.memory.word(SUBMISSION_HEAD).load(Ordering::Acquire);
        if self.submitted.wrapping_sub(taken) >= u64::from(self.memory.layout.entries) {
            return None;
        }
        self.memory.copy_in(self.memory.layout.submission(self.submitted), &entry.encode());
        self.submitted += 1;
        self.memory.word(SUBMISSION_TAIL).store(self.submitted, Ordering::Release);
        fence(Ordering::SeqCst);
        Some(self.memory.word(SERVER_SLEEPS).load(Ordering::Relaxed) != 0)
    }

    /// Takes the next completion. One with a status that this version does not know is [`None`] inside.
    #[allow(clippy::option_option, reason = "nothing there, and something that makes no sense")]
    pub fn take(&mut self) -> Option<Option<Completion>> {
        if self.memory.word(COMPLETION_TAIL).load(Ordering::Acquire) == self.seen {
            return None;
        }
        let mut bytes = [0; COMPLETION_SIZE_BYTES];
        self.memory.copy_out(self.memory.layout.completion(self.seen), &mut bytes);
        self.seen += 1;
        Some(Completion::decode(&bytes))
    }

    /// Tells the server how far this side has read: what completions brought into the data area is copied, or its
    /// slot is still kept.
    pub fn release(&mut self) {
        self.memory.word(COMPLETION_HEAD).store(self.seen, Ordering::Release);
        // Room for answers may be what the server waits for.
        fence(Ordering::SeqCst);
    }

    /// Whether the server sleeps though submissions wait.
    pub fn is_stuck(&self) -> bool {
        self.memory.word(SERVER_SLEEPS).load(Ordering::Relaxed) != 0
            && self.memory.word(SUBMISSION_HEAD).load(Ordering::Acquire) != self.submitted
    }

    /// Copies into the data area.
    pub fn put_data(&self, offset: u32, bytes: &[u8]) {
        self.memory.copy_in(self.memory.layout.data() + offset as usize, bytes);
    }

    /// Copies out of the data area.
    pub fn take_data(&self, offset: u32, bytes: &mut [u8]) {
        self.memory.copy_out(self.memory.layout.data() + offset as usize, bytes);
    }

    /// Completions that were taken: what the futex holds if there is no other.
    pub fn seen(&self) -> u64 {
        self.seen
    }
}

/// The part of a client's end that its threads wait on without holding the rest.
#[derive(Clone)]
pub struct Bell {
    memory: Memory,
}

impl Bell {
    /// Of an end.
    pub fn of(end: &ClientEnd) -> Bell {
        Bell { memory: end.memory.clone() }
    }
    /// One more thread waits, or one less.
    pub fn count(&self, more: bool) {
        let word = self.memory.word(CLIENT_WAITS);
        if more {
            word.fetch_add(1, Ordering::Relaxed);
        } else {
            word.fetch_sub(1, Ordering::Relaxed);
        }
        fence(Ordering::SeqCst);
    }
    /// The futex.
    pub fn futex(&self) -> &AtomicU64 {
        self.memory.word(COMPLETION_TAIL)
    }
}

#[cfg(all(test, diecut_loom))]
mod interleavings;

#[cfg(all(test, not(diecut_loom)))]
mod test {
    use super::*;
    use crate::wire::Status;
    use diecut_vssd::LogicalBlock;

    const LAYOUT: Layout = Layout { entries: 4, slots: 4, slot_size_bytes: 8192 };

    fn ends() -> (ServerEnd, ClientEnd, BufferPool) {
        let words = private_words(LAYOUT.size_bytes());
        let server = ServerEnd::new(Arc::clone(&words), LAYOUT);
        (server, ClientEnd::new(words, LAYOUT), BufferPool::new())
    }

    fn entry(opcode: Opcode, token: u64, count: u32, data_offset: u32) -> Submission {
        Submission { token, count, data_offset, ..Submission::new(opcode, LogicalBlock::default()) }
    }

    fn answer(token: u64) -> Answer {
        Answer { completion: Completion::new(token, Status::Done), data: None }
    }

    #[test]
    fn the_layout_is_this() {
        let layout = Layout { entries: 64, slots: 64, slot_size_bytes: 65536 };
        assert_eq!((layout.submission(65), layout.completion(63)), (4096 + 64, 4096 + 4096 + 63 * 32));
        assert_eq!((layout.data(), layout.size_bytes()), (12288, 12288 + 64 * 65536));
        for wrong in [
            Layout { entries: 0, ..layout },
            Layout { entries: 3, ..layout },
            Layout { entries: 2048, ..layout },
            Layout { slots: 0, ..layout },
            Layout { slots: u32::MAX, ..layout },
            Layout { slot_size_bytes: 100, ..layout },
        ] {
            assert!(layout.is_sound() && !wrong.is_sound(), "{wrong:?}");
        }
    }

    #[test]
    fn entries_go_round_and_data_is_copied_once() {
        let (mut server, mut client, mut buffers) = ends();
        for round in 0..10 {
            client.put_data(8192, &[round as u8; 4096]);
            assert_eq!(client.submit(&entry(Opcode::Append, round, 1, 8192)), Some(false));
            let command = server.take(&mut buffers).unwrap().unwrap();
            client.put_data(8192, &[0xff; 4096]);
            assert_eq!(command.entry.unwrap().token, round);
            assert_eq!(*command.data.unwrap(), [round as u8; 4096]);
            assert!(client.take().is_none());
            server.put(&answer(round));
            assert_eq!(client.take(), Some(Some(Completion::new(round, Status::Done))));
            client.release();
        }
    }

    #[test]
    fn a_client_that_does_not_look_at_answers_gets_no_more() {
        let (mut server, mut client, mut buffers) = ends();
        for token in 0..4 {
            client.submit(&entry(Opcode::Sync, token, 0, 0)).unwrap();
            server.take(&mut buffers).unwrap().unwrap();
        }
        for token in 4..8 {
            client.submit(&entry(Opcode::Sync, token, 0, 0)).unwrap();
        }
        assert_eq!(client.submit(&entry(Opcode::Sync, 8, 0, 0)), None, "full");
        for token in 0..4 {
            assert!(
                server.take(&mut buffers).unwrap().is_none(),
                "as many under way as there is room for answers"
            );
            server.put(&answer(token));
        }
        assert!(!server.is_ready());
        client.take().unwrap();
        client.release();
        assert!(server.is_ready());
        assert!(server.take(&mut buffers).unwrap().is_some());
        assert!(server.take(&mut buffers).unwrap().is_none());
    }

    #[test]
    fn ranges_outside_of_the_data_area_are_refused() {
        let (mut server, mut client, mut buffers) = ends();
        for (opcode, count, offset) in [
            (Opcode::Append, 3, 0),
            (Opcode::Append, 1, 4 * 8192),
            (Opcode::Append, 2, 3 * 8192 + 8),
            (Opcode::Append, 1, 4),
            (Opcode::Append, u32::MAX, !7),
            (Opcode::Read, u32::MAX, 0),
            (Opcode::Read, 1, !7),
            (Opcode::Held, 342, 0),
            (Opcode::Keep, 1025, 0),
        ] {
            client.submit(&entry(opcode, 5, count, offset)).unwrap();
            let command = server.take(&mut buffers).unwrap().unwrap();
            assert_eq!(command.entry, Err(5), "{opcode:?} {count} {offset}");
            assert!(command.data.is_none());
            server.put(&answer(5));
            client.take().unwrap();
            client.release();
        }
    }

    #[test]
    fn counters_that_make_no_sense_end_the_session() {
        let (server, client, mut buffers) = ends();
        for (place, value) in [(SUBMISSION_TAIL, 5), (SUBMISSION_TAIL, u64::MAX), (COMPLETION_HEAD, 1)] {
            let mut server = ServerEnd { memory: server.memory.clone(), taken: 0, answered: 0 };
            client.memory.word(SUBMISSION_TAIL).store(1, Ordering::Relaxed);
            client.memory.word(COMPLETION_HEAD).store(0, Ordering::Relaxed);
            client.memory.word(place).store(value, Ordering::Relaxed);
            assert!(server.is_ready(), "there is something to say");
            assert!(matches!(server.take(&mut buffers), Err(Broken)), "{place} {value}");
        }
        // With nothing submitted, too.
        let mut idle = ServerEnd { memory: server.memory.clone(), taken: 0, answered: 0 };
        client.memory.word(SUBMISSION_TAIL).store(0, Ordering::Relaxed);
        client.memory.word(COMPLETION_HEAD).store(9, Ordering::Relaxed);
        assert!(matches!(idle.take(&mut buffers), Err(Broken)));
        // What the server alone writes is not read by it.
        let mut server = ServerEnd { memory: server.memory.clone(), taken: 0, answered: 0 };
        client.memory.word(COMPLETION_HEAD).store(0, Ordering::Relaxed);
        client.memory.word(SUBMISSION_TAIL).store(0, Ordering::Relaxed);
        for place in [SUBMISSION_HEAD, COMPLETION_TAIL, SERVER_SLEEPS, 0] {
            client.memory.word(place).store(u64::MAX, Ordering::Relaxed);
        }
        assert!(server.take(&mut buffers).unwrap().is_none());
    }

    #[test]
    fn who_sleeps_is_woken() {
        let (server, mut client, _) = ends();
        server.announce_sleep();
        assert_eq!(client.submit(&entry(Opcode::Sync, 1, 0, 0)), Some(true));
        assert!(server.is_ready(), "the last look before sleeping sees it");
        server.announce_awake();
        assert_eq!(client.submit(&entry(Opcode::Sync, 2, 0, 0)), Some(false));
        let bell = Bell::of(&client);
        assert!(!server.is_waited_for());
        bell.count(true);
        assert!(server.is_waited_for());
        bell.count(false);
        assert!(!server.is_waited_for());
    }
}
