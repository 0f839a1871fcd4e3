//! Reads: what is staged is copied, the rest is read from flash in runs, and checked.

use crate::contract::{VolumeCompletion, VolumeError, VolumeToken};
use crate::lent::Lent;
use diecut_log::{Log, LogAddress, TOKEN_USER};
use diecut_units::{BufferLoan, BufferMut, Slab};
use diecut_vssd::space::{IoClass, SpaceCompletion, SpaceError, SpaceToken};

/// A range to be read, or to be checked where there is no destination.
pub(crate) struct ReadRequest {
    pub token: VolumeToken,
    pub volume: u16,
    pub first_iu: u64,
    pub iu_count: u32,
    pub destination: Option<BufferMut>,
}

/// What the parts of a read fill.
enum Target {
    /// The part has all of it, and brings it back.
    Whole,
    /// Each part has a piece that was lent.
    Pieces(BufferLoan),
    /// Nobody wants the content.
    Nothing,
}

struct ReadOperation {
    token: VolumeToken,
    target: Target,
    pending: u32,
    lost: Option<u64>,
    gone: bool,
}

#[derive(Clone, Copy)]
struct Part {
    operation: u32,
    address: LogAddress,
    first_iu: u64,
}

/// Reads that are under way.
#[derive(Default)]
pub(crate) struct Reads {
    operations: Slab<ReadOperation>,
    parts: Slab<Part>,
}

impl Reads {
    /// Whether none is under way.
    pub fn are_done(&self) -> bool {
        self.operations.is_empty()
    }

    /// Begins a read; one that needs no flash ends at once.
    pub fn read(&mut self, request: ReadRequest, lent: &mut Lent, completions: &mut Vec<VolumeCompletion>) {
        let ReadRequest { token, volume, first_iu, iu_count, destination } = request;
        let iu_bytes = lent.log.layout().content_mode().bytes_per_iu();
        let verify = destination.is_none();
        let destination = destination.unwrap_or_else(|| lent.log.pool().take(iu_count as usize * iu_bytes));
        assert_eq!(
            destination.len(),
            iu_count as usize * iu_bytes,
            "I-M5: the destination is as long as the range"
        );
        let operation = self.operations.next_index();
        let first = lent.maps.get(volume, first_iu);
        if first.is_place()
            && lent.log.staged(first).is_none()
            && run_len(volume, first_iu, first, iu_count, lent) == iu_count
        {
            self.read_part(Part { operation, address: first, first_iu }, iu_count, destination, lent);
            let target = if verify { Target::Nothing } else { Target::Whole };
            self.operations.insert(ReadOperation { token, target, pending: 1, lost: None, gone: false });
            return;
        }
        let (loan, mut rest) = destination.lend();
        let mut pending = 0;
        let mut lost = None;
        let mut done = 0;
        while done < iu_count {
            let iu = first_iu + u64::from(done);
            let address = lent.maps.get(volume, iu);
            if !address.is_place() {
                if address == LogAddress::LOST {
                    lost.get_or_insert(iu);
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
            self.read_part(Part { operation, address, first_iu: iu }, count, buffer, lent);
            pending += 1;
            done += count;
        }
        drop(rest);
        if pending == 0 {
            let destination = (!verify && lost.is_none()).then(|| loan.reclaim());
            let result = lost.map_or(Ok(()), |iu| Err(VolumeError::Unrecovered { iu }));
            completions.push(VolumeCompletion { token, result, destination });
            return;
        }
        let target = if verify { Target::Nothing } else { Target::Pieces(loan) };
        let index = self.operations.insert(ReadOperation { token, target, pending, lost, gone: false });
        assert_eq!(index, operation, "I-M6: parts name their read");
    }

    fn read_part(&mut self, part: Part, iu_count: u32, destination: BufferMut, lent: &mut Lent) {
        let index = self.parts.insert(part);
        let token = SpaceToken(TOKEN_USER | u64::from(index));
        lent.log.read(token, part.address, iu_count, destination, IoClass::HostRead, lent.space);
    }

    /// A part was read, or cannot be.
    pub fn arrived(
        &mut self,
        mut completion: SpaceCompletion,
        log: &mut Log,
        completions: &mut Vec<VolumeCompletion>,
    ) {
        let part = self.parts.remove((completion.token.0 & 0xffff_ffff) as u32);
        log.unpin(part.address);
        let operation = self.operations.get_mut(part.operation).expect("I-M6: parts belong to a read");
        operation.pending -= 1;
        let iu_bytes = log.layout().content_mode().bytes_per_iu();
        match (&completion.result, &completion.destination, &completion.oob) {
            (Ok(()), Some(data), Some(oob)) => {
                if let Err(iu) = log.verify(part.address, iu_bytes, data, oob) {
                    operation.lose(part.first_iu + u64::from(iu));
                }
            }
            (Err(SpaceError::PowerLost), ..) => operation.gone = true,
            _ => operation.lose(part.first_iu),
        }
        let whole = completion.destination.take_if(|_| matches!(operation.target, Target::Whole));
        drop(completion);
        if operation.pending == 0 {
            completions.push(self.operations.remove(part.operation).end(whole));
        }
    }
}

impl ReadOperation {
    /// An IU cannot be read. The first one counts.
    fn lose(&mut self, iu: u64) {
        self.lost = Some(self.lost.unwrap_or(u64::MAX).min(iu));
    }

    /// All parts are here.
    fn end(self, whole: Option<BufferMut>) -> VolumeCompletion {
        let result = match (self.gone, self.lost) {
            (true, _) => Err(VolumeError::Gone),
            (_, Some(iu)) => Err(VolumeError::Unrecovered { iu }),
            _ => Ok(()),
        };
        let destination = match self.target {
            Target::Whole => whole,
            Target::Pieces(loan) => loan.try_reclaim().ok(),
            Target::Nothing => None,
        };
        let destination = destination.filter(|_| result.is_ok());
        VolumeCompletion { token: self.token, result, destination }
    }
}

/// How many IUs from `iu` on, at most `limit`, lie on flash one behind the other from `address` on.
fn run_len(volume: u16, iu: u64, address: LogAddress, limit: u32, lent: &Lent) -> u32 {
    let limit = lent.log.run_limit(address).min(limit);
    let follows = |count: &u32| {
        let next = LogAddress(address.0 + count);
        lent.maps.get(volume, iu + u64::from(*count)) == next && lent.log.staged(next).is_none()
    };
    (1..limit).find(|count| !follows(count)).unwrap_or(limit)
}
