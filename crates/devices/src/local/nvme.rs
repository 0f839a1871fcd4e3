//! NVMe commands that the kernel passes to a drive as they are. These calls wait for the drive.

#![allow(unsafe_code, reason = "the kernel passes commands to a drive by ioctl only")]

use rustix::ioctl::{Ioctl, IoctlOutput, Opcode, ioctl, opcode};
use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::marker::PhantomData;

/// How long the drive may take.
const TIMEOUT_MS: u32 = 5_000;

/// `struct nvme_passthru_cmd` of linux/nvme_ioctl.h, which is that of an admin command, too.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct Passed {
    pub opcode: u8,
    pub flags: u8,
    pub reserved: u16,
    pub nsid: u32,
    pub cdw2: u32,
    pub cdw3: u32,
    pub metadata: u64,
    pub address: u64,
    pub metadata_size_bytes: u32,
    pub size_bytes: u32,
    pub cdw10: u32,
    pub cdw11: u32,
    pub cdw12: u32,
    pub cdw13: u32,
    pub cdw14: u32,
    pub cdw15: u32,
    pub timeout_ms: u32,
    pub result: u32,
}

const _: () = assert!(size_of::<Passed>() == 72);

impl Passed {
    /// Asks the controller for what fills `data`. The status of NVMe, where 0 is success; `None` if what is asked is no NVMe drive.
    pub fn ask(self, file: &File, data: &mut [u8]) -> io::Result<Option<i32>> {
        self.pass::<0x41>(file, data)
    }

    /// The same of a namespace, with a command that goes to its queues.
    pub fn ask_namespace(self, file: &File, data: &mut [u8]) -> io::Result<Option<i32>> {
        self.pass::<0x43>(file, data)
    }

    fn pass<const NUMBER: u8>(self, file: &File, data: &mut [u8]) -> io::Result<Option<i32>> {
        let (address, size_bytes) = (data.as_mut_ptr() as u64, data.len() as u32);
        let command = Passed { address, size_bytes, timeout_ms: TIMEOUT_MS, ..self };
        // SAFETY: see `Asking`.
        match unsafe { ioctl(file, Asking::<NUMBER> { command, data: PhantomData }) } {
            Ok(status) => Ok(Some(status)),
            // No command of NVMe drives is known to what is under it.
            Err(rustix::io::Errno::NOTTY | rustix::io::Errno::INVAL | rustix::io::Errno::OPNOTSUPP) => {
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// A command, and the memory that the drive writes to.
struct Asking<'a, const NUMBER: u8> {
    command: Passed,
    /// What `address` points to is borrowed: nobody else reads or writes it.
    data: PhantomData<&'a mut [u8]>,
}

// SAFETY: NVME_IOCTL_ADMIN_CMD (41h) and NVME_IOCTL_IO_CMD (43h) read and write such a command. The drive writes `size_bytes` at `address` at most, which is
// memory that is borrowed for as long as this is.
unsafe impl<const NUMBER: u8> Ioctl for Asking<'_, NUMBER> {
    /// The status of NVMe; 0 is success.
    type Output = i32;
    const IS_MUTATING: bool = true;

    fn opcode(&self) -> Opcode {
        opcode::read_write::<Passed>(b'N', NUMBER)
    }

    fn as_ptr(&mut self) -> *mut c_void {
        (&raw mut self.command).cast()
    }

    unsafe fn output_from_ptr(status: IoctlOutput, _: *mut c_void) -> rustix::io::Result<i32> {
        Ok(status)
    }
}

/// NVME_IOCTL_ID.
struct NamespaceId;

// SAFETY: it has no memory, and answers with the number.
unsafe impl Ioctl for NamespaceId {
    type Output = u32;
    const IS_MUTATING: bool = false;

    fn opcode(&self) -> Opcode {
        opcode::none(b'N', 0x40)
    }

    fn as_ptr(&mut self) -> *mut c_void {
        std::ptr::null_mut()
    }

    unsafe fn output_from_ptr(nsid: IoctlOutput, _: *mut c_void) -> rustix::io::Result<u32> {
        Ok(nsid as u32)
    }
}

/// The number of an NVMe namespace; `None` of what is none.
pub(super) fn namespace_id(file: &File) -> Option<u32> {
    // SAFETY: see `NamespaceId`.
    unsafe { ioctl(file, NamespaceId) }.ok()
}
