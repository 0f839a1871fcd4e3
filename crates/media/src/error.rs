use diecut_units::EraseBlockAddress;

/// Facts of the medium. Broken flash rules are not among them: they are the submitter's bug and panic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MediaError {
    /// More bit errors than the code corrects, or a torn page.
    #[error("{block} page {page}: uncorrectable")]
    Uncorrectable {
        /// Erase block.
        block: EraseBlockAddress,
        /// First page that failed.
        page: u32,
    },
    /// The page was not programmed since the last erase.
    #[error("{block} page {page}: not programmed")]
    Erased {
        /// Erase block.
        block: EraseBlockAddress,
        /// First page that is erased.
        page: u32,
    },
    /// The program failed; the pages of this command hold garbage, earlier pages still read.
    #[error("{block} page {page}: program failed")]
    ProgramFailed {
        /// Erase block.
        block: EraseBlockAddress,
        /// First page of the command.
        page: u32,
    },
    /// The device has no room for what was to be programmed (see [`crate::Media::make_room`]). Nothing is wrong with the
    /// block; what it held before still reads, and it can be programmed after an erase.
    #[error("{block} page {page}: the device has no room for it")]
    NoRoom {
        /// Erase block.
        block: EraseBlockAddress,
        /// First page of the command.
        page: u32,
    },
    /// The erase failed; the block is worn out.
    #[error("{block}: erase failed")]
    EraseFailed {
        /// Erase block.
        block: EraseBlockAddress,
    },
    /// The die or its channel no longer answers.
    #[error("{block}: die does not answer")]
    DieOffline {
        /// Erase block that was addressed.
        block: EraseBlockAddress,
    },
    /// The flush failed: what was programmed since the last one that worked may be gone, and no later one brings it back.
    #[error("the drive could not make durable what it took since its last flush")]
    FlushFailed,
    /// The read asked for bytes where tags are stored, or the other way round. Only in tag mode; recovery
    /// probes with it.
    #[error("{block} page {page}: content is stored in the other mode")]
    WrongContentMode {
        /// Erase block.
        block: EraseBlockAddress,
        /// Page.
        page: u32,
    },
    /// The power is gone; nothing works until the medium is opened again.
    #[error("power is lost")]
    PowerLost,
}
