//! Goal: who reads beside a writer, the cleaner and files that go sees no other file's bytes and nothing older than it saw before, and waits
//! for no append. Method: each IU says whose it is and its version; threads read while one writes. Bugs that were planted, each seen
//! failing here: blocks that are freed while they are read, pages that are nowhere while they are appended.
#![allow(clippy::disallowed_methods, reason = "readers are threads")]

use diecut_blockfile::{FileError, FileId, Files};
use diecut_blockspace::embedded::Embedded;
use diecut_testing::wait::wait_until;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const IUS: u64 = 24;
const FILES: u64 = 2;

fn page(number: u64, iu: u64, version: u64) -> Vec<u8> {
    let words = [number, iu, version];
    (0..512).flat_map(|at: usize| words[at % 3].to_le_bytes()).collect()
}

/// Number, IU and version, if all of it is of one write.
fn meaning(bytes: &[u8]) -> (u64, u64, u64) {
    let word = |at: usize| u64::from_le_bytes(bytes[at * 8..at * 8 + 8].try_into().unwrap());
    let found = (word(0), word(1), word(2));
    assert!(bytes == page(found.0, found.1, found.2), "a page of two writes: {found:?}");
    found
}

fn read_on(files: &Files, known: &[FileId], seed: u64, is_over: &AtomicBool, reads: &AtomicU64) {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut seen = [[0; IUS as usize]; FILES as usize];
    while !is_over.load(Ordering::Relaxed) {
        let number = random.random_range(0..FILES);
        // All of a file lies in many places, one after the other is read: long enough for a block to go.
        let (first, count) = if random.random() { (0, IUS) } else { (random.random_range(0..IUS), 1) };
        let mut bytes = vec![0xee; (count * 4096) as usize];
        let file = known[number as usize];
        assert_eq!(files.read(file, first * 4096, &mut bytes).unwrap(), bytes.len());
        for (at, bytes) in bytes.chunks(4096).enumerate() {
            let iu = first + at as u64;
            let found = meaning(bytes);
            assert_eq!((found.0, found.1), (number, iu), "bytes of another place");
            let last = &mut seen[number as usize][iu as usize];
            assert!(found.2 >= *last, "file {number} IU {iu}: version {} after {last}", found.2);
            *last = found.2;
        }
        // Across the border of two IUs, too.
        let mut across = [0xee; 16];
        assert_eq!(files.read(file, first * 4096 + 24, &mut across).unwrap(), 16);
        assert_eq!(across[..8], number.to_le_bytes());
        reads.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn readers_beside_a_writer_see_what_was_written() {
    let device = Embedded::new("tiny").unwrap();
    let files = Files::open_or_format(Arc::new(device.attach().unwrap())).unwrap();
    let known: Vec<_> = (0..FILES).map(|number| files.create(&format!("{number}"), 2).unwrap()).collect();
    for number in 0..FILES {
        for iu in 0..IUS {
            files.write(known[number as usize], iu * 4096, &page(number, iu, 1)).unwrap();
        }
    }
    files.sync().unwrap();
    let is_over = AtomicBool::new(false);
    let reads = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..3)
            .map(|seed| {
                let (files, known, is_over, reads) = (&files, &known[..], &is_over, &reads);
                scope.spawn(move || read_on(files, known, seed, is_over, reads))
            })
            .collect();
        let mut random = Xoshiro256PlusPlus::seed_from_u64(9);
        for version in 2..6000 {
            let (number, iu) = (random.random_range(0..FILES), random.random_range(0..IUS));
            files.write(known[number as usize], iu * 4096, &page(number, iu, version)).unwrap();
            if version % 10 == 0 {
                // Readers see what waits in memory, which then leaves.
                let before = reads.load(Ordering::Relaxed);
                let have_read = || reads.load(Ordering::Relaxed) > before;
                let ended = || readers.iter().any(|reader| reader.is_finished());
                wait_until(|| "readers read", || have_read() || ended());
                files.sync().unwrap();
            }
            if version % 50 == 0 {
                // Something that comes and goes, in blocks that are used again soon.
                let other = files.create("other", 2).unwrap();
                files.write(other, 0, &vec![0xaa; 400_000]).unwrap();
                files.sync().unwrap();
                files.remove("other").unwrap();
                assert_eq!(files.read(other, 0, &mut [0; 10]), Err(FileError::NotFound));
            }
            if version % 20 == 0 {
                files.checkpoint().unwrap();
            }
            if readers.iter().any(|reader| reader.is_finished()) {
                break;
            }
        }
        is_over.store(true, Ordering::Relaxed);
        readers.into_iter().for_each(|reader| reader.join().unwrap());
        assert!(reads.load(Ordering::Relaxed) > 300, "readers read");
    });
    let statistics = files.statistics().unwrap();
    assert!(statistics.freed_blocks > 200, "blocks were used again: {statistics:?}");
}
