//! The chunk notification log of a controller, and what its host is told of it; and which namespaces are to give media feedback.

use super::Notice;
use diecut_namespace::contract::{ChunkNotice, ErrorRate};
use diecut_nvme::admin::AsynchronousEvent;
use diecut_nvme::openchannel::{ChunkNotification, LOG_ENTRIES_MAX, notification_mask, notification_state};
use diecut_units::{mark, mutant};
use std::collections::{BTreeSet, VecDeque};
use zerocopy::IntoBytes;

/// See the module. A log begins anew with its controller, and has a bounded length: the oldest entries go first, and the next one's count says
/// that some went.
#[derive(Debug, Default)]
pub(crate) struct ChunkLog {
    /// Count of the newest entry.
    count: u64,
    /// The oldest first.
    entries: VecDeque<ChunkNotification>,
    notice: Notice,
    /// By NSID: a vector read of data that is hard to read says so.
    told_high_ecc: BTreeSet<u32>,
}

impl ChunkLog {
    /// Something became known of chunks of a namespace.
    pub(crate) fn add_all(&mut self, nsid: u32, notices: &[ChunkNotice]) {
        notices.iter().for_each(|notice| self.add(nsid, notice));
    }

    fn add(&mut self, nsid: u32, notice: &ChunkNotice) {
        let state = match notice.error_rate {
            ErrorRate::None => return,
            ErrorRate::Low => notification_state::ERROR_RATE_LOW,
            ErrorRate::Medium => notification_state::ERROR_RATE_MEDIUM,
            ErrorRate::High => notification_state::ERROR_RATE_HIGH,
            ErrorRate::Unrecoverable => notification_state::UNRECOVERABLE,
        };
        let (mask, blocks) = match notice.count.checked_sub(1) {
            None => (notification_mask::CHUNK, 0),
            Some(blocks) => (notification_mask::LOGICAL_BLOCKS, u16::try_from(blocks).unwrap_or(u16::MAX)),
        };
        self.count += 1;
        if self.entries.len() == LOG_ENTRIES_MAX {
            mark!("nvmf: a chunk notification goes unread");
            self.entries.pop_front();
        }
        self.entries.push_back(ChunkNotification {
            count: self.count.into(),
            lba: notice.lba.into(),
            nsid: nsid.into(),
            state: state.into(),
            mask,
            block_count: blocks.into(),
            ..ChunkNotification::default()
        });
        if self.notice == Notice::Quiet && !mutant!("nvmf: a chunk notification is not told") {
            self.notice = Notice::Pending;
        }
    }

    /// The log. Where the event is not to stay, the entries of which the host gets all go; if others are left, it is told again.
    pub(super) fn read(&mut self, offset: u64, length_bytes: u64, retain_event: bool) -> Vec<u8> {
        let mut page: Vec<u8> = self.entries.iter().flat_map(|entry| entry.as_bytes().to_vec()).collect();
        page.resize(LOG_ENTRIES_MAX * ChunkNotification::SIZE_BYTES, 0);
        if !retain_event {
            let size = ChunkNotification::SIZE_BYTES as u64;
            let entries = self.entries.len() as u64;
            let (first, end) = (offset.div_ceil(size), offset.saturating_add(length_bytes) / size);
            let end = if mutant!("nvmf: entries go unread") { entries } else { end.min(entries) } as usize;
            self.entries.drain((first.min(entries) as usize).min(end)..end);
            self.notice = if self.entries.is_empty() { Notice::Quiet } else { Notice::Pending };
        }
        page
    }

    /// The next event; it counts as told.
    pub(super) fn next_event(&mut self) -> Option<AsynchronousEvent> {
        let is_told = self.notice.is_to_be_told();
        if is_told {
            mark!("nvmf: host told of a chunk");
        }
        is_told.then_some(AsynchronousEvent::CHUNK_NOTIFICATION)
    }

    /// The namespace is another one.
    pub(super) fn forget(&mut self, nsid: u32) {
        self.entries.retain(|entry| entry.nsid.get() != nsid);
        self.told_high_ecc.remove(&nsid);
        if self.entries.is_empty() {
            self.notice = Notice::Quiet;
        }
    }

    /// Whether vector reads of a namespace say that data is hard to read.
    pub(crate) fn tells_high_ecc(&self, nsid: u32) -> bool {
        self.told_high_ecc.contains(&nsid)
    }

    /// Sets that.
    pub(crate) fn tell_high_ecc(&mut self, nsid: u32, is_on: bool) {
        if is_on {
            self.told_high_ecc.insert(nsid);
        } else {
            self.told_high_ecc.remove(&nsid);
        }
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use zerocopy::FromBytes;

    fn notice(lba: u64) -> ChunkNotice {
        ChunkNotice { lba, count: 0, error_rate: ErrorRate::Low }
    }

    fn counts(page: &[u8]) -> Vec<u64> {
        let entries = page.chunks_exact(64).map(|bytes| ChunkNotification::read_from_bytes(bytes).unwrap());
        entries.map(|entry| entry.count.get()).take_while(|count| *count > 0).collect()
    }

    /// Goal: entries go when they are read, as many as were read, and a host is told until none is left. Method: entries by hand.
    #[test]
    fn what_is_read_goes() {
        let mut log = ChunkLog::default();
        assert_eq!(log.next_event(), None);
        for lba in 0..5 {
            log.add(1, &notice(lba));
        }
        assert_eq!((log.next_event().is_some(), log.next_event()), (true, None), "told once");
        assert_eq!(counts(&log.read(0, 4096, true)), [1, 2, 3, 4, 5], "kept");
        assert_eq!(log.next_event(), None, "masked until entries go");
        log.add(2, &notice(9));
        assert_eq!(log.next_event(), None, "masked for new ones, too");
        log.read(0, 2 * 64 + 63, false);
        assert!(log.next_event().is_some(), "others are left");
        assert_eq!(counts(&log.read(64, 64, false)), [3, 4, 5, 6]);
        assert_eq!(counts(&log.read(0, 4096, true)), [3, 5, 6], "the second one was read");
        log.forget(1);
        assert_eq!(counts(&log.read(5000, u64::MAX, false)), [6]);
        assert_eq!(counts(&log.read(0, 4096, false)), [6]);
        assert_eq!((log.next_event(), counts(&log.read(0, 4096, true))), (None, vec![]));
        for lba in 0..70 {
            log.add(1, &notice(lba));
        }
        assert_eq!(counts(&log.read(0, 4096, false)), (13..=76).collect::<Vec<u64>>(), "the oldest went");
    }
}
