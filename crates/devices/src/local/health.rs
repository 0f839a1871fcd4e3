//! What a drive says of its own health. This call waits for the drive.

use super::nvme::Passed;
use diecut_nvme::log_page::{SmartLog, lid};
use diecut_nvme::opcode::admin;
use std::fs::File;
use std::io;
use zerocopy::{FromZeros, IntoBytes};

/// The controller, rather than a namespace of it.
const ALL_NAMESPACES: u32 = u32::MAX;

/// SMART / health information of an NVMe drive; nothing of a file, or of a drive that is none.
///
/// # Errors
/// What the kernel says; asking takes CAP_SYS_ADMIN.
pub fn smart_log(file: &File) -> io::Result<Option<SmartLog>> {
    let mut log = SmartLog::new_zeroed();
    let dwords = size_of::<SmartLog>() as u32 / 4;
    let cdw10 = u32::from(lid::SMART) | (dwords - 1) << 16;
    let asked = Passed { opcode: admin::GET_LOG_PAGE, nsid: ALL_NAMESPACES, cdw10, ..Passed::default() };
    let Some(status) = asked.ask(file, log.as_mut_bytes())? else { return Ok(None) };
    match status {
        0 => Ok(Some(log)),
        _ => Err(io::Error::other(format!("the drive refuses its health log: status {status:#x}"))),
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn a_file_says_nothing_of_its_health() {
        let file = tempfile::tempfile().unwrap();
        assert!(smart_log(&file).unwrap().is_none());
    }
}
