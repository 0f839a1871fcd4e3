//! Tables for people, JSON for programs.

use comfy_table::presets::UTF8_BORDERS_ONLY;
use comfy_table::{ContentArrangement, Table};
use serde::Serialize;

/// Prints rows under a header.
pub fn table(header: &[&str], rows: Vec<Vec<String>>) {
    println!("{}", table_text(header, rows));
}

/// Rows under a header, as text.
pub fn table_text(header: &[&str], rows: Vec<Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_preset(UTF8_BORDERS_ONLY).set_content_arrangement(ContentArrangement::Dynamic);
    table.set_header(header);
    for row in rows {
        table.add_row(row);
    }
    table.to_string()
}

/// Prints a value as JSON.
pub fn json(value: &impl Serialize) {
    println!("{}", serde_json::to_string_pretty(value).expect("answers are plain data"));
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
