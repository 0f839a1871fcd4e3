use crate::contract::{CommandToken, LbaRange, NamespaceError, NamespaceId, SourceId};
use crate::definition::StoreIndex;
use crate::piece::{self, Cutting, MapRange};
use crate::statistics::Kind;
use diecut_units::{Buffer, BufferLoan, Time};
use diecut_volume::contract::{VolumeIndex, VolumeOperation, VolumeToken};
use smallvec::SmallVec;

/// What of a command was not given to its volume yet.
#[derive(Debug)]
pub(crate) struct Rest {
    pub(crate) store: StoreIndex,
    pub(crate) volume: VolumeIndex,
    /// What comes next.
    pub(crate) operation: VolumeOperation,
    /// Ranges of a deallocation that come after it, the next one last.
    pub(crate) ranges: SmallVec<[LbaRange; 2]>,
}

impl Rest {
    /// Cuts the next piece off; the second value is what comes after it, if anything does.
    #[inline]
    pub(crate) fn cut(
        self,
        cutting: Cutting,
        map_piece: impl FnOnce(MapRange) -> u64,
    ) -> (VolumeOperation, Option<Rest>) {
        let Rest { store, volume, operation, mut ranges } = self;
        let range_of = |first_iu, iu_count| MapRange { store, volume, first_iu, iu_count };
        let (piece, left) =
            piece::cut(operation, cutting, |first_iu, iu_count| map_piece(range_of(first_iu, iu_count)));
        let next = left.or_else(|| {
            let range = ranges.pop()?;
            Some(VolumeOperation::Deallocate { first_iu: range.first_lba, iu_count: range.lba_count.into() })
        });
        (piece, next.map(|operation| Rest { store, volume, operation, ranges }))
    }
}

/// A command that waits for its volume.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) token: CommandToken,
    pub(crate) namespace: NamespaceId,
    pub(crate) source: SourceId,
    pub(crate) arrived: Time,
    pub(crate) kind: Kind,
    pub(crate) lbas: u64,
    /// Volume commands still to be answered.
    pub(crate) remaining: u32,
    /// What comes after them. The command is not answered before this is gone.
    pub(crate) rest: Option<Rest>,
    /// The whole buffer of a read that was cut in pieces.
    pub(crate) loan: Option<BufferLoan>,
    /// The first error among its volume commands.
    pub(crate) error: Option<NamespaceError>,
    /// What a compare expects.
    pub(crate) expected: Option<Buffer>,
}

/// The generation of a slot in its tokens. The four bits above it belong to others who ask volumes.
const GENERATION_MASK: u32 = (1 << 28) - 1;

/// Commands under way. A volume token is the slot in its low half and the slot's generation above it, so that an answer that
/// comes twice is caught.
#[derive(Debug, Default)]
pub(crate) struct PendingSlab {
    slots: Vec<Slot>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct Slot {
    generation: u32,
    pending: Option<Pending>,
}

impl PendingSlab {
    pub(crate) fn insert(&mut self, pending: Pending) -> VolumeToken {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { generation: 0, pending: None });
            u32::try_from(self.slots.len() - 1).expect("fewer than 4 billion commands under way")
        });
        let entry = &mut self.slots[slot as usize];
        assert!(entry.pending.is_none(), "slot {slot} is free");
        entry.generation = entry.generation.wrapping_add(1) & GENERATION_MASK;
        entry.pending = Some(pending);
        VolumeToken(u64::from(entry.generation) << 32 | u64::from(slot))
    }

    /// The pending command of a token.
    ///
    /// # Panics
    /// If the token is not under way: the volume answered twice, or made one up.
    pub(crate) fn get_mut(&mut self, token: VolumeToken) -> &mut Pending {
        let entry = &mut self.slots[(token.0 & u64::from(u32::MAX)) as usize];
        assert_eq!(u64::from(entry.generation), token.0 >> 32, "{token:?} was answered before");
        entry.pending.as_mut().expect("the token is under way")
    }

    /// All pending commands.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Pending> {
        self.slots.iter_mut().filter_map(|slot| slot.pending.as_mut())
    }

    pub(crate) fn remove(&mut self, token: VolumeToken) -> Pending {
        self.get_mut(token);
        let slot = (token.0 & u64::from(u32::MAX)) as u32;
        self.free.push(slot);
        self.slots[slot as usize].pending.take().expect("checked above")
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}

#[cfg(test)]
mod test {
    use super::*;

    fn pending() -> Pending {
        Pending {
            token: CommandToken(0),
            namespace: NamespaceId(0),
            source: SourceId(0),
            arrived: Time::ZERO,
            kind: Kind::Flush,
            lbas: 0,
            remaining: 0,
            rest: None,
            loan: None,
            error: None,
            expected: None,
        }
    }

    /// Goal: the answer of a command finds its way back however many commands there were: bit 63 of a volume token says that the
    /// administration asked, and an answer with it never reaches its namespace. Method: a slot whose generation is about to run
    /// through all values that it can have, at the ends of each range.
    #[test]
    fn a_token_never_takes_the_bit_of_another_owner() {
        for generation in
            [0, (1 << 28) - 2, (1 << 28) - 1, (1 << 31) - 2, (1 << 31) - 1, u32::MAX - 1, u32::MAX]
        {
            let mut slab = PendingSlab::default();
            slab.slots.push(Slot { generation, pending: None });
            slab.free.push(0);
            let token = slab.insert(pending());
            assert_eq!(token.0 >> 60, 0, "after {generation} uses of a slot");
            slab.remove(token);
        }
    }
}
