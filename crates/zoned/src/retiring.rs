//! Zones that end: after a reset, or with their namespace. A zone is there as long as its first program unit is, so that unit goes first, and
//! the rest when that is durable; no cut leaves a part of it.

use crate::lent::Lent;
use crate::shape::ZoneShape;
use crate::token::Kind;
use crate::zone::Zone;
use diecut_units::mutant;

/// How far a zone is that ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// What is under way for it comes back first.
    Drains,
    /// Blocks that its own took the place of go durably: one that came back would count.
    Clears,
    /// The end of its first unit becomes durable.
    Syncs,
    Over,
}

/// See the module.
pub(crate) struct Retiring {
    pub zone: Box<Zone>,
    pub shape: ZoneShape,
    /// The command that waits for its end.
    pub operation: u32,
    stage: Stage,
}

impl Retiring {
    pub fn new(zone: Box<Zone>, shape: ZoneShape, operation: u32) -> Retiring {
        Retiring { zone, shape, operation, stage: Stage::Drains }
    }

    /// Whether nothing of it is left.
    pub fn is_over(&self) -> bool {
        self.stage == Stage::Over
    }

    /// Goes on as far as it can; `place` is where it is found again.
    pub fn go_on(&mut self, place: u32, lent: &mut Lent<'_>) {
        if self.stage != Stage::Drains || !self.zone.is_still() {
            return;
        }
        // A copy that is not complete would count where its block is gone.
        let is_copied = self.zone.columns[0].relocation.is_some();
        let is_clear = lent.under_way.sweeps_ended >= self.zone.older_until && !is_copied;
        if is_clear || mutant!("zoned: older blocks of a zone that ends stay") {
            return self.free_first(place, lent);
        }
        self.stage = Stage::Clears;
        self.zone.drop_relocation(0, lent);
        lent.space.sync(Kind::Sync.token(place));
    }

    fn free_first(&mut self, place: u32, lent: &mut Lent<'_>) {
        let zone = &mut *self.zone;
        if let Some(first) = zone.staged(0).copied() {
            lent.staging.release(&mut zone.claim, first.slot);
            zone.staged.remove(0);
        }
        if mutant!("zoned: a zone ends from its end") {
            return self.end(lent);
        }
        // A first program that failed or was torn leaves something, too.
        let first = &zone.columns[0];
        let has_something = first.done_rows > 0 || !first.is_open;
        match first.block.filter(|_| has_something) {
            Some(block) => {
                lent.free(block);
                zone.columns[0].block = None;
                self.stage = Stage::Syncs;
                lent.space.sync(Kind::Sync.token(place));
            }
            // It was never on flash: with its first unit out of staging it is gone.
            None => self.end(lent),
        }
    }

    /// The end of its first unit is durable, or will never be.
    pub fn synced(&mut self, place: u32, lent: &mut Lent<'_>) {
        match self.stage {
            Stage::Clears => self.free_first(place, lent),
            Stage::Syncs => self.end(lent),
            stage => unreachable!("I-Z12: a zone that ends waits for a sync, not in {stage:?}"),
        }
    }

    fn end(&mut self, lent: &mut Lent<'_>) {
        let zone = &mut *self.zone;
        for staged in std::mem::take(&mut zone.staged) {
            lent.staging.release(&mut zone.claim, staged.slot);
        }
        lent.staging.end(&mut zone.claim);
        for column in 0..zone.columns.len() {
            zone.drop_relocation(column, lent);
        }
        for column in &mut zone.columns {
            if let Some(block) = column.block.take() {
                lent.free(block);
            }
        }
        self.stage = Stage::Over;
    }
}
