//! What room in a file costs on a file system: the figures of docs/durability.md.
//!
//! `cargo run --release -p diecut-bench --example room -- FOLDER`: in a new file of 16 MiB in the folder, taken, stored into through a
//! mapping, stored into again, and given back. Medians of nine rounds, each with a file of its own. Times by the clock, as a server waits.

use std::ffi::c_int;
use std::fs::File;
use std::io::Error;
use std::os::fd::AsRawFd;
use std::path::Path;

/// An erase block of a usual size.
const SIZE_BYTES: usize = 16 << 20;
const PAGE_SIZE_BYTES: usize = 4096;
const ROUNDS: usize = 9;
/// What is timed, in the order of a round.
const STEPS: [&str; 4] = [
    "room is taken (fallocate)",
    "first stores into it",
    "stores into what is mapped",
    "a hole is made of it",
];

fn main() {
    let folder = std::env::args().nth(1).expect("a folder on the file system to measure");
    let rounds: Vec<[f64; STEPS.len()]> = (0..ROUNDS).map(|_| round(Path::new(&folder))).collect();
    println!("{folder}: 16 MiB, medians of {ROUNDS} rounds (least to most)");
    for (step, name) in STEPS.iter().enumerate() {
        let mut times: Vec<f64> = rounds.iter().map(|round| round[step]).collect();
        times.sort_by(f64::total_cmp);
        println!("{name:<28} {:>8.2} ms ({:.2} to {:.2})", times[ROUNDS / 2], times[0], times[ROUNDS - 1]);
    }
}

/// Milliseconds that each step takes.
fn round(folder: &Path) -> [f64; STEPS.len()] {
    let file = tempfile::tempfile_in(folder).expect("a file can be made in the folder");
    file.set_len(SIZE_BYTES as u64).expect("a sparse file");
    let mapping = map(&file);
    [
        timed(|| change(&file, libc::FALLOC_FL_KEEP_SIZE)),
        timed(|| store(mapping)),
        timed(|| store(mapping)),
        timed(|| change(&file, libc::FALLOC_FL_KEEP_SIZE | libc::FALLOC_FL_PUNCH_HOLE)),
    ]
}

fn timed(step: impl FnOnce()) -> f64 {
    #[expect(clippy::disallowed_methods, reason = "this program measures")]
    let start = std::time::Instant::now();
    step();
    start.elapsed().as_secs_f64() * 1e3
}

fn map(file: &File) -> *mut u8 {
    let (protection, fd) = (libc::PROT_READ | libc::PROT_WRITE, file.as_raw_fd());
    // SAFETY: a new mapping of a file that nobody else has; it stays until the program ends.
    let mapping =
        unsafe { libc::mmap(std::ptr::null_mut(), SIZE_BYTES, protection, libc::MAP_SHARED, fd, 0) };
    assert!(mapping != libc::MAP_FAILED, "the file cannot be mapped: {}", Error::last_os_error());
    mapping.cast()
}

/// Stores into all of it.
fn store(mapping: *mut u8) {
    for place in (0..SIZE_BYTES).step_by(PAGE_SIZE_BYTES) {
        // SAFETY: inside of the mapping, whose file has this size.
        unsafe { std::ptr::write_bytes(mapping.add(place), 7, PAGE_SIZE_BYTES) };
    }
}

fn change(file: &File, mode: c_int) {
    // SAFETY: an open file; what is mapped of it stays mapped.
    let outcome = unsafe { libc::fallocate(file.as_raw_fd(), mode, 0, SIZE_BYTES as libc::off_t) };
    assert_eq!(outcome, 0, "{}", Error::last_os_error());
}
