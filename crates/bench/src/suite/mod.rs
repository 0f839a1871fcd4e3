//! The fixed suite of `make bench`: the server against the raw socket loop, one configuration, one run.
//!
//! Every row is measured in repetitions, and all rows take turns inside a repetition, so that what else happens on the
//! machine meets both sides of a ratio. A row's figure is the median of its repetitions' ratios.

mod blocks;
mod cases;
mod children;
mod contracts;
mod drive;
mod maps;
mod residence;
mod row;
pub(crate) mod servers;

pub use cases::{SuiteSettings, run};
pub use row::{Row, Suite, Target, instructions_table};
