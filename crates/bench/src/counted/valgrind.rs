//! Counting the instructions of a program.

use super::rooms::{self, Profile};
use std::io;
use std::path::Path;
use std::process::Command;

/// Why instructions cannot be counted.
#[derive(Debug)]
pub enum Error {
    /// The machine has no valgrind, or it cannot be started.
    Missing(io::Error),
    /// The program, or valgrind, failed; the end of what it said.
    Failed(String),
    /// Valgrind counted, but its report has another form.
    Report(String),
}

impl std::fmt::Display for Error {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Error::Missing(error) => {
                write!(formatter, "valgrind cannot be started ({error}); install the package valgrind")
            }
            Error::Failed(said) => write!(formatter, "valgrind or what it ran failed: {said}"),
            Error::Report(said) => write!(formatter, "valgrind reports no count of instructions: {said}"),
        }
    }
}

/// Instructions of a program in user space, by room: all of them, or only those within functions whose names match, with what they
/// call.
pub(crate) fn instructions(
    program: &Path,
    arguments: &[String],
    functions: Option<&str>,
) -> Result<Profile, Error> {
    let profile = tempfile::NamedTempFile::new().map_err(Error::Missing)?;
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", &format!("--callgrind-out-file={}", profile.path().display())]);
    if let Some(functions) = functions {
        command.args(["--collect-atstart=no".to_owned(), format!("--toggle-collect={functions}")]);
    }
    // Valgrind counts each byte that `rep movsb` copies as an instruction: long copies are made with vectors instead.
    let tunables = ["movsb", "stosb"].map(|which| format!("glibc.cpu.x86_rep_{which}_threshold=0x7fffffff"));
    command.env("GLIBC_TUNABLES", tunables.join(":"));
    let output = command.arg(program).args(arguments).output().map_err(Error::Missing)?;
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        let lines: Vec<&str> = said.lines().rev().take(5).collect();
        return Err(Error::Failed(lines.into_iter().rev().collect::<Vec<_>>().join("; ")));
    }
    let total = collected(&said);
    let total = total.ok_or_else(|| Error::Report(said.lines().last().unwrap_or("nothing").to_owned()))?;
    let text = std::fs::read_to_string(profile.path()).map_err(Error::Missing)?;
    let profile = rooms::of_profile(&text);
    let sum: u64 = profile.by_room.values().sum();
    if sum == total {
        Ok(profile)
    } else {
        Err(Error::Report(format!("its profile has {sum} instructions, and it says that there were {total}")))
    }
}

/// The count in callgrind's report.
fn collected(report: &str) -> Option<u64> {
    let line = report.lines().find_map(|line| line.split_once("Collected :"))?;
    line.1.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn the_count_is_found_in_the_report() {
        let report =
            "==7== Events    : Ir\n==7== Collected : 991181683\n==7== \n==7== I   refs:      991,181,683\n";
        assert_eq!(collected(report), Some(991_181_683));
        assert_eq!(collected("==7== no such line"), None);
    }
}
