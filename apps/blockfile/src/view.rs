//! Views: what a file is made of. Each has a lock of its own, held only to look or to change it, never while the device is at
//! work: readers wait for no append.

use crate::FileError;
use crate::map::{Map, Place};
use crate::types::{IU, Page};
use diecut_blockspace::LogicalBlock;
use diecut_units::IU_SIZE_BYTES;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// What a file holds.
#[derive(Debug, Default)]
pub(crate) struct View {
    pub bytes: u64,
    pub map: Map,
    /// In the map.
    pub mapped_ius: u64,
    pub dirty: BTreeMap<u64, Page>,
    /// On their way to flash; the map does not know where yet.
    pub leaving: BTreeMap<u64, Page>,
    /// Removed.
    pub is_gone: bool,
}

/// What readers and the one that writes share.
#[derive(Debug, Default)]
pub(crate) struct Views {
    files: RwLock<BTreeMap<u64, SharedView>>,
    /// Blocks that are being read, and by how many; they are not freed meanwhile.
    pinned: Mutex<BTreeMap<LogicalBlock, u32>>,
    pub has_failed: AtomicBool,
}

/// A view with its lock. A thread that panicked with it leaves the store failed.
#[derive(Clone, Debug, Default)]
pub(crate) struct SharedView(Arc<RwLock<View>>);

impl SharedView {
    pub fn look(&self) -> RwLockReadGuard<'_, View> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }
    pub fn change(&self) -> RwLockWriteGuard<'_, View> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Views {
    pub fn add(&self, file: u64, view: SharedView) {
        self.files.write().unwrap_or_else(PoisonError::into_inner).insert(file, view);
    }
    pub fn remove(&self, file: u64) {
        self.files.write().unwrap_or_else(PoisonError::into_inner).remove(&file);
    }
    pub fn get(&self, file: u64) -> Result<SharedView, FileError> {
        if self.has_failed.load(Ordering::Acquire) {
            return Err(FileError::Failed);
        }
        let files = self.files.read().unwrap_or_else(PoisonError::into_inner);
        files.get(&file).cloned().ok_or(FileError::NotFound)
    }
    /// For blocks that no map has any more: whoever looks now does not find them.
    pub fn is_pinned(&self, block: LogicalBlock) -> bool {
        self.pinned.lock().unwrap_or_else(PoisonError::into_inner).contains_key(&block)
    }
}

/// Blocks that stay until this goes.
pub(crate) struct Pins<'a> {
    views: &'a Views,
    blocks: Vec<LogicalBlock>,
}

impl<'a> Pins<'a> {
    /// With the view's lock held, so that a block cannot leave the map and be freed between.
    pub fn of(views: &'a Views, parts: &[Part]) -> Pins<'a> {
        let blocks: Vec<_> = parts.iter().map(|part| part.place.block).collect();
        let mut pinned = views.pinned.lock().unwrap_or_else(PoisonError::into_inner);
        blocks.iter().for_each(|block| *pinned.entry(*block).or_insert(0) += 1);
        Pins { views, blocks }
    }
}

impl Drop for Pins<'_> {
    fn drop(&mut self) {
        let mut pinned = self.views.pinned.lock().unwrap_or_else(PoisonError::into_inner);
        for block in &self.blocks {
            let readers = pinned.get_mut(block).expect("counted when it was pinned");
            *readers -= 1;
            if *readers == 0 {
                pinned.remove(block);
            }
        }
    }
}

/// Bytes that are together on flash.
pub(crate) struct Part {
    pub place: Place,
    /// Bytes of the first IU that are not wanted.
    pub skip: usize,
    /// Where they go.
    pub first: usize,
    pub len: usize,
}

impl View {
    /// Copies what is in memory, fills in zeros, and says what is to be read.
    pub fn plan(&self, offset: u64, bytes: &mut [u8]) -> Vec<Part> {
        let mut parts: Vec<Part> = Vec::new();
        let mut done = 0;
        while done < bytes.len() {
            let at = offset + done as u64;
            let (iu, skip) = (at / IU, (at % IU) as usize);
            let left = bytes.len() - done;
            let one = left.min(IU_SIZE_BYTES - skip);
            if let Some(page) = self.dirty.get(&iu).or_else(|| self.leaving.get(&iu)) {
                bytes[done..done + one].copy_from_slice(&page[skip..skip + one]);
                done += one;
            } else if let Ok(extent) = self.map.find(iu) {
                // Up to the next IU that is in memory.
                let wanted = (skip + left).div_ceil(IU_SIZE_BYTES) as u64;
                let end = iu + wanted.min(extent.count.into());
                let next =
                    |pages: &BTreeMap<u64, Page>| pages.range(iu..end).next().map_or(end, |(iu, _)| *iu);
                let ius = next(&self.dirty).min(next(&self.leaving)) - iu;
                let len = left.min(ius as usize * IU_SIZE_BYTES - skip);
                parts.push(Part { place: extent.place, skip, first: done, len });
                done += len;
            } else {
                bytes[done..done + one].fill(0);
                done += one;
            }
        }
        parts
    }
}
