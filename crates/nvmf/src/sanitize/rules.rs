//! Which admin commands are let through while a sanitize operation goes on, and after one failed (Base 2.0 section 8.20). I/O commands are
//! not, Flush among them.

use diecut_nvme::admin::GetLogPage;
use diecut_nvme::log_page::lid;
use diecut_nvme::opcode::{self, admin};
use diecut_nvme::{Status, SubmissionEntry};
use diecut_units::mutant;

/// The first page that is vendor specific.
const VENDOR_PAGES: u8 = 0xC0;

/// Refuses a command that is not let through. `refusal` is what such commands are told, if any are.
pub(crate) fn lets_admin_through(refusal: Option<Status>, entry: &SubmissionEntry) -> Result<(), Status> {
    match refusal {
        Some(status) if !is_let_through(entry) => Err(status),
        _ => Ok(()),
    }
}

fn is_let_through(entry: &SubmissionEntry) -> bool {
    match entry.opcode {
        admin::GET_LOG_PAGE => is_page_let_through(GetLogPage::decode(entry).page),
        // What it may do itself is known where it is carried out.
        admin::SANITIZE => true,
        admin::FORMAT_NVM => mutant!("nvmf: a namespace is formatted while it is sanitized"),
        admin::IDENTIFY
        | admin::ABORT
        | admin::SET_FEATURES
        | admin::GET_FEATURES
        | admin::ASYNCHRONOUS_EVENT_REQUEST
        | admin::KEEP_ALIVE
        | opcode::FABRICS => true,
        _ => false,
    }
}

/// The specification's list and vendor specific pages. Supported pages, effects and the state of paths say nothing of user data, and a host
/// that connects reads them.
fn is_page_let_through(page: u8) -> bool {
    page >= VENDOR_PAGES
        || matches!(
            page,
            lid::ERROR_INFORMATION
                | lid::SMART
                | lid::CHANGED_NAMESPACES
                | lid::RESERVATION
                | lid::SANITIZE_STATUS
                | lid::SUPPORTED_PAGES
                | lid::FIRMWARE_SLOT
                | lid::COMMAND_EFFECTS
                | lid::ASYMMETRIC_NAMESPACE_ACCESS
        )
}
