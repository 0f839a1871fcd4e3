//! Placement handles of an NVMe drive (Flexible Data Placement), and how writes name them: a write to a block device has no place for one, so these go past the
//! block layer, to the generic device of the namespace.

use super::nvme::{Passed, namespace_id};
use super::sysfs::Sysfs;
use diecut_nvme::fdp::{
    DIRECTIVE_DATA_PLACEMENT, HandleStatus, IoManagementReceive, PlacementIds, STATUS_HEADER_SIZE_BYTES,
    parse_status,
};
use diecut_nvme::identify::{CTRATT_DATA_PLACEMENT, IdentifyController, IdentifyNamespace};
use diecut_nvme::opcode::{admin, io as opcode};
use rustix::ioctl::opcode::read_write;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use zerocopy::{FromZeros, IntoBytes};

/// A piece of memory that the kernel transfers from lies in one page.
const PAGE_BYTES: u64 = 4096;

/// `struct nvme_uring_cmd` of linux/nvme_ioctl.h in the 80 bytes that a command of an io_uring has.
#[repr(C)]
#[derive(Default, IntoBytes, zerocopy::Immutable)]
struct RingCommand {
    opcode: u8,
    flags: u8,
    reserved: u16,
    nsid: u32,
    cdw2: u32,
    cdw3: u32,
    metadata: u64,
    address: u64,
    metadata_size_bytes: u32,
    /// Bytes, or parts in the list that `address` points to.
    len: u32,
    cdw10: u32,
    cdw11: u32,
    cdw12: u32,
    cdw13: u32,
    cdw14: u32,
    cdw15: u32,
    timeout_ms: u32,
    reserved_too: u32,
    rest: u64,
}

/// What a write takes its bytes from.
#[derive(Clone, Copy, Debug)]
pub enum WriteFrom {
    /// Bytes at an address, one behind the other.
    Memory {
        /// Where they begin.
        address: u64,
        /// How many there are.
        len_bytes: u32,
    },
    /// A list of parts (`struct iovec`).
    Parts {
        /// Where the list begins.
        address: u64,
        /// How many parts it has.
        count: u32,
        /// Bytes of all of them.
        len_bytes: u32,
    },
}

/// Placement handles of a drive, and the way to write with one of them.
#[derive(Debug)]
pub struct Placement {
    /// The generic device of the namespace.
    file: File,
    nsid: u32,
    lba_bytes: u64,
    transfer_bytes_max: u32,
    ids: PlacementIds,
}

impl Placement {
    /// Of a block device that is open; `None` where there is no choice of handles.
    ///
    /// # Errors
    /// In words, if there is one, and it cannot be used.
    pub(super) fn of(file: &File, can_write: bool) -> Result<Option<Placement>, String> {
        let refused = |what: &'static str| move |error: io::Error| format!("{what}: {error}");
        let Some(nsid) = namespace_id(file) else { return Ok(None) };
        let device = file.metadata().map_err(refused("it cannot be examined"))?.rdev();
        let sysfs = Sysfs::of(device);
        if sysfs.is_partition() {
            // The kernel passes nothing to a part of a drive.
            return Ok(None);
        }
        if !places_data(file).map_err(refused("its controller cannot be asked"))? {
            return Ok(None);
        }
        let ids = handles_of(file, nsid).map_err(refused("its placement handles cannot be asked for"))?;
        if ids.handles() == 0 {
            return Ok(None);
        }
        let lba_bytes = lba_bytes(file, nsid).map_err(refused("its namespace cannot be asked"))?;
        let lba_bytes = lba_bytes.ok_or("its blocks have metadata")?;
        let file = generic_device(&sysfs, can_write)?;
        if namespace_id(&file) != Some(nsid) {
            return Err("its generic device is one of another namespace".to_owned());
        }
        let transfers = sysfs.queue("max_hw_sectors_kb").unwrap_or(4).saturating_mul(1024);
        // Memory may lie in single pages, and begin within one.
        let segments = (sysfs.queue("max_segments").unwrap_or(2) / 2).max(1) * PAGE_BYTES;
        let max = transfers.min(segments) / PAGE_BYTES * PAGE_BYTES;
        Ok(Some(Placement {
            file,
            nsid,
            lba_bytes,
            transfer_bytes_max: max.max(lba_bytes).try_into().unwrap_or(u32::MAX),
            ids,
        }))
    }

    /// Handles that there are: 2 or more.
    pub fn handles(&self) -> u16 {
        self.ids.handles()
    }

    /// What an io_uring is to have open.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Bytes of one write at most: nobody divides what goes past the block layer.
    pub fn transfer_bytes_max(&self) -> u32 {
        self.transfer_bytes_max
    }

    /// Which command of a file it is, and the command, for an io_uring whose entries have 128 bytes and whose completions 32: a write (NVM 1.0
    /// section 3.2.6) with the directive of data placement.
    ///
    /// # Panics
    /// If it is not made of whole LBAs, or longer than [`Placement::transfer_bytes_max`].
    pub fn write(&self, offset: u64, from: WriteFrom, handle: u16) -> (u32, [u8; 80]) {
        let (number, address, len, len_bytes) = match from {
            WriteFrom::Memory { address, len_bytes } => (0x80, address, len_bytes, len_bytes),
            WriteFrom::Parts { address, count, len_bytes } => (0x81, address, count, len_bytes),
        };
        let is_whole = offset.is_multiple_of(self.lba_bytes)
            && u64::from(len_bytes).is_multiple_of(self.lba_bytes)
            && (1..=self.transfer_bytes_max).contains(&len_bytes);
        assert!(is_whole, "{len_bytes} bytes at {offset} are no write of whole LBAs");
        let (lba, count) = (offset / self.lba_bytes, u64::from(len_bytes) / self.lba_bytes);
        let pid = self.ids.pid(handle, offset).expect("it has handles");
        let command = RingCommand {
            opcode: opcode::WRITE,
            nsid: self.nsid,
            address,
            len,
            cdw10: lba as u32,
            cdw11: (lba >> 32) as u32,
            cdw12: (count - 1) as u32 | u32::from(DIRECTIVE_DATA_PLACEMENT) << 20,
            cdw13: u32::from(pid) << 16,
            ..RingCommand::default()
        };
        let mut bytes = [0; 80];
        bytes.copy_from_slice(command.as_bytes());
        // `_IOWR('N', number, struct nvme_uring_cmd)`, of 72 bytes.
        (read_write::<[u64; 9]>(b'N', number), bytes)
    }
}

/// Whether the controller has data placement at all. One that has not complains in the kernel's log about who asks for its handles.
fn places_data(file: &File) -> io::Result<bool> {
    let mut controller = IdentifyController::new_zeroed();
    let asked = Passed { opcode: admin::IDENTIFY, cdw10: 1, ..Passed::default() };
    let status = asked.ask(file, controller.as_mut_bytes())?;
    Ok(status == Some(0) && controller.ctratt.get() & CTRATT_DATA_PLACEMENT != 0)
}

fn handles_of(file: &File, nsid: u32) -> io::Result<PlacementIds> {
    let mut few = Box::new(Page([0; PAGE_BYTES as usize]));
    if !ask_status(file, nsid, &mut few.0)? {
        return Ok(PlacementIds::default());
    }
    let count = usize::from(u16::from_le_bytes([few.0[14], few.0[15]]));
    let len_bytes = STATUS_HEADER_SIZE_BYTES + count * HandleStatus::SIZE_BYTES;
    let mut all = vec![0; len_bytes];
    match few.0.get(..len_bytes) {
        Some(told) => all.copy_from_slice(told),
        None if ask_status(file, nsid, &mut all)? => {}
        None => all.clear(),
    }
    Ok(PlacementIds::of(&parse_status(&all).unwrap_or_default()))
}

/// A page of memory. Of memory in two pages that it would not fill to its end a drive may say that it is too long.
#[repr(C, align(4096))]
struct Page([u8; PAGE_BYTES as usize]);

/// The status of the namespace's handles, as far as there is room. `false`: it says an error, because it has data placement disabled.
fn ask_status(file: &File, nsid: u32, page: &mut [u8]) -> io::Result<bool> {
    let asked = Passed {
        opcode: opcode::IO_MANAGEMENT_RECEIVE,
        nsid,
        cdw10: IoManagementReceive::HANDLE_STATUS.into(),
        cdw11: page.len() as u32 / 4 - 1,
        ..Passed::default()
    };
    Ok(asked.ask_namespace(file, page)? == Some(0))
}

/// Bytes of an LBA; `None` if it has metadata, which a write would have to bring along.
fn lba_bytes(file: &File, nsid: u32) -> io::Result<Option<u64>> {
    let mut namespace = IdentifyNamespace::new_zeroed();
    let asked = Passed { opcode: admin::IDENTIFY, nsid, ..Passed::default() };
    match asked.ask(file, namespace.as_mut_bytes())? {
        Some(0) => {}
        status => return Err(io::Error::other(format!("status {:#x}", status.unwrap_or(-1)))),
    }
    // FLBAS: bits 3:0, and bits 6:5 above them.
    let format = namespace.lbaf[usize::from(namespace.flbas & 0xF | (namespace.flbas >> 5 & 0b11) << 4)];
    let plain = format.metadata_size_bytes.get() == 0 && (9..=12).contains(&format.lba_size_log2);
    Ok(plain.then(|| 1 << format.lba_size_log2))
}

/// Opens the character device that takes any command of the namespace: "ng" for "nvme" in its name.
fn generic_device(sysfs: &Sysfs, can_write: bool) -> Result<File, String> {
    let name = sysfs.drive_name();
    let number = name.strip_prefix("nvme").ok_or_else(|| format!("{name} has no name of an NVMe drive"))?;
    let path = Path::new("/dev").join(format!("ng{number}"));
    let file = OpenOptions::new().read(true).write(can_write).open(&path).map_err(|error| {
        format!("{} cannot be opened ({error}), and a block device takes no handle", path.display())
    })?;
    let device =
        file.metadata().map_err(|error| format!("{} cannot be examined: {error}", path.display()))?;
    let is = (rustix::fs::major(device.rdev()), rustix::fs::minor(device.rdev()));
    match super::sysfs::generic_number(&format!("ng{number}")) {
        Some(told) if told == is => Ok(file),
        _ => Err(format!("{} is another device than the kernel says", path.display())),
    }
}

#[cfg(test)]
mod test {
    use super::*;

    /// Goal: the bytes of a write with a handle. Source: NVM Command Set 1.0 section 3.2.6, Base 2.1 section 8.1.8 (DTYPE 2, DSPEC is the placement identifier),
    /// linux/nvme_ioctl.h.
    #[test]
    fn the_bytes_of_a_placed_write() {
        let told = [(0, 0), (7, 3), (9, 5)].map(|(pid, handle)| HandleStatus::new(pid, handle, 0));
        let placement = Placement {
            file: tempfile::tempfile().unwrap(),
            nsid: 2,
            lba_bytes: 512,
            transfer_bytes_max: 1 << 16,
            ids: PlacementIds::of(&told),
        };
        let from = WriteFrom::Memory { address: 0x1122_3344_5566_7788, len_bytes: 8192 };
        let (operation, bytes) = placement.write(1 << 41, from, 1);
        assert_eq!(operation, 0xC048_4E80, "_IOWR('N', 0x80, 72 bytes)");
        assert_eq!(bytes[..8], [1, 0, 0, 0, 2, 0, 0, 0]);
        assert_eq!(bytes[24..36], [0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 0, 0, 0, 0]);
        assert_eq!(bytes[36..40], 8192u32.to_le_bytes());
        assert_eq!(bytes[40..48], ((1u64 << 41) / 512).to_le_bytes(), "SLBA");
        assert_eq!(bytes[48..56], [15, 0, 0x20, 0, 0, 0, 7, 0], "NLB, DTYPE, DSPEC");
        assert_eq!(bytes[56..], [0; 24]);
        let from = WriteFrom::Parts { address: 8, count: 3, len_bytes: 8192 };
        let (operation, bytes) = placement.write(0, from, 5);
        assert_eq!((operation, bytes[36], bytes[54]), (0xC048_4E81, 3, 9), "handles begin anew");
    }

    #[test]
    fn a_file_has_no_handles() {
        assert!(Placement::of(&tempfile::tempfile().unwrap(), true).unwrap().is_none());
    }
}
