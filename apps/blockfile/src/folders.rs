//! Folders: a name may have parts, divided by `/`. A folder that was made is an empty file whose name ends so.

use crate::FileError;
use crate::store::Files;

/// One entry of a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Child {
    /// Its name within the folder.
    pub name: String,
    /// Whether it is a folder itself.
    pub is_folder: bool,
}

/// What all names in a folder begin with; the folder of all is "" or "/".
fn prefix(folder: &str) -> String {
    format!("{}/", folder.trim_end_matches('/'))
}

impl Files {
    /// Makes a folder. Files may be made in folders that were not: this is for those who look whether it is there.
    ///
    /// # Errors
    /// [`FileError::Exists`], [`FileError::Name`].
    pub fn make_folder(&self, folder: &str) -> Result<(), FileError> {
        if self.find(folder.trim_end_matches('/'))?.is_some() {
            return Err(FileError::Exists);
        }
        self.create(&prefix(folder), 0).map(drop)
    }

    /// Whether a folder was made, or has something in it.
    ///
    /// # Errors
    /// After a failure.
    pub fn has_folder(&self, folder: &str) -> Result<bool, FileError> {
        let prefix = prefix(folder);
        let state = self.lock()?;
        let next = state.names.range(prefix.clone()..).next();
        Ok(prefix == "/" || next.is_some_and(|(name, _)| name.starts_with(&prefix)))
    }

    /// Removes an empty folder.
    ///
    /// # Errors
    /// [`FileError::NotEmpty`], [`FileError::NotFound`].
    pub fn remove_folder(&self, folder: &str) -> Result<(), FileError> {
        if !self.children(folder)?.is_empty() {
            return Err(FileError::NotEmpty);
        }
        self.remove(&prefix(folder))
    }

    /// What is directly in a folder, in order; nothing for one that is not there.
    ///
    /// # Errors
    /// After a failure.
    pub fn children(&self, folder: &str) -> Result<Vec<Child>, FileError> {
        let prefix = prefix(folder);
        let state = self.lock()?;
        let mut children: Vec<Child> = Vec::new();
        let inside = state.names.range(prefix.clone()..).map(|(name, _)| name);
        for name in inside.take_while(|name| name.starts_with(&prefix)) {
            let child = match name[prefix.len()..].split_once('/') {
                Some((name, _)) => Child { name: name.to_owned(), is_folder: true },
                None if name.len() == prefix.len() => continue,
                None => Child { name: name[prefix.len()..].to_owned(), is_folder: false },
            };
            // All that is in a folder stands together.
            if children.last() != Some(&child) {
                children.push(child);
            }
        }
        Ok(children)
    }
}
