//! How long hosts wait while their tenant changes its shard, in virtual time: a table of [`diecut_sim::relocation`]. The same
//! figures each time.
//!
//!     cargo run --release -p diecut-sim --example relocation

use comfy_table::Table;
use diecut_sim::relocation::{Gaps, Setting, measure};

fn main() -> Result<(), String> {
    let base = Setting {
        depth: 1,
        writes_depth: 0,
        mapped_bytes: 1 << 30,
        hosts: 1,
        io_queues: 2,
        moves: 40,
        seed: 1,
    };
    let mut rows = Vec::new();
    for depth in [1, 32] {
        let base = Setting { depth, ..base };
        rows.push(base);
        rows.push(Setting { mapped_bytes: 16 << 30, ..base });
        rows.push(Setting { io_queues: 64, ..base });
        rows.push(Setting { io_queues: 64, hosts: 8, ..base });
        rows.push(Setting { writes_depth: 8, ..base });
        rows.push(Setting { writes_depth: 32, ..base });
    }
    let mut table = Table::new();
    table.set_header([
        "reads at once",
        "writes at once",
        "mapped GiB",
        "connections",
        "gap of reads, us",
        "moving",
        "gap of writes, us",
        "moving",
        "answered after, us",
    ]);
    let text = |gaps: Gaps| match gaps {
        Gaps { longest_us: 0.0, .. } => "-".to_owned(),
        gaps => format!("{:.0} ({:.0})", gaps.median_us, gaps.longest_us),
    };
    for setting in rows {
        let outcome = measure(&setting)?;
        table.add_row([
            setting.depth.to_string(),
            setting.writes_depth.to_string(),
            (setting.mapped_bytes >> 30).to_string(),
            (setting.hosts * (setting.io_queues + 1)).to_string(),
            text(outcome.still),
            text(outcome.moving),
            text(outcome.writes_still),
            text(outcome.writes_moving),
            text(outcome.answered),
        ]);
    }
    println!(
        "{table}\nThe longest gap between two answers in a window of time, median of {} windows (the longest of all).",
        base.moves
    );
    Ok(())
}
