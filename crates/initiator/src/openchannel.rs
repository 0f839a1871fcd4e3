//! Chunks of an Open-Channel 2.0 namespace: reads geometry and chunk information, keeps write pointers, and makes commands for chunks by their
//! number.
//!
//! It sends nothing: a [`Request`] goes to [`crate::Admin::submit_entry`] or [`crate::QueuePair::submit_entry`], and how it ended comes back to
//! [`OpenChannel::ended`]. After a command that failed, how the chunks that it wrote are is read again before they are written.

use diecut_nvme::admin::GetLogPage;
use diecut_nvme::feature::SetFeatures;
use diecut_nvme::openchannel::{
    AddressFormat, ChunkDescriptor, ChunkNotification, Geometry, LBAS_MAX, LOG_ENTRIES_MAX, VectorCommand,
    chunk_state, fid, lid, notification_mask, opcode,
};
use diecut_nvme::{DecodeError, Status, SubmissionEntry, opcode::admin};
use diecut_units::Buffer;
use zerocopy::FromBytes;

/// A command to be sent.
#[derive(Clone, Debug)]
pub struct Request {
    /// The entry without id and descriptor.
    pub entry: SubmissionEntry,
    /// The data that it carries.
    pub data: Option<Buffer>,
    /// Bytes that it brings.
    pub expected_bytes: u32,
    /// What it does; goes to [`OpenChannel::ended`].
    pub effect: Effect,
}

/// What a command does to chunks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Effect {
    /// Nothing.
    #[default]
    None,
    /// It writes to these.
    Writes(Vec<u32>),
    /// It makes these free.
    Resets(Vec<u32>),
}

/// Why a command cannot be made: it would be refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChunkUseError {
    /// There is no such chunk, or it has fewer blocks.
    #[error("chunk {chunk}: it is not there, or has fewer blocks")]
    NotThere {
        /// Which.
        chunk: u32,
    },
    /// It takes no writes, or how it is must be read first.
    #[error("chunk {chunk}: it takes no writes: reset it, or read how it is")]
    TakesNoWrites {
        /// Which.
        chunk: u32,
    },
    /// A write is a multiple of `unit` blocks, and one command has at most 64.
    #[error("{blocks} blocks: a write is a multiple of {unit} blocks, and a command has {LBAS_MAX} at most")]
    Length {
        /// Blocks that were asked for.
        blocks: u32,
        /// Blocks of a write.
        unit: u32,
    },
}

/// An entry of the chunk notification log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notification {
    /// Rises by 1 with each entry of a controller: where it does not, entries were lost.
    pub count: u64,
    /// Which chunk; of a mask of a parallel unit the first one of it.
    pub chunk: u32,
    /// Which blocks of it.
    pub blocks: std::ops::Range<u32>,
    /// See [`notification_mask`].
    pub mask: u8,
    /// See [`diecut_nvme::openchannel::notification_state`].
    pub state: u16,
}

/// What a host knows of a chunk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChunkFacts {
    /// See [`chunk_state`]; 0 if that must be read first.
    pub state: u8,
    /// WLI.
    pub wear: u8,
    /// Blocks before its write pointer, those of writes under way included.
    pub written: u32,
}

/// What a namespace with chunks is. A chunk's number counts over parallel units and groups, as in the chunk information log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkedNamespace {
    /// NSID.
    pub nsid: u32,
    /// How addresses are made.
    format: AddressFormat,
    /// Groups.
    pub groups: u16,
    /// Parallel units of a group.
    pub units: u16,
    /// Chunks of a parallel unit.
    pub chunks: u32,
    /// Logical blocks of a chunk.
    pub chunk_lbas: u32,
    /// WS_MIN: a write is a multiple of so many logical blocks.
    pub write_min_lbas: u32,
    /// MW_CUNITS: logical blocks behind one of an open chunk before it can be read.
    pub cached_lbas: u32,
    /// Chunks that may be open at once, of all and of a parallel unit; 0: all.
    pub open_max: [u32; 2],
    /// Usual times in nanoseconds of a read, a write of WS_MIN, and a reset; 0 if unknown.
    pub times_ns: [u32; 3],
}

impl ChunkedNamespace {
    /// From the page of [`OpenChannel::ask_geometry`].
    ///
    /// # Errors
    /// The bytes are no geometry of revision 2, or one with more than 2^24 chunks.
    pub fn of(nsid: u32, geometry: &[u8]) -> Result<ChunkedNamespace, DecodeError> {
        let wrong = |field, value: u64| DecodeError::Field { field, value };
        let size = geometry.len() as u64;
        let page = Geometry::read_from_bytes(geometry).map_err(|_| wrong("geometry", size))?;
        if page.major != 2 {
            return Err(wrong("MJR", page.major.into()));
        }
        let units = u64::from(page.groups.get()) * u64::from(page.units.get());
        let chunks = units * u64::from(page.chunks.get());
        if chunks == 0 || chunks > 1 << 24 {
            return Err(wrong("NUM_CHK", chunks));
        }
        if page.format.bits().is_none() || page.write_min.get() == 0 {
            return Err(wrong("LBAF", u64::from(page.write_min.get())));
        }
        Ok(ChunkedNamespace {
            nsid,
            format: page.format,
            groups: page.groups.get(),
            units: page.units.get(),
            chunks: page.chunks.get(),
            chunk_lbas: page.chunk_blocks.get(),
            write_min_lbas: page.write_min.get(),
            cached_lbas: page.cached_units.get(),
            open_max: [page.open_max.get(), page.open_of_unit_max.get()],
            times_ns: [page.read_typical_ns.get(), page.write_typical_ns.get(), page.reset_typical_ns.get()],
        })
    }

    /// Chunks of all parallel units.
    pub fn all_chunks(&self) -> u32 {
        u32::from(self.groups) * u32::from(self.units) * self.chunks
    }

    /// Most chunks that a report of so many bytes can tell.
    pub fn chunks_per_report(&self, length_bytes: u32) -> u32 {
        length_bytes / ChunkDescriptor::SIZE_BYTES as u32
    }

    /// The admin command that asks how `count` chunks from the `first` on are.
    pub fn report(&self, first: u32, count: u32) -> Request {
        let size = ChunkDescriptor::SIZE_BYTES as u64;
        let (offset, length_bytes) = (u64::from(first) * size, u64::from(count) * size);
        let mut entry = SubmissionEntry {
            opcode: admin::GET_LOG_PAGE,
            nsid: self.nsid.into(),
            ..SubmissionEntry::default()
        };
        GetLogPage { offset, ..GetLogPage::of(lid::CHUNK_INFORMATION, length_bytes) }.encode(&mut entry);
        Request { entry, data: None, expected_bytes: length_bytes as u32, effect: Effect::None }
    }

    /// The chunks of a report, in its order.
    pub fn chunks_of(report: &[u8]) -> impl Iterator<Item = ChunkFacts> + '_ {
        report.chunks_exact(ChunkDescriptor::SIZE_BYTES).map(|bytes| {
            let found = ChunkDescriptor::read_from_bytes(bytes).expect("cut to its size");
            let written = u32::try_from(found.write_pointer.get()).unwrap_or(u32::MAX);
            ChunkFacts { state: found.state & 0x7F, wear: found.wear, written }
        })
    }

    /// The address of a logical block of a chunk.
    pub fn lba(&self, chunk: u32, block: u32) -> u64 {
        let (unit, number) = (chunk / self.chunks, chunk % self.chunks);
        let units = u32::from(self.units);
        self.format.encode(unit / units, unit % units, number, block)
    }

    /// The chunk and block of a group, parallel unit, chunk and block, if they are there.
    fn place(&self, [group, unit, number, block]: [u32; 4]) -> Option<(u32, u32)> {
        let units = u32::from(self.units);
        let is_there = group < self.groups.into() && unit < units && number < self.chunks;
        (is_there && block < self.chunk_lbas).then(|| ((group * units + unit) * self.chunks + number, block))
    }
}

/// The chunks of one namespace, with what is known of each.
#[derive(Clone, Debug)]
pub struct OpenChannel {
    namespace: ChunkedNamespace,
    geometry: Geometry,
    chunks: Vec<ChunkFacts>,
}

impl OpenChannel {
    /// The admin command that asks for the geometry of a namespace: 4096 bytes.
    pub fn ask_geometry(nsid: u32) -> Request {
        let entry =
            SubmissionEntry { opcode: opcode::GEOMETRY, nsid: nsid.into(), ..SubmissionEntry::default() };
        Request { entry, data: None, expected_bytes: Geometry::SIZE_BYTES as u32, effect: Effect::None }
    }

    /// A namespace of this geometry. How its chunks are is not known yet: see [`OpenChannel::ask_chunks`].
    ///
    /// # Errors
    /// The bytes are no geometry of revision 2, or one with more than 2^24 chunks.
    pub fn new(nsid: u32, geometry: &[u8]) -> Result<OpenChannel, DecodeError> {
        let namespace = ChunkedNamespace::of(nsid, geometry)?;
        let geometry = Geometry::read_from_bytes(geometry).expect("it was read just now");
        let chunks = vec![ChunkFacts::default(); namespace.all_chunks() as usize];
        Ok(OpenChannel { namespace, geometry, chunks })
    }

    /// The geometry.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// What is known of all chunks.
    pub fn chunks(&self) -> &[ChunkFacts] {
        &self.chunks
    }

    /// The admin command that asks how `count` chunks from the `first` on are.
    pub fn ask_chunks(&self, first: u32, count: u32) -> Request {
        self.namespace.report(first, count)
    }

    /// Takes what [`OpenChannel::ask_chunks`] brought, for chunks from the `first` on. No write to them may be under way.
    pub fn take_chunks(&mut self, first: u32, page: &[u8]) {
        let told = ChunkedNamespace::chunks_of(page);
        for (place, found) in self.chunks.iter_mut().skip(first as usize).zip(told) {
            *place = found;
        }
    }

    /// The admin command that sets whether vector reads of data that is hard to read end with the status High ECC, and the bits of
    /// [`failed_blocks`] for it; what was read comes all the same.
    pub fn set_feedback(&self, is_on: bool) -> Request {
        let mut entry = SubmissionEntry {
            opcode: admin::SET_FEATURES,
            nsid: self.namespace.nsid.into(),
            ..SubmissionEntry::default()
        };
        let value = if is_on { fid::FEEDBACK_HIGH_ECC } else { 0 };
        SetFeatures { feature: fid::MEDIA_FEEDBACK, save: false, value }.encode(&mut entry);
        Request { entry, data: None, expected_bytes: 0, effect: Effect::None }
    }

    /// The admin command that takes the entries of the chunk notification log: they are gone then.
    pub fn ask_notifications(&self) -> Request {
        let length_bytes = (LOG_ENTRIES_MAX * ChunkNotification::SIZE_BYTES) as u64;
        let mut entry = SubmissionEntry {
            opcode: admin::GET_LOG_PAGE,
            nsid: self.namespace.nsid.into(),
            ..SubmissionEntry::default()
        };
        GetLogPage::of(lid::CHUNK_NOTIFICATION, length_bytes).encode(&mut entry);
        Request { entry, data: None, expected_bytes: length_bytes as u32, effect: Effect::None }
    }

    /// What [`OpenChannel::ask_notifications`] brought of this namespace, the oldest first.
    ///
    /// # Errors
    /// An entry names a chunk that is not there, or blocks beyond it.
    pub fn notifications(&self, page: &[u8]) -> Result<Vec<Notification>, DecodeError> {
        let wrong = |field, value: u64| DecodeError::Field { field, value };
        let entries = page.chunks_exact(ChunkNotification::SIZE_BYTES);
        let entries =
            entries.map(|bytes| ChunkNotification::read_from_bytes(bytes).expect("cut to its size"));
        let of_us =
            |entry: &ChunkNotification| entry.count.get() > 0 && entry.nsid.get() == self.namespace.nsid;
        let mut found = Vec::new();
        for entry in entries.filter(of_us) {
            let lba = entry.lba.get();
            let place = self.geometry.format.decode(lba).and_then(|place| self.namespace.place(place));
            let (chunk, block) = place.ok_or(wrong("LBA", lba))?;
            let size = self.geometry.chunk_blocks.get();
            let blocks = match entry.mask {
                notification_mask::LOGICAL_BLOCKS => block..block + u32::from(entry.block_count.get()) + 1,
                _ => 0..size,
            };
            if blocks.end > size {
                return Err(wrong("NLB", u64::from(entry.block_count.get())));
            }
            let (mask, state) = (entry.mask, entry.state.get());
            found.push(Notification { count: entry.count.get(), chunk, blocks, mask, state });
        }
        Ok(found)
    }

    fn blocks(&self, chunk: u32, first: u32, count: u32) -> Result<impl Iterator<Item = u64>, ChunkUseError> {
        let end = first.checked_add(count).filter(|end| *end <= self.geometry.chunk_blocks.get());
        if end.is_none() || self.chunks.len() <= chunk as usize {
            return Err(ChunkUseError::NotThere { chunk });
        }
        let lba = self.namespace.lba(chunk, first);
        Ok((0..u64::from(count)).map(move |at| lba + at))
    }

    fn vector(&self, code: u8, lbas: &[u64], to: &[u64], content: &[u8]) -> Request {
        let mut entry =
            SubmissionEntry { opcode: code, nsid: self.namespace.nsid.into(), ..SubmissionEntry::default() };
        let (lba, destination) = (lbas[0], to.first().copied().unwrap_or(0));
        VectorCommand { lba, count: lbas.len() as u32, destination }.encode(&mut entry);
        // A list goes before the data; a single address is in the dwords.
        let listed = lbas.iter().chain(to).filter(|_| lbas.len() > 1);
        let mut data: Vec<u8> = listed.flat_map(|lba| lba.to_le_bytes()).collect();
        data.extend_from_slice(content);
        let data = (!data.is_empty()).then(|| Buffer::copy_from(&data));
        Request { entry, data, expected_bytes: 0, effect: Effect::None }
    }

    fn check_writable(&self, chunk: u32) -> Result<(), ChunkUseError> {
        let of = self.chunks.get(chunk as usize).ok_or(ChunkUseError::NotThere { chunk })?;
        let takes = matches!(of.state, chunk_state::FREE | chunk_state::OPEN);
        if takes { Ok(()) } else { Err(ChunkUseError::TakesNoWrites { chunk }) }
    }

    /// The blocks at the write pointers of chunks, so many of each; the pointers go behind them.
    fn advance(&mut self, parts: &[(u32, u32)]) -> Result<Vec<u64>, ChunkUseError> {
        let unit = self.geometry.write_min.get();
        let all: u64 = parts.iter().map(|(_, blocks)| u64::from(*blocks)).sum();
        if all == 0 || all > u64::from(LBAS_MAX) || parts.iter().any(|(_, blocks)| blocks % unit != 0) {
            return Err(ChunkUseError::Length { blocks: all.min(u32::MAX.into()) as u32, unit });
        }
        let before = self.chunks.clone();
        let mut lbas = Vec::new();
        for &(chunk, count) in parts {
            let taken = self.check_writable(chunk).and_then(|()| {
                let first = self.chunks[chunk as usize].written;
                self.blocks(chunk, first, count).map(|blocks| lbas.extend(blocks))
            });
            if let Err(error) = taken {
                self.chunks = before;
                return Err(error);
            }
            let of = &mut self.chunks[chunk as usize];
            of.written += count;
            let is_full = of.written == self.geometry.chunk_blocks.get();
            of.state = if is_full { chunk_state::CLOSED } else { chunk_state::OPEN };
        }
        Ok(lbas)
    }

    /// Writes `content` at the write pointers of chunks: of each part the chunk and its number of blocks, in the order of the content.
    ///
    /// # Errors
    /// It would be refused; nothing changed.
    pub fn write(&mut self, parts: &[(u32, u32)], content: &[u8]) -> Result<Request, ChunkUseError> {
        let lbas = self.advance(parts)?;
        let effect = Effect::Writes(parts.iter().map(|(chunk, _)| *chunk).collect());
        Ok(Request { effect, ..self.vector(opcode::VECTOR_WRITE, &lbas, &[], content) })
    }

    /// Reads blocks of several chunks, each its chunk and its number in it, in this order: 64 at most. Their list goes in the command's capsule,
    /// so the queue must take 8 bytes for each there. If some cannot be read, [`failed_blocks`] of the result says which, and the data has
    /// the others.
    ///
    /// # Errors
    /// It would be refused.
    pub fn read_list(&self, blocks: &[(u32, u32)], lba_bytes: u32) -> Result<Request, ChunkUseError> {
        if blocks.is_empty() || blocks.len() > LBAS_MAX as usize {
            return Err(ChunkUseError::Length { blocks: blocks.len() as u32, unit: 1 });
        }
        let mut lbas = Vec::with_capacity(blocks.len());
        for &(chunk, block) in blocks {
            lbas.extend(self.blocks(chunk, block, 1)?);
        }
        let expected_bytes = blocks.len() as u32 * lba_bytes;
        Ok(Request { expected_bytes, ..self.vector(opcode::VECTOR_READ, &lbas, &[], &[]) })
    }

    /// Reads blocks of a chunk that follow each other, 64 at most. Those within MW_CUNITS of the write pointer of an open chunk cannot be read.
    ///
    /// # Errors
    /// It would be refused.
    pub fn read(&self, chunk: u32, first: u32, count: u32, lba_bytes: u32) -> Result<Request, ChunkUseError> {
        if count == 0 || count > LBAS_MAX {
            return Err(ChunkUseError::Length { blocks: count, unit: 1 });
        }
        let lba = self.blocks(chunk, first, count)?.next().expect("it has blocks");
        let mut entry = SubmissionEntry {
            opcode: opcode::VECTOR_READ,
            nsid: self.namespace.nsid.into(),
            ..SubmissionEntry::default()
        };
        VectorCommand { lba, count, destination: 0 }.encode(&mut entry);
        Ok(Request { entry, data: None, expected_bytes: count * lba_bytes, effect: Effect::None })
    }

    /// Makes chunks free, 1 to 64 of them.
    ///
    /// # Errors
    /// It would be refused.
    pub fn reset(&mut self, chunks: &[u32]) -> Result<Request, ChunkUseError> {
        if chunks.is_empty() || chunks.len() > LBAS_MAX as usize {
            return Err(ChunkUseError::Length { blocks: chunks.len() as u32, unit: 1 });
        }
        let mut lbas = Vec::new();
        for chunk in chunks {
            lbas.extend(self.blocks(*chunk, 0, 1)?);
        }
        for chunk in chunks {
            self.chunks[*chunk as usize].state = 0;
        }
        Ok(Request {
            effect: Effect::Resets(chunks.to_vec()),
            ..self.vector(opcode::VECTOR_RESET, &lbas, &[], &[])
        })
    }

    /// Copies blocks of a chunk to the write pointer of another one.
    ///
    /// # Errors
    /// It would be refused; nothing changed.
    pub fn copy(&mut self, (from, first): (u32, u32), to: u32, count: u32) -> Result<Request, ChunkUseError> {
        let sources: Vec<u64> = self.blocks(from, first, count)?.collect();
        let lbas = self.advance(&[(to, count)])?;
        Ok(Request {
            effect: Effect::Writes(vec![to]),
            ..self.vector(opcode::VECTOR_COPY, &sources, &lbas, &[])
        })
    }

    /// A command ended.
    pub fn ended(&mut self, effect: &Effect, status: Status) {
        match effect {
            Effect::None => {}
            Effect::Resets(chunks) if status.is_success() => {
                for chunk in chunks {
                    let of = &mut self.chunks[*chunk as usize];
                    (of.state, of.written) = (chunk_state::FREE, 0);
                }
            }
            Effect::Writes(_) if status.is_success() => {}
            Effect::Writes(chunks) | Effect::Resets(chunks) => {
                chunks.iter().for_each(|chunk| self.chunks[*chunk as usize].state = 0);
            }
        }
    }
}

/// Places in its list of the blocks that a vector command failed for, from the result of its completion (dwords 0 and 1).
pub fn failed_blocks(result: u64) -> impl Iterator<Item = u32> {
    (0..LBAS_MAX).filter(move |place| result >> place & 1 == 1)
}

#[cfg(test)]
mod test {
    use super::*;
    use zerocopy::IntoBytes;

    fn open() -> OpenChannel {
        let geometry = Geometry {
            major: 2,
            format: AddressFormat { group_bits: 1, unit_bits: 1, chunk_bits: 2, block_bits: 3 },
            groups: 2.into(),
            units: 2.into(),
            chunks: 3.into(),
            chunk_blocks: 8.into(),
            write_min: 4.into(),
            ..Geometry::default()
        };
        let mut open = OpenChannel::new(5, geometry.as_bytes()).expect("a geometry");
        let free = ChunkDescriptor::new(chunk_state::FREE, 0, 0, 8, 0);
        open.take_chunks(0, &free.as_bytes().repeat(12));
        open
    }

    /// Goal: commands carry what Open-Channel over fabrics asks for. Method: dwords and bytes by hand.
    #[test]
    fn commands_are_as_the_door_takes_them() {
        let mut open = open();
        // Chunk 11: group 1, parallel unit 1, chunk 2.
        let request = open.write(&[(0, 4), (11, 4)], &[7; 8]).expect("both are free");
        let entry = request.entry;
        assert_eq!((entry.opcode, entry.nsid.get(), entry.cdw12.get()), (0x91, 5, 7));
        let data = request.data.expect("a list and content");
        let lbas: Vec<u64> =
            data[..64].chunks_exact(8).map(|bytes| u64::from_le_bytes(bytes.try_into().unwrap())).collect();
        assert_eq!(lbas, [0, 1, 2, 3, 0x70, 0x71, 0x72, 0x73]);
        assert_eq!(data[64..], [7; 8]);
        let read = open.read(11, 2, 3, 4096).expect("it is there");
        assert_eq!((read.entry.opcode, read.entry.cdw10.get(), read.expected_bytes), (0x92, 0x72, 3 * 4096));
        let listed = open.read_list(&[(11, 7), (0, 1)], 4096).expect("they are there");
        assert_eq!(
            (listed.entry.opcode, listed.entry.cdw12.get(), listed.expected_bytes),
            (0x92, 1, 2 * 4096)
        );
        assert_eq!(listed.data.expect("a list")[..], [0x77, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
        let single = open.read_list(&[(11, 7)], 4096).expect("it is there");
        assert_eq!((single.entry.cdw10.get(), single.data.is_none()), (0x77, true));
        assert_eq!(
            open.read_list(&[(0, 0), (0, 8)], 1).map(|_| ()),
            Err(ChunkUseError::NotThere { chunk: 0 })
        );
        assert_eq!(failed_blocks(1 << 63 | 0b101).collect::<Vec<u32>>(), [0, 2, 63]);
        let copy = open.copy((0, 0), 1, 4).expect("it is free");
        let data = copy.data.expect("two lists");
        assert_eq!((data.len(), data[0], data[32], copy.entry.cdw14.get()), (64, 0, 8, 8));
        let reset = open.reset(&[11]).expect("it is there");
        assert_eq!(
            (reset.entry.cdw10.get(), reset.data.is_none()),
            (0x70, true),
            "a single one is in the dwords"
        );
        assert_eq!(
            open.reset(&[0, 1]).expect("there").data.expect("a list")[..],
            [0, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0]
        );
        let ask = open.ask_chunks(3, 2);
        assert_eq!((ask.entry.cdw10.get(), ask.entry.cdw12.get(), ask.expected_bytes), (0x000f_00ca, 96, 64));
    }

    #[test]
    fn write_pointers_are_kept() {
        let mut open = open();
        let first = open.write(&[(3, 4)], &[]).expect("free");
        assert_eq!(open.chunks()[3], ChunkFacts { state: chunk_state::OPEN, wear: 0, written: 4 });
        let error = open.write(&[(2, 4), (3, 8)], &[]).map(|_| ());
        assert_eq!(error, Err(ChunkUseError::NotThere { chunk: 3 }));
        assert_eq!(open.chunks()[2].written, 0, "what would be refused changes nothing");
        open.ended(&first.effect, Status::SUCCESS);
        let second = open.write(&[(3, 4)], &[]).expect("open");
        assert_eq!(open.chunks()[3].state, chunk_state::CLOSED);
        assert_eq!(open.write(&[(3, 4)], &[]).map(|_| ()), Err(ChunkUseError::TakesNoWrites { chunk: 3 }));
        open.ended(&second.effect, Status::CHUNK_EARLY_CLOSE);
        assert_eq!(open.chunks()[3].state, 0, "how it is must be read");
        let reset = open.reset(&[3]).expect("it is there");
        open.ended(&reset.effect, Status::SUCCESS);
        assert_eq!(open.chunks()[3], ChunkFacts { state: chunk_state::FREE, wear: 0, written: 0 });
        assert_eq!(open.write(&[(3, 3)], &[]).map(|_| ()), Err(ChunkUseError::Length { blocks: 3, unit: 4 }));
        assert_eq!(open.read(12, 0, 1, 1).map(|_| ()), Err(ChunkUseError::NotThere { chunk: 12 }));
    }

    /// Goal: entries are those of this namespace, by chunk and block; nonsense is refused. Method: entries by hand.
    #[test]
    fn notifications_are_read() {
        let open = open();
        // Chunk 11 is group 1, parallel unit 1, chunk 2; its addresses begin at 70h.
        let entry =
            ChunkNotification { count: 9.into(), lba: 0x72.into(), nsid: 5.into(), ..Default::default() };
        let blocks = ChunkNotification { mask: 1, state: 8.into(), block_count: 2.into(), ..entry };
        let whole = ChunkNotification { mask: 2, state: 1.into(), lba: 0x70.into(), ..entry };
        let other = ChunkNotification { nsid: 6.into(), lba: u64::MAX.into(), ..entry };
        let page = [blocks, other, whole, ChunkNotification::default()];
        let found = open.notifications(page.as_bytes()).expect("it is right");
        let expected = [
            Notification { count: 9, chunk: 11, blocks: 2..5, mask: 1, state: 8 },
            Notification { count: 9, chunk: 11, blocks: 0..8, mask: 2, state: 1 },
        ];
        assert_eq!(found, expected);
        for wrong in [
            ChunkNotification { lba: 0x78.into(), ..whole },
            ChunkNotification { lba: u64::MAX.into(), ..whole },
            ChunkNotification { block_count: 6.into(), ..blocks },
        ] {
            assert!(open.notifications(wrong.as_bytes()).is_err(), "{wrong:?}");
        }
        let ask = open.ask_notifications();
        assert_eq!((ask.entry.cdw10.get(), ask.expected_bytes), (0x03ff_00d0, 4096));
        let on = open.set_feedback(true).entry;
        assert_eq!((on.opcode, on.cdw10.get(), on.cdw11.get(), on.nsid.get()), (9, 0xca, 1, 5));
    }

    #[test]
    fn what_is_no_geometry_is_refused() {
        assert!(OpenChannel::new(1, &[0; 100]).is_err());
        assert!(OpenChannel::new(1, &[0; 4096]).is_err());
        let mut bytes = Geometry { major: 2, groups: 1.into(), units: 1.into(), ..Geometry::default() };
        assert!(OpenChannel::new(1, bytes.as_bytes()).is_err(), "no chunk");
        (bytes.chunks, bytes.write_min) = (1.into(), 1.into());
        assert!(OpenChannel::new(1, bytes.as_bytes()).is_ok());
        bytes.format.group_bits = 200;
        assert!(OpenChannel::new(1, bytes.as_bytes()).is_err(), "an address of more than 64 bits");
    }
}
