//! Commands that wait for zones to end, and for the journal.

use crate::contract::{ZoneAnswer, ZoneCompletion, ZoneError, ZoneToken};
use crate::journal::Journal;
use diecut_units::Slab;

struct Operation {
    token: ZoneToken,
    zones: u32,
    change: u64,
    is_begun: bool,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Operations {
    all: Slab<Operation>,
}

impl Operations {
    /// A command begins; it is not answered before [`Operations::is_begun`].
    pub fn begin(&mut self, token: ZoneToken) -> u32 {
        self.all.insert(Operation { token, zones: 0, change: 0, is_begun: false })
    }

    fn of(&mut self, index: u32) -> &mut Operation {
        self.all.get_mut(index).expect("I-Z15: an operation that is waited for is there")
    }

    /// It waits for the end of one more zone.
    pub fn waits_for_zone(&mut self, index: u32) {
        self.of(index).zones += 1;
    }

    /// It waits for a change of the journal.
    pub fn waits_for_change(&mut self, index: u32, change: u64) {
        let operation = self.of(index);
        operation.change = operation.change.max(change);
    }

    /// A zone ended that it waited for.
    pub fn zone_ended(&mut self, index: u32) {
        let operation = self.of(index);
        assert!(operation.zones > 0, "I-Z15: a zone ends once");
        operation.zones -= 1;
    }

    /// All that it waits for is known.
    pub fn is_begun(&mut self, index: u32) {
        self.of(index).is_begun = true;
    }

    /// Answers those that wait for nothing any more.
    pub fn end_due(&mut self, journal: &Journal, completions: &mut Vec<ZoneCompletion>) {
        if self.all.is_empty() {
            return;
        }
        let is_due = |operation: &Operation| {
            let is_durable = journal.is_durable(operation.change) || journal.is_broken();
            operation.is_begun && operation.zones == 0 && is_durable
        };
        let due: Vec<u32> = self.all.iter().filter(|(_, one)| is_due(one)).map(|(index, _)| index).collect();
        for index in due {
            let Operation { token, change, .. } = self.all.remove(index);
            let result = match journal.is_durable(change) {
                true => Ok(ZoneAnswer::Done),
                false => {
                    Err(ZoneError::ReadOnly { reason: "no erase block is left for the journal of zones" })
                }
            };
            completions.push(ZoneCompletion { token, result });
        }
    }

    /// Ends all, for whoever answers them.
    pub fn take_all(&mut self) -> Vec<ZoneToken> {
        let all = std::mem::take(&mut self.all);
        all.iter().map(|(_, operation)| operation.token).collect()
    }
}
