//! A load whose host knows what each block may hold: blocks have versions.

use super::Host;
use diecut_initiator::{Collect, Command, LbaSpan, Token};
use diecut_testing::Random;
use diecut_testing::versions::Versions;
use diecut_units::Buffer;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

pub const LBA_BYTES: usize = 4096;
const NSID: u32 = 1;

/// Blocks of a volume as its host knows them.
pub struct Known {
    versions: Versions,
    lbas: u64,
    version: u64,
    flushes: Arc<AtomicU32>,
}

/// One command, to its end.
pub fn run(host: &mut Host, command: Command) -> Result<Collect, String> {
    host.queue.submit(Token(1), command);
    let mut sink = Collect::default();
    while sink.completions.is_empty() {
        host.exchange(&mut sink).map_err(|error| error.to_string())?;
    }
    let status = sink.completions[0].status;
    if status.is_success() { Ok(sink) } else { Err(status.to_string()) }
}

impl Known {
    /// Of a volume that nobody wrote.
    pub fn new(lbas: u64) -> Known {
        Known { versions: Versions::new(lbas), lbas, version: 0, flushes: Arc::default() }
    }

    /// Flushes that were answered.
    pub fn flushes(&self) -> u32 {
        self.flushes.load(Ordering::Relaxed)
    }

    /// The same, for others to read while it works.
    pub fn flush_count(&self) -> Arc<AtomicU32> {
        Arc::clone(&self.flushes)
    }

    /// Every block has a version that it may have, and keeps it.
    pub fn check(&mut self, host: &mut Host, what: &str) {
        for first in (0..self.lbas).step_by(64) {
            let span = LbaSpan { nsid: NSID, first, count: 64 };
            let read = Command::Read { span, length_bytes: 64 * LBA_BYTES as u32 };
            let sink = run(host, read).unwrap_or_else(|error| panic!("{what}: LBA {first}: {error}"));
            for (lba, block) in (first..).zip(sink.data[&Token(1)].chunks(LBA_BYTES)) {
                let version = u64::from_le_bytes(block[..8].try_into().unwrap());
                assert!(
                    block.chunks(8).all(|word| word == &block[..8]),
                    "{what}: LBA {lba} is of one version"
                );
                self.versions.find(lba, version, what);
            }
        }
    }

    /// Writes, some past the cache, and flushes after every few of them, `rounds` times or until an error, which it gives.
    pub fn work(&mut self, host: &mut Host, random: &mut Random, rounds: u32) -> Result<(), String> {
        for _ in 0..rounds {
            let mut written = Vec::new();
            for _ in 0..1 + random.below(6) {
                let first = random.below(self.lbas);
                let count = 1 + random.below((self.lbas - first).min(32)) as u32;
                self.version += 1;
                let version = self.version;
                let touched = first..first + u64::from(count);
                self.versions.write(touched.clone(), version);
                let data = Buffer::copy_from(&version.to_le_bytes().repeat(count as usize * LBA_BYTES / 8));
                let span = LbaSpan { nsid: NSID, first, count };
                let force_unit_access = random.below(8) == 0;
                run(host, Command::Write { span, data, force_unit_access })?;
                match force_unit_access {
                    true => self.versions.make_durable(touched, version),
                    false => written.push((touched, version)),
                }
            }
            run(host, Command::Flush { nsid: NSID })?;
            self.flushes.fetch_add(1, Ordering::Relaxed);
            for (touched, version) in written {
                self.versions.make_durable(touched, version);
            }
        }
        Ok(())
    }
}
