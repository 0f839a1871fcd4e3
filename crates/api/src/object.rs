//! Objects an administrator creates. Names are unique per kind; a subsystem is named by its NQN.

use crate::size::Size;
use diecut_spec::{Isolation, Sharing};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// What changes of even wear; what is absent stays as it is. It survives restarts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct WearChange {
    /// Begin no further pair of erase blocks, or go on.
    pub paused: Option<bool>,
    /// Bytes that exchanges may copy per second; 0: no limit.
    pub rate: Option<Size>,
    /// How many erases a channel with hot content may be ahead of the least worn quiet one (with the
    /// literal rule: what it erased since it moved); 0: none is ever swapped.
    pub channel_threshold_erases: Option<u64>,
    /// The same of a die, where vSSDs hold single dies.
    pub die_threshold_erases: Option<u64>,
    /// Thresholds that are not 0 follow the device's age instead: small at first and towards its end. Where this was never said
    /// they do, unless a threshold above 0 was.
    pub follow_age: Option<bool>,
    /// Cycles of an erase block, for thresholds that follow the age; the profile's if it was never said.
    pub endurance_cycles: Option<u32>,
    /// How far the most worn part may be ahead of the average, in thousandths, for the same; 100 if it was never said.
    pub delta_permille: Option<u32>,
    /// The literal rule of the FlashBlox paper instead of ours.
    pub literal_rule: Option<bool>,
}

/// A tenant: the owner of vSSDs and subsystems.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tenant {
    /// Its name.
    pub name: String,
}

/// Where a tenant is to live.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Home {
    /// The shard of the server, from 0.
    pub shard: u16,
}

/// What a repair of a vSSD may do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Repair {
    /// The vSSD is to take writes also where something was lost: reads of that fail until it is written or deallocated, and where
    /// records were lost, older data may show.
    pub accept_loss: bool,
}

/// A virtual SSD.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Vssd {
    /// Its name.
    pub name: String,
    /// The tenant it belongs to.
    pub tenant: String,
    /// How it is kept apart.
    pub isolation: Isolation,
    /// Throughput level: the server's level table turns it into channels, dies or soft-planes.
    #[serde(default = "default_throughput_level")]
    pub throughput_level: u32,
    /// Bytes of erase blocks it holds at least.
    pub capacity: Size,
    /// Over-provisioning in parts per thousand of what volumes can store:
    /// OP = (physical - exported) / exported.
    #[serde(default = "default_over_provisioning_permille")]
    pub over_provisioning_permille: u32,
    /// Weight among software-isolated vSSDs of the same dies: where they compete, a die's time is split by it.
    #[serde(default = "default_weight")]
    pub weight: u32,
    /// Bytes read and programmed on flash per second, the cleaner's included; 0 for no limit.
    #[serde(default)]
    pub rate_limit: Size,
    /// What happens beyond the rate limit.
    #[serde(default)]
    pub sharing: Sharing,
    /// What it is for.
    #[serde(default, rename = "use")]
    pub serves: Use,
    /// With `use = "blocks"`: the user that may attach, besides root and the server's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
}

/// What a vSSD is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Use {
    /// Volumes live on it.
    #[default]
    Volumes,
    /// An application uses its erase blocks, through the socket for blocks.
    Blocks,
}

/// No vSSD can be smaller, in bytes: less than a few erase blocks.
pub const CAPACITY_MIN: Size = Size(1 << 20);
/// No limit in bytes per second can be lower: a command of a host and what the cleaner does for it would take seconds.
pub const RATE_MIN: Size = Size(1 << 20);
/// No volume can be smaller, in bytes: one block of a host.
pub const VOLUME_SIZE_MIN: Size = Size(4096);
/// More than ten times what volumes can store, in thousandths, is a slip.
pub const OVER_PROVISIONING_PERMILLE_MAX: u32 = 10_000;

/// What somebody may have meant who left the unit out.
fn perhaps(size: Size, unit: &str) -> String {
    let number = size.bytes();
    if (1..1024).contains(&number) {
        format!("; a number without a unit is bytes: if you mean {number} {unit}iB, write {number}{unit}")
    } else {
        String::new()
    }
}

fn check_rate(what: &str, rate: Size) -> Result<(), String> {
    if rate == Size(0) || rate >= RATE_MIN {
        return Ok(());
    }
    Err(format!(
        "{what} of {} a second is below {RATE_MIN}, the least that makes sense{}; 0 is no limit",
        rate.exact(),
        perhaps(rate, "M")
    ))
}

impl Vssd {
    /// Whether its numbers can be meant; what the device can give is the server's to say.
    ///
    /// # Errors
    /// Names the vSSD, the value, and what to write.
    pub fn check(&self) -> Result<(), String> {
        let name = &self.name;
        if self.capacity < CAPACITY_MIN {
            return Err(format!(
                "vSSD \"{name}\": a capacity of {} is below {CAPACITY_MIN}, the least there is{}",
                self.capacity.exact(),
                perhaps(self.capacity, "G")
            ));
        }
        if self.over_provisioning_permille > OVER_PROVISIONING_PERMILLE_MAX {
            return Err(format!(
                "vSSD \"{name}\": over-provisioning of {} thousandths; use {OVER_PROVISIONING_PERMILLE_MAX} or less (280 is 28 %)",
                self.over_provisioning_permille
            ));
        }
        if let (Some(uid), Use::Volumes) = (self.uid, self.serves) {
            return Err(format!(
                "vSSD \"{name}\": uid {uid} is who may attach to erase blocks, and this vSSD is for volumes: leave it out, or make it \
                 for blocks (use = \"blocks\" in a set-up file, --use blocks on the command line)"
            ));
        }
        check_rate("a rate limit", self.rate_limit).map_err(|error| format!("vSSD \"{name}\": {error}"))
    }
}

/// The name of every discovery subsystem (NVMe Base 2.0, section 4.5): hosts that connect to it mean discovery.
const DISCOVERY_NQN: &str = "nqn.2014-08.org.nvmexpress.discovery";

impl Subsystem {
    /// Whether it can be meant; whether its volumes are its tenant's is the server's to say.
    ///
    /// # Errors
    /// Names the subsystem, what is wrong, and what to do.
    pub fn check(&self) -> Result<(), String> {
        let nqn = &self.nqn;
        if nqn == DISCOVERY_NQN {
            return Err(format!(
                "subsystem {nqn}: this is the name of discovery, which every server answers itself, so no host would reach the \
                 subsystem; choose another name"
            ));
        }
        for (index, one) in self.namespaces.iter().enumerate() {
            for before in &self.namespaces[..index] {
                let Namespace { nsid, volume } = one;
                if before.nsid == *nsid {
                    return Err(format!(
                        "subsystem {nqn}: namespace {nsid} is given twice; leave one out or renumber it"
                    ));
                }
                if before.volume == *volume {
                    return Err(format!(
                        "subsystem {nqn}: volume \"{volume}\" is given as namespaces {} and {nsid}; a volume is one namespace of one \
                         subsystem: leave one out",
                        before.nsid
                    ));
                }
            }
        }
        Ok(())
    }
}

impl Volume {
    /// Whether its size can be meant; what the vSSD can give is the server's to say.
    ///
    /// # Errors
    /// Names the volume, the value, and what to write.
    pub fn check(&self) -> Result<(), String> {
        let (name, size) = (&self.name, self.size.exact());
        if self.size >= VOLUME_SIZE_MIN {
            let over_bytes = self.size.bytes() % VOLUME_SIZE_MIN.bytes();
            if over_bytes == 0 {
                return Ok(());
            }
            let below = Size(self.size.bytes() - over_bytes);
            let near = |size: Size| format!("{} bytes ({})", size.bytes(), size.exact());
            let above = below.bytes().checked_add(VOLUME_SIZE_MIN.bytes());
            let above = above.map_or(String::new(), |above| format!(" or {}", near(Size(above))));
            return Err(format!(
                "volume \"{name}\": a size of {} bytes is no multiple of 4096 bytes; the nearest are {}{above}",
                self.size.bytes(),
                near(below)
            ));
        }
        Err(format!(
            "volume \"{name}\": a size of {size} is below {VOLUME_SIZE_MIN}, the least there is{}",
            perhaps(self.size, "G")
        ))
    }
}

impl WearChange {
    /// Whether its numbers can be meant.
    ///
    /// # Errors
    /// Names the value and what to write.
    pub fn check(&self) -> Result<(), String> {
        let rate = self.rate.unwrap_or_default();
        check_rate("a rate", rate).map_err(|error| format!("even wear: {error}"))
    }
}

/// Level 1 of the server's table.
pub fn default_throughput_level() -> u32 {
    1
}

/// 28 %, the over-provisioning of conventional write-heavy drives.
pub fn default_over_provisioning_permille() -> u32 {
    280
}

/// All alike, and like un-isolated ones together; with room below.
pub fn default_weight() -> u32 {
    100
}

/// A volume: what a namespace shows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Volume {
    /// Its name.
    pub name: String,
    /// The vSSD it lives on.
    pub vssd: String,
    /// Size a host sees; a multiple of 4096 bytes.
    pub size: Size,
    /// UUID of the namespace; made by the server if absent, and kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uuid: Option<Uuid>,
    /// NGUID of the namespace as 32 hexadecimal digits; made by the server if absent, and kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nguid: Option<Nguid>,
}

/// A volume shown by a subsystem.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Namespace {
    /// Namespace identifier within the subsystem, 1 or more.
    pub nsid: u32,
    /// Name of the volume.
    pub volume: String,
}

/// An NVMe subsystem: what a host connects to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Subsystem {
    /// NVMe qualified name.
    pub nqn: String,
    /// The tenant it serves.
    pub tenant: String,
    /// Serial number, at most 20 ASCII characters; derived from the NQN if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
    /// Model number, at most 40 ASCII characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Every host may connect.
    #[serde(default)]
    pub allow_any_host: bool,
    /// NQNs of hosts that may connect.
    #[serde(default)]
    pub allowed_hosts: Vec<String>,
    /// Volumes it shows.
    #[serde(default)]
    pub namespaces: Vec<Namespace>,
}

/// A permission: a host that may connect to a subsystem.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Host {
    /// NQN of the host.
    pub nqn: String,
}

/// A namespace globally unique identifier: 32 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Nguid(pub [u8; 16]);

impl std::str::FromStr for Nguid {
    type Err = String;
    fn from_str(text: &str) -> Result<Nguid, String> {
        u128::from_str_radix(text, 16)
            .ok()
            .filter(|_| text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit()))
            .map(|number| Nguid(number.to_be_bytes()))
            .ok_or_else(|| format!("`{text}` is not an NGUID; write 32 hexadecimal digits"))
    }
}

impl std::fmt::Display for Nguid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl Serialize for Nguid {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Nguid {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Nguid, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn an_nguid_is_32_digits_and_nothing_else() {
        let text = "0123456789abcdef0123456789abcdef";
        assert_eq!(text.parse::<Nguid>().unwrap().to_string(), text);
        for bad in ["", "0123", "+123456789abcdef0123456789abcdef", "g123456789abcdef0123456789abcdef"] {
            assert!(bad.parse::<Nguid>().is_err(), "{bad}");
        }
    }

    fn vssd(capacity: u64, rate_limit: u64, permille: u32) -> Result<(), String> {
        let text = format!(
            r#"{{"name":"a","tenant":"b","isolation":"die","capacity":{capacity},"rate_limit":{rate_limit},
                "over_provisioning_permille":{permille}}}"#
        );
        serde_json::from_str::<Vssd>(&text).unwrap().check()
    }

    /// `--capacity 32` once took a channel for 32 bytes, and 200 bytes a second held a server up for hours.
    #[test]
    fn numbers_that_cannot_be_meant_are_refused_with_what_may_be_meant() {
        assert_eq!(vssd(1 << 20, 0, 280), Ok(()));
        assert_eq!(vssd(1 << 20, 1 << 20, 10_000), Ok(()));
        let says = |outcome: Result<(), String>, words: &[&str]| {
            let error = outcome.unwrap_err();
            assert!(words.iter().all(|word| error.contains(word)), "{error}");
        };
        says(vssd(32, 0, 280), &["vSSD \"a\"", "32 bytes", "write 32G"]);
        says(vssd((1 << 20) - 1, 0, 280), &["1048575 bytes", "below 1 MiB"]);
        says(vssd(1 << 20, 200, 280), &["vSSD \"a\"", "200 bytes a second", "write 200M"]);
        says(vssd(1 << 20, 0, u32::MAX), &["4294967295", "10000 or less"]);
        let volume =
            |size| Volume { name: "v".into(), vssd: "a".into(), size: Size(size), uuid: None, nguid: None };
        assert_eq!(volume(4096).check(), Ok(()));
        says(volume(16).check(), &["volume \"v\"", "write 16G"]);
        says(volume(10_000).check(), &["10000 bytes", "8192 bytes (8 KiB) or 12288 bytes (12 KiB)"]);
        says(volume(u64::MAX).check(), &["no multiple of 4096"]);
        let wear = |rate| WearChange { rate: Some(Size(rate)), ..WearChange::default() };
        assert_eq!(
            (wear(0).check(), wear(1 << 20).check(), WearChange::default().check()),
            (Ok(()), Ok(()), Ok(()))
        );
        says(wear(80).check(), &["even wear", "80 bytes", "write 80M"]);
    }

    #[test]
    fn a_subsystem_that_cannot_be_meant_is_refused() {
        let check = |nqn: &str, namespaces: &[(u32, &str)]| {
            let namespaces: Vec<_> = namespaces
                .iter()
                .map(|(nsid, volume)| serde_json::json!({ "nsid": nsid, "volume": volume }))
                .collect();
            let object = serde_json::json!({ "nqn": nqn, "tenant": "t", "namespaces": namespaces });
            serde_json::from_value::<Subsystem>(object).unwrap().check()
        };
        assert_eq!(check("nqn.a", &[(1, "v"), (2, "w")]), Ok(()));
        let error = check("nqn.a", &[(1, "v"), (3, "w"), (2, "v")]).unwrap_err();
        assert!(error.contains("nqn.a: volume \"v\" is given as namespaces 1 and 2"), "{error}");
        let error = check("nqn.a", &[(1, "v"), (1, "w")]).unwrap_err();
        assert!(error.contains("namespace 1 is given twice"), "{error}");
        let error = check("nqn.2014-08.org.nvmexpress.discovery", &[]).unwrap_err();
        assert!(error.contains("name of discovery"), "{error}");
    }

    #[test]
    fn unknown_fields_are_named() {
        let error =
            serde_json::from_str::<Volume>(r#"{"name":"a","vssd":"b","size":"1 GiB","sise":1}"#).unwrap_err();
        assert!(error.to_string().contains("sise"), "{error}");
    }
}
