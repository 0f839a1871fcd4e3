//! The drive: opened past the page cache, and what the kernel says of it.

use crate::{ProbeError, ProbeSpec};
use diecut_devices::local::Contents;
use rustix::fs::OFlags;
use serde::Serialize;
use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// What it is to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum DriveKind {
    /// A regular file.
    File,
    /// A block device, or a partition of one.
    Block,
}

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
        let metadata = std::fs::metadata(path).map_err(failed)?;
        let kind = match metadata.file_type() {
            kind if kind.is_file() => DriveKind::File,
            kind if kind.is_block_device() => DriveKind::Block,
            _ => return Err(ProbeError::Kind { path: path.to_owned() }),
        };
        let holds = if spec.overwrites && !spec.force {
            let (file, size_bytes) = File::open(path)
                .and_then(|mut file| file.seek(SeekFrom::End(0)).map(|size| (file, size)))
                .map_err(failed)?;
            Some(Contents::of_file(&file, size_bytes).map_err(failed)?.words())
        } else {
            None
        };
        if let Some(found) = holds.as_ref().filter(|found| !found.is_empty()) {
            return Err(ProbeError::Holds { path: path.to_owned(), found: found.clone() });
        }
        // Exclusive, so that nothing that is mounted, or a part of an array, is written.
        let exclusive =
            if spec.overwrites && kind == DriveKind::Block { OFlags::EXCL } else { OFlags::empty() };
        let flags = (OFlags::DIRECT | exclusive).bits();
        let opened =
            OpenOptions::new().read(true).write(spec.overwrites).custom_flags(flags as i32).open(path);
        let mut file = opened.map_err(|error| match error.kind() {
            io::ErrorKind::InvalidInput => ProbeError::Buffered { path: path.to_owned() },
            _ => failed(error),
        })?;
        let size_bytes = file.seek(SeekFrom::End(0)).map_err(failed)?;
        let mut facts = match kind {
            DriveKind::File => of_file(path, &metadata),
            DriveKind::Block => of_block_device(path, metadata.rdev()),
        };
        (facts.size_bytes, facts.holds) = (size_bytes, holds);
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

fn unknown(path: &Path, kind: DriveKind) -> DriveFacts {
    DriveFacts {
        path: path.to_owned(),
        kind,
        size_bytes: 0,
        logical_block_bytes: 512,
        physical_block_bytes: None,
        optimal_io_bytes: None,
        discard_granularity_bytes: None,
        write_zeroes_max_bytes: None,
        has_volatile_cache: None,
        takes_fua: None,
        is_rotational: None,
        zoned: None,
        allocated_percent: None,
        holds: None,
    }
}

fn of_file(path: &Path, metadata: &std::fs::Metadata) -> DriveFacts {
    let allocated = metadata.blocks().saturating_mul(512).min(metadata.len());
    let percent = (u128::from(allocated) * 100).checked_div(u128::from(metadata.len()));
    DriveFacts { allocated_percent: percent.map(|percent| percent as u8), ..unknown(path, DriveKind::File) }
}

fn of_block_device(path: &Path, device: u64) -> DriveFacts {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let folder = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
    // A partition has the queue of its device.
    let queue = [folder.join("queue"), folder.join("../queue")].into_iter().find(|queue| queue.is_dir());
    let text = |name: &str| {
        let text = std::fs::read_to_string(queue.as_ref()?.join(name)).ok()?;
        Some(text.trim().to_owned())
    };
    let number = |name: &str| text(name)?.parse::<u64>().ok();
    let is_set = |name: &str| number(name).map(|value| value != 0);
    DriveFacts {
        logical_block_bytes: number("logical_block_size")
            .and_then(|size| size.try_into().ok())
            .unwrap_or(512),
        physical_block_bytes: number("physical_block_size"),
        optimal_io_bytes: number("optimal_io_size"),
        discard_granularity_bytes: number("discard_granularity"),
        write_zeroes_max_bytes: number("write_zeroes_max_bytes"),
        has_volatile_cache: text("write_cache").map(|cache| cache == "write back"),
        takes_fua: is_set("fua"),
        is_rotational: is_set("rotational"),
        zoned: text("zoned"),
        ..unknown(path, DriveKind::Block)
    }
}
