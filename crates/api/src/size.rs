//! Sizes as people write them: `64 GiB`, `500MB`, `4096`.

use bytesize::ByteSize;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

/// A number of bytes. Read from an integer or from text with a unit (`KiB`, `MB`, ...); written as an integer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Size(pub u64);

impl Size {
    /// The number of bytes.
    pub const fn bytes(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", ByteSize::b(self.0).display().iec())
    }
}

impl FromStr for Size {
    type Err = String;
    fn from_str(text: &str) -> Result<Size, String> {
        text.parse::<ByteSize>().map(|size| Size(size.as_u64())).map_err(|_| {
            format!("`{text}` is not a size; write a number of bytes or a unit, as in `64 GiB` or `500 MB`")
        })
    }
}

impl Serialize for Size {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(self.0)
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Size, D::Error> {
        struct Visitor;
        impl serde::de::Visitor<'_> for Visitor {
            type Value = Size;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a size in bytes, or text such as `64 GiB`")
            }
            fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<Size, E> {
                Ok(Size(value))
            }
            fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<Size, E> {
                u64::try_from(value).map(Size).map_err(|_| E::custom("a size is not negative"))
            }
            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Size, E> {
                text.parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

#[cfg(test)]
mod test {
    use super::Size;

    #[test]
    fn sizes_are_read_with_and_without_a_unit() {
        assert_eq!("64 GiB".parse(), Ok(Size(64 << 30)));
        assert_eq!("500MB".parse(), Ok(Size(500_000_000)));
        assert_eq!("4096".parse(), Ok(Size(4096)));
        assert!("a lot".parse::<Size>().unwrap_err().contains("64 GiB"));
    }

    #[test]
    fn json_carries_plain_bytes_both_ways() {
        assert_eq!(serde_json::to_string(&Size(7)).unwrap(), "7");
        assert_eq!(serde_json::from_str::<Size>("\"1 KiB\"").unwrap(), Size(1024));
        assert!(serde_json::from_str::<Size>("-1").is_err());
    }
}
