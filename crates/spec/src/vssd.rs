//! vSSDs.

use crate::name::check_name;
use crate::size::{Size, perhaps};
use crate::wear::check_rate;
use crate::{Isolation, PlacementIsolation, ReclaimGroups, Serves, Sharing};
use serde::{Deserialize, Serialize};

/// A virtual SSD.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
#[serde(deny_unknown_fields)]
pub struct VssdSpec {
    /// Its name, as of a tenant.
    pub name: String,
    /// Tenant it belongs to.
    #[cfg_attr(feature = "clap", arg(long))]
    pub tenant: String,
    /// What it does not share with its neighbours.
    #[cfg_attr(feature = "clap", arg(long, value_enum))]
    pub isolation: Isolation,
    /// Throughput level. The server's table of levels (`[pool]`) turns it into channels, dies or soft-planes.
    #[cfg_attr(feature = "clap", arg(long, default_value_t = default_throughput_level()))]
    #[serde(default = "default_throughput_level")]
    pub throughput_level: u32,
    /// Erase blocks that it holds at least, as in `64 GiB`; 1 MiB or more.
    #[cfg_attr(feature = "clap", arg(long))]
    pub capacity: Size,
    /// Over-provisioning in thousandths, 1 to 10000: (physical - exported) / exported.
    #[cfg_attr(feature = "clap", arg(long, default_value_t = default_over_provisioning_permille()))]
    #[serde(default = "default_over_provisioning_permille")]
    pub over_provisioning_permille: u32,
    /// Weight among software-isolated vSSDs of the same dies; 200 gets twice the time of 100.
    #[cfg_attr(feature = "clap", arg(long, default_value_t = default_weight()))]
    #[serde(default = "default_weight")]
    pub weight: u32,
    /// Bytes read and programmed on flash per second, the cleaner's included, as in `200 MiB`; 1 MiB or more, or 0 for no limit.
    #[cfg_attr(feature = "clap", arg(long, default_value = "0"))]
    #[serde(default)]
    pub rate_limit: Size,
    /// What happens beyond the limit of its rate.
    #[cfg_attr(feature = "clap", arg(long, value_enum, default_value_t = Sharing::WorkConserving))]
    #[serde(default)]
    pub sharing: Sharing,
    /// What it is for.
    #[cfg_attr(feature = "clap", arg(long = "use", value_enum, default_value_t = Serves::Volumes))]
    #[serde(default, rename = "use")]
    pub serves: Serves,
    /// The user that may attach to its erase blocks, besides root and the server's own; only for a vSSD whose use is blocks.
    #[cfg_attr(feature = "clap", arg(long, value_parser = crate::user::read_uid))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    /// Placement handles, 1 to 16, by which hosts say what of their data belongs together (Flexible Data Placement), or 0 for none; only
    /// for a vSSD whose use is volumes.
    #[cfg_attr(feature = "clap", arg(long, default_value_t = 0))]
    #[serde(default)]
    pub placement_handles: u16,
    /// What the cleaner does with data of different placement handles.
    #[cfg_attr(feature = "clap", arg(long, value_enum, default_value_t = PlacementIsolation::Initial))]
    #[serde(default)]
    pub placement_isolation: PlacementIsolation,
    /// What a reclaim group is: nothing that is written to one is ever moved to another one, and each handle has a reclaim unit in each. Handles
    /// and groups together make 64 at most.
    #[cfg_attr(feature = "clap", arg(long, value_enum, default_value_t = ReclaimGroups::One))]
    #[serde(default, skip_serializing_if = "is_one")]
    pub reclaim_groups: ReclaimGroups,
    /// The device that it lies on, by name, or several, which have a part of it each. Where nothing is said, those of which least was given
    /// away.
    #[cfg_attr(feature = "clap", arg(long, value_delimiter = ',', value_name = "NAME"))]
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "crate::one_or_more")]
    pub device: Vec<String>,
    /// On how many devices it lies: its data go round them, it has its throughput level on each, and without one of them it is away as a whole.
    /// Where nothing is said, as many as `device` names, or one.
    #[cfg_attr(feature = "clap", arg(long))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parts: Option<u16>,
}

/// What was there before there were groups is written as it was.
fn is_one(groups: &ReclaimGroups) -> bool {
    *groups == ReclaimGroups::One
}

/// Level 1 of the server's table.
fn default_throughput_level() -> u32 {
    1
}

/// 28 %, the over-provisioning of conventional write-heavy drives.
fn default_over_provisioning_permille() -> u32 {
    280
}

/// All alike, and like un-isolated ones together; with room below.
fn default_weight() -> u32 {
    100
}

/// No vSSD can be smaller, in bytes: less than a few erase blocks.
const CAPACITY_MIN: Size = Size(1 << 20);
/// A pool has no more devices.
const PARTS_MAX: u16 = 64;
/// More than ten times what volumes can store, in thousandths, is a slip.
const OVER_PROVISIONING_PERMILLE_MAX: u32 = 10_000;

impl VssdSpec {
    /// A vSSD for volumes at throughput level 1, at least 1 MiB large, which shares like any other of its kind and has no
    /// limit. What else it should be is said with `..VssdSpec::new(...)`.
    pub fn new(name: &str, tenant: &str, isolation: Isolation, over_provisioning_permille: u32) -> VssdSpec {
        VssdSpec {
            name: name.to_owned(),
            tenant: tenant.to_owned(),
            isolation,
            throughput_level: default_throughput_level(),
            capacity: CAPACITY_MIN,
            over_provisioning_permille,
            weight: default_weight(),
            rate_limit: Size(0),
            sharing: Sharing::WorkConserving,
            serves: Serves::Volumes,
            uid: None,
            placement_handles: 0,
            placement_isolation: PlacementIsolation::Initial,
            reclaim_groups: ReclaimGroups::One,
            device: Vec::new(),
            parts: None,
        }
    }

    /// What was chosen: fields as files call them, and their values for people, in the same order for all vSSDs.
    pub fn fields(&self) -> Vec<(&'static str, String)> {
        // Without `..`, so that a new field cannot be forgotten.
        let VssdSpec {
            name: _,
            tenant,
            isolation,
            throughput_level,
            capacity,
            over_provisioning_permille,
            weight,
            rate_limit,
            sharing,
            serves,
            uid,
            placement_handles,
            placement_isolation,
            reclaim_groups,
            device,
            parts: _,
        } = self;
        vec![
            ("tenant", tenant.clone()),
            ("isolation", isolation.name().to_owned()),
            ("throughput_level", throughput_level.to_string()),
            ("capacity", capacity.exact()),
            ("over_provisioning_permille", over_provisioning_permille.to_string()),
            ("weight", weight.to_string()),
            ("rate_limit", rate_limit.exact()),
            ("sharing", sharing.name().to_owned()),
            ("use", serves.name().to_owned()),
            ("uid", uid.map_or("absent".to_owned(), |uid| uid.to_string())),
            ("placement_handles", placement_handles.to_string()),
            ("placement_isolation", placement_isolation.name().to_owned()),
            ("reclaim_groups", reclaim_groups.name().to_owned()),
            ("device", if device.is_empty() { "any".to_owned() } else { device.join(",") }),
            ("parts", self.part_count().to_string()),
        ]
    }

    /// On how many devices it lies.
    pub fn part_count(&self) -> usize {
        self.parts.map_or(self.device.len().max(1), usize::from)
    }

    /// The same with what the server chose of another one where this says nothing.
    pub fn or(&self, other: &VssdSpec) -> VssdSpec {
        let (mut device, mut parts) = (self.device.clone(), self.parts);
        if device.is_empty() && self.part_count() == other.part_count() {
            device.clone_from(&other.device);
        }
        if self.part_count() == other.part_count() {
            parts = other.parts;
        }
        VssdSpec { device, parts, ..self.clone() }
    }

    /// Whether it can be; what the device can give is the server's to say.
    ///
    /// # Errors
    /// Names the vSSD, what is wrong, and what to do.
    pub fn check(&self) -> Result<(), String> {
        check_name("vSSD", &self.name)?;
        self.check_parts().map_err(|what| format!("vSSD \"{}\": {what}", self.name))?;
        let what = match self {
            VssdSpec { weight: 0, .. } => "weight 0 would starve it; use 1 or more (100 is usual)",
            VssdSpec { sharing: Sharing::Strict, rate_limit: Size(0), .. } => {
                "strict sharing needs a rate limit; give one, or use work-conserving sharing"
            }
            VssdSpec { isolation: Isolation::None, rate_limit: Size(1..), .. } => {
                "an un-isolated vSSD is served first come first served and can have no rate limit; use software isolation"
            }
            VssdSpec { over_provisioning_permille: 0, .. } => {
                "over-provisioning 0 leaves the cleaner no room; use 1 to 10000 permille (280 is usual)"
            }
            VssdSpec { placement_handles: 17.., .. } => {
                "placement_handles is above 16, the most there is; use 1 to 16, or 0 for none"
            }
            VssdSpec {
                placement_handles: 0, placement_isolation: PlacementIsolation::Persistent, ..
            } => {
                "placement_isolation is about data of placement handles, and it has none; set placement_handles, too"
            }
            _ if self.part_count() > 1 && self.serves != Serves::Volumes => {
                "with parts on several devices it can serve volumes; name one device for another use"
            }
            _ => {
                let of_use = self.serves.refuses(self.isolation, self.placement_handles);
                match of_use.or_else(|| self.reclaim_groups.refuses(self.isolation, self.placement_handles)) {
                    None => return Ok(()),
                    Some(what) => what,
                }
            }
        };
        Err(format!("vSSD \"{}\": {what}", self.name))
    }

    fn check_parts(&self) -> Result<(), String> {
        let named = self.device.len();
        if let Some(parts) = self.parts
            && (!(1..=PARTS_MAX).contains(&parts) || named > 0 && usize::from(parts) != named)
        {
            return Err(match named {
                0 => format!("parts is {parts}; use 1 to {PARTS_MAX}, one on each device that it lies on"),
                _ => format!(
                    "parts is {parts}, and device names {named}: leave parts out, or name as many devices"
                ),
            });
        }
        let mut names: Vec<&String> = self.device.iter().collect();
        names.sort_unstable();
        match names.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(format!("device names \"{}\" twice; it has one part on a device", pair[0])),
            None => Ok(()),
        }
    }

    /// Whether its numbers can be meant.
    ///
    /// # Errors
    /// Names the vSSD, the value, and what to write.
    pub fn check_slips(&self) -> Result<(), String> {
        let (name, serves) = (&self.name, self.serves.name());
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
        if let (Some(uid), Serves::Volumes | Serves::Zones | Serves::OpenChannel) = (self.uid, self.serves) {
            return Err(format!(
                "vSSD \"{name}\": uid {uid} is who may attach to erase blocks, and this vSSD is for {serves}: leave it out, or make it \
                 for blocks (use = \"blocks\" in a set-up file, --use blocks on the command line)"
            ));
        }
        check_rate("a rate limit", self.rate_limit).map_err(|error| format!("vSSD \"{name}\": {error}"))
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::test::says;

    fn vssd(capacity: u64, rate_limit: u64, permille: u32) -> Result<(), String> {
        let text = format!(
            r#"{{"name":"a","tenant":"b","isolation":"die","capacity":{capacity},"rate_limit":{rate_limit},
                "over_provisioning_permille":{permille}}}"#
        );
        serde_json::from_str::<VssdSpec>(&text).unwrap().check_slips()
    }

    /// `--capacity 32` once took a channel for 32 bytes, and 200 bytes a second held a server up for hours.
    #[test]
    fn numbers_that_cannot_be_meant_are_refused_with_what_may_be_meant() {
        assert_eq!(vssd(1 << 20, 0, 280), Ok(()));
        assert_eq!(vssd(1 << 20, 1 << 20, 10_000), Ok(()));
        says(vssd(32, 0, 280), &["vSSD \"a\"", "32 bytes", "write 32G"]);
        says(vssd((1 << 20) - 1, 0, 280), &["1048575 bytes", "below 1 MiB"]);
        says(vssd(1 << 20, 200, 280), &["vSSD \"a\"", "200 bytes a second", "write 200M"]);
        says(vssd(1 << 20, 0, u32::MAX), &["4294967295", "10000 or less"]);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let good = VssdSpec::new("a", "t", Isolation::Software, 280);
        assert_eq!((good.check(), good.check_slips()), (Ok(()), Ok(())));
        says(VssdSpec { weight: 0, ..good.clone() }.check(), &["vSSD \"a\": weight 0"]);
        says(VssdSpec { sharing: Sharing::Strict, ..good.clone() }.check(), &["needs a rate limit"]);
        let limited = VssdSpec { isolation: Isolation::None, rate_limit: Size(7), ..good.clone() };
        says(limited.check(), &["can have no rate limit"]);
        let shared = VssdSpec { serves: Serves::OpenChannel, ..good.clone() };
        says(shared.check(), &["vSSD \"a\"", "use channel or die isolation"]);
        assert_eq!(VssdSpec { isolation: Isolation::Die, ..shared }.check(), Ok(()));
        says(VssdSpec { over_provisioning_permille: 0, ..good.clone() }.check(), &["over-provisioning 0"]);
        for name in ["", "a b", "-a", ".", "a/b", &"x".repeat(65)] {
            says(VssdSpec { name: name.to_owned(), ..good.clone() }.check(), &["vSSD name"]);
        }
        let placed = |placement_handles| VssdSpec { placement_handles, ..good.clone() };
        assert_eq!((placed(1).check(), placed(16).check()), (Ok(()), Ok(())));
        says(placed(17).check(), &["vSSD \"a\": placement_handles is above 16"]);
        for serves in [Serves::Zones, Serves::Blocks, Serves::OpenChannel] {
            let other = VssdSpec { serves, isolation: Isolation::Die, ..placed(2) };
            says(other.check(), &["placement_handles are for a vSSD"]);
        }
        let alone = VssdSpec { placement_isolation: PlacementIsolation::Persistent, ..good.clone() };
        says(alone.check(), &["placement_isolation is about", "set placement_handles"]);
        assert_eq!(VssdSpec { placement_handles: 2, ..alone }.check(), Ok(()));
        let grouped = |reclaim_groups, isolation, placement_handles| {
            VssdSpec { reclaim_groups, isolation, placement_handles, ..good.clone() }.check()
        };
        says(grouped(ReclaimGroups::Die, Isolation::Die, 0), &["reclaim_groups", "set placement_handles"]);
        says(grouped(ReclaimGroups::Die, Isolation::Software, 2), &["it shares dies"]);
        says(grouped(ReclaimGroups::Channel, Isolation::Die, 2), &["it has dies alone"]);
        assert_eq!(grouped(ReclaimGroups::Die, Isolation::Die, 2), Ok(()));
        assert_eq!(grouped(ReclaimGroups::Channel, Isolation::Channel, 2), Ok(()));
        says(VssdSpec { uid: Some(7), ..good }.check_slips(), &["uid 7"]);
    }
}
