//! Text files are ASCII, documents link to what exists, nothing is left half-said, and files that grow past
//! what one noun needs are named.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::book;
use crate::pages::{self, Code, Targets};

/// A file longer than this usually hides a second noun. A hint, not a wall.
const LINES_HINT: usize = 800;

/// Endings of files that people read.
const TEXT: &[&str] = &["rs", "toml", "md", "sh", "yml", "cc", "cpp", "hpp", "h", "c"];

/// Endings of sources, whose names pages may use.
const SOURCES: &[&str] = &["rs", "cc", "cpp", "hpp", "h", "c"];

pub fn check(root: &Path) -> Result<String, Vec<String>> {
    let output = Command::new("git")
        .args(["ls-files", "-co", "--exclude-standard"])
        .current_dir(root)
        .output()
        .map_err(|error| vec![format!("git cannot run: {error}")])?;
    let files = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut problems = Vec::new();
    let mut count = 0;
    let mut code = Code::default();
    let (mut pages, mut sources) = (Vec::new(), Vec::new());
    for name in files.lines().filter(|name| root.join(name).is_file()) {
        code.add_path(name);
        let path = root.join(name);
        let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or("");
        if !TEXT.contains(&extension) {
            continue;
        }
        count += 1;
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) => {
                problems.push(format!("{name}: {error}"));
                continue;
            }
        };
        for (number, line) in text.lines().enumerate() {
            for rule in line_problems(line, extension) {
                problems.push(format!("{name}:{}: {rule}", number + 1));
            }
        }
        if extension == "rs" && text.lines().count() > LINES_HINT {
            eprintln!("hint: {name} has {} lines; which noun is hiding there?", text.lines().count());
        }
        if SOURCES.contains(&extension) {
            code.add(name, &text);
        } else if extension != "md" {
            code.add_words(&text);
            if name.ends_with("Cargo.toml") {
                code.add_manifest(&text);
            }
        }
        if extension == "rs" {
            problems.extend(sleeps_of_tests(name, &text));
        }
        problems.extend(dead_paths(name, &text, root));
        if extension == "md" {
            let folder = path.parent().expect("files lie in folders");
            problems.extend(broken_links(name, &text, folder));
            pages.push((name.to_owned(), text));
        } else if SOURCES.contains(&extension) {
            sources.push((name.to_owned(), text));
        }
    }
    problems.extend(untrue_pages(root, &pages, &code)?);
    for (name, text) in &sources {
        problems.extend(pages::unknown_names_of_comments(name, text, &code));
    }
    if let Err(stale) = crate::reference::check(root) {
        problems.extend(stale);
    }
    match crate::planted::check(root) {
        Ok(summary) => println!("{summary}"),
        Err(more) => problems.extend(more),
    }
    if problems.is_empty() { Ok(format!("tidy: {count} files")) } else { Err(problems) }
}

/// What pages say that is not so in the tree.
fn untrue_pages(root: &Path, pages: &[(String, String)], code: &Code) -> Result<Vec<String>, Vec<String>> {
    let makefile =
        std::fs::read_to_string(root.join("Makefile")).map_err(|error| vec![format!("Makefile: {error}")])?;
    let targets = Targets::new(&makefile, crate::USAGE);
    let mut problems = pages::unmatched_invariants(pages, code);
    for (name, text) in pages {
        // What was once is told there, in the words of its time.
        if name == "CHANGELOG.md" {
            continue;
        }
        problems.extend(pages::unknown_names(name, text, code));
        problems.extend(pages::unknown_targets(name, text, &targets));
        problems.extend(pages::unknown_programs(name, text, code));
        problems.extend(pages::figures_without_command(name, text));
        if name.starts_with("docs/format/") && !name.ends_with("README.md") {
            let source = |path: &str| std::fs::read_to_string(root.join(path)).ok();
            problems.extend(pages::drifted_tables(name, text, source));
        }
        if name == PROMISES {
            problems.extend(missing_tests(text, code));
        }
        if name == book::SUMMARY {
            let names: Vec<&str> = pages.iter().map(|(name, _)| name.as_str()).collect();
            problems.extend(book::unlisted(text, &names));
        }
    }
    Ok(problems)
}

fn line_problems(line: &str, extension: &str) -> Vec<&'static str> {
    let mut rules = Vec::new();
    if !line.is_ascii() {
        rules.push("not ASCII");
    }
    if line.ends_with(' ') || line.contains('\t') && extension == "rs" {
        rules.push("space at the end, or a tab");
    }
    // Spelled in two parts, so that this file does not object to itself.
    if [concat!("TO", "DO"), concat!("FIX", "ME")].iter().any(|word| line.contains(word)) {
        rules.push("a note to self: do it, or say it in the section of limits");
    }
    // Who clones the tree must find what it cites: papers and specifications are in docs/sources.md.
    if [concat!("FAC", "TS"), concat!("DES", "IGN"), concat!("FIND", "INGS")]
        .iter()
        .any(|word| line.contains(word))
    {
        rules.push("a page that is not in the tree; cite docs/sources.md");
    }
    rules
}

/// Where tests may sleep: what they wait for is said to it.
const WAITS: &str = "crates/testing/src/wait.rs";

/// Sleeps in tests. A fixed time is too short on a busy machine, and proves nothing on an idle one.
fn sleeps_of_tests(name: &str, text: &str) -> Vec<String> {
    let is_of_room = name.starts_with("crates/") || name.starts_with("apps/");
    let is_test = name.contains("/tests/") || name.ends_with("/test.rs");
    if !is_of_room || name == WAITS {
        return Vec::new();
    }
    let tests_from = match is_test {
        true => 0,
        false => text.lines().position(|line| line.trim() == "#[cfg(test)]").unwrap_or(usize::MAX),
    };
    // Spelled in two parts, so that this file does not object to itself.
    let calls = [concat!("thread::sle", "ep("), concat!("time::sle", "ep("), concat!("park_", "timeout(")];
    let found = text.lines().enumerate().skip(tests_from);
    let found = found.filter(|(_, line)| calls.iter().any(|call| line.contains(call)));
    found
        .map(|(at, _)| format!("{name}:{}: a test sleeps; let it wait for what is to come ({WAITS})", at + 1))
        .collect()
}

/// The page that names the test of each promise.
const PROMISES: &str = "docs/promises.md";

/// Rows of the page of promises whose tests do not exist, or that name none.
fn missing_tests(page: &str, code: &Code) -> Vec<String> {
    let mut problems = Vec::new();
    for (number, line) in page.lines().enumerate() {
        if !line.starts_with("| ") || line.starts_with("| promise") {
            continue;
        }
        let is_name =
            |word: &&str| word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
        let names: Vec<&str> = line.split('`').skip(1).step_by(2).filter(is_name).collect();
        if names.is_empty() {
            problems.push(format!("{PROMISES}:{}: a promise without a test", number + 1));
        }
        let missing = names.iter().filter(|name| !code.has_function(name));
        problems.extend(missing.map(|name| format!("{PROMISES}:{}: there is no test {name}", number + 1)));
    }
    problems
}

/// Folders whose files are named in comments and pages by their path from the root.
const FOLDERS: &[&str] =
    &["crates/", "apps/", "docs/", "tests/", "scripts/", "setups/", "xtask/", "fuzz/src/"];

/// Paths in backticks that lead nowhere, seen from the root or from the folder of the crate.
fn dead_paths(name: &str, text: &str, root: &Path) -> Vec<String> {
    let mut problems = Vec::new();
    let crate_folder = name.split('/').take(2).collect::<Vec<_>>().join("/");
    for (number, line) in text.lines().enumerate() {
        if name.ends_with(".rs") && !line.trim_start().starts_with("//") {
            continue;
        }
        for quoted in line.split('`').skip(1).step_by(2) {
            let path = quoted.split([' ', ':', '#']).next().unwrap_or_default();
            let is_path = FOLDERS.iter().any(|folder| path.starts_with(folder));
            let has_hole = path.contains(['*', '<', '{', '$']) || path.contains("NNNN");
            if !is_path
                || has_hole
                || root.join(path).exists()
                || root.join(&crate_folder).join(path).exists()
            {
                continue;
            }
            problems.push(format!("{name}:{}: `{path}` does not exist", number + 1));
        }
    }
    problems
}

/// What a page links to, as it stands there.
pub fn links(text: &str) -> impl Iterator<Item = &str> {
    text.match_indices("](").filter_map(|(at, found)| {
        let rest = &text[at + found.len()..];
        rest.split_once(')').map(|(target, _)| target)
    })
}

fn broken_links(name: &str, text: &str, folder: &Path) -> Vec<String> {
    let mut problems = Vec::new();
    for target in links(text) {
        if target.contains("://") {
            continue;
        }
        let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
        let path: PathBuf = folder.join(file);
        if !file.is_empty() && !path.exists() {
            problems.push(format!("{name}: the link to {target} leads nowhere"));
        } else if !anchor.is_empty() {
            let other =
                if file.is_empty() { Some(text.to_owned()) } else { std::fs::read_to_string(&path).ok() };
            if !other.is_some_and(|other| headings(&other).any(|heading| heading == anchor)) {
                problems.push(format!("{name}: the link to {target} leads to no heading"));
            }
        }
    }
    problems
}

/// Headings of a page, as links spell them.
fn headings(text: &str) -> impl Iterator<Item = String> {
    text.lines().filter(|line| line.starts_with('#')).map(|line| {
        let words = line.trim_start_matches('#').trim().to_lowercase();
        let kept = words.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    })
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn rules_fire() {
        assert_eq!(line_problems("caf\u{e9}", "md"), ["not ASCII"]);
        assert_eq!(line_problems("let a = 1; ", "rs").len(), 1);
        assert_eq!(line_problems(concat!("// TO", "DO later"), "rs").len(), 1);
        assert_eq!(line_problems(concat!("// (FAC", "TS 1.6)"), "rs").len(), 1);
        assert!(line_problems("plain text", "md").is_empty());
    }

    #[test]
    fn a_test_that_sleeps_is_found() {
        let line = concat!("    std::thread::sle", "ep(span);\n");
        assert_eq!(sleeps_of_tests("crates/cli/tests/a.rs", line).len(), 1);
        assert_eq!(sleeps_of_tests("apps/vlfs/src/b/test.rs", line).len(), 1);
        assert_eq!(sleeps_of_tests("crates/cli/src/a.rs", &format!("{line}#[cfg(test)]\n{line}")).len(), 1);
        assert!(sleeps_of_tests("crates/cli/src/a.rs", line).is_empty());
        assert!(sleeps_of_tests(WAITS, line).is_empty());
    }

    #[test]
    fn a_path_to_nothing_is_found() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the tree");
        let lines = "see `xtask/src/tidy.rs`, `src/tidy.rs` and `crates/*/src`\nnot `xtask/src/missing.rs`";
        assert_eq!(dead_paths("a.md", lines, root), ["a.md:2: `xtask/src/missing.rs` does not exist"]);
        assert_eq!(dead_paths("a.rs", "let a = b; // no\n/// `docs/missing.md` says", root).len(), 1);
        assert!(dead_paths("crates/nvmf/src/lib.rs", "//! `tests/memory.rs`", root).is_empty());
    }

    #[test]
    fn a_promise_needs_a_test_that_exists() {
        let mut code = Code::default();
        code.add("a.rs", "    fn it_holds() {\npub async fn it_holds_7(a: u8) {\n");
        let page = "| promise | tests |\n|---|---|\n| a | `it_holds`, `it_holds_7`; `diecut demo` |\n| b | `it_fails` |\n| c | - |\n";
        assert_eq!(
            missing_tests(page, &code),
            ["docs/promises.md:4: there is no test it_fails", "docs/promises.md:5: a promise without a test"]
        );
    }

    #[test]
    fn a_link_to_nothing_is_found() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
        let page = "# A part, of it\n[x](Cargo.toml) [y](#a-part-of-it) [z](https://a.b#c)";
        assert_eq!(broken_links("a.md", page, folder), Vec::<String>::new());
        assert_eq!(
            broken_links("a.md", "[y](#part)", folder),
            ["a.md: the link to #part leads to no heading"]
        );
        assert_eq!(broken_links("a.md", "[x](missing.md)", folder).len(), 1);
    }
}
