//! Labels on real files, and on a drive that loses any part of what was not flushed.

use diecut_devices::local::{
    Access, Contents, LabelPlace, LabelingError, LocalDevice, OtherCopy, change_label, format, read_label,
};
use diecut_drives::{DriveShape, Label, LabelCopy, LabelDevice, LabelError, Membership};
use diecut_testing::Random;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const SIZE: u64 = 130 << 20;

fn label(server: u8, device: u8, number: u64) -> Label {
    let shape = DriveShape::plan(SIZE, 1, Some(1 << 20)).unwrap();
    // Many, so that a label of another number differs in more than one sector.
    let of_pool = (0..40).map(|other| LabelDevice {
        device: [device + other; 16],
        membership: Membership::There,
        since: number,
    });
    Label {
        number,
        server: [server; 16],
        device: [device; 16],
        epoch: 1,
        view: [1; 8],
        secret: [7; 16],
        shape,
        system: (0, 2),
        devices: of_pool.collect(),
    }
}

/// A file that is as large as the label wants it, or not; the end is no multiple of anything.
fn file(folder: &Path, size: u64, content: &[(u64, &[u8])]) -> PathBuf {
    let path = folder.join("drive");
    let file = File::create(&path).unwrap();
    file.set_len(size).unwrap();
    for (offset, bytes) in content {
        file.write_all_at(bytes, *offset).unwrap();
    }
    path
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn own(path: &Path) -> LocalDevice {
    LocalDevice::open(path, Access::Own).unwrap()
}

#[test]
fn a_drive_is_formatted_and_its_label_changed() {
    let folder = folder();
    let device = own(&file(folder.path(), SIZE + 777, &[]));
    assert!(matches!(device.label(), Err(LabelingError::Label(LabelError::Missing))));
    device.format(&label(1, 2, 5), false, || Ok(())).unwrap();
    let found = device.label().unwrap();
    assert_eq!((found.label, found.other), (label(1, 2, 5), OtherCopy::Same));
    let contents = device.contents().unwrap();
    let [one] = &contents.found[..] else { panic!("{contents:?}") };
    assert_eq!((one.kind.as_str(), &one.offsets[..]), ("diecut_label", &[64 << 10, 129 << 20][..]));
    device.change_label(&label(1, 2, 6)).unwrap();
    assert_eq!(device.label().unwrap().label.number, 6);
    for (wrong, what) in [(label(1, 2, 6), "number 6"), (label(1, 3, 7), "it is the device 02020202")] {
        let error = device.change_label(&wrong).unwrap_err().to_string();
        assert!(error.contains(what), "{error}");
    }
}

/// Goal: what somebody may want is not overwritten unless that is forced, and then nothing of it is left that a program takes for a whole. Method: Btrfs, which
/// has a copy at 64 MiB.
#[test]
fn what_lies_there_is_refused_unless_forced() {
    let folder = folder();
    let btrfs: [(u64, &[u8]); 2] = [((64 << 10) + 64, b"_BHRfS_M"), ((64 << 20) + 64, b"_BHRfS_M")];
    let path = file(folder.path(), SIZE, &btrfs);
    let before = std::fs::read(&path).unwrap();
    let device = own(&path);
    let error = device.format(&label(1, 2, 1), false, || Ok(())).unwrap_err().to_string();
    assert!(
        error.contains("holds a Btrfs file system at bytes 65600, 67108928; nothing was written"),
        "{error}"
    );
    assert!(std::fs::read(&path).unwrap() == before, "nothing was written");
    device.format(&label(1, 2, 1), true, || Ok(())).unwrap();
    assert_eq!(device.contents().unwrap().found.len(), 1, "only the label is left");
}

#[test]
fn devices_of_servers_are_told_apart() {
    let folder = folder();
    let device = own(&file(folder.path(), SIZE, &[]));
    device.format(&label(1, 2, 1), false, || Ok(())).unwrap();
    assert!(matches!(device.format(&label(9, 3, 1), false, || Ok(())), Err(LabelingError::Belongs { .. })));
    for force in [false, true] {
        assert!(
            matches!(device.format(&label(1, 3, 1), force, || Ok(())), Err(LabelingError::Ours(_))),
            "{force}"
        );
    }
    assert_eq!(device.label().unwrap().label, label(1, 2, 1), "nothing was written");
    device.format(&label(9, 3, 1), true, || Ok(())).unwrap();
    assert_eq!(device.label().unwrap().label, label(9, 3, 1));
}

/// Goal: what a label promises is there before the label, and after what was there before. Method: a drive with a file system, looked at in between;
/// and one that takes nothing.
#[test]
fn a_label_comes_last() {
    let folder = folder();
    let device = own(&file(folder.path(), SIZE, &[(0, b"XFSB"), (67108928, b"_BHRfS_M")]));
    let fill = || {
        let contents = device.contents().unwrap();
        assert!(contents.is_free() && device.label().is_err(), "{contents:?}");
        Err("it takes nothing".to_owned())
    };
    let error = device.format(&label(1, 2, 1), true, fill).unwrap_err().to_string();
    assert!(error.starts_with("it takes nothing; it has no label now"), "{error}");
    assert!(matches!(device.label(), Err(LabelingError::Label(LabelError::Missing))));
    let fill = || {
        let written = File::options().write(true).open(folder.path().join("drive")).unwrap();
        written.write_all_at(b"filled", 67108864).map_err(|error| error.to_string())
    };
    device.format(&label(1, 2, 1), false, fill).unwrap();
    let mut bytes = [0; 6];
    File::open(folder.path().join("drive")).unwrap().read_exact_at(&mut bytes, 67108864).unwrap();
    assert_eq!(&bytes, b"filled");
}

#[test]
fn a_drive_that_is_too_small_is_refused() {
    let folder = folder();
    let device = own(&file(folder.path(), SIZE - 1, &[]));
    let error = device.format(&label(1, 2, 1), true, || Ok(())).unwrap_err().to_string();
    assert_eq!(error, "it has 136314879 bytes, and 136314880 are needed for how it is cut");
    let tiny = LocalDevice::open(&file(&folder.path().join("."), 100, &[]), Access::Look).unwrap();
    assert!(matches!(tiny.label(), Err(LabelingError::Label(LabelError::Missing))));
}

/// A drive that keeps apart what was not flushed.
#[derive(Clone)]
struct Drive {
    durable: Vec<u8>,
    /// Offsets and bytes, in their order.
    written: Vec<(u64, Vec<u8>)>,
    /// Calls until the power goes.
    left: u64,
}

impl Drive {
    fn new() -> Drive {
        Drive { durable: vec![0; SIZE as usize], written: Vec::new(), left: u64::MAX }
    }

    fn with(copies: [(LabelCopy, Vec<u8>); 2]) -> Drive {
        let mut drive = Drive::new();
        for (copy, bytes) in copies {
            drive.write(copy.offset(SIZE), &bytes).unwrap();
        }
        drive.flush().unwrap();
        drive
    }

    fn step(&mut self) -> io::Result<()> {
        self.left = self.left.checked_sub(1).ok_or_else(|| io::Error::other("the power is gone"))?;
        Ok(())
    }

    /// Any subset of the sectors that were not flushed is there.
    fn cut(&mut self, random: &mut Random) {
        for (offset, bytes) in std::mem::take(&mut self.written) {
            for (sector, content) in bytes.chunks(512).enumerate() {
                if random.below(2) == 0 {
                    let at = offset as usize + sector * 512;
                    self.durable[at..at + content.len()].copy_from_slice(content);
                }
            }
        }
        self.left = u64::MAX;
    }
}

impl LabelPlace for Drive {
    fn size_bytes(&self) -> u64 {
        SIZE
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        assert!(self.written.is_empty(), "labels are read when all is flushed");
        into.copy_from_slice(&self.durable[offset as usize..][..into.len()]);
        Ok(())
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.step()?;
        self.written.push((offset, bytes.to_owned()));
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.step()?;
        for (offset, bytes) in self.written.drain(..) {
            self.durable[offset as usize..][..bytes.len()].copy_from_slice(&bytes);
        }
        Ok(())
    }
}

/// Changes a label with a cut at every step, in any order, and looks at what is left. What is wrong with it, if anything is.
fn changes_with_cuts() -> Result<(), String> {
    let mut random = Random::of(3);
    let (mut old, mut new, mut unequal) = (0, 0, 0);
    let base = Drive::with([LabelCopy::First, LabelCopy::Second].map(|copy| (copy, label(1, 2, 5).encode())));
    let mut drive = base;
    let mut number = 5;
    for round in 0..320 {
        // The first write is torn where one call is left.
        drive.left = random.below(5);
        let is_one_needed = read_label(&drive).is_ok_and(|found| found.other != OtherCopy::Same);
        unequal += u32::from(is_one_needed && drive.left == 1);
        let changed = change_label(&mut drive, &label(1, 2, number + 1)).is_ok();
        drive.cut(&mut random);
        let found = read_label(&drive).map_err(|error| format!("round {round}: {error}"))?;
        match found.label.number {
            found if found == number && !changed => old += 1,
            found if found == number + 1 => new += 1,
            found => return Err(format!("round {round}: {number} became {found}, answered: {changed}")),
        }
        number = found.label.number;
    }
    assert!(old > 20 && new > 20, "both happened: {old}, {new}");
    assert!(unequal > 10, "the first write was torn where one copy was all there was: {unequal}");
    Ok(())
}

/// Goal: a cut leaves the old label or the new one, and what was answered stays (R11).
#[test]
fn a_cut_leaves_the_old_label_or_the_new_one() {
    changes_with_cuts().unwrap();
}

/// Goal: the model finds what it is for.
#[test]
fn planted_bugs_of_changes_are_noticed() {
    for name in [
        "devices: both copies of a label are written before a flush",
        "devices: the newer copy of a label is overwritten first",
    ] {
        diecut_testing::planted::is_noticed(name, || changes_with_cuts().unwrap());
    }
}

/// Goal: a format that is cut short leaves a drive without a label, or with the new one, and the next format works.
#[test]
fn a_format_that_is_cut_short_is_begun_again() {
    let mut random = Random::of(4);
    for steps in 0..40 {
        let mut drive = Drive::new();
        drive.left = steps;
        let done = format(&mut drive, &Contents::default(), &label(1, 2, 1), false, || Ok(())).is_ok();
        drive.cut(&mut random);
        match read_label(&drive) {
            Ok(found) => assert_eq!(found.label, label(1, 2, 1)),
            Err(LabelingError::Label(LabelError::Missing | LabelError::Damaged)) => {
                assert!(!done, "{steps}");
                format(&mut drive, &Contents::default(), &label(1, 2, 1), true, || Ok(())).unwrap();
                assert_eq!(read_label(&drive).unwrap().other, OtherCopy::Same);
            }
            Err(error) => panic!("{steps}: {error}"),
        }
    }
}

/// Goal: the other copy is judged, too.
#[test]
fn copies_that_differ_are_told_of() {
    use LabelCopy::{First, Second};
    let mut torn = label(1, 2, 8).encode();
    torn[600..].fill(0xff);
    let is = |first: &[u8], second: &[u8]| {
        read_label(&Drive::with([(First, first.to_owned()), (Second, second.to_owned())]))
    };
    let (seven, eight) = (label(1, 2, 7).encode(), label(1, 2, 8).encode());
    let found = is(&seven, &eight).unwrap();
    assert_eq!((found.label.number, found.next, found.other), (8, First, OtherCopy::Older(7)));
    let found = is(&seven, &torn).unwrap();
    assert_eq!(
        (found.label.number, found.next, found.other),
        (7, Second, OtherCopy::Bad(LabelError::Damaged))
    );
    let found = is(&[], &eight).unwrap();
    assert_eq!((found.label.number, found.other), (8, OtherCopy::Bad(LabelError::Missing)));
    assert!(matches!(is(&torn, &torn), Err(LabelingError::Label(LabelError::Damaged))));
    let elsewhere = label(1, 9, 8).encode();
    let error = is(&eight, &elsewhere).unwrap_err().to_string();
    assert!(error.contains("have the number 8 and say different things"), "{error}");
    let mut larger = label(1, 2, 8);
    larger.shape.blocks_per_lane += 1;
    let larger = larger.encode();
    assert!(matches!(is(&larger, &larger), Err(LabelingError::TooSmall { .. })));
}
