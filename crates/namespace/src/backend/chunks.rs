//! Chunks, which are erase blocks: a command goes to them as it is. What it reaches is checked there, where write pointers are known.

use crate::backend::{Backend, Begun, MapPiece, Scratch};
use crate::contract::{ChunkRequest, LbaList, LbaRange, NamespaceError, NamespaceOperation};
use crate::definition::StoreIndex;
use diecut_openchannel::contract::ChunkOperation;
use diecut_units::{ContentMode, Payload};

/// See the module.
pub(crate) struct Chunks {
    pub(super) store: StoreIndex,
    pub(super) content_mode: ContentMode,
}

impl Backend for Chunks {
    fn purges(&self) -> bool {
        true
    }

    #[inline]
    fn begin(
        &self,
        operation: NamespaceOperation,
        _scratch: &mut Scratch,
        _map_piece: &mut MapPiece<'_>,
    ) -> Begun {
        let payload = |data| Payload::new(self.content_mode, data);
        let run = |range: LbaRange| LbaList::run(range.first_lba, range.lba_count);
        let operation = match operation {
            NamespaceOperation::Read { range, destination } => {
                ChunkOperation::Read { lbas: run(range), destination }
            }
            // What is answered is durable in any case.
            NamespaceOperation::Write { range, data, .. } => {
                ChunkOperation::Write { lbas: run(range), data: payload(data) }
            }
            NamespaceOperation::Flush => ChunkOperation::Flush,
            NamespaceOperation::Purge => ChunkOperation::Purge,
            NamespaceOperation::Chunk(request) => match request {
                ChunkRequest::Read { lbas, destination } => ChunkOperation::Read { lbas, destination },
                ChunkRequest::Write { lbas, data } => ChunkOperation::Write { lbas, data: payload(data) },
                ChunkRequest::Reset { lbas } => ChunkOperation::Reset { lbas },
                ChunkRequest::Clear { first, count } => ChunkOperation::Clear { first, count },
                ChunkRequest::Copy { from, to } => ChunkOperation::Copy { from, to },
                ChunkRequest::Report { first, count_max } => ChunkOperation::Report { first, count_max },
            },
            _ => {
                let what = "chunks take no such command";
                return Begun::Answered(Err(NamespaceError::InvalidField { what }), None);
            }
        };
        Begun::AsksChunks(self.store, operation)
    }

    fn moved(&mut self, store: StoreIndex) {
        self.store = store;
    }
}
