use diecut_nvme::tcp::{Digests, digest_of};
use diecut_units::Buffer;
use std::collections::VecDeque;
use std::io::IoSlice;

/// Output of one connection: headers in one scratch, payloads as handles, both in the order of the stream.
///
/// Neighbouring headers become one slice, so a batch of answers without data is a single run of bytes.
#[derive(Debug, Default)]
pub struct Outbox {
    scratch: Vec<u8>,
    /// Bytes of `scratch` that were consumed; it starts afresh when everything was.
    scratch_start: usize,
    segments: VecDeque<Segment>,
    len_bytes: usize,
    /// Bytes consumed so far: whether a host takes anything.
    consumed_bytes: u64,
}

/// Scratch that an empty outbox keeps.
const SCRATCH_KEPT_BYTES: usize = 4096;
/// Segments for which it keeps room.
const SEGMENTS_KEPT: usize = SCRATCH_KEPT_BYTES / size_of::<Segment>();

#[derive(Debug)]
enum Segment {
    /// The next bytes of the scratch.
    Header(usize),
    /// Data, and what their connection's account holds for them.
    Payload(Buffer, u32),
}

impl Outbox {
    /// Bytes waiting.
    pub fn len_bytes(&self) -> usize {
        self.len_bytes
    }
    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.len_bytes == 0
    }

    /// Appends slices for one `writev`, in order, until `slices` has `slices_max` of them.
    pub fn fill_io_slices<'a>(&'a self, slices: &mut Vec<IoSlice<'a>>, slices_max: usize) {
        slices.extend(self.io_slices().take(slices_max.saturating_sub(slices.len())));
    }

    /// Everything that waits, as slices in the order of the stream.
    pub fn io_slices(&self) -> impl Iterator<Item = IoSlice<'_>> {
        let mut header_start = self.scratch_start;
        self.segments.iter().map(move |segment| match segment {
            Segment::Header(length) => {
                header_start += length;
                IoSlice::new(&self.scratch[header_start - length..header_start])
            }
            Segment::Payload(buffer, _) => IoSlice::new(buffer),
        })
    }

    /// Copies as much as fits into `bytes` and says how much that was; nothing is consumed. For one contiguous send
    /// per batch and for simulations.
    pub fn copy_to(&self, bytes: &mut [u8]) -> usize {
        let mut header_start = self.scratch_start;
        let mut copied = 0;
        for segment in &self.segments {
            let source: &[u8] = match segment {
                Segment::Header(length) => {
                    header_start += length;
                    &self.scratch[header_start - length..header_start]
                }
                Segment::Payload(buffer, _) => buffer,
            };
            let part = source.len().min(bytes.len() - copied);
            bytes[copied..copied + part].copy_from_slice(&source[..part]);
            copied += part;
            if part < source.len() {
                break;
            }
        }
        copied
    }

    /// The first `bytes` were sent. Says how many bytes payloads held that are gone now.
    ///
    /// # Panics
    /// If there are fewer: the driver's bug.
    pub(crate) fn consume(&mut self, mut bytes: usize) -> usize {
        assert!(bytes <= self.len_bytes, "I-T10: sent {bytes} of {}", self.len_bytes);
        self.len_bytes -= bytes;
        self.consumed_bytes += bytes as u64;
        let mut released = 0;
        while bytes > 0 {
            match self.segments.front_mut().expect("I-T10: bytes are left") {
                Segment::Header(length) if *length > bytes => {
                    *length -= bytes;
                    self.scratch_start += bytes;
                    break;
                }
                Segment::Header(length) => {
                    bytes -= *length;
                    self.scratch_start += *length;
                }
                Segment::Payload(buffer, _) if buffer.len() > bytes => {
                    *buffer = buffer.slice(bytes..);
                    break;
                }
                Segment::Payload(buffer, held) => {
                    bytes -= buffer.len();
                    released += *held as usize;
                }
            }
            self.segments.pop_front();
        }
        if self.segments.is_empty() {
            debug_assert_eq!(self.len_bytes, 0, "I-T10: an outbox counts what lies in it");
            debug_assert_eq!(self.scratch_start, self.scratch.len(), "I-T10: headers are sent in order");
            self.scratch.clear();
            self.scratch_start = 0;
            if self.scratch.capacity() > SCRATCH_KEPT_BYTES || self.segments.capacity() > SEGMENTS_KEPT {
                self.scratch.shrink_to(SCRATCH_KEPT_BYTES);
                self.segments.shrink_to(SEGMENTS_KEPT);
            }
        } else if self.scratch_start > self.scratch.len() / 2 && self.scratch_start > SCRATCH_KEPT_BYTES {
            // A host that always has something under way never empties it. What is moved is less than what was sent since.
            self.scratch.drain(..self.scratch_start);
            self.scratch_start = 0;
        }
        released
    }

    /// What headers take up, besides the scratch that every connection has.
    #[inline]
    pub(crate) fn scratch_bytes(&self) -> usize {
        (self.scratch.capacity() + self.segments.capacity() * size_of::<Segment>())
            .saturating_sub(2 * SCRATCH_KEPT_BYTES)
    }

    /// Bytes consumed since it was made.
    pub(crate) fn consumed_bytes(&self) -> u64 {
        self.consumed_bytes
    }

    /// What accounts hold for its payloads.
    pub(crate) fn payload_held_bytes(&self) -> usize {
        let held = |segment: &Segment| match segment {
            Segment::Payload(_, held) => *held as usize,
            Segment::Header(_) => 0,
        };
        self.segments.iter().map(held).sum()
    }

    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        self.scratch.extend_from_slice(bytes);
        self.len_bytes += bytes.len();
        match self.segments.back_mut() {
            Some(Segment::Header(length)) => *length += bytes.len(),
            _ => self.segments.push_back(Segment::Header(bytes.len())),
        }
    }

    /// A header, with its digest if agreed on.
    #[inline]
    pub(crate) fn put_header(&mut self, header: &[u8], digests: Digests) {
        self.put(header);
        if digests.header {
            self.put(&digest_of(header));
        }
    }
    /// Bytes that are nobody's payload.
    pub(crate) fn put_bytes(&mut self, bytes: &[u8]) {
        self.put(bytes);
    }
    /// Data, with their digest if agreed on; their connection's account holds `held_bytes` for them until they are sent.
    #[inline]
    pub(crate) fn put_payload(&mut self, payload: Buffer, held_bytes: u32, digests: Digests) {
        let digest = digests.data.then(|| digest_of(&payload));
        self.len_bytes += payload.len();
        self.segments.push_back(Segment::Payload(payload, held_bytes));
        if let Some(digest) = digest {
            self.put(&digest);
        }
    }

    /// Everything that waits, as bytes; the outbox is empty afterwards.
    #[cfg(test)]
    pub(crate) fn take_bytes(&mut self) -> Vec<u8> {
        let mut bytes = vec![0; self.len_bytes];
        self.copy_to(&mut bytes);
        self.consume(bytes.len());
        bytes
    }
}

#[cfg(test)]
mod test {
    use super::*;

    /// Whatever is consumed in whatever parts, the stream is the same.
    #[test]
    fn any_cut_gives_the_same_stream() {
        for part in 1..40 {
            let mut outbox = Outbox::default();
            let mut expected = Vec::new();
            let mut sent = Vec::new();
            for round in 0..6u8 {
                outbox.put_header(&[round; 24], Digests { header: round % 2 == 0, data: false });
                expected.extend([round; 24]);
                if round % 2 == 0 {
                    expected.extend(digest_of(&[round; 24]));
                }
                let payload = [0x40 + round; 17];
                if round % 3 != 0 {
                    outbox.put_payload(Buffer::copy_from(&payload), 17, Digests::NONE);
                    expected.extend(payload);
                }
                let mut slices = Vec::new();
                outbox.fill_io_slices(&mut slices, 8);
                let bytes: Vec<u8> = slices.iter().flat_map(|slice| slice.to_vec()).collect();
                let taken = part.min(bytes.len());
                sent.extend(&bytes[..taken]);
                outbox.consume(taken);
            }
            sent.extend(outbox.take_bytes());
            assert_eq!(sent, expected, "parts of {part}");
            assert!(outbox.is_empty() && outbox.scratch.is_empty());
        }
    }

    /// Goal: an outbox takes as much memory as what waits in it, also when it never runs empty. Method: an answer comes for each one
    /// that goes, a million times.
    #[test]
    fn what_was_sent_takes_no_room() {
        let mut outbox = Outbox::default();
        outbox.put_header(&[1; 24], Digests::NONE);
        for _ in 0..1_000_000 {
            outbox.put_header(&[1; 24], Digests::NONE);
            outbox.put_payload(Buffer::copy_from(&[2; 8]), 256, Digests::NONE);
            assert!([0, 256].contains(&outbox.consume(32)));
        }
        assert!(outbox.scratch.capacity() < 32 << 10, "{} bytes of scratch", outbox.scratch.capacity());
        assert_eq!(outbox.scratch_bytes() + outbox.payload_held_bytes(), 256 + outbox.scratch_bytes());
    }
}
