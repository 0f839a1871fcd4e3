//! Fuzz targets: one for each place where bytes from outside become values.
//!
//! Every file of `src/bin` is a target: a function that checks one input and panics if a promise is broken, and a
//! function that makes the seeds of its corpus with the project's own encoders. `cargo xtask fuzz` builds them with
//! coverage counters, writes the seeds and runs libFuzzer.
//!
//! What is checked beyond "no panic": what was decoded and is encoded again decodes to the same; memory stays within a
//! bound that grows with the input ([`bounded`]); and, where a whole state machine is fed, that it serves a right peer
//! afterwards. Checksums would stop nearly every changed input at the door, so targets behind one can seal what they
//! changed before they hand it over; the first byte of an input says whether they do.

mod meter;
mod state;

pub use libfuzzer_sys;
pub use meter::bounded;
pub use state::catalog_state;

use std::path::Path;

/// Names the two functions of a target: seeds and check.
#[macro_export]
macro_rules! target {
    ($seeds:expr, $check:expr) => {
        libfuzzer_sys::fuzz_target!(init: $crate::write_seeds_if_asked($seeds), |bytes: &[u8]| $check(bytes));
    };
}

/// With `DIECUT_FUZZ_SEEDS` set to a folder: writes the seeds there and ends the process.
///
/// # Panics
/// If there is none, or it cannot be written.
pub fn write_seeds_if_asked(seeds: impl FnOnce() -> Vec<Vec<u8>>) {
    let Some(folder) = std::env::var_os("DIECUT_FUZZ_SEEDS") else { return };
    let seeds = seeds();
    assert!(!seeds.is_empty(), "a target has seeds");
    for (number, seed) in seeds.iter().enumerate() {
        std::fs::write(Path::new(&folder).join(format!("seed-{number:03}")), seed)
            .expect("the folder of seeds can be written");
    }
    std::process::exit(0);
}

/// Reads an input piece by piece; zeros follow its end, so that every input means something.
#[derive(Clone, Debug)]
pub struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    /// From its beginning.
    pub fn new(bytes: &'a [u8]) -> Input<'a> {
        Input(bytes)
    }
    /// Whether all was read.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    /// The next bytes; fewer at the end.
    pub fn bytes(&mut self, length: usize) -> &'a [u8] {
        let (front, rest) = self.0.split_at(length.min(self.0.len()));
        self.0 = rest;
        front
    }
    /// Everything that is left.
    pub fn rest(&mut self) -> &'a [u8] {
        self.bytes(self.0.len())
    }
    /// The next bytes, as many as the array has.
    pub fn array<const N: usize>(&mut self) -> [u8; N] {
        let front = self.bytes(N);
        let mut array = [0; N];
        array[..front.len()].copy_from_slice(front);
        array
    }
    /// The next byte.
    pub fn byte(&mut self) -> u8 {
        self.array::<1>()[0]
    }
    /// The next two bytes, little endian.
    pub fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.array())
    }
    /// The next four bytes, little endian.
    pub fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.array())
    }
    /// The next eight bytes, little endian.
    pub fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }
}
