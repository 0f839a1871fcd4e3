//! Commands on an io_uring: loads that keep so many commands under way, and count how long each took.

use crate::ProbeError;
use crate::buffers::Buffers;
use hdrhistogram::Histogram;
use io_uring::{IoUring, opcode, types};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

/// Latencies beyond a minute are counted as a minute.
const LATENCY_MAX_NS: u64 = 60_000_000_000;

#[expect(clippy::disallowed_methods, reason = "what is measured is a drive, in its own time")]
fn now() -> Instant {
    Instant::now()
}

/// A load: random blocks of a range of the drive, so many commands under way.
pub(crate) struct Load {
    /// Bytes of the drive that it uses: whole blocks.
    pub range: Range<u64>,
    pub depth: u16,
    /// Reads of 100 commands.
    pub read_percent: u8,
    random: Xoshiro256PlusPlus,
    /// Nanoseconds of each command that was counted.
    pub latency: Histogram<u64>,
}

impl Load {
    pub fn new(range: Range<u64>, depth: u16, read_percent: u8, seed: u64) -> Load {
        let latency = Histogram::new_with_bounds(1, LATENCY_MAX_NS, 3).expect("fixed bounds are sound");
        Load { range, depth, read_percent, random: Xoshiro256PlusPlus::seed_from_u64(seed), latency }
    }

    fn next(&mut self, block_bytes: u32) -> (u64, bool) {
        let blocks = (self.range.end - self.range.start) / u64::from(block_bytes);
        let offset = self.range.start + self.random.random_range(0..blocks) * u64::from(block_bytes);
        (offset, self.random.random_range(0..100u8) < self.read_percent)
    }
}

/// A command under way.
#[derive(Clone, Copy)]
struct UnderWay {
    load: usize,
    offset_bytes: u64,
    is_read: bool,
    begun: Instant,
}

/// Drives loads on one drive.
pub(crate) struct Ring<'a> {
    file: &'a File,
    ring: IoUring,
    buffers: Buffers,
    block_bytes: u32,
    under_way: Vec<Option<UnderWay>>,
}

impl<'a> Ring<'a> {
    /// For up to so many commands under way.
    ///
    /// # Errors
    /// [`ProbeError::Ring`] if the kernel has none.
    pub fn new(file: &'a File, depth_max: u16, block_bytes: u32, seed: u64) -> Result<Ring<'a>, ProbeError> {
        let entries = u32::from(depth_max).next_power_of_two();
        let ring = IoUring::new(entries).map_err(|error| ProbeError::Ring { error })?;
        let buffers = Buffers::new(usize::from(depth_max), block_bytes as usize, seed);
        Ok(Ring { file, ring, buffers, block_bytes, under_way: vec![None; usize::from(depth_max)] })
    }

    /// Keeps loads going for a time, of which the first tenth is not counted. All commands have ended when it returns.
    ///
    /// # Errors
    /// The first command that failed.
    ///
    /// # Panics
    /// If the loads have more commands under way than the ring has room for.
    pub fn run(&mut self, loads: &mut [Load], time: Duration) -> Result<(), ProbeError> {
        let depth: usize = loads.iter().map(|load| usize::from(load.depth)).sum();
        assert!(depth <= self.under_way.len(), "the ring has room for all");
        let begun = now();
        let (counts_from, ends) = (begun + time / 10, begun + time);
        let owners = loads.iter().enumerate().flat_map(|(at, load)| vec![at; usize::from(load.depth)]);
        for (slot, load) in owners.collect::<Vec<_>>().into_iter().enumerate() {
            self.begin(slot, load, loads);
        }
        let (mut failed, mut ended) = (None, Vec::with_capacity(depth));
        while self.under_way.iter().any(Option::is_some) {
            self.wait()?;
            self.take_ended(&mut ended);
            for (slot, result) in ended.drain(..) {
                let Some(command) = self.under_way[slot].take() else { continue };
                let now = now();
                if let Err(error) = self.check(&command, result) {
                    failed.get_or_insert(error);
                } else if command.begun >= counts_from && now <= ends {
                    let took = now.duration_since(command.begun).as_nanos() as u64;
                    loads[command.load].latency.saturating_record(took.max(1));
                }
                if failed.is_none() && now < ends {
                    self.begin(slot, command.load, loads);
                }
            }
        }
        failed.map_or(Ok(()), Err)
    }

    fn begin(&mut self, slot: usize, load: usize, loads: &mut [Load]) {
        let (offset_bytes, is_read) = loads[load].next(self.block_bytes);
        let (fd, buffer) = (types::Fd(self.file.as_raw_fd()), self.buffers.at(slot));
        let entry = match is_read {
            true => opcode::Read::new(fd, buffer, self.block_bytes).offset(offset_bytes).build(),
            false => opcode::Write::new(fd, buffer, self.block_bytes).offset(offset_bytes).build(),
        };
        let entry = entry.user_data(slot as u64);
        // SAFETY: the file stays open as long as the ring is borrowed for it, and the buffer is this command's alone: it is of its slot,
        // has the length of a block, and outlives the command, because `run` and `drop` wait for all of them.
        unsafe { self.ring.submission().push(&entry) }.expect("a slot is free, so is an entry");
        self.under_way[slot] = Some(UnderWay { load, offset_bytes, is_read, begun: now() });
    }

    fn wait(&mut self) -> Result<(), ProbeError> {
        loop {
            match self.ring.submit_and_wait(1) {
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(ProbeError::Ring { error }),
            }
        }
    }

    /// Slots of commands that ended, with what the kernel says of them.
    fn take_ended(&mut self, ended: &mut Vec<(usize, i32)>) {
        ended.extend(self.ring.completion().map(|entry| (entry.user_data() as usize, entry.result())));
    }

    fn check(&self, command: &UnderWay, result: i32) -> Result<(), ProbeError> {
        let error = match u32::try_from(result) {
            Ok(length_bytes) if length_bytes == self.block_bytes => return Ok(()),
            Ok(length_bytes) => io::Error::other(format!("only {length_bytes} bytes were transferred")),
            Err(_) => io::Error::from_raw_os_error(-result),
        };
        let what = if command.is_read { "read" } else { "write" };
        Err(ProbeError::Command {
            what,
            offset_bytes: command.offset_bytes,
            length_bytes: self.block_bytes,
            error,
        })
    }
}

impl Drop for Ring<'_> {
    /// The kernel has buffers of commands under way: they stay until these have ended.
    fn drop(&mut self) {
        let mut ended = Vec::new();
        while self.under_way.iter().any(Option::is_some) {
            if self.wait().is_err() {
                // Nobody can say what the kernel still writes to: the process does not go on.
                std::process::abort();
            }
            self.take_ended(&mut ended);
            ended.drain(..).for_each(|(slot, _)| self.under_way[slot] = None);
        }
    }
}
