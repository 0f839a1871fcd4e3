//! Commands of the runner as the initiator sends them.

use crate::placed::{self, Placed};
use crate::plan::Range;
use crate::system::{HostCommand, ranges_of, sources_of};
use diecut_initiator::{Command, LbaSpan, QueuePair, Token};
use diecut_units::Buffer;

/// A command that is about to be sent.
pub(super) enum Asked {
    Plain(Command),
    Placed(Placed),
}

fn span(range: Range) -> LbaSpan {
    LbaSpan { nsid: u32::from(range.volume.0), first: range.first, count: range.count }
}

impl Asked {
    /// `size`: bytes of an IU.
    pub(super) fn of(command: HostCommand, size: u32) -> Asked {
        Asked::Plain(match command {
            HostCommand::Placed(placed) => return Asked::Placed(placed),
            HostCommand::Read(range) => Command::Read { span: span(range), length_bytes: range.count * size },
            HostCommand::Write(range, data, force_unit_access) => {
                Command::Write { span: span(range), data: Buffer::copy_from(&data), force_unit_access }
            }
            HostCommand::Flush(volume) => Command::Flush { nsid: u32::from(volume.0) },
            HostCommand::Deallocate(range) => {
                Command::DeallocateRanges { spans: ranges_of(range).into_iter().map(span).collect() }
            }
            HostCommand::WriteZeroes(range, force_unit_access) => {
                Command::WriteZeroes { span: span(range), may_deallocate: true, force_unit_access }
            }
            HostCommand::Compare(range, data) => {
                Command::Compare { span: span(range), data: Buffer::copy_from(&data) }
            }
            HostCommand::Verify(range) => Command::Verify { span: span(range) },
            HostCommand::WriteUncorrectable(range) => Command::WriteUncorrectable { span: span(range) },
            HostCommand::Copy(range, to, force_unit_access) => {
                let sources = sources_of(range).into_iter().map(span).collect();
                Command::Copy { sources, first: to.first, force_unit_access }
            }
        })
    }

    /// Sends it on a queue that has room.
    pub(super) fn submit(self, queue: &mut QueuePair, token: Token) {
        match self {
            Asked::Plain(command) => queue.submit(token, command),
            Asked::Placed(command) => placed::submit(queue, token, command),
        }
    }
}
