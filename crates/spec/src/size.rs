//! Sizes and rates as people write them: `64G`, `64 GiB`, `500MB`, `4096`. The command line, set-up files and the control
//! interface all read them here.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

/// A number of bytes. Read from an integer or from text with a unit; written as an integer.
///
/// `K`, `M`, `G`, `T`, `P` are powers of 1024, as fio, LVM and qemu have them, and so are the same with an `i` (as in 4Ki), or `KiB` to `PiB`. `kB` to `PB` are
/// powers of 1000. Upper and lower case are alike; no unit, or `B`, is bytes. People are shown KiB to EiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Size(pub u64);

impl Size {
    /// The number of bytes.
    pub const fn bytes(self) -> u64 {
        self.0
    }

    /// Not rounded: the largest unit that divides it.
    pub fn exact(self) -> String {
        let shift = (self.0.trailing_zeros() / 10 * 10).min(60);
        if self.0 == 0 || shift == 0 {
            return format!("{} bytes", self.0);
        }
        format!("{} {}", self.0 >> shift, UNITS[shift as usize / 10 - 1])
    }
}

/// What somebody may have meant who left the unit out.
pub(crate) fn perhaps(size: Size, unit: &str) -> String {
    let number = size.bytes();
    if (1..1024).contains(&number) {
        format!("; a number without a unit is bytes: if you mean {number} {unit}iB, write {number}{unit}")
    } else {
        String::new()
    }
}

/// Units of 1024, 1024 * 1024 and so on.
const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(step) = self.0.checked_ilog2().map(|log| log / 10).filter(|step| *step > 0) else {
            return write!(f, "{} B", self.0);
        };
        let unit = 1u64 << (10 * step);
        let name = UNITS[step as usize - 1];
        if self.0.is_multiple_of(unit) {
            write!(f, "{} {name}", self.0 / unit)
        } else {
            write!(f, "{:.1} {name}", self.0 as f64 / unit as f64)
        }
    }
}

/// Bytes of a unit; `None` for what is no unit.
fn unit_bytes(unit: &str) -> Option<u64> {
    let unit = unit.to_ascii_lowercase();
    if unit.is_empty() || unit == "b" {
        return Some(1);
    }
    let power = 1 + "kmgtp".find(unit.chars().next()?)? as u32;
    match &unit[1..] {
        "" | "i" | "ib" => Some(1 << (10 * power)),
        "b" => Some(10u64.pow(3 * power)),
        _ => None,
    }
}

/// Digits, at most one point among them; bytes are rounded down.
fn times(number: &str, unit: u64) -> Option<Result<u64, ()>> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty()
        || !digits(whole)
        || !digits(fraction)
        || (fraction.is_empty() && number.contains('.'))
    {
        return None;
    }
    let of_fraction = fraction
        .bytes()
        .take(18)
        .fold((0u128, 1u128), |(sum, scale), digit| (sum * 10 + u128::from(digit - b'0'), scale * 10));
    let of_fraction = u128::from(unit) * of_fraction.0 / of_fraction.1;
    let bytes = whole.parse::<u128>().ok().and_then(|whole| whole.checked_mul(unit.into()));
    let bytes = bytes.and_then(|bytes| u64::try_from(bytes.checked_add(of_fraction)?).ok());
    Some(bytes.ok_or(()))
}

impl FromStr for Size {
    type Err = String;
    fn from_str(text: &str) -> Result<Size, String> {
        let trimmed = text.trim();
        let end =
            trimmed.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(trimmed.len());
        let (number, unit) = trimmed.split_at(end);
        let bytes = unit_bytes(unit.trim_start()).and_then(|unit| times(number, unit));
        match bytes {
            Some(Ok(bytes)) => Ok(Size(bytes)),
            Some(Err(())) => Err(format!("`{text}` is too large; sizes end below 16 EiB")),
            None => Err(format!(
                "`{text}` is not a size; write bytes or a unit, as in `64G` or `64 GiB` (K, M, G, T, P: powers of 1024; \
                 kB, MB, GB, TB, PB: of 1000)"
            )),
        }
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
                f.write_str("a size in bytes, or text such as `64G`")
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
        for (text, bytes) in [
            ("64 GiB", 64 << 30),
            ("64G", 64 << 30),
            ("64g", 64 << 30),
            ("64Gi", 64 << 30),
            ("4k", 4096),
            ("4 KiB", 4096),
            ("3M", 3 << 20),
            ("2T", 2 << 40),
            ("1P", 1 << 50),
            ("1.5G", 3 << 29),
            ("500MB", 500_000_000),
            ("80 mb", 80_000_000),
            ("7kB", 7_000),
            ("4096", 4096),
            ("4096B", 4096),
            (" 1 TiB ", 1 << 40),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(text.parse(), Ok(Size(bytes)), "{text}");
        }
    }

    #[test]
    fn what_is_no_size_says_what_is() {
        for text in [
            "a lot", "", "G", "1 X", "1GG", "1Gibi", "-1", "1e9", ".5G", "1.G", "1.2.3G", "0x10", "1 G iB",
            "\u{661}",
        ] {
            assert!(text.parse::<Size>().unwrap_err().contains("64 GiB"), "{text}");
        }
    }

    /// They were once cut to what fits, which asked for a device of 16 EiB.
    #[test]
    fn what_does_not_fit_is_refused_and_not_cut() {
        for text in
            ["99999999999999999999", "16384P", "16777216T", "99999999999999999999999999999999999999999999G"]
        {
            assert!(text.parse::<Size>().unwrap_err().contains("too large"), "{text}");
        }
    }

    #[test]
    fn people_read_one_kind_of_unit() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (32 << 30, "32 GiB"),
            (3 << 29, "1.5 GiB"),
            (80_000_000, "76.3 MiB"),
        ] {
            assert_eq!(Size(bytes).to_string(), text);
        }
        assert_eq!(Size(u64::MAX).to_string(), "16.0 EiB");
        for (bytes, text) in
            [(32 << 30, "32 GiB"), (3 << 29, "1536 MiB"), (7, "7 bytes"), (0, "0 bytes"), (1 << 63, "8 EiB")]
        {
            assert_eq!(Size(bytes).exact(), text);
        }
    }

    #[test]
    fn json_carries_plain_bytes_both_ways() {
        assert_eq!(serde_json::to_string(&Size(7)).unwrap(), "7");
        assert_eq!(serde_json::from_str::<Size>("\"1 KiB\"").unwrap(), Size(1024));
        assert!(serde_json::from_str::<Size>("-1").is_err());
    }
}
