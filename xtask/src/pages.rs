//! What pages say must be true of the tree: names in backticks exist, so do targets of make and words of `cargo xtask`, tables of
//! measured figures name the command that made them, and the numbers of invariants are the same in docs/invariants/ and in the code.

use std::collections::{BTreeMap, BTreeSet};

/// Where the invariants of each room are listed.
const INVARIANTS: &str = "docs/invariants/";

/// Names that sources define or use, and where invariants are cited.
#[derive(Default)]
pub struct Code {
    /// Files by the words in them that are no comment; only what a name can consist of.
    words: BTreeMap<String, BTreeSet<usize>>,
    /// Names of functions.
    functions: BTreeSet<String>,
    /// Paths of all files of the tree.
    paths: BTreeSet<String>,
    /// Names of packages and of their programs, those of tests among them.
    packages: BTreeSet<String>,
    /// Numbers of invariants that are cited, with the first file of each.
    cited: BTreeMap<String, String>,
    files: usize,
}

impl Code {
    /// Takes up the path of a file.
    pub fn add_path(&mut self, name: &str) {
        self.paths.insert(name.to_owned());
    }

    /// Takes up the manifest of a package.
    pub fn add_manifest(&mut self, text: &str) {
        let names = text.lines().filter_map(|line| line.strip_prefix("name = \""));
        self.packages.extend(names.map(|name| name.trim_end_matches('"').to_owned()));
    }

    /// Takes up a file whose words are names: a manifest, a script, a source in another language.
    pub fn add_words(&mut self, text: &str) {
        self.files += 1;
        for word in text.lines().flat_map(words) {
            self.words.entry(word.to_owned()).or_default().insert(self.files);
        }
    }

    /// Takes up a source file.
    pub fn add(&mut self, name: &str, text: &str) {
        self.files += 1;
        // The checks' own tests speak of invariants that nobody has.
        let is_own = name.starts_with("xtask/");
        for line in text.lines() {
            if !is_own {
                for number in invariants_of(line) {
                    self.cited.entry(number.to_owned()).or_insert_with(|| name.to_owned());
                }
            }
            if line.trim_start().starts_with("//") || is_own && line.contains('"') {
                continue;
            }
            for word in words(line) {
                self.words.entry(word.to_owned()).or_default().insert(self.files);
            }
        }
        self.functions.extend(functions_of(text).map(str::to_owned));
    }

    /// Whether sources define a function of this name.
    pub fn has_function(&self, name: &str) -> bool {
        self.functions.contains(name)
    }

    /// Whether a file of the tree has this name, or a path that ends with it.
    fn has_file(&self, name: &str) -> bool {
        self.paths.iter().any(|path| {
            path.strip_suffix(name).is_some_and(|before| before.is_empty() || before.ends_with('/'))
        })
    }

    /// Whether all parts of a path stand in one file.
    fn has_path(&self, parts: &[&str]) -> bool {
        let mut common: Option<BTreeSet<usize>> = None;
        for part in parts {
            let Some(files) = self.words.get(*part) else { return false };
            common = Some(common.map_or_else(|| files.clone(), |common| &common & files));
        }
        common.is_some_and(|common| !common.is_empty())
    }
}

/// Names of the functions that a source file defines.
fn functions_of(text: &str) -> impl Iterator<Item = &str> {
    let after_fn = text.lines().filter_map(|line| line.split_once("fn ").map(|(_, rest)| rest));
    after_fn.map(|rest| rest.split(|c: char| !is_of_a_name(c)).next().unwrap_or_default())
}

fn is_of_a_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| !is_of_a_name(c)).filter(|word| !word.is_empty())
}

/// Names that pages and comments give and that are of others: Linux, the C library, specifications, papers, other programs.
const OF_OTHERS: &[&str] = &[
    "AllocVirtualSSD",
    "MakeRoomForWrite",
    "SEEK_HOLE",
    "chrt",
    "db/db_impl.cc",
    "db_impl.cc",
    "default_permissions",
    "drivers/nvme/host/fabrics.c",
    "drivers/nvme/target/configfs.c",
    "fdatasync",
    "lib/nvmf/subsystem.c",
    "nodev",
    "nosuid",
    "nvmf_nqn_is_valid",
    "nvmf_parse_options",
    "posix_fallocate",
    "pread",
    "pwrite",
    "s_i",
    "sensors",
    "st_mode",
    "syncfs",
    "tputToChannel",
    "tputToDie",
    "tputToSoftPlane",
    "tools/db_crashtest.py",
    "writev",
];

/// Files that a command of the pages makes, and that are not in the tree.
const MADE: &[&str] = &["diecut-repro/swap-period.svg", "set-up.toml"];

/// Endings of files that pages and comments name.
const FILES: &[&str] = &["rs", "toml", "md", "sh", "h", "hpp", "cc", "c", "svg", "py"];

/// Names of a page in backticks that look like names of the code and are none.
///
/// A path (`Media::discard`) needs a source file in which its last two parts stand; a call (`check()`) a function of that name; a
/// file (`table.rs`) one of that name in the tree; a word (`SwapRule`, `unsafe_units`) or the last part of a key (`device.pacing`) a place where
/// it is used.
pub fn unknown_names(page: &str, text: &str, code: &Code) -> Vec<String> {
    unknown(page, text.lines().enumerate(), code)
}

/// The same of the comments of a source file. What stands between fences is code of its own.
pub fn unknown_names_of_comments(name: &str, text: &str, code: &Code) -> Vec<String> {
    let mut is_fenced = false;
    let comments = text.lines().enumerate().filter(|(_, line)| {
        let is_comment = line.trim_start().starts_with("//");
        let is_fence = is_comment && line.contains("```");
        is_fenced ^= is_fence;
        is_comment && !is_fenced && !is_fence
    });
    unknown(name, comments.collect::<Vec<_>>().into_iter(), code)
}

fn unknown<'a>(name: &str, lines: impl Iterator<Item = (usize, &'a str)>, code: &Code) -> Vec<String> {
    let mut problems = Vec::new();
    for (number, line) in lines {
        for quoted in line.split('`').skip(1).step_by(2) {
            if !is_known(quoted, code) {
                problems.push(format!("{name}:{}: there is no `{quoted}` in the code", number + 1));
            }
        }
    }
    problems
}

/// Whether what stands in backticks is no name, or one that is there.
fn is_known(quoted: &str, code: &Code) -> bool {
    if OF_OTHERS.contains(&quoted) || MADE.contains(&quoted) {
        return true;
    }
    let is_of_a_path = |c: char| is_of_a_name(c) || matches!(c, '.' | '/' | '-');
    let ending = quoted.rsplit_once('.').map_or("", |(_, ending)| ending);
    if FILES.contains(&ending) && quoted.chars().all(is_of_a_path) {
        return quoted.starts_with('.') || code.has_file(quoted);
    }
    let is_name = |part: &&str| !part.is_empty() && part.chars().all(is_of_a_name);
    if let Some((table, key)) = quoted.split_once('.') {
        let keys: Vec<&str> = key.split('.').collect();
        let is_key = TABLES.contains(&table) && keys.iter().all(is_name);
        return !is_key || keys.last().is_some_and(|key| code.has_path(&[key]));
    }
    let bare = quoted.strip_suffix("()").unwrap_or(quoted);
    let parts: Vec<&str> = bare.split("::").collect();
    if !parts.iter().all(is_name) || bare.starts_with(|c: char| c.is_ascii_digit()) {
        return true;
    }
    match parts.as_slice() {
        // Letters that stand for a number, or for something of the reader's.
        [word] if bare == quoted => {
            word.len() == 1 || word.chars().all(|c| c.is_ascii_uppercase()) || code.has_path(&[word])
        }
        [call] => code.has_function(call),
        [.., whole, part] => code.has_path(&[whole, part]) || code.has_path(&[part]) && is_room(whole),
        [] => true,
    }
}

/// Tables of the set-up file, as keys are named with them.
const TABLES: &[&str] =
    &["server", "device", "pool", "levels", "wear", "tenant", "vssd", "volume", "subsystem", "qos_set"];

/// Whether the first part of a path is a module or a crate, which a file need not name itself.
fn is_room(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_lowercase())
}

/// What make and `cargo xtask` can be asked for.
pub struct Targets {
    make: BTreeSet<String>,
    xtask: BTreeSet<String>,
}

impl Targets {
    /// From the text of the Makefile and the usage of `cargo xtask`.
    pub fn new(makefile: &str, usage: &str) -> Targets {
        let is_rule = |line: &&str| line.starts_with(|c: char| c.is_ascii_lowercase());
        let rules = makefile.lines().filter(is_rule).filter_map(|line| line.split_once(':'));
        let make =
            rules.filter(|(_, rest)| !rest.starts_with('=')).map(|(name, _)| name.to_owned()).collect();
        let lines = usage.lines().filter(|line| line.starts_with("  "));
        let xtask = lines.filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect();
        Targets { make, xtask }
    }
}

/// Commands of a page, `make X` and `cargo xtask X`, whose target does not exist.
pub fn unknown_targets(page: &str, text: &str, targets: &Targets) -> Vec<String> {
    let mut problems = Vec::new();
    for (number, command) in commands(text) {
        let known = [("make ", &targets.make), ("cargo xtask ", &targets.xtask)];
        for (start, known) in known {
            let Some(rest) = command.strip_prefix(start) else { continue };
            let is_target =
                |word: &&str| word.chars().all(|c| is_of_a_name(c) || c == '-') && !word.starts_with('-');
            let first = rest.split_whitespace().find(|word| !word.contains('='));
            if let Some(target) = first.filter(is_target).filter(|target| !known.contains(*target)) {
                problems.push(format!("{page}:{number}: {start}{target}: there is no such target"));
            }
        }
    }
    problems
}

/// Programs that `scripts/plugin.sh` builds.
const OF_SCRIPTS: &[&str] = &["leveldb-ledger", "rocksdb-ledger"];

/// Commands of a page that run a package, an example, a test or a program that does not exist, or give one of ours an option that no
/// source has a word for. What `diecut` takes is checked by its own parser (`crates/cli/src/pages.rs`).
pub fn unknown_programs(page: &str, text: &str, code: &Code) -> Vec<String> {
    let prose: String =
        text.lines().filter(|line| !line.starts_with("    ")).map(|line| format!("{line} ")).collect();
    let indented = text.lines().filter_map(|line| line.strip_prefix("    "));
    let mut problems = Vec::new();
    for command in indented.chain(prose.split('`').skip(1).step_by(2)) {
        let words: Vec<&str> = command.split_whitespace().collect();
        let is_cargo = words.contains(&"cargo");
        // What stands behind `--` is the program's own.
        let end = words.iter().position(|word| *word == "--").unwrap_or(words.len());
        for pair in words[..end].windows(2).filter(|_| is_cargo) {
            let of_a_crate = |folder: &str| {
                code.has_file(&format!("{folder}/{}.rs", pair[1]))
                    || code.has_file(&format!("{folder}/{}/main.rs", pair[1]))
            };
            let is_there = match pair[0] {
                "-p" | "--package" => code.packages.contains(pair[1]),
                "--example" => of_a_crate("examples"),
                "--test" => of_a_crate("tests") || code.packages.contains(pair[1]),
                _ => true,
            };
            if !is_there && pair[1] != "X" {
                problems.push(format!("{page}: {command}: there is no {}", pair[1]));
            }
        }
        let is_ours = |word: &&str| {
            let bare = word.strip_prefix("target/release/").unwrap_or(word);
            word.ends_with(".sh") || bare.starts_with("diecut") && code.packages.contains(bare)
        };
        let own = match words.iter().position(is_ours) {
            _ if is_cargo => words.get(end..).unwrap_or_default(),
            Some(at) => &words[at..],
            None => &[],
        };
        for option in own.iter().filter_map(|word| word.trim_matches(['[', ']', '(', ')']).strip_prefix("--"))
        {
            let name = option.split('=').next().unwrap_or_default().replace('-', "_");
            if !name.is_empty() && !code.has_path(&[&name]) {
                problems.push(format!("{page}: {command}: there is no option --{option}"));
            }
        }
        for program in words.iter().filter_map(|word| word.strip_prefix("target/release/")) {
            let is_there = match program.strip_prefix("examples/") {
                Some(example) => {
                    code.has_file(&format!("examples/{example}.rs"))
                        || code.has_file(&format!("examples/{example}/main.rs"))
                }
                None => code.packages.contains(program) || code.has_file(&format!("src/bin/{program}.rs")),
            };
            if !is_there && !OF_SCRIPTS.contains(&program) && !program.is_empty() && !program.contains('.') {
                problems.push(format!("{page}: {command}: there is no program {program}"));
            }
        }
    }
    problems
}

/// What stands in backticks or is indented as commands are, with the number of its line.
fn commands(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().flat_map(|(number, line)| {
        let indented = line.strip_prefix("    ").filter(|rest| !rest.starts_with(' '));
        let quoted = line.split('`').skip(1).step_by(2);
        indented.into_iter().chain(quoted).map(move |command| (number + 1, command))
    })
}

/// Rows of tables in which a page of docs/format/ and the source files that it names differ.
///
/// `source` gives the text of a file of the tree. All tables in comments of these files must stand on the page, and each file that a
/// page is written by has one; a table of the page whose heading row is in none of them is the page's own.
pub fn drifted_tables(page: &str, text: &str, source: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let paths =
        text.split('`').skip(1).step_by(2).filter(|quoted| quoted.ends_with(".rs") && quoted.contains('/'));
    let texts: Vec<(&str, String)> = paths.filter_map(|path| source(path).map(|text| (path, text))).collect();
    let rows_of = |text: &str| -> BTreeSet<String> {
        let comments = text.lines().filter_map(|line| {
            let line = line.trim_start();
            line.strip_prefix("//!").or_else(|| line.strip_prefix("///"))
        });
        comments.filter(|line| is_row(line)).map(bare_row).collect()
    };
    let writers = text.lines().find(|line| line.starts_with("Written by ")).unwrap_or_default();
    let mut problems = Vec::new();
    let mut rows = BTreeSet::new();
    for (path, text) in &texts {
        let of_source = rows_of(text);
        if of_source.is_empty() && writers.contains(path) {
            problems.push(format!("{page}: {path} has no table to compare with"));
        }
        rows.extend(of_source);
    }
    let (mut shown, mut is_compared, mut is_inside) = (BTreeSet::new(), false, false);
    for (number, line) in text.lines().enumerate() {
        let is_table = line.starts_with('|');
        if is_row(line) {
            let row = bare_row(line);
            let is_known = rows.contains(&row);
            if !is_inside {
                is_compared = is_known;
            } else if is_compared && !is_known {
                problems.push(format!("{page}:{}: this row is not in the table of the source", number + 1));
            }
            shown.insert(row);
        }
        is_inside = is_table;
    }
    let missing = rows.iter().filter(|row| !shown.contains(*row));
    problems.extend(missing.map(|row| format!("{page}: the source has a row that is not here: {row}")));
    problems
}

/// Whether a line is a row of a table with something in it.
fn is_row(line: &str) -> bool {
    let line = line.trim();
    line.starts_with('|') && line.chars().any(|c| !matches!(c, '|' | '-' | ':' | ' '))
}

/// A row without what is only of its place: blanks, and links of documentation.
fn bare_row(line: &str) -> String {
    line.replace("[`", "`").replace("`]", "`").split_whitespace().collect::<Vec<_>>().join(" ")
}

/// How commands begin that measure something.
const MEASURES: &[&str] = &["make ", "cargo ", "diecut ", "diecut-", "target/release/", "db_bench ", "awk "];

/// Whether a command can be what made figures; a variable may stand in front of it (`LEDGER_MIB=64`).
fn measures(command: &str) -> bool {
    let is_variable = |word: &str| word.contains('=') && word.starts_with(|c: char| c.is_ascii_uppercase());
    let bare = match command.split_once(' ') {
        Some((first, rest)) if is_variable(first) => rest,
        _ => command,
    };
    MEASURES.iter().any(|start| bare.starts_with(start))
}

/// Tables of measured figures whose section names no command that makes them.
///
/// A table is one of figures if a column behind its first one is set to the right. Tables of bytes (`offset`, `byte`) are none.
pub fn figures_without_command(page: &str, text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    let lines: Vec<&str> = text.lines().collect();
    let is_heading = |line: &&str| line.starts_with('#');
    for (at, line) in lines.iter().enumerate() {
        let is_rule = line.starts_with("|") && line.chars().all(|c| matches!(c, '|' | '-' | ':' | ' '));
        let columns: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let has_figures =
            is_rule && !columns[0].ends_with(':') && columns.iter().any(|column| column.ends_with("-:"));
        if !has_figures {
            continue;
        }
        let start = lines[..at].iter().rposition(&is_heading).unwrap_or(0);
        let end = lines[at..].iter().position(&is_heading).map_or(lines.len(), |end| at + end);
        let section = lines[start..end].join("\n");
        // A command may go on over the end of its line.
        let mut quoted =
            section.split('`').skip(1).step_by(2).chain(commands(&section).map(|(_, command)| command));
        if !quoted.any(measures) {
            problems
                .push(format!("{page}:{}: figures, and no command that makes them in this section", at + 1));
        }
    }
    problems
}

/// Numbers of invariants (`I-` and a letter and a number) in a line.
fn invariants_of(line: &str) -> impl Iterator<Item = &str> {
    line.match_indices("I-").filter_map(move |(at, _)| {
        let is_start = !line[..at].ends_with(is_of_a_name) && !line[..at].ends_with('-');
        let rest = &line[at + 2..];
        let digits = rest.strip_prefix(|c: char| c.is_ascii_uppercase())?;
        let length = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
        (is_start && length > 0).then(|| &line[at..at + 3 + length])
    })
}

/// Invariants that the code cites and the page of their room lacks, or that a page lists and nothing cites.
///
/// A letter belongs to the page that lists numbers with it; without such a page it is not checked.
pub fn unmatched_invariants(pages: &[(String, String)], code: &Code) -> Vec<String> {
    let mut listed: BTreeMap<&str, &str> = BTreeMap::new();
    let mut problems = Vec::new();
    for (name, text) in
        pages.iter().filter(|(name, _)| name.starts_with(INVARIANTS) && !name.ends_with("README.md"))
    {
        for line in text.lines() {
            // A number at the start of a line or of a row defines it; elsewhere it is only spoken of.
            let start = line.trim_start_matches(['|', '-', '*', '#', ' ', '`']);
            let Some(number) = invariants_of(start).next().filter(|number| start.starts_with(number)) else {
                continue;
            };
            if listed.insert(number, name).is_some() {
                problems.push(format!("{name}: {number} is listed twice"));
            }
        }
    }
    let letters: BTreeMap<&str, &str> = listed.iter().map(|(number, name)| (&number[..3], *name)).collect();
    for (number, file) in &code.cited {
        if let Some(page) = letters.get(&number[..3]).filter(|_| !listed.contains_key(number.as_str())) {
            problems.push(format!("{file}: {number} is not in {page}"));
        }
    }
    let uncited = listed.iter().filter(|(number, _)| !code.cited.contains_key(**number));
    problems.extend(uncited.map(|(number, name)| format!("{name}: nothing in the code cites {number}")));
    problems
}

#[cfg(test)]
mod test {
    use super::*;

    fn code() -> Code {
        let mut code = Code::default();
        code.add(
            "a.rs",
            "/// `Gone::away`\npub struct SwapRule;\nimpl SwapRule { pub fn pick(&self) {} } // I-L1\n",
        );
        code.add_path("crates/x/src/a.rs");
        code.add("b.rs", "fn other() { assert!(true, \"I-L2: it holds\"); }\n");
        code
    }

    #[test]
    fn a_name_that_the_code_lacks_is_found() {
        let page = "`SwapRule`, `SwapRule::pick`, `pick()`, `vssd::other`, `a.rs`, `NAME`, `diecut status`, `wear.other`, `src/a.rs`, `x + y`";
        assert_eq!(unknown_names("p.md", page, &code()), Vec::<String>::new());
        let page = "`SwapRules`\n`SwapRule::other` and `picked()`, `Gone::away`\n`away`, `b_c`, `wear.others`, `c.rs`, `lib/a.rs`";
        assert_eq!(
            unknown_names("p.md", page, &code()),
            [
                "p.md:1: there is no `SwapRules` in the code",
                "p.md:2: there is no `SwapRule::other` in the code",
                "p.md:2: there is no `picked()` in the code",
                "p.md:2: there is no `Gone::away` in the code",
                "p.md:3: there is no `away` in the code",
                "p.md:3: there is no `b_c` in the code",
                "p.md:3: there is no `wear.others` in the code",
                "p.md:3: there is no `c.rs` in the code",
                "p.md:3: there is no `lib/a.rs` in the code",
            ]
        );
    }

    #[test]
    fn a_name_that_a_comment_has_and_the_code_lacks_is_found() {
        let text = "//! `SwapRule`\nlet a = \"`Gone`\";\n/// ```\n/// `Gone`\n/// ```\n    // and `Gone`\n";
        assert_eq!(
            unknown_names_of_comments("x.rs", text, &code()),
            ["x.rs:6: there is no `Gone` in the code"]
        );
    }

    #[test]
    fn a_target_that_is_gone_is_found() {
        let targets = Targets::new(
            "FUZZ ?= 1\nPREFIX := a\nrun: setup\n\tcargo run\n",
            "usage: x\n  arrows   a\n  ci b",
        );
        let page = "    make run BENCH=1\n`make` and `cargo xtask arrows`, `cargo xtask -h`\n    make X=1\n";
        assert_eq!(unknown_targets("p.md", page, &targets), Vec::<String>::new());
        assert_eq!(
            unknown_targets("p.md", "`make runs`\n    cargo xtask arrow --all", &targets),
            [
                "p.md:1: make runs: there is no such target",
                "p.md:2: cargo xtask arrow: there is no such target"
            ]
        );
    }

    #[test]
    fn a_program_that_is_gone_is_found() {
        let mut code = code();
        code.add_manifest("[package]\nname = \"diecut-a\"\n[[bin]]\nname = \"a\"\n");
        code.add_path("crates/a/examples/e/main.rs");
        code.add_path("crates/a/tests/t.rs");
        let page = "    cargo run -p diecut-a --example e -- -p none\n`cargo test -p diecut-a\n--test t`, `target/release/a b`, `target/release/examples/e`, `-p b`";
        assert_eq!(unknown_programs("p.md", page, &code), Vec::<String>::new());
        let page = "    cargo run -p diecut-b\n`cargo test -p diecut-a --test u`, `cargo run --example t`, `target/release/b`, `target/release/examples/t`";
        let found = unknown_programs("p.md", page, &code);
        assert_eq!(found.len(), 5, "{found:?}");
        assert_eq!(found[0], "p.md: cargo run -p diecut-b: there is no diecut-b");
        let page = "`diecut-a x --other [--gone]`, `tests/x.sh --lost=1`, `cargo run -p diecut-a -- --away`, `grep --gone`";
        let found = unknown_programs("p.md", page, &code);
        assert_eq!(found.len(), 3, "{found:?}");
        assert_eq!(found[1], "p.md: tests/x.sh --lost=1: there is no option --lost=1");
    }

    #[test]
    fn figures_need_a_command() {
        let table = "| what | us |\n|---|---:|\n| read | 5 |\n";
        let good =
            format!("# A\n`make bench` says\n\n{table}\n# B\n\n| offset | size |\n|---:|---:|\n| 0 | 8 |\n");
        assert_eq!(figures_without_command("p.md", &good), Vec::<String>::new());
        let with_variable = format!("# A\n`A=1 make bench` says\n{table}");
        assert_eq!(figures_without_command("p.md", &with_variable), Vec::<String>::new());
        let bad = format!("# A\n`make bench` says\n# B\n{table}");
        assert_eq!(
            figures_without_command("p.md", &bad),
            ["p.md:5: figures, and no command that makes them in this section"]
        );
    }

    #[test]
    fn a_table_that_drifted_is_found() {
        let source = |path: &str| {
            let head = "//! | offset | field |\n//! |---:|---|\n//! |  0 | magic [`M`] |\n";
            (path == "crates/a/src/a.rs").then(|| head.to_owned())
        };
        let page = "Written by `crates/a/src/a.rs`.\n\n| offset | field |\n|---:|---|\n| 0 | magic `M` |\n";
        assert_eq!(drifted_tables("p.md", page, source), Vec::<String>::new());
        let drifted = page.replace("magic", "version");
        assert_eq!(
            drifted_tables("p.md", &drifted, source),
            [
                "p.md:5: this row is not in the table of the source",
                "p.md: the source has a row that is not here: | 0 | magic `M` |"
            ]
        );
        assert_eq!(
            drifted_tables("p.md", &drifted, |_| Some("//! words".to_owned())),
            ["p.md: crates/a/src/a.rs has no table to compare with"]
        );
        let mentioned = drifted.replace("Written by", "See");
        let words = |_: &str| Some("//! words".to_owned());
        assert_eq!(drifted_tables("p.md", &mentioned, words), Vec::<String>::new());
    }

    #[test]
    fn invariants_stand_on_both_sides() {
        let page = |text: &str| [("docs/invariants/log.md".to_owned(), text.to_owned())];
        assert_eq!(unmatched_invariants(&[], &code()), Vec::<String>::new());
        assert_eq!(
            unmatched_invariants(&page("| I-L1 | a |\n- I-L2: as I-L1"), &code()),
            Vec::<String>::new()
        );
        assert_eq!(
            unmatched_invariants(&page("| I-L1 | a |\n| I-L1 | b |\n| I-L3 | c |"), &code()),
            [
                "docs/invariants/log.md: I-L1 is listed twice",
                "b.rs: I-L2 is not in docs/invariants/log.md",
                "docs/invariants/log.md: nothing in the code cites I-L3",
            ]
        );
    }
}
