//! Completions that wait for a sync: what a program, a copy or an erase did is answered when it survives the death of the
//! machine.

use crate::block::address_of;
use crate::command::Kind;
use diecut_media::{Command, Completion, MediaError, Operation};
use diecut_units::{EraseBlockAddress, Geometry, mutant};
use std::collections::{BTreeSet, VecDeque};

/// An answer that waits.
struct Held {
    completion: Completion,
    block: u64,
    is_erase: bool,
}

/// What waits for syncs, of a device over a store that has to be synced.
#[derive(Default)]
pub(crate) struct Syncs {
    /// Of the last sync that began.
    number: u64,
    is_under_way: bool,
    /// Answers that the sync under way covers, and those that the next one will.
    covered: Vec<Held>,
    held: Vec<Held>,
    /// Blocks whose erase was submitted and is covered by no sync yet.
    erasing: BTreeSet<u64>,
    /// Commands to such blocks, in order.
    deferred: VecDeque<Command>,
    /// A sync failed: the kernel may have dropped what was written, and nothing proves afterwards that it did not.
    has_failed: bool,
}

impl Syncs {
    pub(crate) fn is_idle(&self) -> bool {
        self.covered.is_empty() && self.held.is_empty() && self.deferred.is_empty()
    }

    /// The process or the power is gone. Numbers go on: an answer to a sync of before means nothing.
    pub(crate) fn clear(&mut self) {
        let Syncs { number, has_failed, .. } = *self;
        *self = Syncs { number, has_failed, ..Syncs::default() };
    }

    fn is_kept_off(&self, geometry: &Geometry, address: EraseBlockAddress) -> bool {
        // What is wrong with it is found when it is accepted.
        if !geometry.contains(address) {
            return false;
        }
        self.erasing.contains(&geometry.erase_block_number(address))
            || self.deferred.iter().any(|command| blocks_of(command).contains(&Some(address)))
    }
}

/// The erase blocks that a command touches.
fn blocks_of(command: &Command) -> [Option<EraseBlockAddress>; 2] {
    match &command.operation {
        Operation::Copy { source, destination, .. } => [Some(*source), Some(*destination)],
        other => [Some(other.block()), None],
    }
}

fn is_read(operation: &Operation) -> bool {
    matches!(operation, Operation::Read { .. } | Operation::ReadOob { .. })
}

impl Syncs {
    /// Whether a command may start now; else it waits, or is answered.
    #[inline(never)]
    pub(crate) fn admit(
        &mut self,
        geometry: &Geometry,
        done: &mut Vec<Completion>,
        command: Command,
    ) -> Option<Command> {
        let block = command.operation.block();
        if self.has_failed && !is_read(&command.operation) {
            let result = Err(MediaError::DieOffline { block });
            done.push(Completion::plain(command.token, result));
            return None;
        }
        if blocks_of(&command).into_iter().flatten().any(|address| self.is_kept_off(geometry, address)) {
            self.deferred.push_back(command);
            return None;
        }
        if matches!(command.operation, Operation::Erase { .. })
            && geometry.contains(block)
            && !self.has_failed
        {
            self.erasing.insert(geometry.erase_block_number(block));
        }
        Some(command)
    }

    /// The answer that was given last waits for a sync.
    pub(crate) fn hold(
        &mut self,
        (block, address): (u64, EraseBlockAddress),
        kind: Kind,
        done: &mut Vec<Completion>,
    ) {
        let is_erase = kind == Kind::Erase;
        if mutant!("emulator: completion before its sync")
            || (is_erase && mutant!("emulator: block written before its erase is synced"))
        {
            return self.erasing.retain(|erasing| *erasing != block);
        }
        let mut completion = done.pop().expect("just given");
        if self.has_failed {
            completion.result = Err(MediaError::DieOffline { block: address });
            return done.push(completion);
        }
        self.held.push(Held { completion, block, is_erase });
    }

    /// Whether a sync should begin; `has_discarded`: blocks wait for one to give back their room.
    pub(crate) fn wants_sync(&self, has_discarded: bool) -> bool {
        let is_wanted = !self.held.is_empty() || has_discarded;
        is_wanted && !self.is_under_way && !self.has_failed
    }

    /// A sync begins, and covers what waits; gives its number.
    pub(crate) fn begin(&mut self) -> u64 {
        assert!(!self.is_under_way && self.covered.is_empty(), "I-E5: one sync at a time covers answers");
        self.covered.append(&mut self.held);
        self.number += 1;
        self.is_under_way = true;
        self.number
    }

    /// A sync ended: answers that it covers are given. Gives the commands that waited for it; `None` if it is not the one under way.
    pub(crate) fn end(
        &mut self,
        number: u64,
        worked: bool,
        geometry: &Geometry,
        done: &mut Vec<Completion>,
    ) -> Option<VecDeque<Command>> {
        if !self.is_under_way || self.number != number {
            return None;
        }
        self.is_under_way = false;
        self.has_failed |= !worked;
        let deferred = std::mem::take(&mut self.deferred);
        if mutant!("emulator: sync covers what came after it began") {
            self.covered.append(&mut self.held);
        }
        if worked {
            for held in self.covered.drain(..) {
                if held.is_erase {
                    self.erasing.remove(&held.block);
                }
                done.push(held.completion);
            }
        } else {
            self.erasing.clear();
            for Held { mut completion, block, .. } in self.covered.drain(..).chain(self.held.drain(..)) {
                completion.result = Err(MediaError::DieOffline { block: address_of(geometry, block) });
                done.push(completion);
            }
        }
        Some(deferred)
    }
}
