//! Who uses a file or a block device: mounts, swap, what the kernel built on it, and other processes, as far as Linux tells.

use super::sysfs::{Sysfs, loops, number};
use rustix::fs::{major, makedev, minor};
use std::fs::Metadata;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// What is asked for.
pub(super) struct Subject {
    path: PathBuf,
    metadata: Metadata,
    /// Numbers of a block device and its partitions.
    numbers: Vec<(u32, u32)>,
}

impl Subject {
    pub fn new(path: &Path, metadata: &Metadata) -> Subject {
        let numbers = match metadata.file_type().is_block_device() {
            true => {
                let own = (major(metadata.rdev()), minor(metadata.rdev()));
                let mut numbers = Sysfs::of(metadata.rdev()).numbers();
                if !numbers.contains(&own) {
                    numbers.push(own);
                }
                numbers
            }
            false => Vec::new(),
        };
        let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        Subject { path, metadata: metadata.clone(), numbers }
    }

    /// Everybody, in words: "it is mounted at /mnt".
    pub fn users(&self) -> Vec<String> {
        let mut users = Vec::new();
        if self.is_block() {
            let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
            users.extend(self.mounts(&mounts).into_iter().map(|place| format!("it is mounted at {place}")));
            let built = Sysfs::of(self.metadata.rdev()).built_on_it();
            users.extend(built.into_iter().map(|device| format!("{device} is built on it")));
        } else {
            let loops = loops().into_iter().filter(|(_, file)| self.is(file));
            users.extend(loops.map(|(device, _)| format!("it is behind {device}")));
        }
        let swaps = std::fs::read_to_string("/proc/swaps").unwrap_or_default();
        if swaps
            .lines()
            .skip(1)
            .any(|line| line.split(' ').next().is_some_and(|path| self.is(&unescaped(path))))
        {
            users.push("it is used as swap space".to_owned());
        }
        users.extend(self.writers());
        users
    }

    /// Who has a lock on it.
    pub fn lock_holders(&self) -> Vec<String> {
        let locks = std::fs::read_to_string("/proc/locks").unwrap_or_default();
        lock_holders(&locks, self.metadata.dev(), self.metadata.ino())
            .into_iter()
            .map(|process| format!("{} has a lock on it", named(process)))
            .collect()
    }

    fn is_block(&self) -> bool {
        self.metadata.file_type().is_block_device()
    }

    /// Whether a path leads to it, or to a partition of it.
    fn is(&self, path: &Path) -> bool {
        let Ok(metadata) = std::fs::metadata(path) else { return false };
        match metadata.file_type().is_block_device() {
            true => self.numbers.contains(&(major(metadata.rdev()), minor(metadata.rdev()))),
            false => (metadata.dev(), metadata.ino()) == (self.metadata.dev(), self.metadata.ino()),
        }
    }

    /// Where it or a partition is mounted, by the table of mounts. Some file systems have a number of their own, and name their device.
    fn mounts(&self, table: &str) -> Vec<PathShown> {
        let mounts = table.lines().filter_map(|line| {
            let mut fields = line.split(' ');
            let device = number(fields.nth(2)?)?;
            let place = unescaped(fields.nth(1)?);
            let source = line.split_once(" - ")?.1.split(' ').nth(1)?;
            let source = unescaped(source);
            let is_it = self.numbers.contains(&device) || (source.starts_with("/dev") && self.is(&source));
            is_it.then_some(PathShown(place))
        });
        mounts.collect()
    }

    /// Other processes that have it open for writing. Those of other users are seen by root only.
    fn writers(&self) -> Vec<String> {
        let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        let processes = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let others =
            processes.filter(|process| *process != std::process::id() && self.is_written_by(*process));
        others.map(|process| format!("{} has it open for writing", named(process))).collect()
    }

    fn is_written_by(&self, process: u32) -> bool {
        let Ok(files) = std::fs::read_dir(format!("/proc/{process}/fd")) else { return false };
        files.flatten().any(|entry| {
            // The link is read first: to look behind each could wait for a server that is gone.
            let Ok(link) = std::fs::read_link(entry.path()) else { return false };
            let may_be =
                link.file_name() == self.path.file_name() || (self.is_block() && link.starts_with("/dev"));
            if !may_be || !self.is(&entry.path()) {
                return false;
            }
            let info = format!("/proc/{process}/fdinfo/{}", entry.file_name().to_string_lossy());
            let info = std::fs::read_to_string(info).unwrap_or_default();
            info.lines().find_map(|line| line.strip_prefix("flags:")).is_some_and(writes)
        })
    }
}

/// A path in a message.
pub(super) struct PathShown(PathBuf);

impl std::fmt::Display for PathShown {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0.display())
    }
}

/// Whether flags of an open file, in octal digits, are those of one that is written.
fn writes(flags: &str) -> bool {
    u32::from_str_radix(flags.trim(), 8).is_ok_and(|flags| flags & 0o3 != 0)
}

/// Processes with a lock, by the kernel's list.
fn lock_holders(list: &str, device: u64, inode: u64) -> Vec<u32> {
    let holders = list.lines().filter_map(|line| {
        // A line of who waits has an arrow before its kind.
        if line.contains("->") {
            return None;
        }
        let mut fields = line.split_whitespace().skip(4);
        let process = fields.next()?.parse().ok()?;
        let mut place = fields.next()?.split(':');
        let of = makedev(
            u32::from_str_radix(place.next()?, 16).ok()?,
            u32::from_str_radix(place.next()?, 16).ok()?,
        );
        (of == device && place.next()?.parse::<u64>().ok()? == inode).then_some(process)
    });
    holders.collect()
}

fn named(process: u32) -> String {
    let name = std::fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
    match name.trim() {
        "" => format!("process {process}"),
        name => format!("process {process} ({name})"),
    }
}

/// A path as the kernel's tables write it: blanks and the like as three octal digits.
fn unescaped(path: &str) -> PathBuf {
    use std::os::unix::ffi::OsStringExt;
    let bytes = path.as_bytes();
    let (mut at, mut plain) = (0, Vec::with_capacity(bytes.len()));
    while at < bytes.len() {
        let digits = bytes.get(at + 1..at + 4).and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.filter(|_| bytes[at] == b'\\').and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                plain.push(byte);
                at += 4;
            }
            None => {
                plain.push(bytes[at]);
                at += 1;
            }
        }
    }
    PathBuf::from(std::ffi::OsString::from_vec(plain))
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn the_kernels_tables_are_read() {
        assert_eq!(unescaped("/mnt/two\\040words\\134"), Path::new("/mnt/two words\\"));
        assert!(writes("\t0100002") && writes("0100001") && !writes("0100000") && !writes("?"));
        let list = "1: FLOCK  ADVISORY  WRITE 4242 fe:00:77 0 EOF\n1: -> FLOCK  ADVISORY  WRITE 4243 fe:00:77 0 EOF\n\
                    2: POSIX  ADVISORY  READ 4244 fe:01:77 0 EOF\n3: OFDLCK ADVISORY  READ -1 fe:00:77 0 EOF\n";
        assert_eq!(lock_holders(list, makedev(0xfe, 0), 77), [4242]);
    }

    /// Goal: a drive is in use through its partitions, and through file systems with a number of their own. Method: a table of mounts.
    #[test]
    fn mounts_of_a_drive_are_found() {
        let metadata = std::fs::metadata("/").unwrap();
        let subject = Subject { path: "/dev/sda".into(), metadata, numbers: vec![(8, 0), (8, 1)] };
        let table = "22 1 8:1 / /data\\040here rw,noatime shared:1 - ext4 /dev/sda1 rw\n\
                     23 1 8:16 / /other rw - xfs /dev/no-such-device rw\n\
                     24 1 0:5 / /proc rw - proc proc rw\n";
        let places: Vec<String> = subject.mounts(table).iter().map(PathShown::to_string).collect();
        assert_eq!(places, ["/data here"]);
    }
}
