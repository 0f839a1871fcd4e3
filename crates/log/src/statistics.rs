use crate::{PerKind, Stream, StreamKind};

/// IUs programmed by cause, and what the cleaner did. WAF = all programmed / user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogStatistics {
    /// IUs of streams of each kind, heads and filler left out. All counts are of what was handed to flash, also when it fails and is written
    /// again.
    pub stream_ius: PerKind<u64>,
    /// Anchors, their filler included.
    pub anchor_ius: u64,
    /// Chunk heads.
    pub summary_ius: u64,
    /// Filler.
    pub padding_ius: u64,
    /// Segments freed.
    pub segments_freed: u64,
    /// Erase blocks given back, those of anchors included: each is erased before it is used again.
    pub blocks_freed: u64,
    /// Copies that could not be read.
    pub lost_ius: u64,
}

/// What was programmed for one reclaim unit handle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HandleStatistics {
    /// IUs that its streams handed to flash, heads and filler included. Copies of its data are among them if handles are persistently
    /// isolated, or it is the only one.
    pub media_ius: u64,
    /// IUs that the cleaner copied out of reclaim units that were written for this handle.
    pub moved_ius: u64,
}

impl LogStatistics {
    /// Everything that was programmed.
    pub fn media_ius(&self) -> u64 {
        self.stream_ius.0.iter().sum::<u64>() + self.anchor_ius + self.summary_ius + self.padding_ius
    }

    /// Host data.
    pub fn user_ius(&self) -> u64 {
        self.stream_ius[StreamKind::User]
    }

    /// Cleaner copies.
    pub fn cleaner_ius(&self) -> u64 {
        self.stream_ius[StreamKind::Cleaner]
    }

    /// Map leaves.
    pub fn map_ius(&self) -> u64 {
        self.stream_ius[StreamKind::Map]
    }

    /// A chunk with `data` IUs in `room` IUs was handed to flash.
    pub(crate) fn programmed(&mut self, stream: Stream, data: u32, room: u32) {
        self.stream_ius[stream.kind()] += u64::from(data);
        self.summary_ius += 1;
        self.padding_ius += u64::from(room - 1 - data);
    }

    /// It was taken back before the medium began with it.
    pub(crate) fn taken_back(&mut self, stream: Stream, data: u32, room: u32) {
        self.stream_ius[stream.kind()] -= u64::from(data);
        self.summary_ius -= 1;
        self.padding_ius -= u64::from(room - 1 - data);
    }
}
