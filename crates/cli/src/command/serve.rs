use clap::Args;
use diecut_api::setup::Setup;
use diecut_daemon::log::{self, LogConfig, LogFormat};
use diecut_daemon::serve::{Recording, ServeOptions};
use diecut_spec::Size;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Args)]
pub struct Serve {
    /// Set-up file (TOML): server, device, and what shall exist on it. A new device gets all of it. On a device that is there
    /// already what exists stays as it is, and what differs is said.
    #[arg(long)]
    setup: Option<PathBuf>,
    /// Create what the set-up declares and the device lacks, also on a device that is there already.
    #[arg(long, requires = "setup")]
    apply: bool,
    /// Address or name to listen on, instead of the set-up's; may be repeated. 0.0.0.0 stands for all addresses of the machine.
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Vec<String>,
    /// What discovery tells hosts to dial, instead of the set-up's; may be repeated. For servers behind address translation.
    #[arg(long, value_name = "ADDRESS:PORT", conflicts_with = "null")]
    advertise: Vec<String>,
    /// Folder of the device image and the control socket, instead of the set-up's.
    #[arg(long)]
    data: Option<PathBuf>,
    /// NAND profile of a new device (name, or path of a .toml file), instead of the set-up's.
    #[arg(long)]
    profile: Option<String>,
    /// Threads that serve, instead of the set-up's: at most one for each channel. Tenants live on one each; the same device
    /// opens with any number.
    #[arg(long, value_name = "N")]
    shards: Option<u16>,
    /// Write down all that enters the server into this new file, without the content of writes, so that `diecut sim --replay
    /// FILE` can play the run again. The device must be new.
    #[arg(long, value_name = "FILE", conflicts_with = "null")]
    record: Option<PathBuf>,
    /// The recording ends before it is longer; the server goes on.
    #[arg(long, value_name = "SIZE", default_value = "1 GiB", requires = "record")]
    record_limit: Size,
    /// Serve a null namespace of 1 TiB under this NQN instead of a device: writes are forgotten, reads are zeros. For
    /// measuring the network path; may be repeated.
    #[arg(long, value_name = "NQN", conflicts_with_all = ["setup", "data", "profile"])]
    null: Vec<String>,
    /// What is logged to standard error: a level (error, warn, info, debug, trace), or a filter such as
    /// info,diecut_reactor=debug. Without it, RUST_LOG; without that, info.
    #[arg(long, value_name = "FILTER")]
    log: Option<String>,
    /// How lines of the log look.
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t)]
    log_format: Format,
}

#[derive(Clone, Copy, Default, clap::ValueEnum)]
enum Format {
    /// For people.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

impl Serve {
    /// Serves; at this control socket instead of the set-up's, if one was named on the command line.
    pub fn run(self, socket: Option<PathBuf>) -> ExitCode {
        let format = match self.log_format {
            Format::Text => LogFormat::Text,
            Format::Json => LogFormat::Json,
        };
        let _log = match log::start(&LogConfig { filter: self.log.clone(), format }) {
            Ok(log) => log,
            Err(error) => return report(Err(error)),
        };
        let announce = |text: &str| {
            // Nobody may read it; the server goes on.
            let mut stdout = std::io::stdout();
            let _ = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
        };
        if !self.null.is_empty() {
            let listen = if self.listen.is_empty() { Setup::default().server.listen } else { self.listen };
            return report(diecut_daemon::null::serve_null(
                &listen,
                &self.null,
                self.shards.unwrap_or(1),
                announce,
            ));
        }
        let mut setup = match self.setup_file() {
            Ok(setup) => setup,
            Err(message) => {
                eprintln!("error: {message}");
                return ExitCode::FAILURE;
            }
        };
        if !self.listen.is_empty() {
            setup.server.listen = self.listen;
        }
        if !self.advertise.is_empty() {
            setup.server.advertise = self.advertise;
        }
        if let Some(data) = self.data {
            setup.server.data = data;
        }
        if socket.is_some() {
            setup.server.socket = socket;
        }
        let is_profile_named = self.profile.is_some();
        if let Some(profile) = self.profile
            && let Err(message) = setup.devices.set_profile(&profile)
        {
            eprintln!("error: {message}");
            return ExitCode::FAILURE;
        }
        if let Some(shards) = self.shards {
            setup.server.shards = shards;
        }
        let size_max_bytes = self.record_limit.bytes();
        let recording = self.record.map(|path| Recording { path, size_max_bytes });
        let options = ServeOptions {
            recording: recording.as_ref(),
            apply: self.apply,
            file: self.setup.as_deref(),
            is_profile_named,
        };
        report(diecut_daemon::serve::serve(&setup, options, announce))
    }

    fn setup_file(&self) -> Result<Setup, String> {
        let Some(path) = &self.setup else { return Ok(Setup::default()) };
        let name = path.display();
        let text =
            std::fs::read_to_string(path).map_err(|error| format!("{name} cannot be read: {error}"))?;
        let mut setup = Setup::from_toml(&text).map_err(|error| format!("{name}: {error}"))?;
        // Whatever folder the server is started from, the file means the same.
        setup.relative_to(path.parent().unwrap_or(std::path::Path::new("")));
        Ok(setup)
    }
}

fn report(outcome: Result<(), diecut_daemon::error::ServeError>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
