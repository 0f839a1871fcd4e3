//! Paths, for applications that need no inodes: parts divided by `/`, from [`ROOT`] on, whether they begin with one or not. No
//! symlink is followed.

use crate::FileError;
use crate::files::Files;
use crate::inode::{Attributes, InodeKind, Name, ROOT};
use crate::state::{Made, Replace, State};
use crate::types::FileId;

/// One entry of a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Child {
    /// Its name within the folder.
    pub name: String,
    /// Whether it is a folder itself.
    pub is_folder: bool,
}

fn parts(path: &str) -> Vec<&str> {
    path.split('/').filter(|part| !part.is_empty()).collect()
}

/// What is at a path.
fn at(state: &State, path: &str) -> Result<Option<u64>, FileError> {
    let mut file = ROOT.0;
    for part in parts(path) {
        match state.tree.entry(file, part.as_bytes()) {
            Ok(Some(next)) => file = next,
            Ok(None) | Err(FileError::NotFolder) => return Ok(None),
            Err(error) => return Err(error),
        }
    }
    Ok(Some(file))
}

fn made(kind: InodeKind, hint: u8) -> Made<'static> {
    let mode = if kind == InodeKind::Folder { 0o755 } else { 0o644 };
    Made { kind, hint, attributes: Attributes::new(mode, 0, 0), target: &[] }
}

/// The folder of a path, and the name in it.
fn place(state: &State, path: &str) -> Result<(u64, Name), FileError> {
    let path = path.trim_end_matches('/');
    let (folder, last) = path.rsplit_once('/').unwrap_or(("", path));
    Ok((at(state, folder)?.ok_or(FileError::NotFound)?, Name::new(last.as_bytes())?))
}

/// The same, and folders that are missing are made.
fn place_made(state: &mut State, path: &str) -> Result<(u64, Name), FileError> {
    let mut names = Vec::new();
    for part in parts(path) {
        names.push(Name::new(part.as_bytes())?);
    }
    let last = names.pop().ok_or(FileError::Name)?;
    let mut folder = ROOT.0;
    for name in names {
        folder = match state.tree.entry(folder, name.bytes())? {
            Some(known) => known,
            None => state.make(folder, &name, made(InodeKind::Folder, 0))?,
        };
    }
    state.tree.folder(folder)?;
    Ok((folder, last))
}

impl Files {
    /// Makes an empty file, and the folders of its path that are missing. `hint` below [`HINTS`](crate::HINTS): files of one hint share
    /// erase blocks, so those that live about as long should.
    ///
    /// # Errors
    /// [`FileError::Exists`], [`FileError::Name`], [`FileError::NotFolder`], [`FileError::NoSpace`].
    pub fn create(&self, path: &str, hint: u8) -> Result<FileId, FileError> {
        self.try_with(|state| {
            let (folder, name) = place_made(state, path)?;
            let file = state.make(folder, &name, made(InodeKind::File, hint))?;
            state.settle()?;
            Ok(FileId(file))
        })
    }

    /// What is at a path, if it is no folder.
    ///
    /// # Errors
    /// After a failure.
    pub fn find(&self, path: &str) -> Result<Option<FileId>, FileError> {
        let state = self.lock()?;
        let found = at(&state, path)?;
        Ok(found.filter(|file| state.tree.inodes[file].kind != InodeKind::Folder).map(FileId))
    }

    /// Paths of all that is no folder, folder by folder in order, with sizes.
    ///
    /// # Errors
    /// After a failure.
    pub fn list(&self) -> Result<Vec<(String, u64)>, FileError> {
        let state = self.lock()?;
        let mut listed = Vec::new();
        let mut folders = vec![(String::new(), ROOT.0)];
        while let Some((path, folder)) = folders.pop() {
            for (name, file) in &state.tree.folder(folder)?.entries {
                let path = format!("{path}{}", String::from_utf8_lossy(name.bytes()));
                let inode = &state.tree.inodes[file];
                match inode.kind {
                    InodeKind::Folder => folders.push((path + "/", *file)),
                    _ => listed.push((path, inode.view.look().bytes)),
                }
            }
        }
        listed.sort_unstable();
        Ok(listed)
    }

    /// Removes what is no folder: at once, if nobody holds it and it has no other name.
    ///
    /// # Errors
    /// [`FileError::NotFound`], [`FileError::IsFolder`].
    pub fn remove(&self, path: &str) -> Result<(), FileError> {
        let (folder, name) = place(&*self.lock()?, path)?;
        self.unlink(FileId(folder), &name)
    }

    /// Gives a file or a folder another path, as [`Files::rename_entry`]; whatever had that path is removed. Folders of the new path
    /// that are missing are made.
    ///
    /// # Errors
    /// Those of [`Files::rename_entry`], [`FileError::Name`], [`FileError::NoSpace`].
    pub fn rename(&self, from: &str, to: &str) -> Result<(), FileError> {
        self.try_with(|state| {
            let from = place(state, from)?;
            state.tree.entry(from.0, from.1.bytes())?.ok_or(FileError::NotFound)?;
            let to = place_made(state, to)?;
            state.rename_and_log((from.0, &from.1), (to.0, &to.1), Replace::Yes)
        })
    }

    /// Gives a file another path besides those it has.
    ///
    /// # Errors
    /// As [`Files::link`].
    pub fn link_path(&self, from: &str, to: &str) -> Result<(), FileError> {
        let (file, (folder, name)) = {
            let state = self.lock()?;
            (at(&state, from)?.ok_or(FileError::NotFound)?, place(&state, to)?)
        };
        self.link(FileId(file), FileId(folder), &name).map(drop)
    }

    /// Makes a folder, and those of its path that are missing.
    ///
    /// # Errors
    /// [`FileError::Exists`], [`FileError::Name`], [`FileError::NotFolder`], [`FileError::NoSpace`].
    pub fn make_folder(&self, path: &str) -> Result<(), FileError> {
        self.try_with(|state| {
            let (folder, name) = place_made(state, path)?;
            state.make(folder, &name, made(InodeKind::Folder, 0))?;
            state.settle()
        })
    }

    /// Whether there is a folder; the one of all is "" or "/".
    ///
    /// # Errors
    /// After a failure.
    pub fn has_folder(&self, path: &str) -> Result<bool, FileError> {
        let state = self.lock()?;
        let found = at(&state, path)?;
        Ok(found.is_some_and(|file| state.tree.inodes[&file].kind == InodeKind::Folder))
    }

    /// Removes an empty folder.
    ///
    /// # Errors
    /// [`FileError::NotEmpty`], [`FileError::NotFound`], [`FileError::NotFolder`].
    pub fn remove_folder(&self, path: &str) -> Result<(), FileError> {
        let (folder, name) = place(&*self.lock()?, path)?;
        self.unlink_folder(FileId(folder), &name)
    }

    /// What is directly in a folder, in order; nothing for one that is not there.
    ///
    /// # Errors
    /// After a failure.
    pub fn children(&self, path: &str) -> Result<Vec<Child>, FileError> {
        let Some(folder) = at(&*self.lock()?, path)? else { return Ok(Vec::new()) };
        let entries = match self.entries(FileId(folder)) {
            Err(FileError::NotFolder | FileError::NotFound) => Vec::new(),
            other => other?,
        };
        let child = |entry: crate::Entry| Child {
            name: String::from_utf8_lossy(entry.name.bytes()).into_owned(),
            is_folder: entry.kind == InodeKind::Folder,
        };
        Ok(entries.into_iter().map(child).collect())
    }
}
