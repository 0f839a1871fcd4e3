//! Words that choose among a few.

use serde::{Deserialize, Serialize};

/// The four isolation levels of FlashBlox (table 1 of the paper).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "lowercase")]
pub enum Isolation {
    /// Whole channels of its own; it feels no neighbour on flash.
    Channel,
    /// Whole dies of its own; the channel bus is shared.
    Die,
    /// Shares of dies, kept apart by weight and rate.
    Software,
    /// Shares of dies, not kept apart: what a conventional drive does.
    None,
}

impl Isolation {
    /// The word for it on every surface.
    pub const fn name(self) -> &'static str {
        match self {
            Isolation::Channel => "channel",
            Isolation::Die => "die",
            Isolation::Software => "software",
            Isolation::None => "none",
        }
    }
}

/// What a vSSD's rate limit means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "kebab-case")]
pub enum Sharing {
    /// It is served where nobody within theirs waits, so idle dies are used.
    #[default]
    WorkConserving,
    /// It waits, even beside idle dies.
    Strict,
}

impl Sharing {
    /// The word for it on every surface.
    pub const fn name(self) -> &'static str {
        match self {
            Sharing::WorkConserving => "work-conserving",
            Sharing::Strict => "strict",
        }
    }
}

/// What a vSSD is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "kebab-case")]
pub enum Serves {
    /// Volumes live on it.
    #[default]
    Volumes,
    /// An application uses its erase blocks, through the socket for blocks (`blocks_socket`).
    Blocks,
    /// Zoned volumes live on it: each zone is an erase block, or several.
    Zones,
    /// An Open-Channel volume is on it: its erase blocks are what a host writes and resets.
    OpenChannel,
}

impl Serves {
    /// Whether volumes live on it, of whatever kind.
    pub const fn has_volumes(self) -> bool {
        !matches!(self, Serves::Blocks)
    }

    /// What a vSSD for this use cannot have, and what to do.
    pub(crate) fn refuses(self, isolation: Isolation, placement_handles: u16) -> Option<&'static str> {
        match (self, isolation) {
            (Serves::OpenChannel, Isolation::Software | Isolation::None) => {
                Some("an Open-Channel vSSD shows dies, so they must be its own; use channel or die isolation")
            }
            (Serves::Blocks | Serves::Zones | Serves::OpenChannel, _) if placement_handles > 0 => Some(
                "placement_handles are for a vSSD whose use is volumes; leave them out, or make it for volumes",
            ),
            _ => None,
        }
    }

    /// The word for it on every surface.
    pub const fn name(self) -> &'static str {
        match self {
            Serves::Volumes => "volumes",
            Serves::Blocks => "blocks",
            Serves::Zones => "zones",
            Serves::OpenChannel => "open-channel",
        }
    }
}

/// What a reclaim group of a vSSD with placement handles is: nothing that is written to one is ever moved to another one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "kebab-case")]
pub enum ReclaimGroups {
    /// All of the vSSD is one.
    #[default]
    One,
    /// Each channel is one.
    Channel,
    /// Each die is one.
    Die,
}

impl ReclaimGroups {
    /// The word for it on every surface.
    pub const fn name(self) -> &'static str {
        match self {
            ReclaimGroups::One => "one",
            ReclaimGroups::Channel => "channel",
            ReclaimGroups::Die => "die",
        }
    }

    /// Why a vSSD cannot have these groups, and what to do.
    pub(crate) fn refuses(self, isolation: Isolation, placement_handles: u16) -> Option<&'static str> {
        match (self, isolation) {
            (ReclaimGroups::One, _) => None,
            _ if placement_handles == 0 => Some(
                "reclaim_groups are what hosts choose with a placement handle, and it has none; set placement_handles, too",
            ),
            (_, Isolation::Software | Isolation::None) => Some(
                "reclaim_groups are dies or channels of its own, and it shares dies; use channel or die isolation",
            ),
            (ReclaimGroups::Channel, Isolation::Die) => Some(
                "reclaim_groups are channels, and it has dies alone; use channel isolation, or one group for each die",
            ),
            _ => None,
        }
    }
}

/// What the cleaner does with data that hosts wrote to different placement handles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "kebab-case")]
pub enum PlacementIsolation {
    /// They are apart when they are written, and may lie together once the cleaner has moved them.
    #[default]
    Initial,
    /// They never lie in one reclaim unit.
    Persistent,
}

impl PlacementIsolation {
    /// The word for it on every surface.
    pub const fn name(self) -> &'static str {
        match self {
            PlacementIsolation::Initial => "initial",
            PlacementIsolation::Persistent => "persistent",
        }
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use serde_json::{from_str, to_string};

    /// Goal: files that exist stay readable. Method: each word is written and read with its pinned spelling.
    #[test]
    fn spellings_are_pinned() {
        let levels = [Isolation::Channel, Isolation::Die, Isolation::Software, Isolation::None];
        for (level, word) in levels.into_iter().zip(["channel", "die", "software", "none"]) {
            assert_eq!((level.name(), to_string(&level).unwrap()), (word, format!("\"{word}\"")));
            assert_eq!(from_str::<Isolation>(&format!("\"{word}\"")).unwrap(), level);
        }
        for (sharing, word) in
            [Sharing::WorkConserving, Sharing::Strict].into_iter().zip(["work-conserving", "strict"])
        {
            assert_eq!((sharing.name(), to_string(&sharing).unwrap()), (word, format!("\"{word}\"")));
            assert_eq!(from_str::<Sharing>(&format!("\"{word}\"")).unwrap(), sharing);
        }
        assert!(from_str::<Isolation>("\"Channel\"").is_err(), "one spelling each");
        for (serves, word) in [Serves::Volumes, Serves::Blocks, Serves::Zones, Serves::OpenChannel]
            .into_iter()
            .zip(["volumes", "blocks", "zones", "open-channel"])
        {
            assert_eq!((serves.name(), to_string(&serves).unwrap()), (word, format!("\"{word}\"")));
            assert_eq!(from_str::<Serves>(&format!("\"{word}\"")).unwrap(), serves);
        }
        let isolations = [PlacementIsolation::Initial, PlacementIsolation::Persistent];
        for (isolation, word) in isolations.into_iter().zip(["initial", "persistent"]) {
            assert_eq!((isolation.name(), to_string(&isolation).unwrap()), (word, format!("\"{word}\"")));
            assert_eq!(from_str::<PlacementIsolation>(&format!("\"{word}\"")).unwrap(), isolation);
        }
    }
}
