//! `diecut device format`: makes files or block devices devices of one pool, or a namespace of a target one of its own.

use super::identified::Shape;
use super::{Cut, complain, remote};
use crate::print;
use clap::Args;
use diecut_daemon::format::{FormatOptions, Formatted, format, format_remote};
use diecut_spec::Size;
use serde::Serialize;
use std::os::unix::fs::FileTypeExt;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Args)]
pub struct Format {
    /// Block devices or files. Several are one pool, which one server serves.
    #[arg(required_unless_present = "address", conflicts_with = "address")]
    paths: Vec<PathBuf>,
    #[command(flatten)]
    remote: remote::Wanted,
    /// Also where something else was recognized on it, which is lost then.
    #[arg(long)]
    force: bool,
    /// Make new files of this size, which take room on their file system as they fill.
    #[arg(long, conflicts_with = "address")]
    size: Option<Size>,
    #[command(flatten)]
    cut: Cut,
}

/// A device that was made.
#[derive(Serialize)]
pub struct Made {
    path: PathBuf,
    device: String,
    pool: String,
    shape: Shape,
}

impl From<Formatted> for Made {
    fn from(formatted: Formatted) -> Made {
        let Formatted { path, device, pool, shape } = formatted;
        Made { path, device: device.to_string(), pool: pool.to_string(), shape: shape.into() }
    }
}

impl Made {
    /// For people.
    pub fn words(&self) -> String {
        format!("{} is the device {} now: {}", self.path.display(), self.device, self.shape.words())
    }
}

/// How drives are formatted.
pub fn options(force: bool, cut: &Cut, size: Option<Size>) -> FormatOptions {
    FormatOptions {
        force,
        lanes: cut.lanes,
        block_size_bytes: cut.erase_block.map(|size| size.bytes()),
        size_bytes: size.map(|size| size.bytes()),
    }
}

/// Their tables in a set-up.
pub fn tables(made: &[Made], head: &str) -> String {
    let table = |one: &Made| {
        let is_block = std::fs::metadata(&one.path).is_ok_and(|found| found.file_type().is_block_device());
        let kind = if is_block { "block" } else { "file" };
        format!("{head}\nkind = \"{kind}\"\npath = \"{}\"", one.path.display())
    };
    made.iter().map(table).collect::<Vec<String>>().join("\n")
}

impl Format {
    /// Carries it out, and prints what came of it.
    pub fn run(self, json: bool) -> ExitCode {
        let Format { paths, remote, force, size, cut } = self;
        let options = options(force, &cut, size);
        let wanted = remote.device();
        let formatted = match &wanted {
            Some(wanted) => format_remote(wanted, options).map(|formatted| vec![formatted]),
            None => format(&paths, options),
        };
        let made: Vec<Made> = match formatted {
            Ok(formatted) => formatted.into_iter().map(Made::from).collect(),
            Err(error) => return complain(&error.to_string(), json),
        };
        if json {
            print::json(&made);
            return ExitCode::SUCCESS;
        }
        made.iter().for_each(|one| print::line(&one.words()));
        let (it, head) = match made.len() {
            1 => ("it", "[device]"),
            _ => ("them, which are one pool,", "[[device]]"),
        };
        print::line(&format!("A server serves {it} with this in its set-up (docs/setup.md):\n"));
        print::line(&match wanted.is_some() {
            true => format!("{head}\n{}", remote.table()),
            false => tables(&made, head),
        });
        ExitCode::SUCCESS
    }
}
