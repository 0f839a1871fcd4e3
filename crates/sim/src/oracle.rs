//! What a host may see: the set of allowed values of every IU, kept outside the system.
//!
//! Every write (also a deallocation or write zeroes, which write zeros) is a *candidate* value of its IUs from
//! the moment it is issued. It stops being allowed for reads that are issued after it was *superseded*:
//! - by an acknowledged write that was issued after the candidate had ended, or
//! - by a read that saw another value although the candidate had ended before that read was issued.
//!
//! Writes that were under way together stay allowed together until a read decides. A write without an
//! acknowledgement (process death, power cut, lost connection) may have happened or not, but ends there: it
//! cannot land later. A crash takes back what was superseded only by something the crash may lose: where no volatile
//! cache was agreed, nothing that was acknowledged; with one, nothing acknowledged *and durable* (flushed, FUA, or before a
//! clean shutdown), for the cache is memory of the process; what a start found then stays, whatever comes after. That the death of the process and a power cut lose nothing are
//! two promises, and separate findings.
//!
//! Times here are stamps, one per call, so that "before" is never a tie.

use crate::plan::{Lane, Range};
use crate::tag::{Content, Tag, VolumeNumber, recognize};
use std::collections::{BTreeMap, BTreeSet};

/// Identity of a write under way or done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WriteId {
    /// Volume.
    pub volume: VolumeNumber,
    /// Version it gives to its IUs.
    pub version: u32,
}

/// What an IU holds, by all that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Certain {
    /// Which write gave it. Zeros of two deallocations differ in nothing else: between them it held something.
    pub version: u32,
    /// `None`: zeros.
    pub tag: Option<Tag>,
}

/// A read under way: when it was issued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReadId(u64);

/// How the system went away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Crash {
    /// The process died; the medium and protected memory are intact.
    ProcessDeath,
    /// The power went.
    PowerCut,
}

/// What a checker found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Finding {
    /// Acknowledged, and gone after the death of the process.
    LostAfterProcessDeath,
    /// Acknowledged and durable, and gone after a power cut.
    LostAfterPowerCut,
    /// An older value without any crash between.
    Stale,
    /// Deallocated or zeroed data that came back.
    Resurrected,
    /// Data of another volume.
    Foreign,
    /// Data of another LBA.
    Misdirected,
    /// A mixture, or bytes nobody wrote.
    Torn,
    /// A version nobody wrote yet.
    NeverWritten,
    /// Data in a reclaim unit of a handle that they were not written to.
    Misplaced,
    /// Data on the medium that a host had erased.
    NotErased,
    /// A comparison, verification or error that does not fit what must be there.
    WrongAnswer,
    /// An error without a cause in the plan.
    UnexpectedError,
    /// Something was read where the medium lost what there was, instead of an error.
    LossHidden,
    /// A command that was not answered in time.
    Liveness,
    /// A tenant that starved beside another.
    Fairness,
    /// An administrator's request was answered wrongly, or what exists is not what was said.
    Administration,
    /// Programs or erases that no cause accounts for.
    Conservation,
    /// The same plan ran differently twice.
    NotDeterministic,
    /// The system's own assert or invariant.
    Panic,
    /// The system did not come back after a crash.
    RecoveryFailed,
}

/// One finding with its story.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Violation {
    /// Kind.
    pub finding: Finding,
    /// Which check found it: a place in the checkers, or what the system said without its numbers. Runs that fail in the same
    /// way have the same.
    #[serde(default)]
    pub check: String,
    /// What exactly, for people.
    pub detail: String,
}

impl Violation {
    /// What the caller found.
    #[track_caller]
    pub fn seen(finding: Finding, detail: String) -> Violation {
        let caller = std::panic::Location::caller();
        Violation { finding, check: format!("{}:{}", caller.file(), caller.line()), detail }
    }

    /// What the system said itself: an error, or a panic with its place.
    pub fn said(finding: Finding, detail: String) -> Violation {
        let lines = detail.lines().take(2).map(|line| match line.strip_prefix("panicked at ") {
            Some(place) => place.to_owned(),
            None => without_values(line),
        });
        Violation { finding, check: lines.collect::<Vec<_>>().join(" "), detail }
    }
}

/// A sentence without what differs from run to run: digits, and what stands in brackets or quotation marks.
fn without_values(text: &str) -> String {
    let (mut depth, mut quoted) = (0u32, false);
    let kept = text.chars().filter(|&letter| {
        quoted ^= letter == '"';
        depth = match letter {
            '(' | '[' | '{' => depth + 1,
            ')' | ']' | '}' => depth.saturating_sub(1),
            _ => depth,
        };
        depth == 0 && !quoted && !letter.is_ascii_digit() && !"\")]}".contains(letter)
    });
    kept.collect()
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}: {}", self.finding, self.detail)
    }
}

#[derive(Clone, Copy, Debug)]
struct Candidate {
    /// 0 for the zeros before the first write.
    version: u32,
    value: Value,
    issued: u64,
    ended: Option<u64>,
    acked: bool,
    durable: bool,
    /// Since when, and by which version.
    superseded: Option<(u64, u32)>,
}

/// What a write leaves behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Value {
    /// Its own version.
    Fresh,
    /// Zeros.
    Zeros,
    /// What was elsewhere.
    Copied(Tag),
    /// Nothing that can be read.
    Unreadable,
}

impl Candidate {
    /// What a read gives.
    fn content(&self, volume: VolumeNumber, lba: u64) -> Option<Content> {
        match self.value {
            Value::Fresh => Some(Content::Tagged(Tag { volume, lba, version: self.version })),
            Value::Zeros => Some(Content::Zeros),
            Value::Copied(tag) => Some(Content::Tagged(tag)),
            Value::Unreadable => None,
        }
    }

    /// Whether a read that was issued then may meet it.
    fn is_open_to(&self, read: u64) -> bool {
        self.superseded.is_none_or(|(since, _)| since > read)
    }
}

#[derive(Debug)]
struct WriteState {
    range: Range,
    lane: Lane,
    issued: u64,
}

#[derive(Debug)]
struct VolumeHistory {
    next_version: u32,
    cells: Vec<Vec<Candidate>>,
    /// Not ended.
    under_way: BTreeMap<u32, WriteState>,
    /// Acknowledged, but a crash may take them.
    volatile: BTreeMap<u32, (Range, u64)>,
    reads: BTreeSet<u64>,
    /// IUs that the medium lost and that nobody wrote since: reads of them fail.
    lost: BTreeSet<u64>,
    /// Of those under way, the ones that were answered "not ready", and when: a flush that comes later finds them ended.
    left: BTreeMap<u32, u64>,
    /// Whether what is acknowledged may wait in a cache.
    volatile_cache: bool,
}

/// The oracle of all volumes.
#[derive(Debug)]
pub struct Oracle {
    stamp: u64,
    last_crash: Option<(u64, Crash)>,
    volumes: BTreeMap<VolumeNumber, VolumeHistory>,
}

impl Oracle {
    /// An oracle of fresh volumes of so many IUs, which read as zeros. Of one with a volatile cache, only flush and FUA make
    /// durable; without, an acknowledgement does.
    pub fn new(volumes: impl IntoIterator<Item = (VolumeNumber, u64, bool)>) -> Oracle {
        let initial = Candidate {
            version: 0,
            value: Value::Zeros,
            issued: 0,
            ended: Some(0),
            acked: true,
            durable: true,
            superseded: None,
        };
        let volumes = volumes
            .into_iter()
            .map(|(number, iu_count, volatile_cache)| {
                let history = VolumeHistory {
                    next_version: 1,
                    cells: vec![vec![initial]; iu_count as usize],
                    under_way: BTreeMap::new(),
                    volatile: BTreeMap::new(),
                    reads: BTreeSet::new(),
                    lost: BTreeSet::new(),
                    left: BTreeMap::new(),
                    volatile_cache,
                };
                (number, history)
            })
            .collect();
        Oracle { stamp: 1, last_crash: None, volumes }
    }

    fn tick(&mut self) -> u64 {
        self.stamp += 1;
        self.stamp
    }

    fn volume(&mut self, number: VolumeNumber) -> &mut VolumeHistory {
        self.volumes.get_mut(&number).expect("plans name volumes that exist")
    }

    /// A write of a fresh version (or of zeros) is issued.
    pub fn begin_write(&mut self, lane: Lane, range: Range, zeros: bool) -> WriteId {
        self.begin(lane, range, |_| if zeros { Value::Zeros } else { Value::Fresh })
    }

    /// A copy of what is certain elsewhere is issued. Nothing changes it meanwhile.
    pub fn begin_copy(&mut self, lane: Lane, to: Range, content: &[Certain]) -> WriteId {
        self.begin(lane, to, |at| content[at].tag.map_or(Value::Zeros, Value::Copied))
    }

    /// Reads of a range are to fail.
    pub fn begin_unreadable(&mut self, lane: Lane, range: Range) -> WriteId {
        self.begin(lane, range, |_| Value::Unreadable)
    }

    fn begin(&mut self, lane: Lane, range: Range, value: impl Fn(usize) -> Value) -> WriteId {
        let issued = self.tick();
        let history = self.volume(range.volume);
        let version = history.next_version;
        history.next_version += 1;
        history.under_way.insert(version, WriteState { range, lane, issued });
        for (at, iu) in range.ius().enumerate() {
            history.cells[iu as usize].push(Candidate {
                version,
                value: value(at),
                issued,
                ended: None,
                acked: false,
                durable: false,
                superseded: None,
            });
        }
        WriteId { volume: range.volume, version }
    }

    /// The write was acknowledged. `force_unit_access` makes it durable at once.
    pub fn acknowledge_write(&mut self, write: WriteId, force_unit_access: bool) {
        let now = self.tick();
        let history = self.volume(write.volume);
        let volatile = history.volatile_cache && !force_unit_access;
        let state = history.under_way.remove(&write.version).expect("a write ends once");
        if volatile {
            history.volatile.insert(write.version, (state.range, now));
        }
        let oldest_read = history.reads.first().copied().unwrap_or(u64::MAX);
        for iu in state.range.ius() {
            history.lost.remove(&iu);
            let cell = &mut history.cells[iu as usize];
            for candidate in cell.iter_mut() {
                if candidate.version == write.version {
                    candidate.ended = Some(now);
                    candidate.acked = true;
                    candidate.durable = !volatile;
                } else if candidate.ended.is_some_and(|ended| ended < state.issued) {
                    let since = candidate.superseded.map_or(now, |(since, _)| since);
                    candidate.superseded = Some((since, write.version));
                }
            }
            prune(cell, oldest_read);
        }
    }

    /// The medium lost all of a volume, while the system was away. Reads fail now, until somebody writes or deallocates.
    pub fn lose(&mut self, volume: VolumeNumber) {
        let history = self.volume(volume);
        assert!(history.under_way.is_empty() && history.volatile.is_empty(), "the system is away");
        history.cells.iter_mut().for_each(Vec::clear);
        history.lost = (0..history.cells.len() as u64).collect();
    }

    /// Whether reads of a range fail because something of it is lost.
    pub fn is_lost(&self, range: Range) -> bool {
        self.volumes[&range.volume].lost.range(range.ius()).next().is_some()
    }

    /// IUs of a volume that are lost.
    pub fn lost_ius(&self, volume: VolumeNumber) -> u64 {
        self.volumes[&volume].lost.len() as u64
    }

    /// The write was refused as a whole; it has no effect and must not get one.
    pub fn refuse_write(&mut self, write: WriteId) {
        let history = self.volume(write.volume);
        let state = history.under_way.remove(&write.version).expect("a write ends once");
        for iu in state.range.ius() {
            history.cells[iu as usize].retain(|candidate| candidate.version != write.version);
        }
    }

    /// The write was aborted: one of up to `whole_ius` not at all done, of a larger one some pieces may be.
    pub fn abort_write(&mut self, write: WriteId, whole_ius: u32) {
        match self.volume(write.volume).under_way[&write.version].range.count <= whole_ius {
            true => self.refuse_write(write),
            false => self.give_up_write(write),
        }
    }

    /// The write failed with an error that leaves open whether it took effect; it ended.
    pub fn give_up_write(&mut self, write: WriteId) {
        let now = self.tick();
        self.volume(write.volume).end_unknown(write.version, now);
    }

    /// The write was not ready: it may be carried out later, but before anything that comes after a flush which is answered.
    pub fn leave_write(&mut self, write: WriteId) {
        let now = self.tick();
        self.volume(write.volume).left.insert(write.version, now);
    }

    /// A flush is issued; give the stamp back when it is acknowledged.
    pub fn begin_flush(&mut self) -> u64 {
        self.tick()
    }

    /// The flush was acknowledged: whatever was acknowledged before it was issued is durable.
    pub fn acknowledge_flush(&mut self, volume: VolumeNumber, issued: u64) {
        let now = self.tick();
        let history = self.volume(volume);
        for (version, _) in history.left.extract_if(.., |_, left| *left < issued).collect::<Vec<_>>() {
            history.end_unknown(version, now);
        }
        let covered: Vec<u32> =
            history.volatile.iter().filter(|(_, (_, acked))| *acked < issued).map(|(v, _)| *v).collect();
        for version in covered {
            let (range, _) = history.volatile.remove(&version).expect("listed");
            for iu in range.ius() {
                for candidate in &mut history.cells[iu as usize] {
                    candidate.durable |= candidate.version == version;
                }
            }
        }
    }

    /// A read is issued.
    pub fn begin_read(&mut self, volume: VolumeNumber) -> ReadId {
        let issued = self.tick();
        self.volume(volume).reads.insert(issued);
        ReadId(issued)
    }

    /// The read gave nothing (error, lost connection).
    pub fn give_up_read(&mut self, volume: VolumeNumber, read: ReadId) {
        self.volume(volume).reads.remove(&read.0);
    }

    /// The lane's connection broke and its next one was accepted: writes of the old one have ended.
    pub fn settle_lane(&mut self, lane: Lane) {
        let now = self.tick();
        for history in self.volumes.values_mut() {
            let versions: Vec<u32> =
                history.under_way.iter().filter(|(_, w)| w.lane == lane).map(|(v, _)| *v).collect();
            for version in versions {
                history.end_unknown(version, now);
            }
        }
    }

    /// The system went away and nothing is under way any more.
    pub fn crash(&mut self, crash: Crash) {
        let now = self.tick();
        self.last_crash = Some((now, crash));
        for history in self.volumes.values_mut() {
            let volatile_cache = history.volatile_cache;
            history.reads.clear();
            let versions: Vec<u32> = history.under_way.keys().copied().collect();
            for version in versions {
                history.end_unknown(version, now);
            }
            for cell in &mut history.cells {
                if cell.len() == 1 {
                    continue;
                }
                let survivors: Vec<u32> = cell
                    .iter()
                    .filter(|c| if volatile_cache { c.durable } else { c.acked })
                    .map(|c| c.version)
                    .collect();
                for candidate in cell.iter_mut() {
                    if candidate.superseded.is_some_and(|(_, by)| !survivors.contains(&by)) {
                        candidate.superseded = None;
                    }
                }
                resupersede(cell, &survivors, now);
            }
            // What was acknowledged without a flush may be gone: it no longer counts as acknowledged.
            for (version, (range, _)) in std::mem::take(&mut history.volatile) {
                for iu in range.ius() {
                    for candidate in &mut history.cells[iu as usize] {
                        if candidate.version == version {
                            candidate.acked = false;
                        }
                    }
                }
            }
        }
    }

    /// Checks what a read returned and learns from it, unless it comes from a system whose drive went: that may be what is nowhere but in its memory.
    pub fn check_read(
        &mut self,
        range: Range,
        read: ReadId,
        data: &[u8],
        bytes_per_iu: usize,
        is_gone: bool,
    ) -> Vec<Violation> {
        let now = self.tick();
        let last_crash = self.last_crash;
        let mut violations = Vec::new();
        let history = self.volume(range.volume);
        let volatile_cache = history.volatile_cache;
        history.reads.remove(&read.0);
        if data.len() != range.count as usize * bytes_per_iu {
            let detail = format!("{range:?}: {} bytes instead of {} IUs", data.len(), range.count);
            violations.push(Violation::seen(Finding::WrongAnswer, detail));
            return violations;
        }
        let oldest_read = history.reads.first().copied().unwrap_or(u64::MAX);
        for (iu, bytes) in range.ius().zip(data.chunks_exact(bytes_per_iu)) {
            let content = recognize(bytes);
            let next_version = history.next_version;
            let cell = &mut history.cells[iu as usize];
            let allowed = |c: &Candidate| c.is_open_to(read.0);
            let matches = |c: &Candidate| c.content(range.volume, iu) == Some(content);
            if !cell.iter().any(|c| matches(c) && allowed(c)) {
                if history.lost.contains(&iu) {
                    let place = format!("volume {} IU {iu}", range.volume.0);
                    let detail =
                        format!("{place} is lost and was not written since, but reads as {content:?}");
                    violations.push(Violation::seen(Finding::LossHidden, detail));
                    continue;
                }
                violations.push(classify(range.volume, iu, content, cell, next_version, read.0, last_crash));
                continue;
            }
            if is_gone {
                prune(cell, oldest_read);
                continue;
            }
            // What was seen is settled: it is what the medium holds now.
            history.lost.remove(&iu);
            let seen = cell.iter().rev().find(|c| matches(c) && allowed(c)).expect("found above").version;
            let only = cell.iter().filter(|c| matches(c) && allowed(c)).count() == 1;
            for candidate in cell.iter_mut() {
                let ended_before = candidate.ended.is_some_and(|ended| ended < read.0);
                if matches(candidate) {
                    if only && candidate.version == seen && ended_before && !candidate.acked {
                        candidate.acked = true;
                        // What a start found stays: it makes all durable before it reads, and keeps where it ends.
                        let is_found = last_crash.is_some_and(|(at, _)| candidate.ended <= Some(at));
                        candidate.durable = !volatile_cache || is_found;
                    }
                } else if ended_before && candidate.superseded.is_none() {
                    candidate.superseded = Some((now, seen));
                }
            }
            prune(cell, oldest_read);
        }
        violations
    }

    /// Whether a read may have failed because a host wanted so.
    pub fn may_fail(&self, range: Range, read: ReadId) -> bool {
        let cells = &self.volumes[&range.volume].cells;
        let may = |c: &Candidate| c.value == Value::Unreadable && c.is_open_to(read.0);
        range.ius().any(|iu| cells[iu as usize].iter().any(may))
    }

    /// The only content a read issued now could return for an IU, if it is certain.
    pub fn certain(&self, volume: VolumeNumber, iu: u64) -> Option<Certain> {
        let cell = &self.volumes[&volume].cells[iu as usize];
        let mut open = cell.iter().filter(|c| c.superseded.is_none());
        let first = open.next()?;
        let version = first.version;
        let tag = match first.content(volume, iu)? {
            Content::Tagged(tag) => Some(tag),
            _ => None,
        };
        open.next().is_none().then_some(Certain { version, tag })
    }

    /// Largest number of candidates any IU holds: a bound on what the oracle remembers.
    pub fn candidates_max(&self) -> usize {
        self.volumes.values().flat_map(|v| v.cells.iter().map(Vec::len)).max().unwrap_or(0)
    }
}

impl VolumeHistory {
    fn end_unknown(&mut self, version: u32, now: u64) {
        let Some(state) = self.under_way.remove(&version) else { return };
        for iu in state.range.ius() {
            for candidate in &mut self.cells[iu as usize] {
                if candidate.version == version {
                    candidate.ended = Some(now);
                }
            }
        }
    }
}

/// After a crash: candidates are superseded by every surviving write that was issued after they ended.
fn resupersede(cell: &mut [Candidate], survivors: &[u32], now: u64) {
    for survivor in survivors {
        let issued = cell.iter().find(|c| c.version == *survivor).expect("listed").issued;
        for candidate in cell.iter_mut() {
            if candidate.superseded.is_none() && candidate.ended.is_some_and(|ended| ended < issued) {
                candidate.superseded = Some((now, *survivor));
            }
        }
    }
}

/// Forgets candidates that no read and no crash can bring back.
fn prune(cell: &mut Vec<Candidate>, oldest_read: u64) {
    if cell.len() < 2 {
        return;
    }
    let durable: smallvec::SmallVec<[u32; 8]> =
        cell.iter().filter(|c| c.durable).map(|c| c.version).collect();
    cell.retain(|c| !c.superseded.is_some_and(|(since, by)| since < oldest_read && durable.contains(&by)));
}

fn classify(
    volume: VolumeNumber,
    iu: u64,
    content: Content,
    cell: &[Candidate],
    next_version: u32,
    issued: u64,
    last_crash: Option<(u64, Crash)>,
) -> Violation {
    let expected: Vec<String> = cell
        .iter()
        .filter(|c| c.superseded.is_none_or(|(since, _)| since > issued))
        .map(|c| match c.value {
            Value::Fresh => format!("version {}", c.version),
            value => format!("{value:?} (version {})", c.version),
        })
        .collect();
    let place = format!("volume {} IU {iu}", volume.0);
    let expected = format!("allowed: {}", expected.join(", "));
    // The acknowledged write that should have been seen, if one came before the last crash.
    let newest_acked = cell.iter().filter(|c| c.acked && c.superseded.is_none()).max_by_key(|c| c.issued);
    let older = || match (newest_acked, last_crash) {
        (Some(c), Some((at, Crash::ProcessDeath))) if c.ended < Some(at) => Finding::LostAfterProcessDeath,
        (Some(c), Some((at, Crash::PowerCut))) if c.ended < Some(at) => Finding::LostAfterPowerCut,
        _ => Finding::Stale,
    };
    let (finding, seen) = match content {
        Content::Torn { word, offset } => {
            (Finding::Torn, format!("first word {word:016x}, other bytes from offset {offset}"))
        }
        Content::Zeros => (older(), "zeros".to_owned()),
        Content::Tagged(tag) if tag.volume != volume => {
            (Finding::Foreign, format!("data of volume {} IU {}", tag.volume.0, tag.lba))
        }
        Content::Tagged(tag) if tag.lba != iu => {
            (Finding::Misdirected, format!("data of IU {} version {}", tag.lba, tag.version))
        }
        Content::Tagged(tag) if tag.version >= next_version => {
            (Finding::NeverWritten, format!("version {}", tag.version))
        }
        Content::Tagged(tag) => {
            let finding = if newest_acked.is_some_and(|c| c.value == Value::Zeros && c.version > 0) {
                Finding::Resurrected
            } else {
                older()
            };
            (finding, format!("version {}", tag.version))
        }
    };
    Violation::seen(finding, format!("{place} holds {seen}; {expected}"))
}

#[cfg(test)]
mod test {
    use super::*;
    use diecut_units::ContentMode;

    const A: VolumeNumber = VolumeNumber(1);
    const B: VolumeNumber = VolumeNumber(2);
    const LANE: Lane = Lane(0);

    fn oracle(volatile: bool) -> Oracle {
        Oracle::new([(A, 8, volatile), (B, 8, volatile)])
    }
    fn at(first: u64) -> Range {
        Range { volume: A, first, count: 1 }
    }
    fn write(oracle: &mut Oracle, first: u64) -> u32 {
        let id = oracle.begin_write(LANE, at(first), false);
        oracle.acknowledge_write(id, false);
        id.version
    }
    fn deallocate(oracle: &mut Oracle, first: u64) {
        let id = oracle.begin_write(LANE, at(first), true);
        oracle.acknowledge_write(id, false);
    }
    /// A read of `iu` that returns the tag (volume, lba, version), or zeros.
    fn read(oracle: &mut Oracle, iu: u64, seen: Option<(VolumeNumber, u64, u32)>) -> Vec<Finding> {
        let mut data = [0; 8];
        if let Some((volume, lba, version)) = seen {
            Tag { volume, lba, version }.fill(ContentMode::Tags, &mut data);
        }
        let id = oracle.begin_read(A);
        oracle.check_read(at(iu), id, &data, 8, false).into_iter().map(|v| v.finding).collect()
    }

    #[test]
    fn an_honest_history_passes() {
        let mut oracle = oracle(false);
        assert_eq!(read(&mut oracle, 0, None), []);
        let first = write(&mut oracle, 0);
        assert_eq!(read(&mut oracle, 0, Some((A, 0, first))), []);
        let second = write(&mut oracle, 0);
        oracle.crash(Crash::PowerCut);
        assert_eq!(read(&mut oracle, 0, Some((A, 0, second))), []);
        deallocate(&mut oracle, 0);
        assert_eq!(read(&mut oracle, 0, None), []);
        assert_eq!(oracle.candidates_max(), 1);
    }

    #[test]
    fn stale_foreign_misdirected_torn_and_invented_data_are_told_apart() {
        let mut oracle = oracle(false);
        let first = write(&mut oracle, 0);
        let second = write(&mut oracle, 0);
        assert_eq!(read(&mut oracle, 0, Some((A, 0, first))), [Finding::Stale]);
        assert_eq!(read(&mut oracle, 0, None), [Finding::Stale]);
        assert_eq!(read(&mut oracle, 0, Some((B, 0, second))), [Finding::Foreign]);
        assert_eq!(read(&mut oracle, 0, Some((A, 1, second))), [Finding::Misdirected]);
        assert_eq!(read(&mut oracle, 0, Some((A, 0, second + 1))), [Finding::NeverWritten]);
        let id = oracle.begin_read(A);
        let found = oracle.check_read(at(0), id, &[1, 0, 0, 0, 0, 0, 0, 0], 8, false);
        assert_eq!(found[0].finding, Finding::Torn);
    }

    #[test]
    fn the_two_promises_are_separate_findings() {
        for (crash, finding) in [
            (Crash::ProcessDeath, Finding::LostAfterProcessDeath),
            (Crash::PowerCut, Finding::LostAfterPowerCut),
        ] {
            let mut oracle = oracle(false);
            let first = write(&mut oracle, 0);
            write(&mut oracle, 0);
            oracle.crash(crash);
            assert_eq!(read(&mut oracle, 0, Some((A, 0, first))), [finding]);
            assert_eq!(read(&mut oracle, 0, None), [finding]);
        }
    }

    #[test]
    fn a_volatile_cache_may_lose_what_was_not_flushed_and_nothing_else() {
        let mut base = oracle(true);
        let first = write(&mut base, 0);
        let flush = base.begin_flush();
        base.acknowledge_flush(A, flush);
        let second = write(&mut base, 0);
        let mut dead = base;
        dead.crash(Crash::PowerCut);
        assert_eq!(read(&mut dead, 0, None), [Finding::LostAfterPowerCut]);
        assert_eq!(read(&mut dead, 0, Some((A, 0, first))), []);
        // It was decided: the newer one cannot come back.
        assert_eq!(read(&mut dead, 0, Some((A, 0, second))), [Finding::LostAfterPowerCut]);

        // What a start found stays.
        let mut kept = oracle(true);
        let first = write(&mut kept, 0);
        let flush = kept.begin_flush();
        kept.acknowledge_flush(A, flush);
        let second = write(&mut kept, 0);
        kept.crash(Crash::PowerCut);
        assert_eq!(read(&mut kept, 0, Some((A, 0, second))), []);
        kept.crash(Crash::PowerCut);
        assert_eq!(read(&mut kept, 0, Some((A, 0, first))), [Finding::LostAfterPowerCut]);

        // The cache is memory of the process: it goes with it, and what was flushed stays.
        let mut dead = oracle(true);
        let first = write(&mut dead, 0);
        let flush = dead.begin_flush();
        dead.acknowledge_flush(A, flush);
        write(&mut dead, 0);
        dead.crash(Crash::ProcessDeath);
        assert_eq!(read(&mut dead, 0, None), [Finding::LostAfterProcessDeath]);
        assert_eq!(read(&mut dead, 0, Some((A, 0, first))), []);
    }

    #[test]
    fn a_flush_covers_only_what_came_before_it() {
        let mut oracle = oracle(true);
        let flush = oracle.begin_flush();
        let late = write(&mut oracle, 0);
        oracle.acknowledge_flush(A, flush);
        oracle.crash(Crash::PowerCut);
        assert_eq!(read(&mut oracle, 0, None), []);
        assert_eq!(read(&mut oracle, 0, Some((A, 0, late))), [Finding::LostAfterPowerCut]);
    }

    #[test]
    fn copies_hold_what_was_elsewhere() {
        let mut oracle = oracle(false);
        let first = write(&mut oracle, 0);
        let content = oracle.certain(A, 0).unwrap();
        let copy = oracle.begin_copy(LANE, at(3), &[content]);
        assert_eq!(read(&mut oracle, 3, None), []);
        oracle.acknowledge_write(copy, false);
        assert_eq!(read(&mut oracle, 3, Some((A, 0, first))), []);
        assert_eq!(read(&mut oracle, 3, None), [Finding::Stale]);
        write(&mut oracle, 0);
        assert_eq!(read(&mut oracle, 3, Some((A, 0, first))), []);
        assert_eq!(oracle.certain(A, 3).unwrap().tag, content.tag, "a copy can be copied");
    }

    #[test]
    fn what_was_made_unreadable_fails_until_it_is_written() {
        let mut oracle = oracle(false);
        let first = write(&mut oracle, 0);
        let before = oracle.begin_read(A);
        assert!(!oracle.may_fail(at(0), before));
        let lost = oracle.begin_unreadable(LANE, at(0));
        assert!(oracle.may_fail(at(0), before) && !oracle.may_fail(at(1), before));
        oracle.acknowledge_write(lost, false);
        assert!(oracle.certain(A, 0).is_none());
        assert_eq!(read(&mut oracle, 0, Some((A, 0, first))), [Finding::Stale]);
        oracle.give_up_read(A, before);
        write(&mut oracle, 0);
        let after = oracle.begin_read(A);
        assert!(!oracle.may_fail(at(0), after));
    }

    #[test]
    fn deallocated_data_does_not_come_back() {
        let mut oracle = oracle(false);
        let first = write(&mut oracle, 0);
        deallocate(&mut oracle, 0);
        assert_eq!(read(&mut oracle, 0, Some((A, 0, first))), [Finding::Resurrected]);
        oracle.crash(Crash::PowerCut);
        assert_eq!(read(&mut oracle, 0, Some((A, 0, first))), [Finding::Resurrected]);
    }

    #[test]
    fn a_cut_write_may_be_old_or_new_but_not_both() {
        let mut oracle = oracle(false);
        let old = write(&mut oracle, 0);
        let cut = oracle.begin_write(LANE, at(0), false);
        oracle.crash(Crash::PowerCut);
        assert_eq!(read(&mut oracle, 0, Some((A, 0, cut.version))), []);
        assert_ne!(read(&mut oracle, 0, Some((A, 0, old))), []);
        oracle.crash(Crash::PowerCut);
        assert_eq!(read(&mut oracle, 0, Some((A, 0, old))), [Finding::LostAfterPowerCut]);
    }

    #[test]
    fn a_late_write_of_an_old_association_is_noticed() {
        let mut oracle = oracle(false);
        let late = oracle.begin_write(LANE, at(0), false);
        oracle.settle_lane(LANE);
        let new = write(&mut oracle, 0);
        assert_eq!(read(&mut oracle, 0, Some((A, 0, new))), []);
        assert_eq!(read(&mut oracle, 0, Some((A, 0, late.version))), [Finding::Stale]);
    }

    #[test]
    fn writes_under_way_together_stay_open_until_a_read_decides() {
        let mut oracle = oracle(false);
        let one = oracle.begin_write(LANE, at(0), false);
        let two = oracle.begin_write(LANE, at(0), false);
        oracle.acknowledge_write(two, false);
        oracle.acknowledge_write(one, false);
        assert_eq!(oracle.certain(A, 0), None);
        assert_eq!(read(&mut oracle, 0, Some((A, 0, one.version))), []);
        assert_eq!(read(&mut oracle, 0, Some((A, 0, two.version))), [Finding::Stale]);
    }

    /// A compare that began before and is answered after may have seen what was between; `--exchanges --seed 367` did.
    #[test]
    fn zeros_that_were_written_over_and_deallocated_again_are_others() {
        let mut oracle = oracle(false);
        let before = oracle.certain(A, 0).unwrap();
        write(&mut oracle, 0);
        let zeros = oracle.begin_write(LANE, at(0), true);
        oracle.acknowledge_write(zeros, false);
        let after = oracle.certain(A, 0).unwrap();
        assert_eq!((before.tag, after.tag), (None, None));
        assert_ne!(before, after);
    }

    #[test]
    fn what_is_lost_must_not_read_as_new_until_it_is_written() {
        let mut oracle = oracle(false);
        let first = write(&mut oracle, 0);
        oracle.crash(Crash::ProcessDeath);
        oracle.lose(A);
        assert!(oracle.is_lost(at(0)) && oracle.is_lost(at(7)));
        assert_eq!(read(&mut oracle, 0, None), [Finding::LossHidden]);
        assert_eq!(read(&mut oracle, 0, Some((A, 0, first))), [Finding::LossHidden]);
        let refused = oracle.begin_write(LANE, at(0), false);
        oracle.refuse_write(refused);
        assert!(oracle.is_lost(at(0)));
        let second = write(&mut oracle, 0);
        deallocate(&mut oracle, 1);
        assert!(!oracle.is_lost(at(0)) && oracle.is_lost(Range { count: 3, ..at(0) }));
        assert_eq!(read(&mut oracle, 0, Some((A, 0, second))), []);
        assert_eq!(read(&mut oracle, 1, None), []);
        assert_eq!(read(&mut oracle, 0, Some((A, 0, first))), [Finding::Stale]);
        oracle.crash(Crash::PowerCut);
        assert_eq!(read(&mut oracle, 0, None), [Finding::LostAfterPowerCut]);
        assert_eq!(read(&mut oracle, 2, None), [Finding::LossHidden]);
    }

    #[test]
    fn a_refused_write_must_not_take_effect() {
        let mut oracle = oracle(false);
        let refused = oracle.begin_write(LANE, at(0), false);
        oracle.refuse_write(refused);
        assert_eq!(read(&mut oracle, 0, Some((A, 0, refused.version))), [Finding::Stale]);
        assert_eq!(read(&mut oracle, 0, None), []);
    }
}
