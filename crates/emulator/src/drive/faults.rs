//! What goes wrong with a drive.

use diecut_media::IntentError;
use diecut_units::Time;

/// Bytes of a drive from an offset on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// First byte.
    pub offset: u64,
    /// How many.
    pub len_bytes: u64,
}

impl Stretch {
    fn touches(&self, offset: u64, len: u64) -> bool {
        offset < self.offset + self.len_bytes && self.offset < offset + len
    }
}

/// Everything that goes wrong with a drive; nothing by default.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DriveFaults {
    /// Reads that touch one of these are refused.
    pub unreadable: Vec<Stretch>,
    /// Writes that touch one of these are refused; what they leave is open.
    pub unwritable: Vec<Stretch>,
    /// Whether the drive has no room: each write is refused for that reason. As a file on a full file system, or a thin volume.
    pub is_full: bool,
    /// As many of the next flushes fail. What they should have covered may be gone; the one after them succeeds.
    pub flush_failures: u32,
    /// Nothing is answered before.
    pub stalled_until: Time,
    /// Whether the drive is gone: everything is answered so.
    pub is_gone: bool,
    /// Bits of these bytes are flipped when they are read.
    pub rotten: Vec<Stretch>,
    /// Lies.
    pub lies: DriveLies,
}

/// What a drive does while it says that all is well. Chances are per command.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DriveLies {
    /// Flushes do nothing.
    pub about_flushes: bool,
    /// A write goes nowhere.
    pub loses_writes: f64,
    /// A write goes elsewhere.
    pub misdirects_writes: f64,
    /// A read comes from elsewhere.
    pub misdirects_reads: f64,
    /// A read returns what was there before the last writes.
    pub stale_reads: f64,
}

impl DriveFaults {
    pub(super) fn stalls_until(&self, end: Time) -> Time {
        end.max(self.stalled_until)
    }

    pub(super) fn refuses_read(&self, offset: u64, len: u64) -> bool {
        self.unreadable.iter().any(|stretch| stretch.touches(offset, len))
    }

    pub(super) fn refuses_write(&self, offset: u64, len: u64) -> Option<IntentError> {
        if self.is_full {
            return Some(IntentError::Full);
        }
        self.unwritable.iter().any(|stretch| stretch.touches(offset, len)).then_some(IntentError::Failed)
    }

    pub(super) fn rot(&self, offset: u64, buffer: &mut [u8]) {
        for stretch in &self.rotten {
            let from = stretch.offset.max(offset);
            let to = (stretch.offset + stretch.len_bytes).min(offset + buffer.len() as u64);
            for at in from..to {
                buffer[(at - offset) as usize] ^= 0x10;
            }
        }
    }
}
