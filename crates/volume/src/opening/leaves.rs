//! Leaves of the map are read, and records replayed over them.

use super::replay::Replay;
use super::{Found, numbers, token};
use crate::contract::VolumeIndex;
use crate::leaf::{Leaf, LeafName};
use crate::lent::Lent;
use crate::loss::{Missing, Recovery};
use crate::map::{LeafId, LeafKind, VolumeMap};
use crate::positions;
use diecut_log::{Check, Log, LogAddress, MapEntry, RecoveredChunk, SegmentIndex};
use diecut_units::{IU_SIZE_BYTES, mutant};
use diecut_vssd::space::{IoClass, SpaceCompletion};
use std::collections::BTreeSet;
use std::ops::Range;
use zerocopy::FromBytes;
use zerocopy::little_endian::U32;

/// Reads of leaves under way at once.
const LEAF_READS: usize = 64;

/// Leaves that lie one behind the other in a program unit.
#[derive(Clone, Copy)]
struct LeafRun {
    /// The first one.
    id: LeafId,
    count: u32,
    place: LogAddress,
    /// It was read by itself before, in vain.
    is_again: bool,
}

impl LeafRun {
    /// The leaf behind it is at `place`, and can be read with it.
    fn is_followed_by(&self, id: LeafId, place: LogAddress, log: &Log) -> bool {
        LeafId { leaf: self.id.leaf + self.count as usize, ..self.id } == id
            && self.place.plus(self.count) == place
            && self.count < log.run_limit(self.place)
    }

    fn leaves(&self) -> impl Iterator<Item = LeafId> + use<> {
        let id = self.id;
        (0..self.count as usize).map(move |step| LeafId { leaf: id.leaf + step, ..id })
    }
}

pub(super) struct LeafReads {
    replay: Replay,
    runs: Vec<LeafRun>,
    /// The next run that is not asked for.
    next_run: usize,
    /// Leaves that are lost.
    lost: BTreeSet<LeafId>,
    /// Those of them whose segments were given back, in a store of a version that gave them back without a record.
    perhaps_emptied: BTreeSet<LeafId>,
    /// No segment is there in which checks mean nothing.
    all_have_checks: bool,
}

impl LeafReads {
    /// Finds out where leaves are, and begins to read them.
    pub fn start(chunks: Vec<RecoveredChunk>, found: &mut Found, lent: &mut Lent) -> LeafReads {
        let replay = Replay::new(chunks, found, lent);
        let leaves = replay.leaves();
        replay.place_leaves(found, lent);
        let mut reads = LeafReads {
            replay,
            runs: Vec::new(),
            next_run: 0,
            lost: BTreeSet::new(),
            perhaps_emptied: BTreeSet::new(),
            all_have_checks: lent.log.all_have_checks(),
        };
        let gone = reads.find_runs(&leaves, found, lent);
        for run in &gone {
            if !found.records_empty_leaves {
                reads.perhaps_emptied.insert(run.id);
            }
            reads.lose(run, lent);
        }
        reads.read_on(found, lent);
        reads
    }

    /// Runs of leaves that are where they are said to be. The others.
    fn find_runs(&mut self, leaves: &[(LogAddress, u64)], found: &Found, lent: &mut Lent) -> Vec<LeafRun> {
        let mut gone = Vec::new();
        for (volume, map) in (0..).zip(&mut lent.maps.volumes) {
            map.forget_replaced();
            let places = map.leaves.iter().map(|entry| (map.kind(), entry.get())).enumerate();
            let old = map.old.iter().map(|place| (LeafKind::Old, *place)).enumerate();
            for (leaf, (kind, place)) in places.chain(old).filter(|(_, (_, place))| place.is_place()) {
                let id = LeafId { kind, volume, leaf };
                let fresh = LeafRun { id, count: 1, place, is_again: false };
                if !is_leaf(place, id.tag(), leaves, found, lent.log) {
                    gone.push(fresh);
                    continue;
                }
                match self.runs.last_mut() {
                    Some(run) if run.is_followed_by(id, place, lent.log) => run.count += 1,
                    _ => self.runs.push(fresh),
                }
            }
        }
        gone
    }

    fn read_on(&mut self, found: &mut Found, lent: &mut Lent) {
        while found.outstanding < LEAF_READS
            && let Some(run) = self.runs.get(self.next_run).copied()
        {
            let index = self.next_run as u32;
            self.next_run += 1;
            if !lent.log.is_present(run.place) {
                self.lose(&run, lent);
                continue;
            }
            found.outstanding += 1;
            let buffer = lent.log.pool().take(run.count as usize * IU_SIZE_BYTES);
            let token = token(0, 0, index);
            lent.log.read(token, run.place, run.count, buffer, IoClass::Metadata, lent.space);
        }
    }

    /// Leaves were read, or cannot be.
    pub fn arrived(&mut self, completion: SpaceCompletion, found: &mut Found, lent: &mut Lent) {
        let run = self.runs[numbers(completion.token).1 as usize];
        lent.log.unpin(run.place, None);
        let is_right = match (&completion.result, &completion.destination) {
            (Ok(()), Some(data)) => {
                let checks = checks_of(&run, lent);
                lent.log.verify(run.place, IU_SIZE_BYTES, data, completion.oob.as_deref(), &checks).is_ok()
            }
            _ => false,
        };
        if is_right {
            self.take(&run, &completion.destination.expect("read"), found, lent);
        } else if run.count > 1 || !run.is_again {
            // Each by itself, and that twice.
            for (step, id) in (0..).zip(run.leaves()) {
                let place = run.place.plus(step);
                let is_again = run.count == 1;
                self.runs.push(LeafRun { id, count: 1, place, is_again });
            }
        } else {
            self.lose(&run, lent);
        }
        self.read_on(found, lent);
    }

    /// Puts what leaves say into the map.
    fn take(&mut self, run: &LeafRun, data: &[u8], found: &mut Found, lent: &mut Lent) {
        for ((step, id), iu) in (0..).zip(run.leaves()).zip(data.chunks_exact(IU_SIZE_BYTES)) {
            let is_taken = match id.kind {
                LeafKind::Old => self.take_old(id, iu, lent),
                LeafKind::New => self.take_new(id, iu, lent),
            };
            if !is_taken {
                let place = run.place.plus(step);
                if Leaf::is_other_version(iu) && id.kind == LeafKind::New {
                    let SegmentIndex(segment) = lent.log.layout().segment_of(place);
                    found.findings.miss(Missing::OtherVersion { segment });
                }
                self.lose(&LeafRun { id, count: 1, place, is_again: true }, lent);
            }
        }
    }

    /// Takes a leaf of 504 entries. Whether it is the one that is meant.
    fn take_new(&mut self, id: LeafId, iu: &[u8], lent: &mut Lent) -> bool {
        let name = LeafName { level: 0, volume: id.volume.into(), number: id.leaf as u64, stamp: 0 };
        let leaf = Leaf::open(iu)
            .filter(|leaf| leaf.name == name || mutant!("volume: leaf of another number taken"));
        let Some(leaf) = leaf else { return false };
        let end = lent.log.places_end();
        let map = lent.maps.volume(id.volume);
        let ius = map.ius_of(id.kind, id.leaf);
        if self.all_have_checks && leaf.put_plain(&mut map.entries[ius.clone()], end) {
            return true;
        }
        if !leaf.is_possible() || leaf.entries().any(|entry| entry.is_versioned || entry.is_framed) {
            map.entries[ius].fill(LogAddress::UNKNOWN.into());
            return false;
        }
        let mut names_nothing = false;
        for (entry, told) in map.entries[ius].iter_mut().zip(leaf.entries()) {
            let has_checks =
                |place| lent.log.has_checks(place) || mutant!("volume: checks of old segments believed");
            *entry = told.in_map(end, has_checks);
            names_nothing |= entry.get() == LogAddress::UNKNOWN;
        }
        if names_nothing {
            self.lost.insert(id);
        }
        true
    }

    /// Takes a leaf of 1024 positions, but for what leaves of 504 entries say.
    fn take_old(&mut self, id: LeafId, iu: &[u8], lent: &mut Lent) -> bool {
        let end = lent.log.places_end();
        let map = lent.maps.volume(id.volume);
        let first = map.ius_of(id.kind, id.leaf).start;
        let mut names_nothing = false;
        let words = <[U32]>::ref_from_bytes(iu).expect("leaves are whole IUs");
        for ius in self.own_ius(id, map) {
            let words = &words[ius.start - first..];
            for (entry, word) in map.entries[ius].iter_mut().zip(words) {
                *entry = positions::entry_at(word.get(), end);
                names_nothing |= entry.get() == LogAddress::UNKNOWN;
            }
        }
        if names_nothing {
            self.lost.insert(id);
        }
        true
    }

    /// IUs on which a leaf has the last word: of one of 1024 positions those that leaves of 504 entries say nothing of.
    fn own_ius(&self, id: LeafId, map: &VolumeMap) -> Vec<Range<usize>> {
        let (kind, ius) = (map.kind(), map.ius_of(id.kind, id.leaf));
        let is_own = |leaf: &usize| {
            let other = LeafId { kind, volume: id.volume, leaf: *leaf };
            id.kind == kind || map.leaves[*leaf] == MapEntry::NONE && !self.lost.contains(&other)
        };
        let own = kind.leaves_with(ius.clone()).filter(is_own).map(|leaf| kind.ius_of(leaf));
        own.map(|own| own.start.max(ius.start)..own.end.min(ius.end)).collect()
    }

    /// Only records that are replayed tell where the data of these leaves is. Where none does nobody knows it any more.
    fn lose(&mut self, run: &LeafRun, lent: &mut Lent) {
        diecut_units::mark!("volume: leaf lost");
        let map = lent.maps.volume(run.id.volume);
        for id in run.leaves() {
            for ius in self.own_ius(id, map) {
                map.mark_dirty(ius.start);
                map.entries[ius].fill(LogAddress::UNKNOWN.into());
            }
            map.place_leaf(id.kind, id.leaf, MapEntry::NONE);
            self.lost.insert(id);
        }
    }

    /// Records are replayed over the leaves, and what lives is counted.
    pub fn end(self, found: &mut Found, lent: &mut Lent) {
        assert_eq!(self.next_run, self.runs.len(), "I-M4: all leaves were read");
        lent.log.sync_frees(lent.space);
        if found.findings.missing.iter().any(Missing::is_record) {
            forget_reused(found.anchor.next_generation, lent);
        }
        if let Some(segment) = self.replay.apply(lent) {
            found.findings.miss(Missing::Records { segment });
        }
        let is_sound = found.findings.is_empty() && found.recovery != Recovery::Strict;
        for lost in self.lost {
            let was_emptied = is_sound && self.perhaps_emptied.contains(&lost);
            judge_lost(lost, was_emptied, found, lent);
        }
        count_places(found, lent);
        // Most buffers that recovery read with are not needed to serve; each call gives up half of what is free.
        for _ in 0..2 {
            lent.log.pool().shrink(u32::MAX);
        }
    }
}

/// Whether what lies at a place is the leaf that the anchor or a record says: a place whose leaf is not needed any more
/// can hold anything by now. `leaves` are the leaves of segments that the anchor does not cover, in order of their places.
fn is_leaf(place: LogAddress, tag: u64, leaves: &[(LogAddress, u64)], found: &Found, log: &Log) -> bool {
    let segment = log.layout().segment_of(place);
    let anchored = found.anchor.segments.get(&segment);
    let is_covered = anchored.is_some_and(|(generation, _)| log.generation(segment.0) == Some(*generation));
    is_covered || leaves.binary_search(&(place, tag)).is_ok()
}

/// What is known of the content of leaves.
fn checks_of(run: &LeafRun, lent: &Lent) -> Vec<Check> {
    let map = &lent.maps.volumes[usize::from(run.id.volume)];
    let check = |id: LeafId| if id.kind == map.kind() { map.leaves[id.leaf].check() } else { Check::UNKNOWN };
    run.leaves().map(check).collect()
}

/// A leaf is lost: what of it no record told is missing, or was empty.
fn judge_lost(lost: LeafId, was_emptied: bool, found: &mut Found, lent: &mut Lent) {
    let LeafId { kind, volume: number, leaf } = lost;
    let volume = lent.maps.volumes.get_mut(usize::from(number)).filter(|volume| volume.exists);
    let Some(volume) = volume else { return };
    let ius = volume.ius_of(kind, leaf);
    let entries = &mut volume.entries[ius];
    // What is lost because a host wanted so was told by a leaf or a record.
    let unknown = entries.iter_mut().filter(|entry| entry.get() == LogAddress::UNKNOWN);
    if was_emptied {
        // Nothing was lost: the store gave the leaf's segment back because nothing in it was needed any more. What
        // was deallocated since the anchor has its records; the rest of the leaf was empty before.
        diecut_units::mark!("volume: leaf of an older version was empty");
        unknown.for_each(|entry| *entry = MapEntry::NONE);
        found.findings.emptied_leaves += 1;
    } else if unknown.map(|entry| *entry = LogAddress::LOST.into()).count() > 0 {
        found.findings.miss(Missing::Leaf {
            volume: VolumeIndex(number),
            leaf: leaf as u64,
            leaf_ius: kind.entries() as u64,
        });
    }
}

/// Counts what lives; what the map names and is not there is lost.
fn count_places(found: &mut Found, lent: &mut Lent) {
    for (number, volume) in (0..).zip(&mut lent.maps.volumes) {
        if !volume.exists {
            *volume = Default::default();
            continue;
        }
        volume.resize(volume.size_ius, found.anchor.sequence);
        let parts = volume.written_parts();
        let (used_ius, lost_ius) = lent.log.adopt_places(&mut volume.entries, &parts);
        volume.used_ius = used_ius;
        if lost_ius > 0 {
            diecut_units::mark!("volume: places lost");
            found.findings.miss(Missing::Places { volume: VolumeIndex(number), ius: lost_ius });
        }
        let leaves = volume.leaves.iter().map(|leaf| leaf.get()).chain(volume.old.iter().copied());
        for leaf in leaves.filter(|leaf| leaf.is_place()) {
            lent.log.validate(leaf);
        }
    }
}

/// Where records are missing, what the leaves name in segments that were opened after the anchor may be something else by
/// now: only a record that is replayed says what is there.
fn forget_reused(next_generation: u32, lent: &mut Lent) {
    let layout = lent.log.layout();
    for volume in lent.maps.volumes.iter_mut().filter(|volume| volume.exists) {
        for part in volume.written_parts() {
            for entry in &mut volume.entries[part] {
                let place = entry.get();
                let is_newer = |generation| generation >= next_generation;
                if place.is_place() && lent.log.generation(layout.segment_of(place).0).is_some_and(is_newer) {
                    *entry = LogAddress::LOST.into();
                }
            }
        }
    }
}
