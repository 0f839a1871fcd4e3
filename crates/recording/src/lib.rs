//! Recordings: everything that entered a shard on the real clock, in a file, so that `sim` can play it again in
//! virtual time.
//!
//! Place in the flow: beside `shard`, between it and a driver. [`Recorded`] is a shard that writes down what its driver tells
//! it before it passes it on; `diecut serve --record` puts it into the reactor. [`RecordingReader`] reads the file back.
//!
//! What is an input: the settings and the device it started on ([`Start`]), each event with its time, each call of
//! `work` with its time, and how many bytes of output were written when. A shard is a function of these. What a file holds
//! of the outcome ([`Summary`]) is there to be compared with.
//!
//! Invariants
//! - The shard does the same with and without a recorder around it.
//! - Content of writes, and of appends of applications at erase blocks, is left out, only its length is kept: it decides nothing but what reads return. All other bytes
//!   (commands, Connect data, ranges to deallocate, what is compared) are kept, and so is all content of a PDU with a data
//!   digest, which would not fit other content.
//! - A recording that cannot be written further (limit, full disk) ends; the server goes on.
//!
//! # Format, version 2
//!
//! Little endian; `varint` is LEB128 of a u64, at most 10 bytes.
//!
//! | bytes | type | meaning |
//! |---|---|---|
//! | 0 | 8 bytes | `diecutrc` |
//! | 8 | u32 | version, 2; a reader refuses others |
//! | 12 | u32 | length of the start |
//! | 16 | u32 | CRC-32C of the start |
//! | 20 | JSON | the start: device profile, seed, settings ([`Start`]) |
//! | then | chunks | u32 length, u32 CRC-32C of the content, content: whole entries |
//!
//! | entry | tag | then |
//! |---|---|---|
//! | time | 1 | varint: nanoseconds since the last entry of this kind (the start's `started_ns` at first); holds for what follows |
//! | accepted | 2 | varint connection |
//! | accepted at | 15 | varint connection; varint length and text of the address it came to |
//! | received | 3 | varint connection, content |
//! | received in the window | 4 | varint connection, content |
//! | closed | 5 | varint connection |
//! | control | 6 | varint token, varint length, JSON request |
//! | work | 7 | - |
//! | sent | 8 | varint connection, varint bytes |
//! | check | 9 | varint length, JSON [`Summary`]: the shard as it was between the entries around it |
//! | end | 10 | as check; nothing follows |
//! | attach | 11 | of an application: varint session, varint user, u8 whether it may attach to any vSSD, varint length, name of the vSSD |
//! | submitted | 12 | varint session, 64 bytes of the submission entry, u8 1 and content, or u8 0 without data |
//! | submitted nonsense | 13 | varint session, varint token, as above |
//! | detached | 14 | varint session |
//!
//! Content: varint of its length, then pieces until that many bytes are described. A piece is varint `2 * n` and `n` bytes,
//! or varint `2 * n + 1` for `n` bytes that were left out.
//!
//! A reader stops before a chunk that is torn or fails its CRC and says that the recording has no end; up to the last
//! check it can still be compared. A chunk is at most [`CHUNK_MAX_BYTES`] long.
//!
//! Not known here: sockets, threads, the clock, virtual time.

#![deny(clippy::unwrap_used)]
#![forbid(unsafe_code)]

mod application;
mod content;
mod entry;
mod head;
mod reader;
mod recorder;
mod scan;
mod start;
mod summary;
mod writer;

pub use application::Application;
pub use content::{Content, Piece};
pub use entry::Entry;
pub use reader::{ReadError, RecordingReader};
pub use recorder::{RecordOptions, Recorded};
pub use start::{Start, StartError};
pub use summary::{DeviceSummary, Summary, VolumeSummary, VssdSummary};
pub use writer::RecordingWriter;

pub(crate) use head::{ChunkHead, Head};

/// First bytes of a recording.
pub const MAGIC: [u8; 8] = *b"diecutrc";
/// Version of the format.
pub const VERSION: u32 = 2;
/// Longest chunk.
pub const CHUNK_MAX_BYTES: u32 = 64 << 20;
