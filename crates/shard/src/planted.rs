//! A check that fails on purpose, so that tests see what follows. A build without debug assertions carries none of it.

#[cfg(not(debug_assertions))]
use diecut_namespace::contract::NamespaceCommand;
#[cfg(debug_assertions)]
use diecut_namespace::contract::{NamespaceCommand, NamespaceOperation};

/// Where a shard fails; see the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlantedPanic {
    /// When it begins a write of one block at this LBA, each time.
    WriteAt(u64),
    /// When it begins its command of this number, from 1.
    Command(u64),
}

impl PlantedPanic {
    /// Fails if it is time.
    #[cfg(debug_assertions)]
    #[inline]
    pub(crate) fn check(planted: &Option<PlantedPanic>, command: &NamespaceCommand, begun: u64) {
        let Some(planted) = planted else { return };
        let is_due = match planted {
            PlantedPanic::Command(nth) => *nth == begun,
            PlantedPanic::WriteAt(lba) => matches!(
                &command.operation,
                NamespaceOperation::Write { range, .. } if (range.first_lba, range.lba_count) == (*lba, 1)
            ),
        };
        assert!(!is_due, "planted: {planted:?}");
    }

    #[cfg(not(debug_assertions))]
    #[inline]
    pub(crate) fn check(_: &Option<PlantedPanic>, _: &NamespaceCommand, _: u64) {}
}
