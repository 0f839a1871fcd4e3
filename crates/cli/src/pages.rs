//! Commands in the pages of the tree are commands that this program takes.
//!
//! Goal: an option that is renamed, or a command that loses an argument, fails here and not at a reader's keyboard. Method: every
//! `diecut ...` and `diecut-sim ...` of a page, indented or in backticks, goes through the parser that `main` uses.

use clap::error::ErrorKind;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// How a command line of a page begins, and what the parser is given in its place.
const STARTS: &[(&str, &str)] = &[
    ("diecut ", ""),
    ("target/release/diecut ", ""),
    ("cargo run --release -p diecut-cli -- ", ""),
    ("diecut-sim ", "sim "),
    ("cargo run --release -p diecut-sim -- ", "sim "),
];

/// Options that pages name alone and that are of other programs: `diecut-bench`, the load for SQLite, `db_bench`, vLFS.
const OF_OTHERS: &[&str] =
    &["checked", "in-place", "rollback", "num", "allow-other", "slower", "level", "fio", "drive-folder"];

/// A command line of a page.
struct Found {
    page: PathBuf,
    text: String,
    /// In backticks a command may lack what it needs: it is spoken of, not run.
    is_in_prose: bool,
}

fn pages() -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files = vec![root.join("README.md"), root.join("ARCHITECTURE.md"), root.join("CONTRIBUTING.md")];
    let mut folders = vec![root.join("docs"), root.join("tests")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                files.push(path);
            }
        }
    }
    files.into_iter().map(|file| (file.clone(), std::fs::read_to_string(&file).unwrap())).collect()
}

/// What stands in backticks, also where it goes on over the end of a line.
fn quoted(text: &str) -> Vec<String> {
    let prose: String =
        text.lines().filter(|line| !line.starts_with("    ")).map(|line| format!("{line} ")).collect();
    prose.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

fn commands() -> Vec<Found> {
    let mut found = Vec::new();
    for (page, text) in pages() {
        let mut add = |line: &str, is_in_prose: bool| {
            let start = STARTS.iter().find(|(start, _)| line.starts_with(start));
            if let Some((start, instead)) = start {
                let text = format!("diecut {instead}{}", &line[start.len()..]);
                found.push(Found { page: page.clone(), text, is_in_prose });
            }
        };
        for line in text.lines().filter_map(|line| line.strip_prefix("    ")) {
            add(line.trim_start_matches("sudo "), false);
        }
        for line in quoted(&text) {
            add(&line, true);
        }
    }
    found
}

/// The words of a command line as a shell takes it apart, up to what belongs to the shell. Words in capitals (`NAME`, `N`) stand for
/// something of the reader's; a 1 is good for each of them.
fn words(line: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    for c in line.chars().chain([' ']) {
        match (quote, c) {
            (Some(end), c) if c == end => quote = None,
            (None, '"' | '\'') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, ' ') => words.extend(word.take()),
            (_, c) => word.get_or_insert_default().push(c),
        }
    }
    let end = words
        .iter()
        .position(|word| matches!(word.as_str(), "|" | "&" | "&&" | "||" | ">" | "2>" | "#" | ";"));
    words.truncate(end.unwrap_or(words.len()));
    let stands_for = |word: &String| word.chars().all(|c| c.is_ascii_uppercase());
    words.into_iter().map(|word| if stands_for(&word) { "1".to_owned() } else { word }).collect()
}

/// What the parser has against a command line.
fn objection(found: &Found) -> Option<String> {
    let error = crate::command_line().try_get_matches_from(words(&found.text)).err()?;
    let is_fine = match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => true,
        ErrorKind::MissingRequiredArgument
        | ErrorKind::MissingSubcommand
        | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => found.is_in_prose,
        _ => false,
    };
    let first = error.to_string().lines().next().unwrap_or_default().to_owned();
    (!is_fine).then(|| format!("{}: {}: {first}", found.page.display(), found.text))
}

#[test]
fn commands_of_pages_are_taken() {
    let commands = commands();
    assert!(commands.len() > 30, "only {} commands were found", commands.len());
    let problems: Vec<String> = commands.iter().filter_map(objection).collect();
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn a_command_that_is_gone_is_found() {
    let found =
        |text: &str, is_in_prose| Found { page: PathBuf::from("p.md"), text: text.to_owned(), is_in_prose };
    assert_eq!(objection(&found("diecut status --live 2 | head", false)), None);
    assert_eq!(objection(&found("diecut vssd repair", true)), None);
    assert!(objection(&found("diecut vssd repair", false)).is_some());
    assert!(objection(&found("diecut status --alive", true)).is_some());
    assert!(objection(&found("diecut state", true)).is_some());
    assert_eq!(words("diecut a --size \"64 GiB\" N 'b c'"), ["diecut", "a", "--size", "64 GiB", "1", "b c"]);
}

/// Long options of a command and of all below it.
fn options(command: &clap::Command, into: &mut BTreeSet<String>) {
    into.extend(command.get_arguments().filter_map(|arg| arg.get_long()).map(str::to_owned));
    for below in command.get_subcommands() {
        options(below, into);
    }
}

#[test]
fn options_of_pages_exist() {
    let mut known = BTreeSet::from(["help".to_owned(), "version".to_owned()]);
    options(&crate::command_line(), &mut known);
    let mut problems = Vec::new();
    // Pages of the tests speak of their own options.
    for (page, text) in pages().into_iter().filter(|(page, _)| !page.iter().any(|folder| folder == "tests")) {
        for quoted in quoted(&text) {
            // Options of other programs stand behind their names.
            if !quoted.starts_with("--") {
                continue;
            }
            let option = quoted[2..].split([' ', '=', '`']).next().unwrap_or_default();
            if !known.contains(option) && !OF_OTHERS.contains(&option) {
                problems.push(format!("{}: there is no option --{option}", page.display()));
            }
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}
