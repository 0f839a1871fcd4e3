//! Amounts of QoS sets: bytes or commands. The unit is in the value, so that one cannot be taken for the other.

use crate::size::Size;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

/// An amount of bytes (`200 MiB`) or of commands (`5000 commands`). Written as a number of bytes, or as text with the word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Amount {
    /// Bytes.
    Bytes(Size),
    /// Commands.
    Commands(u64),
}

impl Amount {
    /// How many bytes or commands.
    pub const fn units(self) -> u64 {
        match self {
            Amount::Bytes(size) => size.bytes(),
            Amount::Commands(commands) => commands,
        }
    }

    /// So many of the same unit.
    pub const fn of_same_unit(self, units: u64) -> Amount {
        match self {
            Amount::Bytes(_) => Amount::Bytes(Size(units)),
            Amount::Commands(_) => Amount::Commands(units),
        }
    }

    /// Whether both count the same. Nothing of it counts either.
    pub const fn is_like(self, other: Amount) -> bool {
        matches!(
            (self, other),
            (Amount::Bytes(_), Amount::Bytes(_)) | (Amount::Commands(_), Amount::Commands(_))
        )
    }

    /// The word for its unit.
    pub const fn unit(self) -> &'static str {
        match self {
            Amount::Bytes(_) => "bytes",
            Amount::Commands(_) => "commands",
        }
    }
}

impl fmt::Display for Amount {
    /// Not rounded.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Amount::Bytes(size) => f.write_str(&size.exact()),
            Amount::Commands(commands) => write!(f, "{commands} commands"),
        }
    }
}

impl FromStr for Amount {
    type Err = String;
    fn from_str(text: &str) -> Result<Amount, String> {
        let number = text.trim().strip_suffix("commands").or_else(|| text.trim().strip_suffix("command"));
        let Some(number) = number else {
            let or = "; or commands, as in `5000 commands`";
            return text.parse().map(Amount::Bytes).map_err(|error| error + or);
        };
        let commands = number.trim().parse();
        commands.map(Amount::Commands).map_err(|_| {
            format!(
                "`{text}` is no number of commands; write digits in front of the word, as in `5000 commands`"
            )
        })
    }
}

impl Serialize for Amount {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Amount::Bytes(size) => size.serialize(serializer),
            Amount::Commands(_) => serializer.collect_str(self),
        }
    }
}

impl<'de> Deserialize<'de> for Amount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Amount, D::Error> {
        #[derive(Deserialize)]
        #[serde(
            untagged,
            expecting = "expected a number of bytes, or text such as \"200 MiB\" or \"5000 commands\""
        )]
        enum Written {
            Bytes(u64),
            Text(String),
        }
        match Written::deserialize(deserializer)? {
            Written::Bytes(bytes) => Ok(Amount::Bytes(Size(bytes))),
            Written::Text(text) => text.parse().map_err(serde::de::Error::custom),
        }
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn spellings_are_pinned() {
        for (amount, json, text) in [
            (Amount::Bytes(Size(200 << 20)), "209715200", "200 MiB"),
            (Amount::Commands(5000), "\"5000 commands\"", "5000 commands"),
        ] {
            assert_eq!(serde_json::to_string(&amount).unwrap(), json);
            assert_eq!(serde_json::from_str::<Amount>(json).unwrap(), amount);
            assert_eq!((amount.to_string().as_str(), text.parse::<Amount>()), (text, Ok(amount)));
        }
        assert_eq!("1 command".parse(), Ok(Amount::Commands(1)));
        for wrong in ["5k commands", "commands", "-1 commands", "fast"] {
            assert!(wrong.parse::<Amount>().is_err_and(|error| error.contains("5000 commands")), "{wrong}");
        }
    }
}
