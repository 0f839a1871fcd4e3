//! Writes through the contracts of flash, against writes to blocks: a placement handle and Zone Append, where each byte is programmed once.
//!
//! The shipped shard is driven with bytes, without sockets and kernel, as where instructions are counted: what is compared is what a
//! contract costs the server.

use super::cases::SuiteSettings;
use super::row::{Row, Target, median};
use super::servers::Sold;
use crate::counted::rows::overwrites_per_second;

type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Of a block's rate.
const LEAST: f64 = 0.9;

/// The rows of item k.
pub(crate) fn rows(settings: &SuiteSettings) -> Outcome<Vec<Row>> {
    let kinds = [
        ("k placed", "4 KiB writes with a placement handle; reference: without", Sold::Placed(2)),
        ("k append", "4 KiB zone appends; reference: writes to blocks", Sold::Zones),
    ];
    let mut rates: [Vec<(f64, f64)>; 2] = Default::default();
    let mut amplifications: [Vec<f64>; 2] = Default::default();
    for _ in 0..settings.repetitions {
        let (blocks, _) = overwrites_per_second(Sold::Blocks)?;
        for (at, (_, _, sold)) in kinds.iter().enumerate() {
            let (rate, amplification) = overwrites_per_second(*sold)?;
            rates[at].push((blocks, rate));
            amplifications[at].push(amplification);
        }
    }
    let row = |at: usize| {
        let (id, what, _) = kinds[at];
        let what = format!("{what}; a volume of 1 GiB overwritten in order, the server's side alone");
        let mut row = Row::of(id, &what, "k/s", &rates[at]);
        row.target = Some(Target::AtLeast(LEAST));
        row.note = format!("write amplification {:.2}", median(&amplifications[at]));
        row
    };
    Ok((0..kinds.len()).map(row).collect())
}
