//! Identities that administrators may choose.

use serde::{Deserialize, Serialize};

/// A namespace globally unique identifier: 32 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Nguid(pub [u8; 16]);

impl std::str::FromStr for Nguid {
    type Err = String;
    fn from_str(text: &str) -> Result<Nguid, String> {
        u128::from_str_radix(text, 16)
            .ok()
            .filter(|_| text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit()))
            .map(|number| Nguid(number.to_be_bytes()))
            .ok_or_else(|| format!("`{text}` is not an NGUID; write 32 hexadecimal digits"))
    }
}

impl std::fmt::Display for Nguid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl Serialize for Nguid {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Nguid {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Nguid, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn an_nguid_is_32_digits_and_nothing_else() {
        let text = "0123456789abcdef0123456789abcdef";
        assert_eq!(text.parse::<Nguid>().unwrap().to_string(), text);
        for bad in ["", "0123", "+123456789abcdef0123456789abcdef", "g123456789abcdef0123456789abcdef"] {
            assert!(bad.parse::<Nguid>().is_err(), "{bad}");
        }
    }
}
