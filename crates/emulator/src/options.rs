//! How an emulator is set up beyond its profile.

use crate::FaultPlan;

/// Where content lies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Backing {
    /// Anonymous memory, touched as it is programmed. Gone with the emulator.
    #[default]
    Memory,
    /// 8-byte tags instead of content ([`diecut_units::ContentMode::Tags`]); IUs programmed as bytes are kept
    /// aside. For virtual time only.
    Tags,
    /// A sparse file, mapped into memory: everything that completed, and protected memory, survives the death of the
    /// process. What survives the death of the machine is what its file system wrote back: see
    /// [`crate::Device::sync`].
    File(std::path::PathBuf),
    /// A sparse file of which nothing is mapped: completions of programs, copies and erases wait for a sync that covers them, and what
    /// completed survives the death of the machine. There is no protected memory, and the device is not divided. Whoever
    /// drives it syncs: see [`diecut_media::Media::take_intents`] and [`crate::Device::sync_file`].
    SyncedFile(std::path::PathBuf),
    /// The same in a model of a file in memory: at a power cut any subset of what no sync covers is kept, torn at 512 bytes. For
    /// virtual time.
    SyncedModel,
}

/// Whether operations take time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pacing {
    /// The event model: dies, buses and the front end take the time of the profile. Right for virtual time and for a
    /// real clock alike, because `now` arrives as a value.
    #[default]
    Modelled,
    /// Commands take effect when they are submitted and complete with the next `advance`.
    Unpaced,
}

/// How an emulator is set up beyond its profile.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Where content lies.
    pub backing: Backing,
    /// Whether operations take time.
    pub pacing: Pacing,
    /// Chooses factory bad blocks, the endurance of each block, and what random faults hit.
    pub seed: u64,
    /// What goes wrong.
    pub faults: FaultPlan,
    /// With [`Backing::SyncedFile`]: where every change of the file is noted, for tests of what a cut leaves.
    pub changes: Option<crate::FileChanges>,
}
