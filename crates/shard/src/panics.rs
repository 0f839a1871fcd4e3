//! Panics of shards, as plain data: what is told of one, and which vSSD is fenced after several. Time is a value.
//!
//! An inner check that fails is a bug. Who drives shards catches it, and everything begins anew from the media
//! ([`crate::divide`]); what is kept of it is a [`PanicRecord`] in a [`PanicBook`]. A vSSD at which two of them happened within
//! [`WINDOW_MS`] is fenced: hosts read it and write it no more, so that one tenant's bad luck does not end the service of all again
//! and again. An administrator lifts the fence.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};

/// Panics are counted together within so many milliseconds.
pub const WINDOW_MS: u64 = 10 * 60 * 1000;
/// So many of one vSSD within [`WINDOW_MS`] fence it.
pub const FENCE_AFTER: usize = 2;
/// So many of all within [`WINDOW_MS`] are too many: whoever begins anew once more would do nothing else.
pub const GIVE_UP_AFTER: usize = 6;
/// Records that are kept; older ones go.
pub const RECORDS_MAX: usize = 64;
/// Bytes of a message that are kept.
const MESSAGE_MAX_BYTES: usize = 1024;

/// Why a fenced vSSD takes no writes.
pub const FENCED: &str = "fenced: two panics of the server within ten minutes happened at work for it; `diecut panics` says \
                          more, and `diecut vssd unfence NAME` lets it take writes again";

/// What a shard was at work for, for whoever caught its panic.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkOutline {
    /// Number and name of the vSSD, if it was at work for one.
    pub vssd: Option<(u32, String)>,
    /// The last commands that it began, the last one last.
    pub commands: Vec<String>,
}

/// A panic of a shard.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PanicRecord {
    /// Rises with each panic of a pool's servers; [`PanicBook::note`] gives it.
    pub number: u64,
    /// When, in milliseconds of the clock that the book is kept by.
    pub at_ms: u64,
    /// The shard, from 0.
    pub shard: u16,
    /// What the check said.
    pub message: String,
    /// The check's file, line and column.
    pub location: String,
    /// Number of the vSSD that the shard was at work for; none if it was for no single one.
    pub vssd: Option<u32>,
    /// Its name.
    pub vssd_name: Option<String>,
    /// The last commands that the shard began, the last one last.
    pub commands: Vec<String>,
    /// The last notices of the shard, the last one last.
    pub notices: Vec<String>,
    /// A fence was lifted since: it fences no more.
    pub is_forgiven: bool,
}

impl PanicRecord {
    /// What the panic is known by: the same for each of one place in the source, never 0. (The panic ID of OCP 2.5, section 4.8.6.)
    pub fn id(&self) -> u64 {
        // FNV-1a, 64 bits.
        let hash = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        self.location.bytes().fold(0xcbf2_9ce4_8422_2325, hash).max(1)
    }

    /// In lines, for people.
    pub fn describe(&self) -> String {
        let vssd =
            self.vssd_name.as_ref().map_or("no single vSSD".to_owned(), |name| format!("vSSD \"{name}\""));
        let mut text = format!(
            "panic {} (id {:016x}) of shard {} at work for {vssd}\n{}\n{}\n",
            self.number,
            self.id(),
            self.shard,
            self.location,
            self.message
        );
        for (title, lines) in [("last commands", &self.commands), ("last notices", &self.notices)] {
            if !lines.is_empty() {
                text += &format!("{title}:\n");
                lines.iter().for_each(|line| text += &format!("    {line}\n"));
            }
        }
        text
    }
}

/// A vSSD that is fenced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fence {
    /// Its name.
    pub vssd: String,
    /// Since when, as [`PanicRecord::at_ms`].
    pub since_ms: u64,
    /// The panic that fenced it.
    pub panic: u64,
}

/// What follows from a panic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Everything begins anew.
    BeginAnew,
    /// The same, and the vSSD at fault is fenced from now on.
    Fence,
    /// There were too many: the process ends, and whoever keeps it decides.
    GiveUp,
}

/// Panics of a pool's servers, the last [`RECORDS_MAX`], and which vSSDs are fenced for them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PanicBook {
    /// Panics so far.
    pub count: u64,
    /// The last ones, the last one last.
    pub records: VecDeque<PanicRecord>,
    /// Fenced vSSDs, by number.
    pub fenced: BTreeMap<u32, Fence>,
}

impl PanicBook {
    /// Takes a panic, gives it its number, and says what follows.
    pub fn note(&mut self, mut record: PanicRecord) -> Verdict {
        self.count += 1;
        record.number = self.count;
        let mut end = record.message.len().min(MESSAGE_MAX_BYTES);
        while !record.message.is_char_boundary(end) {
            end -= 1;
        }
        record.message.truncate(end);
        let (at_ms, vssd, name) = (record.at_ms, record.vssd, record.vssd_name.clone());
        self.records.push_back(record);
        while self.records.len() > RECORDS_MAX {
            self.records.pop_front();
        }
        // A clock that was set back makes nothing older than it is.
        let recent = || self.records.iter().filter(|one| at_ms.saturating_sub(one.at_ms) < WINDOW_MS);
        if recent().count() >= GIVE_UP_AFTER {
            return Verdict::GiveUp;
        }
        let Some(number) = vssd else { return Verdict::BeginAnew };
        let own = recent().filter(|one| one.vssd == Some(number) && !one.is_forgiven).count();
        if own < FENCE_AFTER || self.fenced.contains_key(&number) {
            return Verdict::BeginAnew;
        }
        let vssd = name.unwrap_or_else(|| format!("number {number}"));
        self.fenced.insert(number, Fence { vssd, since_ms: at_ms, panic: self.count });
        Verdict::Fence
    }

    /// Lifts the fence of a vSSD, and forgives its panics: the next one is the first again. Whether there was a fence.
    pub fn lift(&mut self, name: &str) -> bool {
        let before = self.fenced.len();
        self.fenced.retain(|_, fence| fence.vssd != name);
        for record in self.records.iter_mut().filter(|one| one.vssd_name.as_deref() == Some(name)) {
            record.is_forgiven = true;
        }
        self.fenced.len() < before
    }
}

#[cfg(test)]
mod test {
    use super::*;

    fn record(at_ms: u64, vssd: Option<u32>) -> PanicRecord {
        let vssd_name = vssd.map(|number| format!("v{number}"));
        PanicRecord { at_ms, vssd, vssd_name, location: "a.rs:1:2".to_owned(), ..PanicRecord::default() }
    }

    /// Goal: two panics of one vSSD within ten minutes fence it, two of different ones do not, nor two that are ten minutes apart.
    #[test]
    fn two_panics_of_one_vssd_in_ten_minutes_fence_it() {
        let mut book = PanicBook::default();
        assert_eq!(book.note(record(0, Some(1))), Verdict::BeginAnew);
        assert_eq!(book.note(record(1, Some(2))), Verdict::BeginAnew);
        assert_eq!(book.note(record(2, None)), Verdict::BeginAnew);
        assert_eq!(book.note(record(WINDOW_MS, Some(1))), Verdict::BeginAnew, "the first one is over");
        assert_eq!(book.note(record(2 * WINDOW_MS - 1, Some(1))), Verdict::Fence);
        let fence = Fence { vssd: "v1".to_owned(), since_ms: 2 * WINDOW_MS - 1, panic: 5 };
        assert_eq!(book.fenced, BTreeMap::from([(1, fence)]));
        assert!(!book.lift("v2") && book.lift("v1") && book.fenced.is_empty());
        assert_eq!(book.note(record(2 * WINDOW_MS, Some(1))), Verdict::BeginAnew, "it has a new chance");
        assert_eq!(book.note(record(2 * WINDOW_MS + 1, Some(1))), Verdict::Fence);
    }

    /// Goal: who fails again and again gives up, and the book does not grow.
    #[test]
    fn too_many_are_too_many_and_the_book_is_bounded() {
        let mut book = PanicBook::default();
        for at in 1..GIVE_UP_AFTER as u64 {
            assert_ne!(book.note(record(at, None)), Verdict::GiveUp);
        }
        assert_eq!(book.note(record(9, None)), Verdict::GiveUp);
        for at in 1..200 {
            let long = PanicRecord { message: "\u{e4}".repeat(1000), ..record(at * WINDOW_MS + 10, Some(1)) };
            assert_eq!(book.note(long), Verdict::BeginAnew);
        }
        assert_eq!(book.records.len(), RECORDS_MAX);
        assert_eq!(
            book.records.back().map(|one| (one.number, one.message.len())),
            Some((205, MESSAGE_MAX_BYTES))
        );
        let text = serde_json::to_string(&book).unwrap();
        assert_eq!(serde_json::from_str::<PanicBook>(&text).unwrap(), book);
    }

    #[test]
    fn a_panic_is_known_by_its_place() {
        let one = record(1, Some(1));
        assert_eq!(one.id(), record(2, None).id());
        assert_ne!(one.id(), PanicRecord::default().id());
        assert!(one.describe().contains("vSSD \"v1\"") && one.describe().contains("a.rs:1:2"));
    }
}
