//! A file or a block device is opened by one process alone, and who uses it is named. What needs a block device runs on a loop device, as root and only if
//! it is asked for (`DIECUT_TEST_LOOP=1`).

use diecut_devices::local::{Access, DriveKind, LocalDevice, LocalError};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const SIZE: u64 = 16 << 20;

fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn file(folder: &Path) -> PathBuf {
    let path = folder.join("drive");
    File::create(&path).unwrap().set_len(SIZE).unwrap();
    path
}

fn users(path: &Path) -> Vec<String> {
    match LocalDevice::open(path, Access::Own).unwrap_err() {
        LocalError::InUse { by, .. } => by,
        error => panic!("{error}"),
    }
}

#[test]
fn a_file_says_what_it_is() {
    let folder = folder();
    let path = file(folder.path());
    std::fs::write(folder.path().join("short"), [1; 100]).unwrap();
    let before = std::fs::metadata(&path).unwrap();
    let device = LocalDevice::open(&path, Access::Own).unwrap();
    let facts = device.properties();
    assert_eq!((facts.kind, facts.size_bytes, facts.allocated_bytes), (DriveKind::File, SIZE, Some(0)));
    assert!(
        facts.file_system.is_some() && facts.kind_of_zones().is_none() && !facts.is_read_only,
        "{facts:?}"
    );
    let punches = ["ext4", "xfs", "btrfs", "tmpfs"].contains(&facts.file_system.as_deref().unwrap());
    assert!(facts.takes_discard.is_some_and(|takes| takes || !punches), "{facts:?}");
    assert!(facts.logical_block_bytes.is_power_of_two(), "{facts:?}");
    let after = std::fs::metadata(&path).unwrap();
    assert_eq!(after.len(), before.len(), "what was tried changes nothing");
    assert!(device.contents().unwrap().is_free() && device.users().is_empty());
    drop(device);
    let short = LocalDevice::open(&folder.path().join("short"), Access::Look).unwrap();
    assert_eq!((short.properties().size_bytes, short.contents().unwrap().unknown_at), (100, Some(0)));
}

/// Goal: of two who want a file one gets it, and the other one learns who has it; looking disturbs nobody.
#[test]
fn one_at_a_time_has_a_file() {
    let folder = folder();
    let path = file(folder.path());
    let looking = LocalDevice::open(&path, Access::Look).unwrap();
    let first = LocalDevice::open(&path, Access::Own).unwrap();
    let by = users(&path);
    assert!(by[0].contains("a lock on it"), "{by:?}");
    assert!(LocalDevice::open(&path, Access::Look).is_ok());
    drop(first);
    drop(LocalDevice::open(&path, Access::Own).unwrap());
    drop(looking);
}

/// Goal: a program that writes to a file without any lock, as a virtual machine does to its disk, is named. Method: a shell whose output goes there.
#[test]
fn who_has_it_open_for_writing_is_named() {
    let folder = folder();
    let path = file(folder.path());
    let output = File::options().write(true).open(&path).unwrap();
    let mut writer = Command::new("sleep").arg("600").stdin(Stdio::null()).stdout(output).spawn().unwrap();
    let by = users(&path);
    writer.kill().unwrap();
    let process = writer.id();
    writer.wait().unwrap();
    assert_eq!(by, [format!("process {process} (sleep) has it open for writing")]);
    // Who only reads is nobody's rival.
    let input = File::open(&path).unwrap();
    let mut reader = Command::new("sleep").arg("600").stdin(input).stdout(Stdio::null()).spawn().unwrap();
    let owned = LocalDevice::open(&path, Access::Own);
    reader.kill().unwrap();
    reader.wait().unwrap();
    owned.unwrap();
}

#[test]
fn what_is_no_drive_is_named() {
    let folder = folder();
    let said = |path: &Path| LocalDevice::open(path, Access::Look).unwrap_err().to_string();
    assert!(said(&folder.path().join("none")).contains("none cannot be examined"));
    let said_folder = said(folder.path());
    assert!(said_folder.contains("is a folder; name a file or a block device"), "{said_folder}");
    assert!(said(Path::new("/dev/null")).contains("a character device"));
}

/// Detaches a loop device, and unmounts what is on it.
struct Loop {
    device: PathBuf,
    mounted: Option<PathBuf>,
}

fn run(program: &str, arguments: &[&Path]) -> String {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

impl Drop for Loop {
    fn drop(&mut self) {
        if let Some(place) = &self.mounted {
            let _ = Command::new("umount").arg(place).status();
        }
        let _ = Command::new("losetup").arg("-d").arg(&self.device).status();
    }
}

/// Goal: a block device in use is refused with its user's name: a file system, a process, a loop device over a file.
#[test]
fn block_devices_in_use_are_refused() {
    if std::env::var_os("DIECUT_TEST_LOOP").is_none() {
        // Past what libtest keeps to itself.
        let line = "LEFT OUT: local: block_devices_in_use_are_refused: it takes a loop device where DIECUT_TEST_LOOP=1 is set, as root";
        return writeln!(std::io::stderr(), "{line}").unwrap();
    }
    let folder = folder();
    let path = file(folder.path());
    run("mkfs.ext4", &["-q".as_ref(), &path]);
    let device = PathBuf::from(run("losetup", &["-f".as_ref(), "--show".as_ref(), &path]));
    let mut attached = Loop { device: device.clone(), mounted: None };
    let by = users(&path);
    assert_eq!(by, [format!("it is behind {}", device.display())]);
    let look = LocalDevice::open(&device, Access::Look).unwrap();
    let facts = look.properties();
    assert_eq!((facts.kind, facts.size_bytes), (DriveKind::Block, SIZE));
    assert!(facts.identity.model.as_ref().is_some_and(|model| model.contains("drive")), "{facts:?}");
    assert_eq!(look.contents().unwrap().found[0].kind, "ext4");
    let place = folder.path().join("mounted here");
    std::fs::create_dir(&place).unwrap();
    run("mount", &[&device, &place]);
    attached.mounted = Some(place.clone());
    let by = users(&device);
    assert_eq!(by, [format!("it is mounted at {}", place.display())]);
    assert_eq!(look.users(), by, "who only looks is told, too");
    run("umount", &[&place]);
    attached.mounted = None;
    let owned = LocalDevice::open(&device, Access::Own).unwrap();
    assert!(LocalDevice::open(&device, Access::Own).is_err());
    let mount = Command::new("mount").arg(&device).arg(&place).stderr(Stdio::null()).status().unwrap();
    assert!(!mount.success(), "nobody mounts what is owned");
    drop(owned);
    let output = File::options().write(true).open(&device).unwrap();
    let mut writer = Command::new("sleep").arg("600").stdout(output).spawn().unwrap();
    let by = users(&device);
    writer.kill().unwrap();
    writer.wait().unwrap();
    assert!(by[0].contains("(sleep) has it open for writing"), "{by:?}");
}
