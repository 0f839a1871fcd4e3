//! Attachments of applications at erase blocks.

use diecut_blockspace::session::Session;
use diecut_vssd::VssdId;

/// An application's attachment, numbered by the driver, unique over all shards and never used again while the process
/// lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockSession(pub u64);

/// What a session knows of its blocks, on its way to another shard.
pub(crate) struct MovedSession {
    pub session: Option<BlockSession>,
    pub vssd: VssdId,
    pub core: Session,
}
