//! Data of commands: with their capsule, or asked for with R2T when there is room for them.

use crate::connection::Connection;
use crate::inbound::Current;
use crate::queue::{SlotIndex, SlotState};
use crate::session::Session;
use crate::tcp::Destination;
use diecut_nvme::Status;
use diecut_nvme::tcp::{DataToController, FatalError, PduError, ReadyToTransfer};
use diecut_units::{Buffer, BufferMut, BufferPool, mark, mutant};
use zerocopy::IntoBytes;

impl Session<'_> {
    /// Executes reads that waited for memory, and sends R2Ts while there is space for what they ask.
    pub(crate) fn grant_space(&mut self, connection: &mut Connection) {
        while let Some(queue) = &mut connection.queue
            && let Some(&slot_index) = queue.waiting_reads.front()
        {
            let slot = &mut queue.slots[usize::from(slot_index)];
            if !self.shared.memory.charge(&mut connection.holding.account, slot) {
                self.shared.memory.wait(connection, self.shared.now);
                break;
            }
            queue.waiting_reads.pop_front();
            self.execute(connection, slot_index, None);
        }
        let queue = connection.queue.as_mut().expect("I-T11: a live connection has a queue");
        while let Some(&slot_index) = queue.waiting_for_space.front() {
            let slot = &mut queue.slots[usize::from(slot_index)];
            let needed = slot.data_bytes as usize;
            if queue.gather_bytes + needed > self.shared.config.queue.gather_bytes_max {
                mark!("nvmf: write waits for buffer space");
                return;
            }
            if !self.shared.memory.charge(&mut connection.holding.account, slot) {
                return self.shared.memory.wait(connection, self.shared.now);
            }
            queue.waiting_for_space.pop_front();
            debug_assert!(slot.gathered.is_none() && slot.gather_held == 0, "I-T7: data are asked for once");
            queue.gather_bytes += needed;
            slot.gather_held = slot.data_bytes;
            slot.gathered = Some(self.shared.memory.pool.take(needed));
            slot.enter(SlotState::Transferring);
            let asked = slot.data_bytes.min(self.shared.config.queue.h2c_data_bytes_max);
            slot.asked_end = asked;
            let request = ReadyToTransfer::new(
                slot.entry.command_id.get(),
                slot_index,
                0,
                asked,
                connection.wire.digests,
            );
            connection.outbound.outbox.put_header(request.as_bytes(), connection.wire.digests);
        }
    }

    /// H2CData: a part of what an R2T asked for.
    pub(crate) fn on_transfer(&mut self, connection: &mut Connection) -> Result<(), PduError> {
        let header: DataToController = connection.inbound.receiver.header_as();
        let queue = connection.queue.as_mut().expect("I-T11: a live connection has a queue");
        let tag = header.transfer_tag.get();
        let out_of_range = |field, value: u32| PduError {
            fatal: FatalError::DataOutOfRange,
            information: 0,
            field,
            value: u64::from(value),
        };
        let slot = queue
            .slots
            .get_mut(usize::from(tag))
            .filter(|slot| slot.state() == SlotState::Transferring)
            .ok_or_else(|| PduError::header("TTAG", 10, u64::from(tag)))?;
        if slot.entry.command_id != header.command_id {
            return Err(PduError::header("CCCID", 8, u64::from(header.command_id.get())));
        }
        assert!(slot.received <= slot.asked_end, "I-T7: no more data came than were asked for");
        let (start, length) = (header.offset.get(), header.length.get());
        if length as usize != connection.inbound.receiver.frame().data_length() {
            return Err(PduError::header("DATAL", 16, u64::from(length)));
        }
        // Data come in order (TCP 1.0 section 3.3.2.1): the next byte is the only right start.
        if start != slot.received && !mutant!("nvmf: data out of order") {
            return Err(out_of_range("DATAO", start));
        }
        if length > self.shared.config.queue.h2c_data_bytes_max || length > slot.asked_end - slot.received {
            return Err(out_of_range("DATAL", length));
        }
        if header.is_last() != (start + length == slot.asked_end) {
            return Err(PduError::header("LAST_PDU", 1, u64::from(header.common.flags)));
        }
        let buffer = slot.gathered.take().expect("I-T7: a buffer is lent to one PDU at a time");
        connection.inbound.current = Current::Transfer(tag, length);
        connection.inbound.receiver.take_data(Destination::Into(buffer, start as usize));
        Ok(())
    }

    /// The data of a command came whole with its capsule.
    #[inline(always)]
    pub(crate) fn on_capsule(&mut self, connection: &mut Connection, slot: SlotIndex, mut data: Buffer) {
        connection.inbound.current = Current::Nothing;
        let queue = connection.queue.as_mut().expect("I-T11: a live connection has a queue");
        if queue.id > 0 && data.slab_bytes() > BufferPool::slab_bytes(data.len()) {
            match self.shared.memory.may_pin() {
                true => queue.slots[usize::from(slot)].pins = true,
                false => data = self.shared.memory.pool.copy_of(&data).freeze(),
            }
        }
        self.execute(connection, slot, Some(data));
    }

    /// A data digest was wrong: for this command only, and worth another try (TCP 1.0 section 3.3.1.1).
    pub(crate) fn digest_failed(&mut self, connection: &mut Connection, slot: SlotIndex) {
        mark!("nvmf: data digest wrong");
        let queue = connection.queue.as_mut().expect("I-T11: a live connection has a queue");
        let entry = queue.slots[usize::from(slot)].entry;
        queue.release(slot);
        self.shared.record_error(connection, &entry, Status::TRANSIENT_TRANSPORT_ERROR);
        connection.answer(entry.command_id.get(), Status::TRANSIENT_TRANSPORT_ERROR, 0);
    }

    pub(crate) fn note_transfer(
        &mut self,
        connection: &mut Connection,
        slot: SlotIndex,
        length: u32,
        right: bool,
    ) {
        let queue = connection.queue.as_mut().expect("I-T11: a live connection has a queue");
        let slot = &mut queue.slots[usize::from(slot)];
        slot.received += length;
        assert!(slot.received <= slot.asked_end, "I-T7: no more data came than were asked for");
        slot.digest_failed |= !right && !mutant!("nvmf: data digest ignored");
    }

    /// The data of a command came a part further: wait, ask for more, or execute.
    pub(crate) fn transferred(
        &mut self,
        connection: &mut Connection,
        slot_index: SlotIndex,
        buffer: BufferMut,
    ) {
        let digests = connection.wire.digests;
        let queue = connection.queue.as_mut().expect("I-T11: a live connection has a queue");
        let slot = &mut queue.slots[usize::from(slot_index)];
        if slot.received < slot.asked_end {
            slot.gathered = Some(buffer);
        } else if slot.received < slot.data_bytes {
            slot.gathered = Some(buffer);
            let asked = (slot.data_bytes - slot.received).min(self.shared.config.queue.h2c_data_bytes_max);
            let request =
                ReadyToTransfer::new(slot.entry.command_id.get(), slot_index, slot.received, asked, digests);
            mark!("nvmf: several R2Ts for one command");
            slot.asked_end = slot.received + asked;
            connection.outbound.outbox.put_header(request.as_bytes(), digests);
        } else {
            if slot.digest_failed {
                drop(buffer);
                self.digest_failed(connection, slot_index);
            } else {
                self.execute(connection, slot_index, Some(buffer.freeze()));
            }
            // No answer of a namespace follows where the command failed, or where there was nothing to do.
            self.grant_space(connection);
        }
    }
}
