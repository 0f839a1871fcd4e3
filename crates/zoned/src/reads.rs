//! Reads: what is staged is copied, the rest is read from flash a program unit at a time, and checked.

use crate::contract::{ZoneAnswer, ZoneCompletion, ZoneError, ZoneRange, ZoneSetIndex, ZoneToken};
use crate::lent::Facts;
use crate::mark::{self, Mark, Place};
use crate::shape::{UnitNumber, ZoneShape};
use crate::staging::Staging;
use crate::token::Kind;
use crate::zone::{Origin, Zone};
use diecut_units::{BufferLoan, BufferMut, BufferPool, Slab, checksum, mutant};
use diecut_vssd::space::{BlockRun, EraseBlockSpace, IoClass, SpaceCompletion, SpaceError, UnitIndex};

/// A read of which pieces are under way.
struct ReadOperation {
    token: ZoneToken,
    loan: BufferLoan,
    then: Then,
    /// Of what is to be written: program units of its zone, and where on their unit of the vSSD all of each was read.
    origins: Vec<(UnitNumber, Origin)>,
    pending: u32,
    lost: Option<u64>,
    gone: bool,
}

/// What becomes of what was read.
#[derive(Clone, Copy)]
pub(crate) enum Then {
    /// Whoever asked gets it.
    Give,
    /// Nobody wants the content.
    Check,
    /// It is written from this IU on.
    Write { set: ZoneSetIndex, first_iu: u64 },
}

/// What was read for a copy.
pub(crate) struct Copied {
    pub token: ZoneToken,
    pub set: ZoneSetIndex,
    pub first_iu: u64,
    pub content: BufferMut,
    /// See [`ReadOperation::origins`].
    pub origins: Vec<(UnitNumber, Origin)>,
}

/// One read of a block.
struct Part {
    operation: u32,
    /// Of the namespace.
    first_iu: u64,
    /// In the block.
    block_iu: u32,
    mark: Mark,
    unit: UnitIndex,
}

/// Where an IU of a read comes from.
enum Source {
    Zeros,
    Staged,
    Flash,
}

/// What is read, and from where.
pub(crate) struct ReadLent<'a> {
    pub shape: &'a ZoneShape,
    pub facts: &'a Facts,
    pub zones: &'a [Option<Box<Zone>>],
    pub staging: &'a Staging,
    pub pool: &'a mut BufferPool,
    pub space: &'a mut dyn EraseBlockSpace,
}

/// Reads that are under way.
#[derive(Default)]
pub(crate) struct Reads {
    operations: Slab<ReadOperation>,
    parts: Slab<Part>,
    copied: Vec<Copied>,
}

impl Reads {
    /// Whether none is under way.
    pub fn are_done(&self) -> bool {
        self.operations.is_empty()
    }

    /// The next copy of which all is read.
    pub fn take_copied(&mut self) -> Option<Copied> {
        self.copied.pop()
    }

    /// Begins a read of ranges, one behind the other.
    pub fn read(
        &mut self,
        token: ZoneToken,
        ranges: &[ZoneRange],
        destination: Option<BufferMut>,
        then: Then,
        lent: &mut ReadLent<'_>,
        completions: &mut Vec<ZoneCompletion>,
    ) {
        let iu_bytes = lent.facts.mode.bytes_per_iu();
        let iu_count: u32 = ranges.iter().map(|range| range.iu_count).sum();
        let destination = destination.unwrap_or_else(|| lent.pool.take(iu_count as usize * iu_bytes));
        assert_eq!(
            destination.len(),
            iu_count as usize * iu_bytes,
            "I-Z11: a destination is as long as its range"
        );
        let (loan, mut rest) = destination.lend();
        let operation = self.operations.next_index();
        let (mut pending, mut done_ius) = (0, 0);
        let mut origins = Vec::new();
        for range in ranges {
            let goal = match then {
                Then::Write { first_iu, .. } if lent.facts.copies_within_dies => {
                    Some(first_iu + u64::from(done_ius))
                }
                _ => None,
            };
            pending += self.read_range(operation, *range, goal, &mut rest, &mut origins, lent);
            done_ius += range.iu_count;
        }
        drop(rest);
        let read = ReadOperation { token, loan, then, origins, pending, lost: None, gone: false };
        if pending == 0 {
            return self.end(read, completions);
        }
        let index = self.operations.insert(read);
        assert_eq!(index, operation, "I-Z11: parts name their read");
    }

    /// Begins to read a range into the beginning of `rest`. Gives the number of its parts. What it holds will be written from `goal` on,
    /// if there is one; `origins` are then those of the program units there.
    fn read_range(
        &mut self,
        operation: u32,
        range: ZoneRange,
        goal: Option<u64>,
        rest: &mut BufferMut,
        origins: &mut Vec<(UnitNumber, Origin)>,
        lent: &mut ReadLent<'_>,
    ) -> u32 {
        let ZoneRange { first_iu, iu_count } = range;
        let iu_bytes = lent.facts.mode.bytes_per_iu();
        let (mut pending, mut done) = (0, 0);
        while done < iu_count {
            let iu = first_iu + u64::from(done);
            let size_log2 = lent.shape.size_ius_log2();
            let place = |iu: u64| ((iu >> size_log2) as usize, (iu & ((1 << size_log2) - 1)) as u32);
            let (number, in_zone) = place(iu);
            let (unit, in_unit) = (in_zone / lent.shape.unit_ius, in_zone % lent.shape.unit_ius);
            let count = (iu_count - done).min(lent.shape.unit_ius - in_unit);
            let zone = lent.zones[number].as_deref();
            let mut buffer = rest.split_to(count as usize * iu_bytes);
            match zone.map_or(Source::Zeros, |zone| source_of(zone, unit, lent.shape)) {
                Source::Zeros => buffer.fill(0),
                Source::Staged => {
                    let staged = zone.and_then(|zone| zone.staged(unit)).expect("just looked at");
                    let slot = lent.staging.slot(staged.slot);
                    for (iu, place) in (in_unit..).zip(buffer.chunks_exact_mut(iu_bytes)) {
                        if slot.has(iu) {
                            place.copy_from_slice(slot.iu(iu));
                        } else {
                            place.fill(0);
                        }
                    }
                }
                Source::Flash => {
                    let zone = zone.expect("just looked at");
                    let (column, row) = lent.shape.place(unit);
                    let block = zone.columns[column].block.expect("I-Z8: what is on flash lies on a block");
                    let block_iu = row * lent.shape.unit_ius + in_unit;
                    let mark = zone.mark_of(column);
                    if let Some(goal) = goal.filter(|_| count == lent.shape.unit_ius) {
                        let (goal_zone, goal_iu) = place(goal + u64::from(done));
                        let goal_unit = goal_iu / count;
                        let (goal_column, _) = lent.shape.place(goal_unit);
                        let is_near = lent.shape.unit_of(goal_zone as u32, goal_column) == block.unit;
                        if is_near && goal_iu.is_multiple_of(count) {
                            let Mark { zone, generation, edition, .. } = mark;
                            let column = column as u16;
                            origins.push((goal_unit, Origin { zone, generation, column, edition, row }));
                        }
                    }
                    let part = Part { operation, first_iu: iu, block_iu, mark, unit: block.unit };
                    let page_ius = lent.facts.block.ius_per_page();
                    let pages = (block_iu + count).div_ceil(page_ius) - block_iu / page_ius;
                    let oob = lent.pool.take((pages * lent.facts.block.oob_size_bytes) as usize);
                    let run = BlockRun { block, first_iu: block_iu, iu_count: count };
                    let token = Kind::Read.token(self.parts.insert(part));
                    lent.space.read(token, run, buffer, Some(oob), IoClass::HostRead);
                    pending += 1;
                }
            }
            done += count;
        }
        pending
    }

    /// All parts of a read are here.
    fn end(&mut self, read: ReadOperation, completions: &mut Vec<ZoneCompletion>) {
        let ReadOperation { token, loan, then, origins, .. } = read;
        let result = match (read.gone, read.lost) {
            (true, _) => Err(ZoneError::Gone),
            (_, Some(iu)) => Err(ZoneError::Unrecovered { iu }),
            (_, None) => match then {
                Then::Check => Ok(ZoneAnswer::Done),
                Then::Give => Ok(ZoneAnswer::Content(loan.reclaim())),
                Then::Write { set, first_iu } => {
                    self.copied.push(Copied { token, set, first_iu, content: loan.reclaim(), origins });
                    return;
                }
            },
        };
        completions.push(ZoneCompletion { token, result });
    }

    /// A part was read, or cannot be.
    pub fn arrived(
        &mut self,
        place: u32,
        completion: SpaceCompletion,
        facts: &Facts,
        completions: &mut Vec<ZoneCompletion>,
    ) {
        let part = self.parts.remove(place);
        let SpaceCompletion { result, destination, oob, .. } = completion;
        let operation = self.operations.get_mut(part.operation).expect("I-Z11: parts belong to a read");
        match (result, &destination, &oob) {
            (Ok(()), Some(data), Some(oob)) => {
                if let Err(at) = check(&part, data, oob, facts) {
                    operation.lose(part.first_iu + u64::from(at));
                }
            }
            (Err(SpaceError::PowerLost), ..) => operation.gone = true,
            (Err(SpaceError::Uncorrectable { iu, .. }), ..) => {
                operation.lose(part.first_iu + u64::from(iu.saturating_sub(part.block_iu)));
            }
            _ => operation.lose(part.first_iu),
        }
        drop(destination);
        assert!(operation.pending > 0, "I-Z11: each part of a read ends once");
        operation.pending -= 1;
        if operation.pending == 0 {
            let read = self.operations.remove(part.operation);
            self.end(read, completions);
        }
    }
}

fn source_of(zone: &Zone, unit: u32, shape: &ZoneShape) -> Source {
    if unit >= shape.unit_count() {
        return Source::Zeros;
    }
    if zone.staged(unit).is_some() {
        return Source::Staged;
    }
    let (column, row) = shape.place(unit);
    if row < zone.columns[column].done_rows { Source::Flash } else { Source::Zeros }
}

/// Compares what was read with the marks of its pages. `Err` is the number of the first IU that is not what was written there.
fn check(part: &Part, data: &[u8], oob: &[u8], facts: &Facts) -> Result<(), u32> {
    let shape = &facts.block;
    let page_ius = shape.ius_per_page();
    let first_page = part.block_iu / page_ius;
    let mut checked = None;
    for (at, content) in (0..).zip(data.chunks_exact(facts.mode.bytes_per_iu())) {
        let (page, iu) = ((part.block_iu + at) / page_ius, (part.block_iu + at) % page_ius);
        let start = ((page - first_page) * shape.oob_size_bytes + shape.holder_oob_offset) as usize;
        let oob = &oob[start..];
        if checked != Some(page) {
            let found = mark::decode(oob, Place { unit: part.unit, page }, page_ius);
            if found != Some(part.mark) && !mutant!("zoned: identity of a page not compared") {
                return Err(at);
            }
            checked = Some(page);
        }
        if mark::checksum_of(oob, iu) != checksum(content) {
            return Err(at);
        }
    }
    Ok(())
}

impl ReadOperation {
    /// An IU cannot be read. The first one counts.
    fn lose(&mut self, iu: u64) {
        self.lost = Some(self.lost.unwrap_or(u64::MAX).min(iu));
    }
}
