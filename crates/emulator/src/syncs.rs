//! Completions that wait for a sync: what a program, a copy or an erase did is answered when it survives the death of the
//! machine.

use crate::device::Device;
use crate::slot::Kind;
use diecut_media::{Command, Completion, MediaError, Operation};
use diecut_units::{EraseBlockAddress, Time, mark, mutant};
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

    fn is_kept_off(&self, device: &Device, address: EraseBlockAddress) -> bool {
        let geometry = &device.nand.geometry;
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

impl Device {
    /// A command begins, unless it is to wait.
    #[inline(never)]
    pub(crate) fn begin_admitted(&mut self, command: Command, now: Time) {
        if let Some(command) = self.admit(command) {
            self.begin(command, now);
        }
    }

    /// Whether a command may start now; else it waits, or is answered.
    #[inline(never)]
    pub(crate) fn admit(&mut self, command: Command) -> Option<Command> {
        let mut syncs = self.syncs.take().expect("only devices that are synced ask");
        let admitted = syncs.admit(self, command);
        self.syncs = Some(syncs);
        admitted
    }

    /// The answer that was just given waits for a sync.
    #[inline(never)]
    pub(crate) fn hold(&mut self, block: u64, kind: Kind) {
        let address = self.nand.address(block);
        let syncs = self.syncs.as_mut().expect("only devices that are synced hold answers");
        let is_erase = kind == Kind::Erase;
        if mutant!("emulator: completion before its sync")
            || (is_erase && mutant!("emulator: block written before its erase is synced"))
        {
            syncs.erasing.remove(&block);
            return;
        }
        let mut completion = self.done.pop().expect("just given");
        if syncs.has_failed {
            completion.result = Err(MediaError::DieOffline { block: address });
            return self.done.push(completion);
        }
        syncs.held.push(Held { completion, block, is_erase });
    }

    /// Whether a sync should begin.
    pub(crate) fn wants_more_synced(&self, syncs: &Syncs) -> bool {
        let is_wanted = !syncs.held.is_empty() || self.nand.has_discarded();
        is_wanted && !syncs.is_under_way && !syncs.has_failed
    }

    /// See [`diecut_media::Media::wants_sync`].
    pub(crate) fn begin_sync(&mut self) -> Option<u64> {
        if !self.powered || !self.syncs.as_ref().is_some_and(|syncs| self.wants_more_synced(syncs)) {
            return None;
        }
        let syncs = self.syncs.as_mut()?;
        syncs.covered.append(&mut syncs.held);
        syncs.number += 1;
        syncs.is_under_way = true;
        let number = syncs.number;
        if self.nand.begin_sync().is_err() {
            self.end_sync(number, false, self.now);
            return None;
        }
        Some(number)
    }

    /// See [`diecut_media::Media::synced`].
    pub(crate) fn end_sync(&mut self, number: u64, worked: bool, now: Time) {
        let Some(syncs) = &mut self.syncs else { return };
        if !syncs.is_under_way || syncs.number != number {
            return;
        }
        syncs.is_under_way = false;
        syncs.has_failed |= !worked;
        let deferred = std::mem::take(&mut syncs.deferred);
        if mutant!("emulator: sync covers what came after it began") {
            syncs.covered.append(&mut syncs.held);
        }
        if worked {
            for held in syncs.covered.drain(..) {
                if held.is_erase {
                    syncs.erasing.remove(&held.block);
                }
                self.done.push(held.completion);
            }
            self.nand.end_sync();
        } else {
            syncs.erasing.clear();
            let waiting: Vec<Held> = syncs.covered.drain(..).chain(syncs.held.drain(..)).collect();
            for Held { mut completion, block, .. } in waiting {
                completion.result = Err(MediaError::DieOffline { block: self.nand.address(block) });
                self.done.push(completion);
            }
        }
        for command in deferred {
            mark!("emulator: a command waited for the sync of an erase");
            diecut_media::Media::submit(self, command, now);
        }
    }
}

impl Syncs {
    fn admit(&mut self, device: &mut Device, command: Command) -> Option<Command> {
        let block = command.operation.block();
        if self.has_failed && !is_read(&command.operation) {
            let result = Err(MediaError::DieOffline { block });
            device.done.push(Completion { token: command.token, result, destination: None, oob: None });
            return None;
        }
        if blocks_of(&command).into_iter().flatten().any(|address| self.is_kept_off(device, address)) {
            self.deferred.push_back(command);
            return None;
        }
        let geometry = &device.nand.geometry;
        if matches!(command.operation, Operation::Erase { .. })
            && geometry.contains(block)
            && !self.has_failed
        {
            self.erasing.insert(geometry.erase_block_number(block));
        }
        Some(command)
    }
}
