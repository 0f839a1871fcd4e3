//! Codes, the text of a thread's last failure, and the border that no panic crosses.

use diecut_blockspace::wire::Status;
use diecut_blockspace::{AttachError, BlockError};
use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Codes of the library itself; smaller ones are those of [`Status`].
pub const SERVER_GONE: c_int = 100;
/// See `diecut.h`.
pub const NO_SERVER: c_int = 101;
/// See `diecut.h`.
pub const SYSTEM: c_int = 102;
/// See `diecut.h`.
pub const TOO_SMALL: c_int = 103;
/// See `diecut.h`.
pub const INTERNAL: c_int = 104;

/// A call that did not work: code and text.
#[derive(Debug)]
pub struct Failure {
    code: c_int,
    text: String,
}

impl Failure {
    /// An argument that the header does not allow.
    pub fn argument(text: &str) -> Failure {
        Failure { code: Status::Invalid as c_int, text: text.to_owned() }
    }
    /// An array that is too short.
    pub fn too_small(text: String) -> Failure {
        Failure { code: TOO_SMALL, text }
    }
}

impl From<BlockError> for Failure {
    fn from(error: BlockError) -> Failure {
        let code = match error {
            BlockError::Status(status) => status as c_int,
            BlockError::ServerGone => SERVER_GONE,
        };
        Failure { code, text: error.to_string() }
    }
}

impl From<AttachError> for Failure {
    fn from(error: AttachError) -> Failure {
        let code = match &error {
            AttachError::Refused { status, .. } => *status as c_int,
            AttachError::System(_) => SYSTEM,
            AttachError::NoServer => NO_SERVER,
        };
        Failure { code, text: error.to_string() }
    }
}

thread_local! {
    static TEXT: RefCell<CString> = RefCell::default();
}

fn remember(text: &str) {
    let text = CString::new(text.replace('\0', " ")).unwrap_or_default();
    // A thread that is ending has no place for it any more.
    let _ = TEXT.try_with(|place| *place.borrow_mut() = text);
}

/// The text of this thread's last failure.
pub fn text() -> *const c_char {
    TEXT.try_with(|text| text.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

/// What a code means.
pub fn text_of(code: c_int) -> &'static CStr {
    match code {
        0 => c"done",
        1 => c"no free erase block on this unit",
        2 => c"the erase block is not allocated",
        3 => c"the data cannot be read back",
        4 => c"nothing was appended there",
        5 => c"the program failed: append to another erase block and free this one",
        6 => c"the die under this unit does not answer",
        7 => c"the vSSD is read-only: its reserve of good erase blocks is used up",
        8 => c"the device has no power",
        9 => c"an argument is out of range",
        10 => c"the append does not fit into the rest of the erase block",
        11 => c"say first which erase blocks to keep",
        12 => c"the erase block has appends under way",
        13 => c"there is no such vSSD for this user",
        14 => c"another application holds the vSSD",
        15 => c"the server speaks another version",
        16 => c"the device has no room at present: the file system it lies on is full",
        SERVER_GONE => c"the server is gone",
        NO_SERVER => c"the other end of the socket is no diecut server of this version",
        SYSTEM => c"the operating system refused something",
        TOO_SMALL => c"the array is too short for the answer",
        INTERNAL => c"a bug of the library",
        _ => c"a code that this version of the library does not know",
    }
}

/// Runs the body of a call: no panic leaves it, and a failure leaves its text.
pub fn guard(body: impl FnOnce() -> Result<(), Failure>) -> c_int {
    // Whatever a panic left half done is not looked at again: `Client` takes its lock for a few lines that do not panic.
    let failure = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => return Status::Done as c_int,
        Ok(Err(failure)) => failure,
        Err(panic) => Failure { code: INTERNAL, text: format!("a bug of the library: {}", said(&*panic)) },
    };
    remember(&failure.text);
    failure.code
}

fn said(panic: &(dyn Any + Send)) -> &str {
    let owned = panic.downcast_ref::<String>().map(String::as_str);
    owned.or(panic.downcast_ref::<&str>().copied()).unwrap_or("it does not say what")
}

#[cfg(test)]
mod test {
    use super::*;

    fn last() -> String {
        // SAFETY: a text that this thread keeps until its next failure.
        unsafe { CStr::from_ptr(text()) }.to_str().unwrap().to_owned()
    }

    #[test]
    fn panics_end_at_the_border_and_texts_belong_to_threads() {
        assert_eq!(last(), "");
        assert_eq!(guard(|| panic!("planted {}", 7)), INTERNAL);
        assert_eq!(last(), "a bug of the library: planted 7");
        assert_eq!(guard(|| Ok(())), 0);
        assert_eq!(last(), "a bug of the library: planted 7", "stays until the next failure");
        std::thread::scope(|scope| {
            scope.spawn(|| assert_eq!(last(), ""));
        });
        assert_eq!(guard(|| Err(Failure::argument("x\0y"))), 9);
        assert_eq!(last(), "x y");
    }

    #[test]
    fn codes_of_the_server_have_the_texts_of_the_server() {
        for code in 0..=16 {
            let status = Status::from_code(code).unwrap();
            assert_eq!(text_of(code.into()).to_str().unwrap(), status.text());
        }
        assert_eq!(Status::from_code(17), None, "a new one needs a place in diecut.h");
    }
}
