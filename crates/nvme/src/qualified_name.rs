use std::fmt;
use thiserror::Error;

/// Size of a field that holds an NQN (Base 2.0 section 4.5): 223 bytes at most, and zeros up to 256.
pub const NQN_FIELD_SIZE_BYTES: usize = 256;
/// Longest NQN in bytes.
pub const NQN_LENGTH_MAX: usize = 223;

/// Why a text cannot be an NQN.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum NameError {
    /// It is empty or too long.
    #[error("an NQN has 1 to 223 bytes, and this has {length}")]
    Length {
        /// Its length in bytes.
        length: usize,
    },
    /// It has something in it that cannot be read or typed.
    #[error("an NQN is printable ASCII without spaces, and byte {at} of this is {value:#04x}")]
    Character {
        /// Where, counted from 0.
        at: usize,
        /// What.
        value: u8,
    },
}

/// NVMe qualified name (Base 2.0 section 4.5): names a host or a subsystem. Compared byte by byte.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QualifiedName(String);

impl QualifiedName {
    /// From configuration or another program.
    ///
    /// Only length and printable ASCII are asked for: Linux as a host and Linux's own target take any name, and programs
    /// in the field rely on it. [`QualifiedName::is_by_the_rule`] tells.
    ///
    /// # Errors
    /// If one of these is not so.
    pub fn new(text: &str) -> Result<QualifiedName, NameError> {
        if text.is_empty() || text.len() > NQN_LENGTH_MAX {
            return Err(NameError::Length { length: text.len() });
        }
        match text.bytes().position(|byte| !byte.is_ascii_graphic()) {
            Some(at) => Err(NameError::Character { at, value: text.as_bytes()[at] }),
            None => Ok(QualifiedName(text.to_owned())),
        }
    }

    /// Whether it begins as section 4.5 asks for: `nqn.`, then the date of a domain (`yyyy-mm.`).
    pub fn is_by_the_rule(&self) -> bool {
        let Some(rest) = self.0.strip_prefix("nqn.") else { return false };
        let date = rest.as_bytes();
        date.len() > 8
            && date[..4].iter().chain(&date[5..7]).all(u8::is_ascii_digit)
            && (date[4], date[7]) == (b'-', b'.')
    }

    /// From a field of the wire.
    ///
    /// # Errors
    /// As [`QualifiedName::new`], and if no zero ends it within 224 bytes.
    pub fn decode(field: &[u8; NQN_FIELD_SIZE_BYTES]) -> Result<QualifiedName, NameError> {
        let length = field.iter().position(|&byte| byte == 0).unwrap_or(NQN_FIELD_SIZE_BYTES);
        match std::str::from_utf8(&field[..length]) {
            Ok(text) => QualifiedName::new(text),
            Err(error) => {
                let at = error.valid_up_to();
                Err(NameError::Character { at, value: field[at] })
            }
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
    type Err = NameError;
    fn from_str(text: &str) -> Result<QualifiedName, NameError> {
        QualifiedName::new(text)
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn names_are_checked_by_length_and_characters() {
        let longest = format!("nqn.{}", "a".repeat(NQN_LENGTH_MAX - 4));
        let field = QualifiedName::new(&longest).unwrap().encode();
        assert_eq!(QualifiedName::decode(&field).unwrap().as_str(), longest);
        assert!(QualifiedName::new(&format!("{longest}a")).is_err());
        assert_eq!(QualifiedName::new(""), Err(NameError::Length { length: 0 }));
        let error = QualifiedName::new("nqn.a b").unwrap_err();
        assert_eq!(error, NameError::Character { at: 5, value: b' ' });
        assert_eq!(error.to_string(), "an NQN is printable ASCII without spaces, and byte 5 of this is 0x20");
        assert!(QualifiedName::decode(&[b'n'; 256]).is_err());
        assert!(QualifiedName::decode(&[0; 256]).is_err());
        let mut binary = [0; 256];
        binary[..6].copy_from_slice(b"nqn.a\xFF");
        assert_eq!(QualifiedName::decode(&binary), Err(NameError::Character { at: 5, value: 0xFF }));
    }

    /// What blktests calls its subsystem, and what else Linux takes, is a name; it is told apart.
    #[test]
    fn names_without_date_and_domain_are_names() {
        for (name, by_the_rule) in [
            ("blktests-subsystem-1", false),
            ("nqn.x", false),
            ("nqn.2026-1.example", false),
            ("iqn.2001-04.com.example", false),
            ("nqn.2026-11.org.diecut:a", true),
            ("nqn.2014-08.org.nvmexpress:uuid:00000000-0000-0000-0000-000000000001", true),
        ] {
            assert_eq!(QualifiedName::new(name).unwrap().is_by_the_rule(), by_the_rule, "{name}");
        }
    }
}
