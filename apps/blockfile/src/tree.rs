//! Folders: entries that name inodes, and how they change. What is checked here is checked for records at an attach, too.

use crate::FileError;
use crate::content::Content;
use crate::inode::{Attributes, InodeKind, Metadata, Name, ROOT, Time};
use crate::types::{FileId, HINTS, IU};
use crate::view::{SharedView, Views};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Most bytes of the path of a symlink.
pub const TARGET_MAX_BYTES: usize = 4095;

/// What a name stands for.
#[derive(Debug, Default)]
pub(crate) struct Inode {
    pub kind: InodeKind,
    pub hint: u8,
    pub attributes: Attributes,
    /// Entries that name it.
    pub links: u32,
    /// Those who use it without a name; it stays for them up to the next attach.
    pub holders: u64,
    /// Size as flash knows it, or the records that wait.
    pub logged_bytes: u64,
    /// What it holds; changed with the store's lock only.
    pub view: SharedView,
    /// Of a symlink.
    pub target: Vec<u8>,
    /// Of a folder.
    pub entries: BTreeMap<Name, u64>,
    /// Folders among the entries.
    pub subfolders: u32,
    /// Of a folder: the one that it is in.
    pub parent: u64,
}

/// Inodes, and the names that folders have for them.
pub(crate) struct Tree {
    pub views: Arc<Views>,
    pub inodes: BTreeMap<u64, Inode>,
    /// What inodes take in a checkpoint, with names and paths of symlinks, without extents.
    pub named_bytes: usize,
    /// Number of the next inode.
    pub next_file: u64,
    /// Inodes with times that flash does not know.
    pub touched: BTreeSet<u64>,
}

impl Default for Tree {
    fn default() -> Tree {
        Tree {
            views: Arc::default(),
            inodes: BTreeMap::new(),
            named_bytes: 0,
            next_file: ROOT.0 + 1,
            touched: BTreeSet::new(),
        }
    }
}

impl Tree {
    pub fn inode(&self, file: u64) -> Result<&Inode, FileError> {
        self.inodes.get(&file).ok_or(FileError::NotFound)
    }

    pub fn inode_mut(&mut self, file: u64) -> Result<&mut Inode, FileError> {
        self.inodes.get_mut(&file).ok_or(FileError::NotFound)
    }

    pub fn folder(&self, folder: u64) -> Result<&Inode, FileError> {
        let inode = self.inode(folder)?;
        if inode.kind == InodeKind::Folder { Ok(inode) } else { Err(FileError::NotFolder) }
    }

    pub fn entry(&self, folder: u64, name: &[u8]) -> Result<Option<u64>, FileError> {
        Ok(self.folder(folder)?.entries.get(name).copied())
    }

    /// What `stat` says.
    pub fn metadata(&self, file: u64) -> Result<Metadata, FileError> {
        let inode = self.inode(file)?;
        let view = inode.view.look();
        let is_removed = inode.links == 0 && file != ROOT.0;
        let (links, size_bytes) = match inode.kind {
            InodeKind::Folder if is_removed => (0, 0),
            InodeKind::Folder => (2 + inode.subfolders, inode.entries.len() as u64),
            InodeKind::Symlink => (inode.links, inode.target.len() as u64),
            _ => (inode.links, view.bytes),
        };
        let fresh_ius = view.dirty.keys().filter(|iu| view.map.find(**iu).is_err()).count() as u64;
        Ok(Metadata {
            file: FileId(file),
            kind: inode.kind,
            attributes: inode.attributes,
            links,
            size_bytes,
            allocated_bytes: (view.mapped_ius + fresh_ius) * IU,
        })
    }

    /// Time of a change of an inode, of its content too or not. It goes out with the next flush.
    pub fn touch(&mut self, file: u64, is_content: bool) {
        if let Some(inode) = self.inodes.get_mut(&file) {
            let now = Time::now();
            inode.attributes.changed = now;
            if is_content {
                inode.attributes.modified = now;
            }
            self.touched.insert(file);
        }
    }

    /// As on flash: sizes in records, and what a file has beyond is no more.
    pub fn resize(&mut self, file: u64, bytes: u64, content: &mut Content) {
        if let Some(known) = self.inodes.get_mut(&file) {
            content.cut(&known.view, bytes.div_ceil(IU));
            known.logged_bytes = bytes;
            known.view.change().bytes = bytes;
        }
    }

    /// Without a name yet.
    pub fn create(&mut self, file: u64, kind: InodeKind, hint: u8, attributes: Attributes) {
        let hint = hint.min(HINTS - 1);
        let created = Inode { kind, hint, attributes, parent: ROOT.0, ..Inode::default() };
        self.views.add(file, created.view.clone());
        if self.inodes.insert(file, created).is_none() {
            self.named_bytes += Inode::LOGGED_BYTES;
        }
    }

    pub fn add_target(&mut self, file: u64, part: &[u8]) -> Result<(), FileError> {
        let inode = self.inode_mut(file)?;
        if inode.target.len() + part.len() > TARGET_MAX_BYTES {
            return Err(FileError::Name);
        }
        inode.target.extend(part);
        self.named_bytes += part.len();
        Ok(())
    }

    /// Whether a folder has lost its name; it takes no entries any more.
    pub fn is_removed(&self, folder: u64) -> bool {
        folder != ROOT.0 && self.inodes.get(&folder).is_none_or(|inode| inode.links == 0)
    }

    pub fn link(&mut self, folder: u64, name: &Name, file: u64) -> Result<(), FileError> {
        if self.entry(folder, name.bytes())?.is_some() {
            return Err(FileError::Exists);
        }
        let inode = self.inode(file)?;
        if inode.kind == InodeKind::Folder && (inode.links > 0 || file == ROOT.0) {
            return Err(FileError::IsFolder);
        }
        if inode.links == u32::MAX {
            return Err(FileError::TooManyLinks);
        }
        // What lost its last name is gone on flash.
        if inode.links == 0 && inode.holders > 0 {
            return Err(FileError::NotFound);
        }
        self.put_entry(folder, name, file);
        Ok(())
    }

    /// Returns what it stood for.
    pub fn unlink(&mut self, folder: u64, name: &Name, content: &mut Content) -> Result<u64, FileError> {
        let file = self.entry(folder, name.bytes())?.ok_or(FileError::NotFound)?;
        if !self.inode(file)?.entries.is_empty() {
            return Err(FileError::NotEmpty);
        }
        self.take_entry(folder, name);
        self.end_if_unused(file, content);
        Ok(file)
    }

    pub fn rename(
        &mut self,
        from: (u64, &Name),
        to: (u64, &Name),
        is_exchange: bool,
        content: &mut Content,
    ) -> Result<(), FileError> {
        let file = self.entry(from.0, from.1.bytes())?.ok_or(FileError::NotFound)?;
        let other = self.entry(to.0, to.1.bytes())?;
        if other == Some(file) {
            return Ok(());
        }
        if self.is_removed(to.0) {
            return Err(FileError::NotFound);
        }
        let is_folder = |file| self.inodes[&file].kind == InodeKind::Folder;
        if is_folder(file) && self.is_within(to.0, file) {
            return Err(FileError::Inside);
        }
        match other {
            None if is_exchange => return Err(FileError::NotFound),
            Some(other) if is_exchange && is_folder(other) && self.is_within(from.0, other) => {
                return Err(FileError::Inside);
            }
            Some(other) if !is_exchange => match (is_folder(file), is_folder(other)) {
                (true, false) => return Err(FileError::NotFolder),
                (false, true) => return Err(FileError::IsFolder),
                _ if !self.inodes[&other].entries.is_empty() => return Err(FileError::NotEmpty),
                _ => {}
            },
            _ => {}
        }
        self.take_entry(from.0, from.1);
        if other.is_some() {
            self.take_entry(to.0, to.1);
        }
        self.put_entry(to.0, to.1, file);
        match other {
            Some(other) if is_exchange => self.put_entry(from.0, from.1, other),
            Some(other) => self.end_if_unused(other, content),
            None => {}
        }
        Ok(())
    }

    /// Whether a folder is another one, or somewhere in it.
    fn is_within(&self, mut folder: u64, other: u64) -> bool {
        while folder != other && folder != ROOT.0 {
            let Some(inode) = self.inodes.get(&folder) else { return false };
            folder = inode.parent;
        }
        folder == other
    }

    fn put_entry(&mut self, folder: u64, name: &Name, file: u64) {
        let named = self.inodes.get_mut(&file).expect("looked up by the caller");
        named.links += 1;
        named.parent = folder;
        let is_folder = named.kind == InodeKind::Folder;
        let inside = self.inodes.get_mut(&folder).expect("looked up by the caller");
        inside.subfolders += u32::from(is_folder);
        let before = inside.entries.insert(name.clone(), file);
        assert_eq!(before, None, "the name is free: the caller looked");
        self.named_bytes += entry_bytes(name);
    }

    fn take_entry(&mut self, folder: u64, name: &Name) {
        let inside = self.inodes.get_mut(&folder).expect("looked up by the caller");
        let file = inside.entries.remove(name).expect("looked up by the caller");
        let named = self.inodes.get_mut(&file).expect("entries are of inodes");
        named.links = named.links.checked_sub(1).expect("I-F7: each entry is counted as a name");
        let is_folder = named.kind == InodeKind::Folder;
        let inside = self.inodes.get_mut(&folder).expect("looked up above");
        inside.subfolders -= u32::from(is_folder);
        self.named_bytes -= entry_bytes(name);
    }

    /// What has no name and no holder is no more; the log needs to say nothing about that.
    pub fn end_if_unused(&mut self, file: u64, content: &mut Content) {
        let Some(inode) = self.inodes.get(&file) else { return };
        if inode.links > 0 || inode.holders > 0 || file == ROOT.0 {
            return;
        }
        content.cut(&inode.view, 0);
        let gone = self.inodes.remove(&file).expect("looked up above");
        assert!(gone.entries.is_empty(), "I-F7: a folder that ends is empty");
        self.named_bytes -= Inode::LOGGED_BYTES + gone.target.len();
        gone.view.change().is_gone = true;
        self.views.remove(file);
        content.dirty_files.remove(&file);
        self.touched.remove(&file);
    }

    /// At an attach, when nobody holds anything.
    pub fn end_unnamed(&mut self, content: &mut Content) {
        let unnamed = self.inodes.iter().filter(|(_, inode)| inode.links == 0);
        let unnamed: Vec<u64> = unnamed.map(|(file, _)| *file).collect();
        unnamed.into_iter().for_each(|file| self.end_if_unused(file, content));
    }
}

/// What an entry takes in a checkpoint.
fn entry_bytes(name: &Name) -> usize {
    1 + name.bytes().len() + 8
}

impl Inode {
    /// What an inode takes in a checkpoint, without extents, entries and the path of a symlink.
    const LOGGED_BYTES: usize = 8 + 2 + 52 + 8 + 2 + 4 + 4;
}
