//! `cargo xtask house`: how the rooms are built inside, in numbers, and a ratchet that lets none of them get worse.
//!
//! For each room (a crate, and the sub-rooms that are its files): circles of files that name each other, fields and methods of types and
//! the files that their `impl` blocks stand in, parameters, lengths of functions and files, asserts per thousand lines. An `expect` or
//! `unreachable!` that names an invariant asserts it, too. Tests are not counted. For the workspace: types of one name that several rooms
//! define.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

/// Where the worst that is allowed stands, room by room.
const RATCHET: &str = "xtask/house.txt";
/// More parameters than this are too many (clippy's bound).
const PARAMETERS_MAX: usize = 7;

/// What is counted of a room; each figure should become smaller, but for the asserts.
const FIGURES: [&str; 8] = [
    "circle files",
    "fields",
    "methods",
    "impl files",
    "wide functions",
    "function lines",
    "file lines",
    "asserts per 1000",
];
/// Place of the figure that should become larger.
const ASSERTS: usize = 7;

/// A type of a room.
#[derive(Default)]
struct Type {
    fields: usize,
    methods: usize,
    files: BTreeSet<usize>,
}

/// A room as it is.
#[derive(Default)]
struct Room {
    name: String,
    files: Vec<String>,
    lines: usize,
    types: BTreeMap<String, Type>,
    defined: BTreeSet<String>,
    /// Files that a file names.
    names: Vec<BTreeSet<usize>>,
    wide: Vec<String>,
    longest_function: (usize, String),
    longest_file: (usize, String),
    asserts: usize,
}

/// The table; with `--all` also the types and functions behind it.
///
/// # Errors
/// A room that got worse, or a file that cannot be read.
pub fn run(root: &Path, arguments: &[&str]) -> Result<String, Vec<String>> {
    let rooms = rooms(root)?;
    match arguments {
        [] | ["--all"] => {
            println!("{}", table(&rooms));
            if arguments == ["--all"] {
                println!("{}", details(&rooms));
            }
            println!("{}", twins(&rooms));
            check(root)
        }
        ["--write"] => {
            std::fs::write(root.join(RATCHET), ratchet(&rooms))
                .map_err(|error| vec![format!("{RATCHET}: {error}")])?;
            Ok(format!("house: {RATCHET} says what the rooms are now"))
        }
        _ => Err(vec!["house takes --all or --write".to_owned()]),
    }
}

/// Whether no room got worse than the ratchet allows.
///
/// # Errors
/// Names each room and figure that did.
pub fn check(root: &Path) -> Result<String, Vec<String>> {
    let text =
        std::fs::read_to_string(root.join(RATCHET)).map_err(|error| vec![format!("{RATCHET}: {error}")])?;
    let rooms = rooms(root)?;
    let problems = compare(&text, &rooms);
    if problems.is_empty() {
        Ok(format!("house: {} rooms, none worse than before", rooms.len()))
    } else {
        Err(problems)
    }
}

fn compare(text: &str, rooms: &[Room]) -> Vec<String> {
    let mut problems = Vec::new();
    let allowed: BTreeMap<&str, Vec<usize>> = text
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split_once(':'))
        .map(|(room, figures)| {
            (room, figures.split_whitespace().filter_map(|one| one.parse().ok()).collect())
        })
        .collect();
    for room in rooms {
        let Some(limits) = allowed.get(room.name.as_str()).filter(|limits| limits.len() == FIGURES.len())
        else {
            problems.push(format!("{RATCHET} has no line for room {}: cargo xtask house --write", room.name));
            continue;
        };
        for (at, (now, limit)) in room.figures().into_iter().zip(limits).enumerate() {
            let is_worse = if at == ASSERTS { now < *limit } else { now > *limit };
            if is_worse {
                problems.push(format!(
                    "room {}: {} were {limit} and are {now}; cargo xtask house --all says where",
                    room.name, FIGURES[at]
                ));
            }
        }
    }
    problems
}

fn ratchet(rooms: &[Room]) -> String {
    let mut text = format!(
        "# The worst each room may be: {}. Written by cargo xtask house --write.\n",
        FIGURES.join(", ")
    );
    for room in rooms {
        let figures: Vec<String> = room.figures().iter().map(usize::to_string).collect();
        writeln!(text, "{}: {}", room.name, figures.join(" ")).expect("a string takes all");
    }
    text
}

fn rooms(root: &Path) -> Result<Vec<Room>, Vec<String>> {
    let mut rooms = Vec::new();
    for folder in ["crates", "apps"] {
        let entries =
            std::fs::read_dir(root.join(folder)).map_err(|error| vec![format!("{folder}: {error}")])?;
        let mut crates: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        crates.sort();
        for path in crates.into_iter().filter(|path| path.join("src").is_dir()) {
            rooms.push(Room::read(&path).map_err(|error| vec![error])?);
        }
    }
    Ok(rooms)
}

/// Rust files below a folder, tests of the unit in files of their own left out.
pub fn rust_files(folder: &Path, found: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if path.is_dir() && name != "test" && name != "tests" {
            rust_files(&path, found);
        } else if name.ends_with(".rs") && !["test.rs", "tests.rs", "interleavings.rs"].contains(&name) {
            found.push(path);
        }
    }
}

/// The path of the module that a file is: `["states", "table"]` for `src/states/table.rs`.
fn module_of(source: &Path, file: &Path) -> Vec<String> {
    let inside = file.strip_prefix(source).unwrap_or(file).with_extension("");
    let mut parts: Vec<String> = inside.iter().map(|part| part.to_string_lossy().into_owned()).collect();
    if parts
        .last()
        .is_some_and(|last| last == "mod" || (parts.len() == 1 && (last == "lib" || last == "main")))
    {
        parts.pop();
    }
    parts
}

impl Room {
    fn read(folder: &Path) -> Result<Room, String> {
        let source = folder.join("src");
        let mut paths = Vec::new();
        rust_files(&source, &mut paths);
        let modules: Vec<Vec<String>> = paths.iter().map(|path| module_of(&source, path)).collect();
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let mut room = Room { name, names: vec![BTreeSet::new(); paths.len()], ..Room::default() };
        for (at, path) in paths.iter().enumerate() {
            let text =
                std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
            let parsed = syn::parse_file(&text).map_err(|error| format!("{}: {error}", path.display()))?;
            let name = path.strip_prefix(&source).unwrap_or(path).display().to_string();
            let mut reader = Reader {
                room: &mut room,
                modules: &modules,
                at,
                module: modules[at].clone(),
                skipped: 0,
                in_trait_impl: false,
            };
            reader.visit_file(&parsed);
            let lines = text.lines().count() - reader.skipped;
            room.lines += lines;
            room.longest_file = room.longest_file.clone().max((lines, name.clone()));
            room.files.push(name);
        }
        Ok(room)
    }

    fn figures(&self) -> [usize; FIGURES.len()] {
        let most = |of: fn(&Type) -> usize| self.types.values().map(of).max().unwrap_or(0);
        [
            self.circles().first().map_or(0, Vec::len),
            most(|one| one.fields),
            most(|one| one.methods),
            most(|one| one.files.len()),
            self.wide.len(),
            self.longest_function.0,
            self.longest_file.0,
            self.asserts * 1000 / self.lines.max(1),
        ]
    }

    /// Files that name each other, directly or over others, the largest circle first.
    fn circles(&self) -> Vec<Vec<usize>> {
        let reached: Vec<BTreeSet<usize>> = (0..self.files.len())
            .map(|from| {
                let (mut seen, mut open) = (BTreeSet::new(), vec![from]);
                while let Some(at) = open.pop() {
                    open.extend(self.names[at].iter().filter(|next| seen.insert(**next)));
                }
                seen
            })
            .collect();
        let mut circles: Vec<Vec<usize>> = Vec::new();
        for from in 0..self.files.len() {
            if circles.iter().any(|circle| circle.contains(&from)) {
                continue;
            }
            let circle: Vec<usize> = (0..self.files.len())
                .filter(|to| reached[from].contains(to) && reached[*to].contains(&from))
                .collect();
            if circle.len() > 1 {
                circles.push(circle);
            }
        }
        circles.sort_by_key(|circle| std::cmp::Reverse(circle.len()));
        circles
    }
}

/// Reads a file of a room.
struct Reader<'a> {
    room: &'a mut Room,
    modules: &'a [Vec<String>],
    /// The file's number, and the module that is being read: inline modules have names of their own.
    at: usize,
    module: Vec<String>,
    /// Lines of tests.
    skipped: usize,
    /// What a trait asks for is counted where the trait stands.
    in_trait_impl: bool,
}

fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("test")
            || (attribute.path().is_ident("cfg")
                && attribute.parse_args::<syn::Meta>().is_ok_and(|condition| is_of_tests(&condition)))
    })
}

/// Whether a condition holds in builds of tests alone: `test`, or loom's atomics, and with others beside it.
fn is_of_tests(condition: &syn::Meta) -> bool {
    let syn::Meta::List(list) = condition else {
        return condition.path().is_ident("test") || condition.path().is_ident("diecut_loom");
    };
    let inside =
        list.parse_args_with(syn::punctuated::Punctuated::<syn::Meta, syn::Token![,]>::parse_terminated);
    list.path.is_ident("all") && inside.is_ok_and(|inside| inside.iter().any(is_of_tests))
}

fn lines_of(spanned: &impl Spanned) -> usize {
    let span = spanned.span();
    span.end().line + 1 - span.start().line
}

impl Reader<'_> {
    /// A path that code names: which file of the room it leads to.
    fn name(&mut self, segments: &[String]) {
        let (mut path, rest) = match segments.first().map(String::as_str) {
            Some("crate") => (Vec::new(), &segments[1..]),
            Some("self") => (self.module.clone(), &segments[1..]),
            Some("super") => {
                let up = segments.iter().take_while(|one| *one == "super").count();
                let kept = self.module.len().saturating_sub(up);
                (self.module[..kept].to_vec(), &segments[up..])
            }
            _ => return,
        };
        path.extend(rest.iter().cloned());
        // The longest prefix that is a file.
        let leads_to =
            (0..=path.len()).rev().find_map(|len| self.modules.iter().position(|one| one[..] == path[..len]));
        // Naming the root is naming what it exports; that has no file of its own here.
        if let Some(to) = leads_to.filter(|to| *to != self.at && !self.modules[*to].is_empty()) {
            self.room.names[self.at].insert(to);
        }
    }

    fn tree(&mut self, before: &[String], tree: &syn::UseTree) {
        let with = |name: &syn::Ident| [before, &[name.to_string()]].concat();
        match tree {
            syn::UseTree::Path(path) => self.tree(&with(&path.ident), &path.tree),
            syn::UseTree::Name(name) => self.name(&with(&name.ident)),
            syn::UseTree::Rename(name) => self.name(&with(&name.ident)),
            syn::UseTree::Glob(_) => self.name(before),
            syn::UseTree::Group(group) => group.items.iter().for_each(|tree| self.tree(before, tree)),
        }
    }

    fn function(&mut self, signature: &syn::Signature, lines: usize) {
        let place = format!("{}: {}", self.modules[self.at].join("::"), signature.ident);
        if signature.inputs.len() > PARAMETERS_MAX && signature.abi.is_none() && !self.in_trait_impl {
            self.room.wide.push(format!("{place}({})", signature.inputs.len()));
        }
        self.room.longest_function = self.room.longest_function.clone().max((lines, place));
    }
}

impl<'ast> Visit<'ast> for Reader<'_> {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        let attributes: &[syn::Attribute] = match item {
            syn::Item::Mod(item) => &item.attrs,
            syn::Item::Fn(item) => &item.attrs,
            syn::Item::Impl(item) => &item.attrs,
            syn::Item::Use(item) => &item.attrs,
            syn::Item::Struct(item) => &item.attrs,
            syn::Item::Const(item) => &item.attrs,
            _ => &[],
        };
        if is_test(attributes) {
            self.skipped += lines_of(item);
            return;
        }
        visit::visit_item(self, item);
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if item.content.is_some() {
            self.module.push(item.ident.to_string());
            visit::visit_item_mod(self, item);
            self.module.pop();
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.tree(&[], &item.tree);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments: Vec<String> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        if segments.len() > 1 {
            self.name(&segments);
        }
        visit::visit_path(self, path);
    }

    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        let name = item.ident.to_string();
        let own = self.room.types.entry(name.clone()).or_default();
        own.fields = own.fields.max(item.fields.iter().filter(|field| !is_test(&field.attrs)).count());
        self.room.defined.insert(name);
        visit::visit_item_struct(self, item);
    }

    fn visit_item_enum(&mut self, item: &'ast syn::ItemEnum) {
        self.room.defined.insert(item.ident.to_string());
        visit::visit_item_enum(self, item);
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        if let syn::Type::Path(path) = &*item.self_ty
            && let Some(last) = path.path.segments.last()
        {
            let methods = item.items.iter().filter(|one| matches!(one, syn::ImplItem::Fn(_))).count();
            let own = self.room.types.entry(last.ident.to_string()).or_default();
            // What a trait asks for says nothing of the type.
            if item.trait_.is_none() {
                own.methods += methods;
                own.files.insert(self.at);
            }
        }
        self.in_trait_impl = item.trait_.is_some();
        visit::visit_item_impl(self, item);
        self.in_trait_impl = false;
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        self.function(&item.sig, lines_of(item));
        visit::visit_trait_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.function(&item.sig, lines_of(item));
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.function(&item.sig, lines_of(item));
        visit::visit_item_fn(self, item);
    }

    fn visit_macro(&mut self, one: &'ast syn::Macro) {
        let name = one.path.segments.last().map(|segment| segment.ident.to_string()).unwrap_or_default();
        let asserts = ["assert", "assert_eq", "assert_ne"].contains(&name.as_str());
        let names_one =
            ["unreachable", "panic"].contains(&name.as_str()) && names_invariant(&one.tokens.to_string());
        self.room.asserts += usize::from(asserts || names_one);
        visit::visit_macro(self, one);
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        let says = |one: &syn::Expr| match one {
            syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) => names_invariant(&text.value()),
            _ => false,
        };
        self.room.asserts += usize::from(call.method == "expect" && call.args.iter().any(says));
        visit::visit_expr_method_call(self, call);
    }
}

/// Whether a message begins with the number of an invariant.
fn names_invariant(message: &str) -> bool {
    message.trim_start_matches('"').starts_with("I-")
}

fn table(rooms: &[Room]) -> String {
    let mut text = format!("{:<14} {:>6} {:>7}", "room", "files", "lines");
    for figure in FIGURES {
        write!(text, " {figure:>16}").expect("a string takes all");
    }
    for room in rooms {
        write!(text, "\n{:<14} {:>6} {:>7}", room.name, room.files.len(), room.lines)
            .expect("a string takes all");
        for figure in room.figures() {
            write!(text, " {figure:>16}").expect("a string takes all");
        }
    }
    text
}

fn details(rooms: &[Room]) -> String {
    let mut text = String::new();
    let mut line = |what: String| writeln!(text, "{what}").expect("a string takes all");
    for room in rooms {
        line(format!(
            "\n{}: longest function {} ({} lines), longest file {} ({} lines)",
            room.name,
            room.longest_function.1,
            room.longest_function.0,
            room.longest_file.1,
            room.longest_file.0
        ));
        for circle in room.circles() {
            let files: Vec<&str> = circle.iter().map(|at| room.files[*at].as_str()).collect();
            line(format!("  circle of {}: {}", files.len(), files.join(" ")));
        }
        let mut types: Vec<_> = room.types.iter().collect();
        types.sort_by_key(|(_, one)| std::cmp::Reverse((one.files.len(), one.methods, one.fields)));
        for (name, one) in
            types.into_iter().filter(|(_, one)| one.files.len() > 3 || one.fields > 15 || one.methods > 40)
        {
            line(format!(
                "  {name}: {} fields, {} methods in {} files",
                one.fields,
                one.methods,
                one.files.len()
            ));
        }
        if !room.wide.is_empty() {
            line(format!("  more than {PARAMETERS_MAX} parameters: {}", room.wide.join(", ")));
        }
    }
    text
}

/// Types of one name in several rooms: one concept written more than once, or one word for two things.
fn twins(rooms: &[Room]) -> String {
    let mut homes: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for room in rooms {
        for name in &room.defined {
            homes.entry(name).or_default().push(&room.name);
        }
    }
    let mut several: Vec<_> = homes.into_iter().filter(|(_, rooms)| rooms.len() > 2).collect();
    several.sort_by_key(|(_, rooms)| std::cmp::Reverse(rooms.len()));
    let mut text = "types of one name in three rooms and more:".to_owned();
    for (name, rooms) in several {
        write!(text, "\n  {name}: {}", rooms.join(", ")).expect("a string takes all");
    }
    text
}

#[cfg(test)]
mod test {
    use super::*;

    fn room(files: &[(&str, &str)]) -> Room {
        let folder =
            std::env::temp_dir().join(format!("diecut-house-{}-{}", std::process::id(), files.len()));
        let _ = std::fs::remove_dir_all(&folder);
        for (name, text) in files {
            let path = folder.join("src").join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let room = Room::read(&folder).unwrap();
        std::fs::remove_dir_all(folder).unwrap();
        Room { name: "room".to_owned(), ..room }
    }

    #[test]
    fn circles_types_and_asserts_are_found() {
        let files = [
            ("lib.rs", "mod a; mod b; mod c; pub use a::A;"),
            (
                "a.rs",
                "use crate::b::B; pub struct A { one: u8, two: B, #[cfg(diecut_loom)] three: u8 }\nimpl A { fn f(&self) { assert!(true); g().expect(\"I-A1: there\"); g().expect(\"there\"); unreachable!(\"I-A2: here\") } }",
            ),
            (
                "b.rs",
                "pub struct B; impl B { fn g() { crate::c::d::h(); } }\n#[cfg(all(test, not(diecut_loom)))]\nmod test { fn t() { assert!(true) } }",
            ),
            ("c/mod.rs", "pub mod d;"),
            ("c/d.rs", "use super::super::a::A; impl A { fn i(&self) {} }\npub fn h() {}"),
        ];
        let found = room(&files);
        let circle: Vec<&str> = found.circles()[0].iter().map(|at| found.files[*at].as_str()).collect();
        assert_eq!(circle, ["a.rs", "b.rs", "c/d.rs"]);
        assert_eq!(found.figures()[..4], [3, 2, 2, 2], "circle, fields, methods and files of A");
        assert_eq!(found.asserts, 3, "those of tests do not count, nor an expect without an invariant");
        let worse = compare(&ratchet(std::slice::from_ref(&found)), &[room(&files[..4])]);
        assert!(worse.is_empty(), "{worse:?}");
        let better = ratchet(&[room(&files[..4])]);
        assert!(
            compare(&better, &[found])
                .iter()
                .any(|problem| problem.contains("circle files were 0 and are 3"))
        );
    }
}
