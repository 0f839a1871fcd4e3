//! `diecut device format`: makes a file or a block device a device.

use super::{Cut, Shape, complain};
use crate::print;
use clap::Args;
use diecut_daemon::format::{FormatOptions, Formatted, format};
use diecut_spec::Size;
use serde::Serialize;
use std::os::unix::fs::FileTypeExt;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Args)]
pub struct Format {
    /// Block device or file.
    path: PathBuf,
    /// Also where something else was recognized on it, which is lost then.
    #[arg(long)]
    force: bool,
    /// Make a new file of this size, which takes room on its file system as it fills.
    #[arg(long)]
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
        let Format { path, force, size, cut } = self;
        let is_block = std::fs::metadata(&path).is_ok_and(|found| found.file_type().is_block_device());
        let options = FormatOptions {
            force,
            lanes: cut.lanes,
            block_size_bytes: cut.erase_block.map(|size| size.bytes()),
            size_bytes: size.map(|size| size.bytes()),
        };
        let Formatted { device, pool, shape } = match format(&path, options) {
            Ok(formatted) => formatted,
            Err(error) => {
                return complain(&error.to_string(), json);
            }
        };
        let made =
            MadeDevice { path, device: device.to_string(), pool: pool.to_string(), shape: shape.into() };
        if json {
            print::json(&made);
            return ExitCode::SUCCESS;
        }
        let (path, kind) = (made.path.display(), if is_block { "block" } else { "file" });
        print::line(&format!("{path} is the device {device} now: {}", made.shape.words()));
        print::line(&format!(
            "A server serves it with this in its set-up (docs/setup.md):\n\n[device]\nkind = \"{kind}\"\npath = \"{path}\""
        ));
        ExitCode::SUCCESS
    }
}
