//! One stream and the queue on it.

use crate::command::{Command, Completion, Sink, Token};
use crate::error::HostError;
use crate::output::Output;
use crate::receive::{Receiver, Step};
use diecut_nvme::fabrics::{CONNECT_DISABLE_FLOW_CONTROL, ConnectCommand, ConnectData};
use diecut_nvme::tcp::{
    ADMIN_IN_CAPSULE_BYTES, CapsuleCommand, CapsuleResponse, DataToController, DataToHost, Digests,
    FatalError, InitializeRequest, InitializeResponse, PduError, ReadyToTransfer, TerminateRequest, pdu_type,
};
use diecut_nvme::{CompletionEntry, QualifiedName, SglDescriptor, Status, SubmissionEntry};
use diecut_units::Buffer;
use zerocopy::IntoBytes;

/// Who connects to what, and how.
#[derive(Clone, Debug)]
pub struct QueueParameters {
    /// NQN of the host.
    pub host: QualifiedName,
    /// HOSTID: the same on all queues of a host.
    pub host_id: [u8; 16],
    /// NQN of the subsystem.
    pub subsystem: QualifiedName,
    /// FFFFh for the admin queue (the controller chooses); else what the admin queue's Connect brought.
    pub controller_id: u16,
    /// 0 for the admin queue.
    pub queue_id: u16,
    /// Size of the queue; one less can be under way. At least 2.
    pub entries: u16,
    /// KATO in ms, of the admin queue; 0 for none.
    pub keep_alive_ms: u32,
    /// Digests asked for.
    pub digests: Digests,
    /// SQ flow control: the controller then answers every read with a response capsule of its own.
    pub flow_control: bool,
    /// Data that a command may carry in its capsule (IOCCSZ of Identify; 8192 on the admin queue). More goes by R2T.
    pub in_capsule_bytes: u32,
}

impl QueueParameters {
    /// The admin queue of a host at a subsystem: no digests, no keep-alive, 32 entries.
    pub fn admin(host: QualifiedName, host_id: [u8; 16], subsystem: QualifiedName) -> QueueParameters {
        QueueParameters {
            host,
            host_id,
            subsystem,
            controller_id: 0xFFFF,
            queue_id: 0,
            entries: 32,
            keep_alive_ms: 0,
            digests: Digests::NONE,
            flow_control: false,
            in_capsule_bytes: ADMIN_IN_CAPSULE_BYTES,
        }
    }
}

/// How far the stream is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Initialize,
    Connect,
    Ready,
    Failed,
}

/// A command under way. Its index is its command id.
#[derive(Debug, Default)]
struct Slot {
    token: Token,
    busy: bool,
    digest_failed: bool,
    /// Success without all of the data breaks the protocol: log pages may be shorter, reads not.
    whole: bool,
    expected_bytes: u32,
    received_bytes: u32,
    /// What R2Ts are served from.
    outgoing: Option<Buffer>,
    /// Where the last R2T ended. None asks for the same bytes again, so that a few bytes from a controller cannot make
    /// output without end.
    asked_bytes: u32,
}

/// One stream to a controller and the queue on it; see the crate's documentation.
#[derive(Debug)]
pub struct QueuePair {
    parameters: QueueParameters,
    phase: Phase,
    receiver: Receiver,
    output: Output,
    digests: Digests,
    h2c_data_bytes_max: u32,
    controller_id: u16,
    slots: Vec<Slot>,
    free: Vec<u16>,
    /// Command and start of the data of the C2HData PDU that comes in.
    incoming: (u16, DataToHost),
    error: Option<HostError>,
}

impl QueuePair {
    /// A queue on a stream that was just opened; its first output is ICReq.
    ///
    /// # Panics
    /// If the queue has fewer than two entries.
    pub fn new(parameters: QueueParameters) -> QueuePair {
        assert!(parameters.entries >= 2, "a queue holds one command at least");
        let capacity = parameters.entries - 1;
        let mut output = Output::default();
        output.put(InitializeRequest::new(parameters.digests).as_bytes());
        QueuePair {
            phase: Phase::Initialize,
            receiver: Receiver::new(),
            output,
            digests: Digests::NONE,
            h2c_data_bytes_max: 0,
            controller_id: 0xFFFF,
            slots: (0..capacity).map(|_| Slot::default()).collect(),
            free: (0..capacity).rev().collect(),
            incoming: (0, DataToHost::new(0, 0, 0, 0, Digests::NONE, 4)),
            error: None,
            parameters,
        }
    }

    /// Whether commands are taken.
    pub fn is_ready(&self) -> bool {
        self.phase == Phase::Ready
    }
    /// Commands that can be submitted now.
    #[inline]
    pub fn room(&self) -> usize {
        if self.phase == Phase::Ready { self.free.len() } else { 0 }
    }
    /// Commands under way.
    pub fn under_way(&self) -> usize {
        self.slots.len() - self.free.len()
    }
    /// Ids of the commands under way, in rising order; what Abort names.
    pub fn command_ids(&self) -> impl Iterator<Item = u16> + '_ {
        self.slots.iter().zip(0..).filter(|(slot, _)| slot.busy).map(|(_, id)| id)
    }
    /// The controller's id, once connected.
    pub fn controller_id(&self) -> u16 {
        self.controller_id
    }
    /// How it was asked for.
    pub fn parameters(&self) -> &QueueParameters {
        &self.parameters
    }
    /// Bytes to send next.
    #[inline]
    pub fn output(&self) -> &[u8] {
        self.output.pending()
    }
    /// `len_bytes` of the output were sent.
    ///
    /// # Panics
    /// If that is more than there was.
    #[inline]
    pub fn sent(&mut self, len_bytes: usize) {
        self.output.consume(len_bytes);
    }

    /// Starts a command.
    ///
    /// # Panics
    /// If there is no [`QueuePair::room`].
    #[inline]
    pub fn submit(&mut self, token: Token, command: Command) {
        let (entry, outgoing, expected_bytes) = command.encode();
        let id = self.submit_entry(token, entry, outgoing, expected_bytes);
        self.slots[usize::from(id)].whole = true;
    }

    /// Starts any command: the entry without id and descriptor, the data it carries, and the bytes it brings at most.
    /// Gives the command's id. A command that carries data and brings some has the former in its capsule, and its descriptor is for the latter.
    ///
    /// # Panics
    /// If there is no [`QueuePair::room`], or both go, and what it carries has no place in a capsule.
    #[inline]
    pub fn submit_entry(
        &mut self,
        token: Token,
        mut entry: SubmissionEntry,
        outgoing: Option<Buffer>,
        expected_bytes: u32,
    ) -> u16 {
        assert!(self.phase == Phase::Ready, "commands are submitted to a connected queue");
        let id = self.free.pop().expect("commands are submitted while there is room");
        let data = outgoing.as_deref().unwrap_or_default();
        let length = data.len() as u32;
        let in_capsule = length > 0 && length <= self.parameters.in_capsule_bytes;
        entry.flags |= 1 << 6; // PSDT: SGL
        entry.command_id = id.into();
        assert!(
            in_capsule || length == 0 || expected_bytes == 0,
            "a command that brings data carries {} bytes at most",
            self.parameters.in_capsule_bytes
        );
        // Fabrics commands without data keep an all-zero descriptor.
        if in_capsule && expected_bytes > 0 {
            entry.sgl = SglDescriptor::transport(expected_bytes);
        } else if in_capsule {
            entry.sgl = SglDescriptor::in_capsule(length);
        } else if entry.fabrics_type().is_none() {
            entry.sgl = SglDescriptor::transport(length.max(expected_bytes));
        }
        let data = if in_capsule { data } else { &[] };
        let capsule = CapsuleCommand::new(entry, data.len() as u32, self.digests);
        self.output.put_pdu(capsule.as_bytes(), data, self.digests);
        let outgoing = outgoing.filter(|_| !in_capsule);
        self.slots[usize::from(id)] = Slot {
            token,
            busy: true,
            digest_failed: false,
            whole: false,
            expected_bytes,
            received_bytes: 0,
            outgoing,
            asked_bytes: 0,
        };
        id
    }

    /// Takes bytes of the stream; data and completions go to `sink`.
    ///
    /// # Errors
    /// Why the stream is over; what is in [`QueuePair::output`] should still be sent. Stays so.
    #[inline]
    pub fn receive(&mut self, bytes: &[u8], sink: &mut impl Sink) -> Result<(), HostError> {
        if let Some(error) = &self.error {
            return Err(error.clone());
        }
        let result = self.parse(bytes, sink);
        if let Err(error) = &result {
            if let HostError::Protocol(error) = error {
                let offending = self.receiver.header().to_vec();
                let (request, len_bytes) = TerminateRequest::to_controller(error, &offending);
                self.output.put(request.as_bytes());
                self.output.put(&offending[..len_bytes]);
            }
            self.phase = Phase::Failed;
            self.error = Some(error.clone());
        }
        result
    }

    fn parse(&mut self, bytes: &[u8], sink: &mut impl Sink) -> Result<(), HostError> {
        let mut at = 0;
        loop {
            match self.receiver.step(bytes, &mut at, self.digests)? {
                Step::More => return Ok(()),
                Step::Header(frame) => match frame.pdu_type() {
                    pdu_type::C2H_DATA => self.on_data_header(frame.data_length())?,
                    pdu_type::CAPSULE_RESPONSE => {
                        let response: CapsuleResponse = self.receiver.header_as();
                        self.on_response(&response.entry, sink)?;
                    }
                    pdu_type::READY_TO_TRANSFER => self.on_ready_to_transfer()?,
                    pdu_type::IC_RESPONSE => self.on_initialized()?,
                    _ => {
                        let request: TerminateRequest = self.receiver.header_as();
                        let (fatal, information) = (request.fatal_error(), request.information());
                        return Err(HostError::Terminated { fatal, information });
                    }
                },
                Step::Data(offset, data) => {
                    let (id, header) = &self.incoming;
                    sink.data(self.slots[usize::from(*id)].token, header.offset.get() + offset, data);
                }
                Step::End(right) => self.on_data_end(right, sink)?,
            }
        }
    }

    fn on_initialized(&mut self) -> Result<(), HostError> {
        if self.phase != Phase::Initialize {
            return Err(PduError::sequence("PDU-Type", u64::from(pdu_type::IC_RESPONSE)).into());
        }
        let response: InitializeResponse = self.receiver.header_as();
        response.validate(self.parameters.digests)?;
        if response.controller_alignment != 0 {
            // Linux refuses it too; no controller we know asks for padding.
            let (fatal, value) = (FatalError::UnsupportedParameter, u64::from(response.controller_alignment));
            return Err(PduError { fatal, information: 10, field: "CPDA", value }.into());
        }
        self.digests = Digests::decode(response.digests);
        self.h2c_data_bytes_max = response.max_h2c_data_bytes.get();
        let parameters = &self.parameters;
        let mut connect =
            ConnectCommand::new(0, parameters.queue_id, parameters.entries - 1, parameters.keep_alive_ms);
        if !parameters.flow_control {
            connect.attributes |= CONNECT_DISABLE_FLOW_CONTROL;
        }
        let data = ConnectData::new(
            parameters.host_id,
            parameters.controller_id,
            &parameters.subsystem,
            &parameters.host,
        );
        let capsule = CapsuleCommand::new(connect.entry(), ConnectData::SIZE_BYTES as u32, self.digests);
        self.output.put_pdu(capsule.as_bytes(), data.as_bytes(), self.digests);
        self.phase = Phase::Connect;
        Ok(())
    }

    #[inline]
    fn on_response(&mut self, entry: &CompletionEntry, sink: &mut impl Sink) -> Result<(), HostError> {
        if self.phase == Phase::Connect && entry.command_id.get() == 0 {
            if !entry.status().is_success() {
                return Err(HostError::refused(entry));
            }
            self.controller_id = entry.result() as u16;
            self.phase = Phase::Ready;
            return Ok(());
        }
        self.end(entry, sink)
    }

    /// Ends a command.
    #[inline]
    fn end(&mut self, entry: &CompletionEntry, sink: &mut impl Sink) -> Result<(), HostError> {
        let id = entry.command_id.get();
        let slot = under_way(&mut self.slots, id, 20)?;
        if entry.status().is_success() && slot.whole && slot.received_bytes < slot.expected_bytes {
            let (field, value) = ("data of a command that succeeded", u64::from(slot.received_bytes));
            return Err(PduError { fatal: FatalError::DataOutOfRange, information: 0, field, value }.into());
        }
        slot.busy = false;
        slot.outgoing = None;
        let mut completion = Completion::of(slot.token, entry, slot.received_bytes);
        if slot.digest_failed {
            completion.status = Status::DATA_TRANSFER_ERROR;
        }
        self.free.push(id);
        sink.completed(completion);
        Ok(())
    }

    #[inline]
    fn on_data_header(&mut self, data_length: usize) -> Result<(), HostError> {
        let header: DataToHost = self.receiver.header_as();
        let id = header.command_id.get();
        let slot = under_way(&mut self.slots, id, 8)?;
        let (offset, length) = (header.offset.get(), header.length.get());
        if length as usize != data_length {
            return Err(PduError::header("DATAL", 16, u64::from(length)).into());
        }
        // Data come in order (TCP 1.0 section 3.3.2.1) and stay within what was asked for.
        if offset != slot.received_bytes || length > slot.expected_bytes - offset {
            let (field, value) = ("DATAO", u64::from(offset));
            return Err(PduError { fatal: FatalError::DataOutOfRange, information: 0, field, value }.into());
        }
        if header.is_success() && !header.is_last() {
            return Err(
                PduError::header("SUCCESS without LAST_PDU", 1, u64::from(header.common.flags)).into()
            );
        }
        self.incoming = (id, header);
        Ok(())
    }

    #[inline]
    fn on_data_end(&mut self, right: bool, sink: &mut impl Sink) -> Result<(), HostError> {
        let (id, header) = self.incoming;
        let slot = &mut self.slots[usize::from(id)];
        slot.received_bytes += header.length.get();
        slot.digest_failed |= !right;
        if header.is_success() {
            self.end(&CompletionEntry::new(id, 0, Status::SUCCESS), sink)?;
        }
        Ok(())
    }

    fn on_ready_to_transfer(&mut self) -> Result<(), HostError> {
        let request: ReadyToTransfer = self.receiver.header_as();
        let id = request.command_id.get();
        let slot = under_way(&mut self.slots, id, 8)?;
        let (start, length) = (request.offset.get(), request.length.get());
        let data = slot.outgoing.as_deref().unwrap_or_default();
        if length == 0 || start < slot.asked_bytes || u64::from(start) + u64::from(length) > data.len() as u64
        {
            let (field, value) = ("R2TO", u64::from(start));
            return Err(PduError { fatal: FatalError::DataOutOfRange, information: 0, field, value }.into());
        }
        let end = start + length;
        slot.asked_bytes = end;
        let mut at = start;
        while at < end {
            let part = self.h2c_data_bytes_max.min(end - at);
            let tag = request.transfer_tag.get();
            let header = DataToController::new(id, tag, at, part, at + part == end, self.digests);
            self.output.put_pdu(header.as_bytes(), &data[at as usize..(at + part) as usize], self.digests);
            at += part;
        }
        Ok(())
    }
}

/// The command of this id; `offset` is where its id stands in the PDU.
#[inline]
fn under_way(slots: &mut [Slot], id: u16, offset: u32) -> Result<&mut Slot, PduError> {
    slots
        .get_mut(usize::from(id))
        .filter(|slot| slot.busy)
        .ok_or_else(|| PduError::header("command id that is not under way", offset, u64::from(id)))
}
