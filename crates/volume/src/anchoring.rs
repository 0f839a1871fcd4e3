//! Anchoring: the map goes to flash leaf by leaf, all the time, at a pace that writes set. When every leaf was written
//! once more, an anchor says that recovery may begin at the oldest of these moments; it is renewed several times a round, so
//! that recovery never replays much more than one.
//! What an anchor says of volumes and figures is in `owner_bytes`.

use crate::endurance::Endurance;
use crate::leaf::{LeafEntry, LeafName};
use crate::lent::Lent;
use crate::loss::AcceptedLoss;
use crate::map::{GROUP_LEAVES, LeafId, LeafKind, Maps, OpenGroup, VolumeMap};
use crate::{owner_bytes, positions};
use diecut_log::any_anchor::AnyAnchor;
use diecut_log::{Check, Format, Log, MapEntry, Stream};
use diecut_units::{IU_SIZE_BYTES, mutant};
use diecut_vssd::space::{LogicalBlock, SpaceToken};
use zerocopy::FromBytes;
use zerocopy::little_endian::U32;

/// Leaves written at a time, so that a long pause of the writer does not become a burst.
const BURST_LEAVES: u64 = 128;
/// Clean groups passed at a time.
const GROUPS_PASSED: u32 = 256;
/// Anchors in one round through all leaves.
const ANCHORS_PER_ROUND: u64 = 8;
/// Notes that recovery may have to replay before leaves and an anchor are written whatever the pace says: it keeps all of them in
/// memory, each 32 bytes and its place in the order. Deallocations of single blocks write little else.
const NOTES_MAX: u64 = 16 * 1024;
/// Of a store with large maps they may be more: one for so many leaves.
const LEAVES_PER_NOTE: u64 = 16;

/// How much leaves and anchors may write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnchorPace {
    /// IUs that hosts write for each leaf that is written.
    pub ius_per_leaf: u64,
    /// IUs that hosts write, at least, for each IU of an anchor.
    pub ius_per_anchor_iu: u64,
}

impl Default for AnchorPace {
    /// 2.5 % for leaves and at most 0.3 % for anchors; chunk heads come on top.
    fn default() -> AnchorPace {
        AnchorPace { ius_per_leaf: 40, ius_per_anchor_iu: 300 }
    }
}

/// Where the writing of leaves and anchors stands.
#[derive(Default)]
pub(crate) struct Anchoring {
    cursor: (usize, usize),
    leaves_written: u64,
    /// IUs that hosts had written at the last anchor, or the last try.
    anchored_at_ius: u64,
    taken: Option<(AnyAnchor, u64)>,
    scratch: Vec<u8>,
    mending: Option<Mending>,
    /// The first anchor of the new format is still to be written: till then the log writes what it wrote before.
    is_renewing: bool,
}

/// What leaves and anchors are paced by, and what an anchor keeps for the store.
pub(crate) struct Asked<'a> {
    pub pace: AnchorPace,
    /// IUs that hosts wrote.
    pub host_written_ius: u64,
    pub accepted: AcceptedLoss,
    pub endurance: &'a Endurance,
    /// IUs that hosts wrote, by handle.
    pub written_ius: &'a [u64],
}

/// A repair that no anchor holds yet.
struct Mending {
    /// An anchor from here on ends it.
    sequence: u64,
    /// Erase blocks that nothing is known of, given back then.
    unneeded: Vec<LogicalBlock>,
    /// There are more leaves to write, and no event will say so.
    has_more_leaves: bool,
    /// Free segments when an anchor found no erase block: without more of them the next one finds none either.
    failed_with_free: Option<u32>,
}

impl Anchoring {
    /// Writes what is due. Whether nothing is, and will be, until hosts write or the log asks for an anchor.
    pub fn write_due(&mut self, asked: &Asked<'_>, lent: &mut Lent) -> bool {
        if lent.log.read_only().is_some() {
            return false;
        }
        self.look_at_renewal(lent.log);
        let has_leaves = self.leaves_written >= asked.host_written_ius / asked.pace.ius_per_leaf;
        // The first anchor of the new format names old leaves only.
        let goes_on = !self.is_renewing && lent.log.may_anchor() && self.write_leaves(asked, lent);
        let was_taken = self.taken.is_some();
        let is_early = self.write_anchor(asked, lent);
        self.look_at_mending(goes_on, was_taken, lent);
        has_leaves && is_early && self.mending.is_none() && !self.is_renewing
    }

    /// What recovery did about what is missing is to be durable: everything goes into leaves and an anchor at once.
    pub fn begin_mending(&mut self, unneeded: Vec<LogicalBlock>, log: &mut Log) {
        log.skip_sequence();
        log.want_anchor(true);
        // One that was taken before does not know of it.
        self.taken = None;
        let mut unneeded = unneeded;
        unneeded.extend(self.mending.take().map(|before| before.unneeded).unwrap_or_default());
        self.mending = Some(Mending {
            sequence: log.next_sequence(),
            unneeded,
            has_more_leaves: true,
            failed_with_free: None,
        });
    }

    /// A store of the format of before goes on with the new one when an anchor says so: an anchor of before does not tell of what is written then.
    pub fn begin_renewing(&mut self, log: &mut Log) {
        diecut_units::mark!("volume: store of the format of before");
        self.is_renewing = true;
        log.want_anchor(true);
    }

    /// From the first anchor of the new format on everything is written in it.
    fn look_at_renewal(&mut self, log: &mut Log) {
        let holds = log.holds_anchor_of_two() || mutant!("volume: new format before its anchor");
        if self.is_renewing && holds {
            self.is_renewing = false;
            log.want_anchor(self.mending.is_some());
            log.write_as(Format::Three);
        }
    }

    /// Whether a repair is still to be written down. Until then a restart meets what this one met.
    pub fn is_mending(&self, log: &Log) -> bool {
        self.mending.is_some() && log.read_only().is_none()
    }

    /// Whether a repair goes on without an event.
    pub fn is_mending_unfinished(&self, log: &Log, maps: &Maps) -> bool {
        let Some(mending) = self.mending.as_ref().filter(|_| self.is_mending(log)) else {
            return false;
        };
        if mending.has_more_leaves || !log.is_anchor_idle() {
            return mending.has_more_leaves;
        }
        match &self.taken {
            Some((anchor, _)) => log.durable_before() >= anchor.taken_at(),
            None => {
                mending.failed_with_free != Some(log.free_segments())
                    && log.may_anchor()
                    && !self.is_renewing
                    && log.settled_before() >= mending.sequence
                    && maps.visited_before(log.next_sequence()) >= mending.sequence
            }
        }
    }

    fn look_at_mending(&mut self, goes_on: bool, was_taken: bool, lent: &mut Lent) {
        let Some(mending) = &mut self.mending else { return };
        if lent.log.anchored() >= mending.sequence || mutant!("volume: repair done before its anchor") {
            diecut_units::mark!("volume: repair holds");
            for block in std::mem::take(&mut mending.unneeded) {
                lent.space.free(block).expect("held since before the repair");
            }
            lent.space.sync(SpaceToken(diecut_log::TOKEN_NOBODY));
            self.mending = None;
            lent.log.want_anchor(false);
            return;
        }
        if was_taken && self.taken.is_none() && lent.log.is_anchor_idle() {
            mending.failed_with_free = Some(lent.log.free_segments());
        }
        let visited_before = lent.maps.visited_before(lent.log.next_sequence());
        mending.has_more_leaves = goes_on && visited_before < mending.sequence;
    }

    /// Says whether it stopped although it could go on.
    fn write_leaves(&mut self, asked: &Asked<'_>, lent: &mut Lent) -> bool {
        let mut due = asked.host_written_ius / asked.pace.ius_per_leaf;
        if lent.log.needs_anchor() || has_many_notes(lent) {
            due = due.max(self.leaves_written + BURST_LEAVES);
        }
        let mut passed = 0;
        // What was not written in time is not made up for beyond a few bursts.
        self.leaves_written = self.leaves_written.max(due.saturating_sub(4 * BURST_LEAVES));
        for _ in 0..BURST_LEAVES {
            if self.leaves_written >= due {
                return true;
            }
            let leaf = loop {
                match &mut lent.maps.open_group {
                    Some(open) if open.left > 0 => break open.left.trailing_zeros() as usize,
                    _ if passed == GROUPS_PASSED => {
                        self.leaves_written = due;
                        return true;
                    }
                    _ => passed += 1,
                }
                if let Some(open) = lent.maps.open_group.take() {
                    let map = lent.maps.volume(open.volume);
                    map.visited[open.group] = map.visited[open.group].max(open.entered);
                }
                if !self.enter_group(lent) {
                    return false;
                }
            };
            if !self.write_leaf(leaf, lent) {
                return false;
            }
            self.leaves_written += 1;
        }
        true
    }

    /// Enters the next group of an existing volume. `false` if there is none.
    fn enter_group(&mut self, lent: &mut Lent) -> bool {
        let Some((volume, group)) = lent.maps.next_group(&mut self.cursor) else { return false };
        let left = lent.maps.volumes[usize::from(volume)].dirty[group];
        lent.maps.open_group = Some(OpenGroup { volume, group, left, entered: lent.log.next_sequence() });
        true
    }

    fn write_leaf(&mut self, bit: usize, lent: &mut Lent) -> bool {
        let open = lent.maps.open_group.expect("I-M17: a group is open");
        let leaf = open.group * GROUP_LEAVES + bit;
        assert!(open.left >> bit & 1 != 0, "I-M17: a leaf is written while it is left in its group");
        let map = &lent.maps.volumes[usize::from(open.volume)];
        let scratch = &mut self.scratch;
        let entries = map.leaf(leaf);
        let empty = entries.iter().all(|entry| *entry == MapEntry::NONE);
        scratch.resize(IU_SIZE_BYTES, 0xff);
        encode_leaf(map, open.volume, leaf, scratch);
        let mut place = MapEntry::NONE;
        // A leaf that became empty is written, too: only its record tells recovery that the anchor's is not needed any more.
        let is_named = map.leaves[leaf] != MapEntry::NONE || map.has_old(leaf);
        let id = LeafId { kind: map.kind(), volume: open.volume, leaf };
        if !empty || is_named && !mutant!("volume: empty leaf not recorded") {
            match lent.log.append(Stream::Map, id.tag(), scratch, lent.space) {
                Some(appended) => {
                    place = MapEntry::data(appended.address, Check::of(appended.checksum));
                }
                None => return false,
            }
        }
        let map = &mut lent.maps.volumes[usize::from(open.volume)];
        let old = std::mem::replace(&mut map.leaves[leaf], place).get();
        map.replace_old(leaf, |old| lent.log.invalidate(old));
        map.dirty[open.group] &= !(1 << bit);
        if old.is_place() {
            lent.log.invalidate(old);
        }
        if let Some(open) = &mut lent.maps.open_group {
            open.left &= !(1 << bit);
        }
        true
    }

    /// Writes an anchor if it is time for one. Whether it is too early, and nothing presses.
    fn write_anchor(&mut self, asked: &Asked<'_>, lent: &mut Lent) -> bool {
        if let Some((anchor, moves)) = &self.taken {
            if *moves != lent.log.map_moves() {
                // A leaf that it names has another place by now.
                self.taken = None;
            } else if lent.log.durable_before() < anchor.taken_at()
                && !mutant!("volume: anchor before its leaves")
            {
                lent.log.want_durable(anchor.taken_at());
            } else {
                lent.log.write_anchor(anchor, lent.space);
                self.taken = None;
            }
            return false;
        }
        let existing = lent.maps.volumes.iter().filter(|map| map.exists);
        let leaves: usize = existing.map(|map| map.leaves.len()).sum();
        let format = match lent.maps.kind {
            LeafKind::Old => Format::Two,
            LeafKind::New => Format::Three,
        };
        let owner_bytes = owner_bytes::size_bytes(format, lent.maps);
        let pace = asked.pace;
        let apart = (leaves as u64 * pace.ius_per_leaf / ANCHORS_PER_ROUND)
            .max(lent.log.anchor_size_ius(format, owner_bytes) * pace.ius_per_anchor_iu);
        let since = asked.host_written_ius - self.anchored_at_ius;
        let has_many_notes = has_many_notes(lent);
        let pressed = self.is_renewing || lent.log.needs_anchor() || has_many_notes;
        if since < apart && !pressed {
            return true;
        }
        if !lent.log.is_anchor_idle() || !lent.log.may_anchor() {
            return false;
        }
        let sequence = lent.maps.visited_before(lent.log.next_sequence()).min(lent.log.settled_before());
        if since < apart && !lent.log.needs_anchor() && lent.log.coverable_notes(sequence) < NOTES_MAX / 2 {
            // Only the notes ask for one, and it would cover few of them: the leaves come first.
            return false;
        }
        // The first one of the new format begins where the one before does: the leaves are that one's.
        let sequence = if self.is_renewing { lent.log.anchored() } else { sequence };
        if sequence <= lent.log.anchored() && !self.is_renewing {
            // The round is not done: soon again.
            let again_at_ius = self.anchored_at_ius + apart / 4;
            self.anchored_at_ius = again_at_ius.min(asked.host_written_ius);
            return false;
        }
        self.anchored_at_ius = asked.host_written_ius;
        let figures = asked.endurance.now(asked.written_ius, lent.space);
        let owner = owner_bytes::encode(format, asked.accepted, figures, lent.maps);
        let anchor = lent.log.take_anchor(format, sequence, owner);
        assert!(anchor.sequence() <= anchor.taken_at(), "I-M16: an anchor begins before it was taken");
        self.taken = Some((anchor, lent.log.map_moves()));
        self.write_anchor(asked, lent)
    }
}

/// Writes what a leaf says.
fn encode_leaf(map: &VolumeMap, volume: u16, leaf: usize, iu: &mut [u8]) {
    let entries = map.leaf(leaf);
    match map.kind() {
        LeafKind::Old => {
            let words = <[U32]>::mut_from_bytes(iu).expect("whole words");
            for (word, entry) in words.iter_mut().zip(entries) {
                *word = positions::of(entry.get()).into();
            }
            iu[entries.len() * 4..].fill(0xff);
        }
        LeafKind::New => {
            let name = LeafName { level: 0, volume: volume.into(), number: leaf as u64, stamp: 0 };
            name.encode(entries.iter().map(|entry| LeafEntry::of(*entry)), iu);
        }
    }
}

/// Notes that recovery may have to replay.
fn notes_max(maps: &Maps) -> u64 {
    let leaves: usize = maps.volumes.iter().filter(|map| map.exists).map(|map| map.leaves.len()).sum();
    NOTES_MAX.max(leaves as u64 / LEAVES_PER_NOTE)
}

/// Whether recovery would have to replay more notes than it should.
fn has_many_notes(lent: &Lent) -> bool {
    lent.log.replayed_notes() > NOTES_MAX
        && lent.log.replayed_notes() > notes_max(lent.maps)
        && !mutant!("volume: notes without an end")
}

#[cfg(test)]
mod test {
    use super::*;

    /// With one volume too, the round begins again at its first group.
    #[test]
    fn groups_are_entered_in_rounds() {
        for volumes in 1..4u16 {
            let mut maps = Maps::default();
            for volume in 0..volumes {
                maps.volume(volume).exists = true;
                maps.volume(volume).resize(2 * (GROUP_LEAVES * LeafKind::Old.entries()) as u64, 1);
            }
            let mut cursor = (0, 0);
            let mut entered = Vec::new();
            for _ in 0..4 * volumes {
                entered.push(maps.next_group(&mut cursor).expect("there are groups"));
            }
            let round: Vec<_> = (0..volumes).flat_map(|volume| [(volume, 0), (volume, 1)]).collect();
            assert_eq!(entered, [&round[..], &round[..]].concat());
        }
        assert_eq!(Maps::default().next_group(&mut (0, 0)), None);
    }
}
