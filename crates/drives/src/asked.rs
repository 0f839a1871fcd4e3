//! What a medium asked its driver for.

use diecut_media::MediaToken;

/// Who waits for an intent.
pub(crate) enum Asked {
    Read {
        token: MediaToken,
        lane: u16,
        block: u32,
        first_page: u32,
    },
    Program {
        lane: u16,
        block: u32,
        first_page: u32,
    },
    /// A discard, or a reset that nobody waits for.
    Discard {
        lane: u16,
        block: u32,
    },
    /// A reset for an erase.
    Reset {
        token: MediaToken,
        lane: u16,
        block: u32,
    },
    /// A zone gives way: it is finished, or reset if it holds nothing.
    GiveWay {
        lane: u16,
        block: u32,
        is_reset: bool,
    },
    Flush,
}
