//! Tables for people, JSON for programs.

use comfy_table::presets::UTF8_BORDERS_ONLY;
use comfy_table::{ColumnConstraint, ContentArrangement, Table};
use serde::Serialize;
use std::io::IsTerminal;

/// Columns of a table that goes to no terminal, whose width would be known.
const WIDTH: u16 = 120;
/// Least columns: a narrower table has a letter or two in a line.
const WIDTH_MIN: u16 = 40;

/// Prints a line, or several. If that cannot be, the program ends ([`diecut_sim::output`]).
pub fn line(text: &str) {
    diecut_sim::say!("{text}");
}

/// Prints rows under a header.
pub fn table(header: &[&str], rows: Vec<Vec<String>>) {
    line(&table_text(header, rows));
}

/// Fields of an object as rows.
pub fn field_rows(fields: Vec<(&str, String)>) -> Vec<Vec<String>> {
    fields.into_iter().map(|(field, value)| vec![field.to_owned(), value]).collect()
}

/// Prints what was chosen of an object, as files call it.
pub fn fields(kind: &str, name: &str, fields: Vec<(&str, String)>) {
    table(&[kind, name], field_rows(fields));
}

/// What shows `text` again and again: on a terminal in the same place, elsewhere below what was shown before.
pub fn again(text: &str) {
    // Home first and the rest cleared last, so that the terminal does not flicker.
    if std::io::stdout().is_terminal() {
        diecut_sim::output::write(format_args!("\x1b[H{}\x1b[J", text.replace('\n', "\x1b[K\n")));
    } else {
        diecut_sim::output::write(format_args!("{text}"));
    }
}

/// Rows under a header, as text. It is as wide as the terminal at most, where that has 40 columns; cells are broken into lines where they must.
pub fn table_text(header: &[&str], rows: Vec<Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_preset(UTF8_BORDERS_ONLY).set_content_arrangement(ContentArrangement::Dynamic);
    // A serial console says that it has no columns.
    let width = table.width().filter(|width| *width > 0).unwrap_or(WIDTH);
    table.set_width(width.max(WIDTH_MIN));
    table.set_header(header);
    for row in rows {
        table.add_row(row);
    }
    // An identity is copied as a whole.
    if let Some(column) =
        header.iter().position(|name| *name == "uuid").and_then(|index| table.column_mut(index))
    {
        column.set_constraint(ColumnConstraint::ContentWidth);
    }
    table.to_string()
}

/// Prints a value as JSON.
pub fn json(value: &impl Serialize) {
    line(&serde_json::to_string_pretty(value).expect("answers are plain data"));
}

/// Prints a value as JSON on a line of its own.
pub fn json_line(value: &impl Serialize) {
    line(&serde_json::to_string(value).expect("figures are plain data"));
}

/// Says what was done: `created volume "disk"`, or an object with the same words.
pub fn done(as_json: bool, done: &str, kind: &str, name: &str, detail: &str) {
    if as_json {
        let kind = kind.to_lowercase();
        return json(&serde_json::json!({ "done": done, "kind": kind, "name": name, "detail": detail }));
    }
    let detail = if detail.is_empty() { String::new() } else { format!(" ({detail})") };
    let name = if name.is_empty() { String::new() } else { format!(" \"{name}\"") };
    line(&format!("{done} {kind}{name}{detail}"));
}

/// Says what came of a creation, or of one that changed nothing because it was so already.
pub fn made(as_json: bool, changed: bool, verb: &str, kind: &str, name: &str, detail: &str) {
    if changed {
        return done(as_json, verb, kind, name, detail);
    }
    if as_json {
        return done(true, "unchanged", kind, name, detail);
    }
    let detail = if detail.is_empty() { String::new() } else { format!(" ({detail})") };
    line(&format!("{kind} \"{name}\"{detail} exists already, unchanged"));
}

/// A latency in the unit that reads best.
pub fn latency(nanos: u64) -> String {
    match nanos {
        0 => "-".to_string(),
        n if n < 10_000 => format!("{n} ns"),
        n if n < 10_000_000 => format!("{:.1} us", n as f64 / 1e3),
        n => format!("{:.1} ms", n as f64 / 1e6),
    }
}
