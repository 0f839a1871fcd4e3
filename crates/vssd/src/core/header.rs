//! Headers of blocks, where pages have no OOB areas: the first program of a block says whose it is (`header.rs`). It is programmed between the
//! erase, which waits until the allocation is durable, and the first append.

use crate::core::Core;
use crate::dies::{Kind, Op};
use crate::header::is_header_of;
use crate::states::BlockState;
use crate::{BlockHeader, IoClass, SpaceError};
use diecut_media::{Completion, Media, MediaError, Operation};
use diecut_units::{Buffer, BufferMut, ContentMode, IU_SIZE_BYTES, Payload, Time, mark, mutant};

impl Core {
    /// Keeps the header of a block that was opened until it is erased.
    pub(crate) fn prepare_header(&mut self, number: u32, description: &[u8]) {
        let Some(nonces) = &self.nonces else { return };
        let block = &self.blocks[number];
        let header = BlockHeader {
            purpose: block.purpose,
            is_rebuilding: false,
            block: number,
            allocation: block.sequence,
            owner: block.owner,
            part: 0,
            logical: block.logical,
            erase_count: block.erase_count,
        };
        let ius = (self.header_pages * self.shape.ius_per_page()) as usize;
        let mut bytes = vec![0; ius * IU_SIZE_BYTES];
        header.encode(nonces, description, &mut bytes[..IU_SIZE_BYTES]);
        self.headers.insert(number, Buffer::copy_from(&bytes));
    }

    /// The first program unit of a block that moves, as it was read: its header is to say how often the new place was erased. What is no header of the
    /// block stays as it is.
    pub(crate) fn renew_header(&self, unit: &mut [u8], source: u32, copy: u32) {
        let Some(nonces) = &self.nonces else { return };
        let iu = &mut unit[..IU_SIZE_BYTES];
        let read = iu.to_vec();
        if let Some((header, holder)) = BlockHeader::decode(&read, nonces, self.blocks[source].sequence) {
            let erase_count = self.blocks[copy].erase_count;
            BlockHeader { erase_count, ..header }.encode(nonces, holder, iu);
        }
    }

    /// A block was erased, or could not be: its header is programmed, if it is to have one.
    pub(crate) fn begin_header<M: Media + ?Sized>(
        &mut self,
        number: u32,
        class: IoClass,
        media: &mut M,
        now: Time,
    ) {
        let Some(header) = self.headers.remove(&number) else { return };
        if !self.blocks[number].is_bare() {
            return;
        }
        if mutant!("vssd: a header is not programmed") {
            return self.blocks[number].headed();
        }
        let parts = [Payload::new(ContentMode::Bytes, header)].into_iter().collect();
        let oob = Buffer::copy_from(&[]);
        let operation = Operation::Program { block: self.address(number), first_page: 0, parts, oob };
        let owner = self.blocks[number].owner;
        let header_ius = u64::from(self.header_pages * self.shape.ius_per_page());
        if let Some(at) = self.at_of(owner).filter(|_| !mutant!("vssd: headers are not counted")) {
            self.vssds[at].header_ius += header_ius;
        }
        self.start(Op::new(Kind::Header, owner, class, number), operation, media, now);
    }

    /// The program of a header came back.
    pub(crate) fn header_programmed(&mut self, op: &Op, result: Result<(), MediaError>) {
        let block = &mut self.blocks[op.block];
        block.in_flight -= 1;
        match result {
            Ok(()) => block.headed(),
            Err(MediaError::NoRoom { .. }) => block.seal(),
            // The holder learns of it at its first append and frees the block, which retires it.
            Err(MediaError::ProgramFailed { .. }) => {
                mark!("vssd: a header cannot be programmed");
                block.fail();
                if block.is_held() {
                    self.record(op.block, BlockState::HeldFailed);
                }
            }
            // The power or the drive went, not the block: nothing about it is written down.
            Err(_) => block.fail(),
        }
    }

    /// Reads the header of a block for its holder.
    pub(crate) fn read_header<M: Media + ?Sized>(
        &mut self,
        op: Op,
        destination: BufferMut,
        media: &mut M,
        now: Time,
    ) {
        let operation = Operation::Read {
            block: self.address(op.block),
            first_iu: 0,
            iu_count: 1,
            destination,
            oob: None,
        };
        self.vssds.of(op.owner).operations += 1;
        self.start(op, operation, media, now);
    }

    /// The read of a header came back. What is of another allocation is not there.
    pub(crate) fn header_read(&mut self, op: &Op, completion: Completion) {
        let block = &self.blocks[op.block];
        let (unit, index) = (block.logical.unit.0, block.logical.index);
        let nonces = self.nonces.as_ref().expect("I-V25: only blocks with headers are asked for them");
        let is_its_own = |iu: &[u8]| is_header_of(iu, nonces, block.sequence, block.owner, block.logical);
        let result = match &completion.result {
            Ok(()) if completion.destination.as_deref().is_some_and(is_its_own) => Ok(()),
            Ok(()) => Err(SpaceError::Erased { unit, index, iu: 0 }),
            Err(error) => Err(self.translate(op, *error)),
        };
        self.answer(op, result, completion.destination, None, completion.retries);
    }
}
