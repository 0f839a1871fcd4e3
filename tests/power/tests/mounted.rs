//! Disks that lose power, as programs of the system see them.

use diecut_media::{Intent, IntentDone, IntentError, IntentToken, IntentWork};
use diecut_power::{FailedFlush, Mounted, Options};
use diecut_reactor::{DriveRing, PageCache};
use diecut_testing::needs;
use diecut_testing::wait::{let_time_pass, wait_for, wait_until};
use diecut_units::{BufferMut, BufferPool};
use rustix::fs::OFlags;
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

const SIZE_BYTES: u64 = 8 << 20;
/// `EIO`: std has no word for it.
const EIO: Option<i32> = Some(5);

/// Disks on a folder that goes with them: a drive `drive`, and files. Fields go in their order.
struct Bench {
    mounted: Mounted,
    _folder: TempDir,
}

fn bench(seed: u64) -> Bench {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let drives = vec![("drive".to_owned(), SIZE_BYTES)];
    let options = Options { drives, has_files: true, seed, ..Options::default() };
    Bench { mounted: Mounted::new(folder.path(), &options).unwrap(), _folder: folder }
}

fn open(path: &Path, flags: OFlags) -> std::io::Result<File> {
    File::options().read(true).write(true).custom_flags(flags.bits() as i32).open(path)
}

/// What is read; through memory that a drive takes.
fn read(file: &File, offset: u64, len: usize) -> std::io::Result<Vec<u8>> {
    let mut buffer = BufferPool::new().take(len.max(4096));
    file.read_exact_at(&mut buffer[..len], offset)?;
    Ok(buffer[..len].to_vec())
}

fn write(file: &File, offset: u64, bytes: &[u8]) -> std::io::Result<()> {
    let mut buffer = BufferPool::new().take(bytes.len().max(4096));
    buffer[..bytes.len()].copy_from_slice(bytes);
    file.write_all_at(&buffer[..bytes.len()], offset)
}

fn error_of<T: std::fmt::Debug>(outcome: std::io::Result<T>) -> Option<i32> {
    outcome.unwrap_err().raw_os_error()
}

/// Goal: what is flushed outlives each cut and what is not does so only sometimes; who had it open before meets an error for ever. Method:
/// buffered and direct users, and many cuts. A page cache that outlived the cut would show what is lost.
#[test]
fn a_cut_takes_what_is_not_flushed() {
    if !needs::are_there(&needs::fuse()) {
        return;
    }
    for flags in [OFlags::empty(), OFlags::DIRECT] {
        let bench = bench(3);
        let (disks, path) = (bench.mounted.disks(), bench.mounted.path_of("drive"));
        let mut kept = [0; 2];
        for round in 1..=24u8 {
            let file = open(&path, flags).unwrap();
            write(&file, 0, &[round; 4096]).unwrap();
            file.sync_data().unwrap();
            write(&file, 4096, &[round; 4096]).unwrap();
            // What the kernel holds back is no business of the disk, and is lost the more surely.
            assert_eq!(read(&file, 4096, 4096).unwrap(), [round; 4096]);
            disks.cut(None).unwrap();
            assert_eq!(error_of(open(&path, flags)), EIO, "no power");
            disks.power_on();
            if flags == OFlags::DIRECT {
                assert_eq!(error_of(read(&file, 0, 4096)), EIO, "the machine that had it open is gone");
            }
            assert_eq!(error_of(file.sync_data().and_then(|()| write(&file, 0, &[0; 512]))), EIO);
            let file = open(&path, flags).unwrap();
            assert!(read(&file, 0, 4096).unwrap() == [round; 4096], "round {round}: it was flushed");
            let left = read(&file, 4096, 4096).unwrap();
            kept[usize::from(left == [round; 4096])] += 1;
        }
        assert!(kept[0] >= 4, "{flags:?}: lost and kept {kept:?}");
        assert!(flags.is_empty() || kept[1] >= 4, "{flags:?}: lost and kept {kept:?}");
    }
}

/// Goal: users past the page cache and those with it see the same disk, and it refuses what a drive refuses.
#[test]
fn direct_and_buffered_users_see_one_disk() {
    if !needs::are_there(&needs::fuse()) {
        return;
    }
    let bench = bench(1);
    let path = bench.mounted.path_of("drive");
    let (direct, buffered) = (open(&path, OFlags::DIRECT).unwrap(), open(&path, OFlags::empty()).unwrap());
    write(&direct, 8192, &[1; 4096]).unwrap();
    assert!(read(&buffered, 8192, 4096).unwrap() == [1; 4096]);
    write(&buffered, 8192 + 100, &[2; 100]).unwrap();
    buffered.sync_all().unwrap();
    let mut expected = [1; 4096];
    expected[100..200].fill(2);
    assert!(read(&direct, 8192, 4096).unwrap() == expected);
    assert_eq!(direct.metadata().unwrap().len(), SIZE_BYTES);
    assert_eq!(
        write(&direct, 100, &[1; 512]).unwrap_err().kind(),
        ErrorKind::InvalidInput,
        "no whole sectors"
    );
    assert_eq!(write(&direct, SIZE_BYTES, &[1; 512]).unwrap_err().kind(), ErrorKind::StorageFull);
    assert_eq!(direct.set_len(4096).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert!(std::fs::remove_file(&path).is_err(), "a drive stays");
    let hole = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(&direct, hole, 8192, 4096).unwrap();
    assert!(read(&direct, 8192, 4096).unwrap() == [0; 4096]);
    let statistics = bench.mounted.disks().statistics();
    assert!(statistics.flushes == 1 && statistics.discards == 1 && statistics.writes >= 2, "{statistics}");
}

/// Goal: files are made, renamed, cut off and removed, and their names outlive a cut.
#[test]
fn files_come_and_go() {
    if !needs::are_there(&needs::fuse()) {
        return;
    }
    let bench = bench(1);
    let of = |name: &str| bench.mounted.path_of(name);
    std::fs::write(of("a"), "abcdef").unwrap();
    open(&of("a"), OFlags::empty()).unwrap().sync_all().unwrap();
    std::fs::write(of("b"), "lost").unwrap();
    std::fs::rename(of("a"), of("c")).unwrap();
    std::fs::remove_file(of("b")).unwrap();
    bench.mounted.disks().cut(None).unwrap();
    bench.mounted.disks().power_on();
    let mut names: Vec<String> = std::fs::read_dir(of(""))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort_unstable();
    assert_eq!(names, ["c", "drive"]);
    assert_eq!(std::fs::read(of("c")).unwrap(), b"abcdef");
    let file = open(&of("c"), OFlags::empty()).unwrap();
    file.set_len(2).unwrap();
    assert_eq!(std::fs::read(of("c")).unwrap(), b"ab");
}

/// Goal: a flush fails once and says so; a disk that stalls answers nothing until it goes on, or the power goes; one that lies says that all is well.
#[test]
fn disks_fail_stall_and_lie() {
    if !needs::are_there(&needs::fuse()) {
        return;
    }
    let bench = bench(1);
    let (disks, path) = (bench.mounted.disks(), bench.mounted.path_of("drive"));
    let file = open(&path, OFlags::DIRECT).unwrap();
    write(&file, 0, &[1; 4096]).unwrap();
    disks.fail_next_flush(FailedFlush::Forgets);
    assert_eq!(error_of(file.sync_data()), EIO);
    file.sync_data().unwrap();
    assert!(read(&file, 0, 4096).unwrap() == [1; 4096], "there as long as the power is");
    disks.stall(true);
    std::thread::scope(|scope| {
        let stalled = scope.spawn(|| write(&file, 4096, &[2; 4096]));
        let_time_pass(Duration::from_millis(30));
        assert!(!stalled.is_finished());
        disks.stall(false);
        stalled.join().unwrap().unwrap();
        disks.stall(true);
        let stalled = scope.spawn(|| write(&file, 4096, &[3; 4096]));
        let_time_pass(Duration::from_millis(30));
        assert!(!stalled.is_finished());
        disks.cut(None).unwrap();
        assert_eq!(error_of(stalled.join().unwrap()), EIO);
    });
    disks.power_on();
    disks.lie(true);
    let file = open(&path, OFlags::DIRECT).unwrap();
    write(&file, 0, &[4; 4096]).unwrap();
    file.sync_data().unwrap();
    let statistics = disks.statistics();
    assert_eq!((statistics.lies, statistics.unflushed_writes, statistics.cuts), (1, 1, 1), "{statistics}");
}

/// Goal: the power goes amid the command that was said, and all before it were answered.
#[test]
fn a_cut_comes_at_its_command() {
    if !needs::are_there(&needs::fuse()) {
        return;
    }
    let bench = bench(1);
    let disks = bench.mounted.disks();
    for commands in 0..6 {
        let file = open(&bench.mounted.path_of("drive"), OFlags::DIRECT).unwrap();
        disks.cut_after(commands);
        let mut answered = 0;
        while match answered % 2 {
            0 => write(&file, 0, &[1; 512]),
            _ => file.sync_data(),
        }
        .is_ok()
        {
            answered += 1;
        }
        assert_eq!(answered, commands);
        assert!(!disks.is_on());
        disks.power_on();
    }
}

fn execute(ring: &mut DriveRing, work: IntentWork) -> IntentDone {
    ring.push(Intent { token: IntentToken(1), work });
    let mut done = Vec::new();
    while done.is_empty() {
        ring.submit_and_wait();
        ring.take_done(&mut done);
    }
    done.remove(0)
}

/// Goal: a ring reads, writes, discards and flushes past the page cache, in many parts and more at once than it has room for.
#[test]
fn a_ring_works_on_it() {
    if !needs::are_there(&needs::fuse()) {
        return;
    }
    let bench = bench(1);
    let path = bench.mounted.path_of("drive");
    let mut ring = DriveRing::new(&open(&path, OFlags::empty()).unwrap(), PageCache::Bypassed).unwrap();
    let whole: Vec<u8> = (0..65536u32).map(|at| (at / 512) as u8).collect();
    let buffer = BufferPool::new().copy_of(&whole).freeze();
    for number in 0..64 {
        let parts = [0..4096, 4096..20480, 20480..65536].map(|range| buffer.slice(range));
        let work =
            IntentWork::Write { offset: number * 65536, parts: parts.into_iter().collect(), handle: 0 };
        ring.push(Intent { token: IntentToken(number), work });
    }
    let mut done = Vec::new();
    while !ring.is_idle() {
        ring.submit_and_wait();
        ring.take_done(&mut done);
    }
    assert!(done.len() == 64 && done.iter().all(|done| done.result == Ok(())));
    assert_eq!(execute(&mut ring, IntentWork::Sync).result, Ok(()));
    let discard = IntentWork::Discard { offset: 65536, len_bytes: 65536 };
    assert_eq!(execute(&mut ring, discard).result, Ok(()));
    for (number, expected) in [(0, whole.clone()), (1, vec![0; 65536]), (63, whole)] {
        let work = IntentWork::Read { offset: number * 65536, buffer: BufferMut::copy_from(&[9; 65536]) };
        let done = execute(&mut ring, work);
        assert_eq!(done.result, Ok(()));
        assert!(done.buffer.unwrap()[..] == expected[..], "place {number}");
    }
    let statistics = bench.mounted.disks().statistics();
    assert_eq!((statistics.writes, statistics.flushes, statistics.discards), (64, 1, 1), "{statistics}");
    bench.mounted.disks().cut(None).unwrap();
    assert_eq!(execute(&mut ring, IntentWork::Sync).result, Err(IntentError::Failed));
}

/// Goal: scripts have it as a program: it mounts, does what it is told at its socket and on its input, and unmounts when it is ended.
#[test]
fn the_program_takes_commands_and_ends() {
    if !needs::are_there(&needs::fuse()) {
        return;
    }
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (disks, socket) = (folder.path().join("disks"), folder.path().join("control"));
    std::fs::create_dir(&disks).unwrap();
    let program = env!("CARGO_BIN_EXE_diecut-power");
    /// It does not outlive the test.
    struct Served(std::process::Child);
    impl Drop for Served {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }
    let child = Command::new(program)
        .args(["serve", "--drive", "a=1M", "--drive", "b=2M", "--seed", "9", "--control"])
        .args([&socket, &disks])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let mut served = Served(child.unwrap());
    let child = &mut served.0;
    let mut said = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(said.next().unwrap().unwrap().ends_with(", seed 9"));
    assert_eq!(disks.join("b").metadata().unwrap().len(), 2 << 20);
    let tell = |words: &[&str]| {
        let output = Command::new(program).arg("tell").arg(&socket).args(words).output().unwrap();
        (output.status.success(), String::from_utf8(output.stdout).unwrap())
    };
    std::fs::write(disks.join("a"), "never flushed").unwrap_err();
    let (is_done, answer) = tell(&["cut"]);
    assert!(is_done && answer.starts_with("ok cut=1 "), "{answer}");
    assert_eq!(error_of(File::open(disks.join("a"))), EIO);
    assert_eq!(tell(&["on"]), (true, "ok\n".to_owned()));
    File::open(disks.join("a")).unwrap();
    assert!(!tell(&["dance"]).0);
    let mut input = child.stdin.take().unwrap();
    writeln!(input, "stats").unwrap();
    assert!(said.next().unwrap().unwrap().contains(" cuts=1 "));
    let id = child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
    assert!(wait_for(|| "it goes on", || child.try_wait().unwrap()).success());
    let mounts = || std::fs::read_to_string("/proc/self/mounts").unwrap();
    wait_until(|| "it is mounted still", || !mounts().contains(disks.to_str().unwrap()));
}
