//! The table: what stands where on a drive of which format. Offsets and bytes are those of the formats themselves.

use super::checks;
use super::found::{Class, Found, add};
use super::read::Reader;

/// Where bytes stand.
#[derive(Clone, Copy)]
pub(super) enum Place {
    /// So many bytes from the start.
    Start(u64),
    /// So many bytes before the end, after that is rounded down to a multiple.
    End { back: u64, rounded_to: u64 },
}

/// A format.
struct Signature {
    /// As `blkid` calls it.
    kind: &'static str,
    what: &'static str,
    class: Class,
    magic: &'static [u8],
    places: &'static [Place],
    /// Says whether what stands around the magic, which begins at the offset, makes sense.
    check: fn(&mut Reader<'_>, u64) -> bool,
}

use Class::{Diecut, Encrypted, FileSystem, Member, PartitionTable, Swap};
use Place::{End, Start};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

const fn signature(
    kind: &'static str,
    what: &'static str,
    class: Class,
    magic: &'static [u8],
    places: &'static [Place],
) -> Signature {
    Signature { kind, what, class, magic, places, check: |_, _| true }
}

/// A signature with a check, for magics that are short or common.
const fn checked(signature: Signature, check: fn(&mut Reader<'_>, u64) -> bool) -> Signature {
    Signature { check, ..signature }
}

/// The end of the first page, whose size is the processor's.
const PAGE_ENDS: &[Place] = &[
    Start(4 * KIB - 10),
    Start(8 * KIB - 10),
    Start(16 * KIB - 10),
    Start(32 * KIB - 10),
    Start(64 * KIB - 10),
];
/// A part of an array of Linux, at the start (1.1), behind 4 KiB (1.2), before the end (1.0, 0.90).
const MD_STARTS: &[Place] = &[Start(0), Start(4 * KIB), End { back: 8 * KIB, rounded_to: 4 * KIB }];
const MD_OLD: &[Place] = &[End { back: 64 * KIB, rounded_to: 64 * KIB }];
const LUKS_SECONDS: &[Place] = &[
    Start(16 * KIB),
    Start(32 * KIB),
    Start(64 * KIB),
    Start(128 * KIB),
    Start(256 * KIB),
    Start(512 * KIB),
    Start(MIB),
    Start(2 * MIB),
    Start(4 * MIB),
];
const BCACHE: &[Place] = &[Start(4 * KIB + 24)];
/// Superblock, list of superblocks, and where copies lie by default.
const BCACHEFS: &[Place] =
    &[Start(4 * KIB + 24), Start(7 * 512), Start(2 * MIB + 24), End { back: MIB - 24, rounded_to: 1 }];
const GPT: &[Place] = &[
    Start(512),
    Start(4 * KIB),
    End { back: 512, rounded_to: 512 },
    End { back: 4 * KIB, rounded_to: 4 * KIB },
];
const BLUESTORE: &[Place] = &[Start(0), Start(GIB), Start(10 * GIB), Start(100 * GIB), Start(1000 * GIB)];

const SIGNATURES: &[Signature] = &[
    // Partition tables; that of a PC is looked for apart.
    signature("gpt", "a partition table (GPT)", PartitionTable, b"EFI PART", GPT),
    // File systems; those whose magic is two bytes are looked for apart.
    signature("xfs", "an XFS file system", FileSystem, b"XFSB", &[Start(0)]),
    signature(
        "btrfs",
        "a Btrfs file system",
        FileSystem,
        b"_BHRfS_M",
        &[Start(64 * KIB + 64), Start(64 * MIB + 64), Start(256 * GIB + 64)],
    ),
    signature("f2fs", "an F2FS file system", FileSystem, b"\x10\x20\xf5\xf2", &[Start(KIB), Start(5 * KIB)]),
    checked(
        signature("vfat", "a FAT file system", FileSystem, b"FAT", &[Start(0x36), Start(0x52)]),
        checks::fat,
    ),
    signature("exfat", "an exFAT file system", FileSystem, b"EXFAT   ", &[Start(3)]),
    signature("ntfs", "an NTFS file system", FileSystem, b"NTFS    ", &[Start(3)]),
    signature("ReFS", "a ReFS file system", FileSystem, b"ReFS\0\0\0\0", &[Start(3)]),
    signature(
        "bcachefs",
        "a bcachefs file system",
        FileSystem,
        b"\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef",
        BCACHEFS,
    ),
    signature("zonefs", "a zonefs file system", FileSystem, b"SFOZ", &[Start(0)]),
    signature("iso9660", "an ISO 9660 file system", FileSystem, b"CD001", &[Start(32 * KIB + 1)]),
    signature("udf", "a UDF file system", FileSystem, b"BEA01", &[Start(32 * KIB + 1), Start(34 * KIB + 1)]),
    signature("squashfs", "a SquashFS file system", FileSystem, b"hsqs", &[Start(0)]),
    signature("erofs", "an EROFS file system", FileSystem, b"\xe2\xe1\xf5\xe0", &[Start(KIB)]),
    signature("cramfs", "a cramfs file system", FileSystem, b"\x45\x3d\xcd\x28", &[Start(0), Start(512)]),
    signature("jfs", "a JFS file system", FileSystem, b"JFS1", &[Start(32 * KIB)]),
    checked(
        signature("nilfs2", "a NILFS2 file system", FileSystem, b"\x34\x34", &[Start(KIB + 6)]),
        checks::nilfs,
    ),
    signature("gfs2", "a GFS2 file system", FileSystem, b"\x01\x16\x19\x70\0\0\0\x01", &[Start(64 * KIB)]),
    signature(
        "ocfs2",
        "an OCFS2 file system",
        FileSystem,
        b"OCFSV2",
        &[Start(KIB), Start(2 * KIB), Start(4 * KIB), Start(8 * KIB)],
    ),
    signature("reiserfs", "a ReiserFS file system", FileSystem, b"ReIsEr", &[Start(64 * KIB + 52)]),
    signature("apfs", "an APFS container", FileSystem, b"NXSB", &[Start(32)]),
    checked(signature("hfsplus", "an HFS+ file system", FileSystem, b"H", &[Start(KIB)]), checks::hfs_plus),
    signature("bfs", "a BFS file system", FileSystem, b"\xce\xfa\xad\x1b", &[Start(0)]),
    signature("VMFS", "a VMFS file system", FileSystem, b"\x5e\xf1\xab\x2f", &[Start(2 * MIB)]),
    // Parts of arrays, pools and volume groups; ZFS is looked for apart.
    checked(
        signature(
            "LVM2_member",
            "a physical volume of LVM2",
            Member,
            b"LVM2 001",
            &[Start(24), Start(512 + 24), Start(1024 + 24), Start(1536 + 24)],
        ),
        checks::lvm,
    ),
    checked(
        signature(
            "linux_raid_member",
            "a part of a Linux array (md)",
            Member,
            b"\xfc\x4e\x2b\xa9",
            MD_STARTS,
        ),
        checks::md,
    ),
    signature("linux_raid_member", "a part of a Linux array (md)", Member, b"\xfc\x4e\x2b\xa9", MD_OLD),
    signature("linux_raid_member", "a part of a Linux array (md)", Member, b"\xa9\x2b\x4e\xfc", MD_OLD),
    signature(
        "isw_raid_member",
        "a part of an Intel array",
        Member,
        b"Intel Raid ISM Cfg Sig. ",
        &[End { back: KIB, rounded_to: 512 }],
    ),
    signature(
        "ddf_raid_member",
        "a part of a DDF array",
        Member,
        b"\xde\x11\xde\x11",
        &[End { back: 512, rounded_to: 512 }],
    ),
    signature(
        "bcache",
        "a part of a bcache",
        Member,
        b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81",
        BCACHE,
    ),
    signature(
        "stratis",
        "a part of a Stratis pool",
        Member,
        b"!Stra0tis\x86\xff\x02^\x41rh",
        &[Start(512 + 4), Start(9 * 512 + 4)],
    ),
    signature("ceph_bluestore", "a Ceph OSD (BlueStore)", Member, b"bluestore block device", BLUESTORE),
    signature("spdk_blobstore", "an SPDK blobstore", Member, b"SPDKBLOB", &[Start(0)]),
    signature("spdk_raid", "a part of an SPDK array", Member, b"SPDKRAID", &[Start(0)]),
    signature(
        "spdk_ftl",
        "a part of an SPDK FTL device",
        Member,
        b"\x89\x19\x20\x19\x83\x16\x10\x14",
        &[Start(0)],
    ),
    signature("vdo", "a VDO volume", Member, b"dmvdo001", &[Start(0)]),
    signature("VMFS_volume_member", "a part of a VMFS volume", Member, b"\x0d\xd0\x01\xc0", &[Start(MIB)]),
    signature("oracleasm", "an Oracle ASM disk", Member, b"ORCLDISK", &[Start(32)]),
    signature("dm_zoned", "a drive of dm-zoned", Member, b"DBZD", &[Start(0)]),
    signature("dm_writecache", "a cache of dm-writecache", Member, b"\x21\x93\x48\x23", &[Start(0)]),
    checked(
        signature("dm_cache", "metadata of dm-cache", Member, b"\x03\xc4\x18\0", &[Start(32)]),
        checks::device_mapper,
    ),
    checked(
        signature("dm_thin", "metadata of dm-thin", Member, b"\xba\x52\x9c\x01", &[Start(32)]),
        checks::device_mapper,
    ),
    signature("DM_snapshot_cow", "a snapshot of the device mapper", Member, b"SnAp", &[Start(0)]),
    signature("DM_verity_hash", "hashes of dm-verity", Member, b"verity\0\0", &[Start(0)]),
    signature("DM_integrity", "a drive of dm-integrity", Member, b"integrt\0", &[Start(0)]),
    // Encryption.
    signature("crypto_LUKS", "an encrypted volume (LUKS)", Encrypted, b"LUKS\xba\xbe", &[Start(0)]),
    signature("crypto_LUKS", "an encrypted volume (LUKS)", Encrypted, b"SKUL\xba\xbe", LUKS_SECONDS),
    signature("BitLocker", "an encrypted volume (BitLocker)", Encrypted, b"-FVE-FS-", &[Start(3)]),
    // Swap space.
    signature("swap", "swap space", Swap, b"SWAPSPACE2", PAGE_ENDS),
    signature("swap", "swap space", Swap, b"SWAP-SPACE", PAGE_ENDS),
    signature("swsuspend", "a system that sleeps in swap space", Swap, b"S1SUSPEND\0", PAGE_ENDS),
    signature("swsuspend", "a system that sleeps in swap space", Swap, b"S2SUSPEND\0", PAGE_ENDS),
    signature("swsuspend", "a system that sleeps in swap space", Swap, b"ULSUSPEND\0", PAGE_ENDS),
    signature("swsuspend", "a system that sleeps in swap space", Swap, b"LINHIB0001", PAGE_ENDS),
    // Ourselves; labels are looked for apart.
    signature("diecut_emulated", "an emulated device of diecut", Diecut, b"DIECUTEM", &[Start(0)]),
];

impl Place {
    fn offset(self, size_bytes: u64) -> Option<u64> {
        match self {
            Start(offset) => Some(offset),
            End { back, rounded_to } => (size_bytes / rounded_to * rounded_to).checked_sub(back),
        }
    }
}

/// Everything that is recognized, each kind once.
pub(super) fn find(reader: &mut Reader<'_>) -> Vec<Found> {
    let mut all: Vec<Found> = Vec::new();
    let size_bytes = reader.size_bytes();
    for signature in SIGNATURES {
        for place in signature.places {
            let Some(offset) = place.offset(size_bytes) else { continue };
            let is_there =
                reader.bytes(offset, signature.magic.len()).is_some_and(|at| at == signature.magic);
            if is_there && (signature.check)(reader, offset) {
                add(&mut all, signature.kind, signature.what, signature.class, offset, None);
            }
        }
    }
    if all.iter().any(|found| found.kind == "spdk_blobstore") {
        checks::name_blobstore(reader, &mut all);
    }
    checks::ext(reader, &mut all);
    checks::zfs(reader, &mut all);
    checks::master_boot_record(reader, &mut all);
    checks::label(reader, &mut all);
    all
}
