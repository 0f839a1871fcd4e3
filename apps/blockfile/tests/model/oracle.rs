//! Files in memory: paths, what they name, and what is in that.

use diecut_blockfile::{FileError, FileId, Files, InodeKind, ROOT, Replace};
use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::BTreeMap;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    pub kind: InodeKind,
    pub mode: u32,
    /// Where it was set.
    pub accessed_seconds: Option<i64>,
    /// Of a symlink, its path.
    pub bytes: Vec<u8>,
}

/// Inodes have the numbers of the store, and paths no slash at the beginning.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Model {
    pub entries: BTreeMap<String, u64>,
    pub inodes: BTreeMap<u64, Node>,
}

impl Model {
    fn is_folder(&self, file: u64) -> bool {
        self.inodes[&file].kind == InodeKind::Folder
    }

    /// A path in a folder that is there.
    pub fn some_path(&self, random: &mut Xoshiro256PlusPlus, stem: &str, names: u32) -> String {
        let folders = self.entries.iter().filter(|(path, file)| self.is_folder(**file) && path.len() < 15);
        let folders: Vec<_> = folders.map(|(path, _)| path).collect();
        let name = format!("{stem}-{}", random.random_range(0..names));
        match random.random_range(0..=folders.len() * 2) {
            at if at < folders.len() => format!("{}/{name}", folders[at]),
            _ => name,
        }
    }

    pub fn add(&mut self, path: String, file: FileId, kind: InodeKind, mode: u32, bytes: Vec<u8>) {
        assert_eq!(self.entries.insert(path, file.0), None);
        let before = self.inodes.insert(file.0, Node { kind, mode, accessed_seconds: None, bytes });
        assert_eq!(before, None, "numbers are not used again");
    }

    pub fn unlink(&mut self, path: &str) {
        let file = self.entries.remove(path).unwrap();
        if self.entries.values().all(|other| *other != file) {
            self.inodes.remove(&file);
        }
    }

    fn is_empty(&self, path: &str) -> bool {
        self.entries.keys().all(|other| !is_inside(other, path))
    }

    pub fn remove_folder(&mut self, path: &str) -> Result<(), FileError> {
        let file = *self.entries.get(path).ok_or(FileError::NotFound)?;
        if !self.is_folder(file) {
            return Err(FileError::NotFolder);
        }
        if !self.is_empty(path) {
            return Err(FileError::NotEmpty);
        }
        self.unlink(path);
        Ok(())
    }

    pub fn link(&mut self, from: &str, to: &str) -> Result<(), FileError> {
        let file = *self.entries.get(from).ok_or(FileError::NotFound)?;
        if self.entries.contains_key(to) {
            return Err(FileError::Exists);
        }
        if self.is_folder(file) {
            return Err(FileError::IsFolder);
        }
        self.entries.insert(to.to_owned(), file);
        Ok(())
    }

    pub fn rename(&mut self, from: &str, to: &str, replace: Replace) -> Result<(), FileError> {
        let file = *self.entries.get(from).ok_or(FileError::NotFound)?;
        let other = self.entries.get(to).copied();
        if replace == Replace::No && other.is_some() {
            return Err(FileError::Exists);
        }
        if other == Some(file) {
            return Ok(());
        }
        if self.is_folder(file) && is_inside(to, from) {
            return Err(FileError::Inside);
        }
        let is_exchange = replace == Replace::Exchange;
        match other {
            None if is_exchange => return Err(FileError::NotFound),
            Some(other) if is_exchange && self.is_folder(other) && is_inside(from, to) => {
                return Err(FileError::Inside);
            }
            Some(_) if is_exchange => {}
            Some(other) => {
                match (self.is_folder(file), self.is_folder(other)) {
                    (true, false) => return Err(FileError::NotFolder),
                    (false, true) => return Err(FileError::IsFolder),
                    _ if !self.is_empty(to) => return Err(FileError::NotEmpty),
                    _ => self.unlink(to),
                };
            }
            None => {}
        }
        let moved = |path: &String| {
            let tail = |of: &str| (path == of || is_inside(path, of)).then(|| path[of.len()..].to_owned());
            match (tail(from), tail(to)) {
                (Some(tail), _) => format!("{to}{tail}"),
                (None, Some(tail)) if is_exchange => format!("{from}{tail}"),
                _ => path.clone(),
            }
        };
        self.entries = self.entries.iter().map(|(path, file)| (moved(path), *file)).collect();
        Ok(())
    }
}

fn is_inside(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'))
}

/// All that is there. Counts of links must be right.
pub fn try_whole(files: &Files) -> Result<Model, FileError> {
    let mut model = Model::default();
    let mut folders = vec![(String::new(), ROOT)];
    while let Some((path, folder)) = folders.pop() {
        for entry in files.entries(folder)? {
            let path = format!("{path}{}", std::str::from_utf8(entry.name.bytes()).unwrap());
            let known = files.metadata(entry.file)?;
            let bytes = match entry.kind {
                InodeKind::Folder => {
                    assert_eq!(files.parent(entry.file)?, folder);
                    folders.push((format!("{path}/"), entry.file));
                    Vec::new()
                }
                InodeKind::Symlink => files.target(entry.file)?,
                _ => {
                    let mut bytes = vec![0xee; known.size_bytes as usize];
                    assert_eq!(files.read(entry.file, 0, &mut bytes)?, bytes.len());
                    bytes
                }
            };
            let node = Node {
                kind: entry.kind,
                mode: known.attributes.mode,
                accessed_seconds: (known.attributes.accessed.nanoseconds == 5)
                    .then_some(known.attributes.accessed.seconds),
                bytes,
            };
            model.inodes.insert(entry.file.0, node);
            model.entries.insert(path, entry.file.0);
        }
    }
    for (path, file) in &model.entries {
        let links = files.metadata(FileId(*file))?.links as usize;
        let is_direct = |other: &&String| is_inside(other, path) && !other[path.len() + 1..].contains('/');
        let subfolders =
            model.entries.keys().filter(is_direct).filter(|other| model.is_folder(model.entries[*other]));
        let expected = match model.is_folder(*file) {
            true => 2 + subfolders.count(),
            false => model.entries.values().filter(|other| *other == file).count(),
        };
        assert_eq!(links, expected, "links of {path}");
    }
    Ok(model)
}

pub fn whole(files: &Files) -> Model {
    try_whole(files).unwrap()
}
