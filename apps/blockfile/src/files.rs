//! The door: what applications do with files, each call with the store's lock but for reads (`read.rs`); paths are a layer above
//! (`paths.rs`).

use crate::FileError;
use crate::inode::{Attributes, InodeKind, Metadata, Name};
use crate::medium::Medium;
use crate::state::{Made, Replace, State, Statistics};
use crate::types::{FileId, HINTS};
use crate::view::Views;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// One entry of a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name.
    pub name: Name,
    /// What it stands for.
    pub file: FileId,
    /// What that is.
    pub kind: InodeKind,
}

/// Files on the erase blocks of a vSSD.
pub struct Files {
    state: Mutex<State>,
    pub(crate) views: Arc<Views>,
    pub(crate) medium: Arc<dyn Medium>,
}

impl Files {
    /// Makes an empty store; frees every erase block that the vSSD holds.
    ///
    /// # Errors
    /// Of the server, or if the vSSD is too small.
    pub fn format(medium: Arc<dyn Medium>) -> Result<Files, FileError> {
        Ok(Files::new(State::format(medium)?))
    }

    /// Opens what is there, or formats a vSSD that holds nothing.
    ///
    /// # Errors
    /// As [`Files::open`].
    pub fn open_or_format(medium: Arc<dyn Medium>) -> Result<Files, FileError> {
        match Files::open(Arc::clone(&medium)) {
            Err(FileError::NotFormatted) => Files::format(medium),
            other => other,
        }
    }

    /// Opens what is there.
    ///
    /// # Errors
    /// [`FileError::NotFormatted`] if there is nothing, [`FileError::Version`], [`FileError::Damaged`], the server.
    pub fn open(medium: Arc<dyn Medium>) -> Result<Files, FileError> {
        Ok(Files::new(State::open(medium)?))
    }

    fn new(state: State) -> Files {
        let (views, medium) = (Arc::clone(&state.tree.views), Arc::clone(&state.content.blocks.medium));
        Files { state: Mutex::new(state), views, medium }
    }

    pub(crate) fn lock(&self) -> Result<MutexGuard<'_, State>, FileError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        // A thread that panicked may have left it half changed.
        state.has_failed |= self.state.is_poisoned();
        self.views.has_failed.store(state.has_failed, Ordering::Release);
        if state.has_failed { Err(FileError::Failed) } else { Ok(state) }
    }

    /// Runs something that talks to the server: after an error nothing goes on.
    pub(crate) fn try_with<T>(
        &self,
        body: impl FnOnce(&mut State) -> Result<T, FileError>,
    ) -> Result<T, FileError> {
        let mut state = self.lock()?;
        let outcome = body(&mut state);
        if matches!(outcome, Err(FileError::Block(_) | FileError::Failed | FileError::Damaged(_))) {
            state.has_failed = true;
            self.views.has_failed.store(true, Ordering::Release);
        }
        outcome
    }

    /// Another hint, for what is written from now on. A hint that is changed after the name of the file became durable is kept by
    /// the next checkpoint.
    ///
    /// # Errors
    /// [`FileError::NotFound`].
    pub fn set_hint(&self, file: FileId, hint: u8) -> Result<(), FileError> {
        self.lock()?.set_hint(file.0, hint.min(HINTS - 1))
    }

    /// Writes; the file grows where it must. In memory until [`Files::sync`], or until much has gathered.
    ///
    /// # Errors
    /// [`FileError::NoSpace`] (nothing is written then), [`FileError::NotFound`], [`FileError::NotFile`], the server.
    pub fn write(&self, file: FileId, offset: u64, bytes: &[u8]) -> Result<(), FileError> {
        self.try_with(|state| state.write(file.0, offset, bytes))
    }

    /// Cuts a file, or lets it grow with zeros.
    ///
    /// # Errors
    /// [`FileError::NotFound`], [`FileError::NotFile`], the medium.
    pub fn set_size(&self, file: FileId, bytes: u64) -> Result<(), FileError> {
        self.try_with(|state| state.set_size(file.0, bytes))
    }

    /// Hands everything written so far, to all files, to the server: from then on it survives the end of this process and of the
    /// server's. A power cut may still take the last of it; see [`Files::sync`]. Nothing is done if nothing was written.
    ///
    /// # Errors
    /// As [`Files::sync`].
    pub fn hand_over(&self) -> Result<(), FileError> {
        self.try_with(State::flush)
    }

    /// Waits until everything written so far, to all files, is durable.
    ///
    /// # Errors
    /// Of the server; the store is to be opened again then.
    pub fn sync(&self) -> Result<(), FileError> {
        self.try_with(|state| {
            state.flush()?;
            state.content.blocks.make_all_safe()
        })
    }

    /// Writes a checkpoint, so that the next attach is short, and frees what can be freed.
    ///
    /// # Errors
    /// As [`Files::sync`].
    pub fn checkpoint(&self) -> Result<(), FileError> {
        self.try_with(State::checkpoint)
    }

    /// Counters.
    ///
    /// # Errors
    /// After a failure.
    pub fn statistics(&self) -> Result<Statistics, FileError> {
        let state = self.lock()?;
        Ok(state.statistics())
    }

    /// What a name in a folder stands for.
    ///
    /// # Errors
    /// [`FileError::NotFolder`], [`FileError::NotFound`] if there is no such folder.
    pub fn lookup(&self, folder: FileId, name: &[u8]) -> Result<Option<FileId>, FileError> {
        Ok(self.lock()?.tree.entry(folder.0, name)?.map(FileId))
    }

    /// What `stat` says.
    ///
    /// # Errors
    /// [`FileError::NotFound`].
    pub fn metadata(&self, file: FileId) -> Result<Metadata, FileError> {
        self.lock()?.tree.metadata(file.0)
    }

    /// Makes something and gives it a name.
    ///
    /// # Errors
    /// [`FileError::Exists`], [`FileError::NotFolder`], [`FileError::NotFound`] for a folder that is gone,
    /// [`FileError::NoSpace`], [`FileError::Name`] for a path of a symlink of more than [`crate::tree::TARGET_MAX_BYTES`].
    pub fn make(&self, folder: FileId, name: &Name, made: Made<'_>) -> Result<Metadata, FileError> {
        self.try_with(|state| {
            let file = state.make(folder.0, name, made)?;
            state.settle()?;
            state.tree.metadata(file)
        })
    }

    /// Gives something that is no folder a name more.
    ///
    /// # Errors
    /// [`FileError::IsFolder`], [`FileError::TooManyLinks`], those of [`Files::make`].
    pub fn link(&self, file: FileId, folder: FileId, name: &Name) -> Result<Metadata, FileError> {
        self.try_with(|state| {
            state.link_and_log(file.0, folder.0, name)?;
            state.settle()?;
            state.tree.metadata(file.0)
        })
    }

    /// Takes a name away. What has no name any more, and nobody who holds it, is no more.
    ///
    /// # Errors
    /// [`FileError::NotFound`], [`FileError::IsFolder`], [`FileError::NotFolder`].
    pub fn unlink(&self, folder: FileId, name: &Name) -> Result<(), FileError> {
        self.try_with(|state| {
            let file = state.tree.entry(folder.0, name.bytes())?.ok_or(FileError::NotFound)?;
            if state.tree.inode(file)?.kind == InodeKind::Folder {
                return Err(FileError::IsFolder);
            }
            state.unlink_and_log(folder.0, name)
        })
    }

    /// Takes the name of an empty folder away.
    ///
    /// # Errors
    /// [`FileError::NotFound`], [`FileError::NotFolder`], [`FileError::NotEmpty`].
    pub fn unlink_folder(&self, folder: FileId, name: &Name) -> Result<(), FileError> {
        self.try_with(|state| {
            let file = state.tree.entry(folder.0, name.bytes())?.ok_or(FileError::NotFound)?;
            if state.tree.inode(file)?.kind != InodeKind::Folder {
                return Err(FileError::NotFolder);
            }
            state.unlink_and_log(folder.0, name)
        })
    }

    /// Renames within a folder or to another one, also folders: at any moment, and after any end, both names are as before or as
    /// after. Two names of one file stay.
    ///
    /// # Errors
    /// [`FileError::NotFound`], [`FileError::Exists`], [`FileError::Inside`], [`FileError::NotEmpty`],
    /// [`FileError::IsFolder`] and [`FileError::NotFolder`] if only one of both is a folder.
    pub fn rename_entry(
        &self,
        from: (FileId, &Name),
        to: (FileId, &Name),
        replace: Replace,
    ) -> Result<(), FileError> {
        self.try_with(|state| state.rename_and_log((from.0.0, from.1), (to.0.0, to.1), replace))
    }

    /// All that is in a folder, in order of names.
    ///
    /// # Errors
    /// [`FileError::NotFound`], [`FileError::NotFolder`].
    pub fn entries(&self, folder: FileId) -> Result<Vec<Entry>, FileError> {
        let state = self.lock()?;
        let entries = &state.tree.folder(folder.0)?.entries;
        let entry = |(name, file): (&Name, &u64)| Entry {
            name: name.clone(),
            file: FileId(*file),
            kind: state.tree.inodes[file].kind,
        };
        Ok(entries.iter().map(entry).collect())
    }

    /// The folder that a folder is in; of [`crate::inode::ROOT`] itself.
    ///
    /// # Errors
    /// [`FileError::NotFound`], [`FileError::NotFolder`].
    pub fn parent(&self, folder: FileId) -> Result<FileId, FileError> {
        Ok(FileId(self.lock()?.tree.folder(folder.0)?.parent))
    }

    /// The path of a symlink; empty for anything else.
    ///
    /// # Errors
    /// [`FileError::NotFound`].
    pub fn target(&self, file: FileId) -> Result<Vec<u8>, FileError> {
        Ok(self.lock()?.tree.inode(file.0)?.target.clone())
    }

    /// Changes attributes. The time of the change is now, if `change` sets no other one.
    ///
    /// # Errors
    /// [`FileError::NotFound`].
    pub fn set_attributes(
        &self,
        file: FileId,
        change: impl FnOnce(&mut Attributes),
    ) -> Result<Metadata, FileError> {
        self.try_with(|state| {
            state.set_attributes(file.0, change)?;
            state.tree.metadata(file.0)
        })
    }

    /// Keeps something also without a name, until as many [`Files::release`].
    ///
    /// # Errors
    /// [`FileError::NotFound`].
    pub fn hold(&self, file: FileId) -> Result<(), FileError> {
        self.lock()?.tree.inode_mut(file.0)?.holders += 1;
        Ok(())
    }

    /// Ends so many [`Files::hold`]s, or all if there were fewer: the last one of what has no name ends that.
    ///
    /// # Errors
    /// [`FileError::NotFound`].
    pub fn release(&self, file: FileId, count: u64) -> Result<(), FileError> {
        self.lock()?.release(file.0, count)
    }
}
