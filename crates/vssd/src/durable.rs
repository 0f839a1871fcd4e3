//! Where block states are written down: in the table, and where there is one in the journal on flash.

use crate::SpaceCompletion;
use crate::SpaceError;
use crate::journal::Journal;
use crate::pool::Pool;
use crate::table::{BlockEntry, BlockState, UnitEntry, VssdEntry, encode_block, encode_vssd};
use diecut_media::{Media, MediaError};
use diecut_units::Time;

impl Pool {
    /// Writes a block's state down. What it says is durable at once.
    pub(crate) fn record(&mut self, number: u32, state: BlockState) {
        let Some(table) = &mut self.table else { return };
        let block = &self.blocks[number as usize];
        let entry = BlockEntry {
            state,
            lost_pages: block.lost_pages,
            owner: block.owner,
            logical: block.logical,
            purpose: block.purpose,
            erase_count: block.erase_count,
            sequence: block.sequence,
        };
        table.set_block(number, &entry);
        if let Some(journal) = &mut self.journal {
            journal.push_block(number, &encode_block(&entry));
        }
    }

    /// Writes a vSSD down as it is now.
    pub(crate) fn record_vssd(&mut self, at: usize) {
        let vssd = &self.vssds[at];
        let units = vssd.units.iter();
        let entry = VssdEntry {
            id: vssd.id,
            placed: true,
            isolation: vssd.isolation,
            read_only: vssd.read_only,
            units: units
                .map(|unit| UnitEntry {
                    place: unit.place,
                    moves: unit.target.is_some(),
                    lost_blocks: unit.lost_blocks,
                })
                .collect(),
        };
        self.write_vssd(&entry);
    }

    pub(crate) fn write_vssd(&mut self, entry: &VssdEntry) {
        let Some(table) = &mut self.table else { return };
        table.set_vssd(entry);
        if let Some(journal) = &mut self.journal {
            journal.push_vssd(&encode_vssd(entry));
        }
    }

    /// Lets the journal write if somebody waits for it.
    pub(crate) fn kick_journal<M: Media + ?Sized>(&mut self, media: &mut M, now: Time) {
        if let (Some(journal), Some(table)) = (&mut self.journal, &self.table) {
            journal.kick(table.bytes(), media, now);
        }
        self.count_journal_erases();
    }

    pub(crate) fn journal_completed<M: Media + ?Sized>(
        &mut self,
        result: Result<(), MediaError>,
        now: Time,
        media: &mut M,
    ) {
        let (Some(journal), Some(table)) = (&mut self.journal, &self.table) else { return };
        if result == Err(MediaError::PowerLost) {
            return;
        }
        let more = journal.completed(result.is_ok(), table.bytes(), media, now);
        if journal.failed {
            return self.journal_failed(now, media);
        }
        if more {
            while let Some(&(change, id, token)) = journal.waiting_syncs.front()
                && journal.is_durable_at(change)
            {
                journal.waiting_syncs.pop_front();
                self.ready
                    .push((id, SpaceCompletion { token, result: Ok(()), destination: None, oob: None }));
            }
            while let Some(at) = self.journal.as_mut().and_then(Journal::take_erase) {
                self.enqueue_stored(at, media, now);
            }
            self.discard_freed(media, now);
        }
        self.kick_journal(media, now);
    }

    /// No block takes the journal any more: what is on flash still reads, nothing new is promised.
    fn journal_failed<M: Media + ?Sized>(&mut self, now: Time, media: &mut M) {
        for vssd in &mut self.vssds {
            vssd.read_only = true;
        }
        let Some(journal) = &mut self.journal else { return };
        let erases: Vec<u32> = journal.waiting_erases.drain(..).map(|(_, at)| at).collect();
        for (_, id, token) in journal.waiting_syncs.drain(..) {
            let result = Err(SpaceError::ReadOnly);
            self.ready.push((id, SpaceCompletion { token, result, destination: None, oob: None }));
        }
        for at in erases {
            let op = self.ops.remove(at);
            if op.kind.is_of_copy() {
                self.migration.erase_failed(op.token);
                continue;
            }
            let block = &mut self.blocks[op.block as usize];
            block.in_flight -= 1;
            block.failed = true;
            self.release_waiting(op.block, media, now);
            self.settle(op.block);
        }
    }
}
