use crate::{Buffer, IU_SIZE_BYTES, TAG_SIZE_BYTES};

/// What stands for the content of an IU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ContentMode {
    /// The 4096 bytes themselves.
    Bytes,
    /// An 8-byte self-describing tag (who wrote which version where). Only virtual time uses it, so that a
    /// device of terabytes fits in memory and a checker can tell stale, foreign, torn and misdirected data.
    Tags,
}

impl ContentMode {
    /// Bytes of buffer that stand for one IU: 4096 or 8.
    pub const fn bytes_per_iu(self) -> usize {
        match self {
            ContentMode::Bytes => IU_SIZE_BYTES,
            ContentMode::Tags => TAG_SIZE_BYTES,
        }
    }
}

/// The content of some consecutive IUs, as one handle. In tag mode the buffer holds 8 bytes per IU; an all-zero
/// tag means an IU of zeros.
#[derive(Clone, Debug)]
pub struct Payload {
    mode: ContentMode,
    buffer: Buffer,
}

impl Payload {
    /// Wraps `buffer` as whole IUs.
    ///
    /// # Panics
    /// If the buffer is empty or not a whole number of IUs in this mode: the caller splits at IU borders.
    pub fn new(mode: ContentMode, buffer: Buffer) -> Payload {
        assert!(
            !buffer.is_empty() && buffer.len().is_multiple_of(mode.bytes_per_iu()),
            "{} bytes are not whole IUs in {mode:?}",
            buffer.len()
        );
        Payload { mode, buffer }
    }
    /// What the bytes stand for.
    pub fn mode(&self) -> ContentMode {
        self.mode
    }
    /// Number of IUs.
    pub fn iu_count(&self) -> u32 {
        (self.buffer.len() / self.mode.bytes_per_iu()) as u32
    }
    /// The bytes: content, or tags.
    pub fn bytes(&self) -> &[u8] {
        &self.buffer
    }
    /// The bytes of one IU.
    ///
    /// # Panics
    /// If `iu` is out of range.
    pub fn iu(&self, iu: u32) -> &[u8] {
        let size = self.mode.bytes_per_iu();
        &self.buffer[iu as usize * size..(iu as usize + 1) * size]
    }
    /// A part of it, sharing the buffer.
    ///
    /// # Panics
    /// If the range is empty or out of range.
    pub fn slice(&self, first_iu: u32, iu_count: u32) -> Payload {
        let size = self.mode.bytes_per_iu();
        let start = first_iu as usize * size;
        Payload::new(self.mode, self.buffer.slice(start..start + iu_count as usize * size))
    }
    /// The handle itself.
    pub fn into_buffer(self) -> Buffer {
        self.buffer
    }
}
