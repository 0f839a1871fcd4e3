//! Devices of a set-up: one table for each, of one of the kinds that there are.

use crate::place::Drive;
use diecut_spec::{Size, check_name};
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};

/// Where an emulated device keeps its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Backing {
    /// A sparse image in the data folder.
    File,
    /// Memory, gone with the process.
    Memory,
}

/// What an acknowledged write, or flush, of a device in a file survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// The death of the server, not of the machine.
    Process,
    /// The death of the machine, too. The device has no protected memory then, and one shard.
    Machine,
}

/// An emulated device.
// It is read as a part of `Table`; `docs/setup.md` is drawn from what stands here.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EmulatedDevice {
    /// Name of a built-in NAND profile (`cnex-1tb`, `westlake`, `slc`, `mlc`, `tlc`, `qlc`, `tiny`, `tiny-one-shot`), or path of a
    /// profile file (`.toml`). `crates/emulator/profiles/` has the built-in ones as files, and `crates/emulator/src/profile.rs` explains
    /// each key. Built-in ones with little protected memory are served with 64 MiB of it.
    pub profile: String,
    /// Where the content lives.
    pub backing: Backing,
    /// What an acknowledged write survives, for a device in a file, or with `volatile_cache` a flush (`docs/durability.md`). It is fixed
    /// when the device is made.
    pub durability: Durability,
    /// Flash takes as long as the NAND would; without it, no time.
    pub pacing: bool,
    /// Seed of factory bad blocks and of everything else that is drawn. An existing device has the one that it was made with, and
    /// another one here is a warning.
    pub seed: u64,
    /// Memory that survives a power cut, as capacitors make it; if absent, the profile says how much.
    pub protected_memory: Option<Size>,
    /// Acknowledge writes before they are on flash, for a device without protected memory: hosts flush, as they do with a
    /// drive that has such a cache. An existing device with protected memory has no such cache, and this is a warning.
    pub volatile_cache: bool,
}

impl Default for EmulatedDevice {
    fn default() -> EmulatedDevice {
        EmulatedDevice {
            profile: "cnex-1tb".to_string(),
            backing: Backing::File,
            durability: Durability::Process,
            pacing: false,
            seed: 1,
            protected_memory: None,
            volatile_cache: false,
        }
    }
}

/// What a drive is to the operating system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DriveKind {
    /// A file.
    File,
    /// A block device, or a partition of one.
    Block,
}

/// A drive of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriveDevice {
    /// What it is.
    pub kind: DriveKind,
    /// The file, or the block device: best one of `/dev/disk/by-id`, which keep their names. `diecut device format` makes it a device first.
    pub path: PathBuf,
    /// What it is called in reports; its path if absent.
    pub name: Option<String>,
    /// Whether the drive is told which erase blocks hold nothing any more, so that it gives back their room: holes in a file, a discard to a block
    /// device. If absent, block devices are told and files are not: the file system makes each flush slower that covers writes into holes.
    pub discard: Option<bool>,
}

impl DriveDevice {
    /// Whether it is told what holds nothing any more.
    pub fn is_told_of_discards(&self) -> bool {
        self.discard.unwrap_or(self.kind == DriveKind::Block)
    }

    /// What it is called in reports.
    pub fn shown_name(&self) -> String {
        self.name.clone().unwrap_or_else(|| self.path.display().to_string())
    }
}

/// A namespace of an NVMe/TCP target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteDevice {
    /// Where the target listens, as HOST:PORT.
    pub address: String,
    /// NQN of the subsystem.
    pub subsystem: String,
    /// The namespace's number in it.
    pub nsid: u32,
    /// NQN of this server as a host, which the target may have to allow. If absent, one is made and kept in the data folder (`remote.host`).
    pub host_nqn: Option<String>,
    /// How long hosts' commands wait for a target that does not answer, until they fail with a status that tells hosts to try again; 20000 (20 s) if
    /// absent.
    pub patience_ms: Option<u64>,
    /// What it is called in reports; address, subsystem and number if absent.
    pub name: Option<String>,
}

impl RemoteDevice {
    /// Where it is.
    pub fn place(&self) -> String {
        format!("{}/{}/{}", self.address, self.subsystem, self.nsid)
    }

    /// What it is called in reports.
    pub fn shown_name(&self) -> String {
        self.name.clone().unwrap_or_else(|| self.place())
    }
}

/// A device, of one of the kinds that there are.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Table", into = "Table")]
pub enum Device {
    /// Emulated NAND.
    Emulated(EmulatedDevice),
    /// A drive of this machine that hides its flash.
    Drive(DriveDevice),
    /// A drive behind a network.
    Remote(RemoteDevice),
}

/// The word of a kind in the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    #[default]
    Emulated,
    File,
    Block,
    Remote,
}

impl Kind {
    fn word(self) -> &'static str {
        match self {
            Kind::Emulated => "emulated",
            Kind::File => "file",
            Kind::Block => "block",
            Kind::Remote => "remote",
        }
    }
}

/// A device as it stands in the file: keys of all kinds.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Table {
    kind: Kind,
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    subsystem: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    nsid: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    host_nqn: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patience_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    discard: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    profile: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    backing: Option<Backing>,
    #[serde(skip_serializing_if = "Option::is_none")]
    durability: Option<Durability>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pacing: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    seed: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    protected_memory: Option<Size>,
    #[serde(skip_serializing_if = "Option::is_none")]
    volatile_cache: Option<bool>,
}

impl Table {
    /// The device, in words.
    fn shown(&self) -> String {
        let kind = self.kind.word();
        match (&self.name, &self.path) {
            (Some(name), _) => format!("device \"{name}\" of kind \"{kind}\""),
            (None, Some(path)) => format!("device {} of kind \"{kind}\"", path.display()),
            (None, None) => format!("a device of kind \"{kind}\""),
        }
    }

    /// Keys that are there and belong to other kinds than its own.
    fn foreign_keys(&self) -> Vec<&'static str> {
        const EMULATED: u8 = 1;
        const LOCAL: u8 = 2;
        const REMOTE: u8 = 4;
        let keys = [
            ("path", self.path.is_some(), LOCAL),
            ("discard", self.discard.is_some(), LOCAL),
            ("address", self.address.is_some(), REMOTE),
            ("subsystem", self.subsystem.is_some(), REMOTE),
            ("nsid", self.nsid.is_some(), REMOTE),
            ("host_nqn", self.host_nqn.is_some(), REMOTE),
            ("patience_ms", self.patience_ms.is_some(), REMOTE),
            ("name", self.name.is_some(), LOCAL | REMOTE),
            ("profile", self.profile.is_some(), EMULATED),
            ("backing", self.backing.is_some(), EMULATED),
            ("durability", self.durability.is_some(), EMULATED),
            ("pacing", self.pacing.is_some(), EMULATED),
            ("seed", self.seed.is_some(), EMULATED),
            ("protected_memory", self.protected_memory.is_some(), EMULATED),
            ("volatile_cache", self.volatile_cache.is_some(), EMULATED),
        ];
        let own = match self.kind {
            Kind::Emulated => EMULATED,
            Kind::File | Kind::Block => LOCAL,
            Kind::Remote => REMOTE,
        };
        keys.into_iter().filter(|(_, is_there, of)| *is_there && of & own == 0).map(|key| key.0).collect()
    }

    /// Whose key it is, in words.
    fn advice(key: &str) -> &'static str {
        match key {
            "path" => {
                "it is where a drive of this machine is: write kind = \"file\" or \"block\", or leave it out"
            }
            "discard" => "it is for drives of this machine (kind = \"file\" or \"block\"); leave it out",
            "address" | "subsystem" | "nsid" | "host_nqn" | "patience_ms" => {
                "it is for a namespace of a target: write kind = \"remote\", or leave it out"
            }
            "name" => "write kind = \"file\", \"block\" or \"remote\", or leave it out",
            _ => "it is for emulated devices; leave it out",
        }
    }

    fn remote(self) -> Result<Device, String> {
        let shown = self.shown();
        let needs = |key: &str, what: &str| format!("{shown} needs {key}: {what}");
        let text = |value: Option<String>| value.filter(|text| !text.is_empty());
        let address =
            text(self.address).ok_or_else(|| needs("an `address`", "HOST:PORT, where the target listens"))?;
        let subsystem = text(self.subsystem)
            .ok_or_else(|| needs("a `subsystem`", "the NQN of the target's subsystem"))?;
        let nsid = self
            .nsid
            .filter(|nsid| (1..u32::MAX).contains(nsid))
            .ok_or_else(|| needs("an `nsid`", "the namespace's number in the subsystem, 1 or more"))?;
        let sensible = 100..=86_400_000;
        if let Some(ms) = self.patience_ms.filter(|ms| !sensible.contains(ms)) {
            return Err(format!("{shown}: patience_ms = {ms}: use 100 to 86400000 (20000 is usual)"));
        }
        let (host_nqn, patience_ms, name) = (self.host_nqn, self.patience_ms, self.name);
        Ok(Device::Remote(RemoteDevice { address, subsystem, nsid, host_nqn, patience_ms, name }))
    }
}

impl TryFrom<Table> for Device {
    type Error = String;

    fn try_from(table: Table) -> Result<Device, String> {
        if let [key, ..] = table.foreign_keys()[..] {
            let advice = Table::advice(key);
            return Err(format!("{}: `{key}` does not belong to it: {advice}", table.shown()));
        }
        table.name.as_ref().map_or(Ok(()), |name| check_name("device", name))?;
        if table.kind == Kind::Remote {
            return table.remote();
        }
        if table.kind == Kind::Emulated {
            let usual = EmulatedDevice::default();
            return Ok(Device::Emulated(EmulatedDevice {
                profile: table.profile.unwrap_or(usual.profile),
                backing: table.backing.unwrap_or(usual.backing),
                durability: table.durability.unwrap_or(usual.durability),
                pacing: table.pacing.unwrap_or(usual.pacing),
                seed: table.seed.unwrap_or(usual.seed),
                protected_memory: table.protected_memory,
                volatile_cache: table.volatile_cache.unwrap_or(usual.volatile_cache),
            }));
        }
        let kind = if table.kind == Kind::File { DriveKind::File } else { DriveKind::Block };
        match &table.path {
            Some(path) if !path.as_os_str().is_empty() => {
                let (path, discard) = (path.clone(), table.discard);
                Ok(Device::Drive(DriveDevice { kind, path, name: table.name, discard }))
            }
            _ => Err(format!("{} needs a `path`: where it is", table.shown())),
        }
    }
}

impl From<Device> for Table {
    fn from(device: Device) -> Table {
        match device {
            Device::Emulated(device) => Table {
                kind: Kind::Emulated,
                profile: Some(device.profile),
                backing: Some(device.backing),
                durability: Some(device.durability),
                pacing: Some(device.pacing),
                seed: Some(device.seed),
                protected_memory: device.protected_memory,
                volatile_cache: Some(device.volatile_cache),
                ..Table::default()
            },
            Device::Drive(device) => Table {
                kind: if device.kind == DriveKind::File { Kind::File } else { Kind::Block },
                path: Some(device.path),
                name: device.name,
                discard: device.discard,
                ..Table::default()
            },
            Device::Remote(device) => Table {
                kind: Kind::Remote,
                address: Some(device.address),
                subsystem: Some(device.subsystem),
                nsid: Some(device.nsid),
                host_nqn: device.host_nqn,
                patience_ms: device.patience_ms,
                name: device.name,
                ..Table::default()
            },
        }
    }
}

fn no_profile(name: &str) -> String {
    format!("--profile is for emulated devices, and {name} is a drive: leave it out")
}

/// What a server serves.
#[derive(Clone, Debug, PartialEq)]
pub enum DeviceChoice<'a> {
    /// Emulated NAND.
    Emulated(&'a EmulatedDevice),
    /// Drives that are one pool.
    Drives(Vec<Drive<'a>>),
}

/// The devices of a set-up: `[device]` for one, or `[[device]]` for each. Where nothing is said it is one emulated device.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Devices(Vec<Device>);

impl Default for Devices {
    fn default() -> Devices {
        Devices(vec![Device::Emulated(EmulatedDevice::default())])
    }
}

impl From<Device> for Devices {
    fn from(device: Device) -> Devices {
        Devices(vec![device])
    }
}

impl<'de> Deserialize<'de> for Devices {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Devices, D::Error> {
        struct OneOrMany;
        impl<'de> Visitor<'de> for OneOrMany {
            type Value = Devices;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a table [device], or several [[device]]")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Devices, A::Error> {
                Device::deserialize(MapAccessDeserializer::new(map)).map(Devices::from)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Devices, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(seq)).map(Devices)
            }
        }
        deserializer.deserialize_any(OneOrMany)
    }
}

impl Devices {
    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Device> {
        self.0.iter()
    }

    /// What a server is to serve: one emulated device, or drives.
    ///
    /// # Errors
    /// If there are none, or an emulated one beside others. The message says what to do.
    pub fn choice(&self) -> Result<DeviceChoice<'_>, String> {
        if self.0.is_empty() {
            return Err(
                "the list of devices is empty: name one, or leave it out for an emulated one".to_owned()
            );
        }
        if let [Device::Emulated(only)] = &self.0[..] {
            return Ok(DeviceChoice::Emulated(only));
        }
        let drives = self.0.iter().map(|device| match device {
            Device::Drive(local) => Ok(Drive::Local(local)),
            Device::Remote(remote) => Ok(Drive::Remote(remote)),
            Device::Emulated(_) => Err(format!(
                "the set-up names {} devices, and one of them is emulated, which is alone in a server: start a server of its own for it, with a \
                 data folder and an address of its own",
                self.0.len()
            )),
        });
        Ok(DeviceChoice::Drives(drives.collect::<Result<_, _>>()?))
    }

    /// Has emulated devices be of another profile.
    ///
    /// # Errors
    /// If one of the devices is none.
    pub fn set_profile(&mut self, profile: &str) -> Result<(), String> {
        for device in &mut self.0 {
            match device {
                Device::Emulated(device) => profile.clone_into(&mut device.profile),
                Device::Drive(drive) => return Err(no_profile(&drive.shown_name())),
                Device::Remote(remote) => return Err(no_profile(&remote.shown_name())),
            }
        }
        Ok(())
    }

    /// Paths begin in `folder`, if they are relative.
    pub(crate) fn relative_to(&mut self, folder: &Path) {
        for device in &mut self.0 {
            match device {
                Device::Emulated(device) if device.profile.ends_with(".toml") => {
                    device.profile = folder.join(&device.profile).display().to_string();
                }
                Device::Emulated(_) | Device::Remote(_) => {}
                Device::Drive(drive) => drive.path = folder.join(&drive.path),
            }
        }
    }

    /// Whether they can be beside each other.
    ///
    /// # Errors
    /// Names the path or the name that two of them have.
    pub(crate) fn check(&self) -> Result<(), String> {
        let (mut paths, mut names) = (BTreeSet::new(), BTreeSet::new());
        for device in &self.0 {
            let (place, name) = match device {
                Device::Emulated(_) => continue,
                Device::Drive(drive) => (drive.path.clone(), drive.shown_name()),
                Device::Remote(remote) => (PathBuf::from(remote.place()), remote.shown_name()),
            };
            if paths.contains(&place) {
                let what =
                    if matches!(device, Device::Drive(_)) { "have the path" } else { "are the namespace" };
                return Err(format!(
                    "two devices {what} {}: a drive is one device; remove one of them",
                    place.display()
                ));
            }
            paths.insert(place);
            if !names.insert(name.clone()) {
                return Err(format!("two devices are called \"{name}\"; rename one"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::setup::Setup;

    fn devices(text: &str) -> Result<Devices, String> {
        Setup::from_toml(text).map(|setup| setup.devices).map_err(|error| error.to_string())
    }

    /// Goal: block devices are told of discards, files only where that is said.
    #[test]
    fn a_file_is_told_of_discards_where_that_is_said() {
        for (text, is_told) in [
            ("kind = \"file\"\npath = \"a\"", false),
            ("kind = \"file\"\npath = \"a\"\ndiscard = true", true),
            ("kind = \"block\"\npath = \"a\"", true),
            ("kind = \"block\"\npath = \"a\"\ndiscard = false", false),
        ] {
            let found = devices(&format!("[device]\n{text}")).unwrap();
            let [Device::Drive(drive)] = &found.0[..] else { panic!("{text}: one drive") };
            assert_eq!(drive.is_told_of_discards(), is_told, "{text}");
        }
        let error = devices("[device]\ndiscard = true").unwrap_err();
        assert!(error.contains("`discard` does not belong to it"), "{error}");
    }

    #[test]
    fn a_table_is_one_device_and_two_brackets_are_for_several() {
        assert_eq!(devices("").unwrap(), Devices::default());
        let one = devices("[device]\nprofile = \"tiny\"\nseed = 7").unwrap();
        let DeviceChoice::Emulated(emulated) = one.choice().unwrap() else { panic!("{one:?}") };
        assert_eq!((emulated.profile.as_str(), emulated.seed, emulated.backing), ("tiny", 7, Backing::File));
        assert_eq!(devices("[[device]]\nprofile = \"tiny\"\nseed = 7").unwrap(), one);
        let drive = devices("[device]\nkind = \"block\"\npath = \"/dev/sdb\"").unwrap();
        let DeviceChoice::Drives(drives) = drive.choice().unwrap() else { panic!("{drive:?}") };
        let Drive::Local(drive) = drives[0] else { panic!("it is of this machine") };
        assert_eq!((drive.kind, drive.shown_name()), (DriveKind::Block, "/dev/sdb".to_owned()));
        let several =
            "[[device]]\nkind = \"file\"\npath = \"a\"\nname = \"fast\"\n[[device]]\nprofile = \"tiny\"";
        let several = devices(several).unwrap();
        assert_eq!(several.iter().count(), 2);
        assert!(several.choice().unwrap_err().contains("names 2 devices, and one of them is emulated"));
        assert!(devices("device = []").unwrap().choice().unwrap_err().contains("is empty"));
        let remote =
            "[device]\nkind = \"remote\"\naddress = \"a:1\"\nsubsystem = \"s\"\nnsid = 2\npatience_ms = 500";
        let remote = devices(remote).unwrap();
        let DeviceChoice::Drives(found) = remote.choice().unwrap() else { panic!("{remote:?}") };
        let [Drive::Remote(found)] = found[..] else { panic!("it is behind a network") };
        assert_eq!((found.shown_name(), found.patience_ms), ("a:1/s/2".to_owned(), Some(500)));
        let two = "[[device]]\nkind = \"file\"\npath = \"d\"\n[[device]]\nkind = \"remote\"\naddress = \"a:1\"\nsubsystem = \"s\"\nnsid = 2";
        let two = devices(two).unwrap();
        let DeviceChoice::Drives(drives) = two.choice().unwrap() else { panic!("{two:?}") };
        assert!(matches!(drives[..], [Drive::Local(_), Drive::Remote(_)]), "they are one pool: {drives:?}");
        let setup = Setup { devices: remote, ..Setup::default() };
        assert_eq!(Setup::from_toml(&toml::to_string(&setup).unwrap()).unwrap(), setup);
        // What is set up is written and read again.
        let setup = Setup { devices: several, ..Setup::default() };
        assert_eq!(Setup::from_toml(&toml::to_string(&setup).unwrap()).unwrap(), setup);
    }

    #[test]
    fn what_does_not_fit_together_is_named() {
        let file = "[[device]]\nkind = \"file\"\npath = \"d\"\n";
        let remote = "[device]\nkind = \"remote\"\naddress = \"a:1\"\nsubsystem = \"nqn.2026-11.x:s\"\n";
        for (text, words) in [
            ("[device]\nkind = \"disk\"".to_owned(), ["disk", "`emulated`, `file`"]),
            ("[device]\nkind = \"file\"".to_owned(), ["of kind \"file\"", "needs a `path`"]),
            ("[device]\nkind = \"block\"\npath = \"\"".to_owned(), ["of kind \"block\"", "needs a `path`"]),
            ("[device]\npath = \"/dev/sdb\"".to_owned(), ["`path` does not belong", "kind = \"file\""]),
            (format!("{file}profile = \"tiny\""), ["device d of kind \"file\"", "`profile` does not belong"]),
            (format!("{file}pacing = false"), ["device d", "`pacing` does not belong"]),
            ("[device]\nkind = \"remote\"".to_owned(), ["of kind \"remote\"", "needs an `address`"]),
            (
                "[device]\nkind = \"remote\"\naddress = \"a:1\"".to_owned(),
                ["of kind \"remote\"", "needs a `subsystem`"],
            ),
            (format!("{remote}nsid = 0"), ["of kind \"remote\"", "needs an `nsid`"]),
            (format!("{remote}nsid = 1\npath = \"d\""), ["`path` does not belong", "drive of this machine"]),
            (format!("{remote}nsid = 1\npatience_ms = 5"), ["patience_ms = 5", "20000 is usual"]),
            (format!("{file}nsid = 1"), ["`nsid` does not belong", "kind = \"remote\""]),
            (
                format!("{0}nsid = 1\n{0}nsid = 1", remote.replace("[device]", "[[device]]")),
                ["two devices are the namespace a:1/nqn.2026-11.x:s/1", "remove one"],
            ),
            (format!("{file}{file}"), ["two devices have the path d", "remove one"]),
            (
                format!("{file}name = \"x\"\n{}name = \"x\"", file.replace("\"d\"", "\"e\"")),
                ["two devices are called \"x\"", "rename"],
            ),
            ("[device]\nprofil = \"tiny\"".to_owned(), ["line 2", "`profil`"]),
            ("[[device]]\nseed = \"x\"".to_owned(), ["line 2", "seed = \"x\""]),
            ("device = 5".to_owned(), ["[device]", "[[device]]"]),
        ] {
            let error = devices(&text).unwrap_err();
            assert!(words.iter().all(|word| error.contains(word)), "{text}\n{error}");
        }
    }

    #[test]
    fn paths_begin_at_the_file_and_profiles_are_of_emulated_devices() {
        let mut setup = Setup::from_toml("[device]\nkind = \"file\"\npath = \"d\"").unwrap();
        setup.relative_to(Path::new("/etc/diecut"));
        let DeviceChoice::Drives(drives) = setup.devices.choice().unwrap() else { panic!("it is a drive") };
        assert_eq!(drives[0].place().to_string(), "/etc/diecut/d");
        let error = setup.devices.set_profile("tiny").unwrap_err();
        assert!(error.contains("--profile") && error.contains("/etc/diecut/d"), "{error}");
        let mut usual = Devices::default();
        usual.set_profile("tiny").unwrap();
        assert!(
            matches!(usual.choice().unwrap(), DeviceChoice::Emulated(device) if device.profile == "tiny")
        );
    }
}
