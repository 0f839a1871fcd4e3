use diecut_nvme::tcp::{Digests, digest_of};

/// Bytes on their way to the controller: one run, so that any number of commands go out with one system call.
#[derive(Debug, Default)]
pub(crate) struct Output {
    bytes: Vec<u8>,
    start: usize,
}

impl Output {
    #[inline]
    pub(crate) fn pending(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    /// # Panics
    /// If there are fewer.
    pub(crate) fn consume(&mut self, len_bytes: usize) {
        assert!(len_bytes <= self.bytes.len() - self.start, "sent more than there was");
        self.start += len_bytes;
        if self.start == self.bytes.len() {
            self.bytes.clear();
            self.start = 0;
        } else if self.start > self.bytes.len() / 2 {
            // A stream that never empties must not grow for ever.
            self.bytes.drain(..self.start);
            self.start = 0;
        }
    }

    pub(crate) fn put(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// A PDU: header, data, and the digests agreed on.
    #[inline]
    pub(crate) fn put_pdu(&mut self, header: &[u8], data: &[u8], digests: Digests) {
        self.bytes.extend_from_slice(header);
        if digests.header {
            self.bytes.extend_from_slice(&digest_of(header));
        }
        if !data.is_empty() {
            self.bytes.extend_from_slice(data);
            if digests.data {
                self.bytes.extend_from_slice(&digest_of(data));
            }
        }
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn whatever_is_consumed_the_stream_is_the_same() {
        for part in 1..30 {
            let (mut output, mut sent, mut expected) = (Output::default(), Vec::<u8>::new(), Vec::new());
            for round in 0..20u8 {
                output.put(&[round; 11]);
                expected.extend([round; 11]);
                let taken = part.min(output.pending().len());
                sent.extend(&output.pending()[..taken]);
                output.consume(taken);
            }
            sent.extend(output.pending());
            assert_eq!(sent, expected, "parts of {part}");
        }
    }
}
