//! `diecut-bench`: the fixed benchmark programs. `make bench` calls `diecut-bench all`.
#![deny(clippy::unwrap_used)]
#![allow(clippy::disallowed_methods, reason = "measures real time on real threads")]

use clap::{Args, Parser, Subcommand};
use comfy_table::Table;
use diecut_bench::costs;
use diecut_bench::counted::{self, COUNTED_ROWS};
use diecut_bench::isolation::{self, IsolationSettings};
use diecut_bench::raw::{self, FarReads, RawResult, RawSettings, RawShape};
use diecut_bench::suite::{self, SuiteSettings};
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Parser)]
#[command(about = "Fixed benchmark programs of diecut", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Everything: the server against the raw socket loop, and the engines alone. `make bench` runs this.
    All(AllArguments),
    /// The raw socket loop, both ends on two cores.
    Raw(RawArguments),
    /// The noisy neighbour on the real clock: a server over a paced device, and hosts over NVMe/TCP.
    Isolation(IsolationArguments),
    /// What commands, messages and connections take of the server's core: the constants of the model of virtual time.
    Costs(CostsArguments),
    /// Instructions per operation of the rows with a server, by room; needs valgrind.
    Instructions {
        /// Only this row; may be repeated.
        #[arg(long = "row", value_parser = clap::builder::PossibleValuesParser::new(COUNTED_ROWS))]
        rows: Vec<String>,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// What `all` runs under valgrind to count instructions: a row's server and hosts in one thread.
    Counted {
        /// Which row.
        #[arg(long)]
        row: String,
        /// Operations after the set-up.
        #[arg(long)]
        operations: u64,
    },
    /// Only the server end of the raw socket loop; serves one run and ends.
    RawServer {
        /// Address to listen on.
        #[arg(long, default_value = "127.0.0.1:4421")]
        listen: SocketAddr,
        #[command(flatten)]
        raw: RawArguments,
    },
    /// Only the client end of the raw socket loop.
    RawClient {
        /// Address of the server.
        #[arg(long, default_value = "127.0.0.1:4421")]
        connect: SocketAddr,
        #[command(flatten)]
        raw: RawArguments,
    },
}

#[derive(Args)]
struct AllArguments {
    /// Repetitions of each row.
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u16).range(1..))]
    repetitions: u16,
    /// Measured time of each side of a repetition, in milliseconds.
    #[arg(long, default_value_t = 500)]
    duration_ms: u64,
    /// Core of the server.
    #[arg(long, default_value_t = 0)]
    server_core: usize,
    /// Core of the load.
    #[arg(long, default_value_t = 1)]
    load_core: usize,
    /// Only rows whose item begins with this; may be repeated.
    #[arg(long)]
    only: Vec<String>,
    /// Do not count instructions, which takes minutes.
    #[arg(long)]
    uncounted: bool,
    /// fio, which drives are compared with: a name in the PATH, or a path.
    #[arg(long, default_value = "fio")]
    fio: PathBuf,
    /// Where drives that are files lie meanwhile: on the file system that is to be measured. They take 10 GiB.
    #[arg(long, default_value = ".")]
    drive_folder: PathBuf,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
struct IsolationArguments {
    /// Measured time beside each neighbour, in milliseconds.
    #[arg(long, default_value_t = 6000, value_parser = clap::value_parser!(u64).range(100..))]
    duration_ms: u64,
    /// How much slower the flash is than that of cnex-1tb.
    #[arg(long, default_value_t = 4.0)]
    slower: f64,
    /// Hosts of the neighbour that reconnects.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=200))]
    reconnect_hosts: u16,
    /// Pin the server to this core.
    #[arg(long)]
    server_core: Option<usize>,
    /// Only this isolation level; may be given several times.
    #[arg(long = "level", value_parser = ["channel", "die", "software", "none"])]
    levels: Vec<String>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
struct CostsArguments {
    /// Time of each row, in milliseconds.
    #[arg(long, default_value_t = 2000)]
    duration_ms: u64,
    /// Core of the server.
    #[arg(long, default_value_t = 0)]
    server_core: usize,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
struct RawArguments {
    /// Only this shape; without it, `raw` runs its table of shapes.
    #[arg(long)]
    shape: Option<RawShape>,
    /// Connections.
    #[arg(long, default_value_t = 1)]
    connections: usize,
    /// Requests under way on each connection.
    #[arg(long, default_value_t = 128)]
    depth: usize,
    /// The server copies the content of its responses from random places of so much memory; 0: it sends the same bytes.
    #[arg(long, default_value_t = 0)]
    far_mib: usize,
    /// That content is sent from where it is, without a copy into the send buffer.
    #[arg(long, requires = "far_mib")]
    in_place: bool,
    /// The checksum of that content is calculated.
    #[arg(long, requires = "far_mib")]
    checked: bool,
    /// Measured time in milliseconds.
    #[arg(long, default_value_t = 1000)]
    duration_ms: u64,
    /// Core of the server.
    #[arg(long, default_value_t = 0)]
    server_core: usize,
    /// Core of the load.
    #[arg(long, default_value_t = 1)]
    load_core: usize,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl RawArguments {
    fn settings(&self, shape: RawShape, connections: usize, depth: usize) -> RawSettings {
        RawSettings {
            shape,
            connections,
            depth,
            far_bytes: self.far_mib << 20,
            far_reads: FarReads { in_place: self.in_place, checked: self.checked },
            duration_ms: self.duration_ms,
            server_core: Some(self.server_core),
            load_core: Some(self.load_core),
        }
    }
    fn single(&self) -> RawSettings {
        self.settings(self.shape.unwrap_or(RawShape::Read), self.connections, self.depth)
    }
}

/// The table printed without `--shape`: the rows of the published comparison.
const RAW_TABLE: [(RawShape, usize, usize); 8] = [
    (RawShape::Read, 1, 1),
    (RawShape::Read, 1, 32),
    (RawShape::Read, 1, 64),
    (RawShape::Read, 1, 128),
    (RawShape::Read, 4, 8),
    (RawShape::Read, 16, 8),
    (RawShape::Write, 1, 32),
    (RawShape::Write, 1, 128),
];

fn main() -> ExitCode {
    match run(Arguments::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("diecut-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<(), Box<dyn std::error::Error>> {
    match command {
        Command::All(all) => {
            let settings = SuiteSettings {
                repetitions: usize::from(all.repetitions),
                duration_ms: all.duration_ms.max(10),
                server_core: all.server_core,
                load_core: all.load_core,
                only: all.only,
                uncounted: all.uncounted.then(|| "--uncounted was asked for".to_owned()),
                fio: all.fio,
                drive_folder: all.drive_folder,
            };
            let suite =
                suite::run(&settings, |what| eprintln!("{what}")).map_err(|error| error.to_string())?;
            if all.json {
                println!("{}", serde_json::to_string_pretty(&suite)?);
            } else {
                print!("{}", suite.table());
            }
        }
        Command::Raw(raw) => {
            let rows: Vec<RawSettings> = match raw.shape {
                Some(_) => vec![raw.single()],
                None => RAW_TABLE.iter().map(|&(shape, n, depth)| raw.settings(shape, n, depth)).collect(),
            };
            let mut results = Vec::new();
            for settings in rows {
                results.push(raw::run(&settings)?);
            }
            print_raw(&results, raw.json)?;
        }
        Command::Isolation(arguments) => {
            let settings = IsolationSettings {
                duration_ms: arguments.duration_ms,
                slower: arguments.slower,
                reconnect_hosts: arguments.reconnect_hosts,
                server_core: arguments.server_core,
                levels: arguments.levels,
            };
            let report = isolation::run(&settings, |what| eprintln!("{what}"))?;
            if arguments.json {
                println!("{}", serde_json::to_string_pretty(&report)?);
            } else {
                print!("{}", report.table());
            }
        }
        Command::Costs(arguments) => {
            let costs = costs::run(arguments.duration_ms, arguments.server_core, |what| eprintln!("{what}"))?;
            if arguments.json {
                println!("{}", serde_json::to_string_pretty(&costs)?);
            } else {
                for row in &costs.measured {
                    println!("{:9.0} ns  {}", row.ns, row.what);
                }
                println!("constants of the model:");
                for (name, ns) in &costs.model {
                    println!("{ns:9.0}     {name}");
                }
            }
        }
        Command::Instructions { rows, json } => {
            let mut counted = Vec::new();
            for id in
                COUNTED_ROWS.into_iter().filter(|id| rows.is_empty() || rows.iter().any(|row| row == id))
            {
                eprintln!("{id}: counting instructions");
                let instructions = counted::of_row(id).ok_or("this program cannot be found")?;
                counted.push((id, instructions.map_err(|error| error.to_string())?));
            }
            if json {
                println!("{}", serde_json::to_string_pretty(&counted)?);
            } else {
                let rows: Vec<_> = counted.iter().map(|(id, instructions)| (*id, instructions)).collect();
                print!("{}", suite::instructions_table(&rows));
            }
        }
        Command::Counted { row, operations } => {
            println!("{} operations", diecut_bench::counted::run(&row, operations)?);
        }
        Command::RawServer { listen, raw } => {
            let settings = raw.single();
            let far = settings.far_memory();
            let counters = raw::serve(&TcpListener::bind(listen)?, &settings, far)?;
            let per_operation = counters.system_calls as f64 / counters.messages.max(1) as f64;
            if raw.json {
                let line = serde_json::json!({
                    "messages": counters.messages,
                    "system_calls_per_operation": per_operation,
                });
                println!("{line}");
            } else {
                println!("{} requests, {per_operation:.3} system calls each", counters.messages);
            }
        }
        Command::RawClient { connect, raw } => print_raw(&[raw::load(connect, &raw.single())?], raw.json)?,
    }
    Ok(())
}

fn print_raw(results: &[RawResult], json: bool) -> serde_json::Result<()> {
    if json {
        println!("{}", serde_json::to_string_pretty(results)?);
        return Ok(());
    }
    let mut table = Table::new();
    table.set_header(["shape", "connections", "depth", "operations/s", "server calls/op", "client calls/op"]);
    for result in results {
        let settings = &result.settings;
        table.add_row([
            format!("{} B -> {} B", settings.shape.request_bytes(), settings.shape.response_bytes()),
            settings.connections.to_string(),
            settings.depth.to_string(),
            format!("{:.0}", result.operations_per_second),
            result.server_system_calls_per_operation.map_or("-".into(), |calls| format!("{calls:.3}")),
            format!("{:.3}", result.client_system_calls_per_operation),
        ]);
    }
    println!("{table}");
    Ok(())
}
