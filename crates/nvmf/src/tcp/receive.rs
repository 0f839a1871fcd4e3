use diecut_nvme::tcp::{
    CapsuleCommand, CommonHeader, DIGEST_SIZE_BYTES, Digests, FatalError, Frame, HEADER_SIZE_MAX_BYTES,
    PduError, Receiver as Side, digest_matches,
};
use diecut_units::{Buffer, BufferMut, BufferPool};
use zerocopy::FromBytes;

/// The header that comes most: of a command, without a digest.
const COMMAND_SIZE_BYTES: usize = size_of::<CapsuleCommand>();

/// Finds PDUs in a stream that may be cut anywhere.
///
/// A header is copied into a small array (it is read once, and may straddle two buffers). Data that lie whole in the
/// received buffer become a slice of it; data that do not are gathered in a buffer of their own.
#[derive(Debug)]
pub(crate) struct Receiver {
    header: [u8; HEADER_SIZE_MAX_BYTES],
    header_received: usize,
    frame: Option<Frame>,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    Header,
    /// Header seen; the owner must say where the data go.
    Decide,
    /// Bytes between header and data, and data nobody wants.
    Skip {
        remaining: usize,
        then: Option<Destination>,
    },
    Gather {
        buffer: BufferMut,
        start: usize,
        received: usize,
    },
    /// Data digest of gathered data.
    Digest {
        buffer: BufferMut,
        start: usize,
        digest: [u8; DIGEST_SIZE_BYTES],
        received: usize,
    },
}

/// Where the data of a PDU go.
#[derive(Debug)]
pub(crate) enum Destination {
    /// Wherever they can lie without a copy.
    Anywhere,
    /// Into a buffer, from `start` on.
    Into(BufferMut, usize),
    /// Nowhere.
    Nowhere,
}

/// Progress of the stream.
#[derive(Debug)]
pub(crate) enum Step {
    /// Everything received is used up.
    More,
    /// A header is complete and its digest is right. If the frame has data, [`Receiver::take_data`] comes next.
    Header,
    /// Data asked for with [`Destination::Anywhere`]; `false` if their digest is wrong.
    Data(Buffer, bool),
    /// Data asked for with [`Destination::Into`]; `false` if their digest is wrong.
    Filled(BufferMut, bool),
    /// Data asked for with [`Destination::Nowhere`] are over.
    Skipped,
    /// The connection must end.
    Failed(PduError),
}

impl Receiver {
    pub(crate) fn new() -> Receiver {
        Receiver { header: [0; HEADER_SIZE_MAX_BYTES], header_received: 0, frame: None, stage: Stage::Header }
    }

    /// The header of the current PDU, as far as it came, without its digest.
    #[inline]
    pub(crate) fn header(&self) -> &[u8] {
        let length = self.frame.map_or(self.header_received, |frame| frame.header_length());
        &self.header[..length.min(self.header_received)]
    }

    /// The borders of the PDU whose header was announced.
    ///
    /// # Panics
    /// If none was, or it is over.
    #[inline]
    pub(crate) fn frame(&self) -> &Frame {
        self.frame.as_ref().expect("I-T12: a header is there")
    }

    /// Whether nothing of a PDU has come yet.
    pub(crate) fn is_between_pdus(&self) -> bool {
        self.header_received == 0
    }

    /// The header of the current PDU as a fixed structure.
    #[inline]
    pub(crate) fn header_as<T: FromBytes>(&self) -> T {
        T::read_from_prefix(self.header()).expect("I-T12: a header is as long as its type says").0
    }

    /// Says where the data of the frame just announced go. A frame without data needs no call.
    #[inline]
    pub(crate) fn take_data(&mut self, destination: Destination) {
        assert!(matches!(self.stage, Stage::Decide), "I-T2: data are announced by a header");
        let frame = self.frame.expect("I-T12: a header is there");
        let padding = frame.data_start() - frame.header_end();
        self.stage = match destination {
            Destination::Nowhere => {
                Stage::Skip { remaining: frame.length() - frame.header_end(), then: None }
            }
            destination => Stage::Skip { remaining: padding, then: Some(destination) },
        };
    }

    /// Goes on at `at` in `bytes` until something is to be said.
    #[inline]
    pub(crate) fn step(
        &mut self,
        bytes: &Buffer,
        at: &mut usize,
        digests: Digests,
        data_length_max: u32,
        pool: &mut BufferPool,
    ) -> Step {
        loop {
            match &mut self.stage {
                Stage::Header => return self.gather_header(bytes, at, digests, data_length_max),
                Stage::Decide => panic!("the owner says where data go before it goes on"),
                Stage::Skip { remaining, then } => {
                    let part = (*remaining).min(bytes.len() - *at);
                    *remaining -= part;
                    *at += part;
                    if *remaining > 0 {
                        return Step::More;
                    }
                    match then.take() {
                        None => {
                            self.next_pdu();
                            return Step::Skipped;
                        }
                        Some(Destination::Into(buffer, start)) => {
                            self.stage = Stage::Gather { buffer, start, received: 0 };
                        }
                        Some(Destination::Anywhere) => {
                            let frame = self.frame.expect("I-T12: a header is there");
                            let trailer = if frame.data_digest() { DIGEST_SIZE_BYTES } else { 0 };
                            let end = *at + frame.data_length();
                            if end + trailer <= bytes.len() {
                                let data = bytes.slice(*at..end);
                                let right =
                                    !frame.data_digest() || digest_matches(&data, &bytes[end..end + trailer]);
                                *at = end + trailer;
                                self.next_pdu();
                                return Step::Data(data, right);
                            }
                            let buffer = pool.take(frame.data_length());
                            self.stage = Stage::Gather { buffer, start: usize::MAX, received: 0 };
                        }
                        Some(Destination::Nowhere) => unreachable!("skipped whole"),
                    }
                }
                Stage::Gather { buffer, start, received } => {
                    let frame = self.frame.expect("I-T12: a header is there");
                    let offset = if *start == usize::MAX { 0 } else { *start };
                    let part = (frame.data_length() - *received).min(bytes.len() - *at);
                    buffer[offset + *received..offset + *received + part]
                        .copy_from_slice(&bytes[*at..*at + part]);
                    *received += part;
                    *at += part;
                    if *received < frame.data_length() {
                        return Step::More;
                    }
                    match self.gathered() {
                        Some(step) => return step,
                        None => continue,
                    }
                }
                Stage::Digest { digest, received, .. } => {
                    let part = (DIGEST_SIZE_BYTES - *received).min(bytes.len() - *at);
                    digest[*received..*received + part].copy_from_slice(&bytes[*at..*at + part]);
                    *received += part;
                    *at += part;
                    if *received < DIGEST_SIZE_BYTES {
                        return Step::More;
                    }
                    let digest = *digest;
                    let frame = self.frame.expect("I-T12: a header is there");
                    let Stage::Digest { buffer, start, .. } =
                        std::mem::replace(&mut self.stage, Stage::Header)
                    else {
                        unreachable!("matched above")
                    };
                    let offset = if start == usize::MAX { 0 } else { start };
                    let right = digest_matches(&buffer[offset..offset + frame.data_length()], &digest);
                    self.next_pdu();
                    return done(buffer, start, right);
                }
            }
        }
    }

    /// Where the next bytes of gathered data go, so that a driver can receive right into place.
    pub(crate) fn window(&mut self) -> Option<&mut [u8]> {
        let frame = self.frame?;
        match &mut self.stage {
            Stage::Gather { buffer, start, received } => {
                let offset = if *start == usize::MAX { 0 } else { *start };
                Some(&mut buffer[offset + *received..offset + frame.data_length()])
            }
            _ => None,
        }
    }

    /// `bytes` were received into the window.
    pub(crate) fn advance_window(&mut self, bytes: usize) -> Option<Step> {
        let frame = self.frame.expect("I-T12: data come after their header");
        let Stage::Gather { received, .. } = &mut self.stage else { panic!("there is a window") };
        *received += bytes;
        assert!(*received <= frame.data_length(), "I-T2: no more comes than the window");
        if *received == frame.data_length() { self.gathered() } else { None }
    }

    fn gathered(&mut self) -> Option<Step> {
        let frame = self.frame.expect("I-T12: a header is there");
        let Stage::Gather { buffer, start, .. } = std::mem::replace(&mut self.stage, Stage::Header) else {
            unreachable!("called while gathering")
        };
        if frame.data_digest() {
            self.stage = Stage::Digest { buffer, start, digest: [0; DIGEST_SIZE_BYTES], received: 0 };
            return None;
        }
        self.next_pdu();
        Some(done(buffer, start, true))
    }

    /// Takes the next `N` bytes of the header if `before` of it have come and those lie whole in what was received, as they mostly do: a
    /// copy of a length that is known.
    #[inline(always)]
    fn gather_whole<const N: usize>(&mut self, bytes: &[u8], at: &mut usize, before: usize) {
        if self.header_received == before
            && let Some(whole) = bytes.get(*at..).and_then(|rest| rest.first_chunk::<N>())
            && let Some(place) = self.header[before..].first_chunk_mut::<N>()
        {
            *place = *whole;
            self.header_received += N;
            *at += N;
        }
    }

    /// Takes bytes of the header until there are so many; `false` if more have to come.
    fn gather(&mut self, bytes: &[u8], at: &mut usize, needed: usize) -> bool {
        let part = (needed - self.header_received).min(bytes.len() - *at);
        self.header[self.header_received..self.header_received + part]
            .copy_from_slice(&bytes[*at..*at + part]);
        self.header_received += part;
        *at += part;
        self.header_received == needed
    }

    #[inline]
    fn gather_header(
        &mut self,
        bytes: &Buffer,
        at: &mut usize,
        digests: Digests,
        data_length_max: u32,
    ) -> Step {
        let frame = match self.frame {
            Some(frame) => frame,
            None => {
                self.gather_whole::<{ CommonHeader::SIZE_BYTES }>(bytes, at, 0);
                if self.header_received < CommonHeader::SIZE_BYTES
                    && !self.gather(bytes, at, CommonHeader::SIZE_BYTES)
                {
                    return Step::More;
                }
                let common = CommonHeader::read_from_prefix(&self.header).expect("eight bytes").0;
                match Frame::check(&common, Side::Controller, digests, 4, data_length_max) {
                    Ok(frame) => *self.frame.insert(frame),
                    Err(error) => return Step::Failed(error),
                }
            }
        };
        if frame.header_end() == COMMAND_SIZE_BYTES {
            const REST: usize = COMMAND_SIZE_BYTES - CommonHeader::SIZE_BYTES;
            self.gather_whole::<REST>(bytes, at, CommonHeader::SIZE_BYTES);
        }
        if self.header_received < frame.header_end() && !self.gather(bytes, at, frame.header_end()) {
            return Step::More;
        }
        if frame.header_digest() {
            let (header, digest) = self.header[..frame.header_end()].split_at(frame.header_length());
            if !digest_matches(header, digest) {
                let value = u32::from_le_bytes(digest.try_into().expect("four bytes"));
                return Step::Failed(PduError {
                    fatal: FatalError::HeaderDigest,
                    information: value,
                    field: "HDGST",
                    value: u64::from(value),
                });
            }
        }
        // Without data, too, the header stays readable until the next byte is taken.
        self.stage =
            if frame.data_length() > 0 { Stage::Decide } else { Stage::Skip { remaining: 0, then: None } };
        Step::Header
    }

    /// Forgets a frame without data, after its header was read.
    #[inline]
    pub(crate) fn finish_header(&mut self) {
        assert!(
            matches!(self.stage, Stage::Skip { remaining: 0, then: None }),
            "I-T2: a frame without data ends with its header"
        );
        self.next_pdu();
    }

    #[inline]
    fn next_pdu(&mut self) {
        self.stage = Stage::Header;
        self.header_received = 0;
        self.frame = None;
    }
}

fn done(buffer: BufferMut, start: usize, right: bool) -> Step {
    if start == usize::MAX { Step::Data(buffer.freeze(), right) } else { Step::Filled(buffer, right) }
}
