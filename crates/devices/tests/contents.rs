//! What lies on a drive is recognized. Images that real programs made lie packed in `images/` (`pack.py` says how); formats whose programs need a kernel
//! module or do not exist for Debian are written here, from their specifications.

use diecut_devices::local::{Class, Contents, Source, Wipefs};
use diecut_testing::Random;
use diecut_testing::needs::{Need, are_there};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A drive of which only some sectors are not zero.
#[derive(Clone, Default)]
struct Sparse {
    size_bytes: u64,
    sectors: BTreeMap<u64, [u8; 512]>,
    broken_at: Option<u64>,
}

impl Sparse {
    fn new(size_bytes: u64) -> Sparse {
        Sparse { size_bytes, ..Sparse::default() }
    }

    fn put(mut self, offset: u64, bytes: &[u8]) -> Sparse {
        for (at, byte) in (offset..).zip(bytes) {
            self.sectors.entry(at / 512).or_insert([0; 512])[(at % 512) as usize] = *byte;
        }
        self
    }

    fn unpacked(name: &str) -> Sparse {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/images/{name}.gz"));
        let mut bytes = Vec::new();
        flate2::read::GzDecoder::new(File::open(path).unwrap()).read_to_end(&mut bytes).unwrap();
        let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
        let mut image = Sparse::new(number(0));
        for at in (8..bytes.len()).step_by(520) {
            image.sectors.insert(number(at), bytes[at + 8..at + 520].try_into().unwrap());
        }
        image
    }
}

impl Source for Sparse {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let end = offset + into.len() as u64;
        if self.broken_at.is_some_and(|at| (offset..end).contains(&at)) {
            return Err(io::Error::other("medium error"));
        }
        into.fill(0);
        for (sector, content) in self.sectors.range(offset / 512..=end / 512) {
            for (at, byte) in (sector * 512..).zip(content) {
                if (offset..end).contains(&at) {
                    into[(at - offset) as usize] = *byte;
                }
            }
        }
        Ok(())
    }
}

/// What was found, in short.
fn kinds(contents: &Contents) -> Vec<(&str, Vec<u64>)> {
    contents.found.iter().map(|found| (found.kind.as_str(), found.offsets.clone())).collect()
}

/// Goal: what real programs write is recognized by the table alone, and as nothing else.
#[test]
fn images_of_real_programs_are_recognized() {
    /// A kind, and where it is recognized.
    type Expected = (&'static str, &'static [u64]);
    let images: &[(&str, &[Expected])] = &[
        ("bcache", &[("bcache", &[0x1018])]),
        ("btrfs", &[("btrfs", &[0x1_0040, 0x400_0040])]),
        ("cramfs", &[("cramfs", &[0])]),
        ("dos", &[("dos", &[510])]),
        ("exfat", &[("exfat", &[3])]),
        ("ext2", &[("ext2", &[0x438])]),
        ("ext3", &[("ext3", &[0x438])]),
        ("ext4", &[("ext4", &[0x438])]),
        ("f2fs", &[("f2fs", &[0x400, 0x1400])]),
        ("fat12", &[("vfat", &[0x36])]),
        ("fat32", &[("vfat", &[0x52])]),
        ("gpt", &[("gpt", &[512, (8 << 20) - 512]), ("PMBR", &[510])]),
        ("iso9660", &[("iso9660", &[0x8001])]),
        ("jbd", &[("jbd", &[0x438])]),
        ("jfs", &[("jfs", &[0x8000])]),
        ("luks1", &[("crypto_LUKS", &[0])]),
        ("luks2", &[("crypto_LUKS", &[0, 0x4000])]),
        ("lvm", &[("LVM2_member", &[0x218])]),
        ("nilfs2", &[("nilfs2", &[0x406])]),
        ("ntfs", &[("ntfs", &[3])]),
        ("swap", &[("swap", &[4086])]),
        ("xfs", &[("xfs", &[0])]),
    ];
    for (name, expected) in images {
        let contents = Contents::of(&Sparse::unpacked(name));
        let expected: Vec<(&str, Vec<u64>)> =
            expected.iter().map(|(kind, offsets)| (*kind, offsets.to_vec())).collect();
        assert_eq!(kinds(&contents), expected, "{name}");
        assert!(!contents.is_free() && contents.unknown_at.is_none(), "{name}");
    }
    let named = Contents::of(&Sparse::unpacked("ext4"));
    assert_eq!(named.words(), ["an ext4 file system (named data) at byte 1080"]);
}

/// Goal: a drive whose beginning was overwritten still says what is at its end. Method: the first MiB is gone.
#[test]
fn what_stands_at_the_end_is_recognized() {
    let mut gpt = Sparse::unpacked("gpt");
    gpt.sectors.retain(|sector, _| *sector >= 2048);
    assert_eq!(kinds(&Contents::of(&gpt)), [("gpt", vec![(8 << 20) - 512])]);
}

/// Bytes of a superblock of an array of Linux that says it lies in `sector`.
fn md(sector: u64) -> Vec<u8> {
    let mut block = vec![0; 256];
    block[..4].copy_from_slice(&0xa92b_4efcu32.to_le_bytes());
    block[4] = 1;
    block[144..152].copy_from_slice(&sector.to_le_bytes());
    block
}

/// Goal: the formats that no program here makes. Method: their magic where the specification has it.
#[test]
fn formats_are_recognized_where_their_specifications_put_them() {
    const SIZE: u64 = (16 << 20) + 12_288;
    const GIB: u64 = 1 << 30;
    let bcachefs = *b"\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef";
    let uberblock = 0x00ba_b10cu64;
    let mut blobstore = b"SPDKBLOB".to_vec();
    blobstore.resize(56, 1);
    blobstore.extend(b"LVOLSTORE\0\0\0\0\0\0\0");
    let at_end = |back: u64| SIZE - back;
    let cases: Vec<(&str, u64, u64, Vec<u8>)> = vec![
        ("gpt", SIZE, 4096, b"EFI PART".to_vec()),
        ("gpt", SIZE, at_end(4096), b"EFI PART".to_vec()),
        ("zfs_member", SIZE, (128 << 10) + 5 * 1024, uberblock.to_le_bytes().to_vec()),
        ("zfs_member", SIZE, (16 << 20) - (256 << 10) + (128 << 10), uberblock.to_be_bytes().to_vec()),
        ("bcachefs", SIZE, 4096 + 24, bcachefs.to_vec()),
        ("bcachefs", SIZE, at_end(1 << 20) + 24, bcachefs.to_vec()),
        ("linux_raid_member", SIZE, 0, md(0)),
        ("linux_raid_member", SIZE, 4096, md(8)),
        ("linux_raid_member", SIZE, SIZE / 4096 * 4096 - 8192, md((SIZE / 4096 * 4096 - 8192) / 512)),
        ("linux_raid_member", SIZE, (16 << 20) - 65536, 0xa92b_4efcu32.to_le_bytes().to_vec()),
        ("isw_raid_member", SIZE, at_end(1024), b"Intel Raid ISM Cfg Sig. 1.0".to_vec()),
        ("ddf_raid_member", SIZE, at_end(512), b"\xde\x11\xde\x11".to_vec()),
        ("stratis", SIZE, 9 * 512 + 4, b"!Stra0tis\x86\xff\x02^\x41rh".to_vec()),
        ("ceph_bluestore", SIZE, 0, b"bluestore block device\n".to_vec()),
        ("ceph_bluestore", 20 * GIB, 10 * GIB, b"bluestore block device\n".to_vec()),
        ("spdk_blobstore", SIZE, 0, blobstore),
        ("spdk_raid", SIZE, 0, b"SPDKRAID".to_vec()),
        ("spdk_ftl", SIZE, 0, 0x1410_1683_1920_1989u64.to_le_bytes().to_vec()),
        ("vdo", SIZE, 0, b"dmvdo001".to_vec()),
        ("zonefs", SIZE, 0, 0x5a4f_4653u32.to_le_bytes().to_vec()),
        ("dm_cache", SIZE, 32, 0o6142003u64.to_le_bytes().to_vec()),
        ("dm_thin", SIZE, 32, 27_022_010u64.to_le_bytes().to_vec()),
        ("dm_writecache", SIZE, 0, 0x2348_9321u32.to_le_bytes().to_vec()),
        ("BitLocker", SIZE, 3, b"-FVE-FS-".to_vec()),
        ("crypto_LUKS", SIZE, 4 << 20, b"SKUL\xba\xbe".to_vec()),
        ("swsuspend", SIZE, 65536 - 10, b"LINHIB0001".to_vec()),
        ("hfsplus", SIZE, 1024, b"H+\0\x04".to_vec()),
        ("diecut_emulated", SIZE, 0, b"DIECUTEM".to_vec()),
    ];
    for (kind, size, offset, bytes) in cases {
        let contents = Contents::of(&Sparse::new(size).put(offset, &bytes));
        let found = kinds(&contents);
        assert!(found.len() == 1 && found[0].0 == kind, "{kind} at {offset}: {found:?}");
    }
    let detail = |drive: Sparse| Contents::of(&drive).found[0].detail.clone();
    let mut lvol = b"SPDKBLOB".to_vec();
    lvol.resize(56, 0);
    lvol.extend(b"LVOLSTORE");
    assert_eq!(detail(Sparse::new(SIZE).put(0, &lvol)), Some("type LVOLSTORE".to_owned()));
}

/// Goal: two bytes that happen to be there are no file system, and data of any kind are only hinted at. Method: random bytes, and short magics alone.
#[test]
fn what_only_resembles_a_format_is_not_recognized() {
    for seed in 0..200 {
        let mut random = Random::of(seed);
        let mut bytes: Vec<u8> = (0..96 << 10).map(|_| random.below(256) as u8).collect();
        // The magics of two bytes that are in use, without anything around them.
        bytes[1080..1082].copy_from_slice(&[0x53, 0xef]);
        bytes[510..512].copy_from_slice(&[0x55, 0xaa]);
        let contents = Contents::of(&Sparse::new(8 << 20).put(0, &bytes));
        assert!(contents.is_free(), "seed {seed}: {:?}", contents.found);
        assert!(contents.unknown_at.is_some_and(|at| at < 16), "{:?}", contents.unknown_at);
    }
    // A superblock of an array that lies elsewhere was copied with what it belonged to.
    assert!(Contents::of(&Sparse::new(16 << 20).put(4096, &md(0))).is_free());
    let empty = Contents::of(&Sparse::new(1 << 40));
    assert!(empty.is_free() && empty.unknown_at.is_none());
    let late = Contents::of(&Sparse::new(1 << 30).put((1 << 30) - 7, &[9]));
    assert_eq!((late.is_free(), late.unknown_at), (true, Some((1 << 30) - 7)));
    for size in [0, 1, 511, 512, 4096, 65_537] {
        assert!(Contents::of(&Sparse::new(size)).is_free(), "{size}");
    }
}

/// Goal: a drive that does not say what lies on it is not taken for an empty one.
#[test]
fn what_cannot_be_read_is_not_free() {
    let contents = Contents::of(&Sparse { broken_at: Some(4096), ..Sparse::new(16 << 20) });
    assert!(!contents.is_free() && contents.found.is_empty());
    assert!(
        contents.words()[0].contains("cannot be read at byte 4096 (medium error)"),
        "{:?}",
        contents.words()
    );
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// Makes an image with a program of this machine; `None` if that is not there, which is said.
fn made(folder: &Path, program: &'static str, arguments: &[&str]) -> Option<PathBuf> {
    if !are_there(&[Need::Program(program)]) {
        return None;
    }
    let path = folder.join(program);
    File::create(&path).unwrap().set_len(16 << 20).unwrap();
    let mut command = Command::new(program);
    let command = command.args(arguments).arg(&path).stdout(Stdio::null()).stderr(Stdio::null());
    assert!(command.status().unwrap().success(), "{command:?}");
    Some(path)
}

fn of_path(path: &Path) -> Contents {
    let file = File::open(path).unwrap();
    let size_bytes = file.metadata().unwrap().len();
    Contents::of_file(&file, size_bytes).unwrap()
}

/// Goal: this room's table and `wipefs` speak of the same things by the same names, and what only the latter knows is not lost. Method: programs of this
/// machine.
#[test]
fn wipefs_and_the_table_agree() {
    if !are_there(&[Need::Program("wipefs")]) {
        return;
    }
    let folder = folder();
    for (program, kind, offset) in [("mkfs.ext4", "ext4", 1080), ("mkswap", "swap", 4086)] {
        let Some(path) = made(folder.path(), program, &["-q"]) else { continue };
        let contents = of_path(&path);
        assert_eq!(contents.wipefs, Wipefs::Looked);
        assert_eq!(kinds(&contents), [(kind, vec![offset])], "{program}");
        assert_ne!(contents.found[0].class, Class::Other);
    }
    let path = folder.path().join("minix");
    let file = File::create(&path).unwrap();
    let image = Sparse::unpacked("minix");
    file.set_len(image.size_bytes).unwrap();
    for (sector, content) in &image.sectors {
        file.write_all_at(content, sector * 512).unwrap();
    }
    let contents = of_path(&path);
    assert_eq!(kinds(&contents), [("minix", vec![0x410])]);
    assert_eq!(contents.found[0].class, Class::Other);
    assert!(contents.unknown_at.is_none() && !contents.is_free());
}
