//! What a command is for, and so what its answer may be.

use crate::oracle::{Certain, ReadId, WriteId};
use crate::plan::Range;
use crate::tag::VolumeNumber;

pub(super) enum Purpose {
    Write {
        id: WriteId,
        fua: bool,
    },
    Read {
        range: Range,
        id: ReadId,
    },
    Flush {
        volume: VolumeNumber,
        issued: u64,
    },
    Compare {
        range: Range,
        expected: Vec<Certain>,
        wrong: bool,
        id: ReadId,
    },
    Verify {
        range: Range,
        id: ReadId,
    },
    /// What is told of the handles of a volume.
    HandleStatus {
        volume: VolumeNumber,
    },
    /// Fresh reclaim units.
    HandleUpdate,
    /// A clean shutdown: of these volumes, what was acknowledged before is durable.
    ShutDown {
        volumes: Vec<VolumeNumber>,
        issued: u64,
    },
}

impl Purpose {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Purpose::Write { .. } => "write",
            Purpose::Read { .. } => "read",
            Purpose::Flush { .. } => "flush",
            Purpose::Compare { .. } => "compare",
            Purpose::Verify { .. } => "verify",
            Purpose::HandleStatus { .. } => "status of handles",
            Purpose::HandleUpdate => "update of handles",
            Purpose::ShutDown { .. } => "shutdown",
        }
    }

    /// What it reads.
    pub(super) fn reads(&self) -> Option<(Range, ReadId)> {
        match self {
            Purpose::Read { range, id }
            | Purpose::Compare { range, id, .. }
            | Purpose::Verify { range, id } => Some((*range, *id)),
            Purpose::Write { .. } | Purpose::Flush { .. } | Purpose::ShutDown { .. } => None,
            Purpose::HandleStatus { .. } | Purpose::HandleUpdate => None,
        }
    }
}
