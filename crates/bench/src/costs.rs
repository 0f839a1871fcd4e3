//! What commands, messages and connections take of the server's core: the constants of the model that virtual time uses
//! (`diecut_shard::CostModel`).
//!
//! Processor time of the server's thread, user and kernel, from the operating system's accounts, over what was done
//! meanwhile. The thread looks around for a while before it sleeps: where its hosts keep it busy this is part of the work, where
//! they do not (connections) it makes figures too large, not too small.

use crate::flood::{self, Host, come_and_go};
use crate::suite::servers::{STACK_BYTES, Server};
use diecut_initiator::Command;
use diecut_load::drive::{DriveSettings, Endpoint, run as run_load};
use diecut_load::{LoadSpec, Pattern};
use serde::Serialize;
use std::cell::Cell;
use std::net::TcpStream;

type Outcome<T> = Result<T, String>;

/// Nanoseconds of the server's core, each.
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    /// What.
    pub what: String,
    /// How much.
    pub ns: f64,
}

/// What was measured, and the constants that follow.
#[derive(Clone, Debug, Serialize)]
pub struct Costs {
    /// As measured.
    pub measured: Vec<Measured>,
    /// Fields of `CostModel`, in nanoseconds.
    pub model: Vec<(&'static str, f64)>,
}

const SECOND_NS: u64 = 1_000_000_000;

struct Bench<'a> {
    server: &'a Server,
    runtime_ns: u64,
    measured: Vec<Measured>,
}

impl Bench<'_> {
    /// Processor time of the server per piece of what `work` says it did.
    fn per(&mut self, what: &str, work: impl FnOnce() -> Outcome<u64>) -> Outcome<f64> {
        let before = self.server.processor_ns()?;
        let done = work()?;
        let ns = (self.server.processor_ns()? - before) as f64 / done.max(1) as f64;
        self.measured.push(Measured { what: what.to_owned(), ns });
        Ok(ns)
    }

    /// The same, beside the system calls on sockets and epoll that the server made for each command.
    fn load_and_calls(&mut self, what: &str, endpoint: &Endpoint, spec: LoadSpec) -> Outcome<(f64, f64)> {
        let (calls, operations) = (self.server.reactor.system_calls(), Cell::new(0));
        let spec = LoadSpec { ramp_ns: 0, runtime_ns: self.runtime_ns, batch: spec.depth.min(32), ..spec };
        let ns = self.per(what, || {
            let report =
                run_load(endpoint, &spec, DriveSettings::default()).map_err(|error| error.to_string())?;
            operations.set(report.operations);
            Ok(report.operations)
        })?;
        let calls = self.server.reactor.system_calls() - calls;
        Ok((ns, calls as f64 / operations.get().max(1) as f64))
    }

    fn load(&mut self, what: &str, endpoint: &Endpoint, spec: LoadSpec) -> Outcome<f64> {
        self.load_and_calls(what, endpoint, spec).map(|(ns, _)| ns)
    }
}

/// Measures; each row takes about `duration_ms`.
///
/// # Errors
/// What could not be measured, and why.
pub fn run(duration_ms: u64, server_core: usize, mut say: impl FnMut(&str)) -> Outcome<Costs> {
    let runtime_ns = duration_ms * 1_000_000;
    let reads = |jobs, depth| LoadSpec { jobs, depth, ..LoadSpec::default() };
    let writes = |block_bytes, depth| LoadSpec { block_bytes, depth, read_percent: 0, ..LoadSpec::default() };
    say("null namespace");
    let server = Server::null(server_core).map_err(|error| error.to_string())?;
    let null = server.null_endpoint(0);
    let mut bench = Bench { server: &server, runtime_ns, measured: Vec::new() };
    let (batched, batched_calls) =
        bench.load_and_calls("null read, in batches (depth 128)", &null, reads(1, 128))?;
    let (single, single_calls) =
        bench.load_and_calls("null read, a message each (32 connections of depth 1)", &null, reads(32, 1))?;
    let null_write = bench.load("null write, in batches (depth 128)", &null, writes(4096, 128))?;
    say("connections");
    let attempts = duration_ms.max(100);
    let connection = bench.per("connection accepted and closed", || {
        for _ in 0..attempts {
            TcpStream::connect(null.address).map_err(|error| error.to_string())?;
        }
        Ok(attempts)
    })?;
    let messages = Cell::new(0);
    let host = bench.per("host that comes up, flushes and hangs up", || {
        for _ in 0..attempts {
            messages.set(come_and_go(&null)?);
        }
        Ok(attempts)
    })?;
    let mut measured = bench.measured;
    server.reactor.stop();

    say("whole stack");
    let server = Server::stack(server_core).map_err(|error| error.to_string())?;
    let stack = server.stack_endpoint();
    let mut bench = Bench { server: &server, runtime_ns, measured: Vec::new() };
    let in_order = LoadSpec {
        pattern: Pattern::Sequential,
        runtime_ns: 120 * SECOND_NS,
        operations_max: STACK_BYTES >> 17,
        ramp_ns: 0,
        ..writes(128 << 10, 16)
    };
    let overwrite = LoadSpec {
        pattern: Pattern::Random,
        operations_max: (2 * STACK_BYTES) >> 12,
        block_bytes: 4096,
        depth: 128,
        ..in_order.clone()
    };
    for spec in [in_order, overwrite] {
        run_load(&stack, &spec, DriveSettings::default()).map_err(|error| error.to_string())?;
    }
    let read = bench.load("read of 4 KiB, whole stack (depth 128)", &stack, reads(1, 128))?;
    let write = bench.load(
        "write of 4 KiB in steady cleaning, whole stack (depth 128)",
        &stack,
        writes(4096, 128),
    )?;
    let write_64k = bench.load("write of 64 KiB, whole stack (depth 16)", &stack, writes(64 << 10, 16))?;
    let write_1m = bench.load("write of 1 MiB, whole stack (depth 4)", &stack, writes(1 << 20, 4))?;
    let deallocate = bench.per("deallocate of 1 MiB, whole stack (depth 32)", || {
        let mut host = Host::connect(&stack, 32)?;
        let (mut number, blocks) = (0u64, STACK_BYTES >> 12);
        let mut next = || {
            number += 1;
            (Command::Deallocate { span: flood::span(number * 256 % blocks, 256) }, 0)
        };
        let left = Cell::new(blocks / 256);
        let goes_on = || left.replace(left.get().saturating_sub(1)) > 32;
        host.run(32, &mut next, &goes_on, &|_| ())
    })?;
    measured.extend(bench.measured);
    server.reactor.stop();
    let block_64k = (write_64k - null_write).max(0.0) / 16.0;
    // What a command costs if it shares no system call: the two shapes differ in nothing else.
    let call = (single - batched) / (single_calls - batched_calls).max(f64::MIN_POSITIVE);
    let command = batched - call * batched_calls;
    measured.push(Measured {
        what: "system calls per command, a message each (not ns)".to_owned(),
        ns: single_calls,
    });
    measured.push(Measured {
        what: "system calls per command, in batches (not ns)".to_owned(),
        ns: batched_calls,
    });
    let model = vec![
        ("command_ns", command),
        ("batch_ns", single - command),
        ("piece_ns", ((write_1m - write_64k).max(0.0) - 240.0 * block_64k).max(0.0) / 15.0),
        ("connection_ns", connection / 2.0),
        ("message_ns", (host - 2.0 * connection) / messages.get().max(1) as f64),
        ("read_block_ns", read - batched),
        ("write_block_ns", write - null_write),
        ("deallocate_16_blocks_ns", (deallocate - batched).max(0.0) / 16.0),
    ];
    Ok(Costs { measured, model })
}
