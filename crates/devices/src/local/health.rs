//! What a drive says of its own health. This call waits for the drive.

use super::nvme::Passed;
use diecut_nvme::log_page::{SmartLog, lid};
use diecut_nvme::opcode::admin;
use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
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

/// How large a file or a block device is now.
///
/// # Errors
/// What the kernel says.
pub fn size_bytes(mut file: &File) -> io::Result<u64> {
    file.seek(SeekFrom::End(0))
}

/// What happened to a file or a block device that is open, in words: it is smaller than it was, or deleted.
pub fn damage(file: &File, size_bytes_before: u64) -> Option<String> {
    let now = size_bytes(file);
    let is_deleted = |metadata: &std::fs::Metadata| metadata.is_file() && metadata.nlink() == 0;
    match now {
        Err(error) => Some(format!("does not say how large it is any more: {error}")),
        Ok(now) if now < size_bytes_before => Some(format!(
            "has {now} bytes now, and had {size_bytes_before} when it was opened: what lay beyond is lost"
        )),
        Ok(_) if file.metadata().as_ref().is_ok_and(is_deleted) => {
            Some("was deleted: all that lies there is lost when the server ends".to_owned())
        }
        Ok(_) => None,
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

    #[test]
    fn a_file_that_is_cut_or_deleted_is_damaged() {
        let named = tempfile::NamedTempFile::new().unwrap();
        named.as_file().set_len(8192).unwrap();
        let file = named.reopen().unwrap();
        assert_eq!((size_bytes(&file).unwrap(), damage(&file, 8192)), (8192, None));
        file.set_len(12288).unwrap();
        assert_eq!(damage(&file, 8192), None, "it may grow");
        file.set_len(4096).unwrap();
        assert!(damage(&file, 8192).unwrap().starts_with("has 4096 bytes now, and had 8192"));
        file.set_len(8192).unwrap();
        named.close().unwrap();
        assert!(damage(&file, 8192).unwrap().starts_with("was deleted"));
    }
}
