//! One disk: what is read of it, what a cut leaves, and what lies between.

use crate::cache::{Cache, Content, Write};
use crate::cut::{CutReport, Fate, Fates};
use rustix::fs::FallocateFlags;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Bytes that are copied at once when a cut goes back to what is durable.
const COPY_BYTES: usize = 1 << 20;

/// Two files of the same size: one with all writes, which reads need no lock for, and one with the durable ones.
pub(crate) struct Disk {
    live: File,
    durable: File,
    /// Whether it is a file that writes make longer, and not a drive. Its size and its name are durable at once.
    pub can_grow: bool,
    state: Mutex<State>,
}

struct State {
    size_bytes: u64,
    cache: Cache,
    /// Where what is read may differ from what is durable although the cache has nothing: a flush that failed forgot it.
    forgotten: Vec<Range<u64>>,
}

/// What becomes of what a flush should have covered, and did not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailedFlush {
    /// Reads have it until the power goes, and no flush writes it any more: pages that Linux marked as clean.
    Forgets,
    /// Some of it is gone at once: the drive lost its cache.
    Drops,
    /// It stays in the cache, and the next flush covers it.
    Keeps,
}

impl Disk {
    pub fn new(folder: &Path, size_bytes: u64, can_grow: bool) -> io::Result<Disk> {
        let file = || -> io::Result<File> {
            let file = tempfile::tempfile_in(folder)?;
            file.set_len(size_bytes)?;
            Ok(file)
        };
        let state = State { size_bytes, cache: Cache::default(), forgotten: Vec::new() };
        Ok(Disk { live: file()?, durable: file()?, can_grow, state: Mutex::new(state) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn size_bytes(&self) -> u64 {
        self.state().size_bytes
    }

    /// Writes and bytes that no flush covered.
    pub fn unflushed(&self) -> (u64, u64) {
        let state = self.state();
        (state.cache.len() as u64, state.cache.held_bytes())
    }

    /// Bytes that are there, up to the end.
    pub fn read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let mut done = 0;
        while done < buffer.len() {
            match self.live.read_at(&mut buffer[done..], offset + done as u64)? {
                0 => break,
                bytes => done += bytes,
            }
        }
        Ok(done)
    }

    /// Takes a write. What the cache has no room for becomes durable by itself, the oldest first.
    pub fn write(&self, offset: u64, bytes: &[u8], cache_bytes_max: u64) -> io::Result<()> {
        let at = offset..offset + bytes.len() as u64;
        self.take(Write { at, content: Content::Bytes(bytes.to_vec()) }, cache_bytes_max)
    }

    /// Takes a discard: what was there reads as zeros.
    pub fn discard(&self, offset: u64, len_bytes: u64, cache_bytes_max: u64) -> io::Result<()> {
        let end = offset.saturating_add(len_bytes).min(self.size_bytes());
        if offset >= end {
            return Ok(());
        }
        self.take(Write { at: offset..end, content: Content::Zeros }, cache_bytes_max)
    }

    fn take(&self, write: Write, cache_bytes_max: u64) -> io::Result<()> {
        let mut state = self.state();
        if write.at.end > state.size_bytes {
            self.grow(&mut state, write.at.end)?;
        }
        // Under the lock, so that the cache has writes to one place in the order in which reads see them.
        put(&self.live, &write, &write.at)?;
        state.cache.push(write);
        while state.cache.held_bytes() > cache_bytes_max
            && let Some(oldest) = state.cache.pop()
        {
            put(&self.durable, &oldest, &oldest.at)?;
        }
        Ok(())
    }

    fn grow(&self, state: &mut State, size_bytes: u64) -> io::Result<()> {
        if !self.can_grow {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.live.set_len(size_bytes)?;
        self.durable.set_len(size_bytes)?;
        state.size_bytes = size_bytes;
        Ok(())
    }

    /// Makes it longer or shorter. That is durable at once.
    pub fn set_size(&self, size_bytes: u64) -> io::Result<()> {
        let mut state = self.state();
        if size_bytes != state.size_bytes && !self.can_grow {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        state.cache.cut_off(size_bytes);
        state.forgotten.retain_mut(|range| {
            range.end = range.end.min(size_bytes);
            range.start < range.end
        });
        self.grow_or_shrink(&mut state, size_bytes)
    }

    fn grow_or_shrink(&self, state: &mut State, size_bytes: u64) -> io::Result<()> {
        if size_bytes == state.size_bytes {
            return Ok(());
        }
        self.grow(state, size_bytes)
    }

    /// Makes durable what was written.
    pub fn flush(&self) -> io::Result<()> {
        let mut state = self.state();
        while let Some(write) = state.cache.pop() {
            put(&self.durable, &write, &write.at)?;
        }
        Ok(())
    }

    /// A flush that fails.
    pub fn fail_flush(&self, how: FailedFlush, seed: u64, number: u64) -> io::Result<()> {
        match how {
            FailedFlush::Keeps => Ok(()),
            FailedFlush::Forgets => {
                let mut state = self.state();
                let (ranges, _) = self.lose(&mut state, seed, number)?;
                state.forgotten.extend(ranges);
                Ok(())
            }
            FailedFlush::Drops => {
                let mut state = self.state();
                let (ranges, _) = self.lose(&mut state, seed, number)?;
                self.go_back(&ranges)
            }
        }
    }

    /// The power goes. Writes are kept or lost in their order, so that an older one of a sector may outlive a newer one.
    pub fn cut(&self, seed: u64, number: u64) -> io::Result<CutReport> {
        let mut state = self.state();
        let (mut ranges, report) = self.lose(&mut state, seed, number)?;
        ranges.append(&mut state.forgotten);
        self.go_back(&ranges)?;
        Ok(report)
    }

    /// Empties the cache: some of it becomes durable. Where it wrote.
    fn lose(&self, state: &mut State, seed: u64, number: u64) -> io::Result<(Vec<Range<u64>>, CutReport)> {
        let mut fates = Fates::new(seed, number, state.cache.len());
        let (mut ranges, mut report) = (Vec::new(), CutReport::default());
        while let Some(write) = state.cache.pop() {
            report.writes += 1;
            match fates.next(&write.at) {
                Fate::Lost => {}
                Fate::Kept => {
                    report.kept += 1;
                    put(&self.durable, &write, &write.at)?;
                }
                Fate::Torn(left) => {
                    report.torn += 1;
                    for part in &left {
                        put(&self.durable, &write, part)?;
                    }
                }
            }
            ranges.push(write.at);
        }
        Ok((ranges, report))
    }

    /// Reads see what is durable.
    fn go_back(&self, ranges: &[Range<u64>]) -> io::Result<()> {
        let mut buffer = vec![0; COPY_BYTES];
        for range in ranges {
            let mut at = range.start;
            while at < range.end {
                let part = &mut buffer[..COPY_BYTES.min((range.end - at) as usize)];
                self.durable.read_exact_at(part, at)?;
                self.live.write_all_at(part, at)?;
                at += part.len() as u64;
            }
        }
        Ok(())
    }
}

/// Puts a part of a write into a file.
fn put(file: &File, write: &Write, part: &Range<u64>) -> io::Result<()> {
    match &write.content {
        Content::Bytes(bytes) => {
            let from = (part.start - write.at.start) as usize;
            file.write_all_at(&bytes[from..from + (part.end - part.start) as usize], part.start)
        }
        Content::Zeros => {
            let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            Ok(rustix::fs::fallocate(file, hole, part.start, part.end - part.start)?)
        }
    }
}

#[cfg(test)]
mod test {
    use super::*;

    fn disk(can_grow: bool) -> Disk {
        Disk::new(&std::env::temp_dir(), 64 * 1024, can_grow).unwrap()
    }

    fn bytes(disk: &Disk, offset: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0xee; len];
        assert_eq!(disk.read(offset, &mut bytes).unwrap(), len);
        bytes
    }

    /// Goal: each sector is, after a cut, what the last flush covered or what a later write put there; with power it is the last write's.
    /// Method: random writes, discards, flushes and cuts beside a model of versions of each sector, of all seeds.
    #[test]
    fn each_sector_is_one_of_its_versions_since_the_flush() {
        let mut outlived = 0;
        for seed in 0..300 {
            let disk = disk(false);
            let mut random = diecut_testing::Random::of(seed);
            // Of each sector the covered version and those after it.
            let mut versions: Vec<Vec<u8>> = vec![vec![0]; 128];
            for step in 1..=60u8 {
                let from = random.below(120) as usize;
                let range = from..from + 1 + random.below(8) as usize;
                let (offset, len) = (from as u64 * 512, range.len() * 512);
                match random.below(10) {
                    0 => {
                        disk.flush().unwrap();
                        versions.iter_mut().for_each(|of| drop(of.drain(..of.len() - 1)));
                    }
                    1 => {
                        disk.discard(offset, len as u64, u64::MAX).unwrap();
                        versions[range].iter_mut().for_each(|of| of.push(0));
                    }
                    2 if step > 30 => {
                        disk.cut(seed, step.into()).unwrap();
                        for (at, of) in versions.iter_mut().enumerate() {
                            let now = bytes(&disk, at as u64 * 512, 512);
                            assert!(now.iter().all(|byte| *byte == now[0]), "seed {seed}: sectors are whole");
                            let place = of.iter().rposition(|version| *version == now[0]);
                            let place = place.unwrap_or_else(|| panic!("seed {seed}: sector {at}: {of:?}"));
                            outlived += u32::from(place > 0 && place + 1 < of.len());
                            *of = vec![now[0]];
                        }
                    }
                    _ => {
                        disk.write(offset, &vec![step; len], u64::MAX).unwrap();
                        versions[range].iter_mut().for_each(|of| of.push(step));
                    }
                }
                for (at, of) in versions.iter().enumerate() {
                    assert_eq!(bytes(&disk, at as u64 * 512, 1)[0], of[of.len() - 1], "seed {seed}");
                }
            }
        }
        assert!(outlived > 100, "older versions outlive newer ones: {outlived}");
    }

    /// Goal: a flush that failed keeps, forgets or drops what it should have covered, and the next one does not bring it back.
    #[test]
    fn a_flush_that_fails_takes_what_it_says() {
        let after = |how: FailedFlush, seed: u64| {
            let disk = disk(false);
            disk.write(0, &[1; 4096], u64::MAX).unwrap();
            disk.fail_flush(how, seed, 1).unwrap();
            let seen = bytes(&disk, 0, 4096);
            disk.flush().unwrap();
            disk.cut(seed, 1).unwrap();
            (seen, bytes(&disk, 0, 4096))
        };
        let mut lost = [0; 3];
        for seed in 0..100 {
            let (seen, left) = after(FailedFlush::Keeps, seed);
            assert!(seen == [1; 4096] && left == [1; 4096]);
            let (seen, left) = after(FailedFlush::Forgets, seed);
            assert!(seen == [1; 4096], "reads have it while there is power");
            lost[1] += u32::from(left != seen);
            let (seen, left) = after(FailedFlush::Drops, seed);
            assert!(seen == left, "what is gone is gone at once");
            lost[2] += u32::from(left != [1; 4096]);
        }
        assert!(lost[1] > 30 && lost[2] > 30, "{lost:?}");
    }

    /// Goal: a cache has an end, and what it has no room for is durable. A drive has an end, too.
    #[test]
    fn caches_and_drives_have_ends() {
        let disk = disk(false);
        for at in 0..8 {
            disk.write(at * 4096, &[7; 4096], 4 * 4096).unwrap();
        }
        assert_eq!(disk.unflushed(), (4, 4 * 4096));
        for seed in 0..20 {
            disk.cut(seed, 1).unwrap();
            assert!(bytes(&disk, 0, 4 * 4096) == [7; 4 * 4096]);
        }
        let error = disk.write(60 * 1024 + 512, &[1; 4096], u64::MAX).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert_eq!(disk.set_size(512).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }

    /// Goal: a file that became shorter does not get longer by what was written behind its end before.
    #[test]
    fn a_file_that_was_cut_off_stays_so() {
        let disk = disk(true);
        disk.write(0, &[1; 100_000], u64::MAX).unwrap();
        disk.set_size(1000).unwrap();
        disk.set_size(3000).unwrap();
        disk.flush().unwrap();
        disk.cut(1, 1).unwrap();
        assert_eq!(disk.size_bytes(), 3000);
        assert!(bytes(&disk, 0, 1000) == [1; 1000] && bytes(&disk, 1000, 2000) == [0; 2000]);
    }
}
