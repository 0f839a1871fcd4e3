use diecut_nvme::tcp::{
    CommonHeader, DIGEST_SIZE_BYTES, Digests, FatalError, Frame, HEADER_SIZE_MAX_BYTES, PduError,
    Receiver as Side, digest_matches,
};
use diecut_units::checksum_append;
use zerocopy::FromBytes;

/// More data than any PDU to a host has: what a command may receive is checked by its queue pair.
const DATA_LENGTH_MAX_BYTES: u32 = 64 << 20;

/// Finds PDUs in a stream that may be cut anywhere. Headers are copied (at most 128 bytes), data are not.
#[derive(Debug)]
pub(crate) struct Receiver {
    header: [u8; HEADER_SIZE_MAX_BYTES],
    header_received: usize,
    /// Bytes of the current or last header that are there.
    header_length: usize,
    frame: Option<Frame>,
    /// Bytes of the PDU after its header that came.
    body_received: usize,
    checksum: u32,
    digest: [u8; DIGEST_SIZE_BYTES],
}

/// Progress of the stream.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step<'a> {
    /// Everything received is used up.
    More,
    /// A header; data follow if the frame has some, and then [`Step::End`].
    Header(Frame),
    /// Data at this offset in the PDU's data.
    Data(u32, &'a [u8]),
    /// The data are over; `false` if their digest is wrong.
    End(bool),
}

impl Receiver {
    pub(crate) fn new() -> Receiver {
        Receiver {
            header: [0; HEADER_SIZE_MAX_BYTES],
            header_received: 0,
            header_length: 0,
            frame: None,
            body_received: 0,
            checksum: 0,
            digest: [0; DIGEST_SIZE_BYTES],
        }
    }

    /// The header of the current or last PDU as far as it came, for the report on what was wrong with it.
    pub(crate) fn header(&self) -> &[u8] {
        &self.header[..self.header_length]
    }

    /// The header of the current PDU as a fixed structure.
    #[inline]
    pub(crate) fn header_as<T: FromBytes>(&self) -> T {
        T::read_from_prefix(&self.header).expect("headers are no longer than the longest").0
    }

    /// Goes on at `at` in `bytes` until something is to be said.
    #[inline]
    pub(crate) fn step<'a>(
        &mut self,
        bytes: &'a [u8],
        at: &mut usize,
        digests: Digests,
    ) -> Result<Step<'a>, PduError> {
        let Some(frame) = self.frame.filter(|frame| self.header_received == frame.header_end()) else {
            return self.gather_header(bytes, at, digests);
        };
        let body = frame.length() - frame.header_end();
        let data_start = frame.data_start() - frame.header_end();
        let data_end = data_start + frame.data_length();
        while self.body_received < body {
            let rest = &bytes[*at..];
            if rest.is_empty() {
                return Ok(Step::More);
            }
            let from = self.body_received;
            let (border, is_data) = match from {
                from if from < data_start => (data_start, false),
                from if from < data_end => (data_end, true),
                _ => (body, false),
            };
            let part = rest.len().min(border - from);
            *at += part;
            self.body_received += part;
            let rest = &rest[..part];
            if is_data {
                if frame.data_digest() {
                    self.checksum = checksum_append(self.checksum, rest);
                }
                return Ok(Step::Data((from - data_start) as u32, rest));
            }
            if from >= data_end {
                self.digest[from - data_end..from - data_end + part].copy_from_slice(rest);
            }
        }
        self.next_pdu();
        Ok(Step::End(!frame.data_digest() || self.digest == self.checksum.to_le_bytes()))
    }

    #[inline]
    fn gather_header<'a>(
        &mut self,
        bytes: &'a [u8],
        at: &mut usize,
        digests: Digests,
    ) -> Result<Step<'a>, PduError> {
        loop {
            let needed = self.frame.map_or(CommonHeader::SIZE_BYTES, |frame| frame.header_end());
            let part = (needed - self.header_received).min(bytes.len() - *at);
            self.header[self.header_received..self.header_received + part]
                .copy_from_slice(&bytes[*at..*at + part]);
            self.header_received += part;
            self.header_length = self.header_received;
            *at += part;
            if self.header_received < needed {
                return Ok(Step::More);
            }
            let Some(frame) = self.frame else {
                let common = CommonHeader::read_from_prefix(&self.header).expect("eight bytes").0;
                // We ask for no alignment beyond the 4 bytes that are always kept.
                self.frame = Some(Frame::check(&common, Side::Host, digests, 4, DATA_LENGTH_MAX_BYTES)?);
                continue;
            };
            if frame.header_digest() {
                let (header, digest) = self.header[..frame.header_end()].split_at(frame.header_length());
                if !digest_matches(header, digest) {
                    let value = u32::from_le_bytes(digest.try_into().expect("four bytes"));
                    return Err(PduError {
                        fatal: FatalError::HeaderDigest,
                        information: value,
                        field: "HDGST",
                        value: u64::from(value),
                    });
                }
            }
            self.header_length = frame.header_length();
            self.checksum = 0;
            self.body_received = 0;
            if frame.length() == frame.header_end() {
                self.next_pdu();
            }
            return Ok(Step::Header(frame));
        }
    }

    /// Starts afresh; the bytes of the header stay readable until the next one comes.
    #[inline]
    fn next_pdu(&mut self) {
        self.frame = None;
        self.header_received = 0;
    }
}
