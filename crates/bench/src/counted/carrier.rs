//! Who carries out what a device asks for.

use super::rows::CONTENT_BYTE;
use diecut_media::{Intent, IntentDone, IntentWork};
use diecut_reactor::DriveRing;
use diecut_units::Span;
use std::time::Duration;

/// Who carries out what a device asks for, if it asks for anything.
pub(crate) enum Carrier {
    /// It does not.
    Nobody,
    /// Memory, at once.
    Memory(MemoryDrive),
    /// The ring of a shard.
    Ring(Box<DriveRing>),
}

/// A drive in memory, which does everything at once. It keeps little of what it holds: of a page that is a block of what the benches write a
/// word, of others what is not zero.
#[derive(Default)]
pub(crate) struct MemoryDrive {
    /// Of each page: a word of these, or [`FIRST_KEPT`] and the place in `kept`.
    pages: Vec<u32>,
    kept: Vec<Box<[u64]>>,
    free: Vec<u32>,
    done: Vec<IntentDone>,
    /// Processor time that it took.
    took: Duration,
}

/// Processor time of this thread so far.
pub(crate) fn processor_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the structure is what the call fills in.
    let failed = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    assert_eq!(failed, 0, "a thread has a clock");
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

const PAGE_BYTES: usize = 4096;
const PAGE_WORDS: usize = PAGE_BYTES / 8;
const ZEROS: u32 = 0;
const CONTENT: u32 = 1;
const FIRST_KEPT: u32 = 2;

impl MemoryDrive {
    pub(crate) fn new(size_bytes: u64) -> MemoryDrive {
        MemoryDrive { pages: vec![ZEROS; size_bytes as usize / PAGE_BYTES], ..MemoryDrive::default() }
    }

    fn begin(&mut self, intent: Intent) {
        let mut buffer = None;
        match intent.work {
            IntentWork::Read { offset, buffer: mut into } => {
                let first = offset as usize / PAGE_BYTES;
                for (page, into) in self.pages[first..].iter().zip(into.chunks_exact_mut(PAGE_BYTES)) {
                    match *page {
                        ZEROS => into.fill(0),
                        CONTENT => into.fill(CONTENT_BYTE),
                        kept => unpack(&self.kept[(kept - FIRST_KEPT) as usize], into),
                    }
                }
                buffer = Some(into);
            }
            IntentWork::Write { offset, parts, .. } => {
                let pages = parts.iter().flat_map(|part| part.chunks_exact(PAGE_BYTES));
                for (at, page) in (offset as usize / PAGE_BYTES..).zip(pages) {
                    self.write(at, page);
                }
            }
            IntentWork::Discard { offset, len_bytes } => {
                let first = offset as usize / PAGE_BYTES;
                (first..first + len_bytes as usize / PAGE_BYTES).for_each(|at| self.set(at, ZEROS));
            }
            IntentWork::Sync => {}
            IntentWork::ResetZone { .. } | IntentWork::FinishZone { .. } => unreachable!("it has no zones"),
        }
        self.done.push(IntentDone { token: intent.token, buffer, result: Ok(()) });
    }

    fn write(&mut self, at: usize, page: &[u8]) {
        if page == [CONTENT_BYTE; PAGE_BYTES] {
            return self.set(at, CONTENT);
        }
        let packed = pack(page);
        let place = self.free.pop().unwrap_or_else(|| {
            self.kept.push(Box::default());
            self.kept.len() as u32 - 1
        });
        self.kept[place as usize] = packed;
        self.set(at, FIRST_KEPT + place);
    }

    fn set(&mut self, at: usize, to: u32) {
        let before = std::mem::replace(&mut self.pages[at], to);
        if let Some(place) = before.checked_sub(FIRST_KEPT) {
            self.kept[place as usize] = Box::default();
            self.free.push(place);
        }
    }
}

/// A bit for each word that is not zero, and these.
fn pack(page: &[u8]) -> Box<[u64]> {
    let mut packed = vec![0; PAGE_WORDS / 64];
    for (at, word) in page.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).enumerate() {
        if word != 0 {
            packed[at / 64] |= 1 << (at % 64);
            packed.push(word);
        }
    }
    packed.into()
}

fn unpack(packed: &[u64], page: &mut [u8]) {
    let (bits, mut words) = packed.split_at(PAGE_WORDS / 64);
    for (at, into) in page.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        *into = [0; 8];
        if bits[at / 64] >> (at % 64) & 1 == 1
            && let Some((word, rest)) = words.split_first()
        {
            (*into, words) = (word.to_le_bytes(), rest);
        }
    }
}

impl Carrier {
    /// Whether what it does takes real time.
    pub(crate) fn takes_time(&self) -> bool {
        matches!(self, Carrier::Ring(_))
    }

    /// Processor time of a drive in memory.
    pub(crate) fn took(&self) -> Duration {
        if let Carrier::Memory(drive) = self { drive.took } else { Duration::ZERO }
    }

    pub(crate) fn begin(&mut self, intent: Intent) {
        match self {
            Carrier::Nobody => panic!("the device is in memory"),
            Carrier::Memory(drive) => {
                let begun = processor_time();
                drive.begin(intent);
                drive.took += processor_time() - begun;
            }
            Carrier::Ring(ring) => ring.push(intent),
        }
    }

    /// The end of a round, as in the reactor.
    pub(crate) fn submit(&mut self) {
        if let Carrier::Ring(ring) = self {
            ring.submit();
        }
    }

    pub(crate) fn take_done(&mut self, done: &mut Vec<IntentDone>) {
        match self {
            Carrier::Nobody => {}
            Carrier::Memory(drive) => done.append(&mut drive.done),
            Carrier::Ring(ring) => ring.take_done(done),
        }
    }

    /// Sleeps until something is done, for no longer than `span`: the shard wants to go on then.
    pub(crate) fn wait(&mut self, span: Span) {
        let Carrier::Ring(ring) = self else { return };
        if ring.is_idle() {
            std::thread::sleep(Duration::from_nanos(span.0.min(1_000_000)));
        }
        ring.submit_and_wait_for(span);
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn a_page_is_what_it_was() {
        let pages =
            [[0; PAGE_BYTES], [7; PAGE_BYTES], std::array::from_fn(|at| (at % 97 * (at / 2000)) as u8)];
        for page in pages {
            let mut again = [1; PAGE_BYTES];
            unpack(&pack(&page), &mut again);
            assert!(again == page);
        }
    }
}
