//! Open folders: what was in one when it was opened or rewound, so that a walk sees each name once while others come and go.

use diecut_blockfile::{Entry, FileError, FileId, Files, InodeKind, Name};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// One entry as it is told: `.` and `..` have no [`Name`].
pub struct Listed {
    pub name: Vec<u8>,
    pub file: FileId,
    pub kind: InodeKind,
    pub is_dots: bool,
}

#[derive(Default)]
pub struct Folders {
    next: AtomicU64,
    open: Mutex<BTreeMap<u64, Arc<Vec<Listed>>>>,
}

impl Folders {
    /// Returns the handle.
    pub fn open(&self, files: &Files, folder: FileId) -> Result<u64, FileError> {
        let handle = self.next.fetch_add(1, Ordering::Relaxed);
        self.rewind(files, folder, handle)?;
        Ok(handle)
    }

    pub fn close(&self, handle: u64) {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).remove(&handle);
    }

    /// What a handle shows, from the beginning anew.
    pub fn list(
        &self,
        files: &Files,
        folder: FileId,
        handle: u64,
        from: u64,
    ) -> Result<Arc<Vec<Listed>>, FileError> {
        if from > 0
            && let Some(listed) = self.open.lock().unwrap_or_else(PoisonError::into_inner).get(&handle)
        {
            return Ok(Arc::clone(listed));
        }
        self.rewind(files, folder, handle)
    }

    fn rewind(&self, files: &Files, folder: FileId, handle: u64) -> Result<Arc<Vec<Listed>>, FileError> {
        let dots =
            |name: &[u8], file| Listed { name: name.to_vec(), file, kind: InodeKind::Folder, is_dots: true };
        let mut listed = vec![dots(b".", folder), dots(b"..", files.parent(folder)?)];
        let named = |Entry { name, file, kind }: Entry| Listed {
            name: Name::bytes(&name).to_vec(),
            file,
            kind,
            is_dots: false,
        };
        listed.extend(files.entries(folder)?.into_iter().map(named));
        let listed = Arc::new(listed);
        self.open.lock().unwrap_or_else(PoisonError::into_inner).insert(handle, Arc::clone(&listed));
        Ok(listed)
    }
}
