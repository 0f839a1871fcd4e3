use diecut_nvme::fdp::DIRECTIVE_DATA_PLACEMENT;
use diecut_nvme::io::{Copy, CopyRange, DatasetManagement, DatasetRange, LbaRange};
use diecut_nvme::openchannel::{self, VectorCommand};
use diecut_nvme::zns::{self, ZoneManagementSend};
use diecut_nvme::{CompletionEntry, Status, SubmissionEntry, opcode::io as opcode};
use diecut_units::Buffer;
use zerocopy::IntoBytes;

/// What the owner calls a command; it comes back with its completion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u64);

/// Blocks of a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LbaSpan {
    /// NSID.
    pub nsid: u32,
    /// First LBA.
    pub first: u64,
    /// LBAs, 1 to 65536.
    pub count: u32,
}

/// A command of the NVM command set, and what zoned namespaces have besides.
#[derive(Clone, Debug)]
pub enum Command {
    /// Reads; `length_bytes` is what comes back (the count times the LBA size).
    Read {
        /// Where.
        span: LbaSpan,
        /// Bytes of it.
        length_bytes: u32,
    },
    /// Writes; the buffer has the LBAs' size.
    Write {
        /// Where.
        span: LbaSpan,
        /// What; kept until the command ended only if an R2T may ask for it.
        data: Buffer,
        /// FUA: done means on the media.
        force_unit_access: bool,
    },
    /// Writes with a placement handle (FDP).
    WritePlaced {
        /// Where.
        span: LbaSpan,
        /// As of a write.
        data: Buffer,
        /// The placement identifier.
        pid: u16,
    },
    /// Fails with [`Status::COMPARE_FAILURE`] if the LBAs hold something else.
    Compare {
        /// Where.
        span: LbaSpan,
        /// What should be there.
        data: Buffer,
    },
    /// Everything written before is durable when it ends.
    Flush {
        /// NSID.
        nsid: u32,
    },
    /// Zeros.
    WriteZeroes {
        /// Where.
        span: LbaSpan,
        /// DEAC: deallocate if that reads as zeros.
        may_deallocate: bool,
        /// FUA: done means on the media.
        force_unit_access: bool,
    },
    /// Dataset Management with AD: the content is not needed any more.
    Deallocate {
        /// Where.
        span: LbaSpan,
    },
    /// The same for several ranges of one namespace, 1 to 256, in any order; they may overlap.
    DeallocateRanges {
        /// Where.
        spans: Vec<LbaSpan>,
    },
    /// Copies within a namespace: 1 to 128 ranges, one behind the other.
    Copy {
        /// What is read.
        sources: Vec<LbaSpan>,
        /// First LBA that is written.
        first: u64,
        /// FUA: done means on the media.
        force_unit_access: bool,
    },
    /// Reads fail with [`Status::UNRECOVERED_READ_ERROR`] until the LBAs are written again.
    WriteUncorrectable {
        /// Where.
        span: LbaSpan,
    },
    /// Reads without sending.
    Verify {
        /// Where.
        span: LbaSpan,
    },
    /// Changes the state of one zone.
    ActOnZone {
        /// NSID.
        nsid: u32,
        /// First LBA of the zone.
        zone_lba: u64,
        /// See [`diecut_nvme::zns::send_action`].
        action: u8,
    },
    /// Makes one chunk free (Open-Channel).
    ResetChunk {
        /// NSID.
        nsid: u32,
        /// Its first LBA.
        lba: u64,
    },
}

impl Command {
    /// Entry (without id and descriptor), data for the controller, and bytes to come.
    pub(crate) fn encode(self) -> (SubmissionEntry, Option<Buffer>, u32) {
        let on = |code: u8, span: LbaSpan, force_unit_access: bool, deallocate: bool| {
            let mut entry =
                SubmissionEntry { opcode: code, nsid: span.nsid.into(), ..SubmissionEntry::default() };
            LbaRange { force_unit_access, deallocate, ..LbaRange::plain(span.first, span.count) }
                .encode(&mut entry);
            entry
        };
        match self {
            Command::Read { span, length_bytes } => {
                (on(opcode::READ, span, false, false), None, length_bytes)
            }
            Command::Write { span, data, force_unit_access } => {
                (on(opcode::WRITE, span, force_unit_access, false), Some(data), 0)
            }
            Command::WritePlaced { span, data, pid } => {
                let mut entry = SubmissionEntry {
                    opcode: opcode::WRITE,
                    nsid: span.nsid.into(),
                    ..SubmissionEntry::default()
                };
                let (directive_type, directive_specific) = (DIRECTIVE_DATA_PLACEMENT, pid);
                let plain = LbaRange::plain(span.first, span.count);
                LbaRange { directive_type, directive_specific, ..plain }.encode(&mut entry);
                (entry, Some(data), 0)
            }
            Command::Compare { span, data } => (on(opcode::COMPARE, span, false, false), Some(data), 0),
            Command::Flush { nsid } => {
                let entry = SubmissionEntry {
                    opcode: opcode::FLUSH,
                    nsid: nsid.into(),
                    ..SubmissionEntry::default()
                };
                (entry, None, 0)
            }
            Command::WriteZeroes { span, may_deallocate, force_unit_access } => {
                (on(opcode::WRITE_ZEROES, span, force_unit_access, may_deallocate), None, 0)
            }
            Command::WriteUncorrectable { span } => {
                (on(opcode::WRITE_UNCORRECTABLE, span, false, false), None, 0)
            }
            Command::Copy { sources, first, force_unit_access } => copy(&sources, first, force_unit_access),
            Command::Verify { span } => (on(opcode::VERIFY, span, false, false), None, 0),
            Command::Deallocate { span } => deallocate(&[span]),
            Command::ActOnZone { nsid, zone_lba, action } => (act_on_zone(nsid, zone_lba, action), None, 0),
            Command::ResetChunk { nsid, lba } => {
                let code = openchannel::opcode::VECTOR_RESET;
                let mut entry =
                    SubmissionEntry { opcode: code, nsid: nsid.into(), ..SubmissionEntry::default() };
                // A single address is in the dwords, and needs no list.
                VectorCommand { lba, count: 1, destination: 0 }.encode(&mut entry);
                (entry, None, 0)
            }
            Command::DeallocateRanges { spans } => deallocate(&spans),
        }
    }
}

pub(crate) fn copy(
    sources: &[LbaSpan],
    start: u64,
    force_unit_access: bool,
) -> (SubmissionEntry, Option<Buffer>, u32) {
    let nsid = sources[0].nsid.into();
    let mut entry = SubmissionEntry { opcode: opcode::COPY, nsid, ..SubmissionEntry::default() };
    let range_count = sources.len() as u32;
    let copy = Copy { start, range_count, force_unit_access, ..Copy::default() };
    copy.encode(&mut entry);
    let range = |span: &LbaSpan| CopyRange {
        start: span.first.into(),
        lba_count_less_one: ((span.count - 1) as u16).into(),
        ..CopyRange::default()
    };
    let bytes: Vec<u8> = sources.iter().flat_map(|span| range(span).as_bytes().to_vec()).collect();
    (entry, Some(Buffer::copy_from(&bytes)), 0)
}

pub(crate) fn act_on_zone(nsid: u32, lba: u64, action: u8) -> SubmissionEntry {
    let code = zns::opcode::ZONE_MANAGEMENT_SEND;
    let mut entry = SubmissionEntry { opcode: code, nsid: nsid.into(), ..SubmissionEntry::default() };
    ZoneManagementSend { lba, action, select_all: false, option: false }.encode(&mut entry);
    entry
}

fn deallocate(spans: &[LbaSpan]) -> (SubmissionEntry, Option<Buffer>, u32) {
    let nsid = spans[0].nsid.into();
    let mut entry =
        SubmissionEntry { opcode: opcode::DATASET_MANAGEMENT, nsid, ..SubmissionEntry::default() };
    DatasetManagement { range_count: spans.len() as u32, deallocate: true }.encode(&mut entry);
    let mut bytes = [0; 256 * DatasetRange::SIZE_BYTES];
    let bytes = &mut bytes[..spans.len() * DatasetRange::SIZE_BYTES];
    for (bytes, span) in bytes.chunks_exact_mut(DatasetRange::SIZE_BYTES).zip(spans) {
        let range = DatasetRange {
            context_attributes: 0.into(),
            lba_count: span.count.into(),
            start: span.first.into(),
        };
        bytes.copy_from_slice(range.as_bytes());
    }
    (entry, Some(Buffer::copy_from(bytes)), 0)
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// Which.
    pub token: Token,
    /// How.
    pub status: Status,
    /// Dwords 0 and 1.
    pub result: u64,
    /// Bytes of data that came.
    pub received_bytes: u32,
}

impl Completion {
    pub(crate) fn of(token: Token, entry: &CompletionEntry, received_bytes: u32) -> Completion {
        Completion { token, status: entry.status(), result: entry.result(), received_bytes }
    }
}

/// Takes what a queue pair received.
pub trait Sink {
    /// The bytes at `offset` of a command's data. They come in order; the slice is only lent. If their digest turns out
    /// wrong, the command ends with [`Status::DATA_TRANSFER_ERROR`].
    fn data(&mut self, token: Token, offset: u32, bytes: &[u8]);
    /// A command ended.
    fn completed(&mut self, completion: Completion);
}

/// Completions only; data are dropped.
impl Sink for Vec<Completion> {
    fn data(&mut self, _token: Token, _offset: u32, _bytes: &[u8]) {}
    fn completed(&mut self, completion: Completion) {
        self.push(completion);
    }
}

/// Keeps everything: for tests and for commands that are few.
#[derive(Debug, Default)]
pub struct Collect {
    /// Completions in the order they came.
    pub completions: Vec<Completion>,
    /// Data by command.
    pub data: std::collections::BTreeMap<Token, Vec<u8>>,
}

impl Sink for Collect {
    fn data(&mut self, token: Token, offset: u32, bytes: &[u8]) {
        let data = self.data.entry(token).or_default();
        data.truncate(offset as usize);
        data.extend_from_slice(bytes);
    }
    fn completed(&mut self, completion: Completion) {
        self.completions.push(completion);
    }
}
