//! What is left to do of a sanitize operation: first all namespaces are cleared, then each purges what was there. One command goes on at a
//! time, so hosts of other subsystems on the same core wait for one at most.

use crate::config::{NamespaceConfig, SubsystemConfig};
use diecut_namespace::contract::{
    ChunkRequest, LbaRange, NamespaceError, NamespaceId, NamespaceOperation, NamespaceProperties,
    ReportRequest, ZoneAction, ZoneOutcome, ZoneRequest, ZoneState,
};

/// Pieces that the blocks of a namespace are cleared in: how much is done is told in between.
const PIECES: u64 = 64;
/// Logical blocks of a piece at least.
const PIECE_LBAS_MIN: u64 = 4096;

/// How a namespace is cleared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Clearing {
    /// Blocks become zeros.
    Blocks,
    Zones,
    /// Of so many logical blocks each.
    Chunks(u32),
}

/// A namespace to be sanitized.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    namespace: NamespaceId,
    /// Of chunks: all that lies in them, as their addresses leave gaps.
    size_lbas: u64,
    clearing: Clearing,
}

impl Place {
    fn of(one: &NamespaceConfig) -> Place {
        let NamespaceProperties { zones, chunks, size_lbas, .. } = &one.properties;
        let (size_lbas, clearing) = match chunks {
            Some(chunks) => {
                let chunk_lbas = chunks.shape.chunk_ius();
                (u64::from(chunks.shape.all_chunks()) * u64::from(chunk_lbas), Clearing::Chunks(chunk_lbas))
            }
            None if zones.is_some() => (*size_lbas, Clearing::Zones),
            None => (*size_lbas, Clearing::Blocks),
        };
        Place { namespace: one.namespace, size_lbas, clearing }
    }

    /// How much of it is cleared at once from a block on.
    fn piece(&self, first_lba: u64) -> u64 {
        let piece = (self.size_lbas / PIECES).max(PIECE_LBAS_MIN);
        let piece = match self.clearing {
            Clearing::Chunks(chunk_lbas) => piece.next_multiple_of(chunk_lbas.into()),
            Clearing::Blocks | Clearing::Zones => piece.min(u64::from(u32::MAX)),
        };
        piece.min(self.size_lbas - first_lba)
    }
}

/// What a namespace is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// These blocks become zeros.
    Zero(LbaRange),
    /// So many chunks from the first one on become free, which is so many logical blocks.
    Clear { first: u32, count: u32, lbas: u64 },
    /// All zones are reset.
    Reset,
    /// No zone may be left that can be read and not be reset.
    LookForReadOnly,
    /// What was there is erased.
    Purge,
}

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Work {
    places: Vec<Place>,
    /// Which namespace is next, and of it the first block that was not cleared.
    place: usize,
    next_lba: u64,
    /// Zones were reset, and are looked at next.
    is_reset: bool,
    purges: bool,
    under_way: Option<Step>,
    /// The namespaces are others than before: all begins anew behind what is under way.
    is_outdated: bool,
    /// Logical blocks that are done with, of twice those that there are: each is cleared, and purged.
    done_lbas: u64,
    all_lbas: u64,
}

/// What an answer led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Went {
    /// It goes on.
    On,
    /// A namespace cannot do it.
    Wrong,
    /// The namespaces are others than before.
    Outdated,
}

impl Work {
    /// All of a subsystem.
    pub(super) fn new(subsystem: &SubsystemConfig) -> Work {
        let places: Vec<Place> = subsystem.namespaces.values().map(Place::of).collect();
        let all_lbas = 2 * places.iter().map(|place| place.size_lbas).sum::<u64>();
        let (place, next_lba, done_lbas, under_way) = (0, 0, 0, None);
        let (is_reset, purges, is_outdated) = (false, false, false);
        Work { places, place, next_lba, is_reset, purges, under_way, is_outdated, done_lbas, all_lbas }
    }

    pub(super) fn is_under_way(&self) -> bool {
        self.under_way.is_some()
    }

    /// The namespaces are others than before. Says whether that is to be taken up at once.
    pub(super) fn namespaces_changed(&mut self) -> bool {
        self.is_outdated = true;
        self.under_way.is_none()
    }

    /// How much is done, in 65,536ths. It stays below the value that says that nothing goes on.
    pub(super) fn progress(&self) -> u16 {
        let of_all = u128::from(self.done_lbas) * 65_536 / u128::from(self.all_lbas.max(1));
        of_all.min(u128::from(u16::MAX - 1)) as u16
    }

    /// What is asked next, of whom; nothing if all is done.
    ///
    /// # Panics
    /// If something is under way.
    pub(super) fn next(&mut self) -> Option<(NamespaceId, NamespaceOperation)> {
        assert!(self.under_way.is_none(), "I-T22: one command of a sanitize operation is under way");
        if self.place == self.places.len() && !self.purges {
            (self.purges, self.place) = (true, 0);
        }
        let place = *self.places.get(self.place)?;
        let step = match place.clearing {
            _ if self.purges => Step::Purge,
            Clearing::Zones if self.is_reset => Step::LookForReadOnly,
            Clearing::Zones => Step::Reset,
            Clearing::Chunks(chunk_lbas) => {
                let (lbas, chunk_lbas) = (place.piece(self.next_lba), u64::from(chunk_lbas));
                assert!(lbas >= chunk_lbas, "I-T22: a piece has chunks");
                let (first, count) = ((self.next_lba / chunk_lbas) as u32, (lbas / chunk_lbas) as u32);
                Step::Clear { first, count, lbas }
            }
            Clearing::Blocks => {
                let lba_count = place.piece(self.next_lba) as u32;
                assert!(lba_count > 0, "I-T22: a piece has blocks");
                Step::Zero(LbaRange { first_lba: self.next_lba, lba_count })
            }
        };
        self.under_way = Some(step);
        let operation = match step {
            Step::Zero(range) => {
                NamespaceOperation::WriteZeroes { range, may_deallocate: true, force_unit_access: true }
            }
            Step::Clear { first, count, .. } => {
                NamespaceOperation::Chunk(ChunkRequest::Clear { first, count })
            }
            Step::Reset => {
                NamespaceOperation::Zone(ZoneRequest::Act { zone_lba: None, action: ZoneAction::Reset })
            }
            Step::LookForReadOnly => NamespaceOperation::Zone(ZoneRequest::Report(ReportRequest {
                first_zone: 0,
                state: Some(ZoneState::ReadOnly),
                count_max: 1,
                is_extended: false,
            })),
            Step::Purge => NamespaceOperation::Purge,
        };
        Some((place.namespace, operation))
    }

    /// The namespace answers.
    ///
    /// # Panics
    /// If it was not asked.
    pub(super) fn answered(
        &mut self,
        result: &Result<(), NamespaceError>,
        zones: Option<&ZoneOutcome>,
    ) -> Went {
        let step = self.under_way.take().expect("I-T22: one command of a sanitize operation is under way");
        if self.is_outdated {
            return Went::Outdated;
        }
        let still_read_only = match (step, zones) {
            (Step::LookForReadOnly, Some(ZoneOutcome::Report(report))) => report.matching > 0,
            (Step::LookForReadOnly, _) => true,
            _ => false,
        };
        if result.is_err() || still_read_only {
            return Went::Wrong;
        }
        let size_lbas = self.places[self.place].size_lbas;
        let mut is_cleared = |lbas: u64| {
            (self.next_lba, self.done_lbas) = (self.next_lba + lbas, self.done_lbas + lbas);
            self.next_lba == size_lbas
        };
        let is_over = match step {
            Step::Zero(range) => is_cleared(range.lba_count.into()),
            Step::Clear { lbas, .. } => is_cleared(lbas),
            Step::Reset => {
                self.is_reset = true;
                false
            }
            Step::LookForReadOnly | Step::Purge => {
                self.done_lbas += size_lbas;
                true
            }
        };
        assert!(self.next_lba <= size_lbas, "I-T22: what is cleared ends with its namespace");
        if is_over {
            (self.place, self.next_lba, self.is_reset) = (self.place + 1, 0, false);
        }
        assert!(self.done_lbas <= self.all_lbas, "I-T22: no block is done twice");
        Went::On
    }
}
