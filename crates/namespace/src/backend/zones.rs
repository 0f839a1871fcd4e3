//! Zones on erase blocks: a command goes to them as it is. What it reaches is checked there, where write pointers are known.

use crate::backend::{Backend, Begun, MapPiece, Scratch};
use crate::contract::{LbaRange, NamespaceError, NamespaceOperation, ZoneRequest};
use crate::definition::StoreIndex;
use crate::pending::Extra;
use diecut_units::{ContentMode, Payload};
use diecut_zoned::contract::{ZoneData, ZoneOperation, ZoneRange, ZoneSetIndex};

/// See the module.
pub(crate) struct Zones {
    pub(super) place: (StoreIndex, ZoneSetIndex),
    pub(super) content_mode: ContentMode,
}

impl Backend for Zones {
    fn purges(&self) -> bool {
        true
    }

    #[inline]
    fn begin(
        &self,
        operation: NamespaceOperation,
        scratch: &mut Scratch,
        _map_piece: &mut MapPiece<'_>,
    ) -> Begun {
        let payload = |data| ZoneData::Payload(Payload::new(self.content_mode, data));
        let mut extra = None;
        let operation = match operation {
            NamespaceOperation::Read { range, destination } => {
                ZoneOperation::Read { first_iu: range.first_lba, iu_count: range.lba_count, destination }
            }
            NamespaceOperation::Write { range, data, .. } => {
                // What is answered is durable in any case.
                ZoneOperation::Write { first_iu: range.first_lba, data: payload(data) }
            }
            NamespaceOperation::Flush => ZoneOperation::Flush,
            // Advice: only a reset gives the room of a zone back.
            NamespaceOperation::Deallocate { .. } => return Begun::Answered(Ok(()), None),
            NamespaceOperation::WriteZeroes { range, .. } => {
                ZoneOperation::Write { first_iu: range.first_lba, data: ZoneData::Zeros(range.lba_count) }
            }
            NamespaceOperation::Compare { range, data } => {
                let destination = scratch.pool.take(data.len());
                extra = Some(Extra { expected: Some(data), ..Extra::default() });
                ZoneOperation::Read { first_iu: range.first_lba, iu_count: range.lba_count, destination }
            }
            NamespaceOperation::Copy(copy) => {
                let range =
                    |source: &LbaRange| ZoneRange { first_iu: source.first_lba, iu_count: source.lba_count };
                let sources = copy.sources.iter().map(range).collect();
                ZoneOperation::Copy { sources, first_iu: copy.first_lba }
            }
            NamespaceOperation::Purge => ZoneOperation::Purge,
            NamespaceOperation::WriteUncorrectable { .. } | NamespaceOperation::Chunk(_) => {
                let what = "zones take no such command";
                return Begun::Answered(Err(NamespaceError::InvalidField { what }), None);
            }
            NamespaceOperation::Verify { range } => {
                ZoneOperation::Verify { first_iu: range.first_lba, iu_count: range.lba_count }
            }
            NamespaceOperation::Zone(request) => match request {
                ZoneRequest::Append { zone_lba, lba_count, data } => {
                    assert!(lba_count > 0, "I-N3: an append that came through has blocks");
                    ZoneOperation::Append { first_iu: zone_lba, data: payload(data) }
                }
                ZoneRequest::Act { zone_lba, action } => ZoneOperation::Act { first_iu: zone_lba, action },
                ZoneRequest::Extend { zone_lba, extension } => {
                    ZoneOperation::Extend { first_iu: zone_lba, extension }
                }
                ZoneRequest::Commit { last_lba } => ZoneOperation::Commit { last_iu: last_lba },
                ZoneRequest::Report(request) => ZoneOperation::Report(request),
            },
        };
        Begun::AsksZones(self.place, operation, extra)
    }

    fn moved(&mut self, store: StoreIndex) {
        self.place.0 = store;
    }
}
