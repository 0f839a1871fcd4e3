//! Goal: `diecut.h` and the library say the same. Method: prototypes are made from the Rust sources by a table of types and
//! compared with those of the header, both ways; sizes, offsets and codes are compared by the C compiler, and by the C++ compiler
//! whether it takes the header at all. Seen failing with an argument left out, a field of another size and a code changed.
#![allow(clippy::disallowed_methods, reason = "runs compilers")]

use diecut::{ABI_VERSION, DiecutBlock, DiecutHeldBlock, DiecutShape, failure};
use diecut_blockspace::wire::Status;
use std::collections::BTreeMap;
use std::mem::offset_of;
use std::path::Path;
use std::process::Command;

const HEADER: &str = include_str!("../include/diecut.h");
const SOURCE: &str = include_str!("../src/lib.rs");

/// What stands for a type of the sources in the header.
const TYPES: [(&str, &str); 26] = [
    ("()", "void"),
    ("c_int", "int"),
    ("u32", "uint32_t"),
    ("u64", "uint64_t"),
    ("usize", "size_t"),
    ("*const c_char", "const char *"),
    ("*const c_void", "const void *"),
    ("*mut c_void", "void *"),
    ("DiecutBlock", "diecut_block"),
    ("*const DiecutBlock", "const diecut_block *"),
    ("*mut DiecutShape", "diecut_shape *"),
    ("*mut DiecutHeldBlock", "diecut_held_block *"),
    ("Option<&DiecutClient>", "const diecut_client *"),
    ("Option<Box<DiecutClient>>", "diecut_client *"),
    ("Option<&mut MaybeUninit<Box<DiecutClient>>>", "diecut_client **"),
    ("Option<&DiecutOperation>", "const diecut_operation *"),
    ("Option<Box<DiecutOperation>>", "diecut_operation *"),
    ("Option<&mut MaybeUninit<Box<DiecutOperation>>>", "diecut_operation **"),
    ("Option<&DiecutEmbedded>", "const diecut_embedded *"),
    ("Option<Box<DiecutEmbedded>>", "diecut_embedded *"),
    ("Option<&mut MaybeUninit<Box<DiecutEmbedded>>>", "diecut_embedded **"),
    ("Option<&mut MaybeUninit<DiecutBlock>>", "diecut_block *"),
    ("Option<&mut MaybeUninit<u32>>", "uint32_t *"),
    ("Option<&mut MaybeUninit<u64>>", "uint64_t *"),
    ("Option<&mut MaybeUninit<usize>>", "size_t *"),
    ("Option<&mut MaybeUninit<DiecutShape>>", "diecut_shape *"),
];

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn c_type(rust: &str) -> &'static str {
    let found = TYPES.iter().find(|(known, _)| *known == rust.trim());
    found.unwrap_or_else(|| panic!("{rust}: no type of C for it")).1
}

fn with_name(c_type: &str, name: &str) -> String {
    if c_type.ends_with('*') { format!("{c_type}{name}") } else { format!("{c_type} {name}") }
}

/// Prototypes by name, as C writes them.
fn of_the_sources() -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for part in SOURCE.split("#[unsafe(no_mangle)]").skip(1) {
        let (_, rest) = part.split_once("extern \"C\" fn ").expect("what has a symbol is a function of C");
        let (name, rest) = rest.split_once('(').unwrap();
        let (signature, _) = rest.split_once(" {\n").unwrap();
        let (arguments, result) = signature.rsplit_once(')').unwrap();
        let result = result.trim().strip_prefix("->").map_or("()", str::trim);
        let arguments: Vec<_> = arguments
            .split(',')
            .filter_map(|argument| argument.trim().split_once(": "))
            .map(|(name, rust)| with_name(c_type(rust), name))
            .collect();
        let arguments = if arguments.is_empty() { "void".to_owned() } else { arguments.join(", ") };
        let prototype = with_name(c_type(result), &format!("{name}({arguments})"));
        assert!(found.insert(name.to_owned(), prototype).is_none());
    }
    found
}

/// Prototypes by name, as the header has them.
fn of_the_header() -> BTreeMap<String, String> {
    let mut text = HEADER.to_owned();
    while let Some(start) = text.find("/*") {
        let end = start + text[start..].find("*/").expect("comments end") + 2;
        text.replace_range(start..end, "");
    }
    let text: String = text.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>().join("\n");
    let mut found = BTreeMap::new();
    for statement in text.split(';').map(one_line).filter(|statement| statement.contains('(')) {
        let statement = statement.strip_prefix("extern \"C\" {").unwrap_or(&statement).trim().to_owned();
        let before = statement.split('(').next().unwrap();
        let name = before.rsplit([' ', '*']).next().unwrap().to_owned();
        assert!(found.insert(name, statement).is_none());
    }
    found
}

#[test]
fn prototypes_are_those_of_the_sources() {
    let (sources, header) = (of_the_sources(), of_the_header());
    assert!(sources.len() > 20, "the sources are read: {sources:?}");
    assert_eq!(sources, header);
}

fn compile(compiler: &str, flags: &[&str], name: &str, text: &str) {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join(name);
    std::fs::write(&source, text).unwrap();
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("include");
    let output = Command::new(compiler)
        .args(["-Wall", "-Wextra", "-Werror", "-pedantic", "-fsyntax-only", "-I"])
        .arg(include)
        .args(flags)
        .arg(&source)
        .output()
        .expect("a C compiler is installed: make setup");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn structures_and_codes_are_those_of_the_sources() {
    let mut text = "#include <diecut.h>\n".to_owned();
    let mut same = |expression: &str, value: usize| {
        text += &format!("_Static_assert({expression} == {value}, \"{expression}\");\n");
    };
    macro_rules! structure {
        ($name:literal, $type:ty, $($field:ident)*) => {
            same(concat!("sizeof(", $name, ")"), size_of::<$type>());
            let known = <$type>::default();
            $(
                same(concat!("offsetof(", $name, ", ", stringify!($field), ")"), offset_of!($type, $field));
                same(concat!("sizeof(((", $name, " *)0)->", stringify!($field), ")"), size_of_val(&known.$field));
            )*
        };
    }
    structure!("diecut_block", DiecutBlock, unit reserved index);
    structure!(
        "diecut_shape", DiecutShape, block_size_bytes append_unit_bytes read_unit_bytes append_max_bytes read_max_bytes
        page_size_bytes unsafe_units units reserved
    );
    structure!("diecut_held_block", DiecutHeldBlock, block purpose written_pages allocation_sequence);
    same("DIECUT_ABI_VERSION", ABI_VERSION as usize);
    let own = [
        ("OK", Status::Done as i32),
        ("SERVER_GONE", failure::SERVER_GONE),
        ("NO_SERVER", failure::NO_SERVER),
        ("SYSTEM", failure::SYSTEM),
        ("TOO_SMALL", failure::TOO_SMALL),
        ("INTERNAL", failure::INTERNAL),
    ];
    for (name, code) in own {
        same(&format!("DIECUT_{name}"), code as usize);
    }
    // NoFreeBlock is NO_FREE_BLOCK.
    let statuses = (1..).map_while(Status::from_code);
    let mut count = own.len();
    for status in statuses {
        let mut name = String::new();
        for letter in format!("{status:?}").chars() {
            if letter.is_uppercase() {
                name.push('_');
            }
            name.push(letter.to_ascii_uppercase());
        }
        same(&format!("DIECUT{name}"), status as usize);
        count += 1;
    }
    let codes = HEADER.lines().filter(|line| line.trim().starts_with("DIECUT_") && line.contains(" = "));
    assert_eq!(codes.count(), count, "the header has no code that the library does not have");
    compile("cc", &["-std=c11"], "same.c", &text);
}

#[test]
fn older_and_other_compilers_take_the_header() {
    let text = "#include <diecut.h>\nint main(void) { return 0; }\n";
    compile("cc", &["-std=c99"], "plain.c", text);
    compile("c++", &["-std=c++11"], "plain.cpp", text);
}
