//! The bridge alone: a file is what its namespace holds, and nobody waits for a server that is gone.

use super::rig::{Liar, PLAIN, Rig, Shape};
use diecut_testing::needs;
use diecut_testing::wait::{let_time_pass, within};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, mpsc};
use std::time::Duration;

/// Much less than the bridge's patience with a target that says nothing, on a busy machine, too.
const SOON: Duration = Duration::from_secs(30);
const SIZE_BYTES: usize = 96 << 20;

fn open(rig: &Rig) -> File {
    File::options().read(true).write(true).open(rig.file()).unwrap()
}

/// Goal: bytes are written wherever they are, up to the end, and what is discarded reads as zeros. Method: random pieces of random lengths, beside what
/// they should leave; the same after the power was cut behind an fsync.
#[test]
fn a_namespace_is_a_file() {
    if !needs::are_there(&needs::fuse()) {
        return;
    }
    let mut rig = Rig::new(51, Shape { gives_back: true, ..PLAIN }, Liar::Nobody);
    rig.start().unwrap();
    let file = open(&rig);
    assert_eq!(file.metadata().unwrap().len(), SIZE_BYTES as u64);
    let (window, mut known) = (3 << 20, vec![0; 3 << 20]);
    for round in 1..=150u8 {
        let at = rig.random.below(window) as usize;
        let len = 1 + rig.random.below([20_000, 2 << 20][usize::from(round % 8 == 0)]) as usize;
        let end = (at + len).min(window as usize);
        if round % 5 == 0 {
            let hole = makes_hole(&file, at as u64, (end - at) as u64);
            assert!(hole, "a hole from {at} to {end}");
            known[at..end].fill(0);
        } else {
            known[at..end].fill(round);
            file.write_all_at(&known[at..end], at as u64).unwrap();
        }
    }
    let look = |file: &File| {
        let mut found = vec![0; window as usize];
        file.read_exact_at(&mut found, 0).unwrap();
        assert!(
            found == known,
            "the bytes at {:?}",
            found.iter().zip(&known).position(|(one, other)| one != other)
        );
        let mut odd = [0; 1001];
        file.read_exact_at(&mut odd, 12_345).unwrap();
        assert!(odd == known[12_345..][..1001]);
    };
    look(&file);
    assert_eq!(file.read_at(&mut [0; 8192], SIZE_BYTES as u64 - 4096).unwrap(), 4096);
    assert!(file.write_at(&[0; 8192], SIZE_BYTES as u64 - 4096).is_err(), "behind the end");
    file.sync_all().unwrap();
    drop(file);
    rig.end();
    rig.start().unwrap();
    look(&open(&rig));
}

/// Goal: parts of a block that are written at a time do not undo each other.
#[test]
fn parts_of_a_block_are_written_at_a_time() {
    if !needs::are_there(&needs::fuse()) {
        return;
    }
    let mut rig = Rig::new(52, PLAIN, Liar::Nobody);
    rig.start().unwrap();
    let file = open(&rig);
    std::thread::scope(|scope| {
        for part in 0..4u8 {
            let file = &file;
            scope.spawn(move || {
                for round in 1..=100u8 {
                    let mut found = [0; 1024];
                    file.write_all_at(&[round; 1024], u64::from(part) * 1024).unwrap();
                    file.read_exact_at(&mut found, u64::from(part) * 1024).unwrap();
                    assert!(found == [round; 1024], "part {part}");
                }
            });
        }
    });
}

/// Goal: who waits for an answer, and who comes later, meets EIO soon after the server was killed. Method: a disk that answers nothing.
#[test]
#[allow(clippy::disallowed_methods, reason = "somebody waits, and is not waited for if it is in vain")]
fn nobody_waits_for_a_server_that_is_gone() {
    if !needs::are_there(&needs::fuse()) {
        return;
    }
    let mut rig = Rig::new(53, PLAIN, Liar::Nobody);
    rig.start().unwrap();
    let file = Arc::new(open(&rig));
    file.write_all_at(&[1; 4096], 0).unwrap();
    let (tells, told) = mpsc::channel();
    rig.disks().stall(true);
    for _ in 0..6 {
        let (file, tells) = (Arc::clone(&file), tells.clone());
        std::thread::spawn(move || tells.send(file.sync_all().unwrap_err().raw_os_error()));
    }
    // Until they wait.
    let_time_pass(Duration::from_millis(100));
    rig.kill_server();
    let mut errors = Vec::new();
    within(
        SOON,
        || "somebody waits",
        || {
            errors.extend(told.try_iter());
            (errors.len() == 6).then_some(())
        },
    );
    assert!(errors.iter().all(|error| *error == Some(5)), "{errors:?}");
    assert_eq!(file.read_at(&mut [0; 4096], 0).unwrap_err().raw_os_error(), Some(5));
    rig.disks().stall(false);
}

/// Whether a hole could be made.
fn makes_hole(file: &File, at: u64, len: u64) -> bool {
    use rustix::fs::FallocateFlags;
    rustix::fs::fallocate(file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, at, len).is_ok()
}
