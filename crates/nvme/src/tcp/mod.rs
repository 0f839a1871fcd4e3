//! PDUs of the TCP transport (TCP 1.0 section 3.6). Both ends need them, so they live here.
//!
//! A PDU is a header (common part of 8 bytes and the rest up to HLEN), an optional header digest, padding up to
//! PDO, data, and an optional data digest:
//!
//! ```text
//! 0      8        HLEN    HLEN+4       PDO              PLEN-4    PLEN
//! | CH   | PSH    | HDGST | PAD        | DATA           | DDGST   |
//! ```
//!
//! [`Frame::check`] turns a common header into these borders, or into the fatal error that the peer is told.

mod capsule;
mod connection;
mod data;
mod digest;
mod frame;
mod terminate;

pub use capsule::{CapsuleCommand, CapsuleResponse};
pub use connection::{InitializeRequest, InitializeResponse, MAXH2CDATA_MIN_BYTES, PDU_FORMAT_VERSION};
pub use data::{DataToController, DataToHost, ReadyToTransfer};
pub use digest::{DIGEST_SIZE_BYTES, Digests, digest_matches, digest_of};
pub use frame::{CommonHeader, Frame, HEADER_SIZE_MAX_BYTES, Receiver, pdu_type};
pub use terminate::{FatalError, PduError, TerminateRequest};

/// Flag bits of the common header (TCP 1.0 section 3.6.1 and the figure of each PDU).
pub mod flag {
    /// HDGSTF: a header digest follows the header.
    pub const HEADER_DIGEST: u8 = 1 << 0;
    /// DDGSTF: a data digest follows the data.
    pub const DATA_DIGEST: u8 = 1 << 1;
    /// LAST_PDU of H2CData and C2HData.
    pub const LAST: u8 = 1 << 2;
    /// SUCCESS of C2HData: no response capsule follows, the command succeeded.
    pub const SUCCESS: u8 = 1 << 3;
}

/// TCP port of NVMe/TCP I/O controllers.
pub const PORT_IO: u16 = 4420;
/// TCP port of NVMe/TCP discovery controllers.
pub const PORT_DISCOVERY: u16 = 8009;
/// Data that a command capsule of the admin queue and of fabrics commands may carry (TCP 1.0 section 3.3.1:
/// 8 KiB in capsule for admin and fabrics commands).
pub const ADMIN_IN_CAPSULE_BYTES: u32 = 8192;
