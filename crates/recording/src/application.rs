//! What an application at erase blocks did, as it entered a shard.

use crate::content::Content;
use diecut_blockspace::session::Command;
use diecut_blockspace::wire::Submission;
use diecut_shard::drive::{BlockEvent, BlockSession};
use diecut_units::BufferPool;

/// An event of an application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Application {
    /// It wanted to attach.
    Attach {
        /// Number of the attachment.
        session: BlockSession,
        /// Name of the vSSD.
        vssd: String,
        /// User it ran as.
        uid: u32,
        /// Whether that user may attach to any vSSD.
        is_privileged: bool,
    },
    /// It submitted an entry.
    Submitted {
        /// The attachment.
        session: BlockSession,
        /// The entry; its token alone if its bytes made no sense.
        entry: Result<Submission, u64>,
        /// Data that came with it. Of an append only how long they were.
        data: Option<Content>,
    },
    /// It was gone.
    Closed {
        /// The attachment.
        session: BlockSession,
    },
}

impl Application {
    /// The event again, with zeros for what was left out.
    pub fn event(self, pool: &mut BufferPool) -> BlockEvent {
        match self {
            Application::Attach { session, vssd, uid, is_privileged } => {
                BlockEvent::Attach { session, vssd, uid, is_privileged }
            }
            Application::Submitted { session, entry, data } => {
                let data = data.map(|content| {
                    let mut bytes = pool.take(content.len_bytes());
                    content.fill(&mut bytes);
                    bytes
                });
                BlockEvent::Submitted { session, command: Command { entry, data } }
            }
            Application::Closed { session } => BlockEvent::Closed { session },
        }
    }
}
