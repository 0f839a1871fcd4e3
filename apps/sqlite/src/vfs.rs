//! SQLite's view of files: `sqlite3_vfs` and `sqlite3_io_methods`, version 1 (no shared memory between processes, no mapping).

use diecut_blockfile::{FileError, FileId, Files};
use rusqlite::{Connection, OpenFlags, ffi};
use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ops::{Deref, DerefMut};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Longest name; files have at most 255 bytes.
const NAME_MAX_BYTES: usize = 255;
/// Hints: files of one hint share erase blocks.
const HINT_JOURNAL: u8 = 0;
const HINT_TEMPORARY: u8 = 1;
const HINT_DATABASE: u8 = 2;

/// Locks of all connections of this process on a file.
#[derive(Clone, Copy, Debug, Default)]
struct Locks {
    shared: u32,
    reserved: bool,
    pending: bool,
    exclusive: bool,
}

struct Shared {
    files: Arc<Files>,
    locks: Mutex<BTreeMap<FileId, Locks>>,
    temporary: AtomicU64,
}

/// What SQLite gives memory for: its own part first.
#[repr(C)]
struct Opened {
    base: ffi::sqlite3_file,
    inner: *mut Inner,
}

struct Inner {
    shared: Arc<Shared>,
    file: FileId,
    name: String,
    delete_on_close: bool,
    level: c_int,
}

static METHODS: ffi::sqlite3_io_methods = ffi::sqlite3_io_methods {
    iVersion: 1,
    xClose: Some(close),
    xRead: Some(read),
    xWrite: Some(write),
    xTruncate: Some(truncate),
    xSync: Some(sync),
    xFileSize: Some(file_size),
    xLock: Some(lock),
    xUnlock: Some(unlock),
    xCheckReservedLock: Some(check_reserved_lock),
    xFileControl: Some(file_control),
    xSectorSize: Some(sector_size),
    xDeviceCharacteristics: Some(device_characteristics),
    xShmMap: None,
    xShmLock: None,
    xShmBarrier: None,
    xShmUnmap: None,
    xFetch: None,
    xUnfetch: None,
};

/// Files that SQLite knows as a VFS, while this or a database of it lives.
#[derive(Clone)]
pub struct Vfs(Arc<Registration>);

struct Registration {
    name: CString,
    vfs: *mut ffi::sqlite3_vfs,
}

// SAFETY: SQLite uses a VFS from any thread, and what its data point to is shared by locks.
unsafe impl Send for Registration {}
// SAFETY: same.
unsafe impl Sync for Registration {}

impl Drop for Registration {
    fn drop(&mut self) {
        // SAFETY: each database of it holds it, so no file is open; both boxes are those of `Vfs::new`.
        unsafe {
            ffi::sqlite3_vfs_unregister(self.vfs);
            let vfs = Box::from_raw(self.vfs);
            drop(Box::from_raw(vfs.pAppData.cast::<Arc<Shared>>()));
        }
    }
}

/// A connection, closed before its VFS may go.
pub struct Database {
    connection: Connection,
    _vfs: Vfs,
}

impl Deref for Database {
    type Target = Connection;
    fn deref(&self) -> &Connection {
        &self.connection
    }
}

impl DerefMut for Database {
    fn deref_mut(&mut self) -> &mut Connection {
        &mut self.connection
    }
}

impl Vfs {
    /// Tells SQLite.
    ///
    /// # Panics
    /// If SQLite has no memory.
    pub fn new(files: Arc<Files>) -> Vfs {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = CString::new(format!("diecut-{number}")).expect("a name without zeros");
        let shared =
            Arc::new(Shared { files, locks: Mutex::new(BTreeMap::new()), temporary: AtomicU64::new(0) });
        let vfs = Box::into_raw(Box::new(ffi::sqlite3_vfs {
            iVersion: 1,
            szOsFile: size_of::<Opened>() as c_int,
            mxPathname: NAME_MAX_BYTES as c_int,
            pNext: std::ptr::null_mut(),
            zName: name.as_ptr(),
            pAppData: Box::into_raw(Box::new(shared)).cast(),
            xOpen: Some(open),
            xDelete: Some(delete),
            xAccess: Some(access),
            xFullPathname: Some(full_pathname),
            xDlOpen: None,
            xDlError: None,
            xDlSym: None,
            xDlClose: None,
            xRandomness: Some(randomness),
            xSleep: Some(sleep),
            xCurrentTime: Some(current_time),
            xGetLastError: Some(last_error),
            xCurrentTimeInt64: None,
            xSetSystemCall: None,
            xGetSystemCall: None,
            xNextSystemCall: None,
        }));
        // SAFETY: the structure and all that it points to live until it is unregistered.
        let code = unsafe { ffi::sqlite3_vfs_register(vfs, 0) };
        assert_eq!(code, ffi::SQLITE_OK, "SQLite takes a VFS");
        Vfs(Arc::new(Registration { name, vfs }))
    }

    /// Opens a database, durable at each commit, with a WAL or a rollback journal.
    ///
    /// # Errors
    /// Of SQLite.
    pub fn open(&self, name: &str, wal: bool) -> rusqlite::Result<Database> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
        let connection = Connection::open_with_flags_and_vfs(name, flags, self.0.name.as_c_str())?;
        // First of all: what begins to read a database with a WAL wants shared memory else.
        let (locking, mode) = if wal { ("exclusive", "wal") } else { ("normal", "delete") };
        connection.execute_batch(&format!("PRAGMA locking_mode = {locking}; PRAGMA temp_store = memory;"))?;
        connection.query_row(&format!("PRAGMA journal_mode = {mode}"), [], |_| Ok(()))?;
        // A commit with a rollback journal is the removal of the journal, which is synced with "extra" only.
        connection.execute_batch("PRAGMA synchronous = extra;")?;
        Ok(Database { connection, _vfs: self.clone() })
    }
}

/// A call's body: no panic goes on into SQLite, which hears of an input/output error.
fn guard(body: impl FnOnce() -> Result<(), c_int>) -> c_int {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => ffi::SQLITE_OK,
        Ok(Err(code)) => code,
        Err(_) => ffi::SQLITE_IOERR,
    }
}

fn or(code: c_int) -> impl Fn(FileError) -> c_int {
    move |error| if error == FileError::NoSpace { ffi::SQLITE_FULL } else { code }
}

/// # Safety
/// `vfs` is one of [`Vfs::new`].
unsafe fn shared<'a>(vfs: *mut ffi::sqlite3_vfs) -> &'a Arc<Shared> {
    // SAFETY: the data are those of `Vfs::new`, which live while SQLite knows the VFS.
    unsafe { &*(*vfs).pAppData.cast::<Arc<Shared>>() }
}

/// # Safety
/// `file` was opened by [`open`] and is not closed; SQLite uses it in one thread at a time.
unsafe fn inner<'a>(file: *mut ffi::sqlite3_file) -> &'a mut Inner {
    // SAFETY: `open` put a box there, and only `close` takes it away.
    unsafe { &mut *(*file.cast::<Opened>()).inner }
}

/// # Safety
/// `name` is a string with an end.
unsafe fn text<'a>(name: *const c_char) -> Result<&'a str, c_int> {
    // SAFETY: promised by the caller.
    unsafe { CStr::from_ptr(name) }.to_str().map_err(|_| ffi::SQLITE_CANTOPEN)
}

/// The VFS that SQLite comes with, for time and chance.
fn system() -> *mut ffi::sqlite3_vfs {
    // SAFETY: NULL asks for the default one, which is there on every system.
    unsafe { ffi::sqlite3_vfs_find(std::ptr::null()) }
}

unsafe extern "C" fn open(
    vfs: *mut ffi::sqlite3_vfs,
    name: ffi::sqlite3_filename,
    file: *mut ffi::sqlite3_file,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    let opened = file.cast::<Opened>();
    // SAFETY: SQLite gives `szOsFile` bytes; without methods it does not close what was not opened.
    unsafe { (*opened).base.pMethods = std::ptr::null() };
    guard(|| {
        // SAFETY: one of ours, says SQLite.
        let shared = unsafe { shared(vfs) };
        let name = if name.is_null() {
            format!("temporary-{}", shared.temporary.fetch_add(1, Ordering::Relaxed))
        } else {
            // SAFETY: a string, says SQLite.
            unsafe { text(name)? }.to_owned()
        };
        let hint = if flags & (ffi::SQLITE_OPEN_MAIN_JOURNAL | ffi::SQLITE_OPEN_WAL) != 0 {
            HINT_JOURNAL
        } else if flags & ffi::SQLITE_OPEN_MAIN_DB != 0 {
            HINT_DATABASE
        } else {
            HINT_TEMPORARY
        };
        let failed = or(ffi::SQLITE_CANTOPEN);
        let file = match shared.files.find(&name).map_err(&failed)? {
            Some(file) => file,
            None if flags & ffi::SQLITE_OPEN_CREATE != 0 => {
                shared.files.create(&name, hint).map_err(&failed)?
            }
            None => return Err(ffi::SQLITE_CANTOPEN),
        };
        let delete_on_close = flags & ffi::SQLITE_OPEN_DELETEONCLOSE != 0;
        let inner = Inner { shared: Arc::clone(shared), file, name, delete_on_close, level: 0 };
        // SAFETY: memory of SQLite for this file; the other pointer may be NULL.
        unsafe {
            (*opened).inner = Box::into_raw(Box::new(inner));
            (*opened).base.pMethods = &raw const METHODS;
            if !out_flags.is_null() {
                *out_flags = flags;
            }
        }
        Ok(())
    })
}

unsafe extern "C" fn close(file: *mut ffi::sqlite3_file) -> c_int {
    guard(|| {
        // SAFETY: opened once, closed once; the box is taken back.
        let mut inner = unsafe { Box::from_raw((*file.cast::<Opened>()).inner) };
        inner.release(0);
        if inner.delete_on_close {
            inner.shared.files.remove(&inner.name).map_err(or(ffi::SQLITE_IOERR_DELETE))?;
        }
        Ok(())
    })
}

unsafe extern "C" fn read(
    file: *mut ffi::sqlite3_file,
    bytes: *mut c_void,
    len: c_int,
    offset: i64,
) -> c_int {
    guard(|| {
        // SAFETY: an open file, and `len` bytes of SQLite.
        let (inner, bytes) =
            unsafe { (inner(file), std::slice::from_raw_parts_mut(bytes.cast::<u8>(), len as usize)) };
        let read = inner.shared.files.read(inner.file, offset as u64, bytes);
        let read = read.map_err(or(ffi::SQLITE_IOERR_READ))?;
        bytes[read..].fill(0);
        if read == bytes.len() { Ok(()) } else { Err(ffi::SQLITE_IOERR_SHORT_READ) }
    })
}

unsafe extern "C" fn write(
    file: *mut ffi::sqlite3_file,
    bytes: *const c_void,
    len: c_int,
    offset: i64,
) -> c_int {
    guard(|| {
        // SAFETY: an open file, and `len` bytes of SQLite.
        let (inner, bytes) =
            unsafe { (inner(file), std::slice::from_raw_parts(bytes.cast::<u8>(), len as usize)) };
        inner.shared.files.write(inner.file, offset as u64, bytes).map_err(or(ffi::SQLITE_IOERR_WRITE))
    })
}

unsafe extern "C" fn truncate(file: *mut ffi::sqlite3_file, size: i64) -> c_int {
    guard(|| {
        // SAFETY: an open file.
        let inner = unsafe { inner(file) };
        inner.shared.files.set_size(inner.file, size as u64).map_err(or(ffi::SQLITE_IOERR_TRUNCATE))
    })
}

unsafe extern "C" fn sync(file: *mut ffi::sqlite3_file, _flags: c_int) -> c_int {
    guard(|| {
        // SAFETY: an open file.
        let inner = unsafe { inner(file) };
        inner.shared.files.sync().map_err(or(ffi::SQLITE_IOERR_FSYNC))
    })
}

unsafe extern "C" fn file_size(file: *mut ffi::sqlite3_file, size: *mut i64) -> c_int {
    guard(|| {
        // SAFETY: an open file, and a number of SQLite.
        let inner = unsafe { inner(file) };
        let bytes = inner.shared.files.size(inner.file).map_err(or(ffi::SQLITE_IOERR_FSTAT))?;
        // SAFETY: same.
        unsafe { *size = bytes as i64 };
        Ok(())
    })
}

impl Inner {
    fn locks<T>(&mut self, change: impl FnOnce(&mut c_int, &mut Locks) -> T) -> T {
        let mut all = self.shared.locks.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut self.level, all.entry(self.file).or_default())
    }

    /// SQLite's levels: none, shared, reserved, pending, exclusive.
    fn take(&mut self, wish: c_int) -> Result<(), c_int> {
        self.locks(|level, locks| {
            if wish <= *level {
                return Ok(());
            }
            match wish {
                ffi::SQLITE_LOCK_SHARED => {
                    if locks.pending || locks.exclusive {
                        return Err(ffi::SQLITE_BUSY);
                    }
                    locks.shared += 1;
                }
                ffi::SQLITE_LOCK_RESERVED => {
                    if locks.reserved || locks.pending || locks.exclusive {
                        return Err(ffi::SQLITE_BUSY);
                    }
                    locks.reserved = true;
                }
                _ => {
                    if *level < ffi::SQLITE_LOCK_PENDING {
                        let others = locks.reserved && *level < ffi::SQLITE_LOCK_RESERVED;
                        if locks.pending || others {
                            return Err(ffi::SQLITE_BUSY);
                        }
                        (locks.pending, locks.reserved) = (true, true);
                        *level = ffi::SQLITE_LOCK_PENDING;
                    }
                    if locks.shared > 1 {
                        return Err(ffi::SQLITE_BUSY);
                    }
                    locks.exclusive = true;
                }
            }
            *level = wish;
            Ok(())
        })
    }

    fn release(&mut self, wish: c_int) {
        self.locks(|level, locks| {
            if *level >= ffi::SQLITE_LOCK_RESERVED && wish < ffi::SQLITE_LOCK_RESERVED {
                (locks.reserved, locks.pending, locks.exclusive) = (false, false, false);
            }
            if *level >= ffi::SQLITE_LOCK_SHARED && wish < ffi::SQLITE_LOCK_SHARED {
                locks.shared -= 1;
            }
            *level = wish.min(*level);
        });
    }
}

unsafe extern "C" fn lock(file: *mut ffi::sqlite3_file, level: c_int) -> c_int {
    // SAFETY: an open file.
    guard(|| unsafe { inner(file) }.take(level))
}

unsafe extern "C" fn unlock(file: *mut ffi::sqlite3_file, level: c_int) -> c_int {
    guard(|| {
        // SAFETY: an open file.
        unsafe { inner(file) }.release(level);
        Ok(())
    })
}

unsafe extern "C" fn check_reserved_lock(file: *mut ffi::sqlite3_file, held: *mut c_int) -> c_int {
    guard(|| {
        // SAFETY: an open file, and a number of SQLite.
        let is_held = unsafe { inner(file) }.locks(|_, locks| locks.reserved);
        // SAFETY: same.
        unsafe { *held = is_held.into() };
        Ok(())
    })
}

unsafe extern "C" fn file_control(
    _file: *mut ffi::sqlite3_file,
    _code: c_int,
    _argument: *mut c_void,
) -> c_int {
    ffi::SQLITE_NOTFOUND
}

unsafe extern "C" fn sector_size(_file: *mut ffi::sqlite3_file) -> c_int {
    4096
}

/// An IU is written as a whole or not at all, its neighbours are never touched, and a file grows after its data.
unsafe extern "C" fn device_characteristics(_file: *mut ffi::sqlite3_file) -> c_int {
    ffi::SQLITE_IOCAP_ATOMIC4K | ffi::SQLITE_IOCAP_SAFE_APPEND | ffi::SQLITE_IOCAP_POWERSAFE_OVERWRITE
}

unsafe extern "C" fn delete(vfs: *mut ffi::sqlite3_vfs, name: *const c_char, sync: c_int) -> c_int {
    guard(|| {
        // SAFETY: one of ours and a string, says SQLite.
        let (shared, name) = unsafe { (shared(vfs), text(name)?) };
        match shared.files.remove(name) {
            Err(FileError::NotFound) => return Err(ffi::SQLITE_IOERR_DELETE_NOENT),
            other => other.map_err(or(ffi::SQLITE_IOERR_DELETE))?,
        }
        if sync != 0 { shared.files.sync().map_err(or(ffi::SQLITE_IOERR_DIR_FSYNC)) } else { Ok(()) }
    })
}

unsafe extern "C" fn access(
    vfs: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    _flags: c_int,
    found: *mut c_int,
) -> c_int {
    guard(|| {
        // SAFETY: one of ours and a string, says SQLite.
        let (shared, name) = unsafe { (shared(vfs), text(name)?) };
        let is_there = shared.files.find(name).map_err(or(ffi::SQLITE_IOERR_ACCESS))?.is_some();
        // SAFETY: a number of SQLite.
        unsafe { *found = is_there.into() };
        Ok(())
    })
}

unsafe extern "C" fn full_pathname(
    _vfs: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    size: c_int,
    full: *mut c_char,
) -> c_int {
    guard(|| {
        // SAFETY: a string, and `size` bytes of SQLite.
        unsafe {
            let name = CStr::from_ptr(name).to_bytes_with_nul();
            if name.len() > size as usize || name.len() > NAME_MAX_BYTES + 1 {
                return Err(ffi::SQLITE_CANTOPEN);
            }
            std::ptr::copy_nonoverlapping(name.as_ptr().cast(), full, name.len());
        }
        Ok(())
    })
}

unsafe extern "C" fn randomness(_vfs: *mut ffi::sqlite3_vfs, len: c_int, bytes: *mut c_char) -> c_int {
    let system = system();
    // SAFETY: passed on as it came.
    unsafe { (*system).xRandomness.expect("every VFS has it")(system, len, bytes) }
}

unsafe extern "C" fn sleep(_vfs: *mut ffi::sqlite3_vfs, time_us: c_int) -> c_int {
    let system = system();
    // SAFETY: passed on as it came.
    unsafe { (*system).xSleep.expect("every VFS has it")(system, time_us) }
}

unsafe extern "C" fn current_time(_vfs: *mut ffi::sqlite3_vfs, time: *mut f64) -> c_int {
    let system = system();
    // SAFETY: passed on as it came.
    unsafe { (*system).xCurrentTime.expect("every VFS has it")(system, time) }
}

unsafe extern "C" fn last_error(_vfs: *mut ffi::sqlite3_vfs, _len: c_int, _bytes: *mut c_char) -> c_int {
    0
}
