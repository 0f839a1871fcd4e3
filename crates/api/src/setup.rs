//! The TOML file that declares a whole set-up: the server, its device, and what shall exist on it. Applying
//! it again changes nothing.

pub use crate::setup_device::{
    Backing, Device, DeviceChoice, Devices, DriveDevice, DriveKind, Durability, EmulatedDevice, RemoteDevice,
};
pub use crate::setup_error::SetupError;
use diecut_spec::{Amount, QosSetSpec, Size, SubsystemSpec, TenantSpec, VolumeSpec, VssdSpec, WearSettings};
use serde::{Deserialize, Deserializer, Serialize};
use std::path::{Path, PathBuf};

/// A whole set-up.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Setup {
    /// The server.
    #[serde(default)]
    pub server: Server,
    /// The devices it cuts.
    #[serde(default, rename = "device")]
    pub devices: Devices,
    /// How its dies are shared out.
    #[serde(default)]
    pub pool: Pool,
    /// Settings of even wear that shall hold; what is absent stays as it is.
    #[serde(default)]
    pub wear: WearSettings,
    /// Tenants that shall exist.
    #[serde(default, rename = "tenant")]
    pub tenants: Vec<TenantSpec>,
    /// vSSDs that shall exist.
    #[serde(default, rename = "vssd")]
    pub vssds: Vec<VssdSpec>,
    /// Volumes that shall exist.
    #[serde(default, rename = "volume")]
    pub volumes: Vec<VolumeSpec>,
    /// Subsystems that shall exist.
    #[serde(default, rename = "subsystem")]
    pub subsystems: Vec<SubsystemSpec>,
    /// QoS sets that shall exist.
    #[serde(default, rename = "qos_set")]
    pub qos_sets: Vec<QosSetSpec>,
}

/// The server process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Server {
    /// Where NVMe/TCP hosts connect: one `ADDRESS:PORT` or `NAME:PORT`, or a list of them. `0.0.0.0` and `[::]` stand for all
    /// addresses of the machine. There is no authentication yet: whoever reaches the address can claim the NQN of any host.
    #[serde(deserialize_with = "one_or_many")]
    pub listen: Vec<String>,
    /// What discovery tells hosts to dial instead of the address they came to, where the server lies behind address translation: one
    /// `ADDRESS:PORT`, or a list.
    #[serde(deserialize_with = "one_or_many", skip_serializing_if = "Vec::is_empty")]
    pub advertise: Vec<String>,
    /// Folder of the device's image and of the sockets. It is made with mode 0700 if it is not there.
    pub data: PathBuf,
    /// Unix socket of the control interface, mode 0600; `control.sock` in the data folder if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub socket: Option<PathBuf>,
    /// Unix socket where applications attach to erase blocks; `blocks.sock` in the data folder, with mode 0600, if absent. A socket that
    /// is named here has mode 0666, for applications of other users, whose `uid` is checked. It differs from `socket`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blocks_socket: Option<PathBuf>,
    /// Threads that serve, at most one for each channel. More than there are cores share these.
    pub shards: u16,
    /// Anonymous memory that the server may hold: maps of volumes come first, hosts' connections get what is left. If absent,
    /// hosts' connections hold 1 GiB at most, and the rest takes what it needs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_limit: Option<Size>,
    /// Keep each shard's thread on a core of its own: the first thread on the first core that the process may use, and so on.
    pub pin_cores: bool,
    /// How long a shard looks for work before it sleeps, in microseconds. It wakes up sooner, and takes all of its core meanwhile.
    pub busy_poll_us: u32,
    /// Commands that take so many microseconds are looked into: `diecut latency` says where their time went.
    pub slow_after_us: u64,
}

impl Default for Server {
    fn default() -> Server {
        Server {
            listen: vec!["127.0.0.1:4420".to_owned()],
            advertise: Vec::new(),
            data: PathBuf::from("diecut-data"),
            socket: None,
            blocks_socket: None,
            shards: 1,
            memory_limit: None,
            pin_cores: false,
            busy_poll_us: 0,
            slow_after_us: 5000,
        }
    }
}

/// A text, or a list of at least one.
fn one_or_many<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "expected \"ADDRESS:PORT\", or a list of at least one of these")]
    enum Written {
        One(String),
        Many(Vec<String>),
    }
    match Written::deserialize(deserializer)? {
        Written::One(text) => Ok(vec![text]),
        Written::Many(list) if !list.is_empty() => Ok(list),
        Written::Many(_) => {
            Err(serde::de::Error::custom("the list is empty; name at least one ADDRESS:PORT"))
        }
    }
}

impl Server {
    /// The control socket.
    pub fn socket_path(&self) -> PathBuf {
        self.socket.clone().unwrap_or_else(|| self.data.join("control.sock"))
    }

    /// The socket where applications attach.
    pub fn blocks_socket_path(&self) -> PathBuf {
        self.blocks_socket.clone().unwrap_or_else(|| self.data.join("blocks.sock"))
    }
}

/// How dies are shared out. What is absent follows from the device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Pool {
    /// Operations that may wait at a die, over all vSSDs on it; 256 if absent. Beyond it commands wait with their hosts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub die_queue_depth: Option<u16>,
    /// Soft-planes that a shared die is cut into, 1 to 16; 4 if absent. It is fixed when the device is made: another value is refused then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub soft_planes_per_die: Option<u16>,
    /// Where dies of die-isolated vSSDs are taken from.
    pub die_placement: DiePlacement,
    /// What the device can do each second, for the shaper of the device: bytes that hosts read and write, as in `2 GiB` (1 MiB or more), or
    /// commands, as in `100000 commands`. QoS sets have their rates of it, and what is in no set gets what they leave. No such shaper
    /// if absent. With several shards each has the same part of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_rate: Option<Amount>,
    /// What the bucket of that shaper holds; what comes in 5 ms if absent, and 1 MiB or 64 commands at least.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_bucket: Option<Amount>,
    /// What a throughput level means, for level 0, 1, and so on.
    pub levels: Levels,
}

/// Where dies of die-isolated vSSDs are taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DiePlacement {
    /// Channels that are broken up already, so that whole channels stay free.
    #[default]
    Pack,
    /// As many channels as there are: more bus bandwidth, more neighbours.
    Spread,
}

/// Throughput levels: how many of each a vSSD of a level gets at least. An empty table follows the device: level `n` is
/// worth `n` of its channels.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Levels {
    /// Channels of a channel-isolated vSSD of throughput level 0, 1, and so on. An empty list follows the device: level `n` is worth `n` of
    /// its channels.
    pub channels: Vec<u32>,
    /// The same for dies of a die-isolated vSSD.
    pub dies: Vec<u32>,
    /// The same for soft-planes of a software-isolated or un-isolated vSSD.
    pub soft_planes: Vec<u32>,
}

impl Setup {
    /// Reads a set-up and checks that it is complete in itself.
    ///
    /// # Errors
    /// See [`SetupError`].
    pub fn from_toml(text: &str) -> Result<Setup, SetupError> {
        let setup: Setup = toml::from_str(text)?;
        setup.check()?;
        Ok(setup)
    }

    /// Takes paths as they are meant in a file in `folder`: relative ones begin there.
    pub fn relative_to(&mut self, folder: &Path) {
        let Server { data, socket, blocks_socket, .. } = &mut self.server;
        for path in [Some(data), socket.as_mut(), blocks_socket.as_mut()].into_iter().flatten() {
            *path = folder.join(&*path);
        }
        self.devices.relative_to(folder);
    }

    fn check(&self) -> Result<(), SetupError> {
        self.devices.check().map_err(SetupError::Value)?;
        let tenants = names("tenant", self.tenants.iter().map(|tenant| &tenant.name))?;
        let vssds = names("vssd", self.vssds.iter().map(|vssd| &vssd.name))?;
        let volumes = names("volume", self.volumes.iter().map(|volume| &volume.name))?;
        names("subsystem", self.subsystems.iter().map(|subsystem| &subsystem.nqn))?;
        self.wear.check_slips().map_err(SetupError::Value)?;
        for tenant in &self.tenants {
            tenant.check_slips().map_err(SetupError::Value)?;
        }
        for vssd in &self.vssds {
            vssd.check_slips().map_err(SetupError::Value)?;
            declared("vssd", &vssd.name, "tenant", &vssd.tenant, &tenants)?;
        }
        for volume in &self.volumes {
            volume.check_slips().map_err(SetupError::Value)?;
            declared("volume", &volume.name, "vssd", &volume.vssd, &vssds)?;
        }
        for subsystem in &self.subsystems {
            subsystem.check().map_err(SetupError::Value)?;
            declared("subsystem", &subsystem.nqn, "tenant", &subsystem.tenant, &tenants)?;
            for namespace in &subsystem.namespaces {
                declared("subsystem", &subsystem.nqn, "volume", &namespace.volume, &volumes)?;
            }
        }
        names("qos_set", self.qos_sets.iter().map(|set| &set.name))?;
        for set in &self.qos_sets {
            set.check_slips().map_err(SetupError::Value)?;
            for volume in &set.volumes {
                declared("qos_set", &set.name, "volume", volume, &volumes)?;
            }
            for vssd in &set.vssds {
                declared("qos_set", &set.name, "vssd", vssd, &vssds)?;
            }
        }
        self.check_qos_members().map_err(SetupError::Value)?;
        Ok(())
    }
}

impl Setup {
    /// Whether nothing is in two QoS sets.
    fn check_qos_members(&self) -> Result<(), String> {
        let mut seen = std::collections::BTreeMap::new();
        for set in &self.qos_sets {
            let on_vssd = |volume: &&VolumeSpec| set.vssds.contains(&volume.vssd);
            let own =
                set.volumes.iter().chain(self.volumes.iter().filter(on_vssd).map(|volume| &volume.name));
            let volumes = own.map(|name| ("volume", name)).chain(set.vssds.iter().map(|name| ("vSSD", name)));
            for (kind, name) in volumes {
                if let Some(other) = seen.insert((kind, name), &set.name) {
                    return Err(format!(
                        "QoS set \"{}\": {kind} \"{name}\" is in QoS set \"{other}\" already, by itself or with its vSSD; it can be in one \
                         only, and once",
                        set.name
                    ));
                }
            }
        }
        Ok(())
    }
}

fn names<'a>(
    kind: &'static str,
    all: impl Iterator<Item = &'a String>,
) -> Result<std::collections::BTreeSet<&'a String>, SetupError> {
    let mut seen = std::collections::BTreeSet::new();
    for name in all {
        if !seen.insert(name) {
            return Err(SetupError::Twice { kind, name: name.clone() });
        }
    }
    Ok(seen)
}

fn declared(
    kind: &'static str,
    name: &str,
    refers_to_kind: &'static str,
    refers_to: &String,
    known: &std::collections::BTreeSet<&String>,
) -> Result<(), SetupError> {
    if known.contains(refers_to) {
        return Ok(());
    }
    Err(SetupError::Dangling { kind, name: name.to_string(), refers_to_kind, refers_to: refers_to.clone() })
}

#[cfg(test)]
mod test {
    use super::*;

    const EXAMPLE: &str = r#"
        [server]
        listen = "127.0.0.1:4421"
        [device]
        profile = "tiny"
        backing = "memory"
        [wear]
        follow_age = true
        rate = "20 MB"
        [[tenant]]
        name = "alpha"
        [[vssd]]
        name = "alpha-flash"
        tenant = "alpha"
        isolation = "channel"
        capacity = "1 MiB"
        [[volume]]
        name = "alpha-disk"
        vssd = "alpha-flash"
        size = "512 KiB"
        [[subsystem]]
        nqn = "nqn.2026-11.org.diecut:alpha"
        tenant = "alpha"
        allow_any_host = true
        namespaces = [{ nsid = 1, volume = "alpha-disk" }]
    "#;

    #[test]
    fn a_complete_file_is_read() {
        let setup = Setup::from_toml(EXAMPLE).unwrap();
        assert_eq!(setup.vssds[0].capacity, Size(1 << 20));
        assert_eq!(setup.vssds[0].throughput_level, 1);
        let wear =
            WearSettings { follow_age: Some(true), rate: Some(Size(20_000_000)), ..WearSettings::default() };
        assert_eq!(setup.wear, wear);
        assert_eq!(setup.server.socket_path(), PathBuf::from("diecut-data/control.sock"));
    }

    /// One address or several; what is set up is written and read again.
    #[test]
    fn a_server_listens_on_one_address_or_several() {
        let read =
            |server: &str| Setup::from_toml(&format!("[server]\n{server}\n")).map(|setup| setup.server);
        assert_eq!(read("").unwrap().listen, ["127.0.0.1:4420"]);
        assert_eq!(read("listen = \"storage.example:4420\"").unwrap().listen, ["storage.example:4420"]);
        let several =
            read("listen = [\"0.0.0.0:4420\", \"[::1]:4421\"]\nadvertise = \"192.0.2.1:4420\"").unwrap();
        assert_eq!(several.listen, ["0.0.0.0:4420", "[::1]:4421"]);
        assert_eq!(several.advertise, ["192.0.2.1:4420"]);
        let again = Setup { server: several, ..Setup::default() };
        assert_eq!(Setup::from_toml(&toml::to_string(&again).unwrap()).unwrap(), again);
        for wrong in ["listen = []", "listen = 4420", "advertise = [1]"] {
            let error = read(wrong).unwrap_err().to_string();
            assert!(error.contains("ADDRESS:PORT"), "{error}");
        }
    }

    #[test]
    fn paths_begin_at_the_file() {
        let text = "[server]\nsocket = \"/run/c\"\nblocks_socket = \"b\"\n[device]\nprofile = \"p.toml\"\n";
        let mut setup = Setup::from_toml(text).unwrap();
        setup.relative_to(Path::new("/etc/diecut"));
        let Server { data, socket, blocks_socket, .. } = setup.server.clone();
        assert_eq!(data, Path::new("/etc/diecut/diecut-data"));
        assert_eq!((socket, blocks_socket), (Some("/run/c".into()), Some("/etc/diecut/b".into())));
        let profile = |setup: &Setup| match setup.devices.choice() {
            Ok(DeviceChoice::Emulated(device)) => device.profile.clone(),
            other => panic!("{other:?}"),
        };
        assert_eq!(profile(&setup), "/etc/diecut/p.toml");
        let mut built_in = Setup::default();
        built_in.relative_to(Path::new(""));
        assert_eq!(
            (profile(&built_in).as_str(), built_in.server.data.clone()),
            ("cnex-1tb", "diecut-data".into())
        );
    }

    /// Keys that a table of the file can have: what is said where one is not known.
    fn keys(table: &str) -> Vec<String> {
        let error = Setup::from_toml(&format!("{table}\nno_such_key = 1\n")).unwrap_err().to_string();
        let (_, expected) = error.split_once("expected").unwrap_or_else(|| panic!("{table}: {error}"));
        expected.split('`').skip(1).step_by(2).map(str::to_owned).collect()
    }

    /// Goal: docs/setup.md names each key there is, in its section, and no other.
    #[test]
    fn every_key_is_documented() {
        let mut known = Vec::new();
        for section in keys("") {
            let is_list = matches!(&*section, "tenant" | "vssd" | "volume" | "subsystem" | "qos_set");
            let table = if is_list { format!("[[{section}]]") } else { format!("[{section}]") };
            for key in keys(&table) {
                match &*key {
                    "levels" => {
                        let levels = keys(&format!("[{section}.levels]")).into_iter();
                        known.extend(levels.map(|level| format!("{section}.levels.{level}")));
                    }
                    "zones" => {
                        let zones = keys(&format!("[[{section}]]\n[{section}.zones]")).into_iter();
                        known.extend(zones.map(|key| format!("{section}.zones.{key}")));
                    }
                    _ => known.push(format!("{section}.{key}")),
                }
            }
        }
        let page = include_str!("../../../docs/setup.md");
        let (mut section, mut documented) = (String::new(), Vec::new());
        for line in page.lines() {
            if let Some(title) = line.strip_prefix("## ") {
                section = title.trim_matches(['[', ']']).to_owned();
            } else if let Some(row) = line.strip_prefix("| `") {
                let cell = row.split(" |").next().unwrap();
                let names = cell.split([',', '`']).map(str::trim).filter(|name| !name.is_empty());
                documented.extend(names.map(|name| format!("{section}.{name}")));
            }
        }
        known.sort();
        documented.sort();
        // Kinds of devices share some.
        documented.dedup();
        assert_eq!(documented, known);
    }

    /// QoS sets are read, and a member is declared, and in one set.
    #[test]
    fn qos_sets_are_read_and_checked() {
        let with = |sets: &str| Setup::from_toml(&format!("{EXAMPLE}\n{sets}"));
        let one = "[[qos_set]]\nname = \"a\"\nrate = \"5000 commands\"\n";
        let setup = with(&format!("{one}vssds = [\"alpha-flash\"]")).unwrap();
        assert_eq!(setup.qos_sets[0].rate, Amount::Commands(5000));
        for (sets, words) in [
            (format!("{one}volumes = [\"beta\"]"), ["qos_set", "beta"]),
            (
                format!("{one}vssds = [\"alpha-flash\"]\nvolumes = [\"alpha-disk\"]"),
                ["\"alpha-disk\"", "already"],
            ),
            (format!("{one}\n{one}"), ["qos_set", "a"]),
            (format!("{one}bucket = \"1 MiB\""), ["bucket counts bytes", "same unit"]),
            (one.replace("5000 commands", "fast"), ["fast", "5000 commands"]),
        ] {
            let error = with(&sets).unwrap_err().to_string();
            assert!(words.iter().all(|word| error.contains(word)), "{error}");
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        let dangling = EXAMPLE.replace("vssd = \"alpha-flash\"", "vssd = \"beta-flash\"");
        let error = Setup::from_toml(&dangling).unwrap_err().to_string();
        assert!(error.contains("alpha-disk") && error.contains("beta-flash"), "{error}");
        let unknown = EXAMPLE.replace("isolation", "isolated");
        let error = Setup::from_toml(&unknown).unwrap_err().to_string();
        assert!(error.contains("isolated"), "{error}");
        let twice = format!("{EXAMPLE}\n[[tenant]]\nname = \"alpha\"\n");
        assert!(Setup::from_toml(&twice).unwrap_err().to_string().contains("twice"));
        for (from, to, words) in [
            (
                "volume = \"alpha-disk\" }",
                "volume = \"alpha-disk\" }, { nsid = 2, volume = \"alpha-disk\" }",
                "namespaces 1 and 2",
            ),
            ("nqn.2026-11.org.diecut:alpha", "nqn.2014-08.org.nvmexpress.discovery", "name of discovery"),
            ("capacity = \"1 MiB\"", "capacity = \"1 MiB\"\nuid = 1000", "uid 1000"),
        ] {
            let wrong = EXAMPLE.replace(from, to);
            assert_ne!(wrong, EXAMPLE);
            let error = Setup::from_toml(&wrong).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }
}
