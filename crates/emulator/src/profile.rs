//! What a device is made of: geometry, cells, timing, buses. Read from TOML files that a user can copy.

use crate::cells::CellLayout;
use crate::timing::Timing;
use diecut_media::Capabilities;
use diecut_units::{ContentMode, Geometry, GeometryError};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// The profiles that come with diecut; the source of every value stands in the file.
const BUILT_IN: &[(&str, &str)] = &[
    ("cnex-1tb", include_str!("../profiles/cnex-1tb.toml")),
    ("westlake", include_str!("../profiles/westlake.toml")),
    ("slc", include_str!("../profiles/slc.toml")),
    ("mlc", include_str!("../profiles/mlc.toml")),
    ("tlc", include_str!("../profiles/tlc.toml")),
    ("qlc", include_str!("../profiles/qlc.toml")),
    ("tiny", include_str!("../profiles/tiny.toml")),
    ("tiny-one-shot", include_str!("../profiles/tiny-one-shot.toml")),
];

/// A NAND device: shape, cells, timing. Fields may be changed before the emulator is built;
/// [`Profile::validate`] runs again there.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// Name, for messages.
    pub name: String,
    /// Shape of the device.
    pub geometry: Geometry,
    /// How cells hold pages.
    pub cell: CellProfile,
    /// Time that arrays need.
    pub timing: TimingProfile,
    /// Channel buses.
    pub bus: BusProfile,
    /// What a die can overlap.
    pub die: DieProfile,
    /// Controller and host link, for the whole device.
    pub host: HostProfile,
    /// Erase blocks that were bad when the device was made.
    pub bad_blocks: BadBlockProfile,
    /// Memory that survives a power cut, in bytes; 0 for none.
    pub protected_memory_bytes: u64,
}

/// How cells hold pages.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct CellProfile {
    /// Pages that share a word line: 1 (SLC) to 4 (QLC).
    pub bits_per_cell: u8,
    /// Whether all pages of a word line are programmed at once. If not, they are programmed apart and a power
    /// cut during a later one can destroy the earlier ones.
    pub one_shot: bool,
    /// Mean program/erase cycles of an erase block.
    pub endurance_cycles: u32,
    /// Standard deviation of the endurance between erase blocks, in percent of the mean.
    pub endurance_spread_percent: f64,
}

/// Time that arrays need, in microseconds.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct TimingProfile {
    /// Read of a page, by page type (lower, upper, ..): one value per bit of a cell.
    pub read_us: Vec<f64>,
    /// Program: one value per page type, or a single one for a whole word line with `one_shot`.
    pub program_us: Vec<f64>,
    /// Erase of a block.
    pub erase_us: f64,
}

/// A channel bus.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct BusProfile {
    /// Bytes per second over one channel, in 10^6.
    pub channel_mb_per_s: f64,
    /// Command and address cycles, charged on the bus with the data of a read or program and on the die with
    /// an erase or copy.
    pub command_overhead_us: f64,
    /// After so many bytes the bus is handed to the next die that waits; 0 for never within a transfer.
    pub burst_size_bytes: u32,
    /// Who comes next.
    pub arbitration: Arbitration,
}

/// Who gets the channel bus next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arbitration {
    /// Who asked first.
    Fifo,
    /// The next die, in order of their numbers, after the one served last.
    RoundRobin,
}

/// What a die can overlap.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct DieProfile {
    /// All planes are read and programmed at the same time; if not, one after the other.
    pub multi_plane: bool,
    /// The next page is read from the array while the last one leaves over the bus.
    pub cache_read: bool,
    /// The next unit arrives over the bus while the last one is programmed.
    pub cache_program: bool,
    /// Pages can be copied without crossing the channel.
    pub copy_within_die: bool,
    /// A read of the page that was read last, with nothing in between, needs no array time.
    pub page_register_reuse: bool,
    /// Reads interrupt a running program or erase.
    pub suspend: bool,
    /// Time until a suspended die can read, in microseconds.
    pub suspend_us: f64,
    /// Time to go on with what was suspended, in microseconds.
    pub resume_us: f64,
    /// How often one operation can be suspended; it runs to its end after that.
    pub suspend_limit: u32,
}

/// Controller and host link, shared by all channels. Zeros switch a server off.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct HostProfile {
    /// Added to every command, overlapping with others, in microseconds.
    pub latency_us: f64,
    /// Time of the one controller processor per command, in microseconds.
    pub controller_us: f64,
    /// Bytes per second over the host link, each direction, in 10^6; 0 for no limit.
    pub link_mb_per_s: f64,
}

/// Erase blocks that were bad when the device was made.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct BadBlockProfile {
    /// Share of erase blocks, in percent, chosen by the seed.
    pub factory_percent: f64,
    /// Channels that are bad as a whole.
    #[serde(default)]
    pub bad_channels: Vec<u16>,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct ProfileFile {
    name: String,
    geometry: GeometryFile,
    cell: CellProfile,
    timing: TimingProfile,
    bus: BusProfile,
    die: DieProfile,
    host: HostProfile,
    bad_blocks: BadBlockProfile,
    protected_memory: ProtectedMemoryFile,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct GeometryFile {
    channels: u16,
    dies_per_channel: u16,
    planes_per_die: u16,
    blocks_per_plane: u32,
    pages_per_block: u32,
    page_size_bytes: u32,
    oob_size_bytes: u32,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct ProtectedMemoryFile {
    size_bytes: u64,
}

/// What is wrong with a profile, and where.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// No built-in profile of that name.
    #[error(
        "there is no NAND profile \"{name}\"; built-in profiles: {known}; or give the path of a .toml file"
    )]
    Unknown {
        /// The name asked for.
        name: String,
        /// The names there are.
        known: String,
    },
    /// The file cannot be read; who reads it says so.
    #[error("NAND profile {path}: {source}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Not TOML, a missing or an unknown field; the message names line and field.
    #[error("NAND profile {origin}: {message}")]
    Syntax {
        /// File or profile name.
        origin: String,
        /// Line, column and field.
        message: String,
    },
    /// A shape that no device has.
    #[error("NAND profile {name}: {source}")]
    Geometry {
        /// Profile name.
        name: String,
        /// Field, value and rule.
        source: GeometryError,
    },
    /// A value out of range.
    #[error("NAND profile {name}: {field} is {value}, but {rule}")]
    Value {
        /// Profile name.
        name: String,
        /// Table and field.
        field: &'static str,
        /// The value.
        value: String,
        /// What it has to be.
        rule: &'static str,
    },
}

impl Profile {
    /// A profile that comes with diecut.
    ///
    /// # Errors
    /// [`ProfileError::Unknown`] lists the names there are.
    pub fn named(name: &str) -> Result<Profile, ProfileError> {
        match BUILT_IN.iter().find(|(known, _)| *known == name) {
            Some((_, text)) => Profile::parse(text, name),
            None => Err(ProfileError::Unknown {
                name: name.to_owned(),
                known: Profile::names().collect::<Vec<_>>().join(", "),
            }),
        }
    }

    /// Names of the profiles that come with diecut.
    pub fn names() -> impl Iterator<Item = &'static str> {
        BUILT_IN.iter().map(|(name, _)| *name)
    }

    /// The file of a built-in profile, to be copied and changed.
    pub fn text_of(name: &str) -> Option<&'static str> {
        BUILT_IN.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
    }

    /// Reads a profile from TOML text.
    ///
    /// # Errors
    /// Names the line and the field.
    pub fn from_toml(text: &str) -> Result<Profile, ProfileError> {
        Profile::parse(text, "given as text")
    }

    /// Fields in which another profile is not as this one, as `table.field` with both values (this one's first; `absent` where there is
    /// none). The name and the protected memory are not looked at.
    pub fn differences(&self, other: &Profile) -> Vec<(String, String, String)> {
        let (mut ours, mut theirs) = (BTreeMap::new(), BTreeMap::new());
        for (profile, values) in [(self, &mut ours), (other, &mut theirs)] {
            let table = profile.to_toml().parse::<toml::Table>().expect("written just now");
            for (name, value) in &table {
                let fields = value.as_table().filter(|_| name != "protected_memory");
                for (field, value) in fields.into_iter().flatten() {
                    values.insert(format!("{name}.{field}"), value.to_string());
                }
            }
        }
        let names: BTreeSet<&String> = ours.keys().chain(theirs.keys()).collect();
        let value = |of: &BTreeMap<String, String>, name: &String| {
            of.get(name).map_or("absent".to_owned(), String::clone)
        };
        let all = names.into_iter().map(|name| (name.clone(), value(&ours, name), value(&theirs, name)));
        all.filter(|(_, ours, theirs)| ours != theirs).collect()
    }

    /// The profile as TOML, as [`Profile::from_toml`] reads it; comments are lost.
    pub fn to_toml(&self) -> String {
        let geometry = &self.geometry;
        let file = ProfileFile {
            name: self.name.clone(),
            geometry: GeometryFile {
                channels: geometry.channels,
                dies_per_channel: geometry.dies_per_channel,
                planes_per_die: geometry.planes_per_die,
                blocks_per_plane: geometry.blocks_per_plane,
                pages_per_block: geometry.pages_per_block,
                page_size_bytes: geometry.page_size_bytes,
                oob_size_bytes: geometry.oob_size_bytes,
            },
            cell: self.cell.clone(),
            timing: self.timing.clone(),
            bus: self.bus.clone(),
            die: self.die.clone(),
            host: self.host.clone(),
            bad_blocks: self.bad_blocks.clone(),
            protected_memory: ProtectedMemoryFile { size_bytes: self.protected_memory_bytes },
        };
        toml::to_string(&file).expect("a profile has nothing that TOML cannot say")
    }

    /// As [`Profile::from_toml`]; messages name `origin`, where the text is from.
    ///
    /// # Errors
    /// Names the origin, the line and the field.
    pub fn parse(text: &str, origin: &str) -> Result<Profile, ProfileError> {
        let file: ProfileFile = toml::from_str(text).map_err(|error| ProfileError::Syntax {
            origin: origin.to_owned(),
            message: error.to_string(),
        })?;
        let geometry = Geometry {
            channels: file.geometry.channels,
            dies_per_channel: file.geometry.dies_per_channel,
            planes_per_die: file.geometry.planes_per_die,
            blocks_per_plane: file.geometry.blocks_per_plane,
            pages_per_block: file.geometry.pages_per_block,
            page_size_bytes: file.geometry.page_size_bytes,
            oob_size_bytes: file.geometry.oob_size_bytes,
        };
        let profile = Profile {
            name: file.name,
            geometry,
            cell: file.cell,
            timing: file.timing,
            bus: file.bus,
            die: file.die,
            host: file.host,
            bad_blocks: file.bad_blocks,
            protected_memory_bytes: file.protected_memory.size_bytes,
        };
        profile.validate()?;
        Ok(profile)
    }

    /// Checks every field.
    ///
    /// # Errors
    /// Names the profile, the table and the field, the value and the rule.
    pub fn validate(&self) -> Result<(), ProfileError> {
        self.geometry
            .validate()
            .map_err(|source| ProfileError::Geometry { name: self.name.clone(), source })?;
        let check = |holds: bool, field: &'static str, value: String, rule: &'static str| {
            if holds {
                Ok(())
            } else {
                Err(ProfileError::Value { name: self.name.clone(), field, value, rule })
            }
        };
        let time = |field: &'static str, value: f64| {
            check((0.0..=1e6).contains(&value), field, value.to_string(), "a time is 0 to 1000000 us")
        };
        let oob = self.geometry.oob_size_bytes;
        check(self.geometry.has_oob(), "geometry.oob_size_bytes", oob.to_string(), "NAND has spare bytes")?;
        let bits = self.cell.bits_per_cell;
        check((1..=4).contains(&bits), "cell.bits_per_cell", bits.to_string(), "a cell holds 1 to 4 bits")?;
        check(
            self.geometry.pages_per_block.is_multiple_of(bits.into()),
            "geometry.pages_per_block",
            self.geometry.pages_per_block.to_string(),
            "a block is a whole number of word lines (a multiple of cell.bits_per_cell)",
        )?;
        check(
            (0.0..=50.0).contains(&self.cell.endurance_spread_percent),
            "cell.endurance_spread_percent",
            self.cell.endurance_spread_percent.to_string(),
            "it is 0 to 50",
        )?;
        check(
            self.timing.read_us.len() == usize::from(bits),
            "timing.read_us",
            format!("{:?}", self.timing.read_us),
            "it has one value per bit of a cell",
        )?;
        let programs = if self.cell.one_shot { 1 } else { usize::from(bits) };
        check(
            self.timing.program_us.len() == programs,
            "timing.program_us",
            format!("{:?}", self.timing.program_us),
            "it has one value per bit of a cell, or a single one with cell.one_shot",
        )?;
        for &value in &self.timing.read_us {
            time("timing.read_us", value)?;
        }
        for &value in &self.timing.program_us {
            time("timing.program_us", value)?;
        }
        check(
            self.timing.erase_us > 0.0 && self.timing.erase_us <= 1e6,
            "timing.erase_us",
            self.timing.erase_us.to_string(),
            "an erase takes time, up to 1000000 us",
        )?;
        check(
            (1.0..=100_000.0).contains(&self.bus.channel_mb_per_s),
            "bus.channel_mb_per_s",
            self.bus.channel_mb_per_s.to_string(),
            "it is 1 to 100000",
        )?;
        time("bus.command_overhead_us", self.bus.command_overhead_us)?;
        time("die.suspend_us", self.die.suspend_us)?;
        time("die.resume_us", self.die.resume_us)?;
        time("host.latency_us", self.host.latency_us)?;
        time("host.controller_us", self.host.controller_us)?;
        check(
            self.host.link_mb_per_s == 0.0 || (1.0..=1_000_000.0).contains(&self.host.link_mb_per_s),
            "host.link_mb_per_s",
            self.host.link_mb_per_s.to_string(),
            "it is 0 (no limit) or 1 to 1000000",
        )?;
        check(
            (0.0..=50.0).contains(&self.bad_blocks.factory_percent),
            "bad_blocks.factory_percent",
            self.bad_blocks.factory_percent.to_string(),
            "it is 0 to 50",
        )?;
        for &channel in &self.bad_blocks.bad_channels {
            check(
                channel < self.geometry.channels,
                "bad_blocks.bad_channels",
                channel.to_string(),
                "the device has no such channel",
            )?;
        }
        check(
            self.protected_memory_bytes <= 1 << 36 && self.protected_memory_bytes.is_multiple_of(4096),
            "protected_memory.size_bytes",
            self.protected_memory_bytes.to_string(),
            "it is a multiple of 4096, at most 64 GiB; 0 for none",
        )
    }

    /// What the contract says about a device of this profile.
    pub fn capabilities(&self, content_mode: ContentMode) -> Capabilities {
        let cells = CellLayout::new(self);
        Capabilities {
            program_unit_pages: cells.unit_pages(),
            unsafe_units: cells.unsafe_units(),
            volatile_cache: false,
            independent_units: true,
            copy_within_die: self.die.copy_within_die,
            suspends: self.die.suspend,
            slc_blocks_per_die: 0,
            content_mode,
            endurance_cycles: self.cell.endurance_cycles,
            die_times: Some(Timing::new(self).die_times(&cells)),
        }
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn every_built_in_profile_is_valid_and_carries_its_name() {
        for name in Profile::names() {
            let profile = Profile::named(name).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(profile.name, name);
        }
        assert_eq!(Profile::named("cnex-1tb").unwrap().geometry.raw_capacity_bytes(), 1069 << 30);
    }

    #[test]
    fn errors_name_the_field() {
        let text = Profile::text_of("tiny").unwrap();
        let error = Profile::named("cnex").unwrap_err().to_string();
        assert!(error.contains("cnex-1tb"), "{error}");
        for (from, to, field) in [
            ("channels = 2", "channels = 0", "channels"),
            ("erase_us = 3000.0", "erase_us = 0.0", "timing.erase_us"),
            ("pages_per_block = 8", "pages_per_block = 9", "geometry.pages_per_block"),
            ("bits_per_cell = 2", "bits_per_cell = 4", "timing.read_us"),
            ("bits_per_cell = 2", "bits = 2", "bits"),
            ("suspend = false", "", "suspend"),
            ("arbitration = \"fifo\"", "arbitration = \"lottery\"", "arbitration"),
            ("factory_percent = 2.0", "factory_percent = 2.0\nbad_channels = [2]", "bad_blocks.bad_channels"),
        ] {
            let changed = text.replacen(from, to, 1);
            assert_ne!(changed, text, "{from}");
            let error = Profile::from_toml(&changed).unwrap_err().to_string();
            assert!(error.contains(field), "{from} -> {to}: {error}");
        }
    }

    #[test]
    fn messages_name_the_file() {
        let error = Profile::parse("name = 1", "/somewhere/my.toml").unwrap_err().to_string();
        assert!(error.contains("/somewhere/my.toml"), "{error}");
    }
}
