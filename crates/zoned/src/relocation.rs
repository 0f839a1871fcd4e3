//! A block behind which nothing can be programmed any more, because a program failed there or the store was opened again, gives its content
//! to another block of its unit; then the zone goes on behind the copy. The old block counts until the copy is complete. The last rows of
//! the copy, which a power cut can destroy when more is programmed behind them, are staged as they were when they were written.

use crate::lent::{CopyStep, Lent, Pieces};
use crate::mark::{self, Place};
use crate::slot::SlotName;
use crate::staging::SlotIndex;
use crate::token::Kind;
use crate::zone::{Relocation, Stage, StagedUnit, Zone, ZoneName};
use diecut_units::{Buffer, BufferMut, Payload, checksum, mark, mutant};
use diecut_vssd::space::{BlockRun, IoClass, LogicalBlock, PayloadParts, SpaceError};

impl Zone {
    /// The content of a column goes to a new block from now on.
    pub fn begin_relocation(&mut self, column: usize, to: LogicalBlock, lent: &mut Lent<'_>) {
        mark!("zoned: a block is copied to go on behind it");
        let place = &mut self.columns[column];
        assert_eq!(
            place.begun_rows, place.done_rows,
            "I-Z10: nothing is programmed on a block that is copied"
        );
        place.relocation = Some(Relocation { to, rows: 0, is_under_way: false, slot: None });
        self.copy_next(column, lent);
    }

    /// Goes on with copies that waited for a slot; says whether one waits still.
    pub fn copy_further(&mut self, lent: &mut Lent<'_>) -> bool {
        for column in 0..self.columns.len() {
            if self.columns[column].relocation.as_ref().is_some_and(|relocation| !relocation.is_under_way) {
                self.copy_next(column, lent);
            }
        }
        let waits = |relocation: &Relocation| !relocation.is_under_way;
        self.columns.iter().any(|column| column.relocation.as_ref().is_some_and(waits))
    }

    fn copy_next(&mut self, column: usize, lent: &mut Lent<'_>) {
        let place = &mut self.columns[column];
        let relocation = place.relocation.as_mut().expect("I-Z10: a column that is copied is on its way");
        assert!(!relocation.is_under_way, "I-Z10: one row of a column is copied at a time");
        if relocation.rows == place.done_rows {
            let old = place.block.replace(relocation.to);
            (place.relocation, place.is_open) = (None, true);
            (place.edition, place.copied_rows) = (place.edition.wrapping_add(1), place.done_rows);
            let was_stale = std::mem::take(&mut place.is_stale);
            let old = old.expect("I-Z10: what is copied lies on a block");
            lent.free(old);
            self.older_until = lent.under_way.sweeps_begun + 1;
            if was_stale {
                self.waits_for_sweep = self.older_until;
            }
            return;
        }
        let row = relocation.rows;
        let unit = row * u32::from(lent.shape.width) + column as u32;
        let is_unsafe = row + lent.facts.block.unsafe_units >= place.done_rows
            && lent.facts.block.unsafe_units > 0
            && !mutant!("zoned: the end of a copy is not staged");
        let is_staged = self.staged.binary_search_by_key(&unit, |staged| staged.unit).is_ok();
        if is_unsafe && !is_staged && relocation.slot.is_none() {
            let ZoneName { set_id: set, zone, generation, .. } = self.name;
            let name = SlotName { set, zone, generation, unit, is_random: false };
            relocation.slot = lent.staging.take(&mut self.claim, name);
            if relocation.slot.is_none() {
                mark!("zoned: a copy waits for a slot");
                return;
            }
        }
        relocation.is_under_way = true;
        let step = CopyStep { name: self.name, column, row, pieces: None };
        let old = place.block.expect("I-Z10: what is copied lies on a block");
        self.under_way += 1;
        read_rows(step, old, lent);
    }

    /// A read for a copy came back. The row is programmed, or read on.
    pub fn copy_read(
        &mut self,
        mut step: CopyStep,
        result: Result<(), SpaceError>,
        data: Option<BufferMut>,
        oob: Option<BufferMut>,
        lent: &mut Lent<'_>,
    ) {
        let shape = lent.facts.block;
        let (page_ius, pages) = (shape.ius_per_page(), shape.program_unit_pages);
        let first_page = step.row * pages;
        let column = step.column;
        let old = self.columns[column].block.expect("I-Z10: what is copied lies on a block");
        let iu_bytes = lent.facts.mode.bytes_per_iu();
        match (result, data, oob, &mut step.pieces) {
            (Ok(()), Some(data), Some(oob), None) => {
                let sums = self.sums_of(column, first_page, &data, &oob, lent);
                return self.program_copy(&step, data.freeze(), &sums, lent);
            }
            (Ok(()), Some(data), Some(oob), Some(pieces)) => {
                let page = first_page + pieces.page;
                let sums = self.sums_of(column, page, &data, &oob, lent);
                pieces.content.extend_from_slice(&data);
                pieces.sums.extend(sums);
                pieces.page += 1;
            }
            (Err(_), _, _, Some(pieces)) => {
                // What the page held is lost, and a read of it says so.
                mark!("zoned: a lost page is copied");
                let zeros = vec![0; page_ius as usize * iu_bytes];
                pieces.sums.extend(zeros.chunks_exact(iu_bytes).map(|iu| !checksum(iu)));
                pieces.content.extend_from_slice(&zeros);
                pieces.page += 1;
            }
            _ => step.pieces = Some(Pieces::default()),
        }
        match step.pieces.as_ref().filter(|pieces| pieces.page == pages) {
            None => read_rows(step, old, lent),
            Some(pieces) => {
                let (content, sums) = (Buffer::copy_from(&pieces.content), pieces.sums.clone());
                self.program_copy(&step, content, &sums, lent);
            }
        }
    }

    /// Checksums of IUs as marks of the copy have them: those of IUs that are not what was written there stay wrong.
    fn sums_of(&self, column: usize, first_page: u32, data: &[u8], oob: &[u8], lent: &Lent<'_>) -> Vec<u32> {
        let shape = &lent.facts.block;
        let unit = lent.shape.unit_of(self.name.zone, column);
        let page_ius = shape.ius_per_page();
        let iu_bytes = lent.facts.mode.bytes_per_iu();
        let mut sums = Vec::with_capacity(data.len() / iu_bytes);
        let pages = data.chunks_exact(page_ius as usize * iu_bytes);
        for ((page, data), oob) in
            (first_page..).zip(pages).zip(oob.chunks_exact(shape.oob_size_bytes as usize))
        {
            let oob = &oob[shape.holder_oob_offset as usize..];
            let is_ours = mark::decode(oob, Place { unit, page }, page_ius) == Some(self.mark_of(column));
            for (iu, content) in (0..).zip(data.chunks_exact(iu_bytes)) {
                let sum = checksum(content);
                let is_good = is_ours && mark::checksum_of(oob, iu) == sum;
                sums.push(if is_good || mutant!("zoned: copies make wrong content right") {
                    sum
                } else {
                    !sum
                });
            }
        }
        sums
    }

    fn program_copy(&mut self, step: &CopyStep, content: Buffer, sums: &[u32], lent: &mut Lent<'_>) {
        let shape = lent.facts.block;
        let (page_ius, pages) = (shape.ius_per_page(), shape.program_unit_pages);
        let mut oob = lent.pool.take_zeroed(shape.program_unit_oob_size_bytes() as usize);
        let place = &self.columns[step.column];
        let unit = lent.shape.unit_of(self.name.zone, step.column);
        let mark = self.mark(place.edition.wrapping_add(1), place.done_rows);
        let of_pages = sums.chunks_exact(page_ius as usize);
        for ((page, oob), sums) in
            (step.row * pages..).zip(oob.chunks_exact_mut(shape.oob_size_bytes as usize)).zip(of_pages)
        {
            let oob = &mut oob[shape.holder_oob_offset as usize..];
            mark::encode(mark, Place { unit, page }, sums.iter().copied(), oob);
        }
        let relocation = self.columns[step.column].relocation.as_mut();
        let relocation = relocation.expect("I-Z10: a column that is copied is on its way");
        let to = relocation.to;
        if let Some(slot) = relocation.slot.take() {
            self.stage_copy(step, slot, &content, sums, lent);
        }
        let mut parts = PayloadParts::new();
        parts.push(Payload::new(lent.facts.mode, content));
        let step = CopyStep { name: step.name, column: step.column, row: step.row, pieces: None };
        let token = Kind::CopyProgram.token(lent.under_way.copies.insert(step));
        lent.space.append(token, to, parts, oob, IoClass::HostWrite);
    }

    /// A row that was read is staged, unless some of it is lost: what is staged counts as right.
    fn stage_copy(
        &mut self,
        step: &CopyStep,
        slot: SlotIndex,
        content: &[u8],
        sums: &[u32],
        lent: &mut Lent<'_>,
    ) {
        let ius = content.chunks_exact(lent.facts.mode.bytes_per_iu());
        if ius.clone().zip(sums).any(|(iu, sum)| checksum(iu) != *sum) {
            return lent.staging.release(&mut self.claim, slot);
        }
        for (iu, content) in (0..).zip(ius) {
            lent.staging.slot_mut(slot).put(iu, content);
        }
        let unit = step.row * u32::from(lent.shape.width) + step.column as u32;
        self.stage(StagedUnit { unit, slot, stage: Stage::Programmed, origin: None });
    }

    /// A program of a copy came back.
    pub fn copy_programmed(&mut self, step: &CopyStep, result: Result<(), SpaceError>, lent: &mut Lent<'_>) {
        self.under_way -= 1;
        let place = &mut self.columns[step.column];
        let relocation = place.relocation.as_mut().expect("I-Z10: a column that is copied is on its way");
        relocation.is_under_way = false;
        match result {
            Ok(()) => {
                assert_eq!(relocation.rows, step.row, "I-Z10: rows are copied in order");
                relocation.rows += 1;
                self.copy_next(step.column, lent);
            }
            Err(error) => {
                mark!("zoned: program of a copy failed");
                let to = relocation.to;
                if let Some(slot) = relocation.slot {
                    lent.staging.release(&mut self.claim, slot);
                }
                place.relocation = None;
                self.older_until = lent.under_way.sweeps_begun + 1;
                // The next program begins again on another block.
                lent.free(to);
                let unit = lent.shape.unit_of(self.name.zone, step.column).0;
                self.is_worn |= error == SpaceError::UnitOffline { unit };
            }
        }
    }

    /// The zone ends: nothing of it is copied.
    pub fn drop_relocation(&mut self, column: usize, lent: &mut Lent<'_>) {
        let Some(relocation) = self.columns[column].relocation.take() else { return };
        mark!("zoned: a zone ends while a block of it is copied");
        if let Some(slot) = relocation.slot {
            lent.staging.release(&mut self.claim, slot);
        }
        lent.free(relocation.to);
    }

    /// A copy that was under way ended after its zone had begun to end: nothing of it goes on.
    pub fn copy_ended(&mut self, step: &CopyStep, lent: &mut Lent<'_>) {
        self.under_way -= 1;
        if let Some(relocation) = &mut self.columns[step.column].relocation {
            relocation.is_under_way = false;
            if let Some(slot) = relocation.slot.take() {
                lent.staging.release(&mut self.claim, slot);
            }
        }
    }
}

/// Reads a row as a whole, or its next page.
fn read_rows(step: CopyStep, block: LogicalBlock, lent: &mut Lent<'_>) {
    let shape = lent.facts.block;
    let page_ius = shape.ius_per_page();
    let (first_iu, iu_count, pages) = match &step.pieces {
        None => (step.row * shape.program_unit_ius(), shape.program_unit_ius(), shape.program_unit_pages),
        Some(pieces) => ((step.row * shape.program_unit_pages + pieces.page) * page_ius, page_ius, 1),
    };
    let data = lent.pool.take(iu_count as usize * lent.facts.mode.bytes_per_iu());
    let oob = lent.pool.take((pages * shape.oob_size_bytes) as usize);
    let token = Kind::CopyRead.token(lent.under_way.copies.insert(step));
    lent.space.read(token, BlockRun { block, first_iu, iu_count }, data, Some(oob), IoClass::HostWrite);
}
