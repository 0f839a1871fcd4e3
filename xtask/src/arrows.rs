//! Arrows point one way. The table below is the one of ARCHITECTURE.md; a new arrow changes both.

use std::path::Path;
use std::process::Command;

/// Room and the rooms it may know directly, in the order of the path of one write. Everyone may know `units`;
/// tests (dev-dependencies) may know anyone.
const MAY_KNOW: &[(&str, &[&str])] = &[
    ("units", &[]),
    ("media", &[]),
    ("nvme", &[]),
    ("emulator", &["media"]),
    ("vssd", &["media"]),
    ("log", &["vssd"]),
    ("volume", &["log", "vssd"]),
    ("namespace", &["volume", "log", "vssd"]),
    ("initiator", &["nvme"]),
    ("target", &["namespace", "nvme"]),
    ("catalog", &["media"]),
    ("blockspace", &["media", "emulator", "vssd"]),
    ("abi", &["blockspace"]),
    ("blockfile", &["blockspace"]),
    ("blockfile-abi", &["blockfile", "blockspace"]),
    ("rocksdb", &["blockfile-abi"]),
    ("leveldb", &["blockfile-abi"]),
    ("sqlite", &["blockfile", "blockspace"]),
    ("vlfs", &["blockfile", "blockspace"]),
    (
        "shard",
        &[
            "media",
            "emulator",
            "vssd",
            "log",
            "volume",
            "namespace",
            "target",
            "catalog",
            "blockspace",
            "nvme",
        ],
    ),
    ("recording", &["media", "nvme", "shard", "blockspace"]),
    ("reactor", &["shard", "blockspace"]),
    ("api", &[]),
    ("daemon", &["api", "shard", "recording", "reactor"]),
    (
        "sim",
        &[
            "media",
            "nvme",
            "emulator",
            "vssd",
            "log",
            "volume",
            "namespace",
            "initiator",
            "target",
            "catalog",
            "blockspace",
            "shard",
            "recording",
        ],
    ),
    ("load", &["initiator", "nvme"]),
    ("hostile", &["load", "nvme"]),
    ("cli", &["api", "daemon", "sim", "initiator", "load"]),
    (
        "bench",
        &[
            "media",
            "nvme",
            "emulator",
            "vssd",
            "log",
            "volume",
            "namespace",
            "initiator",
            "target",
            "catalog",
            "blockspace",
            "shard",
            "reactor",
            "load",
        ],
    ),
    ("hosts", &[]),
];

/// Compares the direct dependencies of every crate with the table.
pub fn check(root: &Path) -> Result<String, Vec<String>> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(root)
        .output()
        .map_err(|error| vec![format!("cargo metadata cannot run: {error}")])?;
    if !output.status.success() {
        return Err(vec![String::from_utf8_lossy(&output.stderr).into_owned()]);
    }
    let metadata: serde_json::Value =
        serde_json::from_slice(&output.stdout).map_err(|error| vec![format!("cargo metadata: {error}")])?;
    let mut problems = Vec::new();
    let mut arrows = 0;
    let packages = metadata["packages"].as_array().expect("cargo metadata lists packages");
    for package in packages {
        let name = package["name"].as_str().expect("packages have names");
        let Some(room) = name.strip_prefix("diecut-") else { continue };
        let Some((_, allowed)) = MAY_KNOW.iter().find(|(known, _)| *known == room) else {
            problems.push(format!("{room}: not in the table of rooms; add it to xtask/src/arrows.rs"));
            continue;
        };
        for dependency in package["dependencies"].as_array().expect("packages list dependencies") {
            let other = dependency["name"].as_str().expect("dependencies have names");
            let Some(other) = other.strip_prefix("diecut-") else { continue };
            if dependency["kind"].as_str() == Some("dev") {
                continue;
            }
            arrows += 1;
            if other != "units" && !allowed.contains(&other) {
                problems.push(format!("{room} -> {other}: this arrow is not in the table of rooms"));
            }
        }
    }
    if problems.is_empty() { Ok(format!("arrows: {arrows} arrows, all in the table")) } else { Err(problems) }
}

#[cfg(test)]
mod test {
    use super::MAY_KNOW;

    /// What shows up later in the flow is never known by what comes before; `hosts` and `bench` stand outside.
    #[test]
    fn the_table_has_no_cycle() {
        let position = |room: &str| MAY_KNOW.iter().position(|(known, _)| *known == room);
        for (index, (room, allowed)) in MAY_KNOW.iter().enumerate() {
            for other in *allowed {
                let other_index =
                    position(other).unwrap_or_else(|| panic!("{room} may know unknown {other}"));
                assert!(other_index < index, "{room} may know {other}, which comes later");
            }
        }
    }
}
