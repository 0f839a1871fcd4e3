//! `diecut-vlfs mount VSSD@SOCKET MOUNTPOINT`: a file system on erase blocks of a server, until it is unmounted.

#![deny(clippy::unwrap_used)]

use clap::{Parser, Subcommand};
use diecut_blockfile::Files;
use diecut_blockfile::medium::{Medium, attach};
use diecut_blockspace::embedded::Embedded;
use diecut_vlfs::{FLUSH_PERIOD, FileSystem, HAND_OVER_PERIOD, open_or_format};
use fuser::{Config, MountOption, Session, SessionACL};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};

/// Requests of the kernel that are answered at once. Reads wait for no write.
const THREADS: usize = 4;

#[derive(Parser)]
#[command(name = "diecut-vlfs", about = "A file system on erase blocks of a diecut server, through FUSE")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Mounts a vSSD and stays until it is unmounted (umount, fusermount3 -u) or ended with Ctrl-C. Formats a vSSD that
    /// holds nothing.
    #[command(override_usage = "diecut-vlfs mount [OPTIONS] <VSSD@SOCKET> <MOUNTPOINT>
       diecut-vlfs mount [OPTIONS] --embedded <PROFILE> <MOUNTPOINT>")]
    Mount {
        /// Name of the vSSD (`diecut vssd create --use blocks`), and the server's blocks.sock. Or the NQN of a subsystem with a zoned
        /// namespace, and HOST:PORT.
        #[arg(value_name = "VSSD@SOCKET")]
        volume: PathBuf,
        /// A folder that is there.
        #[arg(required_unless_present = "embedded", conflicts_with = "embedded")]
        mountpoint: Option<PathBuf>,
        /// Instead of a server, a device of this profile in the memory of this process, for tests.
        #[arg(long, value_name = "PROFILE")]
        embedded: Option<String>,
        /// Other users may use it, as far as owners and modes let them.
        #[arg(long)]
        allow_other: bool,
    },
}

fn main() -> ExitCode {
    let Command::Mount { volume, mountpoint, embedded, allow_other } = Arguments::parse().command;
    // With a device of its own the only place is that of the mount.
    let (volume, mountpoint) = match mountpoint {
        Some(mountpoint) => (Some(volume), mountpoint),
        None => (None, volume),
    };
    let volume = volume.as_ref().map(|volume| volume.to_string_lossy());
    match mount(volume.as_deref(), &mountpoint, embedded.as_deref(), allow_other) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("diecut-vlfs: {error}");
            ExitCode::FAILURE
        }
    }
}

fn mount(
    volume: Option<&str>,
    mountpoint: &Path,
    embedded: Option<&str>,
    allow_other: bool,
) -> Result<(), Box<dyn Error>> {
    if !mountpoint.is_dir() {
        return Err(format!("{}: is no folder to mount on", mountpoint.display()).into());
    }
    let device = embedded.map(Embedded::new).transpose()?;
    let (medium, name) = match (&device, volume) {
        (Some(device), _) => (Arc::new(device.attach()?) as Arc<dyn Medium>, "embedded".to_owned()),
        (None, volume) => {
            let volume = volume.unwrap_or_default();
            let (vssd, socket) = volume
                .split_once('@')
                .ok_or_else(|| format!("{volume}: VSSD@SOCKET or NQN@HOST:PORT is what is understood"))?;
            let medium = attach(vssd, socket).map_err(|error| format!("{volume}: {error}"))?;
            (medium, volume.to_owned())
        }
    };
    // SAFETY: these calls only say who this process is.
    let (uid, gid) = unsafe { (libc::geteuid(), libc::getegid()) };
    let files = Arc::new(open_or_format(medium, uid, gid).map_err(|error| format!("{name}: {error}"))?);
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::FSName(name),
        MountOption::Subtype("diecut".to_owned()),
        MountOption::DefaultPermissions,
        MountOption::NoAtime,
    ];
    config.acl = if allow_other { SessionACL::All } else { SessionACL::Owner };
    config.n_threads = Some(THREADS);
    config.clone_fd = true;
    let session = Session::new(FileSystem::new(Arc::clone(&files)), mountpoint, &config)
        .map_err(|error| format!("{}: cannot be mounted: {error}", mountpoint.display()))?;
    println!("mounted on {}", mountpoint.display());
    serve(session, &files, mountpoint)
}

/// Until it is unmounted; then all is durable.
fn serve(
    mut session: Session<FileSystem>,
    files: &Arc<Files>,
    mountpoint: &Path,
) -> Result<(), Box<dyn Error>> {
    let mut unmounter = session.unmount_callable();
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    let (is_over, over) = channel::<()>();
    let outcome = std::thread::scope(|scope| {
        let handle = signals.handle();
        scope.spawn(move || {
            for _ in signals.forever() {
                match unmounter.unmount() {
                    Ok(()) => break,
                    Err(error) => {
                        eprintln!("diecut-vlfs: cannot be unmounted yet: {error}; close what is open")
                    }
                }
            }
        });
        // What nobody syncs goes out soon, and is made safe from power cuts now and then.
        scope.spawn(|| {
            let over = over;
            let periods = FLUSH_PERIOD.as_millis() / HAND_OVER_PERIOD.as_millis();
            for period in 1.. {
                let waited = over.recv_timeout(HAND_OVER_PERIOD);
                let is_sync_due = period % periods == 0;
                let outcome = if is_sync_due { files.sync() } else { files.hand_over() };
                if waited != Err(RecvTimeoutError::Timeout) || outcome.is_err() {
                    break;
                }
            }
        });
        let outcome = session.run();
        drop(is_over);
        handle.close();
        outcome
    });
    let kept = files.checkpoint();
    outcome.map_err(|error| format!("{}: {error}", mountpoint.display()))?;
    kept.map_err(|error| format!("{}: what was not synced is lost: {error}", mountpoint.display()))?;
    Ok(())
}
