use crate::client::Client;
use clap::{Args, ValueEnum};
use diecut_api::status::Status;
use diecut_load::drive::{Digests, DriveSettings, Endpoint, QualifiedName, run};
use diecut_load::{Arrival, LoadSpec, Pattern, Report};
use diecut_spec::Size;
use std::net::{SocketAddr, ToSocketAddrs};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// What is asked, in fio's words.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ReadWrite {
    Read,
    Write,
    Rw,
    Randread,
    Randwrite,
    Randrw,
}

/// How a rate is kept.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum RateProcess {
    /// Closed loop: evenly, and what could not be issued in time is not made up for.
    Linear,
    /// Open loop: at random moments whatever is under way; latency counts from the moment a command was due.
    Poisson,
}

#[derive(Args)]
pub struct Bench {
    /// Address of the server, HOST:PORT. Without it the server is asked at its control socket (`--socket`).
    address: Option<String>,
    /// NQN of the subsystem (`diecut subsystem list`).
    #[arg(long)]
    nqn: String,
    /// Namespace; the first one without it.
    #[arg(long)]
    nsid: Option<u32>,
    /// Write over data. Needed for writes, unless the server says at its control socket that the volume is empty.
    #[arg(long)]
    overwrite: bool,
    /// What is asked.
    #[arg(long, value_enum, default_value = "randread")]
    rw: ReadWrite,
    /// Reads of 100 commands, for rw and randrw.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u8).range(0..=100))]
    rwmixread: u8,
    /// Bytes of a command.
    #[arg(long, visible_alias = "block-size", default_value = "4k")]
    bs: Size,
    /// Commands under way per job.
    #[arg(long, visible_alias = "depth", default_value_t = 32)]
    iodepth: u16,
    /// Commands gathered before they are issued together, while others are under way.
    #[arg(long, default_value_t = 1)]
    iodepth_batch_submit: u16,
    /// Jobs, each with a queue of its own.
    #[arg(long, visible_alias = "jobs", default_value_t = 1)]
    numjobs: u16,
    /// Of random blocks: `random`, or `zipf:THETA` (few blocks often).
    #[arg(long, default_value = "random")]
    random_distribution: String,
    /// Commands per second and job; as many as go without it.
    #[arg(long)]
    rate_iops: Option<f64>,
    /// How the rate is kept.
    #[arg(long, value_enum, default_value = "linear", requires = "rate_iops")]
    rate_process: RateProcess,
    /// Counted seconds.
    #[arg(long, visible_alias = "time", default_value_t = 10.0)]
    runtime: f64,
    /// Seconds before, not counted: 1, if nothing is said, and none with --number-ios, which counts from the first command.
    #[arg(long)]
    ramp_time: Option<f64>,
    /// Commands per job, after which it ends before its time; 0 for no such end.
    #[arg(long, default_value_t = 0)]
    number_ios: u64,
    /// First byte that is used.
    #[arg(long, default_value = "0")]
    offset: Size,
    /// Bytes that are used; all without it.
    #[arg(long, default_value = "0")]
    size: Size,
    /// Seed of blocks, directions and arrivals.
    #[arg(long, default_value_t = 1)]
    randseed: u64,
    /// Checksums over headers.
    #[arg(long)]
    hdr_digest: bool,
    /// Checksums over data.
    #[arg(long)]
    data_digest: bool,
    /// NQN that this host goes by; the subsystem must allow it.
    #[arg(long, default_value = "nqn.2026-11.org.diecut:bench")]
    hostnqn: String,
    /// Threads; without it one per job, but not more than there are cores.
    #[arg(long)]
    threads: Option<u16>,
    /// Never sleep: for servers that are faster than waking up.
    #[arg(long)]
    busy_poll: bool,
}

/// What the server behind the control socket says of itself.
fn ask(client: &Client) -> Result<Status, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| format!("the asynchronous runtime cannot start: {error}"))?;
    runtime.block_on(client.status()).map_err(|error| error.to_string())
}

/// Where this machine reaches a server; an address of all interfaces is reached over loopback.
fn listening(status: &Status) -> impl Iterator<Item = SocketAddr> {
    status.listen.split(", ").filter_map(|address| address.parse::<SocketAddr>().ok()).map(|mut address| {
        if address.ip().is_unspecified() {
            address.set_ip(match address {
                SocketAddr::V4(_) => std::net::Ipv4Addr::LOCALHOST.into(),
                SocketAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
            });
        }
        address
    })
}

fn is_same(one: SocketAddr, other: SocketAddr) -> bool {
    one.port() == other.port()
        && (one.ip() == other.ip() || one.ip().is_loopback() && other.ip().is_loopback())
}

impl Bench {
    /// Measures the server behind `client`, or one at another address.
    pub fn run(self, client: &Client, json: bool) -> ExitCode {
        match self.measure(client) {
            Ok(report) => {
                if json {
                    crate::print::json(&report);
                } else {
                    crate::print::line(&report.to_string());
                }
                if report.errors() > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
            }
            Err(message) => {
                if json {
                    eprintln!("{}", serde_json::json!({ "message": message }));
                } else {
                    eprintln!("error: {message}");
                }
                ExitCode::FAILURE
            }
        }
    }

    fn measure(self, client: &Client) -> Result<Report, String> {
        let spec = self.spec()?;
        let server = ask(client);
        let endpoint = self.endpoint(&server)?;
        if spec.read_percent < 100 && !self.overwrite {
            self.check_empty(&endpoint, &server)?;
        }
        // The first Ctrl-C ends the load, the second one the program.
        let stop = Arc::new(AtomicBool::new(false));
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(&stop))
                .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&stop)))
                .map_err(|error| format!("signals cannot be caught: {error}"))?;
        }
        let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get().min(1024)) as u16;
        let settings = DriveSettings {
            threads: self.threads.unwrap_or(spec.jobs.min(cores)).max(1),
            busy_poll: self.busy_poll,
            stop: Some(&stop),
            ..DriveSettings::default()
        };
        run(&endpoint, &spec, settings).map_err(|error| error.to_string())
    }

    /// Whether the server says that nothing is lost if its namespace is written.
    fn check_empty(&self, endpoint: &Endpoint, server: &Result<Status, String>) -> Result<(), String> {
        let Ok(status) = server.as_ref() else {
            return Err("writes destroy what the namespace holds, and this server cannot be asked whether it is empty (it has no \
                 control socket here, see --socket): add --overwrite to write all the same"
                .to_owned());
        };
        if !listening(status).any(|address| is_same(address, endpoint.address)) {
            return Err(format!(
                "writes destroy what the namespace holds, and the server at {} is not the one behind the control socket, so it \
                 cannot be asked whether it is empty: add --overwrite to write all the same",
                endpoint.address
            ));
        }
        let subsystem = status.subsystems.iter().find(|one| one.subsystem.nqn == self.nqn);
        let namespaces = subsystem.map_or(&[][..], |one| &one.subsystem.namespaces);
        let namespace = match self.nsid {
            Some(nsid) => namespaces.iter().find(|one| one.nsid == nsid),
            None => namespaces.iter().min_by_key(|one| one.nsid),
        };
        // What is not there is told when it is connected to.
        let shown = namespace.map(|one| (one.nsid, one.volume.as_str()));
        let volume = shown.and_then(|(_, name)| status.volumes.iter().find(|one| one.volume.name == name));
        match volume.filter(|volume| volume.used.bytes() > 0) {
            None => Ok(()),
            Some(volume) => Err(format!(
                "volume \"{}\", which {} shows, holds {} of data, and writes destroy it: add --overwrite, or name another \
                 volume's subsystem",
                volume.volume.name, self.nqn, volume.used
            )),
        }
    }

    fn endpoint(&self, server: &Result<Status, String>) -> Result<Endpoint, String> {
        let name = |what: &str, text: &str| {
            QualifiedName::new(text).map_err(|error| format!("{what} `{text}` cannot be used: {error}"))
        };
        // Of this process alone: two loads beside each other are two hosts.
        let mut host_id = *b"diecut bench\0\0\0\0";
        host_id[12..].copy_from_slice(&std::process::id().to_le_bytes());
        Ok(Endpoint {
            address: self.resolve(server)?,
            subsystem: name("subsystem", &self.nqn)?,
            host: name("host", &self.hostnqn)?,
            host_id,
            nsid: self.nsid,
            digests: Digests { header: self.hdr_digest, data: self.data_digest },
        })
    }

    fn resolve(&self, server: &Result<Status, String>) -> Result<SocketAddr, String> {
        let Some(address) = &self.address else {
            let status = server.as_ref().map_err(|error| {
                format!("no address was named, and {error}; name the server's HOST:PORT, or its control socket with --socket")
            })?;
            return listening(status).next().ok_or_else(|| "the server listens nowhere".to_owned());
        };
        let mut found = address.to_socket_addrs().map_err(|error| {
            format!("`{address}` is no address: {error}; write HOST:PORT, as in 127.0.0.1:4420")
        })?;
        found.next().ok_or_else(|| format!("`{address}` has no address"))
    }

    fn spec(&self) -> Result<LoadSpec, String> {
        let random = matches!(self.rw, ReadWrite::Randread | ReadWrite::Randwrite | ReadWrite::Randrw);
        let pattern = match self.random_distribution.strip_prefix("zipf:") {
            _ if !random => Pattern::Sequential,
            Some(theta) => match theta.parse() {
                Ok(theta) => Pattern::Zipf(theta),
                Err(_) => return Err(format!("`{theta}` is no zipf theta; write a number, as in zipf:1.2")),
            },
            None if self.random_distribution == "random" => Pattern::Random,
            None => {
                let other = &self.random_distribution;
                return Err(format!("`{other}` is no distribution; write random, or zipf:1.2"));
            }
        };
        let seconds = |what: &str, seconds: f64| match seconds.is_finite() && (0.0..=1e9).contains(&seconds) {
            true => Ok((seconds * 1e9) as u64),
            false => Err(format!("{what}: {seconds} is no number of seconds")),
        };
        let block_bytes = u32::try_from(self.bs.bytes());
        Ok(LoadSpec {
            block_bytes: block_bytes.map_err(|_| format!("bs {} does not fit one command", self.bs))?,
            depth: self.iodepth,
            batch: self.iodepth_batch_submit,
            jobs: self.numjobs,
            read_percent: match self.rw {
                ReadWrite::Read | ReadWrite::Randread => 100,
                ReadWrite::Write | ReadWrite::Randwrite => 0,
                ReadWrite::Rw | ReadWrite::Randrw => self.rwmixread,
            },
            pattern,
            arrival: match (self.rate_iops, self.rate_process) {
                (Some(rate), RateProcess::Poisson) => Arrival::Open(rate),
                (rate, _) => Arrival::Closed(rate),
            },
            offset_bytes: self.offset.bytes(),
            size_bytes: self.size.bytes(),
            ramp_ns: seconds(
                "ramp-time",
                self.ramp_time.unwrap_or(if self.number_ios > 0 { 0.0 } else { 1.0 }),
            )?,
            runtime_ns: seconds("runtime", self.runtime)?,
            operations_max: self.number_ios,
            seed: self.randseed,
        })
    }
}
