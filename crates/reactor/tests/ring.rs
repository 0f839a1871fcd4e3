//! A drive on a file of this machine, through the kernel's ring: the suite of the flash contract, and what the kernel refuses.

use diecut_drives::{DriveMedium, DriveShape};
use diecut_media::*;
use diecut_reactor::{DriveRing, PageCache};
use diecut_testing::driven::{CarryOut, Driven};
use diecut_testing::mounted::in_small_file_system;
use diecut_units::*;
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
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
    // A command may end in parts, but not in so many.
    for _ in 0..1000 {
        ring.submit_and_wait();
        ring.take_done(&mut done);
        if !done.is_empty() {
            break;
        }
    }
    assert_eq!(done.len(), 1, "it is answered, once");
    assert_eq!(done[0].token, IntentToken(5));
    done.remove(0)
}

/// Goal: a flush that the kernel does not carry out is one that failed. Method: a file that cannot be flushed.
#[test]
fn a_flush_that_is_refused_fails() {
    let file = File::options().read(true).write(true).open("/dev/null").unwrap();
    assert!(file.sync_data().is_err(), "the kernel flushes no null device");
    let mut ring = DriveRing::new(&file, PageCache::Used).unwrap();
    assert_eq!(execute(&mut ring, IntentWork::Sync).result, Err(IntentError::Failed));
}

fn write(ring: &mut DriveRing, offset: u64, parts: &[&[u8]]) -> Result<(), IntentError> {
    let parts = parts.iter().map(|part| Buffer::copy_from(part)).collect();
    execute(ring, IntentWork::Write { offset, parts, handle: 0 }).result
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
    assert_eq!(execute(&mut ring, IntentWork::Write { offset: 4096, parts, handle: 0 }).result, Ok(()));
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
            _ => IntentWork::Write { offset: number * 4096, parts, handle: 0 },
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

/// Both ends of a pipe with room for so many bytes, and a ring on it. A pipe takes bytes in the order in which it is given them, whatever their
/// offset, and no more at once than it has room for.
fn ring_of_a_pipe(room_bytes: usize) -> (File, File, DriveRing) {
    let (reader, writer) = std::io::pipe().unwrap();
    let (reader, writer) = (File::from(OwnedFd::from(reader)), File::from(OwnedFd::from(writer)));
    let room = rustix::pipe::fcntl_setpipe_size(&writer, room_bytes).unwrap();
    assert_eq!(room, room_bytes);
    rustix::fs::fcntl_setfl(&reader, rustix::fs::OFlags::NONBLOCK).unwrap();
    let ring = DriveRing::new(&writer, PageCache::Used).unwrap();
    (reader, writer, ring)
}

/// Appends what is in a pipe.
fn drain(pipe: &mut File, into: &mut Vec<u8>) {
    match pipe.read_to_end(into) {
        Err(error) if error.kind() == ErrorKind::WouldBlock => {}
        other => panic!("a pipe whose other end is open: {other:?}"),
    }
}

/// Goal: what waits because the kernel has no room goes to it in the order in which it came. Method: more writes than it has at once, to a
/// pipe, which shows their order.
#[test]
fn what_waits_goes_in_its_order() {
    const COUNT: u32 = 800;
    let (mut pipe, _writer, mut ring) = ring_of_a_pipe(1 << 20);
    for number in 0..COUNT {
        let parts = [Buffer::copy_from(&number.to_le_bytes().repeat(128))].into_iter().collect();
        let work = IntentWork::Write { offset: 0, parts, handle: 0 };
        ring.push(Intent { token: IntentToken(number.into()), work });
    }
    let (mut done, mut came) = (Vec::new(), Vec::new());
    while !ring.is_idle() {
        ring.submit_and_wait();
        ring.take_done(&mut done);
    }
    assert!(done.len() == COUNT as usize && done.iter().all(|done| done.result == Ok(())));
    drain(&mut pipe, &mut came);
    let numbers: Vec<u32> =
        came.chunks(512).map(|one| u32::from_le_bytes(one[..4].try_into().unwrap())).collect();
    assert_eq!(numbers, (0..COUNT).collect::<Vec<u32>>());
}

/// Goal: a write of which the kernel took a part goes on where it stopped, in the part of the buffer and in the middle of one. Method: a pipe
/// with room for a page, which is emptied again and again; memory as a drive takes it, and other memory.
#[test]
fn the_rest_of_a_short_write_follows() {
    let mut pool = BufferPool::new();
    for lens in [&[512, 5120, 1024, 12288][..], &[700, 1, 9000, 3333], &[16384]] {
        let (mut pipe, _writer, mut ring) = ring_of_a_pipe(4096);
        let whole: Vec<u8> = (0..lens.iter().sum::<usize>()).map(|at| (at % 251) as u8).collect();
        let buffer = pool.copy_of(&whole).freeze();
        assert!(buffer.as_ptr().addr().is_multiple_of(512), "as a drive takes it");
        let mut from = 0;
        let parts = lens.iter().map(|len| {
            from += len;
            buffer.slice(from - len..from)
        });
        let work = IntentWork::Write { offset: 0, parts: parts.collect(), handle: 0 };
        ring.push(Intent { token: IntentToken(1), work });
        let (mut done, mut came) = (Vec::new(), Vec::new());
        while done.is_empty() && came.len() <= whole.len() {
            ring.submit();
            drain(&mut pipe, &mut came);
            ring.take_done(&mut done);
            std::thread::yield_now();
        }
        drain(&mut pipe, &mut came);
        assert!(came == whole, "{lens:?}: {} of {} bytes, or others", came.len(), whole.len());
        assert_eq!((done.len(), done[0].result), (1, Ok(())));
    }
}

/// Goal: a read that got a part of its bytes goes on behind them. Method: a pipe that has never more than a part.
#[test]
fn the_rest_of_a_short_read_follows() {
    for skip in [0, 1] {
        let (_reader, mut pipe, mut ring) = ring_of_a_pipe(4096);
        let whole: Vec<u8> = (0..10240 - skip).map(|at| (at % 251) as u8).collect();
        let mut buffer = BufferMut::copy_from(&[0; 10240]);
        let _ = buffer.split_to(skip);
        ring.push(Intent { token: IntentToken(1), work: IntentWork::Read { offset: 0, buffer } });
        ring.submit();
        let mut done = Vec::new();
        for part in whole.chunks(1000) {
            assert!(done.is_empty(), "before all is there");
            // Waits while the pipe is full: the ring must have taken what was there.
            pipe.write_all(part).unwrap();
            ring.take_done(&mut done);
            ring.submit();
        }
        while done.is_empty() {
            ring.submit_and_wait();
            ring.take_done(&mut done);
        }
        assert_eq!((done.len(), done[0].result), (1, Ok(())));
        assert!(done[0].buffer.as_ref().unwrap()[..] == whole[..], "bytes at their places, skipped {skip}");
    }
}

/// Goal: the rest of a write goes to the place behind its beginning. Method: a file system with room for a part: at the right place there is
/// none, at the beginning there is.
#[test]
fn the_rest_of_a_short_write_goes_behind_its_beginning() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    in_small_file_system("on_a_small_file_system", "256k", folder.path(), SMALL);
}

/// The variable with the folder of a small file system.
const SMALL: &str = "DIECUT_RING_SMALL";

#[test]
#[ignore = "needs a small file system: the_rest_of_a_short_write_goes_behind_its_beginning"]
fn on_a_small_file_system() {
    let path = std::path::PathBuf::from(std::env::var_os(SMALL).unwrap()).join("file");
    let file = File::options().read(true).write(true).create_new(true).open(path).unwrap();
    let mut ring = DriveRing::new(&file, PageCache::Used).unwrap();
    let bytes = [[7; 131_072], [8; 131_072], [9; 131_072]].concat();
    assert_eq!(write(&mut ring, 0, &[&bytes]), Err(IntentError::Full));
    let begun = file.metadata().unwrap().len();
    assert!(begun > 0 && begun < bytes.len() as u64, "a part of it is there: {begun}");
    assert!(read(&mut ring, 0, 65536).unwrap() == [7; 65536], "the beginning stays");
}

/// Goal: a discard that the file has no way for is advice not taken: it is answered once, as if it had been, and the ring goes on. One that the
/// file refuses has failed. Method: a file of the kernel's that has no way for it, one under a seal, and a device that has no such thing.
#[test]
fn a_discard_that_cannot_be_is_answered_once() {
    let discard = || IntentWork::Discard { offset: 0, len_bytes: 4096 };
    let no_way = File::options().read(true).write(true).open("/proc/self/comm").unwrap();
    let mut ring = DriveRing::new(&no_way, PageCache::Used).unwrap();
    for _ in 0..3 {
        assert_eq!(execute(&mut ring, discard()).result, Ok(()));
        assert!(ring.is_idle());
    }
    assert!(read(&mut ring, 0, 4).is_ok(), "the ring goes on");
    let mut sealed = ring_of_a_sealed_file();
    assert_eq!(execute(&mut sealed, discard()).result, Err(IntentError::Failed));
    let (_reader, _writer, mut pipe) = ring_of_a_pipe(4096);
    assert_eq!(execute(&mut pipe, discard()).result, Err(IntentError::Failed));
    assert!(pipe.is_idle() && sealed.is_idle());
}

/// Goal: a medium on a file without discards gives erase blocks back all the same, asks once for each, and writes there again. Method: the
/// ring's answers with the file's refusal in the place of the work.
#[test]
fn a_medium_lives_without_discards() {
    struct NoDiscards(OnRing, DriveRing, Vec<u64>);
    impl CarryOut for NoDiscards {
        fn begin(&mut self, intents: &mut Vec<Intent>, now: Time) {
            let is_discard = |intent: &mut Intent| matches!(intent.work, IntentWork::Discard { .. });
            for intent in intents.extract_if(.., is_discard) {
                if let IntentWork::Discard { offset, .. } = intent.work {
                    self.2.push(offset);
                }
                self.1.push(intent);
                self.1.submit();
            }
            self.0.begin(intents, now);
        }
        fn end(&mut self, now: Time, done: &mut Vec<IntentDone>) {
            self.1.submit_and_wait();
            self.1.take_done(done);
            self.0.end(now, done);
        }
        fn next_event(&self) -> Time {
            if self.1.is_idle() { self.0.next_event() } else { Time::ZERO }
        }
    }
    let no_way = File::options().read(true).write(true).open("/proc/self/comm").unwrap();
    let refusing = DriveRing::new(&no_way, PageCache::Used).unwrap();
    let file = file(SIZE_BYTES);
    let shape = DriveShape::plan(SIZE_BYTES, 4, Some(1 << 20)).unwrap();
    let io = NoDiscards(OnRing(ring(&file)), refusing, Vec::new());
    let mut medium = Driven::new(DriveMedium::new(shape, true, true), io);
    let (mut now, mut completions) = (Time::ZERO, Vec::new());
    let blocks: Vec<EraseBlockAddress> =
        (0..4).map(|lane| DieAddress::new(lane, 0).erase_block(BlockIndex(2))).collect();
    for block in &blocks {
        medium.discard(*block, now);
    }
    for step in 0..1000 {
        now = Time(step * 1_000_000);
        medium.advance(now, &mut completions);
    }
    assert!(completions.is_empty(), "nobody waits for a discard");
    let mut asked = medium.io.2.clone();
    asked.sort_unstable();
    asked.dedup();
    assert_eq!((asked.len(), medium.io.2.len()), (blocks.len(), blocks.len()), "each once");
    for block in blocks {
        assert_eq!(conformance::execute(&mut medium, &mut now, Operation::Erase { block }).result, Ok(()));
        let operation = conformance::program_of(&medium, block, 0, 1, 1);
        assert_eq!(conformance::execute(&mut medium, &mut now, operation).result, Ok(()));
    }
}

/// Goal: nobody else gets a drive while the kernel still has commands of who had it, as after a kill. Method: who locked it lets go of all but the ring.
#[test]
fn a_ring_keeps_its_lock() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = folder.path().join("drive");
    let open = || File::options().read(true).write(true).create(true).truncate(false).open(&path).unwrap();
    let file = open();
    file.set_len(SIZE_BYTES).unwrap();
    file.try_lock().unwrap();
    let mut ring = ring(&file);
    drop(file);
    assert!(open().try_lock().is_err(), "the ring is there");
    assert_eq!(write(&mut ring, 0, &[&[1; 4096]]), Ok(()));
    drop(ring);
    open().try_lock().expect("who ends in order lets go at once");
}

/// Goal: work on zones goes to the kernel beside the ring, wakes it, and is answered once for each; a ring that goes away waits for it. Method: a file, which
/// has no zones, with reads between.
#[test]
fn work_on_zones_is_answered() {
    let file = file(1 << 20);
    let mut ring = ring(&file);
    let zone = |token: u64| {
        let (offset, len_bytes) = (token << 16, 1 << 16);
        let work = match token % 2 {
            0 => IntentWork::ResetZone { offset, len_bytes },
            _ => IntentWork::FinishZone { offset, len_bytes },
        };
        Intent { token: IntentToken(token), work }
    };
    assert_eq!(execute(&mut ring, zone(5).work).result, Err(IntentError::Failed), "a file has no zones");
    for token in 0..8 {
        ring.push(zone(token));
        let buffer = BufferMut::copy_from(&vec![9; 4096]);
        ring.push(Intent { token: IntentToken(100 + token), work: IntentWork::Read { offset: 0, buffer } });
    }
    let mut done = Vec::new();
    while !ring.is_idle() {
        ring.submit_and_wait();
        ring.take_done(&mut done);
    }
    let mut tokens: Vec<u64> = done.iter().map(|done| done.token.0).collect();
    tokens.sort_unstable();
    assert_eq!(tokens, (0..8).chain(100..108).collect::<Vec<u64>>());
    assert!(done.iter().all(|done| done.result.is_ok() == (done.token.0 >= 100)));
    (0..4).for_each(|token| ring.push(zone(token)));
    drop(ring);
}
