//! Finds the content of writes in the stream of a host, so that it can be left out of a recording.
//!
//! Knows the outline of PDUs only (NVMe/TCP 1.0 section 3.6). Whatever does not look like one ends the search: from there
//! on all bytes of the connection are kept, and the target deals with it.

use diecut_nvme::opcode::io::WRITE;
use diecut_nvme::tcp::flag;
use diecut_nvme::tcp::pdu_type::{CAPSULE_COMMAND, H2C_DATA};
use std::collections::BTreeSet;
use std::ops::Range;

/// Common header: kind, flags, HLEN, PDO, PLEN.
const COMMON_BYTES: usize = 8;
/// A command capsule's header: the common header and a submission queue entry.
const CAPSULE_BYTES: usize = 72;
/// Header of H2CData.
const DATA_HEADER_BYTES: usize = 24;

/// Where a connection's stream is.
pub(crate) struct Scan {
    /// First bytes of the PDU, as far as they decide something.
    head: [u8; CAPSULE_BYTES],
    /// Bytes of the PDU that came.
    at: usize,
    /// The PDU's length, and its content that can be left out. Known when the head is whole.
    outline: Option<(usize, Range<usize>)>,
    /// Commands under way that write, by command identifier.
    writes: BTreeSet<u16>,
    lost: bool,
}

impl Default for Scan {
    fn default() -> Scan {
        Scan { head: [0; CAPSULE_BYTES], at: 0, outline: None, writes: BTreeSet::new(), lost: false }
    }
}

impl Scan {
    /// Looks at the next bytes of the stream: calls `part` with pieces of `0..len_bytes`, in order, and whether each can be
    /// left out.
    pub fn advance(&mut self, bytes: &[u8], mut part: impl FnMut(Range<usize>, bool)) {
        let mut kept_from = 0;
        let mut next = 0;
        while next < bytes.len() && !self.lost {
            let Some((length, content)) = self.outline.clone() else {
                self.head[self.at] = bytes[next];
                (self.at, next) = (self.at + 1, next + 1);
                self.look_at_head();
                continue;
            };
            // To the start of the content, through it, or to the end of the PDU.
            let inside = content.contains(&self.at);
            let until = if inside {
                content.end
            } else if self.at < content.start {
                content.start
            } else {
                length
            };
            let count = (until - self.at).min(bytes.len() - next);
            if inside {
                if kept_from < next {
                    part(kept_from..next, false);
                }
                part(next..next + count, true);
                kept_from = next + count;
            }
            (self.at, next) = (self.at + count, next + count);
            self.end_of_pdu();
        }
        if kept_from < bytes.len() {
            part(kept_from..bytes.len(), false);
        }
    }

    fn end_of_pdu(&mut self) {
        if self.outline.as_ref().is_some_and(|(length, _)| *length == self.at) {
            (self.at, self.outline) = (0, None);
        }
    }

    fn look_at_head(&mut self) {
        if self.at < COMMON_BYTES {
            return;
        }
        let head = &self.head;
        let (kind, flags, header, start) = (head[0], head[1], usize::from(head[2]), usize::from(head[3]));
        let length = u32::from_le_bytes([head[4], head[5], head[6], head[7]]) as usize;
        let expected = match kind {
            CAPSULE_COMMAND => CAPSULE_BYTES,
            H2C_DATA => DATA_HEADER_BYTES,
            _ => COMMON_BYTES,
        };
        let sound = length >= header.max(expected)
            && (expected == COMMON_BYTES
                || header == expected && (start == 0 || start >= header && start <= length));
        if !sound {
            self.lost = true;
            return;
        }
        if self.at < expected {
            return;
        }
        let word = |at: usize| u16::from_le_bytes([head[at], head[at + 1]]);
        let writes = match kind {
            CAPSULE_COMMAND => {
                let id = word(COMMON_BYTES + 2);
                let writes = head[COMMON_BYTES] == WRITE;
                if writes {
                    self.writes.insert(id);
                } else {
                    self.writes.remove(&id);
                }
                writes
            }
            H2C_DATA => self.writes.contains(&word(COMMON_BYTES)),
            _ => false,
        };
        let has_digest = flags & flag::DATA_DIGEST != 0;
        let content = if writes && start > 0 && !has_digest { start..length } else { length..length };
        self.outline = Some((length, content));
        self.end_of_pdu();
    }
}

#[cfg(test)]
mod test {
    use super::*;

    fn pdu(kind: u8, flags: u8, header: &[u8], content: &[u8]) -> Vec<u8> {
        let header_bytes = COMMON_BYTES + header.len();
        let length = (header_bytes + content.len()) as u32;
        let start = if content.is_empty() { 0 } else { header_bytes as u8 };
        let mut bytes = vec![kind, flags, header_bytes as u8, start];
        bytes.extend_from_slice(&length.to_le_bytes());
        bytes.extend_from_slice(header);
        bytes.extend_from_slice(content);
        bytes
    }

    fn command(opcode: u8, id: u16, content: &[u8]) -> Vec<u8> {
        let mut entry = [0; 64];
        (entry[0], entry[2], entry[3]) = (opcode, id as u8, (id >> 8) as u8);
        pdu(CAPSULE_COMMAND, 0, &entry, content)
    }

    fn data(id: u16, flags: u8, content: &[u8]) -> Vec<u8> {
        let mut header = [0; 16];
        (header[0], header[1]) = (id as u8, (id >> 8) as u8);
        pdu(H2C_DATA, flags, &header, content)
    }

    /// The stream with `_` for each byte that is left out, given in pieces of `step`.
    fn kept(stream: &[u8], step: usize) -> Vec<u8> {
        let mut scan = Scan::default();
        let mut kept = Vec::new();
        for bytes in stream.chunks(step) {
            let mut expected = 0;
            scan.advance(bytes, |range, left_out| {
                assert_eq!(range.start, expected, "in order, without a gap");
                expected = range.end;
                if left_out {
                    kept.resize(kept.len() + range.len(), b'_')
                } else {
                    kept.extend(&bytes[range])
                }
            });
            assert_eq!(expected, bytes.len());
        }
        kept
    }

    #[test]
    fn content_of_writes_is_left_out_and_nothing_else() {
        let write_in_capsule = command(WRITE, 7, b"wwww");
        let (compare, write) = (command(5, 300, &[]), command(WRITE, 301, &[]));
        let stream = [
            pdu(0, 0, &[0; 120], &[]),
            write_in_capsule.clone(),
            command(9, 7, b"rrrr"),
            compare,
            write,
            data(301, 0, b"wwwwwwww"),
            data(300, 0, b"cccc"),
            data(301, flag::DATA_DIGEST, b"dddd"),
            command(2, 1, &[]),
        ]
        .concat();
        let expected: Vec<u8> = stream.iter().map(|&byte| if byte == b'w' { b'_' } else { byte }).collect();
        for step in [1, 2, 3, 7, 71, 72, 73, 1000] {
            assert_eq!(kept(&stream, step), expected, "in steps of {step}");
        }
    }

    #[test]
    fn what_is_no_pdu_is_kept_with_everything_after_it() {
        let broken = [vec![0xff; 8], command(WRITE, 1, b"wwww")].concat();
        assert_eq!(kept(&broken, 5), broken);
        // Content that starts within the header.
        let mut overlapping = command(WRITE, 1, b"wwww");
        overlapping[3] = 8;
        assert_eq!(kept(&overlapping, 5), overlapping);
    }
}
