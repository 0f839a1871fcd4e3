//! What a restart on a drive costs for each TiB that is mapped: the shard opens a pool on a drive in memory that keeps a word of each block.
//!
//! Processor time of this thread, without that of the drive, which a real one would take itself.

use super::super::row::{Row, Target, median};
use super::super::servers::{STACK, drive_shard, stack_requests_of};
use super::Outcome;
use crate::counted::carrier::{Carrier, MemoryDrive, processor_time};
use crate::counted::rows::{anywhere, content, content_of};
use crate::counted::wire::{Ask, Wire};
use diecut_devices::DriveShape;

pub(super) const ID: &str = "l restart";
/// That are mapped.
const SIZES_GIB: [u64; 3] = [64, 256, 1024];
/// Memory that a GiB takes here: the map, its leaves and the heads of chunks as they are kept, a word for each page.
const MEMORY_PER_GIB: u64 = 14 << 20;
/// Between two restarts.
const OVERWRITES: u64 = 200_000;
const RESTARTS: u64 = 5;
/// Blocks of a command that fills the volume, and commands under way.
const FILL_BLOCKS: u32 = 32;
const FILL_DEPTH: usize = 16;

fn available_bytes() -> Outcome<u64> {
    let text = std::fs::read_to_string("/proc/meminfo")?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    Ok(kib.ok_or("/proc/meminfo does not say what is available")? << 10)
}

/// Seconds of each restart with so much mapped.
fn restarts(gib: u64) -> Outcome<Vec<f64>> {
    let size_bytes = gib << 30;
    let drive_bytes = size_bytes / 2 * 3;
    let shape = DriveShape::suggest(drive_bytes, None)?;
    let mut wire = Wire::on(drive_shard(shape, true), Carrier::Memory(MemoryDrive::new(drive_bytes)));
    wire.open()?;
    for request in stack_requests_of(size_bytes, shape.lanes) {
        wire.ask(request)?;
    }
    let blocks = Ask { content: Some(content()), ..anywhere(size_bytes / 4096) };
    let mut lines = wire.connect(STACK, 1, 1, 128)?;
    let fill = Ask {
        batch: FILL_DEPTH,
        blocks: FILL_BLOCKS,
        content: Some(content_of(FILL_BLOCKS)),
        in_order: true,
        ..blocks.clone()
    };
    wire.run(
        &mut lines,
        std::slice::from_ref(&fill),
        blocks.lbas / (FILL_DEPTH as u64 * u64::from(FILL_BLOCKS)),
    )?;
    let mut took = Vec::new();
    for _ in 0..RESTARTS {
        wire.run(&mut lines, std::slice::from_ref(&blocks), OVERWRITES / blocks.batch as u64)?;
        let carrier = wire.die();
        let (begun, of_drive) = (processor_time(), carrier.took());
        wire = Wire::on(drive_shard(shape, false), carrier);
        wire.open()?;
        lines = wire.connect(STACK, 1, 1, 128)?;
        for ask in [Ask { content: None, ..blocks.clone() }, blocks.clone()] {
            wire.run(&mut lines, &[Ask { batch: 1, ..ask }], 1)?;
        }
        let all = processor_time() - begun;
        took.push((all - (wire.carrier().took() - of_drive)).as_secs_f64());
    }
    Ok(took)
}

/// The slope of a line through points, by least squares.
fn slope(points: &[(f64, f64)]) -> f64 {
    let count = points.len() as f64;
    let mean = |pick: fn(&(f64, f64)) -> f64| points.iter().map(pick).sum::<f64>() / count;
    let (x, y) = (mean(|one| one.0), mean(|one| one.1));
    let products: f64 = points.iter().map(|one| (one.0 - x) * (one.1 - y)).sum();
    products / points.iter().map(|one| (one.0 - x).powi(2)).sum::<f64>()
}

pub(super) fn row(say: &mut dyn FnMut(&str)) -> Outcome<Row> {
    let available = available_bytes()?;
    let (fit, too_large): (Vec<u64>, Vec<u64>) =
        SIZES_GIB.iter().partition(|gib| **gib * MEMORY_PER_GIB < available);
    let (mut points, mut note) = (Vec::new(), String::new());
    for gib in fit {
        say(&format!("{ID}: {gib} GiB"));
        let took = restarts(gib)?;
        note += &format!("{gib} GiB: {:.2} s; ", median(&took));
        points.push((gib as f64 / 1024.0, median(&took)));
    }
    if points.len() < 2 {
        return Err("there is too little memory for two sizes".into());
    }
    note += &format!("median of {RESTARTS} restarts each");
    if !too_large.is_empty() {
        note += &format!("; NO MEMORY FOR {too_large:?} GiB");
    }
    let what =
        "restart on a drive, until a read and a write are served: processor time per TiB mapped, slope";
    let mut row = Row::absolute(ID, what, "s", slope(&points));
    row.target = Some(Target::AtMost(1.0));
    row.note = note;
    Ok(row)
}
