//! Programs of the rooms below, whose figures belong into the same table.

use super::row::{Row, Target};
use crate::counted::{self, valgrind};
use std::path::PathBuf;
use std::process::Command;

/// Operations, and the arguments for so many of them.
type Counted = (u64, fn(u64) -> Vec<String>);

/// A program whose line of results is taken over.
pub(crate) struct Child {
    pub(crate) id: &'static str,
    pub(crate) what: &'static str,
    /// Package and example.
    example: [&'static str; 2],
    /// What it is called with.
    arguments: &'static [&'static str],
    /// The line begins with this, and a number follows.
    line: &'static str,
    unit: &'static str,
    target: Option<Target>,
    /// Takes many minutes: runs only when it is asked for by name.
    pub(crate) takes_long: bool,
    /// Operations of the shorter run under valgrind, and how the program is called for so many of them.
    counted: Option<Counted>,
    /// How the counted program differs from the measured one.
    counted_note: &'static str,
}

pub(crate) const CHILDREN: [Child; 5] = [
    Child {
        id: "e",
        what: "volume engine alone (without what stands in for flash), 256 GiB map, 28 % over-provisioning, random 4 KiB writes after two overwrites",
        example: ["diecut-bench", "engine"],
        arguments: &[],
        line: "measured: ",
        unit: "M/s",
        target: Some(Target::AtLeast(3.0)),
        takes_long: false,
        // Map of 1 GiB, no cuts, erase blocks in proportion.
        counted: Some((200_000, |writes| {
            ["1", "280", "0", "16"].map(String::from).into_iter().chain([writes.to_string()]).collect()
        })),
        counted_note: "; instructions with a map of 1 GiB",
    },
    Child {
        id: "f",
        what: "simulated die commands with bus phases, 64 dies busy",
        example: ["diecut-bench", "die_commands"],
        arguments: &[],
        line: "",
        unit: "M/s",
        target: Some(Target::AtLeast(8.0)),
        takes_long: false,
        counted: Some((200_000, |commands| vec![commands.to_string()])),
        counted_note: "",
    },
    Child {
        id: "g",
        what: "restart after a cut under random overwrites, 1 TiB mapped, until a read and a write are served: worst of 20, processor time",
        example: ["diecut-bench", "engine"],
        arguments: &["1024", "280", "20", "1024", "1000000"],
        line: "restart after 20 cuts until a read and a write are served: worst ",
        unit: "s",
        target: Some(Target::AtMost(4.0)),
        takes_long: true,
        counted: None,
        counted_note: "",
    },
    Child {
        id: "j QD64",
        what: "steady random 4 KiB writes of a full volume, 64 under way, TLC, one channel, virtual time: p99.9 over the mean by Little's law",
        example: ["diecut-sim", "steady_writes"],
        arguments: &["64"],
        line: "p99.9 over the mean by Little's law: ",
        unit: "times",
        target: Some(Target::AtMost(3.0)),
        takes_long: false,
        counted: None,
        counted_note: "",
    },
    Child {
        id: "j QD1",
        what: "the same, one under way: p99.9",
        example: ["diecut-sim", "steady_writes"],
        arguments: &["1"],
        line: "p99.9: ",
        unit: "us",
        target: None,
        takes_long: false,
        counted: None,
        counted_note: "",
    },
];

impl Child {
    /// Beside this program, where cargo puts examples.
    fn path(&self) -> Option<PathBuf> {
        let path = std::env::current_exe().ok()?.parent()?.join("examples").join(self.example[1]);
        path.exists().then_some(path)
    }

    /// Instructions per operation.
    pub(crate) fn count(&self, row: &mut Row) -> Result<(), valgrind::Error> {
        let Some((operations, arguments)) = self.counted else { return Ok(()) };
        let path = self.path().expect("it was just run");
        row.instructions_counted = Some(counted::rows::of_program(&path, operations, arguments)?);
        row.note += self.counted_note;
        Ok(())
    }

    pub(crate) fn run(&self) -> Result<Row, Box<dyn std::error::Error + Send + Sync>> {
        let [package, example] = self.example;
        let path = self.path().ok_or_else(|| {
            format!(
                "the example {example} is not built: cargo build --release -p {package} --example {example}"
            )
        })?;
        let output = Command::new(path).args(self.arguments).output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        if !output.status.success() {
            return Err(format!("{example} failed: {}", String::from_utf8_lossy(&output.stderr)).into());
        }
        let line = text.lines().find_map(|line| line.strip_prefix(self.line));
        let line = line.ok_or_else(|| format!("{example} printed no line \"{}..\"", self.line))?;
        let (number, rest) = line.split_once(' ').unwrap_or((line, ""));
        let value: f64 = number.parse().map_err(|_| format!("{example} printed \"{line}\""))?;
        let mut row = Row::absolute(self.id, self.what, self.unit, value);
        row.target = self.target;
        row.note = rest
            .trim_start_matches("us, ")
            .trim_start_matches("with ")
            .trim_start_matches("M writes/s, ")
            .trim_start_matches("million ")
            .to_owned();
        row.note += &peak_memory(&text);
        Ok(row)
    }
}

/// What the program says of its memory, if it does.
fn peak_memory(text: &str) -> String {
    let line = text.lines().find_map(|line| line.strip_prefix("peak memory VmHWM:"));
    line.map_or(String::new(), |memory| format!("; peak memory {}", memory.trim()))
}

#[cfg(test)]
mod test {
    use super::*;

    /// The examples are asked for by name: both are there.
    #[test]
    fn children_exist_in_the_tree() {
        let crates = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        for child in &CHILDREN {
            let [package, example] = child.example;
            let room = package.trim_start_matches("diecut-");
            let examples = crates.join(room).join("examples");
            let sources = [examples.join(format!("{example}.rs")), examples.join(example).join("main.rs")];
            assert!(sources.iter().any(|source| source.exists()), "{example}");
        }
    }
}
