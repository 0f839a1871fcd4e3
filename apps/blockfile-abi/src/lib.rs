//! The C interface of files on erase blocks: what `include/diecut_files.h` promises, over [`diecut_blockfile`].
//!
//! Place in the flow: in the process of an application, between a plug-in in C or C++ (RocksDB's `FileSystem` in
//! `apps/rocksdb`, LevelDB's `Env` in `apps/leveldb`) and the store of files, which appends to erase blocks or zones.
//!
//! Invariants: no panic crosses the border, and pointers that may not be NULL are checked for it. A handle is a box that C code
//! holds.
//!
//! What it does not know: who calls, and what a file is made of.

#![deny(clippy::unwrap_used)]

use diecut_blockfile::medium::{self, MediumError};
use diecut_blockfile::{FileError, FileId, Files};
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// `diecut_files`.
pub struct DiecutFiles(Files);

/// `diecut_files_statistics`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "see diecut_files.h")]
pub struct DiecutFilesStatistics {
    pub written_bytes: u64,
    pub appended_bytes: u64,
    pub cleaned_bytes: u64,
    pub cleaned_inside_bytes: u64,
    pub checkpoints: u64,
    pub freed_blocks: u64,
    pub live_bytes: u64,
    pub capacity_bytes: u64,
}

/// `diecut_files_info_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "see diecut_files.h")]
pub struct DiecutFilesInfo {
    pub size_bytes: u64,
    pub modified_seconds: i64,
    pub modified_nanoseconds: u32,
    pub links: u32,
}

const INVALID: c_int = 5;
const FAILED: c_int = 6;
const INTERNAL: c_int = 7;

struct Failure {
    code: c_int,
    text: String,
}

fn invalid(text: &str) -> Failure {
    Failure { code: INVALID, text: text.to_owned() }
}

impl From<FileError> for Failure {
    fn from(error: FileError) -> Failure {
        let code = match error {
            FileError::NotFound => 1,
            FileError::Exists => 2,
            FileError::NoSpace => 3,
            FileError::NotEmpty => 4,
            FileError::NotFolder => 8,
            FileError::IsFolder => 9,
            FileError::Name | FileError::NotFile | FileError::Inside | FileError::TooManyLinks => INVALID,
            FileError::Block(_)
            | FileError::Failed
            | FileError::NotFormatted
            | FileError::Version { .. }
            | FileError::Damaged(_) => FAILED,
        };
        Failure { code, text: error.to_string() }
    }
}

impl From<MediumError> for Failure {
    fn from(error: MediumError) -> Failure {
        Failure { code: FAILED, text: error.to_string() }
    }
}

thread_local! {
    static TEXT: RefCell<CString> = RefCell::default();
}

/// Runs the body of a call: no panic leaves it, and a failure leaves its text.
fn guard(body: impl FnOnce() -> Result<(), Failure>) -> c_int {
    // A panic with the store's lock held leaves it failed, which later calls say.
    let failure = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => return 0,
        Ok(Err(failure)) => failure,
        Err(_) => {
            Failure { code: INTERNAL, text: "a bug of the library; its message was printed".to_owned() }
        }
    };
    let text = CString::new(failure.text.replace('\0', " ")).unwrap_or_default();
    // A thread that is ending has no place for it any more.
    let _ = TEXT.try_with(|place| *place.borrow_mut() = text);
    failure.code
}

fn there<T>(pointer: Option<T>) -> Result<T, Failure> {
    pointer.ok_or_else(|| invalid("an argument is NULL"))
}

fn store(files: Option<&DiecutFiles>) -> Result<&Files, Failure> {
    Ok(&there(files)?.0)
}

/// # Safety
/// `text` is NULL or a string with an end that lives as long as the result is used.
unsafe fn string<'a>(text: *const c_char) -> Result<&'a str, Failure> {
    if text.is_null() {
        return Err(invalid("a name is NULL"));
    }
    // SAFETY: promised by the caller.
    unsafe { CStr::from_ptr(text) }.to_str().map_err(|_| invalid("a name is not UTF-8"))
}

#[unsafe(no_mangle)]
extern "C" fn diecut_files_error() -> *const c_char {
    TEXT.try_with(|text| text.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn diecut_files_attach(
    socket: *const c_char,
    vssd: *const c_char,
    files: Option<&mut MaybeUninit<Box<DiecutFiles>>>,
) -> c_int {
    guard(|| {
        let place = there(files)?;
        // SAFETY: strings, says the header.
        let (socket, vssd) = unsafe { (string(socket)?, string(vssd)?) };
        place.write(Box::new(DiecutFiles(Files::open_or_format(medium::attach(vssd, socket)?)?)));
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn diecut_files_detach(files: Option<Box<DiecutFiles>>) {
    guard(|| {
        drop(files);
        Ok(())
    });
}

fn hint_of(hint: u32) -> u8 {
    u8::try_from(hint).unwrap_or(u8::MAX)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn diecut_files_create(
    files: Option<&DiecutFiles>,
    name: *const c_char,
    hint: u32,
    file: Option<&mut MaybeUninit<u64>>,
) -> c_int {
    guard(|| {
        // SAFETY: a string, says the header.
        let (name, place) = (unsafe { string(name)? }, there(file)?);
        place.write(store(files)?.create(name, hint_of(hint))?.0);
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn diecut_files_find(
    files: Option<&DiecutFiles>,
    name: *const c_char,
    file: Option<&mut MaybeUninit<u64>>,
) -> c_int {
    guard(|| {
        // SAFETY: a string, says the header.
        let (name, place) = (unsafe { string(name)? }, there(file)?);
        place.write(store(files)?.find(name)?.ok_or(FileError::NotFound)?.0);
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn diecut_files_remove(files: Option<&DiecutFiles>, name: *const c_char) -> c_int {
    // SAFETY: a string, says the header.
    guard(|| Ok(store(files)?.remove(unsafe { string(name)? })?))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn diecut_files_rename(
    files: Option<&DiecutFiles>,
    from: *const c_char,
    to: *const c_char,
) -> c_int {
    // SAFETY: strings, says the header.
    guard(|| Ok(store(files)?.rename(unsafe { string(from)? }, unsafe { string(to)? })?))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn diecut_files_link(
    files: Option<&DiecutFiles>,
    from: *const c_char,
    to: *const c_char,
) -> c_int {
    // SAFETY: strings, says the header.
    guard(|| Ok(store(files)?.link_path(unsafe { string(from)? }, unsafe { string(to)? })?))
}

#[unsafe(no_mangle)]
extern "C" fn diecut_files_info(
    files: Option<&DiecutFiles>,
    file: u64,
    info: Option<&mut MaybeUninit<DiecutFilesInfo>>,
) -> c_int {
    guard(|| {
        let known = store(files)?.metadata(FileId(file))?;
        there(info)?.write(DiecutFilesInfo {
            size_bytes: known.size_bytes,
            modified_seconds: known.attributes.modified.seconds,
            modified_nanoseconds: known.attributes.modified.nanoseconds,
            links: known.links,
        });
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn diecut_files_set_hint(files: Option<&DiecutFiles>, file: u64, hint: u32) -> c_int {
    guard(|| Ok(store(files)?.set_hint(FileId(file), hint_of(hint))?))
}

#[unsafe(no_mangle)]
extern "C" fn diecut_files_size(
    files: Option<&DiecutFiles>,
    file: u64,
    size: Option<&mut MaybeUninit<u64>>,
) -> c_int {
    guard(|| {
        there(size)?.write(store(files)?.size(FileId(file))?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn diecut_files_read(
    files: Option<&DiecutFiles>,
    file: u64,
    offset: u64,
    bytes: *mut c_void,
    length: usize,
    read: Option<&mut MaybeUninit<usize>>,
) -> c_int {
    guard(|| {
        let place = there(read)?;
        let bytes = there((!bytes.is_null()).then_some(bytes))?;
        // SAFETY: `length` bytes of the caller, says the header; bytes of C code are bytes, written before or not.
        let bytes = unsafe { std::slice::from_raw_parts_mut(bytes.cast::<u8>(), length) };
        place.write(store(files)?.read(FileId(file), offset, bytes)?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn diecut_files_write(
    files: Option<&DiecutFiles>,
    file: u64,
    offset: u64,
    bytes: *const c_void,
    length: usize,
) -> c_int {
    guard(|| {
        let bytes = there((!bytes.is_null()).then_some(bytes))?;
        // SAFETY: `length` bytes of the caller, says the header.
        let bytes = unsafe { std::slice::from_raw_parts(bytes.cast::<u8>(), length) };
        Ok(store(files)?.write(FileId(file), offset, bytes)?)
    })
}

#[unsafe(no_mangle)]
extern "C" fn diecut_files_set_size(files: Option<&DiecutFiles>, file: u64, size: u64) -> c_int {
    guard(|| Ok(store(files)?.set_size(FileId(file), size)?))
}

#[unsafe(no_mangle)]
extern "C" fn diecut_files_sync(files: Option<&DiecutFiles>) -> c_int {
    guard(|| Ok(store(files)?.sync()?))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn diecut_files_make_folder(files: Option<&DiecutFiles>, folder: *const c_char) -> c_int {
    // SAFETY: a string, says the header.
    guard(|| Ok(store(files)?.make_folder(unsafe { string(folder)? })?))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn diecut_files_remove_folder(files: Option<&DiecutFiles>, folder: *const c_char) -> c_int {
    // SAFETY: a string, says the header.
    guard(|| Ok(store(files)?.remove_folder(unsafe { string(folder)? })?))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn diecut_files_find_folder(files: Option<&DiecutFiles>, folder: *const c_char) -> c_int {
    guard(|| {
        // SAFETY: a string, says the header.
        let is_there = store(files)?.has_folder(unsafe { string(folder)? })?;
        if is_there { Ok(()) } else { Err(FileError::NotFound.into()) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn diecut_files_children(
    files: Option<&DiecutFiles>,
    folder: *const c_char,
    visit: Option<extern "C" fn(*mut c_void, *const c_char, c_int)>,
    context: *mut c_void,
) -> c_int {
    guard(|| {
        let visit = there(visit)?;
        // SAFETY: a string, says the header.
        for child in store(files)?.children(unsafe { string(folder)? })? {
            let name = CString::new(child.name).map_err(|_| invalid("a name has a zero"))?;
            visit(context, name.as_ptr(), child.is_folder.into());
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn diecut_files_get_statistics(
    files: Option<&DiecutFiles>,
    statistics: Option<&mut MaybeUninit<DiecutFilesStatistics>>,
) -> c_int {
    guard(|| {
        let known = store(files)?.statistics()?;
        there(statistics)?.write(DiecutFilesStatistics {
            written_bytes: known.written_bytes,
            appended_bytes: known.appended_bytes,
            cleaned_bytes: known.cleaned_bytes,
            cleaned_inside_bytes: known.cleaned_inside_bytes,
            checkpoints: known.checkpoints,
            freed_blocks: known.freed_blocks,
            live_bytes: known.live_bytes,
            capacity_bytes: known.capacity_bytes,
        });
        Ok(())
    })
}
