//! `diecut device add`: adds a file or a block device to a pool.

use super::format::{Made, options, tables};
use super::{Cut, complain};
use crate::print;
use clap::Args;
use diecut_daemon::add::add;
use diecut_spec::Size;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Args)]
pub struct Add {
    /// Block device or file.
    path: PathBuf,
    /// A drive of the pool; all of them are to be named, each with --to.
    #[arg(long, required = true, value_name = "PATH")]
    to: Vec<PathBuf>,
    /// Also where something else was recognized on it, which is lost then.
    #[arg(long)]
    force: bool,
    /// Make a new file of this size, which takes room on its file system as it fills.
    #[arg(long)]
    size: Option<Size>,
    #[command(flatten)]
    cut: Cut,
}

impl Add {
    /// Carries it out, and prints what came of it.
    pub fn run(self, json: bool) -> ExitCode {
        let Add { path, to, force, size, cut } = self;
        let made = match add(&path, &to, options(force, &cut, size)) {
            Ok(formatted) => Made::from(formatted),
            Err(error) => return complain(&error.to_string(), json),
        };
        if json {
            print::json(&made);
            return ExitCode::SUCCESS;
        }
        print::line(&made.words());
        print::line(
            "The server of its pool serves it with this in its set-up, beside the others (docs/setup.md):\n",
        );
        print::line(&tables(&[made], "[[device]]"));
        ExitCode::SUCCESS
    }
}
