//! Arrows point one way. The table of ARCHITECTURE.md is drawn from the one below (`cargo xtask reference --write`).

use std::path::{Path, PathBuf};
use std::process::Command;

/// Room and the rooms it may know directly, in the order of the path of one write. Everyone may know `units`;
/// tests (dev-dependencies) may know anyone.
const MAY_KNOW: &[(&str, &[&str])] = &[
    ("units", &[]),
    ("media", &[]),
    ("nvme", &[]),
    ("spec", &[]),
    ("emulator", &["media"]),
    ("drives", &["media"]),
    ("devices", &["media", "nvme", "emulator", "drives"]),
    ("vssd", &["media", "spec"]),
    ("log", &["vssd"]),
    ("volume", &["log", "vssd"]),
    ("zoned", &["vssd"]),
    ("openchannel", &["vssd"]),
    ("namespace", &["volume", "zoned", "openchannel"]),
    ("initiator", &["nvme"]),
    ("remote", &["media", "initiator", "nvme"]),
    ("nvmf", &["namespace", "nvme"]),
    ("catalog", &["media", "spec"]),
    (FOR_TESTS, &["media", "emulator", "vssd", "namespace", "nvmf", "nvme"]),
    ("blockspace", &["media", "spec", "devices", "vssd"]),
    ("abi", &["blockspace"]),
    ("blockfile", &["blockspace", "initiator", "nvme"]),
    ("blockfile-abi", &["blockfile"]),
    ("rocksdb", &["blockfile-abi"]),
    ("leveldb", &["blockfile-abi"]),
    ("sqlite", &["blockfile"]),
    ("vlfs", &["blockfile", "blockspace"]),
    (
        "shard",
        &[
            "media",
            "spec",
            "vssd",
            "volume",
            "zoned",
            "openchannel",
            "namespace",
            "nvmf",
            "catalog",
            "blockspace",
            "nvme",
        ],
    ),
    ("recording", &["media", "devices", "nvme", "shard", "blockspace"]),
    ("reactor", &["media", "devices", "nvme", "remote", "shard", "blockspace"]),
    ("api", &["spec"]),
    ("daemon", &["media", "nvme", "spec", "devices", "remote", "api", "shard", "recording", "reactor"]),
    (
        "sim",
        &[
            "media",
            "nvme",
            "spec",
            "emulator",
            "devices",
            "vssd",
            "log",
            "volume",
            "namespace",
            "initiator",
            "nvmf",
            "catalog",
            "blockspace",
            "shard",
            "recording",
        ],
    ),
    ("load", &["initiator", "nvme"]),
    ("hostile", &["load", "nvme"]),
    ("probe", &["devices"]),
    ("cli", &["spec", "drives", "devices", "remote", "api", "daemon", "sim", "load", "probe"]),
    (
        "bench",
        &[
            "media",
            "nvme",
            "spec",
            "devices",
            "vssd",
            "log",
            "volume",
            "namespace",
            "initiator",
            "nvmf",
            "catalog",
            "blockspace",
            "shard",
            "reactor",
            "load",
        ],
    ),
    ("hosts", &[]),
    ("power", &[]),
    ("bridge", &["initiator", "nvme"]),
];

/// The room that only tests know.
const FOR_TESTS: &str = "testing";

/// Rooms that stand outside and may know more than they do.
const MAY_KNOW_MORE: &[&str] = &["sim", "bench"];

/// Dependencies that no source file names, and why they are declared all the same.
const USED_WITHOUT_A_NAME: &[(&str, &str)] = &[
    ("rocksdb", "diecut-blockfile-abi"), // linked into the C++ plug-in, by its C names
    ("leveldb", "diecut-blockfile-abi"), // the same
    ("xtask", "proc-macro2"),            // for its feature: lines of what syn read
];

/// A room, and the folder that it lies in.
pub struct Package {
    /// Its name, without `diecut-`.
    pub name: String,
    /// Where its manifest lies.
    pub folder: PathBuf,
}

/// All rooms, in the order of the table; what is not in it comes last.
pub fn packages(root: &Path) -> Result<Vec<Package>, Vec<String>> {
    let metadata = metadata(root)?;
    let mut packages: Vec<Package> =
        listed(&metadata).map(|(name, folder, _)| Package { name, folder }).collect();
    let place = |name: &str| MAY_KNOW.iter().position(|(known, _)| *known == name).unwrap_or(usize::MAX);
    packages.sort_by_key(|package| place(&package.name));
    Ok(packages)
}

/// Whom a room may know, as the table of ARCHITECTURE.md says it; nothing for what is no room.
pub fn may_know(room: &str) -> Option<String> {
    let (_, allowed) = MAY_KNOW.iter().find(|(known, _)| *known == room)?;
    Some(match room {
        "sim" => "all but reactor".to_owned(),
        "bench" => "any".to_owned(),
        _ if allowed.is_empty() => "-".to_owned(),
        _ => allowed.join(", "),
    })
}

fn metadata(root: &Path) -> Result<serde_json::Value, Vec<String>> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(root)
        .output()
        .map_err(|error| vec![format!("cargo metadata cannot run: {error}")])?;
    if !output.status.success() {
        return Err(vec![String::from_utf8_lossy(&output.stderr).into_owned()]);
    }
    serde_json::from_slice(&output.stdout).map_err(|error| vec![format!("cargo metadata: {error}")])
}

/// Rooms of the metadata, each with its folder and all that cargo says of it.
fn listed(metadata: &serde_json::Value) -> impl Iterator<Item = (String, PathBuf, &serde_json::Value)> {
    let packages = metadata["packages"].as_array().expect("cargo metadata lists packages");
    packages.iter().map(|package| {
        let name = package["name"].as_str().expect("packages have names");
        let manifest = Path::new(package["manifest_path"].as_str().expect("packages have manifests"));
        let folder = manifest.parent().expect("a manifest lies in a folder").to_owned();
        (name.strip_prefix("diecut-").unwrap_or(name).to_owned(), folder, package)
    })
}

/// Compares the direct dependencies of every crate with the table, and what is declared with what is used.
pub fn check(root: &Path) -> Result<String, Vec<String>> {
    let metadata = metadata(root)?;
    let mut problems = Vec::new();
    let mut arrows = 0;
    for (room, folder, package) in listed(&metadata) {
        let room = room.as_str();
        let text = sources(&folder)?;
        let allowed = MAY_KNOW.iter().find(|(known, _)| *known == room).map(|(_, allowed)| *allowed);
        if allowed.is_none() && room != "xtask" {
            problems.push(format!("{room}: not in the table of rooms; add it to xtask/src/arrows.rs"));
        }
        let mut found = Vec::new();
        for dependency in package["dependencies"].as_array().expect("packages list dependencies") {
            let other = dependency["name"].as_str().expect("dependencies have names");
            if !dependency["kind"].is_null() {
                continue;
            }
            if !names(&text, other) && !USED_WITHOUT_A_NAME.contains(&(room, other)) {
                problems
                    .push(format!("{room}: declares {other} and does not use it; delete it from Cargo.toml"));
            }
            let Some(other) = other.strip_prefix("diecut-") else { continue };
            arrows += 1;
            found.push(other);
            if other == FOR_TESTS {
                problems
                    .push(format!("{room} -> {other}: only tests know it; [dev-dependencies] is its place"));
            } else if other != "units" && !allowed.unwrap_or_default().contains(&other) {
                problems.push(format!("{room} -> {other}: this arrow is not in the table of rooms"));
            }
        }
        if !MAY_KNOW_MORE.contains(&room) {
            let unused = allowed.unwrap_or_default().iter().filter(|other| !found.contains(other));
            problems.extend(
                unused.map(|other| format!("{room} -> {other}: in the table of rooms, not in Cargo.toml")),
            );
        }
        problems.extend(whole_rooms_exported(room, &text));
    }
    if problems.is_empty() { Ok(format!("arrows: {arrows} arrows, all in the table")) } else { Err(problems) }
}

/// All source text of a crate, its examples and build script included, its tests not.
fn sources(folder: &Path) -> Result<String, Vec<String>> {
    let mut text = String::new();
    let mut waiting = vec![folder.join("src"), folder.join("examples"), folder.join("build.rs")];
    while let Some(path) = waiting.pop() {
        let unreadable = |error: std::io::Error| vec![format!("{}: {error}", path.display())];
        if path.is_dir() {
            for entry in std::fs::read_dir(&path).map_err(unreadable)? {
                waiting.push(entry.map_err(unreadable)?.path());
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") && path.exists() {
            text.push_str(&std::fs::read_to_string(&path).map_err(unreadable)?);
        }
    }
    Ok(text)
}

/// Whether the text names a package, in the spelling of code.
fn names(text: &str, package: &str) -> bool {
    let name = package.replace('-', "_");
    let is_part = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    text.match_indices(&name).any(|(start, _)| {
        !is_part(text[..start].chars().next_back()) && !is_part(text[start + name.len()..].chars().next())
    })
}

/// A room that exports another room whole hides an arrow: who uses it through this one is not in the table.
fn whole_rooms_exported(room: &str, text: &str) -> Vec<String> {
    let exports = text.lines().filter_map(|line| line.trim().strip_prefix("pub use diecut_"));
    let whole = exports.filter(|rest| !rest.contains("::") || rest.contains("::*"));
    whole.map(|rest| format!("{room}: exports a whole room: pub use diecut_{rest}")).collect()
}

#[cfg(test)]
mod test {
    use super::{MAY_KNOW, names, whole_rooms_exported};

    #[test]
    fn a_name_is_a_whole_word() {
        assert!(names("use thiserror::Error;", "thiserror"));
        assert!(names("http_body_util::Full", "http-body-util"));
        assert!(!names("let http_body_utility = my_thiserror;", "http-body-util"));
        assert!(!names("my_thiserror", "thiserror"));
    }

    #[test]
    fn exporting_a_room_is_seen_and_exporting_a_word_of_it_is_not() {
        let text = "pub use diecut_emulator as emulator;\npub use diecut_vssd::*;\npub use diecut_vssd::WearConfig;\n";
        assert_eq!(whole_rooms_exported("shard", text).len(), 2);
    }

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
