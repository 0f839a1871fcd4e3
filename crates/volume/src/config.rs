use crate::anchoring::AnchorPace;
use crate::loss::Recovery;
use diecut_log::{Format, LogStatistics, Placement};
use diecut_units::Span;

/// What is chosen when a store is opened.
#[derive(Clone, Debug)]
pub struct StoreConfig {
    /// IUs volumes can store, at most [`crate::Store::exportable_ius`].
    pub exported_ius: u64,
    /// Completions of writes do not wait for durability; hosts must flush.
    pub volatile_cache: bool,
    /// Without protected memory: how long a write waits for others to fill its chunk before the chunk is padded.
    pub group_commit: Span,
    /// Staging slots of host data without protected memory.
    pub user_slots: usize,
    /// Reclaim unit handles; the same at each opening.
    pub placement: Placement,
    /// How much leaves and anchors may write.
    pub anchor_pace: AnchorPace,
    /// What is done about what is missing.
    pub recovery: Recovery,
    /// Format that is written; both are read. Where pages have no OOB areas it is always the new one, elsewhere only tests ask for that yet.
    pub format: Format,
}

impl Default for StoreConfig {
    fn default() -> StoreConfig {
        StoreConfig {
            exported_ius: u64::MAX,
            volatile_cache: false,
            group_commit: Span::from_micros(200),
            user_slots: 32,
            placement: Placement::default(),
            anchor_pace: AnchorPace::default(),
            recovery: Recovery::Strict,
            format: Format::default(),
        }
    }
}

/// Figures since the store was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreStatistics {
    /// IUs programmed by cause.
    pub log: LogStatistics,
    /// IUs that hosts wrote.
    pub host_written_ius: u64,
    /// IUs that hold data.
    pub used_ius: u64,
    /// IUs volumes can store.
    pub exported_ius: u64,
}
