//! A drive on a file of this machine, through the kernel's ring: the suite of the flash contract, and what the kernel refuses.

use diecut_drives::{DriveMedium, DriveShape};
use diecut_media::*;
use diecut_reactor::{DriveRing, PageCache};
use diecut_testing::driven::{CarryOut, Driven};
use diecut_units::*;
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;

const SIZE_BYTES: u64 = 40 << 20;

fn file(size_bytes: u64) -> File {
    let file = tempfile::tempfile_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    file.set_len(size_bytes).unwrap();
    file
}

/// A ring past the page cache where the file system has a way.
fn ring(file: &File) -> DriveRing {
    match DriveRing::new(file, PageCache::Bypassed) {
        Err(error) if error.kind() == ErrorKind::InvalidInput => {
            println!("this file system has no way past the page cache: through it");
            DriveRing::new(file, PageCache::Used).unwrap()
        }
        other => other.unwrap(),
    }
}

/// A ring carries out what a medium asks for. Who wants to know what is done waits for it, so that virtual time goes with real work.
struct OnRing(DriveRing);

impl CarryOut for OnRing {
    fn begin(&mut self, intents: &mut Vec<Intent>, _now: Time) {
        intents.drain(..).for_each(|intent| self.0.push(intent));
        self.0.submit();
    }
    fn end(&mut self, _now: Time, done: &mut Vec<IntentDone>) {
        self.0.submit_and_wait();
        self.0.take_done(done);
    }
    fn next_event(&self) -> Time {
        if self.0.is_idle() { Time::NEVER } else { Time::ZERO }
    }
}

fn on_file(file: &File) -> Driven<DriveMedium, OnRing> {
    let shape = DriveShape::plan(SIZE_BYTES, 4, Some(1 << 20)).unwrap();
    Driven::new(DriveMedium::new(shape, true, true), OnRing(ring(file)))
}

/// Goal: a drive on a real file keeps the flash contract. Method: the suite, each check on a file of its own.
#[test]
fn the_contract_holds_on_a_file() {
    conformance::all(&mut || on_file(&file(SIZE_BYTES)));
}

/// Goal: what a process flushed is there for the next one. Method: the ring and all that is known of the drive go away amid work; the file stays.
#[test]
fn what_is_flushed_is_there_when_it_is_opened_again() {
    for seed in 0..4 {
        let file = file(SIZE_BYTES);
        conformance::flushed_content_survives_cuts(on_file(&file), seed, &mut |_| on_file(&file));
    }
}

fn execute(ring: &mut DriveRing, work: IntentWork) -> IntentDone {
    ring.push(Intent { token: IntentToken(5), work });
    let mut done = Vec::new();
    while done.is_empty() {
        ring.submit_and_wait();
        ring.take_done(&mut done);
    }
    assert_eq!((done.len(), done[0].token), (1, IntentToken(5)));
    done.remove(0)
}

fn write(ring: &mut DriveRing, offset: u64, parts: &[&[u8]]) -> Result<(), IntentError> {
    let parts = parts.iter().map(|part| Buffer::copy_from(part)).collect();
    execute(ring, IntentWork::Write { offset, parts }).result
}

fn read(ring: &mut DriveRing, offset: u64, len: usize) -> Result<Vec<u8>, IntentError> {
    let done = execute(ring, IntentWork::Read { offset, buffer: BufferMut::copy_from(&vec![9; len]) });
    let buffer = done.buffer.expect("the buffer comes back");
    done.result.map(|()| buffer.to_vec())
}

/// Goal: bytes of memory that no drive takes go there and back. Method: buffers that begin at odd addresses, in several parts.
#[test]
fn memory_need_not_be_aligned() {
    let file = file(1 << 20);
    let mut ring = ring(&file);
    let bytes: Vec<u8> = (0..8191u32).map(|at| (at % 251) as u8).collect();
    let odd = Buffer::copy_from(&bytes).slice(1..);
    let last = Buffer::copy_from(&[7; 2]);
    let parts = [odd.slice(..5000), odd.slice(5000..), last].into_iter().collect();
    assert_eq!(execute(&mut ring, IntentWork::Write { offset: 4096, parts }).result, Ok(()));
    let mut whole = BufferMut::copy_from(&[0; 8193]);
    let _ = whole.split_to(1);
    let done = execute(&mut ring, IntentWork::Read { offset: 4096, buffer: whole });
    assert_eq!(done.result, Ok(()));
    assert!(done.buffer.unwrap()[..] == [&bytes[1..], &[7, 7]].concat()[..]);
}

/// Goal: more is taken than the kernel has room for, and each is answered once.
#[test]
fn many_at_once_are_each_answered() {
    let file = file(8 << 20);
    let mut ring = ring(&file);
    let page = Buffer::copy_from(&[3; 4096]);
    for number in 0..2000u64 {
        let parts = [page.clone()].into_iter().collect();
        let work = match number % 7 {
            6 => IntentWork::Sync,
            _ => IntentWork::Write { offset: number * 4096, parts },
        };
        ring.push(Intent { token: IntentToken(number), work });
    }
    let mut done = Vec::new();
    while !ring.is_idle() {
        ring.submit_and_wait();
        ring.take_done(&mut done);
    }
    let mut tokens: Vec<u64> = done.iter().map(|done| (done.result, done.token.0).1).collect();
    tokens.sort_unstable();
    assert_eq!(tokens, (0..2000).collect::<Vec<u64>>());
    assert!(done.iter().all(|done| done.result == Ok(())));
}

/// Goal: a discard gives back room, and what was there reads as zeros on a file; beyond the end of the file there is nothing to read.
#[test]
fn discards_give_room_back() {
    let file = file(4 << 20);
    let mut ring = ring(&file);
    assert_eq!(write(&mut ring, 0, &[&[5; 1 << 20]]), Ok(()));
    assert_eq!(execute(&mut ring, IntentWork::Sync).result, Ok(()));
    let before = file.metadata().unwrap().blocks();
    let work = IntentWork::Discard { offset: 4096, len_bytes: (1 << 20) - 4096 };
    assert_eq!(execute(&mut ring, work).result, Ok(()));
    let after = file.metadata().unwrap().blocks();
    assert!(after * 10 < before, "{after} of {before} sectors are left");
    assert_eq!(read(&mut ring, 0, 4096), Ok(vec![5; 4096]));
    assert_eq!(read(&mut ring, 8192, 4096), Ok(vec![0; 4096]));
    assert_eq!(read(&mut ring, 4 << 20, 4096), Err(IntentError::Failed), "behind the end");
    let half = read(&mut ring, (4 << 20) - 4096, 8192);
    assert_eq!(half, Err(IntentError::Failed), "half of it is behind the end");
}

/// Goal: a drive without room says so, and one that refuses. Method: a device that is always full, and a file under a seal.
#[test]
fn what_the_kernel_refuses_is_told() {
    let full = File::options().read(true).write(true).open("/dev/full").unwrap();
    let mut ring = DriveRing::new(&full, PageCache::Used).unwrap();
    assert_eq!(write(&mut ring, 0, &[&[1; 4096]]), Err(IntentError::Full));
    let mut sealed = ring_of_a_sealed_file();
    assert_eq!(write(&mut sealed, 0, &[&[1; 4096]]), Err(IntentError::Failed));
}

/// A ring whose file may not be written any more: a file in memory under a seal.
fn ring_of_a_sealed_file() -> DriveRing {
    let memory = rustix::fs::memfd_create("drive", rustix::fs::MemfdFlags::ALLOW_SEALING).unwrap();
    rustix::fs::ftruncate(&memory, 1 << 20).unwrap();
    let memory = File::from(memory);
    let ring = DriveRing::new(&memory, PageCache::Used).unwrap();
    rustix::fs::fcntl_add_seals(&memory, rustix::fs::SealFlags::WRITE).unwrap();
    ring
}

/// Goal: a ring that goes away waits for what the kernel still has of it. Method: it is dropped amid reads; memory is whole.
#[test]
fn a_ring_ends_with_its_commands() {
    let file = file(16 << 20);
    for _ in 0..20 {
        let mut ring = ring(&file);
        let mut pool = BufferPool::new();
        for number in 0..400u64 {
            let work = IntentWork::Read { offset: number * 32768, buffer: pool.take(32768) };
            ring.push(Intent { token: IntentToken(number), work });
        }
        ring.submit();
        drop(ring);
        assert!(pool.take(32768).len() == 32768);
    }
}
