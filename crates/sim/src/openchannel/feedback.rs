//! What the chunk notification log must say, from what the device did: a chunk is told of when its error rate rises within a life, and a life
//! ends with a reset, and with the server.

use diecut_devices::HardRead;
use diecut_initiator::openchannel::Notification;
use diecut_nvme::openchannel::{notification_mask, notification_state};
use std::collections::BTreeSet;
use std::ops::Range;

/// What reads of a chunk were like in one life of it.
#[derive(Clone, Debug, Default)]
struct Life {
    /// As states of entries, which rise.
    rates: BTreeSet<u16>,
    /// Blocks of reads that failed.
    lost: Vec<Range<u32>>,
}

/// See the module.
pub struct Feedback {
    /// By chunk, the oldest life first.
    lives: Vec<Vec<Life>>,
    told: Vec<Vec<Notification>>,
    /// Entries went before they were read.
    have_gone: bool,
    /// Entries that were compared.
    pub entries: u64,
}

/// As the table of the page has it.
fn rate_of(read: &HardRead) -> u16 {
    match read.retries {
        _ if read.is_lost => notification_state::UNRECOVERABLE,
        1 => notification_state::ERROR_RATE_LOW,
        2 => notification_state::ERROR_RATE_MEDIUM,
        _ => notification_state::ERROR_RATE_HIGH,
    }
}

impl Life {
    /// Whether this is what is told of it.
    fn fits(&self, told: &[Notification], is_whole: bool) -> bool {
        let rises = told.windows(2).all(|pair| pair[0].state < pair[1].state);
        let is_right = |one: &Notification| {
            let is_lost = one.state == notification_state::UNRECOVERABLE;
            let lies_in = |range: &Range<u32>| range.start <= one.blocks.start && one.blocks.end <= range.end;
            let is_there = if is_lost {
                one.mask == notification_mask::LOGICAL_BLOCKS && self.lost.iter().any(lies_in)
            } else {
                one.mask == notification_mask::CHUNK
            };
            is_there && self.rates.contains(&one.state)
        };
        let is_all = !is_whole || told.last().map(|one| one.state) == self.rates.last().copied();
        rises && is_all && told.iter().all(is_right)
    }
}

impl Feedback {
    pub fn new(chunks: u32) -> Feedback {
        let none = |_| vec![Life::default()];
        let lives = (0..chunks).map(none).collect();
        Feedback { lives, told: vec![Vec::new(); chunks as usize], have_gone: false, entries: 0 }
    }

    /// The device had a hard read of a chunk.
    pub fn read(&mut self, chunk: u32, read: &HardRead) {
        let life = self.lives[chunk as usize].last_mut().expect("a chunk lives");
        life.rates.insert(rate_of(read));
        if read.is_lost {
            life.lost.push(read.first_iu..read.first_iu + read.iu_count);
        }
    }

    /// A chunk is reset; no read of it is under way.
    pub fn reset(&mut self, chunk: u32) {
        self.lives[chunk as usize].push(Life::default());
    }

    /// All chunks are.
    pub fn reset_all(&mut self) {
        (0..self.lives.len() as u32).for_each(|chunk| self.reset(chunk));
    }

    /// The log had these entries.
    pub fn told(&mut self, entries: Vec<Notification>, have_gone: bool) {
        self.have_gone |= have_gone;
        self.entries += entries.len() as u64;
        entries.into_iter().for_each(|one| self.told[one.chunk as usize].push(one));
    }

    /// Compares all that was told since the server began. `is_whole`: all reads were answered, the server had time, and the log is empty.
    ///
    /// # Errors
    /// Which chunk is told of otherwise.
    pub fn check(&self, is_whole: bool) -> Result<(), String> {
        if self.have_gone {
            return Ok(());
        }
        for (chunk, (lives, told)) in self.lives.iter().zip(&self.told).enumerate() {
            // How many entries can be those of lives so far.
            let mut ends = BTreeSet::from([0]);
            for life in lives {
                let from = |start: usize| {
                    let most = (start + life.rates.len()).min(told.len());
                    (start..=most).filter(move |end| life.fits(&told[start..*end], is_whole))
                };
                ends = ends.iter().flat_map(|start| from(*start)).collect();
            }
            if !ends.contains(&told.len()) {
                return Err(format!("chunk {chunk} had reads like {lives:?}, and the log has {told:?}"));
            }
        }
        Ok(())
    }

    /// The server went: what nobody read is gone, and all begins anew.
    pub fn crashed(&mut self) {
        let entries = self.entries;
        *self = Feedback { entries, ..Feedback::new(self.lives.len() as u32) };
    }
}
