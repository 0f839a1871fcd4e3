//! Subsystems, what they show, and who may connect to them.

use crate::{PathSpec, PathState};
use diecut_units::Shown;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::str::FromStr;

/// A volume shown by a subsystem.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NamespaceSpec {
    /// Namespace identifier within the subsystem, 1 to 1024.
    pub nsid: u32,
    /// Name of the volume.
    pub volume: String,
}

impl NamespaceSpec {
    /// A volume under a number.
    pub fn new(nsid: u32, volume: &str) -> NamespaceSpec {
        NamespaceSpec { nsid, volume: volume.to_owned() }
    }
}

/// `NSID=VOLUME`, as the command line has it.
impl FromStr for NamespaceSpec {
    type Err = String;
    fn from_str(text: &str) -> Result<NamespaceSpec, String> {
        text.split_once('=')
            .and_then(|(nsid, volume)| {
                Some(NamespaceSpec { nsid: nsid.parse().ok()?, volume: volume.to_owned() })
            })
            .ok_or_else(|| format!("`{text}` is not a namespace; write NSID=VOLUME, as in 1=db-disk"))
    }
}

/// An NVMe subsystem: what a host connects to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
#[serde(deny_unknown_fields)]
pub struct SubsystemSpec {
    /// NVMe qualified name, as in `nqn.2026-11.org.example:db`, not that of discovery.
    pub nqn: String,
    /// Tenant it serves.
    #[cfg_attr(feature = "clap", arg(long))]
    pub tenant: String,
    /// Serial number, at most 20 ASCII characters; derived from the NQN if absent.
    #[cfg_attr(feature = "clap", arg(long))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
    /// Model number, at most 40 ASCII characters.
    #[cfg_attr(feature = "clap", arg(long))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Let every host connect.
    #[cfg_attr(feature = "clap", arg(long))]
    #[serde(default)]
    pub allow_any_host: bool,
    /// NQNs of hosts that may connect.
    #[cfg_attr(feature = "clap", arg(long = "host", value_name = "HOSTS"))]
    #[serde(default)]
    pub allowed_hosts: Vec<String>,
    /// Volumes to show, each once: `{ nsid = 1, volume = "NAME" }` in a file, `NSID=VOLUME` on the command line.
    #[cfg_attr(feature = "clap", arg(long = "namespace"))]
    #[serde(default)]
    pub namespaces: Vec<NamespaceSpec>,
    /// Addresses that are no optimized path to it: `{ address = "192.0.2.1:4420", state = "non-optimized" }` in a file, `ADDRESS=STATE` on
    /// the command line.
    #[cfg_attr(feature = "clap", arg(long = "path", value_name = "PATHS"))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<PathSpec>,
}

/// A permission: a host that may connect to a subsystem.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostSpec {
    /// NQN of the host.
    pub nqn: String,
}

/// The name of every discovery subsystem (NVMe Base 2.0, section 4.5): hosts that connect to it mean discovery.
const DISCOVERY_NQN: &str = "nqn.2014-08.org.nvmexpress.discovery";
const SERIAL_LETTERS_MAX: usize = 20;
const MODEL_LETTERS_MAX: usize = 40;

impl SubsystemSpec {
    fn check_paths(&self) -> Result<(), String> {
        let nqn = Shown(&self.nqn);
        for (index, one) in self.paths.iter().enumerate() {
            one.check().map_err(|error| format!("subsystem {nqn}: {error}"))?;
            if self.paths[..index].iter().any(|before| before.address == one.address) {
                let address = one.address;
                return Err(format!("subsystem {nqn}: path {address} is given twice; leave one out"));
            }
        }
        Ok(())
    }

    /// Whether it can be. Whether its NQN is one, and its volumes are its tenant's, is the server's to say.
    ///
    /// # Errors
    /// Names the subsystem, what is wrong, and what to do.
    pub fn check(&self) -> Result<(), String> {
        let nqn = Shown(&self.nqn);
        if self.nqn == DISCOVERY_NQN {
            return Err(format!(
                "subsystem {nqn}: this is the name of discovery, which every server answers itself, so no host would reach the \
                 subsystem; choose another name"
            ));
        }
        self.check_text("serial number", self.serial.as_deref(), SERIAL_LETTERS_MAX)?;
        self.check_text("model number", self.model.as_deref(), MODEL_LETTERS_MAX)?;
        for (index, one) in self.namespaces.iter().enumerate() {
            for before in &self.namespaces[..index] {
                let NamespaceSpec { nsid, volume } = one;
                let volume = Shown(volume);
                if before.nsid == *nsid {
                    return Err(format!(
                        "subsystem {nqn}: namespace {nsid} is given twice; leave one out or renumber it"
                    ));
                }
                if before.volume == one.volume {
                    return Err(format!(
                        "subsystem {nqn}: volume \"{volume}\" is given as namespaces {} and {nsid}; a volume is one namespace of one \
                         subsystem: leave one out",
                        before.nsid
                    ));
                }
            }
        }
        self.check_paths()
    }

    fn check_text(&self, what: &str, text: Option<&str>, longest: usize) -> Result<(), String> {
        let text = text.unwrap_or_default();
        if text.len() <= longest && text.bytes().all(|byte| (0x20..0x7f).contains(&byte)) {
            return Ok(());
        }
        let (nqn, text) = (Shown(&self.nqn), Shown(text));
        Err(format!("subsystem {nqn}: {what} \"{text}\" must be ASCII, at most {longest} letters"))
    }

    /// How good the path over an address is.
    pub fn path_state(&self, address: SocketAddr) -> PathState {
        self.paths.iter().find(|one| one.address == address).map_or(PathState::Optimized, |one| one.state)
    }

    /// Says how good the path over an address is.
    pub fn set_path(&mut self, path: PathSpec) {
        self.paths.retain(|one| one.address != path.address);
        self.paths.push(path);
        self.settle_paths();
    }

    /// Leaves the paths that are not optimized, in the order of their addresses: equal states are equal lists.
    pub fn settle_paths(&mut self) {
        self.paths.retain(|one| one.state != PathState::Optimized);
        self.paths.sort_unstable();
    }

    /// The volume shown under a number.
    pub fn volume(&self, nsid: u32) -> Option<&str> {
        self.namespaces.iter().find(|one| one.nsid == nsid).map(|one| one.volume.as_str())
    }

    /// The number under which a volume is shown.
    pub fn nsid(&self, volume: &str) -> Option<u32> {
        self.namespaces.iter().find(|one| one.volume == volume).map(|one| one.nsid)
    }

    /// Names of the volumes shown.
    pub fn volumes(&self) -> impl Iterator<Item = &String> {
        self.namespaces.iter().map(|one| &one.volume)
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn paths_are_listed_once_each_in_order_without_the_best() {
        let text = r#"{"nqn":"nqn.a","tenant":"t"}"#;
        let mut subsystem: SubsystemSpec = serde_json::from_str(text).unwrap();
        let plain = subsystem.clone();
        let path = |text: &str| text.parse::<PathSpec>().unwrap();
        for text in ["192.0.2.2:1=change", "192.0.2.1:1=inaccessible", "192.0.2.2:1=non-optimized"] {
            subsystem.set_path(path(text));
        }
        let expected = [path("192.0.2.1:1=inaccessible"), path("192.0.2.2:1=non-optimized")];
        assert_eq!(subsystem.paths, expected);
        let state = |text: &str| subsystem.path_state(text.parse().unwrap());
        let states = [state("192.0.2.1:1"), state("192.0.2.2:1"), state("192.0.2.3:1")];
        assert_eq!(states, [PathState::Inaccessible, PathState::NonOptimized, PathState::Optimized]);
        subsystem.set_path(path("192.0.2.1:1=optimized"));
        subsystem.set_path(path("192.0.2.2:1=optimized"));
        assert_eq!(subsystem, plain);
    }

    #[test]
    fn a_subsystem_that_cannot_be_is_refused() {
        let check = |nqn: &str, namespaces: &[(u32, &str)]| {
            let namespaces: Vec<_> = namespaces
                .iter()
                .map(|(nsid, volume)| serde_json::json!({ "nsid": nsid, "volume": volume }))
                .collect();
            let object = serde_json::json!({ "nqn": nqn, "tenant": "t", "namespaces": namespaces });
            serde_json::from_value::<SubsystemSpec>(object).unwrap().check()
        };
        assert_eq!(check("nqn.a", &[(1, "v"), (2, "w")]), Ok(()));
        let error = check("nqn.a", &[(1, "v"), (3, "w"), (2, "v")]).unwrap_err();
        assert!(error.contains("nqn.a: volume \"v\" is given as namespaces 1 and 2"), "{error}");
        let error = check("nqn.a", &[(1, "v"), (1, "w")]).unwrap_err();
        assert!(error.contains("namespace 1 is given twice"), "{error}");
        let error = check("nqn.2014-08.org.nvmexpress.discovery", &[]).unwrap_err();
        assert!(error.contains("name of discovery"), "{error}");
        let twice = r#"{"nqn":"nqn.a","tenant":"t","paths":[{"address":"192.0.2.1:1","state":"change"},
            {"address":"192.0.2.1:1","state":"inaccessible"}]}"#;
        let error = serde_json::from_str::<SubsystemSpec>(twice).unwrap().check().unwrap_err();
        assert!(error.contains("nqn.a: path 192.0.2.1:1 is given twice"), "{error}");
        let serial = r#"{"nqn":"nqn.a","tenant":"t","serial":"012345678901234567890"}"#;
        let error = serde_json::from_str::<SubsystemSpec>(serial).unwrap().check().unwrap_err();
        assert!(error.contains("serial number") && error.contains("at most 20 letters"), "{error}");
    }
}
