//! The content of a vSSD on its way to another one, which is to take its place: what was copied, and what hosts changed since.
//!
//! Volumes are copied in pieces. A piece is to be copied (again) from the moment on in which a command that may change it is given to its volume, and
//! again from that in which the command is answered: a read between the two may find what was there before. When nothing is under way for hosts, and no piece is to be copied,
//! both vSSDs hold the same. Nothing is written down: after a crash it begins anew.

use diecut_namespace::StoreIndex;
use diecut_units::{BufferMut, Span, Time, mutant};
use diecut_volume::contract::{VolumeCommand, VolumeCompletion, VolumeIndex, VolumeOperation};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;

/// IUs of a piece. A choice: what a medium reads and writes in one go.
pub(crate) const PIECE_IUS: u64 = 32;

/// Pieces that are copied at once. A choice: hosts wait for few of them.
pub(crate) const PIECES_AT_ONCE: usize = 4;

/// Pieces of a volume.
struct Pieces {
    size_ius: u64,
    /// To be copied, by bit.
    due: Vec<u64>,
    due_count: u64,
    /// Copied at least once: there may be something that is to go.
    copied: Vec<u64>,
}

fn has(bits: &[u64], at: u64) -> bool {
    bits[(at / 64) as usize] & 1 << (at % 64) != 0
}

impl Pieces {
    fn new(size_ius: u64) -> Pieces {
        let count = size_ius.div_ceil(PIECE_IUS);
        let words = count.div_ceil(64) as usize;
        let mut pieces = Pieces { size_ius, due: vec![0; words], due_count: 0, copied: vec![0; words] };
        (0..count).for_each(|piece| pieces.mark(piece));
        pieces
    }

    fn mark(&mut self, piece: u64) {
        if !has(&self.due, piece) {
            self.due[(piece / 64) as usize] |= 1 << (piece % 64);
            self.due_count += 1;
        }
    }

    fn touch(&mut self, ius: &Range<u64>) {
        if !ius.is_empty() {
            (ius.start / PIECE_IUS..=(ius.end - 1) / PIECE_IUS).for_each(|piece| self.mark(piece));
        }
    }

    /// Takes one that is due, from there on, and says whether it was copied before.
    fn take(&mut self, from: u64) -> Option<(u64, bool)> {
        let words = self.due.len() as u64;
        for at in from / 64..words {
            let above = if at == from / 64 { u64::MAX << (from % 64) } else { u64::MAX };
            let word = self.due[at as usize] & above;
            if word == 0 {
                continue;
            }
            let piece = at * 64 + u64::from(word.trailing_zeros());
            self.due[at as usize] &= !(1 << (piece % 64));
            self.due_count -= 1;
            let was_copied = has(&self.copied, piece);
            self.copied[at as usize] |= 1 << (piece % 64);
            return Some((piece, was_copied));
        }
        None
    }

    fn ius(&self, piece: u64) -> Range<u64> {
        piece * PIECE_IUS..((piece + 1) * PIECE_IUS).min(self.size_ius)
    }
}

/// A piece that is to be copied.
pub(crate) struct Piece {
    pub volume: VolumeIndex,
    pub ius: Range<u64>,
    pub was_copied: bool,
}

/// A command of a host.
#[derive(Default)]
struct UnderWay {
    pieces: u32,
    /// What they may change.
    changes: Vec<(VolumeIndex, Range<u64>)>,
}

/// See the module.
pub(crate) struct Copying {
    pub from: StoreIndex,
    volumes: BTreeMap<VolumeIndex, Pieces>,
    /// Commands of hosts under way, by token: pieces of one have the same.
    under_way: BTreeMap<u64, UnderWay>,
    /// Answers to the copy's own commands.
    pub answers: VecDeque<VolumeCompletion>,
    own_tokens: BTreeSet<u64>,
    /// The piece that is looked at next.
    next: (VolumeIndex, u64),
    /// How often all pieces were gone through.
    pub rounds: u32,
    /// What the rate allows next.
    pub paid_until: Time,
    total: u64,
}

/// What an operation may change.
fn changed(operation: &VolumeOperation) -> Option<Range<u64>> {
    let of = |first: u64, count: u64| Some(first..first + count);
    match operation {
        VolumeOperation::Write { first_iu, payload, .. } => of(*first_iu, payload.iu_count().into()),
        VolumeOperation::Deallocate { first_iu, iu_count }
        | VolumeOperation::WriteUncorrectable { first_iu, iu_count }
        | VolumeOperation::WriteZeroes { first_iu, iu_count, .. } => of(*first_iu, *iu_count),
        VolumeOperation::Copy(copy) => of(copy.first_iu, copy.iu_count().into()),
        VolumeOperation::Read { .. }
        | VolumeOperation::Flush
        | VolumeOperation::Purge
        | VolumeOperation::Verify { .. } => None,
    }
}

impl Copying {
    /// Of a store of which nothing is under way. All pieces of its volumes are to be copied.
    pub fn new(from: StoreIndex, volumes: impl Iterator<Item = (VolumeIndex, u64)>) -> Copying {
        let volumes: BTreeMap<_, _> =
            volumes.map(|(index, size_ius)| (index, Pieces::new(size_ius))).collect();
        let total = volumes.values().map(|pieces| pieces.due_count).sum();
        Copying {
            from,
            volumes,
            under_way: BTreeMap::new(),
            answers: VecDeque::new(),
            own_tokens: BTreeSet::new(),
            next: (VolumeIndex(0), 0),
            rounds: 0,
            paid_until: Time::ZERO,
            total,
        }
    }

    /// These are to be copied, again if they were.
    pub fn touch(&mut self, volume: VolumeIndex, ius: &Range<u64>) {
        if let Some(pieces) = self.volumes.get_mut(&volume) {
            pieces.touch(ius);
        }
    }

    /// A command goes to a volume of the store.
    pub fn begins(&mut self, command: &VolumeCommand) {
        if self.own_tokens.contains(&command.token.0) {
            return;
        }
        let under_way = self.under_way.entry(command.token.0).or_default();
        under_way.pieces += 1;
        if let Some(ius) = changed(&command.operation)
            && let Some(pieces) = self.volumes.get_mut(&command.volume)
            && !mutant!("shard: what hosts write while a vSSD moves is not copied again")
        {
            pieces.touch(&ius);
            under_way.changes.push((command.volume, ius));
        }
    }

    /// A command was answered. Gives the answer back unless it is the copy's.
    pub fn answered(&mut self, answer: VolumeCompletion) -> Option<VolumeCompletion> {
        if self.own_tokens.remove(&answer.token.0) {
            self.answers.push_back(answer);
            return None;
        }
        if let Some(under_way) = self.under_way.get_mut(&answer.token.0) {
            under_way.pieces -= 1;
            for (volume, ius) in &under_way.changes {
                if let Some(pieces) = self.volumes.get_mut(volume)
                    && !mutant!("shard: what is answered while a vSSD moves is not copied again")
                {
                    pieces.touch(ius);
                }
            }
            if under_way.pieces == 0 {
                self.under_way.remove(&answer.token.0);
            }
        }
        Some(answer)
    }

    /// Whether nothing is under way for hosts.
    pub fn is_idle(&self) -> bool {
        self.under_way.is_empty()
    }

    /// The answer to this is the copy's.
    pub fn expect(&mut self, token: u64) {
        self.own_tokens.insert(token);
    }

    /// Commands of the copy under way, or answered and not looked at.
    pub fn own(&self) -> usize {
        self.own_tokens.len() + self.answers.len()
    }

    /// Takes the next piece that is to be copied.
    pub fn take(&mut self) -> Option<Piece> {
        for _ in 0..2 {
            let (volume, from) = self.next;
            for (index, pieces) in self.volumes.range_mut(volume..) {
                let from = if *index == volume { from } else { 0 };
                let Some((piece, was_copied)) = pieces.take(from) else { continue };
                self.next = (*index, piece + 1);
                return Some(Piece { volume: *index, ius: pieces.ius(piece), was_copied });
            }
            self.rounds += 1;
            self.next = (VolumeIndex(0), 0);
        }
        None
    }

    /// Nothing more is begun.
    pub fn stop(&mut self) {
        self.paid_until = Time::NEVER;
    }

    /// When the next piece may begin, if nothing else has to happen before.
    pub fn deadline(&self) -> Time {
        match self.own() < PIECES_AT_ONCE && self.left().0 > 0 {
            true => self.paid_until,
            false => Time::NEVER,
        }
    }

    /// Pieces that are to be copied, and how many there are.
    pub fn left(&self) -> (u64, u64) {
        (self.volumes.values().map(|pieces| pieces.due_count).sum(), self.total)
    }

    /// The rate pays for a piece.
    pub fn pay(&mut self, bytes: u64, rate_bytes_per_second: u64, now: Time) {
        if rate_bytes_per_second > 0 {
            let cost = (u128::from(bytes) * 1_000_000_000).div_ceil(u128::from(rate_bytes_per_second)) as u64;
            self.paid_until = self.paid_until.max(now) + Span(cost);
        }
    }
}

/// Runs of IUs that hold something, and of those that read as zeros, in their order.
pub(crate) fn runs(data: &BufferMut, first_iu: u64, bytes_per_iu: usize) -> Vec<(Range<u64>, bool)> {
    let mut runs: Vec<(Range<u64>, bool)> = Vec::new();
    for (iu, content) in (first_iu..).zip(data.chunks(bytes_per_iu)) {
        let holds = content.iter().any(|byte| *byte != 0);
        match runs.last_mut() {
            Some((run, before)) if *before == holds => run.end = iu + 1,
            _ => runs.push((iu..iu + 1, holds)),
        }
    }
    runs
}

#[cfg(test)]
mod test {
    use super::*;
    use diecut_volume::contract::VolumeToken;

    fn volume() -> Copying {
        Copying::new(StoreIndex(0), [(VolumeIndex(3), 10 * PIECE_IUS + 1)].into_iter())
    }

    fn deallocates(first_iu: u64, iu_count: u64) -> VolumeCommand {
        let operation = VolumeOperation::Deallocate { first_iu, iu_count };
        VolumeCommand { token: VolumeToken(7), volume: VolumeIndex(3), operation }
    }

    fn answer() -> VolumeCompletion {
        VolumeCompletion { token: VolumeToken(7), result: Ok(()), destination: None }
    }

    /// Pieces that are to be copied, by their first IU.
    fn take_all(copying: &mut Copying) -> Vec<u64> {
        std::iter::from_fn(|| copying.take()).map(|piece| piece.ius.start / PIECE_IUS).collect()
    }

    /// A piece is read while a command that changes it is under way.
    fn read_between() {
        let mut copying = volume();
        assert_eq!(take_all(&mut copying), (0..=10).collect::<Vec<u64>>());
        copying.begins(&deallocates(PIECE_IUS - 1, 2));
        assert_eq!(take_all(&mut copying), [0, 1], "the read may find what was there before");
        assert!(!copying.is_idle());
        assert!(copying.answered(answer()).is_some() && copying.is_idle());
        assert_eq!(take_all(&mut copying), [0, 1], "so it is read again");
        assert_eq!(copying.left(), (0, 11));
    }

    /// Goal: what changes is copied again, when the command begins and when it is answered; pieces of one command are told apart by their number.
    #[test]
    fn what_changes_is_copied_again() {
        read_between();
        let mut copying = volume();
        take_all(&mut copying);
        copying.begins(&deallocates(0, 1));
        copying.begins(&deallocates(10 * PIECE_IUS, 1));
        copying.answered(answer());
        assert!(!copying.is_idle());
        copying.answered(answer());
        assert!(copying.is_idle());
        let pieces: Vec<Range<u64>> = std::iter::from_fn(|| copying.take()).map(|piece| piece.ius).collect();
        assert_eq!(pieces, [0..PIECE_IUS, 10 * PIECE_IUS..10 * PIECE_IUS + 1]);
    }

    #[test]
    fn answers_of_the_copy_are_its_own() {
        let mut copying = volume();
        copying.expect(7);
        assert!(copying.answered(answer()).is_none());
        assert_eq!((copying.own(), copying.answers.len()), (1, 1));
    }

    #[test]
    fn only_what_holds_something_is_written() {
        let data = BufferMut::copy_from(&[0, 0, 1, 0, 0, 2, 0, 0, 0, 0]);
        assert_eq!(runs(&data, 5, 2), [(5..6, false), (6..8, true), (8..10, false)]);
    }

    /// The canary: planted bugs must be noticed.
    #[test]
    fn planted_bugs_are_noticed() {
        let name = "shard: what is answered while a vSSD moves is not copied again";
        diecut_testing::planted::all_are_noticed(&[(name, read_between as fn())]);
    }
}
