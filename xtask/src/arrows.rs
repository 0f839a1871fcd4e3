//! Arrows point one way. The table below is the one of ARCHITECTURE.md; a new arrow changes both.

use std::path::Path;
use std::process::Command;

/// Room and the rooms it may know directly, in the order of the path of one write. Everyone may know `units`;
/// tests (dev-dependencies) may know anyone.
const MAY_KNOW: &[(&str, &[&str])] = &[
    ("units", &[]),
    ("media", &[]),
    ("nvme", &[]),
    ("spec", &[]),
    ("emulator", &["media"]),
    ("devices", &["media", "emulator"]),
    ("vssd", &["media", "spec"]),
    ("log", &["vssd"]),
    ("volume", &["log", "vssd"]),
    ("namespace", &["volume"]),
    ("initiator", &["nvme"]),
    ("nvmf", &["namespace", "nvme"]),
    ("catalog", &["media", "spec"]),
    ("blockspace", &["media", "spec", "devices", "vssd"]),
    ("abi", &["blockspace"]),
    ("blockfile", &["blockspace"]),
    ("blockfile-abi", &["blockfile", "blockspace"]),
    ("rocksdb", &["blockfile-abi"]),
    ("leveldb", &["blockfile-abi"]),
    ("sqlite", &["blockfile", "blockspace"]),
    ("vlfs", &["blockfile", "blockspace"]),
    ("shard", &["media", "spec", "vssd", "volume", "namespace", "nvmf", "catalog", "blockspace", "nvme"]),
    ("recording", &["media", "devices", "nvme", "shard", "blockspace"]),
    ("reactor", &["media", "devices", "shard", "blockspace"]),
    ("api", &["spec"]),
    ("daemon", &["spec", "devices", "api", "shard", "recording", "reactor"]),
    (
        "sim",
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
            "recording",
        ],
    ),
    ("load", &["initiator", "nvme"]),
    ("hostile", &["load", "nvme"]),
    ("cli", &["spec", "api", "daemon", "sim", "load"]),
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
];

/// Rooms that stand outside and may know more than they do.
const MAY_KNOW_MORE: &[&str] = &["sim", "bench"];

/// Dependencies that no source file names, and why they are declared all the same.
const USED_WITHOUT_A_NAME: &[(&str, &str)] = &[
    ("rocksdb", "diecut-blockfile-abi"), // linked into the C++ plug-in, by its C names
    ("leveldb", "diecut-blockfile-abi"), // the same
    ("xtask", "proc-macro2"),            // for its feature: lines of what syn read
];

/// Compares the direct dependencies of every crate with the table, the table with that of ARCHITECTURE.md, and what is
/// declared with what is used.
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
        let room = name.strip_prefix("diecut-").unwrap_or(name);
        let manifest = Path::new(package["manifest_path"].as_str().expect("packages have manifests"));
        let text = sources(manifest.parent().expect("a manifest lies in a folder"))?;
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
            if other != "units" && !allowed.unwrap_or_default().contains(&other) {
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
    let page = root.join("ARCHITECTURE.md");
    let page =
        std::fs::read_to_string(&page).map_err(|error| vec![format!("{}: {error}", page.display())])?;
    problems.extend(differences_of_page(&page));
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

/// Rows of the table of rooms in ARCHITECTURE.md that do not say what the table above says.
fn differences_of_page(page: &str) -> Vec<String> {
    let mut problems = Vec::new();
    for (room, allowed) in MAY_KNOW {
        let row = page.lines().find(|line| line.starts_with(&format!("| `{room}`")));
        let Some(row) = row else {
            if *room != "hosts" {
                problems.push(format!("ARCHITECTURE.md: no row for {room} in the table of rooms"));
            }
            continue;
        };
        let known = row.trim_end_matches(['|', ' ']).rsplit('|').next().unwrap_or_default().trim();
        let said = if allowed.is_empty() { "-".to_owned() } else { allowed.join(", ") };
        if known != said && !MAY_KNOW_MORE.contains(room) {
            problems.push(format!(
                "ARCHITECTURE.md: {room} may know \"{known}\"; the table of rooms says \"{said}\""
            ));
        }
    }
    problems
}

#[cfg(test)]
mod test {
    use super::{MAY_KNOW, differences_of_page, names, whole_rooms_exported};

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

    #[test]
    fn a_page_that_says_something_else_is_seen() {
        let row = |(room, allowed): &(&str, &[&str])| {
            let known = if allowed.is_empty() { "-".to_owned() } else { allowed.join(", ") };
            format!("| `{room}` | purpose | {known} |\n")
        };
        let page: String = MAY_KNOW.iter().map(row).collect();
        assert_eq!(differences_of_page(&page), Vec::<String>::new());
        let other = page.replace("| `log` | purpose | vssd |", "| `log` | purpose | media |");
        assert_eq!(differences_of_page(&other).len(), 1);
        assert_eq!(differences_of_page(&page.replace("| `log`", "| `journal`")).len(), 1);
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
