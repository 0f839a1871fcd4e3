//! The command line. It speaks to a running server over its control socket and prints what it says, as
//! tables for people and as JSON for programs (`--json`). `diecut sim` needs no server.
//!
//! Place in the flow: beside the data path. It knows the words of the control interface and no shard.

#![deny(clippy::unwrap_used)]
#![deny(clippy::print_stdout)]

mod client;
mod command;
#[cfg(test)]
mod pages;
mod print;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand};
use std::path::PathBuf;
use std::process::ExitCode;

/// Cut shared flash into isolated virtual SSDs.
#[derive(Parser)]
#[command(name = "diecut", version, about)]
struct Arguments {
    /// Control socket of the server. The variable is for commands that ask a server: `serve` does not look at it.
    #[arg(long, global = true, env = "DIECUT_SOCKET", default_value = diecut_api::socket::DEFAULT_SOCKET)]
    socket: PathBuf,
    /// Print JSON for programs.
    #[arg(long, global = true)]
    json: bool,
    /// Wait so many seconds for a server; 0 waits for as long as it takes. A change is answered then, done or not: what is not done
    /// is said with what it waits for, and goes on. Without it 60 s for a change, 30 s for everything else.
    #[arg(long, global = true, value_name = "SECONDS")]
    timeout: Option<u64>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serve vSSDs to NVMe/TCP hosts, until Ctrl-C.
    Serve(command::serve::Serve),
    /// Show everything that exists, with figures.
    Status(command::status::Status),
    /// Slow commands: where their time went, and who waited for whom.
    Latency(command::latency::Latency),
    /// Panics: inner checks of the server that failed, and vSSDs that are fenced for it.
    Panics(command::panics::Panics),
    /// Tenants: the owners of vSSDs and subsystems.
    #[command(subcommand)]
    Tenant(command::tenant::Tenant),
    /// Virtual SSDs: isolated shares of the device.
    #[command(subcommand)]
    Vssd(command::vssd::Vssd),
    /// Volumes: what a namespace shows.
    #[command(subcommand)]
    Volume(command::volume::Volume),
    /// Subsystems: what hosts connect to.
    #[command(subcommand)]
    Subsystem(command::subsystem::Subsystem),
    /// Hosts: who may connect to a subsystem.
    #[command(subcommand)]
    Host(command::host::Host),
    /// QoS sets: rates of volumes and vSSDs that share token buckets.
    #[command(subcommand)]
    Qos(command::qos::Qos),
    /// Even wear: what was erased, exchanges of dies, and their settings.
    Wear(command::wear::Wear),
    /// Create what a set-up file declares and the server lacks, and name what differs; what exists is left as it is.
    Apply(command::apply::Apply),
    /// Load a subsystem over NVMe/TCP and measure it, in fio's vocabulary.
    Bench(command::bench::Bench),
    /// Measure a drive or a file by itself, without a server; reads only, unless told otherwise.
    Probe(command::probe::Probe),
    /// Devices: what files and block devices of this machine are, and what a server has of them.
    #[command(subcommand)]
    Device(command::device::Device),
    /// See isolation at work, without a server.
    #[command(subcommand)]
    Demo(command::demo::Demo),
    /// Run published experiments again, in virtual time, without a server.
    #[command(subcommand)]
    Repro(command::repro::Repro),
    /// Run the system in virtual time, from seeds, with faults and checkers.
    Sim(diecut_sim::cli::SimArgs),
}

/// Options for those who ask a server, and commands for which they do nothing: these neither list nor take them.
const IN_VAIN: [(&str, &[&str]); 6] = [
    ("serve", &["timeout", "json"]),
    ("sim", &["socket", "timeout"]),
    ("demo", &["socket", "timeout"]),
    ("probe", &["socket", "timeout"]),
    ("device", &["socket", "timeout"]),
    ("repro", &["socket", "timeout"]),
];

/// The command line, with what its options mean for each command.
fn command_line() -> clap::Command {
    let mut command = Arguments::command();
    for (name, options) in IN_VAIN {
        command = command.mut_subcommand(name, |command| {
            options.iter().fold(command, |command, option| {
                let arg = Arg::new(*option).long(*option).global(true).hide(true);
                // Of the same type as the option whose place it takes.
                command.arg(match *option {
                    "json" => arg.action(ArgAction::SetTrue),
                    "timeout" => arg.value_parser(clap::value_parser!(u64)),
                    _ => arg.value_parser(clap::value_parser!(PathBuf)),
                })
            })
        });
    }
    let command =
        command.mut_subcommand("serve", |command| {
            let socket = Arg::new("socket").long("socket").value_name("SOCKET");
            command.arg(socket.value_parser(clap::value_parser!(PathBuf)).help(
                "Control socket, instead of the set-up's; without either, control.sock in the data folder",
            ))
        });
    take_negative_numbers(command)
}

/// Has `-1` be a value, which is refused as such, and no unknown option.
fn take_negative_numbers(command: clap::Command) -> clap::Command {
    let command = command.mut_args(|arg| {
        let takes_value = matches!(arg.get_action(), ArgAction::Set | ArgAction::Append);
        arg.allow_negative_numbers(takes_value)
    });
    let names: Vec<String> = command.get_subcommands().map(|one| one.get_name().to_owned()).collect();
    names.into_iter().fold(command, |command, name| command.mut_subcommand(name, take_negative_numbers))
}

/// An error about a value that should be a number, with what is expected; `clap` only has the parser's words ("invalid digit found in
/// string").
fn explained(error: clap::Error) -> clap::Error {
    let Some(source) = std::error::Error::source(&error) else { return error };
    let expected = if let Some(error) = source.downcast_ref::<std::num::ParseIntError>() {
        match error.kind() {
            std::num::IntErrorKind::PosOverflow => "it is too large",
            std::num::IntErrorKind::NegOverflow => "it is too small",
            _ => "a whole number is expected, in digits",
        }
    } else if source.is::<std::num::ParseFloatError>() {
        "a number is expected, as in 0.5 or 2"
    } else {
        return error;
    };
    let (Some(ContextValue::String(option)), Some(ContextValue::String(value))) =
        (error.get(ContextKind::InvalidArg), error.get(ContextKind::InvalidValue))
    else {
        return error;
    };
    let message = format!(
        "invalid value '{value}' for '{option}': {expected}\n\nFor more information, try '--help'.\n"
    );
    clap::Error::raw(ErrorKind::ValueValidation, message)
}

/// Ends the process with what is wrong with the command line, as JSON where `--json` asks for that.
fn end_with(error: &clap::Error) -> ! {
    let is_json = std::env::args_os().any(|argument| argument == "--json");
    if is_json && error.use_stderr() {
        let text = error.to_string();
        let problem = client::ClientError::Usage(text.trim().trim_start_matches("error: ").to_owned());
        eprintln!("{}", problem.to_json());
        std::process::exit(error.exit_code());
    }
    error.exit()
}

/// Refuses options that would do nothing.
fn refuse_in_vain(matches: &ArgMatches) {
    // Those of `device` that ask a server.
    let asks = |device: &ArgMatches| {
        matches!(device.subcommand_name(), Some("list" | "show" | "add" | "remove" | "evacuate"))
    };
    if matches.subcommand_matches("device").is_some_and(asks) {
        return;
    }
    let Some((_, options)) = IN_VAIN.iter().find(|(name, _)| matches.subcommand_name() == Some(name)) else {
        return;
    };
    for option in *options {
        if matches.value_source(option) == Some(ValueSource::CommandLine) {
            let name = matches.subcommand_name().unwrap_or_default();
            let hint = if (name, *option) == ("serve", "json") {
                "; --log-format json makes its log JSON"
            } else {
                ""
            };
            let message = format!("--{option} does nothing for `diecut {name}`; leave it out{hint}");
            end_with(&command_line().error(ErrorKind::ArgumentConflict, message));
        }
    }
}

fn main() -> ExitCode {
    let matches = command_line().try_get_matches().unwrap_or_else(|error| end_with(&explained(error)));
    refuse_in_vain(&matches);
    let arguments = Arguments::from_arg_matches(&matches).unwrap_or_else(|error| end_with(&error));
    // A server must not take the socket that a variable names to those who ask another server.
    let is_socket_named = matches.value_source("socket") == Some(ValueSource::CommandLine);
    let is_without_sockets = match &arguments.command {
        Command::Sim(_) | Command::Demo(_) | Command::Repro(_) | Command::Probe(_) => true,
        Command::Device(device) => !device.asks_server(),
        _ => false,
    };
    if is_without_sockets {
        // They have no sockets, so that the signal can only be of a reader that is gone (`| head`).
        // SAFETY: no other thread runs yet, and the default action is no function of ours.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    }
    if let Command::Sim(sim) = &arguments.command {
        return diecut_sim::cli::main(sim);
    }
    let command = match arguments.command {
        Command::Serve(serve) => return serve.run(is_socket_named.then_some(arguments.socket)),
        Command::Demo(demo) => return demo.run(arguments.json),
        Command::Repro(repro) => return repro.run(arguments.json),
        Command::Probe(probe) => return probe.run(arguments.json),
        Command::Device(device) if !device.asks_server() => return device.run(arguments.json),
        Command::Bench(bench) => {
            return bench.run(&client::Client::new(arguments.socket, arguments.timeout), arguments.json);
        }
        command => command,
    };
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("error: the asynchronous runtime cannot start: {error}");
            return ExitCode::FAILURE;
        }
    };
    let is_socket_told = matches.value_source("socket") != Some(ValueSource::DefaultValue);
    let told_socket = is_socket_told.then(|| arguments.socket.clone());
    let client = client::Client::new(arguments.socket, arguments.timeout);
    let outcome = runtime.block_on(async {
        match command {
            Command::Status(status) => status.run(&client, arguments.json).await,
            Command::Latency(latency) => latency.run(&client, arguments.json).await,
            Command::Panics(panics) => panics.run(&client, arguments.json).await,
            Command::Tenant(tenant) => tenant.run(&client, arguments.json).await,
            Command::Vssd(vssd) => vssd.run(&client, arguments.json).await,
            Command::Volume(volume) => volume.run(&client, arguments.json).await,
            Command::Subsystem(subsystem) => subsystem.run(&client, arguments.json).await,
            Command::Host(host) => host.run(&client, arguments.json).await,
            Command::Qos(qos) => qos.run(&client, arguments.json).await,
            Command::Wear(wear) => wear.run(&client, arguments.json).await,
            Command::Device(device) => device.ask(&client, arguments.json).await,
            Command::Apply(apply) => apply.run(told_socket, arguments.timeout, arguments.json).await,
            Command::Sim(_)
            | Command::Serve(_)
            | Command::Demo(_)
            | Command::Repro(_)
            | Command::Probe(_)
            | Command::Bench(_) => unreachable!("answered before a client is needed"),
        }
    });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            if arguments.json {
                eprintln!("{}", error.to_json());
            } else {
                eprintln!("error: {error}");
            }
            ExitCode::FAILURE
        }
    }
}
