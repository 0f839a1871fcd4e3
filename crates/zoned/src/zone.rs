//! One zone that has erase blocks or is about to get them: what is staged of it, what is on flash, and what waits.

use crate::contract::{ZoneData, ZoneToken};
use crate::mark::Mark;
use crate::shape::{UnitNumber, ZoneShape};
use crate::staging::{Claim, SlotIndex, Staging};
use diecut_units::mutant;
use diecut_vssd::space::LogicalBlock;
use std::collections::VecDeque;

/// Which zone, in which of its lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ZoneName {
    /// Place of its namespace in the store.
    pub set: u16,
    /// Number of the namespace.
    pub set_id: u32,
    pub zone: u32,
    pub generation: u32,
}

/// What an erase block of a zone is at.
pub(crate) struct Column {
    /// None before the zone's first write.
    pub block: Option<LogicalBlock>,
    /// What stands in the marks of the block: which of the column's blocks it is, and how many rows were copied to it.
    pub edition: u8,
    pub copied_rows: u32,
    /// Rows on flash, and rows that are programmed or were handed over for it.
    pub done_rows: u32,
    pub begun_rows: u32,
    /// It takes appends: its block was opened since the store was, and none failed.
    pub is_open: bool,
    pub relocation: Option<Relocation>,
    /// Its block has rows behind those that count: it goes, durably, before anything more of the zone is programmed.
    pub is_stale: bool,
}

/// A block whose content goes to another one on its unit, because nothing can be programmed behind it.
pub(crate) struct Relocation {
    pub to: LogicalBlock,
    /// Rows that are there.
    pub rows: u32,
    pub is_under_way: bool,
    /// Where the row that is being copied is staged, because what is programmed behind it could destroy it.
    pub slot: Option<SlotIndex>,
}

/// Where a program unit that is staged is on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// It takes content.
    Filling,
    /// All of it is there, and it is to be programmed.
    Ready,
    Programming,
    /// It is on flash, and a power cut could still destroy it there.
    Programmed,
}

/// A program unit that is staged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StagedUnit {
    pub unit: UnitNumber,
    pub slot: SlotIndex,
    pub stage: Stage,
    /// Where on flash the same content lies, on the same unit of the vSSD.
    pub origin: Option<Origin>,
}

/// A program unit of a zone in one of its lives, in one of the blocks of its column. It may be gone by now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    pub zone: u32,
    pub generation: u32,
    pub column: u16,
    pub edition: u8,
    pub row: u32,
}

/// What waits for a zone's slots, in order.
pub(crate) enum Task {
    Write {
        token: ZoneToken,
        /// Of the namespace.
        lba: u64,
        /// In the zone.
        first_iu: u32,
        done_ius: u32,
        data: ZoneData,
        /// Program units of the zone that the write fills, of which the content lies elsewhere on their unit of the vSSD.
        origins: Vec<(UnitNumber, Origin)>,
        /// What is committed before.
        commits_to: Option<u32>,
    },
    Commit {
        token: ZoneToken,
        to_iu: u32,
    },
}

impl Task {
    /// The command that it is of.
    pub fn token(&self) -> ZoneToken {
        match self {
            Task::Write { token, .. } | Task::Commit { token, .. } => *token,
        }
    }
}

/// See the module.
pub(crate) struct Zone {
    pub name: ZoneName,
    pub columns: Box<[Column]>,
    /// By number of the unit.
    pub staged: Vec<StagedUnit>,
    pub tasks: VecDeque<Task>,
    pub claim: Claim,
    /// IUs that were taken over into staging, from the first on; of a random write area those that are committed.
    pub taken_ius: u32,
    /// Operations under way for it at the space.
    pub under_way: u32,
    /// It has a random write area, or had one.
    pub is_random: bool,
    /// It was finished by this change of the journal: when that is durable, what is staged is filled up with zeros and goes to flash. Before,
    /// a cut would make data of the zeros.
    pub finishes: Option<u64>,
    /// Nothing more will be written to it in this life.
    pub is_complete: bool,
    /// The medium cannot write to it any more.
    pub is_worn: bool,
    /// Nothing is programmed before this sweep of the store has ended: stale blocks could come back.
    pub waits_for_sweep: u64,
    /// Until this sweep has ended a cut can bring back blocks that its own took the place of.
    pub older_until: u64,
    /// What the journal says of it belongs to this life.
    pub is_noted: bool,
    /// The change of the journal that said so.
    pub noted_by: u64,
    /// It is in the list of those that have something to do.
    pub is_listed: bool,
    /// Without protected memory: writes that are answered when they are on flash, with the end of each.
    pub unanswered: VecDeque<(u32, ZoneToken, u64)>,
}

impl Zone {
    /// One without an erase block.
    pub fn new(name: ZoneName, shape: &ZoneShape, claim: Claim) -> Zone {
        let column = || Column {
            block: None,
            edition: 0,
            copied_rows: 0,
            done_rows: 0,
            begun_rows: 0,
            is_open: false,
            relocation: None,
            is_stale: false,
        };
        Zone {
            name,
            columns: (0..shape.width).map(|_| column()).collect(),
            staged: Vec::new(),
            tasks: VecDeque::new(),
            claim,
            taken_ius: 0,
            under_way: 0,
            is_random: false,
            finishes: None,
            is_complete: false,
            is_worn: false,
            waits_for_sweep: 0,
            older_until: 0,
            is_noted: false,
            noted_by: 0,
            is_listed: false,
            unanswered: VecDeque::new(),
        }
    }

    /// The staged unit of a number.
    #[inline]
    pub fn staged(&self, unit: UnitNumber) -> Option<&StagedUnit> {
        let at = self.staged.binary_search_by_key(&unit, |staged| staged.unit).ok()?;
        Some(&self.staged[at])
    }

    /// As [`Zone::staged`], to be changed.
    pub fn staged_mut(&mut self, unit: UnitNumber) -> Option<&mut StagedUnit> {
        let at = self.staged.binary_search_by_key(&unit, |staged| staged.unit).ok()?;
        Some(&mut self.staged[at])
    }

    /// A unit is staged.
    pub fn stage(&mut self, staged: StagedUnit) {
        let at = self.staged.partition_point(|other| other.unit < staged.unit);
        assert!(
            self.staged.get(at).is_none_or(|other| other.unit != staged.unit),
            "I-Z8: a unit is staged once"
        );
        self.staged.insert(at, staged);
    }

    /// Gives back slots of units that no power cut can destroy any more.
    pub fn release_safe(&mut self, shape: &ZoneShape, unsafe_rows: u32, staging: &mut Staging) {
        let columns = &self.columns;
        let is_settled = self.is_complete
            && columns.iter().all(|column| column.done_rows == column.begun_rows)
            && self.staged.iter().all(|staged| staged.stage == Stage::Programmed);
        let claim = &mut self.claim;
        self.staged.retain(|staged| {
            let (column, row) = shape.place(staged.unit);
            let column = &columns[column];
            // What is full is as safe as what nothing is programmed behind.
            let is_full = column.done_rows == shape.rows;
            let is_safe = staged.stage == Stage::Programmed
                && column.relocation.is_none()
                && (is_settled || is_full || row + unsafe_rows < column.done_rows);
            if is_safe {
                staging.release(claim, staged.slot);
            }
            !is_safe
        });
        if is_settled {
            staging.end(claim);
        }
    }

    /// Whether a cut leaves something of it: its first unit is on flash, or in protected staging.
    pub fn is_there(&self, shape: &ZoneShape, staging: &Staging) -> bool {
        self.programmed_units(shape) > 0 || (staging.is_protected() && self.staged(0).is_some())
    }

    /// Program units from the first on that are on flash without a gap.
    pub fn programmed_units(&self, shape: &ZoneShape) -> u32 {
        let ends =
            (0..).zip(&self.columns).map(|(column, of)| of.done_rows * u32::from(shape.width) + column);
        ends.min().unwrap_or(0)
    }

    /// The block that still holds what an origin names, if one does. `others` are the zones of the namespace beside this one.
    pub fn block_of(&self, origin: &Origin, others: &[Option<Box<Zone>>]) -> Option<LogicalBlock> {
        let zone =
            if origin.zone == self.name.zone { self } else { others[origin.zone as usize].as_deref()? };
        let column = &zone.columns[usize::from(origin.column)];
        let is_there = zone.name.generation == origin.generation
            && (column.edition == origin.edition
                || mutant!("zoned: a copy takes another block of its source's column"))
            && origin.row < column.done_rows;
        column.block.filter(|_| is_there || mutant!("zoned: a copy takes what lies at its source by now"))
    }

    /// What stands in the marks of a column's block.
    pub fn mark_of(&self, column: usize) -> Mark {
        let Column { edition, copied_rows, .. } = self.columns[column];
        self.mark(edition, copied_rows)
    }

    /// What stands in the marks of a block.
    pub fn mark(&self, edition: u8, copied_rows: u32) -> Mark {
        let ZoneName { set_id, zone, generation, .. } = self.name;
        Mark { set: set_id, zone, generation, edition, copied_rows: copied_rows as u16 }
    }

    /// Takes out who waits for an answer.
    pub fn take_tokens(&mut self) -> impl Iterator<Item = ZoneToken> {
        let unanswered = self.unanswered.drain(..).map(|(_, token, _)| token);
        unanswered.chain(self.tasks.drain(..).map(|task| task.token()))
    }

    /// Whether nothing of it is under way.
    pub fn is_still(&self) -> bool {
        self.under_way == 0
    }
}
