//! What nobody guesses, and nobody else has.

use crate::error::{ServeError, file_error};
use std::path::Path;

/// Bytes that nobody guesses.
pub fn random_bytes<const N: usize>() -> Result<[u8; N], ServeError> {
    let path = Path::new("/dev/urandom");
    let mut bytes = [0; N];
    let mut file = std::fs::File::open(path).map_err(file_error(path, "cannot be read"))?;
    std::io::Read::read_exact(&mut file, &mut bytes).map_err(file_error(path, "cannot be read"))?;
    Ok(bytes)
}

/// A UUID that nobody else has.
pub fn random_uuid() -> Result<[u8; 16], ServeError> {
    let mut bytes: [u8; 16] = random_bytes()?;
    // RFC 9562: version 4, variant 10b.
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    Ok(bytes)
}
