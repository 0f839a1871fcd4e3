//! Drives in place of NAND, as data of a plan.

use super::{Lane, Plan};
use serde::{Deserialize, Deserializer, Serialize};

/// What goes wrong with a drive, from the time of the fault on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DriveFault {
    /// Nothing is answered for a while.
    Stalls {
        /// How long.
        span_ns: u64,
    },
    /// The next flush fails, and what it should have covered may be gone, though the one after it would succeed. Until the server starts again.
    FlushFails,
    /// Writes to an erase block are refused.
    Unwritable {
        /// Lane.
        lane: u16,
        /// Erase block.
        block: u32,
    },
    /// Reads of an IU are refused.
    Unreadable {
        /// Lane.
        lane: u16,
        /// Erase block.
        block: u32,
        /// IU in it.
        iu: u32,
    },
    /// Bits of an IU are flipped.
    Rots {
        /// Lane.
        lane: u16,
        /// Erase block.
        block: u32,
        /// IU in it.
        iu: u32,
    },
    /// It lies.
    Lies(DriveLie),
    /// It goes, with what is under way, and all that is asked of it is answered so, until the server starts again.
    Goes {
        /// Whether it loses its power, and with that its cache.
        loses_power: bool,
    },
    /// It does not answer for a while, and hosts are told that what lies on it is not ready.
    Away {
        /// How long.
        span_ns: u64,
    },
}

/// What goes wrong with one of the drives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "HarmText")]
pub struct DriveHarm {
    /// Which.
    pub drive: u16,
    /// What.
    pub fault: DriveFault,
}

/// As it is written in plans: those of the time when there was one drive do not name it.
#[derive(Deserialize)]
#[serde(untagged)]
enum HarmText {
    Of { drive: u16, fault: DriveFault },
    Only(DriveFault),
}

impl From<HarmText> for DriveHarm {
    fn from(text: HarmText) -> DriveHarm {
        match text {
            HarmText::Of { drive, fault } => DriveHarm { drive, fault },
            HarmText::Only(fault) => DriveHarm { drive: 0, fault },
        }
    }
}

/// What a drive does while it says that all is well; all but the first a few times in a thousand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DriveLie {
    /// Flushes do nothing.
    AboutFlushes,
    /// A write goes nowhere.
    LosesWrites,
    /// A write goes elsewhere.
    MisdirectsWrites,
    /// A read comes from elsewhere.
    MisdirectsReads,
    /// A read returns what was there before the last writes.
    StaleReads,
}

impl DriveFault {
    /// Whether data may be lost to it.
    pub fn loses_data(self) -> bool {
        matches!(
            self,
            DriveFault::FlushFails
                | DriveFault::Unreadable { .. }
                | DriveFault::Rots { .. }
                | DriveFault::Lies(_)
        )
    }
}

/// How a drive is cut, and what it is like.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DrivePlan {
    /// Lanes.
    pub lanes: u16,
    /// KiB of an erase block: a power of two, or what can be written of a zone.
    pub block_kib: u32,
    /// Erase blocks of a lane.
    pub blocks_per_lane: u32,
    /// Whether it has a cache that a power cut empties; otherwise what it answered is durable.
    pub volatile_cache: bool,
    /// Whether it is told what may be forgotten.
    pub discards: bool,
    /// Commands that it works on at once.
    pub depth: u32,
    /// What a flush takes, in nanoseconds.
    pub flush_ns: u64,
    /// Zones, if it is written in zones; an erase block is one of them.
    #[serde(default)]
    pub zones: Option<DriveZones>,
    /// Dies, if it shows them: its zones are chunks then.
    #[serde(default)]
    pub dies: Option<DriveDies>,
}

/// How the dies of a drive are that shows them. The first chunk of each is for labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DriveDies {
    /// Dies of a lane, of which each has the same number of its erase blocks.
    pub per_lane: u16,
    /// IUs that are written at once.
    pub unit_ius: u32,
}

/// How the zones of a drive are, behind two for its labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DriveZones {
    /// KiB from the start of a zone to that of the next one.
    pub size_kib: u32,
    /// Zones that are partly written at once, at most; 0: as many as there are.
    pub active_max: u32,
}

/// Drives that come to the pool and leave it while the server runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ComingsPlan {
    /// Drives that are none of the pool at first; their numbers follow those of the others.
    pub spares: Vec<DrivePlan>,
    /// What becomes of drives, one after the other. What cannot be, because a drive is where it is to go, or not there, is passed over.
    pub turns: Vec<DriveTurn>,
}

/// What becomes of a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DriveTurn {
    /// Since the turn before ended, or the server started.
    pub after_ns: u64,
    /// Which.
    pub drive: u16,
    /// What.
    pub what: Turn,
}

/// See [`DriveTurn`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Turn {
    /// It is added to the pool.
    Comes,
    /// What lies on it moves to others.
    Drains,
    /// It is taken out of the pool, if nothing lies on it.
    Goes,
}

/// Drives of a plan: a list, or one alone, as plans of the time when there was one have it.
pub(super) fn one_or_several<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<DrivePlan>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Text {
        Several(Vec<DrivePlan>),
        One(DrivePlan),
        None,
    }
    Ok(match Text::deserialize(from)? {
        Text::Several(drives) => drives,
        Text::One(drive) => vec![drive],
        Text::None => Vec::new(),
    })
}

impl Plan {
    /// Drives that the vSSD of a lane lies on; none on NAND.
    pub fn drives_of(&self, lane: Lane) -> Vec<u16> {
        let count = self.system.drives.len() as u16;
        match self.tenants.get(usize::from(lane.0)) {
            Some(tenant) if !tenant.drives.is_empty() => tenant.drives.clone(),
            _ => (0..count).collect(),
        }
    }

    /// Drives that are given to the server at a start of it, in that order; the first one is its first life.
    pub fn drives_at(&self, life: usize) -> Vec<u16> {
        match self.system.orders.len() {
            0 => (0..self.system.drives.len() as u16).collect(),
            count => self.system.orders[life % count].clone(),
        }
    }

    /// What becomes of drives while the server runs.
    pub fn turns(&self) -> &[DriveTurn] {
        self.system.comings.as_ref().map_or(&[], |comings| &comings.turns)
    }

    /// All drives, those that are none of the pool at first, too.
    pub fn all_drives(&self) -> impl Iterator<Item = &DrivePlan> {
        self.system.drives.iter().chain(self.system.comings.iter().flat_map(|comings| &comings.spares))
    }

    /// Whether something that a drive does not promise to keep lies on what a lane's vSSD lies on.
    pub fn has_volatile_cache(&self, lane: Lane) -> bool {
        match &*self.system.drives {
            [] => self.system.volatile_cache,
            drives => self.drives_of(lane).into_iter().any(|drive| drives[usize::from(drive)].volatile_cache),
        }
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn plans_of_one_drive_are_read_as_they_were_written() {
        let named: DriveHarm = serde_json::from_str(r#"{"drive":2,"fault":"flush-fails"}"#).unwrap();
        assert_eq!(named, DriveHarm { drive: 2, fault: DriveFault::FlushFails });
        let plain: DriveHarm = serde_json::from_str(r#"{"lies":"about-flushes"}"#).unwrap();
        assert_eq!(plain, DriveHarm { drive: 0, fault: DriveFault::Lies(DriveLie::AboutFlushes) });
        let text = serde_json::to_string(&named).unwrap();
        assert_eq!(serde_json::from_str::<DriveHarm>(&text).unwrap(), named);
    }
}
