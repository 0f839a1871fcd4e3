use crate::error::DecodeError;
use std::fmt;

/// Size of a field that holds an NQN (Base 2.0 section 4.5): 223 bytes at most, and zeros up to 256.
pub const NQN_FIELD_SIZE_BYTES: usize = 256;
/// Longest NQN in bytes.
pub const NQN_LENGTH_MAX: usize = 223;

/// NVMe qualified name (Base 2.0 section 4.5): names a host or a subsystem. Compared byte by byte.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QualifiedName(String);

impl QualifiedName {
    /// From configuration or another program.
    ///
    /// Only length, the `nqn.` at its start and printable ASCII are asked for: hosts in the field use names that
    /// do not follow the date and domain rule.
    ///
    /// # Errors
    /// If one of these is not so.
    pub fn new(text: &str) -> Result<QualifiedName, DecodeError> {
        if text.len() > NQN_LENGTH_MAX || text.len() < 5 {
            return Err(DecodeError::Field { field: "NQN length", value: text.len() as u64 });
        }
        if !text.starts_with("nqn.") {
            return Err(DecodeError::Field { field: "NQN start", value: u64::from(text.as_bytes()[0]) });
        }
        match text.bytes().find(|byte| !byte.is_ascii_graphic()) {
            Some(byte) => Err(DecodeError::Field { field: "NQN character", value: u64::from(byte) }),
            None => Ok(QualifiedName(text.to_owned())),
        }
    }

    /// From a field of the wire.
    ///
    /// # Errors
    /// As [`QualifiedName::new`], and if no zero ends it within 224 bytes.
    pub fn decode(field: &[u8; NQN_FIELD_SIZE_BYTES]) -> Result<QualifiedName, DecodeError> {
        let length = field.iter().position(|&byte| byte == 0).unwrap_or(NQN_FIELD_SIZE_BYTES);
        match std::str::from_utf8(&field[..length]) {
            Ok(text) => QualifiedName::new(text),
            Err(error) => Err(DecodeError::Field {
                field: "NQN character",
                value: u64::from(field[error.valid_up_to()]),
            }),
        }
    }

    /// As a field of the wire: the name and zeros.
    pub fn encode(&self) -> [u8; NQN_FIELD_SIZE_BYTES] {
        let mut field = [0; NQN_FIELD_SIZE_BYTES];
        field[..self.0.len()].copy_from_slice(self.0.as_bytes());
        field
    }

    /// As text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for QualifiedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
impl fmt::Display for QualifiedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
impl std::str::FromStr for QualifiedName {
    type Err = DecodeError;
    fn from_str(text: &str) -> Result<QualifiedName, DecodeError> {
        QualifiedName::new(text)
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn names_are_checked_by_length_start_and_characters() {
        let longest = format!("nqn.{}", "a".repeat(NQN_LENGTH_MAX - 4));
        let field = QualifiedName::new(&longest).unwrap().encode();
        assert_eq!(QualifiedName::decode(&field).unwrap().as_str(), longest);
        assert!(QualifiedName::new(&format!("{longest}a")).is_err());
        assert!(QualifiedName::new("iqn.2001-04.com.example").is_err());
        assert!(QualifiedName::new("nqn.a b").is_err());
        assert!(QualifiedName::decode(&[b'n'; 256]).is_err());
        assert!(QualifiedName::decode(&[0; 256]).is_err());
        let mut binary = [0; 256];
        binary[..6].copy_from_slice(b"nqn.a\xFF");
        assert_eq!(
            QualifiedName::decode(&binary),
            Err(DecodeError::Field { field: "NQN character", value: 0xFF })
        );
    }
}
