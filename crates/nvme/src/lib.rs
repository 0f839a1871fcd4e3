//! The words of the NVMe specifications: encode and decode, without state.
//!
//! Purpose: one place where bytes of the wire become named fields and back. Both ends of a connection (`nvmf`
//! and `initiator`) speak through these types, so a field is described once.
//!
//! Place in the flow: beside `units`, below `nvmf` and `initiator`. It holds no state, no queue, no policy:
//! which commands a controller accepts, how much a queue may hold and who may connect is decided elsewhere.
//!
//! Specifications, cited per field as "Base", "NVM", "TCP":
//! - *Base*: NVM Express Base Specification, revision 2.0 (fabrics commands are its section 6).
//! - *NVM*: NVM Express NVM Command Set Specification, revision 1.0.
//! - *TCP*: NVM Express TCP Transport Specification, revision 1.0.
//!
//! Invariants
//! - Everything is little endian; no type here has padding, and its size and offsets are checked when compiled.
//! - Decoders accept any bytes: they return [`DecodeError`] (or a [`tcp::PduError`]) and never panic.
//! - Test vectors are written by hand from the tables of the specifications, never by our own encoders.
//!
//! Values called "0's based" in the specifications keep that form in the raw field; accessors that convert say so
//! in their name or documentation.

#![deny(clippy::unwrap_used)]
#![forbid(unsafe_code)]

pub mod admin;
mod completion;
mod discovery;
mod error;
pub mod fabrics;
pub mod fdp;
pub mod feature;
pub mod identify;
pub mod io;
pub mod log_page;
pub mod ocp;
pub mod opcode;
pub mod openchannel;
pub mod property;
mod qualified_name;
pub mod reservation;
pub mod sanitize;
mod sgl;
mod status;
mod submission;
pub mod tcp;
pub mod zns;

pub use completion::CompletionEntry;
pub use discovery::{
    ADDRESS_FAMILY_IPV4, ADDRESS_FAMILY_IPV6, CNTLID_DYNAMIC, DISCOVERY_ENTRY_SIZE_BYTES,
    DISCOVERY_HEADER_SIZE_BYTES, DISCOVERY_SUBSYSTEM_NQN, DiscoveryEntry, DiscoveryHeader,
    ENTRY_FLAG_DUPLICATE_INFORMATION, ENTRY_FLAG_PERSISTENT_CONNECTION, SUBSYSTEM_TYPE_CURRENT_DISCOVERY,
    SUBSYSTEM_TYPE_NVM, SUBSYSTEM_TYPE_REFERRAL, TRANSPORT_TYPE_TCP,
};
pub use error::DecodeError;
pub use qualified_name::{NQN_FIELD_SIZE_BYTES, NQN_LENGTH_MAX, NameError, QualifiedName};
pub use sgl::{SglDescriptor, SglKind};
pub use status::Status;
pub use submission::SubmissionEntry;

/// Namespace id that means "every namespace of the subsystem" (Base 2.0 section 3.2.1.1).
pub const NSID_ALL: u32 = 0xFFFF_FFFF;

/// Copies ASCII text into a fixed field, padded with spaces and cut at its end (Base 2.0 section 1.4.2: ASCII
/// fields of Identify and discovery are left justified and space padded).
pub fn ascii_padded<const N: usize>(text: &str) -> [u8; N] {
    let mut field = [b' '; N];
    for (slot, byte) in field.iter_mut().zip(text.bytes()) {
        *slot = if byte.is_ascii_graphic() || byte == b' ' { byte } else { b'?' };
    }
    field
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn ascii_fields_are_padded_and_cut() {
        assert_eq!(&ascii_padded::<8>("8.6"), b"8.6     ");
        assert_eq!(&ascii_padded::<4>("diecut"), b"diec");
        assert_eq!(&ascii_padded::<4>("a\nb"), b"a?b ");
    }
}
