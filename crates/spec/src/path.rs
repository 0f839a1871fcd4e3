//! Paths to a subsystem: how good each address of the server is to reach it.

use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::str::FromStr;

/// How good a path is (asymmetric namespace access, NVMe Base 2.0 section 8.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "kebab-case")]
pub enum PathState {
    /// As good as it can be.
    #[default]
    Optimized,
    /// It serves; hosts take an optimized one first.
    NonOptimized,
    /// It serves no I/O at present; hosts take another one and keep this one for later.
    Inaccessible,
    /// It will never serve I/O again.
    PersistentLoss,
    /// It is about to change: hosts wait for it, ten seconds at most.
    Change,
}

impl PathState {
    /// The word for it on every surface.
    pub const fn name(self) -> &'static str {
        match self {
            PathState::Optimized => "optimized",
            PathState::NonOptimized => "non-optimized",
            PathState::Inaccessible => "inaccessible",
            PathState::PersistentLoss => "persistent-loss",
            PathState::Change => "change",
        }
    }
}

/// The state of one path to a subsystem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PathSpec {
    /// Address and port that hosts connect to, as in `192.0.2.1:4420`.
    pub address: SocketAddr,
    /// What hosts are told of it, and whether it serves.
    pub state: PathState,
}

impl PathSpec {
    /// Whether hosts can connect to the address.
    ///
    /// # Errors
    /// Names the address and says what to do.
    pub fn check(&self) -> Result<(), String> {
        if self.address.ip().is_unspecified() || self.address.port() == 0 {
            return Err(format!(
                "path {}: no host connects to this address; name one that hosts connect to, with its port",
                self.address
            ));
        }
        Ok(())
    }
}

/// `ADDRESS=STATE`, as the command line has it.
impl FromStr for PathSpec {
    type Err = String;
    fn from_str(text: &str) -> Result<PathSpec, String> {
        let state = |word: &str| serde_json::from_value(serde_json::Value::from(word)).ok();
        text.split_once('=')
            .and_then(|(address, word)| {
                Some(PathSpec { address: address.parse().ok()?, state: state(word)? })
            })
            .ok_or_else(|| {
                format!("`{text}` is not a path; write ADDRESS=STATE, as in 192.0.2.1:4420=non-optimized")
            })
    }
}

#[cfg(test)]
mod test {
    use super::*;

    /// Goal: files and catalogs that exist stay readable. Method: each word with its pinned spelling.
    #[test]
    fn spellings_are_pinned() {
        let states = [
            (PathState::Optimized, "optimized"),
            (PathState::NonOptimized, "non-optimized"),
            (PathState::Inaccessible, "inaccessible"),
            (PathState::PersistentLoss, "persistent-loss"),
            (PathState::Change, "change"),
        ];
        for (state, word) in states {
            assert_eq!((state.name(), serde_json::to_string(&state).unwrap()), (word, format!("\"{word}\"")));
            let path: PathSpec = format!("[2001:db8::1]:4420={word}").parse().unwrap();
            let text = format!("{{\"address\":\"[2001:db8::1]:4420\",\"state\":\"{word}\"}}");
            assert_eq!((path.state, serde_json::to_string(&path).unwrap()), (state, text));
        }
        for wrong in ["192.0.2.1:4420", "192.0.2.1=optimized", "192.0.2.1:4420=best"] {
            assert!(wrong.parse::<PathSpec>().unwrap_err().contains("write ADDRESS=STATE"), "{wrong}");
        }
    }

    #[test]
    fn an_address_that_nobody_dials_is_refused() {
        for (address, good) in [("192.0.2.1:4420", true), ("0.0.0.0:4420", false), ("192.0.2.1:0", false)] {
            let path: PathSpec = format!("{address}=change").parse().unwrap();
            assert_eq!(path.check().is_ok(), good, "{address}");
        }
    }
}
