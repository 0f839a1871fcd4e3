use clap::{Args, ValueEnum};
use diecut_api::size::Size;
use diecut_load::drive::{Digests, DriveSettings, Endpoint, QualifiedName, run};
use diecut_load::{Arrival, LoadSpec, Pattern, Report};
use std::net::{SocketAddr, ToSocketAddrs};
use std::process::ExitCode;

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
    /// Address of the server.
    #[arg(default_value = "127.0.0.1:4420")]
    address: String,
    /// NQN of the subsystem (`diecut subsystem list`). Writes destroy what its namespace holds.
    #[arg(long)]
    nqn: String,
    /// Namespace; the first one without it.
    #[arg(long)]
    nsid: Option<u32>,
    /// What is asked.
    #[arg(long, value_enum, default_value = "randread")]
    rw: ReadWrite,
    /// Reads of 100 commands, for rw and randrw.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u8).range(0..=100))]
    rwmixread: u8,
    /// Bytes of a command.
    #[arg(long, visible_alias = "block-size", default_value = "4k", value_parser = size)]
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
    /// Seconds before, not counted.
    #[arg(long, default_value_t = 1.0)]
    ramp_time: f64,
    /// Commands per job, after which it ends before its time; 0 for no such end.
    #[arg(long, default_value_t = 0)]
    number_ios: u64,
    /// First byte that is used.
    #[arg(long, default_value = "0", value_parser = size)]
    offset: Size,
    /// Bytes that are used; all without it.
    #[arg(long, default_value = "0", value_parser = size)]
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

/// fio's `4k` is 4096; everything else as in the other commands.
fn size(text: &str) -> Result<Size, String> {
    let shift = match text.to_ascii_lowercase().chars().last() {
        Some('k') => 10,
        Some('m') => 20,
        Some('g') => 30,
        Some('t') => 40,
        _ => return text.parse(),
    };
    match text[..text.len() - 1].parse::<u64>() {
        Ok(number) if number <= u64::MAX >> shift => Ok(Size(number << shift)),
        _ => text.parse(),
    }
}

impl Bench {
    pub fn run(self, json: bool) -> ExitCode {
        match self.measure() {
            Ok(report) => {
                if json {
                    crate::print::json(&report);
                } else {
                    println!("{report}");
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

    fn measure(self) -> Result<Report, String> {
        let spec = self.spec()?;
        let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get().min(1024)) as u16;
        let settings = DriveSettings {
            threads: self.threads.unwrap_or(spec.jobs.min(cores)).max(1),
            busy_poll: self.busy_poll,
            ..DriveSettings::default()
        };
        run(&self.endpoint()?, &spec, settings).map_err(|error| error.to_string())
    }

    fn endpoint(&self) -> Result<Endpoint, String> {
        let name = |what: &str, text: &str| {
            QualifiedName::new(text).map_err(|error| format!("{what} `{text}` cannot be used: {error}"))
        };
        // Of this process alone: two loads beside each other are two hosts.
        let mut host_id = *b"diecut bench\0\0\0\0";
        host_id[12..].copy_from_slice(&std::process::id().to_le_bytes());
        Ok(Endpoint {
            address: self.resolve()?,
            subsystem: name("subsystem", &self.nqn)?,
            host: name("host", &self.hostnqn)?,
            host_id,
            nsid: self.nsid,
            digests: Digests { header: self.hdr_digest, data: self.data_digest },
        })
    }

    fn resolve(&self) -> Result<SocketAddr, String> {
        let address = &self.address;
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
        let seconds = |what: &str, seconds: f64| {
            let sound = seconds.is_finite() && (0.0..=1e9).contains(&seconds);
            if sound {
                Ok((seconds * 1e9) as u64)
            } else {
                Err(format!("{what}: {seconds} is no number of seconds"))
            }
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
            ramp_ns: seconds("ramp-time", self.ramp_time)?,
            runtime_ns: seconds("runtime", self.runtime)?,
            operations_max: self.number_ios,
            seed: self.randseed,
        })
    }
}
