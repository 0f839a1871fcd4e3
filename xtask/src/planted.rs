//! A planted bug wraps one call or one value, at one place: what runs without it reads as if it were not there, and what it breaks
//! is one thing. `assert!` may name it, too: an assert that the bug breaks would catch it before the check that it is planted for.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

/// Bugs that need more than one place, and why.
const SEVERAL_PLACES: &[(&str, usize, &str)] = &[
    (
        "blockspace: append answered before its programs",
        4,
        "an answer that is given early is not given again, nor waited for",
    ),
    (
        "nvmf: silent connections keep all places",
        2,
        "room is made in two ways, and each of them hides that the other is gone",
    ),
    (
        "vssd: erase before free durable",
        3,
        "that a block is free is written down with the next allocation, and that after its erase",
    ),
];

/// Reads the sources of all rooms.
pub fn check(root: &Path) -> Result<String, Vec<String>> {
    let mut files = Vec::new();
    for folder in ["crates", "apps"] {
        let rooms =
            std::fs::read_dir(root.join(folder)).map_err(|error| vec![format!("{folder}: {error}")])?;
        rooms.flatten().for_each(|room| crate::house::rust_files(&room.path().join("src"), &mut files));
    }
    files.sort();
    let (mut problems, mut places) = (Vec::new(), Places::new());
    for path in files {
        let shown = path.strip_prefix(root).unwrap_or(&path).to_path_buf();
        let text =
            std::fs::read_to_string(&path).map_err(|error| vec![format!("{}: {error}", shown.display())])?;
        if text.contains("mutant!") {
            problems.extend(read(&shown, &text, &mut places)?);
        }
    }
    problems.extend(scattered(&places, SEVERAL_PLACES));
    if problems.is_empty() {
        Ok(format!("planted bugs: {}, each wraps one call or value", places.len()))
    } else {
        Err(problems)
    }
}

/// Where bugs stand, by name.
type Places = BTreeMap<String, Vec<String>>;

fn read(file: &Path, text: &str, places: &mut Places) -> Result<Vec<String>, Vec<String>> {
    let parsed = syn::parse_file(text).map_err(|error| vec![format!("{}: {error}", file.display())])?;
    let mut reader = Reader { file: file.to_path_buf(), problems: Vec::new(), places };
    reader.visit_file(&parsed);
    Ok(reader.problems)
}

/// Bugs at more places than they may have, and entries of the list that nothing needs.
fn scattered(places: &Places, allowed: &[(&str, usize, &str)]) -> Vec<String> {
    let mut problems = Vec::new();
    for (name, at) in places {
        let most = allowed.iter().find(|(known, ..)| known == name).map_or(1, |(_, most, _)| *most);
        if at.len() > most {
            problems.push(format!("{}: \"{name}\" is planted at {} places", at.join(", "), at.len()));
        } else if at.len() < most {
            problems.push(format!("xtask/src/planted.rs: \"{name}\" needs {} places, not {most}", at.len()));
        }
    }
    let gone = allowed.iter().filter(|(name, ..)| !places.contains_key(*name));
    problems.extend(gone.map(|(name, ..)| format!("xtask/src/planted.rs: there is no bug \"{name}\"")));
    problems
}

struct Reader<'a> {
    file: PathBuf,
    problems: Vec<String>,
    places: &'a mut Places,
}

/// What a condition has to do with planted bugs.
#[derive(Clone, Copy, PartialEq)]
enum Reach {
    /// Nothing, or a bug is one part of it: it wraps that value.
    Part,
    /// It holds only with the bug.
    OnlyWith,
    /// It is the bug, or that it is not there: whatever hangs on it is what the bug wraps.
    Bare,
}

fn is_bug(one: &syn::Macro) -> bool {
    one.path.segments.last().is_some_and(|segment| segment.ident == "mutant")
}

fn reach(condition: &syn::Expr) -> Reach {
    match condition {
        syn::Expr::Macro(one) if is_bug(&one.mac) => Reach::Bare,
        syn::Expr::Unary(not) if matches!(not.op, syn::UnOp::Not(_)) => match reach(&not.expr) {
            Reach::Bare => Reach::Bare,
            _ => Reach::Part,
        },
        syn::Expr::Paren(inner) => reach(&inner.expr),
        syn::Expr::Binary(both) => {
            let only = |side: &syn::Expr| {
                let is_negated = matches!(side, syn::Expr::Unary(_));
                !is_negated && reach(side) != Reach::Part
            };
            let (left, right) = (only(&both.left), only(&both.right));
            match both.op {
                syn::BinOp::And(_) if left || right => Reach::OnlyWith,
                syn::BinOp::Or(_) if left && right => Reach::OnlyWith,
                _ => Reach::Part,
            }
        }
        _ => Reach::Part,
    }
}

/// How many things a block does.
fn deeds_of(block: &syn::Block) -> usize {
    block
        .stmts
        .iter()
        .map(|statement| match statement {
            syn::Stmt::Expr(expression, _) => deeds(expression),
            // A mark counts, and does nothing else.
            syn::Stmt::Macro(one) => usize::from(!one.mac.path.is_ident("mark")),
            syn::Stmt::Local(_) | syn::Stmt::Item(_) => 1,
        })
        .sum()
}

fn deeds(expression: &syn::Expr) -> usize {
    match expression {
        syn::Expr::Block(one) => deeds_of(&one.block),
        syn::Expr::If(one) => {
            deeds_of(&one.then_branch) + one.else_branch.as_ref().map_or(0, |(_, other)| deeds(other))
        }
        syn::Expr::ForLoop(one) => deeds_of(&one.body),
        syn::Expr::While(one) => deeds_of(&one.body),
        syn::Expr::Match(one) => one.arms.iter().map(|arm| deeds(&arm.body)).sum(),
        _ => 1,
    }
}

impl Reader<'_> {
    fn report(&mut self, at: &impl Spanned, deeds: usize) {
        let line = at.span().start().line;
        self.problems.push(format!(
            "{}:{line}: a planted bug wraps {deeds} statements; let it wrap one call or one value",
            self.file.display()
        ));
    }
}

impl<'ast> Visit<'ast> for Reader<'_> {
    fn visit_expr_if(&mut self, one: &'ast syn::ExprIf) {
        let reach = reach(&one.cond);
        let then = deeds_of(&one.then_branch);
        if reach != Reach::Part && then > 1 {
            self.report(one, then);
        }
        if let (Reach::Bare, Some((_, other))) = (reach, &one.else_branch)
            && deeds(other) > 1
        {
            self.report(one, deeds(other));
        }
        visit::visit_expr_if(self, one);
    }
    fn visit_arm(&mut self, arm: &'ast syn::Arm) {
        if let Some((_, guard)) = &arm.guard
            && reach(guard) != Reach::Part
            && deeds(&arm.body) > 1
        {
            self.report(arm, deeds(&arm.body));
        }
        visit::visit_arm(self, arm);
    }
    fn visit_macro(&mut self, one: &'ast syn::Macro) {
        if is_bug(one)
            && let Ok(name) = one.parse_body::<syn::LitStr>()
            && !name.value().starts_with("test: ")
        {
            let place = format!("{}:{}", self.file.display(), one.span().start().line);
            self.places.entry(name.value()).or_default().push(place);
        }
        visit::visit_macro(self, one);
    }
}

#[cfg(test)]
mod test {
    use super::*;

    fn problems(body: &str) -> usize {
        let text = format!("fn f() {{ {body} }}");
        read(Path::new("a.rs"), &text, &mut Places::new()).expect("it is Rust").len()
    }

    #[test]
    fn one_call_or_one_value_may_be_wrapped() {
        for body in [
            "if mutant!(\"a\") { return; }",
            "if !mutant!(\"a\") { publish(); }",
            "if !mutant!(\"a\") { for one in all { free(one); } }",
            "let a = if mutant!(\"a\") { 0 } else { burst / 16 };",
            "if is_live || mutant!(\"a\") { copy(); append(); }",
            "if waits && !mutant!(\"a\") { mark!(\"b\"); copy(); append(); }",
            "if let Some(one) = found && mutant!(\"a\") { mark!(\"b\"); swap(one); }",
            "match a { 1 if mutant!(\"a\") => 0, _ => { b(); c() } }",
            "assert!(a || units::mutant!(\"a\"));",
            "u64::from(mutant!(\"a\")) + 1",
        ] {
            assert_eq!(problems(body), 0, "{body}");
        }
    }

    #[test]
    fn more_is_reported() {
        for body in [
            "if mutant!(\"a\") { forget(); return; }",
            "if !mutant!(\"a\") { copy(); append(); }",
            "if (!mutant!(\"a\")) { copy(); append(); }",
            "if mutant!(\"a\") { 0 } else { let b = c(); b + 1 }",
            "if let Some(one) = found && mutant!(\"a\") { swap(one); give(one); }",
            "if is_late || is_early { if mutant!(\"a\") || mutant!(\"b\") { c(); d(); } }",
            "match a { 1 if mutant!(\"a\") => { b(); c() } _ => 0 }",
        ] {
            assert_eq!(problems(body), 1, "{body}");
        }
    }

    #[test]
    fn a_bug_stands_at_one_place_unless_the_list_says_why_not() {
        let mut places = Places::new();
        let text =
            "fn f() { if mutant!(\"a\") { g(); } if mutant!(\"a\") { h(); } assert!(b || mutant!(\"a\")); }";
        read(Path::new("a.rs"), text, &mut places).expect("it is Rust");
        assert_eq!(scattered(&places, &[]), ["a.rs:1, a.rs:1: \"a\" is planted at 2 places"]);
        assert_eq!(scattered(&places, &[("a", 2, "both ends")]), Vec::<String>::new());
        assert_eq!(scattered(&places, &[("a", 3, ""), ("b", 2, "")]).len(), 2);
    }
}
