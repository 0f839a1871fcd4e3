//! Reads: what is staged is copied, the rest is read from flash in runs, and checked: against what the medium says beside it, and
//! against what the map knew of it when it was asked for.

use crate::contract::{IuRange, VolumeCompletion, VolumeError, VolumeToken};
use crate::copies::{Copies, CopyRequest, Reading};
use crate::lent::LentOver;
use diecut_log::{Check, Log, LogAddress, TOKEN_USER};
use diecut_units::{BufferLoan, BufferMut, Slab};
use diecut_vssd::space::{EraseBlockSpace, IoClass, SpaceCompletion, SpaceError, SpaceToken};

/// A range to be read, or to be checked where there is no destination.
pub(crate) struct ReadRequest {
    pub token: VolumeToken,
    pub volume: u16,
    pub first_iu: u64,
    pub iu_count: u32,
    pub destination: Option<BufferMut>,
}

/// What the pieces of a read fill.
enum Target {
    /// Each part has a piece that was lent.
    Pieces(BufferLoan),
    /// Nobody wants the content.
    Nothing,
    /// It is written elsewhere.
    Copy(Box<Reading>),
}

/// A read of which the log reads several pieces, or not all.
struct ReadOperation {
    token: VolumeToken,
    target: Target,
    pending: u32,
    lost: Option<u64>,
    gone: bool,
}

/// Pieces of a read that are being asked for.
struct Pieces {
    operation: u32,
    pending: u32,
    lost: Option<u64>,
}

/// One request to the log.
struct Part {
    of: PartOf,
    address: LogAddress,
    first_iu: u64,
    checks: Checks,
}

/// What the map knows of the content of a part. Most parts are one IU, and need no memory for it.
enum Checks {
    One(Check),
    Run(Vec<Check>),
}

impl Checks {
    fn as_slice(&self) -> &[Check] {
        match self {
            Checks::One(check) => std::slice::from_ref(check),
            Checks::Run(checks) => checks,
        }
    }
}

/// What a request to the log is for.
enum PartOf {
    /// All of a read: what is wanted comes back with the part.
    Whole { token: VolumeToken, is_wanted: bool },
    /// A piece of the read of this number.
    Piece(u32),
}

/// Reads that are under way.
#[derive(Default)]
pub(crate) struct Reads {
    operations: Slab<ReadOperation>,
    parts: Slab<Part>,
    /// Lists of checks that are not in use.
    spare_checks: Vec<Vec<Check>>,
    pub copies: Copies,
}

impl Reads {
    /// Whether none is under way.
    pub fn are_done(&self) -> bool {
        self.operations.is_empty() && self.parts.is_empty() && self.copies.are_done()
    }

    /// Begins a read; one that needs no flash ends at once.
    #[inline(always)]
    pub fn read<S: EraseBlockSpace + ?Sized>(
        &mut self,
        request: ReadRequest,
        lent: &mut LentOver<'_, S>,
        completions: &mut Vec<VolumeCompletion>,
    ) {
        let ReadRequest { token, volume, first_iu, iu_count, .. } = request;
        let address = lent.maps.get(volume, first_iu);
        if address.is_place()
            && lent.log.staged(address).is_none()
            && (iu_count == 1 || run_len(volume, first_iu, address, iu_count, lent) == iu_count)
        {
            let is_wanted = request.destination.is_some();
            let destination = request.into_destination(lent);
            let checks = self.checks(volume, first_iu, iu_count, lent);
            let part = Part { of: PartOf::Whole { token, is_wanted }, address, first_iu, checks };
            return self.read_part(part, iu_count, destination, lent);
        }
        self.read_in_pieces(request, lent, completions);
    }

    /// Begins a read of which not all lies on flash in one run.
    #[inline(never)]
    fn read_in_pieces<S: EraseBlockSpace + ?Sized>(
        &mut self,
        request: ReadRequest,
        lent: &mut LentOver<'_, S>,
        completions: &mut Vec<VolumeCompletion>,
    ) {
        let ReadRequest { token, volume, first_iu, iu_count, .. } = request;
        let verify = request.destination.is_none();
        let destination = request.into_destination(lent);
        let (loan, mut rest) = destination.lend();
        let mut pieces = Pieces { operation: self.operations.next_index(), pending: 0, lost: None };
        self.read_range(&mut pieces, volume, IuRange { first_iu, iu_count }, &mut rest, lent);
        drop(rest);
        let target = if verify { Target::Nothing } else { Target::Pieces(loan) };
        completions.extend(self.asked(pieces, token, target));
    }

    /// Begins to read the sources of a copy.
    pub fn read_copy<S: EraseBlockSpace + ?Sized>(
        &mut self,
        request: CopyRequest,
        lent: &mut LentOver<'_, S>,
        completions: &mut Vec<VolumeCompletion>,
    ) {
        let iu_bytes = lent.log.layout().content_mode().bytes_per_iu();
        let (loan, mut rest) = lent.log.pool().take(request.copy.iu_count() as usize * iu_bytes).lend();
        let mut pieces = Pieces { operation: self.operations.next_index(), pending: 0, lost: None };
        for source in &request.copy.sources {
            self.read_range(&mut pieces, request.volume, *source, &mut rest, lent);
        }
        drop(rest);
        let token = request.token;
        let target = Target::Copy(Box::new(Reading { loan, request }));
        completions.extend(self.asked(pieces, token, target));
    }

    /// Asks for what of a range lies on flash, and fills in the rest.
    fn read_range<S: EraseBlockSpace + ?Sized>(
        &mut self,
        pieces: &mut Pieces,
        volume: u16,
        range: IuRange,
        rest: &mut BufferMut,
        lent: &mut LentOver<'_, S>,
    ) {
        let IuRange { first_iu, iu_count } = range;
        let iu_bytes = lent.log.layout().content_mode().bytes_per_iu();
        let mut done = 0;
        while done < iu_count {
            let iu = first_iu + u64::from(done);
            let address = lent.maps.get(volume, iu);
            if !address.is_place() {
                if address == LogAddress::LOST {
                    pieces.lost.get_or_insert(iu);
                }
                rest.split_to(iu_bytes).fill(0);
                done += 1;
                continue;
            }
            if let Some(content) = lent.log.staged(address) {
                rest.split_to(iu_bytes).copy_from_slice(content);
                done += 1;
                continue;
            }
            let count = run_len(volume, iu, address, iu_count - done, lent);
            let buffer = rest.split_to(count as usize * iu_bytes);
            let checks = self.checks(volume, iu, count, lent);
            let part = Part { of: PartOf::Piece(pieces.operation), address, first_iu: iu, checks };
            self.read_part(part, count, buffer, lent);
            pieces.pending += 1;
            done += count;
        }
    }

    /// What is known of what a range holds now: it may have other content, at another place, before the read ends.
    #[inline]
    fn checks<S: EraseBlockSpace + ?Sized>(
        &mut self,
        volume: u16,
        first_iu: u64,
        iu_count: u32,
        lent: &LentOver<'_, S>,
    ) -> Checks {
        let entries = lent.maps.entries(volume, first_iu, iu_count);
        if let [entry] = entries {
            return Checks::One(entry.check());
        }
        let mut checks = self.spare_checks.pop().unwrap_or_default();
        checks.extend(entries.iter().map(|entry| entry.check()));
        Checks::Run(checks)
    }

    /// All pieces of a read were asked for. Its answer, if there was none to ask for.
    fn asked(&mut self, pieces: Pieces, token: VolumeToken, target: Target) -> Option<VolumeCompletion> {
        let Pieces { operation, pending, lost } = pieces;
        let read = ReadOperation { token, target, pending, lost, gone: false };
        if pending == 0 {
            return read.end(&mut self.copies);
        }
        let index = self.operations.insert(read);
        assert_eq!(index, operation, "I-M6: parts name their read");
        None
    }

    // In place: parts and requests are large, and a call in between moves them once more.
    #[inline(always)]
    fn read_part<S: EraseBlockSpace + ?Sized>(
        &mut self,
        part: Part,
        iu_count: u32,
        destination: BufferMut,
        lent: &mut LentOver<'_, S>,
    ) {
        let address = part.address;
        let token = SpaceToken(TOKEN_USER | u64::from(self.parts.insert(part)));
        lent.log.read(token, address, iu_count, destination, IoClass::HostRead, lent.space);
    }

    /// A part cannot be read.
    #[cold]
    pub fn failed(
        &mut self,
        completion: SpaceCompletion,
        log: &mut Log,
        completions: &mut Vec<VolumeCompletion>,
    ) {
        self.arrived(completion, log, completions);
    }

    /// A part was read, or cannot be.
    #[inline(always)]
    pub fn arrived(
        &mut self,
        completion: SpaceCompletion,
        log: &mut Log,
        completions: &mut Vec<VolumeCompletion>,
    ) {
        let Part { of, address, first_iu, checks } =
            self.parts.remove((completion.token.0 & 0xffff_ffff) as u32);
        let result = outcome(address, first_iu, checks.as_slice(), &completion, log);
        if let Checks::Run(mut checks) = checks {
            checks.clear();
            self.spare_checks.push(checks);
        }
        let SpaceCompletion { destination, oob, .. } = completion;
        log.unpin(address, oob);
        match of {
            PartOf::Whole { token, is_wanted } => {
                let destination = destination.filter(|_| is_wanted && result.is_ok());
                completions.push(VolumeCompletion { token, result, destination });
            }
            PartOf::Piece(operation) => {
                drop(destination);
                self.piece_arrived(operation, result, completions);
            }
        }
    }

    #[inline(never)]
    fn piece_arrived(
        &mut self,
        index: u32,
        result: Result<(), VolumeError>,
        completions: &mut Vec<VolumeCompletion>,
    ) {
        let operation = self.operations.get_mut(index).expect("I-M6: parts belong to a read");
        debug_assert!(operation.pending > 0, "I-M6: each part of a read ends once");
        operation.pending -= 1;
        match result {
            Ok(()) => {}
            Err(VolumeError::Unrecovered { iu }) => operation.lose(iu),
            Err(_) => operation.gone = true,
        }
        if operation.pending == 0 {
            let read = self.operations.remove(index);
            completions.extend(read.end(&mut self.copies));
        }
    }
}

impl ReadRequest {
    /// Where the content goes; a place for it where nobody wants it.
    #[inline]
    fn into_destination<S: EraseBlockSpace + ?Sized>(self, lent: &mut LentOver<'_, S>) -> BufferMut {
        let len = self.iu_count as usize * lent.log.layout().content_mode().bytes_per_iu();
        let Some(destination) = self.destination else { return lent.log.pool().take(len) };
        assert_eq!(destination.len(), len, "I-M5: the destination is as long as the range");
        destination
    }
}

/// What became of a part that begins at an IU of its volume.
#[inline(always)]
fn outcome(
    address: LogAddress,
    first_iu: u64,
    checks: &[Check],
    completion: &SpaceCompletion,
    log: &Log,
) -> Result<(), VolumeError> {
    let lost = |iu: u32| VolumeError::Unrecovered { iu: first_iu + u64::from(iu) };
    match (&completion.result, &completion.destination) {
        (Ok(()), Some(data)) => {
            let iu_bytes = log.layout().content_mode().bytes_per_iu();
            log.verify(address, iu_bytes, data, completion.oob.as_deref(), checks).map_err(lost)
        }
        (Err(SpaceError::PowerLost), _) => Err(VolumeError::Gone),
        _ => Err(lost(0)),
    }
}

impl ReadOperation {
    /// An IU cannot be read. The first one counts.
    fn lose(&mut self, iu: u64) {
        self.lost = Some(self.lost.unwrap_or(u64::MAX).min(iu));
    }

    /// All pieces are here. Its answer, but for a copy that goes on.
    fn end(self, copies: &mut Copies) -> Option<VolumeCompletion> {
        let error = match (self.gone, self.lost) {
            (true, _) => Some(VolumeError::Gone),
            (_, Some(iu)) => Some(VolumeError::Unrecovered { iu }),
            _ => None,
        };
        let destination = match self.target {
            Target::Pieces(loan) => loan.try_reclaim().ok(),
            Target::Nothing => None,
            Target::Copy(reading) => return copies.ended(*reading, error),
        };
        let result = error.map_or(Ok(()), Err);
        let destination = destination.filter(|_| result.is_ok());
        Some(VolumeCompletion { token: self.token, result, destination })
    }
}

/// How many IUs from `iu` on, at most `limit`, lie on flash one behind the other from `address` on.
fn run_len<S: EraseBlockSpace + ?Sized>(
    volume: u16,
    iu: u64,
    address: LogAddress,
    limit: u32,
    lent: &LentOver<'_, S>,
) -> u32 {
    let limit = lent.log.run_limit(address).min(limit);
    let follows = |count: &u32| {
        let next = address.plus(*count);
        lent.maps.get(volume, iu + u64::from(*count)) == next && lent.log.staged(next).is_none()
    };
    (1..limit).find(|count| !follows(count)).unwrap_or(limit)
}

#[cfg(test)]
mod test {
    use super::*;

    /// Goal: of all that is lost of a read the first IU is named, whenever its piece comes back. Method: pieces that come back in every
    /// order, one of which is good; what the map said to be lost counts, too.
    #[test]
    fn the_first_lost_iu_is_named() {
        let results =
            [Ok(()), Err(VolumeError::Unrecovered { iu: 9 }), Err(VolumeError::Unrecovered { iu: 5 })];
        for (of_map, expected) in [(None, 5), (Some(7), 5), (Some(3), 3)] {
            for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
                let mut reads = Reads::default();
                let token = VolumeToken(4);
                let operation =
                    ReadOperation { token, target: Target::Nothing, pending: 3, lost: of_map, gone: false };
                let index = reads.operations.insert(operation);
                let mut completions = Vec::new();
                for at in order {
                    assert!(completions.is_empty(), "a piece is still to come");
                    reads.piece_arrived(index, results[at].clone(), &mut completions);
                }
                let answer = completions.pop().expect("all are here");
                assert_eq!(answer.result, Err(VolumeError::Unrecovered { iu: expected }), "{order:?}");
                assert!(answer.token == token && reads.are_done());
            }
        }
    }
}
