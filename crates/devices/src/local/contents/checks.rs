//! What one comparison of bytes does not tell.

use super::found::{Class, Found, add};
use super::read::Reader;
use diecut_drives::{Label, LabelCopy, LabelError};
use uuid::Uuid;

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    bytes[at..at + 2].iter().rev().fold(0, |sum, byte| sum << 8 | u16::from(*byte))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes[at..at + 4].iter().rev().fold(0, |sum, byte| sum << 8 | u32::from(*byte))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes[at..at + 8].iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

/// Text that ends with a zero or with the field, as far as it is text.
fn text_at(bytes: &[u8], at: usize, len: usize) -> Option<String> {
    let field = bytes.get(at..at + len)?;
    let field = field.split(|byte| *byte == 0).next()?;
    let text = std::str::from_utf8(field).ok()?.trim();
    (!text.is_empty() && !text.chars().any(char::is_control)).then(|| text.to_owned())
}

/// The parameters of a FAT make sense.
pub(super) fn fat(reader: &mut Reader<'_>, _offset: u64) -> bool {
    let Some(boot) = reader.bytes(0, 512) else { return false };
    let sector = u16_at(&boot, 11);
    let tables = boot[16];
    sector.is_power_of_two()
        && (512..=4096).contains(&sector)
        && boot[13].is_power_of_two()
        && u16_at(&boot, 14) != 0
        && (1..=4).contains(&tables)
}

/// A superblock of NILFS2: its revision is 2, and its length that of a superblock.
pub(super) fn nilfs(reader: &mut Reader<'_>, offset: u64) -> bool {
    let Some(block) = reader.bytes(offset - 6, 24) else { return false };
    u32_at(&block, 0) == 2 && (32..=1024).contains(&u16_at(&block, 8))
}

/// A volume header of HFS+ or HFSX, of version 4 or 5.
pub(super) fn hfs_plus(reader: &mut Reader<'_>, offset: u64) -> bool {
    reader.bytes(offset, 4).is_some_and(|at| [b"H+\0\x04", b"HX\0\x05"].iter().any(|magic| at == *magic))
}

/// The label of a physical volume stands around its type.
pub(super) fn lvm(reader: &mut Reader<'_>, offset: u64) -> bool {
    reader.bytes(offset - 24, 8).is_some_and(|at| at == b"LABELONE")
}

/// A superblock of version 1, which says where it lies itself.
pub(super) fn md(reader: &mut Reader<'_>, offset: u64) -> bool {
    let Some(block) = reader.bytes(offset, 256) else { return false };
    u32_at(&block, 4) == 1 && u64_at(&block, 144) == offset / 512
}

/// Metadata of the device mapper: the magic is a number of 64 bits, and the block says that it is the first one.
pub(super) fn device_mapper(reader: &mut Reader<'_>, offset: u64) -> bool {
    let Some(block) = reader.bytes(offset - 32, 44) else { return false };
    u64_at(&block, 8) == 0 && u32_at(&block, 36) == 0
}

/// A blobstore of logical volumes says so.
pub(super) fn name_blobstore(reader: &mut Reader<'_>, all: &mut [Found]) {
    let kind = reader.bytes(56, 16).and_then(|bytes| text_at(&bytes, 0, 16));
    if let Some(found) = all.iter_mut().find(|found| found.kind == "spdk_blobstore") {
        found.detail = kind.map(|kind| format!("type {kind}"));
    }
}

/// ext2, ext3, ext4, and journals of theirs: the magic has two bytes, so what stands around it has to make sense.
pub(super) fn ext(reader: &mut Reader<'_>, all: &mut Vec<Found>) {
    const SUPERBLOCK: u64 = 1024;
    let Some(block) = reader.bytes(SUPERBLOCK, 256) else { return };
    let makes_sense = u32_at(&block, 4) != 0 && u32_at(&block, 24) <= 6 && u32_at(&block, 76) <= 1;
    if u16_at(&block, 56) != 0xef53 || !makes_sense {
        return;
    }
    let (compatible, incompatible, read_only) = (u32_at(&block, 92), u32_at(&block, 96), u32_at(&block, 100));
    let (kind, what) = match () {
        () if incompatible & 0x8 != 0 => ("jbd", "a journal of an ext4 file system"),
        () if incompatible & !0x16 != 0 || read_only & !0x7 != 0 => ("ext4", "an ext4 file system"),
        () if compatible & 0x4 != 0 => ("ext3", "an ext3 file system"),
        () => ("ext2", "an ext2 file system"),
    };
    let detail = text_at(&block, 120, 16).map(|name| format!("named {name}"));
    add(all, kind, what, Class::FileSystem, SUPERBLOCK + 56, detail);
}

/// A vdev of ZFS has two labels at each end; each has a ring of uberblocks behind its first half.
pub(super) fn zfs(reader: &mut Reader<'_>, all: &mut Vec<Found>) {
    const LABEL: u64 = 256 << 10;
    const MAGIC: u64 = 0x00ba_b10c;
    let whole = reader.size_bytes() / LABEL * LABEL;
    let labels = [Some(0), Some(LABEL), whole.checked_sub(2 * LABEL), whole.checked_sub(LABEL)];
    for label in labels.into_iter().flatten() {
        let ring = label + LABEL / 2;
        let first = (0..128).map(|slot| ring + slot * 1024).find(|offset| {
            reader.bytes(*offset, 8).is_some_and(|bytes| {
                let number = u64_at(&bytes, 0);
                number == MAGIC || number.swap_bytes() == MAGIC
            })
        });
        if let Some(offset) = first {
            add(all, "zfs_member", "a part of a ZFS pool", Class::Member, offset, None);
        }
    }
}

/// The partition table of a PC, whose last two bytes other boot sectors have, too.
pub(super) fn master_boot_record(reader: &mut Reader<'_>, all: &mut Vec<Found>) {
    let is_boot_sector = ["vfat", "exfat", "ntfs", "ReFS", "BitLocker"];
    if all.iter().any(|found| is_boot_sector.contains(&found.kind.as_str())) {
        return;
    }
    let Some(sector) = reader.bytes(0, 512) else { return };
    let entries = || sector[446..510].chunks_exact(16);
    if sector[510..] != [0x55, 0xaa] || entries().any(|entry| entry[0] & 0x7f != 0) {
        return;
    }
    match entries().any(|entry| entry[4] == 0xee) {
        true => add(all, "PMBR", "a protective partition table (of GPT)", Class::PartitionTable, 510, None),
        false => add(all, "dos", "a partition table (MBR)", Class::PartitionTable, 510, None),
    }
}

/// Labels of diecut, whole or not.
pub(super) fn label(reader: &mut Reader<'_>, all: &mut Vec<Found>) {
    let size_bytes = reader.size_bytes();
    if size_bytes < Label::DRIVE_BYTES_MIN {
        return;
    }
    for copy in [LabelCopy::First, LabelCopy::Second] {
        let offset = copy.offset(size_bytes);
        let Some(bytes) = reader.bytes(offset, Label::SIZE_BYTES) else { continue };
        let detail = match Label::decode(&bytes) {
            Err(LabelError::Missing) => continue,
            Ok(label) => format!(
                "device {} of the server {}",
                Uuid::from_bytes(label.device),
                Uuid::from_bytes(label.server)
            ),
            Err(LabelError::Damaged) => "damaged".to_owned(),
            Err(error) => error.to_string(),
        };
        add(all, "diecut_label", "a label of diecut", Class::Diecut, offset, Some(detail));
    }
}
