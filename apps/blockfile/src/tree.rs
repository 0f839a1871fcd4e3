//! Folders: entries that name inodes, and how they change. What is checked here is checked for records at an attach, too.

use crate::FileError;
use crate::format::Record;
use crate::inode::{Attributes, Inode, InodeKind, Metadata, Name, ROOT, Time};
use crate::store::{FileId, Files, HINTS, IU, State};

/// Most records of names that gather in memory before they go out.
const PENDING_MAX: usize = 2000;
/// Bytes of a path of a symlink in one record; a batch has room for it.
const TARGET_PART_BYTES: usize = 2000;
/// Most bytes of the path of a symlink.
pub const TARGET_MAX_BYTES: usize = 4095;

/// Something new.
#[derive(Clone, Copy, Debug)]
pub struct Made<'a> {
    /// What it is.
    pub kind: InodeKind,
    /// See [`Files::create`].
    pub hint: u8,
    /// Whose, and who may do what.
    pub attributes: Attributes,
    /// The path of a symlink; empty for others.
    pub target: &'a [u8],
}

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

/// What a rename does with one that has the new name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replace {
    /// It loses it.
    Yes,
    /// The rename fails.
    No,
    /// It gets the old name.
    Exchange,
}

impl Files {
    /// What a name in a folder stands for.
    ///
    /// # Errors
    /// [`FileError::NotFolder`], [`FileError::NotFound`] if there is no such folder.
    pub fn lookup(&self, folder: FileId, name: &[u8]) -> Result<Option<FileId>, FileError> {
        Ok(self.lock()?.entry(folder.0, name)?.map(FileId))
    }

    /// What `stat` says.
    ///
    /// # Errors
    /// [`FileError::NotFound`].
    pub fn metadata(&self, file: FileId) -> Result<Metadata, FileError> {
        self.lock()?.metadata(file.0)
    }

    /// Makes something and gives it a name.
    ///
    /// # Errors
    /// [`FileError::Exists`], [`FileError::NotFolder`], [`FileError::NotFound`] for a folder that is gone,
    /// [`FileError::NoSpace`], [`FileError::Name`] for a path of a symlink of more than [`TARGET_MAX_BYTES`].
    pub fn make(&self, folder: FileId, name: &Name, made: Made<'_>) -> Result<Metadata, FileError> {
        self.try_with(|state| {
            let file = state.make(folder.0, name, made)?;
            state.settle()?;
            state.metadata(file)
        })
    }

    /// Gives something that is no folder a name more.
    ///
    /// # Errors
    /// [`FileError::IsFolder`], [`FileError::TooManyLinks`], those of [`Files::make`].
    pub fn link(&self, file: FileId, folder: FileId, name: &Name) -> Result<Metadata, FileError> {
        self.try_with(|state| {
            state.need_room()?;
            if state.is_removed(folder.0) {
                return Err(FileError::NotFound);
            }
            state.link(folder.0, name, file.0)?;
            state.pending.push(Record::Link { folder: folder.0, name: name.clone(), file: file.0 });
            state.touch(folder.0, true);
            state.touch(file.0, false);
            state.settle()?;
            state.metadata(file.0)
        })
    }

    /// Takes a name away. What has no name any more, and nobody who holds it, is no more.
    ///
    /// # Errors
    /// [`FileError::NotFound`], [`FileError::IsFolder`], [`FileError::NotFolder`].
    pub fn unlink(&self, folder: FileId, name: &Name) -> Result<(), FileError> {
        self.try_with(|state| {
            let file = state.entry(folder.0, name.bytes())?.ok_or(FileError::NotFound)?;
            if state.inode(file)?.kind == InodeKind::Folder {
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
            let file = state.entry(folder.0, name.bytes())?.ok_or(FileError::NotFound)?;
            if state.inode(file)?.kind != InodeKind::Folder {
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
        let entries = &state.folder(folder.0)?.entries;
        let entry = |(name, file): (&Name, &u64)| Entry {
            name: name.clone(),
            file: FileId(*file),
            kind: state.inodes[file].kind,
        };
        Ok(entries.iter().map(entry).collect())
    }

    /// The folder that a folder is in; of [`ROOT`] itself.
    ///
    /// # Errors
    /// [`FileError::NotFound`], [`FileError::NotFolder`].
    pub fn parent(&self, folder: FileId) -> Result<FileId, FileError> {
        Ok(FileId(self.lock()?.folder(folder.0)?.parent))
    }

    /// The path of a symlink; empty for anything else.
    ///
    /// # Errors
    /// [`FileError::NotFound`].
    pub fn target(&self, file: FileId) -> Result<Vec<u8>, FileError> {
        Ok(self.lock()?.inode(file.0)?.target.clone())
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
            let inode = state.inode_mut(file.0)?;
            inode.attributes.changed = Time::now();
            change(&mut inode.attributes);
            let attributes = inode.attributes;
            state.pending.push(Record::Attributes { file: file.0, attributes });
            state.settle()?;
            state.metadata(file.0)
        })
    }

    /// Keeps something also without a name, until as many [`Files::release`].
    ///
    /// # Errors
    /// [`FileError::NotFound`].
    pub fn hold(&self, file: FileId) -> Result<(), FileError> {
        self.lock()?.inode_mut(file.0)?.holders += 1;
        Ok(())
    }

    /// Ends so many [`Files::hold`]s, or all if there were fewer: the last one of what has no name ends that.
    ///
    /// # Errors
    /// [`FileError::NotFound`].
    pub fn release(&self, file: FileId, count: u64) -> Result<(), FileError> {
        let mut state = self.lock()?;
        let inode = state.inode_mut(file.0)?;
        inode.holders = inode.holders.saturating_sub(count);
        state.end_if_unused(file.0);
        Ok(())
    }
}

impl State {
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

    fn metadata(&self, file: u64) -> Result<Metadata, FileError> {
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

    /// After a change of names.
    pub fn settle(&mut self) -> Result<(), FileError> {
        if self.pending.len() >= PENDING_MAX { self.flush() } else { Ok(()) }
    }

    /// For what makes the map longer.
    pub fn need_room(&self) -> Result<(), FileError> {
        let is_room = self.live_ius + self.fresh_ius < self.capacity_ius();
        if is_room { Ok(()) } else { Err(FileError::NoSpace) }
    }

    pub fn make(&mut self, folder: u64, name: &Name, made: Made<'_>) -> Result<u64, FileError> {
        if self.entry(folder, name.bytes())?.is_some() {
            return Err(FileError::Exists);
        }
        if self.is_removed(folder) {
            return Err(FileError::NotFound);
        }
        if made.target.len() > TARGET_MAX_BYTES {
            return Err(FileError::Name);
        }
        self.need_room()?;
        let (file, hint) = (self.next_file, made.hint.min(HINTS - 1));
        self.next_file += 1;
        self.create(file, made.kind, hint, made.attributes);
        self.pending.push(Record::Create { file, kind: made.kind, hint, attributes: made.attributes });
        for part in made.target.chunks(TARGET_PART_BYTES) {
            self.add_target(file, part)?;
            self.pending.push(Record::Target { file, bytes: part.to_vec() });
        }
        // Last: what is cut off before it has no name and goes.
        self.link(folder, name, file)?;
        self.pending.push(Record::Link { folder, name: name.clone(), file });
        self.touch(folder, true);
        Ok(file)
    }

    pub fn unlink_and_log(&mut self, folder: u64, name: &Name) -> Result<(), FileError> {
        let file = self.unlink(folder, name)?;
        self.pending.push(Record::Unlink { folder, name: name.clone() });
        self.touch(folder, true);
        self.touch(file, false);
        self.settle()
    }

    pub fn rename_and_log(
        &mut self,
        from: (u64, &Name),
        to: (u64, &Name),
        replace: Replace,
    ) -> Result<(), FileError> {
        let file = self.entry(from.0, from.1.bytes())?.ok_or(FileError::NotFound)?;
        let other = self.entry(to.0, to.1.bytes())?;
        if replace == Replace::No && other.is_some() {
            return Err(FileError::Exists);
        }
        if other == Some(file) {
            return Ok(());
        }
        let is_exchange = replace == Replace::Exchange;
        self.rename(from, to, is_exchange)?;
        self.pending.push(Record::Rename {
            folder: from.0,
            name: from.1.clone(),
            to_folder: to.0,
            to_name: to.1.clone(),
            is_exchange,
        });
        for folder in [from.0, to.0] {
            self.touch(folder, true);
        }
        self.touch(file, false);
        if let Some(other) = other {
            self.touch(other, false);
        }
        self.settle()
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

    fn is_removed(&self, folder: u64) -> bool {
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
    pub fn unlink(&mut self, folder: u64, name: &Name) -> Result<u64, FileError> {
        let file = self.entry(folder, name.bytes())?.ok_or(FileError::NotFound)?;
        if !self.inode(file)?.entries.is_empty() {
            return Err(FileError::NotEmpty);
        }
        self.take_entry(folder, name);
        self.end_if_unused(file);
        Ok(file)
    }

    pub fn rename(
        &mut self,
        from: (u64, &Name),
        to: (u64, &Name),
        is_exchange: bool,
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
            Some(other) => self.end_if_unused(other),
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
        named.links -= 1;
        let is_folder = named.kind == InodeKind::Folder;
        let inside = self.inodes.get_mut(&folder).expect("looked up above");
        inside.subfolders -= u32::from(is_folder);
        self.named_bytes -= entry_bytes(name);
    }

    /// What has no name and no holder is no more; the log needs to say nothing about that.
    pub fn end_if_unused(&mut self, file: u64) {
        let Some(inode) = self.inodes.get(&file) else { return };
        if inode.links > 0 || inode.holders > 0 || file == ROOT.0 {
            return;
        }
        self.cut(file, 0);
        let gone = self.inodes.remove(&file).expect("looked up above");
        self.named_bytes -= Inode::LOGGED_BYTES + gone.target.len();
        gone.view.change().is_gone = true;
        self.views.remove(file);
        self.dirty_files.remove(&file);
        self.touched.remove(&file);
    }

    /// At an attach, when nobody holds anything.
    pub fn end_unnamed(&mut self) {
        let unnamed = self.inodes.iter().filter(|(_, inode)| inode.links == 0);
        let unnamed: Vec<u64> = unnamed.map(|(file, _)| *file).collect();
        unnamed.into_iter().for_each(|file| self.end_if_unused(file));
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
