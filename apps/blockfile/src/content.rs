//! Content of files: pages that wait in memory, extents on erase blocks, and how much of both there is.

use crate::FileError;
use crate::blocks::Blocks;
use crate::map::{Extent, Place};
use crate::types::{IU, Page};
use crate::view::{SharedView, View};
use diecut_blockspace::LogicalBlock;
use diecut_units::IU_SIZE_BYTES;
use std::collections::BTreeSet;

/// What all files hold together; where a file's own part of it is, its view says.
pub(crate) struct Content {
    pub blocks: Blocks,
    /// Extents of all files.
    pub extents: usize,
    /// IUs that extents name.
    pub live_ius: u64,
    /// Files with something that waits.
    pub dirty_files: BTreeSet<u64>,
    /// IUs that wait in memory.
    pub dirty_ius: u64,
    /// Of those, IUs that are not on flash yet.
    pub fresh_ius: u64,
}

impl Content {
    pub fn new(blocks: Blocks) -> Content {
        Content { blocks, extents: 0, live_ius: 0, dirty_files: BTreeSet::new(), dirty_ius: 0, fresh_ius: 0 }
    }

    /// How many of the IUs of a file are nowhere yet.
    pub fn missing(view: &SharedView, first: u64, end: u64) -> u64 {
        let known = view.look();
        let (mut iu, mut missing) = (first, 0);
        while iu < end {
            match known.map.find(iu) {
                Ok(extent) => iu += u64::from(extent.count),
                Err(gap) => {
                    let gap_end = end.min(iu.saturating_add(gap));
                    missing += gap_end - iu - known.dirty.range(iu..gap_end).count() as u64;
                    iu = gap_end;
                }
            }
        }
        missing
    }

    /// Forgets what is from an IU on.
    pub fn cut(&mut self, view: &SharedView, first: u64) {
        let mut known = view.change();
        let dirty = known.dirty.split_off(&first);
        self.dirty_ius -= dirty.len() as u64;
        self.fresh_ius -= dirty.keys().filter(|iu| known.map.find(**iu).is_err()).count() as u64;
        let (blocks, live) = (&mut self.blocks, &mut self.live_ius);
        self.extents -= known.map.len();
        let View { map, mapped_ius, .. } = &mut *known;
        map.cut(first, u64::MAX, &mut |block, ius| {
            blocks.lose(block, ius);
            *live -= u64::from(ius);
            *mapped_ius -= u64::from(ius);
        });
        self.extents += known.map.len();
    }

    /// The `count` IUs from `first` on are at `place`.
    pub fn place(&mut self, view: &SharedView, first: u64, count: u32, place: Place) {
        let mut known = view.change();
        let (blocks, live) = (&mut self.blocks, &mut self.live_ius);
        blocks.gain(place.block, count);
        *live += u64::from(count);
        self.extents -= known.map.len();
        known.mapped_ius += u64::from(count);
        let View { map, mapped_ius, .. } = &mut *known;
        map.insert(first, Extent { count, place }, &mut |block: LogicalBlock, ius| {
            blocks.lose(block, ius);
            *live -= u64::from(ius);
            *mapped_ius -= u64::from(ius);
        });
        self.extents += known.map.len();
    }

    /// What the last IU has beyond the end must read as zeros if the file grows again.
    pub fn clear_beyond(&mut self, file: u64, view: &SharedView, bytes: u64) -> Result<(), FileError> {
        let within = (bytes % IU) as usize;
        if within != 0 {
            let mut page = self.page(view, bytes / IU)?;
            page[within..].fill(0);
            self.put_page(file, view, bytes / IU, page);
        }
        Ok(())
    }

    /// Content of an IU.
    fn page(&self, view: &SharedView, iu: u64) -> Result<Page, FileError> {
        let known = view.look();
        if let Some(page) = known.dirty.get(&iu) {
            return Ok(page.clone());
        }
        let mut page = Box::new([0; IU_SIZE_BYTES]);
        if let Ok(extent) = known.map.find(iu) {
            self.blocks.read(extent.place, &mut page[..])?;
        }
        Ok(page)
    }

    fn put_page(&mut self, file: u64, view: &SharedView, iu: u64, page: Page) {
        let mut known = view.change();
        if known.dirty.insert(iu, page).is_none() {
            self.dirty_ius += 1;
            self.fresh_ius += u64::from(known.map.find(iu).is_err());
        }
        assert!(self.fresh_ius <= self.dirty_ius, "I-F6: a fresh IU is one that waits");
        self.dirty_files.insert(file);
    }

    /// Writes into pages in memory; `logged_bytes` is the size that flash knows.
    pub fn write(
        &mut self,
        (file, view): (u64, &SharedView),
        logged_bytes: u64,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), FileError> {
        let end = offset + bytes.len() as u64;
        let mut done = 0;
        while done < bytes.len() {
            let at = offset + done as u64;
            let (iu, within) = (at / IU, (at % IU) as usize);
            let part = (bytes.len() - done).min(IU_SIZE_BYTES - within);
            let piece = &bytes[done..done + part];
            done += part;
            if let Some(page) = view.change().dirty.get_mut(&iu) {
                page[within..within + part].copy_from_slice(piece);
                continue;
            }
            let mut page =
                if part == IU_SIZE_BYTES { Box::new([0; IU_SIZE_BYTES]) } else { self.page(view, iu)? };
            page[within..within + part].copy_from_slice(piece);
            self.put_page(file, view, iu, page);
        }
        let mut known = view.change();
        known.bytes = known.bytes.max(end);
        if known.bytes != logged_bytes {
            self.dirty_files.insert(file);
        }
        Ok(())
    }
}
