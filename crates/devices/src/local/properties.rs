use super::sysfs::Sysfs;
use rustix::fs::{AtFlags, StatxFlags};
use serde::Serialize;
use std::fs::File;
use std::os::unix::fs::{FileTypeExt, MetadataExt};

/// The largest logical block: what is written at once.
const BLOCK_BYTES_MAX: u32 = 4096;

/// What it is to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum DriveKind {
    /// A regular file.
    File,
    /// A block device.
    Block,
    /// A partition of one.
    Partition,
}

/// Which drive it is, as the kernel tells.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Identity {
    /// What its maker calls it.
    pub model: Option<String>,
    /// Its serial number.
    pub serial: Option<String>,
    /// Its firmware.
    pub firmware: Option<String>,
    /// Its name in the world.
    pub wwid: Option<String>,
}

/// Placement handles (FDP) of a drive.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Handles {
    /// How many of them writes can name, if there are more than one.
    #[serde(rename = "placement_handles")]
    pub count: Option<u16>,
    /// Why none can be named although the drive has some, in words.
    #[serde(rename = "handles_unused")]
    pub unused: Option<String>,
}

/// What the kernel says of a file or a block device. What it does not say is absent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Properties {
    /// What it is.
    pub kind: DriveKind,
    /// Its size.
    pub size_bytes: u64,
    /// Whether commands can go past the page cache (O_DIRECT).
    pub takes_direct: bool,
    /// The smallest command.
    pub logical_block_bytes: u32,
    /// What the drive writes as a whole.
    pub physical_block_bytes: Option<u64>,
    /// What it likes best; 0 where it has no wish.
    pub optimal_io_bytes: Option<u64>,
    /// Whether it has a volatile cache: what was written is safe after a flush only.
    pub has_volatile_cache: Option<bool>,
    /// Whether single writes can go past that cache (FUA).
    pub takes_fua: Option<bool>,
    /// Whether what is not needed can be given back: by a discard, or by a hole in a file.
    pub takes_discard: Option<bool>,
    /// Unit of discards.
    pub discard_granularity_bytes: Option<u64>,
    /// Largest discard.
    pub discard_max_bytes: Option<u64>,
    /// Largest write of zeroes; 0 where it takes none.
    pub write_zeroes_max_bytes: Option<u64>,
    /// Whether it has moving parts.
    pub is_rotational: Option<bool>,
    /// `none`, `host-aware` or `host-managed`.
    pub zoned: Option<String>,
    /// Of a zoned drive: its zones.
    pub zones: Option<u64>,
    /// Of a zoned drive: bytes from a zone to the next one.
    pub zone_bytes: Option<u64>,
    /// Zones that may be partly written at once; 0 where there is no limit.
    pub active_zones_max: Option<u64>,
    /// Zones that may be open at once; 0 where there is no limit.
    pub open_zones_max: Option<u64>,
    /// Placement handles.
    #[serde(flatten)]
    pub handles: Handles,
    /// Whether the kernel lets nobody write to it.
    pub is_read_only: bool,
    /// Which drive it is.
    #[serde(flatten)]
    pub identity: Identity,
    /// Of a file: the file system that it lies on.
    pub file_system: Option<String>,
    /// Of a file: bytes that have a place there.
    pub allocated_bytes: Option<u64>,
}

impl Properties {
    /// Of what is open, which is as large as it is.
    pub(super) fn of(file: &File, size_bytes: u64, takes_direct: bool) -> std::io::Result<Properties> {
        let metadata = file.metadata()?;
        Ok(match metadata.file_type().is_block_device() {
            true => of_block_device(&Sysfs::of(metadata.rdev()), size_bytes, takes_direct),
            false => of_file(file, &metadata, takes_direct),
        })
    }

    /// Whether it is written in zones only.
    pub fn is_written_in_zones(&self) -> bool {
        self.zoned.as_deref() == Some("host-managed")
    }

    /// What kind of zones it has, if it has any.
    pub fn kind_of_zones(&self) -> Option<&str> {
        self.zoned.as_deref().filter(|zoned| *zoned != "none")
    }

    /// What of it speaks against its being a device of diecut, in words.
    pub fn against(&self) -> Vec<String> {
        let mut against = Vec::new();
        if let Some(zoned) = self.kind_of_zones().filter(|_| !self.is_written_in_zones()) {
            against
                .push(format!("it is zoned ({zoned}): only zones that are host-managed can be erase blocks"));
        }
        if self.is_written_in_zones() && self.kind == DriveKind::Partition {
            against.push("it is a part of a zoned drive: labels lie in zones of the whole one".to_owned());
        }
        if self.is_written_in_zones() && !self.takes_direct {
            against.push("it is zoned, and takes no commands past the page cache".to_owned());
        }
        if self.is_read_only {
            against.push("the kernel takes no writes to it".to_owned());
        }
        if self.logical_block_bytes > BLOCK_BYTES_MAX {
            let bytes = self.logical_block_bytes;
            against.push(format!("its blocks have {bytes} bytes, and diecut writes {BLOCK_BYTES_MAX}"));
        }
        against
    }

    fn unknown(kind: DriveKind, size_bytes: u64, takes_direct: bool) -> Properties {
        Properties {
            kind,
            size_bytes,
            takes_direct,
            logical_block_bytes: 512,
            physical_block_bytes: None,
            optimal_io_bytes: None,
            has_volatile_cache: None,
            takes_fua: None,
            takes_discard: None,
            discard_granularity_bytes: None,
            discard_max_bytes: None,
            write_zeroes_max_bytes: None,
            is_rotational: None,
            zoned: None,
            zones: None,
            zone_bytes: None,
            active_zones_max: None,
            open_zones_max: None,
            handles: Handles::default(),
            is_read_only: false,
            identity: Identity::default(),
            file_system: None,
            allocated_bytes: None,
        }
    }
}

fn of_block_device(sysfs: &Sysfs, size_bytes: u64, takes_direct: bool) -> Properties {
    let kind = if sysfs.is_partition() { DriveKind::Partition } else { DriveKind::Block };
    let is_set = |name: &str| sysfs.queue(name).map(|value| value != 0);
    let behind = sysfs.text(&["loop/backing_file"]).map(|file| format!("loop device of {file}"));
    let zoned = sysfs.text(&["queue/zoned"]);
    let is_zoned = zoned.as_deref().is_some_and(|zoned| zoned != "none");
    let mapped = || sysfs.text(&["dm/name"]).map(|name| format!("device mapper, {name}"));
    Properties {
        logical_block_bytes: sysfs
            .queue("logical_block_size")
            .and_then(|size| size.try_into().ok())
            .unwrap_or(512),
        physical_block_bytes: sysfs.queue("physical_block_size"),
        optimal_io_bytes: sysfs.queue("optimal_io_size"),
        has_volatile_cache: sysfs.text(&["queue/write_cache"]).map(|cache| cache == "write back"),
        takes_fua: is_set("fua"),
        takes_discard: is_set("discard_max_bytes"),
        discard_granularity_bytes: sysfs.queue("discard_granularity"),
        discard_max_bytes: sysfs.queue("discard_max_bytes"),
        write_zeroes_max_bytes: sysfs.queue("write_zeroes_max_bytes"),
        is_rotational: is_set("rotational"),
        zones: sysfs.queue("nr_zones").filter(|_| is_zoned),
        zone_bytes: sysfs.queue("chunk_sectors").filter(|_| is_zoned).map(|sectors| sectors * 512),
        active_zones_max: sysfs.queue("max_active_zones").filter(|_| is_zoned),
        open_zones_max: sysfs.queue("max_open_zones").filter(|_| is_zoned),
        zoned,
        is_read_only: sysfs.text(&["ro"]).is_some_and(|text| text == "1"),
        identity: Identity {
            model: sysfs.text(&["device/model", "device/name"]).or(behind).or_else(mapped),
            serial: sysfs.text(&["device/serial", "serial"]).or_else(|| sysfs.scsi_serial()),
            firmware: sysfs.text(&["device/firmware_rev", "device/rev"]),
            wwid: sysfs.text(&["wwid", "device/wwid"]),
        },
        ..Properties::unknown(kind, size_bytes, takes_direct)
    }
}

fn of_file(file: &File, metadata: &std::fs::Metadata, takes_direct: bool) -> Properties {
    let file_system = rustix::fs::fstatfs(file).ok().map(|found| file_system_name(found.f_type as u64));
    // Only named ones: on a network, or in layers, it depends on what is behind.
    let known = ["ext4", "xfs", "btrfs", "tmpfs", "f2fs", "bcachefs"];
    let punches = file_system.as_deref().filter(|name| known.contains(name)).map(|_| true);
    Properties {
        logical_block_bytes: direct_alignment(file).unwrap_or(512),
        takes_discard: punches,
        file_system,
        allocated_bytes: Some(metadata.blocks().saturating_mul(512)),
        ..Properties::unknown(DriveKind::File, metadata.len(), takes_direct)
    }
}

/// Bytes that memory which a drive transfers to and from begins at a multiple of: its logical block. Linux asks for that before 6.0. Later drives may ask for
/// less; `null_blk` does, and with blocks of 4 KiB and memory behind it loses the end of a block whose memory lies in two pages.
pub fn memory_alignment_bytes(file: &File) -> usize {
    let of_block_device = rustix::fs::ioctl_blksszget(file).ok();
    of_block_device.or_else(|| direct_alignment(file)).unwrap_or(0).max(512) as usize
}

/// What offsets and lengths of direct I/O are multiples of. Linux says so from 6.1 on.
fn direct_alignment(file: &File) -> Option<u32> {
    const DIOALIGN: StatxFlags = StatxFlags::from_bits_retain(0x2000);
    let found = rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, DIOALIGN).ok()?;
    let said = found.stx_mask & DIOALIGN.bits() != 0;
    (said && found.stx_dio_offset_align != 0).then_some(found.stx_dio_offset_align)
}

/// Whether holes can be punched into a file that may be written: asked at its end, where nothing lies.
pub(super) fn punches(file: &File, size_bytes: u64) -> Option<bool> {
    use rustix::fs::FallocateFlags;
    use rustix::io::Errno;
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    match rustix::fs::fallocate(file, flags, size_bytes, 4096) {
        Ok(()) => Some(true),
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => Some(false),
        Err(_) => None,
    }
}

/// Names of `statfs(2)`.
fn file_system_name(magic: u64) -> String {
    const NAMES: &[(u64, &str)] = &[
        (0xef53, "ext4"),
        (0x5846_5342, "xfs"),
        (0x9123_683e, "btrfs"),
        (0xf2f5_2010, "f2fs"),
        (0xca45_1a4e, "bcachefs"),
        (0x2fc1_2fc1, "zfs"),
        (0x0102_1994, "tmpfs"),
        (0x794c_7630, "overlay"),
        (0x6573_5546, "fuse"),
        (0x6969, "nfs"),
        (0xff53_4d42, "cifs"),
        (0xfe53_4d42, "smb"),
        (0x00c3_6400, "ceph"),
        (0x4d44, "vfat"),
        (0x2011_bab0, "exfat"),
        (0x0102_1997, "9p"),
    ];
    let name = NAMES.iter().find(|(number, _)| *number == magic & 0xffff_ffff).map(|(_, name)| *name);
    name.map_or_else(|| format!("unknown ({magic:#x})"), str::to_owned)
}
