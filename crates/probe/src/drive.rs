//! The drive: opened past the page cache, and what the kernel says of it.

use crate::{ProbeError, ProbeSpec};
use diecut_devices::local::{Access, DriveKind, LocalDevice, Properties};
use rustix::fs::OFlags;
use serde::Serialize;
use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::ops::Range;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// What the kernel says of a drive. What it does not say is absent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DriveFacts {
    /// As it was named.
    pub path: PathBuf,
    /// What it is.
    pub kind: DriveKind,
    /// Its size.
    pub size_bytes: u64,
    /// The smallest command.
    pub logical_block_bytes: u32,
    /// What the drive writes as a whole.
    pub physical_block_bytes: Option<u64>,
    /// What it likes best; 0 where it has no wish.
    pub optimal_io_bytes: Option<u64>,
    /// Unit of discards; 0 where it takes none.
    pub discard_granularity_bytes: Option<u64>,
    /// Largest write of zeroes; 0 where it takes none.
    pub write_zeroes_max_bytes: Option<u64>,
    /// Whether it has a volatile cache: what was written is safe after a flush only.
    pub has_volatile_cache: Option<bool>,
    /// Whether single writes can go past that cache (FUA).
    pub takes_fua: Option<bool>,
    /// Whether it has moving parts.
    pub is_rotational: Option<bool>,
    /// `none`, `host-aware` or `host-managed`.
    pub zoned: Option<String>,
    /// Of a file: how much of it has a place on its file system. What has none reads as zeros, and no drive is asked.
    pub allocated_percent: Option<u8>,
    /// What lies on it, where that was looked for.
    pub holds: Option<Vec<String>>,
}

/// A drive that can be measured.
pub(crate) struct Drive {
    pub file: File,
    pub facts: DriveFacts,
}

impl Drive {
    /// Opens it for what is to be measured. Nothing is written.
    ///
    /// # Errors
    /// What stands in the way, see [`ProbeError`].
    pub fn open(path: &Path, spec: &ProbeSpec) -> Result<Drive, ProbeError> {
        let failed = |error| ProbeError::Open { path: path.to_owned(), error };
        let device = LocalDevice::open(path, Access::Look)?;
        let holds = match spec.overwrites && !spec.force {
            true => Some(device.contents()?.words()),
            false => None,
        };
        if let Some(found) = holds.as_ref().filter(|found| !found.is_empty()) {
            return Err(ProbeError::Holds { path: path.to_owned(), found: found.clone() });
        }
        // Exclusive, so that nothing that is mounted, or a part of an array, is written.
        let is_block = device.properties().kind != DriveKind::File;
        let exclusive = if spec.overwrites && is_block { OFlags::EXCL } else { OFlags::empty() };
        let flags = (OFlags::DIRECT | exclusive).bits();
        let opened =
            OpenOptions::new().read(true).write(spec.overwrites).custom_flags(flags as i32).open(path);
        let mut file = opened.map_err(|error| match error.kind() {
            io::ErrorKind::InvalidInput => ProbeError::Buffered { path: path.to_owned() },
            _ => failed(error),
        })?;
        let size_bytes = file.seek(SeekFrom::End(0)).map_err(failed)?;
        let facts = DriveFacts { size_bytes, holds, ..DriveFacts::of(path, device.properties()) };
        if spec.block_bytes < facts.logical_block_bytes {
            let logical_block_bytes = facts.logical_block_bytes;
            return Err(ProbeError::Block { block_bytes: spec.block_bytes, logical_block_bytes });
        }
        if spec.overwrites && facts.zoned.as_ref().is_some_and(|zoned| zoned != "none") {
            return Err(ProbeError::Zoned { path: path.to_owned() });
        }
        let regions = spec.regions.max(1);
        if size_bytes / u64::from(regions) < 16 * u64::from(spec.block_bytes) {
            let (path, block_bytes) = (path.to_owned(), spec.block_bytes);
            return Err(ProbeError::TooSmall { path, size_bytes, regions, block_bytes });
        }
        Ok(Drive { file, facts })
    }
}

/// Whether so much of a range is holes, or was never written, that reads of it say nothing of a drive: a tenth.
pub(crate) fn is_full_of_holes(file: &File, range: Range<u64>) -> bool {
    let (mut at, mut holes) = (range.start, 0);
    while at < range.end {
        let data = match rustix::fs::seek(file, rustix::fs::SeekFrom::Data(at)) {
            Ok(data) => data.min(range.end),
            Err(rustix::io::Errno::NXIO) => range.end,
            // Who knows no holes has none.
            Err(_) => return false,
        };
        holes += data - at;
        at = match rustix::fs::seek(file, rustix::fs::SeekFrom::Hole(data)) {
            Ok(hole) => hole.max(data + 1),
            Err(_) => range.end,
        };
    }
    holes > (range.end - range.start) / 10
}

impl DriveFacts {
    fn of(path: &Path, properties: &Properties) -> DriveFacts {
        let percent = properties.allocated_bytes.and_then(|bytes| {
            let (bytes, size) = (bytes.min(properties.size_bytes), properties.size_bytes);
            (u128::from(bytes) * 100).checked_div(u128::from(size))
        });
        DriveFacts {
            path: path.to_owned(),
            kind: properties.kind,
            size_bytes: properties.size_bytes,
            logical_block_bytes: properties.logical_block_bytes,
            physical_block_bytes: properties.physical_block_bytes,
            optimal_io_bytes: properties.optimal_io_bytes,
            discard_granularity_bytes: properties.discard_granularity_bytes,
            write_zeroes_max_bytes: properties.write_zeroes_max_bytes,
            has_volatile_cache: properties.has_volatile_cache,
            takes_fua: properties.takes_fua,
            is_rotational: properties.is_rotational,
            zoned: properties.zoned.clone(),
            allocated_percent: percent.map(|percent| percent as u8),
            holds: None,
        }
    }
}
