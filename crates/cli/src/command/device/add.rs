//! `diecut device add`: adds a drive to a pool.

use super::format::{Made, check_size, options, tables};
use super::{Cut, complain, remote};
use crate::print;
use clap::Args;
use diecut_api::place::Place;
use diecut_daemon::add::add;
use diecut_spec::Size;
use std::process::ExitCode;

#[derive(Args)]
pub struct Add {
    /// Block device, file, or namespace of a target (HOST:PORT/NQN/NSID).
    #[arg(required_unless_present = "address", value_parser = clap::value_parser!(Place))]
    drive: Option<Place>,
    #[command(flatten)]
    remote: remote::Wanted,
    /// A drive of the pool, in the same words; all of them are to be named, each with --to.
    #[arg(long, required = true, value_name = "DRIVE", value_parser = clap::value_parser!(Place))]
    to: Vec<Place>,
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
        let Add { drive, remote, to, force, size, cut } = self;
        let drive = remote.only(drive.as_ref());
        let drive = drive.and_then(|one| check_size(size, std::slice::from_ref(&one)).map(|()| one));
        let drive = match drive {
            Ok(drive) => drive,
            Err(message) => return complain(&message, json),
        };
        let to: Vec<Place> = to.into_iter().map(|place| remote.known_as(place)).collect();
        let made = match add(&drive, &to, options(force, &cut, size)) {
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
