//! Where a part of a command's time may go.

use serde::{Deserialize, Serialize};

/// Where a part of a command's time went. The parts of a command add up to all of its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// Its data were not here yet, or there was no memory for them.
    Network,
    /// It waited for its turn, or for the turn of its last piece.
    Admission,
    /// Its volume: the map, and room in the log.
    Store,
    /// A flush waited for what came before it.
    Flush,
    /// Its die had nothing else to do: a rate limit, or the order of an erase block.
    Held,
    /// Its die was busy for hosts of its own vSSD.
    DieOwn,
    /// Its die was busy for the cleaner or the maps of its own vSSD.
    DieCleaner,
    /// Its die was busy for another vSSD.
    DieNeighbour,
    /// Its die was busy with an exchange for even wear.
    DieMigration,
    /// Another die had the bus of its channel.
    Bus,
    /// The medium did it, in the time that the medium says.
    Medium,
    /// The medium took longer than it says.
    SlowMedium,
    /// The answer of the medium was not yet an answer to the host.
    Answer,
    /// It waited longer than its die remembers.
    Unknown,
    /// The server did not run, or did something else for a millisecond and more.
    Server,
}

impl Cause {
    /// All of them, in the order in which a command meets them.
    pub const ALL: [Cause; 15] = [
        Cause::Network,
        Cause::Admission,
        Cause::Store,
        Cause::Flush,
        Cause::Held,
        Cause::DieOwn,
        Cause::DieCleaner,
        Cause::DieNeighbour,
        Cause::DieMigration,
        Cause::Bus,
        Cause::Medium,
        Cause::SlowMedium,
        Cause::Answer,
        Cause::Unknown,
        Cause::Server,
    ];

    /// Its place in [`Cause::ALL`].
    pub fn index(self) -> usize {
        self as usize
    }

    /// In a few words.
    pub fn text(self) -> &'static str {
        match self {
            Cause::Network => "network",
            Cause::Admission => "admission",
            Cause::Store => "map and log",
            Cause::Flush => "flush",
            Cause::Held => "rate or order",
            Cause::DieOwn => "die: own hosts",
            Cause::DieCleaner => "die: own cleaner",
            Cause::DieNeighbour => "die: neighbour",
            Cause::DieMigration => "die: even wear",
            Cause::Bus => "bus",
            Cause::Medium => "medium",
            Cause::SlowMedium => "slow medium",
            Cause::Answer => "answer",
            Cause::Unknown => "unknown",
            Cause::Server => "server late",
        }
    }
}

#[cfg(test)]
mod test {
    use super::*;

    /// The spellings are a format.
    #[test]
    fn causes_have_their_places_and_spellings() {
        for (at, cause) in Cause::ALL.into_iter().enumerate() {
            assert_eq!(cause.index(), at);
        }
        let spelled: Vec<String> =
            Cause::ALL.iter().map(|cause| serde_json::to_string(cause).expect("a word")).collect();
        assert_eq!(
            spelled.join(" "),
            "\"network\" \"admission\" \"store\" \"flush\" \"held\" \"die_own\" \"die_cleaner\" \"die_neighbour\" \
             \"die_migration\" \"bus\" \"medium\" \"slow_medium\" \"answer\" \"unknown\" \"server\""
        );
    }
}
