//! What a shard is at work for at this moment, and the commands that it began last: so that whoever catches its panic can name the
//! vSSD at fault. A store of a few bytes each; no memory is taken.

use diecut_namespace::StoreIndex;
use diecut_namespace::contract::{NamespaceCommand, NamespaceId, NamespaceOperation};
use diecut_vssd::VssdId;

/// Commands that are known.
const COMMANDS: usize = 16;

/// For whom the shard works.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum For {
    /// For no single vSSD.
    #[default]
    All,
    Vssd(VssdId),
    Store(StoreIndex),
    Namespace(NamespaceId),
}

#[derive(Clone, Copy, Debug, Default)]
struct Began {
    namespace: NamespaceId,
    what: &'static str,
    first_lba: u64,
    lba_count: u32,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct AtWork {
    pub now_for: For,
    commands: [Began; COMMANDS],
    /// Commands begun so far.
    begun: u64,
}

/// What a command is, for people: its kind, its first block, and how many.
fn outline(operation: &NamespaceOperation) -> (&'static str, u64, u32) {
    match operation {
        NamespaceOperation::Read { range, .. } => ("read", range.first_lba, range.lba_count),
        NamespaceOperation::Write { range, .. } => ("write", range.first_lba, range.lba_count),
        NamespaceOperation::Flush => ("flush", 0, 0),
        NamespaceOperation::Deallocate { ranges } => {
            let first = ranges.first().copied().unwrap_or_default();
            ("deallocate", first.first_lba, first.lba_count)
        }
        NamespaceOperation::WriteZeroes { range, .. } => ("write zeroes", range.first_lba, range.lba_count),
        NamespaceOperation::Compare { range, .. } => ("compare", range.first_lba, range.lba_count),
        NamespaceOperation::Copy(copy) => ("copy", copy.first_lba, copy.destination().lba_count),
        NamespaceOperation::WriteUncorrectable { range } => {
            ("write uncorrectable", range.first_lba, range.lba_count)
        }
        NamespaceOperation::Verify { range } => ("verify", range.first_lba, range.lba_count),
        NamespaceOperation::Purge => ("purge", 0, 0),
        NamespaceOperation::Zone(_) => ("zone command", 0, 0),
        NamespaceOperation::Chunk(_) => ("chunk command", 0, 0),
    }
}

impl AtWork {
    /// A command begins.
    #[inline]
    pub fn begins(&mut self, command: &NamespaceCommand) {
        let (what, first_lba, lba_count) = outline(&command.operation);
        self.now_for = For::Namespace(command.namespace);
        let place = (self.begun % COMMANDS as u64) as usize;
        self.commands[place] = Began { namespace: command.namespace, what, first_lba, lba_count };
        self.begun += 1;
    }

    /// Commands begun so far.
    pub fn begun(&self) -> u64 {
        self.begun
    }

    /// The last commands in lines, the last one last.
    pub fn commands(&self) -> Vec<String> {
        let first = self.begun.saturating_sub(COMMANDS as u64);
        let line = |number: u64| {
            let one = &self.commands[(number % COMMANDS as u64) as usize];
            let Began { namespace, what, first_lba, lba_count } = one;
            format!("{number}: {what}, namespace {}, LBA {first_lba}, {lba_count} blocks", namespace.0)
        };
        (first..self.begun).map(line).collect()
    }
}
