//! What the kernel says of a block device, in files below `/sys`.

use std::path::{Path, PathBuf};

/// Folders of a block device.
pub(super) struct Sysfs {
    /// Of the device itself, which may be a partition.
    folder: PathBuf,
    /// Of the whole drive.
    drive: PathBuf,
}

impl Sysfs {
    /// By the number of the device.
    pub fn of(device: u64) -> Sysfs {
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        Sysfs::in_folder(&PathBuf::from(format!("/sys/dev/block/{major}:{minor}")))
    }

    fn in_folder(folder: &Path) -> Sysfs {
        let folder = std::fs::canonicalize(folder).unwrap_or_else(|_| folder.to_owned());
        let is_partition = folder.join("partition").is_file();
        let drive = folder.parent().filter(|_| is_partition).unwrap_or(&folder).to_owned();
        Sysfs { folder, drive }
    }

    /// Whether it is a part of a drive.
    pub fn is_partition(&self) -> bool {
        self.folder != self.drive
    }

    /// The kernel's name of the whole drive.
    pub fn drive_name(&self) -> String {
        self.drive.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Text of the first of these files of the drive that is there and not empty.
    pub fn text(&self, names: &[&str]) -> Option<String> {
        names.iter().find_map(|name| text(&self.drive.join(name)))
    }

    /// A number of the drive's queue.
    pub fn queue(&self, name: &str) -> Option<u64> {
        self.text(&[&format!("queue/{name}")])?.parse().ok()
    }

    /// The serial number of a SCSI drive: a page of vital product data, whose text begins at its fifth byte.
    pub fn scsi_serial(&self) -> Option<String> {
        let page = std::fs::read(self.drive.join("device/vpd_pg80")).ok()?;
        let text = String::from_utf8_lossy(page.get(4..)?).trim().to_owned();
        (!text.is_empty()).then_some(text)
    }

    /// Numbers of the device and of its partitions.
    pub fn numbers(&self) -> Vec<(u32, u32)> {
        let mut folders = vec![self.folder.clone()];
        folders.extend(entries(&self.folder).into_iter().filter(|folder| folder.join("partition").is_file()));
        folders.iter().filter_map(|folder| number(&text(&folder.join("dev"))?)).collect()
    }

    /// Devices that the kernel built on it or on its partitions: arrays, volumes, encryption.
    pub fn built_on_it(&self) -> Vec<String> {
        let mut names = Vec::new();
        for folder in std::iter::once(self.folder.clone()).chain(entries(&self.folder)) {
            for holder in entries(&folder.join("holders")) {
                let Some(name) = holder.file_name().map(|name| name.to_string_lossy().into_owned()) else {
                    continue;
                };
                let given = text(&holder.join("dm/name")).map(|given| format!(" ({given})"));
                names.push(format!("/dev/{name}{}", given.unwrap_or_default()));
            }
        }
        names
    }
}

/// Number of a generic device of an NVMe namespace.
pub(super) fn generic_number(name: &str) -> Option<(u32, u32)> {
    number(&text(&Path::new("/sys/class/nvme-generic").join(name).join("dev"))?)
}

/// Loop devices and what lies behind each.
pub(super) fn loops() -> Vec<(String, PathBuf)> {
    let folders = entries(Path::new("/sys/block")).into_iter();
    let behind = folders.filter_map(|folder| {
        let file = text(&folder.join("loop/backing_file"))?;
        Some((format!("/dev/{}", folder.file_name()?.to_string_lossy()), PathBuf::from(file)))
    });
    behind.collect()
}

fn text(path: &Path) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?.trim().to_owned();
    (!text.is_empty()).then_some(text)
}

/// Major and minor number, as in `259:0`.
pub(super) fn number(text: &str) -> Option<(u32, u32)> {
    let (major, minor) = text.split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

#[cfg(test)]
mod test {
    use super::*;

    fn put(folder: &Path, name: &str, text: &str) {
        let path = folder.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// Goal: a partition has the queue of its drive, and a drive is in use through its partitions. Method: folders as the kernel lays them out.
    #[test]
    fn a_partition_has_the_queue_of_its_drive() {
        let folder = tempfile::tempdir().unwrap();
        let drive = folder.path().join("sda");
        put(&drive, "dev", "8:0\n");
        put(&drive, "queue/logical_block_size", "512\n");
        put(&drive, "device/vpd_pg80", "\0\u{1}\0\u{4} S42 ");
        put(&drive, "device/model", "  Disk of steel  \n");
        put(&drive, "sda1/dev", "8:1\n");
        put(&drive, "sda1/partition", "1\n");
        put(&drive, "sda1/holders/dm-3/dm/name", "vg-root\n");
        put(&drive, "holders/none", "");
        std::fs::remove_file(drive.join("holders/none")).unwrap();
        let part = Sysfs::in_folder(&drive.join("sda1"));
        assert!(part.is_partition());
        assert_eq!(part.queue("logical_block_size"), Some(512));
        assert_eq!(part.text(&["device/none", "device/model"]).as_deref(), Some("Disk of steel"));
        assert_eq!(part.scsi_serial().as_deref(), Some("S42"));
        assert_eq!(part.numbers(), [(8, 1)]);
        let whole = Sysfs::in_folder(&drive);
        assert!(!whole.is_partition());
        assert_eq!(whole.numbers(), [(8, 0), (8, 1)]);
        assert_eq!([part.drive_name(), whole.drive_name()], ["sda", "sda"]);
        assert_eq!(whole.built_on_it(), ["/dev/dm-3 (vg-root)"]);
        assert_eq!(Sysfs::in_folder(&folder.path().join("none")).queue("logical_block_size"), None);
    }
}
