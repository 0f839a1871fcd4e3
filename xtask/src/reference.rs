//! Parts of pages that are drawn from the code: rooms, keys of the set-up file, routes and objects of the control interface.
//!
//! A page marks such a part by a comment, `<!-- drawn: keys Server -->` to `<!-- end -->`. `cargo xtask reference --write` draws all of them
//! again; `cargo xtask tidy` fails where one is not what the code says today.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;

use syn::{Attribute, Expr, Fields, Item, Lit, Type};

/// Pages with parts that are drawn.
const PAGES: [&str; 3] = ["ARCHITECTURE.md", "docs/setup.md", "docs/api.md"];
/// Sources whose types are objects of the control interface and tables of the set-up file.
const SOURCES: [&str; 23] = [
    "crates/api/src/setup.rs",
    "crates/api/src/setup_device.rs",
    "crates/api/src/object.rs",
    "crates/api/src/panics.rs",
    "crates/api/src/problem.rs",
    "crates/api/src/status.rs",
    "crates/spec/src/amount.rs",
    "crates/spec/src/identity.rs",
    "crates/spec/src/latency/cause.rs",
    "crates/spec/src/latency/command.rs",
    "crates/spec/src/latency/mod.rs",
    "crates/spec/src/path.rs",
    "crates/spec/src/qos.rs",
    "crates/spec/src/qos_status.rs",
    "crates/spec/src/sanitize.rs",
    "crates/spec/src/subsystem.rs",
    "crates/spec/src/tenant.rs",
    "crates/spec/src/volume.rs",
    "crates/spec/src/vssd.rs",
    "crates/spec/src/wear.rs",
    "crates/spec/src/wear_status.rs",
    "crates/spec/src/words.rs",
    "crates/spec/src/zones.rs",
];
/// The table of routes, and the router that answers them.
const ROUTES: &str = "crates/api/src/route.rs";
const ROUTER: &str = "crates/daemon/src/http.rs";

const START: &str = "<!-- drawn: ";
const END: &str = "<!-- end -->";

/// Draws the pages again, with `--write`; without it says which parts are not as the code is.
///
/// # Errors
/// Names the parts, or what cannot be drawn.
pub fn run(root: &Path, arguments: &[&str]) -> Result<String, Vec<String>> {
    match arguments {
        [] => check(root),
        ["--write"] => {
            for (name, text) in drawn_pages(root)? {
                let path = root.join(name);
                std::fs::write(&path, text).map_err(|error| vec![format!("{name}: {error}")])?;
            }
            check(root)
        }
        _ => Err(vec![format!("{}: see cargo xtask", arguments.join(" "))]),
    }
}

/// Says which parts of pages are not as the code is.
///
/// # Errors
/// Names the parts, or what cannot be drawn.
pub fn check(root: &Path) -> Result<String, Vec<String>> {
    let mut problems = Vec::new();
    for (name, drawn) in drawn_pages(root)? {
        let text = read(root, name)?;
        let different = text.lines().zip(drawn.lines()).position(|(one, other)| one != other);
        if text != drawn {
            let line = different.unwrap_or_else(|| text.lines().count().min(drawn.lines().count())) + 1;
            problems
                .push(format!("{name}:{line}: not what the code says; run cargo xtask reference --write"));
        }
    }
    if problems.is_empty() { Ok("reference: pages are as the code is".to_owned()) } else { Err(problems) }
}

fn read(root: &Path, name: &str) -> Result<String, Vec<String>> {
    std::fs::read_to_string(root.join(name)).map_err(|error| vec![format!("{name}: {error}")])
}

/// All pages as they must be.
fn drawn_pages(root: &Path) -> Result<Vec<(&'static str, String)>, Vec<String>> {
    let mut words = Words::default();
    for name in SOURCES {
        words.add(name, &read(root, name)?)?;
    }
    let mut pages = Vec::new();
    for name in PAGES {
        let text = read(root, name)?;
        let drawn = redrawn(name, &text, |what| match what.split(' ').collect::<Vec<_>>().as_slice() {
            ["rooms"] => rooms(root),
            ["keys", table] => words.keys(table),
            ["requests", objects @ ..] => words.objects(objects, true),
            ["answers", objects @ ..] => words.objects(objects, false),
            ["routes"] => routes(&read(root, ROUTES)?, &read(root, ROUTER)?),
            _ => Err(vec![format!("nothing is drawn under the name {what}")]),
        })?;
        pages.push((name, drawn));
    }
    Ok(pages)
}

/// A page with its marked parts as `draw` has them.
fn redrawn(
    name: &str,
    text: &str,
    draw: impl Fn(&str) -> Result<String, Vec<String>>,
) -> Result<String, Vec<String>> {
    let (mut result, mut is_inside) = (String::new(), false);
    for line in text.lines() {
        if let Some(what) = line.strip_prefix(START) {
            let what = what.trim_end_matches("-->").trim();
            let part = draw(what).map_err(|problems| named(name, problems))?;
            let _ = write!(result, "{line}\n\n{}\n\n", part.trim_end());
            is_inside = true;
        } else if line == END {
            is_inside = false;
        }
        if !is_inside {
            result += line;
            result += "\n";
        }
    }
    if is_inside { Err(vec![format!("{name}: a drawn part has no {END}")]) } else { Ok(result) }
}

fn named(name: &str, problems: Vec<String>) -> Vec<String> {
    problems.into_iter().map(|problem| format!("{name}: {problem}")).collect()
}

/// The table of rooms: the first sentence of each crate's head, and whom it may know.
fn rooms(root: &Path) -> Result<String, Vec<String>> {
    let root = &root.canonicalize().map_err(|error| vec![format!("{}: {error}", root.display())])?;
    let mut table = "| room | purpose | may know |\n|---|---|---|\n".to_owned();
    for room in crate::arrows::packages(root)? {
        let Some(known) = crate::arrows::may_know(&room.name) else { continue };
        let head = ["src/lib.rs", "src/main.rs"].iter().find_map(|file| {
            let text = std::fs::read_to_string(room.folder.join(file)).ok()?;
            first_sentence(&text)
        });
        let Some(purpose) = head else {
            return Err(vec![format!("{}: its head has no first sentence", room.name)]);
        };
        let folder = room.folder.strip_prefix(root).ok().and_then(Path::parent).unwrap_or(Path::new(""));
        let is_usual = folder == Path::new("crates");
        let place = if is_usual { String::new() } else { format!(" (`{}/`)", folder.display()) };
        let _ = writeln!(table, "| `{}`{place} | {purpose} | {known} |", room.name);
    }
    Ok(table)
}

/// The first sentence of a crate's head, as a cell.
fn first_sentence(text: &str) -> Option<String> {
    let lines = text.lines().map_while(|line| line.strip_prefix("//!")).map(str::trim);
    let paragraph = lines.take_while(|line| !line.is_empty()).collect::<Vec<_>>().join(" ");
    let sentence = paragraph.split_once(". ").map_or(paragraph.as_str(), |(first, _)| first);
    let sentence = sentence.trim_end_matches('.');
    (!sentence.is_empty()).then(|| cell(sentence))
}

/// A text of documentation as a cell of a table: one line, without links of rustdoc; pages in backticks become links.
fn cell(text: &str) -> String {
    let text = text.replace("[`", "`").replace("`]", "`").replace('|', "\\|");
    let mut parts: Vec<String> = text.split('`').map(str::to_owned).collect();
    let count = parts.len();
    for (at, part) in parts.iter_mut().enumerate() {
        let page = part.strip_prefix("docs/").filter(|page| page.ends_with(".md"));
        if at % 2 == 1 {
            *part = match page {
                Some(page) => format!("[{page}]({page})"),
                None if count > at + 1 => format!("`{part}`"),
                None => part.clone(),
            };
        }
    }
    parts.concat().split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The table of routes, if it is that of the router.
fn routes(words: &str, router: &str) -> Result<String, Vec<String>> {
    let rows: Vec<&str> = words
        .lines()
        .filter_map(|line| line.strip_prefix("//! "))
        .filter(|line| line.starts_with('|'))
        .collect();
    let told: BTreeSet<String> =
        rows.iter().filter_map(|row| row.split('`').nth(1)).map(str::to_owned).collect();
    let mut constants = BTreeMap::new();
    for line in words.lines() {
        if let Some((name, value)) =
            line.strip_prefix("pub const ").and_then(|rest| rest.split_once(": &str = \""))
        {
            constants.insert(name, value.trim_end_matches("\";"));
        }
    }
    let mut answered = BTreeSet::new();
    for line in router.lines() {
        let Some((path, rest)) = line.trim().strip_prefix(".route(").and_then(|line| line.split_once(", "))
        else {
            continue;
        };
        let path = match path.strip_prefix("route::") {
            Some(name) => constants.get(name).copied().unwrap_or(name),
            None => path.trim_matches('"'),
        };
        for call in rest.split_inclusive('(') {
            let method = call.trim_start_matches(|c: char| !c.is_ascii_lowercase());
            let method = method.rsplit('.').next().unwrap_or_default().trim_end_matches('(');
            if ["get", "post", "put", "delete"].contains(&method) {
                answered.insert(format!("{} {path}", method.to_uppercase()));
            }
        }
    }
    let mut problems: Vec<String> =
        told.difference(&answered).map(|route| format!("{ROUTER} does not answer {route}")).collect();
    problems.extend(answered.difference(&told).map(|route| format!("{ROUTES} does not tell of {route}")));
    if !problems.is_empty() {
        return Err(problems);
    }
    let mut table = String::new();
    for row in rows {
        let mut shown = String::new();
        for (at, part) in row.split("[`").enumerate() {
            match part.split_once("`]").filter(|_| at > 0) {
                Some((path, rest)) => {
                    shown += &format!("{}{rest}", link(path.rsplit("::").next().unwrap_or(path)))
                }
                None => shown += part,
            }
        }
        table += &shown;
        table += "\n";
    }
    Ok(table)
}

/// A link to the section of an object.
fn link(name: &str) -> String {
    format!("[{name}](#{})", name.to_lowercase())
}

/// A field of an object, or a key of a table.
struct Field {
    name: String,
    what: String,
    kind: Type,
    default: Option<String>,
    is_flattened: bool,
}

/// An object.
struct Object {
    what: String,
    fields: Vec<Field>,
}

/// A word of a few, and what each means.
struct Choice {
    what: String,
    words: Vec<(String, String)>,
    default: Option<String>,
}

/// Types of the control interface and of the set-up file.
#[derive(Default)]
struct Words {
    objects: BTreeMap<String, Object>,
    choices: BTreeMap<String, Choice>,
}

impl Words {
    /// Takes up a source file.
    fn add(&mut self, name: &str, text: &str) -> Result<(), Vec<String>> {
        let file = syn::parse_file(text).map_err(|error| vec![format!("{name}: {error}")])?;
        let mut functions = BTreeMap::new();
        let mut defaults = BTreeMap::new();
        for item in &file.items {
            match item {
                Item::Fn(item) => {
                    if let Some(syn::Stmt::Expr(value, None)) = item.block.stmts.last() {
                        functions.insert(item.sig.ident.to_string(), value.clone());
                    }
                }
                Item::Impl(item) => defaults.extend(own_defaults(item)),
                Item::Enum(item) => {
                    let rule = serde_value(&item.attrs, "rename_all").unwrap_or_default();
                    let spelled = |variant: &syn::Variant| {
                        serde_value(&variant.attrs, "rename")
                            .unwrap_or_else(|| renamed(&variant.ident.to_string(), &rule))
                    };
                    let default = item.variants.iter().find(|variant| has(&variant.attrs, "default"));
                    let words = item.variants.iter();
                    let choice = Choice {
                        what: documentation(&item.attrs),
                        words: words.map(|word| (spelled(word), documentation(&word.attrs))).collect(),
                        default: default.map(spelled),
                    };
                    self.choices.insert(item.ident.to_string(), choice);
                }
                _ => {}
            }
        }
        for item in &file.items {
            let Item::Struct(item) = item else { continue };
            let Fields::Named(fields) = &item.fields else { continue };
            let own = defaults.get(&item.ident.to_string());
            let is_all_default = serde_has(&item.attrs, "default");
            let mut object = Object { what: documentation(&item.attrs), fields: Vec::new() };
            for field in &fields.named {
                let rust_name = field.ident.as_ref().expect("the fields have names").to_string();
                let value = serde_value(&field.attrs, "default");
                let own = own.and_then(|own: &BTreeMap<String, Expr>| own.get(&rust_name));
                let default = if let Some(function) = value {
                    functions.get(&function).map(shown_value)
                } else if let Some(value) = own.filter(|_| is_all_default) {
                    Some(shown_value(value))
                } else if is_all_default || serde_has(&field.attrs, "default") || is_option(&field.ty) {
                    Some(Ok(String::new()))
                } else {
                    None
                };
                let default = default
                    .transpose()
                    .map_err(|problem| vec![format!("{name}: {}.{rust_name}: {problem}", item.ident)])?;
                object.fields.push(Field {
                    name: serde_value(&field.attrs, "rename").unwrap_or(rust_name),
                    what: documentation(&field.attrs),
                    kind: field.ty.clone(),
                    default,
                    is_flattened: serde_has(&field.attrs, "flatten"),
                });
            }
            if self.objects.insert(item.ident.to_string(), object).is_some() {
                return Err(vec![format!("{name}: {} is another type's name, too", item.ident)]);
            }
        }
        Ok(())
    }

    fn object(&self, name: &str) -> Result<&Object, Vec<String>> {
        self.objects.get(name).ok_or_else(|| vec![format!("there is no type {name}")])
    }

    /// A default as a cell; an empty one is that of the type.
    fn shown_default(&self, field: &Field) -> String {
        let Some(value) = &field.default else { return "required".to_owned() };
        let (name, inner) = parts(&field.kind);
        let value = match (value.as_str(), name.as_str()) {
            ("", "Option") => return "-".to_owned(),
            ("", "Vec") => "[]".to_owned(),
            ("", "bool") => "false".to_owned(),
            ("", "String") => "\"\"".to_owned(),
            ("", other) => match self.choices.get(other) {
                Some(choice) => format!("\"{}\"", choice.default.clone().unwrap_or_default()),
                None => "0".to_owned(),
            },
            ("None", _) => return "-".to_owned(),
            // A word of a type in the code.
            (value, _) if value.contains("::") => {
                let word = value.rsplit("::").next().unwrap_or(value);
                format!("\"{}\"", renamed(word, "kebab-case"))
            }
            // What may be a list is written as one text where it has one.
            (value, "Vec") if inner.is_some() && value.starts_with("[\"") && !value.contains(',') => {
                value.trim_matches(['[', ']']).to_owned()
            }
            (value, _) => value.to_owned(),
        };
        format!("`{value}`")
    }

    /// The keys of a table of the set-up file.
    fn keys(&self, table: &str) -> Result<String, Vec<String>> {
        let mut rows = Vec::new();
        for field in &self.object(table)?.fields {
            match self.objects.get(&parts(&field.kind).0) {
                Some(inner) => {
                    let below =
                        inner.fields.iter().map(|below| (format!("{}.{}", field.name, below.name), below));
                    rows.extend(below);
                }
                None => rows.push((field.name.clone(), field)),
            }
        }
        let has_defaults = rows.iter().any(|(_, field)| self.shown_default(field) != "-");
        let mut text = if has_defaults {
            "| key | default | what |\n|---|---|---|\n"
        } else {
            "| key | what |\n|---|---|\n"
        }
        .to_owned();
        for (name, field) in rows {
            let default =
                if has_defaults { format!(" {} |", self.shown_default(field)) } else { String::new() };
            let _ = writeln!(text, "| `{name}` |{default} {} |", self.explained(field));
        }
        Ok(text)
    }

    /// What a field says, and which words it takes.
    fn explained(&self, field: &Field) -> String {
        let what = cell(&field.what);
        let Some(choice) = self.choices.get(&parts(&field.kind).0) else { return what };
        let words = choice.words.iter().map(|(word, what)| format!("<br>`\"{word}\"`: {}", cell(what)));
        what + &words.collect::<String>()
    }

    /// Sections of objects, and of all that they hold.
    fn objects(&self, roots: &[&str], is_asked: bool) -> Result<String, Vec<String>> {
        let mut text = String::new();
        let mut waiting: Vec<String> = roots.iter().rev().map(|root| (*root).to_owned()).collect();
        let mut shown = BTreeSet::new();
        while let Some(name) = waiting.pop() {
            if !shown.insert(name.clone()) {
                continue;
            }
            if let Some(choice) = self.choices.get(&name) {
                let _ =
                    write!(text, "### {name}\n\n{}\n\n| value | meaning |\n|---|---|\n", prose(&choice.what));
                for (word, what) in &choice.words {
                    let _ = writeln!(text, "| `\"{word}\"` | {} |", cell(what));
                }
                text += "\n";
                continue;
            }
            let object = self.object(&name)?;
            let default = if is_asked { (" default |", "---|") } else { ("", "") };
            let _ = write!(
                text,
                "### {name}\n\n{}\n\n| field | value |{} what |\n|---|---|{}---|\n",
                prose(&object.what),
                default.0,
                default.1
            );
            let mut below = Vec::new();
            for field in &object.fields {
                let value = self.shown_type(&field.kind, &mut below);
                if field.is_flattened {
                    let _ = writeln!(text, "| all of {value} | | {} |", cell(&field.what));
                    continue;
                }
                let default =
                    if is_asked { format!(" {} |", self.shown_default(field)) } else { String::new() };
                let _ = writeln!(text, "| `{}` | {value} |{default} {} |", field.name, cell(&field.what));
            }
            text += "\n";
            waiting.extend(below.into_iter().rev());
        }
        Ok(text)
    }

    /// A type in words of JSON; what has a section of its own is added to `below`, and linked to.
    fn shown_type(&self, kind: &Type, below: &mut Vec<String>) -> String {
        if let Type::Array(array) = kind {
            return format!("list of {}", self.shown_type(&array.elem, below));
        }
        let (name, inner) = parts(kind);
        match (name.as_str(), inner) {
            ("Option", Some(inner)) => format!("{}, or absent", self.shown_type(&inner, below)),
            ("Vec", Some(inner)) => format!("list of {}", self.shown_type(&inner, below)),
            ("String" | "PathBuf" | "Nguid" | "SocketAddr", _) => "text".to_owned(),
            ("Uuid", _) => "UUID".to_owned(),
            ("Size", _) => "size".to_owned(),
            ("bool", _) => "true, false".to_owned(),
            (name, _) if self.objects.contains_key(name) || self.choices.contains_key(name) => {
                below.push(name.to_owned());
                link(name)
            }
            _ => "number".to_owned(),
        }
    }
}

/// A text of documentation as prose of a page.
fn prose(text: &str) -> String {
    cell(text).replace("\\|", "|")
}

/// What `impl Default` gives each field, by the name of the type.
fn own_defaults(item: &syn::ItemImpl) -> Option<(String, BTreeMap<String, Expr>)> {
    let (_, path, _) = item.trait_.as_ref()?;
    if !path.is_ident("Default") {
        return None;
    }
    let syn::ImplItem::Fn(function) = item.items.first()? else { return None };
    let Some(syn::Stmt::Expr(Expr::Struct(value), None)) = function.block.stmts.last() else { return None };
    let fields = value.fields.iter().filter_map(|field| match &field.member {
        syn::Member::Named(name) => Some((name.to_string(), field.expr.clone())),
        syn::Member::Unnamed(_) => None,
    });
    Some((parts(&item.self_ty).0, fields.collect()))
}

/// The last word of a type's path, and its first argument.
fn parts(kind: &Type) -> (String, Option<Type>) {
    let Type::Path(path) = kind else { return (String::new(), None) };
    let Some(last) = path.path.segments.last() else { return (String::new(), None) };
    let inner = match &last.arguments {
        syn::PathArguments::AngleBracketed(all) => all.args.iter().find_map(|argument| match argument {
            syn::GenericArgument::Type(inner) => Some(inner.clone()),
            _ => None,
        }),
        _ => None,
    };
    (last.ident.to_string(), inner)
}

fn is_option(kind: &Type) -> bool {
    parts(kind).0 == "Option"
}

/// A value of the code as a file has it.
fn shown_value(value: &Expr) -> Result<String, String> {
    match value {
        Expr::Lit(literal) => Ok(match &literal.lit {
            Lit::Str(text) => format!("\"{}\"", text.value()),
            Lit::Int(number) => number.base10_digits().to_owned(),
            Lit::Bool(flag) => flag.value.to_string(),
            _ => return Err("a default of a kind that has no place in a file".to_owned()),
        }),
        // `"text".to_owned()`
        Expr::MethodCall(call) if call.args.is_empty() => shown_value(&call.receiver),
        // `PathBuf::from("text")`, `Vec::new()`
        Expr::Call(call) => call.args.first().map_or(Ok("[]".to_owned()), shown_value),
        Expr::Path(path) => {
            Ok(path.path.segments.iter().map(|part| part.ident.to_string()).collect::<Vec<_>>().join("::"))
        }
        Expr::Macro(list) if list.mac.path.is_ident("vec") => {
            let all = list
                .mac
                .parse_body_with(syn::punctuated::Punctuated::<Expr, syn::Token![,]>::parse_terminated);
            let all = all.map_err(|error| error.to_string())?;
            let all: Result<Vec<String>, String> = all.iter().map(shown_value).collect();
            Ok(format!("[{}]", all?.join(", ")))
        }
        _ => Err("a default that cannot be shown; see `shown_value`".to_owned()),
    }
}

/// The documentation of an item in one line.
fn documentation(attributes: &[Attribute]) -> String {
    let mut text = String::new();
    for attribute in attributes {
        let syn::Meta::NameValue(pair) = &attribute.meta else { continue };
        if let (true, Expr::Lit(syn::ExprLit { lit: Lit::Str(line), .. })) =
            (pair.path.is_ident("doc"), &pair.value)
        {
            text += line.value().trim();
            text += " ";
        }
    }
    text.trim().to_owned()
}

fn has(attributes: &[Attribute], name: &str) -> bool {
    attributes.iter().any(|attribute| attribute.path().is_ident(name))
}

/// Calls `found` with each word of the attributes for serde, and its value.
fn serde_words(attributes: &[Attribute], mut found: impl FnMut(&str, Option<String>)) {
    for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("serde")) {
        // What serde takes and this does not is serde's to refuse.
        let _ = attribute.parse_nested_meta(|meta| {
            let value = match meta.value() {
                Ok(value) => Some(value.parse::<syn::LitStr>()?.value()),
                Err(_) => None,
            };
            let name = meta.path.get_ident().map(ToString::to_string).unwrap_or_default();
            found(&name, value);
            Ok(())
        });
    }
}

fn serde_value(attributes: &[Attribute], name: &str) -> Option<String> {
    let mut result = None;
    serde_words(attributes, |word, value| {
        if word == name {
            result = value;
        }
    });
    result
}

fn serde_has(attributes: &[Attribute], name: &str) -> bool {
    let mut result = false;
    serde_words(attributes, |word, _| result |= word == name);
    result
}

/// A name of the code in the spelling that serde gives it.
fn renamed(name: &str, rule: &str) -> String {
    let separator = match rule {
        "kebab-case" => "-",
        "snake_case" => "_",
        "lowercase" => "",
        _ => return name.to_owned(),
    };
    let mut result = String::new();
    for (at, letter) in name.char_indices() {
        if letter.is_ascii_uppercase() && at > 0 {
            result += separator;
        }
        result.push(letter.to_ascii_lowercase());
    }
    result
}

#[cfg(test)]
mod test {
    use super::*;

    const SOURCE: &str = r#"
        /// A table.
        #[serde(deny_unknown_fields, default)]
        pub struct Table {
            /// Where, see `docs/setup.md`.
            pub listen: Vec<String>,
            #[serde(rename = "use", skip_serializing_if = "Option::is_none")]
            /// For | what.
            pub serves: Option<u32>,
            /// How.
            pub mode: Mode,
            /// Below.
            pub levels: Levels,
        }
        impl Default for Table {
            fn default() -> Table {
                Table { listen: vec!["a:1".to_owned()], serves: None, mode: Mode::NotNow, levels: Levels::default() }
            }
        }
        #[derive(Default)]
        #[serde(rename_all = "kebab-case")]
        pub enum Mode {
            /// Later.
            #[default]
            NotNow,
            /// At once.
            Now,
        }
        #[serde(default)]
        pub struct Levels { /// Dies.
            pub dies: Vec<u32> }
        pub struct Spec {
            /// Its name.
            pub name: String,
            /// Its weight.
            #[serde(default = "weight")]
            pub weight: u32,
            /// Its table.
            #[serde(flatten)]
            pub table: Table,
        }
        fn weight() -> u32 { 100 }
    "#;

    fn words() -> Words {
        let mut words = Words::default();
        words.add("a.rs", SOURCE).unwrap();
        words
    }

    #[test]
    fn keys_come_with_their_defaults_and_words() {
        let expected = "| key | default | what |\n|---|---|---|\n\
            | `listen` | `\"a:1\"` | Where, see [setup.md](setup.md). |\n\
            | `use` | - | For \\| what. |\n\
            | `mode` | `\"not-now\"` | How.<br>`\"not-now\"`: Later.<br>`\"now\"`: At once. |\n\
            | `levels.dies` | `[]` | Dies. |\n";
        assert_eq!(words().keys("Table").unwrap(), expected);
        assert_eq!(words().keys("Tables").unwrap_err(), ["there is no type Tables"]);
    }

    #[test]
    fn objects_bring_what_they_hold() {
        let text = words().objects(&["Spec"], true).unwrap();
        for row in [
            "| `name` | text | required | Its name. |",
            "| `weight` | number | `100` | Its weight. |",
            "| all of [Table](#table) | | Its table. |",
            "### Table",
            "| `listen` | list of text | `\"a:1\"` | Where, see [setup.md](setup.md). |",
            "| `\"now\"` | At once. |",
            "### Levels",
        ] {
            assert!(text.contains(row), "{row} is not in\n{text}");
        }
        assert!(words().objects(&["Spec"], false).unwrap().contains("| `weight` | number | Its weight. |"));
    }

    #[test]
    fn routes_are_those_of_the_router() {
        let told = "//! | route | body |\n//! |---|---|\n//! | `GET /v1/a` | [`crate::b::Thing`] |\npub const A: &str = \"/v1/a\";\n";
        let answered = "    .route(route::A, get(a))\n";
        assert_eq!(
            routes(told, answered).unwrap(),
            "| route | body |\n|---|---|\n| `GET /v1/a` | [Thing](#thing) |\n"
        );
        let more = "    .route(route::A, get(a).delete(b))\n    .route(\"/v1/{c}\", post(c))\n";
        assert_eq!(
            routes(told, more).unwrap_err(),
            [
                "crates/api/src/route.rs does not tell of DELETE /v1/a",
                "crates/api/src/route.rs does not tell of POST /v1/{c}"
            ]
        );
        assert_eq!(routes(told, "").unwrap_err(), ["crates/daemon/src/http.rs does not answer GET /v1/a"]);
    }

    #[test]
    fn only_marked_parts_are_drawn() {
        let page = "a\n<!-- drawn: x -->\n\nold\n\n<!-- end -->\nb\n";
        let new = redrawn("p.md", page, |what| Ok(format!("new {what}"))).unwrap();
        assert_eq!(new, "a\n<!-- drawn: x -->\n\nnew x\n\n<!-- end -->\nb\n");
        assert_eq!(redrawn("p.md", &new, |what| Ok(format!("new {what}"))).unwrap(), new);
        assert!(redrawn("p.md", "<!-- drawn: x -->\n", |_| Ok(String::new())).is_err());
    }

    #[test]
    fn a_head_gives_its_first_sentence() {
        let head = "//! The log: [`Store`] of\n//! many. More of it.\n//!\n//! Place.\n";
        assert_eq!(first_sentence(head).unwrap(), "The log: `Store` of many");
        assert_eq!(first_sentence("use a;"), None);
    }
}
