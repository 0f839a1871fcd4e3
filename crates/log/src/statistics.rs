use crate::{PerStream, Stream};

/// IUs programmed by cause, and what the cleaner did. WAF = all programmed / user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogStatistics {
    /// IUs of each stream, heads and filler left out. All counts are of what was handed to flash, also when it fails and is written
    /// again.
    pub stream_ius: PerStream<u64>,
    /// Anchors, their filler included.
    pub anchor_ius: u64,
    /// Chunk heads.
    pub summary_ius: u64,
    /// Filler.
    pub padding_ius: u64,
    /// Segments freed.
    pub segments_freed: u64,
    /// Copies that could not be read.
    pub lost_ius: u64,
}

impl LogStatistics {
    /// Host data.
    pub fn user_ius(&self) -> u64 {
        self.stream_ius[Stream::User]
    }

    /// Cleaner copies.
    pub fn cleaner_ius(&self) -> u64 {
        self.stream_ius[Stream::Cleaner]
    }

    /// Map leaves.
    pub fn map_ius(&self) -> u64 {
        self.stream_ius[Stream::Map]
    }

    /// A chunk with `data` IUs in `room` IUs was handed to flash.
    pub(crate) fn programmed(&mut self, stream: Stream, data: u32, room: u32) {
        self.stream_ius[stream] += u64::from(data);
        self.summary_ius += 1;
        self.padding_ius += u64::from(room - 1 - data);
    }

    /// It was taken back before the medium began with it.
    pub(crate) fn taken_back(&mut self, stream: Stream, data: u32, room: u32) {
        self.stream_ius[stream] -= u64::from(data);
        self.summary_ius -= 1;
        self.padding_ius -= u64::from(room - 1 - data);
    }
}
