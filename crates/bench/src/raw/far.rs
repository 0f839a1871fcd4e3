//! Memory that is larger than caches, read at random.

use diecut_units::{checksum, prefer_huge_pages, prefetch};
use serde::Serialize;
use std::collections::VecDeque;
use std::hint::black_box;

/// Bytes that are read at one place: the content of a 4 KiB command.
const CONTENT_BYTES: usize = 4096;
/// What the processor is asked for ahead of a copy; it sees a stream in them and goes on by itself.
const PREFETCHED_LINES: usize = 8;
const LINE_BYTES: usize = 64;

/// What becomes of content that is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FarReads {
    /// It is sent from where it is (a header and a content for each message), not copied into the send buffer.
    pub in_place: bool,
    /// Its CRC-32C is calculated.
    pub checked: bool,
}

/// See the module.
pub struct FarMemory {
    bytes: Vec<u8>,
    reads: FarReads,
    /// Of a generator of random numbers (xorshift).
    state: u64,
    /// Places of one batch.
    places: VecDeque<usize>,
    /// Message of the send buffer that is filled next.
    message: usize,
}

impl FarMemory {
    /// Memory of so many bytes, rounded up to whole contents, all of it touched.
    pub fn new(size_bytes: usize, reads: FarReads) -> FarMemory {
        let size_bytes = size_bytes.max(1).next_multiple_of(CONTENT_BYTES);
        let mut bytes = Vec::with_capacity(size_bytes);
        prefer_huge_pages(&mut bytes);
        bytes.extend(
            (0..size_bytes / 8).flat_map(|word| (word as u64).wrapping_mul(0x9E37_79B9).to_le_bytes()),
        );
        FarMemory { bytes, reads, state: 0x2545_F491_4F6C_DD1D, places: VecDeque::new(), message: 0 }
    }

    /// Whether the content of messages of this size is sent from where it is; small ones have none.
    pub(super) fn is_sent_in_place(&self, message_bytes: usize) -> bool {
        self.reads.in_place && message_bytes > CONTENT_BYTES
    }

    /// The content at a place that [`FarMemory::choose`] gave.
    pub(super) fn content(&self, place: usize) -> &[u8] {
        &self.bytes[place..place + CONTENT_BYTES]
    }

    /// Adds places for `messages` messages. All are announced before the first is read, so that misses overlap.
    fn announce(&mut self, messages: usize, places: &mut VecDeque<usize>) {
        for _ in 0..messages {
            let place = self.place();
            for line in 0..PREFETCHED_LINES {
                prefetch(&self.bytes, place + line * LINE_BYTES);
            }
            places.push_back(place);
        }
    }

    /// Adds places for the content of the next `messages` messages.
    pub(super) fn choose(&mut self, messages: usize, places: &mut VecDeque<usize>) {
        let first = places.len();
        self.announce(messages, places);
        if self.reads.checked {
            for &place in places.range(first..) {
                black_box(checksum(self.content(place)));
            }
        }
    }

    fn place(&mut self) -> usize {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        let contents = (self.bytes.len() / CONTENT_BYTES) as u64;
        (self.state % contents) as usize * CONTENT_BYTES
    }

    /// Writes the content of the next `messages` messages into `send`, which holds whole messages and is gone round. All
    /// places are announced first, so that misses overlap.
    pub(super) fn fill(&mut self, send: &mut [u8], message_bytes: usize, messages: usize) {
        let mut places = std::mem::take(&mut self.places);
        self.announce(messages, &mut places);
        for place in places.drain(..) {
            let end = (self.message + 1) * message_bytes;
            let content = CONTENT_BYTES.min(message_bytes);
            if self.reads.checked {
                black_box(checksum(&self.bytes[place..place + content]));
            }
            send[end - content..end].copy_from_slice(&self.bytes[place..place + content]);
            self.message = (self.message + 1) % (send.len() / message_bytes);
        }
        self.places = places;
    }
}

#[cfg(test)]
mod test {
    use super::*;

    /// Contents come from all over the memory, and go where messages have theirs: behind the header.
    #[test]
    fn messages_get_contents_of_random_places() {
        let mut far = FarMemory::new(1 << 20, FarReads::default());
        let mut send = vec![0xff; 3 * 4120];
        far.fill(&mut send, 4120, 4);
        for message in send.chunks(4120) {
            assert!(message[..24].iter().all(|&byte| byte == 0xff));
            let first = u64::from_le_bytes(message[24..32].try_into().expect("8 bytes"));
            let place = (0..1 << 17).step_by(512).find(|&word: &u64| word.wrapping_mul(0x9E37_79B9) == first);
            assert!(place.is_some(), "{first:#x} begins a content");
        }
        assert_eq!(far.message, 1);
        assert_ne!(send[24..32], send[4120 + 24..4120 + 32]);
    }
}
