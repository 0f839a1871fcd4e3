//! How a host has erased what it wrote, over its admin queue: Format NVM with an erase of user data, or Sanitize. A sanitize is looked after
//! until its log says how it ended; a host that connects again after a restart finds it going on.

use diecut_nvme::admin::{FormatNvm, GetLogPage};
use diecut_nvme::log_page::lid;
use diecut_nvme::sanitize::{Sanitize, SanitizeLog, action};
use diecut_nvme::{Status, SubmissionEntry, opcode};
use zerocopy::FromBytes;

/// What is to be erased.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Erase {
    /// A namespace.
    Format {
        /// Its NSID.
        nsid: u32,
    },
    /// All namespaces of the subsystem.
    Sanitize {
        /// It was answered already, before the server went: it must not have been forgotten.
        begun: bool,
    },
}

/// What comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// The command that erases.
    Ask,
    /// The log of sanitize operations.
    Look,
}

/// See the module; one erasure of one host.
#[derive(Clone, Debug)]
pub struct Erasure {
    what: Erase,
    next: Next,
    is_under_way: bool,
    has_begun: bool,
    result: Option<Result<(), String>>,
}

impl Erasure {
    /// One that nothing was sent for.
    pub fn of(what: Erase) -> Erasure {
        let next = if matches!(what, Erase::Format { .. }) { Next::Ask } else { Next::Look };
        let has_begun = what == Erase::Sanitize { begun: true };
        Erasure { what, next, is_under_way: false, has_begun, result: None }
    }

    /// How it ended.
    pub fn result(&self) -> Option<Result<(), String>> {
        self.result.clone()
    }

    /// Whether a sanitize was answered: it is carried out whatever comes.
    pub fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// Whether a command is to be sent.
    pub fn is_due(&self) -> bool {
        !self.is_under_way && self.result.is_none()
    }

    /// The command, and the bytes that it brings.
    pub fn command(&mut self) -> (SubmissionEntry, u32) {
        self.is_under_way = true;
        let mut entry = SubmissionEntry::default();
        match (self.next, self.what) {
            (Next::Look, _) => {
                entry.opcode = opcode::admin::GET_LOG_PAGE;
                let size_bytes = size_of::<SanitizeLog>() as u64;
                GetLogPage::of(lid::SANITIZE_STATUS, size_bytes).encode(&mut entry);
                return (entry, size_bytes as u32);
            }
            (Next::Ask, Erase::Format { nsid }) => {
                entry.opcode = opcode::admin::FORMAT_NVM;
                entry.nsid = nsid.into();
                let erase = FormatNvm::USER_DATA_ERASE;
                FormatNvm {
                    lba_format: 0,
                    has_metadata: false,
                    protection: 0,
                    protection_first: false,
                    erase,
                }
                .encode(&mut entry);
            }
            (Next::Ask, Erase::Sanitize { .. }) => {
                entry.opcode = opcode::admin::SANITIZE;
                let sanitize =
                    Sanitize { action: action::BLOCK_ERASE, unrestricted: true, ..Sanitize::default() };
                sanitize.encode(&mut entry);
            }
        }
        (entry, 0)
    }

    /// The command was answered.
    pub fn answered(&mut self, status: Status, page: &[u8]) {
        self.is_under_way = false;
        if !status.is_success() {
            self.result = Some(Err(status.to_string()));
            return;
        }
        match (self.next, self.what) {
            (Next::Ask, Erase::Format { .. }) => self.result = Some(Ok(())),
            (Next::Ask, Erase::Sanitize { .. }) => (self.has_begun, self.next) = (true, Next::Look),
            (Next::Look, _) => {
                let log = SanitizeLog::read_from_bytes(page).expect("a whole page");
                match (log.sstat.get() & 7, self.has_begun) {
                    // In progress.
                    (2, _) => {}
                    (1, true) => self.result = Some(Ok(())),
                    (state, true) => {
                        self.result =
                            Some(Err(format!("a sanitize that was answered has the state {state}")));
                    }
                    (_, false) => self.next = Next::Ask,
                }
            }
        }
    }
}
