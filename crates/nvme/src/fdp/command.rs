//! I/O Management (Base 2.1): how reclaim unit handles are, and a fresh reclaim unit for some of them.

use crate::submission::SubmissionEntry;

/// I/O Management Receive, opcode 12h.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoManagementReceive {
    /// MO, bits 7:0 of dword 10: what is asked for.
    pub operation: u8,
    /// MOS, bits 31:16 of dword 10: says more of it.
    pub specific: u16,
    /// Bytes asked for: NUMD of dword 11, 0's based dwords, converted.
    pub length_bytes: u64,
}

impl IoManagementReceive {
    /// MO: nothing.
    pub const NO_ACTION: u8 = 0x00;
    /// MO: the status of the namespace's reclaim unit handles.
    pub const HANDLE_STATUS: u8 = 0x01;

    /// From command dwords 10 and 11.
    pub fn decode(entry: &SubmissionEntry) -> IoManagementReceive {
        let cdw10 = entry.cdw10.get();
        IoManagementReceive {
            operation: cdw10 as u8,
            specific: (cdw10 >> 16) as u16,
            length_bytes: (u64::from(entry.cdw11.get()) + 1) * 4,
        }
    }

    /// Puts the fields into a submission entry.
    ///
    /// # Panics
    /// If the length is none in dwords.
    pub fn encode(&self, entry: &mut SubmissionEntry) {
        let dwords = u32::try_from(self.length_bytes / 4 - 1).expect("NUMD has 32 bits");
        entry.cdw10 = (u32::from(self.operation) | u32::from(self.specific) << 16).into();
        entry.cdw11 = dwords.into();
    }
}

/// Placement identifiers that one command can name.
pub const PIDS_MAX: u32 = 1 << 16;
/// Size of a placement identifier in a list.
pub const PLACEMENT_ID_SIZE_BYTES: u32 = 2;

/// I/O Management Send, opcode 1Dh.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoManagementSend {
    /// MO, bits 7:0 of dword 10: what is to be done.
    pub operation: u8,
    /// MOS, bits 31:16 of dword 10: says more of it.
    pub specific: u16,
}

impl IoManagementSend {
    /// MO: nothing.
    pub const NO_ACTION: u8 = 0x00;
    /// MO: the reclaim unit handles of a list of placement identifiers get a fresh reclaim unit. MOS is their number, 0's based.
    pub const UPDATE_HANDLES: u8 = 0x01;

    /// From command dword 10.
    pub fn decode(entry: &SubmissionEntry) -> IoManagementSend {
        let cdw10 = entry.cdw10.get();
        IoManagementSend { operation: cdw10 as u8, specific: (cdw10 >> 16) as u16 }
    }

    /// Puts the fields into a submission entry.
    pub fn encode(&self, entry: &mut SubmissionEntry) {
        entry.cdw10 = (u32::from(self.operation) | u32::from(self.specific) << 16).into();
    }

    /// Placement identifiers of an update, 1 to [`PIDS_MAX`].
    pub fn pid_count(&self) -> u32 {
        u32::from(self.specific) + 1
    }
}

/// The placement identifiers of a list; a byte that is left over is none.
pub fn placement_ids(list: &[u8]) -> impl Iterator<Item = u16> + '_ {
    list.chunks_exact(PLACEMENT_ID_SIZE_BYTES as usize).map(|pid| u16::from_le_bytes([pid[0], pid[1]]))
}
