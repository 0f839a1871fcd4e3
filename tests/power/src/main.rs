//! `diecut-power serve FOLDER --drive NAME=SIZE`: disks that lose power on command, until it is told to end.

#![deny(clippy::unwrap_used)]

use clap::{Parser, Subcommand};
use diecut_power::{Disks, Mounted, Options, answer};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(Parser)]
#[command(
    name = "diecut-power",
    about = "Disks that lose power on command, as files of a folder (FUSE); for tests"
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Mounts disks on a folder, and takes commands from the standard input and at a socket, until SIGINT or SIGTERM.
    Serve {
        /// A folder that is there.
        folder: PathBuf,
        /// A drive; several may be given.
        #[arg(long = "drive", value_name = "NAME=SIZE", value_parser = drive)]
        drives: Vec<(String, u64)>,
        /// Files can be made in the folder and grow, each with a cache of its own.
        #[arg(long)]
        files: bool,
        /// What cuts draw from.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// A Unix socket that takes commands, a line each.
        #[arg(long, value_name = "SOCKET")]
        control: Option<PathBuf>,
        /// Where the bytes lie; twice what is written.
        #[arg(long, value_name = "FOLDER")]
        backing: Option<PathBuf>,
        /// What the cache of each disk holds at most.
        #[arg(long, value_name = "SIZE", value_parser = size)]
        cache: Option<u64>,
    },
    /// Says a command to disks that are served, and prints the answer.
    Tell {
        /// Their socket.
        socket: PathBuf,
        /// The words of the command: cut [SEED], cut-after COMMANDS, on, stats, lie on|off, fail-flush forget|drop|keep, stall, go.
        #[arg(required = true)]
        words: Vec<String>,
    },
}

/// Bytes; K, M and G are powers of 1,024.
fn size(text: &str) -> Result<u64, String> {
    let (digits, shift) = match text.as_bytes().last() {
        Some(b'K') => (&text[..text.len() - 1], 10),
        Some(b'M') => (&text[..text.len() - 1], 20),
        Some(b'G') => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    let number: u64 = digits.parse().map_err(|_| format!("{text}: a size is 4096, 64M or 2G"))?;
    number.checked_shl(shift).filter(|size| size >> shift == number).ok_or(format!("{text}: too large"))
}

fn drive(text: &str) -> Result<(String, u64), String> {
    let (name, bytes) = text.split_once('=').ok_or(format!("{text}: NAME=SIZE is what is understood"))?;
    let bytes = size(bytes)?;
    if name.is_empty() || name.contains('/') || bytes == 0 || bytes % diecut_power::SECTOR_SIZE_BYTES != 0 {
        return Err(format!("{text}: a name of a file, and whole sectors of 512 bytes"));
    }
    Ok((name.to_owned(), bytes))
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().command {
        Command::Serve { folder, drives, files, seed, control, backing, cache } => {
            let defaults = Options::default();
            let options = Options {
                drives,
                has_files: files,
                seed,
                cache_bytes_max: cache.unwrap_or(defaults.cache_bytes_max),
                backing: backing.unwrap_or(defaults.backing),
            };
            serve(&folder, &options, control.as_deref())
        }
        Command::Tell { socket, words } => tell(&socket, &words.join(" ")),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("diecut-power: {error}");
            ExitCode::FAILURE
        }
    }
}

fn serve(folder: &Path, options: &Options, control: Option<&Path>) -> Result<(), Box<dyn Error>> {
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    let mounted = Mounted::new(folder, options).map_err(|error| {
        format!("{}: cannot be mounted: {error}; it needs /dev/fuse and the right to mount", folder.display())
    })?;
    if let Some(path) = control {
        let listener = UnixListener::bind(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let disks = mounted.disks().clone();
        std::thread::Builder::new().spawn(move || accept(&listener, &disks))?;
    }
    println!("mounted on {}, seed {}", folder.display(), options.seed);
    let disks = mounted.disks().clone();
    std::thread::Builder::new()
        .spawn(move || converse(&disks, std::io::stdin().lock(), std::io::stdout()))?;
    signals.forever().next();
    if let Some(path) = control {
        let _ = std::fs::remove_file(path);
    }
    drop(mounted);
    Ok(())
}

/// Until the process ends.
fn accept(listener: &UnixListener, disks: &Disks) {
    for stream in listener.incoming().flatten() {
        let disks = disks.clone();
        let _ = std::thread::Builder::new().spawn(move || {
            if let Ok(input) = stream.try_clone() {
                converse(&disks, BufReader::new(input), stream);
            }
        });
    }
}

/// Answers lines until they end.
fn converse(disks: &Disks, input: impl BufRead, mut output: impl Write) {
    for line in input.lines() {
        let Ok(line) = line else { return };
        if writeln!(output, "{}", answer(disks, &line)).is_err() {
            return;
        }
    }
}

fn tell(socket: &Path, command: &str) -> Result<(), Box<dyn Error>> {
    let mut stream = UnixStream::connect(socket).map_err(|error| format!("{}: {error}", socket.display()))?;
    writeln!(stream, "{command}")?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    print!("{line}");
    if line.starts_with("ok") { Ok(()) } else { Err("it is not done".into()) }
}
