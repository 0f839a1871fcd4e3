//! What a drive says of its own health. This call waits for the drive.

#![allow(unsafe_code, reason = "the kernel passes commands to a drive by ioctl only")]

use diecut_nvme::log_page::{SmartLog, lid};
use rustix::ioctl::{Ioctl, IoctlOutput, Opcode, ioctl, opcode};
use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::marker::PhantomData;
use zerocopy::{FromZeros, IntoBytes};

/// Get Log Page (Base 2.0 section 5.16).
const GET_LOG_PAGE: u8 = 0x02;
/// The controller, rather than a namespace of it.
const ALL_NAMESPACES: u32 = u32::MAX;
/// How long the drive may take.
const TIMEOUT_MS: u32 = 5_000;

/// `struct nvme_admin_cmd` of linux/nvme_ioctl.h.
#[repr(C)]
#[derive(Default)]
struct AdminCommand {
    opcode: u8,
    flags: u8,
    reserved: u16,
    nsid: u32,
    cdw2: u32,
    cdw3: u32,
    metadata: u64,
    address: u64,
    metadata_size_bytes: u32,
    size_bytes: u32,
    cdw10: u32,
    cdw11: u32,
    cdw12: u32,
    cdw13: u32,
    cdw14: u32,
    cdw15: u32,
    timeout_ms: u32,
    result: u32,
}

const _: () = assert!(size_of::<AdminCommand>() == 72);

/// A command, and the memory that the drive writes to.
struct Admin<'a> {
    command: AdminCommand,
    /// What `address` points to is borrowed: nobody else reads or writes it.
    data: PhantomData<&'a mut [u8]>,
}

impl<'a> Admin<'a> {
    fn reading(data: &'a mut [u8], command: AdminCommand) -> Admin<'a> {
        let (address, size_bytes) = (data.as_mut_ptr() as u64, data.len() as u32);
        Admin {
            command: AdminCommand { address, size_bytes, timeout_ms: TIMEOUT_MS, ..command },
            data: PhantomData,
        }
    }
}

// SAFETY: NVME_IOCTL_ADMIN_CMD reads and writes such a command. The drive writes `size_bytes` at `address` at most, which is memory that is borrowed for
// as long as this is.
unsafe impl Ioctl for Admin<'_> {
    /// The status of NVMe; 0 is success.
    type Output = i32;
    const IS_MUTATING: bool = true;

    fn opcode(&self) -> Opcode {
        opcode::read_write::<AdminCommand>(b'N', 0x41)
    }

    fn as_ptr(&mut self) -> *mut c_void {
        (&raw mut self.command).cast()
    }

    unsafe fn output_from_ptr(status: IoctlOutput, _: *mut c_void) -> rustix::io::Result<i32> {
        Ok(status)
    }
}

/// SMART / health information of an NVMe drive; nothing of a file, or of a drive that is none.
///
/// # Errors
/// What the kernel says; asking takes CAP_SYS_ADMIN.
pub fn smart_log(file: &File) -> io::Result<Option<SmartLog>> {
    let mut log = SmartLog::new_zeroed();
    let dwords = size_of::<SmartLog>() as u32 / 4;
    let command = AdminCommand {
        opcode: GET_LOG_PAGE,
        nsid: ALL_NAMESPACES,
        cdw10: u32::from(lid::SMART) | (dwords - 1) << 16,
        ..AdminCommand::default()
    };
    // SAFETY: see `Admin`.
    match unsafe { ioctl(file, Admin::reading(log.as_mut_bytes(), command)) } {
        Ok(0) => Ok(Some(log)),
        Ok(status) => Err(io::Error::other(format!("the drive refuses its health log: status {status:#x}"))),
        // No command of NVMe drives is known to what is under it.
        Err(rustix::io::Errno::NOTTY | rustix::io::Errno::INVAL | rustix::io::Errno::OPNOTSUPP) => Ok(None),
        Err(error) => Err(error.into()),
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
