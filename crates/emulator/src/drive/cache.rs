//! The volatile cache of a drive: writes in the order in which they were answered.

use super::SECTOR_SIZE_BYTES;
use super::image::Image;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::VecDeque;
use std::ops::Range;

/// Writes that a drive keeps at most; older ones go to where they belong by themselves.
const WRITES_MAX: usize = 512;

#[derive(Default)]
pub(super) struct Cache {
    writes: VecDeque<Cached>,
    /// Number of the last write that was answered.
    answered: u64,
}

struct Cached {
    number: u64,
    offset: u64,
    bytes: Vec<u8>,
}

/// What becomes of a write that nothing made durable.
pub(super) enum Fate {
    Kept,
    Lost,
    /// Sector by sector: these numbers decide.
    Torn(Xoshiro256PlusPlus),
}

impl Fate {
    pub(super) fn choose(random: &mut Xoshiro256PlusPlus) -> Fate {
        match random.random_range(0..3) {
            0 => Fate::Kept,
            1 => Fate::Lost,
            _ => Fate::Torn(Xoshiro256PlusPlus::seed_from_u64(random.random())),
        }
    }
}

impl Cache {
    pub(super) fn answered(&self) -> u64 {
        self.answered
    }

    pub(super) fn write(&mut self, offset: u64, bytes: Vec<u8>, image: &mut Image) {
        self.answered += 1;
        self.writes.push_back(Cached { number: self.answered, offset, bytes });
        if self.writes.len() > WRITES_MAX {
            let oldest = self.writes.pop_front().expect("there are many");
            image.write(oldest.offset, &oldest.bytes);
        }
    }

    /// Puts what is cached over what was read without it.
    pub(super) fn read(&self, offset: u64, buffer: &mut [u8]) {
        let end = offset + buffer.len() as u64;
        for write in &self.writes {
            let (from, to) = (offset.max(write.offset), end.min(write.offset + write.bytes.len() as u64));
            if from < to {
                let bytes = &write.bytes[(from - write.offset) as usize..(to - write.offset) as usize];
                buffer[(from - offset) as usize..(to - offset) as usize].copy_from_slice(bytes);
            }
        }
    }

    /// All writes up to a number are durable now.
    pub(super) fn flush(&mut self, covers: u64, image: &mut Image) {
        while let Some(write) = self.writes.pop_front_if(|write| write.number <= covers) {
            image.write(write.offset, &write.bytes);
        }
    }

    /// A flush failed: some of what it should have covered is gone, and the drive says nothing of it any more. What is not durable
    /// now never will be.
    pub(super) fn lose(&mut self, covers: u64, image: &mut Image, random: &mut Xoshiro256PlusPlus) {
        while let Some(write) = self.writes.pop_front_if(|write| write.number <= covers) {
            let fate = Fate::choose(random);
            image.write_some(write.offset, &write.bytes, &fate);
        }
    }

    /// The power goes. Writes are kept or lost in their order, so that an older version of a sector may outlive a newer one.
    pub(super) fn cut(&mut self, image: &mut Image, random: &mut Xoshiro256PlusPlus) {
        self.lose(u64::MAX, image, random);
    }

    /// Counts something that a flush is to cover beside writes.
    pub(super) fn count(&mut self) -> u64 {
        self.answered += 1;
        self.answered
    }

    fn of(&self, range: Range<u64>) -> impl Iterator<Item = &Cached> {
        self.writes.iter().filter(move |write| range.contains(&write.offset))
    }

    /// The first byte of some that is in no other place.
    pub(super) fn first_in(&self, range: Range<u64>) -> Option<u64> {
        self.of(range).map(|write| write.offset).min()
    }

    /// The end of the last one.
    pub(super) fn end_in(&self, range: Range<u64>) -> u64 {
        self.of(range).map(|write| write.offset + write.bytes.len() as u64).max().unwrap_or(0)
    }

    /// Writes of a range go to where they belong, as far as they lie before a place; the rest is gone.
    pub(super) fn write_out(&mut self, range: Range<u64>, until: u64, image: &mut Image) {
        self.writes.retain(|write| {
            if !range.contains(&write.offset) {
                return true;
            }
            let left = until.saturating_sub(write.offset).min(write.bytes.len() as u64);
            image.write(write.offset, &write.bytes[..left as usize]);
            false
        });
    }

    /// Bytes were discarded.
    pub(super) fn forget(&mut self, range: Range<u64>) {
        let mut left = VecDeque::new();
        for write in self.writes.drain(..) {
            let end = write.offset + write.bytes.len() as u64;
            let (from, to) = (range.start.clamp(write.offset, end), range.end.clamp(write.offset, end));
            if from >= to {
                left.push_back(write);
                continue;
            }
            let (before, after) = ((from - write.offset) as usize, (to - write.offset) as usize);
            let parts = [(write.offset, 0..before), (to, after..write.bytes.len())];
            for (offset, part) in parts.into_iter().filter(|(_, part)| !part.is_empty()) {
                left.push_back(Cached { number: write.number, offset, bytes: write.bytes[part].to_vec() });
            }
        }
        self.writes = left;
    }
}

/// Whether a sector of a write with this fate is left.
pub(super) fn is_left(fate: &Fate) -> impl FnMut() -> bool + use<> {
    let mut coin = match fate {
        Fate::Kept => Err(true),
        Fate::Lost => Err(false),
        Fate::Torn(random) => Ok(random.clone()),
    };
    move || match &mut coin {
        Ok(random) => random.random_bool(0.5),
        Err(always) => *always,
    }
}

/// Sectors of some bytes.
pub(super) fn sectors(bytes: &[u8]) -> impl Iterator<Item = (u64, &[u8])> {
    bytes
        .chunks(SECTOR_SIZE_BYTES as usize)
        .enumerate()
        .map(|(index, sector)| (index as u64 * SECTOR_SIZE_BYTES, sector))
}
