//! Whose instructions they are: callgrind's profile, by room.
//!
//! A profile has a line for each source line that a function has instructions of, also of what was inlined into it, with the file that it
//! stands in. A room is a crate of this tree by the place of the file. What the standard library has inlined into a room's function is that room's:
//! it asked for it.

use std::collections::{BTreeMap, HashMap};

/// Instructions of each room. `std` is the standard library where it was called, `libc` the C library (copies), others are
/// crates of others, by name.
pub(crate) type ByRoom = BTreeMap<String, u64>;

/// Files that tell where the time of a command went: what dies did lately, slow commands, the latency monitor.
const EXPLAINING: [&str; 4] =
    ["vssd/src/dies/history.rs", "shard/src/delays.rs", "nvmf/src/ocp/monitor.rs", "nvmf/src/facts.rs"];

/// Whose instructions a program has.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Profile {
    /// All of them.
    pub by_room: ByRoom,
    /// Those of the files that tell where time went, which are part of their rooms.
    pub explaining: u64,
}

/// What a file is part of.
enum Part {
    Room(String),
    Other(String),
    StandardLibrary,
    Unknown,
}

fn part_of(path: &str) -> Part {
    let after = |mark: &str| Some(path.split_once(mark)?.1.split('/').next()?.to_owned());
    if path.contains("/registry/src/") || path.contains("/vendor/") {
        let mut parts = path.split("/src/").nth(1).unwrap_or_default().split('/').skip(1);
        let name = parts.next().unwrap_or("a crate");
        // The version goes.
        return Part::Other(name.rsplit_once('-').map_or(name, |(name, _)| name).to_owned());
    }
    if path.starts_with("/rustc/") || path.contains("/library/") {
        return Part::StandardLibrary;
    }
    let rooted = format!("/{path}");
    let room = ["/crates/", "/apps/"].iter().find_map(|mark| {
        let (_, rest) = rooted.split_once(mark)?;
        rest.split_once("/src/").map(|(room, _)| room.to_owned())
    });
    match room.or_else(|| after("/examples/")) {
        Some(room) => Part::Room(room),
        None => Part::Unknown,
    }
}

/// Reads a profile in callgrind's format (Callgrind Format Specification, "Basic Structure" and "Name compression").
pub(crate) fn of_profile(text: &str) -> Profile {
    let (mut counts, mut explaining) = (ByRoom::new(), 0);
    let (mut files, mut objects) = (Names::default(), Names::default());
    let (mut object, mut room) = (String::new(), String::new());
    let (mut is_call, mut is_explaining) = (false, false);
    for line in text.lines() {
        let Some(first) = line.bytes().next() else { continue };
        if first.is_ascii_digit() || matches!(first, b'+' | b'-' | b'*') {
            // The line after a call has what was called and what that took: it is counted where it stands.
            if !std::mem::take(&mut is_call)
                && let Some(count) = line.split(' ').nth(1).and_then(|count| count.parse::<u64>().ok())
            {
                *counts.entry(room.clone()).or_default() += count;
                explaining += if is_explaining { count } else { 0 };
            }
            continue;
        }
        let Some((key, value)) = line.split_once('=') else { continue };
        match key {
            "calls" => is_call = true,
            "ob" => object = objects.name(value).rsplit('/').next().unwrap_or_default().to_owned(),
            "cob" => drop(objects.name(value)),
            "cfi" | "cfl" => drop(files.name(value)),
            // A function begins; `fi` and `fe` are what was inlined, and the function again.
            "fl" | "fi" | "fe" => {
                let path = files.name(value);
                let part = part_of(&path);
                // What the standard library has inlined stays with who asked for it.
                if key == "fl" || !matches!(part, Part::StandardLibrary) {
                    is_explaining = EXPLAINING.iter().any(|file| path.ends_with(file));
                }
                match part {
                    Part::Room(name) | Part::Other(name) => room = name,
                    Part::StandardLibrary if key == "fl" => room = "std".to_owned(),
                    Part::StandardLibrary => {}
                    Part::Unknown if object.starts_with("libc") => room = "libc".to_owned(),
                    Part::Unknown => room = "unknown".to_owned(),
                }
            }
            _ => {}
        }
    }
    assert!(!is_call, "a call is followed by what it took: the profile is whole");
    Profile { by_room: counts, explaining }
}

/// Names are written once, with a number, and are that number afterwards: `(7) name`, then `(7)`.
#[derive(Default)]
struct Names(HashMap<String, String>);

impl Names {
    fn name(&mut self, value: &str) -> String {
        let Some((number, name)) = value.split_once(')') else { return value.to_owned() };
        let name = name.trim_start();
        if name.is_empty() {
            return self.0.get(number).cloned().unwrap_or_default();
        }
        self.0.insert(number.to_owned(), name.to_owned());
        name.to_owned()
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn instructions_are_counted_where_they_stand() {
        let profile = "events: Ir\n\nob=(1) /a/diecut-bench\nfl=(1) /w/crates/shard/src/drive.rs\nfn=(1) work\n10 5\n\
            fi=(2) /rustc/abc/library/core/src/option.rs\n+3 7\nfi=(3) /w/crates/units/src/slab.rs\n* 11\nfe=(1)\n12 1\n\
            cfi=(4) ./string/memcpy.S\ncob=(2) /lib/libc.so.6\ncfn=(9) memcpy\ncalls=3 77\n13 300\n14 2\n\n\
            ob=(2)\nfl=(4)\nfn=(9)\n77 300\n\nob=(1)\nfl=(2)\nfn=(3) alloc\n1 20\n\n\
            fl=(5) /home/x/.cargo/registry/src/index.crates.io-1/crc-fast-1.10.0/src/lib.rs\nfn=(4) checksum\n1 50\n\
            \nfl=(6) crates/nvmf/src/wire.rs\nfn=(5) run\n-4 9\n\
            fi=(7) crates/shard/src/delays.rs\n+4 3\nfi=(2)\n+1 1\nfe=(6)\n+1 8\ntotals: 417\n";
        let Profile { by_room, explaining } = of_profile(profile);
        let expected =
            [("crc-fast", 50), ("libc", 300), ("nvmf", 17), ("shard", 19), ("std", 20), ("units", 11)];
        assert_eq!(explaining, 4);
        assert_eq!(by_room, expected.into_iter().map(|(room, count)| (room.to_owned(), count)).collect());
    }
}
