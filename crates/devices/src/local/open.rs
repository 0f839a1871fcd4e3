use super::contents::Contents;
use super::error::LocalError;
use super::health::size_bytes;
use super::placement::Placement;
use super::properties::{DriveKind, Properties, punches};
use super::users::Subject;
use diecut_drives::{DriveShape, WantedCut, Zoning};
use rustix::fs::OFlags;
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// What it is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// To look at it. Nothing is written or locked, and others may use it.
    Look,
    /// To have it alone, and write to it.
    Own,
}

/// A file or a block device of this machine, open. Who owns it does so until this is dropped; what is opened besides, as a ring does, shares that.
#[derive(Debug)]
pub struct LocalDevice {
    path: PathBuf,
    file: File,
    pub(super) access: Access,
    properties: Properties,
    placement: Option<Arc<Placement>>,
}

/// How often a lock is asked for: the device manager holds one for a moment while it looks at a drive, and a process that is being started still has
/// all that its parent had open.
const LOCK_TRIES: u32 = 10;
const LOCK_PAUSE: Duration = Duration::from_millis(50);

impl LocalDevice {
    /// Opens it, past the page cache where that can be.
    ///
    /// # Errors
    /// See [`LocalError`]. Who uses it is named as far as Linux tells.
    pub fn open(path: &Path, access: Access) -> Result<LocalDevice, LocalError> {
        let failed = |what| move |error| LocalError::Open { path: path.to_owned(), what, error };
        let metadata = std::fs::metadata(path).map_err(failed("cannot be examined"))?;
        let kind = metadata.file_type();
        if !kind.is_file() && !kind.is_block_device() {
            return Err(wrong_kind(path, &metadata));
        }
        let in_use = |by: Vec<String>| LocalError::InUse { path: path.to_owned(), by };
        let subject = Subject::new(path, &metadata);
        let is_owned = access == Access::Own;
        if is_owned {
            let users = patient_users(&subject);
            if !users.is_empty() {
                return Err(in_use(users));
            }
        }
        // Exclusive: the kernel refuses what is mounted, or a part of something, also if that happens in this moment.
        let exclusive = if is_owned && kind.is_block_device() { OFlags::EXCL } else { OFlags::empty() };
        let opened = |flags: OFlags| {
            let flags = (flags | exclusive).bits() as i32;
            OpenOptions::new().read(true).write(is_owned).custom_flags(flags).open(path)
        };
        let (opened, takes_direct) = match patient(|| opened(OFlags::DIRECT)) {
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => (opened(OFlags::empty()), false),
            opened => (opened, true),
        };
        let file = opened.map_err(|error| match error.kind() {
            io::ErrorKind::ResourceBusy => in_use(vec!["the kernel does not say by whom".to_owned()]),
            _ => failed("cannot be opened")(error),
        })?;
        if is_owned {
            lock(&file).map_err(|error| match error {
                TryLockError::WouldBlock => {
                    let holders = subject.lock_holders();
                    let unnamed = || vec!["another process has a lock on it".to_owned()];
                    in_use(if holders.is_empty() { unnamed() } else { holders })
                }
                TryLockError::Error(error) => failed("cannot be locked")(error),
            })?;
        }
        let size_bytes = size_bytes(&file).map_err(failed("does not say how long it is"))?;
        let mut properties =
            Properties::of(&file, size_bytes, takes_direct).map_err(failed("cannot be examined"))?;
        if is_owned && properties.is_read_only {
            return Err(LocalError::ReadOnly { path: path.to_owned() });
        }
        if is_owned && properties.kind == DriveKind::File {
            properties.takes_discard = punches(&file, size_bytes).or(properties.takes_discard);
        }
        let placement = note_handles(&mut properties, Placement::of(&file, is_owned));
        Ok(LocalDevice { path: path.to_owned(), file, access, properties, placement })
    }

    /// As it was named.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What is open, for who carries out intents.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Its placement handles, if it has more than one.
    pub fn placement(&self) -> Option<&Arc<Placement>> {
        self.placement.as_ref()
    }

    /// What the kernel says of it.
    pub fn properties(&self) -> &Properties {
        &self.properties
    }

    /// Its zones as they are now, if it is written in zones only.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn zoning(&self) -> io::Result<Option<Zoning>> {
        if !self.properties.is_written_in_zones() {
            return Ok(None);
        }
        let [active_max, open_max] = [self.properties.active_zones_max, self.properties.open_zones_max]
            .map(|max| max.unwrap_or(0).try_into().unwrap_or(u32::MAX));
        super::zones::zoning(&self.file, active_max, open_max).map(Some)
    }

    /// How it is cut, as is asked for, or as suits it.
    ///
    /// # Errors
    /// In words, if it cannot be cut like that.
    pub fn shape(&self, wanted: WantedCut) -> Result<DriveShape, String> {
        let zoning = self.zoning().map_err(|error| format!("its zones cannot be asked for: {error}"))?;
        let shape = DriveShape::wanted(self.properties.size_bytes, zoning.as_ref(), wanted);
        shape.map_err(|error| error.to_string())
    }

    /// What lies on it.
    ///
    /// # Errors
    /// If it cannot be opened once more for reading.
    pub fn contents(&self) -> Result<Contents, LocalError> {
        let what = "cannot be read";
        Contents::of_file(&self.file, self.properties.size_bytes).map_err(|error| LocalError::Open {
            path: self.path.clone(),
            what,
            error,
        })
    }

    /// Who else uses it, in words, as far as Linux tells.
    pub fn users(&self) -> Vec<String> {
        match std::fs::metadata(&self.path) {
            Ok(metadata) => Subject::new(&self.path, &metadata).users(),
            Err(_) => Vec::new(),
        }
    }
}

/// Keeps what can be said of placement handles; those that can be used.
fn note_handles(
    properties: &mut Properties,
    found: Result<Option<Placement>, String>,
) -> Option<Arc<Placement>> {
    let found = found.unwrap_or_else(|why| {
        properties.handles.unused = Some(why);
        None
    });
    properties.handles.count = found.as_ref().map(Placement::handles);
    found.map(Arc::new)
}

/// A device that nobody uses by name may be busy for a moment: the kernel has what a process that ended had of it until its commands are over.
fn patient(open: impl Fn() -> io::Result<File>) -> io::Result<File> {
    let mut tries = LOCK_TRIES;
    loop {
        tries -= 1;
        match open() {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy && tries > 0 => {
                std::thread::sleep(LOCK_PAUSE);
            }
            opened => return opened,
        }
    }
}

/// Who uses it, now and a moment later.
fn patient_users(subject: &Subject) -> Vec<String> {
    let users = subject.users();
    if users.is_empty() {
        return users;
    }
    std::thread::sleep(LOCK_PAUSE);
    subject.users()
}

fn lock(file: &File) -> Result<(), TryLockError> {
    let mut tries = LOCK_TRIES;
    loop {
        tries -= 1;
        match file.try_lock() {
            Err(TryLockError::WouldBlock) if tries > 0 => std::thread::sleep(LOCK_PAUSE),
            locked => return locked,
        }
    }
}

fn wrong_kind(path: &Path, metadata: &std::fs::Metadata) -> LocalError {
    let kind = metadata.file_type();
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let (what, hint) = match () {
        () if kind.is_dir() => ("a folder", String::new()),
        // The generic device of an NVMe namespace has the name of the block device, with "ng" for "nvme".
        () if kind.is_char_device() && name.starts_with("ng") => {
            ("a character device", format!(", as /dev/nvme{}", &name[2..]))
        }
        () if kind.is_char_device() && name.starts_with("nvme") => {
            ("the controller of a drive", format!(", as /dev/{name}n1"))
        }
        () if kind.is_char_device() => ("a character device", String::new()),
        () => ("a socket or a pipe", String::new()),
    };
    LocalError::Kind { path: path.to_owned(), what, hint }
}
