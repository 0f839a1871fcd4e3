use crate::counted::Instructions;
use comfy_table::{Table, presets};
use serde::Serialize;

/// What a row should come to.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    /// At least this.
    AtLeast(f64),
    /// At most this.
    AtMost(f64),
}

impl Target {
    fn holds(self, value: f64) -> bool {
        match self {
            Target::AtLeast(least) => value >= least,
            Target::AtMost(most) => value <= most,
        }
    }
}

/// One row of the table.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Which item it answers.
    pub id: &'static str,
    /// What was measured.
    pub what: String,
    /// Unit of `reference` and `value`.
    pub unit: &'static str,
    /// What it is compared with, median of the repetitions; none if the target is absolute.
    pub reference: Option<f64>,
    /// Median of the repetitions.
    pub value: f64,
    /// Of each repetition: value over reference, or the value itself if there is none.
    pub ratios: Vec<f64>,
    /// Median of the above: what the target is about.
    pub ratio: f64,
    /// What it should come to; none for rows that only inform.
    pub target: Option<Target>,
    /// System calls per operation: of the raw loop's server and client, and of ours and its load.
    pub system_calls: Option<[f64; 4]>,
    /// Instructions of the server's thread per operation, kernel included, where the machine's counter is to be had.
    pub instructions: Option<f64>,
    /// Instructions of the server's side in user space per operation, counted one by one under valgrind.
    pub instructions_counted: Option<Instructions>,
    /// More to know.
    pub note: String,
}

/// The middle one; of an even number the mean of both.
pub(crate) fn median(values: &[f64]) -> f64 {
    assert!(!values.is_empty(), "there is a repetition");
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[middle] } else { (sorted[middle - 1] + sorted[middle]) / 2.0 }
}

impl Row {
    /// From the repetitions of both sides.
    pub(crate) fn of(id: &'static str, what: &str, unit: &'static str, samples: &[(f64, f64)]) -> Row {
        let ratios: Vec<f64> = samples.iter().map(|(reference, value)| value / reference).collect();
        let column = |pick: fn(&(f64, f64)) -> f64| median(&samples.iter().map(pick).collect::<Vec<_>>());
        Row {
            id,
            what: what.to_owned(),
            unit,
            reference: Some(column(|one| one.0)),
            value: column(|one| one.1),
            ratio: median(&ratios),
            ratios,
            target: None,
            system_calls: None,
            instructions: None,
            instructions_counted: None,
            note: String::new(),
        }
    }

    /// From a figure whose target is absolute.
    pub(crate) fn absolute(id: &'static str, what: &str, unit: &'static str, value: f64) -> Row {
        let mut row = Row::of(id, what, unit, &[(1.0, value)]);
        row.reference = None;
        row
    }

    /// Whether the target is met, if there is one.
    pub fn holds(&self) -> Option<bool> {
        self.target.map(|target| target.holds(self.ratio))
    }
}

/// Everything that was measured.
#[derive(Clone, Debug, Serialize)]
pub struct Suite {
    /// Processor, cores and kernel.
    pub machine: String,
    /// Repetitions of each row.
    pub repetitions: usize,
    /// Why the machine's counter of instructions is missing, if it is.
    pub instructions_missing: Option<String>,
    /// Why instructions were not counted one by one, if they were not.
    pub instructions_counted_missing: Option<String>,
    /// Why the rows of a drive are missing, if they are.
    pub drive_missing: Option<String>,
    /// What disturbed the run.
    pub disturbance: Vec<String>,
    /// The rows.
    pub rows: Vec<Row>,
}

impl Suite {
    /// For people.
    pub fn table(&self) -> String {
        let mut table = Table::new();
        table.load_preset(presets::ASCII_MARKDOWN);
        table.set_header([
            "item",
            "what",
            "reference",
            "measured",
            "ratio (least to most)",
            "target",
            "calls/op raw",
            "calls/op ours",
            "instructions/op",
            "note",
        ]);
        for row in &self.rows {
            let number = |value: f64| match row.unit {
                "k/s" => format!("{:.0} k/s", value / 1e3),
                "M/s" => format!("{value:.2} M/s"),
                unit => format!("{value:.1} {unit}"),
            };
            let bound =
                |pick: fn(f64, f64) -> f64| row.ratios.iter().copied().reduce(pick).unwrap_or(row.ratio);
            let ratio = format!("{:.2} ({:.2} to {:.2})", row.ratio, bound(f64::min), bound(f64::max));
            let target = match (row.target, row.holds()) {
                (Some(Target::AtLeast(least)), Some(holds)) => format!(">= {least} {}", verdict(holds)),
                (Some(Target::AtMost(most)), Some(holds)) => format!("<= {most} {}", verdict(holds)),
                _ => "-".to_owned(),
            };
            let calls = |at: usize| {
                row.system_calls
                    .map_or("-".to_owned(), |calls| format!("{:.3} + {:.3}", calls[at], calls[at + 1]))
            };
            table.add_row([
                row.id.to_owned(),
                row.what.clone(),
                row.reference.map_or("-".to_owned(), number),
                number(row.value),
                if row.reference.is_some() { ratio } else { "-".to_owned() },
                target,
                calls(0),
                calls(2),
                match (&row.instructions_counted, &self.instructions_counted_missing) {
                    (Some(counted), _) => format!("{:.0}{}", counted.total, retired(row)),
                    (None, Some(_)) => format!("MISSING{}", retired(row)),
                    (None, None) => format!("-{}", retired(row)),
                },
                row.note.clone(),
            ]);
        }
        let mut text = format!("{}\n{} repetitions, medians\n\n{table}\n", self.machine, self.repetitions);
        text += "\ncalls/op: system calls per operation of the server + of the load. Ratios: measured over reference.\n";
        text += "instructions/op: in user space, of the server's side (shard and below, without reactor and kernel) or of the engine and\n";
        text += "its loop, counted under valgrind; in brackets those of the server's thread by the machine's counter, kernel included.\n";
        let counted = self.rows.iter().filter_map(|row| Some((row.id, row.instructions_counted.as_ref()?)));
        text += &instructions_table(&counted.collect::<Vec<_>>());
        if let Some(why) = &self.instructions_counted_missing {
            text += &format!("\nINSTRUCTIONS PER OPERATION ARE MISSING: {why}\n");
        }
        if let Some(why) = &self.drive_missing {
            text += &format!("\nTHE ROWS OF A DRIVE (l) ARE MISSING: {why}\n");
        }
        if let Some(why) = &self.instructions_missing {
            text += &format!("\nNo instructions in brackets: {why}\n");
        }
        for line in &self.disturbance {
            text += &format!("\nDISTURBED: {line}\n");
        }
        text
    }
}

/// Where instructions go: a line for each room, a column for each counted row.
pub fn instructions_table(rows: &[(&str, &Instructions)]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let of = |instructions: &Instructions, room: &str| {
        instructions.by_room.iter().find(|(name, _)| name == room).map_or(0.0, |(_, count)| *count)
    };
    let mut rooms: Vec<&str> = Vec::new();
    for (room, _) in rows.iter().flat_map(|(_, instructions)| &instructions.by_room) {
        if !rooms.contains(&room.as_str()) {
            rooms.push(room);
        }
    }
    let all = |room: &str| rows.iter().map(|(_, instructions)| of(instructions, room)).sum::<f64>();
    rooms.sort_by(|one, other| all(other).total_cmp(&all(one)));
    let mut table = Table::new();
    table.load_preset(presets::ASCII_MARKDOWN);
    table.set_header(std::iter::once("room").chain(rows.iter().map(|(id, _)| *id)));
    for room in rooms {
        let counts = rows.iter().map(|(_, instructions)| match of(instructions, room) {
            0.0 => "-".to_owned(),
            count => format!("{count:.0}"),
        });
        table.add_row(std::iter::once(room.to_owned()).chain(counts));
    }
    table.add_row(
        std::iter::once("all".to_owned())
            .chain(rows.iter().map(|(_, instructions)| format!("{:.0}", instructions.total))),
    );
    // A part of the rooms above.
    let explaining = rows.iter().map(|(_, instructions)| {
        format!(
            "{:.0} ({:.1} %)",
            instructions.explaining,
            100.0 * instructions.explaining / instructions.total
        )
    });
    table.add_row(std::iter::once("where the time went".to_owned()).chain(explaining));
    format!("\nInstructions per operation by room:\n\n{table}\n")
}

/// By the machine's counter.
fn retired(row: &Row) -> String {
    row.instructions.map_or(String::new(), |count| format!(" ({count:.0})"))
}

fn verdict(holds: bool) -> &'static str {
    if holds { "met" } else { "MISSED" }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn a_ratio_is_the_median_of_ratios() {
        // One disturbed repetition moves neither.
        let row = Row::of("a", "x", "k/s", &[(100.0, 60.0), (10.0, 9.0), (120.0, 66.0)]);
        assert_eq!((row.ratio, row.reference, row.value), (0.6, Some(100.0), 60.0));
        let mut row = Row::of("a", "x", "k/s", &[(1.0, 2.0), (1.0, 4.0)]);
        row.target = Some(Target::AtMost(3.0));
        assert_eq!((row.ratio, row.holds()), (3.0, Some(true)));
        row.target = Some(Target::AtLeast(3.5));
        assert_eq!(row.holds(), Some(false));
    }

    #[test]
    fn missing_counts_are_said_loudly() {
        let mut row = Row::of("a", "x", "k/s", &[(1.0, 2.0)]);
        row.instructions_counted = Some(Instructions {
            total: 1710.4,
            by_room: vec![("nvmf".to_owned(), 1234.0)],
            explaining: 17.1,
        });
        let suite = |missing: Option<&str>, row: &Row| Suite {
            machine: String::new(),
            repetitions: 1,
            instructions_missing: None,
            instructions_counted_missing: missing.map(str::to_owned),
            drive_missing: None,
            disturbance: Vec::new(),
            rows: vec![row.clone()],
        };
        let table = suite(None, &row).table();
        for text in ["| 1710 ", "| nvmf ", "| 1234 ", "| where the time went | 17 (1.0 %) |"] {
            assert!(table.contains(text), "{text}: {table}");
        }
        row.instructions_counted = None;
        let table = suite(Some("no valgrind"), &row).table();
        assert!(table.contains("| MISSING ") && table.contains("ARE MISSING: no valgrind"), "{table}");
    }
}
