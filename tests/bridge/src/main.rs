//! `diecut-bridge HOST:PORT NQN NSID FOLDER`: a namespace as a file, until it is told to end.

#![deny(clippy::unwrap_used)]

use clap::Parser;
use diecut_bridge::{Mounted, Namespace, Place};
use diecut_nvme::QualifiedName;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::error::Error;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::process::ExitCode;

/// A namespace of an NVMe/TCP target as the file `namespace` of a folder (FUSE), until SIGINT or SIGTERM. For tests, where the kernel has no
/// NVMe/TCP.
#[derive(Parser)]
#[command(name = "diecut-bridge")]
struct Arguments {
    /// The target, as HOST:PORT.
    target: String,
    /// The subsystem.
    nqn: String,
    /// The namespace.
    nsid: u32,
    /// A folder that is there.
    folder: PathBuf,
    /// Who connects.
    #[arg(long, value_name = "NQN", default_value = "nqn.2026-11.org.diecut:bridge")]
    host_nqn: String,
}

fn serve(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let name = |nqn: &str| QualifiedName::new(nqn).map_err(|error| format!("{nqn}: {error}"));
    let address: SocketAddr =
        arguments.target.to_socket_addrs()?.next().ok_or("the target has no address")?;
    let (host, subsystem) = (name(&arguments.host_nqn)?, name(&arguments.nqn)?);
    let namespace = Namespace::connect(&Place { address, host, subsystem, nsid: arguments.nsid })?;
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    let mounted = Mounted::new(namespace, &arguments.folder)?;
    println!("mounted: {}", mounted.file().display());
    signals.forever().next();
    Ok(())
}

fn main() -> ExitCode {
    match serve(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("diecut-bridge: {error}");
            ExitCode::FAILURE
        }
    }
}
