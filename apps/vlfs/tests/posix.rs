//! Goal: what POSIX says of files holds on the mount. Method: two suites that others wrote, in versions that scripts/setup.sh pins: fsx
//! (random reads, writes, truncates, maps of a file against one in memory) and pjdfstest (398 cases of calls, errors, owners and
//! times). What they leave out of Linux's calls is here. What pjdfstest does not pass is listed with reasons in `pjdfstest-waivers.txt`, exactly.
#![allow(clippy::disallowed_methods, reason = "drives real processes")]

mod mounted;

use diecut_testing::needs;
use mounted::{Mount, run, tool};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CString, OsString};
use std::io::Error;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

const OPERATIONS: u32 = 4000;
const SEEDS: u32 = 3;

#[test]
fn fsx_finds_nothing() {
    if !mounted::is_possible(&[needs::tool("fsx")]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mount = Mount::embedded(&folder.path().join("mount"));
    let config = folder.path().join("fsx.toml");
    let weights = "close_open = 1\ninvalidate = 1\nfsync = 0.3\nfdatasync = 0.3\nposix_fallocate = 0.2\nsendfile = 1\n\
                   posix_fadvise = 1\ncopy_file_range = 1\n";
    std::fs::write(&config, format!("flen = 1000000\n[opsize]\nmax = 100000\n[weights]\n{weights}")).unwrap();
    let started = Instant::now();
    for seed in 1..=SEEDS {
        let mut fsx = Command::new("timeout");
        fsx.arg("100").arg(tool("fsx")).args(["-N", &OPERATIONS.to_string(), "-S", &seed.to_string(), "-f"]);
        let said = run(fsx.arg(&config).arg("-P").arg(folder.path()).arg(mount.path.join("fsx")));
        assert!(said.contains("All operations completed A-OK"), "seed {seed}: {said}");
    }
    println!("fsx: {} operations, {:.1} s", SEEDS * OPERATIONS, started.elapsed().as_secs_f64());
    mount.unmount();
}

/// Linux's `renameat2`; the number of its error.
fn rename(from: &Path, to: &Path, flags: libc::c_uint) -> Result<(), i32> {
    let [from, to] = [from, to].map(|path| CString::new(path.as_os_str().as_bytes()).unwrap());
    // SAFETY: two strings with an end, which live as long as the call.
    let code = unsafe { libc::renameat2(libc::AT_FDCWD, from.as_ptr(), libc::AT_FDCWD, to.as_ptr(), flags) };
    if code == 0 { Ok(()) } else { Err(Error::last_os_error().raw_os_error().unwrap()) }
}

#[test]
fn flags_of_renames_and_groups_of_folders_do_what_linux_says() {
    if !mounted::is_possible(&[]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mount = Mount::embedded(&folder.path().join("mount"));
    let (a, b, inside) = (mount.path.join("a"), mount.path.join("b"), mount.path.join("a/inside"));
    std::fs::create_dir(&a).unwrap();
    std::fs::write(&inside, b"x").unwrap();
    std::fs::write(&b, b"y").unwrap();
    assert_eq!(rename(&b, &a, libc::RENAME_NOREPLACE), Err(libc::EEXIST));
    assert_eq!(rename(&b, &mount.path.join("c"), libc::RENAME_WHITEOUT), Err(libc::EINVAL));
    assert_eq!(rename(&a, &inside, libc::RENAME_EXCHANGE), Err(libc::EINVAL));
    rename(&a, &b, libc::RENAME_EXCHANGE).unwrap();
    assert_eq!(
        (std::fs::read(&a).unwrap(), std::fs::read(b.join("inside")).unwrap()),
        (b"y".to_vec(), b"x".to_vec())
    );
    rename(&a, &mount.path.join("c"), libc::RENAME_NOREPLACE).unwrap();
    assert!(!a.exists());

    // What is made in a folder with the setgid bit has its group; folders have the bit, too.
    chown(&b, None, Some(777)).unwrap();
    std::fs::set_permissions(&b, PermissionsExt::from_mode(0o2775)).unwrap();
    std::fs::create_dir(b.join("d")).unwrap();
    std::fs::write(b.join("d/file"), b"").unwrap();
    let known = |name: &str| {
        let known = b.join(name).metadata().unwrap();
        (known.gid(), known.mode() & 0o7000)
    };
    assert_eq!((known("d"), known("d/file")), ((777, 0o2000), (777, 0)));

    // What there is not is said.
    let file = std::fs::File::options().write(true).open(b.join("inside")).unwrap();
    // SAFETY: an open file; no memory.
    assert_eq!(unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, 10) }, -1);
    assert_eq!(Error::last_os_error().raw_os_error(), Some(libc::EOPNOTSUPP));
    let name = c"user.a";
    // SAFETY: an open file, a string with an end, and one byte.
    assert_eq!(unsafe { libc::fsetxattr(file.as_raw_fd(), name.as_ptr(), name.as_ptr().cast(), 1, 0) }, -1);
    assert_eq!(Error::last_os_error().raw_os_error(), Some(libc::EOPNOTSUPP));
    drop(file);
    mount.unmount();
}

/// Outcomes by the names of cases, on a file system of its own.
fn pjdfstest(folder: &Path, allow_remount: bool, pattern: &str) -> BTreeMap<String, String> {
    let name = format!("pjdfstest-{allow_remount}");
    let mount = Mount::embedded(&folder.join(&name));
    let work = mount.path.join("work");
    std::fs::create_dir(&work).unwrap();
    std::fs::set_permissions(&work, PermissionsExt::from_mode(0o777)).unwrap();
    let second = tempfile::tempdir_in("/dev/shm").unwrap();
    let config = folder.join(format!("{name}.toml"));
    let text = format!(
        "[features]\nposix_fallocate = {{}}\nrename_ctime = {{}}\nutimensat = {{}}\nutime_now = {{}}\n\
         [settings]\nnaptime = 0.01\nallow_remount = {allow_remount}\n\
         [dummy_auth]\nentries = [[\"nobody\", \"nogroup\"], [\"daemon\", \"daemon\"]]\n"
    );
    std::fs::write(&config, text).unwrap();
    let mut command = Command::new("timeout");
    command.arg("100").arg(tool("pjdfstest")).arg("-c").arg(config).arg("-p").arg(work);
    command.arg("-s").arg(second.path()).arg(pattern).env("PATH", path_with_own_mount(folder));
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("Summary: "), "{said}{}", String::from_utf8_lossy(&output.stderr));
    let words = said.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let outcomes = words.filter_map(|words| match words[..] {
        [name, outcome @ ("ok" | "FAILED" | "skipped")] => Some((name.to_owned(), outcome.to_owned())),
        _ => None,
    });
    let outcomes: BTreeMap<String, String> = outcomes.collect();
    if outcomes.values().any(|outcome| outcome == "FAILED") {
        println!("{said}");
    }
    mount.unmount();
    outcomes
}

/// The suite remounts with `mount -o remount`, which leaves that to the helper of fuse3; it would run what is mounted as a program.
fn path_with_own_mount(folder: &Path) -> OsString {
    let programs = folder.join("programs");
    if !programs.exists() {
        std::fs::create_dir(&programs).unwrap();
        let mount = programs.join("mount");
        std::fs::write(&mount, "#!/bin/sh\nexec /bin/mount -i \"$@\"\n").unwrap();
        std::fs::set_permissions(&mount, PermissionsExt::from_mode(0o755)).unwrap();
    }
    let mut path = programs.into_os_string();
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap());
    path
}

#[test]
fn pjdfstest_passes_but_for_waivers() {
    if !mounted::is_possible(&[needs::tool("pjdfstest")]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let started = Instant::now();
    let mut outcomes = pjdfstest(folder.path(), false, "");
    // Those that mount it read-only, on their own: the kernel refuses it while inodes without a name wait to be forgotten.
    outcomes.extend(pjdfstest(folder.path(), true, "erofs"));
    let waivers = include_str!("pjdfstest-waivers.txt").lines().filter(|line| !line.starts_with('#'));
    let waived: BTreeSet<&str> =
        waivers.filter_map(|line| line.split_once(": ")).map(|(name, _)| name).collect();
    let not_passed: BTreeSet<&str> =
        outcomes.iter().filter(|(_, outcome)| *outcome != "ok").map(|(name, _)| name.as_str()).collect();
    println!(
        "pjdfstest: {} of {} cases pass, {} waived, {:.1} s",
        outcomes.len() - not_passed.len(),
        outcomes.len(),
        waived.len(),
        started.elapsed().as_secs_f64()
    );
    assert_eq!(not_passed, waived, "{outcomes:?}");
    assert!(outcomes.len() > 390, "{} cases", outcomes.len());
}
