//! `diecut device format`: makes files or block devices devices of one pool, or a namespace of a target one of its own.

use super::{Cut, Shape, complain, remote};
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
struct MadeDevice {
    path: PathBuf,
    device: String,
    pool: String,
    shape: Shape,
}

impl Format {
    /// Carries it out, and prints what came of it.
    pub fn run(self, json: bool) -> ExitCode {
        let Format { paths, remote, force, size, cut } = self;
        let options = FormatOptions {
            force,
            lanes: cut.lanes,
            block_size_bytes: cut.erase_block.map(|size| size.bytes()),
            size_bytes: size.map(|size| size.bytes()),
        };
        let wanted = remote.device();
        let formatted = match &wanted {
            Some(wanted) => format_remote(wanted, options).map(|formatted| vec![formatted]),
            None => format(&paths, options),
        };
        let formatted = match formatted {
            Ok(formatted) => formatted,
            Err(error) => {
                return complain(&error.to_string(), json);
            }
        };
        let made = formatted.into_iter().map(|Formatted { path, device, pool, shape }| MadeDevice {
            path,
            device: device.to_string(),
            pool: pool.to_string(),
            shape: shape.into(),
        });
        let made: Vec<MadeDevice> = made.collect();
        if json {
            print::json(&made);
            return ExitCode::SUCCESS;
        }
        for one in &made {
            let path = one.path.display();
            print::line(&format!("{path} is the device {} now: {}", one.device, one.shape.words()));
        }
        let it = if made.len() == 1 { "it" } else { "them, which are one pool," };
        print::line(&format!("A server serves {it} with this in its set-up (docs/setup.md):\n"));
        let table = if made.len() == 1 { "[device]" } else { "[[device]]" };
        if wanted.is_some() {
            print::line(&format!("{table}\n{}", remote.table()));
            return ExitCode::SUCCESS;
        }
        for MadeDevice { path, .. } in &made {
            let is_block = std::fs::metadata(path).is_ok_and(|found| found.file_type().is_block_device());
            let kind = if is_block { "block" } else { "file" };
            print::line(&format!("{table}\nkind = \"{kind}\"\npath = \"{}\"", path.display()));
        }
        ExitCode::SUCCESS
    }
}
